//! Between a worker and its keeper: named descriptors that outlive the worker, and the words around them.
//!
//! ```text
//!   worker                                   keeper
//!     │ ── Prepared(layouts) ─────────────────►│      its configuration is read; what it reads and writes of what is held
//!     │ ◄─ Upgrade(state) ─────────────────────│      where there is or was one; again whenever it changes
//!     │ ◄─ Held(name) + descriptors, … ────────│      what the worker before it left; a standby hears what is held while it waits,
//!     │ ◄─ Dropped(name) ──────────────────────│      as it changes
//!     │ ◄─ Told ───────────────────────────────│      that is all for now
//!     │ ── Warm ──────────────────────────────►│      the regions among it are mapped
//!     │ ◄─ Connection(socket) + a stream, … ───│      front ends that are there, and their messages, see weir_keeper
//!     │ ◄─ Go(generation) ─────────────────────│
//!     │ ── Goes ──────────────────────────────►│      it is alive
//!     │ ── Hold(name) + descriptors, … ───────►│      listeners, memory files, the configuration as it is now
//!     │ ── Threads + roster ──────────────────►│      where their death is enough, see crate::robust_futex
//!     │ ── Ready ─────────────────────────────►│
//!     │ ◄─ Connection(socket) + a stream ──────│      another front end has come
//!     │ ── Close(socket) ─────────────────────►│      it is to be disconnected
//!     │ ── Upgrade(what) ─────────────────────►│      serve with another program
//!     │ ◄─ HandOver ───────────────────────────│      finish what is at the media
//!     │ ── Left ──────────────────────────────►│      nothing is in flight, nothing will be touched: the next one may go
//! ```
//! One packet is one word (SOCK_SEQPACKET): a byte for its kind, then its text. The worker's end is its standard input. The keeper never
//! waits for a worker: what one does not take is sent later ([`Channel`]).

mod channel;
mod touch;
mod words;

pub use self::channel::{Channel, HEAR_TIMEOUT};
pub use self::words::{Introduction, ToKeeper, ToWorker};

use self::touch::{Touch, Toucher, WARM_FOR, Warmth};
use crate::arena::{Arena, ArenaError, Schema};
use crate::transport::fds;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest word.
const MOST: usize = 8192;
/// The version of these words. Of another one nothing is understood but [`ToKeeper::Prepared`], which carries it.
pub const VERSION: u32 = 3;

/// Begins the names of what goes from one worker to the next and is worth nothing to anybody later.
pub const PASSING: &str = "passing:";
/// Begins the names of what belongs to clients whose sockets the keeper has: worth nothing to another keeper.
pub const LIVE: &str = "live:";

/// A word's bytes.
fn packet(kind: u8, text: &str) -> io::Result<Vec<u8>> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(text.as_bytes());
    if bytes.len() > MOST {
        return Err(io::Error::other(format!("a word of {} bytes is too long for the keeper", bytes.len())));
    }
    Ok(bytes)
}

fn send(socket: impl AsFd, kind: u8, text: &str, with: &[BorrowedFd]) -> io::Result<()> {
    let bytes = packet(kind, text)?;
    loop {
        match fds::send(&socket, &bytes, with) {
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// The next word: `None` where the other side has gone.
fn receive(socket: impl AsFd) -> io::Result<Option<(u8, String, Vec<OwnedFd>)>> {
    let (mut bytes, mut got) = (vec![0; MOST], Vec::new());
    let n = loop {
        match fds::receive(&socket, &mut bytes, &mut got) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            other => break other?,
        }
    };
    let Some((kind, text)) = bytes[..n].split_first() else { return Ok(None) };
    let text = String::from_utf8(text.to_vec()).map_err(|_| garbled())?;
    Ok(Some((*kind, text, got)))
}

/// An empty file in memory that grows as it is written; `name` shows up in /proc/PID/fd.
///
/// # Errors
/// No descriptor is left.
pub fn memory_file(name: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(rustix::fs::memfd_create(format!("weir-{name}"), flags)?)
}

/// A file in memory with these contents, which nobody changes any more.
///
/// # Errors
/// No descriptor or no memory is left.
pub fn sealed(name: &str, contents: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memory_file(name)?);
    file.write_all(contents)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file.into())
}

