//! Failures by rule, through drives as hosts see them: what a rule makes of commands, what SMART, the error log and events say of it, and
//! that all goes on when the rule goes.

mod common;

use common::{CC_EN, csts, drive, fabric_with_queues, identify, identify_controller, set_feature};
use std::collections::BTreeMap;
use weir_controller::testing::{Fabric, TestRing, TestWorld, admin, io};
use weir_controller::{Attach, BlockRequest, Event, Host, SqHandle};
use weir_controller::{
    Data, FaultRule, FlashPlace, FlashShape, Management, Op, Operation, Owner, Subsystem, SubsystemConfig, Tag,
    TimingModel, TransportModel,
};
use weir_flash::When;
use weir_spec::nvme::identify::IdentifyNamespace;
use weir_spec::nvme::log::{ErrorEntry, Smart, critical_warning, lid};
use weir_spec::nvme::register::{self, ams};
use weir_spec::nvme::{AdminOpcode, IoOpcode, Sqe, Status};
use weir_units::Nanos;
use zerocopy::FromBytes;

const READ: u8 = IoOpcode::READ.0;
const WRITE: u8 = IoOpcode::WRITE.0;

fn add(world: &mut TestWorld, text: &str) -> u32 {
    let rule = FaultRule::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let id = world.drive.add_fault(world.now, rule).unwrap_or_else(|e| panic!("{text}: {e}"));
    world.run();
    id
}

fn remove(world: &mut TestWorld, id: u32) {
    assert!(world.drive.remove_fault(id).is_some());
    world.run();
}

/// A drive whose medium is memory, and a host of tenant gold with an I/O queue.
struct Rig {
    world: TestWorld,
    host: Fabric,
    /// Blocks of 512 bytes, by the byte that they begin at.
    medium: BTreeMap<u64, [u8; 512]>,
    cid: u16,
}

impl Rig {
    fn with(change: impl FnOnce(&mut SubsystemConfig)) -> Rig {
        let mut world = drive(change);
        let host = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
        Rig { world, host, medium: BTreeMap::new(), cid: 0 }
    }

    fn new() -> Rig {
        Self::with(|_| {})
    }

    /// Sends a command; what it is called.
    fn send(&mut self, sqe: Sqe, data: &[u8]) -> u32 {
        self.cid += 1;
        let sqe = Sqe { cid: self.cid.into(), ..sqe };
        let tag = u32::from(self.cid) + 1000;
        let (queue, owner) = (self.host.queues[1], Owner(self.host.base + 1));
        self.world.host.data.insert((owner.0, tag), if data.is_empty() { vec![0; 4096] } else { data.to_vec() });
        self.world.capsule(owner, queue, tag, sqe);
        tag
    }

    fn settle(&mut self) {
        self.world.run();
        while !self.world.issued.is_empty() {
            let io = self.world.issued[0];
            self.carry_out(&io);
            self.world.done(0, Status::SUCCESS);
            self.world.run();
        }
    }

    /// Has what is due carried out, millisecond by millisecond.
    fn go_on(&mut self, millis: u32) {
        for _ in 0..millis {
            self.settle();
            self.world.pass(Nanos::from_millis(1));
        }
        self.settle();
    }

    fn carry_out(&mut self, io: &weir_controller::Io) {
        for at in (0..io.len).step_by(512) {
            let block = self.medium.entry(io.offset + u64::from(at)).or_insert([0; 512]);
            match io.op {
                Op::Read => self.world.host.write_data(io.owner, &io.data, io.skip + at, &block[..]).expect("reads"),
                Op::Write => io.read_data(&mut self.world.host, at, &mut block[..]).expect("writes"),
                _ => {}
            }
        }
    }

    fn answer(&mut self, tag: u32) -> Option<Status> {
        let owner = Owner(self.host.base + 1);
        self.world.answer(owner, tag).map(|cqe| cqe.status())
    }

    /// Sends a command and has it done; its status.
    fn status(&mut self, sqe: Sqe, data: &[u8]) -> Status {
        let tag = self.send(sqe, data);
        self.settle();
        self.answer(tag).expect("it is answered")
    }

    fn write(&mut self, lba: u64, blocks: u32, byte: u8) -> Status {
        self.status(io(WRITE, 0, lba, blocks), &vec![byte; blocks as usize * 512])
    }

    fn read(&mut self, lba: u64, blocks: u32) -> Vec<u8> {
        let tag = self.send(io(READ, 0, lba, blocks), &vec![0xee; blocks as usize * 512]);
        self.settle();
        assert_eq!(self.answer(tag), Some(Status::SUCCESS));
        let owner = Owner(self.host.base + 1);
        self.world.host.data[&(owner.0, tag)].clone()
    }

    fn log(&mut self, lid: u8, bytes: usize) -> Vec<u8> {
        let cdw10 = u32::from(lid) | (bytes as u32 / 4 - 1) << 16;
        let sqe = Sqe { nsid: u32::MAX.into(), ..admin(AdminOpcode::GET_LOG_PAGE, 70, cdw10, 0) };
        let (cqe, data) = self.host.admin_data(&mut self.world, sqe);
        assert!(cqe.status().is_success());
        data
    }

    fn smart(&mut self) -> Smart {
        Smart::read_from_bytes(&self.log(lid::SMART, 512)[..512]).expect("512 bytes")
    }

    fn newest_error(&mut self) -> ErrorEntry {
        ErrorEntry::read_from_bytes(&self.log(lid::ERROR, 64)[..64]).expect("64 bytes")
    }

    fn identify_namespace(&mut self, nsid: u32) -> IdentifyNamespace {
        let (cqe, data) = self.host.admin_data(&mut self.world, identify(0, nsid));
        assert!(cqe.status().is_success());
        IdentifyNamespace::read_from_bytes(&data[..4096]).expect("4096 bytes")
    }
}

#[test]
fn a_media_error_is_answered_counted_and_logged_as_a_real_drives() {
    let mut rig = Rig::new();
    assert!(rig.write(0, 32, 7).is_success());
    let id = add(&mut rig.world, "media-error lba=10-11 op=read,write");
    assert_eq!(rig.status(io(READ, 0, 8, 4), &[]), Status::UNRECOVERED_READ_ERROR);
    let entry = rig.newest_error();
    let logged = (entry.lba.get(), entry.nsid.get(), entry.sqid.get(), entry.status_field.get() >> 1);
    assert_eq!(logged, (10, 1, 1, Status::UNRECOVERED_READ_ERROR.field()), "the first block that is to blame");
    assert_eq!(rig.smart().media_errors.get(), 1);
    assert_eq!(rig.write(11, 1, 9), Status::WRITE_FAULT);
    assert_eq!(rig.newest_error().lba.get(), 11);
    assert_eq!((rig.smart().media_errors.get(), rig.smart().error_entries.get()), (2, 2));
    assert_eq!(rig.read(8, 2), vec![7; 1024], "other blocks are as they were");
    assert_eq!(rig.status(io(READ, 0, 12, 4), &[]), Status::SUCCESS);
    let fault = &rig.world.drive.faults()[0];
    assert_eq!((fault.matched, fault.applied), (2, 2));
    remove(&mut rig.world, id);
    assert_eq!(rig.read(10, 2), vec![7; 1024], "and so is what could not be read, or written");
}

