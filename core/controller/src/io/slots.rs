//! Commands in flight, and the timers of those whose service time has not passed.

use crate::event::{Io, Op, SlotId};
use crate::io::starting::NO_ARRIVAL;
use crate::io::work::{Ranges, RemainingWork};
use crate::namespace::metadata::Metadata;
use crate::queues::command::Command;
use crate::queues::queue::NONE;
use crate::zns::ZonedOp;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use weir_spec::nvme::IoOpcode;
use weir_spec::nvme::nvm::DSM_RANGES_MAX;
use weir_units::Nanos;

/// What a slot waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    Free,
    /// Writes in flight, in the zones that it resets.
    Held,
    /// Its service time.
    Timed,
    /// Allocator in the effects.
    Ready,
    /// `Event::Done`.
    Issued,
    /// It was issued, and has been [taken back](crate::Subsystem::take_back): the process that takes the drive over gets it.
    TakenBack,
}

/// A command in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Its queue; `NONE` when nobody waits for it any more, or for the drive's own flush.
    pub queue: u32,
    /// What it holds of the bytes in flight.
    pub bytes: u32,
    /// The door's tag; for the drive's own flush the controller that shuts down.
    pub tag: u32,
    /// Ranges still to do, or what is owed to zones, as an index into the work lists; `NONE` for other commands.
    pub ranges: u32,
    pub nsid: u32,
    pub slba: u64,
    pub cid: u16,
    pub opcode: u8,
    pub state: SlotState,
    /// The drive's own flush at shutdown.
    pub internal: bool,
    /// When the command is to complete; 0 where no service time says so.
    pub due: Nanos,
    /// When the command arrived; [`NO_ARRIVAL`] where nobody knows.
    pub arrived: Nanos,
}

impl Slot {
    /// Becomes that command's of a queue.
    #[inline(always)]
    pub fn assign(&mut self, (queue, arrived): (u32, Nanos), command: &Command, ranges: u32, state: SlotState) {
        self.queue = queue;
        self.arrived = arrived;
        self.tag = command.tag;
        self.ranges = ranges;
        self.nsid = command.nsid;
        self.slba = command.slba;
        self.cid = command.cid;
        self.opcode = command.opcode;
        self.state = state;
    }
}

pub(crate) const FREE: Slot = Slot {
    queue: NONE,
    bytes: 0,
    tag: 0,
    ranges: NONE,
    nsid: 0,
    slba: 0,
    cid: 0,
    opcode: 0,
    state: SlotState::Free,
    internal: false,
    due: Nanos(0),
    arrived: NO_ARRIVAL,
};

/// How long before it is due a command is emitted at the least where the medium takes its own time: longer than media take for one, and
/// no longer than another process may have to wait for those that have been emitted.
const AHEAD: Nanos = Nanos::from_millis(20);

/// All slots of a drive.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    pub slots: Vec<Slot>,
    free: Vec<u32>,
    free_internal: Vec<u32>,
    /// Slots for hosts' commands; those above are the drive's own.
    pub limit: u32,
    pub used: u32,
    pub bytes: u64,
    pub byte_limit: u64,
    /// What is to be emitted, by slot; valid while timed or ready.
    pub ios: Vec<Option<Io>>,
    /// When, then a sequence, then which slot: see [`timer`].
    timers: BinaryHeap<Reverse<u128>>,
    /// Timed slots whose time is not known yet.
    pub pending: u32,
    /// When the drive's inside may know more, as it has said since it was last asked to do something; 0 where it has not.
    pub quiet_until: Nanos,
    sequence: u64,
    /// How much earlier than it is to complete a command is emitted, in nanoseconds a MiB, and the least that such a command moves,
    /// in bytes.
    pub lead: (u32, u32),
    /// Emits a command when it begins, unless it is due much later.
    pub early: bool,
    ready: VecDeque<u32>,
    work: Vec<Ranges>,
    free_work: Vec<u32>,
    /// What commands owed whose slots were given back.
    pub released: Vec<ZonedOp>,
    /// Tickets of vendor's commands whose slots were given back.
    pub settled: Vec<u64>,
    /// Commands without I/O whose time has passed.
    pub elapsed: Vec<u32>,
    /// Of each slot how many queues had gone before that of its command.
    gone_before: Vec<u64>,
    /// Queues that have gone.
    gone: u64,
}

/// Bits of a timer's lower half that name the slot; the rest of it is a sequence, so that equal times keep their order.
const SLOT_BITS: u32 = 24;

