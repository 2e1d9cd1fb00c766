//! Whether what tenants are promised can be kept: asked when a node starts, and whenever a tenant or a drive is changed.
//!
//! ```text
//!  calibration of a [[device]] ─▶ Drive ─┐
//!  arbitration as it is ─▶ Setting ───────┼─▶ planner::verdict, for each tenant with an SLA ─▶ Breach[]
//!  tenants that reach the drive ─▶ Plans ─┘   floors against the drive's capacity ──────────▶
//! ```
//! Pure: configurations in, breaches out. The verdict is the one that `weir plan` gives of a drive with that calibration. What a tenant asks for is its `demand`. One that says nothing is taken for the worst
//! neighbour there is, an endless closed loop of the requests that cost the drive most for a byte; for its own SLA it is taken to
//! ask for the rate that it was promised, or for one request at a time where that is none.
//! A drive without a calibration is judged by its slots and its `latency` alone, if it has one: nothing else is known of it.

use super::arbitration::{Arbitration, Cost, Mechanism};
use super::config::Config;
use super::device::DeviceConfig;
use super::export::DoorConfig;
use super::tenant::TenantConfig;
use std::fmt;
use weir_plan::planner::{self, FLOORS, Overfull, SlaBound, TenantPlan, propose, verdict};
use weir_plan::{Demand, DriveModel, Margin, PlanTenant, Setting};
use weir_units::{Bytes, Nanos, Rates, Sla};
use weir_workload::{Arrival, Mix, Pattern, Rate};

/// Commands outstanding of somebody who asks for as much as there is.
pub(super) const GREEDY: u32 = 1024;
/// A breach that was there before and grew by less is not new.
const SAME: f64 = 0.01;

/// A promise that cannot be kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Breach {
    /// The drive.
    pub device: String,
    /// Whose promise.
    pub tenant: String,
    /// Which of them, as the configuration names it: `sla.p99`, `floor`.
    pub key: &'static str,
    /// How far it is from being kept: 0.2 is 20 % too slow or too long.
    pub by: f64,
    /// What is expected instead, for people.
    what: String,
}

/// `tenant gold on ssd0: sla.p99 of 2ms cannot be kept: 3.1ms is expected (55 % too long)`.
impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tenant {} on {}: {}", self.tenant, self.device, self.what)
    }
}

/// The tenants that can reach a drive, by their places in the configuration.
pub fn reach(config: &Config, device: usize) -> Vec<usize> {
    let by_host = config.exports.iter().any(|e| e.device == device && e.door == DoorConfig::NvmeTcp);
    let by_socket = |tenant: usize| {
        let is = |door: &DoorConfig| door.socket().is_some_and(|(_, t)| t == tenant);
        config.exports.iter().any(|e| e.device == device && is(&e.door))
    };
    let hosts = |t: &TenantConfig| t.any_host || !t.hosts.is_empty();
    // Whoever is there may get a volume of a pool.
    let pooled = config.pools.iter().any(|p| p.devices.contains(&device));
    let by_volume = |tenant: usize| pooled && !config.tenants[tenant].is_gone();
    let reaches = |i: &usize| by_socket(*i) || by_volume(*i) || (by_host && hosts(&config.tenants[*i]));
    (0..config.tenants.len()).filter(reaches).collect()
}

/// Whether anybody is promised anything.
pub fn promises<'a>(tenants: impl IntoIterator<Item = &'a TenantConfig>) -> bool {
    tenants.into_iter().any(|t| !t.floor.is_none() || !t.sla.is_none())
}

/// The promises of a configuration that cannot be kept, drive by drive.
pub fn of_config(config: &Config) -> Vec<Breach> {
    let one = |(i, device): (usize, &DeviceConfig)| {
        let tenants: Vec<&TenantConfig> = reach(config, i).into_iter().map(|t| &config.tenants[t]).collect();
        breaches(device, &device.arbitration, &tenants)
    };
    config.devices.iter().enumerate().flat_map(one).collect()
}

/// Drives with tenants that are promised something, of which nothing is known.
pub fn unknown(config: &Config) -> impl Iterator<Item = &str> {
    let blind = |(i, device): &(usize, &DeviceConfig)| {
        device.calibration.is_none() && promises(reach(config, *i).into_iter().map(|t| &config.tenants[t]))
    };
    config.devices.iter().enumerate().filter(blind).map(|(_, device)| device.name.as_str())
}

/// The promises to a drive's tenants that cannot be kept under this arbitration; of a drive that is not calibrated those that its `latency` forbids.
pub fn breaches(device: &DeviceConfig, arbitration: &Arbitration, tenants: &[&TenantConfig]) -> Vec<Breach> {
    let Some(file) = &device.calibration else { return beyond_latency(device, tenants) };
    // What makes a calibration makes a drive: the reader has tried.
    let Ok(drive) = file.calibration.drive(device.slots.into(), device.slot_bytes) else { return Vec::new() };
    let judge = Judge { device, drive, setting: setting(device, arbitration), dearest: dearest(device), tenants };
    let mut found = judge.floors();
    for own in 0..tenants.len() {
        found.extend(judge.sla(own));
    }
    found
}

