//! A split virtqueue as the device sees it (Virtio 1.2, 2.7).

use super::{DeviceRing, RingAddresses, Traits};
use crate::memory::{Memory, MemoryFault};
use crate::vhost_user::chain::{Chain, Violation, unpack};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use weir_spec::virtqueue::{flag, need_event, split};

#[derive(Debug)]
pub(in crate::vhost_user) struct Split<M: Memory> {
    table: M::Window,
    avail: M::Window,
    used: M::Window,
    size: u16,
    mask: u16,
    traits: Traits,
    /// Next entry of the available ring to read.
    next_avail: u16,
    /// The available index as last read.
    seen_avail: u16,
    /// Where the next used element goes.
    next_used: u16,
    /// The used index as the driver sees it.
    published: u16,
    /// Head and first address of the request that was read last.
    last: (u16, u64),
    /// Something was published since it was last decided whether to notify.
    undecided: bool,
    /// The used index at that decision; `None` before the first.
    decided: Option<u16>,
}

impl<M: Memory> Split<M> {
    /// A ring that continues at `next_avail`; the used index is the ring's own, which a back end before us left there.
    pub(in crate::vhost_user) fn new(
        memory: &M,
        places: &RingAddresses,
        size: u16,
        traits: Traits,
        next_avail: u16,
    ) -> Result<Self, MemoryFault> {
        let [table, avail, used] = windows(memory, places, size, traits)?;
        let published = memory.load16(&used, split::INDEX, Relaxed)?;
        Ok(Self {
            table,
            avail,
            used,
            size,
            mask: size - 1,
            traits,
            next_avail,
            seen_avail: next_avail,
            next_used: published,
            published,
            last: (0, 0),
            undecided: false,
            decided: None,
        })
    }

    /// Finds the ring anew after the memory or its address changed, and takes the used index from it again.
    pub(in crate::vhost_user) fn resolve(&mut self, memory: &M, places: &RingAddresses) -> Result<(), MemoryFault> {
        [self.table, self.avail, self.used] = windows(memory, places, self.size, self.traits)?;
        self.published = memory.load16(&self.used, split::INDEX, Relaxed)?;
        self.next_used = self.published;
        self.decided = None;
        Ok(())
    }

    /// The ring's own used index, as it was when the ring was found.
    pub(in crate::vhost_user) fn used(&self) -> u16 {
        self.published
    }

    /// The index of the next request to be read.
    #[inline]
    pub(in crate::vhost_user) fn taken(&self) -> u16 {
        self.next_avail
    }

    /// Continues where the journal says.
    pub(in crate::vhost_user) fn continue_at(&mut self, next_avail: u16) {
        (self.next_avail, self.seen_avail) = (next_avail, next_avail);
    }

    /// Reads the chain of a request that was taken before; a driver leaves it alone until it is used.
    pub(in crate::vhost_user) fn again(&self, memory: &M, head: u16, chain: &mut Chain) -> Result<(), Violation> {
        chain.clear();
        (chain.head, chain.slots) = (head, 1);
        self.walk(memory, head, chain)
    }

    #[inline]
    fn walk(&self, memory: &M, head: u16, chain: &mut Chain) -> Result<(), Violation> {
        let mut at = head;
        for _ in 0..self.size {
            if at >= self.size {
                return Err(Violation::OutOfRange);
            }
            let place = 16 * usize::from(at);
            let (low, high) =
                (memory.load64(&self.table, place, Relaxed)?, memory.load64(&self.table, place + 8, Relaxed)?);
            let (address, len, flags, next) = unpack(low, high);
            if flags & flag::INDIRECT != 0 {
                if !self.traits.indirect || flags & flag::NEXT != 0 {
                    return Err(Violation::Indirect);
                }
                return chain.push_indirect(memory, address, len, false);
            }
            chain.push(address, len, flags)?;
            if flags & flag::NEXT == 0 {
                return Ok(());
            }
            at = next;
        }
        Err(Violation::TooLong)
    }

    #[inline]
    fn head_at(&self, memory: &M, index: u16) -> Result<u16, MemoryFault> {
        memory.load16(&self.avail, split::RING + 2 * usize::from(index & self.mask), Relaxed)
    }
}

fn windows<M: Memory>(
    memory: &M,
    places: &RingAddresses,
    size: u16,
    traits: Traits,
) -> Result<[M::Window; 3], MemoryFault> {
    Ok([
        memory.window(places.descriptors, split::table_bytes(size))?,
        memory.window(places.driver, split::avail_bytes(size, traits.event_idx))?,
        memory.window(places.device, split::used_bytes(size, traits.event_idx))?,
    ])
}

