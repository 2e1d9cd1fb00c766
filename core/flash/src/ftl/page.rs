//! The page map: every unit can lie anywhere. What a drive knows of its blocks and write points, and what every change of them takes along.

use super::cached::MapCache;
use super::debt::{Debt, PAID, PageTimes};
use super::encoding::{HELD, NONE};
use super::flights::Flights;
use super::hybrid::Hybrid;
use super::map::Map;
use super::pool::{FreeLists, Lifetimes, factory_bad};
use super::streams::Streams;
use super::striping::Striping;
use super::victim::VictimPolicy;
use super::wear::WearPolicy;
use super::write_point::{Kinds, SHUT, WritePoint};
use super::write_routing::Route;
use crate::array::Array;
use crate::config::{FlashDriveConfig, GcMode, Mapping};
use crate::derived_config::DerivedConfig;
use crate::fdp::{Fdp, Placement};
use crate::geometry::Shape;
use crate::image::FREE;
use crate::lun::Promise;
use crate::stats::{DieBlocks, Stats, WearSpread};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use weir_units::rng::{SplitMix64, mix};

/// The pages of a block that lie on the lowest level.
fn lowest(shape: &Shape) -> Vec<u16> {
    let geometry = shape.geometry();
    let levels = geometry.page_map.table(geometry.cell, geometry.pages);
    (0u16..).zip(&levels).filter(|(_, level)| **level == 0).map(|(page, _)| page).collect()
}

/// The page map and everything that decides for it.
#[derive(Debug)]
pub struct PageFtl {
    pub(crate) map: Map,
    pub(crate) points: Vec<WritePoint>,
    pub(crate) kinds: Kinds,
    pub(crate) free: FreeLists,
    pub(crate) slc_free: FreeLists,
    pub(crate) slc_blocks: u32,
    pub(crate) slc_units: u32,
    pub(crate) slc_idle: bool,
    /// The pages of the lowest level.
    pub(crate) slc_pages: Vec<u16>,
    pub(crate) bad: Vec<bool>,
    /// By plane: ordinary blocks that are not bad.
    pub(crate) usable: Vec<u32>,
    pub(crate) life: Lifetimes,
    /// More blocks have failed than the drive can spare.
    pub(crate) worn_out: bool,
    /// Blocks that could fail when the drive was new.
    pub(crate) spares: u64,
    /// By plane: collection not yet paid for.
    pub(crate) debts: Vec<Debt>,
    /// By plane: full until the map's clock says this.
    pub(crate) full_until: Vec<u64>,
    /// By plane: its host blocks are as far filled as its phase says; see [`phase`](Self::phase).
    pub(crate) is_staggered: Vec<bool>,
    pub(crate) victims: Box<dyn VictimPolicy>,
    pub(crate) wear: Box<dyn WearPolicy>,
    pub(crate) mode: GcMode,
    pub(crate) start: u32,
    pub(crate) hard: u32,
    pub(crate) futile: u32,
    /// Erases since a block moved for wear.
    pub(crate) erased: u32,
    pub(crate) scratch: Vec<u32>,
    pub(crate) times: PageTimes,
    pub(crate) route: Route,
    /// Addresses that say where their pages go; without it planes have their turn.
    pub(crate) striping: Option<Striping>,
    /// Whether ends of the host's programs may move: nobody waits for them.
    pub(crate) promise: Promise,
    /// The plane of the last program.
    pub(crate) programmed: u32,
    pub(crate) seed: u64,
    factory_bad: u32,
    /// Whole dies are written, or the mapping is hybrid.
    pub(super) unusual: bool,
    pub(crate) rng: SplitMix64,
    pub(crate) cache: Option<MapCache>,
    pub(crate) hybrid: Option<Hybrid>,
    /// Who chooses among the host's write points, and whose the blocks are.
    pub(crate) streams: Streams,
    /// Placement handles.
    pub(crate) fdp: Option<Box<Fdp>>,
    /// Programs that power loss may still undo.
    pub(crate) flights: Flights,
    pub(crate) stats: Stats,
}

