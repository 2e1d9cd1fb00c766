//! Files that are open: reads and writes that wait.

use super::abi::{self, FileOpts};
use super::failure::{StoreFailure, answer, made, status};
use super::handles::{Handle, Handles};
use super::{STORES, bytes, known_flags, names, optional, unused};
use crate::abi as common;
use crate::abi::ErrorOut;
use rustix::io::Errno;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};
use weir_store::StoreError;
use weir_store::records::COPIES_MAX;
use weir_store::space::{BLOCK_MAX, BLOCK_MIN};
use weir_store_node::client::{Client, ClientError, CreateOptions, File, OpenOptions, Pending};

/// Permissions of a file, where the caller says nothing.
const FILE_MODE: u32 = 0o644;

/// Every file that is open.
pub static FILES: Handles<OpenFile> = Handles::new("file");

/// `weir_file_t`. Calls hold the lock to read while they use the file; a close holds it to write.
#[derive(Debug)]
pub struct OpenFile {
    file: RwLock<Option<File>>,
    is_writable: bool,
    /// Requests of queues that have not ended.
    in_flight: AtomicU32,
}

fn closed() -> StoreFailure {
    StoreFailure::usage("the file is closed")
}

impl OpenFile {
    fn new(file: File, is_writable: bool) -> Self {
        Self { file: RwLock::new(Some(file)), is_writable, in_flight: AtomicU32::new(0) }
    }

    fn with<T>(&self, what: impl FnOnce(&File) -> Result<T, ClientError>) -> Result<T, StoreFailure> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        Ok(what(file.as_ref().ok_or_else(closed)?)?)
    }

    /// That it may be written.
    ///
    /// # Errors
    /// EBADF: it was opened to be read.
    pub fn check_writable(&self) -> Result<(), StoreFailure> {
        match self.is_writable {
            true => Ok(()),
            false => {
                Err(StoreFailure::new(Errno::BADF, "the file was not opened to be written: WEIR_FILE_WRITE does that"))
            }
        }
    }

    /// Begins a request of a queue; [`ended`](Self::ended) has to follow.
    ///
    /// # Errors
    /// The file is closed, or as the client's.
    pub fn begin(&self, what: impl FnOnce(&File) -> Result<Pending, ClientError>) -> Result<Pending, StoreFailure> {
        self.with(|file| {
            let pending = what(file)?;
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            Ok(pending)
        })
    }

    /// A request of a queue has ended.
    pub fn ended(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// The file, which is closed from then on.
    fn take(&self) -> Result<File, StoreFailure> {
        let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
        match self.in_flight.load(Ordering::Relaxed) {
            0 => file.take().ok_or_else(closed),
            count => {
                let text = format!("{count} requests of the file are in flight: poll their queue first");
                Err(StoreFailure::new(Errno::BUSY, text))
            }
        }
    }
}

/// Closes a file: as `what` does.
fn close(handle: *mut Handle, what: impl FnOnce(File) -> Result<(), ClientError>) -> c_int {
    status(|| {
        if !handle.is_null() {
            let file = FILES.get(handle)?.take()?;
            FILES.remove(handle)?;
            what(file)?;
        }
        Ok(0)
    })
}

/// What new files are made with.
///
/// # Safety
/// `opts` is null or as its size says, its strings null or strings.
pub(super) unsafe fn create_options(opts: *const FileOpts, flags: u32) -> Result<CreateOptions, StoreFailure> {
    // SAFETY: as the caller says.
    let opts = unsafe { common::read("opts", opts) }?;
    unused("opts.reserved", opts.reserved)?;
    // SAFETY: as the caller says.
    let (classes, location) =
        unsafe { (optional("opts.classes", opts.classes)?, optional("opts.location", opts.location)?) };
    let names = classes.unwrap_or_default();
    let copies = u8::try_from(opts.copies).ok().filter(|copies| usize::from(*copies) <= COPIES_MAX);
    let copies = copies.ok_or_else(|| {
        StoreFailure::usage(format!("opts.copies: a block has 1 to {COPIES_MAX} copies, not {}", opts.copies))
    })?;
    if opts.block != 0 && !((BLOCK_MIN..=BLOCK_MAX).contains(&opts.block.into()) && opts.block.is_power_of_two()) {
        let text = format!("opts.block: {}; write a power of two from {BLOCK_MIN} to {BLOCK_MAX}", opts.block);
        return Err(StoreFailure::usage(text));
    }
    Ok(CreateOptions {
        mode: names::permissions("opts.mode", opts.mode, FILE_MODE)?,
        uid: opts.uid,
        gid: opts.gid,
        classes: names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        copies,
        block: Some(opts.block).filter(|block| *block > 0),
        location,
        exclusive: flags & abi::EXCLUSIVE != 0,
        parents: flags & abi::PARENTS != 0,
        ..CreateOptions::default()
    })
}

/// A caller's memory, to be read.
///
/// # Safety
/// Null, or `length` bytes that stay as they are while the slice lives.
pub(super) unsafe fn to_read<'a>(from: *const c_void, length: usize) -> Result<&'a [u8], StoreFailure> {
    check_memory(from, length)?;
    // SAFETY: as the caller says; none where there are no bytes.
    Ok(if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(from.cast(), length) } })
}

/// A caller's memory, to be filled.
///
/// # Safety
/// Null, or `length` writable bytes that are the slice's while it lives.
pub(super) unsafe fn to_fill<'a>(to: *mut c_void, length: usize) -> Result<&'a mut [u8], StoreFailure> {
    check_memory(to, length)?;
    // SAFETY: as the caller says; none where there are no bytes.
    Ok(if length == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(to.cast(), length) } })
}

