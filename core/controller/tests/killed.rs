//! A ring controller whose server is killed: after every store that outlives it, in every part of a client's life, and again while it
//! comes back. Production code under a model of the client, the door and the media: every command completes once, what must not be executed
//! twice is not, and what is on the media is what the client wrote.

mod common;

use common::config;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use weir_controller::{
    Attach, BlockRequest, ControllerHandle, DataPiece, DataPointer, Direction, Effect, Effects, Event, Host, Io,
    Journals, NamespaceConfig, Op, Owner, RingCompletion, Subsystem, Tag, TransportModel, Walk, ZoneConfig,
    ZonedNamespace,
};
use weir_journal::{CrashPoint, JournalMemory};
use weir_spec::nvme::register::{self, Cc};
use weir_spec::nvme::zns::ZonedOpcode;
use weir_spec::nvme::{AdminOpcode, Cqe, IoOpcode, Sqe, Status};
use weir_units::Nanos;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

const OWNER: Owner = Owner(5);
const QUEUES: u16 = 3;
const ENTRIES: u32 = 8;
const BLOCK: usize = 512;
const MEMORY: usize = 1 << 17;
/// A namespace with zones, and where it begins on the media.
const ZONED: u32 = 7;
const START: u64 = 16 << 30;
const ZONES: ZoneConfig = ZoneConfig {
    zones: 2,
    size: 32,
    capacity: 32,
    max_open: 2,
    max_active: 2,
    zrwa: None,
    read_across: false,
    extension: 0,
};
/// No doorbell is rung with it.
const UNRUNG: u32 = u32::MAX;

/// A message of the client.
#[derive(Clone, Copy, Debug)]
enum Message {
    Register(u32, u64),
    Tail(u16, u32),
    Head(u16, u32),
    /// What was to be written by this message is written: the command that it belongs to.
    Answered(u16, u16),
}

/// Bytes for memory that the server reaches by messages: address, bytes, submission queue and command.
type Ask = (u64, Vec<u8>, (u16, u16));

/// A completion that waits for such bytes: where it goes, itself, and how the journal knows its command.
type Held = (u64, Cqe, RingCompletion);

/// Addresses from here on are the same memory, reached by messages.
const FAR: u64 = 1 << 40;

/// What is written at once: the state of the controller, the completions of the admin queue that it has decided, messages applied.
#[derive(Clone, Debug, Default)]
struct Checkpoint {
    controller: Vec<u8>,
    posts: Vec<(u64, Cqe)>,
    applied: usize,
    /// Nothing of a command was on its way by messages.
    survives: bool,
}

/// What outlives the server, and how many stores to it are left.
#[derive(Debug)]
struct Outside {
    left: Cell<u64>,
    dead: Cell<bool>,
    memory: RefCell<Vec<u8>>,
    journal: RefCell<Vec<u64>>,
    media: RefCell<BTreeMap<u64, [u8; BLOCK]>>,
    checkpoint: RefCell<Option<Checkpoint>>,
    /// Mapped doorbells, by queue identifier; messages instead where they are not mapped.
    bells: RefCell<Vec<(u32, u32)>>,
    mapped: bool,
    messages: RefCell<Vec<Message>>,
    /// Whether the client reads into memory that is reached by messages, and what it is asked to write there.
    far: bool,
    asks: RefCell<Vec<Ask>>,
    /// A successor could not know what was on its way.
    disconnected: Cell<bool>,
    /// What a drive's file tells of its first zone: blocks that have landed.
    landed: Cell<u32>,
}

impl Outside {
    fn alive(&self) -> bool {
        if self.left.get() == 0 {
            self.dead.set(true);
            return false;
        }
        self.left.set(self.left.get() - 1);
        true
    }

    fn read(&self, at: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.memory.borrow()[at as usize..at as usize + into.len()]);
    }

    /// The server's store.
    fn write(&self, at: u64, from: &[u8]) {
        if self.alive() {
            self.put(at, from);
        }
    }

    /// Anybody's.
    fn put(&self, at: u64, from: &[u8]) {
        self.memory.borrow_mut()[at as usize..at as usize + from.len()].copy_from_slice(from);
    }

    fn cqe(&self, at: u64) -> Cqe {
        let mut bytes = [0; 16];
        self.read(at, &mut bytes);
        Cqe::from_words([0, 8].map(|i| u64::from_le_bytes(bytes[i..i + 8].try_into().unwrap())))
    }
}

#[derive(Clone, Debug)]
struct Region(Rc<Outside>);

impl JournalMemory for Region {
    fn count(&self) -> usize {
        self.0.journal.borrow().len()
    }
    fn load(&self, at: usize, _: Ordering) -> u64 {
        self.0.journal.borrow()[at]
    }
    fn store(&self, at: usize, value: u64, _: Ordering) {
        if self.0.alive() {
            self.0.journal.borrow_mut()[at] = value;
        }
    }
}

/// The door: what the server knows of its client.
struct Door {
    outside: Rc<Outside>,
    journals: Journals<Region>,
    /// Completions of the admin queue that are not in a checkpoint yet.
    posts: Vec<(u64, Cqe)>,
    /// Something of what a checkpoint has has changed.
    dirty: bool,
    /// Commands whose bytes go by messages, with the completion that waits for the answer; what is asked in this turn.
    late: Vec<((u16, u16), Option<Held>)>,
    asks: Vec<Ask>,
}

