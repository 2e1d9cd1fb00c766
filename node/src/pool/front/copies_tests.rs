//! Commands of a volume with two copies, step by step.

use super::*;
use crate::pool::drive_queue::{ChunkPlaces, DriveQueue};
use weir_controller::{DataPointer, Owner};
use weir_pool::{CHUNK, ChunkRun, CopyState, PoolError, PoolRequest, SegmentCopy, VolumeSegment};

const MIB: u64 = CHUNK;

/// A front whose volume of two chunks lies on drives 0 and 1, and what it has sent.
struct Bench {
    front: Front,
    parts: Parts,
    send: Vec<Sent>,
}

fn way(guest: u32) -> Way {
    let (place, queue) = (Place { shard: 1, drive: guest }, DriveQueue::There { shard: 1, guest });
    Way { place, queue, depth: 8, used: 0, member: guest as usize }
}

fn io(slot: u32, op: Op, offset: u64) -> Io {
    let data = DataPointer::pattern(0);
    let len = if op == Op::Flush { 0 } else { 4096 };
    Io { slot: SlotId(slot), owner: Owner(0), data, op, nsid: 1, offset, len, fua: false, skip: 0 }
}

const WRITE: Op = Op::Write;

impl Bench {
    fn new() -> Self {
        let mut front = Front::new(0, (0, VolumeId(1)), 0, [1; 16]);
        front.copies = Some(Box::new(Copies::new(None, &[])));
        front.ways = (0..2).map(way).collect();
        let second = Some(SecondCopy { way: Some(1), at: 16 * MIB, stale: false });
        front.lay_out(vec![Stretch { start: 0, len: 2 * MIB, way: Some(0), at: 8 * MIB, shared: false, second }]);
        Bench { front, parts: Parts::default(), send: Vec::new() }
    }

    fn begin(&mut self, io: Io) -> Option<Status> {
        self.front.begin(io, &mut self.parts, &mut self.send)
    }

    /// Drives that parts were sent to, and where.
    fn sent(&mut self) -> Vec<(u32, Op, u64)> {
        let part = |sent| match sent {
            Sent::There { guest, request, .. } => (guest, request.op, request.offset),
            Sent::Here(..) => panic!("all drives are elsewhere"),
        };
        self.send.drain(..).map(part).collect()
    }

    fn over(&mut self, slot: u32, drive: u32, status: Status) -> Option<Status> {
        let done = (Bytes::Own(Vec::new()), status);
        self.front.over((SlotId(slot), drive), done, &mut self.parts, &mut self.send)
    }

    /// What the pool is told, and what it says; commands that are over.
    fn told(&mut self, result: Result<(), PoolError>) -> (PoolRequest, Vec<(SlotId, Status)>) {
        let note = self.front.take_note().expect("the pool is told something");
        assert!(self.front.take_note().is_none(), "one after the other");
        let mut ended = Vec::new();
        self.front.noted((note.number, result), &mut self.parts, &mut self.send, &mut ended);
        (note.request, ended)
    }

    /// A write of the first chunk that both drives have.
    fn write(&mut self) {
        assert_eq!(self.begin(io(0, WRITE, 0)), None);
        if self.send.is_empty() {
            self.told(Ok(()));
        }
        assert_eq!(self.sent(), [(0, WRITE, 8 * MIB), (1, WRITE, 16 * MIB)]);
        assert_eq!(self.over(0, 0, Status::SUCCESS), None);
        assert_eq!(self.over(0, 1, Status::SUCCESS), Some(Status::SUCCESS));
    }
}

fn id() -> VolumeId {
    VolumeId(1)
}

fn region() -> Vec<ChunkRun> {
    vec![ChunkRun { start: 0, len: weir_pool::REGION }]
}

