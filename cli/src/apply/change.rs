//! What an operator would type for a difference, and what would take it back.

use super::difference::Difference;
use crate::client::{ApiClient, in_url};
use crate::failure::CommandFailure;
use serde_json::Value;
use weir_api::{CeilingPatch, DevicePatch, FloorPatch, SharesPatch, SlaPatch, TenantAdd, TenantPatch};
use weir_config::{Arbitration, Config, DeviceConfig, Shares, TenantConfig};
use weir_units::Bytes;

const OF_TENANT: [&str; 5] = ["class", "weight", "floor", "ceiling", "sla"];
const OF_DEVICE: [&str; 5] = ["arbitration", "weights", "burst", "quanta", "capacity"];

/// Whether a difference can be made while I/O runs.
pub fn is_live(difference: &Difference) -> bool {
    let is_one_of = |keys: [&str; 5]| difference.key.as_ref().is_some_and(|key| keys.contains(&key.as_str()));
    match difference.section.as_str() {
        "tenant" => difference.key.is_none() || is_one_of(OF_TENANT),
        "device" => is_one_of(OF_DEVICE),
        _ => false,
    }
}

/// What a tenant has that no request can give it: one that joins or leaves would lose it.
pub fn beyond_requests(one: &Config, other: &Config) -> Vec<Difference> {
    let comes_or_goes = |t: &&TenantConfig| !t.is_gone() && !other.tenants.iter().any(|o| o.name == t.name);
    let keys = |t: &TenantConfig| {
        let urgent = t.urgent != (t.class == weir_units::Class::Urgent);
        [("placement", t.placement.is_some()), ("demand", t.demand.is_some()), ("urgent", urgent)]
    };
    let of = |t: &TenantConfig, key: &str| Difference {
        section: "tenant".into(),
        name: Some(t.name.clone()),
        key: Some(key.into()),
        from: None,
        to: Some("with a tenant that joins or leaves".into()),
    };
    let tenants = one.tenants.iter().filter(comes_or_goes);
    tenants
        .flat_map(|t| keys(t).into_iter().filter(|(_, has)| *has).map(|(key, _)| of(t, key)).collect::<Vec<_>>())
        .collect()
}

/// One request to the node, and the one that takes it back.
#[derive(Debug)]
pub enum Change {
    /// One more tenant.
    Add(TenantAdd),
    /// A tenant is removed.
    Remove(TenantAdd),
    /// A tenant's share or promises change.
    Tenant { name: String, to: TenantPatch, from: TenantPatch },
    /// A device's arbitration or capacity changes.
    Device { name: String, to: DevicePatch, from: DevicePatch },
}

impl Change {
    /// Asks the node for it.
    pub fn make(&self, client: &ApiClient, force: bool) -> Result<(), CommandFailure> {
        let done = match self {
            Change::Add(tenant) => client.create("/v1/tenants", &TenantAdd { force, ..tenant.clone() }),
            Change::Remove(tenant) => client.delete::<Value>(&tenant_path(&tenant.name)),
            Change::Tenant { name, to, .. } => client.patch(&tenant_path(name), &TenantPatch { force, ..to.clone() }),
            Change::Device { name, to, .. } => client.patch(&device_path(name), &DevicePatch { force, ..to.clone() }),
        };
        done.map(|_: Value| ())
    }

    /// Asks the node to take it back; what was there before is not judged again.
    pub fn undo(&self, client: &ApiClient) -> Result<(), CommandFailure> {
        let back = match self {
            Change::Add(tenant) => Change::Remove(tenant.clone()),
            Change::Remove(tenant) => Change::Add(tenant.clone()),
            Change::Tenant { name, to, from } => {
                Change::Tenant { name: name.clone(), to: from.clone(), from: to.clone() }
            }
            Change::Device { name, to, from } => {
                Change::Device { name: name.clone(), to: from.clone(), from: to.clone() }
            }
        };
        back.make(client, true)
    }
}

