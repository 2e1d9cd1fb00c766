//! Virtqueues (Virtio 1.2, 2.6 to 2.8): what driver and device share in memory, split and packed.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Device-independent feature bits (Virtio 1.2, section 6).
pub mod feature {
    /// VIRTIO_F_NOTIFY_ON_EMPTY (legacy).
    pub const NOTIFY_ON_EMPTY: u64 = 1 << 24;
    /// VIRTIO_F_ANY_LAYOUT (legacy): the driver does not rely on message framing.
    pub const ANY_LAYOUT: u64 = 1 << 27;
    /// VIRTIO_F_INDIRECT_DESC.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// VIRTIO_F_EVENT_IDX.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// VIRTIO_F_VERSION_1.
    pub const VERSION_1: u64 = 1 << 32;
    /// VIRTIO_F_ACCESS_PLATFORM: an IOMMU stands between; not offered by Weir.
    pub const ACCESS_PLATFORM: u64 = 1 << 33;
    /// VIRTIO_F_RING_PACKED.
    pub const RING_PACKED: u64 = 1 << 34;
    /// VIRTIO_F_IN_ORDER.
    pub const IN_ORDER: u64 = 1 << 35;
}

/// Largest queue size a split ring may have (2.6).
pub const MAX_QUEUE_SIZE: u16 = 32768;

/// A descriptor of a split ring or of an indirect table of either kind's own form (2.7.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SplitDescriptor {
    /// Guest physical address.
    pub address: U64,
    /// Length in bytes.
    pub length: U32,
    /// See [`flag`].
    pub flags: U16,
    /// Next of the chain, where [`flag::NEXT`] is set.
    pub next: U16,
}

const _: () = assert!(size_of::<SplitDescriptor>() == 16);

/// A descriptor of a packed ring (2.8.13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PackedDescriptor {
    /// Guest physical address.
    pub address: U64,
    /// Length in bytes.
    pub length: U32,
    /// Buffer ID.
    pub id: U16,
    /// See [`flag`]; availability in [`flag::AVAIL`] and [`flag::USED`].
    pub flags: U16,
}

const _: () = assert!(size_of::<PackedDescriptor>() == 16);

/// Descriptor flags (2.7.5, 2.8.13).
pub mod flag {
    /// The buffer continues.
    pub const NEXT: u16 = 1;
    /// The device writes it (else it reads it).
    pub const WRITE: u16 = 2;
    /// The buffer holds a table of descriptors.
    pub const INDIRECT: u16 = 4;
    /// Packed: equals the driver's wrap counter when made available.
    pub const AVAIL: u16 = 1 << 7;
    /// Packed: equals the device's wrap counter when used, differs from AVAIL when available.
    pub const USED: u16 = 1 << 15;
}

/// An element of the split used ring (2.7.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UsedElement {
    /// Head of the chain.
    pub id: U32,
    /// Bytes written to it.
    pub length: U32,
}

const _: () = assert!(size_of::<UsedElement>() == 8);

/// An event suppression structure of a packed ring (2.8.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EventSuppression {
    /// Descriptor offset in bits 14:0, wrap counter in bit 15; with [`EventSuppression::DESC`] only.
    pub position: U16,
    /// One of the three constants.
    pub flags: U16,
}

const _: () = assert!(size_of::<EventSuppression>() == 4);

impl EventSuppression {
    /// RING_EVENT_FLAGS_ENABLE.
    pub const ENABLE: u16 = 0;
    /// RING_EVENT_FLAGS_DISABLE.
    pub const DISABLE: u16 = 1;
    /// RING_EVENT_FLAGS_DESC: at the position only; needs [`feature::EVENT_IDX`].
    pub const DESC: u16 = 2;
}

/// Where the parts of a split ring's two shared areas lie, in bytes from the start of each (2.7.6, 2.7.8).
pub mod split {
    /// VIRTQ_AVAIL_F_NO_INTERRUPT.
    pub const NO_INTERRUPT: u16 = 1;
    /// VIRTQ_USED_F_NO_NOTIFY.
    pub const NO_NOTIFY: u16 = 1;
    /// `flags` of the available and of the used ring.
    pub const FLAGS: usize = 0;
    /// `idx` of the available and of the used ring.
    pub const INDEX: usize = 2;
    /// First entry of either ring.
    pub const RING: usize = 4;

    /// Bytes of the descriptor table; alignment 16.
    pub const fn table_bytes(size: u16) -> usize {
        16 * size as usize
    }
    /// Bytes of the available ring; `used_event`, its last two, only exists with EVENT_IDX. Alignment 2.
    pub const fn avail_bytes(size: u16, event_idx: bool) -> usize {
        RING + 2 * size as usize + if event_idx { 2 } else { 0 }
    }
    /// Bytes of the used ring; `avail_event`, its last two, only exists with EVENT_IDX. Alignment 4.
    pub const fn used_bytes(size: u16, event_idx: bool) -> usize {
        RING + 8 * size as usize + if event_idx { 2 } else { 0 }
    }
    /// Offset of `used_event` in the available ring.
    pub const fn used_event(size: u16) -> usize {
        RING + 2 * size as usize
    }
    /// Offset of `avail_event` in the used ring.
    pub const fn avail_event(size: u16) -> usize {
        RING + 8 * size as usize
    }
}

