//! Registers, resets, interrupts and queues of a controller over PCIe, section by section of the standard.

mod common;

use common::sparse::{Machine, cq_base, sq_base};
use common::{config, csts, drive, fabric_with_queues, set_feature};
use weir_controller::testing::{TestRing, admin, io};
use weir_controller::{Event, MemoryBuffer, Owner, SubsystemConfig};
use weir_spec::nvme::feature::{Coalescing, fid};
use weir_spec::nvme::identify::{IdentifyController, oacs};
use weir_spec::nvme::register::{self, Cap, CmbLoc, CmbSz, Doorbell, ams, doorbell_offset};
use weir_spec::nvme::{AdminOpcode, Sqe, Status};
use weir_units::Nanos;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

fn machine() -> Machine {
    Machine::new(config(|_| {}))
}

// Registers (base 2.0, 3.1.3).

#[test]
fn capabilities_are_those_of_pcie() {
    let m = machine();
    let cap = Cap(m.get(register::CAP));
    assert_eq!((cap.mqes(), cap.cqr(), cap.dstrd(), cap.to()), (4095, 1, 0, 20));
    assert_eq!((cap.nssrs(), cap.crms(), cap.cmbs(), cap.bps(), cap.pmrs()), (1, 1, 0, 0, 0));
    assert_eq!((m.get(register::VS), m.get(register::CRTO)), (0x2_0000, 20));
}

#[test]
fn registers_are_read_in_any_part() {
    let mut m = Machine::bare(config(|_| {}));
    m.set(register::ASQ, 0x1122_3344_5566_7000);
    m.set(register::ACQ, 0x8877_6655_4433_2000);
    let read = |offset, size| m.drive.register(m.controller, offset, size);
    assert_eq!(read(0x28, 8), 0x1122_3344_5566_7000);
    assert_eq!((read(0x28, 4), read(0x2c, 4)), (0x5566_7000, 0x1122_3344));
    assert_eq!((read(0x29, 1), read(0x2a, 2), read(0x2f, 1)), (0x70, 0x5566, 0x11));
    // Across two of them, and across the end.
    assert_eq!(read(0x2e, 4), 0x2000_1122);
    assert_eq!(read(0x2c, 8), 0x4433_2000_1122_3344);
    for (offset, size) in [(0x3c, 8), (0xfff, 8), (0x1000, 4), (u32::MAX, 8), (u32::MAX - 3, 4), (0, 0)] {
        assert_eq!(read(offset, size), 0, "{offset:#x}");
    }
    // Parts and odd places are not written.
    let controller = m.controller;
    for (offset, size) in [(0x28, 1), (0x28, 2), (0x29, 4), (0x2a, 8), (0x14, 2)] {
        m.event(Event::Register { controller, offset, value: u64::MAX, size });
    }
    assert_eq!((m.get(register::ASQ), m.get(register::CC)), (0x1122_3344_5566_7000, 0));
    // By halves they are.
    m.event(Event::Register { controller, offset: 0x2c, value: 0xaabb_ccdd, size: 4 });
    assert_eq!(m.get(register::ASQ), 0xaabb_ccdd_5566_7000);
}

#[test]
fn the_admin_queue_is_fixed_while_enabled_and_stays_over_a_controller_reset() {
    let mut m = machine();
    let read = |m: &Machine| [register::AQA, register::ASQ, register::ACQ].map(|r| m.get(r));
    let before = read(&m);
    assert_eq!(before, [63 << 16 | 63, sq_base(0), cq_base(0)]);
    m.set(register::AQA, 0x1_0001);
    m.set(register::ASQ, 0x7000);
    m.set(register::ACQ, 0x7000);
    assert_eq!(read(&m), before);
    m.set(register::CC, 0);
    assert_eq!((read(&m), m.get(register::CSTS)), (before, 0));
    m.set(register::AQA, 0x1_0001);
    assert_eq!(m.get(register::AQA), 0x1_0001);
}

