//! A pool from what its drives say: which drives belong together, and which records count.

use crate::block::{LAYOUT, MIRRORED};
use crate::buddy::Buddy;
use crate::choice::CopyDrive;
use crate::drive::{Candidate, Copy, PoolDrive, copy_blocks};
use crate::error::PoolOpenError;
use crate::extent::{CHUNK, ChunkRun, Chunks, mark_part};
use crate::record::{EntryHeader, Home, LOST, LogEnd, Member, Mirror, NEEDS_KNOWN, Phase, SHARED};
use crate::volume::{Part, Uuid, Volume, VolumeId};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// What was found on a drive.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub name: String,
    /// Whole chunks.
    pub chunks: u32,
    /// It was named for this pool.
    pub named: bool,
    pub found: DriveContents,
}

#[derive(Clone, Debug)]
pub(crate) enum DriveContents {
    /// Nothing, or what an interrupted making of a pool left.
    Empty,
    /// Something that is none of this pool's.
    Other,
    /// It was named, and is of no use: why. It may be a drive of the pool that is lost.
    Unusable(PoolOpenError),
    /// The copy that reaches furthest, and the one that is to be written first.
    Copy(Box<Copy>, u8),
}

/// What the drives make.
#[derive(Clone, Debug)]
pub(crate) enum Assembled {
    /// Nothing yet.
    Fresh,
    Whole(Whole),
}

/// A pool, and what its drives must be told before it is up.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    pub uuid: Uuid,
    pub drives: Vec<PoolDrive>,
    pub volumes: BTreeMap<VolumeId, Volume>,
    pub counter: u64,
    /// Each drive that is there, how often it knows the pool was opened, and which copy to write first.
    pub told: Vec<(u16, u64, u8)>,
    /// All drives were told that the pool is closed.
    pub clean: bool,
    /// The newest layout on its drives.
    pub layout: u32,
    /// Drives that were lost and are back.
    pub returned: Vec<u16>,
}

/// A drive that was found: the place in the list, its copy that counts, and which one is to be written first.
type Present<'a> = (usize, &'a Copy, u8);
/// Drives by their number in the pool. Nothing where one has left or is not there.
type Members<'a> = Vec<Option<Present<'a>>>;