/// Floors and service levels that ask for more commands a second than the drive's slots can hold, each for its latency.
fn beyond_latency(device: &DeviceConfig, tenants: &[&TenantConfig]) -> Vec<Breach> {
    if device.latency == Nanos(0) || device.flash.is_some() {
        return Vec::new();
    }
    let most = f64::from(device.slots) / device.latency.as_secs_f64();
    let mut floors = 0.0;
    let mut found = Vec::new();
    for tenant in tenants {
        let iops = |rates: &Rates| rates.iops.map_or(0.0, |iops| iops as f64);
        let (floor, sla) = (iops(&tenant.floor.rates), iops(&tenant.sla.rates));
        floors += floor;
        for (key, name, own, wanted) in [("floor", "floor", floor, floors), ("sla.iops", "SLA", sla, sla)] {
            if own > 0.0 && wanted > most {
                let with =
                    if wanted > own { format!(" ({wanted:.0} with the floors before it)") } else { String::new() };
                let what = format!(
                    "its {name}, {own:.0} IOPS{with}, cannot be kept: with {} slots and a latency of {} the drive does {most:.0} at the most",
                    device.slots, device.latency
                );
                let (device, tenant) = (device.name.clone(), tenant.name.clone());
                found.push(Breach { device, tenant, key, by: wanted / most - 1.0, what });
            }
        }
    }
    found
}

/// Shares under which all promises of a drive would be kept, for people: what `weir device set` and `weir tenant set` take. `None`
/// where there are none, or where nothing is known.
pub fn proposal(device: &DeviceConfig, arbitration: &Arbitration, tenants: &[&TenantConfig]) -> Option<String> {
    let file = device.calibration.as_ref()?;
    let drive = file.calibration.drive(device.slots.into(), device.slot_bytes).ok()?;
    let judge = Judge { device, drive, setting: setting(device, arbitration), dearest: dearest(device), tenants };
    // Whoever is promised a rate alone is to have it as his share, however much the others ask for.
    let waits = |sla: &Sla| sla.p50.or(sla.p99).or(sla.p999).is_some();
    let plan = |tenant: &&TenantConfig| match waits(&tenant.sla) {
        false => judge.plan(tenant, judge.neighbour(tenant), tenant.sla),
        true => judge.plan(tenant, judge.own(tenant, &tenant.sla.rates), tenant.sla),
    };
    let plans: Vec<TenantPlan> = tenants.iter().map(plan).collect();
    let (shares, found) = propose(&judge.drive, &judge.setting, &plans);
    if !found.unmet.is_empty() {
        return None;
    }
    let mut proposed = *arbitration;
    proposed.take_shares(&shares.settings(&judge.setting.arbiter));
    let weighed = |(tenant, weight): (&&TenantConfig, &u16)| TenantConfig { weight: *weight, ..(*tenant).clone() };
    let after: Vec<TenantConfig> = tenants.iter().zip(&shares.tenants).map(weighed).collect();
    // Judged as every other change: each against neighbours that ask for all there is.
    if !breaches(device, &proposed, &after.iter().collect::<Vec<_>>()).is_empty() {
        return None;
    }
    let option = match proposed.mechanism {
        Mechanism::Drr => {
            let q = proposed.quanta;
            let [high, medium, low] = [q.high, q.medium, q.low].map(|q| Bytes(q.into()));
            format!("--quanta {high}:{medium}:{low}")
        }
        _ => format!("--weights {}:{}:{}", proposed.weights.high, proposed.weights.medium, proposed.weights.low),
    };
    let changed = tenants.iter().zip(&after).filter(|(before, after)| before.weight != after.weight);
    let weights: String = changed.map(|(_, t)| format!(", and for {} --weight {}", t.name, t.weight)).collect();
    Some(format!("weir device set {} {option}{weights}", device.name))
}

/// The breaches of `after` that `before` did not have, or less of.
pub fn new<'a>(before: &'a [Breach], after: &'a [Breach]) -> impl Iterator<Item = &'a Breach> {
    let same = |a: &Breach, b: &Breach| (&a.device, &a.tenant, a.key) == (&b.device, &b.tenant, b.key);
    after.iter().filter(move |a| !before.iter().any(|b| same(a, b) && a.by <= b.by + SAME))
}

pub(super) fn setting(device: &DeviceConfig, arbitration: &Arbitration) -> Setting {
    let cost = match device.cost {
        Cost::Bytes => weir_controller::Cost::Bytes,
        Cost::Commands => weir_controller::Cost::Commands,
        Cost::DeviceTime => weir_controller::Cost::DeviceTime,
    };
    Setting { arbiter: (*arbitration).into(), cost }
}

/// Size and mix of the calibrated requests that cost the drive most for a byte.
pub(super) fn dearest(device: &DeviceConfig) -> (u32, u8) {
    let points = device.calibration.iter().flat_map(|f| &f.calibration.points);
    let slowest = points.min_by(|a, b| a.bandwidth().total_cmp(&b.bandwidth()));
    slowest.map_or((4096, 100), |p| (p.size(), p.read_percent()))
}

