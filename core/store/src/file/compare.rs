//! Before a part of a published unit of checksums is written over, the unit is compared with its checksum: once a unit, as long as the file is open.
//!
//! ```text
//!   start_write ─► Compare: the units that the piece writes in part, as a whole, of each copy ─► Repair: copies that have other bytes ─► Modify
//!                     └─ no copy is right: the write fails by FileError::Corrupt, and has changed nothing
//! ```
//! Otherwise what was damaged on a medium would be given a checksum with the next flush, which sums what the drive has. A unit that is written as a whole
//! is not read, and neither is one that this writer has written over since it was published: its checksum is not known. Sectors that are written in
//! part come from the memory that was compared. All copies are compared, for each of them may be the last one by the time of the flush.

use super::event::{FileEffect, FileError, FileMemory};
use super::io::FileIo;
use super::local::length;
use super::piece::{PieceStage, bytes_of};
use super::unit::{ComparedUnit, unit_at};
use crate::Extent;
use crate::mutant::Mutant;
use crate::records::CHECKSUM_BYTES;
use alloc::vec::Vec;

/// Blocks of which it is remembered which units were compared, at the most: of all it is forgotten then.
const REMEMBERED: usize = 1 << 16;

impl FileIo {
    /// The units that a piece writes in part, and that were not compared since the file was opened.
    pub(super) fn units_to_compare(&self, number: u64) -> Vec<ComparedUnit> {
        let Some(cut) = self.pieces.get(&number).map(|piece| piece.piece) else { return Vec::new() };
        let local = self.local.get(&cut.block).filter(|local| !local.is_new);
        let Some(local) = local.filter(|_| !self.planted.is(Mutant::UnitNotCompared)) else { return Vec::new() };
        let (limit, known) = (length(&local.record), self.compared.get(&cut.block).copied().unwrap_or(0));
        let (first, last) = (cut.start / CHECKSUM_BYTES, (cut.end() - 1) / CHECKSUM_BYTES);
        let edges = core::iter::once(first).chain((last > first).then_some(last));
        let units = edges.map(|unit| ComparedUnit {
            unit,
            first: unit * CHECKSUM_BYTES,
            behind: ((unit + 1) * CHECKSUM_BYTES).min(limit),
            good: 0,
        });
        let is_wanted = |of: &ComparedUnit| {
            let is_whole = cut.start <= of.first && cut.end() >= of.behind;
            let is_published = !local.dirty.contains(&of.unit) && !local.sums.contains_key(&of.unit);
            let has_sum = local.record.checksums.len() > of.unit as usize;
            !is_whole && is_published && has_sum && known & 1 << of.unit == 0
        };
        units.filter(is_wanted).collect()
    }

    /// Reads units of all copies before a piece is written.
    pub(super) fn start_compare(
        &mut self,
        number: u64,
        units: Vec<ComparedUnit>,
        memory: &mut impl FileMemory,
        effects: &mut Vec<FileEffect>,
    ) {
        let own = self.next_number();
        let Some(piece) = self.pieces.get_mut(&number) else { return };
        (piece.stage, piece.own, piece.units) = (PieceStage::Compare, Some(own), units);
        let (count, lost, units) = (piece.copies.len(), piece.failed, piece.units.clone());
        memory.reserve(own, (count * units.len()) as u32 * CHECKSUM_BYTES);
        for copy in (0..count).filter(|copy| lost & 1 << copy == 0) {
            let Some(extent) = self.pieces.get(&number).and_then(|piece| piece.copies.get(copy).copied()) else {
                return;
            };
            for (index, unit) in units.iter().enumerate() {
                let to = unit_at(own, units.len(), copy, index);
                self.send_read(number, copy, bytes_of(&extent, unit.first, unit.len()), to, effects);
            }
        }
    }

    /// The units are read: the piece goes on if each of them is right in a copy.
    pub(super) fn compare(&mut self, number: u64, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        let Some((piece, own)) = self.pieces.get(&number).and_then(|piece| Some((piece, piece.own?))) else { return };
        let (block, mut units, copies) = (piece.piece.block, piece.units.clone(), piece.copies.clone());
        let Some(local) = self.local.get(&block) else { return };
        let seed = self.seed(block, &local.record);
        let is_read = |copy: usize| piece.failed & 1 << copy == 0;
        // What may lack a write is not published anyway.
        let is_lost = |copy: &Extent| local.lost.contains(&copy.namespace);
        let (mut bad, mut is_corrupt) = (Vec::new(), false);
        for index in 0..units.len() {
            let unit = units[index];
            let (start, known) =
                (seed.start(unit.unit, self.setup.crc), local.record.checksums.get(unit.unit as usize));
            let mut sum = |copy| memory.checksum(start, unit_at(own, units.len(), copy, index), unit.len());
            let right: Vec<bool> = (0..copies.len()).map(|copy| is_read(copy) && known == Some(&sum(copy))).collect();
            is_corrupt |= (0..copies.len()).any(|copy| is_read(copy) && !right[copy]);
            let Some(good) = right.iter().position(|is_right| *is_right) else {
                let error = if is_corrupt { FileError::Corrupt(block) } else { FileError::Unreadable(block) };
                return self.fail(number, error, memory, effects);
            };
            units[index].good = good;
            bad.extend(
                (0..copies.len()).filter(|copy| !right[*copy] && !is_lost(&copies[*copy])).map(|at| (at, index)),
            );
        }
        if self.compared.len() >= REMEMBERED {
            self.compared.clear();
        }
        *self.compared.entry(block).or_default() |= units.iter().fold(0, |bits, unit| bits | 1 << unit.unit);
        let Some(piece) = self.pieces.get_mut(&number) else { return };
        (piece.failed, piece.units) = (0, units.clone());
        if bad.is_empty() {
            return self.start_modify(number, memory, effects);
        }
        piece.stage = PieceStage::Repair;
        for (copy, index) in bad {
            let unit = units[index];
            let from = unit_at(own, units.len(), unit.good, index);
            self.send_writes(number, &[(unit.first, unit.len(), from)], |of| of == copy, effects);
        }
    }

    /// Copies that had other bytes have those of the good one. One that could not be written is marked out with the write itself.
    pub(super) fn repaired(&mut self, number: u64, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        if let Some(piece) = self.pieces.get_mut(&number) {
            piece.unrepaired = piece.failed;
        }
        self.start_modify(number, memory, effects);
    }

    /// Where the copies of a block are, as far as that is known: for what is said of them.
    pub fn copies_of(&self, block: u64) -> Vec<Extent> {
        match (self.local.get(&block), self.map.find(block)) {
            (Some(local), _) => local.record.copies.clone(),
            (None, super::MapLookup::Block(record)) => record.copies.clone(),
            (None, _) => Vec::new(),
        }
    }
}
