//! The binary against an API whose node exists only here: what it sends, what it prints, how it ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use weir_api::{
    Bound, Control, Counters, DevicePatch, DeviceStats, DeviceStatus, DriveBoardStatus, ExportAdd, ExportStatus,
    FaultAdd, FaultStatus, PlanAsked, PlanStatus, PoolDriveAdd, PoolDriveReplace, PoolScrub, PoolStatus,
    PowerCutStatus, Refusal, Running, SlaPatch, State, Status, TenantAdd, TenantPatch, TenantStatus, UpgradeStart,
    UpgradeState, UpgradeStatus, VolumeAdd, VolumeClone, VolumeContents, VolumeExport, VolumePatch, VolumeSnapshotAdd,
    VolumeStatus,
};
use weir_config::{Address, Arbitration, ClassFrom, Cost};
use weir_node::events::{EventLog, Listener, NodeEvent};

/// Notes what it was asked to change.
#[derive(Default)]
struct Fake {
    devices: Mutex<Vec<(String, DevicePatch)>>,
    tenants: Mutex<Vec<(String, TenantPatch)>>,
    added: Mutex<Vec<TenantAdd>>,
    shutdowns: AtomicU32,
    resets: AtomicU32,
    /// Which upgrade, and how often its end was asked for.
    upgrade: Mutex<(UpgradeStart, u32)>,
    events: EventLog,
}

impl Fake {
    fn device(name: &str) -> DeviceStatus {
        DeviceStatus {
            flash: None,
            name: name.into(),
            nqn: "nqn.x".into(),
            serial: "S".into(),
            media: "ram".into(),
            interface: "block".into(),
            profile: Some("p3700".into()),
            capacity_bytes: 1 << 30,
            block_size: 512,
            latency_ns: 0,
            slots: 64,
            slots_busy: 0,
            slot_time_ns: 0,
            slot_bytes: 4 << 20,
            arbitration: Arbitration::default(),
            cost: Cost::Bytes,
            core: 0,
            controllers: 0,
            queues: 0,
            io: Counters::default(),
            fault: None,
            health: None,
            link: None,
            timing: None,
            clients: Vec::new(),
        }
    }

    fn tenant(name: &str) -> TenantStatus {
        TenantStatus {
            name: name.into(),
            class: "high".into(),
            urgent: false,
            weight: 7,
            floor: None,
            ceiling: None,
            sla: None,
            attainment: Vec::new(),
            hosts: vec!["*".into()],
            controllers: 0,
            queues: 0,
            connections: 1,
            admission: Vec::new(),
            at_ceiling: false,
            latency: Vec::new(),
            io: Counters::default(),
        }
    }
}

impl Control for Fake {
    fn latencies(&self) -> Result<weir_node::NodeLatencies, Refusal> {
        Ok(weir_node::NodeLatencies::default())
    }
    fn config(&self) -> Result<String, Refusal> {
        Ok("[node]\nname = \"n1\"\n".into())
    }

    fn status(&self) -> Result<Status, Refusal> {
        Ok(Status {
            node: "here".into(),
            version: "0".into(),
            pid: 1,
            worker_pid: Some(2),
            state: State::Serving,
            uptime_s: 1.0,
            start: Vec::new(),
            api: Vec::new(),
            shards: Vec::new(),
            doors: Vec::new(),
            devices: self.devices()?,
            tenants: self.tenants()?,
            exports: self.exports()?,
        })
    }

    fn devices(&self) -> Result<Vec<DeviceStatus>, Refusal> {
        Ok(vec![Fake::device("ssd0")])
    }

    fn tenants(&self) -> Result<Vec<TenantStatus>, Refusal> {
        Ok(vec![Fake::tenant("gold")])
    }

    fn exports(&self) -> Result<Vec<ExportStatus>, Refusal> {
        Ok(vec![ExportStatus {
            volume: None,
            device: "ssd0".into(),
            door: "vhost-user".into(),
            addresses: vec!["/x/gold.sock".into()],
            tenant: Some("gold".into()),
            class_from: ClassFrom::Peer,
            queues: 4,
            read_only: false,
            clients: 0,
            recovered: None,
        }])
    }

