//! The host's end against the real controller, and against one that misbehaves.

use super::*;
use crate::{Done, Io, IoKind};
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use weir_controller::{
    Attach, ControllerHandle, DataPiece, DataPointer, Direction, Effect, Effects, Event, Host, Io as DriveIo,
    NamespaceConfig, Op, Owner, Shadow, ShadowPages, Subsystem, SubsystemConfig, Tag, TenantConfig, TransportModel,
    Walk,
};
use weir_spec::nvme::feature::Arbitration;
use weir_spec::nvme::register::{self, Cap, Csts, Doorbell, ams};
use weir_spec::nvme::{Cqe, Sqe};
use weir_units::{Class, Nanos};
use zerocopy::{FromBytes, IntoBytes};

const BASE: u64 = 0x1_0000;
const BLOCK: u64 = 512;
const SIZE: u64 = 1 << 20;

/// Host memory.
struct Ram(Vec<u8>);

impl Ram {
    fn at(&mut self, address: u64, len: usize) -> &mut [u8] {
        let at = (address - BASE) as usize;
        &mut self.0[at..at + len]
    }

    /// Calls `each` with the pieces of a command's bytes, and their place.
    fn pieces(
        &mut self,
        (data, direction): (&DataPointer, Direction),
        (offset, len): (u32, usize),
        mut each: impl FnMut(&mut [u8], std::ops::Range<usize>),
    ) -> Result<(), Status> {
        let mut walk = Walk::new(data, direction, offset, len as u32);
        let mut at = 0;
        while let Some(piece) = walk.next(&mut |address, into: &mut [u8]| {
            into.copy_from_slice(self.at(address, into.len()));
            Ok(())
        })? {
            let range = at..at + piece.len() as usize;
            let DataPiece::Memory { address, len } = piece else { unreachable!("the driver has no bit buckets") };
            each(self.at(address, len as usize), range.clone());
            at = range.end;
        }
        Ok(())
    }
}

impl Host for Ram {
    fn fetch(&mut self, _: Owner, address: u64) -> Result<[u64; 8], Status> {
        Ok(Sqe::words_of((&*self.at(address, 64)).try_into().unwrap()))
    }
    fn post(&mut self, _: Owner, address: u64, _: Option<u16>, cqe: &Cqe) -> Result<(), Status> {
        self.at(address, 16).copy_from_slice(cqe.as_bytes());
        Ok(())
    }
    fn interrupt(&mut self, _: Owner, _: u16) {}
    fn respond(&mut self, _: Owner, _: Tag, _: &Cqe) {
        unreachable!("there are no message queues");
    }
    fn read_data(&mut self, _: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        self.pieces((data, Direction::FromHost), (offset, into.len()), |bytes, at| into[at].copy_from_slice(bytes))
    }
    fn write_data(&mut self, _: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        self.pieces((data, Direction::ToHost), (offset, from.len()), |bytes, at| bytes.copy_from_slice(&from[at]))
    }
}

/// The pages of shadow doorbells, as the drive's door has them.
struct Pages<'a> {
    ram: &'a mut Ram,
    shadow: Shadow,
}

impl ShadowPages for Pages<'_> {
    fn load(&mut self, index: u32) -> Result<u32, Status> {
        let bytes = self.ram.at(self.shadow.doorbells + 4 * u64::from(index), 4);
        Ok(u32::from_le_bytes((&*bytes).try_into().unwrap()))
    }
    fn store(&mut self, index: u32, value: u32) -> Result<(), Status> {
        self.ram.at(self.shadow.event_indexes + 4 * u64::from(index), 4).copy_from_slice(&value.to_le_bytes());
        Ok(())
    }
    fn fence(&mut self) {}
}

/// A drive with bytes, and the memory it shares with one host.
struct Drive {
    machine: Subsystem,
    controller: ControllerHandle,
    ram: Ram,
    media: Vec<u8>,
    none: Effects,
    effects: Effects,
    doorbells: u32,
    registers_written: u32,
}

