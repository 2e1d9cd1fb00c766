//! Keeps requests apart from those of an association of before, at the drive behind `media = "nvme:TARGET"`: of a process before this one, or
//! of this one before it connected again. Nothing is sent before those are over: a late write could undo a newer one.
//!
//! ```text
//!   the target is asked about each association ──► it has none of them ─► over          ([`Inquiry`], on a thread of its own)
//!                                              └─► it does not say clearly:
//!   the keeper holds the connections ─► shut down ─► read until the target closes them ─► over
//!   a connection was lost, or only the record is left ─► the target has ended its association ─► over
//! ```
//! A target has a controller for as long as a queue of it has something in flight: Linux's and SPDK's answer so
//! ([`weir_driver::nvme_tcp::association_probe`]), and Weir's, which has no controller for a connection that has gone, answers that it is busy. One
//! that does not tell closes a connection when it has read all that was sent and has nothing of it in flight. That proves nothing where
//! it closes first: Linux's closes all connections when the keep alive timer runs out, whatever is in flight. A reset proves nothing, since
//! others than the target can send one. A target that has heard nothing for twice the keep alive timeout has ended the association (NVMe
//! base 2.0, 3.9; with traffic based keep alive, Linux begins a timer that runs out once more if there was a command meanwhile), but its
//! media may still have writes.
//!
//! The [`Record`] names the associations to the next process. It is made when the drive is opened, and removed when the drive ends with
//! nothing in flight, so it stays where a node is killed together with its keeper.

mod inquiry;
mod record;

use crate::target::Identity;
use inquiry::Inquiry;
pub use record::Record;
use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use weir_driver::nvme_tcp::Association;
use weir_sys::keeper_channel::Keep;
use weir_units::Nanos;

/// Names of connections to the drives that are media; the drive's name follows.
const REMOTE: &str = "remote:";
/// What targets add to a timeout: they round it up, and end what is in flight.
const MARGIN: Nanos = Nanos::from_secs(1);
/// For how long a target is believed that it has an association whose keep alive timer has run out. Longer than media take for a write;
/// another host's association may have got the identifier, which not every target tells.
const LIVES_AT_MOST: Nanos = Nanos::from_secs(300);

/// The drive whose requests are fenced, and where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// The drive's name in the configuration.
    pub drive: &'a str,
    /// Its NQN.
    pub nqn: &'a str,
    /// As the configuration has it.
    pub target: &'a str,
    /// Its association.
    pub association: Identity,
}

impl Link<'_> {
    /// How long its target needs to see that its host has gone.
    fn limit(&self) -> Nanos {
        Nanos(self.association.kato.get().saturating_mul(2)).saturating_add(MARGIN)
    }

    fn keep_name(&self) -> String {
        format!("{REMOTE}{}", self.drive)
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
    /// What is asked for, and who asks.
    earlier: Vec<Identity>,
    inquiry: Option<Inquiry>,
    is_told: bool,
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
        let name = link.keep_name();
        let old: Vec<TcpStream> = keep.take(&name).unwrap_or_default().into_iter().map(TcpStream::from).collect();
        let all: Vec<BorrowedFd> = own.iter().map(AsFd::as_fd).chain(old.iter().map(AsFd::as_fd)).collect();
        // The next process waits for them as well, if this one dies before they are closed.
        keep.hold(&name, &all)?;
        let made = Record::of(&link, now).inspect_err(|e| {
            let Link { drive, target, .. } = link;
            tracing::warn!(
                drive,
                "no record of requests at {target}: {e}; after a kill of the whole node they are not waited for"
            );
        });
        let (record, left) =
            made.map_or_else(|_| (None, record::Earlier::default()), |(record, left)| (Some(record), left));
        // A worker that held nothing has had connections all the same.
        if old.is_empty() && !left.is_there && keep.generation() == 0 {
            return Ok((None, record));
        }
        let identity = |cntlid| Identity { cntlid, number: 0, kato: link.association.kato };
        let earlier: Option<Vec<Identity>> = left.associations.map(|ids| ids.into_iter().map(identity).collect());
        if old.is_empty() && earlier.is_none() {
            tracing::warn!(
                drive = link.drive,
                "a process before this one may have requests at {}: the drive waits {:.0} s, until their association has ended",
                link.target,
                link.limit().as_secs_f64()
            );
        }
        Ok((Some(Self::around(link, old, own, keep, now).asking(earlier.unwrap_or_default())), record))
    }

    /// Fences what is sent on the connections in `own` from what this process has left in associations that are lost.
    ///
    /// # Errors
    /// The keeper does not listen.
    pub fn again(link: Link, earlier: Vec<Identity>, own: Vec<OwnedFd>, keep: &Keep, now: Nanos) -> io::Result<Self> {
        hold(&link, &own, keep)?;
        Ok(Self::around(link, Vec::new(), own, keep, now).asking(earlier))
    }

    /// Fences what is sent on other connections, in place of those that were lost before it was over: nothing was sent over them, so the
    /// fence is against the same associations, and over at the same time.
    ///
    /// # Errors
    /// The keeper does not listen; the fence is as it was.
    pub fn guard(&mut self, own: Vec<OwnedFd>) -> io::Result<()> {
        let all: Vec<BorrowedFd> = own.iter().map(AsFd::as_fd).chain(self.old.iter().map(AsFd::as_fd)).collect();
        self.keep.hold(&self.name, &all)?;
        self.own = own;
        Ok(())
    }

    fn around(link: Link, old: Vec<TcpStream>, own: Vec<OwnedFd>, keep: &Keep, now: Nanos) -> Self {
        // One that has ended before has no end any more that would tell anything.
        let is_lost = |socket: &mut TcpStream| {
            let is_open = socket.set_nonblocking(true).is_ok() && matches!(is_closed(socket), Ok(false));
            !is_open || socket.shutdown(Shutdown::Write).is_err()
        };
        let mut old = old;
        let lost = old.iter_mut().map(is_lost).filter(|is_lost| *is_lost).count();
        let is_provable = !old.is_empty() && lost == 0;
        Self {
            target: link.target.into(),
            old,
            is_provable,
            over_at: now.saturating_add(link.limit()),
            earlier: Vec::new(),
            inquiry: None,
            is_told: false,
            keep: keep.clone(),
            name: link.keep_name(),
            own,
        }
    }

    fn asking(mut self, earlier: Vec<Identity>) -> Self {
        if !earlier.is_empty() {
            self.inquiry = Inquiry::start(&self.target, earlier.clone());
        }
        self.earlier = earlier;
        self
    }

    /// The associations of before, as far as they are known.
    pub fn earlier(&self) -> &[Identity] {
        &self.earlier
    }

    /// Whether requests may be sent.
    pub fn is_over(&mut self, now: Nanos) -> bool {
        let answer = self.inquiry.as_ref().and_then(Inquiry::answer);
        if !self.is_over_by(answer, now) {
            return false;
        }
        let own: Vec<BorrowedFd> = self.own.iter().map(AsFd::as_fd).collect();
        if let Err(e) = self.keep.hold(&self.name, &own) {
            tracing::warn!("{}: the keeper does not listen: {e}", self.name);
        }
        true
    }

    fn is_over_by(&mut self, answer: Option<Association>, now: Nanos) -> bool {
        let is_closed = self.are_closed();
        let is_late = now >= self.over_at;
        match answer {
            Some(Association::Ended) => true,
            Some(Association::Lives) if now < self.over_at.saturating_add(LIVES_AT_MOST) => {
                if is_late {
                    self.tell(
                        "still has an association of before, with requests that it may carry out; the drive waits",
                    );
                }
                false
            }
            Some(Association::Lives) => {
                tracing::warn!(
                    "{}: the association of before is there, long after it should have ended; the drive goes on",
                    self.target
                );
                true
            }
            // A target that is being asked has been heard first.
            Some(Association::Unclear) if is_closed => true,
            None if is_closed && self.inquiry.is_none() => true,
            None | Some(Association::Unclear) if is_late => {
                tracing::warn!("{}: the association of before has ended by its keep alive timeout", self.target);
                true
            }
            None | Some(Association::Unclear) => false,
        }
    }

    fn tell(&mut self, what: &str) {
        if !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!("{} {what}", self.target);
        }
    }

    /// Whether the target has closed all connections, after this side.
    fn are_closed(&mut self) -> bool {
        let Self { old, is_provable, .. } = self;
        old.retain_mut(|socket| match is_closed(socket) {
            Ok(closed) => !closed,
            Err(_) => {
                *is_provable = false;
                false
            }
        });
        self.is_provable && self.old.is_empty()
    }
}

