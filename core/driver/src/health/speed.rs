//! Whether a drive, or one die of it, has become slow: what its operations take, compared with what they should take.
//!
//! ```text
//!   totals of the drive and of each die ──► windows ──► ratio ──► CUSUM ──► slow, as expected
//!   (operations, expected, measured)           │
//!                                              └── the machine itself was late ──► not judged
//! ```
//!
//! **Expectation.** It is the caller's. Of an array operation it is the time that the drive's model has drawn for it, with the wear of its block and its
//! retries; of a command it is the model's time from its start to its end. It never contains what makes the drive slow. The queue
//! behind a slow die is not counted against anybody: a die is judged by its own operations only.
//!
//! **Test.** A part's window ends at the first look, [`WINDOW`] or more after it began, at which the part has done [`LEAST_OPERATIONS`]. The window is
//! slow if it has taken [`SLOW_PERCENT`] of its expectation. Of a healthy part at most 1 % of the windows are slow; of a part that is slow
//! by a factor of two or more, at least 90 %. Each window adds the logarithm of the ratio of these likelihoods to a sum that stays at zero or above, and the part is
//! accused when the sum reaches [`THRESHOLD`]. That is the CUSUM procedure (E. S. Page, "Continuous Inspection Schemes", Biometrika 41, 1954). Its mean
//! time to a false alarm is at least e^30 = 10^13 windows, whatever the distribution of the times, for as long as windows are independent and the share of slow ones is
//! as assumed (G. Lorden, "Procedures for Reacting to a Change in Distribution", Annals of Mathematical Statistics 42, 1971, Theorem 2). 10,000 hours of a drive of 256 dies
//! are 10^10 windows. A part that is slow is accused after seven slow windows in a row: seven seconds of load. The same procedure with the two likelihoods exchanged
//! clears it, after fourteen windows in a row that are not slow.
//!
//! The limit of the bound is its assumption: windows that depend on each other. Fail-slow drives as such are described by H. S. Gunawi et al.,
//! "Fail-Slow at Scale", FAST 2018, and R. Lu et al., "Perseus", FAST 2023, who compare with what the load explains, too.
//!
//! **Disturbance.** A look at which the machine's own lateness is [`DISTURBED_PERCENT`] of what was expected says nothing of the drive: every window that is open
//! then is dropped, and the drive is not judged until a window has ended. So is it with a look that its caller gives a reason for ([`SpeedLook::unjudged`]). The same holds after
//! [`STALE`] without a window. An accusation stays until it is refuted.
//!
//! Memory: one record of 64 bytes for the drive and for each die, of which [`DIES`] are watched.

use super::evidence::{Evidence, Slowness};
use alloc::vec::Vec;
use weir_units::Nanos;

/// The shortest window.
pub const WINDOW: Nanos = Nanos::from_secs(1);
/// Operations of a window at least.
pub const LEAST_OPERATIONS: u64 = 8;
/// Measured time over expected time, in percent, from which a window is slow: between 1 and the least factor that is to be found, 2.
pub const SLOW_PERCENT: u64 = 150;
/// Lateness of the machine over expected time, in percent, from which a look says nothing.
pub const DISTURBED_PERCENT: u64 = 25;
/// After so long without a window the drive is not judged.
pub const STALE: Nanos = Nanos::from_secs(60);
/// Dies that are watched; those behind them are not.
pub const DIES: usize = 4096;
/// The sum at which a part is accused or cleared, in thousandths of the natural logarithm's unit.
pub const THRESHOLD: i32 = 30_000;

/// ln(0.9 / 0.01): a slow window, in thousandths.
const FOR: i32 = 4_500;
/// ln(0.1 / 0.99): a window that is not slow.
const AGAINST: i32 = -2_293;

/// What a part of a drive has done since it began to count, as sums that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkDone {
    /// Operations: of a die those of its array, of a drive commands.
    pub operations: u64,
    /// What they should have taken, in all.
    pub expected: Nanos,
    /// What they took, in all.
    pub measured: Nanos,
}

impl WorkDone {
    /// What was done since `before`; `None` where the counts have begun anew.
    fn since(self, before: WorkDone) -> Option<WorkDone> {
        Some(WorkDone {
            operations: self.operations.checked_sub(before.operations)?,
            expected: Nanos(self.expected.0.checked_sub(before.expected.0)?),
            measured: Nanos(self.measured.0.checked_sub(before.measured.0)?),
        })
    }

    fn add(&mut self, other: WorkDone) {
        self.operations = self.operations.saturating_add(other.operations);
        self.expected = self.expected.saturating_add(other.expected);
        self.measured = self.measured.saturating_add(other.measured);
    }

