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
use weir_api::{AttainmentStatus, Counters, SlaState, Status};
use weir_units::{Nanos, parse};

/// The shortest pause between two looks: the node's own figures are of a second.
const SHORTEST: Nanos = Nanos::from_millis(100);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir top                     a picture a second until Ctrl-C
  weir top -i 5s -n 12         a minute in steps of 5 s
  weir top -n 1 --json         one look, for a program

BUSY is the share of a drive's slots that work. KEPT is the promise of a tenant in the last second that counts: met or MISSED.")]
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
    /// The longest of its drives' in the newest period; for tenants with a promise.
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    promise: Option<SlaState>,
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
            let old = before.devices.iter().find(|old| old.name == device.name).map(|old| &old.io);
            DeviceRates {
                name: device.name.clone(),
                rates: DoneRates::between(old, &device.io, time),
                slots_busy_pct: 100.0 * f64::from(device.slots_busy) / f64::from(device.slots.max(1)),
                queues: device.queues,
                write_amplification: device.flash.as_ref().map(|flash| flash.write_amplification),
                fault: wrong(device),
            }
        });
        let rates = |name: &str, now: &Counters| {
            let old = before.tenants.iter().find(|old| old.name == name).map(|old| &old.io);
            DoneRates::between(old, now, time)
        };
        let all: f64 = now.tenants.iter().map(|tenant| rates(&tenant.name, &tenant.io).bytes()).sum();
        let tenants = now.tenants.iter().map(|tenant| {
            let rates = rates(&tenant.name, &tenant.io);
            TenantRates {
                name: tenant.name.clone(),
                class: tenant.class.clone(),
                weight: tenant.weight,
                rates,
                share_pct: if all > 0.0 { 100.0 * rates.bytes() / all } else { 0.0 },
                p99_ns: tenant.attainment.iter().filter_map(|a| Some(a.last.as_ref()?.p99_ns)).max(),
                promise: promise(&tenant.attainment),
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

    fn text(&self) -> String {
        let busy: Vec<String> = self.busy_pct.iter().map(|busy| format!("{busy:.0}%")).collect();
        let mut devices =
            Table::new(&["DEVICE", ">IOPS", ">READ", ">WRITE", ">ERR/S", ">BUSY", ">QUEUES", ">WA", "WRONG"]);
        for d in &self.devices {
            let amplification = d.write_amplification.map_or_else(String::new, |wa| format!("{wa:.2}"));
            let rest = [format!("{:.0}%", d.slots_busy_pct), d.queues.to_string(), amplification];
            let wrong = d.fault.clone().unwrap_or_default();
            devices.row([d.name.clone()].into_iter().chain(d.rates.cells()).chain(rest).chain([wrong]));
        }
        let mut tenants =
            Table::new(&["TENANT", ">IOPS", ">READ", ">WRITE", ">ERR/S", ">SHARE", ">P99", "CLASS", ">WEIGHT", "KEPT"]);
        for t in &self.tenants {
            let p99 = t.p99_ns.map_or_else(String::new, |ns| time(ns as f64));
            let kept = match t.promise {
                Some(SlaState::Met) => "met",
                Some(SlaState::Missed) => "MISSED",
                Some(SlaState::Unjudged) | None => "",
            };
            let rest = [format!("{:.0}%", t.share_pct), p99, t.class.clone(), t.weight.to_string(), kept.to_owned()];
            tenants.row([t.name.clone()].into_iter().chain(t.rates.cells()).chain(rest));
        }
        format!(
            "node {}  up {:.0} s  cores {} busy; IOPS and MB/s\n\n{}\n{}",
            self.node,
            self.uptime_s,
            busy.join(", "),
            devices.render(),
            tenants.render()
        )
    }
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
        let tenant = |name: &str, reads: u64| {
            json!({"name": name, "class": "high", "urgent": false, "weight": 16, "hosts": [], "controllers": 0, "queues": 0,
                "io": io(reads)})
        };
        serde_json::from_value(json!({"node": "n1", "version": "0", "pid": 1, "state": "serving", "uptime_s": 5.0, "api": [],
            "shards": [{"core": 0, "poll": false, "cpu_s": 0.0, "busy_pct": 40.0}], "doors": [], "exports": [],
            "devices": [{"name": "ssd0", "nqn": "n", "serial": "s", "media": "ram", "interface": "block",
                "capacity_bytes": 1, "block_size": 512, "latency_ns": 0, "slots": 4, "slots_busy": 1, "slot_bytes": 1,
                "arbitration": weir_config::Arbitration::default(), "cost": "bytes", "core": 0, "controllers": 0, "queues": 2, "io": io(device)}],
            "tenants": [tenant("gold", gold), tenant("tin", tin)]}))
        .unwrap()
    }

    #[test]
    fn rates_are_differences() {
        let picture = Picture::between(&status(1000, 800, 200), &status(5000, 3800, 1200), Duration::from_secs(2));
        assert_eq!(picture.devices[0].rates.iops, 2000.0);
        assert_eq!(picture.devices[0].slots_busy_pct, 25.0);
        assert_eq!([picture.tenants[0].share_pct, picture.tenants[1].share_pct], [75.0, 25.0]);
        let text = picture.text();
        assert!(text.contains("ssd0    2000   8.2    0.0"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn counters_that_begin_anew_count_from_nothing() {
        let picture = Picture::between(&status(9000, 9000, 0), &status(100, 100, 0), Duration::from_secs(1));
        assert_eq!(picture.devices[0].rates.iops, 100.0);
        let idle = Picture::between(&status(1, 1, 0), &status(1, 1, 0), Duration::from_secs(1));
        assert_eq!((idle.devices[0].rates, idle.tenants[0].share_pct), (DoneRates::default(), 0.0));
    }
}
