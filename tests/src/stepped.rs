//! A worker that is stopped in the middle of its work, made to go on instruction by instruction, and killed where it then is (ptrace(2)).
//!
//! A kill from outside finds a worker wherever its core was when the signal came: between two system calls, most of the time in the same
//! places. Single steps know no such places: after a random number of them every instruction that the worker executes under load is as likely
//! as another, and so is every point between two stores.
//! It finds what a busy worker finds: its front ends, which go on at full speed, have filled their rings after the first of them.

use std::time::{Duration, Instant};

use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid as Traced;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::Context;

/// How long one that does not stop is waited for: it sleeps in the kernel.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long one that was killed is.
const END: Duration = Duration::from_secs(20);

/// How a worker was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stepped {
    /// Instructions that were made before.
    pub made: u64,
    /// It slept in the kernel by then, waiting for work.
    pub asleep: bool,
}

/// Kills `worker` after so many instructions of its first shard, or as soon as that sleeps in the kernel.
pub fn kill(worker: Pid, steps: u64) -> Result<Stepped, String> {
    let thread = shard(worker)?;
    ptrace::seize(thread, Options::empty()).context(|| format!("trace thread {thread}"))?;
    let made = step(thread, steps);
    kill_process(worker, Signal::KILL).context(|| "kill the worker".into())?;
    // Its keeper hears of its end only after whoever traces it.
    let begun = Instant::now();
    while next(thread)? != Next::Ended {
        if begun.elapsed() > END {
            return Err(format!("thread {thread} does not end"));
        }
    }
    made
}

fn step(thread: Traced, steps: u64) -> Result<Stepped, String> {
    ptrace::interrupt(thread).context(|| format!("stop thread {thread}"))?;
    let mut found = next(thread)?;
    let mut made = 0;
    while found == Next::Stopped && made < steps {
        ptrace::step(thread, None).context(|| format!("step thread {thread}"))?;
        found = next(thread)?;
        made += u64::from(found == Next::Stopped);
    }
    Ok(Stepped { made, asleep: found == Next::Asleep })
}

/// What a thread that is traced does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Stopped,
    Ended,
    /// Nothing that its tracer would hear of.
    Asleep,
}

fn next(thread: Traced) -> Result<Next, String> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        match waitpid(thread, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
            // It may wait for this very core.
            Ok(WaitStatus::StillAlive) => std::thread::yield_now(),
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(nix::errno::Errno::ECHILD) => {
                return Ok(Next::Ended);
            }
            Ok(_) => return Ok(Next::Stopped),
            Err(e) => return Err(format!("wait for thread {thread}: {e}")),
        }
    }
    Ok(Next::Asleep)
}

/// The thread that serves the drives of the first core.
fn shard(worker: Pid) -> Result<Traced, String> {
    let folder = format!("/proc/{}/task", worker.as_raw_nonzero());
    for thread in std::fs::read_dir(&folder).context(|| folder.clone())?.flatten() {
        let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        if name.trim_end() == "shard-0" {
            let id = thread.file_name().to_string_lossy().parse().context(|| "a thread".into())?;
            return Ok(Traced::from_raw(id));
        }
    }
    Err("the worker has no shard yet".into())
}
