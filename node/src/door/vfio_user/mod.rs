//! The vfio-user door: a listening socket for each export, one client at a time on each, and behind it a PCIe drive.
//!
//! ```text
//!   Export: listener ─accept─► Conn: socket ─messages─► Device ─Action─► replies, register writes, eventfds, resets
//!      │ controller                  doorbells ──look──► arrivals
//!      ▼                             Host::fetch, read_data, write_data ─► the client's memory
//!   Subsystem ──Host::post──► the client's completion queues, vectors due ──flush──► one signal a vector and turn
//! ```
//! An export has its controller for as long as it lives, whoever comes and goes: a client finds it as after power-on, under the
//! same controller identifier.
//!
//! **Doorbells** lie in memory that the client maps (`mmap`), or are messages (`trap`). A store to mapped memory wakes nobody: so
//! with `auto` a client's doorbells are looked at in every turn while it is hot, that is until [`HOT`] after its last command or
//! completion, and the shard does not sleep meanwhile; after that all of them are looked at together every [`LOOK`], in one pass
//! over the words alone, which is no turn of the shard where none has changed, and every [`DOZE`] when nobody has rung for
//! [`QUIET`]. With `mmap` they are always hot while their
//! controller is enabled, which costs the core. A client that maps nothing sends messages in every mode. Shadow doorbells are
//! looked at while hot; before that ends their host is asked to ring, and what stands in the mapped doorbells of its queues is
//! made something that nobody rings, so that every ring is a change.
//! Queues beyond the first [`EVERY_TURN`](conn::EVERY_TURN) that rang nothing lately are looked at in turns, some in each, so that a thousand idle
//! ones cost the others little.
//!
//! The door sets doorbells to 0 where queues have gone, before it looks at any: a host may make a queue anew only when it has
//! seen that the old one is gone.
//!
//! **Order.** Messages are handled as they come. A register write has its effect when the drives run, behind the doors; what
//! reads registers, or changes something else, waits until then ([`Device::must_follow`]). Replies leave in `flush`.
//!
//! The client goes, its commands die: the controller is reset, its memory unmapped, and the socket accepts the next client. A
//! second client while there is one is turned away. An eventfd that a client hands over is never read or written in a way that
//! could block the shard, and neither is its socket.

mod client_memory;
mod conn;
mod crash_recovery;
mod drive_requests;
pub(crate) mod folder;
mod handover;
mod held_names;
mod message_dma;
mod watched;

use crate::door::context::Cx;
use crate::listen::{self, BindError};
use crate::throttle::throttled;
use crate::tokens::{self, Kind};
use conn::Conn;
pub use handover::resume_functions;
use std::io::ErrorKind;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use watched::{Watched, decode, encode};
use weir_config::Doorbells;
use weir_controller::{Attach, ClassFrom, ControllerHandle, Owner, TransportModel};
use weir_session::vfio_user::DeviceShape;
use weir_sys::memory::doorbells::Sleepers;
use weir_sys::reactor::{Ready, WAKE_MARGIN, WatchId};
use weir_sys::sched;
use weir_units::Nanos;

/// How long mapped doorbells are looked at in every turn after something happened.
const HOT: Nanos = Nanos::from_millis(10);
/// How often they are looked at otherwise: who rings then is heard within 1.5 ms.
const LOOK: Nanos = Nanos::from_micros(1400);
/// The same when none of them was rung for [`QUIET`]. What it costs is the timer that wakes the thread, so only fewer looks cost
/// less; it is what a drive takes that has gone by itself to a power state with 5 ms of exit latency.
const DOZE: Nanos = Nanos::from_millis(5);
/// How long none was rung before looks become rare: the 50 exit latencies after which Linux has a drive change its power state
/// (Autonomous Power State Transition).
const QUIET: Nanos = Nanos::from_millis(250);
/// How long a client's I/O priority counts as what it was.
const LOOK_AGAIN: Nanos = Nanos::from_millis(500);
/// Permissions of a socket: the owner and the group, which is how a virtual machine monitor of another user is let in.
const MODE: u32 = 0o660;

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
    /// Who decides the class of its queues.
    pub class_from: ClassFrom,
    /// How doorbells come.
    pub doorbells: Doorbells,
    /// The device's serial number in configuration space.
    pub serial: u64,
    /// What is in flight is journalled, and its client goes on when the process that serves it is killed.
    pub journal: bool,
}