impl PageFtl {
    /// An empty drive as planned.
    pub(crate) fn new(config: &FlashDriveConfig, plan: &DerivedConfig, silicon: &Array, map: Option<Map>) -> Self {
        let shape = plan.shape;
        let ftl = &config.ftl;
        let (streams, kept) = ftl.write_points();
        let kinds = Kinds {
            gc: streams,
            map: streams + 1,
            slc: streams + 2,
            count: streams + 3 + kept + plan.moved.saturating_sub(1),
        };
        let die = if ftl.multi_plane { shape.planes_per_die() } else { 1 };
        let placement = ftl.fdp.map(|fdp| Placement::build(&fdp, shape.units_per_page() * die));
        let policy = placement.or_else(|| ftl.separation.build(plan.logical));
        let mut made = PageFtl {
            map: map.unwrap_or_else(|| Map::new(shape, plan.mapped, plan.slots, ftl.spare)),
            points: vec![SHUT; (shape.planes() * kinds.count) as usize],
            kinds,
            free: FreeLists::new(shape.planes(), shape.blocks_per_plane()),
            slc_free: FreeLists::new(shape.planes(), ftl.slc.blocks),
            slc_blocks: ftl.slc.blocks,
            slc_units: plan.slc_units,
            slc_idle: ftl.slc.idle(),
            slc_pages: lowest(&shape),
            bad: factory_bad(shape.blocks(), config.seed, ftl.factory_bad),
            usable: vec![0; shape.planes() as usize],
            life: Lifetimes::new(config.seed, ftl.wear.endurance, ftl.wear.failures),
            worn_out: false,
            spares: 0,
            debts: vec![PAID; shape.planes() as usize],
            full_until: vec![0; shape.planes() as usize],
            is_staggered: vec![false; shape.planes() as usize],
            victims: ftl.gc.victim.build(ftl.gc.choices),
            wear: ftl.wear.policy.build(ftl.wear.gap, shape.units() / shape.units_per_page()),
            mode: ftl.gc.mode,
            start: ftl.gc.start,
            hard: ftl.gc.hard,
            futile: 0,
            erased: 0,
            scratch: vec![0; shape.units_per_block() as usize],
            times: PageTimes::mean(silicon, &shape),
            route: Route::new(&shape, ftl.multi_plane),
            striping: Striping::new(config, &shape, plan.logical, plan.mapped),
            promise: config.promise(),
            programmed: 0,
            seed: config.seed,
            factory_bad: ftl.factory_bad,
            unusual: (ftl.multi_plane && shape.planes_per_die() > 1) || ftl.mapping == Mapping::Hybrid,
            rng: SplitMix64::new(mix(config.seed ^ 0xf71)),
            cache: MapCache::new(config, plan),
            hybrid: Hybrid::new(config, plan),
            streams: Streams::new(policy, ftl.host_streams(), plan.moved as u8, &shape, plan.logical),
            fdp: ftl.fdp.map(|fdp| Fdp::new(fdp, &shape, ftl.multi_plane)),
            flights: Flights::new(plan.flights),
            stats: Stats::default(),
        };
        made.list_free();
        made.spares = made.spare_blocks();
        made
    }

    /// Blocks that can fail before writes are refused.
    fn spare_blocks(&self) -> u64 {
        let room: u64 = (0..self.shape().planes()).map(|plane| u64::from(self.room(plane))).sum();
        room.saturating_sub(self.map.logical().into()) / u64::from(self.shape().units_per_block())
    }

    /// How many of them have not, in percent.
    pub(crate) fn available_spare(&self) -> u8 {
        match self.spares {
            _ if self.worn_out => 0,
            0 => 100,
            made => (self.spare_blocks() * 100 / made).min(100) as u8,
        }
    }

    /// Lists what is free and counts what is not bad: of a drive of which nothing was used, all blocks but the bad ones.
    pub(crate) fn list_free(&mut self) {
        self.free.clear();
        self.slc_free.clear();
        for plane in 0..self.shape().planes() {
            let blocks = self.blocks(plane);
            self.usable[plane as usize] = 0;
            // The lists give back from their end: low numbers first.
            for block in blocks.rev().filter(|b| !self.bad[*b as usize]) {
                let slc = self.is_slc(block);
                self.usable[plane as usize] += u32::from(!slc);
                if !self.map.has_spare() || self.map.state[block as usize] == FREE {
                    let list = if slc { &mut self.slc_free } else { &mut self.free };
                    list.put(plane, block);
                }
            }
        }
    }

