//! Descriptors beside bytes (SCM_RIGHTS), and eventfds: what both ends of vhost-user and vfio-user need.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most descriptors with one message.
pub const MAX_FDS: usize = 16;

/// Sends bytes, with descriptors beside the first of them; how many bytes went. Never raises SIGPIPE.
///
/// # Errors
/// What the system said; more than [`MAX_FDS`] descriptors are refused.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(sent)
}

/// Sends bytes without ever waiting, whatever flags the socket has by now; whether all of them went. The messages are short:
/// a socket without room for one belongs to somebody who does not listen.
pub fn send_now(socket: impl AsFd, bytes: &[u8]) -> bool {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::send(socket, bytes, flags).is_ok_and(|n| n == bytes.len())
}

/// Sends as much as there is room for, with descriptors beside the first byte, without ever waiting; how many bytes went.
///
/// # Errors
/// What the system said, [`WouldBlock`](io::ErrorKind::WouldBlock) where there is no room.
pub fn send_some(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?)
}

/// Whether it is a socket of this machine, which [`send_now`] can be relied on.
pub fn is_unix_socket(fd: impl AsFd) -> bool {
    rustix::net::sockopt::socket_domain(fd).is_ok_and(|d| d == rustix::net::AddressFamily::UNIX)
}

/// Receives bytes and the descriptors beside them; 0 when the other side has closed.
///
/// # Errors
/// What the system said; descriptors that had to be dropped for want of room count as an error.
pub fn receive(socket: impl AsFd, into: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    if got.flags.contains(rustix::net::ReturnFlags::CTRUNC) {
        return Err(io::Error::other("more descriptors came than there was room for"));
    }
    Ok(got.bytes)
}

/// A new eventfd that does not block.
///
/// # Errors
/// What the system said.
pub fn eventfd() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Adds one to an eventfd of our own; for one that came from somebody else see [`super::signal`].
#[inline]
pub fn signal(fd: impl AsFd) {
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// Sets an eventfd back to zero, if that can be done at once.
pub fn drain(fd: impl AsFd) {
    let mut count = [0; 8];
    // Position -1 is the file's own; NOWAIT holds whatever flags the other side gives the file.
    let flags = rustix::io::ReadWriteFlags::NOWAIT;
    let _ = rustix::io::preadv2(fd, &mut [IoSliceMut::new(&mut count)], u64::MAX, flags);
}

/// Whether the other end of a socket is still there, without taking a byte from it.
pub fn is_open(socket: impl AsFd) -> bool {
    let mut byte = [0u8; 1];
    match rustix::net::recv(socket, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((n, _)) => n != 0,
        Err(e) => e == Errno::AGAIN || e == Errno::INTR,
    }
}

/// Whether the other end of a Unix socket has closed, also where there is something to read that it has sent before.
pub fn is_hung_up(socket: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&socket, PollFlags::RDHUP)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&at_once)).is_ok()
        && polled[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_hang_up_shows_behind_what_was_sent() {
        use std::io::Write;
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"x").unwrap();
        assert!(!is_hung_up(&ours));
        drop(theirs);
        assert!(is_hung_up(&ours), "a byte is left");
    }

    #[test]
    fn descriptors_travel_with_the_first_byte() {
        let (a, b) = UnixStream::pair().unwrap();
        let event = eventfd().unwrap();
        assert_eq!(send(&a, b"hello", &[event.as_fd(), event.as_fd()]).unwrap(), 5);
        let (mut bytes, mut fds) = ([0; 2], Vec::new());
        assert_eq!(receive(&b, &mut bytes, &mut fds).unwrap(), 2);
        assert_eq!((&bytes, fds.len()), (b"he", 2));
        signal(&fds[0]);
        let mut count = [0; 8];
        rustix::io::read(&event, &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
        assert!(is_open(&b));
        drop(a);
        assert_eq!(receive(&b, &mut [0; 8], &mut fds).unwrap(), 3);
        assert!(!is_open(&b));
        assert_eq!(receive(&b, &mut bytes, &mut fds).unwrap(), 0);
    }

    #[test]
    fn a_full_socket_that_blocks_does_not_block_us() {
        let (a, _b) = UnixStream::pair().unwrap();
        assert!(is_unix_socket(&a) && !is_unix_socket(eventfd().unwrap()));
        let sent = (0..1_000_000).take_while(|_| send_now(&a, &[0; 64])).count();
        assert!((1..1_000_000).contains(&sent), "{sent} messages");
    }

    #[test]
    fn an_eventfd_is_drained_without_waiting() {
        let event = rustix::event::eventfd(7, EventfdFlags::CLOEXEC).unwrap();
        drain(&event);
        drain(&event);
        rustix::fs::fcntl_setfl(&event, rustix::fs::OFlags::NONBLOCK).unwrap();
        assert_eq!(rustix::io::read(&event, &mut [0; 8]), Err(Errno::AGAIN));
    }
}
