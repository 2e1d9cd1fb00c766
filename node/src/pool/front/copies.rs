//! Commands of a volume with two copies.
//!
//! ```text
//!  write ─► its regions are written? ─no─► Note Written ─► the pool ─► durable ─┐
//!              │yes                                                              │
//!              ▼ ◄───────────────────────────────────────────────────────────────┘
//!           both drives ─► both have it ─► acknowledged
//!              └ one fails ─► not read from any more ─► Note MarkStale ─► the pool ─► durable ─► acknowledged
//!  read  ─► the first copy ─► fails ─► the other one, and Note MarkStale
//! ```
//! The bytes of a write are taken from its host once, so that a host that changes them meanwhile does not make two copies of them. What the
//! pool is told goes one after the other, in order.

use super::job::CopyJob;
use super::layout::{chunks, common, find, overlap, without};
use super::{COPY, Flight, Front, WINDOW, lost};
use crate::pool::drive_queue::{PartTime, Sent};
use crate::pool::parts::{Bytes, Once, Part, Parts, Whose};
use std::collections::{BTreeMap, VecDeque};
use weir_controller::{BlockRequest, Data, Op, SlotId};
use weir_pool::{CHUNK, ChunkRun, PoolError, PoolRequest, REGION, VolumeId};
use weir_spec::nvme::Status;

/// Looks at a region without a write before the pool is told that its copies are the same.
const SETTLE_AFTER: u8 = 5;

/// Something that the pool is to be told, by its number.
#[derive(Clone, Debug)]
pub struct Note {
    /// Its number among those of the front.
    pub number: u64,
    /// What the pool is asked.
    pub request: PoolRequest,
}

/// What a front knows of the copies of its volume.
#[derive(Debug)]
pub struct Copies {
    /// The shard that has the pool's machine; `None`: the front's own.
    pub pool_shard: Option<u32>,
    /// Regions that the pool knows may be written, and for how many looks nothing was.
    written: BTreeMap<u32, u8>,
    /// To be told, in order.
    notes: VecDeque<Note>,
    /// At the pool.
    told: Option<Note>,
    numbers: u64,
    /// The pool could not take the first note: it is told again at the next look.
    holds: bool,
    /// Chunks of a pool's drive that may not have what was written last, of which a layout of before does not know.
    pub(super) stale: Vec<(usize, ChunkRun)>,
    /// What is being copied or compared.
    pub job: Option<CopyJob>,
}

/// What has gone wrong at the copies of a command.
#[derive(Debug, Default)]
pub struct FlightCopies {
    /// Ways that have failed.
    failed: Vec<u32>,
    /// How the first of them did.
    failure: Option<Status>,
    /// A read begins again, at other copies.
    again: bool,
    /// The number of the note that is waited for.
    note: Option<u64>,
}

impl FlightCopies {
    /// Nothing has gone wrong, and nothing is waited for but drives.
    pub(super) fn is_untroubled(&self) -> bool {
        self.failed.is_empty() && self.failure.is_none() && !self.again && self.note.is_none()
    }

    fn fail(&mut self, way: u32, status: Status) {
        if !self.failed.contains(&way) {
            self.failed.push(way);
        }
        self.failure.get_or_insert(status);
    }
}

/// Whether a drive has failed, and not the command or its host.
pub(super) fn is_drives(status: Status) -> bool {
    !status.is_success()
        && ![
            Status::COMPARE_FAILURE,
            Status::ABORTED_SQ_DELETION,
            Status::DATA_TRANSFER_ERROR,
            Status::LBA_OUT_OF_RANGE,
        ]
        .contains(&status)
}

pub(super) fn is_write(op: Op) -> bool {
    matches!(op, Op::Write | Op::WriteZeroes { .. } | Op::Deallocate | Op::Copy)
}

fn regions(from: u64, to: u64) -> std::ops::Range<u32> {
    let bytes = u64::from(REGION) * CHUNK;
    (from / bytes) as u32..to.div_ceil(bytes) as u32
}

