//! What the spare areas know, what power loss takes away, and the map that is found again.
//!
//! The spare area of a page holds the logical number of each of its units and the page's sequence number. The newest copy
//! of a unit is the one with the largest sequence number, unless a trim came after it: trims go to a log that survives, a
//! range and a sequence number each.
//!
//! A program that is under way when the power goes leaves a page that cannot be read. The FTL collects a block only after the
//! programs are done that made its contents stale; so a unit whose newest program is torn still has the version before.

use super::map::{HELD, Map, NONE};
use super::page::PageFtl;
use crate::geometry::Unit;
use crate::rng::Rng;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use weir_units::Nanos;

/// A program that power loss may undo until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flight {
    done: Nanos,
    lpn: u32,
    unit: u32,
    /// Where the version before lay, or [`NONE`].
    old: u32,
    /// Of its page: the unit may have been erased and programmed again since.
    sequence: u64,
    /// Writes of the host that this version stands for: the buffer keeps the last of several.
    writes: u32,
}

/// Programs of data that was acknowledged before it was in flash, oldest first. As many as the buffer has units.
#[derive(Clone, Debug)]
pub(crate) struct Flights {
    queue: VecDeque<Flight>,
    limit: usize,
}

impl Flights {
    /// Remembers up to `limit`; 0: none, where nothing is acknowledged early or the buffer outlives the power.
    pub(crate) fn new(limit: u32) -> Self {
        Flights { queue: VecDeque::with_capacity(limit as usize), limit: limit as usize }
    }

    /// A unit's program begins, that of a page with that sequence number.
    #[inline]
    pub(crate) fn take_off(&mut self, lpn: u32, unit: u32, old: u32, sequence: u64) {
        if self.limit == 0 {
            return;
        }
        if self.queue.len() == self.limit {
            self.queue.pop_front();
        }
        self.queue.push_back(Flight { done: Nanos::NEVER, lpn, unit, old, sequence, writes: 1 });
    }

    /// The last `n` are done at `done`.
    #[inline]
    pub(crate) fn land(&mut self, n: usize, done: Nanos) {
        if self.limit == 0 {
            return;
        }
        self.queue.iter_mut().rev().take(n).for_each(|f| f.done = done);
    }

    /// The last ones stand for so many writes each.
    pub(crate) fn count(&mut self, writes: &[u32]) {
        for (flight, n) in self.queue.iter_mut().rev().zip(writes.iter().rev()) {
            flight.writes = *n;
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }
}

/// Ranges of units that were trimmed, with the sequence number that their next program would have had.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrimLog {
    /// By first unit: the unit after the last, and the sequence number. Disjoint.
    ranges: BTreeMap<u32, (u32, u64)>,
}

impl TrimLog {
    /// Units from `first` to before `end` were trimmed.
    pub(crate) fn add(&mut self, first: u32, end: u32, sequence: u64) {
        if first >= end {
            return;
        }
        // The range that begins before keeps its head, and its tail if it reaches beyond.
        if let Some((&from, &(to, old))) = self.ranges.range(..first).next_back() {
            if to > first {
                self.ranges.insert(from, (first, old));
            }
            if to > end {
                self.ranges.insert(end, (to, old));
            }
        }
        let covered: Vec<u32> = self.ranges.range(first..end).map(|(from, _)| *from).collect();
        for from in covered {
            if let Some((to, old)) = self.ranges.remove(&from) {
                if to > end {
                    self.ranges.insert(end, (to, old));
                }
            }
        }
        self.ranges.insert(first, (end, sequence));
    }

    /// Copies of the unit with a smaller sequence number are void; 0 where it was never trimmed.
    pub(crate) fn sequence(&self, lpn: u32) -> u64 {
        match self.ranges.range(..=lpn).next_back() {
            Some((_, &(end, sequence))) if lpn < end => sequence,
            _ => 0,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }
}

/// A unit whose newest writes are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lost {
    /// The logical unit.
    pub lpn: u32,
    /// How many of its writes, counted from the newest, are undone. (Trims survive and do not count.)
    pub writes: u32,
}

