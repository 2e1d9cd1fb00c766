//! What the API asks of a node.

use super::board::{DriveBoardStatus, MOST_EVENTS, PlanAsked, PlanStatus, Sample, unix_ms};
use super::fault::{FaultAdd, FaultStatus};
use super::pooled::{
    PoolDriveAdd, PoolDriveReplace, PoolScrub, PoolStatus, VolumeAdd, VolumeClone, VolumeContents, VolumeExport,
    VolumePatch, VolumeSnapshotAdd, VolumeStatus,
};
use super::store::StoreControl;
use super::timing::DeviceStats;
use super::types::{
    DevicePatch, DeviceStatus, ExportAdd, ExportStatus, PowerCutStatus, Status, TenantAdd, TenantPatch, TenantStatus,
};
use weir_node::events::{Listener, NodeEvent};
use weir_node::upgrade::{UpgradeStart, UpgradeStatus};
use weir_node::{NodeLatencies, Refusal};

/// The node as the API sees it. Every call may block until the shards have answered.
pub trait Control: Send + Sync + 'static {
    /// Everything at once.
    fn status(&self) -> Result<Status, Refusal>;
    /// How long commands took, by drive, tenant and exported volume.
    fn latencies(&self) -> Result<NodeLatencies, Refusal>;
    /// The configuration as TOML, every key spelled out, with what was changed since the start.
    fn config(&self) -> Result<String, Refusal>;
    /// All drives, in the order of the configuration.
    fn devices(&self) -> Result<Vec<DeviceStatus>, Refusal>;
    /// How well a drive keeps its modelled times; `reset`: and from now on anew.
    fn device_stats(&self, name: &str, reset: bool) -> Result<DeviceStats, Refusal>;
    /// All tenants, in the order of the configuration.
    fn tenants(&self) -> Result<Vec<TenantStatus>, Refusal>;
    /// All exports, in the order of the configuration.
    fn exports(&self) -> Result<Vec<ExportStatus>, Refusal>;
    /// Changes a drive's arbitration while I/O runs; the patch is in range (see [`DevicePatch::check`]).
    fn set_device(&self, name: &str, patch: &DevicePatch) -> Result<DeviceStatus, Refusal>;
    /// Cuts a drive's power and brings it back: controllers die, what was written and not flushed may be gone.
    fn power_cut(&self, name: &str) -> Result<PowerCutStatus, Refusal>;
    /// The rules of failures of a drive, in the order of their numbers.
    fn faults(&self, device: &str) -> Result<Vec<FaultStatus>, Refusal>;
    /// One more rule of failures, from now on.
    fn add_fault(&self, device: &str, fault: &FaultAdd) -> Result<FaultStatus, Refusal>;
    /// Takes a rule of failures out; the answer is what it was.
    fn remove_fault(&self, device: &str, id: u32) -> Result<FaultStatus, Refusal>;
    /// Changes a tenant's class, weight or promises while I/O runs; the patch is in range (see [`TenantPatch::check`]).
    fn set_tenant(&self, name: &str, patch: &TenantPatch) -> Result<TenantStatus, Refusal>;
    /// One more tenant while I/O runs; it is in range (see [`TenantAdd::check`]).
    fn add_tenant(&self, tenant: &TenantAdd) -> Result<TenantStatus, Refusal>;
    /// Removes a tenant that has no hosts connected and no export; the answer is what it was.
    fn remove_tenant(&self, name: &str) -> Result<TenantStatus, Refusal>;
    /// A drive on one more vfio-user socket, while I/O runs.
    fn add_export(&self, export: &ExportAdd) -> Result<ExportStatus, Refusal>;
    /// Ends the export of a drive at a vfio-user socket, or one of a volume (a socket, or `nvme-tcp:VOLUME`), and its client's connection;
    /// the answer is what it was.
    fn remove_export(&self, socket: &str) -> Result<ExportStatus, Refusal>;
    /// All pools, in the order of the configuration.
    fn pools(&self) -> Result<Vec<PoolStatus>, Refusal>;
    /// A device joins a pool: empty, and not exported by itself.
    fn add_pool_drive(&self, pool: &str, drive: &PoolDriveAdd) -> Result<PoolStatus, Refusal>;
    /// A drive leaves its pool, if no volume lies on it.
    fn remove_pool_drive(&self, pool: &str, device: &str) -> Result<PoolStatus, Refusal>;
    /// A pool serves without a drive, as if it were lost.
    fn take_out_pool_drive(&self, pool: &str, device: &str) -> Result<PoolStatus, Refusal>;
    /// A lost drive that is there again takes part in its pool.
    fn bring_back_pool_drive(&self, pool: &str, device: &str) -> Result<PoolStatus, Refusal>;
    /// A device takes the place of a lost drive.
    fn replace_pool_drive(&self, pool: &str, replace: &PoolDriveReplace) -> Result<PoolStatus, Refusal>;
    /// Begins to compare the copies of a pool's volumes.
    fn scrub_pool(&self, pool: &str, scrub: &PoolScrub) -> Result<PoolStatus, Refusal>;
    /// Leaves off comparing them.
    fn stop_scrub(&self, pool: &str) -> Result<PoolStatus, Refusal>;
    /// A volume that has lost chunks is emptied, and another disk for its hosts.
    fn empty_volume(&self, name: &str) -> Result<VolumeStatus, Refusal>;
    /// All volumes, pool by pool, in the order in which they were made.
    fn volumes(&self) -> Result<Vec<VolumeStatus>, Refusal>;
    /// One volume.
    fn volume(&self, name: &str) -> Result<VolumeStatus, Refusal>;
    /// What of a volume, from a byte on, may be other than zeroes.
    fn volume_contents(&self, name: &str, from: u64) -> Result<VolumeContents, Refusal>;
    /// A new volume, which reads as zeroes.
    fn add_volume(&self, volume: &VolumeAdd) -> Result<VolumeStatus, Refusal>;
    /// Another size for a volume, while its hosts use it, or another name for one that is not exported.
    fn set_volume(&self, name: &str, patch: &VolumePatch) -> Result<VolumeStatus, Refusal>;
    /// Deletes a volume that is not exported, and what it holds; the answer is what it was.
    fn remove_volume(&self, name: &str) -> Result<VolumeStatus, Refusal>;
    /// A snapshot of a volume, which its hosts may be writing.
    fn add_snapshot(&self, volume: &str, snapshot: &VolumeSnapshotAdd) -> Result<VolumeStatus, Refusal>;
    /// A new volume with what a snapshot has.
    fn add_clone(&self, snapshot: &str, clone: &VolumeClone) -> Result<VolumeStatus, Refusal>;
    /// The volume of a snapshot, which is not exported, has again what the snapshot has.
    fn roll_back(&self, snapshot: &str) -> Result<VolumeStatus, Refusal>;
    /// A volume at one more door.
    fn add_volume_export(&self, name: &str, export: &VolumeExport) -> Result<VolumeStatus, Refusal>;
    /// The latest events with greater numbers than that, in their order.
    fn events(&self, after: u64) -> Vec<NodeEvent>;
    /// The number of the last event; 0 before there was one.
    fn last_event(&self) -> u64;
    /// From now on `listener` is called with each event; it must not wait.
    fn on_event(&self, listener: Listener);
    /// Everything that the dashboard shows of the node as a whole.
    fn sample(&self) -> Result<Sample, Refusal> {
        let (status, pools, volumes) = (self.status()?, self.pools()?, self.volumes()?);
        let (upgrade, generation) = (self.upgrade_status(), self.generation());
        let events = self.events(self.last_event().saturating_sub(MOST_EVENTS));
        // A store that does not answer is a part of the picture.
        let store = self.store().map(|store| store.status().map_err(|refusal| refusal.text().to_string()));
        Ok(Sample { status, pools, volumes, store, upgrade, generation, unix_ms: unix_ms(), events })
    }
    /// How many workers have served before this one.
    fn generation(&self) -> u64;
    /// Whether failures may be injected.
    fn may_inject(&self) -> bool;
    /// What goes on inside a drive.
    fn device_board(&self, name: &str) -> Result<DriveBoardStatus, Refusal>;
    /// What tenants are to expect of a drive with another arbitration; the numbers are in range (see [`PlanAsked::check`]).
    fn plan_device(&self, name: &str, asked: &PlanAsked) -> Result<PlanStatus, Refusal>;
    /// The store that the node serves or stands by for; none without `[store]`.
    fn store(&self) -> Option<&StoreControl> {
        None
    }
    /// How far the last upgrade is.
    fn upgrade_status(&self) -> UpgradeStatus;
    /// Begins to replace the program that serves; returns at once.
    fn upgrade(&self, start: &UpgradeStart) -> Result<UpgradeStatus, Refusal>;
    /// Begins to drain and then ends the process; returns at once, and may be called twice.
    fn shutdown(&self);
}