impl Copies {
    /// Of a volume whose pool has told that these chunks may be written.
    pub fn new(pool_shard: Option<u32>, written: &[ChunkRun]) -> Self {
        let bytes = |run: &ChunkRun| regions(u64::from(run.start) * CHUNK, run.end() * CHUNK);
        let written = written.iter().flat_map(bytes).map(|region| (region, 0)).collect();
        let (notes, told, numbers, holds) = (VecDeque::new(), None, 0, false);
        Self { pool_shard, written, notes, told, numbers, holds, stale: Vec::new(), job: None }
    }

    pub(super) fn note(&mut self, request: PoolRequest) -> u64 {
        let number = self.next_number();
        self.notes.push_back(Note { number, request });
        number
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Nothing is told before the next look.
    pub(super) fn hold(&mut self) {
        self.holds = true;
    }

    /// Whether nothing is to be told, or at the pool, that must not be lost: that a copy is stale.
    pub(super) fn may_forget_notes(&self) -> bool {
        let is_stale = |note: &Note| matches!(note.request, PoolRequest::MarkStale { .. });
        !self.notes.iter().chain(&self.told).any(is_stale)
    }

    /// The pool is still to be told that some of these chunks are stale.
    pub(super) fn is_to_tell_of(&self, run: ChunkRun) -> bool {
        let is = |note: &Note| match &note.request {
            PoolRequest::MarkStale { runs, .. } => runs.iter().any(|told| overlap(*told, run)),
            _ => false,
        };
        self.notes.iter().chain(&self.told).any(is)
    }

    /// Nothing is to be told of the copies, and nothing of that is at the pool.
    pub fn has_told_all(&self) -> bool {
        self.told.is_none() && self.notes.is_empty()
    }

    /// A copy is good again.
    fn forget_stale(&mut self, drive: usize, runs: &[ChunkRun]) {
        for run in runs {
            let left = |(of, stale): (usize, ChunkRun)| match of == drive {
                true => without(stale, *run).into_iter().map(|left| (of, left)).collect(),
                false => vec![(of, stale)],
            };
            self.stale = std::mem::take(&mut self.stale).into_iter().flat_map(left).collect();
        }
    }

    /// Whether all regions of these bytes may be written; those that may not are asked for.
    fn may_write(&mut self, id: VolumeId, from: u64, to: u64) -> bool {
        let missing: Vec<u32> = regions(from, to).filter(|region| !self.written.contains_key(region)).collect();
        if missing.is_empty() {
            regions(from, to).for_each(|region| _ = self.written.insert(region, 0));
            return true;
        }
        let run = |region: u32| ChunkRun { start: region.saturating_mul(REGION), len: REGION };
        let has = |note: &Note, region: u32| matches!(&note.request, PoolRequest::Written { runs, .. } if runs.contains(&run(region)));
        // What is at the pool may be settled behind it: only what comes after all of that counts.
        let is_asked = |region: u32| match self.notes.iter().rposition(|note| has(note, region)) {
            Some(at) => !self.notes.iter().skip(at).any(|note| matches!(note.request, PoolRequest::Settled { .. })),
            None => self.notes.is_empty() && self.told.as_ref().is_some_and(|note| has(note, region)),
        };
        let runs: Vec<ChunkRun> = missing.into_iter().filter(|region| !is_asked(*region)).map(run).collect();
        if !runs.is_empty() {
            self.note(PoolRequest::Written { id, runs });
        }
        false
    }
}

impl Front {
    /// The next thing that the pool is to be told.
    pub fn take_note(&mut self) -> Option<Note> {
        let Some(copies) = &mut self.copies else { return self.take_unsharing() };
        if copies.told.is_some() || copies.holds || self.sharing.is_asking() {
            return None;
        }
        copies.told = copies.notes.pop_front();
        match &copies.told {
            Some(note) => Some(note.clone()),
            None => self.take_unsharing(),
        }
    }

