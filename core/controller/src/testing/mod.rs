// tidy: long because the oracle and the hosts that it watches are one world.
//! A host, a media and an oracle for tests and fuzzing: slow and obvious. Not for production use.
//!
//! [`TestWorld`] is a drive with a [`TestHost`] beside it. Every event goes through [`TestWorld::event`], which checks the invariants.
//! The memory notes each answer, and panics when a completion belongs to no command, comes twice, or overwrites a completion
//! queue entry that its host has not consumed. [`TestRing`] is a host that drives a ring controller by its registers, [`Fabric`]
//! one that sends capsules. [`drive`] turns bytes into events of all of them.

mod chaos;

pub use chaos::drive;

use crate::{
    Attach, ConnectError, ConnectRequest, Connected, ControllerHandle, Data, DataPiece, DataPointer, Direction, Effect,
    Effects, Event, Host, Io, Owner, SpoiledTransfer, SpoiledTransfers, SqHandle, Subsystem, SubsystemConfig, Tag,
    TransportModel, Walk,
};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::Range;
use weir_spec::nvme::fabrics::{CNTLID_DYNAMIC, Connect, ConnectData, Property};
use weir_spec::nvme::{AdminOpcode, Cqe, FabricsType, Sqe, Status, register};
use weir_units::Nanos;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of memory each ring host has; its addresses begin at 0.
const MEMORY: usize = 1 << 18;

/// A completion queue as its host sees it.
#[derive(Clone, Debug)]
struct CqView {
    size: u32,
    head: u32,
    /// Written and not consumed.
    full: u32,
    phase: bool,
    next: u32,
}

/// The other side of the drive: memories of ring hosts, data and answers of message hosts.
#[derive(Clone, Debug, Default)]
pub struct TestHost {
    rings: BTreeMap<u32, Vec<u8>>,
    cqs: BTreeMap<(u32, u64), CqView>,
    /// Data of message commands by owner and tag; read and written in place.
    pub data: BTreeMap<(u32, u32), Vec<u8>>,
    /// Message commands that are not answered yet, by owner and tag, with their identifier.
    pub pending: BTreeMap<(u32, u32), u16>,
    /// Answers on message queues, oldest first.
    pub answers: VecDeque<(Owner, Tag, Cqe)>,
    /// Completions written to rings: owner, address, vector.
    pub posted: Vec<(Owner, u64, Option<u16>)>,
    /// Vectors signalled later than their completions.
    pub interrupts: Vec<(Owner, u16)>,
    /// Every access to this ring host's memory fails.
    pub broken: Option<Owner>,
    /// How often entries were fetched.
    pub fetches: u64,
    /// Commands whose bytes are flipped.
    pub spoiled: SpoiledTransfers,
}

impl TestHost {
    /// Bytes of a ring host's memory.
    pub fn ring(&mut self, owner: Owner) -> &mut [u8] {
        self.rings.entry(owner.0).or_insert_with(|| alloc::vec![0; MEMORY])
    }

    fn at(&mut self, owner: Owner, address: u64, len: usize) -> Result<&mut [u8], Status> {
        if self.broken == Some(owner) {
            return Err(Status::DATA_TRANSFER_ERROR);
        }
        let memory = self.ring(owner);
        let start = usize::try_from(address).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
        let end = start.checked_add(len).ok_or(Status::DATA_TRANSFER_ERROR)?;
        memory.get_mut(start..end).ok_or(Status::DATA_TRANSFER_ERROR)
    }

    /// The bytes of a message command.
    fn tagged(&mut self, owner: Owner, tag: Tag, offset: u32, len: usize) -> Result<&mut [u8], Status> {
        let pending = self.pending.contains_key(&(owner.0, tag.0));
        assert!(pending, "data of a command that is not outstanding was touched: {owner:?} {tag:?}");
        let buffer = self.data.entry((owner.0, tag.0)).or_insert_with(|| alloc::vec![0; 4096]);
        let start = offset as usize;
        buffer.get_mut(start..start + len).ok_or(Status::DATA_TRANSFER_ERROR)
    }

