//! How well a drive keeps its modelled times: the difference between the moment at which a completion is handed to the host's
//! side and the moment at which the model says the command is done.
//!
//! *Raw* is that difference. *Net* is what it would have been had the thread had its core whenever it was ready to run, because
//! the rest is the machine's doing: on a shared core a bare spinning loop is late as well. Up to [`LATE`] both are the same; what
//! is later is judged by [`RunQueueWait`](crate::run_queue_wait::RunQueueWait).
//!
//! ```text
//!   of a window's completions                          its core was busy      so the drive is
//!   less than 10 % late                                                       on time
//!   10 % or more late, net                             for 90 % of the window overloaded
//!                                                      for less               late
//!   10 % or more late raw, but less net                                       starved
//! ```
//! What it is it stays until less than 5 % are late (and overloaded until the core was busy for less than 80 %), or until it
//! has nothing to do. Commands that are due together make each other late without any lack of a core, which is why being late
//! alone is no overload. A window is a quarter of a second, longer where less than [`LEAST`] commands complete in it.

use weir_units::Nanos;
use weir_workload::Histogram;

/// Later than this is late: what the drive promises on a polled core that is not full.
pub const LATE: Nanos = Nanos::from_micros(5);
/// Later than this is very late.
pub const VERY_LATE: Nanos = Nanos::from_micros(20);

/// The shortest window.
const WINDOW: Nanos = Nanos::from_millis(250);
/// Completions of a window at least, lest one of three be a third.
const LEAST: u64 = 20;
/// After so long without a completion the drive has nothing to do.
const STALE: Nanos = Nanos::from_secs(2);
/// Percent late from which a drive does not keep its times, and below which it keeps them again.
const ENTER: f64 = 10.0;
const LEAVE: f64 = 5.0;
/// Percent of its time for which a full core is busy, and below which it is full no more.
const FULL: f64 = 90.0;
const ROOM: f64 = 80.0;

/// Whether a drive keeps its modelled times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    OnTime,
    /// It does not, although the thread has time left: commands are due together, or it is asleep when they are.
    Late,
    /// The thread has more to do than it can.
    Overloaded,
    /// The thread could, if other threads did not take its core.
    Starved,
}

/// Completions and how many of them were late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// All.
    pub completions: u64,
    /// Later than [`LATE`], raw.
    pub late: u64,
    /// Later than [`VERY_LATE`], raw.
    pub very_late: u64,
    /// Later than [`LATE`], net of run-queue wait.
    pub net_late: u64,
    /// Later than [`VERY_LATE`], net of run-queue wait.
    pub net_very_late: u64,
}

impl Late {
    fn count(&mut self, raw: Nanos, net: Nanos) {
        self.completions += 1;
        self.late += u64::from(raw > LATE);
        self.very_late += u64::from(raw > VERY_LATE);
        self.net_late += u64::from(net > LATE);
        self.net_very_late += u64::from(net > VERY_LATE);
    }

    /// Percent late, raw and net.
    fn percent(&self) -> (f64, f64) {
        let share = |n: u64| 100.0 * n as f64 / self.completions.max(1) as f64;
        (share(self.late), share(self.net_late))
    }
}

/// What a drive's status says of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Now.
    pub standing: Standing,
    /// For how long that has been so.
    pub lasting: Nanos,
    /// Percent of the last window's completions that were late, raw and net.
    pub recent: (f64, f64),
    /// Since the measurement began.
    pub total: Late,
    /// Times at which the drive became overloaded since then.
    pub overloads: u64,
    /// How long it was overloaded in all.
    pub overloaded: Nanos,
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Lateness {
    /// When the measurement began.
    began: Nanos,
    raw: Histogram,
    net: Histogram,
    total: Late,
    window: Late,
    opened: Nanos,
    /// How long the thread had been busy in all when the window was opened.
    busy: Nanos,
    standing: Standing,
    since: Nanos,
    recent: (f64, f64),
    /// The last completion.
    last: Nanos,
    /// Raw, of all completions there were.
    sum: Nanos,
    overloads: u64,
    overloaded: Nanos,
}

