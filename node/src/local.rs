//! A drive in the caller's own thread: its clients' rings and buffers are plain memory here, and polling one of them runs
//! the drive.
//!
//! ```text
//!   Local ── Device (machine, media)
//!     │        │ Host
//!     │        ▼
//!     └─ Memories ── one Vec per client: admin rings, I/O rings, buffers (layout: weir_driver::nvme::Plan)
//!            ▲
//!   LocalQueuePair (a view of one client) ── weir_driver::nvme::IoQueue
//! ```
//! Each client has a controller of its own, under its tenant; all share the one namespace.

use crate::device::{Device, OpenError};
use std::ops::Range;
use weir_config::DeviceConfig;
use weir_controller::{
    Attach, ClassFrom, ControllerHandle, ControllerInfo, DataPiece, DataPointer, Direction, DriveStats, Event, Host,
    Owner, Tag, TenantConfig, TransportModel, Walk,
};
use weir_drive::FlashFigures;
use weir_drive::machine_config;
use weir_driver::nvme::{AdminQueue, BringUp, ControllerPlan, IoQueue, Port, QueuePlan, Remake};
use weir_driver::{Done, Io, QueuePair, TransportError};
use weir_spec::nvme::register::{Doorbell, ams};
use weir_spec::nvme::{Cqe, Sqe, Status};
use weir_sys::reactor::{Reactor, ReactorError, Ready};
use weir_units::{Class, Nanos};
use zerocopy::{FromBytes, IntoBytes};

/// Where a client's memory begins in its own addresses: 0 stays what it is everywhere, no address.
const BASE: u64 = 4096;

/// A tenant of a local drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalTenant {
    /// For messages and statistics.
    pub name: String,
    /// Class of its queues, and the highest that one may ask for ([`Local::connect_in`]).
    pub class: Class,
}

/// Why there is no local drive.
#[derive(Debug)]
pub enum LocalError {
    /// The drive cannot be had.
    Open(OpenError),
    /// The kernel's part of it cannot.
    Reactor(ReactorError),
}

