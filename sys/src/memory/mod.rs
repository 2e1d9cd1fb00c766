//! Memory shared with another process that may change it at any time: a guest's, for the vhost-user and vfio-user doors, or
//! our own that we let a server see, for the vhost-user front end. Implements the [`Memory`] and [`Map`] ports of
//! `weir-session`; [`doorbells`] is the other way round, a page of ours that a client rings in.
//!
//! No reference into a mapping is ever made for a guest's memory: bytes are copied, words are loaded and stored
//! atomically. A [`Window`] is a pointer with the epoch of the table it was made from; the epoch of a table changes when
//! a region goes, and no two tables ever have the same one, so a window is followed only while its mapping is there.
//!
//! A file that is shorter than its region is refused when it is mapped. A file that is truncated later would end the
//! process by SIGBUS at the next access; [`guard`] puts a page of zeroes there instead.

pub mod doorbells;
mod inflight;
mod journal;
pub mod lend;
mod shared_words;
pub mod sigbus;

pub use inflight::InflightRegions;
pub use journal::JournalWords;
pub use shared_words::SharedWords;

use rustix::fs::{FileType, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use weir_session::memory::{MapError, Memory, MemoryFault};
use weir_session::vfio_user::DmaAccess;
use weir_session::vhost_user::{GuestRegion, Map};

const PAGE: u64 = 4096;
/// Length of a huge page.
pub const HUGE: usize = 2 << 20;

/// One mapped region.
#[derive(Debug)]
struct Mapping {
    guest: u64,
    len: u64,
    /// Where `guest` is.
    pointer: NonNull<u8>,
    /// The mapping, which begins at a page.
    base: NonNull<u8>,
    mapped: usize,
    access: DmaAccess,
    /// Its entry with [`guard`].
    ticket: Option<sigbus::GuardedMapping>,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.ticket.take());
        // SAFETY: `base` and `mapped` are what mmap returned and got. Pointers into it exist only in windows, and the
        // table changes its epoch together with dropping a mapping, so no window is followed any more.
        unsafe {
            let _ = rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped);
        }
    }
}

/// A table of mapped regions.
#[derive(Debug)]
pub struct GuestMemory {
    /// By address.
    regions: Vec<Mapping>,
    /// The region that served the last access.
    last: Cell<usize>,
    epoch: u64,
    inflight: InflightRegions,
}

// SAFETY: the mappings belong to the table alone and are valid in every thread; all access is by copy or atomic.
unsafe impl Send for GuestMemory {}

/// A resolved range of a [`GuestMemory`].
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pointer: NonNull<u8>,
    len: usize,
    epoch: u64,
}

// SAFETY: the pointer is followed only by the table that made it, if that still has the window's epoch.
unsafe impl Send for Window {}

