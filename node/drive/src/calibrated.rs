//! What a calibrated drive should have done: its load tests say how many commands a second it carries out with so many in flight.
//!
//! With n commands in flight that the tests carry out in c(n) each, the drive should complete n/c(n) a second. So in a window in which n were in
//! flight for t(n) it should have completed N = Σ t(n)·n/c(n), and it has completed `done`. Its commands were in flight for Σ n·t(n) in all; as
//! many of them should have been so for that times `done`/N. The sum over the depths is what makes this right for load that comes and goes: n/c(n) is
//! concave, and the mean depth would promise more than the drive can.
//!
//! **Limits.** c is of the window's mean size and mix, which must lie between those that were measured ([`DriveModel::covers`]): whatever else the drive does is
//! no reason to call it slow. Nor is a window judged with more than a few commands that no load test has: flushes, deallocations. Depths are taken together by powers
//! of two.

use crate::speed::MachineTime;
use weir_controller::{Subsystem, Work};
use weir_driver::health::{NotJudged, WorkDone};
use weir_plan::DriveModel;
use weir_units::Nanos;

/// A thread that is busy for so much of a window, in percent, is what commands wait for.
const BUSY_PERCENT: u64 = 90;
/// Of so many commands of a window one may be neither a read nor a write.
const OTHERS: u64 = 50;

/// Totals at the last look.
#[derive(Clone, Debug, Default)]
struct Totals {
    at: Nanos,
    work: Work,
    delayed: Nanos,
    depth_times: Vec<Nanos>,
    machine: MachineTime,
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Calibrated {
    model: DriveModel,
    last: Totals,
    done: WorkDone,
    lateness: Nanos,
}

/// What a look has found: totals, and what is wrong with the window.
pub(crate) struct Found {
    pub done: WorkDone,
    pub lateness: Nanos,
    pub unjudged: Option<NotJudged>,
}

/// Commands in flight between two looks.
struct Window {
    /// Commands completed, bytes of each and percent that read, in the mean.
    commands: f64,
    size: f64,
    reads: f64,
    /// There are others than reads and writes, more than a few.
    has_others: bool,
    /// By power of two of the depth: for how long there were so many, and the sum of depth and time; nanoseconds.
    depths: [(f64, f64); 33],
}

impl Window {
    /// `None` where the counts have begun anew, this is the first look, or nothing was read or written.
    fn between(before: &Totals, work: &Work, depth_times: &[Nanos]) -> Option<Window> {
        let reads = work.reads.checked_sub(before.work.reads)?;
        let writes = work.writes.checked_sub(before.work.writes)?;
        let others = work.others.checked_sub(before.work.others)?;
        let moved = |work: &Work| work.read_bytes.wrapping_add(work.write_bytes);
        let bytes = moved(work).checked_sub(moved(&before.work))?;
        let commands = reads + writes;
        if commands == 0 || before.depth_times.is_empty() {
            return None;
        }
        let mut depths = [(0.0, 0.0); 33];
        for ((depth, now), before) in (0u32..).zip(depth_times).zip(&before.depth_times).skip(1) {
            let time = now.0.wrapping_sub(before.0) as f64;
            let (sum, weighted) = &mut depths[depth.ilog2() as usize];
            (*sum, *weighted) = (*sum + time, *weighted + time * f64::from(depth));
        }
        let percent = 100.0 * reads as f64 / commands as f64;
        Some(Window {
            commands: commands as f64,
            size: bytes as f64 / commands as f64,
            reads: percent.round(),
            has_others: others.saturating_mul(OTHERS) > commands,
            depths,
        })
    }

    fn in_flight(&self) -> f64 {
        self.depths.iter().map(|(_, weighted)| weighted).sum()
    }

    /// Commands that the drive should have completed.
    fn expected(&self, model: &DriveModel) -> f64 {
        let used = self.depths.iter().filter(|(time, _)| *time > 0.0);
        let completed =
            |(time, weighted): &(f64, f64)| weighted * 1e-9 / model.cycle(self.size, self.reads, weighted / time);
        used.map(completed).sum()
    }
}

impl Calibrated {
    pub fn new(now: Nanos, model: DriveModel) -> Self {
        let last = Totals { at: now, ..Totals::default() };
        Calibrated { model, last, done: WorkDone::default(), lateness: Nanos(0) }
    }

    /// Takes the totals at `now`. A window without a completed command is joined to the next.
    pub fn look(&mut self, now: Nanos, machine: &Subsystem, time: MachineTime) -> Found {
        let (work, depth_times) = (machine.total_work(), machine.depth_times());
        let delayed = machine.service_times().delayed;
        let was_in_flight =
            || depth_times.iter().zip(&self.last.depth_times).skip(1).any(|(now, before)| now != before);
        if work == self.last.work && was_in_flight() {
            return self.found(None);
        }
        let window = Window::between(&self.last, &work, depth_times);
        let span = now.saturating_sub(self.last.at);
        let unjudged = window.as_ref().and_then(|window| {
            let delayed = Nanos(delayed.0.wrapping_sub(self.last.delayed.0));
            self.count(window, delayed, (span, time))
        });
        self.last.depth_times.clear();
        self.last.depth_times.extend_from_slice(depth_times);
        (self.last.at, self.last.work, self.last.delayed, self.last.machine) = (now, work, delayed, time);
        self.found(unjudged)
    }

