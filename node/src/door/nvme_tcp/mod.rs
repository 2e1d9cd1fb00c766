//! The NVMe/TCP door: sockets around [`Connection`], each of which is one queue pair of a controller.
//!
//! ```text
//!   listener ─accept─► Conn (no queue yet) ─Connect─► Subsystem::connect ─► Conn (queue) ─► arrivals
//!                                             └─ drive on another shard: Moving ─► that shard's adopt
//! ```
//! A connection that was active lately is *hot*: every turn reads it directly, and nothing is armed. One that went quiet is
//! left to the reactor. Responses of a turn leave by one write a connection.

mod closing;
mod conn;
mod connect;
mod handover;
mod idle_handover;
mod limits;
#[cfg(test)]
mod tests;
mod unconnected;

pub use conn::Moving;
pub use handover::{Associations, Kept, SharedAssociations, take};
pub use limits::Admission;

use crate::door::context::{Arrival, Cx};
use crate::throttle::throttled;
use crate::tokens::{Kind, index, owner, token};
use closing::Closing;
use conn::Conn;
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::net::TcpListener;
use unconnected::Unconnected;
use weir_config::{KeepAlive, NvmeTcpConfig, TenantConfig};
use weir_controller::{DataPointer, Event, Owner, Tag};
use weir_session::nvme_tcp::{Budget, ConnectionSettings, ConnectionState};
use weir_spec::nvme::{Cqe, Status};
use weir_sys::reactor::{Interest, Mode, Ready, WatchId};
use weir_units::{Bytes, Nanos};

/// How long a connection stays hot after its last bytes.
const HOT: Nanos = Nanos::from_micros(100);
/// Bytes read from a socket in one go.
const RECEIVE: usize = 256 << 10;
/// Bytes read behind data that goes straight to its command's buffer: the next headers.
const BEHIND: usize = 4 << 10;
/// A connection without a queue is given up after this long.
const CONNECT_WITHIN: Nanos = Nanos::from_secs(15);
/// The budget of connections that are nobody's yet.
const NOBODY: usize = 0;
/// Sockets that are accepted in one turn: what the last turn's have sent is read in between.
const ACCEPT: usize = 32;
/// Marks a listener's token.
const LISTENER: u64 = 1 << 32;

/// See the [module](self).
pub struct Door {
    settings: ConnectionSettings,
    tenants: Vec<TenantConfig>,
    /// The first for connections that are nobody's yet, and then one a tenant.
    budgets: Vec<Budget>,
    /// Bytes of a budget.
    budget: Bytes,
    keep_alive: KeepAlive,
    /// Over all shards.
    admission: Admission,
    /// Those of this shard.
    unconnected: Unconnected,
    listeners: Vec<(TcpListener, WatchId)>,
    /// Listeners that may have more to accept, each once: they have a turn in the next poll.
    more: Vec<usize>,
    /// A listener could not accept for want of descriptors or memory: it is tried again when a connection has gone.
    starved: bool,
    conns: Vec<Option<Conn>>,
    free: Vec<u32>,
    hot: Vec<u32>,
    /// Connections with something to send.
    dirty: Vec<u32>,
    /// Connections whose R2T waits for their tenant's budget.
    awaiting: Vec<u32>,
    /// Connections to be closed at the end of this turn.
    doomed: Vec<u32>,
    closing: Closing,
    deadline: Nanos,
    /// Drives whose associations are noted, and as of which generation.
    noted: Vec<idle_handover::Noted>,
    buffer: Vec<u8>,
}

impl Door {
    /// A door without listeners and connections; `admission` is that of all shards.
    pub fn new(config: &NvmeTcpConfig, tenants: &[TenantConfig], admission: Admission) -> Self {
        let settings = ConnectionSettings {
            header_digest: config.header_digest,
            data_digest: config.data_digest,
            in_capsule: config.in_capsule.get() as u32,
            ..ConnectionSettings::default()
        };
        Self {
            settings,
            tenants: tenants.to_vec(),
            budgets: (0..=tenants.len()).map(|_| Budget::new(config.tenant_buffer.get())).collect(),
            budget: config.tenant_buffer,
            keep_alive: config.keep_alive,
            admission,
            unconnected: Unconnected::new(config.unconnected.into(), config.address_unconnected.into()),
            listeners: Vec::new(),
            more: Vec::new(),
            starved: false,
            conns: Vec::new(),
            free: Vec::new(),
            hot: Vec::new(),
            dirty: Vec::new(),
            awaiting: Vec::new(),
            doomed: Vec::new(),
            closing: Closing::default(),
            deadline: Nanos::NEVER,
            noted: Vec::new(),
            buffer: vec![0; RECEIVE],
        }
    }

