//! What the key-value store's answers mean to a task.
//!
//! All that a commit expects is of a kind that, once it does not hold, never holds again: the term of an owner, the sequence of a slot, the rename
//! key, the version of an orphan only rise, and a session that has ended is not begun again. So of a commit that is sent twice only one
//! can be made; and one that conflicts, and of which the record of the request says nothing, never is made. Until it is known which, the
//! task keeps its containers.

use super::event::{NameRequest, TreeEffect};
use super::machine::{Numbers, REAPERS_MAX, Tree};
use super::mutant::Mutant;
use super::operation::{NameAnswer, NameReply};
use super::task::{CommitKind, InFlight, Job, Plan, Purpose, Resolve, Stage, Task, TaskId};
use super::view::{Container, Hold};
use crate::error::StoreError;
use crate::keys::{answer_key, owner_key};
use crate::kv::{Commit, CommitOutcome, KvAnswer, KvToken, KvUnavailable, KvWrite, Versioned};
use crate::records::{AnswerRecord, Changed, from_value, to_value};
use crate::space::{SpaceAnswer, SpaceError};
use alloc::vec::Vec;

impl Tree {
    /// Takes an answer that a task waits for.
    pub(super) fn task_answered(
        &mut self,
        id: TaskId,
        token: KvToken,
        purpose: Purpose,
        answer: KvAnswer,
        effects: &mut Vec<TreeEffect>,
    ) {
        let Some(mut task) = self.tasks.remove(&id) else { return };
        task.waiting.remove(&token);
        let done = match (purpose, answer) {
            (Purpose::Commit, KvAnswer::Outcome(outcome)) => self.committed(&mut task, outcome),
            (Purpose::Record(is_conflict), KvAnswer::Value(value)) => self.record_read(&mut task, is_conflict, value),
            (Purpose::Key(key, by), KvAnswer::Value(Ok(value))) => {
                let value = value.map(|found| found.value);
                match by.and_then(|by| self.containers.get_mut(&by)).filter(|container| container.lock == Some(id)) {
                    Some(container) => container.remember(key, value),
                    None => drop(task.seen.values.insert(key, value)),
                }
                None
            }
            (Purpose::Owner(key), KvAnswer::Value(Ok(value))) => {
                task.owners.insert(key, value.map(|found| found.value));
                None
            }
            (Purpose::Page(page), KvAnswer::Page(Ok(found))) => {
                let found = found.into_iter().map(|(key, value)| (key, value.value));
                task.seen.pages.insert(page, found.collect());
                None
            }
            // No answer, or one to another question.
            _ => {
                task.has_failed = true;
                None
            }
        };
        self.end_or_go_on(id, task, done, effects);
    }

    fn end_or_go_on(&mut self, id: TaskId, mut task: Task, done: Option<NameAnswer>, effects: &mut Vec<TreeEffect>) {
        match done {
            Some(answer) => self.finish(id, task, answer, effects),
            None => {
                if task.waiting.is_empty() && task.stage == Stage::Waiting {
                    task.stage = Stage::Ready;
                    self.ready.push_back(id);
                }
                self.tasks.insert(id, task);
            }
        }
    }

    /// What became of a task's commit that `Space` was to make.
    pub(super) fn space_changed(
        &mut self,
        id: TaskId,
        token: KvToken,
        result: Result<SpaceAnswer, SpaceError>,
        effects: &mut Vec<TreeEffect>,
    ) {
        let Some(mut task) = self.tasks.remove(&id) else { return };
        task.waiting.remove(&token);
        let done = match result {
            Ok(SpaceAnswer::Done(revision)) => self.committed(&mut task, CommitOutcome::Done(revision)),
            // Nothing that was sent with the old term can be made after that answer, so the record tells.
            Err(SpaceError::Conflict | SpaceError::Unknown) => {
                task.has_failed = true;
                self.committed(&mut task, CommitOutcome::Conflict)
            }
            Err(SpaceError::Busy) => {
                task.in_flight = None;
                self.doubt(&mut task);
                task.has_failed = true;
                None
            }
            Err(why) => {
                task.in_flight = None;
                Some(Err(refused(why)))
            }
            Ok(SpaceAnswer::Granted(_) | SpaceAnswer::Fenced) => Some(Err(StoreError::Damaged)),
        };
        self.end_or_go_on(id, task, done, effects);
    }

