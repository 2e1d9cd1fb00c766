//! Whether a tenant gets what it was promised: judged period by period, while it runs.
//!
//! ```text
//!  fetch ─▶ started(arrived, now, bytes) ─▶ Due: was it later than the promised rate says?  ─┐
//!  done  ─▶ completed(arrived, now) ─▶ Histogram, and how many are over each bound           ├─▶ Period ─▶ Attainment
//!  asked ─▶ roll(now, waiting since) ───────────────── periods that have ended are judged  ──┘
//! ```
//! **Rates.** A promised rate is a service curve: while commands of the tenant wait, each is due `size / rate` after the one
//! before it, and the first of them so long after it arrived. A command that starts later than that by more than
//! [`TOLERANCE`] has missed it, and with it its period; so has one that still waits. Who asks for less than it was promised,
//! or waits for its own completions, misses nothing. Each period is judged for itself: what was early or late before it
//! is forgiven.
//!
//! **Latencies** count from a command's arrival at the drive to its completion, the wait in its queue included. A bound on
//! the 99th percentile is missed by a period in which more than one in a hundred took longer, counted exactly; the
//! percentiles that are shown come from a histogram (to 0.4 %).
//!
//! Windows of [`PERIOD`] in which a tenant asked for nothing are not counted. Only tenants that were promised something
//! have this; two histograms take 116 KiB each.

use weir_units::{Bytes, Nanos, Rates, Sla};
use weir_workload::Histogram;

/// How long a period is.
pub const PERIOD: Nanos = Nanos::from_secs(1);
/// How much later than the promised rate says a command may start: 1 % of a period, the catch-up of a floor.
pub const TOLERANCE: Nanos = Nanos::from_millis(10);

const SECOND: u64 = 1_000_000_000;
/// Percent of the commands that a bound may be exceeded by, in thousandths: p50, p99, p999.
const MAY_EXCEED: [u64; 3] = [500, 10, 1];

/// What a tenant's last period was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeriodFigures {
    /// Commands completed.
    pub commands: u64,
    /// Commands started a second.
    pub iops: u64,
    /// Bytes started a second.
    pub bandwidth: Bytes,
    /// Of the latencies, to 0.4 %; 0 where nothing was completed.
    pub p50: Nanos,
    /// Of the latencies.
    pub p99: Nanos,
    /// Of the latencies.
    pub p999: Nanos,
    /// The longest.
    pub max: Nanos,
    /// A promised rate was missed.
    pub missed_rate: bool,
    /// A latency bound was missed.
    pub missed_latency: bool,
}

/// How a promise was kept so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attainment {
    /// What is judged: the floor and what was sold, whichever is more.
    pub rates: Rates,
    /// Windows that were judged.
    pub periods: u64,
    /// Those in which a rate was missed.
    pub missed_rate: u64,
    /// Those in which a latency bound was missed.
    pub missed_latency: u64,
    /// Those in which anything was missed.
    pub missed: u64,
    /// The newest period that was judged, and when it began; `None` before there was one.
    pub last: Option<(Nanos, PeriodFigures)>,
    /// When the first period of the present run began: all periods since were kept, or all were missed, as the last was.
    pub since: Nanos,
}

impl Attainment {
    /// Whether the newest period was kept; `None` before there was one.
    pub fn met(&self) -> Option<bool> {
        self.last.map(|(_, w)| !w.missed_rate && !w.missed_latency)
    }
}

/// A promised rate's clock.
#[derive(Clone, Copy, Debug)]
struct Due {
    rate: u64,
    due: u64,
    rest: u64,
}

impl Due {
    /// A command of so many units starts, of those that wait since `since`; how late that is.
    #[inline]
    fn start(&mut self, since: u64, now: u64, units: u32) -> u64 {
        if self.due < since {
            (self.due, self.rest) = (since, 0);
        }
        let time = u64::from(units) * SECOND + self.rest;
        (self.due, self.rest) = (self.due.saturating_add(time / self.rate), time % self.rate);
        now.saturating_sub(self.due)
    }

