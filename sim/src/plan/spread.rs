//! What several simulations of one question say together, and what another may be off from that.

use weir_plan::Margin;
use weir_plan::planner::Got;
use weir_workload::Latency;

/// Standard deviations within which one more simulation lies, if few were made: 95 % by Student's t of four, and the error of their mean.
const DEVIATIONS: f64 = 3.6;
/// What any figure may be off, as a part: a histogram's resolution, and one simulation's length.
const LEAST: f64 = 0.01;

/// The figures of one tenant from several seeds as one: their means, with what they spread by as margins.
pub(crate) fn together(runs: &[Got]) -> Got {
    let rate = |of: fn(&Got) -> f64| mean(&runs.iter().map(of).collect::<Vec<_>>());
    let latencies: Vec<Latency> = runs.iter().filter_map(|run| run.latency).collect();
    let time = |of: fn(&Latency) -> f64| mean(&latencies.iter().map(of).collect::<Vec<_>>());
    let [p50, p99, p999] =
        [|l: &Latency| l.p50 as f64, |l: &Latency| l.p99 as f64, |l: &Latency| l.p999 as f64].map(time);
    let (iops, bandwidth) = (rate(|got| got.iops), rate(|got| got.bandwidth));
    let latency = (latencies.len() == runs.len()).then(|| Latency {
        mean: time(|l| l.mean).0,
        p50: p50.0 as u64,
        p99: p99.0 as u64,
        p999: p999.0 as u64,
        max: latencies.iter().map(|l| l.max).max().unwrap_or(0),
    });
    Got {
        iops: iops.0,
        bandwidth: bandwidth.0,
        latency,
        sated: runs.iter().all(|run| run.sated),
        margin: Margin { rate: iops.1, p50: p50.1, p99: p99.1, p999: p999.1 },
    }
}

/// The mean, and by which part of it another figure may be off.
fn mean(figures: &[f64]) -> (f64, f64) {
    let count = figures.len().max(1) as f64;
    let mean = figures.iter().sum::<f64>() / count;
    let square = figures.iter().map(|f| (f - mean) * (f - mean)).sum::<f64>() / (count - 1.0).max(1.0);
    (mean, LEAST + DEVIATIONS * square.sqrt() / mean.max(f64::MIN_POSITIVE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_varies_has_a_wide_margin() {
        let run = |iops: f64, p50: u64| Got {
            iops,
            bandwidth: iops * 4096.0,
            latency: Some(Latency { mean: 1.0, p50, p99: 900, p999: 1000, max: 2000 }),
            ..Got::default()
        };
        let all = together(&[run(1000.0, 20), run(1010.0, 80), run(990.0, 20), run(1000.0, 80)]);
        assert_eq!((all.iops, all.latency.unwrap().p50), (1000.0, 50));
        assert!(all.margin.rate > 0.02 && all.margin.rate < 0.05, "{:?}", all.margin);
        assert!(all.margin.p50 > 1.0 && all.margin.p99 == LEAST, "{:?}", all.margin);
        let lost = Got { latency: None, ..run(1000.0, 20) };
        assert_eq!(together(&[run(1000.0, 20), lost]).latency, None, "one of them grows without bound");
    }
}
