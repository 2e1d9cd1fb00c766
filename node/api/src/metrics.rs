//! `/metrics`: the Prometheus text format, version 0.0.4.

use super::pooled::PoolStatus;
use super::promise::SlaState;
use super::store::StoreStatus;
use super::timing::TimingState;
use super::types::{Counters, State, Status};
use std::fmt::Write;
use weir_controller::{LATENCY_BOUNDS, Latencies, LatencyCounts};
use weir_node::{NodeLatencies, Refusal};

/// A family of the text format: name, help, kind, and samples as (labels, value).
pub(super) struct Family<'a> {
    out: &'a mut String,
    name: &'static str,
}

impl<'a> Family<'a> {
    pub(super) fn new(out: &'a mut String, name: &'static str, kind: &str, help: &str) -> Self {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { out, name }
    }

    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.part("", labels, value);
    }

    /// A sample whose name goes on after the family's.
    fn part(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escaped(v))).collect();
        let braces = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.out, "{}{suffix}{braces} {value}", self.name);
    }
}

/// A histogram of the text format: buckets count what took no longer than their bound, each with all before it.
fn histogram(family: &mut Family<'_>, labels: &[(&str, &str)], latencies: &Latencies) {
    let Latencies { reads, writes, others } = latencies;
    for (op, LatencyCounts { counts, sum }) in [("read", reads), ("write", writes), ("other", others)] {
        let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("op", op)]).collect();
        let bounds = LATENCY_BOUNDS.iter().map(|bound| (bound.get() as f64 / 1e9).to_string()).chain(["+Inf".into()]);
        let mut so_far = 0;
        for (bound, n) in bounds.zip(counts) {
            so_far += n;
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            family.part("_bucket", &labels, so_far);
        }
        family.part("_sum", &labels, *sum as f64 / 1e9);
        family.part("_count", &labels, so_far);
    }
}

/// A label's value: backslash, quote and newline are escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The whole page.
pub(super) fn text(
    (status, pools): (&Status, &[PoolStatus]),
    latencies: &NodeLatencies,
    store: Option<&Result<StoreStatus, Refusal>>,
) -> String {
    let mut out = String::new();
    let serving = u8::from(status.state == State::Serving);
    Family::new(&mut out, "weir_up", "gauge", "1 while the node serves.")
        .sample(&[("node", &status.node), ("version", &status.version)], serving);
    Family::new(&mut out, "weir_uptime_seconds", "gauge", "Time since the node began to serve.")
        .sample(&[], status.uptime_s);
    let mut cpu = Family::new(&mut out, "weir_shard_cpu_seconds_total", "counter", "CPU time of a reactor.");
    for shard in &status.shards {
        cpu.sample(&[("core", &shard.core.to_string())], shard.cpu_s);
    }
    let mut busy = Family::new(&mut out, "weir_shard_busy_percent", "gauge", "Share of the last second with work.");
    for shard in &status.shards {
        busy.sample(&[("core", &shard.core.to_string())], shard.busy_pct);
    }
    let devices: Vec<_> = status.devices.iter().map(|d| (d.name.as_str(), &d.io)).collect();
    let tenants: Vec<_> = status.tenants.iter().map(|t| (t.name.as_str(), &t.io)).collect();
    gauges(&mut out, status);
    links(&mut out, status);
    health(&mut out, status);
    timing(&mut out, status);
    flash(&mut out, status);
    promises(&mut out, status);
    let names = ["weir_device_commands_total", "weir_device_bytes_total", "weir_device_errors_total"];
    io(&mut out, names, "device", &devices);
    let names = ["weir_tenant_commands_total", "weir_tenant_bytes_total", "weir_tenant_errors_total"];
    io(&mut out, names, "tenant", &tenants);
    lost_drives(&mut out, pools);
    histograms(&mut out, latencies);
    if let Some(found) = store {
        super::store_metrics::text(&mut out, found.as_ref().ok());
    }
    out
}

/// Of pools.
fn lost_drives(out: &mut String, pools: &[PoolStatus]) {
    let help = "Drives that a pool serves without; 0 when all are there, or back.";
    let mut family = Family::new(out, "weir_pool_lost_drives", "gauge", help);
    for pool in pools {
        family.sample(&[("pool", &pool.name)], pool.lost.len());
    }
}

