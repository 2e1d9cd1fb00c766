//! What is done to a node's pools and volumes: found or made when it starts, changed and exported while it runs. One thing is done after the
//! other; each is a few calls into the shard that has the pool's drives.

mod contents;
mod exports;
mod latencies;
mod loss;
mod lost_links;
mod members;
mod online;
mod places;
mod recovery;
mod resize;
mod scrub;
mod scrub_progress;
mod snapshots;
mod tend;
#[cfg(test)]
mod tests;

pub use exports::{ImageUse, NO_POOL, door};
pub use tend::{Measure, Tended, Tending};

use super::host::Ask;
use crate::directory::{Directory, Place};
use crate::door::nvme_tcp;
use crate::refusal::Refusal;
use crate::shard::{Shard, ShardHandle};
use crate::snapshot::{PoolMember, PoolSnapshot, VolumeSnapshot};
use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, mpsc};
use std::time::{Duration, Instant};
use weir_config::{Config, DoorConfig, TenantConfig};
use weir_pool::{CHUNK, CopyHealth, PoolAnswer, PoolError, PoolRequest, SNAPSHOT_MARK, Uuid, VolumeId, VolumeSegment};
use weir_units::Bytes;

/// How long a volume that shrinks, or is not exported any more, waits for commands on their way.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a pool is.
#[derive(Clone, Debug)]
struct PoolPlace {
    name: String,
    /// By place in the pool's list: the drive's place in the configuration, and whether it is one of the pool's now.
    devices: Arc<RwLock<Vec<(usize, bool)>>>,
    /// The shard of its first drive, which has its machine.
    shard: u32,
    /// Its number on the shard.
    number: u32,
    block_size: u32,
    /// One of its drives has a volatile write cache.
    cached: Arc<AtomicBool>,
}

