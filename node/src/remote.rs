//! A drive's media on another NVMe namespace or virtio disk, through the host driver. Polled: a shard with requests on
//! their way does not sleep.
//!
//! ```text
//!   sends ──► the association is lost ──► waits: Attempts ──► connected again ──► Fence ──► sends, what was in flight first
//!     ▲                                     └─► after the timeout commands fail, and attempts go on      │
//!     └──────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! Only associations over NVMe/TCP are made again; a drive behind a socket that is lost fails for good.

mod reconnect;

use crate::fence::{Fence, Link, Record};
use crate::target::{Identity, Opened};
use crate::transfer::Transfer;
use reconnect::Attempts;
pub use reconnect::Source;
use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use weir_controller::{Host, Io, SlotId, Subsystem};
use weir_driver::{Done, Io as Request, IoKind, QueuePair, TransportError};
use weir_spec::nvme::Status;
use weir_units::Nanos;

/// How often the far side's keep alive is looked after while no request is polled for.
const ATTEND_EVERY: Nanos = Nanos::from_secs(1);
/// How often a fence is looked at, and an attempt to connect.
const FENCE_EVERY: Nanos = Nanos::from_micros(500);
const ATTEMPT_EVERY: Nanos = Nanos::from_millis(5);

/// See the [module](self).
pub struct Remote {
    pair: Box<dyn QueuePair + Send>,
    free: Vec<u32>,
    active: Vec<Option<Transfer>>,
    waiting: VecDeque<Transfer>,
    done: Vec<Done>,
    /// Why the far side is gone for good; everything fails from then on.
    broken: Option<TransportError>,
    lost: Option<Lost>,
    /// When the far side is looked after next.
    attend_at: Nanos,
    /// Nothing is sent before it is over.
    fence: Option<Fence>,
    record: Option<Record>,
    origin: Origin,
}

/// Where the far side is.
pub struct Origin {
    /// How it is connected to again, if it is.
    pub source: Option<Source>,
    /// Its association, over NVMe/TCP.
    pub association: Option<Identity>,
    /// The connections of that.
    pub connections: Vec<OwnedFd>,
    /// The namespace's NGUID.
    pub nguid: [u8; 16],
}

/// The association was lost.
struct Lost {
    why: TransportError,
    /// Since then, once it is known.
    since: Option<Nanos>,
    /// Commands do not wait any longer.
    fails: bool,
    attempts: Attempts,
}

impl Remote {
    /// Over an open queue pair, once the fence is over. The record ends with the drive, if nothing is in flight then.
    pub fn new(pair: Box<dyn QueuePair + Send>, origin: Origin, fence: Option<Fence>, record: Option<Record>) -> Self {
        let depth = pair.depth();
        Self {
            pair,
            free: (0..depth).rev().collect(),
            active: vec![None; depth as usize],
            waiting: VecDeque::new(),
            done: Vec::with_capacity(depth as usize),
            broken: None,
            lost: None,
            attend_at: Nanos(0),
            fence,
            record,
            origin,
        }
    }

    /// Requests on their way or waiting for a slot of the far side's queue.
    pub fn in_flight(&self) -> usize {
        self.active.len() - self.free.len() + self.waiting.len()
    }

    /// Whether the far side may answer at any moment.
    pub fn must_poll(&self) -> bool {
        self.free.len() < self.active.len() || !self.waiting.is_empty() && !self.is_held_back()
    }

    /// Whether nothing can be sent.
    fn is_held_back(&self) -> bool {
        self.lost.is_some() || self.fence.is_some()
    }

    /// Why the far side is gone, if it is.
    pub fn fault(&self) -> Option<&TransportError> {
        self.broken.as_ref().or(self.lost.as_ref().map(|lost| &lost.why))
    }

    /// Begins an I/O; answers at once where it cannot be begun.
    pub fn start<H: Host>(&mut self, io: Io, machine: &Subsystem, host: &mut H) -> Option<Status> {
        if self.broken.is_some() || self.lost.as_ref().is_some_and(|lost| lost.fails) {
            return Some(Status::INTERNAL_PATH_ERROR);
        }
        self.begin(Transfer::new(io, false), machine, host)
    }

