//! Donated namespaces: their labels, their regions, how they join and leave.

use super::event::{LabelFound, ServiceEffect, TierAnswer, TierFailure, TierRequest};
use super::machine::Service;
use super::namespace_index::is_looked_at;
use super::regions::{NAMESPACE_MIN, namespace_of, regions};
use super::start::is_done;
use super::state::{Donating, KvOwner, Namespace, OwnRead, SpaceOwner, TierOwner, Work};
use crate::class::ClassId;
use crate::error::StoreError;
use crate::id::{NamespaceId, NodeId, RegionId, SessionId};
use crate::keys::{KeySpace, namespace_key, removed_key, session_key};
use crate::kv::{Commit, CommitOutcome, Expect, KvRequest, KvUnavailable, KvWrite};
use crate::members::ContentLabel;
use crate::placement::{PlacementEvent, RegionEntry};
use crate::protocol::{Answer, Donation, NamespaceInfo, NamespaceState};
use crate::records::{CounterRecord, NamespaceRecord, RemovedRecord, from_value, to_value};
use crate::space::{REGION_MIN, RegionUse, SpaceEvent, SpaceRequest};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use weir_units::Nanos;

/// Regions of a namespace, about: at the most, and at the least. The more namespaces there are, the fewer regions a new one has: each takes a read and a
/// commit whenever another process takes over.
const REGIONS: (u64, u64) = (64, 4);

/// Regions of a store's first namespaces, about; from then on the fewer a namespace.
const REGIONS_OF_FIRST: u64 = 16_384;

/// Labels of attempts to donate that are remembered at the most.
const LABELS_TRIED: usize = 1024;

/// Bytes of a target's URL at the most.
const TARGET_MAX: usize = 1024;

/// How often a namespace that answers is looked at in the time after which its blocks would get copies elsewhere, and how seldom at the most.
const LOOKS_BEFORE_REPAIR: u64 = 10;
const LOOK_EVERY: Nanos = Nanos::from_secs(60);

/// How long until a namespace that was not reached is tried again, at first and at the most.
const RETRY: (Nanos, Nanos) = (Nanos::from_millis(100), Nanos::from_secs(5));

/// How long after the start of a process a namespace may be reached for the first time, and its room be waited for: it may start with the service.
const REACHED_BY: Nanos = Nanos::from_secs(5);

impl Service {
    /// A namespace that is recorded; its regions are taken.
    pub(super) fn add_namespace(&mut self, number: NamespaceId, record: NamespaceRecord, is_known: bool) {
        let state = match (record.is_lost, is_known) {
            (true, _) => NamespaceState::Lost,
            (false, true) => NamespaceState::Up,
            (false, false) => NamespaceState::Unreachable,
        };
        for info in regions(number, &record) {
            self.push(Work::Space(SpaceEvent::Take(info)));
        }
        let (taken, retry) = (BTreeSet::new(), RETRY.0);
        let (since, due) = (self.clock.now, if is_known { self.next_look() } else { Nanos(0) });
        let namespace = Namespace { record, state, taken, is_asked: false, retry, due, since, is_removed: false };
        self.namespaces.insert(number, namespace);
        self.index.look_at(due, number);
        self.note_namespace(number);
    }

    /// Reads the labels that are due.
    pub(super) fn look_at_namespaces(&mut self, effects: &mut Vec<ServiceEffect>) {
        while let Some((due, number)) = self.index.next_look(self.clock.now) {
            let found = self.namespaces.get_mut(&number).filter(|found| is_looked_at(found) && found.due == due);
            let Some(found) = found else { continue };
            found.is_asked = true;
            let target = found.record.target.clone();
            self.ask_tier(TierOwner::Label(number), TierRequest::ReadLabel { target }, effects);
        }
    }

