//! Volumes at doors.

use super::{Export, Found, Volumes, gone, tenant_index};
use crate::api::{ExportStatus, Refusal, VolumeStatus};
use crate::config::{ClassFrom, Config, DoorConfig, Doorbells, TenantConfig};
use crate::door::{Place, vfio_user, vhost_user};
use crate::node::discovery_records;
use crate::pool::front::SLOTS;
use crate::shard::Shard;
use std::net::SocketAddr;
use std::path::Path;
use weir_arbiter::{Mechanism, Settings};
use weir_controller::{self as controller, DiscoveryRecord};
use weir_pool::Uuid;

/// Virtqueues of a vhost-user device, and I/O queues of an NVMe host.
const QUEUES: u16 = 16;
/// Entries of a queue.
const DEPTH: u16 = 1024;

impl Volumes {
    /// Exports a volume at one more door; a socket's path is absolute.
    ///
    /// # Errors
    /// There is none of that name, the door has it already or is not open, or the socket is not to be had.
    pub fn export(&self, config: &Config, name: &str, door: DoorConfig) -> Result<VolumeStatus, Refusal> {
        let mut exports = self.turn();
        let found = self.find(name)?;
        let tenant = tenant_index(config, &found.tenant)?;
        let same = |e: &Export| match (e.door.socket(), door.socket()) {
            (Some((one, _)), Some((other, _))) => one == other,
            (None, None) => (e.pool, e.volume) == (found.pool, found.id),
            _ => false,
        };
        if let Some((path, _)) = door.socket().filter(|(path, _)| !path.is_absolute()) {
            return Err(Refusal::Invalid(format!("door: {} is not an absolute path", path.display())));
        }
        if exports.iter().any(same) {
            return Err(Refusal::Conflict(format!("{door} is an export already; nothing was changed")));
        }
        if door == DoorConfig::NvmeTcp && self.listening.is_empty() {
            return Err(Refusal::Conflict(
                "this node does not listen for NVMe/TCP: its configuration exports nothing there".into(),
            ));
        }
        let of = |e: &&Export| (e.pool, e.volume) == (found.pool, found.id);
        let had = exports.iter().find(of).map(|e| e.front);
        let nqn = self.nqn(&found.name);
        let front = match had {
            Some(front) => front,
            None => {
                let machine = (tenant as u16, machine(config, &nqn, &found, tenant));
                let id = found.id;
                let add = move |s: &mut Shard, number| {
                    let now = s.reactor.now();
                    s.drives.add_front((number, id), machine, now)
                };
                self.call(found.pool, add)?.map_err(Refusal::Conflict)?
            }
        };
        if let Err(why) = self.open_door(config, &found, tenant, front, &door) {
            if had.is_none() {
                self.remove_front(found.pool, front)?;
            }
            return Err(why);
        }
        exports.push(Export { pool: found.pool, volume: found.id, front, door, nqn });
        self.tell(config, &exports)?;
        Ok(self.status(config, &found, &exports))
    }

    fn open_door(
        &self,
        config: &Config,
        found: &Found,
        tenant: usize,
        front: u32,
        door: &DoorConfig,
    ) -> Result<(), Refusal> {
        let (shard, serial) = (self.pools[found.pool].shard, serial(found.uuid));
        let (tenant_name, tenant) = (found.tenant.clone(), tenant as u16);
        match door.clone() {
            DoorConfig::NvmeTcp => match self.directory.add(&self.nqn(&found.name), Place { shard, drive: front }) {
                true => Ok(()),
                false => Err(Refusal::Conflict("there is a subsystem of that name already".into())),
            },
            DoorConfig::VhostUser { path, .. } => {
                let settings = vhost_user::ExportConfig {
                    path,
                    drive: front,
                    tenant,
                    tenant_name,
                    peer_class: false,
                    queues: QUEUES,
                    queue_depth: DEPTH,
                    journal: config.node.journal,
                    read_only: false,
                    serial,
                };
                let open = move |s: &mut Shard, _| s.with_doors(|doors, cx| doors.vhost_user.export(settings, cx));
                self.call(found.pool, open)?.map_err(|e| Refusal::Conflict(e.to_string()))
            }
            DoorConfig::VfioUser { path, doorbells, .. } => {
                let settings = vfio_user::ExportConfig {
                    path,
                    drive: front,
                    tenant,
                    tenant_name,
                    class_from: controller::ClassFrom::Tenant,
                    doorbells,
                    serial: u64::from_le_bytes(std::array::from_fn(|i| found.uuid.0[i])),
                };
                let open = move |s: &mut Shard, _| s.with_doors(|doors, cx| doors.vfio_user.export(settings, cx));
                self.call(found.pool, open)?.map_err(|e| Refusal::Conflict(e.to_string()))
            }
        }
    }

