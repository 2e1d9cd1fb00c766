//! What goes into the machine and what comes out of it.

use super::operation::{ChangeKey, NameAnswer, NameChange, NameQuery, SettleOrder};
use crate::id::{InodeId, ServiceId};
use crate::inode::UnixNanos;
use crate::kv::{KvAnswer, KvRequest, KvToken};
use crate::space::{SpaceAnswer, SpaceError, SpaceRequest};

/// By what a caller recognises the answer to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestToken(pub u64);

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameRequest {
    /// Something that changes nothing.
    Query(NameQuery),
    /// A change.
    Change(ChangeKey, NameChange),
}

/// What one service says to another. It may be lost: it is said again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerMessage {
    /// Give up the container: the sender needs it beside one of its own.
    Release(InodeId),
    /// The container was given up.
    Released(InodeId),
}

/// What happens to the names.
#[derive(Clone, Debug)]
pub enum TreeEvent {
    /// A client's request, and the time of the calendar.
    Request(RequestToken, NameRequest, UnixNanos),
    /// An answer of the key-value store; one whose token is not waited for is ignored.
    Kv(KvToken, KvAnswer),
    /// What became of a [`TreeEffect::Space`]; one whose token is not waited for is ignored.
    Space(KvToken, Result<SpaceAnswer, SpaceError>),
    /// A message of another service.
    Peer(ServiceId, PeerMessage),
    /// No client has this deleted file open any more.
    Unused(InodeId),
    /// A block was recovered, or moved. It is answered as a request is.
    Settle(RequestToken, SettleOrder),
    /// The time is due that [`Tree::due`](crate::Tree::due) told.
    Tick,
}

/// What the machine wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEffect {
    /// Ask the key-value store.
    Kv(KvToken, KvRequest),
    /// Answer a request.
    Answer(RequestToken, NameAnswer),
    /// Tell another service.
    Peer(ServiceId, PeerMessage),
    /// Have `Space` make a change, with what belongs into the same commit.
    Space(KvToken, SpaceRequest),
    /// A file has lost its name: say [`TreeEvent::Unused`] when nobody has it open. It is said again until it is gone.
    Orphaned(InodeId),
}
