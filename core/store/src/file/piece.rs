//! A piece of a read or write: its I/O on all copies of its block.

use super::blocks::MapLookup;
use super::event::{DriveTicket, FileBuffer, FileEffect, FileError, FileMemory, FileOpId};
use super::io::{DriveTarget, FileIo, caller};
use super::local::length;
use super::split::{BlockPiece, PartAction, SectorPart, read_parts_until, write_parts};
use super::unit::{ComparedUnit, compared_at};
use crate::mutant::Mutant;
use crate::records::{BlockRecord, CHECKSUM_BYTES};
use crate::space::Epoch;
use crate::{Extent, NamespaceId};
use alloc::vec::Vec;

/// How far a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceStage {
    /// For its turn, the map, a grant or a mark.
    Waiting,
    /// The shorter block that its block replaces is read.
    CopyIn,
    /// That is written to the new block.
    CopyOut,
    /// Units of checksums that it writes in part are read, and compared.
    Compare,
    /// Copies that have other bytes there get them from one that has the right ones.
    Repair,
    /// Sectors that it writes in part are read.
    Modify,
    Write,
    /// Copies that could not be written are being marked out.
    MarkOut,
    Read,
}

/// See [the module](self).
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub op: FileOpId,
    pub piece: BlockPiece,
    pub is_write: bool,
    pub stage: PieceStage,
    pub parts: Vec<SectorPart>,
    /// The block as a read has found it in the map.
    pub record: Option<BlockRecord>,
    /// The epoch of the map under which it goes to drives, from its first command on.
    pub epoch: Option<Epoch>,
    /// What of the block had never been written when a read of it began.
    gaps: Vec<(u32, u32)>,
    /// Its copies.
    pub copies: Vec<Extent>,
    /// The copy that is read.
    pub copy: usize,
    /// Copies that have failed, a bit each.
    pub failed: u32,
    /// Units that are compared before it is written.
    pub units: Vec<ComparedUnit>,
    /// Copies that have other bytes in those, and could not be written, a bit each.
    pub unrepaired: u32,
    /// Commands under way.
    pub inflight: usize,
    /// Memory of the machine's own.
    pub own: Option<u64>,
    /// A copy has other bytes than its checksums are of.
    is_corrupt: bool,
    /// A flush has published its block, which is too short for it.
    pub has_flushed: bool,
    /// Nothing is to be written behind it.
    pub is_last: bool,
}

/// Bytes of a part in memory of the machine's own: a sector at the most, at a place of its own.
const PART_BYTES: u32 = 4096;

impl Piece {
    pub fn new(op: FileOpId, piece: BlockPiece, is_write: bool) -> Self {
        Self {
            op,
            piece,
            is_write,
            stage: PieceStage::Waiting,
            parts: Vec::new(),
            record: None,
            epoch: None,
            gaps: Vec::new(),
            copies: Vec::new(),
            copy: 0,
            failed: 0,
            units: Vec::new(),
            unrepaired: 0,
            inflight: 0,
            own: None,
            is_corrupt: false,
            has_flushed: false,
            is_last: false,
        }
    }

    /// A drive may have some of its bytes.
    pub fn has_written(&self) -> bool {
        matches!(self.stage, PieceStage::CopyOut | PieceStage::Repair | PieceStage::Write | PieceStage::MarkOut)
    }

    /// Where one of its copies is.
    pub fn namespace(&self, copy: usize) -> Option<NamespaceId> {
        self.copies.get(copy).map(|copy| copy.namespace)
    }

    /// Where the bytes of a part are.
    fn buffer(&self, index: usize) -> FileBuffer {
        let part = &self.parts[index];
        match (part.action, self.own) {
            (PartAction::Direct, _) | (_, None) => caller(self.op, part.at),
            (_, Some(own)) => FileBuffer::Own(own, index as u32 * PART_BYTES),
        }
    }

    fn is_indirect(&self) -> bool {
        self.parts.iter().any(|part| part.action != PartAction::Direct)
    }
}

