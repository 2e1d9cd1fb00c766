//! The pools and volumes of a shard's drives: fronts run before the drives, what the drives have done is settled after them.

mod lost_queues;
mod notes;
mod other_shards;
mod taking_back;

use super::{Backend, Device, Drives};
use crate::directory::Place;
use crate::pool::drive_queue::{DriveQueue, Guest, LayoutTime, Outbox, PartTime, Piece, Reach, Sent, ShardMessage};
use crate::pool::front::{Copies, Front, SecondCopy, Stretch, Way};
use crate::pool::host::{Ask, PoolHost, Reply};
use crate::pool::parts::{Bytes, Fronts, GUEST, Parts, Via, Whose, front_owner, pool_owner};
use std::collections::BTreeSet;
use weir_controller::{
    Attach, ControllerHandle, Host, Owner, SlotId, SqHandle, Subsystem, SubsystemConfig as MachineConfig,
    TransportModel,
};
use weir_pool::{CHUNK, CopyState, Pool, SegmentCopy, Setup, VolumeId};
use weir_spec::nvme::Status;
use weir_sys::reactor::Reactor;
use weir_units::Nanos;

/// Set in the place of a drive that is a volume's front.
pub const FRONT: u32 = 1 << 31;

/// Commands of a front or a pool in its queue at a drive.
const DEPTH: u32 = 512;
/// What an owner's number has apart from whose it is.
const NUMBER: u32 = GUEST - 1;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Volumes {
    pub parts: Parts,
    pub pools: Vec<PoolHost>,
    pub fronts: Vec<Device>,
    /// Places of fronts that have gone.
    vacant: Vec<u32>,
    /// Fronts that are looked at in every turn.
    pub awake: Vec<u32>,
    /// For each front: nothing if it is one of them, else when it must be run.
    asleep: Vec<Option<Nanos>>,
    /// Those that sleep until some time.
    rest: BTreeSet<(Nanos, u32)>,
    turns: u32,
    guests: Vec<Option<Guest>>,
    /// Shards with which messages were ever exchanged.
    pub neighbours: BTreeSet<u32>,
    outbox: Outbox,
    send: Vec<Sent>,
    ended: Vec<(SlotId, Status)>,
    notes: notes::Notes,
    /// The process ends: nothing more goes to other shards.
    leaves: bool,
}

impl Volumes {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fronts.is_empty() && self.pools.is_empty() && self.guests.is_empty()
    }

    /// What was done waits to be settled.
    pub fn must_poll(&self) -> bool {
        self.parts.any_done() || !self.send.is_empty() || self.notes.any_said()
    }

    /// A front is looked at in every turn from now on.
    #[inline]
    pub fn wake(&mut self, number: u32) {
        if let Some(until) = self.asleep[number as usize].take() {
            self.rest.remove(&(until, number));
            self.awake.push(number);
        }
    }

    /// See [`Drives::take_wrong_note`].
    #[inline]
    pub fn noted_wrong(&self) -> Option<u32> {
        let awake = self.awake.iter().copied();
        awake.map(|number| number | FRONT).find(|place| self.fronts[(place & !FRONT) as usize].is_noted_wrong())
    }

    /// When the first of the fronts that sleep must be run.
    #[inline]
    pub fn rest(&self) -> Nanos {
        self.rest.first().map_or(Nanos::NEVER, |(until, _)| *until)
    }

    /// Puts to sleep who has nothing to do for a while.
    #[cold]
    fn tuck_in(&mut self, soon: Nanos) {
        let Volumes { fronts, awake, asleep, rest, .. } = self;
        awake.retain(|number| {
            let front = &fronts[*number as usize];
            let sleeps = front.is_idle(soon) && front.has_nothing_out();
            if sleeps {
                let until = front.due();
                asleep[*number as usize] = Some(until);
                if until != Nanos::NEVER {
                    rest.insert((until, *number));
                }
            }
            !sleeps
        });
    }
}

impl Device {
    pub(super) fn front(&mut self) -> Option<(&mut Front, &mut Subsystem)> {
        match &mut self.backend {
            Backend::Volume(front) => Some((front, &mut self.machine)),
            _ => None,
        }
    }

