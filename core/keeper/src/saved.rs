//! All that a keeper knows, as bytes: for the program that it runs next (`docs/reference/formats.md` has the tables).
//!
//! ```text
//!   WEIRKEEP │ version u32 │ length u32 of all │ fields in the order of their structures … │ CRC32C u32 of all before
//!   u8 … u64: little endian    bool: u8, 0 or 1    optional: u8, 0 or 1, and then it    list, text: how many u32, and then they
//! ```
//! Descriptors are their numbers, which a process keeps when it executes another program. Only a keeper at rest is saved: one worker serves,
//! and no upgrade, death or end is being dealt with.

use super::{Envelope, Keeper, Layouts, Phase, Relay, Replay, Stage, Worker, WorkerId};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use weir_session::vfio_user;
use weir_session::vhost_user::Inbox;
use weir_spec::nvme::tcp::Digest;
use weir_spec::vhost_user::{MemoryRegion, Request, VringAddress};
use weir_units::Nanos;
use zerocopy::{FromBytes, IntoBytes};

/// The version that is written; [`OLDEST`] and what is between are read as well.
pub const VERSION: u32 = 2;
/// The oldest version that is read: it ends before [`Saved::relays`].
pub const OLDEST: u32 = 1;
const MAGIC: [u8; 8] = *b"WEIRKEEP";
/// Magic, version, length.
const HEAD: usize = 16;
/// The checksum.
const TAIL: usize = 4;

/// A descriptor's number.
pub type Number = u32;

/// All of a keeper's process.
#[derive(Debug)]
pub struct Saved {
    /// The process; it goes on under that id.
    pub pid: u32,
    /// The decisions; their times are the system's monotonic clock's.
    pub machine: Keeper,
    /// Where an upgrade that names no program looks for one.
    pub usual: Vec<u8>,
    /// The program that workers run.
    pub program: SavedProgram,
    /// Its arguments.
    pub arguments: Vec<Vec<u8>>,
    /// Workers that were told to go.
    pub generation: u64,
    /// Connections that workers were told of.
    pub connections: u64,
    /// How far the last upgrade is, as JSON; empty: there was none.
    pub upgrade: String,
    /// When its present phase began.
    pub since: Nanos,
    /// The workers' processes.
    pub workers: Vec<SavedWorker>,
    /// The one that said it was ready last, if it lives.
    pub ready: Option<WorkerId>,
    /// What is held, by name.
    pub held: BTreeMap<String, Vec<Number>>,
    /// The sockets where front ends are let in.
    pub fronts: Vec<SavedFront>,
    /// The sockets where clients of vfio-user are.
    pub relays: Vec<SavedRelay>,
}

/// A program's file.
#[derive(Debug)]
pub struct SavedProgram {
    /// Its path.
    pub path: Vec<u8>,
    /// The open file.
    pub file: Number,
}

/// A worker's process.
#[derive(Debug)]
pub struct SavedWorker {
    /// Which.
    pub id: WorkerId,
    /// Its process.
    pub pid: u32,
    /// The same, as a descriptor.
    pub pidfd: Number,
    /// The keeper's end of their conversation.
    pub channel: Number,
    /// What it reads and writes.
    pub layouts: Layouts,
}

/// A socket where front ends are let in.
#[derive(Debug)]
pub struct SavedFront {
    /// Its path.
    pub path: String,
    /// Whether workers keep in-flight regions for it.
    pub inflight: bool,
    /// The socket.
    pub listener: Number,
    /// The front end that is there.
    pub conn: Option<SavedConn>,
}

/// A front end.
#[derive(Debug)]
pub struct SavedConn {
    /// As the worker that serves knows it.
    pub number: u64,
    /// Its socket.
    pub socket: Number,
    /// Its process, where it is known.
    pub pid: Option<u32>,
    /// What of a message is here.
    pub inbox: Inbox<Number>,
    /// What it is to hear.
    pub out: SavedOut,
    /// What it has said.
    pub replay: Replay<Number>,
    /// The stream to the worker that serves.
    pub line: Option<SavedLine>,
}

/// A socket where clients of vfio-user are let in.
#[derive(Debug)]
pub struct SavedRelay {
    /// Its path.
    pub path: String,
    /// The socket.
    pub listener: Number,
    /// The client that is there.
    pub conn: Option<SavedClient>,
}

