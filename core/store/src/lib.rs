#![no_std]
#![forbid(unsafe_code)]
//! The store: one namespace of files over the drives of many machines. After Crail's NVMe-oF storage tier, with real names, and metadata
//! that survive a crash. This crate decides; it has no I/O, no thread and no clock.
//!
//! What the services of a store know lies in one key-value store, behind the port [`Kv`]: an embedded database or etcd. Consensus is
//! that store's affair. A commit there is done, conflicts, or is [unknown](CommitOutcome::Unknown); the machines of this crate take
//! each of the three.
//!
//! ```text
//!   a client ─NameRequest─► Tree ─KvRequest─► the caller ─Kv─► MemoryKv | an embedded database | etcd
//!                             └─PeerMessage─► another service's Tree
//! ```
//! [`Tree`] answers for names and inodes. [`keys`] and [`records`] say how everything lies in the key-value store.
//!
//! May depend on `weir-codec` (how values are written) and `weir-units` only.

extern crate alloc;
#[cfg(test)]
extern crate std;

mod class;
pub mod client;
mod error;
mod extent;
pub mod file;
pub mod fsck;
mod id;
mod inode;
pub mod keys;
pub mod kv;
#[cfg(test)]
mod linearizable;
mod location;
pub mod members;
mod mutant;
mod name;
pub mod placement;
mod policy;
pub mod protocol;
pub mod records;
pub mod service;
#[cfg(test)]
mod simulation;
pub mod space;
mod tree;

pub use class::{CLASS_NAME_MAX, ClassId, ClassName};
pub use error::{PathError, StoreError};
pub use extent::Extent;
pub use id::{Generation, InodeId, NamespaceId, NodeId, RegionId, ServiceId, SessionId, Term};
pub use inode::{Content, Inode, InodeKind, UnixNanos};
pub use kv::{Commit, CommitOutcome, Expect, Kv, KvKey, KvWrite, Revision, Versioned};
pub use location::{LOCATION_MAX, Location};
pub use name::{EntryName, NAME_BYTES_MAX};
pub use policy::{DEMOTE_AFTER, PATTERN_MAX, PathPattern, PathPolicy, PatternError, Tiering, Watermarks, policy_of};
pub use records::Changed;
pub use tree::{
    ATTRIBUTE_BYTES_MAX, CLASSES_MAX, ChangeKey, EntryPath, FileChange, InodePath, LIST_MAX, ListEntry, NameAnswer,
    NameChange, NameQuery, NameReply, NameRequest, NewInode, PeerMessage, RequestToken, SetAttributes, SettleOrder,
    TARGET_BYTES_MAX, Tree, TreeEffect, TreeEvent, TreeSettings, make_store,
};