impl Drive {
    fn new(memory: u64) -> Self {
        let mut config = SubsystemConfig::new("nqn.2026-11.io.weir:test:ssd0");
        config.max_io_queues = 4;
        config.max_queue_entries = 64;
        config.namespaces =
            vec![NamespaceConfig { nsid: 1, start: 0, size: SIZE, block_size: BLOCK as u32, uuid: [1; 16] }];
        config.tenants = vec![TenantConfig::new("gold", Class::High)];
        let mut machine = Subsystem::new(config, Nanos(0)).unwrap();
        let attach = Attach { tenant: 0, owner: Owner(0), model: TransportModel::Rings, host: "test".into() };
        let controller = machine.attach(Nanos(0), attach).unwrap();
        Drive {
            machine,
            controller,
            ram: Ram(vec![0; memory as usize]),
            media: vec![0; SIZE as usize],
            none: Effects::new(1),
            effects: Effects::new(16),
            doorbells: 0,
            registers_written: 0,
        }
    }

    fn record_is_whole(&mut self, plan: &ControllerPlan) -> bool {
        self.ram.at(plan.record() + 32, 1)[0] == 1
    }

    fn apply(&mut self, event: Event) {
        self.machine.apply(Nanos(0), event, &mut self.ram, &mut self.none);
        self.machine.check();
    }

    /// A turn of its door, which then sleeps: it is to be rung for what comes next.
    fn run(&mut self) {
        self.turn();
        if let Some(shadow) = self.machine.shadow(self.controller) {
            assert!(self.machine.arm_shadow(self.controller, &mut Pages { ram: &mut self.ram, shadow }));
        }
    }

    fn turn(&mut self) {
        if let Some(shadow) = self.machine.shadow(self.controller) {
            self.machine.poll_shadow(self.controller, &mut Pages { ram: &mut self.ram, shadow });
        }
        loop {
            self.machine.apply(Nanos(0), Event::Run, &mut self.ram, &mut self.effects);
            if self.effects.is_empty() {
                break;
            }
            for effect in self.effects.drain().collect::<Vec<_>>() {
                let Effect::Io(io) = effect else { panic!("{effect:?}") };
                self.execute(&io);
                self.apply(Event::Done { slot: io.slot, status: Status::SUCCESS });
            }
        }
    }

    fn execute(&mut self, io: &DriveIo) {
        let range = io.offset as usize..(io.offset + u64::from(io.len)) as usize;
        match io.op {
            Op::Read => self.ram.write_data(io.owner, &io.data, 0, &self.media[range]).unwrap(),
            Op::Write => self.ram.read_data(io.owner, &io.data, 0, &mut self.media[range]).unwrap(),
            Op::WriteZeroes { .. } | Op::Deallocate => self.media[range].fill(0),
            Op::Flush | Op::Compare | Op::Verify | Op::Copy => {}
        }
    }

    fn bring_up(&mut self, plan: ControllerPlan) -> Result<EnabledController, TransportError> {
        self.finish_bring_up(BringUp::new(plan))
    }

    fn finish_bring_up(&mut self, mut machine: BringUp) -> Result<EnabledController, TransportError> {
        for ms in 0..100 {
            if let Some(ready) = machine.poll(Nanos::from_millis(ms), self)? {
                return Ok(ready);
            }
            self.run();
        }
        panic!("the bring-up does not end");
    }
}

