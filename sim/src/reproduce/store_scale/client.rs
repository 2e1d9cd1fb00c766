//! A client: it speaks the protocol's requests and keeps its rules, one operation after the other. The drives' side is times only.
//!
//! Kept are: sequences of a slot, requests that are sent again over another connection with the numbers that they had, handles that a new
//! service does not know, sessions that are resumed with their token and renewed three times in a lease, epochs that are acknowledged when no
//! older map is in use, and blocks that are given back when they could not be written.

use super::scale::{BLOCK, SESSION_LEASE};
use weir_store::file::NewBlock;
use weir_store::protocol::{Answer, PROTOCOL_MAGIC, PROTOCOL_VERSION, Request, RequestNumber, SessionWish};
use weir_store::records::{BlockRecord, SessionToken};
use weir_store::space::Epoch;
use weir_store::{
    ClassId, EntryName, EntryPath, Extent, InodeId, InodeKind, InodePath, Location, NameChange, NewInode, SessionId,
    StoreError,
};
use weir_units::Nanos;
use weir_units::rng::Xoshiro256;

/// Until what could not be done at the moment is tried again; until another process is asked.
const AGAIN: Nanos = Nanos::from_millis(50);
const ASK_ANOTHER: Nanos = Nanos::from_millis(100);
/// Blocks of a file at the most.
const BLOCKS: u64 = 4;

/// What a client wants of the world.
#[derive(Debug)]
pub enum Wants {
    /// A connection to that process; those that it has end.
    Connect(usize),
    Send(RequestNumber, Request),
    /// Its timer, after so long; one that was set before does nothing.
    Timer(Nanos, u64),
    /// These places to be written, each with a block.
    Write(Vec<Extent>),
    /// One of each of these blocks' places to be read.
    Read(Vec<Vec<Extent>>),
    /// A request about names was answered, which was sent then.
    Answered(Nanos),
    SessionLost,
    Unexpected(String),
}

/// A file that was acknowledged.
#[derive(Clone, Debug)]
pub struct File {
    pub name: EntryName,
    pub at: InodePath,
    pub copies: u8,
}

/// How far a file that is written is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Grant,
    Data,
    Return,
    Publish,
    Close,
}

/// A file that is written.
#[derive(Clone, Debug)]
struct Writing {
    name: EntryName,
    copies: u8,
    blocks: u64,
    classes: Vec<ClassId>,
    at: Option<InodePath>,
    step: Step,
    sequences: (u64, u64),
    granted: Vec<NewBlock>,
    good: Vec<NewBlock>,
    failed: Vec<Extent>,
}

#[derive(Clone, Debug)]
enum Operation {
    Directory(u64),
    Write(Writing),
    Look(usize),
    List,
    /// The file, and its map once that was read.
    Read(usize, Option<Vec<Vec<Extent>>>),
    Delete(usize, u64),
}

/// See [the module](self).
#[derive(Debug)]
pub struct Client {
    name: String,
    location: Location,
    process: usize,
    processes: usize,
    is_greeted: bool,
    session: Option<(SessionId, SessionToken)>,
    epoch: Epoch,
    number: u64,
    sequence: u64,
    pub directory: Option<InodeId>,
    operation: Option<Operation>,
    /// The handle of the file that the operation is about.
    handle: Option<u64>,
    /// The request under way, and since when it is asked for.
    asked: Option<(RequestNumber, Nanos)>,
    renewal: Option<RequestNumber>,
    timer: u64,
    random: Xoshiro256,
    pub files: Vec<File>,
    pub deleted: Vec<EntryName>,
    /// Files to write before anything else is done.
    pub fill: usize,
    /// Between two operations, once it is filled; none: it rests.
    pub think: Option<Nanos>,
    made: u64,
}

impl Client {
    pub fn new(number: usize, processes: usize, fill: usize, location: Location) -> Self {
        Self {
            name: format!("client{number}"),
            location,
            process: 0,
            processes,
            is_greeted: false,
            session: None,
            epoch: Epoch(0),
            number: 0,
            sequence: 0,
            directory: None,
            operation: None,
            handle: None,
            asked: None,
            renewal: None,
            timer: 0,
            random: Xoshiro256::new(number as u64 + 1),
            files: Vec::new(),
            deleted: Vec::new(),
            fill,
            think: None,
            made: 0,
        }
    }

