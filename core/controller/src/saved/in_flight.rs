//! Commands whose time is not over when another process takes the drive over.
//!
//! ```text
//!   before: set_goes_on ─► may_leave? ─► begun ─► to_bytes ─┐ the door's
//!   after:  resume_begun ◄──────────────────── from_bytes ◄─┘ ─► the command comes again ─► fetched ─► slot until it is due ─► Effect::Io
//! ```
//! Such a command has a slot and has moved nothing: its I/O is emitted when it is due. So the drive that takes over gets the command again, from its connection, its
//! ring's journal or its in-flight region, and the time at which it was due. It does not ask the arbiter, nor the drive's inside, both of which have
//! charged it. Times are those of the clock that both processes read, in nanoseconds.
//!
//! Whoever carries I/O out at other drives, as a front of volumes does, may find that these drives have begun nothing of it. It
//! [takes back](Subsystem::take_back) what was emitted, with the time at which it is due there.
//!
//! Not carried, and to be waited for: what else has been emitted; commands of several steps (copies, fused pairs, blocks with metadata, those of zoned namespaces and
//! vendors' own); commands whose time is not known yet ([`When`]).

use crate::controller::Transport;
use crate::event::{BlockRequest, ControllerHandle, Op, SlotId, SqHandle};
use crate::host::{DataPointer, Host, Tag};
use crate::io::slots::{Slot, SlotState};
use crate::io::starting::{NO_ARRIVAL, Starting};
use crate::io::timing::Operation;
use crate::namespace::why;
use crate::queues::command::{Command, flag};
use crate::queues::queue::{NONE, SqState};
use crate::subsystem::Subsystem;
use crate::vendor::FIRST_OPCODE;
use alloc::string::String;
use alloc::vec::Vec;
use weir_codec::{Code, Damaged, Reader, SavedError, SavedFormat, Writer};
use weir_flash::When;
use weir_spec::nvme::tcp::TableDigest;
use weir_spec::nvme::{IoOpcode, Status};
use weir_units::Nanos;

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
const FORMAT: SavedFormat = SavedFormat::new(b"WEIRBGUN", VERSION, "a list of commands");

/// When a request is due that takes no time: long ago.
const UNTIMED: Nanos = Nanos(0);

/// A command that has left its queue and has moved nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its submission queue.
    pub qid: u16,
    /// What its completion comes with.
    pub tag: Tag,
    /// When it is due; `None`: it has no slot yet.
    pub due: Option<Nanos>,
}

impl Code for Begun {
    fn put(&self, to: &mut Writer) {
        to.put(&(self.qid, self.tag.0));
        to.put(&self.due.unwrap_or_default());
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let ((qid, tag), due): (_, Nanos) = from.get()?;
        Ok(Begun { qid, tag: Tag(tag), due: Some(due).filter(|due| due.0 != 0) })
    }
    fn kind() -> String {
        "QID u16, tag u32, due u64".into()
    }
}

impl Begun {
    /// These commands as bytes, for [`from_bytes`](Self::from_bytes).
    pub fn to_bytes(list: &[Begun]) -> Vec<u8> {
        let mut to = FORMAT.begin(Nanos(0));
        list.iter().for_each(|begun| to.put(begun));
        FORMAT.seal::<TableDigest>(to)
    }

    /// The commands that [`to_bytes`](Self::to_bytes) has written.
    ///
    /// # Errors
    /// The bytes are no such list, or of another release.
    pub fn from_bytes(bytes: &[u8]) -> Result<Vec<Begun>, SavedError> {
        let (_, mut from) = FORMAT.open::<TableDigest>(Nanos(0), bytes)?;
        let mut list = Vec::new();
        while !from.is_empty() {
            list.push(from.get()?);
        }
        Ok(list)
    }
}

impl Subsystem {
    /// Whether commands of a controller that are [begun](Self::begun) come again in the process that takes the drive over.
    pub fn set_goes_on(&mut self, controller: ControllerHandle, goes_on: bool) {
        let ctrl = self.resolve(controller).and_then(|c| self.ctrl_mut(c));
        ctrl.into_iter().for_each(|ctrl| ctrl.begun_goes_on = goes_on);
    }

    /// The same, true, of all controllers that hosts have connected to.
    pub fn set_fabrics_go_on(&mut self) {
        let fabrics = self.controllers.list.iter_mut().flatten().filter(|ctrl| ctrl.transport == Transport::Fabrics);
        fabrics.for_each(|ctrl| ctrl.begun_goes_on = true);
    }

    /// Whether nothing is being executed but what is [begun](Self::begun) and goes on in the process that takes the drive over.
    pub fn may_leave(&self) -> bool {
        self.may_leave_with(|_| false)
    }

