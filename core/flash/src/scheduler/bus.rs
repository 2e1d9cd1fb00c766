//! One channel: who holds it, and who wants it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// What the bus is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Command and address of a read or an erase.
    Command(u32),
    /// Command and data of a program, or a piece of that.
    Load(u32),
    /// Data of a read, or a piece of that.
    Out(u32),
}

impl Hold {
    pub(crate) fn operation(self) -> u32 {
        let (Hold::Command(id) | Hold::Load(id) | Hold::Out(id)) = self;
        id
    }
}

/// A target that wants the bus for a command or a program's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BusWaiter {
    pub(crate) since: u64,
    pub(crate) target: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Bus {
    pub(crate) holder: Option<Hold>,
    /// Until then.
    until: u64,
    /// Reads whose data is ready, and since when.
    pub(crate) outs: VecDeque<(u64, u32)>,
    /// In the order in which they began to want it.
    entries: Vec<BusWaiter>,
    /// The target whose turn it is, where they take turns.
    turn: u32,
    busy: u64,
}

impl Bus {
    /// A free one that was taken for so long.
    pub(crate) fn used_for(busy: u64) -> Bus {
        Bus { busy, ..Bus::default() }
    }

    pub(crate) fn list(&mut self, since: u64, target: u32) {
        self.entries.push(BusWaiter { since, target });
    }

    /// Who has wanted it for longest: a place in the list, as the next two.
    #[inline]
    pub(crate) fn longest(&self) -> Option<usize> {
        (!self.entries.is_empty()).then_some(0)
    }

    /// Whether data of a read has waited for at least as long as who else does.
    pub(crate) fn is_out_longest(&self) -> bool {
        let longest = self.entries.first();
        self.outs.front().is_some_and(|(since, _)| longest.is_none_or(|entry| *since <= entry.since))
    }

    /// The first for which this holds.
    #[inline]
    pub(crate) fn first(&self, is: impl Fn(u32) -> bool) -> Option<usize> {
        self.entries.iter().position(|entry| is(entry.target))
    }

    /// The next in turn: by their numbers, from the one after the last on.
    #[inline]
    pub(crate) fn in_turn(&self) -> Option<usize> {
        let turns = self.entries.iter().map(|entry| entry.target.wrapping_sub(self.turn));
        turns.enumerate().min_by_key(|(_, turn)| *turn).map(|(at, _)| at)
    }

    /// The one at that place is served.
    #[inline]
    pub(crate) fn take(&mut self, at: usize) -> u32 {
        let BusWaiter { target, .. } = self.entries.remove(at);
        self.turn = target.wrapping_add(1);
        target
    }

    pub(crate) fn hold(&mut self, now: u64, hold: Hold, time: u64) {
        (self.holder, self.until) = (Some(hold), now + time);
        self.busy += time;
    }

    pub(crate) fn release(&mut self) -> Option<Hold> {
        self.holder.take()
    }

    /// For how long it was taken up to `now`.
    pub(crate) fn busy_until(&self, now: u64) -> u64 {
        self.busy - if self.holder.is_some() { self.until.saturating_sub(now) } else { 0 }
    }

    pub(crate) fn wants(&self) -> Vec<u32> {
        self.entries.iter().map(|entry| entry.target).collect()
    }
}
