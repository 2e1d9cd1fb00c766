//! States to begin a measurement in.

use crate::Flash;
use crate::array::Array;
use crate::config::{GcMode, Mapping};
use crate::derived_config::DerivedConfig;
use crate::ftl::{Map, PageFtl, Striping};
use crate::geometry::UNIT;
use crate::host::Host;
use crate::image::{FREE, Lender};
use crate::name::names;
use crate::scheduler::When;
use crate::shuffle::Shuffle;
use crate::stats::Stats;
use alloc::vec::Vec;
use weir_units::Nanos;
use weir_units::rng::{SplitMix64, mix};

/// What the drive went through before.
///
/// Where collection blocks the controller or a channel, the open blocks of its dies are filled by different parts, so that they
/// come to the threshold one after the other. In the other modes they stand at the same page: planes that collect at the same
/// time cost nothing there, and planes out of step would each stop all writes in their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precondition {
    /// Nothing: no unit has contents.
    Fresh,
    /// Every unit was written once, in order.
    Sequential,
    /// Random writes of units for so long that collection has come to rest: the state is placed, not run.
    ///
    /// Under greedy collection and uniform writes a block loses its units one by one, at a rate proportional to what it
    /// still has, from U down to the victims' x; so the share of blocks with i valid units is proportional to 1/i
    /// (Desnoyers, "Analytic Models of SSD Write Performance", 2014), and x follows from the mean that the capacity
    /// demands. Other policies and workloads start near their rest, not in it: run on before measuring.
    Steady,
}

names!(Precondition, "precondition", Fresh = "fresh", Sequential = "sequential", Steady = "steady");

impl Flash {
    /// Puts the drive into that state, as if it had been idle since then: no wear, nothing in the buffer, counters at zero.
    pub fn precondition(&mut self, state: Precondition) {
        self.ftl.map.begin_anew();
        self.ftl.wipe();
        self.silicon = Array::new(self.ftl.shape(), &self.config.timing, &self.config.variability);
        self.host = Host::new(&self.config.host);
        if let Some(buffer) = &mut self.buffer {
            buffer.clear();
        }
        match state {
            Precondition::Fresh => {}
            // One state is like another.
            _ if self.config.ftl.mapping == Mapping::InPlace => {}
            Precondition::Sequential => self.fill(),
            Precondition::Steady if self.config.ftl.mapping == Mapping::Hybrid => self.fill(),
            Precondition::Steady => self.ftl.place_steady(self.config.seed, self.origin),
        }
        self.ftl.map.is_sound();
        self.ftl.map.lender.tell();
        self.reset_stats();
        if let Some(fdp) = &mut self.ftl.fdp {
            fdp.begin();
        }
    }

    /// Another drive of this configuration, in the state that [`precondition`](Self::precondition) has put this one into: at the price of
    /// copying its map. The policies are those of the configuration.
    ///
    /// `None` where there is more to it than the map (a map cache, hybrid mapping, placement handles, a detector of hot data), where the
    /// map is lent, or where the drive has counted work since then.
    pub fn twin(&self) -> Option<Flash> {
        let plan = self.twin_plan()?;
        Some(self.twin_with(&plan, self.ftl.map.clone()))
    }

    /// Becomes the [`twin`](Self::twin) of another drive, whatever it has done so far; a map of the same size is copied into the
    /// memory of its own. False, and nothing has changed, where the other drive has no twins.
    pub fn become_twin(&mut self, of: &Flash) -> bool {
        let Some(plan) = of.twin_plan() else { return false };
        let used = core::mem::replace(&mut self.ftl.map, Map::empty(plan.shape));
        *self = of.twin_with(&plan, of.ftl.map.copied_into(used));
        true
    }

    /// What a twin is made by; `None` where there is none.
    fn twin_plan(&self) -> Option<DerivedConfig> {
        let ftl = &self.ftl;
        let is_plain = ftl.cache.is_none() && ftl.hybrid.is_none() && ftl.fdp.is_none() && ftl.streams.policy.is_none();
        self.config.plan().ok().filter(|_| is_plain && ftl.map.is_own() && ftl.stats == Stats::default())
    }

    /// The twin whose map this is.
    fn twin_with(&self, plan: &DerivedConfig, map: Map) -> Flash {
        let mut made = Flash::made(&self.config, self.origin, plan, Some(map));
        made.ftl.take_state(&self.ftl);
        made
    }

