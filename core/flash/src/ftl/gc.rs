//! Garbage collection: when, which block, where its data goes, and who waits for it.
//!
//! ```text
//! free blocks of a plane   > start: nothing      ≤ start: collect       ≤ hard: writes wait (preemptive)
//! ```
//! The maps change at once when a block is collected; the time that it takes is booked on the plane. Blocking modes book
//! it in one piece, and what else stands still meanwhile is the mode's name. Preemptive collection books page by page into
//! the gaps between requests (never more than one page ahead of a request that is already there); where there are none, each
//! page that the host writes moves as many as it takes to free one. The erased block becomes free only when all of it is
//! paid for.

use super::debt::{Debt, PAID, Work};
use super::encoding::{HELD, NONE};
use super::page::PageFtl;
use super::streams::MOVED;
use super::victim::{PlaneView, fewest};
use super::write_point::{SHUT, WritePoint};
use crate::array::Array;
use crate::config::GcMode;
use crate::geometry::UNIT;
use crate::relocate::{Relocation, Scope};
use core::ops::Range;
use weir_units::Nanos;
use weir_units::rng::{SplitMix64, mix};

impl GcMode {
    /// What the calendar books.
    pub const fn scope(self) -> Scope {
        match self {
            GcMode::Controller => Scope::Controller,
            GcMode::Channel => Scope::Channel,
            GcMode::Plane | GcMode::Preemptive => Scope::Plane,
        }
    }
}

/// Choices in a row that freed nothing, after which the greedy one is taken.
const FUTILE: u32 = 8;

/// Erases of the drive from one block that moves for wear to the next, at least: so few collections take a second block's time. Prime,
/// so that all planes have their turn.
const LEVEL_EVERY: u32 = 5;

/// Blocks of a plane up to which searching them once more is cheaper than waiting for memory.
const LOOK_AHEAD: usize = 1024;

impl PageFtl {
    /// Brings the plane's free blocks above the threshold; false where its data leaves no room for that.
    pub(crate) fn make_room(&mut self, now: Nanos, silicon: &mut Array, plane: u32) -> bool {
        if self.free.count(plane) > self.start {
            return true;
        }
        if self.live(plane) > self.room(plane) {
            return false;
        }
        if self.mode == GcMode::Preemptive {
            return self.make_room_later(now, silicon, plane);
        }
        while self.free.count(plane) <= self.start {
            if !self.collect(now, silicon, plane) {
                return false;
            }
        }
        true
    }

    /// Whether the plane collects whenever the host has filled a block.
    pub(crate) fn has_to_collect(&self, plane: u32) -> bool {
        self.free.count(plane) <= self.start + 1
    }

    /// Valid units of the plane's full block that has the fewest; 0 where none is full.
    pub(crate) fn fewest_valid(&self, plane: u32) -> u32 {
        let valid = &self.map.valid[self.ordinary(plane)];
        fewest(valid).map_or(0, |at| u32::from(valid[at]))
    }

    /// By how many pages the host blocks of a plane are filled when those of a plane of phase 0 are opened. Writes go round over the
    /// planes, so without phases all of them would open a block and collect at the same time, and what they block together would
    /// stand still for as many collections as it has dies. The dies of the drive (controller blocking) or of each channel (channel
    /// blocking) are spread evenly over a block's pages, from where the seed says on. `None` in the other modes, where nothing is
    /// blocked together, and where blocks are opened by other rules.
    pub(crate) fn phase(&self, plane: u32) -> Option<u32> {
        if self.fdp.is_some() || self.hybrid.is_some() || self.slc_blocks > 0 {
            return None;
        }
        let shape = self.shape();
        let (die, channels) = (shape.die_of(plane), shape.geometry().channels);
        let (nth, of) = match self.mode {
            GcMode::Controller => (die, shape.dies()),
            GcMode::Channel => (die / channels, shape.dies() / channels),
            GcMode::Plane | GcMode::Preemptive => return None,
        };
        let pages = u64::from(shape.pages_per_block());
        Some(((mix(self.seed) % pages + u64::from(nth) * pages / u64::from(of)) % pages) as u32)
    }

    /// The plane has opened a block for `kind` after it collected. The first time, as much of the host's block is left empty as its
    /// phase says.
    pub(crate) fn begin_at_phase(&mut self, plane: u32, kind: u32) {
        if self.is_staggered[plane as usize] || kind != 0 {
            return;
        }
        self.is_staggered[plane as usize] = true;
        let at = self.point_index(plane, kind);
        for _ in 0..self.phase(plane).unwrap_or(0) {
            self.fill_page(at, 0);
        }
    }

