//! Writes of chunks that snapshots and clones have too.
//!
//! ```text
//!  write ─► shared? ─no─► the drive
//!              │yes: it waits
//!              ▼
//!           Note Unshare ─► the pool copies the chunk (durable) ─► ChunkPlaces ─► the write goes on, to the new place
//! ```
//! Chunks that are waited for are asked for together, [`BATCH`] at the most, one request after the other. While a snapshot is made no write is begun.
//! Of a volume with two copies a chunk is asked for when nothing that is written to it is on its way, nor is it being rebuilt: one of its places may
//! be the volume's own already.

use super::copies::is_write;
use super::layout::{chunks, overlap};
use super::{Flight, Front, Note, SecondCopy, Stretch};
use crate::pool::drive_queue::{ChunkPlaces, Sent};
use crate::pool::parts::Parts;
use std::collections::BTreeSet;
use weir_controller::SlotId;
use weir_pool::{CHUNK, ChunkRun, CopyState, PoolError, PoolRequest, SegmentCopy, VolumeSegment};
use weir_spec::nvme::Status;

/// Chunks that are copied by one change of the pool.
const BATCH: usize = 16;

/// What a front knows of chunks that other volumes have too.
#[derive(Debug, Default)]
pub struct Sharing {
    /// The shard that has the pool's machine; `None`: the front's own.
    pub pool_shard: Option<u32>,
    /// No write is begun: the pool is about to have other volumes share the chunks.
    is_frozen: bool,
    /// Writes that have waited may go on.
    is_thawed: bool,
    /// Chunks that are to be the volume's own.
    wanted: BTreeSet<u32>,
    /// At the pool.
    asked: Option<Note>,
    /// Why there were no chunks the last time.
    refused: Option<String>,
    numbers: u64,
    /// Changes of the pool that the layout knows of.
    changes: u64,
}

impl Sharing {
    /// Whether these bytes, which others may have too, may be written; chunks that the volume is to have for it first are asked for.
    pub(super) fn lets_write(&mut self, shared: bool, (from, to): (u64, u64)) -> bool {
        if shared && !self.is_frozen {
            let run = chunks(from, to);
            self.wanted.extend(run.start..run.end() as u32);
        }
        !shared && !self.is_frozen
    }

    /// The pool is asked for some of these chunks.
    pub(super) fn is_asked_for(&self, run: ChunkRun) -> bool {
        self.asked.as_ref().is_some_and(|note| asked_for(note).iter().any(|asked| overlap(*asked, run)))
    }

    /// The pool is asked for chunks.
    pub(super) fn is_asking(&self) -> bool {
        self.asked.is_some()
    }
}

fn asked_for(note: &Note) -> &[ChunkRun] {
    match &note.request {
        PoolRequest::Unshare { runs, .. } => runs,
        _ => &[],
    }
}

impl Front {
    /// The pool is about to have another volume share the chunks: no write is begun from now on, and after that none goes to a chunk that the
    /// pool has not been asked for.
    pub fn freeze(&mut self) {
        self.sharing.is_frozen = true;
        self.stretches.iter_mut().for_each(|s| s.shared = true);
    }

    /// Writes go on.
    pub fn thaw(&mut self) {
        (self.sharing.is_frozen, self.sharing.is_thawed) = (false, true);
    }

    /// Writes that have waited may go on, once.
    #[inline]
    pub fn take_thawed(&mut self) -> bool {
        std::mem::take(&mut self.sharing.is_thawed)
    }

    /// Something that is written is at the drives, or what has gone wrong with it is still to be told.
    pub fn writes(&self) -> bool {
        let is_told = self.copies.as_ref().is_none_or(|copies| copies.may_forget_notes());
        !is_told || self.flights.iter().flatten().any(|f| f.out > 0 && is_write(f.io.op))
    }

    /// Nothing is asked for, nor wanted.
    pub fn has_its_own(&self) -> bool {
        self.sharing.asked.is_none() && self.sharing.wanted.is_empty()
    }

    /// Why there were no chunks, the last time that there were none since this was asked.
    pub fn take_refused(&mut self) -> Option<String> {
        self.sharing.refused.take()
    }

    /// Chunks of a copy that is rebuilt are to have a place of their own: see [`weir_pool::Pool::is_rebuilt_in_place`].
    pub fn want_own(&mut self, run: ChunkRun) {
        self.sharing.wanted.extend(run.start..run.end() as u32);
    }

    /// Commands that are begun from now on have this number, or a higher one.
    pub fn mark(&self) -> u64 {
        self.begun
    }

    /// Nothing that was begun before a [mark](Self::mark) is on its way.
    pub fn is_past(&self, mark: u64) -> bool {
        self.flights.iter().flatten().all(|f| f.number >= mark)
    }

    /// Whether a layout is as new as what the front knows; it is taken then.
    pub fn takes_layout_of(&mut self, changes: u64) -> bool {
        let is_new = changes >= self.sharing.changes;
        self.sharing.changes = self.sharing.changes.max(changes);
        is_new
    }

