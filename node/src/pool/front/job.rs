//! What a front does to the copies of its volume by itself: a copy that is stale is rebuilt from the other one, or both are compared, piece by
//! piece. A command that writes a piece waits while that is copied, and the piece for commands that write it.

use super::Front;
use super::copies::is_write;
use super::layout::{chunks, find};
use crate::pool::drive_queue::{PartTime, Sent};
use crate::pool::parts::{Bytes, Part, Parts, Whose};
use weir_controller::{BlockRequest, Op, SlotId};
use weir_pool::{CHUNK, ChunkRun, PoolRequest};
use weir_spec::nvme::Status;

/// Bytes that are read at once.
const PIECE: u64 = 256 << 10;

/// What is done to the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Stale ones are written from the good ones.
    Rebuild,
    /// Good ones are compared; where they differ, the second one is written if `repair`.
    Compare {
        /// Where they differ, the first one counts.
        repair: bool,
    },
}

/// A run of chunks that is rebuilt or compared.
#[derive(Debug)]
pub struct CopyJob {
    kind: JobKind,
    /// Bytes of the volume.
    start: u64,
    end: u64,
    at: u64,
    /// The piece that is locked: how long it is; 0: none.
    len: u64,
    /// Parts on their way.
    out: u32,
    /// What was read from the first copy, and the second.
    read: [Option<Vec<u8>>; 2],
    ways: [u32; 2],
    writes: bool,
    /// A write of a host has failed at these ways meanwhile.
    missed: Vec<u32>,
    failed: Option<(Status, u32)>,
    outcome: JobOutcome,
    ended: bool,
}

/// What has become of a job so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobOutcome {
    /// Bytes that were copied, or compared.
    pub done: u64,
    /// Of those that were compared: pieces that differ, by where they begin in the volume, and how long they are.
    pub differ: Vec<Difference>,
    /// What failed, and the place in the pool's list of the drive where it did.
    pub failed: Option<(Status, usize)>,
}

/// Blocks of a volume of which the copies are not the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// First byte of the volume.
    pub at: u64,
    /// How many bytes.
    pub len: u64,
}

impl CopyJob {
    /// Whether a command may not write these bytes now.
    pub(super) fn locks(&self, from: u64, to: u64) -> bool {
        self.len > 0 && from < self.at + self.len && self.at < to
    }

    /// Chunks of which something is copied or compared now.
    pub(super) fn locked(&self) -> Option<ChunkRun> {
        (self.len > 0).then(|| chunks(self.at, self.at + self.len))
    }

    /// A command's write has failed at a way.
    pub(super) fn missed(&mut self, way: u32) {
        if !self.missed.contains(&way) {
            self.missed.push(way);
        }
    }
}

impl Front {
    /// Begins to rebuild or compare chunks; `false`: it does something already, or is no volume with two copies.
    pub fn start_job(&mut self, kind: JobKind, run: ChunkRun, parts: &mut Parts, send: &mut Vec<Sent>) -> bool {
        let Some(copies) = self.copies.as_mut().filter(|copies| copies.job.is_none()) else { return false };
        let (start, end) = (u64::from(run.start) * CHUNK, run.end() * CHUNK);
        copies.job = Some(CopyJob {
            kind,
            start,
            end,
            at: start,
            len: 0,
            out: 0,
            read: [None, None],
            ways: [0; 2],
            writes: false,
            missed: Vec::new(),
            failed: None,
            outcome: JobOutcome::default(),
            ended: false,
        });
        self.pump_job(parts, send);
        true
    }

    /// What has become of the job, if it has ended; there is none then. Chunks that were rebuilt are good when the pool has been told.
    pub fn end_job(&mut self) -> Option<JobOutcome> {
        let copies = self.copies.as_mut()?;
        let job = copies.job.take_if(|job| job.ended)?;
        let failed = job.failed.map(|(status, way)| (status, self.ways[way as usize].member));
        // Of a chunk all is copied or nothing counts.
        let run = ChunkRun { start: (job.start / CHUNK) as u32, len: ((job.at - job.start) / CHUNK) as u32 };
        let (is_rebuilt, way) = (job.kind == JobKind::Rebuild && run.len > 0, job.ways[1]);
        if is_rebuilt && !job.missed.contains(&way) {
            let (id, drive) = (self.volume.1, self.ways[way as usize].member);
            copies.note(PoolRequest::MarkFresh { id, drive, runs: vec![run] });
        }
        if let (JobKind::Compare { repair: true }, Some((_, member))) = (job.kind, failed) {
            // What it does not give is rebuilt from the other one.
            let chunk = ChunkRun { start: (job.at / CHUNK) as u32, len: 1 };
            self.mark_stale(vec![(member, chunk)]);
        }
        Some(JobOutcome { failed, ..job.outcome })
    }

    /// Chunks at a drive were rebuilt with those of another volume, which has both of the pair too.
    pub fn rebuilt(&mut self, drive: usize, runs: Vec<ChunkRun>) {
        let id = self.volume.1;
        if let Some(copies) = &mut self.copies {
            copies.note(PoolRequest::MarkFresh { id, drive, runs });
        }
    }

    /// The job leaves off as soon as what it has on its way has come back.
    pub fn cancel_job(&mut self) {
        if let Some(job) = self.copies.as_mut().and_then(|copies| copies.job.as_mut()) {
            job.end = job.at;
        }
    }

