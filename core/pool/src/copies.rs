//! Volumes of which two drives have each chunk.
//!
//! ```text
//!  a write of a region ─► Written (durable) ─► both drives ─► acknowledged ─► … ─► nothing on its way ─► Settled: flushed, and not written any more
//!                                                 └ one fails ─► MarkStale (durable) ─► acknowledged ─► rebuilt ─► MarkFresh
//! ```
//! What may differ after a crash is what a *written* region says: [`REGION`] chunks of which nobody knows whether a write was on its way.
//! A bitmap of regions rather than a record of each write: a region is told of once, before the first of its writes, so that what is written
//! again and again costs nothing; and the rest of the volume is not compared after a crash. Of a written region one copy is chosen when the pool
//! is opened, always the same one, and the other is stale before anybody reads: so no reader sees what was there before what it has seen.
//!
//! While a drive is lost, its regions stay written: they are what it has missed when it is back.

use crate::buddy::Buddy;
use crate::change_plan::{Change, ChangePlan, ChangeStep};
use crate::error::PoolError;
use crate::event::{PoolAnswer, PoolEffect, PoolRequest};
use crate::extent::{ChunkRun, CopyState, Extent, VolumeSegment, common, union, without};
use crate::pool::{Books, Pool};
use crate::record::{Phase, Record};
use crate::volume::{Part, Volume, VolumeId};
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Chunks of a region: its copies are known to be the same, or all of it is copied after a crash.
pub const REGION: u32 = 64;
/// Runs that are kept of a volume's written regions; where there were more, those next to each other become one, with what is between them.
const WRITTEN_RUNS: usize = 128;

/// Whole regions that have something of these runs.
fn regions(runs: &[ChunkRun]) -> Vec<ChunkRun> {
    let region = |run: &ChunkRun| {
        let start = run.start / REGION * REGION;
        let end = run.end().next_multiple_of(REGION.into()).min(u32::MAX.into());
        ChunkRun { start, len: (end - u64::from(start)) as u32 }
    };
    union(runs.iter().map(region).collect())
}

/// The same runs, or fewer that have more.
fn at_most(mut runs: Vec<ChunkRun>, most: usize) -> Vec<ChunkRun> {
    while runs.len() > most {
        let gap = |at: usize| u64::from(runs[at + 1].start) - runs[at].end();
        let Some(at) = (0..runs.len() - 1).min_by_key(|at| gap(*at)) else { break };
        runs[at].len = (runs[at + 1].end() - u64::from(runs[at].start)) as u32;
        runs.remove(at + 1);
    }
    runs
}

/// What there is of a volume's second copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyHealth {
    /// Chunks of which one copy is readable and the other is on a lost drive.
    pub lost: u32,
    /// Chunks of which one copy is readable and the other is to be rebuilt.
    pub stale: u32,
}

impl Pool {
    /// What a volume misses of its second copies.
    pub fn copy_health(&self, id: VolumeId) -> CopyHealth {
        let mut health = CopyHealth::default();
        for segment in self.segments(id).iter().filter(|s| !s.lost) {
            match segment.second.map(|second| second.state) {
                Some(CopyState::Lost) => health.lost += segment.len,
                Some(CopyState::Stale) => health.stale += segment.len,
                Some(CopyState::Good) | None => {}
            }
        }
        health
    }

    /// The first chunks of a volume from `from` on that are to be rebuilt, and can be.
    pub fn next_stale(&self, id: VolumeId, from: u32) -> Option<VolumeSegment> {
        let is = |s: &VolumeSegment| !s.lost && s.second.is_some_and(|second| second.state == CopyState::Stale);
        let mut found = self.segments(id).into_iter().find(|s| is(s) && s.logical + s.len > from)?;
        let skip = from.saturating_sub(found.logical);
        (found.logical, found.start, found.len) = (found.logical + skip, found.start + skip, found.len - skip);
        found.second.iter_mut().for_each(|second| second.start += skip);
        Some(found)
    }

    /// A note of a volume's copies.
    pub(crate) fn note(&mut self, id: VolumeId, request: &PoolRequest) -> Result<PoolEffect, PoolError> {
        let Some((after, flush)) = self.books.noted(request)? else {
            return Ok(PoolEffect::Finished(Ok(PoolAnswer::Volume(id))));
        };
        let places = self.books.places();
        let before = self.books.volumes.get(&id).cloned().unwrap_or_else(|| after.clone());
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        plan.note(&before, after, &flush);
        let (steps, full) = (plan.steps, plan.full);
        if let Some(full) = full {
            self.books.put_back(places);
            return Err(PoolError::Full(self.books.drives[usize::from(full)].name.clone()));
        }
        self.work = steps.into();
        self.answer = Some(PoolAnswer::Volume(id));
        Ok(self.go_on())
    }

