//! Verify, Write Uncorrectable, Copy, Compare and Write fused, Write Zeroes, Dataset Management and reservations, through a drive
//! with a medium: against a model, in every order of what is in flight, and the rules of each.

mod common;

use common::{fabric_with_queues, get_feature, set_feature};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use weir_controller::testing::{Fabric, TestRing, TestWorld, admin, io};
use weir_controller::{
    COST_MAX, ChargedCommand, Cost, CostPolicy, Data, Host, Io, NamespaceConfig, Op, Owner, SubsystemConfig,
    TenantConfig,
};
use weir_spec::nvme::feature::fid;
use weir_spec::nvme::identify::{IdentifyController, IdentifyNamespace, IdentifyNvmController, cns};
use weir_spec::nvme::lba_status::{
    EVERY_BLOCK, LbaStatusDescriptor, LbaStatusDw13, LbaStatusElement, LbaStatusHeader, LbaStatusLog, LbaStatusRange,
    action, completion,
};
use weir_spec::nvme::log::{AsyncEvent, Effects as EffectsLog, lid};
use weir_spec::nvme::nvm::{CopyDw12, CopyRange, CopyRangeWide, DsmRange};
use weir_spec::nvme::register::ams;
use weir_spec::nvme::reservation::{
    RegisteredControllerExtended, ReservationDw10, ReservationNotification, ReservationStatus,
};
use weir_spec::nvme::{AdminOpcode, Cqe, IoOpcode, Sqe, Status};
use weir_units::{Class, Nanos};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const BLOCK: usize = 512;

/// A drive, and the bytes of its media.
#[derive(Clone)]
struct Bench {
    world: TestWorld,
    media: Vec<u8>,
}

impl Bench {
    /// One namespace of `blocks` blocks of 512 bytes, one tenant.
    fn new(blocks: u64, change: impl FnOnce(&mut SubsystemConfig)) -> Self {
        let mut config = SubsystemConfig::new("nqn.2026-01.io.weir:io");
        let size = blocks * BLOCK as u64;
        config.namespaces.push(NamespaceConfig { nsid: 1, start: 4096, size, block_size: 512, uuid: [1; 16] });
        config.tenants.push(TenantConfig::new("all", Class::Medium));
        config.atomic_write = 1 << 20;
        config.admin_rate = u32::MAX;
        change(&mut config);
        Self { world: TestWorld::new(config, 64), media: vec![0; size as usize + 8192] }
    }

    fn host(&mut self, name: &str, base: u32, queues: u16) -> Fabric {
        fabric_with_queues(&mut self.world, name, base, queues)
    }

    /// Moves the bytes of an I/O, as an executor does.
    fn execute(&mut self, io: &Io) -> Status {
        let range = io.offset as usize..io.offset as usize + io.len as usize;
        let mut bytes = vec![0; io.len as usize];
        let host = &mut self.world.host;
        let moved = match io.op {
            Op::Read => host.write_data(io.owner, &io.data, io.skip, &self.media[range]),
            Op::Write => host.read_data(io.owner, &io.data, io.skip, &mut self.media[range]),
            Op::Compare => host
                .read_data(io.owner, &io.data, io.skip, &mut bytes)
                .and_then(|()| if bytes == self.media[range] { Ok(()) } else { Err(Status::COMPARE_FAILURE) }),
            Op::WriteZeroes { .. } | Op::Deallocate => {
                self.media[range].fill(0);
                Ok(())
            }
            Op::Copy => {
                let Data::Media(from) = io.data.get() else { panic!("a copy's source is on the media") };
                self.media.copy_within(from as usize..from as usize + io.len as usize, range.start);
                Ok(())
            }
            Op::Verify | Op::Flush => Ok(()),
        };
        moved.err().unwrap_or(Status::SUCCESS)
    }

    /// Executes the `n`th issued I/O and tells the drive.
    fn done(&mut self, n: usize) {
        let io = self.world.issued[n];
        let status = if self.world.drive.is_live(io.slot) { self.execute(&io) } else { Status::SUCCESS };
        self.world.done(n, status);
    }

    /// Until nothing moves.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.world.run();
            if !self.world.issued.is_empty() {
                self.done(0);
            } else if let Some(due) = self.world.drive.next_deadline().filter(|due| *due < Nanos::from_secs(1)) {
                self.world.pass(due.saturating_sub(self.world.now));
            } else {
                return;
            }
        }
        panic!("it never ends");
    }

    /// Sends a command with its data.
    fn send(&mut self, host: &mut Fabric, qid: u16, sqe: Sqe, data: &[u8]) -> u32 {
        self.world.host.data.insert((host.base + u32::from(qid), host.tags + 1), data.to_vec());
        host.send(&mut self.world, qid, sqe)
    }

    fn answer(&mut self, host: &Fabric, qid: u16, tag: u32) -> Option<Cqe> {
        host.answer(&mut self.world, qid, tag)
    }

    /// Sends a command, waits, and answers its status and what its buffer holds then.
    fn ask(&mut self, host: &mut Fabric, sqe: Sqe, data: &[u8]) -> (Status, Vec<u8>) {
        let tag = self.send(host, 1, sqe, data);
        self.settle();
        let cqe = self.answer(host, 1, tag).expect("the command is answered");
        (cqe.status(), self.world.host.data.remove(&(host.base + 1, tag)).unwrap_or_default())
    }

    fn status(&mut self, host: &mut Fabric, sqe: Sqe, data: &[u8]) -> Status {
        self.ask(host, sqe, data).0
    }

    /// Compare and write, fused: both statuses.
    fn pair(&mut self, host: &mut Fabric, lba: u64, old: &[u8], new: &[u8]) -> (Status, Status) {
        let (one, two) = pair(lba, (old.len() / BLOCK) as u32);
        let first = self.send(host, 1, one, old);
        let second = self.send(host, 1, two, new);
        self.settle();
        let first = self.answer(host, 1, first).expect("the first is answered").status();
        (first, self.answer(host, 1, second).expect("and the second").status())
    }

    fn read(&mut self, host: &mut Fabric, lba: u64, blocks: u32) -> Result<Vec<u8>, Status> {
        match self.ask(host, io(READ, 1, lba, blocks), &vec![0xaa; blocks as usize * BLOCK]) {
            (status, data) if status.is_success() => Ok(data),
            (status, _) => Err(status),
        }
    }
}

const READ: u8 = IoOpcode::READ.0;
const WRITE: u8 = IoOpcode::WRITE.0;
const COMPARE: u8 = IoOpcode::COMPARE.0;

fn pair(lba: u64, blocks: u32) -> (Sqe, Sqe) {
    let with = |opcode, cid, fuse| {
        let sqe = io(opcode, cid, lba, blocks);
        Sqe { flags: sqe.flags | fuse, ..sqe }
    };
    (with(COMPARE, 1, 1), with(WRITE, 2, 2))
}

fn copy(to: u64, ranges: &[(u64, u16)], wide: bool) -> (Sqe, Vec<u8>) {
    let dw12 = CopyDw12(0).with_nr(ranges.len() as u32 - 1).with_desfmt(wide.into());
    let mut list = Vec::new();
    for (slba, blocks) in ranges {
        let (slba, nlb) = (U64::new(*slba), U16::new(blocks - 1));
        match wide {
            true => list.extend_from_slice(CopyRangeWide { slba, nlb, ..Default::default() }.as_bytes()),
            false => list.extend_from_slice(CopyRange { slba, nlb, ..Default::default() }.as_bytes()),
        }
    }
    (Sqe { cdw12: U32::new(dw12.0), ..io(IoOpcode::COPY.0, 1, to, 1) }, list)
}

fn trim(ranges: &[DsmRange]) -> (Sqe, Vec<u8>) {
    let (cdw10, cdw11) = (U32::new(ranges.len() as u32 - 1), U32::new(4));
    (Sqe { cdw10, cdw11, ..io(IoOpcode::DATASET_MANAGEMENT.0, 1, 0, 1) }, ranges.as_bytes().to_vec())
}

fn reserve(opcode: IoOpcode, dw10: ReservationDw10, keys: (u64, u64)) -> (Sqe, Vec<u8>) {
    let sqe = Sqe { cdw10: U32::new(dw10.0), ..io(opcode.0, 1, 0, 1) };
    (Sqe { cdw12: U32::ZERO, ..sqe }, [keys.0.to_le_bytes(), keys.1.to_le_bytes()].concat())
}

fn register(key: u64) -> (Sqe, Vec<u8>) {
    reserve(IoOpcode::RESERVATION_REGISTER, ReservationDw10(0), (0, key))
}

fn acquire(rtype: u32, key: u64) -> (Sqe, Vec<u8>) {
    reserve(IoOpcode::RESERVATION_ACQUIRE, ReservationDw10(0).with_rtype(rtype), (key, 0))
}

fn filled(byte: u8, blocks: usize) -> Vec<u8> {
    vec![byte; blocks * BLOCK]
}

// Against a model.

#[derive(Clone, Debug)]
enum Doing {
    Write(u64, u32, u8),
    Zero(u64, u32, bool),
    Trim(Vec<(u64, u32)>),
    Spoil(u64, u32),
    Read(u64, u32),
    Verify(u64, u32),
    Compare(u64, u32, u8),
    Pair(u64, u32, u8, u8),
    Copy(u64, Vec<(u64, u16)>, bool),
}

const BLOCKS: u64 = 48;

