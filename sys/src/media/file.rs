//! A drive in a file or on a block device, through the reactor.
//!
//! ```text
//!   start(FileRequest) ──► FileOp ──► reactor ──► FileDone ──► ready ──┬─► Finished
//!        │                ▲                                        │
//!        └─ refused:      └──── the rest of a short transfer, ◄────┘
//!           Finished            or the next way to write zeroes
//! ```

use super::status::{Doing, MediumFault, is_shortage, status};
use crate::reactor::{BufferPool, FileDone, FileOp, IoBuf, Reactor};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use weir_spec::nvme::Status;

/// Bytes of buffers that are kept for the next requests.
const POOL: usize = 16 << 20;
/// Bytes of zeroes written at a time where the file system has no better way.
const ZERO_CHUNK: u32 = 1 << 20;
/// Bits of a reactor token that name a request; the rest is the owner's.
const TOKEN_BITS: u32 = 24;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOpKind {
    /// Into the buffer.
    Read,
    /// From the buffer; `durable` as FUA means it.
    Write {
        /// On stable storage when it completes.
        durable: bool,
    },
    /// Makes the range read as zeroes; `deallocate` gives the space back as well.
    Zero {
        /// Whether the space is to be given back.
        deallocate: bool,
    },
    /// Makes everything durable that completed before; offset and length are ignored.
    Flush,
}

/// A request to a [`FileMedia`].
#[derive(Debug)]
pub struct FileRequest {
    /// What to do.
    pub op: FileOpKind,
    /// First byte, a multiple of the block size.
    pub offset: u64,
    /// Bytes, a multiple of the block size.
    pub len: u32,
    /// For reads and writes: at least `len` bytes, best from [`FileMedia::buffer`].
    pub buf: Option<IoBuf>,
    /// Comes back in [`Finished`].
    pub token: u64,
}

/// A request that ended.
#[derive(Debug)]
pub struct Finished {
    /// The request's.
    pub token: u64,
    /// How it ended.
    pub status: Status,
    /// The request's buffer.
    pub buf: Option<IoBuf>,
}

/// A way to write zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Punch,
    Range,
    Bytes,
}

#[derive(Debug)]
struct Slot {
    op: FileOpKind,
    offset: u64,
    len: u32,
    done: u32,
    way: Way,
    /// The medium itself is done, and so many files beside it are synced or being synced.
    beside: usize,
    token: u64,
}

impl Slot {
    fn doing(&self) -> Doing {
        match self.op {
            FileOpKind::Read => Doing::Read,
            FileOpKind::Write { .. } => Doing::Write,
            FileOpKind::Zero { .. } => Doing::Zero,
            FileOpKind::Flush => Doing::Flush,
        }
    }
}

/// See the [module](self).
pub struct FileMedia {
    pub(super) name: String,
    pub(super) file: Arc<OwnedFd>,
    pub(super) capacity: u64,
    pub(super) block_size: u32,
    pub(super) direct: bool,
    pub(super) can_punch: bool,
    pub(super) can_zero_range: bool,
    base: u64,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    pool: BufferPool,
    fault: Option<MediumFault>,
    /// Made durable after every flush and every durable write, in this order.
    beside: Vec<Arc<OwnedFd>>,
}

impl FileMedia {
    pub(super) fn new(name: String, file: OwnedFd, capacity: u64, block_size: u32, direct: bool) -> Self {
        Self {
            name,
            file: Arc::new(file),
            capacity,
            block_size,
            direct,
            can_punch: true,
            can_zero_range: true,
            base: 0,
            slots: Vec::new(),
            free: Vec::new(),
            pool: BufferPool::new(POOL),
            fault: None,
            beside: Vec::new(),
        }
    }

    /// The file or the device itself, to ask the file system of it.
    pub fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// Has another file synced whenever something becomes durable, after it and before those that are named already: what belongs
    /// to this medium's bytes or tells of them.
    pub fn sync_beside(&mut self, file: Arc<OwnedFd>) {
        self.beside.insert(0, file);
    }

    /// Writes aligned bytes at once, waiting for it; for what is put right while nothing is in flight.
    ///
    /// # Errors
    /// Outside of the medium, poisoned, or the kernel's reason as a status.
    pub fn write_now(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Status> {
        super::range(self.capacity, offset, bytes.len() as u32)?;
        if self.fault.is_some() {
            return Err(Status::WRITE_FAULT);
        }
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(&self.file, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(status(Doing::Write, Errno::IO)),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(status(Doing::Write, e)),
            }
        }
        Ok(())
    }

