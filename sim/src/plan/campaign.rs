//! Random plans against the planner: none that it calls feasible may miss in simulation, and what a search over weights in
//! simulation shows feasible with room to spare it is to find as well.
//!
//! The oracle climbs from where the plan was drawn and from even shares, in simulation alone: it knows nothing of the model. A
//! plan is its number: drive, tenants and promises are drawn from it, the promises near what some shares give.

use super::rig::Rig;
use super::timing_models::Insides;
use super::{Effort, PlanFile, PlanProgress, PlannedTenant, setting};
use crate::run::RunError;
use weir_config::{DeviceConfig, Mechanism};
use weir_controller::TenantConfig;
use weir_plan::planner::{self, Got, QUANTUM, Shares, TenantPlan};
use weir_plan::{Demand, DriveModel};
use weir_units::{Bytes, Class, Nanos, Sla};
use weir_workload::{Job, Xoshiro256};

/// What came of one plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// The planner calls it feasible.
    pub feasible: bool,
    /// Fresh simulations of its shares keep every promise.
    pub kept: bool,
    /// The oracle found shares that keep every promise with [`SPARE`].
    pub spare: bool,
    /// Simulations of the planner.
    pub runs: u32,
}

/// What came of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Plans.
    pub plans: u64,
    /// Those that the planner calls feasible.
    pub feasible: u64,
    /// Those of them that a fresh simulation misses, by number.
    pub broken: Vec<u64>,
    /// Plans that the oracle keeps with room to spare.
    pub spare: u64,
    /// Those of them that the planner does not call feasible, by number.
    pub overlooked: Vec<u64>,
    /// Simulations of the planner.
    pub runs: u64,
}

impl Tally {
    /// Counts a plan.
    pub fn add(&mut self, number: u64, trial: Trial) {
        self.plans += 1;
        self.feasible += u64::from(trial.feasible);
        self.spare += u64::from(trial.spare);
        self.runs += u64::from(trial.runs);
        if trial.feasible && !trial.kept {
            self.broken.push(number);
        }
        if trial.spare && !trial.feasible {
            self.overlooked.push(number);
        }
    }

    /// The part of what could be kept with room to spare that the planner found.
    pub fn found(&self) -> f64 {
        1.0 - self.overlooked.len() as f64 / self.spare.max(1) as f64
    }
}

/// What the oracle has to have to spare.
pub const SPARE: f64 = 1.05;
/// Commands of a simulation, and where somebody's 99.9th percentile is bounded.
const COMMANDS: (f64, f64) = (60e3, 240e3);
/// Simulations of the oracle from each start.
const CLIMB: u32 = 24;

/// Draws the plan of that number and lets planner, judge and oracle have it.
///
/// # Errors
/// A plan that cannot be simulated: the generator's fault.
pub fn trial(number: u64) -> Result<Trial, RunError> {
    let mut rng = Xoshiro256::new(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x706c_616e);
    let (file, drawn) = draw(&mut rng, number)?;
    let drive = DriveModel::fixed(file.device.latency, file.device.slots.into(), file.device.slot_bytes.get());
    let plans: Vec<TenantPlan> = file.members.iter().map(PlannedTenant::plan).collect();
    let mut watch = |_: PlanProgress| {};
    let insides = Insides::of(&file.device)?;
    let mut rig = Rig::new((&file, &insides), &drive, &file.members, Effort::Full, &mut watch);
    let answer = planner::plan(&drive, &setting(&file.device), &plans, &mut rig)?;
    let (feasible, runs) = (answer.is_feasible(), rig.runs());
    let mut kept = true;
    for fresh in 1..=2 {
        kept &= !feasible || least(&file, &rig.run(&answer.shares, 1_000_003 * fresh)?) >= 1.0;
    }
    let spare = oracle(&file, &mut rig, drawn)? >= SPARE;
    Ok(Trial { feasible, kept, spare, runs })
}