fn new_epoch() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Default for GuestMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl GuestMemory {
    /// A table without regions.
    pub fn new() -> Self {
        Self { regions: Vec::new(), last: Cell::new(0), epoch: new_epoch(), inflight: InflightRegions::default() }
    }

    /// Which in-flight regions were made on its socket.
    pub fn inflight(&mut self) -> &mut InflightRegions {
        &mut self.inflight
    }

    /// The bytes of a range of memory that this process allocated itself.
    ///
    /// # Safety
    /// No other reference to the range exists, and the other process does not write it while this one lives.
    pub unsafe fn slice_mut(&mut self, address: u64, len: usize) -> Option<&mut [u8]> {
        let pointer = self.place(address, len, DmaAccess::writes)?;
        // SAFETY: `place` found `len` bytes in one mapping, which lives as long as `self`; the rest is the caller's.
        Some(unsafe { std::slice::from_raw_parts_mut(pointer.as_ptr(), len) })
    }

    /// Maps every page now rather than at its first access.
    pub fn populate(&self) {
        for r in &self.regions {
            // SAFETY: a range of one of our mappings, whose content the advice keeps. A kernel that does not know it
            // refuses, and pages come one by one.
            unsafe {
                libc::madvise(r.base.as_ptr().cast(), r.mapped, libc::MADV_POPULATE_WRITE);
            }
        }
    }

    /// Number of regions.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Adds a region that the device may only use as `access` says. It overlaps no other.
    ///
    /// # Errors
    /// What the system said.
    pub fn add_for(&mut self, region: GuestRegion, fd: OwnedFd, access: DmaAccess) -> Result<(), MapError> {
        let mapping = map_region(&region, fd, access)?;
        let at = self.regions.partition_point(|r| r.guest < mapping.guest);
        self.regions.insert(at, mapping);
        self.last.set(at);
        Ok(())
    }

    /// Unmaps the region of that address and length: windows into the table are stale from now on.
    pub fn forget(&mut self, address: u64, len: u64) {
        self.epoch = new_epoch();
        self.last.set(0);
        self.regions.retain(|m| (m.guest, m.len) != (address, len));
    }

    /// Where `len` bytes at a guest address are, if they are in one region that allows it.
    #[inline]
    fn place(&self, address: u64, len: usize, allows: impl Fn(DmaAccess) -> bool) -> Option<NonNull<u8>> {
        let r = self.regions.get(self.last.get())?;
        let at = address.wrapping_sub(r.guest);
        if at < r.len && len as u64 <= r.len - at && allows(r.access) {
            // SAFETY: `at` is less than the mapping's length.
            return Some(unsafe { r.pointer.add(at as usize) });
        }
        self.search(address, len, allows)
    }

    fn search(&self, address: u64, len: usize, allows: impl Fn(DmaAccess) -> bool) -> Option<NonNull<u8>> {
        let (pointer, have) = self.piece(address, allows)?;
        (len <= have).then_some(pointer)
    }

    /// Where a guest address is, and how many bytes follow in its region.
    fn piece(&self, address: u64, allows: impl Fn(DmaAccess) -> bool) -> Option<(NonNull<u8>, usize)> {
        let i = self.regions.partition_point(|r| r.guest <= address).checked_sub(1)?;
        let r = &self.regions[i];
        let at = address - r.guest;
        if at >= r.len || !allows(r.access) {
            return None;
        }
        self.last.set(i);
        // SAFETY: `at` is less than the mapping's length.
        Some((unsafe { r.pointer.add(at as usize) }, (r.len - at) as usize))
    }

    /// How many of the `len` bytes at an address are in the region that has the first one; 0 if none has.
    pub fn prefix(&self, address: u64, len: u32) -> u32 {
        self.piece(address, |_| true).map_or(0, |(_, have)| have.min(len as usize) as u32)
    }

    /// Calls `f` with each contiguous piece of a range: pointer, offset in the range, length.
    #[inline(never)]
    fn pieces(
        &self,
        (address, len): (u64, usize),
        allows: impl Fn(DmaAccess) -> bool,
        mut f: impl FnMut(NonNull<u8>, usize, usize),
    ) -> Result<(), MemoryFault> {
        let mut done = 0;
        while done < len {
            let at = address.checked_add(done as u64).ok_or(MemoryFault::Unmapped)?;
            let (pointer, have) = self.piece(at, &allows).ok_or(MemoryFault::Unmapped)?;
            let n = have.min(len - done);
            f(pointer, done, n);
            done += n;
        }
        Ok(())
    }

    /// A pointer to `N` aligned bytes of a window.
    #[inline]
    fn word<const N: usize>(&self, w: &Window, at: usize) -> Result<*mut u8, MemoryFault> {
        if w.epoch != self.epoch {
            return Err(MemoryFault::Stale);
        }
        if at > w.len || w.len - at < N {
            return Err(MemoryFault::OutOfWindow);
        }
        // SAFETY: within the window, which the epoch proves to be mapped.
        let pointer = unsafe { w.pointer.as_ptr().add(at) };
        if pointer.addr() % N != 0 { Err(MemoryFault::Misaligned) } else { Ok(pointer) }
    }
}

impl Memory for GuestMemory {
    type Window = Window;
    type Words = JournalWords;

    #[inline]
    fn window(&self, address: u64, len: usize) -> Result<Window, MemoryFault> {
        // Windows are for rings, some of whose words are stored.
        let pointer = self.place(address, len, |a| a == DmaAccess::ReadWrite).ok_or(MemoryFault::Unmapped)?;
        Ok(Window { pointer, len, epoch: self.epoch })
    }

