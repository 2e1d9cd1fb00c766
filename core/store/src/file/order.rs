//! Which pieces of a block go to drives beside each other.
//!
//! ```text
//!   reads beside reads; a read waits for every write before it, and a write for every read
//!   a write beside writes that are at drives already, where none of them can touch a sector, a checksum or a copy of another:
//!   whole sectors that no other writes, nothing to be compared, read or copied first, and no copy that would have to be marked out
//! ```
//! So a stream of large writes is at its drives as a whole, and not one write of each block. Writes of the same bytes keep their order.

use super::io::FileIo;
use super::local::{LocalBlock, length};
use super::piece::{Piece, PieceStage};
use super::split::BlockPiece;
use crate::mutant::Mutant;

/// The largest sectors that a drive of the store has, in bytes.
const SECTOR: u32 = 4096;

/// Whether a piece and one of whole sectors have a sector in common.
const fn share_sectors(whole: &BlockPiece, other: &BlockPiece) -> bool {
    other.start / SECTOR * SECTOR < whole.end() && whole.start < other.end().next_multiple_of(SECTOR)
}

impl FileIo {
    /// Whether a piece that waits may begin: those before it in its block are over, or go on beside it.
    pub(super) fn may_begin(&self, number: u64) -> bool {
        let waits = |piece: &&Piece| piece.stage == PieceStage::Waiting;
        let Some(piece) = self.pieces.get(&number).filter(waits) else { return false };
        let block = piece.piece.block;
        let Some(queue) = self.queues.get(&block) else { return false };
        let mut before = queue.iter().take_while(|other| **other != number).filter_map(|other| self.pieces.get(other));
        if !piece.is_write {
            return before.all(|other| !other.is_write);
        }
        if self.flushes.iter().any(|flush| flush.holds_back(number, block)) {
            return false;
        }
        let mut before = before.peekable();
        before.peek().is_none()
            || before.all(|other| self.is_beside(piece, other)) && self.touches_nothing_else(number, piece)
    }

    /// Whether a write may go on beside one before it, of the same block.
    fn is_beside(&self, piece: &Piece, before: &Piece) -> bool {
        let is_apart = !share_sectors(&piece.piece, &before.piece) || self.planted.is(Mutant::OverlappingWrites);
        before.is_write && before.stage == PieceStage::Write && is_apart
    }

    /// Whether a write does nothing to its block but to write whole sectors of it.
    fn touches_nothing_else(&self, number: u64, piece: &Piece) -> bool {
        let cut = &piece.piece;
        let is_plain = |local: &LocalBlock| {
            let needs_no_mark = local.is_new || local.record.copies.len() == 1;
            !local.is_stale
                && !local.is_gone()
                && local.source.is_none()
                && needs_no_mark
                && cut.end() <= length(&local.record)
        };
        let is_whole = cut.start % SECTOR == 0 && cut.end() % SECTOR == 0;
        is_whole && self.local.get(&cut.block).is_some_and(is_plain) && self.units_to_compare(number).is_empty()
    }
}
