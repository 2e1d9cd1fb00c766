//! What fronts tell their pools of the copies of their volumes, and what is done to the copies from outside.
//!
//! ```text
//!   shard of the volume                                 shard of the pool's machine
//!   Front::take_note ─► tell_pools ─ShardMessage::Note─► take_note ─► PoolHost::ask
//!   Front::noted ◄── hear_pools ◄─ShardMessage::Noted── hear_pools ◄── its reply
//! ```

use super::Drives;
use crate::pool::drive_queue::{ChunkPlaces, NoteNumber, ShardMessage};
use crate::pool::front::{Front, JobKind, JobOutcome};
use crate::pool::host::Ask;
use std::sync::{Arc, Mutex, PoisonError};
use weir_controller::Host;
use weir_pool::{ChunkRun, PoolAnswer, PoolError, PoolRequest};
use weir_units::Nanos;

/// What a pool has said to a note.
#[derive(Debug)]
pub(super) struct Noted {
    /// The shard of the front; `None`: this one.
    shard: Option<u32>,
    front: u32,
    number: NoteNumber,
    result: Result<(), PoolError>,
    /// Chunks that a pool of this shard was asked to make the volume's own: the pool, and the chunks.
    unshared: Option<(u32, Vec<ChunkRun>)>,
    /// Where they lie, as the pool's shard says.
    placed: Option<ChunkPlaces>,
}

/// A note on its way to a pool.
struct Telling {
    front: u32,
    shard: Option<u32>,
    pool: u32,
    number: NoteNumber,
    request: PoolRequest,
}

/// Notes of a shard that are on their way, and their answers.
#[derive(Default)]
pub(super) struct Notes {
    to_tell: Vec<Telling>,
    said: Arc<Mutex<Vec<Noted>>>,
    /// Asked of pools of this shard, and not heard of.
    asked: u32,
}

impl Notes {
    /// What a front has to tell.
    #[inline]
    pub fn collect(&mut self, place: u32, front: &mut Front) {
        if front.has_notes() {
            self.collect_notes(place, front);
        }
    }

    fn collect_notes(&mut self, place: u32, front: &mut Front) {
        if let Some(note) = front.take_note() {
            let (pool, volume) = front.volume;
            let shard = front.copies.as_ref().map_or(front.sharing.pool_shard, |copies| copies.pool_shard);
            let number = NoteNumber { volume, number: note.number };
            self.to_tell.push(Telling { front: place, shard, pool, number, request: note.request });
        }
    }

    /// An answer has come.
    pub fn say(
        &mut self,
        front: u32,
        number: NoteNumber,
        (result, placed): (Result<(), PoolError>, Option<ChunkPlaces>),
    ) {
        self.asked += 1;
        let noted = Noted { shard: None, front, number, result, unshared: None, placed };
        self.said.lock().unwrap_or_else(PoisonError::into_inner).push(noted);
    }

    /// Answers wait to be heard.
    pub fn any_said(&self) -> bool {
        !self.to_tell.is_empty()
            || self.asked > 0 && !self.said.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn take_said(&mut self) -> Vec<Noted> {
        if self.asked == 0 {
            return Vec::new();
        }
        let said = std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner));
        self.asked -= said.len() as u32;
        said
    }
}

impl Drives {
    /// Notes go to their pools.
    pub(super) fn tell_pools(&mut self) {
        while let Some(telling) = self.volumes.notes.to_tell.pop() {
            let Telling { front, shard, pool, number, request } = telling;
            match shard {
                None => self.ask_for(None, (pool, front), number, request),
                Some(shard) => {
                    self.volumes.neighbours.insert(shard);
                    self.volumes.outbox.put(shard, ShardMessage::Note { pool, front, number, request });
                }
            }
        }
    }

    /// A note of another shard's front.
    pub(super) fn take_note(&mut self, from: u32, whom: (u32, u32), number: NoteNumber, request: PoolRequest) {
        self.volumes.neighbours.insert(from);
        self.ask_for(Some(from), whom, number, request);
    }

    fn ask_for(&mut self, shard: Option<u32>, (pool, front): (u32, u32), number: NoteNumber, request: PoolRequest) {
        let said = self.volumes.notes.said.clone();
        self.volumes.notes.asked += 1;
        let unshared = match &request {
            PoolRequest::Unshare { runs, .. } => Some((pool, runs.clone())),
            _ => None,
        };
        let reply = move |result: Result<PoolAnswer, PoolError>| {
            let noted = Noted { shard, front, number, result: result.map(|_| ()), unshared, placed: None };
            said.lock().unwrap_or_else(PoisonError::into_inner).push(noted);
        };
        self.ask_pool(pool, Ask::Request(request), Box::new(reply));
    }

