//! The states of a diagnosis, and which may follow which. The [module](super) draws them.

use super::evidence::ResetLevel;

/// What is asked of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// CSTS, over fabrics by Property Get.
    Csts,
    /// The SMART / Health Information log.
    Smart,
    /// Identify Namespace, with what identifies it.
    Namespace,
    /// The path's state (ANA log).
    Path,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The link, or a connection.
    Link,
    /// The namespace, or that it is ready.
    Namespace,
    /// A path that may be used.
    Path,
    /// A device that was removed.
    Drive,
    /// A controller that no reset has helped; the resets are tried again.
    Controller,
}

/// Where a diagnosis stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Commands go to the drive.
    Serving,
    /// The drive is asked; commands wait.
    Asking(Question),
    /// It is being reset.
    Resetting(ResetLevel),
    /// It answers again: is it the same?
    Identifying,
    /// Blocks that were unreadable are read again.
    Verifying,
    /// It is not there, or not usable.
    Waiting(Awaited),
    /// Its media have failed: nothing goes to it.
    Isolated,
    /// Another drive is in its place: nothing goes to it.
    OtherDrive,
}

impl State {
    /// As users read it.
    pub const fn word(self) -> &'static str {
        match self {
            State::Serving => "serving",
            State::Asking(_) => "asking",
            State::Resetting(_) => "resetting",
            State::Identifying => "identifying",
            State::Verifying => "verifying",
            State::Waiting(_) => "waiting",
            State::Isolated => "isolated",
            State::OtherDrive => "other-drive",
        }
    }

    /// Whether `next` may follow.
    pub fn may_become(self, next: State) -> bool {
        use State::*;
        match (self, next) {
            // The link, the path and the device may go at any time.
            (_, Waiting(Awaited::Link | Awaited::Drive)) => true,
            (Identifying, Identifying) => true,
            (Serving, Asking(_) | Resetting(_) | Identifying | Waiting(_) | Isolated) => true,
            (Asking(_), Serving | Resetting(_) | Identifying | Verifying | Waiting(_)) => true,
            (Resetting(from), Resetting(to)) => to > from,
            (Resetting(_), Serving | Identifying | Waiting(_)) => true,
            (Identifying, Serving | Verifying | Waiting(_) | Resetting(_) | OtherDrive | Isolated) => true,
            (
                Verifying,
                Serving | Isolated | Identifying | Resetting(_) | Waiting(Awaited::Controller | Awaited::Namespace),
            ) => true,
            (Waiting(_), Resetting(_) | Identifying) => true,
            (OtherDrive, Resetting(_) | Identifying) => true,
            _ => false,
        }
    }

    /// Whether it ends by itself when nobody says anything.
    pub fn has_deadline(self) -> bool {
        !matches!(
            self,
            State::Serving | State::Isolated | State::Waiting(Awaited::Link) | State::Waiting(Awaited::Drive)
        )
    }
}
