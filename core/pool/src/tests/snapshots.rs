//! Snapshots and clones: what they have stays, whatever becomes of the volume, through every crash.

use super::crash::crash_everywhere;
use crate::model::{
    ModelDrive, ModelWorld, clone_of, create, create_twice, delete, failure, rename, replace, resize, rollback,
    snapshot,
};
use crate::{ChunkRun, PoolEffect, PoolError, PoolRequest};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn unshare(world: &ModelWorld, name: &str, start: u32, len: u32) -> PoolRequest {
    PoolRequest::Unshare { id: world.pool.volume(name).unwrap().id, runs: vec![ChunkRun { start, len }] }
}

fn open(sizes: &[u64]) -> ModelWorld {
    ModelWorld::open(sizes.iter().map(|mib| ModelDrive::new(*mib)).collect(), 1).unwrap()
}

fn free(world: &ModelWorld) -> u64 {
    (0..world.drives.len()).map(|d| world.pool.room(d).1).sum()
}

#[test]
fn a_snapshot_keeps_what_the_volume_had() {
    let mut world = open(&[16, 6]);
    world.request(&create("v", 6)).unwrap();
    world.scribble("v");
    let first = world.words("v");
    let room = free(&world);
    world.request(&snapshot("v", "s")).unwrap();
    assert_eq!(free(&world), room, "it takes no room");
    assert_eq!(world.words("v@s"), first);
    assert!(world.segments("v").iter().all(|s| s.shared) && world.segments("v@s").iter().all(|s| s.shared));
    world.write("v", 2, 77).unwrap();
    assert_eq!(free(&world), room - 1, "a chunk");
    world.write("v", 2, 78).unwrap();
    assert_eq!(free(&world), room - 1, "once");
    let mut second = first.clone();
    second[2] = 78;
    assert_eq!((world.words("v"), world.words("v@s")), (second.clone(), first.clone()));
    world.request(&clone_of("v@s", "c")).unwrap();
    world.write("c", 0, 5).unwrap();
    world.drives.iter_mut().for_each(ModelDrive::flush);
    let mut third = first.clone();
    third[0] = 5;
    assert_eq!((world.words("c"), world.pool.volume("c").unwrap().tenant.as_str()), (third.clone(), "iron"));
    let mut world = ModelWorld::open(world.drives, 2).unwrap();
    assert_eq!((world.words("v"), world.words("v@s"), world.words("c")), (second, first.clone(), third.clone()));
    // Nobody else has these: what the volume has had since is given back, and empty.
    world.request(&rollback("v@s")).unwrap();
    assert_eq!((world.words("v"), world.words("v@s")), (first.clone(), first.clone()));
    assert_eq!(free(&world), room - 1);
    // A clone does without its snapshot, and without its volume.
    world.request(&delete("v@s")).unwrap();
    world.request(&delete("v")).unwrap();
    assert_eq!((world.words("c"), free(&world)), (third, room));
    assert!(!world.segments("c").iter().any(|s| s.shared));
    world.request(&create("rest", room as u32)).unwrap();
    assert!(world.words("rest").iter().all(|word| *word == 0));
}

#[test]
fn an_older_release_refuses_the_pool_as_long_as_chunks_are_shared() {
    let needs = |world: &ModelWorld| world.pool.books.has_shared;
    let mut world = open(&[12]);
    world.request(&create("v", 2)).unwrap();
    world.request(&snapshot("v", "s")).unwrap();
    world.request(&clone_of("v@s", "c")).unwrap();
    world.request(&delete("v@s")).unwrap();
    let mut world = ModelWorld::open(world.drives, 2).unwrap();
    assert!(needs(&world), "the clone shares with the volume");
    world.request(&delete("v")).unwrap();
    let world = ModelWorld::open(world.drives, 3).unwrap();
    assert!(!needs(&world));
}

