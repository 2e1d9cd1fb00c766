//! The machine: events in, effects out.

use super::event::{NameRequest, PeerMessage, RequestToken, TreeEffect, TreeEvent};
use super::mutant::Mutation;
use super::operation::NameAnswer;
use super::service_lease::{Lease, LeaseNews};
use super::settings::TreeSettings;
use super::task::{Job, Purpose, Stage, Task, TaskId};
use super::view::Container;
use crate::error::StoreError;
use crate::id::{InodeId, ServiceId, Term};
use crate::inode::UnixNanos;
use crate::keys::KeySpace;
use crate::kv::{KvAnswer, KvKey, KvRequest, KvToken};
use crate::records::ServiceRecord;
use crate::space::{SpaceAnswer, SpaceError};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use weir_units::Nanos;

/// How often orphans are looked for that nobody works at.
const SWEEP_EVERY: Nanos = Nanos::from_secs(60);

/// Orphans that are worked at at the same time, at the most. More would only wait for one another: those with containers in them need the
/// rename key.
pub(super) const REAPERS_MAX: usize = 16;

/// Who waits for an answer of the key-value store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    Lease,
    Task(TaskId, Purpose),
}

/// Inode numbers that this service may give out: from the first on, and before the second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers {
    pub next: u64,
    pub end: u64,
}

/// The names of a store, as one metadata service answers for them. See the [module](crate::tree).
#[derive(Clone, Debug)]
pub struct Tree {
    pub(super) settings: TreeSettings,
    pub(super) mutation: Mutation,
    pub(super) now: Nanos,
    pub(super) wall: UnixNanos,
    pub(super) lease: Lease,
    pub(super) tasks: BTreeMap<TaskId, Task>,
    pub(super) containers: BTreeMap<InodeId, Container>,
    pub(super) pending: BTreeMap<KvToken, Waiter>,
    pub(super) numbers: Numbers,
    /// The leases of other services, and since when each is as it is.
    pub(super) observed: BTreeMap<ServiceId, (ServiceRecord, Nanos)>,
    /// Orphans that a task works at.
    pub(super) reaping: BTreeSet<InodeId>,
    pub(super) ready: VecDeque<TaskId>,
    /// There were more of them than are worked at at a time.
    pub(super) has_more_orphans: bool,
    /// Files that have lost their names, and of which the caller is to be told.
    pub(super) orphaned: Vec<InodeId>,
    sweep_at: Nanos,
    /// Orphans are to be looked for again when the look that goes on is over.
    sweeps_again: bool,
    /// How often tasks have used containers.
    pub(super) uses: u64,
    next_token: u64,
    next_task: u64,
}

impl Tree {
    /// One that owns nothing and has no lease yet.
    pub fn new(settings: TreeSettings) -> Self {
        Self {
            settings,
            mutation: Mutation::default(),
            now: Nanos(0),
            wall: UnixNanos(0),
            lease: Lease::new(),
            tasks: BTreeMap::new(),
            containers: BTreeMap::new(),
            pending: BTreeMap::new(),
            numbers: Numbers::default(),
            observed: BTreeMap::new(),
            reaping: BTreeSet::new(),
            ready: VecDeque::new(),
            has_more_orphans: false,
            orphaned: Vec::new(),
            sweep_at: Nanos(0),
            sweeps_again: false,
            uses: 0,
            next_token: 0,
            next_task: 0,
        }
    }

    /// Takes an event to its end, at that time of a clock that does not go backwards and goes on while the machine sleeps.
    pub fn apply(&mut self, now: Nanos, event: TreeEvent, effects: &mut Vec<TreeEffect>) {
        self.now = self.now.max(now);
        match event {
            TreeEvent::Request(token, request, wall) => self.request(token, request, wall, effects),
            TreeEvent::Kv(token, answer) => self.answered(token, answer, effects),
            TreeEvent::Space(token, result) => self.space_answered(token, result, effects),
            TreeEvent::Peer(from, message) => self.peer(from, message),
            TreeEvent::Unused(file) => {
                self.spawn(Job::Unused(file), BTreeSet::new());
            }
            TreeEvent::Settle(token, order) => {
                self.spawn(Job::Settle(token, order), BTreeSet::new());
            }
            TreeEvent::Tick => {}
        }
        self.upkeep(effects);
    }

