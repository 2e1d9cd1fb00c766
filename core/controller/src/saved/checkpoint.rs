//! One ring controller as bytes while its queues are at work, so that a successor goes on with it after its process was killed.
//!
//! ```text
//!  magic "WEIRCKPT" │ version u32 │ length u32, a function of its own as `pcie.rs` writes it │ life u64, admin commands taken in it u64
//!                   │ completion queues u16, each: QID u16, laps u64, made u32 │ submission queues u16, each: QID u16, made u32
//!                   │ admin commands that are kept u16, each: number u64, 64 bytes
//!
//!  take: Subsystem::checkpoint ─► memory that outlives the process, whenever something of this changed
//!  go on: resume_checkpoint ─► Journals::recover: restore_rings, completions ─► resubmit ─► Event::Run
//! ```
//! The places of the I/O queues' heads and tails in it are old: the [journal](crate::Journals) has those. The admin queue has no journal: what
//! its commands have changed and where it is are one state, and its completions become visible when that is safe. Admin commands that take
//! more than one turn (format, deletion of a queue) are carried out again; event requests wait again.
//! Not carried beyond what `pcie.rs` says: notifications of events that nobody asked for yet and that came after the last one.

use crate::admin::exactly_once::CountedCommand;
use crate::admin::{Admin, transfer_len};
use crate::controller::{Controller, Shutdown, Transport, UNCLAIMED};
use crate::event::ControllerHandle;
use crate::host::{Data, DataPointer, Host, Owner, Tag};
use crate::io::slow_path::fused::{Half, Next};
use crate::io::starting::{NO_ARRIVAL, Starting};
use crate::io::work::Partner;
use crate::queues::command::{data_pointer, flag, of_ring, words_of};
use crate::queues::queue::{Cq, NONE, Sq};
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use core::num::NonZeroU64;
use weir_codec::{Coder, Counted, Damaged, Reader, SavedError, SavedFormat, Writer, coded_as};
use weir_spec::nvme::register::shst;
use weir_spec::nvme::zns::ZonedOpcode;
use weir_spec::nvme::{AdminOpcode, Cqe, IoOpcode, Sqe, Status};
use weir_units::Nanos;
use zerocopy::little_endian::{U16, U32};

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 2;
/// It has no length and no checksum of its own: the function in it has.
const FORMAT: SavedFormat = SavedFormat::new(b"WEIRCKPT", VERSION, "the checkpoint of a controller");

coded_as! { CountedCommand: (u64, [u64; 8]), |kept| (kept.number, kept.sqe.words()), |(number, words)| Some(CountedCommand { number, sqe: Sqe::from_words(words) }) }

/// A submission queue, as far as its journal is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// Tells it from others of its identifier.
    pub made: u32,
    /// Its head, and its tail as far as it is known.
    pub head: u32,
    /// See `head`.
    pub tail: u32,
    /// Entries.
    pub size: u32,
    /// Its completion queue.
    pub cq: u16,
    /// Commands that it waited with were aborted: where its head is does not say what is complete.
    pub ragged: bool,
}

/// A completion queue, as far as a journal is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlace {
    /// Tells it from others of its identifier.
    pub made: u32,
    /// Address of entry 0.
    pub base: u64,
    /// Entries.
    pub size: u32,
    /// Its head as far as it is known.
    pub head: u32,
    /// Completions so far; of a queue that was taken over a number of the same place and phase.
    pub place: u64,
}

/// A command that was taken from its ring before a crash, and did not complete.
#[derive(Clone, Copy, Debug)]
pub struct Resubmission {
    /// Its submission queue.
    pub qid: u16,
    /// The command.
    pub entry: [u64; 8],
    /// What its completion comes with.
    pub tag: Tag,
    /// Its outcome, if that was decided.
    pub decided: Option<Cqe>,
}

impl Resubmission {
    /// Where a command writes into a zone, if that was decided.
    pub(crate) fn zone_place(&self) -> Option<u64> {
        let cqe = self.decided.filter(|_| self.entry[0] >> 8 & 3 == 0)?;
        let append = self.entry[0] as u8 == ZonedOpcode::ZONE_APPEND.0;
        Some(if append { u64::from(cqe.dw0.get()) | u64::from(cqe.dw1.get()) << 32 } else { self.entry[5] })
    }
}