impl Map {
    /// Whether a programmed unit still holds `lpn`.
    fn holds(&self, unit: u32, lpn: u32) -> bool {
        let (block, offset) = self.shape.block_of(Unit(unit));
        self.p2l[unit as usize] == lpn && offset < u32::from(self.written[block as usize])
    }

    /// The map anew from the spare areas; answers the pages that were looked at.
    fn rebuild(&mut self, trims: &TrimLog) -> u64 {
        let none = self.logical();
        self.l2p[..none as usize].fill(NONE);
        let (units, page_units) = (self.shape.units_per_block(), self.shape.units_per_page());
        let mut pages = 0;
        for block in 0..self.shape.blocks() {
            let first = block * units;
            let written = u32::from(self.written[block as usize]);
            pages += u64::from(written.div_ceil(page_units));
            for unit in first..first + written {
                let lpn = self.p2l[unit as usize];
                if lpn == none {
                    continue;
                }
                let age = |unit: u32| (self.sequence[self.shape.page_of(unit) as usize], unit);
                let at = self.l2p[lpn as usize];
                if age(unit).0 >= trims.sequence(lpn) && (at == NONE || age(at) < age(unit)) {
                    self.l2p[lpn as usize] = unit;
                }
            }
        }
        self.recount();
        pages
    }

    /// Valid counts anew from the map.
    fn recount(&mut self) {
        self.valid.iter_mut().for_each(|v| *v &= HELD);
        for lpn in 0..self.logical() {
            let unit = self.l2p[lpn as usize];
            if unit != NONE {
                self.valid[self.shape.block_of(Unit(unit)).0 as usize] += 1;
            }
        }
    }
}

impl PageFtl {
    /// Power goes at `now`: programs that are not done by then are torn or not, as `rng` has it. Adds what is lost.
    pub(crate) fn tear(&mut self, now: Nanos, rng: &mut Rng, lost: &mut Vec<Lost>) {
        let none = self.map.logical();
        // The newest first: below a torn version may lie another one.
        while let Some(flight) = self.flights.queue.pop_back() {
            let Flight { done, lpn, unit, old, sequence, writes } = flight;
            let there = self.map.l2p[lpn as usize] == unit
                && self.map.sequence[self.map.shape.page_of(unit) as usize] == sequence;
            if done <= now || !there || rng.below(2) == 0 {
                continue;
            }
            // Where the version before is gone or its block is being collected, this program was done before that.
            if old != NONE && (!self.map.holds(old, lpn) || self.is_owed(old)) {
                continue;
            }
            self.map.p2l[unit as usize] = none;
            self.map.l2p[lpn as usize] = old;
            lost.push(Lost { lpn, writes });
        }
    }

    /// Whether the unit lies in a block that is collected and waits for its erase.
    fn is_owed(&self, unit: u32) -> bool {
        let (block, _) = self.shape().block_of(Unit(unit));
        self.debts[self.shape().plane_of_block(block).0 as usize].block == block
    }

    /// Finds the map again, as firmware does after power loss; answers the pages that it reads for that.
    pub(crate) fn rebuild(&mut self) -> u64 {
        if let Some(cache) = &mut self.cache {
            cache.clear();
        }
        self.pay_debts();
        self.map.rebuild(&self.trims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_last_trim_of_each_unit_counts(trims in proptest::collection::vec((0..60u32, 0..20u32), 0..40)) {
            let mut log = TrimLog::default();
            let mut model = vec![0; 100];
            for (i, (first, len)) in trims.into_iter().enumerate() {
                log.add(first, first + len, i as u64 + 1);
                model[first as usize..(first + len) as usize].fill(i as u64 + 1);
            }
            for lpn in 0..100 {
                prop_assert_eq!(log.sequence(lpn), model[lpn as usize], "unit {}", lpn);
            }
            let mut end = 0;
            for (from, (to, _)) in &log.ranges {
                prop_assert!(*from >= end && to > from, "ranges are disjoint");
                end = *to;
            }
        }
    }
}
