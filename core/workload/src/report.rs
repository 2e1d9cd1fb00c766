//! What a job achieved: counted while it runs, merged over its copies, summed up at the end.

use crate::generator::RequestKind;
use crate::histogram::Histogram;
use crate::quantiles::{ByKind, Quantiles};
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::{Class, Nanos};

/// Counts one copy of a job. One histogram is touched per request; intervals are closed by [`tick`](Self::tick).
#[derive(Clone, Debug)]
pub struct Recorder {
    start: Nanos,
    /// Length of an interval of the series; no series if absent.
    interval: Option<Nanos>,
    interval_end: Nanos,
    now: Counts,
    closed: Counts,
    series: Vec<Counts>,
    gap: Option<Nanos>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Of all; where kinds are told apart, of those that do not write.
    latency: Histogram,
    /// Of those that write, where kinds are told apart.
    writes: Option<Histogram>,
    bytes: u64,
    /// Of the bytes, where kinds are told apart.
    written: u64,
    errors: u64,
    /// Of the errors.
    wrong_data: u64,
}

impl Counts {
    /// Of what does not write, and of what does, where kinds are told apart. Errors are of neither.
    fn by_kind(&self) -> Option<[Counts; 2]> {
        let part = |latency: &Histogram, bytes| Counts { latency: latency.clone(), bytes, ..Counts::default() };
        Some([part(&self.latency, self.bytes - self.written), part(self.writes.as_ref()?, self.written)])
    }

    fn merge(&mut self, other: &Counts) {
        self.latency.merge(&other.latency);
        match (&mut self.writes, &other.writes) {
            (Some(ours), Some(theirs)) => ours.merge(theirs),
            (None, Some(theirs)) => self.writes = Some(theirs.clone()),
            (_, None) => {}
        }
        self.bytes += other.bytes;
        self.written += other.written;
        self.errors += other.errors;
        self.wrong_data += other.wrong_data;
    }
    fn clear(&mut self) {
        self.latency.clear();
        self.writes.iter_mut().for_each(Histogram::clear);
        (self.bytes, self.written, self.errors, self.wrong_data) = (0, 0, 0, 0);
    }

    fn count(&self) -> u64 {
        self.latency.count() + self.writes.as_ref().map_or(0, Histogram::count)
    }

    /// Of every kind.
    fn all(&self) -> Histogram {
        let mut all = self.latency.clone();
        self.writes.iter().for_each(|writes| all.merge(writes));
        all
    }
}

/// The most points of a series; what comes later is in the summary alone.
const MAX_POINTS: usize = 10_000;

/// The percentiles of a distribution, denser towards the end.
const PERCENTILES: [f64; 22] = [
    0.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 85.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.9, 99.95, 99.99,
    99.995, 99.999, 100.0,
];

impl Recorder {
    /// Counts from `start` on, with a point for each `interval` if one is given. Copies to be merged later share both.
    pub fn new(start: Nanos, interval: Option<Nanos>) -> Self {
        let interval_end = interval.map_or(Nanos::NEVER, |i| start.saturating_add(i));
        Recorder {
            start,
            interval,
            interval_end,
            now: Counts::default(),
            closed: Counts::default(),
            series: Vec::new(),
            gap: None,
        }
    }

    /// The same, and keeps the latencies of what writes apart from those of the others.
    pub fn by_kind(mut self) -> Self {
        (self.now.writes, self.closed.writes) = (Some(Histogram::new()), Some(Histogram::new()));
        self
    }

    /// A request of `len` bytes took so many nanoseconds.
    #[inline]
    pub fn record(&mut self, latency: u64, len: u32, kind: RequestKind) {
        match &mut self.now.writes {
            Some(writes) if kind == RequestKind::Write => {
                writes.record(latency);
                self.now.written += u64::from(len);
            }
            _ => self.now.latency.record(latency),
        }
        self.now.bytes += u64::from(len);
    }

    /// Nothing came for so long, and then something did.
    #[inline]
    pub fn gap(&mut self, gap: Nanos) {
        if self.gap.is_none_or(|longest| longest < gap) {
            self.gap = Some(gap);
        }
    }

    /// A request failed.
    pub fn error(&mut self) {
        self.now.errors += 1;
    }

    /// A request read other data than had been written: an error too.
    pub fn wrong_data(&mut self) {
        self.now.errors += 1;
        self.now.wrong_data += 1;
    }

    /// Closes the intervals that have ended; call it at least once an interval.
    #[inline]
    pub fn tick(&mut self, now: Nanos) {
        if now >= self.interval_end {
            self.close(now);
        }
    }

    #[cold]
    fn close(&mut self, now: Nanos) {
        let Some(interval) = self.interval.filter(|i| i.get() > 0) else { return };
        while now >= self.interval_end {
            self.closed.merge(&self.now);
            if self.series.len() < MAX_POINTS {
                self.series.push(self.now.clone());
            }
            self.now.clear();
            self.interval_end = self.interval_end.saturating_add(interval);
        }
    }

    /// Requests that succeeded and requests that failed, so far.
    pub fn so_far(&self) -> (u64, u64) {
        (self.now.count() + self.closed.count(), self.now.errors + self.closed.errors)
    }

