//! What is wrong with a node that runs, and what to do.

use super::finding::Finding;
use weir_api::{
    AttainmentStatus, DeviceStatus, DoorStatus, DriveHealth, LinkStatus, PoolStatus, SlaState, Status, TenantStatus,
    Timing, TimingState, VolumeStatus,
};

/// A verdict that a drive lives with.
const MILD: [&str; 3] = ["busy", "slow", "wear-warning"];

/// What a node says of itself.
#[derive(Debug)]
pub struct Node {
    /// `GET /v1/status`.
    pub status: Status,
    /// `GET /v1/pools`.
    pub pools: Vec<PoolStatus>,
    /// `GET /v1/volumes`.
    pub volumes: Vec<VolumeStatus>,
}

impl Node {
    /// What it means.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.node()];
        let polls = self.status.shards.iter().all(|shard| shard.poll);
        findings.extend(self.status.devices.iter().flat_map(|it| device(it, polls)));
        findings.extend(self.status.tenants.iter().flat_map(tenant));
        findings.extend(self.status.doors.iter().filter_map(door));
        findings.extend(self.pools.iter().flat_map(pool));
        findings.extend(self.volumes.iter().filter_map(volume));
        findings
    }

    fn node(&self) -> Finding {
        let (status, own) = (&self.status, env!("CARGO_PKG_VERSION"));
        let what = format!("node {}", status.node);
        if status.version != own {
            let found = format!("weir {}, and this command is {own}", status.version);
            return Finding::advice(what, found, "`weir upgrade --binary PATH` replaces its program while I/O runs");
        }
        if status.worker_pid == Some(status.pid) {
            let advice = "a crash or a kill ends its connections and loses drives in memory: leave `keeper = false` out of [node]";
            return Finding::advice(what, "it has no keeper", advice);
        }
        Finding::ok(what, format!("weir {}, {:.0} s", status.version, status.uptime_s))
    }
}

fn device(device: &DeviceStatus, polls: bool) -> Vec<Finding> {
    let what = || format!("device {}", device.name);
    let fault = device.fault.as_ref().map(|fault| {
        Finding::problem(what(), fault, "docs: \"A drive whose medium fails\"; the log has the first cause")
    });
    let mut findings: Vec<Finding> = fault.into_iter().collect();
    findings.extend(device.link.as_ref().and_then(|it| link(&what(), it)));
    findings.extend(device.health.as_ref().and_then(|it| health(&what(), &device.name, it)));
    findings.extend(device.timing.as_ref().and_then(|it| timing(&what(), it, polls)));
    if findings.is_empty() {
        findings.push(Finding::ok(what(), format!("{}, {} clients", device.media, device.clients.len())));
    }
    findings
}

fn link(what: &str, link: &LinkStatus) -> Option<Finding> {
    let cause = link.last_cause.as_deref().unwrap_or("no cause is known");
    let found = format!("the link is {} for {:.1} s: {cause}", link.state, link.out_s?);
    let advice =
        "look whether the target runs and is reachable; what is asked of the drive goes on by itself when it is";
    Some(if link.failing {
        Finding::problem(what, found + "; commands fail", advice)
    } else {
        Finding::advice(what, format!("{found}; {} commands wait", link.held), advice)
    })
}

fn health(what: &str, name: &str, health: &DriveHealth) -> Option<Finding> {
    let verdict = health.verdict.as_deref()?;
    let found = match &health.meaning {
        Some(meaning) => format!("{verdict}: {meaning}"),
        None => verdict.to_owned(),
    };
    let advice = health.advice.clone().unwrap_or_else(|| format!("weir device health {name}"));
    Some(if MILD.contains(&verdict) {
        Finding::advice(what, found, advice)
    } else {
        Finding::problem(what, found, advice)
    })
}

fn timing(what: &str, timing: &Timing, polls: bool) -> Option<Finding> {
    let (word, advice) = match timing.state {
        TimingState::OnTime => return None,
        TimingState::Late if polls => ("late", "fewer commands due at once, or more `cores`"),
        TimingState::Late => ("late", "`poll = true` of [node], or fewer commands due at once"),
        TimingState::Overloaded => ("overloaded", "its core has more to do than it can: more `cores`, or less load"),
        TimingState::Starved => ("starved", "other threads take its core: give the node cores of its own"),
    };
    let found = format!(
        "{word}: {:.1} % of its completions are over 5 us late, {:.1} % net",
        timing.late_pct, timing.net_late_pct
    );
    Some(Finding::advice(what, found, advice))
}

fn tenant(tenant: &TenantStatus) -> Vec<Finding> {
    let what = || format!("tenant {}", tenant.name);
    let mut findings: Vec<Finding> =
        tenant.attainment.iter().filter_map(|attainment| promise(&what(), attainment)).collect();
    findings.extend(tenant.admission.iter().map(|line| {
        Finding::advice(what(), line, "`weir plan` says which promises fit; `weir calibrate` measures a drive")
    }));
    findings
}

fn promise(what: &str, attainment: &AttainmentStatus) -> Option<Finding> {
    let AttainmentStatus { device, state, since_s, periods, missed, .. } = attainment;
    match state {
        SlaState::Missed => Some(Finding::problem(
            what,
            format!("its promise on {device} is missed since {since_s} s ({missed} of {periods} seconds)"),
            format!(
                "`weir top` and `weir tenant ls` say who takes what of {device}; `weir plan` finds weights that fit"
            ),
        )),
        SlaState::Met if *missed > 0 => Some(Finding::ok(
            what,
            format!("its promise on {device} is kept, and was missed in {missed} of {periods} seconds"),
        )),
        SlaState::Met | SlaState::Unjudged => None,
    }
}