impl Lateness {
    /// Nothing measured yet.
    pub fn new(now: Nanos) -> Self {
        Self {
            began: now,
            raw: Histogram::new(),
            net: Histogram::new(),
            total: Late::default(),
            window: Late::default(),
            opened: now,
            busy: Nanos(0),
            standing: Standing::OnTime,
            since: now,
            recent: (0.0, 0.0),
            last: now,
            sum: Nanos(0),
            overloads: 0,
            overloaded: Nanos(0),
        }
    }

    /// A command that was due at `due` was handed to its host at `at`, which is the thread's last look at the clock, and it would
    /// have been so much late had nobody taken the core; `busy` is for how long the thread has had something to do until
    /// then since it began.
    #[inline]
    pub fn record(&mut self, (due, net): (Nanos, Nanos), (at, busy): (Nanos, Nanos)) {
        let raw = at.saturating_sub(due);
        self.raw.record(raw.get());
        self.sum = self.sum.saturating_add(raw);
        self.net.record(net.get());
        self.total.count(raw, net);
        if self.window.completions == 0 {
            (self.opened, self.busy) = (at, busy);
        }
        self.last = at;
        self.window.count(raw, net);
        if self.window.completions >= LEAST && at.saturating_sub(self.opened) >= WINDOW {
            self.close(at, busy);
        }
    }

    /// Judges the window and opens the next.
    #[cold]
    fn close(&mut self, now: Nanos, busy: Nanos) {
        self.recent = self.window.percent();
        let (raw, net) = self.recent;
        let load = 100.0 * busy.saturating_sub(self.busy).get() as f64 / now.saturating_sub(self.opened).get() as f64;
        let (was, full) = match self.standing {
            Standing::Overloaded => (true, ROOM),
            standing => (standing == Standing::Late, FULL),
        };
        let found = if net >= if was { LEAVE } else { ENTER } {
            if load >= full { Standing::Overloaded } else { Standing::Late }
        } else if raw >= if self.standing == Standing::Starved { LEAVE } else { ENTER } {
            Standing::Starved
        } else {
            Standing::OnTime
        };
        self.enter(found, self.opened);
        (self.window, self.opened) = (Late::default(), now);
    }

    /// The only place where the standing changes.
    fn enter(&mut self, standing: Standing, at: Nanos) {
        if standing == self.standing {
            return;
        }
        self.overloaded = self.overloaded.saturating_add(self.running(at));
        self.overloads += u64::from(standing == Standing::Overloaded);
        (self.standing, self.since) = (standing, at);
    }

    /// How much of the present overload lies in the measurement.
    fn running(&self, now: Nanos) -> Nanos {
        match self.standing {
            Standing::Overloaded => now.saturating_sub(self.since.max(self.began)),
            _ => Nanos(0),
        }
    }

    /// How things stand. A drive that has had little to do for a while is on time.
    pub fn summary(&mut self, now: Nanos) -> Summary {
        if now.saturating_sub(self.last) >= STALE {
            self.enter(Standing::OnTime, self.last);
            (self.window, self.recent) = (Late::default(), (0.0, 0.0));
        }
        Summary {
            standing: self.standing,
            lasting: now.saturating_sub(self.since),
            recent: self.recent,
            total: self.total,
            overloads: self.overloads,
            overloaded: self.overloaded.saturating_add(self.running(now)),
        }
    }

    /// How long has been measured.
    pub fn span(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.began)
    }

    /// All differences added, of every completion since the drive was opened.
    pub fn sum(&self) -> Nanos {
        self.sum
    }

    /// Differences in nanoseconds, as they were.
    pub fn raw(&self) -> &Histogram {
        &self.raw
    }

    /// Differences in nanoseconds, without run-queue wait.
    pub fn net(&self) -> &Histogram {
        &self.net
    }

    /// Begins anew; how the drive stands at the moment is kept.
    pub fn reset(&mut self, now: Nanos) {
        self.raw.clear();
        self.net.clear();
        (self.began, self.total, self.overloaded) = (now, Late::default(), Nanos(0));
        self.overloads = u64::from(self.standing == Standing::Overloaded);
    }
}

#[cfg(test)]
#[path = "lateness_tests.rs"]
mod tests;
