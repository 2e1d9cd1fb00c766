//! The model of `weir-plan` held to the simulation of the real arbiter and drive, over a grid of cases drawn from a seed.

mod cells;
mod flash;
mod grid;
#[cfg(test)]
mod tests;

pub use cells::{Cell, CellPair, Grid, Predictor, cells};
pub use flash::FlashDrive;
pub use grid::{Beside, Case, Loads, cases, flash_cases};

use crate::{Setup, SimulatedClient, SimulatedDrive, WorldError};
use weir_controller::{SubsystemConfig, TenantConfig};
use weir_plan::{DriveModel, Expected, Forecast, PlanTenant, forecast};
use weir_units::{Ceiling, Class, Floor, Nanos};
use weir_workload::{Arrival, Job, Rate, Summary};

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
pub fn drive(case: &Case) -> DriveModel {
    match &case.flash {
        Some(flash) => flash.drive().clone(),
        None => DriveModel::fixed(case.latency, case.slots, case.slot_bytes),
    }
}

/// Lets the model and the simulation answer. `commands` is how many the tenant with the fewest makes in the simulation, about;
/// the run is `most` commands in all at the most. On flash a case lasts as long as its calibration did.
///
/// # Errors
/// A case that the simulation refuses.
pub fn compare(case: &Case, commands: f64, most: f64) -> Result<Compared, WorldError> {
    let forecast = forecast(&drive(case), &case.setting, &case.tenants);
    let rates = || forecast.tenants.iter().map(|t| t.iops);
    let (least, all) = (rates().fold(f64::INFINITY, f64::min), rates().sum::<f64>());
    let seconds = match &case.flash {
        Some(_) => flash::TIME.as_secs_f64(),
        None => (commands / least).min(most / all),
    };
    let mut world = world(case)?;
    world.run_until(ramp(case).saturating_add(Nanos((seconds * 1e9) as u64)));
    let simulated: Vec<Summary> = world.results().into_iter().map(|result| result.summary).collect();
    let came = as_it_came(case, &forecast, &simulated, seconds);
    let forecast = weir_plan::forecast(&drive(case), &case.setting, &came);
    let pairs = forecast.tenants.iter().zip(simulated);
    let pairs = pairs.map(|(expected, simulated)| Pair { expected: *expected, simulated }).collect();
    Ok(Compared { forecast, pairs })
}

/// The tenants with what chance has made of random arrivals: an open loop that is not limited has sent a few more or fewer than its
/// rate says, and the others had what it left. That is no error of the model. What chance does not explain stays as it is.
fn as_it_came(case: &Case, forecast: &Forecast, simulated: &[Summary], seconds: f64) -> Vec<PlanTenant> {
    let mut tenants = case.tenants.clone();
    for ((tenant, expected), got) in tenants.iter_mut().zip(&forecast.tenants).zip(simulated) {
        let bounded = expected.latency.is_some() && !expected.limited;
        let random = tenant.demand.rate.is_some() && tenant.demand.arrival != Arrival::Fixed && bounded;
        // Four standard deviations of a Poisson process.
        let chance = 4.0 / (got.iops * seconds).max(1.0).sqrt();
        if random && (got.iops / expected.iops - 1.0).abs() <= chance {
            tenant.demand.rate = Some(Rate::Iops((got.iops as u64).max(1)));
        }
    }
    tenants
}

/// Long enough for backlogs to be what they stay, and for what ceilings let through at first.
fn ramp(case: &Case) -> Nanos {
    let limited = case.tenants.iter().any(|t| !t.ceiling.is_none());
    let settles = if case.flash.is_some() { flash::RAMP } else { Nanos::from_millis(if limited { 50 } else { 0 }) };
    Nanos(case.latency.0 * 200).max(settles)
}

fn world(case: &Case) -> Result<SimulatedDrive, WorldError> {
    let mut config = match &case.flash {
        Some(flash) => flash.machine(),
        None => SubsystemConfig::new("nqn.2026-01.io.weir:sim"),
    };
    config.arbitration = case.setting.arbiter;
    config.cost = case.setting.cost;
    config.slots = case.slots;
    config.slot_bytes = case.slot_bytes;
    config.tenants = case.tenants.iter().map(|tenant| machine(tenant, case.latency)).collect();
    let inside = match &case.flash {
        Some(flash) => Some(flash.inside()?),
        None => {
            config.latency = case.latency;
            None
        }
    };
    let clients =
        case.tenants.iter().enumerate().map(|(at, tenant)| SimulatedClient::new(&job(tenant), at as u16)).collect();
    let capacity = case.flash.as_ref().map_or(1 << 34, |flash| flash.capacity());
    let mut setup = Setup::new(capacity, clients, case.seed);
    setup.ramp = ramp(case);
    SimulatedDrive::with(config, inside, setup)
}

fn machine(tenant: &PlanTenant, latency: Nanos) -> TenantConfig {
    let mut config = TenantConfig::new(&tenant.name, tenant.class);
    config.weight = tenant.weight;
    config.floor = Floor::new(tenant.floor);
    // The usual burst would count for more than the model's error in runs as short as these; of some rounds it has to be.
    let burst = |iops: u64| (iops as f64 * 20.0 * latency.as_secs_f64()) as u32 + 8;
    config.ceiling = Ceiling { rates: tenant.ceiling, burst: tenant.ceiling.iops.map(burst), ..Ceiling::default() };
    config.urgent = tenant.class == Class::Urgent;
    config
}

fn job(tenant: &PlanTenant) -> Job {
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
