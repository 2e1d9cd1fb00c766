//! Writes of chunks that snapshots and clones have too.
//!
//! ```text
//!  write ─► shared? ─no─► the drive
//!              │yes: it waits
//!              ▼
//!           Note Unshare ─► the pool copies the chunk (durable) ─► ChunkPlaces ─► the write goes on, to the new place
//! ```
//! Chunks that are waited for are asked for together, [`BATCH`] at the most, one request after the other. While a snapshot is made no write is begun.

use super::copies::is_write;
use super::layout::{chunks, overlap};
use super::{Flight, Front, Note, Piece, Stretch};
use crate::pool::drive_queue::{ChunkPlaces, Sent};
use crate::pool::parts::Parts;
use std::collections::BTreeSet;
use weir_controller::SlotId;
use weir_pool::{CHUNK, ChunkRun, PoolError, PoolRequest, VolumeSegment};
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
    numbers: u64,
    /// Changes of the pool that the layout knows of.
    changes: u64,
}

impl Sharing {
    /// Whether a piece may be written; chunks that the volume is to have for it first are asked for.
    pub(super) fn lets_write(&mut self, piece: &Piece) -> bool {
        if piece.shared && !self.is_frozen {
            let run = chunks(piece.to, piece.to + u64::from(piece.len));
            self.wanted.extend(run.start..run.end() as u32);
        }
        !piece.shared && !self.is_frozen
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

    /// Something that is written is at the drives.
    pub fn writes(&self) -> bool {
        self.flights.iter().flatten().any(|f| f.out > 0 && is_write(f.io.op))
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
        let sharing = &mut self.sharing;
        let chunks: Vec<u32> = sharing.wanted.iter().copied().take(BATCH).collect();
        chunks.iter().for_each(|chunk| _ = sharing.wanted.remove(chunk));
        let runs = chunks.into_iter().map(|start| ChunkRun { start, len: 1 }).collect();
        sharing.numbers += 1;
        let request = PoolRequest::Unshare { id: self.volume.1, runs };
        sharing.asked = Some(Note { number: sharing.numbers, request });
        sharing.asked.clone()
    }

    /// Where chunks of the volume lie by now. What is older than the layout says nothing.
    pub fn place(&mut self, placed: &ChunkPlaces) {
        if !self.takes_layout_of(placed.changes) {
            return;
        }
        for segment in &placed.segments {
            let way = self.ways.iter().position(|w| w.member == segment.drive && !w.has_left()).map(|way| way as u32);
            let with = with_segment(segment, way.filter(|_| !segment.lost));
            self.stretches = std::mem::take(&mut self.stretches).into_iter().flat_map(|s| s.without(&with)).collect();
            let at = self.stretches.partition_point(|s| s.start < with.start);
            self.stretches.insert(at, with);
        }
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
        if let (Err(why), PoolRequest::Unshare { runs, .. }) = (result, note.request) {
            let status = match why {
                PoolError::Broken(_) | PoolError::Busy => Status::WRITE_FAULT,
                _ => Status::WRITE_FAULT.dnr(),
            };
            for slot in &self.waiting {
                let Some(flight) = self.flights.get_mut(slot.index()).and_then(Option::as_mut) else { continue };
                if is_write(flight.io.op) && flight.next_chunks().is_some_and(|c| runs.iter().any(|r| overlap(*r, c))) {
                    (flight.status, flight.carried) = (status, None);
                }
            }
        }
        self.go_on(parts, send, ended);
    }
}

impl Flight {
    /// Chunks of what is still to be written.
    fn next_chunks(&self) -> Option<ChunkRun> {
        let (from, to) = (self.io.offset + u64::from(self.begun), self.io.offset + u64::from(self.io.len));
        (from < to).then(|| chunks(from, to))
    }
}

fn with_segment(segment: &VolumeSegment, way: Option<u32>) -> Stretch {
    let bytes = |chunks: u32| u64::from(chunks) * CHUNK;
    let (start, len, at) = (bytes(segment.logical), bytes(segment.len), bytes(segment.start));
    Stretch { start, len, way, at, shared: segment.shared, second: None }
}
