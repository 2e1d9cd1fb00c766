//! Connections at rest: what outlives the death of the worker. A connection on which nothing has happened for a while, and of which
//! nothing is under way, is noted with the keeper as if it were handed over ([`super::handover`]), together with the [`Position`] of its
//! streams. Nobody is told when it moves again. A worker that follows a dead one goes on with it if it stands where it stood when it was
//! noted: then neither has anything been read from it nor written to it since, and its session is what was noted. Of every other one
//! the position cannot be proved. It is closed, and its host connects again.
//!
//! ```text
//!   quiet for REST ─► hold(associations of its drive), hold(socket, session, position)
//!   an association changes otherwise than by I/O ─► release(associations), before anybody is answered; noted anew after REST
//!   the next worker: position of the socket = position of the note ─► goes on;  otherwise ─► closed
//! ```
//! So an association of the note is that of every connection which is found where it was: what its own host does moves a
//! connection of it, and what others do to it moves its drive's [generation](weir_controller::Subsystem::association_generation).
//! Hosts of a drive with something that ends with its power, reservations first of all, are not noted: they are to notice that it has gone.
//!
//! The keeper has two descriptors of each, and so has a standby: only the first [`MOST`] of a shard are noted. All that are due at a time are
//! noted together, at most [`BATCH`] of them, at multiples of [`REST`].

use super::Door;
use super::conn::Conn;
use super::handover;
use crate::door::context::Cx;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use weir_sys::keeper_channel::{self, Keep};
use weir_sys::transport::position::Position;
use weir_units::Nanos;

/// Names of connections: as [`super::handover::CONNECTIONS`] has them.
pub(super) const CONNECTIONS: &str = "passing:rest:nvme-tcp-connection:";
/// Names of a drive's associations: its NQN follows.
pub(super) const ASSOCIATIONS: &str = "passing:rest:nvme-tcp-associations:";

/// How long nothing comes over a connection before it is noted, at least; and how often a drive's associations are written down at most.
const REST: Nanos = Nanos::from_millis(100);
/// Connections of a shard that are noted at a time.
const MOST: usize = 256;
/// Connections that are noted in one turn.
const BATCH: usize = 32;

/// Bytes of a position.
const POSITION: usize = 16;

/// The next multiple of [`REST`] that is at least so far away.
fn after_rest(now: Nanos) -> Nanos {
    Nanos((now.get() / REST.get()).saturating_add(2).saturating_mul(REST.get()))
}

/// A drive whose associations the keeper has.
pub(super) struct Noted {
    drive: u32,
    name: String,
}

/// The keeper lets go of a connection that ends.
pub(super) fn forget(conn: &mut Conn, keep: &Keep) {
    if let Some((_, name)) = conn.noted.take() {
        release(&name, keep);
    }
}

/// The keeper lets go of a note. Nobody is answered before it has heard it: as long as it is only slow, it is told again.
fn release(name: &str, keep: &Keep) {
    while let Err(e) = keep.release(name) {
        tracing::error!("{name}: the keeper does not listen: {e}");
        if e.kind() != io::ErrorKind::WouldBlock {
            // It has gone, and this process with it.
            return;
        }
    }
}

/// Whether a connection is where it was when it was noted so.
/// What follows the position is its session.
pub(super) fn is_proved(socket: &OwnedFd, note: &mut Vec<u8>) -> bool {
    let Some((position, session)) = note.split_at_checked(POSITION) else { return false };
    let noted = Position::read(position);
    *note = session.to_vec();
    noted.is_some() && Position::of(socket).ok() == noted
}

impl Door {
    /// A connection has gone quiet.
    pub(super) fn may_rest(&mut self, at: u32, cx: &Cx) {
        if let Some(conn) = self.conns[at as usize].as_mut().filter(|_| cx.keep.is_kept()) {
            conn.rest_at = after_rest(cx.now);
            self.deadline = self.deadline.min(conn.rest_at);
        }
    }

