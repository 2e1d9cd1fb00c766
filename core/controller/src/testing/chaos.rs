//! Bytes into events: honest and hostile hosts of every model at once, over one drive, for fuzzing and property tests.

use crate::queues::queue::{NONE, SqState};
use crate::testing::{Fabric, TestRing, TestWorld, admin, enabling, io};
use crate::{
    Attach, BlockRequest, ClassFrom, ControllerHandle, Cost, DiscoveryRecord, Event, NamespaceConfig, Op, Owner,
    SqHandle, SubsystemConfig, Tag, TenantConfig, TransportModel, ZoneConfig, ZonedConfig, ZonedNamespace, Zrwa,
};
use alloc::string::String;
use alloc::vec::Vec;
use weir_arbiter::{ArbiterSettings, Mechanism};
use weir_flash::Preset;
use weir_spec::nvme::log::{DiscoveryEntry, adrfam, subtype};
use weir_spec::nvme::{AdminOpcode, Sqe, Status, register};
use weir_units::{Bytes, Ceiling, Class, Floor, Nanos, Rates, Sla};
use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

const HOSTS: [&str; 4] = ["nqn.gold", "nqn.silver", "nqn.anybody", "nqn.gold2"];
const OPCODES: [u8; 19] =
    [0x02, 0x01, 0x00, 0x05, 0x08, 0x09, 0x02, 0x7e, 0x79, 0x7a, 0x7d, 0x04, 0x0c, 0x0d, 0x0e, 0x11, 0x15, 0x19, 0x01];
const FRONT: u32 = 900;
const HOSTILE: u32 = 800;
const HONEST: u32 = 700;
const DATA: u64 = 0x38000;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }
    fn word(&mut self) -> u32 {
        u32::from_le_bytes(core::array::from_fn(|_| self.byte()))
    }
    fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }
}

/// Everybody who uses the drive.
struct Actors {
    fabrics: [Option<Fabric>; 3],
    honest: Option<TestRing>,
    hostile: Option<ControllerHandle>,
    front: Option<(ControllerHandle, Vec<SqHandle>)>,
    /// Deletions under way, by identifier, on the honest ring.
    deleting: Vec<(u16, u16)>,
    tags: u32,
}

fn config(input: &mut Input<'_>) -> SubsystemConfig {
    let mut config = SubsystemConfig::new("nqn.2026-01.io.weir:chaos");
    config.arbitration = settings(input);
    config.slots = 1 + input.below(6) as u32;
    config.slot_bytes = 4096 << input.below(4);
    config.latency = Nanos([0, 0, 10_000][input.below(3)]);
    config.max_queue_entries = 64;
    config.max_io_queues = 4;
    config.max_controllers = 6;
    config.mdts = 3;
    config.admin_rate = u32::MAX;
    let tenant = |name: &str, class, hosts: &[&str]| TenantConfig {
        hosts: hosts.iter().map(|h| String::from(*h)).collect(),
        ..TenantConfig::new(name, class)
    };
    config.tenants.push(tenant("gold", Class::High, &["nqn.gold", "nqn.gold2"]));
    config.tenants.push(tenant("silver", Class::Medium, &["nqn.silver"]));
    config.tenants.push(tenant("rest", Class::Low, &["*"]));
    for (nsid, block_size) in [(1, 512), (3, 4096)] {
        let start = u64::from(nsid) << 20;
        config.namespaces.push(NamespaceConfig { nsid, start, size: 1 << 20, block_size, uuid: [nsid as u8; 16] });
    }
    if input.byte() % 2 == 0 {
        add_zones(&mut config, input);
    }
    config
}