impl Port for Drive {
    fn register(&mut self, offset: u32, size: u8) -> u64 {
        self.machine.register(self.controller, offset, size)
    }
    fn set_register(&mut self, offset: u32, value: u64, size: u8) {
        self.registers_written += 1;
        self.apply(Event::Register { controller: self.controller, offset, value, size });
    }
    fn doorbell(&mut self, doorbell: Doorbell, value: u32) {
        self.doorbells += 1;
        let controller = self.controller;
        self.apply(match doorbell {
            Doorbell::SqTail(qid) => Event::SqTail { controller, qid, tail: value },
            Doorbell::CqHead(qid) => Event::CqHead { controller, qid, head: value },
        });
    }
    fn shadow_doorbell(&mut self, address: u64, value: u32) -> u32 {
        self.write(address, &value.to_le_bytes());
        let mut event = [0; 4];
        self.read(address + PAGE, &mut event);
        u32::from_le_bytes(event)
    }
    fn read(&mut self, address: u64, into: &mut [u8]) {
        into.copy_from_slice(self.ram.at(address, into.len()));
    }
    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.ram.at(address, bytes.len()).copy_from_slice(bytes);
    }
    fn put(&mut self, address: u64, entry: &[u64; 8]) {
        self.write(address, Sqe::from_words(*entry).as_bytes());
    }
    fn take(&mut self, address: u64, phase: bool) -> Option<Cqe> {
        let cqe = Cqe::read_from_bytes(self.ram.at(address, 16)).unwrap();
        (cqe.phase() == phase).then_some(cqe)
    }
}

fn plan(depths: &[u32], buffer: u32) -> ControllerPlan {
    let queues = depths.iter().map(|depth| QueuePlan { depth: *depth, priority: Class::Low }).collect();
    ControllerPlan { queues, ..ControllerPlan::new(BASE, 1, buffer) }
}

#[test]
fn the_real_controller_comes_up() {
    for (ams, arbitration, quanta) in [
        (ams::RR, None, None),
        (ams::WRR, Some(Arbitration(0).with_ab(7).with_hpw(3).with_mpw(1)), None),
        (ams::VENDOR, None, Some([1 << 16, 1 << 15, 1 << 14])),
    ] {
        let plan = ControllerPlan { ams, arbitration, quanta, ..plan(&[8, 31], 16384) };
        let mut drive = Drive::new(plan.memory());
        let ready = drive.bring_up(plan.clone()).unwrap();
        assert_eq!(ready.identity.subnqn, "nqn.2026-11.io.weir:test:ssd0");
        assert_eq!((ready.identity.blocks, ready.identity.block_shift), (SIZE / BLOCK, 9));
        assert_eq!(ready.identity.uuid, [1; 16]);
        // Zeroes are no transfer: MDTS is no limit to them, nor is a slot's buffer.
        assert!(ready.queues.iter().all(|q| (q.max_io(), q.max_zeroes()) == (16384, 512 << 16)));
        assert_eq!(ready.queues.iter().map(|q| (q.depth(), q.capacity())).collect::<Vec<_>>(), [(8, SIZE), (31, SIZE)]);
        assert_eq!(register::Cc(drive.register(register::CC, 4) as u32).ams(), ams);
        // A controller that is up comes up again: a driver may find it as another one left it.
        drive.ram.0.fill(0);
        assert!(drive.bring_up(plan).is_ok());
    }
}

/// The way to a drive of a process that dies after so many operations: none of the later ones has an effect.
struct Mortal<'a> {
    drive: &'a mut Drive,
    left: u32,
}

impl Mortal<'_> {
    fn lives(&mut self) -> bool {
        let lives = self.left > 0;
        self.left = self.left.saturating_sub(1);
        lives
    }
}

impl Port for Mortal<'_> {
    fn register(&mut self, offset: u32, size: u8) -> u64 {
        self.drive.register(offset, size)
    }
    fn set_register(&mut self, offset: u32, value: u64, size: u8) {
        if self.lives() {
            self.drive.set_register(offset, value, size);
        }
    }
    fn doorbell(&mut self, doorbell: Doorbell, value: u32) {
        if self.lives() {
            self.drive.doorbell(doorbell, value);
        }
    }
    fn shadow_doorbell(&mut self, address: u64, value: u32) -> u32 {
        // A death between the two leaves the doorbell told and not rung.
        if self.lives() { self.drive.shadow_doorbell(address, value) } else { value }
    }
    fn read(&mut self, address: u64, into: &mut [u8]) {
        self.drive.read(address, into);
    }
    fn write(&mut self, address: u64, bytes: &[u8]) {
        if self.lives() {
            self.drive.write(address, bytes);
        }
    }
    fn put(&mut self, address: u64, entry: &[u64; 8]) {
        if self.lives() {
            self.drive.put(address, entry);
        }
    }
    fn take(&mut self, address: u64, phase: bool) -> Option<Cqe> {
        if self.left > 0 { self.drive.take(address, phase) } else { None }
    }
}

