//! Whether load tests in real time can be believed: runs of one test, until enough of them had the machine and agree; and what
//! figures of one drive can be.
//!
//! ```text
//!   run ─▶ Runs: had a core? ─▶ three or more that agree ─▶ SteadyVerdict::Take(the median)
//!            │ no: does not count        │ no: again, nine in all ─▶ SteadyVerdict::Refuse
//!   LoadCurve ─▶ doubt: p over what was outstanding, less latency at more depth, less throughput, more bytes in less time
//! ```

use crate::calibrate::{LoadCurve, Test};
use alloc::vec::Vec;
use core::fmt;
use weir_units::Bytes;

/// A run whose thread had no core for more of its time does not count, in percent.
const DISTURBED_PCT: f64 = 5.0;
/// Runs that have to agree.
const LEAST: usize = 3;
/// Runs of a test, those that do not count as well.
const MOST: usize = 9;
/// What agrees is no further apart, over the median.
const SPREAD: f64 = 0.1;
/// Figures that contradict each other do so by more than this.
const TOLERANCE: f64 = 0.1;
/// At more depth a drive may give this much less throughput than its best: queues have a price.
const DROP: f64 = 0.25;

/// The runs of one load test so far: the caller keeps their results in the same order.
#[derive(Clone, Debug, Default)]
pub struct Runs(Vec<Run>);

#[derive(Clone, Copy, Debug)]
struct Run {
    iops: f64,
    waited_pct: f64,
}

/// What the runs so far say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SteadyVerdict {
    /// One more.
    Again,
    /// The run of that number, the first being 0, stands for all.
    Take(usize),
    /// They are nothing to build on. The run of that number is the median of all.
    Refuse(Unsteady, usize),
}

/// Why runs are nothing to build on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unsteady {
    /// So many of so many runs had no core for between `low` and `high` percent of their time.
    Disturbed {
        /// Runs that do not count.
        disturbed: usize,
        /// Runs.
        of: usize,
        /// The least time without a core of those, in percent.
        low: f64,
        /// The most.
        high: f64,
    },
    /// They had a core, and their throughputs differ.
    Unstable {
        /// Runs that had a core.
        of: usize,
        /// The least throughput, in commands a second.
        low: f64,
        /// The most.
        high: f64,
    },
}

impl fmt::Display for Unsteady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsteady::Disturbed { disturbed, of, low, high } => {
                write!(
                    f,
                    "the machine is disturbed: {disturbed} of {of} runs waited {low:.0} to {high:.0} % of their time for a core"
                )
            }
            Unsteady::Unstable { of, low, high } => {
                write!(f, "the figures are unstable: {of} runs of the same gave {low:.0} to {high:.0} IOPS")
            }
        }
    }
}

impl Runs {
    /// Another run gave `iops`; its thread had no core for so many percent of its time.
    pub fn add(&mut self, iops: f64, waited_pct: f64) -> SteadyVerdict {
        self.0.push(Run { iops, waited_pct });
        let calm = self.by_iops(|run| run.waited_pct <= DISTURBED_PCT);
        if let Some(median) = self.agreed(&calm) {
            return SteadyVerdict::Take(median);
        }
        if self.0.len() < MOST {
            return SteadyVerdict::Again;
        }
        let all = self.by_iops(|_| true);
        SteadyVerdict::Refuse(self.fault(&calm), all[all.len() / 2])
    }

    /// The numbers of the runs that `counts`, the slowest first.
    fn by_iops(&self, counts: impl Fn(&Run) -> bool) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..self.0.len()).filter(|i| counts(&self.0[*i])).collect();
        numbers.sort_by(|a, b| self.0[*a].iops.total_cmp(&self.0[*b].iops));
        numbers
    }

    /// The median of enough runs whose middle half agrees.
    fn agreed(&self, calm: &[usize]) -> Option<usize> {
        let aside = calm.len() / 4;
        let middle = &calm[aside..calm.len() - aside];
        let median = calm.get(calm.len() / 2)?;
        let (low, high) = (self.0[*middle.first()?].iops, self.0[*middle.last()?].iops);
        (calm.len() >= LEAST && high - low <= SPREAD * self.0[*median].iops).then_some(*median)
    }

    fn fault(&self, calm: &[usize]) -> Unsteady {
        if let ([low, .., high], true) = (calm, calm.len() >= LEAST) {
            return Unsteady::Unstable { of: calm.len(), low: self.0[*low].iops, high: self.0[*high].iops };
        }
        let waits = self.0.iter().map(|run| run.waited_pct).filter(|pct| *pct > DISTURBED_PCT);
        let (low, high) = (waits.clone().fold(f64::INFINITY, f64::min), waits.fold(0.0, f64::max));
        Unsteady::Disturbed { disturbed: self.0.len() - calm.len(), of: self.0.len(), low, high }
    }
}

