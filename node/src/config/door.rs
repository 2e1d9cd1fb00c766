//! `[door.nvme-tcp]`.

use super::read::{Read, Section, flag, integer, one_or_list, quoted, size, text};
use super::types::NvmeTcpConfig;
use super::value::Value;
use std::net::SocketAddr;
use weir_units::Bytes;

pub(super) fn read(root: &Section<'_>) -> NvmeTcpConfig {
    let default = NvmeTcpConfig::default();
    let Some((line, entries)) = root.table("door") else { return default };
    let doors = root.inner("door", line, entries);
    let config = match doors.table("nvme-tcp") {
        Some((line, entries)) => nvme_tcp(&root.inner("door.nvme-tcp", line, entries), default),
        None => default,
    };
    doors.finish();
    config
}

fn nvme_tcp(door: &Section<'_>, default: NvmeTcpConfig) -> NvmeTcpConfig {
    let config = NvmeTcpConfig {
        listen: door.or("listen", default.listen, listen),
        non_optimized: door.or("non_optimized", default.non_optimized, some_addresses),
        inaccessible: door.or("inaccessible", default.inaccessible, some_addresses),
        in_capsule: door.or("in_capsule", default.in_capsule, in_capsule),
        header_digest: door.or("header_digest", default.header_digest, flag),
        data_digest: door.or("data_digest", default.data_digest, flag),
        tenant_buffer: door.or("tenant_buffer", default.tenant_buffer, size(Bytes::MIB..=16 * Bytes::GIB)),
        connections: door.or("connections", u64::from(default.connections), integer(1..=16384)) as u16,
    };
    check_ports(door, &config);
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