    /// What the label of a recorded namespace says.
    pub(super) fn label_read(&mut self, number: NamespaceId, answer: Result<TierAnswer, TierFailure>) {
        let (now, store) = (self.clock.now, self.store.id);
        let (look_every, next_look) = (self.look_every(), self.next_look());
        let Some(found) = self.namespaces.get_mut(&number) else { return };
        found.is_asked = false;
        let before = found.state;
        match answer {
            Ok(TierAnswer::Label { bytes, found: label, .. }) => {
                let expected = LabelFound::Label { store, namespace: number, content: found.record.label };
                // One that has shrunk does not hold what was written behind its end.
                let is_whole = label == expected && bytes >= found.record.bytes;
                found.state = if is_whole { NamespaceState::Up } else { NamespaceState::Lost };
                (found.due, found.retry) = (next_look, RETRY.0);
            }
            Ok(_) | Err(_) => {
                found.state = NamespaceState::Unreachable;
                found.due = now.saturating_add(found.retry);
                found.retry = Nanos(found.retry.get().saturating_mul(2)).min(RETRY.1).min(look_every);
            }
        }
        let (due, is_other) = (found.due, found.state != before);
        if is_other {
            found.since = now;
        }
        self.index.look_at(due, number);
        if is_other {
            self.tell_regions(number);
        }
    }

    /// Whether this process has begun a moment ago and has not reached all namespaces: that there is no room is not known then.
    pub(super) fn awaits_namespaces(&self) -> bool {
        let is_awaited = |found: &Namespace| found.state == NamespaceState::Unreachable && !found.is_removed;
        self.clock.now < self.began.saturating_add(REACHED_BY) && self.namespaces.values().any(is_awaited)
    }

    /// When the label of a namespace that answers is read again. Where nothing is done about one that does not, it is not.
    fn next_look(&self) -> Nanos {
        match self.settings.repair_after {
            Nanos::NEVER => Nanos::NEVER,
            _ => self.clock.now.saturating_add(self.look_every()),
        }
    }

    /// Often enough that a namespace which comes back in time is seen to.
    fn look_every(&self) -> Nanos {
        Nanos(self.settings.repair_after.get() / LOOKS_BEFORE_REPAIR).max(RETRY.0).min(LOOK_EVERY)
    }

    /// Something was not done by a namespace: whether it is there at all is looked at with the next tick.
    pub(super) fn look_soon_at(&mut self, number: NamespaceId) {
        if let Some(found) = self.namespaces.get_mut(&number).filter(|found| found.state == NamespaceState::Up) {
            found.due = Nanos(0);
            self.index.look_at(Nanos(0), number);
        }
    }

    /// A region is this service's. Those of its sessions that have ended are fenced by the look at all sessions.
    pub(super) fn region_taken(
        &mut self,
        region: RegionId,
        sessions: Vec<SessionId>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        if let Some(found) = self.namespaces.get_mut(&namespace_of(region)) {
            found.taken.insert(region);
        }
        for session in sessions.into_iter().filter(|session| !self.is_own_session(*session)).collect::<Vec<_>>() {
            self.look_for_session(session, effects);
        }
        self.tell_region(region);
    }

    /// A session has blocks: they are nobody's if it is over.
    fn look_for_session(&mut self, session: SessionId, effects: &mut Vec<ServiceEffect>) {
        let keys = [session_key(session), crate::members::HoldRecord::key(session)];
        let expect = keys.into_iter().map(|key| (key, Expect::Absent)).collect();
        let commit = KvRequest::Commit(Commit { expect, writes: Vec::new() });
        self.ask_kv(KvOwner::own(OwnRead::IsOver(session)), commit, effects);
    }

    pub(super) fn is_over(&mut self, session: SessionId, outcome: CommitOutcome) {
        if is_done(outcome) {
            self.ask_space(SpaceOwner::Nobody, SpaceRequest::Fence { session });
        }
    }

    pub(super) fn region_lost(&mut self, region: RegionId) {
        if let Some(found) = self.namespaces.get_mut(&namespace_of(region)) {
            found.taken.remove(&region);
        }
        self.tell_region(region);
    }

    /// What placement is to know of a namespace's regions.
    fn tell_regions(&mut self, number: NamespaceId) {
        self.note_namespace(number);
        let taken = self.namespaces.get(&number).map(|found| found.taken.iter().copied().collect::<Vec<_>>());
        self.tell_placement(taken.unwrap_or_default());
    }

    fn tell_region(&mut self, region: RegionId) {
        self.tell_placement(alloc::vec![region]);
    }