/// Whether it died before the controller was up; the drive runs between the steps.
fn dies_after(drive: &mut Drive, mut machine: BringUp, operations: u32) -> bool {
    let mut port = Mortal { drive, left: operations };
    for ms in 0..200 {
        match machine.poll(Nanos::from_millis(ms), &mut port) {
            Ok(Some(_)) => return port.left == 0,
            Ok(None) | Err(_) if port.left == 0 => break,
            Ok(None) => port.drive.run(),
            Err(e) => panic!("{e}"),
        }
    }
    // What was rung for is carried out, whoever lives.
    drive.run();
    true
}

fn writes_and_reads(drive: &mut Drive, queue: &mut IoQueue, value: u8) {
    let mut done = Vec::new();
    let at = queue.buffer(0);
    drive.ram.at(at, 4096).fill(value);
    queue.submit(drive, Io { kind: IoKind::Write, offset: 8192, len: 4096, slot: 0 }).unwrap();
    finish(drive, queue, &mut done);
    assert_eq!(done, [Done { slot: 0, status: Status::SUCCESS }]);
    drive.ram.at(at, 4096).fill(0);
    queue.submit(drive, Io { kind: IoKind::Read, offset: 8192, len: 4096, slot: 0 }).unwrap();
    finish(drive, queue, &mut done);
    assert!(done[0].status.is_success() && drive.ram.at(at, 4096).iter().all(|b| *b == value));
}

/// What a process has left in flight is carried out or aborted before the next one is up, and nothing of it afterwards; no register is
/// written.
#[test]
fn the_next_process_takes_a_controller_over_without_a_reset() {
    for (submitted, shadow_doorbells) in (0..=8u32).flat_map(|n| [(n, false), (n, true)]) {
        let plan = ControllerPlan { shadow_doorbells, ..plan(&[8, 3], 4096) };
        let mut drive = Drive::new(plan.memory());
        let mut queue = drive.bring_up(plan.clone()).unwrap().queues.remove(0);
        for slot in 0..submitted {
            let at = queue.buffer(slot);
            drive.ram.at(at, 4096).fill(0xaa);
            queue
                .submit(&mut drive, Io { kind: IoKind::Write, offset: u64::from(slot) * 4096, len: 4096, slot })
                .unwrap();
        }
        queue.flush(&mut drive);
        let before = drive.registers_written;
        let ready = drive.finish_bring_up(BringUp::taking_over(plan.clone())).unwrap();
        assert!(ready.was_up);
        assert_eq!(drive.registers_written, before, "CC and the others stay as they are");
        let mut queues = ready.queues;
        // Later the buffers are the new process's: what the old one was to write must not come from them.
        let media = drive.media.clone();
        for slot in 0..8 {
            let at = queues[0].buffer(slot);
            drive.ram.at(at, 4096).fill(0xbb);
        }
        drive.run();
        assert_eq!(media, drive.media);
        for (i, queue) in queues.iter_mut().enumerate() {
            for value in 1..20 {
                writes_and_reads(&mut drive, queue, value + 32 * i as u8);
            }
        }
        // Another class is another command of the admin queue that goes on.
        let mut admin = ready.admin;
        let mut remake = Remake::new(Class::High);
        while !remake.poll(Nanos(0), &mut admin, &mut queues[1], &mut drive).unwrap() {
            drive.run();
        }
        writes_and_reads(&mut drive, &mut queues[1], 77);
        let ready = drive.finish_bring_up(BringUp::taking_over(plan)).unwrap();
        assert!(ready.was_up && drive.registers_written == before);
    }
}

#[test]
fn a_process_may_die_at_each_step_of_taking_over() {
    for shadow_doorbells in [false, true] {
        dies_at_each_step(&ControllerPlan { shadow_doorbells, ..plan(&[4, 3], 4096) });
    }
}

