//! Measuring a drive: which depth to test next, and what the tests say: γ, a and p.
//!
//! ```text
//!  Ladder ─ next_depth() ─▶ a load test at that depth ─ record(Test) ─▶ … ─▶ LoadCurve: γ at the knee, a at depth 1, p = γ·a
//!   1 2 4 8 … until two depths in a row bring nothing; then the depth asked for; then between the last two for the knee
//! ```
//! Source: the paper on quality of service for NVMe, IV.B: γ and a/p "by running a simple multi-client benchmark". p follows from
//! Little's law at the knee: commands in flight that are served, not waiting. Who carries the tests out is the caller's matter.

use crate::interpolate::{self, Towards};
use alloc::vec::Vec;
use core::fmt;
use weir_workload::{ByKind, Latency, Summary};

/// Less growth than this is none.
const GROWTH: f64 = 1.02;
/// The knee is the least depth with this part of the best throughput.
const KNEE: f64 = 0.98;
/// Tests between two depths for the knee.
const REFINEMENTS: u32 = 3;

/// One load test: closed loops, together `depth` commands outstanding.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Test {
    /// Commands outstanding.
    pub depth: u32,
    /// Commands a second.
    pub iops: f64,
    /// Their latencies, in nanoseconds.
    pub latency: Latency,
    /// Those of reads and those of writes, where they were told apart.
    pub kinds: ByKind,
}

impl Test {
    /// What came of a load test at that depth.
    pub fn new(depth: u32, got: &Summary) -> Test {
        Test { depth, iops: got.iops, latency: got.latency, kinds: got.kinds }
    }
}

/// The tests of one size and mix, and the depth of the next.
#[derive(Clone, Debug)]
pub struct Ladder {
    tests: Vec<Test>,
    /// The deepest that may be tested.
    most: u32,
    /// A depth that is tested in any case.
    also: Option<u32>,
    refinements: u32,
}

impl Ladder {
    /// Depths from 1 to `most`; `also` is one that is of interest by itself (the drive's slots) and tested if within them.
    pub fn new(most: u32, also: Option<u32>) -> Ladder {
        let most = most.max(1);
        Ladder { tests: Vec::new(), most, also: also.filter(|d| (1..=most).contains(d)), refinements: REFINEMENTS }
    }

    /// The depth to test now; `None`: enough is known.
    pub fn next_depth(&mut self) -> Option<u32> {
        let last = self.tests.iter().map(|t| t.depth).max();
        let Some(last) = last else { return Some(1) };
        if last < self.most && !self.has_stopped() {
            return Some(last.saturating_mul(2).min(self.most));
        }
        if let Some(depth) = self.also.take().filter(|d| !self.tests.iter().any(|t| t.depth == *d)) {
            return Some(depth);
        }
        self.refinements = self.refinements.checked_sub(1)?;
        let (below, knee) = self.around();
        let middle = below + (knee - below) / 2;
        (knee - below > (knee / 16).max(1)).then_some(middle)
    }

    /// What that test gave.
    pub fn record(&mut self, test: Test) {
        self.tests.push(test);
    }

    /// The depth last asked for cannot be had: nothing deeper is tested.
    pub fn refuse(&mut self, depth: u32) {
        self.most = self.most.min(depth.saturating_sub(1)).max(1);
        let deepest = self.tests.iter().map(|t| t.depth).max().unwrap_or(1);
        // What was reached is where it ends: there is no second try below the refused depth.
        self.most = self.most.min(deepest);
        self.also = self.also.filter(|d| *d <= self.most);
    }

    /// What was tested.
    pub fn into_tests(self) -> Vec<Test> {
        self.tests
    }

    /// Neither of the two deepest tests gave more than was known before it.
    fn has_stopped(&self) -> bool {
        let grew = |i: usize| {
            let before = self.tests[..i].iter().map(|t| t.iops).fold(0.0, f64::max);
            self.tests[i].iops > before * GROWTH
        };
        let n = self.tests.len();
        n >= 3 && !grew(n - 1) && !grew(n - 2)
    }

    /// The knee so far, and the deepest test below it.
    fn around(&self) -> (u32, u32) {
        let knee = knee(&self.tests).map_or(1, |t| t.depth);
        let below = self.tests.iter().map(|t| t.depth).filter(|d| *d < knee).max().unwrap_or(knee);
        (below, knee)
    }
}

