//! `weir plan`: a drive, tenants with demands and promises, and whether the promises can be kept.
//!
//! ```text
//!  PlanFile ─▶ drive's figures: its latency and slots, or measured here ─▶ weir_plan::planner::plan ─▶ Planned, by simulation
//!                                                                             ▲        │ shares
//!                                           Rig: the real arbiter and drive, ─┘◀───────┘
//!                                                in virtual time
//!           └▶ a calibration ─▶ weir_plan::planner::propose ─▶ verdict ─▶ Planned, by the model
//! ```
//! What is called feasible was simulated with several seeds; or, where nothing is known of a drive but its calibration, it is the
//! model's verdict, which is admission's as well. `docs/guides/plan.md` lists the keys of the file.

pub mod campaign;
mod effort;
pub(crate) mod measure;
pub(crate) mod parallel;
mod planned;
mod read;
mod rig;
mod slots;
pub(crate) mod spread;
mod stand_in;
mod tenant;
pub(crate) mod timing_models;

pub use effort::{Effort, PlanProgress};
pub use planned::{AnswerSource, Figures, Planned};
pub use read::PlanFile;
pub use slots::SlotsAdvice;
pub use tenant::PlannedTenant;

use crate::run::RunError;
use planner::Judge;
use rig::Rig;
use timing_models::Insides;
use weir_config::{self as config, DeviceConfig};
use weir_controller::Cost;
use weir_plan::planner::{self, Got, PlannedShares, Shares, TenantPlan, Unmet, Verdict};
use weir_plan::{DriveModel, Setting};
use weir_units::{Bytes, Nanos};

/// A larger flash drive is simulated as one of this capacity: dies, channels, times and write amplification stay.
const SIMULATED: Bytes = Bytes(4 << 30);

impl PlanFile {
    /// Plans; `watch` sees every simulation.
    ///
    /// # Errors
    /// A drive that cannot be simulated, or a demand that it cannot serve.
    pub fn plan(&self, effort: Effort, watch: &mut dyn FnMut(PlanProgress)) -> Result<Planned, RunError> {
        let device = self.device.at_most(SIMULATED);
        let insides = Insides::of(&device)?;
        let (drive, figures) = self.drive(&insides, watch)?;
        let plans: Vec<TenantPlan> = self.members.iter().map(PlannedTenant::plan).collect();
        let asked = Asked { file: self, insides: &insides, drive: &drive, setting: setting(&device), plans: &plans };
        if self.calibration.is_some() {
            asked.by_model(figures, watch)
        } else {
            asked.by_simulation(effort, figures, watch)
        }
    }

    /// The drive's figures, and where they come from.
    fn drive(
        &self,
        insides: &Insides<'_>,
        watch: &mut dyn FnMut(PlanProgress),
    ) -> Result<(DriveModel, Figures), RunError> {
        if let Some((name, drive)) = &self.calibration {
            return Ok((drive.clone(), Figures::Calibrated(name.clone())));
        }
        let device = insides.device();
        match &device.flash {
            None => {
                let slots = device.slots.into();
                Ok((DriveModel::fixed(device.latency, slots, device.slot_bytes.get()), Figures::Fixed))
            }
            Some(flash) => Ok((measure::of_plan(self, insides, watch)?, Figures::Simulated(flash.precondition.name()))),
        }
    }
}

/// A plan, and the drive in the model's terms.
struct Asked<'a> {
    file: &'a PlanFile,
    /// What is simulated.
    insides: &'a Insides<'a>,
    drive: &'a DriveModel,
    setting: Setting,
    plans: &'a [TenantPlan],
}

