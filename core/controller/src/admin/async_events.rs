//! Asynchronous events of one controller (base 2.0, 5.2).
//!
//! ```text
//!  raise ──▶ pending ──(a request is there, its type is not masked)──▶ reported, type masked ──(log read, RAE = 0)──▶ unmasked
//! ```

use alloc::vec::Vec;
use weir_spec::nvme::feature::async_config;
use weir_spec::nvme::log::critical_warning::{READ_ONLY, RELIABILITY, SPARE, TEMPERATURE};
use weir_spec::nvme::log::{AsyncEvent, event_type};
use weir_spec::nvme::zns;

/// Asynchronous event requests a controller holds (AERL + 1).
pub(crate) const LIMIT: usize = 4;

/// Everything that can be reported, most urgent first; a set of them is a bit mask.
const EVENTS: [AsyncEvent; 18] = [
    AsyncEvent::PERSISTENT_INTERNAL_ERROR,
    AsyncEvent::DIAGNOSTIC_FAILURE,
    AsyncEvent::FIRMWARE_LOAD_ERROR,
    AsyncEvent::INVALID_DOORBELL_REGISTER,
    AsyncEvent::INVALID_DOORBELL_VALUE,
    AsyncEvent::RELIABILITY,
    AsyncEvent::TEMPERATURE,
    AsyncEvent::SPARE,
    AsyncEvent::ANA_CHANGE,
    AsyncEvent::NAMESPACE_ATTRIBUTE,
    AsyncEvent::FIRMWARE_STARTING,
    AsyncEvent::TELEMETRY_CHANGED,
    AsyncEvent::ENDURANCE_CHANGE,
    AsyncEvent::ZONE_DESCRIPTOR_CHANGED,
    AsyncEvent::DISCOVERY_CHANGE,
    AsyncEvent::RESERVATION,
    AsyncEvent::SANITIZE_COMPLETED,
    AsyncEvent::LBA_STATUS,
];

/// A request that waits for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingEventRequest {
    pub cid: u16,
    pub tag: u32,
}

/// Requests that wait, events that are pending, types that are masked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aer {
    pub waiting: Vec<PendingEventRequest>,
    pending: u32,
    masked: u8,
}

/// Whether Asynchronous Event Configuration lets an event through. Errors cannot be switched off.
fn wanted(event: AsyncEvent, config: u32) -> bool {
    match (event.kind, event) {
        (_, AsyncEvent::TEMPERATURE) => config & u32::from(TEMPERATURE) != 0,
        (_, AsyncEvent::SPARE) => config & u32::from(SPARE) != 0,
        (_, AsyncEvent::FIRMWARE_STARTING) => config & async_config::FIRMWARE != 0,
        (_, AsyncEvent::TELEMETRY_CHANGED) => config & async_config::TELEMETRY != 0,
        (_, AsyncEvent::ANA_CHANGE) => config & async_config::ANA != 0,
        (_, AsyncEvent::LBA_STATUS) => config & async_config::LBA_STATUS != 0,
        (_, AsyncEvent::ENDURANCE_CHANGE) => config & async_config::ENDURANCE != 0,
        (_, AsyncEvent::RELIABILITY) => config & u32::from(RELIABILITY | READ_ONLY) != 0,
        (event_type::SMART, _) => config & async_config::SMART != 0,
        (_, AsyncEvent::NAMESPACE_ATTRIBUTE) => config & async_config::NAMESPACE != 0,
        (_, AsyncEvent::ZONE_DESCRIPTOR_CHANGED) => config & zns::NOTICES != 0,
        (_, AsyncEvent::DISCOVERY_CHANGE) => config & async_config::DISCOVERY != 0,
        _ => true,
    }
}

impl Aer {
    /// An event happened. The same event pending twice is reported once.
    pub fn raise(&mut self, event: AsyncEvent, config: u32) {
        if let Some(i) = EVENTS.iter().position(|e| *e == event) {
            if wanted(event, config) {
                self.pending |= 1 << i;
            }
        }
    }

    /// What could be reported now, if a request waits.
    pub fn reportable(&self) -> Option<AsyncEvent> {
        let open = |(i, e): &(usize, &AsyncEvent)| self.pending & 1 << i != 0 && self.masked & 1 << e.kind == 0;
        (!self.waiting.is_empty()).then(|| EVENTS.iter().enumerate().find(open).map(|(_, e)| *e))?
    }

    /// Takes the oldest request to report that event; its type is masked until the host reads the log.
    pub fn report(&mut self, event: AsyncEvent) -> PendingEventRequest {
        self.masked |= 1 << event.kind;
        if let Some(i) = EVENTS.iter().position(|e| *e == event) {
            self.pending &= !(1 << i);
        }
        self.waiting.remove(0)
    }

    /// What is pending and what is masked, as bits.
    pub fn reported(&self) -> (u32, u8) {
        (self.pending, self.masked)
    }

    /// Gives it what another one had; `None` for events that there are not.
    pub fn set_reported(&mut self, pending: u32, masked: u8) -> Option<()> {
        (self.pending, self.masked) = (pending, masked);
        (pending >> EVENTS.len() == 0).then_some(())
    }

    /// The log page was read with RAE = 0: its events are cleared, reported or not.
    pub fn cleared(&mut self, lid: u8) {
        for (i, event) in EVENTS.iter().enumerate().filter(|(_, e)| e.lid == lid) {
            self.pending &= !(1 << i);
            self.masked &= !(1 << event.kind);
        }
    }

    /// The controller is disabled: everything is forgotten; the requests are the caller's to drop.
    pub fn reset(&mut self) -> Vec<PendingEventRequest> {
        (self.pending, self.masked) = (0, 0);
        core::mem::take(&mut self.waiting)
    }
}
