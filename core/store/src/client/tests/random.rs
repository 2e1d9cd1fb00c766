//! Callers that write, read, append, cut and publish one file at random, over lost answers, restarts of the service and drives that stall.

use super::world::{FAR, World};
use crate::client::{FileWork, OpenFileId, WorkId};
use crate::kv::KvFaults;
use crate::mutant::Mutant;
use crate::protocol::Request;
use crate::tree::InodePath;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use std::eprintln;
use weir_units::Nanos;

/// What a work has to come to.
enum Expected {
    /// A read that began at that byte: the bytes as they were then.
    Read(Vec<u8>),
    Done(u32),
}

/// How often each happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    works: u64,
    truncations: u64,
    appends: u64,
    closed: u64,
    restarts: u64,
    lost: u64,
    stalls: u64,
}

struct Run {
    world: World,
    who: usize,
    at: InodePath,
    file: OpenFileId,
    model: Vec<u8>,
    issued: BTreeMap<WorkId, Expected>,
    totals: Totals,
    fill: u8,
    is_disturbed: bool,
}

impl Run {
    fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut world = World::new(seed);
        world.publishes_behind = seed % 5 > 2;
        let who = world.client(mutant);
        let opened = world.open(who, super::world::open_new("file", 1 + (seed % 2) as u8));
        if seed % 3 == 0 {
            world.kv.set_faults(KvFaults::all(20_000));
        }
        let (at, file) = (opened.at, opened.file);
        let (model, issued, totals) = (Vec::new(), BTreeMap::new(), Totals::default());
        Self { world, who, at, file, model, issued, totals, fill: 0, is_disturbed: seed % 4 != 3 }
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        self.fill = self.fill.wrapping_add(37) | 1;
        (0..len).map(|i| self.fill.wrapping_add((i / 61) as u8)).collect()
    }

    fn start(&mut self, what: FileWork, bytes: &[u8], expected: Expected) {
        let work = self.world.start(self.who, self.file, what, bytes, FAR);
        self.issued.insert(work, expected);
        self.totals.works += 1;
    }

    fn issue(&mut self) {
        let most = if self.world.below(3) == 0 { 150_000 } else { 6_000 };
        let range = if self.model.len() < 2_000 && self.world.below(3) > 0 { 2_000 } else { 300_000 };
        let (offset, len) = (self.world.below(range), self.world.below(most));
        match self.world.below(20) {
            0..7 => {
                let bytes = self.bytes(len);
                self.write(offset, &bytes);
            }
            7..12 => {
                let from = self.model.get(offset as usize..).unwrap_or_default();
                let expected = from[..from.len().min(len as usize)].to_vec();
                self.start(FileWork::Read(offset, len as u32), b"", Expected::Read(expected));
            }
            12 => {
                // Who appends is the only one who does: what was begun is over first.
                self.drain();
                let bytes = self.bytes(len);
                assert_eq!(self.world.clients[self.who].machine.size(self.file), Some(self.model.len() as u64));
                self.write(self.model.len() as u64, &bytes);
                self.totals.appends += 1;
            }
            13..15 => self.start(FileWork::Flush, b"", Expected::Done(0)),
            15..17 => {
                self.model.resize(offset as usize, 0);
                self.start(FileWork::Truncate(offset), b"", Expected::Done(0));
                self.totals.truncations += 1;
            }
            17 => self.close_and_open(),
            _ => {}
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset as usize + bytes.len();
        if !bytes.is_empty() {
            self.model.resize(self.model.len().max(end), 0);
            self.model[offset as usize..end].copy_from_slice(bytes);
        }
        let len = bytes.len() as u32;
        self.start(FileWork::Write(offset, len), bytes, Expected::Done(len));
    }

    fn close_and_open(&mut self) {
        self.start(FileWork::Close, b"", Expected::Done(0));
        self.drain();
        self.world.give(self.who, crate::client::ClientEvent::Forget(self.file));
        self.file = self.world.open(self.who, Request::Open { at: self.at, write: true }).file;
        self.totals.closed += 1;
    }

    /// Compares what is over.
    fn collect(&mut self) {
        let over: Vec<WorkId> = self.world.clients[self.who].finished.keys().copied().collect();
        for work in over {
            let Some(expected) = self.issued.remove(&work) else { continue };
            let (result, bytes) = self.world.io(self.who, work);
            match (expected, result) {
                (Expected::Done(len), Ok(n)) => assert_eq!(n, len),
                (Expected::Read(expected), Ok(n)) => {
                    // What is being written behind the end when a read begins is not read.
                    assert!(n as usize <= expected.len(), "{n} of {} bytes", expected.len());
                    let wrong = (0..n as usize).find(|i| bytes[*i] != expected[*i]);
                    assert_eq!(wrong, None, "of {n} bytes that one is wrong: {work:?}");
                }
                (_, Err(why)) => {
                    let log = &self.world.clients[self.who].log;
                    let last: Vec<String> =
                        log.iter().rev().take(20).map(|request| format!("{:.200}", format!("{request:?}"))).collect();
                    panic!("{work:?} fails: {why:?} after {last:#?}")
                }
            }
        }
    }

    fn drain(&mut self) {
        for _ in 0..200_000 {
            if self.issued.is_empty() {
                return;
            }
            self.world.go_on();
            self.collect();
        }
        panic!("never over: {}", self.world.clients[self.who].machine.describe());
    }

    fn disturb(&mut self) {
        match self.world.below(40) {
            0 => {
                self.world.restart();
                self.totals.restarts += 1;
            }
            1..3 => {
                self.world.disconnect(self.who);
                self.totals.lost += 1;
            }
            3..5 => {
                let number = crate::NamespaceId(1 + self.world.below(2));
                self.world.stalled = vec![number];
                self.world.run_for(Nanos::from_millis(30));
                self.world.stalled.clear();
                self.totals.stalls += 1;
            }
            _ => {}
        }
    }

    fn run(mut self, steps: u64) -> Totals {
        for _ in 0..steps {
            if self.issued.len() < 6 {
                self.issue();
            }
            if self.is_disturbed {
                self.disturb();
            }
            for _ in 0..self.world.below(60) {
                self.world.go_on();
                self.collect();
            }
        }
        self.drain();
        assert_eq!(self.world.clients[self.who].machine.size(self.file), Some(self.model.len() as u64));
        self.start(FileWork::Close, b"", Expected::Done(0));
        self.drain();
        assert_eq!(self.world.published("file"), self.model, "what another client reads");
        self.world.give(self.who, crate::client::ClientEvent::Forget(self.file));
        // What was in an answer that is lost stays at the service.
        if self.totals.lost + self.totals.restarts == 0 {
            assert_eq!(self.world.held(self.who), (0, 0), "blocks and handles are given back");
        }
        self.totals
    }
}

