//! Against a far side that does as the test says.

use super::*;
use crate::target::OpenOptions;
use std::sync::{Arc, Mutex};
use weir_controller::{DataPointer, Effects, NamespaceConfig, Op, Owner, SubsystemConfig, Tag};
use weir_spec::nvme::Cqe;
use weir_sys::keeper_channel::Keep;

/// What was submitted, and what is answered with the next poll.
#[derive(Default)]
struct Far {
    submitted: Vec<Request>,
    answers: Vec<Done>,
    is_lost: bool,
}

struct FarPair {
    far: Arc<Mutex<Far>>,
    buffer: Vec<u8>,
}

const DEPTH: u32 = 4;
const BLOCK: u32 = 512;
const CAPACITY: u64 = 1 << 20;

impl QueuePair for FarPair {
    fn depth(&self) -> u32 {
        DEPTH
    }
    fn block_size(&self) -> u32 {
        BLOCK
    }
    fn capacity(&self) -> u64 {
        CAPACITY
    }
    fn max_io(&self) -> u32 {
        4096
    }
    fn buffer(&mut self, _: u32) -> &mut [u8] {
        &mut self.buffer
    }
    fn submit(&mut self, io: Request) -> Result<(), TransportError> {
        self.far.lock().unwrap().submitted.push(io);
        Ok(())
    }
    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), TransportError> {
        let mut far = self.far.lock().unwrap();
        done.append(&mut far.answers);
        if far.is_lost { Err(TransportError::Closed("lost".into())) } else { Ok(()) }
    }
}

/// Hosts whose memory takes everything.
struct Sink;

impl Host for Sink {
    fn fetch(&mut self, _: Owner, _: u64) -> Result<[u64; 8], Status> {
        Err(Status::INTERNAL_ERROR)
    }
    fn post(&mut self, _: Owner, _: u64, _: Option<u16>, _: &Cqe) -> Result<(), Status> {
        Ok(())
    }
    fn interrupt(&mut self, _: Owner, _: u16) {}
    fn respond(&mut self, _: Owner, _: Tag, _: &Cqe) {}
    fn read_data(&mut self, _: Owner, _: &DataPointer, _: u32, into: &mut [u8]) -> Result<(), Status> {
        into.fill(0);
        Ok(())
    }
    fn write_data(&mut self, _: Owner, _: &DataPointer, _: u32, _: &[u8]) -> Result<(), Status> {
        Ok(())
    }
}

struct Bench {
    remote: Remote,
    machine: Subsystem,
    far: Arc<Mutex<Far>>,
    now: Nanos,
    ended: Vec<(SlotId, Status)>,
}

fn identity() -> DriveIdentity {
    DriveIdentity { nguid: [3; 16], capacity: CAPACITY, block_size: BLOCK, ..DriveIdentity::default() }
}

fn pair() -> (Box<FarPair>, Arc<Mutex<Far>>) {
    let far = Arc::new(Mutex::new(Far::default()));
    (Box::new(FarPair { far: far.clone(), buffer: vec![0; 4096] }), far)
}

impl Bench {
    fn new() -> Self {
        let mut config = SubsystemConfig::new("nqn.2026-11.io.weir:test:ssd0");
        config.namespaces =
            vec![NamespaceConfig { nsid: 1, start: 0, size: CAPACITY, block_size: BLOCK, uuid: [1; 16] }];
        let machine = Subsystem::new(config, Nanos(0)).unwrap();
        let (pair, far) = pair();
        let how = OpenOptions { depth: DEPTH, keep_alive_tmo: Nanos(0), answer_timeout: Nanos::from_secs(1) };
        let source = Source {
            drive: "ssd0".into(),
            nqn: "nqn.a".into(),
            target: "vfio-user:/nowhere/at/all.sock?ns=1".into(),
            how,
            keep: Keep::none(),
            fast_io_fail_tmo: Nanos::from_secs(60),
        };
        let origin = Origin { source, association: None, connections: Vec::new(), identity: Some(identity()) };
        let mut remote = Remote::new(pair, origin, None, None);
        remote.connector = Some(Connector::idle());
        Self { remote, machine, far, now: Nanos::from_secs(1), ended: Vec::new() }
    }

