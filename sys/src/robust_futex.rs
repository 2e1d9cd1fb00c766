//! Whether the threads of another process still live, known long before its end: a robust futex a thread.
//!
//! ```text
//!   worker: Roster ─slot()─► ThreadSlot ─enter(), in the thread─► RegisteredThread     a word in shared memory holds the thread's id
//!   keeper: DeathWatch ◄── the kernel marks a dead thread's word and wakes who waits for it
//! ```
//! A process that is killed ends when the kernel has taken down its page tables, which takes milliseconds where much memory is
//! mapped. Its threads are dead before that: each one marks its word (FUTEX_OWNER_DIED, futex(2)) on its way out, and from then on runs no
//! more of its program. What is under way in the kernel by itself, such as a write to a file, may go on: only the end of the process
//! tells of that.
//!
//! The words lie in an arena of the schema [`SCHEMA`]: how many there are, then one for each thread.

use crate::arena::{Arena, ArenaError, ArenaWords, Pages, Schema};
use crate::sched;
use crate::transport::fds;
use rustix::io::Errno;
use rustix::thread::futex;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// What the region holds: its words are little more than the keeper's.
pub const SCHEMA: Schema = Schema { name: "threads", version: 1 };
/// Threads that it has room for: a page of words.
pub const MAX_THREADS: usize = 1023;

/// The thread has left in good order, or never came.
const LEFT: u32 = 0;
/// A thread is to come; no thread has that id.
const EXPECTED: u32 = libc::FUTEX_TID_MASK;

/// The threads of this process that others are told of; cloning gives another reference.
#[derive(Clone, Debug)]
pub struct Roster(Arc<ArenaWords>);

impl Roster {
    /// Nobody is in it.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new() -> Result<Self, ArenaError> {
        let arena = Arena::create("weir-threads", SCHEMA, (4 * (MAX_THREADS + 1)) as u64, Pages::Small)?;
        Ok(Self(Arc::new(arena.into_words()?)))
    }

    /// The region, for who is to watch.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// A place for a thread that is about to be started: from now on it counts.
    ///
    /// # Errors
    /// [`MAX_THREADS`] have had one.
    pub fn slot(&self) -> Result<ThreadSlot, ArenaError> {
        let words = self.0.get();
        let at = words[0].load(Ordering::Relaxed) as usize + 1;
        let word = words.get(at).ok_or(ArenaError::Full)?;
        word.store(EXPECTED, Ordering::Relaxed);
        // Release: whoever sees that there is a place sees that it is taken.
        words[0].store(at as u32, Ordering::Release);
        Ok(ThreadSlot { words: self.0.clone(), at })
    }
}

/// A thread's place before it is there. Dropped, nobody comes.
#[derive(Debug)]
pub struct ThreadSlot {
    words: Arc<ArenaWords>,
    at: usize,
}

impl ThreadSlot {
    /// The calling thread takes it, until what is returned is dropped, or it dies.
    ///
    /// # Errors
    /// The kernel knows no robust futexes.
    pub fn enter(self) -> io::Result<RegisteredThread> {
        let (mut before, mut len) = (ptr::null_mut::<Head>(), 0usize);
        // SAFETY: this thread's own list; the kernel writes an address and a length to the two variables.
        if unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut before, &raw mut len) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let word = &self.words.get()[self.at];
        let entry = Box::into_raw(Box::new(Link { next: ptr::null_mut() }));
        // From the entry to its word: the kernel adds it to the entry's address.
        let offset = (word.as_ptr().addr() as libc::c_long).wrapping_sub(entry.addr() as libc::c_long);
        let head = Box::into_raw(Box::new(Head { list: Link { next: entry }, offset, pending: ptr::null_mut() }));
        // SAFETY: made above, and nobody else knows it: the list is a circle.
        unsafe { (*entry).next = head.cast() };
        let entered = RegisteredThread { slot: self, head, entry, before };
        // The word before the list: a list with a word of nobody's is nothing to the kernel.
        let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        entered.word().store(tid, Ordering::Release);
        // SAFETY: the list is a circle, and lives as long as this thread does or `entered`, which puts the one before it back.
        if unsafe { libc::syscall(libc::SYS_set_robust_list, head, size_of::<Head>()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // Whoever waited for a thread to come waits for its end.
        let _ = futex::wake(entered.word(), futex::Flags::empty(), u32::MAX >> 1);
        Ok(entered)
    }
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        let word = &self.words.get()[self.at];
        word.store(LEFT, Ordering::Release);
        let _ = futex::wake(word, futex::Flags::empty(), u32::MAX >> 1);
    }
}