    /// When the machine wants a [`TreeEvent::Tick`], if nothing else happens before.
    pub fn due(&self) -> Nanos {
        let paused = self.tasks.values().filter_map(|task| match task.stage {
            Stage::Paused(until) => Some(until),
            Stage::Ready | Stage::Queued(_) | Stage::Waiting => None,
        });
        let sweep = if self.lease.is_valid(self.now) { self.sweep_at } else { Nanos::NEVER };
        paused.fold(self.lease.due().min(sweep), Nanos::min)
    }

    /// With a mistake from now on.
    #[cfg(test)]
    pub(crate) fn plant(&mut self, mutant: Option<super::mutant::Mutant>) {
        self.mutation.mutant = mutant;
    }

    /// The mistakes of a service that are this machine's.
    #[cfg(test)]
    pub(crate) fn plant_of_service(&mut self, mutant: Option<crate::mutant::Mutant>) {
        self.mutation.mutant = match mutant {
            Some(crate::mutant::Mutant::BeginsBeforeLeaseOver) => Some(super::mutant::Mutant::BeginsAtOnce),
            Some(crate::mutant::Mutant::MoveUnderWriter) => Some(super::mutant::Mutant::MovedUnderWriter),
            Some(crate::mutant::Mutant::AnswersAfterLease) => Some(super::mutant::Mutant::AnswerAfterLease),
            Some(crate::mutant::Mutant::RenewalFromAnswer) => Some(super::mutant::Mutant::LeaseFromAnswer),
            _ => return,
        };
    }

    /// The life of the service that has the lease: it rises over all lives.
    pub fn incarnation(&self) -> Option<Term> {
        self.lease.incarnation()
    }

    /// The same mistake as the other, from now on.
    pub(crate) fn copy_mutation(&mut self, other: &Self) {
        self.mutation = other.mutation;
    }

    /// The life of the service that was seen last, if it is another process's.
    pub(crate) fn other_life(&self) -> Option<ServiceRecord> {
        self.lease.other_life()
    }

    /// Whether another process was seen to renew the lease of the service.
    pub(crate) fn is_anothers(&self) -> bool {
        self.lease.is_anothers()
    }

    /// The end of the lease as it was renewed last.
    pub(crate) fn lease_until(&self) -> Nanos {
        self.lease.until()
    }

    /// The lease is to be given up: another process may begin a life at once. Nothing is answered from now on.
    pub(crate) fn give_up_lease(&mut self) {
        self.lease.release();
    }

    /// Whether the lease is given up.
    pub(crate) fn is_released(&self) -> bool {
        self.lease.is_released()
    }

    /// Whether the service has a lease and may answer.
    pub fn is_serving(&self, now: Nanos) -> bool {
        self.lease.is_valid(now)
    }

    fn request(&mut self, token: RequestToken, request: NameRequest, wall: UnixNanos, effects: &mut Vec<TreeEffect>) {
        self.wall = self.wall.max(wall);
        if !self.may_answer() {
            effects.push(TreeEffect::Answer(token, Err(StoreError::Unavailable)));
            return;
        }
        // A change that is under way already is not begun a second time.
        if let NameRequest::Change(key, _) = &request {
            for task in self.tasks.values_mut() {
                if let Job::Request(NameRequest::Change(other, _), tokens) = &mut task.job {
                    if other == key {
                        tokens.push(token);
                        return;
                    }
                }
            }
        }
        let container = match &request {
            NameRequest::Query(query) => query.container(),
            NameRequest::Change(_, change) => change.container(),
        };
        self.spawn(Job::Request(request, alloc::vec![token]), BTreeSet::from([container]));
    }

    fn peer(&mut self, from: ServiceId, message: PeerMessage) {
        match message {
            PeerMessage::Release(container) => {
                let is_same = |task: &Task| matches!(task.job, Job::Release(other, _) if other == container);
                if !self.tasks.values().any(is_same) && self.lease.incarnation().is_some() {
                    self.spawn(Job::Release(container, from), BTreeSet::from([container]));
                }
            }
            PeerMessage::Released(container) => {
                for (id, task) in &mut self.tasks {
                    if matches!(task.stage, Stage::Paused(_)) && task.containers.contains(&container) {
                        task.stage = Stage::Ready;
                        self.ready.push_back(*id);
                    }
                }
            }
        }
    }

