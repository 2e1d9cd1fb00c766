//! Volumes with two copies: every crash of a write, of a note, of a rebuild and of a drive that comes and goes. What is read never goes back.

use super::crash::for_each_crash;
use crate::drive::{Scan, scan};
use crate::model::{ModelDrive, ModelWorld, UNREADABLE, crc32c, create, create_twice, delete, replace, resize};
use crate::record::COPIES;
use crate::{
    ChunkRun, CopyHealth, CopyState, PoolError, PoolOpenError, PoolRequest, REGION, STRIPE, VolumeId, VolumeSegment,
};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

pub(super) const OLD: u64 = 7;
pub(super) const NEW: u64 = 8;

fn open(drives: Vec<ModelDrive>, what: &str) -> ModelWorld {
    let world = ModelWorld::open(drives, 50).unwrap_or_else(|why| panic!("{what}: {why}"));
    world.pool.check();
    world
}

fn without(drives: &[ModelDrive], lost: usize) -> Vec<ModelDrive> {
    drives.iter().enumerate().filter(|(i, _)| *i != lost).map(|(_, d)| d.clone()).collect()
}

/// Where the copies of a chunk of a volume lie: place of the drive, chunk of it, and whether it is good.
pub(super) fn copies_of(world: &ModelWorld, name: &str, chunk: u32) -> Vec<(usize, u32, CopyState)> {
    let segments = world.segments(name);
    let s = segments.iter().find(|s| (s.logical..s.logical + s.len).contains(&chunk)).unwrap();
    let skip = chunk - s.logical;
    let first = if !s.lost {
        CopyState::Good
    } else if s.drive == usize::MAX {
        CopyState::Lost
    } else {
        CopyState::Stale
    };
    let second = s.second.map(|second| (second.drive, second.start + skip, second.state));
    [(s.drive, s.start + skip, first)].into_iter().chain(second).collect()
}

pub(super) fn id(world: &ModelWorld) -> VolumeId {
    world.pool.volume("v").unwrap().id
}

pub(super) fn run(chunk: u32) -> Vec<ChunkRun> {
    vec![ChunkRun { start: chunk, len: 1 }]
}

pub(super) fn written(world: &ModelWorld, chunk: u32) -> PoolRequest {
    PoolRequest::Written { id: id(world), runs: run(chunk) }
}

pub(super) fn settled(world: &ModelWorld, chunk: u32) -> PoolRequest {
    PoolRequest::Settled { id: id(world), runs: run(chunk) }
}

fn stale(world: &ModelWorld, drive: usize, chunk: u32) -> PoolRequest {
    PoolRequest::MarkStale { id: id(world), drive, runs: run(chunk) }
}

/// Three drives and a volume on two of them; a word in each of its chunks.
pub(super) fn three() -> ModelWorld {
    let mut world = ModelWorld::open([9, 8, 7].map(ModelDrive::new).to_vec(), 1).unwrap();
    world.request(&create_twice("v", 3)).unwrap();
    (0..3).for_each(|chunk| put(&mut world, chunk, OLD, 2));
    world.drives.iter_mut().for_each(ModelDrive::flush);
    world
}

/// Writes a word to so many copies of a chunk.
pub(super) fn put(world: &mut ModelWorld, chunk: u32, word: u64, copies: usize) {
    for (drive, at, state) in copies_of(world, "v", chunk).into_iter().take(copies) {
        if state != CopyState::Lost {
            world.drives[drive].put(at, word);
        }
    }
}

pub(super) fn word(world: &ModelWorld, chunk: u32) -> u64 {
    world.words("v")[chunk as usize]
}

/// Every crash of what the world does next.
pub(super) fn every_crash(mut world: ModelWorld, f: &mut dyn FnMut(Vec<ModelDrive>, &str)) -> ModelWorld {
    for step in 0.. {
        let what = alloc::format!("step {step}, {:?}", world.next.as_ref().map(super::crash::kind));
        for_each_crash(&world.drives.clone(), |drives| f(drives, &what));
        if let Some(result) = world.step() {
            result.unwrap();
            world.pool.check();
            return world;
        }
    }
    unreachable!()
}