/// Has the keeper hold the connections of a drive that needs no fence.
///
/// # Errors
/// The keeper does not listen.
pub fn hold(link: &Link, own: &[OwnedFd], keep: &Keep) -> io::Result<()> {
    keep.hold(&link.keep_name(), &own.iter().map(AsFd::as_fd).collect::<Vec<_>>())
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
        let association = Identity { cntlid: 1, number: 1, kato: Nanos::from_secs(15) };
        let link = Link { drive: "a", nqn: "nqn.a", target: "t", association };
        Fence::around(link, old, Vec::new(), &Keep::none(), Nanos(0))
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

    /// A target that ends every connection while it is fenced does not put the end off, nor is what was there before forgotten.
    #[test]
    fn other_connections_leave_the_fence_as_it_is() {
        let ((admin, _target), (own, _other)) = (pair(), pair());
        let mut fence = fence(vec![admin]);
        for _ in 0..3 {
            fence.guard(vec![own.try_clone().unwrap().into()]).unwrap();
            assert_eq!((fence.old.len(), fence.own.len(), fence.is_provable), (1, 1, true));
        }
        only_the_time_ends(fence);
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

    /// As Linux's target does when its keep alive timer runs out, with commands in flight.
    #[test]
    fn a_target_that_closes_first_proves_nothing() {
        let (admin, target) = pair();
        drop(target);
        while admin.peek(&mut [0; 1]).unwrap() != 0 {}
        only_the_time_ends(fence(vec![admin]));
    }

    #[test]
    fn a_target_that_has_the_association_is_waited_for_whatever_else_is_seen() {
        let (admin, target) = pair();
        let mut fence = fence(vec![admin]);
        drop(target);
        while !fence.are_closed() {
            std::thread::yield_now();
        }
        let lives = Some(Association::Lives);
        assert!(!fence.is_over_by(lives, Nanos(1)), "a proxy may have closed it");
        assert!(!fence.is_over_by(lives, Nanos(OVER_AT.get() * 2)), "its media is slow");
        assert!(fence.is_over_by(Some(Association::Ended), Nanos(1)));
        assert!(fence.is_over_by(lives, OVER_AT.saturating_add(LIVES_AT_MOST)));
    }

    #[test]
    fn a_target_that_has_no_such_association_ends_the_wait() {
        let mut fence = fence(Vec::new());
        assert!(!fence.is_over_by(None, Nanos(1)));
        assert!(!fence.is_over_by(Some(Association::Unclear), Nanos(1)));
        assert!(fence.is_over_by(Some(Association::Ended), Nanos(1)));
        assert!(fence.is_over_by(Some(Association::Unclear), OVER_AT));
    }
}
