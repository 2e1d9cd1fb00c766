//! The pools and volumes of a shard's drives: fronts run before the drives, what the drives have done is settled after them.

use super::{Backend, Device, Drives};
use crate::pool::front::{Front, Sent, Stretch, Way};
use crate::pool::host::{Ask, PoolHost, Reply, Seat};
use crate::pool::parts::{POOL, Parts, Via, Whose, front_owner, pool_owner};
use weir_controller::{
    Attach, Config as MachineConfig, ControllerHandle, Host, Model, NamespaceConfig, Owner, SlotId, SqHandle, Subsystem,
};
use weir_pool::{CHUNK, Pool, Setup, VolumeId};
use weir_spec::nvme::Status;
use weir_sys::reactor::Reactor;
use weir_units::Nanos;

/// Set in the place of a drive that is a volume's front.
pub const FRONT: u32 = 1 << 31;

/// Commands of a front or a pool in its queue at a drive.
const DEPTH: u32 = 512;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Volumes {
    pub parts: Parts,
    pub pools: Vec<PoolHost>,
    pub fronts: Vec<Device>,
    send: Vec<Sent>,
    ended: Vec<(SlotId, Status)>,
}

impl Volumes {
    pub fn is_empty(&self) -> bool {
        self.fronts.is_empty() && self.pools.is_empty()
    }

    /// What was done waits to be settled.
    pub fn must_poll(&self) -> bool {
        self.parts.any_done() || !self.send.is_empty()
    }

    /// Asks of everything on its way whether its sender is still there.
    fn look(&mut self) {
        let fronts = &self.fronts;
        self.parts.look(|front, slot| fronts[front as usize].machine.is_live(slot));
    }
}

impl Device {
    fn front(&mut self) -> Option<(&mut Front, &mut Subsystem)> {
        match &mut self.backend {
            Backend::Volume(front) => Some((front, &mut self.machine)),
            _ => None,
        }
    }
}

impl Drives {
    /// A pool of these drives, which is to be [opened](Ask::Open). Its own I/O counts as the tenant's.
    ///
    /// # Errors
    /// A drive has no room for its controller.
    pub fn add_pool(&mut self, setup: Setup, drives: &[u32], tenant: u16, now: Nanos) -> Result<u32, String> {
        let number = self.volumes.pools.len() as u32;
        let host = format!("pool {}", setup.name);
        let mut seats = Vec::new();
        for drive in drives {
            let (controller, queue, _) = self.seat(*drive, pool_owner(number), tenant, &host, now)?;
            seats.push(Seat { drive: *drive, controller, queue: Some(queue) });
        }
        self.volumes.pools.push(PoolHost::new(number, setup, seats));
        Ok(number)
    }

    /// A controller with a queue at a drive.
    fn seat(
        &mut self,
        drive: u32,
        owner: Owner,
        tenant: u16,
        host: &str,
        now: Nanos,
    ) -> Result<(ControllerHandle, SqHandle, u32), String> {
        let machine = self.get(drive);
        let attach = Attach { tenant, owner, model: Model::Front, host: host.into() };
        let depth = machine.config().max_queue_entries.min(DEPTH);
        let controller = machine.attach(now, attach).map_err(|e| e.to_string())?;
        let queue = machine.add_message_queue(controller, depth, None, owner);
        let queue = queue.map_err(|e| {
            machine.detach(now, controller);
            e.to_string()
        })?;
        Ok((controller, queue, depth))
    }

    /// A pool by its number.
    pub fn pool(&self, number: u32) -> &Pool {
        &self.volumes.pools[number as usize].pool
    }

    /// Asks something of a pool; `reply` hears of it in a later turn.
    pub fn ask_pool(&mut self, number: u32, ask: Ask, reply: Reply) {
        let Volumes { pools, parts, send, .. } = &mut self.volumes;
        pools[number as usize].ask(ask, reply, parts, send);
    }

