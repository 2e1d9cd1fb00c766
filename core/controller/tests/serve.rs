//! What is subtle in an NVMe controller, one test for each point: queues, arbitration, abort, deletion, checks, events,
//! doorbells, enable, shutdown.

mod common;

use common::{CC_EN, config, csts, drive, fabric_with_queues, identify_controller, set_feature};
use weir_controller::testing::{Fabric, TestRing, TestWorld, admin, io};
use weir_controller::{Effects, Event, Op, Operation, Owner, Subsystem, TimingModel};
use weir_flash::When;
use weir_spec::nvme::entry::SglDescriptor;
use weir_spec::nvme::feature::{Arbitration, async_config, fid};
use weir_spec::nvme::log::{AsyncEvent, critical_warning, lid};
use weir_spec::nvme::nvm::DsmRange;
use weir_spec::nvme::register::{self, Cap, Cc, ams};
use weir_spec::nvme::{AdminOpcode, Sqe, Status};
use weir_units::Nanos;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const READ: u8 = 2;
const WRITE: u8 = 1;
const FLUSH: u8 = 0;
const DSM: u8 = 9;
const RINGS: Owner = Owner(7);

fn rings(world: &mut TestWorld) -> TestRing {
    let mut ring = TestRing::ready(world, 0, RINGS, ams::RR);
    ring.add_queue(world, 1, 16, 0);
    ring
}

// CQ flow control.

#[test]
fn a_completion_entry_is_reserved_before_a_command_is_fetched() {
    let mut world = drive(|_| {});
    let mut ring = TestRing::ready(&mut world, 0, RINGS, ams::RR);
    assert!(ring.create_cq(&mut world, 1, 4).is_success());
    assert!(ring.create_sq(&mut world, 1, 16, 1, 0).is_success());
    for lba in 0..10 {
        ring.submit(&mut world, 1, io(READ, 0, lba, 1));
    }
    world.run();
    assert_eq!(world.issued.len(), 3, "a completion queue of 4 entries holds 3");
    world.settle();
    assert_eq!(world.issued.len(), 0, "nothing more is fetched before the host has consumed");
    let mut done = 0;
    while done < 10 {
        let cqes = ring.reap(&mut world, 1);
        assert!(!cqes.is_empty(), "consuming wakes the queue");
        done += cqes.len();
        world.settle();
    }
}

#[test]
fn two_submission_queues_share_the_entries_of_one_completion_queue() {
    let mut world = drive(|_| {});
    let mut ring = TestRing::ready(&mut world, 0, RINGS, ams::RR);
    assert!(ring.create_cq(&mut world, 1, 3).is_success());
    assert!(ring.create_sq(&mut world, 1, 16, 1, 0).is_success());
    assert!(ring.create_sq(&mut world, 2, 16, 1, 0).is_success());
    for lba in 0..12 {
        ring.submit(&mut world, 1 + (lba % 2) as u16, io(READ, 0, lba, 1));
    }
    let mut by_queue = [0; 3];
    for _ in 0..12 {
        world.settle();
        for cqe in ring.reap(&mut world, 1) {
            by_queue[usize::from(cqe.sqid.get())] += 1;
        }
    }
    assert_eq!(by_queue, [0, 6, 6]);
}

// CQE order, phase.

#[test]
fn the_phase_belongs_to_the_queue_and_flips_at_the_wrap() {
    // The model asserts the phase of every completion; 40 of them wrap a queue of 16 twice, of 5 eight times.
    let mut world = drive(|_| {});
    let mut ring = rings(&mut world);
    ring.add_queue(&mut world, 2, 5, 0);
    for n in 0..80 {
        ring.submit(&mut world, 1 + n % 2, io(READ, 0, n.into(), 1)).expect("there is room");
        world.settle();
        assert_eq!(ring.reap(&mut world, 1 + n % 2).len(), 1);
    }
}

// SQHD, CQ index.

#[test]
fn sqhd_is_the_consumed_head() {
    let mut world = drive(|c| c.slots = 2);
    let mut ring = rings(&mut world);
    for lba in 0..6 {
        ring.put(&mut world, 1, io(READ, 0, lba, 1));
    }
    ring.submit(&mut world, 1, io(READ, 0, 6, 1));
    world.run();
    // Two are fetched: the completion of the first one (entry 0) says 2, not 1.
    world.done(0, Status::SUCCESS);
    assert_eq!(ring.reap(&mut world, 1)[0].sqhd.get(), 2);
    world.settle();
    assert_eq!(ring.reap(&mut world, 1).last().map(|c| c.sqhd.get()), Some(7));
}

#[test]
fn completions_go_to_the_cq_that_the_sq_names() {
    let mut world = drive(|_| {});
    let mut ring = rings(&mut world);
    assert!(ring.create_cq(&mut world, 3, 8).is_success());
    assert!(ring.create_sq(&mut world, 2, 8, 3, 0).is_success());
    ring.submit(&mut world, 2, io(READ, 0, 0, 1));
    world.settle();
    assert_eq!(ring.reap(&mut world, 1).len(), 0);
    assert_eq!(ring.reap(&mut world, 3)[0].sqid.get(), 2);
}

// Fetch window.

#[test]
fn an_entry_is_fetched_once_and_never_beyond_the_tail() {
    let mut world = drive(|c| c.slots = 1);
    let mut ring = rings(&mut world);
    let before = world.host.fetches;
    for lba in 0..3 {
        ring.put(&mut world, 1, io(READ, 0, lba, 1));
    }
    let controller = ring.controller;
    world.event(Event::SqTail { controller, qid: 1, tail: 2 });
    world.settle();
    assert_eq!(world.host.fetches - before, 2, "the third is not announced");
    assert_eq!(ring.reap(&mut world, 1).len(), 2);
}

#[test]
fn what_the_host_changes_after_the_fetch_does_not_count() {
    let mut world = drive(|c| c.latency = Nanos(1000));
    let mut ring = rings(&mut world);
    ring.submit(&mut world, 1, io(READ, 0, 5, 1));
    world.run();
    world.host.ring(RINGS)[0x8000..0x8040].fill(0xff);
    world.pass(Nanos(1000));
    let read = world.issued[0];
    assert_eq!((read.op, read.offset, read.len), (Op::Read, 5 * 512, 512));
}

/// Reads take 1 us, everything else 2 us for each begun KiB, one after the other.
#[derive(Debug, Default)]
struct Tape {
    free: Nanos,
    seen: Vec<Operation>,
}

