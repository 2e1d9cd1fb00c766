//! What the dashboard shows, bounded however large the node is: a picture of now a second, and the last hour.
//!
//! ```text
//!  Control ─ Sample ─▶ Collector ─┬─ rates, states ─▶ Board ─▶ GET /v1/board, GET /v1/live (server-sent events)
//!      (Live asks, while pages    ├─ History: a point each 10 s for an hour ─▶ GET /v1/history
//!       are open, and each 10 s)  └─ the newest events of the node, and changes by the API ─▶ in the Board
//! ```
//! [`Collector`] decides and knows no clock; [`Live`] asks the node and tells pages. Lists end after [`MOST_ROWS`]; `left_out` says by how
//! much they were longer. A picture is made at most once a second for all pages together, and less often where making one is dear, so
//! that pages take a bounded part of a core.

mod changes;
mod collector;
mod drive;
mod history;
mod live;
#[cfg(test)]
mod tests;

pub use changes::BoardChange;
#[cfg(test)]
pub(crate) use collector::Collector;
pub use collector::Sample;
pub use drive::{
    DieStatus, DriveBoardStatus, PlanAsked, PlanStatus, PlannedTenant, PredictedShare, QueueStatus, ShareStatus,
    TenantSharesPatch,
};
pub(crate) use history::Kind;
pub use history::{HistoryOverview, HistorySeries, HistoryStatus, HistoryValues};
pub(crate) use live::{Live, Stream, unix_ms};

use crate::health::DriveHealth;
use crate::promise::{CeilingStatus, FloorStatus, SlaState, SlaStatus};
use crate::store::{StoreClass, StoreClassDemotion, StoreNamespace, StoreService};
use crate::timing::TimingState;
use crate::types::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_node::events::NodeEvent;
use weir_node::upgrade::UpgradeStatus;

/// Events of a board at the most.
pub(crate) const MOST_EVENTS: u64 = 64;
/// Rows of each list of a board at the most.
pub(crate) const MOST_ROWS: usize = 2048;

/// `GET /v1/board`: what a node does now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Board {
    /// Counts the pictures since the process that serves has started.
    pub number: u64,
    /// The node's name.
    pub node: String,
    /// Weir's version.
    pub version: String,
    /// What it is doing.
    pub state: State,
    /// Seconds since the process that serves began to.
    pub uptime_s: f64,
    /// How many processes have served before that one.
    pub generation: u64,
    /// Seconds that the rates are of; 0 in the first picture, which has none.
    pub span_s: f64,
    /// Percent of the last second in which each reactor had something to do.
    pub core_busy_pct: Vec<f64>,
    /// Drives.
    pub devices: Vec<BoardDevice>,
    /// Tenants.
    pub tenants: Vec<BoardTenant>,
    /// Volumes.
    pub volumes: Vec<BoardVolume>,
    /// Pools.
    pub pools: Vec<BoardPool>,
    /// Exports.
    pub exports: Vec<BoardExport>,
    /// The store that it serves or stands by for; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<BoardStore>,
    /// Rows that these lists do not show.
    pub left_out: usize,
    /// When it was made, in milliseconds since 1970-01-01 00:00 UTC, by the machine's clock.
    pub unix_ms: u64,
    /// The newest events of the node, the newest last; `GET /v1/events` has all that are kept.
    pub events: Vec<NodeEvent>,
    /// What was changed by the API lately, the newest last.
    pub changes: Vec<BoardChange>,
    /// The last upgrade.
    pub upgrade: UpgradeStatus,
}