    fn remove_front(&self, pool: usize, front: u32) -> Result<(), Refusal> {
        self.call(pool, move |s, _| {
            let now = s.reactor.now();
            s.drives.remove_front(front, now);
        })
    }

    /// Ends an export of a volume: at that socket, with its clients' connections; or, for `nvme-tcp:VOLUME`, over NVMe/TCP, where no host is
    /// connected. `None`: no volume is exported so.
    ///
    /// # Errors
    /// Hosts are connected.
    pub fn unexport(&self, config: &Config, what: &str) -> Result<Option<ExportStatus>, Refusal> {
        let mut exports = self.turn();
        let by_name = what.strip_prefix("nvme-tcp:").map(|name| self.nqn(name));
        let is = |e: &Export| match (&by_name, e.door.socket()) {
            (Some(nqn), None) => e.nqn == *nqn,
            (None, Some((path, _))) => path == Path::new(what),
            _ => false,
        };
        let Some(at) = exports.iter().position(is) else { return Ok(None) };
        let Export { pool, front, door, nqn, .. } = exports[at].clone();
        let before = self.export_status(&exports[at])?;
        let last = exports.iter().filter(|e| (e.pool, e.front) == (pool, front)).count() == 1;
        match door {
            DoorConfig::NvmeTcp => {
                // Nobody new from here on, and then whether somebody is there.
                self.directory.remove(&nqn);
                if let Some(host) = self.hosts(pool, front)?.first() {
                    let place = Place { shard: self.pools[pool].shard, drive: front };
                    self.directory.add(&nqn, place);
                    let what = format!("{host} is connected to it; nothing was changed: disconnect it first");
                    return Err(Refusal::Conflict(what));
                }
            }
            DoorConfig::VhostUser { path, .. } => {
                let close = move |s: &mut Shard, _| s.with_doors(|doors, cx| doors.vhost_user.unexport(&path, cx));
                self.call(pool, close)?;
            }
            DoorConfig::VfioUser { path, .. } => {
                let close = move |s: &mut Shard, _| s.with_doors(|doors, cx| doors.vfio_user.unexport(&path, cx));
                self.call(pool, close)?;
            }
        }
        if last {
            self.remove_front(pool, front)?;
        }
        exports.remove(at);
        self.tell(config, &exports)?;
        Ok(Some(before))
    }

    /// NQNs of the hosts that are connected to a front.
    fn hosts(&self, pool: usize, front: u32) -> Result<Vec<String>, Refusal> {
        self.call(pool, move |s, _| {
            let all = s.drives.device(front).machine().controllers().into_iter().map(|c| c.host);
            all.filter(|host| host.starts_with("nqn.")).collect()
        })
    }

