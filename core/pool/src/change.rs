//! What a request comes to: volumes before and after, the chunks that it takes, and the steps from one to the other.

use crate::block::MIRRORED;
use crate::change_plan::{Change, ChangePlan, ChangeStep, Uncommitted, part_of};
use crate::copies::check_copies;
use crate::error::PoolError;
use crate::event::PoolRequest;
use crate::extent::{ChunkRun, Extent};
use crate::pool::Books;
use crate::record::{Phase, Record};
use crate::sharing::DriveRun;
use crate::volume::{Part, Volume, VolumeId, check_name};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A volume before a change, after it, and the chunks that nobody has then.
pub(crate) type Prepared = (Option<Volume>, Option<Volume>, Vec<(u16, ChunkRun)>);

impl Books {
    pub fn commit(&mut self, change: Change) {
        if let Some(before) = self.volumes.remove(&change.id) {
            self.names.remove(&before.name);
        }
        if let Some(volume) = change.volume {
            self.names.insert(volume.name.clone(), volume.id);
            self.volumes.insert(volume.id, volume);
        }
        for (drive, run) in change.dirty {
            self.drives[usize::from(drive)].dirty.push(run);
        }
    }

    /// Chunks that no volume has any more, once they are empty: they can be allocated again.
    pub fn free(&mut self, drive: u16, runs: &[ChunkRun]) {
        let drive = &mut self.drives[usize::from(drive)];
        drive.dirty.retain(|run| !runs.contains(run));
        runs.iter().for_each(|run| drive.buddy.give(*run));
    }

    /// Chunks that were taken for a change that is not made: free, or to be emptied first.
    pub fn undo_taken(&mut self, change: &Uncommitted) {
        let taken = change.after.as_ref().map(|after| self.taken_for(after)).unwrap_or_default();
        for (drive, run) in taken {
            let drive = &mut self.drives[usize::from(drive)];
            match change.is_filled {
                true => drive.dirty.push(run),
                false => drive.buddy.give(run),
            }
        }
    }

    pub fn named(&self, name: &str) -> Result<Volume, PoolError> {
        let volume = self.names.get(name).and_then(|id| self.volumes.get(id));
        volume.cloned().ok_or_else(|| PoolError::Unknown(name.to_string()))
    }

    pub fn may_be_called(&self, name: &str) -> Result<(), PoolError> {
        check_name(name).map_err(|why| PoolError::Name(name.to_string(), why))?;
        match self.names.contains_key(name) {
            true => Err(PoolError::Exists(name.to_string())),
            false => Ok(()),
        }
    }

    /// A volume that has lost chunks, and has others in their places.
    fn replaced(&self, name: &str) -> Result<Volume, PoolError> {
        let volume = self.named(name)?;
        if self.readable(&volume) == u64::from(volume.chunks) {
            return Err(PoolError::Sound(volume.name));
        }
        let lost = |d: &&u16| self.drives[usize::from(**d)].lost;
        match volume.parts.keys().find(lost) {
            Some(drive) => Err(PoolError::NotReplaced(volume.name, self.lost_name(*drive))),
            None if volume.stale.is_empty() => Err(PoolError::Sound(volume.name)),
            None => Ok(volume),
        }
    }

    /// What messages call a drive that is lost.
    pub fn lost_name(&self, number: u16) -> String {
        match &self.drives[usize::from(number)] {
            d if d.name.is_empty() => alloc::format!("{number}"),
            d => d.name.clone(),
        }
    }

