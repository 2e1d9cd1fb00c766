//! Volumes at doors.

use super::{Export, Found, Leaving, PoolPlace, Volumes, Wanted, gone, not_exported, refusal, tenant_index};
use crate::directory::Place;
use crate::door::{vfio_user, vhost_user};
use crate::pool::front::{Copies, SLOTS};
use crate::refusal::Refusal;
use crate::shard::Shard;
use crate::snapshot::{ExportSnapshot, VolumeSnapshot};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_arbiter::{ArbiterSettings, Mechanism};
use weir_config::{ClassFrom, Config, DoorConfig, Doorbells, TenantConfig, VolumeConfig};
use weir_controller::{self as controller, DiscoveryRecord, NamespaceConfig, Subsystem};
use weir_pool::{CHUNK, PoolError, SNAPSHOT_MARK, Uuid, VolumeId};

/// So long a client may take to come to an export for an image.
const FIRST_CLIENT: Duration = Duration::from_secs(10);

/// What an export is for that serves to copy a volume as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageUse {
    /// A snapshot, or a volume, is read.
    Read,
    /// A volume is written.
    Write,
}

/// What is known of such an export.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImageExport {
    read_only: bool,
    since: Instant,
    has_client: bool,
}

/// Virtqueues of a vhost-user device, and I/O queues of an NVMe host.
const QUEUES: u16 = 16;
/// Entries of a queue.
const DEPTH: u16 = 1024;

/// What the doors of all shards say of their sockets.
#[derive(Default)]
struct Clients {
    sockets: BTreeMap<PathBuf, u32>,
    recoveries: BTreeMap<PathBuf, vhost_user::Recoveries>,
}

/// To a request about the pool of a node without one.
pub const NO_POOL: &str = "this node has no pool: write [[pool]] with name = \"pool0\" and drives = [\"ssd0\"] (drives that nothing exports) into \
                           its configuration, and start it with that";

impl Volumes {
    /// Exports a volume at one more door; a socket's path is absolute. For an image it is the volume's only one, and ends with its client.
    ///
    /// # Errors
    /// There is none of that name, the door has it already or is not open, or the socket is not to be had; or it is exported, and a
    /// number of controllers or an image is wanted, or is copied as an image. A snapshot is read as an image only.
    pub fn export(
        &self,
        config: &Config,
        name: &str,
        door: DoorConfig,
        (max_controllers, image): (Option<u16>, Option<ImageUse>),
    ) -> Result<VolumeSnapshot, Refusal> {
        let mut exports = self.turn();
        let found = self.find(name)?;
        if found.name.contains(SNAPSHOT_MARK) && image != Some(ImageUse::Read) {
            return Err(refusal(PoolError::IsSnapshot(found.name)));
        }
        if image.is_some() && !matches!(door, DoorConfig::VhostUser { .. }) {
            return Err(Refusal::Invalid(format!("image: it goes through vhost-user:PATH, not {door}")));
        }
        if image.is_some() || exports.iter().any(|e| e.image.is_some() && (e.pool, e.volume) == (found.pool, found.id))
        {
            not_exported(&found, &exports)?;
        }
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
        self.must_have_left(&found)?;
        let of = |e: &&Export| (e.pool, e.volume) == (found.pool, found.id);
        let had = exports.iter().find(of).map(|e| e.front);
        if had.is_some() && max_controllers.is_some() {
            let what = "max_controllers: the volume is exported, and its first export has said it; nothing was changed";
            return Err(Refusal::Conflict(what.into()));
        }
        let nqn = self.nqn(&found.name);
        let front = match had {
            Some(front) => front,
            None => self.make_front(config, &found, (tenant, &nqn), max_controllers)?,
        };
        let laid = if had.is_none() { self.lay_out(found.pool, found.id, front) } else { Ok(()) };
        if let Err(why) = laid.and_then(|()| self.open_door(config, &found, tenant, front, (&door, image))) {
            if had.is_none() {
                self.remove_front(front)?;
            }
            return Err(why);
        }
        if door == DoorConfig::NvmeTcp {
            let record = |(at, port): (&SocketAddr, u16)| record(&nqn, &found.name, *at, port);
            let records: Vec<DiscoveryRecord> = self.listening.iter().zip(1u16..).map(record).collect();
            self.tell(move |discovery| discovery.add_discovery(records))?;
        }
        let image = image.map(|image| ImageExport {
            read_only: image == ImageUse::Read,
            since: Instant::now(),
            has_client: false,
        });
        exports.push(Export { pool: found.pool, volume: found.id, front, door, nqn, image });
        Ok(self.status(config, &found, &exports))
    }

