//! The cached mapping (DFTL; Gupta, Kim and Urgaonkar, 2009): the page map lies in flash, a page of it at a time comes into
//! memory, and the memory is bounded.
//!
//! Map pages are units of the drive like any other: their logical numbers follow the host's, they have a write point of
//! their own and are collected like data. A miss reads a map page; a dirty page that must leave is programmed first.
//! When collection moves data, entries in memory change in place; each map page that is not in memory costs a read and a
//! program on the collected plane (batched for the block). Their own space is not accounted for, as if they overwrote
//! the same spare page.

use super::debt::Work;
use super::encoding::NONE;
use crate::config::{FlashDriveConfig, Mapping};
use crate::derived_config::{DerivedConfig, ENTRIES};
use crate::geometry::Divisor;
use crate::stats::Stats;
use alloc::vec;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
struct Frame {
    page: u32,
    used: bool,
    dirty: bool,
}

/// What a look-up met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Hit,
    /// The map page has to be read, after `evicted` has been programmed.
    Miss {
        page: u32,
        evicted: Option<u32>,
    },
}

/// The map pages that are in memory, replaced by CLOCK.
#[derive(Clone, Debug)]
pub(crate) struct MapCache {
    entries: Divisor,
    /// The first logical unit of the map; the host's lie before it.
    pub(super) first: u32,
    pub(super) page_units: u32,
    frames: Vec<Frame>,
    capacity: usize,
    hand: usize,
    /// By map page: its frame, or `NONE`.
    frame_of: Vec<u32>,
    /// By map page: the block in which it was seen last, so that a block counts it once.
    seen: Vec<u32>,
    blocks: u32,
}

impl MapCache {
    /// The cache of a drive with cached mapping.
    pub(crate) fn new(config: &FlashDriveConfig, plan: &DerivedConfig) -> Option<MapCache> {
        if config.ftl.mapping != Mapping::Cached {
            return None;
        }
        let page_units = plan.shape.units_per_page();
        let pages = ((plan.mapped - plan.logical) / page_units) as usize;
        let capacity = (config.ftl.map_cache.0 / u64::from(plan.shape.page_bytes())).clamp(1, pages as u64) as usize;
        Some(MapCache {
            entries: Divisor::new(ENTRIES * page_units),
            first: plan.logical,
            page_units,
            frames: Vec::with_capacity(capacity),
            capacity,
            hand: 0,
            frame_of: vec![NONE; pages],
            seen: vec![0; pages],
            blocks: 0,
        })
    }

    /// Nothing is in memory.
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.frame_of.fill(NONE);
        self.hand = 0;
    }

    #[inline]
    pub(super) fn touch(&mut self, lpn: u32, change: bool) -> Touch {
        let page = self.entries.div(lpn);
        let at = self.frame_of[page as usize];
        if at != NONE {
            let frame = &mut self.frames[at as usize];
            frame.used = true;
            frame.dirty |= change;
            return Touch::Hit;
        }
        let frame = Frame { page, used: true, dirty: change };
        if self.frames.len() < self.capacity {
            self.frame_of[page as usize] = self.frames.len() as u32;
            self.frames.push(frame);
            return Touch::Miss { page, evicted: None };
        }
        while core::mem::take(&mut self.frames[self.hand].used) {
            self.advance();
        }
        let out = core::mem::replace(&mut self.frames[self.hand], frame);
        self.frame_of[out.page as usize] = NONE;
        self.frame_of[page as usize] = self.hand as u32;
        self.advance();
        Touch::Miss { page, evicted: out.dirty.then_some(out.page) }
    }

    fn advance(&mut self) {
        self.hand = (self.hand + 1) % self.capacity;
    }

    /// Collection moved these units: what that costs in map pages.
    pub(crate) fn moved(&mut self, lpns: &[u32], stats: &mut Stats) -> Work {
        self.blocks += 1;
        let mut pages = 0;
        for &lpn in lpns.iter().filter(|l| **l < self.first) {
            let page = self.entries.div(lpn) as usize;
            if self.frame_of[page] != NONE {
                self.frames[self.frame_of[page] as usize].dirty = true;
            } else if core::mem::replace(&mut self.seen[page], self.blocks) != self.blocks {
                pages += 1;
            }
        }
        stats.map_reads += u64::from(pages);
        stats.map_programs += u64::from(pages);
        Work { reads: pages, programs: pages, units: 0 }
    }

    /// Checks that frames and pages name each other.
    pub(crate) fn check(&self) {
        for (at, frame) in self.frames.iter().enumerate() {
            assert_eq!(self.frame_of[frame.page as usize], at as u32, "frame {at} holds map page {}", frame.page);
        }
        let held = self.frame_of.iter().filter(|f| **f != NONE).count();
        assert_eq!(held, self.frames.len(), "map pages in memory");
        assert!(self.frames.len() <= self.capacity, "more map pages in memory than it holds");
    }
}
