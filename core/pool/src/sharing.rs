//! Volumes that have chunks in common: a snapshot has the chunks of its volume, a clone those of its snapshot.
//!
//! ```text
//!  Snapshot, Clone ─► the drives are flushed ─► a volume with the same extents (durable)
//!  Unshare ─► Dirty (durable) ─► PoolEffect::Copy … ─► flush ─► the volume's part with the new extents (durable) ─► the old ones are the others' alone
//! ```
//! How often a chunk is had follows from the extents of all volumes, so no count can contradict them: a chunk of which another volume has the same
//! run is *shared*, and is not written before the volume that is written has one of its own. The headers say [`SHARED`](crate::record::SHARED)
//! before the first chunk is shared, so that a release that knows of none refuses the pool.
//!
//! The copy of a chunk lies on the same drive, or on another one that the volume lies on. Until the change counts it is given up (`Dirty`): what a
//! crash or a failure leaves of it is emptied.
//!
//! Volumes with two copies share pairs of chunks, of which both are the same: a snapshot is made only where no copy is lost or stale, and after
//! a flush. A chunk of a pair that has its own place is copied from a good one of the two, to each drive of the pair that is there; on one that
//! does not take it, it is stale. While a drive is lost, only the chunk of the other one gets a place of its own: then a pair is left of which
//! one chunk is shared and the other is not. Who has it writes neither before both are its own, and a stale one is not
//! [rebuilt in place](Pool::is_rebuilt_in_place).

use crate::block::MIRRORED;
use crate::change_plan::{ChangePlan, ChangeStep, Copying, Uncommitted};
use crate::error::PoolError;
use crate::event::{PoolAnswer, PoolEffect, PoolRequest};
use crate::extent::{CHUNK, ChunkRun, CopyState, Extent, VolumeSegment, common, union, without};
use crate::pool::{Books, Pool, Retreat};
use crate::record::Record;
use crate::volume::{Part, SNAPSHOT_MARK, Volume, VolumeId, check_name};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Chunks of a drive.
pub(crate) type DriveRun = (u16, ChunkRun);

/// Chunks of a volume that get a place of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Move {
    /// Chunk of the volume.
    logical: u32,
    /// The drive that has them now.
    leaves: u16,
    /// Where they are copied from.
    from: DriveRun,
    /// The other copy, if that is as good.
    or_from: Option<DriveRun>,
    /// As many chunks.
    to: DriveRun,
}

/// Chunks of a volume that lie together on each drive that has them.
pub(crate) struct Pair {
    pub logical: u32,
    pub len: u32,
    /// Drive, first chunk there, and what it is good for; none that is lost. The one that is read comes first.
    pub copies: Vec<(u16, u32, CopyState)>,
}

impl Volume {
    /// Extents of the volume with chunks at other places, in order, each as long as it can be.
    fn moved(&mut self, moves: &[Move], version: u64) {
        for Move { logical, leaves, to, .. } in moves {
            let taken = [ChunkRun { start: *logical, len: to.1.len }];
            if let Some(part) = self.parts.get_mut(leaves) {
                part.extents = part.extents.iter().flat_map(|e| rest(e, &taken)).collect();
                part.version = version;
            }
            if let Some(stale) = self.stale.get_mut(leaves) {
                *stale = without(stale, &taken);
            }
            let part = self.parts.entry(to.0).or_insert(Part { version, extents: Vec::new() });
            part.version = version;
            part.extents.push(Extent { logical: *logical, run: to.1 });
        }
        let home = self.home;
        self.stale.retain(|_, runs| !runs.is_empty());
        self.parts.retain(|drive, part| !part.extents.is_empty() || *drive == home);
        for part in self.parts.values_mut().filter(|part| part.version == version) {
            part.extents.sort_unstable_by_key(|e| e.logical);
            part.extents = joined(&part.extents);
        }
    }
}

/// What is left of an extent without those chunks of the volume.
fn rest(extent: &Extent, taken: &[ChunkRun]) -> Vec<Extent> {
    let own = [ChunkRun { start: extent.logical, len: extent.run.len }];
    without(&own, taken).into_iter().map(|run| part_of_extent(extent, run)).collect()
}

/// The part of an extent that has those chunks of the volume, which are all its own.
fn part_of_extent(extent: &Extent, run: ChunkRun) -> Extent {
    let start = extent.run.start + (run.start - extent.logical);
    Extent { logical: run.start, run: ChunkRun { start, len: run.len } }
}

