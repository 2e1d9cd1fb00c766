//! Floors, ceilings and service levels on the command line: as changes to send, and as a table shows them.

use crate::args::{Change, Share};
use crate::top::asked_less;
use weir_api::{AttainmentStatus, CeilingPatch, FloorPatch, SlaPatch, SlaState, TenantPatch, TenantStatus};
use weir_units::{Bytes, Nanos, PerSecond};

/// What `weir tenant set` sends, and `weir tenant add` beside name and hosts.
pub fn patch(set: &Share) -> TenantPatch {
    let number = |change: Option<Change<u64>>| change.map(|c| c.0);
    let bytes = |change: Option<Change<Bytes>>| change.map(|c| c.0.map(Bytes::get));
    let time = |change: Option<Change<Nanos>>| change.map(|c| c.0.map(Nanos::get));
    let floor = FloorPatch {
        iops: number(set.floor_iops),
        bandwidth_bytes_per_s: bytes(set.floor_bandwidth),
        catch_up_ns: set.floor_catch_up.map(Nanos::get),
    };
    // More commands at once than 32 bits hold are as many as there can be.
    let burst = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let ceiling = CeilingPatch {
        iops: number(set.ceiling_iops),
        bandwidth_bytes_per_s: bytes(set.ceiling_bandwidth),
        burst: number(set.ceiling_burst).map(|n| n.map(burst)),
        burst_bytes: bytes(set.ceiling_burst_bytes),
    };
    let sla = SlaPatch {
        iops: number(set.sla_iops),
        bandwidth_bytes_per_s: bytes(set.sla_bandwidth),
        p50_ns: time(set.sla_p50),
        p99_ns: time(set.sla_p99),
        p999_ns: time(set.sla_p999),
    };
    TenantPatch {
        class: set.class.map(|c| c.name().to_string()),
        weight: set.weight,
        floor: some(floor),
        ceiling: some(ceiling),
        force: set.force,
        sla: some(sla),
    }
}

fn some<T: Default + PartialEq>(patch: T) -> Option<T> {
    (patch != T::default()).then_some(patch)
}

/// Whether there is anything to show.
pub fn has_any(t: &TenantStatus) -> bool {
    t.floor.is_some() || t.ceiling.is_some() || t.sla.is_some()
}

/// Floor, ceiling, service level, and how they are kept.
pub fn cells(t: &TenantStatus) -> [String; 4] {
    let kept: Vec<String> = t.attainment.iter().filter(|a| a.state != SlaState::Unjudged).map(|a| kept(t, a)).collect();
    [floor(t), ceiling(t), sla(t), kept.join("; ")].map(|cell| if cell.is_empty() { "-".into() } else { cell })
}

/// The same behind a tenant's class and weight.
pub fn text(t: &TenantStatus) -> String {
    let named = [("floor", floor(t)), ("ceiling", ceiling(t)), ("sla", sla(t))];
    named.iter().filter(|(_, cell)| !cell.is_empty()).map(|(name, cell)| format!(", {name} {cell}")).collect()
}

fn rates(iops: Option<u64>, bandwidth: Option<u64>) -> impl Iterator<Item = String> {
    let bandwidth = bandwidth.map(|b| PerSecond(Bytes(b)).to_string());
    iops.map(|n| format!("{n}/s")).into_iter().chain(bandwidth)
}

fn floor(t: &TenantStatus) -> String {
    let Some(floor) = &t.floor else { return String::new() };
    rates(floor.iops, floor.bandwidth_bytes_per_s).collect::<Vec<_>>().join(" ")
}

fn ceiling(t: &TenantStatus) -> String {
    let Some(ceiling) = &t.ceiling else { return String::new() };
    rates(ceiling.iops, ceiling.bandwidth_bytes_per_s).collect::<Vec<_>>().join(" ")
}

fn sla(t: &TenantStatus) -> String {
    let Some(sla) = &t.sla else { return String::new() };
    let bounds = [("p50", sla.p50_ns), ("p99", sla.p99_ns), ("p99.9", sla.p999_ns)];
    let bounds = bounds.into_iter().filter_map(|(name, ns)| Some(format!("{name} {}", Nanos(ns?))));
    rates(sla.iops, sla.bandwidth_bytes_per_s).chain(bounds).collect::<Vec<_>>().join(" ")
}

/// `met 12 s (0 of 90 missed)`, or `met, asked less, 12 s (0 of 90 missed)`, with the drive's name.
fn kept(t: &TenantStatus, a: &AttainmentStatus) -> String {
    let state = match (a.state, &a.last) {
        (SlaState::Missed, Some(last)) if last.missed_rate && last.missed_latency => "MISSED rate and latency",
        (SlaState::Missed, Some(last)) if last.missed_rate => "MISSED rate",
        (SlaState::Missed, _) => "MISSED latency",
        _ if asked_less(t, a) => "met, asked less,",
        _ => "met",
    };
    format!("{} {state} {} s ({} of {} missed)", a.device, a.since_s, a.missed, a.periods)
}
