//! What the spare areas know, what power loss takes away, and the map that is found again.
//!
//! The spare area of a page holds the logical number of each of its units and the page's sequence number. The newest copy
//! of a unit is the one with the largest sequence number, unless a trim came after it: trims go to a log that survives.
//! A block remembers when it was erased, so that pages that were programmed before are not taken for what it holds.
//!
//! A program that is under way when the power goes leaves a page that cannot be read. The FTL collects a block only after the
//! programs are done that made its contents stale; so a unit whose newest program is torn still has the version before.

use super::map::{HELD, Map, NONE};
use super::page::{PageFtl, SHUT, WritePoint};
use crate::geometry::Unit;
use crate::image::{BAD, FREE, SEQUENCE_MAX};
use crate::scheduler::When;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use weir_units::Nanos;
use weir_units::rng::SplitMix64;

/// A program that power loss may undo until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flight {
    done: Nanos,
    /// The program's number, where its end is not known in advance; see [`Flights::number`].
    number: u64,
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
    /// The number of the next program whose end is not known in advance.
    pub(crate) number: u64,
}

impl Flights {
    /// Remembers up to `limit`; 0: none, where nothing is acknowledged early or the buffer outlives the power.
    pub(crate) fn new(limit: u32) -> Self {
        Flights { queue: VecDeque::with_capacity(limit as usize), limit: limit as usize, number: 0 }
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
        self.queue.push_back(Flight { done: Nanos::NEVER, number: self.number, lpn, unit, old, sequence, writes: 1 });
    }

    /// The last `n` are done at `done`; where that is not known, [`Flights::landed`] will tell.
    #[inline]
    pub(crate) fn land(&mut self, n: usize, done: When) {
        let (Some(done), 1..) = (done.known(), self.limit) else { return };
        self.queue.iter_mut().rev().take(n).for_each(|f| f.done = done);
    }

    /// The program of that number is done.
    pub(crate) fn landed(&mut self, number: u64, done: Nanos) {
        let first = self.queue.partition_point(|f| f.number < number);
        self.queue.iter_mut().skip(first).take_while(|f| f.number == number).for_each(|f| f.done = done);
    }

    /// The last ones stand for so many writes each.
    pub(crate) fn count(&mut self, writes: &[u32]) {
        for (flight, n) in self.queue.iter_mut().rev().zip(writes.iter().rev()) {
            flight.writes = *n;
        }
    }

    /// The units of programs that are not done at `now`.
    pub(crate) fn under_way(&self, now: Nanos) -> impl Iterator<Item = u32> + '_ {
        self.queue.iter().filter(move |f| f.done > now).map(|f| f.lpn)
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
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

    /// What was programmed of a block since its erase, as the pages' sequence numbers tell, and the newest of them.
    fn programmed(&self, block: u32) -> (u32, u64) {
        let pages = self.shape.pages_per_block();
        let first = (block * pages) as usize;
        let since = self.erased_at[block as usize].max(1);
        let found = &self.sequence[first..first + pages as usize];
        // Pages are programmed in their order.
        match found.iter().rposition(|s| (since..SEQUENCE_MAX).contains(s)) {
            Some(last) => ((last as u32 + 1) * self.shape.units_per_page(), found[last]),
            None => (0, 0),
        }
    }

    /// The map anew from the spare areas of what is written; answers the pages that were looked at.
    ///
    /// The arrays are gone through in their order, once: they may lie on a disk. What lies elsewhere in them is looked at only
    /// where what is known of its block does not decide.
    fn rebuild(&mut self) -> u64 {
        let logical = self.logical();
        self.l2p.fill(NONE);
        self.end_words();
        self.waiting.fill(NONE);
        let (units, page_units) = (self.shape.units_per_block(), self.shape.units_per_page());
        // By block: the oldest and the newest sequence number of what is written.
        let mut ages: Vec<(u64, u64)> = Vec::with_capacity(self.shape.blocks() as usize);
        let mut pages = 0;
        for block in 0..self.shape.blocks() {
            let first = block * units;
            let written = u32::from(self.written[block as usize]);
            let found = written.div_ceil(page_units);
            let page = self.shape.page_of(first) as usize;
            let sequence = &self.sequence[page..page + found as usize];
            let fold = |(low, high): (u64, u64), s: &u64| (low.min(*s), high.max(*s));
            let mine = sequence.iter().fold((u64::MAX, 0), fold);
            ages.push(mine);
            pages += u64::from(found);
            for unit in first..first + written {
                let lpn = self.p2l[unit as usize];
                if lpn >= logical {
                    // Nothing, or damage.
                    self.p2l[unit as usize] = logical;
                    continue;
                }
                let at = self.l2p[lpn as usize];
                if at == NONE || self.is_newer((unit, mine), (at, self.ages_of(at, &ages))) {
                    self.l2p[lpn as usize] = unit;
                }
            }
            self.lender.touched(u64::from(written) * 4 + u64::from(found) * 8);
        }
        self.leave_out_trimmed(&ages);
        #[cfg(test)]
        assert!(self.newest().eq(self.l2p[..logical as usize].iter().copied()), "another map than the definition's");
        self.recount();
        pages
    }