    /// Calls `each` with the pieces of a ring command's bytes, and their place.
    fn pieces(
        &mut self,
        owner: Owner,
        (data, direction): (&DataPointer, Direction),
        (offset, len): (u32, usize),
        mut each: impl FnMut(&mut [u8], Range<usize>),
    ) -> Result<(), Status> {
        let mut walk = Walk::new(data, direction, offset, len as u32);
        let mut at = 0;
        while let Some(piece) = walk.next(&mut |address, into: &mut [u8]| {
            into.copy_from_slice(self.at(owner, address, into.len())?);
            Ok(())
        })? {
            let range = at..at + piece.len() as usize;
            if let DataPiece::Memory { address, len } = piece {
                each(self.at(owner, address, len as usize)?, range.clone());
            }
            at = range.end;
        }
        assert_eq!(at, len, "a walk that goes well is as long as was asked for");
        Ok(())
    }

    /// The queue is gone, and with it what was outstanding.
    pub fn forget(&mut self, owner: Owner) {
        self.pending.retain(|(o, _), _| *o != owner.0);
    }
}

impl Host for TestHost {
    fn fetch(&mut self, owner: Owner, address: u64) -> Result<[u64; 8], Status> {
        self.fetches += 1;
        let bytes = &*self.at(owner, address, 64)?;
        bytes.try_into().map(Sqe::words_of).map_err(|_| Status::DATA_TRANSFER_ERROR)
    }

    fn post(&mut self, owner: Owner, address: u64, vector: Option<u16>, cqe: &Cqe) -> Result<(), Status> {
        self.at(owner, address, 16)?.copy_from_slice(cqe.as_bytes());
        self.posted.push((owner, address, vector));
        let mut ours = self
            .cqs
            .iter_mut()
            .filter(|((o, base), v)| *o == owner.0 && (*base..*base + u64::from(v.size) * 16).contains(&address));
        if let Some(((_, base), view)) = ours.next() {
            assert_eq!((address - base) / 16, view.next.into(), "completions are written in order");
            assert_eq!(cqe.phase(), view.phase, "the phase flips at the wrap");
            assert!(view.full < view.size - 1, "an entry that was not consumed was overwritten");
            view.full += 1;
            view.next += 1;
            if view.next == view.size {
                (view.next, view.phase) = (0, !view.phase);
            }
        }
        Ok(())
    }

    fn interrupt(&mut self, owner: Owner, vector: u16) {
        self.interrupts.push((owner, vector));
    }

    fn respond(&mut self, owner: Owner, tag: Tag, cqe: &Cqe) {
        let cid = self.pending.remove(&(owner.0, tag.0));
        assert_eq!(cid, Some(cqe.cid.get()), "a completion for no command, or a second one: {owner:?} {tag:?}");
        self.answers.push_back((owner, tag, *cqe));
    }

    fn begin_spoiled(&mut self, transfer: SpoiledTransfer) {
        self.spoiled.begin(transfer);
    }

    fn end_spoiled(&mut self, owner: Owner, data: &DataPointer) {
        self.spoiled.end(owner, data);
    }

    fn read_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        match data.get() {
            Data::Tag(tag) => into.copy_from_slice(self.tagged(owner, tag, offset, into.len())?),
            _ => self.pieces(owner, (data, Direction::FromHost), (offset, into.len()), |bytes, at| {
                into[at].copy_from_slice(bytes)
            })?,
        }
        self.spoiled.flip(owner, data, offset, into);
        Ok(())
    }

    fn write_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        let from = &self.spoiled.flipped(owner, data, offset, from)[..];
        if let Data::Tag(tag) = data.get() {
            self.tagged(owner, tag, offset, from.len())?.copy_from_slice(from);
            return Ok(());
        }
        self.pieces(owner, (data, Direction::ToHost), (offset, from.len()), |bytes, at| {
            bytes.copy_from_slice(&from[at])
        })
    }
}