fn doings() -> impl Strategy<Value = Doing> {
    let place = || (0..BLOCKS + 2, 1u32..9);
    prop_oneof![
        (place(), any::<u8>()).prop_map(|((l, n), b)| Doing::Write(l, n, b % 4)),
        (place(), any::<bool>()).prop_map(|((l, n), d)| Doing::Zero(l, n, d)),
        prop::collection::vec((0..BLOCKS + 1, 0u32..9), 1..4).prop_map(Doing::Trim),
        place().prop_map(|(l, n)| Doing::Spoil(l, n)),
        place().prop_map(|(l, n)| Doing::Read(l, n)),
        place().prop_map(|(l, n)| Doing::Verify(l, n)),
        (place(), any::<u8>()).prop_map(|((l, n), b)| Doing::Compare(l, n, b % 4)),
        ((0..BLOCKS, 1u32..4), any::<u8>(), any::<u8>()).prop_map(|((l, n), a, b)| Doing::Pair(l, n, a % 4, b % 4)),
        (0..BLOCKS, prop::collection::vec((0..BLOCKS, 1u16..6), 1..4), any::<bool>())
            .prop_map(|(to, from, wide)| Doing::Copy(to, from, wide)),
    ]
}

/// What each block holds; nothing where it cannot be read.
type Blocks = Vec<Option<u8>>;

fn span(blocks: &Blocks, lba: u64, n: u32) -> Result<std::ops::Range<usize>, Status> {
    let end = lba as usize + n as usize;
    if end > blocks.len() { Err(Status::LBA_OUT_OF_RANGE.dnr()) } else { Ok(lba as usize..end) }
}

fn readable(blocks: &Blocks, lba: u64, n: u32) -> Result<Vec<u8>, Status> {
    let range = span(blocks, lba, n)?;
    let bytes: Option<Vec<u8>> = blocks[range].iter().copied().collect();
    bytes.ok_or(Status::UNRECOVERED_READ_ERROR)
}

fn compared(blocks: &Blocks, lba: u64, n: u32, byte: u8) -> Result<(), Status> {
    let held = readable(blocks, lba, n)?;
    if held.iter().all(|b| *b == byte) { Ok(()) } else { Err(Status::COMPARE_FAILURE) }
}

/// The slow and obvious drive.
fn model(blocks: &mut Blocks, doing: &Doing) -> Status {
    let result = match doing {
        Doing::Write(l, n, byte) => span(blocks, *l, *n).map(|r| blocks[r].fill(Some(*byte))),
        Doing::Zero(l, n, _) => span(blocks, *l, *n).map(|r| blocks[r].fill(Some(0))),
        Doing::Spoil(l, n) => span(blocks, *l, *n).map(|r| blocks[r].fill(None)),
        Doing::Trim(ranges) => {
            let spans: Result<Vec<_>, _> = ranges.iter().map(|(l, n)| span(blocks, *l, *n)).collect();
            spans.map(|spans| spans.into_iter().for_each(|r| blocks[r].fill(Some(0))))
        }
        Doing::Read(l, n) | Doing::Verify(l, n) => readable(blocks, *l, *n).map(|_| ()),
        Doing::Compare(l, n, byte) => compared(blocks, *l, *n, *byte),
        Doing::Pair(l, n, old, new) => {
            compared(blocks, *l, *n, *old).map(|()| blocks[*l as usize..(*l + u64::from(*n)) as usize].fill(Some(*new)))
        }
        Doing::Copy(to, ranges, _) => copied(blocks, *to, ranges),
    };
    result.err().unwrap_or(Status::SUCCESS)
}

fn copied(blocks: &mut Blocks, to: u64, ranges: &[(u64, u16)]) -> Result<(), Status> {
    let total: u32 = ranges.iter().map(|(_, n)| u32::from(*n)).sum();
    let target = span(blocks, to, total)?;
    for (l, n) in ranges {
        let source = span(blocks, *l, u32::from(*n))?;
        if source.start < target.end && target.start < source.end {
            return Err(Status::OVERLAPPING_IO_RANGE.dnr());
        }
    }
    let mut bytes = Vec::new();
    for (l, n) in ranges {
        bytes.extend(readable(blocks, *l, u32::from(*n))?);
    }
    for (block, byte) in blocks[target].iter_mut().zip(bytes) {
        *block = Some(byte);
    }
    Ok(())
}

fn carry_out(bench: &mut Bench, host: &mut Fabric, doing: &Doing) -> Status {
    let place = |opcode: IoOpcode, l: u64, n: u32| io(opcode.0, 1, l, n);
    match doing {
        Doing::Write(l, n, byte) => bench.status(host, place(IoOpcode::WRITE, *l, *n), &filled(*byte, *n as usize)),
        Doing::Zero(l, n, deallocate) => {
            let mut sqe = place(IoOpcode::WRITE_ZEROES, *l, *n);
            sqe.cdw12 = U32::new(sqe.cdw12.get() | u32::from(*deallocate) << 25);
            bench.status(host, sqe, &[])
        }
        Doing::Trim(ranges) => {
            let ranges: Vec<DsmRange> = ranges.iter().map(|(l, n)| DsmRange::new(*l, *n)).collect();
            let (sqe, list) = trim(&ranges);
            bench.status(host, sqe, &list)
        }
        Doing::Spoil(l, n) => bench.status(host, place(IoOpcode::WRITE_UNCORRECTABLE, *l, *n), &[]),
        Doing::Read(l, n) => bench.status(host, place(IoOpcode::READ, *l, *n), &filled(0, *n as usize)),
        Doing::Verify(l, n) => bench.status(host, place(IoOpcode::VERIFY, *l, *n), &[]),
        Doing::Compare(l, n, byte) => bench.status(host, place(IoOpcode::COMPARE, *l, *n), &filled(*byte, *n as usize)),
        Doing::Pair(l, n, old, new) => {
            let (one, two) = bench.pair(host, *l, &filled(*old, *n as usize), &filled(*new, *n as usize));
            let fits = two.is_success() || two.same_code(Status::ABORTED_FAILED_FUSED);
            assert!(fits && one.is_success() == two.is_success(), "{one} {two}");
            one
        }
        Doing::Copy(to, ranges, wide) => {
            let (sqe, list) = copy(*to, ranges, *wide);
            bench.status(host, sqe, &list)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 3 / 8))]

    /// One after the other, each command does what the model does, whatever its time and the number of slots.
    #[test]
    fn commands_do_what_the_model_does(
        doings in prop::collection::vec(doings(), 1..40),
        slots in 1u32..4,
        latency in prop::sample::select(vec![0u64, 10_000]),
    ) {
        let mut bench = Bench::new(BLOCKS, |c| (c.slots, c.latency) = (slots, Nanos(latency)));
        let mut host = bench.host("nqn.a", 100, 1);
        let mut blocks: Blocks = vec![Some(0); BLOCKS as usize];
        for doing in &doings {
            let expected = model(&mut blocks, doing);
            let status = carry_out(&mut bench, &mut host, doing);
            prop_assert!(status.same_code(expected), "{doing:?}: {status}, expected {expected}");
            prop_assert_eq!(status.is_dnr(), expected.is_dnr(), "{:?}: {}", doing, status);
        }
        for (lba, block) in blocks.iter().enumerate() {
            let read = bench.read(&mut host, lba as u64, 1);
            match block {
                Some(byte) => prop_assert_eq!(read, Ok(filled(*byte, 1)), "block {}", lba),
                None => prop_assert!(read.is_err_and(|s| s.same_code(Status::UNRECOVERED_READ_ERROR)), "block {}", lba),
            }
        }
        let listed = lba_status(&mut bench, &mut host, (0, 0), 1024).2.into_iter().flat_map(|(first, end)| first..end);
        let unreadable = (0u64..).zip(&blocks).filter(|(_, block)| block.is_none()).map(|(lba, _)| lba);
        prop_assert!(listed.eq(unreadable));
    }

    /// Counters that several queues increase by compare and write, with everything in flight at once and the media answering in
    /// any order: every success counted once, nothing lost, and plain writes beside them never fall between.
    #[test]
    fn pairs_are_atomic(
        order in prop::collection::vec((0u8..4, any::<u16>()), 30..200),
        slots in 1u32..8,
        latency in prop::sample::select(vec![0u64, 5_000]),
    ) {
        let mut bench = Bench::new(BLOCKS, |c| (c.slots, c.latency) = (slots, Nanos(latency)));
        let mut host = bench.host("nqn.a", 100, 3);
        // By queue: the tags of a pair under way with what it would write.
        let mut open: [Option<(u32, u32, u64)>; 3] = [None; 3];
        let (mut value, mut seen) = (0u64, 0u64);
        for (what, pick) in order {
            let qid = 1 + pick % 3;
            match what {
                0 | 1 if open[usize::from(qid) - 1].is_none() => {
                    let block = |n: u64| {
                        let mut block = filled(0, 1);
                        block[..8].copy_from_slice(&n.to_le_bytes());
                        block
                    };
                    let (one, two) = pair(7, 1);
                    let first = bench.send(&mut host, qid, one, &block(seen));
                    let second = bench.send(&mut host, qid, two, &block(seen + 1));
                    open[usize::from(qid) - 1] = Some((first, second, seen + 1));
                }
                2 => {
                    bench.world.run();
                    if !bench.world.issued.is_empty() {
                        bench.done(usize::from(pick) % bench.world.issued.len());
                    }
                }
                _ => bench.world.pass(Nanos(3_000)),
            }
            for (i, place) in open.iter_mut().enumerate() {
                let Some((first, second, would)) = *place else { continue };
                let qid = i as u16 + 1;
                let Some(one) = bench.answer(&host, qid, first) else { continue };
                let two = bench.answer(&host, qid, second).expect("both are answered at once").status();
                if one.status().is_success() {
                    prop_assert!(two.is_success());
                    prop_assert_eq!(would, value + 1, "two have increased the same value");
                    value = would;
                } else {
                    prop_assert!(one.status().same_code(Status::COMPARE_FAILURE));
                    prop_assert!(two.same_code(Status::ABORTED_FAILED_FUSED));
                }
                seen = value;
                *place = None;
            }
        }
        bench.settle();
        for (i, place) in open.iter().enumerate() {
            let Some((first, second, would)) = *place else { continue };
            let one = bench.answer(&host, i as u16 + 1, first).expect("answered").status();
            bench.answer(&host, i as u16 + 1, second).expect("answered");
            if one.is_success() {
                prop_assert_eq!(would, value + 1);
                value = would;
            }
        }
        let held = bench.read(&mut host, 7, 1).unwrap();
        prop_assert_eq!(u64::from_le_bytes(held[..8].try_into().unwrap()), value);
    }
}

