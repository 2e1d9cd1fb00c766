//! The machine: see the [crate](crate).

use crate::assemble::{Assembled, DriveContents, Whole, assemble};
use crate::block::{LAYOUT, copy_at};
use crate::change_plan::{ChangePlan, ChangeStep, Copying, Uncommitted};
use crate::drive::PoolDrive;
use crate::error::{PoolError, PoolOpenError};
use crate::event::{PoolAnswer, PoolEffect, PoolEvent, PoolRequest, Setup};
use crate::extent::{CHUNK, ChunkRun, VolumeSegment};
use crate::members::{JoinRole, Joins};
use crate::opening::{Next, Reading};
use crate::record::{LogEnd, Phase};
use crate::volume::{Uuid, Volume, VolumeId, check_name, is_any_shared};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

/// What is known of a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    pub uuid: Uuid,
    pub name: String,
    pub opens: u64,
    pub phase: Phase,
    /// The layout in which it is written.
    pub layout: u32,
    /// Identifiers and versions up to here were given out.
    pub counter: u64,
    /// By number in the pool.
    pub drives: Vec<PoolDrive>,
    pub volumes: BTreeMap<VolumeId, Volume>,
    pub names: BTreeMap<String, VolumeId>,
    /// Headers say that a volume has more copies than one, or said so when they were written last.
    pub has_copies: bool,
    /// The same of chunks that several volumes have.
    pub has_shared: bool,
    /// The same of such chunks of volumes with two copies.
    pub has_shared_pairs: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum PoolState {
    New,
    Reading(Reading),
    /// What is on a drive that is to join, or is back.
    Looking(Reading, Joins),
    /// A write of the opening has failed, for that reason: its drive is flushed, and the opening begins anew.
    Retrying(String),
    Up,
    /// Why nothing is changed.
    Broken(PoolError),
    /// It was closed.
    Closed,
}

/// A copy of a drive's metadata.
pub(crate) type WrittenCopy = (u16, u8);

/// See the [crate](crate).
#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) setup: Setup,
    pub(crate) state: PoolState,
    pub(crate) books: Books,
    pub(crate) work: VecDeque<ChangeStep>,
    /// Of the request that is worked on.
    pub(crate) answer: Option<PoolAnswer>,
    pub(crate) retreat: Retreat,
    /// The drive whose chunks of nobody are being unmapped, up to the flush of that.
    pub(crate) empties: Option<u16>,
    /// A change that does not count yet.
    pub(crate) uncommitted: Option<Uncommitted>,
    /// What the request comes to when the steps that undo it are over.
    pub(crate) refusal: Option<PoolError>,
    /// Changes of volumes that have counted.
    pub(crate) changes: u64,
    /// The copy that is being written, and may be in pieces.
    pub(crate) writes: Option<WrittenCopy>,
    /// Places of drives that could not be written while the pool was opened, and why: it is opened without them, if it may.
    pub(crate) unwritable: BTreeMap<usize, String>,
    /// Writes of the opening that have failed, by the place of the drive.
    pub(crate) write_failures: BTreeMap<usize, u32>,
    /// The place of the drive that the last effect was for, and whether it was a write.
    pub(crate) at: usize,
    pub(crate) at_write: bool,
    /// Of each drive the copy that may be in pieces, since a write or a flush of it has failed.
    pub(crate) torn: BTreeMap<u16, u8>,
}

/// What there is to do if the step that is carried out fails.
#[derive(Clone, Debug, Default)]
pub(crate) enum Retreat {
    /// Nobody knows what the drives say: nothing is changed any more.
    #[default]
    None,
    /// A drive of that number is about to join or to take part again, and no other has heard of it: all is as it was.
    Back(u16, Box<Books>),
    /// All drives have heard that this one has left, which is all that it takes.
    On,
    /// Chunks are copied, and nothing of what becomes of them has been written.
    Uncopied(Option<Copying>),
    /// Nothing has been written yet, and a drive does not empty what is to be empty: its number, and the books before the change.
    AsItWas(u16, Box<Books>),
}

