//! Reads: what lies in one page is read at once, and each page crosses the link when it is off the flash.

use crate::config::{GcMode, UnmappedRead};
use crate::flash::Flash;
use crate::ftl::{NONE, TAG};
use crate::geometry::{PageAddress, UNIT, Unit};
use crate::scheduler::When;
use weir_units::Nanos;

impl Flash {
    /// A write is about to change a part of the unit: when the rest of it is at hand. `now` where the buffer has it, or
    /// nobody.
    pub fn modify(&mut self, now: Nanos, lpn: u32) -> When {
        if lpn < self.logical && self.ftl.map.l2p[lpn as usize] & TAG == 0 {
            self.read(When::at(now), lpn, lpn + 1, false)
        } else {
            When::at(now)
        }
    }

    /// Reads the units; `to_host`, each page crosses the link as soon as it is off the flash.
    #[inline]
    pub(crate) fn read(&mut self, from: When, lpn: u32, end: u32, to_host: bool) -> When {
        self.ftl.stats.host_reads += u64::from(end - lpn);
        let step = self.ftl.step();
        if step == 1 {
            return self.read_stepped(from, (lpn, end), 1, to_host);
        }
        // What lies in one page is read at once.
        (lpn..end.min(lpn + step)).fold(from, |done, lpn| {
            let read = self.read_stepped(from, (lpn, end), step, to_host);
            self.silicon.later_of(done, read)
        })
    }

    /// The same of every `step`th unit.
    #[inline]
    fn read_stepped(&mut self, from: When, (lpn, end): (u32, u32), step: u32, to_host: bool) -> When {
        let mut done = from;
        let mut run = Run { page: NONE, unit: NONE, units: 0, at: from };
        let mut next = lpn;
        while next < end {
            let lpn = next;
            next += step;
            let at = self.ftl.look_up(from, &mut self.silicon, lpn, false);
            let mut word = self.ftl.map.l2p[lpn as usize];
            let mut page = self.ftl.map.shape.page_of(word);
            if word & TAG != 0 {
                let Some(unit) = self.home_page(lpn, word) else {
                    let ready = self.read_elsewhere(at, lpn, word);
                    let handed = self.hand_over(ready, 1, to_host);
                    done = self.silicon.later_of(done, handed);
                    continue;
                };
                // A page like any other, but no unit with contents is in it.
                (word, page) = (unit, TAG | self.ftl.map.shape.page_of(unit));
            }
            if page == run.page {
                run.units += 1;
                run.at = self.silicon.later_of(run.at, at);
                continue;
            }
            let read = self.read_run(run, to_host);
            done = self.silicon.later_of(done, read);
            run = Run { page, unit: word, units: 1, at };
        }
        let read = self.read_run(run, to_host);
        self.silicon.later_of(done, read)
    }

    #[inline]
    fn read_run(&mut self, run: Run, to_host: bool) -> When {
        if run.units == 0 {
            return run.at;
        }
        let place = match run.page & TAG {
            0 => self.ftl.place(run.unit),
            _ => self.ftl.map.shape.place(Unit(run.unit)),
        };
        let ready = self.read_page(run.at, place, run.units);
        self.hand_over(ready, run.units, to_host)
    }

    /// Units that are in the drive at `ready`: when who asked has them.
    #[inline]
    fn hand_over(&mut self, ready: When, units: u32, to_host: bool) -> When {
        if !to_host {
            return ready;
        }
        match ready.known() {
            Some(ready) => When::at(self.deliver(ready, units * UNIT)),
            None => self.deliver_later(ready, units * UNIT),
        }
    }

    /// Bytes that are in the drive at `ready` cross the link: when who asked has them.
    #[inline]
    pub(crate) fn deliver(&mut self, ready: Nanos, bytes: u32) -> Nanos {
        if bytes <= self.burst {
            return self.host.deliver(ready, bytes);
        }
        if !self.silicon.pieces().is_empty() {
            return self.host.deliver_each(self.silicon.pieces(), bytes, self.burst);
        }
        let apart = self.silicon.transfer_time(self.burst);
        self.host.deliver_pieces(ready, bytes, self.burst, apart)
    }

    #[inline]
    fn read_page(&mut self, from: When, place: PageAddress, units: u32) -> When {
        if self.ftl.mode == GcMode::Preemptive {
            let now = self.silicon.present_of(from);
            self.ftl.settle(now, &mut self.silicon, place.plane);
        }
        self.ftl.stats.page_reads += 1;
        self.silicon.read_at(from, place, units * UNIT)
    }

    /// Where addresses say the planes: the first unit of the page that a unit without contents is read from.
    #[cold]
    fn home_page(&mut self, lpn: u32, word: u32) -> Option<u32> {
        let free = self.config.ftl.unmapped_read == UnmappedRead::Free;
        let striping = self.ftl.striping.as_ref().filter(|_| word == NONE && !free)?;
        self.ftl.stats.unmapped_reads += 1;
        let shape = &self.ftl.map.shape;
        let (plane, page) = striping.home(lpn, shape.pages_per_block());
        Some(shape.unit(PageAddress { plane, block: self.config.ftl.slc.blocks, page }, 0).0)
    }

    /// A read of what is not in flash.
    #[cold]
    fn read_elsewhere(&mut self, from: When, lpn: u32, word: u32) -> When {
        if word != NONE {
            self.ftl.stats.buffer_read_hits += 1;
            return self.silicon.delayed(from, self.config.buffer.latency);
        }
        if self.is_in_place() {
            return self.read_page(from, self.home(lpn), 1);
        }
        self.ftl.stats.unmapped_reads += 1;
        if self.config.ftl.unmapped_read == UnmappedRead::Free {
            return from;
        }
        // Nothing is there to say where: spread over the planes as data would be.
        let (planes, pages) = (self.shape().planes(), self.shape().pages_per_block());
        // Where operations on the same page may be joined, not all are on the first.
        let page = if self.silicon.is_scheduled() { lpn / planes % pages } else { 0 };
        self.read_page(from, PageAddress { plane: lpn % planes, block: 0, page }, 1)
    }

    /// Where a unit lies when nothing maps it.
    pub(crate) fn home(&self, lpn: u32) -> PageAddress {
        let shape = self.shape();
        let (row, plane) = (lpn / shape.planes(), lpn % shape.planes());
        let (block, offset) = (row / shape.units_per_block(), row % shape.units_per_block());
        PageAddress { plane, block, page: shape.page_of(offset) }
    }
}

/// Units of one page that are read together.
#[derive(Clone, Copy, Debug)]
struct Run {
    page: u32,
    unit: u32,
    units: u32,
    at: When,
}
