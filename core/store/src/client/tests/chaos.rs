//! Several clients and files while drives fail, space runs out, time is short, callers go, and sessions end: every work ends, and no read has a byte of
//! another file, or of what a drive had before.

use super::world::{World, open_new};
use crate::StoreError;
use crate::client::{ClientEvent, ClientFault, FileWork, OpenFileId, Outcome, WorkId};
use crate::kv::KvFaults;
use crate::protocol::{Answer, Request};
use crate::{InodePath, NamespaceId};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use std::eprintln;
use weir_units::Nanos;

const FILES: u64 = 3;
const CLIENTS: u64 = 2;

#[derive(Clone, Copy)]
enum Issued {
    Open(u64),
    Io(u64, OpenFileId, FileWork),
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    done: u64,
    late: u64,
    busy: u64,
    no_space: u64,
    unwritable: u64,
    over: u64,
    cancelled: u64,
    lost: u64,
}

struct Chaos {
    world: World,
    /// Which clients go on; others have replaced them.
    alive: Vec<usize>,
    issued: BTreeMap<(usize, WorkId), Issued>,
    open: Vec<(usize, u64, OpenFileId)>,
    at: BTreeMap<u64, InodePath>,
    totals: Totals,
    fill: u8,
}

/// A byte that only that file has.
fn byte(file: u64, fill: u8) -> u8 {
    0x80 | (file as u8) << 4 | (fill % 15 + 1)
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed);
        world.publishes_behind = seed % 5 > 2;
        let alive = (0..CLIENTS).map(|_| world.client(None)).collect();
        if seed % 2 == 0 {
            world.kv.set_faults(KvFaults::all(10_000));
        }
        let (issued, open, at) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        Self { world, alive, issued, open, at, totals: Totals::default(), fill: 0 }
    }

    fn until(&mut self) -> Nanos {
        let time = [20, 200, 5_000, 60_000][self.world.below(4) as usize];
        self.world.now.saturating_add(Nanos::from_millis(time))
    }

    fn issue(&mut self) {
        let until = self.until();
        if self.open.is_empty() || self.world.below(12) == 0 {
            let who = self.alive[self.world.below(CLIENTS) as usize];
            let file = self.world.below(FILES);
            let request = match self.at.get(&file) {
                Some(at) if self.world.below(2) == 0 => Request::Open { at: *at, write: false },
                _ => open_new(&format!("f{file}"), 1 + (file % 2) as u8),
            };
            let work = self.world.start_open(who, request, until);
            self.issued.insert((who, work), Issued::Open(file));
            return;
        }
        let at = self.world.below(self.open.len() as u64) as usize;
        let (who, file, id) = self.open[at];
        let (offset, len) = (self.world.below(300_000), self.world.below(80_000));
        let what = match self.world.below(12) {
            0..5 => FileWork::Write(offset, len as u32),
            5..8 => FileWork::Read(offset, len as u32),
            8..10 => FileWork::Flush,
            10 => FileWork::Truncate(offset),
            _ => FileWork::Close,
        };
        self.fill = self.fill.wrapping_add(1);
        let bytes = vec![byte(file, self.fill); len as usize];
        let work = self.world.start(who, id, what, &bytes, until);
        self.issued.insert((who, work), Issued::Io(file, id, what));
    }

    fn collect(&mut self) {
        for who in 0..self.world.clients.len() {
            while let Some((work, outcome)) = self.world.clients[who].finished.pop_first() {
                let Some(issued) = self.issued.remove(&(who, work)) else { continue };
                match (issued, outcome) {
                    (Issued::Open(file), Outcome::Opened(Ok(opened))) => {
                        self.at.insert(file, opened.at);
                        self.open.push((who, file, opened.file));
                    }
                    (Issued::Io(file, id, what), Outcome::Io(result)) => {
                        let memory = self.world.clients[who].memory.callers.remove(&work).expect("its memory");
                        if let (FileWork::Read(..), Ok(n)) = (what, &result) {
                            let is_right = |found: &u8| *found == 0 || *found & 0xf0 == 0x80 | (file as u8) << 4;
                            let wrong = memory[..*n as usize].iter().position(|found| !is_right(found));
                            assert_eq!(wrong, None, "a byte that is not the file's: {:#x}", memory[wrong.unwrap_or(0)]);
                        }
                        self.totals.done += u64::from(result.is_ok());
                        let is_closed = what == FileWork::Close && result.is_ok();
                        if let Err(failure) = result {
                            self.count(&failure.fault);
                        }
                        if is_closed {
                            self.open.retain(|(of, _, open)| (*of, *open) != (who, id));
                            self.world.give(who, ClientEvent::Forget(id));
                        }
                    }
                    (_, Outcome::Opened(Err(failure))) => self.count(&failure.fault),
                    (_, other) => panic!("{other:?}"),
                }
            }
        }
    }

    fn count(&mut self, fault: &ClientFault) {
        use crate::file::FileError;
        let total = match fault {
            ClientFault::Deadline | ClientFault::Unreachable(_) => &mut self.totals.late,
            ClientFault::Store(StoreError::Busy, _) => &mut self.totals.busy,
            ClientFault::File(FileError::NoSpace) => &mut self.totals.no_space,
            ClientFault::File(FileError::Unwritable(_) | FileError::Unreadable(_)) => &mut self.totals.unwritable,
            ClientFault::SessionOver => &mut self.totals.over,
            ClientFault::Cancelled => &mut self.totals.cancelled,
            _ => &mut self.totals.lost,
        };
        *total += 1;
    }

    fn disturb(&mut self) {
        let who = self.alive[self.world.below(CLIENTS) as usize];
        match self.world.below(60) {
            0 => self.world.restart(),
            1..4 => self.world.disconnect(who),
            4..6 => self.world.stalled = vec![NamespaceId(1 + self.world.below(2))],
            6..10 => self.world.stalled.clear(),
            10..12 => self.world.drive_failures = [0, 0, 50_000, 300_000][self.world.below(4) as usize],
            12..14 => {
                let answer = Answer::Failed { error: StoreError::NoSpace, detail: String::new() };
                self.world.clients[who].instead = vec![(Request::Grant { handle: 0, count: 1 }.kind(), answer)];
            }
            14..18 if !self.open.is_empty() => {
                let at = self.world.below(self.open.len() as u64) as usize;
                let (who, _, id) = self.open.swap_remove(at);
                self.world.give(who, ClientEvent::Forget(id));
            }
            18..24 if !self.issued.is_empty() => {
                let at = self.world.below(self.issued.len() as u64) as usize;
                let (who, work) = *self.issued.keys().nth(at).expect("one of them");
                self.world.give(who, ClientEvent::Cancel(work));
            }
            // A client whose session ends: another one takes its place.
            24 if self.world.below(4) == 0 => {
                self.world.give(who, ClientEvent::Refused);
                self.world.disconnect(who);
                self.open.retain(|(of, ..)| *of != who);
                let next = self.world.client(None);
                self.alive.iter_mut().filter(|other| **other == who).for_each(|other| *other = next);
            }
            _ => {}
        }
    }

    fn run(mut self, steps: u64) -> Totals {
        for _ in 0..steps {
            if self.issued.len() < 12 {
                self.issue();
            }
            self.disturb();
            for _ in 0..self.world.below(50) {
                self.world.go_on();
                self.collect();
            }
        }
        self.world.stalled.clear();
        self.world.drive_failures = 0;
        self.world.kv.set_faults(KvFaults::default());
        for _ in 0..400_000 {
            if self.issued.is_empty() {
                break;
            }
            self.world.go_on();
            self.collect();
        }
        let left: Vec<String> = self.world.clients.iter().map(|client| client.machine.describe()).collect();
        assert!(self.issued.is_empty(), "{} works never end: {left:#?}", self.issued.len());
        for (who, _, id) in core::mem::take(&mut self.open) {
            self.world.give(who, ClientEvent::Forget(id));
        }
        self.world.run_for(Nanos::from_secs(8));
        for client in &self.world.clients {
            assert!(client.memory.is_empty(), "all memory is given back: {}", client.machine.describe());
        }
        self.totals
    }
}

#[test]
fn every_work_ends_and_no_byte_is_another_files() {
    let seeds = std::env::var("SEEDS").map_or(10, |text| text.parse().expect("a number"));
    let mut all = [0; 8];
    for seed in 0..seeds {
        let run = std::panic::catch_unwind(|| Chaos::new(seed).run(200));
        let t = run.unwrap_or_else(|_| panic!("seed {seed}"));
        let counts = [t.done, t.late, t.busy, t.no_space, t.unwritable, t.over, t.cancelled, t.lost];
        all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    eprintln!("done, late, busy, no space, unwritable, session over, cancelled, others: {all:?}");
    assert!(all[..7].iter().all(|count| *count > 10), "everything happens: {all:?}");
}