impl Subsystem {
    /// The door of a ring controller keeps a journal of what is taken from its rings, and writes its checkpoints: `life` tells it from all others
    /// that any process has had. From then on commands that wait in the rings are not aborted (Abort says so): what is complete has left its ring.
    pub fn keep_rings(&mut self, controller: ControllerHandle, life: NonZeroU64) {
        self.ends_with_process(controller);
        let ctrl = self.resolve(controller).and_then(|c| self.ctrl_mut(c));
        if let Some(ctrl) = ctrl.filter(|ctrl| ctrl.transport == Transport::Rings) {
            (ctrl.journaled, ctrl.life, ctrl.taken) = (true, life.get(), 0);
        }
    }

    /// A submission queue.
    pub fn ring(&self, controller: ControllerHandle, qid: u16) -> Option<QueuePosition> {
        let q = self.ctrl(self.resolve(controller)?)?.sq(qid);
        let sq = self.queues.sqs.get(q as usize)?.as_ref().filter(|sq| sq.ring)?;
        let cq = self.queues.cqs.get(sq.cq as usize)?.as_ref()?.qid;
        Some(QueuePosition {
            made: sq.made,
            head: sq.head,
            tail: sq.tail(),
            size: sq.size,
            cq,
            ragged: !sq.holes.is_empty(),
        })
    }

    /// A completion queue.
    pub fn ring_completions(&self, controller: ControllerHandle, qid: u16) -> Option<RingPlace> {
        let cq = self.queues.cqs.get(self.ctrl(self.resolve(controller)?)?.cq(qid) as usize)?.as_ref()?;
        Some(RingPlace { made: cq.made, base: cq.base, size: cq.size, head: cq.head, place: cq.place() })
    }

    /// A ring controller, whatever its queues have in flight. Empty where there is none.
    pub fn checkpoint(&self, now: Nanos, controller: ControllerHandle) -> Vec<u8> {
        let ctrl = self.resolve(controller).and_then(|c| self.ctrl(c));
        let Some(ctrl) = ctrl.filter(|ctrl| ctrl.transport == Transport::Rings) else { return Vec::new() };
        let mut to = Writer::default();
        to.array(&FORMAT.magic);
        to.u32(VERSION);
        to.bytes(&self.write_functions(now, &[ctrl]));
        to.put(&(ctrl.life, ctrl.taken));
        let cqs: Vec<&Cq> = ctrl.cqs.iter().filter_map(|at| self.queues.cqs.get(*at as usize)?.as_ref()).collect();
        to.u16(cqs.len() as u16);
        for cq in cqs {
            to.put(&((cq.qid, cq.laps), cq.made));
        }
        let sqs: Vec<&Sq> = ctrl.sqs.iter().filter(|q| **q != NONE).map(|q| self.sq(*q)).collect();
        to.u16(sqs.len() as u16);
        for sq in sqs {
            to.put(&(sq.qid, sq.made));
        }
        let kept = ctrl.kept.iter().filter(|kept| self.is_kept(ctrl, kept.sqe.cid.get()));
        Counted::<u16>::put(&kept.copied().collect::<Vec<_>>(), &mut to);
        to.done()
    }

    /// Whether an admin command of that identifier waits for something else than an event.
    fn is_kept(&self, ctrl: &Controller, cid: u16) -> bool {
        let q = ctrl.sq(0);
        let mut sqs = ctrl.sqs.iter().filter(|q| **q != NONE).map(|q| self.sq(*q));
        let mut waiters = self.namespaces.jobs.iter().filter_map(|job| job.waiter);
        let mut held = self.faults.iter().flat_map(|faults| &faults.admin);
        q != NONE
            && (sqs.any(|sq| sq.deleter == Some(cid))
                || waiters.any(|(queue, c, _)| (queue, c) == (q, cid))
                || held.any(|held| (held.admin.q, held.admin.sqe.cid.get()) == (q, cid)))
    }

    /// An admin command of a ring controller is kept: a checkpoint has it until it is complete.
    #[cold]
    pub(crate) fn keep_admin(&mut self, c: u32, one: CountedCommand) {
        let Some(ctrl) = self.ctrl(c).filter(|ctrl| ctrl.transport == Transport::Rings) else { return };
        // Of one of the same identifier it is its own waiter that would be found: that one is complete.
        let waits = |k: &&CountedCommand| k.sqe.cid != one.sqe.cid && self.is_kept(ctrl, k.sqe.cid.get());
        let mut kept: Vec<CountedCommand> = ctrl.kept.iter().filter(waits).copied().collect();
        kept.push(one);
        if let Some(ctrl) = self.ctrl_mut(c) {
            ctrl.kept = kept;
        }
    }

