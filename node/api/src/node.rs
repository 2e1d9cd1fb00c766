//! The node behind the API: its snapshots become what the API says, and what the API is asked becomes changes of it.

use crate::board::{DriveBoardStatus, PlanAsked, PlanStatus};
use crate::control::Control;
use crate::fault::{FaultAdd, FaultStatus};
use crate::flash::FlashStatus;
use crate::pooled::{
    DataRange, ImageAccess, LostPoolDrive, PoolDrive, PoolDriveAdd, PoolDriveReplace, PoolScrub, PoolStatus,
    ScrubStatus, VolumeAdd, VolumeClone, VolumeContents, VolumeExport, VolumePatch, VolumeSnapshotAdd, VolumeStatus,
};
use crate::promise::{AttainmentStatus, CeilingStatus, Changes, FloorStatus, SlaStatus};
use crate::store::StoreControl;
use crate::timing::{CompletionError, DeviceStats};
use crate::types::{
    ClientStatus, Counters, DevicePatch, DeviceStatus, DoorStatus, ExportAdd, ExportStatus, LatencyBucket, LinkStatus,
    PowerCutStatus, ShardStatus, StartStep, State, Status, TenantAdd, TenantPatch, TenantStatus,
};
use std::sync::Arc;
use weir_config::{Address, ClassFrom};
use weir_controller::{ControllerInfo, LATENCY_BOUNDS, LatencyCounts, Work};
use weir_node::events::{Listener, NodeEvent};
use weir_node::upgrade::{UpgradeStart, UpgradeStatus};
use weir_node::{
    AnaChange, DeviceChange, DeviceSnapshot, DoorSnapshot, ExportSnapshot, ImageUse, LostDrive, NewExport, NewTenant,
    NewVolume, NodeControl, NodeLatencies, NodeSnapshot, PoolMember, PoolSnapshot, Promises, Refusal, RemoteStatus,
    ScrubSnapshot, ShardSnapshot, TenantChange, TenantSnapshot, VolumeChange, VolumeSnapshot,
};
use weir_units::{Bytes, Class, Nanos};

/// A node, with the store that it serves if it has one.
pub struct ServedNode {
    node: Arc<NodeControl>,
    store: Option<StoreControl>,
}

impl ServedNode {
    /// As it serves.
    pub fn new(node: Arc<NodeControl>, store: Option<StoreControl>) -> Self {
        Self { node, store }
    }
}

impl Control for ServedNode {
    fn status(&self) -> Result<Status, Refusal> {
        self.node.status().map(Into::into)
    }

    fn latencies(&self) -> Result<NodeLatencies, Refusal> {
        self.node.latencies()
    }

    fn config(&self) -> Result<String, Refusal> {
        Ok(self.node.config_text())
    }

    fn devices(&self) -> Result<Vec<DeviceStatus>, Refusal> {
        self.node.devices().map(all)
    }

    fn tenants(&self) -> Result<Vec<TenantStatus>, Refusal> {
        self.node.tenants().map(all)
    }

    fn exports(&self) -> Result<Vec<ExportStatus>, Refusal> {
        self.node.exports().map(all)
    }

    fn device_stats(&self, name: &str, reset: bool) -> Result<DeviceStats, Refusal> {
        let found = self.node.device_timing(name, reset)?;
        Ok(DeviceStats {
            device: name.into(),
            core: found.core,
            poll: found.polls,
            core_busy_pct: found.busy_pct,
            core_wait_s: found.waited.map(|w| w.as_secs_f64()),
            timing: found.summary.map(Into::into),
            completion_error: found.lateness.map(|l| CompletionError::new(&l, found.now)),
            flash: found.flash.map(FlashStatus::from),
        })
    }

    fn set_device(&self, name: &str, patch: &DevicePatch) -> Result<DeviceStatus, Refusal> {
        let ana = patch.ana.clone();
        let change = DeviceChange {
            arbitration: &|now| patch.apply(now),
            capacity: patch.capacity_bytes.map(Bytes),
            ana: ana.map(|ana| AnaChange { state: ana.state.into(), host: ana.host, port: ana.port }),
            spare_percent: patch.spare_percent,
            force: patch.force,
        };
        self.node.set_device(name, change).map(Into::into)
    }

