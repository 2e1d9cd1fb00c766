//! The associations of fabrics hosts as bytes, so that another process goes on with them: controllers, their features and timers, their
//! queues, and the event requests that wait.
//!
//! ```text
//!  magic "WEIRASSO" │ version u32 │ length u32 │ controllers u16, each … │ reservations │ CRC32C u32 of all before
//! ```
//! `docs/reference/formats.md` has what a controller is written as. The drive has nothing in flight then. Commands that wait in a queue stay with
//! the connection that brought them, which brings them again: [`Subsystem::with_drive`] says which those are.
//! Whoever restores [claims](Subsystem::claim) each queue for its connection, and drops the rest by
//! [`drop_unclaimed`](Subsystem::drop_unclaimed), as if those connections had been lost.
//!
//! Not carried: the error log of a controller and notifications of reservations that its host has not read; the drive's
//! [nonvolatile state](crate::saved::nonvolatile) is carried by other ways.

use crate::admin::async_events::{LIMIT, PendingEventRequest};
use crate::admin::feature;
use crate::config::{ClassFrom, SubsystemKind};
use crate::controller::{Controller, Shutdown, Transport, UNCLAIMED};
use crate::event::SqHandle;
use crate::host::{Owner, Tag};
use crate::namespace::Namespace;
use crate::queues::command::{Command, flag};
use crate::queues::queue::{NONE, SqState};
use crate::reservation;
use crate::saved::in_flight::Begun;
use crate::subsystem::Subsystem;
use alloc::string::String;
use alloc::vec::Vec;
use weir_codec::{
    Ago, Always, Coder, Counted, Damaged, Left, Own, Reader, SavedError, SavedFormat, Text, Writer, coded, fields,
};
use weir_spec::nvme::log::AsyncEvent;
use weir_spec::nvme::namespace::write_protect;
use weir_spec::nvme::tcp::TableDigest;
use weir_units::{Class, Nanos};

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
const FORMAT: SavedFormat = SavedFormat::new(b"WEIRASSO", VERSION, "the state of associations");

/// What the drive has of a connection's commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithDrive {
    /// Not begun, in the order in which they came.
    pub waiting: Vec<Tag>,
    /// Begun, and nothing of them moved: they came before those that wait.
    pub begun: Vec<Begun>,
    /// Event requests.
    pub events: Vec<Tag>,
}

/// What a host or an operator wishes, as a number: 0 for nothing.
pub(crate) struct Wish;

macro_rules! wishes {
    ($($of:ident: $($one:ident)*;)*) => { $(
        impl Coder<Option<$of>> for Wish {
            fn put(wish: &Option<$of>, to: &mut Writer) {
                to.u8([None, $(Some($of::$one)),*].iter().position(|one| one == wish).map_or(0, |at| at as u8));
            }
            fn get(from: &mut Reader<'_>) -> Result<Option<$of>, Damaged> {
                [None, $(Some($of::$one)),*].get(usize::from(from.u8()?)).copied().ok_or(Damaged)
            }
            fn kind() -> String {
                let names = [$(stringify!($one)),*];
                let number = |(at, name): (usize, &&str)| alloc::format!(", {} {name}", at + 1);
                core::iter::once("u8: 0 none".into()).chain(names.iter().enumerate().map(number)).collect()
            }
        }
    )* };
}
wishes! {
    Class: Urgent High Medium Low;
    ClassFrom: Tenant Qprio Cattr Peer;
}

/// A class that there is.
pub(crate) struct Local;

impl Coder<Class> for Local {
    fn put(class: &Class, to: &mut Writer) {
        Wish::put(&Some(*class), to);
    }
    fn get(from: &mut Reader<'_>) -> Result<Class, Damaged> {
        <Wish as Coder<Option<Class>>>::get(from)?.ok_or(Damaged)
    }
    fn kind() -> String {
        "u8: 1 urgent, 2 high, 3 medium, 4 low".into()
    }
}

coded! { PendingEventRequest { cid, tag } }

/// Only such controllers are carried as are not shutting down.
struct IsShutDown;

impl Coder<Shutdown> for IsShutDown {
    fn put(shutdown: &Shutdown, to: &mut Writer) {
        to.put(&(*shutdown == Shutdown::Complete));
    }
    fn get(from: &mut Reader<'_>) -> Result<Shutdown, Damaged> {
        Ok(if from.get()? { Shutdown::Complete } else { Shutdown::None })
    }
    fn kind() -> String {
        "u8, 0 or 1".into()
    }
}

fields! { pub(crate) Controller: put_identity, get_identity, identity_rows {
    hostid: "host identifier",
    wide_id: "whether that has 128 bits",
    class_from as Wish: "who may wish for a class",
    wish as Wish: "the class that it wishes for",
    local as Text: "the address and port that its host has reached",
    cc.0: "CC",
    csts.0: "CSTS",
    kato: "keep alive timeout, ms",
    expires as Left: "when that is over",
    shutdown as IsShutDown: "whether it is shut down",
} }

