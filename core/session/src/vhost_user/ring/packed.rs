//! A packed virtqueue as the device sees it (Virtio 1.2, 2.8).

use super::{DeviceRing, RingAddresses, Traits};
use crate::memory::{Memory, MemoryFault};
use crate::vhost_user::chain::{Chain, Violation};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use weir_journal::{Descriptor, InRing};
use weir_spec::virtqueue::{EventSuppression, PackedIndex, flag, packed_need_event};

/// Offset of a descriptor's flags.
const FLAGS: usize = 14;

#[derive(Debug)]
pub(in crate::vhost_user) struct Packed<M: Memory> {
    ring: M::Window,
    driver: M::Window,
    device: M::Window,
    size: u16,
    traits: Traits,
    /// Next descriptor to read.
    next_avail: PackedIndex,
    /// Where the next used descriptor goes.
    next_used: PackedIndex,
    /// Slots read and not yet used: `next_used` trails `next_avail` by so many.
    outstanding: u16,
    /// The first used descriptor since the last publication: its flags are written last, so that a batch becomes
    /// visible at once.
    held: Option<(u16, u64)>,
    /// Slots used since the last publication.
    batch: u16,
    /// First address of the request that was read last.
    last: u64,
    /// Slots published since it was last decided whether to notify.
    undecided: u16,
    /// The base was 0, both wrap counters included, nothing has been read since, and nobody remembers a ring that stood there. The
    /// virtio-driver crate (libblkio) sends that for a new ring, whose counters are 1.
    unsure: bool,
}

impl<M: Memory> Packed<M> {
    pub(in crate::vhost_user) fn new(
        memory: &M,
        places: &RingAddresses,
        size: u16,
        traits: Traits,
        (base, unsure): (u32, bool),
    ) -> Result<Self, MemoryFault> {
        let [ring, driver, device] = windows(memory, places, size)?;
        let (next_avail, next_used) =
            (PackedIndex::from_bits(base as u16), PackedIndex::from_bits((base >> 16) as u16));
        if next_avail.offset >= size || next_used.offset >= size {
            return Err(MemoryFault::OutOfWindow);
        }
        let ahead = u32::from(next_avail.offset) + u32::from(size) - u32::from(next_used.offset);
        let outstanding = match (ahead % u32::from(size), next_avail.wrap == next_used.wrap) {
            (0, false) => size,
            (n, _) => n as u16,
        };
        Ok(Self {
            ring,
            driver,
            device,
            size,
            traits,
            next_avail,
            next_used,
            outstanding,
            held: None,
            batch: 0,
            last: 0,
            undecided: 0,
            unsure,
        })
    }

    /// Finds the ring anew after the memory or its address changed.
    pub(in crate::vhost_user) fn resolve(&mut self, memory: &M, places: &RingAddresses) -> Result<(), MemoryFault> {
        [self.ring, self.driver, self.device] = windows(memory, places, self.size)?;
        Ok(())
    }

    /// Whether the batch that began at `began` was published: its first descriptor is used. The driver may have taken it and
    /// made the slot available again, which turns both bits; USED alone tells.
    pub(in crate::vhost_user) fn is_published(
        memory: &M,
        places: &RingAddresses,
        size: u16,
        began: PackedIndex,
    ) -> Result<bool, MemoryFault> {
        let [ring, ..] = windows(memory, places, size)?;
        let flags = memory.load16(&ring, 16 * usize::from(began.offset) + FLAGS, Acquire)?;
        Ok((flags & flag::USED != 0) == began.wrap)
    }

    /// A batch from `began` to `end` is not to be published: what was written of it already, behind its first descriptor, is made
    /// available again. Left as it is, a driver would take it for used as soon as it has got that far.
    pub(in crate::vhost_user) fn take_back(
        memory: &M,
        places: &RingAddresses,
        size: u16,
        (began, end): (PackedIndex, PackedIndex),
    ) -> Result<(), MemoryFault> {
        let [ring, ..] = windows(memory, places, size)?;
        let mut at = began;
        for _ in 0..size {
            at = at.advance(1, size);
            if at == end {
                break;
            }
            let place = 16 * usize::from(at.offset) + 8;
            let word = memory.load64(&ring, place, Relaxed)?;
            let flags = (word >> 48) as u16;
            if at.is_used(flags) {
                let flags = flags & !(flag::AVAIL | flag::USED) | at.avail_flags();
                // Release: before the journal forgets the batch.
                memory.store64(&ring, place, word & 0xffff_ffff_ffff | u64::from(flags) << 48, Release)?;
            }
        }
        Ok(())
    }

