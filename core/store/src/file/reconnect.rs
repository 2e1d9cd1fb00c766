//! A drive whose connection was lost, and made again, between a write and its flush.
//!
//! A drive with a volatile write cache may have lost its power in between: the flush that it carries out over the new connection says nothing
//! of what it had acknowledged over the one before. So a copy with such writes is not read, written or published any more; a block that has no
//! other cannot be published, and the file takes no more writes. What a flush had made durable before is not touched by that.

use super::event::FileError;
use super::io::FileIo;
use super::local::LocalBlock;
use crate::mutant::Mutant;
use crate::{Extent, NamespaceId};
use alloc::vec::Vec;

impl FileIo {
    /// A drive with a volatile write cache was connected to again.
    pub(super) fn reconnected(&mut self, namespace: NamespaceId) {
        if self.planted.is(Mutant::FlushVouchesForAll) {
            return;
        }
        let publishing = self.flushes.front().filter(|flush| flush.is_publishing());
        let flushed: Vec<u64> = publishing.into_iter().flat_map(|flush| flush.blocks()).collect();
        for (block, local) in self.local.iter_mut().filter(|(block, _)| !flushed.contains(block)) {
            let is_on = |copy: &Extent| copy.namespace == namespace;
            if local.source_has_unflushed {
                local.source.iter_mut().for_each(|source| source.copies.retain(|copy| !is_on(copy)));
            }
            if local.has_unflushed && local.record.copies.iter().any(is_on) {
                local.lost.insert(namespace);
            }
            if local.is_gone() {
                self.poison.get_or_insert(FileError::Unwritable(*block));
            }
        }
    }

    /// Whether what a drive has read for a changed block may lack writes.
    pub(super) fn is_lost(&self, block: u64, namespace: NamespaceId) -> bool {
        self.local.get(&block).is_some_and(|local| match &local.source {
            Some(source) => !source.copies.iter().any(|copy| copy.namespace == namespace),
            None => local.lost.contains(&namespace),
        })
    }

    /// A drive has acknowledged a write of a block.
    pub(super) fn acknowledged(&mut self, block: u64) {
        if let Some(local) = self.local.get_mut(&block) {
            local.has_unflushed = true;
        }
    }

    /// Copies that may lack writes are not published.
    pub(super) fn drop_lost(&mut self) {
        let Some(flush) = self.flushes.front().filter(|flush| !flush.is_waiting() && !flush.is_publishing()) else {
            return;
        };
        let has_lost = |block: &u64| self.local.get(block).is_some_and(|local| !local.lost.is_empty());
        let blocks: Vec<u64> = flush.blocks().filter(has_lost).collect();
        for block in blocks {
            let lost = self.local.get(&block).map(|local| local.lost.clone()).unwrap_or_default();
            self.drop_copies(block, |_, copy| !lost.contains(&copy.namespace));
        }
    }
}

impl LocalBlock {
    /// No copy is left that has everything.
    pub fn is_gone(&self) -> bool {
        let is_lost = |copy: &Extent| self.lost.contains(&copy.namespace);
        self.record.copies.iter().all(is_lost) || self.source.as_ref().is_some_and(|source| source.copies.is_empty())
    }

    /// Copies that have everything.
    pub fn whole_copies(&self) -> Vec<Extent> {
        self.record.copies.iter().filter(|copy| !self.lost.contains(&copy.namespace)).copied().collect()
    }
}