    fn fill(&mut self) {
        // On silicon of its own: what it takes was long ago.
        let timing = self.config.timing.booked();
        let mut silicon = Array::new(self.ftl.shape(), &timing, &self.config.variability);
        let page = self.ftl.shape().page_bytes() / UNIT;
        let mut lpns = Vec::with_capacity(page as usize);
        let kinds = self.ftl.kinds;
        let ranges = [(0, 0, self.units()), (kinds.map, self.units(), self.ftl.map.logical())];
        for (kind, first, end) in ranges {
            // Pages of units that lie apart are written in turn.
            let step = if kind == kinds.map { 1 } else { self.ftl.step() };
            let pages = (first..end).step_by((page * step) as usize).flat_map(|from| from..end.min(from + step));
            for from in pages {
                lpns.clear();
                lpns.extend((from..end).step_by(step as usize).take(page as usize));
                let done = if kind == kinds.map {
                    self.ftl.write(When::at(self.origin), &mut silicon, kind, &lpns)
                } else {
                    let stream = if self.ftl.fdp.is_some() { self.stream(from, 0) } else { 0 };
                    self.ftl.write_stream(When::at(self.origin), &mut silicon, stream, &lpns)
                };
                if done.is_none() {
                    return;
                }
                self.ftl.map.lender.touched(u64::from(page) * 4 + 8);
            }
        }
        self.ftl.pay_debts();
        self.ftl.stagger();
    }
}

/// All zero. What is zero already is left alone, which costs its memory less.
fn clear(cells: &mut [u64], lender: &mut Lender) {
    for part in cells.chunks_mut(4096) {
        if part.iter().any(|c| *c != 0) {
            part.fill(0);
        }
        lender.touched(size_of_val(part) as u64);
    }
}

/// How many of `blocks` blocks have so many valid units in the steady state: one count for each, ascending, that add up to
/// `live`. `units` is a block's.
fn counts(blocks: u32, units: u32, live: u64) -> Vec<u16> {
    let mean = live as f64 / f64::from(blocks);
    // H(U) − H(x), and with it the mean (U − x) / (H(U) − H(x)), for x from U − 1 down until the mean fits.
    let mut harmonic = 0.0;
    let mut x = units;
    while x > 0 {
        harmonic += 1.0 / f64::from(x);
        x -= 1;
        if f64::from(units - x) / harmonic <= mean {
            break;
        }
    }
    let mut made = Vec::with_capacity(blocks as usize);
    let mut share = 0.0;
    for i in x + 1..=units {
        share += 1.0 / f64::from(i) / harmonic;
        let upto = (share * f64::from(blocks) + 0.5) as usize;
        while made.len() < upto.min(blocks as usize) {
            made.push(i as u16);
        }
    }
    made.resize(blocks as usize, units as u16);
    level(&mut made, units as u16, live);
    made
}

/// Adds or takes single units until the counts add up to `live`.
fn level(counts: &mut [u16], units: u16, live: u64) {
    let mut sum: u64 = counts.iter().map(|c| u64::from(*c)).sum();
    let mut moved = true;
    while sum != live && moved {
        moved = false;
        for count in counts.iter_mut() {
            if sum < live && *count < units {
                (*count, sum, moved) = (*count + 1, sum + 1, true);
            } else if sum > live && *count > 0 {
                (*count, sum, moved) = (*count - 1, sum - 1, true);
            }
        }
    }
    counts.sort_unstable();
}

/// The units of the drive in random order; where addresses say the planes, those of each partition.
struct Deck {
    parts: Vec<Part>,
}

struct Part {
    shuffle: Shuffle,
    /// Drawn so far.
    next: u32,
    /// Units that no plane has as its share yet, and planes that had theirs.
    left: u64,
    shares: u32,
}

impl Deck {
    fn new(striping: Option<&Striping>, all: u32, seed: u64) -> Deck {
        let part =
            |units: u32, seed| Part { shuffle: Shuffle::new(units, seed), next: 0, left: units.into(), shares: 0 };
        let parts = match striping {
            None => Vec::from([part(all, seed)]),
            Some(s) => (0..s.count()).map(|n| part(s.units(n), mix(seed ^ u64::from(n)))).collect(),
        };
        Deck { parts }
    }

    fn part(&mut self, striping: Option<&Striping>, plane: u32) -> (u32, &mut Part) {
        let n = striping.map_or(0, |s| s.partition_of(plane));
        (n, &mut self.parts[n as usize])
    }