fn tenant_path(name: &str) -> String {
    format!("/v1/tenants/{}", in_url(name))
}

fn device_path(name: &str) -> String {
    format!("/v1/devices/{}", in_url(name))
}

/// The requests that make these differences, which are all live.
pub fn changes(running: &Config, wanted: &Config, live: &[&Difference]) -> Vec<Change> {
    let differs = |section: &str, name: &str| {
        live.iter().any(|d| d.section == section && d.name.as_deref() == Some(name) && d.key.is_some())
    };
    let mut changes = Vec::new();
    for old in running.tenants.iter().filter(|t| !t.is_gone()) {
        match wanted.tenants.iter().find(|new| new.name == old.name) {
            None => changes.push(Change::Remove(tenant_add(old))),
            Some(new) if differs("tenant", &old.name) => {
                let (to, from) = (tenant_patch(new), tenant_patch(old));
                changes.push(Change::Tenant { name: old.name.clone(), to, from });
            }
            Some(_) => {}
        }
    }
    let is_there = |name: &str| running.tenants.iter().any(|old| !old.is_gone() && old.name == name);
    changes.extend(wanted.tenants.iter().filter(|new| !is_there(&new.name)).map(|new| Change::Add(tenant_add(new))));
    for old in running.devices.iter().filter(|old| differs("device", &old.name)) {
        let Some(new) = wanted.devices.iter().find(|new| new.name == old.name) else { continue };
        let (to, from) = (device_patch(new, old), device_patch(old, new));
        changes.push(Change::Device { name: old.name.clone(), to, from });
    }
    changes
}

fn tenant_patch(tenant: &TenantConfig) -> TenantPatch {
    let (floor, ceiling, sla) = promises(tenant);
    TenantPatch {
        class: Some(tenant.class.to_string()),
        weight: Some(tenant.weight),
        floor: Some(floor),
        ceiling: Some(ceiling),
        sla: Some(sla),
        force: false,
    }
}

fn tenant_add(tenant: &TenantConfig) -> TenantAdd {
    let (floor, ceiling, sla) = promises(tenant);
    TenantAdd {
        name: tenant.name.clone(),
        hosts: tenant.hosts.iter().cloned().chain(tenant.any_host.then(|| "*".to_owned())).collect(),
        class: Some(tenant.class.to_string()),
        weight: Some(tenant.weight),
        floor: Some(floor),
        ceiling: Some(ceiling),
        sla: Some(sla),
        force: false,
    }
}

/// Every number, those that are not there as `null`.
fn promises(tenant: &TenantConfig) -> (FloorPatch, CeilingPatch, SlaPatch) {
    let bytes = |rate: Option<Bytes>| Some(rate.map(Bytes::get));
    let TenantConfig { floor, ceiling, sla, .. } = tenant;
    let floor = FloorPatch {
        iops: Some(floor.rates.iops),
        bandwidth_bytes_per_s: bytes(floor.rates.bandwidth),
        catch_up_ns: Some(floor.catch_up.get()),
    };
    let ceiling = CeilingPatch {
        iops: Some(ceiling.rates.iops),
        bandwidth_bytes_per_s: bytes(ceiling.rates.bandwidth),
        burst: Some(ceiling.burst),
        burst_bytes: bytes(ceiling.burst_bytes),
    };
    let time = |bound: Option<weir_units::Nanos>| Some(bound.map(weir_units::Nanos::get));
    let sla = SlaPatch {
        iops: Some(sla.rates.iops),
        bandwidth_bytes_per_s: bytes(sla.rates.bandwidth),
        p50_ns: time(sla.p50),
        p99_ns: time(sla.p99),
        p999_ns: time(sla.p999),
    };
    (floor, ceiling, sla)
}