fn dies_at_each_step(plan: &ControllerPlan) {
    let (mut operations, mut died) = (0, true);
    while died {
        let mut drive = Drive::new(plan.memory());
        let mut queue = drive.bring_up(plan.clone()).unwrap().queues.remove(0);
        queue.submit(&mut drive, Io { kind: IoKind::Flush, offset: 0, len: 0, slot: 0 }).unwrap();
        queue.flush(&mut drive);
        let before = drive.registers_written;
        died = dies_after(&mut drive, BringUp::taking_over(plan.clone()), operations);
        // The next one dies as well, somewhere else.
        if operations % 3 == 0 {
            let _ = dies_after(&mut drive, BringUp::taking_over(plan.clone()), operations / 2 + 1);
        }
        let ready = drive.finish_bring_up(BringUp::taking_over(plan.clone())).unwrap();
        assert!(ready.was_up, "after {operations} operations");
        assert_eq!(drive.registers_written, before, "after {operations} operations");
        ready.queues.into_iter().for_each(|mut queue| writes_and_reads(&mut drive, &mut queue, 5));
        operations += 1;
    }
    assert!(operations > 40, "{operations}");
}

/// A controller that was not up, or not as it is wanted, is reset: at each step of the first bring-up, and each thing that can be another.
#[test]
fn what_was_not_left_up_is_brought_up_anew() {
    let plan = plan(&[4], 4096);
    let (mut operations, mut died) = (0, true);
    while died {
        let mut drive = Drive::new(plan.memory());
        died = dies_after(&mut drive, BringUp::new(plan.clone()), operations);
        let was_up = drive.record_is_whole(&plan);
        let ready = drive.finish_bring_up(BringUp::taking_over(plan.clone())).unwrap();
        assert_eq!((ready.was_up, died || was_up), (was_up, true), "after {operations} operations");
        ready.queues.into_iter().for_each(|mut queue| writes_and_reads(&mut drive, &mut queue, 6));
        operations += 1;
    }
    type Change = fn(&mut Drive, &mut ControllerPlan);
    let changes: [(&str, Change); 6] = [
        ("another depth", |_, plan| plan.queues[0].depth = 3),
        ("another number of queues", |_, plan| plan.queues.push(plan.queues[0])),
        ("memory that was lost", |drive, _| drive.ram.0.fill(0)),
        ("a torn count", |drive, plan| drive.ram.at(plan.record() + 40, 1)[0] ^= 1),
        ("a controller that was reset", |drive, _| {
            let cc = drive.register(register::CC, 4);
            drive.set_register(register::CC, cc & !1, 4);
        }),
        ("one that was shut down", |drive, _| {
            let cc = register::Cc(drive.register(register::CC, 4) as u32);
            drive.set_register(register::CC, u64::from(cc.with_shn(1).0), 4);
            drive.run();
        }),
    ];
    for (what, change) in changes {
        let mut plan = plan.clone();
        let mut drive = Drive::new(2 * plan.memory());
        drive.bring_up(plan.clone()).unwrap();
        change(&mut drive, &mut plan);
        let ready = drive.finish_bring_up(BringUp::taking_over(plan)).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(!ready.was_up, "{what}");
        ready.queues.into_iter().for_each(|mut queue| writes_and_reads(&mut drive, &mut queue, 7));
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |plan: ControllerPlan| {
        let mut drive = Drive::new(plan.memory());
        match drive.bring_up(plan) {
            Err(TransportError::Refused(text) | TransportError::NoNamespace(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(plan(&[64], 4096)).contains("depth of 64 is above its largest, 63"));
    assert!(refused(plan(&[1; 5], 4096)).contains("grants 4 I/O queues, not 5"));
    let text = refused(ControllerPlan { nsid: 2, ..plan(&[1], 4096) });
    assert!(text.contains("namespace 2") || text.contains("Identify Namespace"), "{text}");
    let text = refused(ControllerPlan { quanta: Some([0, 1, 1]), ams: ams::VENDOR, ..plan(&[1], 4096) });
    assert!(text.contains("Deficit Round Robin Quanta: Invalid Field"), "{text}");
}

#[test]
fn requests_move_bytes_and_batch_doorbells() {
    let plan = plan(&[8], 16384);
    let mut drive = Drive::new(plan.memory());
    let mut queue = drive.bring_up(plan).unwrap().queues.remove(0);
    let mut done = Vec::new();
    // More rounds than entries: both rings wrap and the phase flips.
    for round in 0..40u8 {
        for slot in 0..8u32 {
            let at = queue.buffer(slot);
            drive.ram.at(at, 16384).fill(round + slot as u8);
            let io = Io { kind: IoKind::Write, offset: u64::from(slot) * 16384, len: 16384, slot };
            queue.submit(&mut drive, io).unwrap();
        }
        let before = drive.doorbells;
        finish(&mut drive, &mut queue, &mut done);
        assert_eq!(done.len(), 8);
        assert!(done.iter().all(|d| d.status.is_success()));
        assert_eq!(drive.doorbells - before, 2, "one for the tail, one for the head");
        for slot in 0..8u32 {
            let io = Io { kind: IoKind::Read, offset: u64::from(7 - slot) * 16384, len: 16384, slot };
            queue.submit(&mut drive, io).unwrap();
        }
        finish(&mut drive, &mut queue, &mut done);
        for slot in 0..8u32 {
            let at = queue.buffer(slot);
            assert!(drive.ram.at(at, 16384).iter().all(|b| *b == round + 7 - slot as u8));
        }
    }
    let kinds = [(IoKind::Trim, 4096), (IoKind::WriteZeroes, 4096), (IoKind::WriteZeroes, 1 << 19), (IoKind::Flush, 0)];
    for (kind, len) in kinds {
        drive.media.fill(7);
        queue.submit(&mut drive, Io { kind, offset: 0, len, slot: 3 }).unwrap();
        finish(&mut drive, &mut queue, &mut done);
        assert_eq!(done, [Done { slot: 3, status: Status::SUCCESS }], "{kind:?}");
        assert!(drive.media[..len as usize].iter().all(|b| *b == 0));
        assert!(drive.media[len as usize..].iter().all(|b| *b == 7));
    }
}

fn finish(drive: &mut Drive, queue: &mut IoQueue, done: &mut Vec<Done>) {
    done.clear();
    queue.flush(drive);
    drive.run();
    queue.reap(drive, done).unwrap();
}

/// A controller whose door polls is rung once for many commands; one whose door sleeps for the first of each batch.
#[test]
fn shadow_doorbells_save_doorbells() {
    for (polls, least, most) in [(true, 0, 12), (false, 40, 80)] {
        let plan = ControllerPlan { shadow_doorbells: true, ..plan(&[31], 4096) };
        let mut drive = Drive::new(plan.memory());
        let ready = drive.bring_up(plan).unwrap();
        assert!(ready.identity.shadow_doorbells);
        let (mut queue, before) = (ready.queues.into_iter().next().unwrap(), drive.doorbells);
        let mut done = Vec::new();
        for _ in 0..40 {
            for slot in 0..4 {
                queue.submit(&mut drive, Io { kind: IoKind::Flush, offset: 0, len: 0, slot }).unwrap();
            }
            queue.flush(&mut drive);
            if polls {
                drive.turn()
            } else {
                drive.run()
            }
            done.clear();
            queue.reap(&mut drive, &mut done).unwrap();
            assert_eq!(done.len(), 4);
        }
        let rung = drive.doorbells - before;
        assert!((least..=most).contains(&rung), "{rung} doorbells, polls {polls}");
    }
}

#[test]
fn a_slot_in_flight_is_refused_and_errors_come_back() {
    let plan = plan(&[2], 4096);
    let mut drive = Drive::new(plan.memory());
    let mut queue = drive.bring_up(plan).unwrap().queues.remove(0);
    let io = Io { kind: IoKind::Read, offset: 0, len: 4096, slot: 1 };
    queue.submit(&mut drive, io).unwrap();
    assert!(matches!(queue.submit(&mut drive, io), Err(TransportError::Usage(_))));
    assert!(matches!(queue.submit(&mut drive, Io { slot: 2, ..io }), Err(TransportError::Usage(_))));
    queue.submit(&mut drive, Io { offset: SIZE, slot: 0, ..io }).unwrap();
    let mut done = Vec::new();
    finish(&mut drive, &mut queue, &mut done);
    let status = |slot| done.iter().find(|d| d.slot == slot).unwrap().status;
    assert!(status(1).is_success());
    assert!(status(0).same_code(Status::LBA_OUT_OF_RANGE));
}

#[test]
fn a_plan_lays_out_pages_apart() {
    for (depths, buffer) in [(&[1u32, 64, 7][..], 4096), (&[128][..], 65536), (&[3, 5][..], 8192)] {
        let plan = plan(depths, buffer);
        let mut end = BASE + 3 * PAGE;
        for (i, depth) in depths.iter().enumerate() {
            let q = plan.queue(i);
            assert_eq!(q.sq, end);
            assert!(q.cq >= q.sq + u64::from(depth + 1) * 64);
            assert!(q.ranges >= q.cq + u64::from(depth + 1) * 16);
            assert!(q.lists >= q.ranges + u64::from(*depth) * 16);
            let lists = if buffer > 8192 { u64::from(*depth) * PAGE } else { 0 };
            assert_eq!((q.buffers, q.end), (q.lists + lists, q.buffers + u64::from(depth * buffer)));
            for address in [q.sq, q.cq, q.ranges, q.lists, q.buffers] {
                assert_eq!(address % PAGE, 0);
            }
            end = q.end;
        }
        assert_eq!(plan.memory(), end - BASE);
    }
}

/// Registers and memory of a controller that does as the test says.
#[derive(Default)]
struct Puppet {
    registers: BTreeMap<u32, u64>,
    memory: BTreeMap<u64, Vec<u8>>,
    answer: Option<Cqe>,
}

impl Port for Puppet {
    fn register(&mut self, offset: u32, _: u8) -> u64 {
        self.registers.get(&offset).copied().unwrap_or(0)
    }
    fn set_register(&mut self, offset: u32, value: u64, _: u8) {
        self.registers.insert(offset, value);
    }
    fn doorbell(&mut self, _: Doorbell, _: u32) {}
    fn read(&mut self, _: u64, into: &mut [u8]) {
        into.fill(0);
    }
    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.memory.insert(address, bytes.to_vec());
    }
    fn put(&mut self, address: u64, entry: &[u64; 8]) {
        self.write(address, Sqe::from_words(*entry).as_bytes());
    }
    fn take(&mut self, _: u64, _: bool) -> Option<Cqe> {
        self.answer.take()
    }
}

fn capable() -> Cap {
    Cap(0).with_mqes(63).with_to(2).with_css(1)
}

#[test]
fn a_controller_that_does_not_answer_is_given_up() {
    let mut puppet = Puppet::default();
    puppet.registers.insert(register::CAP, capable().0);
    let mut up = BringUp::new(plan(&[1], 4096));
    assert!(matches!(up.poll(Nanos(0), &mut puppet), Ok(None)), "waits for CSTS.RDY");
    assert!(matches!(up.poll(Nanos::from_secs(1), &mut puppet), Ok(None)));
    match up.poll(Nanos::from_millis(1001), &mut puppet) {
        Err(TransportError::Timeout(text)) => assert_eq!(text, "the controller did not become ready within 1s"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_way_a_link_or_a_controller_can_fail() {
    let poll = |cap: u64, csts: u32| {
        let mut puppet = Puppet::default();
        puppet.registers.insert(register::CAP, cap);
        let mut up = BringUp::new(ControllerPlan { ams: ams::WRR, ..plan(&[1], 4096) });
        let mut step = |puppet: &mut Puppet| up.poll(Nanos(0), puppet).map(|_| ()).map_err(|e| e.to_string());
        step(&mut puppet)?;
        puppet.registers.insert(register::CSTS, u64::from(csts));
        step(&mut puppet)
    };
    let good = capable().with_ams(register::ams_supported::WRR);
    assert!(poll(u64::MAX, 0).unwrap_err().contains("do not answer"));
    assert!(poll(0, 0).unwrap_err().contains("do not answer"));
    assert!(poll(good.with_css(0x80).0, 0).unwrap_err().contains("no NVM command set"));
    assert!(poll(good.with_mpsmin(1).0, 0).unwrap_err().contains("smallest memory page"));
    assert!(poll(good.with_dstrd(1).0, 0).unwrap_err().contains("doorbells"));
    assert!(poll(capable().0, 0).unwrap_err().contains("arbitration mechanism 1"));
    assert!(poll(good.0, u32::MAX).unwrap_err().contains("link is gone"));
    assert!(poll(good.0, Csts(0).with_cfs(1).0).unwrap_err().contains("fatal status"));
    assert_eq!(poll(good.0, Csts(0).with_rdy(1).0), Ok(()));
}

#[test]
fn completions_that_nobody_asked_for_are_refused() {
    let mut rings = QueuePairRings::new(1, 4, BASE, BASE + PAGE);
    let mut puppet = Puppet::default();
    let cqe = |qid: u16, head: u16| Cqe { sqid: qid.into(), sqhd: head.into(), ..Cqe::default() };
    puppet.answer = Some(cqe(1, 0));
    assert!(rings.pop(&mut puppet).is_err(), "none in flight");
    for _ in 0..3 {
        assert!(rings.push(&mut puppet, &[0; 8]));
    }
    assert!(!rings.push(&mut puppet, &[0; 8]), "full with one entry free");
    for wrong in [cqe(2, 0), cqe(1, 4)] {
        puppet.answer = Some(wrong);
        assert!(rings.pop(&mut puppet).is_err());
    }
    puppet.answer = Some(cqe(1, 3));
    assert!(rings.pop(&mut puppet).unwrap().is_some());
    assert_eq!((rings.pop(&mut puppet), rings.in_flight()), (Ok(None), 2));
}

#[test]
fn prp_lists_name_the_pages_of_their_buffers() {
    let plan = plan(&[2], 16384);
    let identity =
        ControllerIdentity { blocks: 1 << 20, block_shift: 9, max_transfer: u32::MAX, ..ControllerIdentity::default() };
    let mut puppet = Puppet::default();
    let mut queue = IoQueue::new(&plan, 0, &identity, &mut puppet);
    let at = plan.queue(0);
    for slot in 0..2u64 {
        for page in 1..4u64 {
            let entry = puppet.memory[&(at.lists + slot * PAGE + (page - 1) * 8)].clone();
            assert_eq!(u64::from_le_bytes(entry.try_into().unwrap()), at.buffers + slot * 16384 + page * PAGE);
        }
    }
    for (tail, (len, prp2)) in
        [(512, 0), (4096, 0), (8192, at.buffers + PAGE), (16384, at.lists)].into_iter().enumerate().take(2)
    {
        let slot = tail as u32;
        queue.submit(&mut puppet, Io { kind: IoKind::Read, offset: 0, len, slot }).unwrap();
        let sqe = Sqe::read_from_bytes(&puppet.memory[&(at.sq + tail as u64 * 64)]).unwrap();
        assert_eq!((sqe.psdt(), sqe.dptr[0].get()), (0, queue.buffer(slot)));
        assert_eq!(sqe.dptr[1].get(), prp2);
    }
    let mut queue = IoQueue::new(&plan, 0, &identity, &mut puppet);
    for (tail, (len, page)) in [(8192, at.buffers + PAGE), (16384, at.lists + PAGE)].into_iter().enumerate() {
        queue.submit(&mut puppet, Io { kind: IoKind::Write, offset: 0, len, slot: tail as u32 }).unwrap();
        let sqe = Sqe::read_from_bytes(&puppet.memory[&(at.sq + tail as u64 * 64)]).unwrap();
        assert_eq!(sqe.dptr[1].get(), page);
    }
}
