//! What is counted: operations that were made, bytes that moved, and how long each took.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use weir_sys::copies;
use weir_sys::sched::RunDelay;
use weir_units::Nanos;
use weir_workload::Histogram;

/// What is over sooner has no line on the terminal.
const LINE_AFTER: Duration = Duration::from_secs(2);
/// How often that is drawn.
const LINE_EVERY: Duration = Duration::from_millis(250);

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Operations that were made.
    pub operations: u64,
    /// Bytes that moved.
    pub bytes: u64,
    /// All of it, and what ends it: of writes, until they are published.
    pub elapsed: Duration,
    /// Nanoseconds of each operation.
    pub latency: Histogram,
    /// Bytes that this process has copied from one place of its memory to another.
    pub copied: u64,
    /// For how much of the time this thread was ready and had no core, in percent; none where the kernel does not tell.
    pub waited_pct: Option<f64>,
}

/// A run that goes on.
pub struct Meter {
    begun: Instant,
    operations: u64,
    bytes: u64,
    latency: Histogram,
    /// Bytes that were copied before.
    copied: u64,
    waits: Option<(RunDelay, Nanos)>,
    line: Line,
}

impl Meter {
    /// Begins, with so many operations to come.
    pub fn begin(operations: u64) -> Meter {
        let waits = RunDelay::of_this_thread().ok().and_then(|delay| delay.read().ok().map(|before| (delay, before)));
        let line = Line::new(operations);
        Meter {
            begun: Instant::now(),
            operations: 0,
            bytes: 0,
            latency: Histogram::new(),
            copied: copies::total(),
            waits,
            line,
        }
    }

    /// When it began.
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// An operation is over that began then, and moved so many bytes; the time now.
    pub fn count(&mut self, since: Instant, bytes: u64) -> Instant {
        let now = Instant::now();
        self.latency.record(u64::try_from((now - since).as_nanos()).unwrap_or(u64::MAX));
        self.operations += 1;
        self.bytes += bytes;
        self.line.show(now, self.operations);
        now
    }

    /// All is over.
    pub fn end(mut self) -> Measured {
        let elapsed = self.begun.elapsed();
        let waited_pct = self.waits.as_ref().and_then(|(delay, before)| {
            let waited = delay.read().ok()?.saturating_sub(*before).as_secs_f64();
            Some((waited / elapsed.as_secs_f64().max(1e-9) * 100.0).min(100.0))
        });
        self.line.clear();
        let copied = copies::total() - self.copied;
        let Meter { operations, bytes, latency, .. } = self;
        Measured { operations, bytes, elapsed, latency, copied, waited_pct }
    }
}

/// The line that moves where somebody watches.
pub struct Line {
    watched: bool,
    begun: Instant,
    next: Instant,
    total: u64,
    bar: Option<ProgressBar>,
}

impl Line {
    pub fn new(total: u64) -> Line {
        let begun = Instant::now();
        Line { watched: std::io::stderr().is_terminal(), begun, next: begun + LINE_AFTER, total, bar: None }
    }

    pub fn show(&mut self, now: Instant, done: u64) {
        if !self.watched || now < self.next {
            return;
        }
        self.next = now + LINE_EVERY;
        let total = self.total;
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(total);
            // The template is a constant and was tried.
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} operations {msg}") {
                bar.set_style(style);
            }
            bar
        });
        bar.set_position(done);
        bar.set_message(format!("{} /s", crate::report::count(done as f64 / (now - self.begun).as_secs_f64())));
    }

    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.clear();
    }
}