/// A drive, its surroundings, and the time.
#[derive(Clone, Debug)]
pub struct TestWorld {
    /// The drive.
    pub drive: Subsystem,
    /// Its hosts' memory.
    pub host: TestHost,
    /// The time.
    pub now: Nanos,
    /// I/O handed out and not done.
    pub issued: Vec<Io>,
    /// Queues that the drive wants disconnected.
    pub closing: Vec<(Owner, SqHandle)>,
    effects: Effects,
    /// The address that hosts reach from now on.
    pub local: Option<SocketAddr>,
}

impl TestWorld {
    /// A drive at rest at time 0; its effects hold `room` entries.
    pub fn new(config: SubsystemConfig, room: usize) -> Self {
        let drive = Subsystem::new(config, Nanos(0)).expect("the configuration is good");
        let (host, issued, closing, local) = Default::default();
        Self { drive, host, now: Nanos(0), issued, closing, effects: Effects::new(room), local }
    }

    /// One event, its effects, and the invariants.
    pub fn event(&mut self, event: Event) {
        self.drive.apply(self.now, event, &mut self.host, &mut self.effects);
        for effect in self.effects.drain() {
            match effect {
                Effect::Io(io) => {
                    assert!(self.issued.iter().all(|i| i.slot != io.slot), "a slot is issued once");
                    assert!(self.drive.is_live(io.slot), "what is issued is live");
                    self.issued.push(io);
                }
                Effect::Disconnect { owner, queue } => {
                    self.host.forget(owner);
                    self.closing.push((owner, queue));
                }
            }
        }
        self.drive.check();
    }

    /// `Run` as long as there is work.
    pub fn run(&mut self) {
        self.event(Event::Run);
        for _ in 0..1_000 {
            if !self.drive.has_work() {
                return;
            }
            self.event(Event::Run);
        }
        panic!("there is always more work");
    }

    /// The media is done with the `n`th issued I/O.
    pub fn done(&mut self, n: usize, status: Status) {
        let io = self.issued.remove(n);
        self.event(Event::Done { slot: io.slot, status });
    }

    /// Runs and does all I/O until nothing moves.
    pub fn settle(&mut self) {
        self.run();
        while !self.issued.is_empty() {
            self.done(0, Status::SUCCESS);
            self.run();
        }
    }

    /// Lets time pass, ticking at every deadline.
    pub fn pass(&mut self, span: Nanos) {
        let end = self.now.saturating_add(span);
        for _ in 0..100_000 {
            match self.drive.next_deadline() {
                Some(at) if at <= end => {
                    self.now = self.now.max(at);
                    self.event(Event::Tick);
                }
                _ => {
                    self.now = end;
                    return;
                }
            }
        }
        panic!("the deadlines never end");
    }

    /// Closes what the drive wants closed.
    pub fn close(&mut self) {
        for (owner, queue) in core::mem::take(&mut self.closing) {
            self.disconnect(owner, queue);
        }
    }

    /// A connection ends.
    pub fn disconnect(&mut self, owner: Owner, queue: SqHandle) {
        if self.drive.resolve_queue(queue).is_some() {
            self.host.forget(owner);
        }
        self.drive.disconnect(self.now, queue);
        self.drive.check();
    }

    /// Sends a capsule.
    pub fn capsule(&mut self, owner: Owner, queue: SqHandle, tag: u32, sqe: Sqe) {
        if self.drive.resolve_queue(queue).is_some() {
            self.host.pending.insert((owner.0, tag), sqe.cid.get());
        }
        self.event(Event::Capsule { queue, sqe, tag: Tag(tag) });
    }

