//! Where pools and volumes lie: drives by their shards, and what of them is found when a pool is opened.

use super::{PoolPlace, Volumes, text, uuid};
use crate::directory::Place;
use crate::directory::place;
use crate::pool::drive_queue::{LayoutTime, Piece, Reach};
use crate::pool::host::Ask;
use crate::refusal::Refusal;
use crate::shard::Shard;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use weir_config::Config;
use weir_pool::{CopyState, PoolAnswer, SegmentCopy, Setup, SetupDrive, VolumeId, VolumeSegment};

/// A run of chunks of a volume, and the drives of its copies; none that is lost.
pub(super) struct Lies {
    pub first: Option<Place>,
    pub second: Option<Place>,
    pub segment: VolumeSegment,
}

impl Lies {
    /// Chunks of it from one on, so many at the most.
    pub(super) fn part(&self, skip: u32, most: u32) -> Lies {
        let VolumeSegment { logical, start, len, second, .. } = self.segment;
        let second = second.map(|second| SegmentCopy { start: second.start + skip, ..second });
        let (logical, start, len) = (logical + skip, start + skip, (len - skip).min(most));
        Lies { segment: VolumeSegment { logical, start, len, second, ..self.segment }, ..*self }
    }
}

impl Volumes {
    /// Opens a pool of these devices.
    pub(super) fn open(&self, config: &Config, name: &str, devices: &[usize]) -> Result<PoolPlace, String> {
        let home = place(devices[0], self.shards.len()).shard;
        // Drives that have joined need not be named: what is on them says so.
        let others = (0..config.devices.len()).filter(|d| self.may_be_found(config, devices[0], *d));
        let all: Vec<(usize, bool)> = devices.iter().map(|d| (*d, true)).chain(others.map(|d| (d, false))).collect();
        let (mut drives, mut reaches, mut caches) = (Vec::new(), Vec::new(), Vec::new());
        for (device, named) in &all {
            let (bytes, cache) = self.facts(*device).map_err(text)?;
            drives.push(SetupDrive { name: config.devices[*device].name.clone(), bytes, named: *named });
            caches.push(cache);
            let place = place(*device, self.shards.len());
            reaches.push(self.reach(home, place, (0, format!("pool {name}"))).map_err(text)?);
        }
        let fresh = (0..=all.len()).map(|_| uuid()).collect::<Result<_, _>>();
        let fresh = fresh.map_err(|e| format!("/dev/urandom: {e}"))?;
        let (crc, keeps_layout) = (weir_sys::crc::crc32c as _, self.keeps_layout);
        let whole = config.pools.iter().any(|p| p.name == name && !p.degraded);
        let setup = Setup { name: name.into(), drives, fresh, crc, keeps_layout, whole };
        let add = move |s: &mut Shard| {
            let now = s.reactor.now();
            s.drives.add_pool(setup, &reaches, 0, now)
        };
        let number = self.at(home, add).map_err(text)??;
        let pool = PoolPlace {
            name: name.into(),
            devices: Arc::default(),
            shard: home,
            number,
            block_size: config.devices[devices[0]].block_size,
            cached: Arc::default(),
        };
        match self.ask(&pool, Ask::Open).map_err(text)? {
            PoolAnswer::Open { fresh: true, .. } => tracing::info!(pool = name, "made"),
            PoolAnswer::Open { clean: false, .. } => {
                tracing::info!(pool = name, "found as it was when it was not closed")
            }
            _ => tracing::info!(pool = name, "found"),
        }
        let count = all.len();
        let sort = move |s: &mut Shard| {
            let now = s.reactor.now();
            let is_member: Vec<bool> = (0..count).map(|i| s.drives.pool(number).drive(i).is_some()).collect();
            let not = is_member.iter().enumerate().filter(|(_, is)| !**is);
            not.for_each(|(i, _)| s.drives.close_pool_queue(number, i, now));
            is_member
        };
        let is_member = self.at(home, sort).map_err(text)?;
        for ((device, named), is) in all.iter().zip(&is_member) {
            let drive = &config.devices[*device].name;
            match (named, is) {
                (true, false) => tracing::warn!(
                    "pool {name}: device {drive} is none of its drives (it is empty, has left it, was replaced, or cannot be read); weir pool add \
                     {drive} makes it one"
                ),
                (false, true) => tracing::info!(pool = name, device = drive.as_str(), "has joined before"),
                _ => {}
            }
        }
        pool.cached.store(caches.iter().zip(&is_member).any(|(cache, is)| *cache && *is), Ordering::Relaxed);
        let devices = all.iter().map(|(device, _)| *device).zip(is_member).collect();
        *pool.devices.write().unwrap_or_else(PoisonError::into_inner) = devices;
        Ok(pool)
    }