    /// Whether it has nothing under way.
    pub fn rests(&self) -> bool {
        self.operation.is_none()
    }

    /// Whether it has a session with a process that serves.
    pub fn is_greeted(&self) -> bool {
        self.is_greeted
    }

    pub fn connect(&mut self, wants: &mut Vec<Wants>) {
        wants.push(Wants::Connect(self.process));
        let session = self.session.map_or(SessionWish::New, |(session, token)| SessionWish::Resume(session, token));
        let (magic, version) = (PROTOCOL_MAGIC, PROTOCOL_VERSION);
        let (client, location) = (self.name.clone(), self.location.clone());
        self.is_greeted = false;
        self.renewal = None;
        self.send(Request::Hello { magic, version, client, location, session }, wants);
    }

    fn send(&mut self, request: Request, wants: &mut Vec<Wants>) -> RequestNumber {
        self.number += 1;
        wants.push(Wants::Send(RequestNumber(self.number), request));
        RequestNumber(self.number)
    }

    fn set_timer(&mut self, after: Nanos, wants: &mut Vec<Wants>) {
        self.timer += 1;
        wants.push(Wants::Timer(after, self.timer));
    }

    /// The connection has ended, or could not be made.
    pub fn closed(&mut self, wants: &mut Vec<Wants>) {
        (self.is_greeted, self.handle, self.renewal) = (false, None, None);
        self.process = (self.process + 1) % self.processes;
        let more = self.random.below(ASK_ANOTHER.get());
        self.set_timer(ASK_ANOTHER.saturating_add(Nanos(more)), wants);
    }

    /// The timer that was set last.
    pub fn timer(&mut self, timer: u64, now: Nanos, wants: &mut Vec<Wants>) {
        match (timer == self.timer, self.is_greeted) {
            (false, _) => {}
            (true, false) => self.connect(wants),
            (true, true) => self.go_on(now, wants),
        }
    }

    /// Three times in a lease.
    pub fn renew(&mut self, wants: &mut Vec<Wants>) {
        if self.is_greeted && self.renewal.is_none() {
            let epoch = self.epoch;
            self.renewal = Some(self.send(Request::Renew { epoch }, wants));
        }
    }

    pub const RENEW_EVERY: Nanos = Nanos(SESSION_LEASE.get() / 3);

    /// Begins an operation if there is none, and asks for its next step.
    pub fn go_on(&mut self, now: Nanos, wants: &mut Vec<Wants>) {
        if self.operation.is_none() {
            self.operation = self.next_operation();
        }
        let Some(request) = self.request() else { return };
        let since = self.asked.map_or(now, |(_, since)| since);
        let number = self.send(request, wants);
        self.asked = Some((number, since));
    }

    fn next_operation(&mut self) -> Option<Operation> {
        if self.directory.is_none() {
            self.sequence += 1;
            return Some(Operation::Directory(self.sequence));
        }
        if self.files.len() < self.fill {
            return Some(self.writing());
        }
        self.think?;
        let count = self.files.len() as u64;
        let file = self.random.below(count) as usize;
        let chance = if count == 0 { 0 } else { self.random.below(100) };
        Some(match chance {
            0..20 => self.writing(),
            // Those with one copy stay: they tell how many are lost with a drive.
            20..32 if self.files[file].copies > 1 => {
                self.sequence += 1;
                Operation::Delete(file, self.sequence)
            }
            32..75 => Operation::Look(file),
            75..80 => Operation::List,
            _ => Operation::Read(file, None),
        })
    }

    fn writing(&mut self) -> Operation {
        self.made += 1;
        self.sequence += 2;
        let name = EntryName::new(format!("file{}", self.made).as_bytes()).expect("a short name");
        let copies = if self.random.below(10) == 0 { 1 } else { 2 };
        // Half of the files ask for flash, the others take memory as long as there is some.
        let classes = if self.random.below(2) == 0 { vec![ClassId(1)] } else { Vec::new() };
        let (blocks, sequences) = (1 + self.random.below(BLOCKS), (self.sequence - 1, self.sequence));
        let (granted, good, failed) = (Vec::new(), Vec::new(), Vec::new());
        let (at, step) = (None, Step::Grant);
        Operation::Write(Writing { name, copies, blocks, classes, at, step, sequences, granted, good, failed })
    }