fn gauges(out: &mut String, status: &Status) {
    let mut family = Family::new(out, "weir_device_capacity_bytes", "gauge", "Size of a drive.");
    for device in &status.devices {
        family.sample(&[("device", &device.name)], device.capacity_bytes);
    }
    let mut family = Family::new(out, "weir_device_slots_busy", "gauge", "Commands a drive works on now.");
    for device in &status.devices {
        family.sample(&[("device", &device.name)], device.slots_busy);
    }
    let mut family =
        Family::new(out, "weir_device_faulty", "gauge", "1 where a drive's media has failed, or is out of reach.");
    for device in &status.devices {
        family.sample(&[("device", &device.name)], u8::from(device.fault.is_some()));
    }
    let mut family = Family::new(out, "weir_tenant_queues", "gauge", "I/O queues of a tenant now.");
    for tenant in &status.tenants {
        family.sample(&[("tenant", &tenant.name)], tenant.queues);
    }
    let mut family = Family::new(out, "weir_export_clients", "gauge", "Clients of an export now.");
    for export in &status.exports {
        let address = export.addresses.join(" ");
        let labels = [("device", export.device.as_str()), ("door", &export.door), ("address", &address)];
        family.sample(&labels, export.clients);
    }
}

/// Of the drives that lie on other drives.
fn links(out: &mut String, status: &Status) {
    let drives: Vec<_> = status.devices.iter().filter_map(|d| Some((d.name.as_str(), d.link.as_ref()?))).collect();
    let mut family = Family::new(out, "weir_device_link_up", "gauge", "1 while the drive behind a drive serves.");
    for (name, link) in &drives {
        family.sample(&[("device", name)], u8::from(link.out_s.is_none()));
    }
    let help = "For how long the drive behind a drive has not served; 0 while it does.";
    let mut family = Family::new(out, "weir_device_link_outage_seconds", "gauge", help);
    for (name, link) in &drives {
        family.sample(&[("device", name)], link.out_s.unwrap_or(0.0));
    }
    let mut family =
        Family::new(out, "weir_device_link_outages_total", "counter", "Times that the drive behind a drive has gone.");
    for (name, link) in &drives {
        family.sample(&[("device", name)], link.outages);
    }
    let help = "Attempts to reach the drive behind a drive, of this outage or the one before.";
    let mut family = Family::new(out, "weir_device_link_attempts", "gauge", help);
    for (name, link) in &drives {
        family.sample(&[("device", name)], link.attempts);
    }
    let mut family =
        Family::new(out, "weir_device_link_held_commands", "gauge", "Commands that wait for the drive behind a drive.");
    for (name, link) in &drives {
        family.sample(&[("device", name)], link.held);
    }
}

/// States of a diagnosis, of which one is 1.
const STATES: [&str; 8] =
    ["serving", "asking", "resetting", "identifying", "verifying", "waiting", "isolated", "other-drive"];

/// Of what is wrong with drives.
fn health(out: &mut String, status: &Status) {
    let drives: Vec<_> = status.devices.iter().filter_map(|d| Some((d.name.as_str(), d.health.as_ref()?))).collect();
    let help = "1 for the state that the diagnosis of a drive is in, 0 for the others.";
    let mut family = Family::new(out, "weir_device_health_state", "gauge", help);
    for (name, health) in &drives {
        for state in STATES {
            family.sample(&[("device", name), ("state", state)], u8::from(health.state == state));
        }
    }
    let help = "Disturbances of the drive behind a drive that are over, by what was wrong.";
    let mut family = Family::new(out, "weir_device_disturbances_total", "counter", help);
    for (name, health) in &drives {
        for of in &health.verdicts {
            family.sample(&[("device", name), ("verdict", &of.verdict)], of.disturbances);
        }
    }
    let help = "For how long commands have waited or failed, the last time that they did because of the drive behind a drive; 0 before.";
    let mut family = Family::new(out, "weir_device_last_pause_seconds", "gauge", help);
    for (name, health) in &drives {
        family.sample(&[("device", name)], health.last_pause_s.unwrap_or(0.0));
    }
    let mut family = Family::new(
        out,
        "weir_device_bad_ranges",
        "gauge",
        "Ranges of blocks of the drive behind a drive that cannot be read.",
    );
    for (name, health) in &drives {
        family.sample(&[("device", name)], health.bad_blocks.len());
    }
}

