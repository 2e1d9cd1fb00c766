//! The vhost-user-blk door: a listening socket for each export, one front end at a time on each.
//!
//! ```text
//!   Export: listener ─accept─► Conn: socket ─messages─► Device ─Action─► replies, watches, queues of the drive
//!                                    kicks ──heat──► hot: polled every turn ──take──► arrivals
//!                                    respond ─► dirty: used rings published; at the end of the turn one signal a queue
//! ```
//! A queue that was active in the last [`HOT`] is polled and its driver is asked not to kick; after that the driver is
//! asked to kick, the ring is looked at once more, and the kick's eventfd wakes the shard.
//!
//! Where the front end's I/O priority chooses its class, it is looked up every [`LOOK_AGAIN`], whatever the front end does: one
//! that waits for its completions, because its class gets little, must rise as well.
//!
//! The front end goes, its requests die: the drive's queues are disconnected, and the socket accepts the next one, which
//! may have been waiting in the backlog. An eventfd that the front end hands over is never read or written in a way that
//! could block the shard.

mod conn;
mod disk_change;
mod handover;
#[cfg(test)]
mod tests;
mod token;

use crate::door::context::{Arrival, Cx};
use crate::listen::{self, BindError};
use conn::Conn;
use std::io::ErrorKind;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use token::{Watched, decode, encode, owner};
use weir_controller::{Attach, ClassFrom, DataPointer, Owner, Tag, TransportModel};
use weir_journal::{CrashPoint, RecoveredRing};
use weir_session::vhost_user::Disk;
use weir_spec::nvme::{Cqe, Status};
use weir_sys::keeper_channel::{Introduction, ToKeeper};
use weir_sys::memory::InflightRegions;
use weir_sys::reactor::{Interest, Mode, Ready, WatchId};
use weir_sys::sched;
use weir_units::Nanos;

/// How long a queue is polled after its last request or completion.
const HOT: Nanos = Nanos::from_micros(100);
/// Looks of a shard without work at its hot rings before its next turn: a few nanoseconds each, where such a turn takes some 50.
const LOOKS: usize = 32;
/// Requests taken from a queue in one turn.
const BATCH: usize = 32;
/// How long a front end's I/O priority counts as what it was.
const LOOK_AGAIN: Nanos = Nanos::from_millis(500);
/// Permissions of a socket: the owner and the group, which is how a virtual machine monitor of another user is let in.
const MODE: u32 = 0o660;
/// Longest command a request is cut into: large enough for no cost a byte, small enough for a fair share.
const MAX_TRANSFER: u32 = 1 << 20;

/// What is served at a socket.
#[derive(Clone, Debug)]
pub struct ExportConfig {
    /// The socket.
    pub path: PathBuf,
    /// Place of the drive in the shard.
    pub drive: u32,
    /// Whose queues they are.
    pub tenant: u16,
    /// The tenant's name.
    pub tenant_name: String,
    /// The front end's I/O priority is its wish for a class.
    pub peer_class: bool,
    /// Request queues offered.
    pub queues: u16,
    /// What is in flight is journalled.
    pub journal: bool,
    /// Commands of a queue at the drive.
    pub queue_depth: u16,
    /// Writes are refused.
    pub read_only: bool,
    /// What the guest reads as the disk's serial.
    pub serial: String,
}

struct Export {
    config: ExportConfig,
    listener: Option<(UnixListener, WatchId)>,
    conn: Option<Box<Conn>>,
    /// A front end that the keeper has let in and that waits for the drive.
    met: Option<(Introduction, UnixStream)>,
    /// What front ends' journals had to say when they came back.
    recoveries: Recoveries,
    /// Those that were made while there is no front end; the front end's connection has them while there is one.
    inflight: InflightRegions,
    /// Counts connections: an owner or a token of an earlier one is nobody's.
    generation: u16,
    /// It is none any more; its place is for the next.
    ended: bool,
}

/// See the [module](self).
#[derive(Default)]
pub struct Door {
    exports: Vec<Export>,
    /// Queues that are polled: export and queue.
    hot: Vec<(u16, u16)>,
    /// Exports with completions to publish.
    dirty: Vec<u16>,
    /// Exports whose drivers may wait for a signal.
    unsignalled: Vec<u16>,
    /// Exports whose socket has more to read.
    talking: Vec<u16>,
    /// Exports whose front end is to be disconnected.
    doomed: Vec<u16>,
    /// Exports whose next front end waits until the drive has done what the last one has left.
    fenced: Vec<u16>,
    /// When the front ends' I/O priorities are looked up, if any counts.
    look_at: Option<Nanos>,
}