/// What is done a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BoardRates")]
pub struct DoneRates {
    /// I/O commands.
    pub iops: f64,
    /// Bytes read.
    pub read_bytes_per_s: f64,
    /// Bytes written.
    pub written_bytes_per_s: f64,
    /// Commands that ended with an error.
    pub errors_per_s: f64,
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoardDevice {
    /// Its name.
    pub name: String,
    /// How hosts see it: `block`, `zoned` or `open-channel`.
    pub interface: String,
    /// Whose flash it has the times of; absent where it has no flash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Size.
    pub capacity_bytes: u64,
    /// What it does.
    pub rates: DoneRates,
    /// Percent of its slots that work.
    pub slots_busy_pct: f64,
    /// I/O queues.
    pub queues: u32,
    /// Controllers.
    pub controllers: u32,
    /// Who is next: `none`, `rr`, `wrr` or `drr`.
    pub mechanism: String,
    /// What has broken its media.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Where the way to the drive behind it stands; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// What is wrong with the drive behind it, with the evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<DriveHealth>,
    /// Whether it keeps its modelled times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<TimingState>,
    /// What its flash does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<BoardFlash>,
}

/// The flash of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoardFlash {
    /// Bytes programmed over bytes written by the host, since counting began.
    pub write_amplification: f64,
    /// Bytes a second that garbage collection moves.
    pub gc_bytes_per_s: f64,
    /// Blocks a second that are erased.
    pub erases_per_s: f64,
    /// Erases of the least worn block.
    pub wear_min: u32,
    /// Mean erases of a block.
    pub wear_mean: f64,
    /// Erases of the most worn block.
    pub wear_max: u32,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoardTenant {
    /// Its name.
    pub name: String,
    /// `urgent`, `high`, `medium` or `low`.
    pub class: String,
    /// Its share among the tenants of its class.
    pub weight: u16,
    /// What it has done, over all drives.
    pub rates: DoneRates,
    /// Percent of all tenants' bytes.
    pub share_pct: f64,
    /// I/O queues.
    pub queues: u32,
    /// Controllers.
    pub controllers: u32,
    /// What it gets of each drive at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<FloorStatus>,
    /// What it gets of each drive at the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<CeilingStatus>,
    /// What it was promised of each drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sla: Option<SlaStatus>,
    /// How that is kept, the worst of its drives; absent without a promise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<SlaState>,
    /// Latencies, the longest of its drives'; absent without a promise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<BoardLatency>,
    /// What admission says of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admission: Vec<String>,
}

/// Latencies of the newest period, from a command's arrival to its completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoardLatency {
    /// Median.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// 999 of 1000 took no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoardVolume {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// The pool that it is a part of.
    pub pool: String,
    /// Its size.
    pub size_bytes: u64,
    /// The drives that it lies on.
    pub drives: Vec<String>,
    /// What of it fails, because its drive is lost or was replaced.
    pub failing_bytes: u64,
    /// Doors that it is exported at.
    pub exports: usize,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoardPool {
    /// Its name.
    pub name: String,
    /// What there is for volumes.
    pub size_bytes: u64,
    /// What of it is free.
    pub free_bytes: u64,
    /// Drives that it has.
    pub drives: usize,
    /// Drives that it serves without.
    pub lost: usize,
    /// Why nothing is changed any more, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// The store of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoardStore {
    /// Why its service does not answer, or what is wrong with its metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Requests a second that the service answers.
    pub requests_per_s: f64,
    /// Clients' sessions.
    pub sessions: u64,
    /// Files that are open.
    pub handles: u64,
    /// The processes that serve or stand by.
    pub services: Vec<StoreService>,
    /// Classes, best first.
    pub classes: Vec<StoreClass>,
    /// Namespaces.
    pub namespaces: Vec<StoreNamespace>,
    /// What goes from a class to the next one; empty where no policy demotes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub demotion: Vec<BoardDemotion>,
}

/// What goes from a class of the store to the next one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoardDemotion {
    /// The class's room and use, what has gone, and what was left and why.
    pub counts: StoreClassDemotion,
    /// Copies of blocks that go a second.
    pub blocks_per_s: f64,
    /// Their bytes.
    pub bytes_per_s: f64,
}

/// An export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoardExport {
    /// The drive or the volume.
    pub of: String,
    /// `nvme-tcp`, `vhost-user` or `vfio-user`.
    pub door: String,
    /// Where a client connects.
    pub addresses: Vec<String>,
    /// The tenant of a socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Clients connected now.
    pub clients: u32,
}
