//! The line that moves while a run lasts.

use super::worker::WorkerProgress;
use crate::report::count;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_units::Nanos;

/// How often it moves.
const STEP: Duration = Duration::from_millis(250);

/// A bar over the run's time with the rate of the last moment; nothing where nobody watches.
pub struct BenchProgress {
    bar: Option<ProgressBar>,
    made: Instant,
    /// The moment at which every target was open.
    begun: Option<Instant>,
    last: (Instant, u64, u64),
}

impl BenchProgress {
    /// For a run that lasts so long.
    pub fn new(time: Nanos) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(time.get() / 1_000_000);
            // The template is a constant and was tried.
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        let now = Instant::now();
        BenchProgress { bar, made: now, begun: None, last: (now, 0, 0) }
    }

    /// Shows the rate until `is_over`.
    pub fn follow(&mut self, progress: &[Arc<WorkerProgress>], is_over: impl Fn() -> bool) {
        while !is_over() {
            // A short run must not wait for its line.
            std::thread::sleep(if self.made.elapsed() < STEP { STEP / 50 } else { STEP / 5 });
            if self.bar.is_some() && self.last.0.elapsed() >= STEP {
                self.show(progress);
            }
        }
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// The time of the run so far; none while a target is still opened.
    fn elapsed(&mut self, progress: &[Arc<WorkerProgress>]) -> Option<Duration> {
        if self.begun.is_none() && progress.iter().all(|p| p.ready.load(Ordering::Relaxed)) {
            self.begun = Some(Instant::now());
        }
        self.begun.map(|begun| begun.elapsed())
    }

    fn show(&mut self, progress: &[Arc<WorkerProgress>]) {
        let elapsed = self.elapsed(progress);
        let Some(bar) = &self.bar else { return };
        let Some(elapsed) = elapsed else {
            self.last.0 = Instant::now();
            return bar.set_message(format!("opening, for {:.0} s", self.made.elapsed().as_secs_f64()));
        };
        let ios: u64 = progress.iter().map(|p| p.ios.load(Ordering::Relaxed)).sum();
        let bytes: u64 = progress.iter().map(|p| p.bytes.load(Ordering::Relaxed)).sum();
        let now = Instant::now();
        let (then, ios_then, bytes_then) = std::mem::replace(&mut self.last, (now, ios, bytes));
        let seconds = (now - then).as_secs_f64();
        let rate = |n: u64, before: u64| n.saturating_sub(before) as f64 / seconds;
        bar.set_position(elapsed.as_millis() as u64);
        let (iops, bandwidth) = (count(rate(ios, ios_then)), rate(bytes, bytes_then) / 1e6);
        bar.set_message(format!("{:.0} s  {iops} IOPS  {bandwidth:.1} MB/s", elapsed.as_secs_f64()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_runs_from_when_every_target_is_open() {
        let mut live = BenchProgress::new(Nanos::from_secs(10));
        let progress: Vec<Arc<WorkerProgress>> = (0..2).map(|_| Arc::default()).collect();
        assert_eq!(live.elapsed(&progress), None);
        progress[0].ready.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(live.elapsed(&progress), None, "the other one is still opened");
        progress[1].ready.store(true, Ordering::Relaxed);
        let first = live.elapsed(&progress).unwrap();
        assert!(first < live.made.elapsed() - Duration::from_millis(10), "opening is no part of it: {first:?}");
        std::thread::sleep(Duration::from_millis(2));
        assert!(live.elapsed(&progress).unwrap() > first);
    }
}
