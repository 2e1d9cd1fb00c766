//! The model's verdict: one function, which `weir plan` asks of a calibrated drive and a node asks before it admits somebody. The same
//! drive, setting and tenants give the same answer to both.

use super::bound::{Got, SlaBound, Unmet, unmet};
use super::{ModelJudge, Shares, TenantPlan};
use crate::{DriveModel, Margin, Setting};
use alloc::vec::Vec;

/// Floors may hold this part of the drive: what is left is for rounds and for whoever has none.
pub const FLOORS: f64 = 0.9;

impl Margin {
    /// Of a bound's kind.
    pub fn of_bound(&self, bound: &SlaBound) -> f64 {
        match bound {
            SlaBound::Iops(_) | SlaBound::Bandwidth(_) => self.rate,
            SlaBound::P50(_) => self.p50,
            SlaBound::P99(_) => self.p99,
            SlaBound::P999(_) => self.p999,
        }
    }
}

/// What a figure with an error says of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundStatus {
    /// Kept, by more than the error.
    Kept,
    /// Nearer than the error: it cannot be promised, and need not be missed.
    Close,
    /// Missed, by more than the error.
    Missed,
}

/// A floor that does not fit beside those before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overfull {
    /// The tenant's place.
    pub tenant: usize,
    /// The part of the drive that its floor holds.
    pub held: f64,
    /// With those before it.
    pub sum: f64,
}

/// What the model says of a drive and its tenants.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What every tenant gets.
    pub got: Vec<Got>,
    /// Every bound that is not certainly kept, in the tenants' order.
    pub unmet: Vec<Unmet>,
    /// Every floor that does not fit.
    pub floors: Vec<Overfull>,
}

impl Verdict {
    /// Whether every promise is certainly kept.
    pub fn is_kept(&self) -> bool {
        self.unmet.is_empty() && self.floors.is_empty()
    }

    /// Whether some promise is certainly missed.
    pub fn is_missed(&self) -> bool {
        let missed = |u: &Unmet| self.standing(u.tenant, &u.bound) == BoundStatus::Missed;
        !self.floors.is_empty() || self.unmet.iter().any(missed)
    }

    /// The largest margins of all tenants' figures.
    pub fn margin(&self) -> Margin {
        self.got.iter().fold(Margin::default(), |most, got| most.most(&got.margin))
    }

    /// How a tenant's bound stands.
    pub fn standing(&self, tenant: usize, bound: &SlaBound) -> BoundStatus {
        let (room, margin) = (bound.room(&self.got[tenant]), 1.0 + self.got[tenant].margin.of_bound(bound));
        match room {
            room if room >= margin => BoundStatus::Kept,
            room if room * margin < 1.0 => BoundStatus::Missed,
            _ => BoundStatus::Close,
        }
    }
}

/// What the model says under the setting's own shares and the tenants' own weights. Takes a few milliseconds.
pub fn verdict(drive: &DriveModel, setting: &Setting, plans: &[TenantPlan]) -> Verdict {
    let shares = Shares::of(&setting.arbiter, plans.iter().map(|p| p.tenant.weight).collect());
    let got = ModelJudge::new(drive, setting, plans).expect(&shares);
    of_figures(drive, plans, got)
}

/// The same of figures that the model gave before.
pub(super) fn of_figures(drive: &DriveModel, plans: &[TenantPlan], got: Vec<Got>) -> Verdict {
    let unmet = unmet(plans.iter().map(|p| &p.sla), &got, f64::INFINITY);
    let mut verdict = Verdict { got, unmet, floors: floors(drive, plans) };
    let kept = |u: &Unmet| verdict.standing(u.tenant, &u.bound) == BoundStatus::Kept;
    let unmet = verdict.unmet.iter().filter(|u| !kept(u)).copied().collect();
    verdict.unmet = unmet;
    verdict
}

/// The floors that do not fit beside those before them, whatever the shares.
pub fn floors(drive: &DriveModel, plans: &[TenantPlan]) -> Vec<Overfull> {
    let mut sum = 0.0;
    let held = |plan: &TenantPlan| {
        let (floor, demand) = (&plan.tenant.floor, &plan.tenant.demand);
        crate::tenant::floor(floor, demand.size()) * drive.cost(demand)
    };
    let one = |(tenant, plan): (usize, &TenantPlan)| {
        let held = held(plan);
        sum += held;
        (held > 0.0 && sum > FLOORS).then_some(Overfull { tenant, held, sum })
    };
    plans.iter().enumerate().filter_map(one).collect()
}
