//! One virtqueue of a started device: takes requests off the ring, remembers those in flight, completes them.

use super::chain::{Chain, Violation};
use super::disk::Disk;
use super::journal::{StartError, Track};
use super::log::Logging;
use super::request::{Footer, Op, Parsed, RequestTag, parse};
use super::ring::{DeviceRing, Packed, Ring, RingAddresses, Split, Traits};
use super::segments::{SegmentList, SegmentPool};
use crate::memory::{Memory, MemoryFault};
use alloc::boxed::Box;
use alloc::vec;
use weir_journal::{JournalRegion, RecoveredRing};
use weir_spec::virtio_blk::RequestStatus;
use weir_spec::virtqueue::feature;

/// A command for the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveCommand {
    /// To be given back with the completion, and to move its data.
    pub tag: RequestTag,
    /// What to do.
    pub op: Op,
    /// First byte on the disk, a multiple of the block size.
    pub offset: u64,
    /// Bytes, a multiple of the block size, at most [`Disk::max_transfer`] for reads and writes; 0 for a flush.
    pub len: u32,
}

/// Most entries of a queue.
pub const MAX_QUEUE_SIZE: u16 = 4096;

/// What a queue is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueState {
    /// Takes requests.
    Started,
    /// Takes no more; finishes what it took.
    Draining,
    /// The ring is malformed; finishes what it took.
    Broken(Violation),
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Request {
    segments: SegmentList,
    status_at: u64,
    offset: u64,
    len: u64,
    step: u32,
    written: u32,
    // Words of their own: `slots` is read right after `parts_left` is written, and a wide load that has to wait for a narrow
    // store costs as much as the rest of a completion.
    slots: u32,
    parts_left: u32,
    status: RequestStatus,
    op: Op,
}

const IDLE: Request = Request {
    segments: SegmentList::EMPTY,
    status_at: 0,
    offset: 0,
    len: 0,
    step: 0,
    written: 0,
    slots: 0,
    parts_left: 0,
    status: RequestStatus::OK,
    op: Op::Flush,
};

/// A started virtqueue.
#[derive(Debug)]
pub struct Virtqueue<M: Memory> {
    index: u16,
    state: QueueState,
    ring: Ring<M>,
    features: u64,
    requests: Box<[Request]>,
    pool: SegmentPool,
    chain: Box<Chain>,
    in_flight: u32,
    /// Commands given out and not completed, and the most that may be.
    commands: u32,
    limit: u32,
    /// A request of which not all commands have been given out: its head, and which is next.
    partial: Option<(u16, u32)>,
    /// Used elements wait for [`Virtqueue::publish`].
    dirty: bool,
    /// The driver of a renewed disk has read its serial.
    pub(super) identified: bool,
    track: Track<M>,
    /// While the guest is copied to another machine.
    logging: Option<Logging<M::Words>>,
}

impl<M: Memory> Virtqueue<M> {
    /// Starts a queue of `size` entries from `base`, as SET_VRING_BASE gave it and whether its ring is known to have stopped there, or, where the in-flight region has what an
    /// earlier life of the queue left, from there: what was found is returned.
    #[allow(clippy::too_many_arguments)] // what the front end said, one message each
    pub(super) fn start(
        memory: &M,
        index: u16,
        size: u16,
        places: &RingAddresses,
        (base, stopped): (u32, bool),
        features: u64,
        most: u32,
        region: Option<&JournalRegion<M::Words>>,
    ) -> Result<(Self, Option<RecoveredRing>), StartError> {
        let has = |bit| features & bit != 0;
        let traits = Traits { event_idx: has(feature::EVENT_IDX), indirect: has(feature::INDIRECT_DESC) };
        let (ring, track, found) = if has(feature::RING_PACKED) {
            let base = (base, base == 0 && !stopped);
            let (track, found, base) = match region {
                Some(region) => Track::of_packed(memory, places, region, index, size, base)?,
                None => (Track::none(), None, base),
            };
            (Ring::Packed(Packed::new(memory, places, size, traits, base)?), track, found)
        } else {
            let mut ring = Split::new(memory, places, size, traits, base as u16)?;
            let (track, found) = match region {
                Some(region) => Track::of_split(&mut ring, region, index, size)?,
                None => (Track::none(), None),
            };
            (Ring::Split(ring), track, found)
        };
        let queue = Self {
            index,
            state: QueueState::Started,
            ring,
            features,
            requests: vec![IDLE; usize::from(size)].into_boxed_slice(),
            pool: SegmentPool::new(size),
            chain: Box::default(),
            in_flight: 0,
            commands: 0,
            identified: false,
            limit: u32::from(size).max(64).min(most).max(1),
            partial: None,
            dirty: false,
            track,
            logging: None,
        };
        Ok((queue, found))
    }