impl Door {
    fn walk(
        &self,
        data: &DataPointer,
        direction: Direction,
        at: u32,
        len: usize,
        mut each: impl FnMut(u64, usize, usize),
    ) {
        let mut walk = Walk::new(data, direction, at, len as u32);
        let mut at = 0;
        let mut read = |address, into: &mut [u8]| {
            self.outside.read(address, into);
            Ok(())
        };
        while let Some(piece) = walk.next(&mut read).unwrap() {
            if let DataPiece::Memory { address, len } = piece {
                each(address, at, len as usize);
            }
            at += piece.len() as usize;
        }
    }

    /// Notes and posts a completion.
    fn release(&mut self, address: u64, cqe: &Cqe, taken: RingCompletion) {
        self.journals.done(cqe, taken);
        self.outside.write(address, cqe.as_bytes());
        self.journals.posted(cqe, taken);
    }

    /// The client has written what a command's completion waits for.
    fn answered(&mut self, key: (u16, u16)) {
        let Some(at) = self.late.iter().position(|late| late.0 == key) else { return };
        self.dirty = true;
        if let Some((address, cqe, taken)) = self.late.remove(at).1 {
            self.release(address, &cqe, taken);
        }
    }
}

impl Host for Door {
    fn fetch(&mut self, _: Owner, address: u64) -> Result<[u64; 8], Status> {
        let mut bytes = [0; 64];
        self.outside.read(address, &mut bytes);
        Ok(Sqe::words_of(&bytes))
    }
    fn post(&mut self, _: Owner, address: u64, _: Option<u16>, cqe: &Cqe) -> Result<(), Status> {
        self.outside.write(address, cqe.as_bytes());
        Ok(())
    }
    fn take(&mut self, _: Owner, qid: u16, entry: &[u64; 8], head: u32) -> Tag {
        if qid == 0 {
            self.dirty = true;
            return Tag(0);
        }
        if entry[3] >= FAR {
            self.late.push(((qid, (entry[0] >> 16) as u16), None));
            self.dirty = true;
        }
        self.journals.take(qid, entry, head)
    }
    fn decide(&mut self, _: Owner, tag: Tag, cqe: &Cqe) {
        self.journals.decide(tag, cqe);
    }
    fn complete(
        &mut self,
        _: Owner,
        address: u64,
        _: Option<u16>,
        cqe: &Cqe,
        taken: RingCompletion,
    ) -> Result<(), Status> {
        if cqe.sqid.get() == 0 {
            self.dirty = true;
            self.posts.push((address, *cqe));
            return Ok(());
        }
        let key = (cqe.sqid.get(), cqe.cid.get());
        match self.late.iter_mut().find(|late| late.0 == key) {
            Some(late) => late.1 = Some((address, *cqe, taken)),
            None => self.release(address, cqe, taken),
        }
        Ok(())
    }
    fn interrupt(&mut self, _: Owner, _: u16) {}
    fn respond(&mut self, _: Owner, _: Tag, _: &Cqe) {}
    fn read_data(&mut self, _: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        let mut pieces = Vec::new();
        self.walk(data, Direction::FromHost, offset, into.len(), |address, at, len| pieces.push((address, at, len)));
        pieces.iter().for_each(|(address, at, len)| self.outside.read(*address, &mut into[*at..at + len]));
        Ok(())
    }
    fn write_data(&mut self, _: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        let mut pieces = Vec::new();
        self.walk(data, Direction::ToHost, offset, from.len(), |address, at, len| pieces.push((address, at, len)));
        for (address, at, len) in pieces {
            let bytes = &from[at..at + len];
            match address.checked_sub(FAR) {
                // Every command has a buffer of its own.
                Some(address) => {
                    let late = self.late.iter().find(|late| buffer(late.0.1) == address).expect("it was taken");
                    self.asks.push((address, bytes.to_vec(), late.0));
                }
                None => self.outside.write(address, bytes),
            }
        }
        Ok(())
    }
}

/// The server: drive, door, and I/O that the media has not done.
struct Server {
    drive: Subsystem,
    controller: ControllerHandle,
    door: Door,
    issued: Vec<Io>,
    seen: Vec<(u32, u32)>,
    applied: usize,
    /// Messages that the servers before had heard: until they have come again doorbells say nothing.
    awaits: usize,
    /// The drive has yet to be told what was rung by messages.
    untold: bool,
    /// Messages that have had their effect by the newest checkpoint.
    written: usize,
    steps: Vec<CrashPoint>,
}

/// Messages that a turn handles at the most, and doorbells that wait for a checkpoint.
const HANDLED: usize = 3;
const UNWRITTEN: usize = 7;

/// Nobody waits for what a drive is told of its zones.
struct Quiet;

impl Host for Quiet {
    fn fetch(&mut self, _: Owner, _: u64) -> Result<[u64; 8], Status> {
        Err(Status::DATA_TRANSFER_ERROR)
    }
    fn post(&mut self, _: Owner, _: u64, _: Option<u16>, _: &Cqe) -> Result<(), Status> {
        Err(Status::DATA_TRANSFER_ERROR)
    }
    fn interrupt(&mut self, _: Owner, _: u16) {}
    fn respond(&mut self, _: Owner, _: Tag, cqe: &Cqe) {
        assert!(cqe.status().is_success());
    }
    fn read_data(&mut self, _: Owner, _: &DataPointer, _: u32, _: &mut [u8]) -> Result<(), Status> {
        Ok(())
    }
    fn write_data(&mut self, _: Owner, _: &DataPointer, _: u32, _: &[u8]) -> Result<(), Status> {
        Ok(())
    }
}

