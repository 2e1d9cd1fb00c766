//! Open files: reads and writes of any bytes, waited for or not.

use super::Client;
use super::error::{ClientError, ClientErrorKind};
use std::time::Duration;

/// An open file. All methods may be called by several threads at once.
///
/// Others see what was written, and the size, when it is published: by [`flush`](Self::flush) or [`close`](Self::close).
#[derive(Debug)]
pub struct File {
    _client: Client,
}

/// An operation under way. Dropped, it is waited for where it writes, and cancelled where it reads.
#[derive(Debug)]
pub struct Pending {
    _client: Client,
}

/// An operation that is over.
#[derive(Debug)]
pub struct Completed {
    /// The memory that was lent to it.
    pub buffer: Vec<u8>,
    /// How many bytes were read or written.
    pub result: Result<usize, ClientError>,
}

fn not_built() -> ClientError {
    ClientError::new(ClientErrorKind::Unreachable("the client is not built yet".into()))
}

impl Pending {
    /// Waits until it is over.
    pub fn wait(self) -> Completed {
        Completed { buffer: Vec::new(), result: Err(not_built()) }
    }

    /// Whether it is over, so that [`wait`](Self::wait) does not wait.
    pub fn is_done(&self) -> bool {
        false
    }

    /// Ends it if it can be ended. It is still to be waited for. A write that is cancelled may have been done in part, and ends all
    /// further writes of the open file.
    pub fn cancel(&self) {}
}

impl File {
    /// The size that this client sees: with what it has written.
    pub fn size(&self) -> u64 {
        0
    }

    /// How long each operation that begins from now on may take.
    pub fn set_deadline(&self, deadline: Duration) {
        let _ = deadline;
    }

    /// Reads at any offset; fewer bytes than asked for only at the end of the file.
    ///
    /// # Errors
    /// No copy can be read, or has the right bytes; the deadline has passed; the session is over.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, ClientError> {
        let _ = (offset, buffer);
        Err(not_built())
    }

    /// Writes all bytes, at any offset.
    ///
    /// # Errors
    /// No copy can be written, or no class has room; the deadline has passed; the session is over; the file was opened to be read.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        let _ = (offset, bytes);
        Err(not_built())
    }

    /// Writes all bytes behind the end; where they were written.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&self, bytes: &[u8]) -> Result<u64, ClientError> {
        let _ = bytes;
        Err(not_built())
    }

    /// Begins to read into memory that comes back with the end of the operation.
    ///
    /// # Errors
    /// Only what is wrong at once; see [`Pending::wait`].
    pub fn begin_read(&self, offset: u64, buffer: Vec<u8>) -> Result<Pending, ClientError> {
        let _ = (offset, buffer);
        Err(not_built())
    }

    /// Begins to write memory that comes back with the end of the operation.
    ///
    /// # Errors
    /// Only what is wrong at once; see [`Pending::wait`].
    pub fn begin_write(&self, offset: u64, buffer: Vec<u8>) -> Result<Pending, ClientError> {
        let _ = (offset, buffer);
        Err(not_built())
    }

    /// Cuts the file to that size, or lengthens it by zeroes. What was written before is published.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn truncate(&self, size: u64) -> Result<(), ClientError> {
        let _ = size;
        Err(not_built())
    }

    /// Publishes what was written: when it returns others see it, and it is as durable as the store promises.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at); what was written since the last flush is then in doubt.
    pub fn flush(&self) -> Result<(), ClientError> {
        Err(not_built())
    }

    /// Fetches the map of these bytes ahead, so that the first read needs no question.
    ///
    /// # Errors
    /// The metadata service does not answer.
    pub fn prefetch(&self, offset: u64, bytes: u64) -> Result<(), ClientError> {
        let _ = (offset, bytes);
        Err(not_built())
    }

    /// Publishes what was written, and closes the file. Dropped instead, what was not flushed is not published.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn close(self) -> Result<(), ClientError> {
        Err(not_built())
    }
}
