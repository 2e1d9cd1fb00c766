//! Open files, and memory of the Java machine that their bytes go to and come from.

use crate::failure::Failure;
use jni::Env;
use jni::objects::{JByteArray, JByteBuffer};
use std::cell::RefCell;
use std::io::{BufRead, Read, Seek, SeekFrom, Write};
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_store_node::client::{ClientError, ClientErrorKind, File, FileReader, FileWriter};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes that go between an array and the store at once.
const PIECE: usize = 256 << 10;

thread_local! {
    /// Bytes on their way between an array of Java and the store.
    static PASSED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A part of an array or a buffer, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Where it begins.
    pub offset: usize,
    /// How long it is.
    pub length: usize,
}

impl Part {
    /// As Java gives it.
    ///
    /// # Errors
    /// A number is negative.
    pub fn new(offset: i32, length: i32) -> Result<Self, Failure> {
        match (usize::try_from(offset), usize::try_from(length)) {
            (Ok(offset), Ok(length)) => Ok(Self { offset, length }),
            _ => Err(usage(format!("{length} bytes at {offset}: these are no numbers of bytes"))),
        }
    }
}

fn usage(text: String) -> Failure {
    ClientError::new(ClientErrorKind::Usage(text)).into()
}

/// Has memory of a direct buffer read or written.
///
/// # Errors
/// The buffer is not direct, or shorter than the part says.
pub fn with_direct<T>(
    env: &Env<'_>,
    buffer: &JByteBuffer<'_>,
    Part { offset, length }: Part,
    what: impl FnOnce(&mut [u8]) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (address, capacity) = (env.get_direct_buffer_address(buffer)?, env.get_direct_buffer_capacity(buffer)?);
    if offset.checked_add(length).is_none_or(|end| end > capacity) {
        return Err(usage(format!("{length} bytes at {offset} do not lie in a buffer of {capacity}")));
    }
    // SAFETY: the Java machine gives the address of `capacity` bytes, which stay while the caller's reference to the buffer lives, that is
    // for this call. As with every channel of Java, nobody else uses these bytes meanwhile, or what is in them is anyone's guess.
    what(unsafe { slice::from_raw_parts_mut(address.add(offset), length) })
}

/// A file that is read: at any position, and in order and ahead.
#[derive(Debug)]
pub struct OpenReader {
    file: File,
    stream: Mutex<FileReader>,
}

impl OpenReader {
    /// Over a file that is open.
    pub fn new(file: File) -> Self {
        let stream = Mutex::new(file.reader());
        Self { file, stream }
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.file.size()
    }

    /// Reads at a position, with no copy. Fewer bytes only at the end.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_at(&self, position: u64, to: &mut [u8]) -> Result<usize, Failure> {
        Ok(self.file.read_at(position, to)?)
    }

    /// The same into an array.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_at_to_array(
        &self,
        env: &Env<'_>,
        position: u64,
        array: &JByteArray<'_>,
        part: Part,
    ) -> Result<usize, Failure> {
        PASSED.with_borrow_mut(|passed| {
            let mut done = 0;
            while done < part.length {
                let wanted = (part.length - done).min(PIECE);
                passed.resize(passed.len().max(wanted), 0);
                let n = self.file.read_at(position + done as u64, &mut passed[..wanted])?;
                array.set_region(env, (part.offset + done) as i32, signed(&passed[..n]))?;
                done += n;
                if n < wanted {
                    break;
                }
            }
            Ok(done)
        })
    }

    fn stream_at(&self, position: u64) -> Result<MutexGuard<'_, FileReader>, Failure> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.seek(SeekFrom::Start(position))?;
        Ok(stream)
    }

    /// Reads what is there of the stream: from memory that was read ahead, or else it waits.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read(&self, position: u64, to: &mut [u8]) -> Result<usize, Failure> {
        Ok(self.stream_at(position)?.read(to)?)
    }

    /// The same into an array: one copy.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_to_array(
        &self,
        env: &Env<'_>,
        position: u64,
        array: &JByteArray<'_>,
        part: Part,
    ) -> Result<usize, Failure> {
        let mut stream = self.stream_at(position)?;
        let there = stream.fill_buf()?;
        let n = there.len().min(part.length);
        array.set_region(env, part.offset as i32, signed(&there[..n]))?;
        stream.consume(n);
        Ok(n)
    }
}

/// A file that is written in order.
#[derive(Debug)]
pub struct OpenWriter {
    begin: u64,
    /// None after it was closed.
    stream: Mutex<Option<FileWriter>>,
}

impl OpenWriter {
    /// Over a file that is open, from its end on.
    pub fn new(file: File) -> Self {
        let begin = file.size();
        Self { begin, stream: Mutex::new(Some(file.writer(begin))) }
    }

    /// Bytes of the file before the first one that is written.
    pub fn begin(&self) -> u64 {
        self.begin
    }

    fn with<T>(&self, what: impl FnOnce(&mut FileWriter) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        what(stream.as_mut().ok_or(Failure::Closed("stream"))?)
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// As [`File::write_at`], also those of writes before.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.with(|stream| Ok(stream.write_all(bytes)?))
    }

    /// The same from an array.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_array(&self, env: &Env<'_>, array: &JByteArray<'_>, part: Part) -> Result<(), Failure> {
        PASSED.with_borrow_mut(|passed| {
            let mut done = 0;
            while done < part.length {
                let wanted = (part.length - done).min(PIECE);
                passed.resize(passed.len().max(wanted), 0);
                array.get_region(env, (part.offset + done) as i32, signed_mut(&mut passed[..wanted]))?;
                self.write(&passed[..wanted])?;
                done += wanted;
            }
            Ok(())
        })
    }

    /// Publishes what was written.
    ///
    /// # Errors
    /// As [`File::flush`].
    pub fn flush(&self) -> Result<(), Failure> {
        self.with(|stream| Ok(stream.flush()?))
    }

    /// Publishes and closes; the second time it does nothing.
    ///
    /// # Errors
    /// As [`FileWriter::finish`].
    pub fn close(&self) -> Result<(), Failure> {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(stream.map_or(Ok(()), FileWriter::finish)?)
    }
}

/// Bytes as Java has them.
fn signed(bytes: &[u8]) -> &[i8] {
    // Every byte is one of these.
    <[i8]>::ref_from_bytes(bytes).unwrap_or_default()
}

fn signed_mut(bytes: &mut [u8]) -> &mut [i8] {
    <[i8]>::mut_from_bytes(bytes.as_mut_bytes()).unwrap_or_default()
}
