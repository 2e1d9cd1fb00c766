//! The node as its API sees it: questions and changes become calls into the shards' mailboxes.

mod admit;

use crate::api::{
    AttainmentStatus, CeilingStatus, ClientStatus, CompletionError, Control, Counters, DevicePatch, DeviceStats,
    DeviceStatus, DoorStatus, ExportStatus, FloorStatus, PowerCutStatus, Promises, Refusal, ShardStatus, SlaStatus,
    State, Status, TenantPatch, TenantStatus,
};
use crate::config::{Address, Arbitration, Config, DoorConfig, TenantConfig};
use crate::flash::FlashFigures;
use crate::lateness::Summary;
use crate::node::{Node, place};
use crate::shard::ShardHandle;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Instant;
use weir_controller::{Attainment, ControllerInfo, DriveStats, Work};
use weir_units::{Class, Nanos};

/// See the [module](self).
pub struct NodeControl {
    config: Arc<Config>,
    shards: Vec<ShardHandle>,
    listening: Vec<SocketAddr>,
    started: Instant,
    draining: AtomicBool,
    on_shutdown: Box<dyn Fn() + Send + Sync>,
    /// As it is now, so that a change is made from the present state.
    arbitration: Mutex<Vec<Arbitration>>,
    /// What admission says of the tenants since the last change.
    said: Mutex<admit::Said>,
}

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
        let config = node.config().clone();
        let arbitration = Mutex::new(config.devices.iter().map(|d| d.arbitration).collect());
        Self {
            shards: node.shards().to_vec(),
            listening: node.listening().to_vec(),
            started: Instant::now(),
            draining: AtomicBool::new(false),
            on_shutdown,
            arbitration,
            said: Mutex::new(admit::said(&config, &crate::admission::of_config(&config), &config.tenants)),
            config,
        }
    }

    /// From now on the status says that the node is finishing.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    fn device_index(&self, name: &str) -> Result<usize, Refusal> {
        let found = self.config.devices.iter().position(|d| d.name == name);
        let names = || self.config.devices.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", ");
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
        (0..self.config.devices.len()).map(|i| self.snapshot(i)).collect()
    }

    fn device_status(&self, index: usize, s: &Snapshot) -> DeviceStatus {
        let device = &self.config.devices[index];
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
            core: self.config.node.cores[place.shard as usize],
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
            tenant: self.config.tenants.get(usize::from(c.tenant)).map(|t| t.name.clone()).unwrap_or_default(),
            controller: c.id,
            ready: c.ready,
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
        let tenant = &self.config.tenants[index];
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
            admission: self.said_of(index),
            io: Counters::default(),
        };
        if tenant.any_host {
            status.hosts.push("*".into());
        }
        for (device, s) in self.config.devices.iter().zip(snapshots) {
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

    /// Connections of the NVMe/TCP door over all shards, and clients of every vhost-user socket.
    fn clients(&self) -> Result<(u32, Vec<(std::path::PathBuf, u32)>), Refusal> {
        let mut connections = 0;
        let mut sockets = Vec::new();
        for shard in &self.shards {
            let look = |s: &mut crate::shard::Shard| (s.doors.nvme_tcp.connections(), s.doors.vhost_user.clients());
            let (tcp, vhost) = shard.call(look).ok_or_else(gone)?;
            connections += tcp;
            sockets.extend(vhost);
        }
        Ok((connections, sockets))
    }

    fn export_statuses(&self, snapshots: &[Snapshot]) -> Result<Vec<ExportStatus>, Refusal> {
        let (_, sockets) = self.clients()?;
        let status = |e: &crate::config::ExportConfig| {
            let (door, addresses, tenant, clients) = match &e.door {
                DoorConfig::NvmeTcp => {
                    let addresses = self.listening.iter().map(SocketAddr::to_string).collect();
                    let fronts = sockets.iter().filter(|(p, _)| self.serves(p, e.device)).map(|(_, n)| n).sum::<u32>();
                    let all = snapshots[e.device].controllers.len() as u32;
                    ("nvme-tcp", addresses, None, all.saturating_sub(fronts))
                }
                DoorConfig::VhostUser { path, tenant } => {
                    let clients = sockets.iter().find(|(p, _)| p == path).map_or(0, |(_, n)| *n);
                    let tenant = Some(self.config.tenants[*tenant].name.clone());
                    ("vhost-user", vec![path.display().to_string()], tenant, clients)
                }
            };
            ExportStatus {
                device: self.config.devices[e.device].name.clone(),
                door: door.into(),
                addresses,
                tenant,
                class_from: e.class_from,
                queues: e.queues,
                read_only: e.read_only,
                clients,
            }
        };
        Ok(self.config.exports.iter().map(status).collect())
    }

    fn serves(&self, socket: &std::path::Path, device: usize) -> bool {
        let same = |door: &DoorConfig| matches!(door, DoorConfig::VhostUser { path, .. } if path == socket);
        self.config.exports.iter().any(|e| e.device == device && same(&e.door))
    }
}

