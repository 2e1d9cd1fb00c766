//! A pool from what its drives say: which drives belong together, and which records count.

use crate::buddy::Buddy;
use crate::drive::{Copy, Drive, copy_blocks};
use crate::error::Fault;
use crate::extent::{CHUNK, Chunks, Run};
use crate::record::{Header, Home};
use crate::volume::{Part, Uuid, Volume, VolumeId};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// What was found on a drive.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub name: String,
    /// Whole chunks.
    pub chunks: u32,
    pub found: Found,
}

#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// Nothing, or what an interrupted making of a pool left.
    Empty,
    /// The copy that reaches furthest, and the one that is to be written first.
    Copy(Copy, u8),
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
    pub drives: Vec<Drive>,
    pub volumes: BTreeMap<VolumeId, Volume>,
    pub counter: u64,
    /// By drive: how often it knows the pool was opened, and which copy to write first.
    pub told: Vec<(u64, u8)>,
}

/// Drives by their number in the pool: the place in the list, and the copy.
type Members<'a> = Vec<(usize, &'a Copy, u8)>;

pub(crate) fn assemble(pool: &str, looks: &[Look]) -> Result<Assembled, Fault> {
    let opens = looks.iter().filter_map(|l| l.copy().map(|(c, _)| c.header.opens)).max();
    let Some(opens) = opens else { return Ok(Assembled::Fresh) };
    let header = |look: &'_ Look| look.copy().map(|(copy, _)| copy.header.clone());
    let stranger = |look: &Look, h: Header| Err(Fault::Stranger(look.name.clone(), h.name, h.pool));
    let all: Vec<(&Look, Header)> = looks.iter().filter_map(|l| Some((l, header(l)?))).collect();
    if let Some((look, other)) = all.iter().find(|(_, h)| h.name != pool) {
        return stranger(look, other.clone());
    }
    if opens == 0 {
        // It was never made whole, perhaps more than once.
        return Ok(Assembled::Fresh);
    }
    let reference = all.iter().map(|(_, h)| h).find(|h| h.opens > 0).cloned().expect("one was opened");
    if let Some((look, other)) = all.into_iter().find(|(_, h)| h.pool != reference.pool) {
        return stranger(look, other);
    }
    let members = sort(&reference, looks)?;
    for (position, copy, _) in &members {
        let look = &looks[*position];
        let size = copy.header.members[usize::from(copy.header.drive)].chunks;
        if size > look.chunks {
            let bytes = |chunks: u32| u64::from(chunks) * CHUNK;
            return Err(Fault::Truncated(look.name.clone(), bytes(size), bytes(look.chunks)));
        }
        if copy.header.opens + 1 < opens {
            return Err(Fault::Stale(look.name.clone()));
        }
    }
    let volumes = resolve(&members, looks)?;
    let drives =
        members.iter().enumerate().map(|(i, m)| drive(i as u16, m, looks, &volumes)).collect::<Result<_, _>>()?;
    let counter = members.iter().map(|(_, copy, _)| copy.counter).max().unwrap_or(0);
    let told = members.iter().map(|(_, copy, first)| (copy.header.opens, *first)).collect();
    Ok(Assembled::Whole(Whole { uuid: reference.pool, drives, volumes, counter, told }))
}

impl Look {
    fn copy(&self) -> Option<(&Copy, u8)> {
        match &self.found {
            Found::Copy(copy, first) => Some((copy, *first)),
            Found::Empty => None,
        }
    }
}