    /// A front for a volume that has none; where its bytes lie is to be laid out.
    pub(super) fn make_front(
        &self,
        config: &Config,
        found: &Found,
        (tenant, nqn): (usize, &str),
        max_controllers: Option<u16>,
    ) -> Result<Place, Refusal> {
        let place = &self.pools[found.pool];
        let machine = machine(config, nqn, found, (tenant, place));
        let most = max_controllers.unwrap_or(machine.max_controllers);
        let machine = controller::SubsystemConfig { max_controllers: most, ..machine };
        let (id, number) = (found.id, place.number);
        let first = self.pieces(found.pool, id)?.into_iter().find_map(|lies| lies.first);
        let first = first.map_or(place.shard, |place| place.shard);
        let copies = match found.copies {
            1 => None,
            _ => {
                let pool_shard = (place.shard != first).then_some(place.shard);
                let written = self.call(found.pool, move |s, number| {
                    s.drives.pool(number).volume_of(id).map_or_else(Vec::new, |v| v.written().to_vec())
                })?;
                Some(Copies::new(pool_shard, &written))
            }
        };
        let machine = (tenant as u16, machine, copies, (place.shard != first).then_some(place.shard));
        let associations = self.associations.clone();
        let add = move |s: &mut Shard| {
            let now = s.reactor.now();
            let drive = s.drives.add_front((number, id), machine, now)?;
            // Its other hosts come once its doors are open, and get identifiers that are free then.
            let mut associations = associations.lock().unwrap_or_else(PoisonError::into_inner);
            associations.resume(&mut s.drives, drive, now);
            Ok::<u32, String>(drive)
        };
        let drive = self.at(first, add)?.map_err(Refusal::Conflict)?;
        Ok(Place { shard: first, drive })
    }

    fn open_door(
        &self,
        config: &Config,
        found: &Found,
        tenant: usize,
        front: Place,
        (door, image): (&DoorConfig, Option<ImageUse>),
    ) -> Result<(), Refusal> {
        let serial = serial(found.uuid);
        let (tenant_name, tenant) = (found.tenant.clone(), tenant as u16);
        match door.clone() {
            DoorConfig::NvmeTcp => match self.directory.add(&self.nqn(&found.name), front) {
                true => Ok(()),
                false => Err(Refusal::Conflict("there is a subsystem of that name already".into())),
            },
            DoorConfig::VhostUser { path, .. } => {
                let settings = vhost_user::ExportConfig {
                    path,
                    drive: front.drive,
                    tenant,
                    tenant_name,
                    peer_class: false,
                    queues: QUEUES,
                    queue_depth: DEPTH,
                    journal: config.node.journal,
                    read_only: image == Some(ImageUse::Read),
                    serial,
                };
                let open = move |s: &mut Shard| s.with_doors(|doors, cx| doors.vhost_user.export(settings, cx));
                self.at(front.shard, open)?.map_err(|e| Refusal::Conflict(e.to_string()))
            }
            DoorConfig::VfioUser { path, doorbells, .. } => {
                let settings = vfio_user::ExportConfig {
                    path,
                    drive: front.drive,
                    tenant,
                    tenant_name,
                    class_from: controller::ClassFrom::Tenant,
                    doorbells,
                    serial: u64::from_le_bytes(std::array::from_fn(|i| found.uuid.0[i])),
                    journal: config.node.journal,
                };
                let open = move |s: &mut Shard| s.with_doors(|doors, cx| doors.vfio_user.export(settings, cx));
                self.at(front.shard, open)?.map_err(|e| Refusal::Conflict(e.to_string()))
            }
        }
    }

    pub(super) fn remove_front(&self, front: Place) -> Result<(), Refusal> {
        self.at(front.shard, move |s| {
            let now = s.reactor.now();
            s.drives.remove_front(front.drive, now);
        })
    }

    /// Ends an export of a volume: at that socket, with its clients' connections; or, for `nvme-tcp:VOLUME`, over NVMe/TCP, where no host is
    /// connected. `None`: no volume is exported so.
    ///
    /// # Errors
    /// Hosts are connected.
    pub fn unexport(&self, what: &str) -> Result<Option<ExportSnapshot>, Refusal> {
        self.unexport_of(what, &mut self.turn())
    }

    /// Ends exports for images whose client has gone, or has never come.
    ///
    /// # Errors
    /// The node is stopping.
    pub(super) fn end_images(&self) -> Result<(), Refusal> {
        let mut exports = self.turn();
        if exports.iter().all(|e| e.image.is_none()) {
            return Ok(());
        }
        let clients = self.clients()?;
        let mut over = Vec::new();
        for export in exports.iter_mut() {
            let (Some(image), Some((path, _))) = (&mut export.image, export.door.socket()) else { continue };
            let is_there = clients.sockets.get(path).is_some_and(|count| *count > 0);
            if !is_there && (image.has_client || image.since.elapsed() > FIRST_CLIENT) {
                over.push(path.display().to_string());
            }
            image.has_client |= is_there;
        }
        over.iter().try_for_each(|socket| self.unexport_of(socket, &mut exports).map(|_| ()))
    }

