//! What SMART counts over a drive's whole life: what was counted before the power went last, and what has been since.

use crate::stats::Work;
use weir_units::Nanos;

/// What was counted before the drive was powered on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub work: Work,
    /// Time that something was in flight, and that the drive had power.
    pub busy: u64,
    pub on: u64,
    pub media_errors: u64,
    pub errors: u64,
    pub warm: Nanos,
    pub hot: Nanos,
}