pub(crate) fn assemble(pool: &str, looks: &[Look], whole: bool) -> Result<Assembled, PoolOpenError> {
    let stranger =
        |look: &Look, h: &EntryHeader| Err(PoolOpenError::Stranger(look.name.clone(), h.name.clone(), h.pool));
    let all = || looks.iter().filter_map(|l| Some((l, &l.copy()?.0.header)));
    if let Some((look, other)) = all().find(|(l, h)| l.named && h.name != pool) {
        return stranger(look, other);
    }
    // What was not named is of no account unless it is the same pool's as what was.
    let named = all().rev().filter(|(l, h)| l.named && h.opens > 0).max_by_key(|(_, h)| h.opens);
    let Some((_, first)) = named else {
        unusable(looks)?;
        // It was never made whole, perhaps more than once; or whatever is named has left it.
        return match all().find(|(l, h)| !l.named && h.opens > 0 && h.name == pool) {
            Some((look, h)) => Err(PoolOpenError::Elsewhere(look.name.clone(), h.name.clone(), h.pool)),
            None => Ok(Assembled::Fresh),
        };
    };
    if let Some((look, other)) = all().find(|(l, h)| l.named && h.pool != first.pool && h.opens > 0) {
        return stranger(look, other);
    }
    let newest = newest(looks, first);
    if let Some((look, h)) = all().find(|(_, h)| h.pool == first.pool && h.needs & !NEEDS_KNOWN != 0) {
        return Err(PoolOpenError::Needs(look.name.clone(), h.needs & !NEEDS_KNOWN));
    }
    let members = sort(&newest, looks)?;
    let missing = |number: &usize| members[*number].is_none() && newest.members[*number] != Member::GONE;
    if !(0..members.len()).any(|number| missing(&number)) {
        unusable(looks)?;
    }
    for (position, copy, _) in members.iter().flatten() {
        let look = &looks[*position];
        let size = copy.header.members[usize::from(copy.header.drive)].chunks;
        if size > look.chunks {
            let bytes = |chunks: u32| u64::from(chunks) * CHUNK;
            return Err(PoolOpenError::Truncated(look.name.clone(), bytes(size), bytes(look.chunks)));
        }
    }
    went_apart(&newest, &members, looks)?;
    are_of_one_time(&newest, &members, looks)?;
    may_miss(&newest, &members, looks, whole)?;
    let found = Found { newest: &newest, members: &members, looks };
    let volumes = found.volumes()?;
    let build = |(i, m): (usize, &Option<Present<'_>>)| match m {
        Some(member) => drive(i as u16, member, looks, &volumes),
        None if newest.members[i] == Member::GONE => Ok(PoolDrive::gone()),
        None => Ok(found.lost(i)),
    };
    let mut drives = members.iter().enumerate().map(build).collect::<Result<Vec<_>, _>>()?;
    let counter = members.iter().flatten().map(|(_, copy, _)| copy.counter).max().unwrap_or(0);
    let told = members.iter().zip(0u16..).filter_map(|(m, i)| m.map(|(_, copy, first)| (i, copy.header.opens, first)));
    let told = told.collect();
    let copies = || members.iter().flatten().map(|(_, copy, _)| *copy);
    let clean = copies().all(|copy| copy.phase == Phase::Closed);
    let layout = copies().map(|copy| copy.layout).max().unwrap_or(LAYOUT);
    let returned = (0u16..).zip(&members).filter(|(i, m)| m.is_some() && is_lost(&newest, (*i).into()));
    let returned: Vec<u16> = returned.map(|(i, _)| i).collect();
    for number in returned.iter().map(|i| usize::from(*i)) {
        drives[number].lost_at = newest.lost_at.get(number).copied().unwrap_or(0);
    }
    Ok(Assembled::Whole(Whole { uuid: newest.pool, drives, volumes, counter, told, clean, layout, returned }))
}

/// Whether the newest header says that the drive of that number is lost. What it says of its own drive is of an opening that came to nothing.
fn is_lost(newest: &EntryHeader, number: usize) -> bool {
    usize::from(newest.drive) != number && newest.known.get(number).is_some_and(|known| known.state == LOST)
}

/// A drive that was named and is of no use is an error where the pool misses none.
fn unusable(looks: &[Look]) -> Result<(), PoolOpenError> {
    let why = looks.iter().find_map(|look| match &look.found {
        DriveContents::Unusable(why) => Some(why.clone()),
        _ => None,
    });
    why.map_or(Ok(()), Err)
}

/// The header that counts most: of the most openings; of those of one number the one whose opening is complete; or that the others of them do not
/// take for lost; or that knows of a drive that was lost before it.
fn newest(looks: &[Look], first: &EntryHeader) -> EntryHeader {
    let ours: Vec<&Copy> =
        looks.iter().filter_map(|l| Some(l.copy()?.0)).filter(|c| c.header.pool == first.pool).collect();
    let knows = |copy: &Copy| {
        let of = |other: &&Copy| copy.header.members.iter().position(|m| m.uuid == other.drive);
        ours.iter().any(|other| of(other).is_some_and(|number| copy.says_lost(number, other.drive)))
    };
    let is_lost = |copy: &Copy| {
        let of = |other: &&&Copy| other.header.opens == copy.header.opens && other.drive != copy.drive;
        ours.iter().filter(of).any(|other| other.says_lost(copy.header.drive.into(), copy.drive))
    };
    let rank = |copy: &&&Copy| (copy.header.opens, copy.phase != Phase::Opening, !is_lost(copy), knows(copy));
    ours.iter().max_by_key(rank).map_or(first, |copy| &copy.header).clone()
}

