//! The node as its API sees it: questions and changes become calls into the shards' mailboxes.
// tidy: long because every call of the API is here, most of them a few lines

mod admit;
mod doors;
mod exports;
mod kept;
mod upgrade;
mod volumes;

pub use kept::CONFIG;
pub(crate) use kept::introduce;
pub use upgrade::layouts;

use crate::access;
use crate::api::{
    AttainmentStatus, CeilingStatus, ClientStatus, CompletionError, Control, Counters, DevicePatch, DeviceStats,
    DeviceStatus, ExportAdd, ExportStatus, FloorStatus, PoolDriveAdd, PoolStatus, PowerCutStatus, Promises, Refusal,
    ShardStatus, SlaStatus, StartStep, State, Status, TenantAdd, TenantPatch, TenantStatus, UpgradeStart,
    UpgradeStatus, VolumeAdd, VolumeExport, VolumePatch, VolumeStatus,
};
use crate::door::nvme_tcp;
use crate::lateness::Summary;
use crate::node::{Node, place};
use crate::pool::volumes::Volumes;
use crate::shard::ShardHandle;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, mpsc};
use std::time::Instant;
use weir_config::{Address, Arbitration, Config, DoorConfig, ExportConfig, TenantConfig};
use weir_controller::{Attainment, ControllerInfo, DriveStats, Subsystem, Work};
use weir_drive::FlashFigures;
use weir_sys::keep::Keep;
use weir_units::{Class, Nanos};

/// See the [module](self).
pub struct NodeControl {
    /// As it is now: tenants come and go while the node runs.
    config: RwLock<Arc<Config>>,
    shards: Vec<ShardHandle>,
    listening: Vec<SocketAddr>,
    started: Instant,
    start: Vec<StartStep>,
    draining: AtomicBool,
    on_shutdown: Box<dyn Fn() + Send + Sync>,
    /// As it is now, so that a change is made from the present state.
    arbitration: Mutex<Vec<Arbitration>>,
    volumes: Arc<Volumes>,
    /// What admission says of the tenants since the last change.
    said: Mutex<admit::Said>,
    keep: Keep,
    /// As the keeper has said last.
    upgrade: Mutex<UpgradeStatus>,
}

/// Tenants keep their places when they have gone.
const MOST_TENANTS: usize = 4096;

/// One drive at one moment.
struct Snapshot {
    stats: DriveStats,
    controllers: Vec<ControllerInfo>,
    capacity: u64,
    block_size: u32,
    fault: Option<String>,
    timing: Option<Summary>,
    flash: Option<FlashFigures>,
    now: Nanos,
    /// How each tenant's promise is kept, where there is one.
    attained: Vec<Option<Attainment>>,
}

/// CPU time of the calling thread.
fn cpu_seconds() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

fn step(name: &str, time: std::time::Duration) -> StartStep {
    StartStep { name: name.to_owned(), ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) }
}

fn gone() -> Refusal {
    Refusal::Unavailable("the node is stopping".into())
}

fn counters(work: &Work) -> Counters {
    Counters {
        reads: work.reads,
        writes: work.writes,
        others: work.others,
        read_bytes: work.read_bytes,
        written_bytes: work.write_bytes,
        errors: work.errors,
    }
}

impl NodeControl {
    /// The control of a node that serves; `on_shutdown` is called once, when it is asked to end.
    pub fn new(node: &Node, on_shutdown: Box<dyn Fn() + Send + Sync>) -> Self {
        let (config, keep) = (node.config().clone(), node.keep().clone());
        let arbitration = Mutex::new(config.devices.iter().map(|d| d.arbitration).collect());
        let upgrade = keep.upgrade().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        Self {
            upgrade: Mutex::new(upgrade),
            shards: node.shards().to_vec(),
            listening: node.listening().to_vec(),
            started: Instant::now(),
            start: node.steps().iter().map(|(name, time)| step(name, *time)).collect(),
            draining: AtomicBool::new(false),
            on_shutdown,
            keep,
            arbitration,
            volumes: node.volumes().clone(),
            said: Mutex::new(admit::said(&config, &weir_config::admission::of_config(&config))),
            config: RwLock::new(config),
        }
    }

