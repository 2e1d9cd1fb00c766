//! What two contestants in turn differ by, pair by pair: what happens to the machine happens to both of a pair.
//!
//! A run in which the machine was away for some milliseconds is far off from all others, so that means and their deviations say more of such
//! runs than of the contestants. So the difference is told by ranks: Hodges and Lehmann's estimate with the interval of Wilcoxon's signed
//! ranks (J. L. Hodges, E. L. Lehmann, "Estimates of Location Based on Rank Tests", 1963), exact for every number of pairs.

/// What differences lie about, with the interval that contains it in 95 of 100 repetitions, if they lie as often so much above it as
/// below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) middle: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// What may lie outside at each end.
const OUTSIDE: f64 = 0.025;

/// The most that the rank sum of the differences above the truth stays at or below with no more than that probability; `None`: even
/// 0 is likelier, with five pairs or fewer.
fn critical(n: usize) -> Option<usize> {
    // Of each rank it is a coin's toss whether it counts: the probability of every sum.
    let mut sums = vec![0.0; n * (n + 1) / 2 + 1];
    sums[0] = 1.0;
    for rank in 1..=n {
        for sum in (0..sums.len()).rev() {
            let with = if sum >= rank { sums[sum - rank] } else { 0.0 };
            sums[sum] = (sums[sum] + with) / 2.0;
        }
    }
    let below = sums.iter().scan(0.0, |all, p| {
        *all += p;
        Some(*all)
    });
    below.take_while(|all| *all <= OUTSIDE).count().checked_sub(1)
}

impl Interval {
    /// Of these differences; few say nothing about their interval.
    pub(super) fn of(values: &[f64]) -> Interval {
        let mut means: Vec<f64> =
            (0..values.len()).flat_map(|i| (0..=i).map(move |j| (values[i] + values[j]) / 2.0)).collect();
        means.sort_by(f64::total_cmp);
        let at = |i: usize| means.get(i).copied().unwrap_or(f64::NAN);
        let last = means.len().wrapping_sub(1);
        let middle = (at(last / 2) + at(means.len() / 2)) / 2.0;
        match critical(values.len()) {
            Some(rank) => Interval { middle, low: at(rank), high: at(last - rank) },
            None => Interval { middle, low: f64::NEG_INFINITY, high: f64::INFINITY },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_critical_values_of_the_tables() {
        let tabled =
            [(5, None), (6, Some(0)), (7, Some(2)), (8, Some(3)), (10, Some(8)), (15, Some(25)), (20, Some(52))];
        for (n, c) in tabled {
            assert_eq!(critical(n), c, "{n} pairs");
        }
    }

    #[test]
    fn an_interval_by_hand() {
        // 21 means of two; the least and the largest are the ends with six values.
        let i = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(i, Interval { middle: 3.5, low: 1.0, high: 6.0 });
        assert_eq!(Interval::of(&[1.0; 8]), Interval { middle: 1.0, low: 1.0, high: 1.0 });
    }

    #[test]
    fn one_bad_run_says_little() {
        let mut values: Vec<f64> = (0..32).map(|i| f64::from(i % 5) / 10.0).collect();
        let before = Interval::of(&values);
        values[7] = 1000.0;
        let after = Interval::of(&values);
        assert!(
            (after.middle - before.middle).abs() < 0.05 && after.high < 0.35 && after.low > 0.0,
            "{before:?} {after:?}"
        );
    }

    #[test]
    fn one_value_says_nothing() {
        let one = Interval::of(&[3.0]);
        assert_eq!((one.middle, one.low, one.high), (3.0, f64::NEG_INFINITY, f64::INFINITY));
    }
}