    /// Adds a window of that length; why it says nothing, if it does not.
    fn count(&mut self, window: &Window, delayed: Nanos, (span, time): (Nanos, MachineTime)) -> Option<NotJudged> {
        let (in_flight, expected) = (window.in_flight(), window.expected(&self.model));
        let as_tested = if expected > 0.0 { in_flight * window.commands / expected } else { 0.0 };
        self.done.operations = self.done.operations.saturating_add(window.commands as u64);
        self.done.expected = self.done.expected.saturating_add(Nanos(as_tested as u64));
        self.done.measured = self.done.measured.saturating_add(Nanos(in_flight as u64)).saturating_add(delayed);
        let squares = time.wait_squares.saturating_sub(self.last.machine.wait_squares) as f64;
        // Twice what it comes to in the mean: completions come in bunches, and so do waits.
        let late = window.commands * squares / span.0.max(1) as f64;
        self.lateness = self.lateness.saturating_add(Nanos(late as u64));
        let busy = time.busy.saturating_sub(self.last.machine.busy);
        if u128::from(busy.0) * 100 >= u128::from(span.0) * u128::from(BUSY_PERCENT) {
            return Some(NotJudged::Disturbed);
        }
        let is_measured = !window.has_others && self.model.covers(window.size, window.reads);
        (!is_measured).then_some(NotJudged::Unmeasured)
    }

    fn found(&self, unjudged: Option<NotJudged>) -> Found {
        Found { done: self.done, lateness: self.lateness, unjudged }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_plan::calibrate::{LoadCurve, Test};
    use weir_workload::{ByKind, Latency};

    /// A drive that carries out eight commands at once, in 100 us each.
    fn eight_at_once() -> DriveModel {
        let test = |depth: u32| {
            let mean = 1e5 * (f64::from(depth) / 8.0).max(1.0);
            let latency = Latency { mean, p50: 0, p99: 0, p999: 0, max: 0 };
            Test { depth, iops: f64::from(depth) / mean * 1e9, latency, kinds: ByKind::default() }
        };
        let point = LoadCurve::new(4096, 100, [1, 2, 4, 8, 16, 32, 64].map(test).to_vec());
        DriveModel::measured(vec![point.expect("a curve")], 64, 1 << 20).expect("a drive")
    }

    /// A second with 64 commands in flight, and one with a single command.
    fn bursts(commands: f64) -> Window {
        let mut depths = [(0.0, 0.0); 33];
        (depths[0], depths[6]) = ((1e9, 1e9), (1e9, 64e9));
        Window { commands, size: 4096.0, reads: 100.0, has_others: false, depths }
    }

    #[test]
    fn load_that_comes_and_goes_is_expected_depth_by_depth() {
        let drive = eight_at_once();
        // 10,000 alone, and 80,000 a second with more than eight.
        let expected = bursts(0.0).expected(&drive);
        assert!((expected / 90_000.0 - 1.0).abs() < 0.01, "{expected}");
        let by_mean_depth = 2.0 * 32.5 / drive.cycle(4096.0, 100.0, 32.5);
        assert!(by_mean_depth > expected * 1.5, "by the mean depth a healthy drive would be slow: {by_mean_depth}");
    }

    #[test]
    fn a_window_comes_to_its_factor() {
        let mut calibrated = Calibrated::new(Nanos(0), eight_at_once());
        for (commands, percent) in [(90_000.0, 100), (45_000.0, 200), (4_500.0, 2000)] {
            let before = calibrated.done;
            let found = calibrated.count(&bursts(commands), Nanos(0), (Nanos::from_secs(2), MachineTime::default()));
            let (expected, measured) =
                (calibrated.done.expected.0 - before.expected.0, calibrated.done.measured.0 - before.measured.0);
            assert_eq!((found, (measured * 100).div_ceil(expected).abs_diff(percent) <= 1), (None, true), "{percent}");
        }
    }

    #[test]
    fn a_flush_now_and_then_does_not_matter() {
        let at = |reads: u64, others: u64| Work { reads, others, read_bytes: reads * 4096, ..Work::default() };
        let before = Totals { depth_times: vec![Nanos(0); 2], ..Totals::default() };
        let window =
            |others| Window::between(&before, &at(1000, others), &[Nanos(0), Nanos(1_000_000)]).expect("a window");
        assert!(!window(20).has_others && window(21).has_others);
        assert_eq!((window(0).size, window(0).reads, window(0).in_flight()), (4096.0, 100.0, 1e6));
    }

    #[test]
    fn a_busy_thread_and_unmeasured_load_are_named() {
        let mut calibrated = Calibrated::new(Nanos(0), eight_at_once());
        let busy = MachineTime { busy: Nanos::from_millis(1900), ..MachineTime::default() };
        let span = Nanos::from_secs(2);
        let mut count = |window: Window, time| calibrated.count(&window, Nanos(0), (span, time));
        assert_eq!(count(bursts(1.0), busy), Some(NotJudged::Disturbed));
        let writes = Window { reads: 98.0, ..bursts(1.0) };
        assert_eq!(count(writes, MachineTime::default()), Some(NotJudged::Unmeasured));
        let flushes = Window { has_others: true, ..bursts(1.0) };
        assert_eq!(count(flushes, MachineTime::default()), Some(NotJudged::Unmeasured));
        let large = Window { size: 4097.0, ..bursts(1.0) };
        assert_eq!(count(large, MachineTime::default()), Some(NotJudged::Unmeasured));
    }

    /// A hundredth of what ends comes while the core is taken for 20 ms of 2 s, and is late by half of that.
    #[test]
    fn a_wait_for_the_core_makes_commands_late() {
        let mut calibrated = Calibrated::new(Nanos(0), eight_at_once());
        let time = MachineTime { wait_squares: 20_000_000 * 20_000_000, ..MachineTime::default() };
        calibrated.count(&bursts(1000.0), Nanos(0), (Nanos::from_secs(2), time));
        assert_eq!(calibrated.lateness.0, 2 * 1000 * 100_000);
    }
}