fn asked(mut world: ModelWorld, request: &PoolRequest) -> ModelWorld {
    world.begin(request);
    world
}

/// What a crash left is opened: the chunk is one of these, and whoever has read it reads it again, or an error, whichever drive is lost then, and
/// when it is back.
pub(super) fn holds(drives: Vec<ModelDrive>, chunk: u32, allowed: &[u64], what: &str) {
    let world = open(drives, what);
    let seen = word(&world, chunk);
    assert!(allowed.contains(&seen), "{what}: {seen} is none of {allowed:?}");
    for missing in 0..world.drives.len() {
        let what = alloc::format!("{what}, read {seen}, then without {missing}");
        let mut degraded = open(without(&world.drives, missing), &what);
        let then = word(&degraded, chunk);
        assert!(then == seen || then == UNREADABLE, "{what}: {then}");
        let mut expected = seen;
        if then != UNREADABLE {
            // It is written while the drive is away, which has missed that when it is back.
            let request = written(&degraded, chunk);
            degraded.request(&request).unwrap();
            put(&mut degraded, chunk, 99, 2);
            degraded.drives.iter_mut().for_each(ModelDrive::flush);
            let request = settled(&degraded, chunk);
            degraded.request(&request).unwrap();
            expected = 99;
        }
        let mut drives = degraded.drives.clone();
        drives.insert(missing, world.drives[missing].clone());
        let back = open(drives, &alloc::format!("{what}, and back"));
        assert_eq!(word(&back, chunk), expected, "{what}, and back");
        rebuilt(back, expected, chunk, &what);
    }
}

/// After a rebuild of everything each copy is good and has that word.
pub(super) fn rebuilt(mut world: ModelWorld, expected: u64, chunk: u32, what: &str) {
    while let Some(segment) = world.pool.next_stale(id(&world), 0) {
        world = rebuild(world, &segment);
    }
    for (drive, at, state) in copies_of(&world, "v", chunk) {
        assert_eq!(state, CopyState::Good, "{what}");
        assert_eq!(world.drives[drive].now.chunks.get(&at.into()), Some(&expected), "{what}, on {drive}");
    }
    assert_eq!(world.pool.copy_health(id(&world)), CopyHealth::default(), "{what}");
}

fn rebuild(mut world: ModelWorld, segment: &VolumeSegment) -> ModelWorld {
    let request = copy(&mut world, segment);
    world.request(&request).unwrap();
    world
}

/// Copies a segment's first chunk; the note that says so.
fn copy(world: &mut ModelWorld, segment: &VolumeSegment) -> PoolRequest {
    let second = segment.second.unwrap();
    let word = world.drives[segment.drive].now.chunks.get(&segment.start.into()).copied().unwrap_or(0);
    world.drives[second.drive].put(second.start, word);
    PoolRequest::MarkFresh { id: id(world), drive: second.drive, runs: run(segment.logical) }
}

#[test]
fn each_chunk_is_on_two_drives() {
    let world = three();
    for chunk in 0..3 {
        let drives: BTreeSet<usize> = copies_of(&world, "v", chunk).iter().map(|(drive, ..)| *drive).collect();
        assert_eq!(drives.len(), 2);
    }
    for lost in 0..3 {
        let degraded = open(without(&world.drives, lost), "lost");
        assert_eq!(degraded.words("v"), [OLD; 3], "without {lost}");
        assert_eq!(degraded.pool.lost_chunks(degraded.pool.volume("v").unwrap()), (0, 0));
        let mut drives = degraded.drives;
        drives.insert(lost, world.drives[lost].clone());
        let back = open(drives, "back");
        assert_eq!(back.pool.copy_health(id(&back)), CopyHealth::default(), "it has missed nothing");
    }
}

