//! The device behind one connection: answers the front end's messages and owns the queues.
// tidy: long because every message of the protocol has a handler here, none of them long

use super::chain::Violation;
use super::disk::Disk;
use super::inbox::{Message, ProtocolError};
use super::journal::{StartError, closed_at};
use super::log::{DirtyLog, Logging, RingPlace};
use super::map::{GuestRegion, Map};
use super::queue::{DriveCommand, MAX_QUEUE_SIZE, QueueState, Virtqueue};
use super::request::RequestTag;
use super::ring::RingAddresses;
use crate::memory::Memory;
use alloc::vec::Vec;
use weir_journal::{JournalRegion as Journal, JournalShape, QueueKind, RecoveredRing};
use weir_spec::vhost_user::{
    BackendRequest, ConfigHeader, F_LOG_ALL, F_PROTOCOL_FEATURES, Header, Inflight, LogBase, MAX_CONFIG, Request,
    SingleRegion, VringAddress, VringFd, VringState, config_payload, memory_table, protocol,
};
use weir_spec::virtio_blk::RequestStatus;
use weir_spec::virtqueue::feature;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// What the door has to do.
#[derive(Debug)]
pub enum Action<F> {
    /// Send this to the front end.
    Reply(Vec<u8>),
    /// Send this to the front end, with a descriptor.
    ReplyWith(Vec<u8>, F),
    /// Send this on the back end's channel.
    Tell(Vec<u8>),
    /// The front end kicks this queue through `fd` from now on; without one, it must be polled.
    Kick {
        /// Which queue.
        queue: u16,
        /// The eventfd.
        fd: Option<F>,
    },
    /// The queue's completions are signalled through `fd` from now on; once at once, since one may have been missed.
    Call {
        /// Which queue.
        queue: u16,
        /// The eventfd; without one, the front end polls.
        fd: Option<F>,
    },
    /// A broken queue is reported through `fd`.
    Err {
        /// Which queue.
        queue: u16,
        /// The eventfd.
        fd: Option<F>,
    },
    /// The back end's channel.
    Channel(F),
    /// The queue has begun.
    Started(u16),
    /// The queue that has begun was in use when its server died or its front end went: its journal was recovered.
    Recovered(u16, RecoveredRing),
    /// Why the queue (or, without one, the in-flight region) that the front end wants is not to be had: a refusal follows.
    Unusable(Option<u16>, StartError),
    /// The queue can be polled: it was enabled, or its memory changed.
    Poll(u16),
    /// Signal the queue's completions.
    Signal(u16),
    /// The queue has ended. What was in flight is dropped: its completions must not come any more.
    Stopped(u16),
    /// The queue's ring is malformed; it is not served until the front end restarts it.
    Broken(u16, Violation),
    /// The front end must be disconnected.
    Close(ProtocolError),
}

/// Most memory regions.
const MAX_REGIONS: usize = 64;

#[derive(Debug)]
struct Vring<M: Memory> {
    size: u16,
    base: u32,
    /// Where its ring was stopped, if that was known.
    stopped: Option<u32>,
    address: Option<VringAddress>,
    enabled: bool,
    queue: Option<Virtqueue<M>>,
}

impl<M: Memory> Vring<M> {
    fn new() -> Self {
        Self { size: 0, base: 0, stopped: None, address: None, enabled: false, queue: None }
    }
}

/// The request failed; where the front end wants to know, it is told, else it is disconnected.
struct Refused;

type Handled = Result<(), Refused>;

/// One front end's block device. All calls on one device get the same memory.
#[derive(Debug)]
pub struct VhostUserDevice<M: Memory> {
    disk: Disk,
    features: Option<u64>,
    protocol: u64,
    vrings: Vec<Vring<M>>,
    regions: Vec<GuestRegion>,
    draining: Option<u16>,
    channel: bool,
    /// The in-flight region: journals of the queues.
    journal: Option<Journal<M::Words>>,
    /// Where changed pages are marked.
    log: Option<DirtyLog<M::Words>>,
}

