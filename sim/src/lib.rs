#![forbid(unsafe_code)]
//! Virtual time around the machines that the daemon runs: the same drive, no clock, no threads, no bytes. A seed and a
//! configuration decide everything that happens.
//!
//! ```text
//!  Job ─▶ SimulatedClient ─ Event::Submit ─▶ Subsystem ─ Effect::Io ─▶ nothing to move: Event::Done at once
//!           ▲  closed loop or rate     │  ▲                            │
//!           └──── Host::respond ◀──────┘  └── now = next_deadline ◀────┘
//! ```
//! [`SimulatedDrive`] holds one drive and its clients: every job has a front controller and one queue per copy. Service times are the
//! drive's own (`latency` and `slots` of its [`Config`](weir_controller::Config)); between two of them nothing happens, so the
//! clock jumps. [`Scenario`] is the file of `weir sim`, read with the configuration's reader of `node`; [`trace`] replays files.
//!
//! [`plan`] answers `weir plan`.
//!
//! Several drives of a file are a [`Scenario`] each: nothing couples them. What is not here yet: volumes.

pub mod accuracy;
mod client;
pub mod failures;
mod host;
pub mod import;
mod job;
mod open_channel;
pub mod plan;
pub mod reproduce;
mod run;
mod scenario;
pub mod trace;
mod world;

pub use client::SimulatedClient;
pub use open_channel::{Collection, HostFtl, HostFtlConfig, HostFtlError, HostFtlWork, HostRequest};
pub use run::{PowerCutOutcome, RunError, RunProgress, SimulationResult};
pub use scenario::Scenario;
pub use world::{AnsweredRequest, Setup, SimulatedDrive, WorldError};