    fn unexport_of(&self, what: &str, exports: &mut Vec<Export>) -> Result<Option<ExportSnapshot>, Refusal> {
        let by_name = what.strip_prefix("nvme-tcp:").map(|name| self.nqn(name));
        let is = |e: &Export| match (&by_name, e.door.socket()) {
            (Some(nqn), None) => e.nqn == *nqn,
            (None, Some((path, _))) => path == Path::new(what),
            _ => false,
        };
        let Some(at) = exports.iter().position(is) else { return Ok(None) };
        let Export { front, door, nqn, .. } = exports[at].clone();
        let of = Wanted::Numbered(exports[at].volume);
        let found = self.look(exports[at].pool, of)?.pop().ok_or_else(gone)?;
        let before = self.export_status(&exports[at], found, &self.clients()?)?;
        let last = exports.iter().filter(|e| e.front == front).count() == 1;
        match door {
            DoorConfig::NvmeTcp => {
                // Nobody new from here on, and then whether somebody is there.
                self.directory.remove(&nqn);
                if let Some(host) = self.hosts(front)?.first() {
                    self.directory.add(&nqn, front);
                    let what = format!("{host} is connected to it; nothing was changed: disconnect it first");
                    return Err(Refusal::Conflict(what));
                }
                self.tell(move |discovery| discovery.remove_discovery(&nqn))?;
            }
            DoorConfig::VhostUser { path, .. } => {
                let close = move |s: &mut Shard| s.with_doors(|doors, cx| doors.vhost_user.unexport(&path, cx));
                self.at(front.shard, close)?;
            }
            DoorConfig::VfioUser { path, .. } => {
                let close = move |s: &mut Shard| s.with_doors(|doors, cx| doors.vfio_user.unexport(&path, cx));
                self.at(front.shard, close)?;
            }
        }
        let Export { pool, volume, .. } = exports.remove(at);
        if last && !self.let_leave(front)? {
            let name = before.volume.as_deref().unwrap_or_default();
            tracing::warn!(
                "volume {name}: its drives have not finished what was asked at {what}; it is kept until they have"
            );
            self.leaving().push(((pool, volume), front));
        }
        Ok(Some(before))
    }

    /// Takes a front away whose last door is closed, once its drives have finished what its hosts asked: chunks that are given to others would
    /// be written to by what is still on its way. Whether they have.
    fn let_leave(&self, front: Place) -> Result<bool, Refusal> {
        let has_left = self.until(front.shard, move |s| s.drives.is_front_quiet(front.drive))?;
        if has_left {
            self.remove_front(front)?;
        }
        Ok(has_left)
    }

    pub(super) fn leaving(&self) -> MutexGuard<'_, Vec<Leaving>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing that was asked at an earlier export of a volume is on its way any more.
    pub(super) fn must_have_left(&self, found: &Found) -> Result<(), Refusal> {
        let mut leaving = self.leaving();
        let Some(at) = leaving.iter().position(|(of, _)| *of == (found.pool, found.id)) else { return Ok(()) };
        if !self.let_leave(leaving[at].1)? {
            return Err(Refusal::Unavailable(format!(
                "volume \"{}\": its drives do not finish what was asked at an export that was ended; nothing was changed",
                found.name
            )));
        }
        leaving.remove(at);
        Ok(())
    }

    /// Nothing that was asked at exports that have ended is on its way at a drive of a pool that is to leave it.
    pub(super) fn fronts_must_leave(&self, pool: usize, drive: Place, name: &str) -> Result<(), Refusal> {
        let mut leaving = self.leaving();
        let mut at = 0;
        while let Some(((of, _), front)) = leaving.get(at).copied() {
            let has_a_way =
                of == pool && self.at(front.shard, move |s| s.drives.ways(front.drive).2.contains(&drive))?;
            if !has_a_way {
                at += 1;
            } else if self.let_leave(front)? {
                leaving.remove(at);
            } else {
                return Err(Refusal::Unavailable(format!(
                    "{name}: what was asked at an export that was ended is not finished there; nothing was changed"
                )));
            }
        }
        Ok(())
    }

    /// NQNs of the hosts that are connected to a front.
    fn hosts(&self, front: Place) -> Result<Vec<String>, Refusal> {
        self.at(front.shard, move |s| {
            let all = s.drives.device(front.drive).machine().controllers().into_iter().map(|c| c.host);
            all.filter(|host| host.starts_with("nqn.")).collect()
        })
    }

