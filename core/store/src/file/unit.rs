//! Units of checksums that are compared before a part of them is written, and where their bytes are in memory meanwhile.

use super::event::FileBuffer;
use crate::records::CHECKSUM_BYTES;

/// A unit that is compared: its number in the block, its first byte and the one behind it there, and a copy that has it right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ComparedUnit {
    pub unit: u32,
    pub first: u32,
    pub behind: u32,
    pub good: usize,
}

impl ComparedUnit {
    /// Its length in bytes.
    pub const fn len(&self) -> u32 {
        self.behind - self.first
    }
}

/// Where the bytes of one of so many units are in the memory that has those of all copies.
pub(super) fn unit_at(own: u64, units: usize, copy: usize, index: usize) -> FileBuffer {
    FileBuffer::Own(own, unit_place(units, copy, index))
}

fn unit_place(units: usize, copy: usize, index: usize) -> u32 {
    (copy * units + index) as u32 * CHECKSUM_BYTES
}

/// Where the right bytes from `first` on and before `behind` are, if they are in one of the units.
pub(super) fn compared_at(own: u64, units: &[ComparedUnit], (first, behind): (u32, u32)) -> Option<FileBuffer> {
    let index = units.iter().position(|unit| unit.first <= first && behind <= unit.behind)?;
    let unit = &units[index];
    Some(FileBuffer::Own(own, unit_place(units.len(), unit.good, index) + (first - unit.first)))
}
