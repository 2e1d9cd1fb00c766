//! What a diagnosis has come to, for the operator.

use super::evidence::{Evidence, ResetLevel};
use super::state::Question;
use alloc::vec::Vec;
use core::fmt;
use weir_units::Nanos;

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Commands failed for a passing reason that the drive itself names: thermal, transitions, interrupted (BLKUPDATEERR).
    Busy,
    /// Slower than its model or calibration.
    Slow,
    /// What it is on has no room for what is written.
    Full,
    /// It takes no writes.
    ReadOnly,
    /// It says that its spare is used up or its reliability degraded; nothing has failed yet.
    WearWarning,
    /// The controller failed (NVMEFAILRESET).
    Controller,
    /// The link was lost (LINKERR).
    Link,
    /// The path could not be used (ANA).
    Path,
    /// The namespace was not there or not ready (NAMESPACEERR).
    Namespace,
    /// The device was removed.
    Removed,
    /// Single blocks are unreadable.
    BadBlocks,
    /// Pages of a die of its flash cannot be read.
    FailingDie,
    /// Another drive is in its place.
    OtherDrive,
    /// The media have failed (MEDIAERR).
    Media,
}

impl Verdict {
    /// All of them, the gravest last.
    pub const ALL: [Verdict; 14] = [
        Verdict::Busy,
        Verdict::Slow,
        Verdict::Full,
        Verdict::ReadOnly,
        Verdict::WearWarning,
        Verdict::Controller,
        Verdict::Link,
        Verdict::Path,
        Verdict::Namespace,
        Verdict::Removed,
        Verdict::BadBlocks,
        Verdict::FailingDie,
        Verdict::OtherDrive,
        Verdict::Media,
    ];

    /// Whether the drive must be replaced.
    pub const fn needs_replacement(self) -> bool {
        matches!(self, Verdict::Media)
    }

    /// The word for it in JSON and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Busy => "busy",
            Verdict::Slow => "slow",
            Verdict::Full => "full",
            Verdict::ReadOnly => "read-only",
            Verdict::WearWarning => "wear-warning",
            Verdict::Controller => "controller",
            Verdict::Link => "link",
            Verdict::Path => "path",
            Verdict::Namespace => "namespace",
            Verdict::Removed => "removed",
            Verdict::BadBlocks => "bad-blocks",
            Verdict::FailingDie => "failing-die",
            Verdict::OtherDrive => "other-drive",
            Verdict::Media => "media",
        }
    }

    /// What it means, in a sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Verdict::Busy => "the drive asked for time, or failed commands and then carried them out",
            Verdict::Slow => "the drive is slower than its model or its calibration says",
            Verdict::Full => "the file system that the drive is on has no room for what is written",
            Verdict::ReadOnly => "the drive takes no more writes; what is on it can be read",
            Verdict::WearWarning => "the drive says that its spare blocks are used up or its reliability is degraded",
            Verdict::Controller => "the drive's controller failed; its media are as they were",
            Verdict::Link => "the link to the drive was lost",
            Verdict::Path => "the target has closed this path to the namespace",
            Verdict::Namespace => "the namespace was not there, or not ready",
            Verdict::Removed => "the drive was removed",
            Verdict::BadBlocks => "some blocks cannot be read or written; all others can",
            Verdict::FailingDie => "pages of a die of its flash cannot be read; what is on other dies can",
            Verdict::OtherDrive => "another drive, or one of another size, is where this one was",
            Verdict::Media => "the drive's media have failed",
        }
    }

    /// What the operator should do.
    pub const fn advice(self) -> &'static str {
        match self {
            Verdict::Busy | Verdict::Controller => "nothing; look at its temperature and firmware if it happens again",
            Verdict::Slow => "watch it; move what needs its speed elsewhere",
            Verdict::Full => "make room there; then writes are taken again",
            Verdict::ReadOnly | Verdict::WearWarning => "copy what is on it, and replace it",
            Verdict::Link => "look at the target, the network or the slot if it does not come back",
            Verdict::Path => "look at the target: another port, or nobody, serves the namespace",
            Verdict::Namespace => "look at the target's namespaces",
            Verdict::Removed => "put it back, or replace it",
            Verdict::BadBlocks => {
                "restore what was in these blocks by writing them; replace the drive if it cannot write them"
            }
            Verdict::FailingDie => {
                "copy what is on it, and replace it; `weir fault ls` shows whether a rule makes the die fail"
            }
            Verdict::OtherDrive => "put the former drive back, or replace it in the configuration",
            Verdict::Media => "replace the drive; what it held must come from a copy",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When.
    pub at: Nanos,
    /// What.
    pub evidence: Evidence,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The drive was asked.
    Asked(Question),
    /// It was reset.
    Reset(ResetLevel),
    /// Attempts to connect began.
    Reconnected,
    /// Suspect blocks were read again.
    ReadAgain,
    /// Commands began to fail.
    Failed,
    /// Commands went on.
    Resumed,
    /// The drive was isolated.
    Isolated,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Asked(Question::Csts) => f.write_str("asked for the controller's status"),
            Step::Asked(Question::Smart) => f.write_str("asked for the SMART log"),
            Step::Asked(Question::Namespace) => f.write_str("asked which namespace is there"),
            Step::Asked(Question::Path) => f.write_str("asked for the path's state"),
            Step::Reset(level) => write!(f, "reset: {}", level.name()),
            Step::Reconnected => f.write_str("connecting again"),
            Step::ReadAgain => f.write_str("read the suspect blocks again"),
            Step::Failed => f.write_str("commands fail"),
            Step::Resumed => f.write_str("commands go on"),
            Step::Isolated => f.write_str("isolated the drive"),
        }
    }
}