struct Export {
    config: ExportConfig,
    listener: Option<(UnixListener, WatchId)>,
    controller: ControllerHandle,
    conn: Option<Box<Conn>>,
    /// Counts clients: a token of an earlier one is nobody's.
    generation: u16,
}

/// See the [module](self).
#[derive(Default)]
pub struct Door {
    exports: Vec<Option<Export>>,
    /// Exports whose doorbells are looked at in every turn.
    hot: Vec<u16>,
    /// Exports with mapped doorbells that are looked at now and then.
    cold: Vec<u16>,
    /// When the cold ones are looked at.
    look_at: Nanos,
    /// When one of them was rung last, or became cold.
    rang_at: Nanos,
    /// Their doorbells, for one pass over all of them.
    sleepers: Sleepers,
    /// Somebody has come to them or gone.
    stale: bool,
    /// Those whose doorbells have been rung.
    woken: Vec<u16>,
    /// Exports with something to flush.
    dirty: Vec<u16>,
    /// Exports whose socket has more to read, or that have read what must wait.
    talking: Vec<u16>,
    /// Exports whose client is to be disconnected.
    doomed: Vec<u16>,
    /// When the clients' I/O priorities are looked up, if any counts.
    peers_at: Option<Nanos>,
    /// When it is looked who is late.
    late_at: Nanos,
}

fn owner(export: u16) -> Owner {
    tokens::owner(Kind::VfioUser, export.into())
}

const MAX_EXPORTS: usize = 1 << 12;

/// One export that exists; a macro because it borrows a single field of the door.
macro_rules! export {
    ($door:ident, $at:expr) => {
        $door.exports.get_mut(usize::from($at)).and_then(Option::as_mut)
    };
}
use export;

impl Door {
    /// A door without exports.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens on an export's socket, with a controller of the drive behind it.
    ///
    /// # Errors
    /// Somebody else listens there, the path is not to be had, or the drive has as many controllers as it may have.
    pub fn export(&mut self, config: ExportConfig, cx: &mut Cx) -> Result<(), BindError> {
        let address = config.path.display().to_string();
        let fail = |error| BindError::Io { address: address.clone(), error };
        let at = self.exports.iter().position(Option::is_none).unwrap_or(self.exports.len());
        if at == MAX_EXPORTS {
            return Err(fail(std::io::Error::other(format!("a shard has at most {MAX_EXPORTS} vfio-user exports"))));
        }
        let at = at as u16;
        folder::prepare(&config.path).map_err(fail)?;
        let path = config.path.clone();
        let exported = match config.journal && cx.keep.is_kept() {
            true => self.export_live(config, at, cx),
            false => self.export_here(config, at, cx),
        };
        if exported.is_ok() {
            folder::offer(&path);
        }
        exported
    }

    fn put(&mut self, at: u16, export: Export) {
        if usize::from(at) == self.exports.len() {
            self.exports.push(None);
        }
        self.exports[usize::from(at)] = Some(export);
    }

    /// Ends the export at a socket: its client is disconnected, its controller is gone. False if there is none.
    pub fn unexport(&mut self, path: &std::path::Path, cx: &mut Cx) -> bool {
        let is = |e: &Option<Export>| e.as_ref().is_some_and(|e| e.config.path == path);
        let Some(at) = self.exports.iter().position(is) else { return false };
        self.close_listener(at as u16, cx);
        self.remove(at as u16, cx);
        if let Some(export) = self.exports[at].take() {
            if export.config.journal && cx.keep.is_kept() {
                crash_recovery::give_up(&export.config, cx);
            }
            cx.drives.get(export.config.drive).detach(cx.now, export.controller);
        }
        true
    }

    fn close_listener(&mut self, at: u16, cx: &mut Cx) {
        let Some(export) = export!(self, at) else { return };
        if let Some((_, watch)) = export.listener.take() {
            cx.reactor.unwatch(watch);
            folder::withdraw(&export.config.path);
            listen::remove_unix(cx.keep, &export.config.path);
        }
    }

    /// No more clients; the sockets' paths are free again.
    pub fn close_listeners(&mut self, cx: &mut Cx) {
        (0..self.exports.len() as u16).for_each(|at| self.close_listener(at, cx));
    }

    /// Closes everything.
    pub fn close(&mut self, cx: &mut Cx) {
        self.close_listeners(cx);
        (0..self.exports.len() as u16).for_each(|at| self.remove(at, cx));
    }

    /// Whether it has an export there.
    pub fn knows(&self, path: &std::path::Path) -> bool {
        self.exports.iter().flatten().any(|e| e.config.path == path)
    }