    fn power_cut(&self, name: &str) -> Result<PowerCutStatus, Refusal> {
        let cut = self.node.power_cut(name)?;
        Ok(PowerCutStatus {
            name: name.into(),
            lost_units: cut.lost_units,
            lost_writes: cut.lost_writes,
            pages_read: cut.pages_read,
            rebuild_ns: cut.rebuild.get(),
            power_cycles: cut.power_cycles,
            unsafe_shutdowns: cut.unsafe_shutdowns,
        })
    }

    fn faults(&self, device: &str) -> Result<Vec<FaultStatus>, Refusal> {
        let found = self.node.faults(device)?;
        Ok(found.iter().map(|fault| FaultStatus::new(device, fault)).collect())
    }

    fn add_fault(&self, device: &str, fault: &FaultAdd) -> Result<FaultStatus, Refusal> {
        let made = self.node.add_fault(device, fault.rule().map_err(Refusal::Invalid)?)?;
        Ok(FaultStatus::new(device, &made))
    }

    fn remove_fault(&self, device: &str, id: u32) -> Result<FaultStatus, Refusal> {
        Ok(FaultStatus::new(device, &self.node.remove_fault(device, id)?))
    }

    fn set_tenant(&self, name: &str, patch: &TenantPatch) -> Result<TenantStatus, Refusal> {
        let TenantPatch { floor, ceiling, sla, weight, force, .. } = patch;
        let changes = Changes { floor: floor.as_ref(), ceiling: ceiling.as_ref(), sla: sla.as_ref() };
        let promises = |before: Promises| changes.apply(before);
        let change = TenantChange {
            class: patch.class().map_err(Refusal::Invalid)?,
            weight: *weight,
            promises: if changes.is_none() { None } else { Some(&promises) },
            force: *force,
        };
        self.node.set_tenant(name, &change).map(Into::into)
    }

    fn add_tenant(&self, tenant: &TenantAdd) -> Result<TenantStatus, Refusal> {
        let TenantAdd { name, hosts, class, weight, floor, ceiling, sla, force } = tenant;
        let changes = Changes { floor: floor.as_ref(), ceiling: ceiling.as_ref(), sla: sla.as_ref() };
        let class = class.as_deref().map_or(Ok(Class::Medium), str::parse);
        let class = class.map_err(|()| Refusal::Invalid("class: urgent, high, medium or low is allowed".into()))?;
        let promises = |before: Promises| changes.apply(before);
        let weight = weight.unwrap_or(1);
        let new = NewTenant { name, hosts, class, weight, promises: &promises, force: *force };
        self.node.add_tenant(&new).map(Into::into)
    }

    fn remove_tenant(&self, name: &str) -> Result<TenantStatus, Refusal> {
        self.node.remove_tenant(name).map(Into::into)
    }

    fn add_export(&self, export: &ExportAdd) -> Result<ExportStatus, Refusal> {
        let ExportAdd { device, socket, tenant, class_from, doorbells, force } = export.clone();
        let class_from = class_from.unwrap_or(ClassFrom::Tenant);
        let new = NewExport { device, socket, tenant, class_from, doorbells: doorbells.unwrap_or_default(), force };
        self.node.add_export(&new).map(Into::into)
    }

    fn remove_export(&self, socket: &str) -> Result<ExportStatus, Refusal> {
        self.node.remove_export(socket).map(Into::into)
    }

    fn pools(&self) -> Result<Vec<PoolStatus>, Refusal> {
        self.node.pools().map(all)
    }

    fn add_pool_drive(&self, pool: &str, drive: &PoolDriveAdd) -> Result<PoolStatus, Refusal> {
        self.node.join_pool(pool, &drive.device).map(Into::into)
    }

    fn remove_pool_drive(&self, pool: &str, device: &str) -> Result<PoolStatus, Refusal> {
        self.node.leave_pool(pool, device).map(Into::into)
    }

    fn take_out_pool_drive(&self, pool: &str, device: &str) -> Result<PoolStatus, Refusal> {
        self.node.take_out_of_pool(pool, device).map(Into::into)
    }

    fn bring_back_pool_drive(&self, pool: &str, device: &str) -> Result<PoolStatus, Refusal> {
        self.node.bring_back_to_pool(pool, device).map(Into::into)
    }

    fn replace_pool_drive(&self, pool: &str, replace: &PoolDriveReplace) -> Result<PoolStatus, Refusal> {
        self.node.replace_in_pool(pool, &replace.lost, &replace.device).map(Into::into)
    }

