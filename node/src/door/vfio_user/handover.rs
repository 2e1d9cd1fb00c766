//! Clients that go to another process while their machines run: the keeper holds each one's socket, the memory files that it maps, the
//! descriptors that it has handed over, and the state of its device; and of each drive the controllers behind them.
//!
//! ```text
//!   leave:  Subsystem::functions ─► hold      Conn::leave ─► hold(socket, state, doorbells, memory buffer), hold(descriptors), …
//!   export: Subsystem::resume_functions ─► claim_function ─► Conn::resume ─► go on; or the controller is reset, and the client gone
//! ```
//! A client whose commands did not end in time cannot be carried: it is disconnected with the end of the process.

use super::conn::{Conn, Found};
use super::{Door, Export, ExportConfig, LOOK_AGAIN, MODE, Watched, attach, crash_recovery, encode, owner, shape};
use crate::door::begun;
use crate::door::context::Cx;
use crate::held_names::SOCKETS;
use crate::listen::{self, BindError};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use weir_controller::{Begun, ClassFrom, ControllerHandle, ManagementError, Subsystem};
use weir_sys::keeper_channel::{self, Keep};
use weir_sys::reactor::{Interest, Mode};
use weir_sys::sched;
use weir_sys::transport::fds::MAX_FDS;
use weir_units::Nanos;

/// Names of a drive's controllers: its NQN follows.
const FUNCTIONS: &str = "passing:vfio-user-functions:";
/// Names of clients: the path of the socket follows.
const CLIENTS: &str = "passing:vfio-user-client:";

/// Names of what a client has under way at the drive: the path of the socket follows.
const BEGUN: &str = "passing:vfio-user-begun:";

/// What the process before had begun for the client at a socket.
pub(super) fn begun(path: &str, cx: &Cx) -> Vec<Begun> {
    begun::take(&format!("{BEGUN}{path}"), cx.keep)
}

/// The name of a client's descriptors, so many at a time.
fn files(n: usize, path: &str) -> String {
    format!("passing:vfio-user-files:{n}:{path}")
}

/// Gives a drive the controllers of its vfio-user exports that another process has left, before anybody else can have their
/// identifiers. The keeper lets go of them before any thread serves them: what happens from then on happens once.
pub fn resume_functions(machine: &mut Subsystem, now: Nanos, keep: &Keep) {
    let name = format!("{FUNCTIONS}{}", machine.config().subnqn);
    let Some(file) = keep.take_one(&name) else { return };
    let resumed = keep.let_go(&name).and_then(|()| keeper_channel::contents(file)).map_err(|e| e.to_string());
    let resumed = resumed.and_then(|bytes| machine.resume_functions(now, &bytes).map_err(|e| e.to_string()));
    match resumed {
        Ok(0) => {}
        Ok(lost) => tracing::error!(lost, "{name}: controllers that cannot be taken over"),
        Err(e) => tracing::error!("{name}: cannot be taken over: {e}"),
    }
}

/// What was left of the client at a socket.
fn found(keep: &Keep, path: &str) -> io::Result<Option<Found>> {
    let name = format!("{CLIENTS}{path}");
    let client = keep.take(&name);
    let mut all = Vec::new();
    for n in 0.. {
        let name = files(n, path);
        let Some(fds) = keep.take(&name) else { break };
        keep.let_go(&name)?;
        all.extend(fds);
    }
    let Some(client) = client else { return Ok(None) };
    keep.let_go(&name)?;
    let mut client = client.into_iter();
    let (Some(state), Some(socket)) = (client.next(), client.next()) else { return Ok(None) };
    let (socket, state) = (UnixStream::from(socket), keeper_channel::contents(state)?);
    Ok(Some(Found { socket, state, shared: client.collect::<Vec<OwnedFd>>(), files: all }))
}

impl Door {
    /// Says of each client's controller whether who serves it next goes on with what the drive has begun.
    pub fn mark_begun(&mut self, cx: &mut Cx) {
        for Export { config, conn, controller, .. } in self.exports.iter().flatten() {
            let goes_on = conn.as_ref().is_some_and(|conn| conn.can_pass_on());
            cx.drives.to_poll(config.drive).set_goes_on(*controller, goes_on);
        }
    }

    /// Has the keeper hold every client that can be carried, and the controllers behind them; the drives that have such exports. Nothing
    /// is done with the clients any more.
    pub fn leave(&mut self, cx: &mut Cx) -> Vec<u32> {
        if !cx.keep.is_kept() {
            return Vec::new();
        }
        let mut drives: Vec<u32> = self.exports.iter().flatten().map(|e| e.config.drive).collect();
        drives.sort_unstable();
        drives.dedup();
        // What was ready for commands that the drive has not fetched yet stays here: they are shown to the next one when it is ready again.
        for Export { config, conn, controller, .. } in self.exports.iter_mut().flatten() {
            if let Some(conn) = conn {
                conn.untell(config.drive, *controller, cx);
            }
        }
        for drive in &drives {
            let machine = cx.drives.machine(*drive);
            let (name, bytes) = (format!("{FUNCTIONS}{}", machine.config().subnqn), machine.functions(cx.now));
            let held =
                keeper_channel::sealed("functions", &bytes).and_then(|file| cx.keep.hold(&name, &[file.as_fd()]));
            if let Err(e) = held {
                tracing::error!("{name}: cannot be handed over: {e}");
            }
        }
        for Export { config, conn, controller, .. } in self.exports.iter_mut().flatten() {
            let Some(conn) = conn else { continue };
            let socket = config.path.display();
            if conn.client().is_some() {
                if cx.drives.machine(config.drive).carries_function(*controller) {
                    conn.publish((config.drive, *controller), true, cx);
                }
                // Otherwise it goes on as if this process had been killed now, but for when its commands are due.
                let list = cx.drives.machine(config.drive).begun(*controller);
                begun::hold(&format!("{BEGUN}{socket}"), &list, cx);
                continue;
            }
            if !cx.drives.machine(config.drive).carries_function(*controller) {
                tracing::warn!(%socket, "the client cannot be handed over, its commands have not ended; it is disconnected");
            } else if let Err(e) = hand_on(conn, &socket.to_string(), cx) {
                tracing::error!(%socket, "the client cannot be handed over, and is disconnected: {e}");
            }
        }
        drives
    }

