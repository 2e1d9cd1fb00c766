//! Mixes of reads and writes between those that were measured.
//!
//! ```text
//!  measured mixes ─▶ at a depth: writes a second, latencies of reads, of writes ─▶ rates at which they fit together ─▶ LoadCurve
//! ```
//! Between two mixes a line is wrong by a third: the first few writes of a hundred cost reads most. What reads wait for is programs and
//! collection, so their latency goes with the writes a second that the drive is given, and not with the mix. A read either meets such work
//! or does not: between two rates the distribution is a part of each. Writes go into the drive's buffer at once until more come than it
//! drains; from there on the buffer is a server of its own, and their latency is what makes the rate that it drains.
//!
//! At a depth d, of a mix with reads r (0 to 1), the commands a second X are those with X·(r·R(w) + (1−r)·W(w)) = d and
//! w = (1−r)·X. R is a monotone cubic through the measured rates (Fritsch and Carlson, "Monotone Piecewise Cubic Interpolation", 1980,
//! with the three-point derivatives of Fritsch and Butland, 1984), and goes on straight beyond the last.
//!
//! **Limits**: at least one measured mix must have both reads and writes; all tests must have told them apart.

use crate::calibrate::{LoadCurve, Test};
use crate::fluid::bisect;
use crate::interpolate::monotone;
use alloc::vec::Vec;
use weir_workload::{ByKind, Latency, PARTS, Quantiles, quantile};

/// Of a hundred requests, by how many two mixes of the finished points differ at the most.
const STEP: u8 = 5;
/// Longer than alone by this, writes wait for the buffer.
const WAITS: f64 = 1.5;
/// Rates of writes that differ by less are the same.
const SAME: f64 = 1.02;
/// The power with which waits begin where the buffer is full at the higher of two rates only.
const KNEE: u32 = 16;
/// The power with which they grow beyond the highest rate: it is what the buffer drains.
const FULL: u32 = 24;

