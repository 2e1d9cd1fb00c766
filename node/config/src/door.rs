//! `[door.nvme-tcp]`.

use super::read::{Read, Section, flag, integer, one_or_list, quoted, size, text, word};
use super::value::Value;
use super::word_enum::word_enum;
use std::net::SocketAddr;
use weir_controller::AnaState;
use weir_units::Bytes;

word_enum! {
    /// Whose controllers must have a keep alive timer, over NVMe/TCP.
    KeepAlive {
        /// Those of hosts that are not on this machine.
        Network = "network",
        /// Everybody's.
        Always = "always",
        /// Nobody's.
        Never = "never",
    }
}

impl KeepAlive {
    /// Of a host that is on another machine, or is not.
    pub fn is_required(self, is_remote: bool) -> bool {
        match self {
            KeepAlive::Network => is_remote,
            KeepAlive::Always => true,
            KeepAlive::Never => false,
        }
    }
}

/// The NVMe/TCP door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeTcpConfig {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Those of them by which the namespaces are reached, but not as well as by the others.
    pub non_optimized: Vec<SocketAddr>,
    /// Those of them by which the namespaces are not reached until the operator says so.
    pub inaccessible: Vec<SocketAddr>,
    /// Data that a host may send inside a command capsule.
    pub in_capsule: Bytes,
    /// Header digests are granted to hosts that ask.
    pub header_digest: bool,
    /// Data digests are granted to hosts that ask.
    pub data_digest: bool,
    /// Write data that one tenant may have on the way (R2T budget).
    pub tenant_buffer: Bytes,
    /// Queues' connections at most, over all hosts.
    pub connections: u16,
    /// Those of one tenant at most; `None`: what is not reserved for others.
    pub tenant_connections: Option<u16>,
    /// Those that stay free for each tenant until it has so many; `None`: half of all, divided among the tenants.
    pub tenant_reserve: Option<u16>,
    /// Those of one host at most; `None`: half of all.
    pub host_connections: Option<u16>,
    /// Sockets that are no queue yet at most, on each core.
    pub unconnected: u16,
    /// Those of one address.
    pub address_unconnected: u16,
    /// Whose controllers must have a keep alive timer.
    pub keep_alive: KeepAlive,
}

impl NvmeTcpConfig {
    /// How namespaces are reached by its addresses, where not as well as they can be.
    pub fn ana_ports(&self) -> Vec<(SocketAddr, AnaState)> {
        let as_state = |list: &[SocketAddr], state| list.iter().map(|at| (*at, state)).collect::<Vec<_>>();
        let non_optimized = as_state(&self.non_optimized, AnaState::NonOptimized);
        [non_optimized, as_state(&self.inaccessible, AnaState::Inaccessible)].concat()
    }
}

impl Default for NvmeTcpConfig {
    fn default() -> Self {
        NvmeTcpConfig {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 4420))],
            non_optimized: Vec::new(),
            inaccessible: Vec::new(),
            in_capsule: Bytes(8 * Bytes::KIB),
            header_digest: true,
            data_digest: true,
            tenant_buffer: Bytes(16 * Bytes::MIB),
            connections: 1024,
            tenant_connections: None,
            tenant_reserve: None,
            host_connections: None,
            unconnected: 512,
            address_unconnected: 256,
            keep_alive: KeepAlive::Network,
        }
    }
}

/// Of connections and of sockets.
const CONNECTIONS: std::ops::RangeInclusive<u64> = 1..=16384;

/// What it says of a node of so many tenants.
pub(super) fn read(root: &Section<'_>, tenants: usize) -> NvmeTcpConfig {
    let default = NvmeTcpConfig::default();
    let Some((line, entries)) = root.table("door") else { return default };
    let doors = root.inner("door", line, entries);
    let config = match doors.table("nvme-tcp") {
        Some((line, entries)) => nvme_tcp(&root.inner("door.nvme-tcp", line, entries), default, tenants),
        None => default,
    };
    doors.finish();
    config
}