    /// The shard that serves a volume at that socket.
    pub fn shard_at(&self, socket: &Path) -> Option<u32> {
        let exports = self.turn();
        let found = exports.iter().find(|e| e.door.socket().is_some_and(|(path, _)| path == socket));
        found.map(|e| e.front.shard)
    }

    /// All exports of volumes.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn export_statuses(&self) -> Result<Vec<ExportSnapshot>, Refusal> {
        let exports = self.turn();
        let mut known: BTreeMap<(usize, VolumeId), Found> = BTreeMap::new();
        for pool in (0..self.pools.len()).filter(|pool| exports.iter().any(|e| e.pool == *pool)) {
            known.extend(self.look(pool, Wanted::All)?.into_iter().map(|found| ((pool, found.id), found)));
        }
        let clients = self.clients()?;
        let status = |e: &Export| {
            let found = known.get(&(e.pool, e.volume)).cloned().ok_or_else(gone)?;
            self.export_status(e, found, &clients)
        };
        exports.iter().map(status).collect()
    }

    /// Clients at every socket, and what was recovered there.
    fn clients(&self) -> Result<Clients, Refusal> {
        let mut all = Clients::default();
        let look = |s: &mut Shard| {
            let sockets = s.doors.vhost_user.clients().into_iter().chain(s.doors.vfio_user.clients());
            (sockets.collect::<Vec<_>>(), s.doors.vhost_user.recoveries())
        };
        for shard in 0..self.shards.len() as u32 {
            let (sockets, recoveries) = self.at(shard, look)?;
            all.sockets.extend(sockets);
            all.recoveries.extend(recoveries.into_iter().filter(|(_, found)| found.queues != 0));
        }
        Ok(all)
    }

    fn export_status(&self, export: &Export, found: Found, clients: &Clients) -> Result<ExportSnapshot, Refusal> {
        let (addresses, clients, recovered) = match export.door.socket() {
            None => {
                let addresses = self.listening.iter().map(SocketAddr::to_string).collect();
                (addresses, self.hosts(export.front)?.len() as u32, None)
            }
            Some((path, _)) => {
                let count = clients.sockets.get(path).copied().unwrap_or(0);
                (vec![path.display().to_string()], count, clients.recoveries.get(path).cloned())
            }
        };
        Ok(ExportSnapshot {
            device: String::new(),
            volume: Some(found.name),
            door: export.door.kind(),
            addresses,
            tenant: Some(found.tenant),
            class_from: ClassFrom::Tenant,
            queues: QUEUES,
            read_only: export.image.is_some_and(|image| image.read_only),
            clients,
            recovered,
        })
    }

    /// Tells the discovery service what has come or gone.
    fn tell(&self, what: impl FnOnce(&mut Subsystem) + Send + 'static) -> Result<(), Refusal> {
        let drive = self.discovery.drive;
        self.at(self.discovery.shard, move |s| what(s.drives.get(drive)))
    }
}

/// Twenty characters of a volume's UUID.
pub(super) fn serial(uuid: Uuid) -> String {
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
fn machine(
    config: &Config,
    nqn: &str,
    found: &Found,
    (tenant, pool): (usize, &PoolPlace),
) -> controller::SubsystemConfig {
    let (block_size, cached) = (pool.block_size, pool.cached.load(Ordering::Relaxed));
    let size = u64::from(found.chunks) * CHUNK;
    let named = config.volumes.iter().find(|v| v.name == found.name);
    let queue = |(i, t): (usize, &TenantConfig)| controller::TenantConfig {
        // The door has asked whose the host is.
        hosts: if i == tenant { vec!["*".into()] } else { Vec::new() },
        ..controller::TenantConfig::new(&t.name, t.class)
    };
    controller::SubsystemConfig {
        serial: serial(found.uuid),
        model: "Weir volume".into(),
        arbitration: ArbiterSettings::new(Mechanism::None),
        slots: SLOTS,
        slot_bytes: u64::MAX,
        namespaces: vec![NamespaceConfig { nsid: 1, start: 0, size, block_size, uuid: found.uuid.0 }],
        volatile_write_cache: cached,
        atomic_write: block_size.into(),
        in_capsule: config.nvme_tcp.in_capsule.get() as u32,
        ana_ports: config.nvme_tcp.ana_ports(),
        max_queue_entries: DEPTH.into(),
        max_io_queues: QUEUES,
        max_controllers: named.map_or(VolumeConfig::MAX_CONTROLLERS, |v| v.max_controllers),
        tenants: config.tenants.iter().enumerate().map(queue).collect(),
        ..controller::SubsystemConfig::new(nqn)
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
