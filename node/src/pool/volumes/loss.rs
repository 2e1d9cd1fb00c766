//! Drives that a pool serves without, and what becomes of the volumes that lie on them.

use super::exports::serial;
use super::{DRAIN_TIMEOUT, Export, Found, Volumes, Wanted, gone, refusal, uuid};
use crate::directory::{Place, place};
use crate::pool::host::Ask;
use crate::refusal::Refusal;
use crate::shard::Shard;
use crate::snapshot::{LostDrive, VolumeSnapshot};
use std::sync::PoisonError;
use std::time::Instant;
use weir_config::Config;
use weir_pool::{CHUNK, PoolError, PoolRequest, Uuid};
use weir_units::Bytes;

/// A lost drive as the pool knows it.
pub(super) fn snapshot((number, uuid, bytes, name): (u16, Uuid, u64, &str)) -> LostDrive {
    LostDrive { number, uuid: uuid.to_string(), size: Bytes(bytes), name: name.to_owned() }
}

impl Volumes {
    pub(super) fn lost(&self, pool: usize) -> Result<Vec<LostDrive>, Refusal> {
        self.call(pool, |s, number| s.drives.pool(number).lost().into_iter().map(snapshot).collect())
    }

    /// Volumes of a pool that are not readable everywhere.
    fn concerned(&self, pool: usize) -> Result<Vec<Found>, Refusal> {
        let mut all = self.look(pool, Wanted::All)?;
        all.retain(|found| found.lost != (0, 0));
        Ok(all)
    }

    /// The log names what a pool serves without.
    pub(super) fn say_what_is_lost(&self, pool: usize) -> Result<(), Refusal> {
        let name = &self.pools[pool].name;
        for LostDrive { number, uuid, size, name: drive } in self.lost(pool)? {
            tracing::error!(
                "pool {name} is degraded: drive {drive} is lost (number {number}, {uuid}, {size}); bring it back, or give its place to another one: weir \
                 pool replace {number} NEW"
            );
        }
        for found in self.concerned(pool)? {
            let (missing, replaced) = (Bytes(u64::from(found.lost.0) * CHUNK), Bytes(u64::from(found.lost.1) * CHUNK));
            match found.lost.0 {
                0 => tracing::error!(
                    "volume {}: {replaced} of it were on a drive that was replaced, and fail; weir pool replace --empty {} gives it up and makes it an \
                     empty disk",
                    found.name,
                    found.name
                ),
                _ => tracing::error!("volume {}: {missing} of it lie on a lost drive, and fail", found.name),
            }
        }
        Ok(())
    }

    /// The number of a lost drive by its number, its UUID, or what it was called.
    pub(super) fn lost_of(&self, pool: usize, name: &str) -> Result<Option<u16>, Refusal> {
        let lost = self.lost(pool)?;
        let is = |d: &&LostDrive| d.number.to_string() == name || d.uuid == name;
        if let Some(drive) = lost.iter().find(is) {
            return Ok(Some(drive.number));
        }
        let named: Vec<&LostDrive> = lost.iter().filter(|d| d.name == name).collect();
        match named[..] {
            [] => Ok(None),
            [one] => Ok(Some(one.number)),
            [..] => {
                let numbers: Vec<String> = named.iter().map(|d| d.number.to_string()).collect();
                let numbers = numbers.join(", ");
                Err(Refusal::Invalid(format!(
                    "{name}: several lost drives were called so; name one by its number: {numbers}"
                )))
            }
        }
    }

    /// The same; it is an error if there is none.
    pub(super) fn is_lost(&self, config: &Config, pool: usize, name: &str) -> Result<u16, Refusal> {
        match self.lost_of(pool, name)? {
            Some(number) => Ok(number),
            None if self.member(config, pool, name).is_some() => Err(refusal(PoolError::NotLost(name.into()))),
            None => {
                let lost: Vec<String> =
                    self.lost(pool)?.iter().map(|d| format!("{} (number {})", d.name, d.number)).collect();
                let there =
                    if lost.is_empty() { "none is lost".to_owned() } else { format!("lost are {}", lost.join(", ")) };
                Err(Refusal::NotFound(format!("{name} is no drive of this pool; {there}")))
            }
        }
    }

    /// A pool serves without a drive from now on. What its hosts ask of it fails.
    ///
    /// # Errors
    /// It is none of the pool's, or the only one that is there.
    pub fn take_out(&self, config: &Config, pool: &str, name: &str) -> Result<(), Refusal> {
        let exports = self.turn();
        let at = self.pool_named(Some(pool))?;
        let Some((device, drive)) = self.member(config, at, name) else {
            return Err(match self.lost_of(at, name)? {
                Some(_) => refusal(PoolError::Lost(name.into())),
                None => refusal(PoolError::NoMember(name.into())),
            });
        };
        self.take_out_member(at, (device, drive), name, &exports)
    }

    /// The same of a device, by its place in the pool's list.
    pub(super) fn take_out_member(
        &self,
        at: usize,
        (device, drive): (usize, usize),
        name: &str,
        exports: &[Export],
    ) -> Result<(), Refusal> {
        let (number, link) = (self.number(at, drive)?, self.link_of(device)?);
        let asked = self.ask(&self.pools[at], Ask::Request(PoolRequest::TakeOut { number }));
        if self.is_member(at, drive)? {
            return asked.map(|_| ());
        }
        self.note_link(at, number, link);
        self.pools[at].devices.write().unwrap_or_else(PoisonError::into_inner)[drive].1 = false;
        let place = place(device, self.shards.len());
        let mut fronts: Vec<Place> = Vec::new();
        for export in exports.iter().filter(|e| e.pool == at) {
            if !fronts.contains(&export.front) {
                fronts.extend(self.leave_lost(export, place)?);
            }
        }
        fronts.extend(self.leaving().iter().filter(|((of, _), _)| *of == at).map(|(_, front)| *front));
        self.end_io(name, place, &fronts)?;
        self.close_pool_queue(at, drive)?;
        self.say_what_is_lost(at)?;
        asked.map(|_| ())
    }