    fn begin<H: Host>(&mut self, mut transfer: Transfer, machine: &Subsystem, host: &mut H) -> Option<Status> {
        let slot = if self.is_held_back() { None } else { self.free.pop() };
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
                // It is lost with the others, and waits or fails with them.
                self.active[slot as usize] = Some(transfer);
                self.lose(e);
                None
            }
        }
    }

    /// When it wants to be polled although nothing is in flight.
    pub fn due(&self) -> Nanos {
        if !self.must_poll() && self.broken.is_none() { self.attend_at } else { Nanos::NEVER }
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
        if self.lost.is_some() || self.broken.is_some() {
            return;
        }
        // What one connection of the association has not told yet must not be carried out much later.
        for connection in self.origin.connections.drain(..) {
            let _ = TcpStream::from(connection).shutdown(Shutdown::Both);
        }
        let source = self.origin.source.as_ref().filter(|source| source.timeout > Nanos(0));
        match source.map(Attempts::start).transpose() {
            Ok(Some(attempts)) => {
                tracing::error!(error = %why, "the drive behind this one is gone; its commands wait, and it is connected to again");
                self.lost = Some(Lost { why, since: None, fails: false, attempts });
                self.attend_at = Nanos(0);
            }
            Ok(None) => self.fail_for_good(why),
            Err(e) => self.fail_for_good(e),
        }
    }

    #[cold]
    fn fail_for_good(&mut self, why: TransportError) {
        tracing::error!(error = %why, "the drive behind this one is gone; its commands fail");
        self.broken.get_or_insert(why);
    }

    /// Whether nothing may be sent yet.
    #[inline]
    fn is_fenced(&mut self, now: Nanos) -> bool {
        if self.fence.as_mut().is_some_and(|fence| fence.is_over(now)) {
            self.fence = None;
            if let (Some(record), Some(own)) = (&mut self.record, self.origin.association) {
                record.set(own.cntlid, [].iter());
            }
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
        if self.lost.is_some() {
            return self.poll_lost(now, machine, ended);
        }
        let is_polled = self.in_flight() > 0 && self.fence.is_none();
        if !is_polled && now >= self.attend_at && self.broken.is_none() {
            self.attend(now);
        }
        if self.broken.is_none() && self.is_fenced(now) {
            self.attend_at = self.attend_at.min(now.saturating_add(FENCE_EVERY));
            return false;
        }
        if self.in_flight() == 0 {
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
        while self.broken.is_none() && !self.is_held_back() && !self.free.is_empty() {
            let Some(transfer) = self.waiting.pop_front() else { break };
            let status = self.begin(transfer, machine, host);
            ended.extend(status.map(|status| (transfer.io.slot, status)));
        }
        if self.broken.is_some() {
            busy |= self.fail_all(machine, ended);
        }
        busy
    }

    /// Looks after the attempts to connect again; true if commands have failed.
    #[cold]
    fn poll_lost(&mut self, now: Nanos, machine: &mut Subsystem, ended: &mut Vec<(SlotId, Status)>) -> bool {
        self.attend_at = now.saturating_add(ATTEMPT_EVERY);
        self.take_back();
        let Some(lost) = &mut self.lost else { return false };
        if let Some(opened) = lost.attempts.opened() {
            if let Err(e) = self.resume(opened, now) {
                self.lost = None;
                self.fail_for_good(e);
                return self.fail_all(machine, ended);
            }
            return false;
        }
        let since = *lost.since.get_or_insert(now);
        let timeout = self.origin.source.as_ref().map_or(Nanos(0), |source| source.timeout);
        lost.fails = now.saturating_sub(since) >= timeout;
        lost.fails && self.in_flight() > 0 && self.fail_all(machine, ended)
    }

    /// What was in flight is sent once more.
    fn take_back(&mut self) {
        if self.free.len() == self.active.len() {
            return;
        }
        for mut transfer in self.active.iter_mut().rev().filter_map(Option::take) {
            transfer.restart_chunk();
            self.waiting.push_front(transfer);
        }
        self.free = (0..self.active.len() as u32).rev().collect();
    }

    /// Goes on over another association, once those of before have ended.
    fn resume(&mut self, opened: Opened, now: Nanos) -> Result<(), TransportError> {
        let (Some(source), Some(new)) = (&self.origin.source, opened.association) else { return Ok(()) };
        let is_same = |pair: &dyn QueuePair| {
            (pair.capacity(), pair.block_size()) == (self.pair.capacity(), self.pair.block_size())
        };
        if !is_same(&*opened.pair) || opened.nguid != self.origin.nguid {
            return Err(TransportError::Refused(format!(
                "{}: another drive is there now: what was written is not on it",
                source.target
            )));
        }
        let before = self.fence.take();
        let lost = self.origin.association.into_iter();
        let earlier: Vec<Identity> = lost.chain(before.iter().flat_map(|f| f.earlier()).copied()).collect();
        if let Some(record) = &mut self.record {
            record.set(new.cntlid, earlier.iter());
        }
        let closed = |e: std::io::Error| TransportError::Closed(format!("{}: {e}", source.target));
        let own = opened.connections.iter().map(OwnedFd::try_clone).collect::<Result<_, _>>().map_err(closed)?;
        let link = Link { drive: &source.drive, nqn: &source.nqn, target: &source.target, association: new };
        self.fence = Some(Fence::again(link, earlier, own, &source.keep, now).map_err(closed)?);
        tracing::info!("{}: connected again", source.target);
        let depth = opened.pair.depth();
        (self.free, self.active) = ((0..depth).rev().collect(), vec![None; depth as usize]);
        (self.pair, self.lost) = (opened.pair, None);
        (self.origin.association, self.origin.connections) = (Some(new), opened.connections);
        Ok(())
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
        let is_clear = self.in_flight() == 0 && self.broken.is_none() && !self.is_held_back();
        self.record.iter().filter(|_| is_clear).for_each(Record::end);
    }
}