    /// Has bytes read as zeroes at once, waiting for it; for what is put right while nothing is in flight.
    ///
    /// # Errors
    /// As of [`write_now`](Self::write_now).
    pub fn zero_now(&mut self, offset: u64, len: u64) -> Result<(), Status> {
        if offset.checked_add(len).is_none_or(|end| end > self.capacity) {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        if self.fault.is_some() {
            return Err(Status::WRITE_FAULT);
        }
        let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
        for how in [rustix::fs::FallocateFlags::PUNCH_HOLE, rustix::fs::FallocateFlags::ZERO_RANGE] {
            if len == 0 || rustix::fs::fallocate(&self.file, keep | how, offset, len).is_ok() {
                return Ok(());
            }
        }
        let mut zeroes = self.buffer(ZERO_CHUNK);
        zeroes[..ZERO_CHUNK as usize].fill(0);
        let mut zeroed = Ok(());
        for at in (0..len).step_by(ZERO_CHUNK as usize) {
            let part = (len - at).min(u64::from(ZERO_CHUNK)) as usize;
            zeroed = zeroed.and_then(|()| self.write_now(offset + at, &zeroes[..part]));
        }
        self.recycle(zeroes);
        zeroed
    }

    /// Has the file system give the first bytes their room, so that no write there fails for want of it; what they hold stays. Waits. Where
    /// there is nothing to give (a block device) or no way to (some file systems), nothing happens.
    ///
    /// # Errors
    /// There is no room, or the kernel's reason.
    pub fn allocate(&mut self, bytes: u64) -> std::io::Result<()> {
        let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
        loop {
            match rustix::fs::fallocate(&self.file, keep, 0, bytes.min(self.capacity)) {
                Err(Errno::INTR) => {}
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NODEV) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Everything that has completed is durable. Waits; for the end of a drive's work.
    ///
    /// # Errors
    /// The medium is poisoned, or the kernel cannot write.
    pub fn sync(&mut self) -> Result<(), std::io::Error> {
        match &self.fault {
            Some(fault) => Err(std::io::Error::other(fault.to_string())),
            None => {
                let all = std::iter::once(&self.file).chain(&self.beside);
                Ok(all.into_iter().try_for_each(rustix::fs::fdatasync)?)
            }
        }
    }

    /// Sets what the tokens of its operations in the reactor start with: the low 24 bits of `base` are the medium's own, so
    /// that whoever dispatches [`Ready`](crate::reactor::Ready) finds the medium by the rest. To be called before the first
    /// request.
    pub fn set_token_base(&mut self, base: u64) {
        self.base = base >> TOKEN_BITS << TOKEN_BITS;
    }

    /// The size of the medium in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// What poisoned it.
    pub fn fault(&self) -> Option<&MediumFault> {
        self.fault.as_ref()
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// A buffer of at least `len` bytes, with undefined content.
    pub fn buffer(&mut self, len: u32) -> IoBuf {
        self.pool.get(len as usize)
    }

    /// Takes a buffer back for the next request.
    pub fn recycle(&mut self, buf: IoBuf) {
        self.pool.put(buf);
    }

    /// Starts a request; its end comes from [`ready`](Self::ready).
    ///
    /// # Errors
    /// It ended at once: outside of the medium, not in whole blocks, or a write to a poisoned medium.
    pub fn start(&mut self, reactor: &mut Reactor, request: FileRequest) -> Result<(), Finished> {
        let FileRequest { op, offset, len, buf, token } = request;
        if let Err(status) = self.check(op, offset, len, buf.as_ref()) {
            return Err(Finished { token, status, buf });
        }
        if len == 0 && op != FileOpKind::Flush {
            return Err(Finished { token, status: Status::SUCCESS, buf });
        }
        let way = self.way(op);
        let slot = Slot { op, offset, len, done: 0, way, beside: 0, token };
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place as usize] = Some(slot);
                place
            }
            None => {
                self.slots.push(Some(slot));
                (self.slots.len() - 1) as u32
            }
        };
        self.submit(reactor, place, buf);
        Ok(())
    }

    fn check(&self, op: FileOpKind, offset: u64, len: u32, buf: Option<&IoBuf>) -> Result<(), Status> {
        if op != FileOpKind::Read && self.fault.is_some() {
            return Err(Status::WRITE_FAULT);
        }
        if op == FileOpKind::Flush {
            return Ok(());
        }
        super::range(self.capacity, offset, len)?;
        let needs_buffer = len > 0 && matches!(op, FileOpKind::Read | FileOpKind::Write { .. });
        let block = u64::from(self.block_size);
        if offset % block != 0
            || u64::from(len) % block != 0
            || needs_buffer && buf.is_none_or(|b| b.len() < len as usize)
        {
            return Err(Status::INVALID_FIELD);
        }
        Ok(())
    }

    fn way(&self, op: FileOpKind) -> Way {
        let deallocate = op == FileOpKind::Zero { deallocate: true };
        match (self.can_punch, self.can_zero_range) {
            (true, false) => Way::Punch,
            (true, true) if deallocate => Way::Punch,
            (_, true) => Way::Range,
            (false, false) => Way::Bytes,
        }
    }

    /// Submits what is left of a request.
    fn submit(&mut self, reactor: &mut Reactor, place: u32, buf: Option<IoBuf>) {
        let Some(slot) = &self.slots[place as usize] else { return };
        let file = Arc::clone(&self.file);
        let (offset, left) = (slot.offset + u64::from(slot.done), slot.len - slot.done);
        let op = match (slot.op, buf) {
            (FileOpKind::Read, Some(buf)) => FileOp::Read { file, offset, buf, range: slot.done..slot.len },
            (FileOpKind::Write { durable }, Some(buf)) => {
                FileOp::Write { file, offset, buf, range: slot.done..slot.len, durable }
            }
            (FileOpKind::Zero { .. }, zeroes) if slot.way == Way::Bytes => {
                let part = left.min(ZERO_CHUNK);
                let buf = zeroes.unwrap_or_else(|| IoBuf::new(part as usize));
                FileOp::Write { file, offset, buf, range: 0..part, durable: false }
            }
            (FileOpKind::Zero { .. }, _) => {
                let how = if slot.way == Way::Punch { libc::FALLOC_FL_PUNCH_HOLE } else { libc::FALLOC_FL_ZERO_RANGE };
                FileOp::Allocate { file, mode: how | libc::FALLOC_FL_KEEP_SIZE, offset, len: left.into() }
            }
            _ => FileOp::Sync { file },
        };
        reactor.start(op, self.base | u64::from(place));
    }

    /// Continues a request whose operation ended. `None` where it goes on.
    pub fn ready(&mut self, reactor: &mut Reactor, done: FileDone) -> Option<Finished> {
        let place = done.token as u32 & ((1 << TOKEN_BITS) - 1);
        let slot = self.slots.get_mut(place as usize)?.as_mut()?;
        let in_place = slot.way == Way::Bytes || !matches!(slot.op, FileOpKind::Zero { .. });
        match done.result {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) if !in_place => {
                match slot.way {
                    Way::Punch => self.can_punch = false,
                    _ => self.can_zero_range = false,
                }
                let op = slot.op;
                let way = self.way(op);
                self.slots[place as usize].as_mut()?.way = way;
                tracing::info!(medium = self.name, ?way, "the medium cannot zero a range in the best way");
                self.submit(reactor, place, done.buf);
                None
            }
            Err(Errno::INTR | Errno::AGAIN) if slot.beside == 0 => {
                self.submit(reactor, place, done.buf);
                None
            }
            Err(e) => Some(self.failed(place, e, done.buf)),
            Ok(0) if in_place && slot.beside == 0 && slot.op != FileOpKind::Flush => {
                Some(self.failed(place, Errno::IO, done.buf))
            }
            Ok(n) => {
                slot.done += if in_place && slot.beside == 0 { n } else { slot.len - slot.done };
                if slot.op != FileOpKind::Flush && slot.done < slot.len {
                    self.submit(reactor, place, done.buf);
                    return None;
                }
                let durable = matches!(slot.op, FileOpKind::Flush | FileOpKind::Write { durable: true });
                if let Some(file) = self.beside.get(slot.beside).filter(|_| durable) {
                    slot.beside += 1;
                    reactor.start(FileOp::Sync { file: Arc::clone(file) }, self.base | u64::from(place));
                    done.buf.into_iter().for_each(|buf| self.pool.put(buf));
                    return None;
                }
                Some(self.finish(place, Status::SUCCESS, done.buf))
            }
        }
    }