/// The least depth that gives as good as the best throughput.
fn knee(tests: &[Test]) -> Option<&Test> {
    let best = tests.iter().map(|t| t.iops).fold(0.0, f64::max);
    tests.iter().filter(|t| t.iops >= best * KNEE).min_by_key(|t| t.depth)
}

/// Tests that make no point; the message is what the user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PointError {
    /// No test with one command outstanding, which says what a is.
    NoIdle,
    /// Figures that cannot be: the test's depth.
    Bad(u32),
    /// Two tests of one depth.
    Twice(u32),
    /// No request has that size, or more than 100 of 100 requests read.
    Request,
}

impl fmt::Display for PointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PointError::NoIdle => f.write_str("there is no test at qd = 1, which says how long a command alone takes"),
            PointError::Bad(depth) => {
                write!(f, "the test at qd = {depth} cannot be: qd, iops and the mean must be above 0")
            }
            PointError::Twice(depth) => write!(f, "there are two tests at qd = {depth}; keep one"),
            PointError::Request => f.write_str("the size must be above 0, and reads from 0 to 100"),
        }
    }
}

impl core::error::Error for PointError {}

/// A drive at one request size and one mix of reads and writes.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadCurve {
    size: u32,
    read_percent: u8,
    /// By depth; the first is at depth 1.
    tests: Vec<Test>,
    knee: usize,
    /// It follows from others, and was not measured.
    derived: bool,
}

impl LoadCurve {
    /// Of requests of `size` bytes, of which `read_percent` of 100 read.
    ///
    /// # Errors
    /// No test at depth 1, two of one depth, or figures that cannot be.
    pub fn new(size: u32, read_percent: u8, mut tests: Vec<Test>) -> Result<LoadCurve, PointError> {
        if size == 0 || read_percent > 100 {
            return Err(PointError::Request);
        }
        let positive = |x: f64| x.is_finite() && x > 0.0;
        let good = |t: &&Test| t.depth > 0 && positive(t.iops) && positive(t.latency.mean);
        if let Some(bad) = tests.iter().find(|t| !good(t)) {
            return Err(PointError::Bad(bad.depth));
        }
        tests.sort_by_key(|t| t.depth);
        if let Some(two) = tests.windows(2).find(|two| two[0].depth == two[1].depth) {
            return Err(PointError::Twice(two[0].depth));
        }
        if tests.first().is_none_or(|t| t.depth != 1) {
            return Err(PointError::NoIdle);
        }
        let depth = knee(&tests).map_or(1, |t| t.depth);
        let knee = tests.iter().position(|t| t.depth == depth).unwrap_or(0);
        Ok(LoadCurve { size, read_percent, tests, knee, derived: false })
    }

    /// The same, which follows from other points and was not measured.
    pub(crate) fn derived(self) -> LoadCurve {
        LoadCurve { derived: true, ..self }
    }

    /// Whether it was not measured.
    pub(crate) const fn is_derived(&self) -> bool {
        self.derived
    }

    /// Bytes of a request.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Requests that read, of 100.
    pub const fn read_percent(&self) -> u8 {
        self.read_percent
    }

    /// All tests, by depth.
    pub fn tests(&self) -> &[Test] {
        &self.tests
    }

    /// The test with one command outstanding.
    pub fn idle(&self) -> &Test {
        &self.tests[0]
    }

    /// The test of the least depth that gave as good as the best throughput (98 %).
    pub fn knee(&self) -> &Test {
        &self.tests[self.knee]
    }

    /// γ: commands a second at saturation.
    pub fn gamma(&self) -> f64 {
        self.knee().iops
    }

    /// γ in bytes a second.
    pub fn bandwidth(&self) -> f64 {
        self.gamma() * f64::from(self.size)
    }

    /// The fewest commands in flight with which the drive gives that part of γ; between two tests throughput is a straight line.
    pub fn depth_for(&self, part: f64) -> u32 {
        let wanted = self.gamma() * part;
        let Some(reached) = self.tests.iter().position(|t| t.iops >= wanted) else { return self.knee().depth };
        let [low, high] = [reached.saturating_sub(1), reached].map(|i| &self.tests[i]);
        let rise = (high.iops - low.iops).max(f64::MIN_POSITIVE);
        let more = f64::from(high.depth - low.depth) * (wanted - low.iops) / rise;
        // Whole commands, and no more than the test that reached it.
        let whole = more as u32 + u32::from(more > f64::from(more as u32));
        (low.depth + whole).min(high.depth)
    }

    /// a: mean latency of a command alone on the drive, in nanoseconds.
    pub fn a(&self) -> f64 {
        self.idle().latency.mean
    }

