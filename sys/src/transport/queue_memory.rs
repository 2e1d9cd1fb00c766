//! The memory that a host shares with a memory-model NVMe controller: entries of its rings, parts of its file.

use crate::memory::GuestMemory;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};
use weir_driver::TransportError;
use weir_session::memory::Memory;
use weir_session::vhost_user::{GuestRegion, Map};
use weir_spec::nvme::Cqe;
use zerocopy::IntoBytes;

/// Polls of a controller that is waited for before they are paced, and the pause between them from then on.
pub(super) const QUICK: u32 = 64;
pub(super) const PACE: std::time::Duration = std::time::Duration::from_millis(1);
/// Empty polls of a queue between looks at whether its drive is still there.
pub(super) const LOOK: u32 = 1 << 14;
/// Bytes of a page of the controller's.
pub(super) const PAGE: u32 = 4096;

/// A completion queue entry in memory that the controller writes, if its phase tag is `phase`.
#[inline]
pub(super) fn take(memory: &GuestMemory, address: u64, phase: bool) -> Option<Cqe> {
    let window = memory.window(address, size_of::<Cqe>()).ok()?;
    // Acquire: the rest of the entry, and the data, are not older than the half with the phase tag.
    let high = memory.load64(&window, 8, Ordering::Acquire).ok()?;
    if (high >> 48 & 1 == 1) != phase {
        return None;
    }
    let low = memory.load64(&window, 0, Ordering::Relaxed).ok()?;
    Some(zerocopy::transmute!([low.to_le(), high.to_le()]))
}

/// Writes a submission queue entry.
#[inline]
pub(super) fn put(memory: &GuestMemory, address: u64, entry: &[u64; 8]) {
    // The address is the plan's own, and the plan's memory is mapped.
    let _ = memory.write(address, entry.map(u64::to_le).as_bytes());
}

/// Stores a shadow doorbell, and then loads its event index, a page behind it.
#[inline]
pub(super) fn shadow_doorbell(memory: &GuestMemory, address: u64, value: u32) -> u32 {
    let index = || {
        let pages = memory.window(address, PAGE as usize + 4).ok()?;
        // Values are below 2^16, and so the other half is zero.
        memory.store16(&pages, 0, value as u16, Ordering::Release).ok()?;
        // The controller stores an event index and then loads the doorbell: one of the two sees the other's.
        fence(Ordering::SeqCst);
        memory.load32(&pages, PAGE as usize, Ordering::Relaxed).ok()
    };
    // The address is the plan's own, and the plan's memory is mapped; who is always rung misses nothing.
    index().unwrap_or_else(|| value.wrapping_sub(1))
}

/// Maps a part of the memory file, which begins at the DMA address `base`.
pub(super) fn add(memory: &mut GuestMemory, file: &OwnedFd, base: u64, part: Range<u64>) -> io::Result<()> {
    let (guest, offset) = (part.start, part.start - base);
    memory
        .add(GuestRegion { guest, len: part.end - guest, user: guest, offset }, file.try_clone()?)
        .map_err(io::Error::other)
}

/// Says whose error it is.
pub(super) fn named(place: &str, e: TransportError) -> TransportError {
    let text = |m: String| format!("{place}: {m}");
    match e {
        TransportError::Unreachable(m) => TransportError::Unreachable(text(m)),
        TransportError::Refused(m) => TransportError::Refused(text(m)),
        TransportError::NoNamespace(m) => TransportError::NoNamespace(text(m)),
        TransportError::Closed(m) => TransportError::Closed(text(m)),
        TransportError::Protocol(m) => TransportError::Protocol(text(m)),
        TransportError::Timeout(m) => TransportError::Timeout(text(m)),
        TransportError::Usage(m) => TransportError::Usage(text(m)),
    }
}