#[test]
fn what_cannot_be_enabled_is_fatal() {
    // CSS 1 and 7 (admin only), MPS above MPSMAX, reserved AMS, wrong entry sizes.
    for cc in [0x11, 0x71, 5 << 7 | 1, 2 << 11 | 1, 7 << 16 | 1, 5 << 20 | 1] {
        let mut m = Machine::bare(config(|_| {}));
        m.set(register::AQA, 0x3f_003f);
        m.set(register::CC, cc);
        assert_eq!(m.get(register::CSTS), 2, "CC {cc:#x}");
        // And a reset heals it.
        m.set(register::CC, 0);
        m.enable();
    }
    let mut m = Machine::bare(config(|_| {}));
    m.set(register::CC, 1);
    assert_eq!(m.get(register::CSTS), 2, "an admin queue of one entry");
    // Entry sizes may come later.
    let mut m = Machine::bare(config(|_| {}));
    m.set(register::AQA, 0x3f_003f);
    m.set(register::CC, 1);
    assert_eq!(m.get(register::CSTS), 1);
    m.set(register::CC, 0x0046_0001);
    assert_eq!((m.get(register::CSTS), m.get(register::CC)), (1, 0x0046_0001));
}

// Resets (base 2.0, 3.7).

#[test]
fn a_controller_reset_drops_what_is_in_flight() {
    let mut world = drive(|_| {});
    let mut ring = TestRing::ready(&mut world, 0, Owner(1), ams::RR);
    ring.add_queue(&mut world, 1, 16, 0);
    for _ in 0..5 {
        ring.submit(&mut world, 1, io(2, 0, 0, 8));
    }
    ring.submit(&mut world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 0, 0, 0));
    world.run();
    assert_eq!(world.issued.len(), 5);
    let posted = world.host.posted.len();
    ring.write(&mut world, register::CC, 0);
    assert_eq!(csts(&ring, &world).0, 0, "not ready at once");
    // The media is still at it; nobody hears of it.
    while !world.issued.is_empty() {
        world.done(0, Status::SUCCESS);
    }
    world.run();
    assert_eq!((world.host.posted.len(), world.drive.stats().slots_used), (posted, 0));
    // The queues are gone: their doorbells mean nothing, and they can be made again.
    ring.enable(&mut world, 16, 16, ams::RR);
    ring.add_queue(&mut world, 1, 16, 0);
    ring.submit(&mut world, 1, io(2, 0, 0, 8));
    world.settle();
    assert_eq!(ring.reap(&mut world, 1).len(), 1);
}

/// What the media has of the queues before could land after what the host writes next.
#[test]
fn a_controller_is_ready_when_the_media_has_nothing_of_the_queues_before() {
    let mut world = drive(|_| {});
    let mut ring = TestRing::ready(&mut world, 0, Owner(1), ams::RR);
    let other = TestRing::ready(&mut world, 0, Owner(2), ams::RR);
    ring.add_queue(&mut world, 1, 16, 0);
    for lba in 0..3 {
        ring.submit(&mut world, 1, io(1, lba * 8, 0, 8));
    }
    world.run();
    assert_eq!(world.issued.len(), 3);
    ring.write(&mut world, register::CC, 0);
    ring.write(&mut world, register::CC, 0x0046_0001);
    other.write(&mut world, register::CC, 0);
    other.write(&mut world, register::CC, 0x0046_0001);
    for left in (0..3).rev() {
        // Both wait: the drive does not know which host's blocks the commands write.
        assert_eq!((csts(&ring, &world).rdy(), csts(&other, &world).rdy()), (0, 0), "{} at the media", left + 1);
        world.done(0, Status::SUCCESS);
    }
    assert_eq!((csts(&ring, &world).rdy(), csts(&other, &world).rdy()), (1, 1));
    // A controller that is ready stays so when a queue of another one goes.
    ring.write(&mut world, register::CC, 0);
    ring.enable(&mut world, 16, 16, ams::RR);
    ring.add_queue(&mut world, 1, 16, 0);
    ring.submit(&mut world, 1, io(1, 0, 0, 8));
    world.run();
    assert_eq!(world.issued.len(), 1);
    ring.write(&mut world, register::CC, 0);
    assert_eq!(csts(&other, &world).rdy(), 1);
}

