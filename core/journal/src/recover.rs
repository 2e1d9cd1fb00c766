//! What a queue left, and Algorithm 2.

use crate::JournalMemory;
use crate::crash_point::CrashPoint;
use crate::error::Damage;
use crate::layout::{CLOSED, FINISHED, LINE, SEQUENCE, STARTED, head, merge, state};
use crate::ring::{Descriptor, END, InRing, Known, RingJournal, RingKind, batch_at, chain};
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Release};
use weir_spec::virtqueue::PackedIndex;

/// A queue's part of a region.
#[derive(Debug)]
pub enum FoundRing<W> {
    /// Of a queue that has not begun, or was stopped.
    Fresh(FreshRing<W>),
    /// Of a queue that was served when its server died or was disconnected.
    Left(LeftRing<W>),
}

/// The part of a queue that begins.
#[derive(Debug)]
pub struct FreshRing<W> {
    words: W,
    part: usize,
    kind: RingKind,
    size: u16,
}

/// What a queue left.
#[derive(Debug)]
pub struct LeftRing<W> {
    fresh: FreshRing<W>,
    began: u16,
    used: u16,
    unsure: bool,
}

/// What Algorithm 2 found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredRing {
    /// Where the server was.
    pub step: CrashPoint,
    /// The available index (packed: with its wrap counter) up to which requests had been taken.
    pub last_idx: u16,
    /// Where the next used element goes.
    pub used: u16,
    /// A request whose entry did not say INFLIGHT, although it was taken, now does (steps 1 to 3).
    pub redone: bool,
    /// Requests that were done, of which the driver did not know: they are in flight again (step 6).
    pub rolled_back: u16,
    /// Requests that were done, of which it knew (step 6).
    pub closed: u16,
    /// The heads in flight, in the order of submission: to be submitted again (step 9).
    pub heads: Vec<u16>,
}

pub(crate) fn find<W: JournalMemory>(words: W, part: usize, kind: RingKind, size: u16) -> Result<FoundRing<W>, Damage> {
    // Acquire: what the start word, stored last, stands for.
    let start = words.load(part + head::START, Acquire);
    let fresh = FreshRing { words, part, kind, size };
    if start == 0 {
        return Ok(FoundRing::Fresh(fresh));
    }
    let unsure = start & head::UNSURE != 0;
    if start & !head::UNSURE != fresh.start() || unsure && kind == RingKind::Split {
        return Err(Damage::Start);
    }
    let used = fresh.words.load(part + head::USED, Acquire);
    let (used, began) = (used as u16, (used >> 16) as u16);
    if [used, began].into_iter().any(|at| !fresh.is_index(at) || unsure && at != 0) {
        return Err(Damage::Used);
    }
    Ok(FoundRing::Left(LeftRing { fresh, began, used, unsure }))
}

impl<W: JournalMemory> FreshRing<W> {
    /// The base at which the queue was stopped in order, if it ever was: what its server answered, or would have.
    pub fn closed(&self) -> Option<u32> {
        let word = self.load(self.part + head::CLOSED);
        (word & CLOSED != 0).then_some(word as u32)
    }

    /// Whether it was stopped at `base`, which was known to be where the ring was: a packed ring's 0 is no new one.
    pub fn surely_stopped_at(&self, base: u32) -> bool {
        self.load(self.part + head::CLOSED) == CLOSED | u64::from(base)
    }

    fn start(&self) -> u64 {
        self.kind.start(self.size)
    }

    fn is_index(&self, at: u16) -> bool {
        self.kind == RingKind::Split || PackedIndex::from_bits(at).offset < self.size
    }

    fn entry(&self, head: u16) -> usize {
        self.part + LINE + usize::from(head) * self.kind.entry()
    }

    fn load(&self, at: usize) -> u64 {
        self.words.load(at, Acquire)
    }

    /// Begins the queue's journal: requests are taken from `last_idx` on, and the next used element goes to `used`.
    pub fn begin(self, last_idx: u16, used: u16) -> RingJournal<W> {
        self.begin_at((last_idx, used), false)
    }

    /// The same for a packed ring of whose base it is not known whether it means 0 or a new ring: its successor is not to take it for known.
    pub fn begin_unsure(self) -> RingJournal<W> {
        self.begin_at((0, 0), true)
    }

