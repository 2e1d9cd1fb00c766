//! Blocks that a write takes: granted ones in the place of nothing, or of one that is too short for it.

use super::blocks::MapLookup;
use super::event::{FileEffect, FileError, NewBlock};
use super::io::FileIo;
use super::local::LocalBlock;
use crate::records::BlockRecord;
use alloc::vec::Vec;

impl FileIo {
    /// A write goes behind the end of a block that was changed here: a longer one takes its place. `false` if that is waited for.
    ///
    /// # Errors
    /// It was published, and is as short as before.
    pub(super) fn grow(
        &mut self,
        number: u64,
        block: u64,
        end: u32,
        effects: &mut Vec<FileEffect>,
    ) -> Result<bool, FileError> {
        let is_seen = self.size() > block.saturating_mul(self.setup.block.into());
        let has_flushed = self.pieces.get(&number).is_some_and(|piece| piece.has_flushed);
        let taken = match self.local.get(&block) {
            Some(local) if local.is_new && local.source.is_some() => self.take_longer((number, block, end), effects),
            // Of writes that have failed: those before this one are over when a flush was.
            Some(local) if local.is_new && !is_seen && !local.is_exposed && (has_flushed || local.is_empty()) => {
                self.unused.extend(self.local.remove(&block).into_iter().flat_map(|local| local.record.copies));
                self.new_blocks -= 1;
                true
            }
            // When it is published, it is as one that was cut.
            Some(local) if local.is_new => return self.publish_before(number),
            _ => self.take_grant((number, block, end), effects),
        };
        Ok(taken)
    }

    /// The block that was granted, if it has room for `end` bytes; else it is asked for, for that piece.
    fn granted_block(
        &mut self,
        (number, block, end): (u64, u64, u32),
        effects: &mut Vec<FileEffect>,
    ) -> Option<NewBlock> {
        let new = self.grants.remove(&block);
        let is_long = |new: &NewBlock| new.copies.iter().all(|copy| copy.length.get() >= end.into());
        match new {
            Some(new) if is_long(&new) => return Some(new),
            // It was asked for by a write that is over.
            Some(new) => self.unused.extend(new.copies),
            None => {}
        }
        if self.granting.insert(block) {
            let is_last = self.pieces.get(&number).is_some_and(|piece| piece.is_last);
            effects.push(if is_last { FileEffect::GrantShort(block) } else { FileEffect::Grant(block) });
        }
        None
    }

    /// A granted block takes the place of one that was to take the place of a published one, and is too short. `false` if it has to be asked for.
    fn take_longer(&mut self, wanted: (u64, u64, u32), effects: &mut Vec<FileEffect>) -> bool {
        let block = wanted.1;
        let Some(new) = self.granted_block(wanted, effects) else { return false };
        let Some(local) = self.local.get_mut(&block) else { return false };
        let record = BlockRecord { generation: new.generation, copies: new.copies, ..BlockRecord::default() };
        let (replaces, source_has_unflushed) = (local.replaces, local.source_has_unflushed);
        let source_dirty = core::mem::take(&mut local.source_dirty);
        let longer = LocalBlock::granted(record, local.source.take(), local.epoch);
        let short = core::mem::replace(local, LocalBlock { replaces, source_has_unflushed, source_dirty, ..longer });
        self.unused.extend(short.record.copies);
        true
    }

    /// A granted block takes the place of a shorter one, or of nothing. `false` if it has to be asked for.
    pub(super) fn take_grant(&mut self, wanted: (u64, u64, u32), effects: &mut Vec<FileEffect>) -> bool {
        let block = wanted.1;
        let Some(new) = self.granted_block(wanted, effects) else { return false };
        let source = match (self.local.get(&block), self.map.find(block)) {
            (Some(local), _) => Some(local.as_source()),
            (None, MapLookup::Block(record)) => Some(record.clone()),
            (None, _) => None,
        };
        let record = BlockRecord { generation: new.generation, copies: new.copies, ..BlockRecord::default() };
        let epoch = self.local.get(&block).map(|local| local.epoch).or_else(|| self.map.epoch_of(block));
        let source_has_unflushed = self.local.get(&block).is_some_and(|local| local.has_unflushed);
        // The checksums of what has been written over are not known.
        let source_dirty = self.local.get(&block).map(|local| local.dirty.clone()).unwrap_or_default();
        let new = LocalBlock::granted(record, source, epoch.unwrap_or_default());
        self.local.insert(block, LocalBlock { source_has_unflushed, source_dirty, ..new });
        self.compared.remove(&block);
        self.new_blocks += 1;
        true
    }
}