    fn make_room_later(&mut self, now: Nanos, silicon: &mut Array, plane: u32) -> bool {
        self.settle(now, silicon, plane);
        while self.free.count(plane) <= self.hard {
            self.stats.urgent += 1;
            if self.debts[plane as usize].block == NONE && !self.borrow(now, plane) {
                return false;
            }
            let Debt { block, work, .. } = core::mem::replace(&mut self.debts[plane as usize], PAID);
            self.book(now, silicon, plane, work, Some(block));
            self.erase(plane, block);
        }
        if self.free.count(plane) <= self.start && self.debts[plane as usize].block == NONE {
            self.borrow(now, plane);
        }
        true
    }

    /// Collects a block for which time will be booked later.
    fn borrow(&mut self, now: Nanos, plane: u32) -> bool {
        let lazy = self.rotation(plane);
        let Some(block) = lazy.or_else(|| self.victim(plane)) else { return false };
        let work = if lazy.is_some() { self.level(now, plane, block) } else { self.evacuate(plane, block) };
        let frees = self.map.shape.pages_per_block().saturating_sub(work.programs).max(1);
        self.debts[plane as usize] = Debt { block, work, steps: work.reads.max(work.programs) + 1, frees, due: 0 };
        true
    }

    /// The debt of a plane that has been collecting for long: somewhere on its way.
    pub(crate) fn owe(&mut self, now: Nanos, plane: u32, rng: &mut SplitMix64) {
        if !(1..=self.start).contains(&self.free.count(plane)) || !self.borrow(now, plane) {
            return;
        }
        let Debt { work, frees, due, .. } = &mut self.debts[plane as usize];
        let page = self.map.shape.units_per_page();
        let done = rng.below(work.reads.max(work.programs) + 1);
        let left = |n: u32| n.saturating_sub(done);
        *work = Work {
            reads: left(work.reads),
            programs: left(work.programs),
            units: work.units.saturating_sub(done * page),
        };
        *due = rng.below(*frees);
    }

    /// Books what fits between the plane's last work and `now`: a page at a time, the erase when no page is left.
    pub(crate) fn settle(&mut self, now: Nanos, silicon: &mut Array, plane: u32) {
        while self.debts[plane as usize].block != NONE && silicon.plane_free_at(plane) < now {
            self.pay(silicon.plane_free_at(plane), silicon, plane);
        }
    }

    /// The host is about to write a page to the plane: books its part of what frees one, so that a plane without gaps never
    /// has to stop for a whole block.
    pub(crate) fn pace(&mut self, now: Nanos, silicon: &mut Array, plane: u32) {
        let Debt { block, steps, frees, due, .. } = &mut self.debts[plane as usize];
        if *block == NONE {
            return;
        }
        *due += *steps;
        let (frees, mut parts) = (*frees, *due / *frees);
        *due %= frees;
        while parts > 0 {
            parts -= 1;
            self.pay(now, silicon, plane);
            if self.debts[plane as usize].block == NONE {
                return;
            }
        }
    }

    /// Books one page of the debt, or its erase where no page is left.
    fn pay(&mut self, at: Nanos, silicon: &mut Array, plane: u32) {
        let Debt { block, work, .. } = &mut self.debts[plane as usize];
        let block = *block;
        let units = work.units.min(self.map.shape.units_per_page());
        let step = Work { reads: work.reads.min(1), programs: work.programs.min(1), units };
        if step == Work::default() {
            self.debts[plane as usize] = PAID;
            self.book(at, silicon, plane, step, Some(block));
            self.erase(plane, block);
            // The next one at once: what this one has freed is no more than the host has written meanwhile.
            if (1..=self.start).contains(&self.free.count(plane)) {
                self.borrow(at, plane);
            }
            return;
        }
        work.reads -= step.reads;
        work.programs -= step.programs;
        work.units -= step.units;
        self.book(at, silicon, plane, step, None);
    }

    /// Books work on the plane, and the erase of `block` after it.
    pub(crate) fn book(&mut self, now: Nanos, silicon: &mut Array, plane: u32, work: Work, block: Option<u32>) {
        let relocation = Relocation {
            read: Nanos(self.times.read.0 * u64::from(work.reads)),
            program: Nanos(self.times.program.0 * u64::from(work.programs)),
            bytes: u64::from(work.units) * u64::from(UNIT),
            erase: block.map(|b| self.map.shape.plane_of_block(b).1),
            // Nobody is told when collection ends; who comes later books behind it.
            erase_yields: true,
        };
        silicon.relocate(now, plane, &relocation, self.mode.scope());
    }