// Fused pairs.

#[test]
fn a_write_of_somebody_else_waits_for_a_pair_and_a_pair_for_writes() {
    let mut bench = Bench::new(64, |_| {});
    let mut host = bench.host("nqn.a", 100, 2);
    let ops = |bench: &Bench| bench.world.issued.iter().map(|io| (io.op, io.offset)).collect::<Vec<_>>();
    let (one, two) = pair(8, 2);
    let first = bench.send(&mut host, 1, one, &filled(0, 2));
    let second = bench.send(&mut host, 1, two, &filled(1, 2));
    bench.world.run();
    assert_eq!(ops(&bench), [(Op::Compare, 8192)]);
    // One block of the pair's, one beside it, a read of both, and everything that changes blocks some other way.
    let write = bench.send(&mut host, 2, io(WRITE, 3, 9, 1), &filled(2, 1));
    let beside = bench.send(&mut host, 2, io(WRITE, 4, 10, 1), &filled(3, 1));
    let read = bench.send(&mut host, 2, io(READ, 5, 8, 2), &filled(9, 2));
    let zero = bench.send(&mut host, 2, io(IoOpcode::WRITE_ZEROES.0, 6, 8, 1), &[]);
    let (sqe, list) = trim(&[DsmRange::new(0, 1)]);
    let trim = bench.send(&mut host, 2, sqe, &list);
    bench.world.run();
    assert_eq!(ops(&bench), [(Op::Compare, 8192), (Op::Write, 9216), (Op::Read, 8192)]);
    bench.done(2);
    assert!(bench.answer(&host, 2, read).unwrap().status().is_success());
    bench.done(0);
    bench.world.run();
    assert_eq!(
        ops(&bench),
        [(Op::Write, 9216), (Op::Write, 8192)],
        "the second half of the pair, and nothing before it"
    );
    bench.done(1);
    assert!(bench.answer(&host, 1, first).unwrap().status().is_success());
    assert!(bench.answer(&host, 1, second).unwrap().status().is_success());
    bench.world.run();
    let zeroes = Op::WriteZeroes { deallocate: false };
    assert_eq!(ops(&bench), [(Op::Write, 9216), (Op::Write, 8704), (zeroes, 8192), (Op::Deallocate, 4096)]);
    // The next pair waits for those two, and the write behind it for the pair.
    let (one, two) = pair(8, 2);
    let first = bench.send(&mut host, 1, one, &[filled(0, 1), filled(2, 1)].concat());
    let second = bench.send(&mut host, 1, two, &filled(4, 2));
    bench.world.run();
    assert_eq!(bench.world.issued.len(), 4);
    bench.settle();
    for (qid, tag) in [(2, write), (2, beside), (2, zero), (2, trim), (1, first), (1, second)] {
        let status = bench.answer(&host, qid, tag).unwrap().status();
        assert!(status.is_success(), "{qid} {tag}: {status}");
    }
    assert_eq!(bench.read(&mut host, 8, 2).unwrap(), filled(4, 2));
}

#[test]
fn a_pair_is_two_commands_that_belong_together() {
    let mut bench = Bench::new(64, |c| c.atomic_write = 1024);
    let mut host = bench.host("nqn.a", 100, 1);
    let (one, two) = pair(8, 1);
    let missing = Status::ABORTED_MISSING_FUSED;
    // A second one alone, and a first one with something else behind it, which is carried out.
    assert!(bench.status(&mut host, two, &filled(1, 1)).same_code(missing));
    let first = bench.send(&mut host, 1, one, &filled(0, 1));
    bench.settle();
    assert_eq!(bench.answer(&host, 1, first), None, "it waits for its second");
    let read = bench.send(&mut host, 1, io(READ, 9, 0, 1), &filled(1, 1));
    bench.settle();
    assert!(bench.answer(&host, 1, first).unwrap().status().same_code(missing));
    assert!(bench.answer(&host, 1, read).unwrap().status().is_success());
    // FUSE of commands that are no pair's.
    for (opcode, fuse) in [(READ, 1), (WRITE, 1), (COMPARE, 2), (WRITE, 3), (IoOpcode::COPY.0, 2), (0x0d, 1)] {
        let sqe = io(opcode, 1, 8, 1);
        let status = bench.status(&mut host, Sqe { flags: sqe.flags | fuse, ..sqe }, &filled(0, 1));
        assert!(status.same_code(Status::INVALID_FIELD), "{opcode:#x} {fuse}: {status}");
    }
    // Different blocks, and more than is atomic.
    let send = |bench: &mut Bench, host: &mut Fabric, (one, two): (Sqe, Sqe), n: usize| {
        let first = bench.send(host, 1, one, &filled(0, n));
        let second = bench.send(host, 1, two, &filled(1, n));
        bench.settle();
        [first, second].map(|tag| bench.answer(host, 1, tag).unwrap().status())
    };
    let [a, b] = send(&mut bench, &mut host, (pair(8, 1).0, pair(9, 1).1), 1);
    assert!(a.same_code(Status::INVALID_FIELD) && b.same_code(Status::INVALID_FIELD), "{a} {b}");
    let [a, b] = send(&mut bench, &mut host, pair(8, 3), 3);
    assert!(a.same_code(Status::ATOMIC_WRITE_UNIT_EXCEEDED) && b.same_code(Status::ATOMIC_WRITE_UNIT_EXCEEDED));
    let [a, b] = send(&mut bench, &mut host, pair(63, 2), 2);
    assert!(a.same_code(Status::LBA_OUT_OF_RANGE) && b.same_code(Status::ABORTED_FAILED_FUSED), "{a} {b}");
    let [a, b] = send(&mut bench, &mut host, pair(8, 2), 2);
    assert!(a.is_success() && b.is_success(), "{a} {b}");
    // What fails the comparison writes nothing.
    assert_eq!(bench.pair(&mut host, 8, &filled(7, 1), &filled(9, 1)).0, Status::COMPARE_FAILURE);
    assert_eq!(bench.read(&mut host, 8, 2).unwrap(), filled(1, 2));
}

/// However much a drive writes atomically: a page, which no host splits.
#[test]
fn a_pair_is_of_a_page_at_the_most() {
    for atomic in [1 << 20, 4096, 512] {
        let mut bench = Bench::new(64, |c| c.atomic_write = atomic);
        let mut host = bench.host("nqn.a", 100, 1);
        let identify = Sqe { nsid: U32::new(1), ..admin(AdminOpcode::IDENTIFY, 1, cns::NAMESPACE.into(), 0) };
        let (_, page) = host.admin_data(&mut bench.world, identify);
        let ns = IdentifyNamespace::read_from_bytes(&page[..4096]).unwrap();
        let most = usize::from(ns.nacwu.get()) + 1;
        assert_eq!(most, atomic.min(4096) as usize / BLOCK);
        assert_eq!(bench.pair(&mut host, 8, &filled(0, most), &filled(1, most)), (Status::SUCCESS, Status::SUCCESS));
        let (one, two) = bench.pair(&mut host, 8, &filled(1, most + 1), &filled(2, most + 1));
        let exceeded = Status::ATOMIC_WRITE_UNIT_EXCEEDED;
        assert!(one.same_code(exceeded) && two.same_code(exceeded), "{one} {two}");
    }
}

#[test]
fn an_abort_takes_both_of_a_pair() {
    let mut bench = Bench::new(64, |c| c.slots = 1);
    let mut host = bench.host("nqn.a", 100, 1);
    let abort = |cid: u32| admin(AdminOpcode::ABORT, 70, cid << 16 | 1, 0);
    for aborted in [1, 2] {
        // The only slot is taken, so the pair waits in its queue.
        let read = bench.send(&mut host, 1, io(READ, 9, 0, 1), &filled(1, 1));
        bench.world.run();
        let (one, two) = pair(8, 1);
        let first = bench.send(&mut host, 1, one, &filled(0, 1));
        let second = bench.send(&mut host, 1, two, &filled(1, 1));
        assert_eq!(host.admin(&mut bench.world, abort(aborted)).dw0.get() & 1, 0, "it was aborted");
        let mut statuses = [first, second].map(|tag| bench.answer(&host, 1, tag).unwrap().status());
        if aborted == 2 {
            statuses.reverse();
        }
        assert!(statuses[0].same_code(Status::ABORT_REQUESTED), "{statuses:?}");
        assert!(statuses[1].same_code(Status::ABORTED_FAILED_FUSED), "{statuses:?}");
        bench.settle();
        assert!(bench.answer(&host, 1, read).unwrap().status().is_success());
    }
    // A first one that waits for its second can be aborted, and what follows is served.
    let first = bench.send(&mut host, 1, pair(8, 1).0, &filled(0, 1));
    bench.settle();
    assert_eq!(host.admin(&mut bench.world, abort(1)).dw0.get() & 1, 0);
    assert!(bench.answer(&host, 1, first).unwrap().status().same_code(Status::ABORT_REQUESTED));
    assert_eq!(bench.read(&mut host, 8, 1).unwrap(), filled(0, 1));
}

