//! A distribution of latencies by a few of its quantiles: small enough for a file, fine enough to be put together with others.

use crate::histogram::Histogram;

/// Which quantiles are kept: the parts of the values that lie at or below each.
pub const PARTS: [f64; 20] =
    [0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999, 1.0];

/// Halvings of the range in which a quantile of several distributions is looked for.
const HALVINGS: u32 = 48;

/// Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    /// Arithmetic mean.
    pub mean: f64,
    /// The quantiles of [`PARTS`], in their order; they do not fall.
    pub at: [u64; PARTS.len()],
}

impl Quantiles {
    /// Of what a histogram has counted; `None` where that is nothing.
    pub fn of(counted: &Histogram) -> Option<Quantiles> {
        let at = PARTS.map(|part| if part == 0.0 { counted.min() } else { counted.percentile(part * 100.0) });
        (counted.count() > 0).then(|| Quantiles { mean: counted.mean(), at })
    }

    /// The part of the values that are no more than `ns`; between two quantiles they lie evenly.
    pub fn below(&self, ns: f64) -> f64 {
        let after = self.at.partition_point(|at| *at as f64 <= ns);
        if after == 0 || after == self.at.len() {
            return if after == 0 { 0.0 } else { 1.0 };
        }
        let (low, high) = (self.at[after - 1] as f64, self.at[after] as f64);
        PARTS[after - 1] + (PARTS[after] - PARTS[after - 1]) * (ns - low) / (high - low)
    }

    /// On the way from this distribution to another: `part` 0 is this one, 1 the other.
    pub fn towards(&self, other: &Quantiles, part: f64) -> Quantiles {
        let between = |from: f64, to: f64| from + (to - from) * part;
        let mut at = self.at;
        at.iter_mut().zip(&other.at).for_each(|(at, to)| *at = between(*at as f64, *to as f64) as u64);
        Quantiles { mean: between(self.mean, other.mean), at }
    }

    /// All of it so many nanoseconds later.
    pub fn later(&self, ns: f64) -> Quantiles {
        Quantiles { mean: self.mean + ns, at: self.at.map(|at| at + ns as u64) }
    }

    /// All of it as many times as long.
    pub fn times(&self, factor: f64) -> Quantiles {
        Quantiles { mean: self.mean * factor, at: self.at.map(|ns| (ns as f64 * factor) as u64) }
    }
}

/// The least value that is not exceeded by `part` of the values of several distributions together, of which each has its share of the
/// values; the shares sum to 1.
pub fn quantile(of: &[(f64, Quantiles)], part: f64) -> f64 {
    let some = || of.iter().filter(|(share, _)| *share > 0.0).map(|(_, q)| &q.at);
    let mut low = some().map(|at| at[0]).min().unwrap_or(0) as f64;
    let mut high = some().map(|at| at[PARTS.len() - 1]).max().unwrap_or(0) as f64;
    let below = |ns: f64| of.iter().map(|(share, q)| share * q.below(ns)).sum::<f64>();
    if below(low) >= part {
        return low;
    }
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        if below(middle) < part { low = middle } else { high = middle }
    }
    high
}

/// Latencies of those requests that read and of those that write.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ByKind {
    /// Of those that do not write; `None` where there were none, or nobody looked.
    pub reads: Option<Quantiles>,
    /// Of those that write; the same.
    pub writes: Option<Quantiles>,
}

impl ByKind {
    /// As [`Quantiles::towards`], each kind; one that only one of both has is that one's.
    pub fn towards(&self, other: &ByKind, part: f64) -> ByKind {
        let one = |a: &Option<Quantiles>, b: &Option<Quantiles>| match (a, b) {
            (Some(a), Some(b)) => Some(a.towards(b, part)),
            (a, b) => a.or(*b),
        };
        ByKind { reads: one(&self.reads, &other.reads), writes: one(&self.writes, &other.writes) }
    }

    /// Of requests of which so many of 100 read: each kind that there is, and its share. `None` where one of those is not known.
    pub fn shares(&self, read_percent: f64) -> Option<[(f64, Quantiles); 2]> {
        let any = self.reads.or(self.writes)?;
        let known = (read_percent <= 0.0 || self.reads.is_some()) && (read_percent >= 100.0 || self.writes.is_some());
        let part = read_percent / 100.0;
        known.then(|| [(part, self.reads.unwrap_or(any)), (1.0 - part, self.writes.unwrap_or(any))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Quantiles {
        let mut counted = Histogram::new();
        values.into_iter().for_each(|value| counted.record(value));
        Quantiles::of(&counted).unwrap()
    }

    #[test]
    fn quantiles_of_a_ramp() {
        let ramp = of(0..=10_000);
        assert_eq!((ramp.at[0], ramp.at[19], ramp.mean), (0, 10_000, 5_000.0));
        assert!((ramp.below(2_500.0) - 0.25).abs() < 0.01 && ramp.below(-1.0) == 0.0 && ramp.below(1e9) == 1.0);
        assert_eq!(Quantiles::of(&Histogram::new()), None);
        let double = of((0..=10_000).map(|value| 2 * value));
        assert!((ramp.towards(&double, 0.5).below(7_500.0) - 0.5).abs() < 0.01);
        assert_eq!(ramp.times(3.0).mean, 15_000.0);
    }

    #[test]
    fn two_humps_are_put_together() {
        let (fast, slow) = (of(std::iter::repeat_n(10, 100)), of(1000..2000));
        let at = |shares: (f64, f64), part| quantile(&[(shares.0, fast), (shares.1, slow)], part);
        assert!((at((0.7, 0.3), 0.5) - 10.0).abs() < 0.1, "{}", at((0.7, 0.3), 0.5));
        assert!((at((0.3, 0.7), 0.5) - 1285.0).abs() < 20.0, "{}", at((0.3, 0.7), 0.5));
        assert!(at((0.999, 0.001), 0.99) < 11.0 && at((0.9, 0.1), 0.99) > 1850.0);
    }

    proptest! {
        /// Together as they would have been counted in one histogram, as far as a table of few quantiles can know.
        #[test]
        fn together_as_counted_together(
            few in prop::collection::vec(1_000u64..20_000, 200..400),
            many in prop::collection::vec(1_000u64..90_000, 200..400),
            part in 0.05f64..0.95,
        ) {
            let all = (few.len() + many.len()) as f64;
            let shares = [(few.len() as f64 / all, of(few.clone())), (many.len() as f64 / all, of(many.clone()))];
            let got = quantile(&shares, part);
            let mut sorted = [few, many].concat();
            sorted.sort_unstable();
            let rank = |part: f64| sorted[((all * part) as usize).min(sorted.len() - 1)] as f64;
            prop_assert!(got >= rank(part - 0.05) * 0.99 && got <= rank(part + 0.05) * 1.01, "{} at {}", got, part);
        }
    }
}
