//! The driver's side of a virtqueue whose descriptors belong to fixed slots.

use super::layout::{PER_REQUEST, QueueAddresses, QueueLayout};
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use weir_session::memory::{Memory, MemoryFault};
use weir_spec::virtqueue::{EventSuppression, PackedIndex, flag, need_event, packed_need_event, split};

/// One descriptor of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestDescriptor {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) writable: bool,
}

impl RequestDescriptor {
    fn flags(&self, more: bool) -> u16 {
        (if self.writable { flag::WRITE } else { 0 }) | if more { flag::NEXT } else { 0 }
    }
}

fn high(len: u32, third: u16, fourth: u16) -> u64 {
    u64::from(len) | u64::from(third) << 32 | u64::from(fourth) << 48
}

/// A split ring; slot `s` owns descriptors `3s` to `3s+2`, or descriptor `s` with indirect tables.
#[derive(Debug)]
pub(super) struct SplitFront<M: Memory> {
    table: M::Window,
    avail: M::Window,
    used: M::Window,
    size: u16,
    event_idx: bool,
    step: u16,
    next_avail: u16,
    published: u16,
    next_used: u16,
    /// The used index near which `used_event` was last put, out of reach.
    event_base: u16,
}

impl<M: Memory> SplitFront<M> {
    fn new(memory: &M, layout: &QueueLayout, at: &QueueAddresses) -> Result<Self, MemoryFault> {
        let ring = Self {
            table: memory.window(at.descriptors, split::table_bytes(layout.size))?,
            avail: memory.window(at.driver, split::avail_bytes(layout.size, true))?,
            used: memory.window(at.device, split::used_bytes(layout.size, true))?,
            size: layout.size,
            event_idx: layout.event_idx,
            step: if layout.indirect { 1 } else { PER_REQUEST },
            next_avail: 0,
            published: 0,
            next_used: 0,
            event_base: 0,
        };
        memory.store16(&ring.avail, split::FLAGS, split::NO_INTERRUPT, Relaxed)?;
        ring.never_interrupt(memory)?;
        Ok(ring)
    }

    /// As far ahead as 16 bits allow.
    fn never_interrupt(&self, memory: &M) -> Result<(), MemoryFault> {
        if self.event_idx {
            let far = self.next_used.wrapping_sub(1);
            memory.store16(&self.avail, split::used_event(self.size), far, Relaxed)?;
        }
        Ok(())
    }

    #[inline]
    fn add(&mut self, memory: &M, slot: u32, pieces: &[RequestDescriptor]) -> Result<(), MemoryFault> {
        let head = slot as u16 * self.step;
        for (i, p) in pieces.iter().enumerate() {
            let at = head + i as u16;
            let more = i + 1 < pieces.len();
            memory.store64(&self.table, 16 * usize::from(at), p.address, Relaxed)?;
            let value = high(p.len, p.flags(more), if more { at + 1 } else { 0 });
            memory.store64(&self.table, 16 * usize::from(at) + 8, value, Relaxed)?;
        }
        self.offer(memory, head)
    }

    #[inline]
    fn add_table(&mut self, memory: &M, slot: u32, table: u64, bytes: u32) -> Result<(), MemoryFault> {
        let at = 16 * slot as usize;
        memory.store64(&self.table, at, table, Relaxed)?;
        memory.store64(&self.table, at + 8, high(bytes, flag::INDIRECT, 0), Relaxed)?;
        self.offer(memory, slot as u16)
    }

    #[inline]
    fn offer(&mut self, memory: &M, head: u16) -> Result<(), MemoryFault> {
        let entry = split::RING + 2 * usize::from(self.next_avail & (self.size - 1));
        memory.store16(&self.avail, entry, head, Relaxed)?;
        self.next_avail = self.next_avail.wrapping_add(1);
        Ok(())
    }

