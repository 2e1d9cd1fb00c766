//! Ring controllers that go to another process: what their hosts can find out stays as it was, and nothing that they have put on a ring is
//! lost or done twice.

mod common;

use common::sparse::Machine;
use common::{config, csts, drive, get_feature, set_feature};
use proptest::prelude::*;
use weir_controller::testing::{TestRing, TestWorld, admin, io};
use weir_controller::{Attach, Event, FUNCTION_VERSION, ManagementError, Owner, SavedError, Subsystem, TransportModel};
use weir_spec::nvme::feature::{Arbitration, fid, select};
use weir_spec::nvme::register::{self, ams};
use weir_spec::nvme::{AdminOpcode, Status};
use weir_units::{Ceiling, Nanos, Rates};

const READ: u8 = 2;
const OWNER: Owner = Owner(5);
/// Bytes before the first controller.
const HEAD: usize = 20;

/// A host with weights of its own, an event request, and two queues of 8 entries, of high and of low priority.
fn host(world: &mut TestWorld) -> (TestRing, u16) {
    let mut ring = TestRing::ready(world, 0, OWNER, ams::WRR);
    let wrr = Arbitration(0).with_ab(3).with_hpw(7).with_mpw(5).with_lpw(1);
    assert!(ring.admin(world, set_feature(fid::ARBITRATION, wrr.0)).status().is_success());
    ring.add_queue(world, 1, 8, 1);
    ring.add_queue(world, 2, 8, 3);
    let event = ring.submit(world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 9, 0, 0)).unwrap();
    world.run();
    (ring, event)
}

/// The drive is another one now, with what the first one saved.
fn move_on(world: &mut TestWorld, rings: &mut [&mut TestRing]) {
    let bytes = world.drive.functions(world.now);
    let before = world.drive.controllers();
    let mut drive = Subsystem::new(config(|_| {}), world.now).unwrap();
    assert_eq!(drive.resume_functions(world.now, &bytes), Ok(0));
    drive.check();
    assert_eq!(drive.functions(world.now), bytes, "bytes, state, the same bytes");
    for ring in rings {
        assert!(world.drive.carries_function(ring.controller));
        ring.controller = drive.claim_function("rings", 0, ring.owner).unwrap();
    }
    assert_eq!(drive.claim_function("rings", 0, OWNER), None, "once");
    drive.drop_unclaimed_functions();
    assert_eq!(drive.controllers(), before);
    drive.check();
    world.drive = drive;
}

#[test]
fn a_host_does_not_notice() {
    let mut world = drive(|_| {});
    let (mut ring, event) = host(&mut world);
    ring.write(&mut world, register::INTMS, 1 << 2);
    let registers = [register::CAP, register::VS, register::INTMS, register::CC, register::CSTS, register::AQA]
        .into_iter()
        .chain([register::ASQ, register::ACQ]);
    let registers: Vec<u32> = registers.collect();
    let read = |ring: &TestRing, world: &TestWorld| registers.iter().map(|r| ring.read(world, *r)).collect::<Vec<_>>();
    let before = read(&ring, &world);
    // Around both rings several times, with a move in the middle of what is consumed and what is not.
    for turn in 0..20 {
        let cid = ring.submit(&mut world, 1, io(READ, 0, turn, 8)).unwrap();
        world.settle();
        move_on(&mut world, &mut [&mut ring]);
        assert_eq!(world.drive.unread(ring.controller), [1]);
        let got = ring.reap(&mut world, 1);
        assert_eq!((got.len(), got[0].cid.get(), got[0].status()), (1, cid, Status::SUCCESS));
        assert_eq!((world.drive.unread(ring.controller), read(&ring, &world)), (vec![], before.clone()));
    }
    let wrr = ring.admin(&mut world, get_feature(fid::ARBITRATION, select::CURRENT)).dw0.get();
    let wrr = Arbitration(wrr);
    assert_eq!((wrr.ab(), wrr.hpw(), wrr.mpw(), wrr.lpw()), (3, 7, 5, 1));
    // The event request still waits, and is the one that can be aborted.
    assert_eq!(ring.pending(0), 1);
    ring.submit(&mut world, 0, admin(AdminOpcode::ABORT, 1, u32::from(event) << 16, 0)).unwrap();
    world.run();
    let aborted = ring.reap(&mut world, 0);
    assert!(aborted.iter().any(|cqe| cqe.cid.get() == event && cqe.status() == Status::ABORT_REQUESTED));
    // Queues can still be made, and the controller reset and enabled.
    ring.add_queue(&mut world, 3, 8, 0);
    ring.write(&mut world, register::CC, 0);
    move_on(&mut world, &mut [&mut ring]);
    assert_eq!(csts(&ring, &world).rdy(), 0);
    ring.enable(&mut world, 16, 16, ams::RR);
    assert_eq!(csts(&ring, &world).rdy(), 1);
}

