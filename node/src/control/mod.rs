//! The node as whoever operates it sees it: questions and changes become calls into the shards' mailboxes.

mod admit;
mod board;
mod doors;
mod events;
mod exports;
mod faults;
mod keeper_messages;
mod latencies;
mod upgrade;
mod volumes;
mod watch;

pub use board::{SharesChange, TenantShares};
pub use keeper_messages::CONFIG;
pub(crate) use keeper_messages::introduce;
pub use upgrade::layouts;

use crate::access;
use crate::change::{DeviceChange, NewTenant, TenantChange};
use crate::device::PowerCut;
use crate::directory::place;
use crate::door::nvme_tcp;
use crate::events::EventLog;
use crate::node::Node;
use crate::pool::volumes::Volumes;
use crate::promises::Promises;
use crate::refusal::Refusal;
use crate::shard::ShardHandle;
use crate::snapshot::{DeviceSnapshot, DeviceTiming, ExportSnapshot, NodeSnapshot, ShardSnapshot, TenantSnapshot};
use crate::upgrade::UpgradeStatus;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, mpsc};
use std::time::{Duration, Instant};
use weir_config::{Arbitration, Config, DoorConfig, ExportConfig, TenantConfig};
use weir_controller::{Latencies, LatencyCounts, Subsystem, Work};
use weir_sys::keeper_channel::Keep;
use weir_units::{Bytes, Class, Nanos};

