//! One drive: its controllers, queues and slots, and the front door of the machine.

use crate::config::{ClassFrom, Config, DiscoveryRecord, Kind};
use crate::controller::{Controller, Features, Shutdown, Transport};
use crate::event::{ControllerHandle, Effect, Effects, Event, SlotId, SqHandle};
use crate::host::{Host, Owner};
use crate::io::Fetched;
use crate::namespace::{self, Namespace, Namespaces};
use crate::queue::{Command, Cq, NONE, Sq, SqState};
use crate::slots::Slots;
use crate::tenant::Tenant;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use weir_arbiter::{Arbiter, Mechanism};
use weir_spec::nvme::fabrics::nqn_valid;
use weir_spec::nvme::register::{Aqa, Cc, Csts};
use weir_units::{Class, Nanos};

/// How a controller's queues reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Registers, doorbells, queues in host memory; the host enables it.
    Rings,
    /// Message queues of a door in this process; ready at once, no admin queue.
    Front,
}

/// A controller that does not come by Connect.
#[derive(Clone, Debug)]
pub struct Attach {
    /// Its tenant's place in the configuration.
    pub tenant: u16,
    /// Given back in the `Host` calls of its rings.
    pub owner: Owner,
    /// How its queues reach it.
    pub model: Model,
    /// Who it is, for `weir status`.
    pub host: String,
}

/// Why a management call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No tenant of that number or name.
    NoTenant,
    /// No such controller, or not of the model that the call is for.
    NoController,
    /// No such namespace.
    NoNamespace,
    /// The configured number of controllers or queues is reached.
    Full,
    /// A queue of no entry or more than the drive's largest.
    QueueSize,
    /// Two namespaces of one NSID, an NSID of 0 or above 1024, a block size other than 512 and 4096, or a size or start
    /// that is no multiple of it.
    Namespace,
    /// A subsystem name that is no NQN.
    Nqn,
    /// No slots, no queue entries, or a weight or quantum of zero.
    Range,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Error::NoTenant => "there is no such tenant",
            Error::NoController => "there is no such controller, or it is of another kind",
            Error::NoNamespace => "there is no such namespace",
            Error::Full => "the drive has as many controllers or queues as it may have",
            Error::QueueSize => "the queue depth is zero or larger than the drive permits",
            Error::Namespace => {
                "a namespace needs an identifier of its own from 1 to 1024, a block size of 512 or 4096, and a start and size \
                 that are multiples of it"
            }
            Error::Nqn => "the subsystem's name is no NQN (nqn.…, at most 223 bytes)",
            Error::Range => "slots, queue entries, weights and quanta must be at least 1",
        })
    }
}

impl core::error::Error for Error {}

/// One drive (or the discovery service).
#[derive(Debug)]
pub struct Subsystem {
    pub(crate) config: Config,
    pub(crate) started: Nanos,
    pub(crate) arbiter: Arbiter,
    /// [`Mechanism::None`]: commands are fetched whether slots are free or not.
    pub(crate) eager: bool,
    /// MDTS in bytes.
    pub(crate) mdts: u64,
    pub(crate) namespaces: Namespaces,
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) controllers: Vec<Option<Box<Controller>>>,
    /// Where the search for a free controller begins, so that identifiers are not reused at once.
    pub(crate) next_controller: usize,
    /// A new generation for each controller.
    pub(crate) generation: u16,
    /// By arbiter key.
    pub(crate) queues: Vec<Option<Sq>>,
    pub(crate) queue_generation: u8,
    pub(crate) cqs: Vec<Option<Cq>>,
    pub(crate) slots: Slots,
    /// Commands that left their queue and wait for bytes in flight (or, eagerly fetched, for a slot), in order.
    pub(crate) fetched: VecDeque<Fetched>,
    /// Queues whose connection is to be closed and whose door does not know yet.
    pub(crate) condemned: VecDeque<SqHandle>,
    /// Controllers with admin commands, in turn.
    pub(crate) admin_ready: VecDeque<u32>,
    /// Controllers whose tenant has spent its admin commands.
    pub(crate) admin_held: Vec<u32>,
    pub(crate) admin_done: u64,
    /// No keep alive timer expires before this.
    pub(crate) keep_alive_next: Nanos,
    pub(crate) discovery: Vec<DiscoveryRecord>,
    pub(crate) discovery_generation: u64,
    pub(crate) errors: u64,
    pub(crate) media_errors: u64,
    /// Since when something is in flight, and for how long something was before.
    pub(crate) busy_since: Option<Nanos>,
    pub(crate) busy: u64,
    /// For admin answers; `IDENTIFY_LEN` bytes.
    pub(crate) scratch: Box<[u8]>,
    pub(crate) more: bool,
    /// Commands died since the last `Run` began: effects may name them.
    pub(crate) died: bool,
}

