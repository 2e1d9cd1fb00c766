//! How a task goes on: it takes its containers one after the other in the order of their numbers, owns each before it takes the next, and is planned
//! then. What the plan lacks is read, and the plan made anew.
//!
//! Tasks of one service wait for one another's containers, and services for one another's tasks, in the order of numbers only: so there is no
//! circle of waiting. A task that turns out to need one more container gives up all and begins again with that one among them.

use super::event::{NameRequest, TreeEffect};
use super::machine::{Tree, Waiter};
use super::mutant::Mutant;
use super::operation::{ChangeKey, NameAnswer, NameChange, NameQuery, NameReply, SettleOrder};
use super::plan::Planner;
use super::task::{CommitKind, InFlight, Job, ParentLookup, Plan, Purpose, Resolve, Stage, Task, TaskId};
use super::view::{Hold, PageKey, Planned, Stop, View, WantedKey};
use crate::error::StoreError;
use crate::id::{InodeId, SessionId};
use crate::keys::{KeySpace, answer_key, orphan_of, owner_key, session_key};
use crate::kv::{Commit, Expect, KvKey, KvRequest, KvWrite};
use crate::records::{
    AnswerRecord, Changed, CounterRecord, OrphanRecord, OwnerRecord, SessionRecord, from_value, to_value,
};
use crate::space::SpaceRequest;
use alloc::vec::Vec;
use weir_units::Nanos;

/// Inode numbers that are reserved at a time.
const NUMBERS: u64 = 1024;

/// Orphans that are looked at in one go.
const SWEEP_ORPHANS: usize = 64;

/// What comes of a step of a task.
#[derive(Debug)]
pub(super) enum Flow {
    /// The next step can be taken.
    Continue,
    /// It waits.
    Park,
    /// It is over.
    Finish(NameAnswer),
}

const DONE: NameAnswer = Ok(NameReply::Changed(Changed { inode: InodeId(0), version: 0 }));

impl Tree {
    /// Lets a task go on as far as it comes.
    pub(super) fn advance(&mut self, id: TaskId, effects: &mut Vec<TreeEffect>) {
        let Some(mut task) = self.tasks.remove(&id) else { return };
        if task.stage != Stage::Ready {
            self.tasks.insert(id, task);
            return;
        }
        loop {
            match self.step(id, &mut task, effects) {
                Flow::Continue => {}
                Flow::Park => {
                    self.tasks.insert(id, task);
                    return;
                }
                Flow::Finish(answer) => {
                    self.finish(id, task, answer, effects);
                    return;
                }
            }
        }
    }

    fn step(&mut self, id: TaskId, task: &mut Task, effects: &mut Vec<TreeEffect>) -> Flow {
        if task.in_flight.is_some() {
            return self.resolve(id, task, effects);
        }
        // A read that was not answered is tried again later, until the task has waited long enough.
        if core::mem::take(&mut task.has_failed) {
            return self.pause(task);
        }
        if let Some(error) = task.closing {
            return self.close(id, task, error, effects);
        }
        if let Some(flow) = self.gather(id, task, effects) {
            return flow;
        }
        if !self.may_answer() {
            return Flow::Finish(Err(StoreError::Unavailable));
        }
        match task.job.clone() {
            Job::Request(NameRequest::Query(query), _) => self.query(id, task, &query, effects),
            Job::Request(NameRequest::Change(key, change), _) => self.change(id, task, key, &change, effects),
            Job::Release(container, to) => self.release(id, task, container, to, effects),
            Job::Reap(orphan) => self.reap(id, task, orphan, effects),
            Job::Unused(file) => self.unused(id, task, file, effects),
            Job::Settle(_, order) => self.settle(id, task, &order, effects),
            Job::Sweep(from) => self.sweep(id, task, &from, effects),
        }
    }

    /// Goes on after a while, or not at all if it has waited long enough.
    pub(super) fn pause(&self, task: &mut Task) -> Flow {
        if self.now >= task.deadline {
            return Flow::Finish(Err(StoreError::Unavailable));
        }
        task.stage = Stage::Paused(self.now.saturating_add(self.settings.retry));
        Flow::Park
    }

    /// Takes and owns all containers; `None` when that is so.
    fn gather(&mut self, id: TaskId, task: &mut Task, effects: &mut Vec<TreeEffect>) -> Option<Flow> {
        for number in task.containers.clone() {
            self.uses += 1;
            let container = self.containers.entry(number).or_default();
            container.used = self.uses;
            match container.lock {
                None => container.lock = Some(id),
                Some(holder) if holder == id => {}
                Some(_) => {
                    container.queue.push_back(id);
                    task.stage = Stage::Queued(number);
                    return Some(Flow::Park);
                }
            }
            let is_release = matches!(task.job, Job::Release(..));
            if container.hold == Hold::Unknown && !is_release {
                return Some(self.own(id, task, number, effects));
            }
        }
        None
    }

