//! Whether what lies in the key-value store is a store: what contradicts itself is found, named, and put right or refused.
//!
//! ```text
//!   Image::read ─► Image (all records) ─► Image::findings ─► Finding { kind, about, repair } ─► repair: one commit each
//!       ▲                                                                                        │
//!       └──────────────────────────────── until nothing that can be put right is left ◄──────────┘
//! ```
//! No service may have the store meanwhile ([`Presence`], [`RepairLease`] where several processes reach it): half of a change that is under way looks like damage only where it is made in several commits, but a repair
//! expects every value that it changes to be as it was read, so that it is made or conflicts.
//!
//! What a repair may do: nothing that takes a file's bytes away. What no name leads to gets one in `/lost+found`; bytes that nobody has
//! are quarantined and become free as all freed bytes do; what two files claim is refused, since only their checksums say whose it is
//! (`weir fs scrub`). Records that say nothing any more are deleted.
//!
//! Left out: what the drives hold. Memory: all records at once.

mod exclusive;
mod finding;
mod image;
mod members;
mod names;
mod repair;
mod space;

#[cfg(test)]
mod tests;

pub use exclusive::{Alive, LeasedKv, Presence, RepairLease};
pub use finding::{Finding, FindingKind, Repair};
pub use image::{Image, RegionPlaces};
pub use repair::{RepairReport, repair, repair_watched};