#[test]
fn room_is_counted_on_different_drives() {
    // 4, 4 and 4 chunks for volumes: 6 chunks twice, in pieces on all three.
    let mut world = ModelWorld::open([6, 6, 6].map(ModelDrive::new).to_vec(), 1).unwrap();
    assert_eq!(world.request(&create_twice("v", 7)), Err(PoolError::SpaceApart(7, 6)));
    world.request(&create_twice("v", 6)).unwrap();
    assert_eq!((0..3).map(|d| world.pool.room(d).1).collect::<Vec<_>>(), [0, 0, 0]);
    for lost in 0..3 {
        let degraded = open(without(&world.drives, lost), "lost");
        assert_eq!(degraded.words("v"), [0; 6], "without {lost}");
    }
    world.request(&resize("v", 2)).unwrap();
    world.request(&resize("v", 5)).unwrap();
    world.request(&delete("v")).unwrap();
    assert_eq!((0..3).map(|d| world.pool.room(d).1).collect::<Vec<_>>(), [4, 4, 4]);
    // One drive has most of the room.
    let mut world = ModelWorld::open([20, 5, 4].map(ModelDrive::new).to_vec(), 1).unwrap();
    assert_eq!(world.request(&create_twice("v", 6)), Err(PoolError::SpaceApart(6, 5)));
    world.request(&create_twice("v", 5)).unwrap();
    let mut one = ModelWorld::open(vec![ModelDrive::new(20)], 1).unwrap();
    assert_eq!(one.request(&create_twice("v", 1)), Err(PoolError::SpaceApart(1, 0)));
    let many = match create_twice("w", 1) {
        PoolRequest::Create { name, tenant, uuid, chunks, .. } => {
            PoolRequest::Create { name, tenant, uuid, chunks, copies: 3 }
        }
        other => other,
    };
    assert_eq!(one.request(&many), Err(PoolError::Copies("3".into())));
}

/// Bits that a program must know, of each copy of each drive's metadata.
fn needs(world: &ModelWorld) -> Vec<u32> {
    let of = |drive: &ModelDrive, copy: u8| {
        let block = |at: u64| drive.now.blocks.get(&at).cloned().unwrap_or_else(|| vec![0; crate::BLOCK]);
        let first = u64::from(copy) * (STRIPE / crate::BLOCK) as u64;
        let bytes: Vec<u8> = (first..first + 16).flat_map(block).collect();
        match scan(&bytes, copy, true, crc32c) {
            Scan::Whole(found) => found.header.needs,
            other => panic!("{other:?}"),
        }
    };
    world.drives.iter().flat_map(|drive| [of(drive, 0), of(drive, 1)]).collect()
}

#[test]
fn a_release_without_copies_is_kept_away_before_there_are_any() {
    let mut world = ModelWorld::open([6, 6].map(ModelDrive::new).to_vec(), 1).unwrap();
    world.request(&create("one", 1)).unwrap();
    assert_eq!(needs(&world), [0; 4]);
    let made = every_crash(asked(world, &create_twice("v", 1)), &mut |drives, what| {
        let opened = open(drives, what);
        let is_there = opened.pool.volume("v").is_some();
        assert!(!is_there || needs(&opened) == [COPIES; 4], "{what}");
    });
    assert_eq!(needs(&made), [COPIES; 4]);
}

#[test]
fn every_crash_of_a_write() {
    let world = three();
    let told =
        every_crash(asked(world.clone(), &written(&world, 1)), &mut |drives, what| holds(drives, 1, &[OLD], what));
    // It is on its way to both: each has it or not.
    for copies in 1..=2 {
        let mut on_its_way = told.clone();
        put(&mut on_its_way, 1, NEW, copies);
        for_each_crash(&on_its_way.drives.clone(), |drives| holds(drives, 1, &[OLD, NEW], "on its way"));
    }
    let mut done = told;
    put(&mut done, 1, NEW, 2);
    let request = settled(&done, 1);
    let mut flushed = false;
    let done = every_crash(asked(done, &request), &mut |drives, what| {
        flushed |= what.contains("write");
        let allowed: &[u64] = if flushed { &[NEW] } else { &[OLD, NEW] };
        holds(drives, 1, allowed, what);
    });
    assert!(flushed);
    let after = open(done.drives, "after it");
    assert_eq!(after.pool.copy_health(id(&after)), CopyHealth::default(), "what is settled is not copied");
}