    /// Reads keys for the plan.
    pub(super) fn fetch(
        &mut self,
        id: TaskId,
        task: &mut Task,
        keys: Vec<(KvKey, Purpose)>,
        effects: &mut Vec<TreeEffect>,
    ) -> Flow {
        for (key, purpose) in keys {
            let token = self.send(Waiter::Task(id, purpose), KvRequest::Get(key), effects);
            task.waiting.insert(token);
        }
        task.stage = Stage::Waiting;
        Flow::Park
    }

    /// Sends a commit.
    pub(super) fn commit(
        &mut self,
        id: TaskId,
        task: &mut Task,
        commit: Commit,
        kind: CommitKind,
        effects: &mut Vec<TreeEffect>,
    ) -> Flow {
        let request = KvRequest::Commit(commit.clone());
        let token = self.send(Waiter::Task(id, Purpose::Commit), request, effects);
        task.waiting.insert(token);
        task.in_flight = Some(InFlight { commit, kind });
        task.stage = Stage::Waiting;
        Flow::Park
    }

    fn planner<'a>(&'a self, task: &'a Task) -> Planner<'a> {
        Planner {
            view: View { seen: &task.seen, containers: &self.containers, held: &task.containers },
            wall: task.wall,
            inline_max: self.settings.inline_max,
            number: (self.numbers.next < self.numbers.end).then_some(InodeId(self.numbers.next)),
            reads_parent: task.parent == ParentLookup::Reads,
            session: match &task.job {
                Job::Request(NameRequest::Change(key, _), _) => Some(key.session),
                _ => None,
            },
            mutation: self.mutation,
            is_open: false,
            attributes: alloc::collections::BTreeMap::new(),
            plan: Plan::default(),
        }
    }

    fn query(&mut self, id: TaskId, task: &mut Task, query: &NameQuery, effects: &mut Vec<TreeEffect>) -> Flow {
        match self.planner(task).query(query) {
            Ok(reply) => Flow::Finish(Ok(reply)),
            Err(Stop::Refuse(error) | Stop::Never(error)) => Flow::Finish(Err(error)),
            Err(stop) => self.satisfy(id, task, stop, effects),
        }
    }

    /// A change: first whether it was made before, then what it comes to.
    fn change(
        &mut self,
        id: TaskId,
        task: &mut Task,
        key: ChangeKey,
        change: &NameChange,
        effects: &mut Vec<TreeEffect>,
    ) -> Flow {
        let (record, last) = match self.recorded(task, key) {
            Ok(Some(told)) => return Flow::Finish(told),
            Ok(None) => {
                let key = answer_key(key.session, key.slot);
                (key.clone(), task.seen.values.get(&key).cloned().flatten())
            }
            Err(Stop::Refuse(error) | Stop::Never(error)) => return Flow::Finish(Err(error)),
            Err(stop) => return self.satisfy(id, task, stop, effects),
        };
        let mut planner = self.planner(task);
        let outcome = planner.change(change);
        let mut plan = planner.plan;
        let answer = match outcome {
            Ok(changed) => Ok(changed),
            Err(Stop::Refuse(error)) if self.mutation.is(Mutant::RefusalNotRecorded) => {
                return Flow::Finish(Err(error));
            }
            Err(Stop::Refuse(error)) => {
                plan = Plan { expect: plan.expect, ..Plan::default() };
                Err(error)
            }
            Err(Stop::Never(error)) => {
                task.closing = Some(error);
                task.forget_reads();
                return Flow::Continue;
            }
            Err(stop) => return self.satisfy(id, task, stop, effects),
        };
        let mut commit = self.guarded(task, &plan);
        commit.expect.push((session_key(key.session), Expect::Present));
        commit.expect.push((record.clone(), last.map_or(Expect::Absent, Expect::Value)));
        if !plan.is_step && !self.mutation.is(Mutant::AnswerApart) {
            let told = AnswerRecord { sequence: key.sequence, answer };
            commit.writes.push(KvWrite::Put(record, to_value(&told)));
        }
        let told = (!plan.is_step).then(|| answer.map(NameReply::Changed));
        self.commit_change(id, task, commit, plan, told, effects)
    }

    /// The answer that a change got when it was made, if it was.
    fn recorded(&self, task: &Task, key: ChangeKey) -> Planned<Option<NameAnswer>> {
        let view = View { seen: &task.seen, containers: &self.containers, held: &task.containers };
        let record: Option<AnswerRecord> = view.free(answer_key(key.session, key.slot))?;
        if view.free::<SessionRecord>(session_key(key.session))?.is_none() {
            return Err(Stop::Never(StoreError::SessionGone));
        }
        match record {
            _ if task.ignores_record || self.mutation.is(Mutant::RecordNotRead) => Ok(None),
            Some(record) if record.sequence == key.sequence => Ok(Some(record.answer.map(NameReply::Changed))),
            Some(record) if record.sequence > key.sequence => Err(Stop::Never(StoreError::OldSequence)),
            Some(_) | None => Ok(None),
        }
    }

