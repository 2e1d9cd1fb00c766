//! The API while no worker is started any more: whoever asks hears why, instead of waiting for ever.

use super::{API_PORTS, API_SOCKETS};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;

/// A client that has not asked by then hears nothing.
const PATIENCE: Duration = Duration::from_millis(200);

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
        let (mut client, _) = UnixListener::from(listener).accept()?;
        client.set_nonblocking(false)?;
        client.set_read_timeout(Some(PATIENCE))?;
        client.set_write_timeout(Some(PATIENCE))?;
        refuse(&mut client, why)
    } else {
        let (mut client, _) = TcpListener::from(listener).accept()?;
        client.set_nonblocking(false)?;
        client.set_read_timeout(Some(PATIENCE))?;
        client.set_write_timeout(Some(PATIENCE))?;
        refuse(&mut client, why)
    }
}

/// Hears the request's head, and says no.
fn refuse(client: &mut (impl Read + Write), why: &str) -> io::Result<()> {
    let (mut head, mut piece) = (Vec::new(), [0; 4096]);
    while head.len() < 64 << 10 && !head.windows(4).any(|w| w == b"\r\n\r\n") {
        match client.read(&mut piece)? {
            0 => break,
            n => head.extend_from_slice(&piece[..n]),
        }
    }
    let body = serde_json::json!({ "error": why }).to_string();
    let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n";
    client.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    struct Client(Cursor<Vec<u8>>, Vec<u8>);
    impl Read for Client {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }
    impl Write for Client {
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
            let mut client = Client(Cursor::new(asked.into()), Vec::new());
            refuse(&mut client, "it \"crashed\"").unwrap();
            let said = String::from_utf8(client.1).unwrap();
            assert!(
                said.starts_with("HTTP/1.1 503 ") && said.ends_with("\r\n\r\n{\"error\":\"it \\\"crashed\\\"\"}"),
                "{said}"
            );
        }
    }
}
