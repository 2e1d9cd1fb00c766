//! Which completions signal their interrupt vector, and when: masks (base 2.0, 3.1.3.3 and 3.1.3.4) and coalescing (5.27.1.6).
//!
//! ```text
//!  complete ──▶ vector open: Host::post signals it
//!           └─▶ gated: masked by INTMS ──(INTMC)──▶ Host::interrupt
//!                      coalesced ──(threshold)──▶ Host::post signals it;  ──(aggregation time)──▶ Host::interrupt
//! ```
//! A door signals once for a batch whatever is asked of it here, and has the masks of MSI-X for itself. A vector may be signalled
//! once too often, never too seldom. The admin queue is never coalesced.

use alloc::vec::Vec;
use weir_units::Nanos;

/// Completions of a vector that its host was not told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub controller: u32,
    pub vector: u16,
    pub count: u32,
    /// When it is told.
    pub due: Nanos,
}

/// INTMS and INTMC have a bit for each of so many vectors.
pub(crate) const MASKABLE: u16 = 32;

pub(crate) const fn masks(mask: u32, vector: u16) -> bool {
    vector < MASKABLE && mask >> vector & 1 == 1
}

/// Interrupt vectors that are to be signalled later.
#[derive(Clone, Debug)]
pub(crate) struct HeldInterrupts {
    pub held: Vec<Held>,
    /// When the first one is.
    pub next: Nanos,
}

impl Default for HeldInterrupts {
    fn default() -> Self {
        Self { held: Vec::new(), next: Nanos::NEVER }
    }
}
