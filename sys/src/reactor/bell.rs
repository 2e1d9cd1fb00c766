//! The word with which a sleeping reactor is woken, apart from what it is woken by, so that every interleaving of it can be
//! tried (`tests/bell.rs`).
//!
//! ```text
//!            send: queue, then swap NOTIFIED            turn: swap AWAKE, then the owner empties its queues
//!   AWAKE ───────────────────────────► NOTIFIED ───────────────────────────► AWAKE
//!     └──── wait: compare-and-swap ──► SLEEPING ── send: swap NOTIFIED, write the eventfd
//! ```
//! A message is queued before the swap and looked for after one, so whichever swap comes second sees the other: either the
//! reactor finds NOTIFIED and does not sleep, or the sender finds SLEEPING and writes the eventfd.

use super::atomic::{AtomicU32, Ordering};

const AWAKE: u32 = 0;
const NOTIFIED: u32 = 1;
const SLEEPING: u32 = 2;

/// The state of one reactor.
pub(super) struct Bell(AtomicU32);

impl Bell {
    /// Of a reactor that is awake.
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// Notifies, after something was queued; true where the reactor sleeps and its eventfd has to be written.
    #[inline]
    pub(super) fn notify(&self) -> bool {
        // AcqRel: what was queued before is visible to whoever swaps next; SLEEPING was stored after the last look.
        self.0.swap(NOTIFIED, Ordering::AcqRel) == SLEEPING
    }

    /// Awake again. True where somebody has notified since; the queues must be emptied after this call.
    #[inline]
    pub(super) fn take(&self) -> bool {
        // Relaxed: a notification that this load does not see yet is seen by the compare-and-swap before the next sleep.
        self.0.load(Ordering::Relaxed) != AWAKE && self.0.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }

    /// Goes to sleep; false where somebody has notified: then there must be no sleep.
    pub(super) fn sleep(&self) -> bool {
        self.0.compare_exchange(AWAKE, SLEEPING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
