//! Compare and write, fused (base 2.0, 3.4.2; NVM 1.0, 2.1.4): two adjacent commands of one queue that are carried out as one.
//!
//! ```text
//!  ring:     first, second in one doorbell  ─┐
//!  messages: first waits at the head ────────┴▶ fetched together, charged once ─▶ one slot: Compare, then Write ─▶ two completions
//! ```
//! Nobody else writes the blocks in between ([`locks`](crate::io::slow_path::waits)). Whatever keeps one of the two from being carried out aborts
//! the other with Command Aborted due to Failed Fused Command; one that is alone, with Missing Fused Command.

use crate::data_pointer::check_pointer;
use crate::event::Op;
use crate::host::{DataPointer, Host, Tag};
use crate::io::plan;
use crate::io::plan::CommandPlan;
use crate::io::slots::Slot;
use crate::io::slow_path::waits::{BlockRange, For, Lock};
use crate::io::starting::Starting;
use crate::io::work::{Partner, RemainingWork, WorkPiece, WorkStep};
use crate::namespace::metadata::Metadata;
use crate::namespace::{Namespace, why};
use crate::queues::command::{Command, CommandWords, flag, of_ring, words_of};
use crate::queues::queue::NONE;
use crate::subsystem::Subsystem;
use weir_spec::nvme::{IoOpcode, Status};
use weir_units::Nanos;

/// One command of a pair as it stands in its queue.
pub(crate) struct Half {
    pub command: Command,
    pub data: DataPointer,
    pub words: CommandWords,
    /// Rings: its entry, which leaves the ring when it is clear what comes of it.
    pub entry: [u64; 8],
}

/// What comes behind a first command.
pub(crate) enum Next {
    Second(Half),
    /// Nothing yet, or there is no room for its completion.
    Later,
    /// The pair cannot be had.
    Other(Status),
    /// The ring could not be read.
    Broken,
}

/// Where a command's data is, and its metadata.
type Blocks = (DataPointer, Option<Metadata>);

/// Why the one goes with the other.
const FAILED: Status = Status::ABORTED_FAILED_FUSED;

impl Subsystem {
    /// A command with FUSE is at the head of its queue.
    #[cold]
    pub(crate) fn fetch_fused<H: Host>(&mut self, now: Nanos, q: u32, half: Half, host: &mut H) {
        let sq = self.sq_mut(q);
        let at = sq.advance();
        sq.in_flight += 1;
        let Half { command: ref first, data, words, ref entry } = half;
        let next = match IoOpcode(first.opcode) {
            _ if first.is(flag::RAGGED) => Next::Other(Status::INVALID_FIELD.dnr()),
            IoOpcode::COMPARE => self.second(q, host),
            _ => Next::Other(Status::ABORTED_MISSING_FUSED),
        };
        let second = match next {
            Next::Second(second) => second,
            Next::Later => return self.put_back(q, at),
            Next::Broken => {
                let c = self.sq(q).controller;
                return self.fatal(c);
            }
            Next::Other(status) => {
                let more = self.has_more(q);
                let key = self.sq(q).key;
                self.account(now, (key, at), (&Err(status), first), more);
                let first = &self.take_first(q, first, entry, host);
                return self.refuse(q, first, status, host);
            }
        };
        let first = &self.take_first(q, first, entry, host);
        let partner = self.take_second(q, second, host);
        let planned = self.plan_pair((first, &data), &partner);
        let half = planned.map_or(0, |plan| plan.transfer / 2);
        let (data, partner) = (data.of(half), Partner { data: partner.data.of(half), ..partner });
        let more = self.has_more(q);
        let key = self.sq(q).key;
        // The pair is one command that moves the bytes of both.
        let charged = match planned {
            Ok(plan) => Ok(CommandPlan { len: plan.transfer, ..plan }),
            Err((status, _)) => Err(status),
        };
        let arrived = self.account(now, (key, at), (&charged, first), more);
        let starting = |plan| Starting {
            queue: q,
            command: *first,
            plan,
            data,
            words,
            arrived,
            decided: None,
            due: None,
            judged: None,
        };
        match planned {
            Err((one, two)) => self.refuse_pair(first, &partner, (one, two), host),
            Ok(plan) if self.fetched.is_empty() && self.slots.fits(plan.transfer) => {
                self.slow_path.partners.push_front(partner);
                self.start_slow(now, &starting(plan), host);
            }
            Ok(plan) => {
                self.slow_path.partners.push_back(partner);
                self.fetched.push_back(starting(plan));
            }
        }
    }

