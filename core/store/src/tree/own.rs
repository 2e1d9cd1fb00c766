//! Who owns a container: how this service becomes the owner, and how it gives a container up.
//!
//! ```text
//!   no owner, or a dead one ──take: the term rises──► owned
//!   a living one ──the task's first container──► the client is redirected
//!                └─another one──► the owner is asked to release it ──► no owner
//!   this life, and the container is not held: it was perhaps given up──take: the term rises──► owned
//!   one that has not renewed for a lease and the margin ──fence: its life is over, for good──► a dead one
//! ```

use super::advance::Flow;
use super::event::{NameRequest, PeerMessage, TreeEffect};
use super::machine::Tree;
use super::mutant::Mutant;
use super::operation::{FileChange, InodePath, NameChange, NameQuery, NameReply};
use super::task::{CommitKind, Job, ParentLookup, Purpose, Task, TaskId};
use super::view::Hold;
use crate::error::StoreError;
use crate::id::{InodeId, ServiceId, Term};
use crate::inode::Inode;
use crate::keys::{inode_key, owner_key, service_key};
use crate::kv::{Commit, Expect, KvWrite};
use crate::records::{Changed, OwnerRecord, ServiceRecord, from_value, to_value};
use alloc::vec::Vec;

/// What is known of an owner that is another life.
enum OwnerLife {
    /// It is over.
    Over,
    /// It may go on.
    GoesOn,
    /// It has not renewed for long: its lease as it is.
    Silent(ServiceRecord),
}

impl Tree {
    /// The next step on the way to own a container that the task has.
    pub(super) fn own(&mut self, id: TaskId, task: &mut Task, number: InodeId, effects: &mut Vec<TreeEffect>) -> Flow {
        let Some(incarnation) = self.lease.incarnation() else { return Flow::Finish(Err(StoreError::Unavailable)) };
        let (owner, inode) = (owner_key(number), inode_key(number));
        let (Some(owner_value), Some(inode_value)) = (task.owners.get(&owner).cloned(), task.owners.get(&inode)) else {
            let keys = [owner, inode].map(|key| (key.clone(), Purpose::Owner(key)));
            return self.fetch(id, task, keys.into(), effects);
        };
        let found = inode_value.as_deref().map(from_value::<Inode>);
        match found {
            None => return self.lacks(id, task, number),
            Some(Err(error)) => return Flow::Finish(Err(error)),
            Some(Ok(inode)) if !inode.kind.is_container() => {
                return self.is_no_container(id, task, number, inode.parent);
            }
            Some(Ok(_)) => {}
        }
        let record = match owner_value.as_deref().map(from_value::<OwnerRecord>).transpose() {
            Ok(record) => record.unwrap_or_default(),
            Err(error) => return Flow::Finish(Err(error)),
        };
        let is_mine = record.service == self.settings.service && record.incarnation == incarnation;
        if is_mine && self.mutation.is(Mutant::OwnAgainInSameTerm) {
            if let Some(container) = self.containers.get_mut(&number) {
                container.hold = Hold::Owned(record.term);
                container.yielded = None;
            }
            task.owners.clear();
            return Flow::Continue;
        }
        if record.service == ServiceId(0) {
            if let Some(to) = self.is_yielded(number) {
                return self.elsewhere(id, task, number, to, None, effects);
            }
        } else if !is_mine {
            match self.life(id, task, record, effects) {
                Err(flow) => return flow,
                Ok(OwnerLife::Over) => {}
                Ok(OwnerLife::GoesOn) => {
                    return self.elsewhere(
                        id,
                        task,
                        number,
                        record.service,
                        Some(PeerMessage::Release(number)),
                        effects,
                    );
                }
                Ok(OwnerLife::Silent(lease)) if !self.mutation.is(Mutant::NoFence) => {
                    return self.fence(id, task, record.service, lease, effects);
                }
                Ok(OwnerLife::Silent(_)) => {}
            }
        }
        // Where the record names this life, a commit that gives the container up may still be on its way. It expects the term, so that rises here too.
        let Some(term) = record.term.next() else { return Flow::Finish(Err(StoreError::Damaged)) };
        let taken = OwnerRecord { service: self.settings.service, incarnation, term };
        let commit = Commit {
            expect: alloc::vec![
                (owner.clone(), owner_value.map_or(Expect::Absent, Expect::Value)),
                (inode, Expect::Present)
            ],
            writes: alloc::vec![KvWrite::Put(owner, to_value(&taken))],
        };
        self.commit(id, task, commit, CommitKind::Take(number, taken.term), effects)
    }

