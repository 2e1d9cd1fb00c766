//! Exports whose sockets the keeper has: their clients go on when this process is killed.

use super::conn::{Conn, Found, Line, Live, Rings};
use super::handover;
use super::held_names::{LIVE_CLIENTS, live_file, live_files};
use super::{
    Door, Export, ExportConfig, MODE, Watched, attach, encode, export, folder, owner, resume_functions, shape,
};
use crate::door::context::Cx;
use crate::held_names::RELAYS;
use crate::listen::{self, BindError};
use rustix::io::pread;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use weir_controller::{Begun, ClassFrom, ControllerHandle};
use weir_session::vfio_user::checkpoint::{Checkpoint, HEAD, length, place};
use weir_sys::crc::Crc32c;
use weir_sys::keeper_channel::{Introduction, ToKeeper};

fn name(config: &ExportConfig) -> String {
    format!("{RELAYS}{}", config.path.display())
}

/// The keeper listens there no more.
pub(super) fn give_up(config: &ExportConfig, cx: &Cx) {
    let _ = cx.keep.release(&name(config));
    folder::withdraw(&config.path);
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

/// What the keeper holds of a client, by name: files and descriptors.
fn held(path: &str, cx: &Cx) -> (Option<Vec<OwnedFd>>, BTreeMap<u64, OwnedFd>) {
    let files = cx.keep.take_numbered(&live_files(path)).into_iter();
    let files = files.filter_map(|(name, fds)| Some((name, fds.into_iter().next()?)));
    (cx.keep.take(&format!("{LIVE_CLIENTS}{path}")), files.collect())
}

/// The keeper holds nothing of a client there any more.
pub(super) fn forget(path: &str, cx: &Cx) -> io::Result<()> {
    let (client, files) = held(path, cx);
    release(path, client.is_some(), files.into_keys(), cx)
}

/// Whoever comes if this process fails before it serves finds it all the same.
fn release(path: &str, client: bool, mut files: impl Iterator<Item = u64>, cx: &Cx) -> io::Result<()> {
    if client {
        cx.keep.let_go(&format!("{LIVE_CLIENTS}{path}"))?;
    }
    files.try_for_each(|name| cx.keep.let_go(&live_file(path, name)))
}

/// Finds it; the keeper forgets what it does not name, and all of one that cannot be read.
fn find(path: &str, cx: &Cx) -> io::Result<Option<Left>> {
    let (client, mut files) = held(path, cx);
    let (is_there, names) = (client.is_some(), files.keys().copied().collect::<Vec<_>>());
    let left = read(client.unwrap_or_default(), &mut files);
    match &left {
        Ok(Some(_)) => release(path, false, files.into_keys(), cx)?,
        _ => release(path, is_there, names.into_iter(), cx)?,
    }
    left
}

/// What its file says, with the descriptors that it names.
fn read(client: Vec<OwnedFd>, files: &mut BTreeMap<u64, OwnedFd>) -> io::Result<Option<Left>> {
    let mut shared = client.into_iter();
    let Some(file) = shared.next() else { return Ok(None) };
    let (even, odd) = (slot(&file, 0)?, slot(&file, 1)?);
    let newest = Checkpoint::newest::<Crc32c>([&even, &odd]).map_err(io::Error::other)?;
    let Some((generation, checkpoint)) = newest else { return Ok(None) };
    let mut take =
        |name: &u64| files.remove(name).ok_or_else(|| io::Error::other(format!("its file {name} is missing")));
    let taken = checkpoint.files.iter().map(&mut take).collect::<io::Result<_>>()?;
    Ok(Some(Left { file, shared: shared.collect(), generation, checkpoint, files: taken }))
}

impl Door {
    /// An export whose clients the keeper lets in.
    pub(super) fn export_live(&mut self, config: ExportConfig, at: u16, cx: &mut Cx) -> Result<(), BindError> {
        let socket = config.path.display().to_string();
        listen::keep_door(cx.keep, RELAYS, &config.path, MODE)?;
        let other = |e: weir_controller::ManagementError| BindError::Io {
            address: config.path.display().to_string(),
            error: io::Error::other(e.to_string()),
        };
        // Of this client and of no later one.
        let begun = handover::begun(&socket, cx);
        let left = find(&socket, cx).unwrap_or_else(|e| {
            tracing::error!(socket, "what was written of the client cannot be read, and it is disconnected: {e}");
            None
        });
        let (controller, client) = match left {
            Some(left) => Self::take_up_live(left, (&config, &begun), at, cx).map_err(other)?,
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
        (config, begun): (&ExportConfig, &[Begun]),
        at: u16,
        cx: &mut Cx,
    ) -> Result<(ControllerHandle, Option<Conn>), weir_controller::ManagementError> {
        let (socket, now) = (config.path.display().to_string(), cx.now);
        resume_functions(cx.drives.get(config.drive), now, cx.keep);
        // What was handed on of its controller is in the checkpoint as well, which stays true until there is another one: whoever dies
        // before that leaves the same to the next.
        if let Some(same) = cx.drives.get(config.drive).claim_function(&socket, config.tenant, owner(at)) {
            cx.drives.get(config.drive).detach(now, same);
        }
        let files = left.checkpoint.files.clone();
        match take_up(left, (config, begun), at, cx) {
            Ok((controller, conn)) => Ok((controller, Some(conn))),
            Err(why) => {
                tracing::error!(socket, "the client cannot be taken over, and is disconnected: {why}");
                if let Err(e) = release(&socket, true, files.into_iter(), cx) {
                    tracing::error!(socket, "the keeper does not listen: {e}");
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
        if !export.config.journal {
            return Err("its export lets its clients in itself by now".into());
        }
        if export.conn.as_ref().is_some_and(|conn| conn.client().is_none()) {
            return Err("the drive has one already".into());
        }
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
    (config, begun): (&ExportConfig, &[Begun]),
    at: u16,
    cx: &mut Cx,
) -> Result<(ControllerHandle, Conn), String> {
    let text = |e: io::Error| e.to_string();
    let Left { file, mut shared, generation, checkpoint, files } = left;
    if !checkpoint.survives {
        return Err("bytes of its commands were on their way by messages".into());
    }
    let now = cx.now;
    let resumed = cx.drives.get(config.drive).resume_checkpoint(now, &checkpoint.controller, config.tenant, owner(at));
    let controller = resumed.map_err(|e| e.to_string())?;
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
        let went_on = rings.and_then(|rings| {
            conn.rings = Some(Box::new(rings));
            cx.drives.get(config.drive).resume_begun(controller, begun);
            conn.recover_rings((config.drive, controller), cx).map(|found| {
                tracing::info!(socket = %config.path.display(), commands = found.commands.len(), posted = found.posted, "recovered");
            })
        });
        if went_on.is_err() {
            conn.close(cx);
        }
        went_on.map(|()| conn)
    })();
    if conn.is_err() {
        cx.drives.get(config.drive).detach(now, controller);
    }
    conn.map(|conn| (controller, conn))
}
