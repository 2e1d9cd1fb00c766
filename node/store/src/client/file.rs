//! Open files: reads and writes of any bytes, waited for or not.

use super::connection::in_time;
use super::driver::{Waited, wait_any};
use super::engine::io_outcome;
use super::error::{ClientError, ClientErrorKind};
use super::memory::CallerMemory;
use super::recorder::BegunCall;
use super::{Client, FileReader, FileWriter, unexpected};
use crate::record::{RecordLine, RecordedCall};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use weir_store::InodePath;
use weir_store::client::{FileWork, OpenFileId, WorkId};
use weir_store::file::FileError;
use weir_store::records::blocks_per_chunk;
use weir_sys::memory::lend::{LentBytes, lend, lend_to_read};
use weir_units::Nanos;

/// Bytes of one operation at the most: a write of more is several. The blocks of one are few beside those that a session may have ahead.
const PIECE: usize = 4 << 20;

/// An open file. All methods may be called by several threads at once.
///
/// Others see what was written, and the size, when it is published: by [`flush`](Self::flush) or [`close`](Self::close).
/// A write of more than 8 MiB may be published in part before, and so is what was written where much is: from its beginning on.
#[derive(Debug)]
pub struct File {
    open: Arc<FileHandle>,
}

/// What a file and its operations under way have in common.
#[derive(Debug)]
struct FileHandle {
    client: Client,
    id: OpenFileId,
    path: Vec<u8>,
    at: InodePath,
    /// Nanoseconds.
    deadline: AtomicU64,
    /// Held by who appends or truncates.
    end: Mutex<()>,
    /// That it is no longer open is recorded.
    is_closed: AtomicBool,
}

impl FileHandle {
    /// Records that it is no longer open, once.
    fn record_end(&self, call: RecordedCall) {
        if !self.is_closed.swap(true, Ordering::Relaxed) {
            self.client.record(|| RecordLine { call, file: self.id.0, ..RecordLine::default() });
        }
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        self.client.shared.lock().forget(self.id);
        self.record_end(RecordedCall::Drop);
    }
}

/// An operation under way. Dropped, it goes on, and what it comes to is not told; a write that fails then ends all further writes of the open file.
#[derive(Debug)]
pub struct Pending {
    open: Arc<FileHandle>,
    work: Option<WorkId>,
    /// It was cancelled, or was wrong at once.
    over: Option<ClientError>,
    is_read: bool,
    /// What is recorded when it is over.
    call: Option<BegunCall>,
}

/// An operation that is over.
#[derive(Debug)]
pub struct Completed {
    /// The memory that was handed over; none if it was lent, or the operation was cancelled and a drive has it still.
    pub buffer: Vec<u8>,
    /// How many bytes were read or written.
    pub result: Result<usize, ClientError>,
}

impl Pending {
    /// Waits until it is over.
    pub fn wait(mut self) -> Completed {
        let call = self.call.take();
        let (client, since) = (self.open.client.clone(), self.open.client.record_time());
        let completed = self.wait_for();
        if let Some(call) = call {
            call.end(&client, since, completed.result.as_ref().map_err(ClientError::errno).copied());
        }
        completed
    }