    /// The answer to a message command, if it came.
    pub fn answer(&mut self, owner: Owner, tag: u32) -> Option<Cqe> {
        let at = self.host.answers.iter().position(|(o, t, _)| *o == owner && t.0 == tag)?;
        self.host.answers.remove(at).map(|(_, _, cqe)| cqe)
    }

    /// Connects a queue.
    pub fn connect(&mut self, command: &Connect, data: &ConnectData, owner: Owner) -> Result<Connected, ConnectError> {
        let request = ConnectRequest::new(&Sqe::from(*command), data, owner);
        let answer = self.drive.connect(self.now, &ConnectRequest { local: self.local, ..request });
        self.drive.check();
        answer
    }
}

/// An NVM command: opcode, identifier, namespace 1, first block, blocks; data by SGL as over fabrics.
pub fn io(opcode: u8, cid: u16, lba: u64, blocks: u32) -> Sqe {
    let cdw12 = U32::new(blocks.wrapping_sub(1) & 0xffff);
    let mut sqe = Sqe { opcode, flags: 1 << 6, cid: U16::new(cid), nsid: U32::new(1), cdw12, ..Sqe::default() };
    sqe.set_slba(lba);
    sqe
}

/// An admin command with its dwords 10 and 11.
pub fn admin(opcode: AdminOpcode, cid: u16, cdw10: u32, cdw11: u32) -> Sqe {
    let (cdw10, cdw11) = (U32::new(cdw10), U32::new(cdw11));
    Sqe { opcode: opcode.0, flags: 1 << 6, cid: U16::new(cid), cdw10, cdw11, ..Sqe::default() }
}

/// CC.EN, with all I/O command sets that the drive has.
pub fn enabling(world: &TestWorld) -> register::Cc {
    let all = world.drive.cap().css() & register::css_supported::ALL != 0;
    register::Cc(0).with_en(1).with_css(if all { register::css::ALL } else { register::css::NVM })
}

/// A fabrics host with one association.
#[derive(Clone, Debug)]
pub struct Fabric {
    /// What its Connects say.
    pub data: ConnectData,
    /// The admin queue's owner; I/O queue `n` is `base + n`.
    pub base: u32,
    /// By queue identifier.
    pub queues: Vec<SqHandle>,
    /// Tags used so far.
    pub tags: u32,
}

impl Fabric {
    /// Connects the admin queue; owners are numbered from `base`.
    pub fn connect(world: &mut TestWorld, host: &str, base: u32, kato: u32) -> Result<Self, ConnectError> {
        let subnqn = world.drive.config().subnqn.clone();
        let data = ConnectData::new(&subnqn, host, [base as u8; 16], CNTLID_DYNAMIC);
        let command = Connect {
            opcode: AdminOpcode::FABRICS.0,
            fctype: FabricsType::CONNECT.0,
            sqsize: U16::new(31),
            kato: U32::new(kato),
            ..Connect::default()
        };
        let connected = world.connect(&command, &data, Owner(base))?;
        let data = ConnectData { cntlid: U16::new(connected.cntlid), ..data };
        Ok(Self { data, base, queues: alloc::vec![connected.queue], tags: 0 })
    }

    /// Connects and enables with this CC.AMS.
    pub fn ready(world: &mut TestWorld, host: &str, base: u32, ams: u32) -> Self {
        let mut fabric = Self::connect(world, host, base, 0).expect("the host may connect");
        let cc = enabling(world).with_iosqes(6).with_iocqes(4).with_ams(ams);
        assert!(fabric.set_cc(world, cc.0).is_success());
        fabric
    }

    /// Adds the next I/O queue.
    pub fn add_queue(&mut self, world: &mut TestWorld, size: u16, cattr: u8) -> Result<Connected, ConnectError> {
        let qid = self.queues.len() as u16;
        let command = Connect {
            opcode: AdminOpcode::FABRICS.0,
            fctype: FabricsType::CONNECT.0,
            qid: U16::new(qid),
            sqsize: U16::new(size - 1),
            cattr,
            ..Connect::default()
        };
        let connected = world.connect(&command, &self.data, Owner(self.base + u32::from(qid)))?;
        self.queues.push(connected.queue);
        Ok(connected)
    }

