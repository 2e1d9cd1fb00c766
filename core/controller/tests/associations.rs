//! Associations that go to another process: what their hosts can find out stays as it was.

mod common;

use common::{CC_EN, config, drive, get_feature, set_feature};
use proptest::prelude::*;
use weir_controller::testing::{Fabric, TestWorld, admin, io};
use weir_controller::{Owner, SavedError, Subsystem, Tag};
use weir_spec::nvme::feature::{Arbitration, fid, select};
use weir_spec::nvme::{AdminOpcode, Sqe, Status};
use weir_units::Nanos;

const READ: u8 = 2;

/// Two hosts: one with a keep alive timer, three queues, an event request and features of its own; one that has just connected.
fn hosts(world: &mut TestWorld) -> (Fabric, Fabric) {
    let mut one = Fabric::connect(world, "nqn.gold", 100, 5000).unwrap();
    one.set_cc(world, CC_EN);
    for cattr in [0, 1 << 2, 0] {
        one.add_queue(world, 8, cattr).unwrap();
    }
    let wrr = Arbitration(0).with_ab(3).with_hpw(7).with_mpw(5).with_lpw(1);
    assert!(one.admin(world, set_feature(fid::ARBITRATION, wrr.0)).status().is_success());
    let two = Fabric::connect(world, "nqn.silver", 200, 0).unwrap();
    (one, two)
}

/// The drive is another one now, with what the first one saved; every queue is claimed but those.
fn move_on(world: &mut TestWorld, hosts: &mut [&mut Fabric], but: &[(u32, u16)]) {
    let bytes = world.drive.associations(world.now);
    let ids: Vec<Vec<(u16, u16)>> =
        hosts.iter().map(|h| h.queues.iter().filter_map(|q| world.drive.queue_id(*q)).collect()).collect();
    let mut drive = Subsystem::new(config(|_| {}), world.now).unwrap();
    drive.resume_associations(world.now, &bytes).unwrap();
    for (host, ids) in hosts.iter_mut().zip(ids) {
        for (cntlid, qid) in ids {
            let owner = Owner(host.base + u32::from(qid));
            if !but.contains(&(host.base, qid)) {
                host.queues[usize::from(qid)] = drive.claim(cntlid, qid, owner).unwrap();
                assert!(drive.claim(cntlid, qid, owner).is_none(), "once");
            }
        }
    }
    drive.drop_unclaimed(world.now);
    drive.check();
    world.drive = drive;
}

#[test]
fn a_host_does_not_notice() {
    let mut world = drive(|_| {});
    let (mut one, mut two) = hosts(&mut world);
    let event = one.send(&mut world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 9, 0, 0));
    for cid in 0..5 {
        let tag = one.send(&mut world, 1, io(READ, cid, 0, 8));
        world.settle();
        assert!(one.answer(&mut world, 1, tag).is_some_and(|cqe| cqe.sqhd.get() == cid + 2));
    }
    world.pass(Nanos::from_secs(2));
    let before = world.drive.controllers();
    for _ in 0..3 {
        move_on(&mut world, &mut [&mut one, &mut two], &[]);
        assert_eq!(world.drive.controllers(), before);
        assert_eq!(world.drive.with_drive(one.queues[0]).unwrap().events, [Tag(event)]);
    }
    // Its queue goes on where it was, its features are its own, the other host can still enable its controller.
    let tag = one.send(&mut world, 1, io(READ, 7, 0, 8));
    world.settle();
    assert_eq!(one.answer(&mut world, 1, tag).unwrap().sqhd.get(), 7);
    let tag = one.send(&mut world, 2, io(READ, 7, 0, 8));
    world.settle();
    assert_eq!(one.answer(&mut world, 2, tag).unwrap().sqhd.get(), 0, "it wanted no flow control");
    let wrr = one.admin(&mut world, get_feature(fid::ARBITRATION, select::CURRENT)).dw0.get();
    let wrr = Arbitration(wrr);
    assert_eq!((wrr.ab(), wrr.hpw(), wrr.mpw(), wrr.lpw()), (3, 7, 5, 1));
    assert!(two.set_cc(&mut world, CC_EN).is_success());
    two.add_queue(&mut world, 8, 0).unwrap();
    assert!(one.add_queue(&mut world, 8, 0).is_ok());
    // The event request still waits, and its keep alive timer has gone on: 5 s after the last one, 2 of them before.
    assert_eq!(one.answer(&mut world, 0, event), None);
    assert!(one.admin(&mut world, admin(AdminOpcode::ABORT, 1, 9 << 16, 0)).status().is_success());
    assert_eq!(one.answer(&mut world, 0, event).unwrap().status(), Status::ABORT_REQUESTED);
    world.pass(Nanos::from_millis(2_900));
    assert!(world.closing.is_empty());
    world.pass(Nanos::from_millis(200));
    assert!(!world.closing.is_empty(), "it did not keep alive");
}

#[test]
fn what_nobody_claims_is_lost_like_a_connection() {
    let mut world = drive(|_| {});
    let (mut one, mut two) = hosts(&mut world);
    move_on(&mut world, &mut [&mut one, &mut two], &[(100, 2), (200, 0)]);
    assert_eq!(world.drive.controllers().len(), 1, "a controller without an admin queue ends");
    assert_eq!(world.drive.controllers()[0].queues.len(), 2);
    move_on(&mut world, &mut [&mut one], &[(100, 0), (100, 2)]);
    world.run();
    // Its I/O queues are asked to disconnect.
    world.close();
    assert!(world.drive.controllers().is_empty());
}