    /// A new task.
    pub(super) fn spawn(&mut self, job: Job, containers: BTreeSet<InodeId>) -> TaskId {
        let id = TaskId(self.next_task);
        self.next_task += 1;
        let deadline = self.now.saturating_add(self.settings.patience);
        self.tasks.insert(id, Task::new(job, containers, deadline, self.wall));
        self.ready.push_back(id);
        id
    }

    /// Whether blocks of files that were deleted are being given up.
    pub fn is_freeing(&self) -> bool {
        self.tasks.values().any(|task| matches!(task.job, Job::Reap(_) | Job::Unused(_)))
    }

    /// A new task that makes the names of an orphan go, if none does. Where there are too many such tasks, the orphan is found again when half of
    /// them are over.
    pub(super) fn spawn_reaper(&mut self, orphan: InodeId) {
        if self.reaping.contains(&orphan) {
            return;
        }
        if self.reaping.len() >= REAPERS_MAX {
            self.has_more_orphans = true;
            return;
        }
        self.reaping.insert(orphan);
        self.spawn(Job::Reap(orphan), BTreeSet::from([orphan]));
    }

    /// Asks the key-value store.
    pub(super) fn send(&mut self, waiter: Waiter, request: KvRequest, effects: &mut Vec<TreeEffect>) -> KvToken {
        let token = self.await_answer(waiter);
        effects.push(TreeEffect::Kv(token, request));
        token
    }

    /// A number for an answer that is waited for.
    pub(super) fn await_answer(&mut self, waiter: Waiter) -> KvToken {
        let token = KvToken(self.next_token);
        self.next_token += 1;
        self.pending.insert(token, waiter);
        token
    }

    fn space_answered(
        &mut self,
        token: KvToken,
        result: Result<SpaceAnswer, SpaceError>,
        effects: &mut Vec<TreeEffect>,
    ) {
        if let Some(Waiter::Task(id, Purpose::Space)) = self.pending.remove(&token) {
            self.space_changed(id, token, result, effects);
        }
    }

    fn answered(&mut self, token: KvToken, answer: KvAnswer, effects: &mut Vec<TreeEffect>) {
        match self.pending.remove(&token) {
            None => {}
            Some(Waiter::Task(id, purpose)) => self.task_answered(id, token, purpose, answer, effects),
            Some(Waiter::Lease) => {
                let (news, request) = self.lease.answer(self.now, &answer, &self.settings, self.mutation);
                if let Some(request) = request {
                    self.send(Waiter::Lease, request, effects);
                }
                match news {
                    LeaseNews::Same => {}
                    LeaseNews::Begun => self.sweep_at = self.now,
                    LeaseNews::Lost => self.lose_everything(effects),
                }
            }
        }
    }

    /// Another service has ended this life: whatever is under way comes to nothing here, and whatever was known is not sure any more.
    fn lose_everything(&mut self, effects: &mut Vec<TreeEffect>) {
        for task in core::mem::take(&mut self.tasks).into_values() {
            let tokens = match task.job {
                Job::Request(_, tokens) => tokens,
                Job::Settle(token, _) => alloc::vec![token],
                Job::Release(..) | Job::Reap(_) | Job::Unused(_) | Job::Sweep(_) => continue,
            };
            effects.extend(tokens.into_iter().map(|token| TreeEffect::Answer(token, Err(StoreError::Unavailable))));
        }
        self.containers.clear();
        self.pending.clear();
        self.reaping.clear();
        self.ready.clear();
        (self.has_more_orphans, self.sweeps_again) = (false, false);
    }

