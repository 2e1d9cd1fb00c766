//! What is found without a look at all regions: a store has 100,000 of them and more.

use super::machine::Space;
use super::region::{QuarantineEntry, RegionPhase, RegionSpace, RegionUse};
use crate::{Extent, NamespaceId, RegionId, SessionId};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Regions that are taken at a time: a region takes a read, a commit and a read of its index, and what else is asked of the key-value store, as
/// the renewal of leases, does not wait behind all of them.
const TAKEN_AT_A_TIME: usize = 256;

/// See [the module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct RegionIndex {
    /// By where they begin.
    places: BTreeMap<(NamespaceId, u64), RegionId>,
    /// Where each session has grants.
    granted: BTreeSet<(SessionId, RegionId)>,
    /// Sessions with grants of each region, as they are in `granted`.
    sessions: BTreeMap<RegionId, Vec<SessionId>>,
    /// Those that upkeep has to do with: something is in quarantine, or they are to be read again.
    tended: BTreeSet<RegionId>,
    /// Those whose room may have changed since it was asked for last.
    pub changed: BTreeSet<RegionId>,
    /// What each region that is up is used for, and all of a namespace together.
    uses: BTreeMap<RegionId, (NamespaceId, RegionUse)>,
    sums: BTreeMap<NamespaceId, RegionUse>,
    /// Namespaces whose sum has changed since it was asked for last.
    changed_sums: BTreeSet<NamespaceId>,
    /// Those that are being taken, and those that wait for that.
    taking: BTreeSet<RegionId>,
    queued: VecDeque<RegionId>,
}

impl RegionIndex {
    /// A region is used for that, if it is up.
    fn count(&mut self, id: RegionId, now: Option<(NamespaceId, RegionUse)>) {
        let before = self.uses.get(&id).copied();
        if before == now {
            return;
        }
        if let Some((namespace, used)) = before {
            self.uses.remove(&id);
            let sum = self.sums.entry(namespace).or_default();
            *sum = sum.minus(used);
            if *sum == RegionUse::default() {
                self.sums.remove(&namespace);
            }
        }
        if let Some((namespace, used)) = now {
            self.uses.insert(id, (namespace, used));
            let sum = self.sums.entry(namespace).or_default();
            *sum = sum.plus(used);
        }
        self.changed_sums.extend(before.into_iter().chain(now).map(|(namespace, _)| namespace));
    }
}

impl Space {
    /// The region that may have the extent, or overlap it at its beginning.
    fn at_or_before(&self, extent: &Extent) -> Option<RegionId> {
        let from = (extent.namespace, 0)..=(extent.namespace, extent.offset.get());
        self.index.places.range(from).next_back().map(|(_, region)| *region)
    }

    /// The region of this service that has the extent.
    pub(super) fn region_of(&self, extent: &Extent) -> Option<RegionId> {
        self.at_or_before(extent).filter(|region| self.regions.get(region).is_some_and(|region| region.has(extent)))
    }

    /// Whether a region of this service has a byte of the extent.
    pub(super) fn is_overlapped(&self, extent: &Extent) -> bool {
        let is_overlapped =
            |region: &RegionId| self.regions.get(region).is_some_and(|other| other.info.extent.overlaps(extent));
        let end = extent.end().map_or(u64::MAX, |end| end.get());
        let behind = self.index.places.range((extent.namespace, extent.offset.get())..(extent.namespace, end)).next();
        self.at_or_before(extent)
            .into_iter()
            .chain(behind.map(|(_, region)| *region))
            .any(|region| is_overlapped(&region))
    }

    /// Bytes that a session was granted and has not published, in all regions of this service.
    pub fn granted_to(&self, session: SessionId) -> u64 {
        let regions = self.granted_in(session).filter_map(|region| self.regions.get(&region));
        regions.map(|region| region.granted_to(session)).sum()
    }

