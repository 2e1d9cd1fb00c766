//! One connection: the socket, the session, and where it stands in the door's lists.

use super::limits::Admitted;
use std::io;
use std::net::{SocketAddr, TcpStream};
use weir_controller::SqHandle;
use weir_session::nvme_tcp::{Connection, ConnectionSettings, ReadyCommand};
use weir_sys::crc::Crc32c;
use weir_sys::reactor::{Interest, Mode, Reactor, Ready, WatchId};
use weir_sys::transport::position::Position;
use weir_units::Nanos;

/// The queue that a connection is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// The drive's place in its shard.
    pub drive: u32,
    /// The queue there.
    pub handle: SqHandle,
}

/// See the [module](self).
pub(super) struct Conn {
    pub stream: TcpStream,
    pub peer: SocketAddr,
    pub session: Connection<Crc32c>,
    /// Place of its tenant's budget.
    pub tenant: usize,
    /// After Connect.
    pub queue: Option<Queue>,
    /// What it counts as while it is one.
    pub admitted: Option<Admitted>,
    /// When it is given up if it is no queue by then.
    pub give_up: Nanos,
    /// Read every turn until then; 0: the reactor watches it.
    pub hot_until: Nanos,
    /// In the list of those with something to send.
    pub dirty: bool,
    /// In the list of those that wait for a budget.
    pub awaiting: bool,
    /// Its violation was logged.
    pub told: bool,
    /// When it counts as at rest, where nothing comes until then.
    pub rest_at: Nanos,
    /// Where it stood when it was noted at rest, and the name of that note.
    pub noted: Option<(Position, String)>,
    input: Option<WatchId>,
    output: Option<WatchId>,
}

impl Conn {
    /// A connection that was just accepted.
    pub fn new(
        stream: TcpStream,
        peer: SocketAddr,
        now: Nanos,
        settings: ConnectionSettings,
        tenant: usize,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            peer,
            session: Connection::new(now, settings),
            tenant,
            queue: None,
            admitted: None,
            give_up: Nanos::NEVER,
            hot_until: Nanos(0),
            dirty: false,
            awaiting: false,
            told: false,
            rest_at: Nanos::NEVER,
            noted: None,
            input: None,
            output: None,
        })
    }

    /// When something has to be done about it although nothing comes.
    pub fn deadline(&self) -> Nanos {
        let connect = if self.queue.is_none() { self.give_up } else { Nanos::NEVER };
        self.session.deadline().min(connect).min(self.rest_at)
    }

    /// Whether its host is beyond a network: it may vanish without its connections ending. A process of this machine's cannot.
    pub fn is_remote(&self) -> bool {
        let peer = self.peer.ip().to_canonical();
        !peer.is_loopback() && self.stream.local_addr().is_ok_and(|local| local.ip().to_canonical() != peer)
    }

    pub fn watch_input(&mut self, reactor: &mut Reactor, token: u64) {
        self.input = Some(reactor.watch(&self.stream, Interest::READ, Mode::Once, token));
    }

    pub fn watch_output(&mut self, reactor: &mut Reactor, token: u64) {
        match self.output {
            Some(watch) => reactor.rearm(watch),
            None => self.output = Some(reactor.watch(&self.stream, Interest::WRITE, Mode::Once, token)),
        }
    }

    /// Lets the reactor report the next input. While the session takes none (the host does not read what it is sent),
    /// only its output matters.
    pub fn rearm(&mut self, reactor: &mut Reactor) {
        if let Some(watch) = self.input.filter(|_| self.session.wants_input()) {
            reactor.rearm(watch);
        }
    }

    pub fn is_watch(&self, ready: &Ready) -> bool {
        matches!(ready, Ready::Fd { watch, .. } if self.input == Some(*watch) || self.output == Some(*watch))
    }

    pub fn unwatch(&mut self, reactor: &mut Reactor) {
        for watch in [self.input.take(), self.output.take()].into_iter().flatten() {
            reactor.unwatch(watch);
        }
    }
}

/// A connection on its way to the shard of its drive, with the Connect that says which.
pub struct Moving {
    pub(super) conn: Conn,
    pub(super) command: ReadyCommand,
}

/// Whether the host of a connection has said something that was not read yet.
pub(super) fn is_unread(conns: &[Option<Conn>], at: u32) -> bool {
    let Some(Some(conn)) = conns.get(at as usize) else { return false };
    rustix::io::ioctl_fionread(&conn.stream).is_ok_and(|bytes| bytes > 0)
}