impl<M: Memory> VhostUserDevice<M> {
    /// A device that nobody has talked to.
    pub fn new(disk: Disk) -> Self {
        let count = usize::from(disk.queues.clamp(1, Disk::MAX_QUEUES));
        let vrings = (0..count).map(|_| Vring::new()).collect();
        let regions = Vec::new();
        Self {
            disk,
            features: None,
            protocol: 0,
            vrings,
            regions,
            draining: None,
            channel: false,
            journal: None,
            log: None,
        }
    }

    /// What it says about itself.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Virtio features that the front end accepted.
    pub fn features(&self) -> u64 {
        self.features.unwrap_or(0)
    }

    /// How many queues it has, started or not.
    pub fn queues(&self) -> u16 {
        self.vrings.len() as u16
    }

    /// A started queue.
    pub fn queue(&self, index: u16) -> Option<&Virtqueue<M>> {
        self.vrings.get(usize::from(index))?.queue.as_ref()
    }

    /// Whether an answer waits for requests in flight: no message may be handled until [`VhostUserDevice::settle`] has sent it.
    pub fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    /// Whether who serves the front end next can go on with what its queues have in flight.
    pub fn can_pass_on(&self) -> bool {
        !self.is_draining() && self.vrings.iter().filter_map(|v| v.queue.as_ref()).all(Virtqueue::can_pass_on)
    }

    /// Whether a queue takes requests.
    pub fn is_served(&self, index: u16) -> bool {
        self.vrings
            .get(usize::from(index))
            .is_some_and(|v| v.enabled && v.queue.as_ref().is_some_and(|q| q.state() == QueueState::Started))
    }

    #[inline]
    fn running(&mut self, index: u16) -> Option<&mut Virtqueue<M>> {
        self.vrings.get_mut(usize::from(index))?.queue.as_mut()
    }

    /// See [`Virtqueue::take`]; a queue that is not enabled yields nothing.
    ///
    /// # Errors
    /// The ring is malformed.
    #[inline]
    pub fn take(
        &mut self,
        memory: &M,
        index: u16,
        budget: usize,
        sink: &mut impl FnMut(DriveCommand),
    ) -> Result<bool, Violation> {
        match self.vrings.get_mut(usize::from(index)) {
            Some(Vring { enabled, queue: Some(q), .. }) if *enabled || q.is_draining() => {
                let taken = q.take(memory, &self.disk, budget, sink);
                if core::mem::take(&mut q.identified) {
                    self.disk.renewed = false;
                }
                taken
            }
            _ => Ok(false),
        }
    }

    /// See [`Virtqueue::has_request`].
    #[inline]
    pub fn has_request(&self, memory: &M, index: u16) -> bool {
        let vring = self.vrings.get(usize::from(index)).filter(|v| v.enabled);
        vring.and_then(|v| v.queue.as_ref()).is_some_and(|q| q.has_request(memory))
    }

    /// See [`Virtqueue::complete`].
    #[inline]
    pub fn complete(&mut self, memory: &M, tag: RequestTag, status: RequestStatus) {
        if let Some(q) = self.running(tag.queue()) {
            q.complete(memory, tag, status);
        }
    }

    /// See [`Virtqueue::publish`].
    #[inline]
    pub fn publish(&mut self, memory: &M, index: u16) {
        if let Some(q) = self.running(index) {
            q.publish(memory);
        }
    }

    /// See [`Virtqueue::wants_signal`].
    #[inline]
    pub fn wants_signal(&mut self, memory: &M, index: u16) -> bool {
        self.running(index).is_some_and(|q| q.wants_signal(memory))
    }

    /// See [`Virtqueue::quiet`].
    pub fn quiet(&mut self, memory: &M, index: u16) {
        if let Some(q) = self.running(index) {
            q.quiet(memory);
        }
    }

    /// See [`Virtqueue::listen`]. A queue that is not enabled is left as it is, and polled once it is.
    pub fn listen(&mut self, memory: &M, index: u16) -> bool {
        self.is_served(index) && self.running(index).is_some_and(|q| q.listen(memory))
    }