/// Of the drives that have completed something with a modelled time.
fn timing(out: &mut String, status: &Status) {
    let drives: Vec<_> = status.devices.iter().filter_map(|d| Some((d.name.as_str(), d.timing.as_ref()?))).collect();
    let help = "I/O commands completed that have a modelled time.";
    let mut family = Family::new(out, "weir_device_modelled_completions_total", "counter", help);
    for (name, t) in &drives {
        family.sample(&[("device", name)], t.completions);
    }
    let help = "Completions later than modelled; net: without the time in which the thread waited for its core.";
    let mut family = Family::new(out, "weir_device_late_completions_total", "counter", help);
    for (name, t) in &drives {
        family.sample(&[("device", name), ("over", "5us"), ("time", "raw")], t.over_5us);
        family.sample(&[("device", name), ("over", "20us"), ("time", "raw")], t.over_20us);
        family.sample(&[("device", name), ("over", "5us"), ("time", "net")], t.net_over_5us);
        family.sample(&[("device", name), ("over", "20us"), ("time", "net")], t.net_over_20us);
    }
    let help = "1 while a drive cannot keep its modelled times.";
    let mut family = Family::new(out, "weir_device_overloaded", "gauge", help);
    for (name, t) in &drives {
        family.sample(&[("device", name)], u8::from(t.state == TimingState::Overloaded));
    }
    let help = "Time in which a drive could not keep its modelled times.";
    let mut family = Family::new(out, "weir_device_overloaded_seconds_total", "counter", help);
    for (name, t) in &drives {
        family.sample(&[("device", name)], t.overloaded_s);
    }
}

/// Of the drives with flash inside.
fn flash(out: &mut String, status: &Status) {
    let drives: Vec<_> = status.devices.iter().filter_map(|d| Some((d.name.as_str(), d.flash.as_ref()?))).collect();
    let help = "Bytes programmed over bytes written by the host.";
    let mut family = Family::new(out, "weir_flash_write_amplification", "gauge", help);
    for (name, f) in &drives {
        family.sample(&[("device", name)], f.write_amplification);
    }
    let help = "Units of 4 KiB moved by garbage collection.";
    let mut family = Family::new(out, "weir_flash_gc_moved_units_total", "counter", help);
    for (name, f) in &drives {
        family.sample(&[("device", name)], f.gc.moved_units);
    }
    let mut family = Family::new(out, "weir_flash_gc_victims_total", "counter", "Blocks collected.");
    for (name, f) in &drives {
        family.sample(&[("device", name)], f.gc.victims);
    }
    let mut family = Family::new(out, "weir_flash_erases_total", "counter", "Blocks erased.");
    for (name, f) in &drives {
        family.sample(&[("device", name)], f.erases);
    }
    let mut family = Family::new(out, "weir_flash_block_erases", "gauge", "Erases of the blocks.");
    for (name, f) in &drives {
        family.sample(&[("device", name), ("block", "least")], f.wear.min);
        family.sample(&[("device", name), ("block", "mean")], f.wear.mean);
        family.sample(&[("device", name), ("block", "most")], f.wear.max);
    }
    let help = "The part of the time since counting began in which a die or a channel was busy.";
    let mut family = Family::new(out, "weir_flash_busy_ratio", "gauge", help);
    for (name, f) in &drives {
        for (kind, parts) in [("die", &f.utilisation.dies), ("channel", &f.utilisation.channels)] {
            for (i, part) in parts.iter().enumerate() {
                family.sample(&[("device", name), (kind, &i.to_string())], part);
            }
        }
    }
}

