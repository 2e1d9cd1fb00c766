#![no_std]
#![forbid(unsafe_code)]
//! What every tenant of a drive gets, known beforehand: throughput and latency.
//!
//! Source: the paper on quality of service for NVMe (section IV), equations 1 to 3, as printed in [`equations`]; beside them the fluid
//! model, which stays right where the equations are approximate. Depends on the arbiter's settings, the controller's cost and
//! the workload's words for requests; it runs none of them, and knows no time but the seconds that it computes.
//!
//! ```text
//!  DriveModel (fixed, or measured)  ─┐
//!  Setting (mechanism, weights, cost) ─┼─▶ fluid::shares ─▶ Flow ─▶ latency ─▶ Forecast: Expected per tenant
//!  PlanTenant[] (class, weight, demand) ─┘    commands/s, rounds/s      mean, p50, p99, p999
//! ```
//! **Fluid.** Every round of the arbiter gives a class its weight or quantum; who asks for less leaves the rest to the others. So
//! the rates are those of the highest number of rounds a second that the drive can carry: a weighted max-min, found by bisection.
//! The drive's load is counted in its own resource (slots, bytes in flight, or seconds of a measured drive), whatever unit is
//! arbitrated. **Limits**: loads are stationary and random over the whole drive; queues of one tenant share evenly.
//! `docs/reference/plan-model.md` has the derivation and the measured error.

extern crate alloc;

pub mod calibrate;
mod drive;
pub mod equations;
mod fluid;
mod interpolate;
mod latency;
mod margin;
mod mixed;
mod mixture;
pub mod planner;
pub mod steady;
mod tenant;
#[cfg(test)]
mod tests;
mod wait;
mod windows;

pub use drive::{DriveError, DriveModel};
pub use fluid::{Flow, shares};
pub use latency::{Expected, Forecast, forecast};
pub use margin::Margin;
pub use tenant::{Demand, PlanTenant, Setting};