    /// Its state.
    pub fn state(&self) -> QueueState {
        self.state
    }

    /// Requests taken and not completed, those of an earlier life included.
    pub fn in_flight(&self) -> u32 {
        self.in_flight + self.track.waiting() as u32
    }

    /// Most commands that are given out at once.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Whether [`Virtqueue::take`] may have something to do: also a queue that takes no more finishes what it has begun.
    pub(super) fn is_draining(&self) -> bool {
        self.state == QueueState::Draining
    }

    pub(super) fn base(&self) -> u32 {
        self.ring.base()
    }

    /// Whether the ring is known to be where [`base`](Self::base) says.
    pub(super) fn is_placed(&self) -> bool {
        !matches!(&self.ring, Ring::Packed(ring) if ring.is_unsure())
    }

    /// The queue ends in order, or its requests are given up: its journal says so.
    pub(super) fn close(&self) {
        self.track.close(self.base());
    }

    pub(super) fn drain(&mut self) {
        self.state = QueueState::Draining;
    }

    /// What it logs from now on. The ring counts as written: it may have been since the last word on this.
    pub(super) fn log(&mut self, logging: Option<Logging<M::Words>>) {
        self.logging = logging;
        self.log_ring();
    }

    #[inline]
    fn log_ring(&self) {
        if let Some(logging) = &self.logging {
            logging.wrote_ring();
        }
    }

    /// Writes into a request's buffers.
    #[inline]
    fn write(&self, memory: &M, address: u64, from: &[u8]) -> Result<(), MemoryFault> {
        let done = memory.write(address, from);
        if let Some(logging) = &self.logging {
            // Also where it failed: some of it may be written.
            logging.wrote(address, from.len());
        }
        done
    }

    /// Finds the ring anew after a change of memory or address.
    pub(super) fn resolve(&mut self, memory: &M, places: &RingAddresses) -> Result<(), Violation> {
        // What has been completed goes out where the ring still is; a ring that is gone shows below.
        self.publish(memory);
        let r = self.ring.resolve(memory, places).map_err(Violation::from);
        self.track.resume(&self.ring);
        r.map_err(|v| self.fail(v))
    }

    /// Its ring is in no memory any more.
    pub(super) fn lost(&mut self) -> Result<(), Violation> {
        Err(self.fail(MemoryFault::Unmapped.into()))
    }

    fn fail(&mut self, violation: Violation) -> Violation {
        if self.state == QueueState::Started {
            self.state = QueueState::Broken(violation);
        }
        self.track.give_up();
        violation
    }

    /// Takes up to `budget` requests and hands each command to `sink`; whether there was any. What needs no drive is
    /// answered here.
    ///
    /// # Errors
    /// The ring is malformed: the queue is [`QueueState::Broken`] from now on.
    #[inline]
    pub fn take(
        &mut self,
        memory: &M,
        disk: &Disk,
        budget: usize,
        sink: &mut impl FnMut(DriveCommand),
    ) -> Result<bool, Violation> {
        let mut any = false;
        for _ in 0..budget {
            if self.commands >= self.limit {
                break;
            }
            if let Some((head, part)) = self.partial {
                self.give_out(head, part, sink);
                any = true;
                continue;
            }
            let again = self.track.waiting() != 0;
            if self.state != QueueState::Started && !again || !self.pool.has_room() {
                break;
            }
            let taken = if again { self.take_again(memory, disk, sink) } else { self.take_one(memory, disk, sink) };
            match taken {
                Ok(true) => any = true,
                Ok(false) => break,
                Err(violation) => return Err(self.fail(violation)),
            }
        }
        Ok(any)
    }

