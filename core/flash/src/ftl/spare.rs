//! The map anew from what the spare areas know.
//!
//! The spare area of a page holds the logical number of each of its units and the page's sequence number. The newest copy
//! of a unit is the one with the largest sequence number, unless a trim came after it: trims go to a log that survives.
//! A block remembers when it was erased, so that pages that were programmed before are not taken for what it holds.

use super::encoding::{HELD, NONE};
use super::map::Map;
use crate::geometry::Unit;
use crate::image::SEQUENCE_MAX;
use alloc::vec::Vec;

impl Map {
    /// Whether a programmed unit still holds `lpn`.
    pub(super) fn holds(&self, unit: u32, lpn: u32) -> bool {
        let (block, offset) = self.shape.block_of(Unit(unit));
        self.p2l[unit as usize] == lpn && offset < u32::from(self.written[block as usize])
    }

    /// What was programmed of a block since its erase, as the pages' sequence numbers tell, and the newest of them.
    pub(super) fn programmed(&self, block: u32) -> (u32, u64) {
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
    pub(super) fn rebuild(&mut self) -> u64 {
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