impl TimingModel for Tape {
    fn begin(&mut self, now: Nanos, operation: Operation) -> When {
        let each = if operation.op == Op::Read { 1_000 } else { 2_000 * u64::from(operation.len.div_ceil(1024)) };
        self.seen.push(operation);
        self.free = Nanos(self.free.max(now).0 + each);
        When::at(self.free)
    }
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[test]
fn a_service_says_when_commands_are_complete() {
    let mut world = drive(|c| c.slots = 2);
    let mut ring = rings(&mut world);
    world.drive.set_service(Box::<Tape>::default());
    ring.put(&mut world, 1, io(WRITE, 0, 4, 2));
    ring.put(&mut world, 1, io(READ, 1, 5, 1));
    ring.submit(&mut world, 1, io(READ, 2, 6, 1));
    world.run();
    assert!(world.issued.is_empty(), "nothing is moved before its time");
    assert_eq!(world.drive.next_deadline(), Some(Nanos(2_000)));
    world.pass(Nanos(2_000));
    assert_eq!((world.issued.len(), world.issued[0].op), (1, Op::Write));
    world.pass(Nanos(1_000));
    assert_eq!(world.issued.len(), 2, "the third has no slot yet");
    world.done(0, Status::SUCCESS);
    world.run();
    assert_eq!(world.drive.next_deadline(), Some(Nanos(4_000)), "it begins when it has one");
    let tape = world.drive.service().and_then(|s| s.as_any().downcast_ref::<Tape>()).expect("as it was given");
    let seen: Vec<(Op, u64, u32)> = tape.seen.iter().map(|o| (o.op, o.offset, o.len)).collect();
    assert_eq!(seen, [(Op::Write, 2048, 1024), (Op::Read, 2560, 512), (Op::Read, 3072, 512)]);
}

// Arbitration.

#[test]
fn ams_is_advertised_and_what_is_advertised_is_used() {
    let mut world = drive(|c| c.slots = 1);
    let ring = TestRing::attach(&mut world, 0, RINGS);
    assert_eq!(Cap(ring.read(&world, register::CAP)).ams(), 3, "WRR and vendor specific");
    drop(ring);
    // Weights 4:2:1, one command in turn each: the order of a round.
    let mut ring = TestRing::ready(&mut world, 0, Owner(8), ams::WRR);
    let weights = Arbitration(0).with_ab(0).with_hpw(3).with_mpw(1).with_lpw(0);
    assert!(ring.admin(&mut world, set_feature(fid::ARBITRATION, weights.0)).status().is_success());
    for (qid, qprio) in [(1, 1), (2, 2), (3, 3)] {
        ring.add_queue(&mut world, qid, 64, qprio);
        for lba in 0..60 {
            ring.put(&mut world, qid, io(READ, 0, lba, 1));
        }
        ring.submit(&mut world, qid, io(READ, 0, 60, 1));
    }
    let mut served = [0; 4];
    for _ in 0..70 {
        world.run();
        world.done(0, Status::SUCCESS);
        for cq in 1..4 {
            served[usize::from(cq)] += ring.reap(&mut world, cq).len();
        }
    }
    assert_eq!(served, [0, 40, 20, 10], "weights are 0-based on the wire");
}

#[test]
fn urgent_is_strictly_first() {
    let mut world = drive(|c| c.slots = 1);
    let mut ring = TestRing::ready(&mut world, 0, RINGS, ams::WRR);
    ring.add_queue(&mut world, 1, 16, 1);
    ring.add_queue(&mut world, 2, 16, 0);
    for qid in [1, 2] {
        for lba in 0..8 {
            ring.submit(&mut world, qid, io(READ, 0, lba, 1));
        }
    }
    for _ in 0..8 {
        world.run();
        world.done(0, Status::SUCCESS);
    }
    assert_eq!((ring.pending(2) - ring.reap(&mut world, 2).len(), ring.reap(&mut world, 1).len()), (0, 0));
}

#[test]
fn admin_goes_before_io() {
    let mut world = drive(|c| c.slots = 1);
    let mut ring = rings(&mut world);
    for lba in 0..8 {
        ring.submit(&mut world, 1, io(READ, 0, lba, 1));
    }
    world.run();
    let keep_alive = admin(AdminOpcode::KEEP_ALIVE, 0, 0, 0);
    assert!(ring.admin(&mut world, keep_alive).status().is_success(), "with all slots taken");
    assert_eq!(ring.pending(1), 8);
}

#[test]
fn a_change_of_ams_needs_a_disable() {
    let mut world = drive(|_| {});
    let mut ring = rings(&mut world);
    ring.write(&mut world, register::CC, Cc(CC_EN).with_ams(ams::WRR).0.into());
    assert_eq!(Cc(ring.read(&world, register::CC) as u32).ams(), ams::RR);
    ring.write(&mut world, register::CC, 0);
    ring.enable(&mut world, 16, 16, ams::VENDOR);
    assert_eq!((Cc(ring.read(&world, register::CC) as u32).ams(), csts(&ring, &world).rdy()), (ams::VENDOR, 1));
}

// Fairness.

#[test]
fn an_index_or_a_depth_wins_nothing() {
    let mut world = drive(|c| c.slots = 4);
    let mut ring = TestRing::ready(&mut world, 0, RINGS, ams::VENDOR);
    ring.add_queue(&mut world, 1, 128, 1);
    ring.add_queue(&mut world, 2, 16, 1);
    let mut bytes = [0u64; 3];
    for _ in 0..4000 {
        while ring.submit(&mut world, 1, io(READ, 0, 0, 8)).is_some() {}
        while ring.submit(&mut world, 2, io(READ, 0, 0, 16)).is_some() {}
        world.run();
        let done = world.issued[0];
        world.done(0, Status::SUCCESS);
        // The length tells the queues apart.
        bytes[if done.len == 4096 { 1 } else { 2 }] += u64::from(done.len);
        ring.reap(&mut world, 1);
        ring.reap(&mut world, 2);
    }
    let ratio = bytes[1] as f64 / bytes[2] as f64;
    assert!((0.995..1.005).contains(&ratio), "bytes are shared, not commands: {ratio}");
}

// Abort.

#[test]
fn abort_validates_its_queue_before_it_looks_there() {
    let mut world = drive(|_| {});
    let mut ring = rings(&mut world);
    for sqid in [2u32, 17, 0x7fff, 0xffff] {
        let cqe = ring.admin(&mut world, admin(AdminOpcode::ABORT, 0, 5 << 16 | sqid, 0));
        assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, 1), "not aborted: queue {sqid}");
    }
}

#[test]
fn abort_takes_commands_that_wait_in_their_queue() {
    let mut world = drive(|c| c.slots = 1);
    let mut ring = rings(&mut world);
    let cids: Vec<u16> = (0..4).filter_map(|lba| ring.submit(&mut world, 1, io(READ, 0, lba, 1))).collect();
    world.run();
    let abort = |cid: u16| admin(AdminOpcode::ABORT, 0, u32::from(cid) << 16 | 1, 0);
    assert_eq!(ring.admin(&mut world, abort(cids[2])).dw0.get(), 0, "aborted");
    let cqes = ring.reap(&mut world, 1);
    assert_eq!((cqes[0].cid.get(), cqes[0].status()), (cids[2], Status::ABORT_REQUESTED));
    assert_eq!(ring.admin(&mut world, abort(cids[2])).dw0.get(), 1, "once only");
    assert_eq!(ring.admin(&mut world, abort(cids[0])).dw0.get(), 1, "it is on the media already");
    world.settle();
    let rest: Vec<u16> = ring.reap(&mut world, 1).iter().map(|c| c.cid.get()).collect();
    assert_eq!(rest, [cids[0], cids[1], cids[3]], "the hole is passed over");
}

