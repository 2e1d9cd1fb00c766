//! Which weights keep every tenant's promise, and whether any do.
//!
//! ```text
//!  TenantPlan[] ─▶ balance by the model ─▶ smallest shares ─▶ simulation ─ kept, with a margin, by every seed ─▶ PlannedShares
//!                        ▲                                       │ missed
//!                        └───── what the model was off by ◀──────┘        at last: balance by simulation itself, and
//!                                                                           from the best, one number after the other
//! ```
//! The model proposes, a [`Judge`] decides: nothing is called feasible that the judge has not confirmed. Of a calibrated drive,
//! of which nothing is known but its load tests, the model decides itself: [`verdict`], with its own error as a margin. Plans
//! and admission ask that same function.
//!
//! Source: section IV.C of "Providing QoS on NVMe" ("Equations 2 and 3 can be used to calculate the weights"); the fluid
//! model takes the place of the equations.

mod bound;
mod search;
mod shares;
#[cfg(test)]
mod tests;
mod verdict;

pub use bound::{Got, SlaBound, Unmet, room, unmet};
pub use shares::{QUANTUM, Shares};
pub use verdict::{BoundStatus, FLOORS, Overfull, Verdict, floors, verdict};

use crate::latency::sketch;
use crate::{DriveModel, Expected, Margin, PlanTenant, Setting, forecast};
use alloc::vec;
use alloc::vec::Vec;
use core::convert::Infallible;
use search::{Search, Tried};
use shares::ShareFractions;
use verdict::of_figures;
use weir_units::Sla;
use weir_workload::Latency;

/// A tenant and what it was promised.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantPlan {
    /// Its class and what it asks for. The planner chooses its weight.
    pub tenant: PlanTenant,
    /// What it is to get.
    pub sla: Sla,
}

/// Says what every tenant gets under some shares: the model, or a simulation.
pub trait Judge {
    /// Why it could not say.
    type Error;

    /// What every tenant gets, in the plan's order.
    ///
    /// # Errors
    /// The judge's own.
    fn judge(&mut self, shares: &Shares) -> Result<Vec<Got>, Self::Error>;

    /// The same so carefully that a promise can rest on it: no less latency and no more of a rate than whoever looks again will
    /// see.
    ///
    /// # Errors
    /// The judge's own.
    fn confirm(&mut self, shares: &Shares) -> Result<Vec<Got>, Self::Error> {
        self.judge(shares)
    }

    /// These will probably be asked about next, in this order: a judge that can look at several at once may do it here.
    ///
    /// # Errors
    /// The judge's own.
    fn prepare(&mut self, shares: &[Shares]) -> Result<(), Self::Error> {
        let _ = shares;
        Ok(())
    }

    /// Whether it may be asked as often as anybody likes.
    fn is_cheap(&self) -> bool {
        true
    }

    /// Whether it has said as much as it may: the search ends with the best so far.
    fn is_spent(&self) -> bool {
        false
    }
}

/// The model as a judge.
#[derive(Clone, Debug)]
pub struct ModelJudge<'a> {
    drive: &'a DriveModel,
    setting: Setting,
    tenants: Vec<PlanTenant>,
}

impl<'a> ModelJudge<'a> {
    /// Of a drive and its tenants; mechanism and cost are the setting's.
    pub fn new(drive: &'a DriveModel, setting: &Setting, plans: &[TenantPlan]) -> Self {
        ModelJudge { drive, setting: *setting, tenants: plans.iter().map(|p| p.tenant.clone()).collect() }
    }

    /// What every tenant gets under these shares.
    pub fn expect(&mut self, shares: &Shares) -> Vec<Got> {
        self.ask(shares, |drive, setting, tenants| forecast(drive, setting, tenants).tenants)
    }

    /// The same roughly and at once: what a search asks a thousand times.
    fn sketch(&mut self, shares: &Shares) -> Vec<Got> {
        self.ask(shares, sketch)
    }

    fn ask(
        &mut self,
        shares: &Shares,
        of: impl FnOnce(&DriveModel, &Setting, &[PlanTenant]) -> Vec<Expected>,
    ) -> Vec<Got> {
        let setting = Setting { arbiter: shares.settings(&self.setting.arbiter), ..self.setting };
        self.tenants.iter_mut().zip(&shares.tenants).for_each(|(tenant, weight)| tenant.weight = *weight);
        let expected = of(self.drive, &setting, &self.tenants);
        expected.iter().zip(&self.tenants).map(|(e, tenant)| Got::expected(e, &tenant.demand)).collect()
    }
}