/// Every change of a volume with snapshots, crashed at every effect: the old state or the new one, of all volumes.
pub(super) fn crashed(sizes: &[u64], new: &PoolRequest, again: bool) -> ModelWorld {
    let mut seed = 10;
    let mut world = open(sizes);
    world.request(new).unwrap();
    world.scribble("v");
    world = crash_everywhere(&world, &snapshot("v", "s"), again, &mut seed);
    let one = unshare(&world, "v", 1, 1);
    world = crash_everywhere(&world, &one, again, &mut seed);
    world.write("v", 1, 99).unwrap();
    world.drives.iter_mut().for_each(ModelDrive::flush);
    world = crash_everywhere(&world, &clone_of("v@s", "c"), again, &mut seed);
    if !again {
        let two = unshare(&world, "c", 0, 2);
        world = crash_everywhere(&world, &two, again, &mut seed);
        world = crash_everywhere(&world, &snapshot("v", "t"), again, &mut seed);
    }
    world = crash_everywhere(&world, &rollback("v@s"), again, &mut seed);
    world = crash_everywhere(&world, &delete("v@s"), again, &mut seed);
    if !again {
        world = crash_everywhere(&world, &resize("v", 1), again, &mut seed);
        world = crash_everywhere(&world, &delete("v@t"), again, &mut seed);
    }
    crash_everywhere(&world, &delete("v"), again, &mut seed)
}

#[test]
fn a_crash_leaves_the_old_state_or_the_new_one() {
    assert_eq!(crashed(&[16], &create("v", 3), false).used(), 3, "the clone is left");
    assert_eq!(crashed(&[6, 6, 5], &create("v", 5), false).used(), 5);
}

#[test]
fn and_so_does_a_crash_of_the_opening_after_it() {
    crashed(&[9], &create("v", 2), true);
}

/// Carries out a request of which the effect of that number fails; `None`: it has not so many.
fn failing(world: &ModelWorld, request: &PoolRequest, at: usize) -> Option<(ModelWorld, PoolEffect, bool)> {
    let mut world = world.clone();
    world.begin(request);
    for _ in 0..at {
        if world.step().is_some() {
            return None;
        }
    }
    let effect = world.next.clone()?;
    if matches!(effect, PoolEffect::Finished(_)) {
        return None;
    }
    world.next = Some(world.pool.apply(failure()));
    let result = world.finish();
    Some((world, effect, result.is_ok()))
}

#[test]
fn what_cannot_be_copied_is_the_others_and_nothing_is_left_of_it() {
    let mut world = open(&[10, 6]);
    world.request(&create("v", 4)).unwrap();
    world.scribble("v");
    world.request(&snapshot("v", "s")).unwrap();
    let (seen, room, request) = (world.seen(), free(&world), unshare(&world, "v", 1, 2));
    let (mut copies, mut broken) = (0, 0);
    for at in 0.. {
        let Some((mut failed, effect, done)) = failing(&world, &request, at) else { break };
        assert_eq!(failed.seen(), seen, "{effect:?}");
        if failed.pool.fault().is_some() {
            broken += 1;
            failed.request(&PoolRequest::Recover).unwrap();
        } else if matches!(effect, PoolEffect::Copy { .. }) {
            copies += 1;
            assert!(!done);
            assert_eq!(free(&failed), room, "it is empty, and free");
        }
        assert_eq!(failed.seen(), seen);
        // It can be done afterwards.
        failed.write("v", 1, 7).unwrap();
        assert_eq!((failed.words("v")[1], failed.words("v@s")), (7, seen["v@s"].1.clone()));
        let rest = free(&failed) as u32;
        failed.request(&create("rest", rest)).unwrap();
        assert!(failed.words("rest").iter().all(|word| *word == 0), "{effect:?}");
    }
    assert!(copies == 2 && broken > 4, "{copies} {broken}");
}

