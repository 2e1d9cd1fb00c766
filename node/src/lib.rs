//! The process: drives and doors on shards, put together from a configuration (`weir_config`) and reached by the control API.
//!
//! ```text
//!   Config ──► Node::start ──► Shard (a thread a core) ──┬─ Reactor         sockets, files, sleeping
//!                │                 ▲ mailbox             ├─ Drives/Device   machine, media, the executor between
//!                └─ NodeControl ───┘                     └─ Doors           NVMe/TCP, vhost-user
//!                     ▲ weir_api (HTTP)
//! ```
//!
//! [`keeper`] is the process beside it that holds what must outlive it.
//!
//! Decides nothing that a machine of `core` could decide; touches nothing that `sys` does not hand out. docs/inside/architecture.md
//! has the turn of a shard.

mod access;
mod change;
mod control;
mod created;
mod deadlines;
pub mod device;
pub mod directory;
pub mod door;
pub mod events;
mod fence;
mod flash;
pub mod held_names;
pub mod host;
pub mod keeper;
mod kernel_io;
pub mod lateness;
pub mod listen;
pub mod local;
mod metadata_store;
mod node;
mod notice;
pub mod owner;
pub mod pool;
mod power_cut_undo;
mod prepared_shards;
mod promises;
mod refusal;
mod remote;
pub mod replay;
mod run_queue_wait;
mod shard;
mod snapshot;
mod start_error;
pub mod target;
mod throttle;
pub mod tokens;
mod transfer;
pub mod upgrade;

pub use change::{AnaChange, DeviceChange, NewExport, NewTenant, NewVolume, PromisesFrom, TenantChange, VolumeChange};
pub use control::{CONFIG, NodeControl, SharesChange, TenantShares, layouts};
pub use node::Node;
pub use notice::notice;
pub use pool::volumes::{ImageUse, NO_POOL};
pub use prepared_shards::{PreparedShards, StartSteps};
pub use promises::Promises;
pub use refusal::Refusal;
pub use remote::{HealthStatus, RemoteStatus};
pub use shard::{Call, Shard, ShardHandle};
pub use snapshot::{
    DataRange, DeviceSnapshot, DeviceTiming, DoorSnapshot, DriveBoard, ExpectedTenants, ExportSnapshot, FaultSnapshot,
    LostDrive, NamedLatencies, NodeLatencies, NodeSnapshot, PoolMember, PoolSnapshot, ScrubSnapshot, ShardSnapshot,
    TenantSnapshot, VolumeContents, VolumeLatencies, VolumeSnapshot,
};
pub use start_error::StartError;
pub use weir_drive::SpeedStatus;
