//! The proof that nothing is lost: the production code of device, queue, ring and journal, stepped store by store against a
//! guest, and killed after every store in every interleaving of small rings; of large ones at random.
//!
//! ```text
//!   guest: add, reap ─► rings in shared memory ◄─ device: take one, complete any, publish     region: the journal
//!                                 │ killed after store n, of any step; the guest may go on
//!                                 ▼
//!   recovery in a new device, killed after store m as well, and again ─► everything served ─► the oracle
//! ```
//! The oracle: the guest gets every request it added back once, with the bytes it must have; what was in flight is submitted in
//! the order in which the guest added it; the disk holds what was written last.

use super::guest::put_descriptor;
use crate::memory::Memory;
use crate::memory::model::ModelMemory;
use crate::vhost_user::{Action, Disk, DriveCommand, Message, Op, VhostUserDevice};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use weir_journal::{CrashPoint, RecoveredRing};
use weir_spec::vhost_user::{Header, Inflight, MemoryRegion, Request, SingleRegion, VringAddress, VringFd, VringState};
use weir_spec::virtio_blk::{RequestHeader, RequestStatus, RequestType};
use weir_spec::virtqueue::{PackedIndex, feature, flag, split};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

pub(super) const RAM: u64 = 0x1000;
pub(super) const PLACES: [u64; 3] = [RAM, RAM + 0x4000, RAM + 0x6000];
/// A line a request: header, status at 16, an indirect table at 32, data behind the lines.
const LINES: u64 = RAM + 0x8000;
const LINE: u64 = 0x100;
const SECTOR: usize = 512;

/// What kind of ring, and where it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rig {
    pub(super) packed: bool,
    /// Three descriptors a request rather than a table.
    direct: bool,
    /// Only every third request has three.
    mixed: bool,
    pub(super) size: u16,
    /// Requests in all.
    pub(super) requests: u16,
    /// Sectors of the disk: fewer than requests, so that writes overlap.
    pub(super) sectors: u64,
    /// The split ring's first index.
    first: u16,
}

impl Rig {
    /// The most of a request.
    fn slots(&self) -> u16 {
        if self.direct { 3 } else { 1 }
    }
    fn is_direct(&self, number: u16) -> bool {
        self.direct && (!self.mixed || number % 3 == 2)
    }
    fn depth(&self) -> u16 {
        self.size / self.slots()
    }
    pub(super) fn base(&self) -> u32 {
        let start = u32::from(PackedIndex::START.bits());
        if self.packed { start << 16 | start } else { u32::from(self.first) }
    }
    pub(super) fn ram_len(&self) -> usize {
        0x8000 + (LINE as usize + SECTOR) * usize::from(self.depth())
    }
    fn data(&self, id: u16) -> u64 {
        LINES + LINE * u64::from(self.depth()) + SECTOR as u64 * u64::from(id)
    }
}

/// A request that the guest has added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Added {
    number: u16,
    pub(super) head: u16,
}