#[test]
fn pairs_on_rings() {
    let mut bench = Bench::new(64, |_| {});
    let mut ring = TestRing::ready(&mut bench.world, 0, Owner(7), ams::RR);
    ring.add_queue(&mut bench.world, 1, 8, 0);
    let at = |sqe: Sqe, data: u64| Sqe { dptr: [U64::new(data), U64::ZERO], ..sqe };
    let (one, two) = pair(8, 1);
    let (one, two) = (at(one, 0x38000), at(two, 0x38200));
    bench.world.host.ring(Owner(7))[0x38200..0x38400].fill(5);
    ring.put(&mut bench.world, 1, one).unwrap();
    ring.submit(&mut bench.world, 1, two).unwrap();
    bench.settle();
    let statuses: Vec<Status> = ring.reap(&mut bench.world, 1).iter().map(Cqe::status).collect();
    assert_eq!(statuses, [Status::SUCCESS; 2]);
    assert_eq!(bench.media[4096 + 8 * BLOCK..][..BLOCK], filled(5, 1));
    // A doorbell that tells of the first only is not a pair's.
    ring.submit(&mut bench.world, 1, one).unwrap();
    bench.settle();
    ring.submit(&mut bench.world, 1, two).unwrap();
    bench.settle();
    let statuses: Vec<Status> = ring.reap(&mut bench.world, 1).iter().map(Cqe::status).collect();
    assert_eq!(statuses, [Status::ABORTED_MISSING_FUSED; 2]);
    // A completion queue of one place never has room for both; one of two has when both are free.
    for (qid, size) in [(2, 2), (3, 3)] {
        ring.add_queue(&mut bench.world, qid, size, 0);
        bench.world.host.ring(Owner(7))[0x38000..0x38200].fill(5);
        if size == 3 {
            ring.put(&mut bench.world, qid, one).unwrap();
            ring.submit(&mut bench.world, qid, two).unwrap();
            bench.settle();
            let statuses: Vec<Status> = ring.reap(&mut bench.world, qid).iter().map(Cqe::status).collect();
            assert_eq!(statuses, [Status::SUCCESS; 2]);
        } else {
            ring.submit(&mut bench.world, qid, one).unwrap();
            bench.settle();
            let statuses: Vec<Status> = ring.reap(&mut bench.world, qid).iter().map(Cqe::status).collect();
            assert_eq!(statuses, [Status::ABORTED_MISSING_FUSED]);
        }
    }
}

// Copy, Verify, Write Uncorrectable: their limits and where they are told.

#[test]
fn limits_of_copies_are_told_and_held() {
    let mut bench = Bench::new(100_000, |_| {});
    let mut host = bench.host("nqn.a", 100, 1);
    let identify =
        |which: u8, nsid: u32| Sqe { nsid: U32::new(nsid), ..admin(AdminOpcode::IDENTIFY, 1, which.into(), 0) };
    let (_, page) = host.admin_data(&mut bench.world, identify(cns::NAMESPACE, 1));
    let ns = IdentifyNamespace::read_from_bytes(&page[..4096]).unwrap();
    let (_, page) = host.admin_data(&mut bench.world, identify(cns::CONTROLLER, 0));
    let ctrl = IdentifyController::read_from_bytes(&page[..4096]).unwrap();
    let (_, page) = host.admin_data(&mut bench.world, identify(cns::CS_CONTROLLER, 0));
    let limits = IdentifyNvmController::read_from_bytes(&page[..4096]).unwrap();
    assert_eq!(ctrl.oncs.get() & 0b11_1010_1111, 0b11_1010_1111);
    assert_eq!((ctrl.fuses.get(), ctrl.cdfs.get(), ns.rescap), (1, 0xf, 0xff));
    assert_eq!((ctrl.awun.get(), ctrl.acwu.get(), ctrl.awupf.get()), (255, 0, 0));
    assert_eq!((ns.nawun.get(), ns.nacwu.get(), ns.nsfeat & 2), (2047, 7, 2));
    assert_eq!((limits.vsl, limits.wzsl, limits.wusl, limits.dmrl), (8, 0, 0, 0));
    let (longest, most, ranges) = (ns.mssrl.get(), ns.mcl.get(), usize::from(ns.msrc) + 1);
    let too_much = Status::COMMAND_SIZE_LIMIT;
    let mut ask = |to: u64, list: &[(u64, u16)], wide: bool| {
        let (sqe, list) = copy(to, list, wide);
        bench.status(&mut host, sqe, &list)
    };
    assert!(ask(50_000, &[(0, longest)], false).is_success());
    assert!(ask(50_000, &[(0, longest + 1)], false).same_code(too_much));
    let whole = vec![(0, longest); (most / u32::from(longest)) as usize];
    assert!(ask(50_000, &whole, true).is_success());
    assert!(ask(50_000, &[&whole[..], &[(0, 1)]].concat(), false).same_code(too_much));
    assert!(ask(50_000, &vec![(0, 1); ranges], true).is_success());
    assert!(ask(50_000, &vec![(0, 1); ranges + 1], true).same_code(too_much));
    assert!(ask(50_000, &vec![(0, 1); 256], false).same_code(too_much));
    assert!(ask(99_999, &[(0, 2)], false).same_code(Status::LBA_OUT_OF_RANGE));
    assert!(ask(0, &[(99_999, 2)], false).same_code(Status::LBA_OUT_OF_RANGE));
    assert!(ask(0, &[(u64::MAX, 2)], false).same_code(Status::LBA_OUT_OF_RANGE));
    assert!(ask(u64::MAX, &[(0, 2)], false).same_code(Status::LBA_OUT_OF_RANGE));
    for change in [CopyDw12(0).with_desfmt(2), CopyDw12(0).with_dtype(2), CopyDw12(0).with_dtype(1)] {
        let (sqe, list) = copy(0, &[(10, 1)], false);
        let status = bench.status(&mut host, Sqe { cdw12: U32::new(change.0), ..sqe }, &list);
        assert!(status.same_code(Status::INVALID_FIELD), "{status}");
    }
    // VSL.
    assert!(bench.status(&mut host, io(IoOpcode::VERIFY.0, 1, 0, 2048), &[]).is_success());
    let status = bench.status(&mut host, io(IoOpcode::VERIFY.0, 1, 0, 2049), &[]);
    assert!(status.same_code(Status::INVALID_FIELD), "{status}");
    // The effects log has them.
    let sqe = admin(AdminOpcode::GET_LOG_PAGE, 1, u32::from(lid::EFFECTS) | 0x3ff << 16, 0);
    let (_, page) = host.admin_data(&mut bench.world, sqe);
    let effects = EffectsLog::read_from_bytes(&page[..4096]).unwrap();
    for opcode in [0x04u8, 0x0c, 0x0d, 0x0e, 0x11, 0x15, 0x19] {
        let changes = matches!(opcode, 0x04 | 0x19);
        assert_eq!(effects.io[usize::from(opcode)].get() & 3, 1 | u32::from(changes) << 1, "{opcode:#x}");
    }
}

#[test]
fn a_copy_as_long_as_an_atomic_write_is_atomic() {
    let mut bench = Bench::new(10_000, |_| {});
    let (mut a, mut b) = (bench.host("nqn.a", 100, 1), bench.host("nqn.b", 200, 1));
    bench.status(&mut a, io(WRITE, 1, 0, 64), &filled(7, 64));
    let ops = |bench: &Bench| bench.world.issued.iter().map(|io| io.op).collect::<Vec<_>>();
    // A read that has begun is let through; one that comes behind the copy sees all of it; so does a write.
    let before = bench.send(&mut b, 1, io(READ, 1, 1_000, 64), &[0; 64 * BLOCK]);
    bench.world.run();
    let (sqe, list) = copy(1_000, &[(0, 32), (32, 32)], false);
    let copying = bench.send(&mut a, 1, sqe, &list);
    bench.world.run();
    assert_eq!(ops(&bench), [Op::Read], "the copy waits for it");
    let behind = bench.send(&mut b, 1, io(READ, 2, 1_063, 1), &[0; BLOCK]);
    let beside = bench.send(&mut b, 1, io(READ, 3, 1_064, 1), &[0; BLOCK]);
    bench.world.run();
    assert_eq!(ops(&bench), [Op::Read, Op::Read], "one of other blocks does not wait");
    bench.done(1);
    bench.done(0);
    bench.world.run();
    assert_eq!(ops(&bench), [Op::Copy]);
    let write = bench.send(&mut b, 1, io(WRITE, 4, 1_000, 1), &filled(9, 1));
    bench.world.run();
    bench.done(0);
    bench.world.run();
    assert_eq!(ops(&bench), [Op::Copy], "its second half, and nobody between");
    bench.settle();
    for (host, tag) in [(&a, copying), (&b, before), (&b, behind), (&b, beside), (&b, write)] {
        assert!(bench.answer(host, 1, tag).expect("answered").status().is_success());
    }
    assert_eq!(bench.world.host.data[&(201, behind)], filled(7, 1));
    assert_eq!(bench.read(&mut b, 1_000, 2).unwrap(), [filled(9, 1), filled(7, 1)].concat());
    // A longer one is no more atomic than a longer write would be: reads pass.
    let (sqe, list) = copy(5_000, &[(0, 1_024), (0, 1_024), (0, 1_024)], false);
    bench.send(&mut a, 1, sqe, &list);
    bench.world.run();
    bench.send(&mut b, 1, io(READ, 5, 5_000, 1), &[0; BLOCK]);
    bench.world.run();
    assert_eq!(ops(&bench), [Op::Copy, Op::Read]);
    bench.settle();
}