/// Namespace 4: eight zones of 16 blocks, of which at most 12 can be written, on flash or not.
fn add_zones(config: &mut SubsystemConfig, input: &mut Input<'_>) {
    let zrwa = (input.byte() % 2 == 0).then_some(Zrwa { size: 4, granularity: 2, areas: 1 });
    let (max_open, more) = (input.below(3) as u32, input.below(2) as u32);
    let max_active = if more == 0 { 0 } else { max_open + more };
    let zones = ZoneConfig {
        zones: 8,
        size: 16,
        capacity: 12,
        max_open,
        max_active,
        zrwa,
        read_across: more == 1,
        extension: more as u8,
    };
    let flash = ZonedConfig::of(&Preset::FemuBbssd.parts(false), zones, 9);
    let flash = (input.byte() % 2 == 0).then_some(flash);
    let size = zones.blocks() << 9;
    config.namespaces.push(NamespaceConfig { nsid: 4, start: 4 << 20, size, block_size: 512, uuid: [4; 16] });
    config.zoned.push(ZonedNamespace { nsid: 4, zones, flash, volatile: input.byte() % 4 == 0 });
}

fn settings(input: &mut Input<'_>) -> ArbiterSettings {
    ArbiterSettings::new([Mechanism::Drr, Mechanism::Wrr, Mechanism::Rr, Mechanism::None][input.below(4)])
}

/// Runs one input to its end; panics when something is wrong.
pub fn drive(bytes: &[u8]) {
    let mut input = Input(bytes);
    let config = config(&mut input);
    let room = 1 + input.below(8);
    let mut world = TestWorld::new(config, room);
    let (fabrics, honest, hostile, front) = ([const { None }; 3], None, None, None);
    let mut actors = Actors { fabrics, honest, hostile, front, deleting: Vec::new(), tags: 0 };
    while !input.0.is_empty() {
        actors.step(&mut world, &mut input);
    }
    actors.finish(&mut world);
}

fn command(input: &mut Input<'_>) -> Sqe {
    let mut sqe = io(
        OPCODES[input.below(OPCODES.len())],
        input.byte().into(),
        input.byte().into(),
        1 + u32::from(input.byte() % 10),
    );
    match input.byte() {
        0..130 => {}
        // The zoned namespace, often at the beginning of a zone.
        130..170 => sqe.nsid = U32::new(4),
        170..200 => {
            sqe.nsid = U32::new(4);
            sqe.set_slba(u64::from(input.byte() % 9) * 16);
            sqe.cdw13 = U32::new(u32::from(input.byte() % 7) | u32::from(input.byte() % 4) << 8);
        }
        200..210 => sqe.nsid = U32::new([0, 2, 3, 4, u32::MAX][input.below(5)]),
        210..215 => sqe.set_slba(u64::from(input.word()) << 40 | 2040),
        // Zone management: an action, for one zone or all of them.
        215..220 => sqe.cdw13 = U32::new(u32::from(input.byte()) | u32::from(input.byte() % 4) << 8),
        // FUSE and PSDT.
        220..225 => sqe.flags = input.byte(),
        225..230 => sqe.flags |= 1 + input.byte() % 3,
        230..240 => (sqe.cdw10, sqe.cdw11, sqe.cdw12) = (input.word().into(), input.word().into(), input.word().into()),
        _ => sqe.cdw11 = U32::new(4),
    }
    sqe.dptr[0] = U64::new(DATA);
    sqe
}

/// What a command carries that says what it does: keys of reservations, ranges of a copy.
fn carried(sqe: &mut Sqe, input: &mut Input<'_>) -> Option<Vec<u8>> {
    match sqe.opcode {
        0x0d | 0x11 | 0x15 => {
            // Every action, type and way of persisting; most often few keys.
            sqe.cdw10 = U32::new(u32::from(input.byte() % 16) | u32::from(input.byte() % 8) << 8);
            if input.byte() > 200 {
                sqe.cdw10 = U32::new(input.word());
            }
            let key = |byte: u8| u64::from(byte % 3).to_le_bytes();
            Some([key(input.byte()), key(input.byte())].concat())
        }
        0x0e => {
            (sqe.cdw10, sqe.cdw11) = (U32::new(input.byte().into()), U32::new((input.byte() % 2).into()));
            None
        }
        0x19 => {
            let (nr, format) = (input.byte() % 4, u32::from(input.byte() > 128));
            sqe.cdw12 = U32::new(u32::from(nr) | format << 8 | u32::from(input.byte() > 250) << 20);
            let mut list = Vec::new();
            for _ in 0..=nr {
                let mut range = alloc::vec![0; if format == 1 { 40 } else { 32 }];
                (range[8], range[16]) = (input.byte(), input.byte() % 40);
                list.extend(range);
            }
            Some(list)
        }
        _ => None,
    }
}

