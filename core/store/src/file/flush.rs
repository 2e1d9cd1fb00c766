//! A flush: what was written becomes what others read.
//!
//! In this order, each when the one before is over: writes that came before it; zeroes in the gaps of new blocks; checksums of units that
//! were not written as a whole, from what a drive has; a flush of every namespace that was written; the commit. Writes that come behind it wait.
//!
//! One of the [beginning](super::beginning) waits for no write, and no write waits for it but in its own blocks.
//!
//! A commit has a limit, so there may be several, one after the other: blocks in their order, and with each a size that ends with the last of them.
//! What others read after any of them is a file whose writer came so far: no block behind the size, and none missing before it.

use super::event::{DriveTicket, FileBuffer, FileEffect, FileError, FileMemory, FileOpId};
use super::io::{DriveTarget, FileIo, FileOp, OpKind};
use super::local::length;
use super::piece::PieceStage;
use crate::kv::{COMMIT_BYTES_MAX, COMMIT_KEYS_MAX};
use crate::mutant::Mutant;
use crate::records::{CHECKSUM_BYTES, COPIES_MAX, MAP_CHUNK_BYTES_MAX};
use crate::space::cut_tail;
use crate::{Extent, NamespaceId};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use weir_units::Nanos;

/// Keys that a publish may need at the most beside those of the inode, the session, the request's answer, the file's owner and the service's life: of the 100 that a
/// commit has.
pub(super) const PUBLISH_KEYS: usize = 83;

/// Chunks of the map that one commit changes at the most, each of 32 KiB before and 32 KiB after: of 512 KiB.
const PUBLISH_CHUNKS: usize = 6;

/// Keys of a new copy: the region's lease, the grant's record, and the three that this is cut into.
const NEW_COPY_KEYS: usize = 5;

/// Keys of a copy that is given up: the region's lease, and its record before and after.
const OLD_COPY_KEYS: usize = 3;

/// Keys of a chunk of the map: before and after, and its place in the index of blocks that lack copies.
const CHUNK_KEYS: usize = 3;

const _: () = assert!(
    COPIES_MAX * (NEW_COPY_KEYS + OLD_COPY_KEYS) + CHUNK_KEYS <= PUBLISH_KEYS && PUBLISH_KEYS + 17 <= COMMIT_KEYS_MAX,
    "one block fits into a commit"
);
const _: () =
    assert!(PUBLISH_CHUNKS * 2 * MAP_CHUNK_BYTES_MAX + (64 << 10) <= COMMIT_BYTES_MAX, "its chunks fit into a commit");

/// In the number of a flush that no caller has asked for: callers count from 0.
const OWN_FLUSH: u64 = 1 << 63;

/// How far a flush is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlushPhase {
    /// Writes that came before it are under way.
    Waiting,
    Gaps,
    Sums,
    Drives,
    /// The commit is under way.
    Publish,
}

/// What is done at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlushStep {
    /// Zeroes of a block.
    Zero(u64, u32, u32),
    /// The checksum of a unit of a block.
    Sum(u64, u32),
    Drive(NamespaceId),
}

/// See [the module](self).
#[derive(Clone, Debug)]
pub(super) struct Flush {
    pub op: FileOpId,
    /// The last block is cut to what it holds.
    cut: bool,
    /// Pieces of later numbers wait for it.
    barrier: u64,
    /// Only the beginning of what was written: nothing but writes of its blocks waits.
    pub is_beginning: bool,
    phase: FlushPhase,
    steps: VecDeque<FlushStep>,
    /// The size, and the blocks with the length of each.
    size: u64,
    blocks: Vec<(u64, u32)>,
    /// How many of the blocks the commit under way has, and its size.
    sent: (usize, u64),
    /// Commands under way, and the copies that have failed, a bit each.
    inflight: usize,
    failed: u32,
    own: Option<u64>,
}