#[test]
fn abort_takes_messages_that_wait_and_commands_whose_time_has_not_come() {
    let mut world = drive(|c| (c.slots, c.latency) = (1, Nanos(10_000)));
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    let tags: Vec<u32> = (0..3).map(|cid| host.send(&mut world, 1, io(WRITE, cid, 0, 1))).collect();
    world.run();
    for (cid, tag) in [(1, tags[1]), (0, tags[0])] {
        let cqe = host.admin(&mut world, admin(AdminOpcode::ABORT, 9, cid << 16 | 1, 0));
        assert_eq!(cqe.dw0.get(), 0);
        assert_eq!(host.answer(&mut world, 1, tag).map(|c| c.status()), Some(Status::ABORT_REQUESTED));
    }
    world.pass(Nanos(10_000));
    world.run();
    world.pass(Nanos(10_000));
    assert_eq!(world.issued.len(), 1, "the aborted write never reaches the media");
    world.settle();
    assert!(host.answer(&mut world, 1, tags[2]).is_some_and(|c| c.status().is_success()));
}

// Deletion.

#[test]
fn deleting_a_queue_waits_for_what_is_in_flight() {
    let mut world = drive(|c| c.slots = 2);
    let mut ring = rings(&mut world);
    for lba in 0..5 {
        ring.submit(&mut world, 1, io(WRITE, 0, lba, 1));
    }
    world.run();
    let deletion = ring.submit(&mut world, 0, admin(AdminOpcode::DELETE_IO_SQ, 0, 1, 0)).expect("there is room");
    world.run();
    assert!(ring.reap(&mut world, 0).is_empty(), "two are in flight");
    world.done(0, Status::SUCCESS);
    world.run();
    assert!(ring.reap(&mut world, 0).is_empty(), "one is in flight");
    world.done(0, Status::SUCCESS);
    world.run();
    let cqes = ring.reap(&mut world, 0);
    assert_eq!((cqes[0].cid.get(), cqes[0].status()), (deletion, Status::SUCCESS));
    assert_eq!(ring.reap(&mut world, 1).len(), 2, "both were completed before; what waited was not fetched");
    assert!(world.issued.is_empty());
}

#[test]
fn a_completion_queue_outlives_its_submission_queues() {
    let mut world = drive(|_| {});
    let mut ring = rings(&mut world);
    assert!(ring.create_sq(&mut world, 2, 8, 1, 0).is_success());
    let delete = |opcode, qid: u32| admin(opcode, 0, qid, 0);
    for sq in [1, 2] {
        let status = ring.admin(&mut world, delete(AdminOpcode::DELETE_IO_CQ, 1)).status();
        assert!(status.same_code(Status::INVALID_QUEUE_DELETION));
        assert!(ring.admin(&mut world, delete(AdminOpcode::DELETE_IO_SQ, sq)).status().is_success());
    }
    assert!(ring.admin(&mut world, delete(AdminOpcode::DELETE_IO_CQ, 1)).status().is_success());
    for opcode in [AdminOpcode::DELETE_IO_CQ, AdminOpcode::DELETE_IO_SQ] {
        for qid in [0, 1, 9, 0xffff] {
            assert!(ring.admin(&mut world, delete(opcode, qid)).status().same_code(Status::INVALID_QUEUE_ID));
        }
    }
}

#[test]
fn creating_a_queue_is_refused_in_the_standards_own_terms() {
    let mut world = drive(|c| c.max_queue_entries = 64);
    let mut ring = rings(&mut world);
    assert_eq!(ring.create_cq(&mut world, 0, 8), Status::INVALID_QUEUE_ID.dnr());
    assert_eq!(ring.create_cq(&mut world, 1, 8), Status::INVALID_QUEUE_ID.dnr(), "it is there");
    assert_eq!(ring.create_cq(&mut world, 2, 1), Status::INVALID_QUEUE_SIZE.dnr());
    assert_eq!(ring.create_cq(&mut world, 2, 65), Status::INVALID_QUEUE_SIZE.dnr());
    assert!(ring.create_cq(&mut world, 2, 64).is_success(), "CAP.MQES is 0-based");
    assert_eq!(ring.create_sq(&mut world, 2, 8, 5, 0), Status::CQ_INVALID.dnr());
    assert_eq!(ring.create_sq(&mut world, 2, 8, 0, 0), Status::INVALID_QUEUE_ID.dnr(), "never the admin queue's");
    assert_eq!(ring.create_sq(&mut world, 1, 8, 1, 0), Status::INVALID_QUEUE_ID.dnr());
    let mut sqe = admin(AdminOpcode::CREATE_IO_CQ, 0, 7 << 16 | 3, 1);
    sqe.dptr[0] = U64::new(0x8200);
    sqe.flags = 0;
    assert_eq!(ring.admin(&mut world, sqe).status(), Status::PRP_OFFSET_INVALID.dnr());
    (sqe.dptr[0], sqe.cdw11) = (U64::new(0x18000), U32::new(0));
    assert_eq!(ring.admin(&mut world, sqe).status(), Status::INVALID_FIELD.dnr(), "not contiguous");
    sqe.cdw11 = U32::new(0xffff_0003);
    assert_eq!(ring.admin(&mut world, sqe).status(), Status::INVALID_INTERRUPT_VECTOR.dnr());
}

// MDTS, lengths, namespaces.

