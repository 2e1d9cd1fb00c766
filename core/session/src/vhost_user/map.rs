//! The ranges of guest memory that a front end shares, and the port that maps them.

use crate::memory::{MapError, Memory};
use alloc::vec::Vec;
use weir_spec::vhost_user::MemoryRegion;

/// A range of guest memory and the file it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestRegion {
    /// Guest physical address.
    pub guest: u64,
    /// Length in bytes.
    pub len: u64,
    /// Where the front end sees it; ring addresses are given in these terms.
    pub user: u64,
    /// Where it starts in its file.
    pub offset: u64,
}

impl GuestRegion {
    pub(super) fn from_wire(r: &MemoryRegion) -> Option<Self> {
        let (guest, len, user, offset) =
            (r.guest_address.get(), r.size.get(), r.user_address.get(), r.mmap_offset.get());
        let fits = |start: u64| start.checked_add(len).is_some();
        (len != 0 && fits(guest) && fits(user) && fits(offset)).then_some(Self { guest, len, user, offset })
    }

    pub(super) fn overlaps(&self, other: &GuestRegion) -> bool {
        let meet = |a: u64, b: u64| a < b + other.len && b < a + self.len;
        meet(self.guest, other.guest) || meet(self.user, other.user)
    }
}

/// Memory whose regions the front end sends, each with a descriptor. The device has checked that they do not overlap.
pub trait Map<F>: Memory {
    /// Maps these and forgets all others; on failure nothing changes.
    ///
    /// # Errors
    /// What the system said.
    fn replace(&mut self, regions: Vec<(GuestRegion, F)>) -> Result<(), MapError>;
    /// Maps one more.
    ///
    /// # Errors
    /// What the system said.
    fn add(&mut self, region: GuestRegion, fd: F) -> Result<(), MapError>;
    /// Unmaps one: windows into it are stale from now on.
    fn remove(&mut self, region: &GuestRegion);
    /// Makes memory of `len` bytes for a journal, zeroed, and a descriptor that carries it to the front end.
    ///
    /// # Errors
    /// What the system said.
    fn make_words(&mut self, len: u64) -> Result<(Self::Words, F), MapError>;
    /// Maps a journal that the front end kept.
    ///
    /// # Errors
    /// What the system said, or that the descriptor is of no memory file.
    fn map_words(&mut self, fd: F, offset: u64, len: u64) -> Result<Self::Words, MapError>;
}