    /// Notes the connections that are due. One that cannot be noted is looked at again when it has been used.
    pub(super) fn note_those_at_rest(&mut self, cx: &mut Cx) {
        let mut due = Vec::new();
        let mut noted = self.conns.iter().flatten().filter(|conn| conn.noted.is_some()).count();
        for (at, conn) in self.conns.iter_mut().enumerate() {
            let Some(conn) = conn.as_mut().filter(|conn| conn.rest_at <= cx.now) else { continue };
            if due.len() == BATCH {
                conn.rest_at = after_rest(cx.now);
                continue;
            }
            conn.rest_at = Nanos::NEVER;
            let Some(queue) = conn.queue.filter(|_| conn.noted.is_some() || noted < MOST) else { continue };
            if !cx.drives.machine(queue.drive).has_what_fleets() {
                noted += usize::from(conn.noted.is_none());
                due.push((queue.drive, at as u32));
            }
        }
        due.sort_unstable();
        let mut failed = None;
        for same in due.chunk_by(|a, b| a.0 == b.0) {
            if let Err(e) = self.note(same, cx) {
                failed = Some(e);
            }
        }
        if let Some(e) = failed {
            tracing::warn!("connections at rest cannot be noted; they would not outlive a crash: {e}");
        }
    }

    /// Those of one drive.
    fn note(&mut self, same: &[(u32, u32)], cx: &mut Cx) -> io::Result<()> {
        let Some((drive, _)) = same.first() else { return Ok(()) };
        let mut rest = Vec::with_capacity(same.len());
        for (_, at) in same {
            let Some(conn) = &mut self.conns[*at as usize] else { continue };
            if let Some(position) = handover::at_rest(conn, cx).then(|| Position::of(&conn.stream)).transpose()? {
                rest.push((*at, position));
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        // Before the connections: one that is found where it was finds itself among them.
        let name = format!("{ASSOCIATIONS}{}", cx.drives.machine(*drive).config().subnqn);
        handover::hold(&name, *drive, cx)?;
        cx.drives.note(*drive);
        if let Some(at) = self.noted.iter().position(|noted| noted.drive == *drive) {
            let before = self.noted.swap_remove(at).name;
            // The place was another drive's.
            if before != name {
                release(&before, cx.keep);
            }
        }
        self.noted.push(Noted { drive: *drive, name });
        for (at, position) in rest {
            let Some(conn) = &mut self.conns[at as usize] else { continue };
            // It may have been used in between, and stand there again only if it was not.
            if conn.noted.as_ref().is_some_and(|(before, _)| *before == position) {
                continue;
            }
            let (Some(queue), Some(session)) = (conn.queue, conn.session.save(cx.now)) else { continue };
            let Some(name) = handover::name(CONNECTIONS, at, queue, cx) else { continue };
            let note = keeper_channel::sealed("connection", &[&position.bytes()[..], &session].concat())?;
            cx.keep.hold(&name, &[conn.stream.as_fd(), note.as_fd()])?;
            conn.noted = Some((position, name));
        }
        Ok(())
    }

    /// Before anybody is answered: notes of associations that have changed since count no more.
    #[inline]
    pub fn withdraw_notes(&mut self, cx: &mut Cx) {
        if self.noted.is_empty() {
            return;
        }
        while let Some(drive) = cx.drives.take_wrong_note() {
            self.withdraw(drive, cx);
        }
    }

    #[cold]
    fn withdraw(&mut self, drive: u32, cx: &mut Cx) {
        let Some(i) = self.noted.iter().position(|noted| noted.drive == drive) else { return };
        release(&self.noted.swap_remove(i).name, cx.keep);
        for at in 0..self.conns.len() as u32 {
            let is_noted = |c: &&Conn| c.noted.is_some() && c.queue.is_some_and(|q| q.drive == drive);
            let conn = self.conns[at as usize].as_ref().filter(is_noted);
            if conn.is_some_and(|c| c.hot_until == Nanos(0)) {
                self.may_rest(at, cx);
            }
        }
    }

    /// What is handed over is no longer at rest.
    pub(super) fn forget_notes(&mut self, cx: &Cx) {
        let connections = self.conns.iter_mut().flatten().filter_map(|conn| conn.noted.take());
        let names = self.noted.drain(..).map(|noted| noted.name).chain(connections.map(|(_, name)| name));
        names.for_each(|name| release(&name, cx.keep));
    }
}