#[test]
fn ranges_lengths_and_namespaces_are_checked() {
    let mut world = drive(|c| c.mdts = 2);
    let mut ring = rings(&mut world);
    let blocks = (1u64 << 30) / 512;
    let invalid_ns = Status::INVALID_NAMESPACE_OR_FORMAT.dnr();
    let table: [(&str, Sqe, Status); 14] = [
        ("the last block", io(READ, 0, blocks - 1, 1), Status::SUCCESS),
        ("one beyond", io(READ, 0, blocks, 1), Status::LBA_OUT_OF_RANGE.dnr()),
        ("across the end", io(WRITE, 0, blocks - 1, 2), Status::LBA_OUT_OF_RANGE.dnr()),
        ("slba + nlb overflows", io(READ, 0, u64::MAX, 2), Status::LBA_OUT_OF_RANGE.dnr()),
        ("slba × 512 overflows", io(READ, 0, 1 << 56, 1), Status::LBA_OUT_OF_RANGE.dnr()),
        ("MDTS", io(READ, 0, 0, 32), Status::SUCCESS),
        ("above MDTS", io(READ, 0, 0, 33), Status::INVALID_FIELD.dnr()),
        ("write zeroes moves nothing", io(8, 0, 0, 65536), Status::SUCCESS),
        ("NSID 0", Sqe { nsid: U32::new(0), ..io(READ, 0, 0, 1) }, invalid_ns),
        ("an inactive NSID", Sqe { nsid: U32::new(2), ..io(READ, 0, 0, 1) }, Status::INVALID_FIELD.dnr()),
        ("an invalid NSID", Sqe { nsid: U32::new(4), ..io(READ, 0, 0, 1) }, invalid_ns),
        ("every namespace", Sqe { nsid: U32::new(u32::MAX), ..io(READ, 0, 0, 1) }, invalid_ns),
        ("flush of every namespace", Sqe { nsid: U32::new(u32::MAX), ..io(FLUSH, 0, 0, 1) }, Status::SUCCESS),
        ("an opcode that is not there", io(0x1a, 0, 0, 1), Status::INVALID_OPCODE.dnr()),
    ];
    for (what, sqe, expected) in table {
        ring.submit(&mut world, 1, sqe);
        world.settle();
        assert_eq!(ring.reap(&mut world, 1)[0].status(), expected, "{what}");
    }
    // FUSE in bits 1:0: a compare is a first command, here without its second, and nothing else.
    let invalid = Status::INVALID_FIELD.dnr();
    for (fuse, expected) in [(1, Status::ABORTED_MISSING_FUSED), (2, invalid), (3, invalid)] {
        let mut sqe = io(5, 0, 0, 1);
        sqe.flags = fuse;
        ring.submit(&mut world, 1, sqe);
        world.settle();
        assert_eq!(ring.reap(&mut world, 1)[0].status(), expected);
    }
}

#[test]
fn data_pointers_are_checked() {
    let mut world = drive(|_| {});
    let mut ring = rings(&mut world);
    let mut try_it = |flags: u8, dptr: [u64; 2]| {
        let sqe = Sqe { flags, dptr: dptr.map(U64::new), ..io(READ, 0, 0, 1) };
        // The model's `put` keeps FUSE only, so the entry is written here.
        let cid = ring.put(&mut world, 1, sqe).expect("there is room");
        let at = 0x8000 + ((ring.tail(1) + 15) % 16) as usize * 64;
        world.host.ring(RINGS)[at + 1] = flags;
        let (controller, tail) = (ring.controller, ring.tail(1));
        world.event(Event::SqTail { controller, qid: 1, tail });
        world.settle();
        let cqes = ring.reap(&mut world, 1);
        assert_eq!(cqes[0].cid.get(), cid);
        cqes[0].status()
    };
    let sgl = |kind, len| {
        let bytes: [u8; 16] = zerocopy::transmute!(SglDescriptor::new(kind, 0x38000, len));
        [u64::from_le_bytes(bytes[..8].try_into().unwrap()), u64::from_le_bytes(bytes[8..].try_into().unwrap())]
    };
    assert_eq!(try_it(0, [0x38000, 0]), Status::SUCCESS);
    assert_eq!(try_it(0, [0xf8002, 0]), Status::PRP_OFFSET_INVALID.dnr());
    assert_eq!(try_it(1 << 6, sgl(SglDescriptor::DATA_BLOCK, 512)), Status::SUCCESS);
    assert_eq!(try_it(1 << 6, sgl(SglDescriptor::DATA_BLOCK, 511)), Status::DATA_SGL_LENGTH_INVALID.dnr());
    // What a list says is seen when its bytes move; the command's own descriptor at once.
    assert_eq!(try_it(1 << 6, sgl(SglDescriptor::SEGMENT, 512)), Status::SUCCESS);
    assert_eq!(try_it(1 << 6, sgl(SglDescriptor::SEGMENT, 511)), Status::INVALID_SGL_SEGMENT.dnr());
    for kind in [SglDescriptor::DATA_BLOCK_OFFSET, SglDescriptor::KEYED_DATA_BLOCK, SglDescriptor::TRANSPORT_DATA_BLOCK]
    {
        assert_eq!(try_it(1 << 6, sgl(kind, 512)), Status::SGL_TYPE_INVALID.dnr());
    }
    assert_eq!(try_it(3 << 6, [0x38000, 0]), Status::INVALID_FIELD.dnr());
}

// Events.

fn event_request(cid: u16) -> Sqe {
    admin(AdminOpcode::ASYNC_EVENT_REQUEST, cid, 0, 0)
}

fn read_log(lid: u8, rae: bool) -> Sqe {
    admin(AdminOpcode::GET_LOG_PAGE, 50, 0x03ff_0000 | u32::from(rae) << 15 | u32::from(lid), 0)
}

#[test]
fn event_requests_wait_and_are_limited() {
    let mut world = drive(|_| {});
    let mut host = Fabric::ready(&mut world, "nqn.gold", 100, ams::RR);
    let limit = u16::from(identify_controller(&mut world, &mut host).aerl) + 1;
    let tags: Vec<u32> = (0..limit).map(|cid| host.send(&mut world, 0, event_request(cid))).collect();
    world.settle();
    world.pass(Nanos::from_secs(100));
    for tag in &tags {
        assert_eq!(host.answer(&mut world, 0, *tag), None, "never completed early");
    }
    let status = host.admin(&mut world, event_request(99)).status();
    assert!(status.same_code(Status::ASYNC_EVENT_LIMIT_EXCEEDED), "{status}");
}