    /// Whether the ring has a request that [`Virtqueue::take`] would take, by one load of it; what that reads comes from the other core from
    /// here on. A queue that takes none, or goes on with what it has, says no.
    #[inline]
    pub fn has_request(&self, memory: &M) -> bool {
        let has_request = self.state == QueueState::Started && self.commands < self.limit && self.ring.has_next(memory);
        if has_request {
            self.ring.expect(memory);
        }
        has_request
    }

    #[inline]
    fn take_one(&mut self, memory: &M, disk: &Disk, sink: &mut impl FnMut(DriveCommand)) -> Result<bool, Violation> {
        let chain = &mut *self.chain;
        let found = match &mut self.ring {
            Ring::Split(r) => next(r, memory, chain)?,
            Ring::Packed(r) => next(r, memory, chain)?,
        };
        if !found {
            return Ok(false);
        }
        if self.requests[usize::from(chain.head)].parts_left != 0 {
            return Err(Violation::InFlight);
        }
        self.track.take(&self.ring, chain);
        self.begin(memory, disk, sink)
    }

    /// Submits the next request that was in flight in an earlier life of the queue: its entry says so already.
    #[cold]
    fn take_again(&mut self, memory: &M, disk: &Disk, sink: &mut impl FnMut(DriveCommand)) -> Result<bool, Violation> {
        self.track.next(memory, &self.ring, &mut self.chain)?;
        self.begin(memory, disk, sink)
    }

    /// Begins with the chain at hand.
    #[inline]
    fn begin(&mut self, memory: &M, disk: &Disk, sink: &mut impl FnMut(DriveCommand)) -> Result<bool, Violation> {
        let chain = &mut *self.chain;
        let (footer, parsed) = parse(memory, chain, disk, self.features)?;
        match parsed {
            Parsed::Io { .. } if disk.renewed => self.answer(memory, footer, RequestStatus::IOERR)?,
            Parsed::Io { op, offset, len, data } => {
                let step = match op {
                    Op::Read | Op::Write => disk.max_transfer,
                    Op::WriteZeroes { .. } => disk.max_zeroes,
                    Op::Flush | Op::Discard => u32::MAX,
                };
                let parts = if len <= u64::from(step) { 1 } else { len.div_ceil(u64::from(step)) };
                let head = chain.head;
                // In place: a request that is made beside and then moved is read in other widths than it was written in.
                let request = &mut self.requests[usize::from(head)];
                self.pool.keep(&mut request.segments, &chain.segments[data]);
                (request.status_at, request.written) = (footer.status_at, footer.written);
                (request.offset, request.len, request.step) = (offset, len, step);
                (request.slots, request.parts_left) = (u32::from(chain.slots), parts as u32);
                (request.status, request.op) = (RequestStatus::OK, op);
                self.in_flight += 1;
                self.give_out(head, 0, sink);
            }
            Parsed::Id { data } => {
                let status = self.answer_id(memory, disk, data);
                self.answer(memory, footer, status)?;
            }
            Parsed::Answer(status) => self.answer(memory, footer, status)?,
        }
        Ok(true)
    }

    /// Gives out a request's commands from `part` on, as many as may be.
    #[inline]
    fn give_out(&mut self, head: u16, mut part: u32, sink: &mut impl FnMut(DriveCommand)) {
        let Request { op, offset, len, step, .. } = self.requests[usize::from(head)];
        self.partial = None;
        loop {
            let done = u64::from(part) * u64::from(step);
            let n = (len - done).min(u64::from(step));
            sink(DriveCommand {
                tag: RequestTag::new(self.index, part, head),
                op,
                offset: offset + done,
                len: n as u32,
            });
            self.commands += 1;
            part += 1;
            if done + n == len {
                return;
            }
            if self.commands >= self.limit {
                self.partial = Some((head, part));
                return;
            }
        }
    }

