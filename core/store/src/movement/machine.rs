//! The machine: see [the module](super).

use super::event::{MoveEffect, MoveEvent, MoveId, MoveMemory, MoveOrder, MoveResult};
use crate::file::{BlockSeed, Crc32cUpdate, DriveFailure, DriveTicket, FileError, NewBlock};
use crate::mutant::{Mutant, Planted};
use crate::records::{BlockRecord, COPIES_MAX};
use crate::space::{BLOCK_MAX, GRAIN};
use crate::{Extent, NamespaceId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use weir_units::{Bytes, Nanos};

/// How far a move is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MoveStage {
    /// Blocks are being granted.
    Granting,
    /// The source of that number is read.
    Reading(usize),
    /// New copies are written.
    Writing,
    /// Their namespaces are flushed.
    Flushing,
    /// The commit is under way.
    Committing,
    /// It comes to nothing, and a drive still has its memory.
    Ending(MoveResult),
}

#[derive(Clone, Debug)]
struct Move {
    order: MoveOrder,
    stage: MoveStage,
    granted: Option<NewBlock>,
    inflight: BTreeSet<DriveTicket>,
    /// A source had other bytes than the checksums are of.
    is_corrupt: bool,
}

/// Moves of one session. Times are of the clock that the session's lease is counted on.
#[derive(Clone, Debug)]
pub struct Movement {
    crc: Crc32cUpdate,
    lease: Nanos,
    moves: BTreeMap<MoveId, Move>,
    tickets: BTreeMap<DriveTicket, MoveId>,
    last_ticket: u64,
    pub(super) planted: Planted,
}

impl Move {
    fn length(&self) -> u64 {
        self.order.record.copies.first().map_or(0, |copy| copy.length.get())
    }

    /// The new copies, as long as the block is.
    fn targets(&self) -> Vec<Extent> {
        let length = Bytes(self.length());
        let copies = self.granted.iter().flat_map(|granted| &granted.copies);
        copies.map(|copy| Extent { length, ..*copy }).collect()
    }

    fn is_sound(&self) -> bool {
        let MoveOrder { record, keep, sources, make, .. } = &self.order;
        let (length, copies) = (self.length(), keep.len() + usize::from(*make));
        let is_of_block = |extent: &Extent| record.copies.contains(extent);
        *make > 0
            && copies <= COPIES_MAX
            && length > 0
            && length <= BLOCK_MAX
            && length % GRAIN == 0
            && record.copies.iter().all(|copy| copy.length.get() == length && copy.end().is_some())
            && !record.is_unsettled
            && !sources.is_empty()
            && keep.iter().chain(sources).all(is_of_block)
    }

    /// Whether a grant is what was asked for.
    fn fits(&self, granted: &NewBlock) -> bool {
        let is_long = |copy: &Extent| copy.length.get() >= self.length();
        let is_elsewhere = |copy: &Extent| !self.order.record.copies.iter().any(|old| old.overlaps(copy));
        granted.copies.len() == usize::from(self.order.make)
            && granted.copies.iter().all(|c| is_long(c) && is_elsewhere(c))
    }

    fn seed(&self) -> BlockSeed {
        let MoveOrder { inode, block, ref record, .. } = self.order;
        BlockSeed { inode, block, generation: record.generation }
    }

    /// What the block becomes, whose bytes are these.
    fn moved(&self, bytes: &[u8], crc: Crc32cUpdate, keeps_generation: bool) -> BlockRecord {
        let old = &self.order.record;
        let copies = self.order.keep.iter().copied().chain(self.targets()).collect();
        match (self.order.keep.first(), &self.granted) {
            (None, Some(granted)) if !keeps_generation => {
                let seed = BlockSeed { generation: granted.generation, ..self.seed() };
                let checksums = seed.checksums(bytes, crc);
                BlockRecord { generation: granted.generation, copies, checksums, ..old.clone() }
            }
            // The copy that stays has the generation.
            _ => BlockRecord { copies, ..old.clone() },
        }
    }
}