    /// The configuration as it is now.
    fn config(&self) -> Arc<Config> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes it. Whoever does holds `arbitration`: changes come one after the other.
    fn change(&self, how: impl FnOnce(&mut Config)) {
        how(Arc::make_mut(&mut self.config.write().unwrap_or_else(PoisonError::into_inner)));
        self.hold_config();
    }

    /// From now on the status says that the node is finishing.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Waits for a change that is being made: what was acknowledged is held for the next worker then. No other one is begun before what is
    /// returned is dropped; later ones find no shards.
    pub fn settle(&self) -> MutexGuard<'_, Vec<Arbitration>> {
        self.arbitration.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device_index(&self, name: &str) -> Result<usize, Refusal> {
        let found = self.config().devices.iter().position(|d| d.name == name);
        let names = || self.config().devices.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| Refusal::NotFound(format!("there is no device \"{name}\"; there is {}", names())))
    }

    fn snapshot(&self, device: usize) -> Result<Snapshot, Refusal> {
        let place = place(device, self.shards.len());
        let look = move |shard: &mut crate::shard::Shard| {
            let now = shard.reactor.now();
            let device = shard.drives.device_mut(place.drive);
            let tenants = device.machine().config().tenants.len() as u16;
            let attained = (0..tenants).map(|t| device.machine_mut().attainment(now, t)).collect();
            Snapshot {
                now,
                attained,
                timing: device.deadlines().summary(now),
                flash: device.flash().map(|f| f.figures(now)),
                stats: device.machine().stats(),
                controllers: device.machine().controllers(),
                capacity: device.capacity(),
                block_size: device.block_size(),
                fault: device.fault(),
            }
        };
        self.shards[place.shard as usize].call(look).ok_or_else(gone)
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>, Refusal> {
        (0..self.config().devices.len()).map(|i| self.snapshot(i)).collect()
    }

    fn device_status(&self, index: usize, s: &Snapshot) -> DeviceStatus {
        let device = &self.config().devices[index];
        let place = place(index, self.shards.len());
        let arbitration = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner)[index];
        DeviceStatus {
            name: device.name.clone(),
            nqn: device.nqn.clone(),
            serial: device.serial.clone(),
            media: device.media.to_string(),
            interface: device.interface().into(),
            profile: device.profile(),
            capacity_bytes: s.capacity,
            block_size: s.block_size,
            latency_ns: device.latency.get(),
            slots: s.stats.slots,
            slots_busy: s.stats.slots_used,
            slot_bytes: device.slot_bytes.get(),
            arbitration,
            cost: device.cost,
            core: self.config().node.cores[place.shard as usize],
            controllers: s.controllers.len() as u32,
            queues: s.controllers.iter().map(|c| c.queues.len() as u32).sum(),
            io: counters(&s.stats.work),
            fault: s.fault.clone(),
            timing: s.timing.map(Into::into),
            flash: s.flash.clone().map(Into::into),
            clients: s.controllers.iter().map(|c| self.client_status(c)).collect(),
        }
    }

    fn client_status(&self, c: &ControllerInfo) -> ClientStatus {
        let mut classes: Vec<Class> = c.queues.iter().map(|q| q.class).collect();
        classes.sort_unstable();
        classes.dedup();
        ClientStatus {
            host: c.host.clone(),
            tenant: self.config().tenants.get(usize::from(c.tenant)).map(|t| t.name.clone()).unwrap_or_default(),
            controller: c.id,
            ready: c.ready,
            ana: c.ana.into(),
            queues: c.queues.len() as u32,
            classes: classes.iter().map(ToString::to_string).collect(),
        }
    }

    /// A tenant's promises with the patch applied; `None` where it changes none. They are alike on all drives.
    fn promises(&self, index: usize, patch: &TenantPatch) -> Result<Option<Promises>, Refusal> {
        if patch.floor.is_none() && patch.ceiling.is_none() && patch.sla.is_none() {
            return Ok(None);
        }
        let place = place(0, self.shards.len());
        let look = move |s: &mut crate::shard::Shard| {
            let t = &s.drives.get(place.drive).config().tenants[index];
            Promises { floor: t.floor, ceiling: t.ceiling, sla: t.sla }
        };
        let before = self.shards[place.shard as usize].call(look).ok_or_else(gone)?;
        let after = before.changed(patch.floor.as_ref(), patch.ceiling.as_ref(), patch.sla.as_ref());
        after.map(Some).map_err(Refusal::Invalid)
    }

    fn tenant_status(&self, index: usize, snapshots: &[Snapshot]) -> TenantStatus {
        let tenant = &self.config().tenants[index];
        let mut status = TenantStatus {
            name: tenant.name.clone(),
            class: tenant.class.to_string(),
            urgent: tenant.urgent,
            weight: tenant.weight,
            floor: FloorStatus::of(&tenant.floor),
            ceiling: CeilingStatus::of(&tenant.ceiling),
            sla: SlaStatus::of(&tenant.sla),
            attainment: Vec::new(),
            hosts: tenant.hosts.clone(),
            controllers: 0,
            queues: 0,
            connections: self.connections_of(index),
            admission: self.said_of(index),
            io: Counters::default(),
        };
        if tenant.any_host {
            status.hosts.push("*".into());
        }
        for (device, s) in self.config().devices.iter().zip(snapshots) {
            let Some(t) = s.stats.tenants.get(index) else { continue };
            status.floor = FloorStatus::of(&t.floor);
            status.ceiling = CeilingStatus::of(&t.ceiling);
            status.sla = SlaStatus::of(&t.sla);
            let attained = s.attained.get(index).and_then(Option::as_ref);
            status.attainment.extend(attained.map(|a| AttainmentStatus::new(&device.name, a, s.now)));
            status.class = t.class.to_string();
            status.weight = t.weight;
            status.controllers += t.controllers;
            status.queues += t.queues;
            status.io.add(&counters(&t.work));
        }
        status
    }

    fn tenant_statuses(&self, snapshots: &[Snapshot]) -> Vec<TenantStatus> {
        let config = self.config();
        let there = (0..config.tenants.len()).filter(|i| !config.tenants[*i].is_gone());
        there.map(|i| self.tenant_status(i, snapshots)).collect()
    }

    fn tenant_index(&self, name: &str) -> Result<usize, Refusal> {
        let config = self.config();
        let found = config.tenants.iter().position(|t| t.name == name && !t.is_gone());
        found.ok_or_else(|| {
            let names: Vec<&str> = config.tenants.iter().filter(|t| !t.is_gone()).map(|t| t.name.as_str()).collect();
            Refusal::NotFound(format!("there is no tenant \"{name}\"; there is {}", names.join(", ")))
        })
    }

    /// Does something to every drive, in their order.
    fn on_drives(
        &self,
        what: impl Fn(&mut Subsystem, Nanos) -> Result<(), weir_controller::Error> + Clone + Send + 'static,
    ) -> Result<(), Refusal> {
        for device in 0..self.config().devices.len() {
            let (place, what) = (place(device, self.shards.len()), what.clone());
            let change = move |s: &mut crate::shard::Shard| {
                let now = s.reactor.now();
                what(s.drives.get(place.drive), now)
            };
            let answer = self.shards[place.shard as usize].call(change).ok_or_else(gone)?;
            answer.map_err(|e| Refusal::Invalid(e.to_string()))?;
        }
        Ok(())
    }

    /// Does something to every shard's NVMe/TCP door.
    fn on_doors(&self, what: impl Fn(&mut nvme_tcp::Door) + Clone + Send + 'static) -> Result<(), Refusal> {
        for shard in &self.shards {
            let what = what.clone();
            shard.call(move |s| what(&mut s.doors.nvme_tcp)).ok_or_else(gone)?;
        }
        Ok(())
    }

    fn export_statuses(&self, snapshots: &[Snapshot]) -> Result<Vec<ExportStatus>, Refusal> {
        let sockets = self.clients()?;
        let mut recoveries = Vec::new();
        for shard in &self.shards {
            recoveries.extend(shard.call(|s| s.doors.vhost_user.recoveries()).ok_or_else(gone)?);
        }
        let recovered = |e: &ExportConfig| {
            let (path, _) = e.door.socket()?;
            let (_, found) = recoveries.iter().find(|(p, found)| p == path && found.queues != 0)?;
            Some(found.into())
        };
        let status = |e: &ExportConfig| {
            let (door, addresses, tenant, clients) = match &e.door {
                DoorConfig::NvmeTcp => {
                    let addresses = self.listening.iter().map(SocketAddr::to_string).collect();
                    let fronts = sockets.iter().map(|(p, n)| self.controllers_at(p, *n, e.device)).sum::<u32>();
                    let all = snapshots[e.device].controllers.len() as u32;
                    ("nvme-tcp", addresses, None, all.saturating_sub(fronts))
                }
                DoorConfig::VhostUser { path, tenant } | DoorConfig::VfioUser { path, tenant, .. } => {
                    let clients = sockets.iter().find(|(p, _)| p == path).map_or(0, |(_, n)| *n);
                    let tenant = Some(self.config().tenants[*tenant].name.clone());
                    (e.door.kind(), vec![path.display().to_string()], tenant, clients)
                }
            };
            ExportStatus {
                device: self.config().devices[e.device].name.clone(),
                volume: None,
                door: door.into(),
                addresses,
                tenant,
                class_from: e.class_from,
                queues: e.queues,
                read_only: e.read_only,
                clients,
                recovered: recovered(e),
            }
        };
        let mut all: Vec<ExportStatus> = self.config().exports.iter().map(status).collect();
        all.extend(self.volumes.export_statuses()?);
        Ok(all)
    }

    /// Controllers that a socket with so many clients has of a device: one a front end, and one for a PCIe drive in any case.
    fn controllers_at(&self, socket: &std::path::Path, clients: u32, device: usize) -> u32 {
        let is = |e: &&ExportConfig| e.device == device && e.door.socket().is_some_and(|(path, _)| path == socket);
        match self.config().exports.iter().find(is).map(|e| &e.door) {
            Some(DoorConfig::VhostUser { .. }) => clients,
            Some(DoorConfig::VfioUser { .. }) => 1,
            _ => 0,
        }
    }
}