/// All of a file, from its start.
///
/// # Errors
/// It cannot be read.
pub fn contents(fd: OwnedFd) -> io::Result<Vec<u8>> {
    let (mut file, mut bytes) = (File::from(fd), Vec::new());
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn garbled() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "keeper and worker do not understand each other")
}

/// What is held under a name.
#[derive(Debug, Default)]
struct Held {
    fds: Vec<OwnedFd>,
    /// The same, where it is a region that was mapped beforehand.
    mapped: Option<Arc<Arena>>,
}

/// What a worker has heard while it waits.
#[derive(Default)]
struct Waiting {
    held: BTreeMap<String, Held>,
    connections: Vec<(Introduction, OwnedFd)>,
    toucher: Option<Toucher>,
}

impl Waiting {
    fn held(&mut self, name: String, fds: Vec<OwnedFd>, schema: Option<Schema>) {
        let mapped = match (schema, &fds[..]) {
            (Some(schema), [fd]) => self.map(fd, schema),
            _ => None,
        };
        self.held.insert(name, Held { fds, mapped });
    }

    /// What cannot be mapped now says why when it is taken.
    fn map(&mut self, fd: &OwnedFd, schema: Schema) -> Option<Arc<Arena>> {
        let arena = Arc::new(Arena::open(fd.try_clone().ok()?, schema).ok()?);
        if self.toucher.is_none() {
            self.toucher = Toucher::start().ok();
        }
        if let Some(toucher) = &self.toucher {
            let _ = toucher.work.send(Touch::Region(Arc::downgrade(&arena)));
        }
        Some(arena)
    }

    /// That is said as soon as what was heard of is mapped, at once where there is nothing to map.
    fn told(&self, warmth: &Warmth) {
        let after = self.toucher.as_ref().and_then(|t| t.work.send(Touch::Warm(warmth.clone())).ok());
        if after.is_none() {
            warmth.say();
        }
    }
}

/// Waits for the keeper's next word, until then at the most; whether there is one.
fn heard_before(channel: &OwnedFd, at: Instant) -> io::Result<bool> {
    let left = at.saturating_duration_since(Instant::now());
    let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    match poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&limit)) {
        Err(rustix::io::Errno::INTR) => Ok(false),
        found => Ok(found? > 0),
    }
}

#[derive(Debug)]
struct Shared {
    channel: OwnedFd,
    held: Mutex<BTreeMap<String, Held>>,
    /// Front ends that were there when the worker went, until they are taken.
    connections: Mutex<Vec<(Introduction, OwnedFd)>>,
    /// What the keeper is to let go of when the worker begins to serve; nothing is put off after that.
    later: Mutex<Option<Vec<String>>>,
    generation: u64,
    /// How far an upgrade was when the worker went.
    upgrade: Option<String>,
    /// The keeper's process.
    keeper: u32,
}

/// A worker's end; cloning gives another reference. Without a keeper nothing is held and nothing was.
#[derive(Clone, Debug, Default)]
pub struct Keep(Option<Arc<Shared>>);

impl Keep {
    /// Nobody keeps anything.
    pub fn none() -> Keep {
        Keep(None)
    }