    /// What is due, and what can go on.
    fn upkeep(&mut self, effects: &mut Vec<TreeEffect>) {
        if let Some(request) = self.lease.step(self.now, &self.settings) {
            self.send(Waiter::Lease, request, effects);
        }
        if self.lease.is_valid(self.now) && self.now >= self.sweep_at {
            self.sweep_at = self.now.saturating_add(SWEEP_EVERY);
            self.sweeps_again = self.tasks.values().any(|task| matches!(task.job, Job::Sweep(_)));
            if !self.sweeps_again {
                self.spawn(Job::Sweep(KeySpace::Orphan.key(&[])), BTreeSet::new());
            }
        }
        for (id, task) in &mut self.tasks {
            if matches!(task.stage, Stage::Paused(until) if until <= self.now) {
                task.stage = Stage::Ready;
                self.ready.push_back(*id);
            }
        }
        while let Some(id) = self.ready.pop_front() {
            self.advance(id, effects);
        }
        effects.extend(self.orphaned.drain(..).map(TreeEffect::Orphaned));
        self.forget_unused();
    }

    /// Forgets containers that no task uses, those first that were used longest ago, where there are too many. In the key-value store this
    /// service stays their owner: who needs one asks for it, and so does this service, in another term.
    fn forget_unused(&mut self) {
        let most = self.settings.containers_max;
        if self.containers.len() <= most {
            return;
        }
        let now = self.now;
        self.containers.retain(|_, container| {
            container.yielded = container.yielded.filter(|(_, until)| now < *until);
            !container.is_idle()
        });
        let is_unused = |container: &&Container| container.lock.is_none() && container.yielded.is_none();
        let unused = self.containers.iter().map(|(number, container)| (container, *number));
        let unused = unused.filter(|(container, _)| is_unused(container));
        let mut unused: Vec<(u64, InodeId)> = unused.map(|(container, number)| (container.used, number)).collect();
        unused.sort_unstable();
        // Some more than have to be, so that this is not done for each one.
        let surplus = self.containers.len().saturating_sub(most - most / 8);
        for (_, number) in unused.into_iter().take(surplus) {
            self.containers.remove(&number);
        }
    }

    /// Whether clients are answered now.
    pub(super) fn may_answer(&self) -> bool {
        let is_mutant = self.mutation.is(super::mutant::Mutant::AnswerAfterLease) && self.lease.incarnation().is_some();
        self.lease.is_valid(self.now) || is_mutant
    }

    /// The end of a task. Without a lease the only answer is that there is none.
    pub(super) fn finish(&mut self, id: TaskId, task: Task, answer: NameAnswer, effects: &mut Vec<TreeEffect>) {
        self.unlock(id, &task);
        let answer = if self.may_answer() { answer } else { Err(StoreError::Unavailable) };
        match task.job {
            Job::Request(_, tokens) => {
                effects.extend(tokens.into_iter().map(|token| TreeEffect::Answer(token, answer.clone())));
            }
            Job::Reap(orphan) => {
                self.reaping.remove(&orphan);
                // One that has waited too long is found again.
                self.has_more_orphans |= answer == Err(StoreError::Unavailable);
                if self.has_more_orphans && self.reaping.len() <= REAPERS_MAX / 2 {
                    self.has_more_orphans = false;
                    self.sweep_at = self.now;
                }
            }
            Job::Sweep(_) => {
                if core::mem::take(&mut self.sweeps_again) {
                    self.sweep_at = self.now;
                }
            }
            Job::Settle(token, _) => effects.push(TreeEffect::Answer(token, answer)),
            Job::Release(..) | Job::Unused(_) => {}
        }
    }

    /// Gives up a task's containers: each goes to the one who waits longest.
    pub(super) fn unlock(&mut self, id: TaskId, task: &Task) {
        for number in &task.containers {
            let Some(container) = self.containers.get_mut(number) else { continue };
            container.queue.retain(|waiting| *waiting != id);
            if container.lock == Some(id) {
                container.lock = container.queue.pop_front();
                if let Some(next) = container.lock {
                    if let Some(next_task) = self.tasks.get_mut(&next) {
                        next_task.stage = Stage::Ready;
                    }
                    self.ready.push_back(next);
                }
            }
            if container.yielded.is_some_and(|(_, until)| until <= self.now) {
                container.yielded = None;
            }
            if container.is_idle() {
                self.containers.remove(number);
            }
        }
    }

    /// The range of all orphans behind a key.
    pub(super) fn orphans_from(from: &KvKey) -> (KvKey, KvKey) {
        (from.clone(), KeySpace::Orphan.end())
    }
}