impl Control for NodeControl {
    fn status(&self) -> Result<Status, Refusal> {
        let snapshots = self.snapshots()?;
        let (connections, _) = self.clients()?;
        let state = if self.draining.load(Ordering::Relaxed) { State::Draining } else { State::Serving };
        let mut shards = Vec::new();
        for (shard, core) in self.shards.iter().zip(&self.config.node.cores) {
            let (cpu_s, busy_pct) = shard.call(|s| (cpu_seconds(), s.load().0)).ok_or_else(gone)?;
            shards.push(ShardStatus { core: *core, poll: self.config.node.poll, cpu_s, busy_pct });
        }
        let listen: Vec<String> = self.listening.iter().map(SocketAddr::to_string).collect();
        let door = DoorStatus { kind: "nvme-tcp".into(), listen, connections };
        Ok(Status {
            node: self.config.node.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            state,
            uptime_s: self.started.elapsed().as_secs_f64(),
            api: self.config.node.api.iter().map(Address::to_string).collect(),
            shards,
            doors: if self.listening.is_empty() { Vec::new() } else { vec![door] },
            devices: snapshots.iter().enumerate().map(|(i, s)| self.device_status(i, s)).collect(),
            tenants: (0..self.config.tenants.len()).map(|i| self.tenant_status(i, &snapshots)).collect(),
            exports: self.export_statuses(&snapshots)?,
        })
    }

    fn devices(&self) -> Result<Vec<DeviceStatus>, Refusal> {
        Ok(self.snapshots()?.iter().enumerate().map(|(i, s)| self.device_status(i, s)).collect())
    }

    fn tenants(&self) -> Result<Vec<TenantStatus>, Refusal> {
        let snapshots = self.snapshots()?;
        Ok((0..self.config.tenants.len()).map(|i| self.tenant_status(i, &snapshots)).collect())
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
            core: self.config.node.cores[place.shard as usize],
            poll: self.config.node.poll,
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
                let resize = move |s: &mut crate::shard::Shard| -> Result<(), String> {
                    s.drives.device_mut(place.drive).resize(bytes).map_err(|e| e.to_string())?;
                    s.with_doors(|doors, cx| doors.vhost_user.resized(place.drive, bytes, cx));
                    Ok(())
                };
                let answer = self.shards[place.shard as usize].call(resize).ok_or_else(gone)?;
                answer.map_err(|e| Refusal::Invalid(format!("capacity_bytes: {e}")))?;
            }
            let change = move |s: &mut crate::shard::Shard| s.drives.get(place.drive).set_arbitration(wanted.into());
            let answer = self.shards[place.shard as usize].call(change).ok_or_else(gone)?;
            answer.map_err(|e| Refusal::Invalid(e.to_string()))?;
            current[index] = wanted;
            self.remember(said);
        }
        Ok(self.device_status(index, &self.snapshot(index)?))
    }

    fn power_cut(&self, name: &str) -> Result<PowerCutStatus, Refusal> {
        let index = self.config.devices.iter().position(|d| d.name == name);
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
        let index = self.config.tenants.iter().position(|t| t.name == name);
        let index = index.ok_or_else(|| Refusal::NotFound(format!("there is no tenant \"{name}\"")))?;
        let class = patch.class().map_err(Refusal::Invalid)?;
        let urgent = self.config.tenants[index].urgent;
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
        for device in 0..self.config.devices.len() {
            let place = place(device, self.shards.len());
            let change = move |s: &mut crate::shard::Shard| {
                let at = s.reactor.now();
                let machine = s.drives.get(place.drive);
                let now = &machine.config().tenants[index];
                let (class, weight) = (class.unwrap_or(now.class), weight.unwrap_or(now.weight));
                machine.set_tenant(index as u16, class, urgent, weight)?;
                match promises {
                    Some(Promises { floor, ceiling, sla }) => machine.set_limits(at, index as u16, floor, ceiling, sla),
                    None => Ok(()),
                }
            };
            let answer = self.shards[place.shard as usize].call(change).ok_or_else(gone)?;
            answer.map_err(|e| Refusal::Invalid(e.to_string()))?;
        }
        self.remember(said);
        drop(turn);
        // Whoever forces a change wants to know what it breaks, whosoever that is.
        let admission = if patch.force { self.said_of_all() } else { self.said_of(index) };
        Ok(TenantStatus { admission, ..self.tenant_status(index, &self.snapshots()?) })
    }

    fn shutdown(&self) {
        if !self.draining.swap(true, Ordering::Relaxed) {
            (self.on_shutdown)();
        }
    }
}