impl Flush {
    fn new(op: FileOpId, cut: bool, barrier: u64) -> Self {
        let (phase, steps, blocks) = (FlushPhase::Waiting, VecDeque::new(), Vec::new());
        Self {
            op,
            cut,
            barrier,
            is_beginning: false,
            phase,
            steps,
            size: 0,
            blocks,
            sent: (0, 0),
            inflight: 0,
            failed: 0,
            own: None,
        }
    }

    /// Whether a write, a piece of that number, waits for it.
    pub fn holds_back(&self, number: u64, block: u64) -> bool {
        match self.is_beginning {
            true => self.blocks.binary_search_by_key(&block, |(taken, _)| *taken).is_ok(),
            false => self.barrier < number,
        }
    }

    /// No caller has asked for it.
    pub fn is_own(&self) -> bool {
        self.op.0 & OWN_FLUSH != 0
    }

    /// Commands to drives are under way.
    pub fn is_sending(&self) -> bool {
        self.inflight > 0
    }

    /// Writes that came before it are under way.
    pub fn is_waiting(&self) -> bool {
        self.phase == FlushPhase::Waiting
    }

    /// A commit is under way.
    pub fn is_publishing(&self) -> bool {
        self.phase == FlushPhase::Publish
    }

    /// The blocks that are to be published.
    pub fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.blocks.iter().map(|(block, _)| *block)
    }
}

/// What of a copy lies behind its first bytes.
fn behind(copy: &Extent, len: u32) -> Option<Extent> {
    let (cut, length) = (u64::from(len), copy.length.get());
    let offset = copy.offset.get().checked_add(cut)?;
    (cut < length).then(|| Extent { offset: offset.into(), length: (length - cut).into(), ..*copy })
}

impl FileIo {
    pub(super) fn begin_flush(
        &mut self,
        now: Nanos,
        id: FileOpId,
        cut: bool,
        deadline: Nanos,
        effects: &mut Vec<FileEffect>,
    ) {
        let over = (now >= self.setup.lease).then_some(FileError::LeaseOver);
        if let Some(error) = self.poison.or(over).or_else(|| self.wrong_block()) {
            return effects.push(FileEffect::Answer(id, Err(error)));
        }
        let (kind, end) = (OpKind::Flush, self.size());
        self.add_op(id, FileOp { kind, deadline, left: 1, bytes: 0, end, error: None, over: None, is_aborted: false });
        let barrier = self.next_number();
        self.flushes.push_back(Flush::new(id, cut, barrier));
    }

    /// A write waits until its block is published, as far as it goes. No caller has asked for this flush; it has the time that the write has.
    ///
    /// # Errors
    /// That was done before.
    pub(super) fn publish_before(&mut self, number: u64) -> Result<bool, FileError> {
        // One that has begun comes to its end first.
        if self.flushes.iter().any(|flush| flush.barrier < number || !flush.is_waiting()) {
            return Ok(false);
        }
        let Some(piece) = self.pieces.get_mut(&number) else { return Ok(false) };
        if core::mem::replace(&mut piece.has_flushed, true) {
            return Err(FileError::NoSpace);
        }
        let deadline = self.ops.get(&piece.op).map_or(Nanos::NEVER, |op| op.deadline);
        let op = FileOpId(OWN_FLUSH | number);
        let (kind, end) = (OpKind::Flush, self.size());
        self.add_op(op, FileOp { kind, deadline, left: 1, bytes: 0, end, error: None, over: None, is_aborted: false });
        // What came before it goes on, and so does what has begun.
        self.flushes.push_front(Flush::new(op, false, number - 1));
        Ok(false)
    }

    pub(super) fn go_on_flushing(&mut self, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        while self.flushes.front().is_some_and(|flush| flush.inflight == 0) {
            self.drop_lost();
            let Some(flush) = self.flushes.front() else { return };
            if let Some(error) = self.poison.or_else(|| self.ops.get(&flush.op).and_then(|op| op.error)) {
                self.end_flush(Err(error), memory, effects);
                continue;
            }
            if let Some(step) = flush.steps.front().copied() {
                self.send_step(step, memory, effects);
                return;
            }
            if flush.phase == FlushPhase::Publish || !self.next_phase(memory, effects) {
                return;
            }
        }
    }

