//! A drive's media on another NVMe namespace or virtio disk, through the host driver. Polled: a shard with requests on
//! their way does not sleep, until their target has said nothing for a while.
//!
//! ```text
//!   Device ── start ──► Transfer ──► QueuePair of the target
//!      ▲                  │ ▲ waits, in the order of submission           LinkRecovery: what is done when the target goes
//!      └── poll: ended ◄──┘ └───────────────────────────────────────────── Connector: attempts    Fence: the old association's end
//! ```
//! [`LinkRecovery`] decides, this carries it out. A drive that says nothing of who it is (virtio) is not connected to again: an empty one could
//! have taken its place.
// tidy: long because it carries out what one machine decides.

mod answer;
mod connector;
mod diagnosis;
mod gone;
mod hosts;
mod interrupt;
mod origin;

use crate::events::EventLog;
use crate::fence::{self, Fence, Link, Record};
use crate::target::{Identity, Opened, OpenedFor};
use crate::transfer::Transfer;
use answer::is_later;
use connector::{Connector, Step};
use diagnosis::Diagnosis;
pub use diagnosis::HealthStatus;
pub(crate) use diagnosis::REPORTS;
use gone::Gone;
use interrupt::Interrupt;
pub use origin::{Origin, Source};
use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use weir_controller::{Host, Io, Op, SlotId, Subsystem};
use weir_driver::health::{Access, Evidence, NamespaceAnswer, PathState, StatusClass};
use weir_driver::link_recovery::{
    Admission, DriveIdentity, LinkEffect, LinkEvent, LinkPolicy, LinkRecovery, LinkState, LinkStatus,
};
use weir_driver::{Done, Io as Request, IoKind, NamespaceNotice, QueuePair, TransportError};
use weir_spec::nvme::Status;
use weir_sys::reactor::Reactor;
use weir_sys::transport::nvme_tcp::Stage;
use weir_units::Nanos;

/// How often the far side's keep alive is looked after at least.
const ATTEND_EVERY: Nanos = Nanos::from_secs(1);
/// The same while it is silent with requests in flight: a server may have closed its socket.
const ATTEND_SILENT: Nanos = Nanos::from_millis(100);
/// How often a fence is looked at, an attempt to connect, and whether the namespace can be accessed.
const FENCE_EVERY: Nanos = Nanos::from_millis(1);
const LOOK_EVERY: Nanos = Nanos::from_millis(2);
/// From then on a silent target is looked at by the clock: its shard may sleep. Part of the silence that a look may be late, and the least
/// and most of that.
const SILENT_AFTER: Nanos = Nanos::from_millis(2);
const LATE_PART: u64 = 16;
const LATE: (Nanos, Nanos) = (Nanos::from_micros(50), Nanos::from_millis(5));
/// A target that has requests and has answered none for so long, or for its keep alive timeout where that is longer, is lost, although it
/// keeps the association alive. Linux's hosts wait as long for a command (`nvme_core.io_timeout`).
const IO_TIMEOUT: Nanos = Nanos::from_secs(30);

/// See the [module](self).
pub struct Remote {
    pair: Box<dyn QueuePair + Send>,
    free: Vec<u32>,
    active: Vec<Option<Transfer>>,
    /// By [`Transfer::order`].
    waiting: VecDeque<Transfer>,
    done: Vec<Done>,
    link: LinkRecovery,
    effects: Vec<LinkEffect>,
    /// Why the association is lost; not yet handed to the machine.
    loss: Option<TransportError>,
    connector: Option<Connector>,
    /// Its completions are interrupts.
    interrupt: Interrupt,
    /// What an attempt has opened, until it is known to be the drive.
    opened: Option<Opened>,
    /// A queue pair to be closed, which may wait.
    old: Option<Box<dyn QueuePair + Send>>,
    /// What waits is sent one by one until there is an answer.
    is_trial: bool,
    /// A read that finds out whether the drive answers: wanted, and its slot.
    wants_probe: bool,
    probe: Option<u32>,
    /// Requests so far.
    begun: u64,
    /// When the target has completed a request last, or was given one after a pause (`None`: since the last poll).
    heard_at: Option<Nanos>,
    is_silent: bool,
    /// When it is looked at next although nothing comes: by state, and for its keep alive.
    look_at: Nanos,
    attend_at: Nanos,
    /// SMART tells of the outage.
    is_noted: bool,
    /// Of a drive that can be connected to again.
    diagnosis: Option<Diagnosis>,
    /// The diagnosis wants to hear of writes.
    knows_bad_blocks: bool,
    /// Nothing is sent before it is over.
    fence: Option<Fence>,
    /// Something was sent over this association.
    has_sent: bool,
    /// Associations of before over which something was sent, until they are known to have ended.
    unfenced: Vec<Identity>,
    record: Option<Record>,
    events: Option<EventLog>,
    origin: Origin,
}