/// The guest's driver.
#[derive(Debug, Hash)]
pub(super) struct Driver {
    next: u16,
    /// Heads (buffer identifiers) that are free, the last one is next.
    pub(super) free: Vec<u16>,
    pub(super) added: Vec<Added>,
    pub(super) next_avail: u16,
    pub(super) next_used: u16,
    /// Numbers of those completed, in order.
    completed: Vec<u16>,
    /// What each sector holds once its write is completed.
    holds: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step1 {
    Add,
    Reap,
    Take,
    /// Of those taken.
    Complete(usize),
    Publish,
}

pub(super) struct World {
    pub(super) rig: Rig,
    pub(super) ram: Rc<ModelMemory>,
    region: Rc<ModelMemory>,
    pub(super) driver: Driver,
    disk: Vec<u8>,
    pub(super) memory: ModelMemory,
    pub(super) device: VhostUserDevice<ModelMemory>,
    /// What the front end says next as the ring's base.
    says: u32,
    pub(super) taken: Vec<DriveCommand>,
    /// What was recovered last.
    pub(super) found: Option<RecoveredRing>,
}

pub(super) fn features(rig: &Rig) -> u64 {
    let without = if rig.packed { 0 } else { feature::RING_PACKED };
    Disk::new(0, "").features() & !without
}

impl World {
    pub(super) fn new(rig: Rig) -> Self {
        let ram = Rc::new(ModelMemory::flat(RAM, rig.ram_len()));
        for at in [PLACES[1] + 2, PLACES[2] + 2].into_iter().filter(|_| !rig.packed) {
            ram.write(at, &rig.first.to_le_bytes()).unwrap();
        }
        let free = (0..rig.depth()).rev().map(|i| if rig.packed { i } else { i * rig.slots() }).collect();
        let start = if rig.packed { PackedIndex::START.bits() } else { rig.first };
        let (added, completed) = (Vec::new(), Vec::new());
        let holds = vec![0; rig.sectors as usize];
        let driver = Driver { next: 0, free, added, next_avail: start, next_used: start, completed, holds };
        let disk = Disk::new(rig.sectors * 512, "crash");
        let region = Rc::new(ModelMemory::new());
        let (memory, device, taken, found) = (ModelMemory::new(), VhostUserDevice::new(disk), Vec::new(), None);
        let bytes = vec![0; rig.sectors as usize * SECTOR];
        let says = rig.base();
        let mut w = Self { rig, ram, region, driver, disk: bytes, memory, device, says, taken, found };
        w.region = w.ask_for_region();
        w.start();
        w
    }

    fn say(&mut self, request: Request, payload: &[u8], fds: Vec<Rc<ModelMemory>>) -> Vec<Action<Rc<ModelMemory>>> {
        let mut out = Vec::new();
        let message = Message { request, needs_reply: true, again: false, payload: payload.to_vec(), fds };
        self.device.message(message, &mut self.memory, &mut out);
        let refused = out.iter().any(|a| match a {
            Action::Reply(b) if !matches!(request, Request::GET_VRING_BASE) => {
                b[size_of::<Header>()..].iter().any(|b| *b != 0)
            }
            Action::Close(_) => true,
            _ => false,
        });
        assert!(!refused || self.memory.is_dead(), "{request:?}: {out:?}");
        out
    }

    fn inflight(&self) -> Inflight {
        let (num_queues, queue_size) = (U16::new(1), U16::new(self.rig.size));
        Inflight { num_queues, queue_size, ..Inflight::default() }
    }

    fn ask_for_region(&mut self) -> Rc<ModelMemory> {
        self.say(Request::SET_FEATURES, U64::new(features(&self.rig)).as_bytes(), vec![]);
        let payload = self.inflight();
        let mut out = self.say(Request::GET_INFLIGHT_FD, payload.as_bytes(), vec![]);
        let Some(Action::ReplyWith(_, fd)) = out.pop() else { panic!("{out:?}") };
        fd
    }

    /// A new process: a device that knows nothing, told what a front end tells it when it connects again.
    fn start(&mut self) {
        self.memory = ModelMemory::new();
        self.restart();
    }

    fn restart(&mut self) {
        let rig = self.rig;
        self.device = VhostUserDevice::new(Disk::new(rig.sectors * 512, "crash"));
        self.taken.clear();
        self.found = None;
        let number = |n: u64| U64::new(n);
        let state = |num: u32| VringState { index: U32::ZERO, num: U32::new(num) };
        self.say(Request::SET_FEATURES, number(features(&rig)).as_bytes(), vec![]);
        let protocol = self.device.disk().protocol();
        self.say(Request::SET_PROTOCOL_FEATURES, number(protocol).as_bytes(), vec![]);
        let guest_address = U64::new(RAM);
        let size = U64::new(rig.ram_len() as u64);
        let region = MemoryRegion { guest_address, size, user_address: guest_address, mmap_offset: U64::ZERO };
        let ram = self.ram.clone();
        self.say(Request::ADD_MEM_REG, SingleRegion { padding: U64::ZERO, region }.as_bytes(), vec![ram.clone()]);
        let shape = weir_journal::JournalShape { kind: weir_journal::QueueKind::Virtio, queues: 1, size: rig.size };
        let inflight = Inflight { mmap_size: U64::new(shape.bytes()), ..self.inflight() };
        let carrier = self.region.clone();
        self.say(Request::SET_INFLIGHT_FD, inflight.as_bytes(), vec![carrier]);
        self.say(Request::SET_VRING_NUM, state(rig.size.into()).as_bytes(), vec![]);
        // What a front end believes after a crash: nothing of it is true any more.
        self.say(Request::SET_VRING_BASE, state(self.says).as_bytes(), vec![]);
        let [descriptor, available, used] = PLACES.map(U64::new);
        let address = VringAddress { descriptor, available, used, ..VringAddress::default() };
        self.say(Request::SET_VRING_ADDR, address.as_bytes(), vec![]);
        let out = self.say(Request::SET_VRING_KICK, VringFd(U64::ZERO).as_bytes(), vec![ram]);
        self.found = out.into_iter().find_map(|a| match a {
            Action::Recovered(0, found) => Some(found),
            _ => None,
        });
        self.say(Request::SET_VRING_ENABLE, state(1).as_bytes(), vec![]);
    }