    /// Bytes moved so far.
    pub fn bytes(&self) -> u64 {
        self.now.bytes + self.closed.bytes
    }

    /// Adds another copy's counts; both must have the same start and interval.
    pub fn merge(&mut self, other: &Recorder) {
        self.now.merge(&other.now);
        self.closed.merge(&other.closed);
        self.gap = self.gap.max(other.gap);
        for (i, theirs) in other.series.iter().enumerate() {
            match self.series.get_mut(i) {
                Some(ours) => ours.merge(theirs),
                None => self.series.push(theirs.clone()),
            }
        }
    }

    /// The figures over `active` nanoseconds.
    pub fn summary(&self, active: Nanos) -> Summary {
        let mut all = self.closed.clone();
        all.merge(&self.now);
        Summary { longest_gap: self.gap, ..Summary::of(&all, active) }
    }

    /// The part of the requests that took longer than so many nanoseconds; 0 without any.
    pub fn above(&self, latency: u64) -> f64 {
        let mut all = self.closed.all();
        all.merge(&self.now.all());
        all.above(latency) as f64 / all.count().max(1) as f64
    }

    /// The series: one point for each closed interval.
    pub fn series(&self) -> Vec<SeriesPoint> {
        let Some(interval) = self.interval else { return Vec::new() };
        let points = self.series.iter().enumerate().map(|(i, counts)| {
            let s = Summary::of(counts, interval);
            SeriesPoint {
                t_s: Nanos((i as u64 + 1) * interval.get()).as_secs_f64(),
                iops: s.iops,
                bandwidth_bytes_per_s: s.bandwidth_bytes_per_s,
                p99_ns: s.latency.p99,
            }
        });
        points.collect()
    }

    /// What does not write, and what does, each for itself, where kinds are told apart; errors are of neither.
    pub fn by_kind_of_request(&self) -> Option<[Recorder; 2]> {
        let [mut reads, mut writes] = [(); 2].map(|()| Recorder { gap: None, series: Vec::new(), ..self.clone() });
        ([reads.now, writes.now], [reads.closed, writes.closed]) = (self.now.by_kind()?, self.closed.by_kind()?);
        for counts in &self.series {
            let [read, written] = counts.by_kind()?;
            reads.series.push(read);
            writes.series.push(written);
        }
        Some([reads, writes])
    }

    /// The latencies by percentile, percent and nanoseconds, from the shortest to the longest; empty without any.
    pub fn distribution(&self) -> Vec<(f64, u64)> {
        let mut all = self.closed.all();
        all.merge(&self.now.all());
        let wanted = PERCENTILES.iter().filter(|_| all.count() > 0);
        wanted.map(|percent| (*percent, all.percentile(*percent))).collect()
    }

    /// When counting began.
    pub fn start(&self) -> Nanos {
        self.start
    }
}

/// Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// Arithmetic mean, exact.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Largest, exact.
    pub max: u64,
}

/// A job's figures, or the whole run's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Successful requests a second.
    pub iops: f64,
    /// Their bytes a second.
    pub bandwidth_bytes_per_s: f64,
    /// Their latencies.
    pub latency: Latency,
    /// The same by kind, where kinds are told apart.
    pub kinds: ByKind,
    /// Requests that failed, and those that read wrong data.
    pub errors: u64,
    /// Of the errors: requests that read other data than had been written, where data is verified.
    pub wrong_data: u64,
    /// The longest time of one copy in which nothing was completed although something was asked, where that was looked at.
    pub longest_gap: Option<Nanos>,
}

impl Summary {
    fn of(counts: &Counts, active: Nanos) -> Self {
        let h = &counts.all();
        let apart = |writes| ByKind { reads: Quantiles::of(&counts.latency), writes: Quantiles::of(writes) };
        let per_second = |n: u64| if active.get() == 0 { 0.0 } else { n as f64 / active.as_secs_f64() };
        Summary {
            iops: per_second(h.count()),
            bandwidth_bytes_per_s: per_second(counts.bytes),
            latency: Latency {
                mean: h.mean(),
                p50: h.percentile(50.0),
                p99: h.percentile(99.0),
                p999: h.percentile(99.9),
                max: h.max(),
            },
            kinds: counts.writes.as_ref().map(apart).unwrap_or_default(),
            errors: counts.errors,
            wrong_data: counts.wrong_data,
            longest_gap: None,
        }
    }
}

/// One interval of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesPoint {
    /// End of the interval, in seconds from the start.
    pub t_s: f64,
    /// Requests a second in it.
    pub iops: f64,
    /// Bytes a second in it.
    pub bandwidth_bytes_per_s: f64,
    /// 99th percentile of the latencies in it.
    pub p99_ns: u64,
}