#[test]
fn commands_that_wait_are_named_in_order_and_what_has_begun_is_not_carried() {
    let mut world = drive(|c| c.slots = 1);
    let mut host = Fabric::connect(&mut world, "nqn.gold", 100, 0).unwrap();
    host.set_cc(&mut world, CC_EN);
    host.add_queue(&mut world, 8, 0).unwrap();
    let tags: Vec<Tag> = (0..3).map(|cid| Tag(host.send(&mut world, 1, io(READ, cid, 0, 8)))).collect();
    let with = world.drive.with_drive(host.queues[1]).unwrap();
    assert_eq!((with.waiting, with.events), (tags, vec![]));
    world.run();
    assert_eq!(world.drive.with_drive(host.queues[1]), None, "one is at the media");
    world.settle();
    assert_eq!(world.drive.with_drive(host.queues[1]), Some(Default::default()));
}

/// A write of a host that somebody else's reservation keeps out.
fn refused(world: &mut TestWorld, host: &mut Fabric) {
    let tag = host.send(world, 1, io(1, 1, 0, 8));
    world.settle();
    let status = host.answer(world, 1, tag).unwrap().status();
    assert!(status.same_code(Status::RESERVATION_CONFLICT), "{status}");
}

#[test]
fn reservations_go_with_their_hosts() {
    let mut world = drive(|_| {});
    let mut one = Fabric::connect(&mut world, "nqn.gold", 100, 0).unwrap();
    one.set_cc(&mut world, CC_EN);
    one.add_queue(&mut world, 8, 0).unwrap();
    let mut two = Fabric::connect(&mut world, "nqn.silver", 200, 0).unwrap();
    two.set_cc(&mut world, CC_EN);
    two.add_queue(&mut world, 8, 0).unwrap();
    // Register, then acquire: write exclusive (NVM 1.0: opcodes 0Dh and 11h).
    let command = |opcode: u8, cdw10: u32, keys: [u64; 2]| {
        let data: Vec<u8> = keys.iter().flat_map(|k| k.to_le_bytes()).collect();
        (Sqe { opcode, cdw10: cdw10.into(), ..io(0, 50, 0, 1) }, data)
    };
    let mut reserve = |world: &mut TestWorld, (sqe, data): (Sqe, Vec<u8>)| {
        world.host.data.insert((101, one.tags + 1), data);
        let tag = one.send(world, 1, sqe);
        world.settle();
        assert!(one.answer(world, 1, tag).unwrap().status().is_success());
    };
    reserve(&mut world, command(0x0d, 0, [0, 5]));
    reserve(&mut world, command(0x11, 1 << 8, [5, 0]));
    refused(&mut world, &mut two);
    let bytes = world.drive.associations(world.now);
    let mut next = Subsystem::new(config(|_| {}), world.now).unwrap();
    next.resume_associations(world.now, &bytes).unwrap();
    let queues = [(1, 0, 100), (1, 1, 101), (2, 0, 200), (2, 1, 201)];
    let handles: Vec<_> = queues.map(|(c, q, owner)| next.claim(c, q, Owner(owner)).unwrap()).into();
    world.drive = next;
    world.drive.check();
    two.queues = handles[2..].to_vec();
    refused(&mut world, &mut two);
}

#[test]
fn other_releases_and_damage_are_told() {
    let mut world = drive(|_| {});
    hosts(&mut world);
    let bytes = world.drive.associations(world.now);
    let read = |bytes: &[u8]| Subsystem::new(config(|_| {}), Nanos(0)).unwrap().resume_associations(Nanos(0), bytes);
    assert_eq!(read(&bytes), Ok(()));
    for (at, error) in [
        (0, SavedError::Foreign("the state of associations")),
        (8, SavedError::Version { found: 3, oldest: 1, newest: 1 }),
        (12, SavedError::Damaged),
    ] {
        let mut other = bytes.clone();
        other[at] ^= 2;
        assert_eq!(read(&other), Err(error));
    }
    // Twice is once too often, and leaves the first as they are.
    let mut drive = Subsystem::new(config(|_| {}), Nanos(0)).unwrap();
    drive.resume_associations(Nanos(0), &bytes).unwrap();
    assert_eq!(drive.resume_associations(Nanos(0), &bytes), Err(SavedError::Damaged));
}

/// As [`weir_spec::nvme::tcp::Digest`].
fn mend(bytes: &mut [u8]) {
    use weir_spec::nvme::tcp::{Digest, TableDigest};
    let last = bytes.len() - 4;
    let crc = TableDigest::append(0, &bytes[..last]);
    bytes[last..].copy_from_slice(&crc.to_le_bytes());
}

proptest! {
    #[test]
    fn whatever_the_bytes_say_the_drive_stays_in_order(at in 16usize..4000, flip in 1u8.., other in any::<u8>()) {
        let mut world = drive(|_| {});
        hosts(&mut world);
        let mut bytes = world.drive.associations(world.now);
        let last = bytes.len() - 4;
        bytes[at % (last - 16) + 16] ^= flip;
        bytes[usize::from(other) % (last - 16) + 16] ^= other;
        mend(&mut bytes);
        let mut drive = Subsystem::new(config(|_| {}), Nanos(0)).unwrap();
        if drive.resume_associations(Nanos(0), &bytes).is_ok() {
            drive.drop_unclaimed(Nanos(0));
        }
        drive.check();
        prop_assert!(drive.controllers().is_empty());
    }
}
