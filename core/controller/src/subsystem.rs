//! One drive: its controllers, queues and slots, and the front door of the machine.

use crate::admin::exactly_once::Executed;
use crate::config::{Config, DiscoveryRecord, Kind, check_memory_buffer};
use crate::controller::{Controller, Features, Transport};
use crate::error::Error;
use crate::event::{ControllerHandle, Effects, Event, SlotId, SqHandle};
use crate::host::{Host, Owner};
use crate::io::placement::Placement;
use crate::io::slots::Slots;
use crate::io::slow_path::state::Ledger;
use crate::io::starting::{NOT_JUDGED, Starting};
use crate::io::timing::Inside;
use crate::logs::persistent_events::PersistentEvents;
use crate::logs::telemetry::Telemetry;
use crate::maintenance::firmware::Firmware;
use crate::maintenance::job::Background;
use crate::maintenance::lockdown::Prohibited;
use crate::maintenance::sanitize::Sanitize;
use crate::maintenance::self_test::SelfTest;
use crate::namespace::access::Access;
use crate::namespace::attachment::{Record, Records};
use crate::namespace::namespace_job::Chore;
use crate::namespace::ns_allocator::Room;
use crate::namespace::{self, Namespace, Namespaces, why};
use crate::power::Thermal;
use crate::power::lifetime::Counters;
use crate::queues::command::Command;
use crate::queues::interrupt::Held;
use crate::queues::queue::{Cq, NONE, Sq};
use crate::tenant::Tenant;
use crate::vendor::Vendor;
use crate::zns::Space;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use weir_arbiter::{Arbiter, Mechanism};
use weir_spec::nvme::fabrics::nqn_valid;
use weir_spec::nvme::register::{Cc, Csts};
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