/// The same extents, where one goes on with the next as one.
fn joined(extents: &[Extent]) -> Vec<Extent> {
    let mut all: Vec<Extent> = Vec::new();
    for e in extents {
        match all.last_mut() {
            Some(last) if follows(last, e) => last.run.len += e.run.len,
            _ => all.push(*e),
        }
    }
    all
}

fn follows(last: &Extent, next: &Extent) -> bool {
    let logical = u64::from(last.logical) + u64::from(last.run.len);
    logical == u64::from(next.logical) && last.run.end() == u64::from(next.run.start)
}

impl Books {
    /// What volumes but that one have of these chunks of a drive, in order.
    fn of_others(&self, id: VolumeId, drive: u16, runs: &[ChunkRun]) -> Vec<ChunkRun> {
        let first = runs.iter().map(|run| run.start).min().unwrap_or(0);
        let end = runs.iter().map(|run| run.end()).max().unwrap_or(0);
        let others = self.volumes.values().filter(|v| v.id != id);
        let extents = others.filter_map(|v| v.parts.get(&drive)).flat_map(|p| &p.extents);
        let near = extents.map(|e| e.run).filter(|run| run.end() > first.into() && u64::from(run.start) < end);
        common(runs, &union(near.collect()))
    }

    /// What of these chunks of a volume no other one has.
    pub fn sole(&self, id: VolumeId, runs: Vec<DriveRun>) -> Vec<DriveRun> {
        if !self.has_shared {
            return runs;
        }
        let mut by_drive: BTreeMap<u16, Vec<ChunkRun>> = BTreeMap::new();
        runs.into_iter().for_each(|(drive, run)| by_drive.entry(drive).or_default().push(run));
        let left = |(drive, runs): (u16, Vec<ChunkRun>)| {
            let runs = union(runs);
            let left = without(&runs, &self.of_others(id, drive, &runs));
            left.into_iter().map(move |run| (drive, run)).collect::<Vec<_>>()
        };
        by_drive.into_iter().flat_map(left).collect()
    }

    /// Chunks that were taken for a change that is not made: of `after`, and no volume's.
    pub fn taken_for(&self, after: &Volume) -> Vec<DriveRun> {
        let all = after.parts.iter().flat_map(|(drive, part)| part.extents.iter().map(|e| (*drive, e.run)));
        let mut by_drive: BTreeMap<u16, Vec<ChunkRun>> = BTreeMap::new();
        all.for_each(|(drive, run)| by_drive.entry(drive).or_default().push(run));
        let taken = |(drive, runs): (u16, Vec<ChunkRun>)| {
            let extents = self.volumes.values().filter_map(|v| v.parts.get(&drive)).flat_map(|p| &p.extents);
            let left = without(&union(runs), &union(extents.map(|e| e.run).collect()));
            left.into_iter().map(move |run| (drive, run)).collect::<Vec<_>>()
        };
        by_drive.into_iter().flat_map(taken).collect()
    }

    /// Whether another volume has some of its chunks too.
    pub fn shares(&self, volume: &Volume) -> bool {
        let shared = |(drive, part): (&u16, &Part)| {
            let own = union(part.extents.iter().map(|e| e.run).collect());
            !self.of_others(volume.id, *drive, &own).is_empty()
        };
        self.has_shared && volume.parts.iter().any(shared)
    }

