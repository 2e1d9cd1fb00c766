//! A command that has left its queue: all that goes with it until it has a slot.

use crate::host::DataPointer;
use crate::io::plan::CommandPlan;
use crate::queues::command::{Command, CommandWords};
use weir_fault::FaultOutcome;
use weir_units::Nanos;

/// A command that starts, or that waits to: for bytes in flight, for a slot, or for others that hold its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Starting {
    /// Its submission queue, as an arbiter key.
    pub queue: u32,
    pub command: Command,
    pub plan: CommandPlan,
    pub data: DataPointer,
    /// What else is kept of its entry.
    pub words: CommandWords,
    /// When it arrived; [`NO_ARRIVAL`] where nobody knows.
    pub arrived: Nanos,
    /// DW0 and DW1 of its completion, where they were decided before a crash.
    pub decided: Option<u64>,
    /// When it was due in the process before, which had begun it.
    pub due: Option<Nanos>,
    /// What the rules of failures have said of it; `None`: they have not been asked.
    pub judged: Option<Judged>,
}

/// What becomes of a command, and by which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judged(pub Option<(u32, FaultOutcome)>);

/// The arrival of a command that came to a process before this one, or came not from a host.
pub(crate) const NO_ARRIVAL: Nanos = Nanos::NEVER;
