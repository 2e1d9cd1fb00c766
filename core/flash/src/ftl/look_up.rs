//! Look-ups in a map that lies in flash.

use super::cached::Touch;
use super::encoding::NONE;
use super::page::PageFtl;
use crate::array::Array;
use crate::scheduler::When;

impl PageFtl {
    /// Brings the map's entry for `lpn` into memory; when it is there. `change` marks it dirty.
    #[inline]
    pub(crate) fn look_up(&mut self, from: When, silicon: &mut Array, lpn: u32, change: bool) -> When {
        if self.cache.is_none() { from } else { self.look_up_cached(from, silicon, lpn, change) }
    }

    fn look_up_cached(&mut self, from: When, silicon: &mut Array, lpn: u32, change: bool) -> When {
        let Some(cache) = &mut self.cache else { return from };
        let (first, units) = (cache.first, cache.page_units);
        let Touch::Miss { page, evicted } = cache.touch(lpn, change) else {
            self.stats.map_hits += 1;
            return from;
        };
        self.stats.map_misses += 1;
        let mut ready = from;
        if let Some(page) = evicted {
            let start = first + page * units;
            let mut lpns = [0; 64];
            let lpns = &mut lpns[..units.min(64) as usize];
            lpns.iter_mut().zip(start..).for_each(|(l, lpn)| *l = lpn);
            ready = self.write(ready, silicon, self.kinds.map, lpns).unwrap_or(ready);
        }
        // A map page that was never written has nothing to read: its entries are known to be empty.
        let unit = self.map.unit(first + page * units);
        if unit != NONE {
            self.stats.map_reads += 1;
            let place = self.place(unit);
            ready = silicon.read_at(ready, place, self.map.shape.page_bytes());
        }
        ready
    }
}
