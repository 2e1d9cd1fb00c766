//! One unit of array work: a plane, or a die whose planes work only together.
//!
//! Its operations run one after the other in the order in which they are booked, so a next free time says all there is to
//! say, except for the tail that may still move: programs and erases whose end nobody was told, and which a read may
//! push back.
//!
//! ```text
//!            firm     soft              now                free
//!   ##########|        |=================|=====================|     # told: stays     = open: may move
//!                                        |stop|rrrrrr|               a read stops it ...
//!   ##########|        |=================|           |=====================|   ... and it goes on `resume` later
//! ```
//! A told operation behind the tail pins it, for its own end was computed from the tail's.

use crate::timing::Suspend;
use weir_units::Nanos;

/// Whether the end of an operation can still move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Its end is somebody's answer: it stays.
    Told,
    /// Nobody was told: a read may suspend it, if the chip can ([`Suspend`]), and its end then moves.
    Open,
}

/// When a unit of array work is free. All times in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Lun {
    /// The array is idle from here on.
    pub free: u64,
    /// The cache register is, too (double registers).
    pub cache: u64,
    /// The start of the tail that may move; `free` or later: there is none.
    soft: u64,
    /// For how long the array worked or held a page.
    pub busy: u64,
    /// The channel that it is on.
    pub channel: u32,
}

/// What belongs to the tail of a [`Lun`], apart because it is rarely looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    /// The end of the last operation before it.
    firm: u64,
    /// The end of the reads for which it is suspended.
    resume: u64,
    /// How long its slowest operation takes to stop.
    stop: u64,
    /// By how much reads have pushed it and its predecessors.
    pushed: u64,
    /// By how much they had when it began.
    begun: u64,
    /// Which one it is.
    number: u32,
    /// How many more reads may push it.
    credits: u32,
}

/// Where a read may cut in.
pub(crate) struct Cut {
    /// The read may begin.
    pub start: u64,
    /// What the tail would go on from, were it not for the read.
    base: u64,
}

impl Lun {
    /// Idle, on a channel.
    pub fn on(channel: u32) -> Lun {
        Lun { free: 0, cache: 0, soft: 0, busy: 0, channel }
    }

    /// The array is held until then although its own work is done.
    pub fn hold(&mut self, until: Nanos) {
        if self.soft >= self.free {
            self.soft = self.soft.max(until.0);
        }
        self.free = self.free.max(until.0);
    }

    /// Whether a tail might make room for a read that comes now.
    #[inline]
    pub fn has_tail(&self, now: u64) -> bool {
        self.soft < self.free && now < self.free
    }

    /// Everything booked stays where it is.
    #[inline]
    pub fn settle(&mut self) -> Nanos {
        self.soft = self.free;
        Nanos(self.free)
    }

    /// An operation from `start` to `free` was added behind `before`; it may move, as `stop` says how long stopping takes.
    pub fn added(&mut self, tail: &mut Tail, now: u64, before: u64, start: u64, stop: Nanos, limit: u32) {
        if self.soft >= before || before <= now {
            self.soft = start;
            let (pushed, number) = (tail.pushed, tail.number.wrapping_add(1));
            *tail = Tail { firm: before, pushed, begun: pushed, number, ..Tail::default() };
        }
        tail.stop = tail.stop.max(stop.0);
        tail.credits = tail.credits.saturating_add(if limit == 0 { u32::MAX } else { limit });
    }

    /// Where a read that comes now may cut into the tail; `None`: it waits for its end.
    pub fn cut(&self, tail: &Tail, now: u64) -> Option<Cut> {
        if tail.credits == 0 {
            return None;
        }
        if now < self.soft {
            return Some(Cut { start: now.max(tail.firm), base: self.soft });
        }
        if now < tail.resume {
            return Some(Cut { start: tail.resume, base: tail.resume });
        }
        // Not worth stopping for what is left.
        (self.free - now > tail.stop).then(|| Cut { start: now + tail.stop, base: now })
    }

    /// The read that cut in holds the array until `over`: the tail moves.
    pub fn push(&mut self, tail: &mut Tail, now: u64, cut: &Cut, over: u64) {
        let shift = over.saturating_sub(cut.base);
        if now < self.soft {
            self.soft += shift;
            tail.firm = over;
        }
        self.free += shift;
        if self.cache > now {
            self.cache += shift;
        }
        tail.resume = over;
        tail.pushed += shift;
        if shift > 0 && tail.credits != u32::MAX {
            tail.credits -= 1;
        }
    }

    /// What is busy and lies ahead of `now`, taking the last stretch as unbroken.
    pub fn busy_until(&self, now: Nanos) -> Nanos {
        Nanos(self.busy.saturating_sub(self.free.saturating_sub(now.0)))
    }

    /// States the invariants.
    pub fn check(&self, tail: &Tail) {
        let told_first = self.soft >= self.free || tail.firm <= self.soft;
        assert!(told_first, "the tail at {} begins before {}, when told work ends", self.soft, tail.firm);
    }
}

/// The end of work as it was when it was booked: what to keep until somebody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenEnd {
    /// The end that was answered.
    pub done: Nanos,
    /// The plane.
    pub plane: u32,
    /// Its tail, and by how much that and its predecessors had been pushed; [`STAYS`]: it will not move.
    number: u32,
    pushed: u64,
}

/// Work that was told from the start.
const STAYS: u64 = u64::MAX;

impl OpenEnd {
    /// Of work that was just booked.
    pub(crate) fn new(plane: u32, done: Nanos, lun: &Lun, tail: &Tail) -> OpenEnd {
        let pushed = if lun.soft < lun.free { tail.pushed } else { STAYS };
        OpenEnd { done, plane, number: tail.number, pushed }
    }

    /// Of nothing.
    pub(crate) fn stays(plane: u32, done: Nanos) -> OpenEnd {
        OpenEnd { done, plane, number: 0, pushed: STAYS }
    }

    /// Whether it will not move.
    pub(crate) fn is_told(&self) -> bool {
        self.pushed == STAYS
    }

    /// The same, as things stand now.
    pub(crate) fn renewed(&self, lun: &Lun, tail: &Tail) -> OpenEnd {
        let pushed = if tail.number == self.number && !self.is_told() { tail.pushed } else { STAYS };
        OpenEnd { done: self.latest(lun, tail), pushed, ..*self }
    }

    /// When that work is over at the latest.
    pub(crate) fn latest(&self, lun: &Lun, tail: &Tail) -> Nanos {
        // A later tail's pushes are not its own.
        let now = if tail.number == self.number { tail.pushed } else { tail.begun };
        let pushed = Nanos(now.saturating_sub(self.pushed));
        self.done.saturating_add(pushed).min(Nanos(lun.free)).max(self.done)
    }
}

impl Suspend {
    /// How long an open program takes to stop.
    pub(crate) fn of_program(&self, promise: Promise) -> Option<Nanos> {
        if promise == Promise::Open { self.program } else { None }
    }

    /// How long an open erase takes to stop.
    pub(crate) fn of_erase(&self, promise: Promise) -> Option<Nanos> {
        if promise == Promise::Open { self.erase } else { None }
    }
}