impl Control for NodeControl {
    fn status(&self) -> Result<Status, Refusal> {
        let snapshots = self.snapshots()?;
        let state = if self.draining.load(Ordering::Relaxed) { State::Draining } else { State::Serving };
        let mut shards = Vec::new();
        for (shard, core) in self.shards.iter().zip(&self.config().node.cores) {
            let (cpu_s, busy_pct) = shard.call(|s| (cpu_seconds(), s.load().0)).ok_or_else(gone)?;
            shards.push(ShardStatus { core: *core, poll: self.config().node.poll, cpu_s, busy_pct });
        }
        let door = self.tcp_status()?;
        Ok(Status {
            node: self.config().node.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            pid: self.keep.node(),
            state,
            uptime_s: self.started.elapsed().as_secs_f64(),
            start: self.start.clone(),
            api: self.config().node.api.iter().map(Address::to_string).collect(),
            shards,
            doors: if self.listening.is_empty() { Vec::new() } else { vec![door] },
            devices: snapshots.iter().enumerate().map(|(i, s)| self.device_status(i, s)).collect(),
            tenants: self.tenant_statuses(&snapshots),
            exports: self.export_statuses(&snapshots)?,
        })
    }

    fn devices(&self) -> Result<Vec<DeviceStatus>, Refusal> {
        Ok(self.snapshots()?.iter().enumerate().map(|(i, s)| self.device_status(i, s)).collect())
    }