    /// The next piece, if there is none on its way and no command that writes it.
    pub(super) fn pump_job(&mut self, parts: &mut Parts, send: &mut Vec<Sent>) {
        let (stretches, end, number) = (&self.stretches, self.end, self.number);
        let Some(copies) = &mut self.copies else { return };
        let Some(job) = copies.job.as_mut().filter(|job| job.out == 0 && !job.ended && job.read == [None, None]) else {
            return;
        };
        let found = find(stretches, end, job.at).filter(|_| job.at < job.end && job.failed.is_none());
        let ways = found.and_then(|s| Some((s, s.way?, s.second?)));
        let fits = ways.and_then(|(s, first, second)| {
            let wanted = match job.kind {
                JobKind::Rebuild => second.stale,
                JobKind::Compare { .. } => !second.stale,
            };
            Some((s, first, second.at, second.way.filter(|_| wanted)?))
        });
        // A rebuild is of one drive.
        let goes_on = |way: u32| job.kind != JobKind::Rebuild || job.at == job.start || job.ways[1] == way;
        let Some((s, first, second_at, second)) = fits.filter(|(.., way)| goes_on(*way)) else {
            (job.len, job.ended) = (0, true);
            return;
        };
        job.len = s.len.min(PIECE).min(job.end - job.at);
        job.ways = [first, second];
        let (from, to) = (job.at, job.at + job.len);
        if self.sharing.is_asked_for(chunks(from, to)) {
            // They are about to lie elsewhere.
            job.len = 0;
            return;
        }
        let writes = |f: &&super::Flight| {
            f.out > 0 && is_write(f.io.op) && f.io.offset < to && from < f.io.offset + u64::from(f.io.len)
        };
        if self.flights.iter().flatten().any(|f| writes(&f)) {
            // It is locked: no other one comes in between, and the last of these goes on with it.
            return;
        }
        let both = matches!(job.kind, JobKind::Compare { .. });
        for (way, at) in [(first, s.at), (second, second_at)].into_iter().take(1 + usize::from(both)) {
            let place = &mut self.ways[way as usize];
            let bytes = Bytes::Own(vec![0; job.len as usize]);
            let tag = parts.insert(Part { whose: Whose::Job { front: number, drive: way }, bytes });
            let request = BlockRequest { op: Op::Read, nsid: 1, offset: at, len: job.len as u32, fua: false };
            (job.out, place.used) = (job.out + 1, place.used + 1);
            match place.queue.send(request, tag, PartTime::Drives) {
                Some(sent) => send.push(sent),
                None => parts.answer(tag, Status::INTERNAL_PATH_ERROR),
            }
        }
    }

    /// A part of the job is over; commands that waited for it go on.
    pub fn job_over(
        &mut self,
        way: u32,
        (bytes, status): (Bytes, Status),
        parts: &mut Parts,
        send: &mut Vec<Sent>,
        ended: &mut Vec<(SlotId, Status)>,
    ) {
        if let Some(way) = self.ways.get_mut(way as usize) {
            way.used = way.used.saturating_sub(1);
        }
        let Some(job) = self.copies.as_mut().and_then(|copies| copies.job.as_mut()) else { return };
        job.out -= 1;
        if !status.is_success() {
            job.failed.get_or_insert((status, way));
        } else if let (Bytes::Own(bytes), false) = (bytes, job.writes) {
            job.read[usize::from(way != job.ways[0])] = Some(bytes);
        }
        if job.out > 0 {
            return;
        }
        let read = std::mem::take(&mut job.read);
        let wrote = std::mem::take(&mut job.writes);
        if job.failed.is_none() && !wrote {
            let bytes = match (job.kind, read) {
                (JobKind::Rebuild, [Some(first), _]) => Some(first),
                (JobKind::Compare { repair }, [Some(first), Some(second)]) if first != second => {
                    job.outcome.differ.push(Difference { at: job.at, len: job.len });
                    repair.then_some(first)
                }
                _ => None,
            };
            if let Some(bytes) = bytes {
                return self.write_second(bytes, parts, send);
            }
        }
        if job.failed.is_none() {
            job.outcome.done += job.len;
            job.at += job.len;
        }
        job.len = 0;
        self.pump_job(parts, send);
        self.go_on(parts, send, ended);
    }

    fn write_second(&mut self, bytes: Vec<u8>, parts: &mut Parts, send: &mut Vec<Sent>) {
        let Some(found) = self.copies.as_ref().and_then(|c| c.job.as_ref()).map(|job| job.at) else { return };
        let second = find(&self.stretches, self.end, found).and_then(|s| s.second);
        let Some(job) = self.copies.as_mut().and_then(|copies| copies.job.as_mut()) else { return };
        let way = job.ways[1];
        let len = bytes.len() as u32;
        let place = &mut self.ways[way as usize];
        let tag = parts.insert(Part { whose: Whose::Job { front: self.number, drive: way }, bytes: Bytes::Own(bytes) });
        (job.out, job.writes, place.used) = (1, true, place.used + 1);
        let sent = second.filter(|second| second.way == Some(way)).and_then(|second| {
            let request = BlockRequest { op: Op::Write, nsid: 1, offset: second.at, len, fua: false };
            place.queue.send(request, tag, PartTime::Drives)
        });
        match sent {
            Some(sent) => send.push(sent),
            // The layout is another one, or the drive has gone.
            None => parts.answer(tag, Status::INTERNAL_PATH_ERROR),
        }
    }
}