impl Subsystem {
    /// A drive at rest. `now` is when it was powered on.
    pub fn new(mut config: Config, now: Nanos) -> Result<Self, Error> {
        if !nqn_valid(&config.subnqn) {
            return Err(Error::Nqn);
        }
        if config.slots == 0 || config.slots > MAX_SLOTS || !(2..=65536).contains(&config.max_queue_entries) {
            return Err(Error::Range);
        }
        if config.tenants.is_empty() {
            config.tenants.push(crate::config::TenantConfig::new("default", Class::Medium));
        }
        let mut arbiter = Arbiter::new(config.arbitration);
        let tenants = config.tenants.iter().map(|t| Tenant::new(arbiter.add_tenant(t.weight), t.clone())).collect();
        let namespaces = build_namespaces(&config)?;
        Ok(Self {
            started: now,
            arbiter,
            eager: config.arbitration.mechanism == Mechanism::None,
            mdts: if config.mdts == 0 { u64::MAX } else { 4096u64.checked_shl(config.mdts.into()).unwrap_or(u64::MAX) },
            namespaces,
            tenants,
            controllers: Vec::new(),
            next_controller: 0,
            generation: 0,
            queues: Vec::new(),
            queue_generation: 0,
            cqs: Vec::new(),
            slots: Slots::new(config.slots, config.slot_bytes),
            fetched: VecDeque::with_capacity(64),
            condemned: VecDeque::new(),
            admin_ready: VecDeque::new(),
            admin_held: Vec::new(),
            admin_done: 0,
            keep_alive_next: Nanos::NEVER,
            discovery: Vec::new(),
            discovery_generation: 0,
            errors: 0,
            media_errors: 0,
            busy_since: None,
            busy: 0,
            scratch: alloc::vec![0; weir_spec::nvme::identify::IDENTIFY_LEN].into(),
            more: false,
            died: false,
            config,
        })
    }

    /// Takes one event to its end.
    #[inline]
    pub fn apply<H: Host>(&mut self, now: Nanos, event: Event, host: &mut H, effects: &mut Effects) {
        match event {
            Event::Run => self.run(now, host, effects),
            Event::Done { slot, status } => self.done(now, slot.0, status, host),
            Event::SqTail { controller, qid, tail } => {
                if let Some(c) = self.resolve(controller) {
                    self.ring_tail(c, qid, tail, host);
                }
            }
            Event::CqHead { controller, qid, head } => {
                if let Some(c) = self.resolve(controller) {
                    self.ring_head(c, qid, head, host);
                }
            }
            Event::Capsule { queue, sqe, tag } => self.capsule(queue, &sqe, tag, host),
            Event::Submit { queue, request, tag } => self.submit(queue, &request, tag),
            Event::Register { controller, offset, value, size } => {
                if let Some(c) = self.resolve(controller) {
                    self.write_register(now, c, (offset, value, size), host);
                }
            }
            Event::Tick => {
                self.run(now, host, effects);
                self.expire(now);
                self.announce(effects);
            }
        }
        if !matches!(event, Event::Run | Event::Tick) {
            self.more = true;
        } else if self.died {
            self.withdraw_dead(effects);
        }
    }