    /// Snapshots of a volume.
    pub fn snapshots_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Volume> + 'a {
        self.volumes.values().filter(move |v| v.origin() == Some(name))
    }

    /// Refuses what is not done to a volume with snapshots, nor to one.
    pub fn without_snapshots(&self, volume: &Volume) -> Result<(), PoolError> {
        let mut snapshots = self.snapshots_of(&volume.name);
        match snapshots.next() {
            Some(one) => Err(PoolError::HasSnapshots(volume.name.clone(), 1 + snapshots.count(), one.name.clone())),
            None => self.no_snapshot(volume),
        }
    }

    /// Refuses what is not done to a snapshot.
    pub fn no_snapshot(&self, volume: &Volume) -> Result<(), PoolError> {
        match volume.origin() {
            Some(_) => Err(PoolError::IsSnapshot(volume.name.clone())),
            None => Ok(()),
        }
    }

    /// What a snapshot or a clone comes to: a volume with the chunks of another one.
    pub fn share(&mut self, request: &PoolRequest, version: u64) -> Result<Volume, PoolError> {
        let (from, name, tenant, uuid) = match request {
            PoolRequest::Snapshot { name, snapshot, uuid } => {
                let from = self.named(name)?;
                self.no_snapshot(&from)?;
                check_name(snapshot).map_err(|why| PoolError::Name(snapshot.clone(), why))?;
                let name = format!("{name}{SNAPSHOT_MARK}{snapshot}");
                if self.names.contains_key(&name) {
                    return Err(PoolError::Exists(name));
                }
                let tenant = from.tenant.clone();
                (from, name, tenant, *uuid)
            }
            PoolRequest::Clone { snapshot, name, tenant, uuid } => {
                let from = self.snapshot(snapshot)?;
                self.may_be_called(name)?;
                check_name(tenant).map_err(|why| PoolError::Name(tenant.clone(), why))?;
                (from, name.clone(), tenant.clone(), *uuid)
            }
            _ => return Err(PoolError::Busy),
        };
        if self.layout < MIRRORED {
            return Err(PoolError::Layout(self.name.clone()));
        }
        self.may_share(&from)?;
        // Nobody writes the chunks that both have from now on.
        let written = Vec::new();
        Ok(with_parts(Volume { id: VolumeId(version), name, tenant, uuid, written, ..from.clone() }, &from, version))
    }

    /// What a rollback comes to: the volume before it, and after it with the chunks of its snapshot.
    pub fn roll_back(&self, snapshot: &str, version: u64) -> Result<(Volume, Volume), PoolError> {
        let from = self.snapshot(snapshot)?;
        let before = self.named(from.origin().unwrap_or_default())?;
        self.may_share(&from)?;
        // No copy of the snapshot is stale, and nobody writes what it has.
        let (stale, written) = (BTreeMap::new(), Vec::new());
        let after = Volume { chunks: from.chunks, stale, written, ..before.clone() };
        Ok((before, with_parts(after, &from, version)))
    }

    fn snapshot(&self, name: &str) -> Result<Volume, PoolError> {
        match self.named(name)? {
            volume if volume.origin().is_some() => Ok(volume),
            volume => Err(PoolError::NoSnapshot(volume.name)),
        }
    }

    fn may_share(&self, volume: &Volume) -> Result<(), PoolError> {
        if !self.is_degraded(volume) && volume.stale.is_empty() {
            return Ok(());
        }
        Err(match self.readable(volume) == u64::from(volume.chunks) {
            true => PoolError::OneCopy(volume.name.clone()),
            false => PoolError::Degraded(volume.name.clone()),
        })
    }

    /// Where these chunks of a volume lie, on drives that are there.
    pub fn pairs(&self, volume: &Volume, runs: &[ChunkRun]) -> Vec<Pair> {
        let here = |drive: u16| Some(usize::from(drive)).filter(|d| self.drives[*d].is_here());
        let segments = volume.segments(here).unwrap_or_default();
        let pieces = segments.iter().filter(|s| !s.lost).flat_map(|s| pieces_of_segment(s, runs));
        let pair = |s: VolumeSegment| {
            let second = s.second.map(|second| (second.drive, second.start, second.state));
            let copies = [Some((s.drive, s.start, CopyState::Good)), second].into_iter().flatten();
            let copies = copies.filter(|(.., state)| *state != CopyState::Lost);
            let copies = copies.map(|(drive, start, state)| (drive as u16, start, state)).collect();
            Pair { logical: s.logical, len: s.len, copies }
        };
        pieces.map(pair).collect()
    }

    /// Places of their own for those of these chunks of a volume that others have too; chunks are taken, nothing else has changed.
    fn places_for(&mut self, volume: &Volume, runs: &[ChunkRun]) -> Result<Vec<Move>, PoolError> {
        let mut moves: Vec<Move> = Vec::new();
        for pair in self.pairs(volume, runs) {
            if let Err(why) = self.places_for_pair(volume, &pair, &mut moves) {
                moves.iter().for_each(|m| self.drives[usize::from(m.to.0)].buddy.give(m.to.1));
                return Err(why);
            }
        }
        Ok(moves)
    }

    fn places_for_pair(&mut self, volume: &Volume, pair: &Pair, moves: &mut Vec<Move>) -> Result<(), PoolError> {
        // Two copies never lie on one drive.
        let mut not: BTreeSet<u16> = pair.copies.iter().map(|(drive, ..)| *drive).collect();
        let sources: Vec<(u16, u32)> =
            pair.copies.iter().filter(|c| c.2 == CopyState::Good).map(|(drive, start, _)| (*drive, *start)).collect();
        for (drive, start, _) in &pair.copies {
            for run in self.of_others(volume.id, *drive, &[ChunkRun { start: *start, len: pair.len }]) {
                let skip = run.start - start;
                not.remove(drive);
                let taken = self.take_beside(volume, (*drive, run.len), &not);
                not.insert(*drive);
                let mut done = skip;
                for (to, fresh) in taken? {
                    not.insert(to);
                    let at = |(drive, start): (u16, u32)| (drive, ChunkRun { start: start + done, len: fresh.len });
                    let own = sources.iter().copied().find(|(of, _)| of == drive);
                    let others = sources.iter().copied().filter(|(of, _)| of != drive);
                    let mut from = own.into_iter().chain(others).map(at);
                    let (Some(first), or_from) = (from.next(), from.next()) else { continue };
                    let logical = pair.logical + done;
                    moves.push(Move { logical, leaves: *drive, from: first, or_from, to: (to, fresh) });
                    done += fresh.len;
                }
            }
        }
        Ok(())
    }

    /// So many chunks on that drive, and where it has not so many, on others that the volume lies on, but for those.
    fn take_beside(
        &mut self,
        volume: &Volume,
        (drive, len): (u16, u32),
        not: &BTreeSet<u16>,
    ) -> Result<Vec<DriveRun>, PoolError> {
        let others = volume.parts.iter().filter(|(d, part)| **d != drive && !part.extents.is_empty()).map(|(d, _)| *d);
        let others = others.filter(|d| !not.contains(d));
        let (mut taken, mut left): (Vec<DriveRun>, u32) = (Vec::new(), len);
        for drive in core::iter::once(drive).chain(others) {
            let place = &mut self.drives[usize::from(drive)];
            let most = if place.is_here() { left.min(place.buddy.free()) } else { 0 };
            let runs = place.buddy.take(most).unwrap_or_default();
            taken.extend(runs.into_iter().map(|run| (drive, run)));
            left -= most;
        }
        if left == 0 {
            return Ok(taken);
        }
        taken.iter().for_each(|(drive, run)| self.drives[usize::from(*drive)].buddy.give(*run));
        Err(PoolError::Space(len.into(), (len - left).into()))
    }
}

