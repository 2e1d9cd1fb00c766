//! Commands that are several I/Os, one after the other: a fused pair compares, then writes; a copy copies piece by piece.

use crate::event::{Io, SlotId};
use crate::host::Owner;
use crate::io::timing::Operation;
use crate::io::work::{RemainingWork, WorkPiece, WorkStep};
use crate::queues::queue::NONE;
use crate::subsystem::Subsystem;
use weir_units::Nanos;

impl Subsystem {
    /// Begins a command of several steps in its slot.
    pub(crate) fn begin_steps(&mut self, now: Nanos, id: u32, mut steps: RemainingWork) {
        steps.todo.reverse();
        let index = match self.slots.slots[id as usize].ranges {
            NONE => self.slots.take_work().0,
            index => index,
        };
        self.slots.slots[id as usize].ranges = index;
        self.slots.work(index).steps = Some(steps);
        let least = now.saturating_add(self.config.latency);
        if self.timing.0.is_none() && least > now {
            // The fixed latency is the whole command's.
            return self.slots.delay_done(id, least);
        }
        if !self.step_on(now, id) {
            self.slots.delay_done(id, least);
        }
    }

    /// Goes on with the next step; whether there was one, and somebody who waits for it.
    pub(crate) fn step_on(&mut self, now: Nanos, id: u32) -> bool {
        let slot = self.slots.slots[id as usize];
        if slot.ranges == NONE || slot.queue == NONE {
            return false;
        }
        let owner = self.sq(slot.queue).owner;
        loop {
            let Some(steps) = &mut self.slots.work(slot.ranges).steps else { return false };
            match steps.todo.pop() {
                None => return false,
                Some(WorkStep::Until(due)) if due.known().is_some_and(|due| due <= now) => {}
                Some(WorkStep::Until(due)) => {
                    self.delay_done(id, due);
                    return true;
                }
                Some(WorkStep::Move(piece)) => {
                    self.begin_piece(now, id, &piece, (owner, slot.nsid));
                    return true;
                }
            }
        }
    }

    fn begin_piece(&mut self, now: Nanos, id: u32, piece: &WorkPiece, (owner, nsid): (Owner, u32)) {
        let WorkPiece { op, offset, len, data, skip, fua, timed, metadata, source } = *piece;
        let ranges = self.slots.slots[id as usize].ranges;
        let work = self.slots.work(ranges);
        (work.metadata, work.source) = (metadata, source);
        let io = Io { slot: SlotId(id), owner, data, op, nsid, offset, len, fua, skip };
        if !timed || self.timing.0.is_none() {
            return self.slots.make_ready(id, io);
        }
        let due = self.complete_at(now, Operation { op, offset, len, fua, placement: 0 });
        self.delay(id, io, due);
    }

    /// A command has succeeded that made blocks readable again.
    pub(crate) fn heal(&mut self, nsid: u32, heals: &[(u64, u64)]) {
        let Some(unreadable) = self.slow_path.unreadable.get_mut(&nsid) else { return };
        let mut any = false;
        for (start, end) in heals {
            if unreadable.overlaps(*start, *end) {
                unreadable.remove(*start, *end);
                any = true;
            }
        }
        if any {
            self.review(nsid);
            self.touch();
        }
    }
}
