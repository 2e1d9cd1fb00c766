//! What happens to the keeper, and what it wants done.

use super::{Notice, PROBATION, UPGRADE_STEP_TIMEOUT};
use weir_units::Nanos;

/// A worker, by the order in which they were started, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerId(pub u64);

/// Which program a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The one that serves, or served last.
    Present,
    /// The one that an upgrade proposes.
    Proposed,
}

/// How a worker's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was done: exit status 0.
    Clean,
    /// It gave up with this exit status and has said why.
    Status(u8),
    /// SIGKILL, which no program sends itself: an operator, or the kernel that was short of memory.
    Killed,
    /// It was not prepared within [`PREPARE_TIMEOUT`](super::PREPARE_TIMEOUT), and the keeper has killed it.
    Hung,
    /// It did not answer within [`GO_ANSWER_TIMEOUT`](super::GO_ANSWER_TIMEOUT) when it was told to go, and the keeper has killed it.
    Deaf,
    /// Any other signal.
    Crashed,
}

/// What happens to the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first: start a worker.
    Begin,
    /// A worker has read its configuration and waits.
    Prepared(WorkerId, Fit),
    /// A worker that waits has mapped what is held for it.
    Warm(WorkerId),
    /// A worker has heard that it is to go.
    Goes(WorkerId),
    /// A worker serves.
    Ready(WorkerId),
    /// A worker that was told to hand over has nothing under way any more and will touch nothing.
    Left(WorkerId),
    /// All threads of a worker are dead that could touch what is held, and nothing is under way in the kernel that could. Its process
    /// will end.
    Still(WorkerId),
    /// A worker's process is gone.
    Died(WorkerId, End),
    /// The node is to end: the worker has been asked to.
    Stop,
    /// Try again now, whatever happened before.
    Retry,
    /// Serve with another program from now on.
    Upgrade(Terms),
    /// Time has passed.
    Tick,
}

/// Whether a worker can take over what the one that serves has, and give it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Both programs read what the other one writes.
    Both,
    /// They do not: see [`Layouts`](super::Layouts).
    Neither,
}

/// How long an upgrade may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long the new program may take to prepare, and to be ready.
    pub step_timeout: Nanos,
    /// A new program that dies within this time after it was ready is replaced by the one before it.
    pub probation: Nanos,
}

impl Default for Terms {
    fn default() -> Self {
        Self { step_timeout: UPGRADE_STEP_TIMEOUT, probation: PROBATION }
    }
}

/// What the keeper wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start a worker.
    Start(WorkerId, Program),
    /// Hand it what is held, and let it serve.
    Go(WorkerId),
    /// Have it finish what is in flight and end, with everything left open for its successor.
    HandOver(WorkerId),
    /// Kill it.
    Kill(WorkerId),
    /// The program that was proposed is the present one from now on.
    Adopt,
    /// What is proposed is forgotten.
    Forget,
    /// Say this.
    Say(Notice),
    /// End, with this exit status.
    Exit(u8),
}