/// One drive (or the discovery service).
#[derive(Clone, Debug)]
pub struct Subsystem {
    pub(crate) config: Config,
    pub(crate) started: Nanos,
    pub(crate) arbiter: Arbiter,
    /// [`Mechanism::None`]: commands are fetched whether slots are free or not.
    pub(crate) eager: bool,
    /// MDTS in bytes.
    pub(crate) mdts: u64,
    pub(crate) namespaces: Namespaces,
    /// Where namespaces lie, where hosts may make some.
    pub(crate) room: Option<Box<Room>>,
    /// What is known of those namespaces beside how they are addressed.
    pub(crate) records: Records,
    /// What is being done to namespaces.
    pub(crate) chores: Vec<Chore>,
    pub(crate) next_chore: u32,
    /// The namespaces are no longer those of the configuration.
    pub(crate) relaid: bool,
    /// Namespaces that hosts have created so far.
    pub(crate) creations: u64,
    /// The zones of those that have some.
    pub(crate) zoned: Vec<Space>,
    pub(crate) tenants: Vec<Tenant>,
    /// When the commands in flight arrived, by slot, where their tenants' promises are judged; empty while nobody's are.
    pub(crate) stamps: Vec<Nanos>,
    /// The time of the newest event.
    pub(crate) clock: Nanos,
    pub(crate) controllers: Vec<Option<Box<Controller>>>,
    /// Where the search for a free controller begins, so that identifiers are not reused at once.
    pub(crate) next_controller: usize,
    /// A new generation for each controller.
    pub(crate) generation: u16,
    /// By arbiter key.
    pub(crate) queues: Vec<Option<Sq>>,
    pub(crate) queue_generation: u8,
    pub(crate) cqs: Vec<Option<Cq>>,
    /// Changes with the queues that there are.
    pub(crate) ring_epoch: u32,
    pub(crate) slots: Slots,
    /// What decides when commands are complete; the fixed latency if absent.
    pub(crate) inside: Inside,
    /// What hosts know of an inside with placement handles.
    pub(crate) placement: Option<Box<Placement>>,
    /// A vendor's commands, if it has some.
    pub(crate) vendor: Vendor,
    /// Long work of the drive itself.
    pub(crate) background: Background,
    /// Moves with every change of what is remembered without power.
    pub(crate) nonvolatile: u64,
    /// What [`Subsystem::association_generation`] counts beside it.
    pub(crate) associated: u64,
    pub(crate) sanitize: Sanitize,
    pub(crate) firmware: Firmware,
    pub(crate) self_test: SelfTest,
    pub(crate) prohibited: Prohibited,
    pub(crate) telemetry: Telemetry,
    pub(crate) events: PersistentEvents,
    /// What a host has set the timestamp to last, ms since 1970, and when.
    pub(crate) wall: Option<(u64, Nanos)>,
    /// What was counted before the drive was powered on.
    pub(crate) before: Counters,
    /// Up to when `save` counts.
    pub(crate) counted: Nanos,
    /// It was stopped.
    pub(crate) stopped: bool,
    /// The values that features have when a controller is enabled.
    pub(crate) saved: Features,
    /// CDW12 to CDW15 and MPTR are kept of every command, not of a vendor's own only.
    pub(crate) keep_words: bool,
    /// Commands that the process before had begun, by queue and tag, until they come again: when they are due.
    pub(crate) begun: BTreeMap<(u32, u32), Option<Nanos>>,
    /// Commands that left their queue and wait for bytes in flight (or, eagerly fetched, for a slot), in order.
    pub(crate) fetched: VecDeque<Starting>,
    /// Reservations, unreadable blocks, and who waits for whom.
    pub(crate) ledger: Ledger,
    /// Queues whose connection is to be closed and whose door does not know yet.
    pub(crate) condemned: VecDeque<SqHandle>,
    /// Admin commands that may come again after a crash, and are done; the oldest first.
    pub(crate) executed: VecDeque<Executed>,
    /// Controllers with admin commands, in turn.
    pub(crate) admin_ready: VecDeque<u32>,
    /// Controllers whose tenant has spent its admin commands.
    pub(crate) admin_held: Vec<u32>,
    pub(crate) admin_done: u64,
    /// No keep alive timer expires before this.
    pub(crate) keep_alive_next: Nanos,
    /// Interrupt vectors that are to be signalled later, and when the first one is.
    pub(crate) held: Vec<Held>,
    pub(crate) held_next: Nanos,
    pub(crate) discovery: Vec<DiscoveryRecord>,
    pub(crate) discovery_generation: u64,
    pub(crate) errors: u64,
    pub(crate) media_errors: u64,
    /// Critical warnings that the media has earned.
    pub(crate) media_warning: u8,
    /// What SMART's available spare is at the most, in percent.
    pub(crate) spare_limit: u8,
    /// How hosts reach the namespaces.
    pub(crate) access: Access,
    /// How often the drive was powered on, and how often it went down without being shut down.
    pub(crate) power_cycles: u64,
    pub(crate) unsafe_shutdowns: u64,
    /// Since when something is in flight, and for how long something was before.
    pub(crate) busy_since: Option<Nanos>,
    pub(crate) busy: u64,
    /// When nothing was in flight any more.
    pub(crate) idle_since: Nanos,
    pub(crate) thermal: Thermal,
    /// When the temperature is looked at again.
    pub(crate) thermal_next: Nanos,
    /// For admin answers; `IDENTIFY_LEN` bytes.
    pub(crate) scratch: Box<[u8]>,
    pub(crate) more: bool,
    /// Commands died since the last `Run` began: effects may name them.
    pub(crate) died: bool,
}

