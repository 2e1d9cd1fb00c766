//! Pools and volumes, as the API asks for them. What the configuration says of volumes follows what becomes of them, so that
//! the next worker of a keeper brings up the volumes and exports that there are, and makes none anew that was deleted.

use super::NodeControl;
use crate::change::{NewVolume, VolumeChange};
use crate::pool::volumes::{ImageUse, Measure, Tending, door};
use crate::refusal::Refusal;
use crate::snapshot::{PoolSnapshot, VolumeContents, VolumeSnapshot};
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use weir_config::{Arbitration, Config, DoorConfig, VolumeConfig};

/// How long another change of the node is waited for before it is made to fail; what volumes have on their way has its time after that, and
/// both are over before a client gives up.
const TURN_TIMEOUT: Duration = Duration::from_secs(2);

/// After a look at volumes with two copies that came to nothing, as it does while the node ends.
const TEND_AGAIN: Duration = Duration::from_millis(500);

impl NodeControl {
    /// All pools, in the order of the configuration.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn pools(&self) -> Result<Vec<PoolSnapshot>, Refusal> {
        self.volumes.pools(&self.config())
    }

    /// A device joins a pool: empty, and not exported by itself.
    ///
    /// # Errors
    /// It is not there, or cannot be one of its drives.
    pub fn join_pool(&self, pool: &str, device: &str) -> Result<PoolSnapshot, Refusal> {
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.device_index(device)?;
        let added = self.volumes.add_drive(&self.config(), pool, at);
        self.change(|config| self.volumes.name_members(config));
        added?;
        self.pool_status(pool)
    }

    /// A drive leaves its pool, if no volume lies on it.
    ///
    /// # Errors
    /// It is none of its drives, or volumes do.
    pub fn leave_pool(&self, pool: &str, device: &str) -> Result<PoolSnapshot, Refusal> {
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = self.volumes.remove_drive(&self.config(), pool, device);
        self.change(|config| self.volumes.name_members(config));
        removed?;
        self.pool_status(pool)
    }

    /// A pool serves without a drive, as if it were lost. A change that waits for it fails.
    ///
    /// # Errors
    /// It is none of its drives, or the only one that is there.
    pub fn take_out_of_pool(&self, pool: &str, device: &str) -> Result<PoolSnapshot, Refusal> {
        let _turn = loop {
            match self.turn_within(TURN_TIMEOUT) {
                Some(turn) => break turn,
                None => self.volumes.end_change(&self.config(), pool, device)?,
            }
        };
        let taken = self.volumes.take_out(&self.config(), pool, device);
        self.change(|config| self.volumes.name_members(config));
        taken?;
        let status = self.pool_status(pool)?;
        status.lost.iter().filter(|lost| lost.name == device).for_each(|lost| self.note_degraded(pool, lost));
        Ok(status)
    }

    /// A lost drive that is there again takes part in its pool. It is named as the device that it is, or as the lost drive.
    ///
    /// # Errors
    /// None of that name is there, it is none of the pool's lost drives, or is not as the others know it.
    pub fn bring_back_to_pool(&self, pool: &str, name: &str) -> Result<PoolSnapshot, Refusal> {
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let device = self.volumes.device_of_lost(&self.config(), pool, name)?;
        let back = self.volumes.bring_back(&self.config(), pool, device);
        self.change(|config| self.volumes.name_members(config));
        back?;
        self.note_back(pool, &self.config().devices[device].name);
        self.pool_status(pool)
    }

    /// The turn of the next change, if it comes within that time.
    fn turn_within(&self, limit: Duration) -> Option<MutexGuard<'_, Vec<Arbitration>>> {
        let begun = Instant::now();
        loop {
            match self.arbitration.try_lock() {
                Ok(turn) => return Some(turn),
                Err(TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
                Err(TryLockError::WouldBlock) if begun.elapsed() >= limit => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// A device takes the place of a lost drive.
    ///
    /// # Errors
    /// None of that name is lost, or the device cannot take its place.
    pub fn replace_in_pool(&self, pool: &str, lost: &str, device: &str) -> Result<PoolSnapshot, Refusal> {
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.device_index(device)?;
        let replaced = self.volumes.replace_drive(&self.config(), pool, lost, at);
        self.change(|config| self.volumes.name_members(config));
        replaced?;
        self.note_replaced(pool, lost, device);
        self.pool_status(pool)
    }

    /// Has a thread look after pools for as long as the node serves: what is stale of volumes with two copies is rebuilt, a spare takes the place
    /// of a lost drive, and one whose way is back takes part again.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn tend_volumes(self: &Arc<Self>) -> std::io::Result<()> {
        if self.config().pools.is_empty() {
            return Ok(());
        }
        let control = Arc::downgrade(self);
        let run = move || {
            let mut tending = Tending::default();
            while let Some(control) = control.upgrade() {
                let tended = control.volumes.tend(&control.config(), &mut tending);
                let pause = tended.as_ref().map_or(TEND_AGAIN, |tended| tended.pause);
                tended.iter().flat_map(|tended| &tended.measures).for_each(|measure| control.take(measure));
                drop(control);
                std::thread::sleep(pause);
            }
        };
        std::thread::Builder::new().name("weir-copies".into()).spawn(run).map(|_| ())
    }

    fn take(&self, measure: &Measure) {
        let (what, done) = match measure {
            Measure::TakeOut { pool, device } => {
                (format!("pool {pool}: drive {device} is not taken out"), self.take_out_of_pool(pool, device))
            }
            Measure::Replace { pool, lost, device } => {
                tracing::warn!("pool {pool}: spare {device} takes the place of lost drive {lost}");
                (
                    format!("pool {pool}: spare {device} is not used"),
                    self.replace_in_pool(pool, &lost.to_string(), device),
                )
            }
            Measure::Online { pool, lost, device } => {
                tracing::info!("pool {pool}: lost drive {device} is there again");
                let done = self.bring_back_to_pool(pool, device);
                if let Err(why @ (Refusal::Conflict(_) | Refusal::Invalid(_) | Refusal::NotFound(_))) = &done {
                    self.volumes.refuse_return(pool, *lost);
                    self.note_not_back(pool, device, why.text());
                }
                (format!("pool {pool}: lost drive {device} stays lost"), done)
            }
        };
        if let Err(why) = done {
            tracing::error!("{what}: {}", why.text());
        }
    }

    /// A volume that has lost chunks is given up: it is another disk then, and empty.
    ///
    /// # Errors
    /// There is none of that name, it has lost nothing, or its lost drive was not replaced.
    pub fn empty_volume(&self, name: &str) -> Result<VolumeSnapshot, Refusal> {
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        self.volumes.empty(&self.config(), name)
    }

    /// Begins to compare the copies of a pool's volumes, and to `repair` those that differ.
    ///
    /// # Errors
    /// There is no such pool, nothing to compare, or it is being done.
    pub fn scrub_pool(&self, pool: &str, repair: bool) -> Result<PoolSnapshot, Refusal> {
        self.volumes.start_scrub(pool, repair)?;
        self.pool_status(pool)
    }

    /// Leaves off comparing.
    ///
    /// # Errors
    /// There is no such pool, or nothing is being compared.
    pub fn stop_scrub(&self, pool: &str) -> Result<PoolSnapshot, Refusal> {
        self.volumes.stop_scrub(pool)?;
        self.pool_status(pool)
    }

    fn pool_status(&self, name: &str) -> Result<PoolSnapshot, Refusal> {
        let found = self.pools()?.into_iter().find(|p| p.name == name);
        found.ok_or_else(|| Refusal::NotFound(format!("there is no pool \"{name}\"")))
    }

    /// All volumes, pool by pool, in the order in which they were made.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn volumes(&self) -> Result<Vec<VolumeSnapshot>, Refusal> {
        self.volumes.list(&self.config())
    }

    /// A new volume, which reads as zeroes.
    ///
    /// # Errors
    /// What of it is not there or taken, or not so much room.
    pub fn create_volume(&self, add: &NewVolume) -> Result<VolumeSnapshot, Refusal> {
        // A tenant does not go while it gets a volume.
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let config = self.config();
        let tenant = match &add.tenant {
            Some(name) => name.clone(),
            None => config.tenants[self.only_tenant()?].name.clone(),
        };
        self.volumes.create(&config, &add.name, &tenant, (add.size.get(), add.copies), add.pool.as_deref())
    }

    /// Another size for a volume, while its hosts use it, or another name for one that is not exported.
    ///
    /// # Errors
    /// There is none of that name, or it cannot have that size or name.
    pub fn change_volume(&self, name: &str, patch: &VolumeChange) -> Result<VolumeSnapshot, Refusal> {
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let config = self.config();
        match (patch.size, &patch.name) {
            (Some(_), Some(_)) => Err(Refusal::Invalid("size_bytes, name: change one after the other".into())),
            (Some(bytes), None) => {
                let status = self.volumes.resize(&config, name, bytes.get(), patch.shrink)?;
                if config.volumes.iter().any(|v| v.name == name) {
                    let size = status.size;
                    self.change(|config| {
                        config.volumes.iter_mut().filter(|v| v.name == name).for_each(|v| v.size = size);
                    });
                }
                Ok(status)
            }
            (None, Some(to)) => {
                let said = self.without(name, || self.volumes.rename(&config, name, to));
                let status = said?;
                if let Some(volume) = config.volumes.iter().find(|v| v.name == name) {
                    let volume = VolumeConfig { name: to.clone(), ..volume.clone() };
                    self.change(|config| config.volumes.push(volume));
                }
                Ok(status)
            }
            (None, None) => self.volumes.one(&config, name),
        }
    }

    /// Deletes a volume that is not exported, and what it holds; the answer is what it was.
    ///
    /// # Errors
    /// There is none of that name, or it is exported.
    pub fn delete_volume(&self, name: &str) -> Result<VolumeSnapshot, Refusal> {
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        self.without(name, || self.volumes.delete(&self.config(), name))
    }

    /// A snapshot of a volume, while its hosts use it.
    ///
    /// # Errors
    /// There is no such volume, or it cannot have that snapshot.
    pub fn snapshot_volume(&self, name: &str, snapshot: &str) -> Result<VolumeSnapshot, Refusal> {
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        self.volumes.snapshot(&self.config(), name, snapshot)
    }

    /// A new volume with what a snapshot has; its tenant is the snapshot's if none is named.
    ///
    /// # Errors
    /// There is no such snapshot or tenant, or the name is none or taken.
    pub fn clone_snapshot(&self, snapshot: &str, name: &str, tenant: Option<&str>) -> Result<VolumeSnapshot, Refusal> {
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        self.volumes.clone_snapshot(&self.config(), snapshot, name, tenant)
    }

    /// The volume of a snapshot, which is not exported, has again what the snapshot has.
    ///
    /// # Errors
    /// There is no such snapshot, or its volume is exported.
    pub fn roll_back(&self, snapshot: &str) -> Result<VolumeSnapshot, Refusal> {
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let status = self.volumes.roll_back(&self.config(), snapshot)?;
        let (name, size) = (status.name.clone(), status.size);
        if self.config().volumes.iter().any(|v| v.name == name) {
            self.change(|config| config.volumes.iter_mut().filter(|v| v.name == name).for_each(|v| v.size = size));
        }
        Ok(status)
    }

    /// Does something to a volume that the configuration does not name meanwhile, nor afterwards, if it is done: a worker that starts
    /// in between would make the volume anew.
    fn without<T>(&self, name: &str, what: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
        let before = self.config();
        if !before.volumes.iter().any(|v| v.name == name) {
            return what();
        }
        self.change(|config| config.volumes.retain(|v| v.name != name));
        what().inspect_err(|_| self.change(|config| config.volumes.clone_from(&before.volumes)))
    }

    /// One volume.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn volume(&self, name: &str) -> Result<VolumeSnapshot, Refusal> {
        self.volumes.one(&self.config(), name)
    }

    /// What of a volume, from a byte on, may be other than zeroes.
    ///
    /// # Errors
    /// There is none of that name, or it ends before that byte.
    pub fn volume_contents(&self, name: &str, from: u64) -> Result<VolumeContents, Refusal> {
        self.volumes.contents(name, from)
    }

    /// A volume at one more door, as a configuration names it; controllers at once, over all doors of the volume. For an `image` it is its only
    /// one, and ends when its client goes.
    ///
    /// # Errors
    /// What of it is not there, out of range or taken.
    pub fn export_volume(
        &self,
        name: &str,
        at: &str,
        (max_controllers, image): (Option<u32>, Option<ImageUse>),
    ) -> Result<VolumeSnapshot, Refusal> {
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let config = self.config();
        let tenant = self.volumes.one(&config, name)?.tenant;
        let tenant = config.tenants.iter().position(|t| t.name == tenant && !t.is_gone());
        let door = door(at, tenant.unwrap_or(0))?;
        let taken = |path| config.exports.iter().any(|e| e.door.socket().is_some_and(|(other, _)| other == path));
        if let Some((path, _)) = door.socket().filter(|(path, _)| taken(*path)) {
            return Err(Refusal::Conflict(format!("{} is an export already; choose another path", path.display())));
        }
        let most = max_controllers.map(in_range).transpose()?;
        let status = self.volumes.export(&config, name, door.clone(), (most, image))?;
        if image.is_some() {
            // It is not of the configuration: the next worker does not open it again.
            return Ok(status);
        }
        self.change(|config| match config.volumes.iter_mut().find(|v| v.name == name) {
            Some(volume) => {
                volume.exports.push(door);
                volume.max_controllers = most.unwrap_or(volume.max_controllers);
            }
            None => config.volumes.extend(as_configured(config, &status, door, most)),
        });
        Ok(status)
    }

    /// An export of a volume has ended.
    pub(super) fn volume_unexported(&self, what: &str) {
        let is = |name: &str, door: &DoorConfig| match door.socket() {
            Some((path, _)) => path == Path::new(what),
            None => what.strip_prefix("nvme-tcp:") == Some(name),
        };
        self.change(|config| {
            for volume in &mut config.volumes {
                let VolumeConfig { name, exports, .. } = volume;
                exports.retain(|door| !is(name, door));
            }
        });
    }
}