#[test]
fn an_event_is_reported_once_until_its_log_is_read() {
    let mut world = drive(|_| {});
    let mut host = Fabric::ready(&mut world, "nqn.gold", 100, ams::RR);
    let tags: Vec<u32> = (0..3).map(|cid| host.send(&mut world, 0, event_request(cid))).collect();
    world.run();
    world.drive.resize_namespace(1, 1 << 29).unwrap();
    world.run();
    assert_eq!(host.answer(&mut world, 0, tags[0]), None, "not enabled by feature 0Bh");
    host.admin(&mut world, set_feature(fid::ASYNC_EVENTS, async_config::NAMESPACE));
    for size in [1 << 28, 1 << 27] {
        world.drive.resize_namespace(1, size).unwrap();
        world.run();
    }
    let cqe = host.answer(&mut world, 0, tags[0]).expect("an event");
    assert_eq!(AsyncEvent::from_dw0(cqe.dw0.get()), AsyncEvent::NAMESPACE_ATTRIBUTE);
    assert_eq!(host.answer(&mut world, 0, tags[1]), None, "masked until the log is read");
    host.admin_data(&mut world, read_log(lid::CHANGED_NAMESPACES, true));
    world.drive.resize_namespace(1, 1 << 26).unwrap();
    world.run();
    assert_eq!(host.answer(&mut world, 0, tags[1]), None, "RAE retains the event");
    let (_, log) = host.admin_data(&mut world, read_log(lid::CHANGED_NAMESPACES, false));
    assert_eq!(log[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(host.answer(&mut world, 0, tags[1]), None, "reading clears what was pending, too");
    let (_, log) = host.admin_data(&mut world, read_log(lid::CHANGED_NAMESPACES, false));
    assert_eq!(log[..4], [0; 4], "the list is cleared");
    world.drive.resize_namespace(1, 1 << 25).unwrap();
    world.run();
    assert!(host.answer(&mut world, 0, tags[1]).is_some());
}

#[test]
fn event_requests_are_dropped_at_disable_and_can_be_aborted() {
    let mut world = drive(|_| {});
    let mut ring = rings(&mut world);
    let cid = ring.submit(&mut world, 0, event_request(0)).unwrap();
    world.run();
    let cqe = ring.admin(&mut world, admin(AdminOpcode::ABORT, 0, u32::from(cid) << 16, 0));
    assert_eq!(cqe.dw0.get(), 0, "aborted");
    assert_eq!(ring.pending(0), 0, "the request is completed as well");
    ring.submit(&mut world, 0, event_request(0)).unwrap();
    world.run();
    let posted = world.host.posted.len();
    ring.write(&mut world, register::CC, 0);
    world.run();
    assert_eq!(world.host.posted.len(), posted, "no completion");
    ring.enable(&mut world, 16, 16, ams::RR);
    for _ in 0..4 {
        ring.submit(&mut world, 0, event_request(0)).unwrap();
    }
    world.run();
    assert_eq!(ring.reap(&mut world, 0).len(), 0, "all four places are free again");
}

#[test]
fn waiting_event_requests_do_not_fill_the_admin_completion_queue() {
    let mut world = drive(|_| {});
    let mut ring = TestRing::attach(&mut world, 0, RINGS);
    ring.enable(&mut world, 16, 2, ams::RR);
    for _ in 0..4 {
        ring.submit(&mut world, 0, event_request(0));
    }
    world.run();
    assert!(ring.admin(&mut world, admin(AdminOpcode::KEEP_ALIVE, 0, 0, 0)).status().is_success());
}

#[test]
fn a_temperature_threshold_below_the_temperature_raises_an_event() {
    let mut world = drive(|_| {});
    let mut host = Fabric::ready(&mut world, "nqn.gold", 100, ams::RR);
    host.admin(&mut world, set_feature(fid::ASYNC_EVENTS, async_config::SMART));
    let tag = host.send(&mut world, 0, event_request(0));
    host.admin(&mut world, set_feature(fid::TEMPERATURE, 300));
    let cqe = host.answer(&mut world, 0, tag).expect("313 K is above 300 K");
    assert_eq!(AsyncEvent::from_dw0(cqe.dw0.get()), AsyncEvent::TEMPERATURE);
}

#[test]
fn media_that_fails_is_a_critical_warning_and_one_event() {
    let mut world = drive(|_| {});
    let mut host = Fabric::ready(&mut world, "nqn.gold", 100, ams::RR);
    let mut deaf = Fabric::ready(&mut world, "nqn.silver", 200, ams::RR);
    let config = async_config::SMART & !u32::from(critical_warning::RELIABILITY | critical_warning::READ_ONLY);
    deaf.admin(&mut world, set_feature(fid::ASYNC_EVENTS, config));
    host.admin(&mut world, set_feature(fid::ASYNC_EVENTS, critical_warning::READ_ONLY.into()));
    let smart = |world: &mut TestWorld, host: &mut Fabric| {
        let sqe = Sqe { nsid: U32::new(u32::MAX), ..admin(AdminOpcode::GET_LOG_PAGE, 9, 127 << 16 | 2, 0) };
        let (cqe, data) = host.admin_data(world, sqe);
        assert!(cqe.status().is_success());
        data[0]
    };
    let (tag, other) = (host.send(&mut world, 0, event_request(0)), deaf.send(&mut world, 0, event_request(0)));
    assert_eq!(smart(&mut world, &mut host), 0);
    world.drive.note_media_fault(false);
    world.run();
    let cqe = host.answer(&mut world, 0, tag).expect("an event");
    assert_eq!(AsyncEvent::from_dw0(cqe.dw0.get()), AsyncEvent::RELIABILITY);
    assert!(deaf.answer(&mut world, 0, other).is_none(), "it did not want to know");
    assert_eq!(smart(&mut world, &mut host), critical_warning::RELIABILITY);
    let tag = host.send(&mut world, 0, event_request(1));
    world.drive.note_media_fault(false);
    world.run();
    assert!(host.answer(&mut world, 0, tag).is_none(), "nothing new");
    world.drive.note_media_fault(true);
    world.run();
    assert!(host.answer(&mut world, 0, tag).is_some());
    for host in [&mut host, &mut deaf] {
        assert_eq!(smart(&mut world, host), critical_warning::RELIABILITY | critical_warning::READ_ONLY);
    }
}

// Doorbells.

#[test]
fn a_bad_doorbell_is_an_event_and_no_crash() {
    let mut world = drive(|_| {});
    let mut ring = rings(&mut world);
    let controller = ring.controller;
    let bad = [
        (Event::SqTail { controller, qid: 1, tail: 16 }, AsyncEvent::INVALID_DOORBELL_VALUE),
        (Event::SqTail { controller, qid: 9, tail: 1 }, AsyncEvent::INVALID_DOORBELL_REGISTER),
        (Event::CqHead { controller, qid: 1, head: 1 }, AsyncEvent::INVALID_DOORBELL_VALUE),
        (Event::CqHead { controller, qid: 1, head: u32::MAX }, AsyncEvent::INVALID_DOORBELL_VALUE),
        (Event::Register { controller, offset: 0x3_0000, value: 0, size: 4 }, AsyncEvent::INVALID_DOORBELL_REGISTER),
    ];
    for (n, (doorbell, event)) in bad.into_iter().enumerate() {
        ring.submit(&mut world, 0, event_request(0));
        world.run();
        world.event(doorbell);
        let cqes = ring.reap(&mut world, 0);
        assert_eq!(AsyncEvent::from_dw0(cqes[0].dw0.get()), event);
        let mut log = read_log(lid::ERROR, false);
        log.dptr[0] = U64::new(0x38000);
        ring.admin(&mut world, log);
        let count = u64::from_le_bytes(world.host.ring(RINGS)[0x38000..0x38008].try_into().unwrap());
        assert_eq!(count, n as u64 + 1, "there is an entry in the error log");
    }
    ring.submit(&mut world, 1, io(READ, 0, 0, 1));
    world.settle();
    assert_eq!(ring.reap(&mut world, 1).len(), 1, "the queue still serves");
}

// Enable, disable, shutdown.

#[test]
fn what_cannot_be_enabled_is_fatal_and_can_be_tried_again() {
    let mut world = drive(|_| {});
    let ring = TestRing::attach(&mut world, 0, RINGS);
    ring.write(&mut world, register::AQA, 0x000f_000f);
    let bad = [
        Cc(CC_EN).with_css(6),
        Cc(CC_EN).with_mps(5),
        Cc(CC_EN).with_ams(2),
        Cc(CC_EN).with_iosqes(7),
        Cc(CC_EN).with_iocqes(5),
    ];
    for cc in bad {
        ring.write(&mut world, register::CC, cc.0.into());
        assert_eq!((csts(&ring, &world).rdy(), csts(&ring, &world).cfs()), (0, 1), "{cc:?}");
        ring.write(&mut world, register::CC, 0);
        assert_eq!(csts(&ring, &world).0, 0);
    }
    // Entry sizes of 0 are a host that sets them later.
    ring.write(&mut world, register::CC, 1);
    assert_eq!(csts(&ring, &world).rdy(), 1);
    assert_eq!(ring.read(&world, register::AQA), 0x000f_000f, "read back while enabled");
    ring.write(&mut world, register::AQA, 0);
    assert_eq!(ring.read(&world, register::AQA), 0x000f_000f, "and fixed");
}

#[test]
fn disable_drops_what_is_in_flight_and_keeps_the_admin_queue_registers() {
    let mut world = drive(|_| {});
    let mut ring = rings(&mut world);
    for lba in 0..4 {
        ring.submit(&mut world, 1, io(WRITE, 0, lba, 1));
    }
    world.run();
    let slots: Vec<_> = world.issued.iter().map(|io| io.slot).collect();
    let posted = world.host.posted.len();
    ring.write(&mut world, register::CC, 0);
    assert!(slots.iter().all(|slot| !world.drive.is_live(*slot)), "late data goes nowhere");
    world.settle();
    assert_eq!(world.host.posted.len(), posted, "no completion");
    assert_eq!(ring.read(&world, register::AQA), 0x000f_000f);
    assert_eq!(world.drive.stats().slots_used, 0, "the slots are free again");
    ring.enable(&mut world, 16, 16, ams::RR);
    ring.add_queue(&mut world, 1, 16, 0);
    ring.submit(&mut world, 1, io(READ, 0, 0, 1));
    world.settle();
    assert_eq!(ring.reap(&mut world, 1).len(), 1);
}

#[test]
fn shutdown_is_complete_when_the_media_is_flushed() {
    for shn in [1, 2] {
        let mut world = drive(|c| c.slots = 2);
        let mut ring = rings(&mut world);
        for lba in 0..3 {
            ring.submit(&mut world, 1, io(WRITE, 0, lba, 1));
        }
        world.run();
        ring.write(&mut world, register::CC, Cc(CC_EN).with_shn(shn).0.into());
        world.run();
        assert_eq!(csts(&ring, &world).shst(), 1, "processing");
        assert_eq!(world.issued.len(), 2, "no flush before the writes in flight");
        world.done(0, Status::SUCCESS);
        world.done(0, Status::SUCCESS);
        world.run();
        assert_eq!(world.issued.len(), 1, "nothing more is fetched");
        assert_eq!((world.issued[0].op, world.issued[0].nsid), (Op::Flush, u32::MAX));
        assert_eq!(csts(&ring, &world).shst(), 1);
        world.done(0, Status::SUCCESS);
        assert_eq!(csts(&ring, &world).shst(), 2, "complete");
        ring.write(&mut world, register::CC, 0);
        ring.enable(&mut world, 16, 16, ams::RR);
        assert_eq!((csts(&ring, &world).rdy(), csts(&ring, &world).shst()), (1, 0), "and it starts again");
    }
}

#[test]
fn a_flush_that_fails_is_not_reported_as_a_safe_shutdown() {
    let mut world = drive(|_| {});
    let ring = rings(&mut world);
    ring.write(&mut world, register::CC, Cc(CC_EN).with_shn(1).0.into());
    world.run();
    world.done(0, Status::WRITE_FAULT);
    assert_eq!((csts(&ring, &world).shst(), csts(&ring, &world).cfs()), (1, 1));
}

#[test]
fn shutdown_stops_the_keep_alive_timer() {
    let mut world = drive(|_| {});
    let mut host = Fabric::connect(&mut world, "nqn.gold", 100, 1000).unwrap();
    host.set_cc(&mut world, CC_EN);
    assert_eq!(world.drive.next_deadline(), Some(Nanos::from_secs(1)));
    host.set_cc(&mut world, Cc(CC_EN).with_shn(1).0);
    world.settle();
    world.pass(Nanos::from_secs(100));
    assert!(world.closing.is_empty());
    assert_eq!(host.property(&mut world, register::CSTS).1, 9, "ready, shut down");
}

// Data copy time.

#[test]
fn data_moves_when_the_service_time_has_passed() {
    let mut world = drive(|c| (c.latency, c.slots) = (Nanos(80_000), 4));
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    for cid in 0..8 {
        host.send(&mut world, 1, io(WRITE, cid, cid.into(), 1));
    }
    world.run();
    assert!(world.issued.is_empty(), "nothing is visible before its time");
    assert_eq!(world.drive.stats().slots_used, 4, "the slots are taken meanwhile");
    assert_eq!(world.drive.next_deadline(), Some(Nanos(80_000)));
    world.pass(Nanos(79_999));
    assert!(world.issued.is_empty());
    world.pass(Nanos(1));
    assert_eq!(world.issued.len(), 4);
    world.settle();
    world.pass(Nanos(80_000));
    assert_eq!(world.issued.len(), 4);
}

#[test]
fn a_command_knows_its_deadline_until_it_is_done() {
    let mut world = drive(|c| c.latency = Nanos(80_000));
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 2);
    host.send(&mut world, 1, io(READ, 0, 0, 1));
    host.send(&mut world, 2, io(READ, 1, 0, 1));
    world.run();
    world.pass(Nanos(80_000));
    let slots: Vec<_> = world.issued.iter().map(|io| io.slot).collect();
    assert_eq!(slots.iter().map(|s| world.drive.due(*s)).collect::<Vec<_>>(), [Some(Nanos(80_000)); 2]);
    world.pass(Nanos(5_000));
    world.done(0, Status::SUCCESS);
    assert_eq!(world.drive.due(slots[0]), None, "its slot is free");
    assert_eq!(world.drive.due(slots[1]), Some(Nanos(80_000)), "late, and still due when it was");
    world.disconnect(Owner(102), host.queues[2]);
    assert_eq!(world.drive.due(slots[1]), None, "nobody waits for it");
    world.drive.set_latency(Nanos(0));
    host.send(&mut world, 1, io(READ, 2, 0, 1));
    world.run();
    assert_eq!(world.drive.due(world.issued[1].slot), None, "at once has no deadline");
}

#[test]
fn large_commands_are_emitted_early_and_due_no_earlier() {
    let mut world = drive(|c| c.latency = Nanos(80_000));
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    world.drive.set_lead(64_000, 32 << 10);
    host.send(&mut world, 1, io(WRITE, 0, 0, 1));
    host.send(&mut world, 1, io(WRITE, 1, 8, 256));
    world.run();
    assert_eq!(world.drive.next_deadline(), Some(Nanos(72_000)), "128 KiB are an eighth of a MiB");
    world.pass(Nanos(71_999));
    assert!(world.issued.is_empty());
    world.pass(Nanos(1));
    assert_eq!(world.issued.len(), 1);
    assert_eq!((world.issued[0].len, world.drive.due(world.issued[0].slot)), (256 * 512, Some(Nanos(80_000))));
    world.pass(Nanos(8_000));
    assert_eq!(world.issued.len(), 2);
    world.settle();
    // However long moving has taken lately, what is small is not begun early: nobody would hold it back.
    world.drive.set_lead(u32::MAX, 32 << 10);
    host.send(&mut world, 1, io(READ, 2, 0, 63));
    host.send(&mut world, 1, io(READ, 3, 0, 64));
    world.run();
    world.run();
    assert_eq!(world.issued.iter().map(|io| io.len).collect::<Vec<_>>(), [64 * 512], "at once");
    world.settle();
    assert_eq!(world.drive.stats().slots_used, 1);
    world.pass(Nanos(80_000));
    world.settle();
    assert_eq!(world.drive.stats().slots_used, 0);
}

// CAP.

#[test]
fn cap_says_what_is_true() {
    let mut world = drive(|c| c.max_queue_entries = 128);
    let ring = TestRing::attach(&mut world, 0, RINGS);
    let cap = Cap(ring.read(&world, register::CAP));
    assert_eq!((cap.mqes(), cap.cqr(), cap.dstrd(), cap.css(), cap.mpsmin()), (127, 1, 0, 1, 0));
    assert!((2..=60).contains(&cap.to()), "not 0, with which Linux waits half a second, nor two minutes");
    assert_eq!(ring.read(&world, register::VS), 0x2_0000);
    let half = |offset| world.drive.register(ring.controller, offset, 4);
    assert_eq!(half(0) | half(4) << 32, cap.0, "hosts may read halves");
}

// Dataset management, write zeroes.

#[test]
fn dataset_management_becomes_deallocations_under_one_slot() {
    let mut world = drive(|_| {});
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    let ranges = [DsmRange::new(8, 16), DsmRange::new(0, 0), DsmRange::new(1000, 8)];
    let mut send = |world: &mut TestWorld, ranges: &[DsmRange], ad: u32| {
        let (cdw10, cdw11) = (U32::new(ranges.len() as u32 - 1), U32::new(ad));
        let sqe = Sqe { cdw10, cdw11, ..io(DSM, 1, 0, 1) };
        world.host.data.insert((101, host.tags + 1), ranges.as_bytes().to_vec());
        let tag = host.send(world, 1, sqe);
        world.run();
        (host.clone(), tag)
    };
    let (host1, tag) = send(&mut world, &ranges, 4);
    let seen = |world: &TestWorld| world.issued.iter().map(|io| (io.op, io.offset, io.len)).collect::<Vec<_>>();
    assert_eq!(seen(&world), [(Op::Deallocate, 4096, 8192)]);
    world.done(0, Status::SUCCESS);
    world.run();
    assert_eq!(host1.answer(&mut world, 1, tag), None, "one range is left");
    assert_eq!(seen(&world), [(Op::Deallocate, 512_000, 4096)]);
    world.settle();
    assert!(host1.answer(&mut world, 1, tag).unwrap().status().is_success());
    let (host1, tag) = send(&mut world, &[DsmRange::new(0, 1), DsmRange::new(u64::MAX, 2)], 4);
    assert!(world.issued.is_empty(), "all ranges are checked before the first is touched");
    assert!(host1.answer(&mut world, 1, tag).unwrap().status().same_code(Status::LBA_OUT_OF_RANGE));
    let (host1, tag) = send(&mut world, &ranges, 3);
    assert!(world.issued.is_empty() && host1.answer(&mut world, 1, tag).unwrap().status().is_success(), "hints only");
}

#[test]
fn long_ranges_are_cut_into_pieces() {
    let mut world = TestWorld::new(config(|c| c.namespaces[0].size = 5 << 30), 64);
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    let range = DsmRange::new(0, (5u64 << 30 >> 9) as u32);
    world.host.data.insert((101, host.tags + 1), range.as_bytes().to_vec());
    host.send(&mut world, 1, Sqe { cdw10: U32::new(0), cdw11: U32::new(4), ..io(DSM, 1, 0, 1) });
    let (mut total, mut pieces) = (0u64, 0);
    world.run();
    while let Some(io) = world.issued.first().copied() {
        assert_eq!(io.offset, total);
        (total, pieces) = (total + u64::from(io.len), pieces + 1);
        world.done(0, Status::SUCCESS);
        world.run();
    }
    assert_eq!((total, pieces), (5 << 30, 5));
}

#[test]
fn write_zeroes_says_whether_it_may_deallocate() {
    let mut world = drive(|_| {});
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    for (deac, fua) in [(0, 0), (1 << 25, 0), (0, 1 << 30)] {
        let mut sqe = io(8, 0, 8, 8);
        sqe.cdw12 = U32::new(7 | deac | fua);
        host.send(&mut world, 1, sqe);
        world.run();
        let io = world.issued[0];
        assert_eq!((io.op, io.fua), (Op::WriteZeroes { deallocate: deac != 0 }, fua != 0));
        world.settle();
    }
}

// Slots and bytes.

#[test]
fn a_command_that_does_not_fit_waits_and_nobody_overtakes_it() {
    let mut world = drive(|c| (c.slots, c.slot_bytes) = (8, 32 << 10));
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 2);
    host.send(&mut world, 1, io(READ, 1, 0, 32));
    host.send(&mut world, 1, io(READ, 2, 0, 64));
    host.send(&mut world, 2, io(READ, 3, 0, 1));
    host.send(&mut world, 2, io(READ, 4, 0, 1));
    world.run();
    let lens = |world: &TestWorld| world.issued.iter().map(|io| io.len).collect::<Vec<_>>();
    let first = lens(&world);
    assert!(first.contains(&(16 << 10)) && !first.contains(&(32 << 10)), "{first:?}");
    let overtaken = first.len();
    world.run();
    assert_eq!(world.issued.len(), overtaken, "whoever came after it waits behind it");
    while world.issued.iter().any(|io| io.len < 32 << 10) {
        let at = world.issued.iter().position(|io| io.len < 32 << 10).unwrap();
        world.done(at, Status::SUCCESS);
        world.run();
    }
    assert_eq!(lens(&world), [32 << 10], "it runs when its bytes are free");
    world.settle();
    assert!(world.host.pending.is_empty());
}