    fn add_export(&self, export: &ExportAdd) -> Result<ExportStatus, Refusal> {
        if export.socket.ends_with("/taken") {
            return Err(Refusal::Conflict(format!("{} is an export already; choose another path", export.socket)));
        }
        let (door, addresses) = ("vfio-user".into(), vec![export.socket.clone()]);
        let tenant = export.tenant.clone();
        Ok(ExportStatus { door, addresses, tenant, ..self.exports()?.swap_remove(0) })
    }

    fn remove_export(&self, socket: &str) -> Result<ExportStatus, Refusal> {
        let found = self.exports()?.into_iter().find(|e| e.addresses[0] == socket);
        found.ok_or_else(|| Refusal::NotFound(format!("there is no export at {socket}")))
    }

    fn device_stats(&self, name: &str, reset: bool) -> Result<DeviceStats, Refusal> {
        self.resets.fetch_add(u32::from(reset), Ordering::SeqCst);
        Ok(DeviceStats {
            flash: None,
            device: name.into(),
            core: 3,
            poll: true,
            core_busy_pct: 50.0,
            core_wait_s: None,
            timing: None,
            completion_error: None,
        })
    }

    fn faults(&self, device: &str) -> Result<Vec<FaultStatus>, Refusal> {
        Ok(vec![fault(device, 1, "hang lba=8"), fault(device, 3, "link-loss lasts=15s")])
    }

    fn add_fault(&self, device: &str, add: &FaultAdd) -> Result<FaultStatus, Refusal> {
        if device == "gone" {
            return Err(Refusal::Conflict("failures can be injected only where [node] says faults = true".into()));
        }
        Ok(fault(device, 4, &add.rule().map_err(Refusal::Invalid)?.to_string()))
    }

    fn remove_fault(&self, device: &str, id: u32) -> Result<FaultStatus, Refusal> {
        let found = self.faults(device)?.into_iter().find(|fault| fault.id == id);
        found.ok_or_else(|| Refusal::NotFound(format!("device \"{device}\" has no rule {id}")))
    }

    fn generation(&self) -> u64 {
        0
    }
    fn may_inject(&self) -> bool {
        false
    }
    fn device_board(&self, _: &str) -> Result<DriveBoardStatus, Refusal> {
        unreachable!("no command asks for it")
    }
    fn plan_device(&self, _: &str, _: &PlanAsked) -> Result<PlanStatus, Refusal> {
        unreachable!("no command asks for it")
    }
    fn power_cut(&self, name: &str) -> Result<PowerCutStatus, Refusal> {
        if name == "gone" {
            return Err(Refusal::Conflict("device \"gone\": its flash does not keep what that needs".into()));
        }
        let (lost_units, lost_writes) = if name == "calm" { (0, 0) } else { (3, 4) };
        Ok(PowerCutStatus {
            name: name.into(),
            lost_units,
            lost_writes,
            pages_read: 1000,
            rebuild_ns: 2_500_000,
            power_cycles: 7,
            unsafe_shutdowns: 5,
        })
    }

    fn set_device(&self, name: &str, patch: &DevicePatch) -> Result<DeviceStatus, Refusal> {
        if name == "gone" {
            return Err(Refusal::NotFound("there is no device \"gone\"; there is ssd0".into()));
        }
        self.devices.lock().unwrap().push((name.into(), patch.clone()));
        Ok(Fake::device(name))
    }

    fn add_tenant(&self, tenant: &TenantAdd) -> Result<TenantStatus, Refusal> {
        self.added.lock().unwrap().push(tenant.clone());
        Ok(Fake::tenant(&tenant.name))
    }

    fn remove_tenant(&self, name: &str) -> Result<TenantStatus, Refusal> {
        Ok(Fake::tenant(name))
    }