impl std::fmt::Display for LocalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LocalError::Open(e) => e.fmt(f),
            LocalError::Reactor(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for LocalError {}

/// A drive and its clients; see the [module](self).
pub struct Local {
    device: Device,
    reactor: Reactor,
    events: Vec<Ready>,
    hosts: Memories,
    clients: Vec<Client>,
    /// Somebody wants to know when commands were due.
    keeps_dues: bool,
}

struct Client {
    controller: ControllerHandle,
    admin: AdminQueue,
    queue: IoQueue,
    /// The queue is being made anew.
    remake: Option<Remake>,
    /// Its buffers' place in its memory.
    max_io: u32,
}

/// The clients' memories, by owner.
#[derive(Default)]
struct Memories(Vec<Box<[u8]>>);

impl Local {
    /// Opens a drive for these tenants; a client names its tenant by its place here.
    ///
    /// # Errors
    /// Says what cannot be had and what to change.
    pub fn open(config: &DeviceConfig, tenants: &[LocalTenant], now: Nanos) -> Result<Local, LocalError> {
        let mut machine = machine_config(config);
        // An urgent tenant is what the operator asked for: here they are the same person.
        let tenant = |t: &LocalTenant| TenantConfig {
            urgent: t.class == Class::Urgent,
            class_from: ClassFrom::Qprio,
            hosts: Vec::new(),
            ..TenantConfig::new(&t.name, t.class)
        };
        machine.tenants = tenants.iter().map(tenant).collect();
        let device = Device::open(config, machine, now).map_err(LocalError::Open)?;
        let reactor = Reactor::new().map_err(LocalError::Reactor)?;
        let (events, hosts, clients) = (Vec::with_capacity(256), Memories::default(), Vec::new());
        Ok(Local { device, reactor, events, hosts, clients, keeps_dues: false })
    }

    /// Another client: a controller under that tenant, brought up, with one queue pair of `depth` requests of at most
    /// `buffer` bytes. Its number is its place.
    ///
    /// # Errors
    /// The drive has no such tenant, as many controllers as it may, or no queue as deep.
    pub fn connect(
        &mut self,
        tenant: u16,
        name: &str,
        depth: u32,
        buffer: u32,
        now: Nanos,
    ) -> Result<usize, TransportError> {
        self.connect_with(tenant, name, ControllerPlan::new(BASE, depth, buffer), now)
    }

    /// The same, with a submission queue that asks for a class by its QPRIO: weighted round robin is selected at the controller,
    /// without which QPRIO does not count.
    ///
    /// # Errors
    /// As [`Local::connect`].
    pub fn connect_in(
        &mut self,
        tenant: u16,
        name: &str,
        (depth, buffer): (u32, u32),
        priority: Class,
        now: Nanos,
    ) -> Result<usize, TransportError> {
        let queues = vec![QueuePlan { depth, priority }];
        self.connect_with(
            tenant,
            name,
            ControllerPlan { ams: ams::WRR, queues, ..ControllerPlan::new(BASE, depth, buffer) },
            now,
        )
    }

    fn connect_with(
        &mut self,
        tenant: u16,
        name: &str,
        plan: ControllerPlan,
        now: Nanos,
    ) -> Result<usize, TransportError> {
        let owner = Owner(self.clients.len() as u32);
        let attach = Attach { tenant, owner, model: TransportModel::Rings, host: name.into() };
        let machine = self.device.machine_mut();
        let controller = machine.attach(now, attach).map_err(|e| TransportError::Refused(e.to_string()))?;
        self.hosts.0.push(vec![0; plan.memory() as usize].into_boxed_slice());
        let mut bring_up = BringUp::new(plan);
        let mut later = now;
        let mut ready = loop {
            let mut port =
                LocalPort { device: &mut self.device, hosts: &mut self.hosts, controller, owner, now: later };
            if let Some(ready) = bring_up.poll(later, &mut port)? {
                break ready;
            }
            self.run(later);
            // Nobody waits for a clock here: time passes as fast as the drive needs it.
            later = later.saturating_add(Nanos::from_millis(1));
        };
        let queue = ready.queues.remove(0);
        let max_io = queue.max_io();
        self.clients.push(Client { controller, admin: ready.admin, queue, remake: None, max_io });
        Ok(self.clients.len() - 1)
    }

    /// Makes the submission queue of a client of [`Local::connect_in`] anew, with another QPRIO. Nothing may be in flight on
    /// it. To be called again until it says true; meanwhile nothing may be submitted.
    ///
    /// # Errors
    /// Something is in flight, or the controller refuses.
    pub fn set_priority(&mut self, client: usize, priority: Class, now: Nanos) -> Result<bool, TransportError> {
        let Local { device, hosts, clients, .. } = self;
        let Client { controller, admin, queue, remake, .. } = &mut clients[client];
        let mut port = LocalPort { device, hosts, controller: *controller, owner: Owner(client as u32), now };
        let made = remake.get_or_insert_with(|| Remake::new(priority)).poll(now, admin, queue, &mut port)?;
        if made {
            *remake = None;
        } else {
            self.run(now);
        }
        Ok(made)
    }

    /// The clients' controllers, with their queues' classes.
    pub fn controllers(&self) -> Vec<ControllerInfo> {
        self.device.machine().controllers()
    }

    /// Runs the drive: serves what may be served now.
    pub fn run(&mut self, now: Nanos) {
        if self.reactor.files_in_flight() > 0 {
            self.reactor.turn(&mut self.events);
            for event in self.events.drain(..) {
                if let Ready::File(done) = event {
                    self.device.file_done(done, now, &mut self.hosts, &mut self.reactor);
                }
            }
        }
        self.device.run(now, &mut self.hosts, &mut self.reactor, Nanos::NEVER);
        if !self.keeps_dues {
            self.device.deadlines().forget();
        }
    }

    /// From now on [`take_dues`](Self::take_dues) is called after every run.
    pub fn keep_dues(&mut self) {
        self.keeps_dues = true;
    }

    /// Appends when the commands were due whose completions were posted since the last time, in the order of these.
    pub fn take_dues(&mut self, into: &mut Vec<Nanos>) {
        into.extend(self.device.deadlines().take_handed());
    }

    /// What was due before the drive is told anything at `now`.
    #[inline]
    fn catch_up(&mut self, now: Nanos) {
        self.device.catch_up(now, &mut self.hosts, &mut self.reactor, Nanos::NEVER);
    }

    /// A client's queue pair, polled at `now`.
    #[inline]
    pub fn queue(&mut self, client: usize, now: Nanos) -> LocalQueuePair<'_> {
        LocalQueuePair { local: self, client, now }
    }

    /// Bytes of the namespace.
    pub fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        self.device.block_size()
    }

    /// What the drive has done so far.
    pub fn stats(&self) -> DriveStats {
        self.device.machine().stats()
    }

    /// What its flash has done until `now`, if it has any inside.
    pub fn flash(&self, now: Nanos) -> Option<FlashFigures> {
        self.device.flash().map(|flash| flash.figures(now))
    }
}