/// A job's line in the report.
#[derive(Clone, Debug, PartialEq)]
pub struct JobResult {
    /// Its name.
    pub name: String,
    /// Its class, where it has one.
    pub class: Option<Class>,
    /// Its figures.
    pub summary: Summary,
    /// Its series, where one was asked for.
    pub series: Vec<SeriesPoint>,
    /// Its latencies, from the shortest to the longest: percent of the requests, and how many nanoseconds these took at the most.
    pub distribution: Vec<(f64, u64)>,
    /// The same of its reads and of its writes, where kinds are told apart. Errors are not.
    pub kinds: Vec<JobResult>,
}

impl JobResult {
    /// What was recorded in so many nanoseconds.
    pub fn of(name: String, class: Option<Class>, recorder: &Recorder, active: Nanos) -> Self {
        let part = |(kind, recorder): (&str, Recorder)| {
            JobResult::of(alloc::format!("{name} {kind}"), class, &recorder, active)
        };
        let kinds =
            recorder.by_kind_of_request().map(|parts| ["reads", "writes"].into_iter().zip(parts).map(part).collect());
        JobResult {
            summary: recorder.summary(active),
            series: recorder.series(),
            distribution: recorder.distribution(),
            kinds: kinds.unwrap_or_default(),
            name,
            class,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    #[test]
    fn summary_and_series() {
        let mut r = Recorder::new(Nanos(5), Some(SECOND));
        for i in 0..30u64 {
            r.tick(Nanos(5 + i * 100_000_000));
            r.record(1000, 4096, RequestKind::Read);
        }
        r.error();
        let s = r.summary(Nanos::from_secs(3));
        assert_eq!((s.iops, s.bandwidth_bytes_per_s, s.errors), (10.0, 40_960.0, 1));
        assert_eq!((s.latency.p50, s.latency.max), (1000, 1000));
        let points = r.series();
        assert_eq!(points.len(), 2, "the third interval is not over");
        assert_eq!(points[1], SeriesPoint { t_s: 2.0, iops: 10.0, bandwidth_bytes_per_s: 40_960.0, p99_ns: 1000 });
        r.tick(Nanos(5 + 3_000_000_000));
        assert_eq!(r.series().len(), 3);
        assert_eq!((r.so_far(), r.bytes()), ((30, 1), 30 * 4096));
    }

    #[test]
    fn copies_add_up() {
        let mut a = Recorder::new(Nanos(0), Some(SECOND));
        let mut b = a.clone();
        a.record(10, 512, RequestKind::Read);
        a.tick(SECOND);
        b.record(20, 512, RequestKind::Read);
        b.tick(SECOND);
        b.record(30, 512, RequestKind::Read);
        b.tick(Nanos::from_secs(2));
        b.gap(Nanos(70));
        b.gap(Nanos(30));
        a.merge(&b);
        assert_eq!(a.summary(SECOND).longest_gap, Some(Nanos(70)));
        assert_eq!(a.series().iter().map(|p| p.iops).collect::<Vec<_>>(), [2.0, 1.0]);
        let s = a.summary(Nanos::from_secs(2));
        assert_eq!((s.iops, s.latency.max, s.latency.mean), (1.5, 30, 20.0));
    }

    #[test]
    fn kinds_are_told_apart_where_that_is_asked_for() {
        let mut r = Recorder::new(Nanos(0), Some(SECOND)).by_kind();
        let mut plain = Recorder::new(Nanos(0), None);
        for i in 0..100u64 {
            let (latency, kind) = if i % 4 == 0 { (10, RequestKind::Write) } else { (1000 + i, RequestKind::Read) };
            r.tick(Nanos(i * 20_000_000));
            r.record(latency, 512, kind);
            plain.record(latency, 512, kind);
        }
        let mut all = Recorder::new(Nanos(0), None);
        all.merge(&r);
        let (s, whole) = (all.summary(SECOND), plain.summary(SECOND));
        assert_eq!((s.latency, s.iops, all.so_far(), all.above(500)), (whole.latency, 100.0, (100, 0), 0.75));
        assert_eq!(s.kinds.writes.unwrap().at, [10; crate::PARTS.len()]);
        let reads = s.kinds.reads.unwrap();
        assert!(reads.at[0] >= 1000 && reads.mean > 1000.0, "{reads:?}");
        assert_eq!(whole.kinds, ByKind::default());
        let result = JobResult::of("db".into(), None, &all, SECOND);
        let [reads, writes] = &result.kinds[..] else { panic!("two kinds: {result:?}") };
        assert_eq!((reads.name.as_str(), writes.name.as_str()), ("db reads", "db writes"));
        assert_eq!((reads.summary.iops, writes.summary.iops), (75.0, 25.0));
        assert_eq!((writes.summary.latency.max, writes.summary.bandwidth_bytes_per_s), (10, 25.0 * 512.0));
        assert!(reads.distribution[0].1 >= 1000 && reads.series.len() == result.series.len(), "{reads:?}");
        assert!(JobResult::of("db".into(), None, &plain, SECOND).kinds.is_empty());
    }

    #[test]
    fn no_series_unless_asked_for() {
        let mut r = Recorder::new(Nanos(0), None);
        r.record(1, 1, RequestKind::Read);
        r.tick(Nanos(u64::MAX - 1));
        assert!(r.series().is_empty());
        assert_eq!(r.summary(Nanos(0)).iops, 0.0);
    }
}
