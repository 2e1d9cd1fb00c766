//! Both ends of a connection against each other in memory: bytes cut anywhere, every combination of digests, alignment and flow
//! control, commands executed in any order; and each end against what a broken peer makes of the other's bytes.

use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;
use weir_codec::SavedError;
use weir_driver::IoKind;
use weir_driver::nvme_tcp::{self as initiator, Buffers, DataTransfer as Move, FinishedCommand, SendSegment, command};
use weir_spec::nvme::tcp::TableDigest;

const BLOCK: u32 = 512;
const DEPTH: u16 = 8;
const DISK: usize = 256 << 10;

type Host = initiator::HostConnection<TableDigest>;

struct Memory(Vec<Vec<u8>>);

impl Buffers for Memory {
    fn buffer(&mut self, cid: u16) -> &mut [u8] {
        &mut self.0[usize::from(cid)]
    }

    fn bytes(&self, cid: u16) -> &[u8] {
        &self.0[usize::from(cid)]
    }
}

#[derive(Clone, Copy, Debug)]
struct Op {
    write: bool,
    block: u32,
    blocks: u32,
}

#[derive(Clone, Debug)]
struct Case {
    digests: u8,
    hpda: u8,
    cpda: u8,
    flow_control: bool,
    in_capsule: u32,
    ops: Vec<Op>,
    /// Sizes of the pieces in which bytes move, and choices, used cyclically.
    cuts: Vec<usize>,
}

fn cases() -> impl Strategy<Value = Case> {
    let op = (any::<bool>(), 0u32..384, 1u32..128).prop_map(|(write, block, blocks)| Op { write, block, blocks });
    (
        0u8..4,
        0u8..=PDA_MAX,
        0u8..=PDA_MAX,
        any::<bool>(),
        prop::sample::select(vec![0u32, 4096, 8192]),
        prop::collection::vec(op, 1..16),
        prop::collection::vec(prop_oneof![1usize..100, 1usize..20_000], 1..50),
    )
        .prop_map(|(digests, hpda, cpda, flow_control, in_capsule, ops, mut cuts)| {
            // One long piece in every round of short ones, or a case takes a minute.
            cuts.push(10_000);
            Case { digests, hpda, cpda, flow_control, in_capsule, ops, cuts }
        })
}

/// Both ends, the wire between them, and the drive.
struct Pair {
    target: Connection<TableDigest>,
    budget: Budget,
    host: Host,
    memory: Memory,
    disk: Vec<u8>,
    executing: Vec<ReadyCommand>,
    completions: Vec<FinishedCommand>,
    cuts: Vec<usize>,
    turn: usize,
    steps: usize,
    /// Another process takes over after so many steps, again and again; 0: never.
    moves: usize,
}

impl Pair {
    fn new(case: &Case) -> Self {
        let settings = ConnectionSettings {
            cpda: case.cpda,
            maxh2cdata: 4096,
            c2h_data: 5000,
            tx_limit: 100_000,
            max_transfer: 128 << 10,
            ..ConnectionSettings::default()
        };
        let host = initiator::HostSettings {
            header_digest: case.digests & 1 != 0,
            data_digest: case.digests & 2 != 0,
            hpda: case.hpda,
            depth: DEPTH,
            in_capsule: case.in_capsule,
        };
        let mut target = Connection::new(Nanos(0), settings);
        target.connected(u32::from(DEPTH), case.flow_control);
        Self {
            target,
            budget: Budget::new(100_000),
            host: Host::new(host),
            memory: Memory(vec![vec![0; 64 << 10]; usize::from(DEPTH)]),
            disk: (0..DISK).map(|i| (i * 31 + i / 509) as u8).collect(),
            executing: vec![],
            completions: vec![],
            cuts: case.cuts.clone(),
            turn: 0,
            steps: 0,
            moves: 0,
        }
    }

    /// The target goes to another process, with commands that the drive has not begun (those of an odd place) handed back.
    fn move_on(&mut self) {
        let back: Vec<u16> = self.executing.iter().map(|c| c.tag).filter(|tag| tag % 2 == 1).collect();
        self.executing.retain(|c| c.tag % 2 == 0);
        self.target.hand_back(&back);
        self.target.check();
        let bytes = self.target.save(Nanos(0)).expect("it is in good order");
        let mut budget = Budget::new(100_000);
        let target = Connection::restore(Nanos(0), &bytes, &mut budget).unwrap();
        target.check();
        budget.check();
        assert_eq!(budget.used(), self.budget.used());
        assert_eq!(target.save(Nanos(0)).unwrap(), bytes, "it is the same");
        assert_eq!(target.executing().collect::<Vec<_>>(), self.target.executing().collect::<Vec<_>>());
        (self.target, self.budget) = (target, budget);
    }