/// Its arbitration, and its capacity where that differs.
fn device_patch(device: &DeviceConfig, other: &DeviceConfig) -> DevicePatch {
    fn all<T: Copy>(shares: Shares<T>) -> SharesPatch<T> {
        SharesPatch { high: Some(shares.high), medium: Some(shares.medium), low: Some(shares.low) }
    }
    let Arbitration { mechanism, weights, burst, quanta } = device.arbitration;
    DevicePatch {
        mechanism: Some(mechanism),
        weights: Some(all(weights)),
        burst: Some(burst),
        quanta: Some(all(quanta)),
        capacity_bytes: device.capacity.filter(|_| device.capacity != other.capacity).map(Bytes::get),
        ..DevicePatch::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::difference::differences;
    use super::*;
    use std::path::Path;

    const BASE: &str = "[[device]]\nname = \"ssd0\"\nmedia = \"ram\"\ncapacity = \"1GiB\"\n[[tenant]]\nname = \"gold\"\n\
                        hosts = [\"nqn.2014-08.org:gold\"]\n[[tenant]]\nname = \"tin\"\nhosts = [\"*\"]\n";

    fn made(from: &str, to: &str) -> (Vec<Change>, Vec<String>) {
        let parse = |text: &str| Config::parse(text, "x", Path::new("/")).unwrap();
        let (from, to) = (parse(from), parse(to));
        let found = differences(&from.to_toml(), &to.to_toml()).unwrap();
        let (live, restart): (Vec<_>, Vec<_>) = found.iter().partition(|d| is_live(d));
        (changes(&from, &to, &live), restart.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn nothing_differs_from_itself() {
        let (changes, restart) = made(BASE, BASE);
        assert!(changes.is_empty() && restart.is_empty(), "{changes:?} {restart:?}");
    }

    #[test]
    fn shares_promises_and_tenants_change() {
        let to = BASE
            .replace("name = \"gold\"\n", "name = \"gold\"\nclass = \"high\"\nweight = 8\nsla = { p99 = \"2ms\" }\n")
            .replace("\"tin\"", "\"lead\"")
            .replace("\"1GiB\"\n", "\"1GiB\"\narbitration = \"wrr\"\n");
        let (changes, restart) = made(BASE, &to);
        assert!(restart.is_empty(), "{restart:?}");
        let [
            Change::Tenant { name, to, from },
            Change::Remove(gone),
            Change::Add(new),
            Change::Device { to: device, .. },
        ] = changes.as_slice()
        else {
            panic!("{changes:?}")
        };
        assert_eq!((name.as_str(), to.weight, to.class.as_deref()), ("gold", Some(8), Some("high")));
        assert_eq!((to.sla.unwrap().p99_ns, from.sla.unwrap().p99_ns), (Some(Some(2_000_000)), Some(None)));
        assert_eq!((gone.name.as_str(), new.name.as_str(), &new.hosts), ("tin", "lead", &vec!["*".to_owned()]));
        assert_eq!((device.mechanism, device.capacity_bytes), (Some(weir_config::Mechanism::Wrr), None));
    }

    #[test]
    fn what_needs_a_restart_is_told() {
        let to = BASE.replace("\"1GiB\"\n", "\"2GiB\"\nblock_size = 4096\n").replace("[\"*\"]", "[]");
        let (changes, restart) = made(BASE, &to);
        assert_eq!(restart, ["device ssd0: block_size 512 -> 4096", "tenant tin: hosts [\"*\"] -> []"]);
        let placed = BASE.replace("\"tin\"\n", "\"lead\"\nplacement = 0\n");
        let parse = |text: &str| Config::parse(text, "x", Path::new("/")).unwrap();
        let beyond = beyond_requests(&parse(&placed), &parse(BASE));
        assert!(beyond.len() == 1 && beyond[0].key.as_deref() == Some("placement"), "{beyond:?}");
        assert!(beyond_requests(&parse(BASE), &parse(&placed)).is_empty());
        assert!(matches!(changes.as_slice(), [Change::Device { to, .. }] if to.capacity_bytes == Some(2 << 30)));
    }
}
