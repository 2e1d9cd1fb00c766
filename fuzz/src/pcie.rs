// tidy: long because a guest, its memory and the oracle are one thing to follow.
//! The controller over PCIe under a hostile guest: registers, doorbells, queues, entries, PRP and SGL lists, shadow pages and the memory
//! buffer, all of them written at random, and memory that changes under the controller's hands while it reads.
//!
//! ```text
//!  bytes ──▶ event ──▶ Subsystem ──▶ Guest: fetch, post, Walk ──▶ memory, memory buffer (every n-th read changes what is read next)
//!                 └──▶ check() after each         └──▶ oracle: who was fetched, who was completed
//! ```
//! Two guests, of two tenants, share the drive. Each has a queue pair that the harness made; as long as its guest has not taken
//! it away, every command that was fetched from it is completed once the guest consumes completions.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use weir_arbiter::{ArbiterSettings, Mechanism};
use weir_controller::{
    Attach, ControllerHandle, DataPiece, DataPointer, Direction, Effect, Effects, Event, Host, Io, MemoryBuffer,
    NamespaceConfig, Op, Owner, Shadow, ShadowPages, Subsystem, SubsystemConfig, Tag, TenantConfig, TransportModel,
    Walk,
};
use weir_spec::nvme::entry::SglDescriptor;
use weir_spec::nvme::register::{self, Doorbell, doorbell_offset};
use weir_spec::nvme::{AdminOpcode, Cqe, IoOpcode, Sqe, Status};
use weir_units::{Class, Nanos};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of memory each guest has, from address 0.
const MEMORY: usize = 1 << 16;
/// Bytes of its memory buffer, and where it likes to see it.
const BUFFER: usize = 1 << 13;
const BUFFER_AT: u64 = 0x10_0000;
/// Entries of each ring.
const ENTRIES: u32 = 8;
const GUESTS: usize = 2;
/// What the doors call them.
const GUEST_NAMES: [&str; GUESTS] = ["guest 0", "guest 1"];

/// Where rings, shadow pages, lists and data begin; queue `qid` has its rings at `RINGS + qid * PAGE`.
const PAGE: u64 = 0x1000;
const SHADOW: u64 = 0x8000;
const EVENTS: u64 = 0x9000;
const LISTS: u64 = 0xa000;
const DATA: u64 = 0xc000;
/// A completion ring lies in the upper half of its queue's page.
const CQ: u64 = 0x800;

/// Registers worth writing.
const REGISTERS: [u32; 12] = [
    register::CC,
    register::INTMS,
    register::INTMC,
    register::AQA,
    register::ASQ,
    register::ACQ,
    register::NSSR,
    register::CSTS,
    register::CMBMSC,
    register::CMBMSC + 4,
    register::ASQ + 4,
    register::CAP,
];

/// CC that enables as the harness does.
const ENABLE: u32 = 0x0046_0001;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }
    fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
    fn word(&mut self) -> u32 {
        u32::from(self.half()) | u32::from(self.half()) << 16
    }
    fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }
    /// An address that means something, most of the time.
    fn address(&mut self) -> u64 {
        let page = match self.byte() {
            at @ 0..=199 => u64::from(at % 16) * PAGE,
            200..=230 => BUFFER_AT + u64::from(self.byte() % 3) * PAGE,
            231..=240 => u64::from(self.word()) << 12,
            241..=250 => !0xfff,
            _ => return u64::from(self.word()) << 32 | u64::from(self.word()),
        };
        page + [0, 0, 0, 0, 8, 0x10, 0xff8, 0xff0, 4, 0x800, 0xe00, 1][self.below(12)]
    }
}