    fn wait_for(mut self) -> Completed {
        if let Some(error) = self.over.take() {
            return Completed { buffer: Vec::new(), result: Err(error.at(&self.open.path)) };
        }
        let Some(work) = self.work.take() else {
            return Completed { buffer: Vec::new(), result: Err(unexpected()) };
        };
        let (memory, result) = io_outcome(self.open.client.shared.wait(work));
        Completed {
            buffer: memory.map(CallerMemory::into_owned).unwrap_or_default(),
            result: result.map(|n| n as usize).map_err(|error| error.at(&self.open.path)),
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

    /// Waits until one of them is over, but no longer than that; whether one is. They may be of several clients.
    pub fn wait_any<'a>(pending: impl IntoIterator<Item = &'a Pending>, timeout: Duration) -> bool {
        let mut waited: Vec<Waited> = Vec::new();
        let mut first = None;
        for one in pending {
            first = first.or(one.call.as_ref().map(|call| (call, &one.open.client)));
            let Some(work) = one.work else { return true };
            let shared = &one.open.client.shared;
            match waited.iter_mut().find(|of| Arc::ptr_eq(&of.shared, shared)) {
                Some(of) => of.works.push(work),
                None => waited.push(Waited { shared: shared.clone(), works: vec![work] }),
            }
        }
        let since = first.map_or(0, |(_, client)| client.record_time());
        let is_over = !waited.is_empty() && wait_any(&waited, in_time(timeout));
        // The wait is a call of one of them.
        if let Some((call, client)) = first {
            call.add_called(client, since);
        }
        is_over
    }

    /// Ends a read: [`wait`](Self::wait) returns at once. A write that has begun goes on: a part of it may be on a drive.
    pub fn cancel(&mut self) {
        if let Some(work) = self.work.take_if(|_| self.is_read) {
            self.open.client.shared.lock().cancel(work);
            self.over = Some(ClientError::new(ClientErrorKind::Cancelled));
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(work) = self.work {
            self.open.client.shared.lock().abandon(work);
        }
        if let Some(call) = self.call.take() {
            call.give_up(&self.open.client);
        }
    }
}

impl File {
    pub(super) fn new(client: Client, id: OpenFileId, path: &[u8], at: InodePath) -> Self {
        let deadline = AtomicU64::new(client.shared.deadline.as_nanos() as u64);
        let is_closed = AtomicBool::new(false);
        Self {
            open: Arc::new(FileHandle { client, id, path: path.into(), at, deadline, end: Mutex::new(()), is_closed }),
        }
    }

    /// A buffered stream of its bytes, up to the size that it has at this moment.
    pub fn reader(&self) -> FileReader {
        FileReader::new(vec![File { open: self.open.clone() }])
    }

    /// A buffered stream that writes from an offset on.
    pub fn writer(self, offset: u64) -> FileWriter {
        FileWriter::new(self, offset)
    }

    /// As records number it.
    pub(super) fn number(&self) -> u64 {
        self.open.id.0
    }

    /// A call about it.
    fn line(&self, call: RecordedCall, offset: u64, length: usize) -> RecordLine {
        RecordLine { call, file: self.number(), offset, length: length as u64, ..RecordLine::default() }
    }

    /// A read or write that is begun.
    fn work_line(&self, what: FileWork) -> RecordLine {
        let detail = if matches!(what, FileWork::WriteLast(..)) { "l" } else { "" };
        let line = match (what, what.write()) {
            (FileWork::Read(offset, len), _) => self.line(RecordedCall::Read, offset, len as usize),
            (_, written) => {
                let (offset, len) = written.unwrap_or_default();
                self.line(RecordedCall::Write, offset, len as usize)
            }
        };
        line.with_detail(detail)
    }

    /// Its number, and the directory that it was opened in.
    pub fn at(&self) -> InodePath {
        self.open.at
    }

    /// The size that this client sees: with what it has written.
    pub fn size(&self) -> u64 {
        self.open.client.shared.lock().machine().size(self.open.id).unwrap_or(0)
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

    fn begin(&self, what: FileWork, memory: Option<CallerMemory>, until: Nanos) -> WorkId {
        self.open.client.shared.lock().begin(self.open.id, what, memory, until)
    }

    /// Does an operation and waits; the memory is given back before this returns.
    fn run(&self, what: FileWork, memory: Option<CallerMemory>, until: Nanos) -> Result<usize, ClientError> {
        let work = self.begin(what, memory, until);
        let (memory, result) = io_outcome(self.open.client.shared.wait(work));
        drop(memory);
        result.map(|n| n as usize).map_err(|error| error.at(&self.open.path))
    }

    /// Reads at any offset; fewer bytes than asked for only at the end of the file.
    ///
    /// # Errors
    /// No copy can be read, or has the right bytes; the deadline has passed; the session is over.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, ClientError> {
        let line = self.line(RecordedCall::Read, offset, buffer.len());
        let done = |n: Option<&usize>| RecordLine { done: n.map_or(0, |n| *n as u64), ..line };
        self.open.client.recorded(|| self.read_pieces(offset, buffer), done)
    }

    fn read_pieces(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, ClientError> {
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
        let line = self.line(RecordedCall::Write, offset, bytes.len());
        let done = |written: Option<&()>| RecordLine { done: written.map_or(0, |()| line.length), ..line };
        self.open.client.recorded(|| self.write_pieces(offset, bytes), done)
    }

    fn write_pieces(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        let (until, mut done) = (self.until(), 0);
        for piece in bytes.chunks(self.piece()) {
            let at = self.offset(offset, done)?;
            lend_to_read(piece, |lent| {
                self.run(FileWork::Write(at, piece.len() as u32), Some(CallerMemory::Lent(lent)), until)
            })?;
            done += piece.len();
        }
        Ok(())
    }

    /// Bytes of one write: all copies of its blocks together are few beside what a session may have ahead.
    fn piece(&self) -> usize {
        let shape = self.open.client.shared.lock().machine().shape(self.open.id);
        PIECE / usize::from(shape.map_or(1, |(.., copies)| copies.max(1)))
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
        let append = || {
            let _end = self.open.end.lock().unwrap_or_else(PoisonError::into_inner);
            let offset = self.size();
            self.write_pieces(offset, bytes)?;
            Ok(offset)
        };
        self.open.client.recorded(append, |offset| RecordLine {
            done: offset.map_or(0, |_| bytes.len() as u64),
            ..self.line(RecordedCall::Append, offset.copied().unwrap_or(0), bytes.len())
        })
    }

    /// Begins to read into memory that comes back with the end of the operation: at most 4 GiB.
    ///
    /// # Errors
    /// The memory is too long; everything else is told by [`Pending::wait`].
    pub fn begin_read(&self, offset: u64, buffer: Vec<u8>) -> Result<Pending, ClientError> {
        let len = self.length(buffer.len(), u32::MAX as usize)?;
        self.pending(FileWork::Read(offset, len), CallerMemory::Owned(buffer))
    }

    /// Begins to write memory that comes back with the end of the operation: at most 4 MiB.
    ///
    /// # Errors
    /// The memory is too long; everything else is told by [`Pending::wait`].
    pub fn begin_write(&self, offset: u64, buffer: Vec<u8>) -> Result<Pending, ClientError> {
        let len = self.length(buffer.len(), PIECE)?;
        self.pending(FileWork::Write(offset, len), CallerMemory::Owned(buffer))
    }

    /// As [`begin_write`](Self::begin_write), where nothing is written behind it before the file is closed, as far as is known: then its last block
    /// takes no more room than it needs. What is written behind it nevertheless copies that block.
    ///
    /// # Errors
    /// As [`begin_write`](Self::begin_write).
    pub fn begin_write_last(&self, offset: u64, buffer: Vec<u8>) -> Result<Pending, ClientError> {
        let len = self.length(buffer.len(), PIECE)?;
        self.pending(FileWork::WriteLast(offset, len), CallerMemory::Owned(buffer))
    }

    /// As [`begin_read`](Self::begin_read), into memory that is lent: it is dropped when nothing fills it any more, which after a deadline may
    /// be later than the end of the operation.
    ///
    /// # Errors
    /// As [`begin_read`](Self::begin_read).
    pub fn begin_read_lent(&self, offset: u64, lent: LentBytes) -> Result<Pending, ClientError> {
        let len = self.length(lent.bytes().len(), u32::MAX as usize)?;
        self.pending(FileWork::Read(offset, len), CallerMemory::Lent(lent))
    }

    /// As [`begin_write`](Self::begin_write), from memory that is lent: it is dropped when nothing reads it any more.
    ///
    /// # Errors
    /// As [`begin_write`](Self::begin_write).
    pub fn begin_write_lent(&self, offset: u64, lent: LentBytes) -> Result<Pending, ClientError> {
        let len = self.length(lent.bytes().len(), PIECE)?;
        self.pending(FileWork::Write(offset, len), CallerMemory::Lent(lent))
    }

    fn pending(&self, what: FileWork, memory: CallerMemory) -> Result<Pending, ClientError> {
        let is_read = matches!(what, FileWork::Read(..));
        let since = self.open.client.record_time();
        let work = self.open.client.shared.begin_unwaited(self.open.id, what, memory, self.until());
        let call = self.open.client.begin_recorded(since, || self.work_line(what));
        Ok(Pending { open: self.open.clone(), work: Some(work), over: None, is_read, call })
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
        let truncate = || {
            let _end = self.open.end.lock().unwrap_or_else(PoisonError::into_inner);
            self.run(FileWork::Truncate(size), None, self.until()).map(drop)
        };
        self.open.client.recorded(truncate, |_| RecordLine { length: size, ..self.line(RecordedCall::Truncate, 0, 0) })
    }

    /// Publishes what was written: when it returns others see it, and it is as durable as the store promises.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at); what was written since the last flush is then in doubt.
    pub fn flush(&self) -> Result<(), ClientError> {
        let flush = || self.run(FileWork::Flush, None, self.until()).map(drop);
        self.open.client.recorded(flush, |_| self.line(RecordedCall::Flush, 0, 0))
    }

    /// Fetches the map of these bytes ahead, so that the first read needs no question.
    ///
    /// # Errors
    /// The metadata service does not answer.
    pub fn prefetch(&self, offset: u64, bytes: u64) -> Result<(), ClientError> {
        let (size, block, is_mapped) = {
            let engine = self.open.client.shared.lock();
            let Some((_, block, _)) = engine.machine().shape(self.open.id) else { return Ok(()) };
            (engine.machine().size(self.open.id).unwrap_or(0), block, engine.machine().is_mapped(self.open.id))
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
        let shape = self.open.client.shared.lock().machine().shape(self.open.id);
        let close = || match shape {
            Some((true, ..)) => self.run(FileWork::Close, None, self.until()).map(drop),
            _ => Ok(()),
        };
        self.open.is_closed.store(true, Ordering::Relaxed);
        self.open.client.recorded(close, |_| self.line(RecordedCall::Close, 0, 0))
    }
}