/// Two tenants with the same share under deficit round robin: one copies 64 KiB at a time, the other reads so many blocks of 512 bytes. How many of 32
/// commands were copies, and how many reads.
fn copies_beside_reads(blocks: u32) -> [u32; 2] {
    let tenant = |host: &str| TenantConfig { hosts: vec![host.into()], ..TenantConfig::new(host, Class::Medium) };
    let mut bench = Bench::new(10_000, |c| {
        (c.slots, c.cost, c.tenants) = (1, Cost::Bytes, ["nqn.a", "nqn.b"].map(tenant).into());
    });
    let (mut copier, mut reader) = (bench.host("nqn.a", 100, 1), bench.host("nqn.b", 200, 1));
    for n in 0..32u16 {
        let (sqe, list) = copy(5_000, &[(u64::from(n), 128)], n % 2 == 0);
        bench.send(&mut copier, 1, Sqe { cid: U16::new(n), ..sqe }, &list);
        bench.send(&mut reader, 1, io(READ, n, 0, blocks), &filled(0, blocks as usize));
    }
    let mut served = [0; 2];
    for _ in 0..32 {
        bench.world.run();
        served[usize::from(bench.world.issued[0].op == Op::Read)] += 1;
        bench.done(0);
    }
    served
}

#[test]
fn a_copy_costs_twice_its_length() {
    let [copies, reads] = copies_beside_reads(256);
    assert!(copies.abs_diff(reads) <= 2, "reads of 128 KiB: {copies} and {reads}");
    // What costs its length would take turns with these.
    let [copies, reads] = copies_beside_reads(128);
    assert!((20..=23).contains(&reads), "reads of 64 KiB: {copies} and {reads}");
}

/// Charges reads so many bytes, leaves the others to the drive, and remembers what it was asked.
#[derive(Debug)]
struct Prices {
    read: u32,
    asked: Arc<Mutex<Vec<ChargedCommand>>>,
}

impl CostPolicy for Prices {
    fn cost(&mut self, command: ChargedCommand) -> Option<u32> {
        self.asked.lock().unwrap().push(command);
        (command.op == Op::Read).then_some(self.read)
    }
}

/// Writes of 4 KiB of one tenant beside reads of 4 KiB of another one, in queues that are never empty: how many of 400 were writes, and how many reads.
fn priced(read: u32, cost: Cost) -> ([u32; 2], Vec<ChargedCommand>) {
    let tenant = |host: &str| TenantConfig { hosts: vec![host.into()], ..TenantConfig::new(host, Class::Medium) };
    let mut bench = Bench::new(10_000, |c| {
        (c.slots, c.cost, c.tenants) = (1, cost, ["nqn.a", "nqn.b"].map(tenant).into());
    });
    let asked = Arc::default();
    bench.world.drive.set_cost_policy(Box::new(Prices { read, asked: Arc::clone(&asked) }));
    let (mut writer, mut reader) = (bench.host("nqn.a", 100, 1), bench.host("nqn.b", 200, 1));
    let mut sent = 0u16;
    let mut send = |bench: &mut Bench, reads: bool| {
        sent += 1;
        match reads {
            true => bench.send(&mut reader, 1, io(READ, sent, 0, 8), &filled(0, 8)),
            false => bench.send(&mut writer, 1, io(WRITE, sent, 8, 8), &filled(1, 8)),
        };
    };
    for _ in 0..8 {
        [true, false].into_iter().for_each(|reads| send(&mut bench, reads));
    }
    let mut served = [0; 2];
    for _ in 0..400 {
        bench.world.run();
        let reads = bench.world.issued[0].op == Op::Read;
        served[usize::from(reads)] += 1;
        bench.done(0);
        send(&mut bench, reads);
    }
    let asked = asked.lock().unwrap().clone();
    (served, asked)
}

#[test]
fn a_policy_says_what_commands_cost() {
    let (even, asked) = priced(4096, Cost::Bytes);
    assert!(even[0].abs_diff(even[1]) <= 64, "{even:?}");
    let write = asked.iter().find(|c| c.op == Op::Write).expect("a write was charged");
    assert_eq!(*write, ChargedCommand { tenant: 0, op: Op::Write, offset: 8192, len: 4096, fua: false, own: 4096 });
    // Three times as dear: a third as many.
    let (dear, _) = priced(12_288, Cost::Commands);
    assert!((270..=330).contains(&dear[0]), "{dear:?}");
    // What is below 4 KiB, and above what may be charged.
    assert_eq!(priced(0, Cost::Bytes).0, even);
    assert_eq!(priced(u32::MAX, Cost::Bytes).0, priced(COST_MAX, Cost::Bytes).0);
    // The drive's own cost is what it is told, and what counts where the policy says nothing.
    let (_, asked) = priced(4096, Cost::DeviceTime);
    assert!(asked.iter().all(|c| c.own == 4096), "without flash device time is bytes");
}

#[test]
fn a_cost_that_is_changed_leaves_a_policy() {
    let mut bench = Bench::new(64, |c| c.slots = 1);
    let asked = Arc::default();
    assert!(bench.world.drive.cost_policy().is_none());
    bench.world.drive.set_cost_policy(Box::new(Prices { read: 4096, asked: Arc::clone(&asked) }));
    bench.world.drive.set_cost(Cost::Commands);
    let mut host = bench.host("nqn.a", 100, 1);
    bench.status(&mut host, io(WRITE, 1, 0, 16), &filled(3, 16));
    let asked = asked.lock().unwrap();
    assert_eq!((asked.len(), asked[0].len, asked[0].own), (1, 8192, 4096));
    assert!(bench.world.drive.cost_policy().is_some_and(|policy| policy.failure().is_none()));
}

#[test]
fn unreadable_blocks_outlive_their_host_and_end_where_they_are_written() {
    let mut bench = Bench::new(64, |c| c.latency = Nanos(10_000));
    let mut host = bench.host("nqn.a", 100, 1);
    bench.status(&mut host, io(WRITE, 1, 0, 64), &filled(3, 64));
    assert!(bench.status(&mut host, io(IoOpcode::WRITE_UNCORRECTABLE.0, 1, 10, 10), &[]).is_success());
    bench.world.disconnect(Owner(100), host.queues[0]);
    bench.world.run();
    bench.world.close();
    let mut host = bench.host("nqn.b", 200, 1);
    assert!(bench.read(&mut host, 19, 1).is_err_and(|s| s.same_code(Status::UNRECOVERED_READ_ERROR)));
    // A write that was aborted before its time has healed nothing.
    let tag = bench.send(&mut host, 1, io(WRITE, 5, 12, 1), &filled(4, 1));
    bench.world.run();
    host.admin(&mut bench.world, admin(AdminOpcode::ABORT, 70, 5 << 16 | 1, 0));
    bench.settle();
    let aborted = bench.answer(&host, 1, tag).unwrap().status().same_code(Status::ABORT_REQUESTED);
    assert_eq!(bench.read(&mut host, 12, 1).is_err(), aborted);
    // One that the media fails neither.
    let tag = bench.send(&mut host, 1, io(WRITE, 6, 13, 1), &filled(4, 1));
    bench.world.run();
    bench.world.pass(Nanos(20_000));
    bench.world.done(0, Status::WRITE_FAULT);
    assert!(bench.answer(&host, 1, tag).unwrap().status().same_code(Status::WRITE_FAULT));
    assert!(bench.read(&mut host, 13, 1).is_err());
    assert!(bench.status(&mut host, io(WRITE, 7, 13, 2), &filled(4, 2)).is_success());
    assert_eq!(bench.read(&mut host, 13, 2).unwrap(), filled(4, 2));
    assert_eq!(bench.read(&mut host, 20, 1).unwrap(), filled(3, 1));
}

// Get LBA Status.

/// A list with room for so many dwords: its status, CMPC and ranges.
fn lba_status(bench: &mut Bench, host: &mut Fabric, range: (u64, u16), room: u32) -> (Status, u8, Vec<(u64, u64)>) {
    let dw13 = LbaStatusDw13(0).with_atype(action::TRACKED.into()).with_range(range.1.into());
    let sqe = admin(AdminOpcode::GET_LBA_STATUS, 90, range.0 as u32, (range.0 >> 32) as u32);
    let sqe = Sqe { nsid: U32::new(1), cdw12: U32::new(room - 1), cdw13: U32::new(dw13.0), ..sqe };
    let (cqe, page) = host.admin_data(&mut bench.world, sqe);
    let (head, rest) = LbaStatusHeader::read_from_prefix(&page).unwrap();
    let entries = rest.chunks_exact(16).take(head.count.get() as usize).map(|bytes| {
        let one = LbaStatusDescriptor::read_from_bytes(bytes).unwrap();
        assert_eq!(one.status, 3);
        (one.dslba.get(), one.dslba.get() + u64::from(one.nlb.get()) + 1)
    });
    (cqe.status(), head.cmpc, entries.collect())
}

