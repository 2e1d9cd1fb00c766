//! The device's side of a virtqueue, split or packed, behind one set of methods.

mod packed;
mod split;

pub(super) use packed::Packed;
pub(super) use split::Split;

use super::chain::{Chain, Violation};
use crate::memory::{Memory, MemoryFault};

/// Where a ring's three parts lie (guest addresses): for a packed ring the ring, the driver's and the device's event
/// structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingAddresses {
    pub(super) descriptors: u64,
    pub(super) driver: u64,
    pub(super) device: u64,
}

/// What was negotiated that matters to a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traits {
    pub(super) event_idx: bool,
    pub(super) indirect: bool,
}

/// One side's view of a started ring.
pub(super) trait DeviceRing<M: Memory> {
    /// Reads the next chain that is available; false when there is none. A chain whose slot cannot be taken is left.
    fn next(&mut self, memory: &M, chain: &mut Chain) -> Result<bool, Violation>;
    /// Whether `next` would find a chain, or an error.
    fn has_next(&self, memory: &M) -> bool;
    /// Hints what `next` will read of a chain that [`DeviceRing::has_next`] has seen.
    fn expect(&self, memory: &M);
    /// Hints what the next call of `next` will read.
    fn look_ahead(&self, memory: &M);
    /// Marks a chain used; seen by the driver at [`DeviceRing::publish`].
    fn push_used(&mut self, memory: &M, head: u16, slots: u16, written: u32) -> Result<(), MemoryFault>;
    /// Makes all that was marked visible; whether there was anything.
    fn publish(&mut self, memory: &M) -> Result<bool, MemoryFault>;
    /// Whether the driver wants to be notified of what was published since the last call. It waits for the published index to
    /// reach the other cores, so it is called when nothing else is urgent.
    fn wants_signal(&mut self, memory: &M) -> Result<bool, MemoryFault>;
    /// Asks the driver not to kick.
    fn quiet(&mut self, memory: &M) -> Result<(), MemoryFault>;
    /// Asks the driver to kick; whether it added something before it could know.
    fn listen(&mut self, memory: &M) -> Result<bool, MemoryFault>;
    /// What GET_VRING_BASE answers.
    fn base(&self) -> u32;
}

/// A started ring.
#[derive(Debug)]
pub(super) enum Ring<M: Memory> {
    Split(Split<M>),
    Packed(Packed<M>),
}

macro_rules! each {
    ($ring:expr, $r:ident => $do:expr) => {
        match $ring {
            Ring::Split($r) => $do,
            Ring::Packed($r) => $do,
        }
    };
}

impl<M: Memory> Ring<M> {
    pub(super) fn resolve(&mut self, memory: &M, places: &RingAddresses) -> Result<(), MemoryFault> {
        each!(self, r => r.resolve(memory, places))
    }
    #[inline]
    pub(super) fn has_next(&self, memory: &M) -> bool {
        each!(self, r => r.has_next(memory))
    }
    #[inline]
    pub(super) fn expect(&self, memory: &M) {
        each!(self, r => r.expect(memory))
    }
    #[inline]
    pub(super) fn push_used(&mut self, memory: &M, head: u16, slots: u16, written: u32) -> Result<(), MemoryFault> {
        each!(self, r => r.push_used(memory, head, slots, written))
    }
    #[inline]
    pub(super) fn publish(&mut self, memory: &M) -> Result<bool, MemoryFault> {
        each!(self, r => r.publish(memory))
    }
    #[inline]
    pub(super) fn wants_signal(&mut self, memory: &M) -> Result<bool, MemoryFault> {
        each!(self, r => r.wants_signal(memory))
    }
    pub(super) fn quiet(&mut self, memory: &M) -> Result<(), MemoryFault> {
        each!(self, r => r.quiet(memory))
    }
    pub(super) fn listen(&mut self, memory: &M) -> Result<bool, MemoryFault> {
        each!(self, r => r.listen(memory))
    }
    pub(super) fn base(&self) -> u32 {
        each!(self, r => DeviceRing::<M>::base(r))
    }
}
