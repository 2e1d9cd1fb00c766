//! The host's end of a submission and a completion ring (base 2.0, 3.3.1.2).

use super::{Port, protocol};
use crate::TransportError;
use weir_spec::nvme::register::Doorbell;
use weir_spec::nvme::{Cqe, Sqe};

/// A pair of rings of the same size. Doorbells are rung once for all that was pushed or popped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePairRings {
    qid: u16,
    entries: u32,
    sq: u64,
    cq: u64,
    tail: u32,
    rung_tail: u32,
    head: u32,
    rung_head: u32,
    phase: bool,
    /// Pushed and not popped; the completion ring can hold as many.
    in_flight: u32,
    /// The shadow doorbell of the tail, with that of the head behind it; 0: there are none.
    shadow: u64,
}

/// Whether a doorbell has to be rung beside its shadow: going from one value to another passes the event index (base 2.0, Annex B.5).
fn passes(event: u32, from: u32, to: u32) -> bool {
    (to.wrapping_sub(event).wrapping_sub(1) as u16) < to.wrapping_sub(from) as u16
}

impl QueuePairRings {
    /// Empty rings of `entries` at these addresses; the completion ring's memory is zero.
    pub fn new(qid: u16, entries: u32, sq: u64, cq: u64) -> Self {
        let (tail, rung_tail, head, rung_head) = (0, 0, 0, 0);
        QueuePairRings { qid, entries, sq, cq, tail, rung_tail, head, rung_head, phase: true, in_flight: 0, shadow: 0 }
    }

    /// With shadow doorbells in a page at this address, which the controller was told.
    pub(super) fn shadowed(self, page: u64) -> Self {
        QueuePairRings { shadow: page + u64::from(self.qid) * 8, ..self }
    }

    /// As another process has left them, which has pushed `pushed` and popped `popped` entries in all (modulo 2^32, of which `entries` is a
    /// divisor), and rung for all of them or all but the last.
    pub(super) fn left(qid: u16, entries: u32, (sq, cq): (u64, u64), (pushed, popped): (u32, u32)) -> Self {
        let (tail, head, phase) = (pushed % entries, popped % entries, popped / entries % 2 == 0);
        let in_flight = pushed.wrapping_sub(popped);
        QueuePairRings {
            tail,
            rung_tail: tail,
            head,
            rung_head: head,
            phase,
            in_flight,
            ..Self::new(qid, entries, sq, cq)
        }
    }

    /// Queue identifier.
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// Entries of each ring.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Address of the submission ring and of the completion ring.
    pub fn addresses(&self) -> (u64, u64) {
        (self.sq, self.cq)
    }

    /// Commands in flight; at most `entries - 1`.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The submission ring begins anew; the completion ring goes on. Nothing is in flight.
    pub(super) fn restart(&mut self) {
        (self.tail, self.rung_tail) = (0, 0);
    }

    /// The submission queue is to be created: its shadow doorbell must not tell of commands of the one before.
    pub(super) fn clear_shadow_tail<P: Port>(&self, port: &mut P) {
        if self.shadow != 0 {
            port.shadow_doorbell(self.shadow, 0);
        }
    }

    /// Puts a command ([`Sqe::words`]) into the submission ring; false while it is full.
    #[inline]
    pub fn push<P: Port>(&mut self, port: &mut P, entry: &[u64; 8]) -> bool {
        if self.in_flight + 1 >= self.entries {
            return false;
        }
        port.put(self.sq + u64::from(self.tail) * size_of::<Sqe>() as u64, entry);
        self.tail = if self.tail + 1 == self.entries { 0 } else { self.tail + 1 };
        self.in_flight += 1;
        true
    }

    /// Takes the next completion, if there is one.
    ///
    /// # Errors
    /// A completion for another queue, for a command that nobody sent, or with a head outside of the ring.
    #[inline]
    pub fn pop<P: Port>(&mut self, port: &mut P) -> Result<Option<Cqe>, TransportError> {
        let Some(cqe) = port.take(self.cq + u64::from(self.head) * size_of::<Cqe>() as u64, self.phase) else {
            return Ok(None);
        };
        if cqe.sqid.get() != self.qid || self.in_flight == 0 || u32::from(cqe.sqhd.get()) >= self.entries {
            return Err(protocol("a completion of another queue, or of none of our commands"));
        }
        self.in_flight -= 1;
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
            self.phase = !self.phase;
        }
        Ok(Some(cqe))
    }

    /// Tells the controller what was pushed.
    #[inline]
    pub fn ring_tail<P: Port>(&mut self, port: &mut P) {
        if self.rung_tail != self.tail {
            let before = core::mem::replace(&mut self.rung_tail, self.tail);
            if self.shadow == 0 || passes(port.shadow_doorbell(self.shadow, self.tail), before, self.tail) {
                port.doorbell(Doorbell::SqTail(self.qid), self.tail);
            }
        }
    }

    /// Tells the controller once more how far was pushed.
    pub(super) fn ring_tail_again<P: Port>(&mut self, port: &mut P) {
        port.doorbell(Doorbell::SqTail(self.qid), self.tail);
    }

    /// Tells the controller what was popped.
    #[inline]
    pub fn ring_head<P: Port>(&mut self, port: &mut P) {
        if self.rung_head != self.head {
            let before = core::mem::replace(&mut self.rung_head, self.head);
            if self.shadow == 0 || passes(port.shadow_doorbell(self.shadow + 4, self.head), before, self.head) {
                port.doorbell(Doorbell::CqHead(self.qid), self.head);
            }
        }
    }
}