/// The drives in the pool's order; every one of them, once.
fn sort<'a>(reference: &Header, looks: &'a [Look]) -> Result<Members<'a>, Fault> {
    let mut places: Vec<Option<(usize, &Copy, u8)>> = alloc::vec![None; reference.members.len()];
    for (position, look) in looks.iter().enumerate() {
        let Some((copy, first)) = look.copy() else { continue };
        let header = &copy.header;
        let wrong = |why| Err(Fault::Inconsistent(look.name.clone(), why));
        if header.members != reference.members {
            return wrong("it knows other drives");
        }
        let Some(member) = header.members.get(usize::from(header.drive)).filter(|m| m.uuid == copy.drive) else {
            return wrong("its number and its UUID");
        };
        if header.area == 0 || header.area >= member.chunks {
            return wrong("the size of its metadata");
        }
        let place = &mut places[usize::from(header.drive)];
        if let Some((other, _, _)) = place {
            return Err(Fault::Duplicate(looks[*other].name.clone(), look.name.clone()));
        }
        *place = Some((position, copy, first));
    }
    let empty = looks.iter().find(|l| l.copy().is_none()).map(|l| l.name.clone());
    let missing = places.iter().filter(|p| p.is_none()).count();
    if let Some(index) = places.iter().position(Option::is_none) {
        let member = reference.members[index];
        return Err(Fault::Missing(missing, index as u16, member.uuid, u64::from(member.chunks) * CHUNK, empty));
    }
    match empty {
        Some(empty) => Err(Fault::Extra(empty)),
        None => Ok(places.into_iter().flatten().collect()),
    }
}

/// The records that count: of each home the newest, of the others what that one names.
fn resolve(members: &Members<'_>, looks: &[Look]) -> Result<BTreeMap<VolumeId, Volume>, Fault> {
    let mut homes: BTreeMap<VolumeId, (u16, u64, &Home)> = BTreeMap::new();
    for (drive, (position, copy, _)) in members.iter().enumerate() {
        for ((id, version), candidate) in &copy.candidates {
            let Some(home) = &candidate.home else { continue };
            let before = homes.insert(*id, (drive as u16, *version, home));
            if before.is_some_and(|(other, _, _)| other != drive as u16) {
                return Err(Fault::Inconsistent(looks[*position].name.clone(), "two drives are home of one volume"));
            }
        }
    }
    let mut names: BTreeMap<&str, ()> = BTreeMap::new();
    let mut volumes = BTreeMap::new();
    for (id, (at, version, home)) in homes {
        let wrong = |drive: u16, why| Fault::Inconsistent(looks[members[usize::from(drive)].0].name.clone(), why);
        let mut parts = BTreeMap::new();
        for (drive, version) in home.others.iter().copied().chain([(at, version)]) {
            let Some((position, copy, _)) = members.get(usize::from(drive)) else {
                return Err(wrong(at, "a volume has chunks of a drive that the pool has not"));
            };
            let Some(candidate) = copy.candidates.get(&(id, version)) else {
                return Err(Fault::Stale(looks[*position].name.clone()));
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
) -> Result<Drive, Fault> {
    let (header, name) = (&copy.header, &looks[*position].name);
    let member = header.members[usize::from(index)];
    let inside = |run: &Run| run.start >= header.area && run.end() <= u64::from(member.chunks);
    let mut taken = Chunks::new(member.chunks);
    for run in volumes.values().filter_map(|v| v.parts.get(&index)).flat_map(|p| &p.extents).map(|e| e.run) {
        if !inside(&run) || !taken.mark(run) {
            return Err(Fault::Inconsistent(name.clone(), "a chunk is not there, or belongs to two volumes"));
        }
    }
    let mut was = Chunks::new(member.chunks);
    for run in copy.touched.iter().filter(|run| inside(run)) {
        // Often more than once.
        let _ = was.mark(*run);
    }
    let touched = was.runs(member.chunks, true);
    let mut dirty: Vec<Run> = Vec::new();
    for chunk in touched.iter().flat_map(|run| run.start..run.end() as u32).filter(|c| !taken.has(*c)) {
        match dirty.last_mut() {
            Some(run) if run.end() == u64::from(chunk) => run.len += 1,
            _ => dirty.push(Run { start: chunk, len: 1 }),
        }
    }
    let of_nobody = dirty.iter().all(|run| taken.mark(*run)) && taken.mark(Run { start: 0, len: header.area });
    debug_assert!(of_nobody);
    let mut buddy = Buddy::new(member.chunks);
    taken.runs(member.chunks, false).into_iter().for_each(|run| buddy.give(run));
    let (generation, entry) = copy.reach();
    Ok(Drive {
        member,
        position: *position,
        area: header.area,
        copy_blocks: copy_blocks(header.area),
        generation,
        entry,
        // Nothing is appended to what was found: both copies are begun anew first.
        used: copy_blocks(header.area),
        buddy,
        dirty,
    })
}