    /// What the operation asks for as it stands. Nothing while bytes move.
    fn request(&self) -> Option<Request> {
        let container = self.directory.unwrap_or(InodeId::ROOT);
        let path = |file: &File| Request::Resolve { from: container, names: vec![file.name.clone()], follow: true };
        Some(match self.operation.as_ref()? {
            Operation::Directory(sequence) => {
                let name = EntryName::new(self.name.as_bytes()).expect("a short name");
                let entry = EntryPath { container: InodeId::ROOT, name };
                let change = NameChange::Create(entry, new_inode(InodeKind::Directory, 1, Vec::new()));
                Request::Change { slot: 0, sequence: *sequence, change }
            }
            Operation::Write(writing) => return self.write_request(writing, container),
            Operation::Look(file) => path(&self.files[*file]),
            Operation::List => Request::List { container, after: None, most: 256 },
            Operation::Read(file, map) => match (self.handle, map) {
                (None, _) => Request::Open { at: self.files[*file].at, write: false },
                (Some(handle), None) => Request::Map { handle, chunk: 0 },
                (Some(handle), Some(map)) if map.is_empty() => Request::Close { handle },
                (Some(_), Some(_)) => return None,
            },
            Operation::Delete(file, sequence) => {
                let entry = EntryPath { container, name: self.files[*file].name.clone() };
                let change = NameChange::Delete { entry, recursive: false };
                Request::Change { slot: 0, sequence: *sequence, change }
            }
        })
    }

    fn write_request(&self, writing: &Writing, container: InodeId) -> Option<Request> {
        let Some(at) = writing.at else {
            let entry = EntryPath { container, name: writing.name.clone() };
            let new = new_inode(InodeKind::File, writing.copies, writing.classes.clone());
            let (slot, sequence) = (0, writing.sequences.0);
            return Some(Request::OpenNew { slot, sequence, entry, new, content: Vec::new(), exclusive: true });
        };
        let Some(handle) = self.handle else { return Some(Request::Open { at, write: true }) };
        Some(match writing.step {
            Step::Grant => Request::Grant { handle, count: (writing.blocks - writing.good.len() as u64) as u32 },
            Step::Data => return None,
            Step::Return => Request::Return { extents: writing.failed.clone() },
            Step::Publish => {
                let blocks = (0..).zip(&writing.good).map(|(number, block)| (number, record(block))).collect();
                let (slot, sequence) = (0, writing.sequences.1);
                Request::Publish { handle, slot, sequence, size: writing.blocks * BLOCK, blocks }
            }
            Step::Close => Request::Close { handle },
        })
    }

    /// An answer has come.
    pub fn answer(&mut self, number: RequestNumber, answer: Answer, now: Nanos, wants: &mut Vec<Wants>) {
        if self.renewal == Some(number) {
            self.renewal = None;
            match answer {
                // No map is in use but that of a read under way, which acknowledges nothing newer.
                Answer::Renewed { epoch } if !matches!(self.operation, Some(Operation::Read(..))) => self.epoch = epoch,
                Answer::Failed { error: StoreError::SessionGone | StoreError::NoSession, .. } => {
                    self.lose_session(wants)
                }
                _ => {}
            }
            return;
        }
        match answer {
            Answer::Welcome { welcome } => {
                self.session = welcome.session.map(|session| (session, welcome.token));
                self.is_greeted = true;
                self.epoch = self.epoch.max(welcome.epoch);
                self.go_on(now, wants);
            }
            Answer::Standby { addresses } => {
                // The one that serves, if it is known; the connection ends, and the next one is asked then.
                let process = addresses.first().and_then(|address| address.parse::<usize>().ok());
                self.process = process.map_or(self.process, |process| (process + self.processes - 1) % self.processes);
            }
            _ if !self.is_greeted => self.not_greeted(&answer, wants),
            _ if self.asked.is_none_or(|(asked, _)| asked != number) => {}
            Answer::Failed { error, detail } => self.refused(error, &detail, now, wants),
            answer => self.answered(answer, now, wants),
        }
    }

