//! Buffered streams: read ahead, written behind.
//!
//! ```text
//!   FileReader   slice │ slice │ slice …   ahead of its caller: AHEAD slices under way
//!   FileWriter   slice │ slice │ slice …   behind its caller: AHEAD slices under way
//! ```

use super::error::ClientError;
use super::file::{File, Pending};
use std::collections::VecDeque;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};

/// Bytes of a slice.
const SLICE: usize = 512 << 10;
/// Slices under way at once.
const AHEAD: usize = 8;

/// Reads a file, or a multifile, in order and ahead.
#[derive(Debug)]
pub struct FileReader {
    /// Each with where it begins in the stream.
    files: Vec<(u64, File)>,
    size: u64,
    /// Where the caller is.
    position: u64,
    /// A slice that is there: where it begins, and its bytes.
    slice: (u64, Vec<u8>),
    ahead: VecDeque<(u64, Pending)>,
    /// Where the next slice begins.
    next: u64,
    /// Slices that are read ahead: more from one to the next.
    depth: usize,
}

impl FileReader {
    pub(super) fn new(files: Vec<File>) -> Self {
        let mut size = 0;
        let begin = |file: File| {
            let at = size;
            size += file.size();
            (at, file)
        };
        let files = files.into_iter().map(begin).collect();
        let (slice, ahead) = ((0, Vec::new()), VecDeque::new());
        Self { files, size, position: 0, slice, ahead, next: 0, depth: 1 }
    }

    /// How many bytes there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn read_ahead(&mut self, mut spare: Vec<u8>) -> Result<(), ClientError> {
        while self.ahead.len() < self.depth && self.next < self.size {
            let Some(at) = self.files.iter().rposition(|(begin, _)| *begin <= self.next) else { return Ok(()) };
            let (begin, file) = &self.files[at];
            let end = self.files.get(at + 1).map_or(self.size, |(begin, _)| *begin);
            let slice_end = (self.next / SLICE as u64 + 1) * SLICE as u64;
            let len = slice_end.min(end) - self.next;
            let mut buffer = std::mem::take(&mut spare);
            buffer.resize(len as usize, 0);
            self.ahead.push_back((self.next, file.begin_read(self.next - begin, buffer)?));
            self.next += len;
        }
        self.depth = (self.depth * 2).min(AHEAD);
        Ok(())
    }

    /// The bytes at the caller's position; none at the end.
    fn fill(&mut self) -> Result<&[u8], ClientError> {
        let (at, bytes) = &self.slice;
        let is_in = self.position >= *at && self.position - at < bytes.len() as u64;
        if !is_in && self.position < self.size {
            if self.ahead.front().is_none_or(|(at, _)| *at != self.position) {
                (self.next, self.depth) = (self.position, 1);
                self.ahead.clear();
            }
            let spare = std::mem::take(&mut self.slice.1);
            self.read_ahead(spare)?;
            if let Some((at, pending)) = self.ahead.pop_front() {
                let completed = pending.wait();
                let n = completed.result?;
                let mut bytes = completed.buffer;
                bytes.truncate(n);
                self.slice = (at, bytes);
                self.read_ahead(Vec::new())?;
            }
        }
        let (at, bytes) = &self.slice;
        let from = usize::try_from(self.position.saturating_sub(*at)).unwrap_or(usize::MAX);
        Ok(if self.position >= *at { bytes.get(from..).unwrap_or_default() } else { &[] })
    }
}

impl Read for FileReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill()?;
        let n = bytes.len().min(to.len());
        to[..n].copy_from_slice(&bytes[..n]);
        weir_sys::copies::count(n);
        self.position += n as u64;
        Ok(n)
    }
}

impl BufRead for FileReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.fill()?)
    }

    fn consume(&mut self, n: usize) {
        self.position += n as u64;
    }
}

impl Seek for FileReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = position(to, self.position, self.size)?;
        Ok(self.position)
    }
}

fn position(to: SeekFrom, at: u64, end: u64) -> io::Result<u64> {
    let moved = match to {
        SeekFrom::Start(at) => Some(at),
        SeekFrom::Current(by) => at.checked_add_signed(by),
        SeekFrom::End(by) => end.checked_add_signed(by),
    };
    moved.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a position before the beginning of the file"))
}

/// Writes a file in order, behind its caller.
#[derive(Debug)]
pub struct FileWriter {
    file: File,
    /// Where the buffer begins in the file.
    at: u64,
    buffer: Vec<u8>,
    behind: VecDeque<Pending>,
    spare: Vec<Vec<u8>>,
    /// Why a slice could not be written: what follows it is not written either.
    failed: Option<ClientError>,
}

impl FileWriter {
    pub(super) fn new(file: File, at: u64) -> Self {
        Self { file, at, buffer: Vec::new(), behind: VecDeque::new(), spare: Vec::new(), failed: None }
    }

    /// Waits until so many slices at the most are under way.
    fn wait(&mut self, most: usize) -> Result<(), ClientError> {
        while self.behind.len() > most {
            let Some(pending) = self.behind.pop_front() else { break };
            let completed = pending.wait();
            if let Err(error) = completed.result {
                self.failed.get_or_insert(error);
            }
            self.spare.push(completed.buffer);
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Begins to write what is buffered; `is_last` if the file is closed after it.
    fn write_behind(&mut self, is_last: bool) -> Result<(), ClientError> {
        if self.buffer.is_empty() {
            return self.failed.clone().map_or(Ok(()), Err);
        }
        self.wait(AHEAD - 1)?;
        let mut next = self.spare.pop().unwrap_or_default();
        next.clear();
        let buffer = std::mem::replace(&mut self.buffer, next);
        let at = self.at;
        self.at += buffer.len() as u64;
        self.behind.push_back(match is_last {
            true => self.file.begin_write_last(at, buffer)?,
            false => self.file.begin_write(at, buffer)?,
        });
        Ok(())
    }

    fn settle(&mut self, is_last: bool) -> Result<(), ClientError> {
        let written = self.write_behind(is_last);
        self.wait(0).and(written)
    }

    /// Writes what is buffered, publishes and closes the file. Dropped instead, what was not flushed is not published.
    ///
    /// # Errors
    /// As [`File::close`], also those of writes before.
    pub fn finish(mut self) -> Result<(), ClientError> {
        self.settle(true)?;
        self.file.close()
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Slices end where those of the file do, so that most cover whole checksums.
        let room = SLICE - (self.at as usize % SLICE) - self.buffer.len();
        let n = bytes.len().min(room);
        self.buffer.extend_from_slice(&bytes[..n]);
        weir_sys::copies::count(n);
        if n == room {
            self.write_behind(false)?;
        }
        Ok(n)
    }

    /// Publishes what was written.
    fn flush(&mut self) -> io::Result<()> {
        self.settle(false)?;
        Ok(self.file.flush()?)
    }
}

impl Seek for FileWriter {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.settle(false)?;
        self.at = position(to, self.at, self.file.size())?;
        Ok(self.at)
    }
}