/// A drive whose first zone has so many blocks.
fn machine(landed: u32) -> Subsystem {
    let config = config(|c| {
        (c.max_io_queues, c.max_queue_entries, c.slots) = (QUEUES, ENTRIES, 5);
        let size = ZONES.blocks() * BLOCK as u64;
        c.namespaces.push(NamespaceConfig { nsid: ZONED, start: START, size, block_size: 512, uuid: [7; 16] });
        c.zoned.push(ZonedNamespace { nsid: ZONED, zones: ZONES, flash: None, volatile: false });
    });
    let mut drive = Subsystem::new(config, Nanos(0)).unwrap();
    if landed > 0 {
        let attach = Attach { tenant: 0, owner: Owner(9), model: TransportModel::Front, host: "zones".into() };
        let front = drive.attach(Nanos(0), attach).unwrap();
        let queue = drive.add_message_queue(front, 1, None, Owner(9)).unwrap();
        let request = BlockRequest { op: Op::Write, nsid: ZONED, offset: 0, len: landed * BLOCK as u32, fua: false };
        let mut effects = Effects::new(4);
        drive.apply(Nanos(0), Event::Submit { queue, request, tag: Tag(0) }, &mut Quiet, &mut effects);
        while drive.has_work() {
            drive.apply(Nanos(0), Event::Run, &mut Quiet, &mut effects);
        }
        let issued: Vec<Effect> = effects.drain().collect();
        for effect in issued {
            let Effect::Io(io) = effect else { panic!("{effect:?}") };
            drive.apply(Nanos(0), Event::Done { slot: io.slot, status: Status::SUCCESS }, &mut Quiet, &mut effects);
        }
        drive.detach(Nanos(0), front);
    }
    drive
}

impl Server {
    fn new(outside: &Rc<Outside>) -> Self {
        let mut drive = machine(outside.landed.get());
        let journals = Journals::open(Region(outside.clone()), QUEUES, ENTRIES).unwrap();
        let (posts, late, asks) = Default::default();
        let mut door = Door { outside: outside.clone(), journals, posts, dirty: false, late, asks };
        let found = outside.checkpoint.borrow().clone();
        let seen = vec![(UNRUNG, UNRUNG); usize::from(QUEUES) + 1];
        let Some(found) = found else {
            let attach = Attach { tenant: 0, owner: OWNER, model: TransportModel::Rings, host: "rings".into() };
            let controller = drive.attach(Nanos(0), attach).unwrap();
            drive.keep_rings(controller, NonZeroU64::MIN);
            let (issued, steps, seen) = Default::default();
            let (applied, awaits, untold, written) = (0, outside.messages.borrow().len(), false, 0);
            return Self { drive, controller, door, issued, seen, applied, awaits, untold, written, steps };
        };
        let controller = drive.resume_checkpoint(Nanos(0), &found.controller, 0, OWNER).unwrap();
        for (address, cqe) in &found.posts {
            outside.write(*address, cqe.as_bytes());
        }
        let rung = |qid: u16, noted| match outside.mapped {
            true => outside.bells.borrow()[usize::from(qid)],
            false => noted,
        };
        let post = |address, cqe: &Cqe| {
            outside.write(address, cqe.as_bytes());
            Ok(())
        };
        let recovered = door.journals.recover(&mut drive, controller, rung, post).unwrap();
        let is_lost = !found.survives || recovered.commands.iter().any(|again| again.entry[3] >= FAR);
        outside.disconnected.set(is_lost);
        if !is_lost {
            drive.resubmit(Nanos(0), controller, &recovered.commands, &mut door);
        }
        if !outside.dead.get() && !is_lost {
            drive.check();
        }
        let (applied, written, awaits) = (found.applied, found.applied, outside.messages.borrow().len());
        let steps = recovered.steps.iter().map(|s| s.1).collect();
        let (issued, untold) = (Vec::new(), !outside.mapped);
        let mut server = Self { drive, controller, door, issued, seen, applied, awaits, untold, written, steps };
        if !is_lost {
            server.clear_bells();
            server.end();
        }
        server
    }

    fn is_deaf(&self) -> bool {
        self.applied < self.awaits
    }

    /// Tells the drive what was rung by messages, once all of them have come again.
    fn tell(&mut self, arrivals: &mut Vec<Event>) {
        if !self.untold || self.is_deaf() {
            return;
        }
        self.untold = false;
        let controller = self.controller;
        for qid in 0..self.drive.ring_queues(controller).1 {
            let ((sq, cq), (tail, head)) = (self.drive.ring_queue(controller, qid), self.door.journals.rung(qid));
            arrivals.extend(cq.then_some(Event::CqHead { controller, qid, head }));
            arrivals.extend(sq.then_some(Event::SqTail { controller, qid, tail }));
        }
    }

    fn event(&mut self, event: Event) {
        let mut effects = Effects::new(4);
        self.drive.apply(Nanos(0), event, &mut self.door, &mut effects);
        for effect in effects.drain() {
            match effect {
                Effect::Io(io) => self.issued.push(io),
                Effect::Disconnect { .. } => panic!("there is nobody to disconnect"),
            }
        }
    }

