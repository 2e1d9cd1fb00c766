//! The structures of `weir.h`, field for field, and how they cross the boundary. `tests/api.rs` compares sizes and offsets with
//! what a C compiler makes of the header.

use crate::error::{Code, Error};
use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;

/// WEIR_ABI_VERSION.
pub const ABI_VERSION: u32 = 0;

/// WEIR_HEADER_DIGEST.
pub const HEADER_DIGEST: u32 = 1;
/// WEIR_DATA_DIGEST.
pub const DATA_DIGEST: u32 = 2;
/// WEIR_PACKED_RING.
pub const PACKED_RING: u32 = 4;

/// `weir_error_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ErrorOut {
    /// A [`Code`].
    pub code: c_int,
    /// Ends with a zero byte.
    pub message: [c_char; 252],
}

/// `weir_opts_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Opts {
    /// Bytes that the caller knows of.
    pub size: usize,
    /// Host NQN.
    pub hostnqn: *const c_char,
    /// Queues of a vhost-user device.
    pub queues: u32,
    /// Requests in flight on a queue.
    pub depth: u32,
    /// Bytes of the longest request.
    pub max_io: u32,
    /// Keep alive timeout.
    pub keep_alive_ms: u32,
    /// Flags.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

/// `weir_queue_opts_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QueueOpts {
    /// Bytes that the caller knows of.
    pub size: usize,
    /// WEIR_CLASS_*.
    pub io_class: u32,
    /// Zero.
    pub reserved: u32,
}

/// `weir_info_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Bytes that the caller knows of.
    pub size: usize,
    /// Bytes of the namespace.
    pub capacity: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// NSID.
    pub nsid: u32,
    /// Queues at the same time; 0 where it is the target's affair.
    pub queues: u32,
    /// Zero.
    pub reserved: u32,
    /// Name of the transport.
    pub transport: [c_char; 16],
}

/// `weir_queue_info_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QueueInfo {
    /// Bytes that the caller knows of.
    pub size: usize,
    /// Requests in flight at most.
    pub depth: u32,
    /// Bytes of the longest request.
    pub max_io: u32,
    /// WEIR_CLASS_*.
    pub io_class: u32,
    /// Requests in flight.
    pub in_flight: u32,
    /// Buffers handed out.
    pub buffers: u32,
    /// Zero.
    pub reserved: u32,
}

/// `weir_completion_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The caller's.
    pub user: *mut c_void,
    /// A [`Code`].
    pub result: c_int,
    /// NVMe status field.
    pub status: u16,
    /// Zero.
    pub reserved: u16,
}

/// `weir_callback_t`.
pub type Callback = Option<unsafe extern "C" fn(user: *mut c_void, result: c_int, status: u16)>;

/// A structure that begins with its size, and of which all zeroes is a value.
///
/// # Safety
/// `repr(C)`, `size` is the first field, and any bytes make a value.
pub unsafe trait Versioned: Copy {}

// SAFETY: integers and a raw pointer behind `size`.
unsafe impl Versioned for Opts {}
// SAFETY: integers behind `size`.
unsafe impl Versioned for QueueOpts {}
// SAFETY: integers behind `size`.
unsafe impl Versioned for Info {}
// SAFETY: integers behind `size`.
unsafe impl Versioned for QueueInfo {}

/// Bytes of a structure that a caller may claim at most: an uninitialised size is larger.
const CLAIM_MAX: usize = 4096;

fn claimed<T>(name: &str, size: usize) -> Result<usize, Error> {
    if (size_of::<usize>()..=CLAIM_MAX).contains(&size) {
        return Ok(size.min(size_of::<T>()));
    }
    Err(Error::usage(format!("{name}: its size is {size}; fill it by its _init function first")))
}

/// What a caller hands in: its fields, zero for those that it does not know.
///
/// # Errors
/// The size makes no sense, or the caller knows a field that this library does not, and has set it.
///
/// # Safety
/// `from` is null or points to as many readable bytes as its first field says.
pub unsafe fn read<T: Versioned>(name: &str, from: *const T) -> Result<T, Error> {
    // SAFETY: any bytes make a value, zeroes too (`Versioned`).
    let mut value = unsafe { MaybeUninit::<T>::zeroed().assume_init() };
    if from.is_null() {
        return Ok(value);
    }
    // SAFETY: the structure begins with its size, which is readable; the pointer may be of any alignment.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    let known = claimed::<T>(name, size)?;
    // SAFETY: `known` is at most what the caller has and what fits `value`.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut value).cast::<u8>(), known) };
    for at in known..size {
        // SAFETY: within the bytes that the caller says it has.
        if unsafe { from.cast::<u8>().add(at).read() } != 0 {
            let own = size_of::<T>();
            return Err(Error::usage(format!(
                "{name}: byte {at} is set, and this library knows {own} bytes of it: it is older than the header"
            )));
        }
    }
    Ok(value)
}

/// That a structure to be filled is one, before there is anything to fill it with.
///
/// # Errors
/// As [`write`].
///
/// # Safety
/// As [`write`].
pub unsafe fn check<T: Versioned>(name: &str, to: *const T) -> Result<(), Error> {
    if to.is_null() {
        return Err(Error::usage(format!("{name} is null")));
    }
    // SAFETY: the structure begins with its size, which is readable.
    claimed::<T>(name, unsafe { to.cast::<usize>().read_unaligned() }).map(drop)
}

/// What a caller asks for: as much of `value` as fits what it has; its size stays as it was.
///
/// # Errors
/// `to` is null, or its size makes no sense.
///
/// # Safety
/// `to` is null or points to as many writable bytes as its first field says.
pub unsafe fn write<T: Versioned>(name: &str, to: *mut T, value: &T) -> Result<(), Error> {
    if to.is_null() {
        return Err(Error::usage(format!("{name} is null")));
    }
    // SAFETY: the structure begins with its size, which is readable.
    let size = unsafe { to.cast::<usize>().read_unaligned() };
    let known = claimed::<T>(name, size)?;
    let head = size_of::<usize>();
    // SAFETY: `known` bytes are the caller's and exist in `value`.
    unsafe {
        std::ptr::copy_nonoverlapping(
            (&raw const *value).cast::<u8>().add(head),
            to.cast::<u8>().add(head),
            known - head,
        );
    }
    Ok(())
}

/// Text in a fixed array, cut at a character, with a zero byte behind it.
pub fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(text[..end].bytes()) {
        *to = from as c_char;
    }
    out
}

impl ErrorOut {
    /// As the caller reads it.
    pub fn new(error: &Error) -> Self {
        Self { code: error.code as c_int, message: text(&error.text) }
    }

    /// Nothing is wrong.
    pub fn none() -> Self {
        Self { code: Code::Ok as c_int, message: [0; 252] }
    }
}
