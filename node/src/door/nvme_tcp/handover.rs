//! Connections that go to another process while their hosts use them: each is held by the keeper as its socket and the state of its session,
//! and each drive's controllers as the state of its associations.
//!
//! ```text
//!   leave:  drive has moved nothing of a connection ─► session.save ─► hold(socket, state, what is begun)      Subsystem::associations ─► hold
//!   resume: Subsystem::resume_associations ─► each connection: claim its queue, session.restore ─► the rest is dropped, as if it had been lost
//! ```
//! After the death of a worker there are those that were [at rest](super::idle_handover) instead. A connection that cannot be carried (the host
//! broke the protocol, commands that did not end in time) ends with the process, and its host connects again.

use super::conn::{Conn, Queue};
use super::{Door, NOBODY, idle_handover};
use crate::device::Drives;
use crate::directory::Place;
use crate::door::begun;
use crate::door::context::Cx;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use weir_controller::{Begun, Tag};
use weir_session::nvme_tcp::Connection;
use weir_sys::crc::Crc32c;
use weir_sys::keeper_channel::{self, Keep};
use weir_units::Nanos;

/// Names of connections: `SHARD:PLACE CNTLID QID NQN` follows, or `SHARD:PLACE` where it is no queue yet.
const CONNECTIONS: &str = "passing:nvme-tcp-connection:";
/// Names of a drive's associations: its NQN follows.
const ASSOCIATIONS: &str = "passing:nvme-tcp-associations:";

/// A connection on its way to another process.
struct Carried {
    socket: OwnedFd,
    session: Vec<u8>,
    /// What the drive had begun of it; a program before this one waited for that.
    begun: Vec<Begun>,
    /// The drive's place in its shard, CNTLID and QID.
    queue: Option<(u32, u16, u16)>,
}

/// What a shard is to go on with.
#[derive(Default)]
pub struct Kept {
    connections: Vec<Carried>,
    /// By the drive's place; nothing where the drive has them already.
    associations: BTreeMap<u32, Option<Saved>>,
}

/// The associations of a drive's hosts.
struct Saved {
    bytes: Vec<u8>,
    /// [`Device::possessions`](crate::device::Device::possessions) of the drive; a program before this one did not say.
    drive: Option<Vec<u8>>,
}

/// What was held of the hosts of drives and volumes, by NQN.
#[derive(Default)]
pub struct Associations(Vec<(String, Option<Saved>)>);

/// Those that are given to volumes as these come up.
pub type SharedAssociations = Arc<Mutex<Associations>>;

impl Associations {
    /// Takes them.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn take(keep: &Keep) -> io::Result<Self> {
        let read = |(name, fds): (String, Vec<OwnedFd>)| {
            let mut contents = fds.into_iter().map(keeper_channel::contents);
            let (bytes, drive) = (contents.next().transpose()?, contents.next().transpose()?);
            io::Result::Ok((name, bytes.map(|bytes| Saved { bytes, drive })))
        };
        let mut all: Vec<(String, Option<Saved>)> = Vec::new();
        // What was handed over before what was noted: of two the first counts.
        for prefix in [ASSOCIATIONS, idle_handover::ASSOCIATIONS] {
            for (name, saved) in keep.take_all(prefix).into_iter().map(read).collect::<io::Result<Vec<_>>>()? {
                let nqn = name[prefix.len()..].to_owned();
                if !all.iter().any(|(other, _)| *other == nqn) {
                    all.push((nqn, saved));
                }
            }
        }
        Ok(Self(all))
    }

    /// Gives a drive, or a volume, its own, before anybody else can have the identifiers of their controllers.
    pub fn resume(&mut self, drives: &mut Drives, drive: u32, now: Nanos) {
        let nqn = &drives.machine(drive).config().subnqn;
        let own = self.0.iter_mut().find(|(other, _)| other == nqn);
        if let Some(saved) = own.and_then(|(_, saved)| saved.take()) {
            go_on(drives, drive, now, &saved);
        }
    }
}