    /// A front for a volume, with a machine of this configuration (namespaces apart); its place among the drives.
    ///
    /// # Errors
    /// A drive has no room for its controller, or the machine refuses.
    pub fn add_front(
        &mut self,
        (pool, volume): (u32, VolumeId),
        (tenant, machine): (u16, MachineConfig),
        now: Nanos,
    ) -> Result<u32, String> {
        let found = self.pool(pool).volumes().find(|v| v.id == volume);
        let Some((chunks, uuid)) = found.map(|v| (v.chunks, v.uuid)) else {
            return Err("there is no such volume".into());
        };
        let number = self.volumes.fronts.iter().position(Device::is_vacant).unwrap_or(self.volumes.fronts.len());
        let size = u64::from(chunks) * CHUNK;
        let seat = self.volumes.pools[pool as usize].seats[0].drive;
        let first = &self.list[seat as usize];
        let block_size = first.block_size();
        let machine = MachineConfig {
            namespaces: vec![NamespaceConfig { nsid: 1, start: 0, size, block_size, uuid: uuid.0 }],
            volatile_write_cache: first.machine.config().volatile_write_cache,
            atomic_write: block_size.into(),
            in_capsule: first.machine.config().in_capsule,
            ..machine
        };
        let machine = Subsystem::new(machine, now).map_err(|e| e.to_string())?;
        let front = Front::new(number as u32, (pool, volume), tenant);
        let mut device = Device::new(machine, Backend::Volume(Box::new(front)), size, block_size);
        device.limit = u64::MAX;
        match number < self.volumes.fronts.len() {
            true => self.volumes.fronts[number] = device,
            false => self.volumes.fronts.push(device),
        }
        let place = FRONT | number as u32;
        self.lay_out(place, now).inspect_err(|_| self.remove_front(place, now))?;
        Ok(place)
    }

    /// Looks up where a front's volume lies now, and takes queues at drives that it has none at.
    ///
    /// # Errors
    /// A drive has no room for its controller.
    pub fn lay_out(&mut self, place: u32, now: Nanos) -> Result<(), String> {
        let number = place & !FRONT;
        let Some((front, machine)) = self.volumes.fronts[number as usize].front() else { return Ok(()) };
        let ((pool, volume), mut ways) = (front.volume, front.ways.clone());
        let (tenant, host) = (front.tenant, format!("volume {}", machine.config().subnqn));
        let segments = self.pool(pool).segments(volume);
        let mut stretches = Vec::new();
        for s in segments {
            let drive = self.volumes.pools[pool as usize].seats[s.drive].drive;
            let way = match ways.iter().position(|w| w.drive == drive) {
                Some(way) => way,
                None => {
                    let (controller, queue, depth) = self.seat(drive, front_owner(number), tenant, &host, now)?;
                    ways.push(Way { drive, controller, queue: Some(queue), depth, used: 0 });
                    ways.len() - 1
                }
            };
            let bytes = |chunks: u32| u64::from(chunks) * CHUNK;
            stretches.push(Stretch { start: bytes(s.logical), len: bytes(s.len), way: way as u32, at: bytes(s.start) });
        }
        if let Some((front, _)) = self.volumes.fronts[number as usize].front() {
            front.ways = ways;
            front.lay_out(stretches);
        }
        Ok(())
    }

    /// Takes a front away that nobody is connected to; its place is another's some day.
    pub fn remove_front(&mut self, place: u32, now: Nanos) {
        let at = (place & !FRONT) as usize;
        let Some((front, _)) = self.volumes.fronts[at].front() else { return };
        for way in std::mem::take(&mut front.ways) {
            self.get(way.drive).detach(now, way.controller);
        }
        let number = at as u32;
        self.volumes.parts.forget(|whose| matches!(whose, Whose::Front { front, .. } if *front == number));
        if let Some(vacant) = Device::vacant(now) {
            self.volumes.fronts[at] = vacant;
        }
    }

    /// Gives a front's volume another size; its hosts are told. What lies behind a smaller one is let go of when
    /// [`reaches`](Self::reaches) says that nothing is on its way there.
    ///
    /// # Errors
    /// No whole blocks.
    pub fn resize_front(&mut self, place: u32, bytes: u64) -> Result<(), String> {
        self.volumes.fronts[(place & !FRONT) as usize].resize(bytes).map_err(|e| e.to_string())
    }

    /// Whose volume a front is; `None` of a drive.
    pub fn front_tenant(&self, place: u32) -> Option<u16> {
        let device = self.volumes.fronts.get((place & !FRONT) as usize).filter(|_| place & FRONT != 0)?;
        match &device.backend {
            Backend::Volume(front) => Some(front.tenant),
            _ => None,
        }
    }

    /// Whether a command of a front is on its way that reaches behind `bytes`.
    pub fn reaches(&mut self, place: u32, bytes: u64) -> bool {
        let front = self.volumes.fronts[(place & !FRONT) as usize].front();
        front.is_some_and(|(front, _)| front.reaches(bytes))
    }