    fn as_front(&self) -> Option<&Front> {
        match &self.backend {
            Backend::Volume(front) => Some(front),
            _ => None,
        }
    }

    /// Nothing of a front waits to be begun.
    fn has_nothing_out(&self) -> bool {
        !matches!(&self.backend, Backend::Volume(front) if !front.outbox.is_empty())
    }

    /// Commands of a front are over.
    fn end_all<H: Host>(&mut self, now: Nanos, ended: &mut Vec<(SlotId, Status)>, doors: &mut H) {
        if matches!(&self.backend, Backend::Volume(front) if !front.flushed.is_empty()) {
            self.judge(ended);
        }
        let Device { machine, deadlines, none, dirty, .. } = self;
        for (slot, status) in ended.drain(..) {
            *dirty = true;
            deadlines.complete((now, slot, status), machine, doors, none);
        }
    }

    /// What is in the place of a front that has gone: nobody connects to it.
    fn vacant(now: Nanos) -> Option<Device> {
        Subsystem::new(MachineConfig::discovery(), now).ok().map(Device::discovery)
    }
}

impl Drives {
    /// A pool of these drives, which is to be [opened](Ask::Open). Its own I/O counts as the tenant's.
    ///
    /// # Errors
    /// A drive has no room for its controller.
    pub fn add_pool(&mut self, setup: Setup, drives: &[Reach], tenant: u16, now: Nanos) -> Result<u32, String> {
        let number = self.volumes.pools.len() as u32;
        let host = format!("pool {}", setup.name);
        let mut queues = Vec::new();
        for reach in drives {
            queues.push(self.open_queue(*reach, pool_owner(number), tenant, &host, now)?.0);
        }
        self.volumes.pools.push(PoolHost::new(number, setup, queues));
        Ok(number)
    }

    /// A queue of a pool at a drive that is to join it. Its place is the one that the pool has for the drive.
    ///
    /// # Errors
    /// The drive has no room for the pool's controller.
    pub fn add_pool_queue(&mut self, pool: u32, device: &str, drive: Reach, now: Nanos) -> Result<usize, String> {
        let machine = self.pool(pool);
        let (place, host) = (machine.place_for(device), format!("pool {}", machine.name()));
        let (queue, _) = self.open_queue(drive, pool_owner(pool), 0, &host, now)?;
        let queues = &mut self.volumes.pools[pool as usize].queues;
        match queues.get_mut(place) {
            Some(at) => *at = queue,
            None => queues.push(queue),
        }
        Ok(place)
    }

    /// Gives back the queue of a pool at a drive that is none of its.
    pub fn close_pool_queue(&mut self, pool: u32, place: usize, now: Nanos) {
        let queue = self.volumes.pools[pool as usize].queues.get_mut(place);
        if let Some(queue) = queue.map(|queue| std::mem::replace(queue, DriveQueue::Closed)) {
            self.close_queue(queue, now);
        }
    }

    /// A queue at a drive of this shard, or the one that a guest of another one has; and its depth.
    fn open_queue(
        &mut self,
        reach: Reach,
        owner: Owner,
        tenant: u16,
        host: &str,
        now: Nanos,
    ) -> Result<(DriveQueue, u32), String> {
        let Some((guest, depth)) = reach.guest else {
            let drive = reach.place.drive;
            let (controller, queue, depth) = self.attach_queue(drive, owner, tenant, host, now)?;
            return Ok((DriveQueue::Here { drive, controller, queue: Some(queue) }, depth));
        };
        let shard = reach.place.shard;
        self.volumes.neighbours.insert(shard);
        Ok((DriveQueue::There { shard, guest }, depth))
    }

    /// Gives a queue at a drive back.
    fn close_queue(&mut self, queue: DriveQueue, now: Nanos) {
        match queue {
            DriveQueue::Here { drive, controller, .. } => self.get(drive).detach(now, controller),
            DriveQueue::There { shard, guest } => self.volumes.outbox.put(shard, ShardMessage::Gone(guest)),
            DriveQueue::Closed => {}
        }
    }