    /// What was said and rung, then what the drive does about it.
    fn turn(&mut self) {
        let outside = self.door.outside.clone();
        let controller = self.controller;
        let mut arrivals = Vec::new();
        self.tell(&mut arrivals);
        for _ in 0..HANDLED {
            let Some(message) = outside.messages.borrow().get(self.applied).copied() else { break };
            self.applied += 1;
            let (number, is_deaf) = (self.applied as u64, self.is_deaf());
            let event = match message {
                Message::Register(offset, value) => {
                    self.door.dirty = true;
                    let size = register::size_at(offset).unwrap_or(4);
                    Event::Register { controller, offset, value, size }
                }
                Message::Tail(qid, tail) => {
                    self.door.journals.ring(number, qid, Some(tail), None);
                    Event::SqTail { controller, qid, tail }
                }
                Message::Head(qid, head) => {
                    self.door.journals.ring(number, qid, None, Some(head));
                    Event::CqHead { controller, qid, head }
                }
                Message::Answered(qid, cid) => {
                    self.door.answered((qid, cid));
                    Event::Run
                }
            };
            self.door.journals.rang(number);
            match message {
                Message::Tail(..) | Message::Head(..) if is_deaf => self.untold = true,
                _ => arrivals.push(event),
            }
        }
        self.tell(&mut arrivals);
        arrivals.into_iter().for_each(|event| self.event(event));
        // What doorbells have said is noted: of them a checkpoint says only how many there were.
        self.door.dirty |= self.applied - self.written > UNWRITTEN;
        let len = self.drive.ring_queues(controller).1;
        self.seen.resize(usize::from(len), (0, 0));
        for qid in 0..if outside.mapped && !self.is_deaf() { len } else { 0 } {
            let (tail, head) = outside.bells.borrow()[usize::from(qid)];
            let (sq, cq) = self.drive.ring_queue(controller, qid);
            let seen = &mut self.seen[usize::from(qid)];
            let told = std::mem::replace(seen, (tail, head));
            if cq && told.1 != head {
                self.event(Event::CqHead { controller, qid, head });
            }
            if sq && told.0 != tail {
                self.event(Event::SqTail { controller, qid, tail });
            }
        }
        self.event(Event::Run);
        while self.drive.has_work() {
            self.event(Event::Run);
        }
        self.end();
    }

    /// What has changed is known to who comes after us before anybody sees it.
    fn end(&mut self) {
        let outside = self.door.outside.clone();
        // What waits for queues that have gone is wanted by nobody.
        let (drive, controller, before) = (&self.drive, self.controller, self.door.late.len());
        self.door.late.retain(|((qid, _), _)| drive.ring_queue(controller, *qid).0);
        self.door.dirty |= self.door.late.len() != before;
        if self.door.dirty {
            self.door.dirty = false;
            assert!(self.door.journals.follow(&self.drive, self.controller));
            let controller = self.drive.checkpoint(Nanos(0), self.controller);
            let posts = std::mem::take(&mut self.door.posts);
            if outside.alive() {
                let (applied, survives) = (self.applied, self.door.late.is_empty());
                self.written = applied;
                let checkpoint = Checkpoint { controller, posts: posts.clone(), applied, survives };
                *outside.checkpoint.borrow_mut() = Some(checkpoint);
            }
            self.clear_bells();
            for (address, cqe) in posts {
                outside.write(address, cqe.as_bytes());
            }
        }
        if !self.door.asks.is_empty() && outside.alive() {
            outside.asks.borrow_mut().append(&mut self.door.asks);
        }
        if !outside.dead.get() {
            self.drive.check();
        }
    }

    /// Those of queues that are not there any more, which is written down.
    fn clear_bells(&mut self) {
        let outside = self.door.outside.clone();
        for qid in 0..=QUEUES {
            let (sq, cq) = self.drive.ring_queue(self.controller, qid);
            let bells = outside.bells.borrow()[usize::from(qid)];
            let left = (if sq { bells.0 } else { 0 }, if cq { bells.1 } else { 0 });
            if left != bells && outside.alive() {
                outside.bells.borrow_mut()[usize::from(qid)] = left;
            }
            if let Some(seen) = self.seen.get_mut(usize::from(qid)) {
                *seen = (if sq { seen.0 } else { 0 }, if cq { seen.1 } else { 0 });
            }
        }
    }

    /// The media does one.
    fn serve(&mut self, n: usize) {
        let io = self.issued.remove(n);
        let outside = self.door.outside.clone();
        let mut status = Status::SUCCESS;
        for at in (0..io.len as usize).step_by(BLOCK) {
            let place = io.offset + at as u64;
            let there = outside.media.borrow().get(&place).copied().unwrap_or([0; BLOCK]);
            let mut bytes = there;
            match io.op {
                Op::Read => {
                    let _ = self.door.write_data(io.owner, &io.data, io.skip + at as u32, &bytes);
                }
                Op::Write => {
                    io.read_data(&mut self.door, at as u32, &mut bytes).unwrap();
                    if outside.alive() {
                        outside.media.borrow_mut().insert(place, bytes);
                    }
                }
                Op::Compare => {
                    io.read_data(&mut self.door, at as u32, &mut bytes).unwrap();
                    if bytes != there {
                        status = Status::COMPARE_FAILURE;
                    }
                }
                Op::Flush => {}
                other => panic!("{other:?}"),
            }
        }
        if io.nsid == ZONED && io.op == Op::Write {
            let end = ((io.offset - START) / BLOCK as u64) as u32 + 1;
            if end > outside.landed.get() && outside.alive() {
                outside.landed.set(end);
            }
        }
        self.event(Event::Done { slot: io.slot, status });
    }
}

/// What the client does, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Enable,
    Disable,
    CreateCq(u16, u32),
    /// Of so many entries, with that completion queue.
    CreateSq(u16, u32, u16),
    DeleteSq(u16),
    DeleteCq(u16),
    Event,
    /// The event request is aborted.
    Abort,
    Features(u32),
    Write(u16, u64),
    Read(u16, u64),
    /// Compare and write, fused, of what was written last.
    Swap(u16, u64),
    /// The two commands of a pair that fails at the comparison.
    BadSwap(u16, u64),
    Flush(u16),
    /// To the first zone.
    Append(u16),
    /// The block that comes next in the first zone, when nothing else is under way there.
    Next(u16),
    /// Everything that is under way ends first.
    Wait,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    act: Act,
    status: Status,
    /// The block that is there when it is complete.
    writes: Option<(u64, u32)>,
    reads: Option<(u64, u64)>,
    /// What is written to the zone.
    zone: Option<u32>,
}