impl Subsystem {
    /// A drive at rest. `now` is when it was powered on.
    // tidy: long because every field is named once.
    pub fn new(mut config: Config, now: Nanos) -> Result<Self, Error> {
        if !nqn_valid(&config.subnqn) {
            return Err(Error::Nqn);
        }
        if config.slots == 0 || config.slots > MAX_SLOTS || !(2..=65536).contains(&config.max_queue_entries) {
            return Err(Error::Range);
        }
        check_memory_buffer(config.cmb)?;
        if config.tenants.is_empty() {
            config.tenants.push(crate::config::TenantConfig::new("default", Class::Medium));
        }
        let mut arbiter = Arbiter::new(config.arbitration);
        let tenants = build_tenants(&config, &mut arbiter, now);
        let stamps = if tenants.iter().any(|t| t.judge.is_some()) { config.slots } else { 0 };
        let mut namespaces = build_namespaces(&config)?;
        let zoned = build_zones(&config, &mut namespaces)?;
        let (room, records) = build_room(&config, &mut namespaces)?;
        Ok(Self {
            started: now,
            arbiter,
            eager: config.arbitration.mechanism == Mechanism::None,
            mdts: if config.mdts == 0 { u64::MAX } else { 4096u64.checked_shl(config.mdts.into()).unwrap_or(u64::MAX) },
            namespaces,
            room,
            records,
            chores: Vec::new(),
            next_chore: 0,
            relaid: false,
            creations: 0,
            zoned,
            tenants,
            stamps: alloc::vec![NOT_JUDGED; stamps as usize],
            clock: now,
            controllers: Vec::new(),
            next_controller: 0,
            generation: 0,
            queues: Vec::new(),
            queue_generation: 0,
            cqs: Vec::new(),
            ring_epoch: 0,
            slots: Slots::new(config.slots, config.slot_bytes),
            background: Background::new(),
            nonvolatile: 0,
            associated: 0,
            sanitize: Sanitize::default(),
            firmware: Firmware::default(),
            self_test: SelfTest::default(),
            prohibited: Prohibited::default(),
            telemetry: Telemetry::default(),
            events: PersistentEvents::default(),
            wall: None,
            before: Counters::default(),
            counted: now,
            stopped: false,
            saved: Features::new(config.volatile_write_cache),
            inside: Inside::default(),
            placement: None,
            vendor: Vendor::default(),
            keep_words: false,
            begun: BTreeMap::new(),
            fetched: VecDeque::with_capacity(64),
            ledger: Ledger::default(),
            condemned: VecDeque::new(),
            executed: VecDeque::new(),
            admin_ready: VecDeque::new(),
            admin_held: Vec::new(),
            admin_done: 0,
            keep_alive_next: Nanos::NEVER,
            held: Vec::new(),
            held_next: Nanos::NEVER,
            discovery: Vec::new(),
            discovery_generation: 0,
            errors: 0,
            media_errors: 0,
            media_warning: 0,
            spare_limit: 100,
            access: Access::new(&config.ana_ports),
            power_cycles: 1,
            unsafe_shutdowns: 0,
            busy_since: None,
            busy: 0,
            idle_since: now,
            thermal: Thermal::new(now),
            thermal_next: Nanos::NEVER,
            scratch: alloc::vec![0; weir_spec::nvme::identify::IDENTIFY_LEN].into(),
            more: false,
            died: false,
            config,
        })
    }

    /// Takes one event to its end.
    #[inline]
    pub fn apply<H: Host>(&mut self, now: Nanos, event: Event, host: &mut H, effects: &mut Effects) {
        self.clock = now;
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
            Event::Submit { queue, request, tag } => self.submit(queue, &request, tag, host),
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
            self.withdraw_dead(now, effects);
        }
    }

    /// When `Tick` is due: a latency, keep-alive or admin-rate deadline, an interrupt that was held back, or a tenant that its
    /// ceiling holds may go on.
    #[inline]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let mut due = self.own_deadline();
        if self.slots.pending > 0 {
            due = due.min(self.next_of_service());
        }
        Some(due).filter(|due| *due != Nanos::NEVER)
    }

    /// The same without what the drive's inside may know.
    #[inline]
    pub(crate) fn own_deadline(&self) -> Nanos {
        let mut due = self.slots.next_due().map_or(self.keep_alive_next, |due| due.min(self.keep_alive_next));
        if !self.admin_held.is_empty() {
            let held = self.admin_held.iter().filter_map(|c| self.ctrl(*c)).map(|ctrl| self.admin_due(ctrl));
            due = held.fold(due, Nanos::min);
        }
        if let Some(release) = self.arbiter.next_release() {
            due = due.min(release);
        }
        due.min(self.held_next)
    }

    #[cold]
    pub(crate) fn next_of_service(&self) -> Nanos {
        self.service().and_then(|service| service.next_event()).unwrap_or(Nanos::NEVER)
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
        self.slots.get(slot).is_some_and(|s| s.queue != NONE || self.slots.goes_on(slot.0))
    }

    /// The controllers that there are, with their hosts.
    pub fn hosts(&self) -> impl Iterator<Item = (ControllerHandle, &str)> {
        self.controllers.iter().zip(0u32..).filter_map(|(ctrl, c)| {
            let ctrl = ctrl.as_deref()?;
            Some((ctrl.handle(c), ctrl.host.as_str()))
        })
    }

    /// The controller of the command in this slot with its host, and whether the command is the drive's own for it (a shutdown's flush)
    /// rather than the host's. `None` where nobody waits for it any more.
    pub fn whose(&self, slot: SlotId) -> Option<(ControllerHandle, &str, bool)> {
        let slot = self.slots.get(slot)?;
        let c = match slot.internal {
            true => slot.tag,
            false if slot.queue == NONE => return None,
            false => self.sq(slot.queue).controller,
        };
        let ctrl = self.ctrl(c)?;
        Some((ctrl.handle(c), &ctrl.host, slot.internal))
    }

    /// When the command in this slot is to complete: its modelled time. `None` where the slot is free, where no service time
    /// says when, and where nobody waits for the command any more.
    #[inline]
    pub fn due(&self, slot: SlotId) -> Option<Nanos> {
        self.slots.get(slot).filter(|s| s.due.0 != 0 && s.queue != NONE).map(|s| s.due)
    }

    /// Emits I/O of at least so many bytes earlier than [`due`](Self::due) by so many nanoseconds a MiB that it moves, for an
    /// executor that takes time to move bytes and holds [`Event::Done`] back until the command is due. 0, as at first: not
    /// before it is due.
    pub fn set_lead(&mut self, ns_per_mib: u32, least: u32) {
        self.slots.lead = (ns_per_mib, least);
    }

    /// Emits I/O when its command begins, or 20 ms before it is due where that is later, for an executor whose media take time of their own
    /// and that holds [`Event::Done`] back until the command is due. Such a command cannot be aborted any more, but for a read: that is let go of, and its
    /// executor sees by [`is_live`](Self::is_live) that nobody wants the bytes.
    pub fn set_early(&mut self, early: bool) {
        self.slots.early = early;
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
        let free = (1..=FRONT_QUEUES).find(|qid| ctrl.sq(*qid) == NONE).ok_or(Error::Full)?;
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

    /// Reads `size` bytes, at most 8, of a ring controller's registers at any offset; what is not there reads as zero.
    pub fn register(&self, controller: ControllerHandle, offset: u32, size: u8) -> u64 {
        self.resolve(controller).map_or(0, |c| self.read_register(c, offset, size))
    }
}

