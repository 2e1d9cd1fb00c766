//! `weir plan`: a drive, tenants with demands and promises, and whether the promises can be kept.
//!
//! ```text
//!  PlanFile ─▶ drive's figures: its latency and slots, a calibration, or measured here ─▶ weir_plan::planner::plan ─▶ Planned
//!                                                                                            ▲        │ shares
//!                                                          Rig: the real arbiter and drive, ─┘◀───────┘
//!                                                               in virtual time
//! ```
//! What is called feasible was simulated with several seeds. `docs/plan.md` lists the keys of the file.

pub mod campaign;
pub(crate) mod measure;
mod read;
mod rig;
mod stand_in;

pub use read::PlanFile;
pub use rig::Step;

use crate::run::RunError;
use rig::Rig;
use weir_controller::{Cost, TenantConfig};
use weir_node::config::{self, DeviceConfig, Mechanism};
use weir_plan::planner::{self, Answer, Bound, Got, Shares, TenantPlan, Unmet};
use weir_plan::{Demand, Drive, Setting, Tenant};
use weir_units::{Bytes, Nanos, Sla};
use weir_workload::Job;

/// A tenant of a plan.
#[derive(Clone, Debug)]
pub struct Member {
    /// As the drive has it; the planner chooses its weight.
    pub tenant: TenantConfig,
    /// What it asks for.
    pub demand: Demand,
    /// What it is promised.
    pub sla: Sla,
}

impl Member {
    /// As the planner has it.
    fn plan(&self) -> TenantPlan {
        let tenant = Tenant {
            floor: self.tenant.floor.rates,
            ceiling: self.tenant.ceiling.rates,
            ..Tenant::new(&self.tenant.name, self.tenant.class, self.demand.clone())
        };
        TenantPlan { tenant, sla: self.sla }
    }

    /// What it does, as the simulator has it.
    fn job(&self) -> Job {
        let Demand { pattern, sizes, queues, depth, rate, arrival } = self.demand.clone();
        let name = self.tenant.name.clone();
        Job { name, pattern, sizes, depth, rate, arrival, copies: queues, ..Job::default() }
    }
}

/// Where the drive's figures come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Figures {
    /// Its latency and slots say it all.
    Fixed,
    /// The simulator measured it, in this state.
    Simulated(&'static str),
    /// A calibration file.
    Calibrated(String),
}

/// What came of a plan.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Shares, predictions, simulation, and what is missed.
    pub answer: Answer,
    /// What everybody gets in the simulation of the file's seed.
    pub simulated: Vec<Got>,
    /// By which rule the drive arbitrates.
    pub mechanism: Mechanism,
    /// The tenants, in the answer's order.
    pub members: Vec<Member>,
    /// Where the drive's figures come from.
    pub figures: Figures,
    /// What the promised rates take of the drive: above 1 no shares can keep them.
    pub promised: f64,
    /// Who misses a bound even alone on the drive, by place.
    pub alone: Vec<usize>,
    /// Where not all fit: how many do, counted from the first; the others are too many.
    pub fitting: Option<usize>,
    /// Virtual time of a simulation, the ramp included.
    pub time: Nanos,
    /// Simulations.
    pub runs: u32,
}

impl Planned {
    /// Whether every promise is kept.
    pub fn is_feasible(&self) -> bool {
        self.answer.is_feasible()
    }

    /// Why it is not feasible, in one sentence.
    pub fn reason(&self) -> Option<String> {
        let first = self.answer.unmet.first()?;
        let name = &self.members[first.tenant].tenant.name;
        let alone = self.alone.contains(&first.tenant);
        let mut text = format!("{name} misses its {}: {}", first.bound, shown(first));
        if alone {
            text += "; it does so even alone on the drive";
        } else if self.promised > 1.0 {
            text += &format!("; the rates promised take {:.0} % of the drive", self.promised * 100.0);
        }
        Some(text)
    }

    /// Weights of the classes, where the mechanism has some.
    pub fn shares(&self) -> &Shares {
        &self.answer.shares
    }
}

