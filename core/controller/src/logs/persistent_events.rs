//! The events of the persistent event log (base 2.0, 5.16.1.14): the newest 64 KiB of them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use weir_spec::nvme::maintenance::{PersistentHeader, persistent};

/// PELS: its size in 64 KiB.
pub(crate) const SIZE: u32 = 1;

/// Bytes of events, the head apart.
pub(crate) const BYTES_MAX: usize = ((SIZE as usize) << 16) - size_of::<PersistentHeader>();

/// What an event's data may have at the most.
pub(crate) const DATA_MAX: usize = 512 + 64;

/// Event types that there can be.
pub(crate) const KINDS: [u8; 11] = [
    persistent::SMART,
    persistent::FIRMWARE,
    persistent::TIMESTAMP,
    persistent::RESET,
    persistent::NAMESPACE,
    persistent::FORMAT_START,
    persistent::FORMAT_END,
    persistent::SANITIZE_START,
    persistent::SANITIZE_END,
    persistent::TELEMETRY,
    persistent::THERMAL,
];

/// The events.
#[derive(Clone, Debug, Default)]
pub(crate) struct PersistentEvents {
    /// Head and data of each, oldest first.
    pub events: VecDeque<Vec<u8>>,
    pub bytes: usize,
    /// Contexts that were established.
    pub generation: u16,
}

impl PersistentEvents {
    pub fn push(&mut self, event: Vec<u8>) {
        self.bytes += event.len();
        self.events.push_back(event);
        while self.bytes > BYTES_MAX {
            self.bytes -= self.events.pop_front().map_or(self.bytes, |event| event.len());
        }
    }
}