    /// What the pool has said to a note; commands that waited for it go on. One that the pool could not take is told again by and by.
    pub fn noted(
        &mut self,
        (number, result): (u64, Result<(), PoolError>),
        parts: &mut Parts,
        send: &mut Vec<Sent>,
        ended: &mut Vec<(SlotId, Status)>,
    ) {
        if self.sharing.is_asking() {
            return self.unshared((number, result), parts, send, ended);
        }
        let Some(copies) = &mut self.copies else { return };
        let Some(note) = copies.told.take_if(|note| note.number == number) else { return };
        let status = match (&result, &note.request) {
            (Ok(()), PoolRequest::Written { runs, .. }) => {
                let all = runs.iter().flat_map(|run| regions(u64::from(run.start) * CHUNK, run.end() * CHUNK));
                copies.written.extend(all.map(|region| (region, 0)));
                Status::SUCCESS
            }
            (Ok(()), PoolRequest::MarkFresh { drive, runs, .. }) => {
                let (drive, runs) = (*drive, runs.clone());
                copies.forget_stale(drive, &runs);
                Status::SUCCESS
            }
            (Ok(()), _) => Status::SUCCESS,
            (Err(PoolError::Broken(_) | PoolError::Busy), _) => {
                copies.notes.push_front(note);
                copies.holds = true;
                return;
            }
            (Err(_), PoolRequest::Written { runs, .. }) => {
                let refused = runs.clone();
                return self.refuse(&refused, ended);
            }
            (Err(_), _) => Status::WRITE_FAULT.dnr(),
        };
        for (flight, slot) in self.flights.iter_mut().zip(0u32..) {
            if flight.take_if(|f| f.copies.note.is_some_and(|waits| waits <= number)).is_some() {
                ended.push((SlotId(slot), status));
            }
        }
        self.go_on(parts, send, ended);
    }

    /// The pool has no room to say that these regions may be written: what would write them fails.
    fn refuse(&mut self, runs: &[ChunkRun], ended: &mut Vec<(SlotId, Status)>) {
        let waiting = std::mem::take(&mut self.waiting);
        for slot in waiting {
            let concerns = |f: &Flight| {
                let run = chunks(f.io.offset, f.io.offset + u64::from(f.io.len));
                is_write(f.io.op) && f.out == 0 && runs.iter().any(|r| overlap(*r, run))
            };
            match self.flights.get_mut(slot.index()) {
                Some(flight) if flight.as_ref().is_some_and(concerns) => {
                    *flight = None;
                    ended.push((slot, Status::WRITE_FAULT.dnr()));
                }
                _ => self.waiting.push_back(slot),
            }
        }
    }

    /// A look now and then: what the pool could not take is told again, and regions that are not written any more are settled.
    pub fn look(&mut self, settles: bool) {
        let (volume, flights, stretches) = (self.volume.1, &self.flights, &self.stretches);
        let Some(copies) = &mut self.copies else { return };
        copies.holds = false;
        if !settles || stretches.iter().any(|s| s.second.is_some_and(|second| second.way.is_none())) {
            // The pool keeps them while a drive is lost.
            return;
        }
        let busy: Vec<ChunkRun> = flights.iter().flatten().filter(|f| is_write(f.io.op)).map(Flight::chunks).collect();
        let mut runs = Vec::new();
        copies.written.retain(|region, looks| {
            let run = ChunkRun { start: region.saturating_mul(REGION), len: REGION };
            *looks = if busy.iter().any(|b| overlap(*b, run)) { 0 } else { looks.saturating_add(1) };
            if *looks >= SETTLE_AFTER {
                runs.push(run);
            }
            *looks < SETTLE_AFTER
        });
        if !runs.is_empty() {
            copies.note(PoolRequest::Settled { id: volume, runs });
        }
    }