/// What of a segment has those chunks of the volume.
fn pieces_of_segment(segment: &VolumeSegment, wanted: &[ChunkRun]) -> Vec<VolumeSegment> {
    let own = [ChunkRun { start: segment.logical, len: segment.len }];
    common(&own, wanted).into_iter().map(|run| segment.part(run.start - segment.logical, run.len)).collect()
}

/// A volume with the parts of another one, in a version of its own.
fn with_parts(mut volume: Volume, from: &Volume, version: u64) -> Volume {
    let extents = from.parts.iter().filter(|(_, part)| !part.extents.is_empty());
    let part = |(drive, part): (&u16, &Part)| (*drive, Part { version, extents: part.extents.clone() });
    volume.parts = extents.map(part).collect();
    volume.parts.entry(volume.home).or_insert(Part { version, extents: Vec::new() });
    volume
}

impl ChangePlan<'_> {
    /// What a volume's drives hold of what hosts have written is durable before another one has it too.
    pub fn flush_all(&mut self, volume: &Volume) {
        let here = |drive: &u16| self.books.drives[usize::from(*drive)].is_here();
        let parts = volume.parts.iter().filter(|(_, part)| !part.extents.is_empty()).map(|(drive, _)| *drive);
        let drives: Vec<u16> = parts.filter(here).collect();
        self.steps.extend(drives.into_iter().map(ChangeStep::Flush));
    }

    /// The steps before a volume has chunks of its own: they are given up, then filled, and durable.
    fn copy(&mut self, moves: &[Move]) {
        let mut by_drive: BTreeMap<u16, Vec<ChunkRun>> = BTreeMap::new();
        moves.iter().for_each(|m| by_drive.entry(m.to.0).or_default().push(m.to.1));
        for (drive, runs) in &by_drive {
            self.entry(*drive, &[Record::Dirty(runs.clone())], None);
        }
        for Move { from, or_from, to, .. } in moves {
            for done in 0..to.1.len {
                let at = |(drive, run): DriveRun| (drive, run.start + done);
                self.steps.push(ChangeStep::Copy { from: at(*from), or_from: or_from.map(at), to: at(*to) });
            }
        }
        self.steps.extend(by_drive.keys().map(|drive| ChangeStep::Flush(*drive)));
    }
}