    /// The definition: of all that is written of a unit and not trimmed since, what has the largest sequence number.
    #[cfg(test)]
    fn newest(&self) -> impl Iterator<Item = u32> {
        let (units, mut found) = (self.shape.units_per_block(), alloc::vec![(0, NONE); self.logical() as usize]);
        let written = |block: u32| block * units..block * units + u32::from(self.written[block as usize]);
        for unit in (0..self.shape.blocks()).flat_map(written) {
            let (lpn, age) = (self.p2l[unit as usize] as usize, self.sequence[self.shape.page_of(unit) as usize]);
            if lpn < found.len() && age >= self.trimmed[lpn] && (found[lpn].1 == NONE || found[lpn] < (age, unit)) {
                found[lpn] = (age, unit);
            }
        }
        found.into_iter().map(|(_, unit)| unit)
    }

    fn ages_of(&self, unit: u32, ages: &[(u64, u64)]) -> (u64, u64) {
        ages[self.shape.block_of(Unit(unit)).0 as usize]
    }

    /// Whether a unit was programmed after another one; each with the oldest and the newest sequence number of its block.
    #[inline]
    fn is_newer(&self, (unit, mine): (u32, (u64, u64)), (other, others): (u32, (u64, u64))) -> bool {
        if mine.0 > others.1 || mine.1 < others.0 {
            return mine.0 > others.1;
        }
        let age = |unit: u32| (self.sequence[self.shape.page_of(unit) as usize], unit);
        age(other) < age(unit)
    }

