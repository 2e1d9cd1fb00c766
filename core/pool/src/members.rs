//! Drives that join a pool that is up, and that leave it.

use crate::assemble::{DriveContents, Look};
use crate::block::MIRRORED;
use crate::change_plan::{ChangePlan, ChangeStep};
use crate::drive::PoolDrive;
use crate::error::{PoolError, PoolOpenError};
use crate::event::{PoolAnswer, PoolEffect, SetupDrive};
use crate::extent::{CHUNK, ChunkRun, Extent, union};
use crate::opening::{Next, Reading};
use crate::pool::{Books, DRIVES_MAX, LEAST, Pool, PoolState, Retreat};
use crate::record::{Member, Phase, Record};
use crate::volume::{Part, Uuid, Volume, VolumeId};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// A drive that is to join, or is back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joins {
    /// Its place in the caller's list.
    pub position: usize,
    pub role: JoinRole,
}

/// What a drive joins as.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JoinRole {
    /// As another one, of that UUID.
    New(Uuid),
    /// As another one of that UUID in the place of the lost one of that number.
    Replaces(u16, Uuid),
    /// As the lost one that it is.
    Returns,
}

impl Pool {
    /// Begins to look at what is on a drive that is to join, or to take part again.
    pub(crate) fn join(&mut self, drive: &SetupDrive, role: JoinRole) -> Result<PoolEffect, PoolError> {
        let position = self.place_for(&drive.name);
        match self.setup.drives.get_mut(position) {
            Some(place) => *place = drive.clone(),
            None => self.setup.drives.push(drive.clone()),
        }
        if self.drive(position).is_some() {
            return Err(PoolError::Fault(PoolOpenError::Setup("it is a drive of this pool already")));
        }
        let members = self.books.drives.iter().filter(|d| !d.is_gone());
        if matches!(role, JoinRole::New(_)) && members.count() >= DRIVES_MAX {
            return Err(PoolError::Fault(PoolOpenError::Setup("a pool has 1 to 256 drives")));
        }
        if drive.bytes < LEAST {
            return Err(PoolError::Fault(PoolOpenError::Small(drive.name.clone(), drive.bytes, LEAST)));
        }
        self.state = PoolState::Looking(Reading::new(alloc::vec![drive.clone()]), Joins { position, role });
        self.answer = Some(PoolAnswer::Drive(position));
        Ok(self.look())
    }

    pub(crate) fn look(&mut self) -> PoolEffect {
        let PoolState::Looking(reading, joins) = &mut self.state else {
            return PoolEffect::Finished(Err(PoolError::Busy));
        };
        let (position, joins) = (joins.position, *joins);
        let looks = match reading.next(self.setup.crc) {
            Ok(Next::Read(_, offset)) => {
                return PoolEffect::Read { drive: position, offset, len: crate::STRIPE as u32 };
            }
            Ok(Next::Looks(looks)) => looks,
            Err(fault) => return self.not_joined(fault),
        };
        if let Some(DriveContents::Unusable(why)) = looks.first().map(|look| &look.found) {
            let why = why.clone();
            return self.not_joined(why);
        }
        self.state = PoolState::Up;
        let (uuid, number) = match joins.role {
            JoinRole::New(uuid) => (uuid, None),
            JoinRole::Replaces(number, uuid) => (uuid, Some(number)),
            JoinRole::Returns => return self.take_part_again(position, &looks),
        };
        match looks.first().and_then(Look::copy).map(|(copy, _)| (copy, copy.header.clone())) {
            // What has left the pool, or never was in one, is nobody's.
            Some((_, h)) if h.opens > 0 && h.pool != self.books.uuid => {
                let drive = self.setup.drives[position].name.clone();
                self.not_joined(PoolOpenError::Stranger(drive, h.name, h.pool))
            }
            Some((copy, h)) if h.opens > 0 && self.books.drives.iter().any(|d| d.member.uuid == copy.drive) => {
                let fault = self.is_a_member(copy.drive, position);
                self.not_joined(fault)
            }
            Some((copy, h)) if h.opens > 0 => {
                let was = h.members.get(usize::from(h.drive)).copied().unwrap_or(Member::GONE);
                let left = Some((Member { uuid: copy.drive, ..was }, copy.generation));
                self.take_in(position, (uuid, number), left)
            }
            _ => self.take_in(position, (uuid, number), None),
        }
    }