/// Something that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// When.
    pub at: Nanos,
    /// What.
    pub step: Step,
}

/// Entries of [`HealthReport::seen`] and of [`HealthReport::taken`] at most: the first ones, which show the cause, and the last ones.
pub const REPORT_ENTRIES: usize = 32;

/// One disturbance, from its first evidence on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthReport {
    /// When it began.
    pub began: Nanos,
    /// When commands went on; none while they wait or fail.
    pub ended: Option<Nanos>,
    /// What was wrong.
    pub verdict: Verdict,
    /// The evidence.
    pub seen: Vec<Seen>,
    /// Pieces of evidence that are not in [`seen`](Self::seen).
    pub unlisted: u32,
    /// What was done.
    pub taken: Vec<Taken>,
}

/// The last entries of a full list go, and the first ones stay, which show the cause; how many went.
fn keep_ends<T>(list: &mut Vec<T>, entry: T) -> u32 {
    let is_full = list.len() == REPORT_ENTRIES;
    if is_full {
        list.remove(REPORT_ENTRIES * 3 / 4);
    }
    list.push(entry);
    u32::from(is_full)
}

impl HealthReport {
    pub(super) fn begin(now: Nanos) -> Self {
        HealthReport {
            began: now,
            ended: None,
            verdict: Verdict::Busy,
            seen: Vec::new(),
            unlisted: 0,
            taken: Vec::new(),
        }
    }

    pub(super) fn see(&mut self, at: Nanos, evidence: Evidence) {
        self.unlisted = self.unlisted.saturating_add(keep_ends(&mut self.seen, Seen { at, evidence }));
    }

    /// The same, unless it was the last that was seen.
    pub(super) fn see_once(&mut self, at: Nanos, evidence: Evidence) {
        if self.seen.last() != Some(&Seen { at, evidence }) {
            self.see(at, evidence);
        }
    }

    /// Whether that was the last thing that was seen.
    pub(super) fn has_last_seen(&self, evidence: Evidence) -> bool {
        self.seen.last().is_some_and(|seen| seen.evidence == evidence)
    }

    pub(super) fn take(&mut self, at: Nanos, step: Step) {
        keep_ends(&mut self.taken, Taken { at, step });
    }

    /// A graver cause takes the place of a lesser one.
    pub(super) fn blame(&mut self, verdict: Verdict) {
        self.verdict = self.verdict.max(verdict);
    }
}