    /// Answers go to their fronts; true if there were any.
    pub(super) fn hear_pools<H: Host>(&mut self, now: Nanos, doors: &mut H) -> bool {
        let said = self.volumes.notes.take_said();
        let busy = !said.is_empty();
        for Noted { shard, front: place, number, result, unshared, placed } in said {
            let here = unshared.map(|(pool, runs)| {
                let pool = self.pool(pool);
                ChunkPlaces { segments: pool.locate(number.volume, &runs), changes: pool.changes() }
            });
            let placed = placed.or(here);
            if let Some(shard) = shard {
                self.volumes.outbox.put(shard, ShardMessage::Noted { front: place, number, result, placed });
                continue;
            }
            self.volumes.wake(place);
            let super::Volumes { parts, fronts, send, ended, notes, .. } = &mut self.volumes;
            let device = &mut fronts[place as usize];
            let Some((front, _)) = device.front().filter(|(front, _)| front.volume.1 == number.volume) else {
                continue;
            };
            placed.iter().for_each(|placed| front.place(placed));
            front.noted((number.number, result), parts, send, ended);
            notes.collect(place, front);
            device.end_all(now, ended, doors);
        }
        if busy {
            self.tell_pools();
        }
        busy
    }

    /// Looks at what a front knows of its volume's copies; see [`Front::look`].
    pub fn look_at_copies(&mut self, place: u32, settles: bool) {
        self.with_front(place, |front, _, _| front.look(settles));
    }

    /// Begins to rebuild or compare chunks of a front's volume; `false`: it does something already, or has no copies.
    pub fn start_job(&mut self, place: u32, kind: JobKind, run: ChunkRun) -> bool {
        self.with_front(place, |front, parts, send| front.start_job(kind, run, parts, send)).unwrap_or(false)
    }

    /// What has become of what a front has rebuilt or compared, once that has ended.
    pub fn end_job(&mut self, place: u32) -> Option<JobOutcome> {
        self.with_front(place, |front, _, _| front.end_job()).flatten()
    }

    /// See [`Front::rebuilt`].
    pub fn note_rebuilt(&mut self, place: u32, drive: usize, runs: Vec<ChunkRun>) {
        self.with_front(place, |front, _, _| front.rebuilt(drive, runs));
    }

    /// What a front rebuilds or compares comes to an end soon.
    pub fn cancel_job(&mut self, place: u32) {
        self.with_front(place, |front, _, _| front.cancel_job());
    }

    /// Whether a front has told its pool everything.
    pub fn has_told_all(&mut self, place: u32) -> bool {
        self.with_front(place, |front, _, _| front.copies.as_ref().is_none_or(|copies| copies.has_told_all()))
            .unwrap_or(true)
    }

    /// No write of a front's hosts is begun before it [thaws](Self::thaw_front); see [`Front::freeze`].
    pub fn freeze_front(&mut self, place: u32) {
        self.with_front(place, |front, _, _| front.freeze());
    }

    /// Writes of a front's hosts go on.
    pub fn thaw_front(&mut self, place: u32) {
        self.with_front(place, |front, _, _| front.thaw());
    }

    /// Whether something that a front's hosts write is at its drives.
    pub fn front_writes(&mut self, place: u32) -> bool {
        self.with_front(place, |front, _, _| front.writes()).unwrap_or(false)
    }

    /// See [`Front::want_own`].
    pub fn want_own(&mut self, place: u32, run: ChunkRun) {
        self.with_front(place, |front, _, _| front.want_own(run));
    }

    /// See [`Front::has_its_own`].
    pub fn has_its_own(&mut self, place: u32) -> bool {
        self.with_front(place, |front, _, _| front.has_its_own()).unwrap_or(true)
    }

    /// See [`Front::take_refused`].
    pub fn take_refused(&mut self, place: u32) -> Option<String> {
        self.with_front(place, |front, _, _| front.take_refused()).flatten()
    }

    /// See [`Front::mark`].
    pub fn front_mark(&mut self, place: u32) -> u64 {
        self.with_front(place, |front, _, _| front.mark()).unwrap_or(0)
    }

    /// See [`Front::is_past`].
    pub fn is_front_past(&mut self, place: u32, mark: u64) -> bool {
        self.with_front(place, |front, _, _| front.is_past(mark)).unwrap_or(true)
    }

    fn with_front<T>(
        &mut self,
        place: u32,
        what: impl FnOnce(&mut Front, &mut crate::pool::parts::Parts, &mut Vec<crate::pool::drive_queue::Sent>) -> T,
    ) -> Option<T> {
        let number = place & !super::FRONT;
        self.volumes.wake(number);
        let super::Volumes { parts, fronts, send, notes, .. } = &mut self.volumes;
        let (front, _) = fronts[number as usize].front()?;
        let done = what(front, parts, send);
        notes.collect(number, front);
        Some(done)
    }
}