    /// What a request comes to; chunks are taken already, nothing else has changed.
    pub fn prepare(&mut self, request: &PoolRequest) -> Result<Prepared, PoolError> {
        // tidy: long because it is a list of requests.
        let version = self.counter + 1;
        match request {
            PoolRequest::Create { name, tenant, uuid, chunks, copies } => {
                self.may_be_called(name)?;
                check_name(tenant).map_err(|why| PoolError::Name(tenant.clone(), why))?;
                check_copies(*copies)?;
                if *copies > 1 && self.layout < MIRRORED {
                    return Err(PoolError::Layout(self.name.clone()));
                }
                let parts = self.grow(BTreeMap::new(), (0, *chunks), (*copies, version))?;
                let first = |part: &Part| part.extents.iter().any(|e| e.logical == 0);
                let home = parts.iter().find(|(_, part)| first(part)).map_or(0, |(drive, _)| *drive);
                let (name, tenant) = (name.clone(), tenant.clone());
                let id = VolumeId(version);
                let (chunks, copies, stale, written) = (*chunks, *copies, BTreeMap::new(), Vec::new());
                let volume = Volume { id, name, tenant, uuid: *uuid, chunks, copies, home, parts, stale, written };
                Ok((None, Some(volume), Vec::new()))
            }
            PoolRequest::Resize { name, chunks } => {
                let before = self.named(name)?;
                self.no_snapshot(&before)?;
                if self.is_degraded(&before) || !before.stale.is_empty() {
                    return Err(match self.readable(&before) == u64::from(before.chunks) {
                        true => PoolError::OneCopy(before.name),
                        false => PoolError::Degraded(before.name),
                    });
                }
                let (parts, dirty) = if *chunks > before.chunks {
                    (self.grow(before.parts.clone(), (before.chunks, *chunks), (before.copies, version))?, Vec::new())
                } else {
                    let (parts, dirty) = shrink(&before.parts, *chunks, version)?;
                    (parts, self.sole(before.id, dirty))
                };
                let mut after = Volume { chunks: *chunks, parts, ..before.clone() };
                after.parts.entry(after.home).or_insert(Part { version, extents: Vec::new() });
                after.touch(version);
                Ok((Some(before), Some(after), dirty))
            }
            PoolRequest::Rename { name, to } => {
                let before = self.named(name)?;
                self.without_snapshots(&before)?;
                self.may_be_called(to)?;
                let mut after = Volume { name: to.clone(), ..before.clone() };
                after.touch(version);
                Ok((Some(before), Some(after), Vec::new()))
            }
            PoolRequest::Delete { name } => {
                let before = self.named(name)?;
                if before.origin().is_none() {
                    self.without_snapshots(&before)?;
                }
                let all = self.sole(before.id, self.runs_here(&before));
                Ok((Some(before), None, all))
            }
            PoolRequest::Snapshot { .. } | PoolRequest::Clone { .. } => {
                Ok((None, Some(self.share(request, version)?), Vec::new()))
            }
            PoolRequest::Rollback { snapshot } => {
                let (before, after) = self.roll_back(snapshot, version)?;
                let dirty = self.sole(before.id, self.runs_here(&before));
                Ok((Some(before), Some(after), dirty))
            }
            PoolRequest::Abandon { name } => {
                let before = self.replaced(name)?;
                if self.shares(&before) {
                    return Err(PoolError::Shares(before.name));
                }
                let mut after = before.clone();
                after.stale = before.parts.keys().map(|drive| (*drive, before.runs_on(*drive))).collect();
                after.stale.retain(|_, runs| !runs.is_empty());
                after.touch(version);
                Ok((Some(before), Some(after), Vec::new()))
            }
            PoolRequest::Empty { name, uuid } => {
                let before = self.replaced(name)?;
                if !before.is_abandoned() {
                    return Err(PoolError::Busy);
                }
                let mut after = Volume { uuid: *uuid, stale: BTreeMap::new(), ..before.clone() };
                after.touch(version);
                Ok((Some(before), Some(after), Vec::new()))
            }
            // They change no volume: see `crate::pool`.
            PoolRequest::Join { .. }
            | PoolRequest::Leave { .. }
            | PoolRequest::TakeOut { .. }
            | PoolRequest::Replace { .. }
            | PoolRequest::Online { .. }
            | PoolRequest::Written { .. }
            | PoolRequest::Settled { .. }
            | PoolRequest::MarkStale { .. }
            | PoolRequest::MarkFresh { .. }
            | PoolRequest::Unshare { .. }
            | PoolRequest::Recover
            | PoolRequest::Close => Err(PoolError::Busy),
        }
    }

    /// Chunks that a volume has of drives that are there.
    fn runs_here(&self, volume: &Volume) -> Vec<DriveRun> {
        let here = volume.parts.iter().filter(|(d, _)| self.drives[usize::from(**d)].is_here());
        here.flat_map(|(d, part)| part.extents.iter().map(|e| (*d, e.run))).collect()
    }

    /// Parts with chunks for what a volume of `have` chunks lacks to `want`: all of it on one drive where there is so much, and on the
    /// one that has most; else drive after drive, those with most first.
    fn grow(
        &mut self,
        mut parts: BTreeMap<u16, Part>,
        (have, want): (u32, u32),
        (copies, version): (u8, u64),
    ) -> Result<BTreeMap<u16, Part>, PoolError> {
        if want == 0 {
            return Err(PoolError::Empty);
        }
        if copies > 1 {
            return self.grow_twice(&parts, (have, want), version);
        }
        let mut left = want - have;
        let free: u64 = self.drives.iter().map(|d| u64::from(d.buddy.free())).sum();
        if u64::from(left) > free {
            return Err(PoolError::Space(left.into(), free));
        }
        let mut order: Vec<u16> = (0..self.drives.len() as u16).collect();
        let room = |drive: &u16| self.drives[usize::from(*drive)].buddy.free();
        // Where the volume has something already it goes on, if all of it fits there.
        let at_home = |drive: &u16| parts.contains_key(drive) && room(drive) >= left;
        order.sort_by_key(|drive| (core::cmp::Reverse((at_home(drive), room(drive))), *drive));
        let mut logical = have;
        for drive in order {
            let buddy = &mut self.drives[usize::from(drive)].buddy;
            let runs = buddy.take(left.min(buddy.free())).unwrap_or_default();
            let taken: u32 = runs.iter().map(|run| run.len).sum();
            if taken > 0 {
                let part = parts.entry(drive).or_insert(Part { version, extents: Vec::new() });
                part.version = version;
                for run in runs {
                    part.extents.push(Extent { logical, run });
                    logical += run.len;
                }
                left -= taken;
            }
            if left == 0 {
                break;
            }
        }
        Ok(parts)
    }
}