    /// Whether another command of the queue can be fetched.
    fn has_more(&mut self, q: u32) -> bool {
        let (waiting, cq) = (self.sq(q).waiting, self.sq(q).cq);
        waiting > 0 && (cq == NONE || self.has_credit(q, cq))
    }

    /// What is behind the first command, which was taken.
    pub(crate) fn second<H: Host>(&mut self, q: u32, host: &mut H) -> Next {
        let sq = self.sq(q);
        let (head, missing) = (sq.head, Status::ABORTED_MISSING_FUSED);
        let (command, data, words, entry) = match (sq.ring, sq.waiting) {
            // The capsules of a pair follow one another, at whatever distance.
            (false, 0) => return Next::Later,
            // One doorbell tells of both.
            (true, 0) => return Next::Other(missing),
            (false, _) => {
                let command = sq.pending[head as usize];
                let words = sq.words_at(head);
                (command, DataPointer::tag(Tag(command.tag)), words, [0; 8])
            }
            (true, _) => {
                let cq = self.queues.cqs[sq.cq as usize].as_ref().expect("a ring has its completion queue");
                match cq.credit {
                    // It will never have room for two.
                    0 if cq.size <= 2 => return Next::Other(missing),
                    0 => return Next::Later,
                    _ => {}
                }
                let Ok(entry) = host.fetch(sq.owner, sq.base.wrapping_add(u64::from(head) * 64)) else {
                    return Next::Broken;
                };
                let (command, data) = of_ring(&entry, sq.page_shift);
                (command, data, words_of(&entry), entry)
            }
        };
        if command.is(flag::HOLE) || self.sq(q).holes.contains(&head) {
            return Next::Other(FAILED);
        }
        if command.opcode != IoOpcode::WRITE.0 || !command.is(flag::FUSED) || command.is(flag::RAGGED) {
            return Next::Other(missing);
        }
        let command = Command { flags: command.flags & !flag::FUSED, ..command };
        Next::Second(Half { command, data, words, entry })
    }

    /// The first command, whose entry was consumed, leaves its ring.
    fn take_first<H: Host>(&self, q: u32, first: &Command, entry: &[u64; 8], host: &mut H) -> Command {
        let sq = self.sq(q);
        let tag = if sq.ring { host.take(sq.owner, sq.qid, entry, sq.head).0 } else { first.tag };
        Command { tag, ..*first }
    }

    /// Consumes the second command's entry.
    pub(crate) fn take_second<H: Host>(&mut self, q: u32, second: Half, host: &mut H) -> Partner {
        let Half { command, data, words, entry } = second;
        let mut partner = Partner { queue: q, command, data, words };
        let sq = self.sq_mut(q);
        sq.advance();
        sq.in_flight += 1;
        if sq.ring {
            partner.command.tag = host.take(sq.owner, sq.qid, &entry, sq.head).0;
        }
        let cq = sq.cq;
        if let Some(cq) = self.queues.cq_mut(cq) {
            cq.credit -= 1;
        }
        partner
    }

    /// What a pair's second command says in the end is known: it is not to be found out again when the first one's completion is all that
    /// a crash has left.
    fn decide_second<H: Host>(&self, partner: &Partner, status: Status, host: &mut H) {
        let sq = self.sq(partner.queue);
        if sq.ring {
            let cqe = self.outcome(partner.queue, partner.command.cid, status, 0);
            host.decide(sq.owner, Tag(partner.command.tag), &cqe);
        }
    }

    /// The comparison of a pair has been passed, and the write is about to begin: from now on it would not be passed again.
    pub(crate) fn decide_passed<H: Host>(&mut self, id: u32, host: &mut H) {
        let slot = self.slots.slots[id as usize];
        if slot.ranges == NONE || slot.queue == NONE || !self.sq(slot.queue).ring {
            return;
        }
        let Some(steps) = self.slots.work(slot.ranges).steps.as_ref().filter(|s| s.second.is_some()) else { return };
        if matches!(steps.todo.last(), Some(WorkStep::Move(WorkPiece { op: Op::Write, .. }))) {
            let owner = self.sq(slot.queue).owner;
            let cqe = self.outcome(slot.queue, slot.cid, Status::SUCCESS, 0);
            host.decide(owner, Tag(slot.tag), &cqe);
        }
    }

