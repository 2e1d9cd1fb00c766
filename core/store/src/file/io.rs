//! The machine: operations, their pieces, and what they wait for. See [the module](super).

use super::blocks::{ChunkMap, MapLookup};
use super::checksum::{BlockSeed, Crc32cUpdate};
use super::event::{
    DriveFailure, DriveTicket, FileBuffer, FileEffect, FileError, FileEvent, FileMemory, FileOpId, NewBlock,
};
use super::flush::{Flush, PUBLISH_KEYS};
use super::local::{LocalBlock, length};
use super::marks::OwnMarks;
use super::piece::{Piece, PieceStage};
use super::split::{SectorSize, pieces};
use crate::mutant::{Mutant, Planted};
use crate::records::BlockRecord;
use crate::space::{BLOCK_MAX, BLOCK_MIN, Epoch};
use crate::{Extent, InodeId, NamespaceId};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use weir_units::Nanos;

/// An open file.
#[derive(Clone, Debug)]
pub struct FileSetup {
    /// The file.
    pub inode: InodeId,
    /// Bytes of a block: a power of two from 64 KiB to 4 MiB.
    pub block: u32,
    /// Its size as it was published.
    pub size: u64,
    /// Sectors of namespaces; those that are not here have 4096 bytes.
    pub sectors: BTreeMap<NamespaceId, SectorSize>,
    /// CRC32C.
    pub crc: Crc32cUpdate,
    /// Until when the session's lease holds.
    pub lease: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpKind {
    Read,
    Write,
    Flush,
}

/// An operation under way.
#[derive(Clone, Debug)]
pub(super) struct FileOp {
    pub kind: OpKind,
    pub deadline: Nanos,
    /// Pieces that are not over.
    pub left: usize,
    pub bytes: u32,
    /// The first byte of the file behind it.
    pub end: u64,
    pub error: Option<FileError>,
    /// Its time is over, or the session's: nothing more is sent for it.
    pub over: Option<FileError>,
    /// What it has at drives was aborted.
    pub is_aborted: bool,
}

/// What a command to a drive is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum DriveTarget {
    /// A piece, and the number of the copy.
    Piece(u64, usize),
    /// The flush, and the number of the copy.
    Flush(usize),
}

/// An open file of one client. It is the only writer of the file, or writes nothing.
#[derive(Clone, Debug)]
pub struct FileIo {
    pub(super) setup: FileSetup,
    pub(super) map: ChunkMap,
    pub(super) local: BTreeMap<u64, LocalBlock>,
    pub(super) ops: BTreeMap<FileOpId, FileOp>,
    pub(super) pieces: BTreeMap<u64, Piece>,
    /// Pieces that wait: of which block, and the number.
    pub(super) waiting: BTreeSet<(u64, u64)>,
    /// Before then no operation's time is over, unless the lease is.
    expires: Nanos,
    /// Pieces of each block, in the order in which they came.
    pub(super) queues: BTreeMap<u64, VecDeque<u64>>,
    pub(super) last_number: u64,
    pub(super) drive: BTreeMap<DriveTicket, DriveTarget>,
    /// Chunks that were asked for, and whether their map was changed since: the answer is of before then, and is asked for again.
    pub(super) fetching: BTreeMap<u32, bool>,
    pub(super) granting: BTreeSet<u64>,
    /// Blocks that were granted, until a write takes them.
    pub(super) grants: BTreeMap<u64, NewBlock>,
    pub(super) unsettling: BTreeSet<u64>,
    /// Blocks that this writer has marked as unsettled.
    pub(super) marked: OwnMarks,
    /// Units of blocks that were compared with their checksums, a bit each.
    pub(super) compared: BTreeMap<u64, u64>,
    /// Blocks of the publish that was sent last.
    pub(super) exposing: Vec<u64>,
    /// The end of what was written and acknowledged.
    pub(super) end: u64,
    /// Chunks of the map that are older are not used.
    pub(super) floor: Epoch,
    /// What was granted and is not needed.
    pub(super) unused: Vec<Extent>,
    /// Changed blocks that no map names yet.
    pub(super) new_blocks: usize,
    /// Those of them that were given back.
    pub(super) lost_blocks: usize,
    /// A write has failed, and may have left blocks that nobody sees.
    pub(super) has_failed: bool,
    /// What a commit takes of a publish.
    pub(super) publish_keys: usize,
    /// The lease is over before its time, for good.
    is_lease_over: bool,
    /// Why nothing is written any more.
    pub(super) poison: Option<FileError>,
    pub(super) flushes: VecDeque<Flush>,
    pub(crate) planted: Planted,
}

