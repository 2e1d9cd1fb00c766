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
use weir_codec::{Code, Damaged, Reader, SavedError, SavedFormat, Writer, coded, coded_as, fields, numbered, record};
use weir_session::{vfio_user, vhost_user};
use weir_spec::nvme::tcp::Digest;
use weir_units::Nanos;

/// The version that is written; [`OLDEST`] and what is between are read as well.
pub const VERSION: u32 = 2;
/// The oldest version that is read: it ends before [`Saved::relays`].
pub const OLDEST: u32 = 1;
const FORMAT: SavedFormat =
    SavedFormat { oldest: OLDEST, ..SavedFormat::new(b"WEIRKEEP", VERSION, "the state of a keeper") };

/// A descriptor's number.
pub type Number = u32;

record! {
    /// All of a keeper's process.
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
    pub struct SavedProgram {
        /// Its path.
        pub path: Vec<u8>,
        /// The open file.
        pub file: Number,
    }

    /// A worker's process.
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
    pub struct SavedConn {
        /// As the worker that serves knows it.
        pub number: u64,
        /// Its socket.
        pub socket: Number,
        /// Its process, where it is known.
        pub pid: Option<u32>,
        /// What of a message is here.
        pub inbox: vhost_user::Inbox<Number>,
        /// What it is to hear.
        pub out: SavedOut,
        /// What it has said.
        pub replay: Replay<Number>,
        /// The stream to the worker that serves.
        pub line: Option<SavedLine>,
    }

    /// A socket where clients of vfio-user are let in.
    pub struct SavedRelay {
        /// Its path.
        pub path: String,
        /// The socket.
        pub listener: Number,
        /// The client that is there.
        pub conn: Option<SavedClient>,
    }

    /// A client of vfio-user.
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
    pub struct SavedOut {
        /// In order.
        pub queue: VecDeque<Envelope<Number>>,
        /// Bytes of the first one that have gone.
        pub sent: u32,
    }

    /// A stream to a worker.
    pub struct SavedLine {
        /// Its descriptor.
        pub stream: Number,
        /// What of an answer is here.
        pub inbox: vhost_user::Inbox<Number>,
        /// What the worker is to hear.
        pub out: SavedOut,
        /// The worker's end is closed.
        pub over: bool,
    }
}

impl Saved {
    /// The state as bytes.
    pub fn to_bytes<D: Digest>(&self) -> Vec<u8> {
        let mut to = FORMAT.begin(Nanos(0));
        to.put(self);
        FORMAT.seal::<D>(to)
    }

    /// Reads what [`to_bytes`](Self::to_bytes) has written.
    ///
    /// # Errors
    /// The bytes are no such state, of another version, or contradict themselves.
    pub fn parse<D: Digest>(bytes: &[u8]) -> Result<Saved, SavedError> {
        let (version, from) = FORMAT.open::<D>(Nanos(0), bytes)?;
        let mut body = from.rest().to_vec();
        if version < 2 {
            // No relays.
            body.extend([0; 4]);
        }
        let mut from = Reader::of(&body);
        let saved: Saved = from.get()?;
        from.end()?;
        if saved.agrees() { Ok(saved) } else { Err(SavedError::Damaged) }
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

coded_as! {
    WorkerId: u64, |id| id.0, |number| Some(WorkerId(number));
    Layouts: String, |layouts| layouts.to_string(), |text| Layouts::parse(&text).ok().filter(|l| l.to_string() == text);
}

numbered! { Phase: u8 { Starting = 0, Prepared = 1, Going = 2, Ready = 3, Called = 4, Deaf = 5 } }

coded! {
    Worker {
        id: "which",
        phase: "how far it is; 4 and 5 are written of no keeper at rest",
        since: "when that began",
    }
    Envelope<Number> {
        bytes: "header and payload",
        fds: "descriptors beside the first byte",
    }
}

fields! { pub(super) Keeper: put_decisions, get_decisions, decisions_rows {
    standby: "there is a standby",
    active: "the worker that serves",
    spare: "the one that waits beside it",
    last: "the number of the last one",
    deaths: "deaths in a row",
} }

/// Of one [at rest](Keeper::is_at_rest); the terms of an upgrade and the standbys that have died are the next one's affair.
impl Code for Keeper {
    fn put(&self, to: &mut Writer) {
        put_decisions(self, to);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mut keeper = Keeper::new(false);
        get_decisions(&mut keeper, from)?;
        keeper.enter(Stage::Keeping);
        Ok(keeper)
    }
    fn kind() -> String {
        "Keeper".into()
    }
}

/// What is read of what was written.
#[cfg(test)]
pub(super) fn again<T: Code>(before: &T) -> T {
    let mut to = Writer::default();
    to.put(before);
    let bytes = to.done();
    let mut from = Reader::of(&bytes);
    let after = from.get().expect("it reads what it writes");
    assert!(from.is_empty(), "all of it");
    after
}
