//! `weir volume export` and `import`: a volume or a snapshot as a file, byte for byte, and a new volume from one.
//!
//! ```text
//!   file ◄─► requests in the order of the volume ─► vhost-user socket of the node; it is there as long as this process
//! ```
//! What reads as zeroes is neither read nor moved: the node says which chunks of a volume may have something, and a file has holes.
//!
//! A file gets its name when it is whole, and so does a volume: until then they are called `FILE.partial` and `NAME.importing`.

mod contents;
mod file;

use crate::address::ApiAddress;
use crate::args::VolumePlace;
use crate::client::{ApiClient, in_url};
use crate::failure::CommandFailure;
use crate::fs::progress::CopyProgress;
use crate::output;
use contents::DataRanges;
use file::{ImageSource, ImageTarget};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;
use weir_api::{ExportStatus, ImageAccess, VolumeAdd, VolumeExport, VolumePatch, VolumeStatus};
use weir_config::{self as config, Address};
use weir_driver::vhost_user::FrontEndOptions;
use weir_driver::{Done, Io, IoKind, QueuePair, TransportError};
use weir_spec::nvme::Status;
use weir_sys::signals::Signals;
use weir_sys::transport::vhost_user;
use weir_units::Bytes;

/// Requests in flight.
const DEPTH: u32 = 16;
/// Bytes of each.
const PIECE: u32 = 256 << 10;
/// Polls without an answer before the core is given to others.
const SPINS: u32 = 2_000;
/// What is waited then.
const REST: Duration = Duration::from_micros(50);
/// A volume is so called while it is being filled.
const UNFINISHED: &str = ".importing";

/// What was copied, as `--json` shows it.
#[derive(Debug, Serialize)]
struct Copied<'a> {
    volume: &'a str,
    file: &'a str,
    /// Of the volume.
    size_bytes: u64,
    /// Of them, those that were not zeroes.
    data_bytes: u64,
}

impl Copied<'_> {
    fn show(&self, (from, to): (&str, &str), json: bool) -> Result<(), CommandFailure> {
        if json {
            return output::json(self);
        }
        let (size, data) = (Bytes(self.size_bytes), Bytes(self.data_bytes));
        output::text(&format!("{from} -> {to}: {size}, {data} of it not zeroes\n"))
    }
}

/// What a new volume is to be.
pub struct NewVolume<'a> {
    pub name: &'a str,
    /// Bytes; none: as long as the file.
    pub size: Option<u64>,
    pub place: &'a VolumePlace,
}

/// Writes what a volume that is not exported, or a snapshot, has into a file; `-` is the standard output.
///
/// # Errors
/// There is none of that name, it is exported, the file is there already (unless `force`), or something does not read or write.
pub fn export(client: &ApiClient, volume: &str, (file, force): (&str, bool), json: bool) -> Result<(), CommandFailure> {
    if file == "-" && std::io::stdout().is_terminal() {
        return Err(CommandFailure::usage(
            "the bytes of a volume are not for a terminal: name a file, or pipe them on",
        ));
    }
    let stop = Interrupts::begin()?;
    let mut target = ImageTarget::create(file, force)?;
    let mut way = Way::open(client, volume, ImageAccess::Read)?;
    let size = way.pair.capacity();
    let mut progress = if file == "-" { CopyProgress::hidden() } else { CopyProgress::new() };
    progress.file(volume.to_string(), Some(size));
    let mut data = 0;
    let mut passed = 0;
    let mut pass = |target: &mut ImageTarget, to: u64| {
        target.pass(to, &mut || stop.check(volume))?;
        progress.bytes(to - std::mem::replace(&mut passed, to));
        Ok(())
    };
    let mut ranges = DataRanges::new(|from| client.get(&format!("{}/contents?from={from}", at(volume))));
    let read = read_all(&mut way.pair, volume, &stop, &mut ranges, &mut |at, bytes| {
        pass(&mut target, at)?;
        data += target.write(at, bytes)?;
        pass(&mut target, at + bytes.len() as u64)
    });
    let read = read.and_then(|()| pass(&mut target, size));
    progress.clear();
    way.close(client);
    read?;
    target.finish(size)?;
    if file == "-" {
        return Ok(());
    }
    Copied { volume, file, size_bytes: size, data_bytes: data }.show((volume, file), json)
}

