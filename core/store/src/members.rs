//! Members: client sessions, which all services of a store see alike; and the storage nodes.
//!
//! ```text
//!   client   SessionHolder ── Renew(acknowledged epoch) ──► a service: Sessions ──► Kv: session record, hold record
//!                          ◄─ Renewed(epoch) ──────────────
//!   service  Sessions ─► Horizon(epoch) ─► Space         no session has an older map, or I/O under one
//!                     ─► Fence(session) ─► the targets ─► Fenced ─► Ended(session) ─► Space
//!   node     NodeTable ─► which regions are open, what is lost by name, what moves away
//! ```
//! **Leases** are counted on each side's own clock, which must run while the machine sleeps (CLOCK_BOOTTIME), and may be wrong by a drift
//! ([`LeaseTiming`]). The holder counts from when it *sent* the renewal, and stops early by the drift and the time that stopping takes.
//! Everybody else counts from when it *saw* the renewal in Kv, and waits longer by the drift. So the holder has stopped before others go
//! on, without any two clocks being compared. A machine that stood still breaks this, so others go on only when the targets have fenced
//! the session as well.
//!
//! **A session** has two records: `c` ([`SessionRecord`](crate::records::SessionRecord)) while it may renew, and `h` ([`HoldRecord`])
//! while it may hold maps or have I/O in flight. Both are made in one commit. A session whose lease is over loses `c`; then the
//! targets fence it; then it loses `h`. One that has neither is fenced, for good: numbers of sessions are not used twice. Every service does
//! this for every session, so that the death of one stops nothing. The answers that are recorded for its requests go before `h` does.
//! A session may begin and end between two looks of a service. One that grants something says so
//! ([`SessionsEvent::Granted`]), and hears of the end in any case.
//!
//! **The horizon** is the smallest of the store's epoch, read first, and of what each hold record, read after it, has acknowledged. A session
//! that is not among those began after the epoch was read, so its maps are of that epoch or later.
//!
//! **A read counts** only if the lease still held when its completion was taken: [`SessionHolder::holds`] is asked then, not before.
//!
//! A store that has lost commits (a power cut with `durability = "process"`) may have lost epochs that sessions have acknowledged. All
//! sessions that began before are to be fenced then, before anything is granted.
//! What is not here: leases of services (tree), reservations at the targets (the node).

mod client;
mod lease_timing;
mod nodes;
mod sessions;

#[cfg(test)]
mod tests;

pub use client::{HolderEffect, HolderEvent, RenewalId, SessionHolder};
pub use lease_timing::LeaseTiming;
pub use nodes::{ContentLabel, NodeChange, NodeReport, NodeState, NodeTable};
pub use sessions::{
    CLIENT_NAME_MAX, HoldRecord, SessionError, SessionRequest, SessionRequestId, Sessions, SessionsEffect,
    SessionsEvent,
};