impl FileIo {
    /// A file that was opened, and of whose map nothing is known.
    pub fn new(setup: FileSetup) -> Self {
        Self {
            map: ChunkMap::new(setup.block),
            end: setup.size,
            setup,
            local: BTreeMap::new(),
            ops: BTreeMap::new(),
            pieces: BTreeMap::new(),
            waiting: BTreeSet::new(),
            expires: Nanos::NEVER,
            queues: BTreeMap::new(),
            last_number: 0,
            drive: BTreeMap::new(),
            fetching: BTreeMap::new(),
            granting: BTreeSet::new(),
            grants: BTreeMap::new(),
            unsettling: BTreeSet::new(),
            marked: OwnMarks::default(),
            compared: BTreeMap::new(),
            exposing: Vec::new(),
            floor: Epoch::default(),
            unused: Vec::new(),
            new_blocks: 0,
            lost_blocks: 0,
            has_failed: false,
            publish_keys: PUBLISH_KEYS,
            is_lease_over: false,
            poison: None,
            flushes: VecDeque::new(),
            planted: Planted::default(),
        }
    }

    /// The size that others see.
    pub fn published_size(&self) -> u64 {
        self.setup.size
    }

    /// The size that this client sees: with what it has written.
    pub fn size(&self) -> u64 {
        self.end.max(self.setup.size)
    }

    /// The chunks of the map that are held.
    pub fn map(&mut self) -> &mut ChunkMap {
        &mut self.map
    }

    /// Why nothing is written any more, if that is so.
    pub fn poison(&self) -> Option<FileError> {
        self.poison
    }

    /// Operations under way.
    pub fn pending(&self) -> usize {
        self.ops.len()
    }

    /// One event; adds what is to be done.
    pub fn apply(&mut self, now: Nanos, event: FileEvent, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        match event {
            FileEvent::Read(id, offset, len, deadline) => {
                let len = u64::from(len).min(self.size().saturating_sub(offset)) as u32;
                self.begin(now, id, OpKind::Read, (offset, len), deadline, effects);
            }
            FileEvent::Write(id, offset, len, deadline) => {
                self.begin(now, id, OpKind::Write, (offset, len), deadline, effects);
            }
            FileEvent::WriteLast(id, offset, len, deadline) => {
                self.begin(now, id, OpKind::Write, (offset, len), deadline, effects);
                let number = self.last_number;
                if let Some(piece) = self.pieces.get_mut(&number).filter(|piece| piece.op == id) {
                    piece.is_last = true;
                }
            }
            FileEvent::Flush(id, cut, deadline) => self.begin_flush(now, id, cut, deadline, effects),
            FileEvent::FlushBeginning(id, deadline) => self.begin_flush_of_beginning(now, id, deadline, effects),
            FileEvent::Chunk(number, result) => self.chunk(now, number, result, memory, effects),
            FileEvent::Granted(block, result) => self.granted(block, result, memory, effects),
            FileEvent::Unsettled(block, result) => self.unsettled(block, result, memory, effects),
            FileEvent::MarkedOut(block, result) => self.marked_out(block, result, memory, effects),
            FileEvent::Published(result) => self.published(result, memory, effects),
            FileEvent::NotPublished(error) => {
                self.not_exposed();
                self.published(Err(error), memory, effects);
            }
            FileEvent::Done(ticket, result) => self.done(now, ticket, result, memory, effects),
            FileEvent::Lease(until) => {
                if !self.is_lease_over {
                    self.setup.lease = self.setup.lease.max(until);
                }
            }
            FileEvent::LeaseOver => (self.is_lease_over, self.setup.lease) = (true, Nanos(0)),
            FileEvent::Reconnected(namespace) => self.reconnected(namespace),
            FileEvent::Refetch(block) => self.refetch(now, block, effects),
            FileEvent::Forget(epoch) => self.forget(now, epoch, effects),
            FileEvent::Tick => self.look_up_changed(now, effects),
        }
        self.expire(now, memory, effects);
        self.go_on(memory, effects);
    }

