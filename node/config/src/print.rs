//! A configuration as TOML again, every key spelled out: what `weir config` shows, and what a parse of it gives back.

use super::demand;
use super::fdp;
use super::flash::{detail, written};
use super::promise;
use super::types::{
    Arbitration, Config, DeviceConfig, DoorConfig, ExportConfig, FlashConfig, MediaConfig, TenantConfig, VolumeConfig,
};
use std::fmt::Write;
use weir_flash::BufferConfig;
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

pub(super) fn string(text: impl ToString) -> String {
    format!("\"{}\"", escaped(&text.to_string()))
}

pub(super) fn strings(texts: impl IntoIterator<Item = impl ToString>) -> String {
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
        writeln!(out, "cores = {:?}\npoll = {}\nadmission = {}", node.cores, node.poll, string(node.admission))?;
        writeln!(out, "journal = {}", node.journal)?;
        writeln!(out, "keeper = {}\nstandby = {}", node.keeper, node.standby)?;
        // Where all exports were ended none comes back.
        let ended = self.exports.is_empty() && self.pools.is_empty();
        writeln!(out, "default_exports = {}", node.default_exports && !ended)?;
        for device in &self.devices {
            write_device(out, device)?;
        }
        for tenant in self.tenants.iter().filter(|t| !t.is_gone()) {
            write_tenant(out, tenant)?;
        }
        for pool in &self.pools {
            let drives = strings(pool.devices.iter().map(|d| &self.devices[*d].name));
            writeln!(out, "\n[[pool]]\nname = {}\ndrives = {drives}", string(&pool.name))?;
        }
        for volume in &self.volumes {
            let tenant = string(&self.tenants[volume.tenant].name);
            writeln!(out, "\n[[volume]]\nname = {}\ntenant = {tenant}", string(&volume.name))?;
            writeln!(out, "pool = {}\nsize = {}", string(&self.pools[volume.pool].name), string(volume.size))?;
            writeln!(out, "export = {}", strings(&volume.exports))?;
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
        writeln!(out, "keep_alive = {}", string(tcp.keep_alive))
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

fn write_device(out: &mut String, device: &DeviceConfig) -> std::fmt::Result {
    writeln!(out, "\n[[device]]\nname = {}\nmedia = {}", string(&device.name), string(&device.media))?;
    if device.media == MediaConfig::Null {
        writeln!(out, "read_zeroes = {}", device.read_zeroes)?;
    }
    if matches!(&device.media, MediaConfig::Nvme(target) if target.starts_with("nvme-tcp:")) {
        writeln!(out, "reconnect = {}", string(device.reconnect))?;
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
    let Some(flash) = &device.flash else { return Ok(()) };
    write_flash(out, flash)?;
    match &flash.config.ftl.fdp {
        Some(fdp) => write!(out, "\n[device.fdp]\n{}", fdp::Printed(fdp, &flash.config.geometry)),
        None => Ok(()),
    }
}

fn write_flash(out: &mut String, flash: &FlashConfig) -> std::fmt::Result {
    let t = &flash.config.timing;
    writeln!(out, "\n[device.flash]\nquirks = {}\nseed = {}", flash.quirks, flash.config.seed)?;
    writeln!(out, "precondition = {}", string(flash.precondition))?;
    // Without the key the profile has it, with the time of small reads beside it.
    write_layout(out, &flash.config, t.read_small.is_none() || flash.details.contains(&"read_small"))?;
    let rates = [
        ("channel_rate", flash.channel_rate),
        ("link_rate", flash.link_rate),
        ("write_link_rate", flash.write_link_rate),
    ];
    for (key, rate) in rates {
        if let Some(rate) = rate {
            writeln!(out, "{key} = {}", string(format_args!("{rate}/s")))?;
        }
    }
    let firmware = &flash.config.host.firmware;
    let one = firmware.read == firmware.read_small || flash.details.contains(&"firmware_read_small");
    write_rest(out, &flash.config, one)?;
    for (key, value) in detail::printed(&flash.config) {
        if flash.details.contains(&key) {
            writeln!(out, "{key} = {value}")?;
        }
    }
    Ok(())
}

/// A drive as the file of a profile: every number, in keys.
pub(super) fn profile_file(drive: &str, source: &str, config: &weir_flash::FlashDriveConfig) -> String {
    let mut out = String::new();
    write_profile(&mut out, drive, source, config).expect("writing to a String does not fail");
    out
}

fn write_profile(
    out: &mut String,
    drive: &str,
    source: &str,
    config: &weir_flash::FlashDriveConfig,
) -> std::fmt::Result {
    writeln!(out, "drive = {}\nsource = {}", string(drive), string(source))?;
    writeln!(out, "capacity = {}\n", string(config.ftl.capacity.unwrap_or_default().0))?;
    write_layout(out, config, true)?;
    write_rest(out, config, true)?;
    for (key, value) in detail::printed(config) {
        writeln!(out, "{key} = {value}")?;
    }
    Ok(())
}

/// Layout and array times; `read` says whether its key is one of them.
fn write_layout(out: &mut String, config: &weir_flash::FlashDriveConfig, read: bool) -> std::fmt::Result {
    let weir_flash::FlashDriveConfig { geometry: g, timing: t, .. } = config;
    writeln!(out, "channels = {}\nways = {}\nplanes = {}\nblocks = {}", g.channels, g.ways, g.planes, g.blocks)?;
    writeln!(out, "pages = {}\npage_size = {}\nspare_size = {}", g.pages, g.page_bytes, g.spare_bytes)?;
    writeln!(out, "cell = {}\npage_map = {}", string(g.cell), string(g.page_map))?;
    writeln!(out, "gate = {}\nregisters = {}", string(t.gate), string(t.registers))?;
    writeln!(out, "channel_arbitration = {}\ndie_order = {}", string(t.arbitration), string(t.order))?;
    writeln!(out, "die_age = {}\nchips = {}\njoin_planes = {}", string(t.age), t.chips, t.join_planes)?;
    if read {
        writeln!(out, "read = {}", strings(written(&t.read)))?;
    }
    writeln!(out, "program = {}\nerase = {}", strings(written(&t.program)), string(t.erase))
}

/// Everything else that has a key; `firmware_read` says whether that is one of them.
fn write_rest(out: &mut String, config: &weir_flash::FlashDriveConfig, firmware_read: bool) -> std::fmt::Result {
    let weir_flash::FlashDriveConfig { timing: t, variability: v, host: h, ftl: f, buffer: b, .. } = config;
    for (key, time) in [("program_suspend", t.suspend.program), ("erase_suspend", t.suspend.erase)] {
        if let Some(time) = time {
            writeln!(out, "{key} = {}", string(time))?;
        }
    }
    writeln!(out, "cache_read = {}\nsuspend_limit = {}", t.cache_read, t.suspend.limit)?;
    if firmware_read {
        writeln!(out, "firmware_read = {}", string(h.firmware.read))?;
    }
    writeln!(out, "firmware = {}\nmapping = {}", string(h.firmware.core), string(f.mapping))?;
    writeln!(out, "gc = {}\nvictim = {}\ngc_choices = {}", string(f.gc.mode), string(f.gc.victim), f.gc.choices)?;
    writeln!(out, "gc_start = {}\ngc_hard = {}\nstreams = {}", f.gc.start, f.gc.hard, f.streams)?;
    writeln!(out, "separation = {}\nwear = {}", string(f.separation), string(f.wear.policy))?;
    writeln!(out, "wear_gap = {}\nendurance = {}", f.wear.gap, f.wear.endurance)?;
    writeln!(out, "erase_failures = {}\nfactory_bad = {}", f.wear.failures, f.factory_bad)?;
    writeln!(out, "slc_blocks = {}\nfold = {}\nmap_cache = {}", f.slc.blocks, string(f.slc.fold), string(f.map_cache))?;
    writeln!(out, "log_blocks = {}\nassociation = {}", f.hybrid.log_blocks, string(f.hybrid.association))?;
    writeln!(out, "unmapped_read = {}\nwrite_zeroes = {}", string(f.unmapped_read), string(f.write_zeroes))?;
    writeln!(out, "plane_allocation = {}\npartitions = {}", string(f.plane_allocation), f.partitions)?;
    writeln!(out, "multi_plane = {}\nbuffer = {}\nflush = {}", f.multi_plane, string(b.size), string(b.flush))?;
    writeln!(out, "buffer_high = {}\nbuffer_low = {}", b.high, b.low)?;
    writeln!(out, "buffer_timeout = {}\nbuffer_latency = {}", string(b.timeout), string(b.latency))?;
    if (b.cache, b.dram) != (BufferConfig::NONE.cache, BufferConfig::NONE.dram) {
        writeln!(out, "cache = {}\ncache_window = {}", string(b.cache), string(b.window))?;
        writeln!(out, "cache_pending = {}\ndram_access = {}", string(b.pending), string(b.dram.access))?;
        writeln!(out, "dram_timing = {}", string(b.dram.wire))?;
    }
    writeln!(out, "early_completion = {}\npower_protected = {}\npower_cut = {}", b.early, b.protected, f.spare)?;
    writeln!(out, "chip_spread = {}\npage_spread = {}", v.chip_spread, v.page_spread)?;
    writeln!(out, "initial_cycles = {}\nbad_chips = {}", v.initial_cycles, v.bad_chips)?;
    writeln!(out, "bad_chip_slowdown = {}\nbad_chip_errors = {:?}", v.bad_chip_slowdown, v.bad_chip_errors)?;
    writeln!(out, "wear_slowdown = {}", v.wear_slowdown)?;
    if let Some(h) = v.housekeeping {
        writeln!(out, "housekeeping = {}\nhousekeeping_every = {}", string(h.time), string(h.every))?;
    }
    write_errors(out, v.errors.as_ref())
}

fn write_errors(out: &mut String, errors: Option<&weir_flash::Errors>) -> std::fmt::Result {
    writeln!(out, "errors = {}", errors.is_some())?;
    let Some(e) = errors else { return Ok(()) };
    writeln!(out, "rber = {:?}\nrber_worn = {:?}\nrated_cycles = {}", e.rber, e.rber_worn, e.endurance)?;
    for (key, rate) in [("read_disturb", e.read_disturb), ("retention", e.retention)] {
        if let Some(rate) = rate {
            writeln!(out, "{key} = {rate:?}")?;
        }
    }
    if let Some(retry) = e.retry {
        writeln!(out, "retry = {}", string(retry))?;
    }
    writeln!(out, "retries = {}", e.retries)
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
    out.write_str(&promise::print(tenant))?;
    if let Some(demand) = &tenant.demand {
        writeln!(out, "demand = {}", demand::Printed(demand))?;
    }
    let any = tenant.any_host.then_some("*");
    writeln!(out, "hosts = {}", strings(tenant.hosts.iter().map(String::as_str).chain(any)))
}
