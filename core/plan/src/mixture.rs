//! Percentiles of commands of several kinds together, from those of each kind.

use crate::fluid::bisect;
use weir_workload::Latency;
use weir_workload::math::exp;

/// Of the smallest latency nothing is recorded; it is taken to be this part of the median.
const LEAST: f64 = 0.8;

/// Latencies of commands of which each part, which sum to 1, has its own: means by their parts, percentiles where the parts'
/// distributions together reach them. Between two known percentiles a distribution's tail falls exponentially.
pub(crate) fn mixture(parts: &[(f64, Latency)]) -> Latency {
    let mean = parts.iter().map(|(part, l)| part * l.mean).sum();
    let some = || parts.iter().filter(|(part, _)| *part > 0.0).map(|(_, l)| l);
    let first = some().next().copied().unwrap_or_default();
    if some().all(|l| *l == first) {
        return first;
    }
    let most = some().map(|l| l.max).max().unwrap_or(0);
    let at = |part: f64| {
        let beyond = |ns: f64| parts.iter().map(|(share, l)| share * exceeds(l, ns)).sum::<f64>() - (1.0 - part);
        bisect((0.0, most as f64 + 1.0), 48, beyond) as u64
    };
    Latency { mean, p50: at(0.5), p99: at(0.99), p999: at(0.999), max: most }
}

/// The part of the commands that take longer than so many nanoseconds.
fn exceeds(latency: &Latency, ns: f64) -> f64 {
    let known = [(0.5, latency.p50), (0.01, latency.p99), (0.001, latency.p999), (1e-5, latency.max)];
    let least = latency.p50 as f64 * LEAST;
    if ns <= least {
        return 1.0;
    }
    let mut above = (1.0, least);
    for (part, at) in known {
        let at = at as f64;
        if ns < at {
            let way = (ns - above.1) / (at - above.1);
            return above.0 * exp(way * weir_workload::math::ln(part / above.0));
        }
        above = (part, at.max(above.1));
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(p50: u64, p99: u64) -> Latency {
        Latency { mean: p50 as f64, p50, p99, p999: 2 * p99, max: 3 * p99 }
    }

    #[test]
    fn one_kind_is_itself() {
        let one = latency(100, 200);
        assert_eq!(mixture(&[(0.3, one), (0.7, one)]), one);
        assert_eq!(mixture(&[(1.0, one), (0.0, latency(7, 9))]), one);
    }

    #[test]
    fn the_slow_ones_have_the_tail_and_the_many_the_median() {
        let (fast, slow) = (latency(100, 200), latency(1000, 2000));
        let both = mixture(&[(0.7, fast), (0.3, slow)]);
        assert!(both.p50 > 100 && both.p50 < 150, "{both:?}");
        assert!(both.p99 > 1000 && both.p99 < 2000, "{both:?}");
        let few = mixture(&[(0.999, fast), (0.001, slow)]);
        assert!(few.p99 < 300 && few.p999 > 300, "{few:?}");
    }
}