    /// An error if the file's blocks have no size that a block has.
    pub(super) fn wrong_block(&self) -> Option<FileError> {
        let block = self.setup.block;
        let is_good = block.is_power_of_two() && (BLOCK_MIN..=BLOCK_MAX).contains(&block.into());
        (!is_good).then_some(FileError::BlockSize(block))
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn begin(
        &mut self,
        now: Nanos,
        id: FileOpId,
        kind: OpKind,
        (offset, len): (u64, u32),
        deadline: Nanos,
        effects: &mut Vec<FileEffect>,
    ) {
        let writes = kind == OpKind::Write;
        let error = match (offset.checked_add(len.into()), self.poison) {
            (None, _) => Some(FileError::TooFar),
            (_, Some(poison)) if writes => Some(poison),
            _ if now >= self.setup.lease => Some(FileError::LeaseOver),
            _ => self.wrong_block(),
        };
        if let Some(error) = error {
            return effects.push(FileEffect::Answer(id, Err(error)));
        }
        let cut: Vec<_> = pieces(offset, len.into(), self.setup.block).collect();
        if cut.is_empty() {
            return effects.push(FileEffect::Answer(id, Ok(0)));
        }
        let end = offset.saturating_add(len.into());
        let left = cut.len();
        self.add_op(id, FileOp { kind, deadline, left, bytes: len, end, error: None, over: None, is_aborted: false });
        for piece in cut {
            let number = self.next_number();
            self.queues.entry(piece.block).or_default().push_back(number);
            self.pieces.insert(number, Piece::new(id, piece, writes));
            self.waiting.insert((piece.block, number));
        }
    }

    pub(super) fn add_op(&mut self, id: FileOpId, op: FileOp) {
        self.expires = self.expires.min(op.deadline);
        self.ops.insert(id, op);
    }

    fn go_on(&mut self, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        loop {
            let before = (self.pieces.len(), self.flushes.len());
            // As long as one waits, all behind it in its block do.
            let mut next = (0, 0);
            while let Some(place @ (block, number)) = self.waiting.range(next..).next().copied() {
                if self.may_begin(number) {
                    self.start(number, memory, effects);
                }
                if self.pieces.get(&number).is_some_and(|piece| piece.stage == PieceStage::Waiting) {
                    let Some(behind) = block.checked_add(1) else { break };
                    next = (behind, 0);
                } else {
                    self.waiting.remove(&place);
                    next = (block, number + 1);
                }
            }
            self.go_on_flushing(memory, effects);
            if (self.pieces.len(), self.flushes.len()) == before {
                return;
            }
        }
    }

    /// Asks for what a piece lacks, or begins with its I/O.
    fn start(&mut self, number: u64, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        let Some(piece) = self.pieces.get(&number) else { return };
        let (block, end, is_write) = (piece.piece.block, piece.piece.end(), piece.is_write);
        if let Some(error) = self.poison.filter(|_| is_write) {
            return self.fail(number, error, memory, effects);
        }
        if self.local.get(&block).is_some_and(|local| local.is_stale || local.is_gone()) {
            return self.fail(number, self.poison.unwrap_or(FileError::Replaced(block)), memory, effects);
        }
        // A block that was cut, or granted shorter than others, has no room behind its end, also if it is being written over.
        let grows = self.local.get(&block).is_some_and(|local| end > length(&local.record));
        if is_write && grows {
            match self.grow(number, block, end, effects) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.fail(number, error, memory, effects),
            }
        }
        if !self.local.contains_key(&block) {
            match self.map.find(block) {
                MapLookup::TooFar => return self.fail(number, FileError::TooFar, memory, effects),
                MapLookup::Unknown(chunk) => {
                    self.fetch(chunk, effects);
                    return;
                }
                MapLookup::Block(record) if record.is_unsettled && !self.is_own_mark(block) => {
                    return self.fail(number, FileError::Unsettled(block), memory, effects);
                }
                MapLookup::Block(record) if is_write && end <= length(record) => {
                    let is_marked = self.marked.is_made(block);
                    if !is_marked && self.unsettling.insert(block) {
                        effects.push(FileEffect::Unsettle(block));
                    }
                    if !is_marked && !self.planted.is(Mutant::WriteBeforeUnsettle) {
                        return;
                    }
                    let local = LocalBlock::published(record.clone(), self.map.epoch_of(block).unwrap_or_default());
                    self.local.insert(block, local);
                }
                MapLookup::Block(_) | MapLookup::Hole if is_write => {
                    if !self.take_grant((number, block, end), effects) {
                        return;
                    }
                }
                MapLookup::Block(record) => {
                    let record = record.clone();
                    let epoch = self.map.epoch_of(block);
                    if let Some(piece) = self.pieces.get_mut(&number) {
                        (piece.record, piece.epoch) = (Some(record.clone()), epoch);
                    }
                    return self.start_read(number, &record, memory, effects);
                }
                MapLookup::Hole => return self.read_hole(number, memory, effects),
            }
        }
        if let (Some(local), Some(piece)) = (self.local.get(&block), self.pieces.get_mut(&number)) {
            piece.epoch = Some(local.epoch);
        }
        if is_write {
            return self.start_write(number, memory, effects);
        }
        // A block that is being replaced has its bytes in the old one until they are copied.
        let record = self.local.get(&block).map(|local| local.source.as_ref().unwrap_or(&local.record).clone());
        if let Some(record) = record {
            self.start_read(number, &record, memory, effects);
        }
    }

