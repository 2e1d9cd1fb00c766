//! Commands of a front, step by step.

use super::*;
use weir_controller::{DataPointer, Owner};

fn way(guest: u32) -> Way {
    let (place, queue) = (Place { shard: 1, drive: guest }, DriveQueue::There { shard: 1, guest });
    Way { place, queue, depth: 8, used: 0, member: guest as usize }
}

fn flush() -> Io {
    let (data, op) = (DataPointer::pattern(0), Op::Flush);
    Io { slot: SlotId(0), owner: Owner(0), data, op, nsid: 1, offset: 0, len: 0, fua: false, skip: 0 }
}

fn write(slot: u32, offset: u64, len: u32) -> Io {
    Io { slot: SlotId(slot), op: Op::Write, offset, len, ..flush() }
}

/// Where the parts go that have been made: guest, from where, how much.
fn sent(send: &mut Vec<Sent>) -> Vec<(u32, u64, u32)> {
    let part = |sent| match sent {
        Sent::There { guest, request, .. } => (guest, request.offset, request.len),
        Sent::Here(..) => panic!("all drives are elsewhere"),
    };
    send.drain(..).map(part).collect()
}

#[test]
fn nothing_goes_behind_the_end_whatever_was_let_pass_before() {
    const MIB: u64 = 1 << 20;
    let mut front = Front::new(0, (0, VolumeId(1)), 0, [1; 16]);
    front.ways = (0..2).map(way).collect();
    let at = [(0, 0), (MIB, 1)].map(|(start, way)| Stretch {
        start,
        len: MIB,
        way: Some(way),
        at: 8 * MIB,
        shared: false,
        second: None,
    });
    front.lay_out(at.to_vec());
    let (mut parts, mut send) = (Parts::default(), Vec::new());
    let done = |bytes| (bytes, Status::SUCCESS);
    // Begun before, of which the rest comes after it.
    let from = DataPointer::media(MIB - u64::from(COPY));
    let copy = Io { op: Op::Copy, data: from, ..write(2, 0, 2 * COPY) };
    assert_eq!(front.begin(copy, &mut parts, &mut send), None);
    assert_eq!(sent(&mut send), [(0, 9 * MIB - u64::from(COPY), COPY)]);
    front.end_at(MIB);
    assert!(front.reaches(MIB));
    let carried = done(Bytes::Own(vec![0; COPY as usize]));
    assert_eq!(front.over((SlotId(2), 0), carried, &mut parts, &mut send), None);
    assert_eq!(sent(&mut send), [(0, 8 * MIB, COPY)]);
    let over = front.over((SlotId(2), 0), done(Bytes::Own(Vec::new())), &mut parts, &mut send);
    assert_eq!((over, front.reaches(MIB)), (Some(Status::LBA_OUT_OF_RANGE), false));
    // Checked before, and begun after it.
    assert_eq!(front.begin(write(0, MIB, 4096), &mut parts, &mut send), Some(Status::LBA_OUT_OF_RANGE));
    assert_eq!(front.begin(write(1, MIB - 4096, 8192), &mut parts, &mut send), None);
    assert_eq!(sent(&mut send), [(0, 9 * MIB - 4096, 4096)]);
    let over = front.over((SlotId(1), 0), done(Bytes::Own(Vec::new())), &mut parts, &mut send);
    assert_eq!(over, Some(Status::LBA_OUT_OF_RANGE));
    // Until it grows again, what was written there is flushed all the same.
    assert_eq!(front.begin(Io { slot: SlotId(0), ..flush() }, &mut parts, &mut send), None);
    assert_eq!(sent(&mut send), [(0, 0, 0), (1, 0, 0)]);
    (0..2).for_each(|way| {
        front.over((SlotId(0), way), done(Bytes::Own(Vec::new())), &mut parts, &mut send);
    });
    front.end_at(2 * MIB);
    assert_eq!(front.begin(write(0, MIB, 4096), &mut parts, &mut send), None);
    assert_eq!(sent(&mut send), [(1, 8 * MIB, 4096)]);
}

/// The ways that a flush of a volume goes whose chunks lie at these ways, and how it ends when the last of them fails.
fn flushed(ways: usize, lies: &[u32]) -> (Vec<u32>, Option<Status>) {
    let mut front = Front::new(0, (0, VolumeId(1)), 0, [1; 16]);
    front.ways = (0..ways as u32).map(way).collect();
    let stretch = |(i, way): (usize, &u32)| Stretch {
        start: i as u64 * 4096,
        len: 4096,
        way: Some(*way),
        at: 0,
        shared: false,
        second: None,
    };
    front.lay_out(lies.iter().enumerate().map(stretch).collect());
    let (mut parts, mut send) = (Parts::default(), Vec::new());
    let mut ended = front.begin(flush(), &mut parts, &mut send);
    let mut gone = Vec::new();
    while let Some(Sent::There { guest, .. }) = send.pop() {
        assert_eq!(ended, None, "it ends with the last part");
        gone.push(guest);
        let status = if send.is_empty() { Status::INTERNAL_ERROR } else { Status::SUCCESS };
        ended = front.over((SlotId(0), guest), (Bytes::Own(Vec::new()), status), &mut parts, &mut send);
    }
    assert!(front.is_quiet());
    gone.sort_unstable();
    (gone, ended)
}

