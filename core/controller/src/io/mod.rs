//! The path of an I/O command: arrival, fetch, slot, effect, completion.
//!
//! ```text
//!  capsule / doorbell ─▶ Sq ─(arbiter picks, CQ entry reserved)─▶ fetch ─▶ plan ─┬─▶ start: slot ─▶ (latency) ─▶ Effect::Io ─▶ done
//!                                                                               ├─▶ fetched: bytes in flight are spent; nobody overtakes
//!                                                                               └─▶ complete: refused, or nothing to do
//! ```

mod abort;
pub(crate) mod charge;
pub(crate) mod placement;
mod placing;
pub(crate) mod plan;
pub(crate) mod slots;
pub(crate) mod slow_path;
pub(crate) mod starting;
pub(crate) mod timing;
pub(crate) mod work;

use crate::event::{BlockRequest, Effect, Effects, Io, Op, SlotId, SqHandle};
use crate::host::{DataPointer, Host, Owner, RingCompletion, Tag};
use crate::io::plan::CommandPlan;
use crate::io::slots::SlotState;
use crate::io::slow_path::fused::Half;
use crate::io::starting::Starting;
use crate::io::timing::Operation;
use crate::io::work::RemainingWork;
use crate::queues::command::{Command, flag, of_ring, words_of};
use crate::queues::queue::{NONE, SqState};
use crate::stats::Work;
use crate::subsystem::Subsystem;
use crate::vendor::FIRST_OPCODE;
use crate::zns::ZonedOp;
use weir_arbiter::QueueKey;
use weir_spec::nvme::nvm::DsmRange;
use weir_spec::nvme::{Cqe, IoOpcode, Sqe, Status};
use weir_units::Nanos;
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

/// A list of ranges, and the offset and length of the first piece of work.
type Gathered = (u32, (u64, u32));

/// Commands fetched in one `Run` at the most; it says `has_work` if there are more.
const BUDGET: u32 = 1024;

impl Subsystem {
    /// A command capsule: an admin or fabrics command, or one that waits for the arbiter.
    pub(crate) fn capsule<H: Host>(&mut self, queue: SqHandle, sqe: &Sqe, tag: Tag, host: &mut H) {
        let Some(q) = self.resolve_queue(queue) else { return };
        let sq = self.sq(q);
        if sq.state == SqState::Condemned {
            return;
        }
        if sq.qid == 0 {
            return self.admin_capsule(q, sqe, tag);
        }
        if sqe.opcode == IoOpcode::FABRICS.0 && !self.sq(q).front {
            return self.fabrics_io(q, sqe, tag, host);
        }
        let mut command = Command::parse(&sqe.words(), tag);
        // Over fabrics data is always described by an SGL (base 2.0, 4.1).
        if sqe.psdt() == 3 || sqe.psdt() == 0 && !self.sq(q).front {
            command.flags |= flag::BAD_POINTER;
        }
        if self.namespaces.any_metadata || command.opcode >= FIRST_OPCODE && self.vendor.0.is_some() {
            self.put_words(q, sqe);
        }
        if self.timing.0.is_some() {
            self.prefetch(command.nsid, command.slba);
        }
        self.arrive(q, command, host);
    }

    /// A command for the bytes from `offset` of a namespace on will arrive soon: what deciding about it needs can be brought nearer. A hint.
    #[inline]
    pub fn expect(&self, nsid: u32, offset: u64) {
        if self.timing.0.is_some() {
            let shift = self.namespaces.active(nsid).map_or(9, |ns| ns.shift);
            self.prefetch(nsid, offset >> shift);
        }
    }

    /// Tells the inside where a command that has arrived will go, if it is one with a place.
    fn prefetch(&self, nsid: u32, slba: u64) {
        let offset = self.namespaces.active(nsid).ok().and_then(|ns| ns.locate(slba, 1));
        if let (Some(inside), Some(offset)) = (&self.timing.0, offset) {
            inside.prefetch(offset);
        }
    }