    /// Sends a command on a queue; answers its tag.
    pub fn send(&mut self, world: &mut TestWorld, qid: u16, sqe: Sqe) -> u32 {
        self.tags += 1;
        world.capsule(Owner(self.base + u32::from(qid)), self.queues[usize::from(qid)], self.tags, sqe);
        self.tags
    }

    /// Sends an admin command and waits for its answer.
    pub fn admin(&mut self, world: &mut TestWorld, sqe: Sqe) -> Cqe {
        let tag = self.send(world, 0, sqe);
        world.run();
        world.answer(Owner(self.base), tag).expect("the command is answered at once")
    }

    /// As `admin`, with the data that came.
    pub fn admin_data(&mut self, world: &mut TestWorld, sqe: Sqe) -> (Cqe, Vec<u8>) {
        let tag = self.tags + 1;
        world.host.data.insert((self.base, tag), alloc::vec![0; 1 << 16]);
        let cqe = self.admin(world, sqe);
        (cqe, world.host.data.remove(&(self.base, tag)).unwrap_or_default())
    }

    /// Property Get.
    pub fn property(&mut self, world: &mut TestWorld, offset: u32) -> (Status, u64) {
        let attrib = u8::from(register::size_at(offset) == Some(8));
        let get = Property { opcode: 0x7f, fctype: 4, attrib, ofst: U32::new(offset), ..Property::default() };
        let cqe = self.admin(world, get.into());
        (cqe.status(), u64::from(cqe.dw0.get()) | u64::from(cqe.dw1.get()) << 32)
    }

    /// Property Set of CC.
    pub fn set_cc(&mut self, world: &mut TestWorld, cc: u32) -> Status {
        let (ofst, value) = (U32::new(register::CC), U64::new(cc.into()));
        self.admin(world, Property { opcode: 0x7f, ofst, value, ..Property::default() }.into()).status()
    }

    /// The answer to a command of a queue, if it came.
    pub fn answer(&self, world: &mut TestWorld, qid: u16, tag: u32) -> Option<Cqe> {
        world.answer(Owner(self.base + u32::from(qid)), tag)
    }
}

/// A submission ring as its host sees it.
#[derive(Clone, Debug)]
struct SqView {
    base: u64,
    size: u32,
    tail: u32,
    /// As the last completion said.
    head: u32,
    cqid: u16,
    pending: BTreeSet<u16>,
}

/// A host that drives a ring controller: 64 KiB of memory for each queue, the admin queue first.
#[derive(Clone, Debug)]
pub struct TestRing {
    /// The controller.
    pub controller: ControllerHandle,
    /// Its owner.
    pub owner: Owner,
    sqs: BTreeMap<u16, SqView>,
    next_cid: u16,
}

impl TestRing {
    /// Attaches a ring controller, not enabled.
    pub fn attach(world: &mut TestWorld, tenant: u16, owner: Owner) -> Self {
        let attach = Attach { tenant, owner, model: TransportModel::Rings, host: "rings".into() };
        let controller = world.drive.attach(world.now, attach).expect("there is room");
        Self { controller, owner, sqs: BTreeMap::new(), next_cid: 0 }
    }

    /// Attaches and enables with this CC.AMS.
    pub fn ready(world: &mut TestWorld, tenant: u16, owner: Owner, ams: u32) -> Self {
        let mut ring = Self::attach(world, tenant, owner);
        ring.enable(world, 16, 16, ams);
        assert_eq!(ring.read(world, register::CSTS), 1);
        ring
    }

    /// Writes a register.
    pub fn write(&self, world: &mut TestWorld, offset: u32, value: u64) {
        let size = register::size_at(offset).unwrap_or(4);
        world.event(Event::Register { controller: self.controller, offset, value, size });
    }