    /// Runs the fronts, and hands their commands to the drives; true if there were any.
    pub(super) fn run_fronts<H: Host>(&mut self, now: Nanos, doors: &mut H, reactor: &mut Reactor) -> bool {
        let Volumes { parts, fronts, send, ended, .. } = &mut self.volumes;
        let mut busy = false;
        for device in fronts {
            if !device.run(now, doors, reactor, Nanos::NEVER) {
                continue;
            }
            busy = true;
            let Some((front, machine)) = device.front() else { continue };
            while let Some(io) = front.outbox.pop_front() {
                let status = front.begin(io, machine.is_live(io.slot), parts, send);
                ended.extend(status.map(|status| (io.slot, status)));
            }
            device.end_all(now, ended, doors);
        }
        if busy {
            self.volumes.look();
        }
        busy | self.send(now, doors)
    }

    /// Hands what waits for the drives to them.
    fn send<H: Host>(&mut self, now: Nanos, doors: &mut H) -> bool {
        let mut send = std::mem::take(&mut self.volumes.send);
        let busy = !send.is_empty();
        for (drive, event) in send.drain(..) {
            self.wake(drive);
            self.list[drive as usize].apply(now, event, &mut Via { doors, parts: &mut self.volumes.parts });
        }
        self.volumes.send = send;
        busy
    }

    /// Completes what the drives have done; true if there was anything.
    pub(super) fn settle<H: Host>(&mut self, now: Nanos, doors: &mut H) -> bool {
        let mut busy = false;
        while let Some((part, status)) = self.volumes.parts.take_done() {
            busy = true;
            let Volumes { parts, fronts, send, pools, ended } = &mut self.volumes;
            match part.whose {
                Whose::Pool { pool, .. } => pools[pool as usize].over(part.bytes, status, parts, send),
                Whose::Front { front: number, slot, drive } => {
                    let device = &mut fronts[number as usize];
                    let Some((front, machine)) = device.front() else { continue };
                    let over = front.over((slot, drive), (part.bytes, status), machine.is_live(slot), parts, send);
                    ended.extend(over.map(|status| (slot, status)));
                    front.go_on(|slot| machine.is_live(slot), parts, send, ended);
                    device.end_all(now, ended, doors);
                }
            }
        }
        if busy {
            self.volumes.look();
        }
        self.send(now, doors) | busy
    }

    /// A drive has dropped a queue of a front or a pool: what was in it comes to nothing, and there is another one.
    #[cold]
    pub(super) fn renew(&mut self, drive: u32, owner: Owner, now: Nanos) {
        let number = owner.0 & 0x07ff_ffff;
        let is_pool = owner.0 & POOL != 0;
        let place = match is_pool {
            true => self.volumes.pools[number as usize].seats.iter().position(|s| s.drive == drive),
            false => self.volumes.fronts[number as usize]
                .front()
                .and_then(|(front, _)| front.ways.iter().position(|w| w.drive == drive)),
        };
        let Some(place) = place else { return };
        let at = place as u32;
        self.volumes.parts.fail(
            |whose| match whose {
                Whose::Pool { pool, drive } => is_pool && (*pool, *drive) == (number, at),
                Whose::Front { front, drive, .. } => !is_pool && (*front, *drive) == (number, at),
            },
            Status::INTERNAL_PATH_ERROR,
        );
        let (old, tenant) = match is_pool {
            true => (self.volumes.pools[number as usize].seats[place].controller, 0),
            false => match self.volumes.fronts[number as usize].front() {
                Some((front, _)) => (front.ways[place].controller, front.tenant),
                None => return,
            },
        };
        self.get(drive).detach(now, old);
        let seat = self.seat(drive, owner, tenant, "volumes", now);
        let seat = seat.inspect_err(|why| tracing::error!("a volume has lost its drive: {why}")).ok();
        if is_pool {
            let old = &mut self.volumes.pools[number as usize].seats[place];
            old.queue = seat.map(|(_, queue, _)| queue);
            old.controller = seat.map_or(old.controller, |(controller, ..)| controller);
        } else if let Some((front, _)) = self.volumes.fronts[number as usize].front() {
            let way = &mut front.ways[place];
            way.queue = seat.map(|(_, queue, _)| queue);
            way.controller = seat.map_or(way.controller, |(controller, ..)| controller);
        }
    }
}

impl Device {
    /// Commands of a front are over.
    fn end_all<H: Host>(&mut self, now: Nanos, ended: &mut Vec<(SlotId, Status)>, doors: &mut H) {
        let Device { machine, deadlines, none, dirty, .. } = self;
        for (slot, status) in ended.drain(..) {
            *dirty = true;
            deadlines.complete((now, slot, status), machine, doors, none);
        }
    }

    fn is_vacant(&self) -> bool {
        !matches!(self.backend, Backend::Volume(_))
    }

    /// What is in the place of a front that has gone: nobody connects to it.
    fn vacant(now: Nanos) -> Option<Device> {
        Subsystem::new(MachineConfig::discovery(), now).ok().map(Device::discovery)
    }
}