    /// The rest of a command that is about to be queued.
    #[cold]
    fn put_words(&mut self, q: u32, sqe: &Sqe) {
        let sq = self.sq_mut(q);
        sq.words.resize(sq.pending.len(), [0; 4]);
        let (at, [_, cdw2, .., cdw12, cdw14]) = (sq.tail() as usize, sqe.words());
        if let Some(words) = sq.words.get_mut(at).filter(|_| sq.waiting < sq.size) {
            *words = [cdw12, cdw14, 0, cdw2];
        }
    }

    /// A request in bytes from a front controller's door.
    pub(crate) fn submit<H: Host>(&mut self, queue: SqHandle, request: &BlockRequest, tag: Tag, host: &mut H) {
        let Some(q) = self.resolve_queue(queue).filter(|q| self.sq(*q).front) else { return };
        let shift = self.namespaces.active(request.nsid).map_or(9, |ns| ns.shift);
        let command = Command::from_request(request, shift, tag);
        if self.timing.0.is_some() {
            self.prefetch(command.nsid, command.slba);
        }
        self.arrive(q, command, host);
    }

    #[inline]
    pub(crate) fn enqueue(&mut self, q: u32, command: Command) {
        let clock = self.turn.now;
        let sq = self.sq_mut(q);
        if sq.state == SqState::Condemned {
            return;
        }
        let at = sq.tail() as usize;
        if !sq.push(command) {
            // The host sent more than its queue holds.
            return self.condemn(q);
        }
        sq.arrived[at] = clock;
        if sq.waiting == 1 || sq.awaits {
            self.refresh(q);
        }
    }

    /// Serves: connections to close, admin, what is due, then I/O.
    pub(crate) fn run<H: Host>(&mut self, now: Nanos, host: &mut H, effects: &mut Effects) {
        self.turn.more = false;
        self.arbiter.release_due(now);
        if self.queues.interrupts.next <= now {
            self.tell_due(now, host);
        }
        if !self.queues.to_disconnect.is_empty() {
            self.announce(effects);
        }
        if !self.admin.ready.is_empty() || !self.admin.held.is_empty() {
            self.serve_admin(now, host);
        }
        if !self.maintenance.background.is_empty() {
            self.work_in_background(now, host);
        }
        self.hear_service(now);
        self.emit(now, effects);
        if !self.slots.elapsed.is_empty() || !self.slots.released.is_empty() {
            self.elapse(now, host);
        }
        if !self.slow_path.waits.is_empty() || !self.slow_path.locks.is_empty() || self.faults.is_some() {
            self.go_on_waiting(now, host);
        }
        self.serve_io(now, host, effects);
        self.hear_service(now);
        if self.slots.early && self.slots.has_ready() {
            self.emit(now, effects);
            self.turn.more |= !self.slots.elapsed.is_empty();
        }
        if self.slots.used > 0 && self.power.busy_since.is_none() {
            self.power.busy_since = Some(now);
        }
        if !self.queues.to_disconnect.is_empty() {
            self.announce(effects);
        }
    }

    /// Effects for what may be emitted, as many as fit.
    #[inline]
    fn emit(&mut self, now: Nanos, effects: &mut Effects) {
        while effects.room() > 0 {
            match self.slots.emit(now) {
                Some(io) => effects.push(Effect::Io(io)),
                None => break,
            }
        }
    }

    /// Asks the doors to close what is condemned.
    pub(crate) fn announce(&mut self, effects: &mut Effects) {
        while effects.room() > 0 {
            let Some(queue) = self.queues.to_disconnect.pop_front() else { return };
            if let Some(q) = self.resolve_queue(queue) {
                effects.push(Effect::Disconnect { owner: self.sq(q).owner, queue });
            }
        }
    }

    fn serve_io<H: Host>(&mut self, now: Nanos, host: &mut H, effects: &mut Effects) {
        let instant = self.is_instant();
        for _ in 0..BUDGET {
            while let Some(first) = self.fetched.front() {
                if !self.slots.fits(first.plan.transfer) || instant && effects.room() == 0 {
                    break;
                }
                if let Some(mut starting) = self.fetched.pop_front() {
                    // Its namespace may have got a reason since it was planned.
                    let ns = self.namespaces.active(starting.command.nsid);
                    starting.plan.slow |= ns.is_ok_and(|ns| ns.is_slow());
                    self.start(now, starting, host, effects);
                }
            }
            if !self.config.is_eager() {
                if !self.fetched.is_empty() || !self.slots.has_free() {
                    return;
                }
                if instant && effects.room() == 0 {
                    break;
                }
            }
            let Some(key) = self.arbiter.pick_at(now) else { return };
            self.fetch(now, key.index() as u32, host, effects);
        }
        self.turn.more = true;
    }