#[test]
fn what_waits_on_the_rings_is_served_afterwards() {
    let mut world = drive(|_| {});
    let (mut ring, _) = host(&mut world);
    for qid in [1, 2, 1, 2, 1] {
        ring.submit(&mut world, qid, io(READ, 0, 0, 8)).unwrap();
    }
    // One of them is aborted before the drive has looked at it.
    let last = ring.submit(&mut world, 2, io(READ, 0, 0, 8)).unwrap();
    ring.submit(&mut world, 0, admin(AdminOpcode::ABORT, 1, u32::from(last) << 16 | 2, 0)).unwrap();
    for _ in 0..3 {
        move_on(&mut world, &mut [&mut ring]);
    }
    world.settle();
    let mut done = [ring.reap(&mut world, 1), ring.reap(&mut world, 2), ring.reap(&mut world, 0)].concat();
    done.retain(|cqe| cqe.sqid.get() != 0);
    assert_eq!((done.len(), ring.pending(1), ring.pending(2)), (6, 0, 0));
}

#[test]
fn classes_and_weights_of_queues_are_kept() {
    let mut world = drive(|_| {});
    let (mut ring, _) = host(&mut world);
    let classes = |world: &TestWorld| {
        let controllers = world.drive.controllers();
        controllers[0].queues.iter().map(|q| (q.qid, q.class)).collect::<Vec<_>>()
    };
    let before = classes(&world);
    move_on(&mut world, &mut [&mut ring]);
    assert_eq!(classes(&world), before);
    assert_eq!(before.len(), 2);
}

#[test]
fn what_has_begun_is_not_carried() {
    let mut world = drive(|_| {});
    let (mut ring, _) = host(&mut world);
    ring.submit(&mut world, 1, io(READ, 0, 0, 8)).unwrap();
    assert!(world.drive.carries_function(ring.controller));
    world.run();
    assert!(!world.drive.carries_function(ring.controller), "it is at the media");
    let mut next = Subsystem::new(config(|_| {}), world.now).unwrap();
    next.resume_functions(world.now, &world.drive.functions(world.now)).unwrap();
    assert!(next.controllers().is_empty());
    world.settle();
    assert!(world.drive.carries_function(ring.controller));
}

#[test]
fn identifiers_are_kept_and_given_to_nobody_else() {
    let mut world = drive(|_| {});
    let attach = |world: &mut TestWorld, host: &str| {
        let attach = Attach { tenant: 1, owner: Owner(9), model: TransportModel::Rings, host: host.into() };
        world.drive.attach(world.now, attach)
    };
    let first = attach(&mut world, "one").unwrap();
    let (mut ring, _) = host(&mut world);
    attach(&mut world, "three").unwrap();
    world.drive.detach(world.now, first);
    let ids = |world: &TestWorld| world.drive.controllers().iter().map(|c| (c.id, c.host.clone())).collect::<Vec<_>>();
    let bytes = world.drive.functions(world.now);
    let mut next = Subsystem::new(config(|_| {}), world.now).unwrap();
    next.resume_functions(world.now, &bytes).unwrap();
    world.drive = next;
    assert_eq!(ids(&world), [(2, "rings".into()), (3, "three".into())]);
    attach(&mut world, "four").unwrap();
    assert_eq!(ids(&world).len(), 3);
    // Of another tenant it is nobody's any more.
    assert_eq!(world.drive.claim_function("three", 0, OWNER), None);
    assert_eq!(ids(&world).iter().filter(|(_, host)| host == "three").count(), 0);
    ring.controller = world.drive.claim_function("rings", 0, OWNER).unwrap();
    ring.submit(&mut world, 1, io(READ, 0, 0, 8)).unwrap();
    world.settle();
    assert_eq!(ring.reap(&mut world, 1).len(), 1);
    world.drive.check();
    let full = drive(|c| c.max_controllers = 1);
    let mut next = full.drive.clone();
    assert_eq!(next.resume_functions(Nanos(0), &bytes), Ok(2), "there are no such identifiers");
    let attach = Attach { tenant: 0, owner: OWNER, model: TransportModel::Rings, host: "x".into() };
    assert!(next.controllers().is_empty() && !matches!(next.attach(Nanos(0), attach), Err(ManagementError::Full)));
}

