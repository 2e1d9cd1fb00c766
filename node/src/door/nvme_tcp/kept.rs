//! Connections that go to another process while their hosts use them: each is held by the keeper as its socket and the state of its session,
//! and each drive's controllers as the state of its associations.
//!
//! ```text
//!   leave:  drive has begun nothing of a connection ─► session.save ─► hold(socket, state)      Subsystem::associations ─► hold
//!   resume: Subsystem::resume_associations ─► each connection: claim its queue, session.restore ─► the rest is dropped, as if it had been lost
//! ```
//! A connection that cannot be carried (the host broke the protocol, commands that did not end in time) ends with the process,
//! and its host connects again.

use super::conn::{Conn, Queue};
use super::{Door, NOBODY};
use crate::door::{Cx, Place};
use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use weir_controller::{Subsystem, Tag};
use weir_session::nvme_tcp::Connection;
use weir_sys::crc::Crc32c;
use weir_sys::keep::{self, Keep};
use weir_units::Nanos;

/// Names of connections: `SHARD:PLACE CNTLID QID NQN` follows, or `SHARD:PLACE` where it is no queue yet.
const CONNECTIONS: &str = "passing:nvme-tcp-connection:";
/// Names of a drive's associations: its NQN follows.
const ASSOCIATIONS: &str = "passing:nvme-tcp-associations:";

/// A connection on its way to another process.
struct Carried {
    socket: OwnedFd,
    session: Vec<u8>,
    /// The drive's place in its shard, CNTLID and QID.
    queue: Option<(u32, u16, u16)>,
}

/// What a shard is to go on with.
#[derive(Default)]
pub struct Kept {
    connections: Vec<Carried>,
    /// By the drive's place; nothing where the drive has them already.
    associations: BTreeMap<u32, Option<Vec<u8>>>,
}

/// What was held of the hosts of drives, by NQN.
pub struct Associations(Vec<(String, Option<Vec<u8>>)>);

impl Associations {
    /// Takes them.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn take(keep: &Keep) -> io::Result<Self> {
        let read = |(name, fds): (String, Vec<OwnedFd>)| {
            let bytes = fds.into_iter().next().map(keep::contents).transpose()?;
            Ok((name[ASSOCIATIONS.len()..].to_owned(), bytes))
        };
        keep.take_all(ASSOCIATIONS).into_iter().map(read).collect::<io::Result<_>>().map(Self)
    }

    /// Gives a drive its own, before anybody else can have the identifiers of their controllers.
    pub fn resume(&mut self, machine: &mut Subsystem, now: Nanos) {
        let own = self.0.iter_mut().find(|(nqn, _)| *nqn == machine.config().subnqn);
        if let Some(bytes) = own.and_then(|(_, bytes)| bytes.take()) {
            go_on(machine, now, &bytes);
        }
    }
}

fn go_on(machine: &mut Subsystem, now: Nanos, bytes: &[u8]) {
    if let Err(e) = machine.resume_associations(now, bytes) {
        tracing::error!(nqn = machine.config().subnqn, "the controllers of hosts cannot be taken over: {e}");
    }
}

/// What was held for the doors, by shard. The keeper has let go of it: whatever happens from here on happens once.
///
/// # Errors
/// Something cannot be read, or the keeper does not listen.
pub fn take(
    keep: &Keep,
    associations: Associations,
    find: impl Fn(&str) -> Option<Place>,
) -> io::Result<BTreeMap<u32, Kept>> {
    let mut all: BTreeMap<u32, Kept> = BTreeMap::new();
    for (nqn, bytes) in associations.0 {
        keep.release(&format!("{ASSOCIATIONS}{nqn}"))?;
        if let Some(place) = find(&nqn) {
            all.entry(place.shard).or_default().associations.insert(place.drive, bytes);
        }
    }
    for (name, fds) in keep.take_all(CONNECTIONS) {
        keep.release(&name)?;
        let mut words = name.splitn(4, ' ').skip(1);
        let queue = match (words.next(), words.next(), words.next()) {
            (Some(cntlid), Some(qid), Some(nqn)) => {
                let numbers = cntlid.parse::<u16>().ok().zip(qid.parse::<u16>().ok());
                // A drive that is not exported any more: its connections end.
                let (Some((cntlid, qid)), Some(place)) = (numbers, find(nqn)) else { continue };
                Some((place, cntlid, qid))
            }
            _ => None,
        };
        let mut fds = fds.into_iter();
        let (Some(socket), Some(session)) = (fds.next(), fds.next()) else { continue };
        let shard = queue.map_or(0, |(place, ..)| place.shard);
        let queue = queue.map(|(place, cntlid, qid)| (place.drive, cntlid, qid));
        all.entry(shard).or_default().connections.push(Carried { socket, session: keep::contents(session)?, queue });
    }
    Ok(all)
}

