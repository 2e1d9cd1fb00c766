//! What log pages tell beyond the state of the drive: errors, events, and what was caught of it.

pub(crate) mod error_log;
pub(crate) mod persistent_events;
pub(crate) mod telemetry;
