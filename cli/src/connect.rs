//! How clients reach a node: for each kind of client a line to paste.

use crate::registry;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use weir_config::{Config, DoorConfig, ExportConfig, TenantConfig, VolumeConfig};

/// The lines of `weir up`. `listening`: where NVMe/TCP really listens; `program`: how the user called weir.
pub fn lines(config: &Config, listening: &[SocketAddr], program: &str) -> String {
    let mut out = String::new();
    let address = listening.first().map(|a| reachable(*a));
    let subsystems = subsystems(config);
    for subsystem in address.iter().flat_map(|_| &subsystems) {
        let title = format!("A Linux host, NVMe/TCP, {} (as root)", subsystem.title);
        section(&mut out, &title, address.map(|a| host_lines(subsystem, a)).unwrap_or_default());
    }
    for (name, door) in sockets(config) {
        let program = match door {
            DoorConfig::VfioUser { .. } => "A QEMU guest (QEMU 10.1 or newer)",
            _ => "A QEMU guest",
        };
        section(&mut out, &format!("{program}, {name} (add a boot disk)"), [qemu_line(door)]);
    }
    if let Some((name, door)) = sockets(config).first() {
        let line = format!("{program} guest {}", quoted(&door.to_string()));
        section(&mut out, &format!("A small machine of this one's kernel and busybox, {name}"), [line]);
    }
    let mut targets: Vec<String> = Vec::new();
    if let (Some(address), Some(subsystem)) = (address, subsystems.first()) {
        targets.push(format!("{} {}", quoted(&subsystem.target(address)), subsystem.bench_host()));
    }
    let is_disk = |door: &&DoorConfig| matches!(door, DoorConfig::VhostUser { .. });
    let disk = sockets(config).into_iter().map(|(_, door)| door).find(is_disk);
    targets.extend(disk.map(|door| format!("{} ", quoted(&door.to_string()))));
    let bench = |target: &String| format!("{program} bench {target}--rw randread --bs 4KiB --qd 32 --time 10s");
    section(&mut out, "Measure it", targets.iter().map(bench));
    section(
        &mut out,
        "Watch it, change it, end it",
        [format!("{program} status"), format!("{program} tenant ls"), format!("{program} shutdown")]
            .map(|l| with_api(&l, config)),
    );
    out
}

/// What a host connects to over NVMe/TCP: a drive or a volume.
struct Subsystem<'a> {
    title: String,
    nqn: String,
    /// Whose hosts may connect.
    tenants: Vec<&'a TenantConfig>,
}

impl Subsystem<'_> {
    fn target(&self, address: SocketAddr) -> String {
        format!("nvme-tcp://{address}/{}?ns=1", self.nqn)
    }

    /// The option that `weir bench` needs where no tenant takes every host, with a blank behind it.
    fn bench_host(&self) -> String {
        let named = self.tenants.iter().find_map(|t| t.hosts.first());
        match named {
            Some(host) if !self.tenants.iter().any(|t| t.any_host) => format!("--hostnqn {} ", quoted(host)),
            _ => String::new(),
        }
    }
}

fn subsystems(config: &Config) -> Vec<Subsystem<'_>> {
    let of_drive = |e: &ExportConfig| {
        let device = &config.devices[e.device];
        let title = format!("drive {}", device.name);
        (e.door == DoorConfig::NvmeTcp).then(|| Subsystem {
            title,
            nqn: device.nqn.clone(),
            tenants: config.tenants.iter().collect(),
        })
    };
    let of_volume = |v: &VolumeConfig| {
        let (title, nqn) = (format!("volume {}", v.name), v.nqn(&config.node.name));
        v.exports.contains(&DoorConfig::NvmeTcp).then(|| Subsystem {
            title,
            nqn,
            tenants: vec![&config.tenants[v.tenant]],
        })
    };
    config.exports.iter().filter_map(of_drive).chain(config.volumes.iter().filter_map(of_volume)).collect()
}

fn section(out: &mut String, title: &str, lines: impl IntoIterator<Item = String>) {
    let mut lines = lines.into_iter().peekable();
    if lines.peek().is_none() {
        return;
    }
    let _ = writeln!(out, "\n# {title}:");
    for line in lines {
        let _ = writeln!(out, "{line}");
    }
}