    /// It may have something to tell its pool.
    #[inline]
    pub fn has_notes(&self) -> bool {
        self.copies.is_some() || !self.sharing.wanted.is_empty()
    }

    /// The next chunks that the pool is to make the volume's own.
    pub(super) fn take_unsharing(&mut self) -> Option<Note> {
        if self.sharing.asked.is_some() || self.sharing.wanted.is_empty() {
            return None;
        }
        let busy = self.being_written();
        let is_free = |chunk: &u32| !busy.iter().any(|run| overlap(*run, ChunkRun { start: *chunk, len: 1 }));
        let chunks: Vec<u32> = self.sharing.wanted.iter().copied().filter(is_free).take(BATCH).collect();
        if chunks.is_empty() {
            return None;
        }
        chunks.iter().for_each(|chunk| _ = self.sharing.wanted.remove(chunk));
        let runs: Vec<ChunkRun> = chunks.into_iter().map(|start| ChunkRun { start, len: 1 }).collect();
        let request = PoolRequest::Unshare { id: self.volume.1, runs };
        let number = match &mut self.copies {
            Some(copies) => copies.next_number(),
            None => {
                self.sharing.numbers += 1;
                self.sharing.numbers
            }
        };
        self.sharing.asked = Some(Note { number, request });
        self.sharing.asked.clone()
    }

    /// Chunks of a volume with two copies of which something is on its way to a drive, or is being copied.
    fn being_written(&self) -> Vec<ChunkRun> {
        let Some(copies) = &self.copies else { return Vec::new() };
        let writes = self.flights.iter().flatten().filter(|f| f.out > 0 && is_write(f.io.op));
        let begun = writes.map(|f| chunks(f.io.offset, f.io.offset + u64::from(f.begun)));
        begun.chain(copies.job.as_ref().and_then(|job| job.locked())).collect()
    }

    /// Where chunks of the volume lie by now. What is older than the layout says nothing.
    pub fn place(&mut self, placed: &ChunkPlaces) {
        if !self.takes_layout_of(placed.changes) {
            return;
        }
        for segment in &placed.segments {
            let way = |member: usize| {
                self.ways.iter().position(|w| w.member == member && !w.has_left()).map(|way| way as u32)
            };
            let second = segment.second.map(|second| (second, way(second.drive)));
            let with = with_segment(segment, way(segment.drive).filter(|_| !segment.lost), second);
            self.stretches = std::mem::take(&mut self.stretches).into_iter().flat_map(|s| s.without(&with)).collect();
            let at = self.stretches.partition_point(|s| s.start < with.start);
            self.stretches.insert(at, with);
        }
        let runs = placed.segments.iter().map(|s| ChunkRun { start: s.logical, len: s.len });
        runs.for_each(|run| self.forget_stale(run));
        self.keep_stale();
    }

    /// What the pool has said; commands that waited for it go on, or end with why there are no chunks for them.
    pub(super) fn unshared(
        &mut self,
        (number, result): (u64, Result<(), PoolError>),
        parts: &mut Parts,
        send: &mut Vec<Sent>,
        ended: &mut Vec<(SlotId, Status)>,
    ) {
        let Some(note) = self.sharing.asked.take_if(|note| note.number == number) else { return };
        let is_later = matches!(result, Err(PoolError::Broken(_) | PoolError::Busy));
        if let (true, Some(copies)) = (is_later, &mut self.copies) {
            // A drive that takes no metadata is given up by and by: the other copy goes on.
            copies.hold();
            let chunks = asked_for(&note).iter().flat_map(|run| run.start..run.end() as u32);
            self.sharing.wanted.extend(chunks);
            return self.pump_job(parts, send);
        }
        if let Err(why) = &result {
            self.sharing.refused = Some(why.to_string());
            let status = if is_later { Status::WRITE_FAULT } else { Status::WRITE_FAULT.dnr() };
            let runs = asked_for(&note);
            for slot in &self.waiting {
                let Some(flight) = self.flights.get_mut(slot.index()).and_then(Option::as_mut) else { continue };
                if is_write(flight.io.op) && flight.next_chunks().is_some_and(|c| runs.iter().any(|r| overlap(*r, c))) {
                    (flight.status, flight.carried) = (status, None);
                }
            }
        }
        self.go_on(parts, send, ended);
        self.pump_job(parts, send);
    }
}

impl Flight {
    /// Chunks of what is still to be written.
    fn next_chunks(&self) -> Option<ChunkRun> {
        let (from, to) = (self.io.offset + u64::from(self.begun), self.io.offset + u64::from(self.io.len));
        (from < to).then(|| chunks(from, to))
    }
}

fn with_segment(segment: &VolumeSegment, way: Option<u32>, second: Option<(SegmentCopy, Option<u32>)>) -> Stretch {
    let bytes = |chunks: u32| u64::from(chunks) * CHUNK;
    let (start, len, at) = (bytes(segment.logical), bytes(segment.len), bytes(segment.start));
    let second =
        second.map(|(copy, way)| SecondCopy { way, at: bytes(copy.start), stale: copy.state != CopyState::Good });
    Stretch { start, len, way, at, shared: segment.shared, second }
}
