//! `weir top`: what drives and tenants do now, from two looks at the node a moment apart.
//!
//! On a terminal the picture is drawn over the one before; elsewhere one follows the other, and with `--json` each is a line.

use crate::client::ApiClient;
use crate::failure::CommandFailure;
use crate::output::{self, Table};
use crate::report::{count, megabytes, time};
use clap::Args;
use serde::Serialize;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use weir_api::{AttainmentStatus, Counters, DeviceStatus, LatencyBucket, SlaState, Status, TenantStatus};
use weir_units::{Nanos, parse};

/// The shortest pause between two looks: the node's own figures are of a second.
const SHORTEST: Nanos = Nanos::from_millis(100);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir top                     a picture a second until Ctrl-C
  weir top -i 5s -n 12         a minute in steps of 5 s
  weir top -n 1 --json         one look, for a program

BUSY is the share of a drive's slots that worked, over the interval. P50 and P99 are of the interval, between two bounds of the node's counters
(1, 2.5 and 5 in every decade); of a tenant with a promise they are exact, of its newest period of a second. KEPT is the promise of a tenant in
the last second that counts: met or MISSED; \"met, asked less\" where it did not ask for what it was promised, \"idle\" where it did nothing. LIMIT says \"ceiling\" where its
ceiling held commands back at either look.")]
pub struct TopArgs {
    /// Time between two looks
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = |text: &str| parse::nanos(text))]
    interval: Nanos,
    /// End after so many [default: until Ctrl-C]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// Shows one picture after the other.
///
/// # Errors
/// The interval is too short; the node does not answer.
pub fn run(client: &ApiClient, args: &TopArgs, json: bool) -> Result<(), CommandFailure> {
    if args.interval < SHORTEST {
        return Err(CommandFailure::usage(format_args!("top: -i {}: at least {SHORTEST}", args.interval)));
    }
    let over = !json && std::io::stdout().is_terminal();
    let mut before: (Status, Instant) = (client.get("/v1/status")?, Instant::now());
    let mut left = args.count;
    while left != Some(0) {
        std::thread::sleep(Duration::from_nanos(args.interval.get()));
        let now: (Status, Instant) = (client.get("/v1/status")?, Instant::now());
        let picture = Picture::between(&before.0, &now.0, now.1 - before.1);
        let text = match (json, over) {
            (true, _) => serde_json::to_string(&picture).map_err(CommandFailure::new)? + "\n",
            // From the upper left corner, over what was there.
            (_, true) => format!("\x1b[H\x1b[2J{}", picture.text()),
            (_, false) => picture.text() + "\n",
        };
        if !output::is_read(text.as_bytes())? {
            return Ok(());
        }
        (before, left) = (now, left.map(|n| n - 1));
    }
    Ok(())
}

/// What was done in an interval.
#[derive(Debug, Serialize)]
struct Picture {
    node: String,
    uptime_s: f64,
    /// Of each reactor's core, percent.
    busy_pct: Vec<f64>,
    devices: Vec<DeviceRates>,
    tenants: Vec<TenantRates>,
}

/// What a drive or a tenant has had done, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct DoneRates {
    iops: f64,
    read_bytes_per_s: f64,
    written_bytes_per_s: f64,
    errors_per_s: f64,
}