/// What is asked for (first block and range length, room in dwords), and what comes: CMPC and ranges.
type Listed = ((u64, u16), u32, u8, &'static [(u64, u64)]);

#[test]
fn what_cannot_be_read_is_listed_in_ranges() {
    let mut bench = Bench::new(100, |_| {});
    let mut host = bench.host("nqn.a", 10, 1);
    let all = (Status::SUCCESS, completion::COMPLETE);
    assert_eq!(lba_status(&mut bench, &mut host, (0, 0), 64), (all.0, all.1, vec![]));
    for (slba, n) in [(10, 5), (15, 2), (40, 1), (98, 2)] {
        assert!(bench.status(&mut host, io(IoOpcode::WRITE_UNCORRECTABLE.0, 1, slba, n), &[]).is_success());
    }
    let cases: [Listed; 8] = [
        ((0, 0), 64, completion::COMPLETE, &[(10, 17), (40, 41), (98, 100)]),
        ((12, 0), 64, completion::COMPLETE, &[(12, 17), (40, 41), (98, 100)]),
        ((12, 2), 64, completion::COMPLETE, &[(12, 14)]),
        ((17, 23), 64, completion::COMPLETE, &[]),
        ((99, 1), 64, completion::COMPLETE, &[(99, 100)]),
        // Room for two, for one and a half, for none.
        ((0, 0), 10, completion::INCOMPLETE, &[(10, 17), (40, 41)]),
        ((0, 0), 9, completion::INCOMPLETE, &[(10, 17)]),
        ((0, 41), 2, completion::INCOMPLETE, &[]),
    ];
    for (range, room, cmpc, ranges) in cases {
        let answer = lba_status(&mut bench, &mut host, range, room);
        assert_eq!(answer, (Status::SUCCESS, cmpc, ranges.to_vec()), "{range:?}, {room} dwords");
    }
    for (range, room) in [((100, 0), 64), ((99, 2), 64), ((u64::MAX, 1), 64)] {
        let (status, ..) = lba_status(&mut bench, &mut host, range, room);
        assert!(status.same_code(Status::LBA_OUT_OF_RANGE), "{range:?}: {status}");
    }
    let (status, ..) = lba_status(&mut bench, &mut host, (0, 0), u32::MAX);
    assert!(status.same_code(Status::INVALID_FIELD), "more than MDTS: {status}");
    let ask = |nsid: u32, atype: u32| Sqe {
        nsid: U32::new(nsid),
        cdw12: U32::new(3),
        cdw13: U32::new(atype << 24),
        ..admin(AdminOpcode::GET_LBA_STATUS, 91, 0, 0)
    };
    for (nsid, atype, expected) in [
        (1, 0x10, Status::SUCCESS),
        (1, 0x02, Status::INVALID_FIELD),
        (1, 0x00, Status::INVALID_FIELD),
        (2, 0x11, Status::INVALID_NAMESPACE_OR_FORMAT),
        (u32::MAX, 0x11, Status::INVALID_NAMESPACE_OR_FORMAT),
        (0, 0x11, Status::INVALID_NAMESPACE_OR_FORMAT),
    ] {
        let status = host.admin(&mut bench.world, ask(nsid, atype)).status();
        assert!(status.same_code(expected), "namespace {nsid}, action {atype:#x}: {status}");
    }
    // What was written again is not listed any more.
    assert!(bench.status(&mut host, io(WRITE, 1, 12, 1), &filled(1, 1)).is_success());
    assert!(bench.status(&mut host, io(IoOpcode::WRITE_ZEROES.0, 1, 40, 60), &[]).is_success());
    assert_eq!(lba_status(&mut bench, &mut host, (0, 0), 64).2, [(10, 12), (13, 17)]);
}

#[test]
fn a_host_is_told_of_what_may_be_unrecoverable() {
    let mut bench = Bench::new(1_000, |_| {});
    let mut host = bench.host("nqn.a", 10, 1);
    let page = |bench: &mut Bench, host: &mut Fabric, rae: u32| {
        let sqe = admin(AdminOpcode::GET_LOG_PAGE, 1, u32::from(lid::LBA_STATUS) | rae << 15 | 0xff << 16, 0);
        let (cqe, page) = host.admin_data(&mut bench.world, sqe);
        assert!(cqe.status().is_success());
        let head = LbaStatusLog::read_from_bytes(&page[..16]).unwrap();
        let rest = page[16..head.length.get() as usize].to_vec();
        ((head.elements.get(), head.estimate.get(), head.generation.get()), rest)
    };
    let spoil = |bench: &mut Bench, host: &mut Fabric, slba: u64, n: u32| {
        assert!(bench.status(host, io(IoOpcode::WRITE_UNCORRECTABLE.0, 1, slba, n), &[]).is_success());
    };
    assert_eq!(page(&mut bench, &mut host, 0), ((0, 0, 0), vec![]));
    let wait = |bench: &mut Bench, host: &mut Fabric, cid| {
        host.send(&mut bench.world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, cid, 0, 0))
    };
    let event = wait(&mut bench, &mut host, 50);
    spoil(&mut bench, &mut host, 10, 5);
    assert_eq!(host.answer(&mut bench.world, 0, event), None, "it has not asked for notices");
    assert!(host.admin(&mut bench.world, set_feature(fid::ASYNC_EVENTS, 1 << 13)).status().is_success());
    // Nothing new, then a block more.
    spoil(&mut bench, &mut host, 11, 3);
    assert_eq!(host.answer(&mut bench.world, 0, event), None);
    spoil(&mut bench, &mut host, 14, 2);
    let told = host.answer(&mut bench.world, 0, event).expect("an event is reported");
    assert_eq!(AsyncEvent::from_dw0(told.dw0.get()), AsyncEvent::LBA_STATUS);
    let element =
        |ranges| LbaStatusElement { nsid: U32::new(1), ranges: U32::new(ranges), action: 0x11, ..Default::default() };
    let range = LbaStatusRange { rslba: U64::new(10), rnlb: U32::new(5), ..Default::default() };
    let first = ((1, 6, 2), [element(1).as_bytes(), range.as_bytes()].concat());
    // It stays what it was until it was read without RAE; the event waits for that as well.
    assert_eq!(page(&mut bench, &mut host, 1), first);
    let event = wait(&mut bench, &mut host, 51);
    for i in 0..17 {
        spoil(&mut bench, &mut host, 100 + 2 * i, 1);
    }
    assert_eq!(page(&mut bench, &mut host, 1), first);
    assert_eq!(host.answer(&mut bench.world, 0, event), None);
    assert_eq!(page(&mut bench, &mut host, 0), first);
    assert_eq!(host.answer(&mut bench.world, 0, event), None, "what came before the page was read is in the next one");
    let many = ((1, 23, 19), element(EVERY_BLOCK).as_bytes().to_vec());
    assert_eq!(page(&mut bench, &mut host, 0), many);
    // Another host reads for itself; the counter outlives the power.
    let mut other = bench.host("nqn.b", 20, 1);
    assert_eq!(page(&mut bench, &mut other, 0), many);
    let blob = bench.world.drive.save();
    let mut again = Bench::new(1_000, |_| {});
    again.world.drive.restore(&blob).expect("its own state");
    let mut host = again.host("nqn.a", 10, 1);
    assert_eq!(page(&mut again, &mut host, 0), many);
    // The interval between events is 0, whatever a host asks for.
    let set = host.admin(&mut again.world, set_feature(fid::LBA_STATUS, 100));
    assert_eq!((set.status(), set.dw0.get()), (Status::SUCCESS, 0));
}

// Reservations.

fn report(bench: &mut Bench, host: &mut Fabric) -> (ReservationStatus, Vec<RegisteredControllerExtended>) {
    let sqe = Sqe { cdw10: U32::new(1023), cdw11: U32::new(1), ..io(IoOpcode::RESERVATION_REPORT.0, 1, 0, 1) };
    let (status, page) = bench.ask(host, sqe, &[0xff; 4096]);
    assert!(status.is_success(), "{status}");
    let head = ReservationStatus::read_from_bytes(&page[..24]).unwrap();
    let list = page[64..].chunks_exact(64).take(usize::from(head.regctl.get()));
    (head, list.map(|r| RegisteredControllerExtended::read_from_bytes(r).unwrap()).collect())
}

