//! Requests: the commit of each.

use super::edit::{RecordEdit, Transition, UsedBy, edit};
use super::event::{BlockPlace, GrantedExtent, SpaceAnswer, SpaceEffect, SpaceError, SpaceRequest, SpaceRequestId};
use super::machine::{RegionEdit, Space, SpaceChange};
use super::record::{ExtentRecord, ExtentUse, extent_key, generation, lease_key};
use super::region::{EpochMark, RegionSpace};
use super::{BATCH, BLOCK_MAX, GRAIN, GRANT_AHEAD};
use crate::kv::{Commit, Expect, KvWrite, Revision};
use crate::mutant::Mutant;
use crate::{Extent, InodeId, RegionId, SessionId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The changes of several regions.
type Transitions = BTreeMap<RegionId, Vec<Transition>>;

impl Space {
    pub(super) fn request(&mut self, id: SpaceRequestId, request: SpaceRequest, effects: &mut Vec<SpaceEffect>) {
        let result = match request {
            SpaceRequest::Grant { session, region, block, count, with } => {
                self.grant(id, session, region, (block, count), with, effects)
            }
            SpaceRequest::Publish { session, map, unmap, with } => {
                self.publish(id, session, &map, &unmap, with, effects)
            }
            SpaceRequest::Free { inode, extents, with } => {
                let transitions = self.quarantining(UsedBy::Inode(inode), &extents);
                let mark = self.mark_unless(&[Mutant::NoQuarantine]);
                transitions.and_then(|transitions| self.change(id, &transitions, mark, with, effects))
            }
            SpaceRequest::Return { session, extents } => {
                let transitions = self.quarantining(UsedBy::Session(session), &extents);
                let mark = self.mark_unless(&[Mutant::NoQuarantine]);
                transitions.and_then(|transitions| self.change(id, &transitions, mark, Commit::default(), effects))
            }
            SpaceRequest::Fence { session } => {
                self.fencing.entry(session).or_default().push(id);
                Ok(())
            }
        };
        if let Err(why) = result {
            effects.push(SpaceEffect::Answer(id, Err(why)));
        }
    }

    /// How far is what goes into quarantine: nowhere, without one of these faults.
    fn mark_unless(&self, mutants: &[Mutant]) -> EpochMark {
        if mutants.iter().any(|mutant| self.planted.is(*mutant)) { EpochMark::Skips } else { EpochMark::None }
    }

    fn grant(
        &mut self,
        id: SpaceRequestId,
        session: SessionId,
        region: RegionId,
        (block, count): (u64, u64),
        with: Commit,
        effects: &mut Vec<SpaceEffect>,
    ) -> Result<(), SpaceError> {
        if !(GRAIN..=BLOCK_MAX).contains(&block) || block % GRAIN != 0 || count == 0 {
            return Err(SpaceError::Malformed);
        }
        let ahead = GRANT_AHEAD.saturating_sub(self.granted_to(session)) / block;
        if ahead == 0 {
            return Err(SpaceError::Ahead);
        }
        if self.fencing.contains_key(&session) {
            return Err(SpaceError::Conflict);
        }
        let space = self.regions.get_mut(&region).ok_or(SpaceError::NotLeased(region))?;
        let (true, Some(lease)) = (space.is_open(), space.lease) else { return Err(SpaceError::Busy) };
        if generation(lease.term, 0).is_none() {
            return Err(SpaceError::UsedUp(region));
        }
        let taken = space.reserve(session, block, count.min(ahead));
        let Some(edit) = grant_edit(space, session, &taken).filter(|edit| !edit.new.is_empty()) else {
            // The term has no more numbers, or nothing is free.
            let (full, none) = (taken.is_empty(), RecordEdit { old: Vec::new(), new: as_new(&taken, session) });
            space.begin(&none);
            space.end(&none, None, EpochMark::None);
            self.note(region);
            if !full {
                self.raise_own_term(region, effects);
            }
            return Err(if full { SpaceError::Full } else { SpaceError::Busy });
        };
        let granted = edit.new.iter().map(|(offset, record)| GrantedExtent {
            extent: space.extent(*offset, record.len),
            generation: record.generation,
        });
        let answer = SpaceAnswer::Granted(granted.collect());
        let early = self.planted.is(Mutant::GrantBeforeCommit);
        if early {
            effects.push(SpaceEffect::Answer(id, Ok(answer.clone())));
        }
        let edits = alloc::vec![RegionEdit { region, life: space.life, term: lease.term, edit }];
        let answer = (!early).then_some((id, answer));
        self.commit_change(answer, edits, EpochMark::None, with, effects)
    }

    fn publish(
        &mut self,
        id: SpaceRequestId,
        session: SessionId,
        map: &[BlockPlace],
        unmap: &[(InodeId, Extent)],
        with: Commit,
        effects: &mut Vec<SpaceEffect>,
    ) -> Result<(), SpaceError> {
        let mut transitions = Transitions::new();
        for place in map {
            let to = ExtentUse::Mapped(place.inode, place.block);
            self.add(&mut transitions, &place.extent, UsedBy::Session(session), to)?;
        }
        for (inode, extent) in unmap {
            self.add(&mut transitions, extent, UsedBy::Inode(*inode), ExtentUse::Quarantined)?;
        }
        let mark = self.mark_unless(&[Mutant::NoQuarantine, Mutant::TailWithoutQuarantine]);
        self.change(id, &transitions, mark, with, effects)
    }

    fn quarantining(&self, from: UsedBy, extents: &[Extent]) -> Result<Transitions, SpaceError> {
        let mut transitions = Transitions::new();
        for extent in extents {
            self.add(&mut transitions, extent, from, ExtentUse::Quarantined)?;
        }
        Ok(transitions)
    }

    fn add(&self, to: &mut Transitions, extent: &Extent, from: UsedBy, used: ExtentUse) -> Result<(), SpaceError> {
        let region = self.region_of(extent).ok_or(SpaceError::Elsewhere)?;
        let (offset, len) = (extent.offset.get(), extent.length.get());
        to.entry(region).or_default().push(Transition { offset, len, from, to: used });
        Ok(())
    }

    fn change(
        &mut self,
        id: SpaceRequestId,
        transitions: &Transitions,
        mark: EpochMark,
        with: Commit,
        effects: &mut Vec<SpaceEffect>,
    ) -> Result<(), SpaceError> {
        if transitions.is_empty() {
            return Err(SpaceError::Malformed);
        }
        let mut edits = Vec::new();
        for (region, transitions) in transitions {
            let space = self.regions.get(region).ok_or(SpaceError::NotLeased(*region))?;
            let (true, Some(lease)) = (space.is_open(), space.lease) else { return Err(SpaceError::Busy) };
            if transitions.iter().any(|t| space.is_locked(t.offset, t.len)) {
                return Err(SpaceError::Busy);
            }
            let edit = edit(&space.records, transitions)?;
            edits.push(RegionEdit { region: *region, life: space.life, term: lease.term, edit });
        }
        let answer = (id, SpaceAnswer::Done(Revision::default()));
        self.commit_change(Some(answer), edits, mark, with, effects)
    }

    /// Sends the commit of a change. Where it is too large what was reserved is free again.
    pub(super) fn commit_change(
        &mut self,
        answer: Option<(SpaceRequestId, SpaceAnswer)>,
        edits: Vec<RegionEdit>,
        mark: EpochMark,
        with: Commit,
        effects: &mut Vec<SpaceEffect>,
    ) -> Result<(), SpaceError> {
        let mut commit = with;
        for RegionEdit { region, edit, .. } in &edits {
            if let Some(lease) = self.regions.get(region).and_then(|space| space.lease) {
                commit.expect.push((lease_key(*region), Expect::Value(lease.encode())));
            }
            add_edit(&mut commit, *region, edit);
        }
        let Some(probe) = edits.iter().find_map(|edit| probe(edit.region, &edit.edit)) else {
            return Err(SpaceError::Malformed);
        };
        if !commit.is_legal() {
            for RegionEdit { region, edit, .. } in &edits {
                if let Some(space) = self.regions.get_mut(region) {
                    space.begin(edit);
                    space.end(edit, None, mark);
                }
                self.note(*region);
            }
            return Err(SpaceError::TooLarge);
        }
        let change = SpaceChange { answer, edits, mark, probe, unchecked: Vec::new() };
        self.send(change, commit, effects);
        Ok(())
    }

    /// Puts into quarantine what fenced sessions were granted, a batch of each region at a time.
    pub(super) fn go_on_fencing(&mut self, effects: &mut Vec<SpaceEffect>) {
        let sessions: Vec<SessionId> = self.fencing.keys().copied().collect();
        for session in sessions {
            if self.granted_to(session) == 0 {
                let ids = self.fencing.remove(&session).unwrap_or_default();
                effects.extend(ids.into_iter().map(|id| SpaceEffect::Answer(id, Ok(SpaceAnswer::Fenced))));
                continue;
            }
            let regions: Vec<RegionId> = self.granted_in(session).collect();
            regions.into_iter().for_each(|region| self.fence_some(session, region, effects));
        }
    }

    fn fence_some(&mut self, session: SessionId, region: RegionId, effects: &mut Vec<SpaceEffect>) {
        let Some(space) = self.regions.get(&region).filter(|space| space.is_open() && space.granted_to(session) > 0)
        else {
            return;
        };
        let granted = space
            .records
            .iter()
            .filter(|(offset, record)| record.used == ExtentUse::Granted(session) && !space.locked.contains(offset));
        let to = ExtentUse::Quarantined;
        let old: Vec<(u64, ExtentRecord)> = granted.take(BATCH).map(|(offset, record)| (*offset, *record)).collect();
        let new = old.iter().map(|(offset, record)| (*offset, ExtentRecord { used: to, ..*record })).collect();
        let Some(lease) = space.lease.filter(|_| !old.is_empty()) else { return };
        let mark = self.mark_unless(&[Mutant::NoQuarantine]);
        let edit = RecordEdit { old, new };
        let edits = alloc::vec![RegionEdit { region, life: space.life, term: lease.term, edit }];
        // A batch is always legal; should it not be, the next event tries again.
        let _ = self.commit_change(None, edits, mark, Commit::default(), effects);
    }
}

/// The records of a grant; `None` when the term has no more numbers.
fn grant_edit(space: &mut RegionSpace, session: SessionId, taken: &[(u64, u64)]) -> Option<RecordEdit> {
    let term = space.lease?.term;
    let mut new = as_new(taken, session);
    for (_, record) in &mut new {
        record.generation = generation(term, space.grants)?;
        space.grants += 1;
    }
    Some(RecordEdit { old: Vec::new(), new })
}

fn as_new(taken: &[(u64, u64)], session: SessionId) -> Vec<(u64, ExtentRecord)> {
    let used = ExtentUse::Granted(session);
    taken
        .iter()
        .map(|(offset, len)| (*offset, ExtentRecord { len: *len, generation: Default::default(), used }))
        .collect()
}

/// The preconditions and the changes of an edit.
fn add_edit(commit: &mut Commit, region: RegionId, edit: &RecordEdit) {
    for (offset, record) in &edit.old {
        commit.expect.push((extent_key(region, *offset), Expect::Value(record.encode())));
        if !edit.new.iter().any(|(new, _)| new == offset) {
            commit.writes.push(KvWrite::Delete(extent_key(region, *offset)));
        }
    }
    for (offset, record) in &edit.new {
        if edit.old.is_empty() {
            commit.expect.push((extent_key(region, *offset), Expect::Absent));
        }
        commit.writes.push(KvWrite::Put(extent_key(region, *offset), record.encode()));
    }
}

/// A key that an edit changes, and the value that it has afterwards.
fn probe(region: RegionId, edit: &RecordEdit) -> Option<(crate::kv::KvKey, Option<Vec<u8>>)> {
    let changed = |(offset, record): &&(u64, ExtentRecord)| !edit.old.contains(&(*offset, *record));
    if let Some((offset, record)) = edit.new.iter().find(changed) {
        return Some((extent_key(region, *offset), Some(record.encode())));
    }
    edit.old.first().map(|(offset, _)| (extent_key(region, *offset), None))
}
