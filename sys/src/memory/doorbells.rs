//! The doorbells of a PCIe drive as a memory file that its client maps and stores into. The file's size is sealed: a client
//! that holds it cannot take pages away under our mapping. What stands in it is the client's word and nobody else's: it is
//! loaded, checked and copied like everything that a client shares.

use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The mapping of the file, as long as the region that its client maps; a [`Doorbells::pair`] is where a queue's two doorbells
/// are.
#[derive(Debug)]
pub struct Doorbells {
    fd: OwnedFd,
    pages: Arc<Pages>,
    /// Where the doorbells begin.
    start: usize,
}

/// The mapping.
#[derive(Debug)]
struct Pages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is valid in every thread; all access is atomic.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: what mmap returned and got; whoever follows a pointer into it has a share in this value.
        unsafe {
            let _ = rustix::mm::munmap(self.base.as_ptr().cast(), self.len);
        }
    }
}

impl Doorbells {
    /// A file of zeroes of `len` bytes with doorbells (a stride of 4 bytes) from `start` on.
    ///
    /// # Errors
    /// What the system said.
    pub fn new(start: usize, len: usize) -> io::Result<Self> {
        Self::open(super::sealed_file("weir-doorbells", len as u64)?, start, len)
    }

    /// The file that another process has made by [`new`](Self::new), with what stands in it.
    ///
    /// # Errors
    /// What the system said; a file of another length is none.
    pub fn open(fd: OwnedFd, start: usize, len: usize) -> io::Result<Self> {
        if rustix::fs::fstat(&fd)?.st_size as u64 != len as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file has another length than doorbells have"));
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            rustix::mm::mmap(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Self { fd, pages: Arc::new(Pages { base, len }), start })
    }

    /// The file, for the client.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// How many queue identifiers it has doorbells for.
    pub fn queues(&self) -> u16 {
        ((self.pages.len - self.start) / 8).min(usize::from(u16::MAX)) as u16
    }

    fn place(&self, qid: u16) -> *mut u8 {
        assert!(qid < self.queues(), "queue {qid} has no doorbells");
        // SAFETY: the 8 bytes are inside the mapping.
        unsafe { self.pages.base.as_ptr().add(self.start + usize::from(qid) * 8) }
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

    /// Puts `value` into the tail doorbell of a submission queue unless something else than `stands` has come there; whether it
    /// did. What stands there is no tail that a queue can have then, so that every store of a tail is a change.
    pub fn exchange_tail(&self, qid: u16, stands: u32, value: u32) -> bool {
        // SAFETY: as in `clear_tail`.
        let tail = unsafe { AtomicU32::from_ptr(self.place(qid).cast()) };
        tail.compare_exchange(stands.to_le(), value.to_le(), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The same of the head doorbell of a completion queue.
    pub fn exchange_head(&self, qid: u16, stands: u32, value: u32) -> bool {
        // SAFETY: as in `clear_head`.
        let head = unsafe { AtomicU32::from_ptr(self.place(qid).add(4).cast()) };
        head.compare_exchange(stands.to_le(), value.to_le(), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Sets the head doorbell of a completion queue to 0.
    pub fn clear_head(&self, qid: u16) {
        // SAFETY: as in `pair`, the last 4 of the bytes.
        unsafe { AtomicU32::from_ptr(self.place(qid).add(4).cast()) }.store(0, Ordering::Release);
    }
}

/// Doorbells of many clients that are not looked at one by one: what stands in each, and who is to hear if something else does.
/// One pass over them all loads each word once and touches nothing else.
#[derive(Debug, Default)]
pub struct Sleepers {
    words: Vec<Sleeper>,
    /// Keeps mapped what the words point to.
    pages: Vec<Arc<Pages>>,
}

#[derive(Debug)]
struct Sleeper {
    place: NonNull<AtomicU64>,
    stands: u64,
    name: u16,
}

// SAFETY: the pointers lead into `pages`, which any thread may share; all access is atomic.
unsafe impl Send for Sleepers {}

impl Sleepers {
    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.words.clear();
        self.pages.clear();
    }

    /// How many words are looked at.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there is nothing to look at.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Adds the pairs of some queue identifiers of a client with what stands in them; `name` is what the client is called.
    pub fn add(&mut self, name: u16, bells: &Doorbells, stand: impl IntoIterator<Item = (u16, (u32, u32))>) {
        let before = self.words.len();
        for (qid, (tail, head)) in stand {
            let place = NonNull::new(bells.place(qid).cast()).expect("a mapping is nowhere near address 0");
            self.words.push(Sleeper { place, stands: u64::from(tail) | u64::from(head) << 32, name });
        }
        if self.words.len() > before {
            self.pages.push(bells.pages.clone());
        }
    }

    /// Appends the names of those in whose doorbells something else stands by now, once for each such pair; true if there are
    /// any. What was written before a doorbell can be read afterwards.
    #[inline]
    pub fn changed(&self, names: &mut Vec<u16>) -> bool {
        let before = names.len();
        for word in &self.words {
            // SAFETY: as in `Doorbells::pair`; `pages` keeps it mapped.
            let stands = u64::from_le(unsafe { word.place.as_ref() }.load(Ordering::Acquire));
            if stands != word.stands {
                names.push(word.name);
            }
        }
        names.len() > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::SealFlags;

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
    fn who_sleeps_is_woken_by_what_changes_and_by_nothing_else() {
        let (one, two) = (Doorbells::new(0x1000, 0x4000).unwrap(), Doorbells::new(0x1000, 0x4000).unwrap());
        let store = |bells: &Doorbells, at: u64, value: u32| {
            rustix::io::pwrite(bells.fd(), &value.to_le_bytes(), at).unwrap();
        };
        store(&one, 0x1000 + 8, 3);
        let mut sleepers = Sleepers::default();
        sleepers.add(7, &one, [(1, (3, 0)), (2, (0, 0))]);
        sleepers.add(9, &two, [(1, (0, 0))]);
        sleepers.add(11, &two, []);
        let mut names = Vec::new();
        assert!(!sleepers.changed(&mut names) && names.is_empty() && sleepers.len() == 3);
        // A queue that nobody asked about.
        store(&two, 0x1000 + 8 * 5, 1);
        assert!(!sleepers.changed(&mut names));
        store(&two, 0x1000 + 8 + 4, 1);
        store(&one, 0x1000 + 8 * 2, 5);
        assert!(sleepers.changed(&mut names));
        assert_eq!(names, [7, 9]);
        // Its pages stay as long as somebody looks at them.
        drop(two);
        names.clear();
        assert!(sleepers.changed(&mut names) && names == [7, 9]);
        sleepers.clear();
        assert!(sleepers.is_empty() && !sleepers.changed(&mut names));
    }

    #[test]
    fn a_doorbell_is_exchanged_only_while_nobody_rings_it() {
        let bells = Doorbells::new(0x1000, 0x4000).unwrap();
        assert!(bells.exchange_tail(3, 0, u32::MAX) && bells.exchange_head(3, 0, 9));
        assert_eq!(bells.pair(3), (u32::MAX, 9));
        assert!(!bells.exchange_tail(3, 0, 1) && !bells.exchange_head(3, 0, 1));
        assert_eq!(bells.pair(3), (u32::MAX, 9));
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
