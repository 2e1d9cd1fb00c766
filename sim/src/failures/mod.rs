//! Failures of drives drawn as a production cloud saw them (Spool, Figure 4), diagnosed by the machine that nodes run.
//!
//! ```text
//!   draw ─► Ailment ─► FailingDrive ─ completions, registers, logs, silence ─► Host ─ Evidence ─► Health
//!                           ▲                                                   │ ◄── actions ──────┘
//!                           └──────── commands, resets, questions ──────────────┘
//! ```
//! A client reads and writes all the while; what it has under way is kept, and sent again when the diagnosis says so. Its bytes are
//! compared with what was written last. The diagnosis sees evidence alone: never an ailment.

mod ailment;
mod drive;
mod host;
#[cfg(test)]
mod tests;

pub use ailment::{Ailment, AilmentKind, DrawnFailure, FailureClass};
pub use host::Outcome;

use std::collections::BTreeMap;
use weir_driver::health::Verdict;
use weir_spec::nvme::Status;
use weir_units::Nanos;
use weir_units::rng::Xoshiro256;

/// How failures ended.
#[derive(Clone, Debug, Default)]
pub struct FailureTally {
    /// Failures.
    pub failures: u64,
    /// Of them ambiguous ones.
    pub ambiguous: u64,
    /// By class and gravest verdict.
    pub verdicts: BTreeMap<(FailureClass, Verdict), u64>,
    /// By class.
    pub drawn: BTreeMap<FailureClass, u64>,
    /// Seeds of drives isolated that need no replacement.
    pub needless: Vec<u64>,
    /// Seeds of drives that need one, had shown it, and were not isolated.
    pub missed: Vec<u64>,
    /// Seeds of runs with bytes that were not what was written.
    pub wrong: Vec<u64>,
    /// Seeds of runs with a command that was never answered.
    pub hung: Vec<u64>,
    /// Seeds of runs without a verdict.
    pub undecided: Vec<u64>,
    /// Seeds of runs with an error that nothing of what was drawn explains.
    pub errors: Vec<u64>,
    /// Seeds of drives that neither serve nor are isolated in the end.
    pub stuck: Vec<u64>,
    /// The longest time from what shows a media failure to the isolation, over the time that its drive's resets took.
    pub slowest_isolation: Nanos,
    /// Commands answered.
    pub commands: u64,
}

/// One failure, drawn and run to its end.
pub fn trial(seed: u64) -> (DrawnFailure, Outcome) {
    let failure = ailment::draw(&mut Xoshiro256::new(seed));
    let outcome = host::run(seed, failure.clone());
    (failure, outcome)
}

impl DrawnFailure {
    /// Whether only another drive helps.
    pub fn needs_replacement(&self) -> bool {
        self.ailments.iter().any(Ailment::needs_replacement)
    }

    /// Whether the drive warns of its media and has a block that is gone: then it may be isolated or not.
    pub fn may_need_replacement(&self) -> bool {
        let has = |is: fn(AilmentKind) -> bool| self.ailments.iter().any(|ailment| is(ailment.kind));
        has(|kind| matches!(kind, AilmentKind::BadMedia { .. })) && has(|kind| kind == AilmentKind::Worn)
    }

    /// Whether that error is one that a client has to see: the block is gone or marked, or the drive is not there or takes no writes.
    pub fn explains(&self, lba: u64, status: Status) -> bool {
        let is = |code: Status| status.same_code(code);
        let unreadable = is(Status::UNRECOVERED_READ_ERROR);
        let by = |ailment: &Ailment| match ailment.kind {
            AilmentKind::BadMedia { first, blocks, .. } => {
                (unreadable || is(Status::WRITE_FAULT)) && (first..first + blocks).contains(&lba)
            }
            // Until the drive says that it takes writes again, they are not tried for long.
            AilmentKind::ReadOnly => is(Status::NAMESPACE_WRITE_PROTECTED) || is(Status::WRITE_FAULT),
            AilmentKind::Removed | AilmentKind::Replaced => is(Status::INTERNAL_PATH_ERROR),
            AilmentKind::WriteFaults => is(Status::WRITE_FAULT) && ailment.ends > Nanos::from_secs(1),
            _ => false,
        };
        self.has_marks && unreadable && host::is_marked(lba) || self.ailments.iter().any(by)
    }

    /// Errors that nothing explains; of a drive that was isolated, those before.
    fn unexplained(&self, outcome: &Outcome) -> usize {
        let is_isolation = |status: Status| outcome.isolated.is_some() && status.is_dnr();
        outcome.errors.iter().filter(|(lba, status)| !is_isolation(*status) && !self.explains(*lba, *status)).count()
    }

    /// Whether the media's failure could be seen and was not acted upon within the bound.
    fn is_missed(&self, outcome: &Outcome) -> bool {
        let Some(evident) = outcome.evident else { return false };
        outcome.isolated.is_none_or(|isolated| isolated > self.isolated_by(evident))
    }

    /// When a drive has to be isolated: after every reset there is, of the media's and of another ailment's diagnosis, and their
    /// questions, once it can be reached. A reset that is never answered is given up after its limit.
    fn isolated_by(&self, evident: Nanos) -> Nanos {
        let passing = self.ailments.iter().filter(|ailment| ailment.ends != Nanos::NEVER && ailment.cure.is_none());
        let reachable = passing.map(|ailment| ailment.ends).max().unwrap_or(Nanos(0)).max(evident);
        let silent = self.ailments.iter().any(|ailment| ailment.kind == AilmentKind::Hang);
        let limits: u64 = host::policy().reset_limits.iter().map(|limit| limit.0).sum();
        let resets = self.reset_time.0 * 10 + if silent { 2 * limits } else { 0 };
        reachable.saturating_add(Nanos(resets)).saturating_add(Nanos::from_secs(3))
    }
}

impl FailureTally {
    /// Adds one.
    pub fn add(&mut self, seed: u64, failure: &DrawnFailure, outcome: &Outcome) {
        self.failures += 1;
        self.ambiguous += u64::from(failure.is_ambiguous);
        self.commands += outcome.answered;
        *self.drawn.entry(failure.class).or_default() += 1;
        match outcome.verdict() {
            Some(verdict) => *self.verdicts.entry((failure.class, verdict)).or_default() += 1,
            None => self.undecided.push(seed),
        }
        let note = |list: &mut Vec<u64>, is: bool| list.extend(is.then_some(seed));
        let is_needed = failure.needs_replacement() || failure.may_need_replacement();
        note(&mut self.needless, outcome.isolated.is_some() && !is_needed);
        note(&mut self.missed, failure.needs_replacement() && failure.is_missed(outcome));
        note(&mut self.wrong, !outcome.wrong.is_empty());
        note(&mut self.hung, outcome.hung > 0);
        note(&mut self.errors, failure.unexplained(outcome) > 0);
        note(&mut self.stuck, outcome.is_stuck);
        if let (Some(evident), Some(isolated)) = (outcome.evident, outcome.isolated) {
            self.slowest_isolation = self.slowest_isolation.max(isolated.saturating_sub(evident));
        }
    }
}