/// One copy has it and the other's drive does not take it: it is acknowledged when that is stale.
#[test]
fn every_crash_of_a_write_that_one_drive_does_not_take() {
    let mut world = three();
    let request = written(&world, 1);
    world.request(&request).unwrap();
    let copies = copies_of(&world, "v", 1);
    for fails in 0..2 {
        let mut world = world.clone();
        let (takes, at, _) = copies[1 - fails];
        world.drives[takes].put(at, NEW);
        world.drives[takes].flush();
        let request = stale(&world, copies[fails].0, 1);
        let told = every_crash(asked(world, &request), &mut |drives, what| holds(drives, 1, &[OLD, NEW], what));
        assert_eq!(word(&told, 1), NEW);
        for_each_crash(&told.drives.clone(), |drives| holds(drives, 1, &[NEW], "acknowledged"));
        let mut told = told;
        let request = stale(&told, takes, 1);
        assert_eq!(told.request(&request), Err(PoolError::LastCopy("v".into())));
        assert_eq!(told.request(&resize("v", 2)), Err(PoolError::OneCopy("v".into())));
        let id = id(&told);
        assert_eq!(told.pool.copy_health(id), CopyHealth { lost: 0, stale: 1 });
        let segment = told.pool.next_stale(id, 0).unwrap();
        assert_eq!(segment.logical, 1);
        let request = copy(&mut told, &segment);
        let rebuilt = every_crash(asked(told, &request), &mut |drives, what| holds(drives, 1, &[NEW], what));
        assert_eq!(rebuilt.pool.copy_health(id), CopyHealth::default());
    }
}

#[test]
fn every_crash_of_a_replacement_and_of_its_rebuild() {
    let world = three();
    let lost = copies_of(&world, "v", 0)[0].0;
    let mut taken = every_crash(asked(world, &PoolRequest::TakeOut { number: lost as u16 }), &mut |drives, what| {
        holds(drives, 0, &[OLD], what);
    });
    let number = lost as u16;
    assert!(taken.pool.can_be_rebuilt(number));
    assert_eq!(taken.pool.copy_health(id(&taken)), CopyHealth { lost: 3, stale: 0 });
    // What is written meanwhile.
    let request = written(&taken, 0);
    taken.request(&request).unwrap();
    put(&mut taken, 0, NEW, 2);
    let request = settled(&taken, 0);
    taken.request(&request).unwrap();
    taken.drives.iter_mut().for_each(ModelDrive::flush);
    // The lost drive stays in the list of the caller, and does not come back.
    taken.drives.push(ModelDrive::new(9));
    let with_new = replace(&taken, number, 3, 90);
    let with_old = |drives: &[ModelDrive]| without(drives, lost);
    let mut replaced = every_crash(asked(taken, &with_new), &mut |drives, what| {
        let opened = open(with_old(&drives), what);
        assert_eq!(word(&opened, 0), NEW, "{what}");
    });
    assert_eq!(replaced.pool.copy_health(id(&replaced)), CopyHealth { lost: 0, stale: 3 });
    while let Some(segment) = replaced.pool.next_stale(id(&replaced), 0) {
        let request = copy(&mut replaced, &segment);
        replaced = every_crash(asked(replaced, &request), &mut |drives, what| {
            holds(with_old(&drives), 0, &[NEW], what);
        });
    }
    assert_eq!(replaced.pool.copy_health(id(&replaced)), CopyHealth::default());
    let source = copies_of(&replaced, "v", 0).into_iter().find(|(drive, ..)| *drive != 3).unwrap().0;
    let mut drives = replaced.drives.clone();
    drives[lost] = ModelDrive::new(9);
    let left: Vec<ModelDrive> = (0..4).filter(|d| *d != source && *d != lost).map(|d| drives[d].clone()).collect();
    assert_eq!(open(left, "without the source").words("v"), [NEW, OLD, OLD]);
}