    /// The plane's part of the units that are left, of a drive of so many planes.
    fn share(&mut self, striping: Option<&Striping>, plane: u32, planes: u32) -> u64 {
        let each = planes / self.parts.len() as u32;
        let (_, part) = self.part(striping, plane);
        part.left.div_ceil(u64::from(each - part.shares))
    }

    /// The plane gets so many.
    fn take(&mut self, striping: Option<&Striping>, plane: u32, units: u64) {
        let (_, part) = self.part(striping, plane);
        part.left -= units;
        part.shares += 1;
    }

    /// The next unit for a plane.
    fn draw(&mut self, striping: Option<&Striping>, plane: u32) -> u32 {
        let (n, part) = self.part(striping, plane);
        let drawn = part.shuffle.get(part.next);
        part.next += 1;
        striping.map_or(drawn, |s| s.unit(n, drawn))
    }
}

impl PageFtl {
    /// Takes over where an idle drive of the same configuration has its data; see [`Flash::twin`].
    fn take_state(&mut self, of: &PageFtl) {
        self.points.clone_from(&of.points);
        self.free.clone_from(&of.free);
        self.slc_free.clone_from(&of.slc_free);
        self.bad.clone_from(&of.bad);
        self.usable.clone_from(&of.usable);
        self.debts.clone_from(&of.debts);
        self.full_until.clone_from(&of.full_until);
        self.is_staggered.clone_from(&of.is_staggered);
        self.striping.clone_from(&of.striping);
        self.streams.take_state(&of.streams);
        (self.worn_out, self.spares, self.futile, self.erased) = (of.worn_out, of.spares, of.futile, of.erased);
        (self.route, self.programmed, self.rng) = (of.route, of.programmed, of.rng.clone());
    }

    /// Places all units as long random writing would have left them.
    fn place_steady(&mut self, seed: u64, now: Nanos) {
        let shape = *self.shape();
        let (planes, units) = (shape.planes(), shape.units_per_block());
        let mut deck = Deck::new(self.striping.as_ref(), self.map.logical(), seed ^ 0x57ead);
        let mut rng = SplitMix64::new(seed ^ 0x7001);
        self.is_staggered.fill(true);
        let mut lists: Vec<(Vec<u16>, Vec<u32>)> = Vec::new();
        let mut open = Vec::with_capacity(planes as usize);
        let host = rng.below(shape.pages_per_block());
        for plane in 0..planes {
            let host = self.phase(plane).unwrap_or(host);
            // What long writing leaves free or open: see `make_room` and the write points.
            let kept = self.start + self.kinds.count - 2;
            let blocks = self.usable[plane as usize].saturating_sub(kept).max(1);
            let share = deck.share(self.striping.as_ref(), plane, planes).min(u64::from(blocks) * u64::from(units));
            deck.take(self.striping.as_ref(), plane, share);
            let filled = self.filled_points(share, host, &mut rng);
            let closed = share - filled.iter().map(|n| u64::from(*n)).sum::<u64>();
            open.push(filled);
            let taken = (0..blocks).map(|_| self.free.take(plane, self.free.count(plane) as usize - 1)).collect();
            lists.push((counts(blocks, units, closed), taken));
        }
        let longest = lists.iter().map(|(_, blocks)| blocks.len()).max().unwrap_or(0);
        // Round by round, the emptiest blocks first: they are the oldest.
        for round in 0..longest {
            for (valid, blocks) in &lists {
                if let (Some(&valid), Some(&block)) = (valid.get(round), blocks.get(round)) {
                    self.place_block(block, u32::from(valid), &mut deck, &mut rng);
                }
            }
        }
        for (plane, filled) in (0..).zip(open) {
            for (kind, filled) in (0..).zip(filled) {
                self.place_open(plane, kind, filled, &mut deck);
            }
            if self.mode == GcMode::Preemptive && self.fdp.is_none() {
                self.owe(now, plane, &mut rng);
            }
        }
    }

    /// Moves the host's write point of each plane on by its phase, as if the pages before it had been padded.
    fn stagger(&mut self) {
        for plane in 0..self.shape().planes() {
            if let Some(pages) = self.phase(plane) {
                self.pad(plane, pages);
            }
        }
    }

