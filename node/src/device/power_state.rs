//! A drive without power, and what a power cut has done.

use std::sync::mpsc::SyncSender;
use weir_units::Nanos;

/// What a power cut did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PowerCut {
    /// Units of 4 KiB whose newest writes are gone.
    pub lost_units: u64,
    /// Those writes.
    pub lost_writes: u64,
    /// Pages of which the spare area was read.
    pub pages_read: u64,
    /// How long the drive needs until it is up again.
    pub rebuild: Nanos,
    /// How often it was powered on.
    pub power_cycles: u64,
    /// How often it lost power without being shut down.
    pub unsafe_shutdowns: u64,
}

/// Where the answer goes.
pub type PowerReply = SyncSender<Result<PowerCut, String>>;

/// A drive without power.
pub(super) struct Down {
    /// Who waits to hear; nobody once everything is put back.
    pub(super) reply: Option<PowerReply>,
    pub(super) seed: u64,
    pub(super) until: Nanos,
}

impl Down {
    /// When it is up again.
    pub(super) fn until(&self) -> Nanos {
        self.until
    }
}
