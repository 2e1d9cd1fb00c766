//! The line that moves while a run lasts.

use super::worker::Progress;
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
pub struct Live {
    bar: Option<ProgressBar>,
    begun: Instant,
    last: (Instant, u64, u64),
}

impl Live {
    /// For a run that lasts so long.
    pub fn new(time: Nanos) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(time.get() / 1_000_000);
            // The template is a constant and was tried.
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {elapsed} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        let begun = Instant::now();
        Live { bar, begun, last: (begun, 0, 0) }
    }

    /// Shows the rate until `is_over`.
    pub fn follow(&mut self, progress: &[Arc<Progress>], is_over: impl Fn() -> bool) {
        while !is_over() {
            // A short run must not wait for its line.
            std::thread::sleep(if self.begun.elapsed() < STEP { STEP / 50 } else { STEP / 5 });
            if self.bar.is_some() && self.last.0.elapsed() >= STEP {
                self.show(progress);
            }
        }
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn show(&mut self, progress: &[Arc<Progress>]) {
        let Some(bar) = &self.bar else { return };
        let ios: u64 = progress.iter().map(|p| p.ios.load(Ordering::Relaxed)).sum();
        let bytes: u64 = progress.iter().map(|p| p.bytes.load(Ordering::Relaxed)).sum();
        let now = Instant::now();
        let (then, ios_then, bytes_then) = std::mem::replace(&mut self.last, (now, ios, bytes));
        let seconds = (now - then).as_secs_f64();
        let rate = |n: u64, before: u64| n.saturating_sub(before) as f64 / seconds;
        bar.set_position(self.begun.elapsed().as_millis() as u64);
        bar.set_message(format!("{} IOPS  {:.1} MB/s", count(rate(ios, ios_then)), rate(bytes, bytes_then) / 1e6));
    }
}
