//! A part of a file, mapped, as 32-bit words that another process loads and stores as well: doorbells.

use super::{map, sigbus};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_session::vfio_user::DmaAccess;

const PAGE: u64 = 4096;

/// See the [module](self). All access is atomic.
#[derive(Debug)]
pub struct SharedWords {
    base: NonNull<u8>,
    mapped: usize,
    words: NonNull<u32>,
    count: usize,
    ticket: Option<sigbus::GuardedMapping>,
}

// SAFETY: the mapping belongs to the value alone and is valid in every thread; all access is atomic.
unsafe impl Send for SharedWords {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedWords {}

impl Drop for SharedWords {
    fn drop(&mut self) {
        drop(self.ticket.take());
        // SAFETY: `base` and `mapped` are what mmap returned and got; nobody else has pointers into it.
        unsafe {
            let _ = rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped);
        }
    }
}

impl SharedWords {
    /// Maps `len` bytes at `offset` of a file, both multiples of 4.
    ///
    /// # Errors
    /// They are not, the file is shorter, or the system refuses.
    pub fn map(file: BorrowedFd, offset: u64, len: u64) -> io::Result<Self> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_string());
        let end = offset.checked_add(len).filter(|_| len > 0 && offset % 4 == 0 && len % 4 == 0);
        let end = end.ok_or_else(|| invalid("the range is empty or not one of 32-bit words"))?;
        let stat = rustix::fs::fstat(file)?;
        if (stat.st_size as u64).next_multiple_of(PAGE) < end {
            return Err(invalid("the file is shorter than the range"));
        }
        let start = offset / PAGE * PAGE;
        let (base, mapped) = map(file, start, (end - start) as usize, DmaAccess::ReadWrite)?;
        // SAFETY: `offset - start` is less than the mapping's length.
        let words = unsafe { base.add((offset - start) as usize) }.cast();
        let ticket = sigbus::watch(base.as_ptr().addr(), mapped);
        Ok(Self { base, mapped, words, count: (len / 4) as usize, ticket })
    }

    /// The word at a byte offset, a multiple of 4.
    ///
    /// # Panics
    /// It is outside: offsets are ours, never the other side's.
    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at % 4 == 0 && at / 4 < self.count, "word at {at} of {} words", self.count);
        // SAFETY: within the mapping, which lives as long as `self`, and aligned: mappings begin at pages. All access in this
        // process is atomic.
        unsafe { AtomicU32::from_ptr(self.words.as_ptr().add(at / 4)) }
    }

    /// Loads a word (little endian).
    #[inline]
    pub fn load(&self, at: usize, order: Ordering) -> u32 {
        u32::from_le(self.word(at).load(order))
    }

    /// Stores one.
    #[inline]
    pub fn store(&self, at: usize, value: u32, order: Ordering) {
        self.word(at).store(value.to_le(), order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::memory_file;
    use std::os::fd::AsFd;

    #[test]
    fn two_mappings_see_the_same_words() {
        let file = memory_file("words", 8192).unwrap();
        let (a, b) =
            (SharedWords::map(file.as_fd(), 0, 8192).unwrap(), SharedWords::map(file.as_fd(), 4096 + 8, 16).unwrap());
        a.store(4096 + 12, 7, Ordering::Release);
        assert_eq!((b.load(4, Ordering::Acquire), b.load(0, Ordering::Relaxed)), (7, 0));
        b.store(12, u32::MAX, Ordering::Relaxed);
        assert_eq!(a.load(4096 + 20, Ordering::Relaxed), u32::MAX);
        for (offset, len) in [(2, 4), (0, 0), (0, 6), (u64::MAX - 3, 4), (1 << 40, 4)] {
            assert!(SharedWords::map(file.as_fd(), offset, len).is_err(), "{offset} {len}");
        }
    }

    #[test]
    #[should_panic(expected = "word at 16")]
    fn what_is_outside_is_not_reached() {
        let file = memory_file("words", 4096).unwrap();
        SharedWords::map(file.as_fd(), 0, 16).unwrap().load(16, Ordering::Relaxed);
    }
}