    /// Measured over expected, in percent; 100 where nothing was expected.
    pub fn percent(self) -> u64 {
        if self.expected.0 == 0 {
            return 100;
        }
        let percent = u128::from(self.measured.0) * 100 / u128::from(self.expected.0);
        u64::try_from(percent).unwrap_or(u64::MAX)
    }
}

/// One look at a drive.
#[derive(Clone, Copy, Debug)]
pub struct SpeedLook<'a> {
    /// Its commands.
    pub drive: WorkDone,
    /// Array operations of each die, in the dies' order; empty where nobody counts them.
    pub dies: &'a [WorkDone],
    /// By how much the machine itself has made commands late, in all since it began to count. Part of no measured time.
    pub lateness: Nanos,
    /// Why what was done since the look before says nothing of the drive.
    pub unjudged: Option<NotJudged>,
}

/// What is known of a drive's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// As expected.
    AsExpected,
    /// Slow.
    Slow(Slowness),
    /// Unknown.
    NotJudged(NotJudged),
}

/// Why a drive is not judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotJudged {
    /// It has had too little to do.
    Idle,
    /// The machine that the node runs on was late itself.
    Disturbed,
    /// Commands were kept from the drive: it was looked for, asked or reset.
    Interrupted,
    /// Its load is none of those that it was measured under.
    Unmeasured,
}

/// A drive's commands, or one die's array operations.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// The totals when its window was opened, and the time.
    opened: WorkDone,
    since: Nanos,
    /// The sum, in thousandths: for an accusation, or of an accused part for its acquittal.
    sum: i32,
    is_slow: bool,
    /// A window of it has been judged.
    is_known: bool,
    /// Of the slow windows after the one in which the sum left zero.
    suspected: WorkDone,
}

impl Part {
    fn open(&mut self, now: Nanos, totals: WorkDone) {
        (self.opened, self.since) = (totals, now);
    }

    /// Ends the window if it may end; whether it was judged.
    fn look(&mut self, now: Nanos, totals: WorkDone) -> bool {
        let Some(window) = totals.since(self.opened) else {
            self.open(now, totals);
            return false;
        };
        if window.operations < LEAST_OPERATIONS || now.saturating_sub(self.since) < WINDOW {
            return false;
        }
        self.open(now, totals);
        self.is_known = true;
        let is_slow = window.percent() >= SLOW_PERCENT;
        // Of an accused part what speaks for an acquittal counts.
        let ratio = match (if is_slow { FOR } else { AGAINST }, self.is_slow) {
            (ratio, false) => ratio,
            (ratio, true) => -ratio,
        };
        // What began within a window is not its whole factor.
        let is_first = self.sum == 0 && !self.is_slow;
        self.sum = (self.sum + ratio).clamp(0, THRESHOLD);
        if is_slow && !is_first {
            self.suspected.add(window);
        } else if !is_slow && !self.is_slow && self.sum == 0 {
            self.suspected = WorkDone::default();
        }
        if self.sum == THRESHOLD {
            (self.is_slow, self.sum) = (!self.is_slow, 0);
            if !self.is_slow {
                self.suspected = WorkDone::default();
            }
        }
        true
    }

    fn check(&self) {
        assert!((0..THRESHOLD).contains(&self.sum), "the sum {} is that of a part that is not decided", self.sum);
        assert!(!self.is_slow || self.suspected.percent() >= SLOW_PERCENT, "an accused part has slow windows");
    }
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct SpeedWatch {
    drive: Part,
    dies: Vec<Part>,
    /// The look before: totals of the commands, and the lateness.
    last: (WorkDone, Nanos),
    /// When a window was judged, and when a look was dropped.
    judged: Option<Nanos>,
    unjudged: Option<(Nanos, NotJudged)>,
    windows: u64,
    dropped: u64,
    /// What was told.
    told: Option<Slowness>,
}

impl SpeedWatch {
    /// Of a drive that nothing is known of.
    pub fn new(now: Nanos) -> Self {
        SpeedWatch {
            drive: Part { since: now, ..Part::default() },
            dies: Vec::new(),
            last: (WorkDone::default(), Nanos(0)),
            judged: None,
            unjudged: None,
            windows: 0,
            dropped: 0,
            told: None,
        }
    }