impl Pool {
    /// How often a volume has got other chunks since the pool was opened: of two layouts of a volume the one with more counts.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The volume's chunks that the request names are its own from then on. Nothing to do, if they are.
    pub(crate) fn unshare(&mut self, id: VolumeId, runs: &[ChunkRun]) -> Result<PoolEffect, PoolError> {
        let before = self.books.volumes.get(&id).cloned();
        let before = before.ok_or_else(|| PoolError::Unknown(format!("number {}", id.0)))?;
        if before.copies > 1 && self.books.is_returning(&before) {
            // Who writes the volume may not know of a copy there yet.
            return Err(PoolError::Busy);
        }
        let mut runs = union(runs.to_vec());
        if before.origin().is_some() {
            // A snapshot is not written: at most a copy of it is rebuilt.
            let stale = union(before.stale.values().flatten().copied().collect());
            runs = common(&runs, &stale);
        }
        let moves = match self.books.has_shared {
            true => self.books.places_for(&before, &runs)?,
            false => Vec::new(),
        };
        if moves.is_empty() {
            return Ok(PoolEffect::Finished(Ok(PoolAnswer::Volume(id))));
        }
        let mut after = before.clone();
        let places = self.books.places();
        self.books.counter += 1;
        after.moved(&moves, self.books.counter);
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        plan.copy(&moves);
        plan.steps.push(ChangeStep::Switch(id));
        let (steps, full) = (plan.steps, plan.full);
        if let Some(full) = full {
            self.books.put_back(places);
            moves.iter().for_each(|m| self.books.drives[usize::from(m.to.0)].buddy.give(m.to.1));
            return Err(PoolError::Full(self.books.drives[usize::from(full)].name.clone()));
        }
        self.work = steps.into();
        self.uncommitted = Some(Uncommitted { before: Some(before), after: Some(after), is_filled: true });
        self.answer = Some(PoolAnswer::Volume(id));
        Ok(self.go_on())
    }

    /// The copies are durable: the steps by which the volume has them.
    pub(crate) fn switch(&mut self, id: VolumeId) {
        let Some(Uncommitted { before, after, .. }) = &self.uncommitted else { return };
        let (before, after) = (before.clone(), after.clone());
        let places = self.books.places();
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        plan.change(id, before.as_ref(), after, Vec::new());
        let (steps, full) = (plan.steps, plan.full);
        match full {
            None => steps.into_iter().rev().for_each(|step| self.work.push_front(step)),
            Some(full) => {
                self.books.put_back(places);
                self.give_up_copies(PoolError::Full(self.books.drives[usize::from(full)].name.clone()));
            }
        }
    }

    /// A chunk could not be copied: from the other copy of the pair, if that was not tried, else without it, where the other chunk of the new
    /// pair has what it is to have.
    pub(crate) fn copy_failed(&mut self, copying: Option<Copying>, why: String) {
        match copying {
            Some(Copying::Chunk { or_from: Some(from), to }) => {
                self.work.push_front(ChangeStep::Copy { from, or_from: None, to });
            }
            Some(Copying::Chunk { or_from: None, to })
                if self.do_without_new(to.0, ChunkRun { start: to.1, len: 1 }) => {}
            Some(Copying::Flush(drive)) if self.do_without_new(drive, ChunkRun { start: 0, len: u32::MAX }) => {}
            _ => {
                let why = not_copied(self, why);
                return self.give_up_copies(why);
            }
        }
        self.retreat = Retreat::Uncopied(None);
    }