/// What was found in the journals of an export's queues when they started again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recoveries {
    /// Queues that were in use when their server died or their front end went.
    pub queues: u64,
    /// Requests submitted again.
    pub requests: u64,
    /// Requests of these that had been done, of which the driver did not know.
    pub rolled_back: u64,
    /// Requests that were done, of which it knew.
    pub closed: u64,
    /// Queues by the step of the journal's algorithm that was the last one taken, as in [`CrashPoint::ALL`].
    pub steps: [u64; CrashPoint::ALL.len()],
}

impl Recoveries {
    fn count(&mut self, found: &RecoveredRing) {
        self.queues += 1;
        self.requests += found.heads.len() as u64;
        self.rolled_back += u64::from(found.rolled_back);
        self.closed += u64::from(found.closed);
        self.steps[found.step as usize] += 1;
    }
}

const MAX_EXPORTS: usize = 1 << 12;

impl Door {
    /// A door without exports.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens on an export's socket.
    ///
    /// # Errors
    /// Somebody else does, or the path is not to be had.
    pub fn export(&mut self, config: ExportConfig, cx: &mut Cx) -> Result<(), BindError> {
        let address = config.path.display().to_string();
        let fail = |error| BindError::Io { address, error };
        let vacant = self.exports.iter().position(|e| e.ended && e.conn.is_none());
        if vacant.is_none() && self.exports.len() == MAX_EXPORTS {
            return Err(fail(std::io::Error::other(format!("a shard has at most {MAX_EXPORTS} vhost-user exports"))));
        }
        if cx.keep.is_kept() {
            return self.export_kept(config, vacant, cx);
        }
        let listener = listen::listen_unix(&config.path, MODE)?;
        listener.set_nonblocking(true).map_err(fail)?;
        let at = vacant.unwrap_or(self.exports.len()) as u16;
        let name = encode(at, 0, Watched::Listener);
        let watch = cx.reactor.watch(&listener, Interest::READ, Mode::Edge, name);
        self.put(config, Some((listener, watch)), vacant);
        Ok(())
    }

    /// In the place of one that has ended, whose generations go on, or in a new one.
    fn put(&mut self, config: ExportConfig, listener: Option<(UnixListener, WatchId)>, vacant: Option<usize>) {
        let generation = vacant.map_or(0, |at| self.exports[at].generation);
        let recoveries = Recoveries::default();
        let inflight = InflightRegions::default();
        let export = Export { config, listener, conn: None, met: None, recoveries, inflight, generation, ended: false };
        match vacant {
            Some(at) => self.exports[at] = export,
            None => self.exports.push(export),
        }
    }

    /// Ends the export at a socket: its front end is disconnected. False if there is none.
    pub fn unexport(&mut self, path: &std::path::Path, cx: &mut Cx) -> bool {
        let is = |e: &Export| !e.ended && e.config.path == path;
        let Some(at) = self.exports.iter().position(is) else { return false };
        let export = &mut self.exports[at];
        export.ended = true;
        export.met = None;
        if let Some((_, watch)) = export.listener.take() {
            cx.reactor.unwatch(watch);
            let _ = std::fs::remove_file(&export.config.path);
        } else if cx.keep.is_kept() {
            handover::give_up(&export.config, cx);
        }
        self.remove(at as u16, cx);
        true
    }

    /// No more front ends; the sockets' paths are free again.
    pub fn close_listeners(&mut self, cx: &mut Cx) {
        for export in &mut self.exports {
            if let Some((_, watch)) = export.listener.take() {
                cx.reactor.unwatch(watch);
                let _ = std::fs::remove_file(&export.config.path);
            }
        }
    }

    /// Closes everything.
    pub fn close(&mut self, cx: &mut Cx) {
        self.close_listeners(cx);
        for at in 0..self.exports.len() as u16 {
            self.remove(at, cx);
        }
    }

    /// Every socket and whether it has a front end.
    pub fn clients(&self) -> Vec<(PathBuf, u32)> {
        let there = self.exports.iter().filter(|e| !e.ended);
        there.map(|e| (e.config.path.clone(), u32::from(e.conn.is_some()))).collect()
    }

    /// What was recovered at each socket.
    pub fn recoveries(&self) -> Vec<(PathBuf, Recoveries)> {
        let there = self.exports.iter().filter(|e| !e.ended);
        there.map(|e| (e.config.path.clone(), e.recoveries.clone())).collect()
    }