    /// Why a drive that says it is that one of the pool's cannot join.
    fn is_a_member(&self, uuid: Uuid, position: usize) -> PoolOpenError {
        let name = self.drive_name(position).into();
        let lost = (0u16..).zip(&self.books.drives).find(|(_, d)| d.lost && d.member.uuid == uuid);
        if let Some((number, _)) = lost {
            return PoolOpenError::IsLost(name, self.books.lost_name(number));
        }
        let member = self.books.drives.iter().find(|d| d.member.uuid == uuid);
        PoolOpenError::Duplicate(member.map_or_else(String::new, |d| d.name.clone()), name)
    }

    pub(crate) fn not_joined(&mut self, fault: PoolOpenError) -> PoolEffect {
        (self.state, self.answer) = (PoolState::Up, None);
        PoolEffect::Finished(Err(PoolError::Fault(fault)))
    }

    /// The steps by which an empty drive joins. First it is told that it is a drive of a pool that was never opened, which counts for
    /// nothing; from the first of the others on that has heard of it, it is one.
    fn take_in(
        &mut self,
        position: usize,
        (uuid, number): (Uuid, Option<u16>),
        left: Option<(Member, u64)>,
    ) -> PoolEffect {
        let before = self.as_it_is();
        let SetupDrive { name, bytes, .. } = &self.setup.drives[position];
        let drive = PoolDrive::new(position, name, uuid, *bytes);
        let drives = &mut self.books.drives;
        let free = drives.iter().position(PoolDrive::is_gone).unwrap_or(drives.len());
        let index = number.map_or(free, usize::from);
        match drives.get_mut(index) {
            Some(gone) => *gone = drive,
            None => drives.push(drive),
        }
        let (index, opens) = (index as u16, self.books.opens + 1);
        if let Err(why) = self.books.give_chunks_of(index) {
            (self.books, self.answer) = (before.0, None);
            return PoolEffect::Finished(Err(why));
        }
        let dirty = self.books.drives[usize::from(index)].dirty.clone();
        let others = self.books.others(index);
        (self.books.opens, self.books.phase) = (opens, Phase::Opening);
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        if let Some((was, generation)) = left {
            plan.dismiss(position, was, generation);
        }
        plan.anew(index, 0, 1, &[], None);
        others.iter().for_each(|other| plan.anew(*other, opens, 1, &[], None));
        plan.anew(index, opens, 1, &[], None);
        plan.tell_all(Phase::Open);
        let dirty: Vec<(u16, ChunkRun)> = dirty.into_iter().map(|run| (index, run)).collect();
        plan.unmap(&dirty);
        let (steps, full) = (plan.steps, plan.full);
        if full.is_none() {
            self.retreat = Retreat::Back(index, Box::new(before.0.clone()));
        }
        self.decide(before, steps, full, position)
    }

    /// The steps by which a drive leaves: from the first of the others on that has heard of it, it is none of the pool's.
    pub(crate) fn leave(&mut self, number: u16) -> Result<PoolEffect, PoolError> {
        let drive = self.member(number)?;
        let (name, position, is_here) = (drive.name.clone(), drive.position, drive.is_here());
        let volumes = self.books.volumes.values().filter(|v| !v.runs_on(number).is_empty());
        if let Some(one) = volumes.clone().next() {
            return Err(PoolError::InUse(name, volumes.count(), one.name.clone()));
        }
        let others = self.books.others(number);
        if others.is_empty() {
            return Err(PoolError::Last(name));
        }
        let before = self.as_it_is();
        let left = self.books.drives[usize::from(number)].clone();
        let (mut steps, full) = self.without(number, PoolDrive::gone());
        if is_here {
            let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
            plan.dismiss(position, left.member, left.generation);
            steps.extend(plan.steps);
        }
        Ok(self.decide(before, steps, full, position))
    }

    /// The steps by which the pool goes on without a drive: each volume is described on two others, then they hear that it is lost. It hears
    /// nothing: what it knows is how it is told when it is back.
    pub(crate) fn take_out(&mut self, number: u16) -> Result<PoolEffect, PoolError> {
        let drive = self.member(number)?;
        let (name, position) = (drive.name.clone(), drive.position);
        if !drive.is_here() {
            return Err(PoolError::Lost(name));
        }
        let others = self.books.others(number);
        if others.is_empty() {
            return Err(PoolError::Last(name));
        }
        if self.books.layout < MIRRORED {
            return Err(PoolError::Layout(self.setup.name.clone()));
        }
        let before = self.as_it_is();
        let (mut steps, full) = self.anew_after_failure(&others);
        let place = &self.books.drives[usize::from(number)];
        let lost = PoolDrive::lost(place.member, &place.name, place.durable, self.books.opens);
        let (then, then_full) = self.without(number, lost);
        steps.extend(then);
        Ok(self.decide(before, steps, full.or(then_full), position))
    }