/// A client's queue pair while it is polled at one moment.
pub struct LocalQueuePair<'a> {
    local: &'a mut Local,
    client: usize,
    now: Nanos,
}

/// The client and its port; a macro because both borrow single fields of the drive.
macro_rules! parts {
    ($pair:ident) => {{
        let Local { device, hosts, clients, .. } = &mut *$pair.local;
        let client = &mut clients[$pair.client];
        let (controller, owner) = (client.controller, Owner($pair.client as u32));
        (client, LocalPort { device, hosts, controller, owner, now: $pair.now })
    }};
}

impl LocalQueuePair<'_> {
    /// Rings the doorbell for what was submitted, without running the drive.
    #[inline]
    pub fn flush(&mut self) {
        self.local.catch_up(self.now);
        let (client, mut port) = parts!(self);
        client.queue.flush(&mut port);
    }

    /// Appends what has finished, without running the drive.
    ///
    /// # Errors
    /// As [`QueuePair::poll`].
    #[inline]
    pub fn reap(&mut self, done: &mut Vec<Done>) -> Result<(), TransportError> {
        self.local.catch_up(self.now);
        let (client, mut port) = parts!(self);
        client.queue.reap(&mut port, done)
    }
}

impl LocalQueuePair<'_> {
    /// Requests submitted and not reaped.
    pub fn in_flight(&self) -> u32 {
        self.local.clients[self.client].queue.rings().in_flight()
    }
}

impl QueuePair for LocalQueuePair<'_> {
    #[inline]
    fn depth(&self) -> u32 {
        self.local.clients[self.client].queue.depth()
    }

    #[inline]
    fn block_size(&self) -> u32 {
        self.local.clients[self.client].queue.block_size()
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.local.clients[self.client].queue.capacity()
    }

    #[inline]
    fn max_io(&self) -> u32 {
        self.local.clients[self.client].max_io
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        let client = &self.local.clients[self.client];
        let at = (client.queue.buffer(slot) - BASE) as usize;
        &mut self.local.hosts.0[self.client][at..at + client.max_io as usize]
    }

    #[inline]
    fn submit(&mut self, io: Io) -> Result<(), TransportError> {
        io.check(self)?;
        let (client, mut port) = parts!(self);
        client.queue.submit(&mut port, io)
    }

    #[inline]
    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), TransportError> {
        self.flush();
        self.local.run(self.now);
        self.reap(done)
    }
}

/// How a client's driver reaches its controller: calls, and the client's own memory.
struct LocalPort<'a> {
    device: &'a mut Device,
    hosts: &'a mut Memories,
    controller: ControllerHandle,
    owner: Owner,
    now: Nanos,
}

