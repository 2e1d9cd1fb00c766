//! Reads of a drive whose memory keeps what was written or read.

use crate::flash::Flash;
use crate::geometry::UNIT;
use crate::scheduler::{Signal, When};
use weir_units::Nanos;

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