    #[inline]
    fn load16(&self, w: &Window, at: usize, order: Ordering) -> Result<u16, MemoryFault> {
        let p = self.word::<2>(w, at)?;
        // SAFETY: `word` gave 2 mapped, aligned bytes; every access to them in this process is atomic.
        Ok(u16::from_le(unsafe { AtomicU16::from_ptr(p.cast()) }.load(order)))
    }

    #[inline]
    fn load32(&self, w: &Window, at: usize, order: Ordering) -> Result<u32, MemoryFault> {
        let p = self.word::<4>(w, at)?;
        // SAFETY: as in `load16`, 4 bytes.
        Ok(u32::from_le(unsafe { AtomicU32::from_ptr(p.cast()) }.load(order)))
    }

    #[inline]
    fn load64(&self, w: &Window, at: usize, order: Ordering) -> Result<u64, MemoryFault> {
        let p = self.word::<8>(w, at)?;
        // SAFETY: as in `load16`, 8 bytes.
        Ok(u64::from_le(unsafe { AtomicU64::from_ptr(p.cast()) }.load(order)))
    }

    #[inline]
    fn store16(&self, w: &Window, at: usize, value: u16, order: Ordering) -> Result<(), MemoryFault> {
        let p = self.word::<2>(w, at)?;
        // SAFETY: as in `load16`.
        unsafe { AtomicU16::from_ptr(p.cast()) }.store(value.to_le(), order);
        Ok(())
    }

    #[inline]
    fn store_pair32(&self, w: &Window, at: usize, low: u32, high: u32) -> Result<(), MemoryFault> {
        let (p, q) = (self.word::<4>(w, at)?, self.word::<4>(w, at + 4)?);
        // SAFETY: as in `load16`, twice 4 bytes.
        unsafe {
            AtomicU32::from_ptr(p.cast()).store(low.to_le(), Ordering::Relaxed);
            AtomicU32::from_ptr(q.cast()).store(high.to_le(), Ordering::Relaxed);
        }
        Ok(())
    }

    #[inline]
    fn store64(&self, w: &Window, at: usize, value: u64, order: Ordering) -> Result<(), MemoryFault> {
        let p = self.word::<8>(w, at)?;
        // SAFETY: as in `load16`, 8 bytes.
        unsafe { AtomicU64::from_ptr(p.cast()) }.store(value.to_le(), order);
        Ok(())
    }

    #[inline]
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        if let Some(from) = self.place(address, into.len(), DmaAccess::reads) {
            // SAFETY: `place` found that many mapped bytes; they may change meanwhile, and then the copy is some mixture
            // of old and new bytes, which the callers check. `into` is ours, so the two do not overlap.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
            return Ok(());
        }
        self.pieces((address, into.len()), DmaAccess::reads, |from, at, n| {
            // SAFETY: as above, for a piece.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into[at..at + n].as_mut_ptr(), n) };
        })
    }

    #[inline]
    fn write(&self, address: u64, from: &[u8]) -> Result<(), MemoryFault> {
        if let Some(to) = self.place(address, from.len(), DmaAccess::writes) {
            // SAFETY: as in `read`. No reference into a mapping exists (`slice_mut` is its caller's responsibility).
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
            return Ok(());
        }
        self.pieces((address, from.len()), DmaAccess::writes, |to, at, n| {
            // SAFETY: as above, for a piece.
            unsafe { ptr::copy_nonoverlapping(from[at..at + n].as_ptr(), to.as_ptr(), n) };
        })
    }

    #[inline]
    fn prefetch(&self, address: u64, len: usize) {
        if let Some(p) = self.place(address, len, |_| true) {
            prefetch(p.as_ptr());
        }
    }

    #[inline]
    fn prefetch_window(&self, w: &Window, at: usize) {
        if let Ok(p) = self.word::<1>(w, at) {
            prefetch(p);
        }
    }
}

#[inline]
fn prefetch(p: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// A memory file to share with another process, of huge pages where the system has that many to spare; its length in
/// bytes is `len` rounded up to [`HUGE`].
///
/// # Errors
/// What the system said.
pub fn memory_file(name: &str, len: usize) -> io::Result<OwnedFd> {
    let len = len.next_multiple_of(HUGE);
    let create = |flags| {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | flags)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        // Pages come now, not as a fault (or, for huge pages, a signal) in the middle of a measurement.
        rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, len as u64)?;
        Ok::<_, io::Error>(fd)
    };
    create(MemfdFlags::HUGETLB).or_else(|_| create(MemfdFlags::empty()))
}

