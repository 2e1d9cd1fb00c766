//! A device's registers, mapped.

use crate::memory::sigbus::{self, GuardedMapping};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

/// A base address register's memory. Access to one that is gone is no error of the process: registers read as all ones, as PCI has it, and
/// writes go nowhere.
#[derive(Debug)]
pub struct Bar {
    base: NonNull<u8>,
    len: usize,
    guard: Option<GuardedMapping>,
}

// SAFETY: the mapping belongs to the value alone and is valid in every thread; all access is volatile, to a device that takes it from any
// processor.
unsafe impl Send for Bar {}
// SAFETY: as for `Send`.
unsafe impl Sync for Bar {}

impl Drop for Bar {
    fn drop(&mut self) {
        drop(self.guard.take());
        // SAFETY: `base` and `len` are what mmap returned and got; nobody else has pointers into it.
        unsafe {
            let _ = rustix::mm::munmap(self.base.as_ptr().cast(), self.len);
        }
    }
}

impl Bar {
    /// Maps `len` bytes at an offset of a device's file.
    ///
    /// # Errors
    /// The system refuses, or has too many mappings that are watched.
    pub fn map(file: BorrowedFd, offset: u64, len: usize) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, file, offset)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::Other)?;
        let guard = sigbus::watch_registers(base.as_ptr().addr(), len);
        let bar = Bar { base, len, guard };
        // Without a guard a drive that is pulled would end the process.
        if bar.guard.is_some() { Ok(bar) } else { Err(io::ErrorKind::OutOfMemory.into()) }
    }

    /// Bytes of it.
    pub fn size(&self) -> usize {
        self.len
    }

    /// Whether an access found the device gone.
    pub fn is_gone(&self) -> bool {
        self.guard.as_ref().is_some_and(GuardedMapping::was_plugged)
    }

    /// # Panics
    /// It is outside: offsets are ours, never the device's.
    #[inline]
    fn word(&self, at: u32) -> *mut u32 {
        let at = at as usize;
        assert!(at % 4 == 0 && at + 4 <= self.len, "register at {at} of {} bytes", self.len);
        // SAFETY: within the mapping, which lives as long as `self`; mappings begin at pages.
        unsafe { self.base.as_ptr().add(at).cast() }
    }

    /// Reads a register of 32 bits.
    #[inline]
    pub fn read(&self, at: u32) -> u32 {
        // SAFETY: see `word`; a register may change at any time, and volatile access says so.
        u32::from_le(unsafe { self.word(at).read_volatile() })
    }

    /// Writes one, after all that was written to memory before.
    #[inline]
    pub fn write(&self, at: u32, value: u32) {
        fence(Ordering::Release);
        // SAFETY: as for `read`.
        unsafe { self.word(at).write_volatile(value.to_le()) }
    }

    /// Reads a register of 64 bits, the lower half first (base 2.0, 3.1: as one access or as two).
    pub fn read64(&self, at: u32) -> u64 {
        let low = u64::from(self.read(at));
        u64::from(self.read(at + 4)) << 32 | low
    }

    /// Writes one, the lower half first.
    pub fn write64(&self, at: u32, value: u64) {
        self.write(at, value as u32);
        self.write(at + 4, (value >> 32) as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::memory_file;
    use std::os::fd::AsFd;

    #[test]
    fn registers_are_words_of_the_file() {
        let file = memory_file("registers", 8192).unwrap();
        let (a, b) = (Bar::map(file.as_fd(), 0, 8192).unwrap(), Bar::map(file.as_fd(), 0, 4096).unwrap());
        a.write64(8, 0x0123_4567_89ab_cdef);
        assert_eq!((b.read(8), b.read(12), b.read64(8)), (0x89ab_cdef, 0x0123_4567, 0x0123_4567_89ab_cdef));
        assert!(!a.is_gone() && !b.is_gone());
    }

    #[test]
    fn a_device_that_is_gone_reads_as_all_ones_and_harms_nothing_else() {
        // A file that is cut short under its mapping gives the same signal as registers without a device.
        let path = std::env::temp_dir().join(format!("weir-bar-{}", std::process::id()));
        let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(16384).unwrap();
        let (gone, other) = (Bar::map(file.as_fd(), 4096, 8192).unwrap(), Bar::map(file.as_fd(), 0, 4096).unwrap());
        gone.write(0, 7);
        other.write(0, 8);
        file.set_len(4096).unwrap();
        assert_eq!((gone.read(0), gone.read64(4096), gone.is_gone()), (u32::MAX, u64::MAX, true));
        gone.write(4096 + 8, 5);
        assert_eq!((other.read(0), other.is_gone()), (8, false));
    }

    #[test]
    #[should_panic(expected = "register at 4096")]
    fn what_is_outside_is_not_reached() {
        let file = memory_file("registers", 4096).unwrap();
        let _ = Bar::map(file.as_fd(), 0, 4096).unwrap().read(4096);
    }
}
