//! The machine: see [the module](super).

use super::edit::{RecordEdit, record_of};
use super::event::{MappedExtent, SpaceAnswer, SpaceEffect, SpaceError, SpaceEvent, SpaceRequestId};
use super::index::RegionIndex;
use super::record::{Epoch, ExtentUse, lease_key};
use super::region::{EpochMark, RegionPhase, RegionSpace, RegionUse};
use crate::kv::{Commit, CommitOutcome, KvAnswer, KvKey, KvRequest, KvToken, Revision};
use crate::mutant::{Mutant, Planted};
use crate::placement::OwnRoom;
use crate::{Extent, Generation, RegionId, ServiceId, SessionId, Term};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// What a commit does to a region.
#[derive(Clone, Debug)]
pub(super) struct RegionEdit {
    pub region: RegionId,
    /// Since when the region was this service's: an edit of an earlier time does nothing.
    pub life: u64,
    /// The term that it was sent with.
    pub term: Term,
    pub edit: RecordEdit,
}

/// A commit under way.
#[derive(Clone, Debug)]
pub(super) struct SpaceChange {
    /// Who waits for it, and what it is told when the commit was made; nobody for upkeep.
    pub answer: Option<(SpaceRequestId, SpaceAnswer)>,
    pub edits: Vec<RegionEdit>,
    /// How far what it quarantines is.
    pub mark: EpochMark,
    /// A key that it writes, and the value that the key has if it was made.
    pub probe: (KvKey, Option<Vec<u8>>),
    /// It conflicts: regions whose lease is to be looked at.
    pub unchecked: Vec<RegionId>,
}

/// What an answer of Kv is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// Whether the change of that number was made.
    Change(KvToken),
    /// After a conflict: whether it was made nevertheless.
    Again(KvToken),
    /// After a conflict: who has the region.
    Holder(KvToken, RegionId),
    /// After an unknown outcome and a new term: whether it was made.
    Probe(KvToken),
    /// Of a region since that time: an answer to an earlier one says nothing.
    Raise(RegionId, u64),
    Lease(RegionId, u64),
    Page(RegionId, u64),
    EpochRaise(Epoch),
    EpochRead,
}

/// See [the module](super).
#[derive(Clone, Debug)]
pub struct Space {
    pub(super) me: ServiceId,
    pub(super) regions: BTreeMap<RegionId, RegionSpace>,
    pub(super) index: RegionIndex,
    pub(super) changes: BTreeMap<KvToken, SpaceChange>,
    /// Changes of unknown outcome that wait for a term.
    pub(super) unknown: Vec<KvToken>,
    awaited: BTreeMap<KvToken, Awaited>,
    last_token: u64,
    /// Reads that were not answered.
    pub(super) unanswered: Vec<(Awaited, KvRequest)>,
    /// Sessions that are being fenced, and all requests that wait for it.
    pub(super) fencing: BTreeMap<SessionId, Vec<SpaceRequestId>>,
    pub(super) epoch: Option<Epoch>,
    pub(super) horizon: Epoch,
    pub(super) durable: Revision,
    pub(crate) planted: Planted,
}

impl Space {
    /// The machine of a service that has no region. A service that starts again has another number.
    pub fn new(me: ServiceId) -> Self {
        Self {
            me,
            regions: BTreeMap::new(),
            index: RegionIndex::default(),
            changes: BTreeMap::new(),
            unknown: Vec::new(),
            awaited: BTreeMap::new(),
            last_token: 0,
            unanswered: Vec::new(),
            fencing: BTreeMap::new(),
            epoch: None,
            horizon: Epoch::default(),
            durable: Revision::default(),
            planted: Planted::default(),
        }
    }