#[test]
fn any_status_goes_out_as_it_is_and_only_media_errors_are_counted() {
    for (text, status, media) in [
        ("status code=0/06h", Status::INTERNAL_ERROR, 0),
        ("status code=0/82h dnr=true", Status::NAMESPACE_NOT_READY.dnr(), 0),
        ("status code=0/21h crd=2", Status::from_field(0x21), 0),
        ("status code=3/02h", Status::new(3, 2), 0),
        ("status code=2/82h", Status::GUARD_CHECK_ERROR, 1),
        ("status code=2/85h", Status::COMPARE_FAILURE, 0),
        ("status code=7/ffh", Status::new(7, 0xff), 0),
        ("disk-full op=write", Status::CAPACITY_EXCEEDED.dnr(), 0),
    ] {
        let mut rig = Rig::new();
        add(&mut rig.world, text);
        assert_eq!(rig.write(3, 1, 1), status, "{text}");
        assert_eq!(rig.smart().media_errors.get(), media, "{text}");
        assert_eq!(rig.newest_error().status_field.get() >> 1, status.field(), "{text}");
    }
}

#[test]
fn the_retry_delays_are_told_where_failures_may_be_injected() {
    let mut plain = Rig::new();
    let id = identify_controller(&mut plain.world, &mut plain.host);
    assert_eq!((id.crdt1.get(), id.crdt2.get(), id.crdt3.get()), (0, 0, 0));
    let mut rig = Rig::with(|c| c.faults = true);
    let id = identify_controller(&mut rig.world, &mut rig.host);
    assert_eq!((id.crdt1.get(), id.crdt2.get(), id.crdt3.get()), (1, 10, 50));
}

#[test]
fn a_retry_delay_is_told_to_hosts_that_have_enabled_it() {
    let mut rig = Rig::with(|c| c.faults = true);
    add(&mut rig.world, "status code=0/21h crd=2 op=write");
    add(&mut rig.world, "status code=0/06h crd=1 admin=identify");
    let (io_status, admin_status) = (Status::from_field(0x21), Status::from_field(0x06));
    assert_eq!(rig.write(0, 1, 1), io_status);
    assert_eq!(rig.host.admin(&mut rig.world, identify(1, 0)).status(), admin_status);
    // ACRE of Host Behavior Support.
    let mut behavior = vec![0; 512];
    behavior[0] = 1;
    rig.world.host.data.insert((rig.host.base, rig.host.tags + 1), behavior);
    assert!(rig.host.admin(&mut rig.world, set_feature(0x16, 0)).status().is_success());
    assert_eq!(rig.write(0, 1, 1), Status::from_field(io_status.field() | 2 << 11));
    let status = rig.host.admin(&mut rig.world, identify(1, 0)).status();
    assert_eq!(status, Status::from_field(admin_status.field() | 1 << 11));
}

#[test]
fn rules_are_for_their_tenant_queue_and_namespace() {
    let mut rig = Rig::new();
    let mut silver = fabric_with_queues(&mut rig.world, "nqn.silver", 200, 1);
    add(&mut rig.world, "status code=0/06h tenant=silver");
    assert!(rig.write(0, 1, 1).is_success());
    let tag = silver.send(&mut rig.world, 1, io(READ, 1, 0, 1));
    rig.settle();
    assert_eq!(silver.answer(&mut rig.world, 1, tag).map(|c| c.status()), Some(Status::INTERNAL_ERROR));
    add(&mut rig.world, "status code=0/04h nsid=3");
    assert!(rig.write(0, 1, 1).is_success());
    let of_3 = Sqe { nsid: 3.into(), ..io(READ, 0, 0, 1) };
    assert_eq!(rig.status(of_3, &[]), Status::DATA_TRANSFER_ERROR);
    add(&mut rig.world, "status code=0/08h nsid=1 queue=2");
    assert!(rig.write(0, 1, 1).is_success());
}

#[test]
fn a_late_command_begins_later_by_so_much() {
    let mut rig = Rig::new();
    let id = add(&mut rig.world, "latency time=2ms op=read");
    let tag = rig.send(io(READ, 0, 0, 1), &[]);
    rig.settle();
    rig.world.pass(Nanos(1_999_999));
    rig.settle();
    assert_eq!(rig.answer(tag), None);
    assert!(rig.write(0, 1, 1).is_success(), "others overtake it");
    rig.world.pass(Nanos(1));
    rig.settle();
    assert_eq!(rig.answer(tag), Some(Status::SUCCESS));
    // What is late when its rule goes, goes on at once.
    let tag = rig.send(io(READ, 0, 0, 1), &[]);
    rig.settle();
    remove(&mut rig.world, id);
    rig.settle();
    assert_eq!(rig.answer(tag), Some(Status::SUCCESS));
}

#[test]
fn of_several_delays_those_of_removed_rules_are_not_waited_for() {
    let mut rig = Rig::new();
    add(&mut rig.world, "latency time=2ms");
    let long = add(&mut rig.world, "latency time=60min");
    let tag = rig.send(io(READ, 0, 0, 1), &[]);
    rig.settle();
    remove(&mut rig.world, long);
    rig.world.pass(Nanos(1_999_999));
    rig.settle();
    assert_eq!(rig.answer(tag), None);
    rig.world.pass(Nanos(1));
    rig.settle();
    assert_eq!(rig.answer(tag), Some(Status::SUCCESS));
}

#[test]
fn nothing_befalls_a_late_command_whose_rule_is_removed_meanwhile() {
    for text in ["corrupt op=read", "media-error op=read", "misdirected by=8 op=read"] {
        let mut rig = Rig::new();
        assert!(rig.write(0, 1, 7).is_success());
        add(&mut rig.world, "latency time=2ms op=read");
        let id = add(&mut rig.world, text);
        let tag = rig.send(io(READ, 0, 0, 1), &[0xee; 512]);
        rig.settle();
        remove(&mut rig.world, id);
        rig.world.pass(Nanos::from_millis(2));
        rig.settle();
        assert_eq!(rig.answer(tag), Some(Status::SUCCESS), "{text}");
        assert_eq!(rig.world.host.data[&(rig.host.base + 1, tag)], vec![7; 512], "{text}");
    }
}