/// See the [module](self).
pub struct NodeControl {
    /// As it is now: tenants come and go while the node runs.
    config: RwLock<Arc<Config>>,
    shards: Vec<ShardHandle>,
    listening: Vec<SocketAddr>,
    started: Instant,
    start: Vec<(&'static str, Duration)>,
    draining: AtomicBool,
    on_shutdown: Box<dyn Fn() + Send + Sync>,
    /// As it is now, so that a change is made from the present state.
    arbitration: Mutex<Vec<Arbitration>>,
    volumes: Arc<Volumes>,
    /// What admission says of the tenants since the last change.
    said: Mutex<admit::Said>,
    keep: Keep,
    events: EventLog,
    /// As the keeper has said last.
    upgrade: Mutex<UpgradeStatus>,
}

/// Tenants keep their places when they have gone.
const MOST_TENANTS: usize = 4096;

/// CPU time of the calling thread.
fn cpu_seconds() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// What another drive has counted as well.
fn add(to: &mut Work, other: &Work) {
    let &Work { reads, writes, others, read_bytes, write_bytes, errors } = other;
    to.reads += reads;
    to.writes += writes;
    to.others += others;
    to.read_bytes += read_bytes;
    to.write_bytes += write_bytes;
    to.errors += errors;
}

fn gone() -> Refusal {
    Refusal::Unavailable("the node is stopping".into())
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
            start: node.steps().to_vec(),
            draining: AtomicBool::new(false),
            on_shutdown,
            keep,
            events: node.events().clone(),
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

    /// The same as TOML, with every key and with what was changed since the start.
    pub fn config_text(&self) -> String {
        self.config().to_toml()
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

    fn snapshot(&self, index: usize) -> Result<DeviceSnapshot, Refusal> {
        let place = place(index, self.shards.len());
        let config = self.config();
        let core = config.node.cores[place.shard as usize];
        let look = move |shard: &mut crate::shard::Shard| {
            let now = shard.reactor.now();
            let device = shard.drives.device_mut(place.drive);
            let tenants = device.machine().config().tenants.len() as u16;
            let attained = (0..tenants).map(|t| device.machine_mut().attainment(now, t)).collect();
            DeviceSnapshot {
                config,
                index,
                core,
                now,
                attained,
                timing: device.deadlines().summary(now),
                flash: device.flash().map(|f| f.figures(now)),
                stats: device.machine().stats(),
                latencies: device.machine().latencies().iter().map(Latencies::all).collect(),
                slot_time: device.machine().service_times().served,
                controllers: device.machine().controllers(),
                capacity: Bytes(device.capacity()),
                block_size: device.block_size(),
                fault: device.fault(),
                link: device.link(now),
                health: device.health(now),
            }
        };
        self.shards[place.shard as usize].call(look).ok_or_else(gone)
    }

    /// All drives, in the order of the configuration.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn devices(&self) -> Result<Vec<DeviceSnapshot>, Refusal> {
        (0..self.config().devices.len()).map(|i| self.snapshot(i)).collect()
    }

    /// A tenant's promises as they will be; `None` where the change is about none. They are alike on all drives.
    fn promises(&self, index: usize, change: &TenantChange<'_>) -> Result<Option<Promises>, Refusal> {
        let Some(changed) = change.promises else { return Ok(None) };
        let place = place(0, self.shards.len());
        let look = move |s: &mut crate::shard::Shard| {
            let t = &s.drives.get(place.drive).config().tenants[index];
            Promises { floor: t.floor, ceiling: t.ceiling, sla: t.sla }
        };
        let before = self.shards[place.shard as usize].call(look).ok_or_else(gone)?;
        changed(before).map(Some).map_err(Refusal::Invalid)
    }

    fn tenant_snapshot(&self, index: usize, devices: &[DeviceSnapshot]) -> TenantSnapshot {
        let tenant = &self.config().tenants[index];
        let mut found = TenantSnapshot {
            name: tenant.name.clone(),
            class: tenant.class,
            urgent: tenant.urgent,
            weight: tenant.weight,
            floor: tenant.floor,
            ceiling: tenant.ceiling,
            sla: tenant.sla,
            attained: Vec::new(),
            hosts: tenant.hosts.clone(),
            controllers: 0,
            queues: 0,
            connections: self.connections_of(index),
            admission: self.said_of(index),
            at_ceiling: false,
            latencies: LatencyCounts::default(),
            work: Work::default(),
        };
        if tenant.any_host {
            found.hosts.push("*".into());
        }
        for device in devices {
            let Some(t) = device.stats.tenants.get(index) else { continue };
            (found.floor, found.ceiling, found.sla) = (t.floor, t.ceiling, t.sla);
            let attained = device.attained.get(index).and_then(Option::as_ref);
            let name = &device.device().name;
            found.attained.extend(attained.map(|a| (name.clone(), *a, device.now)));
            (found.class, found.weight) = (t.class, t.weight);
            found.controllers += t.controllers;
            found.queues += t.queues;
            found.at_ceiling |= t.held;
            found.latencies.merge(&device.latencies[index]);
            add(&mut found.work, &t.work);
        }
        found
    }

    fn tenants_at(&self, devices: &[DeviceSnapshot]) -> Vec<TenantSnapshot> {
        let config = self.config();
        let there = (0..config.tenants.len()).filter(|i| !config.tenants[*i].is_gone());
        there.map(|i| self.tenant_snapshot(i, devices)).collect()
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
        what: impl Fn(&mut Subsystem, Nanos) -> Result<(), weir_controller::ManagementError> + Clone + Send + 'static,
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

    fn exports_at(&self, devices: &[DeviceSnapshot]) -> Result<Vec<ExportSnapshot>, Refusal> {
        let sockets = self.clients()?;
        let mut recoveries = Vec::new();
        for shard in &self.shards {
            recoveries.extend(shard.call(|s| s.doors.vhost_user.recoveries()).ok_or_else(gone)?);
        }
        let recovered = |e: &ExportConfig| {
            let (path, _) = e.door.socket()?;
            let (_, found) = recoveries.iter().find(|(p, found)| p == path && found.queues != 0)?;
            Some(found.clone())
        };
        let status = |e: &ExportConfig| {
            let (door, addresses, tenant, clients) = match &e.door {
                DoorConfig::NvmeTcp => {
                    let addresses = self.listening.iter().map(SocketAddr::to_string).collect();
                    let fronts = sockets.iter().map(|(p, n)| self.controllers_at(p, *n, e.device)).sum::<u32>();
                    let all = devices[e.device].controllers.len() as u32;
                    ("nvme-tcp", addresses, None, all.saturating_sub(fronts))
                }
                DoorConfig::VhostUser { path, tenant } | DoorConfig::VfioUser { path, tenant, .. } => {
                    let clients = sockets.iter().find(|(p, _)| p == path).map_or(0, |(_, n)| *n);
                    let tenant = Some(self.config().tenants[*tenant].name.clone());
                    (e.door.kind(), vec![path.display().to_string()], tenant, clients)
                }
            };
            ExportSnapshot {
                device: self.config().devices[e.device].name.clone(),
                volume: None,
                door,
                addresses,
                tenant,
                class_from: e.class_from,
                queues: e.queues,
                read_only: e.read_only,
                clients,
                recovered: recovered(e),
            }
        };
        let mut all: Vec<ExportSnapshot> = self.config().exports.iter().map(status).collect();
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

    /// Everything at once.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn status(&self) -> Result<NodeSnapshot, Refusal> {
        let devices = self.devices()?;
        let config = self.config();
        let mut shards = Vec::new();
        for (shard, core) in self.shards.iter().zip(&config.node.cores) {
            let (cpu_s, busy_pct) = shard.call(|s| (cpu_seconds(), s.load().0)).ok_or_else(gone)?;
            shards.push(ShardSnapshot { core: *core, polls: config.node.poll, cpu_s, busy_pct });
        }
        let door = self.tcp_snapshot()?;
        Ok(NodeSnapshot {
            pid: self.keep.node(),
            worker: std::process::id(),
            is_draining: self.draining.load(Ordering::Relaxed),
            uptime: self.started.elapsed(),
            start: self.start.clone(),
            shards,
            door: (!self.listening.is_empty()).then_some(door),
            tenants: self.tenants_at(&devices),
            exports: self.exports_at(&devices)?,
            devices,
            config,
        })
    }

    /// All tenants, in the order of the configuration.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn tenants(&self) -> Result<Vec<TenantSnapshot>, Refusal> {
        Ok(self.tenants_at(&self.devices()?))
    }

    /// All exports: of drives in the order of the configuration, then of volumes.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn exports(&self) -> Result<Vec<ExportSnapshot>, Refusal> {
        self.exports_at(&self.devices()?)
    }

