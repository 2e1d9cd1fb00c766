//! What a file asks the metadata service for, and the answers: chunks of its map, blocks, marks.

use super::blocks::{MapLookup, is_whole_grains};
use super::event::{FileEffect, FileError, FileMemory, NewBlock};
use super::io::FileIo;
use super::local::{LocalBlock, length};
use super::marks::OwnMarks;
use crate::Extent;
use crate::mutant::Mutant;
use crate::records::{BlockRecord, COPIES_MAX, MapChunk};
use crate::space::{Epoch, GRAIN};
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use weir_units::Nanos;

/// Lengths of a block that is shorter than others of its file, in bytes: whole grains, a block at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortBlock {
    /// What it has to have.
    pub least: u32,
    /// What it should have.
    pub good: u32,
}

impl FileIo {
    /// Asks for a chunk, unless that is under way.
    pub(super) fn fetch(&mut self, chunk: u32, effects: &mut Vec<FileEffect>) {
        if let Entry::Vacant(fetch) = self.fetching.entry(chunk) {
            fetch.insert(false);
            effects.push(FileEffect::Fetch(chunk));
        }
    }

    /// A commit has changed the map: chunks that are on their way are of before.
    pub(super) fn map_has_changed(&mut self) {
        if !self.planted.is(Mutant::AnyChunkCounts) {
            self.fetching.values_mut().for_each(|is_stale| *is_stale = true);
        }
    }

    /// The chunk of a block may be out of date: it is let go of, and looked up again.
    pub(super) fn refetch(&mut self, now: Nanos, block: u64, effects: &mut Vec<FileEffect>) {
        let Some((chunk, _)) = self.map.place(block) else { return };
        self.map.forget(chunk);
        match self.fetching.get_mut(&chunk) {
            Some(is_stale) => *is_stale = true,
            None if now < self.setup.lease => self.fetch(chunk, effects),
            None => {}
        }
    }

    /// A chunk has come. One that was not asked for says nothing.
    pub(super) fn chunk(
        &mut self,
        now: Nanos,
        number: u32,
        result: Result<(MapChunk, Epoch), FileError>,
        memory: &mut impl FileMemory,
        effects: &mut Vec<FileEffect>,
    ) {
        let is_asked_for = self.fetching.remove(&number);
        let counts = is_asked_for.is_some() || self.planted.is(Mutant::AnyChunkCounts);
        match result {
            _ if !counts => {}
            Ok(_) if is_asked_for == Some(true) => {
                if now < self.setup.lease {
                    self.fetch(number, effects);
                }
            }
            // It is fetched again, if it is still needed.
            Ok((_, epoch)) if epoch < self.floor => {}
            Ok((chunk, epoch)) => {
                let is_good = self.map.put(number, chunk, epoch);
                if is_good {
                    self.confirm(number, epoch);
                }
                self.fetched(number, Ok(is_good), memory, effects);
            }
            Err(error) => self.fetched(number, Err(error), memory, effects),
        }
    }

    fn fetched(
        &mut self,
        chunk: u32,
        result: Result<bool, FileError>,
        memory: &mut impl FileMemory,
        effects: &mut Vec<FileEffect>,
    ) {
        let error = match result {
            Ok(true) => return,
            Ok(false) => FileError::BadMap,
            Err(error) => error,
        };
        for number in self.waiting_on(|piece| self.map.place(piece.piece.block).is_some_and(|(at, _)| at == chunk)) {
            self.fail(number, error, memory, effects);
        }
    }

    pub(super) fn granted(
        &mut self,
        block: u64,
        result: Result<NewBlock, FileError>,
        memory: &mut impl FileMemory,
        effects: &mut Vec<FileEffect>,
    ) {
        if !self.granting.remove(&block) {
            return;
        }
        let whole = u64::from(self.setup.block);
        let length = result.as_ref().ok().and_then(|new| new.copies.first()).map_or(0, |copy| copy.length.get());
        let is_good =
            |extent: &Extent| extent.length.get() == length && (1..=whole).contains(&length) && is_whole_grains(extent);
        let error = match result {
            // The write that asked for it may be over: the next one takes it.
            Ok(new) if (1..=COPIES_MAX).contains(&new.copies.len()) && new.copies.iter().all(is_good) => {
                self.grants.insert(block, new);
                return;
            }
            Ok(_) => FileError::BadMap,
            Err(error) => error,
        };
        for number in self.waiting_on(|piece| piece.piece.block == block && piece.is_write) {
            self.fail(number, error, memory, effects);
        }
    }

