//! Signals an eventfd that somebody else holds too, without ever waiting for them.
//!
//! Whoever handed an eventfd over shares its flags and its counter: they may clear O_NONBLOCK and fill the counter, and then
//! write(2) waits until they read it. Asking first is a race, RWF_NOWAIT is not supported for such a write, and an eventfd
//! cannot be opened anew. What never waits is the kernel's own signal, which a ring gives to the eventfd registered with
//! it when an entry completes: so each eventfd has a ring of two entries, and a signal is an empty request. It costs one
//! system call, like the write, and a ring takes what is an eventfd and nothing else.

use io_uring::{IoUring, opcode};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A way to signal an eventfd of another process; see the [module](self).
#[derive(Default)]
pub struct Signal {
    /// Made when it is first needed.
    ring: Option<IoUring>,
    armed: bool,
}

impl Signal {
    /// Signals this eventfd from now on, or none. The descriptor itself is not needed any longer.
    ///
    /// # Errors
    /// It is not an eventfd, or the kernel has no room for a ring: it signals none.
    pub fn set(&mut self, fd: Option<impl AsFd>) -> io::Result<()> {
        if let (Some(ring), true) = (&self.ring, self.armed) {
            ring.submitter().unregister_eventfd()?;
            self.armed = false;
        }
        let Some(fd) = fd else { return Ok(()) };
        let ring = match &self.ring {
            Some(ring) => ring,
            None => self.ring.insert(IoUring::builder().setup_cqsize(2).dontfork().build(1)?),
        };
        ring.submitter().register_eventfd(fd.as_fd().as_raw_fd())?;
        self.armed = true;
        Ok(())
    }

    /// Adds one to the eventfd; a full one stays full and is signalled all the same.
    #[inline]
    pub fn signal(&mut self) {
        let (Some(ring), true) = (&mut self.ring, self.armed) else { return };
        // SAFETY: the entry points to no memory. A full queue holds an entry that the kernel had no memory for, which says
        // the same.
        let _ = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
        let _ = ring.submit();
        ring.completion().for_each(drop);
    }

    /// Refuses what is not an eventfd, without touching it.
    ///
    /// # Errors
    /// What it is instead is not known; the message says that it is none.
    pub fn check(&mut self, fd: impl AsFd) -> io::Result<()> {
        debug_assert!(!self.armed, "it would forget its own");
        self.set(Some(fd))?;
        self.set(None::<std::os::fd::BorrowedFd>)
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Signal").field("armed", &self.armed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::fds;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::OwnedFd;

    fn count(fd: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(fd, &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes))
    }

    #[test]
    fn signals_the_last_one_it_was_given() {
        let (a, b) = (fds::eventfd().unwrap(), fds::eventfd().unwrap());
        let mut signal = Signal::default();
        signal.signal();
        signal.set(Some(&a)).unwrap();
        signal.signal();
        signal.signal();
        assert_eq!((count(&a), count(&b)), (2, 0));
        signal.set(Some(b.try_clone().unwrap())).unwrap();
        (0..1000).for_each(|_| signal.signal());
        assert_eq!((count(&a), count(&b)), (0, 1000));
        signal.set(None::<OwnedFd>).unwrap();
        signal.signal();
        assert_eq!((count(&a), count(&b)), (0, 0));
    }

    #[test]
    fn a_full_eventfd_that_blocks_does_not_block_us() {
        let hostile = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&hostile, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let mut signal = Signal::default();
        signal.set(Some(&hostile)).unwrap();
        (0..100).for_each(|_| signal.signal());
        assert!(count(&hostile) >= u64::MAX - 1);
        signal.signal();
        assert_eq!(count(&hostile), 1);
    }

    #[test]
    fn what_is_no_eventfd_is_refused_and_the_next_one_taken() {
        let (pipe, _end) = rustix::pipe::pipe().unwrap();
        let event = fds::eventfd().unwrap();
        let mut signal = Signal::default();
        signal.set(Some(&event)).unwrap();
        assert_eq!(signal.set(Some(&pipe)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        signal.signal();
        assert_eq!(count(&event), 0, "the one before is forgotten");
        assert!(signal.check(&pipe).is_err());
        signal.check(&event).unwrap();
        signal.set(Some(&event)).unwrap();
        signal.signal();
        assert_eq!(count(&event), 1);
    }
}
