//! A drive that was lost takes part again while the pool is up.
//!
//! ```text
//!  Online ─► its metadata are read ─► refused by name, or
//!         ─► it describes what is its to describe, as one that is lost ─► the others hear of it, one by one ─► so does it ─► all are told
//!                                                                          └ it takes part from the first of these on
//! ```
//! That is what an opening writes that finds a lost drive again, in the same order. The chunks that it has of volumes of one copy are as they were:
//! nobody writes, moves or gives up what lies on a lost drive. Those of volumes that were deleted meanwhile are emptied. What it has missed of
//! volumes with two copies is what their written regions say: it is stale.
//!
//! Whoever writes a volume hears that the drive is back after the pool knows it. What is written in between is written on the other drive alone, so
//! each region that is told of by then is stale too, until [the drive is in use](Pool::is_in_use).

use crate::assemble::{DriveContents, Look, drive, went_on};
use crate::change_plan::ChangePlan;
use crate::choice::CopyDrive;
use crate::drive::{Copy, PoolDrive};
use crate::error::{PoolError, PoolOpenError};
use crate::event::{PoolEffect, SetupDrive};
use crate::extent::{CHUNK, ChunkRun};
use crate::members::JoinRole;
use crate::pool::{Books, Pool, Retreat};
use crate::record::{NEEDS_KNOWN, Phase};
use crate::volume::Volume;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// A lost drive that was found: its number, its copy that counts, and the one that is to be written first.
type FoundAgain<'a> = (u16, &'a Copy, u8);

impl Pool {
    /// Begins to look at what is on a drive that is to take part again.
    pub(crate) fn online(&mut self, drive: &SetupDrive) -> Result<PoolEffect, PoolError> {
        if !self.books.drives.iter().any(|d| d.lost) {
            return Err(PoolError::NotLost(drive.name.clone()));
        }
        self.join(drive, JoinRole::Returns)
    }

    /// Whoever writes volumes has heard that the drive at that place is back.
    pub fn is_in_use(&mut self, position: usize) {
        let at_place = self.books.drives.iter_mut().filter(|d| d.is_here() && d.position == position);
        at_place.for_each(|d| d.returning = false);
    }

    /// Places of drives that are back, and not [in use](Self::is_in_use) yet.
    pub fn returning(&self) -> Vec<usize> {
        self.books.drives.iter().filter(|d| d.is_here() && d.returning).map(|d| d.position).collect()
    }

    /// The steps by which a lost drive takes part again, if it is one and has only missed what the others have been through.
    pub(crate) fn take_part_again(&mut self, position: usize, looks: &[Look]) -> PoolEffect {
        let found = looks.first().map(|look| self.found_again(look));
        let (number, copy, first) = match found {
            Some(Ok(found)) => found,
            Some(Err(why)) => return self.not_joined(why),
            None => return self.not_joined(PoolOpenError::NoLostDrive(self.drive_name(position).into())),
        };
        // Its place among the looks is another one than in the list.
        let mut back = match drive(number, &(0, copy, first), looks, &self.books.volumes) {
            Ok(back) => back,
            Err(why) => return self.not_joined(why),
        };
        let before = self.as_it_is();
        let (at, opens) = (usize::from(number), self.books.opens);
        (back.position, back.lost_at, back.returning) = (position, self.books.drives[at].lost_at, true);
        let dirty: Vec<(u16, ChunkRun)> = back.dirty.iter().map(|run| (number, *run)).collect();
        self.books.drives[at] = back;
        self.books.mark_missed(number);
        let others = self.books.others(number);
        self.books.phase = Phase::Opening;
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        // What others describe no more because it is back, it has to describe first: as one that is still lost.
        plan.anew(number, opens, first, &[], None);
        (plan.books.drives[at].lost_at, plan.books.opens) = (0, opens + 1);
        others.iter().for_each(|other| plan.anew(*other, opens + 1, 1, &[], None));
        plan.anew(number, opens + 1, first, &[], None);
        plan.tell_all(Phase::Open);
        plan.unmap(&dirty);
        let (steps, full) = (plan.steps, plan.full);
        if full.is_none() {
            self.retreat = Retreat::Back(number, Box::new(before.0.clone()));
        }
        self.decide(before, steps, full, position)
    }

