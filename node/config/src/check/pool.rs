//! Pools and volumes: the drives they name, the room there is, and the doors of volumes.

use super::unique::{Unique, list};
use crate::config::Config;
use crate::device::DeviceConfig;
use crate::export::{DoorConfig, DoorRead, Doorbells, ExportConfig};
use crate::machine::Machine;
use crate::pool::{PoolConfig, PoolRead, VolumeConfig, VolumeRead};
use crate::read::{Placed, Sink, quoted};
use crate::tenant::TenantConfig;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weir_units::Bytes;

/// The pool of a configuration with volumes and without `[[pool]]`.
const DEFAULT: &str = "pool0";

/// Looks the names up and notes what does not fit.
pub(super) fn check(
    sink: &Sink,
    machine: Machine,
    (pools, volumes): (Vec<PoolRead>, Vec<VolumeRead>),
    devices: &[DeviceConfig],
    tenants: &[TenantConfig],
    exported: &[Option<u32>],
) -> (Vec<PoolConfig>, Vec<VolumeConfig>) {
    // tidy: long because it is a list of what a pool's drives must not be, a few lines each.
    let mut taken: BTreeMap<usize, String> = BTreeMap::new();
    let mut names = Unique::new(sink);
    let is_spare =
        |d: &usize| pools.iter().filter_map(|p| p.spares.as_ref()).any(|s| s.value.contains(&devices[*d].name));
    let free: Vec<usize> = (0..devices.len()).filter(|d| exported[*d].is_none() && !is_spare(d)).collect();
    let mut checked = Vec::new();
    for pool in &pools {
        if let Some(name) = &pool.name {
            names.see_placed(name, "every pool needs a name of its own");
        }
        let name = pool.name.as_ref().map_or_else(|| DEFAULT.to_string(), |n| n.value.clone());
        let key = format!("{}.drives", pool.key);
        let line = pool.drives.as_ref().map_or(pool.line, |d| d.line);
        let drives = match &pool.drives {
            None => free.clone(),
            Some(placed) => {
                let find = |name: &String| {
                    let found = devices.iter().position(|d| d.name == *name);
                    if found.is_none() {
                        let names = list(devices.iter().map(|d| d.name.as_str()));
                        sink.note(line, &key, format_args!("there is no device {}; there is {names}", quoted(name)));
                    }
                    found
                };
                placed.value.iter().filter_map(find).collect()
            }
        };
        if drives.is_empty() {
            sink.note(line, &key, "a pool has at least one drive that is not exported by itself; name it");
        }
        for drive in &drives {
            let device = &devices[*drive];
            let shown = quoted(&device.name);
            if let Some(other) = taken.insert(*drive, name.clone()) {
                sink.note(
                    line,
                    &key,
                    format_args!("{shown} is a drive of pool {} already; name it once", quoted(&other)),
                );
            }
            if let Some(by) = exported[*drive] {
                let what = format!("{shown} is exported by line {by}; a pool's drive holds volumes: export these");
                sink.note(line, &key, what);
            }
            if device.interface() != "block" {
                sink.note(
                    line,
                    &key,
                    format_args!("{shown} is a {} drive; a pool takes block drives", device.interface()),
                );
            }
            if device.block_size != devices[drives[0]].block_size {
                sink.note(
                    line,
                    &key,
                    format_args!("{shown} has other blocks than the first drive; a pool's are alike"),
                );
            }
        }
        let spares = spares(sink, pool, (&drives, &name), devices, (&mut taken, exported));
        let (degraded, copies, rebuild_rate) = (pool.degraded, pool.copies, pool.rebuild_rate);
        checked.push(PoolConfig { name, devices: drives, degraded, copies, spares, rebuild_rate });
    }
    if pools.is_empty() && !volumes.is_empty() {
        if free.is_empty() {
            let what = "every device is exported by itself; leave one to be the volumes' pool";
            sink.note(volumes[0].line, &volumes[0].key, what);
        }
        let (devices, rebuild_rate) = (free.clone(), PoolConfig::REBUILD_RATE);
        let (name, spares) = (DEFAULT.into(), Vec::new());
        checked.push(PoolConfig { name, devices, degraded: true, copies: 1, spares, rebuild_rate });
    }
    let room: Vec<Option<u64>> = checked.iter().map(|pool| room(machine, pool, &checked, &free, devices)).collect();
    let volumes = check_volumes(sink, volumes, &checked, &room, tenants);
    (checked, volumes)
}

