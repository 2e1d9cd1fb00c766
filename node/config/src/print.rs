//! A configuration as TOML again, every key spelled out: what `weir config` shows, and what a parse of it gives back.

use super::api::{ApiConfig, ApiTls, ApiToken};
use super::arbitration::Arbitration;
use super::config::Config;
use super::demand;
use super::device::DeviceConfig;
use super::etcd::{EtcdAccess, EtcdUser, PemPair};
use super::export::{DoorConfig, ExportConfig};
use super::fdp;
use super::flash;
use super::media::MediaConfig;
use super::node::NodeConfig;
use super::policy::percent;
use super::pool::{PoolConfig, VolumeConfig};
use super::promise::{self, Promises};
use super::store::{Donated, DonatedDrive, StoreConfig, StoreMeta};
use super::tenant::TenantConfig;
use super::toml_text::{string, strings};
use std::fmt::Write;
use weir_store::{PathPolicy, Watermarks};
use weir_units::Bytes;

impl Config {
    /// The whole configuration with every key, defaults included; paths are absolute.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        self.write(&mut out).expect("writing to a String does not fail");
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        // tidy: long because it is a list of sections.
        let node = &self.node;
        writeln!(out, "[node]\nname = {}\napi = {}", string(&node.name), strings(&node.api))?;
        writeln!(out, "cores = {:?}\npoll = {}\nadmission = {}", node.cores, node.poll, string(node.admission))?;
        writeln!(out, "journal = {}", node.journal)?;
        writeln!(out, "keeper = {}\nstandby = {}", node.keeper, node.standby)?;
        // Where all exports were ended none comes back.
        let ended = self.exports.is_empty() && self.pools.is_empty();
        writeln!(out, "default_exports = {}", node.default_exports && !ended)?;
        if node.faults {
            // Programs that do not know the key take over from this one where it says nothing.
            writeln!(out, "faults = true")?;
        }
        write_on_failure(out, node)?;
        // Programs that do not know the table take over from this one where it says nothing.
        if self.api != ApiConfig::default() {
            writeln!(out, "\n[api]")?;
        }
        if !self.api.tokens.is_empty() {
            let one = |t: &ApiToken| format!("{{ role = {}, file = {} }}", string(t.role), string(t.file.display()));
            let tokens: Vec<String> = self.api.tokens.iter().map(one).collect();
            writeln!(out, "tokens = [{}]", tokens.join(", "))?;
        }
        if let Some(ApiTls { cert, key }) = &self.api.tls {
            writeln!(out, "tls = {{ cert = {}, key = {} }}", string(cert.display()), string(key.display()))?;
        }
        for device in &self.devices {
            write_device(out, device)?;
        }
        for fault in &self.faults {
            writeln!(out, "\n[[fault]]\ndevice = {}", string(&self.devices[fault.device].name))?;
            for (key, value) in fault.rule.pairs() {
                writeln!(out, "{key} = {}", string(value))?;
            }
        }
        for tenant in self.tenants.iter().filter(|t| !t.is_gone()) {
            write_tenant(out, tenant)?;
        }
        for pool in &self.pools {
            let drives = strings(pool.devices.iter().map(|d| &self.devices[*d].name));
            writeln!(out, "\n[[pool]]\nname = {}\ndrives = {drives}", string(&pool.name))?;
            // An older program that gets a node back does not know the key.
            if !pool.degraded {
                writeln!(out, "degraded = false")?;
            }
            if pool.copies > 1 {
                writeln!(out, "copies = {}", pool.copies)?;
            }
            if !pool.spares.is_empty() {
                writeln!(out, "spares = {}", strings(pool.spares.iter().map(|d| &self.devices[*d].name)))?;
            }
            if pool.rebuild_rate != PoolConfig::REBUILD_RATE {
                writeln!(out, "rebuild_rate = {}", string(pool.rebuild_rate))?;
            }
        }
        for volume in &self.volumes {
            let tenant = string(&self.tenants[volume.tenant].name);
            writeln!(out, "\n[[volume]]\nname = {}\ntenant = {tenant}", string(&volume.name))?;
            writeln!(out, "pool = {}\nsize = {}", string(&self.pools[volume.pool].name), string(volume.size))?;
            writeln!(out, "export = {}", strings(&volume.exports))?;
            if let Some(copies) = volume.copies {
                writeln!(out, "copies = {copies}")?;
            }
            // Programs that do not know the key take over from this one where it says nothing.
            if volume.max_controllers != VolumeConfig::MAX_CONTROLLERS {
                writeln!(out, "max_controllers = {}", volume.max_controllers)?;
            }
        }
        for export in &self.exports {
            self.write_export(out, export)?;
        }
        let tcp = &self.nvme_tcp;
        writeln!(out, "\n[door.nvme-tcp]\nlisten = {}\nin_capsule = {}", strings(&tcp.listen), string(tcp.in_capsule))?;
        let (second, none) = (strings(&tcp.non_optimized), strings(&tcp.inaccessible));
        writeln!(out, "non_optimized = {second}\ninaccessible = {none}")?;
        writeln!(out, "header_digest = {}\ndata_digest = {}", tcp.header_digest, tcp.data_digest)?;
        writeln!(out, "tenant_buffer = {}\nconnections = {}", string(tcp.tenant_buffer), tcp.connections)?;
        let parts = [
            ("tenant_connections", tcp.tenant_connections),
            ("tenant_reserve", tcp.tenant_reserve),
            ("host_connections", tcp.host_connections),
        ];
        for (key, number) in parts {
            if let Some(number) = number {
                writeln!(out, "{key} = {number}")?;
            }
        }
        writeln!(out, "unconnected = {}\naddress_unconnected = {}", tcp.unconnected, tcp.address_unconnected)?;
        writeln!(out, "keep_alive = {}", string(tcp.keep_alive))?;
        self.store.as_ref().map_or(Ok(()), |store| self.write_store(out, store))
    }

    fn write_store(&self, out: &mut String, store: &StoreConfig) -> std::fmt::Result {
        let StoreConfig { meta, listen, durability, block, classes, repair_after, tiering, donate } = store;
        writeln!(out, "\n[store]\nmeta = {}\nlisten = {}", string(meta), strings(listen))?;
        writeln!(
            out,
            "durability = {}\nblock = {}\nclasses = {}\nrepair_after = {}",
            string(durability),
            string(block),
            strings(classes),
            repair_after.map_or_else(|| string("none"), string)
        )?;
        if let StoreMeta::Etcd(etcd) = meta {
            write_etcd_access(out, &etcd.access)?;
        }
        let Watermarks { high, low } = &tiering.watermarks;
        writeln!(out, "high_watermark = {}\nlow_watermark = {}", string(percent(*high)), string(percent(*low)))?;
        for Donated { drive, class, location } in donate {
            out.write_str("\n[[store.donate]]\n")?;
            match drive {
                DonatedDrive::Device(at) => writeln!(out, "device = {}", string(&self.devices[*at].name))?,
                DonatedDrive::Target(target) => writeln!(out, "target = {}", string(target))?,
            }
            writeln!(out, "class = {}\nlocation = {}", string(class), string(location))?;
        }
        tiering.policies.iter().try_for_each(|policy| write_policy(out, policy))
    }

    fn write_export(&self, out: &mut String, export: &ExportConfig) -> std::fmt::Result {
        let device = &self.devices[export.device].name;
        writeln!(out, "\n[[export]]\ndevice = {}\ndoor = {}", string(device), string(&export.door))?;
        if let Some((_, tenant)) = export.door.socket() {
            writeln!(out, "tenant = {}", string(&self.tenants[tenant].name))?;
        }
        if let DoorConfig::VfioUser { doorbells, .. } = &export.door {
            writeln!(out, "doorbells = {}", string(doorbells))?;
        }
        writeln!(out, "class_from = {}\nqueues = {}", string(export.class_from), export.queues)?;
        writeln!(out, "read_only = {}", export.read_only)
    }
}