/// Whether a drive of that number has gone on by itself, or with others, since it was lost: it was opened more often than then. An opening that it
/// did not complete has changed nothing.
pub(crate) fn went_on(copy: &Copy, number: usize, lost_at: u64) -> bool {
    let returns = copy.says_lost(number, copy.drive) && copy.header.lost_at.get(number) == Some(&lost_at);
    let begun = (copy.header.opens == lost_at + 1 || returns) && copy.phase == Phase::Opening;
    copy.header.opens > lost_at && !begun
}

/// Refuses a drive that was lost and [has gone on](went_on).
fn went_apart(newest: &EntryHeader, members: &Members<'_>, looks: &[Look]) -> Result<(), PoolOpenError> {
    let there = || members.iter().enumerate().filter_map(|(i, m)| m.as_ref().map(|m| (i, m)));
    for (number, (position, copy, _)) in there().filter(|(number, _)| is_lost(newest, *number)) {
        let lost_at = newest.lost_at.get(number).copied().unwrap_or(0);
        if went_on(copy, number, lost_at) {
            let other =
                there().find(|(other, _)| !is_lost(newest, *other)).map_or(*position, |(_, (other, _, _))| *other);
            return Err(PoolOpenError::Split(looks[*position].name.clone(), looks[other].name.clone()));
        }
    }
    Ok(())
}

/// Refuses a pool that misses more drives than it can do without: one that its others have not been told is lost, if these have been told
/// of all those before it.
fn may_miss(newest: &EntryHeader, members: &Members<'_>, looks: &[Look], whole: bool) -> Result<(), PoolOpenError> {
    let there = || members.iter().flatten().map(|(_, copy, _)| copy);
    let missing = |i: &usize| members[*i].is_none() && newest.members[*i] != Member::GONE;
    // From the last step of the opening without a drive on, each volume is described on two of the others again; and the next one begins when
    // all have been told of that one.
    let is_complete = there().any(|copy| copy.header.opens == newest.opens && copy.phase != Phase::Opening);
    let is_told = |i: usize| is_complete || newest.lost_at.get(i).is_some_and(|lost_at| lost_at + 1 < newest.opens);
    let counts = |i: &usize| missing(i) && !(is_lost(newest, *i) && is_told(*i));
    let (count, first) = ((0..members.len()).filter(counts).count(), (0..members.len()).find(counts));
    let Some(index) = first.or_else(|| (0..members.len()).find(missing)) else { return Ok(()) };
    let (member, name) = (newest.members[index], newest.names.get(index).cloned().unwrap_or_default());
    let bytes = u64::from(member.chunks) * CHUNK;
    let mirrored = there().all(|copy| copy.layout >= MIRRORED);
    if count > 1 || count > 0 && !mirrored {
        unusable(looks)?;
        let empty = looks.iter().find(|l| l.named && matches!(l.found, DriveContents::Empty)).map(|l| l.name.clone());
        return Err(PoolOpenError::Missing(count, index as u16, member.uuid, bytes, empty));
    }
    if whole {
        unusable(looks)?;
        return Err(PoolOpenError::Incomplete(name, index as u16, member.uuid, bytes));
    }
    Ok(())
}

/// Refuses a drive whose entries do not go as far as another one knows that they went: an old copy. Every crash leaves drives that go as far
/// as any of them knows, since a drive is told of another one's entries when these are durable.
fn are_of_one_time(newest: &EntryHeader, members: &Members<'_>, looks: &[Look]) -> Result<(), PoolOpenError> {
    let there = || members.iter().enumerate().filter_map(|(i, m)| m.as_ref().map(|m| (i, m)));
    for (number, (position, copy, _)) in there() {
        let knows_more = |(of, (_, other, _)): (usize, &Present<'_>)| {
            // A number may be another drive's by now.
            let is_the_same = other.header.members.get(number).is_some_and(|m| m.uuid == copy.drive);
            let known = other.known.get(number).map(|known| known.reach);
            of != number && is_the_same && known > Some(copy.reach())
        };
        // What the oldest layout has instead: one that is about to join, or whose pool is being made, was never told. One that was lost has
        // missed openings and nothing else: the others know how far it went.
        let is_behind = copy.header.opens + 1 < newest.opens && copy.header.opens > 0 && !is_lost(newest, number);
        if is_behind || there().any(knows_more) {
            return Err(PoolOpenError::Stale(looks[*position].name.clone()));
        }
    }
    Ok(())
}

