//! A drive's media on another NVMe namespace or virtio disk, through the host driver. Polled: a shard with requests on
//! their way does not sleep.

use crate::fence::{Fence, Record};
use crate::transfer::Transfer;
use std::collections::VecDeque;
use weir_controller::{Host, Io, SlotId, Subsystem};
use weir_driver::{Done, Io as Request, IoKind, QueuePair, TransportError};
use weir_spec::nvme::Status;
use weir_units::Nanos;

/// How often the far side's keep alive is looked after while no request is polled for.
const ATTEND_EVERY: Nanos = Nanos::from_secs(1);

/// See the [module](self).
pub struct Remote {
    pair: Box<dyn QueuePair + Send>,
    free: Vec<u32>,
    active: Vec<Option<Transfer>>,
    waiting: VecDeque<Transfer>,
    done: Vec<Done>,
    /// Why the far side is gone; everything fails from then on.
    broken: Option<TransportError>,
    /// When the far side's keep alive is looked after next.
    attend_at: Nanos,
    /// Nothing is sent before it is over.
    fence: Option<Fence>,
    record: Option<Record>,
}

impl Remote {
    /// Over an open queue pair, once the fence is over. The record ends with the drive, if nothing is in flight then.
    pub fn new(pair: Box<dyn QueuePair + Send>, fence: Option<Fence>, record: Option<Record>) -> Self {
        let depth = pair.depth();
        Self {
            pair,
            free: (0..depth).rev().collect(),
            active: vec![None; depth as usize],
            waiting: VecDeque::new(),
            done: Vec::with_capacity(depth as usize),
            broken: None,
            attend_at: Nanos(0),
            fence,
            record,
        }
    }

    /// Requests on their way or waiting for a slot of the far side's queue.
    pub fn in_flight(&self) -> usize {
        self.active.len() - self.free.len() + self.waiting.len()
    }

    /// Why the far side is gone, if it is.
    pub fn fault(&self) -> Option<&TransportError> {
        self.broken.as_ref()
    }

    /// Begins an I/O; answers at once where it cannot be begun.
    pub fn start<H: Host>(&mut self, io: Io, machine: &Subsystem, host: &mut H) -> Option<Status> {
        if self.broken.is_some() {
            return Some(Status::INTERNAL_PATH_ERROR);
        }
        self.begin(Transfer::new(io, false), machine, host)
    }

    fn begin<H: Host>(&mut self, mut transfer: Transfer, machine: &Subsystem, host: &mut H) -> Option<Status> {
        let slot = if self.fence.is_some() { None } else { self.free.pop() };
        let Some(slot) = slot else {
            self.waiting.push_back(transfer);
            return None;
        };
        let limit = self.pair.max_io();
        let live = machine.is_live(transfer.io.slot);
        if let Err(status) = transfer.begin(limit, self.pair.buffer(slot), live, host) {
            self.free.push(slot);
            return Some(status);
        }
        let kind = transfer.kind();
        let len = if kind == IoKind::Flush { 0 } else { transfer.chunk };
        match self.pair.submit(Request { kind, offset: transfer.offset(), len, slot }) {
            Ok(()) => {
                self.active[slot as usize] = Some(transfer);
                None
            }
            Err(TransportError::Usage(_)) => {
                self.free.push(slot);
                Some(Status::INTERNAL_ERROR)
            }
            Err(e) => {
                self.free.push(slot);
                self.broken.get_or_insert(e);
                Some(Status::INTERNAL_PATH_ERROR)
            }
        }
    }

    /// When it wants to be polled although nothing is in flight.
    pub fn due(&self) -> Nanos {
        if self.in_flight() == 0 && self.broken.is_none() { self.attend_at } else { Nanos::NEVER }
    }

    /// The far side ends an association that is silent for too long.
    #[cold]
    fn attend(&mut self, now: Nanos) {
        self.attend_at = now.saturating_add(ATTEND_EVERY);
        if let Err(e) = self.pair.attend() {
            self.lose(e);
        }
    }

    #[cold]
    fn lose(&mut self, why: TransportError) {
        tracing::error!(error = %why, "the drive behind this one is gone; its commands fail");
        self.broken.get_or_insert(why);
    }

    /// Whether nothing may be sent yet.
    #[inline]
    fn is_fenced(&mut self, now: Nanos) -> bool {
        if self.fence.as_mut().is_some_and(|fence| fence.is_over(now)) {
            self.fence = None;
        }
        self.fence.is_some()
    }

    /// Sends and reaps; true if anything came back. I/O that has ended is appended.
    pub fn poll<H: Host>(
        &mut self,
        now: Nanos,
        machine: &mut Subsystem,
        host: &mut H,
        ended: &mut Vec<(SlotId, Status)>,
    ) -> bool {
        let is_polled = self.in_flight() > 0 && self.fence.is_none();
        if !is_polled && now >= self.attend_at && self.broken.is_none() {
            self.attend(now);
        }
        if self.broken.is_none() && self.is_fenced(now) || self.in_flight() == 0 {
            return false;
        }
        let mut done = std::mem::take(&mut self.done);
        if let Err(e) = self.pair.poll(&mut done) {
            self.lose(e);
        }
        let mut busy = !done.is_empty();
        for d in done.drain(..) {
            let Some(mut transfer) = self.active[d.slot as usize].take() else { continue };
            let live = machine.is_live(transfer.io.slot);
            let status = transfer.finish(d.status, self.pair.buffer(d.slot), live, host);
            self.free.push(d.slot);
            let status = status.or_else(|| self.begin(transfer, machine, host));
            ended.extend(status.map(|status| (transfer.io.slot, status)));
        }
        self.done = done;
        while self.broken.is_none() && !self.free.is_empty() {
            let Some(transfer) = self.waiting.pop_front() else { break };
            let status = self.begin(transfer, machine, host);
            ended.extend(status.map(|status| (transfer.io.slot, status)));
        }
        if self.broken.is_some() {
            busy |= self.fail_all(machine, ended);
        }
        busy
    }

    fn fail_all(&mut self, machine: &mut Subsystem, ended: &mut Vec<(SlotId, Status)>) -> bool {
        machine.note_media_fault(false);
        let lost: Vec<Transfer> =
            self.active.iter_mut().filter_map(Option::take).chain(self.waiting.drain(..)).collect();
        self.free = (0..self.active.len() as u32).rev().collect();
        ended.extend(lost.iter().map(|transfer| (transfer.io.slot, Status::INTERNAL_PATH_ERROR)));
        !lost.is_empty()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // What was in flight when the far side went may still be there.
        let is_clear = self.in_flight() == 0 && self.broken.is_none() && self.fence.is_none();
        self.record.iter().filter(|_| is_clear).for_each(Record::end);
    }
}