/// A guest may say that its queues lie where no memory is: that is its own affair, and others on the drive go on.
#[test]
fn queues_at_the_end_of_all_addresses_are_carried() {
    let mut m = Machine::new(config(|_| {}));
    let (top, size) = (!0xfff, 255 << 16);
    for (opcode, qid, cdw11) in [
        (AdminOpcode::CREATE_IO_CQ, 1, 1),
        (AdminOpcode::CREATE_IO_SQ, 1, 1 << 16 | 1),
        (AdminOpcode::CREATE_IO_CQ, 2, 1),
        (AdminOpcode::CREATE_IO_SQ, 2, 2 << 16 | 1),
    ] {
        assert_eq!(m.command(opcode, [top, 0], size | qid, cdw11).status(), Status::SUCCESS);
    }
    for (first, last) in [(70, 150), (150, 20)] {
        m.tail(1, first);
        m.settle();
        m.head(1, first);
        let bytes = m.drive.functions(m.now);
        let mut drive = Subsystem::new(config(|_| {}), m.now).unwrap();
        drive.resume_functions(m.now, &bytes).unwrap();
        m.controller = drive.claim_function("sparse", 0, Owner(0)).unwrap();
        m.drive = drive;
        m.tail(1, last);
        m.settle();
        m.head(1, last);
        m.drive.check();
    }
}

/// What is wrong with one host's controller is not the others' affair.
#[test]
fn one_that_cannot_be_read_is_dropped_alone() {
    let mut world = drive(|_| {});
    let owners = [Owner(5), Owner(6), Owner(7)];
    for owner in owners {
        let mut ring = TestRing::ready(&mut world, 0, owner, ams::RR);
        ring.add_queue(&mut world, 1, 8, 0);
    }
    let bytes = world.drive.functions(world.now);
    let mut damaged = 0;
    // Any byte of the second one's record.
    let records = HEAD..bytes.len() - 4;
    let len = u32::from_le_bytes(bytes[HEAD..HEAD + 4].try_into().unwrap()) as usize;
    assert_eq!(records.len() % (4 + len), 0, "they are alike");
    for at in HEAD + 4 + len + 4..HEAD + 2 * (4 + len) {
        let mut other = bytes.clone();
        other[at] ^= 0xff;
        mend(&mut other);
        let mut drive = Subsystem::new(config(|_| {}), world.now).unwrap();
        let lost = drive.resume_functions(world.now, &other).unwrap();
        drive.check();
        assert!(lost <= 1, "byte {at}");
        damaged += lost;
        let ids: Vec<u16> = drive.controllers().iter().map(|c| c.id).collect();
        assert!(ids.contains(&1) && ids.contains(&3), "byte {at}: {ids:?}");
    }
    assert!(damaged > 20, "{damaged}");
}

/// A drive that is offered with more queues, or fewer, by now: hosts that go on have what they were shown.
#[test]
fn hosts_have_as_many_queues_as_they_were_shown() {
    for (before, after) in [(3, 64), (3, 1)] {
        let mut world = drive(|c| c.max_io_queues = before);
        let mut ring = TestRing::ready(&mut world, 0, OWNER, ams::RR);
        ring.add_queue(&mut world, before, 8, 0);
        let mut next = Subsystem::new(config(|c| c.max_io_queues = after), world.now).unwrap();
        assert_eq!(next.resume_functions(world.now, &world.drive.functions(world.now)), Ok(0));
        assert_eq!(next.config().max_io_queues, before);
        // Nobody was shown anything.
        let none = Subsystem::new(config(|_| {}), world.now).unwrap().functions(world.now);
        let mut next = Subsystem::new(config(|c| c.max_io_queues = after), world.now).unwrap();
        assert_eq!((next.resume_functions(world.now, &none), next.config().max_io_queues), (Ok(0), after));
    }
}

