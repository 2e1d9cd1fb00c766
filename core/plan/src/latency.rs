//! How long commands take, by tenant.

use crate::drive::{DriveModel, reads};
use crate::fluid::{Flow, Fluid, shares};
use crate::margin::Margin;
use crate::mixture::mixture;
use crate::tenant::{PlanTenant, Setting};
use crate::wait::Wait;
use alloc::vec::Vec;
use weir_units::Class;
use weir_workload::math::sqrt;
use weir_workload::{Histogram, Latency};

/// What one tenant is to expect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Commands a second.
    pub iops: f64,
    /// Bytes a second.
    pub bandwidth: f64,
    /// Latencies in nanoseconds, from when a command was due to its completion; `None`: an open loop above its share, whose
    /// backlog grows without bound.
    pub latency: Option<Latency>,
    /// Its share is what limits it, not what it asks for.
    pub limited: bool,
    /// What these may be off by.
    pub margin: Margin,
    /// Commands a second that it can have however much the others ask for.
    pub guaranteed: f64,
}

/// What everybody is to expect.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// In the order of the tenants.
    pub tenants: Vec<Expected>,
    /// What they hold of the drive, 0 to 1.
    pub load: f64,
    /// Where it comes from.
    pub flow: Flow,
}

/// What everybody gets, and how long it takes.
pub fn forecast(drive: &DriveModel, setting: &Setting, tenants: &[PlanTenant]) -> Forecast {
    let mut model = Fluid::new(drive, setting, tenants);
    let flow = model.shares();
    let tenants = expected(&model, &flow, (drive, tenants), |i| guaranteed(drive, setting, tenants, i));
    Forecast { tenants, load: flow.load, flow }
}

/// The same in microseconds rather than milliseconds: no windows are handed out, so that loops which keep in step are taken for
/// such that do not. `guaranteed` is left out.
pub(crate) fn sketch(drive: &DriveModel, setting: &Setting, tenants: &[PlanTenant]) -> Vec<Expected> {
    let mut model = Fluid::new(drive, setting, tenants);
    let flow = Flow { in_step: false, ..model.solve() };
    expected(&model, &flow, (drive, tenants), |_| 0.0)
}

fn expected(
    model: &Fluid<'_>,
    flow: &Flow,
    (drive, tenants): (&DriveModel, &[PlanTenant]),
    guaranteed: impl Fn(usize) -> f64,
) -> Vec<Expected> {
    let limited = limited(model, flow);
    let latency = latencies(model, drive, flow, tenants, &limited);
    let mix = model.mix(&flow.rates);
    let margin = |i: usize| {
        let inside = inside(drive, &tenants[i], (flow, mix), flow.service[i] * 1e9);
        Margin::of(drive, tenants, &tenants[i], (flow, mix), &inside)
    };
    let each = |i: usize| Expected {
        iops: flow.rates[i],
        bandwidth: flow.rates[i] * tenants[i].demand.size(),
        latency: latency[i],
        limited: limited[i],
        margin: margin(i),
        guaranteed: guaranteed(i),
    };
    (0..tenants.len()).map(each).collect()
}

/// Who gets less than he asks for.
fn limited(model: &Fluid<'_>, flow: &Flow) -> Vec<bool> {
    let less = |(i, rate): (usize, &f64)| flow.is_full() && *rate < model.offered(i) * (1.0 - 1e-9);
    flow.rates.iter().enumerate().map(less).collect()
}