fn least(file: &PlanFile, got: &[Got]) -> f64 {
    let rooms = file.members.iter().zip(got).filter_map(|(m, got)| planner::room(&m.sla, got));
    rooms.fold(f64::INFINITY, f64::min)
}

fn part(rng: &mut Xoshiro256) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn between(rng: &mut Xoshiro256, low: f64, high: f64) -> f64 {
    low + (high - low) * part(rng)
}

fn one_of<T: Copy>(rng: &mut Xoshiro256, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

/// A drive, two to five tenants, and promises near what the shares that are drawn beside them give.
fn draw(rng: &mut Xoshiro256, number: u64) -> Result<(PlanFile, Shares), RunError> {
    let mechanism = one_of(rng, &[Mechanism::Wrr, Mechanism::Drr]);
    let (latency, slots) = (20 + rng.below(80), one_of(rng, &[4u64, 8, 16, 32]));
    let query = format!("latency={latency}us&slots={slots}&slot_bytes=64MiB&arbitration={mechanism}");
    let device = DeviceConfig::from_query("null", &query).map_err(RunError::new)?;
    let capacity = slots as f64 / latency as f64 * 1e6;
    let count = 2 + rng.below(4);
    let mut members: Vec<PlannedTenant> = (0..count).map(|i| member(rng, i, capacity / count as f64)).collect();
    let [high, medium, low] = [(); 3].map(|()| 1 + rng.below(12) as u32);
    let unit = if mechanism == Mechanism::Drr { QUANTUM } else { 1 };
    let tenants = members.iter().map(|_| 1 + rng.below(4) as u16).collect();
    let drawn = Shares { classes: [high, medium, low].map(|n| n * unit), tenants };
    let time = Some(Nanos((COMMANDS.0 / capacity * 1e9) as u64));
    let file = |members| PlanFile { device: device.clone(), calibration: None, members, seed: number + 1, time };
    let unbound = file(members.clone());
    let drive = DriveModel::fixed(device.latency, device.slots.into(), device.slot_bytes.get());
    let mut watch = |_: PlanProgress| {};
    let insides = Insides::of(&unbound.device)?;
    let mut rig = Rig::new((&unbound, &insides), &drive, &members, Effort::Full, &mut watch);
    let got = rig.run(&drawn, number)?;
    let tightness = between(rng, 0.7, 1.12);
    for (member, got) in members.iter_mut().zip(&got) {
        if part(rng) < 0.8 {
            member.sla = promise(rng, tightness, &member.demand, got);
        }
    }
    let mut file = file(members);
    if file.members.iter().any(|m| m.sla.p999.is_some()) {
        file.time = Some(Nanos((COMMANDS.1 / capacity * 1e9) as u64));
    }
    Ok((file, drawn))
}

fn member(rng: &mut Xoshiro256, place: u64, fair: f64) -> PlannedTenant {
    let mut class = one_of(rng, &Class::WEIGHTED);
    let sizes = one_of(rng, &["4KiB", "4KiB", "8KiB", "16KiB", "64KiB", "4KiB:70/64KiB:30"]);
    let load = match rng.below(3) {
        0 => {
            let arrival = one_of(rng, &["fixed", "poisson"]);
            format!("rate={},arrival={arrival},qd=1024", (fair * between(rng, 0.1, 1.1)) as u64 + 1)
        }
        _ => format!("qd={}", one_of(rng, &[1, 2, 4, 8, 16, 32, 64])),
    };
    if load.starts_with("rate") && rng.below(12) == 0 {
        class = Class::Urgent;
    }
    let job = Job::parse(&format!("rw=randread,bs={sizes},{load}"), &Job::default()).expect("a job of the generator");
    let name = format!("t{place}");
    let tenant = TenantConfig { urgent: class == Class::Urgent, ..TenantConfig::new(&name, class) };
    PlannedTenant { tenant, demand: Demand::of(&job), sla: Sla::default() }
}

/// Bounds at about what it got: below `tightness` 1 they leave room.
fn promise(rng: &mut Xoshiro256, tightness: f64, demand: &Demand, got: &Got) -> Sla {
    let mut sla = Sla::default();
    let mut tight = || tightness * between(rng, 0.85, 1.1);
    let (rate, times) = (tight(), [(); 3].map(|()| tight()));
    match rng.below(10) {
        0..3 => sla.rates.iops = Some((got.iops * rate).min(demand.offered() * 0.99) as u64),
        3..6 => {
            let most = demand.offered().min(1e12) * 0.99 * demand.size();
            sla.rates.bandwidth = Some(Bytes((got.bandwidth * rate).min(most) as u64));
        }
        _ => {}
    }
    if let Some(latency) = &got.latency {
        let of = |ns: u64, tight: f64| Some(Nanos((ns as f64 / tight) as u64 + 1));
        if rng.below(5) == 0 {
            sla.p50 = of(latency.p50, times[0]);
        }
        if rng.below(2) == 0 {
            sla.p99 = of(latency.p99, times[1]);
        }
        if rng.below(12) == 0 {
            sla.p999 = of(latency.p999, times[2]);
        }
    }
    sla
}

/// The most room that a climb in simulation finds, from the shares of the draw and from even ones; it ends where there is enough.
fn oracle(file: &PlanFile, rig: &mut Rig<'_>, drawn: Shares) -> Result<f64, RunError> {
    let unit = if file.device.arbitration.mechanism == Mechanism::Drr { QUANTUM } else { 1 };
    let even = Shares { classes: [8 * unit; 3], tenants: vec![2; file.members.len()] };
    let mut most = 0.0f64;
    for start in [drawn, even] {
        most = most.max(climb(file, rig, start, unit)?);
        if most >= SPARE {
            break;
        }
    }
    Ok(most)
}

/// Coordinate by coordinate, with ever shorter steps.
fn climb(file: &PlanFile, rig: &mut Rig<'_>, start: Shares, unit: u32) -> Result<f64, RunError> {
    let seed = file.seed.wrapping_add(77_777);
    let mut here = start;
    let mut best = least(file, &rig.run(&here, seed)?);
    let mut left = CLIMB;
    let mut step = 2.0;
    while best < SPARE && left > 0 && step > 1.04 {
        let mut better = false;
        for near in neighbours(&here, step, unit, &file.members) {
            if left == 0 {
                break;
            }
            left -= 1;
            let room = least(file, &rig.run(&near, seed)?);
            if room > best {
                (here, best, better) = (near, room, true);
                break;
            }
        }
        if !better {
            step = 1.0 + (step - 1.0) / 2.0;
        }
    }
    Ok(best)
}

/// One class or one tenant with more or less, whole numbers all of them.
fn neighbours(of: &Shares, step: f64, unit: u32, members: &[PlannedTenant]) -> Vec<Shares> {
    let mut all = Vec::new();
    let classes = |i: usize| members.iter().any(|m| m.tenant.class == Class::WEIGHTED[i]);
    for (i, factor) in (0..3).filter(|i| classes(*i)).flat_map(|i| [(i, step), (i, 1.0 / step)]) {
        let mut near = of.clone();
        let number = f64::from(near.classes[i] / unit);
        let other = (number * factor).round().clamp(1.0, 128.0) as u32;
        near.classes[i] = unit * if other == near.classes[i] / unit && factor > 1.0 { other + 1 } else { other };
        all.push(near);
    }
    let several = |i: usize| members.iter().filter(|m| m.tenant.class == members[i].tenant.class).count() > 1;
    let weigh = unit > 1;
    for (i, factor) in (0..members.len()).filter(|i| weigh && several(*i)).flat_map(|i| [(i, step), (i, 1.0 / step)]) {
        let mut near = of.clone();
        let other = (f64::from(near.tenants[i]) * factor).round().clamp(1.0, 64.0) as u16;
        near.tenants[i] = if other == near.tenants[i] && factor > 1.0 { other + 1 } else { other };
        all.push(near);
    }
    all.retain(|near| near != of);
    all
}
