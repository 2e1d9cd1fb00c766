//! The ranges of its memory that a client lets the device reach.

use alloc::collections::BTreeMap;
use weir_spec::vfio_user::{DmaMap, errno};

/// Most DMA regions at a time.
pub const MAX_REGIONS: u32 = 1024;
/// DMA regions are whole pages of this size.
pub(super) const PAGE: u64 = 4096;

/// What the device may do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaAccess {
    /// Read it.
    Read,
    /// Write it.
    Write,
    /// Both.
    ReadWrite,
}

impl DmaAccess {
    /// Whether it may be read.
    pub const fn reads(self) -> bool {
        !matches!(self, DmaAccess::Write)
    }
    /// Whether it may be written.
    pub const fn writes(self) -> bool {
        !matches!(self, DmaAccess::Read)
    }
}

/// A range of DMA addresses and the file it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaRegion {
    /// DMA address.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
    /// Where it starts in its file.
    pub offset: u64,
    /// What the device may do.
    pub access: DmaAccess,
    /// It came with a descriptor; else it is reached by messages only.
    pub mapped: bool,
}

impl DmaRegion {
    /// What DMA_MAP asks for.
    ///
    /// # Errors
    /// EINVAL: it is empty, no whole pages, wraps around, or grants nothing.
    pub(super) fn from_wire(map: &DmaMap) -> Result<Self, u32> {
        let access = match map.flags.get() {
            f if f == DmaMap::READ => DmaAccess::Read,
            f if f == DmaMap::WRITE => DmaAccess::Write,
            f if f == DmaMap::READ | DmaMap::WRITE => DmaAccess::ReadWrite,
            _ => return Err(errno::EINVAL),
        };
        let (address, len, offset) = (map.address.get(), map.size.get(), map.offset.get());
        let ends = address.checked_add(len).is_some() && offset.checked_add(len).is_some();
        if len == 0 || (address | len) % PAGE != 0 || !ends {
            return Err(errno::EINVAL);
        }
        Ok(Self { address, len, offset, access, mapped: true })
    }
}

/// The regions by address.
#[derive(Debug, Default)]
pub(super) struct Regions(BTreeMap<u64, DmaRegion>);

impl Regions {
    /// Whether there is room for this one.
    ///
    /// # Errors
    /// EEXIST: it overlaps another one. ENOSPC: there are as many as there may be.
    pub fn admits(&self, region: &DmaRegion) -> Result<(), u32> {
        let before = self.0.range(..region.address + region.len).next_back();
        if before.is_some_and(|(_, r)| r.address + r.len > region.address) {
            return Err(errno::EEXIST);
        }
        if self.0.len() >= MAX_REGIONS as usize { Err(errno::ENOSPC) } else { Ok(()) }
    }

    pub fn insert(&mut self, region: DmaRegion) {
        self.0.insert(region.address, region);
    }

    /// Takes out the region that is exactly there.
    ///
    /// # Errors
    /// ENOENT: none begins there. EINVAL: it has another length.
    pub fn take(&mut self, address: u64, len: u64) -> Result<DmaRegion, u32> {
        match self.0.get(&address) {
            None => Err(errno::ENOENT),
            Some(r) if r.len != len => Err(errno::EINVAL),
            Some(r) => {
                let region = *r;
                self.0.remove(&address);
                Ok(region)
            }
        }
    }

    /// Takes out all of them.
    pub fn take_all(&mut self) -> impl Iterator<Item = DmaRegion> + use<> {
        core::mem::take(&mut self.0).into_values()
    }

    /// By address.
    pub fn all(&self) -> impl Iterator<Item = &DmaRegion> {
        self.0.values()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether some are reached by messages only.
    pub fn any_unmapped(&self) -> bool {
        self.0.values().any(|r| !r.mapped)
    }

    /// How many of the `len` bytes at an address lie in one region that is reached by messages and grants this.
    pub fn messaged(&self, address: u64, len: u32, grants: impl Fn(DmaAccess) -> bool) -> u32 {
        let region = self.0.range(..=address).next_back().map(|(_, r)| r).filter(|r| !r.mapped && grants(r.access));
        region.map_or(0, |r| (r.address + r.len).saturating_sub(address).min(len.into()) as u32)
    }
}