#[derive(Debug, Serialize)]
struct DeviceRates {
    name: String,
    #[serde(flatten)]
    rates: DoneRates,
    /// Over the interval.
    slots_busy_pct: f64,
    queues: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_amplification: Option<f64>,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

#[derive(Debug, Serialize)]
struct TenantRates {
    name: String,
    class: String,
    weight: u16,
    #[serde(flatten)]
    rates: DoneRates,
    /// Of all tenants' bytes.
    share_pct: f64,
    /// Absent where nothing was done.
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    latency: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    promise: Option<SlaState>,
    /// It did not ask for the rates that it was promised.
    asked_less: bool,
    /// Its ceiling held commands back at either look.
    at_ceiling: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Latency {
    p50_ns: u64,
    p99_ns: u64,
    /// Of a tenant with a promise: the longest of its drives' in the newest period. Else they lie between two bounds of what the node counts.
    is_exact: bool,
}

impl Latency {
    fn between(before: Option<&TenantStatus>, now: &TenantStatus) -> Option<Self> {
        let of_promise = now.attainment.iter().filter_map(|a| a.last.as_ref());
        let exact = of_promise.map(|period| (period.p50_ns, period.p99_ns)).reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)));
        if let Some((p50_ns, p99_ns)) = exact {
            return Some(Latency { p50_ns, p99_ns, is_exact: true });
        }
        let counted = counted_between(before.map_or(&[], |before| &before.latency), &now.latency);
        let at = |share| quantile(&counted, share);
        Some(Latency { p50_ns: at(0.5)?, p99_ns: at(0.99)?, is_exact: false })
    }

    fn cell(&self, ns: u64) -> String {
        format!("{}{}", if self.is_exact { "" } else { "~" }, time(ns as f64))
    }
}

/// Buckets of the commands of the interval; counters that begin anew count from nothing.
fn counted_between(before: &[LatencyBucket], now: &[LatencyBucket]) -> Vec<LatencyBucket> {
    let old = |of: &LatencyBucket| before.iter().find(|b| b.over_ns == of.over_ns).map_or(0, |b| b.commands);
    let has_begun_anew = now.iter().map(|b| b.commands).sum::<u64>() < before.iter().map(|b| b.commands).sum();
    let left = |b: &LatencyBucket| b.commands.saturating_sub(if has_begun_anew { 0 } else { old(b) });
    now.iter().map(|b| LatencyBucket { commands: left(b), ..*b }).filter(|b| b.commands > 0).collect()
}

/// The latency that this share of the commands does not exceed, on a straight line between the bounds of its bucket.
fn quantile(counted: &[LatencyBucket], share: f64) -> Option<u64> {
    let wanted = share * counted.iter().map(|b| b.commands).sum::<u64>() as f64;
    let mut below = 0.0;
    for bucket in counted {
        let commands = bucket.commands as f64;
        if below + commands >= wanted {
            let width = bucket.up_to_ns.unwrap_or(bucket.over_ns).saturating_sub(bucket.over_ns) as f64;
            return Some(bucket.over_ns + (width * (wanted - below) / commands) as u64);
        }
        below += commands;
    }
    None
}

impl DoneRates {
    /// Counters that begin anew, as after a crash, count from nothing.
    fn between(before: Option<&Counters>, now: &Counters, time: Duration) -> Self {
        let begun_anew = before.is_none_or(|b| b.reads > now.reads || b.writes > now.writes || b.others > now.others);
        let before = before.filter(|_| !begun_anew).copied().unwrap_or_default();
        let rate = |of: fn(&Counters) -> u64| of(now).saturating_sub(of(&before)) as f64 / time.as_secs_f64();
        DoneRates {
            iops: rate(|c| c.reads + c.writes + c.others),
            read_bytes_per_s: rate(|c| c.read_bytes),
            written_bytes_per_s: rate(|c| c.written_bytes),
            errors_per_s: rate(|c| c.errors),
        }
    }

    fn bytes(&self) -> f64 {
        self.read_bytes_per_s + self.written_bytes_per_s
    }

    fn cells(&self) -> [String; 4] {
        [
            count(self.iops),
            megabytes(self.read_bytes_per_s),
            megabytes(self.written_bytes_per_s),
            count(self.errors_per_s),
        ]
    }
}