    fn cut(&mut self) -> usize {
        self.turn += 1;
        self.cuts[self.turn % self.cuts.len()]
    }

    /// Moves some bytes each way and executes some command.
    fn step(&mut self) {
        let wire = gather(&self.host, &mut self.memory);
        let mut n = self.cut().min(wire.len());
        let straight = self.turn % 3 == 0;
        if let Some(into) = self.target.direct().filter(|_| straight) {
            n = n.min(into.len());
            into[..n].copy_from_slice(&wire[..n]);
            self.target.filled(n, &mut self.budget);
        } else {
            self.target.receive(Nanos(0), &wire[..n], &mut self.budget);
        }
        self.host.sent(n);
        self.target.check();
        while let Some(c) = self.target.next_command() {
            self.executing.push(c);
        }
        self.steps += 1;
        if !self.executing.is_empty() && self.steps % (1 + self.cuts[0] % 3) == 0 {
            let which = self.cut() % self.executing.len();
            let command = self.executing.swap_remove(which);
            self.execute(&command);
        }
        if self.moves != 0 && self.steps % self.moves == 0 {
            self.move_on();
        }
        self.target.grant(&mut self.budget);
        let ready = self.target.ready();
        let n = self.cuts[self.turn % self.cuts.len()].min(ready.len());
        let bytes = ready[..n].to_vec();
        self.target.sent(Nanos(0), n, &mut self.budget);
        let mut rest = bytes.as_slice();
        if let Some((cid, range)) = self.host.direct() {
            let n = rest.len().min(range.len());
            self.memory.buffer(cid)[range][..n].copy_from_slice(&rest[..n]);
            self.host.filled(n, &mut self.memory, &mut self.completions);
            rest = &rest[n..];
        }
        self.host.receive(rest, &mut self.memory, &mut self.completions);
        assert_eq!(self.host.failure(), None);
        assert!(
            matches!(self.target.state(), ConnectionState::AwaitsIcReq | ConnectionState::Running),
            "{:?}",
            self.target.state()
        );
        self.budget.check();
    }

    fn execute(&mut self, c: &ReadyCommand) {
        let blocks = (DISK / BLOCK as usize) as u64;
        let count = u64::from(c.sqe.blocks());
        let status = if c.sqe.slba() > blocks || count > blocks - c.sqe.slba() {
            Err(Status::LBA_OUT_OF_RANGE)
        } else {
            let at = c.sqe.slba() as usize * BLOCK as usize;
            let place = &mut self.disk[at..at + count as usize * BLOCK as usize];
            if c.sqe.opcode == 1 {
                self.target.read_data(c.tag, 0, place)
            } else {
                let (first, second) = place.split_at(place.len() / 3);
                self.target
                    .write_data(c.tag, 0, first)
                    .and_then(|()| self.target.write_data(c.tag, first.len() as u32, second))
            }
        };
        let mut cqe = Cqe { cid: c.sqe.cid, ..Cqe::default() };
        cqe.set_status(status.err().unwrap_or(Status::SUCCESS));
        self.target.respond(c.tag, &cqe, &mut self.budget);
        self.target.check();
    }

    /// Steps until `done` or too long.
    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..200_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("no progress: {:?} outstanding, target {:?}", self.host.outstanding(), self.target.state());
    }
}

/// All bytes that the host has ready.
fn gather(host: &Host, memory: &mut Memory) -> Vec<u8> {
    let mut out = vec![];
    for s in host.segments() {
        match *s {
            SendSegment::Header { start, len } => out.extend(&host.headers()[start..start + len]),
            SendSegment::Data { cid, offset, len } => {
                out.extend(&memory.buffer(cid)[offset as usize..(offset + len) as usize]);
            }
        }
    }
    out
}

