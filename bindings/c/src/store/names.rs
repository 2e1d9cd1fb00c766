//! Names: what they lead to, directories, and what is done with a file as a whole.

use super::abi::{self, EntryOut, FileOpts, Stat};
use super::failure::{StoreFailure, answer, made, status};
use super::handles::{Handle, Handles};
use super::{STORES, bytes, files, known_flags};
use crate::abi as common;
use crate::abi::ErrorOut;
use rustix::io::Errno;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};
use weir_store::{ClassName, Inode, InodeId, InodeKind, ListEntry};
use weir_store_node::client::{Client, Listing};

/// Permissions of a directory, where the caller says nothing.
const DIRECTORY_MODE: u32 = 0o755;
/// Twelve bits.
const MODE_MAX: u32 = 0o7777;

static DIRECTORIES: Handles<OpenDir> = Handles::new("directory");

/// `weir_dir_t`.
#[derive(Debug)]
struct OpenDir(Mutex<Listing>);

fn client(store: *const Handle) -> Result<Client, StoreFailure> {
    Ok(STORES.get(store)?.client()?)
}

/// Permissions; 0 is the default.
///
/// # Errors
/// They have more than 12 bits.
pub(super) fn permissions(name: &str, mode: u32, default: u32) -> Result<u32, StoreFailure> {
    match mode {
        0 => Ok(default),
        1..=MODE_MAX => Ok(mode),
        _ => Err(StoreFailure::usage(format!("{name}: {mode:#o} has more than the 12 bits of permissions"))),
    }
}

fn kind(kind: InodeKind) -> u32 {
    u32::from(kind as u8)
}

fn stat(number: InodeId, inode: &Inode, classes: &[ClassName]) -> Stat {
    let names: Vec<&str> =
        inode.classes.iter().filter_map(|class| classes.get(usize::from(class.0))).map(ClassName::as_str).collect();
    Stat {
        size: size_of::<Stat>(),
        inode: number.0,
        bytes: inode.size,
        created_ns: inode.created.0,
        modified_ns: inode.modified.0,
        kind: kind(inode.kind),
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        copies: inode.copies.into(),
        block: inode.block,
        classes: common::text(&names.join(",")),
    }
}

fn entry(found: &ListEntry) -> EntryOut {
    let mut name = [0; 256];
    // At most 255 bytes, so a zero byte stays behind them.
    for (to, from) in name.iter_mut().zip(found.name.as_bytes().iter().take(255)) {
        *to = *from as c_char;
    }
    let inode = found.inode.as_deref();
    EntryOut {
        size: size_of::<EntryOut>(),
        inode: found.record.inode.0,
        bytes: inode.map_or(0, |inode| inode.size),
        modified_ns: inode.map_or(0, |inode| inode.modified.0),
        kind: kind(found.record.kind),
        mode: inode.map_or(0, |inode| inode.mode),
        name,
    }
}

/// What a path leads to.
///
/// # Safety
/// `path` is null or a string; `to` is null or as its size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_store_stat(store: *mut Handle, path: *const c_char, flags: u32, to: *mut Stat) -> c_int {
    status(|| {
        let client = client(store)?;
        // SAFETY: as the caller says.
        let path = unsafe { bytes("the path", path) }?;
        known_flags(flags, abi::NO_FOLLOW)?;
        let found = if flags & abi::NO_FOLLOW == 0 { client.stat(path) } else { client.stat_link(path) }?;
        // SAFETY: as the caller says.
        unsafe { common::write("stat", to, &stat(found.at.inode, &found.inode, &client.classes())) }?;
        Ok(0)
    })
}

/// Makes a directory.
///
/// # Safety
/// `path` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_store_mkdir(store: *mut Handle, path: *const c_char, mode: u32, flags: u32) -> c_int {
    status(|| {
        let client = client(store)?;
        // SAFETY: as the caller says.
        let path = unsafe { bytes("the path", path) }?;
        known_flags(flags, abi::PARENTS)?;
        client.make_directory(path, flags & abi::PARENTS != 0, permissions("mode", mode, DIRECTORY_MODE)?)?;
        Ok(0)
    })
}