/// The devices that a pool names as spares: none that is used, or is not like its drives.
fn spares(
    sink: &Sink,
    pool: &PoolRead,
    (drives, name): (&[usize], &str),
    devices: &[DeviceConfig],
    (taken, exported): (&mut BTreeMap<usize, String>, &[Option<u32>]),
) -> Vec<usize> {
    let Some(placed) = &pool.spares else { return Vec::new() };
    let key = format!("{}.spares", pool.key);
    let mut spares = Vec::new();
    for spare in &placed.value {
        let Some(at) = devices.iter().position(|d| d.name == *spare) else {
            let names = list(devices.iter().map(|d| d.name.as_str()));
            sink.note(placed.line, &key, format_args!("there is no device {}; there is {names}", quoted(spare)));
            continue;
        };
        let (device, shown) = (&devices[at], quoted(spare));
        let wrong = if let Some(by) = exported[at] {
            Some(format!("{shown} is exported by line {by}; a spare is used by nobody"))
        } else if let Some(other) = taken.get(&at) {
            Some(format!("{shown} is a drive or a spare of pool {} already; name it once", quoted(other)))
        } else if device.interface() != "block" {
            Some(format!("{shown} is a {} drive; a pool takes block drives", device.interface()))
        } else if drives.first().is_some_and(|first| devices[*first].block_size != device.block_size) {
            Some(format!("{shown} has other blocks than the pool's drives; a pool's are alike"))
        } else {
            None
        };
        match wrong {
            Some(what) => sink.note(placed.line, &key, what),
            None => {
                taken.insert(at, name.to_owned());
                spares.push(at);
            }
        }
    }
    spares
}

/// Bytes for volumes on all drives that are the pool's, or may have joined it while it ran; none where a drive's size is not known, or one is a
/// pool's already: the volumes that are there have a size of their own, and whether a drive is missing is seen when the pool is opened.
fn room(
    machine: Machine,
    pool: &PoolConfig,
    pools: &[PoolConfig],
    free: &[usize],
    devices: &[DeviceConfig],
) -> Option<u64> {
    let others = |drive: &usize| pools.iter().any(|other| other.name != pool.name && other.devices.contains(drive));
    let mut drives: Vec<usize> = pool.devices.iter().chain(free).copied().filter(|d| !others(d)).collect();
    drives.sort_unstable();
    drives.dedup();
    if drives.iter().any(|drive| machine.has_pool(&devices[*drive].media)) {
        return None;
    }
    let usable = |drive: usize| {
        let device = &devices[drive];
        device.capacity.or_else(|| machine.size(&device.media)).map(|bytes| weir_pool::usable(bytes.0))
    };
    drives.into_iter().map(usable).sum()
}

/// What a pool has for its volumes, and what those that were read so far want of it.
struct Room {
    /// None where that is not known.
    chunks: Option<u64>,
    /// Chunks.
    wanted: u64,
}

impl Room {
    /// One more volume; what is wrong with it, said of the first one that does not fit.
    fn add(&mut self, pool: &str, size: Bytes) -> Option<String> {
        let chunks = self.chunks?;
        let (before, own) = (self.wanted, size.0.div_ceil(weir_pool::CHUNK));
        self.wanted = before.saturating_add(own);
        if before > chunks || self.wanted <= chunks {
            return None;
        }
        let bytes = |chunks: u64| Bytes(chunks.saturating_mul(weir_pool::CHUNK));
        let (pool, room) = (quoted(pool), bytes(chunks));
        Some(if own > chunks {
            format!(
                "{size} is more than pool {pool} has for volumes, {room}; make it smaller, or give the pool more drives"
            )
        } else {
            let (all, before) = (bytes(self.wanted), bytes(before));
            format!(
                "with {before} for the volumes before it that is {all}, and pool {pool} has {room} for volumes; make some smaller, or \
                 give the pool more drives"
            )
        })
    }
}