    /// Leaves `pages` pages of the plane's first stream empty, or as many as leave collection the blocks that it begins with.
    fn pad(&mut self, plane: u32, pages: u32) {
        let at = self.point_index(plane, 0);
        self.is_staggered[plane as usize] = true;
        for _ in 0..pages {
            if self.points[at].is_empty() {
                if self.free.count(plane) <= self.start + 1 {
                    return;
                }
                self.open_free(plane, 0);
            }
            self.fill_page(at, 0);
        }
    }

    /// How many units the open blocks of a plane hold that has `share` of them: the host's streams, `host` pages each (planes
    /// take turns, and are as far from each other however long they are written to); then collection's, anywhere.
    fn filled_points(&self, share: u64, host: u32, rng: &mut SplitMix64) -> Vec<u32> {
        let (page, pages) = (self.shape().units_per_page(), self.shape().pages_per_block());
        if self.fdp.is_some() {
            // Reclaim units begin at a block's begin.
            return Vec::new();
        }
        let mut left = share;
        let mut filled = |kind: u32| {
            let units = page * if kind == self.kinds.gc { rng.below(pages) } else { host };
            let units = if u64::from(units) > left { 0 } else { units };
            left -= u64::from(units);
            units
        };
        (0..=self.kinds.gc).map(&mut filled).collect()
    }

    /// Opens a block with that many units.
    fn place_open(&mut self, plane: u32, kind: u32, units: u32, deck: &mut Deck) {
        if units == 0 || self.free.count(plane) == 0 {
            return;
        }
        self.open_free(plane, kind);
        let at = self.point_index(plane, kind);
        let first = self.points[at].next;
        for i in 0..units {
            let lpn = deck.draw(self.striping.as_ref(), plane);
            self.map.l2p[lpn as usize] = first + i;
            self.map.p2l[(first + i) as usize] = lpn;
        }
        self.map.stamp_pages(first, units / self.shape().units_per_page());
        let block = self.points[at].block;
        self.filled(at, block, units, units);
    }

    /// Fills a block with `valid` units, spread at random.
    fn place_block(&mut self, block: u32, valid: u32, deck: &mut Deck, rng: &mut SplitMix64) {
        let units = self.shape().units_per_block();
        let first = block * units;
        let plane = self.shape().plane_of_block(block).0;
        let mut needed = valid;
        self.map.begin(block, 0);
        for offset in 0..units {
            if needed == units - offset || rng.below(units - offset) < needed {
                let lpn = deck.draw(self.striping.as_ref(), plane);
                self.map.l2p[lpn as usize] = first + offset;
                self.map.p2l[(first + offset) as usize] = lpn;
                needed -= 1;
            }
        }
        let pages = self.shape().pages_per_block();
        self.map.stamp_pages(first, pages);
        self.map.lender.touched(u64::from(units) * 4 + u64::from(pages) * 8);
        self.map.valid[block as usize] = valid as u16;
        self.map.written[block as usize] = units as u16;
        self.map.stamp[block as usize] = self.map.clock;
    }

    /// Back to the factory: nothing mapped, nothing worn, the bad blocks of the factory.
    fn wipe(&mut self) {
        self.map.clear();
        self.map.erases.fill(0);
        let Map { sequence, trimmed, lender, clock, .. } = &mut self.map;
        // Of a drive that was never used there is nothing, and to look makes its memory appear.
        if *clock > 1 {
            clear(sequence, lender);
            clear(trimmed, lender);
        }
        self.map.erased_at.fill(0);
        self.map.state.fill(FREE);
        self.map.clock = 1;
        self.is_staggered.fill(false);
        self.forget();
        self.mark_bad();
        self.list_free();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_follow_the_law() {
        for (blocks, units, live) in
            [(100u32, 256u32, 23_000u64), (10, 64, 640), (1000, 512, 256_000), (7, 12, 3), (3, 4, 0)]
        {
            let made = counts(blocks, units, live);
            assert_eq!(made.len(), blocks as usize);
            assert_eq!(made.iter().map(|c| u64::from(*c)).sum::<u64>(), live);
            assert!(made.iter().all(|c| u32::from(*c) <= units));
        }
        // Half full: x/U solves (1 − x)/(−ln x) = 1/2, which is 0.2032.
        let made = counts(1000, 512, 256_000);
        assert!((102..=106).contains(&made[0]), "{}", made[0]);
        // By the law, half of the blocks lie below U · sqrt(x/U).
        assert!((226..=236).contains(&made[500]), "{}", made[500]);
    }
}
