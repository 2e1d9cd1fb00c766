//! An NVMe submission queue's journal: commands and their completions are kept whole.
//!
//! The head of the paper is a *slot* here: a command's place in the journal, since its place in the submission queue is the
//! host's again as soon as a completion has told it so. `last_idx` is the submission queue's head, `used_idx` counts the
//! completion queue's entries (a free-running 64-bit count: place and phase follow from it and the queue's size). Several
//! submission queues may share a completion queue: how far that is, the one that is furthest says.
//! Step 10 comes after step 11, because the entry that is DONE names its place itself: the count alone could be ahead of any
//! completion that is known. A completion may be posted after later ones: the count never goes back. A queue that is deleted leaves its part as it is: the next one of its identifier has another generation.

use crate::JournalMemory;
use crate::crash_point::CrashPoint;
use crate::error::Damage;
use crate::layout::{FINISHED, LINE, SEQUENCE, STARTED, head, merge, state};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Release};

/// Words of an entry: two cache lines.
pub(crate) const ENTRY: usize = 16;
/// The completion's place.
const PLACE: usize = 1;
/// The completion, two words.
const CQE: usize = 2;
/// The command, eight words.
const SQE: usize = 8;

/// What the start word says.
const CODE: u64 = 3;

/// See the [module](self).
#[derive(Debug)]
pub struct NvmeJournal<W> {
    words: W,
    part: usize,
    sequence: u64,
    /// Completions that are counted.
    used: u64,
    free: Vec<u16>,
    /// By slot: the sequence number, shifted to its place.
    sequences: Vec<u64>,
}

/// A submission queue's part of a region.
#[derive(Debug)]
pub enum FoundNvme<W> {
    /// Of a queue that has not begun, was deleted, or is not this one: one of another generation or size was there.
    Fresh(LeftNvme<W>),
    /// Of a queue that was served when its server died.
    Left(LeftNvme<W>),
}

/// A submission queue's part, before it is used.
#[derive(Debug)]
pub struct LeftNvme<W> {
    words: W,
    part: usize,
    size: u16,
    generation: u32,
}

/// What a command that had been taken is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    /// All: it may have been executed, and can be again.
    Execution,
    /// What is left of it after its outcome had been decided: its effect, once more, and this completion.
    Effect {
        /// Completion queue entry.
        cqe: [u64; 2],
    },
    /// This completion at this place, which the host may have seen or not: the same bytes at the same place do no harm.
    Completion {
        /// Completion queue entry, its phase included.
        cqe: [u64; 2],
        /// The count that [`NvmeJournal::done`] was given.
        place: u64,
    },
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredNvme {
    /// Where the server was.
    pub step: CrashPoint,
    /// The submission queue's head.
    pub last_idx: u16,
    /// Completions so far: what the next one's place is, as far as this queue knows.
    pub used: u64,
    /// The entry of the newest command did not say INFLIGHT and now does.
    pub redone: bool,
    /// Slots, commands and what they are owed, in the order of submission. Completions are to be posted first, in the order
    /// of their places, then effects to be repeated, before anything else is decided, then the rest to be executed.
    pub commands: Vec<(u16, [u64; 8], Owed)>,
}

pub(crate) fn find<W: JournalMemory>(
    words: W,
    part: usize,
    size: u16,
    generation: u32,
) -> Result<FoundNvme<W>, Damage> {
    // Acquire: what the start word, stored last, stands for.
    let start = words.load(part + head::START, Acquire);
    let left = LeftNvme { words, part, size, generation };
    match start {
        0 => Ok(FoundNvme::Fresh(left)),
        s if s == left.start() => Ok(FoundNvme::Left(left)),
        s if s & 0xffff == CODE => Ok(FoundNvme::Fresh(left)),
        _ => Err(Damage::Start),
    }
}

impl<W: JournalMemory> LeftNvme<W> {
    fn start(&self) -> u64 {
        CODE | u64::from(self.size) << 16 | u64::from(self.generation) << 32
    }

