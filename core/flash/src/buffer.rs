//! The write buffer: data on its way from the host to the flash, in the controller's memory.
//!
//! ```text
//! host ── admit ──> slot (dirty; l2p names it) ── destage ──> program under way (leaving) ── done ──> room again
//! ```
//! A unit that is written again while it is dirty takes no new slot. What leaves goes in the order in which it came, a
//! page (or a page of each plane of a die) at a time. With a [`Cache`](crate::Cache) of writes, what is written again stays: its slot is in no queue,
//! and the least recently used ones are queued when their room is needed.

use crate::array::Array;
use crate::config::BufferConfig;
use crate::flush_policy::{FlushPolicy, Level};
use crate::ftl::{Map, NONE};
use crate::geometry::UNIT;
use crate::lru::RewrittenUnits;
use crate::lun::OpenEnd;
use crate::queues::Queues;
use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use weir_units::Nanos;

/// Queues up to which each may hold all slots from the start: the streams that a host can name, several times over.
const STREAMS: u32 = 256;

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// [`NONE`] when its data was trimmed.
    lpn: u32,
    writes: u32,
    since: Nanos,
    queue: u32,
}

/// The slots and who waits in them.
#[derive(Debug)]
pub(crate) struct Buffer {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Dirty slots that may share a program, oldest first: by stream, where addresses say the planes by partition and stream.
    queues: Queues,
    /// No first unit of a queue came in before this.
    least: Nanos,
    /// Slots in queues whose data was trimmed.
    dead: u32,
    dirty: u32,
    /// Dirty or leaving.
    held: u32,
    /// Programs under way, the one that ends first on top, and their units.
    leaving: BinaryHeap<Reverse<(OpenEnd, u32)>>,
    /// Units of programs under way whose end is not known in advance.
    leaving_later: u32,
    policy: Box<dyn FlushPolicy>,
    /// What stays.
    kept: Option<RewrittenUnits>,
    /// Units of one program.
    program: u32,
}

impl Buffer {
    /// An empty buffer with so many queues; `None` where the configuration has none. `round`: units of a page of each plane.
    pub(crate) fn new(config: &BufferConfig, queues: u32, program: u32, round: u32) -> Option<Buffer> {
        let capacity = config.write_units();
        let pending = if config.pending.0 == 0 { round } else { (config.pending.0 / u64::from(UNIT)) as u32 };
        let kept = config.cache.writes().then(|| RewrittenUnits::new(config.window, pending.clamp(1, capacity.max(1))));
        let most = kept.as_ref().map_or(capacity, |kept| kept.pending + program);
        (capacity > 0).then(|| Buffer {
            slots: vec![Slot { lpn: NONE, writes: 0, since: Nanos(0), queue: 0 }; capacity as usize],
            free: (0..capacity).rev().collect(),
            queues: Queues::new(queues, Buffer::queue_capacity(most, queues)),
            least: Nanos::NEVER,
            dead: 0,
            dirty: 0,
            held: 0,
            leaving: BinaryHeap::with_capacity(capacity as usize),
            leaving_later: 0,
            policy: config.flush.build(config),
            kept,
            program,
        })
    }

    /// Slots that a queue has room for at first. Hosts choose streams, so each may have all; partitions have about the same, and grow where
    /// they do not.
    fn queue_capacity(capacity: u32, queues: u32) -> usize {
        let each = if queues <= STREAMS { capacity } else { 2 * capacity / queues };
        each as usize
    }

    /// Replaces the policy.
    pub(crate) fn set_policy(&mut self, policy: Box<dyn FlushPolicy>) {
        self.policy = policy;
    }

    fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Units that have not left yet.
    pub(crate) fn dirty(&self) -> u32 {
        self.dirty
    }

    /// When there is room for one more unit; [`Nanos::NEVER`] where something has to leave first. A program that has to
    /// be waited for is not suspended any more: its end is now a promise.
    pub(crate) fn admit(&mut self, now: Nanos, silicon: &mut Array) -> Nanos {
        if self.has_room() {
            return now;
        }
        if self.must_make_room() {
            return Nanos::NEVER;
        }
        let mut at = now;
        while let Some(Reverse((end, units))) = self.leaving.peek().copied() {
            if end.done > at && self.has_room() {
                break;
            }
            let renewed = silicon.renewed(&end);
            if renewed.done > end.done {
                // Reads have pushed it: another one may end first.
                self.leaving.pop();
                self.leaving.push(Reverse((renewed, units)));
                continue;
            }
            if end.done > at {
                at = silicon.tell(&end);
            }
            self.held -= units;
            self.leaving.pop();
        }
        if self.has_room() { at } else { Nanos::NEVER }
    }

