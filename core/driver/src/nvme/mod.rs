//! Bring-up and ring queue pairs of a memory-model NVMe controller (NVMe base 2.0, 3.3.1 and 3.5.1), over a [`Port`].
//!
//! ```text
//!   ControllerPlan ──► BringUp::poll ──► EnabledController { identity, AdminQueue, … } ──► IoQueue::{submit, reap}
//!               │                                                 │
//!               └────── Port: registers, doorbells, memory ───────┘
//! ```
//! A [`ControllerPlan`] says what is wanted and where in host memory everything lies, from one base address on: admin rings, a page
//! for Identify, the rings of each I/O queue pair, and for each request a page-aligned buffer, a PRP list and a range of
//! dataset management. Nothing is allocated per request, and a request's slot is its command identifier.
//!
//! **Limits.** One namespace; contiguous queues; buffers of at most 2 MiB where the controller takes no SGLs (one page of
//! PRP list).

mod admin;
mod bring_up;
mod plan;
mod port;
mod queue;
mod remake;
mod rings;
#[cfg(test)]
mod tests;

pub use admin::AdminQueue;
pub use bring_up::{BringUp, ControllerIdentity, EnabledController};
pub use plan::{ControllerPlan, QueuePlan};
pub use port::Port;
pub use queue::IoQueue;
pub use remake::Remake;
pub use rings::QueuePairRings;

use crate::TransportError;
use alloc::format;
use weir_spec::nvme::Status;

/// A memory page of the controller's (CC.MPS = 0).
pub(crate) const PAGE: u64 = 4096;

pub(crate) fn refused(what: &str, status: Status) -> TransportError {
    let text = format!("the controller refuses {what}: {status}");
    match status.same_code(Status::INVALID_NAMESPACE_OR_FORMAT) {
        true => TransportError::NoNamespace(text),
        false => TransportError::Refused(text),
    }
}

pub(crate) fn protocol(what: &str) -> TransportError {
    TransportError::Protocol(format!("the controller breaks the protocol: {what}"))
}