    /// When `Tick` is due: a latency, keep-alive or admin-rate deadline.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let held = self.admin_held.iter().filter_map(|c| self.ctrl(*c)).map(|ctrl| self.admin_due(ctrl)).min();
        let keep_alive = Some(self.keep_alive_next).filter(|t| *t != Nanos::NEVER);
        [self.slots.next_due(), held, keep_alive].into_iter().flatten().min()
    }

    pub(crate) fn admin_due(&self, ctrl: &Controller) -> Nanos {
        self.tenants[usize::from(ctrl.tenant)].admin_due(self.config.admin_rate)
    }

    /// Whether `Run` could do something now: something happened since the last one, or more was to do than fitted.
    pub fn has_work(&self) -> bool {
        self.more || !self.condemned.is_empty() || !self.admin_ready.is_empty() || self.slots.has_ready()
    }

    /// Whether the command in this slot still has somebody to answer to; if not, `data` must not be touched (writes whose
    /// data is already read go on). The slot is given back with `Done` either way.
    pub fn is_live(&self, slot: SlotId) -> bool {
        self.slots.get(slot).is_some_and(|s| s.queue != NONE || s.internal)
    }

    /// Slot numbers are below this; it can grow a little when controllers shut down.
    pub fn slot_limit(&self) -> u32 {
        self.slots.slots.len() as u32
    }

    /// A controller that does not come by Connect.
    pub fn attach(&mut self, now: Nanos, attach: Attach) -> Result<ControllerHandle, Error> {
        if usize::from(attach.tenant) >= self.tenants.len() {
            return Err(Error::NoTenant);
        }
        if self.config.kind != Kind::Io {
            return Err(Error::NoController);
        }
        let transport = if attach.model == Model::Rings { Transport::Rings } else { Transport::Front };
        let c = self.make_controller(transport, attach.tenant, attach.owner, attach.host).ok_or(Error::Full)?;
        let ctrl = self.ctrl_mut(c).expect("just made");
        if transport == Transport::Front {
            ctrl.cc = Cc(0).with_en(1);
            ctrl.csts = Csts(0).with_rdy(1);
            ctrl.keep_alive(now);
        }
        Ok(ctrl.handle(c))
    }

    /// Removes an attached controller with its queues; their commands die silently.
    pub fn detach(&mut self, _now: Nanos, controller: ControllerHandle) {
        let Some(c) = self.resolve(controller) else { return };
        if self.ctrl(c).is_some_and(|ctrl| ctrl.transport != Transport::Fabrics) {
            self.drop_controller(c);
        }
    }

    /// Front controllers: another queue of `depth` commands; `wish` is the class its peer wants.
    pub fn add_message_queue(
        &mut self,
        controller: ControllerHandle,
        depth: u32,
        wish: Option<Class>,
        owner: Owner,
    ) -> Result<SqHandle, Error> {
        let c = self.resolve(controller).ok_or(Error::NoController)?;
        let ctrl = self.ctrl(c).filter(|ctrl| ctrl.transport == Transport::Front).ok_or(Error::NoController)?;
        if depth == 0 || depth > self.config.max_queue_entries {
            return Err(Error::QueueSize);
        }
        let free = (1..=self.config.max_io_queues).find(|qid| ctrl.sq(*qid) == NONE).ok_or(Error::Full)?;
        let q = self.make_sq(c, free, depth, owner, wish, Class::Medium);
        let sq = self.sq_mut(q);
        sq.pending = alloc::vec![Command::default(); depth as usize].into();
        sq.flow_off = true;
        Ok(sq.handle())
    }

    /// The peer's wish changed (counts with `class_from = "peer"`).
    pub fn set_queue_wish(&mut self, queue: SqHandle, wish: Option<Class>) {
        if let Some(q) = self.resolve_queue(queue) {
            self.sq_mut(q).wish = wish;
            self.classify(q);
        }
    }

    /// Commands of this message queue that are waiting or in flight.
    pub fn outstanding(&self, queue: SqHandle) -> u32 {
        self.resolve_queue(queue).map_or(0, |q| self.sq(q).waiting + self.sq(q).in_flight)
    }

    /// Reads a register of a ring controller; `size` is 4 or 8.
    pub fn register(&self, controller: ControllerHandle, offset: u32, size: u8) -> u64 {
        self.resolve(controller).map_or(0, |c| self.read_register(c, offset, size))
    }
}

