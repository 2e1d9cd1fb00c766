//! Answers that wait for the medium.
//!
//! With `durability = "process"` a power cut takes the commits that came last. A mark must not be among them once bytes of its block may have been written
//! over: without it the block's checksums count, and they are of other bytes. So an `Unsettle` is answered when the medium has its commit; the
//! commits of all that wait go to the medium together ([`ServiceEffect::Sync`]). Blocks that were given up are given out again no earlier either: where a
//! client waits for them, the medium does not take its time.

use super::event::ServiceEffect;
use super::machine::Service;
use crate::kv::{CommitOutcome, KvAnswer, Revision};
use crate::mutant::Mutant;
use crate::protocol::Answer;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Durable {
    /// The newest commit that this service has heard of.
    newest: Revision,
    /// The medium has everything up to this one.
    until: Revision,
    /// Requests whose answer waits, and for which commit.
    waiting: BTreeMap<u64, Revision>,
}

impl Durable {
    /// The key-value store has answered.
    pub fn heard(&mut self, answer: &KvAnswer) {
        let revision = match answer {
            KvAnswer::Outcome(CommitOutcome::Done(revision)) => *revision,
            KvAnswer::Value(Ok(Some(found))) => found.revision,
            _ => return,
        };
        self.newest = self.newest.max(revision);
    }

    /// Requests that wait for the medium.
    pub fn waiting(&self) -> impl Iterator<Item = &u64> {
        self.waiting.keys()
    }
}

impl Service {
    /// A change was made: it is answered when the medium has it.
    pub(super) fn done_when_durable(&mut self, id: u64, effects: &mut Vec<ServiceEffect>) {
        if self.durable.newest <= self.durable.until || self.planted.is(Mutant::UnsettleBeforeDurable) {
            return self.answer(id, Answer::Done {}, effects);
        }
        self.durable.waiting.insert(id, self.durable.newest);
        effects.push(ServiceEffect::Sync);
    }

    /// Somebody waits for blocks that were given up: they are free when the medium has the commit that gave them up.
    pub(super) fn sync_for_room(&self, effects: &mut Vec<ServiceEffect>) {
        if self.durable.newest > self.durable.until {
            effects.push(ServiceEffect::Sync);
        }
    }

    /// The medium has all commits up to that one.
    pub(super) fn is_durable(&mut self, until: Revision, effects: &mut Vec<ServiceEffect>) {
        self.durable.until = self.durable.until.max(until);
        let over = self.durable.waiting.iter().filter(|(_, revision)| **revision <= until);
        let over: Vec<u64> = over.map(|(id, _)| *id).collect();
        self.durable.waiting.retain(|_, revision| *revision > until);
        over.into_iter().for_each(|id| self.answer(id, Answer::Done {}, effects));
    }
}