    // --- the guest ---

    fn sector(&self, number: u16) -> u64 {
        u64::from(number) % self.rig.sectors
    }

    /// Every third request is a read.
    fn is_read(number: u16) -> bool {
        number % 3 == 2
    }

    fn line(&self, head: u16) -> u64 {
        LINES + LINE * u64::from(self.id(head))
    }

    fn id(&self, head: u16) -> u16 {
        if self.rig.packed { head } else { head / self.rig.slots() }
    }

    pub(super) fn can_add(&self) -> bool {
        let d = &self.driver;
        let sector = self.sector(d.next);
        // A guest that wants an order between two requests waits for the first.
        d.next < self.rig.requests && !d.free.is_empty() && d.added.iter().all(|a| self.sector(a.number) != sector)
    }

    pub(super) fn add(&mut self) {
        let rig = self.rig;
        let (number, head) = (self.driver.next, self.driver.free.pop().unwrap());
        let (line, data, sector) = (self.line(head), rig.data(self.id(head)), self.sector(number));
        let read = Self::is_read(number);
        let kind = if read { RequestType::IN } else { RequestType::OUT };
        self.ram.write(line, RequestHeader::new(kind, sector).as_bytes()).unwrap();
        self.ram.write(line + 16, &[0xee]).unwrap();
        self.ram.write(data, &[if read { 0xcc } else { number as u8 + 1 }; SECTOR]).unwrap();
        let pieces =
            [(line, 16, 0), (data, SECTOR as u32, if read { flag::WRITE } else { 0 }), (line + 16, 1, flag::WRITE)];
        self.driver.next += 1;
        self.driver.added.push(Added { number, head });
        let table = line + 32;
        if !rig.is_direct(number) {
            for (i, (address, len, flags)) in pieces.into_iter().enumerate() {
                let next = if i < 2 { flag::NEXT } else { 0 };
                let (third, fourth) = if rig.packed { (0, flags) } else { (flags | next, i as u16 + 1) };
                put_descriptor(&self.ram, table + 16 * i as u64, address, len, third, fourth);
            }
        }
        let table = [(table, 48, flag::INDIRECT)];
        let pieces = if rig.is_direct(number) { &pieces[..] } else { &table[..] };
        if rig.packed { self.add_packed(head, pieces) } else { self.add_split(head, pieces) }
    }

    fn add_split(&mut self, head: u16, pieces: &[(u64, u32, u16)]) {
        for (i, (address, len, flags)) in pieces.iter().enumerate() {
            let (at, next) = (head + i as u16, if i + 1 < pieces.len() { flag::NEXT } else { 0 });
            put_descriptor(&self.ram, PLACES[0] + 16 * u64::from(at), *address, *len, flags | next, at + 1);
        }
        let slot = u64::from(self.driver.next_avail % self.rig.size);
        self.ram.write(PLACES[1] + split::RING as u64 + 2 * slot, &head.to_le_bytes()).unwrap();
        self.driver.next_avail = self.driver.next_avail.wrapping_add(1);
        self.ram.write(PLACES[1] + 2, &self.driver.next_avail.to_le_bytes()).unwrap();
    }

