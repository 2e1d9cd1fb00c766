//! The thread of a worker that serves, held by ptrace(2): stopped, made to go on instruction by instruction or until it stores to a place, killed where
//! it then is.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid as Traced;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::Context;

/// How long one that does not stop is waited for: it sleeps in the kernel.
const THREAD_STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// How long one that was killed is.
const END: Duration = Duration::from_secs(20);

/// What a thread that is traced does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is stopped.
    Stopped,
    /// Its process has ended.
    Ended,
    /// Nothing that its tracer would hear of.
    Asleep,
}

/// Where a store stops the thread, right after it: an address that is a multiple of the length, which is 2 or 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// In the worker's memory.
    pub address: u64,
    /// Bytes.
    pub len: u8,
}

/// See the [module](self). Whoever is done with it kills it.
#[derive(Debug)]
pub struct Tracee {
    worker: Pid,
    thread: Traced,
}

impl Tracee {
    /// Stops the worker's first shard.
    pub fn stop(worker: Pid) -> Result<(Self, Next), String> {
        let thread = shard(worker)?;
        ptrace::seize(thread, Options::empty()).context(|| format!("trace thread {thread}"))?;
        let tracee = Self { worker, thread };
        let next = tracee.interrupt()?;
        Ok((tracee, next))
    }

    /// Stops it again.
    pub fn interrupt(&self) -> Result<Next, String> {
        ptrace::interrupt(self.thread).context(|| format!("stop thread {}", self.thread))?;
        self.next(THREAD_STOP_TIMEOUT)
    }

    /// One instruction.
    pub fn step(&self) -> Result<Next, String> {
        ptrace::step(self.thread, None).context(|| format!("step thread {}", self.thread))?;
        self.next(THREAD_STOP_TIMEOUT)
    }

    /// As many as it takes until it enters a system call, or leaves one.
    pub fn call(&self) -> Result<Next, String> {
        ptrace::syscall(self.thread, None).context(|| format!("continue thread {}", self.thread))?;
        self.next(THREAD_STOP_TIMEOUT)
    }

    /// As many as it takes until it stores to the place that is watched, if that is within `limit`.
    pub fn go_on(&self, limit: Duration) -> Result<Next, String> {
        ptrace::cont(self.thread, None).context(|| format!("continue thread {}", self.thread))?;
        self.next(limit)
    }

    /// Watches this place from now on, or none, by the first of the processor's debug registers.
    pub fn watch(&self, place: Option<Place>) -> Result<(), String> {
        /// L0; R/W0: stores; LEN0 (Intel SDM volume 3, 19.2.4).
        const LOCAL: u64 = 1;
        const STORES: u64 = 1 << 16;
        const LEN: u32 = 18;
        // A register that is in use does not take another address of another length.
        self.put(7, 0)?;
        let Some(Place { address, len }) = place else { return Ok(()) };
        let length = match len {
            2 => 1,
            8 => 2,
            _ => return Err(format!("a place of {len} bytes")),
        };
        self.put(0, address)?;
        self.put(7, LOCAL | STORES | length << LEN)
    }

    fn put(&self, register: usize, value: u64) -> Result<(), String> {
        let at = std::mem::offset_of!(libc::user, u_debugreg) + register * size_of::<u64>();
        ptrace::write_user(self.thread, std::ptr::without_provenance_mut(at), value as i64)
            .context(|| format!("debug register {register} of thread {}", self.thread))
    }

    /// SIGKILL of the whole worker: its thread makes no further step.
    pub fn kill(self) -> Result<(), String> {
        kill_process(self.worker, Signal::KILL).context(|| "kill the worker".into())?;
        // Its keeper hears of its end only after whoever traces it.
        let begun = Instant::now();
        while self.next(THREAD_STOP_TIMEOUT)? != Next::Ended {
            if begun.elapsed() > END {
                return Err(format!("thread {} does not end", self.thread));
            }
        }
        Ok(())
    }

    /// What it does within `limit`.
    pub fn next(&self, limit: Duration) -> Result<Next, String> {
        let begun = Instant::now();
        loop {
            match waitpid(self.thread, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) if begun.elapsed() >= limit => return Ok(Next::Asleep),
                // It may wait for this very core.
                Ok(WaitStatus::StillAlive) => std::thread::yield_now(),
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(Errno::ECHILD) => return Ok(Next::Ended),
                Ok(_) => return Ok(Next::Stopped),
                Err(e) => return Err(format!("wait for thread {}: {e}", self.thread)),
            }
        }
    }
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