/// Gives what has a name another one.
///
/// # Safety
/// `from` and `to` are null or strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_store_rename(
    store: *mut Handle,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> c_int {
    status(|| {
        let client = client(store)?;
        // SAFETY: as the caller says.
        let (from, to) = unsafe { (bytes("from", from)?, bytes("to", to)?) };
        known_flags(flags, abi::REPLACE)?;
        client.rename(from, to, flags & abi::REPLACE != 0)?;
        Ok(0)
    })
}

/// Deletes a name.
///
/// # Safety
/// `path` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_store_remove(store: *mut Handle, path: *const c_char, flags: u32) -> c_int {
    status(|| {
        let client = client(store)?;
        // SAFETY: as the caller says.
        let path = unsafe { bytes("the path", path) }?;
        known_flags(flags, abi::RECURSIVE)?;
        client.remove(path, flags & abi::RECURSIVE != 0)?;
        Ok(0)
    })
}

/// Makes or replaces a file as a whole.
///
/// # Safety
/// `path` is null or a string; `from` is null or `length` bytes; `opts` is null or as its size says, its strings null or strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_store_put(
    store: *mut Handle,
    path: *const c_char,
    from: *const c_void,
    length: usize,
    flags: u32,
    opts: *const FileOpts,
) -> i64 {
    answer(|| {
        let client = client(store)?;
        known_flags(flags, abi::EXCLUSIVE | abi::PARENTS)?;
        // SAFETY: as the caller says.
        let (path, from, options) =
            unsafe { (bytes("the path", path)?, files::to_read(from, length)?, files::create_options(opts, flags)?) };
        client.put_small(path, from, &options)?;
        Ok(length as i64)
    })
}

/// All bytes of a file.
///
/// # Safety
/// `path` is null or a string; `to` is null or `size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_store_get(store: *mut Handle, path: *const c_char, to: *mut c_void, size: usize) -> i64 {
    answer(|| {
        let client = client(store)?;
        // SAFETY: as the caller says.
        let (path, to) = unsafe { (bytes("the path", path)?, files::to_fill(to, size)?) };
        let there = client.stat(path)?.inode.size;
        if there > to.len() as u64 {
            let text = format!("{}: it has {there} bytes, and the buffer {size}", String::from_utf8_lossy(path));
            return Err(StoreFailure::new(Errno::RANGE, text));
        }
        let got = client.get_small(path, to.len())?;
        to[..got.len()].copy_from_slice(&got);
        Ok(got.len() as i64)
    })
}

/// The names of a directory.
///
/// # Safety
/// `path` is null or a string; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_dir_open(store: *mut Handle, path: *const c_char, error: *mut ErrorOut) -> *mut Handle {
    // SAFETY: as the caller says.
    unsafe {
        made(error, || {
            let listing = client(store)?.list(bytes("the path", path)?)?;
            Ok(DIRECTORIES.add(OpenDir(Mutex::new(listing))))
        })
    }
}

/// The next name.
///
/// # Safety
/// `to` is null or as its size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_dir_next(dir: *mut Handle, to: *mut EntryOut) -> c_int {
    status(|| {
        let dir = DIRECTORIES.get(dir)?;
        // That the name has a place is known before it is taken.
        // SAFETY: as the caller says.
        unsafe { common::check("entry", to) }?;
        let next = dir.0.lock().unwrap_or_else(PoisonError::into_inner).next().transpose()?;
        let Some(found) = next else { return Ok(0) };
        // SAFETY: as the caller says.
        unsafe { common::write("entry", to, &entry(&found)) }?;
        Ok(1)
    })
}

/// Ends a list of names.
#[unsafe(no_mangle)]
pub extern "C" fn weir_dir_close(dir: *mut Handle) -> c_int {
    status(|| {
        if !dir.is_null() {
            DIRECTORIES.remove(dir)?;
        }
        Ok(0)
    })
}