    /// Says that the worker is prepared and which layouts it knows, and waits until it may go: with all that the one before it left.
    /// Names that `region` knows are regions, which are mapped as soon as they are heard of.
    ///
    /// # Errors
    /// The keeper has gone, or says what makes no sense.
    pub fn join(channel: OwnedFd, layouts: &str, region: impl Fn(&str) -> Option<Schema>) -> io::Result<Keep> {
        let (kind, text) = ToKeeper::Prepared(layouts.to_owned()).parts();
        send(&channel, kind, &text, &[])?;
        let warmth = Warmth::of(&channel)?;
        let (mut waiting, mut upgrade, mut warm_by) = (Waiting::default(), None, None);
        loop {
            if let Some(at) = warm_by {
                if !heard_before(&channel, at)? {
                    if Instant::now() >= at {
                        warmth.say();
                        warm_by = None;
                    }
                    continue;
                }
            }
            let gone = || io::Error::new(io::ErrorKind::UnexpectedEof, "the keeper has gone");
            let (kind, text, fds) = receive(&channel)?.ok_or_else(gone)?;
            match ToWorker::read(kind, text).ok_or_else(garbled)? {
                ToWorker::Held(name) => {
                    let schema = region(&name);
                    waiting.held(name, fds, schema);
                }
                ToWorker::Dropped(name) => drop(waiting.held.remove(&name)),
                ToWorker::Upgrade(state) => upgrade = Some(state),
                ToWorker::Told => {
                    waiting.told(&warmth);
                    warm_by = Some(Instant::now() + WARM_FOR);
                }
                ToWorker::Connection(met) => {
                    waiting.connections.extend(fds.into_iter().next().map(|fd| (met, fd)));
                }
                ToWorker::Go(generation) => {
                    let (kind, text) = ToKeeper::Goes.parts();
                    send(&channel, kind, &text, &[])?;
                    // From here on who serves maps what is left.
                    waiting.toucher = None;
                    let keeper = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
                    let (held, later) = (Mutex::new(waiting.held), Mutex::new(Some(Vec::new())));
                    let connections = Mutex::new(waiting.connections);
                    let shared = Shared { channel, held, connections, later, generation, upgrade, keeper };
                    return Ok(Keep(Some(Arc::new(shared))));
                }
                // It was proposed and is not wanted any more, or something that only those hear who serve.
                _ => return Err(garbled()),
            }
        }
    }

    /// The process that stands for the node: the keeper's, or this one where there is none.
    pub fn node(&self) -> u32 {
        self.0.as_ref().map_or(std::process::id(), |s| s.keeper)
    }

    /// Whether there is a keeper.
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// How many workers served before this one.
    pub fn generation(&self) -> u64 {
        self.0.as_ref().map_or(0, |s| s.generation)
    }

    /// How far an upgrade was when this worker went, where there had been one; later it is [heard](Self::hear).
    pub fn upgrade(&self) -> Option<&str> {
        self.0.as_ref()?.upgrade.as_deref()
    }

    /// Takes what the worker before held under a name.
    pub fn take(&self, name: &str) -> Option<Vec<OwnedFd>> {
        Some(self.remove(name)?.fds)
    }

    fn remove(&self, name: &str) -> Option<Held> {
        self.0.as_ref()?.held.lock().unwrap_or_else(PoisonError::into_inner).remove(name)
    }