    fn failed(&mut self, place: u32, cause: Errno, buf: Option<IoBuf>) -> Finished {
        let (doing, offset) = match &self.slots[place as usize] {
            Some(slot) => (slot.doing(), slot.offset + u64::from(slot.done)),
            None => (Doing::Flush, 0),
        };
        // A shortage leaves the medium as it was, except for a flush: what it was to write may be lost already.
        let poisons = doing == Doing::Flush || doing != Doing::Read && !is_shortage(cause);
        if poisons && self.fault.is_none() {
            let fault = MediumFault { medium: self.name.clone(), doing, offset, cause };
            tracing::error!("{fault}");
            self.fault = Some(fault);
        }
        let status = if doing == Doing::Flush { Status::WRITE_FAULT } else { status(doing, cause) };
        self.finish(place, status, buf)
    }

    fn finish(&mut self, place: u32, status: Status, buf: Option<IoBuf>) -> Finished {
        let slot = self.slots[place as usize].take();
        self.free.push(place);
        let (token, zero) = slot.map_or((0, false), |s| (s.token, matches!(s.op, FileOpKind::Zero { .. })));
        Finished { token, status, buf: buf.filter(|_| !zero) }
    }
}

impl fmt::Debug for FileMedia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileMedia")
            .field("name", &self.name)
            .field("capacity", &self.capacity)
            .field("direct", &self.direct)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