/// Figures that no one drive gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doubt {
    /// By Little's law more commands were carried out at once than were there.
    Parallel {
        /// Carried out at once.
        p: f64,
        /// Outstanding, or the drive's slots.
        most: u32,
    },
    /// More commands outstanding were answered sooner.
    Sooner(Test, Test),
    /// More commands outstanding gave much less.
    Less(Test, Test),
    /// Larger reads are faster: size and figure of the smaller, of the larger; in nanoseconds alone, or commands a second.
    Larger {
        /// Bytes of both.
        sizes: (u32, u32),
        /// Latency alone of both, in nanoseconds.
        a: (f64, f64),
        /// Throughput of both, in commands a second.
        gamma: (f64, f64),
    },
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::Parallel { p, most } => {
                write!(
                    f,
                    "{p:.1} commands would have been carried out at once (IOPS * a) where there were {most} at the most"
                )
            }
            Doubt::Sooner(few, many) => write!(
                f,
                "a command took {:.1} us with {} outstanding and {:.1} us with {}",
                few.latency.mean / 1e3,
                few.depth,
                many.latency.mean / 1e3,
                many.depth
            ),
            Doubt::Less(few, many) => {
                write!(
                    f,
                    "{:.0} IOPS with {} outstanding and {:.0} with {}",
                    few.iops, few.depth, many.iops, many.depth
                )
            }
            Doubt::Larger { sizes, a, gamma } => write!(
                f,
                "reads of {} are faster than reads of {}: {:.1} and {:.1} us alone, {:.0} and {:.0} IOPS",
                Bytes(sizes.1.into()),
                Bytes(sizes.0.into()),
                a.1 / 1e3,
                a.0 / 1e3,
                gamma.1,
                gamma.0
            ),
        }
    }
}

impl LoadCurve {
    /// What contradicts itself in it; `slots`: commands that the drive carries out at once, where that is known.
    pub fn doubt(&self, slots: Option<u32>) -> Option<Doubt> {
        let most = self.knee().depth.min(slots.unwrap_or(u32::MAX));
        if self.p() > f64::from(most) * (1.0 + TOLERANCE) {
            return Some(Doubt::Parallel { p: self.p(), most });
        }
        let mut best = *self.idle();
        for two in self.tests().windows(2) {
            let [few, many] = [two[0], two[1]];
            if many.latency.mean < few.latency.mean * (1.0 - TOLERANCE) {
                return Some(Doubt::Sooner(few, many));
            }
            if many.iops < best.iops * (1.0 - DROP) {
                return Some(Doubt::Less(best, many));
            }
            best = if many.iops > best.iops { many } else { best };
        }
        None
    }

