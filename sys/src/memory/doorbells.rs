//! The doorbells of a PCIe drive as a memory file that its client maps and stores into. The file's size is sealed: a client
//! that holds it cannot take pages away under our mapping. What stands in it is the client's word and nobody else's: it is
//! loaded, checked and copied like everything that a client shares.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The mapping of the file, as long as the region that its client maps; a [`Doorbells::pair`] is where a queue's two doorbells
/// are.
#[derive(Debug)]
pub struct Doorbells {
    fd: OwnedFd,
    base: NonNull<u8>,
    len: usize,
    /// Where the doorbells begin.
    start: usize,
}

// SAFETY: the mapping belongs to this value alone and is valid in every thread; all access is atomic.
unsafe impl Send for Doorbells {}

impl Doorbells {
    /// A file of zeroes of `len` bytes with doorbells (a stride of 4 bytes) from `start` on.
    ///
    /// # Errors
    /// What the system said.
    pub fn new(start: usize, len: usize) -> io::Result<Self> {
        let fd = rustix::fs::memfd_create("weir-doorbells", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            rustix::mm::mmap(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Self { fd, base, len, start })
    }

    /// The file, for the client.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// How many queue identifiers it has doorbells for.
    pub fn queues(&self) -> u16 {
        ((self.len - self.start) / 8).min(usize::from(u16::MAX)) as u16
    }

    fn place(&self, qid: u16) -> *mut u8 {
        assert!(qid < self.queues(), "queue {qid} has no doorbells");
        // SAFETY: the 8 bytes are inside the mapping.
        unsafe { self.base.as_ptr().add(self.start + usize::from(qid) * 8) }
    }

    /// A queue identifier's doorbells: the submission queue's tail and the completion queue's head. The queue entries that were
    /// written before them can be read afterwards.
    #[inline]
    pub fn pair(&self, qid: u16) -> (u32, u32) {
        // SAFETY: 8 mapped bytes, aligned because the mapping begins at a page and `start` is a multiple of 8; every access to
        // them in this process is atomic. Acquiring, so that entries stored before a tail are seen after it.
        let both = u64::from_le(unsafe { AtomicU64::from_ptr(self.place(qid).cast()) }.load(Ordering::Acquire));
        (both as u32, (both >> 32) as u32)
    }

    /// Sets both doorbells of a queue identifier to 0: its queues are made anew or gone.
    pub fn clear(&self, qid: u16) {
        // SAFETY: as in `pair`.
        unsafe { AtomicU64::from_ptr(self.place(qid).cast()) }.store(0, Ordering::Release);
    }

    /// Sets the tail doorbell of a submission queue to 0.
    pub fn clear_tail(&self, qid: u16) {
        // SAFETY: as in `pair`, the first 4 of the bytes.
        unsafe { AtomicU32::from_ptr(self.place(qid).cast()) }.store(0, Ordering::Release);
    }

    /// Sets the head doorbell of a completion queue to 0.
    pub fn clear_head(&self, qid: u16) {
        // SAFETY: as in `pair`, the last 4 of the bytes.
        unsafe { AtomicU32::from_ptr(self.place(qid).add(4).cast()) }.store(0, Ordering::Release);
    }
}

impl Drop for Doorbells {
    fn drop(&mut self) {
        // SAFETY: what mmap returned and got; no pointer into it outlives a call.
        unsafe {
            let _ = rustix::mm::munmap(self.base.as_ptr().cast(), self.len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_stores_is_what_is_rung() {
        let bells = Doorbells::new(0x1000, 0x4000).unwrap();
        assert_eq!(bells.queues(), 0x3000 / 8);
        let store = |at: u64, value: u32| rustix::io::pwrite(bells.fd(), &value.to_le_bytes(), at).unwrap();
        store(0x1000 + 8 * 5, 7);
        store(0x1000 + 8 * 5 + 4, 3);
        assert_eq!((bells.pair(5), bells.pair(4), bells.pair(6)), ((7, 3), (0, 0), (0, 0)));
        bells.clear_tail(5);
        assert_eq!(bells.pair(5), (0, 3));
        store(0x1000 + 8 * 5, 9);
        bells.clear_head(5);
        assert_eq!(bells.pair(5), (9, 0));
        bells.clear(5);
        assert_eq!(bells.pair(5), (0, 0));
    }

    #[test]
    fn a_client_cannot_take_the_pages_away() {
        let bells = Doorbells::new(0x1000, 0x4000).unwrap();
        assert!(rustix::fs::ftruncate(bells.fd(), 0).is_err());
        assert!(rustix::fs::ftruncate(bells.fd(), 1 << 20).is_err());
        assert!(rustix::fs::fcntl_add_seals(bells.fd(), SealFlags::WRITE).is_err());
        assert_eq!(bells.pair(0), (0, 0));
    }
}