#[test]
fn a_subsystem_reset_is_for_the_whole_subsystem_of_a_tenant() {
    let mut world = drive(|_| {});
    let mut rings: Vec<TestRing> = [(0, 1), (0, 2), (1, 3)]
        .map(|(tenant, owner)| TestRing::ready(&mut world, tenant, Owner(owner), ams::RR))
        .into();
    for ring in &mut rings {
        ring.add_queue(&mut world, 1, 16, 0);
        ring.submit(&mut world, 1, io(2, 0, 0, 8));
    }
    world.run();
    let _gold = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    let mut silver = fabric_with_queues(&mut world, "nqn.silver", 200, 1);
    // Only the one value does it.
    rings[0].write(&mut world, register::NSSR, 0x4e56_4d64);
    assert_eq!(csts(&rings[0], &world).rdy(), 1);
    rings[0].write(&mut world, register::NSSR, register::NSSR_RESET.into());
    assert_eq!(rings[0].read(&world, register::NSSR), 0);
    for ring in &rings[..2] {
        let csts = csts(ring, &world);
        assert_eq!((csts.rdy(), csts.nssro()), (0, 1));
        let registers = [register::CC, register::AQA, register::ASQ, register::ACQ].map(|r| ring.read(&world, r));
        assert_eq!(registers, [0; 4], "not only the controller's own reset: nothing is kept");
    }
    world.run();
    assert_eq!(world.closing.len(), 2, "the connections of its hosts are closed");
    world.close();
    // Another tenant's hosts notice nothing.
    assert_eq!((csts(&rings[2], &world).rdy(), csts(&rings[2], &world).nssro()), (1, 0));
    world.settle();
    assert_eq!(rings[2].reap(&mut world, 1).len(), 1);
    let tag = silver.send(&mut world, 1, io(2, 0, 0, 8));
    world.settle();
    assert!(silver.answer(&mut world, 1, tag).is_some());
    // NSSRO stays over a controller reset and is cleared by writing 1.
    rings[0].enable(&mut world, 16, 16, ams::RR);
    assert_eq!(csts(&rings[0], &world).nssro(), 1);
    rings[0].write(&mut world, register::CSTS, 0);
    assert_eq!(csts(&rings[0], &world).nssro(), 1);
    rings[0].write(&mut world, register::CSTS, 1 << 4);
    assert_eq!(csts(&rings[0], &world).0, 1);
}

#[test]
fn a_function_level_reset_keeps_nothing() {
    let mut m = Machine::new(config(|c| c.cmb = 1 << 20));
    m.pair(1, 16, 16, Some(1));
    m.set(register::CMBMSC, 0xfe00_0003);
    m.set(register::INTMS, 0xff);
    m.tail(1, 3);
    m.event(Event::Run);
    m.drive.reset_function(m.now, m.controller);
    let all =
        [register::CC, register::CSTS, register::AQA, register::ASQ, register::ACQ, register::INTMS, register::CMBMSC];
    assert_eq!(all.map(|r| m.get(r)), [0; 7]);
    assert_eq!(m.drive.memory_buffer(m.controller), None);
    m.drive.check();
    m.enable();
    m.pair(1, 16, 16, Some(1));
}

#[test]
fn a_shutdown_flushes_and_the_controller_can_be_enabled_again() {
    for shn in [1u32, 2] {
        let mut world = drive(|c| c.volatile_write_cache = true);
        let mut ring = TestRing::ready(&mut world, 0, Owner(1), ams::RR);
        ring.add_queue(&mut world, 1, 16, 0);
        ring.submit(&mut world, 1, io(1, 0, 0, 8));
        world.run();
        let cc = ring.read(&world, register::CC) as u32;
        ring.write(&mut world, register::CC, (cc | shn << 14).into());
        assert_eq!(csts(&ring, &world).shst(), register::shst::PROCESSING);
        world.done(0, Status::SUCCESS);
        world.run();
        assert_eq!(csts(&ring, &world).shst(), register::shst::PROCESSING, "the flush is not done");
        assert_eq!(world.issued[0].op, weir_controller::Op::Flush);
        world.settle();
        assert_eq!(csts(&ring, &world).shst(), register::shst::COMPLETE);
        // EN 0 and 1 again, without a reset between.
        ring.write(&mut world, register::CC, 0);
        ring.enable(&mut world, 16, 16, ams::RR);
        assert_eq!(csts(&ring, &world).0, 1);
    }
}

