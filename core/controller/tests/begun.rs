//! Commands that a drive has begun go to another process, and are complete when they were due.

mod common;

use common::{CC_EN, config};
use weir_controller::testing::{Fabric, TestRing, TestWorld, io};
use weir_controller::{
    Attach, Begun, BlockRequest, ControllerHandle, Event, Op, Owner, SavedError, SlotId, SqHandle, Subsystem,
    SubsystemConfig, Tag, TransportModel, WithDrive,
};
use weir_spec::crc32c::crc32c;
use weir_spec::nvme::Sqe;
use weir_units::Nanos;

const WRITE: u8 = 1;
const READ: u8 = 2;
const WRITE_UNCORRECTABLE: u8 = 4;
const LATENCY: Nanos = Nanos::from_secs(2);

fn timed(c: &mut SubsystemConfig) {
    (c.latency, c.slots, c.slot_bytes) = (LATENCY, 4, 16 << 10);
}

fn drive() -> (TestWorld, Fabric) {
    let mut world = common::drive(timed);
    let mut host = Fabric::connect(&mut world, "nqn.gold", 100, 0).unwrap();
    host.set_cc(&mut world, CC_EN);
    host.add_queue(&mut world, 16, 0).unwrap();
    (world, host)
}

/// What the drive has of the queue goes to another one, with what is begun of it as bytes; its door brings all of it again.
fn move_on(world: &mut TestWorld, host: &mut Fabric, sent: &[(u32, Sqe)], early: bool) -> WithDrive {
    world.drive.set_fabrics_go_on();
    assert!(world.drive.may_leave());
    let with = world.drive.with_drive(host.queues[1]).unwrap();
    let begun = Begun::from_bytes(&Begun::to_bytes(&with.begun)).unwrap();
    assert_eq!(begun, with.begun);
    let bytes = world.drive.associations(world.now);
    let ids: Vec<(u16, u16)> = host.queues.iter().map(|q| world.drive.queue_id(*q).unwrap()).collect();
    let mut drive = Subsystem::new(config(timed), world.now).unwrap();
    drive.set_early(early);
    drive.resume_associations(world.now, &bytes).unwrap();
    for (cntlid, qid) in ids {
        host.queues[usize::from(qid)] = drive.claim(cntlid, qid, Owner(host.base + u32::from(qid))).unwrap();
    }
    drive.resume_begun_of(host.queues[1], begun);
    world.drive = drive;
    let again = with.begun.iter().map(|begun| begun.tag).chain(with.waiting.iter().copied());
    for Tag(tag) in again.collect::<Vec<_>>() {
        let (_, sqe) = sent.iter().find(|(t, _)| *t == tag).unwrap();
        world.capsule(Owner(host.base + 1), host.queues[1], tag, *sqe);
    }
    with
}

#[test]
fn what_is_begun_is_complete_when_it_was_due_and_once() {
    goes_on(false);
}

/// A medium that takes a time of its own gets a command 20 ms before it is due, and no sooner: until then it goes on elsewhere.
#[test]
fn what_a_file_has_not_got_yet_is_complete_when_it_was_due_and_once() {
    goes_on(true);
}

fn goes_on(early: bool) {
    let ahead = if early { 20 } else { 0 };
    let (mut world, mut host) = drive();
    world.drive.set_early(early);
    let mut sent = Vec::new();
    for cid in 0..7u16 {
        let sqe = io(if cid % 2 == 0 { WRITE } else { READ }, cid, u64::from(cid) * 8, 8);
        sent.push((host.send(&mut world, 1, sqe), sqe));
        world.run();
        world.pass(Nanos::from_millis(100));
    }
    assert!(!world.drive.may_leave(), "nobody has said that its host goes on");
    let mut answered = Vec::new();
    let mut head = 0;
    for round in 0..4 {
        if round < 3 {
            let with = move_on(&mut world, &mut host, &sent, early);
            let places = |tags: Vec<Tag>| tags.iter().map(|tag| tag.0 - sent[0].0).collect::<Vec<_>>();
            assert_eq!(places(with.begun.iter().map(|begun| begun.tag).collect()), [0, 1, 2, 3]);
            assert_eq!(places(with.waiting), [4, 5, 6], "slots are what there is");
            assert!(with.begun.iter().zip(0..).all(|(b, i)| b.due == Some(Nanos::from_millis(2_000 + i * 100))));
            world.run();
        }
        assert!(world.issued.is_empty(), "nothing moves before it is due");
        world.pass(Nanos::from_millis(100));
    }
    while answered.len() < sent.len() {
        world.pass(Nanos::from_millis(1));
        while let Some(issued) = world.issued.first() {
            assert!(matches!(issued.op, Op::Read | Op::Write));
            world.done(0, weir_spec::nvme::Status::SUCCESS);
            world.run();
        }
        for (tag, _) in &sent {
            if let Some(cqe) = host.answer(&mut world, 1, *tag) {
                assert!(cqe.status().is_success() && !answered.iter().any(|(t, _)| t == tag));
                assert!(cqe.sqhd.get() >= head, "the head does not go back");
                (head, _) = (cqe.sqhd.get(), answered.push((*tag, world.now)));
            }
        }
        assert!(world.now < Nanos::from_secs(10), "{answered:?}");
    }
    // The Connect is one of them.
    assert_eq!(head, 8, "the head has moved past each command once");
    for (tag, at) in answered {
        // Those that had waited for a slot begin when one is free.
        let place = u64::from(tag - sent[0].0);
        let due = if place < 4 { 2_000 + place * 100 - ahead } else { 4_000 + (place - 4) * 100 - 2 * ahead };
        let due = Nanos::from_millis(due);
        assert!(at >= due && at <= due.saturating_add(Nanos::from_millis(2)), "{tag} at {at:?}, due {due:?}");
    }
    world.drive.check();
}

