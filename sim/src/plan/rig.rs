//! The judge: the real arbiter and drive in virtual time.

use super::effort::{Effort, PlanProgress};
use super::measure;
use super::parallel::in_parallel;
use super::read::PlanFile;
use super::spread::together;
use super::stand_in::StandIn;
use super::tenant::PlannedTenant;
use super::timing_models::Insides;
use crate::client::SimulatedClient;
use crate::run::RunError;
use crate::scenario::Scenario;
use weir_config::DeviceConfig;
use weir_controller::TimingModel;
use weir_plan::planner::{Got, Judge, Shares, room};
use weir_plan::{DriveModel, Margin};
use weir_units::{Nanos, Sla};
use weir_workload::{JobResult, Latency};

/// Commands of a tenant that a percentile needs, so that it does not hang on a few of them.
const FOR_P999: f64 = 20_000.0;
const FOR_P99: f64 = 5_000.0;
const FOR_RATE: f64 = 2_000.0;
/// Commands of one simulation, over all tenants.
const MOST: f64 = 2e6;
/// The same where a plan is to be had within seconds, and of all its simulations: what two cores simulate meanwhile.
const BRIEF: f64 = 2e5;
const BUDGET: f64 = 6e6;
/// How many times as long a confirmation lasts where the spread of the first alone misses a promise.
const LONGER: u64 = 6;
/// The part of the whole before anything counts.
const RAMP: f64 = 0.15;
/// Seeds of a confirmation: few for a first look, and all where that keeps every promise.
const LOOK: usize = 4;
const SEEDS: usize = 12;
/// What a confirmed figure keeps beside what it was seen to vary: standard deviations, and a part of itself. Few seeds say little
/// of a standard deviation: of four, one figure in thirty would lie beyond three of theirs; of twelve, one in a thousand beyond four.
const SPREAD: (f64, f64) = (3.0, 4.0);
const BESIDE: f64 = 0.004;
/// Standard deviations more for the root of the part of the commands that take longer than promised, whose tail is longer.
const ROOTS: f64 = 1.0;

/// Simulates shares.
pub(crate) struct Rig<'a> {
    bench: Bench<'a>,
    watch: &'a mut dyn FnMut(PlanProgress),
    runs: u32,
    /// Commands that were simulated.
    commands: f64,
    /// Those that may be.
    budget: f64,
    /// The file says how long a simulation lasts.
    is_timed: bool,
    first: u64,
    /// What the first seeds gave for shares that were asked about, in the order of the seeds.
    known: Vec<(Shares, Vec<Run>)>,
}

/// What is simulated.
struct Bench<'a> {
    insides: &'a Insides<'a>,
    scenario: Scenario,
    stand_in: Option<DriveModel>,
    slas: Vec<Sla>,
}

/// What one simulation gave.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    got: Vec<Got>,
    /// The part of each tenant's commands that took longer than its promised p50, p99 and p999; 0 without promise.
    above: Vec<[f64; 3]>,
    /// Commands of all, the ramp's included.
    commands: f64,
}

/// Each tenant's promised p50, p99 and p999, and the part of its commands that may take longer.
fn times(sla: &Sla) -> [(Option<Nanos>, f64); 3] {
    [(sla.p50, 0.5), (sla.p99, 0.01), (sla.p999, 0.001)]
}

impl<'a> Rig<'a> {
    /// Of some of a file's tenants.
    pub fn new(
        (file, insides): (&PlanFile, &'a Insides<'a>),
        drive: &DriveModel,
        members: &[PlannedTenant],
        effort: Effort,
        watch: &'a mut dyn FnMut(PlanProgress),
    ) -> Self {
        let (most, budget) = if effort == Effort::Brief { (BRIEF, BUDGET) } else { (MOST, f64::INFINITY) };
        let device = insides.device();
        let client = |(at, member): (usize, &PlannedTenant)| SimulatedClient::new(&member.job(), at as u16);
        let (ramp, whole) = match file.time {
            Some(whole) => (Nanos(0), whole),
            None => settled(device, members, long_enough(drive, members, most)),
        };
        let ramp = ramp.max(Nanos((whole.0 as f64 * RAMP) as u64));
        let scenario = Scenario {
            device: device.clone(),
            tenants: members.iter().map(|m| m.tenant.clone()).collect(),
            clients: members.iter().enumerate().map(client).collect(),
            seed: file.seed,
            time: Some(whole.saturating_sub(ramp)),
            requests: None,
            ramp,
            series: None,
            power_cuts: Vec::new(),
            faults: Vec::new(),
        };
        let stand_in = file.calibration.as_ref().map(|(_, drive)| drive.clone());
        let bench = Bench { insides, scenario, stand_in, slas: members.iter().map(|m| m.sla).collect() };
        let is_timed = file.time.is_some();
        Rig { bench, watch, runs: 0, commands: 0.0, budget, is_timed, first: file.seed, known: Vec::new() }
    }

