//! What a request comes to: volumes before and after, the chunks that it takes, and the steps from one to the other.

use crate::change_plan::{Change, ChangePlan, ChangeStep, part_of};
use crate::error::PoolError;
use crate::event::PoolRequest;
use crate::extent::{ChunkRun, Extent};
use crate::pool::Books;
use crate::record::{Phase, Record};
use crate::volume::{Part, Volume, VolumeId, check_name};
use alloc::collections::BTreeMap;
use alloc::string::ToString;
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

    /// Chunks that were taken for a change that is not made.
    pub fn undo_taken(&mut self, before: Option<&Volume>, after: Option<&Volume>) {
        for (drive, part) in after.iter().flat_map(|v| &v.parts) {
            let old = before.and_then(|v| v.parts.get(drive)).map_or(0, |p| p.extents.len());
            let taken = part.extents.iter().skip(old).map(|e| e.run);
            taken.for_each(|run| self.drives[usize::from(*drive)].buddy.give(run));
        }
    }

    fn named(&self, name: &str) -> Result<Volume, PoolError> {
        let volume = self.names.get(name).and_then(|id| self.volumes.get(id));
        volume.cloned().ok_or_else(|| PoolError::Unknown(name.to_string()))
    }

    fn may_be_called(&self, name: &str) -> Result<(), PoolError> {
        check_name(name).map_err(|why| PoolError::Name(name.to_string(), why))?;
        match self.names.contains_key(name) {
            true => Err(PoolError::Exists(name.to_string())),
            false => Ok(()),
        }
    }

    /// What a request comes to; chunks are taken already, nothing else has changed.
    pub fn prepare(&mut self, request: &PoolRequest) -> Result<Prepared, PoolError> {
        let version = self.counter + 1;
        match request {
            PoolRequest::Create { name, tenant, uuid, chunks } => {
                self.may_be_called(name)?;
                check_name(tenant).map_err(|why| PoolError::Name(tenant.clone(), why))?;
                let parts = self.grow(BTreeMap::new(), 0, *chunks, version)?;
                let first = |part: &Part| part.extents.iter().any(|e| e.logical == 0);
                let home = parts.iter().find(|(_, part)| first(part)).map_or(0, |(drive, _)| *drive);
                let (name, tenant) = (name.clone(), tenant.clone());
                let id = VolumeId(version);
                let volume = Volume { id, name, tenant, uuid: *uuid, chunks: *chunks, home, parts };
                Ok((None, Some(volume), Vec::new()))
            }
            PoolRequest::Resize { name, chunks } => {
                let before = self.named(name)?;
                let (parts, dirty) = if *chunks > before.chunks {
                    (self.grow(before.parts.clone(), before.chunks, *chunks, version)?, Vec::new())
                } else {
                    shrink(&before.parts, *chunks, version)?
                };
                let mut after = Volume { chunks: *chunks, parts, ..before.clone() };
                after.touch(version);
                Ok((Some(before), Some(after), dirty))
            }
            PoolRequest::Rename { name, to } => {
                let before = self.named(name)?;
                self.may_be_called(to)?;
                let mut after = Volume { name: to.clone(), ..before.clone() };
                after.touch(version);
                Ok((Some(before), Some(after), Vec::new()))
            }
            PoolRequest::Delete { name } => {
                let before = self.named(name)?;
                let all = before.parts.iter().flat_map(|(d, part)| part.extents.iter().map(|e| (*d, e.run))).collect();
                Ok((Some(before), None, all))
            }
            // They change no volume: see `crate::pool`.
            PoolRequest::Join { .. } | PoolRequest::Leave { .. } | PoolRequest::Recover | PoolRequest::Close => {
                Err(PoolError::Busy)
            }
        }
    }

    /// Parts with chunks for what a volume of `have` chunks lacks to `want`: all of it on one drive where there is so much, and on the
    /// one that has most; else drive after drive, those with most first.
    fn grow(
        &mut self,
        mut parts: BTreeMap<u16, Part>,
        have: u32,
        want: u32,
        version: u64,
    ) -> Result<BTreeMap<u16, Part>, PoolError> {
        if want == 0 {
            return Err(PoolError::Empty);
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
        let mut records = alloc::vec![after.as_ref().and_then(|v| part_of(v, home)).unwrap_or(Record::Drop(id))];
        if !written.is_empty() {
            records.push(self.state(Phase::Open, written.iter().copied()));
        }
        let change = Change { id, volume: after.clone(), dirty: dirty.clone() };
        self.entry(home, &records, Some(ChangeStep::Commit(change)));
        written.push(home);
        let is_over = |drive: &&u16| part(before, **drive).is_some() && part(after.as_ref(), **drive).is_none();
        let mut over: Vec<u16> = others.iter().filter(is_over).copied().collect();
        let last = over.pop();
        for drive in over {
            self.entry(drive, &[Record::Drop(id)], None);
            written.push(drive);
        }
        // One that nothing was written to rather than another: then each of those is known of.
        let witness = last.or_else(|| others.iter().find(|d| !written.contains(d)).or(others.first()).copied());
        if let Some(witness) = witness {
            written.retain(|drive| *drive != witness);
            let dropped = last.map(|_| Record::Drop(id));
            let state = self.state(Phase::Open, written.into_iter());
            let records: Vec<Record> = dropped.into_iter().chain([state]).collect();
            self.entry(witness, &records, None);
        }
        self.unmap(&dirty);
    }
}
