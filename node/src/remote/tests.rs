//! Against a far side that does as the test says.

use super::*;
use crate::target::OpenOptions;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use weir_controller::{
    Attach, BlockRequest, ControllerHandle, DataPointer, Effect, Effects, Event, NamespaceConfig, Op, Owner, SqHandle,
    SubsystemConfig, Tag, TransportModel,
};
use weir_driver::health::{Gate, SmartReading, Verdict};
use weir_spec::nvme::Cqe;
use weir_sys::keeper_channel::Keep;

/// What was submitted, and what is answered with the next poll.
#[derive(Default)]
struct Far {
    submitted: Vec<Request>,
    answers: Vec<Done>,
    notices: Vec<NamespaceNotice>,
    is_lost: bool,
    /// Media errors that its SMART log counts.
    media_errors: u128,
    is_asked: bool,
}

struct FarPair {
    far: Arc<Mutex<Far>>,
    buffer: Vec<u8>,
}

const DEPTH: u32 = 4;
const BLOCK: u32 = 512;
const CAPACITY: u64 = 1 << 20;
const MAX_ZEROES: u32 = 256 << 10;

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
    fn max_zeroes(&self) -> u32 {
        MAX_ZEROES
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
    fn take_notice(&mut self) -> Option<NamespaceNotice> {
        self.far.lock().unwrap().notices.pop()
    }
    fn ask_smart(&mut self) -> bool {
        self.far.lock().unwrap().is_asked = true;
        true
    }
    fn take_smart(&mut self) -> Option<SmartReading> {
        let mut far = self.far.lock().unwrap();
        let media_errors = far.media_errors;
        std::mem::take(&mut far.is_asked).then(|| SmartReading { media_errors, ..SmartReading::default() })
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
    host: ControllerHandle,
    queue: SqHandle,
    /// Which block a command's slot reads.
    blocks: BTreeMap<u32, u32>,
    far: Arc<Mutex<Far>>,
    now: Nanos,
    /// By blocks.
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
        let mut machine = Subsystem::new(config, Nanos(0)).unwrap();
        let attach = Attach { tenant: 0, owner: Owner(0), model: TransportModel::Front, host: "test".into() };
        let host = machine.attach(Nanos(0), attach).unwrap();
        let queue = machine.add_message_queue(host, 256, None, Owner(0)).unwrap();
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
        let (blocks, now) = (BTreeMap::new(), Nanos::from_secs(1));
        Self { remote, machine, host, queue, blocks, far, now, ended: Vec::new() }
    }

    /// A read of one block; commands are named by the block.
    fn read(&mut self, block: u32) {
        self.begin(Op::Read, block, BLOCK);
    }

    fn begin(&mut self, op: Op, block: u32, len: u32) {
        let offset = u64::from(block * BLOCK);
        let request = BlockRequest { op, nsid: 1, offset, len, fua: false };
        let mut effects = Effects::new(16);
        let submit = Event::Submit { queue: self.queue, request, tag: Tag(block) };
        self.machine.apply(self.now, submit, &mut Sink, &mut effects);
        self.machine.apply(self.now, Event::Run, &mut Sink, &mut effects);
        for effect in effects.drain().collect::<Vec<_>>() {
            let Effect::Io(io) = effect else { panic!("{effect:?}") };
            self.blocks.insert(io.slot.0, block);
            let status = self.remote.start(io, &self.machine, &mut Sink);
            self.end(status.map(|status| (io.slot, status)));
        }
    }

    fn end(&mut self, ended: impl IntoIterator<Item = (SlotId, Status)>) {
        for (slot, status) in ended {
            self.ended.push((SlotId(self.blocks[&slot.0]), status));
            self.machine.apply(self.now, Event::Done { slot, status }, &mut Sink, &mut Effects::new(16));
        }
    }

    fn poll(&mut self) {
        let mut ended = Vec::new();
        self.remote.poll(self.now, &mut self.machine, &mut Sink, &mut ended);
        self.end(ended);
        self.machine.apply(self.now, Event::Tick, &mut Sink, &mut Effects::new(16));
    }

    /// How a block's read has ended.
    fn end_of(&self, block: u32) -> Option<Status> {
        self.ended.iter().find(|(slot, _)| slot.0 == block).map(|(_, status)| *status)
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
        self.find_at(identity, None);
    }

    /// The same, over a new association.
    fn find_at(&mut self, identity: DriveIdentity, association: Option<Identity>) {
        let (pair, far) = pair();
        let opened = Opened { pair, connections: Vec::new(), association, identity: Some(identity), interrupt: None };
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
fn zeroes_go_in_as_few_commands_as_the_far_side_takes() {
    // How many commands carry so many bytes, of which each carries `most`.
    for (op, most) in [(Op::WriteZeroes { deallocate: true }, MAX_ZEROES), (Op::Read, 4096)] {
        let mut bench = Bench::new();
        bench.begin(op, 0, CAPACITY as u32);
        let (mut commands, mut at) = (0, 0);
        while bench.end_of(0).is_none() {
            bench.poll();
            let pieces = std::mem::take(&mut bench.far.lock().unwrap().submitted);
            for piece in pieces {
                assert_eq!((piece.offset, piece.len), (at, most), "{op:?}");
                (commands, at) = (commands + 1, at + u64::from(most));
                bench.far.lock().unwrap().answers.push(Done { slot: piece.slot, status: OK });
            }
        }
        assert_eq!((commands, bench.end_of(0)), (CAPACITY / u64::from(most), Some(OK)), "{op:?}");
    }
}

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
    let passing = [Status::ABORTED_SQ_DELETION, Status::COMMAND_INTERRUPTED, Status::TRANSIENT_TRANSPORT_ERROR];
    let access = [Status::ANA_INACCESSIBLE, Status::ANA_TRANSITION.dnr(), Status::NAMESPACE_NOT_READY];
    for status in access.into_iter().chain(passing).chain([Status::HOST_ABORTED]) {
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
        assert_eq!((bench.state(), bench.at_far_side()), (LinkState::Replaying, vec![1]), "the oldest tries it");
        bench.answer(1, status);
        bench.read(5);
        bench.poll();
        assert_eq!((bench.state(), bench.at_far_side()), (LinkState::Inaccessible, vec![]));
        bench.after(Nanos::from_millis(20));
        assert_eq!(bench.at_far_side(), [1]);
        bench.answer(1, OK);
        bench.poll();
        assert_eq!((bench.state(), bench.at_far_side()), (LinkState::Serving, vec![2, 4, 5]));
        [2, 4, 5].into_iter().for_each(|block| bench.answer(block, OK));
        bench.poll();
        assert_eq!((bench.state(), bench.ended.len()), (LinkState::Serving, 5));
        assert!(bench.ended.iter().all(|(_, status)| status.is_success()));
    }
    // One that lasts is an error like others.
    for status in [Status::NAMESPACE_NOT_READY.dnr(), Status::COMMAND_INTERRUPTED.dnr()] {
        let mut bench = Bench::new();
        bench.read(1);
        bench.poll();
        bench.answer(1, status);
        bench.poll();
        assert_eq!((bench.state(), bench.ended.len()), (LinkState::Serving, 1));
    }
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

fn association(cntlid: u16) -> Identity {
    Identity { cntlid, number: cntlid.into(), kato: Nanos(0) }
}

/// The connection ends while nothing is at the far side.
fn cut(bench: &mut Bench) {
    bench.remote.loss = Some(TransportError::Closed("cut".into()));
    bench.poll();
}

#[test]
fn associations_that_may_have_requests_are_fenced_until_they_have_ended() {
    let mut bench = Bench::new();
    bench.remote.origin.association = Some(association(1));
    bench.read(1);
    bench.poll();
    bench.lose();
    bench.find_at(identity(), Some(association(2)));
    let begun = bench.now;
    // Nothing is sent over those that are lost while it is fenced.
    for cntlid in 3..6 {
        assert_eq!((bench.state(), &bench.remote.unfenced[..]), (LinkState::Fencing, &[association(1)][..]));
        assert_eq!(bench.remote.fence.as_ref().unwrap().earlier(), [association(1)]);
        cut(&mut bench);
        bench.after(Nanos::from_millis(100));
        bench.find_at(identity(), Some(association(cntlid)));
    }
    // The fence's own time counts from its beginning, however often it is lost.
    bench.now = begun.saturating_add(Nanos::from_secs(1));
    bench.poll();
    assert_eq!((bench.state(), bench.at_far_side()), (LinkState::Replaying, vec![1]));
    assert!(bench.remote.unfenced.is_empty() && bench.remote.fence.is_none());
}

#[test]
fn an_association_over_which_nothing_was_sent_needs_no_fence() {
    let mut bench = Bench::new();
    bench.remote.origin.association = Some(association(1));
    cut(&mut bench);
    bench.read(1);
    bench.find_at(identity(), Some(association(2)));
    assert_eq!((bench.state(), bench.at_far_side()), (LinkState::Replaying, vec![1]));
}

/// The deadline counts from the last sign only where a sign was waited for.
#[test]
fn a_drive_that_is_asked_nothing_is_not_silent() {
    let mut bench = Bench::new();
    bench.read(1);
    bench.poll();
    bench.answer(1, OK);
    bench.poll();
    bench.after(Nanos::from_secs(1000));
    cut(&mut bench);
    bench.read(2);
    bench.after(Nanos::from_secs(59));
    assert_eq!((bench.state(), bench.end_of(2)), (LinkState::Connecting, None));
    bench.after(Nanos::from_secs(1));
    assert_eq!(bench.end_of(2), Some(Status::INTERNAL_PATH_ERROR));
}

/// Nor is the loss itself a sign.
#[test]
fn silence_before_the_loss_counts() {
    let mut bench = Bench::new();
    bench.read(1);
    bench.poll();
    bench.after(Nanos::from_secs(20));
    bench.lose();
    bench.after(Nanos::from_secs(39));
    assert_eq!(bench.end_of(1), None);
    bench.after(Nanos::from_secs(1));
    assert_eq!(bench.end_of(1), Some(Status::INTERNAL_PATH_ERROR));
}

#[test]
fn a_target_that_answers_no_command_is_lost_although_its_association_lives() {
    for (kato, timeout) in [(Nanos::from_secs(15), IO_TIMEOUT), (Nanos::from_secs(45), Nanos::from_secs(45))] {
        let mut bench = Bench::new();
        bench.remote.origin.association = Some(Identity { kato, ..association(1) });
        bench.read(1);
        bench.poll();
        bench.after(Nanos(timeout.get() - 1));
        assert_eq!(bench.state(), LinkState::Serving);
        // It answers one of two, and has its time anew.
        bench.read(2);
        bench.answer(1, OK);
        bench.poll();
        bench.after(Nanos(timeout.get() - 1));
        assert_eq!(bench.state(), LinkState::Serving);
        bench.after(Nanos(1));
        bench.poll();
        assert_eq!((bench.state(), bench.remote.status(bench.now).held), (LinkState::Connecting, 1));
        assert!(bench.remote.fault().is_some_and(|e| e.to_string().contains("no answer to 1 commands for")));
    }
    // The loss of one that is not connected to again would be for good.
    let mut bench = Bench::new();
    (bench.remote.origin.identity, bench.remote.diagnosis) = (None, None);
    bench.read(1);
    bench.poll();
    bench.after(Nanos::from_secs(1000));
    assert_eq!((bench.state(), bench.remote.must_poll()), (LinkState::Serving, false));
}

#[test]
fn what_is_sent_again_and_not_answered_holds_others_up_to_the_deadline() {
    let mut bench = Bench::new();
    bench.read(1);
    bench.poll();
    bench.lose();
    bench.after(Nanos::from_secs(50));
    bench.find(identity());
    bench.read(2);
    bench.after(Nanos::from_secs(10));
    bench.read(3);
    assert_eq!(bench.at_far_side(), [1, 2]);
    assert_eq!(bench.end_of(3), Some(Status::INTERNAL_PATH_ERROR));
    bench.answer(1, OK);
    bench.poll();
    bench.read(4);
    assert_eq!((bench.state(), bench.at_far_side()), (LinkState::Serving, vec![2, 4]));
}

#[test]
fn a_target_that_answers_after_a_silence_is_not_looked_at_by_the_clock_any_longer() {
    let mut bench = Bench::new();
    bench.poll();
    bench.read(1);
    bench.poll();
    bench.after(Nanos::from_millis(4));
    bench.after(Nanos::from_millis(4));
    bench.answer(1, OK);
    bench.poll();
    bench.after(Nanos::from_millis(10));
    assert!(bench.remote.due() > bench.now, "its shard may sleep");
}

/// One command makes the target end the connection each time, and others are answered.
#[test]
fn a_command_that_ends_each_connection_fails_at_its_own_deadline() {
    let mut bench = Bench::new();
    bench.read(1);
    bench.poll();
    let (begun, mut rounds) = (bench.now, 0);
    while bench.end_of(1).is_none() {
        bench.read(2);
        bench.lose();
        bench.after(Nanos::from_millis(1500));
        if bench.end_of(1).is_some() {
            break;
        }
        bench.find(identity());
        assert_eq!(bench.at_far_side(), [1, 2]);
        bench.answer(2, OK);
        bench.poll();
        assert_eq!(bench.state(), LinkState::Serving);
        rounds += 1;
        assert!(rounds < 100, "it goes on for ever");
    }
    assert_eq!(bench.end_of(1), Some(Status::INTERNAL_PATH_ERROR));
    let lasted = bench.now.saturating_sub(begun);
    assert!(lasted >= Nanos::from_secs(60) && lasted < Nanos::from_secs(65), "{lasted}");
    assert!(bench.ended.iter().all(|(slot, status)| slot.0 == 1 || status.is_success()));
}

/// A target whose namespace was disabled and enabled again answers the old connection so (Linux's).
#[test]
fn a_namespace_that_is_gone_is_looked_for_anew() {
    let gone = Status::INVALID_NAMESPACE_OR_FORMAT.dnr();
    let mut bench = Bench::new();
    bench.read(1);
    bench.poll();
    bench.answer(1, gone);
    bench.poll();
    bench.poll();
    assert_eq!((bench.state(), bench.end_of(1)), (LinkState::Connecting, None));
    bench.find(identity());
    assert_eq!(bench.at_far_side(), [1]);
    // One that is not connected to again has its error.
    let mut bench = Bench::new();
    (bench.remote.origin.identity, bench.remote.diagnosis) = (None, None);
    bench.read(1);
    bench.poll();
    bench.answer(1, gone);
    bench.poll();
    assert_eq!((bench.state(), bench.end_of(1)), (LinkState::Serving, Some(gone)));
}

#[test]
fn commands_of_hosts_that_have_gone_end_while_the_target_is_away() {
    let mut bench = Bench::new();
    bench.read(1);
    bench.poll();
    bench.lose();
    bench.read(2);
    bench.poll();
    assert_eq!(bench.remote.in_flight(), 2);
    bench.machine.detach(bench.now, bench.host);
    bench.poll();
    assert_eq!((bench.remote.in_flight(), bench.ended.len()), (0, 2), "their slots are free for those that come back");
    bench.find(identity());
    assert_eq!((bench.state(), bench.at_far_side()), (LinkState::Replaying, vec![0]), "its own read finds out");
}

#[test]
fn a_notice_is_heard_with_the_answer_beside_it() {
    let mut bench = Bench::new();
    bench.poll();
    bench.read(1);
    bench.read(2);
    bench.poll();
    bench.far.lock().unwrap().notices.push(NamespaceNotice::AccessChanged { is_accessible: false });
    bench.answer(1, OK);
    bench.poll();
    assert_eq!((bench.state(), bench.end_of(1)), (LinkState::Inaccessible, Some(OK)));
    // Both that were said are heard, and the one that counts comes first.
    bench.answer(2, OK);
    let all = [NamespaceNotice::AccessChanged { is_accessible: true }, NamespaceNotice::AttributesChanged];
    bench.far.lock().unwrap().notices.extend(all);
    bench.poll();
    assert_eq!(bench.state(), LinkState::Waiting);
}

fn verdicts(bench: &Bench) -> Vec<Verdict> {
    let health = bench.remote.status(bench.now).health.unwrap();
    health.reports.iter().map(|report| report.verdict).collect()
}

/// Answers reads of a block with an error until it is told to the client; how many reads that took.
fn fail_until_told(bench: &mut Bench, block: u32) -> usize {
    for reads in 0..20 {
        if bench.ended.iter().any(|(slot, _)| slot.0 == block) {
            return reads;
        }
        if bench.at_far_side().contains(&block) {
            bench.far.lock().unwrap().media_errors += 1;
            bench.answer(block, Status::UNRECOVERED_READ_ERROR);
        }
        bench.after(Nanos::from_millis(1));
    }
    panic!("never told: {:?}", bench.remote.status(bench.now).health);
}

/// The block is read again, the drive is asked, and then that block alone is lost.
#[test]
fn a_bad_block_costs_that_block() {
    let mut bench = Bench::new();
    bench.after(Nanos::from_secs(2));
    bench.poll();
    (1..=3).for_each(|block| bench.read(block));
    bench.poll();
    bench.answer(1, OK);
    bench.answer(3, OK);
    let reads = fail_until_told(&mut bench, 2);
    assert!(reads >= 6, "twice by the client, and as often as it takes to believe it: {reads}");
    assert_eq!(bench.ended.iter().find(|(slot, _)| slot.0 == 2).unwrap().1, Status::UNRECOVERED_READ_ERROR);
    assert!(verdicts(&bench).contains(&Verdict::BadBlocks));
    let health = bench.remote.status(bench.now).health.unwrap();
    assert_eq!(health.bad_blocks.iter().map(|extent| (extent.lba, extent.blocks)).collect::<Vec<_>>(), [(2, 1)]);
    bench.read(9);
    bench.poll();
    assert_eq!((bench.at_far_side(), bench.state()), (vec![9], LinkState::Serving));
    bench.answer(9, OK);
    bench.poll();
    assert_eq!((bench.ended.len(), bench.remote.in_flight()), (4, 0));
}

/// What a client sends wrongly says nothing of the drive.
#[test]
fn errors_of_the_clients_own_are_told_at_once() {
    let mut bench = Bench::new();
    for status in [Status::LBA_OUT_OF_RANGE, Status::COMPARE_FAILURE, Status::GUARD_CHECK_ERROR.dnr()] {
        bench.read(1);
        bench.poll();
        bench.answer(1, status);
        bench.poll();
        assert_eq!(bench.ended.pop(), Some((SlotId(1), status)));
    }
    assert_eq!(verdicts(&bench), []);
}

/// Internal errors are retried, then the controller is reset: the association is made anew, and what was in flight is sent again.
#[test]
fn a_controller_that_fails_is_reset_and_no_error_is_told() {
    let mut bench = Bench::new();
    bench.after(Nanos::from_secs(2));
    bench.poll();
    (1..=2).for_each(|block| bench.read(block));
    bench.poll();
    let mut failures = 0;
    while bench.state() == LinkState::Serving {
        if bench.at_far_side().contains(&1) {
            bench.answer(1, Status::INTERNAL_ERROR);
            failures += 1;
        }
        bench.after(Nanos::from_millis(5));
        assert!(failures < 10, "it is never reset");
    }
    assert!(bench.ended.is_empty() && failures == 4, "{failures} failures, {:?}", bench.ended);
    bench.find(identity());
    bench.poll();
    assert_eq!(bench.at_far_side(), [1, 2]);
    bench.answer(2, OK);
    bench.answer(1, OK);
    bench.poll();
    assert_eq!(bench.ended, [(SlotId(2), OK), (SlotId(1), OK)]);
    assert!(verdicts(&bench).contains(&Verdict::Controller), "{:?}", verdicts(&bench));
}

#[test]
fn a_verdict_tells_a_namespace_that_is_gone_and_another_drive_from_a_lost_link() {
    let verdict = |bench: &Bench| bench.remote.status(bench.now).health.and_then(|health| health.verdict());
    let mut bench = Bench::new();
    bench.read(1);
    bench.poll();
    bench.far.lock().unwrap().notices.push(NamespaceNotice::AttributesChanged);
    bench.answer(1, Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    bench.poll();
    bench.poll();
    assert_eq!(bench.state(), LinkState::Connecting);
    let fail = |bench: &mut Bench| {
        for stage in [Stage::Connected, Stage::Enabled] {
            bench.remote.follow(bench.now, Step::Reached(stage));
        }
        bench.remote.follow(bench.now, Step::Failed(TransportError::NoNamespace("namespace 1 does not exist".into())));
        bench.after(Nanos::from_secs(1));
    };
    (0..5).for_each(|_| fail(&mut bench));
    assert_eq!(verdict(&bench), Some(Verdict::Namespace));
    let seen = bench.remote.status(bench.now).health.map_or(0, |health| health.reports[0].seen.len());
    assert_eq!(seen, 2, "that it is still gone is no news");
    bench.find(DriveIdentity { uuid: [9; 16], nguid: [4; 16], ..identity() });
    assert_eq!(verdict(&bench), Some(Verdict::OtherDrive));
    bench.read(2);
    assert_eq!(bench.end_of(2).map(Status::is_success), Some(false), "commands fail");
    bench.after(Nanos::from_secs(1));
    bench.find(identity());
    bench.answer(0, OK);
    bench.poll();
    assert_eq!((bench.state(), verdict(&bench)), (LinkState::Serving, None));
    bench.read(3);
    bench.poll();
    bench.lose();
    assert_eq!(verdict(&bench), Some(Verdict::Link));
}

#[test]
fn a_closed_path_is_a_verdict_and_ends_without_another_association() {
    let mut bench = Bench::new();
    bench.read(1);
    bench.poll();
    bench.answer(1, Status::ANA_INACCESSIBLE);
    bench.poll();
    let health = bench.remote.status(bench.now).health.unwrap();
    assert_eq!((health.verdict(), health.gate), (Some(Verdict::Path), Gate::Paused));
    bench.after(Nanos::from_millis(10));
    bench.answer(1, OK);
    bench.poll();
    let health = bench.remote.status(bench.now).health.unwrap();
    assert_eq!((bench.state(), health.verdict(), health.gate), (LinkState::Serving, None, Gate::Open));
    assert_eq!((bench.end_of(1), health.reports[0].verdict), (Some(OK), Verdict::Path));
}