/// The drive runs between one claim and the next: nothing is fetched for a door that does not know the host yet.
#[test]
fn nothing_is_served_before_it_is_claimed() {
    let mut world = drive(|_| {});
    let mut rings = [Owner(5), Owner(6)].map(|owner| TestRing::ready(&mut world, 0, owner, ams::RR));
    for ring in &mut rings {
        ring.add_queue(&mut world, 1, 8, 0);
    }
    for ring in &mut rings {
        ring.submit(&mut world, 1, io(READ, 0, 0, 8)).unwrap();
        ring.submit(&mut world, 0, get_feature(fid::ARBITRATION, select::CURRENT)).unwrap();
    }
    let bytes = world.drive.functions(world.now);
    world.drive = Subsystem::new(config(|_| {}), world.now).unwrap();
    world.drive.resume_functions(world.now, &bytes).unwrap();
    let before = world.host.fetches;
    for (n, ring) in (1u64..).zip(&mut rings) {
        world.settle();
        assert_eq!(world.host.fetches, before + (n - 1) * 2, "what was not claimed waits");
        ring.controller = world.drive.claim_function("rings", 0, ring.owner).unwrap();
        world.settle();
        assert_eq!((ring.reap(&mut world, 1).len(), ring.reap(&mut world, 0).len()), (1, 1));
        assert_eq!(csts(ring, &world).cfs(), 0);
    }
}

/// Their door shows them again, one by one, when what they need is there.
#[test]
fn what_is_taken_back_is_not_fetched_until_it_is_told_again() {
    let rates = Rates { iops: Some(1_000), bandwidth: None };
    let mut world = drive(|c| c.tenants[0].ceiling = Ceiling { burst: Some(1), ..Ceiling::new(rates) });
    let (mut ring, _) = host(&mut world);
    for lba in 0..5 {
        ring.submit(&mut world, 2, io(READ, 0, lba, 8)).unwrap();
    }
    world.settle();
    assert_eq!(ring.reap(&mut world, 2).len(), 1, "the others wait for their tenant's ceiling");
    let last = ring.submit(&mut world, 2, io(READ, 0, 0, 8)).unwrap();
    ring.submit(&mut world, 0, admin(AdminOpcode::ABORT, 1, u32::from(last) << 16 | 2, 0)).unwrap();
    world.settle();
    assert_eq!(ring.reap(&mut world, 2).len(), 1, "what was aborted");
    let left = ring.submit(&mut world, 0, get_feature(fid::ARBITRATION, select::CURRENT)).unwrap();
    let told = ring.tail(2);
    assert!(!world.drive.untell(ring.controller, 2, told + 1), "it was told something else");
    assert!(world.drive.untell(ring.controller, 0, ring.tail(0)) && world.drive.untell(ring.controller, 2, told));
    world.drive.check();
    for _ in 0..2 {
        move_on(&mut world, &mut [&mut ring]);
        world.settle();
        world.pass(Nanos::from_millis(10));
        assert!(
            ring.reap(&mut world, 2).is_empty() && ring.reap(&mut world, 0).iter().all(|cqe| cqe.cid.get() != left)
        );
    }
    let (_, _, tail) = world.drive.ring_place(ring.controller, 2).unwrap();
    assert_eq!(tail + 5, told, "from the first that was not fetched");
    for tail in tail + 1..=told {
        world.event(Event::SqTail { controller: ring.controller, qid: 2, tail });
        world.pass(Nanos::from_millis(10));
        world.settle();
    }
    ring.ring(&mut world, 0);
    world.settle();
    assert_eq!((ring.reap(&mut world, 2).len(), ring.reap(&mut world, 0).len(), ring.pending(2)), (4, 1, 0));
    assert_eq!(csts(&ring, &world).cfs(), 0);
}

#[test]
fn other_releases_and_damage_are_told() {
    let mut world = drive(|_| {});
    host(&mut world);
    let bytes = world.drive.functions(world.now);
    let read = |bytes: &[u8]| {
        let mut drive = Subsystem::new(config(|_| {}), Nanos(0)).unwrap();
        let read = drive.resume_functions(Nanos(0), bytes);
        assert_eq!(drive.controllers().len(), usize::from(read.is_ok()));
        read
    };
    assert_eq!(read(&bytes), Ok(0));
    let version = |found| SavedError::Version { found, oldest: 2, newest: 2 };
    let wrong = [(0, SavedError::Foreign("the state of PCIe controllers")), (8, version(0)), (12, SavedError::Damaged)];
    for (at, error) in wrong.into_iter().chain([(bytes.len() / 2, SavedError::Damaged)]) {
        let mut other = bytes.clone();
        other[at] ^= 2;
        assert_eq!(read(&other), Err(error));
    }
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len]).is_err());
    }
}

/// As [`weir_spec::nvme::tcp::Digest`].
fn mend(bytes: &mut [u8]) {
    use weir_spec::nvme::tcp::{Digest, TableDigest};
    let last = bytes.len() - 4;
    let crc = TableDigest::append(0, &bytes[..last]);
    bytes[last..].copy_from_slice(&crc.to_le_bytes());
}