    /// The place of the drive that could not be written, if that keeps the pool from being changed.
    pub fn failing(&self) -> Option<usize> {
        matches!(self.fault(), Some(PoolError::Broken(_))).then_some(self.at)
    }

    /// Whether the drive at that place can be done without: of all that volumes have there another copy is readable.
    pub fn can_do_without(&self, position: usize) -> bool {
        let elsewhere = |s: &VolumeSegment| {
            let other = if s.drive == position {
                s.second.is_some_and(|second| second.state == CopyState::Good)
            } else {
                s.second.is_none_or(|second| second.drive != position) || !s.lost
            };
            other || s.lost
        };
        self.volumes().all(|v| self.segments(v.id).iter().all(elsewhere))
    }

    /// Whether all that volumes had on a lost drive is readable elsewhere: then another drive can take its place and nothing is given up.
    pub fn can_be_rebuilt(&self, number: u16) -> bool {
        let has = |v: &&crate::Volume| !v.runs_on(number).is_empty();
        let mut volumes = self.volumes().filter(has).peekable();
        volumes.peek().is_some() && volumes.all(|v| v.copies > 1 && self.segments(v.id).iter().all(|s| !s.lost))
    }
}

impl Books {
    /// What a note of a volume's copies comes to: the volume before it and after, and the drives that are flushed first. `None` if nothing
    /// of it is new.
    pub fn noted(&self, request: &PoolRequest) -> Result<Option<(Volume, Vec<u16>)>, PoolError> {
        let find = |id: &VolumeId| {
            let volume = self.volumes.get(id).cloned();
            volume.ok_or_else(|| PoolError::Unknown(alloc::format!("number {}", id.0)))
        };
        let number = |place: usize| (0u16..).zip(&self.drives).find(|(_, d)| d.is_here() && d.position == place);
        let (volume, flush) = match request {
            PoolRequest::Written { id, runs } => {
                let mut volume = find(id)?;
                let all = volume.written.iter().copied().chain(regions(runs)).collect();
                volume.written = at_most(union(all), WRITTEN_RUNS);
                self.is_missed(&mut volume, &regions(runs));
                (volume, Vec::new())
            }
            PoolRequest::Settled { id, runs } => {
                let mut volume = find(id)?;
                // What a lost drive misses has to be known when it is back.
                if !self.is_degraded(&volume) {
                    volume.written = without(&volume.written, &regions(runs));
                }
                let drives = volume.parts.iter().filter(|(_, part)| !part.extents.is_empty()).map(|(d, _)| *d);
                let drives = drives.filter(|d| self.drives[usize::from(*d)].is_here()).collect();
                (volume, drives)
            }
            PoolRequest::MarkStale { id, drive, runs } => {
                let mut volume = find(id)?;
                if let Some((number, _)) = number(*drive) {
                    let runs = common(&volume.runs_on(number), &union(runs.clone()));
                    let had = volume.stale.remove(&number).unwrap_or_default();
                    let all = union(had.into_iter().chain(runs).collect());
                    volume.stale.insert(number, all);
                    volume.stale.retain(|_, runs| !runs.is_empty());
                }
                let readable = |v: &Volume| self.readable(v);
                if readable(&volume) < readable(&find(id)?) {
                    return Err(PoolError::LastCopy(volume.name));
                }
                (volume, Vec::new())
            }
            PoolRequest::MarkFresh { id, drive, runs } => {
                let mut volume = find(id)?;
                let mut drives = Vec::new();
                if let Some((number, _)) = number(*drive) {
                    let had = volume.stale.remove(&number).unwrap_or_default();
                    let left = without(&had, &union(runs.clone()));
                    volume.stale.insert(number, left);
                    volume.stale.retain(|_, runs| !runs.is_empty());
                    drives.push(number);
                }
                (volume, drives)
            }
            _ => return Ok(None),
        };
        Ok((self.volumes.get(&volume.id) != Some(&volume)).then_some((volume, flush)))
    }

    /// Chunks of a volume of which a copy is readable.
    pub fn readable(&self, volume: &Volume) -> u64 {
        let place = |d: u16| Some(usize::from(d)).filter(|d| self.drives[*d].is_here());
        let segments = volume.segments(place).unwrap_or_default();
        segments.iter().filter(|s| !s.lost).map(|s| u64::from(s.len)).sum()
    }