    /// The next phase's steps; `false` if it has to wait.
    fn next_phase(&mut self, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) -> bool {
        let Some(flush) = self.flushes.front() else { return false };
        let (phase, steps) = match flush.phase {
            FlushPhase::Waiting if flush.is_beginning => {
                let (size, blocks) = self.beginning();
                if blocks.is_empty() {
                    self.end_flush(Ok(()), memory, effects);
                    return true;
                }
                let steps = self.gaps(&blocks);
                if let Some(flush) = self.flushes.front_mut() {
                    (flush.size, flush.blocks) = (size, blocks);
                }
                (FlushPhase::Gaps, steps)
            }
            FlushPhase::Waiting => {
                if self.pieces.iter().any(|(number, piece)| {
                    piece.is_write && (*number <= flush.barrier || piece.stage != PieceStage::Waiting)
                }) {
                    return false;
                }
                let (cut, size) = (flush.cut, self.size());
                if !self.take_unwritten_marks(size, effects) {
                    return false;
                }
                let blocks = self.blocks_to_publish(size, cut);
                if blocks.is_empty() && size == self.setup.size {
                    self.end_flush(Ok(()), memory, effects);
                    return true;
                }
                let steps = self.gaps(&blocks);
                if let Some(flush) = self.flushes.front_mut() {
                    (flush.size, flush.blocks) = (size, blocks);
                }
                (FlushPhase::Gaps, steps)
            }
            FlushPhase::Gaps => (FlushPhase::Sums, self.unknown_sums(&flush.blocks)),
            FlushPhase::Sums if self.planted.is(Mutant::NoFlushBeforePublish) => (FlushPhase::Drives, VecDeque::new()),
            FlushPhase::Sums => {
                let copies = flush.blocks.iter().filter_map(|(block, _)| self.local.get(block));
                let copies = copies.flat_map(|local| &local.record.copies);
                let namespaces: BTreeSet<NamespaceId> = copies.map(|extent| extent.namespace).collect();
                (FlushPhase::Drives, namespaces.into_iter().map(FlushStep::Drive).collect())
            }
            FlushPhase::Drives | FlushPhase::Publish => {
                self.publish_some(effects);
                (FlushPhase::Publish, VecDeque::new())
            }
        };
        if let Some(flush) = self.flushes.front_mut() {
            (flush.phase, flush.steps) = (phase, steps);
        }
        phase != FlushPhase::Publish || self.poison.is_some()
    }

    /// Sends the commit of as many blocks as it can have, from the first on.
    fn publish_some(&mut self, effects: &mut Vec<FileEffect>) {
        let Some(flush) = self.flushes.front() else { return };
        let (mut keys, mut chunks, mut records) = (0, BTreeSet::new(), Vec::new());
        for (block, length) in &flush.blocks {
            let known = self.local.get(block).and_then(|local| Some((local, local.to_publish(*length)?)));
            let Some((local, record)) = known else {
                self.poison.get_or_insert(FileError::BadMap);
                return;
            };
            let new = if local.is_new { record.copies.len() * NEW_COPY_KEYS } else { 0 };
            chunks.extend(self.map.place(*block).map(|(chunk, _)| chunk));
            keys += new + local.replaces * OLD_COPY_KEYS;
            let is_full = keys + chunks.len() * CHUNK_KEYS > self.publish_keys || chunks.len() > PUBLISH_CHUNKS;
            if is_full && !records.is_empty() {
                break;
            }
            records.push((*block, record));
        }
        let last = records.last().filter(|_| records.len() < flush.blocks.len());
        let end = last.map_or(flush.size, |(block, _)| {
            block.saturating_add(1).saturating_mul(self.setup.block.into()).clamp(self.setup.size, flush.size)
        });
        let size = if self.planted.is(Mutant::SizeBeforeBlocks) { flush.size } else { end };
        for (block, _) in &records {
            if let Some(local) = self.local.get_mut(block) {
                local.is_exposed = true;
            }
        }
        self.exposing = records.iter().map(|(block, _)| *block).collect();
        if let Some(flush) = self.flushes.front_mut() {
            flush.sent = (records.len(), size);
        }
        effects.push(FileEffect::Publish(size, records));
    }

