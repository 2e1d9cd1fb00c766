//! The structures of `weir_store.h`, field for field. `tests/store.rs` compares sizes and offsets with what a C compiler makes of the header.

use crate::abi::Versioned;
use std::ffi::{c_char, c_void};

/// WEIR_STORE_ALLOW_FILES.
pub const ALLOW_FILES: u32 = 1;

/// WEIR_FILE_WRITE.
pub const WRITE: u32 = 1;
/// WEIR_FILE_CREATE.
pub const CREATE: u32 = 2;
/// WEIR_FILE_EXCLUSIVE.
pub const EXCLUSIVE: u32 = 4;
/// WEIR_FILE_TRUNCATE.
pub const TRUNCATE: u32 = 8;
/// WEIR_PARENTS.
pub const PARENTS: u32 = 16;
/// WEIR_RECURSIVE.
pub const RECURSIVE: u32 = 32;
/// WEIR_REPLACE.
pub const REPLACE: u32 = 64;
/// WEIR_NO_FOLLOW.
pub const NO_FOLLOW: u32 = 128;

/// `weir_store_opts_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StoreOpts {
    /// Bytes that the caller knows of.
    pub size: usize,
    /// What the client calls itself.
    pub name: *const c_char,
    /// Where it is.
    pub location: *const c_char,
    /// Host NQN.
    pub hostnqn: *const c_char,
    /// Milliseconds that a call may take.
    pub deadline_ms: u32,
    /// Milliseconds that a command waits for a drive which is away.
    pub drive_timeout_ms: u32,
    /// WEIR_STORE_*.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

/// `weir_file_opts_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FileOpts {
    /// Bytes that the caller knows of.
    pub size: usize,
    /// Names of classes, best first, with commas between them.
    pub classes: *const c_char,
    /// Where its blocks should be.
    pub location: *const c_char,
    /// Copies of each block.
    pub copies: u32,
    /// Bytes of a block.
    pub block: u32,
    /// Permissions.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Zero.
    pub reserved: u32,
}

/// `weir_stat_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Bytes that the caller knows of.
    pub size: usize,
    /// The number of the inode.
    pub inode: u64,
    /// Bytes of a file.
    pub bytes: u64,
    /// Nanoseconds since 1970.
    pub created_ns: u64,
    /// Nanoseconds since 1970.
    pub modified_ns: u64,
    /// WEIR_KIND_*.
    pub kind: u32,
    /// Permissions.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Copies of each block.
    pub copies: u32,
    /// Bytes of a block.
    pub block: u32,
    /// Names of its classes, best first, with commas between them.
    pub classes: [c_char; 256],
}

/// `weir_entry_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EntryOut {
    /// Bytes that the caller knows of.
    pub size: usize,
    /// The number of the inode.
    pub inode: u64,
    /// Bytes of a file.
    pub bytes: u64,
    /// Nanoseconds since 1970.
    pub modified_ns: u64,
    /// WEIR_KIND_*.
    pub kind: u32,
    /// Permissions.
    pub mode: u32,
    /// Ends with a zero byte.
    pub name: [c_char; 256],
}

/// `weir_store_completion_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StoreCompletion {
    /// The caller's.
    pub user: *mut c_void,
    /// Bytes, or a negative number of `errno.h`.
    pub result: i64,
    /// Why it failed; null if it did not.
    pub reason: *const c_char,
}

/// `weir_store_callback_t`.
pub type StoreCallback = Option<unsafe extern "C" fn(ended: *const StoreCompletion)>;

// SAFETY: integers and raw pointers behind `size`.
unsafe impl Versioned for StoreOpts {}
// SAFETY: integers and raw pointers behind `size`.
unsafe impl Versioned for FileOpts {}
// SAFETY: integers behind `size`.
unsafe impl Versioned for Stat {}
// SAFETY: integers behind `size`.
unsafe impl Versioned for EntryOut {}