    /// Takes a unit in; there is room. Its queue waits for it to leave.
    pub(crate) fn insert(&mut self, now: Nanos, map: &mut Map, lpn: u32, queue: u32) {
        if self.free.is_empty() {
            self.sweep();
        }
        let Some(slot) = self.free.pop() else { return };
        self.slots[slot as usize] = Slot { lpn, writes: 1, since: now, queue };
        map.buffer(lpn, slot);
        let stays = self.kept.as_mut().is_some_and(|kept| kept.again(now, lpn));
        match self.kept.as_mut().filter(|_| stays) {
            Some(kept) => kept.slots.touch(slot),
            None => self.enqueue(slot, queue),
        }
        self.dirty += 1;
        self.held += 1;
    }

    /// The unit in that slot is written again. Whether it has stayed and is new again, so that it leaves.
    pub(crate) fn rewrite(&mut self, now: Nanos, slot: u32) -> bool {
        self.slots[slot as usize].writes += 1;
        let Slot { lpn, queue, .. } = self.slots[slot as usize];
        let Some(kept) = &mut self.kept else { return false };
        let again = kept.again(now, lpn);
        if !kept.slots.has(slot) || again {
            self.touch(slot);
            return false;
        }
        kept.slots.remove(slot);
        self.enqueue(slot, queue);
        true
    }

    /// The unit in that slot waits to leave.
    #[inline]
    fn enqueue(&mut self, slot: u32, queue: u32) {
        self.queues.push(queue, slot);
        self.least = self.least.min(self.slots[slot as usize].since);
    }

    /// The unit in that slot is used.
    pub(crate) fn touch(&mut self, slot: u32) {
        if let Some(kept) = self.kept.as_mut().filter(|kept| kept.slots.has(slot)) {
            kept.slots.touch(slot);
        }
    }

    /// The least recently used of what stays are queued: a program's worth.
    fn evict(&mut self) {
        for _ in 0..self.program {
            let Some(slot) = self.kept.as_mut().and_then(|kept| kept.slots.pop()) else { return };
            self.enqueue(slot, self.slots[slot as usize].queue);
        }
    }

    /// The unit in that slot is trimmed.
    pub(crate) fn kill(&mut self, slot: u32) {
        self.slots[slot as usize].lpn = NONE;
        self.dirty -= 1;
        self.held -= 1;
        if self.kept.as_mut().is_some_and(|kept| kept.slots.remove(slot)) {
            self.free.push(slot);
        } else {
            self.dead += 1;
        }
    }

    /// Gives back the slots of what was trimmed.
    fn sweep(&mut self) {
        let (slots, free) = (&self.slots, &mut self.free);
        self.queues.retain(|s| {
            let dead = slots[s as usize].lpn == NONE;
            if dead {
                free.push(s);
            }
            !dead
        });
        self.dead = 0;
        // Any unit may be the first of its queue.
        self.least = Nanos(0);
    }

    /// How many units the policy wants to leave.
    pub(crate) fn due(&mut self) -> u32 {
        let longest = self.queues.longest_len().min(self.dirty);
        let level = Level { dirty: self.dirty, longest, capacity: self.capacity(), program: self.program };
        self.policy.due(&level).min(self.dirty)
    }

    /// When the oldest unit came in that has not left yet, and its queue, if that was at `until` or before.
    #[inline]
    pub(crate) fn oldest(&mut self, until: Nanos) -> Option<(Nanos, u32)> {
        if self.least > until && self.dead == 0 {
            return None;
        }
        self.look_for_oldest().filter(|(since, _)| *since <= until)
    }

    /// Looks at the first unit of each queue. Those that were trimmed leave their slots.
    fn look_for_oldest(&mut self) -> Option<(Nanos, u32)> {
        let mut oldest = None;
        for queue in 0..self.queues.count() {
            while let Some(slot) = self.queues.front(queue) {
                let Slot { lpn, since, .. } = self.slots[slot as usize];
                if lpn != NONE {
                    oldest = Some(oldest.map_or((since, queue), |oldest: (Nanos, u32)| oldest.min((since, queue))));
                    break;
                }
                self.queues.pop(queue);
                self.free.push(slot);
                self.dead -= 1;
            }
        }
        self.least = oldest.map_or(Nanos::NEVER, |(since, _)| since);
        oldest
    }

    /// The queue of the unit in that slot.
    pub(crate) fn queue_of(&self, slot: u32) -> u32 {
        self.slots[slot as usize].queue
    }

    /// Units of a queue that have not left yet.
    pub(crate) fn dirty_of(&self, queue: u32) -> u32 {
        self.queues.of(queue).filter(|slot| self.slots[*slot as usize].lpn != NONE).count() as u32
    }

    /// Takes a program's worth out of the longest queue: its number, the units, and the writes that each stands for. `None` where nothing
    /// is dirty: a queue of nothing but trimmed units is emptied, and the next one is looked at.
    pub(crate) fn batch(&mut self, lpns: &mut Vec<u32>, writes: &mut Vec<u32>) -> Option<u32> {
        while self.dirty > 0 {
            if self.queues.longest_len() == 0 {
                self.evict();
            }
            let longest = self.queues.longest()?;
            if self.batch_of(longest, lpns, writes) {
                return Some(longest);
            }
        }
        None
    }