    /// The bad blocks of the factory are marked as such: a drive is new.
    pub(crate) fn mark_bad(&mut self) {
        for (block, _) in (0..).zip(&self.bad).filter(|(_, bad)| **bad) {
            self.map.retire(block);
        }
    }

    /// No plane is known to be full.
    pub(crate) fn forget_room(&mut self) {
        self.full_until.fill(0);
        (self.futile, self.erased) = (0, 0);
    }

    /// What is under way or remembered is gone; no block is open.
    pub(crate) fn forget(&mut self) {
        self.points.fill(SHUT);
        self.debts.fill(PAID);
        self.forget_room();
        self.worn_out = false;
        self.bad = factory_bad(self.shape().blocks(), self.seed, self.factory_bad);
        if let Some(cache) = &mut self.cache {
            cache.clear();
        }
        if let Some(hybrid) = &mut self.hybrid {
            hybrid.clear();
        }
        self.streams.forget();
        if let Some(fdp) = &mut self.fdp {
            fdp.forget(&self.map.shape);
        }
        self.flights.clear();
    }

    /// What collection owes is paid at no time: long ago.
    pub(crate) fn pay_debts(&mut self) {
        for plane in 0..self.shape().planes() {
            let block = core::mem::replace(&mut self.debts[plane as usize], PAID).block;
            if block != NONE {
                self.erase(plane, block);
            }
        }
    }

    /// How far apart units lie in one page that was written in their order.
    #[inline]
    pub(crate) fn step(&self) -> u32 {
        self.striping.as_ref().map_or(1, Striping::step)
    }

    /// The drive's shape.
    #[inline]
    pub(crate) fn shape(&self) -> &Shape {
        &self.map.shape
    }

    /// The plane's blocks.
    pub(crate) fn blocks(&self, plane: u32) -> core::ops::Range<u32> {
        let first = self.shape().block_index(plane, 0);
        first..first + self.shape().blocks_per_plane()
    }

    /// The plane's ordinary blocks, as places in the arrays.
    pub(crate) fn ordinary(&self, plane: u32) -> core::ops::Range<usize> {
        let all = self.blocks(plane);
        (all.start + self.slc_blocks) as usize..all.end as usize
    }

    /// Whether the block serves as pseudo-SLC: the first ones of each plane do.
    #[inline]
    pub(crate) fn is_slc(&self, block: u32) -> bool {
        self.slc_blocks > 0 && self.shape().plane_of_block(block).1 < self.slc_blocks
    }

    /// The place of a write point.
    #[inline]
    pub(crate) fn point_index(&self, plane: u32, kind: u32) -> usize {
        (plane * self.kinds.count + kind) as usize
    }

    /// Valid units of the plane.
    pub(crate) fn live(&self, plane: u32) -> u32 {
        let blocks = self.blocks(plane);
        let valid = &self.map.valid[blocks.start as usize..blocks.end as usize];
        valid.iter().map(|v| u32::from(v & !HELD)).sum()
    }

    /// Valid units that a plane can hold and still collect.
    pub(crate) fn room(&self, plane: u32) -> u32 {
        let held = FlashDriveConfig::reserve(self.kinds.count - 3, self.cache.is_some(), self.start);
        self.usable[plane as usize].saturating_sub(held) * self.shape().units_per_block()
    }

    /// Opens a free block. There must be one.
    pub(crate) fn open_free(&mut self, plane: u32, kind: u32) {
        self.open_for(plane, kind, false);
    }

    /// The same, for data that moves because it is cold or for any other.
    pub(crate) fn open_for(&mut self, plane: u32, kind: u32, cold: bool) {
        let list = self.free.of(plane);
        debug_assert!(!list.is_empty(), "no free block in plane {plane}");
        let at = self.wear.take(list, &self.map.erases, cold).min(list.len() - 1);
        let block = self.free.take(plane, at);
        self.map.begin(block, kind);
        self.streams.assign(block, self.kinds.stream(kind));
        if let Some(fdp) = &mut self.fdp {
            fdp.opened(block, kind, self.kinds.slc + 1);
        }
        let first = block * self.map.shape.units_per_block();
        let index = self.point_index(plane, kind);
        self.points[index] = WritePoint { next: first, end: first + self.map.shape.units_per_block(), block };
    }

