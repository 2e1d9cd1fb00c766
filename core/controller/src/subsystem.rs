//! One drive: its controllers, queues and slots, and the front door of the machine.

use crate::admin::state::AdminState;
use crate::config::{SubsystemConfig, SubsystemKind, check_memory_buffer};
use crate::controller::{Controller, Controllers, Transport};
use crate::error::ManagementError;
use crate::event::{ControllerHandle, Effects, Event, SlotId, SqHandle};
use crate::fault::state::Faults;
use crate::host::{Host, Owner};
use crate::io::charge::{Charging, OwnCost};
use crate::io::placement::Placement;
use crate::io::slots::Slots;
use crate::io::slow_path::state::SlowPath;
use crate::io::starting::Starting;
use crate::io::timing::OwnTiming;
use crate::log_state::{Discovery, Logs};
use crate::maintenance::Maintenance;
use crate::namespace::table::NamespaceTable;
use crate::namespace::{Namespaces, why};
use crate::power::Power;
use crate::power::failing_media::FailingMedia;
use crate::power::health::Health;
use crate::queues::Queues;
use crate::queues::command::Command;
use crate::queues::queue::NONE;
use crate::stats::ServiceClock;
use crate::tenant::Tenants;
use crate::vendor::Vendor;
use crate::zns::Space;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use weir_arbiter::Arbiter;
use weir_spec::nvme::fabrics::nqn_valid;
use weir_spec::nvme::register::{Cc, Csts};
use weir_units::{Class, Nanos};

/// How a controller's queues reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportModel {
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
    pub model: TransportModel,
    /// Who it is, for `weir status`.
    pub host: String,
}

/// One drive (or the discovery service).
#[derive(Clone, Debug)]
pub struct Subsystem {
    pub(crate) config: SubsystemConfig,
    pub(crate) turn: Turn,
    pub(crate) arbiter: Arbiter,
    pub(crate) tenants: Tenants,
    pub(crate) controllers: Controllers,
    pub(crate) queues: Queues,
    /// Commands that left their queue and wait for bytes in flight (or, eagerly fetched, for a slot), in order.
    pub(crate) fetched: VecDeque<Starting>,
    /// Commands that the process before had begun, by queue and tag, until they come again: when they are due.
    pub(crate) resumed: BTreeMap<(u32, u32), Option<Nanos>>,
    pub(crate) slots: Slots,
    /// What decides when commands are complete; the fixed latency if absent.
    pub(crate) timing: OwnTiming,
    /// What commands are charged by.
    pub(crate) charging: Charging,
    pub(crate) cost_policy: OwnCost,
    /// What hosts know of a flash with placement handles.
    pub(crate) placement: Option<Box<Placement>>,
    /// A vendor's commands, if it has some.
    pub(crate) vendor: Vendor,
    pub(crate) namespaces: NamespaceTable,
    /// The zones of those that have some.
    pub(crate) zoned: Vec<Space>,
    /// Reservations, unreadable blocks, and who waits for whom.
    pub(crate) slow_path: SlowPath,
    pub(crate) admin: AdminState,
    pub(crate) maintenance: Maintenance,
    pub(crate) logs: Logs,
    pub(crate) discovery: Discovery,
    pub(crate) health: Health,
    pub(crate) failing_media: FailingMedia,
    pub(crate) power: Power,
    /// Failures by rule, and what they hold; none while there is no rule.
    pub(crate) faults: Option<Box<Faults>>,
    pub(crate) changes: Changes,
    /// What commands have taken.
    pub(crate) service_clock: ServiceClock,
}

/// The turn under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// The time of the newest event.
    pub now: Nanos,
    /// `Run` could do something now.
    pub more: bool,
    /// Commands died since the last `Run` began: effects may name them.
    pub died: bool,
}

/// How often what is kept elsewhere has changed: who keeps it looks here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    /// Moves with every change of what is remembered without power.
    pub nonvolatile: u64,
    /// What [`Subsystem::association_generation`] counts beside it.
    pub associations: u64,
    /// Rules of failures that were made: none has the number of another.
    pub faults: u32,
}