    /// An exported volume goes on without a drive: its hosts hear of what may be lost by their next flush. Its front, if it has a way there.
    fn leave_lost(&self, export: &Export, place: Place) -> Result<Option<Place>, Refusal> {
        let front = export.front;
        if !self.at(front.shard, move |s| s.drives.ways(front.drive).2.contains(&place))? {
            return Ok(None);
        }
        self.lay_out(export.pool, export.volume, front)?;
        self.at(front.shard, move |s| s.drives.lose_front(front.drive))?;
        Ok(Some(front))
    }

    /// What fronts have asked of a drive that was taken out has [`DRAIN_TIMEOUT`] in all to end; the rest fails.
    fn end_io(&self, name: &str, place: Place, fronts: &[Place]) -> Result<(), Refusal> {
        let begun = Instant::now();
        let mut failed = 0;
        for front in fronts.iter().copied() {
            let leaves = move |s: &mut Shard| {
                let now = s.reactor.now();
                s.drives.leave_drive(front.drive, place, now)
            };
            if self.until_within(front.shard, DRAIN_TIMEOUT.saturating_sub(begun.elapsed()), leaves)? {
                continue;
            }
            failed += 1;
            self.at(front.shard, move |s| {
                let now = s.reactor.now();
                s.drives.end_front_io(front.drive, place, now);
            })?;
        }
        if failed > 0 {
            tracing::warn!(
                "drive {name} was taken out and does not finish what {failed} volumes had asked of it: that has failed"
            );
        }
        Ok(())
    }

    /// Another change of a pool does not end: what the pool has on its way at a drive that is to be taken out comes to nothing, so that the
    /// change fails.
    ///
    /// # Errors
    /// It is none of the pool's drives, or the only one that is there.
    pub fn end_change(&self, config: &Config, pool: &str, name: &str) -> Result<(), Refusal> {
        let at = self.pool_named(Some(pool))?;
        let Some((_, drive)) = self.member(config, at, name) else {
            return Err(refusal(PoolError::NoMember(name.into())));
        };
        if self.pools[at].devices().iter().filter(|(_, is)| *is).count() == 1 {
            return Err(refusal(PoolError::Last(name.into())));
        }
        self.call(at, move |s, number| {
            let now = s.reactor.now();
            s.drives.end_pool_io(number, drive, now);
        })
    }

    /// A volume that has lost chunks is emptied, and is another disk for its hosts.
    ///
    /// # Errors
    /// There is none of that name, it has lost nothing, its drive was not replaced, or the drives do not empty it.
    pub fn empty(&self, config: &Config, name: &str) -> Result<VolumeSnapshot, Refusal> {
        let exports = self.turn();
        self.recover(self.find(name)?.pool, &exports)?;
        let found = self.find(name)?;
        self.must_have_left(&found)?;
        let uuid = uuid().map_err(|e| Refusal::Unavailable(format!("/dev/urandom: {e}")))?;
        let front = exports.iter().find(|e| (e.pool, e.volume) == (found.pool, found.id)).map(|e| e.front);
        self.change(found.pool, PoolRequest::Abandon { name: name.into() }, &exports)?;
        if let Some(front) = front {
            self.lay_out(found.pool, found.id, front)?;
            if !self.until(front.shard, move |s| !s.drives.reaches(front.drive, 0))? {
                let what = format!(
                    "volume \"{name}\": its drives do not finish what was asked of them; all of it fails: try again"
                );
                return Err(Refusal::Unavailable(what));
            }
        }
        if let Some(front) = front {
            self.at(front.shard, move |s| s.with_doors(|doors, _| doors.vhost_user.leave_medium(front.drive)))?;
        }
        let emptied = self.change(found.pool, PoolRequest::Empty { name: name.into(), uuid }, &exports);
        if let Some(front) = front {
            // Its hosts hear of it while all of it fails still: whoever reads a zero has been told that this is another disk.
            self.renew(front, self.uuid_of(&found)?)?;
            self.lay_out(found.pool, found.id, front)?;
        }
        emptied?;
        let emptied = self.look(found.pool, Wanted::Numbered(found.id))?.pop().ok_or_else(gone)?;
        Ok(self.status(config, &emptied, &exports))
    }

    fn uuid_of(&self, found: &Found) -> Result<Uuid, Refusal> {
        let now = self.look(found.pool, Wanted::Numbered(found.id))?.pop().ok_or_else(gone)?;
        Ok(now.uuid)
    }

    /// A front's hosts are told that it is another disk.
    fn renew(&self, front: Place, uuid: Uuid) -> Result<(), Refusal> {
        let renew = move |s: &mut Shard| {
            s.drives.renew_front(front.drive, uuid.0)?;
            s.with_doors(|doors, cx| doors.vhost_user.renewed(front.drive, &serial(uuid), cx));
            Ok(())
        };
        self.at(front.shard, renew)?.map_err(|why: String| Refusal::Unavailable(why))
    }
}