impl PoolPlace {
    fn devices(&self) -> Vec<(usize, bool)> {
        self.devices.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A volume at a door.
#[derive(Clone, Debug)]
struct Export {
    pool: usize,
    volume: VolumeId,
    front: Place,
    door: DoorConfig,
    nqn: String,
    /// To copy the volume as a whole.
    image: Option<exports::ImageExport>,
}

/// A volume as its pool knows it.
#[derive(Clone, Debug)]
struct Found {
    pool: usize,
    id: VolumeId,
    name: String,
    tenant: String,
    uuid: Uuid,
    chunks: u32,
    /// Places of its drives in the configuration, in its order, each once.
    drives: Vec<usize>,
    extents: usize,
    /// Chunks that are not readable: on lost drives, and on those that have taken the place of one.
    lost: (u32, u32),
    /// How many drives have each chunk.
    copies: u8,
    /// What it misses of its second copies.
    health: CopyHealth,
    /// Bytes that no other volume has.
    own: u64,
}

/// See the [module](self).
pub struct Volumes {
    node: String,
    shards: Vec<ShardHandle>,
    directory: Arc<Directory>,
    discovery: Place,
    listening: Vec<SocketAddr>,
    /// The program of a worker before this one may get the pools back: they stay in their layout.
    keeps_layout: bool,
    pools: Vec<PoolPlace>,
    /// Whoever changes something holds it.
    exports: Mutex<Vec<Export>>,
    /// Fronts of volumes that are not exported any more while what their hosts had asked is still at the drives.
    leaving: Mutex<Vec<Leaving>>,
    /// Comparisons of copies, by the place of the pool.
    scrubs: Mutex<BTreeMap<usize, scrub_progress::ScrubProgress>>,
    /// Ways to lost drives.
    lost_links: Mutex<lost_links::LostLinks>,
    /// The hosts that volumes had in the process before, until the volumes are there.
    associations: nvme_tcp::SharedAssociations,
}

/// A volume, and the front that it had.
type Leaving = ((usize, VolumeId), Place);

/// So many names are told to who asks for one that there is not.
const NAMES: usize = 16;

/// Which volumes of a pool.
#[derive(Clone, Debug)]
enum Wanted {
    All,
    /// Those with two copies.
    Twice,
    Named(String),
    Numbered(VolumeId),
}

fn gone() -> Refusal {
    Refusal::Unavailable("the node is stopping".into())
}

fn text(refusal: Refusal) -> String {
    refusal.text().to_string()
}

fn refusal(error: PoolError) -> Refusal {
    let text = error.to_string();
    match error {
        PoolError::Name(..) | PoolError::Empty | PoolError::Copies(_) => Refusal::Invalid(text),
        PoolError::Exists(_)
        | PoolError::Space(..)
        | PoolError::SpaceApart(..)
        | PoolError::LastCopy(_)
        | PoolError::OneCopy(_)
        | PoolError::Full(_)
        | PoolError::InUse(..)
        | PoolError::Last(_)
        | PoolError::Degraded(_)
        | PoolError::NotReplaced(..)
        | PoolError::Sound(_)
        | PoolError::Lost(_)
        | PoolError::NotLost(_)
        | PoolError::TooSmall(..)
        | PoolError::Layout(_)
        | PoolError::HasSnapshots(..)
        | PoolError::IsSnapshot(_)
        | PoolError::NoSnapshot(_)
        | PoolError::Shares(_)
        | PoolError::Fault(_) => Refusal::Conflict(text),
        PoolError::Unknown(_) | PoolError::NoMember(_) => Refusal::NotFound(text),
        PoolError::Broken(_)
        | PoolError::NotWritten(..)
        | PoolError::StaysLost(..)
        | PoolError::NotEmptied(..)
        | PoolError::NotCopied(..)
        | PoolError::Busy => Refusal::Unavailable(text),
    }
}

/// Whole chunks that hold so many bytes.
fn chunks(bytes: u64) -> Result<u32, Refusal> {
    let most = || Refusal::Invalid(format!("size: {} is too much; a volume has 4 PiB at the most", Bytes(bytes)));
    u32::try_from(bytes.div_ceil(CHUNK)).map_err(|_| most())
}

/// A UUID that nobody has (RFC 9562, version 4).
fn uuid() -> std::io::Result<Uuid> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(Uuid(bytes))
}

fn uuid_of_a_volume() -> Result<Uuid, Refusal> {
    uuid().map_err(|e| Refusal::Unavailable(format!("/dev/urandom: {e}")))
}

impl Volumes {
    /// Opens the pools of a node that runs, makes the volumes that its configuration names and that are not there, and exports them.
    ///
    /// # Errors
    /// The section, and what is wrong: pools that do not come up, volumes for which there is no room, sockets that are not to be had.
    pub fn bring_up(
        config: &Config,
        shards: &[ShardHandle],
        directory: &Arc<Directory>,
        discovery: Place,
        (listening, keeps_layout, associations): (&[SocketAddr], bool, &nvme_tcp::SharedAssociations),
    ) -> Result<Volumes, (String, String)> {
        let mut volumes = Volumes {
            node: config.node.name.clone(),
            shards: shards.to_vec(),
            directory: directory.clone(),
            discovery,
            listening: listening.to_vec(),
            keeps_layout,
            pools: Vec::new(),
            exports: Mutex::default(),
            leaving: Mutex::default(),
            scrubs: Mutex::default(),
            lost_links: Mutex::default(),
            associations: associations.clone(),
        };
        for pool in &config.pools {
            let opened = volumes.open(config, &pool.name, &pool.devices);
            let opened = opened.map_err(|why| (format!("pool.{}", pool.name), why))?;
            volumes.pools.push(opened);
            volumes
                .say_what_is_lost(volumes.pools.len() - 1)
                .map_err(|why| (format!("pool.{}", pool.name), text(why)))?;
            volumes.allocate_all(volumes.pools.len() - 1).map_err(|why| (format!("pool.{}", pool.name), text(why)))?;
        }
        for volume in &config.volumes {
            let at = |why: Refusal| (format!("volume.{}", volume.name), why.text().to_string());
            let tenant = &config.tenants[volume.tenant].name;
            match volumes.look_for(&volume.name).map_err(at)? {
                Some(found) => {
                    if found.tenant != *tenant {
                        let what =
                            format!("the volume of that name is tenant \"{}\"'s, not \"{tenant}\"'s", found.tenant);
                        return Err(at(Refusal::Conflict(what)));
                    }
                    let (is, asked) = (u64::from(found.chunks) * CHUNK, volume.size.get());
                    if volume.copies.is_some_and(|copies| copies != found.copies) {
                        tracing::warn!("volume {}: it has {} copies and keeps them", volume.name, found.copies);
                    }
                    if chunks(asked).ok() != Some(found.chunks) {
                        let (is, asked) = (Bytes(is), Bytes(asked));
                        tracing::warn!(
                            "volume {}: it has {is} and stays so; weir volume resize makes it {asked}",
                            volume.name
                        );
                    }
                }
                None => {
                    let pool = &config.pools[volume.pool].name;
                    let size = (volume.size.get(), volume.copies);
                    volumes.create(config, &volume.name, tenant, size, Some(pool)).map_err(at)?;
                }
            }
            for door in &volume.exports {
                volumes.export(config, &volume.name, door.clone(), (None, None)).map_err(at)?;
            }
        }
        Ok(volumes)
    }