    /// Whether the mark of a block that is unsettled is this writer's: nothing was written over it by others.
    fn is_own_mark(&self, block: u64) -> bool {
        self.marked.may_be(block) || self.unsettling.contains(&block)
    }

    /// Those that wait, and are meant.
    pub(super) fn waiting_on(&self, is_meant: impl Fn(&Piece) -> bool) -> Vec<u64> {
        let waiting = self.waiting.iter().map(|(_, number)| *number);
        waiting.filter(|number| self.pieces.get(number).is_some_and(&is_meant)).collect()
    }

    fn done(
        &mut self,
        now: Nanos,
        ticket: DriveTicket,
        result: Result<(), DriveFailure>,
        memory: &mut impl FileMemory,
        effects: &mut Vec<FileEffect>,
    ) {
        // The lease has to hold when the completion is taken: before that it says nothing of whose bytes these are.
        let is_over = now >= self.setup.lease && !self.planted.is(Mutant::LeaseCheckedBeforeOnly);
        match self.drive.remove(&ticket) {
            Some(DriveTarget::Piece(number, copy)) => {
                let Some(piece) = self.pieces.get_mut(&number) else { return };
                piece.inflight -= 1;
                let has_read = !piece.has_written();
                let reads = has_read && piece.record.is_none();
                let has_written = piece.has_written() && result.is_ok();
                let (op, block, namespace) = (piece.op, piece.piece.block, piece.namespace(copy));
                let is_lost = reads && namespace.is_some_and(|namespace| self.is_lost(block, namespace));
                if has_written {
                    self.acknowledged(block);
                }
                if let Some(piece) = self.pieces.get_mut(&number).filter(|_| result.is_err() || is_lost) {
                    piece.failed |= 1 << copy;
                }
                if is_over {
                    self.end_time(op, FileError::LeaseOver);
                }
                self.piece_went_on(number, memory, effects);
            }
            Some(DriveTarget::Flush(copy)) => self.flush_done(copy, result.is_ok(), is_over, memory, effects),
            None => {}
        }
    }