/// Least size of a drive: metadata, and a chunk.
pub(crate) const LEAST: u64 = 3 * CHUNK;
pub(crate) const DRIVES_MAX: usize = 256;

/// Where a drive's next entry goes: generation, entry, reach, blocks that are written.
pub(crate) type LogPlace = (u64, u32, LogEnd, u32);

impl Books {
    /// The place in the caller's list of a drive that is there.
    pub fn position_of(&self, drive: u16) -> Option<usize> {
        Some(&self.drives[usize::from(drive)]).filter(|d| d.is_here()).map(|d| d.position)
    }

    /// Where the next entry of each drive goes.
    pub fn places(&self) -> Vec<LogPlace> {
        self.drives.iter().map(|d| (d.generation, d.entry, d.reach, d.used)).collect()
    }

    /// What an older release has to know of to open the pool.
    fn needs(&self) -> [bool; 3] {
        [self.has_copies, self.has_shared, self.has_shared_pairs]
    }

    /// Nothing was appended since.
    pub fn put_back(&mut self, places: Vec<LogPlace>) {
        for (drive, place) in self.drives.iter_mut().zip(places) {
            (drive.generation, drive.entry, drive.reach, drive.used) = place;
        }
    }
}

impl Pool {
    /// A pool that was not opened yet.
    pub fn new(setup: Setup) -> Self {
        let books = Books { name: setup.name.clone(), layout: LAYOUT, ..Books::default() };
        let (state, work, retreat) = (PoolState::New, VecDeque::new(), Retreat::None);
        let (answer, empties, uncommitted, writes, torn) = (None, None, None, None, BTreeMap::new());
        let (unwritable, write_failures, at, at_write) = (BTreeMap::new(), BTreeMap::new(), 0, false);
        Self {
            setup,
            state,
            books,
            work,
            answer,
            retreat,
            empties,
            uncommitted,
            refusal: None,
            changes: 0,
            writes,
            unwritable,
            write_failures,
            at,
            at_write,
            torn,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.setup.name
    }

    /// Its UUID, once it is open.
    pub fn uuid(&self) -> Uuid {
        self.books.uuid
    }

    /// It is open, and has nothing to do.
    pub fn is_ready(&self) -> bool {
        matches!(self.state, PoolState::Up) && self.answer.is_none()
    }

    /// What keeps it from being changed, if something does.
    pub fn fault(&self) -> Option<&PoolError> {
        match &self.state {
            PoolState::Broken(why) => Some(why),
            _ => None,
        }
    }

    /// All volumes, in the order in which they were made.
    pub fn volumes(&self) -> impl ExactSizeIterator<Item = &Volume> {
        self.books.volumes.values()
    }

    /// The volume of that name.
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.books.names.get(name).and_then(|id| self.books.volumes.get(id))
    }

    /// The volume of that number.
    pub fn volume_of(&self, id: VolumeId) -> Option<&Volume> {
        self.books.volumes.get(&id)
    }

    /// Where the chunks of a volume lie, in its order.
    pub fn segments(&self, id: VolumeId) -> Vec<VolumeSegment> {
        let volume = self.books.volumes.get(&id);
        let position = |drive: u16| self.books.position_of(drive);
        self.with_shared(id, volume.and_then(|v| v.segments(position)).unwrap_or_default())
    }

    /// What messages call the drive at that place.
    pub fn drive_name(&self, position: usize) -> &str {
        self.setup.drives.get(position).map_or("", |d| &d.name)
    }

    /// The place in the list of drives that a drive of that name has, or has when it joins.
    pub fn place_for(&self, name: &str) -> usize {
        let drives = &self.setup.drives;
        drives.iter().position(|d| d.name == name).unwrap_or(drives.len())
    }