/// `struct robust_list` of the kernel.
#[repr(C)]
struct Link {
    next: *mut Link,
}

/// `struct robust_list_head`.
#[repr(C)]
struct Head {
    list: Link,
    offset: libc::c_long,
    pending: *mut Link,
}

/// A thread that others see die. Dropped, it has left in good order.
#[derive(Debug)]
pub struct RegisteredThread {
    slot: ThreadSlot,
    head: *mut Head,
    entry: *mut Link,
    before: *mut Head,
}

impl RegisteredThread {
    fn word(&self) -> &AtomicU32 {
        &self.slot.words.get()[self.slot.at]
    }
}

impl Drop for RegisteredThread {
    fn drop(&mut self) {
        // SAFETY: the list that this thread had, as the kernel gave it: the C library's, which lives as long as the thread, or none (null).
        unsafe {
            libc::syscall(libc::SYS_set_robust_list, self.before, size_of::<Head>());
        }
        // SAFETY: both made in `enter`, and the kernel does not know them any more.
        unsafe {
            drop(Box::from_raw(self.head));
            drop(Box::from_raw(self.entry));
        }
        // The place says that the thread has left.
    }
}

/// Waits, in a thread of its own, until the threads of another process are dead. Dropped, nobody can watch them any more.
#[derive(Debug)]
pub struct DeathWatch {
    words: Arc<ArenaWords>,
    over: Arc<AtomicBool>,
    dead: OwnedFd,
}

impl DeathWatch {
    /// Watches the threads of a [`Roster`], by its region.
    ///
    /// # Errors
    /// It is no such region; no descriptor or no thread is left.
    pub fn begin(roster: OwnedFd) -> io::Result<Self> {
        let words = Arc::new(Arena::open(roster, SCHEMA).and_then(Arena::into_words).map_err(io::Error::other)?);
        let dead = fds::eventfd()?;
        let watch = DeathWatch { words, over: Arc::default(), dead };
        let (words, over, dead) = (watch.words.clone(), watch.over.clone(), watch.dead.try_clone()?);
        let wait = move || {
            // Those that it waits for leave a core to somebody who has much to do: to what takes their process down, for instance.
            sched::prompt();
            if all_dead(&words, &over) {
                let _ = rustix::io::write(&dead, &1u64.to_ne_bytes());
            }
        };
        std::thread::Builder::new().name("weir-watch".into()).stack_size(64 << 10).spawn(wait)?;
        Ok(watch)
    }
}

/// Readable once all of them are gone, and one at least did not leave in good order.
impl AsFd for DeathWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dead.as_fd()
    }
}

impl Drop for DeathWatch {
    fn drop(&mut self) {
        // Nobody wants to know any more: the thread that waits is let go, by another value of the word that it waits for.
        self.over.store(true, Ordering::Release);
        let words = self.words.get();
        for word in words.iter().skip(1).take(words[0].load(Ordering::Acquire) as usize) {
            word.store(LEFT, Ordering::Release);
            let _ = futex::wake(word, futex::Flags::empty(), 1);
        }
    }
}

/// Waits until all are gone; whether one of them has died. False where nobody wants to know any more.
fn all_dead(words: &ArenaWords, over: &AtomicBool) -> bool {
    let words = words.get();
    let (mut at, mut died) = (1, false);
    // Who is gone has started all that it would ever start.
    while at <= (words[0].load(Ordering::Acquire) as usize).min(words.len() - 1) {
        match wait_for(&words[at], over) {
            Some(dead) => died |= dead,
            None => return false,
        }
        at += 1;
    }
    died
}