/// A client of vfio-user.
#[derive(Debug)]
pub struct SavedClient {
    /// As the worker that serves knows it.
    pub number: u64,
    /// Its socket.
    pub socket: Number,
    /// Its process, where it is known.
    pub pid: Option<u32>,
    /// What of a message is here.
    pub inbox: vfio_user::Inbox<Number>,
    /// What it is to hear.
    pub out: SavedOut,
    /// What it has said.
    pub relay: Relay<Number>,
    /// The stream to the worker that serves.
    pub line: Option<SavedWire>,
}

/// A stream to a worker, with messages of vfio-user.
#[derive(Debug)]
pub struct SavedWire {
    /// Its descriptor.
    pub stream: Number,
    /// What of a message is here.
    pub inbox: vfio_user::Inbox<Number>,
    /// What the worker is to hear.
    pub out: SavedOut,
    /// The worker's end is closed.
    pub over: bool,
}

/// Messages on their way.
#[derive(Debug)]
pub struct SavedOut {
    /// In order.
    pub queue: VecDeque<Envelope<Number>>,
    /// Bytes of the first one that have gone.
    pub sent: u32,
}

/// A stream to a worker.
#[derive(Debug)]
pub struct SavedLine {
    /// Its descriptor.
    pub stream: Number,
    /// What of an answer is here.
    pub inbox: Inbox<Number>,
    /// What the worker is to hear.
    pub out: SavedOut,
    /// The worker's end is closed.
    pub over: bool,
}

/// Why bytes are no keeper's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedError {
    /// They do not begin as such bytes do.
    Foreign,
    /// They are of another release.
    Version(u32),
    /// Their length or their checksum is wrong, or they contradict themselves.
    Damaged,
}

impl fmt::Display for SavedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SavedError::Foreign => f.write_str("it is not the state of a keeper"),
            SavedError::Version(version) => {
                write!(f, "it has layout {version} and this release reads layouts {OLDEST} to {VERSION}")
            }
            SavedError::Damaged => f.write_str("it is damaged: its length, its checksum or what it says is wrong"),
        }
    }
}

impl core::error::Error for SavedError {}

impl Saved {
    /// The state as bytes.
    pub fn to_bytes<D: Digest>(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        VERSION.put(&mut bytes);
        0u32.put(&mut bytes);
        self.put(&mut bytes);
        let length = (bytes.len() + TAIL) as u32;
        bytes[HEAD - 4..HEAD].copy_from_slice(&length.to_le_bytes());
        let crc = D::append(0, &bytes);
        crc.put(&mut bytes);
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) has written.
    ///
    /// # Errors
    /// See [`SavedError`].
    pub fn parse<D: Digest>(bytes: &[u8]) -> Result<Saved, SavedError> {
        let head = bytes.get(..HEAD).filter(|head| head.starts_with(&MAGIC)).ok_or(SavedError::Foreign)?;
        let mut rest = Rest(&head[MAGIC.len()..]);
        let (version, length) = <(u32, u32)>::get(&mut rest).ok_or(SavedError::Foreign)?;
        if !(OLDEST..=VERSION).contains(&version) {
            return Err(SavedError::Version(version));
        }
        let whole = bytes.len() == length as usize && bytes.len() >= HEAD + TAIL;
        let (body, crc) = bytes.split_at_checked(bytes.len() - TAIL).filter(|_| whole).ok_or(SavedError::Damaged)?;
        if D::append(0, body).to_le_bytes() != crc {
            return Err(SavedError::Damaged);
        }
        let mut body = body[HEAD..].to_vec();
        if version < 2 {
            // No relays.
            0u32.put(&mut body);
        }
        let mut rest = Rest(&body);
        Saved::get(&mut rest).filter(|saved| rest.0.is_empty() && saved.agrees()).ok_or(SavedError::Damaged)
    }

    /// Whether it does not contradict itself.
    fn agrees(&self) -> bool {
        let there = |id: WorkerId| self.workers.iter().any(|w| w.id == id);
        let machine = &self.machine;
        let serves = machine.serving();
        let each = [machine.active, machine.spare].into_iter().flatten();
        machine.is_at_rest()
            && each.clone().all(|w| there(w.id) && w.id.0 <= machine.last)
            && machine.spare.is_none_or(|w| Some(w.id) != serves && w.phase != Phase::Ready)
            && self.ready.is_none_or(|id| Some(id) == serves)
            && self.fronts.iter().filter_map(|f| f.conn.as_ref()).all(SavedConn::agrees)
            && self.relays.iter().filter_map(|r| r.conn.as_ref()).all(SavedClient::agrees)
    }
}

