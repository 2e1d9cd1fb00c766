//! The event loop of one thread, over io_uring.
//!
//! ```text
//!   turn ── reap ──► Ready::Fd    a watched descriptor          watch / rearm / unwatch
//!     │        └───► Ready::File  a finished file operation     start(FileOp)
//!   wait ── the same, asleep until something comes, `until`, or a Sender in another thread
//! ```
//! A turn without news is a few loads: the kernel sets a flag in the shared ring when it has something to hand over
//! (IORING_SETUP_TASKRUN_FLAG), and only then, or when there is something to submit, is there a system call.
//!
//! Ownership: a buffer and its file belong to the reactor from `start` until the operation's [`Ready::File`]; dropping the
//! reactor waits for what the kernel still works on. A watch's place is used again only after the kernel's last word on it,
//! and its generation tells a late event of an earlier watch from one of its successor.
//!
//! A reactor belongs to the thread that first turns it.

mod bell;
mod buffer;
mod clock;
mod error;
mod file;
mod idle;
mod mail;
mod ring;
mod watch;

#[cfg(test)]
mod tests;

/// Where `bell.rs` finds its atomics: a test gives it others.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU32, Ordering};
}

pub use buffer::{ALIGN, BufferPool, IoBuf};
pub use clock::now;
pub use error::ReactorError;
pub use file::{FileDone, FileOp, FileResult};
pub use idle::Idle;
pub use mail::{Sender, Waker, mailbox};
pub use std::sync::mpsc::Receiver;
pub use watch::{Interest, Mode, Readiness, WatchId};

use clock::Clock;
use file::Files;
use ring::{CompletionKind, Level, Uring, UserData};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd};
use watch::Watches;
use weir_units::Nanos;

/// Something happened.
#[derive(Debug)]
pub enum Ready {
    /// A watched descriptor became ready.
    Fd {
        /// What the owner of the watch called it.
        token: u64,
        /// Which watch: an owner whose watch has changed since ignores the event.
        watch: WatchId,
        /// What it is ready for.
        readiness: Readiness,
    },
    /// A file operation ended.
    File(FileDone),
}

impl Ready {
    /// What the watch or the operation was called by who started it.
    pub fn token(&self) -> u64 {
        match self {
            Ready::Fd { token, .. } => *token,
            Ready::File(done) => done.token,
        }
    }
}

/// How early `wait` returns before its deadline: a sleeping thread wakes up late by tens of microseconds, so the last stretch
/// is the caller's to spin.
pub const WAKE_MARGIN: Nanos = Nanos::from_micros(60);

/// See the [module](self).
pub struct Reactor {
    ring: Uring,
    watches: Watches,
    files: Files,
    waker: Waker,
    clock: Clock,
    bell_armed: bool,
    /// Somebody has notified since the mailboxes were last emptied.
    mail: bool,
}

impl Reactor {
    /// A reactor with a waker of its own.
    ///
    /// # Errors
    /// io_uring cannot be had; the message says what to do.
    pub fn new() -> Result<Self, ReactorError> {
        Self::with_waker(Waker::new()?)
    }