fn run(case: &Case, moves: usize) {
    let mut pair = Pair::new(case);
    pair.moves = moves;
    pair.until(|p| p.host.is_running());
    assert_eq!(pair.host.digests(), (case.digests & 1 != 0, case.digests & 2 != 0));
    let mut model = pair.disk.clone();
    for (i, op) in case.ops.iter().enumerate() {
        // Overlapping operations have no order among themselves: one at a time where they touch, else many.
        let cid = (i % usize::from(DEPTH)) as u16;
        if i % usize::from(DEPTH) == 0 {
            pair.until(|p| p.host.outstanding() == 0);
            pair.completions.clear();
        }
        // Every command of a round has its own part of the disk.
        let part = (DISK / usize::from(DEPTH)) as u32 / BLOCK;
        let (block, blocks) = (u32::from(cid) * part + op.block % (part / 2), op.blocks.min(part / 2));
        let (at, len) = ((block * BLOCK) as usize, (blocks * BLOCK) as usize);
        let kind = if op.write { IoKind::Write } else { IoKind::Read };
        let sqe = command::io(kind, 1, u64::from(block), blocks);
        let transfer = if op.write {
            let fresh: Vec<u8> = (0..len).map(|b| (b * 13 + i * 7 + b / 253) as u8).collect();
            pair.memory.buffer(cid)[..len].copy_from_slice(&fresh);
            model[at..at + len].copy_from_slice(&fresh);
            Move::ToController(len as u32)
        } else {
            pair.memory.buffer(cid)[..len].fill(0xaa);
            Move::ToHost(len as u32)
        };
        pair.host.submit(cid, sqe, transfer, &mut pair.memory).unwrap();
        if op.write {
            pair.until(|p| p.host.outstanding() == 0);
        } else {
            pair.until(|p| !p.host.has_output());
            let before = model[at..at + len].to_vec();
            pair.until(|p| p.completions.iter().any(|c| c.cid == cid));
            assert_eq!(&pair.memory.buffer(cid)[..len], before);
        }
        assert!(pair.completions.iter().all(|c| c.cqe.status().is_success()), "{:?}", pair.completions);
    }
    pair.until(|p| p.host.outstanding() == 0);
    assert_eq!(pair.disk, model);
    assert_eq!((pair.target.in_use(), pair.budget.used()), (0, 0));
}

/// Many commands at once, in any order.
fn run_many(case: &Case, moves: usize) {
    let mut pair = Pair::new(case);
    pair.moves = moves;
    pair.until(|p| p.host.is_running());
    let part = DISK / usize::from(DEPTH);
    let mut model = pair.disk.clone();
    for round in 0..6 {
        let mut reads = vec![];
        for cid in 0..DEPTH {
            let len = (1 + (case.cuts[usize::from(cid) % case.cuts.len()] + round * 5) % (part / 512)) * 512;
            let at = usize::from(cid) * part;
            let block = (at / 512) as u64;
            if (usize::from(cid) + round) % 2 == 0 {
                let fresh: Vec<u8> = (0..len).map(|b| (b * 11 + round * 3 + b / 257) as u8).collect();
                pair.memory.buffer(cid)[..len].copy_from_slice(&fresh);
                model[at..at + len].copy_from_slice(&fresh);
                let sqe = command::io(IoKind::Write, 1, block, (len / 512) as u32);
                pair.host.submit(cid, sqe, Move::ToController(len as u32), &mut pair.memory).unwrap();
            } else {
                let sqe = command::io(IoKind::Read, 1, block, (len / 512) as u32);
                pair.host.submit(cid, sqe, Move::ToHost(len as u32), &mut pair.memory).unwrap();
                reads.push((cid, at, len));
            }
        }
        pair.until(|p| p.host.outstanding() == 0);
        for (cid, at, len) in reads {
            assert_eq!(&pair.memory.buffer(cid)[..len], &model[at..at + len]);
        }
        assert!(pair.completions.drain(..).all(|c| c.cqe.status().is_success()));
    }
    assert_eq!(pair.disk, model);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(5)))]

    #[test]
    fn what_one_end_writes_the_other_reads(case in cases()) {
        run(&case, 0);
    }

    #[test]
    fn many_commands_at_once_in_any_order(case in cases()) {
        run_many(&case, 0);
    }

    #[test]
    fn another_process_takes_over_at_any_moment(case in cases(), moves in 1usize..9) {
        run_many(&case, moves);
    }

    /// Half a connection, or a damaged one, is none; and what is taken for one is in order.
    #[test]
    fn damaged_bytes_are_no_connection(case in cases(), steps in 0usize..40, at in any::<usize>(), flip in 1u8.., mend: bool) {
        let mut pair = Pair::new(&case);
        pair.until(|p| p.host.is_running());
        for cid in 0..DEPTH {
            let (kind, way) = if cid % 2 == 0 {
                (IoKind::Write, Move::ToController(8192))
            } else {
                (IoKind::Read, Move::ToHost(8192))
            };
            pair.host.submit(cid, command::io(kind, 1, u64::from(cid) * 16, 16), way, &mut pair.memory).unwrap();
        }
        (0..steps).for_each(|_| pair.step());
        let whole = pair.target.save(Nanos(0)).unwrap();
        let mut budget = Budget::new(100_000);
        let cut = &whole[..at % whole.len()];
        prop_assert!(Connection::<TableDigest>::restore(Nanos(0), cut, &mut budget).is_err());
        let mut bytes = whole.clone();
        let last = bytes.len() - 4;
        bytes[at % last] ^= flip;
        if mend {
            let crc = TableDigest::append(0, &bytes[..last]);
            bytes[last..].copy_from_slice(&crc.to_le_bytes());
        }
        match Connection::<TableDigest>::restore(Nanos(0), &bytes, &mut budget) {
            Ok(mut target) => {
                prop_assert!(mend);
                target.check();
                // It may be another connection now, and is held to the same rules.
                let wire = gather(&pair.host, &mut pair.memory);
                target.receive(Nanos(0), &wire, &mut budget);
                target.check();
                while let Some(c) = target.next_command() {
                    let _ = target.data(c.tag).map(<[u8]>::len);
                    target.respond(c.tag, &Cqe::default(), &mut budget);
                    target.check();
                }
            }
            Err(e) => prop_assert!(mend || e == SavedError::Damaged || at % last < 12, "{e}"),
        }
    }

    #[test]
    fn a_flipped_byte_is_an_error_and_never_a_panic(case in cases(), at in 0usize..6000, flip in 1u8..) {
        let mut pair = Pair::new(&case);
        pair.until(|p| p.host.is_running());
        let len = 4096;
        pair.host.submit(0, command::io(IoKind::Write, 1, 0, 8), Move::ToController(len), &mut pair.memory).unwrap();
        pair.host.submit(1, command::io(IoKind::Read, 1, 8, 8), Move::ToHost(len), &mut pair.memory).unwrap();
        let mut wire = gather(&pair.host, &mut pair.memory);
        let at = at % wire.len();
        wire[at] ^= flip;
        pair.target.receive(Nanos(0), &wire, &mut pair.budget);
        pair.target.check();
        while let Some(c) = pair.target.next_command() {
            if c.sqe.opcode == 2 {
                pair.execute(&c);
            }
        }
        let mut back = pair.target.ready().to_vec();
        let sent = pair.host.segments().map(SendSegment::len).sum();
        pair.host.sent(sent);
        if !back.is_empty() {
            let at = at % back.len();
            back[at] ^= flip;
        }
        pair.host.receive(&back, &mut pair.memory, &mut pair.completions);
        pair.target.check();
    }

    #[test]
    fn header_digests_catch_every_flipped_header_byte(at in 8usize..76, flip in 1u8..) {
        let case = Case {
            digests: 1, hpda: 0, cpda: 0, flow_control: true, in_capsule: 8192, ops: vec![], cuts: vec![1000],
        };
        let mut pair = Pair::new(&case);
        pair.until(|p| p.host.is_running());
        pair.host.submit(1, command::io(IoKind::Read, 1, 8, 8), Move::ToHost(4096), &mut pair.memory).unwrap();
        let mut wire = gather(&pair.host, &mut pair.memory);
        wire[at] ^= flip;
        pair.target.receive(Nanos(0), &wire, &mut pair.budget);
        prop_assert!(matches!(pair.target.state(), ConnectionState::Quiescing(f) if f.fes == Fes::HEADER_DIGEST_ERROR));
        prop_assert_eq!(pair.target.next_command(), None);
    }
}

