//! What goes into the machine and what comes out of it.

use crate::class::ClassName;
use crate::file::BlockSeed;
use crate::id::{NamespaceId, ServiceId};
use crate::inode::UnixNanos;
use crate::kv::{KvAnswer, KvRequest, KvToken, Revision};
use crate::members::{ContentLabel, LeaseTiming};
use crate::policy::Tiering;
use crate::protocol::{Answer, Request, RequestNumber};
use crate::records::SessionToken;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::Nanos;

/// A connection, as the caller numbers them; no number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A request to a namespace, as the machine numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TierToken(pub u64);

/// What a service is set up with.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// Its number.
    pub service: ServiceId,
    /// A random number that no other process has.
    pub process: u64,
    /// The process that had the metadata before is known to be dead, and no other one can have them: nobody stands by.
    pub is_predecessor_dead: bool,
    /// How long the lease lasts by which one process serves, where several can: another takes over when it has not been renewed for that and a third
    /// more.
    pub service_lease: Nanos,
    /// The metadata may lack what was told last, as after a power cut with `process`: sessions and grants that clients still go by. Sessions of before
    /// are not resumed then, and no blocks are given out until all that these clients had sent has come to its end.
    pub may_have_lost: bool,
    /// How long clients' sessions live.
    pub timing: LeaseTiming,
    /// How wrong clocks may be, in millionths: as in `timing`.
    pub drift_ppm: u32,
    /// How long a namespace may not be reached before the blocks on it that have another copy get one elsewhere; [`Nanos::NEVER`]: they do not.
    pub repair_after: Nanos,
    /// How long after the end of its lease a session counts as fenced: keep-alive timeout and clean-up of the targets.
    pub fence_wait: Nanos,
    /// The store's classes, best first; a store that is there has those that it was made with, and these behind them.
    pub classes: Vec<ClassName>,
    /// Policies by path, and when blocks go from class to class.
    pub tiering: Tiering,
    /// Bytes of a block, where a client says nothing.
    pub block: u32,
    /// Bytes of a file that may lie in its inode.
    pub inline_max: u32,
    /// When a change is answered, in words: `process` or `power`.
    pub durability: String,
    /// Where the metadata lie, in words.
    pub metadata: String,
}

/// What is found where a namespace's label should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelFound {
    /// Zeroes.
    Blank,
    /// Something that is not a label.
    Foreign,
    /// A label.
    Label {
        /// The store's random number.
        store: u64,
        /// The namespace's number in that store.
        namespace: NamespaceId,
        /// What its content is known by.
        content: ContentLabel,
    },
}

/// What is wanted of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierRequest {
    /// Its size, and its label.
    ReadLabel {
        /// Where it is reached.
        target: String,
    },
    /// Write a label, and flush it.
    WriteLabel {
        /// Where it is reached.
        target: String,
        /// The store's random number.
        store: u64,
        /// The namespace's number.
        namespace: NamespaceId,
        /// What its content is known by from now on.
        content: ContentLabel,
    },
    /// Read one copy of a block, make zeroes of what is behind the file's size, write that to the others (and to it, if it has changed), and flush all
    /// of them.
    Recover(RecoverBlock),
    /// Read a copy of a block whose bytes are those of its checksums, write them elsewhere, and flush that.
    Move(MoveBlock),
}

/// A block that gets a copy elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveBlock {
    /// The store's random number, which the labels of the namespaces say.
    pub store: u64,
    /// What its checksums begin with.
    pub seed: BlockSeed,
    /// Its checksums, one for each 64 KiB: other bytes are not copied.
    pub checksums: Vec<u32>,
    /// What its checksums begin with from then on.
    pub becomes: BlockSeed,
    /// Its bytes.
    pub length: u64,
    /// Copies that may be read, at least one.
    pub sources: Vec<BlockCopy>,
    /// Where the new copy comes, and which of the block's copies it becomes.
    pub to: BlockCopy,
}

/// A block that a lost writer may have written to some of its copies, and in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoverBlock {
    /// The store's random number, which the labels of the namespaces say.
    pub store: u64,
    /// What its checksums begin with.
    pub seed: BlockSeed,
    /// Its bytes.
    pub length: u64,
    /// Those of them that are the file's. What the lost writer has written behind the file's size was never published: it becomes zeroes, as a
    /// file that grows reads there.
    pub used: u64,
    /// Its copies that may be reached.
    pub copies: Vec<BlockCopy>,
}

/// A copy of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// Which of the block's copies it is.
    pub index: usize,
    /// Where its namespace is reached.
    pub target: String,
    /// Its namespace.
    pub namespace: NamespaceId,
    /// What the namespace's label must say: another one is neither read nor written.
    pub content: ContentLabel,
    /// Where it begins, in bytes from the beginning of the namespace.
    pub offset: u64,
}

/// A namespace cannot be reached, or does not do what it should: in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierFailure(pub String);

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierAnswer {
    /// Of [`TierRequest::ReadLabel`].
    Label {
        /// Its size.
        bytes: u64,
        /// Bytes of a sector.
        sector: u32,
        /// What is there.
        found: LabelFound,
    },
    /// Of [`TierRequest::WriteLabel`].
    Written,
    /// Of [`TierRequest::Recover`]: the bytes of all these copies are the same, and on the medium.
    Recovered {
        /// Of those bytes, one for each 64 KiB.
        checksums: Vec<u32>,
        /// The copies that have them, in order: at least one.
        good: Vec<usize>,
    },
    /// Of [`TierRequest::Move`]: the new copy is on the medium.
    Moved {
        /// As they begin from then on.
        checksums: Vec<u32>,
    },
    /// Of [`TierRequest::Move`]: the new copy could not be written or flushed; a write may still be carried out.
    NotWritten {
        /// Why.
        why: String,
    },
}

/// What happens to a service.
#[derive(Clone, Debug)]
pub enum ServiceEvent {
    /// The process begins: the metadata are read, or made.
    Start,
    /// Somebody has connected. Random bytes that nobody can guess, for the session that may be begun.
    Connected(ConnectionId, SessionToken),
    /// A whole message has come.
    Message(ConnectionId, RequestNumber, Request),
    /// The connection has ended.
    Disconnected(ConnectionId),
    /// What became of a [`ServiceEffect::Kv`].
    Kv(KvToken, KvAnswer),
    /// What became of a [`ServiceEffect::Tier`].
    Tier(TierToken, Result<TierAnswer, TierFailure>),
    /// All commits up to this revision are on the medium: told by and by, and after a [`ServiceEffect::Sync`] as soon as it is so.
    Durable(Revision),
    /// What is wrong with the metadata's file, if anything is: for the status.
    Trouble(Option<String>),
    /// Time has passed: a few times a second.
    Tick,
    /// Where clients find this process: said before [`ServiceEvent::Start`], and told to others by its record.
    Listens(Vec<String>),
    /// The process is to end: see [`Service::is_stopped`](super::Service::is_stopped). Nobody is answered from now on, and another process may take over at once.
    Stop,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum ServiceEffect {
    /// Ask the key-value store.
    Kv(KvToken, KvRequest),
    /// Have the medium take all commits that were made so far; [`ServiceEvent::Durable`] says when it has.
    Sync,
    /// Answer a request.
    Send(ConnectionId, RequestNumber, Answer),
    /// End a connection, once what was sent is out.
    Close(ConnectionId),
    /// Ask a namespace.
    Tier(TierToken, TierRequest),
    /// The service cannot go on with this store: why, in words.
    Refuse(String),
}

/// An event's times: of a clock that runs while the machine sleeps, and of the calendar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    pub now: Nanos,
    pub wall: UnixNanos,
}
