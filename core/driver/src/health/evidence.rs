//! What is seen of a drive, and what a status code says about it.

use crate::link_recovery::DriveIdentity;
use core::fmt;
use weir_spec::nvme::Status;
use weir_spec::nvme::log::{Smart, critical_warning};
use weir_units::Nanos;

/// Names a command to its owner; of no meaning here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Blocks that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first logical block.
    pub lba: u64,
    /// Logical blocks, at least 1.
    pub blocks: u32,
}

impl Extent {
    /// One past the last logical block.
    pub const fn end(self) -> u64 {
        self.lba.saturating_add(self.blocks as u64)
    }

    /// Whether the other one lies in it.
    pub const fn covers(self, other: Extent) -> bool {
        self.lba <= other.lba && other.end() <= self.end()
    }

    /// Whether both have a block in common.
    pub const fn overlaps(self, other: Extent) -> bool {
        self.lba < other.end() && other.lba < self.end()
    }
}

/// What a command does, as far as a failure of it tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads blocks.
    Read,
    /// Changes blocks.
    Write,
    /// Has no blocks: Flush.
    Other,
}

/// A command that has ended with another status than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The command.
    pub ticket: Ticket,
    /// What it does.
    pub access: Access,
    /// Its blocks; where a controller names the failing one (Error Information log), that one alone.
    pub extent: Extent,
    /// How it ended.
    pub status: Status,
    /// How long the controller asks the host to wait (CRD and CRDT, base 2.0, 3.3.3.2.1 and Figure 275), if it does.
    pub retry_delay: Option<Nanos>,
    /// How often the command was sent again before, after it had failed.
    pub retries: u32,
    /// When it was first submitted.
    pub since: Nanos,
}

/// What a drive says of its media and temperature (SMART / Health Information, base 2.0, Figure 207), as far as it is evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmartReading {
    /// Bits of [`critical_warning`].
    pub critical_warning: u8,
    /// Available spare, percent.
    pub available_spare: u8,
    /// Media and Data Integrity Errors.
    pub media_errors: u128,
}

impl SmartReading {
    /// Of the log page.
    pub fn of(page: &Smart) -> Self {
        SmartReading {
            critical_warning: page.critical_warning,
            available_spare: page.available_spare,
            media_errors: page.media_errors.get(),
        }
    }

    /// Whether the drive itself says that its media fail: spare used up, or reliability degraded.
    pub const fn has_media_warning(self) -> bool {
        self.critical_warning & (critical_warning::SPARE | critical_warning::RELIABILITY) != 0
    }

    /// Whether the drive takes no more writes.
    pub const fn is_read_only(self) -> bool {
        self.critical_warning & critical_warning::READ_ONLY != 0
    }

    /// Whether the drive is outside of its temperature thresholds.
    pub const fn is_hot(self) -> bool {
        self.critical_warning & critical_warning::TEMPERATURE != 0
    }
}

/// What Identify Namespace told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceAnswer {
    /// It is there. Two whose identities [differ](DriveIdentity::difference) are two drives.
    Present(DriveIdentity),
    /// It is there and not ready (Namespace Not Ready; NRDY of Identify's NSTAT).
    NotReady,
    /// No such namespace, or an inactive one.
    Absent,
}

/// A reset, from the least to the greatest of what it ends (Spool, section 6; NVMe base 2.0, 3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResetLevel {
    /// Abort of one command (5.1).
    Abort,
    /// Queues deleted and created again (3.7.3).
    Queue,
    /// CC.EN cleared and set (3.7.2); over fabrics another association.
    Controller,
    /// NVM Subsystem Reset (3.7.1).
    Subsystem,
    /// PCI function level reset; over fabrics the transport connected again.
    Function,
}

impl ResetLevel {
    /// All of them, the least first.
    pub const ALL: [ResetLevel; 5] = [Self::Abort, Self::Queue, Self::Controller, Self::Subsystem, Self::Function];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Abort => "abort of one command",
            Self::Queue => "queues",
            Self::Controller => "controller",
            Self::Subsystem => "subsystem",
            Self::Function => "function",
        }
    }

    /// The next greater one.
    pub fn next(self) -> Option<ResetLevel> {
        Self::ALL.into_iter().find(|level| *level > self)
    }
}

