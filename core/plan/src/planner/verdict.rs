//! The model's verdict: one function, which `weir plan` asks of a calibrated drive and a node asks before it admits somebody. The same
//! drive, setting and tenants give the same answer to both.

use super::bound::{Bound, Got, Unmet, unmet};
use super::{Model, Shares, TenantPlan};
use crate::{Drive, Setting};
use alloc::vec::Vec;

/// Floors may hold this part of the drive: what is left is for rounds and for whoever has none.
pub const FLOORS: f64 = 0.9;

/// By how much more than a promise a prediction has to be, since it may be off, as parts: 0.03 is 3 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin {
    /// Of rates.
    pub rate: f64,
    /// Of latencies.
    pub latency: f64,
}

/// Where every tenant asks for one size and mix, and load tests of just that are among the drive's points.
const ALIKE: Margin = Margin { rate: 0.03, latency: 0.15 };
/// Where sizes or mixes meet, or lie between those that were measured.
const BETWEEN: Margin = Margin { rate: 0.15, latency: 0.15 };

impl Margin {
    /// Of what the model says of these tenants on this drive. `docs/plan-model.md` has what was measured, and where it is more.
    pub fn of(drive: &Drive, plans: &[TenantPlan]) -> Margin {
        let kinds = || {
            plans.iter().flat_map(|p| {
                let demand = &p.tenant.demand;
                demand.sizes.parts().iter().map(|(size, _)| (*size, demand.pattern.read_percent))
            })
        };
        let alike = kinds().min() == kinds().max();
        let known = kinds().all(|(size, reads)| drive.has_measured(size, reads));
        if drive.is_fixed() || (alike && known) { ALIKE } else { BETWEEN }
    }

    /// Of a bound's kind.
    pub fn of_bound(&self, bound: &Bound) -> f64 {
        if bound.is_time() { self.latency } else { self.rate }
    }
}

/// What a figure with an error says of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
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
    /// What it allows for its own error.
    pub margin: Margin,
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
        let missed = |u: &Unmet| self.standing(u.tenant, &u.bound) == Standing::Missed;
        !self.floors.is_empty() || self.unmet.iter().any(missed)
    }

    /// How a tenant's bound stands.
    pub fn standing(&self, tenant: usize, bound: &Bound) -> Standing {
        let (room, margin) = (bound.room(&self.got[tenant]), 1.0 + self.margin.of_bound(bound));
        match room {
            room if room >= margin => Standing::Kept,
            room if room * margin < 1.0 => Standing::Missed,
            _ => Standing::Close,
        }
    }
}

/// What the model says under the setting's own shares and the tenants' own weights. Takes a few milliseconds.
pub fn verdict(drive: &Drive, setting: &Setting, plans: &[TenantPlan]) -> Verdict {
    let shares = Shares::of(&setting.arbiter, plans.iter().map(|p| p.tenant.weight).collect());
    let got = Model::new(drive, setting, plans).expect(&shares);
    of_figures(drive, plans, got)
}

/// The same of figures that the model gave before.
pub(super) fn of_figures(drive: &Drive, plans: &[TenantPlan], got: Vec<Got>) -> Verdict {
    let unmet = unmet(plans.iter().map(|p| &p.sla), &got, f64::INFINITY);
    let mut verdict = Verdict { got, margin: Margin::of(drive, plans), unmet, floors: floors(drive, plans) };
    let kept = |u: &Unmet| verdict.standing(u.tenant, &u.bound) == Standing::Kept;
    let unmet = verdict.unmet.iter().filter(|u| !kept(u)).copied().collect();
    verdict.unmet = unmet;
    verdict
}

/// The floors that do not fit beside those before them, whatever the shares.
pub fn floors(drive: &Drive, plans: &[TenantPlan]) -> Vec<Overfull> {
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