#[test]
fn what_can_be_begun_anew_is_taken_back() {
    let back = |bench: &Bench| {
        bench.front.to_take_back().map(|all| all.iter().map(|one| (one.slot.0, one.is_whole)).collect::<Vec<_>>())
    };
    let mut bench = Bench::new();
    assert_eq!(bench.begin(io(0, WRITE, 0)), None);
    assert_eq!(back(&bench), Some(vec![(0, false)]), "it waits for the pool, and asks again");
    bench.told(Ok(()));
    assert_eq!(bench.begin(io(1, Op::Read, MIB)), None);
    assert_eq!(back(&bench), Some(vec![(0, true), (1, true)]));
    assert_eq!(bench.over(0, 0, Status::SUCCESS), None);
    assert_eq!(back(&bench), Some(vec![(0, true), (1, true)]), "one of its copies is written: both are, once more");
    // The pool has to hear of a stale copy before anybody hears of the write.
    assert_eq!(bench.over(0, 1, Status::WRITE_FAULT), None);
    assert_eq!(back(&bench), None);
    assert!(matches!(bench.front.take_note().expect("a note").request, PoolRequest::MarkStale { .. }));
    assert_eq!(back(&bench), None);
}

#[test]
fn a_copy_of_the_volumes_own_is_not_taken_back() {
    let mut bench = Bench::new();
    let copy = Io { data: DataPointer::media(MIB), ..io(0, Op::Copy, 0) };
    assert_eq!(bench.begin(copy), None);
    assert!(bench.front.to_take_back().is_none(), "what was read of it is here");
    let mut bench = Bench::new();
    bench.front.outbox.push_back(io(0, Op::Read, 0));
    assert!(bench.front.to_take_back().is_none(), "its machine has emitted it, and it is not begun");
}

#[test]
fn a_region_is_told_of_before_its_first_write_and_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.begin(io(0, WRITE, 0)), None);
    assert_eq!(bench.begin(io(1, WRITE, MIB)), None);
    assert_eq!(bench.sent(), [], "nothing is written before the pool knows");
    let (request, ended) = bench.told(Ok(()));
    assert_eq!((request, ended), (PoolRequest::Written { id: id(), runs: region() }, vec![]));
    assert_eq!(bench.sent().len(), 4, "both commands, to both drives");
    for slot in 0..2 {
        assert_eq!(bench.over(slot, 1, Status::SUCCESS), None, "one copy is not enough");
        assert_eq!(bench.over(slot, 0, Status::SUCCESS), Some(Status::SUCCESS));
    }
    bench.write();
    assert!(bench.front.take_note().is_none());
    // It rests, and is told of again.
    for _ in 0..SETTLES {
        bench.front.look(true);
    }
    let (request, _) = bench.told(Ok(()));
    assert_eq!(request, PoolRequest::Settled { id: id(), runs: region() });
    assert_eq!(bench.begin(io(0, WRITE, 0)), None);
    assert_eq!(bench.sent(), []);
    assert!(matches!(bench.told(Ok(())).0, PoolRequest::Written { .. }));
}

/// Looks without a write after which a region is settled.
const SETTLES: usize = 5;

#[test]
fn a_write_that_one_drive_does_not_take_is_acknowledged_when_the_pool_knows() {
    for fails in 0..2u32 {
        let mut bench = Bench::new();
        bench.write();
        assert_eq!(bench.begin(io(0, WRITE, 0)), None);
        bench.sent();
        assert_eq!(bench.over(0, fails, Status::WRITE_FAULT), None);
        assert_eq!(bench.over(0, 1 - fails, Status::SUCCESS), None, "not before that is noted");
        // Whoever reads meanwhile reads what was written.
        assert_eq!(bench.begin(io(1, Op::Read, 0)), None);
        assert_eq!(bench.sent()[0].0, 1 - fails);
        assert_eq!(bench.over(1, 1 - fails, Status::SUCCESS), Some(Status::SUCCESS));
        // The pool cannot, and then can.
        let (first, ended) = bench.told(Err(PoolError::Broken("disk full".into())));
        assert_eq!(ended, []);
        assert!(bench.front.take_note().is_none(), "not at once");
        bench.front.look(false);
        let (request, ended) = bench.told(Ok(()));
        let runs = vec![ChunkRun { start: 0, len: 1 }];
        assert_eq!(request, PoolRequest::MarkStale { id: id(), drive: fails as usize, runs });
        assert_eq!((first, ended), (request, vec![(SlotId(0), Status::SUCCESS)]));
        // The other chunk is read as before, and a layout that does not know of it changes nothing.
        let second = Some(SecondCopy { way: Some(1), at: 16 * MIB, stale: false });
        bench.front.lay_out(vec![Stretch { start: 0, len: 2 * MIB, way: Some(0), at: 8 * MIB, shared: false, second }]);
        assert_eq!((bench.begin(io(1, Op::Read, 0)), bench.begin(io(2, Op::Read, MIB))), (None, None));
        let drives: Vec<u32> = bench.sent().into_iter().map(|(drive, ..)| drive).collect();
        assert_eq!(drives, [1 - fails, 0]);
        // Both are written still.
        assert_eq!(bench.begin(io(3, WRITE, 0)), None);
        assert_eq!(bench.sent().len(), 2);
    }
}