    /// A watched descriptor is ready.
    pub fn ready(&mut self, rest: u64, ready: &Ready, cx: &mut Cx) {
        let (at, generation, what) = decode(rest);
        let Some(export) = self.exports.get_mut(usize::from(at)) else { return };
        if what == Watched::Listener {
            return self.accept(at, cx);
        }
        let Some(conn) = export.conn.as_mut().filter(|_| export.generation == generation) else { return };
        match what {
            Watched::Kick(queue) => {
                if conn.is_kick(queue, ready) {
                    conn.drain_kick(queue);
                    self.heat(at, queue, cx.now);
                }
            }
            _ => self.listen_to(at, cx),
        }
    }

    /// Takes a front end in, if there is none and one waits.
    fn accept(&mut self, at: u16, cx: &mut Cx) {
        // What the front end before had in flight may still reach the media, after what the next one resubmits of it and has
        // overwritten since: it has to be over first.
        if cx.drives.get(self.exports[usize::from(at)].config.drive).has_orphans() {
            if !self.fenced.contains(&at) {
                self.fenced.push(at);
            }
            return;
        }
        let export = &mut self.exports[usize::from(at)];
        if let Some((met, socket)) = export.met.take_if(|_| export.conn.is_none()) {
            return self.admit(at, socket, Some(met), cx);
        }
        loop {
            let export = &mut self.exports[usize::from(at)];
            let (None, Some((listener, _))) = (&export.conn, &export.listener) else { return };
            let path = &export.config.path;
            match listener.accept() {
                Ok((socket, _)) => self.admit(at, socket, None, cx),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted || e.kind() == ErrorKind::ConnectionAborted => {}
                Err(e) => return tracing::error!(socket = %path.display(), "cannot accept: {e}"),
            }
        }
    }

    /// A front end on an export that has none.
    fn admit(&mut self, at: u16, socket: UnixStream, met: Option<Introduction>, cx: &mut Cx) {
        let export = &mut self.exports[usize::from(at)];
        export.generation = export.generation.wrapping_add(1);
        let number = met.as_ref().map(|m| m.number);
        match connect(export, at, socket, met, cx) {
            Ok(conn) => {
                if conn.has_wishes() {
                    self.look_at.get_or_insert(cx.now.saturating_add(LOOK_AGAIN));
                }
                let conn = export.conn.insert(Box::new(conn));
                std::mem::swap(conn.inflight(), &mut export.inflight);
                self.listen_to(at, cx);
            }
            Err(e) => {
                tracing::warn!(socket = %export.config.path.display(), "front end refused: {e}");
                close_kept(number, cx);
            }
        }
    }

    /// Ends a connection: its commands die silently, and the next front end may come.
    fn remove(&mut self, at: u16, cx: &mut Cx) {
        let export = &mut self.exports[usize::from(at)];
        let Some(mut conn) = export.conn.take() else { return };
        std::mem::swap(conn.inflight(), &mut export.inflight);
        conn.close(export.config.drive, cx);
        close_kept(conn.number(), cx);
        self.hot.retain(|(e, _)| *e != at);
        for list in [&mut self.dirty, &mut self.talking, &mut self.doomed] {
            list.retain(|e| *e != at);
        }
        tracing::info!(socket = %export.config.path.display(), "front end disconnected");
        self.accept(at, cx);
    }

    fn doom(&mut self, at: u16) {
        if !self.doomed.contains(&at) {
            self.doomed.push(at);
        }
    }

    /// Reads what the front end has sent, as much as a turn may.
    fn listen_to(&mut self, at: u16, cx: &mut Cx) {
        let Some(conn) = &mut self.exports[usize::from(at)].conn else { return };
        match conn.read_messages() {
            Ok(more) => {
                if more && !self.talking.contains(&at) {
                    self.talking.push(at);
                }
            }
            Err(why) => {
                let path = &self.exports[usize::from(at)].config.path;
                if let Some(why) = why {
                    tracing::warn!(socket = %path.display(), "front end disconnected: {why}");
                }
                self.doom(at);
            }
        }
        self.act(at, cx);
    }

    /// Does what the device machine wants done.
    fn act(&mut self, at: u16, cx: &mut Cx) {
        let Export { config, conn: Some(conn), generation, .. } = &mut self.exports[usize::from(at)] else { return };
        let outcome = conn.act(config, owner(at, *generation), at, *generation, cx);
        for queue in outcome.poll {
            self.heat(at, queue, cx.now);
        }
        for found in &outcome.recovered {
            self.exports[usize::from(at)].recoveries.count(found);
        }
        if outcome.doomed {
            self.doom(at);
        }
    }