/// A volume with one export as a configuration names it.
fn as_configured(
    config: &Config,
    status: &VolumeSnapshot,
    door: DoorConfig,
    max_controllers: Option<u16>,
) -> Option<VolumeConfig> {
    Some(VolumeConfig {
        name: status.name.clone(),
        tenant: config.tenants.iter().position(|t| t.name == status.tenant && !t.is_gone())?,
        pool: config.pools.iter().position(|p| p.name == status.pool)?,
        size: status.size,
        copies: (status.copies > 1).then_some(status.copies),
        exports: vec![door],
        max_controllers: max_controllers.unwrap_or(VolumeConfig::MAX_CONTROLLERS),
    })
}

fn in_range(wanted: u32) -> Result<u16, Refusal> {
    let most = VolumeConfig::MOST_CONTROLLERS;
    let fits = u16::try_from(wanted).ok().filter(|n| (1..=most).contains(n));
    fits.ok_or_else(|| Refusal::Invalid(format!("max_controllers: {wanted} is out of range; 1 to {most} is allowed")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Node;

    /// Devices that are in no `[[export]]`, as there is none; `a` is named, `b` joins and stays when `a` leaves.
    #[test]
    fn a_pool_goes_on_without_the_drive_that_is_named() {
        let dir = std::env::temp_dir().join(format!("weir-members-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let text = "[[device]]\nname = \"a\"\nmedia = \"file:a.img\"\ncapacity = \"8MiB\"\n\
                    [[device]]\nname = \"b\"\nmedia = \"file:b.img\"\ncapacity = \"8MiB\"\n\
                    [[pool]]\nname = \"p\"\ndrives = [\"a\"]\n";
        let held = |control: &NodeControl| {
            let text = control.config().to_toml();
            let config = Config::parse(&text, "held", Path::new("/")).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(config.exports, [], "no drive is a raw one: {text}");
            config.pools[0].devices.clone()
        };
        let start = |dir: &Path| Node::start(Config::parse(text, "test.toml", dir).unwrap());
        let control = |node: &Node| NodeControl::new(node, Box::new(|| ()));
        let node = start(&dir).unwrap();
        let first = control(&node);
        assert_eq!(held(&first), [0]);
        first.join_pool("p", "b").unwrap();
        assert_eq!(held(&first), [0, 1]);
        node.stop();
        let node = start(&dir).unwrap();
        let second = control(&node);
        assert_eq!(held(&second), [0, 1], "what was found counts, not what was named");
        second.leave_pool("p", "a").unwrap();
        assert_eq!(held(&second), [1]);
        let left = Config::parse(&second.config().to_toml(), "held", Path::new("/")).unwrap();
        node.stop();
        let why = start(&dir).err().expect("no second pool is made").to_string();
        assert!(why.contains("name b in the pool's drives"), "{why}");
        let node = Node::start(left).unwrap();
        assert_eq!(held(&control(&node)), [1]);
        node.stop();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