    /// p: commands that are carried out at once at saturation, by Little's law γ·a.
    pub fn p(&self) -> f64 {
        self.gamma() * self.a() * 1e-9
    }

    /// a/p in nanoseconds, which is 1/γ.
    pub fn a_per_p(&self) -> f64 {
        self.a() / self.p()
    }

    /// Seconds from one command of a closed loop to its next with `depth` outstanding in all: depth over throughput. Between tests on a
    /// monotone cubic, which is exact for a drive of p parts that commands hit at random (a·(1 + (n−1)/p)) and where
    /// throughput has stopped growing, both straight lines; throughput is never more than was measured. Beyond the deepest test it
    /// stays, and below 1 it is the time alone.
    pub fn cycle(&self, depth: f64) -> f64 {
        let longer = (depth / f64::from(self.deepest().depth)).max(1.0);
        let most = self.tests.iter().map(|test| test.iops).fold(0.0, f64::max);
        (self.between(depth, |test| f64::from(test.depth) / test.iops) * longer).max(depth / most)
    }

    /// Latency with `depth` commands outstanding in all, in nanoseconds, between tests on monotone cubics; beyond the deepest
    /// test all of its figures are later by what the queue is longer.
    pub fn latency(&self, depth: f64) -> Latency {
        let Latency { mean, p50, p99, p999, max } = self.between(depth, |test| test.latency);
        let later = self.later(depth);
        let [p50, p99, p999, max] = [p50, p99, p999, max].map(|ns| ns + later as u64);
        Latency { mean: mean + later, p50, p99, p999, max }
    }

    /// The same of reads and of writes.
    pub fn kinds(&self, depth: f64) -> ByKind {
        let later = self.later(depth);
        let ByKind { reads, writes } = self.between(depth, |test| test.kinds);
        ByKind { reads: reads.map(|q| q.later(later)), writes: writes.map(|q| q.later(later)) }
    }

    /// Mean latencies of reads and of writes, the same.
    pub fn means(&self, depth: f64) -> [Option<f64>; 2] {
        let later = self.later(depth);
        let means = self.between(depth, |test| [test.kinds.reads, test.kinds.writes].map(|q| q.map(|q| q.mean)));
        means.map(|mean| mean.map(|mean| mean + later))
    }

    fn deepest(&self) -> &Test {
        &self.tests[self.tests.len() - 1]
    }

    /// By what commands are later than in the deepest test, in nanoseconds.
    fn later(&self, depth: f64) -> f64 {
        let Test { depth: deepest, latency, .. } = self.deepest();
        latency.mean * (depth / f64::from(*deepest) - 1.0).max(0.0)
    }

    /// Whether that depth was tested, to a thousandth.
    pub fn has_tested(&self, depth: f64) -> bool {
        self.tests.iter().any(|t| (depth / f64::from(t.depth) - 1.0).abs() < 1e-3)
    }