    fn add_packed(&mut self, head: u16, pieces: &[(u64, u32, u16)]) {
        let at = PackedIndex::from_bits(self.driver.next_avail);
        // The first one last: it makes the chain available.
        for (i, (address, len, flags)) in pieces.iter().enumerate().rev() {
            let place = at.advance(i as u16, self.rig.size);
            let next = if i + 1 < pieces.len() { flag::NEXT } else { 0 };
            let flags = flags | next | place.avail_flags();
            put_descriptor(&self.ram, PLACES[0] + 16 * u64::from(place.offset), *address, *len, head, flags);
        }
        self.driver.next_avail = at.advance(pieces.len() as u16, self.rig.size).bits();
    }

    fn read16(&self, at: u64) -> u16 {
        let mut b = [0; 2];
        self.ram.read(at, &mut b).unwrap();
        u16::from_le_bytes(b)
    }

    fn next_completion(&self) -> Option<u16> {
        let d = &self.driver;
        if self.rig.packed {
            let at = PackedIndex::from_bits(d.next_used);
            let place = PLACES[0] + 16 * u64::from(at.offset);
            return at.is_used(self.read16(place + 14)).then(|| self.read16(place + 12));
        }
        let slot = u64::from(d.next_used % self.rig.size);
        (self.read16(PLACES[2] + 2) != d.next_used).then(|| self.read16(PLACES[2] + 4 + 8 * slot))
    }

    pub(super) fn can_reap(&self) -> bool {
        self.next_completion().is_some()
    }

    pub(super) fn reap(&mut self) {
        let head = self.next_completion().unwrap();
        let at = self.driver.added.iter().position(|a| a.head == head);
        let added =
            self.driver.added.remove(at.unwrap_or_else(|| panic!("head {head} completed twice or never added")));
        let d = &mut self.driver;
        d.next_used = if self.rig.packed {
            let slots = if self.rig.is_direct(added.number) { 3 } else { 1 };
            PackedIndex::from_bits(d.next_used).advance(slots, self.rig.size).bits()
        } else {
            d.next_used.wrapping_add(1)
        };
        d.completed.push(added.number);
        d.free.push(head);
        let mut status = [0];
        self.ram.read(self.line(head) + 16, &mut status).unwrap();
        assert_eq!(RequestStatus(status[0]), RequestStatus::OK, "request {}", added.number);
        let sector = self.sector(added.number) as usize;
        if Self::is_read(added.number) {
            let mut bytes = [0; SECTOR];
            self.ram.read(self.rig.data(self.id(head)), &mut bytes).unwrap();
            assert_eq!(bytes, [self.driver.holds[sector]; SECTOR], "read {}", added.number);
        } else {
            self.driver.holds[sector] = added.number as u8 + 1;
        }
    }

    // --- the device ---

    pub(super) fn take(&mut self) {
        let taken = &mut self.taken;
        self.device.take(&self.memory, 0, 1, &mut |t| taken.push(t)).expect("a sound ring");
    }

    pub(super) fn complete(&mut self, at: usize) {
        let t = self.taken.remove(at);
        let range = t.offset as usize..t.offset as usize + t.len as usize;
        let q = self.device.queue(0).unwrap();
        // The drive's own store: it dies with the process, before or after.
        let mut now = self.disk[range.clone()].to_vec();
        match t.op {
            Op::Read => q.write_data(&self.memory, t.tag, 0, &now).unwrap(),
            _ => q.read_data(&self.memory, t.tag, 0, &mut now).unwrap(),
        }
        if !self.memory.is_dead() {
            self.disk[range].copy_from_slice(&now);
        }
        self.device.complete(&self.memory, t.tag, RequestStatus::OK);
    }

    fn steps(&self) -> Vec<Step1> {
        let mut steps = Vec::new();
        if self.can_add() {
            steps.push(Step1::Add);
        }
        if self.can_reap() {
            steps.push(Step1::Reap);
        }
        steps.push(Step1::Take);
        steps.extend((0..self.taken.len()).map(Step1::Complete));
        steps.push(Step1::Publish);
        steps
    }

    pub(super) fn step(&mut self, step: Step1) {
        match step {
            Step1::Add => self.add(),
            Step1::Reap => self.reap(),
            Step1::Take => self.take(),
            Step1::Complete(at) => self.complete(at),
            Step1::Publish => self.device.publish(&self.memory, 0),
        }
    }