    #[inline]
    fn publish(&mut self, memory: &M) -> Result<bool, MemoryFault> {
        let (old, new) = (self.published, self.next_avail);
        if old == new {
            return Ok(false);
        }
        memory.store16(&self.avail, split::INDEX, new, Release)?;
        self.published = new;
        memory.fence(SeqCst);
        if self.event_idx {
            let event = memory.load16(&self.used, split::avail_event(self.size), Relaxed)?;
            Ok(need_event(event, new, old))
        } else {
            Ok(memory.load16(&self.used, split::FLAGS, Relaxed)? & split::NO_NOTIFY == 0)
        }
    }

    #[inline]
    fn reap(&mut self, memory: &M, mut f: impl FnMut(u32) -> bool) -> Result<bool, MemoryFault> {
        let index = memory.load16(&self.used, split::INDEX, Acquire)?;
        if index == self.next_used {
            return Ok(true);
        }
        while self.next_used != index {
            let place = split::RING + 8 * usize::from(self.next_used & (self.size - 1));
            let id = memory.load32(&self.used, place, Relaxed)?;
            let step = u32::from(self.step);
            if id % step != 0 || !f(id / step) {
                return Ok(false);
            }
            self.next_used = self.next_used.wrapping_add(1);
        }
        if self.next_used.wrapping_sub(self.event_base) >= 0x4000 {
            self.event_base = self.next_used;
            self.never_interrupt(memory)?;
        }
        Ok(true)
    }
}

/// A packed ring; the buffer identifier is the slot.
#[derive(Debug)]
pub(super) struct PackedFront<M: Memory> {
    ring: M::Window,
    device: M::Window,
    size: u16,
    event_idx: bool,
    next_avail: PackedIndex,
    next_used: PackedIndex,
    /// Ring slots of each request.
    counts: Vec<u16>,
    /// Slots filled since the last publication.
    added: u16,
    /// The first descriptor filled since then; written last.
    held: Option<(u16, u64)>,
}

impl<M: Memory> PackedFront<M> {
    fn new(memory: &M, layout: &QueueLayout, at: &QueueAddresses) -> Result<Self, MemoryFault> {
        let driver = memory.window(at.driver, 4)?;
        memory.store16(&driver, 2, EventSuppression::DISABLE, Relaxed)?;
        Ok(Self {
            ring: memory.window(at.descriptors, 16 * usize::from(layout.size))?,
            device: memory.window(at.device, 4)?,
            size: layout.size,
            event_idx: layout.event_idx,
            next_avail: PackedIndex::START,
            next_used: PackedIndex::START,
            counts: vec![0; layout.depth as usize],
            added: 0,
            held: None,
        })
    }

    #[inline]
    fn add(&mut self, memory: &M, slot: u32, pieces: &[RequestDescriptor]) -> Result<(), MemoryFault> {
        let count = pieces.len();
        for (i, p) in pieces.iter().enumerate() {
            self.put(memory, p.address, p.len, slot as u16, p.flags(i + 1 < count))?;
        }
        self.counts[slot as usize] = count as u16;
        Ok(())
    }

    #[inline]
    fn add_table(&mut self, memory: &M, slot: u32, table: u64, bytes: u32) -> Result<(), MemoryFault> {
        self.put(memory, table, bytes, slot as u16, flag::INDIRECT)?;
        self.counts[slot as usize] = 1;
        Ok(())
    }

    #[inline]
    fn put(&mut self, memory: &M, address: u64, len: u32, id: u16, flags: u16) -> Result<(), MemoryFault> {
        let at = self.next_avail;
        let value = high(len, id, flags | at.avail_flags());
        memory.store64(&self.ring, 16 * usize::from(at.offset), address, Relaxed)?;
        if self.held.is_none() {
            self.held = Some((at.offset, value));
        } else {
            memory.store64(&self.ring, 16 * usize::from(at.offset) + 8, value, Relaxed)?;
        }
        self.next_avail = at.advance(1, self.size);
        self.added += 1;
        Ok(())
    }