    /// Handles one message.
    pub fn message<F>(&mut self, message: Message<F>, memory: &mut M, out: &mut Vec<Action<F>>)
    where
        M: Map<F>,
    {
        let Message { request, needs_reply, again, payload, fds } = message;
        let ack = needs_reply && self.protocol & protocol::REPLY_ACK != 0;
        let handled = match request {
            Request::SET_VRING_KICK if again && self.stays_stopped(&payload, out) => Ok(()),
            _ => self.dispatch(request, &payload, fds, memory, out),
        };
        let answers = has_reply(request);
        match handled {
            Ok(()) if ack && !answers => reply(request, U64::ZERO.as_bytes(), out),
            Ok(()) => {}
            Err(Refused) if ack => reply(request, U64::new(1).as_bytes(), out),
            Err(Refused) => out.push(Action::Close(ProtocolError::Failed(request))),
        }
    }

    fn dispatch<F>(
        &mut self,
        request: Request,
        payload: &[u8],
        fds: Vec<F>,
        memory: &mut M,
        out: &mut Vec<Action<F>>,
    ) -> Handled
    where
        M: Map<F>,
    {
        match request {
            Request::GET_FEATURES => number(request, self.disk.features(), out),
            Request::SET_FEATURES => self.set_features(value(payload)?),
            Request::GET_PROTOCOL_FEATURES => number(request, self.disk.protocol(), out),
            Request::SET_PROTOCOL_FEATURES => self.set_protocol_features(value(payload)?),
            Request::SET_OWNER => Ok(()),
            Request::RESET_OWNER => self.disable_all(),
            Request::RESET_DEVICE => self.reset(out),
            Request::GET_QUEUE_NUM => number(request, self.vrings.len() as u64, out),
            Request::GET_MAX_MEM_SLOTS => number(request, MAX_REGIONS as u64, out),
            Request::SET_MEM_TABLE => self.set_mem_table(payload, fds, memory, out),
            Request::ADD_MEM_REG => self.add_region(payload, fds, memory, out),
            // libblkio sends a descriptor along; it is closed when dropped.
            Request::REM_MEM_REG => self.remove_region(payload, memory, out),
            Request::SET_VRING_NUM => self.set_num(payload),
            Request::SET_VRING_ADDR => self.set_address(payload, memory, out),
            Request::SET_VRING_BASE => self.set_base(payload),
            Request::GET_VRING_BASE => self.get_base(payload, memory, out),
            Request::SET_VRING_ENABLE => self.set_enable(payload, out),
            Request::SET_VRING_KICK => self.set_kick(payload, fds, memory, out),
            Request::SET_VRING_CALL => {
                let (queue, fd) = self.vring_fd(payload, fds)?;
                out.push(Action::Call { queue, fd });
                Ok(())
            }
            Request::SET_VRING_ERR => {
                let (queue, fd) = self.vring_fd(payload, fds)?;
                out.push(Action::Err { queue, fd });
                Ok(())
            }
            Request::GET_CONFIG => self.get_config(payload, out),
            Request::SET_BACKEND_REQ_FD => {
                out.push(Action::Channel(fds.into_iter().next().ok_or(Refused)?));
                self.channel = true;
                Ok(())
            }
            Request::GET_INFLIGHT_FD => self.get_inflight(payload, memory, out),
            Request::SET_INFLIGHT_FD => self.set_inflight(payload, fds, memory, out),
            Request::SET_LOG_BASE => self.set_log_base(payload, fds, memory, out),
            // What it is for nobody says; other back ends close it as well.
            Request::SET_LOG_FD => Ok(()),
            // SET_CONFIG among them: nothing in our configuration space can be written.
            _ => Err(Refused),
        }
    }

    fn set_features(&mut self, features: u64) -> Handled {
        // Logging begins and ends while queues run.
        let unchanged = self.features.is_some_and(|old| (old ^ features) & !F_LOG_ALL == 0);
        if features & !self.disk.features() != 0 || !unchanged && self.vrings.iter().any(|v| v.queue.is_some()) {
            return Err(Refused);
        }
        self.features = Some(features);
        // Without protocol features there is no SET_VRING_ENABLE: rings are enabled from the start.
        if features & F_PROTOCOL_FEATURES == 0 {
            self.vrings.iter_mut().for_each(|v| v.enabled = true);
        }
        (0..self.vrings.len()).for_each(|i| self.log_queue(i));
        Ok(())
    }

