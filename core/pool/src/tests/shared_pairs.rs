//! Snapshots and clones of volumes with two copies: what they have stays, through every crash and failure, and whichever drive is lost.

use super::crash::for_each_crash;
use super::snapshots::{crashed, naive};
use crate::model::{
    ModelDrive, ModelWorld, UNREADABLE, clone_of, create_twice, delete, failure, online, replace, resize, rollback,
    snapshot,
};
use crate::record::SHARED_PAIRS;
use crate::{ChunkRun, CopyHealth, CopyState, PoolEffect, PoolError, PoolRequest, Rebuilt, VolumeId};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn open(sizes: &[u64]) -> ModelWorld {
    ModelWorld::open(sizes.iter().map(|mib| ModelDrive::new(*mib)).collect(), 1).unwrap()
}

fn id(world: &ModelWorld, name: &str) -> VolumeId {
    world.pool.volume(name).unwrap().id
}

fn unshare(world: &ModelWorld, name: &str, start: u32, len: u32) -> PoolRequest {
    PoolRequest::Unshare { id: id(world, name), runs: vec![ChunkRun { start, len }] }
}

fn free(world: &ModelWorld) -> u64 {
    (0..world.drives.len()).map(|d| world.pool.room(d).1).sum()
}

/// A volume of so many chunks with a word in each, and its snapshot.
fn shared(sizes: &[u64], chunks: u32) -> ModelWorld {
    let mut world = open(sizes);
    world.request(&create_twice("v", chunks)).unwrap();
    world.scribble("v");
    world.request(&snapshot("v", "s")).unwrap();
    world
}

/// The world without a drive, as the next process finds it.
fn without(world: &ModelWorld, lost: usize, seed: u64) -> ModelWorld {
    let left = world.drives.iter().enumerate().filter(|(i, _)| *i != lost).map(|(_, d)| d.clone()).collect();
    let world = ModelWorld::open(left, seed).unwrap();
    world.pool.check();
    world
}

/// Rebuilds what is stale of all volumes, as a node does: in place, or with chunks of its own. `false`: there is no room for some of it.
fn rebuild(world: &mut ModelWorld) -> bool {
    rebuilt(world).is_some()
}

/// The same, and how many chunks were written in place.
fn rebuilt(world: &mut ModelWorld) -> Option<u32> {
    let mut in_place_chunks = 0;
    let ids: Vec<VolumeId> = world.pool.volumes().map(|v| v.id).collect();
    let mut all = true;
    for id in ids {
        while let Some(segment) = world.pool.next_stale(id, 0) {
            let (in_place, len) = world.pool.is_rebuilt_in_place(id, &segment);
            let runs = vec![ChunkRun { start: segment.logical, len }];
            if !in_place {
                match world.request(&PoolRequest::Unshare { id, runs }) {
                    Err(PoolError::Space(..)) => all = false,
                    done => {
                        done.unwrap();
                        continue;
                    }
                }
                break;
            }
            let second = segment.second.unwrap();
            for i in 0..len {
                let word =
                    world.drives[segment.drive].now.chunks.get(&u64::from(segment.start + i)).copied().unwrap_or(0);
                world.drives[second.drive].put(second.start + i, word);
            }
            in_place_chunks += len;
            world.request(&PoolRequest::MarkFresh { id, drive: second.drive, runs: runs.clone() }).unwrap();
            for Rebuilt { id, drive, runs } in world.pool.rebuilt_with(id, runs[0]) {
                world.request(&PoolRequest::MarkFresh { id, drive, runs }).unwrap();
            }
        }
    }
    all.then_some(in_place_chunks)
}

fn words(world: &ModelWorld) -> BTreeMap<String, Vec<u64>> {
    world.seen().into_iter().map(|(name, (_, words))| (name, words)).collect()
}