impl Judge for ModelJudge<'_> {
    type Error = Infallible;

    fn judge(&mut self, shares: &Shares) -> Result<Vec<Got>, Infallible> {
        Ok(self.expect(shares))
    }
}

/// What the planner found.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedShares {
    /// The smallest shares that were confirmed; where none were, those under which whoever misses most misses least.
    pub shares: Shares,
    /// What the model says that everybody gets.
    pub predicted: Vec<Got>,
    /// What the judge says.
    pub judged: Vec<Got>,
    /// Every bound that is missed, in the tenants' order; empty where the plan is feasible.
    pub unmet: Vec<Unmet>,
    /// How often the judge was asked.
    pub tries: u32,
    /// The judge was spent before the search had ended.
    pub is_spent: bool,
}

impl PlannedShares {
    /// Whether every promise is kept.
    pub fn is_feasible(&self) -> bool {
        self.unmet.is_empty()
    }
}

/// The room that the model is asked for before a judge is: less than its error, more than nothing.
const FIRST: f64 = 1.01;
/// Corrections of the model.
const CORRECTIONS: u32 = 7;
/// Steps of a balance by the model, and by the judge.
const STEPS: (u32, u32) = (40, 14);
/// Steps of each climb at the end, and the room from which on they are worth it: of a drive of fixed latency, on which loops in step jump
/// from one rate to another, and of one that was measured.
const CLIMB: (u32, [f64; 2]) = (28, [0.5, 0.9]);
/// Shares that a climb has looked at together.
const TOGETHER: usize = 2;
/// The room below which the corrected model is believed that no shares of a measured drive keep the promises.
const HOPELESS: f64 = 0.85;
/// How much longer the rounds are from which the second climb begins.
const LONGER: u32 = 8;
/// Room at the balance at which the search for it ends: more helps nobody.
const AMPLE: f64 = 1.5;

/// Plans: the smallest shares under which `judge` confirms every promise, or what is missed under the best there are. The
/// setting's own shares count only where its mechanism leaves nothing to choose.
///
/// # Errors
/// The judge's own.
pub fn plan<J: Judge>(
    drive: &DriveModel,
    setting: &Setting,
    plans: &[TenantPlan],
    judge: &mut J,
) -> Result<PlannedShares, J::Error> {
    search_for(drive, setting, plans, judge, false)
}

/// The same, and where that finds none, every ratio of the classes' shares up to [`search::WIDEST`], one after the other: slow.
///
/// # Errors
/// The judge's own.
pub fn plan_fully<J: Judge>(
    drive: &DriveModel,
    setting: &Setting,
    plans: &[TenantPlan],
    judge: &mut J,
) -> Result<PlannedShares, J::Error> {
    search_for(drive, setting, plans, judge, true)
}

fn search_for<J: Judge>(
    drive: &DriveModel,
    setting: &Setting,
    plans: &[TenantPlan],
    judge: &mut J,
    fully: bool,
) -> Result<PlannedShares, J::Error> {
    let search = Search::new(plans, setting.arbiter.mechanism);
    let mut model = ModelJudge::new(drive, setting, plans);
    let goes_on = drive.is_fixed() || judge.is_cheap();
    let mut run = Run { search: &search, judge, tries: 0, best: None, goes_on, gave_up: false };
    let own = Shares::of(&setting.arbiter, vec![1; plans.len()]);
    let mut confirmed = if search.has_choice() { run.look(&mut model)? } else { run.confirm(own)? };
    if fully && confirmed.is_none() && search.has_choice() {
        confirmed = run.try_all()?;
    }
    let Run { tries, best, gave_up, .. } = run;
    let is_spent = confirmed.is_none() && (gave_up || judge.is_spent());
    let (shares, judged) = match (confirmed, best) {
        (Some(found), _) => found,
        (None, best) => best.map(|(tried, got)| (tried.shares, got)).expect("the judge was asked"),
    };
    let missed = unmet(plans.iter().map(|p| &p.sla), &judged, 1.0);
    Ok(PlannedShares { predicted: model.expect(&shares), shares, judged, unmet: missed, tries, is_spent })
}