/// A timer in one number: the time in its upper half.
#[inline]
fn timer(due: u64, sequence: u64, id: u32) -> Reverse<u128> {
    Reverse(u128::from(due) << 64 | u128::from(sequence << SLOT_BITS | u64::from(id)))
}

impl Slots {
    pub fn new(limit: u32, byte_limit: u64) -> Self {
        let n = limit as usize;
        Self {
            slots: alloc::vec![FREE; n],
            free: (0..limit).rev().collect(),
            free_internal: Vec::new(),
            limit,
            used: 0,
            bytes: 0,
            byte_limit,
            ios: alloc::vec![None; n],
            timers: BinaryHeap::with_capacity(n),
            pending: 0,
            quiet_until: Nanos(0),
            sequence: 0,
            lead: (0, 0),
            early: false,
            ready: VecDeque::with_capacity(n),
            work: Vec::new(),
            free_work: Vec::new(),
            released: Vec::new(),
            settled: Vec::new(),
            elapsed: Vec::new(),
            gone_before: alloc::vec![0; n],
            gone: 0,
        }
    }

    /// Whether a host's command of so many bytes may start now. One that is larger than the limit may run alone.
    #[inline]
    pub fn fits(&self, bytes: u32) -> bool {
        !self.free.is_empty() && (self.bytes + u64::from(bytes) <= self.byte_limit || self.bytes == 0 || bytes == 0)
    }

    #[inline]
    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Occupies a slot, which the caller fills in; he has asked `fits`.
    #[inline]
    pub fn occupy(&mut self, bytes: u32) -> (u32, &mut Slot) {
        let id = self.free.pop().expect("a slot is free");
        self.used += 1;
        self.bytes += u64::from(bytes);
        let slot = &mut self.slots[id as usize];
        slot.bytes = bytes;
        (id, slot)
    }

    /// Occupies one of the drive's own slots, of which there are as many as needed.
    pub fn occupy_internal(&mut self, controller: u32) -> u32 {
        let slot = Slot { tag: controller, internal: true, state: SlotState::Ready, ..FREE };
        if let Some(id) = self.free_internal.pop() {
            self.slots[id as usize] = slot;
            return id;
        }
        self.slots.push(slot);
        self.ios.push(None);
        self.gone_before.push(0);
        self.slots.len() as u32 - 1
    }

    /// Frees a slot.
    #[inline]
    pub fn vacate(&mut self, id: u32) {
        let slot = &mut self.slots[id as usize];
        slot.state = SlotState::Free;
        slot.queue = NONE;
        slot.due = Nanos(0);
        if slot.ranges != NONE {
            let work = &mut self.work[slot.ranges as usize];
            self.released.extend(work.zoned.take());
            self.settled.extend(work.vendor.take().and_then(|work| work.ticket));
            (work.metadata, work.source, work.steps) = (None, None, None);
            self.free_work.push(slot.ranges);
            slot.ranges = NONE;
        }
        if slot.internal {
            slot.internal = false;
            self.free_internal.push(id);
            return;
        }
        self.used -= 1;
        self.bytes -= u64::from(slot.bytes);
        self.free.push(id);
    }

    /// Emits `io` at `due`, before it by what moving its bytes takes, or by [`AHEAD`] where the medium takes its own time.
    pub fn delay(&mut self, now: Nanos, id: u32, io: Io, due: Nanos) {
        if !self.early {
            return self.set_timer(id, io, due);
        }
        let at = due.saturating_sub(AHEAD);
        if at > now {
            return self.emit_at(id, io, (at, due));
        }
        self.slots[id as usize].due = due;
        self.make_ready(id, io);
    }

    fn set_timer(&mut self, id: u32, io: Io, due: Nanos) {
        let (lead, least) = self.lead;
        let moves = matches!(io.op, Op::Read | Op::Write | Op::Compare) && io.len >= least;
        let lead = if moves { (u64::from(io.len) * u64::from(lead)) >> 20 } else { 0 };
        self.emit_at(id, io, (due.saturating_sub(Nanos(lead)), due));
    }

    fn emit_at(&mut self, id: u32, io: Io, (at, due): (Nanos, Nanos)) {
        self.ios[id as usize] = Some(io);
        let slot = &mut self.slots[id as usize];
        (slot.state, slot.due) = (SlotState::Timed, due);
        self.timers.push(timer(at.0, self.sequence, id));
        self.sequence = self.sequence.wrapping_add(1) & (u64::MAX >> SLOT_BITS);
    }