impl Look {
    pub fn copy(&self) -> Option<(&Copy, u8)> {
        match &self.found {
            DriveContents::Copy(copy, first) => Some((copy, *first)),
            DriveContents::Empty | DriveContents::Other | DriveContents::Unusable(_) => None,
        }
    }
}

/// The drives in the pool's order; every one of them, once. Others of this pool have left it, or have not joined.
fn sort<'a>(newest: &EntryHeader, looks: &'a [Look]) -> Result<Members<'a>, PoolOpenError> {
    let mut places: Members<'a> = alloc::vec![None; newest.members.len()];
    for (position, look) in looks.iter().enumerate() {
        let Some((copy, first)) = look.copy().filter(|(copy, _)| copy.header.pool == newest.pool) else { continue };
        let header = &copy.header;
        let wrong = |why| Err(PoolOpenError::Inconsistent(look.name.clone(), why));
        let Some(number) = newest.members.iter().position(|m| m.uuid == copy.drive) else {
            let is_other = |other: &&Look| {
                other.copy().is_some_and(|(copy, _)| newest.members.iter().any(|m| m.uuid == copy.drive))
            };
            let has_lost = |h: &EntryHeader| h.known.iter().any(|k| k.state == LOST);
            let went_on = has_lost(header) || header.opens >= newest.opens && has_lost(newest);
            match header.opens < newest.opens {
                true if !went_on || copy.phase == Phase::Opening => continue,
                _ if went_on => {
                    let other = looks.iter().find(is_other).map_or_else(String::new, |other| other.name.clone());
                    return Err(PoolOpenError::Split(look.name.clone(), other));
                }
                _ => return wrong("it knows other drives"),
            }
        };
        if header.opens == newest.opens && header.members != newest.members && !is_lost(newest, number) {
            return wrong("it knows other drives");
        }
        if usize::from(header.drive) != number || header.members.get(number) != newest.members.get(number) {
            return wrong("its number and its UUID");
        }
        if header.area == 0 || header.area >= newest.members[number].chunks {
            return wrong("the size of its metadata");
        }
        if header.opens == 0 && is_lost(newest, number) {
            // It was about to join, and the others have gone on without it: volumes have none of its chunks.
            continue;
        }
        let place = &mut places[number];
        if let Some((other, _, _)) = place {
            return Err(PoolOpenError::Duplicate(looks[*other].name.clone(), look.name.clone()));
        }
        *place = Some((position, copy, first));
    }
    let is_missing = |i: usize| places[i].is_none() && newest.members[i] != Member::GONE && !is_lost(newest, i);
    // An old copy of a drive that has left since and joined again has another UUID, and is of the same size. One that has left, or was about to
    // join, says that its pool was never opened.
    let was = |l: &&Look| {
        let copy =
            l.copy().map(|(copy, _)| copy).filter(|copy| copy.header.pool == newest.pool && copy.header.opens > 0);
        let could_be = |copy: &Copy| {
            let (number, then) = (usize::from(copy.header.drive), &copy.header.members);
            let chunks = |members: &[Member]| members.get(number).map(|m| m.chunks);
            number < places.len() && is_missing(number) && chunks(then) == chunks(&newest.members)
        };
        l.named && copy.is_some_and(|copy| newest.members.iter().all(|m| m.uuid != copy.drive) && could_be(copy))
    };
    match looks.iter().find(was) {
        Some(look) => Err(PoolOpenError::Stale(look.name.clone())),
        None => Ok(places),
    }
}

/// The drives that were found, in the pool's order.
struct Found<'a> {
    newest: &'a EntryHeader,
    members: &'a Members<'a>,
    looks: &'a [Look],
}

