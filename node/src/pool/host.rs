//! The pools of a shard: each is a machine whose I/O goes to its drives like a tenant's, in order.

use super::drive_queue::{DriveQueue, PartTime, Sent};
use super::parts::{Bytes, Part, Parts, Whose};
use std::collections::{BTreeSet, VecDeque};
use weir_controller::{BlockRequest as Io, Op};
use weir_pool::{EffectFailure, Pool, PoolAnswer, PoolEffect, PoolError, PoolEvent, PoolRequest, Setup};
use weir_spec::nvme::Status;

/// What a pool is asked: to be opened, or changed.
#[derive(Debug)]
pub enum Ask {
    /// To open.
    Open,
    /// To change.
    Request(PoolRequest),
}

/// Who hears what became of it.
pub type Reply = Box<dyn FnOnce(Result<PoolAnswer, PoolError>) + Send>;

/// Bytes of a chunk that are copied by one command.
const PIECE: u64 = 256 << 10;
/// Bytes that are unmapped by one command.
const UNMAP: u64 = 256 << 20;
/// Such commands at once.
const WINDOW: u32 = 4;

/// A pool, and what it has on its way.
pub struct PoolHost {
    number: u32,
    /// The machine.
    pub pool: Pool,
    /// Its drives, in the order in which it was set up.
    pub queues: Vec<DriveQueue>,
    asked: VecDeque<(Ask, Reply)>,
    reply: Option<Reply>,
    /// Commands on their way.
    out: u32,
    failed: Option<Status>,
    /// The drive that is being flushed.
    flushes: Option<usize>,
    /// Places of drives that may have lost what this change has written.
    lossy: BTreeSet<usize>,
    read: Vec<u8>,
    /// What is still to be unmapped: place of the drive, from where, to where.
    unmap: (usize, u64, u64),
    /// That is what is done, or made durable.
    unmaps: bool,
    /// What is being copied.
    copy: Option<CopyOfChunk>,
    /// When the commands of what is done are complete.
    time: PartTime,
    /// Its volumes have hosts, or may have.
    serves: bool,
    /// What is done is only [noted](is_note) by it.
    notes: bool,
}

/// A chunk that is copied, piece by piece.
#[derive(Clone, Copy, Debug)]
struct CopyOfChunk {
    /// Place of a drive, and where the chunk begins there.
    from: (usize, u64),
    to: (usize, u64),
    len: u64,
    /// Bytes that are copied.
    done: u64,
    /// The next piece is being read, else written.
    reads: bool,
}

/// Whether it tells the pool what happens to copies: a write that waits for it is begun anew after a crash, and asks again.
fn is_note(ask: &Ask) -> bool {
    let Ask::Request(request) = ask else { return false };
    matches!(request, PoolRequest::Written { .. } | PoolRequest::Settled { .. } | PoolRequest::MarkFresh { .. })
}

impl PoolHost {
    /// A pool that is not open yet.
    pub fn new(number: u32, setup: Setup, queues: Vec<DriveQueue>) -> Self {
        let pool = Pool::new(setup);
        let (asked, read) = (VecDeque::new(), Vec::new());
        let (reply, failed, flushes, lossy) = (None, None, None, BTreeSet::new());
        let (out, unmap, unmaps) = (0, (0, 0, 0), false);
        let time = PartTime::Drives;
        Self {
            number,
            pool,
            queues,
            asked,
            reply,
            out,
            failed,
            flushes,
            lossy,
            read,
            unmap,
            unmaps,
            copy: None,
            time,
            serves: false,
            notes: false,
        }
    }

    /// From now on its volumes may have hosts.
    pub fn begin_to_serve(&mut self) {
        self.serves = true;
    }

    /// What a pool does while nobody is served takes no modelled time: it is no part of what is emulated.
    fn time_of(&self, ask: &Ask) -> PartTime {
        match ask {
            Ask::Request(PoolRequest::Close) => PartTime::Untimed,
            _ if self.serves => PartTime::Drives,
            _ => PartTime::Untimed,
        }
    }

    /// A drive may have lost what it had acknowledged and not flushed: the next flush of the change that is under way fails. A pool with
    /// nothing to do has flushed all.
    #[cold]
    pub fn lose(&mut self, place: usize) {
        if self.reply.is_some() {
            self.lossy.insert(place);
        }
    }

    /// It has nothing to do.
    pub fn is_quiet(&self) -> bool {
        self.reply.is_none() && self.asked.is_empty()
    }

    /// Nobody misses what it does if the process ends in it: that is asked again where it matters.
    pub fn may_be_interrupted(&self) -> bool {
        (self.reply.is_none() || self.notes) && self.asked.iter().all(|(ask, _)| is_note(ask))
    }

    /// Asks for something; one thing is done after the other.
    pub fn ask(&mut self, ask: Ask, reply: Reply, parts: &mut Parts, send: &mut Vec<Sent>) {
        self.asked.push_back((ask, reply));
        if self.reply.is_none() {
            self.next(parts, send);
        }
    }