    fn set_tenant(&self, name: &str, patch: &TenantPatch) -> Result<TenantStatus, Refusal> {
        self.tenants.lock().unwrap().push((name.into(), patch.clone()));
        Ok(Fake::tenant(name))
    }

    fn pools(&self) -> Result<Vec<PoolStatus>, Refusal> {
        Ok(Vec::new())
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
        let volume = VolumeStatus {
            name: "v0".into(),
            uuid: "u".into(),
            tenant: "gold".into(),
            pool: "pool0".into(),
            size_bytes: 3 << 20,
            drives: vec!["ssd0".into()],
            extents: 1,
            missing_bytes: 0,
            replaced_bytes: 0,
            copies: 1,
            alone_bytes: 0,
            rebuilding_bytes: 0,
            snapshot_of: None,
            own_bytes: 1 << 20,
            nqn: None,
            exports: Vec::new(),
        };
        Ok(vec![volume])
    }

    fn volume(&self, name: &str) -> Result<VolumeStatus, Refusal> {
        let found = self.volumes()?.into_iter().find(|v| v.name == name);
        found.ok_or_else(|| Refusal::NotFound(format!("there is no volume \"{name}\"")))
    }

    fn volume_contents(&self, _: &str, _: u64) -> Result<VolumeContents, Refusal> {
        Err(Refusal::Unavailable("the node is stopping".into()))
    }

    fn add_volume(&self, volume: &VolumeAdd) -> Result<VolumeStatus, Refusal> {
        let like = self.volumes()?.swap_remove(0);
        Ok(VolumeStatus { name: volume.name.clone(), size_bytes: volume.size_bytes, ..like })
    }

    fn set_volume(&self, name: &str, _: &VolumePatch) -> Result<VolumeStatus, Refusal> {
        Err(Refusal::NotFound(format!("there is no volume \"{name}\"")))
    }

    fn remove_volume(&self, name: &str) -> Result<VolumeStatus, Refusal> {
        self.set_volume(name, &VolumePatch::default())
    }

    fn add_snapshot(&self, volume: &str, snapshot: &VolumeSnapshotAdd) -> Result<VolumeStatus, Refusal> {
        let found = self.volume(volume)?;
        Ok(VolumeStatus { name: format!("{volume}@{}", snapshot.name), snapshot_of: Some(volume.into()), ..found })
    }

    fn add_clone(&self, snapshot: &str, _: &VolumeClone) -> Result<VolumeStatus, Refusal> {
        self.set_volume(snapshot, &VolumePatch::default())
    }

    fn roll_back(&self, snapshot: &str) -> Result<VolumeStatus, Refusal> {
        self.set_volume(snapshot, &VolumePatch::default())
    }

    fn add_volume_export(&self, name: &str, _: &VolumeExport) -> Result<VolumeStatus, Refusal> {
        self.set_volume(name, &VolumePatch::default())
    }

    fn events(&self, after: u64) -> Vec<NodeEvent> {
        self.events.after(after)
    }

    fn last_event(&self) -> u64 {
        self.events.last()
    }

    fn on_event(&self, listener: Listener) {
        self.events.listen(listener);
    }

    fn upgrade_status(&self) -> UpgradeStatus {
        let mut upgrade = self.upgrade.lock().unwrap();
        upgrade.1 += 1;
        let (within, binary) = (upgrade.0.within_ns, upgrade.0.binary.clone().unwrap_or_default());
        let state = match (upgrade.1, within) {
            (1, _) => UpgradeState::TakingOver,
            (2, _) => UpgradeState::Probation,
            (_, None) => UpgradeState::Upgraded,
            _ => UpgradeState::RolledBack,
        };
        let reason = within.map(|_| "it crashed".to_string());
        let times = [Some(1_000_000), Some(2_000_000), Some(3_000_000)];
        let [prepare_ns, hand_over_ns, take_over_ns] = times;
        UpgradeStatus {
            number: 4,
            state,
            binary,
            reason,
            prepare_ns,
            hand_over_ns,
            take_over_ns,
            renew_ns: None,
            keeper: None,
        }
    }