    /// A queue is polled from now on, and for a while.
    fn heat(&mut self, at: u16, queue: u16, now: Nanos) {
        if let Some(conn) = &mut self.exports[usize::from(at)].conn {
            if conn.heat(queue, now.saturating_add(HOT)) {
                self.hot.push((at, queue));
            }
        }
    }

    /// Takes requests from hot queues; true if there were any.
    pub fn poll(&mut self, cx: &mut Cx) -> bool {
        let mut busy = false;
        let mut i = 0;
        while let Some(&(at, queue)) = self.hot.get(i) {
            let Export { config, conn, .. } = &mut self.exports[usize::from(at)];
            let Some(conn) = conn else {
                self.hot.swap_remove(i);
                continue;
            };
            if conn.take(queue, config, cx) {
                busy = true;
                conn.keep_hot(queue, cx.now.saturating_add(HOT));
                if conn.mark_dirty(queue) {
                    self.dirty.push(at);
                }
            } else if conn.is_cold(queue, cx.now) && !conn.listen(queue) {
                self.hot.swap_remove(i);
                continue;
            }
            i += 1;
        }
        if self.look_at.is_some_and(|at| cx.now >= at) {
            self.follow_peers(cx);
        }
        for at in std::mem::take(&mut self.fenced) {
            self.accept(at, cx);
        }
        if !self.talking.is_empty() {
            busy = true;
            for at in std::mem::take(&mut self.talking) {
                self.listen_to(at, cx);
            }
        }
        busy
    }

    /// Whether there are rings that are looked at in every turn.
    #[inline]
    pub fn is_polled(&self) -> bool {
        !self.hot.is_empty()
    }

    /// Looks at the rings of hot queues again and again, and at nothing else, about [`LOOKS`] times in all; whether one has a request, which
    /// the next [`poll`](Self::poll) takes.
    #[inline]
    pub fn glance(&self) -> bool {
        let rounds = LOOKS / self.hot.len().max(1);
        let has_request = |(at, queue): &(u16, u16)| {
            self.exports[usize::from(*at)].conn.as_ref().is_some_and(|conn| conn.has_request(*queue))
        };
        (0..rounds).any(|_| self.hot.iter().any(has_request))
    }

    /// Looks up every front end's I/O priority that counts.
    #[cold]
    fn follow_peers(&mut self, cx: &mut Cx) {
        self.look_at = None;
        for Export { config, conn, .. } in &mut self.exports {
            if let Some(conn) = conn.as_mut().filter(|c| c.has_wishes()) {
                conn.follow_peer(config.drive, cx);
                self.look_at = Some(cx.now.saturating_add(LOOK_AGAIN));
            }
        }
    }

    /// Publishes completions and disconnects who must be; true if anything was done. [`Door::notify`] has to follow.
    pub fn flush(&mut self, cx: &mut Cx) -> bool {
        let mut busy = false;
        while let Some(at) = self.dirty.pop() {
            busy = true;
            let Some(conn) = &mut self.exports[usize::from(at)].conn else { continue };
            let until = cx.now.saturating_add(HOT);
            for queue in conn.publish() {
                if conn.heat(queue, until) {
                    self.hot.push((at, queue));
                }
            }
            self.unsignalled.push(at);
            if conn.settle() {
                self.act(at, cx);
                // What the front end sent behind the message that had to wait.
                self.listen_to(at, cx);
            }
        }
        while let Some(at) = self.doomed.pop() {
            busy = true;
            self.remove(at, cx);
        }
        busy
    }

    /// Signals the drivers that wait for what was published. Each decision waits until the published index has reached the other
    /// cores, so a client that polls has its answer, and the rest of the turn is done, before.
    #[inline]
    pub fn notify(&mut self) {
        while let Some(at) = self.unsignalled.pop() {
            if let Some(conn) = &mut self.exports[usize::from(at)].conn {
                conn.notify();
            }
        }
    }

    /// Before the shard sleeps: every queue is asked to kick; true if one has something already.
    pub fn arm(&mut self, _cx: &mut Cx) -> bool {
        let exports = &mut self.exports;
        self.hot.retain(|(at, queue)| exports[usize::from(*at)].conn.as_mut().is_some_and(|c| c.listen(*queue)));
        let fenced = !self.fenced.is_empty();
        fenced || !self.hot.is_empty() || !self.talking.is_empty() || !self.dirty.is_empty() || !self.doomed.is_empty()
    }