/// Programs that do not know the key take over from this one where it says nothing.
fn write_etcd_access(out: &mut String, access: &EtcdAccess) -> std::fmt::Result {
    let EtcdAccess { ca, identity, user } = access;
    let mut pairs = Vec::new();
    pairs.extend(ca.iter().map(|ca| format!("ca = {}", string(ca.display()))));
    if let Some(PemPair { cert, key }) = identity {
        pairs.push(format!("cert = {}, key = {}", string(cert.display()), string(key.display())));
    }
    if let Some(EtcdUser { name, password_file }) = user {
        pairs.push(format!("user = {}, password_file = {}", string(name), string(password_file.display())));
    }
    if pairs.is_empty() { Ok(()) } else { writeln!(out, "etcd = {{ {} }}", pairs.join(", ")) }
}

fn write_policy(out: &mut String, policy: &PathPolicy) -> std::fmt::Result {
    let PathPolicy { path, classes, copies, demote_after } = policy;
    writeln!(out, "\n[[store.policy]]\npath = {}", string(path.as_str()))?;
    if !classes.is_empty() {
        writeln!(out, "classes = {}", strings(classes))?;
    }
    let after = demote_after.map_or_else(|| string("none"), string);
    writeln!(out, "copies = {copies}\ndemote_after = {after}")
}