    /// The same where I/O in the slots that `comes_back` names is [taken back](Self::take_back) before.
    pub fn may_leave_with(&self, comes_back: impl Fn(SlotId) -> bool) -> bool {
        let goes_on = |id| self.slot_goes_on(id) || self.may_be_taken_back(id) && comes_back(SlotId(id));
        self.is_at_rest() || self.namespaces.jobs.iter().all(|job| job.waiter.is_none()) && self.all_go_on(goes_on)
    }

    /// The I/O of a slot was emitted, and nothing of it has begun where it is carried out; or it moves nothing before `due` there. It is
    /// [begun](Self::begun) from now on, and not emitted again: this process ends.
    pub fn take_back(&mut self, slot: SlotId, due: Option<Nanos>) {
        if self.slots.get(slot).is_some() && self.may_be_taken_back(slot.0) {
            let slot = &mut self.slots.slots[slot.index()];
            (slot.state, slot.due) = (SlotState::TakenBack, due.unwrap_or_default());
        }
    }

    fn may_be_taken_back(&self, id: u32) -> bool {
        let slot = &self.slots.slots[id as usize];
        slot.state == SlotState::Issued
            && slot.ranges == NONE
            && !slot.internal
            && self.queue_goes_on(slot.queue)
            && self.is_plain(slot.opcode, slot.nsid)
    }

    fn all_go_on(&self, goes_on: impl Fn(u32) -> bool) -> bool {
        let mut counted = alloc::vec![0u32; self.queues.sqs.len()];
        for (slot, id) in self.slots.slots.iter().zip(0..).filter(|(slot, _)| slot.state != SlotState::Free) {
            if !goes_on(id) {
                return false;
            }
            counted[slot.queue as usize] += 1;
        }
        if self.faults.as_ref().is_some_and(|faults| !faults.admin.is_empty()) {
            return false;
        }
        for fetched in self.fetched.iter().chain(self.held_by_rules()) {
            if !self.fetched_goes_on(fetched) {
                return false;
            }
            counted[fetched.queue as usize] += 1;
        }
        let mut queues = self.queues.sqs.iter().zip(counted);
        queues.all(|(sq, counted)| sq.as_ref().is_none_or(|sq| sq.qid == 0 || sq.in_flight == counted))
    }

    fn queue_goes_on(&self, q: u32) -> bool {
        let Some(Some(sq)) = self.queues.sqs.get(q as usize) else { return false };
        let goes_on = self.ctrl(sq.controller).is_some_and(|ctrl| ctrl.begun_goes_on);
        goes_on && sq.qid != 0 && sq.state == SqState::Open
    }

    fn is_plain(&self, opcode: u8, nsid: u32) -> bool {
        let plain = || self.namespaces.active(nsid).is_ok_and(|ns| ns.why & (why::ZONES | why::VENDOR) == 0);
        opcode < FIRST_OPCODE && (opcode == IoOpcode::FLUSH.0 || plain())
    }

    fn slot_goes_on(&self, id: u32) -> bool {
        let slot = &self.slots.slots[id as usize];
        // The first piece of a list is the only one that is timed where the drive has no inside.
        let is_whole = slot.ranges == NONE || self.timing.0.is_none() && self.slots.is_plain_list(slot.ranges);
        let moves_nothing = slot.state == SlotState::Timed && slot.due.0 != 0 || slot.state == SlotState::TakenBack;
        moves_nothing
            && !slot.internal
            && is_whole
            && self.queue_goes_on(slot.queue)
            && self.is_plain(slot.opcode, slot.nsid)
    }

    /// Commands that rules keep from starting: they are judged anew where they come again.
    fn held_by_rules(&self) -> impl Iterator<Item = &Starting> {
        self.faults.iter().flat_map(|faults| faults.held.iter().map(|held| &held.starting))
    }

    fn fetched_goes_on(&self, fetched: &Starting) -> bool {
        let Starting { queue, command, decided, .. } = fetched;
        let is_whole = decided.is_none() && !command.is(flag::FUSED | flag::HOLE);
        is_whole && self.queue_goes_on(*queue) && self.is_plain(command.opcode, command.nsid)
    }

    /// The commands of a controller that have left their queues and move nothing before they are due: the first one due first, then
    /// those that have no slot, in their order.
    pub fn begun(&self, controller: ControllerHandle) -> Vec<Begun> {
        let queues = self.resolve(controller).and_then(|c| self.ctrl(c)).map(|ctrl| ctrl.sqs.clone());
        let queues = queues.unwrap_or_default();
        self.begun_of(|q| q != NONE && queues.contains(&q))
    }