    /// Its regions that are up, and the term of each.
    pub fn regions(&self) -> impl Iterator<Item = (RegionId, Term)> + '_ {
        let up = self.regions.iter().filter(|(_, region)| region.phase == RegionPhase::Up);
        up.filter_map(|(id, region)| Some((*id, region.lease?.term)))
    }

    /// Bytes of a region by use; nothing if it is not up here.
    pub fn usage(&self, region: RegionId) -> Option<RegionUse> {
        self.regions.get(&region).filter(|region| region.phase == RegionPhase::Up).map(RegionSpace::usage)
    }

    /// The epoch that is to be acknowledged for what is in quarantine, as far as it was raised.
    pub fn epoch(&self) -> Epoch {
        self.epoch.unwrap_or_default()
    }

    /// Whether all bytes of an extent are granted to a session, and not published.
    pub fn is_granted(&self, session: SessionId, extent: &Extent) -> bool {
        let region = self.region_of(extent).and_then(|region| self.regions.get(&region));
        region.is_some_and(|region| region.is_granted(session, extent.offset.get(), extent.length.get()))
    }

    /// Whether what a session was granted is being given up.
    pub fn is_fencing(&self, session: SessionId) -> bool {
        self.fencing.contains_key(&session)
    }

    /// The first mapped extent of a region from that offset on; nothing where the region is not up here.
    pub fn next_mapped(&self, region: RegionId, from: u64) -> Option<MappedExtent> {
        let space = self.regions.get(&region).filter(|space| space.phase == RegionPhase::Up)?;
        space.records.range(from..).find_map(|(offset, record)| match record.used {
            ExtentUse::Mapped(inode, block) => {
                Some(MappedExtent { extent: space.extent(*offset, record.len), inode, block })
            }
            ExtentUse::Granted(_) | ExtentUse::Quarantined => None,
        })
    }

    /// How many extents of a region are mapped, and their bytes.
    pub fn mapped(&self, region: RegionId) -> (u64, u64) {
        self.regions.get(&region).map_or((0, 0), RegionSpace::mapped)
    }

    /// The lifetime of an extent's bytes.
    pub fn generation(&self, extent: &Extent) -> Option<Generation> {
        let space = self.regions.get(&self.region_of(extent)?)?;
        record_of(&space.records, extent.offset.get(), extent.length.get()).map(|(_, record)| record.generation)
    }

    /// Requests, commits and reads under way.
    pub fn pending(&self) -> usize {
        self.changes.len()
            + self.awaited.len()
            + self.unanswered.len()
            + self.fencing.values().map(Vec::len).sum::<usize>()
    }

    /// One event; adds what it wants done.
    pub fn apply(&mut self, event: SpaceEvent, effects: &mut Vec<SpaceEffect>) {
        match event {
            SpaceEvent::Take(info) => self.take(info, effects),
            SpaceEvent::Refresh(region) => self.refresh(region, effects),
            SpaceEvent::Request(id, request) => self.request(id, request, effects),
            SpaceEvent::Kv(token, answer) => {
                let Some(awaited) = self.awaited.remove(&token) else { return };
                self.answered(token, awaited, answer, effects);
            }
            SpaceEvent::Horizon(epoch) => self.horizon = self.horizon.max(epoch),
            SpaceEvent::Durable(revision) => self.durable = self.durable.max(revision),
            SpaceEvent::Tick => {
                for (awaited, request) in core::mem::take(&mut self.unanswered) {
                    self.ask(awaited, request, effects);
                }
                self.upkeep(effects);
            }
        }
        self.go_on_fencing(effects);
    }

    fn answered(&mut self, token: KvToken, awaited: Awaited, answer: KvAnswer, effects: &mut Vec<SpaceEffect>) {
        if self.is_past(awaited) && !self.planted.is(Mutant::AnswerOfAnotherLife) {
            return;
        }
        match (awaited, answer) {
            (Awaited::Change(id), KvAnswer::Outcome(outcome)) => self.committed(id, outcome, effects),
            (Awaited::Raise(region, _), KvAnswer::Outcome(outcome)) => self.raised(region, outcome, effects),
            (Awaited::EpochRaise(epoch), KvAnswer::Outcome(outcome)) => self.epoch_raised(token, epoch, outcome),
            (Awaited::Again(id), KvAnswer::Value(Ok(value))) => self.found_again(id, value, effects),
            (Awaited::Holder(id, region), KvAnswer::Value(Ok(value))) => self.found_holder(id, region, value, effects),
            (Awaited::Probe(id), KvAnswer::Value(Ok(value))) => self.found_probe(id, value, effects),
            (Awaited::Lease(region, _), KvAnswer::Value(Ok(value))) => self.found_lease(region, value, effects),
            (Awaited::Page(region, _), KvAnswer::Page(Ok(page))) => self.found_page(region, page, effects),
            (Awaited::EpochRead, KvAnswer::Value(Ok(value))) => self.found_epoch(value),
            // No answer, or one of another kind than the request.
            (Awaited::Change(id), _) => self.outcome_unknown(id, effects),
            (Awaited::Raise(region, _), _) => self.raised(region, CommitOutcome::Unknown, effects),
            (Awaited::EpochRaise(epoch), _) => self.epoch_raised(token, epoch, CommitOutcome::Unknown),
            (awaited, _) => self.not_answered(awaited),
        }
    }

    /// Whether it was asked for a region as it was before it was lost, and perhaps taken again.
    fn is_past(&self, awaited: Awaited) -> bool {
        match awaited {
            Awaited::Raise(region, life) | Awaited::Lease(region, life) | Awaited::Page(region, life) => {
                self.regions.get(&region).is_none_or(|space| space.life != life)
            }
            _ => false,
        }
    }

    /// A read is asked again with the next upkeep.
    pub(super) fn not_answered(&mut self, awaited: Awaited) {
        let probe = |id| self.changes.get(&id).map(|change| KvRequest::Get(change.probe.0.clone()));
        let request = match awaited {
            Awaited::Change(id) | Awaited::Again(id) | Awaited::Probe(id) => probe(id),
            Awaited::Holder(_, region) | Awaited::Lease(region, _) | Awaited::Raise(region, _) => {
                Some(KvRequest::Get(lease_key(region)))
            }
            Awaited::Page(region, _) => self.page_request(region),
            Awaited::EpochRead | Awaited::EpochRaise(_) => Some(KvRequest::Get(Epoch::key())),
        };
        if let Some(request) = request {
            self.unanswered.push((awaited, request));
        }
    }

    /// Sends a request to Kv.
    pub(super) fn ask(&mut self, awaited: Awaited, request: KvRequest, effects: &mut Vec<SpaceEffect>) -> KvToken {
        self.last_token += 1;
        let token = KvToken(self.last_token);
        self.awaited.insert(token, awaited);
        effects.push(SpaceEffect::Kv(token, request));
        token
    }

    pub(super) fn is_awaited(&self, awaited: Awaited) -> bool {
        self.awaited.values().any(|a| *a == awaited) || self.unanswered.iter().any(|(a, _)| *a == awaited)
    }

    /// A number that no life of a region had before.
    pub(super) fn new_life(&self) -> u64 {
        self.last_token
    }

    /// Sends a change on its way, whose number is that of its commit.
    pub(super) fn send(&mut self, change: SpaceChange, commit: Commit, effects: &mut Vec<SpaceEffect>) {
        let id = KvToken(self.last_token + 1);
        for RegionEdit { region, edit, .. } in &change.edits {
            if let Some(region) = self.regions.get_mut(region) {
                region.begin(edit);
            }
        }
        change.edits.iter().for_each(|edit| self.note(edit.region));
        self.changes.insert(id, change);
        let sent = self.ask(Awaited::Change(id), KvRequest::Commit(commit), effects);
        debug_assert_eq!(sent, id, "a change has the number of its commit");
    }

    fn committed(&mut self, id: KvToken, outcome: CommitOutcome, effects: &mut Vec<SpaceEffect>) {
        match outcome {
            CommitOutcome::Done(revision) => self.finish(id, Ok(revision), effects),
            CommitOutcome::TooLarge => self.finish(id, Err(SpaceError::TooLarge), effects),
            CommitOutcome::Unknown => self.outcome_unknown(id, effects),
            CommitOutcome::Conflict => {
                // It conflicts also with itself, if it was carried out twice.
                let Some(change) = self.changes.get(&id) else { return };
                let probe = KvRequest::Get(change.probe.0.clone());
                self.ask(Awaited::Again(id), probe, effects);
            }
        }
    }

    /// A change is over: it was made, or never will be.
    pub(super) fn finish(&mut self, id: KvToken, result: Result<Revision, SpaceError>, effects: &mut Vec<SpaceEffect>) {
        let Some(change) = self.changes.remove(&id) else { return };
        for RegionEdit { region, life, edit, .. } in &change.edits {
            let Some(space) = self.regions.get_mut(region).filter(|space| space.life == *life) else { continue };
            // What is not known is read again, once nothing else is under way.
            space.refresh |= result == Err(SpaceError::Unknown);
            space.end(edit, result.ok(), change.mark);
        }
        for edit in &change.edits {
            self.note(edit.region);
            self.refresh_if_idle(edit.region, effects);
        }
        let Some((request, answer)) = change.answer else { return };
        let answer = match (result, answer) {
            (Ok(revision), SpaceAnswer::Done(_)) => Ok(SpaceAnswer::Done(revision)),
            (Ok(_), answer) => Ok(answer),
            (Err(why), _) => Err(why),
        };
        effects.push(SpaceEffect::Answer(request, answer));
    }

    /// Panics unless every byte of every region that is up has exactly one use, and every lock belongs to a change under way.
    pub fn check(&self) {
        self.check_index();
        for (id, region) in &self.regions {
            region.check();
            let edits = self.changes.values().flat_map(|change| &change.edits);
            let changes = edits.filter(|edit| edit.region == *id && edit.life == region.life);
            let locked: usize = changes.clone().map(|edit| edit.edit.old.len()).sum();
            assert_eq!(locked, region.locked.len(), "region {id}: a record is changed by one commit at a time");
            assert_eq!(changes.count(), region.commits, "region {id}: commits are counted");
            let ahead = region.sessions().into_iter().all(|session| region.granted_to(session) > 0);
            assert!(ahead, "region {id}: a session is listed while it has grants");
        }
    }
}