    /// One event, and what it wants done.
    pub fn apply(&mut self, event: PoolEvent) -> PoolEffect {
        match event {
            PoolEvent::Open => self.open(),
            PoolEvent::Request(request) => match self.request(&request) {
                Ok(effect) => effect,
                Err(why) => PoolEffect::Finished(Err(why)),
            },
            PoolEvent::Done(result) => match &mut self.state {
                PoolState::Reading(reading) => {
                    reading.take(result.as_deref().map_err(|why| why.0.as_str()));
                    self.read()
                }
                PoolState::Looking(reading, _) => {
                    reading.take(result.as_deref().map_err(|why| why.0.as_str()));
                    self.look()
                }
                PoolState::Up => match result {
                    Ok(_) => self.go_on(),
                    Err(why) => self.fall_back(why.0),
                },
                PoolState::Retrying(why) => {
                    let why = core::mem::take(why);
                    match result {
                        Ok(_) => self.begin_anew(),
                        Err(_) => self.open_without(why),
                    }
                }
                PoolState::New | PoolState::Broken(_) | PoolState::Closed => PoolEffect::Finished(Err(PoolError::Busy)),
            },
        }
    }

    pub(crate) fn open(&mut self) -> PoolEffect {
        if !matches!(self.state, PoolState::New) {
            return PoolEffect::Finished(Err(PoolError::Busy));
        }
        let drives = &self.setup.drives;
        let twice = |i: usize| drives[..i].iter().any(|d| d.name == drives[i].name);
        let wrong = if check_name(&self.setup.name).is_err() {
            Some("the pool's name cannot be one")
        } else if drives.is_empty() || drives.len() > DRIVES_MAX {
            Some("a pool has 1 to 256 drives")
        } else if (0..drives.len()).any(twice) {
            Some("the same drive is named twice")
        } else if !drives.iter().any(|d| d.named) {
            Some("no drive is named")
        } else if self.setup.fresh.len() <= drives.len() {
            Some("there are not enough UUIDs")
        } else {
            None
        };
        if let Some(why) = wrong {
            return self.fail(PoolError::Fault(PoolOpenError::Setup(why)));
        }
        if let Some(small) = drives.iter().find(|d| d.named && d.bytes < LEAST) {
            let why = PoolOpenError::Small(small.name.clone(), small.bytes, LEAST);
            return self.fail(PoolError::Fault(why));
        }
        self.state = PoolState::Reading(Reading::new(drives.clone()));
        self.read()
    }

    fn read(&mut self) -> PoolEffect {
        let PoolState::Reading(reading) = &mut self.state else { return PoolEffect::Finished(Err(PoolError::Busy)) };
        let next = match reading.next(self.setup.crc) {
            Ok(next) => next,
            Err(fault) => return self.fail(PoolError::Fault(fault)),
        };
        let mut looks = match next {
            Next::Read(drive, offset) => return PoolEffect::Read { drive, offset, len: crate::STRIPE as u32 },
            Next::Looks(looks) => looks,
        };
        for (at, why) in &self.unwritable {
            looks[*at].found = DriveContents::Unusable(PoolOpenError::Unwritable(looks[*at].name.clone(), why.clone()));
        }
        match assemble(&self.setup.name, &looks, self.setup.whole) {
            Ok(Assembled::Fresh) => self.make(),
            Ok(Assembled::Whole(whole)) => {
                if let Err(fault) = self.bring_up(whole) {
                    return self.fail(PoolError::Fault(fault));
                }
            }
            Err(fault) => return self.fail(PoolError::Fault(fault)),
        }
        self.state = PoolState::Up;
        self.go_on()
    }