    fn tenants(&self) -> Result<Vec<TenantStatus>, Refusal> {
        let snapshots = self.snapshots()?;
        Ok(self.tenant_statuses(&snapshots))
    }

    fn exports(&self) -> Result<Vec<ExportStatus>, Refusal> {
        self.export_statuses(&self.snapshots()?)
    }

    fn device_stats(&self, name: &str, reset: bool) -> Result<DeviceStats, Refusal> {
        let index = self.device_index(name)?;
        let place = place(index, self.shards.len());
        let look = move |shard: &mut crate::shard::Shard| {
            let now = shard.reactor.now();
            let device = shard.drives.device_mut(place.drive);
            let flash = device.flash().map(|f| f.figures(now));
            let deadlines = device.deadlines();
            // Copied, and computed with by the asking thread: what takes time here makes completions late.
            let found = (deadlines.summary(now), deadlines.lateness().cloned(), now);
            if reset {
                deadlines.reset(now);
                device.reset_flash(now);
            }
            (found, flash, shard.load())
        };
        let shard = &self.shards[place.shard as usize];
        let ((summary, lateness, now), flash, (busy, waited)) = shard.call(look).ok_or_else(gone)?;
        Ok(DeviceStats {
            device: name.into(),
            core: self.config().node.cores[place.shard as usize],
            poll: self.config().node.poll,
            core_busy_pct: busy,
            core_wait_s: waited.map(|w| w.as_secs_f64()),
            timing: summary.map(Into::into),
            completion_error: lateness.map(|l| CompletionError::new(&l, now)),
            flash: flash.map(Into::into),
        })
    }