/// Makes a volume with what a file has; `-` is the standard input.
///
/// # Errors
/// The file is none, is no raw image or longer than the volume is to be; the name is taken; there is no room; or something does not
/// read or write: there is no such volume then.
pub fn import(client: &ApiClient, file: &str, new: NewVolume, json: bool) -> Result<(), CommandFailure> {
    let stop = Interrupts::begin()?;
    let mut source = ImageSource::open(file)?;
    let size = match (new.size, source.len()) {
        (Some(size), Some(len)) if len > size => {
            let what = format!("{file} has {} bytes, more than a volume of {} (--size)", len, Bytes(size));
            return Err(CommandFailure::new(what));
        }
        (Some(size), _) => size,
        (None, Some(0)) => return Err(CommandFailure::new(format!("{file} is empty: nothing to make a volume of"))),
        (None, Some(len)) => len,
        (None, None) => {
            return Err(CommandFailure::usage(format!(
                "how many bytes come from {file} is not known before they have come: say how large the volume is to be (--size 10GiB)"
            )));
        }
    };
    let volumes: Vec<VolumeStatus> = client.get("/v1/volumes")?;
    if volumes.iter().any(|v| v.name == new.name) {
        return Err(CommandFailure::new(format!("there is a volume \"{}\" already; nothing was changed", new.name)));
    }
    let name = format!("{}{UNFINISHED}", new.name);
    let VolumePlace { tenant, pool, copies } = new.place.clone();
    let add = VolumeAdd { name: name.clone(), tenant, size_bytes: size, pool, copies };
    let _: VolumeStatus = client.create("/v1/volumes", &add)?;
    let filled = fill(client, (&name, new.name), &mut source, &stop);
    let (volume, data_bytes) = match filled {
        Ok(filled) => filled,
        Err(why) => {
            // The first cause is the one to tell; if it does not go, its name says what it is.
            let gone: Result<VolumeStatus, _> = client.delete(&at(&name));
            let rest = if gone.is_err() { format!("; volume {name} could not be deleted") } else { String::new() };
            return Err(CommandFailure::new(format!("{}{rest}", why.text())));
        }
    };
    Copied { volume: new.name, file, size_bytes: volume.size_bytes, data_bytes }.show((file, new.name), json)
}

fn at(volume: &str) -> String {
    format!("/v1/volumes/{}", in_url(volume))
}

/// Writes the source into a volume that is called `name`, and gives it the name `to`.
fn fill(
    client: &ApiClient,
    (name, to): (&str, &str),
    source: &mut ImageSource,
    stop: &Interrupts,
) -> Result<(VolumeStatus, u64), CommandFailure> {
    let mut way = Way::open(client, name, ImageAccess::Write)?;
    let mut progress = CopyProgress::new();
    progress.file(to.to_string(), source.len());
    let written = write_all(&mut way.pair, to, stop, source, &mut progress);
    progress.clear();
    way.close(client);
    let written = written?;
    let named = client.patch(&at(name), &VolumePatch { name: Some(to.to_string()), ..VolumePatch::default() })?;
    Ok((named, written))
}

/// The volume, at a socket of the node that is there for this process.
struct Way {
    pair: vhost_user::VhostUserQueue,
    socket: String,
}