    /// Gives a drive the ring controller that another process had when it died, for the door that calls it `owner`. Its queues are not
    /// served before [`resubmit`](Self::resubmit) was called, for which [`Journals::recover`](crate::Journals::recover) prepares them.
    ///
    /// # Errors
    /// The bytes are no such controller, or it does not fit this drive, or was another tenant's. There is nothing of it then.
    pub fn resume_checkpoint(
        &mut self,
        now: Nanos,
        bytes: &[u8],
        tenant: u16,
        owner: Owner,
    ) -> Result<ControllerHandle, SavedError> {
        let mut from = Reader::of(bytes);
        if from.array().ok() != Some(FORMAT.magic) {
            return Err(SavedError::Foreign(FORMAT.what));
        }
        match from.u32()? {
            VERSION => {}
            version => return Err(FORMAT.other_version(version)),
        }
        let function = from.bytes()?;
        let before: Vec<bool> = self.controllers.list.iter().map(Option::is_some).collect();
        if self.resume_functions(now, function)? != 0 {
            return Err(SavedError::Damaged);
        }
        let is_new = |c: &usize| self.controllers.list[*c].is_some() && before.get(*c) != Some(&true);
        let c = (0..self.controllers.list.len()).find(is_new).ok_or(SavedError::Damaged)? as u32;
        let fits = self.ctrl(c).is_some_and(|ctrl| ctrl.tenant == tenant && ctrl.owner == UNCLAIMED);
        if !fits || self.read_rest(c, &mut from).is_err() || !from.is_empty() {
            self.drop_controller(c);
            return Err(SavedError::Damaged);
        }
        let ctrl = self.ctrl_mut(c).ok_or(SavedError::Damaged)?;
        (ctrl.owner, ctrl.journaled) = (owner, true);
        let (handle, queues) = (ctrl.handle(c), ctrl.sqs.clone());
        for q in queues.into_iter().filter(|q| *q != NONE) {
            self.sq_mut(q).owner = owner;
        }
        Ok(handle)
    }

    fn read_rest(&mut self, c: u32, from: &mut Reader<'_>) -> Result<(), Damaged> {
        let ctrl = self.ctrl_mut(c).ok_or(Damaged)?;
        (ctrl.life, ctrl.taken) = from.get()?;
        if ctrl.taken >= 1 << 62 {
            return Err(Damaged);
        }
        for _ in 0..from.u16()? {
            let ((qid, laps), made): (_, u32) = from.get()?;
            let laps: u64 = laps;
            let index = self.ctrl(c).ok_or(Damaged)?.cq(qid);
            let cq = self.queues.cqs.get_mut(index as usize).and_then(Option::as_mut).ok_or(Damaged)?;
            if cq.phase != (laps % 2 == 0) || laps >= 1 << 40 {
                return Err(Damaged);
            }
            (cq.laps, cq.made) = (laps, made);
            self.queues.epoch = self.queues.epoch.max(made).wrapping_add(1);
        }
        for _ in 0..from.u16()? {
            let (qid, made): (_, u32) = from.get()?;
            let q = self.ctrl(c).ok_or(Damaged)?.sq(qid);
            self.queues.sqs.get_mut(q as usize).and_then(Option::as_mut).ok_or(Damaged)?.made = made;
            self.queues.epoch = self.queues.epoch.max(made).wrapping_add(1);
        }
        let kept: Vec<CountedCommand> = Counted::<u16>::get(from)?;
        let ctrl = self.ctrl_mut(c).ok_or(Damaged)?;
        if !kept.is_empty() && ctrl.sq(0) == NONE {
            return Err(Damaged);
        }
        ctrl.kept = kept;
        Ok(())
    }

    /// Puts a submission queue of a controller that was [resumed](Self::resume_checkpoint) where it was: its head, and its tail as its doorbell
    /// says.
    pub(crate) fn restore_sq(&mut self, controller: ControllerHandle, qid: u16, (head, tail): (u32, u32)) {
        let Some(q) = self.resolve(controller).and_then(|c| self.ctrl(c)).map(|ctrl| ctrl.sq(qid)) else { return };
        let Some(Some(sq)) = self.queues.sqs.get_mut(q as usize) else { return };
        sq.head = if head < sq.size { head } else { 0 };
        // A tail that cannot be is told again, and refused then.
        sq.waiting = if tail >= sq.size { 0 } else { (tail + sq.size - sq.head) % sq.size };
        sq.holes.clear();
        // Its shadow doorbell is looked at anew, and so is what its host was asked for.
        (sq.seen, sq.event) = (u32::MAX, u32::MAX);
    }