    /// Takes the bitmap in which the front end wants to find what has been written.
    fn set_log_base<F>(&mut self, payload: &[u8], fds: Vec<F>, memory: &mut M, out: &mut Vec<Action<F>>) -> Handled
    where
        M: Map<F>,
    {
        let wire = LogBase::read_from_bytes(payload).map_err(|_| Refused)?;
        if self.protocol & protocol::LOG_SHMFD == 0 || fds.len() != 1 {
            return Err(Refused);
        }
        let bytes = wire.mmap_size.get();
        // The file's last page has whole words.
        let mapped = bytes.checked_next_multiple_of(8).ok_or(Refused)?;
        let fd = fds.into_iter().next().ok_or(Refused)?;
        let log = DirtyLog::new(memory.map_words(fd, wire.mmap_offset.get(), mapped).map_err(|_| Refused)?, bytes);
        let places = (0..self.vrings.len()).filter_map(|i| self.ring_place(i, self.vrings[i].address?));
        if !places.into_iter().all(|place| place.is_in(&log)) {
            return Err(Refused);
        }
        self.log = Some(log);
        (0..self.vrings.len()).for_each(|i| self.log_queue(i));
        reply(Request::SET_LOG_BASE, &[], out);
        Ok(())
    }

    /// Where a ring is logged, if it is.
    fn ring_place(&self, index: usize, address: VringAddress) -> Option<RingPlace> {
        let logged = address.flags.get() & VringAddress::LOG != 0;
        let packed = self.features() & feature::RING_PACKED != 0;
        let ring = if packed { Some(self.to_guest(address.descriptor.get())?) } else { None };
        logged.then_some(RingPlace { used: address.log.get(), packed: ring, size: self.vrings[index].size })
    }

    /// Tells a started queue what to log.
    fn log_queue(&mut self, index: usize) {
        let data = self.features() & F_LOG_ALL != 0;
        let ring = self.vrings[index].address.and_then(|address| self.ring_place(index, address));
        let logging = Logging::new(self.log.as_ref(), data, ring);
        if let Some(queue) = &mut self.vrings[index].queue {
            queue.log(logging);
        }
    }

    fn set_protocol_features(&mut self, features: u64) -> Handled {
        if features & !self.disk.protocol() != 0 {
            return Err(Refused);
        }
        self.protocol = features;
        Ok(())
    }

    fn disable_all(&mut self) -> Handled {
        self.vrings.iter_mut().for_each(|v| v.enabled = false);
        Ok(())
    }

    fn reset<F>(&mut self, out: &mut Vec<Action<F>>) -> Handled {
        for (i, v) in self.vrings.iter_mut().enumerate() {
            if let Some(queue) = &v.queue {
                queue.close();
                out.push(Action::Stopped(i as u16));
            }
            *v = Vring::new();
        }
        (self.features, self.log) = (None, None);
        self.disk.renewed = false;
        Ok(())
    }

    fn set_mem_table<F>(&mut self, payload: &[u8], fds: Vec<F>, memory: &mut M, out: &mut Vec<Action<F>>) -> Handled
    where
        M: Map<F>,
    {
        let wire = memory_table(payload).ok_or(Refused)?;
        let regions: Vec<GuestRegion> =
            wire.iter().map(GuestRegion::from_wire).collect::<Option<_>>().ok_or(Refused)?;
        let clash = regions.iter().enumerate().any(|(i, r)| regions[..i].iter().any(|o| r.overlaps(o)));
        if clash || fds.len() != regions.len() {
            return Err(Refused);
        }
        memory.replace(regions.iter().copied().zip(fds).collect()).map_err(|_| Refused)?;
        self.regions = regions;
        self.resolve_all(memory, out);
        Ok(())
    }