    fn upgrade(&self, start: &UpgradeStart) -> Result<UpgradeStatus, Refusal> {
        *self.upgrade.lock().unwrap() = (start.clone(), 0);
        Ok(UpgradeStatus { number: 4, state: UpgradeState::Preparing, ..UpgradeStatus::default() })
    }

    fn shutdown(&self) {
        self.shutdowns.fetch_add(1, Ordering::SeqCst);
    }
}

struct Served {
    fake: Arc<Fake>,
    running: Option<Running>,
    dir: PathBuf,
}

impl Served {
    fn new(name: &str) -> Served {
        let dir = std::env::temp_dir().join(format!("weir-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let fake = Arc::new(Fake::default());
        let running = Bound::bind(&[Address::Unix(dir.join("a.sock"))], &weir_sys::keeper_channel::Keep::none())
            .unwrap()
            .serve(fake.clone(), weir_api::Tokens::default(), None)
            .unwrap();
        Served { fake, running: Some(running), dir }
    }

    fn run(&self, args: &[&str]) -> Output {
        weir(&self.dir.join("a.sock"), args)
    }

    #[track_caller]
    fn good(&self, args: &[&str]) -> String {
        let out = self.run(args);
        let (stdout, stderr) = texts(&out);
        assert!(out.status.success() && stderr.is_empty(), "{args:?}: {:?}\n{stdout}{stderr}", out.status);
        stdout
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.running.take());
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn weir(api: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).env("WEIR_API", api).env_remove("WEIR_LOG").stdin(Stdio::null()).output().unwrap()
}

fn texts(out: &Output) -> (String, String) {
    (String::from_utf8_lossy(&out.stdout).into_owned(), String::from_utf8_lossy(&out.stderr).into_owned())
}

/// Exit status and standard error; nothing may be on standard output.
#[track_caller]
fn refused(out: &Output, code: i32, message: &str) {
    let (stdout, stderr) = texts(out);
    assert_eq!((out.status.code(), stdout.as_str(), stderr.trim_end()), (Some(code), "", message));
}

#[test]
fn lists_for_people_and_programs() {
    let served = Served::new("lists");
    assert!(served.good(&["status"]).starts_with("node here  serving for 1 s  process 1  weir 0\n"));
    assert!(
        served
            .good(&["device", "ls"])
            .contains("\nssd0  p3700  ram        1GiB        -  -        0/64  drr 128KiB:64KiB:32KiB")
    );
    assert!(served.good(&["tenant", "ls"]).contains("\ngold  high        7"));
    assert!(served.good(&["export", "ls"]).contains("\nssd0    vhost-user  gold    peer"));
    let json = |args: &[&str]| serde_json::from_str::<serde_json::Value>(&served.good(args)).unwrap();
    assert_eq!(json(&["status", "--json"])["node"], "here");
    assert_eq!(json(&["--json", "device", "ls"])[0]["slots"], 64);
    assert_eq!(json(&["tenant", "ls", "--json"])[0]["weight"], 7);
    assert_eq!(json(&["export", "ls", "--json"])[0]["tenant"], "gold");
    let added = json(&["export", "vfio-user", "ssd0", "/x/vm.sock", "--tenant", "silver", "--json"]);
    assert_eq!(
        (&added["door"], &added["addresses"][0], &added["tenant"]),
        (&"vfio-user".into(), &"/x/vm.sock".into(), &"silver".into())
    );
    assert_eq!(served.good(&["export", "rm", "/x/gold.sock"]), "/x/gold.sock: removed\n");
}

#[test]
fn completion_times_are_shown_and_measured_anew() {
    let served = Served::new("stats");
    let shown = served.good(&["device", "stats", "my ssd"]);
    assert!(
        shown.starts_with("my ssd  nothing measured yet") && shown.contains("core 3, polling, 50% busy"),
        "{shown}"
    );
    assert_eq!(served.fake.resets.load(Ordering::SeqCst), 0);
    let json = served.good(&["device", "stats", "ssd0", "--reset", "--json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["core_busy_pct"], 50.0);
    assert_eq!(served.fake.resets.load(Ordering::SeqCst), 1);
}

fn fault(device: &str, id: u32, rule: &str) -> FaultStatus {
    FaultStatus { device: device.into(), id, rule: rule.into(), active: id == 1, matched: 5, applied: 2 }
}

#[test]
fn rules_of_failures_are_listed_made_and_removed() {
    let served = Served::new("faults");
    let added = served.good(&["fault", "add", "my ssd", "misdirected", "by=-8", "op=write", "probability=25%"]);
    assert_eq!(added, "my ssd: rule 4: misdirected by=-8 op=write probability=0.25\n");
    let table = served.good(&["fault", "ls", "ssd0"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["ssd0", "1", "yes", "5", "2", "hang", "lba=8"], "{table}");
    assert_eq!(rows[2][..3], ["ssd0", "3", "no"], "{table}");
    let json = served.good(&["fault", "ls", "ssd0", "--json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()[1]["rule"], "link-loss lasts=15s");
    let removed = served.good(&["fault", "rm", "ssd0", "all"]);
    assert!(
        removed.starts_with("ssd0: rule 1 removed: hang lba=8, applied 2 times\nssd0: rule 3 removed"),
        "{removed}"
    );
    for (args, code, says) in [
        (&["fault", "add", "ssd0", "melt"][..], 2, "effect: there is no \"melt\""),
        (&["fault", "add", "ssd0", "hang", "lba=9-8"], 2, "lba: \"9-8\" ends before it begins"),
        (&["fault", "add", "gone", "hang"], 1, "[node] says faults = true"),
        (&["fault", "rm", "ssd0", "7"], 1, "has no rule 7"),
        (&["fault", "rm", "ssd0", "x"], 2, "\"x\" is no rule's number"),
    ] {
        let out = served.run(args);
        let (_, stderr) = texts(&out);
        assert!(out.status.code() == Some(code) && stderr.contains(says), "{args:?}: {:?} {stderr}", out.status);
    }
}

#[test]
fn a_power_cut_says_what_it_did() {
    let served = Served::new("cut");
    assert_eq!(
        served.good(&["device", "power-cut", "my ssd"]),
        "my ssd: 4 writes of 3 units of 4 KiB are gone; the map is found again from 1000 pages in 2.5 ms; unsafe shutdowns so \
         far: 5\n"
    );
    assert!(served.good(&["device", "power-cut", "calm"]).starts_with("calm: nothing was lost; the map"));
    let json = served.good(&["device", "power-cut", "ssd0", "--json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["rebuild_ns"], 2_500_000);
}

#[test]
fn changes_are_sent_as_asked() {
    let served = Served::new("changes");
    assert_eq!(
        served.good(&["tenant", "set", "go ld", "--class", "low", "--weight", "9"]),
        "go ld: class high, weight 7\n"
    );
    let patch = TenantPatch { class: Some("low".into()), weight: Some(9), ..TenantPatch::default() };
    assert_eq!(*served.fake.tenants.lock().unwrap(), [("go ld".to_string(), patch)]);
    let args = "device set ssd0 --arbitration wrr --weights 4::1 --burst none --quanta 8KiB:4096:1MiB";
    let shown = served.good(&args.split(' ').collect::<Vec<_>>());
    assert_eq!(shown, "ssd0: 1GiB, drr 128KiB:64KiB:32KiB\n");
    let sent = serde_json::to_value(&served.fake.devices.lock().unwrap()[0].1).unwrap();
    let wanted = serde_json::json!({
        "mechanism": "wrr", "weights": { "high": 4, "low": 1 }, "burst": null,
        "quanta": { "high": 8192, "medium": 4096, "low": 1_048_576 },
    });
    assert_eq!(sent, wanted);
    served.good(&["device", "set", "ssd0", "--burst", "16", "--json"]);
    assert_eq!(served.fake.devices.lock().unwrap()[1].1.burst, Some(Some(4)));
}

#[test]
fn what_fails_says_why_in_a_line_and_by_status() {
    let served = Served::new("fails");
    let gone = served.run(&["device", "set", "gone", "--burst", "1"]);
    refused(&gone, 1, "weir: there is no device \"gone\"; there is ssd0");
    for (args, message) in [
        (["--weights", "1:2"], "weir: --weights: \"1:2\" is not three values high:medium:low"),
        (["--weights", "0:1:1"], "weir: --weights: 1 to 256 is allowed"),
        (["--weights", "x:1:1"], "weir: --weights: \"x\" is not a number from 1 to 256"),
        (["--burst", "3"], "weir: --burst: \"3\": 1, 2, 4, 8, 16, 32, 64 or none is allowed"),
        (
            ["--quanta", "1Kib::"],
            "weir: --quanta: \"1Kib\" is not a size like 4KiB (1024-based), 10GB (1000-based) or 4096",
        ),
        (["--quanta", "1KiB::"], "weir: --quanta: 4096 to 1073741824 bytes is allowed"),
    ] {
        refused(&served.run(&[&["device", "set", "ssd0"][..], &args].concat()), 2, message);
    }
    assert!(served.fake.devices.lock().unwrap().is_empty());
    let nobody = served.dir.join("nobody.sock");
    let message = "no node answers; start one with weir up, or name its API with --api";
    refused(&weir(&nobody, &["status"]), 1, &format!("weir: unix:{}: {message}", nobody.display()));
    let wrong = served.run(&["status", "--api", "example.org:80"]);
    refused(&wrong, 2, "weir: --api: \"example.org:80\" is not an address like unix:weir.sock or 127.0.0.1:9400");
    let add = ["tenant", "add", "tin", "--host", "nqn.a", "--host", "*", "--class", "low", "--sla-p99", "2ms"];
    assert_eq!(served.good(&add), "tin: class high, weight 7\n");
    let sla = SlaPatch { p99_ns: Some(Some(2_000_000)), ..SlaPatch::default() };
    let hosts = vec!["nqn.a".into(), "*".into()];
    let added =
        TenantAdd { name: "tin".into(), hosts, class: Some("low".into()), sla: Some(sla), ..TenantAdd::default() };
    assert_eq!(*served.fake.added.lock().unwrap(), [added]);
    assert_eq!(served.good(&["tenant", "rm", "tin"]), "tin: removed\n");
    let usage = served.run(&["tenant", "set", "gold"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(texts(&usage).1.contains("--class"), "{:?}", texts(&usage));
}

#[test]
fn an_answer_that_is_no_nodes() {
    use std::io::{Read, Write};
    let dir = std::env::temp_dir().join(format!("weir-cli-odd-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("odd.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let answers = [
        "",
        "SSH-2.0-x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\n\r\n[]",
        "HTTP/1.1 500 X\r\n\r\n<html>",
    ];
    let peer = std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    // No answer at all is asked for again.
    for part in ["is not HTTP", "is not HTTP", "does not understand", "HTTP status 500"] {
        let out = weir(&path, &["status"]);
        let (stdout, stderr) = texts(&out);
        assert!(out.status.code() == Some(1) && stdout.is_empty() && stderr.contains(part), "{part}: {stderr}");
    }
    peer.join().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn shutdown_waits_for_the_end() {
    let mut served = Served::new("shutdown");
    let running = served.running.take().unwrap();
    let fake = served.fake.clone();
    let ender = std::thread::spawn(move || {
        while fake.shutdowns.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        running.stop();
    });
    assert_eq!(served.good(&["shutdown"]), "stopped\n");
    ender.join().unwrap();
    assert_eq!(served.fake.shutdowns.load(Ordering::SeqCst), 1);
}

#[test]
fn upgrade_waits_for_its_end() {
    let served = Served::new("upgrade");
    let said = served.good(&["upgrade", "--binary", "/x/weir"]);
    assert!(said.starts_with("upgraded: /x/weir serves; it prepared in 1.0 ms, "), "{said}");
    assert_eq!(served.fake.upgrade.lock().unwrap().1, 3, "asked until it had ended");
    let said: serde_json::Value = serde_json::from_str(&served.good(&["upgrade", "--json"])).unwrap();
    assert_eq!((&said["state"], &said["take_over_ns"]), (&"upgraded".into(), &3_000_000.into()));
    for json in [false, true] {
        let out = served.run(&[&["upgrade", "--within", "2s"][..], if json { &["--json"] } else { &[] }].concat());
        let (stdout, stderr) = texts(&out);
        assert_eq!((out.status.code(), stdout.contains("rolled-back")), (Some(1), json));
        let message = "upgrade: rolled back, the program before it serves again: it crashed";
        let as_json = format!("{{\"error\":\"{message}\",\"exit_status\":1}}\n");
        assert_eq!(stderr, if json { as_json } else { format!("weir: {message}\n") });
    }
}

#[test]
fn completions_know_the_nodes_names() {
    let served = Served::new("complete");
    let complete = |words: &[&str]| {
        let (index, api) = ((words.len() - 1).to_string(), format!("unix:{}", served.dir.join("a.sock").display()));
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
            .envs([("COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", &index), ("_CLAP_IFS", "\n"), ("WEIR_API", &api)])
            .arg("--")
            .args(words)
            .output()
            .unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    assert!(complete(&["weir", "device", "set", ""]).lines().any(|line| line == "ssd0"));
    assert!(complete(&["weir", "tenant", "set", "g"]).lines().any(|line| line == "gold"));
    assert!(complete(&["weir", "dev"]).lines().any(|line| line == "device"));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let served = Served::new("pipe");
    let script = format!("{} status | true; exit ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_weir"));
    let api = served.dir.join("a.sock");
    let out = Command::new("bash").args(["-c", &script]).env("WEIR_API", api).output().unwrap();
    assert_eq!((out.status.code(), texts(&out).1.as_str()), (Some(0), ""));
}

#[test]
fn configurations_are_checked_and_printed() {
    let dir = std::env::temp_dir().join(format!("weir-cli-config-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(args).current_dir(&dir).output().unwrap()
    };
    std::fs::write(dir.join("bad.toml"), "[[device]]\nslots = 0\nlatency = \"80\"\n").unwrap();
    for command in
        [&["config", "-c", "bad.toml", "--check"][..], &["config", "-c", "bad.toml"], &["up", "-c", "bad.toml"]]
    {
        refused(
            &run(command),
            1,
            "weir: bad.toml:2: device.ssd0.slots: 0 is out of range; 1 to 4096 is allowed\n\
             weir: bad.toml:3: device.ssd0.latency: \"80\" is not a time like 80us, 2ms, 10s",
        );
    }
    // The default as text is the default; what is printed says the same as what was read.
    let default = run(&["config", "--default"]);
    std::fs::write(dir.join("default.toml"), &default.stdout).unwrap();
    let printed = run(&["config", "-c", "default.toml"]);
    assert_eq!(texts(&printed), texts(&run(&["config"])));
    std::fs::write(dir.join("printed.toml"), &printed.stdout).unwrap();
    assert_eq!(run(&["config", "-c", "printed.toml"]).stdout, printed.stdout);
    let checked = run(&["config", "-c", "default.toml", "--check"]);
    assert!(checked.status.success() && checked.stderr.is_empty());
    assert_eq!(String::from_utf8_lossy(&checked.stdout), "default.toml: OK, 1 drive, 3 tenants, 4 exports\n");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn help_has_examples_and_completions_are_scripts() {
    let nowhere = Path::new("/nonexistent");
    for command in ["up", "config", "sim", "completions"] {
        let out = weir(nowhere, &[command, "--help"]);
        assert!(out.status.success() && texts(&out).0.contains("Example"), "{command}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(texts(&weir(nowhere, &["completions", shell])).0.contains("shutdown"), "{shell}");
    }
}