    /// Completes a command that has no I/O at `due`.
    pub fn delay_done(&mut self, id: u32, due: Nanos) {
        self.slots[id as usize].state = SlotState::Timed;
        self.timers.push(timer(due.0, self.sequence, id));
        self.sequence = self.sequence.wrapping_add(1) & (u64::MAX >> SLOT_BITS);
    }

    /// The same when [`Slots::known`] says when: without I/O the command completes then. Where the medium takes its own time, that begins
    /// then.
    pub fn pend(&mut self, id: u32, io: Option<Io>) {
        self.ios[id as usize] = io;
        self.slots[id as usize].state = SlotState::Timed;
        self.pending += 1;
    }

    /// It is known when a command is complete.
    pub fn known(&mut self, id: u32, due: Nanos) {
        self.pending -= 1;
        match self.ios[id as usize].take() {
            Some(io) => self.set_timer(id, io, due),
            None => self.delay_done(id, due),
        }
    }

    /// Emits `io` when there is room.
    pub fn make_ready(&mut self, id: u32, io: Io) {
        self.ios[id as usize] = Some(io);
        self.slots[id as usize].state = SlotState::Ready;
        self.ready.push_back(id);
    }

    /// The next that may be emitted at `now`; a dead one is freed on the way.
    #[inline]
    pub fn emit(&mut self, now: Nanos) -> Option<Io> {
        loop {
            let id = match self.timers.peek() {
                Some(Reverse(timer)) if (timer >> 64) as u64 <= now.0 => {
                    let id = *timer as u32 & ((1 << SLOT_BITS) - 1);
                    self.timers.pop();
                    id
                }
                _ => self.ready.pop_front()?,
            };
            let slot = &self.slots[id as usize];
            if slot.queue == NONE && !self.goes_on(id) {
                self.ios[id as usize] = None;
                self.vacate(id);
                continue;
            }
            let slot = &mut self.slots[id as usize];
            slot.state = SlotState::Issued;
            if let Some(io) = self.ios[id as usize].take() {
                return Some(io);
            }
            self.elapsed.push(id);
        }
    }

    /// Whether a command that nobody waits for is carried out all the same: the drive's own, and a reset that has begun.
    #[cold]
    pub fn goes_on(&self, id: u32) -> bool {
        let slot = &self.slots[id as usize];
        slot.internal || self.resets(slot.ranges)
    }

    /// Whether any command has a work list.
    #[inline]
    pub fn has_work_lists(&self) -> bool {
        self.free_work.len() < self.work.len()
    }

    /// Whether a work list is that of a zone reset.
    pub fn resets(&self, ranges: u32) -> bool {
        let work = self.work.get(ranges as usize);
        work.is_some_and(|work| matches!(work.zoned, Some(ZonedOp::Reset { .. })))
    }

    /// Whether a work list is that of ranges and nothing else.
    pub fn is_plain_list(&self, ranges: u32) -> bool {
        let plain = |work: &Ranges| !work.is_begun() && work.metadata.is_none() && work.source.is_none();
        self.work.get(ranges as usize).is_some_and(plain)
    }

    /// What the command in this slot owes.
    pub fn owed(&self, id: u32) -> Option<&ZonedOp> {
        self.work.get(self.slots[id as usize].ranges as usize)?.zoned.as_ref()
    }

    /// Whether a command that was emitted can be let go of: nobody else sees what a read does.
    pub fn can_let_go(&self, id: u32) -> bool {
        let slot = &self.slots[id as usize];
        self.early && slot.state == SlotState::Issued && slot.opcode == IoOpcode::READ.0 && slot.ranges == NONE
    }