    pub(super) fn set_error(&mut self, op: FileOpId, error: FileError) {
        if let Some(op) = self.ops.get_mut(&op) {
            op.error.get_or_insert(error);
        }
    }

    /// An operation's time is over.
    fn end_time(&mut self, op: FileOpId, why: FileError) {
        self.set_error(op, why);
        if let Some(op) = self.ops.get_mut(&op) {
            op.over.get_or_insert(why);
            self.expires = Nanos(0);
        }
    }

    /// Sends a command to a drive.
    pub(super) fn ticket(&mut self, target: DriveTarget) -> DriveTicket {
        let ticket = DriveTicket(self.next_number());
        self.drive.insert(ticket, target);
        ticket
    }

    pub(super) fn fail(
        &mut self,
        number: u64,
        error: FileError,
        memory: &mut impl FileMemory,
        effects: &mut Vec<FileEffect>,
    ) {
        if let Some(piece) = self.pieces.get(&number) {
            self.set_error(piece.op, error);
        }
        self.finish(number, memory, effects);
    }

    /// A piece is over, and its operation with the last one.
    pub(super) fn finish(&mut self, number: u64, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        let Some(piece) = self.pieces.remove(&number) else { return };
        self.waiting.remove(&(piece.piece.block, number));
        if let Some(queue) = self.queues.get_mut(&piece.piece.block) {
            queue.retain(|other| *other != number);
            if queue.is_empty() {
                self.queues.remove(&piece.piece.block);
            }
        }
        if let Some(own) = piece.own {
            memory.release(own);
        }
        let Some(op) = self.ops.get_mut(&piece.op) else { return };
        op.left -= 1;
        if op.left > 0 {
            return;
        }
        if op.kind == OpKind::Write && op.error.is_none() {
            self.end = self.end.max(op.end);
        }
        self.has_failed |= op.kind == OpKind::Write && op.error.is_some();
        let result = op.error.map_or(Ok(op.bytes), Err);
        self.ops.remove(&piece.op);
        effects.push(FileEffect::Answer(piece.op, result));
    }

    /// Ends operations whose time is over, or all where the lease is: what waits at once, what a drive has when the drive is done. What
    /// was to be sent is not: behind the lease the bytes may be another's.
    fn expire(&mut self, now: Nanos, memory: &mut impl FileMemory, effects: &mut Vec<FileEffect>) {
        let is_lapsed = now >= self.setup.lease && !self.planted.is(Mutant::WaitsBeyondLease);
        if now < self.expires && !is_lapsed {
            return;
        }
        // One that is over already, by a completion behind the lease, may have other pieces that wait.
        let is_late = |op: &FileOp| op.over.is_some() || is_lapsed || op.deadline <= now;
        let late = self.ops.iter().filter(|(_, op)| !op.is_aborted && is_late(op));
        let late: Vec<FileOpId> = late.map(|(id, _)| *id).collect();
        let why = if is_lapsed { FileError::LeaseOver } else { FileError::Deadline };
        for id in late {
            self.end_time(id, why);
            let Some(op) = self.ops.get_mut(&id) else { continue };
            op.is_aborted = true;
            let why = op.over.unwrap_or(why);
            if self.ops.get(&id).is_some_and(|op| op.kind == OpKind::Flush) {
                self.expire_flush(id, why, memory, effects);
                continue;
            }
            let numbers: Vec<u64> = self.pieces.iter().filter(|(_, p)| p.op == id).map(|(number, _)| *number).collect();
            for number in numbers {
                let Some(piece) = self.pieces.get(&number) else { continue };
                if piece.has_written() {
                    self.poison.get_or_insert(why);
                }
                if piece.inflight == 0 {
                    self.finish(number, memory, effects);
                    continue;
                }
                let of_piece = |target: &DriveTarget| matches!(target, DriveTarget::Piece(n, _) if *n == number);
                let tickets = self.drive.iter().filter(|(_, target)| of_piece(target));
                effects.extend(tickets.map(|(ticket, _)| FileEffect::Abort(*ticket)));
            }
        }
        let deadlines = self.ops.values().filter(|op| !op.is_aborted).map(|op| op.deadline);
        self.expires = deadlines.min().unwrap_or(Nanos::NEVER);
    }