    /// Makes as many parts of a command as may be on their way; how it ended, if it has.
    pub(super) fn pump_copies(&mut self, slot: SlotId, parts: &mut Parts, send: &mut Vec<Sent>) -> Option<Status> {
        loop {
            let flight = self.flights.get_mut(slot.index())?.as_mut()?;
            if flight.copies.note.is_some() {
                return None;
            }
            let all = if flight.io.op == Op::Flush { self.ways.len() as u32 } else { flight.io.len };
            let ends = flight.begun >= all || !flight.status.is_success() || flight.copies.again;
            if ends && (flight.carried.is_none() || !flight.status.is_success()) {
                if flight.out > 0 {
                    return None;
                }
                match self.conclude(slot) {
                    Verdict::Again => continue,
                    Verdict::Waits => return None,
                    Verdict::Ended(status) => return Some(status),
                }
            }
            let (window, io) = (if flight.io.op == Op::Copy { 1 } else { 2 * WINDOW }, flight.io);
            if flight.out >= window {
                return None;
            }
            let went = match (io.op, flight.carried.is_some()) {
                (Op::Flush, _) => self.flush(slot, parts, send),
                (Op::Copy, false) | (Op::Read | Op::Compare | Op::Verify, _) => self.read(slot, parts, send),
                _ => self.write(slot, parts, send),
            };
            if !went {
                return None;
            }
        }
    }

    /// One more part of a flush; whether there is more to do at once.
    fn flush(&mut self, slot: SlotId, parts: &mut Parts, send: &mut Vec<Sent>) -> bool {
        let Some(flight) = self.flights[slot.index()].as_mut() else { return false };
        let way = flight.begun;
        if self.stretches.iter().any(|s| s.lies_at(way)) {
            let (place, fua) = (&self.ways[way as usize], flight.io.fua);
            if !place.queue.is_open() {
                flight.copies.fail(way, Status::INTERNAL_PATH_ERROR);
            } else if place.used >= place.depth {
                self.waiting.push_back(slot);
                return false;
            } else {
                flight.out += 1;
                let request = BlockRequest { op: Op::Flush, nsid: 1, offset: 0, len: 0, fua };
                self.part((slot, way), request, Bytes::Own(Vec::new()), parts, send);
            }
        }
        if let Some(flight) = self.flights[slot.index()].as_mut() {
            flight.begun += 1;
        }
        true
    }

    /// One more part that reads, from a copy that has not failed.
    fn read(&mut self, slot: SlotId, parts: &mut Parts, send: &mut Vec<Sent>) -> bool {
        let Some(flight) = self.flights[slot.index()].as_mut() else { return false };
        let io = flight.io;
        let (offset, most) = match (io.op, io.data.get()) {
            (Op::Copy, Data::Media(from)) => (from + u64::from(flight.begun), COPY.min(io.len - flight.begun)),
            _ => (io.offset + u64::from(flight.begun), io.len - flight.begun),
        };
        let Some(found) = find(&self.stretches, self.end, offset) else {
            flight.status = Status::LBA_OUT_OF_RANGE;
            return true;
        };
        let second = found.second.filter(|second| !second.stale).and_then(|second| Some((second.way?, second.at)));
        let copies = [found.way.map(|way| (way, found.at)), second];
        let is_closed = |way: u32| !self.ways[way as usize].queue.is_open();
        for way in copies.iter().flatten().map(|(way, _)| *way).filter(|way| is_closed(*way)) {
            flight.copies.fail(way, Status::INTERNAL_PATH_ERROR);
        }
        let open = copies.into_iter().flatten().find(|(way, _)| !flight.copies.failed.contains(way));
        let Some((way, at)) = open else {
            flight.status = flight.copies.failure.filter(|_| found.way.is_some()).unwrap_or(lost(Op::Read));
            return true;
        };
        let place = &self.ways[way as usize];
        if place.used >= place.depth {
            self.waiting.push_back(slot);
            return false;
        }
        let mut len = found.len.min(most.into()) as u32;
        let bytes = if io.op == Op::Copy {
            // As much as lies together at both ends.
            let to = io.offset + u64::from(flight.begun);
            len = len.min(find(&self.stretches, self.end, to).map_or(len, |s| s.len.min(len.into()) as u32));
            Bytes::Own(vec![0; len as usize])
        } else {
            let skip = io.skip + flight.begun;
            flight.begun += len;
            Bytes::Host { owner: io.owner, data: io.data, skip }
        };
        flight.out += 1;
        let op = if io.op == Op::Copy { Op::Read } else { io.op };
        self.part((slot, way), BlockRequest { op, nsid: 1, offset: at, len, fua: io.fua }, bytes, parts, send);
        true
    }