    fn scrub_pool(&self, pool: &str, scrub: &PoolScrub) -> Result<PoolStatus, Refusal> {
        self.node.scrub_pool(pool, scrub.repair).map(Into::into)
    }

    fn stop_scrub(&self, pool: &str) -> Result<PoolStatus, Refusal> {
        self.node.stop_scrub(pool).map(Into::into)
    }

    fn empty_volume(&self, name: &str) -> Result<VolumeStatus, Refusal> {
        self.node.empty_volume(name).map(Into::into)
    }

    fn volumes(&self) -> Result<Vec<VolumeStatus>, Refusal> {
        self.node.volumes().map(all)
    }

    fn volume(&self, name: &str) -> Result<VolumeStatus, Refusal> {
        self.node.volume(name).map(Into::into)
    }

    fn volume_contents(&self, name: &str, from: u64) -> Result<VolumeContents, Refusal> {
        self.node.volume_contents(name, from).map(Into::into)
    }

    fn add_volume(&self, volume: &VolumeAdd) -> Result<VolumeStatus, Refusal> {
        let VolumeAdd { name, tenant, size_bytes, pool, copies } = volume.clone();
        self.node.create_volume(&NewVolume { name, tenant, size: Bytes(size_bytes), pool, copies }).map(Into::into)
    }

    fn set_volume(&self, name: &str, patch: &VolumePatch) -> Result<VolumeStatus, Refusal> {
        let VolumePatch { size_bytes, shrink, name: to } = patch.clone();
        let change = VolumeChange { size: size_bytes.map(Bytes), shrink, name: to };
        self.node.change_volume(name, &change).map(Into::into)
    }

    fn remove_volume(&self, name: &str) -> Result<VolumeStatus, Refusal> {
        self.node.delete_volume(name).map(Into::into)
    }

    fn add_snapshot(&self, volume: &str, snapshot: &VolumeSnapshotAdd) -> Result<VolumeStatus, Refusal> {
        self.node.snapshot_volume(volume, &snapshot.name).map(Into::into)
    }

    fn add_clone(&self, snapshot: &str, clone: &VolumeClone) -> Result<VolumeStatus, Refusal> {
        self.node.clone_snapshot(snapshot, &clone.name, clone.tenant.as_deref()).map(Into::into)
    }

    fn roll_back(&self, snapshot: &str) -> Result<VolumeStatus, Refusal> {
        self.node.roll_back(snapshot).map(Into::into)
    }

    fn add_volume_export(&self, name: &str, export: &VolumeExport) -> Result<VolumeStatus, Refusal> {
        let image = export.image.map(|image| match image {
            ImageAccess::Read => ImageUse::Read,
            ImageAccess::Write => ImageUse::Write,
        });
        self.node.export_volume(name, &export.door, (export.max_controllers, image)).map(Into::into)
    }

    fn events(&self, after: u64) -> Vec<NodeEvent> {
        self.node.event_log().after(after)
    }

    fn last_event(&self) -> u64 {
        self.node.event_log().last()
    }

    fn on_event(&self, listener: Listener) {
        self.node.event_log().listen(listener);
    }

    fn generation(&self) -> u64 {
        self.node.generation()
    }

    fn may_inject(&self) -> bool {
        self.node.has_faults()
    }

    fn device_board(&self, name: &str) -> Result<DriveBoardStatus, Refusal> {
        let faults = Control::faults(self, name)?;
        Ok(DriveBoardStatus::new(name, &self.node.drive_board(name)?, faults))
    }

    fn plan_device(&self, name: &str, asked: &PlanAsked) -> Result<PlanStatus, Refusal> {
        asked.ask(name, |change| self.node.expected(name, change))
    }

    fn store(&self) -> Option<&StoreControl> {
        self.store.as_ref()
    }

    fn upgrade_status(&self) -> UpgradeStatus {
        self.node.upgrade_status()
    }

    fn upgrade(&self, start: &UpgradeStart) -> Result<UpgradeStatus, Refusal> {
        self.node.upgrade(start)
    }

    fn shutdown(&self) {
        self.node.shutdown();
    }
}

fn all<S, T: From<S>>(found: Vec<S>) -> Vec<T> {
    found.into_iter().map(Into::into).collect()
}