// Queues (base 2.0, 5.4 to 5.7).

#[test]
fn queues_that_cannot_be_made() {
    let mut m = machine();
    let grant = u32::from(3u16) << 16 | 1;
    assert_eq!(
        m.admin(set_feature_ring(fid::QUEUES, grant)).dw0.get(),
        grant,
        "two submission, four completion queues"
    );
    assert_eq!(m.create_cq(1, 16, Some(1)), Status::SUCCESS);
    let bad = |m: &mut Machine, opcode, dptr, cdw10, cdw11| m.command(opcode, [dptr, 0], cdw10, cdw11).status();
    let (cq, sq) = (AdminOpcode::CREATE_IO_CQ, AdminOpcode::CREATE_IO_SQ);
    for (opcode, dptr, cdw10, cdw11, status) in [
        (cq, 0x4000, 15 << 16, 1, Status::INVALID_QUEUE_ID),
        (cq, 0x4000, 15 << 16 | 1, 1, Status::INVALID_QUEUE_ID),
        (cq, 0x4000, 15 << 16 | 5, 1, Status::INVALID_QUEUE_ID),
        (cq, 0x4000, 2, 1, Status::INVALID_QUEUE_SIZE),
        (cq, 0x4000, 4096 << 16 | 2, 1, Status::INVALID_QUEUE_SIZE),
        (cq, 0x4000, 15 << 16 | 2, 0, Status::INVALID_FIELD),
        (cq, 0x4010, 15 << 16 | 2, 1, Status::PRP_OFFSET_INVALID),
        (cq, 0x4000, 15 << 16 | 2, 1025 << 16 | 3, Status::INVALID_INTERRUPT_VECTOR),
        (sq, 0x4000, 15 << 16 | 3, 1 << 16 | 1, Status::INVALID_QUEUE_ID),
        (sq, 0x4000, 15 << 16 | 1, 1, Status::INVALID_QUEUE_ID),
        (sq, 0x4000, 15 << 16 | 1, 5 << 16 | 1, Status::INVALID_QUEUE_ID),
        (sq, 0x4000, 15 << 16 | 1, 3 << 16 | 1, Status::CQ_INVALID),
        (sq, 0x4000, 1, 1 << 16 | 1, Status::INVALID_QUEUE_SIZE),
        (sq, 0x4000, 15 << 16 | 1, 1 << 16, Status::INVALID_FIELD),
    ] {
        let found = bad(&mut m, opcode, dptr, cdw10, cdw11);
        assert_eq!(found, status.dnr(), "{opcode:?} {dptr:#x} {cdw10:#x} {cdw11:#x}");
    }
    assert_eq!(m.create_sq(1, 16, 1), Status::SUCCESS);
    // The number of queues is fixed now.
    assert_eq!(m.admin(set_feature_ring(fid::QUEUES, grant)).status(), Status::COMMAND_SEQUENCE_ERROR.dnr());
    // Deletion: the completion queue last, and nothing twice.
    let delete = |m: &mut Machine, opcode, qid: u32| m.command(opcode, [0; 2], qid, 0).status();
    let (delete_sq, delete_cq) = (AdminOpcode::DELETE_IO_SQ, AdminOpcode::DELETE_IO_CQ);
    assert_eq!(delete(&mut m, delete_cq, 1), Status::INVALID_QUEUE_DELETION.dnr());
    for qid in [0, 2, 0xffff] {
        assert_eq!(delete(&mut m, delete_sq, qid), Status::INVALID_QUEUE_ID.dnr());
        assert_eq!(delete(&mut m, delete_cq, qid), Status::INVALID_QUEUE_ID.dnr());
    }
    assert_eq!(delete(&mut m, delete_sq, 1), Status::SUCCESS);
    assert_eq!(delete(&mut m, delete_sq, 1), Status::INVALID_QUEUE_ID.dnr());
    assert_eq!(delete(&mut m, delete_cq, 1), Status::SUCCESS);
}