    /// An export whose clients come to this process.
    pub(super) fn export_here(&mut self, config: ExportConfig, at: u16, cx: &mut Cx) -> Result<(), BindError> {
        let address = config.path.display().to_string();
        let fail = |error| BindError::Io { address: address.clone(), error };
        let listener = listen::keep_door(cx.keep, SOCKETS, &config.path, MODE)?;
        let listener = listener.ok_or_else(|| fail(ErrorKind::UnexpectedEof.into()))?;
        listener.set_nonblocking(true).map_err(fail)?;
        crash_recovery::forget(&address, cx).map_err(fail)?;
        let (controller, client) = Self::take_up(&config, at, cx).map_err(|e| {
            let _ = std::fs::remove_file(&config.path);
            fail(std::io::Error::other(e.to_string()))
        })?;
        let watch = cx.reactor.watch(&listener, Interest::READ, Mode::Edge, encode(at, 0, Watched::Listener));
        self.put(at, Export { config, listener: Some((listener, watch)), controller, conn: None, generation: 0 });
        if let Some(client) = client {
            self.go_on(at, client, cx);
        }
        Ok(())
    }

    /// The controller behind a new export: the one that another process had there, with its client if it had one, or a new one.
    pub(super) fn take_up(
        config: &ExportConfig,
        at: u16,
        cx: &mut Cx,
    ) -> Result<(ControllerHandle, Option<Conn>), ManagementError> {
        let socket = config.path.display().to_string();
        let now = cx.now;
        resume_functions(cx.drives.get(config.drive), now, cx.keep);
        let claimed = cx.drives.get(config.drive).claim_function(&socket, config.tenant, owner(at));
        let controller = match claimed {
            Some(controller) => controller,
            None => attach(config, at, cx)?,
        };
        cx.drives.get(config.drive).set_controller_class_from(controller, Some(config.class_from))?;
        let client = match (found(cx.keep, &socket), claimed) {
            (Ok(None), _) => Ok(None),
            (Ok(Some(_)), None) => Err("its controller has gone".to_owned()),
            (Ok(Some(found)), Some(_)) => resume(found, config, at, cx).map(Some),
            (Err(e), _) => Err(e.to_string()),
        };
        let client = client.unwrap_or_else(|why| {
            tracing::error!(socket, "the client cannot be taken over, and is disconnected: {why}");
            None
        });
        if client.is_none() && claimed.is_some() {
            cx.drives.get(config.drive).reset_function(now, controller);
        }
        Ok((controller, client))
    }

    /// Goes on with a client that another process has left.
    pub(super) fn go_on(&mut self, at: u16, mut conn: Conn, cx: &mut Cx) {
        let Some(export) = self.exports.get_mut(usize::from(at)).and_then(Option::as_mut) else { return };
        conn.go_on(export.config.drive, export.controller, cx);
        conn.follow_peer(export.config.drive, export.controller, cx);
        if conn.has_wishes() {
            self.peers_at.get_or_insert(cx.now.saturating_add(LOOK_AGAIN));
        }
        export.conn = Some(Box::new(conn));
        // What it has sent meanwhile is read in the next turn.
        self.talking.push(at);
        self.soil(at);
        self.heat(at, cx.now);
    }
}

fn hand_on(conn: &mut Conn, path: &str, cx: &Cx) -> io::Result<()> {
    let Some(left) = conn.leave(cx.now) else { return Ok(()) };
    for (n, some) in left.files().chunks(MAX_FDS).enumerate() {
        cx.keep.hold(&files(n, path), some)?;
    }
    let state = keeper_channel::sealed("vfio-user-client", &left.state)?;
    // Last: what is there by this name is whole.
    let all: Vec<BorrowedFd> = std::iter::once(state.as_fd()).chain(left.shared.iter().copied()).collect();
    cx.keep.hold(&format!("{CLIENTS}{path}"), &all)
}

fn resume(found: Found, config: &ExportConfig, at: u16, cx: &mut Cx) -> Result<Conn, String> {
    let peer = sched::peer(&found.socket).map_err(|e| e.to_string())?;
    let pid = peer.pid.filter(|_| config.class_from == ClassFrom::Peer);
    let conn = Conn::resume(found, encode(at, 0, Watched::Input), shape(config, cx), pid, cx)?;
    tracing::info!(socket = %config.path.display(), pid = ?peer.pid, tenant = config.tenant_name, "client taken over");
    Ok(conn)
}