    fn tell_placement(&mut self, regions: Vec<RegionId>) {
        self.moves.look_again();
        self.lacking.look_again();
        let changed = regions.into_iter().map(|region| (region, self.region_entry(region))).collect();
        self.push(Work::Placement(PlacementEvent::Changed(None, changed)));
    }

    /// A region that blocks may come from; none where it is not this service's.
    fn region_entry(&self, region: RegionId) -> Option<RegionEntry> {
        let found = self.namespaces.get(&namespace_of(region)).filter(|found| found.taken.contains(&region))?;
        Some(RegionEntry {
            node: found.record.node,
            class: found.record.class,
            location: found.record.location.clone(),
            owner: Some(self.settings.service),
            open: found.is_open(),
        })
    }

    /// Bytes of a class that blocks can be given out of, and those that are free.
    pub(super) fn class_use(&self, class: usize) -> (u64, u64) {
        let of_class = self.namespaces.iter().filter(|(_, found)| usize::from(found.record.class.0) == class);
        let open = of_class.filter(|(_, found)| found.state == NamespaceState::Up && !found.is_removed);
        let uses = open.map(|(number, _)| self.space.namespace_use(*number));
        let all = uses.fold(RegionUse::default(), RegionUse::plus);
        (all.bytes(), all.free)
    }

    pub(super) fn namespace_infos(&self) -> Vec<NamespaceInfo> {
        let info = |(number, found): (&NamespaceId, &Namespace)| {
            let (uses, record) = (self.space.namespace_use(*number), &found.record);
            let drains = record.is_draining && found.state == NamespaceState::Up;
            NamespaceInfo {
                namespace: *number,
                node: record.node,
                target: record.target.clone(),
                class: record.class,
                location: record.location.clone(),
                sector: record.sector,
                bytes: record.bytes,
                label: record.label,
                state: if drains { NamespaceState::Draining } else { found.state },
                free: uses.free,
                granted: uses.granted,
                mapped: uses.mapped,
                quarantined: uses.quarantined,
            }
        };
        self.namespaces.iter().filter(|(_, found)| !found.is_removed).map(info).collect()
    }

    /// A namespace is to join: its label is looked at first.
    pub(super) fn donate(
        &mut self,
        id: u64,
        donation: Donation,
        effects: &mut Vec<ServiceEffect>,
    ) -> Result<(), StoreError> {
        if !self.classes.names.contains(&donation.class) {
            return Err(StoreError::NoClass);
        }
        if donation.target.len() > TARGET_MAX || donation.target.is_empty() {
            return Err(StoreError::Malformed);
        }
        let is_same = |donating: &Donating| donating.donation.target == donation.target;
        let asked = self.tier.values().filter_map(|owner| match owner {
            TierOwner::Donation(_, donating) => Some(donating),
            TierOwner::Label(_) | TierOwner::Recovery | TierOwner::Move(_) => None,
        });
        let written = self.kv.values().filter_map(|owner| match owner {
            KvOwner::Own(read) => match &**read {
                OwnRead::Donated(_, donating, _) | OwnRead::DonatedLook(_, donating, _) => Some(donating),
                _ => None,
            },
            _ => None,
        });
        if asked.chain(written).any(is_same) {
            // Another one is about to have it.
            return Err(StoreError::InUse);
        }
        let target = donation.target.clone();
        let donating = Donating { id, donation, size: None, label: ContentLabel::default(), was: None };
        self.ask_tier(TierOwner::Donation(NamespaceId(0), donating), TierRequest::ReadLabel { target }, effects);
        Ok(())
    }