/// A memory file of zeroes that stays as long as it is, whoever holds it: nobody can take pages away under somebody's mapping.
///
/// # Errors
/// What the system said.
pub fn sealed_file(name: &str, len: u64) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, len)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

fn map(fd: BorrowedFd, offset: u64, len: usize, access: DmaAccess) -> io::Result<(NonNull<u8>, usize)> {
    let protection = match access {
        DmaAccess::Read => ProtFlags::READ,
        // What can be written can be read as well, on the machines that there are.
        DmaAccess::Write | DmaAccess::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
    };
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let base = unsafe {
        rustix::mm::mmap(ptr::null_mut(), len, protection, MapFlags::SHARED | MapFlags::NORESERVE, fd, offset)?
    };
    let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::Other)?;
    Ok((base, len))
}

/// Maps a region that the front end sent, after a look at its file.
fn map_region(region: &GuestRegion, fd: OwnedFd, access: DmaAccess) -> Result<Mapping, MapError> {
    let system = |e: io::Error| MapError::System(e.raw_os_error().unwrap_or(libc::EIO));
    let stat = rustix::fs::fstat(&fd).map_err(|e| MapError::System(e.raw_os_error()))?;
    let need = region.offset.checked_add(region.len).ok_or(MapError::System(libc::EINVAL))?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        // The last page can be accessed as a whole, wherever in it the file ends.
        let have = (stat.st_size as u64).next_multiple_of(PAGE);
        if need > have {
            return Err(MapError::TooShort { need, have: stat.st_size as u64 });
        }
    }
    // Files of huge pages want offsets and lengths in huge pages; they say so in their block size.
    let unit = (stat.st_blksize as u64).max(PAGE);
    let unit = if unit.is_power_of_two() { unit } else { PAGE };
    let start = region.offset & !(unit - 1);
    let end = need.checked_next_multiple_of(unit).ok_or(MapError::System(libc::EINVAL))?;
    let (base, mapped) = map(fd.as_fd(), start, (end - start) as usize, access).map_err(system)?;
    // SAFETY: `region.offset - start` is less than the mapping's length.
    let pointer = unsafe { base.add((region.offset - start) as usize) };
    let ticket = sigbus::watch(base.as_ptr().addr(), mapped);
    let mapping = Mapping { guest: region.guest, len: region.len, pointer, base, mapped, access, ticket };
    // Without a guard whoever shares the file could end the process.
    if mapping.ticket.is_some() { Ok(mapping) } else { Err(MapError::System(libc::ENOMEM)) }
}

fn system(e: &io::Error) -> MapError {
    MapError::System(e.raw_os_error().unwrap_or(libc::EINVAL))
}

impl Map<OwnedFd> for GuestMemory {
    fn replace(&mut self, regions: Vec<(GuestRegion, OwnedFd)>) -> Result<(), MapError> {
        let map = |(r, fd): (GuestRegion, OwnedFd)| map_region(&r, fd, DmaAccess::ReadWrite);
        let mut new = regions.into_iter().map(map).collect::<Result<Vec<_>, _>>()?;
        new.sort_by_key(|r| r.guest);
        self.epoch = new_epoch();
        self.last.set(0);
        self.regions = new;
        Ok(())
    }

    fn add(&mut self, region: GuestRegion, fd: OwnedFd) -> Result<(), MapError> {
        self.add_for(region, fd, DmaAccess::ReadWrite)
    }

    fn remove(&mut self, region: &GuestRegion) {
        self.forget(region.guest, region.len);
    }

    fn make_words(&mut self, len: u64) -> Result<(JournalWords, OwnedFd), MapError> {
        self.inflight.make(len).map_err(|e| system(&e))
    }

    fn map_words(&mut self, fd: OwnedFd, offset: u64, len: u64) -> Result<JournalWords, MapError> {
        self.inflight.map(fd, offset, len).map_err(|e| system(&e))
    }
}

#[cfg(test)]
mod tests;