/// Every command of the groups, from a holder, a registrant and a stranger, under every type.
#[test]
fn reservations_keep_out_whom_they_should() {
    let mut bench = Bench::new(64, |_| {});
    let mut hosts = [("nqn.a", 10), ("nqn.b", 20), ("nqn.c", 30)].map(|(name, base)| bench.host(name, base, 1));
    let (copying, list) = copy(20, &[(0, 2)], false);
    let (trimming, ranges) = trim(&[DsmRange::new(0, 1)]);
    let reads = [(io(READ, 1, 0, 1), filled(0, 1)), (io(COMPARE, 1, 30, 1), filled(0, 1)), (io(0x0c, 1, 0, 1), vec![])];
    let writes = [
        (io(WRITE, 1, 0, 1), filled(0, 1)),
        (io(IoOpcode::WRITE_ZEROES.0, 1, 0, 1), vec![]),
        (io(IoOpcode::FLUSH.0, 1, 0, 1), vec![]),
        (Sqe { nsid: U32::new(u32::MAX), ..io(IoOpcode::FLUSH.0, 1, 0, 1) }, vec![]),
        (io(IoOpcode::WRITE_UNCORRECTABLE.0, 1, 40, 1), vec![]),
        (copying, list),
        (trimming, ranges),
    ];
    for rtype in 1..=6u32 {
        for (i, host) in hosts.iter_mut().enumerate().take(2) {
            let (sqe, keys) = register(1 + i as u64);
            assert!(bench.status(host, sqe, &keys).is_success());
        }
        let (sqe, keys) = acquire(rtype, 1);
        assert!(bench.status(&mut hosts[0], sqe, &keys).is_success());
        let (head, list) = report(&mut bench, &mut hosts[2]);
        assert_eq!((u32::from(head.rtype), list.len()), (rtype, 2));
        let holds = [true, rtype >= 5];
        assert_eq!([list[0].rcsts == 1, list[1].rcsts == 1], holds);
        assert_eq!((list[0].rkey.get(), list[0].hostid, list[1].hostid), (1, [10; 16], [20; 16]));
        for (i, host) in hosts.iter_mut().enumerate() {
            let may_read = i == 0 || matches!((rtype, i), (1 | 3 | 5, _) | (4 | 6, 1));
            let may_write = i == 0 || i == 1 && rtype >= 3;
            for (allowed, group) in [(may_read, &reads[..]), (may_write, &writes[..])] {
                for (sqe, data) in group {
                    let status = bench.status(host, *sqe, data);
                    let expected = if allowed { Status::SUCCESS } else { Status::RESERVATION_CONFLICT };
                    assert!(status.same_code(expected), "type {rtype}, host {i}, {:#x}: {status}", sqe.opcode);
                }
            }
            let (one, two) = bench.pair(host, 4, &filled(0, 1), &filled(0, 1));
            let (conflict, failed) = (Status::RESERVATION_CONFLICT.dnr(), Status::ABORTED_FAILED_FUSED);
            let expected = match (may_read, may_write) {
                (_, true) => (Status::SUCCESS, Status::SUCCESS),
                (true, false) => (failed, conflict),
                (false, false) => (conflict, failed),
            };
            assert_eq!((one, two), expected, "type {rtype}, host {i}");
        }
        let clear = reserve(IoOpcode::RESERVATION_RELEASE, ReservationDw10(0).with_action(1), (1, 0));
        assert!(bench.status(&mut hosts[0], clear.0, &clear.1).is_success());
        for (sqe, data) in reads.iter().chain(&writes) {
            assert!(bench.status(&mut hosts[2], *sqe, data).is_success(), "nothing is left of it");
        }
    }
}

/// Admin commands that change a namespace are of the write group.
#[test]
fn a_reservation_keeps_sanitize_away() {
    let mut bench = Bench::new(64, |_| {});
    let (mut a, mut b) = (bench.host("nqn.a", 10, 1), bench.host("nqn.b", 20, 1));
    let (sqe, keys) = register(1);
    assert!(bench.status(&mut a, sqe, &keys).is_success());
    let (sqe, keys) = acquire(1, 1);
    assert!(bench.status(&mut a, sqe, &keys).is_success());
    assert!(bench.status(&mut a, io(IoOpcode::WRITE_UNCORRECTABLE.0, 1, 5, 2), &[]).is_success());
    let erase = admin(AdminOpcode::SANITIZE, 1, 2, 0);
    assert!(b.admin(&mut bench.world, erase).status().same_code(Status::RESERVATION_CONFLICT));
    assert!(a.admin(&mut bench.world, erase).status().is_success());
    bench.settle();
    // It has healed what could not be read, and left the reservation.
    assert_eq!(bench.read(&mut b, 5, 1).unwrap(), filled(0, 1));
    assert!(bench.status(&mut b, io(WRITE, 1, 5, 1), &filled(1, 1)).same_code(Status::RESERVATION_CONFLICT));
}

/// A front controller has no identity: it is a stranger.
#[test]
fn a_front_controller_is_a_stranger() {
    use weir_controller::{Attach, BlockRequest, Event, Tag, TransportModel};
    let mut bench = Bench::new(64, |_| {});
    let mut host = bench.host("nqn.a", 10, 1);
    let attach = Attach { tenant: 0, owner: Owner(90), model: TransportModel::Front, host: "vm".into() };
    let front = bench.world.drive.attach(Nanos(0), attach).unwrap();
    let queue = bench.world.drive.add_message_queue(front, 8, None, Owner(90)).unwrap();
    let mut tag = 0;
    let mut ask = |bench: &mut Bench, op: Op, len: u32| {
        tag += 1;
        bench.world.host.pending.insert((90, tag), tag as u16);
        let request = BlockRequest { op, nsid: 1, offset: 0, len, fua: false };
        bench.world.event(Event::Submit { queue, request, tag: Tag(tag) });
        bench.settle();
        bench.world.answer(Owner(90), tag).unwrap().status()
    };
    let (sqe, keys) = register(1);
    assert!(bench.status(&mut host, sqe, &keys).is_success());
    let (sqe, keys) = acquire(1, 1);
    assert!(bench.status(&mut host, sqe, &keys).is_success());
    assert!(ask(&mut bench, Op::Read, 512).is_success());
    for (op, len) in
        [(Op::Write, 512), (Op::Deallocate, 512), (Op::WriteZeroes { deallocate: true }, 512), (Op::Flush, 0)]
    {
        let status = ask(&mut bench, op, len);
        assert!(status.same_code(Status::RESERVATION_CONFLICT), "{op:?}: {status}");
    }
}

#[test]
fn notifications_are_queued_masked_and_announced() {
    let mut bench = Bench::new(64, |_| {});
    let mut hosts = [("nqn.a", 10), ("nqn.b", 20)].map(|(name, base)| bench.host(name, base, 1));
    let event = hosts[1].send(&mut bench.world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 50, 0, 0));
    for (i, host) in hosts.iter_mut().enumerate() {
        let (sqe, keys) = register(1 + i as u64);
        assert!(bench.status(host, sqe, &keys).is_success());
    }
    let cycle = |bench: &mut Bench, host: &mut Fabric| {
        for (sqe, keys) in
            [acquire(3, 1), reserve(IoOpcode::RESERVATION_RELEASE, ReservationDw10(0).with_rtype(3), (1, 0))]
        {
            assert!(bench.status(host, sqe, &keys).is_success());
        }
    };
    let log = |bench: &mut Bench, host: &mut Fabric| {
        let sqe = admin(AdminOpcode::GET_LOG_PAGE, 1, u32::from(lid::RESERVATION) | 15 << 16, 0);
        let (cqe, page) = host.admin_data(&mut bench.world, sqe);
        assert!(cqe.status().is_success());
        let page = ReservationNotification::read_from_bytes(&page[..64]).unwrap();
        (page.count.get(), page.kind, page.available, page.nsid.get())
    };
    assert_eq!(log(&mut bench, &mut hosts[1]), (0, 0, 0, 0));
    cycle(&mut bench, &mut hosts[0]);
    cycle(&mut bench, &mut hosts[0]);
    let told = hosts[1].answer(&mut bench.world, 0, event).expect("an event is reported");
    assert_eq!(AsyncEvent::from_dw0(told.dw0.get()), AsyncEvent::RESERVATION);
    let again = hosts[1].send(&mut bench.world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 51, 0, 0));
    bench.settle();
    assert_eq!(hosts[1].answer(&mut bench.world, 0, again), None, "not before the log is read");
    assert_eq!(log(&mut bench, &mut hosts[1]), (1, 2, 1, 1));
    assert!(hosts[1].answer(&mut bench.world, 0, again).is_some(), "there is another one");
    assert_eq!(log(&mut bench, &mut hosts[1]), (2, 2, 0, 1));
    assert_eq!(log(&mut bench, &mut hosts[1]), (0, 0, 0, 0));
    // Masked: of one namespace, or of all.
    for nsid in [1, u32::MAX] {
        let mask = |value| Sqe { nsid: U32::new(nsid), ..set_feature(fid::RESERVATION_MASK, value) };
        assert!(hosts[1].admin(&mut bench.world, mask(4)).status().is_success());
        let get = Sqe { nsid: U32::new(1), ..get_feature(fid::RESERVATION_MASK, 0) };
        assert_eq!(hosts[1].admin(&mut bench.world, get).dw0.get(), 4);
        cycle(&mut bench, &mut hosts[0]);
        assert_eq!(log(&mut bench, &mut hosts[1]).0, 0);
        assert!(hosts[1].admin(&mut bench.world, mask(0)).status().is_success());
        assert!(hosts[1].admin(&mut bench.world, mask(1)).status().same_code(Status::INVALID_FIELD));
    }
    cycle(&mut bench, &mut hosts[0]);
    assert_eq!(log(&mut bench, &mut hosts[1]), (3, 2, 0, 1));
    // Far too many: the newest are kept, and the counts tell of those that are gone.
    for _ in 0..300 {
        cycle(&mut bench, &mut hosts[0]);
    }
    assert_eq!(log(&mut bench, &mut hosts[1]), (49, 2, 254, 1));
}