    /// How well a drive keeps its modelled times; `reset`: and from now on anew.
    ///
    /// # Errors
    /// There is no such drive.
    pub fn device_timing(&self, name: &str, reset: bool) -> Result<DeviceTiming, Refusal> {
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
        let config = self.config();
        let (core, polls) = (config.node.cores[place.shard as usize], config.node.poll);
        Ok(DeviceTiming { core, polls, busy_pct: busy, waited, summary, lateness, flash, now })
    }

    /// Changes a drive while I/O runs; the numbers are in range.
    ///
    /// # Errors
    /// There is no such drive, it breaks a promise and is not forced, or it does not fit the drive.
    pub fn set_device(&self, name: &str, change: DeviceChange<'_>) -> Result<DeviceSnapshot, Refusal> {
        let index = self.device_index(name)?;
        let place = place(index, self.shards.len());
        {
            // Held over the calls: two patches at once are applied one after the other.
            let mut current = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
            let wanted = (change.arbitration)(current[index]);
            let mut after = current.clone();
            after[index] = wanted;
            let said = self.admit_arbitration(&current, &after, change.force)?;
            if let Some(Bytes(bytes)) = change.capacity {
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
            let (ana, spare) = (change.ana, change.spare_percent);
            let keep = self.keep.clone();
            let set = move |s: &mut crate::shard::Shard| {
                let drive = s.drives.get(place.drive);
                if let Some(ana) = ana {
                    drive.set_ana(ana.scope(), ana.state);
                    access::hold(&keep, &drive.config().subnqn, &access::text(drive));
                }
                spare.into_iter().for_each(|percent| drive.set_spare(percent));
                drive.set_arbitration(wanted.into())
            };
            let answer = self.shards[place.shard as usize].call(set).ok_or_else(gone)?;
            answer.map_err(|e| Refusal::Invalid(e.to_string()))?;
            current[index] = wanted;
            self.change(|config| config.devices[index].arbitration = wanted);
            self.remember(said);
        }
        self.snapshot(index)
    }

    /// Cuts a drive's power and brings it back: controllers die, what was written and not flushed may be gone.
    ///
    /// # Errors
    /// There is no such drive, or it cannot be cut.
    pub fn power_cut(&self, name: &str) -> Result<PowerCut, Refusal> {
        let index = self.config().devices.iter().position(|d| d.name == name);
        let index = index.ok_or_else(|| Refusal::NotFound(format!("there is no device \"{name}\"")))?;
        let place = place(index, self.shards.len());
        let (reply, answer) = mpsc::sync_channel(1);
        self.shards[place.shard as usize].post(move |s| s.power_cut(place.drive, reply));
        let cut = answer.recv().map_err(|_| gone())?;
        cut.map_err(|why| Refusal::Conflict(format!("device \"{name}\": {why}")))
    }

    /// Changes a tenant's class, weight or promises while I/O runs.
    ///
    /// # Errors
    /// There is no such tenant, it may not be of that class, or it breaks a promise and is not forced.
    pub fn set_tenant(&self, name: &str, change: &TenantChange<'_>) -> Result<TenantSnapshot, Refusal> {
        let index = self.tenant_index(name)?;
        let class = change.class;
        let urgent = self.config().tenants[index].urgent;
        if class == Some(Class::Urgent) && !urgent {
            let why = format!("tenant \"{name}\" may not be urgent; write urgent = true in its [[tenant]]");
            return Err(Refusal::Conflict(why));
        }
        let weight = change.weight;
        // Held over the calls: two patches at once are applied one after the other.
        let turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let promises = self.promises(index, change)?;
        let changed = |t: &mut TenantConfig| {
            (t.class, t.weight) = (class.unwrap_or(t.class), weight.unwrap_or(t.weight));
            if let Some(Promises { floor, ceiling, sla }) = promises {
                (t.floor, t.ceiling, t.sla) = (floor, ceiling, sla);
            }
        };
        let said = self.admit_tenant(&turn, (index, changed), change.force)?;
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
        let admission = if change.force { self.said_of_all() } else { self.said_of(index) };
        Ok(TenantSnapshot { admission, ..self.tenant_snapshot(index, &self.devices()?) })
    }

    /// One more tenant while I/O runs; its weight is in range.
    ///
    /// # Errors
    /// What of it is not allowed or taken, or it breaks a promise and is not forced.
    pub fn add_tenant(&self, tenant: &NewTenant<'_>) -> Result<TenantSnapshot, Refusal> {
        // Held over the calls: changes come one after the other.
        let turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let config = self.config();
        if config.tenants.len() >= MOST_TENANTS {
            return Err(Refusal::Conflict(format!("a node has {MOST_TENANTS} tenants at the most in its life")));
        }
        let joins = TenantConfig::joining(tenant.name, tenant.class, tenant.hosts, &config.tenants);
        let mut joins = joins.map_err(Refusal::Invalid)?;
        let promises = (tenant.promises)(Promises::default()).map_err(Refusal::Invalid)?;
        (joins.floor, joins.ceiling, joins.sla) = (promises.floor, promises.ceiling, promises.sla);
        joins.weight = tenant.weight;
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
        Ok(TenantSnapshot { admission, ..self.tenant_snapshot(index, &self.devices()?) })
    }

    /// Removes a tenant that has no hosts connected and no export; the answer is what it was.
    ///
    /// # Errors
    /// There is none of that name, or it has.
    pub fn remove_tenant(&self, name: &str) -> Result<TenantSnapshot, Refusal> {
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
        let before = self.tenant_snapshot(index, &self.devices()?);
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

    /// Begins to drain and then ends the process; returns at once, and may be called twice.
    pub fn shutdown(&self) {
        if !self.draining.swap(true, Ordering::Relaxed) {
            (self.on_shutdown)();
        }
    }
}
