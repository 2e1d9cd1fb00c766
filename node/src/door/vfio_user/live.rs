//! Exports whose sockets the keeper has: their clients go on when this process is killed.

use super::conn::{Conn, Found, Line, Live, Rings};
use super::kept::{LIVE_CLIENTS, live_files};
use super::{Door, Export, ExportConfig, MODE, Watched, attach, encode, export, owner, resume_functions, shape};
use crate::door::Cx;
use crate::holder;
use crate::keeper::{RELAYS, SOCKETS};
use rustix::io::pread;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use weir_controller::{ClassFrom, ControllerHandle};
use weir_session::vfio_user::checkpoint::{Checkpoint, HEAD, length, place};
use weir_sys::crc::Crc32c;
use weir_sys::keep::{Introduction, ToKeeper};

fn name(config: &ExportConfig) -> String {
    format!("{RELAYS}{}", config.path.display())
}

/// The keeper listens there no more.
pub(super) fn give_up(config: &ExportConfig, cx: &Cx) {
    let _ = cx.keep.release(&name(config));
    let _ = std::fs::remove_file(&config.path);
}

/// What the process before has left of a client.
struct Left {
    file: OwnedFd,
    /// The memory files that the client maps; the last one is its queues' journal.
    shared: Vec<OwnedFd>,
    generation: u64,
    checkpoint: Checkpoint,
    files: Vec<OwnedFd>,
}

/// The bytes of a slot of a file of checkpoints, as far as it may have any.
fn slot(file: &OwnedFd, which: u64) -> io::Result<Vec<u8>> {
    let (mut head, at) = ([0; HEAD], place(which));
    if pread(file, &mut head, at)? < HEAD {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; length(&head)];
    let mut have = 0;
    while have < bytes.len() {
        match pread(file, &mut bytes[have..], at + have as u64)? {
            0 => break,
            n => have += n,
        }
    }
    bytes.truncate(have);
    Ok(bytes)
}

/// Finds it; the keeper forgets what it does not name.
fn find(path: &str, cx: &Cx) -> io::Result<Option<Left>> {
    let client = cx.keep.take(&format!("{LIVE_CLIENTS}{path}"));
    let begin = live_files(path);
    let mut files = cx.keep.take_all(&begin);
    let mut shared = client.into_iter().flatten();
    let file = shared.next();
    let newest = match &file {
        Some(file) => {
            let (even, odd) = (slot(file, 0)?, slot(file, 1)?);
            Checkpoint::newest::<Crc32c>([&even, &odd]).map_err(io::Error::other)?
        }
        None => None,
    };
    let names = newest.as_ref().map_or(&[][..], |(_, checkpoint)| &checkpoint.files);
    let mut taken = Vec::new();
    for name in names {
        let name = format!("{begin}{name}");
        let at = files.iter().position(|(held, _)| *held == name);
        let fd = at.and_then(|at| files.swap_remove(at).1.into_iter().next());
        taken.push(fd.ok_or_else(|| io::Error::other(format!("{name} is missing")))?);
    }
    for (name, _) in files {
        cx.keep.release(&name)?;
    }
    let (Some(file), Some((generation, checkpoint))) = (file, newest) else { return Ok(None) };
    Ok(Some(Left { file, shared: shared.collect(), generation, checkpoint, files: taken }))
}

impl Door {
    /// An export whose clients the keeper lets in.
    pub(super) fn export_live(&mut self, config: ExportConfig, at: u16, cx: &mut Cx) -> io::Result<()> {
        let name = name(&config);
        let socket = config.path.display().to_string();
        // Held already, by the worker before this one.
        if cx.keep.take(&name).is_none() {
            let before = format!("{SOCKETS}{socket}");
            let listener = match cx.keep.take_one(&before) {
                // It was one that does not go on.
                Some(listener) => {
                    cx.keep.release(&before)?;
                    listener
                }
                None => holder::listen_unix(&config.path, MODE).map_err(io::Error::other)?.into(),
            };
            cx.keep.hold(&name, &[listener.as_fd()])?;
        }
        let other = |e: weir_controller::Error| io::Error::other(e.to_string());
        let left = find(&socket, cx).unwrap_or_else(|e| {
            tracing::error!(socket, "what was written of the client cannot be read, and it is disconnected: {e}");
            None
        });
        let (controller, client) = match left {
            Some(left) => Self::take_up_live(left, &config, at, cx).map_err(other)?,
            None => Self::take_up(&config, at, cx).map_err(other)?,
        };
        cx.drives.get(config.drive).set_controller_class_from(controller, Some(config.class_from)).map_err(other)?;
        self.put(at, Export { config, listener: None, controller, conn: None, generation: 0 });
        if let Some(conn) = client {
            self.go_on(at, conn, cx);
        }
        Ok(())
    }

    /// The controller behind a new export, with its client if that can go on.
    fn take_up_live(
        left: Left,
        config: &ExportConfig,
        at: u16,
        cx: &mut Cx,
    ) -> Result<(ControllerHandle, Option<Conn>), weir_controller::Error> {
        let (socket, now) = (config.path.display().to_string(), cx.now);
        resume_functions(cx.drives.get(config.drive), now, cx.keep);
        let mut claimed = cx.drives.get(config.drive).claim_function(&socket, config.tenant, owner(at));
        // It was drained, and nobody has served it since; or somebody has.
        if let Some(stale) = claimed.take_if(|_| !left.checkpoint.left) {
            cx.drives.get(config.drive).detach(now, stale);
        }
        match take_up(left, config, (at, claimed), cx) {
            Ok((controller, conn)) => Ok((controller, Some(conn))),
            Err(why) => {
                tracing::error!(socket, "the client cannot be taken over, and is disconnected: {why}");
                if let Some(controller) = claimed {
                    cx.drives.get(config.drive).reset_function(now, controller);
                    return Ok((controller, None));
                }
                Ok((attach(config, at, cx)?, None))
            }
        }
    }