pub(super) fn demand(size: u32, read_percent: u8, depth: u32, rate: Option<Rate>) -> Demand {
    let pattern = Pattern { read_percent, random: true, trim: false };
    Demand { pattern, sizes: Mix::one(size), queues: 1, depth, rate, arrival: Arrival::Fixed }
}

struct Judge<'a> {
    device: &'a DeviceConfig,
    drive: DriveModel,
    setting: Setting,
    dearest: (u32, u8),
    tenants: &'a [&'a TenantConfig],
}

impl Judge<'_> {
    /// As a neighbour of somebody who is judged.
    fn neighbour(&self, tenant: &TenantConfig) -> Demand {
        let (size, reads) = self.dearest;
        tenant.demand.clone().unwrap_or_else(|| demand(size, reads, GREEDY, None))
    }

    /// What somebody who says nothing is taken to ask for who is promised that.
    fn own(&self, tenant: &TenantConfig, rates: &Rates) -> Demand {
        let assumed = || match (rates.iops, rates.bandwidth) {
            (Some(iops), _) => demand(4096, 100, GREEDY, Some(Rate::Iops(iops))),
            (None, Some(bytes)) => demand(128 << 10, 100, GREEDY, Some(Rate::Bandwidth(bytes.get()))),
            (None, None) => demand(4096, 100, 1, None),
        };
        tenant.demand.clone().unwrap_or_else(assumed)
    }

    fn plan(&self, tenant: &TenantConfig, demand: Demand, sla: Sla) -> TenantPlan {
        let of = PlanTenant {
            weight: tenant.weight,
            floor: tenant.floor.rates,
            ceiling: tenant.ceiling.rates,
            ..PlanTenant::new(&tenant.name, tenant.class, demand)
        };
        TenantPlan { tenant: of, sla }
    }

    /// The bounds of one tenant's SLA that are missed.
    fn sla(&self, own: usize) -> Vec<Breach> {
        let judged = self.tenants[own];
        if judged.sla.is_none() {
            return Vec::new();
        }
        let plan = |(i, tenant): (usize, &&TenantConfig)| match i == own {
            true => self.plan(tenant, self.own(tenant, &tenant.sla.rates), tenant.sla),
            false => self.plan(tenant, self.neighbour(tenant), Sla::default()),
        };
        let plans: Vec<TenantPlan> = self.tenants.iter().enumerate().map(plan).collect();
        let said = verdict(&self.drive, &self.setting, &plans);
        let one = |u: &planner::Unmet| self.breach(judged, &u.bound, (u.got, u.by()), said.got[u.tenant].margin);
        said.unmet.iter().map(one).collect()
    }

    fn breach(&self, tenant: &TenantConfig, bound: &SlaBound, (got, by): (Option<f64>, f64), margin: Margin) -> Breach {
        let expected = match (bound, got) {
            (_, None) => "it asks for more than its share, and waits ever longer".to_string(),
            (SlaBound::Iops(_), Some(iops)) => format!("{iops:.0} IOPS are expected"),
            (SlaBound::Bandwidth(_), Some(bytes)) => format!("{:.1} MB/s are expected", bytes / 1e6),
            (_, Some(ns)) => format!("{:.1} us are expected", ns / 1e3),
        };
        let kind = if bound.is_time() { "too long" } else { "too little" };
        let part = margin.of_bound(bound);
        let far = match got {
            None => String::new(),
            Some(_) if by > 0.0 => format!(", {:.0} % {kind}", by * 100.0),
            Some(_) => format!(", less than the {:.0} % that a prediction may be off from it", part * 100.0),
        };
        let key = match bound {
            SlaBound::Iops(_) => "sla.iops",
            SlaBound::Bandwidth(_) => "sla.bandwidth",
            SlaBound::P50(_) => "sla.p50",
            SlaBound::P99(_) => "sla.p99",
            SlaBound::P999(_) => "sla.p999",
        };
        let what = format!("its SLA, {bound}, cannot be kept: {expected}{far}");
        Breach { device: self.device.name.clone(), tenant: tenant.name.clone(), key, by, what }
    }

    /// The floors that do not fit beside those before them.
    fn floors(&self) -> Vec<Breach> {
        let plan = |tenant: &&TenantConfig| self.plan(tenant, self.own(tenant, &tenant.floor.rates), tenant.sla);
        let plans: Vec<TenantPlan> = self.tenants.iter().map(plan).collect();
        planner::floors(&self.drive, &plans).iter().map(|over| self.overfull(over)).collect()
    }

    fn overfull(&self, over: &Overfull) -> Breach {
        let what = format!(
            "its floor, {:.1} % of what the drive can do, is too high: with those before it floors would hold {:.1} %, \
             and {:.0} % is the most",
            over.held * 100.0,
            over.sum * 100.0,
            FLOORS * 100.0
        );
        let (device, tenant) = (self.device.name.clone(), self.tenants[over.tenant].name.clone());
        Breach { device, tenant, key: "floor", by: over.sum / FLOORS - 1.0, what }
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
