//! What log pages tell beyond the state of the drive: errors, events, and what was caught of it.

use crate::config::DiscoveryRecord;
use crate::log_state::persistent_events::PersistentEvents;
use crate::log_state::telemetry::Telemetry;
use alloc::vec::Vec;
use weir_units::Nanos;

pub(crate) mod error_log;
pub(crate) mod persistent_events;
pub(crate) mod telemetry;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs {
    pub telemetry: Telemetry,
    pub events: PersistentEvents,
    /// What a host has set the timestamp to last, ms since 1970, and when.
    pub timestamp: Option<(u64, Nanos)>,
    /// Errors that were logged since the drive was powered on.
    pub errors: u64,
}

/// The discovery log's records (base 2.0, 5.16.1.23).
#[derive(Clone, Debug, Default)]
pub(crate) struct Discovery {
    pub records: Vec<DiscoveryRecord>,
    pub generation: u64,
}