    /// GET_ID: up to 20 bytes, a shorter buffer gets the beginning (5.2.6).
    fn answer_id(&mut self, memory: &M, disk: &Disk, data: core::ops::Range<usize>) -> RequestStatus {
        let mut done = 0;
        for s in &self.chain.segments[data] {
            let n = (s.len as usize).min(disk.serial.len() - done);
            if self.write(memory, s.address, &disk.serial[done..done + n]).is_err() {
                return RequestStatus::IOERR;
            }
            done += n;
        }
        self.identified |= disk.renewed && done != 0;
        if done == 0 { RequestStatus::IOERR } else { RequestStatus::OK }
    }

    /// Finishes the chain at hand, which never was in flight.
    fn answer(&mut self, memory: &M, footer: Footer, status: RequestStatus) -> Result<(), Violation> {
        let (head, slots) = (self.chain.head, self.chain.slots);
        self.finish(memory, head, slots, footer, status)
    }

    #[inline]
    fn finish(
        &mut self,
        memory: &M,
        head: u16,
        slots: u16,
        footer: Footer,
        status: RequestStatus,
    ) -> Result<(), Violation> {
        // A status byte that is nowhere: the driver gets its descriptors back with nothing written.
        let written = if self.write(memory, footer.status_at, &[status.0]).is_ok() { footer.written } else { 0 };
        self.track.done(memory, &self.ring, head, slots)?;
        self.ring.push_used(memory, head, slots, written)?;
        self.dirty = true;
        if written == 0 { Err(Violation::Address) } else { Ok(()) }
    }

    /// A command is done; its request is marked used once all of its commands are. Unknown tags are ignored: they are
    /// of a life of the queue that was reset.
    #[inline]
    pub fn complete(&mut self, memory: &M, tag: RequestTag, status: RequestStatus) {
        let Some(request) = self.requests.get_mut(usize::from(tag.head())) else {
            return;
        };
        if request.parts_left == 0 {
            return;
        }
        if status != RequestStatus::OK && request.status != RequestStatus::IOERR {
            request.status = status;
        }
        request.parts_left -= 1;
        self.commands -= 1;
        if request.parts_left != 0 {
            return;
        }
        self.pool.release(&mut request.segments);
        self.in_flight -= 1;
        let (slots, status) = (request.slots as u16, request.status);
        let footer = Footer { status_at: request.status_at, written: request.written };
        if let Err(violation) = self.finish(memory, tag.head(), slots, footer, status) {
            self.fail(violation);
        }
    }

    /// Makes completions visible to the driver. [`Virtqueue::wants_signal`] says whether it waits for a signal.
    #[inline]
    pub fn publish(&mut self, memory: &M) {
        if !self.dirty {
            return;
        }
        self.dirty = false;
        let published = self.ring.publish(memory);
        self.log_ring();
        match published {
            Ok(_) => self.track.published(),
            Err(fault) => drop(self.fail(fault.into())),
        }
    }

    /// Whether to signal the driver, once for everything published since the last call.
    #[inline]
    pub fn wants_signal(&mut self, memory: &M) -> bool {
        self.ring.wants_signal(memory).unwrap_or_else(|fault| {
            self.fail(fault.into());
            false
        })
    }

    /// Asks the driver not to kick: somebody polls.
    pub fn quiet(&mut self, memory: &M) {
        if self.state == QueueState::Started {
            if let Err(fault) = self.ring.quiet(memory) {
                self.fail(fault.into());
            }
            self.log_ring();
        }
    }

