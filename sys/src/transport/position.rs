//! Where the two streams of a TCP connection stand, as the kernel counts them: a process that is given a connection finds out whether
//! another one has read from it or written to it since.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes that the process has taken from the connection and given to it, each from a beginning that stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// `tcpi_bytes_received` − SIOCINQ.
    pub taken: u64,
    /// `tcpi_bytes_acked` + SIOCOUTQ.
    pub given: u64,
}

/// Words of `struct tcp_info` up to `tcpi_bytes_received` (Linux 4.1 on).
const WORDS: usize = 17;
const ACKED: usize = 15;
const RECEIVED: usize = 16;
/// How often the connection may move while it is looked at.
const LOOKS: usize = 100;

impl Position {
    /// Where a connection stands. That the other end has closed it counts as a byte, or not.
    ///
    /// # Errors
    /// It is no TCP connection, the kernel does not count, or it does not hold still.
    pub fn of(socket: impl AsFd) -> io::Result<Position> {
        for _ in 0..LOOKS {
            let before = queued(&socket)?;
            let info = info(&socket)?;
            // What comes, and what is acknowledged, meanwhile would be counted twice or not at all.
            if queued(&socket)? == before {
                let (unread, unacknowledged) = before;
                let taken = info[RECEIVED].wrapping_sub(unread);
                return Ok(Position { taken, given: info[ACKED].wrapping_add(unacknowledged) });
            }
        }
        Err(io::Error::other("the connection does not hold still"))
    }

    /// As bytes, for another process.
    pub fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.taken.to_le_bytes());
        bytes[8..].copy_from_slice(&self.given.to_le_bytes());
        bytes
    }

    /// What [`bytes`](Self::bytes) has written.
    pub fn read(bytes: &[u8]) -> Option<Position> {
        let (taken, given) = bytes.split_at_checked(8)?;
        Some(Position {
            taken: u64::from_le_bytes(taken.try_into().ok()?),
            given: u64::from_le_bytes(given.try_into().ok()?),
        })
    }
}

/// SIOCINQ and SIOCOUTQ: bytes that have come and were not read, and that were written and not acknowledged.
fn queued(socket: impl AsFd) -> io::Result<(u64, u64)> {
    let unread = rustix::io::ioctl_fionread(&socket)?;
    let mut unacknowledged: libc::c_int = 0;
    // SAFETY: the request stores an int, whose address is given.
    let r = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut unacknowledged) };
    if r != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((unread, unacknowledged.max(0) as u64))
}

fn info(socket: impl AsFd) -> io::Result<[u64; WORDS]> {
    let mut info = [0u64; WORDS];
    let mut len = size_of_val(&info) as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel stores at most `len` bytes at the address, which are there and may hold anything.
    let r = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut len) };
    if r != 0 {
        return Err(io::Error::last_os_error());
    }
    if (len as usize) < size_of_val(&info) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// Both ends of a connection.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    }

    #[test]
    fn what_the_other_end_does_moves_nothing() {
        let (ours, mut theirs) = pair();
        let before = Position::of(&ours).unwrap();
        theirs.write_all(&[7; 1000]).unwrap();
        while queued(&ours).unwrap().0 < 1000 {
            std::thread::yield_now();
        }
        assert_eq!(Position::of(&ours).unwrap(), before);
    }

    #[test]
    fn what_this_end_reads_and_writes_counts() {
        let (mut ours, mut theirs) = pair();
        let start = Position::of(&ours).unwrap();
        theirs.write_all(&[7; 300]).unwrap();
        ours.read_exact(&mut [0; 200]).unwrap();
        ours.write_all(&[1; 50]).unwrap();
        // Acknowledged or not, and although one end is another descriptor of the same connection.
        let other = ours.try_clone().unwrap();
        for _ in 0..100 {
            let now = Position::of(&other).unwrap();
            assert_eq!((now.taken - start.taken, now.given - start.given), (200, 50));
        }
        theirs.read_exact(&mut [0; 50]).unwrap();
        let now = Position::of(&other).unwrap();
        assert_eq!((now.taken - start.taken, now.given - start.given), (200, 50));
        assert_eq!(Position::read(&now.bytes()), Some(now));
        assert_eq!(Position::read(&[0; 9]), None);
    }

    #[test]
    fn it_stands_still_under_traffic() {
        let (mut ours, mut theirs) = pair();
        let start = Position::of(&ours).unwrap();
        // It stays open: the end would count.
        let sender = std::thread::spawn(move || theirs.write_all(&vec![7; 8 << 20]).map(|()| theirs));
        let mut taken = 0;
        let mut buffer = vec![0; 100_000];
        while taken < 8 << 20 {
            taken += ours.read(&mut buffer).unwrap() as u64;
            let now = Position::of(&ours).unwrap();
            assert_eq!((now.taken - start.taken, now.given), (taken, start.given));
        }
        sender.join().unwrap().unwrap();
    }

    #[test]
    fn other_sockets_have_none() {
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        Position::of(&a).unwrap_err();
    }
}
