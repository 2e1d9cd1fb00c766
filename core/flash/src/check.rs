//! What always holds. Slow: for tests, simulation in checking mode, fuzzing.

use crate::Flash;
use crate::ftl::{HELD, NONE, PageFtl};
use alloc::vec;
use alloc::vec::Vec;

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Full,
    Free,
    Open,
    Owed,
    Bad,
    /// Data or log block of the hybrid mapping.
    Hybrid,
}

impl Flash {
    /// Checks the invariants.
    ///
    /// # Panics
    /// One does not hold; the message says which.
    pub fn check(&self) {
        self.ftl.check();
        self.silicon.check();
        if let Some(memory) = &self.memory {
            memory.check();
        }
        if let Some(buffer) = &self.buffer {
            buffer.check(&self.ftl.map);
        }
    }
}

impl PageFtl {
    fn check(&self) {
        self.check_maps();
        self.check_blocks();
        self.check_room();
        self.check_placement();
        if let Some(cache) = &self.cache {
            cache.check();
        }
    }

    /// Each unit's place names it, is written, and is counted once.
    fn check_maps(&self) {
        let map = &self.map;
        let mut valid = vec![0; self.shape().blocks() as usize];
        for lpn in 0..map.logical() {
            let unit = map.unit(lpn);
            if unit == NONE {
                continue;
            }
            assert!(unit < self.shape().units(), "unit {unit} of {lpn} does not exist");
            assert_eq!(map.p2l[unit as usize], lpn, "p2l of unit {unit}");
            let (block, offset) = self.shape().block_of(crate::Unit(unit));
            assert!(offset < u32::from(map.written[block as usize]), "unit {unit} of {lpn} is not written");
            valid[block as usize] += 1;
        }
        for (block, valid) in valid.into_iter().enumerate() {
            assert_eq!(map.valid_of(block as u32), valid, "valid units of block {block}");
        }
    }

    fn uses(&self) -> Vec<Use> {
        let mut uses = vec![Use::Full; self.shape().blocks() as usize];
        let mut claim = |block: u32, what: Use| {
            let was = core::mem::replace(&mut uses[block as usize], what);
            assert_eq!(was, Use::Full, "block {block} is both {was:?} and {what:?}");
        };
        for plane in 0..self.shape().planes() {
            for &block in self.free.of(plane).iter().chain(self.slc_free.of(plane)) {
                assert_eq!(self.shape().plane_of_block(block).0, plane, "block {block} is free in plane {plane}");
                claim(block, Use::Free);
            }
        }
        self.points.iter().filter(|p| p.block != NONE).for_each(|p| claim(p.block, Use::Open));
        self.debts.iter().filter(|d| d.block != NONE).for_each(|d| claim(d.block, Use::Owed));
        (0u32..).zip(&self.bad).filter(|(_, bad)| **bad).for_each(|(b, _)| claim(b, Use::Bad));
        self.hybrid.iter().flat_map(|h| h.blocks()).for_each(|b| claim(b, Use::Hybrid));
        uses
    }

    /// Each block has one use, and shows it.
    fn check_blocks(&self) {
        let map = &self.map;
        for (block, used) in self.uses().into_iter().enumerate() {
            let held = map.valid[block] & HELD != 0;
            assert_eq!(held, used != Use::Full, "block {block} is {used:?}");
            let written = u32::from(map.written[block]);
            match used {
                Use::Free => assert_eq!((map.valid_of(block as u32), written), (0, 0), "free block {block}"),
                Use::Owed | Use::Bad => assert_eq!(map.valid_of(block as u32), 0, "{used:?} block {block}"),
                Use::Full => {
                    let units = if self.is_slc(block as u32) { self.slc_units } else { self.shape().units_per_block() };
                    assert_eq!(written, units, "full block {block}");
                }
                Use::Open | Use::Hybrid => {}
            }
        }
        for point in self.points.iter().filter(|p| p.block != NONE) {
            let first = point.block * self.shape().units_per_block();
            assert_eq!(point.next - first, u32::from(map.written[point.block as usize]), "open block {}", point.block);
            assert!(point.next < point.end, "block {} is full but open", point.block);
        }
    }

    /// Collection can always go on.
    fn check_room(&self) {
        for plane in 0..self.shape().planes() {
            let good = self.ordinary(plane).filter(|b| !self.bad[*b]).count();
            assert_eq!(self.usable[plane as usize], good as u32, "usable blocks of plane {plane}");
            let owed = u32::from(self.debts[plane as usize].block != NONE);
            assert!(self.free.count(plane) + owed > 0, "plane {plane} has no free block");
        }
    }
}
