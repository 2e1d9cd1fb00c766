//! Huge pages, assembled beside the threads that use the memory.
//!
//! Small pages of a file in memory become a huge one by MADV_COLLAPSE (Linux 6.1), which works whatever
//! /sys/kernel/mm/transparent_hugepage says, unless that is "deny". It first has every core put its pages where they can be found, by a
//! worker of the kernel on each of them, and waits for those: as long as it takes until that one gets its core from whoever polls there
//! (measured on two cores that both were busy: 8 ms in the middle for each huge page, where 0.13 ms is what it takes on idle ones). So no thread
//! that serves does it, but one of the process's own.
//!
//! Others may use the memory meanwhile. The kernel copies the small pages with their locks held and takes them out of all page tables before, so whoever touches
//! one waits for the copy, some 0.1 ms, and then finds the huge page with the same contents; pages that were not there are zeroes, as they were. What
//! it cannot do it leaves as it was.

use super::HUGE;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

/// No piece.
const NONE: usize = usize::MAX;

/// The pieces of a mapping of which huge pages are wanted. Dropped, none is, and nothing of the mapping is touched any more.
#[derive(Debug)]
pub(super) struct Collapse(Arc<Pieces>);

#[derive(Debug)]
struct Pieces {
    /// The mapping's address, exposed.
    at: usize,
    /// A bit a piece, in its order.
    wanted: Box<[AtomicU64]>,
    /// The piece that is being assembled.
    now: AtomicUsize,
    over: AtomicBool,
}

impl Pieces {
    fn bit(&self, piece: usize) -> (&AtomicU64, u64) {
        (&self.wanted[piece / 64], 1 << (piece % 64))
    }

    /// In the thread that does.
    fn assemble(&self, piece: usize) {
        // SeqCst here and in `wait_for`: either this one sees that it is not wanted any more, or that one sees that it is under way.
        self.now.store(piece, Ordering::SeqCst);
        let (word, bit) = self.bit(piece);
        if word.load(Ordering::SeqCst) & bit != 0 && !self.over.load(Ordering::SeqCst) {
            let at = std::ptr::with_exposed_provenance_mut::<libc::c_void>(self.at + piece * HUGE);
            // SAFETY: inside a mapping that is there: `Collapse` waits before it goes. The advice changes no byte of it, whoever uses it
            // meanwhile (see the module). Where it fails, small pages do.
            unsafe { libc::madvise(at, HUGE, libc::MADV_COLLAPSE) };
        }
        self.now.store(NONE, Ordering::SeqCst);
    }

    /// Until no piece of these is being assembled; rarely for long.
    fn wait_for(&self, is: impl Fn(usize) -> bool) {
        while is(self.now.load(Ordering::SeqCst)) {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

impl Collapse {
    /// Of a mapping of so many whole huge pages, on a boundary of one, which outlives what is returned.
    pub(super) fn of(at: *mut u8, pieces: usize) -> Self {
        let wanted = (0..pieces.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let (now, over) = (AtomicUsize::new(NONE), AtomicBool::new(false));
        Self(Arc::new(Pieces { at: at.expose_provenance(), wanted, now, over }))
    }

    /// Has that piece be a huge page in a while, where it can.
    pub(super) fn want(&self, piece: usize) {
        let (word, bit) = self.0.bit(piece);
        if word.fetch_or(bit, Ordering::SeqCst) & bit == 0 {
            if let Some(worker) = worker() {
                let _ = worker.send((self.0.clone(), piece));
            }
        }
    }

    /// That piece is given back: it is not to appear again by being assembled.
    pub(super) fn forget(&self, piece: usize) {
        let (word, bit) = self.0.bit(piece);
        if word.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
            self.0.wait_for(|now| now == piece);
        }
    }
}

impl Drop for Collapse {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
        self.0.wait_for(|now| now != NONE);
    }
}

type Wanted = (Arc<Pieces>, usize);

/// The thread of this process that assembles; `None` where none could be started.
fn worker() -> Option<&'static mpsc::Sender<Wanted>> {
    static WORKER: OnceLock<Option<mpsc::Sender<Wanted>>> = OnceLock::new();
    let start = || {
        let (send, wanted) = mpsc::channel::<Wanted>();
        let run = move || {
            crate::sched::as_the_process();
            wanted.into_iter().for_each(|(pieces, piece)| pieces.assemble(piece));
        };
        // Of ordinary weight: one that is taken off its core while it holds the locks of pages would have others wait for long.
        let thread = std::thread::Builder::new().name("weir-huge".into()).stack_size(64 << 10).spawn(run);
        thread.inspect_err(|e| tracing::warn!("no huge pages: {e}")).ok().map(|_| send)
    };
    WORKER.get_or_init(start).as_ref()
}