/// `3.1 ms, 24 % over`.
fn shown(unmet: &Unmet) -> String {
    let by = unmet.by() * 100.0;
    match (unmet.bound, unmet.got) {
        (_, None) => "its queue grows without bound".to_string(),
        (Bound::Iops(_), Some(got)) => format!("it gets {got:.0}, {by:.1} % too few"),
        (Bound::Bandwidth(_), Some(got)) => format!("it gets {}/s, {by:.1} % too little", Bytes(got as u64)),
        (_, Some(got)) => format!("it is {}, {by:.1} % over", Nanos(got as u64)),
    }
}

impl PlanFile {
    /// Plans; `watch` sees every simulation's progress.
    ///
    /// # Errors
    /// A drive that cannot be simulated, or a demand that it cannot serve.
    pub fn plan(&self, watch: &mut dyn FnMut(Step)) -> Result<Planned, RunError> {
        let (drive, figures) = self.drive(watch)?;
        let setting = setting(&self.device);
        let plans: Vec<TenantPlan> = self.members.iter().map(Member::plan).collect();
        let mut rig = Rig::new(self, &drive, &self.members, watch);
        let answer = planner::plan(&drive, &setting, &plans, &mut rig)?;
        // What one simulation shows; whether a promise is kept was judged by several, and with more care.
        let simulated = rig.run(&answer.shares, self.seed)?;
        let (time, mut runs) = (rig.time(), rig.runs());
        let (mut alone, mut fitting) = (Vec::new(), None);
        if !answer.is_feasible() {
            for missed in answer.unmet.iter().map(|u| u.tenant) {
                if alone.last() != Some(&missed) {
                    let mut rig = Rig::new(self, &drive, &self.members[missed..=missed], watch);
                    let one = planner::plan(&drive, &setting, &plans[missed..=missed], &mut rig)?;
                    runs += rig.runs();
                    if !one.is_feasible() {
                        alone.push(missed);
                    }
                }
            }
            for count in (1..plans.len()).rev() {
                let mut rig = Rig::new(self, &drive, &self.members[..count], watch);
                let fewer = planner::plan(&drive, &setting, &plans[..count], &mut rig)?;
                runs += rig.runs();
                if fewer.is_feasible() {
                    fitting = Some(count);
                    break;
                }
            }
        }
        let promised = plans.iter().map(|plan| promised(&drive, plan)).sum();
        let mechanism = self.device.arbitration.mechanism;
        Ok(Planned {
            answer,
            simulated,
            mechanism,
            members: self.members.clone(),
            figures,
            promised,
            alone,
            fitting,
            time,
            runs,
        })
    }

    /// The drive's figures, and where they come from.
    fn drive(&self, watch: &mut dyn FnMut(Step)) -> Result<(Drive, Figures), RunError> {
        if let Some((name, drive)) = &self.calibration {
            return Ok((drive.clone(), Figures::Calibrated(name.clone())));
        }
        match &self.device.flash {
            None => {
                let slots = self.device.slots.into();
                Ok((Drive::fixed(self.device.latency, slots, self.device.slot_bytes.get()), Figures::Fixed))
            }
            Some(flash) => Ok((measure::of_plan(self, watch)?, Figures::Simulated(flash.precondition.name()))),
        }
    }
}

/// The part of the drive that a tenant's promised rate takes.
fn promised(drive: &Drive, plan: &TenantPlan) -> f64 {
    let (demand, rates) = (&plan.tenant.demand, plan.sla.rates);
    let bandwidth = rates.bandwidth.map(|bytes| bytes.get() as f64 / demand.size());
    let iops = rates.iops.map(|n| n as f64).into_iter().chain(bandwidth).fold(0.0, f64::max);
    iops.min(demand.offered()) * drive.cost(demand)
}

/// Mechanism and cost of a drive, as the model has them.
fn setting(device: &DeviceConfig) -> Setting {
    let cost = match device.cost {
        config::Cost::Bytes => Cost::Bytes,
        config::Cost::Commands => Cost::Commands,
        config::Cost::DeviceTime => Cost::DeviceTime,
    };
    Setting { arbiter: device.arbitration.into(), cost }
}
