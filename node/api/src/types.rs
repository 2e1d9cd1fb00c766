//! The JSON of the API.
// tidy: long because every object of the API is here, each a few lines

use super::flash::FlashStatus;
use super::promise::{AttainmentStatus, CeilingPatch, CeilingStatus, FloorPatch, FloorStatus, SlaPatch, SlaStatus};
use super::timing::Timing;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::net::SocketAddr;
use weir_config::{Arbitration, ClassFrom, Cost, Doorbells, Mechanism, Shares};
use weir_node::door::vhost_user::Recoveries;

/// What a node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NodeState")]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Serving.
    Serving,
    /// Finishing what is in flight before it ends.
    Draining,
}

/// `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The node's name.
    pub node: String,
    /// Weir's version.
    pub version: String,
    /// Process id: the keeper's, where there is one.
    pub pid: u32,
    /// Of the process that serves: another one after a crash or an upgrade, and the same as `pid` without a keeper. Absent of older nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_pid: Option<u32>,
    /// What it is doing.
    pub state: State,
    /// Seconds since it began to serve.
    pub uptime_s: f64,
    /// What the start of the process that serves consisted of; with a keeper, from the moment in which it was to take over.
    #[serde(default)]
    pub start: Vec<StartStep>,
    /// Where the API listens, as the configuration writes it.
    pub api: Vec<String>,
    /// Reactors.
    pub shards: Vec<ShardStatus>,
    /// Doors that listen for more than one export.
    pub doors: Vec<DoorStatus>,
    /// Drives.
    pub devices: Vec<DeviceStatus>,
    /// Tenants.
    pub tenants: Vec<TenantStatus>,
    /// Exports.
    pub exports: Vec<ExportStatus>,
}

/// A part of a start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StartStep {
    /// What was done.
    pub name: String,
    /// How long it took, ns.
    pub ns: u64,
}

/// One reactor thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Shard")]
pub struct ShardStatus {
    /// The CPU it runs on.
    pub core: usize,
    /// It never sleeps.
    pub poll: bool,
    /// CPU time used since it started, in seconds.
    pub cpu_s: f64,
    /// Percent of the last second in which it had something to do.
    #[serde(default)]
    pub busy_pct: f64,
}

/// A listening door.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Door")]
pub struct DoorStatus {
    /// `nvme-tcp`.
    pub kind: String,
    /// Addresses with the ports really bound.
    pub listen: Vec<String>,
    /// Connections now.
    pub connections: u32,
    /// Those of them that are no queue yet.
    #[serde(default)]
    pub unconnected: u32,
    /// Connections that were closed before Connect because others came.
    #[serde(default)]
    pub pushed_out: u64,
    /// Connects that found no room.
    #[serde(default)]
    pub refused: u64,
}

/// What has been done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Read commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Other I/O commands.
    pub others: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// I/O commands that ended with an error.
    pub errors: u64,
}

/// What a power cut did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PowerCut")]
pub struct PowerCutStatus {
    /// The drive.
    pub name: String,
    /// Units of 4 KiB whose newest writes are gone.
    pub lost_units: u64,
    /// Those writes.
    pub lost_writes: u64,
    /// Flash pages that were read to find the map again.
    pub pages_read: u64,
    /// How long the drive needs until it serves again.
    pub rebuild_ns: u64,
    /// How often it was powered on.
    pub power_cycles: u64,
    /// How often it lost power without being shut down.
    pub unsafe_shutdowns: u64,
}