/// Programs that do not know the keys take over from this one where it says nothing.
fn write_on_failure(out: &mut String, node: &NodeConfig) -> std::fmt::Result {
    if node.on_failure.is_empty() {
        return Ok(());
    }
    writeln!(out, "on_failure = {}", strings(&node.on_failure))?;
    writeln!(out, "on_failure_timeout = {}", string(node.on_failure_timeout))
}

fn write_device(out: &mut String, device: &DeviceConfig) -> std::fmt::Result {
    writeln!(out, "\n[[device]]\nname = {}\nmedia = {}", string(&device.name), string(&device.media))?;
    if device.media == MediaConfig::Null {
        writeln!(out, "read_zeroes = {}", device.read_zeroes)?;
    }
    if let MediaConfig::Nvme(target) = &device.media {
        if !target.starts_with("vhost-user:") {
            writeln!(out, "fast_io_fail_tmo = {}", string(device.fast_io_fail_tmo))?;
        }
        if target.starts_with("nvme-tcp:") {
            writeln!(out, "keep_alive_tmo = {}", string(device.keep_alive_tmo))?;
        }
    }
    if let Some(capacity) = device.capacity {
        writeln!(out, "capacity = {}", string(capacity))?;
    }
    if let Some(flash) = &device.flash {
        writeln!(out, "kind = \"flash\"\nprofile = {}", string(&flash.profile))?;
    }
    if let Some(most) = device.max_capacity {
        writeln!(out, "max_capacity = {}", string(most))?;
    }
    writeln!(out, "block_size = {}", device.block_size)?;
    if device.flash.is_none() {
        writeln!(out, "latency = {}", string(device.latency))?;
    }
    writeln!(out, "slots = {}\nslot_bytes = {}", device.slots, string(device.slot_bytes))?;
    write_arbitration(out, &device.arbitration)?;
    writeln!(out, "cost = {}\nclass_from = {}", string(device.cost), string(device.class_from))?;
    if let Some(policy) = &device.cost_policy {
        writeln!(out, "cost_library = {}", string(policy.library.display()))?;
        writeln!(out, "cost_arguments = {}", string(&policy.arguments))?;
    }
    writeln!(out, "queues = {}\nqueue_depth = {}", device.queues, device.queue_depth)?;
    writeln!(out, "max_controllers = {}", device.max_controllers)?;
    if let Some(bytes) = device.cmb {
        writeln!(out, "cmb = {}", string(bytes))?;
    }
    writeln!(out, "nqn = {}\nserial = {}", string(&device.nqn), string(&device.serial))?;
    if let Some(zoned) = &device.zoned {
        writeln!(out, "zoned = {zoned}")?;
    }
    if let Some(open_channel) = &device.open_channel {
        writeln!(out, "open_channel = {open_channel}")?;
    }
    if let Some(file) = &device.calibration {
        writeln!(out, "calibration = {}", string(file.path.display()))?;
    }
    let Some(own) = &device.flash else { return Ok(()) };
    flash::write(out, own)?;
    match &own.config.ftl.fdp {
        Some(fdp) => write!(out, "\n[device.fdp]\n{}", fdp::Printed(fdp, &own.config.geometry)),
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
    if let Some(handle) = tenant.placement {
        writeln!(out, "placement = {handle}")?;
    }
    let TenantConfig { floor, ceiling, sla, .. } = *tenant;
    out.write_str(&promise::print(&Promises { floor, ceiling, sla }))?;
    if let Some(demand) = &tenant.demand {
        writeln!(out, "demand = {}", demand::Printed(demand))?;
    }
    let any = tenant.any_host.then_some("*");
    writeln!(out, "hosts = {}", strings(tenant.hosts.iter().map(String::as_str).chain(any)))
}
