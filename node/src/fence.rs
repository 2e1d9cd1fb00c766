//! Keeps requests apart from those that a process before this one left at the drive behind `media = "nvme:TARGET"`. Nothing is sent before
//! those are over: a late write could undo a newer one.
//!
//! ```text
//!   the keeper holds its connections ─► shut down ─► read until the target closes them ─► over
//!   a connection was lost, or only the record is left ─► the target has ended its association ─► over
//! ```
//! A target closes a connection when it has read all that was sent and has nothing of it in flight: Weir's does ([`crate::door`]), Linux's
//! (`nvmet_sq_destroy` comes before the socket's end) and SPDK's (a queue pair waits for what is outstanding) do. A reset proves nothing,
//! since others than the target can send one. A target that has heard nothing for twice the keep alive timeout has ended the association
//! (NVMe base 2.0, 3.9; with traffic based keep alive, Linux begins a timer that runs out once more if there was a command meanwhile).
//!
//! The record is a file in the runtime folder. It is made when the drive is opened, and removed when the drive ends with nothing in
//! flight, so it stays where a node is killed together with its keeper. A restart of the machine removes it, and has ended all
//! connections.

use crate::config::{create_runtime_dir, runtime_dir};
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use weir_sys::keep::Keep;
use weir_units::Nanos;

/// Names of connections to the drives that are media; the drive's name follows.
const REMOTE: &str = "remote:";
/// What targets add to a timeout: they round it up, and end what is in flight.
const MARGIN: Nanos = Nanos::from_secs(1);

/// The drive whose requests are fenced, and where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// The drive's name in the configuration.
    pub drive: &'a str,
    /// Its NQN.
    pub nqn: &'a str,
    /// As the configuration has it.
    pub target: &'a str,
    /// The keep alive timeout of its association; none where that is 0.
    pub kato: Nanos,
}

/// Says to the next process that this one may have requests at a target.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    /// Its bytes, which no other process writes.
    text: String,
}

impl Record {
    fn place(link: &Link) -> PathBuf {
        let fnv = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        let text = link.nqn.bytes().chain([0]).chain(link.target.bytes());
        runtime_dir().join(format!("remote-{:016x}", text.fold(0xcbf2_9ce4_8422_2325, fnv)))
    }

    /// Makes it in place of another one; whether there was one.
    fn make(path: &Path, target: &str, now: Nanos) -> io::Result<(Self, bool)> {
        let was_there = path.exists();
        let text = format!("{} {}\n{target}\n", std::process::id(), now.get());
        fs::write(path, &text)?;
        Ok((Self { path: path.into(), text }, was_there))
    }

    /// This process has nothing at the target. A record of another one stays.
    pub fn end(&self) {
        if fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            // One that stays costs the next start its wait.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Fence {
    target: String,
    /// Connections of the process before that its target has not closed.
    old: Vec<TcpStream>,
    /// The target's end of all connections is to be seen.
    is_provable: bool,
    /// When the target has ended the association in any case.
    over_at: Nanos,
    keep: Keep,
    name: String,
    own: Vec<OwnedFd>,
}

impl Fence {
    /// Fences what is sent on the connections in `own` from what another process has left; no fence where nothing can be left.
    ///
    /// # Errors
    /// The keeper does not listen.
    pub fn new(link: Link, own: Vec<OwnedFd>, keep: &Keep, now: Nanos) -> io::Result<(Option<Self>, Option<Record>)> {
        if own.is_empty() {
            return Ok((None, None));
        }
        let name = format!("{REMOTE}{}", link.drive);
        let old: Vec<TcpStream> = keep.take(&name).unwrap_or_default().into_iter().map(TcpStream::from).collect();
        let all: Vec<BorrowedFd> = own.iter().map(AsFd::as_fd).chain(old.iter().map(AsFd::as_fd)).collect();
        // The next process waits for them as well, if this one dies before they are closed.
        keep.hold(&name, &all)?;
        let made = create_runtime_dir(&runtime_dir())
            .and_then(|()| Record::make(&Record::place(&link), link.target, now))
            .inspect_err(|e| {
                let Link { drive, target, .. } = link;
                tracing::warn!(
                    drive,
                    "no record of requests at {target}: {e}; after a kill of the whole node they are not waited for"
                );
            });
        let (record, was_there) = made.map_or((None, false), |(record, was_there)| (Some(record), was_there));
        // A worker that held nothing has had connections all the same.
        if old.is_empty() && !was_there && keep.generation() == 0 {
            return Ok((None, record));
        }
        let limit = Nanos(link.kato.get().saturating_mul(2)).saturating_add(MARGIN);
        if old.is_empty() {
            tracing::warn!(
                drive = link.drive,
                "a process before this one may have requests at {}: the drive waits {:.0} s, until their association has ended",
                link.target,
                limit.as_secs_f64()
            );
        }
        let over_at = now.saturating_add(limit);
        Ok((Some(Self::around(link.target, name, old, own, keep, over_at)), record))
    }