    fn add_region<F>(&mut self, payload: &[u8], fds: Vec<F>, memory: &mut M, out: &mut Vec<Action<F>>) -> Handled
    where
        M: Map<F>,
    {
        let region = single_region(payload)?;
        let fd = fds.into_iter().next().ok_or(Refused)?;
        if self.regions.len() == MAX_REGIONS || self.regions.iter().any(|o| region.overlaps(o)) {
            return Err(Refused);
        }
        memory.add(region, fd).map_err(|_| Refused)?;
        self.regions.push(region);
        self.resolve_all(memory, out);
        Ok(())
    }

    fn remove_region<F>(&mut self, payload: &[u8], memory: &mut M, out: &mut Vec<Action<F>>) -> Handled
    where
        M: Map<F>,
    {
        let wanted = single_region(payload)?;
        // "Identified by its guest address, user address and size; the mmap offset is ignored."
        let same = |r: &GuestRegion| (r.guest, r.user, r.len) == (wanted.guest, wanted.user, wanted.len);
        let at = self.regions.iter().position(same).ok_or(Refused)?;
        let region = self.regions.swap_remove(at);
        memory.remove(&region);
        self.resolve_all(memory, out);
        Ok(())
    }

    /// Finds every started ring again; one that is in no memory any more is broken.
    fn resolve_all<F>(&mut self, memory: &M, out: &mut Vec<Action<F>>) {
        for i in 0..self.vrings.len() {
            self.resolve(i, memory, out);
        }
    }

    fn resolve<F>(&mut self, index: usize, memory: &M, out: &mut Vec<Action<F>>) {
        let places = self.places(index);
        let Some(queue) = self.vrings[index].queue.as_mut() else {
            return;
        };
        let broken = match places {
            Some(places) => queue.resolve(memory, &places),
            None => queue.lost(),
        };
        // What it had completed went out with that.
        if queue.wants_signal(memory) {
            out.push(Action::Signal(index as u16));
        }
        out.push(match broken {
            Ok(()) => Action::Poll(index as u16),
            Err(violation) => Action::Broken(index as u16, violation),
        });
        self.log_queue(index);
    }

    /// The guest addresses of a vring's parts.
    fn places(&self, index: usize) -> Option<RingAddresses> {
        let a = self.vrings[index].address?;
        Some(RingAddresses {
            descriptors: self.to_guest(a.descriptor.get())?,
            driver: self.to_guest(a.available.get())?,
            device: self.to_guest(a.used.get())?,
        })
    }

    fn to_guest(&self, user: u64) -> Option<u64> {
        let r = self.regions.iter().find(|r| user >= r.user && user - r.user < r.len)?;
        Some(r.guest + (user - r.user))
    }

    fn vring(&mut self, index: u32) -> Result<&mut Vring<M>, Refused> {
        self.vrings.get_mut(index as usize).ok_or(Refused)
    }

    fn state(&mut self, payload: &[u8]) -> Result<(&mut Vring<M>, u32), Refused> {
        let s = VringState::read_from_bytes(payload).map_err(|_| Refused)?;
        Ok((self.vring(s.index.get())?, s.num.get()))
    }

    fn set_num(&mut self, payload: &[u8]) -> Handled {
        let (vring, num) = self.state(payload)?;
        if num == 0 || num > u32::from(MAX_QUEUE_SIZE) || vring.queue.is_some() {
            return Err(Refused);
        }
        vring.size = num as u16;
        Ok(())
    }

    fn set_base(&mut self, payload: &[u8]) -> Handled {
        let (vring, num) = self.state(payload)?;
        if vring.queue.is_some() {
            return Err(Refused);
        }
        vring.base = num;
        Ok(())
    }

    fn set_address<F>(&mut self, payload: &[u8], memory: &M, out: &mut Vec<Action<F>>) -> Handled {
        let a = VringAddress::read_from_bytes(payload).map_err(|_| Refused)?;
        let index = a.index.get();
        self.vring(index)?;
        let outside = |log| self.ring_place(index as usize, a).is_some_and(|place| !place.is_in(log));
        if self.log.as_ref().is_some_and(outside) {
            return Err(Refused);
        }
        self.vring(index)?.address = Some(a);
        self.resolve(index as usize, memory, out);
        Ok(())
    }