/// Who speaks for a queue of such a controller.
fn wish_from(transport: Transport) -> ClassFrom {
    match transport {
        Transport::Fabrics => ClassFrom::Cattr,
        Transport::Rings => ClassFrom::Qprio,
        Transport::Front => ClassFrom::Peer,
    }
}

/// Slots fit into the timers' words.
const MAX_SLOTS: u32 = 1 << 20;

fn build_namespaces(config: &Config) -> Result<Namespaces, Error> {
    let mut namespaces = Namespaces::new();
    for ns in &config.namespaces {
        if ns.nsid == 0 || ns.nsid > namespace::NSID_MAX {
            return Err(Error::Namespace);
        }
        let at = ns.nsid as usize - 1;
        if namespaces.len() <= at {
            namespaces.resize(at + 1, None);
        }
        if namespaces[at].replace(Namespace::new(ns).ok_or(Error::Namespace)?).is_some() {
            return Err(Error::Namespace);
        }
    }
    Ok(namespaces)
}

/// Tables: controllers and queues come and go.
impl Subsystem {
    #[inline]
    pub(crate) fn resolve(&self, handle: ControllerHandle) -> Option<u32> {
        let ctrl = self.controllers.get(handle.index())?.as_ref()?;
        (ctrl.generation == handle.generation()).then_some(handle.index() as u32)
    }

    #[inline]
    pub(crate) fn resolve_queue(&self, handle: SqHandle) -> Option<u32> {
        let sq = self.queues.get(handle.index())?.as_ref()?;
        (sq.generation == handle.generation()).then_some(handle.index() as u32)
    }

    #[inline]
    pub(crate) fn ctrl(&self, c: u32) -> Option<&Controller> {
        self.controllers.get(c as usize)?.as_deref()
    }

    #[inline]
    pub(crate) fn ctrl_mut(&mut self, c: u32) -> Option<&mut Controller> {
        self.controllers.get_mut(c as usize)?.as_deref_mut()
    }

    /// A queue that is known to exist.
    #[inline]
    pub(crate) fn sq(&self, q: u32) -> &Sq {
        self.queues[q as usize].as_ref().expect("the queue exists")
    }

    #[inline]
    pub(crate) fn sq_mut(&mut self, q: u32) -> &mut Sq {
        self.queues[q as usize].as_mut().expect("the queue exists")
    }

    pub(crate) fn make_controller(
        &mut self,
        transport: Transport,
        tenant: u16,
        owner: Owner,
        host: String,
    ) -> Option<u32> {
        // FFF0h and above are reserved (base 2.0, 3.1.2).
        let limit = usize::from(self.config.max_controllers.min(0xffef));
        if self.controllers.len() < limit {
            self.controllers.push(None);
        }
        let len = self.controllers.len().min(limit);
        let free = (0..len).map(|i| (self.next_controller + i) % len).find(|i| self.controllers[*i].is_none())?;
        self.next_controller = (free + 1) % len.max(1);
        self.generation = self.generation.wrapping_add(1);
        let key = self.tenants[usize::from(tenant)].key;
        let mut ctrl = Controller {
            generation: self.generation,
            id: free as u16 + 1,
            transport,
            tenant,
            group: self.arbiter.add_group(key, weir_arbiter::Settings::default()),
            owner,
            host,
            hostid: [0; 16],
            cc: Cc(0),
            csts: Csts(0),
            aqa: Aqa(0),
            asq: 0,
            acq: 0,
            intm: 0,
            sqs: Vec::new(),
            cqs: Vec::new(),
            attached: 0,
            admin: VecDeque::new(),
            admin_listed: false,
            features: Features::new(self.config.volatile_write_cache),
            aer: Default::default(),
            errors: Default::default(),
            changed: Vec::new(),
            kato: 0,
            expires: Nanos::NEVER,
            shutdown: Shutdown::None,
        };
        ctrl.sqs.push(NONE);
        ctrl.cqs.push(NONE);
        self.controllers[free] = Some(Box::new(ctrl));
        Some(free as u32)
    }