    /// Blocks that are to be published, and how many bytes of each.
    pub(super) fn blocks_to_publish(&self, size: u64, cut: bool) -> Vec<(u64, u32)> {
        let whole = u64::from(self.setup.block);
        let wanted = self.local.iter().filter(|(_, local)| local.source.is_none()).filter_map(|(block, local)| {
            let used = size.saturating_sub(block.saturating_mul(whole)).min(whole);
            let new = if cut { cut_tail(whole, used) } else { whole };
            let length = if local.is_new { length(&local.record).min(new as u32) } else { length(&local.record) };
            (used > 0).then_some((*block, length))
        });
        wanted.collect()
    }

    fn gaps(&self, blocks: &[(u64, u32)]) -> VecDeque<FlushStep> {
        let mut steps = VecDeque::new();
        if self.planted.is(Mutant::GapsNotFilled) {
            return steps;
        }
        for (block, len) in blocks {
            let Some(local) = self.local.get(block).filter(|local| local.is_new) else { continue };
            for (from, to) in local.written.gaps(*len) {
                let starts = (from..to).step_by(CHECKSUM_BYTES as usize);
                steps.extend(starts.map(|at| FlushStep::Zero(*block, at, (at + CHECKSUM_BYTES).min(to))));
            }
        }
        steps
    }

    fn unknown_sums(&self, blocks: &[(u64, u32)]) -> VecDeque<FlushStep> {
        let mut steps = VecDeque::new();
        for (block, len) in blocks {
            let Some(local) = self.local.get(block) else { continue };
            let is_known = |unit: u32| {
                let is_whole = (unit + 1) * CHECKSUM_BYTES <= *len || !local.is_new;
                let has_sum = local.sums.contains_key(&unit) || local.record.checksums.get(unit as usize).is_some();
                is_whole && has_sum && !local.dirty.contains(&unit)
            };
            let unknown = (0..len.div_ceil(CHECKSUM_BYTES)).filter(|unit| !is_known(*unit));
            steps.extend(unknown.map(|unit| FlushStep::Sum(*block, unit)));
        }
        steps
    }

    fn send_step(&mut self, step: FlushStep, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        let block = match step {
            FlushStep::Zero(block, ..) | FlushStep::Sum(block, _) => block,
            FlushStep::Drive(namespace) => {
                let ticket = self.flush_ticket(0);
                return effects.push(FileEffect::FlushDrive(ticket, namespace));
            }
        };
        let Some(copies) = self.local.get(&block).map(|local| local.record.copies.clone()) else { return };
        let own = match self.flushes.front().and_then(|flush| flush.own) {
            Some(own) => own,
            None => {
                let own = self.next_number();
                memory.reserve(own, CHECKSUM_BYTES);
                own
            }
        };
        let failed = self.flushes.front_mut().map_or(0, |flush| {
            flush.own = Some(own);
            flush.failed
        });
        let at = |copy: &Extent, from: u32, to: u32| Extent {
            namespace: copy.namespace,
            offset: (copy.offset.get() + u64::from(from)).into(),
            length: u64::from(to - from).into(),
        };
        match step {
            FlushStep::Zero(_, from, to) => {
                memory.zero(FileBuffer::Own(own, 0), to - from);
                for (index, copy) in copies.iter().enumerate() {
                    let ticket = self.flush_ticket(index);
                    effects.push(FileEffect::Write(ticket, at(copy, from, to), FileBuffer::Own(own, 0)));
                }
            }
            FlushStep::Sum(_, unit) => {
                let Some(index) = (0..copies.len()).find(|copy| failed & 1 << copy == 0) else {
                    self.poison.get_or_insert(FileError::Unreadable(block));
                    return self.go_on_flushing(memory, effects);
                };
                let (from, to) = self.unit_of(block, unit);
                let ticket = self.flush_ticket(index);
                effects.push(FileEffect::Read(ticket, at(&copies[index], from, to), FileBuffer::Own(own, 0)));
            }
            FlushStep::Drive(_) => {}
        }
    }

