//! Writes of chunks that other volumes have too, step by step.

use super::*;
use crate::pool::drive_queue::ChunkPlaces;
use weir_controller::{DataPointer, Owner};
use weir_pool::{CHUNK, PoolError, PoolRequest, VolumeSegment};

const MIB: u64 = CHUNK;

/// A front whose volume of four chunks lies on drive 0 from chunk 8 on, shared with another one.
struct Bench {
    front: Front,
    parts: Parts,
    send: Vec<Sent>,
}

fn segment(logical: u32, start: u32, shared: bool) -> VolumeSegment {
    VolumeSegment { logical, drive: 0, start, len: 1, lost: false, shared, second: None }
}

impl Bench {
    fn new() -> Self {
        let mut front = Front::new(0, (0, VolumeId(7)), 0, [1; 16]);
        let (place, queue) = (Place { shard: 1, drive: 0 }, DriveQueue::There { shard: 1, guest: 0 });
        front.ways = vec![Way { place, queue, depth: 8, used: 0, member: 0 }];
        front.lay_out(vec![Stretch { start: 0, len: 4 * MIB, way: Some(0), at: 8 * MIB, shared: true, second: None }]);
        Bench { front, parts: Parts::default(), send: Vec::new() }
    }

    fn begin(&mut self, slot: u32, op: Op, offset: u64, len: u32) -> Option<Status> {
        let data = DataPointer::pattern(0);
        let io = Io { slot: SlotId(slot), owner: Owner(0), data, op, nsid: 1, offset, len, fua: false, skip: 0 };
        self.front.begin(io, &mut self.parts, &mut self.send)
    }

    /// Where on the drive parts were sent to.
    fn sent(&mut self) -> Vec<(Op, u64)> {
        let part = |sent| match sent {
            Sent::There { request, .. } => (request.op, request.offset),
            Sent::Here(..) => panic!("the drive is elsewhere"),
        };
        self.send.drain(..).map(part).collect()
    }

    fn over(&mut self, slot: u32) -> Option<Status> {
        let done = (Bytes::Own(Vec::new()), Status::SUCCESS);
        self.front.over((SlotId(slot), 0), done, &mut self.parts, &mut self.send)
    }

    /// The chunks that the pool is asked for.
    fn asked(&mut self) -> (u64, Vec<u32>) {
        let note = self.front.take_note().expect("the pool is asked");
        assert!(self.front.take_note().is_none(), "one after the other");
        let PoolRequest::Unshare { id: VolumeId(7), runs } = note.request else { panic!("{note:?}") };
        assert!(runs.iter().all(|run| run.len == 1));
        (note.number, runs.iter().map(|run| run.start).collect())
    }

    fn said(&mut self, number: u64, result: Result<(), PoolError>) -> Vec<(SlotId, Status)> {
        let mut ended = Vec::new();
        self.front.noted((number, result), &mut self.parts, &mut self.send, &mut ended);
        ended
    }
}

#[test]
fn a_write_waits_for_a_chunk_of_its_own_and_goes_there() {
    let mut bench = Bench::new();
    assert_eq!(bench.begin(0, Op::Write, MIB, 4096), None);
    assert_eq!(bench.begin(1, Op::Write, MIB + 8192, 4096), None);
    assert_eq!(bench.begin(2, Op::Read, MIB, 4096), None);
    assert_eq!(bench.sent(), [(Op::Read, 9 * MIB)], "reads do not wait");
    let (number, chunks) = bench.asked();
    assert_eq!(chunks, [1], "once for both");
    // One more while it is copied: it is asked for next.
    assert_eq!(bench.begin(3, Op::Write, 3 * MIB, 4096), None);
    bench.front.place(&ChunkPlaces { segments: vec![segment(1, 40, false)], changes: 5 });
    assert_eq!(bench.said(number, Ok(())), []);
    assert_eq!(bench.sent(), [(Op::Write, 40 * MIB), (Op::Write, 40 * MIB + 8192)]);
    let (number, chunks) = bench.asked();
    assert_eq!(chunks, [3]);
    // What is said too late of another chunk changes nothing.
    bench.front.place(&ChunkPlaces { segments: vec![segment(1, 9, true)], changes: 4 });
    bench.front.place(&ChunkPlaces { segments: vec![segment(3, 41, false)], changes: 6 });
    assert_eq!(bench.said(number, Ok(())), []);
    assert_eq!(bench.sent(), [(Op::Write, 41 * MIB)]);
    assert_eq!(bench.begin(4, Op::Read, 0, 4 << 20), None);
    let reads: Vec<u64> = bench.sent().into_iter().map(|(_, at)| at / MIB).collect();
    assert_eq!(reads, [8, 40, 10, 41], "each chunk where it lies");
    assert!(!bench.front.takes_layout_of(5), "a layout of before is none any more");
    (0..4).for_each(|slot| assert_eq!(bench.over(slot), Some(Status::SUCCESS)));
}

#[test]
fn a_write_for_which_there_is_no_chunk_fails_and_others_go_on() {
    let mut bench = Bench::new();
    assert_eq!(bench.begin(0, Op::WriteZeroes { deallocate: true }, 0, 4096), None);
    assert_eq!(bench.begin(1, Op::Write, 2 * MIB, 4096), None);
    let (number, chunks) = bench.asked();
    assert_eq!(chunks, [0, 2]);
    assert_eq!(bench.begin(2, Op::Write, 3 * MIB, 4096), None);
    let failed = Status::WRITE_FAULT.dnr();
    let ended = bench.said(number, Err(PoolError::Space(2, 0)));
    assert_eq!(ended, [(SlotId(0), failed), (SlotId(1), failed)]);
    assert_eq!(bench.sent(), []);
    let (number, chunks) = bench.asked();
    assert_eq!(chunks, [3]);
    // The drives may do it the next time.
    let broken = Err(PoolError::Broken("Write Fault".into()));
    assert_eq!(bench.said(number, broken), [(SlotId(2), Status::WRITE_FAULT)]);
    assert!(bench.front.is_quiet());
}

#[test]
fn nothing_is_written_while_a_snapshot_is_made() {
    let mut bench = Bench::new();
    bench.front.place(&ChunkPlaces { segments: (0..4).map(|i| segment(i, 20 + i, false)).collect(), changes: 1 });
    assert_eq!(bench.begin(0, Op::Write, 0, 4096), None);
    assert_eq!(bench.sent(), [(Op::Write, 20 * MIB)]);
    let mark = bench.front.mark();
    bench.front.freeze();
    assert!(bench.front.writes() && !bench.front.is_past(mark));
    assert_eq!(bench.begin(1, Op::Write, MIB, 4096), None);
    assert_eq!(bench.begin(2, Op::Read, MIB, 4096), None);
    assert_eq!(bench.sent(), [(Op::Read, 21 * MIB)]);
    assert!(bench.front.take_note().is_none(), "no chunk is asked for meanwhile");
    assert_eq!(bench.over(0), Some(Status::SUCCESS));
    assert!(!bench.front.writes(), "the one that waits is none");
    assert!(bench.front.is_past(mark));
    // Without another layout every chunk may be shared by then.
    bench.front.thaw();
    assert!(bench.front.take_thawed() && !bench.front.take_thawed());
    bench.front.go_on(&mut bench.parts, &mut bench.send, &mut Vec::new());
    assert_eq!((bench.sent(), bench.asked().1), (vec![], vec![1]));
}
