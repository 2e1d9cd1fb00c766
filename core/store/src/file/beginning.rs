//! A flush of the beginning: a long stream of writes is published while it goes on.
//!
//! It takes the new blocks, from the first on, that are written to their end, up to the first that a write is still to come to. It waits for no write, and
//! none waits for it but in its own blocks. Others read then a file whose writer came so far, as after any flush.

use super::event::{FileEffect, FileOpId};
use super::io::FileIo;
use crate::mutant::Mutant;
use alloc::vec::Vec;
use weir_units::Nanos;

impl FileIo {
    /// What is written from the beginning on is to be published, and writes go on.
    pub(super) fn begin_flush_of_beginning(
        &mut self,
        now: Nanos,
        id: FileOpId,
        deadline: Nanos,
        effects: &mut Vec<FileEffect>,
    ) {
        let before = self.flushes.len();
        self.begin_flush(now, id, false, deadline, effects);
        if let Some(flush) = self.flushes.get_mut(before) {
            flush.is_beginning = true;
        }
    }

    /// Whether a flush of the beginning would publish anything.
    pub fn has_beginning(&self) -> bool {
        !self.beginning().1.is_empty()
    }

    /// New blocks up to the first that a write is to come to, and the size that ends with the last that is there to its end.
    pub(super) fn beginning(&self) -> (u64, Vec<(u64, u32)>) {
        let is_write = |number: &u64| self.pieces.get(number).is_some_and(|piece| piece.is_write);
        let mut written_to =
            self.queues.iter().filter(|(_, queue)| queue.iter().any(is_write)).map(|(block, _)| *block);
        let first = written_to.next().filter(|_| !self.planted.is(Mutant::BeginningUnderWriter));
        let whole = u64::from(self.setup.block);
        let end = first.map_or(u64::MAX, |block| block.saturating_mul(whole)).min(self.size()) / whole * whole;
        let mut blocks = self.blocks_to_publish(end, false);
        blocks.retain(|(block, _)| self.local.get(block).is_some_and(|local| local.is_new));
        (end.max(self.setup.size), blocks)
    }
}