impl Port for LocalPort<'_> {
    fn register(&mut self, offset: u32, size: u8) -> u64 {
        self.device.machine().register(self.controller, offset, size)
    }

    fn set_register(&mut self, offset: u32, value: u64, size: u8) {
        let event = Event::Register { controller: self.controller, offset, value, size };
        self.device.apply(self.now, event, self.hosts);
    }

    #[inline]
    fn doorbell(&mut self, doorbell: Doorbell, value: u32) {
        let controller = self.controller;
        let event = match doorbell {
            Doorbell::SqTail(qid) => Event::SqTail { controller, qid, tail: value },
            Doorbell::CqHead(qid) => Event::CqHead { controller, qid, head: value },
        };
        self.device.apply(self.now, event, self.hosts);
    }

    fn read(&mut self, address: u64, into: &mut [u8]) {
        let found = self.hosts.slice(self.owner, address, into.len());
        into.copy_from_slice(found.unwrap_or_default());
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        if let Some(place) = self.hosts.slice_mut(self.owner, address, bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    #[inline]
    fn put(&mut self, address: u64, entry: &[u64; 8]) {
        let Some(place) = self.hosts.slice_mut(self.owner, address, size_of::<Sqe>()) else { return };
        for (bytes, word) in place.chunks_exact_mut(8).zip(entry) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    #[inline]
    fn take(&mut self, address: u64, phase: bool) -> Option<Cqe> {
        let cqe = Cqe::read_from_bytes(self.hosts.slice(self.owner, address, size_of::<Cqe>())?).ok()?;
        (cqe.phase() == phase).then_some(cqe)
    }
}

impl Memories {
    #[inline]
    fn range(address: u64, len: usize) -> Option<Range<usize>> {
        let at = address.checked_sub(BASE)? as usize;
        Some(at..at.checked_add(len)?)
    }

    #[inline]
    fn slice(&self, owner: Owner, address: u64, len: usize) -> Option<&[u8]> {
        self.0.get(owner.0 as usize)?.get(Self::range(address, len)?)
    }

    #[inline]
    fn slice_mut(&mut self, owner: Owner, address: u64, len: usize) -> Option<&mut [u8]> {
        self.0.get_mut(owner.0 as usize)?.get_mut(Self::range(address, len)?)
    }

    /// Calls `each` with every contiguous piece of `len` bytes at `offset` of a command's data, and the piece's place in them.
    #[inline]
    fn pieces(
        &mut self,
        owner: Owner,
        (data, direction): (&DataPointer, Direction),
        offset: u32,
        len: usize,
        mut each: impl FnMut(&mut [u8], Range<usize>),
    ) -> Result<(), Status> {
        let mut walk = Walk::new(data, direction, offset, len as u32);
        let mut at = 0;
        loop {
            let mut read = |address, into: &mut [u8]| {
                into.copy_from_slice(self.slice(owner, address, into.len()).ok_or(Status::DATA_TRANSFER_ERROR)?);
                Ok(())
            };
            let Some(piece) = walk.next(&mut read)? else { return Ok(()) };
            let range = at..at + piece.len() as usize;
            if let DataPiece::Memory { address, len } = piece {
                each(self.slice_mut(owner, address, len as usize).ok_or(Status::DATA_TRANSFER_ERROR)?, range.clone());
            }
            at = range.end;
        }
    }
}

impl Host for Memories {
    #[inline]
    fn fetch(&mut self, owner: Owner, address: u64) -> Result<[u64; 8], Status> {
        let bytes = self.slice(owner, address, size_of::<Sqe>()).ok_or(Status::DATA_TRANSFER_ERROR)?;
        bytes.try_into().map(Sqe::words_of).map_err(|_| Status::DATA_TRANSFER_ERROR)
    }

    #[inline]
    fn post(&mut self, owner: Owner, address: u64, _: Option<u16>, cqe: &Cqe) -> Result<(), Status> {
        let place = self.slice_mut(owner, address, size_of::<Cqe>()).ok_or(Status::DATA_TRANSFER_ERROR)?;
        place.copy_from_slice(cqe.as_bytes());
        Ok(())
    }

    fn interrupt(&mut self, _: Owner, _: u16) {}
    fn respond(&mut self, _: Owner, _: Tag, _: &Cqe) {
        unreachable!("there are no message queues here");
    }

    #[inline]
    fn read_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        self.pieces(owner, (data, Direction::FromHost), offset, into.len(), |bytes, at| into[at].copy_from_slice(bytes))
    }

    #[inline]
    fn write_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        self.pieces(owner, (data, Direction::ToHost), offset, from.len(), |bytes, at| bytes.copy_from_slice(&from[at]))
    }

    /// The client reads its own memory: what the null medium does not have need not be written there.
    #[inline]
    fn write_nothing(&mut self, _: Owner, _: &DataPointer, _: u32, _: u32) -> Result<(), Status> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
