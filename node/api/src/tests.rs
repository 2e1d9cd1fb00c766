//! The API over real sockets, in front of a node that exists only here.

use super::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use weir_config::{Address, ApiConfig, ApiRole, ApiToken, Arbitration, ClassFrom, Cost, Mechanism, Shares};
use weir_controller::Latencies;
use weir_node::events::{EventLog, Listener};
use weir_node::lateness::Lateness;
use weir_node::{NamedLatencies, NodeLatencies, VolumeLatencies};
use weir_units::{Ceiling, Nanos, Rates, Sla};

/// A node of one drive and two tenants that does what it is told.
struct Fake {
    arbitration: Mutex<Arbitration>,
    tenants: Mutex<Vec<TenantStatus>>,
    shutdowns: AtomicU32,
    resets: AtomicU32,
    events: EventLog,
}

/// Three short reads and four long ones.
fn latencies() -> Latencies {
    let mut found = Latencies::default();
    (found.reads.counts[0], found.reads.counts[1], found.reads.sum) = (1, 2, 80_500_000_000);
    *found.reads.counts.last_mut().unwrap() = 4;
    found
}

impl Fake {
    fn new() -> Arc<Fake> {
        let tenants = [("gold", "high"), ("sil\"ver", "medium")].map(|(name, class)| TenantStatus {
            name: name.into(),
            class: class.into(),
            urgent: false,
            weight: 1,
            floor: None,
            ceiling: CeilingStatus::of(&Ceiling::new(Rates { iops: Some(9), bandwidth: None })),
            sla: SlaStatus::of(&Sla { p99: Some(Nanos(3)), ..Sla::default() }),
            attainment: vec![AttainmentStatus {
                device: "ssd0".into(),
                state: SlaState::Missed,
                since_s: 4,
                periods: 30,
                missed: 5,
                missed_rate: 3,
                missed_latency: 2,
                last: Some(PeriodStatus {
                    commands: 1,
                    iops: 2,
                    bandwidth_bytes_per_s: 3,
                    p50_ns: 4,
                    p99_ns: 5,
                    p999_ns: 6,
                    max_ns: 7,
                    missed_rate: true,
                    missed_latency: false,
                }),
            }],
            hosts: vec!["*".into()],
            controllers: 1,
            queues: 4,
            connections: 2,
            admission: vec!["tenant gold on ssd0: unknown".into()],
            at_ceiling: true,
            latency: vec![LatencyBucket { over_ns: 100_000, up_to_ns: Some(250_000), commands: 7 }],
            io: Counters { reads: 1, writes: 2, others: 3, read_bytes: 4, written_bytes: 5, errors: 6 },
        });
        let arbitration = Mutex::new(Arbitration::default());
        Arc::new(Fake {
            arbitration,
            tenants: Mutex::new(tenants.into()),
            shutdowns: AtomicU32::new(0),
            resets: AtomicU32::new(0),
            events: EventLog::default(),
        })
    }

    fn device(&self) -> DeviceStatus {
        DeviceStatus {
            name: "ssd0".into(),
            nqn: "nqn.x".into(),
            serial: "S".into(),
            media: "ram".into(),
            interface: "block".into(),
            profile: Some("p3700".into()),
            capacity_bytes: 1 << 30,
            block_size: 512,
            latency_ns: 0,
            slots: 64,
            slots_busy: 2,
            slot_time_ns: 9,
            slot_bytes: 4 << 20,
            arbitration: *self.arbitration.lock().unwrap(),
            cost: Cost::Bytes,
            core: 0,
            controllers: 1,
            queues: 4,
            io: Counters::default(),
            fault: None,
            health: Some(health()),
            link: None,
            timing: Some(self.timing()),
            flash: Some(flash()),
            clients: Vec::new(),
        }
    }

    fn timing(&self) -> Timing {
        Timing {
            state: TimingState::Overloaded,
            state_s: 34.5,
            late_pct: 62.0,
            net_late_pct: 61.0,
            completions: 1000,
            over_5us: 620,
            over_20us: 300,
            net_over_5us: 610,
            net_over_20us: 290,
            overloads: 2,
            overloaded_s: 40.0,
        }
    }
}

fn health() -> DriveHealth {
    DriveHealth {
        state: "isolated".into(),
        commands: "fail".into(),
        verdict: Some("media".into()),
        meaning: Some("m".into()),
        advice: Some("a".into()),
        bad_blocks: vec![BlockRange { lba: 8, blocks: 1 }],
        failing_blocks: vec![FailingBlockStatus { nsid: 1, lba: 8, errors: 2, last_ago_s: 0.5 }],
        failing_dies: vec![FailingDieStatus { die: 3, errors: 2, last_ago_s: 0.5 }],
        critical_warning: Some(4),
        available_spare_pct: Some(9),
        media_errors: Some(9),
        speed: Some(DriveSpeed {
            state: "slow".into(),
            why: None,
            factor: Some(5.0),
            die: Some(2),
            dies: vec![SlowDie { die: 2, factor: 5.0 }],
            windows: 9,
            dropped: 1,
        }),
        disturbances: 3,
        verdicts: vec![VerdictTotal { verdict: "media".into(), disturbances: 3 }],
        last_pause_s: Some(0.5),
        reports: vec![DriveReport {
            began_ago_s: 2.0,
            took_s: Some(1.0),
            verdict: "media".into(),
            steps: vec![DriveReportStep { after_s: 0.0, seen: Some("s".into()), done: Some("d".into()) }],
            unlisted: 1,
        }],
    }
}

fn flash() -> FlashStatus {
    FlashStatus {
        write_amplification: 1.5,
        erases: 7,
        gc: GcStatus { victims: 3, moved_units: 9, ..GcStatus::default() },
        wear: WearStatus { min: 1, mean: 2.5, max: 4 },
        utilisation: UtilisationStatus { dies: vec![0.25, 0.5], channels: vec![0.125] },
        ..FlashStatus::default()
    }
}

fn fault(device: &str, id: u32, rule: &str) -> FaultStatus {
    FaultStatus { device: device.into(), id, rule: rule.into(), active: true, matched: 3, applied: 2 }
}

impl Control for Fake {
    fn events(&self, after: u64) -> Vec<NodeEvent> {
        self.events.after(after)
    }

    fn last_event(&self) -> u64 {
        self.events.last()
    }

    fn on_event(&self, listener: Listener) {
        self.events.listen(listener);
    }

    fn config(&self) -> Result<String, Refusal> {
        Ok("[node]\nname = \"n1\"\n".into())
    }

    fn status(&self) -> Result<Status, Refusal> {
        Ok(Status {
            node: "n1".into(),
            version: "0".into(),
            pid: 1,
            worker_pid: Some(2),
            state: State::Serving,
            uptime_s: 1.5,
            start: vec![StartStep { name: "drives".into(), ns: 120_000 }],
            api: vec!["unix:x".into()],
            shards: vec![ShardStatus { core: 0, poll: false, cpu_s: 0.25, busy_pct: 97.5 }],
            doors: vec![DoorStatus {
                kind: "nvme-tcp".into(),
                listen: vec!["127.0.0.1:4420".into()],
                connections: 3,
                unconnected: 1,
                pushed_out: 2,
                refused: 4,
            }],
            devices: self.devices()?,
            tenants: self.tenants()?,
            exports: self.exports()?,
        })
    }

    fn devices(&self) -> Result<Vec<DeviceStatus>, Refusal> {
        Ok(vec![self.device()])
    }

    fn tenants(&self) -> Result<Vec<TenantStatus>, Refusal> {
        Ok(self.tenants.lock().unwrap().clone())
    }

    fn exports(&self) -> Result<Vec<ExportStatus>, Refusal> {
        let export = |door: &str, tenant: Option<&str>| ExportStatus {
            device: "ssd0".into(),
            volume: None,
            door: door.into(),
            addresses: vec!["a".into(), "b".into()],
            tenant: tenant.map(String::from),
            class_from: ClassFrom::Tenant,
            queues: 4,
            read_only: false,
            clients: 1,
            recovered: tenant.map(|_| RecoveredStatus::default()),
        };
        Ok(vec![export("nvme-tcp", None), export("vhost-user", Some("gold"))])
    }

    fn device_stats(&self, name: &str, reset: bool) -> Result<DeviceStats, Refusal> {
        if name != "ssd0" {
            return Err(Refusal::NotFound(format!("there is no device \"{name}\"")));
        }
        self.resets.fetch_add(u32::from(reset), Ordering::SeqCst);
        let mut lateness = Lateness::new(Nanos(0));
        for late in [0, 249, 300, 4_999, 5_001, 30_000, 99_000_000] {
            lateness.record((Nanos(100), Nanos(late)), (Nanos(100 + late), Nanos(0)));
        }
        Ok(DeviceStats {
            device: name.into(),
            core: 0,
            poll: true,
            core_busy_pct: 12.5,
            core_wait_s: Some(0.25),
            timing: Some(lateness.summary(Nanos(1)).into()),
            completion_error: Some(CompletionError::new(&lateness, Nanos::from_secs(2))),
            flash: Some(flash()),
        })
    }