/// Waits until one is gone; whether it has died.
fn wait_for(word: &AtomicU32, over: &AtomicBool) -> Option<bool> {
    loop {
        let now = word.load(Ordering::Acquire);
        if over.load(Ordering::Acquire) {
            return None;
        }
        if now & libc::FUTEX_OWNER_DIED != 0 {
            return Some(true);
        }
        if now == LEFT {
            return Some(false);
        }
        let armed = now | libc::FUTEX_WAITERS;
        // Only then does the kernel wake anybody.
        if now != armed && word.compare_exchange(now, armed, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            continue;
        }
        match futex::wait(word, futex::Flags::empty(), armed, None) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(e) => {
                tracing::error!("threads of a worker cannot be watched: {e}; its end is waited for");
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::mpsc;

    fn is_dead(watch: &DeathWatch, patience_ms: i64) -> bool {
        let limit = Timespec { tv_sec: patience_ms / 1000, tv_nsec: patience_ms % 1000 * 1_000_000 };
        poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&limit)).unwrap() == 1
    }

    fn watch(roster: &Roster) -> DeathWatch {
        DeathWatch::begin(roster.fd().try_clone_to_owned().unwrap()).unwrap()
    }

    /// A thread that is there until it is let go, and then ends as told.
    fn thread(roster: &Roster, in_order: bool) -> mpsc::Sender<()> {
        let place = roster.slot().unwrap();
        let ((go, wait), (here, there)) = (mpsc::channel(), mpsc::channel());
        std::thread::spawn(move || {
            let entered = place.enter().unwrap();
            here.send(()).unwrap();
            let _ = wait.recv();
            if in_order {
                drop(entered);
            } else {
                // As a thread that is killed: it leaves nothing in order. The kernel reads the list after this.
                std::mem::forget(entered);
            }
        });
        there.recv().unwrap();
        go
    }

    #[test]
    fn the_last_thread_to_die_is_told_of() {
        let roster = Roster::new().unwrap();
        let (one, two) = (thread(&roster, false), thread(&roster, false));
        let watch = watch(&roster);
        assert!(!is_dead(&watch, 20));
        drop(one);
        assert!(!is_dead(&watch, 20), "the other one lives");
        drop(two);
        assert!(is_dead(&watch, 10_000));
    }

    #[test]
    fn threads_that_leave_in_good_order_are_no_death() {
        let roster = Roster::new().unwrap();
        let one = thread(&roster, true);
        let watch = watch(&roster);
        drop(one);
        // One that never comes, and one that comes later.
        drop(roster.slot().unwrap());
        assert!(!is_dead(&watch, 50));
    }

    #[test]
    fn a_place_that_is_taken_is_waited_for() {
        let roster = Roster::new().unwrap();
        let dies = thread(&roster, false);
        let late = roster.slot().unwrap();
        let watch = watch(&roster);
        drop(dies);
        assert!(!is_dead(&watch, 20), "somebody is to come");
        let (go, wait) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            let entered = late.enter().unwrap();
            let _ = wait.recv();
            std::mem::forget(entered);
        });
        assert!(!is_dead(&watch, 20), "and is there");
        drop(go);
        assert!(is_dead(&watch, 10_000));
    }

    #[test]
    fn a_watch_that_is_dropped_lets_its_thread_go() {
        let roster = Roster::new().unwrap();
        let _one = thread(&roster, false);
        let watch = watch(&roster);
        assert!(!is_dead(&watch, 20));
        let words = Arc::downgrade(&watch.words);
        drop(watch);
        let begun = std::time::Instant::now();
        while words.strong_count() > 0 && begun.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
        assert_eq!(words.strong_count(), 0);
    }

    fn list() -> *mut Head {
        let (mut head, mut len) = (ptr::null_mut::<Head>(), 0usize);
        // SAFETY: this thread's own list; the kernel writes an address and a length to the two variables.
        assert_eq!(unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut len) }, 0);
        head
    }

    fn set_list(head: *mut Head) {
        // SAFETY: none, or the list that this thread had before.
        assert_eq!(unsafe { libc::syscall(libc::SYS_set_robust_list, head, size_of::<Head>()) }, 0);
    }

    #[test]
    fn a_thread_that_leaves_has_the_list_it_had_or_none() {
        let roster = Roster::new().unwrap();
        let had = list();
        for before in [had, ptr::null_mut()] {
            set_list(before);
            let entered = roster.slot().unwrap().enter().unwrap();
            assert_ne!(list(), before);
            drop(entered);
            let after = list();
            set_list(had);
            assert_eq!(after, before);
        }
    }

    #[test]
    fn it_has_an_end() {
        let roster = Roster::new().unwrap();
        let places: Vec<ThreadSlot> = (0..MAX_THREADS).map(|_| roster.slot().unwrap()).collect();
        assert!(matches!(roster.slot(), Err(ArenaError::Full)));
        drop(places);
    }
}