    /// The outcome of a task's commit; the answer, if the task is over.
    fn committed(&mut self, task: &mut Task, outcome: CommitOutcome) -> Option<NameAnswer> {
        let in_flight = task.in_flight.take()?;
        match (&in_flight.kind, outcome) {
            (CommitKind::Change(plan, told), CommitOutcome::Done(_)) => {
                let (plan, told) = (plan.clone(), told.clone());
                self.made(task, &plan);
                if plan.is_step {
                    task.forget_reads();
                    task.deadline = self.now.saturating_add(self.settings.patience);
                    return None;
                }
                return self.told(task, told);
            }
            (CommitKind::Change(_, Some(_)), CommitOutcome::Unknown) if self.mutation.is(Mutant::UnknownIsConflict) => {
                task.ignores_record = true;
                self.doubt(task);
            }
            (CommitKind::Change(_, Some(_)), CommitOutcome::Unknown | CommitOutcome::Conflict) => {
                task.in_flight = Some(in_flight);
                task.resolve = Some(Resolve::ReadRecord(outcome == CommitOutcome::Conflict));
            }
            (CommitKind::Change(..), CommitOutcome::TooLarge) => return Some(Err(StoreError::Damaged)),
            (CommitKind::Change(_, None), _) => {
                self.doubt(task);
                task.has_failed = true;
            }
            (CommitKind::AnswerApart(answer), _) => return Some(answer.clone()),
            (kind, outcome) => self.own_outcome(task, kind, outcome, &in_flight),
        }
        None
    }

    /// The outcome of a commit that is about owners and numbers. What is not done is looked at again.
    fn own_outcome(&mut self, task: &mut Task, kind: &CommitKind, outcome: CommitOutcome, in_flight: &InFlight) {
        let is_done = matches!(outcome, CommitOutcome::Done(_));
        match kind {
            CommitKind::Take(number, term) if is_done => {
                if let Some(container) = self.containers.get_mut(number) {
                    container.hold = Hold::Owned(*term);
                    container.yielded = None;
                }
            }
            CommitKind::Numbers { from, end } if is_done || self.mutation.is(Mutant::NumbersFromUnknown) => {
                self.numbers = Numbers { next: *from, end: *end };
            }
            CommitKind::Release if is_done => {
                let written = in_flight.commit.writes.first().and_then(|write| match write {
                    KvWrite::Put(key, value) => Some((key.clone(), Some(value.clone()))),
                    KvWrite::Delete(_) => None,
                });
                task.owners.extend(written);
                return;
            }
            _ => task.has_failed = !is_done,
        }
        task.forget_reads();
    }

    /// A change was made: what is remembered follows.
    fn made(&mut self, task: &Task, plan: &Plan) {
        for (by, write) in &plan.writes {
            for number in &task.containers {
                if let Some(container) = self.containers.get_mut(number) {
                    container.drop_key(write.key());
                }
            }
            if let Some(container) = by.and_then(|by| self.containers.get_mut(&by)) {
                match write {
                    KvWrite::Put(key, value) => container.remember(key.clone(), Some(value.clone())),
                    KvWrite::Delete(key) => container.remember(key.clone(), None),
                }
            }
        }
        for gone in &plan.gone {
            if let Some(container) = self.containers.get_mut(gone) {
                container.forget();
            }
        }
        for orphan in &plan.orphans {
            self.spawn_reaper(*orphan);
        }
        self.orphaned.extend(&plan.orphan_files);
    }

    /// What a task is told whose change was made, if that is its end.
    fn told(&mut self, task: &mut Task, told: Option<NameAnswer>) -> Option<NameAnswer> {
        if let Job::Reap(orphan) = task.job {
            // There may be more names; an orphan that is no more ends the task.
            task.forget_reads();
            task.deadline = self.now.saturating_add(self.settings.patience);
            let is_over = self.containers.get(&orphan).is_none_or(|container| container.hold == Hold::Unknown);
            return is_over.then_some(Err(StoreError::NotFound));
        }
        match (&task.job, told) {
            (Job::Request(NameRequest::Change(key, _), _), Some(answer)) if self.mutation.is(Mutant::AnswerApart) => {
                let recorded = match &answer {
                    Ok(NameReply::Changed(changed)) => Ok(*changed),
                    Ok(_) => return Some(answer),
                    Err(error) => Err(*error),
                };
                let record = AnswerRecord { sequence: key.sequence, answer: recorded };
                let write = KvWrite::Put(answer_key(key.session, key.slot), to_value(&record));
                let commit = Commit { expect: Vec::new(), writes: alloc::vec![write] };
                task.in_flight = Some(InFlight { commit, kind: CommitKind::AnswerApart(answer) });
                task.resolve = Some(Resolve::SendAgain);
                None
            }
            (Job::Settle(_, order), None) => Some(Ok(NameReply::Changed(Changed { inode: order.file, version: 0 }))),
            (_, None) => Some(Err(StoreError::NotFound)),
            (_, Some(answer)) => Some(answer),
        }
    }

    /// What is known of a task's containers may not be so any more.
    fn doubt(&mut self, task: &mut Task) {
        for number in &task.containers {
            if let Some(container) = self.containers.get_mut(number) {
                container.forget();
            }
        }
        task.forget_reads();
    }

