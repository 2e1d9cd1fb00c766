//! When an open-loop job's next request is due: the time is handed in, virtual or real.

use crate::job::{JobError, Rate};
use crate::math::ln;
use alloc::format;
use core::str::FromStr;
use weir_units::Nanos;
use weir_units::rng::Xoshiro256;

const SECOND: u64 = 1_000_000_000;

/// How the requests of an open loop are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrival {
    /// Evenly.
    #[default]
    Fixed,
    /// As a Poisson process: gaps are exponentially distributed with the rate's mean.
    Poisson,
    /// The same, of a client that does not catch up: what it could not send in time, because it had no core itself, is left
    /// out. Who measures how exactly a drive keeps its times needs that; a latency measured so leaves out what hurts most.
    PoissonDrop,
}

/// `fixed`, `poisson` or `poisson-drop`.
impl FromStr for Arrival {
    type Err = JobError;
    fn from_str(s: &str) -> Result<Self, JobError> {
        match s {
            "fixed" => Ok(Arrival::Fixed),
            "poisson" => Ok(Arrival::Poisson),
            "poisson-drop" => Ok(Arrival::PoissonDrop),
            _ => Err(JobError::new(format!("arrival: \"{s}\" is none of fixed, poisson, poisson-drop"))),
        }
    }
}

/// Spaces requests at a rate. Whoever is late catches up: a request's latency counts from when it was due, so that a
/// drive that stalls is charged for every request the stall delayed (no coordinated omission).
#[derive(Clone, Debug)]
pub struct Pacer {
    per_second: u64,
    bytes: bool,
    due: Nanos,
    gap: Gap,
    /// Whether what could not be sent in time is left out.
    drops: bool,
}

/// How late a request may leave where others are left out: what a turn of a client takes.
const IN_TIME: Nanos = Nanos::from_micros(5);

#[derive(Clone, Debug)]
enum Gap {
    /// Part of a nanosecond, in 1/`per_second`.
    Even { rest: u64 },
    /// Part of a nanosecond.
    Random { rest: f64, rng: Xoshiro256 },
}

impl Pacer {
    /// Evenly spaced; the first request is due at `start`.
    pub fn new(rate: Rate, start: Nanos) -> Self {
        let (per_second, bytes) = match rate {
            Rate::Iops(n) => (n, false),
            Rate::Bandwidth(n) => (n, true),
        };
        // As much as `Rate` itself permits: sums below then fit their words.
        let per_second = per_second.clamp(1, 1 << 40);
        Pacer { per_second, bytes, due: start, gap: Gap::Even { rest: 0 }, drops: false }
    }

    /// A Poisson process of that mean rate from `start` on.
    pub fn poisson(rate: Rate, start: Nanos, seed: u64) -> Self {
        let rng = Xoshiro256::new(seed);
        let mut pacer = Pacer { gap: Gap::Random { rest: 0.0, rng }, ..Pacer::new(rate, start) };
        // The first gap begins at the start as well; by bandwidth its length is not known yet.
        if !pacer.bytes {
            pacer.advance(0);
        }
        pacer
    }

    /// The same, of a client that does not catch up ([`Arrival::PoissonDrop`]).
    pub fn poisson_drop(rate: Rate, start: Nanos, seed: u64) -> Self {
        Pacer { drops: true, ..Pacer::poisson(rate, start, seed) }
    }

    /// It is `now`: leaves out what should have left before, where the client does not catch up. A Poisson process has no memory,
    /// so that what comes then is one as well.
    #[inline]
    pub fn look(&mut self, now: Nanos) {
        if self.drops && self.due.saturating_add(IN_TIME) < now {
            self.due = now;
            self.advance(if self.bytes { 4096 } else { 0 });
        }
    }

    /// When the next request is due.
    #[inline]
    pub fn due(&self) -> Nanos {
        self.due
    }

    /// A request of `len` bytes left. Evenly spaced, the error of the sum stays below a nanosecond for ever.
    #[inline]
    pub fn advance(&mut self, len: u32) {
        // At most 2^32 · 10^9 + 2^40, which is below 2^63.
        let units = if self.bytes { u64::from(len) } else { 1 } * SECOND;
        let gap = match &mut self.gap {
            Gap::Even { rest } => {
                let sum = *rest + units;
                *rest = sum % self.per_second;
                sum / self.per_second
            }
            Gap::Random { rest, rng } => {
                // From 2^-53 to 1: the logarithm is finite.
                let uniform = ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
                let sum = *rest - ln(uniform) * (units as f64 / self.per_second as f64);
                *rest = sum - (sum as u64) as f64;
                sum as u64
            }
        };
        self.due = self.due.saturating_add(Nanos(gap));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_drifts(rate in 1u64..2_000_000, n in 1u64..5_000) {
            let mut p = Pacer::new(Rate::Iops(rate), Nanos(17));
            for _ in 0..n {
                p.advance(4096);
            }
            prop_assert_eq!(p.due(), Nanos(17 + (u128::from(n) * 1_000_000_000 / u128::from(rate)) as u64));
        }
    }

    #[test]
    fn bandwidth_counts_bytes() {
        let mut p = Pacer::new(Rate::Bandwidth(4096 * 1000), Nanos(0));
        p.advance(8192);
        p.advance(4096);
        assert_eq!(p.due(), Nanos::from_millis(3));
    }

    #[test]
    fn poisson_has_its_mean_and_its_spread() {
        for (rate, len, mean) in [(Rate::Iops(1_000_000), 4096, 1000.0), (Rate::Bandwidth(4_096_000), 8192, 2e6)] {
            let (n, start) = (200_000u32, Nanos(5));
            let mut p = Pacer::poisson(rate, start, 3);
            let (mut last, mut square, mut short) = (p.due(), 0.0, 0);
            for _ in 0..n {
                p.advance(len);
                let gap = (p.due().0 - last.0) as f64;
                (last, square) = (p.due(), square + gap * gap);
                short += u32::from(gap < mean * core::f64::consts::LN_2);
            }
            let got = (p.due().0 - start.0) as f64 / f64::from(n);
            assert!((got / mean - 1.0).abs() < 0.01, "mean {got}");
            // Of an exponential distribution: E[x²] = 2·mean², and half of it lies below mean·ln 2.
            assert!((square / f64::from(n) / (mean * mean) - 2.0).abs() < 0.05, "{square}");
            assert!((f64::from(short) / f64::from(n) - 0.5).abs() < 0.005, "{short}");
        }
    }

    #[test]
    fn who_drops_does_not_catch_up() {
        let mut p = Pacer::poisson_drop(Rate::Iops(100_000), Nanos(0), 9);
        let first = p.due();
        p.look(first.saturating_add(IN_TIME));
        assert_eq!(p.due(), first, "in time");
        let late = Nanos::from_millis(7);
        p.look(late);
        assert!(p.due() >= late && p.due() < Nanos::from_millis(8), "{:?}", p.due());
        let mut patient = Pacer::poisson(Rate::Iops(100_000), Nanos(0), 9);
        patient.look(late);
        assert_eq!(patient.due(), first, "catches up");
    }

    #[test]
    fn poisson_follows_its_seed() {
        let times = |seed| {
            let mut p = Pacer::poisson(Rate::Iops(1000), Nanos(0), seed);
            core::array::from_fn::<_, 5, _>(|_| {
                p.advance(1);
                p.due()
            })
        };
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }
}