    /// Asks the driver to kick from now on; whether something is there already, so that it must be polled once more.
    pub fn listen(&mut self, memory: &M) -> bool {
        if self.state != QueueState::Started {
            return false;
        }
        let listening = self.ring.listen(memory);
        self.log_ring();
        match listening {
            // What is left of a request that is partly given out is there as well, although not in the ring.
            Ok(more) => more || self.partial.is_some() || self.track.waiting() != 0,
            Err(fault) => {
                self.fail(fault.into());
                false
            }
        }
    }

    fn request(&self, tag: RequestTag) -> Option<&Request> {
        self.requests.get(usize::from(tag.head())).filter(|r| r.parts_left != 0)
    }

    /// Copies the guest's bytes for a write, from `offset` within the command.
    ///
    /// # Errors
    /// The guest's buffer is not (or no longer) in its memory, or is too short.
    #[inline]
    pub fn read_data(&self, memory: &M, tag: RequestTag, offset: u32, into: &mut [u8]) -> Result<(), MemoryFault> {
        let request = self.request(tag).filter(|r| r.op == Op::Write).ok_or(MemoryFault::Unmapped)?;
        let from = u64::from(tag.part()) * u64::from(request.step) + u64::from(offset);
        if let Some(s) = request.segments.single() {
            if from + into.len() as u64 <= u64::from(s.len) {
                return memory.read(s.address + from, into);
            }
        }
        let len = into.len();
        let whole =
            self.pool.cover(&request.segments, from, len, |at, done, n| memory.read(at, &mut into[done..done + n]))?;
        if whole { Ok(()) } else { Err(MemoryFault::OutOfWindow) }
    }

    /// Copies bytes read from the drive to the guest, from `offset` within the command.
    ///
    /// # Errors
    /// As [`Virtqueue::read_data`].
    #[inline]
    pub fn write_data(&self, memory: &M, tag: RequestTag, offset: u32, from: &[u8]) -> Result<(), MemoryFault> {
        let request = self.request(tag).filter(|r| r.op == Op::Read).ok_or(MemoryFault::Unmapped)?;
        let start = u64::from(tag.part()) * u64::from(request.step) + u64::from(offset);
        if let Some(s) = request.segments.single() {
            if start + from.len() as u64 <= u64::from(s.len) {
                return self.write(memory, s.address + start, from);
            }
        }
        let whole = self
            .pool
            .cover(&request.segments, start, from.len(), |at, done, n| self.write(memory, at, &from[done..done + n]))?;
        if whole { Ok(()) } else { Err(MemoryFault::OutOfWindow) }
    }

    /// Hints that a command's guest buffer is needed soon.
    #[inline]
    pub fn prefetch(&self, memory: &M, tag: RequestTag) {
        if let Some(s) = self.request(tag).and_then(|r| r.segments.single()) {
            memory.prefetch(s.address, s.len as usize);
        }
    }

    /// Whether who serves the queue next finds every request in flight, and none of them is cut into several commands, of which some may have
    /// been executed.
    pub fn can_pass_on(&self) -> bool {
        let whole = |r: &Request| r.parts_left == 0 || r.len <= u64::from(r.step);
        self.track.is_kept() && self.requests.iter().all(whole)
    }

    /// Whether request bookkeeping agrees with itself; for tests.
    ///
    /// # Panics
    /// If it does not.
    pub fn check(&self) {
        let live = self.requests.iter().filter(|r| r.parts_left != 0).count();
        assert_eq!(live as u32, self.in_flight, "requests in flight");
        let left = self.requests.iter().map(|r| r.parts_left).sum::<u32>();
        assert!(self.commands <= self.limit && self.commands <= left, "commands in flight");
        assert_eq!(self.commands == left, self.partial.is_none(), "a partial request");
    }
}

#[inline]
fn next<M: Memory>(ring: &mut impl DeviceRing<M>, memory: &M, chain: &mut Chain) -> Result<bool, Violation> {
    let found = ring.next(memory, chain)?;
    ring.look_ahead(memory);
    Ok(found)
}