#[test]
fn what_no_drive_takes_fails() {
    let mut bench = Bench::new();
    bench.write();
    assert_eq!(bench.begin(io(0, WRITE, 0)), None);
    assert_eq!(bench.over(0, 0, Status::WRITE_FAULT), None);
    assert_eq!(bench.over(0, 1, Status::INTERNAL_ERROR), Some(Status::WRITE_FAULT));
    // Which of the two is read from then on is always the same, also after a crash.
    let runs = vec![ChunkRun { start: 0, len: 1 }];
    assert_eq!(bench.told(Ok(())).0, PoolRequest::MarkStale { id: id(), drive: 1, runs });
    // The pool says that no other copy is left.
    let mut bench = Bench::new();
    bench.write();
    assert_eq!(bench.begin(io(0, WRITE, 0)), None);
    assert_eq!(bench.over(0, 1, Status::WRITE_FAULT), None);
    assert_eq!(bench.over(0, 0, Status::SUCCESS), None);
    let (_, ended) = bench.told(Err(PoolError::LastCopy("v".into())));
    assert_eq!(ended, [(SlotId(0), Status::WRITE_FAULT.dnr())]);
}

#[test]
fn a_read_that_fails_is_answered_by_the_other_copy() {
    let mut bench = Bench::new();
    assert_eq!(bench.begin(io(0, Op::Read, 0)), None);
    assert_eq!(bench.sent(), [(0, Op::Read, 8 * MIB)]);
    assert_eq!(bench.over(0, 0, Status::UNRECOVERED_READ_ERROR), None);
    assert_eq!(bench.sent(), [(1, Op::Read, 16 * MIB)]);
    assert_eq!(bench.over(0, 1, Status::SUCCESS), Some(Status::SUCCESS));
    let runs = vec![ChunkRun { start: 0, len: 1 }];
    assert_eq!(bench.told(Ok(())).0, PoolRequest::MarkStale { id: id(), drive: 0, runs });
    // Nor does the other one give it: the host hears so, and no copy is the worse for it.
    assert_eq!(bench.begin(io(0, Op::Read, MIB)), None);
    assert_eq!(bench.over(0, 0, Status::UNRECOVERED_READ_ERROR), None);
    assert_eq!(bench.over(0, 1, Status::UNRECOVERED_READ_ERROR), Some(Status::UNRECOVERED_READ_ERROR));
    assert!(bench.front.take_note().is_none());
    // A comparison that fails is no failure of a drive.
    bench.sent();
    assert_eq!(bench.begin(io(0, Op::Compare, MIB)), None);
    assert_eq!(bench.sent().len(), 1);
    assert_eq!(bench.over(0, 0, Status::COMPARE_FAILURE), Some(Status::COMPARE_FAILURE));
    assert!(bench.front.take_note().is_none());
}

#[test]
fn a_flush_that_one_drive_does_not_do_makes_what_was_written_there_stale() {
    let mut bench = Bench::new();
    bench.write();
    assert_eq!(bench.begin(io(0, Op::Flush, 0)), None);
    assert_eq!(bench.sent().len(), 2);
    assert_eq!(bench.over(0, 1, Status::WRITE_FAULT), None);
    assert_eq!(bench.over(0, 0, Status::SUCCESS), None);
    let (request, ended) = bench.told(Ok(()));
    let runs = vec![ChunkRun { start: 0, len: 2 }];
    assert_eq!(request, PoolRequest::MarkStale { id: id(), drive: 1, runs });
    assert_eq!(ended, [(SlotId(0), Status::SUCCESS)]);
    let mut bench = Bench::new();
    bench.write();
    assert_eq!(bench.begin(io(0, Op::Flush, 0)), None);
    assert_eq!(bench.over(0, 1, Status::WRITE_FAULT), None);
    assert_eq!(bench.over(0, 0, Status::WRITE_FAULT), Some(Status::WRITE_FAULT));
}