fn check_volumes(
    sink: &Sink,
    volumes: Vec<VolumeRead>,
    pools: &[PoolConfig],
    room: &[Option<u64>],
    tenants: &[TenantConfig],
) -> Vec<VolumeConfig> {
    let mut names = Unique::new(sink);
    let mut all: Vec<Room> =
        room.iter().map(|room| Room { chunks: room.map(|r| r / weir_pool::CHUNK), wanted: 0 }).collect();
    let one = |volume: VolumeRead| {
        let VolumeRead { line, key, name, tenant, pool, size, copies, doors, max_controllers } = volume;
        if let Some(name) = &name {
            names.see_placed(name, "every volume needs a name of its own");
        }
        let which = |what: &str, placed: Option<&Placed<String>>, all: Vec<&str>| {
            let shown = || list(all.iter().copied());
            match placed {
                None if all.len() == 1 => Some(0),
                None => {
                    let why = format!("missing, and there are several; write one of {}", shown());
                    sink.note(line, &format!("{key}.{what}"), why);
                    None
                }
                Some(placed) => {
                    let found = all.iter().position(|name| *name == placed.value);
                    if found.is_none() {
                        let what = format!("there is no {what} {}; there is {}", quoted(&placed.value), shown());
                        sink.note(placed.line, &placed.key, what);
                    }
                    found
                }
            }
        };
        let tenant = which("tenant", tenant.as_ref(), tenants.iter().map(|t| t.name.as_str()).collect());
        let pool = which("pool", pool.as_ref(), pools.iter().map(|p| p.name.as_str()).collect());
        if let (Some(size), Some(pool)) = (&size, pool) {
            let copies = u64::from(copies.unwrap_or(pools[pool].copies));
            if let Some(what) = all[pool].add(&pools[pool].name, Bytes(size.value.0.saturating_mul(copies))) {
                sink.note(size.line, &size.key, what);
            }
        }
        let (name, tenant, pool, size) = (name?.value, tenant?, pool?, size?.value);
        let by_door = |door: DoorRead| match door {
            DoorRead::NvmeTcp => DoorConfig::NvmeTcp,
            DoorRead::VhostUser(path) => DoorConfig::VhostUser { path, tenant },
            DoorRead::VfioUser(path) => DoorConfig::VfioUser { path, tenant, doorbells: Doorbells::default() },
        };
        let exports = doors.map(|d| d.value.into_iter().map(by_door).collect()).unwrap_or_default();
        Some(VolumeConfig { name, tenant, pool, size, copies, exports, max_controllers })
    };
    volumes.into_iter().filter_map(one).collect()
}

/// A socket has one export, a volume one of NVMe/TCP, and no drive the name of a volume.
pub(super) fn check_doors(sink: &Sink, volumes: &[(u32, String)], config: &Config) {
    let mut sockets: BTreeMap<&PathBuf, String> = BTreeMap::new();
    let by = |e: &ExportConfig| format!("device {}", config.devices[e.device].name);
    for export in &config.exports {
        if let DoorConfig::VhostUser { path, .. } | DoorConfig::VfioUser { path, .. } = &export.door {
            sockets.insert(path, by(export));
        }
    }
    for volume in &config.volumes {
        let place = volumes.iter().find(|(_, name)| *name == volume.name);
        let (line, key) = (place.map_or(0, |(line, _)| *line), format!("volume.{}.export", volume.name));
        let nqn = volume.nqn(&config.node.name);
        if config.devices.iter().any(|d| d.nqn == nqn) {
            sink.note(line, &format!("volume.{}.name", volume.name), "a device has this name; choose another one");
        }
        let mut tcp = false;
        for door in &volume.exports {
            match door {
                DoorConfig::VhostUser { path, .. } | DoorConfig::VfioUser { path, .. } => {
                    if let Some(by) = sockets.insert(path, format!("volume {}", volume.name)) {
                        let shown = path.display();
                        sink.note(line, &key, format_args!("{shown} is taken by {by}; choose another path"));
                    }
                }
                DoorConfig::NvmeTcp if std::mem::replace(&mut tcp, true) => {
                    sink.note(line, &key, "nvme-tcp is listed twice; keep one");
                }
                DoorConfig::NvmeTcp => {}
            }
        }
    }
}
