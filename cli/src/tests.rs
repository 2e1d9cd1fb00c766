//! The command line without a process around it: what is accepted, what is printed.

use crate::args::{Cli, CliCommand, DeviceCommand, TenantCommand};
use crate::connect;
use crate::node_commands::describe;
use crate::output::Table;
use clap::{CommandFactory, Parser};
use std::path::Path;
use weir_api::{
    AttainmentStatus, Counters, DeviceStatus, ExportStatus, FloorStatus, PeriodStatus, ShardStatus, SlaState,
    SlaStatus, State, Status, TenantStatus, Timing, TimingState,
};
use weir_config::{Arbitration, ClassFrom, Config, Cost};
use weir_units::{Bytes, Floor, Nanos, Rates, Sla};

fn parsed(line: &str) -> Result<CliCommand, clap::error::ErrorKind> {
    Cli::try_parse_from(line.split(' ')).map(|cli| cli.command).map_err(|e| e.kind())
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn what_is_accepted() {
    let Ok(CliCommand::Up(up)) = parsed("weir up -c x.toml --poll --cores 0,2 --listen 127.0.0.1:1,[::1]:2") else {
        panic!("up")
    };
    assert_eq!(
        (up.config.as_deref(), up.poll, up.cores.as_slice()),
        (Some(Path::new("x.toml")), true, [0, 2].as_slice())
    );
    assert_eq!(up.listen, ["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()]);
    let Ok(CliCommand::Device(device)) = parsed("weir device set d --weights 1::3 --json --api /x") else {
        panic!("set")
    };
    assert!(matches!(device.command, DeviceCommand::Set(set) if set.weights.as_deref() == Some("1::3")));
    let Ok(CliCommand::Tenant(tenant)) = parsed("weir tenant set t --weight 256 --class low") else { panic!("set") };
    assert!(matches!(tenant.command, TenantCommand::Set(set) if set.share.weight == Some(256)));
    for line in [
        "status --json",
        "tenant ls",
        "device ls",
        "device ls --pci",
        "device bind pci:0000:01:00.0",
        "device unbind 01:00.0 --json",
        "device stats d --reset",
        "export ls",
        "export vfio-user ssd0 x.sock --tenant t --class-from qprio --doorbells mmap --force",
        "export rm x.sock",
        "shutdown",
        "upgrade",
        "upgrade --binary ./weir --within 2s --probation 0s --json",
        "config --default",
        "completions zsh",
    ] {
        assert!(parsed(&format!("weir {line}")).is_ok(), "{line}");
    }
}

#[test]
fn what_is_refused() {
    use clap::error::ErrorKind::*;
    for (line, kind) in [
        ("", DisplayHelpOnMissingArgumentOrSubcommand),
        (" frobnicate", InvalidSubcommand),
        (" up --listen localhost:4420", ValueValidation),
        (" up --cores x", ValueValidation),
        (" tenant set t", MissingRequiredArgument),
        (" tenant set t --weight 257", ValueValidation),
        (" tenant set t --class best", InvalidValue),
        (" device set d", MissingRequiredArgument),
        (" device stats", MissingRequiredArgument),
        (" device set d --arbitration fair", InvalidValue),
        (" config --default --check", ArgumentConflict),
        (" completions", MissingRequiredArgument),
    ] {
        assert_eq!(parsed(&format!("weir{line}")).err(), Some(kind), "weir{line}");
    }
}

#[test]
fn columns_line_up() {
    let mut table = Table::new(&["NAME", ">SIZE", "NOTE"]);
    table.row(["é".into(), "1".into(), "a b".into()]);
    table.row(["longer".into(), "12345".into()]);
    assert_eq!(table.render(), "NAME     SIZE  NOTE\né           1  a b\nlonger  12345\n");
}

fn status() -> Status {
    let io = Counters { reads: 10, writes: 20, others: 1, read_bytes: 40_960, written_bytes: 2_000_000_000, errors: 3 };
    Status {
        node: "n1".into(),
        version: "0.1.0".into(),
        pid: 4711,
        worker_pid: Some(2),
        state: State::Serving,
        uptime_s: 3_725.5,
        start: Vec::new(),
        api: vec!["unix:/run/weir/weir.sock".into()],
        shards: vec![ShardStatus { core: 0, poll: true, cpu_s: 1.0, busy_pct: 12.3 }],
        doors: Vec::new(),
        devices: vec![DeviceStatus {
            name: "ssd0".into(),
            nqn: "nqn.x".into(),
            serial: "S".into(),
            media: "ram".into(),
            interface: "block".into(),
            profile: Some("p3700".into()),
            capacity_bytes: 1 << 30,
            block_size: 512,
            latency_ns: 80_000,
            slots: 16,
            slots_busy: 2,
            slot_time_ns: 0,
            slot_bytes: 4 << 20,
            arbitration: Arbitration::default(),
            cost: Cost::Bytes,
            core: 0,
            controllers: 1,
            queues: 4,
            io,
            fault: None,
            health: None,
            link: None,
            timing: None,
            flash: None,
            clients: Vec::new(),
        }],
        tenants: vec![TenantStatus {
            name: "gold".into(),
            class: "high".into(),
            urgent: true,
            weight: 1,
            floor: None,
            ceiling: None,
            sla: None,
            attainment: Vec::new(),
            hosts: vec!["nqn.h".into(), "*".into()],
            controllers: 1,
            queues: 4,
            connections: 1,
            admission: Vec::new(),
            at_ceiling: false,
            latency: Vec::new(),
            io,
        }],
        exports: vec![ExportStatus {
            volume: None,
            device: "ssd0".into(),
            door: "nvme-tcp".into(),
            addresses: vec!["127.0.0.1:4420".into()],
            tenant: None,
            class_from: ClassFrom::Tenant,
            queues: 64,
            read_only: true,
            clients: 1,
            recovered: None,
        }],
    }
}

#[test]
fn promises_are_sent_and_shown() {
    let Ok(CliCommand::Tenant(tenant)) = parsed(
        "weir tenant set t --floor-iops 20k --floor-bandwidth none --ceiling-burst-bytes 1MiB --sla-p99 2ms --sla-p999 none",
    ) else {
        panic!("set")
    };
    let TenantCommand::Set(set) = tenant.command else { panic!("set") };
    let patch = crate::service_levels::patch(&set.share);
    let json = serde_json::to_string(&patch).unwrap();
    let wanted = r#"{"floor":{"iops":20000,"bandwidth_bytes_per_s":null},"ceiling":{"burst_bytes":1048576},"sla":{"p99_ns":2000000,"p999_ns":null}}"#;
    assert_eq!(json, wanted);
    let mut t = status().tenants.remove(0);
    t.floor = FloorStatus::of(&Floor::new(Rates { iops: Some(20_000), bandwidth: Some(Bytes(500_000_000)) }));
    t.sla = SlaStatus::of(&Sla { p99: Some(Nanos::from_millis(2)), ..Sla::default() });
    t.attainment = vec![AttainmentStatus {
        device: "ssd0".into(),
        state: SlaState::Missed,
        since_s: 4,
        periods: 30,
        missed: 5,
        missed_rate: 5,
        missed_latency: 0,
        last: Some(PeriodStatus {
            commands: 9,
            iops: 9,
            bandwidth_bytes_per_s: 9,
            p50_ns: 9,
            p99_ns: 9,
            p999_ns: 9,
            max_ns: 9,
            missed_rate: true,
            missed_latency: false,
        }),
    }];
    let cells = crate::service_levels::cells(&t);
    assert_eq!(cells, ["20000/s 500MB/s", "-", "p99 2ms", "ssd0 MISSED rate 4 s (5 of 30 missed)"]);
    assert_eq!(crate::service_levels::text(&t), ", floor 20000/s 500MB/s, sla p99 2ms");
}

#[test]
fn status_is_one_screen() {
    let wanted = "\
node n1  serving for 1 h 2 min  process 4711  weir 0.1.0
cores 0 12% busy (polling)  api unix:/run/weir/weir.sock

devices
NAME  KIND   MEDIA  CAPACITY  LATENCY  TIMING  SLOTS  ARBITRATION             QUEUES     READ  WRITTEN  ERRORS  NQN
ssd0  p3700  ram        1GiB     80us  -        2/16  drr 128KiB:64KiB:32KiB       4  41.0 KB   2.0 GB       3  nqn.x

tenants
NAME  CLASS          WEIGHT  QUEUES  READS  WRITES     READ  WRITTEN  ERRORS  HOSTS
gold  high (urgent)       1       4     10      20  41.0 KB   2.0 GB       3  nqn.h *

exports
DEVICE  DOOR      TENANT   CLASS FROM  QUEUES  MODE  CLIENTS  ADDRESS
ssd0    nvme-tcp  by host  tenant          64  ro          1  127.0.0.1:4420
";
    assert_eq!(describe(&status()), wanted);
    let mut other = status();
    for (interface, profile, kind) in
        [("block", None, "-"), ("zoned", None, "zoned"), ("open-channel", Some("femu-oc"), "open-channel femu-oc")]
    {
        (other.devices[0].interface, other.devices[0].profile) = (interface.into(), profile.map(Into::into));
        assert!(describe(&other).contains(&format!("\nssd0  {kind}  ")), "{kind}");
    }
    let mut broken = status();
    broken.devices[0].fault = Some("file:/x: write failed at byte 0: Input/output error".into());
    broken.devices[0].timing = Some(Timing {
        state: TimingState::Overloaded,
        state_s: 34.0,
        late_pct: 62.0,
        net_late_pct: 61.0,
        completions: 1000,
        over_5us: 620,
        over_20us: 300,
        net_over_5us: 610,
        net_over_20us: 290,
        overloads: 1,
        overloaded_s: 34.0,
    });
    let text = describe(&broken);
    assert!(text.contains("  80us  61% late (overloaded)   2/16"), "{text}");
    let line = text.lines().find(|l| l.starts_with("OVERLOADED ssd0: overloaded since ")).unwrap();
    assert!(line.contains(" UTC (34 s), 61% late: core 0 cannot keep the modelled times"), "{line}");
    let fault = "nqn.x\nFAULT ssd0: file:/x: write failed at byte 0: Input/output error\n";
    assert!(describe(&broken).contains(fault), "{}", describe(&broken));
}

#[test]
fn lines_to_paste() {
    let config = Config::builtin(Path::new("/run/w'eir")).unwrap();
    let text = connect::lines(&config, &["0.0.0.0:4421".parse().unwrap()], "./weir");
    let line = |part: &str| {
        let found: Vec<&str> = text.lines().filter(|l| l.contains(part)).collect();
        assert_eq!(found.len(), 1, "{part}: {text}");
        found[0].to_string()
    };
    let gold = line("# gold");
    assert!(
        gold.starts_with("modprobe nvme-tcp; nvme connect -t tcp -a 127.0.0.1 -s 4421 -n nqn.2026-11.io.weir:n1:ssd0 ")
    );
    assert!(gold.contains(" --hostnqn nqn.2026-11.io.weir:host:gold --hostid "), "{gold}");
    let id = |line: &str| line.split("--hostid ").nth(1).unwrap()[..36].to_string();
    assert_ne!(id(&gold), id(&line("# silver")));
    for (i, c) in id(&gold).chars().enumerate() {
        assert!(if [8, 13, 18, 23].contains(&i) { c == '-' } else { c.is_ascii_hexdigit() }, "{gold}");
    }
    let qemu = line("gold.sock' -device");
    assert!(qemu.contains("-object memory-backend-memfd,id=mem,size=2G,share=on"), "{qemu}");
    assert!(qemu.contains("-chardev 'socket,id=weir,path=/run/w'\\''eir/gold.sock'"), "{qemu}");
    assert!(qemu.contains("-device vhost-user-blk-pci,chardev=weir,num-queues=2"), "{qemu}");
    assert!(
        line("bench 'nvme-tcp")
            .starts_with("./weir bench 'nvme-tcp://127.0.0.1:4421/nqn.2026-11.io.weir:n1:ssd0?ns=1' --rw ")
    );
    assert!(line("bench 'vhost-user").starts_with("./weir bench 'vhost-user:/run/w'\\''eir/gold.sock' --rw "));
    assert!(line("weir status").contains("--api 'unix:/run/w'\\''eir/weir.sock'"));
}

#[test]
fn volumes_and_pcie_drives_have_lines_to_paste() {
    let text = r#"
[[device]]
name = "ssd0"
[[device]]
name = "ssd1"
[[tenant]]
name = "gold"
hosts = ["nqn.2026-11.io.weir:host:gold"]
[[tenant]]
name = "tin"
hosts = ["nqn.2026-11.io.weir:host:tin"]
[[export]]
device = "ssd0"
door = "vfio-user:pcie.sock"
tenant = "tin"
[[volume]]
name = "v0"
tenant = "tin"
size = "64MiB"
export = ["nvme-tcp", "vhost-user:v0.sock"]
"#;
    let config = Config::parse(text, "t", Path::new("/run")).unwrap();
    let text = connect::lines(&config, &["127.0.0.1:4420".parse().unwrap()], "weir");
    for part in [
        "# A Linux host, NVMe/TCP, volume v0 (as root):\nmodprobe nvme-tcp; nvme connect -t tcp -a 127.0.0.1 -s 4420 \
         -n nqn.2026-11.io.weir:n1:v0 --hostnqn nqn.2026-11.io.weir:host:tin --hostid ",
        "# A QEMU guest (QEMU 10.1 or newer), tenant tin, drive ssd0 (add a boot disk):\nqemu-system-x86_64 ",
        "-device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"path\":\"/run/pcie.sock\",\"type\":\"unix\"}}'\n",
        "# A QEMU guest, tenant tin, volume v0 (add a boot disk):\nqemu-system-x86_64 ",
        "-chardev socket,id=weir,path=/run/v0.sock -device vhost-user-blk-pci,",
        "weir bench 'nvme-tcp://127.0.0.1:4420/nqn.2026-11.io.weir:n1:v0?ns=1' --hostnqn nqn.2026-11.io.weir:host:tin --rw ",
        "weir bench vhost-user:/run/v0.sock --rw randread",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("host:gold"), "a volume is its tenant's: {text}");
}

#[test]
fn shells_take_what_is_quoted() {
    for (text, wanted) in [("a/b:c=1", "a/b:c=1"), ("a b", "'a b'"), ("", "''"), ("it's", "'it'\\''s'"), ("?", "'?'")] {
        assert_eq!(connect::quoted(text), wanted);
    }
}

#[test]
fn a_log_filter_is_levels_by_target() {
    use tracing_subscriber::filter::LevelFilter;
    let filter = |text: &str| crate::log_filter((!text.is_empty()).then(|| text.into()));
    let levels = [
        ("", LevelFilter::WARN),
        ("debug", LevelFilter::DEBUG),
        ("off", LevelFilter::OFF),
        ("warn,weir_node::flash=info", LevelFilter::WARN),
    ];
    for (text, level) in levels {
        let (targets, refused) = filter(text);
        assert_eq!((targets.default_level(), refused), (Some(level), None), "{text:?}");
    }
    let (targets, _) = filter("warn,weir_node::flash=info");
    assert!(targets.would_enable("weir_node::flash", &tracing::Level::INFO));
    assert!(!targets.would_enable("weir_node::door", &tracing::Level::INFO));
    for (text, what) in [("weir_node", "\"weir_node\" is no level"), ("warn,weir_node=loud", "expected one of")] {
        let (targets, refused) = filter(text);
        assert_eq!(targets.default_level(), Some(LevelFilter::WARN), "{text:?}: warnings are still shown");
        let refused = refused.unwrap_or_default();
        assert!(refused.starts_with("WEIR_LOG=") && refused.contains(what), "{refused}");
    }
}

#[test]
fn the_log_is_text_or_json() {
    let format = |text: &str| crate::log_format((!text.is_empty()).then(|| text.into()));
    assert_eq!([format(""), format("text"), format("json")], [(false, None), (false, None), (true, None)]);
    let (json, why) = format("yaml");
    assert!(!json && why.unwrap().ends_with("write text or json"));
}

#[test]
fn the_long_version_says_the_commit() {
    let text = crate::args::Cli::command().render_long_version();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], format!("weir {}", env!("CARGO_PKG_VERSION")));
    let commit = lines[1].strip_prefix("commit ").unwrap();
    assert!(commit == "unknown" || commit.len() == 12 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{commit}");
}