impl Way {
    fn open(client: &ApiClient, volume: &str, image: ImageAccess) -> Result<Way, CommandFailure> {
        let folder = match client.address() {
            ApiAddress::Plain(Address::Unix(path)) => path.parent().map(PathBuf::from).unwrap_or_default(),
            ApiAddress::Plain(Address::Tcp(_)) => config::runtime_dir(),
            ApiAddress::Tls(at) => {
                let what = format!(
                    "the bytes of a volume go through a socket of its node's machine, and {at} may be another one: run this there, with --api unix:PATH"
                );
                return Err(CommandFailure::new(what));
            }
        };
        let socket = folder.join(format!("image-{}.sock", std::process::id())).display().to_string();
        let body = VolumeExport { door: format!("vhost-user:{socket}"), max_controllers: None, image: Some(image) };
        let _: VolumeStatus =
            client.create(&format!("{}/exports", at(volume)), &body).map_err(|e| advice(&e, volume))?;
        let pairs = vhost_user::connect(socket.as_ref(), FrontEndOptions::default(), DEPTH, PIECE);
        match pairs.map(|mut pairs| pairs.pop()) {
            Ok(Some(pair)) => Ok(Way { pair, socket }),
            Ok(None) => Err(CommandFailure::new(format!("{socket}: no queue"))),
            Err(e) => {
                let _: Result<ExportStatus, _> = client.delete(&format!("/v1/exports/{}", in_url(&socket)));
                Err(CommandFailure::new(e))
            }
        }
    }

    /// The node ends the export by itself a second later where it does not hear this.
    fn close(self, client: &ApiClient) {
        let Way { pair, socket } = self;
        drop(pair);
        let _: Result<ExportStatus, _> = client.delete(&format!("/v1/exports/{}", in_url(&socket)));
    }
}

/// A volume that hosts write is not read meanwhile; its snapshot is.
fn advice(error: &CommandFailure, volume: &str) -> CommandFailure {
    match error.text().contains("is exported by") && !volume.contains('@') {
        true => CommandFailure::new(format!(
            "{}; or make a snapshot, which can be copied while hosts use the volume (weir volume snapshot {volume}@copy)",
            error.text()
        )),
        false => CommandFailure::new(error.text()),
    }
}

/// What may end the command from outside.
struct Interrupts(Signals);

impl Interrupts {
    fn begin() -> Result<Self, CommandFailure> {
        let signals = [rustix::process::Signal::INT, rustix::process::Signal::TERM, rustix::process::Signal::HUP];
        Signals::block(&signals.map(|s| s.as_raw())).map(Interrupts).map_err(CommandFailure::new)
    }

    fn check(&self, volume: &str) -> Result<(), CommandFailure> {
        match self.0.next() {
            None => Ok(()),
            Some(_) => Err(CommandFailure::new(format!("{volume}: interrupted; nothing is left of the copy"))),
        }
    }
}

/// Waits for answers; sleeps a little where none comes.
struct Answers {
    done: Vec<Done>,
    idle: u32,
}

impl Answers {
    fn poll<Q: QueuePair>(&mut self, pair: &mut Q) -> Result<(), TransportError> {
        self.done.clear();
        pair.poll(&mut self.done)?;
        self.idle = if self.done.is_empty() { self.idle + 1 } else { 0 };
        if self.idle > SPINS {
            std::thread::sleep(REST);
        }
        Ok(())
    }
}

fn broken(volume: &str, error: TransportError) -> CommandFailure {
    CommandFailure::new(format!("{volume}: {error}"))
}

fn failed(volume: &str, io: Io, status: Status) -> CommandFailure {
    let what = if io.kind == IoKind::Read { "read" } else { "written" };
    CommandFailure::new(format!("{volume}: {} bytes at {} cannot be {what}: {status}", io.len, io.offset))
}

/// Gets bytes, and where they are in the volume.
type Take<'a> = dyn FnMut(u64, &[u8]) -> Result<(), CommandFailure> + 'a;

/// A request and how it has ended.
type Asked = Option<(Io, Option<Status>)>;

