//! Messages from other threads, and how they wake a sleeping reactor.
//!
//! ```text
//!            send: queue, then swap NOTIFIED            turn: swap AWAKE, then the owner empties its queues
//!   AWAKE ───────────────────────────► NOTIFIED ───────────────────────────► AWAKE
//!     └──── wait: compare-and-swap ──► SLEEPING ── send: swap NOTIFIED, write the eventfd
//! ```
//! A message is queued before the swap and looked for after one, so whichever swap comes second sees the other: either the
//! reactor finds NOTIFIED and does not sleep, or the sender finds SLEEPING and writes the eventfd.

use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

const AWAKE: u32 = 0;
const NOTIFIED: u32 = 1;
const SLEEPING: u32 = 2;

struct Inner {
    state: AtomicU32,
    eventfd: OwnedFd,
}

/// Wakes one reactor; may be cloned and used from any thread.
#[derive(Clone)]
pub struct Waker(Arc<Inner>);

impl Waker {
    /// For a reactor that is yet to be made ([`Reactor::with_waker`](super::Reactor::with_waker)).
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Inner { state: AtomicU32::new(AWAKE), eventfd })))
    }

    /// Makes the reactor's next `wait`, or the one it sleeps in, return. No system call unless it sleeps.
    #[inline]
    pub fn wake(&self) {
        // AcqRel: what was queued before is visible to whoever swaps next; SLEEPING was stored after the last look.
        if self.0.state.swap(NOTIFIED, Ordering::AcqRel) == SLEEPING {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        // Only a counter at its maximum refuses, and then the eventfd is readable already.
        let _ = rustix::io::write(&self.0.eventfd, &1u64.to_ne_bytes());
    }

    /// True where somebody has notified since; the queues must be emptied after this call.
    #[inline]
    pub(super) fn take(&self) -> bool {
        self.0.state.load(Ordering::Relaxed) != AWAKE && self.0.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }

    /// Goes to SLEEPING; false where somebody has notified: then there must be no sleep.
    pub(super) fn prepare_sleep(&self) -> bool {
        self.0.state.compare_exchange(AWAKE, SLEEPING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.0.eventfd.as_raw_fd()
    }

    /// The eventfd, for a caller that sleeps in another way.
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        self.0.eventfd.as_fd()
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waker({})", self.raw_fd())
    }
}

/// The sending half of a [`mailbox`].
pub struct Sender<M> {
    queue: mpsc::Sender<M>,
    waker: Waker,
}

impl<M> Sender<M> {
    /// Queues a message and wakes the reactor if it sleeps.
    ///
    /// # Errors
    /// Gives the message back where the receiver is gone.
    pub fn send(&self, message: M) -> Result<(), mpsc::SendError<M>> {
        self.queue.send(message)?;
        self.waker.wake();
        Ok(())
    }

    /// What wakes the receiver's reactor.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), waker: self.waker.clone() }
    }
}

impl<M> fmt::Debug for Sender<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({:?})", self.waker)
    }
}

/// An unbounded queue whose sender wakes the reactor of `waker`. The receiver calls `try_recv` until it is empty after every
/// `turn` or `wait`.
pub fn mailbox<M>(waker: &Waker) -> (Sender<M>, mpsc::Receiver<M>) {
    let (queue, receiver) = mpsc::channel();
    (Sender { queue, waker: waker.clone() }, receiver)
}