#[test]
fn a_snapshot_keeps_what_both_copies_had() {
    let mut world = open(&[12, 12]);
    world.request(&create_twice("v", 4)).unwrap();
    world.scribble("v");
    let first = world.words("v");
    let room = free(&world);
    world.request(&snapshot("v", "s")).unwrap();
    assert_eq!((free(&world), world.words("v@s")), (room, first.clone()), "it takes no room");
    world.write("v", 2, 77).unwrap();
    assert_eq!(free(&world), room - 2, "a chunk on each drive");
    world.write("v", 2, 78).unwrap();
    assert_eq!(free(&world), room - 2, "once");
    world.request(&clone_of("v@s", "c")).unwrap();
    world.write("c", 0, 5).unwrap();
    let (mut second, mut third) = (first.clone(), first.clone());
    (second[2], third[0]) = (78, 5);
    world.drives.iter_mut().for_each(ModelDrive::flush);
    let mut world = ModelWorld::open(world.drives, 2).unwrap();
    assert!(rebuild(&mut world), "regions that were written are copied after a crash");
    world.alike();
    world.drives.iter_mut().for_each(ModelDrive::flush);
    for lost in 0..2 {
        let one = without(&world, lost, 3);
        assert_eq!((one.words("v"), one.words("v@s"), one.words("c")), (second.clone(), first.clone(), third.clone()));
    }
    world.request(&rollback("v@s")).unwrap();
    world.request(&delete("v@s")).unwrap();
    world.request(&delete("c")).unwrap();
    assert_eq!((world.words("v"), free(&world)), (first, room));
    assert!(!world.segments("v").iter().any(|s| s.shared));
}

#[test]
fn an_older_release_refuses_the_pool_as_long_as_pairs_are_shared() {
    let mut world = open(&[12, 12]);
    world.request(&create_twice("v", 2)).unwrap();
    assert!(!world.pool.books.has_shared_pairs);
    world.request(&snapshot("v", "s")).unwrap();
    let mut world = ModelWorld::open(world.drives, 2).unwrap();
    assert!(world.pool.books.has_shared_pairs && crate::record::NEEDS_KNOWN & SHARED_PAIRS != 0);
    world.request(&delete("v@s")).unwrap();
    assert!(!ModelWorld::open(world.drives, 3).unwrap().pool.books.has_shared_pairs);
}

#[test]
fn a_crash_leaves_the_old_state_or_the_new_one() {
    assert_eq!(crashed(&[12, 12], &create_twice("v", 2), false).used(), 4, "the clone is left");
    assert_eq!(crashed(&[9, 8, 7], &create_twice("v", 3), false).used(), 6);
}

#[test]
fn and_so_does_a_crash_of_the_opening_after_it() {
    crashed(&[9, 9], &create_twice("v", 2), true);
}

#[test]
fn after_a_crash_each_drive_alone_has_it_all() {
    let mut world = shared(&[9, 9], 2);
    let expected = words(&world);
    let request = unshare(&world, "v", 0, 2);
    world.begin(&request);
    for step in 0.. {
        for_each_crash(&world.drives.clone(), |drives| {
            let opened = ModelWorld::open(drives, 20).unwrap();
            for lost in 0..2 {
                assert_eq!(words(&without(&opened, lost, 21)), expected, "step {step}, without {lost}");
            }
        });
        if world.step().is_some() {
            break;
        }
    }
}

/// A request of which these effects fail, one after the other: the world, and how it ended.
fn failing(
    world: &ModelWorld,
    request: &PoolRequest,
    at: &[usize],
) -> Option<(ModelWorld, PoolEffect, Result<(), PoolError>)> {
    let mut world = world.clone();
    world.begin(request);
    let mut last = None;
    for step in 0..=*at.iter().max()? {
        let effect = world.next.clone()?;
        if matches!(effect, PoolEffect::Finished(_)) {
            return None;
        }
        match at.contains(&step) {
            true => {
                world.next = Some(world.pool.apply(failure()));
                last = Some(effect);
            }
            false => _ = world.step(),
        }
    }
    let result = world.finish().map(|_| ());
    Some((world, last?, result))
}