#[test]
fn a_command_larger_than_all_bytes_runs_alone() {
    let mut world = drive(|c| c.slot_bytes = 4096);
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    for cid in 0..3 {
        host.send(&mut world, 1, io(READ, cid, 0, 64));
    }
    for left in [3, 2, 1] {
        world.run();
        assert_eq!((world.issued.len(), world.host.pending.len()), (1, left));
        world.done(0, Status::SUCCESS);
    }
}

#[test]
fn without_arbitration_queues_are_emptied_eagerly() {
    let mut world = drive(|c| (c.slots, c.arbitration.mechanism) = (1, weir_arbiter::Mechanism::None));
    let mut ring = rings(&mut world);
    let before = world.host.fetches;
    for lba in 0..8 {
        ring.submit(&mut world, 1, io(READ, 0, lba, 1));
    }
    world.run();
    assert_eq!((world.host.fetches - before, world.issued.len()), (8, 1));
    world.done(0, Status::SUCCESS);
    assert_eq!(ring.reap(&mut world, 1)[0].sqhd.get(), 8);
    world.settle();
    assert_eq!(ring.reap(&mut world, 1).len(), 7);
}

#[test]
fn effects_are_never_more_than_fit() {
    let mut config = config(|_| {});
    config.slots = 64;
    let mut world = TestWorld::new(config, 3);
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    for cid in 0..10 {
        host.send(&mut world, 1, io(READ, cid, 0, 1));
    }
    world.event(Event::Run);
    assert_eq!(world.issued.len(), 3);
    assert!(world.drive.has_work());
    world.run();
    assert_eq!(world.issued.len(), 10);
    assert!(Effects::new(0).room() == 1, "a list always holds something");
}

