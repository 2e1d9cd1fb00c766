//! A worker that is killed at the step of Algorithm 1 that was asked for.
//!
//! Most steps last for an instruction or two, so neither random moments nor random instructions ever meet some of them. Here the processor
//! stops the worker right after a store to the word that begins the step ([`Tracee::watch`]), with its clients at full speed all the
//! time, and the worker is killed once what lies in its journal says that it is there. What lies there is asked of the code
//! that recovers ([`weir_journal`], on a copy), for every queue: so it is also known beforehand what the next worker is to find.
//!
//! ```text
//!   rings::kill, nvme::kill ─► Hunt: go on until a store ─► Journal: step of a queue ─► Tracee::kill
//!                                                            └ parts: the journal in the worker's memory, copied
//! ```

pub mod nvme;
mod parts;
pub mod rings;

use std::time::{Duration, Instant};

use rustix::process::Pid;
use weir_journal::CrashPoint;

use crate::tracee::{Next, Place, Tracee};

/// How long a step is waited for; a drive that is never idle, say, does not come there.
const CRASH_POINT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a worker may take to be stopped.
const STOPS: Duration = Duration::from_secs(10);
/// Instructions that lie between two stores of the journal at the most.
const BETWEEN: u32 = 500;

/// What is aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    /// Of which queue, the first is 0.
    pub queue: u16,
    /// Nothing: wherever the worker is.
    pub step: Option<CrashPoint>,
    /// How many times the step is let pass before.
    pub skip: u32,
}

/// How a worker was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aimed<R> {
    /// It stood where it was to.
    pub hit: bool,
    /// What every queue left.
    pub left: Vec<R>,
    /// How often it was stopped before.
    pub stops: u32,
}

/// A journal in the memory of a worker that is stopped.
trait Journal {
    /// What recovery finds of a queue.
    type Found;

    /// What it would find of one now.
    fn found(&self, queue: u16) -> Result<Self::Found, String>;

    /// Where that says the worker is.
    fn step(found: &Self::Found) -> CrashPoint;
}

struct Hunt<J> {
    tracee: Tracee,
    journal: J,
    aim: Aim,
    stops: u32,
    end: Instant,
}

impl<J: Journal> Hunt<J> {
    /// Stops the worker, lets it go where `approach` has it go, and kills it there.
    fn kill(
        worker: Pid,
        journal: J,
        (aim, queues): (Aim, u16),
        approach: impl FnOnce(&mut Self, CrashPoint) -> Result<bool, String>,
    ) -> Result<Aimed<J::Found>, String> {
        let (tracee, next) = Tracee::stop(worker)?;
        let mut hunt = Self { tracee, journal, aim, stops: 1, end: Instant::now() + CRASH_POINT_TIMEOUT };
        let stopped = hunt.stopped(next);
        let hit = stopped.and_then(|()| aim.step.map_or(Ok(true), |step| approach(&mut hunt, step)));
        let left = (0..queues).map(|queue| hunt.journal.found(queue)).collect::<Result<Vec<_>, _>>();
        // Whatever has gone wrong: nobody else makes it go on.
        hunt.tracee.kill()?;
        Ok(Aimed { hit: hit?, left: left?, stops: hunt.stops })
    }

    /// Stops at stores to a place until one has led to that step so many times and once more; whether one has.
    fn watch(&mut self, place: Place, step: CrashPoint, mut skip: u32) -> Result<bool, String> {
        self.tracee.watch(Some(place))?;
        loop {
            match self.tracee.go_on(self.end.saturating_duration_since(Instant::now()))? {
                Next::Stopped => self.stops += 1,
                Next::Ended => return Err("the worker has ended".into()),
                Next::Asleep => {
                    self.stopped(self.tracee.interrupt()?)?;
                    return Ok(false);
                }
            }
            if !self.stands_at(step)? {
                continue;
            }
            if skip == 0 {
                break;
            }
            skip -= 1;
        }
        self.tracee.watch(None)?;
        Ok(true)
    }

    /// Goes on by single instructions to a step that is not far.
    fn walk_to(&mut self, step: CrashPoint) -> Result<bool, String> {
        for _ in 0..BETWEEN {
            if self.stands_at(step)? {
                return Ok(true);
            }
            self.step()?;
        }
        Ok(false)
    }

    /// Goes on by single instructions until it stands there no more, which is soon.
    fn walk_from(&mut self, step: CrashPoint) -> Result<(), String> {
        for _ in 0..BETWEEN {
            if !self.stands_at(step)? {
                break;
            }
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        self.stops += 1;
        match self.tracee.step()? {
            // It is on its way into the kernel.
            Next::Asleep => self.stopped(self.tracee.interrupt()?),
            next => self.stopped(next),
        }
    }

    /// Nothing is looked at before it is stopped: a busy machine takes its time.
    fn stopped(&self, next: Next) -> Result<(), String> {
        let next = if next == Next::Asleep { self.tracee.next(STOPS)? } else { next };
        match next {
            Next::Stopped => Ok(()),
            _ => Err(format!("the worker is to be stopped and has {next:?}")),
        }
    }

    fn stands_at(&self, step: CrashPoint) -> Result<bool, String> {
        Ok(J::step(&self.journal.found(self.aim.queue)?) == step)
    }
}
