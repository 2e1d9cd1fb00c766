//! The journals of a ring controller's I/O queues, in memory that outlives the process: what a [`Host`](crate::Host) that keeps one does
//! with [`take`](crate::Host::take), [`decide`](crate::Host::decide) and [`complete`](crate::Host::complete), and what a successor does.
//!
//! ```text
//!   memory │ a region of `weir-journal`: a part for each submission queue identifier from 1 on │ doorbells, two words for each identifier:
//!          │ tail in 31:0, `made` of the submission queue in 63:32; the same of the head and the completion queue; in the region's header
//!          │ the number of the last message that has rung one, so that older ones that come once more say nothing
//!
//!   at work:       Host::take ─► take      Host::decide ─► decide      Host::complete ─► done ─► the entry is posted ─► posted
//!   after a crash: Subsystem::resume_checkpoint ─► recover ─► Subsystem::resubmit ─► Event::Run
//! ```
//! A part belongs to a queue by its `made`: what one of the same identifier has left, that was deleted, is not looked at. Completion queues
//! have no parts. How far one is, its submission queues say, or the checkpoint where none of them has posted since.

use crate::event::ControllerHandle;
use crate::host::{RingCompletion, Tag};
use crate::saved::checkpoint::{Resubmission, RingPlace};
use crate::subsystem::Subsystem;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Release};
use weir_journal::{
    CrashPoint, Damage, FoundNvme, JournalMemory, JournalRegion, JournalShape, NvmeJournal, OpenError, Owed, QueueKind,
};
use weir_spec::nvme::{Cqe, Status};

/// See the [module](self).
#[derive(Debug)]
pub struct Journals<W> {
    words: W,
    region: JournalRegion<W>,
    /// The first word of the doorbells.
    bells: usize,
    /// By queue identifier.
    queues: Vec<Option<Part<W>>>,
    /// `made` of the queues, by identifier: submission, completion; 0: none.
    made: Vec<(u32, u32)>,
    /// The drive's, when its queues were looked at.
    epoch: Option<u32>,
    /// The number of the last message whose doorbell was noted.
    noted: u64,
}

#[derive(Debug)]
struct Part<W> {
    journal: NvmeJournal<W>,
    made: u32,
}

/// What a command has that no journal knows.
const UNKNOWN: Tag = Tag(u32::MAX);

/// Why a controller cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// This queue has no journal, or that of another one.
    Missing(u16),
    /// What is there is not what a crash leaves.
    Damaged(u16, Damage),
    /// A part that the memory has no room for.
    Open(u16, OpenError),
    /// A completion could not be written.
    Post(u16, Status),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Missing(qid) => write!(f, "there is no journal of submission queue {qid}"),
            Trouble::Damaged(qid, damage) => write!(f, "the journal of submission queue {qid} is damaged: {damage}"),
            Trouble::Open(qid, e) => write!(f, "the journal of submission queue {qid} cannot be used: {e}"),
            Trouble::Post(qid, _) => {
                write!(f, "a completion of submission queue {qid} has no place in the host's memory")
            }
        }
    }
}

impl core::error::Error for Trouble {}

/// What was found of a controller's queues.
#[derive(Clone, Debug, Default)]
pub struct RecoveredController {
    /// What goes to [`Subsystem::resubmit`].
    pub commands: Vec<Resubmission>,
    /// Completions that were posted, perhaps once more.
    pub posted: usize,
    /// Where each queue's server was, by identifier.
    pub steps: Vec<(u16, CrashPoint)>,
}

fn shape(queues: u16, entries: u32) -> JournalShape {
    // So many completion queue entries a command can have reserved.
    JournalShape {
        kind: QueueKind::Nvme,
        queues: queues.max(1),
        size: (entries.max(2) - 1).min(u16::MAX.into()) as u16,
    }
}

impl<W: JournalMemory + Clone> Journals<W> {
    /// Bytes of the memory for a drive with so many I/O queues of so many entries at the most.
    pub fn bytes(queues: u16, entries: u32) -> u64 {
        shape(queues, entries).bytes() + (u64::from(queues) + 1) * 16
    }

    /// Opens them; memory of zeroes is new.
    ///
    /// # Errors
    /// The memory is too short, or is not that of such a drive. Then nothing of it has been changed.
    pub fn open(words: W, queues: u16, entries: u32) -> Result<Self, OpenError> {
        let (found, needed) = (words.count() as u64 * 8, Self::bytes(queues, entries));
        if found < needed {
            return Err(OpenError::Length { found, needed });
        }
        let shape = shape(queues, entries);
        let region = JournalRegion::open(words.clone(), shape)?;
        let parts = usize::from(queues) + 1;
        let none = || core::iter::repeat_with(|| None).take(parts).collect();
        let (bells, made) = ((shape.bytes() / 8) as usize, alloc::vec![(0, 0); parts]);
        let noted = region.noted();
        Ok(Self { words, region, bells, queues: none(), made, epoch: None, noted })
    }