    /// The record of the request was read, after a commit that was not simply done.
    fn record_read(
        &mut self,
        task: &mut Task,
        is_conflict: bool,
        value: Result<Option<Versioned>, KvUnavailable>,
    ) -> Option<NameAnswer> {
        let Job::Request(NameRequest::Change(key, _), _) = &task.job else { return None };
        let Ok(value) = value else {
            task.resolve = Some(Resolve::ReadRecord(is_conflict));
            task.stage = Stage::Paused(self.now.saturating_add(self.settings.retry));
            return None;
        };
        let record = value.and_then(|found| from_value::<AnswerRecord>(&found.value).ok());
        match record {
            Some(record) if record.sequence == key.sequence => {
                // The commit was made. What it has left is read again; work at its orphans begins here.
                if let Some(InFlight { kind: CommitKind::Change(plan, _), .. }) = task.in_flight.take() {
                    for orphan in plan.orphans {
                        self.spawn_reaper(orphan);
                    }
                    self.orphaned.extend(plan.orphan_files);
                }
                self.doubt(task);
                Some(record.answer.map(NameReply::Changed))
            }
            _ if is_conflict => {
                task.in_flight = None;
                self.doubt(task);
                None
            }
            _ => {
                task.resolve = Some(Resolve::SendAgain);
                task.stage = Stage::Paused(self.now.saturating_add(self.settings.retry));
                None
            }
        }
    }

    /// What holds of the machine at all times between two events.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        let is = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        for (number, container) in &self.containers {
            let holder = container.lock.and_then(|id| self.tasks.get(&id));
            is(container.lock.is_none() || holder.is_some(), "a container is held by a task that is not there")?;
            let has = holder.is_none_or(|task| task.containers.contains(number));
            is(has, "a task holds a container that it does not need")?;
            is(container.lock.is_some() || container.queue.is_empty(), "tasks wait for a container that nobody holds")?;
            for id in &container.queue {
                let waits = self.tasks.get(id).is_some_and(|task| task.stage == Stage::Queued(*number));
                is(waits, "a task in a queue does not wait for its container")?;
            }
            let is_owned = matches!(container.hold, Hold::Owned(_));
            is(
                is_owned || container.cached_keys().next().is_none(),
                "something is remembered of a container that is not owned",
            )?;
            is(!is_owned || self.lease.incarnation().is_some(), "a container is owned without a life")?;
            is(container.cached_keys().all(|key| *key != owner_key(*number)), "an owner's record is remembered")?;
        }
        for (id, task) in &self.tasks {
            if let Stage::Queued(number) = task.stage {
                let queue = self.containers.get(&number).map(|container| &container.queue);
                is(
                    queue.is_some_and(|queue| queue.contains(id)),
                    "a task waits for a container and is not in its queue",
                )?;
            }
            is(task.stage != Stage::Ready, "a task that could go on does not")?;
            let waits = task.stage != Stage::Waiting || !task.waiting.is_empty();
            is(waits, "a task waits for an answer to nothing")?;
            // In order of numbers: those before the first that it has not are its own.
            let has = |number| self.containers.get(number).is_some_and(|container| container.lock == Some(*id));
            let held = task.containers.iter().take_while(|number| has(number)).count();
            let later = task.containers.iter().skip(held).any(has);
            is(!later, "a task holds a container before one with a lower number")?;
            let is_change = matches!(&task.in_flight, Some(InFlight { kind: CommitKind::Change(..), .. }));
            is(!is_change || held == task.containers.len(), "a change is under way without its containers")?;
        }
        is(self.reaping.len() <= REAPERS_MAX, "too many orphans are worked at at the same time")?;
        for orphan in &self.reaping {
            let works = self.tasks.values().any(|task| task.job == Job::Reap(*orphan));
            is(works, "an orphan counts as worked at, and no task does")?;
        }
        let is_unused = |container: &&Container| container.lock.is_none() && matches!(container.hold, Hold::Owned(_));
        let unused = self.containers.values().filter(is_unused).count();
        is(unused <= self.settings.containers_max, "more containers than may be are remembered")?;
        is(self.numbers.next <= self.numbers.end, "inode numbers beyond those reserved")
    }
}

/// Why a client's change comes to nothing that `Space` has refused.
fn refused(why: SpaceError) -> StoreError {
    match why {
        SpaceError::NotYours => StoreError::NotGranted,
        SpaceError::Malformed | SpaceError::TooLarge => StoreError::Malformed,
        SpaceError::Full | SpaceError::UsedUp(_) => StoreError::NoSpace,
        SpaceError::Ahead => StoreError::Ahead,
        SpaceError::NotLeased(_) | SpaceError::Elsewhere => StoreError::NotGranted,
        SpaceError::Busy | SpaceError::Conflict | SpaceError::Unknown => StoreError::Unavailable,
    }
}