    pub(super) fn donation_goes_on(
        &mut self,
        number: NamespaceId,
        donating: Donating,
        answer: Result<TierAnswer, TierFailure>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let (id, target) = (donating.id, donating.donation.target.clone());
        match answer {
            Err(TierFailure(why)) => {
                // What the request is about says where: not twice.
                let why = why.strip_prefix(&target).map_or(why.as_str(), |rest| rest.trim_start_matches([':', ' ']));
                self.fail(id, StoreError::Unreachable, why, effects);
            }
            Ok(TierAnswer::Label { bytes, sector, found }) => match self.may_join(&donating.donation, found) {
                Err(error) => self.fail(id, error, "", effects),
                Ok(Some(number)) => {
                    let (since, due) = (self.clock.now, self.next_look());
                    if let Some(found) = self.namespaces.get_mut(&number) {
                        (found.state, found.since, found.due) = (NamespaceState::Up, since, due);
                        self.index.look_at(due, number);
                    }
                    self.tell_regions(number);
                    self.answer(id, Answer::Donated { namespace: number }, effects);
                }
                Ok(None) if bytes < NAMESPACE_MIN => self.fail(id, StoreError::TooSmall, "", effects),
                Ok(None) => {
                    let halves = [self.random.next_u64(), self.random.next_u64()].map(u128::from);
                    let label = ContentLabel(halves[0] << 64 | halves[1]);
                    if self.labels_tried.len() < LABELS_TRIED {
                        self.labels_tried.insert(label.0);
                    }
                    let was = self.removed_with(found);
                    let donating = Donating { size: Some((bytes, sector)), label, was, ..donating };
                    let last = self.namespaces.last_key_value().map_or(0, |(number, _)| number.get());
                    let namespace = NamespaceId(self.next_namespace.max(last.saturating_add(1)));
                    self.next_namespace = namespace.get().saturating_add(1);
                    let store = self.store.id;
                    let request = TierRequest::WriteLabel { target, store, namespace, content: label };
                    self.ask_tier(TierOwner::Donation(namespace, donating), request, effects);
                }
            },
            Ok(_) => self.record_donation(number, donating, effects),
        }
    }

    /// Whether what is found on a namespace lets it join; its number if it is in the store already, and as it was.
    fn may_join(&self, donation: &Donation, found: LabelFound) -> Result<Option<NamespaceId>, StoreError> {
        match found {
            LabelFound::Blank => Ok(None),
            LabelFound::Foreign if donation.overwrite => Ok(None),
            LabelFound::Foreign => Err(StoreError::Foreign),
            LabelFound::Label { store, namespace, content } if store == self.store.id => {
                let known = self.namespaces.get(&namespace);
                let known =
                    known.filter(|known| known.record.label == content && !known.is_removed && !known.record.is_lost);
                match known {
                    Some(known) if known.record.target == donation.target => Ok(Some(namespace)),
                    Some(_) => Err(StoreError::InUse),
                    // A label of an attempt that failed, or of a namespace that was removed, and so was empty.
                    None if self.is_nobodys(namespace, content) || donation.overwrite => Ok(None),
                    None => Err(StoreError::Foreign),
                }
            }
            LabelFound::Label { .. } if donation.overwrite => Ok(None),
            LabelFound::Label { .. } => Err(StoreError::Foreign),
        }
    }

    /// Whether a label with this store's number, and one that no namespace has, covers nothing: of an attempt of this process, or of a namespace
    /// that was removed.
    fn is_nobodys(&self, number: NamespaceId, content: ContentLabel) -> bool {
        self.removed.get(&number) == Some(&content) || self.labels_tried.contains(&content.0)
    }

    /// The number that a namespace with this label had when it was removed.
    fn removed_with(&self, found: LabelFound) -> Option<NamespaceId> {
        let LabelFound::Label { store, namespace, content } = found else { return None };
        (store == self.store.id && self.removed.get(&namespace) == Some(&content)).then_some(namespace)
    }