    /// Begins the journals of queues that are new: to be called before anybody can know of them, which is before a
    /// [checkpoint](Subsystem::checkpoint) has them. False if there is one whose journal cannot be kept.
    #[inline]
    pub fn follow(&mut self, machine: &Subsystem, controller: ControllerHandle) -> bool {
        let (epoch, len) = machine.ring_queues(controller);
        self.epoch == Some(epoch) || self.compare(machine, controller, (epoch, len))
    }

    #[cold]
    fn compare(&mut self, machine: &Subsystem, controller: ControllerHandle, (epoch, len): (u32, u16)) -> bool {
        self.epoch = Some(epoch);
        self.note_queues(machine, controller, len);
        let mut all = true;
        for qid in 1..self.queues.len() as u16 {
            let at = usize::from(qid);
            let ring = machine.ring(controller, qid).filter(|_| qid < len);
            let Some(ring) = ring else {
                self.queues[at] = None;
                continue;
            };
            if self.queues[at].as_ref().is_some_and(|part| part.made == ring.made) {
                continue;
            }
            self.queues[at] = None;
            let cq = machine.ring_completions(controller, ring.cq);
            let begun = cq.filter(|_| !ring.ragged).and_then(|cq| self.begin(qid, ring.made, ring.head, &cq));
            all &= begun.is_some();
            self.queues[at] = begun;
        }
        all && usize::from(len) <= self.queues.len()
    }

    fn note_queues(&mut self, machine: &Subsystem, controller: ControllerHandle, len: u16) {
        for qid in 0..self.made.len() as u16 {
            let sq = machine.ring(controller, qid).filter(|_| qid < len);
            let cq = machine.ring_completions(controller, qid).filter(|_| qid < len);
            let at = self.bells + usize::from(qid) * 2;
            let (sq, cq) = (sq.map(|sq| (sq.made, sq.tail)), cq.map(|cq| (cq.made, cq.head)));
            for (at, one) in [(at, sq), (at + 1, cq)] {
                // What is there of another one says nothing: of a new queue it has not been rung yet.
                if let Some((made, stands)) = one.filter(|one| (self.words.load(at, Acquire) >> 32) as u32 != one.0) {
                    self.words.store(at, u64::from(made) << 32 | u64::from(stands), Release);
                }
            }
            self.made[usize::from(qid)] = (sq.map_or(0, |sq| sq.0), cq.map_or(0, |cq| cq.0));
        }
    }

    fn begin(&self, qid: u16, made: u32, head: u32, cq: &RingPlace) -> Option<Part<W>> {
        let found = self.region.nvme(qid - 1, (cq.size - 1) as u16, made).ok()?;
        let (FoundNvme::Fresh(part) | FoundNvme::Left(part)) = found;
        Some(Part { journal: part.begin(head as u16, cq.place), made })
    }

    /// A command was fetched; its queue has `head` behind it.
    #[inline]
    pub fn take(&mut self, qid: u16, entry: &[u64; 8], head: u32) -> Tag {
        match self.queues.get_mut(usize::from(qid)) {
            Some(Some(part)) => part.journal.take(entry, head as u16).map_or(UNKNOWN, |slot| Tag(slot.into())),
            _ => UNKNOWN,
        }
    }

    /// The outcome of a command is known.
    pub fn decide(&self, tag: Tag, cqe: &Cqe) {
        if let (Some(Some(part)), Ok(slot)) = (self.queues.get(usize::from(cqe.sqid.get())), u16::try_from(tag.0)) {
            part.journal.decide(slot, cqe.words());
        }
    }

    /// A command is complete, and its completion is about to be posted: at once, whatever is noted of it. One that has to wait
    /// is not done, or a successor would take it for posted.
    #[inline]
    pub fn done(&mut self, cqe: &Cqe, taken: RingCompletion) {
        if let (Some(Some(part)), Ok(slot)) =
            (self.queues.get_mut(usize::from(cqe.sqid.get())), u16::try_from(taken.tag.0))
        {
            part.journal.done(slot, cqe.words(), taken.place);
        }
    }

    /// It has been posted.
    #[inline]
    pub fn posted(&mut self, cqe: &Cqe, taken: RingCompletion) {
        if let (Some(Some(part)), Ok(slot)) =
            (self.queues.get_mut(usize::from(cqe.sqid.get())), u16::try_from(taken.tag.0))
        {
            part.journal.posted(slot);
        }
    }