impl Subsystem {
    /// A drive at rest. `now` is when it was powered on.
    pub fn new(mut config: SubsystemConfig, now: Nanos) -> Result<Self, ManagementError> {
        if !nqn_valid(&config.subnqn) {
            return Err(ManagementError::Nqn);
        }
        if config.slots == 0 || config.slots > MAX_SLOTS || !(2..=65536).contains(&config.max_queue_entries) {
            return Err(ManagementError::Range);
        }
        check_memory_buffer(config.cmb)?;
        if config.tenants.is_empty() {
            config.tenants.push(crate::config::TenantConfig::new("default", Class::Medium));
        }
        let mut arbiter = Arbiter::new(config.arbitration);
        let tenants = Tenants::new(&config, &mut arbiter, now);
        let mut namespaces = NamespaceTable::of_config(&config)?;
        let zoned = build_zones(&config, &mut namespaces.list)?;
        namespaces.allocate(&config)?;
        Ok(Self {
            turn: Turn { now, more: false, died: false },
            arbiter,
            tenants,
            controllers: Controllers::default(),
            queues: Queues::new(),
            fetched: VecDeque::with_capacity(64),
            resumed: BTreeMap::new(),
            slots: Slots::new(config.slots, config.slot_bytes),
            timing: OwnTiming::default(),
            charging: config.cost.into(),
            cost_policy: OwnCost::default(),
            placement: None,
            vendor: Vendor::default(),
            namespaces,
            zoned,
            slow_path: SlowPath::default(),
            admin: AdminState::new(config.volatile_write_cache),
            maintenance: Maintenance::new(&config.firmware),
            logs: Logs::default(),
            discovery: Discovery::default(),
            health: Health::new(),
            failing_media: FailingMedia::default(),
            power: Power::new(now),
            faults: None,
            changes: Changes::default(),
            service_clock: ServiceClock::new(config.slots),
            config,
        })
    }

    /// Takes one event to its end. Inlined, as most callers know which event it is.
    #[inline(always)]
    pub fn apply<H: Host>(&mut self, now: Nanos, event: Event, host: &mut H, effects: &mut Effects) {
        // Events that are found together come at one moment.
        if now != self.turn.now {
            self.count_service(now);
        }
        self.turn.now = now;
        match event {
            Event::Run => self.run(now, host, effects),
            Event::Done { slot, status } => {
                self.service_clock.done += 1;
                self.done(now, slot.0, status, host);
            }
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
            Event::SubmitUntimed { queue, request, tag, due } => {
                self.expect_untimed(queue, &request, tag, due);
                self.submit(queue, &request, tag, host);
            }
            Event::Register { controller, offset, value, size } => {
                if let Some(c) = self.resolve(controller) {
                    self.write_register(now, c, (offset, value, size), host);
                }
            }
            Event::Tick => {
                self.run(now, host, effects);
                self.expire(now);
                if !self.queues.to_disconnect.is_empty() {
                    self.announce(effects);
                }
            }
        }
        if !matches!(event, Event::Run | Event::Tick) {
            self.turn.more = true;
        } else if self.turn.died {
            self.withdraw_dead(now, effects);
        }
    }