#[test]
fn a_chunk_is_copied_from_either_copy_and_to_the_drives_that_take_it() {
    let world = shared(&[10, 10], 3);
    let (expected, request) = (words(&world), unshare(&world, "v", 1, 1));
    let (mut from_the_other, mut alone, mut broken) = (0, 0, 0);
    for at in 0.. {
        let Some((mut once, effect, done)) = failing(&world, &request, &[at]) else { break };
        assert_eq!(words(&once), expected, "{effect:?}");
        match (&effect, done) {
            (PoolEffect::Copy { .. }, Ok(())) => {
                from_the_other += 1;
                assert_eq!(once.pool.copy_health(id(&once, "v")), CopyHealth::default(), "{effect:?}");
                // Neither copy can be read, or the drive takes nothing: the other drive has the chunk.
                let (twice, _, done) = failing(&world, &request, &[at, at + 1]).unwrap();
                done.unwrap();
                assert_eq!(words(&twice), expected);
                assert_eq!(twice.pool.copy_health(id(&twice, "v")), CopyHealth { lost: 0, stale: 1 });
                alone += 1;
                let mut rebuilt = twice;
                assert!(rebuild(&mut rebuilt));
                rebuilt.alike();
            }
            (PoolEffect::Flush { .. }, Ok(())) => {
                assert_eq!(once.pool.copy_health(id(&once, "v")), CopyHealth { lost: 0, stale: 1 });
                alone += 1;
            }
            (_, result) => {
                assert!(result.is_err() && once.pool.fault().is_some(), "{effect:?}");
                broken += 1;
                once.request(&PoolRequest::Recover).unwrap();
            }
        }
        once.write("v", 1, 7).unwrap();
        assert_eq!((once.words("v")[1], &once.words("v@s")), (7, &expected["v@s"]));
    }
    assert!(from_the_other == 2 && alone == 4 && broken > 4, "{from_the_other} {alone} {broken}");
    // No drive takes it: nothing has changed.
    let copies: Vec<usize> = (0..).take_while(|at| failing(&world, &request, &[*at]).is_some()).collect();
    let is_copy = |at: &&usize| matches!(failing(&world, &request, &[**at]), Some((_, PoolEffect::Copy { .. }, _)));
    let first = *copies.iter().find(is_copy).unwrap();
    let (nothing, _, result) = failing(&world, &request, &[first, first + 1, first + 2, first + 3]).unwrap();
    assert!(matches!(result, Err(PoolError::NotCopied(..))), "{result:?}");
    assert_eq!((words(&nothing), free(&nothing)), (expected, free(&world)));
}

#[test]
fn what_is_written_while_a_drive_is_lost_is_not_rebuilt_over_the_snapshot() {
    for lost in 0..2 {
        let world = shared(&[12, 12], 3);
        let before = world.words("v@s");
        let mut alone = without(&world, lost, 2);
        let room = free(&alone);
        alone.write("v", 1, 50).unwrap();
        assert_eq!(free(&alone), room - 1, "a chunk on the drive that is there");
        alone.write("v", 1, 51).unwrap();
        assert_eq!(free(&alone), room - 1);
        assert!(matches!(alone.request(&snapshot("v", "t")), Err(PoolError::OneCopy(_))));
        alone.drives.iter_mut().for_each(ModelDrive::flush);
        let mut expected = before.clone();
        expected[1] = 51;
        let mut drives = alone.drives.clone();
        drives.insert(lost, world.drives[lost].clone());
        let mut back = ModelWorld::open(drives, 3).unwrap();
        assert_eq!((back.words("v"), back.words("v@s")), (expected.clone(), before.clone()));
        let v = id(&back, "v");
        let in_place = |at: u32| back.pool.is_rebuilt_in_place(v, &back.pool.next_stale(v, at).unwrap());
        let places: Vec<(bool, u32)> = (0..3).map(in_place).collect();
        assert_eq!(places, [(true, 1), (false, 1), (true, 1)], "the region is stale, and one chunk of it has changed");
        // A write of it comes before the rebuild.
        let mut written = back.clone();
        written.write("v", 1, 52).unwrap();
        assert!(rebuild(&mut written));
        written.alike();
        assert_eq!((written.words("v")[1], written.words("v@s")), (52, before.clone()));
        assert!(rebuild(&mut back));
        back.alike();
        back.drives.iter_mut().for_each(ModelDrive::flush);
        for missing in 0..2 {
            let one = without(&back, missing, 4);
            assert_eq!((one.words("v"), one.words("v@s")), (expected.clone(), before.clone()), "without {missing}");
        }
    }
}

#[test]
fn a_drive_in_the_place_of_a_lost_one_gets_what_each_volume_has() {
    let mut world = shared(&[10, 10], 3);
    let before = world.words("v@s");
    world.request(&PoolRequest::TakeOut { number: 1 }).unwrap();
    world.write("v", 0, 9).unwrap();
    world.drives.push(ModelDrive::new(10));
    world.request(&clone_of("v@s", "c")).unwrap_err();
    let request = replace(&world, 1, 2, 90);
    world.request(&request).unwrap();
    // Two chunks that both have, and one of the snapshot alone; the volume's is copied to a place of its own.
    assert_eq!(rebuilt(&mut world), Some(3));
    world.alike();
    world.drives.iter_mut().for_each(ModelDrive::flush);
    let new = ModelWorld::open(vec![world.drives[2].clone()], 5).unwrap();
    assert_eq!((new.words("v")[0], new.words("v@s")), (9, before));
}

