//! Writes: to the next plane in turn, to a write point of their kind.

use super::encoding::NONE;
use super::page::PageFtl;
use super::write_point::WritePoint;
use crate::array::Array;
use crate::config::GcMode;
use crate::geometry::{PageAddress, UNIT, Unit};
use crate::lun::Promise;
use crate::scheduler::When;
use weir_units::Nanos;

impl PageFtl {
    /// Writes these units to pages of their own kind; when the last is programmed. `None` where there is no room left,
    /// which the configuration's check rules out.
    #[inline]
    pub(crate) fn write(&mut self, from: When, silicon: &mut Array, kind: u32, lpns: &[u32]) -> Option<When> {
        if self.unusual {
            return self.write_hybrid(from, silicon, lpns).or_else(|| self.write_dies(from, silicon, kind, lpns));
        }
        let (mut done, now) = (from, silicon.present_of(from));
        for page in lpns.chunks(self.map.shape.units_per_page() as usize) {
            let (plane, at) = self.next_point(now, silicon, kind, page[0])?;
            let place = self.place_page(plane, at, page);
            let end = self.program(from, silicon, kind, place, page.len() as u32);
            self.flights.land(page.len(), end);
            done = silicon.later_of(done, end);
        }
        Some(done)
    }

    /// The same with all planes of a die at once, where their write points stand at the same page.
    fn write_dies(&mut self, from: When, silicon: &mut Array, kind: u32, lpns: &[u32]) -> Option<When> {
        let page_units = self.map.shape.units_per_page();
        let planes = self.map.shape.planes_per_die();
        let (mut done, now) = (from, silicon.present_of(from));
        let mut rest = lpns;
        while !rest.is_empty() {
            let (first, _) = self.next_point(now, silicon, kind, rest[0])?;
            let mut die: [Option<PageAddress>; 8] = [None; 8];
            let mut used = 0;
            let before = rest.len();
            let end = (first / planes + 1) * planes;
            for plane in (first..end).take(die.len()) {
                let at = self.point_index(plane, kind);
                if self.mode == GcMode::Preemptive && plane > first && !rest.is_empty() {
                    self.pace(now, silicon, plane);
                }
                if rest.is_empty() || (self.points[at].is_empty() && !self.open(now, silicon, plane, kind)) {
                    break;
                }
                let (page, more) = rest.split_at(rest.len().min(page_units as usize));
                die[used] = Some(self.place_page(plane, at, page));
                used += 1;
                rest = more;
            }
            let end = self.program_die(from, silicon, &die[..used], before - rest.len());
            self.flights.land(before - rest.len(), end);
            done = silicon.later_of(done, end);
        }
        Some(done)
    }

    fn program_die(&mut self, from: When, silicon: &mut Array, die: &[Option<PageAddress>], units: usize) -> When {
        let page_units = self.map.shape.units_per_page();
        self.stats.page_programs += die.len() as u64;
        self.stats.padding += die.len() as u64 * u64::from(page_units) - units as u64;
        let places = || die.iter().flatten();
        let Some(first) = places().next() else { return from };
        let together = places().all(|p| p.page == first.page) && units as u32 % die.len() as u32 == 0;
        if together && die.len() > 1 {
            let bytes = units as u32 / die.len() as u32 * UNIT;
            self.programmed = first.plane;
            return silicon.program_planes_at(from, *first, die.len() as u32, bytes, self.promise);
        }
        let bytes = (units as u32).min(page_units) * UNIT;
        self.programmed = first.plane;
        places().fold(from, |done, p| {
            let end = silicon.program_at(from, *p, bytes, Promise::Told);
            silicon.later_of(done, end)
        })
    }

    #[inline]
    fn program(&mut self, from: When, silicon: &mut Array, kind: u32, place: PageAddress, units: u32) -> When {
        if kind == self.kinds.map {
            self.stats.map_programs += 1;
            return silicon.program_at(from, place, units * UNIT, Promise::Told);
        }
        self.stats.page_programs += 1;
        self.stats.padding += u64::from(self.map.shape.units_per_page() - units);
        self.programmed = place.plane;
        silicon.program_at(from, place, units * UNIT, self.promise)
    }

