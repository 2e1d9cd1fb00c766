//! The judge: the real arbiter and drive in virtual time.

use super::stand_in::StandIn;
use super::{Member, PlanFile};
use crate::client::Client;
use crate::run::RunError;
use crate::scenario::Scenario;
use weir_controller::Service;
use weir_plan::Drive;
use weir_plan::planner::{Got, Judge, Shares, room};
use weir_units::{Nanos, Sla};
use weir_workload::{JobResult, Latency};

/// How far a plan has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// The drive is measured before anything is planned with it.
    Measuring {
        /// Load tests that are done.
        done: usize,
        /// Of so many.
        of: usize,
    },
    /// Shares are simulated.
    Simulating {
        /// Simulations that are done.
        runs: u32,
        /// Of this one, from 0 to 1.
        part: f64,
    },
}

/// Moments between two reports of progress.
const MOMENTS: u64 = 1 << 15;
/// Commands of a tenant that a percentile needs, so that it does not hang on a few of them.
const FOR_P999: f64 = 20_000.0;
const FOR_P99: f64 = 5_000.0;
const FOR_RATE: f64 = 2_000.0;
/// Commands of one simulation, over all tenants.
const MOST: f64 = 2e6;
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
    scenario: Scenario,
    stand_in: Option<Drive>,
    watch: &'a mut dyn FnMut(Step),
    runs: u32,
    first: u64,
    slas: Vec<Sla>,
    /// What the first seed gave for the shares that were judged last.
    last: Option<(Shares, Run)>,
}

/// What one simulation gave.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    got: Vec<Got>,
    /// The part of each tenant's commands that took longer than its promised p50, p99 and p999; 0 without promise.
    above: Vec<[f64; 3]>,
}

/// Each tenant's promised p50, p99 and p999, and the part of its commands that may take longer.
fn times(sla: &Sla) -> [(Option<Nanos>, f64); 3] {
    [(sla.p50, 0.5), (sla.p99, 0.01), (sla.p999, 0.001)]
}

impl<'a> Rig<'a> {
    /// Of some of a file's tenants.
    pub fn new(file: &PlanFile, drive: &Drive, members: &[Member], watch: &'a mut dyn FnMut(Step)) -> Self {
        let client = |(at, member): (usize, &Member)| Client::new(&member.job(), at as u16);
        let whole = file.time.unwrap_or_else(|| long_enough(drive, members));
        let ramp = Nanos((whole.0 as f64 * RAMP) as u64);
        let scenario = Scenario {
            device: file.device.clone(),
            tenants: members.iter().map(|m| m.tenant.clone()).collect(),
            clients: members.iter().enumerate().map(client).collect(),
            seed: file.seed,
            time: Some(whole.saturating_sub(ramp)),
            requests: None,
            ramp,
            series: None,
            power_cuts: Vec::new(),
        };
        Rig {
            scenario,
            stand_in: file.calibration.as_ref().map(|(_, drive)| drive.clone()),
            watch,
            runs: 0,
            first: file.seed,
            slas: members.iter().map(|m| m.sla).collect(),
            last: None,
        }
    }

    /// Virtual time of a simulation.
    pub fn time(&self) -> Nanos {
        self.scenario.ramp.saturating_add(self.scenario.time.unwrap_or_default())
    }

    /// Simulations so far.
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// One simulation from a seed of its own.
    pub fn run(&mut self, shares: &Shares, seed: u64) -> Result<Vec<Got>, RunError> {
        self.simulate(shares, seed).map(|run| run.got)
    }

    fn simulate(&mut self, shares: &Shares, seed: u64) -> Result<Run, RunError> {
        let scenario = &mut self.scenario;
        let arbitration = &mut scenario.device.arbitration;
        arbitration.take_shares(&shares.settings(&(*arbitration).into()));
        scenario.tenants.iter_mut().zip(&shares.tenants).for_each(|(tenant, weight)| tenant.weight = *weight);
        scenario.seed = seed;
        let mut world = match &self.stand_in {
            Some(drive) => {
                scenario.world_with(Some(Box::new(StandIn::new(drive.clone(), seed)) as Box<dyn Service>))?
            }
            None => scenario.world()?,
        };
        let end = scenario.ramp.saturating_add(scenario.time.unwrap_or_default());
        while world.advance(end, MOMENTS) {
            (self.watch)(Step::Simulating { runs: self.runs, part: world.now().0 as f64 / end.0.max(1) as f64 });
        }
        world.run_until(end);
        self.runs += 1;
        let results = world.results();
        let above = |(job, sla)| times(sla).map(|(time, _)| time.map_or(0.0, |time| world.above(job, time)));
        Ok(Run {
            got: results.iter().enumerate().map(|(job, result)| got(result, world.keeps_up(job))).collect(),
            above: self.slas.iter().enumerate().map(above).collect(),
        })
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
}

fn got(result: &JobResult, keeps_up: Option<bool>) -> Got {
    let summary = &result.summary;
    Got {
        iops: summary.iops,
        bandwidth: summary.bandwidth_bytes_per_s,
        latency: Some(summary.latency).filter(|_| summary.iops > 0.0),
        sated: keeps_up == Some(true),
    }
}

impl Judge for Rig<'_> {
    type Error = RunError;

    fn judge(&mut self, shares: &Shares) -> Result<Vec<Got>, RunError> {
        let run = self.simulate(shares, self.first)?;
        self.last = Some((shares.clone(), run.clone()));
        Ok(run.got)
    }

    /// Several seeds: each figure's mean, worse by what it varied from seed to seed and a little more.
    fn confirm(&mut self, shares: &Shares) -> Result<Vec<Got>, RunError> {
        let first = match self.last.take() {
            Some((of, run)) if of == *shares => run,
            _ => self.simulate(shares, self.first)?,
        };
        let mut all = vec![first];
        while all.len() < SEEDS {
            let seed = self.first.wrapping_add((all.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let run = self.simulate(shares, seed)?;
            // Where nothing hangs on chance there is nothing more to see.
            let same = run == all[0];
            all.push(run);
            if same {
                break;
            }
            if all.len() == LOOK {
                let look = self.careful(&all, SPREAD.0);
                if self.slas.iter().zip(&look).filter_map(|(sla, got)| room(sla, got)).any(|room| room < 1.0) {
                    return Ok(look);
                }
            }
        }
        Ok(self.careful(&all, SPREAD.1))
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
    }
}

/// How long a simulation lasts so that every bound of every tenant is seen often enough, the ramp included.
fn long_enough(drive: &Drive, members: &[Member]) -> Nanos {
    let count = members.len().max(1) as f64;
    let seconds = members.iter().map(|Member { demand, sla, .. }| {
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
    Nanos((longest.min(MOST / busiest) / (1.0 - RAMP) * 1e9) as u64)
}
