//! The states of workers, of an upgrade and of the node, and which of them may follow which. The crate's documentation draws them.

use super::{End, Refused, WorkerId};
use weir_units::Nanos;

/// Where a worker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting,
    Prepared,
    /// It was told to go.
    Called,
    /// It did not answer, and was killed for it.
    Deaf,
    Going,
    Ready,
}

impl Phase {
    pub(crate) fn may_become(self, next: Phase) -> bool {
        use Phase::*;
        matches!(
            (self, next),
            (Starting, Prepared) | (Prepared, Called) | (Called, Going | Deaf) | (Called | Going, Ready)
        )
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) phase: Phase,
    /// When that began.
    pub(crate) since: Nanos,
}

impl Worker {
    /// Changes its phase, if that may follow the one it is in; whether it does.
    pub(crate) fn enter(&mut self, phase: Phase, now: Nanos) -> bool {
        let legal = self.phase.may_become(phase);
        if legal {
            (self.phase, self.since) = (phase, now);
        }
        legal
    }

    /// Whether it is to serve, and does not yet.
    pub(crate) fn takes_over(&self) -> bool {
        matches!(self.phase, Phase::Called | Phase::Going)
    }
}

/// One that is still and whose process has not ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dying {
    pub(crate) worker: Worker,
    /// How long it had served.
    pub(crate) lived: Nanos,
    /// One that came after it has died before.
    pub(crate) outlived: bool,
}

/// An upgrade under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upgrade {
    /// The worker prepares.
    Proposed(WorkerId),
    /// The one before hands over, or has, and this one takes over.
    Committed(WorkerId, Pace),
    /// It serves; until then it may be taken back.
    Probation(WorkerId, Pace, Nanos),
}

/// Whether a new program takes over in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    InTime,
    /// It was killed because it did not; it may have said that it is ready since.
    Late,
}

impl Upgrade {
    pub(crate) fn may_become(self, next: Upgrade) -> bool {
        use Upgrade::*;
        match (self, next) {
            (Proposed(a), Committed(b, Pace::InTime)) => a == b,
            (Committed(a, _), Committed(b, Pace::Late)) => a == b,
            (Committed(a, pace), Probation(b, same, _)) => a == b && pace == same,
            _ => false,
        }
    }

    /// Why the new program did not stay, which has ended like that.
    pub(crate) fn failure(self, end: End) -> Refused {
        match self {
            Upgrade::Committed(_, Pace::Late) | Upgrade::Probation(_, Pace::Late, _) => Refused::Hung,
            _ => Refused::Died(end),
        }
    }
}

/// What the keeper does about the death of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No worker has served: one that dies has said why, and the node ends.
    Beginning,
    /// One has served: whoever dies is followed by the next one.
    Keeping,
    /// None is started before somebody says so.
    Failed,
    /// The node ends with the worker.
    Stopping,
}

impl Stage {
    pub(crate) fn may_become(self, next: Stage) -> bool {
        use Stage::*;
        matches!(
            (self, next),
            (Beginning | Failed, Keeping) | (Keeping, Failed) | (Beginning | Keeping | Failed, Stopping)
        )
    }
}
