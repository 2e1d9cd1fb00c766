//! A block that a writer has changed and not published yet.

use super::written::WrittenRanges;
use crate::records::{BlockRecord, CHECKSUM_BYTES};
use crate::space::Epoch;
use crate::{Extent, NamespaceId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// See [the module](self).
#[derive(Clone, Debug)]
pub(super) struct LocalBlock {
    /// Its copies that have everything, and its checksums as they were published.
    pub record: BlockRecord,
    /// What of it counts.
    pub written: WrittenRanges,
    /// No map names it yet.
    pub is_new: bool,
    /// The shorter block that it replaces, until that is copied.
    pub source: Option<BlockRecord>,
    /// Units of that whose checksum is not known.
    pub source_dirty: BTreeSet<u32>,
    /// Units whose checksum is not known.
    pub dirty: BTreeSet<u32>,
    /// Checksums of units that were written as a whole.
    pub sums: BTreeMap<u32, u32>,
    /// The store's epoch when the map was as it was when this began, or later.
    pub epoch: Epoch,
    /// A publish that names it was sent and has not been answered as done: others may know of it, and give it up.
    pub is_exposed: bool,
    /// Others have replaced it, or given it up: nothing more goes to it.
    pub is_stale: bool,
    /// Copies of the block that it replaces.
    pub replaces: usize,
    /// A drive has acknowledged a write of it, and no flush has followed; and of the block that it replaces.
    pub has_unflushed: bool,
    pub source_has_unflushed: bool,
    /// Drives that may have lost some of those.
    pub lost: BTreeSet<NamespaceId>,
}

impl LocalBlock {
    /// A block that is published; its first bytes, up to its length, count.
    pub fn published(record: BlockRecord, epoch: Epoch) -> Self {
        let written = WrittenRanges::up_to(length(&record));
        // This writer has marked it before, and has let go of what it knew of it.
        let units = if record.is_unsettled { length(&record).div_ceil(CHECKSUM_BYTES) } else { 0 };
        let (dirty, sums) = ((0..units).collect(), BTreeMap::new());
        let (is_exposed, is_stale, replaces) = (false, false, 0);
        Self {
            record,
            written,
            is_new: false,
            source: None,
            source_dirty: BTreeSet::new(),
            dirty,
            sums,
            epoch,
            is_exposed,
            is_stale,
            replaces,
            has_unflushed: false,
            source_has_unflushed: false,
            lost: BTreeSet::new(),
        }
    }

    /// A block that was granted, instead of a shorter one or of nothing.
    pub fn granted(record: BlockRecord, source: Option<BlockRecord>, epoch: Epoch) -> Self {
        let (written, dirty, sums) = (WrittenRanges::default(), BTreeSet::new(), BTreeMap::new());
        let (is_exposed, is_stale) = (false, false);
        let replaces = source.as_ref().map_or(0, |source| source.copies.len());
        Self {
            record,
            written,
            is_new: true,
            source,
            source_dirty: BTreeSet::new(),
            dirty,
            sums,
            epoch,
            is_exposed,
            is_stale,
            replaces,
            has_unflushed: false,
            source_has_unflushed: false,
            lost: BTreeSet::new(),
        }
    }

    /// Whether it is known by a map, and more I/O may go to it. What was granted is this session's until it is published.
    pub fn is_counted(&self) -> bool {
        !self.is_stale && (!self.is_new || self.source.is_some() || self.is_exposed)
    }

    /// Whether no byte of it was written.
    pub fn is_empty(&self) -> bool {
        !self.written.has_any(0, u32::MAX)
    }

    /// Bytes of it are about to be written: their checksums are not known. They do not count yet: a write that fails may leave what the
    /// block had before.
    pub fn begin_write(&mut self, start: u32, end: u32) {
        for unit in start / CHECKSUM_BYTES..end.div_ceil(CHECKSUM_BYTES) {
            self.dirty.insert(unit);
            self.sums.remove(&unit);
        }
    }

    /// Bytes of it were written.
    pub fn end_write(&mut self, start: u32, end: u32) {
        self.written.add(start, end);
    }

    /// A unit that was written as a whole has this checksum.
    pub fn settle(&mut self, unit: u32, sum: u32) {
        self.dirty.remove(&unit);
        self.sums.insert(unit, sum);
    }

    /// Leaves the copies that `keep` says; those that go and that no map names.
    #[must_use]
    pub fn keep_copies(&mut self, keep: impl Fn(usize, &Extent) -> bool) -> Vec<Extent> {
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for (number, extent) in self.record.copies.iter().enumerate() {
            let to = if keep(number, extent) { &mut kept } else { &mut gone };
            to.push(*extent);
        }
        self.record.copies = kept;
        if self.is_new { gone } else { Vec::new() }
    }

    /// The record as a block that another one replaces: with the checksums that are known.
    pub fn as_source(&self) -> BlockRecord {
        let mut record = BlockRecord { copies: self.whole_copies(), ..self.record.clone() };
        for (unit, sum) in &self.sums {
            if let Some(known) = record.checksums.get_mut(*unit as usize) {
                *known = *sum;
            }
        }
        record
    }

    /// The record with its first `length` bytes and their checksums; nothing if one of them is not known.
    pub fn to_publish(&self, length: u32) -> Option<BlockRecord> {
        let units = 0..length.div_ceil(CHECKSUM_BYTES);
        let known = |unit: u32| match self.dirty.contains(&unit) {
            true => None,
            false => self.sums.get(&unit).or_else(|| self.record.checksums.get(unit as usize)).copied(),
        };
        let checksums: Option<Vec<u32>> = units.map(known).collect();
        let cut = |extent: &Extent| Extent { length: u64::from(length).into(), ..*extent };
        let copies = self.record.copies.iter().map(cut).collect();
        Some(BlockRecord { copies, checksums: checksums?, is_unsettled: false, ..self.record.clone() })
    }
}

/// Bytes of a block, the same of all its copies; a block has 4 MiB at the most.
pub(super) fn length(record: &BlockRecord) -> u32 {
    record.copies.first().map_or(0, |extent| u32::try_from(extent.length.get()).unwrap_or(u32::MAX))
}
