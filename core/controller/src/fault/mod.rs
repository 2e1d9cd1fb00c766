//! Failures by rule (`weir-fault`): the hook that each command passes, what becomes of a command, and conditions that hold for a while.
//!
//! ```text
//!  start_slow ─▶ rules? ─┬─▶ none about it: as planned
//!                        ├─▶ fails: refused, counted as a media error, in the error log
//!                        ├─▶ late, or hangs: held ─▶ (its time, the rule's end) ─▶ fetched
//!                        └─▶ torn, misdirected, lost, corrupt: planned anew, or marked in its slot
//!  run ─▶ conditions that begin or end: no link, read only, CFS, another size …
//! ```
//! A namespace has a reason for the slow path ([`why::FAULTS`](crate::namespace::why::FAULTS)) while some rule sees I/O commands: a drive without rules
//! does nothing for them.

mod commands;
mod conditions;
pub(crate) mod operator;
mod spoiling;
pub(crate) mod state;
pub(crate) mod transfer;