    /// The label is written: the namespace is recorded. Another one of that target is lost by that.
    fn record_donation(&mut self, number: NamespaceId, donating: Donating, effects: &mut Vec<ServiceEffect>) {
        let Donating { donation, size, label, was, .. } = donating.clone();
        let (bytes, sector) = size.unwrap_or_default();
        let class = self.classes.names.iter().position(|name| *name == donation.class).unwrap_or(0);
        let region = (bytes / self.regions_wanted()).next_power_of_two().max(REGION_MIN);
        let record = NamespaceRecord {
            node: self.node_of(&donation.target, number),
            target: donation.target.clone(),
            class: ClassId(class as u16),
            location: donation.location,
            sector,
            bytes,
            region,
            label,
            is_draining: false,
            is_lost: false,
        };
        let key = namespace_key(number);
        let mut commit = Commit {
            expect: alloc::vec![(key.clone(), Expect::Absent)],
            writes: alloc::vec![
                KvWrite::Put(key, to_value(&record)),
                // A namespace that is removed leaves its number unused.
                KvWrite::Put(KeySpace::NextNamespace.key(&[]), to_value(&CounterRecord { next: self.next_namespace })),
            ],
        };
        commit.writes.extend(was.map(|was| KvWrite::Delete(removed_key(was))));
        let is_replaced =
            |found: &Namespace| found.record.target == donation.target && !found.record.is_lost && !found.is_removed;
        for (number, found) in self.namespaces.iter().filter(|(_, found)| is_replaced(found)) {
            let lost = NamespaceRecord { is_lost: true, ..found.record.clone() };
            commit.writes.push(KvWrite::Put(namespace_key(*number), to_value(&lost)));
        }
        self.ask_kv(KvOwner::own(OwnRead::Donated(number, donating, record)), KvRequest::Commit(commit), effects);
    }

    pub(super) fn donation_written(
        &mut self,
        number: NamespaceId,
        donating: Donating,
        record: NamespaceRecord,
        outcome: CommitOutcome,
        effects: &mut Vec<ServiceEffect>,
    ) {
        if !is_done(outcome) {
            let look = OwnRead::DonatedLook(number, donating, record);
            return self.ask_kv(KvOwner::own(look), KvRequest::Get(namespace_key(number)), effects);
        }
        self.donated(number, &donating, record, effects);
    }

    /// The record of a namespace whose commit was not simply done. One of an earlier attempt keeps its number.
    pub(super) fn donation_looked(
        &mut self,
        number: NamespaceId,
        donating: Donating,
        record: NamespaceRecord,
        found: Result<Option<Vec<u8>>, KvUnavailable>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        match found {
            Ok(Some(value)) if value == to_value(&record) => return self.donated(number, &donating, record, effects),
            Ok(Some(value)) => {
                if let (Ok(earlier), false) = (from_value(&value), self.namespaces.contains_key(&number)) {
                    self.add_namespace(number, earlier, false);
                }
            }
            Ok(None) | Err(KvUnavailable) => {}
        }
        self.fail(donating.id, StoreError::Unavailable, "", effects);
    }

    fn donated(
        &mut self,
        number: NamespaceId,
        donating: &Donating,
        record: NamespaceRecord,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let is_replaced = |found: &Namespace| found.record.target == record.target && !found.is_removed;
        let mut replaced = Vec::new();
        for (number, found) in self.namespaces.iter_mut().filter(|(_, found)| is_replaced(found)) {
            (found.record.is_lost, found.state, found.since) = (true, NamespaceState::Lost, self.clock.now);
            replaced.push(*number);
        }
        replaced.into_iter().for_each(|number| self.tell_regions(number));
        self.labels_tried.remove(&record.label.0);
        donating.was.map(|was| self.removed.remove(&was));
        self.add_namespace(number, record, true);
        self.answer(donating.id, Answer::Donated { namespace: number }, effects);
    }

    /// How many regions a namespace that joins has, about.
    fn regions_wanted(&self) -> u64 {
        let count = self.namespaces.len() as u64 + 1;
        (REGIONS_OF_FIRST / count).clamp(REGIONS.1, REGIONS.0)
    }

    /// The machine that a target is on: that of another one at the same host, also of one whose record is being written; else it has the number of
    /// this namespace, which no machine has.
    fn node_of(&self, target: &str, number: NamespaceId) -> NodeId {
        let written = self.kv.values().filter_map(|owner| match owner {
            KvOwner::Own(read) => match &**read {
                OwnRead::Donated(_, _, record) | OwnRead::DonatedLook(_, _, record) => Some(record),
                _ => None,
            },
            _ => None,
        });
        let mut all = self.namespaces.values().map(|found| &found.record).chain(written);
        let same = all.find(|record| host(&record.target) == host(target));
        same.map_or(NodeId(number.get()), |record| record.node)
    }

