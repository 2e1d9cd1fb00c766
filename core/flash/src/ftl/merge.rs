//! Writes of the hybrid mapping, and the merges that they lead to; see [`Hybrid`](super::hybrid::Hybrid).

use super::debt::Work;
use super::encoding::NONE;
use super::hybrid::Log;
use super::page::PageFtl;
use crate::array::Array;
use crate::config::Association;
use crate::geometry::{PageAddress, UNIT, Unit};
use crate::lun::Promise;
use crate::scheduler::When;
use weir_units::Nanos;

impl PageFtl {
    /// Writes these units where the hybrid mapping wants them; when the last is programmed. `None`: not this mapping.
    pub(crate) fn write_hybrid(&mut self, from: When, silicon: &mut Array, lpns: &[u32]) -> Option<When> {
        self.hybrid.as_ref()?;
        let page_units = self.map.shape.units_per_page();
        let mut done = from;
        let mut rest = lpns;
        while let Some(&first) = rest.first() {
            // Consecutive units of one logical page.
            let left = (page_units - first % page_units) as usize;
            let run = (1..left.min(rest.len())).find(|i| rest[*i] != first + *i as u32).unwrap_or(left.min(rest.len()));
            let (page, more) = rest.split_at(run);
            rest = more;
            let end = self.write_page_hybrid(from, silicon, page);
            done = silicon.later_of(done, end);
        }
        Some(done)
    }

    fn write_page_hybrid(&mut self, from: When, silicon: &mut Array, page: &[u32]) -> When {
        let (logical, offset) = self.map.shape.block_of(Unit(page[0]));
        let block = self.data_block(logical);
        let written = u32::from(self.map.written[block as usize]);
        let begins_page = offset % self.map.shape.units_per_page() == 0;
        if begins_page && offset >= written {
            return self.program_at(from, silicon, block, offset, page);
        }
        let block = self.log_block(silicon.present_of(from), silicon, logical);
        let offset = u32::from(self.map.written[block as usize]);
        self.program_at(from, silicon, block, offset, page)
    }

    /// Programs the units into one page of a block; pages before it that were left out stay empty.
    fn program_at(&mut self, from: When, silicon: &mut Array, block: u32, offset: u32, page: &[u32]) -> When {
        let shape = self.map.shape;
        let first = block * shape.units_per_block();
        let end = offset + shape.units_per_page();
        self.leave_empty(block, offset);
        for (unit, &lpn) in (first + offset..).zip(page) {
            self.map.bind(lpn, unit);
        }
        self.map.valid[block as usize] += page.len() as u16;
        self.map.written[block as usize] = (offset + page.len() as u32) as u16;
        self.leave_empty(block, end);
        self.map.stamp_pages(first + offset, 1);
        self.stats.page_programs += 1;
        self.stats.padding += u64::from(shape.units_per_page()) - page.len() as u64;
        let (plane, within) = shape.plane_of_block(block);
        let place = PageAddress { plane, block: within, page: shape.page_of(offset) };
        silicon.program_at(from, place, page.len() as u32 * UNIT, Promise::Told)
    }

    /// Units of the block up to `offset` that were not written will not be.
    fn leave_empty(&mut self, block: u32, offset: u32) {
        let none = self.map.logical();
        let first = block * self.map.shape.units_per_block();
        let written = u32::from(self.map.written[block as usize]);
        self.map.p2l[(first + written) as usize..(first + offset.max(written)) as usize].fill(none);
        self.map.written[block as usize] = offset.max(written) as u16;
    }

    fn plane_of_logical(&self, logical: u32) -> u32 {
        self.hybrid.as_ref().map_or(0, |h| h.by_planes.rem(logical))
    }

    fn take_free(&mut self, plane: u32, cold: bool) -> u32 {
        let list = self.free.of(plane);
        let at = self.wear.take(list, &self.map.erases, cold).min(list.len().saturating_sub(1));
        self.free.take(plane, at)
    }

    /// The data block, a new one where there is none.
    fn data_block(&mut self, logical: u32) -> u32 {
        let known = self.hybrid.as_ref().map_or(NONE, |h| h.data[logical as usize]);
        if known != NONE {
            return known;
        }
        let block = self.take_free(self.plane_of_logical(logical), false);
        self.set_data(logical, block);
        block
    }

    fn set_data(&mut self, logical: u32, block: u32) {
        if let Some(hybrid) = &mut self.hybrid {
            hybrid.data[logical as usize] = block;
        }
    }

    /// A log block with room for a page of this logical block.
    fn log_block(&mut self, now: Nanos, silicon: &mut Array, logical: u32) -> u32 {
        let plane = self.plane_of_logical(logical);
        let units = self.map.shape.units_per_block();
        loop {
            let Some(hybrid) = &self.hybrid else { return NONE };
            let logs = &hybrid.logs[plane as usize];
            let owner = if hybrid.association == Association::Block { logical } else { NONE };
            let mine = logs.iter().rposition(|l| l.owner == owner);
            let room = |i: usize| u32::from(self.map.written[logs[i].block as usize]) < units;
            match mine {
                Some(i) if room(i) => return logs[i].block,
                // Its own log is full: this one has to go. Any other block's: the oldest, when there are enough.
                Some(i) if owner != NONE => self.merge_log(now, silicon, plane, i),
                _ if logs.len() == hybrid.most => self.merge_log(now, silicon, plane, 0),
                _ => {
                    let block = self.take_free(plane, false);
                    if let Some(hybrid) = &mut self.hybrid {
                        hybrid.logs[plane as usize].push_back(Log { block, owner });
                    }
                }
            }
        }
    }