    /// Collects one block now, and moves a lazy one where the wear policy wants it. False where nothing can be freed.
    fn collect(&mut self, now: Nanos, silicon: &mut Array, plane: u32) -> bool {
        let Some(block) = self.victim(plane) else { return false };
        self.look_ahead(plane, block);
        let work = self.evacuate(plane, block);
        self.book(now, silicon, plane, work, Some(block));
        self.erase(plane, block);
        if let Some(lazy) = self.rotation(plane) {
            let work = self.level(now, plane, lazy);
            self.book(now, silicon, plane, work, Some(lazy));
            self.erase(plane, lazy);
        }
        true
    }

    /// Where collecting `block` frees none yet, since what it holds opens one, another will be collected after it: most likely
    /// that one is the greedy choice, and its part of the map can be on its way meanwhile.
    fn look_ahead(&mut self, plane: u32, block: u32) {
        let point = self.points[self.point_index(plane, self.kinds.gc)];
        if self.map.valid_of(block) <= point.end - point.next || self.free.count(plane) > self.start {
            return;
        }
        let blocks = self.ordinary(plane);
        if blocks.len() > LOOK_AHEAD || self.streams.are_kept() {
            return;
        }
        let held = core::mem::replace(&mut self.map.valid[block as usize], HELD);
        if let Some(next) = fewest(&self.map.valid[blocks.clone()]) {
            self.map.expect((blocks.start + next) as u32);
        }
        self.map.valid[block as usize] = held;
    }

    /// The policy's choice, or the greedy one where that frees nothing again and again; `None` where nothing would.
    fn victim(&mut self, plane: u32) -> Option<u32> {
        let block_units = self.map.shape.units_per_block();
        let blocks = self.ordinary(plane);
        let valid = &self.map.valid[blocks.clone()];
        let mine =
            if self.streams.are_kept() { self.streams.candidates(valid, blocks.clone(), block_units) } else { None };
        let view = PlaneView {
            valid: mine.unwrap_or(valid),
            erases: &self.map.erases[blocks.clone()],
            written_at: &self.map.stamp[blocks.clone()],
            now: self.map.clock,
            block_units,
        };
        let picked =
            self.victims.pick(&view, &mut self.rng).filter(|b| view.valid.get(*b).is_some_and(|v| v & HELD == 0));
        let frees = |b: usize| u32::from(view.valid[b]) < block_units;
        let chosen = match picked {
            Some(b) if frees(b) => {
                self.futile = 0;
                Some(b)
            }
            // Moving a whole block frees nothing, but a policy that goes round (FIFO) gets on by it.
            Some(b) if self.futile < FUTILE => {
                self.futile += 1;
                self.stats.futile += 1;
                Some(b)
            }
            _ => fewest(view.valid).filter(|b| frees(*b)),
        };
        chosen.map(|b| (blocks.start + b) as u32)
    }

    /// The block whose contents the wear policy wants moved into the most worn free one.
    fn rotation(&mut self, plane: u32) -> Option<u32> {
        self.erased += 1;
        if self.erased < LEVEL_EVERY || self.free.count(plane) <= self.hard.min(self.start - 1) {
            return None;
        }
        let free = self.free.of(plane);
        let at = self.wear.take(free, &self.map.erases, true).min(free.len() - 1);
        let target = self.map.erases[free[at] as usize];
        let blocks = self.ordinary(plane);
        let view = PlaneView {
            valid: &self.map.valid[blocks.clone()],
            erases: &self.map.erases[blocks.clone()],
            written_at: &self.map.stamp[blocks.clone()],
            now: self.map.clock,
            block_units: self.map.shape.units_per_block(),
        };
        let lazy = self.wear.rotate(&view, target).filter(|b| view.valid.get(*b).is_some_and(|v| v & HELD == 0))?;
        self.erased = 0;
        Some((blocks.start + lazy) as u32)
    }

    /// Moves what is valid in `block` for wear levelling: into the free block that the policy has for cold data, and nothing else into
    /// that. Shared with what collection moves it would become stale in part, and soon be collected.
    fn level(&mut self, now: Nanos, plane: u32, block: u32) -> Work {
        if self.map.valid_of(block) == 0 {
            // All is stale, and collection has passed it over.
            return self.evacuate(plane, block);
        }
        let kind = self.collection_kind(block);
        let at = self.point_index(plane, kind);
        let point = core::mem::replace(&mut self.points[at], SHUT);
        self.open_for(plane, kind, true);
        let work = self.vacate(plane, block, false);
        self.leave_rest(at);
        self.points[at] = point;
        self.stats.wear_moves += u64::from(work.units);
        if let Some(fdp) = &mut self.fdp {
            fdp.reallocated(now, plane, block, (self.scratch[0], work.units));
        }
        work
    }