#[test]
fn what_has_left_its_queue_and_has_no_slot_begins_when_it_gets_one() {
    let (mut world, mut host) = drive();
    let mut sent = Vec::new();
    // The second one does not fit beside the first one, and the third one is behind it.
    for (cid, blocks) in [(0, 24), (1, 24), (2, 8)] {
        let sqe = io(READ, cid, 0, blocks);
        sent.push((host.send(&mut world, 1, sqe), sqe));
    }
    world.run();
    world.pass(Nanos::from_millis(500));
    let with = move_on(&mut world, &mut host, &sent, false);
    let due: Vec<Option<Nanos>> = with.begun.iter().map(|begun| begun.due).collect();
    assert_eq!((due, with.waiting.len()), (vec![Some(LATENCY), None], 1));
    world.run();
    for (place, at) in [(0, 2_000), (1, 4_000), (2, 4_000)] {
        world.pass(Nanos::from_millis(at - 1).saturating_sub(world.now));
        assert!(world.issued.is_empty() || place == 2);
        world.pass(Nanos::from_millis(at).saturating_sub(world.now));
        world.settle();
        assert!(host.answer(&mut world, 1, sent[place].0).is_some_and(|cqe| cqe.status().is_success()), "{place}");
    }
    world.drive.check();
}

#[test]
fn what_has_moved_or_has_no_time_is_waited_for() {
    let (mut world, mut host) = drive();
    world.drive.set_fabrics_go_on();
    host.send(&mut world, 1, io(READ, 1, 0, 8));
    world.run();
    assert!(world.drive.may_leave());
    world.pass(LATENCY);
    world.run();
    assert_eq!(world.issued.len(), 1);
    assert!(!world.drive.may_leave() && world.drive.with_drive(host.queues[1]).is_none());
    world.settle();
    assert!(world.drive.may_leave());
    // It has no I/O that would be emitted.
    host.send(&mut world, 1, io(WRITE_UNCORRECTABLE, 2, 64, 8));
    world.run();
    assert!(!world.drive.may_leave());
    world.pass(LATENCY);
    world.settle();
    assert!(world.drive.may_leave());
}

#[test]
fn a_ring_that_nobody_has_said_of_is_waited_for() {
    let mut world = common::drive(timed);
    let mut ring = TestRing::ready(&mut world, 0, Owner(7), 0);
    ring.add_queue(&mut world, 1, 8, 0);
    ring.submit(&mut world, 1, io(READ, 3, 0, 1)).unwrap();
    ring.ring(&mut world, 1);
    world.run();
    assert!(!world.drive.may_leave());
    world.drive.set_goes_on(ring.controller, true);
    assert!(world.drive.may_leave());
    let begun = world.drive.begun(ring.controller);
    assert_eq!(begun.len(), 1);
    assert_eq!((begun[0].qid, begun[0].due), (1, Some(world.now.saturating_add(LATENCY))));
}

/// A queue that requests come in by, of a drive with that configuration.
fn requests(configure: impl FnOnce(&mut SubsystemConfig)) -> (TestWorld, ControllerHandle, SqHandle) {
    let mut world = common::drive(configure);
    let owner = Owner(9);
    let attach = Attach { tenant: 0, owner, model: TransportModel::Front, host: "volume".into() };
    let controller = world.drive.attach(world.now, attach).unwrap();
    let queue = world.drive.add_message_queue(controller, 8, None, owner).unwrap();
    world.host.pending.extend((0..8).map(|tag| ((owner.0, tag), tag as u16)));
    (world, controller, queue)
}

fn request(op: Op) -> BlockRequest {
    BlockRequest { op, nsid: 1, offset: 0, len: 4096, fua: false }
}

