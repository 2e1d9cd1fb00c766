//! The real clock.
//!
//! The kernel's way of reading it in user space waits for every load under way, which in a turn that waits for cache lines of another
//! core is longer than the reading. [`Clock`] reads the processor's time stamp counter without that wait and goes by the
//! kernel's clock once a [`WINDOW`]:
//!
//! ```text
//!   kernel's clock   ●───────────── 1 ms ────────────●───────────── …     two clocks are read, rate and origin set
//!   counter            · · ·· · · ··· · · ·· · · · ·   · · ·              the last origin plus the ticks since at that rate
//! ```

use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::fs;
use weir_units::Nanos;

/// CLOCK_MONOTONIC, read in user space (about 20 ns): the origin of every [`Nanos`] that a machine is handed in the node.
#[inline]
pub fn now() -> Nanos {
    let t = clock_gettime(ClockId::Monotonic);
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// How long the counter is trusted before the kernel's clock is read again. A rate that is wrong by the 500 ppm that the kernel may
/// adjust its clock by is half a microsecond in that time.
const WINDOW: Nanos = Nanos::from_millis(1);
/// The distance of the two readings that give the first rate.
const FIRST: Nanos = Nanos::from_micros(50);
/// The longest distance of two readings that give a rate: between those further apart the thread slept.
const MAX_READING_GAP: Nanos = Nanos::from_millis(100);
/// A rate that differs from the one before by more than this part of it is not believed: the machine was suspended or moved, or the
/// counter is not what the kernel takes it for.
const TOLERANCE: u64 = 64;
/// How far apart the two readings of one moment may be taken, as a part of [`WINDOW`] in ticks: else the thread was interrupted
/// between them.
const BRACKET: u64 = 500;
/// Bits of the fraction of [`Sync::rate`].
const FRACTION: u32 = 32;

/// A moment at which both clocks were read.
#[derive(Clone, Copy, Debug)]
struct Sync {
    ticks: u64,
    nanos: u64,
    /// Nanoseconds a tick, in 2^-32.
    rate: u64,
    /// Ticks until the next one; 0: the counter is not used.
    window: u64,
}

impl Sync {
    /// The counter is not used; the time does not run back behind `nanos`.
    const fn without_counter(nanos: u64) -> Self {
        Self { ticks: 0, nanos, rate: 0, window: 0 }
    }

    /// At a rate; `None` where it is none.
    fn at_rate(ticks: u64, nanos: u64, rate: u64) -> Option<Self> {
        let window = (u128::from(WINDOW.get()) << FRACTION).checked_div(u128::from(rate))?;
        Some(Self { ticks, nanos, rate, window: u64::try_from(window).ok()? })
    }

    /// The time at a counter value of the window.
    #[inline]
    fn at(&self, ticks: u64) -> u64 {
        // No overflow: a window of ticks at this rate is a millisecond.
        self.nanos + (((ticks - self.ticks) * self.rate) >> FRACTION)
    }

    /// The next one, with the rate between the two if `is_exact`. Time does not run backward.
    fn next(&self, ticks: u64, nanos: u64, is_exact: bool) -> Self {
        let (ticks_since, nanos_since) = (ticks.saturating_sub(self.ticks), nanos.saturating_sub(self.nanos));
        let nanos = nanos.max(self.at(self.ticks + self.window.min(ticks_since)));
        if ticks < self.ticks {
            return Self::without_counter(nanos);
        }
        if !is_exact || !(WINDOW.get()..=MAX_READING_GAP.get()).contains(&nanos_since) {
            return Self { ticks, nanos, ..*self };
        }
        let rate = rate(ticks_since, nanos_since).filter(|rate| rate.abs_diff(self.rate) <= self.rate / TOLERANCE);
        rate.and_then(|rate| Self::at_rate(ticks, nanos, rate)).unwrap_or(Self::without_counter(nanos))
    }
}

/// Nanoseconds a tick, in 2^-32.
fn rate(ticks: u64, nanos: u64) -> Option<u64> {
    (u128::from(nanos) << FRACTION).checked_div(u128::from(ticks)).and_then(|rate| u64::try_from(rate).ok())
}

/// Both clocks, and how many ticks passed while they were read. Of three readings the one that took the fewest.
fn read_both() -> (u64, u64, u64) {
    let one = || {
        let before = counter();
        let nanos = now().get();
        let ticks = counter();
        (ticks, nanos, ticks.saturating_sub(before))
    };
    let best = |a: (u64, u64, u64), b: (u64, u64, u64)| if b.2 < a.2 { b } else { a };
    best(best(one(), one()), one())
}

/// The clock of one thread that reads it often.
#[derive(Debug)]
pub(super) struct Clock(Cell<Sync>);

impl Clock {
    /// By the counter, where it runs at one rate and the kernel's own clock goes by it.
    pub(super) fn new() -> Self {
        let sync = if is_trusted() { Self::measure() } else { None };
        Self(Cell::new(sync.unwrap_or(Sync::without_counter(0))))
    }

    /// The time; see [`now`].
    #[inline]
    pub(super) fn now(&self) -> Nanos {
        let sync = self.0.get();
        if sync.window == 0 {
            return now().max(Nanos(sync.nanos));
        }
        let ticks = counter();
        if ticks.wrapping_sub(sync.ticks) < sync.window { Nanos(sync.at(ticks)) } else { self.synchronize() }
    }

    #[cold]
    fn synchronize(&self) -> Nanos {
        let (ticks, nanos, took) = read_both();
        let before = self.0.get();
        let sync = before.next(ticks, nanos, took <= before.window / BRACKET);
        if sync.window == 0 {
            tracing::debug!("the time stamp counter does not keep its rate: time is the kernel's clock from here on");
        }
        self.0.set(sync);
        Nanos(sync.nanos)
    }

    /// A first rate: the second one is better.
    fn measure() -> Option<Sync> {
        let (ticks, begun, took) = read_both();
        while now().get() < begun + FIRST.get() {}
        let (then, end, took_then) = read_both();
        let sync = Sync::at_rate(then, end, rate(then.checked_sub(ticks)?, end - begun)?)?;
        (took.max(took_then) <= sync.window / BRACKET).then_some(sync)
    }
}

/// Whether the counter runs at one rate in all states of the processor, and the kernel, which watches it, goes by it on all cores.
fn is_trusted() -> bool {
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    is_invariant() && fs::read_to_string(SOURCE).is_ok_and(|source| source.trim() == "tsc")
}

#[cfg(target_arch = "x86_64")]
fn is_invariant() -> bool {
    use core::arch::x86_64::__cpuid;
    const POWER: u32 = 0x8000_0007;
    __cpuid(0x8000_0000).eax >= POWER && __cpuid(POWER).edx & 1 << 8 != 0
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has this instruction, and Linux forbids it only to those who ask for that.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn is_invariant() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn counter() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_forward_with_the_standard_library() {
        let (a, start) = (now(), std::time::Instant::now());
        std::thread::sleep(std::time::Duration::from_millis(5));
        let (theirs, b) = (start.elapsed(), now());
        let ours = b.checked_sub(a).expect("the clock ran backwards");
        assert!(u128::from(ours.get()) >= theirs.as_nanos(), "{ours} < {theirs:?}");
    }

    #[test]
    fn a_reading_lies_between_two_of_the_kernels_and_none_runs_backward() {
        let clock = Clock::new();
        let mut last = Nanos(0);
        for round in 0..20_000 {
            if round % 5_000 == 4_999 {
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
            let before = now();
            let time = clock.now();
            let after = now();
            assert!(time >= last, "{time} after {last}");
            // What the rate may be wrong by in a window, and what the two readings of a synchronization lie apart.
            let slack = Nanos::from_micros(100);
            assert!(
                time.saturating_add(slack) >= before && time <= after.saturating_add(slack),
                "{before} {time} {after}"
            );
            last = time;
        }
    }

    #[test]
    fn the_rate_follows_the_kernels_clock_and_a_long_sleep_leaves_it() {
        let first = Sync::at_rate(1_000, 50, 1 << FRACTION).unwrap();
        assert_eq!((first.window, first.at(1_500)), (1_000_000, 550));
        // A hundredth faster from here on.
        let second = first.next(1_000 + 2_000_000, 50 + 2_020_000, true);
        assert!((second.rate as f64 / (1u64 << FRACTION) as f64 - 1.01).abs() < 1e-6, "{second:?}");
        assert_eq!((second.window, second.at(second.ticks + 1_000)), (990_099, second.nanos + 1_009));
        // Asleep, and interrupted between the two readings: the moment is taken, the rate is not.
        for (nanos, is_exact) in [(10 * MAX_READING_GAP.get(), true), (2_000_000, false)] {
            let third = second.next(second.ticks + 5_000_000, second.nanos + nanos, is_exact);
            assert_eq!((third.rate, third.nanos), (second.rate, second.nanos + nanos));
        }
        // The kernel's clock is behind what was said last: time stands still.
        let fourth = first.next(1_000 + 1_000_000, 50 + 5, true);
        assert_eq!(fourth.nanos, 50 + 1_000_000);
    }

    #[test]
    fn a_counter_that_jumps_is_not_used_any_longer() {
        let first = Sync::at_rate(1 << 40, 50, 1 << FRACTION).unwrap();
        // An hour in the counter and 5 ms for the kernel; the other way round; a counter that begins anew.
        let jumps = [(3_600_000_000_000, 5_000_000), (1_100_000, 90_000_000), (-(1 << 39), 2_000_000)];
        for (ticks, nanos) in jumps {
            let next = first.next((1u64 << 40).strict_add_signed(ticks), 50 + nanos, true);
            assert_eq!(next.window, 0, "{ticks} {nanos}");
            assert!(next.nanos >= 50 + nanos);
            assert!(Clock(Cell::new(next)).now() >= Nanos(next.nanos));
        }
        // What was said last stays the least that is said.
        let ahead = Sync::without_counter(u64::MAX / 2);
        assert_eq!(Clock(Cell::new(ahead)).now(), Nanos(u64::MAX / 2));
    }
}