/// The second command of a pair for a first one: most often one that fits.
fn second(first: &Sqe, input: &mut Input<'_>) -> Option<Sqe> {
    if first.opcode != 0x05 || first.flags & 3 != 1 || input.byte() > 220 {
        return None;
    }
    let mut sqe = Sqe { opcode: 0x01, flags: first.flags & !3 | 2, ..*first };
    sqe.cid = zerocopy::little_endian::U16::new(sqe.cid.get() ^ 0x100);
    if input.byte() > 230 {
        sqe.set_slba(input.byte().into());
    }
    Some(sqe)
}

fn admin_command(input: &mut Input<'_>, cid: u16) -> Sqe {
    let opcodes = [
        AdminOpcode::IDENTIFY,
        AdminOpcode::GET_LOG_PAGE,
        AdminOpcode::SET_FEATURES,
        AdminOpcode::GET_FEATURES,
        AdminOpcode::ASYNC_EVENT_REQUEST,
        AdminOpcode::ABORT,
        AdminOpcode::KEEP_ALIVE,
        AdminOpcode(input.byte()),
    ];
    let opcode = opcodes[input.below(8)];
    let mut sqe = admin(opcode, cid, input.byte().into(), input.byte().into());
    match opcode {
        // An identifier that may be there.
        AdminOpcode::ABORT => sqe.cdw10 = U32::new(u32::from(input.byte()) << 16 | u32::from(input.byte() % 6)),
        AdminOpcode::GET_LOG_PAGE => sqe.cdw10 = U32::new(u32::from(input.byte() % 8) | u32::from(input.byte()) << 16),
        AdminOpcode::SET_FEATURES if input.byte() < 128 => (sqe.cdw11, sqe.cdw12) = (input.word().into(), 1.into()),
        _ => {}
    }
    if input.byte() > 250 {
        sqe.cdw12 = input.word().into();
    }
    sqe.nsid = U32::new(input.byte() as u32 % 5);
    sqe.dptr[0] = U64::new(DATA);
    sqe
}

impl Actors {
    fn step(&mut self, world: &mut TestWorld, input: &mut Input<'_>) {
        match input.byte() % 32 {
            0 => self.connect(world, input),
            1 => {
                if let Some(f) = &mut self.fabrics[input.below(3)] {
                    let size = 2 + u16::from(input.byte() % 10);
                    let _ = f.add_queue(world, size, input.byte());
                }
            }
            2..6 => self.fabric_io(world, input),
            6 | 7 => {
                if let Some(f) = &mut self.fabrics[input.below(3)] {
                    let sqe = admin_command(input, f.tags as u16);
                    f.send(world, 0, sqe);
                }
            }
            8 => self.set_cc(world, input),
            9 => self.disconnect(world, input),
            10 => self.honest_start(world, input),
            11..14 => self.honest_io(world, input),
            14 => self.honest_reap(world),
            15 => self.honest_admin(world, input),
            16..19 => self.hostile(world, input),
            19 | 20 => self.front(world, input),
            21..25 => {
                if !world.issued.is_empty() {
                    let n = input.below(world.issued.len());
                    let bad = input.byte() > 220;
                    world.done(n, if bad { Status::WRITE_FAULT } else { Status::SUCCESS });
                }
            }
            25..28 => world.event(Event::Run),
            28 => {
                world.now = world.now.saturating_add(Nanos((u64::from(input.byte()) * 1000) << input.below(16)));
                world.event(Event::Tick);
            }
            29 => manage(world, input),
            30 => world.close(),
            _ => self.detach(world, input),
        }
    }