/// Set Features as ring hosts send it: without an SGL.
fn set_feature_ring(fid: u8, cdw11: u32) -> Sqe {
    Sqe { flags: 0, ..set_feature(fid, cdw11) }
}

#[test]
fn admin_commands_have_no_sgls() {
    let mut m = machine();
    assert_eq!(m.admin(set_feature(fid::COALESCING, 0)).status(), Status::INVALID_FIELD.dnr());
}

#[test]
fn doorbells_that_are_wrong_are_events() {
    let mut m = machine();
    m.pair(1, 16, 16, None);
    // Dropped while nobody has enabled the event's request; counted in the error log all the same.
    let errors = |m: &Machine| m.drive.error_log(m.controller).len();
    for (doorbell, value) in [
        (Doorbell::SqTail(2), 1),
        (Doorbell::CqHead(2), 1),
        (Doorbell::SqTail(65535), 1),
        (Doorbell::SqTail(1), 16),
        (Doorbell::CqHead(1), 16),
        (Doorbell::CqHead(1), 3),
        (Doorbell::SqTail(1), u32::MAX),
    ] {
        let before = errors(&m);
        m.set(doorbell_offset(doorbell), value.into());
        m.settle();
        assert_eq!(errors(&m), before + 1, "{doorbell:?} {value}");
    }
    m.drive.check();
    // Of a controller that is not enabled they are nothing.
    m.set(register::CC, 0);
    m.set(doorbell_offset(Doorbell::SqTail(1)), 9);
    m.settle();
}

#[test]
fn a_thousand_queue_pairs_of_4096() {
    let mut m = machine();
    for qid in 1..=1024 {
        m.pair(qid, 4096, 4096, Some(qid));
    }
    assert_eq!(m.create_cq(1025, 16, None), Status::INVALID_QUEUE_ID.dnr());
    m.drive.check();
    // The last one and one in the middle work, up to their last entry and over the end.
    for qid in [1024, 512] {
        for index in 0..4096 {
            m.put(qid, index, Sqe { flags: 0, ..io(0, index as u16, 0, 1) });
        }
        m.tail(qid, 4095);
        m.settle();
        assert_eq!(m.completion(qid, 4094).cid.get(), 4094);
        m.head(qid, 4095);
        m.tail(qid, 5);
        m.settle();
        assert_eq!((m.completion(qid, 4095).cid.get(), m.completion(qid, 0).phase()), (4095, false));
        assert_eq!(m.completion(qid, 4).cid.get(), 4);
    }
    // What an I/O looks at does not depend on how many queues there are: entries are fetched where doorbells rang, only.
    let fetched = m.host.fetched;
    m.tail(1024, 6);
    m.settle();
    assert_eq!(m.host.fetched, fetched + 1);
    m.drive.check();
    // They all end with the controller.
    m.set(register::CC, 0);
    m.drive.check();
    m.enable();
    m.pair(1024, 2, 2, None);
}

// Interrupts (base 2.0, 3.1.3.3, 3.1.3.4, 5.27.1.6 and 5.27.1.7).

/// Flushes on queue 1 from `from` on; the vectors that were signalled with their completions.
fn flushes(m: &mut Machine, from: u32, count: u32) -> Vec<u16> {
    for n in from..from + count {
        m.put(1, n % 64, Sqe { flags: 0, ..io(0, n as u16, 0, 1) });
    }
    let before = m.host.posted.len();
    m.tail(1, (from + count) % 64);
    m.settle();
    let vectors = m.host.posted[before..].iter().filter_map(|(_, vector)| *vector).collect();
    m.head(1, (from + count) % 64);
    vectors
}

