//! Space: which block is whose.
//!
//! ```text
//!   free ──Grant──► granted to a session ──Publish──► mapped by an inode ──Publish, Free──┐
//!    ▲                    │ Return, Fence                                                 │
//!    └──── release ── quarantined ◄───────────────────────────────────────────────────────┘
//!
//!   SpaceEvent ─► Space::apply ─► SpaceEffect::Kv ─► the store ─► SpaceEvent::Kv ─► … ─► SpaceEffect::Answer
//! ```
//! A *region* is a part of a donated namespace ([`REGION_MIN`] or more) that is leased to one metadata service with a term. That service
//! gives out its bytes as extents. The index in Kv has a record of each extent that is not free; free is what no record covers. A record
//! changes only in a commit whose preconditions are the lease (service and term) and the records as they were, and the requester hears
//! of it when that commit is done. Every byte of a region is in exactly one of free, granted, mapped and quarantined
//! ([`Space::check`]).
//!
//! **Takeover.** The new service raises the term, so that no commit of the old one can be made any more, and reads the index. Free bytes
//! are what is left. Grants stay: their sessions go on. Of sessions that have ended the caller says so ([`SpaceRequest::Fence`]).
//!
//! **A commit of unknown outcome** may still be made at any time. The service raises its own term: after that it can not. Then the index
//! says whether it was made. Its extents are locked until that is known.
//!
//! **Quarantine.** Freed bytes may be read under a map that a session holds, or written by a command on its way. They are free again
//! when (1) the commit that freed them is durable, (2) after it the store's epoch was raised, and (3) every session of the store has
//! acknowledged that epoch or a later one (it holds no older map, and has no I/O under one) or was fenced. An epoch is raised by a
//! commit of its own, for everything that was freed before it was sent.
//! What a takeover finds in quarantine waits for the next epoch: nobody knows how long it has been there.
//!
//! **The last block** of a file is cut to whole [`GRAIN`]s when the file is closed ([`cut_tail`]): the part that is published becomes mapped,
//! the rest of the grant stays with its session, which gives it back. A later append takes a new block, copies, and
//! publishes the new block, the new size and the end of the old tail in one commit; the old tail is quarantined.
//!
//! What is not here: where a block should come from (placement), when a service's lease is over (members), what a map looks like (tree).
//! A file's owner that is not the owner of its blocks' region commits into the index itself, with the lease of that region and the records as
//! preconditions; the region's owner is then told to read it again ([`SpaceEvent::Refresh`]).
//! **A region is taken** with a read, a commit and a read of its index; 256 regions are taken at a time.
//!
//! Limits: a commit has 100 keys (so a release or a fence takes [`BATCH`] extents at a time), a session 16 MiB of grants
//! ([`GRANT_AHEAD`]), a term 2^32 grants.

mod edit;
mod event;
mod free;
mod index;
mod machine;
mod quarantine;
mod record;
mod region;
mod request;
mod takeover;

#[cfg(test)]
mod tests;

pub use event::{
    BlockPlace, GrantedExtent, MappedExtent, SpaceAnswer, SpaceEffect, SpaceError, SpaceEvent, SpaceRequest,
    SpaceRequestId,
};
pub use machine::Space;
pub use record::{Epoch, ExtentRecord, ExtentUse, RegionLease, extent_key, lease_key};
pub use region::{RegionInfo, RegionUse};

/// The granularity of extents in bytes.
pub const GRAIN: u64 = 4 << 10;

/// Bytes of a region at the least.
pub const REGION_MIN: u64 = 64 << 20;

/// The smallest block in bytes; sizes are powers of two from here to [`BLOCK_MAX`].
pub const BLOCK_MIN: u64 = 64 << 10;

/// The largest block in bytes.
pub const BLOCK_MAX: u64 = 4 << 20;

/// Bytes that a session may have been granted and not published, in all regions of one service together.
pub const GRANT_AHEAD: u64 = 16 << 20;

/// Extents of a commit that the machine makes by itself: each takes a precondition and a write.
pub(crate) const BATCH: usize = 45;

const _: () = assert!(
    2 * BATCH + 2 <= crate::kv::COMMIT_KEYS_MAX,
    "a batch, the lease and the life of the service fit into a commit"
);
const _: () = assert!(REGION_MIN % BLOCK_MAX == 0 && BLOCK_MIN % GRAIN == 0, "blocks are whole grains of a region");

/// The part of a file's last block that stays when it holds `used` bytes: whole [`GRAIN`]s, the whole block at the most.
pub const fn cut_tail(block: u64, used: u64) -> u64 {
    let whole = used.div_ceil(GRAIN).saturating_mul(GRAIN);
    if whole < block { whole } else { block }
}