#[test]
fn a_pool_that_is_full_changes_nothing() {
    let mut world = open(&[10]);
    world.request(&create("v", 4)).unwrap();
    world.scribble("v");
    world.request(&snapshot("v", "s")).unwrap();
    world.request(&create("w", 3)).unwrap();
    let seen = world.seen();
    world.write("v", 0, 1).unwrap();
    assert_eq!(world.write("v", 1, 1), Err(PoolError::Space(1, 0)));
    assert_eq!(world.words("v")[1..], seen["v"].1[1..]);
    assert_eq!(world.words("v@s"), seen["v@s"].1);
    world.request(&delete("v@s")).unwrap();
    world.write("v", 1, 1).unwrap();
    assert_eq!(world.words("v")[..2], [1, 1]);
}

#[test]
fn a_copy_goes_to_another_drive_of_the_volume_where_its_own_is_full() {
    let mut world = open(&[6, 6]);
    world.request(&create("v", 6)).unwrap();
    world.scribble("v");
    world.request(&snapshot("v", "s")).unwrap();
    world.request(&delete("v@s")).unwrap();
    world.request(&resize("v", 5)).unwrap();
    world.request(&snapshot("v", "s")).unwrap();
    let lies: Vec<usize> = world.segments("v").iter().map(|s| s.drive).collect();
    assert!(lies.contains(&0) && lies.contains(&1));
    let before = world.words("v@s");
    for chunk in 0..3 {
        world.write("v", chunk, u64::from(chunk) + 1).unwrap();
    }
    assert_eq!((free(&world), world.words("v")[..3].to_vec()), (0, vec![1, 2, 3]));
    assert_eq!(world.words("v@s"), before);
    world.drives.iter_mut().for_each(ModelDrive::flush);
    let seen = world.seen();
    assert_eq!(ModelWorld::open(world.drives, 2).unwrap().seen(), seen);
}

#[test]
fn what_cannot_be_is_refused_and_says_what_to_do() {
    let mut world = open(&[12, 12]);
    world.request(&create("v", 2)).unwrap();
    world.request(&create_twice("w", 2)).unwrap();
    world.request(&snapshot("v", "s")).unwrap();
    let before = world.seen();
    for (request, why) in [
        (snapshot("v", "s"), "there is a volume \"v@s\" already"),
        (snapshot("x", "s"), "no volume \"x\""),
        (snapshot("v", "a b"), "begins with a letter"),
        (snapshot("v@s", "t"), "is a snapshot"),
        (clone_of("v@t", "c"), "no volume \"v@t\""),
        (clone_of("v", "c"), "is no snapshot"),
        (clone_of("v@s", "w"), "already"),
        (clone_of("v@s", "c@d"), "begins with a letter"),
        (rollback("v"), "is no snapshot"),
        (rollback("v@t"), "no volume"),
        (create("c@d", 1), "begins with a letter"),
        (rename("v", "x"), "has a snapshot (v@s)"),
        (rename("v@s", "x"), "is a snapshot"),
        (resize("v@s", 4), "is a snapshot"),
        (delete("v"), "weir volume delete v@s"),
    ] {
        let error = world.request(&request).unwrap_err().to_string();
        assert!(error.contains(why), "{request:?}: {error}");
        assert_eq!(world.seen(), before, "{request:?}");
    }
}

#[test]
fn a_lost_drive_takes_its_chunks_of_both_and_they_stay_shared() {
    let mut world = open(&[8, 8, 8]);
    world.request(&create("v", 9)).unwrap();
    world.scribble("v");
    world.request(&snapshot("v", "s")).unwrap();
    let at: Vec<usize> = world.segments("v").iter().map(|s| s.drive).collect();
    let lost = at[0] as u16;
    world.request(&PoolRequest::TakeOut { number: lost }).unwrap();
    let refused = [snapshot("v", "t"), rollback("v@s"), clone_of("v@s", "c")];
    for request in refused {
        assert!(matches!(world.request(&request), Err(PoolError::Degraded(_))), "{request:?}");
    }
    // What lies on the others is written still.
    let here = world.segments("v").into_iter().find(|s| !s.lost).unwrap();
    world.write("v", here.logical, 3).unwrap();
    assert_eq!(world.words("v")[here.logical as usize], 3);
    world.drives.push(ModelDrive::new(8));
    let request = replace(&world, lost, 3, 50);
    world.request(&request).unwrap();
    let chunks = |world: &ModelWorld, name: &str| -> Vec<u32> {
        world.segments(name).iter().filter(|s| s.drive == 3).flat_map(|s| s.start..s.start + s.len).collect()
    };
    assert!(!chunks(&world, "v").is_empty());
    assert_eq!(chunks(&world, "v"), chunks(&world, "v@s"), "what both had is there once");
    let abandon = PoolRequest::Abandon { name: "v".into() };
    assert!(matches!(world.request(&abandon), Err(PoolError::Shares(_))));
    world.request(&delete("v@s")).unwrap();
    world.request(&abandon).unwrap();
}

