//! What happens when: events in the order of time, equal times in the order in which they were pushed.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Bits of a key that name the place of its event; those above are its number, which gives equal times their order.
const PLACE: u32 = 24;

/// The end of a list.
const NIL: u32 = u32::MAX;

/// The near future: so many spans of so many bits of nanoseconds. Most events are transfers and reads, a few microseconds ahead.
const SPANS: u64 = 64;
const SPAN_BITS: u32 = 12;

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    event: E,
    /// The one that was pushed right after it, for the same time.
    then: u32,
}

/// Events to come, as keys of 16 bytes, whatever an event is: the time in the upper half, number and place below. Those of the near future lie in
/// spans, those beyond it in a heap. Nothing comes between events that are pushed one after the other for the same time, so only the
/// first of them has a key.
#[derive(Clone, Debug)]
pub(crate) struct Agenda<E> {
    /// The least of all keys, or [`NEVER`].
    head: u128,
    /// By a span's number modulo [`SPANS`]: its keys; and which have some.
    near: [Vec<u128>; SPANS as usize],
    filled: u64,
    far: BinaryHeap<Reverse<u128>>,
    /// The number of the span in which the last event was.
    span: u64,
    entries: Vec<Entry<E>>,
    free: Vec<u32>,
    number: u64,
    /// The newest, and its time.
    newest: (u64, u32),
    /// What is next, before all that have keys, and its time.
    follower: (u64, u32),
}

/// No key.
const NEVER: u128 = u128::MAX;

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Agenda {
            head: NEVER,
            near: [const { Vec::new() }; SPANS as usize],
            filled: 0,
            far: BinaryHeap::new(),
            span: 0,
            entries: Vec::new(),
            free: Vec::new(),
            number: 0,
            newest: (0, NIL),
            follower: (0, NIL),
        }
    }
}

impl<E: Copy> Agenda<E> {
    /// That happens at `at`, not before what was popped last. At most 2^24 events wait at a time.
    #[inline]
    pub(crate) fn push(&mut self, at: u64, event: E) {
        debug_assert!(at >= self.follower.0, "{at} is over");
        let place = self.put(event);
        let (time, newest) = core::mem::replace(&mut self.newest, (at, place));
        if newest != NIL && time == at {
            self.entries[newest as usize].then = place;
            return;
        }
        let key = u128::from(at) << 64 | u128::from(self.number << PLACE | u64::from(place));
        self.number += 1;
        if key < self.head {
            let later = core::mem::replace(&mut self.head, key);
            if later != NEVER {
                self.keep(later);
            }
        } else {
            self.keep(key);
        }
    }

    /// Keeps a key that is not the least.
    #[inline]
    fn keep(&mut self, key: u128) {
        let span = (key >> 64) as u64 >> SPAN_BITS;
        if span - self.span >= SPANS {
            return self.far.push(Reverse(key));
        }
        self.near[(span % SPANS) as usize].push(key);
        self.filled |= 1 << (span % SPANS);
    }

    /// The least key that is kept, which is kept no longer.
    #[inline]
    fn least(&mut self) -> u128 {
        let far = self.far.peek().map_or(NEVER, |Reverse(key)| *key);
        if self.filled == 0 {
            self.far.pop();
            return far;
        }
        // No span before the last event's has a key.
        let turn = (self.span % SPANS) as u32;
        let span = (self.filled.rotate_right(turn).trailing_zeros() + turn) as usize % SPANS as usize;
        let keys = &mut self.near[span];
        let (mut at, mut least) = (0, keys[0]);
        for (i, key) in keys.iter().enumerate().skip(1) {
            if *key < least {
                (at, least) = (i, *key);
            }
        }
        if far < least {
            self.far.pop();
            return far;
        }
        keys.swap_remove(at);
        if keys.is_empty() {
            self.filled &= !(1 << span);
        }
        least
    }

    #[inline]
    fn put(&mut self, event: E) -> u32 {
        let entry = Entry { event, then: NIL };
        if let Some(place) = self.free.pop() {
            self.entries[place as usize] = entry;
            return place;
        }
        self.entries.push(entry);
        debug_assert!(self.entries.len() < 1 << PLACE, "{} events wait", self.entries.len());
        self.entries.len() as u32 - 1
    }

    /// When the next one happens.
    #[inline]
    pub(crate) fn first(&self) -> Option<u64> {
        if self.follower.1 != NIL {
            return Some(self.follower.0);
        }
        (self.head != NEVER).then_some((self.head >> 64) as u64)
    }

    /// The next one and its time, if that is before `until`.
    #[inline]
    pub(crate) fn pop_before(&mut self, until: u64) -> Option<(u64, E)> {
        let at = self.first().filter(|at| *at < until)?;
        let place = match self.follower.1 {
            NIL => {
                let place = self.head as u32 & ((1 << PLACE) - 1);
                self.span = at >> SPAN_BITS;
                self.head = self.least();
                place
            }
            place => place,
        };
        let Entry { event, then } = self.entries[place as usize];
        self.follower = (at, then);
        if place == self.newest.1 {
            self.newest.1 = NIL;
        }
        self.free.push(place);
        Some((at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::rng::SplitMix64;

    /// A list that is searched for the earliest, and among equals for the first that came.
    fn earliest(list: &mut Vec<(u64, u32)>) -> Option<(u64, u32)> {
        let first = list.iter().enumerate().min_by_key(|(i, (at, _))| (*at, *i)).map(|(i, _)| i)?;
        Some(list.remove(first))
    }

    #[test]
    fn events_come_by_time_and_equal_ones_in_their_order() {
        let (mut agenda, mut list, mut rng, mut now) = (Agenda::default(), Vec::new(), SplitMix64::new(5), 0);
        for event in 0..20_000u32 {
            // Now, soon, within the spans, and beyond them.
            let reach = [1, 4, 20_000, 400_000, 4_000_000][rng.below(5) as usize];
            let at = now + u64::from(rng.below(reach));
            agenda.push(at, event);
            list.push((at, event));
            while rng.below(100) < 48 {
                let Some(first) = agenda.first() else { break };
                assert_eq!(agenda.pop_before(first), None, "not before its time");
                let found = agenda.pop_before(first + 1);
                assert_eq!(found, earliest(&mut list));
                now = first;
            }
        }
        while let Some(found) = agenda.pop_before(u64::MAX) {
            assert_eq!(Some(found), earliest(&mut list));
        }
        assert!(list.is_empty());
    }
}