#[test]
fn a_piece_is_rebuilt_without_a_write_in_between() {
    let mut bench = Bench::new();
    bench.write();
    let second = Some(SecondCopy { way: Some(1), at: 16 * MIB, stale: true });
    bench.front.lay_out(vec![Stretch { start: 0, len: 2 * MIB, way: Some(0), at: 8 * MIB, shared: false, second }]);
    // A write is on its way: the rebuild waits for it, and the next write for the rebuild.
    assert_eq!(bench.begin(io(0, WRITE, 0)), None);
    assert_eq!(bench.sent().len(), 2);
    let run = ChunkRun { start: 0, len: 1 };
    assert!(bench.front.start_job(JobKind::Rebuild, run, &mut bench.parts, &mut bench.send));
    assert!(!bench.front.start_job(JobKind::Rebuild, run, &mut bench.parts, &mut bench.send), "one at a time");
    assert_eq!(bench.begin(io(1, WRITE, 0)), None);
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.over(0, 0, Status::SUCCESS), None);
    assert_eq!(bench.over(0, 1, Status::SUCCESS), Some(Status::SUCCESS));
    assert_eq!(bench.sent(), [(0, Op::Read, 8 * MIB)]);
    let mut ended = Vec::new();
    let read = (Bytes::Own(vec![7; 256 << 10]), Status::SUCCESS);
    bench.front.job_over(0, read, &mut bench.parts, &mut bench.send, &mut ended);
    assert_eq!(bench.sent(), [(1, Op::Write, 16 * MIB)]);
    let wrote = (Bytes::Own(Vec::new()), Status::SUCCESS);
    bench.front.job_over(1, wrote, &mut bench.parts, &mut bench.send, &mut ended);
    let sent = bench.sent();
    assert_eq!(sent[0], (0, Op::Read, 8 * MIB + (256 << 10)), "the next piece");
    assert_eq!(sent[1..], [(0, WRITE, 8 * MIB), (1, WRITE, 16 * MIB)], "and the write that waited");
    // A write that fails meanwhile keeps the copy from being good.
    assert_eq!(bench.over(1, 1, Status::WRITE_FAULT), None);
    assert_eq!(bench.over(1, 0, Status::SUCCESS), None);
    for piece in 1..4 {
        let read = (Bytes::Own(vec![7; 256 << 10]), Status::SUCCESS);
        bench.front.job_over(0, read, &mut bench.parts, &mut bench.send, &mut ended);
        assert_eq!(bench.front.end_job(), None, "piece {piece}");
        let wrote = (Bytes::Own(Vec::new()), Status::SUCCESS);
        bench.front.job_over(1, wrote, &mut bench.parts, &mut bench.send, &mut ended);
    }
    let outcome = bench.front.end_job().expect("it has ended");
    assert_eq!((outcome.done, outcome.failed), (MIB, None));
    let (request, _) = bench.told(Ok(()));
    assert!(matches!(request, PoolRequest::MarkStale { drive: 1, .. }), "{request:?}");
    assert!(bench.front.take_note().is_none(), "no note says that it is good");
    assert!(bench.front.is_quiet());
}

#[test]
fn answers_find_no_other_note() {
    let mut bench = Bench::new();
    assert_eq!(bench.begin(io(0, WRITE, 0)), None);
    let note = bench.front.take_note().expect("a note");
    let mut ended = Vec::new();
    bench.front.noted((note.number + 1, Ok(())), &mut bench.parts, &mut bench.send, &mut ended);
    assert_eq!(bench.sent(), []);
    let full = Err(PoolError::Full("a".into()));
    bench.front.noted((note.number, full), &mut bench.parts, &mut bench.send, &mut ended);
    assert_eq!(ended, [(SlotId(0), Status::WRITE_FAULT.dnr())]);
    assert!(bench.front.is_quiet());
}

