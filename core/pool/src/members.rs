//! Drives that join a pool that is up, and that leave it.

use crate::assemble::Look;
use crate::change_plan::{ChangePlan, ChangeStep};
use crate::drive::PoolDrive;
use crate::error::{PoolError, PoolOpenError};
use crate::event::{PoolAnswer, PoolEffect, SetupDrive};
use crate::extent::ChunkRun;
use crate::opening::{Next, Reading};
use crate::pool::{Books, DRIVES_MAX, LEAST, Pool, PoolState, Retreat};
use crate::record::{Member, Phase};
use crate::volume::Uuid;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

impl Pool {
    /// Begins to look at what is on a drive that is to join.
    pub(crate) fn join(&mut self, drive: &SetupDrive, uuid: Uuid) -> Result<PoolEffect, PoolError> {
        let position = self.place_for(&drive.name);
        match self.setup.drives.get_mut(position) {
            Some(place) => *place = drive.clone(),
            None => self.setup.drives.push(drive.clone()),
        }
        if self.drive(position).is_some() {
            return Err(PoolError::Fault(PoolOpenError::Setup("it is a drive of this pool already")));
        }
        let members = self.books.drives.iter().filter(|d| !d.is_gone());
        if members.count() >= DRIVES_MAX {
            return Err(PoolError::Fault(PoolOpenError::Setup("a pool has 1 to 256 drives")));
        }
        if drive.bytes < LEAST {
            return Err(PoolError::Fault(PoolOpenError::Small(drive.name.clone(), drive.bytes, LEAST)));
        }
        self.state = PoolState::Looking(Reading::new(alloc::vec![drive.clone()]), position, uuid);
        self.answer = Some(PoolAnswer::Drive(position));
        Ok(self.look())
    }

    pub(crate) fn look(&mut self) -> PoolEffect {
        let PoolState::Looking(reading, position, uuid) = &mut self.state else {
            return PoolEffect::Finished(Err(PoolError::Busy));
        };
        let (position, uuid) = (*position, *uuid);
        let looks = match reading.next(self.setup.crc) {
            Ok(Next::Read(_, offset)) => {
                return PoolEffect::Read { drive: position, offset, len: crate::STRIPE as u32 };
            }
            Ok(Next::Looks(looks)) => looks,
            Err(fault) => return self.not_joined(fault),
        };
        self.state = PoolState::Up;
        match looks.first().and_then(Look::copy).map(|(copy, _)| (copy, copy.header.clone())) {
            // What has left the pool, or never was in one, is nobody's.
            Some((_, h)) if h.opens > 0 && h.pool != self.books.uuid => {
                let drive = self.setup.drives[position].name.clone();
                self.not_joined(PoolOpenError::Stranger(drive, h.name, h.pool))
            }
            Some((copy, h)) if h.opens > 0 && self.books.drives.iter().any(|d| d.member.uuid == copy.drive) => {
                let member = self.books.drives.iter().find(|d| d.member.uuid == copy.drive);
                let name =
                    |position: usize| self.setup.drives.get(position).map_or_else(String::new, |d| d.name.clone());
                let fault =
                    PoolOpenError::Duplicate(member.map_or_else(String::new, |d| name(d.position)), name(position));
                self.not_joined(fault)
            }
            Some((copy, h)) if h.opens > 0 => {
                let was = h.members.get(usize::from(h.drive)).copied().unwrap_or(Member::GONE);
                self.take_in(position, uuid, Some((Member { uuid: copy.drive, ..was }, copy.generation)))
            }
            _ => self.take_in(position, uuid, None),
        }
    }

    fn not_joined(&mut self, fault: PoolOpenError) -> PoolEffect {
        (self.state, self.answer) = (PoolState::Up, None);
        PoolEffect::Finished(Err(PoolError::Fault(fault)))
    }

    /// The steps by which an empty drive joins. First it is told that it is a drive of a pool that was never opened, which counts for
    /// nothing; from the first of the others on that has heard of it, it is one.
    fn take_in(&mut self, position: usize, uuid: Uuid, left: Option<(Member, u64)>) -> PoolEffect {
        let before = self.books.clone();
        let drive = PoolDrive::new(position, uuid, self.setup.drives[position].bytes);
        let dirty = drive.dirty.clone();
        let drives = &mut self.books.drives;
        let index = drives.iter().position(PoolDrive::is_gone).unwrap_or(drives.len());
        match drives.get_mut(index) {
            Some(gone) => *gone = drive,
            None => drives.push(drive),
        }
        let (index, opens) = (index as u16, self.books.opens + 1);
        let others = self.books.others(index);
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        if let Some((was, generation)) = left {
            plan.dismiss(position, was, generation);
        }
        plan.anew(index, 0, 1, &[], None);
        others.iter().for_each(|other| plan.anew(*other, opens, 1, &[], None));
        plan.anew(index, opens, 1, &[], None);
        plan.tell_first(Phase::Open);
        let dirty: Vec<(u16, ChunkRun)> = dirty.into_iter().map(|run| (index, run)).collect();
        plan.unmap(&dirty);
        let (steps, full) = (plan.steps, plan.full);
        if full.is_none() {
            self.retreat = Retreat::Back(index, Box::new(before.clone()));
        }
        self.decide(before, steps, full, opens, position)
    }

    /// The steps by which a drive leaves: from the first of the others on that has heard of it, it is none of the pool's.
    pub(crate) fn leave(&mut self, position: usize) -> Result<PoolEffect, PoolError> {
        let name = || self.setup.drives.get(position).map_or_else(String::new, |d| d.name.clone());
        let Some(index) = self.books.drives.iter().position(|d| d.position == position) else {
            return Err(PoolError::NoMember(name()));
        };
        let (index, opens) = (index as u16, self.books.opens + 1);
        let volumes = self.books.volumes.values().filter(|v| v.parts.contains_key(&index));
        if let Some(one) = volumes.clone().next() {
            return Err(PoolError::InUse(name(), volumes.count(), one.name.clone()));
        }
        let others = self.books.others(index);
        if others.is_empty() {
            return Err(PoolError::Last(name()));
        }
        let before = self.books.clone();
        let left = core::mem::replace(&mut self.books.drives[usize::from(index)], PoolDrive::gone());
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        others.iter().for_each(|other| plan.anew(*other, opens, 1, &[], None));
        plan.tell_first(Phase::Open);
        plan.dismiss(position, left.member, left.generation);
        let (steps, full) = (plan.steps, plan.full);
        Ok(self.decide(before, steps, full, opens, position))
    }

    fn decide(
        &mut self,
        before: Books,
        steps: Vec<ChangeStep>,
        full: Option<u16>,
        opens: u64,
        position: usize,
    ) -> PoolEffect {
        if let Some(full) = full {
            let position = self.books.drives[usize::from(full)].position;
            self.books = before;
            self.answer = None;
            return PoolEffect::Finished(Err(PoolError::Full(self.setup.drives[position].name.clone())));
        }
        self.books.opens = opens;
        self.work = steps.into();
        self.answer = Some(PoolAnswer::Drive(position));
        self.go_on()
    }
}