#[test]
fn a_chunk_that_has_no_room_beside_its_other_copy_is_refused() {
    let mut world = shared(&[8, 8], 4);
    world.write("v", 0, 1).unwrap();
    world.write("v", 1, 2).unwrap();
    let before = words(&world);
    assert!(matches!(world.write("v", 2, 3), Err(PoolError::Space(1, 0))));
    assert_eq!(words(&world), before);
    world.request(&delete("v@s")).unwrap();
    world.write("v", 2, 3).unwrap();
    world.alike();
}

#[derive(Clone, Debug)]
enum Op {
    Ask(PoolRequest),
    Write(String, u32),
    /// All is settled.
    Settle(String),
    Rebuild,
    /// The process ends, and the next one does not find that drive.
    Reopen(u8),
    /// A drive is given up while the pool is up.
    TakeOut(u16),
    /// It is back.
    Online,
}

fn op() -> impl Strategy<Value = Op> {
    let name = (0u8..2).prop_map(|n| format!("v{n}"));
    let snap = (name.clone(), 0u8..2).prop_map(|(n, s)| format!("{n}@s{s}"));
    prop_oneof![
        3 => (name.clone(), 1u32..5).prop_map(|(n, c)| Op::Ask(create_twice(&n, c))),
        4 => snap.clone().prop_map(|s| { let (n, s) = s.split_once('@').unwrap(); Op::Ask(snapshot(n, s)) }),
        3 => (snap.clone(), name.clone()).prop_map(|(s, n)| Op::Ask(clone_of(&s, &n))),
        1 => snap.clone().prop_map(|s| Op::Ask(rollback(&s))),
        1 => (name.clone(), 1u32..6).prop_map(|(n, c)| Op::Ask(resize(&n, c))),
        1 => name.clone().prop_map(|n| Op::Ask(delete(&n))),
        2 => snap.prop_map(|s| Op::Ask(delete(&s))),
        12 => (name.clone(), 0u32..5).prop_map(|(n, c)| Op::Write(n, c)),
        2 => name.prop_map(Op::Settle),
        3 => Just(Op::Rebuild),
        3 => (0u8..4).prop_map(Op::Reopen),
        2 => (0u16..3).prop_map(Op::TakeOut),
        2 => Just(Op::Online),
    ]
}