    /// With what is left of another's budget.
    pub fn after(mut self, other: (f64, f64)) -> Self {
        (self.commands, self.budget) = other;
        self
    }

    /// Commands that were simulated, and those that may be.
    pub fn spending(&self) -> (f64, f64) {
        (self.commands, self.budget)
    }

    /// Virtual time of a simulation.
    pub fn time(&self) -> Nanos {
        self.bench.end()
    }

    /// Simulations so far.
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// One simulation from a seed of its own.
    pub fn run(&mut self, shares: &Shares, seed: u64) -> Result<Vec<Got>, RunError> {
        self.simulate(shares, &[seed]).map(|mut runs| runs.remove(0).got)
    }

    /// What a few seeds' simulations show together.
    pub fn figures(&mut self, shares: &Shares) -> Result<Vec<Got>, RunError> {
        let runs = self.first_runs(shares, LOOK)?;
        let of = |place: usize| together(&runs.iter().map(|run| run.got[place]).collect::<Vec<_>>());
        Ok((0..self.bench.slas.len()).map(of).collect())
    }

    /// The seeds of a confirmation.
    fn seeds(&self) -> Vec<u64> {
        (0..SEEDS as u64).map(|at| self.first.wrapping_add(at.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect()
    }

    /// The place of these shares among those that are known.
    fn place(&mut self, shares: &Shares) -> usize {
        self.known.iter().position(|(of, _)| of == shares).unwrap_or_else(|| {
            self.known.push((shares.clone(), Vec::new()));
            self.known.len() - 1
        })
    }

    /// What so many of a confirmation's seeds give, of which some may be known.
    fn first_runs(&mut self, shares: &Shares, count: usize) -> Result<Vec<Run>, RunError> {
        let (place, seeds) = (self.place(shares), self.seeds());
        let have = self.known[place].1.len().min(count);
        let more = self.simulate(shares, &seeds[have..count])?;
        self.known[place].1.extend(more);
        Ok(self.known[place].1[..count].to_vec())
    }

    /// A simulation from each seed.
    fn simulate(&mut self, shares: &Shares, seeds: &[u64]) -> Result<Vec<Run>, RunError> {
        self.simulate_all(&seeds.iter().map(|seed| (shares, *seed)).collect::<Vec<_>>())
    }

    /// A simulation of each.
    fn simulate_all(&mut self, of: &[(&Shares, u64)]) -> Result<Vec<Run>, RunError> {
        let Rig { bench, watch, runs, .. } = self;
        watch(PlanProgress::Simulating { runs: *runs });
        let done = || {
            *runs += 1;
            watch(PlanProgress::Simulating { runs: *runs });
        };
        let results = in_parallel(of, |(shares, seed)| bench.simulate(shares, *seed), done);
        let results = results.into_iter().collect::<Result<Vec<Run>, RunError>>()?;
        self.commands += results.iter().map(|run| run.commands).sum::<f64>();
        Ok(results)
    }

    /// What several seeds' runs can promise, and whether each of them keeps every promise. `runs` has those of the first so many seeds.
    fn several(
        &mut self,
        mut runs: impl FnMut(&mut Self, usize) -> Result<Vec<Run>, RunError>,
    ) -> Result<(Vec<Got>, bool), RunError> {
        let mut all = Vec::new();
        // Where nothing hangs on chance there is nothing more to see than from a second.
        for count in [2, LOOK, SEEDS] {
            all = runs(self, count)?;
            if all[1] == all[0] {
                break;
            }
            let look = self.bench.careful(&all, SPREAD.0);
            if count == LOOK && !self.bench.keeps(&look) {
                return Ok((look, all.iter().all(|run| self.bench.keeps(&run.got))));
            }
        }
        let got = self.bench.careful(&all, SPREAD.1);
        Ok((got, all.iter().all(|run| self.bench.keeps(&run.got))))
    }
}

impl Bench<'_> {
    fn end(&self) -> Nanos {
        self.scenario.ramp.saturating_add(self.scenario.time.unwrap_or_default())
    }

    fn simulate(&self, shares: &Shares, seed: u64) -> Result<Run, RunError> {
        let mut scenario = self.scenario.clone();
        let arbitration = &mut scenario.device.arbitration;
        arbitration.take_shares(&shares.settings(&(*arbitration).into()));
        scenario.tenants.iter_mut().zip(&shares.tenants).for_each(|(tenant, weight)| tenant.weight = *weight);
        scenario.seed = seed;
        let mut world = match &self.stand_in {
            Some(drive) => {
                scenario.world_with(Some(Box::new(StandIn::new(drive.clone(), seed)) as Box<dyn TimingModel>))?
            }
            None => scenario.world_with(self.insides.one()?)?,
        };
        world.run_until(self.end());
        let results = world.results();
        let above = |(job, sla)| times(sla).map(|(time, _)| time.map_or(0.0, |time| world.above(job, time)));
        let run = Run {
            got: results.iter().enumerate().map(|(job, result)| got(result, world.keeps_up(job))).collect(),
            above: self.slas.iter().enumerate().map(above).collect(),
            commands: results.iter().map(|r| r.summary.iops).sum::<f64>() * self.end().as_secs_f64(),
        };
        self.insides.give_back(world.drive().take_service());
        Ok(run)
    }

    /// What of several runs can be promised to each tenant.
    fn careful(&self, runs: &[Run], spread: f64) -> Vec<Got> {
        let of = |(place, sla): (usize, &Sla)| {
            let mut got = careful(&runs.iter().map(|run| run.got[place]).collect::<Vec<_>>(), spread);
            // A percentile that lies on a step stands still from seed to seed until it falls down the step: so the part of the
            // commands that take longer is held to what it may be as well. Like any count of what is rare and comes in bursts it
            // varies the more the larger it is; its root does not.
            for (which, (time, may)) in times(sla).into_iter().enumerate() {
                let root = bad(runs.iter().map(|run| run.above[place][which].sqrt()).collect(), 1.0, spread + ROOTS);
                if let (Some(time), Some(latency), true) = (time, &mut got.latency, root * root > may) {
                    let figure = [&mut latency.p50, &mut latency.p99, &mut latency.p999].into_iter().nth(which);
                    figure.into_iter().for_each(|figure| *figure = (*figure).max(time.get() + time.get() / 1000 + 1));
                }
            }
            got
        };
        self.slas.iter().enumerate().map(of).collect()
    }

    /// Whether those runs keep every promise with their spread to spare.
    fn keeps(&self, got: &[Got]) -> bool {
        self.slas.iter().zip(got).filter_map(|(sla, got)| room(sla, got)).all(|room| room >= 1.0)
    }
}

fn got(result: &JobResult, keeps_up: Option<bool>) -> Got {
    let summary = &result.summary;
    Got {
        iops: summary.iops,
        bandwidth: summary.bandwidth_bytes_per_s,
        latency: Some(summary.latency).filter(|_| summary.iops > 0.0),
        sated: keeps_up == Some(true),
        margin: Margin::default(),
    }
}

impl Judge for Rig<'_> {
    type Error = RunError;