/// Sixteen bytes a line; lines of zeroes are left out.
fn dump(bytes: &[u8]) -> Vec<String> {
    let lines = bytes.chunks(16).enumerate().filter(|(_, chunk)| chunk.iter().any(|b| *b != 0));
    let text = |chunk: &[u8]| chunk.iter().map(|b| format!("{b:02x}")).collect::<String>();
    lines.map(|(i, chunk)| format!("{:03x} {}", i * 16, text(chunk))).collect()
}

#[test]
fn golden_bytes_of_version_2() {
    let mut world = drive(|_| {});
    let (mut ring, _) = host(&mut world);
    ring.submit(&mut world, 1, io(READ, 0, 0, 8)).unwrap();
    let bytes = world.drive.functions(world.now);
    let golden: Vec<&str> = include_str!("functions_2.txt").lines().collect();
    assert_eq!((FUNCTION_VERSION, dump(&bytes)), (2, golden.iter().map(|l| l.to_string()).collect()));
}

#[test]
fn the_golden_bytes_are_read() {
    let mut bytes: Vec<u8> = Vec::new();
    for line in include_str!("functions_2.txt").lines() {
        let (at, hex) = line.split_once(' ').unwrap();
        bytes.resize(usize::from_str_radix(at, 16).unwrap(), 0);
        bytes.extend((0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()));
    }
    let mut drive = Subsystem::new(config(|_| {}), Nanos(0)).unwrap();
    drive.resume_functions(Nanos(0), &bytes).unwrap();
    let controllers = drive.controllers();
    let queues: Vec<_> = controllers[0].queues.iter().map(|q| (q.qid, q.size, q.backlog)).collect();
    assert_eq!((controllers[0].id, controllers[0].ready, queues), (1, true, vec![(1, 8, 1), (2, 8, 0)]));
    assert_eq!(drive.functions(Nanos(0)), bytes);
}

proptest! {
    /// Whatever the host does between moves, and wherever they come, it has one completion for each command.
    #[test]
    fn moves_come_at_any_time(steps in prop::collection::vec((0u8..8, 1u16..3, 0u64..64), 1..120)) {
        let mut world = drive(|_| {});
        let (mut ring, _) = host(&mut world);
        let (mut sent, mut done) = (0, 0);
        for (step, qid, lba) in steps {
            match step {
                0..=2 => sent += usize::from(ring.submit(&mut world, qid, io(1 + (lba % 2) as u8, 0, lba, 8)).is_some()),
                3 => world.settle(),
                4 => done += ring.reap(&mut world, qid).len(),
                5 => world.pass(Nanos::from_micros(lba)),
                _ => {
                    if world.drive.carries_function(ring.controller) {
                        move_on(&mut world, &mut [&mut ring]);
                    }
                }
            }
            world.drive.check();
        }
        for _ in 0..4 {
            world.settle();
            move_on(&mut world, &mut [&mut ring]);
            done += ring.reap(&mut world, 1).len() + ring.reap(&mut world, 2).len();
        }
        prop_assert_eq!((done, ring.pending(1), ring.pending(2)), (sent, 0, 0));
    }

    #[test]
    fn whatever_the_bytes_say_the_drive_stays_in_order(at in 16usize..4000, flip in 1u8.., other in any::<u8>()) {
        // Its host believes whatever stands on the rings: a forged place or phase is seen there.
        let mut m = Machine::new(config(|_| {}));
        m.pair(1, 8, 8, Some(1));
        for n in 0..3 {
            m.put(1, n, io(READ, n as u16, 0, 8));
        }
        m.tail(1, 3);
        let mut bytes = m.drive.functions(m.now);
        let last = bytes.len() - 4;
        bytes[at % (last - 16) + 16] ^= flip;
        bytes[usize::from(other) % (last - 16) + 16] ^= other;
        mend(&mut bytes);
        let mut drive = Subsystem::new(config(|_| {}), m.now).unwrap();
        if drive.resume_functions(m.now, &bytes).is_ok() {
            drive.check();
            if let Some(controller) = drive.claim_function("sparse", 0, Owner(0)) {
                (m.drive, m.controller) = (drive.clone(), controller);
                m.settle();
                m.drive.check();
            }
            drive.drop_unclaimed_functions();
        }
        drive.check();
        prop_assert!(drive.controllers().len() <= 1);
    }
}
