//! A configuration as TOML again, every key spelled out: what `weir config` shows, and what a parse of it gives back.

use super::types::{Arbitration, Config, DeviceConfig, DoorConfig, ExportConfig, TenantConfig};
use std::fmt::Write;
use weir_units::Bytes;

/// The inside of a TOML basic string.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

fn string(text: impl ToString) -> String {
    format!("\"{}\"", escaped(&text.to_string()))
}

fn strings(texts: impl IntoIterator<Item = impl ToString>) -> String {
    format!("[{}]", texts.into_iter().map(string).collect::<Vec<_>>().join(", "))
}

impl Config {
    /// The whole configuration with every key, defaults included; paths are absolute.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        self.write(&mut out).expect("writing to a String does not fail");
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let node = &self.node;
        writeln!(out, "[node]\nname = {}\napi = {}", string(&node.name), strings(&node.api))?;
        writeln!(out, "cores = {:?}\npoll = {}", node.cores, node.poll)?;
        for device in &self.devices {
            write_device(out, device)?;
        }
        for tenant in &self.tenants {
            write_tenant(out, tenant)?;
        }
        for export in &self.exports {
            self.write_export(out, export)?;
        }
        let tcp = &self.nvme_tcp;
        writeln!(out, "\n[door.nvme-tcp]\nlisten = {}\nin_capsule = {}", strings(&tcp.listen), string(tcp.in_capsule))?;
        writeln!(out, "header_digest = {}\ndata_digest = {}", tcp.header_digest, tcp.data_digest)?;
        writeln!(out, "tenant_buffer = {}\nconnections = {}", string(tcp.tenant_buffer), tcp.connections)
    }

    fn write_export(&self, out: &mut String, export: &ExportConfig) -> std::fmt::Result {
        let device = &self.devices[export.device].name;
        writeln!(out, "\n[[export]]\ndevice = {}\ndoor = {}", string(device), string(&export.door))?;
        if let DoorConfig::VhostUser { tenant, .. } = &export.door {
            writeln!(out, "tenant = {}", string(&self.tenants[*tenant].name))?;
        }
        writeln!(out, "class_from = {}\nqueues = {}", string(export.class_from), export.queues)?;
        writeln!(out, "read_only = {}", export.read_only)
    }
}

fn write_device(out: &mut String, device: &DeviceConfig) -> std::fmt::Result {
    writeln!(out, "\n[[device]]\nname = {}\nmedia = {}", string(&device.name), string(&device.media))?;
    if let Some(capacity) = device.capacity {
        writeln!(out, "capacity = {}", string(capacity))?;
    }
    if let Some(most) = device.max_capacity {
        writeln!(out, "max_capacity = {}", string(most))?;
    }
    writeln!(out, "block_size = {}\nlatency = {}", device.block_size, string(device.latency))?;
    writeln!(out, "slots = {}\nslot_bytes = {}", device.slots, string(device.slot_bytes))?;
    write_arbitration(out, &device.arbitration)?;
    writeln!(out, "cost = {}\nclass_from = {}", string(device.cost), string(device.class_from))?;
    writeln!(out, "queues = {}\nqueue_depth = {}", device.queues, device.queue_depth)?;
    writeln!(out, "nqn = {}\nserial = {}", string(&device.nqn), string(&device.serial))?;
    match &device.zoned {
        Some(zoned) => writeln!(out, "zoned = {zoned}"),
        None => Ok(()),
    }
}

fn write_arbitration(out: &mut String, arbitration: &Arbitration) -> std::fmt::Result {
    let Arbitration { mechanism, weights: w, burst, quanta: q } = arbitration;
    writeln!(out, "arbitration = {}", string(mechanism))?;
    writeln!(out, "weights = {{ high = {}, medium = {}, low = {} }}", w.high, w.medium, w.low)?;
    match burst {
        Some(log2) => writeln!(out, "burst = {}", 1_u32 << log2)?,
        None => writeln!(out, "burst = \"none\"")?,
    }
    let [high, medium, low] = [q.high, q.medium, q.low].map(|bytes| string(Bytes(u64::from(bytes))));
    writeln!(out, "quanta = {{ high = {high}, medium = {medium}, low = {low} }}")
}

fn write_tenant(out: &mut String, tenant: &TenantConfig) -> std::fmt::Result {
    writeln!(out, "\n[[tenant]]\nname = {}\nclass = {}", string(&tenant.name), string(tenant.class))?;
    writeln!(out, "urgent = {}\nweight = {}", tenant.urgent, tenant.weight)?;
    let any = tenant.any_host.then_some("*");
    writeln!(out, "hosts = {}", strings(tenant.hosts.iter().map(String::as_str).chain(any)))
}
