//! A scenario from its first request to its result.

use crate::scenario::{Scenario, capacity};
use crate::world::{Setup, SimulatedDrive};
use std::fmt;
use std::ops::ControlFlow;
use weir_config::DeviceConfig;
use weir_controller::{CostPolicy, DriveStats, Subsystem, TimingModel, Work};
use weir_drive::{FlashFigures, FlashService, set_cost_policy};
use weir_flash::PowerLoss;
use weir_units::Nanos;
use weir_workload::{JobResult, Summary};

/// Why a simulation has no result; the message is what the user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError(String);

impl RunError {
    pub(crate) fn new(what: impl fmt::Display) -> Self {
        RunError(what.to_string())
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RunError {}

/// What a simulation gave.
#[derive(Clone, Debug)]
pub struct SimulationResult {
    /// Every job, in the order of the file.
    pub jobs: Vec<JobResult>,
    /// Every tenant with jobs, in the order of the file.
    pub tenants: Vec<JobResult>,
    /// All together.
    pub total: JobResult,
    /// What the drive counted after the ramp.
    pub drive: DriveStats,
    /// What its flash did after the ramp, where it has one.
    pub flash: Option<FlashFigures>,
    /// What each power cut did, in their order.
    pub power_cuts: Vec<PowerCutOutcome>,
    /// Virtual time at the end.
    pub time: Nanos,
    /// Requests answered, the ramp's included.
    pub requests: u64,
    /// Stands for every answer, its time and its place in the order.
    pub digest: u64,
}

/// What a power cut did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCutOutcome {
    /// When, from the end of the ramp on.
    pub at: Nanos,
    /// Commands that were on their way and are never answered.
    pub unanswered: u64,
    /// Units of 4 KiB whose newest writes are gone.
    pub lost_units: u64,
    /// Those writes.
    pub lost_writes: u64,
    /// Pages of which the spare area was read.
    pub pages_read: u64,
    /// How long the drive was down.
    pub rebuild: Nanos,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct RunProgress {
    /// Virtual time so far.
    pub time: Nanos,
    /// Requests answered so far.
    pub requests: u64,
    /// From 0 to 1; `None` where only the end of a trace will end it.
    pub part: Option<f64>,
}

/// Hears how far a run has come, and may end it.
trait Watch: FnMut(RunProgress) -> ControlFlow<()> {}

impl<W: FnMut(RunProgress) -> ControlFlow<()>> Watch for W {}

/// Why a run has no result.
enum Ended {
    Wrong(RunError),
    /// Its watch has ended it.
    Stopped,
}

impl From<RunError> for Ended {
    fn from(error: RunError) -> Self {
        Ended::Wrong(error)
    }
}

/// Moments between two reports of progress: a few milliseconds.
const MOMENTS: u64 = 1 << 15;

/// The flash of a drive in the state of its configuration; `None` where it has none.
pub(crate) fn timing_model(device: &DeviceConfig) -> Result<Option<FlashService>, RunError> {
    let Some(flash) = &device.flash else { return Ok(None) };
    let service = FlashService::new(&flash.config, flash.precondition, Nanos(0)).map_err(RunError::new)?;
    service.with_policy(flash.policy.as_ref()).map(Some).map_err(RunError::new)
}

impl Scenario {
    /// The world before its first moment.
    ///
    /// # Errors
    /// A job that the drive cannot serve, or a trace that cannot be read.
    pub fn world(&self) -> Result<SimulatedDrive, RunError> {
        self.world_with(timing_model(&self.device)?.map(|flash| Box::new(flash) as Box<dyn TimingModel>))
    }

    /// The same, around another inside of the drive.
    pub(crate) fn world_with(&self, inside: Option<Box<dyn TimingModel>>) -> Result<SimulatedDrive, RunError> {
        let setup = Setup {
            block: self.device.block_size,
            ramp: self.ramp,
            series: self.series,
            requests: self.requests,
            ..Setup::new(capacity(&self.device), self.clients.clone(), self.seed)
        };
        let mut world = SimulatedDrive::with(self.machine(), inside, setup).map_err(|e| RunError(e.to_string()))?;
        set_cost_policy(world.drive(), &self.device).map_err(RunError::new)?;
        for rule in &self.faults {
            world.add_fault(rule.clone()).map_err(|e| RunError(format!("fault \"{rule}\": {e}")))?;
        }
        Ok(world)
    }

    /// Runs it to its end; `watch` sees how far it has come every few milliseconds.
    ///
    /// # Errors
    /// As [`Scenario::world`], and a line of a trace that does not parse.
    pub fn run(&self, mut watch: impl FnMut(RunProgress)) -> Result<SimulationResult, RunError> {
        let on = |progress| {
            watch(progress);
            ControlFlow::Continue(())
        };
        let nobody_stops = || unreachable!("its watch never stops it");
        self.run_with(|_| {}, on)?.map_or_else(nobody_stops, Ok)
    }

    /// The same with a drive to which `prepare` gives policies of its own. `watch` may end the run, which then has no result.
    ///
    /// # Errors
    /// As [`Scenario::run`].
    pub fn run_with(
        &self,
        prepare: impl FnOnce(&mut Subsystem),
        mut watch: impl FnMut(RunProgress) -> ControlFlow<()>,
    ) -> Result<Option<SimulationResult>, RunError> {
        let mut world = self.world()?;
        prepare(world.drive());
        match self.run_in(&mut world, &mut watch) {
            Ok(result) => Ok(Some(result)),
            Err(Ended::Stopped) => Ok(None),
            Err(Ended::Wrong(error)) => Err(error),
        }
    }

    fn run_in(&self, world: &mut SimulatedDrive, watch: &mut impl Watch) -> Result<SimulationResult, Ended> {
        let end = self.end();
        let before = self.warm_up(world, watch)?;
        let power_cuts = self.cut_power(world, watch)?;
        self.advance(world, end, watch)?;
        if let Some(error) = world.trace_error() {
            return Err(RunError(error.to_string()).into());
        }
        let service = world.inside().and_then(|s| s.as_any().downcast_ref::<FlashService>());
        let failed = service.and_then(FlashService::policy_failure);
        let costs = || world.drive().cost_policy().and_then(CostPolicy::failure);
        if let Some(failure) = failed.or_else(costs) {
            return Err(RunError(failure).into());
        }
        // Where time ends the run, what comes to its end early has had all of it.
        if self.time.is_some() && !world.is_spent() {
            world.run_until(end);
        }
        Ok(SimulationResult { power_cuts, ..self.outcome(world, &before) })
    }

    /// When time ends the run.
    fn end(&self) -> Nanos {
        self.time.map_or(Nanos::NEVER, |time| self.ramp.saturating_add(time))
    }

    /// Lets everything happen up to and including `until`.
    fn advance(&self, world: &mut SimulatedDrive, until: Nanos, watch: &mut impl Watch) -> Result<(), Ended> {
        while world.advance(until, MOMENTS) {
            if watch(self.progress(world)).is_break() {
                return Err(Ended::Stopped);
            }
        }
        Ok(())
    }

    /// Runs up to each power cut, and through it.
    fn cut_power(&self, world: &mut SimulatedDrive, watch: &mut impl Watch) -> Result<Vec<PowerCutOutcome>, Ended> {
        let mut outcomes = Vec::new();
        for (i, at) in self.power_cuts.iter().enumerate() {
            let moment = self.ramp.saturating_add(*at);
            self.advance(world, moment, watch)?;
            if world.is_spent() {
                break;
            }
            world.run_until(moment);
            let mut loss = PowerLoss::default();
            let cut = |service: &mut dyn TimingModel, now| {
                let flash = service.as_any_mut().downcast_mut::<FlashService>();
                loss = flash.and_then(|f| f.power_cut(now, self.seed ^ i as u64)).unwrap_or_default();
                loss.takes
            };
            let unanswered = world.power_cut(cut).map_err(|e| RunError(e.to_string()))?;
            outcomes.push(PowerCutOutcome {
                at: *at,
                unanswered,
                lost_units: loss.lost.len() as u64,
                lost_writes: loss.lost.iter().map(|l| u64::from(l.writes)).sum(),
                pages_read: loss.pages_read,
                rebuild: loss.takes,
            });
        }
        Ok(outcomes)
    }

    /// All clients' figures together over the scenario's time, those of reads and of writes apart as well; without power cuts.
    ///
    /// # Errors
    /// As [`Scenario::world`].
    pub fn load_test(&self) -> Result<Summary, RunError> {
        Ok(self.load_test_in(&mut self.world()?))
    }

    /// The same in a world that was made of it.
    pub(crate) fn load_test_in(&self, world: &mut SimulatedDrive) -> Summary {
        world.tell_kinds_apart();
        world.run_until(self.ramp.saturating_add(self.time.unwrap_or_default()));
        world.total().summary
    }

    /// Runs the ramp; what the drive had counted at its end. Flash counts from zero then.
    fn warm_up(&self, world: &mut SimulatedDrive, watch: &mut impl Watch) -> Result<Work, Ended> {
        if self.ramp == Nanos(0) {
            return Ok(Work::default());
        }
        self.advance(world, Nanos(self.ramp.0 - 1), watch)?;
        let ramp = self.ramp;
        if let Some(flash) = world.drive().service_mut().and_then(|s| s.as_any_mut().downcast_mut::<FlashService>()) {
            flash.reset(ramp);
        }
        Ok(world.stats().work)
    }

    fn progress(&self, world: &SimulatedDrive) -> RunProgress {
        let end = self.end();
        let by_time = (end != Nanos::NEVER).then(|| world.now().0 as f64 / end.0.max(1) as f64);
        let by_count = self.requests.map(|n| world.answers() as f64 / n as f64);
        let part = by_time.into_iter().chain(by_count).reduce(f64::max);
        RunProgress { time: world.now(), requests: world.answers(), part }
    }

    fn flash(&self, world: &SimulatedDrive) -> Option<FlashFigures> {
        let service = world.inside().and_then(|s| s.as_any().downcast_ref::<FlashService>())?;
        Some(service.figures(world.now()))
    }

    fn outcome(&self, world: &SimulatedDrive, before: &Work) -> SimulationResult {
        let used = |t: &usize| self.clients.iter().any(|c| usize::from(c.tenant) == *t);
        let tenant = |t: usize| world.tenant(t as u16, &self.tenants[t].name, self.tenants[t].class);
        SimulationResult {
            jobs: world.results(),
            tenants: (0..self.tenants.len()).filter(used).map(tenant).collect(),
            total: world.total(),
            drive: since(world.stats(), before),
            flash: self.flash(world),
            power_cuts: Vec::new(),
            time: world.now(),
            requests: world.answers(),
            digest: world.digest(),
        }
    }
}

/// What was counted after that.
fn since(mut stats: DriveStats, before: &Work) -> DriveStats {
    let work = &mut stats.work;
    work.reads -= before.reads;
    work.writes -= before.writes;
    work.others -= before.others;
    work.read_bytes -= before.read_bytes;
    work.write_bytes -= before.write_bytes;
    work.errors -= before.errors;
    stats
}