    fn load(&self, at: usize) -> u64 {
        self.words.load(self.part + at, Acquire)
    }

    fn put(&self, at: usize, value: u64) {
        self.words.store(self.part + at, value, Release);
    }

    const fn entry(slot: u16) -> usize {
        LINE + slot as usize * ENTRY
    }

    /// Begins the queue's journal with the submission queue's head and the completions posted so far.
    pub fn begin(self, last_idx: u16, used: u64) -> NvmeJournal<W> {
        // First: what was there is of a queue that has gone.
        self.put(head::START, 0);
        for slot in 0..self.size {
            if self.load(Self::entry(slot)) != 0 {
                self.put(Self::entry(slot), 0);
            }
        }
        self.put(head::MERGE, merge(FINISHED, 0, last_idx));
        self.put(head::USED, used);
        // Last: a queue that has begun has all of the above.
        self.put(head::START, self.start());
        self.journal(0, used)
    }

    fn journal(self, sequence: u64, used: u64) -> NvmeJournal<W> {
        let Self { words, part, size, generation: _ } = self;
        let sequences = alloc::vec![0; usize::from(size)];
        NvmeJournal { words, part, sequence, used, free: (0..size).rev().collect(), sequences }
    }

    /// Algorithm 2; see [`Owed`] for what it does with commands that are done.
    ///
    /// # Errors
    /// What is there is not what a crash leaves. Nothing has been changed.
    pub fn recover(self) -> Result<(NvmeJournal<W>, RecoveredNvme), Damage> {
        let word = self.load(head::MERGE);
        let (started, newest, last_idx) = (word as u16 == STARTED as u16, (word >> 16) as u16, (word >> 32) as u16);
        if word as u16 > STARTED as u16 || word >> 48 != 0 || newest >= self.size {
            return Err(Damage::Merge);
        }
        let mut used = self.load(head::USED);
        if used == u64::MAX {
            return Err(Damage::Used);
        }
        let mut commands = Vec::new();
        let mut step = CrashPoint::Idle;
        let mut redone = false;
        let mut latest: Option<u64> = None;
        for slot in 0..self.size {
            let at = Self::entry(slot);
            let entry = self.load(at);
            let ours = started && slot == newest;
            let owed = match entry & state::MASK {
                state::NONE if !ours => continue,
                state::NONE => {
                    redone = true;
                    Owed::Execution
                }
                state::INFLIGHT => Owed::Execution,
                _ if ours => return Err(Damage::Entry(slot)),
                state::DECIDED => Owed::Effect { cqe: self.cqe(at) },
                _ => {
                    let place = self.load(at + PLACE);
                    if place >= u64::MAX - 1 {
                        return Err(Damage::Entry(slot));
                    }
                    // The one that was not counted yet.
                    if place >= used {
                        latest = latest.max(Some(place));
                    }
                    Owed::Completion { cqe: self.cqe(at), place }
                }
            };
            step =
                step.max(if matches!(owed, Owed::Completion { .. }) { CrashPoint::Done } else { CrashPoint::InFlight });
            commands.push((entry >> state::BITS, slot, core::array::from_fn(|i| self.load(at + SQE + i)), owed));
        }
        if started {
            step = if redone { CrashPoint::Merged } else { CrashPoint::Marked };
            let sequence = commands.iter().find(|c| c.1 == newest).map_or(0, |c| c.0);
            self.put(Self::entry(newest), sequence << state::BITS | state::INFLIGHT);
            // After the entry, as when it was taken.
            self.put(head::MERGE, merge(FINISHED, newest, last_idx));
        } else if latest.is_some() {
            step = CrashPoint::Counted;
        }
        if let Some(place) = latest {
            used = place + 1;
            self.put(head::USED, used);
        }
        commands.sort_unstable_by_key(|c| (c.0, c.1));
        let mut journal = self.journal(commands.last().map_or(0, |c| (c.0 + 1) & SEQUENCE), used);
        for c in &commands {
            journal.sequences[usize::from(c.1)] = c.0 << state::BITS;
        }
        journal.free.retain(|slot| commands.iter().all(|c| c.1 != *slot));
        let commands = commands.into_iter().map(|(_, slot, sqe, owed)| (slot, sqe, owed)).collect();
        Ok((journal, RecoveredNvme { step, last_idx, used, redone, commands }))
    }