impl Movement {
    /// No moves, in a session whose lease holds until then.
    pub fn new(crc: Crc32cUpdate, lease: Nanos) -> Self {
        let (moves, tickets) = (BTreeMap::new(), BTreeMap::new());
        Self { crc, lease, moves, tickets, last_ticket: 0, planted: Planted::default() }
    }

    /// Moves under way.
    pub fn pending(&self) -> usize {
        self.moves.len()
    }

    /// One event; adds what is to be done.
    pub fn apply(&mut self, now: Nanos, event: MoveEvent, memory: &mut impl MoveMemory, effects: &mut Vec<MoveEffect>) {
        match event {
            MoveEvent::Start(id, order) => self.start(now, id, order, memory, effects),
            MoveEvent::Granted(id, granted) => self.granted(now, id, granted, memory, effects),
            MoveEvent::Done(ticket, done) => self.done(now, ticket, done, memory, effects),
            MoveEvent::Committed(id, outcome) => self.committed(id, outcome, memory, effects),
            MoveEvent::Lease(until) => self.lease = self.lease.max(until),
            MoveEvent::Tick => {}
        }
        self.end_late(now, memory, effects);
    }

    fn start(
        &mut self,
        now: Nanos,
        id: MoveId,
        order: MoveOrder,
        memory: &mut impl MoveMemory,
        effects: &mut Vec<MoveEffect>,
    ) {
        let (stage, granted, inflight) = (MoveStage::Granting, None, BTreeSet::new());
        let made = Move { order, stage, granted, inflight, is_corrupt: false };
        if !made.is_sound() || self.moves.contains_key(&id) {
            return effects.push(MoveEffect::Answer(id, MoveResult::Malformed));
        }
        if now >= self.lease {
            return effects.push(MoveEffect::Answer(id, MoveResult::LeaseOver));
        }
        memory.reserve(id, made.length() as u32);
        effects.push(MoveEffect::Grant {
            id,
            length: made.length(),
            copies: made.order.make,
            classes: made.order.classes.clone(),
            beside: made.order.keep.clone(),
        });
        self.moves.insert(id, made);
    }

    fn granted(
        &mut self,
        now: Nanos,
        id: MoveId,
        granted: Result<NewBlock, FileError>,
        memory: &mut impl MoveMemory,
        effects: &mut Vec<MoveEffect>,
    ) {
        let Some(found) = self.moves.get_mut(&id).filter(|found| found.granted.is_none()) else {
            // The move is over: nobody needs it.
            return effects.extend(granted.ok().map(|granted| MoveEffect::Return(granted.copies)));
        };
        match granted {
            Ok(granted) if !found.fits(&granted) => {
                found.granted = Some(granted);
                self.end(id, MoveResult::Failed, memory, effects);
            }
            Ok(granted) => {
                found.granted = Some(granted);
                if found.stage == MoveStage::Granting {
                    self.read(now, id, 0, memory, effects);
                } else {
                    self.end_if_still(id, memory, effects);
                }
            }
            Err(error) => {
                let is_full = matches!(error, FileError::NoSpace | FileError::TooFewNodes(_));
                let result = if is_full { MoveResult::NoSpace } else { MoveResult::Failed };
                self.end(id, result, memory, effects);
            }
        }
    }

    /// A ticket for a command of a move, if it may still be sent.
    fn ticket(&mut self, now: Nanos, id: MoveId) -> Option<DriveTicket> {
        if now >= self.lease && !self.planted.is(Mutant::MoveBeyondLease) {
            return None;
        }
        self.last_ticket += 1;
        let ticket = DriveTicket(self.last_ticket);
        self.moves.get_mut(&id)?.inflight.insert(ticket);
        self.tickets.insert(ticket, id);
        Some(ticket)
    }