    /// How late a command is that has not started, of those that wait since `since`.
    fn lateness(&self, since: u64, now: u64) -> u64 {
        now.saturating_sub(self.due.max(since).saturating_add(SECOND / self.rate))
    }
}

/// What is counted in a period.
#[derive(Clone, Debug)]
struct Period {
    latencies: Histogram,
    completed: u64,
    over: [u64; 3],
    started: u64,
    bytes: u64,
    late: bool,
}

impl Period {
    fn new() -> Period {
        Period { latencies: Histogram::new(), completed: 0, over: [0; 3], started: 0, bytes: 0, late: false }
    }

    fn clear(&mut self) {
        if self.completed > 0 {
            self.latencies.clear();
        }
        (self.completed, self.over, self.started, self.bytes, self.late) = (0, [0; 3], 0, 0, false);
    }

    fn exceeds(&self) -> bool {
        self.over.iter().zip(MAY_EXCEED).any(|(over, thousandths)| over * 1000 > self.completed * thousandths)
    }

    fn figures(&self) -> PeriodFigures {
        let per_second = |n: u64| (u128::from(n) * u128::from(SECOND) / u128::from(PERIOD.0)) as u64;
        let at = |percent| Nanos(self.latencies.percentile(percent));
        PeriodFigures {
            commands: self.completed,
            iops: per_second(self.started),
            bandwidth: Bytes(per_second(self.bytes)),
            p50: at(50.0),
            p99: at(99.0),
            p999: at(99.9),
            max: Nanos(self.latencies.max()),
            missed_rate: self.late,
            missed_latency: self.exceeds(),
        }
    }
}

/// The judge of one tenant's promise.
#[derive(Clone, Debug)]
pub struct Judge {
    bounds: [u64; 3],
    dues: [Option<Due>; 2],
    /// When a command was last started.
    started: u64,
    start: u64,
    now: Period,
    last: Period,
    so_far: Attainment,
}

impl Judge {
    /// A judge of a floor's rates and of what was sold, from `now` on; `None` where nothing was promised.
    pub fn new(floor: Rates, sla: &Sla, now: Nanos) -> Option<Judge> {
        if floor.is_none() && sla.is_none() {
            return None;
        }
        let rates = floor.max(sla.rates);
        let bounds = [sla.p50, sla.p99, sla.p999].map(|bound| bound.map_or(u64::MAX, Nanos::get));
        let due = |rate: u64| Due { rate: rate.clamp(1, 1 << 60), due: now.0, rest: 0 };
        let dues = [rates.iops, rates.bandwidth.map(Bytes::get)].map(|rate| rate.map(due));
        let so_far = Attainment { rates, since: now, ..Attainment::default() };
        Some(Judge { bounds, dues, started: now.0, start: now.0, now: Period::new(), last: Period::new(), so_far })
    }

    /// A command of so many bytes that came at `arrived` leaves its queue.
    #[inline]
    pub fn started(&mut self, arrived: Nanos, now: Nanos, bytes: u32) {
        self.roll(now, Some(arrived));
        let since = self.since(arrived.0);
        for (due, units) in self.dues.iter_mut().zip([1, bytes]) {
            if let Some(due) = due {
                self.now.late |= due.start(since, now.0, units) > TOLERANCE.0;
            }
        }
        self.started = now.0;
        self.now.started += 1;
        self.now.bytes += u64::from(bytes);
    }

    /// Since when somebody waits, if a command that came at `arrived` does: it waited when the last one was started, or
    /// nobody did in between.
    fn since(&self, arrived: u64) -> u64 {
        if arrived <= self.started { 0 } else { arrived }
    }

    /// A command that came at `arrived` is complete.
    #[inline]
    pub fn completed(&mut self, arrived: Nanos, now: Nanos) {
        self.roll(now, None);
        let latency = now.saturating_sub(arrived).0;
        self.now.latencies.record(latency);
        self.now.completed += 1;
        for (over, bound) in self.now.over.iter_mut().zip(self.bounds) {
            *over += u64::from(latency > bound);
        }
    }