    pub fn next_due(&self) -> Option<Nanos> {
        self.timers.peek().map(|Reverse(timer)| Nanos((timer >> 64) as u64))
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A list for ranges; allocates only when more commands of this kind are in flight than ever before.
    pub fn take_work(&mut self) -> (u32, &mut Ranges) {
        let index = self.free_work.pop().unwrap_or_else(|| {
            self.work.push(Ranges {
                list: Vec::with_capacity(DSM_RANGES_MAX),
                next: 0,
                zoned: None,
                vendor: None,
                metadata: None,
                source: None,
                steps: None,
            });
            self.work.len() as u32 - 1
        });
        let work = &mut self.work[index as usize];
        work.list.clear();
        work.next = 0;
        (index, work)
    }

    /// Metadata of the blocks of a command with that list.
    #[cold]
    pub fn metadata(&self, index: u32) -> Option<&Metadata> {
        self.work.get(index as usize)?.metadata.as_ref()
    }

    /// Metadata of the blocks that a copy with that list reads now.
    #[cold]
    pub fn source(&self, index: u32) -> Option<&Metadata> {
        self.work.get(index as usize)?.source.as_ref()
    }

    pub fn drop_work(&mut self, index: u32) {
        self.free_work.push(index);
    }

    pub fn work(&mut self, index: u32) -> &mut Ranges {
        &mut self.work[index as usize]
    }

    /// Nobody waits for the commands of this queue any more. They keep their slots until they are done.
    pub fn orphan(&mut self, queue: u32) {
        for (slot, gone_before) in self.slots.iter_mut().zip(&mut self.gone_before) {
            if slot.queue == queue {
                slot.queue = NONE;
                *gone_before = self.gone;
            }
        }
        self.gone += 1;
    }

    /// How many queues have gone so far.
    pub fn queues_gone(&self) -> u64 {
        self.gone
    }

    /// Whether a command is under way that does not go on by itself and whose queue is one of the first so many that have gone.
    pub fn has_orphans(&self, of_first: u64) -> bool {
        let is = |(i, s): (usize, &Slot)| {
            s.state != SlotState::Free && s.queue == NONE && self.gone_before[i] < of_first && !self.goes_on(i as u32)
        };
        self.slots.iter().enumerate().any(is)
    }

    /// Whether a slot was handed out and nobody waits for it any more.
    pub fn is_orphan(&self, id: SlotId) -> bool {
        let slot = &self.slots[id.index()];
        slot.state == SlotState::Issued && slot.queue == NONE && !self.goes_on(id.0)
    }

    /// What is left of the command in this slot, if it is one of several steps.
    fn steps(&self, id: u32) -> Option<&RemainingWork> {
        let slot = self.slots.get(id as usize).filter(|slot| slot.state != SlotState::Free)?;
        self.work.get(slot.ranges as usize)?.steps.as_ref()
    }

    /// Whether the command in this slot is a fused pair.
    pub fn is_pair(&self, id: u32) -> bool {
        self.steps(id).is_some_and(|steps| steps.second.is_some())
    }

    /// Whether the command in this slot keeps others from its blocks: a fused pair, or a copy that is atomic.
    pub fn holds_blocks(&self, id: u32) -> bool {
        self.steps(id).is_some_and(|steps| steps.second.is_some() || steps.alone)
    }

    /// Whether the command in this slot is a copy that reads another namespace than its own, which is this one.
    pub fn copies_from(&self, id: u32, nsid: u32) -> bool {
        self.steps(id).is_some_and(|steps| steps.reads.contains(&nsid))
    }

    /// The slot of a command.
    pub fn find(&self, queue: u32, cid: u16) -> Option<u32> {
        self.slots.iter().position(|s| s.queue == queue && s.cid == cid).map(|i| i as u32)
    }

    pub fn get(&self, id: SlotId) -> Option<&Slot> {
        self.slots.get(id.index())
    }

    pub fn check(&self) {
        let busy = |s: &&Slot| s.state != SlotState::Free && !s.internal;
        let used = self.slots.iter().filter(busy).count() as u32;
        let bytes: u64 = self.slots.iter().filter(busy).map(|s| u64::from(s.bytes)).sum();
        assert_eq!((used, bytes), (self.used, self.bytes), "slots and bytes in flight are counted");
        assert!(self.used <= self.limit, "{} slots used of {}", self.used, self.limit);
        assert_eq!(self.free.len() as u32 + self.used, self.limit, "every slot is free or used");
        let movers = self.slots.iter().filter(busy).filter(|s| s.bytes > 0).count();
        assert!(self.bytes <= self.byte_limit || movers == 1, "{} bytes in flight", self.bytes);
        let timed = self.slots.iter().filter(|s| s.state == SlotState::Timed).count();
        assert_eq!(timed, self.timers.len() + self.pending as usize, "a timer for each timed slot");
        let ready = self.slots.iter().filter(|s| s.state == SlotState::Ready).count();
        assert_eq!(ready, self.ready.len(), "an entry for each ready slot");
        let ranges = self.slots.iter().filter(|s| s.ranges != NONE).count();
        assert_eq!(ranges + self.free_work.len(), self.work.len(), "every list of ranges is used or free");
    }
}