    /// All that counts later, hashed: two worlds of the same key go on alike.
    fn key(&self, with_device: bool) -> u64 {
        let mut h = DefaultHasher::new();
        let mut bytes = vec![0; self.rig.ram_len()];
        self.ram.read(RAM, &mut bytes).unwrap();
        bytes.hash(&mut h);
        let shape =
            weir_journal::JournalShape { kind: weir_journal::QueueKind::Virtio, queues: 1, size: self.rig.size };
        let mut bytes = vec![0; shape.bytes() as usize];
        self.region.read(0, &mut bytes).unwrap();
        bytes.hash(&mut h);
        (&self.disk, &self.driver).hash(&mut h);
        if with_device {
            self.taken.iter().map(|t| t.tag).collect::<Vec<_>>().hash(&mut h);
        }
        h.finish()
    }

    /// Serves until nothing is left, in large batches or in single ones, and asks the oracle.
    pub(super) fn finish(&mut self, single: bool) {
        // In the order in which the guest added them, those of the earlier life first.
        if let Some(found) = &self.found {
            let known: VecDeque<u16> = self.driver.added.iter().map(|a| a.head).collect();
            let order: Vec<_> = known.iter().filter(|h| found.heads.contains(h)).copied().collect();
            assert_eq!(order, found.heads, "resubmitted in the order of submission");
        }
        for _ in 0..4 * self.rig.requests + 4 {
            let before = self.taken.len();
            self.take();
            if self.taken.len() == before && !self.taken.is_empty() {
                self.complete(0);
                if single {
                    self.device.publish(&self.memory, 0);
                    while self.can_reap() {
                        self.reap();
                    }
                }
            } else if self.taken.is_empty() {
                self.device.publish(&self.memory, 0);
                while self.can_reap() {
                    self.reap();
                }
                while self.can_add() {
                    self.add();
                }
            }
        }
        for _ in 0..4 * self.rig.requests {
            self.take();
            while !self.taken.is_empty() {
                self.complete(0);
            }
            self.device.publish(&self.memory, 0);
            while self.can_reap() {
                self.reap();
            }
            while self.can_add() {
                self.add();
            }
        }
        let mut completed = self.driver.completed.clone();
        completed.sort_unstable();
        assert_eq!(completed, (0..self.rig.requests).collect::<Vec<_>>(), "every request once");
        for (sector, holds) in self.driver.holds.iter().enumerate() {
            assert_eq!(self.disk[sector * SECTOR..][..SECTOR], [*holds; SECTOR], "sector {sector}");
        }
        self.device.check();
    }
}

fn replay(rig: Rig, script: &[Step1]) -> World {
    let mut w = World::new(rig);
    script.iter().for_each(|s| w.step(*s));
    w
}

/// What an exploration saw.
#[derive(Debug, Default)]
struct Seen {
    states: HashSet<u64>,
    crashes: HashSet<u64>,
    found: HashSet<CrashPoint>,
    recoveries: usize,
}

/// Kills after every store of every step from every state that can be reached.
fn explore(rig: Rig) -> Seen {
    let mut seen = Seen::default();
    let mut open = vec![Vec::new()];
    seen.states.insert(World::new(rig).key(true));
    while let Some(script) = open.pop() {
        for step in replay(rig, &script).steps() {
            for stores in 0.. {
                let mut w = replay(rig, &script);
                w.memory.die_after(w.memory.stores() + stores);
                w.step(step);
                if !w.memory.is_dead() {
                    if seen.states.insert(w.key(true)) {
                        let mut next = script.clone();
                        next.push(step);
                        open.push(next);
                    }
                    break;
                }
                if seen.crashes.insert(w.key(false)) {
                    let again = || {
                        let mut w = replay(rig, &script);
                        w.memory.die_after(w.memory.stores() + stores);
                        w.step(step);
                        w
                    };
                    after_a_crash(&again, &mut seen);
                }
            }
        }
    }
    seen
}

/// The process is dead; the guest may be quick or slow; recovery is killed after each of its stores.
fn after_a_crash(crashed: &dyn Fn() -> World, seen: &mut Seen) {
    for quick in [false, true] {
        for stores in 0.. {
            let mut w = crashed();
            if quick {
                while w.can_reap() {
                    w.reap();
                }
                while w.can_add() {
                    w.add();
                }
            }
            w.memory = ModelMemory::new();
            w.memory.die_after(stores);
            w.restart();
            let survived = !w.memory.is_dead();
            if survived {
                w.memory.die_after(u64::MAX);
            } else {
                w.start();
            }
            seen.recoveries += 1;
            seen.found.extend(w.found.as_ref().map(|f| f.step));
            w.finish(quick);
            if survived {
                break;
            }
        }
    }
}

pub(super) fn rig(packed: bool, direct: bool, size: u16, requests: u16, sectors: u64) -> Rig {
    Rig { packed, direct, mixed: false, size, requests, sectors, first: 0xfffe }
}

fn all(rig: Rig) -> Seen {
    let seen = explore(rig);
    let states = seen.states.len();
    std::println!("{rig:?}: {states} states, {} crashes, {} recoveries", seen.crashes.len(), seen.recoveries);
    for step in CrashPoint::ALL {
        assert!(seen.found.contains(&step), "{step:?} is never found in {rig:?}");
    }
    seen
}

#[test]
fn a_split_ring_loses_nothing_wherever_it_is_killed() {
    all(rig(false, false, 2, 4, 3));
    all(rig(false, false, 4, 4, 3));
    all(rig(false, true, 8, 3, 2));
}

#[test]
fn a_packed_ring_loses_nothing_wherever_it_is_killed() {
    all(rig(true, false, 2, 4, 3));
    all(rig(true, false, 3, 4, 3));
    all(rig(true, true, 7, 4, 2));
}

/// Requests of one and of three slots: a used descriptor comes to lie in the middle of another's chain.
#[test]
fn a_packed_ring_of_mixed_chains_loses_nothing_wherever_it_is_killed() {
    all(Rig { mixed: true, ..rig(true, true, 9, 3, 3) });
    all(Rig { mixed: true, ..rig(true, true, 7, 5, 3) });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(4)))]
    /// Large rings, many lives: any steps, killed anywhere, again and again.
    #[test]
    fn large_rings_lose_nothing(
        (packed, direct, mixed, size) in (any::<bool>(), any::<bool>(), any::<bool>(), prop_oneof![Just(16u16), Just(64), Just(256)]),
        lives in proptest::collection::vec((proptest::collection::vec(any::<u16>(), 1..120), 0u64..400), 1..5),
    ) {
        let rig = Rig { packed, direct, mixed, size, requests: 200, sectors: 150, first: 0xffc0 };
        let mut w = World::new(rig);
        for (choices, stores) in lives {
            w.memory.die_after(w.memory.stores() + stores);
            for choice in choices {
                let steps = w.steps();
                // Rather add and take than publish nothing.
                let step = match choice % 8 {
                    0..=2 if w.can_add() => Step1::Add,
                    3 | 4 => Step1::Take,
                    _ => steps[usize::from(choice) / 8 % steps.len()],
                };
                w.step(step);
                if w.memory.is_dead() {
                    break;
                }
            }
            w.start();
        }
        w.finish(false);
    }
}