/// One guest's memory, and what was seen of its queue pair 1.
#[derive(Clone)]
struct Guest {
    memory: Vec<u8>,
    buffer: Vec<u8>,
    mapped: Option<MemoryBuffer>,
    shadow: Option<Shadow>,
    /// Entries fetched and not completed, by identifier; looked at by Abort and never completed counts as well.
    open: BTreeMap<u16, u32>,
    /// Of queue pair 1: fetched, and completed.
    fetched: u64,
    posted: u64,
    /// Whether queue pair 1 is still what the harness made.
    own: bool,
    /// The harness's tail of submission queue 1, and the controller's tail of completion queue 1.
    tail: u32,
    completed: u32,
}

/// All of them: the drive's other side.
#[derive(Clone)]
struct Guests {
    guests: [Guest; GUESTS],
    /// Every so many reads a byte changes; 0: never.
    flip: u8,
    reads: u64,
}

impl Guest {
    fn new() -> Self {
        Self {
            memory: vec![0; MEMORY],
            buffer: vec![0; BUFFER],
            mapped: None,
            shadow: None,
            open: BTreeMap::new(),
            fetched: 0,
            posted: 0,
            own: true,
            tail: 0,
            completed: 0,
        }
    }

    /// What a door does with an address: its own buffer, the guest's memory, or nothing.
    fn at(&mut self, address: u64, len: usize) -> Result<&mut [u8], Status> {
        if let Some(mapped) = self.mapped {
            if let Some(offset) = mapped.offset(address, len as u64)? {
                return Ok(&mut self.buffer[offset as usize..offset as usize + len]);
            }
        }
        let start = usize::try_from(address).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
        let end = start.checked_add(len).ok_or(Status::DATA_TRANSFER_ERROR)?;
        self.memory.get_mut(start..end).ok_or(Status::DATA_TRANSFER_ERROR)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        if let Ok(place) = self.at(address, bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// What an admin command that is fetched does to queue pair 1.
    fn watch(&mut self, sqe: &Sqe) {
        let (qid, base) = (sqe.cdw10.get() as u16, sqe.dptr[0].get());
        match AdminOpcode(sqe.opcode) {
            AdminOpcode::DELETE_IO_SQ | AdminOpcode::DELETE_IO_CQ | AdminOpcode::ABORT => self.own &= qid != 1,
            // Rings that lie over those of the harness.
            AdminOpcode::CREATE_IO_SQ | AdminOpcode::CREATE_IO_CQ => {
                self.own &= !(base < 2 * PAGE && base + 64 * 64 > PAGE);
                // A submission queue that posts to completion queue 1 shares its room.
                self.own &= sqe.cdw11.get() >> 16 != 1 || sqe.opcode == AdminOpcode::CREATE_IO_CQ.0;
            }
            _ => {}
        }
    }
}

impl Guests {
    fn of(&mut self, owner: Owner) -> &mut Guest {
        &mut self.guests[owner.0 as usize]
    }

    /// Copies out; between two reads the guest may change what it likes.
    fn read(&mut self, owner: Owner, address: u64, into: &mut [u8]) -> Result<(), Status> {
        self.reads += 1;
        let (reads, flip) = (self.reads, u64::from(self.flip));
        let guest = self.of(owner);
        let place = guest.at(address, into.len())?;
        into.copy_from_slice(place);
        if flip != 0 && reads % flip == 0 && !place.is_empty() {
            let at = (reads.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize;
            let len = place.len();
            place[at % len] ^= 1 << (at / len % 8);
        }
        Ok(())
    }

    /// Bytes of a command, as a door moves them.
    fn pieces(
        &mut self,
        owner: Owner,
        (data, direction): (&DataPointer, Direction),
        offset: u32,
        len: usize,
    ) -> Result<Vec<DataPiece>, Status> {
        let (mut walk, mut pieces, mut sum) = (Walk::new(data, direction, offset, len as u32), Vec::new(), 0);
        while let Some(piece) = walk.next(&mut |address, into: &mut [u8]| self.read(owner, address, into))? {
            assert!(!piece.is_empty(), "a piece of nothing");
            sum += piece.len() as usize;
            pieces.push(piece);
        }
        assert_eq!(sum, len, "a walk that goes well has all bytes");
        Ok(pieces)
    }
}

impl Host for Guests {
    fn fetch(&mut self, owner: Owner, address: u64) -> Result<[u64; 8], Status> {
        let mut bytes = [0; 64];
        self.read(owner, address, &mut bytes)?;
        let sqe = Sqe::read_from_bytes(&bytes).unwrap_or_default();
        let guest = self.of(owner);
        *guest.open.entry(sqe.cid.get()).or_default() += 1;
        guest.fetched += u64::from((PAGE..PAGE + CQ).contains(&address));
        if !(PAGE..2 * PAGE).contains(&address) {
            guest.watch(&sqe);
        }
        Ok(Sqe::words_of(&bytes))
    }

    fn post(&mut self, owner: Owner, address: u64, _: Option<u16>, cqe: &Cqe) -> Result<(), Status> {
        let guest = self.of(owner);
        let open = guest.open.get_mut(&cqe.cid.get()).filter(|open| **open > 0);
        *open.unwrap_or_else(|| panic!("a completion for nothing that was fetched: {cqe:?}")) -= 1;
        guest.posted += u64::from(cqe.sqid.get() == 1);
        guest.completed += u32::from((PAGE + CQ..2 * PAGE).contains(&address));
        guest.at(address, 16)?.copy_from_slice(cqe.as_bytes());
        Ok(())
    }

    fn interrupt(&mut self, owner: Owner, vector: u16) {
        assert!(vector <= 4 && (owner.0 as usize) < GUESTS, "a vector that nobody asked for");
    }

    fn respond(&mut self, _: Owner, _: Tag, _: &Cqe) {
        unreachable!("there are no message queues");
    }

    fn read_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        let mut done = 0;
        for piece in self.pieces(owner, (data, Direction::FromHost), offset, into.len())? {
            let len = piece.len() as usize;
            let DataPiece::Memory { address, .. } = piece else { panic!("a bit bucket has no bytes from the host") };
            self.read(owner, address, &mut into[done..done + len])?;
            done += len;
        }
        Ok(())
    }

    fn write_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        let mut done = 0;
        for piece in self.pieces(owner, (data, Direction::ToHost), offset, from.len())? {
            let len = piece.len() as usize;
            if let DataPiece::Memory { address, .. } = piece {
                self.of(owner).at(address, len)?.copy_from_slice(&from[done..done + len]);
            }
            done += len;
        }
        Ok(())
    }
}

/// A guest's shadow pages, as far as its queues reach: taken out of its memory while the controller looks at them, and put back.
struct Pages {
    bytes: [Result<[u8; 40], Status>; 2],
    queues: u16,
}

impl Pages {
    fn place(&mut self, page: usize, index: u32) -> Result<&mut [u8], Status> {
        assert!(index >= 2 && index < u32::from(self.queues) * 2, "a doorbell that has no shadow: {index}");
        let bytes = self.bytes[page].as_mut().map_err(|status| *status)?;
        Ok(&mut bytes[index as usize * 4..][..4])
    }
}

impl ShadowPages for Pages {
    fn load(&mut self, index: u32) -> Result<u32, Status> {
        let bytes = self.place(0, index)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
    fn store(&mut self, index: u32, value: u32) -> Result<(), Status> {
        self.place(1, index)?.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }
    fn fence(&mut self) {}
}

/// What the drives are made of.
fn config(mechanism: Mechanism, slots: u32, latency: u64) -> SubsystemConfig {
    let mut config = SubsystemConfig::new("nqn.2026-01.io.weir:pcie");
    config.arbitration = ArbiterSettings::new(mechanism);
    (config.slots, config.slot_bytes, config.latency) = (slots, 16 << 10, Nanos(latency));
    (config.max_queue_entries, config.max_io_queues, config.max_controllers) = (64, 4, 2);
    (config.mdts, config.admin_rate, config.cmb) = (3, u32::MAX, BUFFER as u64);
    config.volatile_write_cache = true;
    config.tenants = vec![TenantConfig::new("a", Class::High), TenantConfig::new("b", Class::Low)];
    config.namespaces = vec![NamespaceConfig { nsid: 1, start: 0, size: 1 << 20, block_size: 512, uuid: [1; 16] }];
    config
}

/// A drive, its guests and what is in flight.
#[derive(Clone)]
struct Rig {
    config: SubsystemConfig,
    drive: Subsystem,
    hosts: Guests,
    controllers: [ControllerHandle; GUESTS],
    now: Nanos,
    issued: Vec<Io>,
    effects: Effects,
}

impl Rig {
    fn new(mechanism: Mechanism, slots: u32, latency: u64) -> Self {
        let config = config(mechanism, slots, latency);
        let mut drive = Subsystem::new(config.clone(), Nanos(0)).expect("the configuration is good");
        let controllers = [0, 1].map(|guest: u16| {
            let host = GUEST_NAMES[usize::from(guest)].into();
            let attach = Attach { tenant: guest, owner: Owner(guest.into()), model: TransportModel::Rings, host };
            drive.attach(Nanos(0), attach).expect("there is room")
        });
        let hosts = Guests { guests: [Guest::new(), Guest::new()], flip: 0, reads: 0 };
        let mut rig =
            Rig { config, drive, hosts, controllers, now: Nanos(0), issued: Vec::new(), effects: Effects::new(4) };
        for guest in 0..GUESTS {
            rig.bring_up(guest);
        }
        rig
    }

