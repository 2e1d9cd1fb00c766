//! How clients reach a node: for each kind of client a line to paste.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use weir_node::config::{Config, DeviceConfig, DoorConfig, ExportConfig, TenantConfig};

/// The lines of `weir up`. `listening`: where NVMe/TCP really listens; `program`: how the user called weir.
pub fn lines(config: &Config, listening: &[SocketAddr], program: &str) -> String {
    let mut out = String::new();
    let by_tcp: Vec<&DeviceConfig> =
        config.exports.iter().filter(|e| e.door == DoorConfig::NvmeTcp).map(|e| &config.devices[e.device]).collect();
    if let Some(address) = listening.first().map(|a| reachable(*a)) {
        for device in &by_tcp {
            section(
                &mut out,
                &format!("A Linux host, NVMe/TCP, drive {} (as root)", device.name),
                host_lines(config, device, address),
            );
        }
    }
    for (name, door) in sockets(config) {
        section(&mut out, &format!("A QEMU guest, {name} (add a boot disk)"), [qemu_line(door)]);
    }
    let mut benches = Vec::new();
    if let (Some(address), Some(device)) = (listening.first(), by_tcp.first()) {
        let target = format!("nvme-tcp://{}/{}?ns=1", reachable(*address), device.nqn);
        benches.push(format!("{program} bench {} --rw randread --bs 4KiB --qd 32 --time 10s", quoted(&target)));
    }
    let is_disk = |door: &&DoorConfig| matches!(door, DoorConfig::VhostUser { .. });
    if let Some(door) = sockets(config).into_iter().map(|(_, door)| door).find(is_disk) {
        let target = door.to_string();
        benches.push(format!("{program} bench {} --rw randread --bs 4KiB --qd 32 --time 10s", quoted(&target)));
    }
    section(&mut out, "Measure it", benches);
    section(
        &mut out,
        "Watch it, change it, end it",
        [format!("{program} status"), format!("{program} tenant ls"), format!("{program} shutdown")]
            .map(|l| with_api(&l, config)),
    );
    out
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
fn host_lines(config: &Config, device: &DeviceConfig, address: SocketAddr) -> Vec<String> {
    let line = |host: &str| {
        let (ip, port) = (address.ip(), address.port());
        let connect = format!("nvme connect -t tcp -a {ip} -s {port} -n {}", quoted(&device.nqn));
        format!("modprobe nvme-tcp; {connect}{host}")
    };
    // The kernel refuses one host ID under two host NQNs, so each tenant's host gets its own.
    let named = |t: &TenantConfig| {
        let host = t.hosts.first()?;
        Some(line(&format!(" --hostnqn {} --hostid {}   # {}", quoted(host), host_id(host), t.name)))
    };
    let lines: Vec<String> = config.tenants.iter().filter_map(named).collect();
    if lines.is_empty() { vec![line("")] } else { lines }
}

/// The sockets with what to call them.
fn sockets(config: &Config) -> Vec<(String, &DoorConfig)> {
    let called = |e: &'_ ExportConfig| {
        let (_, tenant) = e.door.socket()?;
        Some(format!("tenant {}, drive {}", config.tenants[tenant].name, config.devices[e.device].name))
    };
    config.exports.iter().filter_map(|e| Some((called(e)?, &e.door))).collect()
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

/// `weir status` finds the API in the runtime folder; elsewhere it must be told.
fn with_api(line: &str, config: &Config) -> String {
    let found = weir_node::config::Address::Unix(weir_node::config::runtime_dir().join("weir.sock"));
    match config.node.api.first() {
        Some(api) if !config.node.api.contains(&found) => format!("{line} --api {}", quoted(&api.to_string())),
        _ => line.to_string(),
    }
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
