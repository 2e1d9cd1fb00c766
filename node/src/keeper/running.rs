//! A worker's process, as its keeper has it: a child that is watched, killed and waited for by its descriptor.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_send_signal, waitid};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_keeper::{End, GO_ANSWER_TIMEOUT, Layouts, PREPARE_TIMEOUT};
use weir_sys::keeper_channel::Channel;
use weir_sys::robust_futex::DeathWatch;
use weir_sys::sched;

/// A worker's process.
pub(super) struct Running {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    pub(super) channel: Channel,
    /// What it reads and writes, once it is prepared.
    pub(super) layouts: Layouts,
    /// Tells when its threads are dead, where that is enough for the next one.
    pub(super) threads: Option<DeathWatch>,
    /// It waits, and has been told what is held; it hears of every change.
    pub(super) told: bool,
    /// It has closed its channel: it is dying, which may take a while, and will say nothing more.
    pub(super) silent: bool,
}

impl Running {
    pub(super) fn kill(&self) {
        // One that has ended is not there to be killed.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Whether somebody has stopped it, by SIGSTOP say.
    pub(super) fn is_stopped(&self) -> bool {
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::PidFd(self.pidfd.as_fd()), stopped).is_ok_and(|found| found.is_some_and(|s| s.stopped()))
    }

    /// Waits for its end. It is not [reaped](Reapers).
    pub(super) fn wait(&self) -> End {
        ended(&self.pidfd).map_or(End::Crashed, |status| end_of(&status))
    }
}

/// Waits for the end of that child, which is not [reaped](Reapers).
pub(super) fn ended(pidfd: &OwnedFd) -> io::Result<WaitIdStatus> {
    wait_for(pidfd, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
}

fn wait_for(pidfd: &OwnedFd, options: WaitIdOptions) -> io::Result<WaitIdStatus> {
    loop {
        match waitid(WaitId::PidFd(pidfd.as_fd()), options) {
            Ok(Some(status)) => return Ok(status),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Children that have ended and that the kernel is yet to forget, each by a thread that nobody waits for.
///
/// The kernel drops what it knew of the process under /proc before waitid(2) returns, and where another task is dropping the same, it
/// tries again and again until that one is done. That one may have lost its core: threads of the same process that are on their way
/// out, for as long as who reaps keeps them off it (8 ms were seen); and who reclaims memory at a low priority, for seconds (12 s were
/// seen). So it is not done by who clients wait for, nor while they do.
#[derive(Debug, Default)]
pub(super) struct Reapers(Vec<JoinHandle<()>>);

/// So long a child that has ended is left alone.
const AWHILE: Duration = Duration::from_millis(200);

impl Reapers {
    /// That one has ended.
    pub(super) fn reap(&mut self, pidfd: OwnedFd) {
        self.are_done();
        let run = move || {
            sched::background();
            std::thread::sleep(AWHILE);
            // There is nothing to be done about an error.
            let _ = wait_for(&pidfd, WaitIdOptions::EXITED);
        };
        match std::thread::Builder::new().name("weir-reap".into()).stack_size(64 << 10).spawn(run) {
            Ok(thread) => self.0.push(thread),
            // It stays a zombie until the keeper ends, which costs an entry in a table.
            Err(e) => tracing::warn!("a child that has ended is not reaped: {e}"),
        }
    }

    /// Whether all are forgotten.
    pub(super) fn are_done(&mut self) -> bool {
        self.0.retain(|thread| !thread.is_finished());
        self.0.is_empty()
    }
}

fn end_of(status: &WaitIdStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => End::Clean,
        (Some(code), _) => End::Status(u8::try_from(code).unwrap_or(1)),
        (None, Some(signal)) if signal == Signal::KILL.as_raw() => End::Killed,
        _ => End::Crashed,
    }
}

pub(super) fn how(end: End) -> String {
    match end {
        End::Clean => "ended".into(),
        End::Status(status) => format!("ended with status {status}"),
        End::Killed => "was killed (SIGKILL: by somebody, or because memory is short)".into(),
        End::Hung => format!("had not read its configuration after {PREPARE_TIMEOUT} and was killed"),
        End::Deaf => format!("did not answer within {GO_ANSWER_TIMEOUT} when it was to take over, and was killed"),
        End::Crashed => "crashed".into(),
    }
}