    /// Which of the lost drives it is; why it is none, or cannot take part again.
    fn found_again<'a>(&self, look: &'a Look) -> Result<FoundAgain<'a>, PoolOpenError> {
        let name = look.name.clone();
        let (copy, first) = match &look.found {
            DriveContents::Copy(copy, first) => (copy, *first),
            DriveContents::Unusable(why) => return Err(why.clone()),
            DriveContents::Empty | DriveContents::Other => return Err(PoolOpenError::NoLostDrive(name)),
        };
        let header = &copy.header;
        if header.pool != self.books.uuid {
            return Err(PoolOpenError::Stranger(name, header.name.clone(), header.pool));
        }
        if header.needs & !NEEDS_KNOWN != 0 {
            return Err(PoolOpenError::Needs(name, header.needs & !NEEDS_KNOWN));
        }
        let number = self.books.drives.iter().position(|d| d.member.uuid == copy.drive);
        let Some(number) = number.filter(|_| header.opens > 0) else { return Err(PoolOpenError::HasLeft(name)) };
        let known = &self.books.drives[number];
        if !known.lost {
            return Err(PoolOpenError::Duplicate(known.name.clone(), name));
        }
        if usize::from(header.drive) != number || header.members.get(number) != Some(&known.member) {
            return Err(PoolOpenError::Inconsistent(name, "its number and its UUID"));
        }
        if header.area == 0 || header.area >= known.member.chunks {
            return Err(PoolOpenError::Inconsistent(name, "the size of its metadata"));
        }
        if known.member.chunks > look.chunks {
            let bytes = |chunks: u32| u64::from(chunks) * CHUNK;
            return Err(PoolOpenError::Truncated(name, bytes(known.member.chunks), bytes(look.chunks)));
        }
        let older = self.books.behind(copy);
        if went_on(copy, number, known.lost_at) || older.is_some() {
            let here = || self.books.drives.iter().find(|d| d.is_here()).map_or_else(String::new, |d| d.name.clone());
            return Err(PoolOpenError::Split(name, older.unwrap_or_else(here)));
        }
        match copy.reach() < known.reach {
            true => Err(PoolOpenError::Stale(name)),
            false => Ok((number as u16, copy, first)),
        }
    }
}

impl Books {
    /// A drive whose entries do not go as far as this one knows that they went: the pool was brought up from an old copy of it.
    fn behind(&self, copy: &Copy) -> Option<String> {
        let goes_less_far = |(at, drive): &(usize, &PoolDrive)| {
            let is_the_same = copy.header.members.get(*at).is_some_and(|m| m.uuid == drive.member.uuid);
            is_the_same && copy.known.get(*at).is_some_and(|known| known.reach > drive.durable)
        };
        let mut here = self.drives.iter().enumerate().filter(|(_, d)| d.is_here());
        here.find(goes_less_far).map(|(_, drive)| drive.name.clone())
    }

    /// Drives in their order, but the ones that are back behind the others: one whose header says that it takes part has others that say so.
    pub fn returning_last(&self, mut drives: Vec<u16>) -> Vec<u16> {
        drives.sort_by_key(|drive| (self.drives[usize::from(*drive)].returning, *drive));
        drives
    }

    /// What a drive has missed of volumes with two copies while it was lost is stale.
    fn mark_missed(&mut self, number: u16) {
        let mut volumes = core::mem::take(&mut self.volumes);
        for volume in volumes.values_mut().filter(|v| v.copies > 1 && v.parts.contains_key(&number)) {
            let drives: Vec<CopyDrive> = volume.parts.keys().map(|drive| self.as_copy(*drive)).collect();
            let missed = volume.missed(&self.as_copy(number), &drives, &volume.written);
            volume.add_stale(number, missed);
        }
        self.volumes = volumes;
    }

    fn as_copy(&self, drive: u16) -> CopyDrive {
        let is = &self.drives[usize::from(drive)];
        let away_since = if is.lost_at > 0 { is.lost_at } else { u64::MAX };
        CopyDrive { drive, is_here: is.is_here(), away_since }
    }

    /// Something of a volume lies on a drive that is back and not in use yet.
    pub fn is_returning(&self, volume: &Volume) -> bool {
        volume.parts.keys().any(|drive| self.drives[usize::from(*drive)].returning)
    }

    /// Chunks of a volume are about to be written by somebody who may not have heard of drives that are back: they are stale there.
    pub fn is_missed(&self, volume: &mut Volume, runs: &[ChunkRun]) {
        let back: Vec<u16> = volume.parts.keys().copied().filter(|d| self.drives[usize::from(*d)].returning).collect();
        for number in back {
            let drives: Vec<CopyDrive> = volume.parts.keys().map(|drive| self.as_copy(*drive)).collect();
            // What is on a lost drive is not written.
            let of = CopyDrive { away_since: u64::MAX, ..self.as_copy(number) };
            let missed = volume.missed(&of, &drives, runs);
            volume.add_stale(number, missed);
        }
    }
}