#[derive(Clone, Debug)]
enum Op {
    Ask(PoolRequest),
    Write(String, u32),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let name = (0u8..3).prop_map(|n| format!("v{n}"));
    let snap = (name.clone(), 0u8..2).prop_map(|(n, s)| format!("{n}@s{s}"));
    prop_oneof![
        3 => (name.clone(), 1u32..6).prop_map(|(n, c)| Op::Ask(create(&n, c))),
        4 => snap.clone().prop_map(|s| { let (n, s) = s.split_once('@').unwrap(); Op::Ask(snapshot(n, s)) }),
        3 => (snap.clone(), name.clone()).prop_map(|(s, n)| Op::Ask(clone_of(&s, &n))),
        2 => snap.clone().prop_map(|s| Op::Ask(rollback(&s))),
        2 => (name.clone(), 1u32..8).prop_map(|(n, c)| Op::Ask(resize(&n, c))),
        2 => name.clone().prop_map(|n| Op::Ask(delete(&n))),
        3 => snap.prop_map(|s| Op::Ask(delete(&s))),
        12 => (name, 0u32..6).prop_map(|(n, c)| Op::Write(n, c)),
        2 => Just(Op::Reopen),
    ]
}

/// What a request makes of the words of all volumes, each with its own.
pub(super) fn naive(seen: &mut BTreeMap<String, Vec<u64>>, request: &PoolRequest) {
    match request {
        PoolRequest::Create { name, chunks, .. } => _ = seen.insert(name.clone(), vec![0; *chunks as usize]),
        PoolRequest::Snapshot { name, snapshot, .. } => {
            let words = seen[name].clone();
            seen.insert(format!("{name}@{snapshot}"), words);
        }
        PoolRequest::Clone { snapshot, name, .. } => {
            let words = seen[snapshot].clone();
            seen.insert(name.clone(), words);
        }
        PoolRequest::Rollback { snapshot } => {
            let words = seen[snapshot].clone();
            seen.insert(snapshot.split_once('@').unwrap().0.into(), words);
        }
        PoolRequest::Resize { name, chunks } => seen.get_mut(name).unwrap().resize(*chunks as usize, 0),
        PoolRequest::Delete { name } => _ = seen.remove(name),
        _ => unreachable!("none of the requests here"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(2)))]
    #[test]
    fn volumes_are_as_if_each_had_its_own(
        sizes in proptest::collection::vec(4u64..14, 1..4),
        ops in proptest::collection::vec(op(), 1..60),
    ) {
        let mut world = open(&sizes);
        let room: u64 = sizes.iter().map(|mib| mib - 2).sum();
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
                    if has && world.write(&name, chunk, word).is_ok() {
                        oracle.get_mut(&name).unwrap()[chunk as usize] = word;
                    }
                }
                Op::Reopen => {
                    world.drives.iter_mut().for_each(ModelDrive::flush);
                    world = ModelWorld::open(world.drives, word + 1).unwrap();
                }
            }
            let seen: BTreeMap<String, Vec<u64>> = world.seen().into_iter().map(|(name, (_, words))| (name, words)).collect();
            prop_assert_eq!(&seen, &oracle);
            prop_assert_eq!(world.used() + free(&world), room);
        }
    }
}