/// One drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Device")]
pub struct DeviceStatus {
    /// Its name.
    pub name: String,
    /// NVMe qualified name of its subsystem.
    pub nqn: String,
    /// Serial number.
    pub serial: String,
    /// Where the bytes are, as the configuration writes it.
    pub media: String,
    /// How hosts see it: `block`, `zoned` or `open-channel`.
    #[schemars(extend("enum" = ["block", "zoned", "open-channel"]))]
    pub interface: String,
    /// Whose flash it has the times of: a profile's name or file; absent where it has no flash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Size.
    pub capacity_bytes: u64,
    /// Logical block.
    pub block_size: u32,
    /// Fixed service time; 0: none.
    pub latency_ns: u64,
    /// Commands that it works on at once.
    pub slots: u32,
    /// Commands that it works on now.
    pub slots_busy: u32,
    /// Time of commands in slots, added: its difference between two looks, divided by their distance and the slots, is the share that was busy. It wraps
    /// around.
    #[serde(default)]
    pub slot_time_ns: u64,
    /// Bytes that it works on at once.
    pub slot_bytes: u64,
    /// Who is next.
    pub arbitration: Arbitration,
    /// What a command counts for.
    pub cost: Cost,
    /// The CPU of its reactor.
    pub core: usize,
    /// Controllers that exist now.
    pub controllers: u32,
    /// I/O queues that exist now.
    pub queues: u32,
    /// What it has done.
    pub io: Counters,
    /// What has broken its media first, and what that means; absent while all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// How the way to its media is; absent where that is no other drive (`media = "nvme:…"`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkStatus>,
    /// What is wrong with it, and what its SMART log says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<crate::health::DriveHealth>,
    /// How well it keeps its modelled times; absent before it has completed a command that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// What its flash did; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<FlashStatus>,
    /// Who is connected.
    #[serde(default)]
    pub clients: Vec<ClientStatus>,
}

/// The way to the drive that another one's media is on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Link")]
pub struct LinkStatus {
    /// `serving`; during an outage `connecting`, `enabling`, `identifying`, `fencing`, `replaying`, `waiting` for the next attempt, or
    /// `inaccessible`: connected, and the namespace is not ready or its ANA state lets no command through.
    #[schemars(extend("enum" = ["serving", "connecting", "enabling", "identifying", "fencing", "replaying", "waiting", "inaccessible"]))]
    pub state: String,
    /// Commands fail, because the outage has gone on for longer than `fast_io_fail_tmo`, or another drive is there.
    pub failing: bool,
    /// For how long the outage has gone on; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_s: Option<f64>,
    /// Attempts of this outage, or of the one before.
    pub attempts: u32,
    /// Outages since the drive was opened, this one among them.
    pub outages: u64,
    /// Commands that wait for it.
    pub held: u64,
    /// What has caused the last outage, or has kept the last attempt from success; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_cause: Option<String>,
}

/// A controller of a drive and who uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Client")]
pub struct ClientStatus {
    /// The host's NQN, or the vhost-user socket and the process at its other end.
    pub host: String,
    /// Its tenant.
    pub tenant: String,
    /// Controller identifier (CNTLID).
    pub controller: u16,
    /// Enabled.
    pub ready: bool,
    /// How it reaches the namespaces.
    pub ana: Ana,
    /// I/O queues that exist now.
    pub queues: u32,
    /// The classes that these are in, highest first.
    pub classes: Vec<String>,
}

/// One tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Tenant")]
pub struct TenantStatus {
    /// Its name.
    pub name: String,
    /// `urgent`, `high`, `medium` or `low`.
    #[schemars(extend("enum" = ["urgent", "high", "medium", "low"]))]
    pub class: String,
    /// Its queues may be urgent.
    pub urgent: bool,
    /// Its share among the tenants of its class.
    #[schemars(range(min = 1, max = 256))]
    pub weight: u16,
    /// What it gets of each drive at least; absent without a floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<FloorStatus>,
    /// What it gets of each drive at the most; absent without a ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<CeilingStatus>,
    /// What it was promised of each drive; absent where that is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sla: Option<SlaStatus>,
    /// How its floor and its service level are kept, drive by drive; empty without either.
    #[serde(default)]
    pub attainment: Vec<AttainmentStatus>,
    /// Host NQNs; `*`: every host that is nobody else's.
    pub hosts: Vec<String>,
    /// Controllers that exist now, over all drives.
    pub controllers: u32,
    /// I/O queues that exist now, over all drives.
    pub queues: u32,
    /// Its hosts' connections over NVMe/TCP, one for each admin and I/O queue.
    #[serde(default)]
    pub connections: u32,
    /// What admission says of it: promises that cannot be kept, and drives of which nobody knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admission: Vec<String>,
    /// Its ceiling holds commands back on one of its drives now.
    #[serde(default)]
    pub at_ceiling: bool,
    /// How long its commands took, over all drives, since the process that serves began: buckets in which there are some, the shortest first.
    #[serde(default)]
    pub latency: Vec<LatencyBucket>,
    /// What it has had done, over all drives.
    pub io: Counters,
}