    /// The first command stays at the head of its queue, until its second is there or both can be answered.
    fn put_back(&mut self, q: u32, at: u32) {
        let sq = self.sq_mut(q);
        sq.head = at;
        sq.waiting += 1;
        sq.in_flight -= 1;
        sq.awaits = !sq.ring;
        let (key, cq, starved) = (sq.key, sq.cq, sq.starved);
        if let Some(cq) = self.queues.cq_mut(cq) {
            cq.credit += 1;
            cq.starved += u32::from(!starved);
            self.sq_mut(q).starved = true;
        }
        self.arbiter.withdraw(key);
    }

    /// What a pair does, or why each of its commands is refused.
    pub(crate) fn plan_pair(
        &self,
        (first, data): (&Command, &DataPointer),
        partner: &Partner,
    ) -> Result<CommandPlan, (Status, Status)> {
        let second = &partner.command;
        let invalid = Status::INVALID_FIELD.dnr();
        let mdts = self.sq(partner.queue).mdts;
        let one = self.plan_half(&Command { flags: first.flags & !flag::FUSED, ..*first }, data, mdts);
        let plan = one.map_err(|status| (status, FAILED))?;
        self.plan_half(second, &partner.data, mdts).map_err(|status| (FAILED, status))?;
        if (first.nsid, first.slba, first.blocks) != (second.nsid, second.slba, second.blocks) {
            return Err((invalid, invalid));
        }
        let ns = self.namespaces.active(first.nsid).map_err(|status| (status, FAILED))?;
        if ns.why & (why::ZONES | why::VENDOR) != 0 {
            return Err((invalid, invalid));
        }
        if u64::from(plan.len) > self.pair_bytes() {
            let exceeded = Status::ATOMIC_WRITE_UNIT_EXCEEDED.dnr();
            return Err((exceeded, exceeded));
        }
        let both = plan.transfer.checked_mul(2).ok_or((invalid, invalid))?;
        Ok(CommandPlan { transfer: both, slow: true, ..plan })
    }