    #[inline]
    fn publish(&mut self, memory: &M) -> Result<bool, MemoryFault> {
        let Some((offset, value)) = self.held.take() else {
            return Ok(false);
        };
        memory.store64(&self.ring, 16 * usize::from(offset) + 8, value, Release)?;
        let added = core::mem::take(&mut self.added);
        memory.fence(SeqCst);
        let event = memory.load32(&self.device, 0, Relaxed)?;
        Ok(match (event >> 16) as u16 {
            EventSuppression::DISABLE => false,
            EventSuppression::DESC if self.event_idx => {
                let old = self.next_avail.offset.wrapping_sub(added);
                packed_need_event(PackedIndex::from_bits(event as u16), self.next_avail, old, self.size)
            }
            _ => true,
        })
    }

    #[inline]
    fn reap(&mut self, memory: &M, mut f: impl FnMut(u32) -> bool) -> Result<bool, MemoryFault> {
        loop {
            let place = 16 * usize::from(self.next_used.offset);
            let flags = memory.load16(&self.ring, place + 14, Acquire)?;
            if !self.next_used.is_used(flags) {
                return Ok(true);
            }
            let id = memory.load16(&self.ring, place + 12, Relaxed)?;
            if !f(u32::from(id)) {
                return Ok(false);
            }
            // `f` has found that the slot exists and was in flight.
            let count = self.counts[usize::from(id)];
            self.next_used = self.next_used.advance(count, self.size);
        }
    }
}

/// Either.
#[derive(Debug)]
pub(super) enum FrontRing<M: Memory> {
    Split(SplitFront<M>),
    Packed(PackedFront<M>),
}

impl<M: Memory> FrontRing<M> {
    pub(super) fn new(memory: &M, layout: &QueueLayout, at: &QueueAddresses) -> Result<Self, MemoryFault> {
        Ok(if layout.packed {
            Self::Packed(PackedFront::new(memory, layout, at)?)
        } else {
            Self::Split(SplitFront::new(memory, layout, at)?)
        })
    }

    #[inline]
    pub(super) fn add(&mut self, memory: &M, slot: u32, pieces: &[RequestDescriptor]) -> Result<(), MemoryFault> {
        match self {
            Self::Split(r) => r.add(memory, slot, pieces),
            Self::Packed(r) => r.add(memory, slot, pieces),
        }
    }

    /// Adds a request whose pieces are in an indirect table.
    #[inline]
    pub(super) fn add_table(&mut self, memory: &M, slot: u32, table: u64, bytes: u32) -> Result<(), MemoryFault> {
        match self {
            Self::Split(r) => r.add_table(memory, slot, table, bytes),
            Self::Packed(r) => r.add_table(memory, slot, table, bytes),
        }
    }

    /// An entry of an indirect table: `next` only counts in a split ring's.
    pub(super) fn table_entry(p: &RequestDescriptor, at: u16, more: bool, packed: bool) -> (u64, u64) {
        let (len, flags) = (p.len, p.flags(more));
        if packed {
            (p.address, high(len, 0, flags & flag::WRITE))
        } else {
            (p.address, high(len, flags, if more { at + 1 } else { 0 }))
        }
    }

    /// Makes what was added visible; whether to kick the device.
    #[inline]
    pub(super) fn publish(&mut self, memory: &M) -> Result<bool, MemoryFault> {
        match self {
            Self::Split(r) => r.publish(memory),
            Self::Packed(r) => r.publish(memory),
        }
    }

    /// Hands each completed slot to `f`, which says whether it can be; false if one cannot.
    #[inline]
    pub(super) fn reap(&mut self, memory: &M, f: impl FnMut(u32) -> bool) -> Result<bool, MemoryFault> {
        match self {
            Self::Split(r) => r.reap(memory, f),
            Self::Packed(r) => r.reap(memory, f),
        }
    }
}