/// A layout in which a copy is back: what was written while the front had no way there is not read there before it is rebuilt.
#[test]
fn what_a_drive_has_missed_is_not_read_there_when_it_is_back() {
    let mut bench = Bench::new();
    let stretch = |second: Option<u32>, first: u32| Stretch {
        start: 0,
        len: 2 * u64::from(weir_pool::REGION) * MIB,
        way: Some(first),
        at: 8 * MIB,
        shared: false,
        second: Some(SecondCopy { way: second, at: 16 * MIB, stale: false }),
    };
    bench.front.lay_out(vec![stretch(None, 0)]);
    assert_eq!(bench.begin(io(0, WRITE, 0)), None);
    bench.told(Ok(()));
    assert_eq!(bench.sent(), [(0, WRITE, 8 * MIB)], "on one drive alone");
    // The pool has not heard of that write when it says where the volume lies.
    bench.front.miss_at(&[1]);
    bench.front.lay_out(vec![stretch(Some(0), 1)]);
    assert_eq!(bench.over(0, 0, Status::SUCCESS), Some(Status::SUCCESS));
    assert_eq!(bench.begin(io(0, Op::Read, 0)), None);
    assert_eq!(bench.sent(), [(0, Op::Read, 16 * MIB)]);
    assert_eq!(bench.over(0, 0, Status::SUCCESS), Some(Status::SUCCESS));
    let behind = u64::from(weir_pool::REGION) * MIB;
    assert_eq!(bench.begin(io(0, Op::Read, behind)), None);
    assert_eq!(bench.sent(), [(1, Op::Read, 8 * MIB + behind)], "in the next region nothing was written");
    assert_eq!(bench.over(0, 1, Status::SUCCESS), Some(Status::SUCCESS));
    // Writes go to both; what is rebuilt, a few chunks at a time, is good again.
    assert_eq!(bench.begin(io(0, WRITE, MIB)), None);
    assert_eq!(bench.sent().len(), 2);
    assert_eq!(bench.over(0, 0, Status::SUCCESS), None);
    assert_eq!(bench.over(0, 1, Status::SUCCESS), Some(Status::SUCCESS));
    for (start, len) in [(0, 8), (8, weir_pool::REGION - 8)] {
        let request = PoolRequest::MarkFresh { id: id(), drive: 1, runs: vec![ChunkRun { start, len }] };
        bench.front.copies.as_mut().expect("it has copies").note(request);
        bench.told(Ok(()));
    }
    bench.front.lay_out(vec![stretch(Some(0), 1)]);
    assert_eq!(bench.begin(io(0, Op::Read, 0)), None);
    assert_eq!(bench.sent(), [(1, Op::Read, 8 * MIB)]);
}

/// Both chunks, of which others have the first copy or both.
fn shared(second_stale: bool) -> Vec<Stretch> {
    let second = Some(SecondCopy { way: Some(1), at: 16 * MIB, stale: second_stale });
    vec![Stretch { start: 0, len: 2 * MIB, way: Some(0), at: 8 * MIB, shared: true, second }]
}

/// The first chunk lies at chunks 30 and 40 of the drives from now on, and is the volume's alone.
fn own_place(changes: u64) -> ChunkPlaces {
    let second = Some(SegmentCopy { drive: 1, start: 40, state: CopyState::Good });
    let segment = VolumeSegment { logical: 0, drive: 0, start: 30, len: 1, lost: false, shared: false, second };
    ChunkPlaces { segments: vec![segment], changes }
}

fn unshare() -> PoolRequest {
    PoolRequest::Unshare { id: id(), runs: vec![ChunkRun { start: 0, len: 1 }] }
}

#[test]
fn a_write_of_a_shared_chunk_waits_for_two_of_its_own() {
    let mut bench = Bench::new();
    bench.front.lay_out(shared(false));
    assert_eq!(bench.begin(io(0, WRITE, 0)), None);
    assert!(matches!(bench.told(Ok(())).0, PoolRequest::Written { .. }), "first that the region is written");
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.begin(io(1, Op::Read, 0)), None);
    assert_eq!(bench.sent(), [(0, Op::Read, 8 * MIB)], "reads do not wait");
    // The pool is broken at the moment, and asked once more when it was looked after.
    assert_eq!(bench.told(Err(PoolError::Broken("Write Fault".into()))), (unshare(), vec![]));
    assert!(bench.front.take_note().is_none());
    bench.front.look(false);
    let note = bench.front.take_note().expect("the pool is asked");
    assert_eq!(note.request, unshare());
    bench.front.place(&own_place(1));
    let mut ended = Vec::new();
    bench.front.noted((note.number, Ok(())), &mut bench.parts, &mut bench.send, &mut ended);
    assert_eq!(bench.sent(), [(0, WRITE, 30 * MIB), (1, WRITE, 40 * MIB)]);
    // The other chunk gets none.
    assert_eq!(bench.begin(io(2, WRITE, MIB)), None);
    let (_, ended) = bench.told(Err(PoolError::Space(1, 0)));
    assert_eq!(ended, [(SlotId(2), Status::WRITE_FAULT.dnr())]);
    assert!(bench.front.take_refused().is_some(), "the reason is kept");
}

