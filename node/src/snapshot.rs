//! What a node is like at one moment.

use crate::door::vhost_user::Recoveries;
use crate::lateness::{Lateness, Summary};
use crate::remote::{HealthStatus, RemoteStatus};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_config::prediction::Prediction;
use weir_config::{ClassFrom, Config, DeviceConfig};
use weir_controller::{Attainment, ControllerInfo, DriveStats, Latencies, LatencyCounts, Work};
use weir_drive::{DieFigures, FlashFigures};
use weir_fault::FaultRule;
use weir_units::{Bytes, Ceiling, Class, Floor, Nanos, Sla};

/// All of a node.
#[derive(Clone, Debug)]
pub struct NodeSnapshot {
    /// Its configuration.
    pub config: Arc<Config>,
    /// Process id: the keeper's, where there is one.
    pub pid: u32,
    /// Of the process that serves.
    pub worker: u32,
    /// It finishes what is in flight before it ends.
    pub is_draining: bool,
    /// For how long it has served.
    pub uptime: Duration,
    /// What the start of the process that serves consisted of.
    pub start: Vec<(&'static str, Duration)>,
    /// Reactors.
    pub shards: Vec<ShardSnapshot>,
    /// NVMe/TCP, where it listens.
    pub door: Option<DoorSnapshot>,
    /// Drives, in the order of the configuration.
    pub devices: Vec<DeviceSnapshot>,
    /// Tenants, in the order of the configuration, without those that have gone.
    pub tenants: Vec<TenantSnapshot>,
    /// Exports of drives in the order of the configuration, then those of volumes.
    pub exports: Vec<ExportSnapshot>,
}

/// A rule of failures, and what it has done.
#[derive(Clone, Debug)]
pub struct FaultSnapshot {
    /// Its number, the drive's own.
    pub id: u32,
    /// The rule.
    pub rule: FaultRule,
    /// Commands that it was about.
    pub matched: u64,
    /// How often it applied.
    pub applied: u64,
    /// Its time has come and is not over.
    pub is_active: bool,
}

/// One reactor thread.
#[derive(Clone, Debug)]
pub struct ShardSnapshot {
    /// The CPU it runs on.
    pub core: usize,
    /// It never sleeps.
    pub polls: bool,
    /// CPU time used since it started, in seconds.
    pub cpu_s: f64,
    /// Percent of the last second in which it had something to do.
    pub busy_pct: f64,
}

/// The NVMe/TCP door over all shards.
#[derive(Clone, Debug, Default)]
pub struct DoorSnapshot {
    /// Addresses with the ports really bound.
    pub listening: Vec<SocketAddr>,
    /// Connections now.
    pub connections: u32,
    /// Those of them that are no queue yet.
    pub unconnected: u32,
    /// Connections that were closed before Connect because others came.
    pub pushed_out: u64,
    /// Connects that found no room.
    pub refused: u64,
}

/// One drive.
#[derive(Clone, Debug)]
pub struct DeviceSnapshot {
    /// The node's configuration.
    pub config: Arc<Config>,
    /// Its place in there.
    pub index: usize,
    /// The CPU of its reactor.
    pub core: usize,
    /// What it has done.
    pub stats: DriveStats,
    /// Controllers that exist now.
    pub controllers: Vec<ControllerInfo>,
    /// Size.
    pub capacity: Bytes,
    /// Logical block, bytes.
    pub block_size: u32,
    /// What has broken its media first, and what that means.
    pub fault: Option<String>,
    /// How the way to its media is, where that is another drive.
    pub link: Option<RemoteStatus>,
    /// What is wrong with it.
    pub health: HealthStatus,
    /// How well it keeps its modelled times; `None` before it has completed a command that has one.
    pub timing: Option<Summary>,
    /// What its flash did, where it has any.
    pub flash: Option<FlashFigures>,
    /// When that was.
    pub now: Nanos,
    /// Of each tenant: how long its commands took.
    pub latencies: Vec<LatencyCounts>,
    /// Time of commands in slots, added, as a sum that wraps around.
    pub slot_time: Nanos,
    /// How each tenant's promise is kept, where there is one.
    pub attained: Vec<Option<Attainment>>,
}

impl DeviceSnapshot {
    /// What it was made with.
    pub fn device(&self) -> &DeviceConfig {
        &self.config.devices[self.index]
    }
}

/// A drive as the dashboard shows it.
#[derive(Clone, Debug)]
pub struct DriveBoard {
    /// When that was.
    pub now: Nanos,
    /// Its flash, die by die; empty where it has none.
    pub dies: Vec<DieFigures>,
    /// Channels of its flash: die `i` is at channel `i % channels`.
    pub channels: u32,
    /// What it has done, and for whom.
    pub stats: DriveStats,
    /// Controllers and their queues.
    pub controllers: Vec<ControllerInfo>,
}

/// What the tenants with queues at a drive are to expect of it.
#[derive(Clone, Debug)]
pub struct ExpectedTenants {
    /// Their names, in the order of the predictions.
    pub tenants: Vec<String>,
    /// As the drive is; `None` where nothing can be said.
    pub before: Option<Prediction>,
    /// As it would be.
    pub after: Option<Prediction>,
}

/// How long the commands of a node took, since the process that serves began.
#[derive(Clone, Debug, Default)]
pub struct NodeLatencies {
    /// By drive, in the order of the configuration.
    pub devices: Vec<NamedLatencies>,
    /// By tenant over all drives, in the order of the configuration.
    pub tenants: Vec<NamedLatencies>,
    /// Of the volumes that are exported, as their hosts see them, pool by pool.
    pub volumes: Vec<VolumeLatencies>,
}

/// How long the commands of a drive or a tenant took.
#[derive(Clone, Debug)]
pub struct NamedLatencies {
    /// Whose.
    pub name: String,
    /// From their arrival at the drive to their completion.
    pub latencies: Latencies,
}

/// How long the commands of a volume took.
#[derive(Clone, Debug)]
pub struct VolumeLatencies {
    /// The volume.
    pub volume: String,
    /// Whose it is.
    pub tenant: String,
    /// From their arrival at the volume to their completion; since it was exported.
    pub latencies: Latencies,
}

/// How well a drive keeps its modelled times.
#[derive(Clone, Debug)]
pub struct DeviceTiming {
    /// The CPU of its reactor.
    pub core: usize,
    /// That reactor never sleeps.
    pub polls: bool,
    /// Percent of the last second in which that reactor had something to do, for all its drives.
    pub busy_pct: f64,
    /// For how long its thread has been ready to run without a core since it started; `None` where the kernel does not say.
    pub waited: Option<Nanos>,
    /// `None` before the drive has completed a command with a modelled time.
    pub summary: Option<Summary>,
    /// The whole measurement, as well.
    pub lateness: Option<Lateness>,
    /// What its flash did, where it has any.
    pub flash: Option<FlashFigures>,
    /// When that was.
    pub now: Nanos,
}

/// One tenant.
#[derive(Clone, Debug)]
pub struct TenantSnapshot {
    /// Its name.
    pub name: String,
    /// The class of its queues.
    pub class: Class,
    /// Its queues may be urgent.
    pub urgent: bool,
    /// Its share among the tenants of its class.
    pub weight: u16,
    /// What it gets of each drive at least.
    pub floor: Floor,
    /// What it gets of each drive at the most.
    pub ceiling: Ceiling,
    /// What it was promised of each drive.
    pub sla: Sla,
    /// How its floor and its service level are kept: the drive, and what was attained there until then.
    pub attained: Vec<(String, Attainment, Nanos)>,
    /// Host NQNs; `*`: every host that is nobody else's.
    pub hosts: Vec<String>,
    /// Controllers that exist now, over all drives.
    pub controllers: u32,
    /// I/O queues that exist now, over all drives.
    pub queues: u32,
    /// Its hosts' connections over NVMe/TCP.
    pub connections: u32,
    /// What admission says of it.
    pub admission: Vec<String>,
    /// Its ceiling holds commands back on one of its drives now.
    pub at_ceiling: bool,
    /// How long its commands took, over all drives.
    pub latencies: LatencyCounts,
    /// What it has had done, over all drives.
    pub work: Work,
}

/// One way to a drive or a volume.
#[derive(Clone, Debug)]
pub struct ExportSnapshot {
    /// The drive; nothing for a volume.
    pub device: String,
    /// The volume, if it is one.
    pub volume: Option<String>,
    /// `nvme-tcp`, `vhost-user` or `vfio-user`.
    pub door: &'static str,
    /// Socket paths or IP:PORT; where a client connects.
    pub addresses: Vec<String>,
    /// The tenant of a socket; over NVMe/TCP the host's NQN decides.
    pub tenant: Option<String>,
    /// Who decides the class.
    pub class_from: ClassFrom,
    /// I/O queues at most.
    pub queues: u16,
    /// Writes are refused.
    pub read_only: bool,
    /// Clients connected now.
    pub clients: u32,
    /// What was in flight when a server died or a front end went, and was found again, where there was any.
    pub recovered: Option<Recoveries>,
}

/// A volume.
#[derive(Clone, Debug)]
pub struct VolumeSnapshot {
    /// Its name.
    pub name: String,
    /// Its UUID, for hosts.
    pub uuid: String,
    /// Whose it is.
    pub tenant: String,
    /// The pool that it is a part of.
    pub pool: String,
    /// Its size.
    pub size: Bytes,
    /// The drives that it lies on, in its order.
    pub drives: Vec<String>,
    /// Pieces that lie together.
    pub extents: u32,
    /// What of it lies on lost drives, and fails.
    pub missing: Bytes,
    /// What of it was lost and lies on drives that have taken the place of lost ones, and fails until it is emptied.
    pub replaced: Bytes,
    /// How many drives have each chunk.
    pub copies: u8,
    /// What of it has one copy, as the other one lies on a lost drive.
    pub alone: Bytes,
    /// What of it has one copy, from which the other one is being rebuilt.
    pub rebuilding: Bytes,
    /// Of a snapshot the volume that it is of.
    pub snapshot_of: Option<String>,
    /// What it has of the pool's drives that no other volume has: what deleting it gives back.
    pub own: Bytes,
    /// The subsystem's name over NVMe/TCP, where it is exported there.
    pub nqn: Option<String>,
    /// The doors that it is exported at.
    pub exports: Vec<String>,
}

/// A pool.
#[derive(Clone, Debug)]
pub struct PoolSnapshot {
    /// Its name.
    pub name: String,
    /// Its UUID, which is on its drives.
    pub uuid: String,
    /// Volumes.
    pub volumes: u32,
    /// Why nothing is changed any more, if so.
    pub fault: Option<String>,
    /// Drives that it serves without.
    pub lost: Vec<LostDrive>,
    /// The comparison of its copies that is under way, or was last.
    pub scrub: Option<ScrubSnapshot>,
    /// Its drives.
    pub drives: Vec<PoolMember>,
}

/// A comparison of a pool's copies.
#[derive(Clone, Debug)]
pub struct ScrubSnapshot {
    /// It is under way.
    pub running: bool,
    /// Where copies differ, the second one is written anew.
    pub repair: bool,
    /// Bytes of volumes whose copies were compared.
    pub compared: Bytes,
    /// Those of them in pieces that differ.
    pub differing: Bytes,
    /// Chunks that a drive did not give.
    pub failed: Bytes,
}

/// A drive that a pool serves without.
#[derive(Clone, Debug)]
pub struct LostDrive {
    /// Its number in the pool.
    pub number: u16,
    /// Its UUID, which is on it.
    pub uuid: String,
    /// Its size.
    pub size: Bytes,
    /// The device that it was.
    pub name: String,
}

/// What of a volume may be other than zeroes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeContents {
    /// Whole chunks, in their order; no two ranges touch.
    pub ranges: Vec<DataRange>,
    /// What lies from there on was not looked at.
    pub next: Option<Bytes>,
}

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRange {
    /// Where they begin.
    pub offset: Bytes,
    /// How many.
    pub len: Bytes,
}

/// A drive of a pool.
#[derive(Clone, Debug)]
pub struct PoolMember {
    /// The drive.
    pub device: String,
    /// Its number in the pool.
    pub number: u16,
    /// Its UUID, which is on it.
    pub uuid: String,
    /// What there is for volumes.
    pub size: Bytes,
    /// What of it is free.
    pub free: Bytes,
    /// What was somebody's and is not emptied yet.
    pub emptying: Bytes,
    /// The largest free piece.
    pub largest_free: Bytes,
}
