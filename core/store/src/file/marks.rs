//! Blocks that this writer has marked as unsettled.
//!
//! A mark outlives a truncation, by which the file gets another machine. One whose block was not written, because the write was late for
//! instance, is taken back by the next flush: the block's bytes and checksums are as they were.

use alloc::collections::BTreeSet;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct OwnMarks {
    /// Those that the service has.
    made: BTreeSet<u64>,
    /// Those that it may have: they were asked for, and the answer was not heard.
    perhaps: BTreeSet<u64>,
}

impl OwnMarks {
    /// The service has it.
    pub(super) fn insert(&mut self, block: u64) {
        self.made.insert(block);
    }

    /// Whether the service has it: the block may be written over.
    pub(super) fn is_made(&self, block: u64) -> bool {
        self.made.contains(&block)
    }

    /// Whether a mark of that block may be this writer's.
    pub(super) fn may_be(&self, block: u64) -> bool {
        self.made.contains(&block) || self.perhaps.contains(&block)
    }

    pub(super) fn remove(&mut self, block: u64) {
        self.made.remove(&block);
        self.perhaps.remove(&block);
    }

    /// The same, with others that were asked for.
    pub(super) fn and_perhaps(mut self, asked_for: impl Iterator<Item = u64>) -> Self {
        self.perhaps.extend(asked_for);
        self
    }

    pub(super) fn all(&self) -> impl Iterator<Item = u64> + '_ {
        self.made.union(&self.perhaps).copied()
    }
}
