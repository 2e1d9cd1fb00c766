//! What `weir_policy.h` says, in Rust: same order, same sizes.

use std::ffi::{c_char, c_int, c_void};

/// `WEIR_POLICY_VERSION`.
pub(super) const VERSION: u32 = 2;

/// `WEIR_POLICY_FAILED`: the function has failed, and is not called again. Other values below 0 are `WEIR_POLICY_NONE`: the drive decides this one.
pub(super) const FAILED: i64 = -2;

/// `struct weir_policy_drive`.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Drive {
    /// 4 KiB units that the host is offered.
    pub units: u64,
    /// The drive's seed.
    pub seed: u64,
    /// Planes of all dies.
    pub planes: u32,
    /// Blocks of a plane.
    pub blocks: u32,
    /// 4 KiB units of a block.
    pub block_units: u32,
    /// Streams that the drive keeps apart.
    pub streams: u32,
}

/// `struct weir_policy_plane`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Plane {
    /// Valid units by block; more than `block_units` where the block must not be chosen.
    pub valid: *const u16,
    /// Erases by block.
    pub erases: *const u32,
    /// When each was programmed last, in programs of the whole drive.
    pub written_at: *const u64,
    /// Blocks of each of the three.
    pub blocks: usize,
    /// Programs of the whole drive so far.
    pub now: u64,
    /// Units of a block.
    pub block_units: u32,
    pub reserved: u32,
}

/// `struct weir_policy_command`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Command {
    /// Where it begins, in bytes of the drive's media.
    pub offset: u64,
    /// Bytes.
    pub bytes: u32,
    /// What the drive's own `cost` charges.
    pub own: u32,
    /// Place of the tenant in the drive's list.
    pub tenant: u16,
    /// As NVMe has it.
    pub opcode: u8,
    /// 1: durable when complete.
    pub fua: u8,
    pub reserved: u32,
}

/// `struct weir_policy_random`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Random {
    /// The next 64 bits of `state`.
    pub next: unsafe extern "C" fn(*mut c_void) -> u64,
    /// The generator.
    pub state: *mut c_void,
}

/// `weir_policy`.
pub(super) type Entry = unsafe extern "C" fn() -> *const Policy;

pub(super) type Create = unsafe extern "C" fn(*const c_char, *const Drive, *mut c_char, usize) -> *mut c_void;
pub(super) type Destroy = unsafe extern "C" fn(*mut c_void);
pub(super) type Victim = unsafe extern "C" fn(*mut c_void, *const Plane, *const Random) -> i64;
pub(super) type Take = unsafe extern "C" fn(*mut c_void, *const u32, usize, *const u32, c_int) -> i64;
pub(super) type Rotate = unsafe extern "C" fn(*mut c_void, *const Plane, u32) -> i64;
pub(super) type Stream = unsafe extern "C" fn(*mut c_void, u32, u8, u8) -> i64;
pub(super) type Moved = unsafe extern "C" fn(*mut c_void, u32, u8, u8) -> i64;
pub(super) type Cost = unsafe extern "C" fn(*mut c_void, *const Command) -> i64;

/// `struct weir_policy`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Policy {
    pub version: u32,
    pub size: u32,
    pub name: *const c_char,
    pub create: Option<Create>,
    pub destroy: Option<Destroy>,
    pub victim: Option<Victim>,
    pub take: Option<Take>,
    pub rotate: Option<Rotate>,
    pub stream: Option<Stream>,
    pub moved: Option<Moved>,
    pub cost: Option<Cost>,
}

// SAFETY: it is only read, and the header says that it does not change once `weir_policy` has answered with it.
unsafe impl Sync for Policy {}