/// That memory is some.
pub(super) fn check_memory(memory: *const c_void, length: usize) -> Result<(), StoreFailure> {
    if memory.is_null() && length > 0 {
        return Err(StoreFailure::usage("the buffer is null"));
    }
    match isize::try_from(length) {
        Ok(_) => Ok(()),
        Err(_) => Err(StoreFailure::usage(format!("{length} bytes are more than memory has"))),
    }
}

const OPEN_FLAGS: u32 = abi::WRITE | abi::CREATE | abi::EXCLUSIVE | abi::TRUNCATE | abi::PARENTS;

fn check_open_flags(flags: u32) -> Result<(), StoreFailure> {
    known_flags(flags, OPEN_FLAGS)?;
    let is_set = |flag: u32| flags & flag != 0;
    if is_set(abi::EXCLUSIVE | abi::PARENTS) && !is_set(abi::CREATE) {
        return Err(StoreFailure::usage("flags: WEIR_FILE_EXCLUSIVE and WEIR_PARENTS go with WEIR_FILE_CREATE"));
    }
    if is_set(abi::TRUNCATE) && !is_set(abi::WRITE | abi::CREATE) {
        return Err(StoreFailure::usage("flags: WEIR_FILE_TRUNCATE goes with WEIR_FILE_WRITE or WEIR_FILE_CREATE"));
    }
    Ok(())
}

/// Opens a file, or makes it.
fn open(client: &Client, path: &[u8], flags: u32, options: &CreateOptions) -> Result<File, ClientError> {
    let is_set = |flag: u32| flags & flag != 0;
    let there = OpenOptions {
        write: is_set(abi::WRITE | abi::CREATE),
        truncate: is_set(abi::TRUNCATE),
        ..OpenOptions::default()
    };
    if !is_set(abi::CREATE) {
        return client.open(path, there);
    }
    if is_set(abi::EXCLUSIVE | abi::TRUNCATE) {
        return client.create(path, options);
    }
    let new = CreateOptions { exclusive: true, ..options.clone() };
    loop {
        match client.open(path, there) {
            Err(error) if error.is_not_found() => {}
            opened => return opened,
        }
        match client.create(path, &new) {
            // Another client was faster: its file is opened.
            Err(error) if error.store_error() == Some(StoreError::Exists) => {}
            made => return made,
        }
    }
}

/// Opens a file.
///
/// # Safety
/// `path` is null or a string; `opts` is null or as its size says, its strings null or strings; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_file_open(
    store: *mut Handle,
    path: *const c_char,
    flags: u32,
    opts: *const FileOpts,
    error: *mut ErrorOut,
) -> *mut Handle {
    // SAFETY: as the caller says.
    unsafe {
        made(error, || {
            let client = STORES.get(store)?.client()?;
            check_open_flags(flags)?;
            let (path, options) = (bytes("the path", path)?, create_options(opts, flags)?);
            let is_writable = flags & (abi::WRITE | abi::CREATE) != 0;
            Ok(FILES.add(OpenFile::new(open(&client, path, flags, &options)?, is_writable)))
        })
    }
}

/// Publishes what was written, and closes a file.
#[unsafe(no_mangle)]
pub extern "C" fn weir_file_close(file: *mut Handle) -> c_int {
    close(file, File::close)
}

/// Closes a file without publishing what was not flushed.
#[unsafe(no_mangle)]
pub extern "C" fn weir_file_abandon(file: *mut Handle) -> c_int {
    close(file, |file| {
        drop(file);
        Ok(())
    })
}

/// The size of a file, with what was written.
#[unsafe(no_mangle)]
pub extern "C" fn weir_file_size(file: *mut Handle) -> i64 {
    answer(|| {
        let size = FILES.get(file)?.with(|file| Ok(file.size()))?;
        i64::try_from(size).map_err(|_| StoreFailure::new(Errno::OVERFLOW, "the file has 2^63 bytes or more"))
    })
}

/// Reads.
///
/// # Safety
/// `buffer` is null or `length` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_file_read(file: *mut Handle, buffer: *mut c_void, offset: u64, length: usize) -> i64 {
    answer(|| {
        let file = FILES.get(file)?;
        // SAFETY: as the caller says.
        let buffer = unsafe { to_fill(buffer, length) }?;
        Ok(file.with(|file| file.read_at(offset, buffer))? as i64)
    })
}

/// Writes.
///
/// # Safety
/// `buffer` is null or `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_file_write(file: *mut Handle, buffer: *const c_void, offset: u64, length: usize) -> i64 {
    answer(|| {
        let file = FILES.get(file)?;
        file.check_writable()?;
        // SAFETY: as the caller says.
        let buffer = unsafe { to_read(buffer, length) }?;
        file.with(|file| file.write_at(offset, buffer))?;
        Ok(length as i64)
    })
}

/// Writes behind the end.
///
/// # Safety
/// `buffer` is null or `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_file_append(file: *mut Handle, buffer: *const c_void, length: usize) -> i64 {
    answer(|| {
        let file = FILES.get(file)?;
        file.check_writable()?;
        // SAFETY: as the caller says.
        let buffer = unsafe { to_read(buffer, length) }?;
        Ok(file.with(|file| file.append(buffer))? as i64)
    })
}

/// Cuts or lengthens a file.
#[unsafe(no_mangle)]
pub extern "C" fn weir_file_truncate(file: *mut Handle, size: u64) -> c_int {
    status(|| {
        let file = FILES.get(file)?;
        file.check_writable()?;
        file.with(|file| file.truncate(size))?;
        Ok(0)
    })
}

/// Publishes what was written.
#[unsafe(no_mangle)]
pub extern "C" fn weir_file_flush(file: *mut Handle) -> c_int {
    status(|| {
        FILES.get(file)?.with(File::flush)?;
        Ok(0)
    })
}