    /// Makes the pool: a header without openings on every drive, then one with the first. Until all have the former it is not made.
    fn make(&mut self) {
        let setup = &self.setup;
        self.books.uuid = setup.fresh[0];
        for (position, (drive, uuid)) in setup.drives.iter().zip(&setup.fresh[1..]).enumerate() {
            if drive.named {
                self.books.drives.push(PoolDrive::new(position, &drive.name, *uuid, drive.bytes));
            }
        }
        self.books.opens = 1;
        let all: Vec<u16> = (0..self.books.drives.len() as u16).collect();
        let mut plan = ChangePlan::new(&mut self.books, setup.crc);
        for opens in [0, 1] {
            // Copy 1 first: so what an interruption leaves is told from what is damaged.
            all.iter().for_each(|drive| plan.anew(*drive, opens, 1, &[], None));
        }
        plan.tell_all(Phase::Open);
        let steps = plan.steps;
        self.work.extend(steps);
        self.settle(PoolAnswer::Open { fresh: true, clean: true });
    }

    /// The pool as it was found. All drives are first told the same number of openings, and then one more: so no two ever differ
    /// by more than one, and what differs by more has been away. Each is told how far the others' entries go by then, and in the end that the
    /// pool is open. It serves after that: a drive that says it is being opened has changed nothing in that opening.
    fn bring_up(&mut self, whole: Whole) -> Result<(), PoolOpenError> {
        let before = self.books.clone();
        let (found, newest) = (whole.layout, if self.setup.keeps_layout { whole.layout } else { LAYOUT });
        let mut plan = self.opening(&whole, newest);
        if plan.1.is_some() && found < newest {
            // The metadata of some drive have no room for what the newer layout says more.
            plan = self.opening(&whole, found);
        }
        if let Some(full) = plan.1 {
            let name = self.books.drives[usize::from(full)].name.clone();
            self.books = before;
            return Err(PoolOpenError::Full(name, whole.drives.iter().find(|d| d.lost).map(|d| d.name.clone())));
        }
        self.work.extend(plan.0);
        self.settle(PoolAnswer::Open { fresh: false, clean: whole.clean });
        Ok(())
    }

    /// The steps of an opening in that layout, and a drive whose metadata have no room.
    fn opening(&mut self, whole: &Whole, layout: u32) -> (Vec<ChangeStep>, Option<u16>) {
        let Whole { uuid, drives, volumes, counter, told, returned, .. } = whole.clone();
        let names = volumes.values().map(|v| (v.name.clone(), v.id)).collect();
        let (has_copies, has_shared) = (volumes.values().any(|v| v.copies > 1), is_any_shared(volumes.values()));
        let has_shared_pairs = has_shared && is_any_shared(volumes.values().filter(|v| v.copies > 1));
        let before = told.iter().map(|(_, opens, _)| *opens).max().unwrap_or(0);
        let (name, phase) = (self.setup.name.clone(), Phase::Opening);
        self.books = Books {
            uuid,
            name,
            opens: before + 1,
            phase,
            layout,
            counter,
            drives,
            volumes,
            names,
            has_copies,
            has_shared,
            has_shared_pairs,
        };
        self.books.forget_written();
        self.books.give_versions();
        let is_back = |(drive, _, _): &&(u16, u64, u8)| returned.contains(drive);
        let (back, others): (Vec<_>, Vec<_>) = told.iter().partition(is_back);
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        // What others describe no more because a drive is back, that drive has to describe first: as one that is still lost.
        for (drive, _, first) in &back {
            plan.anew(*drive, before, *first, &[], None);
        }
        for (drive, _, first) in others.iter().filter(|(_, opens, _)| *opens < before) {
            plan.anew(*drive, before, *first, &[], None);
        }
        returned.iter().for_each(|drive| plan.books.drives[usize::from(*drive)].lost_at = 0);
        for (drive, _, first) in others.iter().chain(&back) {
            plan.anew(*drive, before + 1, *first, &[], None);
        }
        plan.tell_all(Phase::Open);
        (plan.steps, plan.full)
    }

    /// Sends off the steps of an opening, and behind them those that empty what is nobody's.
    pub(crate) fn settle(&mut self, answer: PoolAnswer) {
        let dirty = |(i, d): (usize, &PoolDrive)| d.dirty.iter().map(|run| (i as u16, *run)).collect::<Vec<_>>();
        let dirty: Vec<(u16, ChunkRun)> = self.books.drives.iter().enumerate().flat_map(dirty).collect();
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        plan.unmap(&dirty);
        self.work.extend(plan.steps);
        self.answer = Some(answer);
    }