/// Where peers lose descriptor 0: a region that has seen no completion yet says that its used index is 0, the ring's is another one, and the
/// difference is taken for a batch whose entries were not struck out.
#[test]
fn a_region_that_has_seen_no_completion_keeps_descriptor_0() {
    for first in [0u16, 1, 7, 0xffff] {
        let rig = Rig { first, ..rig(false, false, 4, 3, 3) };
        let mut w = World::new(rig);
        w.add();
        w.take();
        assert_eq!(w.driver.added[0].head, 0);
        w.start();
        let found = w.found.clone().expect("it was in use");
        assert_eq!((found.heads, found.closed, found.rolled_back), (vec![0], 0, 0), "first index {first}");
        w.finish(false);
    }
}

/// A batch is published at once: the used index moves from the first of it to the last in one store.
#[test]
fn the_used_index_is_published_once_a_batch() {
    for packed in [false, true] {
        let mut w = World::new(rig(packed, false, 8, 5, 5));
        for _ in 0..5 {
            w.add();
            w.take();
        }
        for _ in 0..4 {
            w.complete(0);
            assert!(!w.can_reap(), "nothing is seen before the batch is published");
        }
        let before = w.memory.stores();
        w.step(Step1::Publish);
        // The index (or the first descriptor's flags), and four entries struck out.
        assert_eq!(w.memory.stores() - before, 1 + 4);
        for _ in 0..4 {
            w.reap();
        }
        assert!(!w.can_reap());
        w.finish(false);
    }
}