    /// Judges the periods that have ended by `now`. `waiting`: the arrival of the command that has waited longest, if any
    /// waits.
    #[inline]
    pub fn roll(&mut self, now: Nanos, waiting: Option<Nanos>) {
        if now.0.saturating_sub(self.start) >= PERIOD.0 {
            self.end(now.0, waiting);
        }
    }

    #[cold]
    fn end(&mut self, now: u64, waiting: Option<Nanos>) {
        while now - self.start >= PERIOD.0 {
            let end = self.start + PERIOD.0;
            if let Some(arrived) = waiting.filter(|arrived| arrived.0 < end) {
                let since = self.since(arrived.0);
                let lateness = |due: &Due| due.lateness(since, end);
                self.now.late |= self.dues.iter().flatten().any(|due| lateness(due) > TOLERANCE.0);
            }
            let asked = self.now.late || self.now.started > 0 || self.now.completed > 0;
            if asked {
                self.judge();
            }
            // What was late or early in this period is forgiven in the next.
            self.dues.iter_mut().flatten().for_each(|due| (due.due, due.rest) = (end, 0));
            self.start = end;
            if !asked {
                // Nothing happens until something arrives.
                let until = waiting.map_or(now, |arrived| arrived.0.min(now));
                self.start += until.saturating_sub(self.start) / PERIOD.0 * PERIOD.0;
            }
        }
    }

    fn judge(&mut self) {
        let (late, exceeds) = (self.now.late, self.now.exceeds());
        let missed = late || exceeds;
        if self.so_far.met() != Some(!missed) {
            self.so_far.since = Nanos(self.start);
        }
        self.so_far.periods += 1;
        self.so_far.missed_rate += u64::from(late);
        self.so_far.missed_latency += u64::from(exceeds);
        self.so_far.missed += u64::from(missed);
        let outline = PeriodFigures { missed_rate: late, missed_latency: exceeds, ..PeriodFigures::default() };
        self.so_far.last = Some((Nanos(self.start), outline));
        core::mem::swap(&mut self.now, &mut self.last);
        self.now.clear();
    }

