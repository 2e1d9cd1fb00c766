//! Open files: reads and writes of any bytes, waited for or not.

use super::connection::in_time;
use super::engine::Outcome;
use super::error::{ClientError, ClientErrorKind};
use super::memory::CallerMemory;
use super::open_file::{FileContent, FileWork};
use super::{Client, unexpected};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use weir_store::file::FileError;
use weir_store::protocol::Request;
use weir_store::records::blocks_per_chunk;
use weir_store::{InodePath, StoreError};
use weir_sys::memory::lend::{lend, lend_to_read};
use weir_units::Nanos;

/// Bytes of one operation at the most: a write of more is several. The blocks of one are few beside those that a session may have ahead.
const PIECE: usize = 4 << 20;

/// An open file. All methods may be called by several threads at once.
///
/// Others see what was written, and the size, when it is published: by [`flush`](Self::flush) or [`close`](Self::close).
/// A write of more than 8 MiB may be published in part before.
#[derive(Debug)]
pub struct File {
    open: Arc<FileHandle>,
}

/// What a file and its operations under way have in common.
#[derive(Debug)]
struct FileHandle {
    client: Client,
    id: u64,
    path: Vec<u8>,
    at: InodePath,
    /// Nanoseconds.
    deadline: AtomicU64,
    /// Held by who appends or truncates.
    end: Mutex<()>,
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        self.client.shared.lock().forget_file(self.id);
    }
}

/// An operation under way. Dropped, it goes on, and what it comes to is not told; a write that fails then ends all further writes of the open file.
#[derive(Debug)]
pub struct Pending {
    open: Arc<FileHandle>,
    work: Option<u64>,
    /// It was cancelled, or was wrong at once.
    over: Option<ClientError>,
    is_read: bool,
}

/// An operation that is over.
#[derive(Debug)]
pub struct Completed {
    /// The memory that was handed over; none if the operation was cancelled and a drive has it still.
    pub buffer: Vec<u8>,
    /// How many bytes were read or written.
    pub result: Result<usize, ClientError>,
}

impl Pending {
    /// Waits until it is over.
    pub fn wait(mut self) -> Completed {
        if let Some(error) = self.over.take() {
            return Completed { buffer: Vec::new(), result: Err(error.at(&self.open.path)) };
        }
        let Some(work) = self.work.take() else {
            return Completed { buffer: Vec::new(), result: Err(unexpected()) };
        };
        match self.open.client.shared.wait(work) {
            Outcome::Io(memory, result) => Completed {
                buffer: memory.map(CallerMemory::into_owned).unwrap_or_default(),
                result: result.map(|n| n as usize).map_err(|error| error.at(&self.open.path)),
            },
            Outcome::Answer(_) => Completed { buffer: Vec::new(), result: Err(unexpected()) },
        }
    }

    /// Whether it is over, so that [`wait`](Self::wait) does not wait. It lets everything under way go on.
    pub fn is_done(&self) -> bool {
        let Some(work) = self.work else { return true };
        let mut engine = self.open.client.shared.lock();
        if !engine.is_done(work) && !engine.is_driven {
            engine.turn();
        }
        engine.is_done(work)
    }

    /// Ends a read: [`wait`](Self::wait) returns at once. A write that has begun goes on: a part of it may be on a drive.
    pub fn cancel(&mut self) {
        if let Some(work) = self.work.take_if(|_| self.is_read) {
            self.open.client.shared.lock().abandon(work);
            self.over = Some(ClientError::new(ClientErrorKind::Cancelled));
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(work) = self.work {
            self.open.client.shared.lock().abandon(work);
        }
    }
}

impl File {
    pub(super) fn new(client: Client, id: u64, path: &[u8], at: InodePath) -> Self {
        let deadline = AtomicU64::new(client.shared.deadline.as_nanos() as u64);
        Self { open: Arc::new(FileHandle { client, id, path: path.into(), at, deadline, end: Mutex::new(()) }) }
    }

    /// Its number, and the directory that it was opened in.
    pub fn at(&self) -> InodePath {
        self.open.at
    }

    /// The size that this client sees: with what it has written.
    pub fn size(&self) -> u64 {
        self.open.client.shared.lock().file(self.open.id).map_or(0, |file| file.size())
    }

    /// How long each operation that begins from now on may take.
    pub fn set_deadline(&self, deadline: Duration) {
        let nanos = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
        self.open.deadline.store(nanos, Ordering::Relaxed);
    }

    fn timeout(&self) -> Duration {
        Duration::from_nanos(self.open.deadline.load(Ordering::Relaxed))
    }