#[test]
fn a_fetch_that_fails_is_fatal_for_its_controller_only() {
    let mut world = drive(|_| {});
    let mut ring = rings(&mut world);
    let mut host = fabric_with_queues(&mut world, "nqn.silver", 100, 1);
    ring.submit(&mut world, 1, io(READ, 0, 0, 1));
    world.host.broken = Some(RINGS);
    let tag = host.send(&mut world, 1, io(READ, 1, 0, 1));
    world.settle();
    assert_eq!(csts(&ring, &world).cfs(), 1);
    assert!(host.answer(&mut world, 1, tag).unwrap().status().is_success());
    world.host.broken = None;
    ring.write(&mut world, register::CC, 0);
    ring.enable(&mut world, 16, 16, ams::RR);
    assert_eq!(csts(&ring, &world).0, 1);
}

#[test]
fn a_configuration_that_cannot_be_is_refused() {
    let refused =
        |change: fn(&mut weir_controller::SubsystemConfig)| Subsystem::new(config(change), Nanos(0)).unwrap_err();
    use weir_controller::ManagementError;
    assert_eq!(refused(|c| c.subnqn = "ssd0".into()), ManagementError::Nqn);
    assert_eq!(refused(|c| c.slots = 0), ManagementError::Range);
    assert_eq!(refused(|c| c.max_queue_entries = 1), ManagementError::Range);
    assert_eq!(refused(|c| c.namespaces[1].nsid = 1), ManagementError::Namespace);
    assert_eq!(refused(|c| c.namespaces[0].block_size = 1024), ManagementError::Namespace);
    assert_eq!(refused(|c| c.namespaces[0].size = 1000), ManagementError::Namespace);
    assert!(refused(|c| c.namespaces[0].nsid = 0).to_string().contains("identifier"));
}