    /// Empties the plane's `i`th log block: merges every logical block that has something in it.
    fn merge_log(&mut self, now: Nanos, silicon: &mut Array, plane: u32, i: usize) {
        let Some(log) = self.hybrid.as_mut().and_then(|h| h.logs[plane as usize].remove(i)) else { return };
        if self.take_over(now, silicon, plane, log) {
            return;
        }
        let units = self.map.shape.units_per_block();
        let first = log.block * units;
        for unit in first..first + u32::from(self.map.written[log.block as usize]) {
            let lpn = self.map.p2l[unit as usize];
            if lpn != self.map.logical() && self.map.unit(lpn) == unit {
                self.merge_full(now, silicon, plane, self.map.shape.block_of(Unit(lpn)).0);
            }
        }
        self.book(now, silicon, plane, Work::default(), Some(log.block));
        self.erase(plane, log.block);
    }

    /// Switch and partial merge: the log becomes the data block, where it holds the beginning of one in order.
    fn take_over(&mut self, now: Nanos, silicon: &mut Array, plane: u32, log: Log) -> bool {
        let units = self.map.shape.units_per_block();
        let first = log.block * units;
        let written = u32::from(self.map.written[log.block as usize]);
        let logical = self.map.shape.block_of(Unit(self.map.p2l[first as usize])).0;
        let begin = logical * units;
        let in_order = (0..written).all(|i| {
            let unit = first + i;
            self.map.p2l[unit as usize] == begin + i && self.map.unit(begin + i) == unit
        });
        let home = self.hybrid.as_ref().and_then(|h| h.data.get(logical as usize).copied()).unwrap_or(NONE);
        let elsewhere = |i: u32| {
            let lpn = begin + i;
            let unit = if lpn < self.map.logical() { self.map.unit(lpn) } else { NONE };
            unit != NONE && self.map.shape.block_of(Unit(unit)).0 != home
        };
        // Another log may hold what would come behind: then it is a full merge. So is less than half a block.
        if !in_order || home == NONE || written * 2 < units || (written..units).any(elsewhere) {
            return false;
        }
        let work = self.copy_block(logical, log.block, written);
        let whole = work.units == 0;
        self.stats.switch_merges += u64::from(whole);
        self.stats.partial_merges += u64::from(!whole);
        self.replace(now, silicon, plane, logical, log.block, work);
        true
    }

    fn merge_full(&mut self, now: Nanos, silicon: &mut Array, plane: u32, logical: u32) {
        let block = self.take_free(plane, true);
        let work = self.copy_block(logical, block, 0);
        self.stats.full_merges += 1;
        self.replace(now, silicon, plane, logical, block, work);
    }

    /// Copies what the logical block has from offset `from` on to the same offsets of `block`.
    fn copy_block(&mut self, logical: u32, block: u32, from: u32) -> Work {
        let shape = self.map.shape;
        let (units, page_units) = (shape.units_per_block(), shape.units_per_page());
        let (begin, first) = (logical * units, block * units);
        let mut work = Work::default();
        let mut last = NONE;
        for offset in from..units.min(self.map.logical() - begin) {
            let lpn = begin + offset;
            let at = self.map.unit(lpn);
            if at == NONE {
                continue;
            }
            self.leave_empty(block, offset);
            self.map.invalidate(at);
            self.map.moved(&[lpn], first + offset);
            self.map.valid[block as usize] += 1;
            self.map.written[block as usize] = (offset + 1) as u16;
            work.units += 1;
            work.reads += u32::from(shape.page_of(at) != last);
            last = shape.page_of(at);
        }
        let written = u32::from(self.map.written[block as usize]).next_multiple_of(page_units);
        self.leave_empty(block, written);
        work.programs = shape.page_of(written.saturating_sub(from));
        self.map.stamp_pages(first + from, work.programs);
        self.stats.gc_reads += u64::from(work.reads);
        self.stats.gc_programs += u64::from(work.programs);
        self.stats.gc_moves += u64::from(work.units);
        work
    }

    /// `block` is the data block from now on; the old one is erased.
    fn replace(&mut self, now: Nanos, silicon: &mut Array, plane: u32, logical: u32, block: u32, work: Work) {
        let old = self.hybrid.as_ref().map_or(NONE, |h| h.data[logical as usize]);
        self.set_data(logical, block);
        self.stats.victims += 1;
        if old == NONE {
            self.book(now, silicon, plane, work, None);
            return;
        }
        self.book(now, silicon, plane, work, Some(old));
        self.erase(plane, old);
    }
}