    /// Admin queues of 16 entries in page 0, and queue pair 1.
    fn bring_up(&mut self, guest: usize) {
        self.register(guest, register::AQA, 15 << 16 | 15, 4);
        self.register(guest, register::ASQ, 0, 8);
        self.register(guest, register::ACQ, CQ, 8);
        self.register(guest, register::CC, ENABLE.into(), 4);
        let size = (ENTRIES - 1) << 16 | 1;
        for (n, (opcode, dptr, cdw11)) in
            [(AdminOpcode::CREATE_IO_CQ, PAGE + CQ, 1 << 16 | 3), (AdminOpcode::CREATE_IO_SQ, PAGE, 1 << 16 | 1)]
                .into_iter()
                .enumerate()
        {
            let dptr = [U64::new(dptr), U64::new(0)];
            let (cdw10, cdw11) = (U32::new(size), U32::new(cdw11));
            let sqe = Sqe { opcode: opcode.0, cid: U16::new(0x100 + n as u16), dptr, cdw10, cdw11, ..Sqe::default() };
            self.hosts.guests[guest].write(n as u64 * 64, sqe.as_bytes());
        }
        self.doorbell(guest, Doorbell::SqTail(0), 2);
        self.event(Event::Run);
        self.doorbell(guest, Doorbell::CqHead(0), 2);
        let made = &mut self.hosts.guests[guest];
        assert_eq!(made.open.values().sum::<u32>(), 0);
        (made.own, made.tail, made.completed, made.fetched, made.posted) = (true, 0, 0, 0, 0);
    }

