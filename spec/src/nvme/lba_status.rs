//! Get LBA Status and the LBA Status Information log page (NVM command set 1.0, 4.1.4.5 and 4.2.1).

use super::wire::{bits, wire};
use zerocopy::little_endian::{U16, U32, U64};

bits! {
    /// CDW13 of Get LBA Status.
    LbaStatusDw13: u32 {
        /// RL: blocks from SLBA on; 0: to the end of the namespace.
        range, with_range: 15, 0;
        /// ATYPE: [`action`].
        atype, with_atype: 31, 24;
    }
}

/// Values of ATYPE.
pub mod action {
    /// Blocks that a scan finds, and tracked ones.
    pub const SCAN: u8 = 0x10;
    /// Tracked blocks.
    pub const TRACKED: u8 = 0x11;
}

/// Values of CMPC.
pub mod completion {
    /// There are more descriptors than the host has room for.
    pub const INCOMPLETE: u8 = 1;
    /// The range was gone through, and there are no more descriptors.
    pub const COMPLETE: u8 = 2;
}

/// STATUS of a descriptor: Write Uncorrectable was the newest write of each of its blocks, which read as Unrecovered Read Error.
pub const STATUS_WRITE_UNCORRECTABLE: u8 = 0b11;

wire! {
    /// The head of a list of LBA status descriptors: 8 bytes.
    LbaStatusHeader: 8 {
        /// NLSD: how many descriptors follow.
        count: U32 = 0,
        /// CMPC: [`completion`].
        cmpc: u8 = 4,
        /// Reserved.
        rsvd5: [u8; 3] = 5,
    }
}

wire! {
    /// An LBA status descriptor: 16 bytes.
    LbaStatusDescriptor: 16 {
        /// DSLBA: its first block.
        dslba: U64 = 0,
        /// How many blocks, 0-based.
        nlb: U32 = 8,
        /// Reserved.
        rsvd12: u8 = 12,
        /// [`STATUS_WRITE_UNCORRECTABLE`].
        status: u8 = 13,
        /// Reserved.
        rsvd14: [u8; 2] = 14,
    }
}

wire! {
    /// The head of the LBA Status Information log page: 16 bytes.
    LbaStatusLog: 16 {
        /// LSLPLEN: bytes of the page.
        length: U32 = 0,
        /// NLSLNE: how many namespace elements follow.
        elements: U32 = 4,
        /// ESTULB: unrecoverable blocks in all.
        estimate: U32 = 8,
        /// Reserved.
        rsvd12: [u8; 2] = 12,
        /// LSGC: the generation counter.
        generation: U16 = 14,
    }
}

/// NLRD of an element without ranges: all blocks of the namespace are to be looked at.
pub const EVERY_BLOCK: u32 = u32::MAX;

wire! {
    /// A namespace element of the log page: 16 bytes, and its ranges behind it.
    LbaStatusElement: 16 {
        /// NEID: the namespace.
        nsid: U32 = 0,
        /// NLRD: how many ranges follow, or [`EVERY_BLOCK`].
        ranges: U32 = 4,
        /// RATYPE: the [`action`] to ask for them with.
        action: u8 = 8,
        /// Reserved.
        rsvd9: [u8; 7] = 9,
    }
}

wire! {
    /// A range of an element: 16 bytes.
    LbaStatusRange: 16 {
        /// RSLBA: its first block.
        rslba: U64 = 0,
        /// RNLB: how many blocks, 0-based.
        rnlb: U32 = 8,
        /// Reserved.
        rsvd12: [u8; 4] = 12,
    }
}