impl Volume {
    /// None of its chunks is readable.
    fn is_abandoned(&self) -> bool {
        self.parts.keys().all(|drive| self.stale.get(drive).map_or(&[][..], Vec::as_slice) == self.runs_on(*drive))
    }

    /// What home says of it is said anew.
    fn touch(&mut self, version: u64) {
        if let Some(part) = self.parts.get_mut(&self.home) {
            part.version = version;
        }
    }
}

/// Parts without what lies behind `chunks`, and that.
type Shrunk = (BTreeMap<u16, Part>, Vec<(u16, ChunkRun)>);

fn shrink(parts: &BTreeMap<u16, Part>, chunks: u32, version: u64) -> Result<Shrunk, PoolError> {
    if chunks == 0 {
        return Err(PoolError::Empty);
    }
    let (mut kept, mut dirty) = (BTreeMap::new(), Vec::new());
    for (drive, part) in parts {
        let mut extents = Vec::new();
        let before = dirty.len();
        for e in &part.extents {
            let stays = chunks.saturating_sub(e.logical).min(e.run.len);
            if stays > 0 {
                extents.push(Extent { run: ChunkRun { len: stays, ..e.run }, ..*e });
            }
            if stays < e.run.len {
                dirty.push((*drive, ChunkRun { start: e.run.start + stays, len: e.run.len - stays }));
            }
        }
        let version = if dirty.len() > before { version } else { part.version };
        if !extents.is_empty() {
            kept.insert(*drive, Part { version, extents });
        }
    }
    Ok((kept, dirty))
}

impl ChangePlan<'_> {
    /// A volume's chunks are emptied, before anything is written.
    pub fn erase(&mut self, volume: &Volume) {
        for (drive, part) in &volume.parts {
            self.steps.extend(part.extents.iter().map(|e| ChangeStep::Erase(*drive, e.run)));
            if !part.extents.is_empty() {
                self.steps.push(ChangeStep::Flush(*drive));
            }
        }
    }

    /// The steps from a volume as it is to what it is to be: the other drives' parts, home (which is the commit), parts that are no more,
    /// and what nobody has any more. Home is told of the parts, and another drive of home.
    pub fn change(
        &mut self,
        id: VolumeId,
        before: Option<&Volume>,
        after: Option<Volume>,
        dirty: Vec<(u16, ChunkRun)>,
    ) {
        let part = |volume: Option<&Volume>, drive: u16| volume.and_then(|v| v.parts.get(&drive)).cloned();
        let home = before.or(after.as_ref()).map_or(0, |v| v.home);
        let others = self.books.others(home);
        let mut written = Vec::new();
        for drive in &others {
            let new = part(after.as_ref(), *drive);
            if let Some(volume) = after.as_ref().filter(|_| new.is_some() && new != part(before, *drive)) {
                let record = part_of(volume, *drive).expect("it has a part there");
                self.entry(*drive, &[record], None);
                written.push(*drive);
            }
        }
        // What is not stale any more is said to be so.
        let fresh = |stale: &mut Volume| {
            let gone = before.iter().flat_map(|v| v.stale.keys()).map(|drive| (*drive, Vec::new()));
            gone.for_each(|(drive, none)| _ = stale.stale.entry(drive).or_insert(none));
        };
        let mut said = after.clone();
        said.iter_mut().for_each(fresh);
        let described =
            |books: &Books, drive: u16| said.as_ref().map_or_else(Vec::new, |v| books.descriptions(v, drive));
        let mut records = alloc::vec![after.as_ref().and_then(|v| part_of(v, home)).unwrap_or(Record::Drop(id))];
        records.extend(described(self.books, home));
        if !written.is_empty() {
            records.push(self.state(Phase::Open, written.iter().copied()));
        }
        let change = Change { id, volume: after.clone(), dirty: dirty.clone() };
        self.entry(home, &records, Some(ChangeStep::Commit(change)));
        written.push(home);
        let mirror = self.books.mirror_of(home);
        let is_over = |drive: &&u16| part(before, **drive).is_some() && part(after.as_ref(), **drive).is_none();
        let mut over: Vec<u16> = others.iter().filter(is_over).copied().collect();
        // One that nothing was written to rather than another: then each of those is known of. The mirror is told of the volume anyway.
        let last = match mirror {
            None => over.pop(),
            Some(mirror) => over.iter().position(|d| *d == mirror).map(|at| over.remove(at)),
        };
        for drive in over {
            self.entry(drive, &[Record::Drop(id)], None);
            written.push(drive);
        }
        let other = || others.iter().find(|d| !written.contains(d)).or(others.first()).copied();
        if let Some(witness) = mirror.or(last).or_else(other) {
            let dropped = (last.is_some() || mirror.is_some() && after.is_none()).then_some(Record::Drop(id));
            let mut records: Vec<Record> = dropped.into_iter().collect();
            records.extend(mirror.into_iter().flat_map(|mirror| described(self.books, mirror)));
            written.retain(|drive| *drive != witness);
            records.push(self.state(Phase::Open, written.into_iter()));
            self.entry(witness, &records, None);
        }
        self.unmap(&dirty);
    }
}
