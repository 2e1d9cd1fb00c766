//! The ranges of guest memory that a front end shares, and the port that maps them.

use crate::memory::Memory;
use alloc::vec::Vec;
use core::fmt;
use weir_spec::vhost_user::MemoryRegion;

/// A range of guest memory and the file it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Guest physical address.
    pub guest: u64,
    /// Length in bytes.
    pub len: u64,
    /// Where the front end sees it; ring addresses are given in these terms.
    pub user: u64,
    /// Where it starts in its file.
    pub offset: u64,
}

impl Region {
    pub(super) fn from_wire(r: &MemoryRegion) -> Option<Self> {
        let (guest, len, user, offset) =
            (r.guest_address.get(), r.size.get(), r.user_address.get(), r.mmap_offset.get());
        let fits = |start: u64| start.checked_add(len).is_some();
        (len != 0 && fits(guest) && fits(user) && fits(offset)).then_some(Self { guest, len, user, offset })
    }

    pub(super) fn overlaps(&self, other: &Region) -> bool {
        let meet = |a: u64, b: u64| a < b + other.len && b < a + self.len;
        meet(self.guest, other.guest) || meet(self.user, other.user)
    }
}

/// Why memory could not be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The file ends before the region does.
    TooShort {
        /// Bytes needed.
        need: u64,
        /// Bytes that the file has.
        have: u64,
    },
    /// The system refused, with this error number.
    System(i32),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::TooShort { need, have } => write!(f, "the file has {have} bytes, the region ends at {need}"),
            MapError::System(errno) => write!(f, "cannot map it: error {errno}"),
        }
    }
}

impl core::error::Error for MapError {}

/// Memory whose regions the front end sends, each with a descriptor. The device has checked that they do not overlap.
pub trait Map<F>: Memory {
    /// Maps these and forgets all others; on failure nothing changes.
    ///
    /// # Errors
    /// What the system said.
    fn replace(&mut self, regions: Vec<(Region, F)>) -> Result<(), MapError>;
    /// Maps one more.
    ///
    /// # Errors
    /// What the system said.
    fn add(&mut self, region: Region, fd: F) -> Result<(), MapError>;
    /// Unmaps one: windows into it are stale from now on.
    fn remove(&mut self, region: &Region);
}
