//! A part of what a drive remembers without power.

use crate::subsystem::Subsystem;
use weir_codec::{Damaged, Reader, Writer};

/// A part of what is remembered.
pub(crate) struct Section {
    /// Its identifier: never given to anything else.
    pub id: u16,
    /// The version that is written; older ones are read.
    pub version: u16,
    /// Writes it; nothing at all is written where it leaves the writer empty.
    pub save: fn(&Subsystem, &mut Writer),
    /// Reads what was written, of that version or an older one, into a drive that was just made.
    pub restore: fn(&mut Subsystem, &mut Reader<'_>, u16) -> Result<(), Damaged>,
}
