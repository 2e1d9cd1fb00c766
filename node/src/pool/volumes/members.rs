//! Drives that join a pool while it serves, and that leave it.

use super::{PoolPlace, Volumes, refusal};
use crate::directory::Place;
use crate::directory::place;
use crate::pool::host::Ask;
use crate::refusal::Refusal;
use crate::shard::Shard;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use weir_config::{Config, DoorConfig};
use weir_pool::{PoolError, PoolRequest, SetupDrive};

/// As what a device joins a pool.
#[derive(Clone, Copy, Debug)]
enum TakeIn<'a> {
    /// As one more drive.
    Joins,
    /// In the place of the lost drive of that name.
    Replaces(&'a str),
    /// As the lost drive that it is.
    Returns,
}

impl Volumes {
    /// Of a drive: its size, and whether it has a volatile write cache.
    pub(super) fn facts(&self, device: usize) -> Result<(u64, bool), Refusal> {
        let place = place(device, self.shards.len());
        self.at(place.shard, move |s: &mut Shard| {
            let drive = s.drives.device(place.drive);
            (drive.capacity(), drive.machine().config().volatile_write_cache)
        })
    }

    /// Whether a device that nobody has named may be a drive of the pool that has that first one.
    pub(super) fn may_be_found(&self, config: &Config, first: usize, device: usize) -> bool {
        let named = config.pools.iter().any(|p| p.devices.contains(&device));
        !named && self.pool_of(device).is_none() && unfit(config, first, device).is_none()
    }

    /// A device is one of a pool's drives: the pool.
    pub fn pool_of(&self, device: usize) -> Option<&str> {
        self.pools.iter().find(|p| p.devices().contains(&(device, true))).map(|p| p.name.as_str())
    }

    /// Has a configuration name the drives that the pools have now, whatever it named before.
    pub fn name_members(&self, config: &mut Config) {
        for (named, pool) in config.pools.iter_mut().zip(&self.pools) {
            named.devices = pool.devices().into_iter().filter(|(_, is)| *is).map(|(device, _)| device).collect();
        }
    }

    /// Nothing is on its way at a device that was asked when it was a pool's drive: a write of then would land among the bytes of others.
    fn must_be_quiet(&self, device: usize, name: &str) -> Result<(), Refusal> {
        let place = place(device, self.shards.len());
        match self.until(place.shard, move |s| !s.drives.device(place.drive).machine().has_orphans())? {
            true => Ok(()),
            false => Err(Refusal::Unavailable(format!(
                "{name} has not finished what was asked of it before; nothing was changed: wait until it has, or name another device"
            ))),
        }
    }

    /// A device joins a pool; what is on it is gone.
    ///
    /// # Errors
    /// It is in use, not of the kind, not empty, or the pool takes no changes.
    pub fn add_drive(&self, config: &Config, pool: &str, device: usize) -> Result<(), Refusal> {
        self.take_in(config, pool, device, TakeIn::Joins)
    }

    /// A device takes the place of a lost drive; what is on it is gone.
    ///
    /// # Errors
    /// There is no such lost drive, or the device is in use, not of the kind, too small or not empty.
    pub fn replace_drive(&self, config: &Config, pool: &str, lost: &str, device: usize) -> Result<(), Refusal> {
        self.take_in(config, pool, device, TakeIn::Replaces(lost))
    }

    /// A lost drive takes part in its pool again; what it has missed of volumes with two copies is rebuilt.
    ///
    /// # Errors
    /// It is not there, none of the pool's lost drives, or has not only missed what the others have been through.
    pub fn bring_back(&self, config: &Config, pool: &str, device: usize) -> Result<(), Refusal> {
        self.take_in(config, pool, device, TakeIn::Returns)
    }

