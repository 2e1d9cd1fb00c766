//! What is remembered of namespaces for commands that take the slow path: reservations, unreadable blocks, and who waits for
//! whom.

use crate::io::slow_path::waits::{Lock, Wait};
use crate::io::work::Partner;
use crate::namespace::unreadable::Intervals;
use crate::reservation::state::Reservations;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// See the [module](self). What a namespace has nothing of has no entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlowPath {
    /// By NSID.
    pub reservations: BTreeMap<u32, Reservations>,
    /// By NSID, in blocks.
    pub unreadable: BTreeMap<u32, Intervals>,
    /// Counts what becomes unreadable: LSGC of the LBA Status Information log page.
    pub generation: u16,
    /// Ranges that nobody else may write.
    pub locks: Vec<Lock>,
    /// Commands with a slot that wait for others, in order.
    pub waits: Vec<Wait>,
    /// Second commands of pairs whose first is in `fetched`, or about to start, in order.
    pub partners: VecDeque<Partner>,
}
