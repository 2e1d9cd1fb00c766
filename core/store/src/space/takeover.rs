//! The lease of a region: taking it, raising its term, reading its index, losing it.

use super::event::{SpaceEffect, SpaceError};
use super::machine::{Awaited, Space};
use super::record::{ExtentRecord, ExtentUse, RegionLease, extent_key, extents_end, lease_key, offset_of};
use super::region::{Contradiction, RegionInfo, RegionPhase, RegionSpace};
use super::{GRAIN, REGION_MIN};
use crate::kv::{Commit, CommitOutcome, Expect, KvKey, KvRequest, KvToken, KvWrite, RANGE_MAX, Versioned};
use crate::mutant::Mutant;
use crate::{RegionId, Term};
use alloc::vec::Vec;

impl Space {
    /// Takes a region; one that this service has, or is about to, stays as it is.
    pub(super) fn take(&mut self, info: RegionInfo, effects: &mut Vec<SpaceEffect>) {
        if self.regions.contains_key(&info.id) {
            return;
        }
        let (offset, length) = (info.extent.offset.get(), info.extent.length.get());
        let whole = offset % GRAIN == 0 && length % GRAIN == 0;
        let overlaps = self.is_overlapped(&info.extent);
        if length < REGION_MIN || !whole || info.extent.end().is_none() || overlaps {
            return effects.push(SpaceEffect::Damaged(info.id));
        }
        let life = self.new_life();
        self.regions.insert(info.id, RegionSpace::new(info, life));
        if self.begins_taking(info.id, &info.extent) {
            self.read_lease(info.id, effects);
        }
    }

    fn read_lease(&mut self, region: RegionId, effects: &mut Vec<SpaceEffect>) {
        if let Some(life) = self.regions.get(&region).map(|space| space.life) {
            self.ask(Awaited::Lease(region, life), KvRequest::Get(lease_key(region)), effects);
        }
    }

    /// A region is up, or is not this service's: another one may be taken.
    fn take_next(&mut self, region: RegionId, effects: &mut Vec<SpaceEffect>) {
        if let Some(next) = self.ends_taking(region) {
            self.read_lease(next, effects);
        }
    }

    /// Sends the commit that raises the term of a region from what it was.
    fn raise(&mut self, region: RegionId, from: Option<RegionLease>, effects: &mut Vec<SpaceEffect>) {
        let Some(space) = self.regions.get_mut(&region) else { return };
        let Some(next) = raised_from(from, self.me) else {
            // There is no term behind the last one, and without another term nothing is known of what was sent in this one.
            return self.is_damaged(region, effects);
        };
        space.phase = RegionPhase::Raising(from);
        let life = space.life;
        let key = lease_key(region);
        let expect = from.map_or(Expect::Absent, |lease| Expect::Value(lease.encode()));
        let commit = Commit {
            expect: alloc::vec![(key.clone(), expect)],
            writes: alloc::vec![KvWrite::Put(key, next.encode())],
        };
        self.ask(Awaited::Raise(region, life), KvRequest::Commit(commit), effects);
        self.note(region);
    }

    /// Raises the term of a region that is up, so that nothing that was sent before can be made any more.
    pub(super) fn raise_own_term(&mut self, region: RegionId, effects: &mut Vec<SpaceEffect>) {
        let up = self.regions.get(&region).filter(|space| space.phase == RegionPhase::Up);
        if let Some(lease) = up.and_then(|space| space.lease) {
            self.raise(region, Some(lease), effects);
        }
    }

    pub(super) fn raised(&mut self, region: RegionId, outcome: CommitOutcome, effects: &mut Vec<SpaceEffect>) {
        let Some(space) = self.regions.get(&region) else { return };
        let (RegionPhase::Raising(from), life) = (space.phase, space.life) else { return };
        match (outcome, raised_from(from, self.me)) {
            (CommitOutcome::Done(_), Some(next)) => self.has_lease(region, next, effects),
            (CommitOutcome::Conflict, _) => {
                self.ask(Awaited::Lease(region, life), KvRequest::Get(lease_key(region)), effects);
            }
            // With the next upkeep: at once, a medium that is full would be asked without end.
            _ => self.not_answered(Awaited::Lease(region, life)),
        }
    }

    pub(super) fn found_lease(&mut self, region: RegionId, value: Option<Versioned>, effects: &mut Vec<SpaceEffect>) {
        let Some(space) = self.regions.get(&region) else { return };
        let found = match value.map(|value| RegionLease::decode(&value.value)) {
            None => None,
            Some(Ok(lease)) => Some(lease),
            Some(Err(_)) => return self.is_damaged(region, effects),
        };
        match space.phase {
            RegionPhase::Reading if self.planted.is(Mutant::TakeoverKeepsTerm) && found.is_some() => {
                found.into_iter().for_each(|found| self.has_lease(region, found, effects));
            }
            RegionPhase::Reading => self.raise(region, found, effects),
            RegionPhase::Raising(from) => {
                let next = raised_from(from, self.me);
                if let Some(next) = next.filter(|next| found == Some(*next)) {
                    self.has_lease(region, next, effects);
                } else if found == from {
                    // The commit is lost, or late: then one of the two conflicts.
                    self.raise(region, from, effects);
                } else {
                    self.lose(region, effects);
                }
            }
            RegionPhase::Listing | RegionPhase::Up => {}
        }
    }