#[test]
fn more_late_commands_than_slots_all_go_on() {
    for (text, stored, status) in [
        ("torn-write keep=1", 10, Status::SUCCESS),
        ("misdirected by=100", 40, Status::SUCCESS),
        ("lost-write", 0, Status::SUCCESS),
        ("corrupt op=write", 40, Status::SUCCESS),
        ("media-error op=write", 0, Status::WRITE_FAULT),
    ] {
        for latency in [Nanos(0), Nanos::from_millis(1)] {
            let mut rig = Rig::with(|c| (c.slots, c.latency) = (2, latency));
            add(&mut rig.world, "latency time=1ms");
            add(&mut rig.world, &format!("{text} nsid=1"));
            let tags: Vec<u32> = (0..10).map(|n| rig.send(io(WRITE, 0, n * 4, 4), &[9; 2048])).collect();
            rig.settle();
            rig.go_on(20);
            assert!(tags.iter().all(|tag| rig.answer(*tag) == Some(status)), "{text}, {latency}");
            assert_eq!(rig.medium.len(), stored, "{text}, {latency}");
        }
    }
}

#[test]
fn what_was_said_of_an_aborted_command_is_not_said_of_the_next_with_its_identifier() {
    let mut rig = Rig::with(|c| (c.slots, c.latency) = (1, Nanos::from_millis(10)));
    rig.send(io(WRITE, 0, 0, 1), &[7; 512]);
    rig.go_on(20);
    add(&mut rig.world, "latency time=1ms op=read");
    add(&mut rig.world, "corrupt op=read count=1");
    let late = rig.send(io(READ, 0, 0, 1), &[0xee; 512]);
    rig.world.run();
    rig.send(io(WRITE, 0, 8, 1), &[8; 512]);
    rig.world.run();
    // It has left the rules' hands and waits for the slot, which the write has.
    rig.world.pass(Nanos::from_millis(2));
    let cid = (late - 1000) as u16;
    let abort = admin(AdminOpcode::ABORT, 71, 1 | u32::from(cid) << 16, 0);
    let cqe = rig.host.admin(&mut rig.world, abort);
    assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, 0), "aborted");
    assert_eq!(rig.answer(late), Some(Status::ABORT_REQUESTED));
    rig.cid = cid - 1;
    let again = rig.send(io(READ, 0, 0, 1), &[0xee; 512]);
    rig.go_on(40);
    assert_eq!((again, rig.answer(again)), (late, Some(Status::SUCCESS)));
    assert_eq!(rig.world.host.data[&(rig.host.base + 1, again)], vec![7; 512]);
}

#[test]
fn a_command_that_waits_for_a_pair_is_corrupted_all_the_same() {
    let mut rig = Rig::with(|c| c.latency = Nanos::from_millis(1));
    add(&mut rig.world, "corrupt bytes=3 lba=0 op=write");
    let half = |opcode, fuse| {
        let sqe = io(opcode, 0, 0, 1);
        Sqe { flags: sqe.flags | fuse, ..sqe }
    };
    let (compare, swap) = (half(IoOpcode::COMPARE.0, 1), half(WRITE, 2));
    let pair = [rig.send(compare, &[0; 512]), rig.send(swap, &[5; 512])];
    rig.world.run();
    let tag = rig.send(io(WRITE, 0, 0, 1), &[6; 512]);
    rig.world.run();
    rig.go_on(10);
    assert!(pair.into_iter().chain([tag]).all(|tag| rig.answer(tag) == Some(Status::SUCCESS)));
    assert_eq!(rig.medium[&0].iter().filter(|byte| **byte != 6).count(), 3);
    assert!(rig.world.host.spoiled.is_empty(), "nothing is flipped any more");
}

#[test]
fn what_a_host_may_not_do_is_refused_before_any_rule_is_asked() {
    let mut rig = Rig::with(|c| c.management = Some(MANAGEMENT));
    add(&mut rig.world, "media-error");
    let protect = Sqe { nsid: 1.into(), ..set_feature(0x84, 1) };
    let tag = rig.host.send(&mut rig.world, 0, protect);
    rig.settle();
    assert!(rig.host.answer(&mut rig.world, 0, tag).is_some_and(|cqe| cqe.status().is_success()));
    assert_eq!(rig.write(0, 1, 1), Status::NAMESPACE_WRITE_PROTECTED.dnr());
    assert_eq!((rig.world.drive.faults()[0].matched, rig.smart().media_errors.get()), (0, 0));
    assert_eq!(rig.status(io(READ, 0, 0, 1), &[]), Status::UNRECOVERED_READ_ERROR);
}

#[test]
fn what_hangs_hangs_on_when_its_rule_can_apply_to_no_more() {
    let mut rig = Rig::new();
    add(&mut rig.world, "hang op=write count=1 lasts=10s");
    let tag = rig.send(io(WRITE, 0, 0, 1), &[5; 512]);
    rig.settle();
    // Anything else that happens to rules has what is held looked at.
    let other = add(&mut rig.world, "latency time=1ms op=flush");
    remove(&mut rig.world, other);
    rig.settle();
    assert_eq!(rig.answer(tag), None);
    rig.world.pass(Nanos::from_secs(9));
    rig.settle();
    assert_eq!(rig.answer(tag), None);
    rig.world.pass(Nanos::from_secs(1));
    rig.settle();
    assert_eq!(rig.answer(tag), Some(Status::SUCCESS), "its window is over");
}

#[test]
fn a_late_command_may_fail_as_well() {
    let mut rig = Rig::new();
    add(&mut rig.world, "latency time=2ms");
    add(&mut rig.world, "media-error lba=8");
    let tag = rig.send(io(READ, 0, 8, 1), &[]);
    rig.settle();
    assert_eq!(rig.answer(tag), None);
    rig.world.pass(Nanos::from_millis(2));
    assert_eq!(rig.answer(tag), Some(Status::UNRECOVERED_READ_ERROR));
}

#[test]
fn a_command_that_hangs_cannot_be_aborted_and_goes_on_when_its_rule_goes() {
    let mut rig = Rig::new();
    let id = add(&mut rig.world, "hang op=write count=1");
    let tag = rig.send(io(WRITE, 0, 0, 1), &[5; 512]);
    rig.settle();
    rig.world.pass(Nanos::from_secs(3600));
    assert_eq!(rig.answer(tag), None);
    assert!(rig.write(1, 1, 6).is_success(), "the rule applies once");
    let abort = admin(AdminOpcode::ABORT, 71, 1 | 1 << 16, 0);
    let cqe = rig.host.admin(&mut rig.world, abort);
    assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, 1), "not aborted");
    remove(&mut rig.world, id);
    rig.settle();
    assert_eq!(rig.answer(tag), Some(Status::SUCCESS));
    assert_eq!(rig.read(0, 2), [vec![5; 512], vec![6; 512]].concat());
    assert!(rig.world.drive.faults().is_empty());
}