/// One line a tenant whose hosts have names, else one for any host.
fn host_lines(subsystem: &Subsystem<'_>, address: SocketAddr) -> Vec<String> {
    let line = |host: &str| {
        let (ip, port) = (address.ip(), address.port());
        let connect = format!("nvme connect -t tcp -a {ip} -s {port} -n {}", quoted(&subsystem.nqn));
        format!("modprobe nvme-tcp; {connect}{host}")
    };
    // The kernel refuses one host ID under two host NQNs, so each tenant's host gets its own.
    let named = |t: &&TenantConfig| {
        let host = t.hosts.first()?;
        Some(line(&format!(" --hostnqn {} --hostid {}   # {}", quoted(host), host_id(host), t.name)))
    };
    let lines: Vec<String> = subsystem.tenants.iter().filter_map(named).collect();
    if lines.is_empty() { vec![line("")] } else { lines }
}

/// The sockets with what to call them.
fn sockets(config: &Config) -> Vec<(String, &DoorConfig)> {
    let drives = config.exports.iter().map(|e| (format!("drive {}", config.devices[e.device].name), &e.door));
    let of = |v: &VolumeConfig| format!("volume {}", v.name);
    let volumes = config.volumes.iter().flat_map(|v| v.exports.iter().map(move |door| (of(v), door)));
    let mut sockets = Vec::new();
    for (what, door) in drives.chain(volumes) {
        if let Some((_, tenant)) = door.socket() {
            sockets.push((format!("tenant {}, {what}", config.tenants[tenant].name), door));
        }
    }
    sockets
}

fn qemu_line(door: &DoorConfig) -> String {
    let path = door.socket().map(|(path, _)| path.display().to_string()).unwrap_or_default();
    let device = match door {
        DoorConfig::VfioUser { .. } => {
            let socket = serde_json::json!({ "type": "unix", "path": path });
            let device = serde_json::json!({ "driver": "vfio-user-pci", "socket": socket });
            format!("-device {}", quoted(&device.to_string()))
        }
        _ => {
            let socket = quoted(&format!("socket,id=weir,path={}", path.replace(',', ",,")));
            format!("-chardev {socket} -device vhost-user-blk-pci,chardev=weir,num-queues=2")
        }
    };
    format!(
        "qemu-system-x86_64 -M q35,accel=kvm:tcg,memory-backend=mem -m 2G \
         -object memory-backend-memfd,id=mem,size=2G,share=on {device}"
    )
}

/// A client cannot connect to "any address".
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// The node with its API at the usual place is found while no other one runs; elsewhere the line says where the API is.
fn with_api(line: &str, config: &Config) -> String {
    match config.node.api.first() {
        Some(api) if !is_found(config) => format!("{line} --api {}", quoted(&api.to_string())),
        _ => line.to_string(),
    }
}

/// Whether commands find the node without being told where it is.
fn is_found(config: &Config) -> bool {
    let usual = weir_config::Address::Unix(weir_config::runtime_dir().join("weir.sock"));
    config.node.api.contains(&usual) && registry::running().iter().all(|node| node.has(&usual))
}

/// The lines of `weir up` for a store whose metadata service is at that address.
pub fn store_lines(config: &Config, at: &str, program: &str) -> String {
    let store = if is_found(config) { String::new() } else { format!(" --store {}", quoted(at)) };
    let lines = [
        format!("echo hello | {program} fs{store} put - /hello.txt"),
        format!("{program} fs{store} cat /hello.txt"),
        format!("{program} store{store} status"),
    ];
    let mut out = String::new();
    section(&mut out, &format!("Files, at {at}; those on drives in memory are gone when the node ends"), lines);
    out
}

/// As a shell takes it.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_string();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The same NQN has the same host ID everywhere: 122 bits of two FNV-1a hashes as a version 8 UUID (RFC 9562).
fn host_id(nqn: &str) -> String {
    let hash = |start: u64| nqn.bytes().fold(start, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
    let (a, b) = (hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142));
    let (version, variant) = (0x8000 | (a & 0x0fff), 0x8000 | (b >> 48 & 0x3fff));
    format!("{:08x}-{:04x}-{version:04x}-{variant:04x}-{:012x}", a >> 32, a >> 16 & 0xffff, b & 0xffff_ffff_ffff)
}