    /// Regions in which a session has grants.
    pub(super) fn granted_in(&self, session: SessionId) -> impl Iterator<Item = RegionId> + '_ {
        let all = (session, RegionId(0))..=(session, RegionId(u64::MAX));
        self.index.granted.range(all).map(|(_, region)| *region)
    }

    /// Bytes of a namespace by use, in those of its regions that are up here.
    pub fn namespace_use(&self, namespace: NamespaceId) -> RegionUse {
        self.index.sums.get(&namespace).copied().unwrap_or_default()
    }

    /// Namespaces in which some bytes have another use than when this was asked last.
    pub fn take_changed_namespaces(&mut self) -> BTreeSet<NamespaceId> {
        core::mem::take(&mut self.index.changed_sums)
    }

    /// Regions that upkeep has to do with.
    pub(super) fn tended(&self) -> &BTreeSet<RegionId> {
        &self.index.tended
    }

    /// Whether something in quarantine is as that.
    pub(super) fn any_entry(&self, is_so: impl Fn(&QuarantineEntry) -> bool) -> bool {
        let regions = self.index.tended.iter().filter_map(|region| self.regions.get(region));
        regions.flat_map(|region| region.quarantine.values()).any(is_so)
    }

    /// All that is in quarantine.
    pub(super) fn each_entry(&mut self, mut with: impl FnMut(&mut QuarantineEntry)) {
        for region in &self.index.tended {
            let region = self.regions.get_mut(region);
            region.into_iter().flat_map(|region| region.quarantine.values_mut()).for_each(&mut with);
        }
    }

    /// A region is to be taken: whether it is its turn.
    pub(super) fn begins_taking(&mut self, region: RegionId, place: &Extent) -> bool {
        self.index.places.insert((place.namespace, place.offset.get()), region);
        self.take_turn(region)
    }

    fn take_turn(&mut self, region: RegionId) -> bool {
        let is_turn = self.index.taking.len() < TAKEN_AT_A_TIME;
        match is_turn {
            true => _ = self.index.taking.insert(region),
            false => self.index.queued.push_back(region),
        }
        is_turn
    }

    /// A region is up, or is not taken: the next one whose turn it is.
    pub(super) fn ends_taking(&mut self, region: RegionId) -> Option<RegionId> {
        self.index.taking.remove(&region);
        while self.index.taking.len() < TAKEN_AT_A_TIME {
            let next = self.index.queued.pop_front()?;
            if self.regions.contains_key(&next) {
                self.index.taking.insert(next);
                return Some(next);
            }
        }
        None
    }

    /// Whether regions are being taken.
    pub(super) fn takes_regions(&self) -> bool {
        !self.index.taking.is_empty() || !self.index.queued.is_empty()
    }

    /// A region has changed, or is gone.
    pub(super) fn note(&mut self, id: RegionId) {
        let region = self.regions.get(&id);
        let index = &mut self.index;
        index.changed.insert(id);
        index.count(id, region.and_then(use_of));
        match region.is_some_and(is_tended) {
            true => _ = index.tended.insert(id),
            false => _ = index.tended.remove(&id),
        }
        let sessions = region.map(RegionSpace::sessions).unwrap_or_default();
        let before = index.sessions.get(&id);
        if before.map_or(&[][..], Vec::as_slice) == sessions {
            return;
        }
        before.into_iter().flatten().for_each(|session| _ = index.granted.remove(&(*session, id)));
        index.granted.extend(sessions.iter().map(|session| (*session, id)));
        match sessions.is_empty() {
            true => _ = index.sessions.remove(&id),
            false => _ = index.sessions.insert(id, sessions),
        }
    }

    /// A region is not this service's any more.
    pub(super) fn forget(&mut self, id: RegionId) -> bool {
        let Some(gone) = self.regions.remove(&id) else { return false };
        let place = gone.info.extent;
        self.index.places.remove(&(place.namespace, place.offset.get()));
        self.note(id);
        true
    }

    /// Panics unless the index says what a look at all regions would.
    pub(super) fn check_index(&self) {
        let index = &self.index;
        let granted = self.regions.iter().flat_map(|(id, region)| region.sessions().into_iter().map(|of| (of, *id)));
        assert_eq!(granted.collect::<BTreeSet<_>>(), index.granted, "grants are found by their session");
        let tended = self.regions.iter().filter(|(_, region)| is_tended(region)).map(|(id, _)| *id);
        assert_eq!(tended.collect::<BTreeSet<_>>(), index.tended, "what is to be tended is known");
        let mut sums: BTreeMap<NamespaceId, RegionUse> = BTreeMap::new();
        for (namespace, used) in self.regions.values().filter_map(use_of) {
            let sum = sums.entry(namespace).or_default();
            *sum = sum.plus(used);
        }
        assert_eq!(sums, index.sums, "what namespaces are used for is counted");
        let place = |(id, region): (&RegionId, &RegionSpace)| {
            ((region.info.extent.namespace, region.info.extent.offset.get()), *id)
        };
        assert_eq!(self.regions.iter().map(place).collect::<BTreeMap<_, _>>(), index.places, "regions are found");
        let is_taken = |id: &RegionId| self.regions.get(id).is_none_or(|region| region.was_up);
        assert!(!index.taking.iter().any(is_taken), "a region that is being taken was not up before");
        let waits = self.regions.values().filter(|region| !region.was_up).count();
        let queued = index.queued.iter().filter(|id| self.regions.contains_key(id)).count();
        assert_eq!(waits, queued + index.taking.len(), "a region that was not up yet is taken, or waits for its turn");
        let is_first = |id: &RegionId| self.regions.get(id).is_none_or(|region| region.phase == RegionPhase::Reading);
        assert!(index.queued.iter().all(is_first), "nothing was asked for a region that waits for its turn");
    }
}

fn use_of(region: &RegionSpace) -> Option<(NamespaceId, RegionUse)> {
    (region.phase == RegionPhase::Up).then(|| (region.info.extent.namespace, region.usage()))
}

fn is_tended(region: &RegionSpace) -> bool {
    region.refresh || !region.quarantine.is_empty()
}