    /// Fetches the head of the picked queue and starts it, refuses it, or lets it wait for bytes in flight.
    #[inline]
    fn fetch<H: Host>(&mut self, now: Nanos, q: u32, host: &mut H, effects: &mut Effects) {
        let any_metadata = self.namespaces.any_metadata;
        let kept = |command: &Command| any_metadata || command.opcode >= FIRST_OPCODE;
        let sq = self.queues.sqs[q as usize].as_mut().expect("the arbiter picks live queues");
        let (command, data, words) = if sq.ring {
            let cq = self.queues.cqs[sq.cq as usize].as_mut().expect("a ring has its completion queue");
            if cq.credit == 0 {
                // Another submission queue took the last entry.
                cq.starved += u32::from(!sq.starved);
                sq.starved = true;
                return self.arbiter.withdraw(sq.key);
            }
            let Ok(entry) = host.fetch(sq.owner, sq.base.wrapping_add(u64::from(sq.head) * 64)) else {
                let c = sq.controller;
                return self.fatal(c);
            };
            cq.credit -= 1;
            let (mut command, data) = of_ring(&entry, sq.page_shift);
            if !sq.holes.is_empty() {
                let head = sq.head;
                if let Some(at) = sq.holes.iter().position(|h| *h == head) {
                    sq.holes.swap_remove(at);
                    command.flags |= flag::HOLE;
                    cq.credit += 1;
                }
            }
            let words = if kept(&command) { words_of(&entry) } else { [0; 4] };
            if command.is_fused() {
                return self.fetch_fused(now, q, Half { command, data, words, entry }, host);
            }
            if !command.is(flag::FUSED) {
                command.tag = host.take(sq.owner, sq.qid, &entry, sq.nth(1)).0;
            }
            (command, data, words)
        } else {
            let command = sq.pending[sq.head as usize];
            let data = DataPointer::tag(Tag(command.tag));
            let words = if kept(&command) { sq.words_at(sq.head) } else { [0; 4] };
            if command.is_fused() {
                return self.fetch_fused(now, q, Half { command, data, words, entry: [0; 8] }, host);
            }
            (command, data, words)
        };
        let at = sq.advance();
        sq.in_flight += 1;
        let (key, more, cq, mdts) = (sq.key, sq.waiting > 0, sq.cq, sq.mdts);
        let plan = self.planned((q, mdts), &command, &data, host);
        let more = more && (cq == NONE || self.has_credit(q, cq));
        let arrived = self.account(now, (key, at), (&plan, &command), more);
        match plan {
            Ok(plan) if plan.empty => self.dismiss(q, &command, Status::SUCCESS, host),
            Ok(plan) => {
                let (data, due, judged) = (data.of(plan.transfer), None, None);
                let starting = Starting { queue: q, command, plan, data, words, arrived, decided: None, due, judged };
                let room = effects.room() > 0 || !self.is_instant();
                if self.fetched.is_empty() && room && self.slots.fits(plan.transfer) {
                    self.start(now, starting, host, effects);
                } else {
                    self.fetched.push_back(starting);
                }
            }
            Err(_) if command.is(flag::HOLE) => self.sq_mut(q).in_flight -= 1,
            Err(status) => self.dismiss(q, &command, status, host),
        }
    }

    /// Whether another command of the queue can be fetched; if not, the queue waits for its completion queue.
    #[inline]
    pub(crate) fn has_credit(&mut self, q: u32, cq: u32) -> bool {
        let cq = self.queues.cqs[cq as usize].as_mut().expect("a ring has its completion queue");
        if cq.credit > 0 {
            return true;
        }
        let sq = self.queues.sqs[q as usize].as_mut().expect("the queue exists");
        if !sq.starved {
            sq.starved = true;
            cq.starved += 1;
        }
        false
    }

