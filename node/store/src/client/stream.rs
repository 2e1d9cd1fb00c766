//! Buffered streams: read ahead, written behind.

use super::error::{ClientError, ClientErrorKind};
use super::file::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Reads a file, or a multifile, in order and ahead.
#[derive(Debug)]
pub struct FileReader {
    _file: File,
}

/// Writes a file in order, behind its caller.
#[derive(Debug)]
pub struct FileWriter {
    _file: File,
}

fn not_built() -> ClientError {
    ClientError::new(ClientErrorKind::Unreachable("the client is not built yet".into()))
}

impl FileReader {
    /// How many bytes there are.
    pub fn size(&self) -> u64 {
        0
    }
}

impl Read for FileReader {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(not_built().into())
    }
}

impl Seek for FileReader {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(not_built().into())
    }
}

impl FileWriter {
    /// Writes what is buffered, publishes and closes the file. Dropped instead, what was not flushed is not published.
    ///
    /// # Errors
    /// As [`File::close`], also those of writes before.
    pub fn finish(self) -> Result<(), ClientError> {
        Err(not_built())
    }
}

impl Write for FileWriter {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(not_built().into())
    }

    /// Publishes what was written.
    fn flush(&mut self) -> io::Result<()> {
        Err(not_built().into())
    }
}

impl Seek for FileWriter {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(not_built().into())
    }
}
