//! When a shared bus is taken: intervals, not a next free time.
//!
//! A read books its transfer for the moment at which the array will be done. If that moved the bus's next free time,
//! everything booked later would queue behind a transfer that has not begun, and eight reads of 25 us on one channel would
//! take 8 * 90 us instead of 25 + 8 * 65 (the trap of FEMU's pull request 201). So the bus keeps what is taken and fills the
//! holes.
//!
//! ```text
//! floor      now
//!   |         |   at
//!   |--###----#####---##------##########        intervals: disjoint, sorted, merged where they touch
//!                    ^ the first hole after `at` that is long enough
//! ```
//! A booking after all others costs O(1). Otherwise it is looked for among the newest intervals, a window at a time, back over
//! those that end after `at`; a saturated bus merges into a few of them. There are at most [`Calendar::INTERVALS`]: beyond that the oldest
//! are forgotten if they are over (and nothing may be booked before their end any more, `floor`), else the smallest hole
//! is closed. Either way a booking may come later than it could, but two never overlap, and none later than the end of all.
//! Holes shorter than the `grain`, the shortest booking that is usual, are closed at once: they only lengthen the walk.

use alloc::boxed::Box;
use alloc::vec;
use weir_units::Nanos;

/// From `start` up to `end`, exclusively, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Interval {
    start: u64,
    end: u64,
}

/// The newest intervals, among which most bookings fall: they are gone through without a branch.
const WINDOW: usize = 8;

/// How many of them end after `at`. How far back that is nobody can guess: counting without a branch is cheaper than
/// stopping in time.
#[inline]
fn count(near: &[Interval; WINDOW], at: u64) -> usize {
    near.iter().map(|taken| usize::from(taken.end > at)).sum()
}

/// What is taken of one bus.
#[derive(Clone, Debug)]
pub struct Calendar {
    /// The live ones are `slots[first..last]`; appending runs to the end, then they move back to the front.
    slots: Box<[Interval]>,
    first: usize,
    last: usize,
    most: usize,
    grain: u64,
    /// Nothing is booked before it: what was taken there is forgotten.
    floor: u64,
    /// The sum of all bookings.
    busy: u64,
}

impl Calendar {
    /// Intervals that a bus remembers.
    pub const INTERVALS: usize = 64;

    /// A free bus that remembers up to `most` intervals (2 at least). Bookings shorter than `grain` may come later than they
    /// could; 0 and 1 leave every hole open.
    pub fn new(most: usize, grain: Nanos) -> Calendar {
        let most = most.max(2);
        let slots = vec![Interval::default(); 4 * most].into_boxed_slice();
        Calendar { slots, first: 0, last: 0, most, grain: grain.0.max(1), floor: 0, busy: 0 }
    }

    /// Takes the bus for `length` in the first hole from `at` on, and says when that begins. `now` is the caller's present:
    /// what is over by then may be forgotten.
    #[inline]
    pub fn book(&mut self, now: Nanos, at: Nanos, length: Nanos) -> Nanos {
        let at = at.0.max(self.floor);
        if length.0 == 0 {
            return Nanos(at);
        }
        self.busy += length.0;
        let end = at.saturating_add(length.0);
        if self.first == self.last {
            return Nanos(self.append(now.0, at, end));
        }
        let newest = &mut self.slots[self.last - 1];
        if at < newest.end {
            return Nanos(self.fill(now.0, at, length.0));
        }
        if at - newest.end < self.grain {
            newest.end = end;
            return Nanos(at);
        }
        Nanos(self.append(now.0, at, end))
    }

    /// When the last booking ends.
    pub fn free_at(&self) -> Nanos {
        Nanos(if self.first == self.last { self.floor } else { self.slots[self.last - 1].end })
    }

    /// For how long the bus was taken up to `now`: all bookings, less what lies ahead (closed holes included).
    pub fn busy_until(&self, now: Nanos) -> Nanos {
        let live = &self.slots[self.first..self.last];
        let ahead = live.iter().rev().take_while(|i| i.end > now.0).map(|i| i.end - i.start.max(now.0));
        Nanos(self.busy.saturating_sub(ahead.sum()))
    }

    fn append(&mut self, now: u64, start: u64, end: u64) -> u64 {
        if self.last == self.slots.len() || self.last - self.first == self.most {
            self.make_room(now);
        }
        // Making room may have closed the hole before `start`, never one at or after it.
        self.slots[self.last] = Interval { start, end };
        self.last += 1;
        start
    }

