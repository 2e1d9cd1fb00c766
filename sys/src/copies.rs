//! How much of what is read and written this process has copied from one place of its memory to another on the way between a drive and
//! whoever asked: what comes straight into its caller's memory is not among it.

use std::sync::atomic::{AtomicU64, Ordering};

static COPIED: AtomicU64 = AtomicU64::new(0);

/// So many bytes were copied.
#[inline]
pub fn count(bytes: usize) {
    if bytes > 0 {
        COPIED.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Bytes that were copied since the process began.
pub fn total() -> u64 {
    COPIED.load(Ordering::Relaxed)
}