    /// The steps by which the others go on without a drive. What some of them have to describe from then on they are told while all are still
    /// the pool's: if that takes a new header, it is one like those of the others.
    fn without(&mut self, number: u16, place: PoolDrive) -> (Vec<ChangeStep>, Option<u16>) {
        let (others, mut was) = (self.books.others(number), self.books.clone());
        self.books.drives[usize::from(number)] = place;
        let moved = self.books.move_descriptions(&was);
        let mut plan = ChangePlan::new(&mut was, self.setup.crc);
        moved.iter().for_each(|(drive, records)| plan.entry(*drive, records, None));
        let (mut steps, full) = (plan.steps, plan.full);
        for (drive, told) in self.books.drives.iter_mut().zip(&was.drives).filter(|(d, _)| d.is_here()) {
            (drive.generation, drive.entry, drive.reach, drive.used) =
                (told.generation, told.entry, told.reach, told.used);
        }
        let opens = self.books.opens + 1;
        (self.books.opens, self.books.phase) = (opens, Phase::Opening);
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        others.iter().for_each(|other| plan.anew(*other, opens, 1, &[], None));
        plan.tell_all(Phase::Open);
        steps.extend(plan.steps);
        (steps, full.or(plan.full))
    }

    pub(crate) fn as_it_is(&self) -> Before {
        (self.books.clone(), self.state.clone())
    }

    /// Has every drive say what memory knows. Of a drive with a copy that may be in pieces that one is written first: the other one counts
    /// until it is whole.
    pub(crate) fn recover(&mut self) -> Result<PoolEffect, PoolError> {
        match &self.state {
            PoolState::Broken(PoolError::Broken(_)) if self.books.phase != Phase::Closed => {}
            PoolState::Broken(why) => return Err(why.clone()),
            PoolState::Up if self.answer.is_none() => {}
            _ => return Err(PoolError::Busy),
        }
        let (before, opens, all) = (self.books.clone(), self.books.opens, self.books.returning_last(self.books.here()));
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        for drive in all {
            plan.anew(drive, opens, self.torn.get(&drive).copied().unwrap_or(1), &[], None);
        }
        plan.tell_all(Phase::Open);
        let (steps, full) = (plan.steps, plan.full);
        if let Some(full) = full {
            self.books = before;
            return Err(PoolError::Full(self.books.drives[usize::from(full)].name.clone()));
        }
        self.state = PoolState::Up;
        self.work = steps.into();
        self.settle(PoolAnswer::Recovered);
        Ok(self.go_on())
    }

    /// After a write that has failed the drives but the one that is taken out say first what memory knows.
    fn anew_after_failure(&mut self, others: &[u16]) -> (Vec<ChangeStep>, Option<u16>) {
        if !matches!(self.state, PoolState::Broken(_)) {
            return (Vec::new(), None);
        }
        self.state = PoolState::Up;
        let (opens, others) = (self.books.opens, self.books.returning_last(others.to_vec()));
        let mut plan = ChangePlan::new(&mut self.books, self.setup.crc);
        for drive in others {
            plan.anew(drive, opens, self.torn.get(&drive).copied().unwrap_or(1), &[], None);
        }
        (plan.steps, plan.full)
    }

    /// Begins to look at what is on a drive that is to take the place of a lost one.
    pub(crate) fn replace(&mut self, number: u16, drive: &SetupDrive, uuid: Uuid) -> Result<PoolEffect, PoolError> {
        let old = self.member(number)?;
        if !old.lost {
            return Err(PoolError::NotLost(old.name.clone()));
        }
        self.join(drive, JoinRole::Replaces(number, uuid))
    }

    fn member(&self, number: u16) -> Result<&PoolDrive, PoolError> {
        let found = self.books.drives.get(usize::from(number)).filter(|d| !d.is_gone());
        found.ok_or_else(|| PoolError::NoMember(alloc::format!("number {number}")))
    }

    pub(crate) fn decide(
        &mut self,
        before: Before,
        steps: Vec<ChangeStep>,
        full: Option<u16>,
        position: usize,
    ) -> PoolEffect {
        if let Some(full) = full {
            let name = self.books.drives[usize::from(full)].name.clone();
            ((self.books, self.state), self.answer) = (before, None);
            return PoolEffect::Finished(Err(PoolError::Full(name)));
        }
        self.work = steps.into();
        self.answer = Some(PoolAnswer::Drive(position));
        self.go_on()
    }
}

/// The pool before a change of its drives, for the case that it is not made.
pub(crate) type Before = (Books, PoolState);
/// Records for a drive.
type Told = (u16, Vec<Record>);