    fn set_device(&self, name: &str, patch: &DevicePatch) -> Result<DeviceStatus, Refusal> {
        let index = self.device_index(name)?;
        let place = place(index, self.shards.len());
        {
            // Held over the calls: two patches at once are applied one after the other.
            let mut current = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
            let wanted = patch.apply(current[index]);
            let mut after = current.clone();
            after[index] = wanted;
            let said = self.admit_arbitration(&current, &after, patch.force)?;
            if let Some(bytes) = patch.capacity_bytes {
                if let Some(pool) = self.volumes.pool_of(index) {
                    let what = format!(
                        "capacity_bytes: {name} is a drive of pool {pool}, which knows its size; nothing was changed"
                    );
                    return Err(Refusal::Conflict(what));
                }
                let resize = move |s: &mut crate::shard::Shard| -> Result<(), String> {
                    s.drives.device_mut(place.drive).resize(bytes).map_err(|e| e.to_string())?;
                    s.with_doors(|doors, cx| doors.vhost_user.resized(place.drive, bytes, cx));
                    Ok(())
                };
                let answer = self.shards[place.shard as usize].call(resize).ok_or_else(gone)?;
                answer.map_err(|e| Refusal::Invalid(format!("capacity_bytes: {e}")))?;
            }
            let (ana, spare) = (patch.ana.clone(), patch.spare_percent);
            let keep = self.keep.clone();
            let change = move |s: &mut crate::shard::Shard| {
                let drive = s.drives.get(place.drive);
                if let Some(ana) = ana {
                    drive.set_ana(ana.scope(), ana.state.into());
                    access::hold(&keep, &drive.config().subnqn, &access::text(drive));
                }
                spare.into_iter().for_each(|percent| drive.set_spare(percent));
                drive.set_arbitration(wanted.into())
            };
            let answer = self.shards[place.shard as usize].call(change).ok_or_else(gone)?;
            answer.map_err(|e| Refusal::Invalid(e.to_string()))?;
            current[index] = wanted;
            self.change(|config| config.devices[index].arbitration = wanted);
            self.remember(said);
        }
        Ok(self.device_status(index, &self.snapshot(index)?))
    }

    fn power_cut(&self, name: &str) -> Result<PowerCutStatus, Refusal> {
        let index = self.config().devices.iter().position(|d| d.name == name);
        let index = index.ok_or_else(|| Refusal::NotFound(format!("there is no device \"{name}\"")))?;
        let place = place(index, self.shards.len());
        let (reply, answer) = mpsc::sync_channel(1);
        self.shards[place.shard as usize].post(move |s| s.power_cut(place.drive, reply));
        let cut = answer.recv().map_err(|_| gone())?;
        let cut = cut.map_err(|why| Refusal::Conflict(format!("device \"{name}\": {why}")))?;
        Ok(PowerCutStatus {
            name: name.into(),
            lost_units: cut.lost_units,
            lost_writes: cut.lost_writes,
            pages_read: cut.pages_read,
            rebuild_ns: cut.rebuild.0,
            power_cycles: cut.power_cycles,
            unsafe_shutdowns: cut.unsafe_shutdowns,
        })
    }