/// Both were away, one after the other: the one that went last has what was written last.
#[test]
fn of_two_that_were_away_the_later_one_counts() {
    let world = three();
    let copies = copies_of(&world, "v", 1);
    for first in 0..2 {
        let (early, late) = (copies[first].0, copies[1 - first].0);
        let mut one = open(without(&world.drives, early), "without the first");
        let request = written(&one, 1);
        one.request(&request).unwrap();
        put(&mut one, 1, NEW, 2);
        one.drives.iter_mut().for_each(ModelDrive::flush);
        let late_at = if early < late { late - 1 } else { late };
        let none = open(without(&one.drives, late_at), "without both");
        assert_eq!(word(&none, 1), UNREADABLE);
        let third = none.drives[0].clone();
        let mut drives = vec![third; 3];
        drives[early] = world.drives[early].clone();
        drives[late] = one.drives[late_at].clone();
        let back = open(drives, "both are back");
        assert_eq!(word(&back, 1), NEW);
        rebuilt(back, NEW, 1, "both are back");
        // The first one alone has missed it, and does not say that it has it.
        let mut drives = none.drives.clone();
        drives.insert(0, world.drives[early].clone());
        let early_only = open(drives, "the first is back alone");
        let then = word(&early_only, 1);
        assert_eq!(then, UNREADABLE);
    }
}

#[test]
fn what_is_not_to_be_had_is_refused_and_changes_nothing() {
    let mut world = three();
    let before = world.seen();
    let (nobody, id) = (VolumeId(99), id(&world));
    let unknown = world.request(&PoolRequest::Written { id: nobody, runs: run(0) });
    assert_eq!(unknown, Err(PoolError::Unknown("number 99".into())));
    // A drive that has nothing of it, or is none.
    for drive in [2, 17] {
        world.request(&PoolRequest::MarkStale { id, drive, runs: run(0) }).unwrap();
        world.request(&PoolRequest::MarkFresh { id, drive, runs: run(0) }).unwrap();
    }
    assert_eq!((world.seen(), world.pool.copy_health(id)), (before, CopyHealth::default()));
    let place = copies_of(&world, "v", 0)[0].0;
    assert!(world.pool.can_do_without(place));
    let lost = copies_of(&world, "v", 0)[1].0;
    let request = PoolRequest::MarkStale { id, drive: lost, runs: run(0) };
    world.request(&request).unwrap();
    assert!(!world.pool.can_do_without(place) && world.pool.can_do_without(lost));
    world.request(&PoolRequest::TakeOut { number: lost as u16 }).unwrap();
    world.drives.push(ModelDrive::new(3));
    let small = replace(&world, lost as u16, 3, 90);
    let refused = world.request(&small);
    assert!(matches!(refused, Err(PoolError::TooSmall(..))), "{refused:?}");
    let member = replace(&world, lost as u16, place, 91);
    let refused = world.request(&member);
    assert!(matches!(refused, Err(PoolError::Fault(PoolOpenError::Setup(_)))), "{refused:?}");
    assert_eq!(world.pool.copy_health(id), CopyHealth { lost: 3, stale: 0 });
    assert_eq!(world.request(&PoolRequest::Abandon { name: "v".into() }), Err(PoolError::Sound("v".into())));
}

/// A volume of many regions of which every other one is written: what is kept stays short, and has all of them.
#[test]
fn written_regions_that_are_many_become_fewer_that_have_them_all() {
    let mib = u64::from(REGION) * 400;
    let mut world = ModelWorld::open(vec![ModelDrive::new(mib + 64), ModelDrive::new(mib + 64)], 1).unwrap();
    world.request(&create_twice("v", mib as u32)).unwrap();
    let runs: Vec<ChunkRun> = (0..200).map(|i| ChunkRun { start: i * 2 * REGION, len: 1 }).collect();
    let id = id(&world);
    world.request(&PoolRequest::Written { id, runs: runs.clone() }).unwrap();
    let kept = world.pool.volume("v").unwrap().written.clone();
    assert!(kept.len() <= 128, "{}", kept.len());
    assert!(runs.iter().all(|run| kept.iter().any(|k| k.start <= run.start && k.end() >= run.end())));
    let opened = open(world.drives.clone(), "after a crash");
    let health = opened.pool.copy_health(id);
    assert!(health.stale >= 200 * REGION && health.stale < mib as u32, "{health:?}");
    world.request(&PoolRequest::Settled { id, runs: vec![ChunkRun { start: 0, len: mib as u32 }] }).unwrap();
    let opened = open(world.drives, "after all is settled");
    assert_eq!(opened.pool.copy_health(id), CopyHealth::default());
}