    /// Charges a command that was fetched from that place of its queue; answers when it arrived there.
    #[inline(always)]
    pub(crate) fn account(
        &mut self,
        now: Nanos,
        (key, at): (QueueKey, u32),
        (plan, command): (&Result<CommandPlan, Status>, &Command),
        more: bool,
    ) -> Nanos {
        let cost = self.cost(key.index() as u32, plan, command);
        let bytes = plan.as_ref().map_or(0, |plan| plan.transfer);
        self.arbiter.charge_at(now, key, cost, bytes, more);
        let arrived = self.sq(key.index() as u32).arrived[at as usize];
        if self.tenants.is_judged {
            self.judge_start(now, key, arrived, bytes);
        }
        arrived
    }

    /// Gives a fetched command a slot. The caller has seen that it fits.
    ///
    /// Always inlined: what was just parsed stays in registers. Passed through memory it is written in narrow pieces and
    /// read in wide ones, which waits for the stores.
    #[inline(always)]
    fn start<H: Host>(&mut self, now: Nanos, starting: Starting, host: &mut H, effects: &mut Effects) {
        if starting.plan.slow {
            return self.start_slow(now, &{ starting }, host);
        }
        let Starting { queue, ref command, ref plan, data, arrived, .. } = starting;
        let Some((ranges, (offset, len))) = self.first_piece((queue, command, plan), &data, host) else { return };
        let owner = self.sq(queue).owner;
        let (id, slot) = self.slots.occupy(plan.transfer);
        slot.assign((queue, arrived), command, ranges, SlotState::Issued);
        let (op, nsid, fua) = (plan.op, command.nsid, command.is(flag::FUA));
        // Built where it goes: one that is also passed on by reference would be built on the stack and copied.
        let io = || Io { slot: SlotId(id), owner, data, op, nsid, offset, len, fua, skip: 0 };
        if self.is_instant() {
            effects.push(Effect::Io(io()));
        } else {
            let due = self.complete_command_at(now, &{ starting }, Operation { op, offset, len, fua, placement: 0 });
            self.delay(id, io(), due);
        }
    }

    /// The first piece of the medium that a command is about, and where the others are listed. `None`: there is none, and it is answered.
    #[inline(always)]
    pub(crate) fn first_piece<H: Host>(
        &mut self,
        (queue, command, plan): (u32, &Command, &CommandPlan),
        data: &DataPointer,
        host: &mut H,
    ) -> Option<Gathered> {
        if plan.op != Op::Deallocate || command.is(flag::RANGE) {
            return Some((NONE, (plan.offset, plan.len)));
        }
        match self.gather(queue, command, data, host) {
            Ok(Some(gathered)) => return Some(gathered),
            Ok(None) => self.finish(queue, command.cid, command.tag, Status::SUCCESS, 0, host),
            Err(status) => self.refuse(queue, command, status, host),
        }
        None
    }

    /// Reads and checks the ranges of a dataset management command; all of them before the first is touched.
    pub(crate) fn gather<H: Host>(
        &mut self,
        queue: u32,
        command: &Command,
        data: &DataPointer,
        host: &mut H,
    ) -> Result<Option<Gathered>, Status> {
        let ns = *self.namespaces.active(command.nsid)?;
        let bytes = &mut self.admin.scratch[..command.blocks as usize * size_of::<DsmRange>()];
        host.read_data(self.queues.sqs[queue as usize].as_ref().expect("the queue exists").owner, data, 0, bytes)?;
        let (index, work) = self.slots.take_work();
        let mut status = Ok(());
        for bytes in bytes.chunks_exact(size_of::<DsmRange>()) {
            let range = DsmRange::read_from_bytes(bytes).unwrap_or_default();
            let (slba, blocks) = (range.slba.get(), u64::from(range.nlb.get()));
            match (ns.locate(slba, blocks), &self.namespaces.allocator) {
                (Some(_), _) if blocks == 0 => {}
                (Some(_), Some(allocator)) if ns.fragmented => {
                    let pieces = allocator.pieces(command.nsid, slba << ns.shift, blocks << ns.shift);
                    pieces.into_iter().for_each(|(offset, len)| work.push(offset, len));
                }
                (Some(offset), _) => work.push(offset, blocks << ns.shift),
                (None, _) => status = Err(Status::LBA_OUT_OF_RANGE.dnr()),
            }
        }
        let first = status.map(|()| work.next());
        match first {
            Ok(Some(first)) => Ok(Some((index, first))),
            other => {
                self.slots.drop_work(index);
                other.map(|_| None)
            }
        }
    }

