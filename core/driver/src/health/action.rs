//! What is to be done about a drive.

use super::evidence::{Access, Extent, ResetLevel, Ticket};
use super::report::HealthReport;
use super::state::Question;
use weir_spec::nvme::Status;
use weir_units::Nanos;

/// Why commands fail without having been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailReason {
    /// The media have failed.
    Media,
    /// The drive was not back in time, is removed, or another is in its place.
    Path,
}

impl FailReason {
    /// The status for a command. Media errors are final; of a path a host may look for another one.
    pub const fn status(self, access: Access) -> Status {
        match (self, access) {
            (FailReason::Path, _) => Status::INTERNAL_PATH_ERROR,
            (FailReason::Media, Access::Read) => Status::UNRECOVERED_READ_ERROR.dnr(),
            (FailReason::Media, Access::Write) => Status::WRITE_FAULT.dnr(),
            (FailReason::Media, Access::Other) => Status::INTERNAL_ERROR.dnr(),
        }
    }
}

/// What becomes of commands as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// They are sent. Those held are sent first, in the order in which they were submitted.
    Open,
    /// They wait.
    Paused,
    /// They fail at once, also those held.
    Failing(FailReason),
}

impl Gate {
    /// As users read it.
    pub const fn word(self) -> &'static str {
        match self {
            Gate::Open => "sent",
            Gate::Paused => "wait",
            Gate::Failing(_) => "fail",
        }
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthAction {
    /// The gate has changed.
    Gate(Gate),
    /// The failed command is answered with that status.
    Deliver {
        /// The command.
        ticket: Ticket,
        /// Its status.
        status: Status,
    },
    /// The failed command waits until the gate opens, and is sent again.
    Hold(Ticket),
    /// The failed command is sent again at that time, over another queue where there is one.
    Retry {
        /// The command.
        ticket: Ticket,
        /// When.
        at: Nanos,
    },
    /// The drive is asked; the answer is evidence.
    Ask(Question),
    /// Blocks are read; the answer is evidence ([`ReadAgain`](super::Evidence::ReadAgain)).
    ReadAgain(Extent),
    /// The drive is reset; the end is evidence.
    Reset {
        /// Which reset.
        level: ResetLevel,
        /// Of [`ResetLevel::Abort`], the command.
        command: Option<Ticket>,
    },
    /// The link is gone: attempts to connect begin and go on until they succeed.
    Reconnect,
    /// Something is to be told to the operator.
    Report(HealthReport),
}