#[test]
fn the_error_log_names_the_command() {
    let mut world = drive(|_| {});
    let mut ring = rings(&mut world);
    let cid = ring.submit(&mut world, 1, io(READ, 0, 77, 1)).unwrap();
    world.run();
    world.done(0, Status::UNRECOVERED_READ_ERROR);
    let entry = world.drive.error_log(ring.controller)[0];
    assert_eq!((entry.sqid.get(), entry.cid.get(), entry.lba.get(), entry.nsid.get()), (1, cid, 77, 1));
    assert!(Status::from_field(entry.status_field.get() >> 1).same_code(Status::UNRECOVERED_READ_ERROR));
    let _ = weir_spec::nvme::log::ErrorEntry::read_from_bytes(entry.as_bytes()).unwrap();
}

#[test]
fn a_medium_with_a_time_of_its_own_gets_commands_when_they_begin() {
    let mut world = drive(|c| (c.latency, c.slots) = (Nanos(80_000), 2));
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    world.drive.set_early(true);
    let tags: Vec<u32> =
        [READ, WRITE, READ].into_iter().zip(0..).map(|(op, cid)| host.send(&mut world, 1, io(op, cid, 0, 1))).collect();
    world.run();
    assert_eq!(world.issued.len(), 2, "as many as there are slots, in the turn that began them");
    let slots: Vec<_> = world.issued.iter().map(|io| io.slot).collect();
    assert_eq!(slots.iter().map(|s| world.drive.due(*s)).collect::<Vec<_>>(), [Some(Nanos(80_000)); 2]);
    // A read can be aborted on its way, a write cannot.
    for (cid, aborted) in [(0u32, true), (1, false), (0, false)] {
        let cqe = host.admin(&mut world, admin(AdminOpcode::ABORT, 9, cid << 16 | 1, 0));
        assert_eq!(cqe.dw0.get(), u32::from(!aborted), "{cid}");
    }
    assert_eq!(host.answer(&mut world, 1, tags[0]).map(|c| c.status()), Some(Status::ABORT_REQUESTED));
    assert!(!world.drive.is_live(slots[0]) && world.drive.is_live(slots[1]));
    assert_eq!(world.issued.len(), 2, "the slot is taken until the medium is done");
    world.drive.check();
    world.done(0, Status::SUCCESS);
    world.run();
    assert_eq!(world.issued.last().map(|io| io.op), Some(Op::Read), "and free then");
    world.settle();
    assert!(host.answer(&mut world, 1, tags[1]).is_some_and(|c| c.status().is_success()));
    assert!(host.answer(&mut world, 1, tags[2]).is_some_and(|c| c.status().is_success()));
    assert_eq!(world.drive.stats().slots_used, 0);
}

/// An inside that takes no time and notes where commands that arrive will go.
#[derive(Debug)]
struct Listens(std::sync::Arc<std::sync::Mutex<Vec<u64>>>);

impl TimingModel for Listens {
    fn begin(&mut self, now: Nanos, _: Operation) -> When {
        When::at(now)
    }
    fn prefetch(&self, offset: u64) {
        self.0.lock().unwrap().push(offset);
    }
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[test]
fn the_inside_hears_of_commands_when_they_arrive() {
    let mut world = drive(|c| c.slots = 1);
    let heard = std::sync::Arc::default();
    world.drive.set_service(Box::new(Listens(std::sync::Arc::clone(&heard))));
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    for (cid, lba) in (0..).zip([0, 24, 7, u64::MAX]) {
        host.send(&mut world, 1, io(READ, cid, lba, 1));
    }
    // Before the drive has served anything; a place that is none is not told.
    assert_eq!(*heard.lock().unwrap(), [0, 24 * 512, 7 * 512]);
}