impl<M: Memory> DeviceRing<M> for Split<M> {
    #[inline]
    fn next(&mut self, memory: &M, chain: &mut Chain) -> Result<bool, Violation> {
        if self.next_avail == self.seen_avail {
            // Acquire: the entries and descriptors below are read after the index that covers them.
            let index = memory.load16(&self.avail, split::INDEX, Acquire)?;
            if index == self.next_avail {
                return Ok(false);
            }
            if index.wrapping_sub(self.next_avail) > self.size {
                return Err(Violation::Index);
            }
            self.seen_avail = index;
            // A driver with one request at a time mostly takes the same places again: they come from the other core while the entry
            // that names them does.
            if index == self.next_avail.wrapping_add(1) {
                memory.prefetch_window(&self.table, 16 * usize::from(self.last.0));
                memory.prefetch(self.last.1, 16);
            }
        }
        chain.clear();
        chain.head = self.head_at(memory, self.next_avail)?;
        chain.slots = 1;
        self.walk(memory, chain.head, chain)?;
        self.last = (chain.head, chain.segments[0].address);
        self.next_avail = self.next_avail.wrapping_add(1);
        Ok(true)
    }

    #[inline]
    fn has_next(&self, memory: &M) -> bool {
        self.next_avail != self.seen_avail
            || memory.load16(&self.avail, split::INDEX, Relaxed).is_ok_and(|index| index != self.next_avail)
    }

    #[inline]
    fn expect(&self, memory: &M) {
        memory.prefetch_window(&self.avail, split::RING + 2 * usize::from(self.next_avail & self.mask));
        memory.prefetch_window(&self.table, 16 * usize::from(self.last.0));
        memory.prefetch(self.last.1, 16);
    }

    #[inline]
    fn look_ahead(&self, memory: &M) {
        if self.next_avail == self.seen_avail {
            return;
        }
        if let Ok(head) = self.head_at(memory, self.next_avail) {
            let place = 16 * usize::from(head & self.mask);
            if let Ok(address) = memory.load64(&self.table, place, Relaxed) {
                memory.prefetch(address, 16);
            }
        }
        // Its neighbour's descriptors, so that the address above is at hand when its turn comes.
        if let Ok(head) = self.head_at(memory, self.next_avail.wrapping_add(1)) {
            memory.prefetch_window(&self.table, 16 * usize::from(head & self.mask));
        }
    }

    #[inline]
    fn push_used(&mut self, memory: &M, head: u16, _slots: u16, written: u32) -> Result<(), MemoryFault> {
        let place = split::RING + 8 * usize::from(self.next_used & self.mask);
        memory.store_pair32(&self.used, place, u32::from(head), written)?;
        self.next_used = self.next_used.wrapping_add(1);
        Ok(())
    }

    #[inline]
    fn publish(&mut self, memory: &M) -> Result<bool, MemoryFault> {
        if self.published == self.next_used {
            return Ok(false);
        }
        // Release: data, status bytes and used elements are visible before the index that covers them.
        memory.store16(&self.used, split::INDEX, self.next_used, Release)?;
        (self.published, self.undecided) = (self.next_used, true);
        Ok(true)
    }

    #[inline]
    fn wants_signal(&mut self, memory: &M) -> Result<bool, MemoryFault> {
        if !core::mem::take(&mut self.undecided) {
            return Ok(false);
        }
        let new = self.published;
        // The driver first says what it wants, then looks at the index; we do the reverse. The fence makes sure that
        // at least one of the two sees the other's store.
        memory.fence(SeqCst);
        let wanted = if self.traits.event_idx {
            let event = memory.load16(&self.avail, split::used_event(self.size), Relaxed)?;
            self.decided.is_none_or(|old| need_event(event, new, old))
        } else {
            memory.load16(&self.avail, split::FLAGS, Relaxed)? & split::NO_INTERRUPT == 0
        };
        self.decided = Some(new);
        Ok(wanted)
    }

    fn quiet(&mut self, memory: &M) -> Result<(), MemoryFault> {
        if self.traits.event_idx {
            // As far from the driver's index as the arithmetic allows.
            let far = self.next_avail.wrapping_add(0x8000);
            memory.store16(&self.used, split::avail_event(self.size), far, Relaxed)
        } else {
            memory.store16(&self.used, split::FLAGS, split::NO_NOTIFY, Relaxed)
        }
    }

    fn listen(&mut self, memory: &M) -> Result<bool, MemoryFault> {
        if self.traits.event_idx {
            memory.store16(&self.used, split::avail_event(self.size), self.next_avail, Relaxed)?;
        } else {
            memory.store16(&self.used, split::FLAGS, 0, Relaxed)?;
        }
        // Between our wish and our look, against the driver's index and its look.
        memory.fence(SeqCst);
        Ok(memory.load16(&self.avail, split::INDEX, Relaxed)? != self.next_avail)
    }

    fn base(&self) -> u32 {
        u32::from(self.next_avail)
    }
}