#[test]
fn what_hangs_goes_with_its_queue() {
    let mut rig = Rig::new();
    add(&mut rig.world, "hang");
    rig.send(io(WRITE, 0, 0, 1), &[5; 512]);
    rig.settle();
    let (queue, owner) = (rig.host.queues[1], Owner(rig.host.base + 1));
    rig.world.disconnect(owner, queue);
    rig.settle();
    rig.world.drive.remove_fault(1);
    rig.settle();
    assert!(rig.world.issued.is_empty() && rig.medium.is_empty(), "nothing of it is carried out");
}

#[test]
fn corrupted_bytes_are_wrong_at_the_host_or_on_the_medium() {
    let mut rig = Rig::new();
    assert!(rig.write(0, 8, 1).is_success());
    let id = add(&mut rig.world, "corrupt bytes=3 lba=2 op=read");
    let data = rig.read(0, 8);
    let wrong: Vec<usize> = (0..data.len()).filter(|at| data[*at] != 1).collect();
    assert_eq!(wrong, [1024, 1025, 1026]);
    remove(&mut rig.world, id);
    assert_eq!(rig.read(0, 8), vec![1; 4096], "the medium is as it was");
    add(&mut rig.world, "corrupt bytes=3 lba=2 op=write count=1 seed=5");
    assert!(rig.write(0, 8, 2).is_success());
    let data = rig.read(0, 8);
    let wrong: Vec<usize> = (0..data.len()).filter(|at| data[*at] != 2).collect();
    assert_eq!(wrong, [1024, 1025, 1026]);
    assert!(rig.world.host.spoiled.is_empty(), "nothing is flipped any more");
}

#[test]
fn what_is_to_be_flipped_is_forgotten_with_its_queue() {
    let mut rig = Rig::with(|c| c.latency = Nanos::from_millis(1));
    add(&mut rig.world, "corrupt op=read");
    rig.send(io(READ, 0, 0, 1), &[]);
    rig.world.run();
    assert!(!rig.world.host.spoiled.is_empty());
    let (queue, owner) = (rig.host.queues[1], Owner(rig.host.base + 1));
    rig.world.disconnect(owner, queue);
    rig.world.run();
    assert!(rig.world.host.spoiled.is_empty());
}

#[test]
fn torn_misdirected_and_lost_writes_succeed_and_store_something_else() {
    let mut rig = Rig::new();
    let blocks = |rig: &Rig| rig.medium.iter().filter(|(_, b)| b[0] == 3).map(|(at, _)| at / 512).collect::<Vec<u64>>();
    for (text, lba, stored) in [
        ("torn-write keep=2", 10, vec![10, 11]),
        ("misdirected by=100", 10, vec![110, 111, 112, 113]),
        ("misdirected by=-8", 10, vec![2, 3, 4, 5]),
        ("lost-write", 10, vec![]),
    ] {
        let id = add(&mut rig.world, &format!("{text} nsid=1"));
        rig.medium.clear();
        assert!(rig.write(lba, 4, 3).is_success(), "{text}");
        assert_eq!(blocks(&rig), stored, "{text}");
        remove(&mut rig.world, id);
    }
    // At the end of the namespace it goes round, and stays in it.
    add(&mut rig.world, "misdirected by=8 nsid=1");
    rig.medium.clear();
    let last = (1 << 30) / 512 - 4;
    assert!(rig.write(last, 4, 3).is_success());
    assert_eq!(blocks(&rig), [7, 8, 9, 10]);
}

#[test]
fn read_only_media_take_no_writes_and_smart_says_so() {
    let mut rig = Rig::new();
    assert!(rig.write(0, 1, 1).is_success());
    // All critical warnings as events.
    assert!(rig.host.admin(&mut rig.world, set_feature(0x0b, 0x1f)).status().is_success());
    let event = rig.host.send(&mut rig.world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 5, 0, 0));
    rig.world.run();
    let id = add(&mut rig.world, "read-only");
    let told = rig.host.answer(&mut rig.world, 0, event).expect("an event");
    assert_eq!(told.dw0.get(), u32::from(lid::SMART) << 16 | 1, "SMART / health status: reliability");
    assert_eq!(rig.smart().critical_warning, critical_warning::READ_ONLY);
    let refused = Status::new(1, 0x82).dnr();
    assert_eq!(rig.write(0, 1, 2), refused);
    assert_eq!(rig.newest_error().status_field.get() >> 1, refused.field());
    assert_eq!(rig.read(0, 1), vec![1; 512]);
    assert_eq!(rig.smart().media_errors.get(), 0);
    remove(&mut rig.world, id);
    assert_eq!(rig.smart().critical_warning, 0);
    assert!(rig.write(0, 1, 2).is_success());
}

#[test]
fn media_are_read_only_for_the_namespace_and_the_tenant_of_the_rule() {
    let mut rig = Rig::new();
    let refused = Status::new(1, 0x82).dnr();
    let of_3 = || Sqe { nsid: 3.into(), ..io(WRITE, 0, 0, 1) };
    let first = add(&mut rig.world, "read-only nsid=1");
    assert_eq!((rig.write(0, 1, 1), rig.status(of_3(), &[0; 4096])), (refused, Status::SUCCESS));
    let third = add(&mut rig.world, "read-only nsid=3");
    remove(&mut rig.world, first);
    assert_eq!((rig.write(0, 1, 1), rig.status(of_3(), &[0; 4096])), (Status::SUCCESS, refused));
    assert_eq!(rig.smart().critical_warning, critical_warning::READ_ONLY, "the other rule is there yet");
    remove(&mut rig.world, third);
    assert_eq!(rig.smart().critical_warning, 0);
    let silvers = add(&mut rig.world, "read-only tenant=silver");
    assert!(rig.write(0, 1, 1).is_success());
    // What becomes of the medium meanwhile is no rule's.
    rig.world.drive.note_media_fault(true);
    remove(&mut rig.world, silvers);
    assert_eq!(rig.smart().critical_warning, critical_warning::READ_ONLY | critical_warning::RELIABILITY);
}

#[test]
fn smart_drifts_evenly_and_warns_when_a_threshold_is_crossed() {
    let mut rig = Rig::new();
    assert!(rig.host.admin(&mut rig.world, set_feature(0x0b, 0x1f)).status().is_success());
    let event = rig.host.send(&mut rig.world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 5, 0, 0));
    add(&mut rig.world, "smart spare=0 wear=100 media_errors=50 temperature=333 over=100s");
    rig.world.pass(Nanos::from_secs(50));
    let half = rig.smart();
    let seen = (half.available_spare, half.percentage_used, half.media_errors.get(), half.temperature.get());
    assert_eq!(seen, (50, 50, 25, 323));
    assert_eq!((half.critical_warning, rig.host.answer(&mut rig.world, 0, event).is_none()), (0, true));
    rig.world.pass(Nanos::from_secs(45));
    rig.world.run();
    let told = rig.host.answer(&mut rig.world, 0, event).expect("an event");
    assert_eq!(told.dw0.get(), u32::from(lid::SMART) << 16 | 2 << 8 | 1, "spare below threshold");
    assert_eq!(rig.smart().critical_warning, critical_warning::SPARE);
    rig.world.pass(Nanos::from_secs(60));
    let end = rig.smart();
    let seen = (end.available_spare, end.percentage_used, end.media_errors.get(), end.temperature.get());
    assert_eq!(seen, (0, 100, 50, 333));
    remove(&mut rig.world, 1);
    let after = rig.smart();
    let seen = (after.available_spare, after.percentage_used, after.media_errors.get(), after.critical_warning);
    assert_eq!(seen, (100, 0, 50, 0), "what was counted stays counted");
}

