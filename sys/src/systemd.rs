//! What a process tells systemd (sd_notify(3)), and what systemd keeps for it: the file-descriptor store.
//!
//! ```text
//!   NOTIFY_SOCKET ◄── "READY=1" │ "STOPPING=1" │ "FDSTORE=1\nFDNAME=…" + descriptor │ "FDSTOREREMOVE=1\nFDNAME=…"
//!   after the death of the process, the next one: LISTEN_FDS descriptors from 3 on, LISTEN_FDNAMES
//! ```
//! A name may have anything but a colon and control characters, and at most 255 bytes: ours have their odd bytes as `%XX`, and behind `#`
//! which of the descriptors under that name it is.

use crate::transport::fds;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// How long one who does not listen is waited for.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest name that systemd takes.
const NAME_MAX: usize = 255;
/// Where descriptors begin (SD_LISTEN_FDS_START).
const FIRST: RawFd = 3;
/// Our own variables: they are not for those whom the process starts.
pub const VARIABLES: [&str; 4] = ["NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// The way to systemd; there may be none.
#[derive(Debug, Default)]
pub struct Notifier(Option<OwnedFd>);

impl Notifier {
    /// By `NOTIFY_SOCKET`, which is a path, or `@` and an abstract name.
    ///
    /// # Errors
    /// The variable is there, and nobody listens.
    pub fn from_environment() -> io::Result<Self> {
        let Some(path) = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Ok(Self(None));
        };
        Self::to(path.as_encoded_bytes())
    }

    fn to(path: &[u8]) -> io::Result<Self> {
        let address = match path.split_first() {
            Some((b'@', name)) => SocketAddrUnix::new_abstract_name(name)?,
            _ => SocketAddrUnix::new(path)?,
        };
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        // A queue of datagrams is short, and what is not heard is lost.
        set_socket_timeout(&socket, Timeout::Send, Some(SEND_TIMEOUT))?;
        connect(&socket, &address)?;
        Ok(Self(Some(socket)))
    }

    /// Whether anybody is told anything.
    pub fn is_there(&self) -> bool {
        self.0.is_some()
    }

    fn say(&self, text: &str, with: &[BorrowedFd]) {
        if let Some(socket) = &self.0 {
            if let Err(e) = fds::send(socket, text.as_bytes(), with) {
                tracing::warn!("systemd does not hear {:?}: {e}", text.lines().next().unwrap_or_default());
            }
        }
    }

    /// The service is up.
    pub fn ready(&self) {
        self.say("READY=1", &[]);
    }

    /// The service is about to end, as it was asked to.
    pub fn stopping(&self) {
        self.say("STOPPING=1", &[]);
    }

    /// Has these kept under that name beyond the life of the process, in place of what was.
    pub fn store(&self, name: &str, fds: &[BorrowedFd]) {
        if self.0.is_none() {
            return;
        }
        for (i, fd) in fds.iter().enumerate() {
            match encode(name, i) {
                Some(name) => {
                    self.say(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[]);
                    self.say(&format!("FDSTORE=1\nFDNAME={name}"), &[*fd]);
                }
                None => tracing::warn!("{name}: a name too long for systemd: it is lost if the keeper is killed"),
            }
        }
    }

    /// So many under that name are not to be kept any more.
    pub fn remove(&self, name: &str, count: usize) {
        for name in (0..count).filter_map(|i| encode(name, i)) {
            self.say(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[]);
        }
    }
}

/// What systemd has kept of the process before this one, by name. Once; who calls it has no other use for descriptors from 3 on.
pub fn stored() -> BTreeMap<String, Vec<OwnedFd>> {
    let of = |name: &str| std::env::var(name).ok();
    let ours = of("LISTEN_PID").and_then(|pid| pid.parse().ok()) == Some(std::process::id());
    let count = of("LISTEN_FDS").and_then(|n| n.parse::<RawFd>().ok()).filter(|_| ours).unwrap_or(0);
    let names = of("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut all: BTreeMap<String, BTreeMap<usize, OwnedFd>> = BTreeMap::new();
    for number in FIRST..FIRST.saturating_add(count.max(0)) {
        // SAFETY: systemd gave this process that descriptor, so says its environment, and nobody else has been told of it. Should there be
        // none of that number, the next line finds out.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        if rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC).is_err() {
            continue;
        }
        // SAFETY: as above; it is open, and this is the one place that takes it.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        if let Some((name, at)) = names.next().and_then(decode) {
            all.entry(name).or_default().insert(at, fd);
        }
    }
    all.into_iter().map(|(name, fds)| (name, fds.into_values().collect())).collect()
}

fn encode(name: &str, at: usize) -> Option<String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-/ ".contains(&b);
    let byte = |b: u8| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    let text: String = name.bytes().map(byte).collect::<String>() + &format!("#{at}");
    (text.len() <= NAME_MAX).then_some(text)
}

fn decode(text: &str) -> Option<(String, usize)> {
    let (text, at) = text.rsplit_once('#')?;
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((b, more)) = rest.split_first() {
        if *b == b'%' {
            let hex = std::str::from_utf8(more.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(hex, 16).ok()?);
            rest = &more[2..];
        } else {
            bytes.push(*b);
            rest = more;
        }
    }
    Some((String::from_utf8(bytes).ok()?, at.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn names_come_back() {
        for name in ["ram:ssd0", "vhost-user:/run/weir/a b.sock", "", "ü%3A#1", "a\nb"] {
            let text = encode(name, 3).unwrap();
            assert!(!text.contains(':') && text.bytes().all(|b| (0x20..0x7f).contains(&b)), "{text}");
            assert_eq!(decode(&text), Some((name.to_owned(), 3)));
        }
        assert_eq!(encode(&"x".repeat(254), 0), None);
        for bad in ["connection", "stored", "a#x", "%4#0", "%zz#0", "%ff#0"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn systemd_hears_what_is_said() {
        let path = std::env::temp_dir().join(format!("weir-notify-{}", std::process::id()));
        let systemd = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::to(path.as_os_str().as_encoded_bytes()).unwrap();
        let fd = fds::eventfd().unwrap();
        notifier.ready();
        notifier.store("ram:a", &[fd.as_fd()]);
        notifier.remove("ram:a", 1);
        notifier.stopping();
        let expected = [
            ("READY=1", 0),
            ("FDSTOREREMOVE=1\nFDNAME=ram%3Aa#0", 0),
            ("FDSTORE=1\nFDNAME=ram%3Aa#0", 1),
            ("FDSTOREREMOVE=1\nFDNAME=ram%3Aa#0", 0),
            ("STOPPING=1", 0),
        ];
        for (text, count) in expected {
            let (mut bytes, mut got) = ([0; 256], Vec::new());
            let n = fds::receive(&systemd, &mut bytes, &mut got).unwrap();
            assert_eq!((std::str::from_utf8(&bytes[..n]).unwrap(), got.len()), (text, count));
        }
        std::fs::remove_file(path).unwrap();
        let alone = Notifier::default();
        alone.ready();
        assert!(!alone.is_there() && notifier.is_there());
    }
}