    /// The block at the write point is full: from now on it can be collected.
    pub(crate) fn close(&mut self, at: usize) {
        let block = core::mem::replace(&mut self.points[at], SHUT).block as usize;
        self.map.valid[block] &= !HELD;
        self.map.stamp[block] = self.map.clock;
    }

    /// Closes the block at the write point; the rest of it stays unwritten until it is collected.
    pub(crate) fn leave_rest(&mut self, at: usize) {
        let WritePoint { next, end, block } = self.points[at];
        if block == NONE {
            return;
        }
        let (none, units) = (self.map.logical(), self.map.shape.units_per_block());
        self.map.p2l[next as usize..end as usize].fill(none);
        self.map.written[block as usize] = units as u16;
        self.close(at);
    }

    /// Erases of the blocks that are not bad.
    pub fn wear_spread(&self) -> WearSpread {
        let alive = self.map.erases.iter().zip(&self.bad).filter(|(_, bad)| !**bad).map(|(e, _)| *e);
        let (mut sum, mut count, mut min, mut max) = (0u64, 0u64, u32::MAX, 0);
        for erases in alive {
            (sum, count) = (sum + u64::from(erases), count + 1);
            (min, max) = (erases.min(min), erases.max(max));
        }
        let mean = if count == 0 { 0.0 } else { sum as f64 / count as f64 };
        WearSpread { min: if count == 0 { 0 } else { min }, mean, max }
    }

    /// The blocks of each die.
    pub fn die_blocks(&self) -> Vec<DieBlocks> {
        let shape = self.shape();
        let mut dies = vec![DieBlocks::default(); shape.dies() as usize];
        for (block, (erases, bad)) in (0..).zip(self.map.erases.iter().zip(&self.bad)) {
            let die = &mut dies[shape.die_of(shape.plane_of_block(block).0) as usize];
            die.blocks += 1;
            if *bad {
                die.bad += 1;
                continue;
            }
            die.erases += u64::from(*erases);
            die.most_erases = die.most_erases.max(*erases);
        }
        for plane in 0..shape.planes() {
            dies[shape.die_of(plane) as usize].free += self.free.count(plane) + self.slc_free.count(plane);
        }
        dies
    }

    /// `n` units of one page from the point's next one have been placed: the rest of the page stays empty.
    #[inline]
    pub(crate) fn fill_page(&mut self, at: usize, n: u32) {
        let WritePoint { next, block, .. } = self.points[at];
        let page_units = self.map.shape.units_per_page();
        for empty in next + n..next + page_units {
            self.map.p2l[empty as usize] = self.map.logical();
        }
        self.map.stamp_pages(next, 1);
        self.filled(at, block, n, page_units);
    }

    /// That many units have been written at the point, `valid` of them with contents.
    #[inline]
    pub(crate) fn filled(&mut self, at: usize, block: u32, valid: u32, units: u32) {
        self.map.count(block, valid, units);
        self.points[at].next += units;
        if self.points[at].is_empty() {
            self.close(at);
        }
    }

    /// Erases a block and puts it back where it came from, unless it fails.
    pub(crate) fn erase(&mut self, plane: u32, block: u32) {
        self.map.erase(block);
        self.stats.erases += 1;
        let slc = self.is_slc(block);
        let failed = self.life.fails(block, self.map.erases[block as usize], &mut self.rng);
        if failed && self.can_spare(plane, slc) {
            self.bad[block as usize] = true;
            self.map.retire(block);
            self.stats.grown_bad += 1;
            self.usable[plane as usize] -= u32::from(!slc);
            return;
        }
        // The last ones have to serve on, so that what was acknowledged finds its place; new writes are refused.
        self.worn_out |= failed && !slc;
        let list = if slc { &mut self.slc_free } else { &mut self.free };
        list.put(plane, block);
    }

    /// Whether the drive can do without one block more of this plane.
    fn can_spare(&self, plane: u32, slc: bool) -> bool {
        if slc {
            return self.slc_free.count(plane) > 0;
        }
        let room: u64 = (0..self.shape().planes()).map(|p| u64::from(self.room(p))).sum();
        let block = u64::from(self.shape().units_per_block());
        let here = u64::from(self.room(plane));
        self.free.count(plane) > 0 && here >= block && room >= u64::from(self.map.logical()) + block
    }
}