    /// A read of one block; commands are named by the block.
    fn read(&mut self, block: u32) {
        let (offset, data) = (u64::from(block * BLOCK), DataPointer::tag(Tag(0)));
        let (op, owner) = (Op::Read, Owner(0));
        let io = Io { slot: SlotId(block), owner, data, op, nsid: 1, offset, len: BLOCK, fua: false, skip: 0 };
        if let Some(status) = self.remote.start(io, &self.machine, &mut Sink) {
            self.ended.push((io.slot, status));
        }
    }

    fn poll(&mut self) {
        self.remote.poll(self.now, &mut self.machine, &mut Sink, &mut self.ended);
        self.machine.apply(self.now, weir_controller::Event::Tick, &mut Sink, &mut Effects::new(16));
    }

    fn after(&mut self, pause: Nanos) {
        self.now = self.now.saturating_add(pause);
        self.poll();
    }

    /// The far side answers what was submitted as a block's read.
    fn answer(&mut self, block: u32, status: Status) {
        let mut far = self.far.lock().unwrap();
        let at = far.submitted.iter().position(|io| io.offset == u64::from(block * BLOCK)).unwrap();
        let slot = far.submitted.remove(at).slot;
        far.answers.push(Done { slot, status });
    }

    /// Blocks at the far side, in the order in which they came.
    fn at_far_side(&self) -> Vec<u32> {
        let block = |io: &Request| (io.offset / u64::from(BLOCK)) as u32;
        self.far.lock().unwrap().submitted.iter().map(block).collect()
    }

    fn lose(&mut self) {
        self.far.lock().unwrap().is_lost = true;
        self.poll();
        self.poll();
    }

    /// The attempt that goes on has found a drive.
    fn find(&mut self, identity: DriveIdentity) {
        let (pair, far) = pair();
        let opened = Opened { pair, connections: Vec::new(), association: None, identity: Some(identity) };
        for step in [Step::Reached(Stage::Connected), Step::Reached(Stage::Enabled), Step::Opened(opened)] {
            self.remote.follow(self.now, step);
        }
        self.far = far;
        self.poll();
    }

    fn state(&self) -> LinkState {
        self.remote.link.state()
    }
}

const OK: Status = Status::SUCCESS;

#[test]
fn what_was_in_flight_is_sent_again_in_the_order_of_submission_and_ends_once() {
    let mut bench = Bench::new();
    (1..=7).for_each(|block| bench.read(block));
    bench.poll();
    assert_eq!(bench.at_far_side(), [1, 2, 3, 4]);
    // Slots become free in another order than they were taken.
    bench.answer(3, OK);
    bench.answer(1, OK);
    bench.poll();
    assert_eq!(bench.at_far_side(), [2, 4, 5, 6]);
    bench.lose();
    assert_eq!(bench.state(), LinkState::Connecting);
    bench.read(8);
    assert!(!bench.remote.must_poll(), "nothing is to be had by looking");
    assert_eq!(bench.remote.status(bench.now).held, 6);
    bench.find(identity());
    assert_eq!((bench.state(), bench.at_far_side()), (LinkState::Replaying, vec![2, 4, 5, 6]));
    for block in [6, 2, 4, 5] {
        bench.answer(block, OK);
    }
    bench.poll();
    assert_eq!((bench.state(), bench.at_far_side()), (LinkState::Serving, vec![7, 8]));
    bench.answer(8, OK);
    bench.answer(7, Status::LBA_OUT_OF_RANGE);
    bench.poll();
    let ended: Vec<u32> = bench.ended.iter().map(|(slot, _)| slot.0).collect();
    assert_eq!(ended, [3, 1, 6, 2, 4, 5, 8, 7]);
    assert_eq!(bench.remote.in_flight(), 0);
    assert!(bench.ended.iter().all(|(slot, status)| status.is_success() == (slot.0 != 7)));
}