    /// Makes a submission queue and puts it into its controller's table.
    pub(crate) fn make_sq(
        &mut self,
        c: u32,
        qid: u16,
        size: u32,
        owner: Owner,
        wish: Option<Class>,
        local: Class,
    ) -> u32 {
        let ctrl = self.ctrl(c).expect("the controller exists");
        let (group, tenant, front) = (ctrl.group, ctrl.tenant, ctrl.transport == Transport::Front);
        // A front controller's door splits as it likes.
        let mdts = if front { u64::MAX } else { self.mdts };
        // Its class from the start: a class that was used once is one the arbiter keeps accounts for.
        let class = self.tenants[usize::from(tenant)].class(wish_from(ctrl.transport), wish);
        let key = self.arbiter.add_queue(group, class, local);
        let q = key.index() as u32;
        if self.queues.len() <= key.index() {
            self.queues.resize_with(key.index() + 1, || None);
        }
        self.queue_generation = self.queue_generation.wrapping_add(1);
        self.queues[key.index()] = Some(Sq {
            key,
            owner,
            controller: c,
            size,
            head: 0,
            waiting: 0,
            in_flight: 0,
            cq: NONE,
            base: 0,
            mdts,
            front,
            pending: Box::default(),
            qid,
            tenant,
            generation: self.queue_generation,
            state: SqState::Open,
            ring: false,
            paused: false,
            flow_off: false,
            starved: false,
            class,
            local,
            wish,
            holes: Vec::new(),
            deleter: None,
        });
        let ctrl = self.ctrl_mut(c).expect("the controller exists");
        let at = usize::from(qid);
        if ctrl.sqs.len() <= at {
            ctrl.sqs.resize(at + 1, NONE);
        }
        ctrl.sqs[at] = q;
        if ctrl.transport != Transport::Rings {
            ctrl.attached += 1;
        }
        q
    }

    /// Gives a queue the class it is entitled to.
    pub(crate) fn classify(&mut self, q: u32) {
        let sq = self.sq(q);
        let from = self.ctrl(sq.controller).map_or(ClassFrom::Peer, |ctrl| wish_from(ctrl.transport));
        let class = self.tenants[usize::from(sq.tenant)].class(from, sq.wish);
        let (key, local) = (sq.key, sq.local);
        self.sq_mut(q).class = class;
        self.arbiter.set_queue_class(key, class, local);
    }

    pub(crate) fn place_cq(&mut self, cq: Cq) -> u32 {
        let (c, qid) = (cq.controller, usize::from(cq.qid));
        let index = self.cqs.iter().position(Option::is_none).unwrap_or(self.cqs.len());
        if index == self.cqs.len() {
            self.cqs.push(None);
        }
        self.cqs[index] = Some(cq);
        let ctrl = self.ctrl_mut(c).expect("the controller exists");
        if ctrl.cqs.len() <= qid {
            ctrl.cqs.resize(qid + 1, NONE);
        }
        ctrl.cqs[qid] = index as u32;
        index as u32
    }

    pub(crate) fn free_cqs(&mut self, c: u32) {
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        let cqs = core::mem::replace(&mut ctrl.cqs, alloc::vec![NONE]);
        for index in cqs.into_iter().filter(|i| *i != NONE) {
            self.cqs[index as usize] = None;
        }
    }

    /// Nothing of the queue is served any more, nobody waits for what is in flight.
    pub(crate) fn silence(&mut self, q: u32) {
        let sq = self.sq_mut(q);
        let (key, c, admin) = (sq.key, sq.controller, sq.qid == 0);
        let mut reserved = core::mem::take(&mut sq.in_flight);
        sq.waiting = 0;
        sq.deleter = None;
        sq.holes.clear();
        let starved = core::mem::take(&mut sq.starved);
        let index = sq.cq;
        self.died = true;
        self.arbiter.withdraw(key);
        self.slots.orphan(q);
        self.fetched.retain(|f| f.queue != q);
        if let (true, Some(ctrl)) = (admin, self.ctrl_mut(c)) {
            ctrl.admin.clear();
            // Event requests hold no entry of the completion queue.
            reserved -= ctrl.aer.reset().len() as u32;
        }
        if let Some(Some(cq)) = self.cqs.get_mut(index as usize) {
            cq.credit += reserved;
            cq.starved -= u32::from(starved);
            if cq.starved > 0 && reserved > 0 {
                self.feed(index);
            }
        }
    }