    pub(super) fn drain(
        &mut self,
        id: u64,
        number: NamespaceId,
        drains: bool,
        effects: &mut Vec<ServiceEffect>,
    ) -> Result<(), StoreError> {
        let found = self.namespaces.get(&number).filter(|found| !found.is_removed).ok_or(StoreError::NoNamespace)?;
        let record = NamespaceRecord { is_draining: drains, ..found.record.clone() };
        self.write_namespace(id, number, Some(record), effects);
        Ok(())
    }

    pub(super) fn remove(
        &mut self,
        id: u64,
        number: NamespaceId,
        effects: &mut Vec<ServiceEffect>,
    ) -> Result<(), StoreError> {
        let found = self.namespaces.get(&number).filter(|found| !found.is_removed).ok_or(StoreError::NoNamespace)?;
        let uses = self.space.namespace_use(number);
        let all_known = regions(number, &found.record).iter().all(|info| self.space.usage(info.id).is_some());
        if !all_known || uses.mapped + uses.granted + uses.quarantined > 0 || !found.record.is_draining {
            return Err(StoreError::InUse);
        }
        self.write_namespace(id, number, None, effects);
        Ok(())
    }

    fn write_namespace(
        &mut self,
        id: u64,
        number: NamespaceId,
        record: Option<NamespaceRecord>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let (key, before) = (namespace_key(number), self.namespaces.get(&number).map(|found| to_value(&found.record)));
        let write = match &record {
            Some(record) => KvWrite::Put(key.clone(), to_value(record)),
            None => KvWrite::Delete(key.clone()),
        };
        let expect = alloc::vec![(key, before.map_or(Expect::Absent, Expect::Value))];
        let mut writes = alloc::vec![write];
        if let (None, Some(found)) = (&record, self.namespaces.get(&number)) {
            // Its label stays on it, and tells then that nothing else does.
            let removed = RemovedRecord { label: found.record.label };
            writes.push(KvWrite::Put(removed_key(number), to_value(&removed)));
        }
        let commit = Commit { expect, writes };
        let owner = KvOwner::own(OwnRead::NamespaceChanged(id, number, record));
        self.ask_kv(owner, KvRequest::Commit(commit), effects);
    }

    pub(super) fn namespace_changed(
        &mut self,
        id: u64,
        number: NamespaceId,
        record: Option<NamespaceRecord>,
        outcome: CommitOutcome,
        effects: &mut Vec<ServiceEffect>,
    ) {
        if !is_done(outcome) {
            let look = OwnRead::NamespaceLook(id, number, record);
            return self.ask_kv(KvOwner::own(look), KvRequest::Get(namespace_key(number)), effects);
        }
        self.namespace_is(id, number, record, effects);
    }

    /// The record of a namespace whose change was not simply done. What was changed all the same is what the next change begins with.
    pub(super) fn namespace_looked(
        &mut self,
        id: u64,
        number: NamespaceId,
        wanted: Option<NamespaceRecord>,
        found: Result<Option<Vec<u8>>, KvUnavailable>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let is_as_wanted = found.as_ref().is_ok_and(|found| *found == wanted.as_ref().map(to_value));
        if is_as_wanted {
            return self.namespace_is(id, number, wanted, effects);
        }
        let record = found.ok().flatten().and_then(|value| from_value(&value).ok());
        if let (Some(record), Some(found)) = (record, self.namespaces.get_mut(&number)) {
            found.record = record;
            self.tell_regions(number);
        }
        self.fail(id, StoreError::Unavailable, "", effects);
    }

    /// A namespace's record is this, or it is gone.
    fn namespace_is(
        &mut self,
        id: u64,
        number: NamespaceId,
        record: Option<NamespaceRecord>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        if let Some(found) = self.namespaces.get_mut(&number) {
            match record {
                Some(record) => found.record = record,
                None => {
                    found.is_removed = true;
                    let label = found.record.label;
                    self.removed.insert(number, label);
                }
            }
        }
        self.tell_regions(number);
        self.answer(id, Answer::Done {}, effects);
    }
}

/// The host in a target's URL, with its port.
fn host(target: &str) -> &str {
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}
