//! The mapping of an arena: its address, its slices, making pages present.

use super::collapse::Collapse;
use super::{ArenaError, HEADER, HUGE};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64};

const BOTH: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

pub(super) struct Mapping {
    at: NonNull<u8>,
    len: usize,
    hugetlb: bool,
    collapse: OnceLock<Collapse>,
}

// SAFETY: the only owner of the mapping in this process; what it hands out borrows it.
unsafe impl Send for Mapping {}
// SAFETY: shared references only read, except for the atomic word.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes of the file, on a huge page boundary so that huge pages can be used.
    pub(super) fn new(fd: &OwnedFd, length: u64, hugetlb: bool) -> Result<Self, ArenaError> {
        let len = usize::try_from(length).map_err(|_| ArenaError::TooLarge(length))?;
        let at = if hugetlb { Self::map_anywhere(fd, len)? } else { Self::map_aligned(fd, len)? };
        let at = NonNull::new(at.cast()).ok_or(ArenaError::Full)?;
        Ok(Self { at, len, hugetlb, collapse: OnceLock::new() })
    }

    /// A file of huge pages is mapped on a boundary anyway, and often it cannot be mapped: there must be nothing to take back.
    fn map_anywhere(fd: &OwnedFd, len: usize) -> Result<*mut c_void, ArenaError> {
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        Ok(unsafe { mmap(ptr::null_mut(), len, BOTH, MapFlags::SHARED, fd, 0)? })
    }

    fn map_aligned(fd: &OwnedFd, len: usize) -> Result<*mut c_void, ArenaError> {
        let end = len.checked_next_multiple_of(4096).ok_or(ArenaError::TooLarge(len as u64))?;
        let room = end.checked_add(HUGE).ok_or(ArenaError::TooLarge(len as u64))?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), room, ProtFlags::empty(), MapFlags::PRIVATE)? };
        let lead = start.addr().next_multiple_of(HUGE) - start.addr();
        let at = start.wrapping_byte_add(lead);
        // SAFETY: replaces part of the mapping made above, which nobody else knows.
        let mapped = unsafe { mmap(at, len, BOTH, MapFlags::SHARED | MapFlags::FIXED, fd, 0) };
        // What was in the middle is never given back where it could not be replaced: the kernel may have taken it away
        // already, and then it belongs to whoever asked for memory since.
        // SAFETY: what lies before and after the file's part belongs to the mapping made above and is not used.
        unsafe {
            if lead > 0 {
                let _ = munmap(start, lead);
            }
            let _ = munmap(at.wrapping_byte_add(end), room - lead - end);
        }
        Ok(mapped?)
    }

    pub(super) fn is_hugetlb(&self) -> bool {
        self.hugetlb
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// What follows the header, which other processes may change at any time.
    #[inline]
    pub(super) fn payload(&self) -> &[u8] {
        // SAFETY: mapped readable for as long as `self`; any bit pattern is a byte. At least the header is mapped, and the
        // size is sealed or the file locked.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(HEADER), self.len - HEADER) }
    }

    #[inline]
    pub(super) fn payload_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `payload`, mapped writable, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().add(HEADER), self.len - HEADER) }
    }

    /// Writes the start of the header, before anybody else knows the region.
    pub(super) fn write_header(&mut self, header: &[u8]) {
        assert!(header.len() <= HEADER);
        // SAFETY: inside of the header page, mapped writable.
        unsafe { ptr::copy_nonoverlapping(header.as_ptr(), self.at.as_ptr(), header.len()) }
    }

    /// A word of the header that processes share.
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset % 8 == 0 && offset + 8 <= HEADER);
        // SAFETY: inside the header page, aligned; the payload's slices do not cover it, and it is only ever accessed so.
        unsafe { AtomicU64::from_ptr(self.at.as_ptr().add(offset).cast()) }
    }

    /// All of the payload, for who uses it so and no other way.
    pub(super) fn words(&self) -> &[AtomicU32] {
        let count = (self.len - HEADER) / 4;
        // SAFETY: mapped readable and writable for as long as `self`, aligned to a page; any bit pattern is a word. Processes access it
        // by atomic operations only: the arena's slices are out of reach (`Words`).
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(HEADER).cast(), count) }
    }

    /// Maps what is there of the first piece from `at` on that has something; where the next one begins, if there may be one.
    pub(super) fn touch(&self, fd: &OwnedFd, at: u64) -> Option<u64> {
        if self.hugetlb {
            // hugetlbfs calls everything data, also what is not there; and its pages are few.
            return None;
        }
        // What is not there stays so: to touch it would make it.
        let from = rustix::fs::seek(fd, SeekFrom::Data(at)).ok()?;
        let until = (from + 1).next_multiple_of(HUGE as u64).min(self.len as u64);
        if until <= from {
            return None;
        }
        let there = self.present(from as usize..until as usize) as u64;
        if there == 0 {
            // It is in swap: it comes when it is used.
            return Some(until);
        }
        let until = from + there;
        // SAFETY: a range of this mapping, whose pages keep what they hold. Where it fails they are mapped when they are used.
        unsafe {
            let piece = self.at.as_ptr().add(from as usize).cast();
            libc::madvise(piece, (until - from) as usize, libc::MADV_POPULATE_WRITE);
        }
        Some(until)
    }

    /// How many bytes of a range of at most a huge page are there, from its start on. (SEEK_HOLE looks at every page up to the next
    /// hole, which was 11 ms for 1 GiB of small pages.)
    fn present(&self, range: Range<usize>) -> usize {
        let mut pages = [0u8; HUGE / 4096];
        assert!(range.end <= self.len.next_multiple_of(4096) && range.len() <= HUGE);
        // SAFETY: a range of this mapping, for each page of which a byte is written.
        let found = unsafe { libc::mincore(self.at.as_ptr().add(range.start).cast(), range.len(), pages.as_mut_ptr()) };
        if found == 0 { pages.iter().take_while(|page| **page & 1 != 0).count() * 4096 } else { 0 }
    }

    /// See [`super::Arena::lend`].
    pub(super) fn lend(&'static mut self) -> (&'static mut [u8], impl Fn() + Send + Sync + 'static) {
        let (at, len, hugetlb) = (self.at.as_ptr().expose_provenance(), self.len, self.hugetlb);
        let call = move || {
            if hugetlb {
                return;
            }
            // SAFETY: all of a shared mapping of a file that is never unmapped: it was leaked. Its pages lose their place in
            // this process's tables, not their contents, so that nobody who borrows them sees a difference.
            unsafe { libc::madvise(ptr::with_exposed_provenance_mut(at), len, libc::MADV_DONTNEED) };
        };
        (self.payload_mut(), call)
    }

    fn advise(&mut self, range: &Range<usize>, advice: i32) -> Result<(), Errno> {
        assert!(range.start <= range.end && range.end <= self.len.next_multiple_of(4096));
        // SAFETY: a range of this mapping; the advices used here keep its content.
        match unsafe { libc::madvise(self.at.as_ptr().add(range.start).cast(), range.len(), advice) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        }
    }

    /// Allocates and maps the pages of a range, writable: after this no access to it can fail.
    pub(super) fn reserve(&mut self, range: Range<usize>) -> Result<(), ArenaError> {
        let step = if self.hugetlb { HUGE } else { 4096 };
        let range = range.start / step * step..range.end.next_multiple_of(step).min(self.len);
        loop {
            match self.advise(&range, libc::MADV_POPULATE_WRITE) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR | Errno::AGAIN) => {}
                // The fault would have been a SIGBUS: no memory, no space, a poisoned page.
                Err(Errno::FAULT | Errno::NOMEM) => return Err(ArenaError::Full),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Pieces of a huge page that it consists of, whole.
    fn collapse(&self) -> &Collapse {
        self.collapse.get_or_init(|| Collapse::of(self.at.as_ptr(), self.len / HUGE))
    }

    /// See [`super::Arena::want_huge`].
    pub(super) fn want_huge(&self, range: &Range<usize>) {
        if !self.hugetlb {
            self.collapse().want(pieces(range));
        }
    }

    /// These bytes are about to be given back.
    pub(super) fn forget_huge(&self, range: &Range<usize>) {
        if let Some(collapse) = self.collapse.get() {
            let whole = self.len / HUGE;
            (range.start / HUGE..range.end.div_ceil(HUGE).min(whole)).for_each(|piece| collapse.forget(piece));
        }
    }
}

/// Those that lie in the range as a whole.
fn pieces(range: &Range<usize>) -> Range<usize> {
    range.start.div_ceil(HUGE)..range.end / HUGE
}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.collapse.take());
        let len = if self.hugetlb { self.len.next_multiple_of(HUGE) } else { self.len.next_multiple_of(4096) };
        // SAFETY: the mapping made in `new`; nothing borrows it any more.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), len) };
    }
}
