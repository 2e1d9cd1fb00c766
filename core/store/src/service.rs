//! A metadata service: the machine behind its listener.
//!
//! ```text
//!   clients ─Request─► Service ─┬─ Tree        names, inodes, who writes a file, what its map says
//!           ◄─Answer──          ├─ Space       which block is whose      ◄─┐ one commit for map and blocks
//!                               ├─ Placement   from which region           │
//!                               └─ Sessions    whose lease goes on       ──┘
//!   ServiceEffect::Kv ─► the key-value store        ServiceEffect::Tier ─► the label of a namespace
//! ```
//! [`Service`] takes events to their end and says what is to be done; it has no socket, no thread and no clock. Its parts talk to each other
//! within one event.
//!
//! **Connections** begin with a `Hello` and have at most one session. A request is checked against it: handles of other sessions are not open, blocks
//! that it was not granted are refused, all in the terms of the protocol; nothing that one client sends changes what another is told.
//!
//! **Handles** lie in memory. A service that was started again has none: clients open their files again, and for one lease no deleted file's
//! blocks are freed ([`ServiceSettings::timing`]), so that they can.
//!
//! **Sessions that are lost** are fenced by waiting (rank 2): [`ServiceSettings::fence_wait`] after their lease is over no drive has a command of
//! theirs in flight, because the client sends keep-alives only while it renews.
//!
//! **Namespaces** are recorded with their label, which is read again at the start and whenever one was not reached. Blocks are given out where the label is
//! the one that was written. All regions are this service's.
//!
//! **Several processes** may have one key-value store: one serves, the others stand by (`standby.rs`). For the machines here each process that serves is a
//! new life of the one service.
//!
//! **Lost writers** may have written some copies of a block and not others: its blocks that are marked as unsettled are recovered (`recovery.rs`).
//!
//! **Blocks move** off namespaces that drain or are lost (`moves.rs`), and of files that are left alone to the next class when theirs is full (`demotion.rs`).
//! A block that lacks a copy gets it again (`lacking.rs`).
//!
//! **New files** get what the policy of their path says (`policies.rs`).
//!
//! What is not here: several that serve at once, each some directories (their redirects and peers), reservations.

mod about;
mod cold;
mod demotion;
mod durable;
mod event;
mod files;
mod grants;
mod handles;
mod lacking;
mod machine;
mod moves;
mod namespace_index;
mod namespace_uses;
mod namespaces;
mod passes;
mod paths;
mod policies;
mod recovery;
mod regions;
mod requests;
mod resolve;
mod short_chunks;
mod standby;
mod start;
mod state;

#[cfg(test)]
mod tests;

pub use event::{
    BlockCopy, ConnectionId, LabelFound, MoveBlock, RecoverBlock, ServiceEffect, ServiceEvent, ServiceSettings,
    TierAnswer, TierFailure, TierRequest, TierToken,
};
pub use machine::Service;
pub use regions::NAMESPACE_MIN;
pub(crate) use regions::{regions, regions_of};