pub fn run(seed: u64, steps: u64, mutant: Option<Mutant>) -> Result<Totals, String> {
    let run = std::panic::catch_unwind(|| Run::new(seed, mutant).run(steps));
    run.map_err(|why| format!("{:?}", why.downcast_ref::<String>()))
}

#[test]
fn a_file_is_as_an_array_of_bytes_over_everything_that_may_happen() {
    let mut all = [0; 7];
    let seeds = std::env::var("SEEDS").map_or(24, |text| text.parse().expect("a number"));
    for seed in 0..seeds {
        let t = Run::new(seed, None).run(150);
        let counts = [t.works, t.truncations, t.appends, t.closed, t.restarts, t.lost, t.stalls];
        all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    eprintln!("works, truncations, appends, closed, restarts, lost answers, stalls: {all:?}");
    assert!(all.iter().all(|count| *count > 10), "everything happens: {all:?}");
}

/// A fault that was planted is found in few runs.
#[test]
fn planted_faults_of_the_client_are_found() {
    for mutant in [Mutant::TruncateUnflushed, Mutant::AnyChunkCounts] {
        let found = (0..2_000).find_map(|seed| run(seed, 60, Some(mutant)).err().map(|why| (seed, why)));
        eprintln!("{mutant:?}: {found:.300?}");
        assert!(found.is_some(), "{mutant:?} is not found in 2,000 runs");
    }
}