    /// The same out of that queue; false where nothing in it is dirty.
    pub(crate) fn batch_of(&mut self, queue: u32, lpns: &mut Vec<u32>, writes: &mut Vec<u32>) -> bool {
        lpns.clear();
        writes.clear();
        while lpns.len() < self.program as usize {
            let Some(slot) = self.queues.pop(queue) else { break };
            let Slot { lpn, writes: n, .. } = self.slots[slot as usize];
            self.free.push(slot);
            if lpn == NONE {
                self.dead -= 1;
            } else {
                lpns.push(lpn);
                writes.push(n);
            }
        }
        if let Some(first) = self.queues.front(queue) {
            self.least = self.least.min(self.slots[first as usize].since);
        }
        self.dirty -= lpns.len() as u32;
        !lpns.is_empty()
    }

    /// So many units that were taken out are in flash at that end.
    pub(crate) fn leave(&mut self, units: u32, end: OpenEnd) {
        self.leaving.push(Reverse((end, units)));
    }

    /// So many units that were taken out will be in flash: [`Buffer::left`].
    pub(crate) fn leave_later(&mut self, units: u32) {
        self.leaving_later += units;
    }

    /// So many of them are.
    pub(crate) fn left(&mut self, units: u32) {
        self.leaving_later -= units;
        self.held -= units;
    }

    /// Whether one more unit fits.
    pub(crate) fn has_room(&self) -> bool {
        match &self.kept {
            None => self.held < self.capacity(),
            // What leaves has left its slot.
            Some(kept) => self.dirty < self.capacity() && self.held - kept.slots.len() < kept.pending,
        }
    }

    /// Whether there is no room because of what stays, and it may leave.
    fn must_make_room(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| {
            let stays = kept.slots.len();
            stays > 0 && self.dirty >= self.capacity() && self.held - stays < kept.pending
        })
    }

    /// Where there is no room: whether some of what is dirty has to leave for it.
    pub(crate) fn must_leave(&self) -> bool {
        !self.is_leaving() || self.must_make_room()
    }

    /// Whether units are on their way into the flash whose room will be free.
    fn is_leaving(&self) -> bool {
        self.leaving_later > 0
    }

    /// The units that have not left yet, in no particular order.
    pub(crate) fn dirty_units(&self) -> impl Iterator<Item = u32> + '_ {
        self.occupied().map(|s| self.slots[s as usize].lpn).filter(|lpn| *lpn != NONE)
    }

    /// Slots that are not free.
    fn occupied(&self) -> impl Iterator<Item = u32> + '_ {
        let stay = self.kept.iter().flat_map(|kept| kept.slots.iter());
        self.queues.iter().chain(stay)
    }

    /// Power loss: everything is gone. The units that were dirty, with the writes that each stood for.
    pub(crate) fn clear(&mut self) -> Vec<(u32, u32)> {
        let gone = self.occupied().map(|s| self.slots[s as usize]);
        let gone: Vec<(u32, u32)> = gone.filter(|s| s.lpn != NONE).map(|s| (s.lpn, s.writes)).collect();
        self.queues.clear();
        (self.least, self.dead) = (Nanos::NEVER, 0);
        if let Some(kept) = &mut self.kept {
            *kept = kept.emptied();
        }
        self.leaving.clear();
        self.leaving_later = 0;
        self.free = (0..self.capacity()).rev().collect();
        (self.dirty, self.held) = (0, 0);
        gone
    }

    /// Checks the counts, and that the map names each dirty slot.
    pub(crate) fn check(&self, map: &Map) {
        let queued: Vec<u32> = self.occupied().collect();
        let alive = queued.iter().filter(|s| self.slots[**s as usize].lpn != NONE);
        assert_eq!(self.dead as usize, queued.len() - alive.clone().count(), "slots of what was trimmed");
        let firsts = (0..self.queues.count()).filter_map(|queue| self.queues.front(queue));
        let least = firsts.map(|s| self.slots[s as usize].since).min();
        assert!(
            least.is_none_or(|least| least >= self.least),
            "a unit came in at {least:?}, none before {}",
            self.least.0
        );
        for slot in alive.clone() {
            assert_eq!(map.slot(self.slots[*slot as usize].lpn), Some(*slot), "the map names slot {slot}");
        }
        assert_eq!(alive.count() as u32, self.dirty, "dirty units");
        assert_eq!(queued.len() + self.free.len(), self.slots.len(), "slots are queued or free");
        let leaving: u32 = self.leaving.iter().map(|Reverse((_, units))| units).sum();
        assert_eq!(self.held, self.dirty + leaving + self.leaving_later, "units held");
        let inside = if self.kept.is_some() { self.dirty } else { self.held };
        assert!(inside <= self.capacity(), "more units than fit");
    }
}