    /// One more piece that writes, to both copies.
    fn write(&mut self, slot: SlotId, parts: &mut Parts, send: &mut Vec<Sent>) -> bool {
        let Some(flight) = self.flights[slot.index()].as_mut() else { return false };
        let io = flight.io;
        let offset = io.offset + u64::from(flight.begun);
        let Some(found) = find(&self.stretches, self.end, offset) else {
            (flight.status, flight.carried) = (Status::LBA_OUT_OF_RANGE, None);
            return true;
        };
        let most = flight.carried.as_ref().map_or(io.len - flight.begun, |bytes| bytes.len() as u32);
        let len = found.len.min(most.into()) as u32;
        let Some(first) = found.way else {
            (flight.status, flight.carried) = (lost(io.op), None);
            return true;
        };
        let end = offset + u64::from(len);
        let Some(copies) = &mut self.copies else { return false };
        let is_locked = copies.job.as_ref().is_some_and(|job| job.locks(offset, end));
        let may_write = !is_locked && copies.may_write(self.volume.1, offset, end);
        if !may_write || !self.sharing.lets_write(found.shared, (offset, end)) {
            self.waiting.push_back(slot);
            return false;
        }
        let second = found.second.and_then(|second| Some((second.way?, second.at)));
        let both: Vec<(u32, u64)> = [(first, found.at)].into_iter().chain(second).collect();
        let (open, closed): (Vec<_>, Vec<_>) =
            both.iter().copied().partition(|(way, _)| self.ways[*way as usize].queue.is_open());
        if open.iter().any(|(way, _)| self.ways[*way as usize].used >= self.ways[*way as usize].depth) {
            self.waiting.push_back(slot);
            return false;
        }
        closed.iter().for_each(|(way, _)| flight.copies.fail(*way, Status::INTERNAL_PATH_ERROR));
        let mut bytes: Vec<Bytes> = match (io.op, flight.carried.take()) {
            (Op::Copy, Some(bytes)) => {
                flight.writes = true;
                (0..open.len()).map(|_| Bytes::Own(bytes.clone())).collect()
            }
            (Op::Write, _) => {
                let once = Once::new(io.owner, io.data, io.skip + flight.begun, len);
                (0..open.len()).map(|_| Bytes::Once(once.clone())).collect()
            }
            _ => (0..open.len()).map(|_| Bytes::Own(Vec::new())).collect(),
        };
        flight.begun += len;
        flight.out += open.len() as u32;
        let op = if io.op == Op::Copy { Op::Write } else { io.op };
        for (way, at) in open {
            let Some(bytes) = bytes.pop() else { break };
            self.part((slot, way), BlockRequest { op, nsid: 1, offset: at, len, fua: io.fua }, bytes, parts, send);
        }
        true
    }

    fn part(
        &mut self,
        (slot, way): (SlotId, u32),
        request: BlockRequest,
        bytes: Bytes,
        parts: &mut Parts,
        send: &mut Vec<Sent>,
    ) {
        self.ways[way as usize].used += 1;
        let whose = Whose::Front { front: self.number, slot, drive: way };
        let tag = parts.insert(Part { whose, bytes });
        let time = self.flights[slot.index()].as_ref().map_or(PartTime::Drives, |flight| flight.time);
        send.extend(self.ways[way as usize].queue.send(request, tag, time));
    }

    /// A part of a command is over.
    pub(super) fn over_copies(
        &mut self,
        (slot, way): (SlotId, u32),
        (bytes, status): (Bytes, Status),
        parts: &mut Parts,
        send: &mut Vec<Sent>,
    ) -> Option<Status> {
        let flight = self.flights.get_mut(slot.index())?.as_mut()?;
        flight.out -= 1;
        let wrote = flight.writes;
        flight.writes &= flight.out > 0;
        let reads = matches!(flight.io.op, Op::Read | Op::Compare | Op::Verify);
        if is_drives(status) {
            flight.copies.fail(way, status);
            flight.copies.again |= reads;
            let is_write = is_write(flight.io.op) && (flight.io.op != Op::Copy || wrote);
            if let Some(job) = self.copies.as_mut().and_then(|copies| copies.job.as_mut()).filter(|_| is_write) {
                job.missed(way);
            }
        } else if !status.is_success() && flight.status.is_success() {
            flight.status = status;
        }
        if let (Op::Copy, Bytes::Own(bytes), false, true) = (flight.io.op, bytes, wrote, status.is_success()) {
            flight.carried = Some(bytes);
        }
        let over = self.pump_copies(slot, parts, send);
        self.pump_job(parts, send);
        over
    }