    /// The region's term is this service's. A region that was up goes on; otherwise its index is read.
    fn has_lease(&mut self, region: RegionId, lease: RegionLease, effects: &mut Vec<SpaceEffect>) {
        let Some(space) = self.regions.get_mut(&region) else { return };
        (space.lease, space.grants) = (Some(lease), 0);
        if space.was_up {
            space.phase = RegionPhase::Up;
            self.note(region);
            self.probe_unknown(effects);
            return self.refresh_if_idle(region, effects);
        }
        self.list(region, effects);
    }

    fn list(&mut self, region: RegionId, effects: &mut Vec<SpaceEffect>) {
        if let Some(space) = self.regions.get_mut(&region) {
            space.phase = RegionPhase::Listing;
            space.records.clear();
            space.listed.clear();
            space.has_pages = false;
        }
        self.note(region);
        self.list_on(region, effects);
    }

    /// Asks for the next page of a region's index.
    fn list_on(&mut self, region: RegionId, effects: &mut Vec<SpaceEffect>) {
        let life = self.regions.get(&region).map(|space| space.life);
        if let (Some(life), Some(request)) = (life, self.page_request(region)) {
            self.ask(Awaited::Page(region, life), request, effects);
        }
    }

    /// The next page of a region's index.
    pub(super) fn page_request(&self, region: RegionId) -> Option<KvRequest> {
        let space = self.regions.get(&region)?;
        let from = match space.records.last_key_value() {
            Some((offset, _)) => extent_key(region, offset.saturating_add(1)),
            None => extent_key(region, 0),
        };
        Some(KvRequest::Range { from, until: extents_end(region), most: RANGE_MAX })
    }

    pub(super) fn found_page(
        &mut self,
        region: RegionId,
        page: Vec<(KvKey, Versioned)>,
        effects: &mut Vec<SpaceEffect>,
    ) {
        let Some(space) = self.regions.get_mut(&region).filter(|space| space.phase == RegionPhase::Listing) else {
            return;
        };
        let more = page.len() == RANGE_MAX;
        space.has_pages |= more;
        for (key, value) in page {
            let (Some(offset), Ok(record)) = (offset_of(region, &key), ExtentRecord::decode(&value.value)) else {
                return self.is_damaged(region, effects);
            };
            space.records.insert(offset, record);
            space.listed.insert(offset, value.revision);
        }
        if more {
            return self.list_on(region, effects);
        }
        if self.planted.is(Mutant::TakeoverFreesGrants) {
            space.records.retain(|_, record| !matches!(record.used, ExtentUse::Granted(_)));
        }
        if self.planted.is(Mutant::TakeoverFreesQuarantine) {
            space.records.retain(|_, record| record.used != ExtentUse::Quarantined);
        }
        match space.rebuild() {
            Ok(()) => space.suspects = None,
            // Pages are of different moments: between two of them the owner of a file may have cut a record of the first, and the second has
            // the rest. The same two, written at the same time, once more: then both were there at one moment.
            Err(Contradiction::Overlap(records)) if space.has_pages && space.suspects != Some(records) => {
                space.suspects = Some(records);
                return self.list(region, effects);
            }
            Err(_) => return self.is_damaged(region, effects),
        }
        space.phase = RegionPhase::Up;
        let first = !core::mem::replace(&mut space.was_up, true);
        let (term, sessions) = (space.lease.map_or(Term(0), |lease| lease.term), space.sessions());
        self.note(region);
        if first {
            effects.push(SpaceEffect::Taken(region, term, sessions));
            self.take_next(region, effects);
        }
    }

    pub(super) fn refresh(&mut self, region: RegionId, effects: &mut Vec<SpaceEffect>) {
        if let Some(space) = self.regions.get_mut(&region) {
            // A takeover reads it anyway, but the pages that it has may be older.
            space.refresh = true;
        }
        self.note(region);
        self.refresh_if_idle(region, effects);
    }

    /// Reads the index again when that was asked for and no commit is under way.
    pub(super) fn refresh_if_idle(&mut self, region: RegionId, effects: &mut Vec<SpaceEffect>) {
        let Some(space) = self.regions.get_mut(&region) else { return };
        if space.refresh && space.phase == RegionPhase::Up && space.commits == 0 {
            space.refresh = false;
            self.note(region);
            self.list(region, effects);
        }
    }

    fn lose(&mut self, region: RegionId, effects: &mut Vec<SpaceEffect>) {
        if self.forget(region) {
            self.take_next(region, effects);
            effects.push(SpaceEffect::Lost(region));
            self.probe_unknown(effects);
        }
    }

    fn is_damaged(&mut self, region: RegionId, effects: &mut Vec<SpaceEffect>) {
        if self.forget(region) {
            self.take_next(region, effects);
            effects.push(SpaceEffect::Damaged(region));
            self.probe_unknown(effects);
        }
    }