    /// One more tenant, behind the others.
    pub fn add_tenant(&mut self, tenant: &TenantConfig) {
        self.tenants.push(tenant.clone());
        self.budgets.push(Budget::new(self.budget.get()));
        self.admission.add_tenant(self.tenants.len());
    }

    /// Nobody belongs to this tenant any more.
    pub fn retire_tenant(&mut self, tenant: usize) {
        self.admission.retire_tenant(tenant + 1);
        self.tenants[tenant].hosts.clear();
        self.tenants[tenant].any_host = false;
    }

    /// Accepts from a listener that is bound already.
    ///
    /// # Errors
    /// It cannot be made nonblocking.
    pub fn listen(&mut self, listener: TcpListener, cx: &mut Cx) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let name = token(Kind::NvmeTcp, LISTENER | self.listeners.len() as u64);
        let watch = cx.reactor.watch(&listener, Interest::READ, Mode::Edge, name);
        self.listeners.push((listener, watch));
        self.accept(self.listeners.len() - 1, cx);
        Ok(())
    }

    /// No more connections.
    pub fn close_listeners(&mut self, cx: &mut Cx) {
        self.more.clear();
        for (_, watch) in self.listeners.drain(..) {
            cx.reactor.unwatch(watch);
        }
    }

    /// Closes everything.
    pub fn close(&mut self, cx: &mut Cx) {
        self.close_listeners(cx);
        for at in 0..self.conns.len() as u32 {
            self.remove(at, cx);
        }
    }

    /// Connections now.
    pub fn connections(&self) -> u32 {
        (self.conns.len() - self.free.len()) as u32
    }

    /// The queues of all shards.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Sockets that are no queue yet, and those that were closed because others came.
    pub fn unconnected(&self) -> (u32, u64) {
        (self.unconnected.len() as u32, self.unconnected.closed())
    }

    /// A watched socket is ready.
    pub fn ready(&mut self, rest: u64, ready: &Ready, cx: &mut Cx) {
        if rest & LISTENER != 0 {
            self.accept((rest & 0xffff) as usize, cx);
            return;
        }
        let at = rest as u32;
        let Some(Some(conn)) = self.conns.get_mut(at as usize) else { return };
        if !conn.is_watch(ready) {
            return;
        }
        self.heat(at, cx.now);
        self.mark_dirty(at);
    }

    fn accept(&mut self, listener: usize, cx: &mut Cx) {
        if self.more.contains(&listener) {
            return;
        }
        for _ in 0..ACCEPT {
            let Some((socket, _)) = self.listeners.get(listener) else { return };
            match socket.accept() {
                Ok((stream, peer)) => match Conn::new(stream, peer, cx.now, self.settings, NOBODY) {
                    Ok(conn) => drop(self.insert(conn, cx)),
                    Err(e) => {
                        throttled!(cx.now, "connection lost", tracing::warn!(%peer, "connection lost: {e}"));
                    }
                },
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted || e.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) if self.unconnected.len() > 0 => self.close_oldest(cx),
                Err(e) => {
                    if !self.starved {
                        tracing::error!("cannot accept: {e}");
                    }
                    self.starved = true;
                    return;
                }
            }
        }
        self.more.push(listener);
    }

    /// Descriptors are short: the oldest of those that are no queue yet gives its own back.
    fn close_oldest(&mut self, cx: &mut Cx) {
        let conns = &self.conns;
        if let Some(at) = self.unconnected.oldest(|at| conn::is_unread(conns, at)) {
            self.remove(at, cx);
        }
    }

    /// Closes the socket that a new one of this peer pushes out, if there is one.
    fn make_way(&mut self, conn: &Conn, cx: &mut Cx) {
        let conns = &self.conns;
        let Some(at) = self.unconnected.in_the_way(conn.peer, |at| conn::is_unread(conns, at)) else { return };
        if let Some(Some(old)) = self.conns.get(at as usize) {
            throttled!(
                cx.now,
                "closed before Connect",
                tracing::warn!(
                    peer = %old.peer,
                    "closed before Connect: too many sockets are no queue yet (door.nvme-tcp.unconnected, address_unconnected)"
                )
            );
        }
        self.remove(at, cx);
    }

    fn insert(&mut self, mut conn: Conn, cx: &mut Cx) -> u32 {
        if conn.admitted.is_none() {
            self.make_way(&conn, cx);
        }
        let at = self.free.pop().unwrap_or(self.conns.len() as u32);
        conn.watch_input(cx.reactor, token(Kind::NvmeTcp, at.into()));
        conn.give_up = cx.now.saturating_add(CONNECT_WITHIN);
        self.deadline = self.deadline.min(conn.deadline());
        if conn.admitted.is_none() {
            self.unconnected.add(at, conn.peer);
        }
        if at as usize == self.conns.len() {
            self.conns.push(Some(conn));
        } else {
            self.conns[at as usize] = Some(conn);
        }
        self.heat(at, cx.now);
        at
    }

    /// Takes over a connection whose drive is on this shard.
    pub fn adopt(&mut self, moving: Moving, cx: &mut Cx) {
        let Moving { conn, command } = moving;
        let at = self.insert(conn, cx);
        self.connect(at, command, cx);
        self.fetch(at, cx);
        self.mark_dirty(at);
    }

    /// Takes a connection out and closes it; its commands die silently.
    fn remove(&mut self, at: u32, cx: &mut Cx) {
        let Some(mut conn) = self.conns.get_mut(at as usize).and_then(Option::take) else { return };
        self.unconnected.remove(at);
        if let Some(queue) = conn.queue {
            cx.drives.get(queue.drive).disconnect(cx.now, queue.handle);
        }
        conn.session.close();
        idle_handover::forget(&mut conn, cx.keep);
        conn.session.release(&mut self.budgets[conn.tenant]);
        conn.unwatch(cx.reactor);
        if let Some(queue) = conn.queue {
            self.closing.close(conn.stream, queue.drive, conn.admitted, cx.drives);
        }
        self.hot.retain(|c| *c != at);
        self.dirty.retain(|c| *c != at);
        self.awaiting.retain(|c| *c != at);
        // Its place may be another connection's before this turn is over.
        self.doomed.retain(|c| *c != at);
        self.free.push(at);
    }

    fn heat(&mut self, at: u32, now: Nanos) {
        if let Some(conn) = &mut self.conns[at as usize] {
            if conn.hot_until == Nanos(0) {
                self.hot.push(at);
                conn.rest_at = Nanos::NEVER;
            }
            conn.hot_until = now.saturating_add(HOT);
        }
    }

    fn mark_dirty(&mut self, at: u32) {
        if let Some(conn) = &mut self.conns[at as usize] {
            if !conn.dirty {
                conn.dirty = true;
                self.dirty.push(at);
            }
        }
    }

    /// Reads every hot connection; true if one had something.
    pub fn poll(&mut self, cx: &mut Cx) -> bool {
        let mut busy = false;
        let mut i = 0;
        while i < self.hot.len() {
            let at = self.hot[i];
            if self.receive(at, cx) {
                busy = true;
                self.heat(at, cx.now);
            } else if self.cool(at, cx) {
                self.hot.swap_remove(i);
                continue;
            }
            i += 1;
        }
        if cx.now >= self.deadline {
            self.expire(cx);
        }
        for listener in std::mem::take(&mut self.more) {
            busy = true;
            self.accept(listener, cx);
        }
        busy
    }

    /// A connection that was quiet for long enough goes back to the reactor.
    fn cool(&mut self, at: u32, cx: &mut Cx) -> bool {
        let Some(conn) = &mut self.conns[at as usize] else { return true };
        if cx.now < conn.hot_until {
            return false;
        }
        conn.hot_until = Nanos(0);
        conn.rearm(cx.reactor);
        self.may_rest(at, cx);
        true
    }

    fn receive(&mut self, at: u32, cx: &mut Cx) -> bool {
        let Some(conn) = &mut self.conns[at as usize] else { return false };
        if !conn.session.wants_input() {
            return false;
        }
        let budget = &mut self.budgets[conn.tenant];
        let (got, straight) = match conn.session.direct() {
            Some(place) => {
                let straight = place.len();
                let mut pieces = [IoSliceMut::new(place), IoSliceMut::new(&mut self.buffer[..BEHIND])];
                (conn.stream.read_vectored(&mut pieces), straight)
            }
            None => (conn.stream.read(&mut self.buffer), 0),
        };
        match got {
            Ok(0) => {
                self.doomed.push(at);
                false
            }
            Ok(n) => {
                if straight > 0 {
                    conn.session.filled(n.min(straight), budget);
                }
                if n > straight {
                    conn.session.receive(cx.now, &self.buffer[..n - straight], budget);
                }
                self.received(at, cx);
                true
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => false,
            Err(e) => {
                tracing::debug!(peer = %conn.peer, "connection lost: {e}");
                self.doomed.push(at);
                false
            }
        }
    }

    /// New input was parsed: commands go to their drive, answers of the session itself to the socket.
    fn received(&mut self, at: u32, cx: &mut Cx) {
        self.fetch(at, cx);
        let Some(conn) = &mut self.conns[at as usize] else { return };
        if conn.session.awaits_budget() && !conn.awaiting {
            conn.awaiting = true;
            self.awaiting.push(at);
        }
        if !conn.session.ready().is_empty() {
            self.mark_dirty(at);
        }
        self.look_at_state(at, cx.now);
    }

    fn look_at_state(&mut self, at: u32, now: Nanos) {
        let Some(conn) = &mut self.conns[at as usize] else { return };
        match conn.session.state() {
            ConnectionState::Running if conn.queue.is_none() => self.unconnected.began(at),
            ConnectionState::AwaitsIcReq | ConnectionState::Running => {}
            ConnectionState::Quiescing(fatal) => {
                if !conn.told {
                    conn.told = true;
                    throttled!(
                        now,
                        "the host broke the protocol",
                        tracing::warn!(peer = %conn.peer, ?fatal, "the host broke the protocol; its connection ends")
                    );
                    self.deadline = self.deadline.min(conn.session.deadline());
                }
                self.mark_dirty(at);
            }
            ConnectionState::Closed(why) => {
                tracing::debug!(peer = %conn.peer, ?why, "connection closed");
                self.doomed.push(at);
            }
        }
    }

    /// Hands eligible commands on.
    fn fetch(&mut self, at: u32, cx: &mut Cx) {
        while let Some(conn) = &mut self.conns[at as usize] {
            let Some(command) = conn.session.next_command() else { return };
            match conn.queue {
                Some(queue) => {
                    let event = Event::Capsule { queue: queue.handle, sqe: command.sqe, tag: Tag(command.tag.into()) };
                    cx.arrivals.push(Arrival { drive: queue.drive, event });
                }
                None => self.connect(at, command, cx),
            }
        }
    }

    /// Sends what the turn produced and closes what has to be closed; true if anything was done.
    pub fn flush(&mut self, cx: &mut Cx) -> bool {
        self.closing.look(cx.drives);
        if self.dirty.is_empty() && self.awaiting.is_empty() && self.doomed.is_empty() {
            return false;
        }
        self.grant();
        let mut busy = false;
        let mut dirty = std::mem::take(&mut self.dirty);
        for at in dirty.drain(..) {
            busy |= self.send(at, cx);
        }
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
        while let Some(at) = self.doomed.pop() {
            busy = true;
            self.remove(at, cx);
            if std::mem::take(&mut self.starved) {
                (0..self.listeners.len()).for_each(|l| self.accept(l, cx));
            }
        }
        busy
    }

    fn grant(&mut self) {
        let mut i = 0;
        while i < self.awaiting.len() {
            let at = self.awaiting[i];
            let Some(conn) = &mut self.conns[at as usize] else {
                self.awaiting.swap_remove(i);
                continue;
            };
            let granted = conn.session.grant(&mut self.budgets[conn.tenant]);
            let done = !conn.session.awaits_budget();
            conn.awaiting = !done;
            if granted {
                self.mark_dirty(at);
            }
            if done {
                // In the order of arrival, so that nobody is passed over.
                self.awaiting.remove(i);
            } else {
                i += 1;
            }
        }
    }

    fn send(&mut self, at: u32, cx: &mut Cx) -> bool {
        let mut busy = false;
        loop {
            let Some(conn) = &mut self.conns[at as usize] else { return busy };
            conn.dirty = false;
            let ready = conn.session.ready();
            if ready.is_empty() {
                break;
            }
            match conn.stream.write(ready) {
                Ok(n) => {
                    busy = true;
                    conn.session.sent(cx.now, n, &mut self.budgets[conn.tenant]);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    conn.watch_output(cx.reactor, token(Kind::NvmeTcp, at.into()));
                    break;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    tracing::debug!(peer = %conn.peer, "connection lost: {e}");
                    self.doomed.push(at);
                    return busy;
                }
            }
        }
        if busy {
            // What was held for room may be eligible now.
            self.received(at, cx);
            self.heat(at, cx.now);
        }
        busy
    }

    fn expire(&mut self, cx: &mut Cx) {
        let now = cx.now;
        self.deadline = Nanos::NEVER;
        self.note_those_at_rest(cx);
        for at in 0..self.conns.len() as u32 {
            let Some(conn) = &mut self.conns[at as usize] else { continue };
            conn.session.tick(now);
            if conn.queue.is_none() && now >= conn.give_up {
                tracing::debug!(peer = %conn.peer, "no Connect in time; the connection ends");
                self.doomed.push(at);
                continue;
            }
            self.deadline = self.deadline.min(conn.deadline());
            self.look_at_state(at, now);
        }
    }

    /// Before the shard sleeps: everything goes back to the reactor. Never finds work: a watch reports what is there
    /// already.
    pub fn arm(&mut self, cx: &mut Cx) -> bool {
        while let Some(at) = self.hot.pop() {
            if let Some(conn) = &mut self.conns[at as usize] {
                conn.hot_until = Nanos(0);
                conn.rearm(cx.reactor);
                self.may_rest(at, cx);
            }
        }
        !self.dirty.is_empty() || !self.doomed.is_empty() || !self.more.is_empty()
    }

    /// When the next connection is given up.
    pub fn next_deadline(&self) -> Nanos {
        self.deadline
    }

    /// The machine wants this queue's connection closed.
    pub fn disconnect(&mut self, owner: Owner) {
        self.doomed.push(index(owner) as u32);
    }

    /// See [`weir_controller::Host::respond`].
    #[inline]
    pub fn respond(&mut self, owner: Owner, tag: Tag, cqe: &Cqe) {
        let at = index(owner);
        if let Some(Some(conn)) = self.conns.get_mut(at) {
            conn.session.respond(tag.0 as u16, cqe, &mut self.budgets[conn.tenant]);
            if !conn.dirty {
                conn.dirty = true;
                self.dirty.push(at as u32);
            }
        }
    }

    /// See [`weir_controller::Host::read_data`].
    #[inline]
    pub fn read_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        match (self.conns.get(index(owner)), data.as_tag()) {
            (Some(Some(conn)), Some(tag)) => conn.session.read_data(tag.0 as u16, offset, into),
            _ => Err(Status::DATA_TRANSFER_ERROR),
        }
    }

    /// See [`weir_controller::Host::write_data`].
    #[inline]
    pub fn write_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        match (self.conns.get_mut(index(owner)), data.as_tag()) {
            (Some(Some(conn)), Some(tag)) => conn.session.write_data(tag.0 as u16, offset, from),
            _ => Err(Status::DATA_TRANSFER_ERROR),
        }
    }

    fn owner_of(at: u32) -> Owner {
        owner(Kind::NvmeTcp, at)
    }
}
