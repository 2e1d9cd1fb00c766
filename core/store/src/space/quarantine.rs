//! The way out of quarantine: an epoch is raised, acknowledged by all sessions, and the extents are free.

use super::BATCH;
use super::edit::RecordEdit;
use super::event::SpaceEffect;
use super::machine::{Awaited, RegionEdit, Space};
use super::record::{Epoch, ExtentRecord};
use super::region::{EpochMark, QuarantineEntry, RegionSpace};
use crate::RegionId;
use crate::kv::{Commit, CommitOutcome, Expect, KvRequest, KvToken, KvWrite, Versioned};
use crate::mutant::Mutant;
use alloc::vec::Vec;

impl Space {
    pub(super) fn upkeep(&mut self, effects: &mut Vec<SpaceEffect>) {
        self.raise_epoch(effects);
        let regions: Vec<RegionId> = self.tended().iter().copied().collect();
        for region in regions {
            self.refresh_if_idle(region, effects);
            self.release_some(region, effects);
        }
    }

    /// Raises the epoch for everything that was freed by now, unless it is being raised.
    fn raise_epoch(&mut self, effects: &mut Vec<SpaceEffect>) {
        let Some(epoch) = self.epoch else {
            if self.any_entry(|_| true) && !self.is_awaited(Awaited::EpochRead) {
                self.ask(Awaited::EpochRead, KvRequest::Get(Epoch::key()), effects);
            }
            return;
        };
        let waits = self.any_entry(|entry| entry.epoch == EpochMark::None);
        let raising = self.any_entry(|entry| matches!(entry.epoch, EpochMark::Raising(_)));
        if !waits || raising {
            return;
        }
        if self.planted.is(Mutant::EpochNotAdvanced) {
            return self.mark_entries(|entry| entry.epoch == EpochMark::None, EpochMark::Wants(epoch));
        }
        // Behind the last epoch nothing is freed any more: 2^64 of them are not used up.
        let Some(next) = epoch.0.checked_add(1).map(Epoch) else { return };
        let expect = if epoch == Epoch(0) { Expect::Absent } else { Expect::Value(epoch.encode()) };
        let commit = Commit {
            expect: alloc::vec![(Epoch::key(), expect)],
            writes: alloc::vec![KvWrite::Put(Epoch::key(), next.encode())],
        };
        let token = self.ask(Awaited::EpochRaise(next), KvRequest::Commit(commit), effects);
        self.mark_entries(|entry| entry.epoch == EpochMark::None, EpochMark::Raising(token));
    }

    fn mark_entries(&mut self, is_meant: impl Fn(&QuarantineEntry) -> bool, mark: EpochMark) {
        self.each_entry(|entry| {
            if is_meant(entry) {
                entry.epoch = mark;
            }
        });
    }

    /// What became of the commit with that token. It counts for what was freed before it was sent: that has its token. What was freed later
    /// has another one, also where both commits raise the epoch to the same number.
    pub(super) fn epoch_raised(&mut self, token: KvToken, epoch: Epoch, outcome: CommitOutcome) {
        let done = matches!(outcome, CommitOutcome::Done(_));
        // Raised by another service it may have been raised too early for what waits here.
        let mark = if done { EpochMark::Wants(epoch) } else { EpochMark::None };
        let any = self.planted.is(Mutant::AnyRaiseCounts);
        let is_meant = |entry: &QuarantineEntry| match entry.epoch {
            EpochMark::Raising(by) => by == token || any,
            EpochMark::None | EpochMark::Wants(_) | EpochMark::Skips => false,
        };
        self.mark_entries(is_meant, mark);
        self.epoch = done.then_some(epoch);
    }

    pub(super) fn found_epoch(&mut self, value: Option<Versioned>) {
        self.epoch = match value {
            None => Some(Epoch(0)),
            Some(value) => Epoch::decode(&value.value).ok(),
        };
    }

    fn is_free(&self, entry: &QuarantineEntry) -> bool {
        let is_durable = entry.freed <= self.durable || self.planted.is(Mutant::ReuseBeforeDurable);
        match entry.epoch {
            EpochMark::Wants(epoch) => is_durable && epoch <= self.horizon,
            EpochMark::Skips => true,
            EpochMark::None | EpochMark::Raising(_) => false,
        }
    }

    /// Frees a batch of what no session can reach any more.
    fn release_some(&mut self, region: RegionId, effects: &mut Vec<SpaceEffect>) {
        let Some(space) = self.regions.get(&region).filter(|space| space.is_open()) else { return };
        let Some(lease) = space.lease else { return };
        let old = releasable(space, |entry| self.is_free(entry));
        if !old.is_empty() {
            let edit = RecordEdit { old, new: Vec::new() };
            let edits = alloc::vec![RegionEdit { region, life: space.life, term: lease.term, edit }];
            // A batch is always legal; should it not be, it stays in quarantine.
            let _ = self.commit_change(None, edits, EpochMark::None, Commit::default(), effects);
        }
    }
}

fn releasable(space: &RegionSpace, is_free: impl Fn(&QuarantineEntry) -> bool) -> Vec<(u64, ExtentRecord)> {
    let free = space.quarantine.iter().filter(|(offset, entry)| !space.locked.contains(offset) && is_free(entry));
    free.filter_map(|(offset, _)| Some((*offset, *space.records.get(offset)?))).take(BATCH).collect()
}
