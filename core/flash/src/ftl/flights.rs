//! Programs that power loss may still undo.

use crate::scheduler::When;
use alloc::collections::VecDeque;
use weir_units::Nanos;

/// A program that power loss may undo until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flight {
    pub(super) done: Nanos,
    /// The program's number, where its end is not known in advance; see [`Flights::number`].
    pub(super) number: u64,
    pub(super) lpn: u32,
    pub(super) unit: u32,
    /// Where the version before lay, or [`NONE`].
    pub(super) old: u32,
    /// Of its page: the unit may have been erased and programmed again since.
    pub(super) sequence: u64,
    /// Writes of the host that this version stands for: the buffer keeps the last of several.
    pub(super) writes: u32,
}

/// Programs of data that was acknowledged before it was in flash, oldest first. As many as the buffer has units.
#[derive(Clone, Debug)]
pub(crate) struct Flights {
    pub(super) queue: VecDeque<Flight>,
    limit: usize,
    /// The number of the next program whose end is not known in advance.
    pub(crate) number: u64,
}

impl Flights {
    /// Remembers up to `limit`; 0: none, where nothing is acknowledged early or the buffer outlives the power.
    pub(crate) fn new(limit: u32) -> Self {
        Flights { queue: VecDeque::with_capacity(limit as usize), limit: limit as usize, number: 0 }
    }

    /// A unit's program begins, that of a page with that sequence number.
    #[inline]
    pub(crate) fn take_off(&mut self, lpn: u32, unit: u32, old: u32, sequence: u64) {
        if self.limit == 0 {
            return;
        }
        if self.queue.len() == self.limit {
            self.queue.pop_front();
        }
        self.queue.push_back(Flight { done: Nanos::NEVER, number: self.number, lpn, unit, old, sequence, writes: 1 });
    }

    /// The last `n` are done at `done`; where that is not known, [`Flights::landed`] will tell.
    #[inline]
    pub(crate) fn land(&mut self, n: usize, done: When) {
        let (Some(done), 1..) = (done.known(), self.limit) else { return };
        self.queue.iter_mut().rev().take(n).for_each(|f| f.done = done);
    }

    /// The program of that number is done.
    pub(crate) fn landed(&mut self, number: u64, done: Nanos) {
        let first = self.queue.partition_point(|f| f.number < number);
        self.queue.iter_mut().skip(first).take_while(|f| f.number == number).for_each(|f| f.done = done);
    }

    /// The last ones stand for so many writes each.
    pub(crate) fn count(&mut self, writes: &[u32]) {
        for (flight, n) in self.queue.iter_mut().rev().zip(writes.iter().rev()) {
            flight.writes = *n;
        }
    }

    /// The units of programs that are not done at `now`.
    pub(crate) fn under_way(&self, now: Nanos) -> impl Iterator<Item = u32> + '_ {
        self.queue.iter().filter(move |f| f.done > now).map(|f| f.lpn)
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }
}

/// A unit whose newest writes are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lost {
    /// The logical unit.
    pub lpn: u32,
    /// How many of its writes, counted from the newest, are undone. (Trims survive and do not count.)
    pub writes: u32,
}
