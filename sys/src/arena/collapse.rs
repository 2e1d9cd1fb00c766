//! Huge pages, assembled beside the threads that use the memory.
//!
//! Small pages of a file in memory become a huge one by MADV_COLLAPSE (Linux 6.1), which works whatever
//! /sys/kernel/mm/transparent_hugepage says, unless that is "deny". It first has every core put its pages where they can be found, by a
//! worker of the kernel on each of them, and waits for those: as long as it takes until that one gets its core from whoever polls there
//! (measured on two cores that both were busy: 8 ms in the middle for each huge page, where 0.13 ms is what it takes on idle ones). So no thread
//! that serves does it, but one of the process's own, in its own time: what uses the memory and the address space meanwhile waits for its locks.
//!
//! Others may use the memory meanwhile. The kernel copies the small pages with their locks held and takes them out of all page tables before, so whoever touches
//! one waits for the copy, some 0.1 ms, and then finds the huge page with the same contents; pages that were not there are zeroes, as they were. What
//! it cannot do it leaves as it was.

use super::HUGE;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

/// Pieces that are assembled by one system call, and are waited for together: the wait for all cores is one then.
const GROUP: usize = 8;
/// So long nothing is assembled after it was asked for: a worker has just taken over, or its client fills the memory that it asks for.
const AWHILE: Duration = Duration::from_millis(100);
/// So many times as long as a group has taken nothing is done, nor longer than that.
const SLEEP: u32 = 2;
/// No group.
const NONE: usize = usize::MAX;

/// The pieces of a mapping of which huge pages are wanted. Dropped, none is, and nothing of the mapping is touched any more.
#[derive(Debug)]
pub(super) struct Collapse(Arc<Pieces>);

#[derive(Debug)]
struct Pieces {
    /// The mapping's address, exposed.
    at: usize,
    /// A bit a piece, a byte a group: it was asked for, and has not been given back since.
    wanted: Box<[AtomicU8]>,
    /// The same: and nobody has tried yet.
    waiting: Box<[AtomicU8]>,
    /// The group that is being assembled.
    now: AtomicUsize,
    over: AtomicBool,
}

impl Pieces {
    /// In the thread that does.
    fn assemble(&self, group: usize) {
        if self.waiting[group].load(Ordering::Relaxed) == 0 {
            return;
        }
        // SeqCst here and in `wait_for`: either this one sees that it is not wanted any more, or that one sees that it is under way.
        let begun = Instant::now();
        self.now.store(group, Ordering::SeqCst);
        let waiting = self.waiting[group].swap(0, Ordering::SeqCst) & self.wanted[group].load(Ordering::SeqCst);
        if !self.over.load(Ordering::SeqCst) {
            runs(waiting).for_each(|run| self.collapse(group * GROUP + run.start, run.len()));
        }
        self.now.store(NONE, Ordering::SeqCst);
        std::thread::sleep((begun.elapsed() * SLEEP).min(AWHILE));
    }

    fn collapse(&self, piece: usize, count: usize) {
        let at = std::ptr::with_exposed_provenance_mut::<libc::c_void>(self.at + piece * HUGE);
        // SAFETY: inside a mapping that is there: `Collapse` waits before it goes. The advice changes no byte of it, whoever uses it
        // meanwhile (see the module). Where it fails, small pages do.
        let done = unsafe { libc::madvise(at, count * HUGE, libc::MADV_COLLAPSE) } == 0;
        // It may have left off at one that cannot be.
        if !done && count > 1 {
            (piece..piece + count).for_each(|piece| self.collapse(piece, 1));
        }
    }

    /// Until no group of these is being assembled; rarely for long.
    fn wait_for(&self, is: impl Fn(usize) -> bool) {
        while is(self.now.load(Ordering::SeqCst)) {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

/// The runs of set bits, lowest first.
fn runs(mut bits: u8) -> impl Iterator<Item = Range<usize>> {
    std::iter::from_fn(move || {
        let start = bits.trailing_zeros();
        let len = bits.checked_shr(start)?.trailing_ones();
        bits &= !(((1u16 << len) - 1) << start) as u8;
        Some(start as usize..(start + len) as usize)
    })
}

impl Collapse {
    /// Of a mapping of so many whole huge pages, on a boundary of one, which outlives what is returned.
    pub(super) fn of(at: *mut u8, pieces: usize) -> Self {
        let bits = || (0..pieces.div_ceil(GROUP)).map(|_| AtomicU8::new(0)).collect();
        let (now, over) = (AtomicUsize::new(NONE), AtomicBool::new(false));
        Self(Arc::new(Pieces { at: at.expose_provenance(), wanted: bits(), waiting: bits(), now, over }))
    }

    /// Has those pieces be huge pages in a while, where they can.
    pub(super) fn want(&self, pieces: Range<usize>) {
        let groups = pieces.start / GROUP..pieces.end.div_ceil(GROUP);
        let mut is_new = false;
        for piece in pieces {
            let (group, bit) = (piece / GROUP, 1 << (piece % GROUP));
            if self.0.wanted[group].fetch_or(bit, Ordering::SeqCst) & bit == 0 {
                self.0.waiting[group].fetch_or(bit, Ordering::SeqCst);
                is_new = true;
            }
        }
        if let Some(worker) = worker().filter(|_| is_new) {
            let _ = worker.send((self.0.clone(), groups));
        }
    }

    /// That piece is given back: it is not to appear again by being assembled.
    pub(super) fn forget(&self, piece: usize) {
        let (group, bit) = (piece / GROUP, 1 << (piece % GROUP));
        if self.0.wanted[group].fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
            self.0.waiting[group].fetch_and(!bit, Ordering::SeqCst);
            self.0.wait_for(|now| now == group);
        }
    }
}

impl Drop for Collapse {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
        self.0.wait_for(|now| now != NONE);
    }
}

type Wanted = (Arc<Pieces>, Range<usize>);

/// The thread of this process that assembles; `None` where none could be started.
fn worker() -> Option<&'static mpsc::Sender<Wanted>> {
    static WORKER: OnceLock<Option<mpsc::Sender<Wanted>>> = OnceLock::new();
    let start = || {
        let (send, wanted) = mpsc::channel::<Wanted>();
        let run = move || {
            crate::sched::as_the_process();
            while let Ok(first) = wanted.recv() {
                std::thread::sleep(AWHILE);
                for (pieces, groups) in std::iter::once(first).chain(wanted.try_iter()) {
                    groups.for_each(|group| pieces.assemble(group));
                }
            }
        };
        // Of ordinary weight: one that is taken off its core while it holds the locks of pages would have others wait for long.
        let thread = std::thread::Builder::new().name("weir-huge".into()).stack_size(64 << 10).spawn(run);
        thread.inspect_err(|e| tracing::warn!("no huge pages: {e}")).ok().map(|_| send)
    };
    WORKER.get_or_init(start).as_ref()
}

/// Starts that thread now, for who will have no time for it later.
pub(super) fn prepare() {
    worker();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_all_bits() {
        assert_eq!(runs(0).count(), 0);
        assert_eq!((runs(0xff).next(), runs(0xff).count()), (Some(0..8), 1));
        assert_eq!(runs(0b1011_0010).collect::<Vec<_>>(), [1..2, 4..6, 7..8]);
        for bits in 0..=u8::MAX {
            let all = runs(bits).flatten().fold(0, |all, bit| all | 1u8 << bit);
            assert_eq!(all, bits);
        }
    }
}