    fn set_enable<F>(&mut self, payload: &[u8], out: &mut Vec<Action<F>>) -> Handled {
        let index = VringState::read_from_bytes(payload).map_err(|_| Refused)?.index.get();
        let (vring, num) = self.state(payload)?;
        vring.enabled = match num {
            0 => false,
            1 => true,
            _ => return Err(Refused),
        };
        if vring.enabled && vring.queue.is_some() {
            out.push(Action::Poll(index as u16));
        }
        Ok(())
    }

    fn vring_fd<F>(&mut self, payload: &[u8], fds: Vec<F>) -> Result<(u16, Option<F>), Refused> {
        let v = VringFd::read_from_bytes(payload).map_err(|_| Refused)?;
        self.vring(u32::from(v.index()))?;
        let fd = fds.into_iter().next();
        if v.has_fd() != fd.is_some() {
            return Err(Refused);
        }
        Ok((u16::from(v.index()), fd))
    }

    /// Whether the ring that an earlier process has started had been stopped when that one died, which the front end has not heard:
    /// it asks again, and hears what it would have heard then.
    fn stays_stopped<F>(&mut self, payload: &[u8], out: &mut Vec<Action<F>>) -> bool {
        let Ok(which) = VringFd::read_from_bytes(payload) else { return false };
        let packed = self.features() & feature::RING_PACKED != 0;
        let (index, journal) = (u16::from(which.index()), self.journal.as_ref());
        let Some(v) = self.vrings.get_mut(usize::from(index)).filter(|v| v.queue.is_none()) else { return false };
        let Some(base) = journal.and_then(|j| closed_at(j, index, packed, v.size)) else { return false };
        v.base = base;
        // Whoever stopped it may have published and not signalled.
        out.push(Action::Signal(index));
        true
    }

    /// A ring starts when its kick descriptor arrives (or word that there will be none).
    fn set_kick<F>(&mut self, payload: &[u8], fds: Vec<F>, memory: &M, out: &mut Vec<Action<F>>) -> Handled {
        let (queue, fd) = self.vring_fd(payload, fds)?;
        let index = usize::from(queue);
        if self.vrings[index].queue.is_none() {
            let features = self.features.ok_or(Refused)?;
            let places = self.places(index).ok_or(Refused)?;
            let most = self.disk.max_commands;
            let v = &mut self.vrings[index];
            let packed = features & feature::RING_PACKED != 0;
            if v.size == 0 || !packed && !v.size.is_power_of_two() {
                return Err(Refused);
            }
            let journal = self.journal.as_ref();
            let base = (v.base, v.stopped == Some(v.base));
            let (started, found) = Virtqueue::start(memory, queue, v.size, &places, base, features, most, journal)
                .map_err(|why| {
                    out.push(Action::Unusable(Some(queue), why));
                    Refused
                })?;
            v.queue = Some(started);
            self.log_queue(index);
            out.push(Action::Kick { queue, fd });
            out.push(Action::Started(queue));
            if let Some(found) = found {
                out.push(Action::Recovered(queue, found));
                // Whoever died may have published and not signalled.
                out.push(Action::Signal(queue));
            }
        } else {
            out.push(Action::Kick { queue, fd });
            out.push(Action::Poll(queue));
        }
        Ok(())
    }

    /// The queues whose journal the front end asks or offers a region for.
    fn inflight(&self, payload: &[u8]) -> Result<(Inflight, JournalShape), Refused> {
        let wire = Inflight::read_from_bytes(payload).map_err(|_| Refused)?;
        let shape =
            JournalShape { kind: QueueKind::Virtio, queues: wire.num_queues.get(), size: wire.queue_size.get() };
        let sound = (1..=Disk::MAX_QUEUES).contains(&shape.queues) && (1..=MAX_QUEUE_SIZE).contains(&shape.size);
        if sound && self.disk.journal { Ok((wire, shape)) } else { Err(Refused) }
    }