    /// Binds the units of one page to the point's next one.
    #[inline]
    fn place_page(&mut self, plane: u32, at: usize, page: &[u32]) -> PageAddress {
        let WritePoint { next, block, .. } = self.points[at];
        self.map.note_block(block);
        for (unit, &lpn) in (next..).zip(page) {
            let old = self.map.bind(lpn, unit);
            self.flights.take_off(lpn, unit, old, self.map.clock);
            if self.streams.are_kept() && old != NONE {
                self.streams.died(self.map.shape.block_of(Unit(old)).0);
            }
        }
        self.fill_page(at, page.len() as u32);
        self.map.done();
        let shape = &self.map.shape;
        let page = shape.page_of(next - block * shape.units_per_block());
        let place = PageAddress { plane, block: block - shape.block_index(plane, 0), page };
        if self.slc_blocks == 0 { place } else { self.spread(place) }
    }

    /// The plane whose turn it is for a page that begins with `lpn`, and its write point, with room for a page.
    #[inline]
    fn next_point(&mut self, now: Nanos, silicon: &mut Array, kind: u32, lpn: u32) -> Option<(u32, usize)> {
        let plane = match &mut self.striping {
            None => self.route.next(),
            Some(striping) => striping.next(lpn),
        };
        if self.mode == GcMode::Preemptive {
            self.settle(now, silicon, plane);
            self.pace(now, silicon, plane);
        }
        if self.slc_blocks > 0 && kind < self.kinds.gc {
            if let Some(at) = self.slc_point(now, silicon, plane) {
                return Some((plane, at));
            }
        }
        let at = self.point_index(plane, kind);
        if !self.points[at].is_empty() {
            return Some((plane, at));
        }
        if self.striping.is_some() {
            return self.find_striped_point(now, silicon, plane, kind, lpn);
        }
        self.find_point(now, silicon, plane, kind)
    }

    /// The same where the plane has no open block of that kind: it, or the first after it that has room.
    #[cold]
    fn find_point(&mut self, now: Nanos, silicon: &mut Array, plane: u32, kind: u32) -> Option<(u32, usize)> {
        let (own, planes) = (self.route.planes(), self.map.shape.planes());
        let first = plane;
        for look_again in [false, true] {
            // The route's own planes before all others.
            for plane in (first..own.end).chain(own.start..first).chain(own.end..planes).chain(0..own.start) {
                let found = self.try_plane(now, silicon, plane, kind, look_again);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// The same where the address says the planes. Others take the page only where blocks have failed, or where the drive was written with
    /// other settings.
    #[cold]
    fn find_striped_point(
        &mut self,
        now: Nanos,
        silicon: &mut Array,
        plane: u32,
        kind: u32,
        lpn: u32,
    ) -> Option<(u32, usize)> {
        for look_again in [false, true] {
            let (mut candidate, mut tried) = (Some(plane), 0);
            while let Some(plane) = candidate {
                let found = self.try_plane(now, silicon, plane, kind, look_again);
                if found.is_some() {
                    return found;
                }
                candidate = self.striping.as_ref().and_then(|striping| striping.candidate(lpn, tried));
                tried += 1;
            }
        }
        None
    }

    /// The plane's write point of that kind if it has room or can be given some; a plane that was full is not asked again so soon, unless
    /// `look_again`.
    fn try_plane(
        &mut self,
        now: Nanos,
        silicon: &mut Array,
        plane: u32,
        kind: u32,
        look_again: bool,
    ) -> Option<(u32, usize)> {
        let at = self.point_index(plane, kind);
        let known = !look_again && self.full_until[plane as usize] > self.map.clock;
        (!self.points[at].is_empty() || (!known && self.open(now, silicon, plane, kind))).then_some((plane, at))
    }

    /// Opens a block for the host's or the map's data, with collection before where free blocks are few. False where the
    /// plane holds all that it can.
    fn open(&mut self, now: Nanos, silicon: &mut Array, plane: u32, kind: u32) -> bool {
        let collects = self.free.count(plane) <= self.start;
        if !self.make_room(now, silicon, plane) {
            // Until some blocks' worth has been written elsewhere nothing changes here.
            self.full_until[plane as usize] = self.map.clock + u64::from(self.map.shape.pages_per_block());
            return false;
        }
        self.open_free(plane, kind);
        if collects {
            self.begin_at_phase(plane, kind);
        }
        true
    }
}
