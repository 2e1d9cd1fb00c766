//! What goes into the machine and what comes out of it.

use super::record::Epoch;
use super::region::RegionInfo;
use crate::kv::{Commit, KvAnswer, KvRequest, KvToken, Revision};
use crate::{Extent, Generation, InodeId, RegionId, SessionId, Term};
use alloc::vec::Vec;
use core::fmt;

/// A request, as the caller numbers them; no two under way have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceRequestId(pub u64);

/// A published block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// Where it is: within one granted extent, whole grains.
    pub extent: Extent,
    /// The file.
    pub inode: InodeId,
    /// The block's number in the file.
    pub block: u64,
}

/// A mapped extent, as the index has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedExtent {
    /// Where it is.
    pub extent: Extent,
    /// The file.
    pub inode: InodeId,
    /// The block's number in the file.
    pub block: u64,
}

/// What a session was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedExtent {
    /// A whole number of blocks.
    pub extent: Extent,
    /// Seeds the checksums of what is written there.
    pub generation: Generation,
}

/// A change of who has which bytes. `with` are preconditions and changes of the caller that belong into the same commit, such as the map and
/// the size of a file, or that the session has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpaceRequest {
    /// Up to `count` blocks of `block` bytes of a region for a session.
    Grant {
        /// Who they are for.
        session: SessionId,
        /// The region.
        region: RegionId,
        /// Bytes of a block: whole [`GRAIN`](super::GRAIN)s, [`BLOCK_MAX`](super::BLOCK_MAX) at the most.
        block: u64,
        /// Blocks at the most; one suffices.
        count: u64,
        /// What else belongs into the commit.
        with: Commit,
    },
    /// A session's blocks become a file's, and blocks of files are given up for them, or because a file was cut.
    Publish {
        /// Who they were granted to.
        session: SessionId,
        /// What the file maps from now on.
        map: Vec<BlockPlace>,
        /// What that file maps no longer; parts of extents are allowed.
        unmap: Vec<(InodeId, Extent)>,
        /// What else belongs into the commit.
        with: Commit,
    },
    /// Blocks of a deleted file.
    Free {
        /// The file.
        inode: InodeId,
        /// Its extents, or parts of them.
        extents: Vec<Extent>,
        /// What else belongs into the commit.
        with: Commit,
    },
    /// A session gives back what it was granted.
    Return {
        /// Who gives back.
        session: SessionId,
        /// Granted extents, or parts of them.
        extents: Vec<Extent>,
    },
    /// A session has been fenced: it has no I/O in flight and starts none. Everything that it was granted in this service's regions
    /// goes into quarantine, in as many commits as that takes.
    Fence {
        /// Who was fenced.
        session: SessionId,
    },
}

/// What happens to the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpaceEvent {
    /// Take the lease of a region. The caller knows that nobody has it, or that the lease of the service that had it is over.
    Take(RegionInfo),
    /// Somebody else has committed into the index of a region: read it again.
    Refresh(RegionId),
    /// A request.
    Request(SpaceRequestId, SpaceRequest),
    /// What became of a [`SpaceEffect::Kv`]. One that came before is ignored.
    Kv(KvToken, KvAnswer),
    /// No session of the store holds a map that is older than this epoch, or has I/O under one. See `members` for how that is known.
    Horizon(Epoch),
    /// All commits up to this revision are on the medium.
    Durable(Revision),
    /// Time for upkeep: raise the epoch, release, ask Kv again where it has not answered. A few times a second.
    Tick,
}

/// What the machine wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpaceEffect {
    /// Ask the key-value store. Requests may be carried out, and answered, in any order.
    Kv(KvToken, KvRequest),
    /// A request is over.
    Answer(SpaceRequestId, Result<SpaceAnswer, SpaceError>),
    /// The region is this service's, in that term; these sessions have grants in it. Those among them that have ended are to be fenced.
    Taken(RegionId, Term, Vec<SessionId>),
    /// The region is another service's. Nothing of it may be given out here.
    Lost(RegionId),
    /// The index of the region contradicts itself. It was left as it is, and the region is not used: `weir store fsck`.
    Damaged(RegionId),
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpaceAnswer {
    /// What was granted, at least one block.
    Granted(Vec<GrantedExtent>),
    /// It was done.
    Done(Revision),
    /// Everything that the session was granted is in quarantine.
    Fenced,
}

/// Why a request came to nothing. But for [`SpaceError::Unknown`] nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceError {
    /// A size or a number that no request may have.
    Malformed,
    /// The commit would have too many keys or bytes: ask for less at a time.
    TooLarge,
    /// No block of that size is free in the region.
    Full,
    /// The session has [`GRANT_AHEAD`](super::GRANT_AHEAD) already.
    Ahead,
    /// The extents are not whole grains of one record, or the record does not say what the request says of them.
    NotYours,
    /// The region is not leased to this service.
    NotLeased(RegionId),
    /// No region of this service has the extent.
    Elsewhere,
    /// The region is being taken over, or the extents are being changed: ask again.
    Busy,
    /// The region has been taken over 2^32 times: there are no more generations for what would be granted.
    UsedUp(RegionId),
    /// A precondition did not hold.
    Conflict,
    /// The region was taken over by another service while the commit was under way. It was made or not: the index says which.
    Unknown,
}

impl fmt::Display for SpaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SpaceError::Malformed => "the size or number of the blocks is none that can be asked for",
            SpaceError::TooLarge => "so many extents do not fit into one commit; ask for fewer at a time",
            SpaceError::Full => "no block of that size is free in the region",
            SpaceError::Ahead => "the session has 16 MiB of unpublished blocks already; publish or return some first",
            SpaceError::NotYours => "the extents are not what they are said to be",
            SpaceError::NotLeased(region) => return write!(f, "this service has no lease of region {region}"),
            SpaceError::Elsewhere => "the extent is in no region of this service",
            SpaceError::Busy => "the region or its extents are being changed; ask again",
            SpaceError::UsedUp(region) => {
                return write!(
                    f,
                    "region {region} has no more generations for its blocks; drain it and donate it again"
                );
            }
            SpaceError::Conflict => "something else has changed in the meantime; nothing was done",
            SpaceError::Unknown => "another service has taken over the region; whether it was done is in its index",
        })
    }
}

impl core::error::Error for SpaceError {}