#[test]
fn heat_is_an_event_of_its_own() {
    let mut rig = Rig::new();
    assert!(rig.host.admin(&mut rig.world, set_feature(0x0b, 0x1f)).status().is_success());
    let event = rig.host.send(&mut rig.world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 5, 0, 0));
    add(&mut rig.world, "smart temperature=360");
    rig.world.pass(Nanos::from_secs(1));
    rig.world.run();
    let told = rig.host.answer(&mut rig.world, 0, event).expect("an event");
    assert_eq!(told.dw0.get(), u32::from(lid::SMART) << 16 | 1 << 8 | 1, "temperature threshold");
    assert_eq!(rig.smart().critical_warning, critical_warning::TEMPERATURE);
}

#[test]
fn a_stuck_queue_is_not_fetched_from_until_the_rule_goes() {
    let mut rig = Rig::new();
    let mut two = fabric_with_queues(&mut rig.world, "nqn.gold", 300, 2);
    let id = add(&mut rig.world, "stuck-queue queue=2");
    assert!(rig.write(0, 1, 1).is_success());
    let stuck = two.send(&mut rig.world, 2, io(READ, 1, 0, 1));
    let other = two.send(&mut rig.world, 1, io(READ, 2, 0, 1));
    rig.settle();
    assert!(two.answer(&mut rig.world, 1, other).is_some() && two.answer(&mut rig.world, 2, stuck).is_none());
    // A queue that comes later is stuck as well.
    let mut late = fabric_with_queues(&mut rig.world, "nqn.gold", 400, 2);
    let second = late.send(&mut rig.world, 2, io(READ, 1, 0, 1));
    rig.settle();
    assert!(late.answer(&mut rig.world, 2, second).is_none());
    remove(&mut rig.world, id);
    rig.settle();
    assert!(two.answer(&mut rig.world, 2, stuck).is_some() && late.answer(&mut rig.world, 2, second).is_some());
}

#[test]
fn a_fatal_controller_says_so_and_serves_again_after_a_reset() {
    let mut rig = Rig::new();
    let mut ring = TestRing::ready(&mut rig.world, 0, Owner(1), ams::RR);
    ring.add_queue(&mut rig.world, 1, 8, 0);
    add(&mut rig.world, "controller-fatal op=write after=1");
    for n in 0..2 {
        assert_eq!(csts(&ring, &rig.world).cfs(), 0, "{n} writes");
        rig.send(io(WRITE, 0, 0, 1), &[0; 512]);
        rig.settle();
    }
    rig.world.run();
    assert_eq!(csts(&ring, &rig.world).cfs(), 1, "the second write triggers it");
    assert_eq!(rig.world.closing.len(), 2, "connections of both queues are closed");
    ring.write(&mut rig.world, register::CC, 0);
    assert_eq!((csts(&ring, &rig.world).cfs(), csts(&ring, &rig.world).rdy()), (0, 0));
    ring.enable(&mut rig.world, 8, 8, ams::RR);
    assert_eq!((csts(&ring, &rig.world).cfs(), csts(&ring, &rig.world).rdy()), (0, 1));
}

#[test]
fn a_slow_reset_takes_its_time_and_a_failed_one_never_ends() {
    let mut world = drive(|_| {});
    let ring = TestRing::ready(&mut world, 0, Owner(1), ams::RR);
    let slow = add(&mut world, "slow-reset time=5s");
    ring.write(&mut world, register::CC, 0);
    assert_eq!(csts(&ring, &world).rdy(), 0);
    ring.write(&mut world, register::CC, CC_EN.into());
    world.pass(Nanos(4_999_999_999));
    assert_eq!(csts(&ring, &world).rdy(), 0);
    world.pass(Nanos(1));
    assert_eq!(csts(&ring, &world).rdy(), 1);
    remove(&mut world, slow);
    let fails = add(&mut world, "reset-fails");
    ring.write(&mut world, register::CC, 0);
    world.pass(Nanos::from_secs(100));
    assert_eq!(csts(&ring, &world).rdy(), 1, "CSTS.RDY stays where it was");
    ring.write(&mut world, register::CC, CC_EN.into());
    world.pass(Nanos::from_secs(100));
    assert_eq!(csts(&ring, &world).rdy(), 0);
    remove(&mut world, fails);
    assert_eq!(csts(&ring, &world).rdy(), 1);
}

#[test]
fn the_end_of_a_slow_reset_is_not_that_of_another_tenants() {
    let mut world = drive(|_| {});
    let gold = TestRing::ready(&mut world, 0, Owner(1), ams::RR);
    let silver = TestRing::ready(&mut world, 1, Owner(2), ams::RR);
    add(&mut world, "reset-fails tenant=gold");
    let slow = add(&mut world, "slow-reset time=5s tenant=silver");
    for ring in [&gold, &silver] {
        ring.write(&mut world, register::CC, 0);
        ring.write(&mut world, register::CC, CC_EN.into());
    }
    let ready = |world: &TestWorld| [&gold, &silver].map(|ring| csts(ring, world).rdy());
    assert_eq!(ready(&world), [0, 0]);
    remove(&mut world, slow);
    assert_eq!(ready(&world), [0, 1]);
}

#[test]
fn a_stuck_queue_is_not_written_down_as_one() {
    let mut world = drive(|_| {});
    let mut ring = TestRing::ready(&mut world, 0, Owner(1), ams::RR);
    ring.add_queue(&mut world, 1, 8, 0);
    let before = world.drive.functions(world.now);
    let id = add(&mut world, "stuck-queue");
    assert_eq!(world.drive.functions(world.now), before);
    ring.submit(&mut world, 1, io(READ, 0, 0, 1)).expect("the queue has room");
    world.settle();
    assert!(ring.reap(&mut world, 1).is_empty());
    remove(&mut world, id);
    world.settle();
    assert_eq!(ring.reap(&mut world, 1).len(), 1);
}