    /// A container does not exist, and never will again.
    fn lacks(&mut self, id: TaskId, task: &mut Task, number: InodeId) -> Flow {
        if is_only_seen_in(task, number) {
            return self.look_up_parent(id, task);
        }
        if !is_named(task, number) {
            // It was to be replaced or deleted, and is gone already: the name may lead elsewhere by now.
            self.unlock(id, task);
            task.containers.remove(&number);
            task.forget_reads();
            return Flow::Continue;
        }
        task.closing = Some(StoreError::NotFound);
        task.forget_reads();
        Flow::Continue
    }

    /// What was taken for a container is a file or symlink.
    fn is_no_container(&mut self, id: TaskId, task: &mut Task, number: InodeId, parent: InodeId) -> Flow {
        if parent != InodeId(0) && inode_path(&task.job).is_some_and(|at| at.inode == number) {
            self.unlock(id, task);
            task.containers = [parent].into();
            task.forget_reads();
            return Flow::Continue;
        }
        task.closing = Some(StoreError::NotDirectory);
        task.forget_reads();
        Flow::Continue
    }

    /// Where the task's inode is, its record tells, whoever owns it.
    fn look_up_parent(&mut self, id: TaskId, task: &mut Task) -> Flow {
        self.unlock(id, task);
        task.containers.clear();
        task.parent = ParentLookup::Reads;
        task.forget_reads();
        Flow::Continue
    }

    fn is_yielded(&self, number: InodeId) -> Option<ServiceId> {
        let yielded = self.containers.get(&number).and_then(|container| container.yielded);
        yielded.filter(|(_, until)| self.now < *until).map(|(to, _)| to)
    }

    /// Another service has the container: the client is sent there, or that service is asked for it.
    fn elsewhere(
        &mut self,
        id: TaskId,
        task: &mut Task,
        number: InodeId,
        service: ServiceId,
        message: Option<PeerMessage>,
        effects: &mut Vec<TreeEffect>,
    ) -> Flow {
        if is_first(task, number) {
            // The owner of the container where an inode was seen would send the client on, and perhaps back.
            if is_only_seen_in(task, number) && task.parent == ParentLookup::AsTold {
                return self.look_up_parent(id, task);
            }
            return Flow::Finish(Err(StoreError::Redirect(service)));
        }
        effects.extend(message.map(|message| TreeEffect::Peer(service, message)));
        task.owners.clear();
        self.pause(task)
    }

    /// What is known of the life in which a service became the owner.
    fn life(
        &mut self,
        id: TaskId,
        task: &mut Task,
        owner: OwnerRecord,
        effects: &mut Vec<TreeEffect>,
    ) -> Result<OwnerLife, Flow> {
        let key = service_key(owner.service);
        let Some(value) = task.owners.get(&key) else {
            let purpose = Purpose::Owner(key.clone());
            return Err(self.fetch(id, task, alloc::vec![(key, purpose)], effects));
        };
        let Some(value) = value.as_deref() else { return Ok(OwnerLife::Over) };
        let lease: ServiceRecord = from_value(value).map_err(|error| Flow::Finish(Err(error)))?;
        if lease.incarnation != owner.incarnation || lease.is_fenced {
            return Ok(OwnerLife::Over);
        }
        let is_own = owner.service == self.settings.service;
        let is_silent = !is_own && self.is_silent(owner.service, lease);
        Ok(if is_silent { OwnerLife::Silent(lease) } else { OwnerLife::GoesOn })
    }

    /// Whether a lease has been as it is for longer than it lasts.
    fn is_silent(&mut self, service: ServiceId, lease: ServiceRecord) -> bool {
        if self.mutation.is(Mutant::TakeoverAtOnce) {
            return true;
        }
        let (seen, since) = self.observed.entry(service).or_insert((lease, self.now));
        if *seen != lease {
            (*seen, *since) = (lease, self.now);
        }
        self.now >= since.saturating_add(self.settings.lease).saturating_add(self.settings.margin)
    }