    /// Reads a register.
    pub fn read(&self, world: &TestWorld, offset: u32) -> u64 {
        world.drive.register(self.controller, offset, register::size_at(offset).unwrap_or(4))
    }

    /// Sets up admin queues of these sizes and CC.EN.
    pub fn enable(&mut self, world: &mut TestWorld, sq: u32, cq: u32, ams: u32) {
        self.sqs.clear();
        world.host.cqs.retain(|(o, _), _| *o != self.owner.0);
        world.host.ring(self.owner).fill(0);
        self.write(world, register::AQA, u64::from((cq - 1) << 16 | (sq - 1)));
        self.write(world, register::ASQ, sq_base(0));
        self.write(world, register::ACQ, cq_base(0));
        self.note_cq(world, 0, cq);
        self.note_sq(0, sq, 0);
        let cc = enabling(world).with_iosqes(6).with_iocqes(4).with_ams(ams);
        self.write(world, register::CC, cc.0.into());
    }

    fn note_cq(&mut self, world: &mut TestWorld, qid: u16, size: u32) {
        let view = CqView { size, head: 0, full: 0, phase: true, next: 0 };
        world.host.cqs.insert((self.owner.0, cq_base(qid)), view);
    }

    fn note_sq(&mut self, qid: u16, size: u32, cqid: u16) {
        let base = sq_base(qid);
        self.sqs.insert(qid, SqView { base, size, tail: 0, head: 0, cqid, pending: BTreeSet::new() });
    }

    /// The next command has this identifier.
    pub fn name_next(&mut self, cid: u16) {
        self.next_cid = (cid + 0xffef) % 0xfff0;
    }

    /// Puts an entry into a ring and rings the doorbell; answers its identifier, or `None` if the ring is full.
    pub fn submit(&mut self, world: &mut TestWorld, qid: u16, sqe: Sqe) -> Option<u16> {
        let cid = self.put(world, qid, sqe)?;
        let tail = self.sqs[&qid].tail;
        world.event(Event::SqTail { controller: self.controller, qid, tail });
        Some(cid)
    }

    /// Rings the doorbell of a queue for what was put there.
    pub fn ring(&self, world: &mut TestWorld, qid: u16) {
        let tail = self.tail(qid);
        world.event(Event::SqTail { controller: self.controller, qid, tail });
    }

    /// Puts an entry into a ring without ringing.
    pub fn put(&mut self, world: &mut TestWorld, qid: u16, mut sqe: Sqe) -> Option<u16> {
        self.next_cid = (self.next_cid + 1) % 0xfff0;
        let (cid, owner) = (self.next_cid, self.owner);
        let sq = self.sqs.get_mut(&qid)?;
        let next = (sq.tail + 1) % sq.size;
        if next == sq.head {
            return None;
        }
        sqe.cid = U16::new(cid);
        sqe.flags &= 0x3f;
        let at = (sq.base + u64::from(sq.tail) * 64) as usize;
        world.host.ring(owner)[at..at + 64].copy_from_slice(sqe.as_bytes());
        sq.pending.insert(cid);
        sq.tail = next;
        Some(cid)
    }

    /// Takes the completions of a queue by phase and rings its head doorbell.
    pub fn reap(&mut self, world: &mut TestWorld, cqid: u16) -> Vec<Cqe> {
        let cqes = self.peek(world, cqid);
        let controller = self.controller;
        if let Some(view) = world.host.cqs.get(&(self.owner.0, cq_base(cqid))) {
            let head = view.head;
            world.event(Event::CqHead { controller, qid: cqid, head });
        }
        cqes
    }