/// Queues of a front controller. How many of them its door offers is the door's affair: `max_io_queues` is for NVMe hosts.
const FRONT_QUEUES: u16 = 1024;

/// Slots fit into the timers' words.
const MAX_SLOTS: u32 = 1 << 20;

fn build_tenants(config: &Config, arbiter: &mut Arbiter, now: Nanos) -> Vec<Tenant> {
    let seat = |t: &crate::config::TenantConfig| {
        let key = arbiter.add_tenant(t.weight);
        arbiter.set_limits(key, &t.floor, &t.ceiling);
        Tenant::new(key, t.clone(), now)
    };
    config.tenants.iter().map(seat).collect()
}

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

/// Gives the namespaces of the configuration the granules that they lie in. There is room for more of them.
fn build_room(config: &Config, namespaces: &mut Namespaces) -> Result<(Option<Box<Room>>, Records), Error> {
    let Some(management) = config.management.filter(|_| config.zoned.is_empty()) else {
        return Ok((None, Records::new()));
    };
    let (mut room, mut records) = (Room::new(management.capacity), Records::new());
    for config in &config.namespaces {
        let (nsid, bytes) = (config.nsid, config.size);
        if !room.claim_range(nsid, config.start, bytes.max(1)) {
            return Err(Error::Namespace);
        }
        records.insert(nsid, Record::initial(bytes));
    }
    namespaces.resize(namespaces.len().max(namespace::MANAGED), None);
    for ns in namespaces.iter_mut().flatten() {
        ns.format = crate::namespace::metadata::Format::plain(ns.shift, &management);
    }
    Ok((Some(Box::new(room)), records))
}

fn build_zones(config: &Config, namespaces: &mut Namespaces) -> Result<Vec<Space>, Error> {
    let mut spaces: Vec<Space> = Vec::new();
    for zoned in &config.zoned {
        let ns = namespaces.get_mut(zoned.nsid.wrapping_sub(1) as usize).and_then(Option::as_mut);
        let ns = ns.ok_or(Error::NoNamespace)?;
        let block = |flash: &weir_flash::ZonedConfig| flash.block_shift;
        if ns.zoned || ns.blocks != zoned.zones.blocks() || zoned.flash.as_ref().map_or(ns.shift, block) != ns.shift {
            return Err(Error::Zones);
        }
        ns.zoned = true;
        ns.why |= why::ZONES;
        ns.extension = u32::from(zoned.zones.extension) * 64;
        ns.volatile = zoned.volatile;
        spaces.push(Space::new(zoned)?);
    }
    Ok(spaces)
}