    fn unit_of(&self, block: u64, unit: u32) -> (u32, u32) {
        let blocks = self.flushes.front().map(|flush| &flush.blocks[..]).unwrap_or_default();
        let len = blocks.iter().find(|(b, _)| *b == block).map_or(0, |(_, len)| *len);
        (unit * CHECKSUM_BYTES, ((unit + 1) * CHECKSUM_BYTES).min(len))
    }

    fn flush_ticket(&mut self, copy: usize) -> DriveTicket {
        if let Some(flush) = self.flushes.front_mut() {
            flush.inflight += 1;
        }
        self.ticket(DriveTarget::Flush(copy))
    }

    /// A command of the flush is over.
    pub(super) fn flush_done(
        &mut self,
        copy: usize,
        is_done: bool,
        lease_is_over: bool,
        memory: &mut impl FileMemory,
        effects: &mut Vec<FileEffect>,
    ) {
        let Some(flush) = self.flushes.front_mut() else { return };
        flush.inflight -= 1;
        if !is_done {
            flush.failed |= 1 << copy;
        }
        let op = flush.op;
        if let (true, Some(FlushStep::Zero(block, ..))) = (is_done, flush.steps.front().copied()) {
            self.acknowledged(block);
        }
        if lease_is_over {
            self.set_error(op, FileError::LeaseOver);
        }
        let Some(flush) = self.flushes.front_mut().filter(|flush| flush.inflight == 0) else { return };
        let Some(step) = flush.steps.front().copied() else { return };
        let failed = flush.failed;
        match step {
            FlushStep::Zero(block, from, to) => {
                let is_written = self.drop_copies(block, |index, _| failed & 1 << index == 0);
                // Not before: a read meanwhile takes them for what was never written.
                if let Some(local) = self.local.get_mut(&block).filter(|_| is_written) {
                    local.begin_write(from, to);
                    local.end_write(from, to);
                }
            }
            FlushStep::Sum(block, _) if failed & 1 << copy != 0 || self.is_lost_copy(block, copy) => {
                return self.go_on_flushing(memory, effects);
            }
            FlushStep::Sum(block, unit) => self.sum(block, unit, memory),
            FlushStep::Drive(namespace) if failed != 0 => {
                let blocks = self.flushes.front().map(|flush| flush.blocks.clone()).unwrap_or_default();
                for (block, _) in blocks {
                    let _ = self.drop_copies(block, |_, extent| extent.namespace != namespace);
                }
            }
            FlushStep::Drive(_) => {}
        }
        if let Some(flush) = self.flushes.front_mut() {
            flush.steps.pop_front();
            flush.failed = 0;
        }
    }

    /// Copies that lack something are not published; a block that has no other cannot be: `false`.
    pub(super) fn drop_copies(&mut self, block: u64, keep: impl Fn(usize, &Extent) -> bool) -> bool {
        let Some(local) = self.local.get_mut(&block) else { return false };
        if !local.record.copies.iter().enumerate().any(|(index, extent)| keep(index, extent)) {
            self.poison.get_or_insert(FileError::Unwritable(block));
            return false;
        }
        let gone = local.keep_copies(keep);
        self.unused.extend(gone);
        true
    }