#[test]
fn what_is_lost_fails_and_nothing_else() {
    const MIB: u64 = 1 << 20;
    let mut front = Front::new(0, (0, VolumeId(1)), 0, [1; 16]);
    front.ways = vec![way(0)];
    front.lay_out(
        [(0, Some(0)), (MIB, None)]
            .map(|(start, way)| Stretch { start, len: MIB, way, at: 0, shared: false, second: None })
            .to_vec(),
    );
    let (mut parts, mut send) = (Parts::default(), Vec::new());
    let done = || (Bytes::Own(Vec::new()), Status::SUCCESS);
    let (read, write_lost) = (Io { op: Op::Read, ..write(0, MIB, 4096) }, write(1, MIB, 4096));
    assert_eq!(front.begin(read, &mut parts, &mut send), Some(Status::UNRECOVERED_READ_ERROR.dnr()));
    assert_eq!(front.begin(write_lost, &mut parts, &mut send), Some(Status::WRITE_FAULT.dnr()));
    let (from, to) = (DataPointer::media(MIB), DataPointer::media(0));
    let copy = |data, offset| Io { op: Op::Copy, data, ..write(2, offset, 4096) };
    assert_eq!(front.begin(copy(from, 0), &mut parts, &mut send), Some(Status::UNRECOVERED_READ_ERROR.dnr()));
    assert_eq!(front.begin(copy(to, MIB), &mut parts, &mut send), None);
    assert_eq!(sent(&mut send), [(0, 0, 4096)]);
    let carried = (Bytes::Own(vec![0; 4096]), Status::SUCCESS);
    let over = front.over((SlotId(2), 0), carried, &mut parts, &mut send);
    assert_eq!((over, sent(&mut send)), (Some(Status::WRITE_FAULT.dnr()), vec![]));
    // Half of it there: that half is done, and the command fails.
    assert_eq!(front.begin(write(3, MIB - 4096, 8192), &mut parts, &mut send), None);
    assert_eq!(sent(&mut send), [(0, MIB - 4096, 4096)]);
    assert_eq!(front.over((SlotId(3), 0), done(), &mut parts, &mut send), Some(Status::WRITE_FAULT.dnr()));
    assert_eq!(front.begin(Io { slot: SlotId(4), ..flush() }, &mut parts, &mut send), None);
    assert_eq!(sent(&mut send), [(0, 0, 0)], "what is there is flushed");
    assert_eq!(front.over((SlotId(4), 0), done(), &mut parts, &mut send), Some(Status::SUCCESS));
    assert!(front.is_quiet());
}

#[test]
fn a_shutdown_and_a_flush_of_before_are_not_told() {
    let config = weir_controller::SubsystemConfig::new("nqn.2026-01.test.weir:v");
    let mut machine = weir_controller::Subsystem::new(config, weir_units::Nanos(0)).unwrap();
    let mut attach = |host: &str| {
        let model = weir_controller::TransportModel::Front;
        let attach = weir_controller::Attach { tenant: 0, owner: Owner(1), model, host: host.into() };
        machine.attach(weir_units::Nanos(0), attach).unwrap()
    };
    let (a, b) = ((attach("a"), "a"), (attach("b"), "b"));
    let mut front = Front::new(0, (0, VolumeId(1)), 0, [1; 16]);
    let live = |_| true;
    assert!(!front.must_fail(a, (false, 0), live));
    front.lose(machine.hosts());
    for _ in 0..2 {
        assert!(front.must_fail(a, (true, 1), live), "a shutdown's");
        assert!(front.must_fail(a, (false, 0), live), "it was on its way then");
    }
    assert!(front.must_fail(a, (false, 1), live) && !front.must_fail(a, (false, 1), live));
    assert!(front.must_fail(b, (true, 1), live) && front.must_fail(b, (false, 1), live));
    assert!(front.untold.is_empty());
}

#[test]
fn a_flush_goes_only_where_the_volume_lies() {
    let failed = Some(Status::INTERNAL_ERROR);
    assert_eq!(flushed(3, &[0, 1, 2]), (vec![0, 1, 2], failed));
    assert_eq!(flushed(3, &[1, 1]), (vec![1], failed));
    assert_eq!(flushed(3, &[2]), (vec![2], failed));
    assert_eq!(flushed(6, &[0, 5, 0]), (vec![0, 5], failed));
    assert_eq!(flushed(2, &[]), (vec![], Some(Status::SUCCESS)), "nothing to wait for");
}