impl Asked<'_> {
    /// The model's verdict, which is admission's.
    fn by_model(&self, figures: Figures, watch: &mut dyn FnMut(PlanProgress)) -> Result<Planned, RunError> {
        let (shares, verdict) = planner::propose(self.drive, &self.setting, self.plans);
        let is_kept = |plans: &[TenantPlan]| planner::propose(self.drive, &self.setting, plans).1.is_kept();
        let (mut alone, mut fitting) = (Vec::new(), None);
        if !verdict.is_kept() {
            alone = missing(&verdict.unmet).filter(|i| !is_kept(&self.plans[*i..=*i])).collect();
            fitting = (1..self.plans.len()).rev().find(|count| is_kept(&self.plans[..*count]));
        }
        let mut rig = self.rig(self.plans.len(), Effort::Brief, watch);
        let simulated = rig.run(&shares, self.file.seed)?;
        let (time, runs) = (rig.time(), rig.runs());
        let (predicted, unmet) = (verdict.got.clone(), verdict.unmet.clone());
        let answer = PlannedShares { shares, judged: predicted.clone(), predicted, unmet, tries: 0, is_spent: false };
        let planned = self.planned((answer, simulated, verdict), figures, (time, runs));
        Ok(Planned { source: AnswerSource::Model, alone, fitting, ..planned })
    }

    fn by_simulation(
        &self,
        effort: Effort,
        figures: Figures,
        watch: &mut dyn FnMut(PlanProgress),
    ) -> Result<Planned, RunError> {
        let search = if effort == Effort::Full { planner::plan_fully } else { planner::plan };
        let mut rig = self.rig(self.plans.len(), effort, watch);
        let answer = search(self.drive, &self.setting, self.plans, &mut rig)?;
        // What a few simulations show; whether a promise is kept was judged by more, and with more care.
        let simulated = rig.figures(&answer.shares)?;
        let (time, runs, spending) = (rig.time(), rig.runs(), rig.spending());
        let (mut alone, mut fitting) = (Vec::new(), None);
        if !answer.is_feasible() {
            let mut fits = |range: std::ops::Range<usize>| {
                let members = &self.file.members[range.clone()];
                let rig = Rig::new((self.file, self.insides), self.drive, members, effort, watch);
                self.is_kept(&self.plans[range], rig.after(spending))
            };
            for missed in missing(&answer.unmet) {
                if !fits(missed..missed + 1)? {
                    alone.push(missed);
                }
            }
            // Who misses something alone does so beside others as well.
            let most = alone.first().map_or(self.plans.len() - 1, |missed| *missed);
            for count in (1..=most).rev() {
                if fits(0..count)? {
                    fitting = Some(count);
                    break;
                }
            }
        }
        let verdict = self.verdict(&answer.shares);
        let planned = self.planned((answer, simulated, verdict), figures, (time, runs));
        Ok(Planned { alone, fitting, ..planned })
    }

    /// Whether some shares keep the promises of these tenants: by simulation, or by the model where the budget is spent.
    fn is_kept(&self, plans: &[TenantPlan], mut rig: Rig<'_>) -> Result<bool, RunError> {
        if rig.is_spent() {
            return Ok(!planner::propose(self.drive, &self.setting, plans).1.is_missed());
        }
        Ok(planner::plan(self.drive, &self.setting, plans, &mut rig)?.is_feasible())
    }

    fn rig<'w>(&'w self, members: usize, effort: Effort, watch: &'w mut dyn FnMut(PlanProgress)) -> Rig<'w> {
        Rig::new((self.file, self.insides), self.drive, &self.file.members[..members], effort, watch)
    }

    /// What the model says under these shares.
    fn verdict(&self, shares: &Shares) -> Verdict {
        let setting = Setting { arbiter: shares.settings(&self.setting.arbiter), ..self.setting };
        let mut plans = self.plans.to_vec();
        plans.iter_mut().zip(&shares.tenants).for_each(|(plan, weight)| plan.tenant.weight = *weight);
        planner::verdict(self.drive, &setting, &plans)
    }

    fn planned(
        &self,
        (answer, simulated, verdict): (PlannedShares, Vec<Got>, Verdict),
        figures: Figures,
        (time, runs): (Nanos, u32),
    ) -> Planned {
        Planned {
            is_cut_short: answer.is_spent,
            answer,
            source: AnswerSource::Simulation,
            verdict,
            simulated,
            mechanism: self.insides.device().arbitration.mechanism,
            members: self.file.members.clone(),
            figures,
            promised: self.plans.iter().map(|plan| promised(self.drive, plan)).sum(),
            alone: Vec::new(),
            fitting: None,
            simulated_as: self.insides.device().capacity.filter(|small| self.file.device.capacity != Some(*small)),
            time,
            runs,
        }
    }
}

/// The tenants that miss something, each once.
fn missing(unmet: &[Unmet]) -> impl Iterator<Item = usize> + '_ {
    unmet.iter().enumerate().filter(|(at, u)| *at == 0 || unmet[at - 1].tenant != u.tenant).map(|(_, u)| u.tenant)
}

/// The part of the drive that a tenant's promised rate takes.
fn promised(drive: &DriveModel, plan: &TenantPlan) -> f64 {
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