    fn until(&self) -> Nanos {
        in_time(self.timeout())
    }

    /// Begins an operation, and lets it go on as far as it can at once.
    fn begin(&self, what: FileWork, memory: Option<CallerMemory>, until: Nanos) -> u64 {
        let mut engine = self.open.client.shared.lock();
        let work = engine.next();
        engine.begin(self.open.id, work, what, memory, until);
        if !engine.is_done(work) {
            engine.turn();
        }
        work
    }

    /// Does an operation and waits; the memory is given back before this returns.
    fn run(&self, what: FileWork, memory: Option<CallerMemory>, until: Nanos) -> Result<usize, ClientError> {
        let work = self.begin(what, memory, until);
        match self.open.client.shared.wait(work) {
            Outcome::Io(memory, result) => {
                drop(memory);
                result.map(|n| n as usize).map_err(|error| error.at(&self.open.path))
            }
            Outcome::Answer(_) => Err(unexpected()),
        }
    }

    /// Reads at any offset; fewer bytes than asked for only at the end of the file.
    ///
    /// # Errors
    /// No copy can be read, or has the right bytes; the deadline has passed; the session is over.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, ClientError> {
        let (until, mut done) = (self.until(), 0);
        while done < buffer.len() {
            let piece = (buffer.len() - done).min(PIECE);
            let at = self.offset(offset, done)?;
            let n = lend(&mut buffer[done..done + piece], |lent| {
                self.run(FileWork::Read(at, piece as u32), Some(CallerMemory::Lent(lent)), until)
            })?;
            done += n;
            if n < piece {
                break;
            }
        }
        Ok(done)
    }

