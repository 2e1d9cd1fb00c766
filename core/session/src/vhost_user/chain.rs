//! A descriptor chain as it was read, once, from the ring.

use crate::memory::{Memory, MemoryFault};
use core::fmt;
use weir_spec::virtqueue::flag;

/// Most descriptors in a request, header and status included. The device says `seg_max` 126, so that a driver that
/// keeps to it stays well below.
pub const MAX_CHAIN: usize = 256;

/// A piece of guest memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuestSegment {
    /// Guest physical address.
    pub address: u64,
    /// Length in bytes, never 0.
    pub len: u32,
}

/// What makes a queue unusable until the front end restarts it: nothing after it in the ring can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The ring itself cannot be accessed.
    Ring(MemoryFault),
    /// The available index moved by more than the ring's size.
    Index,
    /// A head, a `next` or a buffer identifier is not below the ring's size.
    OutOfRange,
    /// The chain loops or is longer than [`MAX_CHAIN`].
    TooLong,
    /// A descriptor of length 0.
    Empty,
    /// A readable descriptor after a writable one.
    Order,
    /// An indirect table where none may be, or of a bad length.
    Indirect,
    /// A head or buffer identifier that is still in flight.
    InFlight,
    /// A request without a byte for its status.
    NoStatus,
    /// A request without a whole header.
    NoHeader,
    /// A status byte that cannot be written, or an address that wraps around.
    Address,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Ring(fault) => return write!(f, "the ring cannot be accessed: {fault}"),
            Violation::Index => "the available index jumped by more than the ring's size",
            Violation::OutOfRange => "a descriptor index is not below the ring's size",
            Violation::TooLong => "a descriptor chain loops or is too long",
            Violation::Empty => "a descriptor has length 0",
            Violation::Order => "a readable descriptor follows a writable one",
            Violation::Indirect => "an indirect descriptor is malformed or was not negotiated",
            Violation::InFlight => "a descriptor was made available again while in flight",
            Violation::NoStatus => "a request has no byte for its status",
            Violation::NoHeader => "a request has no whole header",
            Violation::Address => "a request's status byte is not in any memory region",
        }
        .fmt(f)
    }
}

impl core::error::Error for Violation {}

impl From<MemoryFault> for Violation {
    fn from(fault: MemoryFault) -> Self {
        Violation::Ring(fault)
    }
}

/// The segments of one chain: first those the device reads, then those it writes.
#[derive(Debug)]
pub struct Chain {
    /// Head (split) or buffer identifier (packed).
    pub head: u16,
    /// Ring slots that it takes up in a packed ring.
    pub slots: u16,
    /// In a packed ring: the first of them, and the descriptor there.
    pub(super) at: u16,
    pub(super) first: (u64, u64),
    /// In a packed ring: where the next chain begins, as bits; whether only this one has shown where the ring begins.
    pub(super) next: u16,
    pub(super) is_proof: bool,
    pub(super) readable: usize,
    pub(super) total: usize,
    pub(super) segments: [GuestSegment; MAX_CHAIN],
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            head: 0,
            slots: 0,
            at: 0,
            first: (0, 0),
            next: 0,
            is_proof: false,
            readable: 0,
            total: 0,
            segments: [GuestSegment { address: 0, len: 0 }; MAX_CHAIN],
        }
    }
}

impl Chain {
    #[inline]
    pub(super) fn clear(&mut self) {
        self.readable = 0;
        self.total = 0;
    }

    /// Appends a descriptor that is no indirect one.
    #[inline]
    pub(super) fn push(&mut self, address: u64, len: u32, flags: u16) -> Result<(), Violation> {
        if len == 0 {
            return Err(Violation::Empty);
        }
        if address.checked_add(u64::from(len)).is_none() {
            return Err(Violation::Address);
        }
        let slot = self.segments.get_mut(self.total).ok_or(Violation::TooLong)?;
        if flags & flag::WRITE == 0 {
            if self.readable != self.total {
                return Err(Violation::Order);
            }
            self.readable += 1;
        }
        *slot = GuestSegment { address, len };
        self.total += 1;
        Ok(())
    }

    /// Appends what an indirect table holds. In a split ring's table the entries are chained by `next`; in a packed
    /// ring's (`sequential`) they follow each other (Virtio 1.2, 2.7.5.3 and 2.8.8).
    pub(super) fn push_indirect<M: Memory>(
        &mut self,
        memory: &M,
        address: u64,
        len: u32,
        sequential: bool,
    ) -> Result<(), Violation> {
        let count = len / 16;
        if len % 16 != 0 || count == 0 || address.checked_add(u64::from(len)).is_none() {
            return Err(Violation::Indirect);
        }
        let mut at = 0;
        for _ in 0..count {
            let (address, len, third, fourth) = entry(memory, address + 16 * u64::from(at))?;
            // Split: flags and next. Packed: an identifier that means nothing here, and flags.
            let (flags, next) = if sequential { (fourth, 0) } else { (third, fourth) };
            if flags & flag::INDIRECT != 0 {
                return Err(Violation::Indirect);
            }
            self.push(address, len, flags)?;
            if sequential {
                at += 1;
            } else if flags & flag::NEXT == 0 {
                return Ok(());
            } else {
                at = u32::from(next);
                if at >= count {
                    return Err(Violation::OutOfRange);
                }
            }
        }
        if sequential { Ok(()) } else { Err(Violation::TooLong) }
    }
}

/// A descriptor's address, length and its last two 16-bit fields, in the order in which they are stored.
#[inline]
pub(super) const fn unpack(low: u64, high: u64) -> (u64, u32, u16, u16) {
    (low, high as u32, (high >> 32) as u16, (high >> 48) as u16)
}

fn entry<M: Memory>(memory: &M, address: u64) -> Result<(u64, u32, u16, u16), Violation> {
    let bytes = u128::from_le_bytes(memory.read_entry(address)?);
    Ok(unpack(bytes as u64, (bytes >> 64) as u64))
}
