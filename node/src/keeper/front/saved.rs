//! Sockets and their clients as bytes and numbers, for the program that the keeper goes on as.

use super::super::renew::{Collected, Taken};
use super::{Client, Conn, Front, Kind, Line, Outgoing};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use weir_keeper::saved::{Saved, SavedClient, SavedConn, SavedFront, SavedLine, SavedOut, SavedRelay, SavedWire};
use weir_keeper::{Relay, Replay};

impl Outgoing {
    fn save<'a>(&'a self, fds: &Collected<'a>) -> SavedOut {
        SavedOut { queue: self.queue.iter().map(|envelope| fds.envelope(envelope)).collect(), sent: self.sent as u32 }
    }

    fn restore(saved: SavedOut, fds: &mut Taken) -> io::Result<Self> {
        let queue = saved.queue.into_iter().map(|envelope| fds.envelope(envelope)).collect::<io::Result<_>>()?;
        Ok(Self { queue, sent: saved.sent as usize })
    }
}

fn process(pid: Option<u32>) -> Option<i32> {
    pid.and_then(|pid| i32::try_from(pid).ok())
}

impl Conn<Replay<Rc<OwnedFd>>> {
    fn save<'a>(&'a self, fds: &Collected<'a>) -> io::Result<SavedConn> {
        let line = |line: &'a Line<Replay<Rc<OwnedFd>>>| {
            io::Result::Ok(SavedLine {
                stream: fds.number(&line.stream),
                inbox: line.inbox.try_map(|fd| io::Result::Ok(fds.number(fd)))?,
                out: line.out.save(fds),
                over: line.over,
            })
        };
        Ok(SavedConn {
            number: self.number,
            socket: fds.number(&self.socket),
            pid: self.pid.and_then(|pid| u32::try_from(pid).ok()),
            inbox: self.inbox.try_map(|fd| io::Result::Ok(fds.number(fd)))?,
            out: self.out.save(fds),
            replay: self.talk.try_map(|fd| io::Result::Ok(fds.number(&**fd)))?,
            line: self.line.as_ref().map(line).transpose()?,
        })
    }

    fn restore(saved: SavedConn, fds: &mut Taken) -> io::Result<Self> {
        let line = |line: SavedLine, fds: &mut Taken| {
            io::Result::Ok(Line {
                stream: fds.take(line.stream)?.into(),
                inbox: line.inbox.try_map(|number| fds.take(*number))?,
                out: Outgoing::restore(line.out, fds)?,
                over: line.over,
            })
        };
        Ok(Self {
            number: saved.number,
            socket: fds.take(saved.socket)?.into(),
            pid: process(saved.pid),
            inbox: saved.inbox.try_map(|number| fds.take(*number))?,
            out: Outgoing::restore(saved.out, fds)?,
            talk: saved.replay.try_map(|number| fds.share(*number))?,
            line: saved.line.map(|saved| line(saved, fds)).transpose()?,
        })
    }
}

impl Conn<Relay<Rc<OwnedFd>>> {
    fn save<'a>(&'a self, fds: &Collected<'a>) -> io::Result<SavedClient> {
        let line = |line: &'a Line<Relay<Rc<OwnedFd>>>| {
            io::Result::Ok(SavedWire {
                stream: fds.number(&line.stream),
                inbox: line.inbox.try_map(|fd| io::Result::Ok(fds.number(fd)))?,
                out: line.out.save(fds),
                over: line.over,
            })
        };
        Ok(SavedClient {
            number: self.number,
            socket: fds.number(&self.socket),
            pid: self.pid.and_then(|pid| u32::try_from(pid).ok()),
            inbox: self.inbox.try_map(|fd| io::Result::Ok(fds.number(fd)))?,
            out: self.out.save(fds),
            relay: self.talk.try_map(|fd| io::Result::Ok(fds.number(&**fd)))?,
            line: self.line.as_ref().map(line).transpose()?,
        })
    }

    fn restore(saved: SavedClient, fds: &mut Taken) -> io::Result<Self> {
        let line = |line: SavedWire, fds: &mut Taken| {
            io::Result::Ok(Line {
                stream: fds.take(line.stream)?.into(),
                inbox: line.inbox.try_map(|number| fds.take(*number))?,
                out: Outgoing::restore(line.out, fds)?,
                over: line.over,
            })
        };
        Ok(Self {
            number: saved.number,
            socket: fds.take(saved.socket)?.into(),
            pid: process(saved.pid),
            inbox: saved.inbox.try_map(|number| fds.take(*number))?,
            out: Outgoing::restore(saved.out, fds)?,
            talk: saved.relay.try_map(|number| fds.share(*number))?,
            line: saved.line.map(|saved| line(saved, fds)).transpose()?,
        })
    }
}

impl Front {
    /// All that is known of it, for the program that the keeper runs next.
    pub(in crate::keeper) fn save<'a>(&'a self, to: &mut Saved, fds: &Collected<'a>) -> io::Result<()> {
        let (path, listener) = (self.path.clone(), fds.number(&self.listener));
        if self.kind == Kind::Relayed {
            let conn = match &self.conn {
                Some(Client::Drive(conn)) => Some(conn.save(fds)?),
                _ => None,
            };
            to.relays.push(SavedRelay { path, listener, conn });
        } else {
            let conn = match &self.conn {
                Some(Client::FrontEnd(conn)) => Some(conn.save(fds)?),
                _ => None,
            };
            to.fronts.push(SavedFront { path, inflight: self.kind == Kind::Journalled, listener, conn });
        }
        Ok(())
    }

    /// What [`save`](Self::save) gave of a socket of vhost-user.
    pub(in crate::keeper) fn restore(saved: SavedFront, fds: &mut Taken) -> io::Result<Self> {
        Ok(Self {
            path: saved.path,
            kind: if saved.inflight { Kind::Journalled } else { Kind::Plain },
            listener: fds.take(saved.listener)?.into(),
            conn: saved
                .conn
                .map(|conn| Conn::<Replay<_>>::restore(conn, fds).map(|conn| Client::FrontEnd(Box::new(conn))))
                .transpose()?,
        })
    }

    /// The same of one of vfio-user.
    pub(in crate::keeper) fn restore_relay(saved: SavedRelay, fds: &mut Taken) -> io::Result<Self> {
        Ok(Self {
            path: saved.path,
            kind: Kind::Relayed,
            listener: fds.take(saved.listener)?.into(),
            conn: saved
                .conn
                .map(|conn| Conn::<Relay<_>>::restore(conn, fds).map(|conn| Client::Drive(Box::new(conn))))
                .transpose()?,
        })
    }
}
