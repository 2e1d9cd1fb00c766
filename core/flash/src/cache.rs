//! The controller's memory as a data cache: what an access to it takes, and what stays in it.
//!
//! As MQSim has it (ssd/Data_Cache_Manager_Flash_Advanced.cpp). One memory serves one access after the other. A write is complete when its
//! access is over. What is written for the first time in a while leaves for the flash at the same time; what is written again stays until
//! the least recently used make room. Reads of what is there take an access; with [`Cache::Read`] what was read stays as well.

use crate::calendar::Calendar;
use crate::flash::Flash;
use crate::geometry::UNIT;
use crate::name::names;
use crate::scheduler::{Signal, When};
use crate::wire::Wire;
use alloc::collections::{BTreeMap, BTreeSet};
use weir_units::Nanos;

/// What stays in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cache {
    /// Nothing: what was written leaves by the flush policy.
    None,
    /// What is written again.
    Write,
    /// What was read; writes go to the flash at once.
    Read,
    /// Both.
    Both,
}

names!(Cache, "cache", None = "none", Write = "write", Read = "read", Both = "write-read");

impl Cache {
    pub(crate) const fn writes(self) -> bool {
        matches!(self, Cache::Write | Cache::Both)
    }

    pub(crate) const fn reads(self) -> bool {
        matches!(self, Cache::Read | Cache::Both)
    }
}

/// What an access to the controller's memory takes; one follows the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dram {
    /// Once for the data of a command.
    pub access: Nanos,
    /// Its bytes.
    pub wire: Wire,
}

impl Dram {
    /// Takes no time.
    pub const INSTANT: Dram = Dram { access: Nanos(0), wire: Wire::INSTANT };
}

/// The least recently used of something first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lru {
    /// By when it was used last, in uses.
    order: BTreeMap<u64, u32>,
    uses: BTreeMap<u32, u64>,
    clock: u64,
}

impl Lru {
    pub(crate) fn len(&self) -> u32 {
        self.uses.len() as u32
    }

    pub(crate) fn has(&self, what: u32) -> bool {
        self.uses.contains_key(&what)
    }

    /// It is used, for the first time or again.
    pub(crate) fn touch(&mut self, what: u32) {
        self.remove(what);
        self.clock += 1;
        self.order.insert(self.clock, what);
        self.uses.insert(what, self.clock);
    }

    pub(crate) fn remove(&mut self, what: u32) -> bool {
        let Some(used) = self.uses.remove(&what) else { return false };
        self.order.remove(&used);
        true
    }

    pub(crate) fn pop(&mut self) -> Option<u32> {
        let (_, what) = self.order.pop_first()?;
        self.uses.remove(&what);
        Some(what)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.order.values().copied()
    }
}

/// Units of the write buffer that stay in it because they were written again.
#[derive(Clone, Debug)]
pub(crate) struct RewrittenUnits {
    /// Their slots.
    pub(crate) slots: Lru,
    /// Units that may be on their way into the flash.
    pub(crate) pending: u32,
    /// Units written since they were forgotten last.
    seen: BTreeSet<u32>,
    window: u64,
    forget: u64,
}

impl RewrittenUnits {
    pub(crate) fn new(window: Nanos, pending: u32) -> RewrittenUnits {
        RewrittenUnits { slots: Lru::default(), pending, seen: BTreeSet::new(), window: window.0, forget: 0 }
    }

    /// The same with nothing in it.
    pub(crate) fn emptied(&self) -> RewrittenUnits {
        RewrittenUnits::new(Nanos(self.window), self.pending)
    }

    /// A unit is written; whether it was before, since all were forgotten.
    pub(crate) fn again(&mut self, now: Nanos, lpn: u32) -> bool {
        let again = !self.seen.insert(lpn);
        if now.0 > self.forget {
            self.seen.clear();
            self.forget = now.0.saturating_add(self.window);
        }
        again
    }
}

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
    pub(crate) fn new(config: &crate::BufferConfig) -> Option<CacheMemory> {
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
    fn has(&mut self, at: Nanos, lpn: u32) -> bool {
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
    fn put(&mut self, ready: Nanos, lpn: u32, held: u32) {
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

impl Flash {
    /// Reads units of which the memory may have some.
    #[cold]
    pub(crate) fn read_cached(&mut self, from: When, lpn: u32, end: u32) -> When {
        let at = self.silicon.present_of(from);
        let (mut done, mut hits, mut next) = (from, 0, lpn);
        while next < end {
            let (first, hit) = (next, self.is_in_memory(at, next));
            while next < end && (next == first || self.is_in_memory(at, next) == hit) {
                next += 1;
            }
            if hit {
                hits += next - first;
                continue;
            }
            let read = self.read(from, first, next, true);
            self.keep_read(read, first, next - first);
            done = self.silicon.later_of(done, read);
        }
        let Some(memory) = self.memory.as_mut().filter(|_| hits > 0) else { return done };
        let out = memory.access(at, hits * UNIT, true).saturating_add(self.config.buffer.latency);
        self.ftl.stats.host_reads += u64::from(hits);
        self.ftl.stats.buffer_read_hits += u64::from(hits);
        let delivered = When::at(self.host.deliver(out, hits * UNIT));
        self.silicon.later_of(done, delivered)
    }

    fn is_in_memory(&mut self, at: Nanos, lpn: u32) -> bool {
        if let (Some(slot), Some(buffer)) = (self.ftl.map.slot(lpn), &mut self.buffer) {
            buffer.touch(slot);
            return true;
        }
        self.memory.as_mut().is_some_and(|memory| memory.has(at, lpn))
    }

    /// What was read stays, from when it is there.
    fn keep_read(&mut self, read: When, lpn: u32, units: u32) {
        if !self.config.buffer.cache.reads() {
            return;
        }
        match read.known() {
            Some(at) => self.put_read(at, lpn, units),
            None => self.silicon.signal(read, Signal::Kept { lpn, units }),
        }
    }

    /// Units that were read are in the memory at `at`; to put them in takes an access, for which nobody waits.
    pub(crate) fn put_read(&mut self, at: Nanos, lpn: u32, units: u32) {
        let held = self.buffer.as_ref().map_or(0, |buffer| buffer.dirty());
        let Some(memory) = &mut self.memory else { return };
        memory.access(at, units * UNIT, true);
        for lpn in lpn..lpn + units {
            if self.ftl.map.slot(lpn).is_none() {
                memory.put(at, lpn, held);
            }
        }
    }

    /// A unit that is in the buffer at `at`: when its data is. `begins`: it is a command's first.
    #[inline]
    pub(crate) fn inside(&mut self, at: Nanos, begins: bool) -> Nanos {
        let latency = self.config.buffer.latency;
        match &mut self.memory {
            None => at.saturating_add(latency),
            Some(memory) => memory.access(at, UNIT, begins).saturating_add(latency),
        }
    }
}
