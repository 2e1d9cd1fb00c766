//! The controller's memory as a data cache: what an access to it takes, and what stays in it.
//!
//! As MQSim has it (ssd/Data_Cache_Manager_Flash_Advanced.cpp). One memory serves one access after the other. A write is complete when its
//! access is over. What is written for the first time in a while leaves for the flash at the same time; what is written again stays until
//! the least recently used make room. Reads of what is there take an access; with [`Cache::Read`] what was read stays as well.

use crate::calendar::Calendar;
use crate::config::{BufferConfig, Cache, Dram};
use crate::geometry::UNIT;
use crate::lru::Lru;
use alloc::collections::BTreeMap;
use weir_units::Nanos;

/// The memory as a server, and the units in it that were read.
#[derive(Clone, Debug)]
pub(crate) struct CacheMemory {
    dram: Dram,
    bus: Calendar,
    pub(crate) now: Nanos,
    /// Units that it has, written ones included.
    units: u32,
    clean: Lru,
    /// When the data of units that are being read is in it, where that is known in advance.
    arriving: BTreeMap<u32, Nanos>,
}

impl CacheMemory {
    /// Of a configuration; `None` where nothing stays in the buffer and accesses take no time.
    pub(crate) fn new(config: &BufferConfig) -> Option<CacheMemory> {
        let instant = config.dram.access.0 == 0 && config.dram.wire.is_instant();
        (config.cache != Cache::None || !instant).then(|| CacheMemory {
            dram: config.dram,
            bus: Calendar::new(4 * Calendar::INTERVALS, Nanos(0)),
            now: Nanos(0),
            units: (config.size.0 / u64::from(UNIT)) as u32,
            clean: Lru::default(),
            arriving: BTreeMap::new(),
        })
    }

    /// Moves `bytes` in or out from `at` on, when it is their turn; when that is over. `begins`: they are a command's first.
    pub(crate) fn access(&mut self, at: Nanos, bytes: u32, begins: bool) -> Nanos {
        let access = if begins { self.dram.access.0 } else { 0 };
        let length = Nanos(access + self.dram.wire.time(bytes).0);
        self.bus.book(self.now, at, length).saturating_add(length)
    }

    /// Whether it has a unit that was read; used if so.
    #[inline]
    pub(crate) fn has(&mut self, at: Nanos, lpn: u32) -> bool {
        if !self.clean.has(lpn) || self.arriving.get(&lpn).is_some_and(|ready| *ready > at) {
            return false;
        }
        self.arriving.remove(&lpn);
        self.clean.touch(lpn);
        true
    }

    /// Units are written or have no contents any more.
    pub(crate) fn forget(&mut self, lpn: u32, end: u32) {
        if self.clean.len() > 0 {
            for lpn in lpn..end {
                self.drop_clean(lpn);
            }
        }
    }

    fn drop_clean(&mut self, lpn: u32) {
        if self.clean.remove(lpn) {
            self.arriving.remove(&lpn);
        }
    }

    /// A unit that was read is put in at `ready`, beside `held` units that were written.
    pub(crate) fn put(&mut self, ready: Nanos, lpn: u32, held: u32) {
        while self.clean.len() + held >= self.units {
            let Some(oldest) = self.clean.pop() else { return };
            self.arriving.remove(&oldest);
        }
        self.clean.touch(lpn);
        if ready > self.now {
            self.arriving.insert(lpn, ready);
        }
    }

    /// States the invariants.
    pub(crate) fn check(&self) {
        assert!(self.clean.len() <= self.units, "more units than fit");
        assert!(self.arriving.keys().all(|lpn| self.clean.has(*lpn)), "a unit arrives that is not kept");
        self.bus.check();
    }
}
