//! Names and inodes: what a metadata service answers, and the changes it makes, each by one commit of the key-value store.
//!
//! ```text
//!   NameRequest ─► Tree::apply ─► TreeEffect::Kv ─► the key-value store ─► TreeEvent::Kv ─► … ─► TreeEffect::Answer
//!                     ▲   └─────► TreeEffect::Peer ─► another service's Tree
//!                     └ Tick, when Tree::due says so
//! ```
//! **Owners.** Each container (a directory, multifile or table) has one owner among the services, named with a term in the key-value store. Only the owner
//! answers for the names in it, for its own inode and for the inodes of files and symlinks in it, mostly from memory; others send the client
//! there. Every commit expects the terms of all containers that it touches. A request that needs containers of several owners has the others released
//! to its service; they are taken in the order of their numbers, so that services do not wait for one another in a circle.
//!
//! **Leases.** A service answers as long as its own lease holds, which counts from when its renewal was sent. Another service that has seen the same
//! lease for longer than it lasts, and the margin, ends that life for good in the key-value store, and takes what it owned.
//! So clocks may differ, but not drift apart by the margin in a lease.
//!
//! **Once.** A change has a [`ChangeKey`]. Its answer, a refusal too, is written in the commit that makes it, in the record of its slot. Sent again,
//! to any service, it gets that answer. A commit whose outcome is unknown is sent again as it is until the record says that it was made, or it cannot be made
//! any more.
//!
//! **Renames** are one commit, also across containers and over another name. A container that gets another parent raises the store's rename key, and what lies above its
//! target is read after the key was: two that move at a time cannot put each other into themselves.
//!
//! **Deletes.** A deleted file becomes an orphan until nobody has it open ([`TreeEvent::Unused`]). A recursive delete makes the container an orphan in one
//! commit; what is in it goes in the background. Until it does, a client that knows an inode in there can work with it.
//!
//! **Files.** A file is one session's to write at a time: a record says whose, made in the commit of the open, expected by each publish, and taken over when
//! that session has ended and is fenced. A change in which blocks change hands is committed by [`Space`](crate::space::Space), which gets the
//! rest of the commit ([`TreeEffect::Space`]). Limits: a deleted file that is open can be read, and is not written any more.
//!
//! Left out: permissions, hard links, the time of the last read.
//! Limits: names of 255 bytes, 4 KiB of extended attributes of an inode, 256 names in an answer; one change at a time in a container; 4,096 containers
//! that no request uses are remembered ([`TreeSettings::containers_max`]), and 16 orphans worked at at a time.

mod advance;
mod event;
mod machine;
mod mutant;
mod operation;
mod outcome;
mod own;
mod plan;
mod plan_file;
mod plan_rename;
mod service_lease;
mod settings;
mod setup;
mod task;
mod view;

#[cfg(test)]
mod tests;

pub use event::{NameRequest, PeerMessage, RequestToken, TreeEffect, TreeEvent};
pub use machine::Tree;
#[cfg(test)]
pub(crate) use mutant::Mutant as TreeMutant;
pub use operation::{
    ATTRIBUTE_BYTES_MAX, CLASSES_MAX, ChangeKey, EntryPath, FileChange, InodePath, LIST_MAX, ListEntry, NameAnswer,
    NameChange, NameQuery, NameReply, NewInode, SetAttributes, SettleOrder, TARGET_BYTES_MAX,
};
pub use settings::TreeSettings;
pub use setup::make_store;
