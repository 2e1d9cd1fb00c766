//! Pseudo-SLC: the first blocks of each plane take the host's data on their fast pages only; later it is folded into
//! ordinary blocks.
//!
//! In such a block only the pages of the lowest level are used, as the page map names them; they program and read in
//! the times of that level. Folding moves what is still valid to the collection point and erases the block.

use super::encoding::HELD;
use super::page::PageFtl;
use super::write_point::WritePoint;
use crate::array::Array;
use crate::config::GcMode;
use crate::geometry::{PageAddress, Unit};
use weir_units::Nanos;

impl PageFtl {
    /// Where a unit lies. Pages of pseudo-SLC blocks are counted without gaps; the silicon's are not.
    #[inline]
    pub(crate) fn place(&self, unit: u32) -> PageAddress {
        let place = self.map.shape.place(Unit(unit));
        if self.slc_blocks == 0 { place } else { self.spread(place) }
    }

    /// The place on the silicon of a page that is counted without gaps.
    pub(crate) fn spread(&self, place: PageAddress) -> PageAddress {
        if place.block >= self.slc_blocks {
            return place;
        }
        PageAddress { page: u32::from(self.slc_pages[place.page as usize]), ..place }
    }

    /// The plane's pseudo-SLC write point, if it has room or can be given some.
    pub(crate) fn slc_point(&mut self, now: Nanos, silicon: &mut Array, plane: u32) -> Option<usize> {
        let at = self.point_index(plane, self.kinds.slc);
        if self.slc_idle {
            self.fold_idle(now, silicon, plane);
        }
        if !self.points[at].is_empty() {
            return Some(at);
        }
        if self.slc_free.count(plane) == 0 && (self.slc_idle || !self.fold(now, silicon, plane)) {
            return None;
        }
        let last = self.slc_free.count(plane).checked_sub(1)?;
        let block = self.slc_free.take(plane, last as usize);
        self.map.begin(block, self.kinds.slc);
        let first = block * self.map.shape.units_per_block();
        self.points[at] = WritePoint { next: first, end: first + self.slc_units, block };
        Some(at)
    }

    /// Folds while the plane has been idle for longer than that takes.
    fn fold_idle(&mut self, now: Nanos, silicon: &mut Array, plane: u32) {
        loop {
            let at = silicon.plane_free_at(plane);
            let Some(block) = self.slc_oldest(plane) else { return };
            let units = u64::from(self.map.valid_of(block));
            let pages = units.div_ceil(u64::from(self.map.shape.units_per_page()));
            let takes = Nanos(pages * (self.times.read.0 + self.times.program.0));
            if at.saturating_add(takes) >= now || !self.fold(at, silicon, plane) {
                return;
            }
        }
    }

    /// The full pseudo-SLC block that was written longest ago.
    fn slc_oldest(&self, plane: u32) -> Option<u32> {
        let first = self.shape().block_index(plane, 0);
        let full = (first..first + self.slc_blocks).filter(|b| self.map.valid[*b as usize] & HELD == 0);
        full.min_by_key(|b| self.map.stamp[*b as usize])
    }

    /// Moves the oldest full pseudo-SLC block into ordinary ones. False where there is none, or no room for it.
    fn fold(&mut self, now: Nanos, silicon: &mut Array, plane: u32) -> bool {
        if !self.make_room(now, silicon, plane) {
            return false;
        }
        // Preemptive collection may have left a single free block, which a fold may take only when none is owed.
        if self.mode == GcMode::Preemptive && self.free.count(plane) <= self.hard {
            return false;
        }
        let Some(block) = self.slc_oldest(plane) else { return false };
        let work = self.evacuate(plane, block);
        self.stats.folds += u64::from(work.units);
        self.book(now, silicon, plane, work, Some(block));
        self.erase(plane, block);
        true
    }
}