    fn connect(&mut self, world: &mut TestWorld, input: &mut Input<'_>) {
        let i = input.below(3);
        if self.fabrics[i].is_some() {
            return;
        }
        let kato = u32::from(input.byte() % 4) * 1000;
        let tags = self.tags;
        if let Ok(mut fabric) = Fabric::connect(world, HOSTS[input.below(4)], 100 * (i as u32 + 1), kato) {
            fabric.tags = tags;
            if input.byte() < 250 {
                let cc = enabling(world).with_ams([0, 1, 7][input.below(3)]);
                let property = weir_spec::nvme::fabrics::Property {
                    opcode: 0x7f,
                    ofst: U32::new(register::CC),
                    value: U64::new(cc.0.into()),
                    ..Default::default()
                };
                fabric.send(world, 0, property.into());
                world.event(Event::Run);
            }
            self.fabrics[i] = Some(fabric);
        }
    }

    fn fabric_io(&mut self, world: &mut TestWorld, input: &mut Input<'_>) {
        let Some(f) = &mut self.fabrics[input.below(3)] else { return };
        let qid = input.below(f.queues.len()) as u16;
        let mut sqe = command(input);
        if qid > 0 {
            if let Some(mut bytes) = carried(&mut sqe, input) {
                bytes.resize(4096, 0);
                world.host.data.insert((f.base + u32::from(qid), f.tags + 1), bytes);
            }
            f.send(world, qid, sqe);
            if let Some(sqe) = second(&sqe, input) {
                f.send(world, qid, sqe);
            }
        }
    }

    fn set_cc(&mut self, world: &mut TestWorld, input: &mut Input<'_>) {
        let en = u32::from(input.byte() % 4 != 0);
        let cc =
            enabling(world).with_en(en).with_shn(u32::from(input.byte() % 3)).with_ams(u32::from(input.byte() % 2));
        let which = input.below(4);
        if let Some(Some(f)) = self.fabrics.get_mut(which) {
            let property = weir_spec::nvme::fabrics::Property {
                opcode: 0x7f,
                ofst: U32::new(register::CC),
                value: U64::new(cc.0.into()),
                ..Default::default()
            };
            f.send(world, 0, property.into());
        } else if let (3, Some(ring)) = (which, &self.honest) {
            // Shutdown only: enabling goes with setting the rings up.
            let cc = register::Cc(ring.read(world, register::CC) as u32).with_shn(cc.shn());
            ring.write(world, register::CC, cc.0.into());
        }
    }

    fn disconnect(&mut self, world: &mut TestWorld, input: &mut Input<'_>) {
        let i = input.below(3);
        let Some(f) = &mut self.fabrics[i] else { return };
        let n = input.below(f.queues.len());
        if n == 0 {
            for (qid, queue) in f.queues.iter().enumerate() {
                world.disconnect(Owner(f.base + qid as u32), *queue);
            }
            self.tags = self.tags.max(f.tags);
            self.fabrics[i] = None;
        } else {
            world.disconnect(Owner(f.base + n as u32), f.queues[n]);
        }
    }

    fn honest_start(&mut self, world: &mut TestWorld, input: &mut Input<'_>) {
        if self.honest.is_none() && world.drive.controllers().len() < 6 {
            self.honest = Some(TestRing::attach(world, 0, Owner(HONEST)));
        }
        let Some(ring) = &mut self.honest else { return };
        if ring.read(world, register::CC) & 1 == 1 {
            ring.write(world, register::CC, 0);
            return;
        }
        self.deleting.clear();
        ring.enable(world, 16, 8 + u32::from(input.byte() % 8), [0, 1, 7][input.below(3)]);
        ring.add_queue(world, 1, 2 + u32::from(input.byte() % 20), u32::from(input.byte() % 4));
        ring.add_queue(world, 2, 2 + u32::from(input.byte() % 6), 1);
        assert!(ring.create_sq(world, 3, 4, 1, 2).is_success());
    }

