//! NVMe: the production journal under a model of controller, host and drive, killed after every store of every interleaving.
//! Commands that must not be executed twice (append) are; those that may be (write) may be; every completion reaches the
//! host once.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use weir_journal::{CrashPoint, FoundNvme, JournalMemory, JournalRegion, JournalShape, NvmeJournal, Owed, QueueKind};

/// Memory that survives, of one whose stores may end.
#[derive(Debug)]
struct Memory {
    words: RefCell<Vec<u64>>,
    left: Cell<u64>,
    dead: Cell<bool>,
}

impl Memory {
    fn alive(&self) -> bool {
        if self.left.get() == 0 {
            self.dead.set(true);
            return false;
        }
        self.left.set(self.left.get() - 1);
        true
    }
}

impl JournalMemory for Memory {
    fn count(&self) -> usize {
        self.words.borrow().len()
    }
    fn load(&self, at: usize, _: Ordering) -> u64 {
        self.words.borrow()[at]
    }
    fn store(&self, at: usize, value: u64, _: Ordering) {
        if self.alive() {
            self.words.borrow_mut()[at] = value;
        }
    }
}

/// Commands: the first, third, ... are appends, the others writes.
const COMMANDS: u16 = 5;
/// Entries of the completion queue.
const CQ: u64 = 3;
const SHAPE: JournalShape = JournalShape { kind: QueueKind::Nvme, queues: 1, size: 3 };