/// The points, and of each size those between its mixes that follow from them.
pub(crate) fn filled(mut points: Vec<LoadCurve>) -> Vec<LoadCurve> {
    let mut sizes: Vec<u32> = points.iter().map(LoadCurve::size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for size in sizes {
        let own: Vec<&LoadCurve> = points.iter().filter(|p| p.size() == size).collect();
        let both = own.iter().any(|p| (1..100).contains(&p.read_percent()));
        let apart = own.iter().flat_map(|p| p.tests()).all(|t| t.kinds != ByKind::default());
        if own.len() < 2 || !both || !apart {
            continue;
        }
        let between: Vec<LoadCurve> = missing(&own).filter_map(|mix| between(&own, size, mix)).collect();
        points.extend(between);
    }
    points
}

/// The mixes between the measured ones.
fn missing(own: &[&LoadCurve]) -> impl Iterator<Item = u8> {
    let mixes: Vec<u8> = own.iter().map(|p| p.read_percent()).collect();
    let (least, most) = (mixes.iter().copied().min().unwrap_or(0), mixes.iter().copied().max().unwrap_or(0));
    (least..most).filter(move |mix| mix % STEP == 0 && !mixes.contains(mix))
}

fn between(own: &[&LoadCurve], size: u32, mix: u8) -> Option<LoadCurve> {
    let deepest = own.iter().filter_map(|p| p.tests().last()).map(|t| t.depth).min()?;
    let mut depths: Vec<u32> = own.iter().flat_map(|p| p.tests()).map(|t| t.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    let tests =
        depths.into_iter().filter(|d| *d <= deepest).map(|depth| Some(Levels::at(own, depth)?.test(mix, depth)));
    LoadCurve::new(size, mix, tests.collect::<Option<_>>()?).ok().map(LoadCurve::derived)
}

/// Latencies of one kind at a rate of writes.
#[derive(Clone, Copy)]
struct Level {
    /// A second.
    writes: f64,
    of: Quantiles,
}

/// What was measured at one depth, by the rate of writes.
struct Levels {
    reads: Vec<Level>,
    writes: Vec<Level>,
    /// Of a write that finds room in the buffer, in nanoseconds.
    alone: f64,
}

impl Levels {
    /// `None` where one of the kinds is in no test.
    fn at(own: &[&LoadCurve], depth: u32) -> Option<Levels> {
        let depth = f64::from(depth);
        let (mut reads, mut writes, mut alone) = (Vec::new(), Vec::new(), f64::INFINITY);
        for point in own {
            let (kinds, part) = (point.kinds(depth), 1.0 - f64::from(point.read_percent()) / 100.0);
            let rate = part * depth / point.cycle(depth);
            reads.extend(kinds.reads.map(|of| Level { writes: rate, of }));
            writes.extend(kinds.writes.map(|of| Level { writes: rate, of }));
            alone = point.kinds(1.0).writes.map_or(alone, |of| alone.min(of.mean));
        }
        let first = own.iter().filter_map(|p| p.kinds(1.0).writes).min_by(|a, b| a.mean.total_cmp(&b.mean));
        writes.extend(first.map(|of| Level { writes: 0.0, of }));
        let is_known = !reads.is_empty() && !writes.is_empty();
        is_known.then(|| Levels { reads: distinct(reads), writes: distinct(writes), alone })
    }

    /// The load test of that mix, as it follows.
    fn test(&self, mix: u8, depth: u32) -> Test {
        let (reads, commands) = (f64::from(mix) / 100.0, f64::from(depth));
        let mean = |rate: f64| {
            let writes = (1.0 - reads) * rate;
            reads * self.read_mean(writes) + (1.0 - reads) * self.write(writes).mean
        };
        // No command is faster than the fastest kind.
        let least = mean(0.0).min(self.alone).max(1.0) * 0.5;
        let rate = bisect((0.0, commands / least * 1e9), 64, |rate| commands * 1e9 - rate * mean(rate));
        let writes = (1.0 - reads) * rate;
        let shares = [(reads, self.read(writes)), (1.0 - reads, self.write(writes))];
        let at = |part: f64| quantile(&shares, part) as u64;
        let latency = Latency { mean: mean(rate), p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) };
        let kinds = ByKind { reads: Some(shares[0].1), writes: Some(shares[1].1) };
        Test { depth, iops: rate, latency, kinds }
    }

    fn read_mean(&self, writes: f64) -> f64 {
        let known: Vec<(f64, f64)> = self.reads.iter().map(|l| (l.writes, l.of.mean)).collect();
        monotone(&known, writes).max(1.0)
    }

    /// Latencies of reads beside so many writes a second: of the levels on both sides a part each, so that the mean is right.
    fn read(&self, writes: f64) -> Quantiles {
        let mean = self.read_mean(writes);
        let (low, high) = around(&self.reads, writes);
        let (low, high) = (&low.of, &high.of);
        let part = if high.mean == low.mean { 0.0 } else { (mean - low.mean) / (high.mean - low.mean) };
        if !(0.0..=1.0).contains(&part) {
            return high.times(mean / high.mean);
        }
        let parts = [(1.0 - part, *low), (part, *high)];
        Quantiles { mean, at: PARTS.map(|of| quantile(&parts, of) as u64) }
    }

    /// Latencies of writes at such a rate of them: at once, or what makes the rate that the buffer drains.
    fn write(&self, writes: f64) -> Quantiles {
        let last = &self.writes[self.writes.len() - 1];
        if writes >= last.writes {
            return last.of.times(power(writes / last.writes.max(1e-9), FULL));
        }
        let (low, high) = around(&self.writes, writes);
        let mut part = ((writes - low.writes) / (high.writes - low.writes)).clamp(0.0, 1.0);
        if low.of.mean < self.alone * WAITS {
            part = power(part, KNEE);
        }
        low.of.towards(&high.of, part)
    }
}

/// By rate; of those at as good as the same rate, which is what the buffer drains, the least latency.
fn distinct(mut levels: Vec<Level>) -> Vec<Level> {
    levels.sort_by(|a, b| a.writes.total_cmp(&b.writes));
    let mut kept: Vec<Level> = Vec::new();
    for level in levels {
        match kept.last_mut() {
            Some(last) if level.writes <= last.writes * SAME => {
                if level.of.mean < last.of.mean {
                    *last = Level { writes: last.writes, ..level };
                }
            }
            _ => kept.push(level),
        }
    }
    kept
}

/// A whole power, which `core` has not.
fn power(base: f64, of: u32) -> f64 {
    (0..of).fold(1.0, |product, _| product * base)
}

/// The levels on both sides of a rate; outside of them the two nearest, or twice the only one.
fn around(levels: &[Level], writes: f64) -> (Level, Level) {
    let last = levels.len() - 1;
    let high = levels.partition_point(|l| l.writes <= writes).clamp(last.min(1), last);
    (levels[high.saturating_sub(1)], levels[high])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(ns: f64) -> Quantiles {
        Quantiles { mean: ns, at: [ns as u64; PARTS.len()] }
    }

    /// A drive whose reads wait 5 ns for every write a second, and whose buffer drains `DRAINS` writes a second.
    fn measured(mix: u8, depth: u32) -> Test {
        let (reads, commands) = (f64::from(mix) / 100.0, f64::from(depth));
        let read = |rate: f64| 80_000.0 + 5.0 * (1.0 - reads) * rate;
        let free = bisect((0.0, 1e9), 80, |x| commands * 1e9 - x * (reads * read(x) + (1.0 - reads) * 20_000.0));
        let rate = free.min(DRAINS / (1.0 - reads).max(1e-9));
        let write = (commands * 1e9 / rate - reads * read(rate)) / (1.0 - reads).max(1e-9);
        let kinds = ByKind { reads: (mix > 0).then(|| all(read(rate))), writes: (mix < 100).then(|| all(write)) };
        let latency = Latency { mean: commands * 1e9 / rate, ..Latency::default() };
        Test { depth, iops: rate, latency, kinds }
    }

    const DRAINS: f64 = 40_000.0;

    fn points(mixes: &[u8]) -> Vec<LoadCurve> {
        let point = |mix: &u8| LoadCurve::new(4096, *mix, [1, 8, 32].map(|d| measured(*mix, d)).to_vec()).unwrap();
        mixes.iter().map(point).collect()
    }

    #[test]
    fn mixes_between_are_found_where_reads_go_with_the_rate_of_writes() {
        let all = filled(points(&[0, 30, 70, 100]));
        for mix in [10, 20, 40, 50, 60, 80, 90, 95] {
            let point = all.iter().find(|p| p.read_percent() == mix).expect("it is filled in");
            assert!(point.is_derived());
            for test in point.tests() {
                let off = test.iops / measured(mix, test.depth).iops - 1.0;
                assert!(off.abs() < 0.08, "{mix} % at {}: {:.1} %", test.depth, off * 100.0);
            }
        }
        assert_eq!(all.iter().filter(|p| !p.is_derived()).count(), 4);
    }

    #[test]
    fn what_a_line_between_the_mixes_makes_of_it() {
        let (low, high) = (measured(70, 32), measured(100, 32));
        let line = 2.0 / (1.0 / low.iops + 1.0 / high.iops);
        let off = line / measured(85, 32).iops - 1.0;
        assert!(off > 0.06, "a line would do: {:.1} %", off * 100.0);
    }

    #[test]
    fn reads_meet_writes_or_do_not() {
        let spread = |slow: f64| {
            let parts = [(1.0 - slow, all(80_000.0)), (slow, all(2_000_000.0))];
            let mean = parts.iter().map(|(part, q)| part * q.mean).sum();
            Quantiles { mean, at: PARTS.map(|of| quantile(&parts, of) as u64) }
        };
        let reads = [(0.0, 0.0), (10e3, 0.2)].map(|(writes, slow)| Level { writes, of: spread(slow) }).to_vec();
        let writes = alloc::vec![Level { writes: 10e3, of: all(20_000.0) }];
        let levels = Levels { reads, writes, alone: 20_000.0 };
        let half = levels.read(5e3);
        let [most, few] = [0.8, 0.95].map(|part| half.at[PARTS.iter().position(|p| *p == part).unwrap()]);
        assert!(most < 90_000 && few > 1_900_000, "one in ten meets a write: {half:?}");
    }

    #[test]
    fn nothing_is_filled_in_where_kinds_were_not_told_apart() {
        let mut tests = [1, 8].map(|d| measured(50, d)).to_vec();
        tests.iter_mut().for_each(|t| t.kinds = ByKind::default());
        let own = [points(&[0, 100]), alloc::vec![LoadCurve::new(4096, 50, tests).unwrap()]].concat();
        assert_eq!(filled(own).len(), 3);
        assert_eq!(filled(points(&[0, 100])).len(), 2, "nothing is known of both together");
    }

    proptest! {
        #[test]
        fn a_monotone_cubic_stays_between(steps in prop::collection::vec((1.0f64..100.0, 0.0f64..100.0), 2..8), at in 0.0f64..1.0) {
            let mut sum = (0.0, 0.0);
            let points: Vec<(f64, f64)> = steps.iter().map(|s| { sum = (sum.0 + s.0, sum.1 + s.1); sum }).collect();
            let x = points[0].0 + (sum.0 - points[0].0) * at;
            let y = monotone(&points, x);
            let i = points.partition_point(|p| p.0 <= x).clamp(1, points.len() - 1);
            prop_assert!(y >= points[i - 1].1 - 1e-6 && y <= points[i].1 + 1e-6, "{points:?} at {x}: {y}");
        }
    }
}