    /// All exports of volumes.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn export_statuses(&self) -> Result<Vec<ExportStatus>, Refusal> {
        self.turn().iter().map(|e| self.export_status(e)).collect()
    }

    fn export_status(&self, export: &Export) -> Result<ExportStatus, Refusal> {
        let found = self.look(export.pool, None)?.into_iter().find(|v| v.id == export.volume).ok_or_else(gone)?;
        let (addresses, clients) = match export.door.socket() {
            None => {
                let addresses = self.listening.iter().map(SocketAddr::to_string).collect();
                (addresses, self.hosts(export.pool, export.front)?.len() as u32)
            }
            Some((path, _)) => {
                let at = path.to_path_buf();
                let look = move |s: &mut Shard, _| {
                    let all = s.doors.vhost_user.clients().into_iter().chain(s.doors.vfio_user.clients());
                    all.filter(|(path, _)| *path == at).map(|(_, clients)| clients).sum::<u32>()
                };
                (vec![path.display().to_string()], self.call(export.pool, look)?)
            }
        };
        let recovered = match export.door.socket() {
            Some((path, _)) => {
                let at = path.to_path_buf();
                let look = move |s: &mut Shard, _| {
                    s.doors.vhost_user.recoveries().into_iter().find(|(path, found)| *path == at && found.queues != 0)
                };
                self.call(export.pool, look)?.map(|(_, found)| (&found).into())
            }
            None => None,
        };
        Ok(ExportStatus {
            device: String::new(),
            volume: Some(found.name),
            door: export.door.kind().into(),
            addresses,
            tenant: Some(found.tenant),
            class_from: ClassFrom::Tenant,
            queues: QUEUES,
            read_only: false,
            clients,
            recovered,
        })
    }

    /// Tells the discovery service what there is.
    fn tell(&self, config: &Config, exports: &[Export]) -> Result<(), Refusal> {
        let mut records = discovery_records(config, &self.listening);
        for export in exports.iter().filter(|e| e.door == DoorConfig::NvmeTcp) {
            let name = export.nqn.rsplit(':').next().unwrap_or_default();
            records.extend(self.listening.iter().zip(1u16..).map(|(at, port)| record(&export.nqn, name, *at, port)));
        }
        let drive = self.discovery.drive;
        let tell = move |s: &mut Shard| s.drives.get(drive).set_discovery(records);
        self.shards[self.discovery.shard as usize].call(tell).ok_or_else(gone)
    }
}

/// Twenty characters of a volume's UUID.
fn serial(uuid: Uuid) -> String {
    uuid.0.iter().take(10).map(|b| format!("{b:02x}")).collect()
}

fn record(nqn: &str, label: &str, at: SocketAddr, port: u16) -> DiscoveryRecord {
    use weir_spec::nvme::log::{DiscoveryEntry, adrfam, subtype};
    let family = if at.is_ipv4() { adrfam::IPV4 } else { adrfam::IPV6 };
    let mut entry = DiscoveryEntry::tcp(subtype::NVM, nqn, family, &at.ip().to_string(), at.port());
    entry.portid = port.into();
    DiscoveryRecord { listen: Some(at), label: label.into(), ..DiscoveryRecord::new(entry) }
}

/// The machine of a front: it passes on what its hosts ask, in their order; limits and shares are the drives'. Tenants have the places that
/// they have there.
fn machine(config: &Config, nqn: &str, found: &Found, tenant: usize) -> controller::Config {
    let seat = |(i, t): (usize, &TenantConfig)| controller::TenantConfig {
        // The door has asked whose the host is.
        hosts: if i == tenant { vec!["*".into()] } else { Vec::new() },
        ..controller::TenantConfig::new(&t.name, t.class)
    };
    controller::Config {
        serial: serial(found.uuid),
        model: "Weir volume".into(),
        arbitration: Settings::new(Mechanism::None),
        slots: SLOTS,
        slot_bytes: u64::MAX,
        max_queue_entries: DEPTH.into(),
        max_io_queues: QUEUES,
        tenants: config.tenants.iter().enumerate().map(seat).collect(),
        ..controller::Config::new(nqn)
    }
}

/// How a door is written: `nvme-tcp`, `vhost-user:PATH` or `vfio-user:PATH`; sockets are that tenant's.
///
/// # Errors
/// It is none.
pub fn door(text: &str, tenant: usize) -> Result<DoorConfig, Refusal> {
    let path = |text: &str| std::path::PathBuf::from(text);
    match text.split_once(':') {
        None if text == "nvme-tcp" => Ok(DoorConfig::NvmeTcp),
        Some(("vhost-user", at)) if !at.is_empty() => Ok(DoorConfig::VhostUser { path: path(at), tenant }),
        Some(("vfio-user", at)) if !at.is_empty() => {
            Ok(DoorConfig::VfioUser { path: path(at), tenant, doorbells: Doorbells::default() })
        }
        _ => Err(Refusal::Invalid(format!(
            "door: \"{text}\" is no door; there is nvme-tcp, vhost-user:PATH and vfio-user:PATH"
        ))),
    }
}