    /// A figure at a depth from those of the tests; outside of them the nearest.
    fn between<T: Towards>(&self, depth: f64, of: impl Fn(&Test) -> T) -> T {
        interpolate::on_curve(&self.tests, |test| f64::from(test.depth), depth, of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A drive of `slots` places and a fixed latency.
    fn fixed(slots: u32, latency: f64) -> impl Fn(u32) -> Test {
        move |depth| test(depth, f64::from(depth.min(slots)) / latency * 1e9, latency)
    }

    /// A drive of `p` parts that commands hit at random.
    fn parts(p: f64, a: f64) -> impl Fn(u32) -> Test {
        move |depth| {
            let n = f64::from(depth);
            test(depth, p / a * n / (n + p - 1.0) * 1e9, a)
        }
    }

    fn test(depth: u32, iops: f64, idle: f64) -> Test {
        let mean = (f64::from(depth) / iops * 1e9).max(idle);
        let whole = mean as u64;
        let latency = Latency { mean, p50: whole, p99: whole, p999: whole, max: whole };
        Test { depth, iops, latency, ..Test::default() }
    }

    fn climb(mut ladder: Ladder, drive: impl Fn(u32) -> Test) -> LoadCurve {
        let mut count = 0;
        while let Some(depth) = ladder.next_depth() {
            ladder.record(drive(depth));
            count += 1;
            assert!(count < 40);
        }
        LoadCurve::new(4096, 100, ladder.into_tests()).unwrap()
    }

    #[test]
    fn the_fewest_that_give_a_part() {
        let point = LoadCurve::new(4096, 100, [1, 2, 4, 8, 16, 32].map(fixed(16, 80e3)).to_vec()).unwrap();
        let depths = [0.01, 0.25, 0.5, 0.6, 0.99, 1.0].map(|part| point.depth_for(part));
        assert_eq!(depths, [1, 4, 8, 10, 16, 16]);
        assert_eq!(point.depth_for(2.0), 16, "never more than where throughput ends");
    }

    #[test]
    fn a_drive_of_slots_is_found_exactly() {
        let point = climb(Ladder::new(256, None), fixed(16, 80_000.0));
        assert_eq!((point.knee().depth, point.a()), (16, 80_000.0));
        assert!((point.p() - 16.0).abs() < 1e-9 && (point.gamma() - 200_000.0).abs() < 1e-6, "{point:?}");
        assert!((point.a_per_p() - 5_000.0).abs() < 1e-9);
        let depths: Vec<u32> = point.tests().iter().map(|t| t.depth).collect();
        assert_eq!(depths, [1, 2, 4, 8, 12, 14, 15, 16, 32, 64], "it stops when two depths in a row bring nothing");
    }

    #[test]
    fn the_depth_of_interest_is_tested() {
        let point = climb(Ladder::new(256, Some(48)), fixed(50, 1000.0));
        assert!(point.tests().iter().any(|t| t.depth == 48));
        assert!((48.0 / point.cycle(48.0) / fixed(50, 1000.0)(48).iops - 1.0).abs() < 1e-12);
        assert_eq!(climb(Ladder::new(16, Some(48)), fixed(50, 1000.0)).tests().last().unwrap().depth, 16);
    }

    #[test]
    fn a_refused_depth_is_the_end() {
        let mut ladder = Ladder::new(256, Some(64));
        let drive = fixed(100, 1000.0);
        while let Some(depth) = ladder.next_depth() {
            if depth > 20 { ladder.refuse(depth) } else { ladder.record(drive(depth)) }
        }
        let point = LoadCurve::new(512, 0, ladder.into_tests()).unwrap();
        assert_eq!((point.knee().depth, point.tests().last().unwrap().depth), (16, 16));
    }

    #[test]
    fn what_makes_no_point() {
        let one = fixed(4, 10.0);
        assert_eq!(LoadCurve::new(4096, 50, alloc::vec![one(2)]), Err(PointError::NoIdle));
        assert_eq!(LoadCurve::new(4096, 50, alloc::vec![]), Err(PointError::NoIdle));
        assert_eq!(LoadCurve::new(4096, 50, alloc::vec![one(1), one(2), one(2)]), Err(PointError::Twice(2)));
        assert_eq!(
            LoadCurve::new(4096, 50, alloc::vec![one(1), Test { iops: f64::NAN, ..one(2) }]),
            Err(PointError::Bad(2))
        );
        assert_eq!(LoadCurve::new(0, 50, alloc::vec![one(1)]), Err(PointError::Request));
        assert_eq!(LoadCurve::new(1, 101, alloc::vec![one(1)]), Err(PointError::Request));
    }

    proptest! {
        /// Whatever the drive: γ and p within the knee's 2 %, a exact, and a measured figure never above the drive's.
        #[test]
        fn gamma_a_and_p(slots in 1u32..300, latency in 100.0f64..1e7, at in 1u32..600) {
            let drive = fixed(slots, latency);
            let point = climb(Ladder::new(512, None), &drive);
            prop_assert!((point.a() / latency - 1.0).abs() < 1e-12);
            let gamma = f64::from(slots) / latency * 1e9;
            prop_assert!(point.gamma() <= gamma * 1.0001 && point.gamma() >= gamma * 0.979, "{} of {}", point.gamma(), gamma);
            prop_assert!(point.p() <= f64::from(slots) * 1.0001 && point.p() >= f64::from(slots) * 0.979);
            let iops = f64::from(at) / point.cycle(at.into());
            prop_assert!(iops <= drive(at).iops * 1.0001, "{} at {}", iops, at);
        }

        /// A drive without a sharp knee: γ is what the deepest useful test gave, and never more than p/a.
        #[test]
        fn soft_knees(p in 1.0f64..64.0, a in 1000.0f64..1e6) {
            let point = climb(Ladder::new(256, None), parts(p, a));
            let limit = p / a * 1e9;
            let deepest = parts(p, a)(256).iops;
            prop_assert!(point.gamma() <= limit * 1.0001 && point.gamma() >= deepest * 0.93, "{} of {}", point.gamma(), deepest);
        }
    }
}
