#![no_std]
#![forbid(unsafe_code)]
//! Failures of a drive by rule: which commands a rule is about, when it applies, and what becomes of them. Statuses are those of NVMe base 2.0 and
//! of the NVM command set 1.0.
//!
//! ```text
//!   "media-error lba=8-15 op=read count=3" ── FaultRule::parse ─▶ FaultRule { target, schedule, effect }
//!   [[fault]], JSON ── FaultRule::from_pairs ──────────────────────┘            │ checked against DriveFacts
//!                                                                               ▼
//!   FaultyCommand, now ──────────── FaultPlan::decide ─▶ FaultVerdict { delays, outcome }
//!   now ─────────────────────────── FaultPlan::conditions ─▶ what holds now: read only, no link, a slow die …
//! ```
//! A [`FaultPlan`] has no clock and no I/O: the drive that owns it hands in the time and each command, and carries out the verdict. With the
//! same rules, seeds, commands and times it answers the same.
//!
//! Effects are of two kinds. *Outcomes* befall a command: a status, a delay, corrupted data. *Conditions* hold for a while: from the rule's
//! time on, or from the command that triggers them, until its window ends or the rule is removed.
//!
//! **Limits.** A place in the flash ([`FlashPlace`]) is matched by reads alone: where a write goes is decided when it is programmed.

extern crate alloc;

mod check;
mod effect;
mod fields;
mod plan;
mod rule;
mod saved;
mod words;

#[cfg(test)]
mod tests;

pub use check::{DriveFacts, FlashShape, NamespaceFacts};
pub use effect::{FaultEffect, LatencySpread, SmartDrift};
pub use plan::{FaultDelay, FaultOutcome, FaultPlan, FaultVerdict, FaultyCommand, PlannedFault};
pub use rule::{FaultRule, FaultSchedule, FaultTarget, FlashPlace, LbaSpan, PlaceFilter};
pub use saved::{PlannedState, fingerprint};
pub use words::{FAULT_KEYS, RuleError};