    fn begin_at(self, (last_idx, used): (u16, u16), unsure: bool) -> RingJournal<W> {
        for head in 0..self.size {
            let at = self.entry(head);
            if self.load(at) != 0 {
                self.words.store(at, 0, Release);
            }
        }
        self.words.store(self.part + head::MERGE, merge(FINISHED, 0, last_idx), Release);
        // The ring's used index may be anything when a region is new. Taken for 0 it would look, until the first completion,
        // as if a batch had been published in between: peers then give up descriptor 0, in flight or not.
        self.words.store(self.part + head::USED, u64::from(used) | u64::from(used) << 16, Release);
        self.words.store(self.part + head::CLOSED, 0, Release);
        // Last: a queue that has begun has all of the above.
        let start = self.start() | if unsure { head::UNSURE } else { 0 };
        self.words.store(self.part + head::START, start, Release);
        RingJournal { unsure, ..self.journal(0, used) }
    }

    fn journal(self, sequence: u64, used: u16) -> RingJournal<W> {
        let size = usize::from(self.size);
        let slots = match self.kind {
            RingKind::Split => 0,
            RingKind::Packed => self.size,
        };
        RingJournal {
            words: self.words,
            part: self.part,
            kind: self.kind,
            size: self.size,
            sequence,
            used,
            batch: Vec::with_capacity(size),
            began: batch_at(used),
            unsure: false,
            known: vec![Known::NOTHING; size],
            owners: vec![0; usize::from(slots)],
            long: false,
            kept: 0,
            free: (0..slots).rev().collect(),
            nexts: vec![END; usize::from(slots)],
        }
    }
}

/// What the entries and words say, all of it checked.
struct Survey {
    step: CrashPoint,
    last_idx: u16,
    redo: Option<u16>,
    /// Heads with their sequence numbers.
    in_flight: Vec<(u64, u16)>,
    done: Vec<(u64, u16)>,
    chains: Option<Chains>,
}

impl<W: JournalMemory> LeftRing<W> {
    /// Where the batch began that was not published, or was the last to be: a packed ring's descriptor there tells which.
    pub fn began(&self) -> u16 {
        self.began
    }

    /// Nothing had been taken that tells whether a packed ring's base of 0 meant a new ring.
    pub fn is_unsure(&self) -> bool {
        self.unsure
    }

    /// Checks what [`recover`](Self::recover) goes by, for whoever is to change the ring before.
    ///
    /// # Errors
    /// As [`recover`](Self::recover).
    pub fn check(&self, published: bool) -> Result<(), Damage> {
        self.survey(published).map(|_| ())
    }

    /// Where the next used element goes if that batch was published: a split ring's used index tells.
    pub fn used(&self) -> u16 {
        self.used
    }

    /// Whether the batch was published, by a split ring's own used index (step 5).
    ///
    /// # Errors
    /// The index is neither where the batch began nor where it ends: the ring is not the one of this journal.
    pub fn is_published(&self, used_idx: u16) -> Result<bool, Damage> {
        if used_idx == self.used {
            Ok(true)
        } else if used_idx == self.began {
            Ok(false)
        } else {
            Err(Damage::Used)
        }
    }

    /// Algorithm 2. `published` says whether the batch was.
    ///
    /// A crash in the middle of it is followed by the same again: every store repeats what the next attempt would do, and the used
    /// word, by which `published` is found, is stored last.
    ///
    /// # Errors
    /// What is there is not what a crash leaves. Nothing has been changed.
    pub fn recover(self, published: bool) -> Result<(RingJournal<W>, RecoveredRing), Damage> {
        let Survey { step, last_idx, redo, mut in_flight, done, chains } = self.survey(published)?;
        let fresh = self.fresh;
        let put = |at: usize, value: u64| fresh.words.store(at, value, Release);
        let entry = |head: u16, sequence: u64, state: u64| put(fresh.entry(head), sequence << state::BITS | state);
        // Steps 1 to 4.
        if let Some(head) = redo {
            let sequence = in_flight.iter().find(|r| r.1 == head).map_or(0, |r| r.0);
            entry(head, sequence, state::INFLIGHT);
            // After the entry, as in step 7.
            put(fresh.part + head::MERGE, merge(FINISHED, head, last_idx));
        }
        // Steps 5 and 6.
        for &(sequence, head) in &done {
            entry(head, sequence, if published { state::NONE } else { state::INFLIGHT });
        }
        let used = if published { self.used } else { self.began };
        // Step 8, after all entries: until then the same is found and done again.
        put(fresh.part + head::USED, u64::from(used) | u64::from(used) << 16);
        let count = done.len() as u16;
        let (rolled_back, closed) = if published { (0, count) } else { (count, 0) };
        if !published {
            in_flight.extend(&done);
        }
        in_flight.sort_unstable();
        let sequence = in_flight.last().map_or(0, |r| (r.0 + 1) & SEQUENCE);
        let mut journal = RingJournal { unsure: self.unsure, ..fresh.journal(sequence, used) };
        for &(sequence, head) in &in_flight {
            journal.known[usize::from(head)].entry = sequence << state::BITS;
        }
        if let Some(chains) = chains {
            for (head, word) in chains.words {
                journal.known[usize::from(head)].chain = word;
                journal.long |= chain::slots(word) > 1;
                if chain::slots(word) == 1 {
                    continue;
                }
                if word & chain::KEPT == 0 {
                    journal.owners[usize::from(chain::place(word))] = head;
                } else {
                    journal.kept += 1;
                }
            }
            (journal.free, journal.nexts) = (chains.free, chains.nexts);
        }
        let heads = in_flight.iter().map(|r| r.1).collect();
        let redone = redo.is_some();
        Ok((journal, RecoveredRing { step, last_idx, used, redone, rolled_back, closed, heads }))
    }