fn door(door: &DoorStatus) -> Option<Finding> {
    let what = format!("door {} {}", door.kind, door.listen.join(" "));
    (door.refused > 0 || door.pushed_out > 0).then(|| {
        Finding::advice(
            what,
            format!(
                "{} connects found no room, {} connections were pushed out before Connect",
                door.refused, door.pushed_out
            ),
            "the log says which limit; `max_controllers` and the limits of [door.nvme-tcp]",
        )
    })
}

fn pool(pool: &PoolStatus) -> Vec<Finding> {
    let what = format!("pool {}", pool.name);
    let mut findings = Vec::new();
    if let Some(fault) = &pool.fault {
        findings.push(Finding::problem(&what, fault, "make room or mend the drive; the pool goes on by itself then"));
    }
    findings.extend(pool.lost.iter().map(|lost| {
        let found = format!("it serves without {}", lost.device);
        let advice = format!("bring the drive back, or `weir pool replace {} NEW`", lost.device);
        Finding::problem(&what, found, advice)
    }));
    if findings.is_empty() {
        let (free, size) = (pool.free_bytes >> 20, pool.size_bytes >> 20);
        findings.push(Finding::ok(&what, format!("{} drives, {free} of {size} MiB free", pool.drives.len())));
    }
    findings
}

fn volume(volume: &VolumeStatus) -> Option<Finding> {
    let VolumeStatus { name, missing_bytes, replaced_bytes, .. } = volume;
    let what = format!("volume {name}");
    if *replaced_bytes > 0 {
        let found = format!("{replaced_bytes} bytes of it were lost with a drive");
        let advice =
            format!("restore it elsewhere, then `weir pool replace --empty {name}` makes it another, empty disk");
        return Some(Finding::problem(what, found, advice));
    }
    (*missing_bytes > 0).then(|| {
        let found = format!("{missing_bytes} bytes of it lie on lost drives");
        Finding::problem(what, found, "bring the drive back, or replace it")
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;
    use serde_json::{Value, json};

    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn device_json() -> Value {
        let io = json!({"reads": 0, "writes": 0, "others": 0, "read_bytes": 0, "written_bytes": 0, "errors": 0});
        json!({"name": "ssd0", "nqn": "nqn", "serial": "s", "media": "ram", "interface": "block", "capacity_bytes": 1,
            "block_size": 512, "latency_ns": 0, "slots": 1, "slots_busy": 0, "slot_bytes": 1, "arbitration": weir_config::Arbitration::default(),
            "cost": "bytes", "core": 0, "controllers": 0, "queues": 0, "io": io})
    }

    fn node(device: Value, pools: Value, volumes: Value) -> Node {
        let status = json!({"node": "n1", "version": VERSION, "pid": 7, "worker_pid": 8, "state": "serving", "uptime_s": 1.0, "api": [],
            "shards": [], "doors": [], "devices": [device], "tenants": [], "exports": []});
        Node {
            status: serde_json::from_value(status).unwrap(),
            pools: serde_json::from_value(pools).unwrap(),
            volumes: serde_json::from_value(volumes).unwrap(),
        }
    }

    fn with(mut device: Value, key: &str, value: Value) -> Value {
        device[key] = value;
        device
    }

    fn found(node: &Node) -> Vec<(Severity, String)> {
        let findings = node.findings().into_iter().filter(|f| f.severity != Severity::Ok);
        findings.map(|f| (f.severity, format!("{}: {} => {}", f.what, f.found, f.advice))).collect()
    }

    #[test]
    fn a_healthy_node_has_nothing() {
        let node = node(device_json(), json!([]), json!([]));
        assert!(found(&node).is_empty(), "{:?}", found(&node));
        let mut alone = node;
        alone.status.worker_pid = Some(7);
        let alone = alone.findings();
        assert_eq!((alone[0].severity, alone[0].found.as_str()), (Severity::Advice, "it has no keeper"));
    }

    #[test]
    fn what_is_wrong_with_a_drive_is_said() {
        let link = json!({"state": "waiting", "failing": true, "out_s": 12.0, "attempts": 3, "outages": 1, "held": 0,
            "last_cause": "connection refused"});
        let health = json!({"state": "isolated", "commands": "fail", "verdict": "media", "meaning": "it is worn out",
            "advice": "replace it", "bad_blocks": [], "disturbances": 1, "reports": []});
        let cases = [
            (with(device_json(), "fault", json!("EIO")), Severity::Problem, "EIO"),
            (with(device_json(), "link", link.clone()), Severity::Problem, "connection refused; commands fail"),
            (with(device_json(), "link", with(link, "failing", json!(false))), Severity::Advice, "commands wait"),
            (with(device_json(), "health", health.clone()), Severity::Problem, "media: it is worn out => replace it"),
            (with(device_json(), "health", with(health, "verdict", json!("slow"))), Severity::Advice, "slow"),
        ];
        for (device, severity, text) in cases {
            let found = found(&node(device, json!([]), json!([])));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].0 == severity && found[0].1.contains(text), "{found:?} has no {text:?}");
        }
    }

    #[test]
    fn what_is_lost_of_a_pool_is_said() {
        let lost = json!({"number": 1, "uuid": "u", "size_bytes": 1, "device": "ssd1"});
        let pool = json!({"name": "p", "uuid": "u", "size_bytes": 2, "free_bytes": 1, "volumes": 1, "lost": [lost],
            "drives": []});
        let volume = json!({"name": "v", "uuid": "u", "tenant": "t", "pool": "p", "size_bytes": 1, "drives": [],
            "extents": 1, "missing_bytes": 4096, "exports": []});
        let found = found(&node(device_json(), json!([pool]), json!([volume])));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].1.contains("weir pool replace ssd1 NEW") && found[1].1.starts_with("volume v: 4096 bytes"));
    }
}