/// Commands that took about as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyBucket {
    /// Longer than that, in nanoseconds: the bound of the bucket before. Bounds are 1, 2.5 and 5 in every decade from 1 us to 10 s.
    pub over_ns: u64,
    /// And no longer than that; absent where there is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to_ns: Option<u64>,
    /// Commands, from their arrival at the drive to their completion.
    pub commands: u64,
}

/// One way to a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Export")]
pub struct ExportStatus {
    /// The drive; nothing for a volume.
    pub device: String,
    /// The volume, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// `nvme-tcp`, `vhost-user` or `vfio-user`.
    #[schemars(extend("enum" = ["nvme-tcp", "vhost-user", "vfio-user"]))]
    pub door: String,
    /// Socket paths or IP:PORT; where a client connects.
    pub addresses: Vec<String>,
    /// The tenant of a socket; over NVMe/TCP the host's NQN decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Who decides the class.
    pub class_from: ClassFrom,
    /// I/O queues at most.
    pub queues: u16,
    /// Writes are refused.
    pub read_only: bool,
    /// Clients connected now.
    pub clients: u32,
    /// What was in flight when a server died or a front end went, and was found again: of vhost-user sockets where there was
    /// any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered: Option<RecoveredStatus>,
}

/// What the journals of a socket's queues had to say since the node started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Recovered")]
pub struct RecoveredStatus {
    /// Queues that were recovered.
    pub queues: u64,
    /// Requests submitted again.
    pub requests: u64,
    /// Of these: had been done, and the driver did not know.
    pub rolled_back: u64,
    /// Requests that were done, and the driver knew.
    pub closed: u64,
    /// Queues by the last step that was taken before.
    pub steps: StepsStatus,
}

/// Queues by the step of the journal's algorithm that their server took last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RecoveredSteps")]
pub struct StepsStatus {
    /// Nothing was in flight.
    pub idle: u64,
    /// A request had been taken (step 5).
    pub merged: u64,
    /// It was marked as in flight (step 6).
    pub marked: u64,
    /// Requests were with the drive (steps 7 to 9).
    pub in_flight: u64,
    /// A completion was counted (step 10).
    pub counted: u64,
    /// Completions were not published yet (steps 11 and 12).
    pub done: u64,
    /// Completions had been published, and were not struck out yet (step 13).
    pub published: u64,
}

impl From<&Recoveries> for RecoveredStatus {
    fn from(found: &Recoveries) -> Self {
        let &Recoveries { queues, requests, rolled_back, closed, steps } = found;
        let [idle, merged, marked, in_flight, counted, done, published] = steps;
        let steps = StepsStatus { idle, merged, marked, in_flight, counted, done, published };
        Self { queues, requests, rolled_back, closed, steps }
    }
}

/// `PATCH /v1/devices/NAME`: what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DevicePatch {
    /// `none`, `rr`, `wrr` or `drr`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    /// Commands a round, 1 to 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = weir_config::weights_in_range)]
    pub weights: Option<SharesPatch<u16>>,
    /// Commands a visit: 2 to this power, 0 to 6; `null`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schemars(range(min = 0, max = 6))]
    pub burst: Option<Option<u8>>,
    /// Bytes a round, 4 KiB to 1 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = weir_config::quanta_in_range)]
    pub quanta: Option<SharesPatch<u32>>,
    /// Bytes, whole blocks, at most the device's `max_capacity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// How hosts reach the drive's namespaces over this node (asymmetric namespace access).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ana: Option<AnaPatch>,
    /// SMART's available spare is no more than this, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub spare_percent: Option<u8>,
    /// Do it even where promises to tenants cannot be kept then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// How hosts reach a drive's namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnaPatch {
    /// The state of their controllers, those that will come included.
    pub state: Ana,
    /// The host's NQN; left out, and no `port`: all hosts, and what was said of some hosts and ports is forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// All hosts that come by this listening address, like 10.0.0.1:4420; not with `host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub port: Option<SocketAddr>,
}