#[test]
fn masked_vectors_are_signalled_when_the_mask_goes() {
    let mut m = machine();
    m.pair(1, 64, 64, Some(3));
    assert_eq!(flushes(&mut m, 0, 2), [3, 3]);
    assert!(!m.drive.pin(m.controller));
    m.set(register::INTMS, 1 << 3 | 1 << 7);
    m.set(register::INTMC, 1 << 7);
    assert_eq!((m.get(register::INTMS), m.get(register::INTMC)), (8, 8));
    m.put(1, 2, Sqe { flags: 0, ..io(0, 1, 0, 1) });
    m.tail(1, 3);
    m.settle();
    assert_eq!(m.host.posted.last().map(|p| p.1), Some(None), "written, and not signalled");
    assert!(!m.drive.pin(m.controller));
    m.set(register::INTMC, 1 << 3);
    assert_eq!(m.host.interrupts, [3]);
    assert!(m.drive.pin(m.controller));
    m.head(1, 3);
    assert!(!m.drive.pin(m.controller), "everything is consumed");
    // Nothing waits: the mask comes and goes in silence.
    m.set(register::INTMS, u64::from(u32::MAX));
    m.set(register::INTMC, u64::from(u32::MAX));
    assert_eq!(m.host.interrupts, [3]);
    // The admin queue has vector 0.
    m.set(register::INTMS, 1);
    m.send(Sqe { opcode: AdminOpcode::KEEP_ALIVE.0, ..Sqe::default() });
    assert_eq!(m.host.posted.last().map(|p| p.1), Some(None));
    m.set(register::INTMC, 1);
    assert_eq!(m.host.interrupts, [3, 0]);
    // A reset forgets the mask.
    m.set(register::INTMS, 1);
    m.set(register::CC, 0);
    assert_eq!(m.get(register::INTMS), 0);
}

#[test]
fn interrupts_are_coalesced_by_number_and_by_time() {
    let mut m = machine();
    m.pair(1, 64, 64, Some(3));
    m.pair(2, 64, 64, Some(0));
    // Four completions or 200 µs.
    let four = Coalescing(0).with_thr(3).with_time(2).0;
    assert!(m.admin(set_feature_ring(fid::COALESCING, four)).status().is_success());
    assert_eq!(flushes(&mut m, 0, 3), [] as [u16; 0]);
    assert_eq!(m.drive.next_deadline(), Some(Nanos(m.now.0 + 200_000)));
    assert_eq!(flushes(&mut m, 3, 1), [3], "the fourth");
    assert_eq!(m.drive.next_deadline(), None);
    assert_eq!(flushes(&mut m, 4, 9), [3, 3], "every fourth; one is left");
    m.now = Nanos(m.now.0 + 199_999);
    m.event(Event::Tick);
    assert_eq!(m.host.interrupts, [] as [u16; 0]);
    m.now = Nanos(m.now.0 + 1);
    m.event(Event::Tick);
    assert_eq!((m.host.interrupts.clone(), m.drive.next_deadline()), (vec![3], None));
    // The admin queue is never held, whatever shares its vector.
    m.send(Sqe { opcode: AdminOpcode::KEEP_ALIVE.0, ..Sqe::default() });
    assert_eq!(m.host.posted.last().map(|p| p.1), Some(Some(0)));
    m.answer();
    // A vector without coalescing (feature 09h), and with it again: what was held is told at once.
    flushes(&mut m, 13, 1);
    assert!(m.admin(set_feature_ring(fid::VECTOR, 1 << 16 | 3)).status().is_success());
    assert_eq!(m.host.interrupts, [3, 3]);
    assert_eq!(flushes(&mut m, 14, 2), [3, 3]);
    m.admin(set_feature_ring(fid::VECTOR, 3));
    assert_eq!(flushes(&mut m, 16, 2), [] as [u16; 0]);
    // Masked and due: told when the mask goes, if it is still there.
    m.set(register::INTMS, 1 << 3);
    m.now = Nanos(m.now.0 + 1_000_000);
    m.event(Event::Tick);
    let told = m.host.interrupts.len();
    m.put(1, 18, Sqe { flags: 0, ..io(0, 1, 0, 1) });
    m.tail(1, 19);
    m.settle();
    m.set(register::INTMC, 1 << 3);
    assert_eq!(m.host.interrupts.len(), told + 1);
    // Time 0 is no coalescing.
    m.head(1, 19);
    m.admin(set_feature_ring(fid::COALESCING, 3));
    assert_eq!(flushes(&mut m, 19, 1), [3]);
    // A reset forgets what was held, and the feature.
    m.admin(set_feature_ring(fid::COALESCING, four));
    flushes(&mut m, 20, 1);
    m.set(register::CC, 0);
    assert_eq!(m.drive.next_deadline(), None);
    m.enable();
    m.pair(1, 64, 64, Some(3));
    assert_eq!(flushes(&mut m, 0, 1), [3]);
}