    fn read(
        &mut self,
        now: Nanos,
        id: MoveId,
        source: usize,
        memory: &mut impl MoveMemory,
        effects: &mut Vec<MoveEffect>,
    ) {
        let Some(found) = self.moves.get_mut(&id) else { return };
        let Some(extent) = found.order.sources.get(source).copied() else {
            let result = if found.is_corrupt { MoveResult::Corrupt } else { MoveResult::Unreadable };
            return self.end(id, result, memory, effects);
        };
        found.stage = MoveStage::Reading(source);
        if let Some(ticket) = self.ticket(now, id) {
            effects.push(MoveEffect::Read(ticket, id, extent));
        }
    }

    fn done(
        &mut self,
        now: Nanos,
        ticket: DriveTicket,
        done: Result<(), DriveFailure>,
        memory: &mut impl MoveMemory,
        effects: &mut Vec<MoveEffect>,
    ) {
        let Some(id) = self.tickets.remove(&ticket) else { return };
        let Some(found) = self.moves.get_mut(&id) else { return };
        found.inflight.remove(&ticket);
        if matches!(found.stage, MoveStage::Ending(_)) {
            return self.end_if_still(id, memory, effects);
        }
        // What a drive has done counts only while the lease holds.
        if now >= self.lease && !self.planted.is(Mutant::MoveBeyondLease) {
            return self.end(id, MoveResult::LeaseOver, memory, effects);
        }
        match (found.stage.clone(), done) {
            (MoveStage::Reading(source), Ok(())) => {
                let is_right = found.seed().checksums(memory.bytes(id), self.crc) == found.order.record.checksums;
                if is_right || self.planted.is(Mutant::MoveUnverified) {
                    self.write(now, id, memory, effects);
                } else {
                    found.is_corrupt = true;
                    self.read(now, id, source + 1, memory, effects);
                }
            }
            (MoveStage::Reading(source), Err(DriveFailure)) => self.read(now, id, source + 1, memory, effects),
            (_, Err(DriveFailure)) => self.end(id, MoveResult::Failed, memory, effects),
            (MoveStage::Writing, Ok(())) if found.inflight.is_empty() => self.flush(now, id, memory, effects),
            (MoveStage::Flushing, Ok(())) if found.inflight.is_empty() => self.commit(id, memory, effects),
            _ => {}
        }
    }

    fn write(&mut self, now: Nanos, id: MoveId, memory: &mut impl MoveMemory, effects: &mut Vec<MoveEffect>) {
        let Some(found) = self.moves.get_mut(&id) else { return };
        found.stage = MoveStage::Writing;
        for target in found.targets() {
            if let Some(ticket) = self.ticket(now, id) {
                effects.push(MoveEffect::Write(ticket, id, target));
            }
        }
        if self.planted.is(Mutant::MoveCommitsEarly) {
            self.commit(id, memory, effects);
        }
    }

    fn flush(&mut self, now: Nanos, id: MoveId, memory: &mut impl MoveMemory, effects: &mut Vec<MoveEffect>) {
        if self.planted.is(Mutant::MoveWithoutFlush) {
            return self.commit(id, memory, effects);
        }
        let Some(found) = self.moves.get_mut(&id) else { return };
        found.stage = MoveStage::Flushing;
        let namespaces: BTreeSet<NamespaceId> = found.targets().iter().map(|target| target.namespace).collect();
        for namespace in namespaces {
            if let Some(ticket) = self.ticket(now, id) {
                effects.push(MoveEffect::FlushDrive(ticket, namespace));
            }
        }
    }

    fn commit(&mut self, id: MoveId, memory: &mut impl MoveMemory, effects: &mut Vec<MoveEffect>) {
        let Some(found) = self.moves.get_mut(&id) else { return };
        found.stage = MoveStage::Committing;
        let keeps_generation = self.planted.is(Mutant::MoveKeepsGeneration);
        let new = found.moved(memory.bytes(id), self.crc, keeps_generation);
        let MoveOrder { inode, block, record: ref old, .. } = found.order;
        effects.push(MoveEffect::Commit { id, inode, block, old: old.clone(), new });
    }