    /// As [`take_one`](Self::take_one) of a region, which may be mapped already.
    pub fn take_region(&self, name: &str, schema: Schema) -> Option<Result<Arena, ArenaError>> {
        let Held { fds, mapped } = self.remove(name)?;
        let fd = fds.into_iter().next()?;
        let Some(mut shared) = mapped else { return Some(Arena::open(fd, schema)) };
        // Who maps its pages lets go of it at the end of a piece, and needs a core for that.
        loop {
            match Arc::try_unwrap(shared) {
                Ok(arena) => return Some(Ok(arena)),
                Err(still) => shared = still,
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Takes the front ends that were there when the worker went; more of them are [heard](Self::hear) of.
    pub fn take_connections(&self) -> Vec<(Introduction, OwnedFd)> {
        let take = |s: &Arc<Shared>| std::mem::take(&mut *s.connections.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.as_ref().map(take).unwrap_or_default()
    }

    /// Takes everything whose name begins so, by name.
    pub fn take_all(&self, prefix: &str) -> Vec<(String, Vec<OwnedFd>)> {
        let Some(shared) = &self.0 else { return Vec::new() };
        let mut held = shared.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken, rest) = std::mem::take(&mut *held).into_iter().partition(|(name, _)| name.starts_with(prefix));
        *held = rest;
        let taken: BTreeMap<String, Held> = taken;
        taken.into_iter().map(|(name, held)| (name, held.fds)).collect()
    }

    /// Takes everything whose name begins so and ends with a number, by number.
    pub fn take_numbered(&self, prefix: &str) -> Vec<(u64, Vec<OwnedFd>)> {
        let Some(shared) = &self.0 else { return Vec::new() };
        let mut held = shared.held.lock().unwrap_or_else(PoisonError::into_inner);
        let number = |name: &String| name.strip_prefix(prefix).and_then(|rest| rest.parse().ok());
        let numbers: Vec<(u64, String)> = held.keys().filter_map(|name| Some((number(name)?, name.clone()))).collect();
        numbers.into_iter().filter_map(|(number, name)| Some((number, held.remove(&name)?.fds))).collect()
    }

    /// As [`take`](Self::take) where it is one descriptor.
    pub fn take_one(&self, name: &str) -> Option<OwnedFd> {
        self.take(name)?.into_iter().next()
    }

    /// Has the keeper hold these from now on, beyond the life of the worker. Without a keeper nothing happens.
    ///
    /// # Errors
    /// The keeper does not listen.
    pub fn hold(&self, name: &str, fds: &[BorrowedFd]) -> io::Result<()> {
        self.say(&ToKeeper::Hold(name.to_owned()), fds)
    }

    /// Nothing is to be held under that name any more.
    ///
    /// # Errors
    /// The keeper does not listen.
    pub fn release(&self, name: &str) -> io::Result<()> {
        self.say(&ToKeeper::Release(name.to_owned()), &[])
    }

    /// As [`release`](Self::release), but as long as the worker only prepares the keeper goes on holding it for whoever comes if it fails:
    /// until it [begins](Self::begin) to serve.
    ///
    /// # Errors
    /// The keeper does not listen.
    pub fn let_go(&self, name: &str) -> io::Result<()> {
        let Some(shared) = &self.0 else { return Ok(()) };
        match &mut *shared.later.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(later) => later.push(name.to_owned()),
            None => return self.release(name),
        }
        Ok(())
    }

    /// The worker begins to serve: what was [let go](Self::let_go) is held no more.
    ///
    /// # Errors
    /// The keeper does not listen.
    pub fn begin(&self) -> io::Result<()> {
        let Some(shared) = &self.0 else { return Ok(()) };
        let later = shared.later.lock().unwrap_or_else(PoisonError::into_inner).take();
        later.into_iter().flatten().try_for_each(|name| self.release(&name))
    }

    /// Has the keeper hold a text.
    ///
    /// # Errors
    /// No memory, or the keeper does not listen.
    pub fn hold_text(&self, name: &str, text: &str) -> io::Result<()> {
        if self.0.is_none() {
            return Ok(());
        }
        self.hold(name, &[sealed(name, text.as_bytes())?.as_fd()])
    }

    /// The text that was held under a name.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn take_text(&self, name: &str) -> io::Result<Option<String>> {
        let Some(fd) = self.take_one(name) else { return Ok(None) };
        String::from_utf8(contents(fd)?).map(Some).map_err(|_| garbled())
    }

    /// Tells the keeper something; without one nothing happens.
    ///
    /// # Errors
    /// The keeper does not listen.
    pub fn say(&self, word: &ToKeeper, with: &[BorrowedFd]) -> io::Result<()> {
        let Some(shared) = &self.0 else { return Ok(()) };
        let (kind, text) = word.parts();
        send(&shared.channel, kind, &text, with)
    }

    /// Waits for the keeper's next word; `None` where it has gone or there never was one.
    ///
    /// # Errors
    /// It says what makes no sense.
    pub fn hear(&self) -> io::Result<Option<(ToWorker, Vec<OwnedFd>)>> {
        let Some(shared) = &self.0 else { return Ok(None) };
        let Some((kind, text, fds)) = receive(&shared.channel)? else { return Ok(None) };
        Ok(Some((ToWorker::read(kind, text).ok_or_else(garbled)?, fds)))
    }
}

#[cfg(test)]
mod tests;
