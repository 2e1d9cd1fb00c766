//! How long commands take, by tenant.

use crate::drive::Drive;
use crate::fluid::{Flow, shares};
use crate::tenant::{Setting, Tenant};
use alloc::vec::Vec;
use weir_workload::Latency;

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
pub fn forecast(drive: &Drive, setting: &Setting, tenants: &[Tenant]) -> Forecast {
    let flow = shares(drive, setting, tenants);
    let expected = |i: usize| {
        let tenant = &tenants[i];
        let iops = flow.rates[i];
        let limited = flow.is_full()
            && iops < tenant.demand.offered().min(tenant.ceiling.ceiling(tenant.demand.size())) * (1.0 - 1e-9);
        Expected {
            iops,
            bandwidth: iops * tenant.demand.size(),
            latency: None,
            limited,
            guaranteed: guaranteed(drive, setting, tenants, i),
        }
    };
    Forecast { tenants: (0..tenants.len()).map(expected).collect(), load: flow.load, flow }
}

/// What a tenant gets when everybody asks for as much as he can.
fn guaranteed(drive: &Drive, setting: &Setting, tenants: &[Tenant], own: usize) -> f64 {
    let greedy = |tenant: &Tenant| {
        let mut tenant = tenant.clone();
        tenant.demand.rate = None;
        tenant.demand.depth = tenant.demand.depth.max(GREEDY);
        tenant
    };
    let tenants: Vec<Tenant> = tenants.iter().map(greedy).collect();
    shares(drive, setting, &tenants).rates[own]
}

/// A depth at which nobody runs out of commands.
const GREEDY: u32 = 4096;