/// The end of the unit of checksums that a piece covers from its beginning on and not up to its end, in a block of `limit` bytes; else the piece's own. So
/// the end of a file is compared with its checksum as well, which is of whole 4 KiB.
const fn last_unit_end(cut: &BlockPiece, limit: u32) -> u32 {
    let end = cut.end();
    let first = (end - 1) / CHECKSUM_BYTES * CHECKSUM_BYTES;
    let behind = if limit - first < CHECKSUM_BYTES { limit } else { first + CHECKSUM_BYTES };
    if cut.start <= first && behind > end { behind } else { end }
}

/// Bytes of a block that are compared with its checksums: from `start` of the block on and before `end`.
struct Compared {
    start: u32,
    end: u32,
    at: FileBuffer,
    /// Bytes from the first of these places on and before the second one lie elsewhere.
    tail: Option<(u32, u32, FileBuffer)>,
}

impl Compared {
    /// A checksum that goes on with the bytes from `first` on and before `behind`.
    fn sum(&self, begin: u32, (first, behind): (u32, u32), memory: &mut impl FileMemory) -> u32 {
        let buffer = match self.at {
            FileBuffer::Caller(op, at) => FileBuffer::Caller(op, at + u64::from(first - self.start)),
            FileBuffer::Own(own, at) => FileBuffer::Own(own, at + (first - self.start)),
        };
        match self.tail.filter(|_| behind > self.end) {
            None => memory.checksum(begin, buffer, behind - first),
            Some((place, _, tail)) => {
                let sum = if place > first { memory.checksum(begin, buffer, place - first) } else { begin };
                memory.checksum(sum, tail, behind - place)
            }
        }
    }

    /// Whether the bytes before that place are there.
    fn reaches(&self, behind: u32) -> bool {
        behind <= self.tail.map_or(self.end, |(_, end, _)| end)
    }
}

/// Bytes of a block at one of its copies.
pub(super) fn bytes_of(copy: &Extent, first: u32, len: u32) -> Extent {
    let offset = copy.offset.get() + u64::from(first);
    Extent { namespace: copy.namespace, offset: offset.into(), length: u64::from(len).into() }
}

impl FileIo {
    pub(super) fn read_hole(&mut self, number: u64, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        if let Some(piece) = self.pieces.get(&number) {
            memory.zero(caller(piece.op, piece.piece.at), piece.piece.len);
        }
        self.finish(number, memory, effects);
    }

    pub(super) fn start_read(
        &mut self,
        number: u64,
        record: &BlockRecord,
        memory: &mut impl FileMemory,
        effects: &mut Vec<FileEffect>,
    ) {
        let (sector, mut copies) = (self.sector(&record.copies), record.copies.clone());
        let limit = length(record);
        let own = self.next_number();
        let Some(piece) = self.pieces.get(&number) else { return };
        if piece.record.is_none() {
            copies.retain(|copy| !self.is_lost(piece.piece.block, copy.namespace));
        }
        let Some(piece) = self.pieces.get_mut(&number) else { return };
        let new = self.local.get(&piece.piece.block).filter(|local| local.is_new && local.source.is_none());
        piece.gaps = new.map(|local| local.written.gaps(piece.piece.end())).unwrap_or_default();
        let end = piece.piece.end().min(limit);
        if end <= piece.piece.start {
            return self.read_hole(number, memory, effects);
        }
        let cut = BlockPiece { len: end - piece.piece.start, ..piece.piece };
        piece.parts = read_parts_until(&cut, sector, last_unit_end(&cut, limit), PART_BYTES);
        piece.copies = copies;
        piece.stage = PieceStage::Read;
        if piece.is_indirect() {
            memory.reserve(own, piece.parts.len() as u32 * PART_BYTES);
            piece.own = Some(own);
        }
        self.read_parts_of(number, effects, |_| true);
    }

    /// Reads parts of a piece from its copy.
    fn read_parts_of(&mut self, number: u64, effects: &mut Vec<FileEffect>, which: impl Fn(&SectorPart) -> bool) {
        let Some(piece) = self.pieces.get(&number) else { return };
        let Some(copy) = piece.copies.get(piece.copy).copied() else { return };
        let parts = piece.parts.iter().enumerate().filter(|(_, part)| which(part));
        let reads: Vec<(Extent, FileBuffer)> =
            parts.map(|(index, part)| (bytes_of(&copy, part.first, part.len), piece.buffer(index))).collect();
        let copy = piece.copy;
        for (extent, to) in reads {
            self.send_read(number, copy, extent, to, effects);
        }
    }