impl Door {
    /// Has the keeper hold every connection that can be carried, and what their drives know of them and those of `others`, whose hosts
    /// go on by another door and may have reservations. Nothing is done with the connections any more.
    pub fn leave(&mut self, others: Vec<u32>, cx: &mut Cx) {
        if !cx.keep.is_kept() {
            return;
        }
        let mut drives = others;
        for at in 0..self.conns.len() as u32 {
            let Some(conn) = &mut self.conns[at as usize] else { continue };
            match carry(at, conn, cx) {
                Ok(Some(queue)) => drives.extend(queue.map(|q| q.drive)),
                Ok(None) => {
                    tracing::warn!(peer = %conn.peer, "the connection cannot be handed over; its host connects again")
                }
                Err(e) => tracing::error!(peer = %conn.peer, "the connection cannot be handed over: {e}"),
            }
        }
        drives.sort_unstable();
        drives.dedup();
        for drive in drives {
            let machine = cx.drives.get(drive);
            let (name, bytes) = (format!("{ASSOCIATIONS}{}", machine.config().subnqn), machine.associations(cx.now));
            let held = keep::sealed("associations", &bytes).and_then(|file| cx.keep.hold(&name, &[file.as_fd()]));
            if let Err(e) = held {
                tracing::error!("{name}: cannot be handed over: {e}");
            }
        }
    }

    /// Goes on with what another process has left.
    pub fn resume(&mut self, kept: Kept, cx: &mut Cx) {
        for (drive, bytes) in &kept.associations {
            if let Some(bytes) = bytes {
                go_on(cx.drives.get(*drive), cx.now, bytes);
            }
        }
        for carried in kept.connections {
            if let Err(e) = self.take_over(carried, cx) {
                tracing::warn!("a connection cannot be taken over; its host connects again: {e}");
            }
        }
        for drive in kept.associations.keys() {
            cx.drives.get(*drive).drop_unclaimed(cx.now);
        }
    }

    fn take_over(&mut self, carried: Carried, cx: &mut Cx) -> Result<(), String> {
        let Carried { socket, session, queue } = carried;
        let stream = TcpStream::from(socket);
        let peer = stream.peer_addr().map_err(|e| e.to_string())?;
        let tenant = match queue {
            Some((drive, cntlid, _)) => {
                let controllers = cx.drives.get(drive).controllers();
                let host = controllers.iter().find(|c| c.id == cntlid).ok_or("its controller has gone")?;
                self.tenant_named(&host.host)
            }
            None => NOBODY,
        };
        let mut conn = Conn::new(stream, peer, cx.now, self.settings, tenant).map_err(|e| e.to_string())?;
        conn.session =
            Connection::<Crc32c>::restore(cx.now, &session, &mut self.budgets[tenant]).map_err(|e| e.to_string())?;
        let at = self.insert(conn, cx);
        if let Some((drive, cntlid, qid)) = queue {
            let handle = cx.drives.get(drive).claim(cntlid, qid, Self::owner_of(at));
            let Some(conn) = &mut self.conns[at as usize] else { return Ok(()) };
            match handle {
                Some(handle) => conn.queue = Some(Queue { drive, handle }),
                None => {
                    self.remove(at, cx);
                    return Err("its queue has gone".into());
                }
            }
        }
        self.received(at, cx);
        self.mark_dirty(at);
        Ok(())
    }
}

/// Holds one connection; the queue that it is. `None`: it cannot be carried.
fn carry(at: u32, conn: &mut Conn, cx: &mut Cx) -> io::Result<Option<Option<Queue>>> {
    let mut name = format!("{CONNECTIONS}{}:{at}", cx.shard);
    let mut begun: Vec<u16> = conn.session.executing().collect();
    if let Some(queue) = conn.queue {
        let machine = cx.drives.get(queue.drive);
        let (Some(with), Some((cntlid, qid))) = (machine.with_drive(queue.handle), machine.queue_id(queue.handle))
        else {
            return Ok(None);
        };
        let places = |tags: &[Tag]| tags.iter().map(|tag| tag.0 as u16).collect::<Vec<_>>();
        let (waiting, events) = (places(&with.waiting), places(&with.events));
        begun.retain(|tag| !waiting.contains(tag) && !events.contains(tag));
        conn.session.hand_back(&waiting);
        name += &format!(" {cntlid} {qid} {}", machine.config().subnqn);
    }
    if !begun.is_empty() {
        return Ok(None);
    }
    let Some(session) = conn.session.save(cx.now) else { return Ok(None) };
    let state = keep::sealed("connection", &session)?;
    cx.keep.hold(&name, &[conn.stream.as_fd(), state.as_fd()])?;
    Ok(Some(conn.queue))
}
