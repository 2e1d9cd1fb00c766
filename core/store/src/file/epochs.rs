//! Under which epoch this client knows what it goes to drives with, and what it was granted and does not need.
//!
//! A service gives a block to another file when no client holds a map that is older than the block's end, or has I/O under one. So what is
//! told of this file ([`FileIo::oldest`]) counts three things: chunks of the map that are held; what goes on at drives, under the chunk that it
//! was begun with, also when that is let go of meanwhile; and blocks that were changed here, for more I/O goes to them, until they are published.

use super::blocks::MapLookup;
use super::event::{FileEffect, FileError};
use super::io::FileIo;
use super::local::LocalBlock;
use crate::Extent;
use crate::mutant::Mutant;
use crate::records::BlockRecord;
use crate::space::Epoch;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use weir_units::Nanos;

impl FileIo {
    /// The epoch of the oldest chunk of the map that is held, or under which I/O is in flight; `None` if there is neither. A client says in each
    /// renewal the oldest of all its files: that is what [`HolderEvent::Tick`](crate::members::HolderEvent::Tick) takes.
    pub fn oldest(&self) -> Option<Epoch> {
        let counts = |local: &&LocalBlock| local.is_counted();
        let local = self.local.values().filter(counts).map(|local| local.epoch);
        let flushed = self.flushes.front().filter(|flush| flush.is_sending()).into_iter();
        let flushed = flushed.flat_map(|flush| flush.blocks()).filter_map(|block| Some(self.local.get(&block)?.epoch));
        let pieces = self.pieces.values().filter_map(|piece| piece.epoch);
        let in_flight = pieces.chain(flushed).filter(|_| !self.planted.is(Mutant::InFlightNotCounted));
        self.map.oldest().into_iter().chain(local).chain(in_flight).min()
    }

    /// Lets go of what is older than an epoch, and accepts nothing older from here on. Blocks that were changed here are looked up again.
    pub(super) fn forget(&mut self, now: Nanos, epoch: Epoch, effects: &mut Vec<FileEffect>) {
        self.floor = self.floor.max(epoch);
        let _ = self.map.forget_before(epoch);
        self.look_up_changed(now, effects);
    }

    /// Fetches the chunks of blocks that were changed here and hang on older ones.
    pub(super) fn look_up_changed(&mut self, now: Nanos, effects: &mut Vec<FileEffect>) {
        if now >= self.setup.lease {
            return;
        }
        let is_old = |local: &LocalBlock| local.is_counted() && local.epoch < self.floor;
        let old = self.local.iter().filter(|(_, local)| is_old(local));
        let chunks: BTreeSet<u32> = old.filter_map(|(block, _)| Some(self.map.place(*block)?.0)).collect();
        chunks.into_iter().for_each(|chunk| self.fetch(chunk, effects));
    }

    /// A chunk has come: blocks of it that were changed here are as they were, or have been given up by others.
    pub(super) fn confirm(&mut self, chunk: u32, epoch: Epoch) {
        let is_publishing = self.flushes.front().is_some_and(|flush| flush.is_publishing());
        for (block, local) in &mut self.local {
            if self.map.place(*block).is_none_or(|(at, _)| at != chunk) {
                continue;
            }
            let is_own = local.is_new && local.source.is_none();
            let found = match self.map.find(*block) {
                MapLookup::Block(record) => names_all(record, local.source.as_ref().unwrap_or(&local.record)),
                MapLookup::Hole | MapLookup::Unknown(_) | MapLookup::TooFar => false,
            };
            if found || (is_own && !local.is_exposed) {
                local.epoch = local.epoch.max(epoch);
            } else if !(is_own && is_publishing) {
                // Nothing more goes to where it was. What is there may be another file's before long.
                local.is_stale = true;
                self.poison.get_or_insert(FileError::Replaced(*block));
            }
        }
    }

    /// What was granted for this file and is not needed any more: what was cut off the last block, copies that could not be written, and blocks
    /// whose write is over without them. To be given back ([`SpaceRequest::Return`](crate::space::SpaceRequest::Return)) when no drive has a write of
    /// them, or used for another file.
    pub fn take_unused(&mut self) -> Vec<Extent> {
        let left: Vec<u64> = self.grants.keys().filter(|block| !self.queues.contains_key(block)).copied().collect();
        for new in left.into_iter().filter_map(|block| self.grants.remove(&block)) {
            self.unused.extend(new.copies);
        }
        if self.ops.is_empty() && core::mem::take(&mut self.has_failed) {
            self.drop_behind_end();
        }
        core::mem::take(&mut self.unused)
    }

    /// New blocks behind the end of the file, of writes that have failed: nobody sees them.
    fn drop_behind_end(&mut self) {
        let (whole, size) = (u64::from(self.setup.block), self.size());
        let is_behind = |block: u64, local: &LocalBlock| {
            local.is_new
                && !local.is_exposed
                && !local.is_stale
                && local.source.is_none()
                && block.saturating_mul(whole) >= size
        };
        let behind = self.local.iter().filter(|(block, local)| is_behind(**block, local));
        let behind: Vec<u64> = behind.map(|(block, _)| *block).collect();
        for local in behind.into_iter().filter_map(|block| self.local.remove(&block)) {
            self.new_blocks -= 1;
            self.unused.extend(local.record.copies);
        }
    }

    /// Nothing of the file is written any more, and nothing is under way: what was granted for it and can be published no more, to be given back.
    /// Its bytes there are lost, and reads of them fail.
    pub fn give_up(&mut self) -> Vec<Extent> {
        let mut unused = self.take_unused();
        if self.poison.is_none() || !self.ops.is_empty() {
            return unused;
        }
        for local in self.local.values_mut().filter(|local| local.is_new && !local.is_exposed && !local.is_stale) {
            local.is_stale = true;
            unused.extend(local.record.copies.iter().copied());
            // They are another file's before long.
            self.lost_blocks += 1;
        }
        unused
    }

    /// The file is not used any more, and nothing is under way. What was granted for it and not published, to be given back. A block whose publish
    /// has not been answered is not among it.
    pub fn close(self) -> Vec<Extent> {
        debug_assert!(self.ops.is_empty(), "nothing of a file that is closed is under way");
        let is_own = |local: &&LocalBlock| local.is_new && !local.is_exposed && !local.is_stale;
        let local = self.local.values().filter(is_own).flat_map(|local| local.record.copies.iter().copied());
        let granted = self.grants.values().flat_map(|new| new.copies.iter().copied());
        self.unused.iter().copied().chain(local).chain(granted).collect()
    }
}

/// Whether a record is of the same lifetime, and names all copies that another one names.
fn names_all(record: &BlockRecord, other: &BlockRecord) -> bool {
    let place = |extent: &Extent| (extent.namespace, extent.offset);
    let has = |copy: &Extent| record.copies.iter().any(|own| place(own) == place(copy));
    record.generation == other.generation && other.copies.iter().all(has)
}