    fn not_greeted(&mut self, answer: &Answer, wants: &mut Vec<Wants>) {
        match answer {
            Answer::Failed { error: StoreError::SessionGone | StoreError::NoSession, .. } => self.lose_session(wants),
            _ => self.set_timer(ASK_ANOTHER, wants),
        }
    }

    /// The session has ended: what was under way is given up, acknowledged or not.
    fn lose_session(&mut self, wants: &mut Vec<Wants>) {
        wants.push(Wants::SessionLost);
        (self.session, self.handle, self.operation, self.asked) = (None, None, None, None);
        self.connect(wants);
    }

    fn refused(&mut self, error: StoreError, detail: &str, now: Nanos, wants: &mut Vec<Wants>) {
        match error {
            StoreError::Unavailable
            | StoreError::Busy
            | StoreError::Overloaded
            | StoreError::Recovering
            | StoreError::Freeing(_) => {
                let more = self.random.below(AGAIN.get());
                self.set_timer(AGAIN.saturating_add(Nanos(more)), wants);
            }
            StoreError::NotOpen => {
                self.handle = None;
                self.go_on(now, wants);
            }
            StoreError::SessionGone | StoreError::NoSession | StoreError::Ahead => self.lose_session(wants),
            _ => {
                wants.push(Wants::Unexpected(format!("{}: {error}: {detail}", self.name)));
                self.done(now, wants);
            }
        }
    }

    /// A step of the operation is done.
    fn answered(&mut self, answer: Answer, now: Nanos, wants: &mut Vec<Wants>) {
        let is_name = matches!(
            (&self.operation, &answer),
            (Some(Operation::Write(Writing { at: None, .. })), Answer::Opened { .. })
                | (Some(Operation::Directory(_) | Operation::Delete(..)), Answer::Changed { .. })
                | (Some(Operation::Look(_)), Answer::Found { .. })
                | (Some(Operation::List), Answer::Page { .. })
        );
        if let (Some((_, since)), true) = (self.asked.take(), is_name) {
            wants.push(Wants::Answered(since));
        }
        match (self.operation.take(), answer) {
            (Some(Operation::Directory(_)), Answer::Changed { changed }) => {
                self.directory = Some(changed.inode);
                self.done(now, wants);
            }
            (Some(Operation::Write(writing)), answer) => self.written(writing, answer, now, wants),
            (Some(Operation::Read(file, map)), answer) => self.read(file, map, answer, now, wants),
            (Some(Operation::Delete(file, _)), Answer::Changed { .. }) => {
                let gone = self.files.swap_remove(file);
                self.deleted.push(gone.name);
                self.done(now, wants);
            }
            (Some(Operation::Look(_)), Answer::Found { .. }) | (Some(Operation::List), Answer::Page { .. }) => {
                self.done(now, wants);
            }
            (operation, answer) => {
                wants.push(Wants::Unexpected(format!("{}: {operation:?} was answered {answer:?}", self.name)));
                self.done(now, wants);
            }
        }
    }

    fn written(&mut self, mut writing: Writing, answer: Answer, now: Nanos, wants: &mut Vec<Wants>) {
        match (writing.step, answer) {
            (_, Answer::Opened { handle, at, .. }) => (self.handle, writing.at) = (Some(handle), Some(at)),
            (Step::Grant, Answer::Granted { blocks }) => {
                wants.push(Wants::Write(blocks.iter().flat_map(|block| block.copies.clone()).collect()));
                (writing.granted, writing.step) = (blocks, Step::Data);
            }
            (Step::Return, Answer::Done {}) => {
                writing.failed.clear();
                writing.step = writing.after_data();
            }
            (Step::Publish, Answer::Changed { .. }) => writing.step = Step::Close,
            (Step::Close, Answer::Done {}) => {
                let Some(at) = writing.at else { return };
                let copies = writing.good.iter().map(|block| block.copies.len()).min().unwrap_or(0) as u8;
                self.files.push(File { name: writing.name, at, copies });
                return self.done(now, wants);
            }
            (step, answer) => wants.push(Wants::Unexpected(format!("{}: {step:?}: {answer:?}", self.name))),
        }
        self.operation = Some(Operation::Write(writing));
        self.go_on(now, wants);
    }

