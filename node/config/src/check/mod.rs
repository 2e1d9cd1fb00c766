//! What only shows when all sections lie side by side: names used twice, references to nothing, doors that do not fit.

mod pool;
mod store;
mod unique;

use super::admission;
use super::api::ApiConfig;
use super::arbitration::ClassFrom;
use super::config::Config;
use super::device::{self, DeviceConfig, DeviceRead};
use super::door::NvmeTcpConfig;
use super::export::{DoorConfig, DoorRead, Doorbells, ExportConfig, ExportRead};
use super::fault::{self, FaultRead};
use super::machine::{Identity, Machine};
use super::media::MediaConfig;
use super::node::{Address, NodeConfig};
use super::pool::{PoolRead, VolumeRead, lines};
use super::read::{Placed, Sink, quoted};
use super::store::StoreRead;
use super::tenant::{TenantConfig, TenantRead};
use std::collections::BTreeMap;
use std::path::PathBuf;
use unique::{Unique, list};
use weir_units::{Ceiling, Class, Floor, Sla};

/// Virtqueues that a vhost-user device offers unless the export says otherwise.
const VHOST_QUEUES: u16 = 16;

/// The sections as they were read.
pub(super) struct Parts {
    pub(super) node: NodeConfig,
    pub(super) api: ApiConfig,
    pub(super) devices: Vec<DeviceRead>,
    pub(super) tenants: Vec<TenantRead>,
    pub(super) exports: Vec<ExportRead>,
    pub(super) nvme_tcp: NvmeTcpConfig,
    pub(super) pools: Vec<PoolRead>,
    pub(super) volumes: Vec<VolumeRead>,
    pub(super) store: Option<StoreRead>,
    pub(super) faults: Vec<FaultRead>,
}

/// Puts the sections together, notes what does not fit, and fills what is missing: a RAM drive, one tenant for every
/// host, and, where there is no pool, an NVMe/TCP export of every drive.
pub(super) fn assemble(sink: &Sink, machine: Machine, parts: Parts) -> Config {
    let Parts { node, api, devices, tenants, exports, nvme_tcp, pools, volumes, store, faults } = parts;
    unique_devices(sink, machine, &devices);
    unique_tenants(sink, &tenants);
    let shared_slots: Vec<Option<u16>> = devices.iter().map(|d| d.shared_slots).collect();
    let mut devices: Vec<DeviceConfig> = devices.into_iter().map(|d| d.device).collect();
    if devices.is_empty() {
        devices.push(device::default_device(&node.name));
    }
    let mut tenants: Vec<TenantConfig> = tenants.into_iter().map(|t| t.tenant).collect();
    if tenants.is_empty() {
        tenants.push(everybody());
    }
    let lines = lines(&volumes);
    let none = exports.is_empty();
    let mut by_line = vec![None; devices.len()];
    let reads = exports;
    let mut exports = Exports { sink, node: &node, devices: &devices, tenants: &tenants }.check(&reads);
    for read in &reads {
        let at = match &read.device {
            Some(device) => devices.iter().position(|d| d.name == device.value),
            None => (devices.len() == 1).then_some(0),
        };
        if let Some(at) = at {
            by_line[at] = Some(read.line);
        }
    }
    let (pools, volumes) = pool::check(sink, machine, (pools, volumes), &devices, &tenants, &by_line);
    // Beside pools a device is one of theirs, or may become one.
    if none && node.default_exports && pools.is_empty() {
        exports = devices.iter().enumerate().map(|(i, device)| by_tcp(i, device)).collect();
    }
    let faults = fault::check(sink, node.faults, faults, &devices);
    let mut config = Config { node, api, devices, tenants, exports, nvme_tcp, pools, volumes, store: None, faults };
    for (i, slots) in shared_slots.into_iter().enumerate() {
        if let Some(slots) = slots.filter(|_| admission::reach(&config, i).len() > 1) {
            config.devices[i].slots = slots;
        }
    }
    pool::check_doors(sink, &lines, &config);
    config.store = store.map(|read| store::check(sink, machine, read, &config));
    config
}

/// The tenant of a node whose configuration has none.
fn everybody() -> TenantConfig {
    let hosts = Vec::new();
    TenantConfig {
        name: "default".into(),
        class: Class::Medium,
        urgent: false,
        weight: 1,
        placement: None,
        floor: Floor::default(),
        ceiling: Ceiling::default(),
        sla: Sla::default(),
        demand: None,
        hosts,
        any_host: true,
    }
}

fn by_tcp(index: usize, device: &DeviceConfig) -> ExportConfig {
    let class_from = inherited(device.class_from, &DoorConfig::NvmeTcp);
    ExportConfig { device: index, door: DoorConfig::NvmeTcp, class_from, queues: device.queues, read_only: false }
}