struct Sq {
    base: u64,
    size: u32,
    tail: u32,
    head: u32,
}

struct Cq {
    base: u64,
    size: u32,
    head: u32,
    phase: bool,
}

struct Client {
    outside: Rc<Outside>,
    script: Vec<Act>,
    at: usize,
    sqs: BTreeMap<u16, Sq>,
    cqs: BTreeMap<u16, Cq>,
    pending: BTreeMap<(u16, u16), Pending>,
    cid: u16,
    blocks: BTreeMap<u64, u32>,
    /// Values that were written to the first zone, and where they are if that is known.
    zone: BTreeMap<u32, Option<u64>>,
    completed: usize,
    event: Option<u16>,
}

fn sq_base(qid: u16) -> u64 {
    u64::from(qid) * 0x2000
}

fn cq_base(qid: u16) -> u64 {
    sq_base(qid) + 0x1000
}

fn buffer(cid: u16) -> u64 {
    0x10000 + u64::from(cid % 64) * 1024
}

impl Client {
    fn ring_tail(&self, qid: u16) {
        let tail = self.sqs[&qid].tail;
        match self.outside.mapped {
            true => self.outside.bells.borrow_mut()[usize::from(qid)].0 = tail,
            false => self.outside.messages.borrow_mut().push(Message::Tail(qid, tail)),
        }
    }

    fn room(&self, qid: u16) -> u32 {
        let Some(sq) = self.sqs.get(&qid) else { return 0 };
        (sq.head + sq.size - sq.tail - 1) % sq.size
    }

    fn put(&mut self, qid: u16, mut sqe: Sqe, pending: Pending) -> u16 {
        self.cid += 1;
        sqe.cid = U16::new(self.cid);
        if sqe.dptr[0].get() == 0 {
            sqe.dptr[0] = U64::new(buffer(self.cid));
        }
        let sq = self.sqs.get_mut(&qid).unwrap();
        self.outside.put(sq.base + u64::from(sq.tail) * 64, sqe.as_bytes());
        sq.tail = (sq.tail + 1) % sq.size;
        self.pending.insert((qid, self.cid), pending);
        self.cid
    }

    fn admin(&mut self, act: Act, opcode: AdminOpcode, cdw10: u32, cdw11: u32, address: u64) {
        let (cdw10, cdw11) = (U32::new(cdw10), U32::new(cdw11));
        let mut sqe = Sqe { opcode: opcode.0, cdw10, cdw11, ..Sqe::default() };
        sqe.dptr[0] = U64::new(address);
        let status = if act == Act::Event { Status::ABORT_REQUESTED } else { Status::SUCCESS };
        let cid = self.put(0, sqe, Pending { act, status, writes: None, reads: None, zone: None });
        if act == Act::Event {
            self.event = Some(cid);
        }
        self.ring_tail(0);
    }

    fn io(&mut self, qid: u16, opcode: IoOpcode, fuse: u8, lba: u64, pending: Pending) -> u16 {
        let mut sqe = Sqe { opcode: opcode.0, flags: fuse, nsid: U32::new(1), ..Sqe::default() };
        sqe.set_slba(lba);
        self.put(qid, sqe, pending)
    }

    fn fill(&self, cid: u16, value: u32) {
        self.outside.put(buffer(cid), &pattern(value));
    }

    fn register(&self, offset: u32, value: u64) {
        self.outside.messages.borrow_mut().push(Message::Register(offset, value));
    }

    fn note_cq(&mut self, qid: u16, size: u32) {
        self.outside.put(cq_base(qid), &vec![0; 16 * size as usize]);
        self.cqs.insert(qid, Cq { base: cq_base(qid), size, head: 0, phase: true });
    }

    fn note_sq(&mut self, qid: u16, size: u32) {
        self.sqs.insert(qid, Sq { base: sq_base(qid), size, tail: 0, head: 0 });
    }

    /// Takes what is complete.
    fn reap(&mut self) {
        // Those of I/O first: a deletion is complete after what its queue had under way.
        for qid in self.cqs.keys().rev().copied().collect::<Vec<_>>() {
            while let Some(cq) = self.cqs.get_mut(&qid) {
                let cqe = self.outside.cqe(cq.base + u64::from(cq.head) * 16);
                if cqe.phase() != cq.phase {
                    break;
                }
                cq.head = (cq.head + 1) % cq.size;
                cq.phase ^= cq.head == 0;
                let head = cq.head;
                self.complete(&cqe);
                match self.outside.mapped {
                    true => self.outside.bells.borrow_mut()[usize::from(qid)].1 = head,
                    false => self.outside.messages.borrow_mut().push(Message::Head(qid, head)),
                }
            }
        }
    }