    fn sum(&mut self, block: u64, unit: u32, memory: &mut impl FileMemory) {
        let (from, to) = self.unit_of(block, unit);
        let own = self.flushes.front().and_then(|flush| flush.own);
        let (Some(own), Some(local)) = (own, self.local.get(&block)) else { return };
        let start = self.seed(block, &local.record).start(unit, self.setup.crc);
        let sum = memory.checksum(start, FileBuffer::Own(own, 0), to - from);
        if let Some(local) = self.local.get_mut(&block) {
            local.settle(unit, sum);
        }
    }

    fn is_lost_copy(&self, block: u64, copy: usize) -> bool {
        let namespace =
            self.local.get(&block).and_then(|local| local.record.copies.get(copy)).map(|copy| copy.namespace);
        namespace.is_some_and(|namespace| self.is_lost(block, namespace))
    }

    /// A publish was refused: nobody else knows of its blocks. They may be given back, though not all of a publish that is made in several steps.
    pub(super) fn not_exposed(&mut self) {
        for block in core::mem::take(&mut self.exposing) {
            if let Some(local) = self.local.get_mut(&block) {
                local.is_exposed = false;
            }
        }
    }

    pub(super) fn published(
        &mut self,
        result: Result<(), FileError>,
        memory: &mut impl FileMemory,
        effects: &mut Vec<FileEffect>,
    ) {
        let Some(flush) = self.flushes.front().filter(|flush| flush.phase == FlushPhase::Publish) else { return };
        let (count, size) = flush.sent;
        if let Err(error) = result {
            return self.end_flush(Err(error), memory, effects);
        }
        self.setup.size = size;
        self.map_has_changed();
        let blocks: Vec<(u64, u32)> = match self.flushes.front_mut() {
            Some(flush) => flush.blocks.drain(..count.min(flush.blocks.len())).collect(),
            None => return,
        };
        for (block, len) in blocks {
            self.marked.remove(block);
            let Some(local) = self.local.remove(&block) else { continue };
            self.new_blocks -= usize::from(local.is_new);
            let rest = local.record.copies.iter().filter(|_| local.is_new).filter_map(|copy| behind(copy, len));
            self.unused.extend(rest);
            let Some(record) = local.to_publish(len) else { continue };
            // A chunk that is not held is fetched when it is needed.
            let _ = self.map.set(block, record);
        }
        match self.flushes.front().is_some_and(|flush| !flush.blocks.is_empty()) {
            true => self.publish_some(effects),
            false => self.end_flush(Ok(()), memory, effects),
        }
    }

    /// Answers the first flush. One that has failed leaves checksums and copies of which nobody knows what was published.
    fn end_flush(
        &mut self,
        result: Result<(), FileError>,
        memory: &mut impl FileMemory,
        effects: &mut Vec<FileEffect>,
    ) {
        let Some(flush) = self.flushes.pop_front() else { return };
        if let Some(own) = flush.own {
            memory.release(own);
        }
        match result {
            Err(error) if flush.phase != FlushPhase::Waiting => _ = self.poison.get_or_insert(error),
            _ => {}
        }
        self.ops.remove(&flush.op);
        if !flush.is_own() {
            effects.push(FileEffect::Answer(flush.op, result.map(|()| 0)));
        }
    }

    /// The flush has taken too long.
    pub(super) fn expire_flush(
        &mut self,
        id: FileOpId,
        why: FileError,
        memory: &mut impl FileMemory,
        effects: &mut Vec<FileEffect>,
    ) {
        let Some(flush) = self.flushes.front().filter(|flush| flush.op == id) else { return };
        if flush.inflight == 0 {
            return self.end_flush(Err(why), memory, effects);
        }
        let tickets = self.drive.iter().filter(|(_, target)| matches!(target, DriveTarget::Flush(_)));
        effects.extend(tickets.map(|(ticket, _)| FileEffect::Abort(*ticket)));
    }
}