#[test]
fn a_lost_link_closes_connections_and_reads_as_ones_until_it_is_back() {
    let mut rig = Rig::new();
    let mut ring = TestRing::ready(&mut rig.world, 0, Owner(1), ams::RR);
    let silver = fabric_with_queues(&mut rig.world, "nqn.silver", 200, 1);
    add(&mut rig.world, "link-loss tenant=gold lasts=15s");
    assert_eq!(rig.world.closing.len(), 2, "gold's connections");
    for (owner, queue) in std::mem::take(&mut rig.world.closing) {
        rig.world.disconnect(owner, queue);
    }
    assert_eq!(ring.read(&rig.world, register::CSTS), u64::from(u32::MAX));
    ring.write(&mut rig.world, register::CC, CC_EN.into());
    let refused = Fabric::connect(&mut rig.world, "nqn.gold", 500, 0).expect_err("nobody is there");
    assert_eq!(
        (refused.status, refused.status.is_dnr()),
        (Status::CONNECT_CONTROLLER_BUSY, false),
        "to be tried again"
    );
    let mut silver = silver;
    let tag = silver.send(&mut rig.world, 1, io(READ, 1, 0, 1));
    rig.settle();
    assert!(silver.answer(&mut rig.world, 1, tag).is_some(), "others have theirs");
    rig.world.pass(Nanos::from_secs(15));
    rig.world.run();
    assert_eq!(
        (csts(&ring, &rig.world).rdy(), ring.read(&rig.world, register::CC)),
        (0, 0),
        "as after a link that was down"
    );
    ring.enable(&mut rig.world, 8, 8, ams::RR);
    assert_eq!(csts(&ring, &rig.world).rdy(), 1);
    rig.host = fabric_with_queues(&mut rig.world, "nqn.gold", 500, 1);
    assert!(rig.write(0, 1, 1).is_success());
}

#[test]
fn requests_of_a_virtio_queue_wait_until_the_link_is_back() {
    let mut world = drive(|_| {});
    let owner = Owner(7);
    let attach = Attach { tenant: 0, owner, model: TransportModel::Front, host: "vm".into() };
    let front = world.drive.attach(world.now, attach).expect("it may attach");
    let queue: SqHandle = world.drive.add_message_queue(front, 8, None, owner).expect("it may have a queue");
    add(&mut world, "link-loss lasts=15s");
    world.host.pending.insert((owner.0, 3), 3);
    let request = BlockRequest { op: Op::Read, nsid: 1, offset: 0, len: 512, fua: false };
    world.event(Event::Submit { queue, request, tag: Tag(3) });
    world.settle();
    assert!(world.host.answers.is_empty() && world.closing.is_empty());
    world.pass(Nanos::from_secs(15));
    world.settle();
    assert_eq!(world.host.answers.back().map(|(_, tag, cqe)| (*tag, cqe.status())), Some((Tag(3), Status::SUCCESS)));
}

#[test]
fn what_comes_back_after_a_removal_is_the_same_drive_or_another() {
    let identity = |rig: &mut Rig| {
        let sn = identify_controller(&mut rig.world, &mut rig.host).sn;
        (sn, rig.identify_namespace(1).nguid)
    };
    for (back, same) in [("same", true), ("other", false)] {
        let mut rig = Rig::new();
        let before = identity(&mut rig);
        let id = add(&mut rig.world, &format!("removal back={back} lasts=10s"));
        for (owner, queue) in std::mem::take(&mut rig.world.closing) {
            rig.world.disconnect(owner, queue);
        }
        rig.world.pass(Nanos::from_secs(10));
        rig.world.run();
        rig.host = fabric_with_queues(&mut rig.world, "nqn.gold", 500, 1);
        let after = identity(&mut rig);
        assert_eq!((after.0 == before.0, after.1 == before.1), (same, same), "{back}");
        remove(&mut rig.world, id);
        assert_eq!(identity(&mut rig), before, "without the rule it is the drive that it was");
    }
}

#[test]
fn it_is_another_drive_for_the_tenant_of_the_rule() {
    let mut rig = Rig::new();
    let mut silver = fabric_with_queues(&mut rig.world, "nqn.silver", 200, 1);
    let serials = |rig: &mut Rig, silver: &mut Fabric| {
        let gold = identify_controller(&mut rig.world, &mut rig.host).sn;
        (gold, identify_controller(&mut rig.world, silver).sn)
    };
    let before = serials(&mut rig, &mut silver);
    add(&mut rig.world, "removal back=other lasts=10s tenant=silver");
    for (owner, queue) in std::mem::take(&mut rig.world.closing) {
        rig.world.disconnect(owner, queue);
    }
    rig.world.pass(Nanos::from_secs(10));
    rig.world.run();
    let mut silver = fabric_with_queues(&mut rig.world, "nqn.silver", 500, 1);
    let after = serials(&mut rig, &mut silver);
    assert_eq!((after.0 == before.0, after.1 == before.1), (true, false));
}

const MANAGEMENT: Management = Management { capacity: 4 << 30, least_block: 512, metadata: false };

#[test]
fn a_namespace_that_a_rule_shrinks_is_written_down_as_it_is() {
    for management in [None, Some(MANAGEMENT)] {
        let mut rig = Rig::with(|c| c.management = management);
        add(&mut rig.world, "namespace-resized nsid=1 blocks=100");
        assert_eq!(rig.identify_namespace(1).nsze.get(), 100);
        let mut next = Subsystem::new(rig.world.drive.config().clone(), rig.world.now).expect("a drive");
        next.restore(&rig.world.drive.save()).expect("its state");
        assert_eq!(next.namespace(1), Some((1 << 30, 512)));
        let rule = FaultRule::parse("namespace-resized nsid=1 blocks=100").expect("a rule");
        assert_eq!(next.add_fault(rig.world.now, rule), Ok(1), "the next process begins with it again");
        next.check();
    }
}

#[test]
fn a_namespace_that_was_formatted_meanwhile_gets_its_own_size_back() {
    let mut rig = Rig::with(|c| c.management = Some(MANAGEMENT));
    let id = add(&mut rig.world, "namespace-resized nsid=1 blocks=100");
    let formats = rig.identify_namespace(1).lbaf;
    let index = formats.iter().position(|f| f.lbads == 12 && f.ms.get() == 0).expect("blocks of 4 KiB") as u32;
    let format = Sqe { nsid: 1.into(), ..admin(AdminOpcode::FORMAT_NVM, 63, index, 0) };
    let tag = rig.host.send(&mut rig.world, 0, format);
    rig.settle();
    assert!(rig.host.answer(&mut rig.world, 0, tag).is_some_and(|cqe| cqe.status().is_success()));
    remove(&mut rig.world, id);
    assert_eq!(rig.identify_namespace(1).nsze.get(), (1 << 30) / 4096);
}