    /// Takes I/O out of the effects whose queue died in the same turn.
    #[cold]
    fn withdraw_dead(&mut self, effects: &mut Effects) {
        let slots = &mut self.slots;
        effects.retain(|effect| match effect {
            Effect::Io(io) if slots.is_orphan(io.slot) => {
                slots.vacate(io.slot.0);
                false
            }
            _ => true,
        });
        self.died = false;
    }

    /// Frees a submission queue.
    pub(crate) fn free_sq(&mut self, q: u32) {
        self.silence(q);
        let sq = self.queues[q as usize].take().expect("the queue exists");
        self.arbiter.remove_queue(sq.key);
        if let Some(Some(cq)) = self.cqs.get_mut(sq.cq as usize) {
            cq.users -= 1;
        }
        if let Some(ctrl) = self.ctrl_mut(sq.controller) {
            if ctrl.sq(sq.qid) == q {
                ctrl.sqs[usize::from(sq.qid)] = NONE;
            }
            if !sq.ring && ctrl.transport != Transport::Rings {
                ctrl.attached -= 1;
            }
        }
        self.drained(sq.controller);
    }

    /// A message queue is over; its door is told to close the connection and then disconnects it.
    pub(crate) fn condemn(&mut self, q: u32) {
        if self.sq(q).state == SqState::Condemned {
            return;
        }
        self.silence(q);
        let sq = self.sq_mut(q);
        sq.state = SqState::Condemned;
        let (handle, c, qid) = (sq.handle(), sq.controller, sq.qid);
        self.condemned.push_back(handle);
        if let Some(ctrl) = self.ctrl_mut(c) {
            // The queue identifier is free for a new connection.
            if qid != 0 && ctrl.sq(qid) == q {
                ctrl.sqs[usize::from(qid)] = NONE;
            }
        }
        self.drained(c);
    }

    /// Removes a controller with all its queues.
    pub(crate) fn drop_controller(&mut self, c: u32) {
        if let Some(ctrl) = self.ctrl_mut(c) {
            ctrl.shutdown = Shutdown::None;
        }
        for q in 0..self.queues.len() as u32 {
            if self.queues[q as usize].as_ref().is_some_and(|sq| sq.controller == c) {
                self.free_sq(q);
            }
        }
        self.free_cqs(c);
        if let Some(ctrl) = self.controllers[c as usize].take() {
            self.arbiter.remove_group(ctrl.group);
        }
        self.admin_ready.retain(|r| *r != c);
        self.admin_held.retain(|r| *r != c);
    }

    /// Tells the arbiter whether a queue has a head that may be fetched.
    #[inline]
    pub(crate) fn refresh(&mut self, q: u32) {
        let sq = self.queues[q as usize].as_mut().expect("the queue exists");
        if sq.waiting == 0 || sq.state != SqState::Open || sq.paused {
            return;
        }
        if sq.cq != NONE {
            let cq = self.cqs[sq.cq as usize].as_mut().expect("a ring has its completion queue");
            if cq.credit == 0 {
                cq.starved += u32::from(!sq.starved);
                sq.starved = true;
                return self.arbiter.withdraw(sq.key);
            }
            cq.starved -= u32::from(sq.starved);
            sq.starved = false;
        }
        self.arbiter.backlog(sq.key);
    }

    /// A completion queue has room again.
    pub(crate) fn feed(&mut self, index: u32) {
        let Some(Some(cq)) = self.cqs.get_mut(index as usize) else { return };
        let c = cq.controller;
        cq.starved = 0;
        let Some(ctrl) = self.ctrl(c) else { return };
        for at in 1..ctrl.sqs.len() {
            let q = self.ctrl(c).map_or(NONE, |ctrl| ctrl.sqs[at]);
            if q != NONE && self.sq(q).cq == index && core::mem::take(&mut self.sq_mut(q).starved) {
                self.refresh(q);
            }
        }
    }
}