/// Reads what of a drive may have something, and gives its bytes to `take` in their order.
fn read_all<Q: QueuePair>(
    pair: &mut Q,
    volume: &str,
    stop: &Interrupts,
    ranges: &mut DataRanges,
    take: &mut Take,
) -> Result<(), CommandFailure> {
    let (size, depth, most) = (pair.capacity(), pair.depth(), u64::from(pair.max_io().min(PIECE)));
    let mut asked: Vec<Asked> = vec![None; depth as usize];
    let (mut oldest, mut newest, mut is_over) = (0u32, 0u32, false);
    let mut answers = Answers { done: Vec::new(), idle: 0 };
    while !is_over || oldest != newest {
        stop.check(volume)?;
        while !is_over && newest.wrapping_sub(oldest) < depth {
            let Some(part) = ranges.next(most, size)? else {
                is_over = true;
                break;
            };
            let slot = newest % depth;
            let io = Io { kind: IoKind::Read, offset: part.start, len: (part.end - part.start) as u32, slot };
            pair.submit(io).map_err(|e| broken(volume, e))?;
            asked[slot as usize] = Some((io, None));
            newest = newest.wrapping_add(1);
        }
        answers.poll(pair).map_err(|e| broken(volume, e))?;
        for done in &answers.done {
            if let Some((_, status)) = asked.get_mut(done.slot as usize).and_then(Option::as_mut) {
                *status = Some(done.status);
            }
        }
        while oldest != newest {
            let slot = oldest % depth;
            let Some((io, Some(status))) = asked[slot as usize] else { break };
            if !status.is_success() {
                return Err(failed(volume, io, status));
            }
            take(io.offset, &pair.buffer(slot)[..io.len as usize])?;
            asked[slot as usize] = None;
            oldest = oldest.wrapping_add(1);
        }
    }
    Ok(())
}

/// Writes what a source has and is not zeroes to a drive that reads as zeroes, and has it made durable. Bytes that were written.
fn write_all<Q: QueuePair>(
    pair: &mut Q,
    volume: &str,
    stop: &Interrupts,
    source: &mut ImageSource,
    progress: &mut CopyProgress,
) -> Result<u64, CommandFailure> {
    let (size, depth, most) = (pair.capacity(), pair.depth(), pair.max_io().min(PIECE) as usize);
    let block = pair.block_size() as usize;
    let mut asked: Vec<Asked> = vec![None; depth as usize];
    let mut free: Vec<u32> = (0..depth).collect();
    let mut answers = Answers { done: Vec::new(), idle: 0 };
    let (mut written, mut begun, mut is_over) = (0, 0, false);
    while !is_over || free.len() < depth as usize {
        stop.check(volume)?;
        while let (false, Some(slot)) = (is_over, free.last().copied()) {
            let buffer = &mut pair.buffer(slot)[..most];
            let Some(piece) = source.next(buffer)? else {
                // A hole at the end of a file.
                progress.bytes(source.len().map_or(0, |len| len.saturating_sub(begun)));
                is_over = true;
                break;
            };
            progress.bytes(piece.at + piece.len as u64 - begun);
            begun = piece.at + piece.len as u64;
            if piece.is_zero {
                continue;
            }
            // The last block may be one in part: a volume has whole ones.
            let len = piece.len.next_multiple_of(block);
            buffer[piece.len..len].fill(0);
            if piece.at + len as u64 > size {
                let what = format!("more than {} come from the source: make the volume larger (--size)", Bytes(size));
                return Err(CommandFailure::new(format!("{volume}: {what}")));
            }
            free.pop();
            let io = Io { kind: IoKind::Write, offset: piece.at, len: len as u32, slot };
            pair.submit(io).map_err(|e| broken(volume, e))?;
            asked[slot as usize] = Some((io, None));
            written += piece.len as u64;
        }
        answers.poll(pair).map_err(|e| broken(volume, e))?;
        for done in &answers.done {
            let Some((io, _)) = asked.get_mut(done.slot as usize).and_then(Option::take) else { continue };
            if !done.status.is_success() {
                return Err(failed(volume, io, done.status));
            }
            free.push(done.slot);
        }
    }
    let io = Io { kind: IoKind::Flush, offset: 0, len: 0, slot: 0 };
    pair.submit(io).map_err(|e| broken(volume, e))?;
    loop {
        answers.poll(pair).map_err(|e| broken(volume, e))?;
        if let Some(done) = answers.done.first() {
            return if done.status.is_success() { Ok(written) } else { Err(failed(volume, io, done.status)) };
        }
    }
}

#[cfg(test)]
mod tests;