impl Picture {
    fn between(before: &Status, now: &Status, time: Duration) -> Self {
        let devices = now.devices.iter().map(|device| {
            let old = before.devices.iter().find(|old| old.name == device.name);
            DeviceRates {
                name: device.name.clone(),
                rates: DoneRates::between(old.map(|old| &old.io), &device.io, time),
                slots_busy_pct: busy(old, device, time),
                queues: device.queues,
                write_amplification: device.flash.as_ref().map(|flash| flash.write_amplification),
                fault: wrong(device),
            }
        });
        let old = |name: &str| before.tenants.iter().find(|old| old.name == name);
        let rates = |name: &str, now: &Counters| DoneRates::between(old(name).map(|old| &old.io), now, time);
        let all: f64 = now.tenants.iter().map(|tenant| rates(&tenant.name, &tenant.io).bytes()).sum();
        let tenants = now.tenants.iter().map(|tenant| {
            let rates = rates(&tenant.name, &tenant.io);
            TenantRates {
                name: tenant.name.clone(),
                class: tenant.class.clone(),
                weight: tenant.weight,
                rates,
                share_pct: if all > 0.0 { 100.0 * rates.bytes() / all } else { 0.0 },
                // Of one that did nothing the newest period is of some time ago.
                latency: Latency::between(old(&tenant.name), tenant).filter(|_| rates.iops > 0.0),
                promise: promise(&tenant.attainment),
                asked_less: tenant.attainment.iter().any(|a| asked_less(tenant, a)),
                at_ceiling: tenant.at_ceiling || old(&tenant.name).is_some_and(|old| old.at_ceiling),
            }
        });
        Picture {
            node: now.node.clone(),
            uptime_s: now.uptime_s,
            busy_pct: now.shards.iter().map(|shard| shard.busy_pct).collect(),
            devices: devices.collect(),
            tenants: tenants.collect(),
        }
    }

    /// Of drives, and of tenants.
    fn tables(&self) -> (Table, Table) {
        let mut devices =
            Table::new(&["DEVICE", ">IOPS", ">READ", ">WRITE", ">ERR/S", ">BUSY", "~>QUEUES", "~>WA", "WRONG"]);
        for d in &self.devices {
            let amplification = d.write_amplification.map_or_else(String::new, |wa| format!("{wa:.2}"));
            let rest = [format!("{:.0}%", d.slots_busy_pct), d.queues.to_string(), amplification];
            let wrong = d.fault.clone().unwrap_or_default();
            devices.row([d.name.clone()].into_iter().chain(d.rates.cells()).chain(rest).chain([wrong]));
        }
        (devices, self.tenant_table())
    }

    fn tenant_table(&self) -> Table {
        let mut tenants = Table::new(&[
            "TENANT", ">IOPS", ">READ", ">WRITE", "~>ERR/S", ">SHARE", ">P50", ">P99", "KEPT", "LIMIT", "~CLASS",
            "~>WEIGHT",
        ]);
        for t in &self.tenants {
            let latency = |of: fn(&Latency) -> u64| t.latency.map_or_else(String::new, |l| l.cell(of(&l)));
            let kept = match t.promise {
                Some(SlaState::Met) if t.rates.iops == 0.0 => "idle",
                Some(SlaState::Met) if t.asked_less => "met, asked less",
                Some(SlaState::Met) => "met",
                Some(SlaState::Missed) => "MISSED",
                Some(SlaState::Unjudged) | None => "",
            };
            let limit = if t.at_ceiling { "ceiling" } else { "" };
            let times = [format!("{:.0}%", t.share_pct), latency(|l| l.p50_ns), latency(|l| l.p99_ns)];
            let rest = [kept.to_owned(), limit.to_owned(), t.class.clone(), t.weight.to_string()];
            tenants.row([t.name.clone()].into_iter().chain(t.rates.cells()).chain(times).chain(rest));
        }
        tenants
    }

    /// With as many columns as the terminal has room for.
    fn text(&self) -> String {
        let (devices, tenants) = self.tables();
        self.around(&devices.shown(), &tenants.shown())
    }

    fn around(&self, devices: &str, tenants: &str) -> String {
        let busy: Vec<String> = self.busy_pct.iter().map(|busy| format!("{busy:.0}%")).collect();
        format!(
            "node {}  up {:.0} s  cores {} busy; IOPS and MB/s\n\n{}\n{}",
            self.node,
            self.uptime_s,
            busy.join(", "),
            devices,
            tenants
        )
    }
}