    /// Why there is no region for that many queues.
    fn say_shape<F>(&self, payload: &[u8], out: &mut Vec<Action<F>>) {
        if let (true, Ok(wire)) = (self.disk.journal, Inflight::read_from_bytes(payload)) {
            let asked = (wire.num_queues.get(), wire.queue_size.get());
            let most = (self.vrings.len() as u16, MAX_QUEUE_SIZE);
            out.push(Action::Unusable(None, StartError::Region { asked, most }));
        }
    }

    /// Makes a region for the front end to keep. It is used once the front end hands it back.
    fn get_inflight<F>(&mut self, payload: &[u8], memory: &mut M, out: &mut Vec<Action<F>>) -> Handled
    where
        M: Map<F>,
    {
        let wanted = self.inflight(payload).ok().filter(|(_, shape)| usize::from(shape.queues) <= self.vrings.len());
        let Some((wire, shape)) = wanted else {
            self.say_shape(payload, out);
            return Err(Refused);
        };
        let (_, fd) = memory.make_words(shape.bytes()).map_err(|_| Refused)?;
        let (mmap_size, mmap_offset) = (U64::new(shape.bytes()), U64::ZERO);
        let answer =
            Inflight { mmap_size, mmap_offset, num_queues: wire.num_queues, queue_size: wire.queue_size, ..wire };
        out.push(Action::ReplyWith(answered(Request::GET_INFLIGHT_FD, answer.as_bytes()), fd));
        Ok(())
    }

    /// Takes a region that the front end kept, new or from an earlier life of the device.
    fn set_inflight<F>(&mut self, payload: &[u8], fds: Vec<F>, memory: &mut M, out: &mut Vec<Action<F>>) -> Handled
    where
        M: Map<F>,
    {
        let (wire, shape) = self.inflight(payload)?;
        if self.vrings.iter().any(|v| v.queue.is_some()) {
            return Err(Refused);
        }
        let fd = fds.into_iter().next().ok_or(Refused)?;
        let words = memory.map_words(fd, wire.mmap_offset.get(), wire.mmap_size.get()).map_err(|_| Refused)?;
        let journal = Journal::of_medium(words, shape, self.disk.medium).map_err(|e| {
            out.push(Action::Unusable(None, e.into()));
            Refused
        })?;
        self.journal = Some(journal);
        Ok(())
    }

    /// Stops a ring. The answer waits until nothing is in flight.
    fn get_base<F>(&mut self, payload: &[u8], memory: &M, out: &mut Vec<Action<F>>) -> Handled {
        let index = VringState::read_from_bytes(payload).map_err(|_| Refused)?.index.get();
        let vring = self.vring(index)?;
        if let Some(q) = vring.queue.as_mut() {
            q.drain();
            self.draining = Some(index as u16);
            // What a disabled ring had is given out from here on: what was recovered, and the rest of a request in several commands.
            out.push(Action::Poll(index as u16));
            self.settle(memory, out);
        } else {
            let state = VringState { index: U32::new(index), num: U32::new(vring.base) };
            reply(Request::GET_VRING_BASE, state.as_bytes(), out);
        }
        Ok(())
    }

    /// Sends the answer that waited for requests in flight, if they are all done. To be called after completions.
    pub fn settle<F>(&mut self, memory: &M, out: &mut Vec<Action<F>>) {
        let Some(index) = self.draining else {
            return;
        };
        let vring = &mut self.vrings[usize::from(index)];
        if let Some(q) = vring.queue.as_mut() {
            if q.in_flight() != 0 {
                return;
            }
            q.publish(memory);
            if q.wants_signal(memory) {
                out.push(Action::Signal(index));
            }
            vring.base = q.base();
            vring.stopped = q.is_placed().then_some(vring.base);
            q.close();
            vring.queue = None;
            out.push(Action::Stopped(index));
        }
        let state = VringState { index: U32::new(u32::from(index)), num: U32::new(vring.base) };
        reply(Request::GET_VRING_BASE, state.as_bytes(), out);
        self.draining = None;
    }

