//! Submission and completion queues.

use crate::event::SqHandle;
use crate::host::Owner;
use crate::queues::command::{Command, CommandWords};
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_arbiter::QueueKey;
use weir_units::{Class, Nanos};

/// No such queue.
pub(crate) const NONE: u32 = u32::MAX;

/// What state a submission queue is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqState {
    /// Serves.
    Open,
    /// Delete I/O Submission Queue waits for what is in flight.
    Deleting,
    /// Its connection is to be closed; nothing is served or answered any more.
    Condemned,
}

/// A submission queue, admin or I/O, ring or message. Its index in `Subsystem::queues` is that of its arbiter key.
#[derive(Clone, Debug)]
pub(crate) struct Sq {
    pub key: QueueKey,
    pub owner: Owner,
    pub controller: u32,
    /// Entries.
    pub size: u32,
    /// The next entry to consume.
    pub head: u32,
    /// Entries that wait, holes included.
    pub waiting: u32,
    /// Consumed and not completed.
    pub in_flight: u32,
    /// The completion queue's index; `NONE` for message queues.
    pub cq: u32,
    /// Rings: address of entry 0.
    pub base: u64,
    /// The largest transfer in bytes.
    pub mdts: u64,
    /// A front controller's queue.
    pub front: bool,
    /// Message I/O queues: the entries.
    pub pending: Box<[Command]>,
    /// What else is kept of them, by the same place; empty while nothing was.
    pub words: Vec<CommandWords>,
    /// When they arrived, by the same place.
    pub arrived: Box<[Nanos]>,
    pub qid: u16,
    pub tenant: u16,
    pub generation: u8,
    pub state: SqState,
    pub ring: bool,
    /// Rings: host memory pages have `1 << page_shift` bytes.
    pub page_shift: u8,
    /// Its controller shuts down: nothing is fetched.
    pub paused: bool,
    /// A rule of failures has nothing fetched from it; not saved.
    pub stuck: bool,
    /// The host takes no SQHD.
    pub flow_off: bool,
    /// Waits for room in its completion queue.
    pub starved: bool,
    /// Its head is the first command of a pair whose second has not come.
    pub awaits: bool,
    /// Class at the drive, and inside its controller.
    pub class: Class,
    pub local: Class,
    /// What QPRIO, CATTR or the peer asked for.
    pub wish: Option<Class>,
    /// Rings: entries that were aborted while they waited.
    pub holes: Vec<u32>,
    /// The admin command that deletes it.
    pub deleter: Option<u16>,
    /// The tail in its shadow doorbell, as it was seen last, and its event index.
    pub seen: u32,
    pub event: u32,
    /// Tells it from others that its controller had or will have.
    pub made: u32,
}

impl Sq {
    pub fn handle(&self) -> SqHandle {
        SqHandle::new(self.key.index() as u32, self.generation)
    }

    /// The tail, as an index.
    pub fn tail(&self) -> u32 {
        let t = self.head + self.waiting;
        if t >= self.size { t - self.size } else { t }
    }

    /// Consumes the head entry; answers its index.
    #[inline]
    pub fn advance(&mut self) -> u32 {
        let at = self.head;
        self.head = if at + 1 == self.size { 0 } else { at + 1 };
        self.waiting -= 1;
        at
    }

    /// The index of the `n`th waiting entry.
    pub fn nth(&self, n: u32) -> u32 {
        let at = self.head + n;
        if at >= self.size { at - self.size } else { at }
    }

    /// What else is kept of the command at a place of a message queue.
    pub fn words_at(&self, at: u32) -> CommandWords {
        self.words.get(at as usize).copied().unwrap_or_default()
    }

    /// Puts a command at the tail of a message queue; `false` if the host overran it.
    #[inline]
    pub fn push(&mut self, command: Command) -> bool {
        if self.waiting >= self.size || self.pending.is_empty() {
            return false;
        }
        let at = self.tail() as usize;
        self.pending[at] = command;
        self.waiting += 1;
        true
    }

    /// Everything that waits arrives now, as far as promises and latencies go.
    #[cold]
    pub fn arrive_again(&mut self, now: Nanos) {
        for n in 0..self.waiting {
            let at = self.nth(n) as usize;
            self.arrived[at] = now;
        }
    }

    /// SQHD of a completion now.
    #[inline]
    pub fn sqhd(&self) -> u16 {
        if self.flow_off { 0 } else { self.head as u16 }
    }
}

/// A completion queue of a ring controller.
#[derive(Clone, Debug)]
pub(crate) struct Cq {
    pub controller: u32,
    pub base: u64,
    pub size: u32,
    /// Where the next entry goes.
    pub tail: u32,
    /// What the host has consumed up to.
    pub head: u32,
    /// Entries neither written nor reserved for a fetched command.
    pub credit: u32,
    pub phase: bool,
    /// How often the tail has wrapped; of one that was taken over whether it was odd.
    pub laps: u64,
    /// Tells it from others that its controller had or will have.
    pub made: u32,
    pub qid: u16,
    /// Interrupt vector, where enabled.
    pub vector: Option<u16>,
    /// The vector may be masked or coalesced: not every completion signals it.
    pub gated: bool,
    /// The head in its shadow doorbell, as it was seen last, and its event index.
    pub seen: u32,
    pub event: u32,
    /// Submission queues that use it; it cannot be deleted before them.
    pub users: u32,
    /// How many of them are starved.
    pub starved: u32,
}

impl Cq {
    pub fn new(controller: u32, qid: u16, base: u64, size: u32, vector: Option<u16>) -> Self {
        let credit = size - 1;
        Self {
            controller,
            base,
            size,
            tail: 0,
            head: 0,
            credit,
            phase: true,
            laps: 0,
            made: 0,
            qid,
            vector,
            gated: false,
            seen: 0,
            event: 0,
            users: 0,
            starved: 0,
        }
    }

    /// Entries written and not consumed.
    pub fn used(&self) -> u32 {
        if self.tail >= self.head { self.tail - self.head } else { self.tail + self.size - self.head }
    }

    /// The host's new head; `false` for one that consumes what was never written.
    pub fn consume(&mut self, head: u32) -> bool {
        if head >= self.size {
            return false;
        }
        let n = if head >= self.head { head - self.head } else { head + self.size - self.head };
        if n > self.used() {
            return false;
        }
        self.head = head;
        self.credit += n;
        true
    }

    /// How many entries there were before the next one.
    #[inline]
    pub fn place(&self) -> u64 {
        self.laps.wrapping_mul(self.size.into()).wrapping_add(self.tail.into())
    }

    /// Where the next entry goes and with which phase; the phase flips at the wrap.
    #[inline]
    pub fn produce(&mut self) -> (u64, bool) {
        let (at, phase) = (self.base.wrapping_add(u64::from(self.tail) * 16), self.phase);
        self.tail += 1;
        if self.tail == self.size {
            self.tail = 0;
            self.phase = !phase;
            self.laps += 1;
        }
        (at, phase)
    }
}