    /// A doorbell was rung by its client's message of that number, counted from 1: its value is known to whoever comes after us as well, as
    /// long as its queue is there. False where that was [noted](Self::rang) before: the message has come once more, and newer ones may be
    /// known.
    pub fn ring(&self, number: u64, qid: u16, tail: Option<u32>, head: Option<u32>) -> bool {
        if number <= self.noted {
            return false;
        }
        let at = self.bells + usize::from(qid) * 2;
        let Some((sq, cq)) = self.made.get(usize::from(qid)) else { return true };
        for (at, made, value) in [(at, sq, tail), (at + 1, cq, head)] {
            if let Some(value) = value {
                self.words.store(at, u64::from(*made) << 32 | u64::from(value), Release);
            }
        }
        true
    }

    /// All that the message of that number has rung is stored: if it comes once more it says nothing.
    pub fn rang(&mut self, number: u64) {
        if number > self.noted {
            self.noted = number;
            self.region.note(number);
        }
    }

    /// Tail and head of a pair of queues as they were [rung](Self::ring) last; means nothing for queues that there are not.
    pub fn rung(&self, qid: u16) -> (u32, u32) {
        let at = self.bells + usize::from(qid) * 2;
        match usize::from(qid) < self.made.len() {
            true => (self.words.load(at, Acquire) as u32, self.words.load(at + 1, Acquire) as u32),
            false => (0, 0),
        }
    }

    /// Puts the queues of a controller that was [resumed](Subsystem::resume_checkpoint) where they were, and posts what had been completed. `rung`:
    /// what the doorbells of a pair of queues, the admin queues included, stand at, the tail and the head, of which those that were
    /// [noted](Self::ring) are known.
    ///
    /// # Errors
    /// The controller cannot go on: nothing has been executed.
    pub fn recover(
        &mut self,
        machine: &mut Subsystem,
        controller: ControllerHandle,
        mut rung: impl FnMut(u16, (u32, u32)) -> (u32, u32),
        mut post: impl FnMut(u64, &Cqe) -> Result<(), Status>,
    ) -> Result<RecoveredController, Trouble> {
        let (epoch, len) = machine.ring_queues(controller);
        self.note_queues(machine, controller, len);
        let mut recovered = RecoveredController::default();
        let mut places: BTreeMap<u16, RingPlace> = BTreeMap::new();
        places.extend((0..len).filter_map(|qid| Some((qid, machine.ring_completions(controller, qid)?))));
        let mut heads = Vec::new();
        let mut completions = Vec::new();
        for qid in 1..len {
            let Some(ring) = machine.ring(controller, qid) else { continue };
            let at = usize::from(qid);
            let cq = places.get_mut(&ring.cq).ok_or(Trouble::Missing(qid))?;
            let found = match self.queues.get(at) {
                Some(_) => self.region.nvme(qid - 1, (cq.size - 1) as u16, ring.made),
                None => return Err(Trouble::Missing(qid)),
            };
            let left = match found.map_err(|e| Trouble::Open(qid, e))? {
                FoundNvme::Left(left) => left,
                FoundNvme::Fresh(_) => return Err(Trouble::Missing(qid)),
            };
            let (journal, found) = left.recover().map_err(|damage| Trouble::Damaged(qid, damage))?;
            cq.place = cq.place.max(found.used);
            heads.push((qid, u32::from(found.last_idx)));
            recovered.steps.push((qid, found.step));
            for (slot, entry, owed) in found.commands {
                let tag = Tag(slot.into());
                let decided = match owed {
                    Owed::Execution => None,
                    Owed::Effect { cqe } => Some(Cqe::from_words(cqe)),
                    Owed::Completion { cqe, place } => {
                        completions.push((ring.cq, place, qid, tag, Cqe::from_words(cqe)));
                        continue;
                    }
                };
                recovered.commands.push(Resubmission { qid, entry, tag, decided });
            }
            self.queues[at] = Some(Part { journal, made: ring.made });
        }
        // Places in zones that are taken are taken before anything is decided anew, and each after those before it.
        recovered.commands.sort_by_key(|again| again.zone_place().map_or((true, 0), |place| (false, place)));
        // As they were posted, or would have been.
        completions.sort_unstable_by_key(|c| (c.0, c.1));
        for (cq, place, qid, tag, cqe) in completions {
            let Some(to) = places.get(&cq) else { continue };
            let address = to.base.wrapping_add(place % u64::from(to.size) * 16);
            post(address, &cqe).map_err(|status| Trouble::Post(qid, status))?;
            self.posted(&cqe, RingCompletion { tag, place });
            recovered.posted += 1;
        }
        for (qid, place) in &places {
            machine.restore_cq(controller, *qid, (place.place, rung(*qid, self.rung(*qid)).1));
        }
        for (qid, head) in heads {
            machine.restore_sq(controller, qid, (head, rung(qid, self.rung(qid)).0));
        }
        if let Some(admin) = machine.ring(controller, 0) {
            machine.restore_sq(controller, 0, (admin.head, rung(0, self.rung(0)).0));
        }
        self.epoch = Some(epoch);
        Ok(recovered)
    }
}