    fn complete(&mut self, cqe: &Cqe) {
        let key = (cqe.sqid.get(), cqe.cid.get());
        let pending = self.pending.remove(&key);
        let pending = pending.unwrap_or_else(|| panic!("{key:?} is not outstanding, or completes twice: {cqe:?}"));
        assert!(
            cqe.status().same_code(pending.status),
            "{pending:?} at {} of the script: {:?} {:x}",
            self.at,
            cqe.status(),
            cqe.dw0.get()
        );
        self.completed += 1;
        let sq = self.sqs.get_mut(&key.0).unwrap();
        sq.head = cqe.sqhd.get().into();
        if let Some((lba, value)) = pending.writes {
            let there = self.outside.media.borrow()[&(lba * BLOCK as u64)];
            assert_eq!(there, pattern(value), "{pending:?} is on the media");
        }
        if let Some((lba, at)) = pending.reads {
            let mut bytes = [0; BLOCK];
            self.outside.read(at, &mut bytes);
            assert_eq!(bytes, pattern(self.blocks.get(&lba).copied().unwrap_or(0)), "{pending:?}");
        }
        if let Some(place) = pending.zone.and_then(|value| self.zone.get_mut(&value)) {
            *place = Some(u64::from(cqe.dw0.get())).filter(|_| matches!(pending.act, Act::Append(_))).or(*place);
        }
        match pending.act {
            Act::DeleteSq(qid) => {
                self.sqs.remove(&qid);
                // What it had not begun is no more, and whether it had nobody knows.
                for (_, gone) in self.pending.iter().filter(|((q, _), _)| *q == qid) {
                    self.blocks.retain(|lba, _| gone.writes.is_none_or(|w| w.0 != *lba));
                }
                self.pending.retain(|(q, _), _| *q != qid);
            }
            Act::DeleteCq(qid) => drop(self.cqs.remove(&qid)),
            Act::CreateCq(qid, size) => {
                self.cqs.entry(qid).or_insert(Cq { base: cq_base(qid), size, head: 0, phase: true });
            }
            Act::CreateSq(qid, size, _) => self.note_sq(qid, size),
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        self.at == self.script.len() && self.pending.is_empty()
    }

    /// Goes on with its script if it can. `ready`: CSTS.RDY as the server has answered it, if it has heard everything.
    fn step(&mut self, ready: Option<bool>) {
        for (address, bytes, (qid, cid)) in self.outside.asks.take() {
            self.outside.put(address, &bytes);
            self.outside.messages.borrow_mut().push(Message::Answered(qid, cid));
        }
        self.reap();
        let Some(act) = self.script.get(self.at).copied() else { return };
        let busy = |lba: u64| {
            self.pending.values().any(|p| {
                p.writes.is_some_and(|w| w.0 == lba)
                    || matches!(p.act, Act::Read(_, l) | Act::BadSwap(_, l) | Act::Swap(_, l) if l == lba)
            })
        };
        let admin_busy = self.pending.iter().any(|((qid, _), p)| *qid == 0 && p.act != Act::Event);
        let plain = Pending { act, status: Status::SUCCESS, writes: None, reads: None, zone: None };
        match act {
            Act::Wait if self.pending.keys().any(|(qid, _)| *qid != 0) || admin_busy => return,
            Act::Wait => {}
            Act::Enable if ready != Some(false) => return,
            Act::Enable => {
                self.note_cq(0, 4);
                self.note_sq(0, 4);
                let cc = Cc(0).with_en(1).with_css(register::css::ALL).with_iosqes(6).with_iocqes(4);
                self.register(register::AQA, 3 << 16 | 3);
                self.register(register::ASQ, sq_base(0));
                self.register(register::ACQ, cq_base(0));
                self.register(register::CC, cc.0.into());
            }
            Act::Disable => {
                self.register(register::CC, 0);
                // It asks until it is disabled: what was outstanding is no more.
                for lba in self.pending.values().filter_map(|p| p.writes).map(|w| w.0) {
                    self.blocks.remove(&lba);
                }
                self.pending.clear();
                (self.sqs, self.cqs, self.event) = Default::default();
            }
            Act::CreateCq(..)
            | Act::CreateSq(..)
            | Act::DeleteSq(_)
            | Act::DeleteCq(_)
            | Act::Event
            | Act::Abort
            | Act::Features(_)
                if admin_busy || ready != Some(true) =>
            {
                return;
            }
            Act::CreateCq(qid, size) => {
                self.note_cq(qid, size);
                self.admin(act, AdminOpcode::CREATE_IO_CQ, (size - 1) << 16 | u32::from(qid), 1, cq_base(qid));
            }
            Act::CreateSq(qid, size, cq) => {
                let cdw11 = u32::from(cq) << 16 | 1;
                self.admin(act, AdminOpcode::CREATE_IO_SQ, (size - 1) << 16 | u32::from(qid), cdw11, sq_base(qid));
            }
            Act::DeleteSq(qid) => self.admin(act, AdminOpcode::DELETE_IO_SQ, qid.into(), 0, 0),
            Act::DeleteCq(qid) => self.admin(act, AdminOpcode::DELETE_IO_CQ, qid.into(), 0, 0),
            Act::Event => self.admin(act, AdminOpcode::ASYNC_EVENT_REQUEST, 0, 0, 0),
            Act::Abort => {
                let cid = self.event.take().unwrap();
                self.admin(act, AdminOpcode::ABORT, u32::from(cid) << 16, 0, 0);
            }
            Act::Features(value) => self.admin(act, AdminOpcode::SET_FEATURES, 1, value, 0),
            Act::Write(qid, lba) | Act::Read(qid, lba) | Act::Swap(qid, lba) | Act::BadSwap(qid, lba)
                if busy(lba) || self.room(qid) < 2 =>
            {
                return;
            }
            Act::Flush(qid) | Act::Append(qid) | Act::Next(qid) if self.room(qid) == 0 => return,
            Act::Append(_) | Act::Next(_) if self.pending.values().any(|p| matches!(p.act, Act::Next(_))) => return,
            Act::Next(_) if self.pending.values().any(|p| p.zone.is_some()) => return,
            Act::Append(qid) | Act::Next(qid) => {
                let append = matches!(act, Act::Append(_));
                let value = u32::from(self.cid) + 1000;
                let opcode = if append { IoOpcode(ZonedOpcode::ZONE_APPEND.0) } else { IoOpcode::WRITE };
                let next = if append { 0 } else { self.zone.len() as u64 };
                let mut sqe = Sqe { opcode: opcode.0, nsid: U32::new(ZONED), ..Sqe::default() };
                sqe.set_slba(next);
                let cid = self.put(qid, sqe, Pending { zone: Some(value), ..plain });
                self.fill(cid, value);
                self.zone.insert(value, (!append).then_some(next));
                self.ring_tail(qid);
            }
            Act::Flush(qid) => {
                self.io(qid, IoOpcode::FLUSH, 0, 0, plain);
                self.ring_tail(qid);
            }
            Act::Write(qid, lba) => {
                let value = u32::from(self.cid) + 1000;
                let cid = self.io(qid, IoOpcode::WRITE, 0, lba, Pending { writes: Some((lba, value)), ..plain });
                self.fill(cid, value);
                self.blocks.insert(lba, value);
                self.ring_tail(qid);
            }
            Act::Read(qid, lba) => {
                let cid = self.cid + 1;
                self.fill(cid, 77);
                let mut sqe = Sqe { opcode: IoOpcode::READ.0, nsid: U32::new(1), ..Sqe::default() };
                sqe.set_slba(lba);
                sqe.dptr[0] = U64::new(buffer(cid) + if self.outside.far { FAR } else { 0 });
                self.put(qid, sqe, Pending { reads: Some((lba, buffer(cid))), ..plain });
                self.ring_tail(qid);
            }
            Act::Swap(qid, lba) | Act::BadSwap(qid, lba) => {
                let bad = matches!(act, Act::BadSwap(..));
                let value = u32::from(self.cid) + 1000;
                let before = self.blocks.get(&lba).copied().unwrap_or(0) + u32::from(bad);
                let first = if bad { Status::COMPARE_FAILURE } else { Status::SUCCESS };
                let cid = self.io(qid, IoOpcode::COMPARE, 1, lba, Pending { status: first, ..plain });
                self.fill(cid, before);
                let second = if bad { Status::ABORTED_FAILED_FUSED } else { Status::SUCCESS };
                let writes = (!bad).then_some((lba, value));
                let cid = self.io(qid, IoOpcode::WRITE, 2, lba, Pending { status: second, writes, ..plain });
                self.fill(cid, value);
                if !bad {
                    self.blocks.insert(lba, value);
                }
                self.ring_tail(qid);
            }
        }
        self.at += 1;
    }
}

fn pattern(value: u32) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    bytes.chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
    bytes
}