impl OwnRoom for Space {
    fn blocks(&self, region: RegionId, block: u64) -> u64 {
        // One that is being read again has room too: a grant is refused for a while, and the block is not taken of a worse class.
        self.regions.get(&region).filter(|region| region.was_up).map_or(0, |region| region.free.blocks(block))
    }

    fn is_freeing(&self, region: RegionId, block: u64) -> bool {
        let Some(space) = self.regions.get(&region).filter(|space| space.was_up) else { return false };
        let edits = self.changes.values().flat_map(|change| &change.edits);
        let edits = edits.filter(|edit| edit.region == region && edit.life == space.life);
        space.is_freeing(block, edits.map(|edit| &edit.edit))
    }

    fn free(&self, region: RegionId) -> u64 {
        self.regions.get(&region).filter(|region| region.was_up).map_or(0, |region| region.free.bytes())
    }

    fn take_changed(&mut self) -> BTreeSet<RegionId> {
        core::mem::take(&mut self.index.changed)
    }

    fn freeing(&self) -> BTreeSet<RegionId> {
        let edits = self.changes.values().flat_map(|change| &change.edits);
        self.tended().iter().copied().chain(edits.map(|edit| edit.region)).collect()
    }

    fn is_taking(&self) -> bool {
        self.takes_regions()
    }
}
