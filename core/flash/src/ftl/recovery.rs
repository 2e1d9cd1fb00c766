//! What power loss takes away, and the drive that is found again.
//!
//! A program that is under way when the power goes leaves a page that cannot be read. The FTL collects a block only after the
//! programs are done that made its contents stale; so a unit whose newest program is torn still has the version before.

use super::encoding::{HELD, NONE};
use super::flights::{Flight, Lost};
use super::page::PageFtl;
use super::write_point::{SHUT, WritePoint};
use crate::geometry::Unit;
use crate::image::{BAD, FREE, SEQUENCE_MAX};
use alloc::vec::Vec;
use weir_units::Nanos;
use weir_units::rng::SplitMix64;

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