    fn set_tenant(&self, name: &str, patch: &TenantPatch) -> Result<TenantStatus, Refusal> {
        let index = self.tenant_index(name)?;
        let class = patch.class().map_err(Refusal::Invalid)?;
        let urgent = self.config().tenants[index].urgent;
        if class == Some(Class::Urgent) && !urgent {
            let why = format!("tenant \"{name}\" may not be urgent; write urgent = true in its [[tenant]]");
            return Err(Refusal::Conflict(why));
        }
        let weight = patch.weight;
        // Held over the calls: two patches at once are applied one after the other.
        let turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let promises = self.promises(index, patch)?;
        let changed = |t: &mut TenantConfig| {
            (t.class, t.weight) = (class.unwrap_or(t.class), weight.unwrap_or(t.weight));
            if let Some(Promises { floor, ceiling, sla }) = promises {
                (t.floor, t.ceiling, t.sla) = (floor, ceiling, sla);
            }
        };
        let said = self.admit_tenant(&turn, (index, changed), patch.force)?;
        self.on_drives(move |machine, at| {
            let now = &machine.config().tenants[index];
            let (class, weight) = (class.unwrap_or(now.class), weight.unwrap_or(now.weight));
            machine.set_tenant(index as u16, class, urgent, weight)?;
            match promises {
                Some(Promises { floor, ceiling, sla }) => machine.set_limits(at, index as u16, floor, ceiling, sla),
                None => Ok(()),
            }
        })?;
        self.change(|config| changed(&mut config.tenants[index]));
        self.remember(said);
        drop(turn);
        // Whoever forces a change wants to know what it breaks, whosoever that is.
        let admission = if patch.force { self.said_of_all() } else { self.said_of(index) };
        Ok(TenantStatus { admission, ..self.tenant_status(index, &self.snapshots()?) })
    }

    fn add_tenant(&self, tenant: &TenantAdd) -> Result<TenantStatus, Refusal> {
        // Held over the calls: changes come one after the other.
        let turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let config = self.config();
        if config.tenants.len() >= MOST_TENANTS {
            return Err(Refusal::Conflict(format!("a node has {MOST_TENANTS} tenants at the most in its life")));
        }
        let class = tenant.class.as_deref().map_or(Ok(Class::Medium), str::parse);
        let class = class.map_err(|()| Refusal::Invalid("class: urgent, high, medium or low is allowed".into()))?;
        let mut joins =
            TenantConfig::joining(&tenant.name, class, &tenant.hosts, &config.tenants).map_err(Refusal::Invalid)?;
        let TenantAdd { floor, ceiling, sla, .. } = tenant;
        let promises = Promises::default().changed(floor.as_ref(), ceiling.as_ref(), sla.as_ref());
        let promises = promises.map_err(Refusal::Invalid)?;
        (joins.floor, joins.ceiling, joins.sla) = (promises.floor, promises.ceiling, promises.sla);
        joins.weight = tenant.weight.unwrap_or(1);
        let index = config.tenants.len();
        let said = self.admit_newcomer(&turn, joins.clone(), tenant.force)?;
        // The doors first: a drive may find the tenant's hosts as soon as it knows them.
        let at_doors = joins.clone();
        self.on_doors(move |door| door.add_tenant(&at_doors))?;
        for device in 0..config.devices.len() {
            let (place, class_from) = (place(device, self.shards.len()), weir_drive::class_from(&config, device));
            let machine = weir_drive::machine_tenant(&joins, class_from);
            let add = move |s: &mut crate::shard::Shard| {
                let now = s.reactor.now();
                s.drives.get(place.drive).add_tenant(now, machine)
            };
            let added = self.shards[place.shard as usize].call(add).ok_or_else(gone)?;
            let place = added.map_err(|e| Refusal::Invalid(e.to_string()))?;
            debug_assert_eq!(usize::from(place), index);
        }
        self.change(|config| config.tenants.push(joins));
        self.remember(said);
        drop(turn);
        let admission = if tenant.force { self.said_of_all() } else { self.said_of(index) };
        Ok(TenantStatus { admission, ..self.tenant_status(index, &self.snapshots()?) })
    }

