//! The programs that workers run, and how far an upgrade from one to another is.

use super::running::how;
use crate::upgrade::{UpgradeStart, UpgradeState, UpgradeStatus};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_keeper::{Notice, Refused, Terms, WorkerId};
use weir_units::Nanos;

/// A program's file, held open: what is at its path may be another one by the time it is needed again.
#[derive(Debug)]
pub(super) struct Binary {
    pub(super) path: PathBuf,
    file: OwnedFd,
}

impl Binary {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| io::Error::new(io::Error::from(e).kind(), format!("{}: {e}", path.display())))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// The same, opened by a program before this one.
    pub(super) fn of(path: PathBuf, file: OwnedFd) -> Self {
        Self { path, file }
    }

    /// A command that runs it, under the name of its path. By way of this process, so that an interpreter finds it as well.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()));
        command.arg0(&self.path);
        command
    }
}

impl AsFd for Binary {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// How far the last upgrade is, with the times that its phases took.
#[derive(Debug, Default)]
pub(super) struct Progress {
    status: UpgradeStatus,
    /// The new program's worker.
    worker: Option<WorkerId>,
    /// When the present phase began.
    since: Nanos,
    /// Why the two programs do not fit.
    pub(super) misfit: Option<String>,
}

impl Progress {
    pub(super) fn is_open(&self) -> bool {
        self.status.state.is_open()
    }

    /// Whether this worker is the new program's first.
    pub(super) fn is_of(&self, id: WorkerId) -> bool {
        self.is_open() && self.worker == Some(id)
    }

    /// What workers are told; nothing where there was no upgrade.
    pub(super) fn text(&self) -> Option<String> {
        (self.status.number > 0).then(|| serde_json::to_string(&self.status).unwrap_or_default())
    }

    pub(super) fn begin(&mut self, binary: &Path) {
        let (number, binary) = (self.status.number + 1, binary.display().to_string());
        let status = UpgradeStatus { number, binary, state: UpgradeState::Preparing, ..UpgradeStatus::default() };
        *self = Progress { status, ..Progress::default() };
    }

    pub(super) fn started(&mut self, id: WorkerId, now: Nanos) {
        (self.worker, self.since) = (Some(id), now);
    }

    /// The phase that took until now; another one begins.
    fn phase(&mut self, now: Nanos) -> Option<u64> {
        let took = now.saturating_sub(std::mem::replace(&mut self.since, now));
        Some(took.get())
    }

    pub(super) fn hands_over(&mut self, now: Nanos) {
        if self.status.state == UpgradeState::Preparing {
            self.status.prepare_ns = self.phase(now);
            self.status.state = UpgradeState::HandingOver;
        }
    }

    pub(super) fn goes(&mut self, id: WorkerId, now: Nanos) {
        if self.status.state == UpgradeState::HandingOver && self.worker == Some(id) {
            self.status.hand_over_ns = self.phase(now);
            self.status.state = UpgradeState::TakingOver;
        }
    }

    /// True where the notice is about an upgrade: workers are to hear of it.
    pub(super) fn noticed(&mut self, notice: Notice, now: Nanos) -> bool {
        if !self.is_open() {
            return false;
        }
        let state = match notice {
            Notice::Probation => UpgradeState::Probation,
            Notice::Upgraded => UpgradeState::Renewing,
            Notice::Kept(_) => UpgradeState::Refused,
            Notice::Back(_) => UpgradeState::RolledBack,
            Notice::Restarting(_)
            | Notice::Pausing { .. }
            | Notice::Failed(_)
            | Notice::Hung(_)
            | Notice::Standby { .. } => return false,
        };
        if self.status.state == UpgradeState::TakingOver && !matches!(notice, Notice::Back(_)) {
            self.status.take_over_ns = self.phase(now);
        }
        self.status.state = state;
        if let Notice::Kept(why) | Notice::Back(why) = notice {
            self.status.reason = Some(self.reason(why));
        }
        true
    }

    /// The keeper is about to go on as the new program.
    pub(super) fn renews(&mut self, now: Nanos) {
        self.since = now;
    }

    /// It has, or it has not, and why.
    pub(super) fn renewed(&mut self, kept: Option<String>, now: Nanos) {
        if self.status.state == UpgradeState::Renewing {
            match kept {
                None => self.status.renew_ns = self.phase(now),
                Some(_) => self.status.keeper = kept,
            }
            self.status.state = UpgradeState::Upgraded;
        }
    }

    /// All that is known, for the next program.
    pub(super) fn save(&self) -> (String, Nanos) {
        (self.text().unwrap_or_default(), self.since)
    }

    /// What [`save`](Self::save) gave; nothing where it makes no sense.
    pub(super) fn restore(text: &str, since: Nanos) -> Self {
        let status = serde_json::from_str(text).unwrap_or_default();
        Progress { status, since, ..Progress::default() }
    }

    /// It cannot even be begun.
    pub(super) fn refused(&mut self, why: String) {
        (self.status.state, self.status.reason) = (UpgradeState::Refused, Some(why));
    }

    pub(super) fn reason(&self, why: Refused) -> String {
        match why {
            Refused::Busy => "the node ends, or no worker serves".into(),
            Refused::Ended(end) => {
                format!("the new program {} before it took over; the node's log has its messages", how(end))
            }
            Refused::Hung => "the new program did not get ready in time, and was killed".into(),
            Refused::Layout => format!("the new program does not fit: {}", self.misfit.as_deref().unwrap_or_default()),
            Refused::Died(end) => {
                format!("the new program {} after it took over; the node's log has its messages", how(end))
            }
        }
    }
}

/// How long an upgrade may take, as it was asked for.
pub(super) fn terms(start: &UpgradeStart) -> Terms {
    let usual = Terms::default();
    Terms {
        step_timeout: start.within_ns.map_or(usual.step_timeout, Nanos),
        probation: start.probation_ns.map_or(usual.probation, Nanos),
    }
}