    /// Tells all drives that the pool is closed, and the first one in the end how far they go.
    fn close(&mut self) -> PoolEffect {
        let all = self.books.here();
        self.books.phase = Phase::Closed;
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        for drive in &all {
            let state = plan.state(Phase::Closed, all.iter().copied().filter(|other| other != drive));
            plan.entry(*drive, &[state], None);
        }
        plan.tell_first(Phase::Closed);
        let steps = plan.steps;
        self.work = steps.into();
        self.answer = Some(PoolAnswer::Closed);
        self.go_on()
    }

    /// What there is to do if this step fails.
    fn prepare_retreat(&mut self, step: &ChangeStep) {
        match (step, &mut self.retreat) {
            // Of a drive that joins these come first, of one that leaves last.
            (ChangeStep::Dismiss(..) | ChangeStep::Settle(_), Retreat::None) => self.retreat = Retreat::On,
            (ChangeStep::Write { drive, .. }, Retreat::Back(joins, _)) if *drive != *joins => {
                self.retreat = Retreat::None
            }
            (ChangeStep::Copy { or_from, to, .. }, _) => {
                self.retreat = Retreat::Uncopied(Some(Copying::Chunk { or_from: *or_from, to: *to }));
            }
            (ChangeStep::Flush(drive), Retreat::Uncopied(copying)) => *copying = Some(Copying::Flush(*drive)),
            (ChangeStep::Switch(_), _) => self.retreat = Retreat::None,
            (ChangeStep::Erase(drive, _), Retreat::AsItWas(erases, _)) => *erases = *drive,
            (ChangeStep::Write { .. }, Retreat::AsItWas(..)) => self.retreat = Retreat::None,
            _ => {}
        }
        match step {
            ChangeStep::Unmap(drive, _) => self.empties = Some(*drive),
            ChangeStep::Flush(_) => {}
            _ => self.empties = None,
        }
        match step {
            ChangeStep::Write { drive, offset, .. } => self.writes = Some((*drive, copy_at(*offset))),
            ChangeStep::Flush(_) => {}
            _ => self.writes = None,
        }
    }

    /// The next effect of the work.
    pub(crate) fn go_on(&mut self) -> PoolEffect {
        while let Some(step) = self.work.pop_front() {
            self.prepare_retreat(&step);
            if let Some(effect) = step.effect(&self.books.drives) {
                if let PoolEffect::Write { drive, .. }
                | PoolEffect::Flush { drive }
                | PoolEffect::Copy { to: drive, .. } = &effect
                {
                    (self.at, self.at_write) = (*drive, matches!(effect, PoolEffect::Write { .. }));
                }
                return effect;
            }
            match step {
                ChangeStep::Reached(drive, reach) => self.books.drives[usize::from(drive)].durable = reach,
                ChangeStep::Free(drive, runs) => self.books.free(drive, &runs),
                ChangeStep::ForgetEmptied(drive) => self.forget_emptied(drive),
                ChangeStep::Commit(change) => {
                    (self.uncommitted, self.changes) = (None, self.changes + 1);
                    self.books.commit(change);
                }
                ChangeStep::Switch(id) => self.switch(id),
                ChangeStep::Write { .. }
                | ChangeStep::Flush(_)
                | ChangeStep::Unmap(..)
                | ChangeStep::Erase(..)
                | ChangeStep::Copy { .. }
                | ChangeStep::Dismiss(..)
                | ChangeStep::Settle(_) => {}
            }
        }
        (self.retreat, self.empties, self.writes) = (Retreat::None, None, None);
        match self.answer.take() {
            Some(answer) => {
                match answer {
                    PoolAnswer::Recovered | PoolAnswer::Drive(_) => {
                        self.torn.clear();
                        self.books.phase = Phase::Open;
                    }
                    PoolAnswer::Open { .. } => self.books.phase = Phase::Open,
                    PoolAnswer::Closed => self.state = PoolState::Closed,
                    PoolAnswer::Volume(_) => {}
                }
                self.finish(answer)
            }
            None => PoolEffect::Finished(Err(PoolError::Busy)),
        }
    }