    fn committed(
        &mut self,
        id: MoveId,
        outcome: Result<(), FileError>,
        memory: &mut impl MoveMemory,
        effects: &mut Vec<MoveEffect>,
    ) {
        let Some(found) = self.moves.get(&id).filter(|found| found.stage == MoveStage::Committing) else { return };
        if outcome.is_ok() {
            // The rest of a block that is longer than what it has is not needed.
            let length = found.length();
            let granted = found.granted.iter().flat_map(|granted| &granted.copies);
            let rests = granted.filter(|copy| copy.length.get() > length).map(|copy| Extent {
                offset: Bytes(copy.offset.get() + length),
                length: Bytes(copy.length.get() - length),
                ..*copy
            });
            let rests: Vec<Extent> = rests.collect();
            if !rests.is_empty() {
                effects.push(MoveEffect::Return(rests));
            }
        }
        let result = if outcome.is_ok() { MoveResult::Moved } else { MoveResult::Changed };
        self.end(id, result, memory, effects);
    }

    /// A move comes to its end, as soon as no drive has its memory.
    fn end(&mut self, id: MoveId, result: MoveResult, memory: &mut impl MoveMemory, effects: &mut Vec<MoveEffect>) {
        let Some(found) = self.moves.get_mut(&id) else { return };
        found.stage = MoveStage::Ending(result);
        effects.extend(found.inflight.iter().map(|ticket| MoveEffect::Abort(*ticket)));
        self.end_if_still(id, memory, effects);
    }

    fn end_if_still(&mut self, id: MoveId, memory: &mut impl MoveMemory, effects: &mut Vec<MoveEffect>) {
        let Some(found) = self.moves.get(&id).filter(|found| found.inflight.is_empty()) else { return };
        let MoveStage::Ending(result) = found.stage else { return };
        if let (Some(granted), true) = (&found.granted, result != MoveResult::Moved) {
            // No command writes there any more. After the lease they are the services' to take back.
            if result != MoveResult::LeaseOver {
                effects.push(MoveEffect::Return(granted.copies.clone()));
            }
        }
        memory.release(id);
        self.moves.remove(&id);
        effects.push(MoveEffect::Answer(id, result));
    }

    /// Ends what is late. A commit under way is waited for: it was made or not.
    fn end_late(&mut self, now: Nanos, memory: &mut impl MoveMemory, effects: &mut Vec<MoveEffect>) {
        let is_over = now >= self.lease && !self.planted.is(Mutant::MoveBeyondLease);
        let late = self.moves.iter().filter(|(_, found)| {
            let is_open = !matches!(found.stage, MoveStage::Ending(_) | MoveStage::Committing);
            is_open && (is_over || now >= found.order.deadline)
        });
        let late: Vec<MoveId> = late.map(|(id, _)| *id).collect();
        let result = if is_over { MoveResult::LeaseOver } else { MoveResult::Deadline };
        for id in late {
            self.end(id, result, memory, effects);
        }
    }

    /// Panics if its parts contradict each other.
    #[cfg(any(test, debug_assertions))]
    pub fn check(&self) {
        for (ticket, id) in &self.tickets {
            assert!(self.moves.get(id).is_some_and(|found| found.inflight.contains(ticket)), "{ticket:?} of {id:?}");
        }
        for (id, found) in &self.moves {
            assert!(found.inflight.iter().all(|ticket| self.tickets.get(ticket) == Some(id)), "{id:?}");
            let must_have_grant = matches!(
                found.stage,
                MoveStage::Reading(_) | MoveStage::Writing | MoveStage::Flushing | MoveStage::Committing
            );
            assert!(!must_have_grant || found.granted.is_some(), "{id:?} works without a grant");
        }
    }
}