    fn honest_io(&mut self, world: &mut TestWorld, input: &mut Input<'_>) {
        let Some(ring) = &mut self.honest else { return };
        let qid = 1 + input.below(3) as u16;
        if self.deleting.iter().any(|(_, q)| *q == qid) {
            return;
        }
        let mut sqe = command(input);
        sqe.flags &= 0x3f;
        if let Some(bytes) = carried(&mut sqe, input) {
            world.host.ring(ring.owner)[DATA as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        match second(&sqe, input) {
            // One doorbell for both, if there is room.
            Some(other) if ring.put(world, qid, sqe).is_some() => {
                if ring.submit(world, qid, other).is_none() {
                    ring.ring(world, qid);
                }
            }
            Some(_) => {}
            None => _ = ring.submit(world, qid, sqe),
        }
    }

    fn honest_reap(&mut self, world: &mut TestWorld) {
        let Some(ring) = &mut self.honest else { return };
        for cqid in 0..3 {
            for cqe in ring.reap(world, cqid) {
                if let Some(at) = self.deleting.iter().position(|(cid, _)| *cid == cqe.cid.get() && cqid == 0) {
                    let (_, qid) = self.deleting.swap_remove(at);
                    if cqe.status().is_success() {
                        // What was completed before the deletion is still to be seen.
                        ring.peek(world, 1);
                        ring.peek(world, 2);
                        ring.forget_sq(qid);
                    }
                }
            }
        }
    }

    fn honest_admin(&mut self, world: &mut TestWorld, input: &mut Input<'_>) {
        let Some(ring) = &mut self.honest else { return };
        let qid = 1 + input.below(3) as u16;
        if input.byte() > 200 {
            let cid = ring.submit(world, 0, admin(AdminOpcode::DELETE_IO_SQ, 0, qid.into(), 0));
            self.deleting.extend(cid.map(|cid| (cid, qid)));
            return;
        }
        let sqe = admin_command(input, 0);
        let fixed = [
            AdminOpcode::CREATE_IO_CQ,
            AdminOpcode::CREATE_IO_SQ,
            AdminOpcode::DELETE_IO_CQ,
            AdminOpcode::DELETE_IO_SQ,
        ];
        if !fixed.contains(&AdminOpcode(sqe.opcode)) {
            ring.submit(world, 0, sqe);
        }
    }

    fn hostile(&mut self, world: &mut TestWorld, input: &mut Input<'_>) {
        if self.hostile.is_none() {
            let attach =
                Attach { tenant: 1, owner: Owner(HOSTILE), model: TransportModel::Rings, host: "hostile".into() };
            self.hostile = world.drive.attach(world.now, attach).ok();
        }
        let Some(controller) = self.hostile else { return };
        match input.byte() % 8 {
            0 => {
                let at = (input.word() as usize % 0x1000) * 64;
                let sqe = if input.byte() < 128 { command(input) } else { admin_command(input, 1) };
                let entry = zerocopy::IntoBytes::as_bytes(&sqe);
                if let Some(to) = world.host.ring(Owner(HOSTILE)).get_mut(at..at + 64) {
                    to.copy_from_slice(entry);
                }
            }
            1 => {
                let offsets = [register::CC, register::AQA, register::ASQ, register::ACQ, register::INTMS, 0x2c];
                let (offset, value) = (offsets[input.below(6)], u64::from(input.word()));
                let value = if offset == register::CC { value & 0x00ff_c001 } else { value & 0x000f_000f_ffff };
                world.event(Event::Register { controller, offset, value, size: 4 + 4 * (input.byte() & 1) });
            }
            2 => {
                let entry: [u8; 64] = core::array::from_fn(|_| input.byte());
                let sqe = Sqe::read_from_bytes(&entry).unwrap_or_default();
                let base = world.drive.register(controller, register::ASQ, 8) as usize % 0x1000;
                if let Some(to) = world.host.ring(Owner(HOSTILE)).get_mut(base..base + 64) {
                    to.copy_from_slice(zerocopy::IntoBytes::as_bytes(&sqe));
                }
            }
            3 => {
                world.host.broken = Some(Owner(HOSTILE));
                world.event(Event::Run);
                world.host.broken = None;
            }
            4 | 5 => {
                let tail = u32::from(input.byte());
                world.event(Event::SqTail { controller, qid: u16::from(input.byte() % 6), tail });
            }
            6 => {
                let head = u32::from(input.byte());
                world.event(Event::CqHead { controller, qid: u16::from(input.byte() % 6), head });
            }
            _ => {
                let (offset, value) = (0x1000 + 4 * (input.word() % 0x4_0000), u64::from(input.word()));
                world.event(Event::Register { controller, offset, value, size: 4 });
            }
        }
    }

    fn front(&mut self, world: &mut TestWorld, input: &mut Input<'_>) {
        if self.front.is_none() {
            let attach = Attach { tenant: 2, owner: Owner(FRONT), model: TransportModel::Front, host: "front".into() };
            self.front = world.drive.attach(world.now, attach).ok().map(|c| (c, Vec::new()));
        }
        let Some((controller, queues)) = &mut self.front else { return };
        if queues.is_empty() || queues.len() < 3 && input.byte() > 220 {
            let wish = [None, Some(Class::Urgent), Some(Class::Low)][input.below(3)];
            let owner = Owner(FRONT + queues.len() as u32);
            queues.extend(world.drive.add_message_queue(*controller, 8, wish, owner));
        }
        let n = input.below(queues.len());
        let Some(queue) = queues.get(n).copied() else { return };
        let ops = [Op::Read, Op::Write, Op::Flush, Op::Deallocate, Op::WriteZeroes { deallocate: true }, Op::Compare];
        let (op, len) = (ops[input.below(6)], u32::from(input.byte()) * 256);
        let (nsid, offset) = (1 + u32::from(input.byte() % 4), u64::from(input.byte()) * 512);
        let request = BlockRequest { op, nsid, offset, len, fua: false };
        if world.drive.outstanding(queue) < 8 {
            self.tags += 1;
            world.host.pending.insert((FRONT + n as u32, self.tags), self.tags as u16);
            world.event(Event::Submit { queue, request, tag: Tag(self.tags) });
        }
    }

    fn detach(&mut self, world: &mut TestWorld, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0 => {
                if let Some((controller, queues)) = self.front.take() {
                    for n in 0..queues.len() as u32 {
                        world.host.forget(Owner(FRONT + n));
                    }
                    world.drive.detach(world.now, controller);
                }
            }
            1 => {
                if let Some(ring) = self.honest.take() {
                    world.drive.detach(world.now, ring.controller);
                }
            }
            2 => {
                if let Some(controller) = self.hostile.take() {
                    world.drive.detach(world.now, controller);
                }
            }
            _ => {}
        }
        world.drive.check();
    }

    /// Nothing is lost: when all I/O is done, every command of a queue that is served has its completion.
    fn finish(&mut self, world: &mut TestWorld) {
        for _ in 0..64 {
            world.close();
            world.settle();
            self.honest_reap(world);
            world.pass(Nanos::from_millis(1));
        }
        let drive = &world.drive;
        for (owner, tag) in world.host.pending.keys() {
            let Some(sq) = drive.queues.sqs.iter().flatten().find(|sq| sq.owner.0 == *owner && !sq.ring) else {
                panic!("a command of a queue that is gone is still expected: {owner} {tag}");
            };
            let ctrl = drive.ctrl(sq.controller).expect("it has a controller");
            let kept = ctrl.aer.waiting.iter().any(|w| w.tag == *tag) && sq.qid == 0;
            // The first of a pair, whose second its host never sent.
            let alone = sq.awaits && sq.waiting == 1 && sq.pending[sq.head as usize].is_fused();
            let alone = alone && sq.pending[sq.head as usize].tag == *tag;
            let served = !sq.paused && !sq.stuck && sq.state == SqState::Open;
            assert!(kept || alone || !served, "a command was lost: {owner} {tag} {sq:?}");
        }
        if let Some(ring) = &self.honest {
            let ctrl = drive.resolve(ring.controller).and_then(|c| drive.ctrl(c)).expect("it is attached");
            for qid in 1..4 {
                let q = ctrl.sq(qid);
                // Who has set shadow doorbells up by chance rings registers that only wake a door, and there is none here.
                let rings = ctrl.shadow.is_none();
                if q != NONE && rings && ctrl.ready() && !drive.sq(q).paused && !drive.sq(q).stuck {
                    assert_eq!(ring.pending(qid), 0, "a command was lost on ring {qid}");
                }
            }
        }
    }
}

/// A floor, a ceiling and a promise, or none; what waits for a ceiling gets through before the end.
fn limit(world: &mut TestWorld, input: &mut Input<'_>, tenant: u16) {
    let mut some = |least: u64| {
        let n = input.byte();
        (n % 3 > 0).then(|| least + u64::from(n) * 1_000)
    };
    let mut rates = || Rates { iops: some(20_000), bandwidth: some(64_000_000).map(Bytes) };
    let (floor, ceiling) = (Floor::new(rates()), Ceiling { burst: Some(2), ..Ceiling::new(rates()) });
    let sla = Sla { rates: rates(), p99: some(1).map(Nanos), ..Sla::default() };
    let _ = world.drive.set_limits(world.now, tenant, floor, ceiling, sla);
    if let Some(attained) = world.drive.attainment(world.now, tenant) {
        assert!(attained.missed <= attained.periods);
    }
}

fn manage(world: &mut TestWorld, input: &mut Input<'_>) {
    let tenant = input.below(3) as u16;
    match input.byte() % 9 {
        0 => {
            let class = Class::from_bits(input.byte());
            let _ = world.drive.set_tenant(tenant, class, input.byte() > 128, 1 + u16::from(input.byte() % 4));
        }
        1 => {
            let all = [ClassFrom::Tenant, ClassFrom::Qprio, ClassFrom::Cattr, ClassFrom::Peer];
            let _ = world.drive.set_class_from(tenant, all[input.below(4)]);
        }
        2 => {
            let _ = world.drive.set_arbitration(settings(input));
        }
        3 => world.drive.set_latency(Nanos(u64::from(input.byte() % 3) * 5_000)),
        4 => world.drive.set_cost([Cost::Bytes, Cost::Commands, Cost::DeviceTime][input.below(3)]),
        5 => {
            let _ = world.drive.resize_namespace([1, 3, 2][input.below(3)], u64::from(input.byte()) * 4096);
        }
        6 => {
            let _ = world.drive.degrade_zone(4, u32::from(input.byte() % 9), input.byte() % 2 == 0);
        }
        7 => limit(world, input, tenant),
        _ => {
            let entry = DiscoveryEntry::tcp(subtype::NVM, "nqn.x", adrfam::IPV4, "::", input.byte().into());
            let listen = [None, Some(([0, 0, 0, 0], 4420).into())][input.below(2)];
            let label = ["", "a drive"][input.below(2)].into();
            world.drive.set_discovery(alloc::vec![DiscoveryRecord { listen, label, ..DiscoveryRecord::new(entry) }]);
        }
    }
    world.drive.check();
}

#[cfg(test)]
mod tests {
    use super::drive;
    use alloc::vec::Vec;

    /// Found by fuzzing: a host that sends the first command of a fused pair to a message queue and never its second is owed nothing.
    #[test]
    fn first_of_a_pair_alone() {
        let found = "00000000ff000000000000005d00430061000000c500cf75000000e500ed";
        let byte = |i| u8::from_str_radix(&found[2 * i..2 * i + 2], 16).unwrap();
        drive(&(0..found.len() / 2).map(byte).collect::<Vec<_>>());
    }
}