    fn judge(&mut self, shares: &Shares) -> Result<Vec<Got>, RunError> {
        self.first_runs(shares, 1).map(|mut runs| runs.remove(0).got)
    }

    /// Several seeds: each figure's mean, worse by what it varied from seed to seed and a little more. Where every seed keeps the
    /// promises, and only the spread does not, it is looked at for longer: then figures spread less.
    fn confirm(&mut self, shares: &Shares) -> Result<Vec<Got>, RunError> {
        let (got, are_all) = self.several(|rig, count| rig.first_runs(shares, count))?;
        if self.bench.keeps(&got) || !are_all || self.is_timed || self.is_spent() {
            return Ok(got);
        }
        let time = self.bench.scenario.time;
        self.bench.scenario.time = time.map(|time| Nanos(time.0.saturating_mul(LONGER)));
        let (mut all, seeds) = (Vec::new(), self.seeds());
        let longer = self.several(|rig, count| {
            all.extend(rig.simulate(shares, &seeds[all.len()..count])?);
            Ok(all.clone())
        });
        self.bench.scenario.time = time;
        longer.map(|(got, _)| got)
    }

    fn prepare(&mut self, shares: &[Shares]) -> Result<(), RunError> {
        let is_new = |of: &&Shares| self.known.iter().all(|(known, runs)| known != *of || runs.is_empty());
        let new: Vec<(&Shares, u64)> = shares.iter().filter(is_new).map(|of| (of, self.first)).collect();
        for (run, (of, _)) in self.simulate_all(&new)?.into_iter().zip(&new) {
            let place = self.place(of);
            self.known[place].1.push(run);
        }
        Ok(())
    }