    /// A device joins a pool.
    fn take_in(&self, config: &Config, pool: &str, device: usize, how: TakeIn<'_>) -> Result<(), Refusal> {
        let exports = self.turn();
        let at = self.pool_named(Some(pool))?;
        let lost = match how {
            TakeIn::Replaces(lost) => Some(self.is_lost(config, at, lost)?),
            TakeIn::Joins | TakeIn::Returns => None,
        };
        self.recover(at, &exports)?;
        let PoolPlace { shard, number, ref cached, ref devices, .. } = self.pools[at];
        let name = config.devices[device].name.clone();
        if matches!(how, TakeIn::Returns) && self.pool_of(device) == Some(pool) {
            return Err(refusal(PoolError::NotLost(name)));
        }
        if let Some(other) = self.pool_of(device) {
            return Err(Refusal::Conflict(format!("{name} is a drive of pool {other} already; nothing was changed")));
        }
        let first = self.pools[at].devices().iter().find(|(_, is)| *is).map_or(device, |(first, _)| *first);
        if let Some(why) = unfit(config, first, device) {
            return Err(Refusal::Conflict(format!("{name} {why}; nothing was changed")));
        }
        self.must_be_quiet(device, &name)?;
        let (bytes, cache) = self.facts(device)?;
        if cache && !cached.load(Ordering::Relaxed) && exports.iter().any(|e| e.pool == at) {
            return Err(Refusal::Conflict(format!(
                "{name} has a volatile write cache and the pool's drives have none, which hosts were told: end the exports of \
                 its volumes first; nothing was changed"
            )));
        }
        let uuid = super::uuid_of_a_volume()?;
        let reach = self.reach(shard, place(device, self.shards.len()), (0, format!("pool {pool}")))?;
        let (called, called_again) = (name.clone(), name.clone());
        let sit = move |s: &mut Shard| {
            let now = s.reactor.now();
            s.drives.add_pool_queue(number, &called, reach, now)
        };
        let queue = self.at(shard, sit)?.map_err(Refusal::Conflict)?;
        let drive = SetupDrive { name, bytes, named: true };
        let request = match (how, lost) {
            (TakeIn::Returns, _) => PoolRequest::Online { drive },
            (_, None) => PoolRequest::Join { drive, uuid },
            (_, Some(number)) => PoolRequest::Replace { number, drive, uuid },
        };
        let asked = self.ask(&self.pools[at], Ask::Request(request));
        // What has failed after others have heard of it goes on when the pool recovers.
        let has_joined = self.is_member(at, queue)?;
        let mut devices = devices.write().unwrap_or_else(PoisonError::into_inner);
        match devices.get_mut(queue) {
            Some(place) => *place = (device, has_joined),
            None => devices.push((device, has_joined)),
        }
        drop(devices);
        match has_joined {
            true => self.allocate(at, device, queue)?,
            false => self.close_pool_queue(at, queue)?,
        }
        cached.fetch_or(cache && has_joined, Ordering::Relaxed);
        if let (TakeIn::Returns, true, Err(why)) = (how, has_joined, &asked) {
            // It has failed again while it came back.
            tracing::warn!("pool {pool}: drive {called_again} is taken out again: {}", why.text());
            self.take_out_member(at, (device, queue), &called_again, &exports)?;
        } else if has_joined {
            self.tell_of_return(at, &exports)?;
        }
        asked.map(|_| ())
    }