fields! { pub(crate) Controller: put_state, get_state, state_rows {
    features.behavior: "host behavior support",
    features.endurance_events: "endurance group event configuration",
    features.queues as Granted: "submission and completion queues that were granted, 0 and 0 for none",
    timestamp as Always<(Own, Ago)>: "what its host set the timestamp to, ms since 1970, and when",
    power_since as Ago: "when it came to its power state",
    power_before: "the power state before",
    too_hot: "whether it has told of the temperature",
} }

fields! { pub(crate) Controller: put_namespaces, get_namespaces, namespaces_rows {
    namespaces: "namespaces that are attached to it, a bit each",
    changed as Counted<u16>: "of the changed namespace list",
    changed_zones as Counted<u16>: "of the changed zone lists: NSID and zone",
} }

/// Numbers of queues.
struct Granted;

impl Coder<Option<(u16, u16)>> for Granted {
    fn put(granted: &Option<(u16, u16)>, to: &mut Writer) {
        to.put(&granted.unwrap_or((0, 0)));
    }
    fn get(from: &mut Reader<'_>) -> Result<Option<(u16, u16)>, Damaged> {
        Ok(Some(from.get()?).filter(|granted| *granted != (0, 0)))
    }
    fn kind() -> String {
        "u16, u16".into()
    }
}

/// What every controller that outlives its drive is written as, but for its queues.
pub(crate) fn write_state(ctrl: &Controller, to: &mut Writer) {
    to.put(&(ctrl.id, ctrl.tenant));
    to.bytes(ctrl.host.as_bytes());
    put_identity(ctrl, to);
    feature::write_saved(&ctrl.features, to);
    put_state(ctrl, to);
    to.put(&(ctrl.ana as u8, ctrl.ana_changes));
    to.put(&ctrl.endurance_event);
    to.bytes(ctrl.event_context.as_deref().unwrap_or_default());
    to.put(&ctrl.event_context.is_some());
    to.put(&ctrl.aer.reported());
    <Counted<u8> as Coder<_>>::put(&ctrl.aer.waiting, to);
    put_namespaces(ctrl, to);
}

impl Subsystem {
    /// Controller identifier and queue identifier of a message queue.
    pub fn queue_id(&self, queue: SqHandle) -> Option<(u16, u16)> {
        let sq = self.sq(self.resolve_queue(queue)?);
        let ctrl = self.ctrl(sq.controller)?;
        (ctrl.transport == Transport::Fabrics).then_some((ctrl.id, sq.qid))
    }

    /// The commands of a fabrics queue that the drive has, where nothing of them has moved; `None` where something has, or where the queue ends.
    pub fn with_drive(&self, queue: SqHandle) -> Option<WithDrive> {
        let sq = self.sq(self.resolve_queue(queue)?);
        let ctrl = self.ctrl(sq.controller).filter(|ctrl| ctrl.transport == Transport::Fabrics)?;
        if sq.state != SqState::Open || !sq.holes.is_empty() {
            return None;
        }
        let mut with = WithDrive::default();
        if sq.qid == 0 {
            with.events = ctrl.aer.waiting.iter().map(|w| Tag(w.tag)).collect();
            with.waiting = ctrl.admin.iter().map(|(_, tag)| Tag(*tag)).collect();
        } else {
            let waiting: Vec<&Command> = (0..sq.waiting).filter_map(|n| sq.pending.get(sq.nth(n) as usize)).collect();
            // The place of one that was aborted counts, and nobody brings it again.
            if waiting.iter().any(|c| c.is(flag::HOLE)) {
                return None;
            }
            with.waiting = waiting.iter().map(|c| Tag(c.tag)).collect();
            with.begun = self.begun_of(|q| q == queue.index() as u32);
        }
        (sq.in_flight as usize == with.events.len() + with.begun.len()).then_some(with)
    }

    /// Moves whenever something of an association may have changed but by I/O, keep alives and what is only read: what
    /// [`associations`](Self::associations) has said until then counts no more.
    #[inline]
    pub fn association_generation(&self) -> u64 {
        self.changes.nonvolatile.wrapping_add(self.changes.associations)
    }

    /// Something of an association may have changed.
    #[cold]
    pub(crate) fn associate(&mut self) {
        self.changes.associations = self.changes.associations.wrapping_add(1);
    }