    /// Writes all bytes, at any offset.
    ///
    /// # Errors
    /// No copy can be written, or no class has room; the deadline has passed; the session is over; the file was opened to be read.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        let (until, mut done) = (self.until(), 0);
        for piece in bytes.chunks(PIECE) {
            let at = self.offset(offset, done)?;
            lend_to_read(piece, |lent| {
                self.run(FileWork::Write(at, piece.len() as u32), Some(CallerMemory::Lent(lent)), until)
            })?;
            done += piece.len();
        }
        Ok(())
    }

    fn offset(&self, offset: u64, done: usize) -> Result<u64, ClientError> {
        let too_far = || ClientError::from(FileError::TooFar).at(&self.open.path);
        offset.checked_add(done as u64).ok_or_else(too_far)
    }

    /// Writes all bytes behind the end; where they were written.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&self, bytes: &[u8]) -> Result<u64, ClientError> {
        let _end = self.open.end.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = self.size();
        self.write_at(offset, bytes)?;
        Ok(offset)
    }

    /// Begins to read into memory that comes back with the end of the operation: at most 4 GiB.
    ///
    /// # Errors
    /// The memory is too long; everything else is told by [`Pending::wait`].
    pub fn begin_read(&self, offset: u64, buffer: Vec<u8>) -> Result<Pending, ClientError> {
        let len = self.length(buffer.len(), u32::MAX as usize)?;
        self.pending(FileWork::Read(offset, len), buffer)
    }

    /// Begins to write memory that comes back with the end of the operation: at most 4 MiB.
    ///
    /// # Errors
    /// The memory is too long; everything else is told by [`Pending::wait`].
    pub fn begin_write(&self, offset: u64, buffer: Vec<u8>) -> Result<Pending, ClientError> {
        let len = self.length(buffer.len(), PIECE)?;
        self.pending(FileWork::Write(offset, len), buffer)
    }

    fn pending(&self, what: FileWork, buffer: Vec<u8>) -> Result<Pending, ClientError> {
        let is_read = matches!(what, FileWork::Read(..));
        let work = self.begin(what, Some(CallerMemory::Owned(buffer)), self.until());
        self.open.client.shared.wake_keeper();
        Ok(Pending { open: self.open.clone(), work: Some(work), over: None, is_read })
    }

    fn length(&self, len: usize, most: usize) -> Result<u32, ClientError> {
        let text = || format!("{len} bytes are more than one operation takes: {most}");
        let wrong = || ClientError::new(ClientErrorKind::Usage(text())).at(&self.open.path);
        u32::try_from(len).ok().filter(|_| len <= most).ok_or_else(wrong)
    }

    /// Cuts the file to that size, or lengthens it by zeroes. What was written before is published. Where the last block is cut its rest is
    /// zeroed first.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn truncate(&self, size: u64) -> Result<(), ClientError> {
        let _end = self.open.end.lock().unwrap_or_else(PoisonError::into_inner);
        let until = self.until();
        let shared = &self.open.client.shared;
        let mover = loop {
            let mut engine = shared.lock();
            if !engine.file(self.open.id).is_some_and(|file| file.writes) {
                return Err(ClientError::from(StoreError::NotOpen).at(&self.open.path));
            }
            if !engine.is_moving(self.open.id) {
                if engine.resize_inline(self.open.id, size) {
                    drop(engine);
                    return self.publish(false, until);
                }
                break engine.make_mapped(self.open.id, until);
            }
            drop(engine);
            if super::connection::boot_time() >= until {
                return Err(ClientError::new(ClientErrorKind::Deadline).at(&self.open.path));
            }
            // What moves them ends by its own deadline.
            shared.wake_keeper();
            std::thread::sleep(Duration::from_micros(200));
        };
        if let Some(Outcome::Io(_, Err(error))) = mover.map(|work| shared.wait(work)) {
            return Err(error.at(&self.open.path));
        }
        self.publish(false, until)?;
        let (old, block) = {
            let engine = self.open.client.shared.lock();
            engine.file(self.open.id).map_or((0, 1), |file| (file.size(), u64::from(file.block)))
        };
        let rest = size.next_multiple_of(block).min(old).saturating_sub(size);
        if rest > 0 && size % block != 0 {
            // A later write behind it must not show what was there.
            self.write_at(size, &vec![0; rest as usize])?;
            self.publish(false, until)?;
        }
        self.cut(size, until)
    }

    /// Commits another size, while nothing is under way.
    fn cut(&self, size: u64, until: Nanos) -> Result<(), ClientError> {
        let shared = &self.open.client.shared;
        while !shared.lock().hold_file(self.open.id) {
            // Operations of other threads end by their own deadlines.
            shared.wake_keeper();
            std::thread::sleep(Duration::from_micros(200));
        }
        let request = Request::Publish { handle: 0, slot: 0, sequence: 0, size, blocks: Vec::new() };
        let left = until.saturating_sub(super::connection::boot_time());
        let result = self.open.client.ask_about(request, Some(self.open.id), Duration::from_nanos(left.get()));
        shared.lock().resize_file(self.open.id, result.is_ok().then_some(size));
        result.map(drop).map_err(|error| error.at(&self.open.path))
    }

    fn publish(&self, cut: bool, until: Nanos) -> Result<(), ClientError> {
        self.run(FileWork::Flush(cut), None, until).map(drop)
    }

    /// Publishes what was written: when it returns others see it, and it is as durable as the store promises.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at); what was written since the last flush is then in doubt.
    pub fn flush(&self) -> Result<(), ClientError> {
        self.publish(false, self.until())
    }

    /// Fetches the map of these bytes ahead, so that the first read needs no question.
    ///
    /// # Errors
    /// The metadata service does not answer.
    pub fn prefetch(&self, offset: u64, bytes: u64) -> Result<(), ClientError> {
        let (size, block, is_mapped) = {
            let engine = self.open.client.shared.lock();
            let Some(file) = engine.file(self.open.id) else { return Ok(()) };
            (file.size(), file.block, matches!(file.content, FileContent::Mapped(_)))
        };
        let end = offset.saturating_add(bytes).min(size);
        if !is_mapped || offset >= end {
            return Ok(());
        }
        let chunk = u64::from(blocks_per_chunk(block)) * u64::from(block);
        for number in offset / chunk..end.div_ceil(chunk) {
            // The map comes with a read of one byte, all chunks at once.
            let at = (number * chunk).max(offset);
            let pending = self.begin_read(at, vec![0; 1])?;
            pending.wait().result?;
        }
        Ok(())
    }

    /// Publishes what was written, and closes the file. Dropped instead, what was not flushed is not published.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn close(self) -> Result<(), ClientError> {
        let until = self.until();
        let writes = self.open.client.shared.lock().file(self.open.id).is_some_and(|file| file.writes);
        if !writes {
            return Ok(());
        }
        self.publish(true, until)?;
        let left = until.saturating_sub(super::connection::boot_time());
        let request = Request::Close { handle: 0 };
        let result = self.open.client.ask_about(request, Some(self.open.id), Duration::from_nanos(left.get()));
        match result {
            Ok(_) => {}
            // The service was started again: it has closed it.
            Err(error) if error.store_error() == Some(StoreError::NotOpen) => {}
            Err(error) => return Err(error.at(&self.open.path)),
        }
        self.open.client.shared.lock().drop_file(self.open.id);
        Ok(())
    }
}