    /// Every socket and whether it has a client.
    pub fn clients(&self) -> Vec<(PathBuf, u32)> {
        self.exports.iter().flatten().map(|e| (e.config.path.clone(), u32::from(e.conn.is_some()))).collect()
    }

    /// A watched descriptor is ready.
    pub fn ready(&mut self, rest: u64, ready: &Ready, cx: &mut Cx) {
        let (at, generation, what) = decode(rest);
        let Some(export) = export!(self, at) else { return };
        if what == Watched::Listener {
            return self.accept(at, cx);
        }
        let Some(conn) = export.conn.as_mut().filter(|c| export.generation == generation && c.is_watch(ready)) else {
            return;
        };
        match what {
            Watched::Output => {
                conn.output_ready();
                self.soil(at);
            }
            _ => self.listen_to(at, cx),
        }
    }

    /// Takes a client in, if there is none; turns others away.
    fn accept(&mut self, at: u16, cx: &mut Cx) {
        loop {
            let Some(export) = export!(self, at) else { return };
            let Some((listener, _)) = &export.listener else { return };
            let accepted = listener.accept();
            // After it: a client that comes again has closed before it connected.
            if accepted.is_ok() && export.conn.as_ref().is_some_and(|conn| conn.has_gone()) {
                self.end(at, cx);
            }
            let Some(export) = export!(self, at) else { return };
            let path = &export.config.path;
            match accepted {
                Ok((socket, _)) if export.conn.is_some() => {
                    let pid = sched::peer(&socket).ok().and_then(|p| p.pid);
                    throttled!(
                        cx.now,
                        "client turned away: the drive has one already",
                        tracing::warn!(socket = %path.display(), ?pid, "client turned away: the drive has one already")
                    );
                }
                Ok((socket, _)) => {
                    export.generation = export.generation.wrapping_add(1);
                    match connect(export, at, socket, cx) {
                        Ok(conn) => {
                            if conn.has_wishes() {
                                self.peers_at.get_or_insert(cx.now.saturating_add(LOOK_AGAIN));
                            }
                            export.conn = Some(Box::new(conn));
                            self.listen_to(at, cx);
                        }
                        Err(e) => throttled!(
                            cx.now,
                            "client refused",
                            tracing::warn!(socket = %path.display(), "client refused: {e}")
                        ),
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted || e.kind() == ErrorKind::ConnectionAborted => {}
                Err(e) => return tracing::error!(socket = %path.display(), "cannot accept: {e}"),
            }
        }
    }

    /// Ends a connection, and takes in the next client, if there is one.
    fn remove(&mut self, at: u16, cx: &mut Cx) {
        if self.end(at, cx) {
            self.accept(at, cx);
        }
    }

    /// Ends a connection: its commands die silently. False if there is none.
    fn end(&mut self, at: u16, cx: &mut Cx) -> bool {
        let Some(export) = export!(self, at) else { return false };
        let Some(mut conn) = export.conn.take() else { return false };
        conn.close(cx);
        conn.give_up(cx);
        reset(export, cx);
        for list in
            [&mut self.hot, &mut self.cold, &mut self.woken, &mut self.dirty, &mut self.talking, &mut self.doomed]
        {
            list.retain(|e| *e != at);
        }
        self.stale = true;
        tracing::info!(socket = %export.config.path.display(), "client disconnected");
        true
    }

    fn doom(&mut self, at: u16) {
        if !self.doomed.contains(&at) {
            self.doomed.push(at);
        }
    }

    fn soil(&mut self, at: u16) {
        if !self.dirty.contains(&at) {
            self.dirty.push(at);
        }
    }

    /// Reads what the client has sent, as much as a turn may.
    fn listen_to(&mut self, at: u16, cx: &mut Cx) {
        let Some(export) = export!(self, at) else { return };
        let Export { config, conn: Some(conn), controller, .. } = export else { return };
        let heard = conn.listen(config.drive, *controller, cx);
        if heard.reset {
            reset(export, cx);
        }
        if heard.more && !self.talking.contains(&at) {
            self.talking.push(at);
        }
        if let Some(why) = heard.over {
            let Some(export) = export!(self, at) else { return };
            if let Some(why) = why {
                throttled!(
                    cx.now,
                    "client disconnected",
                    tracing::warn!(socket = %export.config.path.display(), "client disconnected: {why}")
                );
            }
            self.doom(at);
        }
        self.soil(at);
        self.heat(at, cx.now);
    }

    /// Mapped doorbells are looked at in every turn from now on, and for a while.
    fn heat(&mut self, at: u16, now: Nanos) {
        let Some(Export { conn: Some(conn), .. }) = export!(self, at) else { return };
        if conn.heat(now.saturating_add(HOT)) {
            self.rang_at = now;
            self.cold.retain(|e| *e != at);
            self.stale = true;
            self.hot.push(at);
        }
    }

    /// Takes doorbells and messages; true if there were any.
    pub fn poll(&mut self, cx: &mut Cx) -> bool {
        let mut busy = false;
        if !self.talking.is_empty() {
            self.follow_buffers(cx);
        }
        if cx.now >= self.late_at {
            self.give_up_late(cx.now);
        }
        // Doorbells before messages: a queue that a message finds gone had its doorbells cleared.
        let mut i = 0;
        while let Some(&at) = self.hot.get(i) {
            let Some(Export { config, conn: Some(conn), controller, .. }) = export!(self, at) else {
                self.hot.swap_remove(i);
                continue;
            };
            let rung = conn.look(config.drive, *controller, cx);
            if conn.asks() && !self.dirty.contains(&at) {
                self.dirty.push(at);
            }
            if rung {
                busy = true;
                conn.heat(cx.now.saturating_add(HOT));
            } else if conn.is_cold(config.doorbells, cx.now) {
                if conn.has_come(config.drive, *controller, cx) {
                    busy = true;
                    conn.heat(cx.now.saturating_add(HOT));
                    continue;
                }
                conn.cool();
                self.rang_at = cx.now;
                self.hot.swap_remove(i);
                if conn.is_rung() {
                    self.cold.push(at);
                    self.stale = true;
                }
                continue;
            }
            i += 1;
        }
        if cx.now.saturating_add(WAKE_MARGIN) >= self.look_at && !self.cold.is_empty() {
            self.glance(cx.now);
        }
        if !self.woken.is_empty() {
            busy |= self.wake(cx);
        }
        if self.peers_at.is_some_and(|at| cx.now >= at) {
            self.follow_peers(cx);
        }
        if !self.talking.is_empty() {
            busy = true;
            for at in std::mem::take(&mut self.talking) {
                if let Some(Export { conn: Some(conn), .. }) = export!(self, at) {
                    conn.registers_are_written();
                }
                self.listen_to(at, cx);
            }
        }
        busy
    }

    /// Where those who have written registers see their memory buffers.
    #[cold]
    fn follow_buffers(&mut self, cx: &mut Cx) {
        for at in self.talking.iter() {
            if let Some(Export { conn: Some(conn), config, controller, .. }) = export!(self, *at) {
                conn.follow_buffer(config.drive, *controller, cx);
            }
        }
    }

    /// When the doorbells that are not looked at in every turn are looked at.
    pub fn look_at(&self) -> Nanos {
        if self.cold.is_empty() { Nanos::NEVER } else { self.look_at }
    }

    /// Looks at those doorbells, and at nothing else; whether some have been rung, whose commands the next [`poll`](Self::poll)
    /// takes.
    pub fn glance(&mut self, now: Nanos) -> bool {
        let is_quiet = now >= self.rang_at.saturating_add(QUIET);
        self.look_at = now.saturating_add(if is_quiet { DOZE } else { LOOK });
        if std::mem::take(&mut self.stale) {
            self.sleepers.clear();
            for at in &self.cold {
                if let Some(Export { conn: Some(conn), .. }) = export!(self, *at) {
                    conn.lie_down(*at, &mut self.sleepers);
                }
            }
        }
        self.sleepers.changed(&mut self.woken)
    }

    /// Takes the commands of those whose doorbells have been rung.
    #[cold]
    fn wake(&mut self, cx: &mut Cx) -> bool {
        // What stands in their doorbells is known anew.
        self.stale = true;
        let mut busy = false;
        let mut woken = std::mem::take(&mut self.woken);
        for at in woken.drain(..) {
            let Some(Export { config, conn: Some(conn), controller, .. }) = export!(self, at) else { continue };
            let (rung, asks) = (conn.look_at_all(config.drive, *controller, cx), conn.asks());
            if asks {
                self.soil(at);
            }
            if rung {
                busy = true;
                self.heat(at, cx.now);
            }
        }
        self.woken = woken;
        busy
    }

    /// Looks up every client's I/O priority that counts.
    #[cold]
    fn follow_peers(&mut self, cx: &mut Cx) {
        self.peers_at = None;
        for export in self.exports.iter_mut().flatten() {
            if let Some(conn) = export.conn.as_mut().filter(|c| c.has_wishes()) {
                conn.follow_peer(export.config.drive, export.controller, cx);
                self.peers_at = Some(cx.now.saturating_add(LOOK_AGAIN));
            }
        }
    }

    /// Signals vectors, sends replies, and disconnects who must be; true if anything was done.
    pub fn flush(&mut self, cx: &mut Cx) -> bool {
        let mut busy = false;
        while let Some(at) = self.dirty.pop() {
            busy = true;
            let Some(Export { conn: Some(conn), generation, config, controller, .. }) = export!(self, at) else {
                continue;
            };
            let output = encode(at, *generation, Watched::Output);
            conn.publish((config.drive, *controller), false, cx);
            if !conn.flush(output, cx) {
                self.doom(at);
            } else if conn.is_to_be_read() && !self.talking.contains(&at) {
                self.talking.push(at);
            }
            self.heat(at, cx.now);
        }
        while let Some(at) = self.doomed.pop() {
            busy = true;
            self.remove(at, cx);
        }
        busy
    }

    /// Before the shard sleeps: true if it must not.
    pub fn arm(&mut self, cx: &mut Cx) -> bool {
        self.give_up_late(cx.now);
        !self.hot.is_empty() || !self.talking.is_empty() || !self.dirty.is_empty() || !self.doomed.is_empty()
    }

    /// Disconnects who takes no answers, or owes some, for too long.
    #[cold]
    fn give_up_late(&mut self, now: Nanos) {
        self.late_at = now.saturating_add(HOT);
        for at in 0..self.exports.len() as u16 {
            let Some(Export { conn: Some(conn), config, .. }) = export!(self, at) else { continue };
            if conn.is_late(now) {
                tracing::warn!(socket = %config.path.display(), "client disconnected: it takes no answers, or gives none");
                self.doom(at);
            }
        }
    }

    /// When it must be polled although nothing comes; doorbells apart ([`look_at`](Self::look_at)).
    pub fn next_deadline(&self) -> Nanos {
        let late = self.exports.iter().flatten().filter_map(|e| e.conn.as_ref()).map(|c| c.deadline());
        late.fold(self.peers_at.unwrap_or(Nanos::NEVER), Nanos::min)
    }
}

/// A new controller behind a socket.
fn attach(config: &ExportConfig, at: u16, cx: &mut Cx) -> Result<ControllerHandle, weir_controller::ManagementError> {
    let host = config.path.display().to_string();
    let drive = cx.drives.get(config.drive);
    let attach = Attach { tenant: config.tenant, owner: owner(at), model: TransportModel::Rings, host };
    drive.attach(cx.now, attach)
}

/// The controller is as after power-on, and nothing that was rung or written before counts, also in this turn: a write that had its
/// effect after the reset would be the next client's.
fn reset(export: &mut Export, cx: &mut Cx) {
    let (drive, controller) = (export.config.drive, export.controller);
    cx.arrivals.retain(|arrival| arrival.drive != drive || arrival.event.controller() != Some(controller));
    cx.drives.get(drive).reset_function(cx.now, controller);
    if let Some(conn) = &mut export.conn {
        conn.is_reset();
    }
}

/// A new connection on an export that has none.
fn connect(export: &Export, at: u16, socket: UnixStream, cx: &mut Cx) -> Result<Conn, String> {
    let config = &export.config;
    let peer = sched::peer(&socket).map_err(|e| e.to_string())?;
    let pid = peer.pid.filter(|_| config.class_from == ClassFrom::Peer);
    tracing::info!(socket = %config.path.display(), pid = ?peer.pid, tenant = config.tenant_name, "client connected");
    let name = encode(at, export.generation, Watched::Input);
    let mut conn = Conn::new(socket, name, shape(config, cx), pid, cx).map_err(|e| e.to_string())?;
    conn.follow_peer(config.drive, export.controller, cx);
    Ok(conn)
}

/// What an export's device shows.
fn shape(config: &ExportConfig, cx: &Cx) -> DeviceShape {
    let drive = cx.drives.machine(config.drive).config();
    DeviceShape {
        // One for each queue and one for the admin queue.
        vectors: drive.max_io_queues.saturating_add(1),
        mapped_doorbells: config.doorbells != Doorbells::Trap,
        buffer: drive.cmb,
        serial: config.serial,
    }
}