impl SavedOut {
    fn agrees(&self) -> bool {
        match self.queue.front() {
            Some(first) => (self.sent as usize) < first.bytes.len(),
            None => self.sent == 0,
        }
    }
}

impl SavedConn {
    fn agrees(&self) -> bool {
        !self.inbox.has_answers()
            && self.out.agrees()
            && self.line.as_ref().is_none_or(|line| line.inbox.has_answers() && line.out.agrees())
    }
}

impl SavedClient {
    fn agrees(&self) -> bool {
        self.out.agrees() && self.relay.agrees() && self.line.as_ref().is_none_or(|line| line.out.agrees())
    }
}

/// Takes the front off.
pub(crate) struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
}

/// What can be written and read again.
pub(crate) trait Code: Sized {
    fn put(&self, out: &mut Vec<u8>);
    /// `None` where it ends too early or is nothing of the kind.
    fn get(from: &mut Rest) -> Option<Self>;
}

/// The fields of a structure, in this order.
macro_rules! coded {
    ($($name:ident $(<$f:ty>)? { $($field:ident),* $(,)? })*) => { $(
        impl $crate::saved::Code for $name $(<$f>)? {
            fn put(&self, out: &mut alloc::vec::Vec<u8>) {
                let $name { $($field),* } = self;
                $($crate::saved::Code::put($field, out);)*
            }
            fn get(from: &mut $crate::saved::Rest) -> Option<Self> {
                $(let $field = $crate::saved::Code::get(from)?;)*
                Some($name { $($field),* })
            }
        }
    )* };
}
pub(crate) use coded;

macro_rules! integers {
    ($($kind:ident)*) => { $(
        impl Code for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn get(from: &mut Rest) -> Option<Self> {
                from.take(size_of::<$kind>())?.try_into().ok().map($kind::from_le_bytes)
            }
        }
    )* };
}
integers!(u8 u16 u32 u64);

/// What is another type in the bytes.
macro_rules! as_other {
    ($($name:ty: $of:expr, $other:ty, $back:expr;)*) => { $(
        impl Code for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let of: fn(&$name) -> $other = $of;
                of(self).put(out);
            }
            fn get(from: &mut Rest) -> Option<Self> {
                let back: fn($other) -> Option<$name> = $back;
                back(Code::get(from)?)
            }
        }
    )* };
}

as_other! {
    bool: |b| u8::from(*b), u8, |b| match b { 0 => Some(false), 1 => Some(true), _ => None };
    Nanos: |t| t.get(), u64, |t| Some(Nanos(t));
    WorkerId: |id| id.0, u64, |id| Some(WorkerId(id));
    Request: |r| r.0, u32, |r| Some(Request(r));
    String: |text| text.as_bytes().to_vec(), Vec<u8>, |bytes| String::from_utf8(bytes).ok();
    Layouts: |layouts| layouts.to_string(), String, |text| Layouts::parse(&text).ok().filter(|l| l.to_string() == text);
    Phase: |phase| match phase {
        Phase::Starting => 0,
        Phase::Prepared => 1,
        Phase::Going => 2,
        Phase::Ready => 3,
        Phase::Called => 4,
        Phase::Deaf => 5,
    }, u8, |code| match code {
        0 => Some(Phase::Starting),
        1 => Some(Phase::Prepared),
        2 => Some(Phase::Going),
        3 => Some(Phase::Ready),
        4 => Some(Phase::Called),
        5 => Some(Phase::Deaf),
        _ => None,
    };
}

/// What has a layout of its own.
macro_rules! as_bytes {
    ($($name:ident)*) => { $(
        impl Code for $name {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_bytes());
            }
            fn get(from: &mut Rest) -> Option<Self> {
                $name::read_from_bytes(from.take(size_of::<$name>())?).ok()
            }
        }
    )* };
}
as_bytes!(MemoryRegion VringAddress);

impl<A: Code, B: Code> Code for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn get(from: &mut Rest) -> Option<Self> {
        Some((A::get(from)?, B::get(from)?))
    }
}