    /// A reactor that `waker` wakes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_waker(waker: Waker) -> Result<Self, ReactorError> {
        Self::at_level(waker, Level::Deferred)
    }

    fn at_level(waker: Waker, level: Level) -> Result<Self, ReactorError> {
        let ring = Uring::new(level)?;
        Ok(Self {
            ring,
            watches: Watches::default(),
            files: Files::default(),
            waker,
            clock: Clock::new(),
            bell_armed: false,
            mail: false,
        })
    }

    /// What wakes this reactor from another thread.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// The time; see [`now`].
    #[inline]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Watches a descriptor. In [`Mode::Edge`] every change to ready is reported until [`unwatch`](Self::unwatch), so the
    /// owner works until EAGAIN. In [`Mode::Once`] readiness is reported once, also if it is there already, and again only
    /// after [`rearm`](Self::rearm): an owner that polls a busy descriptor itself arms it when it goes quiet, and pays for no
    /// events in between.
    ///
    /// The kernel keeps the file open until `unwatch` has been submitted by the next turn; `unwatch` before closing the
    /// descriptor.
    pub fn watch(&mut self, fd: impl AsFd, interest: Interest, mode: Mode, token: u64) -> WatchId {
        self.watches.add(&mut self.ring, fd.as_fd().as_raw_fd(), interest, mode, token)
    }

    /// Reports a [`Mode::Once`] watch once more; nothing where it is armed already or gone.
    pub fn rearm(&mut self, watch: WatchId) {
        self.watches.rearm(&mut self.ring, watch);
    }

    /// Ends a watch. An event of it that is already in the caller's list stays there; it names this watch.
    pub fn unwatch(&mut self, watch: WatchId) {
        self.watches.remove(&mut self.ring, watch);
    }

    /// Starts a file operation; its end comes as [`Ready::File`] with `token`. It is submitted with the next turn, together
    /// with everything else that was started.
    pub fn start(&mut self, op: FileOp, token: u64) {
        self.files.start(&mut self.ring, op, token);
    }

    /// File operations that have not ended.
    pub fn files_in_flight(&self) -> usize {
        self.files.in_flight()
    }

    /// Submits what was started and collects what has happened, without sleeping.
    #[inline]
    pub fn turn(&mut self, events: &mut Vec<Ready>) {
        if !self.bell_armed {
            self.arm_bell();
        }
        self.mail |= self.waker.take();
        if self.ring.wants_enter() {
            self.ring.enter(None);
        }
        if self.ring.has_completions() {
            self.reap(events);
        }
    }

    /// Whether a message may lie in a mailbox of this reactor, asked once after a turn or a wait: the mailboxes have to be emptied
    /// then. An empty one is not free to look at: receiving waits until all stores of this thread have reached the other cores.
    #[inline]
    pub fn take_mail(&mut self) -> bool {
        std::mem::take(&mut self.mail)
    }

    /// As [`turn`](Self::turn), but where nothing has happened it sleeps until something does, a message is sent to one of
    /// this reactor's mailboxes, or shortly before `until` (the last 60 µs are left to the caller, see [`Idle`]). It may
    /// return early without events. Mailboxes must be emptied after it.
    pub fn wait(&mut self, until: Option<Nanos>, events: &mut Vec<Ready>) {
        if !self.bell_armed {
            self.arm_bell();
        }
        let before = events.len();
        self.reap(events);
        let timeout = match until {
            None => Nanos::NEVER,
            Some(t) => t.saturating_sub(clock::now()).saturating_sub(WAKE_MARGIN),
        };
        if events.len() != before || timeout.get() == 0 || !self.waker.prepare_sleep() {
            self.turn(events);
            return;
        }
        self.ring.enter(Some(timeout));
        self.mail |= self.waker.take();
        self.reap(events);
    }

    fn arm_bell(&mut self) {
        // Nobody reads the eventfd: every write is a new edge, and its counter cannot reach its limit.
        self.ring.poll(self.waker.raw_fd(), Interest::READ.events(), true, UserData::new(CompletionKind::Bell, 0, 0));
        self.bell_armed = true;
    }

    fn reap(&mut self, events: &mut Vec<Ready>) {
        while let Some((tag, result, more)) = self.ring.next() {
            match tag.kind() {
                CompletionKind::Watch => self.watches.completed(&mut self.ring, tag, result, more, events),
                CompletionKind::File => events.push(Ready::File(self.files.completed(tag, result))),
                CompletionKind::Bell if !more => self.arm_bell(),
                CompletionKind::Bell => {}
                CompletionKind::None => {}
            }
        }
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor")
            .field("watches", &self.watches.len())
            .field("files_in_flight", &self.files.in_flight())
            .finish_non_exhaustive()
    }
}

impl Drop for Reactor {
    /// Waits for the file operations in flight: the kernel may still write to their buffers. What does not end in time is
    /// leaked rather than freed under the kernel's hands.
    fn drop(&mut self) {
        if self.files.in_flight() == 0 {
            return;
        }
        self.ring.cancel_files();
        let deadline = clock::now().saturating_add(Nanos::from_secs(5));
        let mut events = Vec::new();
        while self.files.in_flight() > 0 {
            let left = deadline.saturating_sub(clock::now());
            if left.get() == 0 {
                tracing::warn!(
                    operations = self.files.in_flight(),
                    "file operations did not end, their buffers are leaked"
                );
                self.files.leak();
                return;
            }
            self.ring.enter(Some(left));
            self.reap(&mut events);
        }
    }
}