    fn latencies(&self) -> Result<NodeLatencies, Refusal> {
        let named = |name: &str, latencies| NamedLatencies { name: name.into(), latencies };
        let volume = VolumeLatencies { volume: "v0".into(), tenant: "gold".into(), latencies: Latencies::default() };
        Ok(NodeLatencies {
            devices: vec![named("ssd0", Latencies::default())],
            tenants: vec![named("gold", latencies())],
            volumes: vec![volume],
        })
    }

    fn faults(&self, device: &str) -> Result<Vec<FaultStatus>, Refusal> {
        Ok(vec![fault(device, 1, "hang lba=8")])
    }
    fn add_fault(&self, device: &str, add: &FaultAdd) -> Result<FaultStatus, Refusal> {
        let rule = add.rule().map_err(Refusal::Invalid)?;
        Ok(fault(device, 2, &rule.to_string()))
    }
    fn remove_fault(&self, device: &str, id: u32) -> Result<FaultStatus, Refusal> {
        match id {
            1 => Ok(fault(device, 1, "hang lba=8")),
            _ => Err(Refusal::NotFound(format!("device \"{device}\" has no rule {id}"))),
        }
    }
    fn generation(&self) -> u64 {
        0
    }
    fn may_inject(&self) -> bool {
        true
    }
    fn device_board(&self, name: &str) -> Result<DriveBoardStatus, Refusal> {
        if name != "ssd0" {
            return Err(Refusal::NotFound(format!("there is no device \"{name}\"")));
        }
        let die = DieStatus { busy_ns: 5, blocks: 4, bad: 1, free: 2, erases: 9, most_erases: 4 };
        let queue = QueueStatus {
            tenant: "gold".into(),
            host: "h".into(),
            controller: 1,
            qid: 1,
            class: "high".into(),
            waiting: 3,
            in_flight: 2,
        };
        let share = ShareStatus {
            name: "gold".into(),
            class: "high".into(),
            weight: 1,
            queues: 1,
            waiting: 3,
            in_flight: 2,
            held: false,
            io: Counters::default(),
            promised_iops: Some(5),
            promised_bytes_per_s: None,
        };
        Ok(DriveBoardStatus {
            device: name.into(),
            at_s: 1.0,
            in_flight: 2,
            slots: 64,
            bytes_in_flight: 8192,
            channels: 1,
            dies: vec![die; 2],
            queues: vec![queue],
            tenants: vec![share],
            left_out: 0,
            faults: self.faults(name)?,
        })
    }
    fn plan_device(&self, name: &str, asked: &PlanAsked) -> Result<PlanStatus, Refusal> {
        let share = |share| PredictedShare { share, iops: Some(2.0), bytes_per_s: Some(3.0) };
        let after = share(if asked.weights.is_some() { 0.75 } else { 0.5 });
        let tenants = vec![PlannedTenant { name: "gold".into(), before: share(0.5), after }];
        Ok(PlanStatus { device: name.into(), predicts_rates: true, tenants })
    }

    fn power_cut(&self, name: &str) -> Result<PowerCutStatus, Refusal> {
        if name != "ssd0" {
            return Err(Refusal::Conflict(format!("device \"{name}\" keeps nothing")));
        }
        Ok(PowerCutStatus {
            name: name.into(),
            lost_units: 1,
            lost_writes: 2,
            pages_read: 3,
            rebuild_ns: 4,
            power_cycles: 6,
            unsafe_shutdowns: 5,
        })
    }

    fn set_device(&self, name: &str, patch: &DevicePatch) -> Result<DeviceStatus, Refusal> {
        match name {
            "ssd0" => {
                let mut arbitration = self.arbitration.lock().unwrap();
                *arbitration = patch.apply(*arbitration);
                drop(arbitration);
                Ok(self.device())
            }
            "panic" => panic!("a broken invariant"),
            _ => Err(Refusal::NotFound(format!("there is no device \"{name}\""))),
        }
    }

    fn set_tenant(&self, name: &str, patch: &TenantPatch) -> Result<TenantStatus, Refusal> {
        let mut tenants = self.tenants.lock().unwrap();
        let tenant = tenants.iter_mut().find(|t| t.name == name);
        let tenant = tenant.ok_or_else(|| Refusal::NotFound(format!("there is no tenant \"{name}\"")))?;
        if patch.class.as_deref() == Some("urgent") {
            return Err(Refusal::Conflict("urgent is not allowed".into()));
        }
        tenant.class = patch.class.clone().unwrap_or(tenant.class.clone());
        tenant.weight = patch.weight.unwrap_or(tenant.weight);
        Ok(tenant.clone())
    }

    fn add_tenant(&self, tenant: &TenantAdd) -> Result<TenantStatus, Refusal> {
        let mut tenants = self.tenants.lock().unwrap();
        let (name, hosts) = (tenant.name.clone(), tenant.hosts.clone());
        let class = tenant.class.clone().unwrap_or("medium".into());
        let weight = tenant.weight.unwrap_or(1);
        let added = TenantStatus { name, hosts, class, weight, ..tenants[0].clone() };
        tenants.push(added.clone());
        Ok(added)
    }

    fn remove_tenant(&self, name: &str) -> Result<TenantStatus, Refusal> {
        let mut tenants = self.tenants.lock().unwrap();
        let at = tenants.iter().position(|t| t.name == name);
        Ok(tenants.remove(at.ok_or_else(|| Refusal::NotFound(format!("there is no tenant \"{name}\"")))?))
    }

    fn add_export(&self, export: &ExportAdd) -> Result<ExportStatus, Refusal> {
        let like = self.exports()?.swap_remove(0);
        Ok(ExportStatus { door: "vfio-user".into(), addresses: vec![export.socket.clone()], ..like })
    }

    fn remove_export(&self, socket: &str) -> Result<ExportStatus, Refusal> {
        let is = |e: &ExportStatus| e.addresses.iter().any(|a| a == socket);
        let found = self.exports()?.into_iter().find(is);
        found.ok_or_else(|| Refusal::NotFound(format!("there is no export at {socket}")))
    }

    fn pools(&self) -> Result<Vec<PoolStatus>, Refusal> {
        let drive = PoolDrive {
            device: "ssd0".into(),
            number: 0,
            uuid: "u".into(),
            size_bytes: 3,
            free_bytes: 2,
            emptying_bytes: 0,
            largest_free_bytes: 1,
        };
        let (name, fault) = ("pool0".into(), Some("broken".into()));
        let uuid = "u".into();
        let lost = vec![LostPoolDrive { number: 1, uuid: "v".into(), size_bytes: 4, device: "ssd1".into() }];
        let (size_bytes, free_bytes, volumes) = (3, 2, 1);
        let scrub =
            Some(ScrubStatus { running: true, repair: false, compared_bytes: 5, differing_bytes: 6, failed_bytes: 7 });
        Ok(vec![PoolStatus { name, uuid, size_bytes, free_bytes, volumes, fault, lost, scrub, drives: vec![drive] }])
    }

    fn add_pool_drive(&self, pool: &str, drive: &PoolDriveAdd) -> Result<PoolStatus, Refusal> {
        Err(Refusal::Conflict(format!("{} does not join {pool}", drive.device)))
    }

    fn remove_pool_drive(&self, pool: &str, device: &str) -> Result<PoolStatus, Refusal> {
        Err(Refusal::Conflict(format!("{device} does not leave {pool}")))
    }

    fn take_out_pool_drive(&self, pool: &str, device: &str) -> Result<PoolStatus, Refusal> {
        Err(Refusal::Conflict(format!("{device} is lost already in {pool}")))
    }

    fn bring_back_pool_drive(&self, pool: &str, device: &str) -> Result<PoolStatus, Refusal> {
        Err(Refusal::Conflict(format!("{device} is not lost in {pool}")))
    }

    fn replace_pool_drive(&self, pool: &str, replace: &PoolDriveReplace) -> Result<PoolStatus, Refusal> {
        Err(Refusal::Conflict(format!("{} does not replace {} in {pool}", replace.device, replace.lost)))
    }

    fn scrub_pool(&self, pool: &str, scrub: &PoolScrub) -> Result<PoolStatus, Refusal> {
        Err(Refusal::Conflict(format!("{pool} is being compared (repair {})", scrub.repair)))
    }

