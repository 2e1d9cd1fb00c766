//! When a shared bus is taken, by credits: so many units in each 4 µs.
//!
//! NVMeVirt's channel model (channel_model.h, channel_model.c). A transfer begins when it is asked for, whatever else is under way, and takes
//! credits from the slot of that time on. Where slots are used up it goes on in later ones, and each slot more than a free bus would have
//! needed adds 4 µs.
//!
//! ```text
//! slots of 4 µs    |26|26| 0| 0|11|26|26...     credits left of 26
//!                        ^ 32 units from here on: 11 and 21; four slots on, where a free bus takes 32 / 26 = 1: 3 * 4 µs
//! ```

use crate::array::Array;
use crate::wire::Wire;
use alloc::collections::VecDeque;
use weir_units::Nanos;

/// What is left of one bus.
#[derive(Clone, Debug)]
pub struct CreditRing {
    wire: Wire,
    /// The number of the first slot kept: that of the present.
    head: u64,
    /// Credits left from there on; all later slots are untouched.
    slots: VecDeque<u32>,
    /// The sum of all transfers, and when the last one is over.
    busy: u64,
    end: u64,
}

impl CreditRing {
    /// Nanoseconds of a slot.
    pub const SLOT: u64 = Wire::CREDIT_SLOT;
    /// How many slots ahead of the present are kept: 393 ms. What begins later takes no credits.
    pub const HORIZON: usize = 98_304;

    /// A free bus; `None` where the wire has no credits.
    pub fn new(wire: &Wire) -> Option<CreditRing> {
        let ring = CreditRing { wire: *wire, head: 0, slots: VecDeque::new(), busy: 0, end: 0 };
        (wire.credits() > 0).then_some(ring)
    }

    /// Moves `bytes` from `at` on, and says when they are over the bus. `now` is the caller's present: slots before it are forgotten.
    pub fn book(&mut self, now: Nanos, at: Nanos, bytes: u32) -> Nanos {
        self.go_on(now);
        let (length, units) = (self.wire.time(bytes).0, self.wire.units_of(bytes));
        let at = at.0.max(self.head * Self::SLOT);
        let walked = self.consume(at / Self::SLOT - self.head, units);
        let free = units / u64::from(self.wire.credits());
        let end = at.saturating_add(length).saturating_add(walked.saturating_sub(free) * Self::SLOT);
        self.busy += length;
        self.end = self.end.max(end);
        Nanos(end)
    }

    /// Takes all credits from `at` on for `length`; when that begins.
    pub fn seize(&mut self, now: Nanos, at: Nanos, length: Nanos) -> Nanos {
        self.go_on(now);
        let at = at.0.max(self.head * Self::SLOT);
        let last = at.saturating_add(length.0) / Self::SLOT - self.head;
        for slot in (at / Self::SLOT - self.head)..last.min(Self::HORIZON as u64) {
            self.reach(slot as usize);
            self.slots[slot as usize] = 0;
        }
        self.busy += length.0;
        self.end = self.end.max(at.saturating_add(length.0));
        Nanos(at)
    }

    /// For how long it was taken up to `now`: all transfers, less what lies ahead of the last one's end.
    pub fn busy_until(&self, now: Nanos) -> Nanos {
        Nanos(self.busy.saturating_sub(self.end.saturating_sub(now.0)))
    }

    /// States the invariants.
    pub fn check(&self) {
        assert!(self.slots.len() <= Self::HORIZON, "{} slots", self.slots.len());
        assert!(self.slots.iter().all(|left| *left <= self.wire.credits()), "more credits than a slot has");
    }

    fn go_on(&mut self, now: Nanos) {
        let slot = now.0 / Self::SLOT;
        let over = slot.saturating_sub(self.head);
        self.slots.drain(..self.slots.len().min(over as usize));
        self.head = self.head.max(slot);
    }

    /// Takes `units` credits from that slot on; how many slots further the last one came from.
    fn consume(&mut self, first: u64, units: u64) -> u64 {
        if first >= Self::HORIZON as u64 {
            return 0;
        }
        let (mut slot, mut left) = (first as usize, units);
        loop {
            self.reach(slot);
            let credits = &mut self.slots[slot];
            let some = left.min(u64::from(*credits));
            *credits -= some as u32;
            left -= some;
            if left == 0 || slot + 1 == Self::HORIZON {
                return slot as u64 - first;
            }
            slot += 1;
        }
    }

    fn reach(&mut self, slot: usize) {
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, self.wire.credits());
        }
    }
}

impl Array {
    /// `bytes` over a channel, `out` of the flash or in, from `at` on; when that ends. A program's data goes in at once, whatever
    /// `burst_bytes` says (NVMeVirt, ssd.c:362-454).
    #[cold]
    pub(crate) fn by_credits(&mut self, channel: usize, now: u64, at: u64, bytes: u32, out: bool) -> u64 {
        if !out {
            return self.rings[channel].book(Nanos(now), Nanos(at), bytes).0;
        }
        let (mut rest, mut end) = (bytes, Nanos(at));
        self.pieces.clear();
        while rest > 0 {
            let some = rest.min(self.timing.burst());
            end = self.rings[channel].book(Nanos(now), end, some);
            self.pieces.push(end);
            rest -= some;
        }
        end.0
    }

    /// Where channels are booked by credits: when the pieces of the last page that was read were off the channel.
    pub(crate) fn pieces(&self) -> &[Nanos] {
        &self.pieces
    }
}
