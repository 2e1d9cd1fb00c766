//! A worker that is stopped in the middle of its work, made to go on instruction by instruction, and killed where it then is.
//!
//! A kill from outside finds a worker wherever its core was when the signal came: between two system calls, most of the time in the same
//! places. Single steps know no such places: after a random number of them every instruction that the worker executes under load is as likely
//! as another, and so is every point between two stores.
//! It finds what a busy worker finds: its front ends, which go on at full speed, have filled their rings after the first of them.

use rustix::process::Pid;

use crate::tracee::{Next, Tracee};

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
    let (tracee, mut found) = Tracee::stop(worker)?;
    let mut made = 0;
    while found == Next::Stopped && made < steps {
        found = tracee.step()?;
        made += u64::from(found == Next::Stopped);
    }
    tracee.kill()?;
    Ok(Stepped { made, asleep: found == Next::Asleep })
}