fn nvme_tcp(door: &Section<'_>, default: NvmeTcpConfig, tenants: usize) -> NvmeTcpConfig {
    let config = NvmeTcpConfig {
        listen: door.or("listen", default.listen, listen),
        non_optimized: door.or("non_optimized", default.non_optimized, some_addresses),
        inaccessible: door.or("inaccessible", default.inaccessible, some_addresses),
        in_capsule: door.or("in_capsule", default.in_capsule, in_capsule),
        header_digest: door.or("header_digest", default.header_digest, flag),
        data_digest: door.or("data_digest", default.data_digest, flag),
        tenant_buffer: door.or("tenant_buffer", default.tenant_buffer, size(Bytes::MIB..=16 * Bytes::GIB)),
        connections: door.or("connections", u64::from(default.connections), integer(CONNECTIONS)) as u16,
        tenant_connections: door.get("tenant_connections", |v| Ok(integer(CONNECTIONS)(v)? as u16)),
        tenant_reserve: door.get("tenant_reserve", |v| Ok(integer(0..=16384)(v)? as u16)),
        host_connections: door.get("host_connections", |v| Ok(integer(CONNECTIONS)(v)? as u16)),
        unconnected: door.or("unconnected", u64::from(default.unconnected), integer(CONNECTIONS)) as u16,
        address_unconnected: 0,
        keep_alive: door.or("keep_alive", default.keep_alive, word(KeepAlive::WORDS)),
    };
    let of_address = u64::from(default.address_unconnected.min(config.unconnected));
    let address_unconnected = door.or("address_unconnected", of_address, integer(CONNECTIONS)) as u16;
    let config = NvmeTcpConfig { address_unconnected, ..config };
    check_ports(door, &config);
    check_parts(door, &config, tenants);
    door.finish();
    config
}

/// What is said of an address is said of one that the door listens at, and once.
fn check_ports(door: &Section<'_>, config: &NvmeTcpConfig) {
    for (key, list) in [("non_optimized", &config.non_optimized), ("inaccessible", &config.inaccessible)] {
        if let Some(other) = list.iter().find(|at| !config.listen.contains(at)) {
            door.fault(key, format!("the door does not listen at {other}; write it as in listen"));
        }
        if let Some(free) = list.iter().find(|at| at.port() == 0) {
            door.fault(key, format!("{free} is a port that is not known yet; give it a number"));
        }
    }
    if let Some(both) = config.non_optimized.iter().find(|at| config.inaccessible.contains(at)) {
        door.fault("inaccessible", format!("{both} is in non_optimized as well; keep one"));
    }
}

/// A part that is more than the whole is a mistake.
fn check_parts(door: &Section<'_>, config: &NvmeTcpConfig, tenants: usize) {
    let all = config.connections;
    let parts = [
        ("tenant_connections", config.tenant_connections),
        ("tenant_reserve", config.tenant_reserve),
        ("host_connections", config.host_connections),
    ];
    for (key, part) in parts {
        if let Some(part) = part.filter(|part| *part > all) {
            door.fault(key, format!("{part} is more than connections, {all}; lower it, or raise connections"));
        }
    }
    let reserved = usize::from(config.tenant_reserve.unwrap_or(0)).saturating_mul(tenants);
    if reserved > usize::from(all) {
        let what =
            format!("{reserved} for {tenants} tenants is more than connections, {all}; lower it, or raise connections");
        door.fault("tenant_reserve", what);
    }
    let (all, of_address) = (config.unconnected, config.address_unconnected);
    if of_address > all {
        let what = format!("{of_address} is more than unconnected, {all}; lower it, or raise unconnected");
        door.fault("address_unconnected", what);
    }
}

fn listen(value: &Value) -> Read<Vec<SocketAddr>> {
    let list = some_addresses(value)?;
    if list.is_empty() {
        return Err("no address; leave the key out for the default 127.0.0.1:4420".to_string().into());
    }
    Ok(list)
}

fn some_addresses(value: &Value) -> Read<Vec<SocketAddr>> {
    let one = |v: &Value| {
        let text = text(v)?;
        let wrong = || format!("{} is not an address like 127.0.0.1:4420 or [::1]:4420 (no host names)", quoted(&text));
        Ok(text.parse::<SocketAddr>().map_err(|_| wrong())?)
    };
    let list = one_or_list(one)(value)?;
    for (i, a) in list.iter().enumerate() {
        if a.port() != 0 && list[..i].contains(a) {
            return Err(format!("{a} is listed twice; keep one").into());
        }
    }
    Ok(list)
}

/// IOCCSZ counts in 16 bytes (NVMe base 2.0, Identify Controller).
fn in_capsule(value: &Value) -> Read<Bytes> {
    let bytes = size(0..=Bytes::MIB)(value)?;
    if bytes.0 % 16 != 0 {
        return Err(format!("{bytes} is not a multiple of 16 bytes").into());
    }
    Ok(bytes)
}