/// One search and what it has seen.
struct Run<'a, J: Judge> {
    search: &'a Search<'a>,
    judge: &'a mut J,
    tries: u32,
    /// The best that was not confirmed.
    best: Option<(Tried, Vec<Got>)>,
    /// The search goes on from far away: what somebody gets may jump where shares change a little, or the judge is cheap.
    goes_on: bool,
    /// It has not gone on.
    gave_up: bool,
}

type Found = Option<(Shares, Vec<Got>)>;

impl<J: Judge> Run<'_, J> {
    /// The judge's opinion, once; confirmed where it is good.
    fn confirm(&mut self, shares: Shares) -> Result<Found, J::Error> {
        let (tried, got) = self.opinion(shares)?;
        Ok((tried.least() >= 1.0).then_some((tried.shares, got)))
    }

    /// What the judge says; where it is spent, what was best stands for it.
    fn opinion(&mut self, shares: Shares) -> Result<(Tried, Vec<Got>), J::Error> {
        if let Some(best) = self.best.clone().filter(|_| self.judge.is_spent()) {
            return Ok(best);
        }
        self.tries += 1;
        let mut got = self.judge.judge(&shares)?;
        let mut tried = Tried { rooms: self.search.rooms(&got), shares };
        if tried.least() >= 1.0 {
            got = self.judge.confirm(&tried.shares)?;
            tried.rooms = self.search.rooms(&got);
        }
        if self.best.as_ref().is_none_or(|(best, _)| tried.least() > best.least()) {
            self.best = Some((tried.clone(), got.clone()));
        }
        Ok((tried, got))
    }

    /// The model proposes and is corrected; at last the judge itself is followed.
    fn look(&mut self, model: &mut ModelJudge<'_>) -> Result<Found, J::Error> {
        let search = self.search;
        let mut off = vec![1.0; search.even().tenants.len()];
        let mut parts = search.even();
        let mut seen: Vec<Shares> = Vec::new();
        let mut wanted = FIRST;
        for _ in 0..CORRECTIONS {
            let mut corrected = |shares: &Shares| Ok::<_, Infallible>(correct(search, model, shares, &off));
            let Ok((balance, fine)) = search.balance(parts.clone(), STEPS.0, AMPLE, &mut corrected);
            let Ok(small) = search.smallest(&balance, wanted.min(fine.least()), &mut corrected);
            parts = balance;
            let proposed = small.unwrap_or(fine).shares;
            if seen.contains(&proposed) {
                // The same again: only with more room it would be another.
                wanted *= 1.02;
                continue;
            }
            let raw = correct(search, model, &proposed, &vec![1.0; off.len()]);
            let (tried, got) = self.opinion(proposed.clone())?;
            if tried.least() >= 1.0 {
                return Ok(Some((proposed, got)));
            }
            for ((off, real), model) in off.iter_mut().zip(&tried.rooms).zip(&raw) {
                if let (Some(real), Some(model)) = (real, model) {
                    *off = (real / model).clamp(0.1, 10.0);
                }
            }
            seen.push(proposed);
        }
        self.follow(parts)
    }

    /// Balances by what the judge says.
    fn follow(&mut self, parts: ShareFractions) -> Result<Found, J::Error> {
        let search = self.search;
        if !self.goes_on && self.best.as_ref().is_some_and(|(best, _)| best.least() < HOPELESS) {
            self.gave_up = true;
            return Ok(None);
        }
        let (balance, tried) =
            search.balance(parts, STEPS.1, 1.0, |shares| Ok(self.opinion(shares.clone())?.0.rooms))?;
        if tried.least() < 1.0 {
            return self.climb();
        }
        let smaller = self.shrink(&balance)?;
        if smaller.is_some() {
            return Ok(smaller);
        }
        Ok(self.best.clone().filter(|(best, _)| best.least() >= 1.0).map(|(best, got)| (best.shares, got)))
    }

    /// From the best so far, and from the same in longer rounds, by one share after the other in ever shorter steps: where loops
    /// go round in step with the rounds, more of a share is not always more room, and the balance is not where the room is.
    fn climb(&mut self) -> Result<Found, J::Error> {
        let worth = CLIMB.1[usize::from(!self.goes_on)];
        let Some((best, _)) = self.best.clone().filter(|(best, _)| best.least() >= worth) else {
            self.gave_up = true;
            return Ok(None);
        };
        let long = self.search.lengthened(&best.shares, LONGER);
        let found = self.climb_from(best)?;
        if found.is_some() {
            return Ok(found);
        }
        let (tried, got) = self.opinion(long)?;
        if tried.least() >= 1.0 { Ok(Some((tried.shares, got))) } else { self.climb_from(tried) }
    }

    fn climb_from(&mut self, mut here: Tried) -> Result<Found, J::Error> {
        let (mut left, mut step) = (CLIMB.0, 2.0);
        while left > 0 && step > 1.04 {
            let mut better = false;
            let beside = self.search.beside(&here.shares, step);
            for (at, near) in beside.iter().enumerate() {
                if left == 0 {
                    break;
                }
                if at % TOGETHER == 0 && !self.judge.is_spent() {
                    self.judge.prepare(&beside[at..beside.len().min(at + TOGETHER.min(left as usize))])?;
                }
                left -= 1;
                let (tried, got) = self.opinion(near.clone())?;
                if tried.least() >= 1.0 {
                    return Ok(Some((tried.shares, got)));
                }
                if tried.least() > here.least() {
                    (here, better) = (tried, true);
                    break;
                }
            }
            if !better {
                step = 1.0 + (step - 1.0) / 2.0;
            }
        }
        Ok(None)
    }

    /// Every ratio of the classes' shares, with the tenants' weights of the best so far.
    fn try_all(&mut self) -> Result<Found, J::Error> {
        let Some((best, _)) = self.best.clone() else { return Ok(None) };
        for together in self.search.all(&best.shares).chunks(TOGETHER) {
            self.judge.prepare(together)?;
            for shares in together {
                let (tried, got) = self.opinion(shares.clone())?;
                if tried.least() >= 1.0 {
                    return Ok(Some((tried.shares, got)));
                }
            }
        }
        Ok(None)
    }

    /// Tries the smallest roundings of a balance that the judge has confirmed, a few of them.
    fn shrink(&mut self, balance: &ShareFractions) -> Result<Found, J::Error> {
        for sum in [6, 12, 24] {
            let shares = self.search.rounded(balance, sum);
            let (tried, got) = self.opinion(shares)?;
            if tried.least() >= 1.0 {
                return Ok(Some((tried.shares, got)));
            }
        }
        Ok(None)
    }
}

