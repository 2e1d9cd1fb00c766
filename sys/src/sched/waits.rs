//! When a thread waited for its core, found out with few system calls.
//!
//! The kernel only counts how long a thread has waited in all ([`RunDelay`]), and asking costs a system call. A thread that
//! spins looks at the clock anyway: while it waits, two looks are far apart. So the longest gap between two looks since the
//! kernel was last asked is where the wait lies that it reports next:
//!
//! ```text
//!   looks    | | | | |            | | | |        asked: after a gap of 50 us or more, once a millisecond,
//!                    └─ the gap ──┘     └─ ask           and when somebody wants to know about less
//! ```
//! What is not certain counts as no wait: in a gap the thread is taken to have worked first and waited then, a wait is never
//! longer than its gap, and gaps below 50 us that nobody asked about may be forgotten.

use super::RunDelay;
use std::collections::VecDeque;
use weir_units::Nanos;

/// A gap in which the thread may well have lost its core; asked about at once.
const LONG: Nanos = Nanos::from_micros(50);
/// So often the kernel is asked although nothing happened, so that many small waits do not add up to one.
const FRESH: Nanos = Nanos::from_millis(1);
/// At least so far apart are two questions about gaps that are not long.
const APART: Nanos = Nanos::from_micros(20);
/// Waits that are remembered.
const KEPT: usize = 64;

/// Counts how long its thread has waited.
pub trait Delay {
    /// Since the thread began; `None` where that cannot be known.
    fn total(&mut self) -> Option<Nanos>;
}

impl Delay for Option<RunDelay> {
    fn total(&mut self) -> Option<Nanos> {
        self.as_ref()?.read().ok()
    }
}

/// A wait of `len` somewhere between `from` and `to`.
#[derive(Clone, Copy, Debug)]
struct Wait {
    from: Nanos,
    to: Nanos,
    len: Nanos,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Waits<D = Option<RunDelay>> {
    delay: D,
    total: Nanos,
    squares: u128,
    asked: Nanos,
    last: Nanos,
    /// The longest gap since the kernel was asked.
    gap: (Nanos, Nanos),
    found: VecDeque<Wait>,
}

impl Waits {
    /// Of the calling thread, which looks at the clock from now on. Where the kernel keeps no statistics no wait is found.
    pub fn of_this_thread(now: Nanos) -> Self {
        Self::new(RunDelay::of_this_thread().ok(), now)
    }

    /// Whether the kernel says how long threads wait.
    pub fn is_known(&self) -> bool {
        self.delay.is_some()
    }
}

impl<D: Delay> Waits<D> {
    /// By this count.
    pub fn new(mut delay: D, now: Nanos) -> Self {
        let total = delay.total().unwrap_or_default();
        Self { delay, total, squares: 0, asked: now, last: now, gap: (now, now), found: VecDeque::with_capacity(KEPT) }
    }

    /// The thread looks at the clock. To be called with every clock reading of its loop.
    #[inline]
    pub fn look(&mut self, now: Nanos) {
        let (from, len) = (self.last, now.saturating_sub(self.last));
        self.last = now;
        if len > self.gap.1.saturating_sub(self.gap.0) {
            self.gap = (from, now);
        }
        if len >= LONG || now.saturating_sub(self.asked) >= FRESH {
            self.ask(now);
        }
    }

    /// The thread was asleep until it was woken, and looks at the clock again: what it waited, it waited at the end.
    pub fn woke(&mut self, now: Nanos) {
        let slept = now.saturating_sub(self.last);
        if slept < LONG {
            return self.look(now);
        }
        self.last = now;
        let len = self.waited(now).min(slept);
        self.note(Wait { from: now.saturating_sub(len), to: now, len });
    }

    /// The thread was asleep most of the time and awake for short whiles between, without looks: whatever it waited then, it is not
    /// known when.
    pub fn rested(&mut self, now: Nanos) {
        self.last = now;
        self.waited(now);
    }

    /// How much of the time from `from` to the last look the thread spent waiting, as far as is known.
    pub fn since(&mut self, from: Nanos) -> Nanos {
        let now = self.last;
        if self.gap.1 > from && now.saturating_sub(self.asked) >= APART {
            self.ask(now);
        }
        let part = |w: &Wait| w.len.saturating_sub(from.saturating_sub(w.from));
        let sum = self.found.iter().rev().take_while(|w| w.to > from).fold(Nanos(0), |s, w| s.saturating_add(part(w)));
        sum.min(now.saturating_sub(from))
    }

    /// All the waiting of the thread so far, up to when the kernel was last asked.
    pub fn total(&self) -> Nanos {
        self.total
    }

    /// The squares of all waits that were found, added; nanoseconds squared. What comes at any moment of a time `t` is late by a wait in which that
    /// moment lies: by the squares of its waits / 2t, in the mean.
    pub fn squares(&self) -> u128 {
        self.squares
    }

    #[cold]
    fn ask(&mut self, now: Nanos) {
        let (from, to) = self.gap;
        let len = self.waited(now).min(to.saturating_sub(from));
        self.note(Wait { from, to, len });
    }

    /// Since the kernel was last asked.
    fn waited(&mut self, now: Nanos) -> Nanos {
        let before = self.total;
        self.total = self.delay.total().unwrap_or(before).max(before);
        (self.asked, self.gap) = (now, (now, now));
        self.total.saturating_sub(before)
    }

    fn note(&mut self, wait: Wait) {
        if wait.len == Nanos(0) {
            return;
        }
        self.squares = self.squares.saturating_add(u128::from(wait.len.0).pow(2));
        if self.found.len() == KEPT {
            self.found.pop_front();
        }
        self.found.push_back(wait);
    }
}

#[cfg(test)]
#[path = "waits_tests.rs"]
mod tests;