fn is_append(number: u64) -> bool {
    number % 2 == 0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Fetch,
    /// One of those fetched: executed and completed, not posted.
    Finish(usize),
    Post,
    Reap,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
struct Held {
    slot: u16,
    number: u64,
    /// The outcome, once decided.
    decided: Option<u64>,
}

/// What outlives the controller.
#[derive(Clone, Debug, Default, Hash)]
struct World {
    /// Completion queue: the free-running place that an entry was written for, and the entry.
    cq: [Option<(u64, u64)>; CQ as usize],
    /// What the host has seen of it, and how often each command completed.
    reaped: u64,
    completions: [u16; COMMANDS as usize],
    /// The zone: which append's data lie at each address.
    zone: Vec<u64>,
    /// Where the drive will append next.
    pointer: usize,
    written: [u16; COMMANDS as usize],
}

struct Controller {
    memory: Rc<Memory>,
    journal: NvmeJournal<Rc<Memory>>,
    fetched: u16,
    used: u64,
    held: Vec<Held>,
    done: Vec<(u16, [u64; 2], u64)>,
}

impl Controller {
    fn new(memory: &Rc<Memory>) -> Self {
        let region = JournalRegion::open(memory.clone(), SHAPE).unwrap();
        let FoundNvme::Fresh(fresh) = region.nvme(0, SHAPE.size, 1).unwrap() else { panic!("it is new") };
        let journal = fresh.begin(0, 0);
        Self { memory: memory.clone(), journal, fetched: 0, used: 0, held: Vec::new(), done: Vec::new() }
    }

    /// After a death: what is owed is paid, completions first and in the order of their places.
    fn recover(memory: &Rc<Memory>, world: &mut World) -> (Self, CrashPoint) {
        let region = JournalRegion::open(memory.clone(), SHAPE).unwrap();
        let left = match region.nvme(0, SHAPE.size, 1).unwrap() {
            FoundNvme::Left(left) => left,
            // Killed before the queue had begun.
            FoundNvme::Fresh(_) => return (Self::new(memory), CrashPoint::Idle),
        };
        let (journal, found) = left.recover().unwrap();
        let (fetched, used) = (found.last_idx, found.used);
        let mut c = Self { memory: memory.clone(), journal, fetched, used, held: Vec::new(), done: Vec::new() };
        for (slot, sqe, owed) in found.commands {
            match owed {
                Owed::Execution => c.held.push(Held { slot, number: sqe[0], decided: None }),
                Owed::Effect { cqe } => c.held.push(Held { slot, number: sqe[0], decided: Some(cqe[0]) }),
                Owed::Completion { cqe, place } => c.done.push((slot, cqe, place)),
            }
        }
        let numbers: Vec<_> = c.held.iter().map(|h| h.number).collect();
        assert!(numbers.is_sorted(), "in the order of submission: {numbers:?}");
        c.done.sort_by_key(|d| d.2);
        c.post(world);
        // An address that is promised is nobody else's: before anything is decided anew.
        while let Some(at) = c.held.iter().position(|h| h.decided.is_some()) {
            c.finish(at, world);
        }
        (c, found.step)
    }

    fn fetch(&mut self) {
        let number = u64::from(self.fetched);
        self.fetched += 1;
        let sqe = [number, 1, 2, 3, 4, 5, 6, 7];
        let slot = self.journal.take(&sqe, self.fetched).expect("a slot was free");
        self.held.push(Held { slot, number, decided: None });
    }

    fn finish(&mut self, at: usize, world: &mut World) {
        let held = self.held.remove(at);
        let number = held.number as usize;
        let result = if is_append(held.number) {
            let at = held.decided.map_or(world.pointer, |at| at as usize);
            if held.decided.is_none() {
                // The address is the outcome; then the effect, which at that address can be repeated.
                self.journal.decide(held.slot, [at as u64, held.number]);
            }
            if self.memory.alive() {
                world.zone.resize(world.zone.len().max(at + 1), u64::MAX);
                world.zone[at] = held.number;
            }
            if self.memory.alive() {
                world.pointer = world.pointer.max(at + 1);
            }
            at as u64
        } else {
            if self.memory.alive() {
                world.written[number] += 1;
            }
            0
        };
        let cqe = [result, held.number];
        self.journal.done(held.slot, cqe, self.used);
        self.done.push((held.slot, cqe, self.used));
        self.used += 1;
    }

    /// The batch goes out, then its slots are free.
    fn post(&mut self, world: &mut World) {
        for (_, cqe, place) in &self.done {
            if self.memory.alive() {
                world.cq[(place % CQ) as usize] = Some((*place, cqe[1]));
            }
        }
        for (slot, ..) in std::mem::take(&mut self.done) {
            self.journal.posted(slot);
        }
    }

    fn acts(&self, world: &World) -> Vec<Act> {
        let mut acts = Vec::new();
        let busy = u64::from(self.fetched) - world.reaped;
        // A place in the completion queue is reserved before a command is fetched.
        if self.fetched < COMMANDS && busy < CQ && self.journal.has_room() {
            acts.push(Act::Fetch);
        }
        // An append's place is decided one at a time, as in a drive that starts them in order.
        acts.extend((0..self.held.len()).map(Act::Finish));
        if !self.done.is_empty() {
            acts.push(Act::Post);
        }
        if can_reap(world) {
            acts.push(Act::Reap);
        }
        acts
    }

    fn act(&mut self, act: Act, world: &mut World) {
        match act {
            Act::Fetch => self.fetch(),
            Act::Finish(at) => self.finish(at, world),
            Act::Post => self.post(world),
            Act::Reap => reap(world),
        }
    }

    fn key(&self, world: &World) -> u64 {
        let mut h = DefaultHasher::new();
        (world, &self.held, self.fetched, self.used, &self.done).hash(&mut h);
        self.memory.words.borrow().hash(&mut h);
        h.finish()
    }
}

/// The host sees the next entry by its phase, which follows from the place it was written for.
fn can_reap(world: &World) -> bool {
    world.cq[(world.reaped % CQ) as usize].is_some_and(|(place, _)| place == world.reaped)
}

fn reap(world: &mut World) {
    let (_, number) = world.cq[(world.reaped % CQ) as usize].unwrap();
    world.reaped += 1;
    world.completions[number as usize] += 1;
    assert_eq!(world.completions[number as usize], 1, "command {number} completed twice");
}

fn memory() -> Rc<Memory> {
    let words = RefCell::new(vec![0; SHAPE.bytes() as usize / 8]);
    Rc::new(Memory { words, left: Cell::new(u64::MAX), dead: Cell::new(false) })
}

fn replay(script: &[Act]) -> (Controller, World) {
    let (mut c, mut w) = (Controller::new(&memory()), World::default());
    script.iter().for_each(|a| c.act(*a, &mut w));
    (c, w)
}

fn finish(mut c: Controller, mut w: World) {
    while let Some(act) = c.acts(&w).first().copied() {
        c.act(act, &mut w);
    }
    assert_eq!(w.completions, [1; COMMANDS as usize], "every command once");
    let mut appended = w.zone.clone();
    appended.retain(|n| *n != u64::MAX);
    appended.sort_unstable();
    assert_eq!(appended, (0..u64::from(COMMANDS)).filter(|n| is_append(*n)).collect::<Vec<_>>(), "{:?}", w.zone);
    assert_eq!(w.zone.len(), w.pointer);
    assert_eq!(w.zone.len(), appended.len(), "appended once: {:?}", w.zone);
    for n in 0..u64::from(COMMANDS) {
        assert!(is_append(n) || w.written[n as usize] >= 1, "write {n} was executed");
    }
}

#[test]
fn nothing_is_lost_or_executed_twice_wherever_it_is_killed() {
    let (mut states, mut steps) = (HashSet::new(), HashSet::new());
    let mut open = vec![Vec::new()];
    let mut recoveries = 0;
    while let Some(script) = open.pop() {
        let (c, w) = replay(&script);
        for act in c.acts(&w) {
            for stores in 0.. {
                let run = || {
                    let (mut c, mut w) = replay(&script);
                    c.memory.left.set(stores);
                    c.act(act, &mut w);
                    (c, w)
                };
                let (c, w) = run();
                if !c.memory.dead.get() {
                    if states.insert(c.key(&w)) {
                        open.push([&script[..], &[act]].concat());
                    }
                    break;
                }
                // Recovery dies as well, after each of its stores; the host may have looked meanwhile.
                for quick in [false, true] {
                    for again in 0.. {
                        let (c, mut w) = run();
                        while quick && can_reap(&w) {
                            reap(&mut w);
                        }
                        let memory = c.memory.clone();
                        memory.dead.set(false);
                        memory.left.set(again);
                        let (mut c, step) = Controller::recover(&memory, &mut w);
                        let died = memory.dead.replace(false);
                        memory.left.set(u64::MAX);
                        if died {
                            c = Controller::recover(&memory, &mut w).0;
                        } else {
                            steps.insert(step);
                        }
                        recoveries += 1;
                        finish(c, w);
                        if !died {
                            break;
                        }
                    }
                }
            }
        }
    }
    println!("{} states, {recoveries} recoveries", states.len());
    for step in [
        CrashPoint::Idle,
        CrashPoint::Merged,
        CrashPoint::Marked,
        CrashPoint::InFlight,
        CrashPoint::Counted,
        CrashPoint::Done,
    ] {
        assert!(steps.contains(&step), "{step:?} is never found");
    }
}

/// A completion that waited is posted after a later one: wherever its server is killed, the count stands behind both.
#[test]
fn a_completion_that_is_posted_late_does_not_take_the_count_back() {
    for stores in 0.. {
        let memory = memory();
        let mut journal = Controller::new(&memory).journal;
        let slots = [1, 2].map(|head| journal.take(&[head, 0, 0, 0, 0, 0, 0, 0], head as u16).unwrap());
        journal.done(slots[1], [0, 2], 1);
        journal.posted(slots[1]);
        memory.left.set(stores);
        journal.done(slots[0], [0, 1], 0);
        journal.posted(slots[0]);
        let died = memory.dead.replace(false);
        memory.left.set(u64::MAX);
        let region = JournalRegion::open(memory.clone(), SHAPE).unwrap();
        let FoundNvme::Left(left) = region.nvme(0, SHAPE.size, 1).unwrap() else { panic!("it has begun") };
        let (_, found) = left.recover().unwrap();
        assert_eq!(found.used, 2, "killed after {stores} stores");
        if !died {
            assert_eq!(found.commands, []);
            break;
        }
    }
}
