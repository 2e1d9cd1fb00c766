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
}

impl QueuePairRings {
    /// Empty rings of `entries` at these addresses; the completion ring's memory is zero.
    pub fn new(qid: u16, entries: u32, sq: u64, cq: u64) -> Self {
        QueuePairRings { qid, entries, sq, cq, tail: 0, rung_tail: 0, head: 0, rung_head: 0, phase: true, in_flight: 0 }
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
            self.rung_tail = self.tail;
            port.doorbell(Doorbell::SqTail(self.qid), self.tail);
        }
    }

    /// Tells the controller what was popped.
    #[inline]
    pub fn ring_head<P: Port>(&mut self, port: &mut P) {
        if self.rung_head != self.head {
            self.rung_head = self.head;
            port.doorbell(Doorbell::CqHead(self.qid), self.head);
        }
    }
}