    fn next(&mut self, parts: &mut Parts, send: &mut Vec<Sent>) {
        while let Some((ask, reply)) = self.asked.pop_front() {
            self.lossy.clear();
            (self.time, self.notes) = (self.time_of(&ask), is_note(&ask));
            let effect = match ask {
                Ask::Open => self.pool.apply(PoolEvent::Open),
                Ask::Request(request) => self.pool.apply(PoolEvent::Request(request)),
            };
            match effect {
                PoolEffect::Finished(result) => reply(result),
                effect => {
                    self.reply = Some(reply);
                    return self.carry_out(effect, parts, send);
                }
            }
        }
    }

    /// A part is over.
    pub fn over(&mut self, bytes: Bytes, status: Status, parts: &mut Parts, send: &mut Vec<Sent>) {
        self.out -= 1;
        let lost = self.flushes.take().is_some_and(|drive| self.lossy.remove(&drive));
        let status = if lost && status.is_success() { Status::WRITE_FAULT } else { status };
        if !status.is_success() {
            self.failed.get_or_insert(status);
            self.unmap.1 = self.unmap.2;
        }
        if let Bytes::Own(bytes) = bytes {
            self.read = bytes;
        }
        self.empty(parts, send);
        if self.out > 0 || self.failed.is_none() && self.go_on_copying(parts, send) {
            return;
        }
        self.copy = None;
        let result = match self.failed.take() {
            Some(status) if self.unmaps => {
                let (pool, drive) = (self.pool.name(), self.pool.drive_name(self.unmap.0));
                let what = "what nobody has there any more stays unused, and is deallocated at the next start";
                tracing::warn!("pool {pool}: drive {drive} does not deallocate ({status}): {what}");
                Err(EffectFailure(status.to_string()))
            }
            Some(status) => Err(EffectFailure(status.to_string())),
            None => Ok(std::mem::take(&mut self.read)),
        };
        let effect = self.pool.apply(PoolEvent::Done(result));
        self.carry_out(effect, parts, send);
    }

    fn carry_out(&mut self, effect: PoolEffect, parts: &mut Parts, send: &mut Vec<Sent>) {
        self.unmaps =
            matches!(effect, PoolEffect::Unmap { .. }) || self.unmaps && matches!(effect, PoolEffect::Flush { .. });
        match effect {
            PoolEffect::Read { drive, offset, len } => {
                self.submit((drive, Op::Read, offset, len), vec![0; len as usize], parts, send);
            }
            PoolEffect::Write { drive, offset, bytes } => {
                self.submit((drive, Op::Write, offset, bytes.len() as u32), bytes, parts, send);
            }
            PoolEffect::Flush { drive } => {
                self.flushes = Some(drive);
                self.submit((drive, Op::Flush, 0, 0), Vec::new(), parts, send);
            }
            PoolEffect::Unmap { drive, offset, len } => {
                self.unmap = (drive, offset, offset + len);
                self.empty(parts, send);
            }
            PoolEffect::Copy { from, from_offset, to, to_offset, len } => {
                let (from, to) = ((from, from_offset), (to, to_offset));
                self.copy = Some(CopyOfChunk { from, to, len, done: 0, reads: true });
                let piece = len.min(PIECE) as u32;
                self.submit((from.0, Op::Read, from.1, piece), vec![0; piece as usize], parts, send);
            }
            PoolEffect::Finished(result) => {
                if let Some(reply) = self.reply.take() {
                    reply(result);
                }
                self.next(parts, send);
            }
        }
    }

    /// The next step of a copy; `false`: there is none. The chunk that is written is empty, so zeroes are there already.
    fn go_on_copying(&mut self, parts: &mut Parts, send: &mut Vec<Sent>) -> bool {
        let Some(mut copy) = self.copy else { return false };
        let bytes = std::mem::take(&mut self.read);
        let is_written = !copy.reads || bytes.iter().all(|byte| *byte == 0);
        if is_written {
            copy.done += PIECE.min(copy.len - copy.done);
        }
        copy.reads = is_written;
        if copy.done >= copy.len {
            return false;
        }
        self.copy = Some(copy);
        let piece = PIECE.min(copy.len - copy.done) as u32;
        let ((drive, offset), op) = if copy.reads { (copy.from, Op::Read) } else { (copy.to, Op::Write) };
        let bytes = if copy.reads { vec![0; piece as usize] } else { bytes };
        self.submit((drive, op, offset + copy.done, piece), bytes, parts, send);
        true
    }

    fn empty(&mut self, parts: &mut Parts, send: &mut Vec<Sent>) {
        while self.out < WINDOW && self.unmap.1 < self.unmap.2 {
            let (drive, from, to) = self.unmap;
            let len = (to - from).min(UNMAP);
            self.unmap.1 += len;
            let op = Op::WriteZeroes { deallocate: true };
            self.submit((drive, op, from, len as u32), Vec::new(), parts, send);
        }
    }

    fn submit(
        &mut self,
        (drive, op, offset, len): (usize, Op, u64, u32),
        bytes: Vec<u8>,
        parts: &mut Parts,
        send: &mut Vec<Sent>,
    ) {
        self.out += 1;
        let queue = self.queues[drive];
        let tag = parts
            .insert(Part { whose: Whose::Pool { pool: self.number, drive: drive as u32 }, bytes: Bytes::Own(bytes) });
        let request = Io { op, nsid: 1, offset, len, fua: false };
        match queue.send(request, tag, self.time) {
            Some(sent) => send.push(sent),
            None => parts.answer(tag, Status::INTERNAL_PATH_ERROR),
        }
    }
}
