//! The flash translation layer: where each unit is, where the next one goes, and what is moved to make room.
//!
//! ```text
//! PageFtl ── Map         l2p, p2l, valid counts, sequence numbers
//!         ├─ FreeLists   free blocks by plane        Lifetimes  when blocks fail
//!         ├─ Point       a write point for each plane and kind (host streams, collection, map, pseudo-SLC)
//!         ├─ VictimPolicy, WearPolicy, Separation    the traits a researcher writes anew
//!         ├─ Streams     which block is whose, and the spare flash that each stream has
//!         ├─ Striping    addresses that say the plane, or the partition of the drive
//!         ├─ MapCache    what the cached mapping has in memory
//!         ├─ Flights     programs that power loss may undo
//!         ├─ Undo        what the step under way has changed of a map that outlives the process
//!         └─ Hybrid      block map and log blocks instead, for comparison
//! ```

mod cached;
mod gc;
mod hybrid;
mod map;
mod page;
mod pool;
mod power_cut_undo;
mod slc;
mod spare;
mod streams;
mod striping;
mod victim;
mod wear;
mod write_routing;

pub use gc::GcMode;
pub use map::Prefetch;
pub(crate) use map::{BLOCK_UNITS_MAX, HELD, Map, NONE, TAG, UNITS_MAX};
#[cfg(test)]
pub(crate) use map::{Cut, MapEvent};
pub(crate) use page::PageFtl;
pub(crate) use pool::{Lifetimes, factory_bad};
pub(crate) use power_cut_undo::words as undo_words;
pub use spare::Lost;
pub(crate) use streams::MOVED;
pub use striping::PlaneAllocation;
pub(crate) use striping::Striping;
pub use victim::{Greedy, PlaneView, Victim, VictimPolicy};
pub use wear::{Wear, WearPolicy};
pub(crate) use write_routing::Route;
pub use write_routing::{Separate, Separation};