    /// How the promise was kept, up to the last period that has ended by `now`.
    pub fn so_far(&mut self, now: Nanos, waiting: Option<Nanos>) -> Attainment {
        self.roll(now, waiting);
        let last = self.so_far.last.map(|(start, _)| (start, self.last.figures()));
        Attainment { last, ..self.so_far }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn judge(iops: Option<u64>, p99: Option<u64>) -> Judge {
        let sla = Sla { p99: p99.map(Nanos), ..Sla::default() };
        Judge::new(Rates { iops, bandwidth: None }, &sla, Nanos(0)).expect("a promise")
    }

    /// Commands that arrive every `gap` and start `wait` later, for so many milliseconds.
    fn load(j: &mut Judge, from: u64, to: u64, gap: u64, wait: u64) {
        let mut at = from * MS;
        while at < to * MS {
            j.started(Nanos(at), Nanos(at + wait), 4096);
            j.completed(Nanos(at), Nanos(at + wait));
            at += gap;
        }
    }

    #[test]
    fn nothing_promised_nothing_judged() {
        assert!(Judge::new(Rates::default(), &Sla::default(), Nanos(0)).is_none());
    }

    #[test]
    fn a_rate_is_missed_only_by_who_waits() {
        // 1,000 a second were promised. Who asks for 100 and is served at once has what it wants.
        let mut j = judge(Some(1000), None);
        load(&mut j, 0, 3000, 10 * MS, 0);
        let a = j.so_far(Nanos(3000 * MS), None);
        assert_eq!((a.periods, a.missed, a.met()), (3, 0, Some(true)));
        assert_eq!(a.last.map(|(at, w)| (at.0, w.commands, w.iops)), Some((2000 * MS, 100, 100)));
        // Who has 900 of the 1,000 that it always asks for falls behind.
        let mut j = judge(Some(1000), None);
        for n in 0..2700 {
            j.started(Nanos(0), Nanos(n * SECOND / 900), 4096);
        }
        let a = j.so_far(Nanos(3000 * MS), Some(Nanos(0)));
        assert_eq!((a.periods, a.missed_rate, a.missed_latency, a.met()), (3, 3, 0, Some(false)));
        // So does who keeps eight in flight, however short they wait.
        let mut j = judge(Some(1000), None);
        for n in 8..2700 {
            j.started(Nanos((n - 8) * SECOND / 900), Nanos(n * SECOND / 900), 4096);
        }
        assert_eq!(j.so_far(Nanos(3000 * MS), Some(Nanos(2995 * MS))).missed_rate, 3);
        // With 999 the miss is within what is tolerated.
        let mut j = judge(Some(1000), None);
        for n in 0..2997 {
            j.started(Nanos(0), Nanos(n * SECOND / 999), 4096);
        }
        assert_eq!(j.so_far(Nanos(3000 * MS), Some(Nanos(0))).missed, 0);
    }

    #[test]
    fn who_is_not_served_at_all_has_missed_every_period() {
        let mut j = judge(Some(1000), None);
        let a = j.so_far(Nanos(7300 * MS), Some(Nanos(2500 * MS)));
        assert_eq!((a.periods, a.missed_rate), (5, 5), "from the third period on");
        assert_eq!((a.since, a.met()), (Nanos(2000 * MS), Some(false)));
        // A command that came just before the period's end is not late yet.
        let mut j = judge(Some(1000), None);
        assert_eq!(j.so_far(Nanos(1000 * MS), Some(Nanos(995 * MS))).periods, 0);
    }

    #[test]
    fn a_bound_may_be_exceeded_by_one_in_a_hundred() {
        for (slow, missed) in [(10, 0), (11, 1)] {
            let mut j = judge(None, Some(MS));
            for n in 0..1000 {
                let latency = if n < slow { MS + 1 } else { MS };
                j.completed(Nanos(n * 1000), Nanos(n * 1000 + latency));
            }
            let a = j.so_far(Nanos(SECOND), None);
            assert_eq!((a.periods, a.missed_latency, a.missed_rate), (1, missed, 0), "{slow}");
        }
    }

    #[test]
    fn since_when() {
        let mut j = judge(None, Some(MS));
        load(&mut j, 0, 2000, MS, 500_000);
        load(&mut j, 2000, 3990, MS, 2 * MS);
        // Idle for a while: that is no change.
        load(&mut j, 9000, 9500, MS, 2 * MS);
        let a = j.so_far(Nanos(9_990 * MS), None);
        assert_eq!((a.periods, a.missed, a.since), (4, 2, Nanos(2000 * MS)));
        let a = j.so_far(Nanos(10_000 * MS), None);
        assert_eq!((a.periods, a.missed, a.since, a.met()), (5, 3, Nanos(2000 * MS), Some(false)));
        load(&mut j, 10_000, 10_900, MS, 1);
        let a = j.so_far(Nanos(11_500 * MS), None);
        assert_eq!((a.periods, a.missed, a.since, a.met()), (6, 3, Nanos(10_000 * MS), Some(true)));
    }

    #[test]
    fn the_percentiles_are_the_periods() {
        let mut j = judge(None, Some(MS));
        for n in 1..=1000 {
            j.completed(Nanos(0), Nanos(n * 1000));
        }
        let (_, w) = j.so_far(Nanos(SECOND), None).last.unwrap();
        for (got, want) in [(w.p50, 500_000u64), (w.p99, 990_000), (w.p999, 999_000), (w.max, 1_000_000)] {
            assert!(got.0.abs_diff(want) <= want / 200, "{got} {want}");
        }
    }
}
