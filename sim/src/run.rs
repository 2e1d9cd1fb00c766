//! A scenario from its first request to its result.

use crate::scenario::{Scenario, capacity};
use crate::world::{Setup, World};
use std::fmt;
use weir_controller::DriveStats;
use weir_units::Nanos;
use weir_workload::JobResult;

/// Why a simulation has no result; the message is what the user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError(String);

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RunError {}

/// What a simulation gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Every job, in the order of the file.
    pub jobs: Vec<JobResult>,
    /// Every tenant with jobs, in the order of the file.
    pub tenants: Vec<JobResult>,
    /// All together.
    pub total: JobResult,
    /// What the drive counted, the ramp included.
    pub drive: DriveStats,
    /// Virtual time at the end.
    pub time: Nanos,
    /// Requests answered, the ramp's included.
    pub requests: u64,
    /// Stands for every answer, its time and its place in the order.
    pub digest: u64,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Virtual time so far.
    pub time: Nanos,
    /// Requests answered so far.
    pub requests: u64,
    /// From 0 to 1; `None` where only the end of a trace will end it.
    pub part: Option<f64>,
}

/// Moments between two reports of progress: a few milliseconds.
const MOMENTS: u64 = 1 << 15;

impl Scenario {
    /// The world before its first moment.
    ///
    /// # Errors
    /// A job that the drive cannot serve, or a trace that cannot be read.
    pub fn world(&self) -> Result<World, RunError> {
        let setup = Setup {
            block: self.device.block_size,
            ramp: self.ramp,
            series: self.series,
            requests: self.requests,
            ..Setup::new(capacity(&self.device), self.clients.clone(), self.seed)
        };
        World::with(self.machine(), setup).map_err(|e| RunError(e.to_string()))
    }

    /// Runs it to its end; `watch` sees how far it has come every few milliseconds.
    ///
    /// # Errors
    /// As [`Scenario::world`], and a line of a trace that does not parse.
    pub fn run(&self, mut watch: impl FnMut(Progress)) -> Result<Outcome, RunError> {
        let mut world = self.world()?;
        let end = self.time.map_or(Nanos::NEVER, |time| self.ramp.saturating_add(time));
        while world.advance(end, MOMENTS) {
            let by_time = (end != Nanos::NEVER).then(|| world.now().0 as f64 / end.0.max(1) as f64);
            let by_count = self.requests.map(|n| world.answers() as f64 / n as f64);
            let part = by_time.into_iter().chain(by_count).reduce(f64::max);
            watch(Progress { time: world.now(), requests: world.answers(), part });
        }
        if let Some(error) = world.trace_error() {
            return Err(RunError(error.to_string()));
        }
        // Where time ends the run, what comes to its end early has had all of it.
        if self.time.is_some() && !world.is_spent() {
            world.run_until(end);
        }
        Ok(self.outcome(&world))
    }

    fn outcome(&self, world: &World) -> Outcome {
        let used = |t: &usize| self.clients.iter().any(|c| usize::from(c.tenant) == *t);
        let tenant = |t: usize| world.tenant(t as u16, &self.tenants[t].name, self.tenants[t].class);
        Outcome {
            jobs: world.results(),
            tenants: (0..self.tenants.len()).filter(used).map(tenant).collect(),
            total: world.total(),
            drive: world.stats(),
            time: world.now(),
            requests: world.answers(),
            digest: world.digest(),
        }
    }
}