    pub(super) fn send_read(
        &mut self,
        number: u64,
        copy: usize,
        extent: Extent,
        to: FileBuffer,
        effects: &mut Vec<FileEffect>,
    ) {
        let ticket = self.ticket(DriveTarget::Piece(number, copy));
        if let Some(piece) = self.pieces.get_mut(&number) {
            piece.inflight += 1;
        }
        effects.push(FileEffect::Read(ticket, extent, to));
    }

    /// Writes to those copies.
    pub(super) fn send_writes(
        &mut self,
        number: u64,
        what: &[(u32, u32, FileBuffer)],
        to: impl Fn(usize) -> bool,
        effects: &mut Vec<FileEffect>,
    ) {
        let Some(copies) = self.pieces.get(&number).map(|piece| piece.copies.clone()) else { return };
        for (index, copy) in copies.iter().enumerate().filter(|(index, _)| to(*index)) {
            for (first, len, from) in what {
                let ticket = self.ticket(DriveTarget::Piece(number, index));
                if let Some(piece) = self.pieces.get_mut(&number) {
                    piece.inflight += 1;
                }
                effects.push(FileEffect::Write(ticket, bytes_of(copy, *first, *len), *from));
            }
        }
    }

    pub(super) fn start_write(&mut self, number: u64, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        let own = self.next_number();
        let Some(piece) = self.pieces.get_mut(&number) else { return };
        let Some(block) = self.local.get(&piece.piece.block) else { return };
        piece.failed = 0;
        piece.copy = 0;
        if let Some(source) = &block.source {
            let len = length(source);
            memory.reserve(own, len);
            (piece.own, piece.stage, piece.copies) = (Some(own), PieceStage::CopyIn, source.copies.clone());
            let copy = piece.copies[0];
            return self.send_read(number, 0, bytes_of(&copy, 0, len), FileBuffer::Own(own, 0), effects);
        }
        piece.copies = block.record.copies.clone();
        self.choose_copy(number, 0);
        let units = self.units_to_compare(number);
        match units.is_empty() {
            true => self.start_modify(number, memory, effects),
            false => self.start_compare(number, units, memory, effects),
        }
    }

    /// The copy that a write reads, of those that are not in `bad`. One that may lack something is written, and not read.
    fn choose_copy(&mut self, number: u64, bad: u32) {
        let Some(piece) = self.pieces.get_mut(&number) else { return };
        let Some(block) = self.local.get(&piece.piece.block) else { return };
        let lost = piece.copies.iter().enumerate().filter(|(_, copy)| block.lost.contains(&copy.namespace));
        piece.failed = lost.fold(bad, |failed, (index, _)| failed | 1 << index);
        piece.copy = piece.failed.trailing_ones() as usize;
    }

    /// Reads sectors that a write changes in part, but for those that are there, of units that were compared.
    pub(super) fn start_modify(&mut self, number: u64, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        let unrepaired = self.pieces.get(&number).map_or(0, |piece| piece.unrepaired);
        self.choose_copy(number, unrepaired);
        let own = self.next_number();
        let Some(piece) = self.pieces.get(&number) else { return };
        let (cut, copies) = (piece.piece, piece.copies.clone());
        if piece.copy >= copies.len() {
            self.poison.get_or_insert(FileError::Unwritable(cut.block));
            return self.fail(number, FileError::Unwritable(cut.block), memory, effects);
        }
        let Some(block) = self.local.get(&cut.block) else { return };
        let parts = write_parts(&cut, self.sector(&copies), &block.written);
        let Some(piece) = self.pieces.get_mut(&number) else { return };
        piece.stage = PieceStage::Modify;
        piece.parts = parts;
        let (compared, units) = (piece.own.take(), core::mem::take(&mut piece.units));
        if piece.is_indirect() {
            memory.reserve(own, piece.parts.len() as u32 * PART_BYTES);
            piece.own = Some(own);
        }
        for index in 0..piece.parts.len() {
            let part = piece.parts[index];
            let from = compared.and_then(|own| compared_at(own, &units, (part.first, part.first + part.len)));
            if let (PartAction::ReadModifyWrite, Some(from)) = (part.action, from) {
                piece.parts[index].action = PartAction::ModifyWrite;
                memory.copy(from, piece.buffer(index), part.len);
            }
        }
        compared.into_iter().for_each(|own| memory.release(own));
        self.read_parts_of(number, effects, |part| part.action == PartAction::ReadModifyWrite);
        if self.pieces.get(&number).is_some_and(|piece| piece.inflight == 0) {
            self.write_all(number, memory, effects);
        }
    }