    /// The way from a shard to a drive: it is a guest there where the drive is another shard's.
    pub(super) fn reach(&self, home: u32, place: Place, (tenant, host): (u16, String)) -> Result<Reach, Refusal> {
        if place.shard == home {
            return Ok(Reach { place, guest: None });
        }
        let queue = move |s: &mut Shard| {
            let now = s.reactor.now();
            s.drives.add_guest(home, place.drive, (tenant, host), now)
        };
        let guest = self.at(place.shard, queue)?.map_err(Refusal::Conflict)?;
        Ok(Reach { place, guest: Some(guest) })
    }

    /// Where the chunks of a volume lie, but for those that are lost.
    pub(super) fn pieces(&self, pool: usize, volume: VolumeId) -> Result<Vec<Lies>, Refusal> {
        self.pieces_and_changes(pool, volume).map(|(pieces, _)| pieces)
    }

    /// The same, and when that was so.
    fn pieces_and_changes(&self, pool: usize, volume: VolumeId) -> Result<(Vec<Lies>, LayoutTime), Refusal> {
        let look = move |s: &mut Shard, number: u32| {
            let pool = s.drives.pool(number);
            let time = LayoutTime { changes: pool.changes(), returning: pool.returning() };
            (pool.segments(volume), time)
        };
        let (segments, time) = self.call(pool, look)?;
        let devices = self.pools[pool].devices();
        let at = |drive: usize| place(devices[drive].0, self.shards.len());
        let lies = |segment: VolumeSegment| {
            let second = segment.second.filter(|second| second.state != CopyState::Lost);
            Lies { first: (!segment.lost).then(|| at(segment.drive)), second: second.map(|s| at(s.drive)), segment }
        };
        Ok((segments.into_iter().map(lies).collect(), time))
    }

    /// A front's volume lies where its pool says now.
    pub(super) fn lay_out(&self, pool: usize, volume: VolumeId, front: Place) -> Result<(), Refusal> {
        // Chunks may have got another place meanwhile, and the front have heard of it.
        while !self.lay_out_once(pool, volume, front)? {}
        Ok(())
    }

    fn lay_out_once(&self, pool: usize, volume: VolumeId, front: Place) -> Result<bool, Refusal> {
        let (pieces, time) = self.pieces_and_changes(pool, volume)?;
        let (tenant, host, have) = self.at(front.shard, move |s| s.drives.ways(front.drive))?;
        let mut reaches: Vec<Reach> = have.into_iter().map(|place| Reach { place, guest: None }).collect();
        let had = reaches.len();
        let mut laid = Ok(());
        for place in pieces.iter().flat_map(|lies| [lies.first, lies.second]).flatten() {
            if laid.is_ok() && !reaches.iter().any(|r| r.place == place) {
                laid = self.reach(front.shard, place, (tenant, host.clone())).map(|reach| reaches.push(reach));
            }
        }
        if laid.is_ok() {
            let of = |Lies { first, second, segment }: &Lies| {
                let reach = |place| *reaches.iter().find(|r| r.place == place).expect("every place has its reach");
                Piece { first: first.map(reach), second: second.map(reach), segment: *segment }
            };
            let pieces: Vec<Piece> = pieces.iter().map(of).collect();
            let lay_out = move |s: &mut Shard| {
                let now = s.reactor.now();
                s.drives.lay_out(front.drive, (&pieces, &time), now)
            };
            // Guests that it did not take it has sent away itself.
            return self.at(front.shard, lay_out)?.map_err(Refusal::Conflict);
        }
        for reach in reaches.split_off(had) {
            if let Some((guest, _)) = reach.guest {
                let remove = move |s: &mut Shard| {
                    let now = s.reactor.now();
                    s.drives.remove_guest(guest, now);
                };
                self.at(reach.place.shard, remove)?;
            }
        }
        laid.map(|()| true)
    }
}