/// A small generator of its own: what is found is found again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }
}

struct Killed {
    /// Stores that there were, if it was not killed.
    stores: u64,
    steps: Vec<CrashPoint>,
    deaths: usize,
    /// The client could not be gone on with.
    disconnected: bool,
}

/// The client's whole life, whose server is killed after so many stores, and the next one after so many of its own, and so on.
fn live(script: &[Act], seed: u64, mapped: bool, kills: &[u64]) -> Killed {
    live_with(script, seed, (mapped, false), kills)
}

/// `far`: what it reads goes by messages. It is disconnected where something was on its way.
fn live_with(script: &[Act], seed: u64, (mapped, far): (bool, bool), kills: &[u64]) -> Killed {
    let words = Journals::<Region>::bytes(QUEUES, ENTRIES) as usize / 8;
    let outside = Rc::new(Outside {
        left: Cell::new(u64::MAX),
        dead: Cell::new(false),
        memory: RefCell::new(vec![0; MEMORY]),
        journal: RefCell::new(vec![0; words]),
        media: RefCell::default(),
        checkpoint: RefCell::default(),
        bells: RefCell::new(vec![(0, 0); usize::from(QUEUES) + 1]),
        mapped,
        messages: RefCell::default(),
        far,
        asks: RefCell::default(),
        disconnected: Cell::new(false),
        landed: Cell::new(0),
    });
    let mut kills = kills.iter().copied();
    let mut next = || kills.next().unwrap_or(u64::MAX);
    outside.left.set(next());
    let mut server = Server::new(&outside);
    let mut client = Client {
        outside: outside.clone(),
        script: script.to_vec(),
        at: 0,
        sqs: BTreeMap::new(),
        cqs: BTreeMap::new(),
        pending: BTreeMap::new(),
        cid: 0,
        blocks: BTreeMap::new(),
        zone: BTreeMap::new(),
        completed: 0,
        event: None,
    };
    let mut dice = Dice(seed);
    let (mut steps, mut deaths) = (Vec::new(), 0);
    for turn in 0.. {
        assert!(turn < 20_000, "it hangs at {:?}, {:?}", client.script.get(client.at), client.pending);
        match dice.below(4) {
            0 => server.turn(),
            1 if !server.issued.is_empty() => {
                let n = dice.below(server.issued.len());
                server.serve(n);
                server.end();
            }
            _ => {
                let heard = server.applied == outside.messages.borrow().len();
                let ready = server.drive.register(server.controller, register::CSTS, 4) & 1 == 1;
                client.step(heard.then_some(ready));
            }
        }
        while outside.dead.get() {
            deaths += 1;
            outside.dead.set(false);
            outside.left.set(next());
            server = Server::new(&outside);
            steps.extend_from_slice(&server.steps);
        }
        if outside.disconnected.get() {
            return Killed { stores: 0, steps, deaths, disconnected: true };
        }
        if client.is_done() && server.applied == outside.messages.borrow().len() {
            break;
        }
    }
    for (lba, value) in &client.blocks {
        assert_eq!(outside.media.borrow()[&(lba * BLOCK as u64)], pattern(*value), "block {lba}");
    }
    // Each is there once, and nothing else.
    let places: std::collections::BTreeSet<u64> = client.zone.values().map(|place| place.unwrap()).collect();
    let all = client.zone.len();
    assert_eq!((places.len(), outside.landed.get() as usize), (all, all), "{:?}", client.zone);
    for (value, place) in &client.zone {
        let at = START + place.unwrap() * BLOCK as u64;
        assert_eq!(outside.media.borrow()[&at], pattern(*value), "{value} at {place:?} of the zone");
    }
    Killed { stores: u64::MAX - outside.left.get(), steps, deaths, disconnected: false }
}