    /// Takes completions without ringing.
    pub fn peek(&mut self, world: &mut TestWorld, cqid: u16) -> Vec<Cqe> {
        let (owner, base) = (self.owner, cq_base(cqid));
        let Some(view) = world.host.cqs.get_mut(&(owner.0, base)) else { return Vec::new() };
        let (full, size) = (core::mem::take(&mut view.full), view.size);
        let first = view.head;
        view.head = (first + full) % size;
        let mut cqes = Vec::new();
        for n in 0..full {
            let at = (base + u64::from((first + n) % size) * 16) as usize;
            let cqe = Cqe::read_from_bytes(&world.host.ring(owner)[at..at + 16]).unwrap_or_default();
            let sq = self.sqs.get_mut(&cqe.sqid.get()).expect("a completion names a queue that is there");
            assert_eq!(sq.cqid, cqid, "the submission queue's own completion queue");
            assert!(sq.pending.remove(&cqe.cid.get()), "a completion for no command, or a second one");
            assert!(u32::from(cqe.sqhd.get()) < sq.size);
            sq.head = cqe.sqhd.get().into();
            cqes.push(cqe);
        }
        cqes
    }

    /// Commands of a queue that are not complete.
    pub fn pending(&self, qid: u16) -> usize {
        self.sqs.get(&qid).map_or(0, |sq| sq.pending.len())
    }

    /// The tail of a queue.
    pub fn tail(&self, qid: u16) -> u32 {
        self.sqs.get(&qid).map_or(0, |sq| sq.tail)
    }

    /// Sends an admin command and waits for its completion.
    pub fn admin(&mut self, world: &mut TestWorld, sqe: Sqe) -> Cqe {
        let cid = self.submit(world, 0, sqe).expect("the admin queue has room");
        world.run();
        let cqes = self.reap(world, 0);
        cqes.into_iter().find(|cqe| cqe.cid.get() == cid).expect("the command is answered at once")
    }

    /// Create I/O Completion Queue.
    pub fn create_cq(&mut self, world: &mut TestWorld, qid: u16, size: u32) -> Status {
        let mut sqe = admin(AdminOpcode::CREATE_IO_CQ, 0, (size - 1) << 16 | u32::from(qid), u32::from(qid) << 16 | 3);
        sqe.dptr[0] = U64::new(cq_base(qid));
        let status = self.admin(world, sqe).status();
        if status.is_success() {
            let (start, end) = (cq_base(qid) as usize, cq_base(qid) as usize + size as usize * 16);
            world.host.ring(self.owner)[start..end].fill(0);
            self.note_cq(world, qid, size);
        }
        status
    }

    /// Create I/O Submission Queue with this QPRIO.
    pub fn create_sq(&mut self, world: &mut TestWorld, qid: u16, size: u32, cqid: u16, qprio: u32) -> Status {
        let cdw11 = u32::from(cqid) << 16 | qprio << 1 | 1;
        let mut sqe = admin(AdminOpcode::CREATE_IO_SQ, 0, (size - 1) << 16 | u32::from(qid), cdw11);
        sqe.dptr[0] = U64::new(sq_base(qid));
        let status = self.admin(world, sqe).status();
        if status.is_success() {
            self.note_sq(qid, size, cqid);
        }
        status
    }

    /// Both of a pair.
    pub fn add_queue(&mut self, world: &mut TestWorld, qid: u16, size: u32, qprio: u32) {
        assert!(self.create_cq(world, qid, size).is_success());
        assert!(self.create_sq(world, qid, size, qid, qprio).is_success());
    }

    /// Forgets a deleted submission queue: what was outstanding counts as aborted.
    pub fn forget_sq(&mut self, qid: u16) {
        self.sqs.remove(&qid);
    }
}

/// Where a ring host keeps a submission ring: up to 256 entries.
fn sq_base(qid: u16) -> u64 {
    u64::from(qid) * 0x8000
}

/// Where it keeps a completion ring: up to 1024 entries.
fn cq_base(qid: u16) -> u64 {
    u64::from(qid) * 0x8000 + 0x4000
}