#[test]
fn every_combination_of_digests_alignment_and_flow_control() {
    for digests in 0..4 {
        for (hpda, cpda) in [(0, 0), (1, 31), (31, 1), (31, 31)] {
            for flow_control in [false, true] {
                for in_capsule in [0, 8192] {
                    let ops = (0..6).map(|i| Op { write: i % 2 == 0, block: i * 3, blocks: 1 + i * 9 }).collect();
                    let cuts = vec![1, 71, 4096, 23, 9000];
                    let case = Case { digests, hpda, cpda, flow_control, in_capsule, ops, cuts };
                    (0..4).for_each(|moves| run(&case, moves));
                }
            }
        }
    }
}

#[test]
fn a_connection_cut_at_every_byte_leaves_nothing_behind() {
    let case =
        Case { digests: 3, hpda: 1, cpda: 1, flow_control: false, in_capsule: 512, ops: vec![], cuts: vec![9999] };
    let mut pair = Pair::new(&case);
    pair.until(|p| p.host.is_running());
    pair.host.submit(0, command::io(IoKind::Write, 1, 0, 8), Move::ToController(4096), &mut pair.memory).unwrap();
    pair.host.submit(1, command::io(IoKind::Write, 1, 0, 1), Move::ToController(512), &mut pair.memory).unwrap();
    let whole = gather(&pair.host, &mut pair.memory);
    for cut in 0..whole.len() {
        let mut pair = Pair::new(&case);
        pair.until(|p| p.host.is_running());
        pair.target.receive(Nanos(0), &whole[..cut], &mut pair.budget);
        pair.target.close();
        pair.target.release(&mut pair.budget);
        pair.target.check();
        assert_eq!((pair.target.ready(), pair.budget.used()), (&[][..], 0));
    }
}