    fn plan_half(&self, command: &Command, data: &DataPointer, mdts: u64) -> Result<CommandPlan, Status> {
        if command.is(flag::BAD_POINTER) {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let plan = plan::plan(&self.namespaces.list, command, mdts)?;
        check_pointer(data, plan.transfer.into())?;
        Ok(plan)
    }

    /// Carries out a pair: its second command is among the partners.
    pub(crate) fn start_pair<H: Host>(&mut self, now: Nanos, starting: &Starting, host: &mut H) {
        let Starting { queue, command: ref first, .. } = *starting;
        let Some(partner) = self.take_partner(queue) else {
            return self.refuse(queue, first, Status::ABORTED_MISSING_FUSED, host);
        };
        let plain = Command { flags: first.flags & !flag::FUSED, ..*first };
        let admitted = self.admit(queue, &plain).map_err(|status| (status, FAILED));
        let admitted = admitted.and_then(|()| self.admit(queue, &partner.command).map_err(|status| (FAILED, status)));
        if let Err(statuses) = admitted {
            return self.refuse_pair(first, &partner, statuses, host);
        }
        let ns = match self.namespaces.active(first.nsid) {
            Ok(ns) => *ns,
            Err(status) => return self.refuse_pair(first, &partner, (status, FAILED), host),
        };
        let (extent, shift) = (BlockRange::of(&plain), ns.shift);
        if self.is_locked(&extent, usize::MAX) || self.is_being_written(&extent, shift) {
            return self.wait(starting, Some(partner), For::Writes(extent));
        }
        if self.is_unreadable(&extent) {
            return self.refuse_pair(first, &partner, (Status::UNRECOVERED_READ_ERROR, FAILED), host);
        }
        let (one, two) = match self.pair_metadata(&ns, &Starting { command: plain, ..*starting }, &partner) {
            Ok(both) => both,
            Err(statuses) => return self.refuse_pair(first, &partner, statuses, host),
        };
        let slot = self.occupy_for(starting);
        self.slow_path.locks.push(Lock { slot, nsid: first.nsid, extent, alone: false });
        self.review(first.nsid);
        let (pieces, fua) =
            (self.namespaces.pieces(first.nsid, &ns, first.slba, first.blocks.into()), partner.command.is(flag::FUA));
        let all = |op, (data, metadata), fua| {
            let mut skip = 0;
            pieces.iter().map(move |(offset, len)| {
                let (offset, len) = (*offset, *len as u32);
                let piece = WorkPiece { op, offset, len, data, skip, fua, timed: true, metadata, source: None };
                skip += piece.len;
                WorkStep::Move(piece)
            })
        };
        let todo = all(Op::Compare, one, false).chain(all(Op::Write, two, fua)).collect();
        self.begin_steps(now, slot, RemainingWork { todo, second: Some(partner), ..RemainingWork::default() });
    }

    /// Data and metadata of both commands of a pair, whose blocks are extended ones perhaps.
    fn pair_metadata(
        &self,
        ns: &Namespace,
        first: &Starting,
        partner: &Partner,
    ) -> Result<(Blocks, Blocks), (Status, Status)> {
        let half = |op| Starting { plan: CommandPlan { op, ..first.plan }, ..*first };
        let one = self.half_metadata(ns, &half(Op::Compare)).map_err(|status| (status, FAILED))?;
        let Partner { command, data, words, .. } = *partner;
        let two = self.half_metadata(ns, &Starting { command, data, words, ..half(Op::Write) });
        Ok((one, two.map_err(|status| (FAILED, status))?))
    }

    fn half_metadata(&self, ns: &Namespace, half: &Starting) -> Result<Blocks, Status> {
        let Some(metadata) = self.metadata_for(ns, half)? else { return Ok((half.data, None)) };
        let len = metadata.transfer(half.command.blocks);
        check_pointer(&half.data, len)?;
        Ok((half.data.of(u32::try_from(len).map_err(|_| Status::INVALID_FIELD.dnr())?), Some(metadata)))
    }

    /// The second command of the oldest pair of a queue that has not started.
    pub(crate) fn take_partner(&mut self, queue: u32) -> Option<Partner> {
        let at = self.slow_path.partners.iter().position(|p| p.queue == queue)?;
        self.slow_path.partners.remove(at)
    }

    /// Completes both commands of a pair that were not carried out.
    pub(crate) fn refuse_pair<H: Host>(
        &mut self,
        first: &Command,
        partner: &Partner,
        (one, two): (Status, Status),
        host: &mut H,
    ) {
        self.decide_second(partner, two, host);
        self.refuse(partner.queue, first, one, host);
        // Its queue may have gone with the first completion.
        if self.queues.has_in_flight(partner.queue) {
            self.refuse(partner.queue, &partner.command, two, host);
        }
    }

    /// A pair has ended, as far as it came: what its commands say. `compared`: the comparison was not what failed.
    pub(crate) fn end_pair<H: Host>(
        &mut self,
        slot: &Slot,
        partner: &Partner,
        (status, compared): (Status, bool),
        host: &mut H,
    ) {
        let (one, two) = match (status.is_success(), compared) {
            (true, _) => (status, status),
            (false, true) => (Status::SUCCESS, status),
            (false, false) => (status, FAILED),
        };
        let command = &partner.command;
        let tenant = usize::from(self.sq(slot.queue).tenant);
        let work = &mut self.tenants.list[tenant].work;
        if one.is_success() {
            work.others += 1;
        }
        if two.is_success() {
            work.writes += 1;
            work.write_bytes += u64::from(slot.bytes / 2);
        }
        work.errors += u64::from(!one.is_success()) + u64::from(!two.is_success());
        for (status, cid) in [(one, slot.cid), (two, command.cid)] {
            if !status.is_success() {
                self.log_error(slot.queue, cid, status, (slot.slba, slot.nsid));
            }
        }
        self.decide_second(partner, two, host);
        self.finish(slot.queue, slot.cid, slot.tag, one, 0, host);
        if self.queues.has_in_flight(slot.queue) {
            self.finish(slot.queue, command.cid, command.tag, two, 0, host);
        }
    }
}
