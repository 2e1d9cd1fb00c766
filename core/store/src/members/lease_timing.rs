//! How long a lease counts on each side.

use weir_units::Nanos;

/// A lease's length and its margins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    lease: Nanos,
    drift: Nanos,
    stop: Nanos,
}

impl LeaseTiming {
    /// A lease of that length, on clocks that are wrong by so many millionths at the most, whose holder takes `stop` to end what it
    /// has in flight. `None` if nothing would be left of it.
    pub fn new(lease: Nanos, drift_ppm: u32, stop: Nanos) -> Option<Self> {
        let drift = (u128::from(lease.0) * u128::from(drift_ppm)).div_ceil(1_000_000);
        let drift = Nanos(u64::try_from(drift).ok()?);
        let left = lease.checked_sub(drift)?.checked_sub(stop)?;
        (left > Nanos(0)).then_some(Self { lease, drift, stop })
    }

    /// Its length.
    pub const fn lease(&self) -> Nanos {
        self.lease
    }

    /// When the holder stops that has sent its last renewal then, on its own clock.
    pub const fn holder_end(&self, sent: Nanos) -> Nanos {
        sent.saturating_add(self.lease.saturating_sub(self.drift).saturating_sub(self.stop))
    }

    /// When it is over for those who have seen the last renewal then, on their own clock.
    pub const fn watcher_end(&self, seen: Nanos) -> Nanos {
        seen.saturating_add(self.lease).saturating_add(self.drift)
    }

    /// How often the holder renews: a quarter of the time that it has.
    pub const fn renewal(&self) -> Nanos {
        Nanos(self.lease.saturating_sub(self.drift).saturating_sub(self.stop).0 / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_stops_before_others_go_on() {
        let timing = LeaseTiming::new(Nanos::from_secs(10), 1_000, Nanos::from_millis(500)).unwrap();
        assert_eq!(timing.holder_end(Nanos(5)), Nanos(9_490_000_005));
        assert_eq!(timing.watcher_end(Nanos(5)), Nanos(10_010_000_005));
        assert_eq!((timing.lease(), timing.renewal()), (Nanos::from_secs(10), Nanos(2_372_500_000)));
        assert_eq!(timing.watcher_end(Nanos::NEVER), Nanos::NEVER);
        assert_eq!(LeaseTiming::new(Nanos::from_secs(1), 0, Nanos::from_secs(1)), None);
        assert_eq!(LeaseTiming::new(Nanos::from_secs(1), 1_000_000, Nanos(0)), None);
        assert_eq!(LeaseTiming::new(Nanos::NEVER, u32::MAX, Nanos(0)), None);
    }
}