    pub(super) fn unsettled(
        &mut self,
        block: u64,
        result: Result<(), FileError>,
        memory: &mut impl FileMemory,
        effects: &mut Vec<FileEffect>,
    ) {
        self.unsettling.remove(&block);
        if let Err(error) = result {
            for number in self.waiting_on(|piece| piece.piece.block == block && piece.is_write) {
                self.fail(number, error, memory, effects);
            }
            return;
        }
        self.marked.insert(block);
        self.map_has_changed();
    }

    /// What a block that is asked for has to hold, for the writes that wait for it; `None` if none does.
    pub fn needs(&self, block: u64) -> Option<ShortBlock> {
        let queue = self.queues.get(&block)?;
        let waits = queue.iter().filter_map(|number| self.pieces.get(number)).filter(|piece| piece.is_write);
        let end = waits.map(|piece| piece.piece.end()).max()?;
        let before = match (self.local.get(&block), self.map.find(block)) {
            (Some(local), _) => length(&local.record),
            (None, MapLookup::Block(record)) => length(record),
            (None, _) => 0,
        };
        let least = end.next_multiple_of(GRAIN as u32).min(self.setup.block);
        // What grows is copied each time.
        Some(ShortBlock { least, good: before.saturating_mul(2).clamp(least, self.setup.block) })
    }

    /// Blocks that are granted to this file and not published, or that its writes may still ask for.
    pub fn ahead(&self) -> u64 {
        let is_new = |block: &u64| self.local.get(block).is_some_and(|local| local.is_new);
        let is_written = |block: &u64| {
            let mut queue = self.queues.get(block).into_iter().flatten();
            queue.any(|number| self.pieces.get(number).is_some_and(|piece| piece.is_write))
        };
        let is_asked_for = |block: &u64| self.granting.contains(block) || self.grants.contains_key(block);
        let asked_for = self.granting.iter().chain(self.grants.keys().filter(|block| !self.granting.contains(block)));
        let written = self.queues.keys().filter(|block| !is_asked_for(block) && is_written(block));
        let wanted = asked_for.chain(written).filter(|block| !is_new(block)).count();
        (self.new_blocks - self.lost_blocks + wanted) as u64
    }

    /// Blocks that a write of these bytes may need beside those.
    pub fn wants(&self, offset: u64, len: u32) -> u64 {
        let block = u64::from(self.setup.block);
        let end = offset.saturating_add(len.into());
        let is_there = |number: &u64| {
            let is_asked_for = self.grants.contains_key(number) || self.granting.contains(number);
            is_asked_for || self.local.get(number).is_some_and(|local| local.is_new)
        };
        (offset / block..end.div_ceil(block)).filter(|number| !is_there(number)).count() as u64
    }
}

impl FileIo {
    /// What the machine has to know that goes on with this file.
    pub fn own_marks(&self) -> OwnMarks {
        self.marked.clone().and_perhaps(self.unsettling.iter().copied())
    }

    /// The marks of the machine that this file had before.
    #[must_use]
    pub fn with_own_marks(mut self, marks: OwnMarks) -> Self {
        self.marked = marks;
        self
    }

    /// Takes blocks that were marked and not written among those that are published. `false` while the map is waited for.
    pub(super) fn take_unwritten_marks(&mut self, size: u64, effects: &mut Vec<FileEffect>) -> bool {
        let whole = u64::from(self.setup.block);
        let is_unwritten = |block: &u64| !self.local.contains_key(block) && !self.unsettling.contains(block);
        let unwritten: Vec<u64> = self.marked.all().filter(is_unwritten).collect();
        let mut is_known = true;
        for block in unwritten {
            match self.map.find(block) {
                MapLookup::Unknown(chunk) => {
                    is_known = false;
                    self.fetch(chunk, effects);
                }
                MapLookup::Block(record) if block.saturating_mul(whole) < size => {
                    let record = BlockRecord { is_unsettled: false, ..record.clone() };
                    let epoch = self.map.epoch_of(block).unwrap_or_default();
                    self.local.insert(block, LocalBlock::published(record, epoch));
                }
                MapLookup::Block(_) | MapLookup::Hole | MapLookup::TooFar => self.marked.remove(block),
            }
        }
        is_known
    }
}