/// The share of a drive's slots that worked in the interval, percent; of a drive that has begun anew, the share now.
fn busy(before: Option<&DeviceStatus>, now: &DeviceStatus, time: Duration) -> f64 {
    let slots = f64::from(now.slots.max(1));
    let worked = before.and_then(|before| now.slot_time_ns.checked_sub(before.slot_time_ns));
    let used = worked.map_or(f64::from(now.slots_busy), |worked| worked as f64 / time.as_nanos().max(1) as f64);
    (100.0 * used / slots).min(100.0)
}

/// Whether a tenant was promised rates of a drive and did not ask for them in the newest period, so that it got less and nothing was missed.
pub fn asked_less(t: &TenantStatus, a: &AttainmentStatus) -> bool {
    let (floor, sla) = (t.floor.as_ref(), t.sla.as_ref());
    let iops = floor.and_then(|f| f.iops).max(sla.and_then(|s| s.iops));
    let bandwidth = floor.and_then(|f| f.bandwidth_bytes_per_s).max(sla.and_then(|s| s.bandwidth_bytes_per_s));
    a.last.as_ref().is_some_and(|p| {
        let is_less = iops.is_some_and(|n| p.iops < n) || bandwidth.is_some_and(|n| p.bandwidth_bytes_per_s < n);
        is_less && !p.missed_rate
    })
}

/// A word about what keeps a drive from its work.
fn wrong(device: &weir_api::DeviceStatus) -> Option<String> {
    let link = device.link.as_ref().filter(|link| link.state != "serving").map(|link| format!("link {}", link.state));
    let verdict = device.health.as_ref().and_then(|health| health.verdict.clone());
    device.fault.as_ref().map(|_| "fault".to_owned()).or(link).or(verdict)
}