    /// Puts the caller's bytes into sectors, and writes all to every copy.
    fn write_all(&mut self, number: u64, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        let Some(piece) = self.pieces.get_mut(&number) else { return };
        piece.stage = PieceStage::Write;
        piece.failed = 0;
        let mut what = Vec::new();
        for (index, part) in piece.parts.iter().enumerate() {
            let buffer = piece.buffer(index);
            if let FileBuffer::Own(own, base) = buffer {
                let to = FileBuffer::Own(own, base + (part.start - part.first));
                memory.copy(caller(piece.op, part.at), to, part.wanted);
            }
            what.push((part.first, part.len, buffer));
        }
        if let Some(block) = self.local.get_mut(&piece.piece.block) {
            what.iter().for_each(|(first, len, _)| block.begin_write(*first, first + len));
        }
        self.send_writes(number, &what, |_| true, effects);
    }

    /// A command of a piece is over.
    pub(super) fn piece_went_on(&mut self, number: u64, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        let Some(piece) = self.pieces.get(&number).filter(|piece| piece.inflight == 0) else { return };
        // The failure of another piece leaves this one as it is.
        if let Some(error) = self.ops.get(&piece.op).and_then(|op| op.over) {
            if piece.has_written() {
                self.poison.get_or_insert(error);
            }
            return self.finish(number, memory, effects);
        }
        let has_failed = piece.failed & 1 << piece.copy != 0;
        match piece.stage {
            PieceStage::CopyIn if has_failed => self.other_copy(number, memory, effects),
            PieceStage::CopyIn => self.copy_out(number, memory, effects),
            PieceStage::Compare => self.compare(number, memory, effects),
            PieceStage::Repair => self.repaired(number, memory, effects),
            PieceStage::Modify if has_failed => self.other_copy(number, memory, effects),
            PieceStage::Modify => self.write_all(number, memory, effects),
            PieceStage::Read if has_failed => self.other_copy(number, memory, effects),
            PieceStage::Read => self.read_done(number, memory, effects),
            PieceStage::CopyOut | PieceStage::Write => self.write_done(number, memory, effects),
            PieceStage::Waiting | PieceStage::MarkOut => {}
        }
    }

    /// Reads again, from a copy that has not failed.
    fn other_copy(&mut self, number: u64, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        let Some(piece) = self.pieces.get_mut(&number) else { return };
        let block = piece.piece.block;
        let Some(copy) = (0..piece.copies.len()).find(|copy| piece.failed & 1 << copy == 0) else {
            let error = if piece.is_corrupt { FileError::Corrupt(block) } else { FileError::Unreadable(block) };
            return self.fail(number, error, memory, effects);
        };
        piece.copy = copy;
        match (piece.stage, piece.own) {
            (PieceStage::CopyIn, Some(own)) => {
                let extent = piece.copies[copy];
                self.send_read(number, copy, extent, FileBuffer::Own(own, 0), effects);
            }
            (PieceStage::Read, _) => self.read_parts_of(number, effects, |_| true),
            _ => self.read_parts_of(number, effects, |part| part.action == PartAction::ReadModifyWrite),
        }
    }

    /// Whether a read that is under way could be made at another copy, of a namespace that is meant.
    pub fn may_read_elsewhere(&self, ticket: DriveTicket, is_meant: impl Fn(NamespaceId) -> bool) -> bool {
        let Some(DriveTarget::Piece(number, _)) = self.drive.get(&ticket) else { return false };
        let piece = self.pieces.get(number).filter(|piece| piece.stage == PieceStage::Read);
        piece.is_some_and(|piece| {
            let mut copies = piece.copies.iter().enumerate();
            copies.any(|(at, copy)| at != piece.copy && piece.failed & 1 << at == 0 && is_meant(copy.namespace))
        })
    }