/// What users see of the way to the target.
#[derive(Clone, Debug)]
pub struct RemoteStatus {
    /// Of the link.
    pub link: LinkStatus,
    /// Commands that wait for it.
    pub held: usize,
    /// What is wrong with the drive; none of one that cannot be reset.
    pub health: Option<HealthStatus>,
}

/// What a drive's own I/O does, as far as a failure of it tells apart.
pub(crate) fn access_of(io: &Io) -> Access {
    match io.op {
        Op::Read | Op::Compare | Op::Verify => Access::Read,
        Op::Write | Op::Copy | Op::WriteZeroes { .. } | Op::Deallocate => Access::Write,
        Op::Flush => Access::Other,
    }
}

impl Remote {
    /// Over an open queue pair, once the fence is over. The record ends with the drive, if nothing is in flight then.
    pub fn new(pair: Box<dyn QueuePair + Send>, origin: Origin, fence: Option<Fence>, record: Option<Record>) -> Self {
        let depth = pair.depth();
        let (capacity, block_size) = (pair.capacity(), pair.block_size());
        let of = DriveIdentity { capacity, block_size, ..DriveIdentity::default() };
        let policy = LinkPolicy {
            target: origin.source.target.clone(),
            fast_io_fail_tmo: origin.source.fast_io_fail_tmo,
            reconnects: origin.identity.is_some(),
        };
        let diagnosis = origin.identity.map(|identity| Diagnosis::new(identity, origin.source.fast_io_fail_tmo));
        Self {
            pair,
            free: (0..depth).rev().collect(),
            active: vec![None; depth as usize],
            waiting: VecDeque::new(),
            done: Vec::with_capacity(depth as usize),
            link: LinkRecovery::new(policy, origin.identity.unwrap_or(of), fence.is_some()),
            effects: Vec::new(),
            loss: None,
            connector: None,
            interrupt: Interrupt::default(),
            opened: None,
            old: None,
            is_trial: false,
            wants_probe: false,
            probe: None,
            begun: 0,
            heard_at: None,
            is_silent: false,
            look_at: Nanos(0),
            attend_at: Nanos(0),
            is_noted: false,
            has_sent: false,
            unfenced: Vec::new(),
            diagnosis,
            knows_bad_blocks: false,
            fence,
            record,
            events: None,
            origin,
        }
    }

    /// An eventfd is signalled when requests end, if there is one.
    pub fn interrupted_by(mut self, eventfd: Option<OwnedFd>) -> Self {
        self.interrupt.replace(eventfd);
        self
    }