    pub(super) fn sector(&self, copies: &[Extent]) -> SectorSize {
        let of = |extent: &Extent| self.setup.sectors.get(&extent.namespace).copied().unwrap_or(SectorSize::S4096);
        copies.iter().map(of).max().unwrap_or(SectorSize::S4096)
    }

    pub(super) fn seed(&self, block: u64, record: &BlockRecord) -> BlockSeed {
        BlockSeed { inode: self.setup.inode, block, generation: record.generation }
    }

    /// Panics unless every piece is queued once, and what waits for drives is counted.
    pub fn check(&self) {
        let queued: usize = self.queues.values().map(VecDeque::len).sum();
        assert_eq!(queued, self.pieces.len(), "every piece is in the queue of its block");
        for (number, piece) in &self.pieces {
            let sent = self.drive.values().filter(|t| matches!(t, DriveTarget::Piece(n, _) if n == number)).count();
            assert_eq!(sent, piece.inflight, "piece {number} waits for its commands");
            assert!(self.ops.contains_key(&piece.op), "piece {number} has an operation");
            let flushed =
                self.flushes.iter().find(|flush| flush.is_beginning && flush.holds_back(*number, piece.piece.block));
            let is_under_way = piece.is_write && piece.stage != PieceStage::Waiting;
            assert!(flushed.is_none() || !is_under_way, "block {} is written while it is published", piece.piece.block);
            let waits = piece.stage == PieceStage::Waiting;
            assert_eq!(waits, self.waiting.contains(&(piece.piece.block, *number)), "piece {number} is looked at");
            assert_eq!(piece.epoch.is_none(), waits, "piece {number} goes to drives under an epoch");
        }
        assert!(self.waiting.iter().all(|(_, number)| self.pieces.contains_key(number)), "what waits is there");
        let under_way = |piece: &&Piece| piece.is_write && piece.stage != PieceStage::Waiting;
        for queue in self.queues.values() {
            let writes: Vec<&Piece> = queue.iter().filter_map(|n| self.pieces.get(n)).filter(under_way).collect();
            let is_apart = |(at, piece): (usize, &&Piece)| {
                let (one, others) = (&piece.piece, &writes[at + 1..]);
                others.iter().all(|other| other.piece.end() <= one.start || one.end() <= other.piece.start)
            };
            assert!(writes.iter().enumerate().all(is_apart), "no bytes are written twice at once");
        }
        for (id, op) in &self.ops {
            let left = self.pieces.values().filter(|piece| piece.op == *id).count();
            assert!(op.kind == OpKind::Flush || left == op.left, "{id:?} waits for its pieces");
            assert!(op.is_aborted || self.expires <= op.deadline, "{id:?} is looked at when its time is over");
        }
        let new = self.local.values().filter(|block| block.is_new).count();
        assert_eq!(new, self.new_blocks, "new blocks are counted");
        assert!(self.local.values().all(|block| !block.record.copies.is_empty()), "a block has a copy");
        assert!(
            self.local.values().all(|block| !block.is_stale) || self.poison.is_some(),
            "what is stale is not written"
        );
    }
}

/// Whether bytes in memory are the caller's.
pub(super) fn caller(op: FileOpId, at: u64) -> FileBuffer {
    FileBuffer::Caller(op, at)
}