    fn get_config<F>(&mut self, payload: &[u8], out: &mut Vec<Action<F>>) -> Handled {
        let Some((head, data)) = config_payload(payload) else {
            // "An error is indicated by a payload of length 0."
            reply(Request::GET_CONFIG, &[], out);
            return Ok(());
        };
        let config = self.disk.config(self.features.unwrap_or(u64::MAX));
        // A front end that knows a longer structure finds zeroes in the fields that we do not.
        let mut space = [0; MAX_CONFIG];
        space[..size_of_val(&config)].copy_from_slice(config.as_bytes());
        let from = head.offset.get() as usize;
        let Some(bytes) = from.checked_add(data.len()).and_then(|to| space.get(from..to)) else {
            reply(Request::GET_CONFIG, &[], out);
            return Ok(());
        };
        let mut answer = Vec::with_capacity(size_of::<ConfigHeader>() + bytes.len());
        answer.extend_from_slice(head.as_bytes());
        answer.extend_from_slice(bytes);
        reply(Request::GET_CONFIG, &answer, out);
        Ok(())
    }

    /// The disk has another size now, 0 when it has gone: requests beyond it fail, and the front end is told.
    pub fn resize<F>(&mut self, sectors: u64, out: &mut Vec<Action<F>>) {
        if self.disk.sectors == sectors {
            return;
        }
        self.disk.sectors = sectors;
        self.tell_config_change(out);
    }

    /// It may be another disk soon: its journal is for whichever it is when that is opened again.
    pub fn leave_medium(&mut self) {
        self.journal.iter_mut().for_each(|journal| journal.move_to(0));
    }

    /// It is another disk now, with that serial, on that medium: the front end is told to look at it again, and its journal goes on. Its requests fail
    /// until the driver has asked for the serial, or the device is reset: a driver has no other way to say that it knows.
    pub fn renew<F>(&mut self, serial: &str, medium: u64, out: &mut Vec<Action<F>>) {
        (self.disk.serial, self.disk.medium, self.disk.renewed) = (Disk::id(serial), medium, true);
        self.journal.iter_mut().for_each(|journal| journal.move_to(medium));
        self.tell_config_change(out);
    }

    fn tell_config_change<F>(&self, out: &mut Vec<Action<F>>) {
        let wanted = protocol::CONFIG | protocol::BACKEND_REQ;
        if self.channel && self.protocol & wanted == wanted {
            out.push(Action::Tell(Header::backend(BackendRequest::CONFIG_CHANGE_MSG, 0).as_bytes().to_vec()));
        }
    }

    /// Whether its parts agree; for tests.
    ///
    /// # Panics
    /// If they do not.
    pub fn check(&self) {
        for v in &self.vrings {
            if let Some(q) = &v.queue {
                q.check();
                assert!(v.size != 0 && v.address.is_some(), "a started queue has a size and a place");
            }
        }
        if let Some(i) = self.draining {
            assert!(self.queue(i).is_some(), "a drain is of a started queue");
        }
    }
}

fn value(payload: &[u8]) -> Result<u64, Refused> {
    U64::read_from_bytes(payload).map(U64::get).map_err(|_| Refused)
}

fn single_region(payload: &[u8]) -> Result<GuestRegion, Refused> {
    let wire = SingleRegion::read_from_bytes(payload).map_err(|_| Refused)?;
    GuestRegion::from_wire(&wire.region).ok_or(Refused)
}

fn reply<F>(request: Request, payload: &[u8], out: &mut Vec<Action<F>>) {
    out.push(Action::Reply(answered(request, payload)));
}

fn answered(request: Request, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of::<Header>() + payload.len());
    bytes.extend_from_slice(Header::reply(request, payload.len() as u32).as_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn number<F>(request: Request, value: u64, out: &mut Vec<Action<F>>) -> Handled {
    reply(request, U64::new(value).as_bytes(), out);
    Ok(())
}

/// Whether the message has an answer of its own, which stands for the acknowledgement.
pub fn has_reply(request: Request) -> bool {
    matches!(
        request,
        Request::GET_FEATURES
            | Request::GET_PROTOCOL_FEATURES
            | Request::GET_QUEUE_NUM
            | Request::GET_MAX_MEM_SLOTS
            | Request::GET_VRING_BASE
            | Request::GET_CONFIG
            | Request::GET_INFLIGHT_FD
            | Request::SET_LOG_BASE
    )
}
