//! How the arrays of a map say places, slots of the write buffer and counts.

/// No place: never written, or trimmed.
pub const NONE: u32 = u32::MAX;

/// Set in a word of `l2p` whose newest version waits in a slot of the write buffer; [`NONE`] has it too.
pub const TAG: u32 = 1 << 31;

/// The largest number of physical units: a place is told from a tag by its top bit, and one number stays unused.
pub const UNITS_MAX: u32 = TAG - 1;

/// Set in the valid count of a block that is no candidate for collection (free, being written, bad), so that one look
/// at one array finds a victim. Decrementing works either way.
pub const HELD: u16 = 1 << 15;

/// The largest number of units of a block: the rest of the valid count's 16 bits.
pub const BLOCK_UNITS_MAX: u32 = HELD as u32 - 1;
