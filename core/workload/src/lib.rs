#![no_std]
#![forbid(unsafe_code)]
//! What to ask of a drive, and how it did: job descriptions, request generators, data patterns, latency statistics.
//!
//! The same machines serve `weir bench` in real time and `weir sim` in virtual time: whoever drives them hands in the time
//! and carries the requests.
//!
//! ```text
//!   "--job name=gold,rw=randread,…" ─► Job ─► Generator ─► Request ─► (a queue pair) ─► Recorder ─► JobResult
//!                                       │         ▲                         │
//!                                       └► Pacer ─┘ when it may leave       └► Verifier: what must a read return?
//! ```
//!
//! Depends on `weir-units` only; checksums come in through [`verify::Crc`], so that the hardware's may be used.
//! Everything is deterministic from [`Job`], seed and the times handed in. Nothing allocates after construction, except a
//! series that outgrows its expected length.

extern crate alloc;

#[cfg(test)]
extern crate std;

mod generator;
mod histogram;
mod job;
pub mod math;
mod pace;
mod planned;
mod quantiles;
mod report;
mod skew;
pub mod verify;

pub use generator::{Generator, JobTarget, Request, RequestKind, WorkloadError};
pub use histogram::{BadHistogram, Histogram};
pub use job::{Job, JobError, JobRegion, Mix, Pattern, Rate};
pub use pace::{Arrival, Pacer};
pub use planned::{Answered, Planned};
pub use quantiles::{ByKind, PARTS, Quantiles, quantile};
pub use report::{JobResult, Latency, Recorder, SeriesPoint, Summary};
pub use skew::{Skew, Theta, Zones};
pub use weir_units::rng::Xoshiro256;