    /// When `Tick` is due: a latency, keep-alive or admin-rate deadline, an interrupt that was held back, or a tenant that its
    /// ceiling holds may go on.
    #[inline]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let mut due = self.own_deadline();
        if self.slots.pending > 0 {
            due = due.min(match self.slots.quiet_until {
                Nanos(0) => self.next_of_service(),
                until => until,
            });
        }
        Some(due).filter(|due| *due != Nanos::NEVER)
    }

    /// The same without what the drive's inside may know.
    #[inline]
    pub(crate) fn own_deadline(&self) -> Nanos {
        let mut due = self.slots.next_due().map_or(self.admin.next_expiry, |due| due.min(self.admin.next_expiry));
        if !self.admin.held.is_empty() {
            let held = self.admin.held.iter().filter_map(|c| self.ctrl(*c)).map(|ctrl| self.admin_due(ctrl));
            due = held.fold(due, Nanos::min);
        }
        if let Some(release) = self.arbiter.next_release() {
            due = due.min(release);
        }
        due.min(self.queues.interrupts.next)
    }

    #[cold]
    pub(crate) fn next_of_service(&self) -> Nanos {
        self.service().and_then(|service| service.next_event()).unwrap_or(Nanos::NEVER)
    }

    pub(crate) fn admin_due(&self, ctrl: &Controller) -> Nanos {
        self.tenants.list[usize::from(ctrl.tenant)].admin_due(self.config.admin_rate)
    }

    /// Whether `Run` could do something now: something happened since the last one, or more was to do than fitted.
    pub fn has_work(&self) -> bool {
        self.turn.more
            || !self.queues.to_disconnect.is_empty()
            || !self.admin.ready.is_empty()
            || self.slots.has_ready()
    }

    /// Whether something can begin when something else is complete or due: commands that wait for a slot or for their ceiling, the next piece
    /// of a command of several, who waits for zones or blocks. Else it is all the same whether what was due is taken up one by one or together.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.arbiter.has_heads()
            || !self.fetched.is_empty()
            || self.slots.has_work_lists()
            || !self.slow_path.waits.is_empty()
            || !self.slow_path.locks.is_empty()
    }

    /// The time of the newest event: the next one is not earlier.
    #[inline]
    pub fn clock(&self) -> Nanos {
        self.turn.now
    }

    /// Whether the command in this slot still has somebody to answer to; if not, `data` must not be touched (writes whose
    /// data is already read go on). The slot is given back with `Done` either way.
    pub fn is_live(&self, slot: SlotId) -> bool {
        self.slots.get(slot).is_some_and(|s| s.queue != NONE || self.slots.goes_on(slot.0))
    }

    /// The controllers that there are, with their hosts.
    pub fn hosts(&self) -> impl Iterator<Item = (ControllerHandle, &str)> {
        self.controllers.list.iter().zip(0u32..).filter_map(|(ctrl, c)| {
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
    pub fn attach(&mut self, now: Nanos, attach: Attach) -> Result<ControllerHandle, ManagementError> {
        if usize::from(attach.tenant) >= self.tenants.list.len() {
            return Err(ManagementError::NoTenant);
        }
        if self.config.kind != SubsystemKind::Io {
            return Err(ManagementError::NoController);
        }
        let transport = if attach.model == TransportModel::Rings { Transport::Rings } else { Transport::Front };
        let c =
            self.make_controller(transport, attach.tenant, attach.owner, attach.host).ok_or(ManagementError::Full)?;
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
    ) -> Result<SqHandle, ManagementError> {
        let c = self.resolve(controller).ok_or(ManagementError::NoController)?;
        let ctrl =
            self.ctrl(c).filter(|ctrl| ctrl.transport == Transport::Front).ok_or(ManagementError::NoController)?;
        if depth == 0 || depth > self.config.max_queue_entries {
            return Err(ManagementError::QueueSize);
        }
        let free = (1..=FRONT_QUEUES).find(|qid| ctrl.sq(*qid) == NONE).ok_or(ManagementError::Full)?;
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

fn build_zones(config: &SubsystemConfig, namespaces: &mut Namespaces) -> Result<Vec<Space>, ManagementError> {
    let mut spaces: Vec<Space> = Vec::new();
    for zoned in &config.zoned {
        let ns = namespaces.get_mut(zoned.nsid.wrapping_sub(1) as usize).and_then(Option::as_mut);
        let ns = ns.ok_or(ManagementError::NoNamespace)?;
        let block = |flash: &weir_flash::ZonedConfig| flash.block_shift;
        if ns.zoned || ns.blocks != zoned.zones.blocks() || zoned.flash.as_ref().map_or(ns.shift, block) != ns.shift {
            return Err(ManagementError::Zones);
        }
        ns.zoned = true;
        ns.why |= why::ZONES;
        ns.extension = u32::from(zoned.zones.extension) * 64;
        ns.volatile = zoned.volatile;
        spaces.push(Space::new(zoned)?);
    }
    Ok(spaces)
}
