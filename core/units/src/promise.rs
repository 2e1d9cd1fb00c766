//! What a tenant is promised and held to: floors, ceilings, service levels.

use crate::{Bytes, Nanos};
use core::fmt;

/// Work a second. What is `None` is not bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rates {
    /// Commands a second.
    pub iops: Option<u64>,
    /// Bytes read and written a second.
    pub bandwidth: Option<Bytes>,
}

/// A bandwidth as people write it: `500MB/s`, `1GiB/s`, `1234B/s`, in the largest unit that divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerSecond(pub Bytes);

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bytes(n) = self.0;
        let decimal = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "KB")];
        let binary = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let fits = |(unit, _): &&(u64, &str)| n >= *unit && n % unit == 0;
        let units = [decimal.iter().find(fits), binary.iter().find(fits)];
        match units.into_iter().flatten().min_by_key(|(unit, _)| n / unit) {
            Some((unit, name)) => write!(f, "{}{name}/s", n / unit),
            None => write!(f, "{n}B/s"),
        }
    }
}

impl Rates {
    /// Nothing is bounded.
    pub const fn is_none(&self) -> bool {
        self.iops.is_none() && self.bandwidth.is_none()
    }

    /// Both together: what two tenants are promised is the sum of their rates. Nothing and something is something.
    pub fn sum(self, other: Rates) -> Rates {
        let both = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (one, none) => one.or(none),
        };
        self.with(other, both)
    }

    /// The stricter of two promises to the same tenant.
    pub fn max(self, other: Rates) -> Rates {
        self.with(other, Option::max)
    }

    fn with(self, other: Rates, both: impl Fn(Option<u64>, Option<u64>) -> Option<u64>) -> Rates {
        let bandwidth = both(self.bandwidth.map(Bytes::get), other.bandwidth.map(Bytes::get));
        Rates { iops: both(self.iops, other.iops), bandwidth: bandwidth.map(Bytes) }
    }
}

/// What a tenant gets of a drive however much the others ask for, while it asks for so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Floor {
    /// Each of them holds, where it is given.
    pub rates: Rates,
    /// How much of the floor that was missed may be made up for at once, as the time in which it would have come. What
    /// others have in service and a round of the arbiter must be shorter.
    pub catch_up: Nanos,
}

impl Floor {
    /// What a floor may make up for unless somebody says otherwise.
    pub const CATCH_UP: Nanos = Nanos(10_000_000);

    /// A floor of these rates.
    pub const fn new(rates: Rates) -> Floor {
        Floor { rates, catch_up: Floor::CATCH_UP }
    }

    /// There is no floor.
    pub const fn is_none(&self) -> bool {
        self.rates.is_none()
    }
}

impl Default for Floor {
    fn default() -> Floor {
        Floor::new(Rates::default())
    }
}

/// What a tenant gets of a drive at the most, however idle the others are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ceiling {
    /// Each of them holds, where it is given.
    pub rates: Rates,
    /// Commands at once after a pause, at least 1; `None`: those of 10 ms.
    pub burst: Option<u32>,
    /// Bytes at once after a pause; `None`: those of 10 ms. The last command may begin while any of them are left.
    pub burst_bytes: Option<Bytes>,
}

impl Ceiling {
    /// The burst of whoever gives none, as the time in which the rate brings it.
    pub const BURST: Nanos = Nanos(10_000_000);

    /// A ceiling of these rates with the usual burst.
    pub const fn new(rates: Rates) -> Ceiling {
        Ceiling { rates, burst: None, burst_bytes: None }
    }

    /// There is no ceiling.
    pub const fn is_none(&self) -> bool {
        self.rates.is_none()
    }
}

/// The service level that a tenant bought: rates that it gets while it asks for so much, and bounds of the time from a
/// command's arrival at the drive to its completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sla {
    /// At least.
    pub rates: Rates,
    /// Half of the commands take no longer.
    pub p50: Option<Nanos>,
    /// 99 % of the commands take no longer.
    pub p99: Option<Nanos>,
    /// 99.9 % of the commands take no longer.
    pub p999: Option<Nanos>,
}

impl Sla {
    /// Nothing was promised.
    pub const fn is_none(&self) -> bool {
        self.rates.is_none() && !self.bounds_latency()
    }

    /// Latencies are bounded.
    pub const fn bounds_latency(&self) -> bool {
        self.p50.is_some() || self.p99.is_some() || self.p999.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_printed_as_written() {
        use alloc::string::ToString;
        for text in ["500MB/s", "1GiB/s", "1234B/s", "1TB/s", "0B/s", "1536KiB/s", "64KB/s"] {
            assert_eq!(PerSecond(crate::parse::bandwidth(text).unwrap()).to_string(), text);
        }
    }

    #[test]
    fn rates_add_up() {
        let iops = |n| Rates { iops: Some(n), bandwidth: None };
        let bandwidth = |n| Rates { iops: None, bandwidth: Some(Bytes(n)) };
        let both = iops(3).sum(iops(4)).sum(bandwidth(5)).sum(Rates::default());
        assert_eq!(both, Rates { iops: Some(7), bandwidth: Some(Bytes(5)) });
        assert_eq!(iops(3).max(iops(4)).max(bandwidth(5)), Rates { iops: Some(4), bandwidth: Some(Bytes(5)) });
        assert_eq!(iops(u64::MAX).sum(iops(1)), iops(u64::MAX), "no sum is too large to be refused");
        assert!(Rates::default().is_none() && Floor::default().is_none() && Sla::default().is_none());
    }
}