    /// The old block's bytes go to every copy of the new one.
    fn copy_out(&mut self, number: u64, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        let Some(piece) = self.pieces.get(&number) else { return };
        let (Some(own), block) = (piece.own, piece.piece.block) else { return };
        let Some(source) = self.local.get(&block).and_then(|local| local.source.clone()) else { return };
        let bytes = Compared { start: 0, end: length(&source), at: FileBuffer::Own(own, 0), tail: None };
        if !self.has_right_sums(block, &source, &bytes, memory) {
            if let Some(piece) = self.pieces.get_mut(&number) {
                piece.is_corrupt = true;
                piece.failed |= 1 << piece.copy;
            }
            return self.other_copy(number, memory, effects);
        }
        let (Some(piece), Some(local)) = (self.pieces.get_mut(&number), self.local.get_mut(&block)) else { return };
        (piece.stage, piece.failed, piece.copies) = (PieceStage::CopyOut, 0, local.record.copies.clone());
        local.begin_write(0, length(&source));
        self.send_writes(number, &[(0, length(&source), FileBuffer::Own(own, 0))], |_| true, effects);
    }

    /// Whether bytes of a published block have the checksums of every unit that they cover.
    fn has_right_sums(&self, block: u64, record: &BlockRecord, bytes: &Compared, memory: &mut impl FileMemory) -> bool {
        let (limit, seed) = (length(record), self.seed(block, record));
        if record.is_unsettled {
            return true;
        }
        let local = self.local.get(&block);
        let sums = local.filter(|local| local.source.is_none()).map(|local| &local.sums);
        let dirty = local.map(|local| if local.source.is_some() { &local.source_dirty } else { &local.dirty });
        (bytes.start.div_ceil(CHECKSUM_BYTES)..bytes.end.div_ceil(CHECKSUM_BYTES)).all(|unit| {
            let (first, behind) = (unit * CHECKSUM_BYTES, ((unit + 1) * CHECKSUM_BYTES).min(limit));
            let known = sums.and_then(|sums| sums.get(&unit)).or_else(|| record.checksums.get(unit as usize));
            let is_dirty = dirty.is_some_and(|dirty| dirty.contains(&unit));
            let Some(sum) = known.filter(|_| bytes.reaches(behind) && !is_dirty) else { return true };
            bytes.sum(seed.start(unit, self.setup.crc), (first, behind), memory) == *sum
        })
    }

    /// All sectors are read: the caller gets its bytes, if they are what they should be.
    fn read_done(&mut self, number: u64, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        let Some(piece) = self.pieces.get(&number) else { return };
        let (op, cut, block) = (piece.op, piece.piece, piece.piece.block);
        for (index, part) in piece.parts.iter().enumerate() {
            if let FileBuffer::Own(own, base) = piece.buffer(index) {
                let from = FileBuffer::Own(own, base + (part.start - part.first));
                memory.copy(from, caller(op, part.at), part.wanted);
            }
        }
        let local = self.local.get(&block).filter(|_| piece.record.is_none());
        let record = match (&piece.record, local, self.map.find(block)) {
            (Some(record), ..) => record.clone(),
            (None, Some(local), _) => local.source.as_ref().unwrap_or(&local.record).clone(),
            // It has been published in the meantime.
            (None, None, MapLookup::Block(record)) => record.clone(),
            (None, None, _) => return self.read_again(number, memory),
        };
        let end = cut.end().min(length(&record));
        let tail = piece
            .parts
            .last()
            .zip(piece.parts.len().checked_sub(1))
            .map(|(part, index)| (part.first, part.first + part.len, piece.buffer(index)));
        let bytes = Compared { start: cut.start, end, at: caller(op, cut.at), tail };
        if !self.has_right_sums(block, &record, &bytes, memory) {
            if let Some(piece) = self.pieces.get_mut(&number) {
                piece.is_corrupt = true;
                piece.failed |= 1 << piece.copy;
            }
            return self.other_copy(number, memory, effects);
        }
        let mut zero = |from: u32, to: u32| {
            let (from, to) = (from.max(cut.start), to.min(cut.end()));
            if from < to {
                memory.zero(caller(op, cut.at + u64::from(from - cut.start)), to - from);
            }
        };
        zero(end, cut.end());
        piece.gaps.iter().for_each(|(from, to)| zero(*from, *to));
        self.finish(number, memory, effects);
    }