/// A state of asymmetric namespace access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ana {
    /// I/O goes this way.
    Optimized,
    /// I/O goes this way where there is no better one.
    NonOptimized,
    /// Not this way for now.
    Inaccessible,
    /// Never again this way.
    PersistentLoss,
    /// It is about to change.
    Change,
}

impl From<Ana> for weir_controller::AnaState {
    fn from(ana: Ana) -> Self {
        match ana {
            Ana::Optimized => Self::Optimized,
            Ana::NonOptimized => Self::NonOptimized,
            Ana::Inaccessible => Self::Inaccessible,
            Ana::PersistentLoss => Self::PersistentLoss,
            Ana::Change => Self::Change,
        }
    }
}

impl From<weir_controller::AnaState> for Ana {
    fn from(state: weir_controller::AnaState) -> Self {
        use weir_controller::AnaState;
        match state {
            AnaState::Optimized => Self::Optimized,
            AnaState::NonOptimized => Self::NonOptimized,
            AnaState::Inaccessible => Self::Inaccessible,
            AnaState::PersistentLoss => Self::PersistentLoss,
            AnaState::Change => Self::Change,
        }
    }
}

/// A `null` that was written is a value, unlike a key that was not.
pub(super) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

/// Some of the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, bound(deserialize = "T: Deserialize<'de>"))]
#[schemars(inline)]
pub struct SharesPatch<T> {
    /// Class high.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<T>,
    /// Class medium.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub medium: Option<T>,
    /// Class low.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<T>,
}

impl<T: Copy> SharesPatch<T> {
    fn apply(&self, to: &mut Shares<T>) {
        to.high = self.high.unwrap_or(to.high);
        to.medium = self.medium.unwrap_or(to.medium);
        to.low = self.low.unwrap_or(to.low);
    }

    fn all(&self, fits: impl Fn(T) -> bool) -> bool {
        [self.high, self.medium, self.low].into_iter().flatten().all(fits)
    }
}

impl DevicePatch {
    /// Every number is in the range that the configuration allows, and there is something to do.
    pub fn check(&self) -> Result<(), String> {
        if (DevicePatch { force: false, ..self.clone() }) == DevicePatch::default() {
            return Err(
                "nothing to change; give mechanism, weights, burst, quanta, capacity_bytes, ana or spare_percent"
                    .into(),
            );
        }
        if self.weights.is_some_and(|w| !w.all(|n| (1..=256).contains(&n))) {
            return Err("weights: 1 to 256 is allowed".into());
        }
        if self.burst.flatten().is_some_and(|log2| log2 > 6) {
            return Err("burst: 0 to 6 (a power of two) or null is allowed".into());
        }
        if self.quanta.is_some_and(|q| !q.all(|n| (4096..=1 << 30).contains(&n))) {
            return Err("quanta: 4096 to 1073741824 bytes is allowed".into());
        }
        if self.ana.as_ref().is_some_and(|ana| ana.host.is_some() && ana.port.is_some()) {
            return Err("ana: host or port, not both".into());
        }
        if self.spare_percent.is_some_and(|percent| percent > 100) {
            return Err("spare_percent: 0 to 100 is allowed".into());
        }
        Ok(())
    }