    /// What contradicts another point of the same drive: of reads alone, the larger are not faster. (Small writes may be slower than larger
    /// ones, where a drive has to read the rest of a page first.)
    pub fn doubt_beside(&self, other: &LoadCurve) -> Option<Doubt> {
        if (self.read_percent(), other.read_percent()) != (100, 100) || self.size() == other.size() {
            return None;
        }
        let (small, large) = if self.size() < other.size() { (self, other) } else { (other, self) };
        let sooner = large.a() < small.a() * (1.0 - TOLERANCE);
        let more = large.gamma() > small.gamma() * (1.0 + TOLERANCE);
        (sooner || more).then(|| Doubt::Larger {
            sizes: (small.size(), large.size()),
            a: (small.a(), large.a()),
            gamma: (small.gamma(), large.gamma()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use weir_workload::Latency;

    fn verdict(runs: &[(f64, f64)]) -> SteadyVerdict {
        let mut all = Runs::default();
        let mut last = SteadyVerdict::Again;
        for (i, (iops, waited)) in runs.iter().enumerate() {
            assert_eq!(last, SteadyVerdict::Again, "before run {i}");
            last = all.add(*iops, *waited);
        }
        last
    }

    #[test]
    fn three_that_agree_are_enough() {
        assert_eq!(verdict(&[(100.0, 0.0), (104.0, 0.0)]), SteadyVerdict::Again);
        assert_eq!(verdict(&[(104.0, 0.0), (100.0, 0.0), (102.0, 4.9)]), SteadyVerdict::Take(2));
    }

    #[test]
    fn a_run_without_a_core_does_not_count() {
        let all = [(100.0, 0.0), (20.0, 60.0), (101.0, 0.0), (99.0, 0.0)];
        assert_eq!(verdict(&all), SteadyVerdict::Take(0));
        assert_eq!(verdict(&all[..3]), SteadyVerdict::Again);
    }

    #[test]
    fn one_run_that_is_far_off_is_outvoted_by_more() {
        let all = [(100.0, 0.0), (50.0, 0.0), (101.0, 0.0), (99.0, 0.0)];
        assert_eq!(verdict(&all[..3]), SteadyVerdict::Again);
        assert!(matches!(verdict(&all), SteadyVerdict::Take(0 | 3)));
    }

    #[test]
    fn nine_that_do_not_agree_are_refused() {
        let wide: Vec<(f64, f64)> = (1..=9).map(|i| (f64::from(i) * 100.0, 0.0)).collect();
        let SteadyVerdict::Refuse(why, median) = verdict(&wide) else { panic!("taken") };
        assert_eq!(
            (format!("{why}"), median),
            ("the figures are unstable: 9 runs of the same gave 100 to 900 IOPS".into(), 4)
        );
        let busy: Vec<(f64, f64)> = (0..9).map(|i| (100.0, 40.0 + f64::from(i))).collect();
        let SteadyVerdict::Refuse(why, _) = verdict(&busy) else { panic!("taken") };
        let text = "the machine is disturbed: 9 of 9 runs waited 40 to 48 % of their time for a core";
        assert_eq!(format!("{why}"), text);
    }

    fn point(size: u32, reads: u8, tests: &[(u32, f64, f64)]) -> LoadCurve {
        let test = |(depth, iops, us): &(u32, f64, f64)| Test {
            depth: *depth,
            iops: *iops,
            latency: Latency { mean: us * 1e3, ..Latency::default() },
            ..Test::default()
        };
        LoadCurve::new(size, reads, tests.iter().map(test).collect()).unwrap()
    }

    #[test]
    fn figures_of_a_drive_are_not_doubted() {
        let plain = point(4096, 100, &[(1, 10e3, 100.0), (2, 20e3, 100.0), (8, 80e3, 100.0), (16, 79e3, 202.0)]);
        assert_eq!((plain.doubt(Some(8)), plain.doubt(None)), (None, None));
        let larger = point(16384, 100, &[(1, 9e3, 111.0), (8, 60e3, 133.0)]);
        assert_eq!((plain.doubt_beside(&larger), larger.doubt_beside(&plain)), (None, None));
        let writes = point(16384, 0, &[(1, 90e3, 11.0)]);
        assert_eq!(point(4096, 0, &[(1, 10e3, 100.0)]).doubt_beside(&writes), None, "it may have to read first");
    }

    #[test]
    fn what_contradicts_itself_is_told() {
        let said = |doubt: Option<Doubt>| doubt.map(|d| format!("{d}")).unwrap_or_default();
        let late = point(4096, 100, &[(1, 1e3, 1000.0), (8, 80e3, 100.0)]);
        assert!(said(late.doubt(None)).starts_with("80.0 commands would have been carried out at once"), "{late:?}");
        let wide = point(4096, 100, &[(1, 10e3, 100.0), (16, 150e3, 106.0)]);
        assert_eq!(wide.doubt(None), None);
        assert!(said(wide.doubt(Some(8))).ends_with("there were 8 at the most"));
        let sooner = point(4096, 100, &[(1, 10e3, 100.0), (2, 10e3, 200.0), (4, 36e3, 110.0)]);
        assert_eq!(said(sooner.doubt(None)), "a command took 200.0 us with 2 outstanding and 110.0 us with 4");
        let less = point(4096, 100, &[(1, 10e3, 100.0), (2, 20e3, 100.0), (4, 8e3, 500.0)]);
        assert_eq!(said(less.doubt(None)), "20000 IOPS with 2 outstanding and 8000 with 4");
        let (small, large) = (point(4096, 100, &[(1, 2e3, 500.0)]), point(16384, 100, &[(1, 10e3, 100.0)]));
        let text = "reads of 16KiB are faster than reads of 4KiB: 100.0 and 500.0 us alone, 10000 and 2000 IOPS";
        assert_eq!(
            (said(small.doubt_beside(&large)).as_str(), said(large.doubt_beside(&small)).as_str()),
            (text, text)
        );
    }
}
