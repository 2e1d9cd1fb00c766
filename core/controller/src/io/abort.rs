//! Aborts of I/O commands (base 2.1, 5.1.1): of those that wait in their queue, have no slot yet, or whose time has not come. Of a
//! fused pair both are aborted, or none.

use crate::host::{Host, Tag};
use crate::io::slots::SlotState;
use crate::queues::command::{Command, flag};
use crate::queues::queue::NONE;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_spec::nvme::{IoOpcode, Status};

impl Subsystem {
    /// Aborts an I/O command that has not reached the media, or only reads it; `false` if it has, or is not there.
    pub(crate) fn abort_io<H: Host>(&mut self, q: u32, cid: u16, host: &mut H) -> bool {
        if let Some(at) = self.fetched.iter().position(|f| f.queue == q && f.command.cid == cid) {
            self.abort_fetched(at, Status::ABORT_REQUESTED, host);
            return true;
        }
        if let Some(id) = self.slots.find(q, cid) {
            return self.abort_slot(id, Status::ABORT_REQUESTED, host);
        }
        for n in 0..self.sq(q).waiting {
            match self.waiting_at(q, n, host) {
                Some(command) if command.cid == cid => {
                    return self.abort_at(q, n, &command, Status::ABORT_REQUESTED, host);
                }
                _ => {}
            }
        }
        false
    }

    /// Aborts a queue's commands on a namespace, for Preempt and Abort; answers the slots of those that are too far.
    pub(crate) fn abort_namespace<H: Host>(&mut self, q: u32, nsid: u32, host: &mut H) -> Vec<u32> {
        let status = Status::ABORTED_PREEMPT;
        while let Some(at) = self.fetched.iter().position(|f| f.queue == q && f.command.nsid == nsid) {
            self.abort_fetched(at, status, host);
        }
        let mut far = Vec::new();
        for id in 0..self.slots.slots.len() as u32 {
            let slot = &self.slots.slots[id as usize];
            let meets = slot.nsid == nsid || self.slots.copies_from(id, nsid);
            if slot.queue == q && meets && !self.abort_slot(id, status, host) {
                far.push(id);
            }
        }
        let mut n = 0;
        while self.queues.sqs.get(q as usize).is_some_and(|sq| sq.as_ref().is_some_and(|sq| n < sq.waiting)) {
            match self.waiting_at(q, n, host) {
                Some(command) if command.nsid == nsid => _ = self.abort_at(q, n, &command, status, host),
                _ => {}
            }
            n += 1;
        }
        far
    }

    fn abort_fetched<H: Host>(&mut self, at: usize, status: Status, host: &mut H) {
        let pairs = |f: &&crate::io::starting::Starting| f.command.is(flag::FUSED);
        let Some(fetched) = self.fetched.get(at) else { return };
        let q = fetched.queue;
        let before = self.fetched.iter().take(at).filter(|f| f.queue == q).filter(pairs).count();
        let Some(fetched) = self.fetched.remove(at) else { return };
        let command = fetched.command;
        let mut theirs = self.slow_path.partners.iter().enumerate().filter(|(_, p)| p.queue == q).map(|(i, _)| i);
        let partner = theirs.nth(before).filter(|_| command.is(flag::FUSED));
        let partner = partner.and_then(|i| self.slow_path.partners.remove(i));
        self.finish(q, command.cid, command.tag, status, 0, host);
        if let Some(partner) = partner {
            self.finish(q, partner.command.cid, partner.command.tag, Status::ABORTED_FAILED_FUSED, 0, host);
        }
    }

    /// Aborts a command that has a slot and has not begun, or that only reads.
    fn abort_slot<H: Host>(&mut self, id: u32, status: Status, host: &mut H) -> bool {
        let slot = self.slots.slots[id as usize];
        let waits = slot.state == SlotState::Timed && (slot.ranges == NONE || !self.slots.work(slot.ranges).is_begun());
        if !waits && !self.slots.can_let_go(id) {
            return false;
        }
        // The slot is free again when its time has passed, as the drive's would be.
        self.slots.slots[id as usize].queue = NONE;
        self.finish(slot.queue, slot.cid, slot.tag, status, 0, host);
        true
    }

    /// The `n`th command that waits in a queue, unless it was aborted already or cannot be read.
    fn waiting_at<H: Host>(&mut self, q: u32, n: u32, host: &mut H) -> Option<Command> {
        let sq = self.queues.sqs.get(q as usize)?.as_ref().filter(|sq| n < sq.waiting)?;
        let at = sq.nth(n);
        if !sq.ring {
            return Some(sq.pending[at as usize]).filter(|command| !command.is(flag::HOLE));
        }
        if sq.holes.contains(&at) {
            return None;
        }
        let entry = host.fetch(sq.owner, sq.base.wrapping_add(u64::from(at) * 64)).ok()?;
        Some(Command::parse(&entry, Tag(0)))
    }

    /// Aborts a command that waits, and what is fused with it.
    fn abort_at<H: Host>(&mut self, q: u32, n: u32, command: &Command, status: Status, host: &mut H) -> bool {
        // A journal knows what has left its ring: nothing of what is still there completes.
        if self.is_journaled(q) {
            return false;
        }
        let partner = match IoOpcode(command.opcode) {
            _ if !command.is(flag::FUSED) || command.is(flag::RAGGED) => None,
            IoOpcode::COMPARE => Some(n + 1),
            _ => n.checked_sub(1),
        };
        let partner = partner.and_then(|n| Some((n, self.waiting_at(q, n, host)?)));
        let fused =
            |other: &Command| other.is(flag::FUSED) && !other.is(flag::RAGGED) && other.opcode != command.opcode;
        let partner = partner.filter(|(_, other)| fused(other));
        if partner.is_some() && !self.has_credits(q, 2) {
            return false;
        }
        if !self.make_hole(q, n, command, status, host) {
            return false;
        }
        if let Some((n, other)) = partner {
            self.make_hole(q, n, &other, Status::ABORTED_FAILED_FUSED, host);
        }
        true
    }

    fn is_journaled(&self, q: u32) -> bool {
        self.sq(q).ring && self.ctrl(self.sq(q).controller).is_some_and(|ctrl| ctrl.journaled)
    }

    fn has_credits(&self, q: u32, n: u32) -> bool {
        let cq = self.sq(q).cq;
        self.queues.cqs.get(cq as usize).is_none_or(|cq| cq.as_ref().is_none_or(|cq| cq.credit >= n))
    }

    /// Completes a command that waits; its entry is skipped later.
    fn make_hole<H: Host>(&mut self, q: u32, n: u32, command: &Command, status: Status, host: &mut H) -> bool {
        let Some(sq) = self.queues.sqs.get_mut(q as usize).and_then(Option::as_mut).filter(|sq| n < sq.waiting) else {
            return false;
        };
        let at = sq.nth(n);
        if sq.ring {
            let Some(Some(cq)) = self.queues.cqs.get_mut(sq.cq as usize) else { return false };
            if cq.credit == 0 {
                return false;
            }
            cq.credit -= 1;
            sq.holes.push(at);
        } else {
            sq.pending[at as usize].flags |= flag::HOLE;
        }
        let awaits = sq.awaits;
        self.complete(q, command.cid, command.tag, status, 0, host);
        if awaits {
            self.refresh(q);
        }
        true
    }
}
