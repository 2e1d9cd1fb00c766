//! Figures between those that were measured.

use weir_workload::{ByKind, Latency};

/// What can lie on the way from one measured figure to another.
pub(crate) trait Towards {
    /// `part` 0 is this one, 1 the other.
    fn towards(&self, other: &Self, part: f64) -> Self;
}

impl Towards for f64 {
    fn towards(&self, other: &f64, part: f64) -> f64 {
        if part >= 1.0 { *other } else { self * (1.0 - part) + other * part }
    }
}

/// One that only one of both has is that one's.
impl<T: Towards + Copy> Towards for Option<T> {
    fn towards(&self, other: &Self, part: f64) -> Self {
        match (self, other) {
            (Some(a), Some(b)) => Some(a.towards(b, part)),
            (a, b) => a.or(*b),
        }
    }
}

impl<T: Towards + Copy> Towards for [T; 2] {
    fn towards(&self, other: &Self, part: f64) -> Self {
        [self[0].towards(&other[0], part), self[1].towards(&other[1], part)]
    }
}

impl Towards for ByKind {
    fn towards(&self, other: &ByKind, part: f64) -> ByKind {
        ByKind::towards(self, other, part)
    }
}

impl Towards for Latency {
    fn towards(&self, other: &Latency, part: f64) -> Latency {
        let whole = |from: u64, to: u64| (from as f64).towards(&(to as f64), part) as u64;
        Latency {
            mean: self.mean.towards(&other.mean, part),
            p50: whole(self.p50, other.p50),
            p99: whole(self.p99, other.p99),
            p999: whole(self.p999, other.p999),
            max: whole(self.max, other.max),
        }
    }
}