    /// When it must be polled although nothing comes.
    pub fn next_deadline(&self) -> Nanos {
        self.look_at.unwrap_or(Nanos::NEVER)
    }

    #[inline]
    fn conn(&mut self, owner: Owner) -> Option<(u16, &mut Conn)> {
        let (at, generation) = ((owner.0 & 0xfff) as u16, (owner.0 >> 12) as u16);
        let export = self.exports.get_mut(usize::from(at))?;
        if export.generation != generation { None } else { Some((at, export.conn.as_deref_mut()?)) }
    }

    /// The drive wants this connection closed.
    pub fn disconnect(&mut self, owner: Owner) {
        if let Some((at, _)) = self.conn(owner) {
            self.doom(at);
        }
    }

    /// A command is done.
    #[inline]
    pub fn respond(&mut self, owner: Owner, tag: Tag, cqe: &Cqe) {
        if let Some((at, conn)) = self.conn(owner) {
            if conn.complete(tag, cqe.status()) {
                self.dirty.push(at);
            }
        }
    }

    /// Copies the guest's bytes for a write.
    ///
    /// # Errors
    /// They are not in its memory.
    #[inline]
    pub fn read_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        match (self.conn(owner), data.as_tag()) {
            (Some((_, conn)), Some(tag)) => conn.read_data(tag, offset, into),
            _ => Err(Status::DATA_TRANSFER_ERROR),
        }
    }

    /// Copies bytes that were read to the guest.
    ///
    /// # Errors
    /// They have no place in its memory.
    #[inline]
    pub fn write_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        match (self.conn(owner), data.as_tag()) {
            (Some((_, conn)), Some(tag)) => conn.write_data(tag, offset, from),
            _ => Err(Status::DATA_TRANSFER_ERROR),
        }
    }
}

/// Tells the keeper that a front end of its own is to be disconnected.
fn close_kept(number: Option<u64>, cx: &Cx) {
    if let Some(Err(e)) = number.map(|number| cx.keep.say(&ToKeeper::Close(number), &[])) {
        tracing::error!("the keeper does not listen: {e}");
    }
}

/// A new connection on an export that has none.
fn connect(
    export: &Export,
    at: u16,
    socket: UnixStream,
    met: Option<Introduction>,
    cx: &mut Cx,
) -> Result<Conn, String> {
    let config = &export.config;
    let number = met.as_ref().map(|m| m.number);
    // At the other end of a stream of the keeper is the keeper.
    let front = match met {
        Some(met) => met.pid,
        None => sched::peer(&socket).map_err(|e| e.to_string())?.pid,
    };
    let host = match front {
        Some(pid) => format!("{} (process {pid})", config.path.display()),
        None => config.path.display().to_string(),
    };
    let owner = owner(at, export.generation);
    let attach = Attach { tenant: config.tenant, owner, model: TransportModel::Front, host };
    let disk = disk(config, cx);
    let machine = cx.drives.get(config.drive);
    let controller = machine.attach(cx.now, attach).map_err(|e| e.to_string())?;
    let from = if config.peer_class { ClassFrom::Peer } else { ClassFrom::Tenant };
    machine.set_controller_class_from(controller, Some(from)).map_err(|e| e.to_string())?;
    let pid = front.filter(|_| config.peer_class);
    tracing::info!(socket = %config.path.display(), pid = ?front, tenant = config.tenant_name, "front end connected");
    let name = encode(at, export.generation, Watched::Socket);
    match Conn::new(socket, name, disk, controller, pid, cx) {
        Ok(conn) => Ok(conn.numbered(number, number.map(|n| handover::begun(n, cx)).unwrap_or_default())),
        Err(e) => {
            cx.drives.get(config.drive).detach(cx.now, controller);
            Err(e.to_string())
        }
    }
}

/// What the guest sees of the drive.
fn disk(config: &ExportConfig, cx: &mut Cx) -> Disk {
    let device = cx.drives.device(config.drive);
    let block = device.block_size();
    Disk {
        block_shift: block.trailing_zeros() as u8,
        read_only: config.read_only,
        queues: config.queues.clamp(1, Disk::MAX_QUEUES),
        max_transfer: MAX_TRANSFER,
        journal: config.journal,
        medium: device.medium(),
        max_commands: u32::from(config.queue_depth),
        ..Disk::new(device.capacity(), &config.serial)
    }
}
