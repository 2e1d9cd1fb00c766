//! A journal's memory ([`weir_journal`]): a memory file, sealed in size, that its other owners only keep. One that comes from
//! outside may be truncated all the same: then zeroes take its place ([`guard`]).

use super::{map, sigbus};
use rustix::fs::{MemfdFlags, SealFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_journal::JournalMemory;
use weir_session::memory::Bits;
use weir_session::vfio_user::DmaAccess;

const PAGE: u64 = 4096;

#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    mapped: usize,
    ticket: Option<sigbus::GuardedMapping>,
}

// SAFETY: the mapping belongs to the value alone and is valid in every thread.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`; all access is atomic.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.ticket.take());
        // SAFETY: `base` and `mapped` are what mmap returned and got; pointers into it are only in `JournalWords`, which
        // keep it alive.
        unsafe {
            let _ = rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped);
        }
    }
}

/// 64-bit words of a memory file, little endian. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct JournalWords {
    words: NonNull<u64>,
    count: usize,
    _mapping: Arc<Mapping>,
}

// SAFETY: the words are in a mapping that the value keeps alive, valid in every thread; all access is atomic.
unsafe impl Send for JournalWords {}
// SAFETY: as for `Send`.
unsafe impl Sync for JournalWords {}

impl JournalWords {
    /// New memory of `len` bytes (rounded up to pages) of zeroes, and its descriptor.
    ///
    /// # Errors
    /// What the system said.
    pub fn create(len: u64) -> io::Result<(Self, OwnedFd)> {
        let fd = rustix::fs::memfd_create("weir-journal", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let pages = len.next_multiple_of(PAGE);
        rustix::fs::ftruncate(&fd, pages)?;
        // There now, so that no store ever fails for want of memory.
        rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, pages)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self::map(fd.as_fd(), 0, len)?, fd))
    }

    /// Maps `len` bytes at `offset` of a file, both multiples of 8; the descriptor is not needed any more afterwards.
    ///
    /// # Errors
    /// They are not, the file is shorter or no file of memory, or the system refuses.
    pub fn map(file: BorrowedFd, offset: u64, len: u64) -> io::Result<Self> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_string());
        let end = offset.checked_add(len).filter(|_| len > 0 && offset % 8 == 0 && len % 8 == 0);
        let end = end.ok_or_else(|| invalid("the range is empty or not one of 64-bit words"))?;
        let stat = rustix::fs::fstat(file)?;
        if (stat.st_size as u64).next_multiple_of(PAGE) < end {
            return Err(invalid("the file is shorter than the range"));
        }
        let start = offset / PAGE * PAGE;
        let (base, mapped) = map(file, start, (end - start) as usize, DmaAccess::ReadWrite)?;
        let ticket = sigbus::watch(base.as_ptr().addr(), mapped);
        let mapping = Mapping { base, mapped, ticket };
        if mapping.ticket.is_none() {
            // Whoever shares the file could end the process.
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // SAFETY: `offset - start` is less than the mapping's length.
        let words = unsafe { base.add((offset - start) as usize) }.cast();
        Ok(Self { words, count: (len / 8) as usize, _mapping: Arc::new(mapping) })
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: all of it is in the mapping, which lives as long as `self`, and aligned: mappings begin at pages. All access in
        // this process is atomic.
        unsafe { std::slice::from_raw_parts(self.words.cast().as_ptr(), self.count) }
    }
}

impl JournalMemory for JournalWords {
    fn count(&self) -> usize {
        self.count
    }
    #[inline]
    fn load(&self, at: usize, order: Ordering) -> u64 {
        u64::from_le(self.words()[at].load(order))
    }
    #[inline]
    fn store(&self, at: usize, value: u64, order: Ordering) {
        self.words()[at].store(value.to_le(), order);
    }
    #[inline]
    fn store_each(&self, from: usize, stores: impl IntoIterator<Item = (usize, u64)>) {
        let words = self.words();
        for (at, value) in stores {
            words[from + at].store(value.to_le(), Ordering::Release);
        }
    }
}

impl Bits for JournalWords {
    #[inline]
    fn set(&self, at: usize, bits: u64) {
        // Release: whoever takes the bits away with Acquire sees what was written before.
        self.words()[at].fetch_or(bits.to_le(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::{Acquire, Release};
    use weir_journal::{FoundRing, JournalRegion, JournalShape, QueueKind, RingKind};

    #[test]
    fn what_is_in_flight_is_found_through_another_mapping() {
        let shape = JournalShape { kind: QueueKind::Virtio, queues: 2, size: 8 };
        let (words, fd) = JournalWords::create(shape.bytes()).unwrap();
        let region = JournalRegion::open(words, shape).unwrap();
        let Ok(FoundRing::Fresh(fresh)) = region.ring(1, RingKind::Split, 8) else { panic!("it is new") };
        let mut journal = fresh.begin(5, 5);
        journal.take(3, 6);
        journal.take(7, 7);
        drop((journal, region));
        let again = JournalWords::map(fd.as_fd(), 0, shape.bytes()).unwrap();
        let region = JournalRegion::open(again, shape).unwrap();
        let Ok(FoundRing::Left(left)) = region.ring(1, RingKind::Split, 8) else { panic!("it has been used") };
        let (_, found) = left.recover(false).unwrap();
        assert_eq!((found.last_idx, found.used, found.heads), (7, 5, vec![3, 7]));
        assert!(matches!(region.ring(0, RingKind::Split, 8), Ok(FoundRing::Fresh(_))));
    }

    #[test]
    fn its_size_cannot_be_changed_and_ranges_are_checked() {
        assert!(JournalWords::create(100).is_err(), "no whole words");
        let (words, fd) = JournalWords::create(4096).unwrap();
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
        words.store(511, 9, Release);
        assert_eq!(JournalWords::map(fd.as_fd(), 4088, 8).unwrap().load(0, Acquire), 9);
        for (offset, len) in [(4, 8), (0, 0), (0, 12), (u64::MAX - 7, 8), (4096, 8)] {
            assert!(JournalWords::map(fd.as_fd(), offset, len).is_err(), "{offset} {len}");
        }
    }

    #[test]
    fn bits_are_set_beside_those_that_are_there() {
        let (words, fd) = JournalWords::create(16).unwrap();
        let other = JournalWords::map(fd.as_fd(), 8, 8).unwrap();
        words.set(1, 0b101);
        other.set(0, 0b011);
        assert_eq!((words.load(0, Acquire), words.load(1, Acquire)), (0, 0b111));
    }

    #[test]
    fn a_file_truncated_under_it_reads_as_zeroes() {
        let fd = rustix::fs::memfd_create("rogue", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, 8192).unwrap();
        let words = JournalWords::map(fd.as_fd(), 0, 8192).unwrap();
        words.store(600, 1, Release);
        rustix::fs::ftruncate(&fd, 0).unwrap();
        assert_eq!(words.load(600, Acquire), 0);
        words.store(601, 1, Release);
    }
}