    /// Takes a look, which should come every [`WINDOW`] while the drive has something to do; what follows for
    /// [`Health`](super::Health), if it is news.
    pub fn apply(&mut self, now: Nanos, look: &SpeedLook<'_>) -> Option<Evidence> {
        let dies = look.dies.len().min(DIES);
        if self.dies.len() < dies {
            // They are counted from now on.
            let part = |totals: &WorkDone| Part { opened: *totals, since: now, ..Part::default() };
            let more = look.dies[self.dies.len()..dies].iter().map(part);
            self.dies.extend(more);
        }
        let (before, lateness) = core::mem::replace(&mut self.last, (look.drive, look.lateness));
        let expected = look.drive.since(before).map_or(Nanos(0), |done| done.expected);
        let late = look.lateness.saturating_sub(lateness);
        let parts = || core::iter::once(&look.drive).chain(&look.dies[..dies]);
        let own = core::iter::once(&mut self.drive).chain(&mut self.dies);
        let is_late = late.0 > 0 && u128::from(late.0) * 100 >= u128::from(expected.0) * u128::from(DISTURBED_PERCENT);
        if let Some(why) = look.unjudged.or(is_late.then_some(NotJudged::Disturbed)) {
            own.zip(parts()).for_each(|(part, totals)| part.open(now, *totals));
            self.unjudged = Some((now, why));
            self.dropped += 1;
            return None;
        }
        let judged = own.zip(parts()).map(|(part, totals)| u64::from(part.look(now, *totals))).sum::<u64>();
        if judged > 0 {
            self.judged = Some(now);
            self.windows = self.windows.saturating_add(judged);
        }
        self.news()
    }

    fn news(&mut self) -> Option<Evidence> {
        let found = self.slowness();
        let is_news = match (self.told, found) {
            (None, None) => false,
            // The factor becomes better known with every window: what changes by less than a tenth is no news.
            (Some(told), Some(found)) => {
                told.die != found.die || told.percent.abs_diff(found.percent) > told.percent / 10
            }
            _ => true,
        };
        if !is_news {
            return None;
        }
        self.told = found;
        Some(found.map_or(Evidence::AsFastAsModelled, Evidence::Slow))
    }

    /// What is slow. Half of the dies that are known, if these are more than one, are the drive.
    fn slowness(&self) -> Option<Slowness> {
        let percent = |done: WorkDone| u32::try_from(done.percent()).unwrap_or(u32::MAX);
        let slow = || self.dies.iter().filter(|die| die.is_slow);
        let (count, known) = (slow().count(), self.dies.iter().filter(|die| die.is_known).count());
        let of_drive = self.drive.is_slow.then(|| percent(self.drive.suspected));
        if count > 1 && count * 2 >= known {
            let mut all = WorkDone::default();
            slow().for_each(|die| all.add(die.suspected));
            return Some(Slowness { percent: percent(all).max(of_drive.unwrap_or(0)), die: None });
        }
        if let Some(percent) = of_drive {
            return Some(Slowness { percent, die: None });
        }
        let worst = self.dies.iter().zip(0u32..).filter(|(die, _)| die.is_slow);
        let (worst, die) = worst.max_by_key(|(die, _)| die.suspected.percent())?;
        Some(Slowness { percent: percent(worst.suspected), die: Some(die) })
    }

    /// What is known at `now`.
    pub fn speed(&self, now: Nanos) -> Speed {
        let is_recent = |at: &Nanos| now.saturating_sub(*at) <= STALE;
        let judged = self.judged.filter(is_recent);
        match (self.told, self.unjudged.filter(|(at, _)| is_recent(at))) {
            (Some(slowness), _) => Speed::Slow(slowness),
            (None, Some((at, why))) if Some(at) > judged => Speed::NotJudged(why),
            (None, _) if judged.is_some() => Speed::AsExpected,
            (None, _) => Speed::NotJudged(NotJudged::Idle),
        }
    }

    /// Dies that are accused, in their order.
    pub fn slow_dies(&self) -> impl Iterator<Item = Slowness> + '_ {
        let slow = self.dies.iter().zip(0u32..).filter(|(die, _)| die.is_slow);
        slow.map(|(part, die)| Slowness {
            percent: u32::try_from(part.suspected.percent()).unwrap_or(u32::MAX),
            die: Some(die),
        })
    }

    /// Windows that were judged, of all parts.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// Looks that were dropped: the machine was late, or there was another reason.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// States the invariants.
    pub fn check(&self) {
        core::iter::once(&self.drive).chain(&self.dies).for_each(Part::check);
        assert!(self.dies.len() <= DIES, "{} dies are watched", self.dies.len());
        assert_eq!(self.told.is_some(), self.slowness().is_some(), "what was found was told");
    }
}