    /// Written regions of volumes whose copies were [chosen](Volume::choose_copies) are not needed any more; those of which a drive is lost are.
    pub fn forget_written(&mut self) {
        let volumes = self.volumes.values().filter(|v| !v.written.is_empty() && !self.is_degraded(v));
        let ids: Vec<VolumeId> = volumes.map(|v| v.id).collect();
        ids.iter().for_each(|id| self.volumes.get_mut(id).into_iter().for_each(|v| v.written.clear()));
    }

    /// Parts with two copies of what a volume of `have` chunks lacks to `want`, on different drives: both whole where two drives have so much
    /// room; else in pieces on those that have most.
    pub fn grow_twice(
        &mut self,
        parts: &BTreeMap<u16, Part>,
        (have, want): (u32, u32),
        version: u64,
    ) -> Result<BTreeMap<u16, Part>, PoolError> {
        let left = want - have;
        let free: Vec<u64> = self.drives.iter().map(|d| d.buddy.free().into()).collect();
        let (sum, most) = (free.iter().sum::<u64>(), free.iter().copied().max().unwrap_or(0));
        let room = (sum / 2).min(sum - most);
        if u64::from(left) > room {
            return Err(PoolError::SpaceApart(left.into(), room));
        }
        // In steps of a chunk the two with most room never run out before the others.
        for step in [left.div_ceil(16), 1] {
            let before: Vec<Buddy> = self.drives.iter().map(|d| d.buddy.clone()).collect();
            if let Some(grown) = self.in_steps(parts, (have, want), (step, version)) {
                return Ok(grown);
            }
            self.drives.iter_mut().zip(before).for_each(|(drive, buddy)| drive.buddy = buddy);
        }
        Err(PoolError::SpaceApart(left.into(), room))
    }

    fn in_steps(
        &mut self,
        parts: &BTreeMap<u16, Part>,
        (have, want): (u32, u32),
        (step, version): (u32, u64),
    ) -> Option<BTreeMap<u16, Part>> {
        let (mut parts, mut at) = (parts.clone(), have);
        while at < want {
            let mut order: Vec<u16> = (0..self.drives.len() as u16).collect();
            let room = |drive: &u16| self.drives[usize::from(*drive)].buddy.free();
            // Where the volume has something already it goes on, if all of it fits there.
            let goes_on = |drive: &u16| parts.contains_key(drive) && room(drive) >= want - at;
            order.sort_by_key(|drive| (core::cmp::Reverse((goes_on(drive), room(drive))), *drive));
            let [first, second] = *order.get(..2)? else { return None };
            let third = order.get(2).map_or(0, room);
            let both = room(&first).min(room(&second));
            let len = (want - at).min(both);
            let len = if len < want - at { len.min(step.max(both.saturating_sub(third))) } else { len };
            if len == 0 {
                return None;
            }
            for drive in [first, second] {
                let runs = self.drives[usize::from(drive)].buddy.take(len)?;
                let part = parts.entry(drive).or_insert(Part { version, extents: Vec::new() });
                part.version = version;
                let mut logical = at;
                for run in runs {
                    part.extents.push(Extent { logical, run });
                    logical += run.len;
                }
            }
            at += len;
        }
        Some(parts)
    }
}

impl ChangePlan<'_> {
    /// The steps by which home and its mirror hear of a note of a volume's copies, after these drives are flushed. Either may hear of it alone:
    /// what they say too much of is copied in vain, and nothing is done on the word of the first before both have heard.
    pub fn note(&mut self, before: &Volume, after: Volume, flush: &[u16]) {
        self.steps.extend(flush.iter().map(|drive| ChangeStep::Flush(*drive)));
        let id = after.id;
        let mut records: Vec<Record> = Vec::new();
        let drives = before.stale.keys().chain(after.stale.keys()).copied();
        for drive in drives.collect::<alloc::collections::BTreeSet<u16>>() {
            let (was, is) = (before.stale.get(&drive), after.stale.get(&drive));
            if was != is {
                records.push(Record::Stale { id, drive, runs: is.cloned().unwrap_or_default() });
            }
        }
        if before.written != after.written {
            records.push(Record::Written { id, runs: after.written.clone() });
        }
        let home = after.home;
        let change = Change { id, volume: Some(after), dirty: Vec::new() };
        self.entry(home, &records, Some(ChangeStep::Commit(change)));
        if let Some(mirror) = self.books.mirror_of(home) {
            records.push(self.state(Phase::Open, core::iter::once(home)));
            self.entry(mirror, &records, None);
        }
    }
}

/// Whether a pool whose headers say nothing of copies can have such a volume.
pub(crate) fn check_copies(copies: u8) -> Result<(), PoolError> {
    match copies {
        1 | 2 => Ok(()),
        other => Err(PoolError::Copies(other.to_string())),
    }
}