    fn remove_tenant(&self, name: &str) -> Result<TenantStatus, Refusal> {
        let turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let index = self.tenant_index(name)?;
        let config = self.config();
        let exported = |e: &&ExportConfig| e.door.socket().is_some_and(|(_, tenant)| tenant == index);
        if let Some(export) = config.exports.iter().find(exported) {
            return Err(Refusal::Conflict(format!(
                "tenant \"{name}\" has the export {}; nothing was changed",
                export.door
            )));
        }
        if let Some(volume) = self.volumes.of_tenant(name)? {
            let what = format!("tenant \"{name}\" has the volume \"{volume}\"; nothing was changed: delete it first");
            return Err(Refusal::Conflict(what));
        }
        // Nobody new from here on, and then whether somebody is there.
        self.on_drives(move |machine, _| machine.set_hosts(index as u16, Vec::new()))?;
        let before = self.tenant_status(index, &self.snapshots()?);
        if before.controllers > 0 {
            let hosts = before.hosts.clone();
            self.on_drives(move |machine, _| machine.set_hosts(index as u16, hosts.clone()))?;
            let what = format!(
                "tenant \"{name}\" has {} controllers of hosts that are connected; nothing was changed: disconnect them first",
                before.controllers
            );
            return Err(Refusal::Conflict(what));
        }
        self.on_doors(move |door| door.retire_tenant(index))?;
        self.on_drives(move |machine, now| machine.retire_tenant(now, index as u16))?;
        self.change(|config| config.tenants[index].retire());
        drop(turn);
        Ok(before)
    }

    fn add_export(&self, export: &ExportAdd) -> Result<ExportStatus, Refusal> {
        self.open_export(export)
    }

    fn remove_export(&self, socket: &str) -> Result<ExportStatus, Refusal> {
        self.close_export(socket)
    }

    fn pools(&self) -> Result<Vec<PoolStatus>, Refusal> {
        self.pool_statuses()
    }

    fn add_pool_drive(&self, pool: &str, drive: &PoolDriveAdd) -> Result<PoolStatus, Refusal> {
        self.join_pool(pool, &drive.device)
    }

    fn remove_pool_drive(&self, pool: &str, device: &str) -> Result<PoolStatus, Refusal> {
        self.leave_pool(pool, device)
    }

    fn volumes(&self) -> Result<Vec<VolumeStatus>, Refusal> {
        self.volume_statuses()
    }

    fn volume(&self, name: &str) -> Result<VolumeStatus, Refusal> {
        self.volumes.one(&self.config(), name)
    }

    fn add_volume(&self, volume: &VolumeAdd) -> Result<VolumeStatus, Refusal> {
        self.create_volume(volume)
    }

    fn set_volume(&self, name: &str, patch: &VolumePatch) -> Result<VolumeStatus, Refusal> {
        self.change_volume(name, patch)
    }

    fn remove_volume(&self, name: &str) -> Result<VolumeStatus, Refusal> {
        self.delete_volume(name)
    }

    fn add_volume_export(&self, name: &str, export: &VolumeExport) -> Result<VolumeStatus, Refusal> {
        self.export_volume(name, export)
    }

    fn upgrade_status(&self) -> UpgradeStatus {
        self.upgrade_now()
    }

    fn upgrade(&self, start: &UpgradeStart) -> Result<UpgradeStatus, Refusal> {
        self.begin_upgrade(start)
    }

    fn shutdown(&self) {
        if !self.draining.swap(true, Ordering::Relaxed) {
            (self.on_shutdown)();
        }
    }
}