    /// The first hole from `at` on, somewhere before the newest interval's end.
    #[inline]
    fn fill(&mut self, now: u64, at: u64, length: u64) -> u64 {
        let end = at.saturating_add(length);
        let room = self.last < self.slots.len() && self.last - self.first < self.most;
        let near = if room { self.slots[self.first..=self.last].last_chunk_mut::<{ WINDOW + 1 }>() } else { None };
        if let Some(near) = near {
            let i = near[..WINDOW].first_chunk().map_or(0, |near| WINDOW - count(near, at));
            if i > 0 && near[i].start >= end {
                let before = at - near[i - 1].end < self.grain;
                let after = near[i].start - end < self.grain;
                if !before && !after {
                    // The same for what moves up, from the newest down.
                    for to in (1..=WINDOW).rev() {
                        near[to] = if to > i { near[to - 1] } else { near[to] };
                    }
                    near[i] = Interval { start: at, end };
                    self.last += 1;
                    return at;
                }
                if !(before && after) {
                    near[i - 1].end = if before { end } else { near[i - 1].end };
                    near[i].start = if after { at } else { near[i].start };
                    return at;
                }
            }
        }
        self.fill_far(now, at, length)
    }

    /// The same, however far back and however full.
    fn fill_far(&mut self, now: u64, at: u64, length: u64) -> u64 {
        let live = &self.slots[self.first..self.last];
        // All from here on end after `at`: found by a window at a time, then within one.
        let mut over = live.len();
        while over > WINDOW && live[over - WINDOW].end > at {
            over -= WINDOW;
        }
        let mut i = match live[..over].last_chunk::<WINDOW>() {
            Some(near) => over - count(near, at),
            None => live[..over].partition_point(|i| i.end <= at),
        };
        let mut start = at;
        while i < live.len() && live[i].start < start.saturating_add(length) {
            start = live[i].end;
            i += 1;
        }
        self.insert(now, self.first + i, Interval { start, end: start.saturating_add(length) });
        start
    }

    /// Puts a disjoint interval before `slots[i]`, merging it with those that it touches or nearly so.
    fn insert(&mut self, now: u64, i: usize, new: Interval) {
        let joins_before = i > self.first && new.start - self.slots[i - 1].end < self.grain;
        let joins_after = i < self.last && self.slots[i].start - new.end < self.grain;
        match (joins_before, joins_after) {
            (true, true) => {
                self.slots[i - 1].end = self.slots[i].end;
                self.slots.copy_within(i + 1..self.last, i);
                self.last -= 1;
            }
            (true, false) => self.slots[i - 1].end = new.end,
            (false, true) => self.slots[i].start = new.start,
            (false, false) => self.push_into(now, i, new),
        }
    }

    fn push_into(&mut self, now: u64, i: usize, new: Interval) {
        if self.last == self.slots.len() || self.last - self.first == self.most {
            self.make_room(now);
            // Indices have moved, and what the new one touches may have been closed around it.
            let live = &self.slots[self.first..self.last];
            let i = self.first + live.partition_point(|s| s.end <= new.start);
            let inside = i < self.last && self.slots[i].start <= new.start;
            if !inside {
                self.insert(now, i, new);
            }
            return;
        }
        self.slots.copy_within(i..self.last, i + 1);
        self.slots[i] = new;
        self.last += 1;
    }

    /// Makes room for one more interval, in number and at the end of the slots.
    #[cold]
    fn make_room(&mut self, now: u64) {
        if self.last - self.first == self.most {
            // Half of it at once, so that the next bookings find room.
            let oldest = &self.slots[self.first..self.first + self.most.div_ceil(2)];
            let over = oldest.iter().take_while(|i| i.end <= now).count();
            if let Some(last) = over.checked_sub(1) {
                self.floor = oldest[last].end;
                self.first += over;
            } else {
                self.close_smallest_hole();
            }
        }
        if self.last == self.slots.len() {
            self.slots.copy_within(self.first..self.last, 0);
            self.last -= self.first;
            self.first = 0;
        }
    }

    fn close_smallest_hole(&mut self) {
        let hole = |i: &usize| self.slots[i + 1].start - self.slots[*i].end;
        if let Some(i) = (self.first..self.last - 1).min_by_key(hole) {
            self.slots[i].end = self.slots[i + 1].end;
            self.slots.copy_within(i + 2..self.last, i + 1);
            self.last -= 1;
        }
    }

    /// States the invariants: intervals are sorted, disjoint, not touching, not empty, and above the floor.
    pub fn check(&self) {
        let live = &self.slots[self.first..self.last];
        assert!(live.len() <= self.most, "{} intervals, at most {}", live.len(), self.most);
        assert!(live.iter().all(|i| i.start < i.end), "an empty interval in {live:?}");
        assert!(live.windows(2).all(|w| w[0].end + self.grain <= w[1].start), "unsorted or touching: {live:?}");
        assert!(live.first().is_none_or(|i| i.start >= self.floor), "below the floor {}: {live:?}", self.floor);
    }
}