/// Two queues that share a completion queue which they wrap around, one of their own, deletion with commands under way, a reset and
/// queues made anew.
fn script() -> Vec<Act> {
    use Act::*;
    let mut script = vec![
        Enable,
        Event,
        CreateCq(1, 3),
        CreateSq(1, 3, 1),
        Write(1, 1),
        Read(1, 1),
        Write(1, 2),
        Swap(1, 1),
        Read(1, 1),
    ];
    script.extend([
        CreateSq(2, 4, 1),
        Features(3),
        Write(2, 3),
        Append(1),
        Append(2),
        Write(1, 4),
        Append(1),
        Append(2),
        Append(2),
        Next(1),
        Swap(2, 2),
        Flush(1),
        BadSwap(1, 3),
        Read(2, 3),
        Write(2, 1),
    ]);
    script.extend([
        Read(1, 4),
        Write(1, 3),
        Wait,
        Write(1, 5),
        Write(2, 6),
        DeleteSq(2),
        Write(1, 2),
        CreateCq(2, 4),
        CreateSq(2, 3, 2),
    ]);
    script.extend([
        Write(2, 6),
        Append(2),
        Swap(2, 5),
        Append(1),
        Abort,
        Next(2),
        Append(2),
        Read(2, 6),
        Write(1, 7),
        Wait,
        Disable,
        Enable,
        CreateCq(1, 5),
        CreateSq(1, 4, 1),
    ]);
    script.extend([
        Swap(1, 7),
        Write(1, 1),
        Read(1, 7),
        DeleteSq(1),
        DeleteCq(1),
        CreateCq(1, 2),
        CreateSq(1, 5, 1),
        Write(1, 2),
        Read(1, 2),
        Wait,
    ]);
    script
}

#[test]
fn nobody_is_killed() {
    for seed in 0..20 {
        for mapped in [false, true] {
            assert_eq!(live(&script(), seed, mapped, &[]).deaths, 0);
        }
    }
}

#[test]
fn nothing_is_lost_or_done_twice_after_whichever_store_the_server_is_killed() {
    let mut found = std::collections::BTreeMap::new();
    let mut deaths = 0;
    for seed in 0..6 {
        let mapped = seed % 2 == 0;
        let stores = live(&script(), seed, mapped, &[]).stores;
        for kill in 0..stores {
            let killed = std::panic::catch_unwind(|| live(&script(), seed, mapped, &[kill]));
            let killed = killed.unwrap_or_else(|_| panic!("seed {seed}, killed after store {kill} of {stores}"));
            deaths += killed.deaths;
            killed.steps.iter().for_each(|step| *found.entry(*step).or_insert(0) += 1);
        }
    }
    println!("{deaths} deaths, {found:?}");
    for step in [
        CrashPoint::Idle,
        CrashPoint::Merged,
        CrashPoint::Marked,
        CrashPoint::InFlight,
        CrashPoint::Counted,
        CrashPoint::Done,
    ] {
        assert!(found.contains_key(&step), "{step:?} is never found");
    }
}

#[test]
fn nothing_is_lost_when_it_is_killed_again_and_again() {
    let mut dice = Dice(7);
    for seed in 0..1_500 {
        let kills: Vec<u64> = (0..dice.below(12)).map(|_| dice.below(200) as u64).collect();
        let lived = std::panic::catch_unwind(|| live(&script(), seed, seed % 2 == 0, &kills));
        assert!(lived.is_ok(), "seed {seed}, killed after {kills:?}");
    }
}

/// What two servers in a row have heard of the same messages.
#[test]
fn nothing_is_lost_when_two_in_a_row_are_killed() {
    let stores = live(&script(), 1, false, &[]).stores;
    for first in 0..stores {
        for second in (first % 4..48).step_by(4) {
            let lived = std::panic::catch_unwind(|| live(&script(), 1, false, &[first, second]));
            assert!(lived.is_ok(), "killed after stores {first} and {second}");
        }
    }
}

/// A completion that waits for its bytes is in no checkpoint before the turn has ended: until then the journal has its command in flight, so
/// that the next server sees that it cannot go on.
#[test]
fn a_completion_that_waits_for_an_answer_is_not_taken_for_posted() {
    let (mut went_on, mut disconnected) = (0, 0);
    for seed in 0..6 {
        let how = (seed % 2 == 0, true);
        let stores = live_with(&script(), seed, how, &[]).stores;
        for kill in 0..stores {
            let killed = std::panic::catch_unwind(|| live_with(&script(), seed, how, &[kill]));
            let killed = killed.unwrap_or_else(|_| panic!("seed {seed}, killed after store {kill} of {stores}"));
            *(if killed.disconnected { &mut disconnected } else { &mut went_on }) += 1;
        }
    }
    println!("{went_on} went on, {disconnected} were disconnected");
    assert!(disconnected > 0 && went_on > disconnected);
}