/// A queue that was stopped in order begins where the front end says, with the same region.
#[test]
fn a_stopped_queue_begins_anew() {
    for packed in [false, true] {
        let mut w = World::new(rig(packed, false, 4, 4, 4));
        for _ in 0..3 {
            w.add();
            w.take();
            w.complete(0);
            w.step(Step1::Publish);
            w.reap();
        }
        let state = VringState { index: U32::ZERO, num: U32::ZERO };
        let mut out = w.say(Request::GET_VRING_BASE, state.as_bytes(), vec![]);
        let Some(Action::Reply(bytes)) = out.pop() else { panic!("{out:?}") };
        let base = VringState::read_from_bytes(&bytes[size_of::<Header>()..]).unwrap();
        w.say(Request::SET_VRING_BASE, base.as_bytes(), vec![]);
        let out = w.say(Request::SET_VRING_KICK, VringFd(U64::ZERO).as_bytes(), vec![w.ram.clone()]);
        assert!(!out.iter().any(|a| matches!(a, Action::Recovered(..))), "{out:?}");
        w.finish(false);
    }
}

impl World {
    /// One request from its beginning to its end.
    fn one(&mut self, number: u16) {
        self.driver.next = number;
        self.add();
        self.take();
        assert_eq!(self.taken.len(), 1);
        self.complete(0);
        self.step(Step1::Publish);
        self.reap();
    }

    fn stop(&mut self) -> u32 {
        let state = VringState { index: U32::ZERO, num: U32::ZERO };
        let mut out = self.say(Request::GET_VRING_BASE, state.as_bytes(), vec![]);
        let Some(Action::Reply(bytes)) = out.pop() else { panic!("{out:?}") };
        VringState::read_from_bytes(&bytes[size_of::<Header>()..]).unwrap().num.get()
    }
}

/// A ring that stands at 0 after some rounds, where the slots still have a chain that has long been completed: its used descriptor went to the
/// slot of one that was completed after it.
fn at_zero_with_a_stale_chain(base: u32) -> World {
    let mut w = World::new(Rig { mixed: true, requests: 100, ..rig(true, true, 7, 100, 4) });
    w.stop();
    w.says = base;
    w.start();
    for _ in 0..13 {
        w.one(0);
    }
    for number in [0, 2] {
        w.driver.next = number;
        w.add();
        w.take();
    }
    assert_eq!(w.taken.len(), 2, "in slot 6, and from slot 0 to 2");
    w.complete(1);
    w.complete(0);
    w.step(Step1::Publish);
    w.reap();
    w.reap();
    for _ in 0..4 {
        w.one(0);
    }
    assert_eq!((w.driver.next_avail, w.driver.next_used), (0, 0));
    let flags = w.read16(PLACES[0] + 14);
    assert_eq!(flags & (flag::AVAIL | flag::USED), flag::AVAIL, "as a new ring's first request has it");
    w
}

#[test]
fn a_ring_that_has_gone_round_to_0_executes_nothing_stale() {
    for (crash, base, another) in
        [(true, 0x8000_8000, true), (true, 0, true), (false, 0x8000_8000, true), (false, 0, true), (false, 0, false)]
    {
        let mut w = at_zero_with_a_stale_chain(base);
        w.says = 0;
        if !crash {
            assert_eq!(w.stop(), 0);
        }
        match another {
            true => w.start(),
            false => {
                let base = VringState::default();
                w.say(Request::SET_VRING_BASE, base.as_bytes(), vec![]);
                w.say(Request::SET_VRING_KICK, VringFd(U64::ZERO).as_bytes(), vec![w.ram.clone()]);
            }
        }
        assert_eq!(w.found.is_some(), crash);
        // It is known as well when nothing has come in between.
        if crash {
            w.start();
        }
        w.take();
        assert!(w.taken.is_empty(), "crash: {crash}, another process: {another}: {:?}", w.taken);
        w.one(0);
        w.one(2);
    }
}