fn go_on(drives: &mut Drives, drive: u32, now: Nanos, saved: &Saved) {
    let possessions = drives.device(drive).possessions();
    let machine = drives.get(drive);
    let nqn = machine.config().subnqn.clone();
    if saved.drive.as_ref().is_some_and(|drive| *drive != possessions) {
        tracing::warn!(
            nqn,
            "the drive has lost what was written to it with the process before; its hosts connect again"
        );
    } else if let Err(e) = machine.resume_associations(now, &saved.bytes) {
        tracing::error!(nqn, "the controllers of hosts cannot be taken over: {e}");
    }
}

/// Has the keeper hold a drive's associations.
pub(super) fn hold(name: &str, drive: u32, cx: &mut Cx) -> io::Result<()> {
    let possessions = keeper_channel::sealed("drive", &cx.drives.device(drive).possessions())?;
    let bytes = cx.drives.get(drive).associations(cx.now);
    cx.keep.hold(name, &[keeper_channel::sealed("associations", &bytes)?.as_fd(), possessions.as_fd()])
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
    for (nqn, saved) in associations.0 {
        for prefix in [ASSOCIATIONS, idle_handover::ASSOCIATIONS] {
            keep.release(&format!("{prefix}{nqn}"))?;
        }
        if let Some(place) = find(&nqn) {
            all.entry(place.shard).or_default().associations.insert(place.drive, saved);
        }
    }
    let mut taken = BTreeSet::new();
    for (name, fds) in keep.take_all(CONNECTIONS).into_iter().chain(keep.take_all(idle_handover::CONNECTIONS)) {
        keep.release(&name)?;
        let is_noted = name.starts_with(idle_handover::CONNECTIONS);
        let own = name.trim_start_matches(if is_noted { idle_handover::CONNECTIONS } else { CONNECTIONS });
        if !taken.insert(own.to_owned()) {
            continue;
        }
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
        let mut session = keeper_channel::contents(session)?;
        let begun = fds.next().map(begun::contents).unwrap_or_default();
        if is_noted && !idle_handover::is_proved(&socket, &mut session) {
            tracing::info!("a connection was used since it was noted; its host connects again");
            let _ = TcpStream::from(socket).shutdown(std::net::Shutdown::Both);
            continue;
        }
        let shard = queue.map_or(0, |(place, ..)| place.shard);
        let queue = queue.map(|(place, cntlid, qid)| (place.drive, cntlid, qid));
        all.entry(shard).or_default().connections.push(Carried { socket, session, begun, queue });
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
        // Before what is handed over: of a connection there is one note.
        self.forget_notes(cx);
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
            let name = format!("{ASSOCIATIONS}{}", cx.drives.machine(drive).config().subnqn);
            if let Err(e) = hold(&name, drive, cx) {
                tracing::error!("{name}: cannot be handed over: {e}");
            }
        }
    }

    /// Goes on with what another process has left.
    pub fn resume(&mut self, kept: Kept, cx: &mut Cx) {
        for (drive, saved) in &kept.associations {
            if let Some(saved) = saved {
                go_on(cx.drives, *drive, cx.now, saved);
            }
        }
        for carried in kept.connections {
            let socket = carried.socket.try_clone();
            if let Err(e) = self.take_over(carried, cx) {
                // Others may still have it open.
                let _ = socket.map(|socket| TcpStream::from(socket).shutdown(std::net::Shutdown::Both));
                tracing::warn!("a connection cannot be taken over; its host connects again: {e}");
            }
        }
        for drive in kept.associations.keys() {
            cx.drives.get(*drive).drop_unclaimed(cx.now);
        }
    }

    fn take_over(&mut self, carried: Carried, cx: &mut Cx) -> Result<(), String> {
        let Carried { socket, session, begun, queue } = carried;
        let stream = TcpStream::from(socket);
        let peer = stream.peer_addr().map_err(|e| e.to_string())?;
        let (tenant, admitted) = match queue {
            Some((drive, cntlid, _)) => {
                let controllers = cx.drives.get(drive).controllers();
                let found = controllers.into_iter().find(|c| c.id == cntlid).ok_or("its controller has gone")?;
                let tenant = self.tenant_named(&found.host);
                (tenant, Some(self.admission.count(tenant, &found.host)))
            }
            None => (NOBODY, None),
        };
        let mut conn = Conn::new(stream, peer, cx.now, self.settings, tenant).map_err(|e| e.to_string())?;
        conn.session =
            Connection::<Crc32c>::restore(cx.now, &session, &mut self.budgets[tenant]).map_err(|e| e.to_string())?;
        conn.admitted = admitted;
        let at = self.insert(conn, cx);
        if let Some((drive, cntlid, qid)) = queue {
            let handle = cx.drives.get(drive).claim(cntlid, qid, Self::owner_of(at));
            let Some(conn) = &mut self.conns[at as usize] else { return Ok(()) };
            match handle {
                Some(handle) => {
                    conn.queue = Some(Queue { drive, handle });
                    cx.drives.get(drive).resume_begun_of(handle, begun);
                    if self.keep_alive.is_required(conn.is_remote()) {
                        cx.drives.get(drive).require_keep_alive(handle);
                    }
                }
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

/// A connection's name, with what its queue is. `None`: the queue has gone.
pub(super) fn name(prefix: &str, at: u32, queue: Queue, cx: &mut Cx) -> Option<String> {
    let shard = cx.shard;
    let machine = cx.drives.get(queue.drive);
    let (cntlid, qid) = machine.queue_id(queue.handle)?;
    Some(format!("{prefix}{shard}:{at} {cntlid} {qid} {}", machine.config().subnqn))
}

/// Commands of a queue that the session has given to the drive.
struct WithDrive {
    /// Of these bytes may have moved.
    executing: Vec<u16>,
    /// These come again, in this order.
    back: Vec<u16>,
    /// Of these the drive has begun, and says when they are due.
    begun: Vec<Begun>,
}

/// `None`: the queue ends.
fn with_drive(conn: &Conn, queue: Queue, cx: &mut Cx) -> Option<WithDrive> {
    let with = cx.drives.get(queue.drive).with_drive(queue.handle)?;
    let place = |tag: &Tag| tag.0 as u16;
    let events: Vec<u16> = with.events.iter().map(place).collect();
    let back: Vec<u16> = with.begun.iter().map(|begun| &begun.tag).chain(&with.waiting).map(place).collect();
    let executing = conn.session.executing().filter(|tag| !back.contains(tag) && !events.contains(tag)).collect();
    Some(WithDrive { executing, back, begun: with.begun })
}

/// Whether nothing of a queue's connection is under way but event requests.
pub(super) fn at_rest(conn: &Conn, cx: &mut Cx) -> bool {
    let Some(queue) = conn.queue.filter(|_| conn.session.is_at_rest()) else { return false };
    with_drive(conn, queue, cx).is_some_and(|with| with.executing.is_empty() && with.back.is_empty())
}

/// Holds one connection; the queue that it is. `None`: it cannot be carried.
fn carry(at: u32, conn: &mut Conn, cx: &mut Cx) -> io::Result<Option<Option<Queue>>> {
    let (name, begun) = match conn.queue {
        Some(queue) => {
            let (Some(name), Some(with)) = (name(CONNECTIONS, at, queue, cx), with_drive(conn, queue, cx)) else {
                return Ok(None);
            };
            conn.session.hand_back(&with.back);
            if !with.executing.is_empty() {
                return Ok(None);
            }
            (name, with.begun)
        }
        None if conn.session.executing().next().is_some() => return Ok(None),
        None => (format!("{CONNECTIONS}{}:{at}", cx.shard), Vec::new()),
    };
    let Some(session) = conn.session.save(cx.now) else { return Ok(None) };
    let state = keeper_channel::sealed("connection", &session)?;
    // A program that does not know the third one begins its commands anew.
    let begun = if begun.is_empty() { None } else { Some(begun::file(&begun)?) };
    let all: Vec<BorrowedFd> =
        [conn.stream.as_fd(), state.as_fd()].into_iter().chain(begun.as_ref().map(AsFd::as_fd)).collect();
    cx.keep.hold(&name, &all)?;
    Ok(Some(conn.queue))
}
