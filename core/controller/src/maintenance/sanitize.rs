//! Sanitizing the drive (base 2.0, 5.24 and 8.21).
//!
//! ```text
//!  Sanitize ─▶ in progress: I/O is refused, one pass after another in the background ─▶ done
//!                                       │ the media fails ▼
//!                                     failed: I/O is refused ─(Exit Failure Mode, where allowed; another Sanitize)─▶
//! ```
//! It belongs to the drive: no reset ends it, and with nonvolatile state not even the loss of power; then the pass that was under
//! way begins anew.

use weir_spec::nvme::Status;
use weir_spec::nvme::sanitize::{SanitizeDw10, action, sanicap};

/// What a drive can do: everything, and leave the media as the operation left it.
pub(crate) const CAPABILITIES: u32 = sanicap::CRYPTO | sanicap::BLOCK | sanicap::OVERWRITE | sanicap::NOT_MODIFIED;

/// How the last operation went, or goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SanitizeState {
    #[default]
    Never,
    Done,
    Running,
    Failed,
}

/// The sanitize operations of a drive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sanitize {
    pub state: SanitizeState,
    /// CDW10 and CDW11 of the command that began it.
    pub dw10: u32,
    pub pattern: u32,
    /// Passes that are done.
    pub passes: u32,
    /// Bytes that hosts had written when it ended.
    pub written: Option<u64>,
}

impl Sanitize {
    /// Passes in all: those of an overwrite, and the one that deallocates.
    pub fn all_passes(&self) -> u32 {
        let dw10 = SanitizeDw10(self.dw10);
        let overwrites = if dw10.sanact() == action::OVERWRITE { dw10.passes() } else { 0 };
        overwrites + u32::from(overwrites == 0 || dw10.ndas() == 0)
    }

    /// What I/O commands are refused with.
    pub fn bar(&self) -> Option<Status> {
        match self.state {
            SanitizeState::Running => Some(Status::SANITIZE_IN_PROGRESS),
            SanitizeState::Failed => Some(Status::SANITIZE_FAILED.dnr()),
            SanitizeState::Never | SanitizeState::Done => None,
        }
    }
}