fn latencies(
    model: &Fluid<'_>,
    drive: &DriveModel,
    flow: &Flow,
    tenants: &[PlanTenant],
    limited: &[bool],
) -> Vec<Option<Latency>> {
    // An open loop that offers more than its ceiling or its share lets through waits ever longer.
    let bounded =
        |i: usize| tenants[i].demand.rate.is_none() || tenants[i].demand.offered() <= flow.rates[i] * (1.0 + 1e-9);
    // A closed loop at its ceiling waits for that.
    let held =
        |i: usize| tenants[i].demand.rate.is_none() && !limited[i] && model.offered(i) <= flow.rates[i] * (1.0 + 1e-9);
    let little = |i: usize| tenants[i].demand.outstanding() / flow.rates[i].max(f64::MIN_POSITIVE) * 1e9;
    if flow.handed_out || flow.in_step && flow.is_full() {
        let (_, windows) = model.hand_out(flow, model.enough(flow));
        let one = |i: usize| if held(i) { even(little(i)) } else { of(&windows.latency[i]) };
        return (0..tenants.len()).map(|i| bounded(i).then(|| one(i))).collect();
    }
    let (wait, mix) = (model.waits(flow), model.mix(&flow.rates));
    let one = |i: usize| {
        let tenant = &tenants[i];
        let closed = tenant.demand.rate.is_none();
        let inside = inside(drive, tenant, (flow, mix), flow.service[i] * 1e9);
        if held(i) {
            return even(little(i));
        }
        if flow.is_full() && closed && limited[i] {
            // Little's law; a round more or less is what it varies by.
            let mean = little(i);
            let queued = Wait { mean: (mean - inside.mean).max(0.0), turn: wait[i].turn, ..Wait::default() };
            return queued.before(&inside);
        }
        wait[i].before(&inside)
    };
    (0..tenants.len()).map(|i| bounded(i).then(|| one(i))).collect()
}

/// Latency in the drive of a tenant's commands whose mean is so many nanoseconds, where `mix` of 100 commands read.
fn inside(drive: &DriveModel, tenant: &PlanTenant, (flow, mix): (&Flow, f64), mean: f64) -> Latency {
    let reads = reads(&tenant.demand);
    let one = |(size, part)| (part, drive.latency_beside(size, (reads, mix), flow.in_flight));
    let parts: Vec<(f64, Latency)> = tenant.demand.parts().map(one).collect();
    let all = mixture(&parts);
    let longer = mean / all.mean;
    let scale = |ns: u64| (ns as f64 * longer) as u64;
    Latency { mean, p50: scale(all.p50), p99: scale(all.p99), p999: scale(all.p999), max: scale(all.max) }
}

impl Wait {
    /// And then in the drive.
    fn before(&self, inside: &Latency) -> Latency {
        let mean = self.mean + inside.mean;
        let one = |part: f64, ns: u64| {
            // Deviations of independent times add up by their squares.
            let (queued, served) = (self.percentile(part) - self.mean, ns as f64 - inside.mean);
            let sum = match queued > 0.0 && served > 0.0 {
                true => sqrt(queued * queued + served * served),
                false => queued + served,
            };
            (mean + sum).max(0.0) as u64
        };
        Latency {
            mean,
            p50: one(0.5, inside.p50),
            p99: one(0.99, inside.p99),
            p999: one(0.999, inside.p999),
            max: one(0.99999, inside.max),
        }
    }
}

/// All the same, in nanoseconds.
fn even(mean: f64) -> Latency {
    let ns = mean as u64;
    Latency { mean, p50: ns, p99: ns, p999: ns, max: ns }
}

fn of(h: &Histogram) -> Latency {
    Latency { mean: h.mean(), p50: h.percentile(50.0), p99: h.percentile(99.0), p999: h.percentile(99.9), max: h.max() }
}

/// What a tenant gets when everybody asks for as much as he can; urgent ones, who are the operator's own, for what they say.
fn guaranteed(drive: &DriveModel, setting: &Setting, tenants: &[PlanTenant], own: usize) -> f64 {
    let greedy = |tenant: &PlanTenant| {
        let mut tenant = tenant.clone();
        if tenant.class == Class::Urgent && tenant.demand.rate.is_some() {
            return tenant;
        }
        tenant.demand.rate = None;
        tenant.demand.depth = tenant.demand.depth.max(GREEDY);
        tenant
    };
    let tenants: Vec<PlanTenant> = tenants.iter().map(greedy).collect();
    shares(drive, setting, &tenants).rates[own]
}

/// A depth at which nobody runs out of commands.
const GREEDY: u32 = 4096;
