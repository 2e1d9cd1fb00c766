//! A pool from what its drives say: which drives belong together, and which records count.

use crate::block::LAYOUT;
use crate::buddy::Buddy;
use crate::drive::{Copy, PoolDrive, copy_blocks};
use crate::error::PoolOpenError;
use crate::extent::{CHUNK, ChunkRun, Chunks};
use crate::record::{EntryHeader, Home, LogEnd, Member, NEEDS_KNOWN, Phase};
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
    /// Each drive, how often it knows the pool was opened, and which copy to write first.
    pub told: Vec<(u16, u64, u8)>,
    /// All drives were told that the pool is closed.
    pub clean: bool,
    /// The newest layout on its drives.
    pub layout: u32,
}

/// Drives by their number in the pool: the place in the list, and the copy. Nothing where one has left.
type Members<'a> = Vec<Option<(usize, &'a Copy, u8)>>;

pub(crate) fn assemble(pool: &str, looks: &[Look]) -> Result<Assembled, PoolOpenError> {
    let stranger =
        |look: &Look, h: &EntryHeader| Err(PoolOpenError::Stranger(look.name.clone(), h.name.clone(), h.pool));
    let all = || looks.iter().filter_map(|l| Some((l, &l.copy()?.0.header)));
    if let Some((look, other)) = all().find(|(l, h)| l.named && h.name != pool) {
        return stranger(look, other);
    }
    // What was not named is of no account unless it is the same pool's as what was.
    let named = all().rev().filter(|(l, h)| l.named && h.opens > 0).max_by_key(|(_, h)| h.opens);
    let Some((_, first)) = named else {
        // It was never made whole, perhaps more than once; or whatever is named has left it.
        return match all().find(|(l, h)| !l.named && h.opens > 0 && h.name == pool) {
            Some((look, h)) => Err(PoolOpenError::Elsewhere(look.name.clone(), h.name.clone(), h.pool)),
            None => Ok(Assembled::Fresh),
        };
    };
    if let Some((look, other)) = all().find(|(l, h)| l.named && h.pool != first.pool && h.opens > 0) {
        return stranger(look, other);
    }
    let ours = || all().filter(|(_, h)| h.pool == first.pool);
    let newest = ours().map(|(_, h)| h).max_by_key(|h| h.opens).unwrap_or(first).clone();
    if let Some((look, h)) = all().find(|(_, h)| h.pool == first.pool && h.needs & !NEEDS_KNOWN != 0) {
        return Err(PoolOpenError::Needs(look.name.clone(), h.needs & !NEEDS_KNOWN));
    }
    let members = sort(&newest, looks)?;
    for (position, copy, _) in members.iter().flatten() {
        let look = &looks[*position];
        let size = copy.header.members[usize::from(copy.header.drive)].chunks;
        if size > look.chunks {
            let bytes = |chunks: u32| u64::from(chunks) * CHUNK;
            return Err(PoolOpenError::Truncated(look.name.clone(), bytes(size), bytes(look.chunks)));
        }
    }
    are_of_one_time(&newest, &members, looks)?;
    let volumes = resolve(&members, looks)?;
    let build = |(i, m): (usize, &Option<(usize, &Copy, u8)>)| match m {
        Some(member) => drive(i as u16, member, looks, &volumes),
        None => Ok(PoolDrive::gone()),
    };
    let drives = members.iter().enumerate().map(build).collect::<Result<_, _>>()?;
    let counter = members.iter().flatten().map(|(_, copy, _)| copy.counter).max().unwrap_or(0);
    let told = members.iter().zip(0u16..).filter_map(|(m, i)| m.map(|(_, copy, first)| (i, copy.header.opens, first)));
    let told = told.collect();
    let copies = || members.iter().flatten().map(|(_, copy, _)| *copy);
    let clean = copies().all(|copy| copy.phase == Phase::Closed);
    let layout = copies().map(|copy| copy.layout).max().unwrap_or(LAYOUT);
    Ok(Assembled::Whole(Whole { uuid: newest.pool, drives, volumes, counter, told, clean, layout }))
}