    /// Nobody knows whether a change was made. When its term is over it can be found out.
    pub(super) fn outcome_unknown(&mut self, id: KvToken, effects: &mut Vec<SpaceEffect>) {
        if self.planted.is(Mutant::UnknownIsConflict) {
            return self.finish(id, Err(SpaceError::Conflict), effects);
        }
        let Some((region, life, term)) = self.sent_with(id) else { return };
        self.unknown.push(id);
        let space = self.regions.get(&region).filter(|space| space.life == life);
        let is_current = space.and_then(|space| space.lease).is_some_and(|lease| lease.term == term);
        if is_current && !self.planted.is(Mutant::ProbeBeforeRaise) {
            self.raise_own_term(region, effects);
        }
        self.probe_unknown(effects);
    }

    /// The first region of a change, its life and its term then.
    fn sent_with(&self, id: KvToken) -> Option<(RegionId, u64, Term)> {
        self.changes.get(&id)?.edits.first().map(|edit| (edit.region, edit.life, edit.term))
    }

    /// Looks for the changes of unknown outcome whose term is over.
    fn probe_unknown(&mut self, effects: &mut Vec<SpaceEffect>) {
        for id in core::mem::take(&mut self.unknown) {
            let Some((region, life, sent)) = self.sent_with(id) else { continue };
            let Some(space) = self.regions.get(&region).filter(|space| space.life == life) else {
                // The region is another service's, whose term is higher: it may have changed the records since.
                self.finish(id, Err(SpaceError::Unknown), effects);
                continue;
            };
            let is_over = space.lease.is_some_and(|lease| lease.term > sent);
            if is_over || self.planted.is(Mutant::ProbeBeforeRaise) {
                let probe = self.changes.get(&id).map(|change| KvRequest::Get(change.probe.0.clone()));
                probe.into_iter().for_each(|probe| {
                    self.ask(Awaited::Probe(id), probe, effects);
                });
            } else {
                self.unknown.push(id);
            }
        }
    }

    pub(super) fn found_probe(&mut self, id: KvToken, value: Option<Versioned>, effects: &mut Vec<SpaceEffect>) {
        let result = self.is_made(id, value).ok_or(SpaceError::Conflict);
        // A region that was lost since: the value may be another service's.
        let is_here =
            |(region, life, _)| self.regions.get(&region).is_some_and(|space: &RegionSpace| space.life == life);
        let lost = !self.sent_with(id).is_some_and(is_here);
        let result = if lost && result.is_err() { Err(SpaceError::Unknown) } else { result };
        self.finish(id, result, effects);
    }

    /// The time at which a change was made, if the value of its probe says so.
    fn is_made(&self, id: KvToken, value: Option<Versioned>) -> Option<crate::kv::Revision> {
        let change = self.changes.get(&id)?;
        match (&change.probe.1, value) {
            (Some(expected), Some(found)) if *expected == found.value => Some(found.revision),
            // A record that is gone says not when: the latest revision that it can have been, for whoever waits until that is durable.
            (None, None) => Some(crate::kv::Revision(u64::MAX)),
            _ => None,
        }
    }

    /// A change that conflicts was made if it was carried out twice.
    pub(super) fn found_again(&mut self, id: KvToken, value: Option<Versioned>, effects: &mut Vec<SpaceEffect>) {
        if let Some(revision) = self.is_made(id, value) {
            return self.finish(id, Ok(revision), effects);
        }
        let Some(change) = self.changes.get_mut(&id) else { return };
        change.unchecked = change.edits.iter().map(|edit| edit.region).collect();
        self.check_next_holder(id, effects);
    }

    /// It was not made: because a region is another service's, or for another reason.
    fn check_next_holder(&mut self, id: KvToken, effects: &mut Vec<SpaceEffect>) {
        match self.changes.get_mut(&id).map(|change| change.unchecked.pop()) {
            Some(Some(region)) => {
                self.ask(Awaited::Holder(id, region), KvRequest::Get(lease_key(region)), effects);
            }
            Some(None) => {
                // Records that are not as this service knows them were changed by another one.
                let upkeep = self.changes.get(&id).filter(|change| change.answer.is_none());
                let regions: Vec<RegionId> =
                    upkeep.map(|change| change.edits.iter().map(|edit| edit.region).collect()).unwrap_or_default();
                self.finish(id, Err(SpaceError::Conflict), effects);
                regions.into_iter().for_each(|region| self.refresh(region, effects));
            }
            None => {}
        }
    }

    pub(super) fn found_holder(
        &mut self,
        id: KvToken,
        region: RegionId,
        value: Option<Versioned>,
        effects: &mut Vec<SpaceEffect>,
    ) {
        let holder = value.and_then(|value| RegionLease::decode(&value.value).ok());
        if holder.is_none_or(|lease| lease.service != self.me) {
            self.lose(region, effects);
        }
        self.check_next_holder(id, effects);
    }
}

/// The lease that a service takes from that one; none behind the last term.
fn raised_from(from: Option<RegionLease>, service: crate::ServiceId) -> Option<RegionLease> {
    let term = from.map_or(Some(Term(1)), |lease| lease.term.next())?;
    Some(RegionLease { service, term })
}
