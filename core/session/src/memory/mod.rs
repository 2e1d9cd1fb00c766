//! The port to memory that somebody else owns and changes while we look: a guest's, or a front end's.
//!
//! `weir-sys` implements it over mapped files, `model` (feature `testing`) over a `Vec`. It is dispatched statically. Nothing that reads or
//! writes through it ever holds a reference into that memory: values are copied out once, checked, and only the copy is
//! used.
//!
//! A place that is used often (a ring) is resolved once into a [`Memory::Window`]; a place used once (a request's
//! buffer) is given by its guest address each time. A window of a region that has gone is refused, not followed.

#[cfg(any(test, feature = "testing"))]
pub mod model;

use core::fmt;
use core::sync::atomic::Ordering;
use weir_journal::JournalMemory;
use weir_spec::vfio_user::errno;

/// An access that the memory cannot serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryFault {
    /// No region, or not one region alone, covers it.
    Unmapped,
    /// It goes beyond its window.
    OutOfWindow,
    /// Its address is not a multiple of its size.
    Misaligned,
    /// The region was removed after the window was made.
    Stale,
}

impl fmt::Display for MemoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemoryFault::Unmapped => "the address is not in any memory region",
            MemoryFault::OutOfWindow => "the access goes beyond its window",
            MemoryFault::Misaligned => "the address is not aligned",
            MemoryFault::Stale => "the memory region was removed",
        })
    }
}

impl core::error::Error for MemoryFault {}

/// Why memory could not be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The file ends before the region does.
    TooShort {
        /// Bytes needed.
        need: u64,
        /// Bytes that the file has.
        have: u64,
    },
    /// The system refused, with this error number.
    System(i32),
}

impl MapError {
    /// The error number that says so.
    pub const fn errno(&self) -> u32 {
        match self {
            MapError::TooShort { .. } => errno::EINVAL,
            MapError::System(errno) => errno.unsigned_abs(),
        }
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::TooShort { need, have } => write!(f, "the file has {have} bytes, the region ends at {need}"),
            MapError::System(errno) => write!(f, "cannot map it: error {errno}"),
        }
    }
}

impl core::error::Error for MapError {}

/// Words whose bits somebody else clears while we set them: a dirty log.
pub trait Bits {
    /// Sets bits of a word, one of [`JournalMemory::count`], atomically, after everything that was written before.
    fn set(&self, at: usize, bits: u64);
}

/// Shared memory, addressed as its owner's guest does.
///
/// Accesses through a window are atomic, of the size in the name, little endian, and ordered as asked (loads take
/// `Relaxed` or `Acquire`, stores `Relaxed` or `Release`). Bulk copies have no order of their own: an acquiring load
/// before and a releasing store after give it.
pub trait Memory {
    /// A resolved range; see the module.
    type Window: Copy + fmt::Debug;
    /// What a journal of what is in flight lies in, and a dirty log: a memory of its own, beside the guest's.
    type Words: JournalMemory + Bits + Clone;

    /// Resolves `len` bytes at `address`, which must lie in one region.
    fn window(&self, address: u64, len: usize) -> Result<Self::Window, MemoryFault>;
    /// Loads 16 bits at `at` in the window.
    fn load16(&self, window: &Self::Window, at: usize, order: Ordering) -> Result<u16, MemoryFault>;
    /// Loads 64 bits at `at` in the window.
    fn load64(&self, window: &Self::Window, at: usize, order: Ordering) -> Result<u64, MemoryFault>;
    /// Stores 16 bits at `at` in the window.
    fn store16(&self, window: &Self::Window, at: usize, value: u16, order: Ordering) -> Result<(), MemoryFault>;
    /// Stores 64 bits at `at` in the window; it must be 4-byte aligned only, and may be seen in two halves.
    fn store_pair32(&self, window: &Self::Window, at: usize, low: u32, high: u32) -> Result<(), MemoryFault>;
    /// Stores 64 bits at `at` in the window.
    fn store64(&self, window: &Self::Window, at: usize, value: u64, order: Ordering) -> Result<(), MemoryFault>;
    /// Copies out; the range may span adjacent regions.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryFault>;
    /// Copies in; the range may span adjacent regions.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), MemoryFault>;
    /// Copies 16 bytes, a header or a descriptor of any alignment.
    #[inline]
    fn read_entry(&self, address: u64) -> Result<[u8; 16], MemoryFault> {
        let mut b = [0; 16];
        self.read(address, &mut b)?;
        Ok(b)
    }
    /// Loads 32 bits at `at` in the window: the low or the high half of two 16-bit fields that belong together.
    fn load32(&self, window: &Self::Window, at: usize, order: Ordering) -> Result<u32, MemoryFault>;
    /// Hints that the bytes are needed soon. Never faults.
    #[inline]
    fn prefetch(&self, _address: u64, _len: usize) {}
    /// Hints that the line at `at` in the window is needed soon. Never faults.
    #[inline]
    fn prefetch_window(&self, _window: &Self::Window, _at: usize) {}
    /// A fence, as `core::sync::atomic::fence`.
    #[inline]
    fn fence(&self, order: Ordering) {
        core::sync::atomic::fence(order);
    }
}