impl From<NodeSnapshot> for Status {
    fn from(node: NodeSnapshot) -> Self {
        let NodeSnapshot { config, pid, worker, is_draining, uptime, start, shards, door, devices, tenants, exports } =
            node;
        let step = |(name, time): (&'static str, std::time::Duration)| StartStep {
            name: name.to_owned(),
            ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        };
        Status {
            node: config.node.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            pid,
            worker_pid: Some(worker),
            state: if is_draining { State::Draining } else { State::Serving },
            uptime_s: uptime.as_secs_f64(),
            start: start.into_iter().map(step).collect(),
            api: config.node.api.iter().map(Address::to_string).collect(),
            shards: all(shards),
            doors: door.into_iter().map(Into::into).collect(),
            devices: all(devices),
            tenants: all(tenants),
            exports: all(exports),
        }
    }
}

impl From<ShardSnapshot> for ShardStatus {
    fn from(shard: ShardSnapshot) -> Self {
        let ShardSnapshot { core, polls, cpu_s, busy_pct } = shard;
        ShardStatus { core, poll: polls, cpu_s, busy_pct }
    }
}

impl From<DoorSnapshot> for DoorStatus {
    fn from(door: DoorSnapshot) -> Self {
        let DoorSnapshot { listening, connections, unconnected, pushed_out, refused } = door;
        let listen = listening.iter().map(ToString::to_string).collect();
        DoorStatus { kind: "nvme-tcp".into(), listen, connections, unconnected, pushed_out, refused }
    }
}

impl From<&Work> for Counters {
    fn from(work: &Work) -> Self {
        Counters {
            reads: work.reads,
            writes: work.writes,
            others: work.others,
            read_bytes: work.read_bytes,
            written_bytes: work.write_bytes,
            errors: work.errors,
        }
    }
}

impl From<DeviceSnapshot> for DeviceStatus {
    fn from(found: DeviceSnapshot) -> Self {
        let device = found.device();
        DeviceStatus {
            name: device.name.clone(),
            nqn: device.nqn.clone(),
            serial: device.serial.clone(),
            media: device.media.to_string(),
            interface: device.interface().into(),
            profile: device.profile(),
            capacity_bytes: found.capacity.get(),
            block_size: found.block_size,
            latency_ns: device.latency.get(),
            slots: found.stats.slots,
            slots_busy: found.stats.slots_used,
            slot_time_ns: found.slot_time.get(),
            slot_bytes: device.slot_bytes.get(),
            arbitration: device.arbitration,
            cost: device.cost,
            core: found.core,
            controllers: found.controllers.len() as u32,
            queues: found.controllers.iter().map(|c| c.queues.len() as u32).sum(),
            io: (&found.stats.work).into(),
            fault: found.fault.clone(),
            health: Some(found.health.clone().into()),
            link: found.link.clone().map(link),
            timing: found.timing.map(Into::into),
            flash: found.flash.clone().map(FlashStatus::from),
            clients: found.controllers.iter().map(|c| client(&found, c)).collect(),
        }
    }
}

fn link(found: RemoteStatus) -> LinkStatus {
    let RemoteStatus { link, held, health: _ } = found;
    LinkStatus {
        state: link.state.word().into(),
        failing: link.is_failing,
        out_s: link.out_for.map(Nanos::as_secs_f64),
        attempts: link.attempts,
        outages: link.outages,
        held: held as u64,
        last_cause: link.last_cause,
    }
}

fn client(device: &DeviceSnapshot, c: &ControllerInfo) -> ClientStatus {
    let mut classes: Vec<Class> = c.queues.iter().map(|q| q.class).collect();
    classes.sort_unstable();
    classes.dedup();
    ClientStatus {
        host: c.host.clone(),
        tenant: device.config.tenants.get(usize::from(c.tenant)).map(|t| t.name.clone()).unwrap_or_default(),
        controller: c.id,
        ready: c.ready,
        ana: c.ana.into(),
        queues: c.queues.len() as u32,
        classes: classes.iter().map(ToString::to_string).collect(),
    }
}

fn buckets(of: &LatencyCounts) -> Vec<LatencyBucket> {
    let bound = |at: usize| LATENCY_BOUNDS.get(at).copied().map(Nanos::get);
    let over = |at: usize| at.checked_sub(1).and_then(bound).unwrap_or_default();
    let bucket =
        |(at, commands): (usize, &u64)| LatencyBucket { over_ns: over(at), up_to_ns: bound(at), commands: *commands };
    of.counts.iter().enumerate().filter(|(_, commands)| **commands > 0).map(bucket).collect()
}