/// What a drive says of a volume.
#[derive(Clone, Copy)]
struct Described<'a> {
    by: u16,
    volume: &'a Home,
    /// The version at home, where it is home that says so.
    version: Option<u64>,
    /// All that there is to know, where there is more to know than home's part.
    mirror: Option<&'a Mirror>,
}

impl Described<'_> {
    /// Its drives, with the version of each, and whether something lies there.
    fn parts(&self) -> Vec<(u16, u64, bool)> {
        let mirrored = self.mirror.iter().flat_map(|m| &m.parts);
        match self.version {
            Some(version) => {
                let others = self.volume.others.iter().map(|(drive, version)| (*drive, *version, true));
                others.chain([(self.by, version, false)]).collect()
            }
            None => mirrored.map(|(drive, part)| (*drive, part.version, !part.extents.is_empty())).collect(),
        }
    }

    /// The part of a drive that is lost.
    fn part(&self, drive: u16, version: u64) -> Option<Part> {
        let mut parts = self.mirror.iter().flat_map(|m| &m.parts);
        parts.find(|(of, part)| (*of, part.version) == (drive, version)).map(|(_, part)| part.clone())
    }
}

impl<'a> Found<'a> {
    fn copy(&self, drive: u16) -> Option<&'a Copy> {
        self.members.get(usize::from(drive)).and_then(|m| m.map(|(_, copy, _)| copy))
    }

    fn there(&self) -> impl Iterator<Item = (u16, &'a Copy)> + '_ {
        (0u16..).zip(self.members).filter_map(|(i, m)| m.map(|(_, copy, _)| (i, copy)))
    }

    fn name(&self, drive: u16) -> String {
        let found = self.members.get(usize::from(drive)).and_then(Option::as_ref);
        found.map_or_else(String::new, |(position, _, _)| self.looks[*position].name.clone())
    }

    /// A drive that is not there, as the others know it.
    fn lost(&self, number: usize) -> PoolDrive {
        let member = self.newest.members[number];
        let name = self.newest.names.get(number).map_or("", String::as_str);
        let is = |copy: &&Copy| copy.header.members.get(number) == Some(&member);
        let reaches = self.there().map(|(_, copy)| copy).filter(is).filter_map(|copy| copy.known.get(number));
        let reach = reaches.map(|known| known.reach).max().unwrap_or_default();
        let lost_at = match is_lost(self.newest, number) {
            true => self.newest.lost_at.get(number).copied().unwrap_or(0),
            false => self.there().map(|(_, copy)| copy.header.opens).max().unwrap_or(0),
        };
        PoolDrive::lost(member, name, reach, lost_at)
    }

    /// A drive whose word counts: what one that was lost says is older than what the others say of it.
    fn counts(&self, drive: u16) -> bool {
        self.copy(drive).is_some() && !is_lost(self.newest, drive.into())
    }

    /// The records that count: of each home the newest, of the others what that one names. Of a home that is lost what its mirror says.
    fn volumes(&self) -> Result<BTreeMap<VolumeId, Volume>, PoolOpenError> {
        let mut names: BTreeMap<String, ()> = BTreeMap::new();
        let mut volumes = BTreeMap::new();
        for (id, said) in self.described()? {
            let volume = self.whole(id, &said)?;
            let wrong = |why| PoolOpenError::Inconsistent(self.name(volume.home), why);
            if volume.segments(|drive| Some(drive.into())).is_none() {
                return Err(wrong("the chunks of a volume do not cover it"));
            }
            if names.insert(volume.name.clone(), ()).is_some() {
                return Err(wrong("two volumes have one name"));
            }
            volumes.insert(id, volume);
        }
        Ok(volumes)
    }

    /// What counts of what is said of each volume.
    fn described(&self) -> Result<BTreeMap<VolumeId, Described<'a>>, PoolOpenError> {
        let mut all: BTreeMap<VolumeId, Described<'a>> = BTreeMap::new();
        for (by, copy) in self.there().filter(|(drive, _)| self.counts(*drive)) {
            // In the order of their versions.
            for ((id, version), candidate) in &copy.candidates {
                let Some(volume) = &candidate.home else { continue };
                let own = copy.mirrors.get(id).filter(|m| (m.home, m.version) == (by, *version));
                let said = Described { by, volume, version: Some(*version), mirror: own.map(|m| &**m) };
                if all.insert(*id, said).is_some_and(|other| other.by != by) {
                    return Err(PoolOpenError::Inconsistent(self.name(by), "two drives are home of one volume"));
                }
            }
        }
        for (by, copy) in self.there().filter(|(drive, _)| self.counts(*drive)) {
            for (id, mirror) in &copy.mirrors {
                let newer = |said: &Described<'_>| {
                    said.version.is_none() && said.mirror.is_some_and(|m| m.version < mirror.version)
                };
                // Where its home is there and says nothing of it, it was deleted.
                if !self.counts(mirror.home) && all.get(id).is_none_or(newer) {
                    all.insert(*id, Described { by, volume: &mirror.volume, version: None, mirror: Some(&**mirror) });
                }
            }
        }
        Ok(all)
    }

    /// A volume as it is said to be. The drive that says so is its home from now on.
    fn whole(&self, id: VolumeId, said: &Described<'a>) -> Result<Volume, PoolOpenError> {
        let by = self.copy(said.by);
        let (mut parts, mut stale) =
            (BTreeMap::new(), by.and_then(|copy| copy.stale.get(&id)).cloned().unwrap_or_default());
        let mut in_place = Vec::new();
        for (drive, version, _) in said.parts().into_iter().filter(|(drive, _, lies)| *lies || *drive == said.by) {
            let part = self.part(id, (drive, version), said)?;
            if part.version != version {
                in_place.push(drive);
            }
            parts.insert(drive, part);
        }
        if said.version.is_none() {
            // Its version is given when the drive is written.
            parts.entry(said.by).or_insert(Part { version: 0, extents: Vec::new() }).version = 0;
        }
        let Home { name, tenant, uuid, chunks, copies, .. } = said.volume;
        if !(1..=2).contains(copies) {
            return Err(PoolOpenError::Inconsistent(self.name(said.by), "a volume has neither one copy nor two"));
        }
        let written = by.and_then(|copy| copy.written.get(&id)).cloned().unwrap_or_default();
        let (name, tenant, home) = (name.clone(), tenant.clone(), said.by);
        stale.retain(|drive, runs| parts.contains_key(drive) && !runs.is_empty());
        let (uuid, chunks, copies) = (*uuid, *chunks, *copies);
        let mut volume = Volume { id, name, tenant, uuid, chunks, copies, home, parts, stale, written };
        // What is on a drive that has taken the place of a lost one, which home has not heard of yet, is not what was written.
        for drive in in_place {
            volume.stale.insert(drive, volume.runs_on(drive));
        }
        if volume.copies > 1 {
            let drives = self.copy_drives(&volume);
            volume.choose_copies(drives);
        }
        Ok(volume)
    }

    /// The drives of a volume, and since when each was away: for home when it was written, or for the others.
    fn copy_drives(&self, volume: &Volume) -> Vec<CopyDrive> {
        let home = self.copy(volume.home).map(|copy| &copy.header);
        let as_copy = |drive: u16| {
            let at = usize::from(drive);
            let said = |h: &EntryHeader| {
                let is_lost = h.known.get(at).is_some_and(|known| known.state == LOST);
                is_lost.then(|| h.lost_at.get(at).copied().unwrap_or(0))
            };
            let newest = is_lost(self.newest, at).then(|| self.newest.lost_at.get(at).copied().unwrap_or(0));
            let away_since = newest.or_else(|| home.and_then(said)).unwrap_or(u64::MAX);
            CopyDrive { drive, is_here: self.copy(drive).is_some(), away_since }
        };
        volume.parts.iter().filter(|(_, part)| !part.extents.is_empty()).map(|(drive, _)| as_copy(*drive)).collect()
    }

    /// The part of a volume on a drive, in that version. The drive may have taken the place of a lost one, and who says so not have heard of it:
    /// then it has an empty one of another version.
    fn part(&self, id: VolumeId, (drive, version): (u16, u64), said: &Described<'a>) -> Result<Part, PoolOpenError> {
        let now = self.newest.members.get(usize::from(drive)).filter(|m| **m != Member::GONE);
        let Some(now) = now else {
            let why = "a volume has chunks of a drive that the pool has not";
            return Err(PoolOpenError::Inconsistent(self.name(said.by), why));
        };
        let candidates = self.copy(drive).map(|copy| &copy.candidates);
        let as_part = |version, found: &Candidate| Part { version, extents: found.extents.clone() };
        if let Some(found) = candidates.and_then(|all| all.get(&(id, version))) {
            return Ok(as_part(version, found));
        }
        let found = match (self.counts(drive), self.copy(said.by)) {
            (true, Some(by)) if by.header.members.get(usize::from(drive)).map(|m| m.uuid) != Some(now.uuid) => {
                let newest = candidates.and_then(|all| all.range((id, 0)..=(id, u64::MAX)).next_back());
                newest.map(|((_, version), found)| as_part(*version, found))
            }
            (true, _) => None,
            (false, _) => said.part(drive, version),
        };
        found.ok_or_else(|| self.stale(drive))
    }

    fn stale(&self, drive: u16) -> PoolOpenError {
        PoolOpenError::Stale(self.name(drive))
    }
}