    /// A plan's commit, with the terms of all containers that the task has.
    fn guarded(&self, task: &Task, plan: &Plan) -> Commit {
        let mut expect = plan.expect.clone();
        for number in &task.containers {
            let hold = self.containers.get(number).map(|container| container.hold);
            if let (Some(Hold::Owned(term)), false) = (hold, self.mutation.is(Mutant::NoTerm)) {
                let incarnation = self.lease.incarnation().unwrap_or_default();
                let owner = OwnerRecord { service: self.settings.service, incarnation, term };
                expect.push((owner_key(*number), Expect::Value(to_value(&owner))));
            }
        }
        Commit { expect, writes: plan.writes.iter().map(|(_, write)| write.clone()).collect() }
    }

    fn commit_change(
        &mut self,
        id: TaskId,
        task: &mut Task,
        commit: Commit,
        plan: Plan,
        told: Option<NameAnswer>,
        effects: &mut Vec<TreeEffect>,
    ) -> Flow {
        if plan.uses_number {
            self.numbers.next += 1;
        }
        if !plan.space.is_empty() {
            return self.send_to_space(id, task, commit, plan, told, effects);
        }
        self.commit(id, task, commit, CommitKind::Change(plan, told), effects)
    }

    /// Has `Space` make a commit in which blocks change hands.
    fn send_to_space(
        &mut self,
        id: TaskId,
        task: &mut Task,
        commit: Commit,
        plan: Plan,
        told: Option<NameAnswer>,
        effects: &mut Vec<TreeEffect>,
    ) -> Flow {
        let session = match &task.job {
            Job::Request(NameRequest::Change(key, _), _) => key.session,
            Job::Settle(_, order) => order.session,
            _ => SessionId(0),
        };
        let (map, unmap) = (plan.space.map.clone(), plan.space.unmap.clone());
        let request = SpaceRequest::Publish { session, map, unmap, with: commit.clone() };
        let token = self.await_answer(Waiter::Task(id, Purpose::Space));
        effects.push(TreeEffect::Space(token, request));
        task.waiting.insert(token);
        task.in_flight = Some(InFlight { commit, kind: CommitKind::Change(plan, told) });
        task.stage = Stage::Waiting;
        Flow::Park
    }

    /// Gets what a plan lacks.
    fn satisfy(&mut self, id: TaskId, task: &mut Task, stop: Stop, effects: &mut Vec<TreeEffect>) -> Flow {
        match stop {
            Stop::Keys(keys) => {
                let wanted = keys.into_iter().map(|WantedKey { key, by }| (key.clone(), Purpose::Key(key, by)));
                self.fetch(id, task, wanted.collect(), effects)
            }
            Stop::Page(page) => {
                let PageKey { from, until, most } = page.clone();
                let waiter = Waiter::Task(id, Purpose::Page(page));
                let token = self.send(waiter, KvRequest::Range { from, until, most }, effects);
                task.waiting.insert(token);
                task.stage = Stage::Waiting;
                Flow::Park
            }
            Stop::Containers(more) => {
                self.unlock(id, task);
                task.containers.extend(more);
                task.forget_reads();
                Flow::Continue
            }
            Stop::Instead(others) => {
                self.unlock(id, task);
                task.containers = others;
                task.parent = ParentLookup::AsRead;
                task.forget_reads();
                Flow::Continue
            }
            Stop::Numbers => self.reserve_numbers(id, task, effects),
            Stop::Refuse(error) | Stop::Never(error) => Flow::Finish(Err(error)),
        }
    }

    fn reserve_numbers(&mut self, id: TaskId, task: &mut Task, effects: &mut Vec<TreeEffect>) -> Flow {
        let key = KeySpace::NextInode.key(&[]);
        let Some(found) = task.seen.values.get(&key) else {
            let purpose = Purpose::Key(key.clone(), None);
            return self.fetch(id, task, alloc::vec![(key, purpose)], effects);
        };
        let counter = found.as_deref().ok_or(StoreError::Damaged).and_then(from_value::<CounterRecord>);
        let (Ok(counter), Some(value)) = (counter, found) else { return Flow::Finish(Err(StoreError::Damaged)) };
        let Some(end) = counter.next.checked_add(NUMBERS) else { return Flow::Finish(Err(StoreError::Damaged)) };
        let commit = Commit {
            expect: alloc::vec![(key.clone(), Expect::Value(value.clone()))],
            writes: alloc::vec![KvWrite::Put(key, to_value(&CounterRecord { next: end }))],
        };
        self.commit(id, task, commit, CommitKind::Numbers { from: counter.next, end }, effects)
    }

