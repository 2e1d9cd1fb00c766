//! The flash translation layer: where each unit is, where the next one goes, and what is moved to make room.
//!
//! ```text
//! PageFtl ── Map         l2p, p2l, valid counts, sequence numbers
//!         ├─ FreeLists   free blocks by plane        Lifetimes  when blocks fail
//!         ├─ WritePoint  one for each plane and kind (host streams, collection, map, pseudo-SLC)
//!         ├─ VictimPolicy, WearPolicy, Separation    the traits a researcher writes anew
//!         ├─ Streams     which block is whose, and the spare flash that each stream has
//!         ├─ Striping    addresses that say the plane, or the partition of the drive
//!         ├─ MapCache    what the cached mapping has in memory
//!         ├─ Flights     programs that power loss may undo
//!         ├─ Undo        what the step under way has changed of a map that outlives the process
//!         └─ Hybrid      block map and log blocks instead, for comparison
//! ```
//! None of these knows `PageFtl`. What is done with it lies in files that build on one another: `gc` collects, `merge` writes and merges by the
//! hybrid mapping, `write` needs both, `look_up` writes pages of a map that lies in flash; `recovery` finds everything again.

mod cached;
mod debt;
mod encoding;
mod flights;
mod gc;
mod hybrid;
mod look_up;
mod map;
mod merge;
mod page;
mod plane_allocation;
mod pool;
mod power_cut_undo;
mod recovery;
mod slc;
mod spare;
mod streams;
mod striping;
mod undo;
mod victim;
mod wear;
mod write;
mod write_point;
mod write_routing;

pub(crate) use encoding::{BLOCK_UNITS_MAX, HELD, NONE, TAG, UNITS_MAX};
pub use flights::Lost;
pub(crate) use map::Map;
pub use map::Prefetch;
#[cfg(test)]
pub(crate) use map::{Cut, MapEvent};
pub(crate) use page::PageFtl;
pub use plane_allocation::PlaneAllocation;
pub(crate) use pool::{Lifetimes, factory_bad};
pub(crate) use streams::MOVED;
pub(crate) use striping::Striping;
pub(crate) use undo::words as undo_words;
pub use victim::{Greedy, PlaneView, Victim, VictimPolicy};
pub use wear::{Wear, WearPolicy};
pub(crate) use write_routing::Route;
pub use write_routing::{Separate, Separation};