/// What is readable is what was written last, and what both drives have of it is the same.
fn compare(world: &ModelWorld, oracle: &BTreeMap<String, Vec<u64>>) {
    world.alike();
    let seen = words(world);
    assert!(seen.keys().eq(oracle.keys()), "{:?} {:?}", seen.keys(), oracle.keys());
    for (name, words) in &seen {
        let is = |(word, expected): (&u64, &u64)| word == expected || *word == UNREADABLE;
        assert!(words.iter().zip(&oracle[name]).all(is), "{name}: {words:?}, written were {:?}", oracle[name]);
    }
    let health = |v: &crate::Volume| world.pool.copy_health(v.id);
    if world.pool.lost().is_empty() && world.pool.volumes().all(|v| health(v) == CopyHealth::default()) {
        let is_read = |words: &Vec<u64>| !words.contains(&UNREADABLE);
        assert!(seen.values().all(is_read), "both copies are good, and something is not readable");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(2)))]
    #[test]
    fn volumes_are_as_if_each_had_its_own(
        sizes in proptest::collection::vec(5u64..16, 2..4),
        ops in proptest::collection::vec(op(), 1..70),
    ) {
        let mut world = open(&sizes);
        // Every drive as it was when it was there last, by the place at the start.
        let mut all: Vec<ModelDrive> = world.drives.clone();
        let mut here: Vec<usize> = (0..sizes.len()).collect();
        // Of those one that was taken out.
        let mut out: Option<usize> = None;
        let mut oracle: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (word, op) in (1u64..).zip(ops) {
            match op {
                Op::Ask(request) => {
                    if world.request(&request).is_ok() {
                        naive(&mut oracle, &request);
                    }
                }
                Op::Write(name, chunk) => {
                    let has = oracle.get(&name).is_some_and(|words| words.len() > chunk as usize);
                    let is_read = has && world.words(&name)[chunk as usize] != UNREADABLE;
                    if is_read && world.write(&name, chunk, word).is_ok() {
                        oracle.get_mut(&name).unwrap()[chunk as usize] = word;
                    }
                }
                Op::Settle(name) => {
                    if let Some(volume) = world.pool.volume(&name) {
                        let request = PoolRequest::Settled { id: volume.id, runs: volume.written().to_vec() };
                        world.request(&request).unwrap();
                    }
                }
                Op::Rebuild => _ = rebuild(&mut world),
                Op::Reopen(drives) => {
                    world.drives.iter_mut().for_each(ModelDrive::flush);
                    here.iter().zip(&world.drives).for_each(|(at, drive)| all[*at] = drive.clone());
                    let found = |at: &[usize]| ModelWorld::open(at.iter().map(|at| all[*at].clone()).collect(), word + 1);
                    // One that was there is missing, or all are there.
                    let every: Vec<usize> = (0..all.len()).collect();
                    let left: Vec<usize> = here.iter().copied().filter(|at| Some(*at) != out).collect();
                    let without: Vec<usize> = left.iter().copied().filter(|at| *at != usize::from(drives)).collect();
                    let next = if without.is_empty() || without == left { every.clone() } else { without };
                    out = None;
                    let readable = |world: &ModelWorld| words(world).values().all(|words| !words.contains(&UNREADABLE));
                    (world, here) = match found(&next) {
                        Ok(world) if readable(&world) => (world, next),
                        _ => (found(&every).unwrap(), every),
                    };
                }
                Op::TakeOut(number) => {
                    let at = here.iter().position(|at| *at == usize::from(number));
                    let may_be = at.is_some_and(|at| out.is_none() && world.pool.can_do_without(at));
                    if may_be && world.request(&PoolRequest::TakeOut { number }).is_ok() {
                        out = Some(number.into());
                    }
                }
                Op::Online => {
                    let place = here.iter().position(|at| Some(*at) == out);
                    if let Some(place) = place {
                        let request = online(&world, place);
                        world.request(&request).unwrap();
                        world.pool.is_in_use(place);
                        out = None;
                    }
                }
            }
            compare(&world, &oracle);
        }
    }
}

#[test]
fn what_is_written_before_a_drive_that_is_back_is_in_use_is_rebuilt_there() {
    let mut world = shared(&[14, 14], 3);
    let before = world.words("v@s");
    world.request(&PoolRequest::TakeOut { number: 1 }).unwrap();
    world.write("v", 0, 50).unwrap();
    let request = online(&world, 1);
    world.request(&request).unwrap();
    // Who writes knows of one drive still: a chunk of its own on both would lack what goes to that one alone.
    let request = unshare(&world, "v", 1, 1);
    assert_eq!(world.request(&request), Err(PoolError::Busy));
    let place = world.pool.locate(id(&world, "v"), &[ChunkRun { start: 0, len: 1 }])[0];
    assert!(place.drive == 0 && place.shared && place.second.is_some_and(|s| s.state == CopyState::Stale));
    world.drives[0].put(place.start, 51);
    world.pool.is_in_use(1);
    world.write("v", 1, 60).unwrap();
    assert!(rebuild(&mut world));
    world.alike();
    world.drives.iter_mut().for_each(ModelDrive::flush);
    for lost in 0..2 {
        let one = without(&world, lost, 7);
        assert_eq!((one.words("v")[..2].to_vec(), one.words("v@s")), (vec![51, 60], before.clone()), "without {lost}");
    }
}

#[test]
fn a_stale_copy_of_a_snapshot_is_rebuilt() {
    let mut world = shared(&[10, 10], 2);
    let s = id(&world, "v@s");
    world.request(&PoolRequest::MarkStale { id: s, drive: 1, runs: vec![ChunkRun { start: 0, len: 1 }] }).unwrap();
    let is_stale = |world: &ModelWorld| world.segments("v@s")[0].second.unwrap().state == CopyState::Stale;
    assert!(is_stale(&world));
    assert!(matches!(world.request(&clone_of("v@s", "c")), Err(PoolError::OneCopy(_))));
    let room = free(&world);
    assert!(rebuild(&mut world) && !is_stale(&world));
    assert_eq!(free(&world), room, "in place");
    world.request(&clone_of("v@s", "c")).unwrap();
}