    /// The same of a completion queue: how many entries it has had, and its head as its doorbell says.
    pub(crate) fn restore_cq(&mut self, controller: ControllerHandle, qid: u16, (place, head): (u64, u32)) {
        let Some(c) = self.resolve(controller) else { return };
        let index = self.ctrl(c).map_or(NONE, |ctrl| ctrl.cq(qid));
        let Some(cq) = self.queues.cq_mut(index) else { return };
        let size = u64::from(cq.size);
        (cq.tail, cq.laps) = ((place % size) as u32, place / size);
        cq.phase = cq.laps % 2 == 0;
        // One that cannot be is told again, and refused then.
        cq.head = if head < cq.size { head } else { cq.tail };
        cq.credit = cq.size - 1 - cq.used();
        (cq.seen, cq.event) = (u32::MAX, u32::MAX);
    }

    /// The commands that a resumed controller had taken from its rings and not completed go on, in this order, and then its admin commands
    /// that were kept; its queues are served from now on, as far as their tails are told: by [`Event::SqTail`](crate::Event::SqTail), again. With
    /// none of them for a controller of which nothing was in flight.
    pub fn resubmit<H: Host>(
        &mut self,
        now: Nanos,
        controller: ControllerHandle,
        commands: &[Resubmission],
        host: &mut H,
    ) {
        let Some(c) = self.resolve(controller) else { return };
        self.turn.now = now;
        // Entries of the completion queues are theirs before anybody has one.
        for again in commands {
            let q = self.ctrl(c).map_or(NONE, |ctrl| ctrl.sq(again.qid));
            if again.qid != 0 && q != NONE {
                self.reserve_again(q);
            }
        }
        let mut rest = commands;
        while let Some((first, others)) = rest.split_first() {
            let q = self.ctrl(c).map_or(NONE, |ctrl| ctrl.sq(first.qid));
            // The controller may have become fatal meanwhile: its queues have nothing in flight any more.
            if first.qid == 0 || q == NONE || self.sq(q).in_flight == 0 {
                rest = others;
                continue;
            }
            rest = if self.command_again(now, q, first, others.first(), host) { &others[1..] } else { others };
        }
        let kept = self.ctrl_mut(c).map(|ctrl| core::mem::take(&mut ctrl.kept)).unwrap_or_default();
        for one in &kept {
            self.admin_again(now, c, one, host);
        }
        self.serve_again(now, c);
    }

    /// A command's completion, as far as it is known before it is complete.
    pub(crate) fn outcome(&self, q: u32, cid: u16, status: Status, result: u64) -> Cqe {
        Cqe {
            dw0: U32::new(result as u32),
            dw1: U32::new((result >> 32) as u32),
            sqhd: U16::new(0),
            sqid: U16::new(self.sq(q).qid),
            cid: U16::new(cid),
            status_phase: U16::new(status.field() << 1),
        }
    }

    fn reserve_again(&mut self, q: u32) {
        let sq = self.sq_mut(q);
        sq.in_flight += 1;
        let cq = sq.cq;
        if let Some(cq) = self.queues.cq_mut(cq) {
            // A host that tells of heads that cannot be may have spoilt the account: it harms its own completions only.
            cq.credit = cq.credit.saturating_sub(1);
        }
    }

    /// One of them; true if the next one is the second command of its pair and went with it.
    fn command_again<H: Host>(
        &mut self,
        now: Nanos,
        q: u32,
        again: &Resubmission,
        next: Option<&Resubmission>,
        host: &mut H,
    ) -> bool {
        let page_shift = self.sq(q).page_shift;
        let (mut command, data) = of_ring(&again.entry, page_shift);
        command.tag = again.tag.0;
        let words = words_of(&again.entry);
        let mut decided = again.decided.map(|cqe| u64::from(cqe.dw0.get()) | u64::from(cqe.dw1.get()) << 32);
        if command.is(flag::FUSED) {
            if let Some(cqe) = again.decided {
                // The comparison was passed, or the pair has ended: nothing of it is done again here.
                self.finish(q, command.cid, command.tag, cqe.status(), decided.unwrap_or(0), host);
                return false;
            }
            if command.opcode == IoOpcode::COMPARE.0 && !command.is(flag::RAGGED) {
                let (first, next) =
                    (Half { command, data, words, entry: again.entry }, next.filter(|next| next.qid == again.qid));
                return self.pair_again(now, q, &first, next, host);
            }
            if command.opcode != IoOpcode::WRITE.0 || command.is(flag::RAGGED) {
                self.refuse(q, &command, Status::INVALID_FIELD.dnr(), host);
                return false;
            }
            // The write of a pair whose comparison was passed, which may have told its host so.
            command.flags &= !flag::FUSED;
            decided = None;
        }
        let mdts = self.sq(q).mdts;
        match self.planned((q, mdts), &command, &data, host) {
            Ok(plan) if plan.empty => self.dismiss(q, &command, Status::SUCCESS, host),
            Ok(plan) => {
                let (data, arrived) = (data.of(plan.transfer), NO_ARRIVAL);
                self.put_again(
                    now,
                    Starting { queue: q, command, plan, data, words, arrived, decided, due: None, judged: None },
                );
            }
            Err(status) => self.dismiss(q, &command, status, host),
        }
        false
    }