/// Whether the other side, which asked to be told when the index passes `event`, must be told that it went from `old`
/// to `new` (2.7.7.1, `vring_need_event`).
pub const fn need_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// A position in a packed ring with its wrap counter, as vring bases and event structures carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedIndex {
    /// Slot.
    pub offset: u16,
    /// Wrap counter.
    pub wrap: bool,
}

impl PackedIndex {
    /// Both sides begin at slot 0 with wrap counter 1 (2.8.1).
    pub const START: Self = Self { offset: 0, wrap: true };

    /// From offset in bits 14:0 and wrap counter in bit 15.
    pub const fn from_bits(bits: u16) -> Self {
        Self { offset: bits & 0x7fff, wrap: bits >> 15 != 0 }
    }
    /// Offset in bits 14:0, wrap counter in bit 15.
    pub const fn bits(self) -> u16 {
        self.offset & 0x7fff | (self.wrap as u16) << 15
    }
    /// So many slots on; `count` must not exceed `size`.
    #[must_use]
    pub const fn advance(self, count: u16, size: u16) -> Self {
        let at = self.offset as u32 + count as u32;
        if at >= size as u32 {
            Self { offset: (at - size as u32) as u16, wrap: !self.wrap }
        } else {
            Self { offset: at as u16, wrap: self.wrap }
        }
    }
    /// AVAIL and USED of a descriptor that the driver makes available here.
    pub const fn avail_flags(self) -> u16 {
        if self.wrap { flag::AVAIL } else { flag::USED }
    }
    /// AVAIL and USED of a descriptor that the device marks used here.
    pub const fn used_flags(self) -> u16 {
        if self.wrap { flag::AVAIL | flag::USED } else { 0 }
    }
    /// Whether a descriptor here with these flags is available to the device.
    pub const fn is_avail(self, flags: u16) -> bool {
        flags & (flag::AVAIL | flag::USED) == self.avail_flags()
    }
    /// Whether a descriptor here with these flags has been used.
    pub const fn is_used(self, flags: u16) -> bool {
        flags & (flag::AVAIL | flag::USED) == self.used_flags()
    }
}

/// Whether going from `old` to `new` passes `event` in a packed ring of that size (2.8.7: the index arithmetic of
/// split rings, with positions of the previous round counted negative).
pub const fn packed_need_event(event: PackedIndex, new: PackedIndex, old: u16, size: u16) -> bool {
    let mut at = event.offset;
    if event.wrap != new.wrap {
        at = at.wrapping_sub(size);
    }
    need_event(at, new.offset, old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(bytes in any::<[u8; 16]>()) {
            prop_assert!(SplitDescriptor::read_from_bytes(&bytes).unwrap().as_bytes() == bytes);
            prop_assert!(PackedDescriptor::read_from_bytes(&bytes).unwrap().as_bytes() == bytes);
            prop_assert!(UsedElement::read_from_bytes(&bytes[..8]).unwrap().as_bytes() == &bytes[..8]);
            prop_assert!(EventSuppression::read_from_bytes(&bytes[..4]).unwrap().as_bytes() == &bytes[..4]);
        }

        #[test]
        fn packed_index_round_trip(bits in any::<u16>()) {
            prop_assert_eq!(PackedIndex::from_bits(bits).bits(), bits);
        }

        /// The event is due exactly when one of the steps from `old` to `new` starts at it.
        #[test]
        fn an_event_is_due_when_passed(event in any::<u16>(), old in any::<u16>(), steps in 0u16..300) {
            let new = old.wrapping_add(steps);
            let passed = (0..steps).any(|i| old.wrapping_add(i) == event);
            prop_assert_eq!(need_event(event, new, old), passed);
        }

        /// The same for packed rings, at most one round.
        #[test]
        fn a_packed_event_is_due_when_passed(size in 1u16..300, start in 0u16..300, wrap: bool, steps in 0u16..300, at in 0u16..300) {
            let (start, steps, at) = (start % size, steps % (size + 1), at % size);
            let old = PackedIndex { offset: start, wrap };
            let new = old.advance(steps, size);
            // The driver asks for a position of the current round: from `old` on.
            let event = old.advance(at, size);
            let passed = at < steps;
            let from = if old.wrap == new.wrap { old.offset } else { old.offset.wrapping_sub(size) };
            prop_assert_eq!(packed_need_event(event, new, from, size), passed);
        }
    }

    #[test]
    fn availability_follows_the_wrap_counter() {
        let first = PackedIndex::START;
        assert!(first.is_avail(flag::AVAIL) && !first.is_avail(0) && !first.is_avail(flag::AVAIL | flag::USED));
        assert!(first.is_used(flag::AVAIL | flag::USED));
        let second = first.advance(4, 4);
        assert_eq!(second, PackedIndex { offset: 0, wrap: false });
        assert!(second.is_avail(flag::USED) && !second.is_avail(flag::AVAIL | flag::USED));
        assert!(second.is_used(0));
    }
}