/// The worst of what its drives say.
fn promise(attainment: &[AttainmentStatus]) -> Option<SlaState> {
    let is = |state| attainment.iter().any(|a| a.state == state);
    [SlaState::Missed, SlaState::Met, SlaState::Unjudged].into_iter().find(|state| is(*state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(device: u64, gold: u64, tin: u64) -> Status {
        let io = |reads: u64| json!({"reads": reads, "writes": 0, "others": 0, "read_bytes": reads * 4096, "written_bytes": 0, "errors": 0});
        let bucket =
            |over: u64, commands: u64| json!({"over_ns": over, "up_to_ns": over * 5 / 2, "commands": commands});
        let tenant = |name: &str, reads: u64| {
            json!({"name": name, "class": "high", "urgent": false, "weight": 16, "hosts": [], "controllers": 0, "queues": 0,
                "io": io(reads), "latency": [bucket(100_000, reads - reads / 50), bucket(1_000_000, reads / 50)]})
        };
        serde_json::from_value(json!({"node": "n1", "version": "0", "pid": 1, "state": "serving", "uptime_s": 5.0, "api": [],
            "shards": [{"core": 0, "poll": false, "cpu_s": 0.0, "busy_pct": 40.0}], "doors": [], "exports": [],
            "devices": [{"name": "ssd0", "nqn": "n", "serial": "s", "media": "ram", "interface": "block",
                "capacity_bytes": 1, "block_size": 512, "latency_ns": 0, "slots": 4, "slots_busy": 1, "slot_time_ns": device * 1_000_000, "slot_bytes": 1,
                "arbitration": weir_config::Arbitration::default(), "cost": "bytes", "core": 0, "controllers": 0, "queues": 2, "io": io(device)}],
            "tenants": [tenant("gold", gold), tenant("tin", tin)]}))
        .unwrap()
    }

    #[test]
    fn rates_are_differences() {
        let picture = Picture::between(&status(1000, 800, 200), &status(5000, 3800, 1200), Duration::from_secs(2));
        assert_eq!(picture.devices[0].rates.iops, 2000.0);
        assert_eq!(picture.devices[0].slots_busy_pct, 50.0, "4 s of 4 slots and 2 s, not the moment's one of four");
        assert_eq!([picture.tenants[0].share_pct, picture.tenants[1].share_pct], [75.0, 25.0]);
        let text = picture.text();
        assert!(text.contains("ssd0    2000   8.2    0.0"), "{text}");
        let gold = picture.tenants[0].latency.unwrap();
        assert!((150_000..200_000).contains(&gold.p50_ns) && !gold.is_exact, "{gold:?}");
        assert!((1_000_000..2_500_000).contains(&gold.p99_ns), "{gold:?}");
        assert!(text.contains('~'), "{text}");
    }

    /// A tenant that is at its ceiling, and one with a promise that it does not use.
    fn promised() -> Status {
        let mut found = status(1000, 800, 200);
        let period = json!({"commands": 10, "iops": 10, "bandwidth_bytes_per_s": 40960, "p50_ns": 5000, "p99_ns": 7000, "p999_ns": 8000,
            "max_ns": 9000, "missed_rate": false, "missed_latency": false});
        let kept = json!({"device": "ssd0", "state": "met", "since_s": 1, "periods": 1, "missed": 0, "missed_rate": 0, "missed_latency": 0,
            "last": period});
        found.tenants[0].floor = serde_json::from_value(json!({"iops": 100, "catch_up_ns": 1_000_000})).unwrap();
        found.tenants[0].attainment = vec![serde_json::from_value(kept).unwrap()];
        found.tenants[1].at_ceiling = true;
        found
    }

    #[test]
    fn marks_say_what_limits_a_tenant_and_what_it_did_not_ask_for() {
        let (mut before, mut now) = (promised(), promised());
        before.tenants[0].io.reads -= 10;
        let picture = Picture::between(&before, &now, Duration::from_secs(1));
        let [gold, tin] = &picture.tenants[..] else { panic!("two tenants") };
        let exact = Latency { p50_ns: 5000, p99_ns: 7000, is_exact: true };
        assert_eq!((gold.latency, gold.asked_less, gold.at_ceiling), (Some(exact), true, false));
        assert_eq!((tin.latency, tin.asked_less, tin.at_ceiling), (None, false, true), "nothing was done");
        let text = picture.text();
        assert!(text.contains("met, asked less") && text.contains("ceiling"), "{text}");
        now.tenants[0].floor.as_mut().unwrap().iops = Some(10);
        let picture = Picture::between(&before, &now, Duration::from_secs(1));
        assert!(!picture.tenants[0].asked_less && picture.text().contains("met "), "it asked for all of it");
        // Its newest period is of some time ago.
        let picture = Picture::between(&now, &now, Duration::from_secs(1));
        let text = picture.text();
        assert!(picture.tenants[0].latency.is_none() && text.contains("idle") && !text.contains("met"), "{text}");
    }

    #[test]
    fn a_terminal_of_80_columns_has_the_figures_and_one_of_200_all_columns() {
        let (devices, tenants) = Picture::between(&status(0, 0, 0), &promised(), Duration::from_secs(1)).tables();
        for table in [&devices, &tenants] {
            let [narrow, wide] = [80, 200].map(|width| table.render_within(width));
            assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
            assert!(wide.lines().all(|line| line.chars().count() <= 200) && wide == table.render(), "{wide}");
        }
        let narrow = tenants.render_within(80);
        assert!(["P50", "P99", "KEPT", "LIMIT"].iter().all(|heading| narrow.contains(heading)), "{narrow}");
    }

    #[test]
    fn counters_that_begin_anew_count_from_nothing() {
        let picture = Picture::between(&status(9000, 9000, 0), &status(100, 100, 0), Duration::from_secs(1));
        assert_eq!(picture.devices[0].rates.iops, 100.0);
        let idle = Picture::between(&status(1, 1, 0), &status(1, 1, 0), Duration::from_secs(1));
        assert_eq!((idle.devices[0].rates, idle.tenants[0].share_pct), (DoneRates::default(), 0.0));
    }
}