#[test]
fn a_namespace_that_was_gone_is_there_for_those_that_had_it() {
    let mut rig = Rig::with(|c| c.management = Some(MANAGEMENT));
    let sees = |rig: &mut Rig, host: &mut Fabric| {
        let (cqe, data) = host.admin_data(&mut rig.world, identify(0, 1));
        assert!(cqe.status().is_success());
        data[..8] != [0; 8]
    };
    let mut silver = fabric_with_queues(&mut rig.world, "nqn.silver", 200, 1);
    let id = add(&mut rig.world, "namespace-gone nsid=1");
    let mut late = fabric_with_queues(&mut rig.world, "nqn.gold", 400, 1);
    assert!(!sees(&mut rig, &mut silver) && !sees(&mut rig, &mut late));
    assert_eq!(rig.status(io(READ, 0, 0, 1), &[]), Status::INVALID_FIELD.dnr());
    remove(&mut rig.world, id);
    assert!(sees(&mut rig, &mut silver) && sees(&mut rig, &mut late));
    // One that a host has detached stays so.
    let cntlid = identify_controller(&mut rig.world, &mut silver).cntlid;
    let ids = [&1u16.to_le_bytes()[..], &cntlid.get().to_le_bytes(), &[0; 4092]].concat();
    let detach = Sqe { nsid: 1.into(), ..admin(AdminOpcode::NAMESPACE_ATTACHMENT, 64, 1, 0) };
    rig.world.host.data.insert((silver.base, silver.tags + 1), ids);
    let tag = silver.send(&mut rig.world, 0, detach);
    rig.settle();
    assert!(silver.answer(&mut rig.world, 0, tag).is_some_and(|cqe| cqe.status().is_success()));
    let id = add(&mut rig.world, "namespace-gone nsid=1");
    remove(&mut rig.world, id);
    assert!(!sees(&mut rig, &mut silver) && sees(&mut rig, &mut late));
}

#[test]
fn a_namespace_changes_its_identity_its_size_or_goes_and_hosts_are_told() {
    let mut rig = Rig::new();
    assert!(rig.host.admin(&mut rig.world, set_feature(0x0b, 1 << 8)).status().is_success());
    let before = rig.identify_namespace(1);
    for text in ["namespace-identity nsid=1", "namespace-resized nsid=1 blocks=100", "namespace-gone nsid=1"] {
        let event = rig.host.send(&mut rig.world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 5, 0, 0));
        let id = add(&mut rig.world, text);
        let told = rig.host.answer(&mut rig.world, 0, event).expect(text);
        assert_eq!(told.dw0.get() & 0xff_ffff, u32::from(lid::CHANGED_NAMESPACES) << 16 | 2, "{text}");
        assert_eq!(rig.log(lid::CHANGED_NAMESPACES, 8)[..4], 1u32.to_le_bytes(), "{text}");
        let now = rig.identify_namespace(1);
        match id {
            1 => assert!(now.nguid != before.nguid && now.nsze == before.nsze),
            2 => {
                assert_eq!((now.nguid, now.nsze.get()), (before.nguid, 100));
                assert_eq!(rig.status(io(READ, 0, 100, 1), &[]), Status::LBA_OUT_OF_RANGE.dnr());
            }
            _ => assert_eq!(rig.status(io(READ, 0, 0, 1), &[]), Status::INVALID_FIELD.dnr(), "inactive"),
        }
        remove(&mut rig.world, id);
        let _ = rig.log(lid::CHANGED_NAMESPACES, 4096);
        let again = rig.identify_namespace(1);
        assert_eq!((again.nguid, again.nsze), (before.nguid, before.nsze), "{text}");
        assert!(rig.status(io(READ, 0, 0, 1), &[]).is_success(), "{text}");
    }
}

#[test]
fn admin_commands_fail_late_or_hang_by_their_names() {
    let mut rig = Rig::new();
    add(&mut rig.world, "status code=0/06h admin=get-log-page count=1");
    let sqe = Sqe { nsid: u32::MAX.into(), ..admin(AdminOpcode::GET_LOG_PAGE, 70, 2 | 127 << 16, 0) };
    assert_eq!(rig.host.admin(&mut rig.world, sqe).status(), Status::INTERNAL_ERROR);
    assert!(rig.host.admin(&mut rig.world, sqe).status().is_success());
    assert!(rig.write(0, 1, 1).is_success(), "I/O is another matter");
    let id = add(&mut rig.world, "hang admin=identify");
    let tag = rig.host.send(&mut rig.world, 0, identify(1, 0));
    rig.world.run();
    rig.world.pass(Nanos::from_secs(60));
    assert!(rig.host.answer(&mut rig.world, 0, tag).is_none());
    remove(&mut rig.world, id);
    assert!(rig.host.answer(&mut rig.world, 0, tag).is_some_and(|cqe| cqe.status().is_success()));
    add(&mut rig.world, "latency time=1s admin=identify");
    let tag = rig.host.send(&mut rig.world, 0, identify(1, 0));
    rig.world.run();
    assert!(rig.host.answer(&mut rig.world, 0, tag).is_none());
    rig.world.pass(Nanos::from_secs(1));
    assert!(rig.host.answer(&mut rig.world, 0, tag).is_some());
    // Neither lasts longer than its rule.
    let fails = add(&mut rig.world, "status code=0/06h admin=identify");
    let tag = rig.host.send(&mut rig.world, 0, identify(1, 0));
    rig.world.run();
    remove(&mut rig.world, fails);
    remove(&mut rig.world, 3);
    assert!(rig.host.answer(&mut rig.world, 0, tag).is_some_and(|cqe| cqe.status().is_success()));
}

/// Flash of four dies: block n lies on die n mod 4, and a retry takes 40 us.
#[derive(Debug, Default)]
struct FourDies {
    times: [u32; 4],
}

impl TimingModel for FourDies {
    fn begin(&mut self, now: Nanos, operation: Operation) -> When {
        let die = (operation.offset / 512 % 4) as usize;
        When::at(now.saturating_add(Nanos(u64::from(self.times[die].max(1000)) * 100)))
    }
    fn flash_shape(&self) -> Option<FlashShape> {
        Some(FlashShape { channels: 2, dies: 4, blocks: 1 << 20, pages: 64, mapped: true })
    }
    fn place_of(&self, offset: u64) -> Option<FlashPlace> {
        let die = (offset / 512 % 4) as u32;
        Some(FlashPlace { channel: die % 2, die, block: 0, page: 0 })
    }
    fn retry_time(&self) -> Option<Nanos> {
        Some(Nanos::from_micros(40))
    }
    fn set_die_times(&mut self, die: u32, thousandths: u32) {
        self.times[die as usize] = thousandths;
    }
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

impl Rig {
    fn on_flash() -> Rig {
        let mut rig = Rig::new();
        rig.world.drive.set_service(Box::<FourDies>::default());
        rig
    }