    /// The same of a message queue.
    pub(crate) fn begun_of(&self, is_one: impl Fn(u32) -> bool) -> Vec<Begun> {
        let slots = self.slots.slots.iter().zip(0..);
        let slots = slots.filter(|(slot, id)| is_one(slot.queue) && self.slot_goes_on(*id));
        let begun = |q: u32, tag, due| Begun { qid: self.sq(q).qid, tag: Tag(tag), due };
        let due = |slot: &Slot| Some(slot.due).filter(|due| due.0 != 0);
        let mut list: Vec<Begun> = slots.map(|(slot, _)| begun(slot.queue, slot.tag, due(slot))).collect();
        list.sort_by_key(|begun| (begun.due.is_none(), begun.due));
        let fetched = self.fetched.iter().chain(self.held_by_rules());
        let fetched = fetched.filter(|f| is_one(f.queue) && self.fetched_goes_on(f));
        list.extend(fetched.map(|f| begun(f.queue, f.command.tag, f.due)));
        list
    }

    /// These commands of a ring controller come again, by [`resubmit`](Self::resubmit), and are complete when they were due.
    pub fn resume_begun(&mut self, controller: ControllerHandle, list: &[Begun]) {
        let Some(queues) = self.resolve(controller).and_then(|c| self.ctrl(c)).map(|ctrl| ctrl.sqs.clone()) else {
            return;
        };
        for begun in list {
            let q = queues.get(usize::from(begun.qid)).copied().unwrap_or(NONE);
            if q != NONE {
                self.resumed.insert((q, begun.tag.0), begun.due);
            }
        }
    }

    /// The same of a message queue, whose door brings them again.
    pub fn resume_begun_of(&mut self, queue: SqHandle, list: impl IntoIterator<Item = Begun>) {
        let Some(q) = self.resolve_queue(queue) else { return };
        self.resumed.extend(list.into_iter().map(|begun| ((q, begun.tag.0), begun.due)));
    }

    /// Of a message queue that requests come in by, those of which nothing has moved: begun, or waiting in the queue.
    pub fn unmoved(&self, queue: SqHandle) -> Vec<Begun> {
        let Some(q) = self.resolve_queue(queue) else { return Vec::new() };
        let (sq, mut list) = (self.sq(q), self.begun_of(|of| of == q));
        let waiting = (0..sq.waiting).filter_map(|n| sq.pending.get(sq.nth(n) as usize));
        list.extend(waiting.map(|command| Begun { qid: sq.qid, tag: Tag(command.tag), due: None }));
        list
    }

    /// The request that comes next, by [`submit`](Self::submit), is complete then, or at once.
    #[cold]
    pub(crate) fn expect_untimed(&mut self, queue: SqHandle, request: &BlockRequest, tag: Tag, due: Option<Nanos>) {
        // What is inside the drive has to hear of changes.
        let may_skip = due.is_some() || self.timing.0.is_none() || request.op == Op::Read;
        if let Some(q) = self.resolve_queue(queue).filter(|_| may_skip) {
            self.resumed.insert((q, tag.0), Some(due.unwrap_or(UNTIMED)));
        }
    }

    /// A command has arrived on a message queue: it waits for the arbiter, unless it had left its queue in the process before.
    #[inline]
    pub(crate) fn arrive<H: Host>(&mut self, q: u32, command: Command, host: &mut H) {
        if self.resumed.is_empty() || !self.comes_again(q, &command, host) {
            self.enqueue(q, command);
        }
    }

    #[cold]
    fn comes_again<H: Host>(&mut self, q: u32, command: &Command, host: &mut H) -> bool {
        let Some(due) = self.resumed.remove(&(q, command.tag)) else { return false };
        let data = DataPointer::tag(Tag(command.tag));
        // How long an untimed one takes is nobody's latency.
        let arrived = if due == Some(UNTIMED) { NO_ARRIVAL } else { self.turn.now };
        let sq = self.sq_mut(q);
        // The place in front of which it would wait has them.
        let (words, mdts) = (sq.words_at(sq.tail()), sq.mdts);
        sq.in_flight += 1;
        match self.planned((q, mdts), command, &data, host) {
            Ok(plan) if plan.empty => self.dismiss(q, command, Status::SUCCESS, host),
            Ok(plan) => {
                let (command, data) = (*command, data.of(plan.transfer));
                self.fetched.push_back(Starting {
                    queue: q,
                    command,
                    plan,
                    data,
                    words,
                    arrived,
                    decided: None,
                    due,
                    judged: None,
                });
            }
            Err(status) => self.dismiss(q, command, status, host),
        }
        true
    }

    /// When a command that starts now is complete. One that comes again is so when it was due in the process before, which has told the
    /// drive's inside.
    #[inline]
    pub(crate) fn complete_command_at(&mut self, now: Nanos, starting: &Starting, operation: Operation) -> When {
        if let Some(due) = starting.due {
            return When::at(due.max(now));
        }
        let placement = self.placement_of(now, starting.queue, &starting.command, operation.op);
        self.complete_at(now, Operation { placement, ..operation })
    }
}