#[test]
fn a_chunk_is_asked_for_when_nothing_is_written_to_it() {
    let mut bench = Bench::new();
    bench.write();
    assert_eq!(bench.begin(io(0, WRITE, 0)), None);
    assert_eq!(bench.sent().len(), 2);
    // A drive is back: one of its chunks is a snapshot's.
    bench.front.lay_out(shared(true));
    bench.front.want_own(ChunkRun { start: 0, len: 1 });
    assert!(bench.front.take_note().is_none(), "a copy of it would miss what is on its way");
    assert_eq!(bench.begin(io(1, WRITE, 0)), None);
    assert_eq!(bench.sent(), [], "it waits for the new places");
    assert_eq!(bench.over(0, 0, Status::SUCCESS), None);
    assert_eq!(bench.over(0, 1, Status::SUCCESS), Some(Status::SUCCESS));
    let note = bench.front.take_note().expect("the pool is asked");
    assert_eq!(note.request, unshare());
    // It is not rebuilt in place meanwhile; the other chunk is, when the job comes to it.
    let run = ChunkRun { start: 0, len: 1 };
    assert!(bench.front.start_job(JobKind::Rebuild, run, &mut bench.parts, &mut bench.send));
    assert_eq!(bench.sent(), []);
    bench.front.place(&own_place(1));
    let mut ended = Vec::new();
    bench.front.noted((note.number, Ok(())), &mut bench.parts, &mut bench.send, &mut ended);
    assert_eq!(bench.sent(), [(0, WRITE, 30 * MIB), (1, WRITE, 40 * MIB)]);
    assert!(bench.front.has_its_own());
    assert_eq!(bench.front.end_job().map(|outcome| outcome.done), Some(0), "nothing of it is stale any more");
}

#[test]
fn a_chunk_that_is_being_rebuilt_is_asked_for_afterwards() {
    let mut bench = Bench::new();
    bench.front.lay_out(shared(true));
    let run = ChunkRun { start: 0, len: 1 };
    assert!(bench.front.start_job(JobKind::Rebuild, run, &mut bench.parts, &mut bench.send));
    assert_eq!(bench.sent(), [(0, Op::Read, 8 * MIB)]);
    bench.front.want_own(run);
    assert!(bench.front.take_note().is_none());
    let mut ended = Vec::new();
    for _ in 0..4 {
        let read = (Bytes::Own(vec![7; 256 << 10]), Status::SUCCESS);
        bench.front.job_over(0, read, &mut bench.parts, &mut bench.send, &mut ended);
        assert!(bench.front.take_note().is_none());
        let wrote = (Bytes::Own(Vec::new()), Status::SUCCESS);
        bench.front.job_over(1, wrote, &mut bench.parts, &mut bench.send, &mut ended);
    }
    assert_eq!(bench.front.take_note().map(|note| note.request), Some(unshare()));
}

#[test]
fn no_snapshot_is_made_before_the_pool_knows_what_is_stale() {
    let mut bench = Bench::new();
    bench.write();
    assert_eq!(bench.begin(io(0, Op::Read, 0)), None);
    assert_eq!(bench.over(0, 0, Status::UNRECOVERED_READ_ERROR), None);
    assert_eq!(bench.over(0, 1, Status::SUCCESS), Some(Status::SUCCESS));
    bench.front.freeze();
    assert!(bench.front.writes(), "it is to be told");
    assert!(matches!(bench.told(Ok(())).0, PoolRequest::MarkStale { .. }));
    assert!(!bench.front.writes());
    // Places with what was written last are not stale.
    bench.front.thaw();
    bench.front.place(&own_place(1));
    bench.sent();
    assert_eq!(bench.begin(io(0, Op::Read, 0)), None);
    assert_eq!(bench.sent(), [(0, Op::Read, 30 * MIB)]);
}