/// The state of the path to a namespace (ANA, base 2.0, 8.1), as far as commands may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// Optimized or non-optimized.
    Usable,
    /// Inaccessible, or in transition.
    Inaccessible,
    /// Persistent loss: it does not come back by itself.
    PersistentLoss,
}

/// What [`SpeedWatch`](super::SpeedWatch) says ([`Policy`](super::Policy) has no part in it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slowness {
    /// Measured service time over the one that the model or the calibration has, percent.
    pub percent: u32,
    /// One die of the drive, where it can be told apart.
    pub die: Option<u32>,
}

/// One thing that was seen. What answers a question or ends a reset belongs to the last one that was asked for: a new one voids those before,
/// and so does a lost link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// A command has failed.
    Failed(Failure),
    /// A command was not answered within its limit; told again after each limit for as long as it is not.
    Late(Ticket),
    /// CSTS was read; all ones is a link that is gone (PCIe).
    Csts(u32),
    /// The SMART log was read.
    Smart(SmartReading),
    /// A question of this machine could not be asked, or was not answered.
    Unanswered,
    /// A block was read again, after a reset.
    ReadAgain {
        /// The first block.
        lba: u64,
        /// How the read ended.
        status: Status,
    },
    /// A reset has ended; whether the controller is ready again.
    ResetEnded {
        /// Which one.
        level: ResetLevel,
        /// Whether it has done what it should.
        worked: bool,
    },
    /// Identify Namespace was answered.
    Namespace(NamespaceAnswer),
    /// The controller says that a namespace has changed (Changed Namespace List), or identification is in doubt for another reason.
    NamespaceChanged,
    /// Nothing gets through: a connection was lost, keep alive is over, SIGBUS on a BAR.
    LinkLost,
    /// The link is there again; nothing is known yet of what is at its other end.
    LinkBack,
    /// The path's state has changed.
    Path(PathState),
    /// The device is gone from its bus.
    Removed,
    /// A device is there again, perhaps another one.
    Arrived,
    /// A host makes these blocks unreadable on purpose (Write Uncorrectable); told when the command is submitted.
    MarkedByHost(Extent),
    /// A host has written these blocks, so that a mark is over.
    WrittenByHost(Extent),
    /// A host has read these blocks.
    ReadByHost(Extent),
    /// The drive is slower than its model says.
    Slow(Slowness),
    /// The drive is as fast as its model says.
    AsFastAsModelled,
    /// Nothing but time has passed.
    Time,
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks at {}", self.blocks, self.lba)
    }
}

impl fmt::Display for Slowness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(die) = self.die {
            write!(f, "die {die} ")?;
        }
        write!(f, "takes {} % of the expected time", self.percent)
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Evidence::Failed(failure) => {
                let what = match failure.access {
                    Access::Read => "a read",
                    Access::Write => "a write",
                    Access::Other => "a flush",
                };
                write!(
                    f,
                    "{what} ({}) ended with {}, after {} retries",
                    failure.extent, failure.status, failure.retries
                )
            }
            Evidence::Late(_) => f.write_str("a command was not answered in time"),
            Evidence::Csts(u32::MAX) => f.write_str("registers read as all ones"),
            Evidence::Csts(value) => write!(f, "controller status (CSTS) {value:#x}"),
            Evidence::Smart(reading) => write!(
                f,
                "SMART: critical warning {:#04x}, {} media errors",
                reading.critical_warning, reading.media_errors
            ),
            Evidence::Unanswered => f.write_str("no answer"),
            Evidence::ReadAgain { lba, status } => write!(f, "block {lba} read again: {status}"),
            Evidence::ResetEnded { level, worked: true } => write!(f, "reset done: {}", level.name()),
            Evidence::ResetEnded { level, worked: false } => write!(f, "reset failed: {}", level.name()),
            Evidence::Namespace(NamespaceAnswer::Present(found)) => {
                write!(f, "namespace of {} blocks of {} bytes", found.blocks(), found.block_size)
            }
            Evidence::Namespace(NamespaceAnswer::NotReady) => f.write_str("namespace not ready"),
            Evidence::Namespace(NamespaceAnswer::Absent) => f.write_str("no such namespace"),
            Evidence::NamespaceChanged => f.write_str("namespace changed"),
            Evidence::LinkLost => f.write_str("link lost"),
            Evidence::LinkBack => f.write_str("link back"),
            Evidence::Path(PathState::Usable) => f.write_str("path usable"),
            Evidence::Path(PathState::Inaccessible) => f.write_str("path inaccessible"),
            Evidence::Path(PathState::PersistentLoss) => f.write_str("path lost for good"),
            Evidence::Removed => f.write_str("removed"),
            Evidence::Arrived => f.write_str("a drive is there"),
            Evidence::MarkedByHost(extent) => write!(f, "{extent} marked by a host"),
            Evidence::WrittenByHost(extent) => write!(f, "{extent} written"),
            Evidence::ReadByHost(extent) => write!(f, "{extent} read"),
            Evidence::Slow(slowness) => slowness.fmt(f),
            Evidence::AsFastAsModelled => f.write_str("as fast as expected"),
            Evidence::Time => f.write_str("time has passed"),
        }
    }
}

