#![forbid(unsafe_code)]
//! The control API: HTTP with JSON over a UNIX socket and, where configured, TCP ports: on loopback addresses, or with TLS on any.
//!
//! ```text
//! CLI, curl, Prometheus ─▶ Bound/Running (sockets, one thread) ─▶ routes (HTTP to calls) ─▶ Control ─▶ node ─▶ weir_node::NodeControl
//!                                                                                         │           └ snapshots become JSON
//!                                                                                         └─▶ store ─▶ its metadata service, as an operator
//! ```
//!
//! The only crate with the types of the API: what the node knows of itself and what it can be told are `weir_node`'s
//! snapshots and changes, which become these here. [`Control`] is all that the routes know of the node. Calls may block for as long as a shard takes to answer; they run beside
//! the API's own thread, so that one slow shard does not make the API deaf. The UNIX socket is for its owner alone
//! (mode 0600). A plain port is loopback only, answers no web page of another origin, and changes nothing for who shows no token
//! (`access`). `board` makes what the dashboard shows, `dashboard` is its page.
//! [`openapi`] describes every route; a test holds the two together.

mod access;
mod answer;
mod board;
mod control;
mod dashboard;
mod events;
mod fault;
mod flash;
mod health;
mod metrics;
mod node;
pub mod openapi;
mod pooled;
mod promise;
mod routes;
mod server;
mod store;
mod store_metrics;
mod timing;
mod tls;
mod types;

#[cfg(test)]
mod tests;

pub use access::{AccessStatus, Tokens};
pub use board::{
    Board, BoardChange, BoardDemotion, BoardDevice, BoardExport, BoardFlash, BoardLatency, BoardPool, BoardStore,
    BoardTenant, BoardVolume, DieStatus, DoneRates, DriveBoardStatus, HistoryOverview, HistorySeries, HistoryStatus,
    HistoryValues, PlanAsked, PlanStatus, PlannedTenant, PredictedShare, QueueStatus, ShareStatus, TenantSharesPatch,
};
pub use control::Control;
pub use fault::{FaultAdd, FaultStatus};
pub use flash::{FlashStatus, GcStatus, HandleStatus, UtilisationStatus, WearStatus};
pub use health::{
    BlockRange, DriveHealth, DriveReport, DriveReportStep, DriveSpeed, FailingBlockStatus, FailingDieStatus, SlowDie,
    VerdictTotal,
};
pub use node::ServedNode;
pub use pooled::{
    DataRange, ImageAccess, LostPoolDrive, PoolDrive, PoolDriveAdd, PoolDriveReplace, PoolScrub, PoolStatus,
    ScrubStatus, VolumeAdd, VolumeClone, VolumeContents, VolumeExport, VolumePatch, VolumeSnapshotAdd, VolumeStatus,
};
pub use promise::{
    AttainmentStatus, CeilingPatch, CeilingStatus, FloorPatch, FloorStatus, PeriodStatus, SlaPatch, SlaState, SlaStatus,
};
pub use server::{Bound, Running};
pub use store::{
    StoreClass, StoreClassDemotion, StoreClient, StoreControl, StoreDemotion, StoreMovement, StoreNamespace,
    StoreNamespaceAdd, StoreNamespacePatch, StorePolicy, StoreService, StoreStatus, class_name,
};
pub use timing::{Bucket, CompletionError, DeviceStats, Quantiles, Timing, TimingState};
pub use tls::Tls;
pub use types::{
    Ana, AnaPatch, ClientStatus, Counters, DevicePatch, DeviceStatus, DoorStatus, ErrorBody, ExportAdd, ExportStatus,
    LatencyBucket, LinkStatus, PowerCutStatus, RecoveredStatus, ShardStatus, SharesPatch, StartStep, State, Status,
    StepsStatus, TenantAdd, TenantPatch, TenantStatus,
};
pub use weir_node::Refusal;
pub use weir_node::events::{EventLevel, NodeEvent};
pub use weir_node::upgrade::{UpgradeStart, UpgradeState, UpgradeStatus};
