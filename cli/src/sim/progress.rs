//! The line that moves while a simulation lasts.

use crate::report::count;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use weir_sim::RunProgress;

/// How often it moves.
const STEP: Duration = Duration::from_millis(200);
/// Parts of the bar.
const PARTS: f64 = 1000.0;

/// A bar over all runs; nothing where nobody watches, and nothing for a run that is over at once.
pub struct SimProgress {
    watched: bool,
    bar: Option<ProgressBar>,
    runs: usize,
    at: usize,
    last: Instant,
    begun: Instant,
}

impl SimProgress {
    /// For so many runs.
    pub fn new(runs: usize) -> Self {
        let (now, watched) = (Instant::now(), std::io::stderr().is_terminal());
        SimProgress { watched, bar: None, runs, at: 0, last: now, begun: now }
    }

    /// The next run begins.
    pub fn begin(&mut self, at: usize) {
        self.at = at;
        self.begun = Instant::now();
    }

    /// Shows how far the run has come.
    pub fn show(&mut self, progress: &RunProgress) {
        if !self.watched || self.last.elapsed() < STEP {
            return;
        }
        self.last = Instant::now();
        let bar = self.bar.get_or_insert_with(bar);
        let part = (self.at as f64 + progress.part.unwrap_or(0.0).clamp(0.0, 1.0)) / self.runs as f64;
        bar.set_position((part * PARTS) as u64);
        let rate = progress.requests as f64 / self.begun.elapsed().as_secs_f64().max(1e-9);
        let run = if self.runs > 1 { format!("run {} of {}, ", self.at + 1, self.runs) } else { String::new() };
        let (time, requests) = (progress.time.as_secs_f64(), count(progress.requests as f64));
        bar.set_message(format!("{run}{time:.3} s of virtual time, {requests} requests, {} a second", count(rate)));
    }

    /// The line goes.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for SimProgress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(PARTS as u64);
    // The template is a constant and was tried.
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar
}