    fn is_cheap(&self) -> bool {
        self.budget.is_infinite()
    }

    fn is_spent(&self) -> bool {
        self.commands >= self.budget
    }
}

/// The mean of several runs' figures, worse by what they vary and never better than the worst; what is worse is more (`sign` 1)
/// or less (-1).
fn bad(figures: Vec<f64>, sign: f64, spread: f64) -> f64 {
    let count = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / count;
    let square = figures.iter().map(|f| (f - mean) * (f - mean)).sum::<f64>() / (count - 1.0).max(1.0);
    let worst = figures.iter().copied().fold(mean, if sign > 0.0 { f64::max } else { f64::min });
    let spread = if square > 0.0 { spread * square.sqrt() + BESIDE * mean } else { 0.0 };
    let far = mean + sign * spread;
    if sign > 0.0 { far.max(worst) } else { far.min(worst).max(0.0) }
}

/// What of several runs can be promised.
fn careful(runs: &[Got], spread: f64) -> Got {
    let bad = |figures, sign| bad(figures, sign, spread);
    let rate = |of: fn(&Got) -> f64| bad(runs.iter().map(of).collect(), -1.0);
    let time = |of: fn(&Latency) -> u64| {
        bad(runs.iter().filter_map(|run| run.latency.as_ref()).map(|l| of(l) as f64).collect(), 1.0) as u64
    };
    let latency = runs.iter().all(|run| run.latency.is_some()).then(|| Latency {
        mean: bad(runs.iter().filter_map(|run| run.latency).map(|l| l.mean).collect(), 1.0),
        p50: time(|l| l.p50),
        p99: time(|l| l.p99),
        p999: time(|l| l.p999),
        max: time(|l| l.max),
    });
    Got {
        iops: rate(|got| got.iops),
        bandwidth: rate(|got| got.bandwidth),
        latency,
        sated: runs.iter().all(|run| run.sated),
        margin: Margin::default(),
    }
}

/// The least ramp, and the time of a simulation with it: a flash drive's buffer takes the first writes at once, until it is full.
fn settled(device: &DeviceConfig, members: &[PlannedTenant], whole: Nanos) -> (Nanos, Nanos) {
    let is_written = members.iter().any(|m| m.demand.pattern.read_percent < 100);
    match is_written && device.flash.is_some() {
        true => (measure::RAMP, whole.max(measure::RAMP.saturating_add(measure::TIME))),
        false => (Nanos(0), whole),
    }
}

/// How long a simulation lasts so that every bound of every tenant is seen often enough, the ramp included.
fn long_enough(drive: &DriveModel, members: &[PlannedTenant], most: f64) -> Nanos {
    let count = members.len().max(1) as f64;
    let seconds = members.iter().map(|PlannedTenant { demand, sla, .. }| {
        let needs = match (sla.p999, sla.p99.or(sla.p50)) {
            (Some(_), _) => FOR_P999,
            (None, Some(_)) => FOR_P99,
            (None, None) => FOR_RATE,
        };
        // Whoever shares gets a small part of the drive at the least, or what it asks for.
        let fair = drive.capacity(demand) / (4.0 * count);
        needs / demand.offered().min(fair).max(1e-3)
    });
    let longest = seconds.fold(0.01, f64::max);
    let busiest = members
        .iter()
        .map(|m| &m.demand)
        .map(|demand| drive.capacity(demand).min(demand.offered()))
        .fold(1.0, f64::max);
    Nanos((longest.min(most / busiest) / (1.0 - RAMP) * 1e9) as u64)
}