impl From<TenantSnapshot> for TenantStatus {
    fn from(tenant: TenantSnapshot) -> Self {
        let attainment = tenant.attained.iter().map(|(device, a, now)| AttainmentStatus::new(device, a, *now));
        TenantStatus {
            class: tenant.class.to_string(),
            urgent: tenant.urgent,
            weight: tenant.weight,
            floor: FloorStatus::of(&tenant.floor),
            ceiling: CeilingStatus::of(&tenant.ceiling),
            sla: SlaStatus::of(&tenant.sla),
            attainment: attainment.collect(),
            controllers: tenant.controllers,
            queues: tenant.queues,
            connections: tenant.connections,
            io: (&tenant.work).into(),
            name: tenant.name,
            hosts: tenant.hosts,
            admission: tenant.admission,
            at_ceiling: tenant.at_ceiling,
            latency: buckets(&tenant.latencies),
        }
    }
}

impl From<ExportSnapshot> for ExportStatus {
    fn from(export: ExportSnapshot) -> Self {
        ExportStatus {
            device: export.device,
            volume: export.volume,
            door: export.door.into(),
            addresses: export.addresses,
            tenant: export.tenant,
            class_from: export.class_from,
            queues: export.queues,
            read_only: export.read_only,
            clients: export.clients,
            recovered: export.recovered.as_ref().map(Into::into),
        }
    }
}

impl From<PoolSnapshot> for PoolStatus {
    fn from(pool: PoolSnapshot) -> Self {
        let sum = |of: fn(&PoolMember) -> Bytes| pool.drives.iter().map(|d| of(d).get()).sum();
        PoolStatus {
            size_bytes: sum(|d| d.size),
            free_bytes: sum(|d| d.free),
            name: pool.name,
            uuid: pool.uuid,
            volumes: pool.volumes,
            fault: pool.fault,
            lost: all(pool.lost),
            scrub: pool.scrub.map(Into::into),
            drives: all(pool.drives),
        }
    }
}

impl From<ScrubSnapshot> for ScrubStatus {
    fn from(scrub: ScrubSnapshot) -> Self {
        let ScrubSnapshot { running, repair, compared, differing, failed } = scrub;
        let (compared_bytes, differing_bytes, failed_bytes) = (compared.get(), differing.get(), failed.get());
        ScrubStatus { running, repair, compared_bytes, differing_bytes, failed_bytes }
    }
}

impl From<LostDrive> for LostPoolDrive {
    fn from(drive: LostDrive) -> Self {
        let LostDrive { number, uuid, size, name } = drive;
        LostPoolDrive { number, uuid, size_bytes: size.get(), device: name }
    }
}

impl From<PoolMember> for PoolDrive {
    fn from(drive: PoolMember) -> Self {
        PoolDrive {
            device: drive.device,
            number: drive.number,
            uuid: drive.uuid,
            size_bytes: drive.size.get(),
            free_bytes: drive.free.get(),
            emptying_bytes: drive.emptying.get(),
            largest_free_bytes: drive.largest_free.get(),
        }
    }
}

impl From<weir_node::VolumeContents> for VolumeContents {
    fn from(found: weir_node::VolumeContents) -> Self {
        let range =
            |range: &weir_node::DataRange| DataRange { offset_bytes: range.offset.get(), size_bytes: range.len.get() };
        VolumeContents { ranges: found.ranges.iter().map(range).collect(), next_bytes: found.next.map(Bytes::get) }
    }
}

impl From<VolumeSnapshot> for VolumeStatus {
    fn from(volume: VolumeSnapshot) -> Self {
        VolumeStatus {
            name: volume.name,
            uuid: volume.uuid,
            tenant: volume.tenant,
            pool: volume.pool,
            size_bytes: volume.size.get(),
            drives: volume.drives,
            extents: volume.extents,
            missing_bytes: volume.missing.get(),
            replaced_bytes: volume.replaced.get(),
            copies: volume.copies,
            alone_bytes: volume.alone.get(),
            rebuilding_bytes: volume.rebuilding.get(),
            snapshot_of: volume.snapshot_of,
            own_bytes: volume.own.get(),
            nqn: volume.nqn,
            exports: volume.exports,
        }
    }
}
