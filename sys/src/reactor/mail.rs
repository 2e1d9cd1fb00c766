//! Messages from other threads. How they wake a sleeping reactor is in `bell.rs`.

use super::bell::Bell;
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc;

struct Inner {
    bell: Bell,
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
        Ok(Self(Arc::new(Inner { bell: Bell::new(), eventfd })))
    }

    /// Makes the reactor's next `wait`, or the one it sleeps in, return. No system call unless it sleeps.
    #[inline]
    pub fn wake(&self) {
        if self.0.bell.notify() {
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
        self.0.bell.take()
    }

    /// Goes to SLEEPING; false where somebody has notified: then there must be no sleep.
    pub(super) fn prepare_sleep(&self) -> bool {
        self.0.bell.sleep()
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
