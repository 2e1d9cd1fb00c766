//! What a service knows, apart from its machines: connections, requests on their way, open files, namespaces.

use super::about::About;
use super::event::ConnectionId;
use super::resolve::Resolving;
use crate::Extent;
use crate::class::ClassId;
use crate::error::StoreError;
use crate::id::{Generation, InodeId, NamespaceId, RegionId, SessionId, Term};
use crate::inode::UnixNanos;
use crate::kv::KvToken;
use crate::location::Location;
use crate::members::{ContentLabel, SessionsEvent};
use crate::placement::{AskId, PlacementEvent};
use crate::protocol::{Donation, NamespaceState, RequestNumber};
use crate::records::{NamespaceRecord, ProcessRecord, SessionToken};
use crate::space::{Epoch, SpaceEvent};
use crate::tree::{ChangeKey, EntryPath, InodePath, NameChange, TreeEvent};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::Nanos;

/// What one part has for another.
#[derive(Debug)]
pub(super) enum Work {
    Tree(TreeEvent),
    Space(SpaceEvent),
    Placement(PlacementEvent),
    Sessions(SessionsEvent),
}

/// Who waits for the key-value store.
#[derive(Clone, Debug)]
pub(super) enum KvOwner {
    Tree(KvToken),
    Space(KvToken),
    Sessions(KvToken),
    Own(Box<OwnRead>),
}

impl KvOwner {
    pub fn own(read: OwnRead) -> Self {
        Self::Own(Box::new(read))
    }

    /// Whether it is about the process's own record, which it writes whoever serves.
    pub fn is_of_process(&self) -> bool {
        matches!(self, Self::Own(read) if matches!(**read, OwnRead::ProcessWritten))
    }
}

/// Who waits for `Space`.
#[derive(Clone, Copy, Debug)]
pub(super) enum SpaceOwner {
    Tree(KvToken),
    Placement(AskId),
    /// A client's `Return`.
    Request(u64),
    Nobody,
}

/// A connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Connection {
    pub greeted: bool,
    /// The version of the protocol that it has greeted with.
    pub version: u16,
    /// The greeting that is being answered.
    pub greets: Option<u64>,
    /// Of the session that it begins.
    pub token: SessionToken,
    pub session: Option<SessionId>,
    /// Requests under way.
    pub requests: BTreeSet<u64>,
}

/// A client's request on its way.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub connection: ConnectionId,
    pub number: RequestNumber,
    pub session: Option<SessionId>,
    /// The session has ended since.
    pub is_session_over: bool,
    /// A slot of the session that the service uses for it.
    pub slot: Option<u16>,
    pub what: What,
    pub about: About,
}

/// What a request waits for.
#[derive(Clone, Debug)]
pub(super) enum What {
    Change,
    Stat(InodePath),
    List,
    Resolve(Resolving),
    /// A container is being made, and has that name then: answered as a change.
    Container(EntryPath),
    /// The path of a file that is to be made is being looked for.
    Naming(Box<Naming>),
    /// A session is being begun.
    Opening(SessionId, SessionToken),
    Renewing,
    Closing(SessionId),
    /// The inode of a file that is opened is being read.
    Open(InodePath, bool),
    /// The file becomes this session's to write.
    OpenWriter(InodePath),
    OpenNew(InodeId),
    /// The change behind it is answered by `Done`.
    Step,
    /// The same, when the medium has it.
    Unsettle,
    Grant(Granting),
    /// Something that this file does not wait for by itself.
    Own,
}

/// A file that is made when its path is known, for its policy.
#[derive(Clone, Debug)]
pub(super) struct Naming {
    /// What the request waits for then.
    pub then: What,
    pub key: ChangeKey,
    pub change: NameChange,
    /// The container above it whose name is not known.
    pub at: InodeId,
    pub step: NamingStep,
    /// So often no name is known of one.
    pub tries: u32,
}

/// What is asked for that name.
#[derive(Clone, Debug)]
pub(super) enum NamingStep {
    /// Nothing.
    Path,
    /// Where a name leads that it may have.
    Perhaps(EntryPath),
    /// Its parent.
    Parent,
    /// The names that its parent has.
    Lists(InodeId),
}

/// Blocks on their way to a client.
#[derive(Clone, Debug, Default)]
pub(super) struct Granting {
    pub block: u64,
    /// What `Space` has granted, and how often each place had been given out.
    pub granted: Vec<(Extent, Generation)>,
    pub error: Option<StoreError>,
}

/// An open file.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    pub session: SessionId,
    /// The request that has opened it.
    pub request: RequestNumber,
    pub at: InodePath,
    pub writes: bool,
    pub block: u32,
    pub copies: u8,
    pub classes: Vec<ClassId>,
    pub location: Location,
    /// When it is closed counts for the demotion of its blocks.
    pub is_demotable: bool,
}