    /// A controller with a queue at a drive.
    fn attach_queue(
        &mut self,
        drive: u32,
        owner: Owner,
        tenant: u16,
        host: &str,
        now: Nanos,
    ) -> Result<(ControllerHandle, SqHandle, u32), String> {
        let machine = self.get(drive);
        let attach = Attach { tenant, owner, model: TransportModel::Front, host: host.into() };
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

    /// The volumes of a pool may have hosts from now on.
    pub fn begin_to_serve(&mut self, pool: u32) {
        self.volumes.pools[pool as usize].begin_to_serve();
    }

    /// All fronts of a pool have heard of the drives at these places.
    pub fn use_pool_drives(&mut self, pool: u32, places: &[usize]) {
        let machine = &mut self.volumes.pools[pool as usize].pool;
        places.iter().for_each(|place| machine.is_in_use(*place));
    }

    /// Asks something of a pool; `reply` hears of it in a later turn.
    pub fn ask_pool(&mut self, number: u32, ask: Ask, reply: Reply) {
        let Volumes { pools, parts, send, .. } = &mut self.volumes;
        pools[number as usize].ask(ask, reply, parts, send);
    }

    /// A front for a volume, with a machine of this configuration, and of two copies what is known of them; its place among the drives. Where its bytes lie is to be
    /// [laid out](Self::lay_out).
    ///
    /// # Errors
    /// The machine refuses.
    pub fn add_front(
        &mut self,
        volume: (u32, VolumeId),
        (tenant, machine, copies, pool_shard): (u16, MachineConfig, Option<Copies>, Option<u32>),
        now: Nanos,
    ) -> Result<u32, String> {
        let shape = machine.namespaces.first().map(|n| (n.size, n.block_size, n.uuid));
        let (size, block_size, uuid) = shape.ok_or("a front has a namespace")?;
        let machine = Subsystem::new(machine, now).map_err(|e| e.to_string())?;
        let number = self.volumes.vacant.pop().unwrap_or(self.volumes.fronts.len() as u32);
        let mut front = Front::new(number, volume, tenant, uuid);
        front.copies = copies.map(Box::new);
        front.sharing.pool_shard = pool_shard;
        let mut device = Device::new(machine, Backend::Volume(Box::new(front)), size, block_size);
        device.limit = u64::MAX;
        let Volumes { fronts, asleep, awake, .. } = &mut self.volumes;
        match fronts.get_mut(number as usize) {
            Some(vacant) => *vacant = device,
            None => {
                fronts.push(device);
                asleep.push(None);
                awake.push(number);
            }
        }
        self.volumes.wake(number);
        Ok(FRONT | number)
    }

    /// Whose a front is, what drives call it, and the drives that it has queues at.
    pub fn ways(&mut self, place: u32) -> (u16, String, Vec<Place>) {
        match self.front(place) {
            Some((front, machine)) => {
                let host = format!("volume {}", machine.config().subnqn);
                (front.tenant, host, front.ways.iter().filter(|w| !w.has_left()).map(|w| w.place).collect())
            }
            None => (0, String::new(), Vec::new()),
        }
    }

    /// Where a front's volume lies from now on, as it was at that time; it takes queues at those drives that it has none at. `false`: the front knows
    /// of more changes, and nothing is done.
    ///
    /// # Errors
    /// A drive has no room for its controller.
    pub fn lay_out(&mut self, place: u32, (pieces, time): (&[Piece], &LayoutTime), now: Nanos) -> Result<bool, String> {
        let number = place & !FRONT;
        let (tenant, host, _) = self.ways(place);
        let Some((front, _)) = self.front(place) else { return Ok(true) };
        if !front.takes_layout_of(time.changes) {
            return Ok(false);
        }
        let (mut ways, before) = (front.ways.clone(), front.ways.len());
        let mut stretches = Vec::new();
        for Piece { first, second, segment: s } in pieces {
            let mut found = [None, None];
            let second_drive = s.second.map_or(usize::MAX, |second| second.drive);
            for (found, (reach, member)) in found.iter_mut().zip([(first, s.drive), (second, second_drive)]) {
                let had = |reach: Reach| ways.iter().position(|w| w.place == reach.place && !w.has_left());
                *found = match reach.map(|reach| (reach, had(reach))) {
                    None => None,
                    Some((_, Some(way))) => Some(way as u32),
                    Some((reach, None)) => match self.open_queue(reach, front_owner(number), tenant, &host, now) {
                        Ok((queue, depth)) => {
                            ways.push(Way { place: reach.place, queue, depth, used: 0, member });
                            Some(ways.len() as u32 - 1)
                        }
                        Err(why) => {
                            ways.drain(before..).for_each(|way| self.close_queue(way.queue, now));
                            return Err(why);
                        }
                    },
                };
            }
            let bytes = |chunks: u32| u64::from(chunks) * CHUNK;
            let as_second = |copy: SegmentCopy| {
                let (way, at, stale) = (found[1], bytes(copy.start), copy.state != CopyState::Good);
                SecondCopy { way, at, stale }
            };
            let (start, len, at) = (bytes(s.logical), bytes(s.len), bytes(s.start));
            let second = s.second.map(as_second);
            stretches.push(Stretch { start, len, way: found[0], at, shared: s.shared, second });
        }
        if let Some((front, _)) = self.front(place) {
            let new = ways[before..].iter().map(|way| way.member);
            let back: Vec<usize> = new.filter(|member| time.returning.contains(member)).collect();
            front.ways = ways;
            front.miss_at(&back);
            front.lay_out(stretches);
        }
        Ok(true)
    }

    /// Gives back a front's queue at a drive that nothing of its volume lies on; whether it has none there. It has one while something of it is
    /// on its way.
    pub fn leave_drive(&mut self, place: u32, drive: Place, now: Nanos) -> bool {
        let Some((front, _)) = self.front(place) else { return true };
        match front.leave(drive) {
            Some(queue) => self.close_queue(queue, now),
            None => return front.ways.iter().all(|w| w.place != drive || w.has_left()),
        }
        true
    }

    /// Takes a front away that nobody is connected to and that is [quiet](Self::is_front_quiet); its place is another's some day.
    pub fn remove_front(&mut self, place: u32, now: Nanos) {
        let number = place & !FRONT;
        let Some((front, _)) = self.front(place) else { return };
        for way in std::mem::take(&mut front.ways) {
            self.close_queue(way.queue, now);
        }
        let is =
            |whose: &Whose| matches!(whose, Whose::Front { front, .. } | Whose::Job { front, .. } if *front == number);
        self.volumes.parts.forget(is);
        if let Some(vacant) = Device::vacant(now) {
            self.volumes.fronts[number as usize] = vacant;
            self.volumes.vacant.push(number);
            self.volumes.wake(number);
        }
    }

    /// Gives a front's volume another size; its hosts are told. Nothing new goes behind it; see [`reaches`](Self::reaches).
    ///
    /// # Errors
    /// No whole blocks.
    pub fn resize_front(&mut self, place: u32, bytes: u64) -> Result<(), String> {
        // Its hosts hear of it in its next run.
        self.device_mut(place).resize(bytes).map_err(|e| e.to_string())?;
        // Its machine may hold commands that it has checked, and the rest of some that go on in steps.
        self.front(place).into_iter().for_each(|(front, _)| front.end_at(bytes));
        Ok(())
    }

    /// Whether nothing of what a front's hosts have asked is at its drives any more, also of hosts that are gone.
    pub fn is_front_quiet(&mut self, place: u32) -> bool {
        self.front(place).is_none_or(|(front, machine)| front.is_quiet() && !machine.has_orphans())
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
        self.front(place).is_some_and(|(front, _)| front.reaches(bytes))
    }

    fn front(&mut self, place: u32) -> Option<(&mut Front, &mut Subsystem)> {
        self.volumes.fronts[(place & !FRONT) as usize].front()
    }

    /// Runs the fronts, and hands their commands to the drives; true if there were any.
    pub(super) fn run_fronts<H: Host>(
        &mut self,
        now: Nanos,
        doors: &mut H,
        reactor: &mut Reactor,
        (round, soon): (u32, Nanos),
    ) -> bool {
        self.volumes.turns = self.volumes.turns.wrapping_add(1);
        if self.volumes.turns % round == 0 {
            self.volumes.tuck_in(soon);
        }
        while let Some((_, number)) = self.volumes.rest.first().copied().filter(|(until, _)| *until <= now) {
            self.volumes.wake(number);
        }
        let Volumes { parts, fronts, send, ended, awake, notes, .. } = &mut self.volumes;
        let mut busy = false;
        for number in awake.iter() {
            let device = &mut fronts[*number as usize];
            if device.front().is_some_and(|(front, _)| front.take_thawed()) {
                let Some((front, _)) = device.front() else { continue };
                front.go_on(parts, send, ended);
                notes.collect(*number, front);
                device.end_all(now, ended, doors);
                busy = true;
            }
            if !device.run(now, doors, reactor, Nanos::NEVER) {
                continue;
            }
            busy = true;
            let Some((front, machine)) = device.front() else { continue };
            while let Some(io) = front.outbox.pop_front() {
                // Its own machine times nothing: what has a time was charged in the process before.
                let time = machine.due(io.slot).map_or(PartTime::Drives, PartTime::Charged);
                let status = front.begin_timed(io, time, parts, send);
                ended.extend(status.map(|status| (io.slot, status)));
            }
            notes.collect(*number, front);
            device.end_all(now, ended, doors);
        }
        self.tell_pools();
        busy | self.send(now, doors)
    }

    /// Hands what waits for the drives to them.
    fn send<H: Host>(&mut self, now: Nanos, doors: &mut H) -> bool {
        let mut send = std::mem::take(&mut self.volumes.send);
        let busy = !send.is_empty();
        for sent in send.drain(..) {
            match sent {
                Sent::Here(drive, event) => {
                    self.wake(drive);
                    let Volumes { parts, fronts, .. } = &mut self.volumes;
                    self.list[drive as usize].apply(now, event, &mut Via { doors, parts, fronts });
                }
                Sent::There { shard, guest, request, tag, time } => {
                    self.post((shard, guest), (request, time), tag, doors)
                }
            }
        }
        self.volumes.send = send;
        busy
    }

    /// Completes what the drives have done; true if there was anything.
    pub(super) fn settle<H: Host>(&mut self, now: Nanos, doors: &mut H) -> bool {
        let mut busy = false;
        while let Some((part, status)) = self.volumes.parts.take_done() {
            busy = true;
            match part.whose {
                Whose::Pool { pool, .. } => {
                    let Volumes { parts, send, pools, .. } = &mut self.volumes;
                    pools[pool as usize].over(part.bytes, status, parts, send);
                }
                Whose::Front { front: number, slot, drive } => {
                    self.volumes.wake(number);
                    let Volumes { parts, fronts, send, ended, notes, .. } = &mut self.volumes;
                    let device = &mut fronts[number as usize];
                    let Some((front, _)) = device.front() else { continue };
                    let over = front.over((slot, drive), (part.bytes, status), parts, send);
                    ended.extend(over.map(|status| (slot, status)));
                    front.go_on(parts, send, ended);
                    notes.collect(number, front);
                    device.end_all(now, ended, doors);
                }
                Whose::Job { front: number, drive } => {
                    self.volumes.wake(number);
                    let Volumes { parts, fronts, send, ended, notes, .. } = &mut self.volumes;
                    let device = &mut fronts[number as usize];
                    let Some((front, _)) = device.front() else { continue };
                    front.job_over(drive, (part.bytes, status), parts, send, ended);
                    notes.collect(number, front);
                    device.end_all(now, ended, doors);
                }
                Whose::Nobody => {}
                Whose::Guest { guest, ticket, gives, .. } => {
                    let Volumes { guests, outbox, .. } = &mut self.volumes;
                    let Some(Some(guest)) = guests.get(guest as usize) else { continue };
                    let bytes = match part.bytes {
                        Bytes::Own(bytes) if gives && status.is_success() => bytes,
                        _ => Vec::new(),
                    };
                    outbox.put(guest.home, ShardMessage::Outcome { ticket, status, bytes });
                }
            }
        }
        self.tell_pools();
        busy |= self.hear_pools(now, doors);
        self.send(now, doors) | busy
    }
}

impl Fronts for Vec<Device> {
    #[inline]
    fn is_live(&self, front: u32, slot: SlotId) -> bool {
        self[front as usize].machine().is_live(slot)
    }
}
