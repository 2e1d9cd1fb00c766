//! The process: drives and doors on shards, put together from a configuration (`weir_config`) and reached by the control API.
//!
//! ```text
//!   Config ──► Node::start ──► Shard (a thread a core) ──┬─ Reactor         sockets, files, sleeping
//!                │                 ▲ mailbox             ├─ Drives/Device   machine, media, the executor between
//!                └─ NodeControl ───┘                     └─ Doors           NVMe/TCP, vhost-user
//!                     ▲ api (HTTP)
//! ```
//!
//! [`keeper`] is the process beside it that holds what must outlive it.
//!
//! Decides nothing that a machine of `core` could decide; touches nothing that `sys` does not hand out. docs/inside/architecture.md
//! has the turn of a shard.

mod access;
pub mod api;
mod control;
mod created;
mod crew;
mod deadlines;
pub mod device;
mod direct;
pub mod door;
mod fence;
mod flash;
pub mod holder;
pub mod host;
pub mod keeper;
mod lateness;
pub mod local;
mod node;
mod notice;
pub mod owner;
pub mod pool;
mod remote;
pub mod replay;
mod shard;
mod taken;
pub mod target;
mod throttle;
mod transfer;
mod undo;

pub use control::{CONFIG, NodeControl, layouts};
pub use crew::{Crew, Steps};
pub use node::{Node, StartError};
pub use notice::notice;
pub use shard::{Call, Shard, ShardHandle};