    /// Asks a pool and waits for what becomes of it.
    fn ask(&self, pool: &PoolPlace, ask: Ask) -> Result<PoolAnswer, Refusal> {
        let (reply, answer) = mpsc::channel();
        let number = pool.number;
        self.shards[pool.shard as usize].post(move |s| {
            let reply = move |result| {
                let _ = reply.send(result);
            };
            s.drives.ask_pool(number, ask, Box::new(reply));
        });
        answer.recv().map_err(|_| gone())?.map_err(refusal)
    }

    fn call<R: Send + 'static>(
        &self,
        pool: usize,
        f: impl FnOnce(&mut Shard, u32) -> R + Send + 'static,
    ) -> Result<R, Refusal> {
        let PoolPlace { shard, number, .. } = self.pools[pool];
        self.at(shard, move |s| f(s, number))
    }

    fn at<R: Send + 'static>(
        &self,
        shard: u32,
        f: impl FnOnce(&mut Shard) -> R + Send + 'static,
    ) -> Result<R, Refusal> {
        self.shards[shard as usize].call(f).ok_or_else(gone)
    }

    fn turn(&self) -> MutexGuard<'_, Vec<Export>> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Volumes of a pool, in the order in which they were made.
    fn look(&self, pool: usize, wanted: Wanted) -> Result<Vec<Found>, Refusal> {
        let devices: Vec<usize> = self.pools[pool].devices().into_iter().map(|(device, _)| device).collect();
        self.call(pool, move |s, number| {
            let machine = s.drives.pool(number);
            let found = |v: &weir_pool::Volume| {
                let segments = machine.segments(v.id);
                let mut drives: Vec<usize> = Vec::new();
                let second = |s: &VolumeSegment| s.second.map_or(usize::MAX, |second| second.drive);
                for drive in segments.iter().flat_map(|s| [s.drive, second(s)]).filter(|drive| *drive != usize::MAX) {
                    if !drives.contains(&devices[drive]) {
                        drives.push(devices[drive]);
                    }
                }
                let (name, tenant) = (v.name.clone(), v.tenant.clone());
                let (id, uuid, chunks, extents) = (v.id, v.uuid, v.chunks, segments.len());
                let (lost, copies, health) = (machine.lost_chunks(v), v.copies, machine.copy_health(v.id));
                let own = machine.own_bytes(v);
                Found { pool, id, name, tenant, uuid, chunks, drives, extents, lost, copies, health, own }
            };
            match &wanted {
                Wanted::Named(name) => machine.volume(name).map(found).into_iter().collect(),
                Wanted::Numbered(id) => machine.volume_of(*id).map(found).into_iter().collect(),
                Wanted::Twice => machine.volumes().filter(|v| v.copies > 1).map(found).collect(),
                Wanted::All => machine.volumes().map(found).collect(),
            }
        })
    }

    /// The volume of that name, if there is one.
    fn look_for(&self, name: &str) -> Result<Option<Found>, Refusal> {
        for pool in 0..self.pools.len() {
            if let Some(found) = self.look(pool, Wanted::Named(name.into()))?.pop() {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The volume of that name.
    fn find(&self, name: &str) -> Result<Found, Refusal> {
        match self.look_for(name)? {
            Some(found) => Ok(found),
            None => Err(Refusal::NotFound(self.no_volume(name)?)),
        }
    }

    /// What is said of a name that no volume has, with those that there are, unless they are too many to help.
    #[cold]
    fn no_volume(&self, name: &str) -> Result<String, Refusal> {
        let mut names = Vec::new();
        for pool in 0..self.pools.len() {
            let some = self.call(pool, |s, number| {
                s.drives.pool(number).volumes().map(|v| v.name.clone()).take(NAMES + 1).collect::<Vec<_>>()
            })?;
            names.extend(some);
        }
        Ok(match names.len() {
            0 => format!("there is no volume \"{name}\", nor any other"),
            1..=NAMES => format!("there is no volume \"{name}\"; there is {}", names.join(", ")),
            _ => format!("there is no volume \"{name}\"; weir volume ls lists them"),
        })
    }

    fn status(&self, config: &Config, found: &Found, exports: &[Export]) -> VolumeSnapshot {
        let of: Vec<&Export> = exports.iter().filter(|e| (e.pool, e.volume) == (found.pool, found.id)).collect();
        self.shown(config, found, &of)
    }

    /// A volume with its exports.
    fn shown(&self, config: &Config, found: &Found, exports: &[&Export]) -> VolumeSnapshot {
        VolumeSnapshot {
            name: found.name.clone(),
            uuid: found.uuid.to_string(),
            tenant: found.tenant.clone(),
            pool: self.pools[found.pool].name.clone(),
            size: Bytes(u64::from(found.chunks) * CHUNK),
            drives: found.drives.iter().map(|d| config.devices[*d].name.clone()).collect(),
            extents: found.extents as u32,
            missing: Bytes(u64::from(found.lost.0) * CHUNK),
            replaced: Bytes(u64::from(found.lost.1) * CHUNK),
            copies: found.copies,
            alone: Bytes(u64::from(found.health.lost) * CHUNK),
            rebuilding: Bytes(u64::from(found.health.stale) * CHUNK),
            snapshot_of: found.name.split_once(SNAPSHOT_MARK).map(|(volume, _)| volume.into()),
            own: Bytes(found.own),
            nqn: exports.iter().find(|e| e.door == DoorConfig::NvmeTcp).map(|e| e.nqn.clone()),
            exports: exports.iter().map(|e| e.door.to_string()).collect(),
        }
    }

    /// All volumes, pool by pool.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn list(&self, config: &Config) -> Result<Vec<VolumeSnapshot>, Refusal> {
        let exports = self.turn();
        let mut of: BTreeMap<(usize, VolumeId), Vec<&Export>> = BTreeMap::new();
        exports.iter().for_each(|e| of.entry((e.pool, e.volume)).or_default().push(e));
        let mut all = Vec::new();
        for pool in 0..self.pools.len() {
            let shown = |found: &Found| {
                let exports = of.get(&(pool, found.id)).map_or(&[][..], Vec::as_slice);
                self.shown(config, found, exports)
            };
            all.extend(self.look(pool, Wanted::All)?.iter().map(shown));
        }
        Ok(all)
    }

    /// One volume.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn one(&self, config: &Config, name: &str) -> Result<VolumeSnapshot, Refusal> {
        let exports = self.turn();
        Ok(self.status(config, &self.find(name)?, &exports))
    }

    /// All pools.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn pools(&self, config: &Config) -> Result<Vec<PoolSnapshot>, Refusal> {
        let status = |(i, place): (usize, &PoolPlace)| {
            let members = place.devices().into_iter().enumerate().filter(|(_, (_, is))| *is);
            let names: Vec<(usize, String)> =
                members.map(|(at, (d, _))| (at, config.devices[d].name.clone())).collect();
            let (name, scrub) = (place.name.clone(), self.scrub_of(i));
            self.call(i, move |s, number| {
                let pool = s.drives.pool(number);
                let drive = |(at, device): (usize, String)| {
                    let (room, free, emptying) = pool.room(at);
                    let (number, uuid, largest) = pool.drive(at).unwrap_or_default();
                    PoolMember {
                        device,
                        number,
                        uuid: uuid.to_string(),
                        size: Bytes(room * CHUNK),
                        free: Bytes(free * CHUNK),
                        emptying: Bytes(emptying * CHUNK),
                        largest_free: Bytes(u64::from(largest) * CHUNK),
                    }
                };
                let drives: Vec<PoolMember> = names.into_iter().map(drive).collect();
                PoolSnapshot {
                    name,
                    uuid: pool.uuid().to_string(),
                    volumes: pool.volumes().len() as u32,
                    fault: pool.fault().map(ToString::to_string),
                    lost: pool.lost().into_iter().map(loss::snapshot).collect(),
                    scrub,
                    drives,
                }
            })
        };
        self.pools.iter().enumerate().map(status).collect()
    }

    fn pool_named(&self, name: Option<&str>) -> Result<usize, Refusal> {
        let names = || self.pools.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
        match (name, self.pools.len()) {
            (_, 0) => Err(Refusal::NotFound(NO_POOL.into())),
            (None, 1) => Ok(0),
            (None, _) => Err(Refusal::Invalid(format!("pool: there are several; name one of {}", names()))),
            (Some(name), _) => {
                let found = self.pools.iter().position(|p| p.name == name);
                found.ok_or_else(|| Refusal::NotFound(format!("there is no pool \"{name}\"; there is {}", names())))
            }
        }
    }

    /// A new volume, which reads as zeroes.
    ///
    /// # Errors
    /// A name that is none or taken, a tenant or pool that is not there, or not so much room.
    pub fn create(
        &self,
        config: &Config,
        name: &str,
        tenant: &str,
        (bytes, copies): (u64, Option<u8>),
        pool: Option<&str>,
    ) -> Result<VolumeSnapshot, Refusal> {
        let exports = self.turn();
        let pool = self.pool_named(pool)?;
        tenant_index(config, tenant)?;
        self.is_name_free(config, name)?;
        let uuid = uuid_of_a_volume()?;
        let (name, tenant) = (name.to_string(), tenant.to_string());
        let of_pool = config.pools.iter().find(|p| p.name == self.pools[pool].name).map_or(1, |p| p.copies);
        let (chunks, copies) = (chunks(bytes)?, copies.unwrap_or(of_pool));
        let request = PoolRequest::Create { name: name.clone(), tenant, uuid, chunks, copies };
        self.change(pool, request, &exports)?;
        Ok(self.status(config, &self.find(&name)?, &exports))
    }

    /// Waits until something is so on a shard, and not longer than [`DRAIN_TIMEOUT`]; whether it is.
    fn until(&self, shard: u32, is: impl Fn(&mut Shard) -> bool + Copy + Send + 'static) -> Result<bool, Refusal> {
        self.until_within(shard, DRAIN_TIMEOUT, is)
    }

    /// The same, with that time limit.
    fn until_within(
        &self,
        shard: u32,
        limit: Duration,
        is: impl Fn(&mut Shard) -> bool + Copy + Send + 'static,
    ) -> Result<bool, Refusal> {
        let begun = Instant::now();
        while !self.at(shard, is)? {
            if begun.elapsed() > limit {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(true)
    }

    /// Another name for a volume that is not exported.
    ///
    /// # Errors
    /// There is none of that name, it is exported, or the new name is none or taken.
    pub fn rename(&self, config: &Config, name: &str, to: &str) -> Result<VolumeSnapshot, Refusal> {
        let exports = self.turn();
        let found = self.find(name)?;
        not_exported(&found, &exports)?;
        if self.look_for(to)?.is_some() {
            return Err(refusal(PoolError::Exists(to.into())));
        }
        let request = PoolRequest::Rename { name: name.into(), to: to.into() };
        self.change(found.pool, request, &exports)?;
        Ok(self.status(config, &self.find(to)?, &exports))
    }

    /// Deletes a volume that is not exported, and with it what it holds; the answer is what it was.
    ///
    /// # Errors
    /// There is none of that name, or it is exported.
    pub fn delete(&self, config: &Config, name: &str) -> Result<VolumeSnapshot, Refusal> {
        let exports = self.turn();
        let found = self.find(name)?;
        not_exported(&found, &exports)?;
        self.must_have_left(&found)?;
        self.readers_must_pass(found.pool, &exports)?;
        let status = self.status(config, &found, &exports);
        let deleted = self.change(found.pool, PoolRequest::Delete { name: name.into() }, &exports);
        // What has failed after it counted keeps the pool from the next change, and brings nothing back.
        let is_there = !self.look(found.pool, Wanted::Numbered(found.id))?.is_empty();
        deleted.map_or_else(|why| if is_there { Err(why) } else { Ok(status.clone()) }, |_| Ok(status.clone()))
    }

    fn nqn(&self, volume: &str) -> String {
        format!("nqn.2026-11.io.weir:{}:{volume}", self.node)
    }

    /// A volume of that tenant.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn of_tenant(&self, tenant: &str) -> Result<Option<String>, Refusal> {
        let _turn = self.turn();
        for pool in 0..self.pools.len() {
            if let Some(found) = self.look(pool, Wanted::All)?.into_iter().find(|v| v.tenant == tenant) {
                return Ok(Some(found.name));
            }
        }
        Ok(None)
    }
}

fn not_exported(found: &Found, exports: &[Export]) -> Result<(), Refusal> {
    match exports.iter().find(|e| (e.pool, e.volume) == (found.pool, found.id)) {
        None => Ok(()),
        Some(export) => {
            let (name, door) = (&found.name, &export.door);
            let how = match door.socket() {
                Some((path, _)) => path.display().to_string(),
                None => format!("nvme-tcp:{name}"),
            };
            Err(Refusal::Conflict(format!(
                "volume \"{name}\" is exported by {door}; nothing was changed: end that first (weir export rm {how})"
            )))
        }
    }
}

fn tenant_index(config: &Config, name: &str) -> Result<usize, Refusal> {
    let there = |t: &TenantConfig| !t.is_gone();
    let found = config.tenants.iter().position(|t| t.name == name && there(t));
    found.ok_or_else(|| {
        let names: Vec<&str> = config.tenants.iter().filter(|t| there(t)).map(|t| t.name.as_str()).collect();
        Refusal::NotFound(format!("there is no tenant \"{name}\"; there is {}", names.join(", ")))
    })
}
