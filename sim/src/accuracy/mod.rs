//! The model of `weir-plan` held to the simulation of the real arbiter and drive, over a grid of cases drawn from a seed.

mod grid;
#[cfg(test)]
mod tests;

pub use grid::{Case, Loads, cases};

use crate::{Client, Setup, World, WorldError};
use weir_controller::{Config, TenantConfig};
use weir_plan::{Drive, Expected, Forecast, Tenant, forecast};
use weir_units::{Class, Nanos};
use weir_workload::{Job, Summary};

/// What the model said of a tenant, and what the simulation says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The model's.
    pub expected: Expected,
    /// The simulation's.
    pub simulated: Summary,
}

impl Pair {
    /// How far the model's throughput is from the simulation's, in percent of the latter.
    pub fn throughput_pct(&self) -> f64 {
        (self.expected.iops / self.simulated.iops - 1.0) * 100.0
    }

    /// The same of the latencies: mean, p50, p99, p999; `None` where the model has none.
    pub fn latency_pct(&self) -> Option<[f64; 4]> {
        let (expected, got) = (self.expected.latency?, self.simulated.latency);
        let off = |expected: f64, got: f64| (expected / got.max(1.0) - 1.0) * 100.0;
        Some([
            off(expected.mean, got.mean),
            off(expected.p50 as f64, got.p50 as f64),
            off(expected.p99 as f64, got.p99 as f64),
            off(expected.p999 as f64, got.p999 as f64),
        ])
    }
}

/// A case, what the model says of it, and what comes out.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The model's.
    pub forecast: Forecast,
    /// Of each tenant.
    pub pairs: Vec<Pair>,
}

impl Compared {
    /// The largest error in throughput of any tenant, in percent.
    pub fn worst_pct(&self) -> f64 {
        self.pairs.iter().map(|pair| pair.throughput_pct().abs()).fold(0.0, f64::max)
    }
}

/// The drive of a case as the model has it.
pub fn drive(case: &Case) -> Drive {
    Drive::fixed(case.latency, case.slots, case.slot_bytes)
}

/// Lets the model and the simulation answer. `commands` is how many the tenant with the fewest makes in the simulation, about;
/// the run is `most` commands in all at the most.
///
/// # Errors
/// A case that the simulation refuses.
pub fn compare(case: &Case, commands: f64, most: f64) -> Result<Compared, WorldError> {
    let forecast = forecast(&drive(case), &case.setting, &case.tenants);
    let rates = || forecast.tenants.iter().map(|t| t.iops);
    let (least, all) = (rates().fold(f64::INFINITY, f64::min), rates().sum::<f64>());
    let seconds = (commands / least).min(most / all);
    let mut world = world(case)?;
    // Long enough for backlogs to be what they stay.
    let ramp = Nanos((seconds * 0.1e9) as u64).max(Nanos(case.latency.0 * 200));
    world.run_until(ramp.saturating_add(Nanos((seconds * 1e9) as u64)));
    let pairs = forecast.tenants.iter().zip(world.results());
    let pairs = pairs.map(|(expected, result)| Pair { expected: *expected, simulated: result.summary }).collect();
    Ok(Compared { forecast, pairs })
}

fn world(case: &Case) -> Result<World, WorldError> {
    let mut config = Config::new("nqn.2026-01.io.weir:sim");
    config.arbitration = case.setting.arbiter;
    config.cost = case.setting.cost;
    config.latency = case.latency;
    config.slots = case.slots;
    config.slot_bytes = case.slot_bytes;
    config.tenants = case.tenants.iter().map(machine).collect();
    let clients = case.tenants.iter().enumerate().map(|(at, tenant)| Client::new(&job(tenant), at as u16)).collect();
    let mut setup = Setup::new(1 << 34, clients, case.seed);
    setup.ramp = Nanos(case.latency.0 * 200);
    World::with(config, None, setup)
}

fn machine(tenant: &Tenant) -> TenantConfig {
    let mut config = TenantConfig::new(&tenant.name, tenant.class);
    config.weight = tenant.weight;
    config.urgent = tenant.class == Class::Urgent;
    config
}

fn job(tenant: &Tenant) -> Job {
    let demand = &tenant.demand;
    Job {
        name: tenant.name.clone(),
        class: Some(tenant.class),
        pattern: demand.pattern,
        sizes: demand.sizes.clone(),
        depth: demand.depth,
        rate: demand.rate,
        arrival: demand.arrival,
        copies: demand.queues,
        ..Job::default()
    }
}