    /// Whether hosts rely on something that ends with the drive's power and is not carried by their associations: reservations,
    /// notices of them that were not read or are not wanted, what Lockdown prohibits, write protection until a power cycle.
    pub fn has_what_fleets(&self) -> bool {
        let until_power_cycle = |ns: &Namespace| u32::from(ns.protect) == write_protect::UNTIL_POWER_CYCLE;
        self.slow_path.reservations.values().any(|r| !r.ptpl && !r.registrants.is_empty())
            || self.controllers.list.iter().flatten().any(|ctrl| !ctrl.notices.is_plain())
            || !self.maintenance.prohibited.is_nothing()
            || self.namespaces.list.iter().flatten().any(until_power_cycle)
    }

    /// The associations of fabrics hosts, for [`resume_associations`](Self::resume_associations).
    pub fn associations(&self, now: Nanos) -> Vec<u8> {
        let rests = |c: &&Controller| matches!(c.shutdown, Shutdown::None | Shutdown::Complete);
        let fabrics = |c: &&Controller| c.transport == Transport::Fabrics && c.sq(0) != NONE;
        let list: Vec<&Controller> =
            self.controllers.list.iter().flatten().map(|c| &**c).filter(fabrics).filter(rests).collect();
        let mut to = FORMAT.begin(now);
        to.u16(list.len() as u16);
        list.into_iter().for_each(|ctrl| self.write_controller(ctrl, &mut to));
        let mut reserved = to.part();
        reservation::write(self, false, &mut reserved);
        to.bytes(&reserved.done());
        FORMAT.seal::<TableDigest>(to)
    }

    fn write_controller(&self, ctrl: &Controller, to: &mut Writer) {
        write_state(ctrl, to);
        let queues: Vec<u32> = ctrl.sqs.iter().copied().filter(|q| *q != NONE).collect();
        to.u16(queues.len() as u16);
        for q in queues {
            let sq = self.sq(q);
            to.u16(sq.qid);
            // Of admin commands that wait and come again the head has moved past none.
            to.words([sq.size, sq.head]);
            to.put(&sq.flow_off);
            Wish::put(&sq.wish, to);
            Local::put(&sq.local, to);
        }
    }

    /// Gives a drive that was just made, and has its nonvolatile state, the associations that another process had.
    ///
    /// # Errors
    /// The bytes cannot be read, or do not fit this drive. It has none of the associations then.
    pub fn resume_associations(&mut self, now: Nanos, bytes: &[u8]) -> Result<(), SavedError> {
        let (_, mut from) = FORMAT.open::<TableDigest>(now, bytes)?;
        let resumed = self.read_controllers(&mut from).and_then(|()| from.end());
        if resumed.is_err() {
            self.drop_unclaimed(now);
        }
        Ok(resumed?)
    }

    fn read_controllers(&mut self, from: &mut Reader<'_>) -> Result<(), Damaged> {
        for _ in 0..from.u16()? {
            self.read_controller(from)?;
        }
        reservation::read(self, false, &mut Reader::of(from.bytes()?))
    }

    fn read_controller(&mut self, from: &mut Reader<'_>) -> Result<(), Damaged> {
        let c = self.read_state(Transport::Fabrics, from)?;
        for _ in 0..from.u16()? {
            self.read_queue(c, from)?;
        }
        self.ctrl(c).filter(|ctrl| ctrl.sq(0) != NONE).ok_or(Damaged)?;
        self.goes_on(c);
        Ok(())
    }

    /// A controller has all that it had: its timer runs, its queues are weighed.
    pub(crate) fn goes_on(&mut self, c: u32) {
        let Some(ctrl) = self.ctrl(c) else { return };
        let (group, settings) = (ctrl.group, ctrl.arbitration());
        self.arbiter.set_group(group, settings);
        self.arm_expiry(c);
        self.refresh_guards();
    }

    /// The controller that [`write_state`] has written, without queues, of nobody yet. What fails leaves it half made.
    pub(crate) fn read_state(&mut self, transport: Transport, from: &mut Reader<'_>) -> Result<u32, Damaged> {
        let (id, tenant) = from.get()?;
        let host: String = from.get()?;
        let c = self.make_controller_at(id, transport, tenant, host.clone())?;
        let write_cache = self.config.volatile_write_cache;
        let access = self.namespaces.access.clone();
        let ctrl = self.ctrl_mut(c).ok_or(Damaged)?;
        get_identity(ctrl, from)?;
        ctrl.ana = access.of(&host, ctrl.local);
        ctrl.features = feature::read_saved(write_cache, from)?;
        get_state(ctrl, from)?;
        // The operator may have said something else since.
        let (ana, changes): (u8, u64) = from.get()?;
        let changed = ana != ctrl.ana as u8;
        ctrl.ana_changes = changes.saturating_add(u64::from(changed));
        ctrl.endurance_event = from.get()?;
        let context = from.bytes()?.to_vec();
        ctrl.event_context = from.get::<bool>()?.then_some(context);
        let (pending, masked) = from.get()?;
        ctrl.aer.set_reported(pending, masked).ok_or(Damaged)?;
        if changed {
            ctrl.aer.raise(AsyncEvent::ANA_CHANGE, ctrl.features.async_config);
        }
        ctrl.aer.waiting = <Counted<u8> as Coder<_>>::get(from)?;
        if ctrl.aer.waiting.len() > LIMIT {
            return Err(Damaged);
        }
        get_namespaces(ctrl, from)?;
        if transport == Transport::Rings {
            self.recall_attachments(c);
        }
        Ok(c)
    }