/// A donated namespace, as this service knows it.
#[derive(Clone, Debug)]
pub(super) struct Namespace {
    pub record: NamespaceRecord,
    pub state: NamespaceState,
    /// Its regions that are this service's.
    pub taken: BTreeSet<RegionId>,
    /// Its label is being read.
    pub is_asked: bool,
    pub retry: Nanos,
    pub due: Nanos,
    /// Since when it is in its state.
    pub since: Nanos,
    pub is_removed: bool,
}

impl Namespace {
    /// Whether blocks may be given out on it.
    pub fn is_open(&self) -> bool {
        self.state == NamespaceState::Up && !self.record.is_draining && !self.is_removed
    }
}

/// A donation on its way: whose request it is.
#[derive(Clone, Debug)]
pub(super) struct Donating {
    pub id: u64,
    pub donation: Donation,
    /// Its size and sector, once they are known.
    pub size: Option<(u64, u32)>,
    pub label: ContentLabel,
    /// The number that it had when it was removed.
    pub was: Option<NamespaceId>,
}

/// Who waits for a namespace.
#[derive(Clone, Debug)]
pub(super) enum TierOwner {
    /// The label of a recorded namespace is being read.
    Label(NamespaceId),
    Donation(NamespaceId, Donating),
    Recovery,
    /// That move's copy is being written.
    Move(u64),
}

/// How far the beginning is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Store,
    Classes,
    Namespaces,
    Removed,
    NamespaceNumber,
    Numbers,
    Over,
}

/// Numbers of sessions that this life may give out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionNumbers {
    /// The next one that is given out.
    pub next: u64,
    /// The first one that is not reserved: where the counter is.
    pub end: u64,
    /// More of them are being reserved.
    pub reserves: bool,
}

/// How a service begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Starting {
    pub stage: Stage,
    /// An answer is waited for.
    pub is_waiting: bool,
    pub is_refused: bool,
}

/// What an answer of the key-value store is for that the service itself waits for.
#[derive(Clone, Debug)]
pub(super) enum OwnRead {
    /// The beginning, at its stage.
    Start,
    /// A commit of the beginning; it is read again then.
    StartWrite,
    /// Numbers of sessions were reserved.
    Reserved,
    /// The outcome of that is not known: the counter is looked at.
    ReservedLook,
    /// A request that resumes a session.
    Resume(u64, SessionId, SessionToken),
    /// A request for a chunk of a map, and the epoch before it was read.
    Map(u64, Epoch),
    /// Whether a session is over that has blocks of a region.
    IsOver(SessionId),
    /// A namespace's record was written: whose donation that was, or what request waits.
    Donated(NamespaceId, Donating, NamespaceRecord),
    /// The outcome of that is not known: the record is looked at.
    DonatedLook(NamespaceId, Donating, NamespaceRecord),
    /// The records of all processes.
    Processes,
    /// A record of a process was written, or removed.
    ProcessWritten,
    /// Something that recovery waits for.
    Recovery(RecoveryRead),
    /// Something that a move waits for.
    Move(u64, MoveRead),
    /// Something that is read to find blocks which lack copies.
    Lacking(LackingRead),
    /// The inode of a block that may be demoted, by the number of the look.
    Cold(u64),
    /// Where a container is whose name a request looks for.
    Parent(u64),
    /// The record of a namespace was changed: the request, and what it is then; nothing if it is gone.
    NamespaceChanged(u64, NamespaceId, Option<NamespaceRecord>),
    /// The outcome of that is not known: the record is looked at.
    NamespaceLook(u64, NamespaceId, Option<NamespaceRecord>),
}

/// A process as its record was seen last.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub record: ProcessRecord,
    /// Since when it is as it is, by this process's clock.
    pub unchanged: Nanos,
}

/// What a process knows of those that serve or stand by: see `standby.rs`.
#[derive(Debug, Default)]
pub(super) struct Standby {
    /// The life of the service that this process has.
    pub life: Option<Term>,
    /// Since when it serves, or stands by.
    pub since: UnixNanos,
    /// Where it listens.
    pub addresses: Vec<String>,
    /// A record of a process is being written.
    pub is_writing: bool,
    /// The process ends.
    pub stops: bool,
    pub beat: u64,
    pub reads: bool,
    pub look_at: Nanos,
    pub processes: BTreeMap<u64, Seen>,
}

/// What recovery reads of the key-value store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecoveryRead {
    /// The index.
    Look,
    /// The writer of the task's file.
    Writer,
    /// Whether its session is over and fenced.
    Fenced,
    Inode,
    Chunk,
}

/// What is read of the key-value store to find blocks that lack copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LackingRead {
    /// The index.
    Index,
    Chunk,
    /// A chunk is taken off the index.
    TakenOff,
}

/// What a move reads of the key-value store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveRead {
    /// The writer of the file.
    Writer,
    Inode,
    Chunk,
}

impl Starting {
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }
}