    /// What is known of the block is gone: the map is fetched again.
    fn read_again(&mut self, number: u64, memory: &mut impl FileMemory) {
        if let Some(piece) = self.pieces.get_mut(&number) {
            (piece.stage, piece.failed, piece.copy, piece.epoch) = (PieceStage::Waiting, 0, 0, None);
            self.waiting.insert((piece.piece.block, number));
            if let Some(own) = piece.own.take() {
                memory.release(own);
            }
        }
    }

    /// All copies have it, or have failed.
    fn write_done(&mut self, number: u64, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        let Some(piece) = self.pieces.get_mut(&number) else { return };
        piece.failed |= piece.unrepaired;
        let (block, failed) = (piece.piece.block, piece.failed);
        let Some(local) = self.local.get_mut(&block) else { return };
        // By place, and not by number: another write of the block may have dropped copies meanwhile.
        let bad = piece.copies.iter().enumerate().filter(|(copy, _)| failed & 1 << copy != 0);
        let bad: Vec<Extent> = bad.map(|(_, copy)| *copy).collect();
        if local.record.copies.iter().all(|copy| bad.contains(copy)) {
            self.poison.get_or_insert(FileError::Unwritable(block));
            return self.fail(number, FileError::Unwritable(block), memory, effects);
        }
        if failed != 0 {
            let gone = local.keep_copies(|_, copy| !bad.contains(copy));
            self.unused.extend(gone);
        }
        // Those that are left lack earlier writes.
        if local.is_gone() {
            self.poison.get_or_insert(FileError::Unwritable(block));
            return self.fail(number, FileError::Unwritable(block), memory, effects);
        }
        if piece.stage == PieceStage::CopyOut {
            if let Some(source) = local.source.take() {
                local.end_write(0, length(&source));
            }
            if let Some(own) = piece.own.take() {
                memory.release(own);
            }
            return self.start_write(number, memory, effects);
        }
        piece.parts.iter().for_each(|part| local.end_write(part.first, part.first + part.len));
        self.sum_whole_units(number, memory);
        let Some(local) = self.local.get(&block).filter(|local| failed != 0 && !local.is_new) else {
            return self.finish(number, memory, effects);
        };
        // Readers may still be sent to a copy that lacks this: not before that has ended is it written.
        effects.push(FileEffect::MarkOut(block, local.record.copies.clone()));
        if self.planted.is(Mutant::AcknowledgeBeforeMark) {
            return self.finish(number, memory, effects);
        }
        if let Some(piece) = self.pieces.get_mut(&number) {
            piece.stage = PieceStage::MarkOut;
        }
    }

    /// The checksums of units that the caller's memory has as a whole.
    fn sum_whole_units(&mut self, number: u64, memory: &mut impl FileMemory) {
        let Some(piece) = self.pieces.get(&number) else { return };
        let (cut, op) = (piece.piece, piece.op);
        let Some(local) = self.local.get(&cut.block) else { return };
        let seed = self.seed(cut.block, &local.record);
        for unit in cut.start.div_ceil(CHECKSUM_BYTES)..cut.end() / CHECKSUM_BYTES {
            let from = caller(op, cut.at + u64::from(unit * CHECKSUM_BYTES - cut.start));
            let sum = memory.checksum(seed.start(unit, self.setup.crc), from, CHECKSUM_BYTES);
            if let Some(local) = self.local.get_mut(&cut.block) {
                local.settle(unit, sum);
            }
        }
    }

    pub(super) fn marked_out(
        &mut self,
        block: u64,
        result: Result<(), FileError>,
        memory: &mut impl FileMemory,
        effects: &mut Vec<FileEffect>,
    ) {
        let waits =
            self.pieces.iter().find(|(_, piece)| piece.piece.block == block && piece.stage == PieceStage::MarkOut);
        let Some(number) = waits.map(|(number, _)| *number) else { return };
        self.map_has_changed();
        match result {
            Ok(()) => self.finish(number, memory, effects),
            Err(error) => {
                // Nobody knows which copies readers are sent to.
                self.poison.get_or_insert(error);
                self.fail(number, error, memory, effects);
            }
        }
    }
}