    fn stop_scrub(&self, pool: &str) -> Result<PoolStatus, Refusal> {
        Err(Refusal::Conflict(format!("{pool} is not being compared")))
    }

    fn empty_volume(&self, name: &str) -> Result<VolumeStatus, Refusal> {
        self.volume(name)
    }

    fn volumes(&self) -> Result<Vec<VolumeStatus>, Refusal> {
        Ok(vec![VolumeStatus {
            name: "v0".into(),
            uuid: "u".into(),
            tenant: "gold".into(),
            pool: "pool0".into(),
            size_bytes: 1 << 20,
            drives: vec!["ssd0".into()],
            extents: 1,
            missing_bytes: 0,
            replaced_bytes: 0,
            copies: 1,
            alone_bytes: 0,
            rebuilding_bytes: 0,
            snapshot_of: None,
            own_bytes: 1 << 20,
            nqn: Some("nqn".into()),
            exports: vec!["nvme-tcp".into()],
        }])
    }

    fn volume(&self, name: &str) -> Result<VolumeStatus, Refusal> {
        let found = self.volumes()?.into_iter().find(|v| v.name == name);
        found.ok_or_else(|| Refusal::NotFound(format!("there is no volume \"{name}\"")))
    }

    fn volume_contents(&self, name: &str, from: u64) -> Result<VolumeContents, Refusal> {
        self.volume(name)?;
        Ok(VolumeContents {
            ranges: vec![DataRange { offset_bytes: from, size_bytes: 1 << 20 }],
            next_bytes: Some(1 << 30),
        })
    }

    fn add_volume(&self, volume: &VolumeAdd) -> Result<VolumeStatus, Refusal> {
        Ok(VolumeStatus { name: volume.name.clone(), ..self.volumes()?.swap_remove(0) })
    }

    fn set_volume(&self, name: &str, patch: &VolumePatch) -> Result<VolumeStatus, Refusal> {
        let found = self.volume(name)?;
        Ok(VolumeStatus { size_bytes: patch.size_bytes.unwrap_or(found.size_bytes), ..found })
    }

    fn remove_volume(&self, name: &str) -> Result<VolumeStatus, Refusal> {
        self.set_volume(name, &VolumePatch::default())
    }

    fn add_snapshot(&self, volume: &str, snapshot: &VolumeSnapshotAdd) -> Result<VolumeStatus, Refusal> {
        let found = self.volume(volume)?;
        Ok(VolumeStatus { name: format!("{volume}@{}", snapshot.name), snapshot_of: Some(volume.into()), ..found })
    }

    fn add_clone(&self, snapshot: &str, clone: &VolumeClone) -> Result<VolumeStatus, Refusal> {
        Ok(VolumeStatus { name: clone.name.clone(), ..self.volume(snapshot)? })
    }

    fn roll_back(&self, snapshot: &str) -> Result<VolumeStatus, Refusal> {
        self.volume(snapshot)
    }

    fn add_volume_export(&self, name: &str, export: &VolumeExport) -> Result<VolumeStatus, Refusal> {
        let found = self.set_volume(name, &VolumePatch::default())?;
        Ok(VolumeStatus { exports: vec![export.door.clone()], ..found })
    }

    fn upgrade_status(&self) -> UpgradeStatus {
        UpgradeStatus {
            number: 2,
            state: UpgradeState::RolledBack,
            binary: "/new".into(),
            reason: Some("it crashed".into()),
            prepare_ns: Some(1),
            hand_over_ns: Some(2),
            take_over_ns: Some(3),
            renew_ns: None,
            keeper: None,
        }
    }

    fn upgrade(&self, start: &UpgradeStart) -> Result<UpgradeStatus, Refusal> {
        match &start.binary {
            Some(binary) => Ok(UpgradeStatus { binary: binary.clone(), number: 3, ..UpgradeStatus::default() }),
            None => Err(Refusal::Conflict("one is under way".into())),
        }
    }

    fn shutdown(&self) {
        self.shutdowns.fetch_add(1, Ordering::SeqCst);
    }
}

const READ: &str = "0123456789abcdef-read";
const OPERATE: &str = "0123456789abcdef-operate";
const ADMIN: &str = "0123456789abcdef-admin";

fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("weir-api-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A served fake with a folder of its own.
struct Served {
    fake: Arc<Fake>,
    running: Option<Running>,
    dir: PathBuf,
}

impl Served {
    fn new(name: &str) -> Served {
        Served::with(folder(name), &[])
    }

    /// With these tokens, in files of its folder.
    fn with(dir: PathBuf, tokens: &[(ApiRole, &str)]) -> Served {
        let one = |(i, (role, token)): (usize, &(ApiRole, &str))| {
            let file = dir.join(format!("{i}.token"));
            std::fs::write(&file, format!("{token}\n")).unwrap();
            std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            ApiToken { role: *role, file }
        };
        let config = ApiConfig { tokens: tokens.iter().enumerate().map(one).collect(), tls: None };
        let (tokens, wrong) = Tokens::load(&config);
        assert!(wrong.is_empty(), "{wrong:?}");
        let addresses = [Address::Unix(dir.join("a.sock")), Address::Tcp(([127, 0, 0, 1], 0).into())];
        let fake = Fake::new();
        let bound = Bound::bind(&addresses, &weir_sys::keeper_channel::Keep::none()).unwrap();
        let running = bound.serve(fake.clone(), tokens, None).unwrap();
        Served { fake, running: Some(running), dir }
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("a.sock")
    }

    fn port(&self) -> std::net::SocketAddr {
        match self.running.as_ref().unwrap().addresses()[1] {
            Address::Tcp(address) => address,
            Address::Unix(_) => unreachable!(),
        }
    }

    fn ask(&self, request: &str) -> (u16, String) {
        exchange(UnixStream::connect(self.socket()).unwrap(), request)
    }

    fn ask_port(&self, request: &str) -> (u16, String) {
        exchange(TcpStream::connect(self.port()).unwrap(), request)
    }

    fn get(&self, path: &str) -> Value {
        let (code, body) = self.ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
        assert_eq!(code, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    fn patch(&self, path: &str, body: &str) -> (u16, Value) {
        let (code, body) = self.ask(&with_body("PATCH", path, "application/json", body));
        (code, serde_json::from_str(&body).unwrap_or_else(|e| panic!("{body}: {e}")))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.running.take());
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn with_body(method: &str, path: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn exchange(mut stream: impl Read + Write, request: &str) -> (u16, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A body that is refused unread may end in a reset after the answer.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (head[9..12].parse().unwrap(), body.to_string())
}

#[test]
fn what_the_node_says_is_told() {
    let served = Served::new("told");
    let status = served.get("/v1/status");
    assert_eq!(serde_json::from_value::<Status>(status).unwrap(), served.fake.status().unwrap());
    assert_eq!(served.get("/v1/devices")[0]["name"], "ssd0");
    assert_eq!(served.get("/v1/devices/ssd0")["arbitration"]["quanta"]["high"], 131_072);
    assert_eq!(served.get("/v1/tenants")[0]["class"], "high");
    assert_eq!(served.get("/v1/tenants/gold")["io"]["errors"], 6);
    assert_eq!(served.get("/v1/exports")[0].get("tenant"), None);
    assert_eq!(served.get("/v1/exports")[1]["tenant"], "gold");
}

#[test]
fn shares_change_and_what_is_left_out_stays() {
    let served = Served::new("patch");
    let (code, device) = served.patch("/v1/devices/ssd0", r#"{"mechanism":"wrr","weights":{"low":1},"burst":3}"#);
    assert_eq!((code, &device["arbitration"]["weights"]), (200, &json!({"high": 32, "medium": 16, "low": 1})));
    let now = *served.fake.arbitration.lock().unwrap();
    assert_eq!((now.mechanism, now.burst, now.quanta), (Mechanism::Wrr, Some(3), Arbitration::default().quanta));
    let (code, _) = served.patch("/v1/devices/ssd0", r#"{"burst":null,"quanta":{"high":8192}}"#);
    let now = *served.fake.arbitration.lock().unwrap();
    assert_eq!((code, now.burst, now.quanta), (200, None, Shares { high: 8192, medium: 65536, low: 32768 }));
    let (code, tenant) = served.patch("/v1/tenants/gold", r#"{"class":"low","weight":9}"#);
    assert_eq!((code, &tenant["class"], &tenant["weight"]), (200, &json!("low"), &json!(9)));
    let (code, tenant) = served.patch("/v1/tenants/sil%22ver", r#"{"weight":2}"#);
    assert_eq!((code, &tenant["class"]), (200, &json!("medium")));
}

#[test]
fn completion_times_are_told_and_measured_anew() {
    let served = Served::new("timing");
    assert_eq!(served.get("/v1/devices/ssd0")["timing"]["state"], "overloaded");
    let stats = served.get("/v1/devices/ssd0/stats");
    assert_eq!(
        serde_json::from_value::<DeviceStats>(stats.clone()).unwrap(),
        served.fake.device_stats("ssd0", false).unwrap()
    );
    let timing = &stats["timing"];
    assert_eq!([&timing["completions"], &timing["over_5us"], &timing["net_over_20us"]], [7, 3, 2]);
    let error = &stats["completion_error"];
    assert_eq!((&error["raw_ns"]["max"], &error["measured_s"]), (&json!(99_000_000), &json!(2.0)));
    let bucket = |from: u64, to: Option<u64>, n: u64| match to {
        Some(to) => json!({ "from_ns": from, "to_ns": to, "raw": n, "net": n }),
        None => json!({ "from_ns": from, "raw": n, "net": n }),
    };
    let wanted = [
        bucket(0, Some(250), 2),
        bucket(250, Some(500), 1),
        bucket(2_000, Some(5_000), 2),
        bucket(20_000, Some(50_000), 1),
        bucket(10_000_000, None, 1),
    ];
    // 5001 lies in a fine bucket that begins at 4992.
    assert_eq!(error["buckets"], json!(wanted));
    assert_eq!(served.fake.resets.load(Ordering::SeqCst), 0);
    let (code, answer) = served.ask(&with_body("POST", "/v1/devices/ssd0/stats/reset", "application/json", ""));
    assert_eq!((code, serde_json::from_str::<Value>(&answer).unwrap()), (200, stats));
    assert_eq!(served.fake.resets.load(Ordering::SeqCst), 1);
    let (code, answer) = served.ask(&with_body("GET", "/v1/devices/x/stats", "application/json", ""));
    assert!(code == 404 && answer.contains("no device"), "{code} {answer}");
}

#[test]
fn wrong_values_are_refused_in_json() {
    let served = Served::new("wrong");
    for (path, body, code, error) in [
        (
            "/v1/devices/ssd0",
            "{}",
            400,
            "nothing to change; give mechanism, weights, burst, quanta, capacity_bytes, ana or spare_percent",
        ),
        ("/v1/devices/ssd0", r#"{"weights":{"high":0}}"#, 400, "weights: 1 to 256 is allowed"),
        ("/v1/devices/ssd0", r#"{"weights":{"low":257}}"#, 400, "weights: 1 to 256 is allowed"),
        ("/v1/devices/ssd0", r#"{"burst":7}"#, 400, "burst: 0 to 6 (a power of two) or null is allowed"),
        ("/v1/devices/ssd0", r#"{"quanta":{"medium":4095}}"#, 400, "quanta: 4096 to 1073741824 bytes is allowed"),
        ("/v1/devices/ssd0", r#"{"spare_percent":101}"#, 400, "spare_percent: 0 to 100 is allowed"),
        ("/v1/devices/x", r#"{"burst":1}"#, 404, "there is no device \"x\""),
        ("/v1/tenants/gold", "{}", 400, "nothing to change; give class, weight, floor, ceiling or sla"),
        ("/v1/tenants/gold", r#"{"weight":0}"#, 400, "weight: 1 to 256 is allowed"),
        ("/v1/tenants/gold", r#"{"class":"best"}"#, 400, "class: urgent, high, medium or low is allowed"),
        ("/v1/tenants/gold", r#"{"class":"urgent"}"#, 409, "urgent is not allowed"),
        ("/v1/tenants/x", r#"{"weight":1}"#, 404, "there is no tenant \"x\""),
    ] {
        let (got, answer) = served.patch(path, body);
        assert_eq!((got, &answer["error"]), (code, &json!(error)), "{path} {body}");
    }
    for (body, part) in [
        (r#"{"wieght":1}"#, "unknown field `wieght`"),
        (r#"{"weight":"1"}"#, "invalid type"),
        ("{", "EOF"),
        ("3", "invalid type"),
        ("", "EOF"),
    ] {
        let (code, answer) = served.patch("/v1/tenants/gold", body);
        assert!(code == 400 && answer["error"].as_str().unwrap().contains(part), "{body}: {code} {answer}");
    }
    let (code, answer) = served.ask(&with_body("PATCH", "/v1/tenants/gold", "text/plain", "{}"));
    assert!(code == 415 && answer.contains("application/json"), "{answer}");
    let (code, answer) = served.patch("/v1/devices/panic", r#"{"burst":1}"#);
    let why = "the call failed; the node's log says why";
    let problem =
        json!({ "type": "about:blank", "title": "Internal Server Error", "status": 500, "detail": why, "error": why });
    assert_eq!((code, answer), (500, problem));
    assert_eq!(served.get("/v1/devices/ssd0")["name"], "ssd0", "and the API goes on");
}

#[test]
fn bodies_are_bounded() {
    let served = Served::new("bounded");
    let huge = format!("{{\"class\":\"{}\"}}", "x".repeat(65536));
    let (code, answer) = served.ask(&with_body("PATCH", "/v1/tenants/gold", "application/json", &huge));
    assert!(code == 413 && answer.contains("\"error\""), "{code} {answer}");
}

#[test]
fn what_is_not_there() {
    let served = Served::new("absent");
    for (method, path, code, part) in [
        ("GET", "/v2/status", 404, "there is no /v2/status; GET /openapi.json lists what there is"),
        ("GET", "/v1/devices/x", 404, "there is no device \\\"x\\\"; there is ssd0"),
        ("GET", "/v1/tenants/x", 404, "there is no tenant \\\"x\\\"; there is gold, sil\\\"ver"),
        ("DELETE", "/v1/status", 405, "/v1/status does not take DELETE"),
        ("GET", "/v1/shutdown", 405, "/v1/shutdown does not take GET"),
    ] {
        let (got, body) = served.ask(&format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
        assert!(got == code && body.contains(part), "{method} {path}: {got} {body}");
    }
    assert_eq!(served.fake.shutdowns.load(Ordering::SeqCst), 0);
}

#[test]
fn upgrades_are_passed_on() {
    let served = Served::new("upgrade");
    let ask = |body: &str| {
        let (code, answer) = served.ask(&with_body("POST", "/v1/upgrade", "application/json", body));
        (code, serde_json::from_str::<Value>(&answer).unwrap())
    };
    assert_eq!(
        ask(r#"{"binary":"/x","probation_ns":0}"#),
        (202, json!({ "number": 3, "state": "none", "binary": "/x" }))
    );
    let (code, answer) = ask("{}");
    assert_eq!((code, &answer["error"]), (409, &json!("one is under way")));
    for (body, part) in [
        (r#"{"within_ns":1}"#, "within_ns: 1 ms to 1 h"),
        (r#"{"probation_ns":3600000000001}"#, "probation_ns: 0 to 1 h"),
        (r#"{"program":"/x"}"#, "program"),
    ] {
        let (code, answer) = ask(body);
        assert!(code == 400 && answer["error"].as_str().unwrap().contains(part), "{body}: {code} {answer}");
    }
    assert_eq!(served.get("/v1/upgrade")["state"], "rolled-back");
}

#[test]
fn shutdown_is_passed_on() {
    let served = Served::new("shutdown");
    let post = "POST /v1/shutdown HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(served.ask(post), (202, "{\"state\":\"draining\"}".to_string()));
    assert_eq!(served.fake.shutdowns.load(Ordering::SeqCst), 1);
}

#[test]
fn a_web_page_reaches_nothing() {
    let served = Served::new("foreign");
    let port = served.port().port();
    let ask = |host: &str, more: &str| {
        served.ask_port(&format!("GET /v1/status HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n")).0
    };
    assert_eq!(ask(&format!("127.0.0.1:{port}"), ""), 200);
    assert_eq!(ask(&format!("localhost:{port}"), ""), 200);
    assert_eq!(ask("[::1]", ""), 200);
    assert_eq!(ask(&format!("127.0.0.1:{port}"), &format!("Origin: http://127.0.0.1:{port}\r\n")), 200);
    // DNS rebinding, and a page of somebody else.
    assert_eq!(ask("evil.example", ""), 403);
    assert_eq!(ask(&format!("127.0.0.1.evil.example:{port}"), ""), 403);
    assert_eq!(ask(&format!("127.0.0.1:{port}"), "Origin: http://evil.example\r\n"), 403);
    assert_eq!(ask(&format!("127.0.0.1:{port}"), "Origin: null\r\n"), 403);
    let post =
        "POST /v1/shutdown HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(served.ask_port(post).0, 403);
    assert_eq!(served.fake.shutdowns.load(Ordering::SeqCst), 0);
}

/// Whoever can open the socket commands the node; the port is anybody's.
#[test]
fn a_program_is_named_over_the_socket_only() {
    let dir = folder("program");
    let served = Served::with(dir, &[(ApiRole::Admin, ADMIN)]);
    let ask = |body: &str| with_body("POST", "/v1/upgrade", "application/json", body);
    let shown = |body: &str| ask(body).replacen("\r\n", &format!("\r\nAuthorization: Bearer {ADMIN}\r\n"), 1);
    let (code, said) = served.ask_port(&shown(r#"{"binary":"/bin/sh"}"#));
    assert!(code == 403 && said.contains("UNIX socket"), "{code} {said}");
    assert_eq!(served.ask_port(&shown("{}")).0, served.ask(&ask("{}")).0);
    assert_ne!(served.ask_port(&shown("{}")).0, 403);
    assert_ne!(served.ask(&ask(r#"{"binary":"/bin/sh"}"#)).0, 403);
}

#[test]
fn metrics_are_prometheus_text() {
    let served = Served::new("metrics");
    let (code, page) = served.ask("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(code, 200);
    for line in [
        "weir_up{node=\"n1\",version=\"0\"} 1",
        "weir_pool_lost_drives{pool=\"pool0\"} 1",
        "weir_shard_cpu_seconds_total{core=\"0\"} 0.25",
        "weir_device_capacity_bytes{device=\"ssd0\"} 1073741824",
        "weir_shard_busy_percent{core=\"0\"} 97.5",
        "weir_device_modelled_completions_total{device=\"ssd0\"} 1000",
        "weir_device_late_completions_total{device=\"ssd0\",over=\"5us\",time=\"raw\"} 620",
        "weir_device_late_completions_total{device=\"ssd0\",over=\"20us\",time=\"net\"} 290",
        "weir_device_overloaded{device=\"ssd0\"} 1",
        "weir_device_overloaded_seconds_total{device=\"ssd0\"} 40",
        "weir_device_health_state{device=\"ssd0\",state=\"isolated\"} 1",
        "weir_device_health_state{device=\"ssd0\",state=\"serving\"} 0",
        "weir_device_disturbances_total{device=\"ssd0\",verdict=\"media\"} 3",
        "weir_device_last_pause_seconds{device=\"ssd0\"} 0.5",
        "weir_device_bad_ranges{device=\"ssd0\"} 1",
        "weir_flash_write_amplification{device=\"ssd0\"} 1.5",
        "weir_flash_gc_moved_units_total{device=\"ssd0\"} 9",
        "weir_flash_block_erases{device=\"ssd0\",block=\"mean\"} 2.5",
        "weir_flash_busy_ratio{device=\"ssd0\",die=\"1\"} 0.5",
        "weir_flash_busy_ratio{device=\"ssd0\",channel=\"0\"} 0.125",
        "weir_tenant_commands_total{tenant=\"gold\",op=\"write\"} 2",
        "weir_tenant_bytes_total{tenant=\"sil\\\"ver\",op=\"read\"} 4",
        "weir_tenant_errors_total{tenant=\"gold\"} 6",
        "# TYPE weir_tenant_io_latency_seconds histogram",
        "weir_device_io_latency_seconds_count{device=\"ssd0\",op=\"other\"} 0",
        "weir_tenant_io_latency_seconds_bucket{tenant=\"gold\",op=\"read\",le=\"0.000001\"} 1",
        "weir_tenant_io_latency_seconds_bucket{tenant=\"gold\",op=\"read\",le=\"0.0000025\"} 3",
        "weir_tenant_io_latency_seconds_bucket{tenant=\"gold\",op=\"read\",le=\"10\"} 3",
        "weir_tenant_io_latency_seconds_bucket{tenant=\"gold\",op=\"read\",le=\"+Inf\"} 7",
        "weir_tenant_io_latency_seconds_sum{tenant=\"gold\",op=\"read\"} 80.5",
        "weir_tenant_io_latency_seconds_count{tenant=\"gold\",op=\"read\"} 7",
        "weir_volume_io_latency_seconds_count{volume=\"v0\",tenant=\"gold\",op=\"write\"} 0",
    ] {
        assert!(page.lines().any(|l| l == line), "{line} is missing in\n{page}");
    }
    // Every sample stands under the TYPE of its family.
    let mut family = "";
    for line in page.lines() {
        match line.strip_prefix("# TYPE ") {
            Some(rest) => family = rest.split(' ').next().unwrap(),
            None if line.starts_with('#') => {}
            None => {
                let name = line.split(['{', ' ']).next().unwrap();
                let suffix = name.strip_prefix(family).expect(line);
                assert!(["", "_bucket", "_sum", "_count"].contains(&suffix), "{line}");
            }
        }
    }
}

#[test]
fn every_route_is_described_and_every_description_has_a_route() {
    let served = Served::new("openapi");
    let document = served.get("/openapi.json");
    assert_eq!(document, openapi::document());
    let paths = document["paths"].as_object().unwrap();
    let described: Vec<&str> = paths.keys().map(String::as_str).collect();
    let routed: BTreeSet<&str> = routes::operations().iter().map(|o| o.path).collect();
    assert_eq!(described, Vec::from_iter(routed));
    for (path, item) in paths {
        for method in ["get", "post", "put", "patch", "delete"] {
            let url = path.replace("{name}", "nobody").replace("{kind}", "devices");
            // A stream of a node that is there does not end.
            if path == "/v1/live" {
                continue;
            }
            let method_line = method.to_uppercase();
            let (code, _) = served.ask(&with_body(&method_line, &url, "application/json", "{\"burst\":1}"));
            assert_eq!(item.get(method).is_some(), code != 405, "{method} {path}: {code}");
        }
    }
}

/// What the node sends has exactly the keys that the schema says, all the way down.
#[test]
fn answers_are_as_described() {
    let document = openapi::document();
    let fake = Fake::new();
    let check =
        |schema: &str, value: Value| fits(&document, &document["components"]["schemas"][schema], &value, schema);
    check("Status", serde_json::to_value(fake.status().unwrap()).unwrap());
    check("Pool", serde_json::to_value(fake.pools().unwrap().remove(0)).unwrap());
    check("Volume", serde_json::to_value(fake.volumes().unwrap().remove(0)).unwrap());
    check("VolumeContents", serde_json::to_value(fake.volume_contents("v0", 5).unwrap()).unwrap());
    let add = json!({ "name": "v1", "tenant": "gold", "size_bytes": 5, "pool": "pool0", "copies": 2 });
    check("VolumeAdd", add.clone());
    assert_eq!(serde_json::to_value(serde_json::from_value::<VolumeAdd>(add.clone()).unwrap()).unwrap(), add);
    let replace = json!({ "lost": "ssd1", "device": "ssd2" });
    check("PoolDriveReplace", replace.clone());
    let read = serde_json::from_value::<PoolDriveReplace>(replace.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), replace);
    check("PoolScrub", serde_json::to_value(PoolScrub { repair: true }).unwrap());
    let snapshot = fake.add_snapshot("v0", &VolumeSnapshotAdd { name: "s".into() }).unwrap();
    check("Volume", serde_json::to_value(snapshot).unwrap());
    let clone = VolumeClone { name: "v3".into(), tenant: Some("gold".into()) };
    check("VolumeClone", serde_json::to_value(clone).unwrap());
    let patch = json!({ "name": "v2", "shrink": true, "size_bytes": 5 });
    check("VolumePatch", patch.clone());
    assert_eq!(serde_json::to_value(serde_json::from_value::<VolumePatch>(patch.clone()).unwrap()).unwrap(), patch);
    check(
        "VolumeExport",
        serde_json::to_value(VolumeExport {
            door: "nvme-tcp".into(),
            max_controllers: Some(5),
            image: Some(ImageAccess::Read),
        })
        .unwrap(),
    );
    check("DriveBoard", serde_json::to_value(fake.device_board("ssd0").unwrap()).unwrap());
    check("Plan", serde_json::to_value(fake.plan_device("ssd0", &PlanAsked::default()).unwrap()).unwrap());
    let planned = json!({ "mechanism": "wrr", "weights": { "high": 3 }, "quanta": { "low": 4096 },
        "tenants": [{ "name": "gold", "class": "low", "weight": 2 }] });
    check("PlanAsked", planned.clone());
    let read: PlanAsked = serde_json::from_value(planned.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), planned);
    let mut collector = crate::board::Collector::default();
    collector.apply(&fake.sample().unwrap());
    check("Board", serde_json::to_value(collector.apply(&fake.sample().unwrap())).unwrap());
    check("Upgrade", serde_json::to_value(fake.upgrade_status()).unwrap());
    let start = json!({ "binary": "/x", "within_ns": 5000000, "probation_ns": 0 });
    check("UpgradeStart", start.clone());
    assert_eq!(serde_json::to_value(serde_json::from_value::<UpgradeStart>(start.clone()).unwrap()).unwrap(), start);
    check("DeviceStats", serde_json::to_value(fake.device_stats("ssd0", false).unwrap()).unwrap());
    check("Error", serde_json::to_value(ErrorBody::new(axum::http::StatusCode::CONFLICT, "x".into())).unwrap());
    let floor = json!({ "iops": 5, "bandwidth_bytes_per_s": null, "catch_up_ns": 1000000 });
    let ceiling = json!({ "iops": 5, "bandwidth_bytes_per_s": 7, "burst": 1, "burst_bytes": null });
    let sla = json!({ "iops": null, "bandwidth_bytes_per_s": 1, "p50_ns": 1, "p99_ns": 2, "p999_ns": null });
    let patch = json!({ "class": "low", "weight": 3, "floor": floor, "ceiling": ceiling, "sla": sla, "force": true });
    check("TenantPatch", patch.clone());
    let read: TenantPatch = serde_json::from_value(patch.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), patch);
    let (mut add, named) = (patch, json!({ "name": "new", "hosts": ["*"] }));
    add.as_object_mut().unwrap().extend(named.as_object().unwrap().clone());
    check("TenantAdd", add.clone());
    assert_eq!(serde_json::to_value(serde_json::from_value::<TenantAdd>(add.clone()).unwrap()).unwrap(), add);
    let add = json!({ "device": "ssd0", "socket": "/s", "tenant": "gold", "class_from": "peer", "doorbells": "trap" });
    check("ExportAdd", add.clone());
    assert_eq!(serde_json::to_value(serde_json::from_value::<ExportAdd>(add.clone()).unwrap()).unwrap(), add);
    let weights = Some(SharesPatch { high: Some(1), medium: None, low: None });
    let quanta = Some(SharesPatch { high: Some(4096), medium: Some(4096), low: Some(4096) });
    let patch = DevicePatch {
        mechanism: Some(Mechanism::Rr),
        weights,
        burst: Some(None),
        quanta,
        capacity_bytes: Some(1 << 30),
        ana: Some(AnaPatch { state: Ana::NonOptimized, host: None, port: "[::]:4420".parse().ok() }),
        spare_percent: Some(5),
        force: true,
    };
    check("DevicePatch", serde_json::to_value(&patch).unwrap());
    assert_eq!(serde_json::from_value::<DevicePatch>(serde_json::to_value(&patch).unwrap()).unwrap(), patch);
}

/// Panics where a value is not as its schema says.
fn fits(document: &Value, schema: &Value, value: &Value, at: &str) {
    if let Err(why) = judge(document, schema, value) {
        panic!("{at}{why}");
    }
}

fn judge(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let name = reference.strip_prefix("#/components/schemas/").expect("a reference to a component");
        let found = document["components"]["schemas"].get(name).unwrap_or_else(|| panic!("there is no {name}"));
        return judge(document, found, value);
    }
    if let Some(ways) = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array) {
        let ok = ways.iter().any(|way| judge(document, way, value).is_ok());
        return if ok { Ok(()) } else { Err(format!(": {value} is none of {ways:?}")) };
    }
    if schema.get("const").is_some_and(|only| only != value)
        || schema.get("enum").and_then(Value::as_array).is_some_and(|words| !words.contains(value))
    {
        return Err(format!(": {value} is not among the words of {schema}"));
    }
    let kind = match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Null => "null",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
    };
    let allowed = |wanted: &Value| wanted == kind || (wanted == "number" && kind == "integer");
    let kinds = &schema["type"];
    if !kinds.as_array().map_or_else(|| allowed(kinds), |kinds| kinds.iter().any(allowed)) {
        return Err(format!(": {value} is not {kinds}"));
    }
    match value {
        Value::Object(map) => {
            let known = schema["properties"].as_object().expect("an object has properties");
            for key in schema["required"].as_array().into_iter().flatten() {
                let key = key.as_str().expect("a key is a string");
                map.get(key).ok_or_else(|| format!(".{key} is missing"))?;
            }
            for (key, inner) in map {
                let schema = known.get(key).ok_or_else(|| format!(".{key} is not described"))?;
                assert!(schema.get("$ref").is_some() || schema["description"].is_string(), "{key} has no text");
                judge(document, schema, inner).map_err(|e| format!(".{key}{e}"))?;
            }
            Ok(())
        }
        Value::Array(list) => list.iter().try_for_each(|v| judge(document, &schema["items"], v)),
        Value::Number(n) => {
            let (n, bound) = (n.as_f64().expect("a number"), |key: &str| schema.get(key).and_then(Value::as_f64));
            let fits = bound("minimum").is_none_or(|least| n >= least) && bound("maximum").is_none_or(|most| n <= most);
            if fits { Ok(()) } else { Err(format!(": {n} is out of the range of {schema}")) }
        }
        _ => Ok(()),
    }
}

/// Values out of range are out of the schema's as well.
#[test]
fn ranges_are_described() {
    let document = openapi::document();
    let judge = |schema: &str, value: Value| judge(&document, &document["components"]["schemas"][schema], &value);
    for (schema, wrong) in [
        ("TenantPatch", json!({ "weight": 257 })),
        ("TenantPatch", json!({ "class": "gold" })),
        ("TenantPatch", json!({ "floor": { "iops": 0 } })),
        ("TenantPatch", json!({ "speed": 1 })),
        ("TenantAdd", json!({ "weight": 1 })),
        ("DevicePatch", json!({ "burst": 7 })),
        ("DevicePatch", json!({ "weights": { "high": 257 } })),
        ("DevicePatch", json!({ "quanta": { "low": 4095 } })),
        ("DevicePatch", json!({ "mechanism": "fair" })),
        ("DevicePatch", json!({ "spare_percent": 101 })),
        ("VolumeExport", json!({ "door": "nvme-tcp", "max_controllers": 0 })),
        ("UpgradeStart", json!({ "within_ns": 1 })),
        ("Status", json!({})),
    ] {
        assert!(judge(schema, wrong.clone()).is_err(), "{schema}: {wrong}");
    }
    for (schema, right) in [
        ("TenantPatch", json!({ "weight": 256, "class": "low", "floor": { "iops": null } })),
        ("DevicePatch", json!({ "burst": null, "mechanism": "wrr" })),
        ("DevicePatch", json!({ "weights": { "high": 256 }, "quanta": { "low": 4096 } })),
        ("UpgradeStart", json!({})),
    ] {
        assert_eq!(judge(schema, right), Ok(()));
    }
}

#[test]
fn a_busy_socket_is_said_before_anything_starts() {
    let served = Served::new("busy");
    let Err(error) = Bound::bind(&[Address::Unix(served.socket())], &weir_sys::keeper_channel::Keep::none()) else {
        panic!("two APIs on one socket")
    };
    let text = error.to_string();
    assert!(
        text.contains("a.sock: in use by ") && text.contains(&format!("(process {})", std::process::id())),
        "{text}"
    );
    let Err(error) = Bound::bind(&[Address::Tcp(served.port())], &weir_sys::keeper_channel::Keep::none()) else {
        panic!("two APIs on one port")
    };
    assert!(error.to_string().contains(&format!("(process {})", std::process::id())), "{error}");
}

#[test]
fn stop_removes_the_socket_and_waits_for_no_idle_client() {
    let mut served = Served::new("stop");
    let idle = UnixStream::connect(served.socket()).unwrap();
    let mut half = UnixStream::connect(served.socket()).unwrap();
    half.write_all(b"GET /v1/status HTTP/1.1\r\n").unwrap();
    let start = std::time::Instant::now();
    served.running.take().unwrap().stop();
    assert!(start.elapsed() < std::time::Duration::from_secs(10));
    assert!(!served.socket().exists());
    drop((idle, half));
}

#[test]
fn rules_of_failures_come_and_go() {
    let served = Served::new("faults");
    assert_eq!(served.get("/v1/devices/ssd0/faults")[0]["rule"], "hang lba=8");
    let post = |body: &str| served.ask(&with_body("POST", "/v1/devices/ssd0/faults", "application/json", body));
    let (code, made) = post(r#"{"effect":"media-error","lba":"8-15","op":"read","probability":0.5}"#);
    assert_eq!(code, 201, "{made}");
    assert!(made.contains(r#""rule":"media-error lba=8-15 op=read probability=0.5""#), "{made}");
    for (body, says) in [
        (r#"{"effect":"melt"}"#, "effect: there is no"),
        (r#"{"effect":"hang","lba":8}"#, "lba"),
        (r#"{"effect":"hang","melt":1}"#, "unknown field"),
        (r#"{"lba":"8"}"#, "effect"),
    ] {
        let (code, why) = post(body);
        assert!(code == 400 && why.contains(says), "{body}: {code} {why}");
    }
    let delete = |path: &str| served.ask(&format!("DELETE {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    assert_eq!(delete("/v1/devices/ssd0/faults/1").0, 200);
    for path in ["/v1/devices/ssd0/faults/7", "/v1/devices/ssd0/faults/x"] {
        assert_eq!(delete(path).0, 404, "{path}");
    }
}

/// Alerts and the board for Grafana ask for metrics that there are.
#[test]
fn alerts_and_board_name_metrics_that_exist() {
    let served = Served::new("alerts");
    let mut page = served.ask("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").1;
    store_metrics::text(&mut page, Some(&store()));
    let is_family = |name: &str, kind: &str| page.contains(&format!("# TYPE {name} {kind}"));
    // Samples of a histogram have names of their own.
    let of_histogram =
        |name: &str| ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part)).map(str::to_owned);
    let is_there =
        |name: &str| is_family(name, "") || of_histogram(name).is_some_and(|family| is_family(&family, "histogram"));
    let names = |text: &str| {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("weir_")).map(str::to_owned).collect::<Vec<_>>()
    };
    let board = include_str!("../../../dist/grafana/weir.json");
    assert!(serde_json::from_str::<serde_json::Value>(board).unwrap()["panels"].as_array().unwrap().len() > 10);
    for text in [
        board,
        include_str!("../../../dist/prometheus/weir.rules.yml"),
        include_str!("../../../dist/prometheus/weir.rules.test.yml"),
        include_str!("../../../docs/guides/monitor.md"),
    ] {
        let all = names(text);
        assert!(all.len() > 5);
        // `weir_device_…` of a page stands for several.
        let missing: Vec<_> = all.iter().filter(|name| !is_there(name) && !name.ends_with('_')).collect();
        assert!(missing.is_empty(), "{missing:?} in no metric");
    }
}

fn store() -> StoreStatus {
    let movement = serde_json::json!({ "repair": true, "blocks_left": 3, "bytes_left": 300, "moved_blocks": 1, "moved_bytes": 100,
        "has_writer": 0, "unsettled": 0, "no_copy": 2, "no_room": 0, "no_node": 0, "failed": 0, "why_failed": null });
    let namespace = serde_json::json!({ "movement": movement, "namespace": 7, "node": 2, "target": "nvme-tcp://a:1/n?ns=1",
        "class": "dram", "location": "", "state": "lost", "sector_bytes": 512, "bytes": 1000, "free_bytes": 400,
        "granted_bytes": 50, "file_bytes": 500, "quarantined_bytes": 50 });
    let services = serde_json::json!([{ "addresses": ["a:1"], "state": "serving", "since_ns": 1, "term": 4 },
        { "addresses": ["b:1"], "state": "standby", "since_ns": 1, "term": 0 }]);
    let status = serde_json::json!({ "service": 1, "store": "0f", "created_ns": 0, "running_ns": 0, "durability": "process",
        "metadata": "redb", "sessions": 2, "connections": 3, "handles": 4, "requests": 5, "trouble": "full", "services": services,
        "classes": [{ "class": "dram", "bytes": 1000, "free_bytes": 400 }], "namespaces": [namespace], "demotion": null });
    serde_json::from_value(status).unwrap()
}

#[test]
fn metrics_of_a_store_are_its_status() {
    let mut page = String::new();
    store_metrics::text(&mut page, Some(&store()));
    for sample in [
        "weir_store_up 1",
        "weir_store_trouble 1",
        "weir_store_services{state=\"serving\"} 1",
        "weir_store_services{state=\"silent\"} 0",
        "weir_store_class_free_bytes{class=\"dram\"} 400",
        "weir_store_namespace_state{namespace=\"7\",class=\"dram\",state=\"up\"} 0",
        "weir_store_namespace_state{namespace=\"7\",class=\"dram\",state=\"lost\"} 1",
        "weir_store_namespace_file_bytes{namespace=\"7\",class=\"dram\"} 500",
        "weir_store_left_bytes{namespace=\"7\",why=\"repair\"} 300",
        "weir_store_stuck_blocks{namespace=\"7\",reason=\"no_copy\"} 2",
        "weir_store_moved_bytes_total{namespace=\"7\",why=\"repair\"} 100",
        "weir_store_requests_total 5",
    ] {
        assert!(page.lines().any(|line| line == sample), "{sample} is not in\n{page}");
    }
    let mut silent = String::new();
    store_metrics::text(&mut silent, None);
    assert!(silent.ends_with("weir_store_up 0\n"), "{silent}");
}

/// An event that has every key.
fn event(n: u64) -> NodeEvent {
    let text = || Some("x".to_owned());
    NodeEvent {
        number: 0,
        unix_ms: 5,
        kind: "drive".into(),
        what: "isolate".into(),
        level: EventLevel::Error,
        device: text(),
        pool: text(),
        tenant: text(),
        episode: Some(n),
        verdict: text(),
        evidence: text(),
        duration_ns: Some(1),
        pause_ns: Some(2),
        text: "two\nlines".into(),
    }
}

#[test]
fn contents_of_a_volume_are_asked_for_from_a_byte_on() {
    let served = Served::new("contents");
    assert_eq!(served.get("/v1/volumes/v0/contents")["ranges"][0]["offset_bytes"], 0);
    assert_eq!(served.get("/v1/volumes/v0/contents?from=7")["ranges"][0]["offset_bytes"], 7);
    for (wrong, code) in [("v0/contents?from=x", 400), ("v0/contents?since=5", 400), ("nobody/contents", 404)] {
        let request = format!("GET /v1/volumes/{wrong} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert_eq!(served.ask(&request).0, code, "{wrong}");
    }
}

#[test]
fn events_are_listed_after_a_number() {
    let served = Served::new("events");
    (1..=3).for_each(|n| _ = served.fake.events.add(event(n)));
    let numbers = |path: &str| {
        let list = served.get(path);
        list.as_array().unwrap().iter().map(|event| event["number"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(numbers("/v1/events"), [1, 2, 3]);
    assert_eq!(numbers("/v1/events?after=2"), [3]);
    assert_eq!(numbers("/v1/events?after=99"), [1, 2, 3], "of a node before this one");
    for wrong in ["after=x", "since=5"] {
        let request = format!("GET /v1/events?{wrong} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert_eq!(served.ask(&request).0, 400, "{wrong}");
    }
    let document = openapi::document();
    let schema = &document["components"]["schemas"]["Event"];
    fits(&document, schema, &serde_json::to_value(event(1)).unwrap(), "Event");
}

/// A stream sends what was, then what comes, and ends with the API; who comes back says what it has seen.
#[test]
fn events_are_followed() {
    let mut served = Served::new("follow");
    (1..=2).for_each(|n| _ = served.fake.events.add(event(n)));
    let follow = |last: &str| {
        let mut stream = UnixStream::connect(served.socket()).unwrap();
        let head = format!("GET /v1/events HTTP/1.0\r\nHost: x\r\nAccept: text/event-stream\r\n{last}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let until = |stream: &mut UnixStream, wanted: &str| {
        let mut said = String::new();
        while !said.contains(wanted) {
            let mut piece = [0; 4096];
            let n = stream.read(&mut piece).unwrap();
            assert!(n > 0, "{wanted} is missing in {said}");
            said.push_str(std::str::from_utf8(&piece[..n]).unwrap());
        }
        said
    };
    let mut all = follow("");
    let said = until(&mut all, "id: 2");
    assert!(said.contains("id: 1") && said.contains("event: drive") && said.contains("data: {\"number\":1,"), "{said}");
    served.fake.events.add(event(3));
    until(&mut all, "id: 3");
    let mut later = follow("Last-Event-ID: 2\r\n");
    let said = until(&mut later, "id: 3");
    assert!(!said.contains("id: 2"), "{said}");
    served.running.take().unwrap().stop();
    let mut rest = String::new();
    all.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("id:"), "{rest}");
}

/// `METHOD PATH` by the port, with a token or none.
fn by_port(served: &Served, line: &str, token: Option<&str>) -> (u16, String) {
    let shown = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let port = served.port();
    served
        .ask_port(&format!("{line} HTTP/1.1\r\nHost: {port}\r\n{shown}Connection: close\r\nContent-Length: 0\r\n\r\n"))
}

#[test]
fn without_tokens_a_port_is_read_only() {
    let served = Served::new("no-tokens");
    assert_eq!(by_port(&served, "GET /v1/status", None).0, 200);
    assert_eq!(by_port(&served, "GET /metrics", None).0, 200);
    for change in ["POST /v1/shutdown", "DELETE /v1/devices/ssd0/faults/1", "POST /v1/devices/ssd0/power-cut"] {
        let (code, said) = by_port(&served, change, None);
        assert!(code == 403 && said.contains("UNIX socket"), "{change}: {code} {said}");
    }
    assert_eq!(by_port(&served, "GET /v1/status", Some(READ)).0, 401, "a token that the node does not know");
    assert_eq!(served.fake.shutdowns.load(Ordering::SeqCst), 0);
    let (_, said) = by_port(&served, "GET /v1/access", None);
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), json!({"role": "read", "tokens": false, "faults": true}));
    assert_eq!(served.get("/v1/access")["role"], "admin");
}

#[test]
fn a_token_is_good_for_its_role() {
    let tokens = [(ApiRole::Read, READ), (ApiRole::Operate, OPERATE), (ApiRole::Admin, ADMIN)];
    let served = Served::with(folder("roles"), &tokens);
    let code = |line: &str, token| by_port(&served, line, token).0;
    for path in
        ["GET /v1/status", "GET /metrics", "GET /v1/config", "GET /openapi.json", "GET /v1/access", "GET /v1/live"]
    {
        assert_eq!(code(path, None), 401, "{path}");
        assert_eq!(code(path, Some("0123456789abcdef-wrong")), 401, "{path}");
        assert_eq!(code(path, Some(&READ[..READ.len() - 1])), 401, "{path}");
        assert_eq!(code(path, Some("")), 401, "{path}");
    }
    assert_eq!(code("GET /", None), 200, "the page itself asks for the token");
    for (token, role) in [(READ, "read"), (OPERATE, "operate"), (ADMIN, "admin")] {
        let (_, said) = by_port(&served, "GET /v1/access", Some(token));
        assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["role"], role);
    }
    let remove = "DELETE /v1/devices/ssd0/faults/1";
    assert_eq!([READ, OPERATE, ADMIN].map(|t| code(remove, Some(t))), [403, 200, 200]);
    let cut = "POST /v1/devices/ssd0/power-cut";
    assert_eq!([READ, OPERATE, ADMIN].map(|t| code(cut, Some(t))), [403, 403, 200]);
    assert_eq!([READ, OPERATE].map(|t| code("POST /v1/shutdown", Some(t))), [403, 403]);
    assert_eq!(served.fake.shutdowns.load(Ordering::SeqCst), 0);
    assert_eq!(code("POST /v1/shutdown", Some(ADMIN)), 202);
    // What was changed is on the time line, by whom or by what not.
    let changes = served.get("/v1/board")["changes"].clone();
    let told: Vec<&str> = changes.as_array().unwrap().iter().filter_map(|m| m["text"].as_str()).collect();
    assert!(told.contains(&remove) && told.contains(&cut), "{told:?}");
}

/// Every operation that changes something takes a token that may.
#[test]
fn nothing_is_changed_by_a_reader() {
    for operation in routes::operations() {
        let reads = operation.method == "get" || operation.path.ends_with("/plan");
        assert_eq!(operation.role == ApiRole::Read, reads, "{} {}", operation.method, operation.path);
    }
}

#[test]
fn a_file_that_others_can_read_has_no_token() {
    let dir = folder("token-files");
    let load = |text: &str, mode: u32| {
        let file = dir.join("a.token");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        Tokens::load(&ApiConfig { tokens: vec![ApiToken { role: ApiRole::Read, file }], tls: None }).1.join("")
    };
    assert_eq!(load("0123456789abcdef\n", 0o600), "");
    assert_eq!(load("0123456789abcdef\r\nmore\n", 0o400), "");
    assert!(load("0123456789abcdef\n", 0o640).contains("chmod 600"));
    for wrong in ["", "short\n", "0123456789 abcdef\n", "\n0123456789abcdef\n", &"x".repeat(257)] {
        assert!(load(wrong, 0o600).contains("head -c 24 /dev/urandom | base64"), "{wrong:?}");
    }
    let missing = ApiConfig { tokens: vec![ApiToken { role: ApiRole::Read, file: dir.join("none") }], tls: None };
    let (tokens, wrong) = Tokens::load(&missing);
    assert!(wrong[0].contains("none: No such file"), "{wrong:?}");
    // And where it could not be read nobody has the role.
    let bound =
        Bound::bind(&[Address::Tcp(([127, 0, 0, 1], 0).into())], &weir_sys::keeper_channel::Keep::none()).unwrap();
    let running = bound.serve(Fake::new(), tokens, None).unwrap();
    let Address::Tcp(port) = running.addresses()[0] else { unreachable!() };
    let ask = format!("GET /v1/status HTTP/1.1\r\nHost: {port}\r\nConnection: close\r\n\r\n");
    assert_eq!(exchange(TcpStream::connect(port).unwrap(), &ask).0, 401);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_browser_is_kept_in_bounds() {
    let served = Served::new("headers");
    for path in ["/", "/v1/status", "/nothing", "/dashboard/main.js"] {
        let mut stream = TcpStream::connect(served.port()).unwrap();
        let port = served.port();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {port}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let head = answer.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self';",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cross-origin-resource-policy: same-origin",
            "cache-control: no-store",
        ] {
            assert!(head.contains(header), "{path}: {header} is missing in {head}");
        }
        assert!(!head.contains("access-control-allow"), "{head}");
    }
    // A forwarded port leads any page to the socket.
    let ask = |more: &str| {
        served.ask(&format!("GET /v1/status HTTP/1.1\r\nHost: localhost:8080\r\n{more}Connection: close\r\n\r\n")).0
    };
    assert_eq!(ask(""), 200);
    assert_eq!(ask("Origin: http://localhost:8080\r\nSec-Fetch-Site: same-origin\r\n"), 200);
    assert_eq!(ask("Origin: http://evil.example\r\n"), 403);
    assert_eq!(ask("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"), 403);
    assert_eq!(ask("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"), 200);
}

/// The stream tells what the API answers, and ends with the API.
#[test]
fn events_are_told_and_end_with_the_api() {
    let mut served = Served::new("live");
    let mut stream = UnixStream::connect(served.socket()).unwrap();
    stream.write_all(b"GET /v1/live/devices/ssd0 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut told = String::new();
    let mut bytes = [0; 65536];
    while !(told.contains("event: board") && told.contains("event: device") && told.matches("\n\n").count() >= 2) {
        let n = stream.read(&mut bytes).unwrap();
        assert!(n > 0, "{told}");
        told.push_str(std::str::from_utf8(&bytes[..n]).unwrap());
    }
    assert!(told.contains("content-type: text/event-stream"), "{told}");
    let data = |event: &str| {
        let line = told.split(&format!("event: {event}\n")).nth(1).unwrap().lines().next().unwrap();
        serde_json::from_str::<Value>(line.strip_prefix("data: ").unwrap()).unwrap()
    };
    assert_eq!(serde_json::from_value::<Board>(data("board")).unwrap().tenants[0].name, "gold");
    assert_eq!(data("device"), served.get("/v1/devices/ssd0/board"));
    assert_eq!(served.ask("GET /v1/live/devices/none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").0, 404);
    served.running.take().unwrap().stop();
    assert!(stream.read_to_end(&mut Vec::new()).is_ok(), "the stream ends");
}

#[test]
fn a_plan_is_asked_for_and_nothing_is_changed() {
    let served = Served::new("plan");
    let plan = |body: &str| {
        let port = served.port();
        let (code, said) = served.ask_port(&with_body("POST", "/v1/devices/ssd0/plan", "application/json", body));
        (code, serde_json::from_str::<Value>(&said).unwrap_or_else(|e| panic!("{port} {said}: {e}")))
    };
    let (code, said) = plan(r#"{"weights":{"high":64}}"#);
    assert_eq!((code, &said["tenants"][0]["after"]["share"]), (200, &json!(0.75)));
    assert_eq!(plan("{}").1["tenants"][0]["after"], json!({"share": 0.5, "iops": 2.0, "bytes_per_s": 3.0}));
    for wrong in [
        r#"{"weights":{"high":0}}"#,
        r#"{"tenants":[{"name":"gold","weight":257}]}"#,
        r#"{"tenants":[{"name":"gold","class":"gold"}]}"#,
        r#"{"burst":1}"#,
    ] {
        assert_eq!(plan(wrong).0, 400, "{wrong}");
    }
    assert_eq!(*served.fake.arbitration.lock().unwrap(), Arbitration::default());
}