    fn survey(&self, published: bool) -> Result<Survey, Damage> {
        let fresh = &self.fresh;
        let word = fresh.load(fresh.part + head::MERGE);
        let (started, newest, last_idx) = (word as u16 == STARTED as u16, (word >> 16) as u16, (word >> 32) as u16);
        if word as u16 > STARTED as u16 || word >> 48 != 0 || newest >= fresh.size || !fresh.is_index(last_idx) {
            return Err(Damage::Merge);
        }
        if self.unsure && (started || last_idx != 0) {
            return Err(Damage::Merge);
        }
        let (redo, in_flight, done) = (started.then_some(newest), Vec::new(), Vec::new());
        let mut survey = Survey { step: CrashPoint::Idle, last_idx, redo, in_flight, done, chains: None };
        let mut marked = false;
        for head in 0..fresh.size {
            let entry = fresh.load(fresh.entry(head));
            let sequence = entry >> state::BITS;
            match entry & state::MASK {
                // The newest one is counted below, when the others' numbers are known.
                state::NONE => {}
                state::INFLIGHT => {
                    marked |= started && head == newest;
                    survey.in_flight.push((sequence, head));
                }
                state::DONE if !(started && head == newest) => survey.done.push((sequence, head)),
                _ => return Err(Damage::Entry(head)),
            }
        }
        if let (Some(head), false) = (redo, marked) {
            // Its entry has no sequence number yet, and it was taken last.
            let others = survey.in_flight.iter().chain(&survey.done).map(|r| r.0).max();
            survey.in_flight.push((others.map_or(0, |n| (n + 1) & SEQUENCE), head));
        }
        self.count(&survey, published)?;
        survey.step = match (started, marked) {
            (true, false) => CrashPoint::Merged,
            (true, true) => CrashPoint::Marked,
            _ => self.completing(&survey, published),
        };
        let mut all = survey.in_flight.clone();
        all.extend(if published { &[][..] } else { &survey.done[..] });
        let used = if published { self.used } else { self.began };
        survey.chains = chains(fresh, &all, used, self.distance(used, last_idx))?;
        Ok(survey)
    }

    /// Where in steps 8 to 14.
    fn completing(&self, survey: &Survey, published: bool) -> CrashPoint {
        let counted = self.distance(self.began, self.used);
        let done: u32 = survey.done.iter().map(|r| self.slots(r.1)).sum();
        if published {
            if done > 0 { CrashPoint::Published } else { self.waiting(survey) }
        } else if counted > done {
            CrashPoint::Counted
        } else if done > 0 {
            CrashPoint::Done
        } else {
            self.waiting(survey)
        }
    }

    fn waiting(&self, survey: &Survey) -> CrashPoint {
        if survey.in_flight.is_empty() { CrashPoint::Idle } else { CrashPoint::InFlight }
    }

    /// The entries in flight must be what lies between the two indices.
    fn count(&self, survey: &Survey, published: bool) -> Result<(), Damage> {
        let mut entries: u32 = survey.in_flight.iter().map(|r| self.slots(r.1)).sum();
        if !published {
            entries += survey.done.iter().map(|r| self.slots(r.1)).sum::<u32>();
        }
        let used = if published { self.used } else { self.began };
        let indices = match (self.distance(used, survey.last_idx), self.fresh.kind) {
            // Both at the same place of a packed ring: none or all, which the wrap counters have told apart.
            (n, _) if n <= u32::from(self.fresh.size) => n,
            _ => return Err(Damage::Used),
        };
        if indices == entries { Ok(()) } else { Err(Damage::Count { indices, entries }) }
    }