    /// The media has done an I/O.
    #[inline]
    pub(crate) fn done<H: Host>(&mut self, now: Nanos, id: u32, status: Status, host: &mut H) {
        let Some(slot) = self.slots.slots.get(id as usize) else { return };
        if slot.state != SlotState::Issued {
            return;
        }
        if slot.ranges != NONE || slot.queue == NONE || !status.is_success() {
            return self.done_else(now, id, status, host);
        }
        let (queue, cid, tag, opcode, bytes) = (slot.queue, slot.cid, slot.tag, slot.opcode, slot.bytes);
        let arrived = slot.arrived;
        self.release(now, id);
        let tenant = usize::from(self.sq(queue).tenant);
        count(&mut self.tenants.list[tenant].work, opcode, bytes);
        self.count_latency(now, arrived, tenant, opcode);
        self.finish(queue, cid, tag, status, 0, host);
    }

    /// Gives a slot back.
    #[inline]
    fn release(&mut self, now: Nanos, id: u32) {
        self.slots.vacate(id);
        if self.slots.used == 0 {
            if let Some(since) = self.power.busy_since.take() {
                self.power.busy += now.saturating_sub(since).0;
                self.power.idle_since = now;
            }
        }
    }

    /// The same for a command of several ranges, one that nobody waits for, and one that failed.
    #[cold]
    fn done_else<H: Host>(&mut self, now: Nanos, id: u32, status: Status, host: &mut H) {
        if status.is_success() {
            self.decide_passed(id, host);
        }
        if status.is_success() && (self.step_on(now, id) || self.go_on(id)) {
            return;
        }
        let slot = self.slots.slots[id as usize];
        let answer = if status.is_success() { self.vendor_answer(id) } else { None };
        let status = answer.map_or(status, |answer| answer.status);
        if slot.ranges != NONE && (slot.queue != NONE || self.slots.resets(slot.ranges)) && status.is_success() {
            if let Some((offset, len)) = self.slots.work(slot.ranges).next() {
                let owner = if slot.queue == NONE { Owner(u32::MAX) } else { self.sq(slot.queue).owner };
                let data = DataPointer::tag(Tag(slot.tag));
                let (op, nsid) = (Op::Deallocate, slot.nsid);
                let io = Io { slot: SlotId(id), owner, data, op, nsid, offset, len, fua: false, skip: 0 };
                return self.resume(now, id, io);
            }
        }
        let owed = self.end_spoiling(id, host);
        let steps = if slot.ranges == NONE { None } else { self.slots.work(slot.ranges).steps.take() };
        self.release(now, id);
        if let Some(steps) = steps.as_ref().filter(|_| status.is_success()) {
            self.heal(slot.nsid, &steps.heals);
        }
        if let Some(op) = &owed {
            // Media and data integrity errors; a host that failed to deliver leaves its zone as it is.
            if status.sct() == Status::WRITE_FAULT.sct() {
                self.spoil_zones(op);
            }
        }
        self.settle_released(now);
        if slot.internal {
            if !self.piece_done(now, id, status, host) {
                self.flushed(slot.tag, id, status);
            }
            return;
        }
        if slot.queue == NONE {
            return;
        }
        let tenant = usize::from(self.sq(slot.queue).tenant);
        self.count_latency(now, slot.arrived, tenant, slot.opcode);
        if let Some(RemainingWork { second: Some(second), todo, .. }) = &steps {
            // The comparison failed where the write had not begun.
            return self.end_pair(&slot, second, (status, todo.is_empty()), host);
        }
        if status.is_success() {
            count(&mut self.tenants.list[tenant].work, slot.opcode, slot.bytes);
        } else {
            self.health.media_errors +=
                u64::from(status.sct() == Status::WRITE_FAULT.sct() && !status.same_code(Status::COMPARE_FAILURE));
            self.tenants.list[tenant].work.errors += 1;
            self.log_error(slot.queue, slot.cid, status, (slot.slba, slot.nsid));
        }
        let result = match owed {
            Some(ZonedOp::Write { result, .. }) if status.is_success() => result,
            _ => answer.map_or(0, |answer| answer.result),
        };
        self.finish(slot.queue, slot.cid, slot.tag, status, result, host);
    }