    /// Whether it is not known yet where the ring begins.
    pub(in crate::vhost_user) fn is_unsure(&self) -> bool {
        self.unsure
    }

    /// Where the next used descriptor goes.
    pub(in crate::vhost_user) fn next_used(&self) -> PackedIndex {
        self.next_used
    }

    /// The descriptors of a chain in flight that stands in the ring.
    pub(in crate::vhost_user) fn descriptors(
        &self,
        memory: &M,
        chain: InRing,
        out: &mut Vec<Descriptor>,
    ) -> Result<(), MemoryFault> {
        out.clear();
        let mut at = PackedIndex { offset: chain.at, wrap: false };
        for i in 0..chain.slots {
            out.push(if i == 0 {
                Descriptor { address: chain.address, len: chain.len, flags: chain.flags }
            } else {
                let place = 16 * usize::from(at.offset);
                let address = memory.load64(&self.ring, place, Relaxed)?;
                let high = memory.load64(&self.ring, place + 8, Relaxed)?;
                Descriptor { address, len: high as u32, flags: (high >> 48) as u16 }
            });
            at = at.advance(1, self.size);
        }
        Ok(())
    }

    /// Makes a chain in flight anew from its descriptors.
    pub(in crate::vhost_user) fn again(
        &self,
        memory: &M,
        head: u16,
        kept: &[Descriptor],
        chain: &mut Chain,
    ) -> Result<(), Violation> {
        chain.clear();
        (chain.head, chain.slots) = (head, kept.len() as u16);
        for (i, d) in kept.iter().enumerate() {
            let last = i + 1 == kept.len();
            if (d.flags & flag::NEXT == 0) != last {
                return Err(Violation::TooLong);
            }
            self.append(memory, d.address, d.len, d.flags, i == 0, chain)?;
        }
        Ok(())
    }

    #[inline]
    fn append(
        &self,
        memory: &M,
        address: u64,
        len: u32,
        flags: u16,
        first: bool,
        chain: &mut Chain,
    ) -> Result<(), Violation> {
        if flags & flag::INDIRECT == 0 {
            return chain.push(address, len, flags);
        }
        if !self.traits.indirect || flags & flag::NEXT != 0 || !first {
            return Err(Violation::Indirect);
        }
        chain.push_indirect(memory, address, len, true)
    }

    /// Whether a descriptor with these flags at `next_avail` is available.
    #[inline]
    fn is_avail(&self, flags: u16) -> bool {
        self.next_avail.is_avail(flags) || self.is_new(flags)
    }

    /// AVAIL without USED in slot 0: a new ring's first request, or what is left of a ring that has gone round, where used descriptors of
    /// chains behind others were written elsewhere. Only where no ring is known to have stood at 0 it is taken for the former.
    #[inline]
    fn is_new(&self, flags: u16) -> bool {
        self.unsure && PackedIndex::START.is_avail(flags)
    }

    /// Reads the chain at `next_avail`: how many slots it takes.
    #[inline]
    fn walk(&self, memory: &M, chain: &mut Chain) -> Result<u16, Violation> {
        let mut at = self.next_avail;
        for slots in 1..=self.size - self.outstanding {
            let place = 16 * usize::from(at.offset);
            let address = memory.load64(&self.ring, place, Relaxed)?;
            let high = memory.load64(&self.ring, place + 8, Relaxed)?;
            let (len, id, flags) = (high as u32, (high >> 32) as u16, (high >> 48) as u16);
            self.append(memory, address, len, flags, slots == 1, chain)?;
            if slots == 1 {
                chain.first = (address, high);
            }
            if flags & flag::NEXT == 0 {
                // The identifier of the last descriptor is the buffer's.
                chain.head = id;
                return Ok(slots);
            }
            at = at.advance(1, self.size);
        }
        Err(Violation::TooLong)
    }
}

fn windows<M: Memory>(memory: &M, places: &RingAddresses, size: u16) -> Result<[M::Window; 3], MemoryFault> {
    Ok([
        memory.window(places.descriptors, 16 * usize::from(size))?,
        memory.window(places.driver, 4)?,
        memory.window(places.device, 4)?,
    ])
}