/// What the status of a failed command says of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusClass {
    /// The command asked for what cannot be, or a host's own marks, protection information or reservations speak: nothing of the drive.
    Host,
    /// Blocks cannot be read.
    UnreadableMedia,
    /// Blocks could not be written.
    WriteFault,
    /// Access to blocks is denied. Linux's target says so where the drive behind it cannot read or write them (`blk_to_nvme_status`), a locked
    /// drive of all blocks: an error of these blocks, and no proof that the media have failed.
    Denied,
    /// The controller has failed at a command that it should have carried out.
    Controller,
    /// The namespace is not there, or not ready.
    Namespace,
    /// The controller asks for the command to be sent again.
    Retry,
    /// The path cannot be used.
    Path(PathState),
    /// The namespace takes no writes.
    ReadOnly,
    /// It was ended by what the host did: an abort, a deleted queue, a reset.
    Aborted,
}

impl StatusClass {
    /// What denied access comes to.
    pub(super) fn of_access(self, access: Access) -> Self {
        match (self, access) {
            (StatusClass::Denied, Access::Read) => StatusClass::UnreadableMedia,
            (StatusClass::Denied, Access::Write) => StatusClass::WriteFault,
            (StatusClass::Denied, Access::Other) => StatusClass::Host,
            _ => self,
        }
    }

    /// Of a status other than success (base 2.0, Figures 94 to 101; NVM 1.0, Figures 11 to 13).
    pub fn of(status: Status) -> Self {
        const CLASSES: [(Status, StatusClass); 20] = [
            (Status::UNRECOVERED_READ_ERROR, StatusClass::UnreadableMedia),
            (Status::WRITE_FAULT, StatusClass::WriteFault),
            (Status::ACCESS_DENIED, StatusClass::Denied),
            (Status::INTERNAL_ERROR, StatusClass::Controller),
            (Status::INTERNAL_PATH_ERROR, StatusClass::Controller),
            (Status::INVALID_NAMESPACE_OR_FORMAT, StatusClass::Namespace),
            (Status::NAMESPACE_NOT_READY, StatusClass::Namespace),
            (Status::COMMAND_INTERRUPTED, StatusClass::Retry),
            (Status::TRANSIENT_TRANSPORT_ERROR, StatusClass::Retry),
            (Status::MEDIA_NOT_READY, StatusClass::Retry),
            (Status::FORMAT_IN_PROGRESS, StatusClass::Retry),
            (Status::SANITIZE_IN_PROGRESS, StatusClass::Retry),
            (Status::ABORTED_POWER_LOSS, StatusClass::Retry),
            (Status::ANA_TRANSITION, StatusClass::Retry),
            (Status::ANA_INACCESSIBLE, StatusClass::Path(PathState::Inaccessible)),
            (Status::ANA_PERSISTENT_LOSS, StatusClass::Path(PathState::PersistentLoss)),
            (Status::NAMESPACE_WRITE_PROTECTED, StatusClass::ReadOnly),
            (Status::ABORT_REQUESTED, StatusClass::Aborted),
            (Status::ABORTED_SQ_DELETION, StatusClass::Aborted),
            (Status::HOST_ABORTED, StatusClass::Aborted),
        ];
        let found = CLASSES.iter().find(|(code, _)| code.same_code(status));
        found.map_or(StatusClass::Host, |(_, class)| *class)
    }
}