    fn event(&mut self, event: Event) {
        self.drive.apply(self.now, event, &mut self.hosts, &mut self.effects);
        for effect in self.effects.drain() {
            match effect {
                Effect::Io(io) => {
                    assert!(self.issued.iter().all(|i| i.slot != io.slot), "a slot is issued once");
                    self.issued.push(io);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn register(&mut self, guest: usize, offset: u32, value: u64, size: u8) {
        self.event(Event::Register { controller: self.controllers[guest], offset, value, size });
        for (controller, guest) in self.controllers.iter().zip(&mut self.hosts.guests) {
            guest.mapped = self.drive.memory_buffer(*controller);
            guest.shadow = self.drive.shadow(*controller);
        }
    }

    fn doorbell(&mut self, guest: usize, doorbell: Doorbell, value: u32) {
        self.register(guest, doorbell_offset(doorbell), value.into(), 4);
    }

    /// The media is done with an I/O, whose bytes move now, in pieces.
    fn done(&mut self, at: usize, piece: u32) {
        let io = self.issued.remove(at);
        let mut status = Status::SUCCESS;
        let (mut page, mut offset) = ([0x5a; 4096], 0);
        let live = self.drive.is_live(io.slot);
        while live && offset < io.len && status.is_success() {
            let len = (io.len - offset).min(piece).clamp(1, 4096);
            let (host, data, skip) = (&mut self.hosts, &io.data, io.skip + offset);
            let moved = match io.op {
                Op::Read => host.write_data(io.owner, data, skip, &page[..len as usize]),
                Op::Write | Op::Compare => host.read_data(io.owner, data, skip, &mut page[..len as usize]),
                _ => break,
            };
            status = moved.err().unwrap_or(status);
            offset += len;
        }
        self.event(Event::Done { slot: io.slot, status });
    }

    /// Another look at the shadow pages, if there are any; `arm`: before sleeping.
    fn shadow(&mut self, guest: usize, arm: bool) {
        let controller = self.controllers[guest];
        self.hosts.guests[guest].shadow = self.drive.shadow(controller);
        let Some(shadow) = self.hosts.guests[guest].shadow else { return };
        let addresses = [shadow.doorbells, shadow.event_indexes];
        let own = &mut self.hosts.guests[guest];
        let bytes = addresses.map(|page| own.at(page, 40).map(|place| std::array::from_fn(|i| place[i])));
        let mut pages = Pages { bytes, queues: shadow.queues };
        if arm {
            self.drive.arm_shadow(controller, &mut pages);
        } else {
            self.drive.poll_shadow(controller, &mut pages);
        }
        if let Ok(events) = pages.bytes[1] {
            self.hosts.guests[guest].write(addresses[1], &events);
        }
    }

    /// Whether queue pair 1 is still served: the controller is ready, not shutting down, and nobody took it away.
    fn serves(&self, guest: usize) -> bool {
        let read = |offset| self.drive.register(self.controllers[guest], offset, 4);
        self.hosts.guests[guest].own && read(register::CSTS) & !0x10 == 1 && read(register::CC) & 0xc001 == 1
    }

    /// Another process goes on with the drive, where nothing is in flight: its guests cannot tell.
    fn move_on(&mut self) {
        let carried = self.controllers.iter().all(|controller| self.drive.carries_function(*controller));
        if !carried || !self.issued.is_empty() || self.drive.stats().slots_used > 0 {
            return;
        }
        let bytes = self.drive.functions(self.now);
        let mut next = Subsystem::new(self.config.clone(), self.now).expect("the configuration is good");
        next.restore(&self.drive.save()).expect("what the drive remembers");
        assert_eq!(next.resume_functions(self.now, &bytes), Ok(0), "whatever guests have done to their controllers");
        assert!(next.functions(self.now) == bytes, "bytes, state, other bytes");
        for (guest, controller) in self.controllers.iter_mut().enumerate() {
            let claimed = next.claim_function(GUEST_NAMES[guest], guest as u16, Owner(guest as u32));
            *controller = claimed.expect("its controller is there");
        }
        self.drive = next;
    }

    /// Nothing moves any more, and every guest has consumed what there is: what was fetched is completed.
    fn quiesce(&mut self) {
        self.hosts.flip = 0;
        for _ in 0..200 {
            while !self.issued.is_empty() {
                self.done(0, 4096);
            }
            for guest in 0..GUESTS {
                let host = &mut self.hosts.guests[guest];
                let (head, shadow) = (host.completed % ENTRIES, host.shadow);
                if let Some(shadow) = shadow.filter(|_| host.own) {
                    host.write(shadow.doorbells.wrapping_add(12), &head.to_le_bytes());
                }
                self.doorbell(guest, Doorbell::CqHead(1), head);
                self.shadow(guest, false);
            }
            self.event(Event::Run);
            if self.issued.is_empty() && !self.drive.has_work() {
                match self.drive.next_deadline() {
                    Some(due) => self.now = self.now.max(due),
                    None => break,
                }
                self.event(Event::Tick);
            }
            self.drive.check();
        }
        assert!(self.issued.is_empty());
        for guest in 0..GUESTS {
            let host = &self.hosts.guests[guest];
            if self.serves(guest) {
                assert_eq!(
                    host.fetched, host.posted,
                    "guest {guest}: commands of queue 1 that were fetched and completed"
                );
            }
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let guest = input.below(GUESTS);
        match input.below(20) {
            0 => self.write_register(guest, input),
            1 | 2 => {
                let (qid, value) = (u16::from(input.byte() % 6), u32::from(input.byte() % 20));
                let doorbell = if input.byte() % 2 == 0 { Doorbell::SqTail(qid) } else { Doorbell::CqHead(qid) };
                self.doorbell(guest, doorbell, value);
            }
            3 | 4 => self.put_io(guest, input),
            5 | 6 => self.put_admin(guest, input),
            7 => {
                let (at, n) = (input.address(), input.below(12));
                for i in 0..n as u64 {
                    let entry = input.address();
                    self.hosts.guests[guest].write(at.wrapping_add(i * 8), &entry.to_le_bytes());
                }
            }
            8 => {
                let (at, n) = (input.address(), input.below(8));
                for i in 0..n as u64 {
                    let descriptor = descriptor(input);
                    self.hosts.guests[guest].write(at.wrapping_add(i * 16), descriptor.as_bytes());
                }
            }
            9 => {
                let (at, value) = (input.address(), input.word());
                self.hosts.guests[guest].write(at, &value.to_le_bytes());
            }
            10 | 11 if !self.issued.is_empty() => {
                let (at, piece) = (input.below(self.issued.len()), [512, 4096, 7, 1 << 20][input.below(4)]);
                self.done(at, piece);
            }
            12 => {
                self.now = self.now.saturating_add(Nanos(1 << (input.byte() % 24)));
                self.event(Event::Tick);
            }
            13 => self.shadow(guest, input.byte() % 2 == 0),
            14 => self.hosts.flip = input.byte() % 8,
            15 => {
                let (offset, size) = (input.half(), input.byte());
                self.drive.register(self.controllers[guest], offset.into(), size);
                self.drive.pin(self.controllers[guest]);
            }
            16 => {
                let index = u64::from(input.byte() % 12);
                let value = u32::from(input.byte() % 20);
                let page = [SHADOW, EVENTS][input.below(2)];
                self.hosts.guests[guest].write(page + index * 4, &value.to_le_bytes());
            }
            17 => self.submit(guest, input),
            19 => self.move_on(),
            _ => self.event(Event::Run),
        }
        self.drive.check();
    }

    fn write_register(&mut self, guest: usize, input: &mut Input<'_>) {
        let offset = match input.byte() {
            at @ 0..=229 => REGISTERS[usize::from(at) % REGISTERS.len()],
            _ => input.half().into(),
        };
        let value = match (offset, input.byte()) {
            (register::CC, 0..=99) => ENABLE.into(),
            (register::CC, 100..=150) => 0,
            (register::CC, 151..=200) => u64::from(ENABLE | u32::from(input.byte() % 4) << 14),
            (register::NSSR, 0..=99) => register::NSSR_RESET.into(),
            (register::CMBMSC, 0..=99) => BUFFER_AT | u64::from(input.byte() % 4),
            (register::AQA, 0..=150) => u64::from(input.byte() % 64) << 16 | u64::from(input.byte() % 64),
            (_, 151..) => u64::from(input.word()) << 32 | u64::from(input.word()),
            _ => input.address(),
        };
        let size = [4, 8, 4, 8, 4, 2, 1, 16][input.below(8)];
        let registers = [register::CC, register::NSSR];
        self.register(guest, offset, value, size);
        if registers.contains(&offset) && !self.serves(guest) {
            // What a reset drops is not completed.
            self.hosts.guests[guest].own = false;
        }
        if input.byte() < 20 {
            let (now, controller) = (self.now, self.controllers[guest]);
            self.drive.reset_function(now, controller);
            self.hosts.guests[guest].own = false;
        }
    }

    /// The queue of the harness gets an entry of any kind, and its doorbell.
    fn submit(&mut self, guest: usize, input: &mut Input<'_>) {
        let sqe = io(input);
        let host = &mut self.hosts.guests[guest];
        let at = host.tail;
        host.tail = (at + 1) % ENTRIES;
        let (tail, shadow) = (host.tail, host.shadow);
        host.write(PAGE + u64::from(at) * 64, sqe.as_bytes());
        if let Some(shadow) = shadow {
            host.write(shadow.doorbells.wrapping_add(8), &tail.to_le_bytes());
        }
        self.doorbell(guest, Doorbell::SqTail(1), tail);
    }

    fn put_io(&mut self, guest: usize, input: &mut Input<'_>) {
        let (qid, index) = (1 + u64::from(input.byte() % 4), u64::from(input.byte() % 16));
        let sqe = io(input);
        self.hosts.guests[guest].write(qid * PAGE + index * 64, sqe.as_bytes());
    }

    fn put_admin(&mut self, guest: usize, input: &mut Input<'_>) {
        let index = u64::from(input.byte() % 16);
        let qid = u32::from(input.byte() % 5);
        let mut sqe = Sqe { cid: U16::new(input.byte().into()), ..Sqe::default() };
        let page = u64::from(qid) * PAGE;
        let (opcode, dptr, cdw10, cdw11) = match input.below(12) {
            0 => (AdminOpcode::CREATE_IO_CQ, [page + CQ, 0], u32::from(input.byte() % 64) << 16 | qid, qid << 16 | 3),
            1 => (AdminOpcode::CREATE_IO_SQ, [page, 0], u32::from(input.byte() % 32) << 16 | qid, qid << 16 | 1),
            2 => (AdminOpcode::CREATE_IO_CQ, [input.address(), 0], input.word(), input.word()),
            3 => (AdminOpcode::CREATE_IO_SQ, [input.address(), 0], input.word(), input.word()),
            4 => (AdminOpcode::DELETE_IO_SQ, [0; 2], qid, 0),
            5 => (AdminOpcode::DELETE_IO_CQ, [0; 2], qid, 0),
            6 => (AdminOpcode::DOORBELL_BUFFER_CONFIG, [SHADOW, EVENTS], 0, 0),
            7 => (AdminOpcode::DOORBELL_BUFFER_CONFIG, [input.address(), input.address()], 0, 0),
            8 => (AdminOpcode::ABORT, [0; 2], u32::from(input.byte()) << 16 | qid, 0),
            9 => {
                (AdminOpcode::SET_FEATURES, [DATA, 0], u32::from([7, 8, 9, 1, 0xb][input.below(5)] as u8), input.word())
            }
            10 => (AdminOpcode::ASYNC_EVENT_REQUEST, [0; 2], 0, 0),
            // Identify and log pages of any length, to anywhere.
            _ => {
                let opcode =
                    [AdminOpcode::IDENTIFY, AdminOpcode::GET_LOG_PAGE, AdminOpcode::GET_FEATURES][input.below(3)];
                (opcode, [input.address(), input.address()], u32::from(input.half()) << 16 | u32::from(input.byte()), 0)
            }
        };
        sqe.flags = if input.byte() < 10 { input.byte() } else { 0 };
        (sqe.opcode, sqe.dptr) = (opcode.0, dptr.map(U64::new));
        (sqe.cdw10, sqe.cdw11) = (U32::new(cdw10), U32::new(cdw11));
        let host = &mut self.hosts.guests[guest];
        host.write(index * 64, sqe.as_bytes());
    }
}

fn descriptor(input: &mut Input<'_>) -> SglDescriptor {
    let kinds = [0, 0, 0, SglDescriptor::BIT_BUCKET, SglDescriptor::SEGMENT, SglDescriptor::LAST_SEGMENT, 0x40, 0x01];
    let kind = if input.byte() < 20 { input.byte() } else { kinds[input.below(8)] };
    let len = [16, 32, 512, 4096, 128, 0, 8, u32::MAX][input.below(8)];
    SglDescriptor::new(kind, input.address(), len)
}

/// An I/O command whose data may be anywhere.
fn io(input: &mut Input<'_>) -> Sqe {
    let opcodes = [
        IoOpcode::READ,
        IoOpcode::WRITE,
        IoOpcode::FLUSH,
        IoOpcode::COMPARE,
        IoOpcode::DATASET_MANAGEMENT,
        IoOpcode::READ,
    ];
    let opcode = if input.byte() < 20 { input.byte() } else { opcodes[input.below(6)].0 };
    let mut sqe = Sqe { opcode, cid: U16::new(input.byte().into()), nsid: U32::new(1), ..Sqe::default() };
    sqe.set_slba(input.byte().into());
    sqe.cdw12 = U32::new(u32::from(input.byte() % 70));
    if opcode == IoOpcode::DATASET_MANAGEMENT.0 {
        (sqe.cdw10, sqe.cdw11) = (U32::new(u32::from(input.byte())), U32::new(4));
    }
    match input.byte() {
        0..=150 => sqe.dptr = [U64::new(input.address()), U64::new(input.address())],
        151..=180 => sqe.dptr = [U64::new(DATA), U64::new(LISTS + u64::from(input.byte()) * 16)],
        181..=245 => sqe.set_sgl(descriptor(input)),
        _ => sqe.flags = input.byte(),
    }
    sqe
}

thread_local! {
    /// Drives that are brought up, to begin from.
    static RIGS: OnceCell<Vec<Rig>> = const { OnceCell::new() };
}

/// Bytes become a guest's deeds; the drive's invariants are checked after each, its completions against what it fetched.
pub fn pcie(data: &[u8]) {
    let mut input = Input(data);
    let which = input.below(4);
    let mut rig = RIGS.with(|rigs| {
        let make = || {
            let kinds =
                [(Mechanism::Drr, 4, 0), (Mechanism::Wrr, 2, 10_000), (Mechanism::None, 3, 0), (Mechanism::Rr, 1, 500)];
            kinds.map(|(mechanism, slots, latency)| Rig::new(mechanism, slots, latency)).into()
        };
        rigs.get_or_init(make)[which].clone()
    });
    let mut steps = 0;
    while !input.0.is_empty() {
        rig.step(&mut input);
        steps += 1;
    }
    rig.quiesce();
    crate::checked(steps);
}

/// Long mixed sequences, and some that set shadow doorbells and the memory buffer up first.
pub fn seeds() -> Vec<Vec<u8>> {
    let mixed = |seed: u32| -> Vec<u8> {
        let mut x = seed;
        let step = |_| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 24) as u8
        };
        (0..240).map(step).collect()
    };
    let mut seeds: Vec<Vec<u8>> = (1..=8).map(mixed).collect();
    // Guest 0: the memory buffer on; an entry for Doorbell Buffer Config at admin index 2, rung and run.
    let prefix = [0, 0, 0, 8, 0, 3, 0, 200, 0, 5, 2, 0, 9, 6, 99, 0, 1, 0, 3, 0, 0, 18];
    seeds.extend((9..=12).map(|seed| [&prefix[..], &mixed(seed)].concat()));
    seeds
}