#[test]
fn preempt_and_abort_ends_what_the_others_do() {
    let mut bench = Bench::new(64, |c| (c.slots, c.latency) = (5, Nanos(10_000)));
    let mut hosts = [("nqn.a", 10), ("nqn.b", 20)].map(|(name, base)| bench.host(name, base, 1));
    for (i, host) in hosts.iter_mut().enumerate() {
        let (sqe, keys) = register(1 + i as u64);
        assert!(bench.status(host, sqe, &keys).is_success());
    }
    let (sqe, keys) = acquire(4, 2);
    assert!(bench.status(&mut hosts[1], sqe, &keys).is_success());
    // One write is with the media, three have their time before them.
    let writes = [0u16, 1, 2, 3].map(|n| {
        let tag = bench.send(&mut hosts[1], 1, io(WRITE, n, n.into(), 1), &filled(6, 1));
        bench.world.run();
        if n == 0 {
            bench.world.pass(Nanos(10_000));
            bench.world.run();
            assert_eq!(bench.world.issued.len(), 1);
        }
        tag
    });
    let dw10 = ReservationDw10(0).with_action(2).with_rtype(2);
    let (sqe, keys) = reserve(IoOpcode::RESERVATION_ACQUIRE, dw10, (1, 2));
    let preempt = bench.send(&mut hosts[0], 1, sqe, &keys);
    bench.world.run();
    for _ in 0..4 {
        bench.world.pass(Nanos(10_000));
        bench.world.run();
    }
    let aborted = |bench: &mut Bench, tag| bench.answer(&hosts[1], 1, tag).map(|cqe| cqe.status());
    for tag in &writes[1..] {
        assert_eq!(aborted(&mut bench, *tag), Some(Status::ABORTED_PREEMPT));
    }
    assert_eq!(aborted(&mut bench, writes[0]), None);
    assert_eq!(bench.answer(&hosts[0], 1, preempt), None, "one of them is still with the media");
    bench.settle();
    assert_eq!(aborted(&mut bench, writes[0]), Some(Status::SUCCESS));
    assert!(bench.answer(&hosts[0], 1, preempt).unwrap().status().is_success());
    let (head, list) = report(&mut bench, &mut hosts[0]);
    assert_eq!((head.rtype, list.len(), list[0].rkey.get()), (2, 1, 1));
    let [ref mut a, ref mut b] = hosts;
    assert!(bench.read(b, 0, 1).is_err_and(|s| s.same_code(Status::RESERVATION_CONFLICT)));
    assert_eq!(bench.read(a, 0, 4).unwrap(), [filled(6, 1), filled(0, 3)].concat());
}

/// What persists is in the drive's nonvolatile state, in exactly these bytes (docs/reference/formats.md), and a drive that is made with it
/// goes on as before; what is no state of such a drive is refused.
#[test]
fn what_persists_comes_back() {
    let mut bench = Bench::new(64, |_| {});
    let mut a = bench.host("nqn.a", 10, 1);
    let mut b = bench.host("nqn.b", 20, 1);
    assert!(bench.status(&mut a, io(IoOpcode::WRITE_UNCORRECTABLE.0, 1, 5, 2), &[]).is_success());
    let before = bench.world.drive.nonvolatile_generation();
    let (sqe, keys) = reserve(IoOpcode::RESERVATION_REGISTER, ReservationDw10(0).with_cptpl(3), (0, 7));
    assert!(bench.status(&mut a, sqe, &keys).is_success());
    let (sqe, keys) = register(8);
    assert!(bench.status(&mut b, sqe, &keys).is_success());
    let (sqe, keys) = acquire(1, 8);
    assert!(bench.status(&mut b, sqe, &keys).is_success());
    assert_ne!(bench.world.drive.nonvolatile_generation(), before, "it is to be written");
    let blob = bench.world.drive.save();
    let has = |bytes: &[u8]| blob.windows(bytes.len()).any(|w| w == bytes);
    let mut reserved = vec![1, 0, 0, 0, 2, 0, 0, 0, 2, 0];
    for (host, key) in [(10u8, 7u8), (20, 8)] {
        reserved.extend([host; 16]);
        reserved.extend([key, 0, 0, 0, 0, 0, 0, 0]);
    }
    reserved.extend([1, 1, 0]);
    assert!(has(&reserved), "{blob:02x?}");
    assert!(has(&[1, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]), "{blob:02x?}");
    // Section 34, version 1, two bytes.
    assert!(has(&[34, 0, 1, 0, 2, 0, 0, 0, 1, 0]), "{blob:02x?}");
    let mut again = Bench::new(64, |_| {});
    again.world.drive.restore(&blob).expect("its own state");
    again.world.drive.check();
    let (mut a, mut b) = (again.host("nqn.a", 10, 1), again.host("nqn.b", 20, 1));
    let (head, list) = report(&mut again, &mut a);
    assert_eq!((head.rtype, head.generation.get(), head.ptpls, list.len()), (1, 2, 1, 2));
    assert!(again.status(&mut a, io(WRITE, 1, 6, 1), &filled(1, 1)).same_code(Status::RESERVATION_CONFLICT));
    assert!(again.read(&mut a, 6, 1).is_err_and(|s| s.same_code(Status::UNRECOVERED_READ_ERROR)));
    assert!(again.status(&mut b, io(WRITE, 1, 6, 1), &filled(1, 1)).is_success());
    assert_eq!(again.read(&mut a, 6, 1).unwrap(), filled(1, 1));
    // A namespace that is not there.
    let mut other = Bench::new(64, |c| c.namespaces[0].nsid = 2);
    assert!(other.world.drive.restore(&blob).is_err());
}

#[test]
fn identifiers_of_hosts() {
    let mut bench = Bench::new(64, |_| {});
    // Two controllers of one host are one registrant, and both are reported.
    let mut a = bench.host("nqn.a", 10, 1);
    let (sqe, keys) = register(5);
    assert!(bench.status(&mut a, sqe, &keys).is_success());
    let short = Sqe { cdw10: U32::new(63), ..io(IoOpcode::RESERVATION_REPORT.0, 1, 0, 1) };
    let status = bench.status(&mut a, short, &[0; 256]);
    assert!(status.same_code(Status::HOST_ID_INCONSISTENT), "{status}");
    // On rings the host says who it is, once.
    let mut ring = TestRing::ready(&mut bench.world, 0, Owner(7), ams::RR);
    ring.add_queue(&mut bench.world, 1, 8, 0);
    let ask = |bench: &mut Bench, ring: &mut TestRing, sqe: Sqe| {
        ring.submit(&mut bench.world, 1, Sqe { dptr: [U64::new(0x38000), U64::ZERO], ..sqe }).unwrap();
        bench.settle();
        ring.reap(&mut bench.world, 1)[0].status()
    };
    let (sqe, keys) = register(6);
    bench.world.host.ring(Owner(7))[0x38000..0x38010].copy_from_slice(&keys);
    assert!(ask(&mut bench, &mut ring, sqe).is_success(), "a host without an identifier is a host of its own");
    let (head, list) = report(&mut bench, &mut a);
    assert_eq!((head.regctl.get(), list[1].hostid, list[1].rkey.get()), (2, [0; 16], 6));
    let set = |bench: &mut Bench, ring: &mut TestRing, wide: u32, id: u8| {
        bench.world.host.ring(Owner(7))[0x38000..0x38010].fill(id);
        let sqe = Sqe { dptr: [U64::new(0x38000), U64::ZERO], ..set_feature(fid::HOST_ID, wide) };
        ring.admin(&mut bench.world, sqe).status()
    };
    assert!(set(&mut bench, &mut ring, 0, 8).is_success());
    assert_eq!(report(&mut bench, &mut a).1.len(), 1, "what it was before is forgotten");
    assert!(set(&mut bench, &mut ring, 0, 9).same_code(Status::COMMAND_SEQUENCE_ERROR));
    let (sqe, keys) = register(7);
    bench.world.host.ring(Owner(7))[0x38000..0x38010].copy_from_slice(&keys);
    assert!(ask(&mut bench, &mut ring, sqe).is_success());
    assert!(ask(&mut bench, &mut ring, short).is_success(), "its identifier is a short one");
    let page = bench.world.host.ring(Owner(7))[0x38000..0x38100].to_vec();
    assert_eq!((page[5], page[24 + 24 + 8], page[24 + 24 + 16]), (2, 8, 7));
    let long = Sqe { cdw11: U32::new(1), ..short };
    assert!(ask(&mut bench, &mut ring, long).same_code(Status::HOST_ID_INCONSISTENT));
    // A host with a short identifier and one with a long one are two hosts, whatever is alike in them.
    let (sqe, keys) = acquire(1, 7);
    bench.world.host.ring(Owner(7))[0x38000..0x38010].copy_from_slice(&keys);
    assert!(ask(&mut bench, &mut ring, sqe).is_success());
    assert!(ask(&mut bench, &mut ring, io(WRITE, 3, 0, 1)).is_success());
    let status = bench.status(&mut a, io(WRITE, 3, 0, 1), &[0; BLOCK]);
    assert!(status.same_code(Status::RESERVATION_CONFLICT), "{status}");
    let (_, list) = report(&mut bench, &mut a);
    assert_eq!(
        (list[0].rcsts, list[1].rcsts, list[1].hostid[..9].to_vec()),
        (0, 1, [[8u8; 8].as_slice(), &[0]].concat())
    );
    // Persistence: power that goes takes what was not to persist.
    bench.world.drive.power_cut();
    bench.world.run();
    bench.world.close();
    let mut a = bench.host("nqn.a", 40, 1);
    assert_eq!(report(&mut bench, &mut a).1.len(), 0);
    let dw10 = ReservationDw10(0).with_cptpl(3);
    let (sqe, keys) = reserve(IoOpcode::RESERVATION_REGISTER, dw10, (0, 5));
    assert!(bench.status(&mut a, sqe, &keys).is_success());
    let get = Sqe { nsid: U32::new(1), ..get_feature(fid::RESERVATION_PERSISTENCE, 0) };
    assert_eq!(a.admin(&mut bench.world, get).dw0.get(), 1);
    bench.world.drive.power_cut();
    bench.world.run();
    bench.world.close();
    let mut a = bench.host("nqn.a", 40, 1);
    let (head, list) = report(&mut bench, &mut a);
    assert_eq!((head.ptpls, list.len(), list[0].rkey.get()), (1, 1, 5));
    // The feature turns it off as well.
    let set = Sqe { nsid: U32::new(1), ..set_feature(fid::RESERVATION_PERSISTENCE, 0) };
    assert!(a.admin(&mut bench.world, set).status().is_success());
    assert_eq!(report(&mut bench, &mut a).0.ptpls, 0);
}