    /// A controller of that identifier.
    fn make_controller_at(&mut self, id: u16, transport: Transport, tenant: u16, host: String) -> Result<u32, Damaged> {
        let at = usize::from(id.checked_sub(1).ok_or(Damaged)?);
        let fits = id <= self.config.max_controllers.min(0xffef) && usize::from(tenant) < self.tenants.list.len();
        if !fits || self.controllers.list.get(at).is_some_and(Option::is_some) {
            return Err(Damaged);
        }
        if self.controllers.list.len() <= at {
            self.controllers.list.resize_with(at + 1, || None);
        }
        self.controllers.next = at;
        let made = self.make_controller(transport, tenant, UNCLAIMED, host).ok_or(Damaged)?;
        // It begins its search there.
        if made as usize == at { Ok(made) } else { Err(Damaged) }
    }

    fn read_queue(&mut self, c: u32, from: &mut Reader<'_>) -> Result<(), Damaged> {
        let (qid, size, head) = (from.u16()?, from.u32()?, from.u32()?);
        let (flow_off, wish, local) = (from.get()?, Wish::get(from)?, Local::get(from)?);
        let ctrl = self.ctrl(c).ok_or(Damaged)?;
        let granted = ctrl.features.queues.map_or(self.config.max_io_queues, |(sqs, _)| sqs);
        let sane = (2..=self.config.max_queue_entries).contains(&size)
            && head < size
            && qid <= granted
            && ctrl.sq(qid) == NONE
            && (qid == 0 || ctrl.sq(0) != NONE);
        if !sane {
            return Err(Damaged);
        }
        let events = if qid == 0 { ctrl.aer.waiting.len() as u32 } else { 0 };
        let q = self.make_sq(c, qid, size, UNCLAIMED, wish, local);
        let sq = self.sq_mut(q);
        (sq.head, sq.flow_off, sq.in_flight) = (head, flow_off, events);
        if qid != 0 {
            sq.pending = alloc::vec![Command::default(); size as usize].into();
        }
        Ok(())
    }

    /// The queue of a resumed association, for the connection that the door calls `owner` from now on.
    pub fn claim(&mut self, cntlid: u16, qid: u16, owner: Owner) -> Option<SqHandle> {
        let c = u32::from(cntlid.checked_sub(1)?);
        let q = self.ctrl(c).filter(|ctrl| ctrl.transport == Transport::Fabrics)?.sq(qid);
        if q == NONE || self.sq(q).owner != UNCLAIMED {
            return None;
        }
        self.sq_mut(q).owner = owner;
        if qid == 0 {
            self.ctrl_mut(c)?.owner = owner;
            // There may be an event to tell.
            self.list_admin(c);
            self.turn.more = true;
        }
        Some(self.sq(q).handle())
    }

    /// The host of a queue must keep its keep alive timer: of a resumed association, which does not say so. One that has none is left
    /// without.
    pub fn require_keep_alive(&mut self, queue: SqHandle) {
        let is_io = self.config.kind == SubsystemKind::Io;
        let Some(c) = self.resolve_queue(queue).map(|q| self.sq(q).controller) else { return };
        if let Some(ctrl) = self.ctrl_mut(c) {
            ctrl.needs_keep_alive = is_io && ctrl.kato != 0;
        }
    }

    /// Nobody comes any more for the resumed queues that were not claimed: their connections are lost.
    pub fn drop_unclaimed(&mut self, now: Nanos) {
        let lost = |sq: &&crate::queues::queue::Sq| sq.owner == UNCLAIMED && !sq.ring && !sq.front;
        // Admin queues last: with one of them the I/O queues go that are left.
        let mut list: Vec<(u16, SqHandle)> =
            self.queues.sqs.iter().flatten().filter(lost).map(|sq| (sq.qid, sq.handle())).collect();
        list.sort_by_key(|(qid, _)| core::cmp::Reverse(*qid));
        list.into_iter().for_each(|(_, queue)| self.disconnect(now, queue));
        let bare = |c: &Controller| c.transport == Transport::Fabrics && c.owner == UNCLAIMED && c.attached == 0;
        for c in 0..self.controllers.list.len() as u32 {
            if self.ctrl(c).is_some_and(bare) {
                self.drop_controller(c);
            }
        }
    }
}
