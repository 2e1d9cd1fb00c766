//! When an open-loop job's next request is due: the time is handed in, virtual or real.

use crate::job::Rate;
use weir_units::Nanos;

const SECOND: u64 = 1_000_000_000;

/// Spaces requests evenly at a rate. Whoever is late catches up: a request's latency counts from when it was due, so that a
/// drive that stalls is charged for every request the stall delayed (no coordinated omission).
#[derive(Clone, Debug)]
pub struct Pacer {
    per_second: u64,
    bytes: bool,
    due: Nanos,
    /// Part of a nanosecond, in 1/`per_second`.
    rest: u64,
}

impl Pacer {
    /// The first request is due at `start`.
    pub fn new(rate: Rate, start: Nanos) -> Self {
        let (per_second, bytes) = match rate {
            Rate::Iops(n) => (n, false),
            Rate::Bandwidth(n) => (n, true),
        };
        Pacer { per_second: per_second.max(1), bytes, due: start, rest: 0 }
    }

    /// When the next request is due.
    pub fn due(&self) -> Nanos {
        self.due
    }

    /// A request of `len` bytes left; the error of the sum stays below a nanosecond for ever.
    pub fn advance(&mut self, len: u32) {
        let units = if self.bytes { u128::from(len) } else { 1 };
        let sum = u128::from(self.rest) + units * u128::from(SECOND);
        let per = u128::from(self.per_second);
        self.rest = (sum % per) as u64;
        self.due = self.due.saturating_add(Nanos(u64::try_from(sum / per).unwrap_or(u64::MAX)));
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
}