/// What the model says, times what it was off by when a judge said it too.
fn correct(search: &Search<'_>, model: &mut ModelJudge<'_>, shares: &Shares, off: &[f64]) -> Vec<Option<f64>> {
    let rooms = search.rooms(&model.sketch(shares));
    rooms.into_iter().zip(off).map(|(room, off)| room.map(|room| room * off)).collect()
}

/// The smallest shares under which the model alone is certain of every promise, and its verdict then; or its verdict under the
/// best there are. Takes tens of milliseconds.
pub fn propose(drive: &DriveModel, setting: &Setting, plans: &[TenantPlan]) -> (Shares, Verdict) {
    let mut judge = Careful(ModelJudge::new(drive, setting, plans));
    let Ok(PlannedShares { shares, predicted, .. }) = plan(drive, setting, plans, &mut judge);
    let verdict = of_figures(drive, plans, predicted);
    (shares, verdict)
}

/// The model as a judge that counts on its own errors.
struct Careful<'a>(ModelJudge<'a>);

impl Judge for Careful<'_> {
    type Error = Infallible;

    fn judge(&mut self, shares: &Shares) -> Result<Vec<Got>, Infallible> {
        Ok(self.0.expect(shares).into_iter().map(at_worst).collect())
    }
}

/// As bad as its margins let it be.
fn at_worst(got: Got) -> Got {
    let Margin { rate, p50, p99, p999 } = got.margin;
    let time = |ns: u64, margin: f64| (ns as f64 * (1.0 + margin)) as u64;
    let latency = |l: Latency| Latency { p50: time(l.p50, p50), p99: time(l.p99, p99), p999: time(l.p999, p999), ..l };
    Got {
        iops: got.iops / (1.0 + rate),
        bandwidth: got.bandwidth / (1.0 + rate),
        latency: got.latency.map(latency),
        ..got
    }
}