    /// Moves what is valid in `block` to the plane's collection point. The block is then empty but not erased; at least
    /// one block of the plane must be free.
    pub(crate) fn evacuate(&mut self, plane: u32, block: u32) -> Work {
        self.vacate(plane, block, self.streams.are_kept())
    }

    /// The same, to the collection points of the units' streams or to one for all.
    fn vacate(&mut self, plane: u32, block: u32, by_stream: bool) -> Work {
        let (found, reads) = self.map.gather(block, &mut self.scratch);
        debug_assert_eq!(found as u32, self.map.valid_of(block));
        self.map.note_move(block);
        self.map.valid[block as usize] = HELD;
        let programs = if by_stream {
            let ranges = self.streams.sort(block, &mut self.scratch[..found]);
            let streams = (0..).zip(ranges);
            // What moves fits one block, so one is all that the free ones have to give.
            let least = self.free.count(plane).saturating_sub(1);
            streams.map(|(stream, range)| self.place_moved(plane, self.kinds.moved(stream), range, least)).sum()
        } else {
            self.place_moved(plane, self.collection_kind(block), 0..found, 0)
        };
        self.map.done_as_a_whole();
        let map = self.map_follows(found);
        if let Some(fdp) = &mut self.fdp {
            fdp.collected(plane, block, found);
        }
        self.stats.victims += 1;
        self.stats.gc_reads += u64::from(reads);
        self.stats.gc_programs += u64::from(programs);
        self.stats.gc_moves += found as u64;
        Work { reads: reads + map.reads, programs: programs + map.programs, units: found as u32 }
    }

    /// Places units of the scratch list at a collection point, with at least `least` blocks left free; answers the pages that they
    /// begin.
    fn place_moved(&mut self, plane: u32, kind: u32, units: Range<usize>, least: u32) -> u32 {
        let mut programs = 0;
        let mut from = units.start;
        while from < units.end {
            let at = self.collection_point(plane, kind, least);
            let point = self.points[at];
            let n = (units.end - from).min((point.end - point.next) as usize);
            self.map.note_block(point.block);
            self.map.moved(&self.scratch[from..from + n], point.next);
            programs += self.fill_on(at, n as u32);
            from += n;
        }
        programs
    }

    /// The plane's collection point of that kind, with room. Where no block can be opened for it, another stream's: the last one was
    /// opened for the same victim, and takes all of it.
    fn collection_point(&mut self, plane: u32, kind: u32, least: u32) -> usize {
        let at = self.point_index(plane, kind);
        if !self.points[at].is_empty() {
            return at;
        }
        if self.free.count(plane) <= least && self.streams.are_kept() {
            let others = (0..MOVED.into()).map(|stream| self.kinds.moved(stream)).filter(|k| *k < self.kinds.count);
            let mut points = others.map(|kind| self.point_index(plane, kind));
            if let Some(other) = points.find(|at| !self.points[*at].is_empty()) {
                return other;
            }
        }
        self.open_free(plane, kind);
        at
    }

    /// The write point that takes what is moved out of a block.
    #[inline]
    fn collection_kind(&self, block: u32) -> u32 {
        let kept = self.fdp.as_ref().and_then(|fdp| fdp.kept_apart(block));
        kept.map_or(self.kinds.gc, |n| self.kinds.slc + 1 + n)
    }

    /// `n` units from the collection point's next one have been placed; answers the pages that they begin. A page that
    /// is not full yet stays in the controller and takes more units later, or moving full blocks could gain nothing.
    fn fill_on(&mut self, at: usize, n: u32) -> u32 {
        let WritePoint { next, block, .. } = self.points[at];
        let page_units = self.map.shape.units_per_page();
        let (page, part) = if page_units == 1 {
            (next, 0)
        } else {
            {
                let page = self.map.shape.page_of(next);
                (page, next - page * page_units)
            }
        };
        let begun = u32::from(part > 0);
        if begun > 0 {
            self.renew(next - part, next);
        }
        let pages = if page_units == 1 { n } else { (part + n).div_ceil(page_units) };
        self.map.stamp_pages(page * page_units, pages);
        self.filled(at, block, n, n);
        pages - begun
    }

    /// Leaves out what has become stale of a page that is still in the controller: its sequence number will be newer.
    fn renew(&mut self, from: u32, to: u32) {
        let none = self.map.logical();
        for unit in from..to {
            if self.map.unit(self.map.p2l[unit as usize]) != unit {
                self.map.p2l[unit as usize] = none;
            }
        }
    }

    /// More work for the books of the map cache, after `found` units in the scratch list have moved.
    fn map_follows(&mut self, found: usize) -> Work {
        match &mut self.cache {
            None => Work::default(),
            Some(cache) => cache.moved(&self.scratch[..found], &mut self.stats),
        }
    }
}