#[test]
fn commands_wait_while_the_namespace_cannot_be_accessed() {
    for status in [Status::ANA_INACCESSIBLE, Status::ANA_TRANSITION.dnr(), Status::NAMESPACE_NOT_READY] {
        let mut bench = Bench::new();
        (1..=3).for_each(|block| bench.read(block));
        bench.poll();
        bench.answer(2, status);
        bench.poll();
        assert_eq!((bench.state(), bench.at_far_side()), (LinkState::Inaccessible, vec![1, 3]));
        bench.answer(1, status);
        bench.answer(3, OK);
        bench.read(4);
        bench.poll();
        assert_eq!((bench.ended.len(), bench.remote.status(bench.now).held), (1, 3));
        bench.after(Nanos::from_millis(10));
        assert_eq!((bench.state(), bench.at_far_side()), (LinkState::Replaying, vec![1, 2, 4]));
        bench.answer(1, status);
        bench.poll();
        assert_eq!((bench.state(), bench.at_far_side()), (LinkState::Inaccessible, vec![2, 4]));
        bench.answer(2, OK);
        bench.answer(4, OK);
        bench.after(Nanos::from_millis(20));
        assert_eq!(bench.at_far_side(), [1]);
        bench.answer(1, OK);
        bench.poll();
        assert_eq!((bench.state(), bench.ended.len()), (LinkState::Serving, 4));
        assert!(bench.ended.iter().all(|(_, status)| status.is_success()));
    }
    // Not ready for good is an error like others.
    let mut bench = Bench::new();
    bench.read(1);
    bench.poll();
    bench.answer(1, Status::NAMESPACE_NOT_READY.dnr());
    bench.poll();
    assert_eq!((bench.state(), bench.ended.len()), (LinkState::Serving, 1));
}

/// Commands fail after the deadline, at once from then on, and a read of the drive's own finds out that it is back.
#[test]
fn after_the_deadline_commands_fail_until_the_drive_answers() {
    let mut bench = Bench::new();
    (1..=6).for_each(|block| bench.read(block));
    bench.poll();
    bench.lose();
    bench.after(Nanos::from_secs(59));
    assert!(bench.ended.is_empty());
    bench.after(Nanos::from_secs(1));
    let failed = |bench: &Bench| bench.ended.iter().all(|(_, status)| status.same_code(Status::INTERNAL_PATH_ERROR));
    assert_eq!((bench.ended.len(), failed(&bench)), (6, true));
    bench.read(7);
    assert_eq!((bench.ended.len(), failed(&bench)), (7, true));
    let refused = TransportError::Unreachable("refused".into());
    bench.remote.follow(bench.now, Step::Failed(refused));
    bench.after(Nanos::from_secs(1));
    assert_eq!(bench.state(), LinkState::Connecting, "it goes on trying");
    bench.find(identity());
    assert_eq!((bench.state(), bench.at_far_side()), (LinkState::Replaying, vec![0]), "a read of the first block");
    bench.read(8);
    assert_eq!((bench.ended.len(), failed(&bench)), (8, true));
    bench.answer(0, OK);
    bench.poll();
    bench.read(9);
    bench.poll();
    assert_eq!((bench.state(), bench.at_far_side(), bench.ended.len()), (LinkState::Serving, vec![9], 8));
}

#[test]
fn commands_fail_where_another_drive_is() {
    let mut bench = Bench::new();
    bench.read(1);
    bench.poll();
    bench.lose();
    bench.find(DriveIdentity { nguid: [4; 16], ..identity() });
    assert_eq!(bench.ended, [(SlotId(1), Status::INTERNAL_PATH_ERROR)]);
    assert!(bench.remote.fault().is_some_and(|e| e.to_string().contains("another drive is there: its NGUID is 0404")));
}

/// A shard may sleep while its target says nothing, but not while it answers.
#[test]
fn a_silent_target_is_looked_at_by_the_clock() {
    let mut bench = Bench::new();
    bench.poll();
    bench.now = Nanos::from_secs(100);
    bench.read(1);
    bench.poll();
    assert!(bench.remote.must_poll(), "it has just been asked");
    bench.after(Nanos::from_millis(1));
    assert!(bench.remote.must_poll());
    bench.after(Nanos::from_millis(4));
    assert!(!bench.remote.must_poll());
    assert!(bench.remote.due() > bench.now && bench.remote.due() <= bench.now.saturating_add(Nanos::from_millis(5)));
    bench.read(2);
    assert!(bench.remote.must_poll(), "it leaves with the next poll");
    bench.answer(1, OK);
    bench.poll();
    assert!(bench.remote.must_poll(), "it answers again");
}
