//! The keeper's end of the conversation with one worker. It never waits: a worker that is stopped (SIGSTOP, a debugger) or gets no core
//! does not keep the keeper from the others.

use super::{ToKeeper, ToWorker, garbled, packet, receive};
use crate::transport::fds;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// So long a worker may leave a word untaken before it counts as one that does not listen; a worker waits as long for its keeper.
pub const HEAR_TIMEOUT: Duration = Duration::from_secs(5);
/// Words that may wait for a worker: more than a node has drives, sockets and connections.
const MOST_UNSENT: usize = 1 << 16;

/// Words that the worker's socket has no room for, the first one first.
#[derive(Debug, Default)]
struct Unsent {
    words: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    /// Since when nothing has been taken.
    since: Option<Instant>,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    unsent: RefCell<Unsent>,
}

impl Channel {
    /// A channel, and the worker's end of it.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&theirs, Timeout::Send, Some(HEAR_TIMEOUT))?;
        Ok((Channel::of(ours), theirs))
    }

    /// The keeper's end, as the program before this one left it.
    pub fn of(end: OwnedFd) -> Channel {
        Channel { socket: end, unsent: RefCell::default() }
    }

    /// Tells the worker something, at once or when it has taken what it was told before ([`flush`](Self::flush)).
    ///
    /// # Errors
    /// It has gone; or it has not listened for so long that no more is kept for it.
    pub fn tell(&self, word: &ToWorker, with: &[BorrowedFd]) -> io::Result<()> {
        let (kind, text) = word.parts();
        let bytes = packet(kind, &text)?;
        let unsent = &mut *self.unsent.borrow_mut();
        if unsent.words.is_empty() {
            match send_now(&self.socket, &bytes, with) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
            unsent.since = Some(Instant::now());
        }
        if unsent.words.len() >= MOST_UNSENT {
            return Err(io::Error::new(ErrorKind::WouldBlock, "the worker does not listen"));
        }
        let with = with.iter().map(|fd| fd.try_clone_to_owned()).collect::<io::Result<_>>()?;
        unsent.words.push_back((bytes, with));
        Ok(())
    }

    /// Sends what waits, as far as there is room; to be called when the socket can be written.
    ///
    /// # Errors
    /// The worker has gone.
    pub fn flush(&self) -> io::Result<()> {
        let unsent = &mut *self.unsent.borrow_mut();
        while let Some((bytes, with)) = unsent.words.front() {
            let with: Vec<BorrowedFd> = with.iter().map(AsFd::as_fd).collect();
            match send_now(&self.socket, bytes, &with) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                result => result?,
            }
            unsent.words.pop_front();
            unsent.since = Some(Instant::now());
        }
        unsent.since = None;
        Ok(())
    }

    /// Since when the worker has taken none of the words that wait for it; `None` where none does.
    pub fn unheard_since(&self) -> Option<Instant> {
        self.unsent.borrow().since
    }

    /// The next word of the worker, if there is one yet.
    ///
    /// # Errors
    /// `UnexpectedEof`: it has gone and says nothing more. Anything else: it says what makes no sense.
    pub fn hear(&self) -> io::Result<Option<(ToKeeper, Vec<OwnedFd>)>> {
        let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut ready, Some(&now))? == 0 {
            return Ok(None);
        }
        let (kind, text, fds) = receive(&self.socket)?.ok_or(ErrorKind::UnexpectedEof)?;
        Ok(Some((ToKeeper::read(kind, text).ok_or_else(garbled)?, fds)))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A packet goes whole or not at all.
fn send_now(socket: &OwnedFd, bytes: &[u8], with: &[BorrowedFd]) -> io::Result<()> {
    loop {
        match fds::send_some(socket, bytes, with) {
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
