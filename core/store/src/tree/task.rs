//! A request, or a piece of work of the service's own, on its way.

use super::event::{NameRequest, RequestToken};
use super::operation::{NameAnswer, SettleOrder};
use super::view::Seen;
use crate::error::StoreError;
use crate::extent::Extent;
use crate::id::{InodeId, ServiceId, Term};
use crate::inode::UnixNanos;
use crate::kv::{Commit, KvKey, KvToken, KvWrite};
use crate::space::BlockPlace;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use weir_units::Nanos;

/// A task, by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(pub u64);

/// What a task is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// A client waits, in as many requests as it has sent.
    Request(NameRequest, Vec<RequestToken>),
    /// Another service wants a container.
    Release(InodeId, ServiceId),
    /// The names of an orphan become orphans, and it goes.
    Reap(InodeId),
    /// A deleted file that nobody has open goes.
    Unused(InodeId),
    /// A block was recovered, or moved.
    Settle(RequestToken, SettleOrder),
    /// Orphans that nobody works at are looked for, from that key on.
    Sweep(KvKey),
}

/// Which blocks change hands in a plan's commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceEdit {
    /// Granted blocks that become the file's.
    pub map: Vec<BlockPlace>,
    /// Blocks of the file that are given up.
    pub unmap: Vec<(InodeId, Extent)>,
}

impl SpaceEdit {
    pub fn is_empty(&self) -> bool {
        self.map.is_empty() && self.unmap.is_empty()
    }

    pub fn len(&self) -> usize {
        self.map.len() + self.unmap.len()
    }
}

/// A change, complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Preconditions beside those that every change has.
    pub expect: Vec<(KvKey, crate::kv::Expect)>,
    /// What is written, and which container remembers it.
    pub writes: Vec<(Option<InodeId>, KvWrite)>,
    /// Containers that are no more.
    pub gone: Vec<InodeId>,
    /// Orphans that were made, whose names are to go.
    pub orphans: Vec<InodeId>,
    /// Files that have lost their names.
    pub orphan_files: Vec<InodeId>,
    /// Blocks that change hands in the same commit.
    pub space: SpaceEdit,
    /// It is a step on the way: the task goes on behind it.
    pub is_step: bool,
    /// Whether it has used up an inode number.
    pub uses_number: bool,
}

/// What a commit is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommitKind {
    /// This service becomes the owner of a container, in that term.
    Take(InodeId, Term),
    /// The life of a service is ended.
    Fence,
    /// A container is given up.
    Release,
    /// Inode numbers are reserved.
    Numbers {
        /// The first.
        from: u64,
        /// The one behind the last.
        end: u64,
    },
    /// A change, and what the client is told; without an answer it is work of the service's own.
    Change(Plan, Option<NameAnswer>),
    /// The answer, which the change had left out: by mistake only.
    AnswerApart(NameAnswer),
}

/// A commit under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InFlight {
    pub commit: Commit,
    pub kind: CommitKind,
}

/// What is next for a commit that was not simply done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolve {
    /// The record of the request says whether it was made. Whether the commit conflicted, or else is unknown.
    ReadRecord(bool),
    /// It has not been made so far: it is sent again, as it was. Of the two only one can be made.
    SendAgain,
}

/// What an answer of the key-value store is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Something that the plan wants.
    Key(KvKey, Option<InodeId>),
    /// A range that the plan wants.
    Page(super::view::PageKey),
    /// The records by which a container's owner is found.
    Owner(KvKey),
    /// The outcome of the commit.
    Commit,
    /// What became of the commit that `Space` makes.
    Space,
    /// The record of the request, after a commit was not simply done. Whether that was a conflict.
    Record(bool),
}

/// What a task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It can go on.
    Ready,
    /// It waits for a container.
    Queued(InodeId),
    /// It waits for the key-value store.
    Waiting,
    /// It goes on at that time.
    Paused(Nanos),
}

/// Where the inode is taken to be that a task is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParentLookup {
    /// Where the client has seen it.
    AsTold,
    /// Its record is to be read.
    Reads,
    /// Where its record said that it is.
    AsRead,
}

/// A task.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub job: Job,
    pub stage: Stage,
    /// The containers that it needs, as far as it knows.
    pub containers: BTreeSet<InodeId>,
    /// Answers that it waits for.
    pub waiting: BTreeSet<KvToken>,
    /// What was read for the plan.
    pub seen: Seen,
    /// What was read to find a container's owner.
    pub owners: BTreeMap<KvKey, Option<Vec<u8>>>,
    pub in_flight: Option<InFlight>,
    pub resolve: Option<Resolve>,
    /// A read was not answered.
    pub has_failed: bool,
    /// It is refused with this, once the record of the request has been looked at again.
    pub closing: Option<StoreError>,
    /// Where its inode is taken to be, if it is about one.
    pub parent: ParentLookup,
    /// Its record is not looked at: by mistake only.
    pub ignores_record: bool,
    pub deadline: Nanos,
    pub wall: UnixNanos,
}

impl Task {
    pub fn new(job: Job, containers: BTreeSet<InodeId>, deadline: Nanos, wall: UnixNanos) -> Self {
        Self {
            job,
            stage: Stage::Ready,
            containers,
            waiting: BTreeSet::new(),
            seen: Seen::default(),
            owners: BTreeMap::new(),
            in_flight: None,
            resolve: None,
            has_failed: false,
            closing: None,
            parent: ParentLookup::AsTold,
            ignores_record: false,
            deadline,
            wall,
        }
    }

    /// Forgets what was read: it may be as old as the last pause.
    pub fn forget_reads(&mut self) {
        self.seen.clear();
        self.owners.clear();
    }
}