/// A new ring whose front end says 0 is understood by every process that serves it before anything has come.
#[test]
fn a_base_of_zero_stays_ambiguous_until_something_is_taken() {
    let mut w = World::new(rig(true, false, 4, 4, 4));
    w.stop();
    w.says = 0;
    w.start();
    assert!(w.found.is_none());
    w.start();
    assert!(w.found.is_some());
    assert_eq!(w.stop(), 0);
    w.start();
    assert!(w.found.is_none());
    w.add();
    w.start();
    w.finish(false);
}

/// What no crash leaves is refused before anything of the ring is changed.
#[test]
fn a_damaged_region_leaves_the_ring_alone() {
    let mut w = World::new(rig(true, false, 4, 4, 4));
    for _ in 0..3 {
        w.add();
        w.take();
    }
    // Two are done and written but for the first one's flags, and the process dies.
    w.complete(0);
    w.complete(0);
    // Of the last one the entry says that it is done as well.
    let entry = 64 + 64 + 32 * u64::from(w.driver.added[2].head);
    let mut bytes = [0; 8];
    w.region.read(entry, &mut bytes).unwrap();
    assert_eq!(bytes[0] & 3, 1);
    w.region.write(entry, &[3]).unwrap();
    let ring = |w: &World| {
        let mut bytes = vec![0; 64];
        w.ram.read(PLACES[0], &mut bytes).unwrap();
        bytes
    };
    let before = ring(&w);
    w.says = u32::MAX;
    let started = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| w.start()));
    assert!(started.is_err(), "the region is refused");
    assert_eq!(ring(&w), before);
}

/// Another version, another magic, other queues, a file too short: refused, and left as it is.
#[test]
fn a_region_that_is_not_ours_is_refused() {
    let fresh = || {
        let mut w = World::new(rig(false, false, 4, 2, 2));
        w.device = VhostUserDevice::new(Disk::new(1024, "crash"));
        w.say(Request::SET_FEATURES, U64::new(features(&w.rig)).as_bytes(), vec![]);
        w
    };
    let shape = weir_journal::JournalShape { kind: weir_journal::QueueKind::Virtio, queues: 1, size: 4 };
    let sound = Inflight { mmap_size: U64::new(shape.bytes()), ..fresh().inflight() };
    let offer = |payload: Inflight, at: u64, bytes: &[u8]| {
        let mut w = fresh();
        w.region.write(at, bytes).unwrap();
        let mut out = Vec::new();
        let fds = vec![w.region.clone()];
        let payload = payload.as_bytes().to_vec();
        let message = Message { request: Request::SET_INFLIGHT_FD, needs_reply: false, again: false, payload, fds };
        w.device.message(message, &mut w.memory, &mut out);
        out.iter().find_map(|a| match a {
            Action::Unusable(None, why) => Some(alloc::string::ToString::to_string(why)),
            Action::Close(_) => Some("closed".into()),
            _ => None,
        })
    };
    assert_eq!(offer(sound, 0, b"W"), None);
    let said = |what: Option<alloc::string::String>, wanted: &str| {
        assert!(what.as_deref().is_some_and(|s| s.contains(wanted)), "{what:?}: {wanted}");
    };
    said(offer(sound, 0, b"X"), "not one of Weir's");
    said(offer(sound, 8, &[9]), "layout version 9");
    said(offer(sound, 12, &[2]), "of another kind");
    said(offer(Inflight { queue_size: U16::new(8), ..sound }, 0, b"W"), "has 320 bytes");
    said(offer(Inflight { queue_size: U16::new(2), ..sound }, 0, b"W"), "for 1 queues of 4, not for 1 of 2");
    said(offer(Inflight { mmap_size: U64::new(64), ..sound }, 0, b"W"), "has 64 bytes");
    said(offer(Inflight { mmap_size: U64::new(1 << 20), ..sound }, 0, b"W"), "closed");
    said(offer(Inflight { num_queues: U16::new(0), ..sound }, 0, b"W"), "closed");
}