    fn around(target: &str, name: String, old: Vec<TcpStream>, own: Vec<OwnedFd>, keep: &Keep, over_at: Nanos) -> Self {
        // One that was lost before has no end any more that could be shut down.
        let is_lost =
            |socket: &TcpStream| socket.set_nonblocking(true).and_then(|()| socket.shutdown(Shutdown::Write)).is_err();
        let lost = old.iter().filter(|socket| is_lost(socket)).count();
        let is_provable = !old.is_empty() && lost == 0;
        Self { target: target.into(), old, is_provable, over_at, keep: keep.clone(), name, own }
    }

    /// Whether requests may be sent.
    pub fn is_over(&mut self, now: Nanos) -> bool {
        let Self { old, is_provable, .. } = self;
        old.retain_mut(|socket| match is_closed(socket) {
            Ok(closed) => !closed,
            Err(_) => {
                *is_provable = false;
                false
            }
        });
        let is_proved = self.is_provable && self.old.is_empty();
        if !is_proved && now < self.over_at {
            return false;
        }
        if !is_proved {
            tracing::warn!(
                "{}: the association of the process before has ended by its keep alive timeout",
                self.target
            );
        }
        let own: Vec<BorrowedFd> = self.own.iter().map(AsFd::as_fd).collect();
        if let Err(e) = self.keep.hold(&self.name, &own) {
            tracing::warn!("{}: the keeper does not listen: {e}", self.name);
        }
        true
    }
}

/// Whether the other side has closed a connection. What it still sends is for nobody.
fn is_closed(socket: &mut TcpStream) -> io::Result<bool> {
    let mut bytes = [0; 4096];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    const OVER_AT: Nanos = Nanos::from_secs(31);

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (host, listener.accept().unwrap().0)
    }

    fn fence(old: Vec<TcpStream>) -> Fence {
        Fence::around("t", "remote:a".into(), old, Vec::new(), &Keep::none(), OVER_AT)
    }

    fn only_the_time_ends(mut fence: Fence) {
        assert!(!fence.is_over(Nanos(OVER_AT.get() - 1)));
        assert!(fence.is_over(OVER_AT));
    }

    #[test]
    fn it_is_over_when_the_target_has_closed_all_connections() {
        let ((admin, mut target), (io, mut other)) = (pair(), pair());
        let mut fence = fence(vec![admin, io]);
        assert!(!fence.is_over(Nanos(1)));
        // The target has seen the end, and answers what was on its way.
        assert_eq!(target.read(&mut [0; 8]).unwrap(), 0);
        target.write_all(&[7; 100]).unwrap();
        assert!(!fence.is_over(Nanos(1)));
        drop(target);
        assert!(!fence.is_over(Nanos(1)), "the other one is open");
        assert_eq!(other.read(&mut [0; 8]).unwrap(), 0);
        drop(other);
        while !fence.is_over(Nanos(2)) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_target_that_closes_nothing_ends_the_association_by_its_timer() {
        let (admin, _target) = pair();
        only_the_time_ends(fence(vec![admin]));
        only_the_time_ends(fence(Vec::new()));
    }

    /// Unread bytes at the close make it a reset.
    #[test]
    fn a_reset_proves_nothing() {
        let (mut reset, target) = pair();
        reset.write_all(&[1; 100]).unwrap();
        while target.peek(&mut [0; 1]).unwrap() == 0 {}
        let fence = fence(vec![reset]);
        drop(target);
        only_the_time_ends(fence);
        // The process before has taken the error.
        let (mut lost, target) = pair();
        lost.write_all(&[1; 100]).unwrap();
        while target.peek(&mut [0; 1]).unwrap() == 0 {}
        drop(target);
        assert_eq!(lost.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        only_the_time_ends(self::fence(vec![lost]));
    }

    #[test]
    fn a_record_ends_with_its_own_process_only() {
        let path = std::env::temp_dir().join(format!("weir-remote-record-{}", std::process::id()));
        let (first, was_there) = Record::make(&path, "t", Nanos(1)).unwrap();
        assert!(!was_there);
        let (second, was_there) = Record::make(&path, "t", Nanos(2)).unwrap();
        assert!(was_there);
        first.end();
        assert!(path.exists(), "the second process has requests there");
        second.end();
        assert!(!path.exists());
    }
}