    /// What was trimmed after its newest program has no contents.
    fn leave_out_trimmed(&mut self, ages: &[(u64, u64)]) {
        for lpn in 0..self.logical() as usize {
            let unit = self.l2p[lpn];
            let trimmed = self.trimmed[lpn];
            if trimmed > 0 && unit != NONE {
                let (oldest, newest) = self.ages_of(unit, ages);
                let undecided = trimmed > oldest && trimmed <= newest;
                if trimmed > newest || undecided && self.sequence[self.shape.page_of(unit) as usize] < trimmed {
                    self.l2p[lpn] = NONE;
                }
            }
            if lpn % 4096 == 0 {
                self.lender.touched(4096 * 8);
            }
        }
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
    pub(crate) fn tear(&mut self, now: Nanos, rng: &mut SplitMix64, lost: &mut Vec<Lost>) {
        self.map.begin_anew();
        let none = self.map.logical();
        // The newest first: below a torn version may lie another one.
        while let Some(flight) = self.flights.queue.pop_back() {
            let Flight { done, lpn, unit, old, sequence, writes, .. } = flight;
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

    /// Finds everything again that the flash itself tells, as firmware does after power loss; answers the pages that it
    /// reads for that.
    pub(crate) fn recover(&mut self) -> u64 {
        if let Some(cache) = &mut self.cache {
            cache.clear();
        }
        self.pay_debts();
        if self.hybrid.is_some() {
            // Its blocks keep their roles: those are not in the spare areas.
            return self.map.rebuild();
        }
        self.map.begin_anew();
        self.points.fill(SHUT);
        self.forget_room();
        for block in 0..self.shape().blocks() {
            self.find_block(block);
            self.map.lender.touched(u64::from(self.shape().pages_per_block()) * 8);
        }
        let pages = self.map.rebuild();
        self.find_points();
        self.map.is_sound();
        self.map.lender.tell();
        pages
    }

    /// Goes on from the map as another process has left it, or finds it again as [`recover`](Self::recover) does where it is not
    /// whole: then the pages that are read for that.
    pub(crate) fn resume(&mut self) -> Option<u64> {
        if !self.map.attempt() {
            return Some(self.recover());
        }
        let trimmed = self.map.roll_back();
        self.map.empty_slots();
        for block in 0..self.shape().blocks() {
            let state = self.map.state[block as usize];
            self.bad[block as usize] = state == BAD;
            let clock = self.map.adopt_block(block, state == FREE || state == BAD);
            self.map.clock = self.map.clock.max(clock);
        }
        if let Some(lpn) = trimmed {
            self.map.trim(lpn);
        }
        self.find_points();
        self.map.is_sound();
        None
    }

    /// Which blocks are open and which are free, as their words say.
    fn find_points(&mut self) {
        for block in 0..self.shape().blocks() {
            self.streams.assign(block, self.kinds.stream(self.map.state[block as usize].wrapping_sub(1)));
            self.reopen(block);
        }
        self.recover_placement();
        self.list_free();
        for plane in 0..self.shape().planes() {
            self.relieve(plane);
        }
    }

    /// What a block's words and pages say of it.
    fn find_block(&mut self, block: u32) {
        let index = block as usize;
        let state = self.map.state[index];
        self.bad[index] = state == BAD;
        let idle = state == FREE || state == BAD;
        let (written, newest) = if idle { (0, 0) } else { self.map.programmed(block) };
        self.map.written[index] = written.min(self.block_units(block)) as u16;
        self.map.valid[index] = HELD;
        self.map.stamp[index] = newest + 1;
        self.map.clock = self.map.clock.max(newest + 1);
        if self.map.erased_at[index] < SEQUENCE_MAX {
            self.map.clock = self.map.clock.max(self.map.erased_at[index]);
        }
    }

    /// Units that a block takes.
    fn block_units(&self, block: u32) -> u32 {
        if self.is_slc(block) { self.slc_units } else { self.shape().units_per_block() }
    }

    /// A block that is not full goes on where it was; one for which nobody is left is closed as it is.
    fn reopen(&mut self, block: u32) {
        let state = self.map.state[block as usize];
        if state == FREE || state == BAD {
            return;
        }
        let (plane, _) = self.shape().plane_of_block(block);
        let (units, written) = (self.block_units(block), u32::from(self.map.written[block as usize]));
        if written == units {
            self.map.valid[block as usize] &= !HELD;
            return;
        }
        let kind = state - 1;
        let first = block * self.shape().units_per_block();
        let fits = kind < self.kinds.count && (kind == self.kinds.slc) == self.is_slc(block);
        let at = if fits { self.point_index(plane, kind) } else { 0 };
        if fits && self.points[at].block == NONE {
            self.points[at] = WritePoint { next: first + written, end: first + units, block };
            return;
        }
        let none = self.map.logical();
        self.map.p2l[(first + written) as usize..(first + units) as usize].fill(none);
        self.map.written[block as usize] = units as u16;
        self.map.valid[block as usize] &= !HELD;
    }

    /// Erases a block of which everything is stale where none is free: a crash in the middle of a collection leaves that.
    fn relieve(&mut self, plane: u32) {
        while self.free.count(plane) == 0 {
            let stale = self.ordinary(plane).find(|b| self.map.valid[*b] == 0);
            let Some(block) = stale else { break };
            self.map.valid[block] = HELD;
            self.erase(plane, block as u32);
        }
        // Only damage leaves a plane without room to work in. What is given up is found on the media all the same.
        while self.free.count(plane) == 0 {
            let used = self.ordinary(plane).filter(|b| !self.bad[*b]);
            let Some(block) = used.min_by_key(|b| self.map.valid[*b] & !HELD) else { return };
            self.give_up(plane, block as u32);
        }
    }

    fn give_up(&mut self, plane: u32, block: u32) {
        let (found, _) = self.map.gather(block, &mut self.scratch);
        for i in 0..found {
            self.map.unmap(self.scratch[i]);
            self.map.done();
        }
        self.map.valid[block as usize] = HELD;
        for point in self.points.iter_mut().filter(|p| p.block == block) {
            *point = SHUT;
        }
        self.erase(plane, block);
    }
}
