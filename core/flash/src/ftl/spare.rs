//! What the spare areas know, and what power loss takes away.

use crate::ftl::NONE;
use alloc::collections::VecDeque;
use weir_units::Nanos;

/// A program that power loss may undo until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flight {
    pub(crate) done: Nanos,
    pub(crate) lpn: u32,
    pub(crate) unit: u32,
    /// Where the version before lay, or [`NONE`].
    pub(crate) old: u32,
    /// Writes of the host that this version stands for: the buffer keeps the last of several.
    pub(crate) writes: u32,
}

/// Programs of data that was acknowledged before it was in flash, oldest first. As many as the buffer has units.
#[derive(Clone, Debug)]
pub(crate) struct Flights {
    queue: VecDeque<Flight>,
    limit: usize,
}

impl Flights {
    /// Remembers up to `limit`; 0: none, where nothing is acknowledged early or the buffer outlives the power.
    pub(crate) fn new(limit: u32) -> Self {
        Flights { queue: VecDeque::with_capacity(limit as usize), limit: limit as usize }
    }

    /// A unit's program begins.
    #[inline]
    pub(crate) fn take_off(&mut self, lpn: u32, unit: u32, old: u32) {
        if self.limit == 0 {
            return;
        }
        if self.queue.len() == self.limit {
            self.queue.pop_front();
        }
        self.queue.push_back(Flight { done: Nanos::NEVER, lpn, unit, old, writes: 1 });
    }

    /// The last `n` are done at `done`.
    #[inline]
    pub(crate) fn land(&mut self, n: usize, done: Nanos) {
        if self.limit == 0 {
            return;
        }
        self.queue.iter_mut().rev().take(n).for_each(|f| f.done = done);
    }

    /// The last ones stand for so many writes each.
    pub(crate) fn count(&mut self, writes: &[u32]) {
        for (flight, n) in self.queue.iter_mut().rev().zip(writes.iter().rev()) {
            flight.writes = *n;
        }
    }

    /// What is not done at `now`, newest first; forgets everything.
    pub(crate) fn cut(&mut self, now: Nanos) -> alloc::vec::Vec<Flight> {
        let flying = self.queue.iter().rev().filter(|f| f.done > now && f.unit != NONE).copied().collect();
        self.queue.clear();
        flying
    }
}