    fn read(&mut self, file: usize, map: Option<Vec<Vec<Extent>>>, answer: Answer, now: Nanos, wants: &mut Vec<Wants>) {
        match (map, answer) {
            (None, Answer::Opened { handle, .. }) => {
                self.handle = Some(handle);
                self.operation = Some(Operation::Read(file, None));
                self.go_on(now, wants);
            }
            (None, Answer::Chunk { chunk, .. }) => {
                let blocks: Vec<Vec<Extent>> = chunk.blocks.into_iter().map(|block| block.copies).collect();
                if !blocks.is_empty() {
                    wants.push(Wants::Read(blocks.clone()));
                }
                self.operation = Some(Operation::Read(file, Some(blocks)));
            }
            // Of a connection before: it is open again, to be closed.
            (Some(map), Answer::Opened { handle, .. }) => {
                self.handle = Some(handle);
                self.operation = Some(Operation::Read(file, Some(map)));
                self.go_on(now, wants);
            }
            _ => self.done(now, wants),
        }
    }

    /// The bytes have moved: whether each place was written.
    pub fn transferred(&mut self, is_done: &[bool], now: Nanos, wants: &mut Vec<Wants>) {
        match &mut self.operation {
            Some(Operation::Write(writing)) if writing.step == Step::Data => writing.sort_out(is_done),
            Some(Operation::Read(_, Some(map))) => map.clear(),
            _ => return,
        }
        if self.is_greeted {
            self.go_on(now, wants);
        }
    }

    /// The operation is over.
    fn done(&mut self, now: Nanos, wants: &mut Vec<Wants>) {
        (self.operation, self.handle, self.asked) = (None, None, None);
        match self.think {
            Some(think) if self.files.len() >= self.fill => {
                // Exponential, by a table that is good enough: the sum of parts of what is left.
                let part = (self.random.below(1 << 20) + 1) as f64 / (1 << 20) as f64;
                self.set_timer(Nanos((think.get() as f64 * -part.ln()) as u64), wants);
            }
            None if self.files.len() >= self.fill => {}
            _ => self.go_on(now, wants),
        }
    }
}

impl Writing {
    /// What follows when the bytes are written, and what could not be was given back.
    fn after_data(&self) -> Step {
        if (self.good.len() as u64) < self.blocks { Step::Grant } else { Step::Publish }
    }

    /// A block has the copies that were written; one that has none is asked for again.
    fn sort_out(&mut self, is_done: &[bool]) {
        let mut done = is_done.iter();
        for block in std::mem::take(&mut self.granted) {
            let (mut copies, mut is_first_good) = (Vec::new(), None);
            for copy in block.copies {
                let is_done = done.next().copied().unwrap_or(false);
                is_first_good.get_or_insert(is_done);
                if is_done { copies.push(copy) } else { self.failed.push(copy) }
            }
            // The checksums begin with the generation of the first copy: without that one the block is written anew.
            match (copies.is_empty(), is_first_good) {
                (false, Some(true)) => self.good.push(NewBlock { copies, generation: block.generation }),
                _ => self.failed.extend(copies),
            }
        }
        self.step = if self.failed.is_empty() { self.after_data() } else { Step::Return };
    }
}

fn new_inode(kind: InodeKind, copies: u8, classes: Vec<ClassId>) -> NewInode {
    NewInode {
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        target: Vec::new(),
        classes,
        location: Location::default(),
        copies,
        block: 0,
    }
}

fn record(block: &NewBlock) -> BlockRecord {
    let checksums = vec![0; (BLOCK / (64 << 10)) as usize];
    BlockRecord { index: 0, generation: block.generation, is_unsettled: false, copies: block.copies.clone(), checksums }
}