/// A drive with what is free of it.
pub(crate) fn drive(
    index: u16,
    (position, copy, _): &(usize, &Copy, u8),
    looks: &[Look],
    volumes: &BTreeMap<VolumeId, Volume>,
) -> Result<PoolDrive, PoolOpenError> {
    let (header, name) = (&copy.header, &looks[*position].name);
    let member = header.members[usize::from(index)];
    let inside = |run: &ChunkRun| run.start >= header.area && run.end() <= u64::from(member.chunks);
    let mut taken = Chunks::new(member.chunks);
    let shares = header.needs & SHARED != 0;
    for part in volumes.values().filter_map(|v| v.parts.get(&index)) {
        let is_inside = part.extents.iter().all(|e| inside(&e.run));
        if !is_inside || !mark_part(&mut taken, &part.extents, member.chunks, shares) {
            return Err(PoolOpenError::Inconsistent(name.clone(), "a chunk is not there, or belongs to two volumes"));
        }
    }
    let mut was = Chunks::new(member.chunks);
    for run in copy.touched.iter().filter(|run| inside(run)) {
        // Often more than once.
        let _ = was.mark(*run);
    }
    let touched = was.runs(member.chunks, true);
    let mut dirty: Vec<ChunkRun> = Vec::new();
    for chunk in touched.iter().flat_map(|run| run.start..run.end() as u32).filter(|c| !taken.has(*c)) {
        match dirty.last_mut() {
            Some(run) if run.end() == u64::from(chunk) => run.len += 1,
            _ => dirty.push(ChunkRun { start: chunk, len: 1 }),
        }
    }
    let of_nobody = dirty.iter().all(|run| taken.mark(*run)) && taken.mark(ChunkRun { start: 0, len: header.area });
    debug_assert!(of_nobody);
    let mut buddy = Buddy::new(member.chunks);
    taken.runs(member.chunks, false).into_iter().for_each(|run| buddy.give(run));
    let reach = copy.reach();
    let LogEnd { generation, entry } = reach;
    Ok(PoolDrive {
        member,
        position: *position,
        name: name.clone(),
        lost: false,
        lost_at: 0,
        returning: false,
        area: header.area,
        copy_blocks: copy_blocks(header.area),
        generation,
        entry,
        reach,
        durable: reach,
        // Nothing is appended to what was found: both copies are begun anew first.
        used: copy_blocks(header.area),
        buddy,
        dirty,
    })
}