    fn forget_emptied(&mut self, drive: u16) {
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        plan.forget_emptied(drive);
        plan.steps.into_iter().rev().for_each(|step| self.work.push_front(step));
    }

    fn request(&mut self, request: &PoolRequest) -> Result<PoolEffect, PoolError> {
        if *request == PoolRequest::Recover {
            return self.recover();
        }
        match &self.state {
            PoolState::Broken(PoolError::Broken(_))
                if matches!(request, PoolRequest::TakeOut { .. }) && self.books.phase != Phase::Closed => {}
            PoolState::Broken(why) => return Err(why.clone()),
            PoolState::Up if self.answer.is_none() => {}
            _ => return Err(PoolError::Busy),
        }
        match request {
            PoolRequest::Close => return Ok(self.close()),
            PoolRequest::Join { drive, uuid } => return self.join(drive, JoinRole::New(*uuid)),
            PoolRequest::Online { drive } => return self.online(drive),
            PoolRequest::Leave { number } => return self.leave(*number),
            PoolRequest::TakeOut { number } => return self.take_out(*number),
            PoolRequest::Replace { number, drive, uuid } => return self.replace(*number, drive, *uuid),
            PoolRequest::Written { id, .. }
            | PoolRequest::Settled { id, .. }
            | PoolRequest::MarkStale { id, .. }
            | PoolRequest::MarkFresh { id, .. } => return self.note(*id, request),
            PoolRequest::Unshare { id, runs } => return self.unshare(*id, runs),
            _ => {}
        }
        let as_it_was = matches!(request, PoolRequest::Empty { .. }).then(|| Box::new(self.books.clone()));
        let (before, after, dirty) = self.books.prepare(request)?;
        let id = after.as_ref().or(before.as_ref()).map_or(VolumeId(0), |v| v.id);
        let (places, had) = (self.books.places(), self.books.needs());
        self.books.counter += 1;
        let shares = matches!(request, PoolRequest::Snapshot { .. } | PoolRequest::Clone { .. });
        let is_twice = after.as_ref().is_some_and(|v| v.copies > 1);
        self.books.has_copies |= is_twice;
        self.books.has_shared |= shares;
        self.books.has_shared_pairs |= shares && is_twice;
        let needs = had != self.books.needs();
        let all = self.books.here();
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        if needs {
            // A release that knows of no copies or snapshots is to refuse the pool before the first record of one is written.
            all.iter().for_each(|drive| plan.anew(*drive, plan.books.opens, 1, &[], None));
            plan.tell_all(Phase::Open);
        }
        if let (true, Some(volume)) = (shares, &after) {
            plan.flush_all(volume);
        }
        if let (PoolRequest::Empty { .. }, Some(volume)) = (request, &before) {
            plan.erase(volume);
        }
        plan.change(id, before.as_ref(), after.clone(), dirty);
        let (steps, full) = (plan.steps, plan.full);
        if let Some(full) = full {
            self.books.put_back(places);
            [self.books.has_copies, self.books.has_shared, self.books.has_shared_pairs] = had;
            self.books.undo_taken(&Uncommitted { before, after, is_filled: false });
            return Err(PoolError::Full(self.books.drives[usize::from(full)].name.clone()));
        }
        if let Some(books) = as_it_was {
            self.retreat = Retreat::AsItWas(0, books);
        }
        self.work = steps.into();
        self.uncommitted = Some(Uncommitted { before, after, is_filled: false });
        self.answer = Some(PoolAnswer::Volume(id));
        Ok(self.go_on())
    }
}
