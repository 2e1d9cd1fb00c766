//! Aborts of I/O commands (base 2.1, 5.1.1): of those that wait in their queue, have no slot yet, or whose time has not come.

use crate::host::{Host, Tag};
use crate::queue::{Command, NONE, flag};
use crate::slots::SlotState;
use crate::subsystem::Subsystem;
use weir_spec::nvme::Status;

impl Subsystem {
    /// Aborts an I/O command that has not reached the media, or only reads it; `false` if it has, or is not there.
    pub(crate) fn abort_io<H: Host>(&mut self, q: u32, cid: u16, host: &mut H) -> bool {
        if let Some(at) = self.fetched.iter().position(|f| f.queue == q && f.command.cid == cid) {
            let tag = self.fetched.remove(at).map_or(0, |f| f.command.tag);
            self.finish(q, cid, tag, Status::ABORT_REQUESTED, 0, host);
            return true;
        }
        if let Some(id) = self.slots.find(q, cid) {
            let slot = self.slots.slots[id as usize];
            let waits =
                slot.state == SlotState::Timed && (slot.ranges == NONE || !self.slots.work(slot.ranges).is_begun());
            if !waits && !self.slots.can_let_go(id) {
                return false;
            }
            let slot = &mut self.slots.slots[id as usize];
            // The slot is free again when its time has passed, as the drive's would be.
            slot.queue = NONE;
            let tag = slot.tag;
            self.finish(q, cid, tag, Status::ABORT_REQUESTED, 0, host);
            return true;
        }
        self.abort_waiting(q, cid, host)
    }

    /// Looks for the command among those that wait in their queue.
    fn abort_waiting<H: Host>(&mut self, q: u32, cid: u16, host: &mut H) -> bool {
        let sq = self.queues[q as usize].as_mut().expect("the queue exists");
        for n in 0..sq.waiting {
            let at = sq.nth(n);
            if !sq.ring {
                let command = &mut sq.pending[at as usize];
                if command.cid == cid && !command.is(flag::HOLE) {
                    command.flags |= flag::HOLE;
                    let tag = command.tag;
                    self.complete(q, cid, tag, Status::ABORT_REQUESTED, 0, host);
                    return true;
                }
                continue;
            }
            if sq.holes.contains(&at) {
                continue;
            }
            let Ok(entry) = host.fetch(sq.owner, sq.base + u64::from(at) * 64) else { return false };
            if Command::parse(&entry, Tag(0)).cid == cid {
                let Some(Some(cq)) = self.cqs.get_mut(sq.cq as usize) else { return false };
                if cq.credit == 0 {
                    return false;
                }
                cq.credit -= 1;
                sq.holes.push(at);
                self.complete(q, cid, 0, Status::ABORT_REQUESTED, 0, host);
                return true;
            }
        }
        false
    }
}