    /// The settings with the patch applied.
    pub fn apply(&self, mut to: Arbitration) -> Arbitration {
        to.mechanism = self.mechanism.unwrap_or(to.mechanism);
        to.burst = self.burst.unwrap_or(to.burst);
        if let Some(weights) = &self.weights {
            weights.apply(&mut to.weights);
        }
        if let Some(quanta) = &self.quanta {
            quanta.apply(&mut to.quanta);
        }
        to
    }
}

/// `PATCH /v1/tenants/NAME`: what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantPatch {
    /// `high`, `medium` or `low`; `urgent` where the configuration allows the tenant that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["urgent", "high", "medium", "low", null]))]
    pub class: Option<String>,
    /// 1 to 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub weight: Option<u16>,
    /// What it gets of each drive at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<FloorPatch>,
    /// What it gets of each drive at the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<CeilingPatch>,
    /// What it was promised of each drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sla: Option<SlaPatch>,
    /// Do it even where promises to tenants cannot be kept then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

impl TenantPatch {
    /// The class is one, the weight is in range, and there is something to do.
    pub fn check(&self) -> Result<(), String> {
        if (TenantPatch { force: false, ..self.clone() }) == TenantPatch::default() {
            return Err("nothing to change; give class, weight, floor, ceiling or sla".into());
        }
        if self.weight.is_some_and(|w| !(1..=256).contains(&w)) {
            return Err("weight: 1 to 256 is allowed".into());
        }
        self.class().map(drop)
    }

    /// The class asked for.
    pub fn class(&self) -> Result<Option<weir_units::Class>, String> {
        let Some(name) = &self.class else { return Ok(None) };
        name.parse().map(Some).map_err(|()| "class: urgent, high, medium or low is allowed".to_string())
    }
}

/// `POST /v1/tenants`: one more tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantAdd {
    /// 1 to 32 letters, digits, `-`, `_` and `.`, and nobody else's.
    pub name: String,
    /// NQNs of hosts that are nobody else's; `*`: all hosts that are nobody else's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// `urgent`, `high`, `medium` (where it is left out) or `low`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["urgent", "high", "medium", "low", null]))]
    pub class: Option<String>,
    /// 1 to 256; 1 where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub weight: Option<u16>,
    /// What it gets of each drive at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<FloorPatch>,
    /// What it gets of each drive at the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<CeilingPatch>,
    /// What it was promised of each drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sla: Option<SlaPatch>,
    /// Do it even where promises to tenants cannot be kept then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

impl TenantAdd {
    /// Whether its numbers are in range.
    pub fn check(&self) -> Result<(), String> {
        let Self { class, weight, .. } = self.clone();
        // A patch that changes nothing is refused; a tenant may be added that is promised nothing.
        TenantPatch { class, weight: weight.or(Some(1)), ..TenantPatch::default() }.check()
    }
}

/// `POST /v1/exports`: a drive on one more vfio-user socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportAdd {
    /// The drive.
    pub device: String,
    /// An absolute path at which nobody listens.
    pub socket: String,
    /// Whose queues they are; the only tenant where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// `tenant` (where it is left out), `qprio` or `peer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_from: Option<ClassFrom>,
    /// `auto` (where it is left out), `mmap` or `trap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doorbells: Option<Doorbells>,
    /// Add it even where promises to tenants cannot be kept then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// The body of every answer that is not 2xx: a problem of RFC 9457.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct ErrorBody {
    /// `about:blank`: the HTTP status says which kind of problem it is (RFC 9457, section 4.2.1).
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The HTTP status in words.
    #[serde(default)]
    pub title: String,
    /// The HTTP status.
    #[serde(default)]
    pub status: u16,
    /// What went wrong and what to do.
    #[serde(default)]
    pub detail: String,
    /// The same as `detail`, for programs that do not know RFC 9457.
    pub error: String,
}

impl ErrorBody {
    /// Of an answer with this status.
    pub(super) fn new(status: axum::http::StatusCode, what: String) -> Self {
        let title = status.canonical_reason().unwrap_or_default().to_owned();
        Self { kind: "about:blank".into(), title, status: status.as_u16(), detail: what.clone(), error: what }
    }
}