    /// How long a read takes, and how it ends.
    fn timed(&mut self, lba: u64, blocks: u32) -> (Nanos, Status) {
        let (tag, began) = (self.send(io(READ, 0, lba, blocks), &[0; 4096]), self.world.now);
        for _ in 0..1000 {
            self.settle();
            if let Some(status) = self.answer(tag) {
                return (self.world.now.saturating_sub(began), status);
            }
            let at = self.world.drive.next_deadline().expect("it is due some time");
            self.world.pass(at.saturating_sub(self.world.now));
        }
        panic!("it is never done");
    }
}

#[test]
fn reads_of_a_die_fail_retry_or_are_slow() {
    let ok = |us: u64| (Nanos::from_micros(us), Status::SUCCESS);
    let mut rig = Rig::on_flash();
    assert_eq!([0, 1, 2, 3].map(|lba| rig.timed(lba, 1)), [ok(100); 4]);
    let id = add(&mut rig.world, "media-error die=3");
    assert_eq!([0, 1, 2].map(|lba| rig.timed(lba, 1)), [ok(100); 3]);
    assert_eq!(rig.timed(4, 4).1, Status::UNRECOVERED_READ_ERROR);
    assert_eq!(rig.newest_error().lba.get(), 7, "the block that lies on it");
    assert!(rig.smart().media_errors.get() == 1);
    remove(&mut rig.world, id);
    let id = add(&mut rig.world, "correctable-error retries=2 channel=1");
    assert_eq!([0, 1, 2, 3].map(|lba| rig.timed(lba, 1)), [ok(100), ok(180), ok(100), ok(180)]);
    remove(&mut rig.world, id);
    let id = add(&mut rig.world, "slow-die times=5 die=2");
    assert_eq!([0, 1, 2, 3].map(|lba| rig.timed(lba, 1)), [ok(100), ok(100), ok(500), ok(100)]);
    remove(&mut rig.world, id);
    assert_eq!(rig.timed(2, 1), ok(100));
}

#[test]
fn ring_hosts_see_the_same() {
    let mut world = drive(|_| {});
    let mut ring = TestRing::ready(&mut world, 0, Owner(1), ams::RR);
    ring.add_queue(&mut world, 1, 8, 0);
    add(&mut world, "media-error lba=8 op=read");
    add(&mut world, "hang lba=9 op=read");
    for lba in [7, 8, 9] {
        let _ = ring.submit(&mut world, 1, io(READ, lba as u16, lba, 1));
    }
    world.settle();
    let done: Vec<Status> = ring.reap(&mut world, 1).iter().map(|cqe| cqe.status()).collect();
    assert_eq!(done.len(), 2, "the third hangs");
    assert!(done.contains(&Status::UNRECOVERED_READ_ERROR) && done.contains(&Status::SUCCESS));
    // A reset gets rid of it.
    ring.write(&mut world, register::CC, 0);
    assert_eq!(csts(&ring, &world).rdy(), 0);
    ring.enable(&mut world, 8, 8, ams::RR);
    assert_eq!(csts(&ring, &world).rdy(), 1);
}

#[test]
fn the_deletion_of_a_queue_gets_rid_of_what_hangs_in_it() {
    let mut world = drive(|_| {});
    let mut ring = TestRing::ready(&mut world, 0, Owner(1), ams::RR);
    ring.add_queue(&mut world, 1, 8, 0);
    let id = add(&mut world, "hang op=read");
    for n in 0..3 {
        let _ = ring.submit(&mut world, 1, io(READ, n, 8, 1));
    }
    world.settle();
    assert!(ring.reap(&mut world, 1).is_empty());
    let deleted = ring.admin(&mut world, admin(AdminOpcode::DELETE_IO_SQ, 5, 1, 0));
    assert!(deleted.status().is_success());
    remove(&mut world, id);
    world.settle();
    assert!(world.issued.is_empty() && ring.reap(&mut world, 1).is_empty(), "they never complete");
}

#[test]
fn the_same_rules_and_commands_fail_alike() {
    let run = |seed: u64| {
        let mut rig = Rig::new();
        add(&mut rig.world, &format!("status code=0/06h probability=0.3 seed={seed}"));
        (0..100).map(|n| rig.write(n, 1, 1).is_success()).collect::<Vec<bool>>()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn a_rule_that_is_refused_leaves_the_drive_as_it_was() {
    let mut rig = Rig::new();
    let rule = FaultRule::parse("hang nsid=9").expect("a rule");
    let refused = rig.world.drive.add_fault(rig.world.now, rule).expect_err("there is no namespace 9");
    assert_eq!(refused.to_string(), "nsid: the drive has no namespace 9; it has 1, 3");
    rig.world.drive.check();
    assert!(rig.world.drive.faults().is_empty() && rig.write(0, 1, 1).is_success());
    let tag = Data::Tag(Tag(0));
    assert_eq!(weir_controller::DataPointer::tag(Tag(0)).get(), tag);
}

/// The same rules in another process, which goes on from what the first one has done.
fn resumed(before: &TestWorld, rules: &[&str]) -> Rig {
    let mut rig = Rig::new();
    rig.world.now = before.now;
    for rule in rules {
        let rule = FaultRule::parse(rule).unwrap_or_else(|e| panic!("{e}"));
        rig.world.drive.add_fault(before.now, rule).unwrap_or_else(|e| panic!("{e}"));
    }
    let states = before.drive.fault_states();
    assert_eq!(rig.world.drive.resume_faults(&states), rules.len());
    rig.world.run();
    assert_eq!(rig.world.drive.fault_states(), states, "nothing has happened in between");
    rig
}

#[test]
fn a_rule_that_is_used_up_does_not_apply_again_in_another_process() {
    let rules = ["status code=0/06h count=1 op=read", "media-error after=2 count=1 op=write"];
    let mut first = Rig::new();
    rules.iter().for_each(|rule| _ = add(&mut first.world, rule));
    let seen = first.world.drive.fault_changes();
    assert_eq!(first.status(io(READ, 0, 0, 1), &[0; 512]), Status::INTERNAL_ERROR);
    assert!(first.write(0, 1, 1).is_success());
    assert!(first.world.drive.fault_changes() > seen);
    let mut second = resumed(&first.world, &rules);
    assert!(second.status(io(READ, 0, 0, 1), &[0; 512]).is_success(), "it was used up");
    assert!(second.write(0, 1, 1).is_success(), "the second write of three");
    assert_eq!(second.write(0, 1, 1), Status::WRITE_FAULT, "the third");
    let mut third = resumed(&second.world, &rules);
    assert!(third.write(0, 1, 1).is_success());
}

#[test]
fn a_condition_that_has_begun_does_not_begin_again_in_another_process() {
    let rules = ["controller-fatal lasts=60min", "smart media_errors=100 over=100s"];
    let mut first = Rig::new();
    rules.iter().for_each(|rule| _ = add(&mut first.world, rule));
    first.world.pass(Nanos::from_secs(50));
    let drifted = first.world.drive.fault_states()[1].drifted;
    assert!(drifted >= 49, "{drifted}");
    let mut second = resumed(&first.world, &rules);
    let ring = TestRing::ready(&mut second.world, 1, Owner(77), ams::RR);
    second.world.pass(Nanos::from_secs(1));
    assert_eq!(csts(&ring, &second.world).cfs(), 0, "it failed once");
    assert!(second.smart().media_errors.get() <= 3, "only what has come since: {}", second.smart().media_errors.get());
}