    /// Ends the life of a service that does not renew, unless it has by then.
    fn fence(
        &mut self,
        id: TaskId,
        task: &mut Task,
        service: ServiceId,
        lease: ServiceRecord,
        effects: &mut Vec<TreeEffect>,
    ) -> Flow {
        let key = service_key(service);
        let fenced = ServiceRecord { is_fenced: true, ..lease };
        let commit = Commit {
            expect: alloc::vec![(key.clone(), Expect::Value(to_value(&lease)))],
            writes: alloc::vec![KvWrite::Put(key, to_value(&fenced))],
        };
        self.commit(id, task, commit, CommitKind::Fence, effects)
    }

    /// Gives up a container that another service wants; the task has it.
    pub(super) fn release(
        &mut self,
        id: TaskId,
        task: &mut Task,
        number: InodeId,
        to: ServiceId,
        effects: &mut Vec<TreeEffect>,
    ) -> Flow {
        let key = owner_key(number);
        let Some(value) = task.owners.get(&key).cloned() else {
            return self.fetch(id, task, alloc::vec![(key.clone(), Purpose::Owner(key))], effects);
        };
        let record = value.as_deref().map(from_value::<OwnerRecord>);
        let mine = (self.settings.service, self.lease.incarnation());
        let Some(Ok(record)) = record.filter(|record| record.is_ok_and(|r| (r.service, Some(r.incarnation)) == mine))
        else {
            let until = self.yield_until();
            if let Some(container) = self.containers.get_mut(&number) {
                container.yielded = Some((to, until));
            }
            effects.push(TreeEffect::Peer(to, PeerMessage::Released(number)));
            return Flow::Finish(Ok(NameReply::Changed(Changed::default())));
        };
        if let Some(container) = self.containers.get_mut(&number) {
            if !self.mutation.is(Mutant::ReleaseKeepsHold) {
                container.forget();
            }
        }
        let free = OwnerRecord { service: ServiceId(0), incarnation: Term(0), term: record.term };
        let commit = Commit {
            expect: alloc::vec![(key.clone(), Expect::Value(to_value(&record)))],
            writes: alloc::vec![KvWrite::Put(key, to_value(&free))],
        };
        self.commit(id, task, commit, CommitKind::Release, effects)
    }
}

/// The inode that a request is about, if it is not about a name.
fn inode_path(job: &Job) -> Option<InodePath> {
    match job {
        Job::Request(NameRequest::Query(NameQuery::Stat(at) | NameQuery::File(at)), _) => Some(*at),
        Job::Request(NameRequest::Change(_, NameChange::SetAttributes(at, _)), _)
        | Job::Request(NameRequest::Change(_, NameChange::SetExtended(at, ..)), _)
        | Job::Request(NameRequest::Change(_, NameChange::WriteInline(at, _)), _) => Some(*at),
        Job::Request(NameRequest::Change(_, NameChange::File(change)), _) => match change {
            FileChange::OpenWriter(at)
            | FileChange::CloseWriter(at)
            | FileChange::Publish(at, ..)
            | FileChange::Unsettle(at, _)
            | FileChange::OfOpen(at, _)
            | FileChange::MarkOut(at, ..) => Some(*at),
            FileChange::OpenNew { .. } | FileChange::UnderPolicy(..) => None,
        },
        _ => None,
    }
}

/// Whether the task is about an inode that was only seen in this container.
fn is_only_seen_in(task: &Task, number: InodeId) -> bool {
    inode_path(&task.job).is_some_and(|at| at.inode != number)
}

/// Whether the client should have asked the owner of this container.
fn is_first(task: &Task, number: InodeId) -> bool {
    matches!(task.job, Job::Request(..)) && (first(&task.job) == Some(number) || task.containers.len() == 1)
}

/// The container whose owner the client has asked, as far as it knew.
fn first(job: &Job) -> Option<InodeId> {
    match job {
        Job::Request(NameRequest::Query(query), _) => Some(query.container()),
        Job::Request(NameRequest::Change(_, change), _) => Some(change.container()),
        Job::Reap(orphan) => Some(*orphan),
        Job::Release(..) | Job::Unused(_) | Job::Settle(..) | Job::Sweep(_) => None,
    }
}

/// Whether the task is about this container from the beginning, or has come across it.
fn is_named(task: &Task, number: InodeId) -> bool {
    let target = match &task.job {
        Job::Request(NameRequest::Change(_, NameChange::Rename { to, .. }), _) => Some(to.container),
        _ => None,
    };
    first(&task.job) == Some(number) || target == Some(number) || task.containers.len() == 1
}