    /// Whether its thread is woken where requests end.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.is_there()
    }

    /// Has the reactor wake its thread where requests end by interrupts.
    #[inline]
    pub fn watch(&mut self, reactor: &mut Reactor) {
        if self.interrupt.is_new() {
            self.interrupt.watch(reactor);
        }
    }

    /// This process ends, and the next one goes on with what is open.
    pub fn leave_open(&mut self) {
        self.pair.leave_open();
    }

    /// Requests on their way or waiting.
    pub fn in_flight(&self) -> usize {
        let judged = self.diagnosis.as_ref().map_or(0, |diagnosis| diagnosis.waiting() + diagnosis.ended.len());
        self.at_target() + self.waiting.len() + judged
    }

    fn at_target(&self) -> usize {
        self.active.len() - self.free.len()
    }

    /// Whether the far side may answer at any moment.
    pub fn must_poll(&self) -> bool {
        let sends = self.may_send() && !self.waiting.is_empty() && !self.free.is_empty();
        self.loss.is_some() || sends || self.at_target() > 0 && !self.is_silent && self.link.is_connected()
    }

    fn may_send(&self) -> bool {
        let is_tried = self.is_trial && self.at_target() > 0 && !self.link.is_serving();
        let lets_through = self.diagnosis.as_ref().is_none_or(Diagnosis::lets_through);
        self.loss.is_none() && self.link.admission() == Admission::Send && !is_tried && lets_through
    }

    /// Why the far side is gone, if it is.
    pub fn fault(&self) -> Option<&TransportError> {
        self.link.cause()
    }

    /// Whether commands go to the drive as they come.
    pub fn is_reached(&self) -> bool {
        self.may_send() && self.link.is_serving()
    }

    /// Whether what is wrong with it is found out.
    pub fn is_diagnosed(&self) -> bool {
        self.diagnosis.is_some()
    }

    /// How the way to the far side is.
    pub fn status(&self, now: Nanos) -> RemoteStatus {
        let health = self.diagnosis.as_ref().map(|diagnosis| diagnosis.status(now));
        RemoteStatus { link: self.link.status(now), held: self.waiting.len(), health }
    }

    /// Begins an I/O; answers at once where it cannot be begun.
    pub fn start<H: Host>(&mut self, io: Io, machine: &Subsystem, host: &mut H) -> Option<Status> {
        if self.link.admission() == Admission::Fail {
            return Some(Status::INTERNAL_PATH_ERROR);
        }
        if let Some(status) = self.diagnosis.as_ref().and_then(|diagnosis| diagnosis.refusal(access_of(&io))) {
            return Some(status);
        }
        self.begun += 1;
        let mut transfer = Transfer::new(io, false);
        transfer.order = self.begun;
        self.begin(transfer, machine, host)
    }

    fn begin<H: Host>(&mut self, mut transfer: Transfer, machine: &Subsystem, host: &mut H) -> Option<Status> {
        let slot = if self.may_send() { self.free.pop() } else { None };
        let Some(slot) = slot else {
            self.hold(transfer, None);
            return None;
        };
        let limit = match transfer.kind() {
            IoKind::WriteZeroes => self.pair.max_zeroes(),
            _ => self.pair.max_io(),
        };
        let live = machine.is_live(transfer.io.slot);
        if let Err(status) = transfer.begin(limit, self.pair.buffer(slot), live, host) {
            self.free.push(slot);
            return Some(status);
        }
        if self.at_target() == 1 {
            self.heard_at = None;
        }
        // It leaves with the next poll.
        (self.is_silent, self.has_sent) = (false, true);
        let kind = transfer.kind();
        let len = if kind == IoKind::Flush { 0 } else { transfer.chunk };
        match self.pair.submit(Request { kind, offset: transfer.offset(), len, slot }) {
            Ok(()) => {
                self.active[slot as usize] = Some(transfer);
                None
            }
            Err(TransportError::Usage(_)) => {
                self.free.push(slot);
                Some(Status::INTERNAL_ERROR)
            }
            Err(e) => {
                // It is lost with the others, and waits or fails with them.
                self.active[slot as usize] = Some(transfer);
                self.loss.get_or_insert(e);
                None
            }
        }
    }

    /// It waits in its place; since when, if an outage keeps it.
    fn hold(&mut self, mut transfer: Transfer, since: Option<Nanos>) {
        transfer.restart_chunk();
        transfer.held_since = transfer.held_since.or(since);
        let at = self.waiting.partition_point(|other| other.order < transfer.order);
        self.waiting.insert(at, transfer);
    }

    /// When it wants to be polled although nothing comes.
    pub fn due(&self) -> Nanos {
        let diagnosis = self.diagnosis.as_ref().map_or(Nanos::NEVER, Diagnosis::due);
        if self.must_poll() { Nanos::NEVER } else { self.look_at.min(self.attend_at).min(diagnosis) }
    }

    /// Sends and reaps; true if anything came back. I/O that has ended is appended.
    pub fn poll<H: Host>(
        &mut self,
        now: Nanos,
        machine: &mut Subsystem,
        host: &mut H,
        ended: &mut Vec<(SlotId, Status)>,
    ) -> bool {
        if self.loss.is_some() || !self.link.is_serving() || now >= self.attend_at {
            self.look_after(now);
        }
        if self.diagnosis.as_ref().is_some_and(|diagnosis| now >= diagnosis.due()) {
            self.look_after_diagnosis(now);
        }
        let mut busy = self.at_target() > 0 && self.link.is_connected() && self.reap(now, machine, host, ended);
        busy |= self.send_waiting(machine, host, ended);
        if !self.link.is_serving() || self.is_noted {
            busy |= self.tell_hosts(machine, ended);
            busy |= self.give_up(now, machine, ended);
        }
        if let Some(diagnosis) = self.diagnosis.as_mut().filter(|diagnosis| !diagnosis.ended.is_empty()) {
            ended.append(&mut diagnosis.ended);
            busy = true;
        }
        busy
    }

    fn reap<H: Host>(
        &mut self,
        now: Nanos,
        machine: &Subsystem,
        host: &mut H,
        ended: &mut Vec<(SlotId, Status)>,
    ) -> bool {
        let mut done = std::mem::take(&mut self.done);
        if let Err(e) = self.pair.poll(&mut done) {
            self.loss.get_or_insert(e);
        }
        let is_heard = !done.is_empty();
        let busy = is_heard || self.loss.is_some();
        self.listen(now, is_heard);
        let (mut later, mut is_answered) = (None, false);
        for d in done.drain(..) {
            let is_later = is_later(d.status);
            let is_gone = self.is_gone(d.status);
            later = if is_later { Some(d.status) } else { later };
            is_answered |= !is_later && !is_gone;
            if self.diagnosis.is_some() && self.ends_suspect(now, d.slot, d.status) {
                continue;
            }
            let Some(mut transfer) = self.take(d.slot) else { continue };
            if is_later || is_gone {
                self.free.push(d.slot);
                self.hold(transfer, Some(now));
                continue;
            }
            transfer.held_since = None;
            if !d.status.is_success() && self.diagnosis.is_some() {
                self.free.push(d.slot);
                self.judge(now, transfer, d.status);
                continue;
            }
            if self.knows_bad_blocks {
                self.tell_carried_out(now, &transfer);
            }
            let live = machine.is_live(transfer.io.slot);
            let status = transfer.finish(d.status, self.pair.buffer(d.slot), live, host);
            self.free.push(d.slot);
            let status = status.or_else(|| self.begin(transfer, machine, host));
            ended.extend(status.map(|status| (transfer.io.slot, status)));
        }
        self.done = done;
        if let Some(status) = later {
            self.close(now, StatusClass::of(status), format!("the namespace answers {status}"));
        } else if is_answered && !self.link.is_serving() {
            self.apply(now, LinkEvent::Answered);
            self.diagnose_open_path(now);
        }
        if is_heard {
            self.take_notices(now);
        }
        busy
    }

    /// Whether an answer says that there is no such namespace: it was taken away, perhaps to come back as another one. The association is
    /// lost then. A drive that is not connected to again has its error.
    fn is_gone(&mut self, status: Status) -> bool {
        if self.origin.identity.is_none() || !status.same_code(Status::INVALID_NAMESPACE_OR_FORMAT) {
            return false;
        }
        self.doubt_namespace(&format!("its namespace is gone ({status})"));
        true
    }

    /// What was in a slot; the probe's is free from then on.
    fn take(&mut self, slot: u32) -> Option<Transfer> {
        if self.probe == Some(slot) {
            self.probe = None;
            self.free.push(slot);
        }
        self.active[slot as usize].take()
    }

    /// Whether the target is silent, and when it is looked at then.
    #[inline]
    fn listen(&mut self, now: Nanos, busy: bool) {
        if busy {
            (self.heard_at, self.is_silent) = (Some(now), false);
            if self.link.is_serving() {
                self.look_at = Nanos::NEVER;
            }
            return;
        }
        let silence = now.saturating_sub(*self.heard_at.get_or_insert(now));
        if silence >= self.io_timeout() {
            self.stall(silence);
        }
        // Who is woken by an interrupt looks for one that is lost.
        let (silent_after, least) = if self.interrupt.is_there() { (Nanos(0), LATE.1) } else { (SILENT_AFTER, LATE.0) };
        self.is_silent = silence >= silent_after;
        if self.is_silent {
            self.look_at = now.saturating_add(Nanos(silence.get() / LATE_PART).clamp(least, LATE.1));
            self.attend_at = self.attend_at.min(now.saturating_add(ATTEND_SILENT));
        }
    }

    /// A drive that is not connected to again is waited for: its loss would be for good.
    fn io_timeout(&self) -> Nanos {
        if self.origin.identity.is_none() {
            return Nanos::NEVER;
        }
        self.origin.association.map_or(IO_TIMEOUT, |association| association.kato.max(IO_TIMEOUT))
    }

    #[cold]
    fn stall(&mut self, silence: Nanos) {
        let (target, count) = (&self.origin.source.target, self.at_target());
        let text = format!("{target}: no answer to {count} commands for {:.0} s", silence.as_secs_f64());
        self.loss.get_or_insert(TransportError::Timeout(text));
    }

    fn send_waiting<H: Host>(&mut self, machine: &Subsystem, host: &mut H, ended: &mut Vec<(SlotId, Status)>) -> bool {
        let mut busy = false;
        while self.may_send() && !self.free.is_empty() {
            let Some(transfer) = self.waiting.pop_front() else { break };
            let status = self.begin(transfer, machine, host);
            ended.extend(status.map(|status| (transfer.io.slot, status)));
            busy = true;
        }
        if self.wants_probe {
            self.send_probe();
        }
        if self.diagnosis.is_some() {
            self.read_suspect();
        }
        busy
    }

    /// A read that nobody waits for.
    #[cold]
    fn send_probe(&mut self) {
        self.wants_probe = false;
        if self.at_target() > 0 || self.loss.is_some() || self.link.state() != LinkState::Replaying {
            return;
        }
        let Some(slot) = self.free.pop() else { return };
        let len = self.pair.block_size();
        (self.probe, self.heard_at) = (Some(slot), None);
        if let Err(e) = self.pair.submit(Request { kind: IoKind::Read, offset: 0, len, slot }) {
            self.loss.get_or_insert(e);
        }
    }

    /// What is not to be done for each request.
    #[cold]
    fn look_after(&mut self, now: Nanos) {
        if let Some(cause) = self.loss.take() {
            self.lose(now, cause);
        }
        while let Some(step) = self.connector.as_ref().and_then(Connector::step) {
            self.follow(now, step);
        }
        if self.link.state() == LinkState::Fencing && self.fence.as_mut().is_none_or(|fence| fence.is_over(now)) {
            self.end_fence();
            self.apply(now, LinkEvent::Ended);
        }
        if self.link.is_connected() && now >= self.attend_at {
            self.attend(now);
        }
        self.look_after_diagnosis(now);
        self.apply(now, LinkEvent::Tick);
        self.look_at = self.next_look(now);
        if !self.link.is_connected() {
            self.attend_at = Nanos::NEVER;
        }
    }

    fn next_look(&self, now: Nanos) -> Nanos {
        let pause = match self.link.state() {
            LinkState::Serving | LinkState::Replaying | LinkState::Waiting => return self.link.due(),
            LinkState::Fencing => FENCE_EVERY,
            LinkState::Connecting | LinkState::Enabling | LinkState::Identifying | LinkState::Inaccessible => {
                LOOK_EVERY
            }
        };
        self.link.due().min(now.saturating_add(pause))
    }

    fn lose(&mut self, now: Nanos, cause: TransportError) {
        let heard = match self.heard_at {
            // Its keep alives tell nothing of its requests.
            Some(at) if self.at_target() > 0 && now.saturating_sub(at) >= self.io_timeout() => at,
            Some(at) if self.at_target() > 0 => self.pair.heard().max(at),
            // One that is asked nothing is not silent.
            _ => now,
        };
        self.diagnose_loss(now);
        self.apply(now, LinkEvent::Lost { cause, heard });
    }

    fn close(&mut self, now: Nanos, class: StatusClass, cause: String) {
        if let StatusClass::Path(path) = class {
            self.diagnose(now, Evidence::Path(path));
        }
        let cause = TransportError::Refused(format!("{}: {cause}", self.origin.source.target));
        self.apply(now, LinkEvent::NotReady(cause));
    }

    fn follow(&mut self, now: Nanos, step: Step) {
        match step {
            Step::Reached(Stage::Connected) => self.apply(now, LinkEvent::Connected),
            Step::Reached(Stage::Enabled) => self.apply(now, LinkEvent::Enabled),
            Step::Failed(e) => {
                let is_absent = matches!(e, TransportError::NoNamespace(_));
                self.apply(now, LinkEvent::AttemptFailed(e));
                if is_absent {
                    self.diagnose_found(now, NamespaceAnswer::Absent);
                }
            }
            Step::Opened(opened) => {
                let identity = opened.identity.unwrap_or_default();
                self.opened = Some(opened);
                self.apply(now, LinkEvent::Identified(identity));
                if self.link.state() == LinkState::Waiting {
                    // Another drive is there.
                    self.diagnose_found(now, NamespaceAnswer::Present(identity));
                }
            }
        }
    }

    fn end_fence(&mut self) {
        self.fence = None;
        self.unfenced.clear();
        if let (Some(record), Some(own)) = (&mut self.record, self.origin.association) {
            record.clear(own.cntlid);
        }
    }

    /// The far side ends an association that is silent for too long; and it may have something to say.
    fn attend(&mut self, now: Nanos) {
        let tmo = self.origin.association.map_or(Nanos::NEVER, |association| association.kato);
        self.attend_at = match self.link.state() {
            LinkState::Inaccessible => now.saturating_add(LOOK_EVERY),
            _ => now.saturating_add(ATTEND_EVERY.min(Nanos(tmo.get() / 8))),
        };
        if let Err(e) = self.pair.attend() {
            return self.lose(now, e);
        }
        if self.link.is_serving() {
            self.ask_smart_first(now);
        }
        self.take_notices(now);
    }

    fn take_notices(&mut self, now: Nanos) {
        while let Some(notice) = self.pair.take_notice() {
            match notice {
                NamespaceNotice::AttributesChanged => {
                    self.doubt_namespace("its namespace has changed, and is looked at again");
                    if let Some(cause) = self.loss.take() {
                        self.lose(now, cause);
                    }
                }
                NamespaceNotice::AccessChanged { is_accessible: true } => self.apply(now, LinkEvent::Accessible),
                NamespaceNotice::AccessChanged { is_accessible: false } => {
                    let class = StatusClass::Path(PathState::Inaccessible);
                    self.close(now, class, "its ANA state lets no command through".into());
                }
            }
        }
    }

    #[cold]
    fn apply(&mut self, now: Nanos, event: LinkEvent) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let mut effects = std::mem::take(&mut self.effects);
            self.link.apply(now, event, &mut effects);
            for effect in effects.drain(..) {
                let event = self.carry_out(now, effect);
                next = next.or(event);
            }
            self.effects = effects;
        }
    }

    /// What follows from it, if that is known at once.
    fn carry_out(&mut self, now: Nanos, effect: LinkEffect) -> Option<LinkEvent> {
        match effect {
            LinkEffect::Release => self.release(now),
            LinkEffect::Connect(answer_timeout) => return self.connect(answer_timeout),
            LinkEffect::Fence => return self.resume(now),
            LinkEffect::Replay | LinkEffect::Try => {
                self.attend_at = now;
                if effect == LinkEffect::Replay {
                    self.diagnose_connected(now);
                }
                (self.is_trial, self.wants_probe) = (effect == LinkEffect::Try, true);
            }
            // Whatever waits fails in the poll that goes on.
            LinkEffect::Fail => {}
            LinkEffect::Tell(notice) => self.tell(now, notice),
        }
        None
    }

    /// The queue pair is given up; what was in flight waits.
    fn release(&mut self, now: Nanos) {
        if let Some(opened) = self.opened.take() {
            self.old = Some(opened.pair);
            return;
        }
        // What one connection of the association has not told yet must not be carried out much later.
        for connection in self.origin.connections.drain(..) {
            let _ = TcpStream::from(connection).shutdown(Shutdown::Both);
        }
        let lost: Vec<Transfer> = self.active.drain(..).flatten().collect();
        lost.into_iter().for_each(|transfer| self.hold(transfer, Some(now)));
        self.free.clear();
        self.forget_suspects();
        (self.probe, self.wants_probe, self.is_silent, self.loss) = (None, false, false, None);
        self.interrupt.replace(None);
        self.old = Some(std::mem::replace(&mut self.pair, Box::new(Gone)));
    }

    fn connect(&mut self, answer_timeout: Nanos) -> Option<LinkEvent> {
        if self.connector.is_none() {
            let Source { target, how, drive, keep, .. } = &self.origin.source;
            match Connector::start(target, *how, OpenedFor { drive: drive.clone(), keep: keep.clone() }) {
                Ok(connector) => self.connector = Some(connector),
                Err(e) => return Some(LinkEvent::AttemptFailed(e)),
            }
        }
        let old = self.old.take();
        if let Some(connector) = &self.connector {
            connector.attempt(answer_timeout, old);
        }
        None
    }

    /// What was opened is the drive's from now on; nothing is sent before the associations of before have ended.
    fn resume(&mut self, now: Nanos) -> Option<LinkEvent> {
        let opened = self.opened.take()?;
        let depth = opened.pair.depth();
        (self.free, self.active) = ((0..depth).rev().collect(), vec![None; depth as usize]);
        (self.pair, self.heard_at, self.attend_at) = (opened.pair, None, now);
        let lost = std::mem::replace(&mut self.origin.association, opened.association);
        if std::mem::take(&mut self.has_sent) {
            self.unfenced.extend(lost);
        }
        self.origin.connections = opened.connections;
        self.interrupt.replace(opened.interrupt);
        let Some(new) = opened.association else { return Some(LinkEvent::Ended) };
        let e = self.fence_off(new, now).err()?;
        let cause = TransportError::Closed(format!("{}: {e}", self.origin.source.target));
        Some(LinkEvent::Lost { cause, heard: now })
    }

    /// What is to be fenced stays known where this fails: the next attempt begins here again.
    fn fence_off(&mut self, new: Identity, now: Nanos) -> std::io::Result<()> {
        let own = self.origin.connections.iter().map(OwnedFd::try_clone).collect::<Result<_, _>>()?;
        let Source { drive, nqn, target, keep, .. } = &self.origin.source;
        let link = Link { drive, nqn, target, association: new };
        match &mut self.fence {
            Some(fence) => fence.guard(own)?,
            None if self.unfenced.is_empty() => fence::hold(&link, &own, keep)?,
            None => self.fence = Some(Fence::again(link, self.unfenced.clone(), own, keep, now)?),
        }
        if let Some(record) = &mut self.record {
            record.set(new.cntlid, self.fence.iter().flat_map(Fence::earlier));
        }
        Ok(())
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // What was in flight when the far side went may still be there.
        let is_clear = self.in_flight() == 0 && self.loss.is_none() && self.link.is_serving();
        self.record.iter().filter(|_| is_clear).for_each(Record::end);
    }
}

#[cfg(test)]
mod tests;