impl Books {
    /// Volumes whose home is none of the drives that are there get another one: the mirror that they had. What drives must be told before
    /// anybody hears of the change: volumes that they have not described so far.
    pub fn move_descriptions(&mut self, before: &Books) -> Vec<Told> {
        let mut told: BTreeMap<u16, Vec<Record>> = BTreeMap::new();
        let (mut volumes, was) =
            (core::mem::take(&mut self.volumes), |v: &Volume| [Some(v.home), before.mirror_of(v.home)]);
        for volume in volumes.values_mut() {
            let had = was(volume);
            if !self.drives[usize::from(volume.home)].is_here() {
                self.move_home(volume, had[1]);
            }
            if let Some(mirror) = self.mirror_of(volume.home).filter(|drive| !had.contains(&Some(*drive))) {
                told.entry(mirror).or_default().extend(before.described(volume.id));
            }
        }
        self.volumes = volumes;
        told.into_iter().collect()
    }

    /// All that there is to say of a volume, for a drive that has not said it so far.
    fn described(&self, id: VolumeId) -> Vec<Record> {
        let Some(volume) = self.volumes.get(&id) else { return Vec::new() };
        let drive = self.mirror_of(volume.home).unwrap_or(volume.home);
        self.descriptions(volume, drive)
    }

    /// Homes that a drive has become while the pool was not open say so in a version of their own.
    pub fn give_versions(&mut self) {
        for part in self.volumes.values_mut().flat_map(|v| v.parts.values_mut()).filter(|part| part.version == 0) {
            self.counter += 1;
            part.version = self.counter;
        }
    }

    /// The volume's record is on that drive from now on, or on the first one; it may have no chunks there.
    pub fn move_home(&mut self, volume: &mut Volume, to: Option<u16>) {
        let is_here = |drive: &u16| self.drives[usize::from(*drive)].is_here();
        let first = self.drives.iter().position(PoolDrive::is_here).map(|i| i as u16);
        let Some(home) = to.filter(is_here).or(first) else { return };
        let old = volume.home;
        if volume.parts.get(&old).is_some_and(|part| part.extents.is_empty()) {
            volume.parts.remove(&old);
        }
        self.counter += 1;
        volume.home = home;
        volume.parts.entry(home).or_insert(Part { version: 0, extents: Vec::new() }).version = self.counter;
    }

    /// A drive that takes the place of a lost one gets chunks for those that volumes had there; they are stale.
    fn give_chunks_of(&mut self, number: u16) -> Result<(), PoolError> {
        let extents = self.volumes.values().filter_map(|v| v.parts.get(&number)).flat_map(|p| &p.extents);
        let old: Vec<ChunkRun> = extents.map(|e| e.run).collect();
        // What several volumes have lies there once.
        let old = if self.has_shared { union(old) } else { old };
        let wanted = old.iter().map(|run| u64::from(run.len)).sum::<u64>();
        if wanted == 0 {
            return Ok(());
        }
        let drive = &mut self.drives[usize::from(number)];
        let has = u64::from(drive.member.chunks - drive.area);
        if wanted > has {
            return Err(PoolError::TooSmall(drive.name.clone(), has * CHUNK, wanted * CHUNK));
        }
        self.counter += 1;
        let mut at = drive.area;
        for volume in self.volumes.values_mut().filter(|v| v.parts.contains_key(&number)) {
            let runs = volume.runs_on(number);
            let mut extents = Vec::new();
            if self.has_shared {
                let places = |e: &Extent| moved_with(&old, drive.area, e);
                extents = volume.parts[&number].extents.iter().filter_map(places).collect();
            } else {
                for run in &runs {
                    extents.push(Extent { logical: run.start, run: ChunkRun { start: at, len: run.len } });
                    at += run.len;
                }
            }
            volume.parts.insert(number, Part { version: self.counter, extents });
            volume.stale.insert(number, runs);
        }
        // What no volume has is emptied, and free then.
        at = drive.area + wanted as u32;
        drive.dirty = alloc::vec![ChunkRun { start: at, len: drive.member.chunks - at }];
        drive.dirty.retain(|run| run.len > 0);
        Ok(())
    }
}

/// The extent that takes the place of one, where these runs lie one behind the other from a chunk on.
fn moved_with(runs: &[ChunkRun], first: u32, extent: &Extent) -> Option<Extent> {
    let at = runs.iter().position(|run| run.start <= extent.run.start && extent.run.end() <= run.end())?;
    let before: u32 = runs[..at].iter().map(|run| run.len).sum();
    let start = first + before + (extent.run.start - runs[at].start);
    Some(Extent { run: ChunkRun { start, ..extent.run }, ..*extent })
}