/// Refuses a drive whose entries do not go as far as another one knows that they went: an old copy. Every crash leaves drives that go as far
/// as any of them knows, since a drive is told of another one's entries when these are durable.
fn are_of_one_time(newest: &EntryHeader, members: &Members<'_>, looks: &[Look]) -> Result<(), PoolOpenError> {
    let there = || members.iter().enumerate().filter_map(|(i, m)| m.as_ref().map(|m| (i, m)));
    for (number, (position, copy, _)) in there() {
        let knows_more = |(of, (_, other, _)): (usize, &(usize, &Copy, u8))| {
            // A number may be another drive's by now.
            let is_the_same = other.header.members.get(number).is_some_and(|m| m.uuid == copy.drive);
            let known = other.known.get(number).map(|known| known.reach);
            of != number && is_the_same && known > Some(copy.reach())
        };
        // What the oldest layout has instead: one that is about to join, or whose pool is being made, was never told.
        let is_behind = copy.header.opens + 1 < newest.opens && copy.header.opens > 0;
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
            DriveContents::Empty | DriveContents::Other => None,
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
            match header.opens < newest.opens {
                true => continue,
                false => return wrong("it knows other drives"),
            }
        };
        if header.opens == newest.opens && header.members != newest.members {
            return wrong("it knows other drives");
        }
        if usize::from(header.drive) != number || header.members.get(number) != newest.members.get(number) {
            return wrong("its number and its UUID");
        }
        if header.area == 0 || header.area >= newest.members[number].chunks {
            return wrong("the size of its metadata");
        }
        let place = &mut places[number];
        if let Some((other, _, _)) = place {
            return Err(PoolOpenError::Duplicate(looks[*other].name.clone(), look.name.clone()));
        }
        *place = Some((position, copy, first));
    }
    let is_missing = |i: &usize| places[*i].is_none() && newest.members[*i] != Member::GONE;
    let missing: Vec<usize> = (0..places.len()).filter(is_missing).collect();
    if let Some(index) = missing.first().copied() {
        // An old copy of a drive that has left since and joined again has another UUID.
        let was = |l: &&Look| {
            let copy = l.copy().map(|(copy, _)| copy).filter(|copy| copy.header.pool == newest.pool);
            l.named && copy.is_some_and(|copy| newest.members.iter().all(|m| m.uuid != copy.drive))
        };
        if let Some(look) = looks.iter().find(was) {
            return Err(PoolOpenError::Stale(look.name.clone()));
        }
        let empty = looks.iter().find(|l| l.named && matches!(l.found, DriveContents::Empty)).map(|l| l.name.clone());
        let member = newest.members[index];
        let bytes = u64::from(member.chunks) * CHUNK;
        return Err(PoolOpenError::Missing(missing.len(), index as u16, member.uuid, bytes, empty));
    }
    Ok(places)
}

/// The records that count: of each home the newest, of the others what that one names.
fn resolve(members: &Members<'_>, looks: &[Look]) -> Result<BTreeMap<VolumeId, Volume>, PoolOpenError> {
    let mut homes: BTreeMap<VolumeId, (u16, u64, &Home)> = BTreeMap::new();
    let there = || members.iter().enumerate().filter_map(|(i, m)| m.as_ref().map(|m| (i, m)));
    for (drive, (position, copy, _)) in there() {
        for ((id, version), candidate) in &copy.candidates {
            let Some(home) = &candidate.home else { continue };
            let before = homes.insert(*id, (drive as u16, *version, home));
            if before.is_some_and(|(other, _, _)| other != drive as u16) {
                return Err(PoolOpenError::Inconsistent(
                    looks[*position].name.clone(),
                    "two drives are home of one volume",
                ));
            }
        }
    }
    let mut names: BTreeMap<&str, ()> = BTreeMap::new();
    let mut volumes = BTreeMap::new();
    for (id, (at, version, home)) in homes {
        let member = |drive: u16| members.get(usize::from(drive)).and_then(Option::as_ref);
        let wrong = |drive: u16, why| {
            let name = member(drive).map_or_else(String::new, |(position, _, _)| looks[*position].name.clone());
            PoolOpenError::Inconsistent(name, why)
        };
        let mut parts = BTreeMap::new();
        for (drive, version) in home.others.iter().copied().chain([(at, version)]) {
            let Some((position, copy, _)) = member(drive) else {
                return Err(wrong(at, "a volume has chunks of a drive that the pool has not"));
            };
            let Some(candidate) = copy.candidates.get(&(id, version)) else {
                return Err(PoolOpenError::Stale(looks[*position].name.clone()));
            };
            parts.insert(drive, Part { version, extents: candidate.extents.clone() });
        }
        let (name, tenant) = (home.name.clone(), home.tenant.clone());
        let volume = Volume { id, name, tenant, uuid: home.uuid, chunks: home.chunks, home: at, parts };
        if volume.segments(usize::from).is_none() {
            return Err(wrong(at, "the chunks of a volume do not cover it"));
        }
        if names.insert(&home.name, ()).is_some() {
            return Err(wrong(at, "two volumes have one name"));
        }
        volumes.insert(id, volume);
    }
    Ok(volumes)
}

/// A drive with what is free of it.
fn drive(
    index: u16,
    (position, copy, _): &(usize, &Copy, u8),
    looks: &[Look],
    volumes: &BTreeMap<VolumeId, Volume>,
) -> Result<PoolDrive, PoolOpenError> {
    let (header, name) = (&copy.header, &looks[*position].name);
    let member = header.members[usize::from(index)];
    let inside = |run: &ChunkRun| run.start >= header.area && run.end() <= u64::from(member.chunks);
    let mut taken = Chunks::new(member.chunks);
    for run in volumes.values().filter_map(|v| v.parts.get(&index)).flat_map(|p| &p.extents).map(|e| e.run) {
        if !inside(&run) || !taken.mark(run) {
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