    /// Takes a client in that the keeper has let in, or the line of one that has gone on.
    pub fn adopt(&mut self, met: Introduction, socket: UnixStream, cx: &mut Cx) {
        let is = |e: &Option<Export>| e.as_ref().is_some_and(|e| e.config.path == std::path::Path::new(&met.path));
        let at = self.exports.iter().position(is).map(|at| at as u16);
        let number = met.number;
        let met = at.ok_or("there is no such export".to_owned()).and_then(|at| self.meet(at, met, socket, cx));
        if let Err(why) = met {
            tracing::error!("a client of vfio-user is disconnected: {why}");
            let _ = cx.keep.say(&ToKeeper::Close(number), &[]);
        }
    }

    fn meet(&mut self, at: u16, met: Introduction, socket: UnixStream, cx: &mut Cx) -> Result<(), String> {
        let line = Line::open(socket, met.number).map_err(|e| e.to_string())?;
        let Some(export) = export!(self, at) else { return Err("its export has ended".into()) };
        let pid = met.pid.filter(|_| export.config.class_from == ClassFrom::Peer);
        let is_same = export.conn.as_ref().is_some_and(|conn| conn.client() == Some(line.begins.client.get()));
        if !is_same {
            self.remove(at, cx);
        }
        let Some(export) = export!(self, at) else { return Err("its export has ended".into()) };
        export.generation = export.generation.wrapping_add(1);
        let token = encode(at, export.generation, Watched::Input);
        let joined = match &mut export.conn {
            Some(conn) => conn.join(line, token, pid, cx),
            None if line.begins.first.get() != 1 => Err("nothing is known of what it has said".into()),
            None => begin(export, line, (token, pid), cx).map(|conn| export.conn = Some(Box::new(conn))),
        };
        if joined.is_err() {
            self.remove(at, cx);
            return joined;
        }
        let Some(Export { conn: Some(conn), config, controller, .. }) = export!(self, at) else { return Ok(()) };
        tracing::info!(socket = %config.path.display(), pid = ?met.pid, tenant = config.tenant_name, "client connected");
        conn.follow_peer(config.drive, *controller, cx);
        if conn.has_wishes() {
            self.peers_at.get_or_insert(cx.now.saturating_add(super::LOOK_AGAIN));
        }
        self.listen_to(at, cx);
        Ok(())
    }
}

/// A client that nobody has served.
fn begin(export: &Export, line: Line, (token, pid): (u64, Option<i32>), cx: &mut Cx) -> Result<Conn, String> {
    let text = |e: io::Error| e.to_string();
    let config = &export.config;
    let live = Live::new(config.path.display().to_string(), &line).map_err(text)?;
    let rings = Rings::new(cx.drives.get(config.drive), export.controller).map_err(text)?;
    let mut conn = Conn::new(line.socket, token, shape(config, cx), pid, cx).map_err(text)?;
    conn.rings = Some(Box::new(rings));
    if let Err(e) = conn.live_from_now_on(live, cx) {
        conn.close(cx);
        return Err(e.to_string());
    }
    Ok(conn)
}

/// A client that another process has served, with its controller.
fn take_up(
    left: Left,
    config: &ExportConfig,
    (at, claimed): (u16, Option<ControllerHandle>),
    cx: &mut Cx,
) -> Result<(ControllerHandle, Conn), String> {
    let text = |e: io::Error| e.to_string();
    let Left { file, mut shared, generation, checkpoint, files } = left;
    if !checkpoint.survives {
        return Err("some of its memory is reached by messages only".into());
    }
    let now = cx.now;
    let controller = match claimed {
        Some(controller) => controller,
        None => {
            let resumed =
                cx.drives.get(config.drive).resume_checkpoint(now, &checkpoint.controller, config.tenant, owner(at));
            resumed.map_err(|e| e.to_string())?
        }
    };
    let conn = (|| {
        let journal = shared.pop().ok_or("the file of its journal is missing")?;
        let (socket, end) = UnixStream::pair().map_err(text)?;
        let found = Found { socket, state: checkpoint.device.clone(), shared, files };
        let mut conn = Conn::resume(found, encode(at, 0, Watched::Input), shape(config, cx), None, cx)?;
        let live = Live::found(config.path.display().to_string(), file, (generation, &checkpoint), end);
        // Completions may go there.
        conn.follow_buffer(config.drive, controller, cx);
        conn.go_on_live(live, &checkpoint, now);
        let rings = Rings::open(journal, cx.drives.machine(config.drive)).map_err(text);
        let went_on = rings.and_then(|mut rings| {
            if claimed.is_some() {
                rings.follow(cx.drives.machine(config.drive), controller);
            }
            conn.rings = Some(Box::new(rings));
            cx.drives.get(config.drive).keep_rings(controller, true);
            match claimed {
                // Nothing was in flight.
                Some(_) => Ok(()),
                None => conn.recover_rings((config.drive, controller), cx).map(|found| {
                    tracing::info!(socket = %config.path.display(), commands = found.commands.len(), posted = found.posted, "recovered");
                }),
            }
        });
        if went_on.is_err() {
            conn.close(cx);
        }
        went_on.map(|()| conn)
    })();
    if conn.is_err() && claimed.is_none() {
        cx.drives.get(config.drive).detach(now, controller);
    }
    conn.map(|conn| (controller, conn))
}