    /// From one index to a later one.
    fn distance(&self, from: u16, to: u16) -> u32 {
        match self.fresh.kind {
            RingKind::Split => u32::from(to.wrapping_sub(from)),
            RingKind::Packed => {
                let (from, to) = (PackedIndex::from_bits(from), PackedIndex::from_bits(to));
                let lap = if from.wrap == to.wrap { 0 } else { u32::from(self.fresh.size) };
                (lap + u32::from(to.offset)).wrapping_sub(u32::from(from.offset))
            }
        }
    }

    fn slots(&self, head: u16) -> u32 {
        match self.fresh.kind {
            RingKind::Split => 1,
            RingKind::Packed => chain::slots(self.fresh.load(self.fresh.entry(head) + chain::AT)).into(),
        }
    }
}

/// In the process from here on: where the chains of what is in flight are.
struct Chains {
    /// By head, as the entries have it.
    words: Vec<(u16, u64)>,
    free: Vec<u16>,
    nexts: Vec<u16>,
}

/// Checks the chains of a packed ring's requests in flight that have several slots: those in the ring lie among the `outstanding` slots from `used` on, of
/// those that are kept each is as long as it says, and no slot and no place is used twice.
fn chains<W: JournalMemory>(
    fresh: &FreshRing<W>,
    in_flight: &[(u64, u16)],
    used: u16,
    outstanding: u32,
) -> Result<Option<Chains>, Damage> {
    if fresh.kind == RingKind::Split {
        return Ok(None);
    }
    let size = usize::from(fresh.size);
    let (mut slots_taken, mut places_taken) = (vec![false; size], vec![false; size]);
    let mut chains = Chains { words: Vec::with_capacity(in_flight.len()), free: Vec::new(), nexts: vec![END; size] };
    let used = usize::from(PackedIndex::from_bits(used).offset);
    for &(_, head) in in_flight {
        let damage = Damage::Entry(head);
        let take = |taken: &mut [bool], at: usize| {
            let one = taken.get_mut(at).ok_or(damage)?;
            if core::mem::replace(one, true) { Err(damage) } else { Ok(()) }
        };
        let word = fresh.load(fresh.entry(head) + chain::AT);
        let (slots, place) = (chain::slots(word), chain::place(word));
        if !chain::is_sound(word) || slots > fresh.size || place >= fresh.size || slots == 1 && word & chain::KEPT != 0
        {
            return Err(damage);
        }
        chains.words.push((head, word));
        if slots == 1 {
            // The entry has all: others may long have been where it stood.
            continue;
        }
        if word & chain::KEPT == 0 {
            let at = usize::from(place);
            let ahead = (at + size - used) % size;
            if (ahead + usize::from(slots)) as u64 > u64::from(outstanding) {
                return Err(damage);
            }
            for i in 0..usize::from(slots) {
                take(&mut slots_taken, (at + i) % size)?;
            }
            continue;
        }
        let mut place = place;
        for _ in 0..slots {
            take(&mut places_taken, usize::from(place))?;
            let at = fresh.part + RingJournal::<W>::place(fresh.size, place);
            let next = (fresh.load(at + 1) >> 48) as u16;
            chains.nexts[usize::from(place)] = next;
            place = next;
        }
        if place != END {
            return Err(damage);
        }
    }
    chains.free = (0..fresh.size).rev().filter(|p| !places_taken[usize::from(*p)]).collect();
    Ok(Some(chains))
}

impl<W: JournalMemory> RingJournal<W> {
    /// Where the descriptors of a request in flight are, of a packed ring: the first here and the others in the ring, or all kept, and
    /// then in `out`, in order.
    pub fn chain(&self, head: u16, out: &mut Vec<Descriptor>) -> Option<InRing> {
        out.clear();
        let word = self.known.get(usize::from(head))?.chain;
        if self.kind == RingKind::Split {
            return None;
        }
        let load = |at: usize| self.words.load(self.part + at, Acquire);
        if word & chain::KEPT == 0 {
            return Some(chain::in_ring(word, load(self.entry(head) + chain::ADDRESS)));
        }
        let mut place = chain::place(word);
        while place != END {
            let at = Self::place(self.size, place);
            let word = load(at + 1);
            out.push(Descriptor { address: load(at), len: word as u32, flags: (word >> 32) as u16 });
            place = self.nexts[usize::from(place)];
        }
        None
    }
}
