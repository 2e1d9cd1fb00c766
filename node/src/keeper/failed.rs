//! The API while no worker is started any more: whoever asks hears why, instead of waiting for ever.

use crate::held_names::{API_PORTS, API_SOCKETS};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// How long a client may take for all it says and hears: the keeper has nobody else for its signals.
const API_CLIENT_TIMEOUT: Duration = Duration::from_millis(200);

/// The listeners of the API among what is held.
pub(super) fn listeners(held: &BTreeMap<String, Vec<OwnedFd>>) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
    let of_api = |name: &str| name.starts_with(API_SOCKETS) || name.starts_with(API_PORTS);
    held.iter()
        .filter(move |(name, _)| of_api(name))
        .filter_map(|(name, fds)| Some((name.as_str(), fds.first()?.as_fd())))
}

/// Answers one client of that listener.
///
/// # Errors
/// None is there, or it has gone.
pub(super) fn answer(name: &str, listener: BorrowedFd, why: &str) -> io::Result<()> {
    let listener = listener.try_clone_to_owned()?;
    if name.starts_with(API_SOCKETS) {
        let (mut client, _) = accepted(UnixListener::from(listener).accept())?;
        client.set_nonblocking(false)?;
        refuse(&mut client, why)
    } else {
        let (mut client, _) = accepted(TcpListener::from(listener).accept())?;
        client.set_nonblocking(false)?;
        refuse(&mut client, why)
    }
}

/// Descriptors may be short: the client stays in the queue, and would be asked for again at once.
fn accepted<T>(result: io::Result<T>) -> io::Result<T> {
    if result.as_ref().is_err_and(|e| e.kind() != io::ErrorKind::WouldBlock) {
        std::thread::sleep(API_CLIENT_TIMEOUT);
    }
    result
}

/// Whose reads and writes may be bounded in time, each.
trait Client: Read + Write {
    fn within(&self, left: Duration) -> io::Result<()>;
}

impl Client for UnixStream {
    fn within(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

impl Client for TcpStream {
    fn within(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

/// Hears the request's head, and says no; all of it within [`API_CLIENT_TIMEOUT`].
fn refuse(client: &mut impl Client, why: &str) -> io::Result<()> {
    let end = Instant::now() + API_CLIENT_TIMEOUT;
    let left = || match end.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(left),
    };
    let (mut head, mut piece) = (Vec::new(), [0; 4096]);
    while head.len() < 64 << 10 && !head.windows(4).any(|w| w == b"\r\n\r\n") {
        client.within(left()?)?;
        match client.read(&mut piece)? {
            0 => break,
            n => head.extend_from_slice(&piece[..n]),
        }
    }
    let body = serde_json::json!({ "error": why }).to_string();
    let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n";
    client.within(left()?)?;
    client.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    struct Script(Cursor<Vec<u8>>, Vec<u8>);
    impl Client for Script {
        fn within(&self, _: Duration) -> io::Result<()> {
            Ok(())
        }
    }
    impl Read for Script {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }
    impl Write for Script {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            self.1.write(from)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn whoever_asks_hears_why() {
        for asked in ["GET /v1/status HTTP/1.1\r\n\r\n", "POST /v1/upgrade HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", ""]
        {
            let mut client = Script(Cursor::new(asked.into()), Vec::new());
            refuse(&mut client, "it \"crashed\"").unwrap();
            let said = String::from_utf8(client.1).unwrap();
            assert!(
                said.starts_with("HTTP/1.1 503 ") && said.ends_with("\r\n\r\n{\"error\":\"it \\\"crashed\\\"\"}"),
                "{said}"
            );
        }
    }

    /// One that never pauses for long, and never comes to an end.
    #[test]
    fn whoever_trickles_is_given_up() {
        struct Trickle;
        impl Client for Trickle {
            fn within(&self, left: Duration) -> io::Result<()> {
                assert!(!left.is_zero() && left <= API_CLIENT_TIMEOUT, "{left:?}");
                Ok(())
            }
        }
        impl Read for Trickle {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                std::thread::sleep(API_CLIENT_TIMEOUT / 20);
                into[0] = b'x';
                Ok(1)
            }
        }
        impl Write for Trickle {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                panic!("it has not asked")
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert_eq!(refuse(&mut Trickle, "why").unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