impl<M: Memory> DeviceRing<M> for Packed<M> {
    #[inline]
    fn next(&mut self, memory: &M, chain: &mut Chain) -> Result<bool, Violation> {
        if self.outstanding == self.size {
            return Ok(false);
        }
        // Acquire: the rest of the chain is read after the flags that make it available.
        let flags = memory.load16(&self.ring, 16 * usize::from(self.next_avail.offset) + FLAGS, Acquire)?;
        if !self.is_avail(flags) {
            return Ok(false);
        }
        if !self.next_avail.is_avail(flags) {
            (self.next_avail, self.next_used) = (PackedIndex::START, PackedIndex::START);
        }
        // A driver with one request at a time mostly takes the same place again: it comes from the other core while the descriptors do.
        if self.outstanding == 0 {
            memory.prefetch(self.last, 16);
        }
        chain.clear();
        let slots = self.walk(memory, chain)?;
        self.last = chain.segments[0].address;
        if chain.head >= self.size {
            return Err(Violation::OutOfRange);
        }
        chain.slots = slots;
        chain.at = self.next_avail.offset;
        chain.is_proof = self.unsure;
        self.unsure = false;
        self.outstanding += slots;
        let next = self.next_avail.advance(slots, self.size);
        self.next_avail = next;
        // For the journal, in the width in which it reads it.
        chain.next = next.bits();
        Ok(true)
    }

    #[inline]
    fn has_next(&self, memory: &M) -> bool {
        let flags = memory.load16(&self.ring, 16 * usize::from(self.next_avail.offset) + FLAGS, Relaxed);
        self.outstanding != self.size && flags.is_ok_and(|flags| self.is_avail(flags))
    }

    #[inline]
    fn expect(&self, memory: &M) {
        memory.prefetch(self.last, 16);
    }

    #[inline]
    fn look_ahead(&self, memory: &M) {
        let place = 16 * usize::from(self.next_avail.offset);
        if let Ok(address) = memory.load64(&self.ring, place, Relaxed) {
            memory.prefetch(address, 16);
        }
        let ahead = self.next_avail.advance(4.min(self.size), self.size);
        memory.prefetch_window(&self.ring, 16 * usize::from(ahead.offset));
    }

    #[inline]
    fn push_used(&mut self, memory: &M, head: u16, slots: u16, written: u32) -> Result<(), MemoryFault> {
        let flags = self.next_used.used_flags() | if written != 0 { flag::WRITE } else { 0 };
        let value = u64::from(written) | u64::from(head) << 32 | u64::from(flags) << 48;
        if self.held.is_none() {
            self.held = Some((self.next_used.offset, value));
        } else {
            // Release: after what the journal says of the chains that it overwrites. Recovery goes by that.
            memory.store64(&self.ring, 16 * usize::from(self.next_used.offset) + 8, value, Release)?;
        }
        self.next_used = self.next_used.advance(slots, self.size);
        self.outstanding = self.outstanding.saturating_sub(slots);
        self.batch = self.batch.saturating_add(slots);
        Ok(())
    }

    #[inline]
    fn publish(&mut self, memory: &M) -> Result<bool, MemoryFault> {
        let Some((offset, value)) = self.held.take() else {
            return Ok(false);
        };
        // Release: data, status bytes and the rest of the batch are visible before the descriptor that leads to them.
        memory.store64(&self.ring, 16 * usize::from(offset) + 8, value, Release)?;
        self.undecided = self.undecided.saturating_add(core::mem::take(&mut self.batch));
        Ok(true)
    }

    #[inline]
    fn wants_signal(&mut self, memory: &M) -> Result<bool, MemoryFault> {
        let slots = core::mem::take(&mut self.undecided);
        if slots == 0 {
            return Ok(false);
        }
        // See the split ring: one of the two sides must see the other's store.
        memory.fence(SeqCst);
        let event = memory.load32(&self.driver, 0, Relaxed)?;
        Ok(match (event >> 16) as u16 {
            EventSuppression::DISABLE => false,
            EventSuppression::DESC if self.traits.event_idx => {
                let old = self.next_used.offset.wrapping_sub(slots);
                packed_need_event(PackedIndex::from_bits(event as u16), self.next_used, old, self.size)
            }
            _ => true,
        })
    }

    fn quiet(&mut self, memory: &M) -> Result<(), MemoryFault> {
        memory.store16(&self.device, 2, EventSuppression::DISABLE, Relaxed)
    }

    fn listen(&mut self, memory: &M) -> Result<bool, MemoryFault> {
        memory.store16(&self.device, 2, EventSuppression::ENABLE, Relaxed)?;
        memory.fence(SeqCst);
        if self.outstanding == self.size {
            return Ok(false);
        }
        let flags = memory.load16(&self.ring, 16 * usize::from(self.next_avail.offset) + FLAGS, Relaxed)?;
        Ok(self.is_avail(flags))
    }

    fn base(&self) -> u32 {
        u32::from(self.next_avail.bits()) | u32::from(self.next_used.bits()) << 16
    }
}