    /// It has left its queue and waits for a slot.
    fn put_again(&mut self, now: Nanos, starting: Starting) {
        let due = self.resumed.remove(&(starting.queue, starting.command.tag)).flatten();
        self.fetched.push_back(Starting { arrived: now, due, ..starting });
    }

    /// The first command of a pair, of which nothing is known to have been done. Its second was taken as well, or is the next on the ring.
    fn pair_again<H: Host>(
        &mut self,
        now: Nanos,
        q: u32,
        first: &Half,
        next: Option<&Resubmission>,
        host: &mut H,
    ) -> bool {
        let Half { command: ref first, data, words, .. } = *first;
        let page_shift = self.sq(q).page_shift;
        let second = next.map(|next| (next, of_ring(&next.entry, page_shift)));
        let second =
            second.filter(|(_, (c, _))| c.opcode == IoOpcode::WRITE.0 && c.is(flag::FUSED) && !c.is(flag::RAGGED));
        let (partner, taken) = match second {
            Some((next, (mut command, data))) => {
                (command.tag, command.flags) = (next.tag.0, command.flags & !flag::FUSED);
                (Partner { queue: q, command, data, words: words_of(&next.entry) }, true)
            }
            None => match self.second(q, host) {
                Next::Second(second) => (self.take_second(q, second, host), false),
                Next::Other(status) => {
                    self.refuse(q, first, status, host);
                    return false;
                }
                Next::Later => {
                    self.refuse(q, first, Status::ABORTED_MISSING_FUSED, host);
                    return false;
                }
                Next::Broken => {
                    let c = self.sq(q).controller;
                    self.fatal(c);
                    return false;
                }
            },
        };
        match self.plan_pair((first, &data), &partner) {
            Err(statuses) => self.refuse_pair(first, &partner, statuses, host),
            Ok(plan) => {
                let half = plan.transfer / 2;
                let partner = Partner { data: partner.data.of(half), ..partner };
                self.slow_path.partners.push_back(partner);
                let (data, arrived) = (data.of(half), NO_ARRIVAL);
                let (command, decided, due) = (*first, None, None);
                self.put_again(
                    now,
                    Starting { queue: q, command, plan, data, words, arrived, decided, due, judged: None },
                );
            }
        }
        taken
    }

    fn admin_again<H: Host>(
        &mut self,
        now: Nanos,
        c: u32,
        CountedCommand { number, sqe }: &CountedCommand,
        host: &mut H,
    ) {
        let Some(q) = self.ctrl(c).map(|ctrl| ctrl.sq(0)).filter(|q| *q != NONE) else { return };
        self.reserve_again(q);
        let (owner, page_shift) = (self.sq(q).owner, self.sq(q).page_shift);
        let data = data_pointer(&sqe.words(), page_shift).unwrap_or(DataPointer::tag(Tag(0)));
        let data = match data.get() {
            Data::Tag(_) => data,
            _ => data.of(transfer_len(sqe)),
        };
        debug_assert_ne!(sqe.opcode, AdminOpcode::ASYNC_EVENT_REQUEST.0);
        self.answer(now, &Admin { c, q, owner, sqe: *sqe, number: *number, tag: 0, data }, sqe.psdt() != 0, host);
    }

    /// All of a resumed controller is where it was.
    fn serve_again(&mut self, now: Nanos, c: u32) {
        let queues = self.ctrl(c).map(|ctrl| ctrl.sqs.clone()).unwrap_or_default();
        for q in queues.into_iter().filter(|q| *q != NONE) {
            self.sq_mut(q).waiting = 0;
        }
        // Events that nobody had reported.
        self.list_admin(c);
        // A shutdown that was under way begins anew: nothing is lost by that, and everything is flushed.
        if let Some(ctrl) = self.ctrl_mut(c).filter(|ctrl| ctrl.csts.shst() == shst::PROCESSING) {
            if ctrl.shutdown == Shutdown::None {
                self.shut_down(now, c);
            }
        }
        self.turn.more = true;
    }
}