/// Of the tenants with a floor, a ceiling or a service level.
fn promises(out: &mut String, status: &Status) {
    let help = "What a tenant gets of each drive at least (floor), at the most (ceiling), or was promised (sla).";
    let mut family = Family::new(out, "weir_tenant_limit", "gauge", help);
    for t in &status.tenants {
        let floor = t.floor.as_ref().map(|f| ("floor", f.iops, f.bandwidth_bytes_per_s));
        let ceiling = t.ceiling.as_ref().map(|c| ("ceiling", c.iops, c.bandwidth_bytes_per_s));
        let sla = t.sla.as_ref().map(|s| ("sla", s.iops, s.bandwidth_bytes_per_s));
        for (kind, iops, bandwidth) in [floor, ceiling, sla].into_iter().flatten() {
            for (unit, value) in [("iops", iops), ("bytes_per_second", bandwidth)] {
                if let Some(value) = value {
                    family.sample(&[("tenant", &t.name), ("kind", kind), ("unit", unit)], value);
                }
            }
        }
    }
    let all = || status.tenants.iter().flat_map(|t| t.attainment.iter().map(move |a| (t.name.as_str(), a)));
    let help = "1 where the newest period in which a tenant asked for anything kept its floor and service level.";
    let mut family = Family::new(out, "weir_tenant_sla_met", "gauge", help);
    for (tenant, a) in all().filter(|(_, a)| a.state != SlaState::Unjudged) {
        family.sample(&[("tenant", tenant), ("device", &a.device)], u8::from(a.state == SlaState::Met));
    }
    let help = "For how long weir_tenant_sla_met has been what it is.";
    let mut family = Family::new(out, "weir_tenant_sla_state_seconds", "gauge", help);
    for (tenant, a) in all() {
        family.sample(&[("tenant", tenant), ("device", &a.device)], a.since_s);
    }
    let help = "Periods of a second in which a tenant with a floor or a service level asked for anything.";
    let mut family = Family::new(out, "weir_tenant_sla_periods_total", "counter", help);
    for (tenant, a) in all() {
        family.sample(&[("tenant", tenant), ("device", &a.device)], a.periods);
    }
    let help = "Periods in which a rate, a latency bound, or either was missed.";
    let mut family = Family::new(out, "weir_tenant_sla_missed_periods_total", "counter", help);
    for (tenant, a) in all() {
        for (what, n) in [("rate", a.missed_rate), ("latency", a.missed_latency), ("any", a.missed)] {
            family.sample(&[("tenant", tenant), ("device", &a.device), ("what", what)], n);
        }
    }
    let help = "Latencies of the newest period; replaced by weir_tenant_io_latency_seconds, which every tenant has.";
    let mut family = Family::new(out, "weir_tenant_latency_seconds", "gauge", help);
    for (tenant, a) in all() {
        let Some(last) = &a.last else { continue };
        for (quantile, ns) in [("0.5", last.p50_ns), ("0.99", last.p99_ns), ("0.999", last.p999_ns)] {
            let labels = [("tenant", tenant), ("device", a.device.as_str()), ("quantile", quantile)];
            family.sample(&labels, ns as f64 / 1e9);
        }
    }
}

fn io(out: &mut String, names: [&'static str; 3], label: &str, rows: &[(&str, &Counters)]) {
    let mut commands = Family::new(out, names[0], "counter", "I/O commands completed.");
    for (name, io) in rows {
        commands.sample(&[(label, name), ("op", "read")], io.reads);
        commands.sample(&[(label, name), ("op", "write")], io.writes);
        commands.sample(&[(label, name), ("op", "other")], io.others);
    }
    let mut bytes = Family::new(out, names[1], "counter", "Bytes moved.");
    for (name, io) in rows {
        bytes.sample(&[(label, name), ("op", "read")], io.read_bytes);
        bytes.sample(&[(label, name), ("op", "write")], io.written_bytes);
    }
    let mut errors = Family::new(out, names[2], "counter", "I/O commands that ended with an error.");
    for (name, io) in rows {
        errors.sample(&[(label, name)], io.errors);
    }
}

/// Of all commands that had a slot, whatever their status.
fn histograms(out: &mut String, latencies: &NodeLatencies) {
    let help = "I/O commands of a drive by the time from their arrival to their completion.";
    let mut family = Family::new(out, "weir_device_io_latency_seconds", "histogram", help);
    for of in &latencies.devices {
        histogram(&mut family, &[("device", &of.name)], &of.latencies);
    }
    let help = "I/O commands of a tenant, at all drives, by the time from their arrival to their completion.";
    let mut family = Family::new(out, "weir_tenant_io_latency_seconds", "histogram", help);
    for of in &latencies.tenants {
        histogram(&mut family, &[("tenant", &of.name)], &of.latencies);
    }
    let help = "I/O commands of an exported volume by the time from their arrival to their completion.";
    let mut family = Family::new(out, "weir_volume_io_latency_seconds", "histogram", help);
    for of in &latencies.volumes {
        histogram(&mut family, &[("volume", &of.volume), ("tenant", &of.tenant)], &of.latencies);
    }
}