    fn reap(&mut self, id: TaskId, task: &mut Task, orphan: InodeId, effects: &mut Vec<TreeEffect>) -> Flow {
        let mut planner = self.planner(task);
        let outcome = planner.reap(orphan);
        let plan = planner.plan;
        match outcome {
            Ok(_) => {
                let commit = self.guarded(task, &plan);
                self.commit_change(id, task, commit, plan, None, effects)
            }
            Err(stop) => self.satisfy(id, task, stop, effects),
        }
    }

    fn unused(&mut self, id: TaskId, task: &mut Task, file: InodeId, effects: &mut Vec<TreeEffect>) -> Flow {
        let mut planner = self.planner(task);
        let outcome = planner.unused(file);
        let plan = planner.plan;
        match outcome {
            Ok(()) => {
                let commit = self.guarded(task, &plan);
                self.commit_change(id, task, commit, plan, None, effects)
            }
            Err(stop) => self.satisfy(id, task, stop, effects),
        }
    }

    fn settle(&mut self, id: TaskId, task: &mut Task, order: &SettleOrder, effects: &mut Vec<TreeEffect>) -> Flow {
        let mut planner = self.planner(task);
        let outcome = planner.settle(order);
        let plan = planner.plan;
        match outcome {
            Ok(_) => {
                let commit = self.guarded(task, &plan);
                self.commit_change(id, task, commit, plan, None, effects)
            }
            Err(stop) => self.satisfy(id, task, stop, effects),
        }
    }

    /// Looks for orphans whose names are still there.
    fn sweep(&mut self, id: TaskId, task: &mut Task, from: &KvKey, effects: &mut Vec<TreeEffect>) -> Flow {
        let (from, until) = Self::orphans_from(from);
        let page = PageKey { from, until, most: SWEEP_ORPHANS };
        let Some(found) = task.seen.pages.get(&page) else { return self.satisfy(id, task, Stop::Page(page), effects) };
        let is_container =
            |value: &[u8]| from_value::<OrphanRecord>(value).is_ok_and(|record| record.kind.is_container());
        let orphans = found.iter().filter(|(_, value)| is_container(value)).filter_map(|(key, _)| orphan_of(key));
        let orphans: Vec<InodeId> = orphans.collect();
        let files = found.iter().filter(|(_, value)| !is_container(value)).filter_map(|(key, _)| orphan_of(key));
        self.orphaned.extend(files.collect::<Vec<_>>());
        let last = found.last().filter(|_| found.len() == SWEEP_ORPHANS).map(|(key, _)| key.clone());
        for orphan in orphans {
            self.spawn_reaper(orphan);
        }
        // What is left is found when those have gone.
        let last = last.filter(|_| !self.has_more_orphans);
        match last {
            None => Flow::Finish(DONE),
            Some(mut next) => {
                next.0.push(0);
                task.job = Job::Sweep(next);
                task.forget_reads();
                task.deadline = self.now.saturating_add(self.settings.patience);
                Flow::Continue
            }
        }
    }

    /// A change is refused because of something that is not there and never will be: unless it was made before that was so.
    fn close(&mut self, id: TaskId, task: &mut Task, error: StoreError, effects: &mut Vec<TreeEffect>) -> Flow {
        let Job::Request(NameRequest::Change(key, _), _) = &task.job else { return Flow::Finish(Err(error)) };
        match self.recorded(task, *key) {
            Ok(Some(told)) => Flow::Finish(told),
            Ok(None) => Flow::Finish(Err(error)),
            Err(Stop::Refuse(error) | Stop::Never(error)) => Flow::Finish(Err(error)),
            Err(stop) => self.satisfy(id, task, stop, effects),
        }
    }

    /// A commit was not simply done.
    fn resolve(&mut self, id: TaskId, task: &mut Task, effects: &mut Vec<TreeEffect>) -> Flow {
        let next = task.resolve.take();
        match (next, &task.job, &task.in_flight) {
            (Some(Resolve::ReadRecord(is_conflict)), Job::Request(NameRequest::Change(key, _), _), _) => {
                let key = answer_key(key.session, key.slot);
                self.fetch(id, task, alloc::vec![(key, Purpose::Record(is_conflict))], effects)
            }
            (Some(Resolve::SendAgain), _, Some(in_flight)) => {
                let InFlight { commit, kind } = in_flight.clone();
                self.commit(id, task, commit, kind, effects)
            }
            _ => {
                task.stage = Stage::Waiting;
                Flow::Park
            }
        }
    }

    /// How long tasks wait for one another's service at the most before they look again.
    pub(super) fn yield_until(&self) -> Nanos {
        self.now.saturating_add(Nanos(self.settings.retry.get().saturating_mul(8)))
    }
}