    /// All parts of a command are over: what that comes to.
    fn conclude(&mut self, slot: SlotId) -> Verdict {
        let Some(flight) = self.flights[slot.index()].as_mut() else { return Verdict::Waits };
        let (op, run, mut status) = (flight.io.op, flight.chunks(), flight.status);
        if flight.copies.again && status.is_success() {
            (flight.begun, flight.copies.again) = (0, false);
            return Verdict::Again;
        }
        let failed = std::mem::take(&mut flight.copies.failed);
        let failure = flight.copies.failure.unwrap_or(Status::WRITE_FAULT);
        let mut stale: Vec<(usize, ChunkRun)> = Vec::new();
        let mut waits = false;
        if !failed.is_empty() {
            let reads = matches!(op, Op::Read | Op::Compare | Op::Verify);
            let runs = if op == Op::Flush { self.written() } else { vec![run] };
            let (found, all_failed) = self.missed(&failed, &runs);
            (stale, waits) = (found, !reads);
            if all_failed && status.is_success() {
                status = failure;
            }
            if reads && !status.is_success() {
                // No copy is better than another.
                stale.clear();
            }
        }
        let number = self.mark_stale(stale);
        let waits_for = number.filter(|_| waits && status.is_success());
        if let (Some(number), Some(flight)) = (waits_for, self.flights[slot.index()].as_mut()) {
            flight.copies.note = Some(number);
            return Verdict::Waits;
        }
        if op == Op::Flush && status.is_success() && !self.untold.is_empty() {
            let losses = self.flights[slot.index()].as_ref().map_or(0, |f| f.losses);
            self.flushed.push((slot, losses));
        }
        self.flights[slot.index()] = None;
        Verdict::Ended(status)
    }

    /// Chunks that may be written.
    pub(super) fn written(&self) -> Vec<ChunkRun> {
        let regions = self.copies.iter().flat_map(|copies| copies.written.keys());
        regions.map(|region| ChunkRun { start: region.saturating_mul(REGION), len: REGION }).collect()
    }

    /// Chunks of these runs, by the drive, that copies at failed ways have not; and whether there are some that no copy has. Of those the first
    /// copy counts.
    pub(super) fn missed(&self, failed: &[u32], runs: &[ChunkRun]) -> (Vec<(usize, ChunkRun)>, bool) {
        let (mut stale, mut none) = (Vec::new(), false);
        for s in &self.stretches {
            let run = chunks(s.start, s.start + s.len);
            for common in runs.iter().filter_map(|r| common(*r, run)) {
                let has_failed = |way: u32| failed.contains(&way);
                let first = s.way.is_some_and(has_failed);
                let second = s.second.and_then(|second| second.way);
                let member = |way: u32| self.ways[way as usize].member;
                match (first, second) {
                    (true, Some(second)) if has_failed(second) || s.second.is_some_and(|s| s.stale) => {
                        none = true;
                        stale.push((member(second), common));
                    }
                    (true, Some(_)) => stale.extend(s.way.map(|way| (member(way), common))),
                    (true, None) => none = true,
                    (false, Some(second)) if has_failed(second) => stale.push((member(second), common)),
                    (false, _) => {}
                }
            }
        }
        (stale, none)
    }
}

enum Verdict {
    /// It goes on.
    Again,
    /// For a note.
    Waits,
    /// It is over.
    Ended(Status),
}

impl Flight {
    /// Chunks that it has something of.
    pub(super) fn chunks(&self) -> ChunkRun {
        chunks(self.io.offset, self.io.offset + u64::from(self.io.len))
    }
}