    fn cqe(&self, at: usize) -> [u64; 2] {
        [self.load(at + CQE), self.load(at + CQE + 1)]
    }
}

impl<W: JournalMemory> NvmeJournal<W> {
    #[inline]
    fn put(&self, at: usize, value: u64) {
        self.words.store(self.part + at, value, Release);
    }

    /// That a slot's command is in that state.
    #[inline]
    fn state(&self, slot: u16, state: u64) -> (usize, u64) {
        (LeftNvme::<W>::entry(slot), self.sequences[usize::from(slot)] | state)
    }

    /// Whether a command can be taken.
    #[inline]
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// A command has been fetched; `last_idx` is the submission queue's head behind it. Its slot, or `None` where all are
    /// taken. Steps 2 to 7.
    #[inline]
    pub fn take(&mut self, sqe: &[u64; 8], last_idx: u16) -> Option<u16> {
        let slot = self.free.pop()?;
        self.sequences[usize::from(slot)] = self.sequence << state::BITS;
        self.sequence = (self.sequence + 1) & SEQUENCE;
        let at = LeftNvme::<W>::entry(slot);
        // Before the merge word: a redo finds sequence number and command.
        self.words.store_each(self.part, core::array::from_fn::<_, 8, _>(|i| (at + SQE + i, sqe[i])));
        self.words.store_each(
            self.part,
            [
                self.state(slot, state::NONE),
                // After the entry: from here on the command counts as taken and as in flight.
                (head::MERGE, merge(STARTED, slot, last_idx)),
                // After the merge word: what no head covers would be fetched twice.
                self.state(slot, state::INFLIGHT),
                // After the entry: the next merge may replace the slot only now.
                (head::MERGE, merge(FINISHED, slot, last_idx)),
            ],
        );
        Some(slot)
    }

    /// The outcome of a command that must not be executed twice is known, and nothing of its effect has happened yet.
    pub fn decide(&self, slot: u16, cqe: [u64; 2]) {
        let [low, high] = Self::completion(slot, cqe);
        // After the completion: what is DECIDED has one.
        self.words.store_each(self.part, [low, high, self.state(slot, state::DECIDED)]);
    }

    /// A command is done; its completion is about to be posted as number `place`, which no other one has.
    #[inline]
    pub fn done(&mut self, slot: u16, cqe: [u64; 2], place: u64) {
        self.used = self.used.max(place + 1);
        let [low, high] = Self::completion(slot, cqe);
        self.words.store_each(
            self.part,
            [
                low,
                high,
                (LeftNvme::<W>::entry(slot) + PLACE, place),
                // After completion and place: what is DONE has both, and the place is taken.
                self.state(slot, state::DONE),
                // After DONE: a place that is counted is known to be somebody's. Before the next completion's DONE.
                (head::USED, self.used),
            ],
        );
    }

    const fn completion(slot: u16, cqe: [u64; 2]) -> [(usize, u64); 2] {
        let at = LeftNvme::<W>::entry(slot) + CQE;
        [(at, cqe[0]), (at + 1, cqe[1])]
    }

    /// The completion has been posted; before the place is used again.
    #[inline]
    pub fn posted(&mut self, slot: u16) {
        // After the completion queue's entry: a command that is NONE is owed nothing.
        self.words.store_each(self.part, [self.state(slot, state::NONE)]);
        self.free.push(slot);
    }

    /// The queue is gone: it begins anew next time.
    pub fn close(&self) {
        self.put(head::START, 0);
    }
}