    /// A drive that no volume lies on leaves its pool.
    ///
    /// # Errors
    /// It is none of the pool's, volumes lie on it, it is the last one, or the pool takes no changes.
    pub fn remove_drive(&self, config: &Config, pool: &str, name: &str) -> Result<(), Refusal> {
        let exports = self.turn();
        let at = self.pool_named(Some(pool))?;
        self.recover(at, &exports)?;
        let Some((device, drive)) = self.member(config, at, name) else {
            return match self.lost_of(at, name)? {
                Some(number) => self.ask(&self.pools[at], Ask::Request(PoolRequest::Leave { number })).map(|_| ()),
                None => Err(refusal(PoolError::NoMember(name.into()))),
            };
        };
        let number = self.number(at, drive)?;
        let place = place(device, self.shards.len());
        self.fronts_must_leave(at, place, &config.devices[device].name)?;
        let asked = self.ask(&self.pools[at], Ask::Request(PoolRequest::Leave { number }));
        if self.is_member(at, drive)? {
            return asked.map(|_| ());
        }
        self.pools[at].devices.write().unwrap_or_else(PoisonError::into_inner)[drive].1 = false;
        for export in exports.iter().filter(|e| e.pool == at) {
            let front = export.front;
            // Nothing but a flush can be there: nothing of the volume lies on the drive.
            self.until(front.shard, move |s| {
                let now = s.reactor.now();
                s.drives.leave_drive(front.drive, place, now)
            })?;
        }
        self.close_pool_queue(at, drive)?;
        asked.map(|_| ())
    }

    /// A drive's medium takes the room that the pool's metadata need there, so that no change fails for want of it.
    pub(super) fn allocate(&self, pool: usize, device: usize, queue: usize) -> Result<(), Refusal> {
        let bytes = self.call(pool, move |s, number| s.drives.pool(number).metadata(queue))?;
        let Place { shard, drive } = place(device, self.shards.len());
        if let Err(why) = self.at(shard, move |s| s.drives.device_mut(drive).allocate(bytes))? {
            let (pool, name) = (&self.pools[pool].name, self.name_of(pool, queue)?);
            tracing::warn!(
                "pool {pool}: drive {name} has no room for all of its metadata ({why}): a change may fail until there is"
            );
        }
        Ok(())
    }

    /// So do those of all drives of a pool.
    pub(super) fn allocate_all(&self, pool: usize) -> Result<(), Refusal> {
        let mut members = self.pools[pool].devices().into_iter().enumerate().filter(|(_, (_, is))| *is);
        members.try_for_each(|(queue, (device, _))| self.allocate(pool, device, queue))
    }

    /// The device of that name, if it is one of a pool's drives, and its place in the pool's list.
    pub(super) fn member(&self, config: &Config, pool: usize, name: &str) -> Option<(usize, usize)> {
        let devices = self.pools[pool].devices();
        let is = |(device, is): &(usize, bool)| *is && config.devices[*device].name == name;
        devices.iter().position(is).map(|place| (devices[place].0, place))
    }

    /// The number in its pool of the drive at that place.
    pub(super) fn number(&self, pool: usize, place: usize) -> Result<u16, Refusal> {
        let found = self.call(pool, move |s, number| s.drives.pool(number).drive(place).map(|(number, ..)| number))?;
        found.ok_or_else(super::gone)
    }

    fn name_of(&self, pool: usize, queue: usize) -> Result<String, Refusal> {
        self.call(pool, move |s, number| s.drives.pool(number).drive_name(queue).to_owned())
    }

    pub(super) fn close_pool_queue(&self, pool: usize, queue: usize) -> Result<(), Refusal> {
        self.call(pool, move |s, number| {
            let now = s.reactor.now();
            s.drives.close_pool_queue(number, queue, now);
        })
    }
}

/// Why a device is no drive for the pool that has that first one.
fn unfit(config: &Config, first: usize, device: usize) -> Option<String> {
    let (first, this) = (&config.devices[first], &config.devices[device]);
    if let Some(export) = config.exports.iter().find(|e| e.device == device) {
        let how = match &export.door {
            DoorConfig::NvmeTcp => "take its [[export]] out of the configuration".to_owned(),
            door => door.socket().map_or_else(String::new, |(path, _)| format!("weir export rm {}", path.display())),
        };
        return Some(format!("is exported by itself; end that first ({how})"));
    }
    if this.interface() != "block" {
        return Some(format!("is a {} drive; a pool takes block drives", this.interface()));
    }
    (this.block_size != first.block_size).then(|| "has other blocks than the pool's drives; a pool's are alike".into())
}