#[test]
fn an_untimed_request_is_complete_at_once_and_a_charged_one_when_it_is_due() {
    let (mut world, _, queue) = requests(timed);
    world.pass(Nanos::from_millis(1));
    let (begin, at) = (world.now, Nanos::from_millis(701));
    for (tag, due) in [(0, None), (1, Some(at))] {
        world.event(Event::SubmitUntimed { queue, request: request(Op::Write), tag: Tag(tag), due });
    }
    world.event(Event::Submit { queue, request: request(Op::Write), tag: Tag(2) });
    world.run();
    world.run();
    assert_eq!(world.issued.len(), 1, "it takes no time");
    world.done(0, weir_spec::nvme::Status::SUCCESS);
    world.pass(Nanos::from_millis(699));
    assert!(world.issued.is_empty());
    world.pass(Nanos::from_millis(1));
    assert_eq!((world.now, world.issued.len()), (at, 1));
    world.done(0, weir_spec::nvme::Status::SUCCESS);
    world.pass(begin.saturating_add(LATENCY).saturating_sub(at).saturating_sub(Nanos(1)));
    assert!(world.issued.is_empty(), "the others are the drive's to time");
    world.pass(Nanos(1));
    assert_eq!(world.issued.len(), 1);
    world.settle();
    assert_eq!(world.drive.latencies()[0].writes.commands(), 2, "what is not timed has no latency");
    world.drive.check();
}

#[test]
fn io_that_has_moved_nothing_elsewhere_is_taken_back() {
    let (mut world, controller, queue) = requests(|c| c.slots = 4);
    for tag in 0..5 {
        world.event(Event::Submit { queue, request: request(Op::Read), tag: Tag(tag) });
    }
    world.run();
    let slots: Vec<SlotId> = world.issued.iter().map(|io| io.slot).collect();
    assert_eq!(slots.len(), 4);
    assert!(!world.drive.may_leave_with(|_| true), "nobody has said that its host goes on");
    world.drive.set_goes_on(controller, true);
    assert!(!world.drive.may_leave() && !world.drive.may_leave_with(|slot| slot == slots[0]));
    assert!(world.drive.may_leave_with(|slot| slots.contains(&slot)));
    world.done(3, weir_spec::nvme::Status::SUCCESS);
    let due = Some(Nanos::from_secs(5));
    for (slot, due) in [(slots[0], None), (slots[1], due), (slots[2], due), (slots[3], due)] {
        world.drive.take_back(slot, due);
    }
    assert!(world.drive.may_leave(), "the last one was over, and is not taken back");
    let found = world.drive.unmoved(queue).into_iter().map(|begun| (begun.tag.0, begun.due)).collect::<Vec<_>>();
    assert_eq!(found, [(1, due), (2, due), (0, None), (4, None)], "those due first, and those that wait last");
    world.drive.check();
}

#[test]
fn what_goes_on_in_steps_is_not_taken_back() {
    let (mut world, controller, queue) = requests(|_| {});
    world.drive.set_goes_on(controller, true);
    let mut host = Fabric::connect(&mut world, "nqn.gold", 100, 0).unwrap();
    host.set_cc(&mut world, CC_EN);
    host.add_queue(&mut world, 16, 0).unwrap();
    world.drive.set_fabrics_go_on();
    world.event(Event::Submit { queue, request: request(Op::Read), tag: Tag(0) });
    for (cid, opcode, flags) in [(1, 5, 1), (2, WRITE, 2)] {
        let mut sqe = io(opcode, cid, 64, 8);
        sqe.flags |= flags;
        host.send(&mut world, 1, sqe);
    }
    world.run();
    let compare =
        world.issued.iter().find(|io| io.op == Op::Compare).unwrap_or_else(|| panic!("{:?}", world.issued)).slot;
    world.drive.take_back(compare, None);
    assert!(!world.drive.may_leave_with(|_| true), "half of a fused pair");
}

/// Golden bytes of version 1 (`docs/reference/formats.md`).
#[test]
fn golden_bytes_of_version_1() {
    let list = [
        Begun { qid: 1, tag: Tag(0x0102_0304), due: Some(Nanos(0x1122_3344_5566_7788)) },
        Begun { qid: 0x0203, tag: Tag(5), due: None },
    ];
    let mut golden = b"WEIRBGUN\x01\0\0\0\x30\0\0\0".to_vec();
    golden.extend_from_slice(b"\x01\0\x04\x03\x02\x01\x88\x77\x66\x55\x44\x33\x22\x11");
    golden.extend_from_slice(b"\x03\x02\x05\0\0\0\0\0\0\0\0\0\0\0");
    let bytes = Begun::to_bytes(&list);
    let (body, crc) = bytes.split_last_chunk::<4>().unwrap();
    assert_eq!((body, weir_controller::BEGUN_VERSION), (&golden[..], 1));
    assert_eq!(u32::from_le_bytes(*crc), crc32c(&golden));
    assert_eq!(Begun::from_bytes(&bytes).unwrap(), list);
    let version = |found| SavedError::Version { found, oldest: 1, newest: 1 };
    for at in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[at] ^= 1;
        let error = Begun::from_bytes(&wrong).unwrap_err();
        let expected = match at {
            0..8 => SavedError::Foreign("a list of commands"),
            8 => version(0),
            9 => version(0x0101),
            10 => version(0x1_0001),
            11 => version(0x0100_0001),
            _ => SavedError::Damaged,
        };
        assert_eq!(error, expected, "byte {at}");
        assert!(Begun::from_bytes(&bytes[..at]).is_err());
    }
}
