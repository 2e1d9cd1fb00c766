//! What two contestants differ by that were measured in turn, pair by pair: what happens to the machine happens to both of a pair.

/// A mean with the interval that contains it in 95 of 100 repetitions, if the differences are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Student's t for 95 % on both sides, by degrees of freedom from 1 on.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

fn t(degrees: usize) -> f64 {
    match degrees {
        0 => f64::INFINITY,
        n => T.get(n - 1).copied().unwrap_or(if n <= 60 { 2.02 } else { 1.98 }),
    }
}

impl Interval {
    /// Of these differences; one alone says nothing about its interval.
    pub(super) fn of(values: &[f64]) -> Interval {
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n as f64;
        if n < 2 {
            return Interval { mean, low: f64::NEG_INFINITY, high: f64::INFINITY };
        }
        let squares = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>();
        let error = (squares / (n - 1) as f64 / n as f64).sqrt();
        let reach = t(n - 1) * error;
        Interval { mean, low: mean - reach, high: mean + reach }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_textbook() {
        // Mean 5, s = 2.138, n = 8: 5 +- 2.365 * 2.138 / sqrt(8).
        let i = Interval::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert!((i.mean - 5.0).abs() < 1e-12 && (i.high - 6.788).abs() < 1e-3 && (i.low - 3.212).abs() < 1e-3, "{i:?}");
        assert_eq!(Interval::of(&[1.0, 1.0, 1.0]), Interval { mean: 1.0, low: 1.0, high: 1.0 });
    }

    #[test]
    fn one_value_says_nothing() {
        let one = Interval::of(&[3.0]);
        assert_eq!((one.mean, one.low, one.high), (3.0, f64::NEG_INFINITY, f64::INFINITY));
        assert!(t(31) < t(30) && t(1000) > 1.95);
    }
}
