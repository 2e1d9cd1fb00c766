//! The figures of papers/000, "Analyzing, Modeling, and Provisioning QoS for NVMe SSDs".
//!
//! ```text
//!   overhead   figures 1 and 2: what an I/O costs the program that asks for it, against Linux     real time
//!   baseline   figure 3: a device without arbitration; timers: the old design in virtual time     both
//!   emulation  figure 6: how fast the emulation is, against the old design                        real time
//!   model      figure 7: equations 2 and 3 and the fluid model against what is measured           virtual, or real (--live)
//!   scenarios  figure 8: five scenarios under WRR, DRR and none                                   virtual, or real (--live)
//! ```
//! Below them: `access` (how a program reaches its bytes), `designs` (what is compared in figures 3 and 6), `shared_drive` and `either_clock` (jobs
//! that share a drive, by the clock that was asked for).

mod access;
mod baseline;
mod designs;
mod either_clock;
mod emulation;
mod model;
mod overhead;
mod scenarios;
mod shared_drive;
mod timers;

pub use access::{AccessPath, AccessPattern, Overhead, Storage, Usage};
pub(super) use baseline::figure as fig3;
pub use designs::{Design, Load};
pub(super) use emulation::figure as fig6;
pub(super) use model::figure as fig7;
pub(super) use overhead::{fig1, fig2};
pub(super) use scenarios::figure as fig8;
pub use shared_drive::{CAPACITY, SLOT_BYTES, SharedDrive, Span};
pub use timers::{BURST, PERIOD, QueueTimers};