pub(super) fn unique_devices(sink: &Sink, machine: Machine, devices: &[DeviceRead]) {
    let (mut names, mut nqns) = (Unique::new(sink), Unique::new(sink));
    let (mut serials, mut media) = (Unique::new(sink), Unique::new(sink));
    let mut identities: BTreeMap<Identity, (u32, String)> = BTreeMap::new();
    for read in devices {
        let key = |key: &str| format!("{}.{key}", read.path);
        names.see(&read.device.name, read.line, &key("name"), "every device needs a name of its own");
        if let Some(nqn) = &read.nqn {
            nqns.see_placed(nqn, "every device needs an NQN of its own");
        }
        if let Some(serial) = &read.serial {
            serials.see_placed(serial, "every device needs a serial number of its own");
        }
        if !matches!(read.device.media, MediaConfig::Ram | MediaConfig::Null) {
            let text = read.device.media.to_string();
            media.see(&text, read.line, &key("media"), "two drives on one medium destroy each other's data");
            let Some(identity) = machine.identity(&read.device.media) else { continue };
            match identities.get(&identity) {
                Some((line, other)) if *other != text => sink.note(
                    read.line,
                    &key("media"),
                    format_args!(
                        "{} is the medium of line {line} by another path; two drives on one medium destroy each other's data",
                        quoted(&text)
                    ),
                ),
                Some(_) => {}
                None => {
                    identities.insert(identity, (read.line, text));
                }
            }
        }
    }
}

pub(super) fn unique_tenants(sink: &Sink, tenants: &[TenantRead]) {
    let (mut names, mut hosts) = (Unique::new(sink), Unique::new(sink));
    for read in tenants {
        if let Some(name) = &read.name {
            names.see_placed(name, "every tenant needs a name of its own");
        }
        let Some(list) = &read.hosts else { continue };
        for host in &list.value {
            hosts.see(host, list.line, &list.key, "a host belongs to one tenant");
        }
    }
}

struct Exports<'a> {
    sink: &'a Sink,
    node: &'a NodeConfig,
    devices: &'a [DeviceConfig],
    tenants: &'a [TenantConfig],
}