    /// Commands without I/O whose time has passed are complete; what dead ones owed to zones is settled.
    #[cold]
    fn elapse<H: Host>(&mut self, now: Nanos, host: &mut H) {
        let mut at = 0;
        while let Some(id) = self.slots.elapsed.get(at).copied() {
            self.done(now, id, Status::SUCCESS, host);
            at += 1;
        }
        self.slots.elapsed.clear();
        self.settle_released(now);
    }

    /// Goes on with a command that has its slot already: at once, or when the drive's inside is done with this part of it.
    pub(crate) fn resume(&mut self, now: Nanos, id: u32, io: Io) {
        if self.timing.0.is_none() {
            return self.slots.make_ready(id, io);
        }
        let Io { op, offset, len, fua, .. } = io;
        let due = self.complete_at(now, Operation { op, offset, len, fua, placement: 0 });
        self.delay(id, io, due);
    }

    /// Completes a command that never reached the media.
    #[cold]
    pub(crate) fn refuse<H: Host>(&mut self, q: u32, command: &Command, status: Status, host: &mut H) {
        let tenant = usize::from(self.sq(q).tenant);
        self.tenants.list[tenant].work.errors += 1;
        self.log_error(q, command.cid, status, (command.slba, command.nsid));
        self.finish(q, command.cid, command.tag, status, 0, host);
    }

    /// Completes an I/O command that was counted in flight.
    #[inline]
    pub(crate) fn finish<H: Host>(&mut self, q: u32, cid: u16, tag: u32, status: Status, result: u64, host: &mut H) {
        let sq = self.sq_mut(q);
        sq.in_flight -= 1;
        let watched = sq.paused || sq.state == SqState::Deleting;
        self.complete(q, cid, tag, status, result, host);
        if watched {
            self.idle(q, host);
        }
    }

    /// Sends a completion. On rings its entry has been reserved.
    #[inline]
    pub(crate) fn complete<H: Host>(&mut self, q: u32, cid: u16, tag: u32, status: Status, result: u64, host: &mut H) {
        let sq = self.sq(q);
        let mut cqe = Cqe {
            dw0: U32::new(result as u32),
            dw1: U32::new((result >> 32) as u32),
            sqhd: U16::new(sq.sqhd()),
            sqid: U16::new(if sq.ring { sq.qid } else { 0 }),
            cid: U16::new(cid),
            status_phase: U16::new(status.field() << 1),
        };
        let owner = sq.owner;
        if !sq.ring {
            return host.respond(owner, Tag(tag), &cqe);
        }
        let (c, index) = (sq.controller, sq.cq);
        let cq = self.queues.cqs[index as usize].as_mut().expect("a ring has its completion queue");
        let mut vector = cq.vector;
        let gated = cq.gated;
        let taken = RingCompletion { tag: Tag(tag), place: cq.place() };
        let (address, phase) = cq.produce();
        cqe.set_phase(phase);
        if gated {
            vector = self.hold(index);
        }
        if host.complete(owner, address, vector, &cqe, taken).is_err() {
            self.fatal(c);
        }
    }

    /// A queue that is watched has one command less in flight: a deletion or a shutdown may go on.
    #[cold]
    fn idle<H: Host>(&mut self, q: u32, host: &mut H) {
        let Some(sq) = self.queues.sqs[q as usize].as_ref() else { return };
        if sq.in_flight > 0 {
            return;
        }
        let c = sq.controller;
        if sq.state == SqState::Deleting {
            self.finish_deletion(q, host);
        }
        self.drained(c);
    }
}

#[inline]
fn count(work: &mut Work, opcode: u8, bytes: u32) {
    match IoOpcode(opcode) {
        IoOpcode::READ => {
            work.reads += 1;
            work.read_bytes += u64::from(bytes);
        }
        IoOpcode::WRITE => {
            work.writes += 1;
            work.write_bytes += u64::from(bytes);
        }
        _ => work.others += 1,
    }
}