impl<T: Code> Code for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|t| t.put(out));
    }
    fn get(from: &mut Rest) -> Option<Self> {
        Some(if bool::get(from)? { Some(T::get(from)?) } else { None })
    }
}

impl<T: Code> Code for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_all(self.iter(), out);
    }
    fn get(from: &mut Rest) -> Option<Self> {
        get_all(from)
    }
}

impl<T: Code> Code for VecDeque<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_all(self.iter(), out);
    }
    fn get(from: &mut Rest) -> Option<Self> {
        get_all(from).map(Vec::into)
    }
}

impl<K: Code + Ord, V: Code> Code for BTreeMap<K, V> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }
    /// In order, and none twice.
    fn get(from: &mut Rest) -> Option<Self> {
        let all: Vec<(K, V)> = get_all(from)?;
        all.is_sorted_by(|a, b| a.0 < b.0).then(|| all.into_iter().collect())
    }
}

fn put_all<'a, T: Code + 'a>(all: impl ExactSizeIterator<Item = &'a T>, out: &mut Vec<u8>) {
    (all.len() as u32).put(out);
    all.for_each(|t| t.put(out));
}

/// Nothing is reserved for what is only promised: every element takes a byte at least.
fn get_all<T: Code>(from: &mut Rest) -> Option<Vec<T>> {
    let count = u32::get(from)?;
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(T::get(from)?);
    }
    Some(all)
}

coded! {
    Saved {
        pid, machine, usual, program, arguments, generation, connections, upgrade, since, workers, ready, held, fronts, relays,
    }
    SavedProgram { path, file }
    SavedWorker { id, pid, pidfd, channel, layouts }
    SavedFront { path, inflight, listener, conn }
    SavedConn { number, socket, pid, inbox, out, replay, line }
    SavedRelay { path, listener, conn }
    SavedClient { number, socket, pid, inbox, out, relay, line }
    SavedWire { stream, inbox, out, over }
    SavedOut { queue, sent }
    SavedLine { stream, inbox, out, over }
    Envelope<Number> { bytes, fds }
    Worker { id, phase, since }
}

/// What is read of what was written.
#[cfg(test)]
pub(super) fn again<T: Code>(before: &T) -> T {
    let mut bytes = Vec::new();
    before.put(&mut bytes);
    let mut rest = Rest(&bytes);
    let after = T::get(&mut rest).expect("it reads what it writes");
    assert!(rest.0.is_empty(), "all of it");
    after
}

/// Of one [at rest](Keeper::is_at_rest); the terms of an upgrade and the standbys that have died are the next one's affair.
impl Code for Keeper {
    fn put(&self, out: &mut Vec<u8>) {
        self.standby.put(out);
        self.active.put(out);
        self.spare.put(out);
        self.last.put(out);
        self.deaths.put(out);
    }
    fn get(from: &mut Rest) -> Option<Self> {
        let mut keeper = Keeper::new(bool::get(from)?);
        keeper.active = Code::get(from)?;
        keeper.spare = Code::get(from)?;
        keeper.last = Code::get(from)?;
        keeper.deaths = Code::get(from)?;
        keeper.enter(Stage::Keeping);
        Some(keeper)
    }
}

/// What of a message is here: it is read once more.
impl Code for Inbox<Number> {
    fn put(&self, out: &mut Vec<u8>) {
        let (bytes, fds) = self.part();
        self.has_answers().put(out);
        put_all(bytes.iter(), out);
        put_all(fds.iter(), out);
    }
    fn get(from: &mut Rest) -> Option<Self> {
        let mut inbox = if bool::get(from)? { Inbox::of_answers() } else { Inbox::default() };
        let (bytes, fds): (Vec<u8>, Vec<Number>) = Code::get(from)?;
        inbox.refill(&bytes, fds).then_some(inbox)
    }
}

/// The same.
impl Code for vfio_user::Inbox<Number> {
    fn put(&self, out: &mut Vec<u8>) {
        let (bytes, fds) = self.partial();
        put_all(bytes.iter(), out);
        put_all(fds.iter(), out);
    }
    fn get(from: &mut Rest) -> Option<Self> {
        let (bytes, fds): (Vec<u8>, Vec<Number>) = Code::get(from)?;
        vfio_user::gathered(&bytes, fds).ok().and_then(|(inbox, whole)| whole.is_none().then_some(inbox))
    }
}