impl Exports<'_> {
    fn check(&self, exports: &[ExportRead]) -> Vec<ExportConfig> {
        let mut sockets: BTreeMap<PathBuf, String> = BTreeMap::new();
        for address in &self.node.api {
            if let Address::Unix(path) = address {
                sockets.insert(path.clone(), "the API".to_string());
            }
        }
        let mut by_tcp: BTreeMap<usize, u32> = BTreeMap::new();
        let mut checked = Vec::with_capacity(exports.len());
        for export in exports {
            let Some((place, config)) = self.one(export) else { continue };
            let taken = match &config.door {
                DoorConfig::VhostUser { path, .. } | DoorConfig::VfioUser { path, .. } => {
                    sockets.insert(path.clone(), format!("line {}", export.line))
                }
                DoorConfig::NvmeTcp => by_tcp.insert(config.device, export.line).map(|line| format!("line {line}")),
            };
            match taken {
                Some(by) if config.door == DoorConfig::NvmeTcp => {
                    self.sink.note(
                        place.line,
                        &place.key,
                        format_args!("{by} exports this device by nvme-tcp already; leave one out"),
                    );
                }
                Some(by) => self.sink.note(
                    place.line,
                    &place.key,
                    format_args!("this socket is taken by {by}; choose another path"),
                ),
                None => {}
            }
            checked.push(config);
        }
        checked
    }

    fn one<'e>(&self, export: &'e ExportRead) -> Option<(&'e Placed<DoorRead>, ExportConfig)> {
        let device = self.device(export);
        let door = export.door.as_ref();
        let tenant = match door?.value {
            DoorRead::VhostUser(_) | DoorRead::VfioUser(_) => self.tenant(export),
            DoorRead::NvmeTcp => self.no_tenant(export),
        };
        let (device, door, tenant) = (device?, door?, tenant?);
        let config = match &door.value {
            DoorRead::NvmeTcp => DoorConfig::NvmeTcp,
            DoorRead::VhostUser(path) => DoorConfig::VhostUser { path: path.clone(), tenant },
            DoorRead::VfioUser(path) => {
                let doorbells = export.doorbells.as_ref().map_or(Doorbells::default(), |d| d.value);
                DoorConfig::VfioUser { path: path.clone(), tenant, doorbells }
            }
        };
        if let (Some(placed), false) = (&export.doorbells, matches!(config, DoorConfig::VfioUser { .. })) {
            self.sink.note(placed.line, &placed.key, "only a vfio-user drive has doorbells of its own; leave it out");
        }
        let read_only = export.read_only.as_ref().is_some_and(|r| r.value);
        if let (Some(placed), true, DoorConfig::VfioUser { .. }) = (&export.read_only, read_only, &config) {
            let what =
                "a drive is not exported read-only; its host has Namespace Write Protection (nvme set-feature -f 0x84)";
            self.sink.note(placed.line, &placed.key, what);
        }
        if let (Some(_), DoorConfig::VhostUser { .. }) = (&self.devices[device].zoned, &config) {
            let what = "a zoned drive is reached by nvme-tcp only: virtio-blk hosts would write anywhere";
            self.sink.note(door.line, &door.key, what);
        }
        if let (Some(_), DoorConfig::VhostUser { .. }) = (&self.devices[device].open_channel, &config) {
            let what =
                "a drive of physical addresses is reached by nvme-tcp only: virtio-blk hosts would write anywhere";
            self.sink.note(door.line, &door.key, what);
        }
        let class_from = self.class_from(export, &self.devices[device], &config);
        let queues = self.queues(export, &self.devices[device], &config);
        Some((door, ExportConfig { device, door: config, class_from, queues, read_only }))
    }

    fn device(&self, export: &ExportRead) -> Option<usize> {
        let Some(placed) = &export.device else {
            if self.devices.len() != 1 {
                let names = list(self.devices.iter().map(|d| d.name.as_str()));
                let what = format!("missing, and there are several; write one of {names}");
                self.sink.note(export.line, &format!("{}.device", export.key), what);
                return None;
            }
            return Some(0);
        };
        let found = self.devices.iter().position(|d| d.name == placed.value);
        if found.is_none() {
            let names = list(self.devices.iter().map(|d| d.name.as_str()));
            let what = format!("there is no device {}; there is {names}", quoted(&placed.value));
            self.sink.note(placed.line, &placed.key, what);
        }
        found
    }

    fn tenant(&self, export: &ExportRead) -> Option<usize> {
        let names = || list(self.tenants.iter().map(|t| t.name.as_str()));
        let Some(placed) = &export.tenant else {
            if self.tenants.len() != 1 {
                let what = format!("missing, and there are several; write one of {}", names());
                self.sink.note(export.line, &format!("{}.tenant", export.key), what);
                return None;
            }
            return Some(0);
        };
        let found = self.tenants.iter().position(|t| t.name == placed.value);
        if found.is_none() {
            let what = format!("there is no tenant {}; there is {}", quoted(&placed.value), names());
            self.sink.note(placed.line, &placed.key, what);
        }
        found
    }

    /// Over NVMe/TCP the host's NQN says who it is.
    fn no_tenant(&self, export: &ExportRead) -> Option<usize> {
        if let Some(placed) = &export.tenant {
            let what = "an NVMe/TCP host is known by its NQN; leave this out and list the NQN in hosts of a [[tenant]]";
            self.sink.note(placed.line, &placed.key, what);
        }
        Some(0)
    }

    fn class_from(&self, export: &ExportRead, device: &DeviceConfig, door: &DoorConfig) -> ClassFrom {
        let Some(placed) = &export.class_from else { return inherited(device.class_from, door) };
        if inherited(placed.value, door) != placed.value {
            let allowed = match door {
                DoorConfig::NvmeTcp => "\"tenant\" or \"cattr\"",
                DoorConfig::VhostUser { .. } => "\"tenant\" or \"peer\"",
                DoorConfig::VfioUser { .. } => "\"tenant\", \"qprio\" or \"peer\"",
            };
            let what = format!("\"{}\" means nothing at this door; {allowed} is allowed", placed.value);
            self.sink.note(placed.line, &placed.key, what);
        }
        placed.value
    }

    fn queues(&self, export: &ExportRead, device: &DeviceConfig, door: &DoorConfig) -> u16 {
        let default = match door {
            DoorConfig::NvmeTcp | DoorConfig::VfioUser { .. } => device.queues,
            DoorConfig::VhostUser { .. } => device.queues.min(VHOST_QUEUES),
        };
        let Some(placed) = &export.queues else { return default };
        if placed.value > device.queues {
            let what = format!("{} is more than the device's queues, {}", placed.value, device.queues);
            self.sink.note(placed.line, &placed.key, what);
        }
        placed.value
    }
}

/// A device's `class_from` at a door that may not know it: there it is the tenant's class.
/// Fabrics hosts send no Create I/O Submission Queue, a vhost-user front end neither that nor Connect, and the process
/// at the other end of a TCP connection may be on another machine.
fn inherited(wish: ClassFrom, door: &DoorConfig) -> ClassFrom {
    match (wish, door) {
        (ClassFrom::Cattr, DoorConfig::NvmeTcp)
        | (ClassFrom::Peer, DoorConfig::VhostUser { .. })
        | (ClassFrom::Peer | ClassFrom::Qprio, DoorConfig::VfioUser { .. }) => wish,
        _ => ClassFrom::Tenant,
    }
}