// The controller memory buffer (base 2.0, 8.5).

#[test]
fn the_memory_buffer_is_where_its_host_says() {
    let mut m = Machine::new(config(|c| c.cmb = 1 << 20));
    assert_eq!(Cap(m.get(register::CAP)).cmbs(), 1);
    let read = |m: &Machine| [register::CMBLOC, register::CMBSZ, register::CMBSTS].map(|r| m.get(r) as u32);
    assert_eq!(read(&m), [0; 3], "hidden until CRE");
    m.set(register::CMBMSC, 1);
    let [loc, size, status] = read(&m);
    assert_eq!((CmbLoc(loc).bir(), CmbLoc(loc).ofst(), CmbLoc(loc).cqmms(), status), (2, 0, 1, 0));
    let size = CmbSz(size);
    assert_eq!(
        [size.sqs(), size.cqs(), size.lists(), size.rds(), size.wds(), size.szu(), size.sz()],
        [1, 1, 1, 1, 1, 0, 256]
    );
    assert_eq!(m.drive.memory_buffer(m.controller), None, "not before CMSE");
    m.set(register::CMBMSC, 0xfe00_0003);
    let buffer = MemoryBuffer { base: 0xfe00_0000, size: 1 << 20 };
    assert_eq!(m.drive.memory_buffer(m.controller), Some(buffer));
    assert_eq!(m.get(register::CMBMSC), 0xfe00_0003);
    // By halves, as a 32-bit host writes it; reserved bits are not kept.
    let controller = m.controller;
    for (offset, value) in [(0x50, 0x0000_1fff), (0x54, 5)] {
        m.event(Event::Register { controller, offset, value, size: 4 });
    }
    assert_eq!(m.drive.memory_buffer(m.controller).map(|b| b.base), Some(0x5_0000_1000));
    // A controller reset keeps it.
    m.set(register::CC, 0);
    assert_eq!(m.get(register::CMBMSC), 0x5_0000_1003);
    // Where it would not fit it is not.
    m.set(register::CMBMSC, u64::MAX << 12 | 3);
    assert_eq!((read(&m)[2], m.drive.memory_buffer(m.controller)), (1, None));
    // A drive without one has no such registers.
    let mut m = machine();
    m.set(register::CMBMSC, 0xfe00_0003);
    assert_eq!((m.get(register::CMBMSC), m.get(register::CMBSZ), m.drive.memory_buffer(m.controller)), (0, 0, None));
    // Sizes that a base address register cannot have.
    for cmb in [1, 4095, 6 << 12, 2 << 30] {
        let refused = weir_controller::Subsystem::new(SubsystemConfig { cmb, ..config(|_| {}) }, Nanos(0));
        assert_eq!(refused.err(), Some(weir_controller::ManagementError::MemoryBuffer), "{cmb}");
    }
}

#[test]
fn identify_says_what_pcie_controllers_take() {
    let mut m = machine();
    let sqe = Sqe {
        opcode: AdminOpcode::IDENTIFY.0,
        cdw10: U32::new(1),
        dptr: [0x20_0000.into(), 0.into()],
        ..Sqe::default()
    };
    assert!(m.admin(sqe).status().is_success());
    let mut page = [0; 4096];
    m.host.read(0x20_0000, &mut page);
    let id = IdentifyController::read_from_bytes(&page[..]).unwrap();
    assert_eq!(id.sgls.get(), 1 | 1 << 16 | 1 << 18);
    assert_eq!(id.oacs.get() & oacs::DOORBELL_BUFFERS, oacs::DOORBELL_BUFFERS);
}