    /// Those of these chunks of a drive that were taken are stale when the change counts. `false`: of one of them there is no other copy.
    fn do_without_new(&mut self, drive: u16, failed: ChunkRun) -> bool {
        let Some(Uncommitted { before: Some(before), after: Some(after), .. }) = &mut self.uncommitted else {
            return false;
        };
        let (Some(part), 2..) = (after.parts.get(&drive), after.copies) else { return false };
        let had = before.parts.get(&drive).map_or(&[][..], |part| &part.extents[..]);
        let had = union(had.iter().map(|e| e.run).collect());
        let logical = |e: &Extent, run: ChunkRun| ChunkRun { start: e.logical + (run.start - e.run.start), ..run };
        let fresh = |e: &Extent| without(&common(&[e.run], &[failed]), &had);
        let new: Vec<ChunkRun> = part
            .extents
            .iter()
            .flat_map(|e| fresh(e).into_iter().map(|run| logical(e, run)).collect::<Vec<_>>())
            .collect();
        let stale = after.stale.entry(drive).or_default();
        *stale = union(stale.iter().copied().chain(new).collect());
        after.stale.retain(|_, runs| !runs.is_empty());
        self.books.readable(after) == self.books.readable(before)
    }

    /// The volume keeps the chunks that it has, and what was taken is emptied.
    pub(crate) fn give_up_copies(&mut self, why: PoolError) {
        self.work.clear();
        self.retreat = Retreat::None;
        let taken = self.uncommitted.take().and_then(|change| change.after).map(|after| self.books.taken_for(&after));
        let taken = taken.unwrap_or_default();
        taken.iter().for_each(|(drive, run)| self.books.drives[usize::from(*drive)].dirty.push(*run));
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        plan.unmap(&taken);
        let steps = plan.steps;
        self.work.extend(steps);
        self.refusal = Some(why);
    }

    /// What was asked for came to nothing, if the steps that are over say so.
    pub(crate) fn finish(&mut self, answer: PoolAnswer) -> PoolEffect {
        PoolEffect::Finished(self.refusal.take().map_or(Ok(answer), Err))
    }

    /// Chunks may be had by several volumes.
    pub fn has_shared(&self) -> bool {
        self.books.has_shared
    }

    /// Where some chunks of a volume lie.
    pub fn locate(&self, id: VolumeId, runs: &[ChunkRun]) -> Vec<VolumeSegment> {
        let Some(volume) = self.books.volumes.get(&id) else { return Vec::new() };
        let runs = union(runs.to_vec());
        let segments = volume.segments(|drive| self.books.position_of(drive)).unwrap_or_default();
        self.with_shared(id, segments.iter().flat_map(|s| pieces_of_segment(s, &runs)).collect())
    }

    /// What of segments of a volume may not be written before it has a place of its own is said of each.
    pub(crate) fn with_shared(&self, id: VolumeId, segments: Vec<VolumeSegment>) -> Vec<VolumeSegment> {
        if !self.books.has_shared {
            return segments;
        }
        let mut others: BTreeMap<usize, Vec<ChunkRun>> = BTreeMap::new();
        for (number, drive) in (0u16..).zip(&self.books.drives).filter(|(_, d)| d.is_here()) {
            let lie = segments.iter().flat_map(VolumeSegment::places).filter(|(place, _)| *place == drive.position);
            let own = union(lie.map(|(_, run)| run).collect());
            others.insert(drive.position, self.books.of_others(id, number, &own));
        }
        let cut = |s: &VolumeSegment| {
            let shared = |(place, run): (usize, ChunkRun)| {
                let others = others.get(&place).map(|others| common(&[run], others)).unwrap_or_default();
                others.into_iter().map(move |other| ChunkRun { start: other.start - run.start, len: other.len })
            };
            let shared = union(s.places().flat_map(shared).collect());
            let alone = without(&[ChunkRun { start: 0, len: s.len }], &shared);
            let piece = |run: &ChunkRun, shared| VolumeSegment { shared, ..s.part(run.start, run.len) };
            let alone = alone.iter().map(|run| piece(run, false));
            let mut pieces: Vec<VolumeSegment> = alone.chain(shared.iter().map(|run| piece(run, true))).collect();
            pieces.sort_unstable_by_key(|piece| piece.logical);
            pieces
        };
        segments.iter().flat_map(cut).collect()
    }

    /// Bytes of a volume that no other one has: what deleting it gives back.
    pub fn own_bytes(&self, volume: &Volume) -> u64 {
        let all = volume.parts.iter().flat_map(|(drive, part)| part.extents.iter().map(|e| (*drive, e.run))).collect();
        self.books.sole(volume.id, all).iter().map(|(_, run)| u64::from(run.len) * CHUNK).sum()
    }
}

/// A drive that does not copy, as messages call it.
pub(crate) fn not_copied(pool: &Pool, why: String) -> PoolError {
    PoolError::NotCopied(pool.drive_name(pool.at).to_string(), why)
}
