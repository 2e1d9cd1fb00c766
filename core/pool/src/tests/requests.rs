//! What is asked of a pool that is up, against a naive one.

use crate::model::{ModelDrive, ModelWorld, create, delete, failure, rename, resize};
use crate::{PoolAnswer, PoolEffect, PoolError, PoolEvent, PoolRequest};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

#[test]
fn volumes_come_change_and_go() {
    let mut world = ModelWorld::open(vec![ModelDrive::new(16), ModelDrive::new(8)], 1).unwrap();
    assert_eq!((world.pool.room(0), world.pool.room(1)), ((14, 14, 0), (6, 6, 0)));
    assert!(matches!(world.request(&create("a", 4)), Ok(PoolAnswer::Volume(_))));
    world.scribble("a");
    // On one drive while there is room, on both when there is not.
    world.request(&create("b", 5)).unwrap();
    assert_eq!(world.segments("b").iter().map(|s| s.drive).collect::<Vec<_>>(), [0, 0]);
    world.request(&create("c", 10)).unwrap();
    assert_eq!(world.pool.room(0).1 + world.pool.room(1).1, 1);
    assert!(world.segments("c").iter().any(|s| s.drive == 0) && world.segments("c").iter().any(|s| s.drive == 1));
    world.request(&resize("c", 2)).unwrap();
    world.request(&resize("a", 9)).unwrap();
    assert_eq!(world.words("a")[4..], [0; 5], "what was added reads as zeroes");
    assert!(world.words("a")[..4].iter().all(|w| *w != 0));
    world.scribble("a");
    world.request(&rename("a", "z")).unwrap();
    assert_eq!(world.request(&delete("a")), Err(PoolError::Unknown("a".into())));
    world.request(&delete("z")).unwrap();
    world.request(&create("a", 12)).unwrap();
    assert_eq!(world.words("a"), [0; 12]);
    let before = world.seen();
    let again = ModelWorld::open(world.drives, 2).unwrap();
    assert_eq!(again.seen(), before);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut world = ModelWorld::open(vec![ModelDrive::new(8)], 1).unwrap();
    world.request(&create("a", 2)).unwrap();
    let before = (world.seen(), world.drives[0].now.clone());
    let long = "x".repeat(65);
    for (request, why) in [
        (create("a", 1), "there is a volume \"a\" already"),
        (create("b", 5), "5 MiB are wanted and 4 MiB are free"),
        (create("b", u32::MAX), "are wanted"),
        (create("b", 0), "at least 1 MiB"),
        (create("", 1), "at least one character"),
        (create(&long, 1), "64 characters"),
        (create("../b", 1), "begins with a letter"),
        (create("b c", 1), "begins with a letter"),
        (
            PoolRequest::Create {
                name: "b".into(),
                tenant: "x/y".into(),
                uuid: crate::Uuid([1; 16]),
                chunks: 1,
                copies: 1,
            },
            "\"x/y\"",
        ),
        (resize("b", 1), "there is no volume \"b\""),
        (resize("a", 7), "5 MiB are wanted and 4 MiB are free"),
        (resize("a", 0), "at least 1 MiB"),
        (rename("a", "a"), "already"),
        (rename("b", "c"), "no volume"),
        (rename("a", "-"), "begins with"),
        (delete("b"), "no volume"),
    ] {
        let error = world.request(&request).unwrap_err().to_string();
        assert!(error.contains(why), "{request:?}: {error}");
        assert_eq!((world.seen(), world.drives[0].now.clone()), before, "{request:?}");
    }
}

use alloc::string::ToString;

#[test]
fn nothing_is_changed_after_a_write_that_failed() {
    let mut world = ModelWorld::open(vec![ModelDrive::new(8)], 1).unwrap();
    world.request(&create("a", 2)).unwrap();
    world.begin(&create("b", 1));
    assert!(matches!(world.next, Some(PoolEffect::Write { .. })));
    let PoolEffect::Finished(Err(why)) = world.pool.apply(failure()) else { panic!("it is over") };
    assert!(why.to_string().contains("could not be written (Write Fault)"), "{why}");
    assert_eq!(world.request(&create("c", 1)), Err(why.clone()));
    assert_eq!(world.pool.fault(), Some(&why));
    assert_eq!(world.pool.volumes().len(), 1, "what there is goes on");
    let again = ModelWorld::open(world.drives, 2).unwrap();
    assert_eq!(again.pool.volumes().len(), 1);
}

/// Carries out everything; what is unmapped, or (`flush`) the flush of that, fails.
fn without_unmapping(world: &mut ModelWorld, flush: bool) -> Result<PoolAnswer, PoolError> {
    let mut unmapped = false;
    loop {
        let fails = match world.next {
            Some(PoolEffect::Unmap { .. }) => {
                unmapped = true;
                !flush
            }
            Some(PoolEffect::Flush { .. }) => core::mem::take(&mut unmapped) && flush,
            _ => false,
        };
        if fails {
            world.next = Some(world.pool.apply(failure()));
        } else if let Some(result) = world.step() {
            world.pool.check();
            return result;
        }
    }
}

#[test]
fn what_cannot_be_deallocated_stays_unused_and_keeps_nobody_from_starting() {
    for flush in [false, true] {
        let mut world = ModelWorld::open(vec![ModelDrive::new(10), ModelDrive::new(10)], 1).unwrap();
        world.request(&create("a", 12)).unwrap();
        world.request(&create("b", 2)).unwrap();
        world.scribble("a");
        world.scribble("b");
        world.begin(&resize("a", 9));
        without_unmapping(&mut world, flush).unwrap();
        world.begin(&delete("a"));
        without_unmapping(&mut world, flush).unwrap();
        let emptying = |world: &ModelWorld| world.pool.room(0).2 + world.pool.room(1).2;
        assert_eq!((world.pool.fault(), emptying(&world)), (None, 12));
        world.request(&create("c", 2)).unwrap();
        assert_eq!(world.words("c"), [0; 2]);
        let none = world.request(&create("d", 1));
        assert!(matches!(none, Err(PoolError::Space(1, 0))), "{none:?}");
        let mut again = ModelWorld::opening(world.drives, 2);
        without_unmapping(&mut again, flush).unwrap();
        assert_eq!((again.pool.fault(), emptying(&again)), (None, 12));
        assert_eq!(again.words("b").iter().filter(|w| **w != 0).count(), 2);
        let mut third = ModelWorld::open(again.drives, 3).unwrap();
        assert_eq!(emptying(&third), 0);
        third.request(&create("d", 12)).unwrap();
        assert_eq!(third.words("d"), [0; 12]);
    }
}

/// Chunks that are unmapped, up to the end of what is under way.
fn unmapped(world: &mut ModelWorld) -> u64 {
    let mut chunks = 0;
    loop {
        if let Some(PoolEffect::Unmap { len, .. }) = &world.next {
            chunks += len / crate::CHUNK;
        }
        if let Some(result) = world.step() {
            result.unwrap();
            world.pool.check();
            return chunks;
        }
    }
}

#[test]
fn what_is_empty_is_not_emptied_again() {
    let sizes = [10, 8, 6];
    let mut world = ModelWorld::opening(sizes.iter().map(|mib| ModelDrive::new(*mib)).collect(), 1);
    assert_eq!(unmapped(&mut world), 8 + 6 + 4, "all of it when the pool is made");
    for (seed, request, chunks) in [
        (2, create("a", 12), 0),
        (3, create("b", 3), 0),
        (4, resize("a", 9), 3),
        (5, delete("b"), 3),
        (6, create("c", 5), 0),
        (7, delete("a"), 9),
    ] {
        let mut again = ModelWorld::opening(world.drives.clone(), seed);
        assert_eq!(unmapped(&mut again), 0, "before {request:?}");
        // A second opening of the same, and one after an end without a closing.
        world = ModelWorld::opening(again.drives.iter().map(|d| d.crash(|_| 0)).collect(), seed + 10);
        assert_eq!(unmapped(&mut world), 0, "before {request:?}");
        world.begin(&request);
        assert_eq!(unmapped(&mut world), chunks, "{request:?}");
    }
    world.request(&PoolRequest::Close).unwrap();
    assert_eq!(unmapped(&mut ModelWorld::opening(world.drives, 30)), 0);
}

#[test]
fn what_a_crash_kept_from_being_emptied_is_emptied_once() {
    let mut world = ModelWorld::open(vec![ModelDrive::new(10)], 1).unwrap();
    world.request(&create("a", 4)).unwrap();
    world.scribble("a");
    world.begin(&delete("a"));
    while !matches!(world.next, Some(PoolEffect::Unmap { .. })) {
        assert_eq!(world.step(), None);
    }
    let mut again = ModelWorld::opening(world.drives.iter().map(|d| d.crash(|_| 0)).collect(), 2);
    assert_eq!(unmapped(&mut again), 4);
    assert_eq!(again.drives[0].now.chunks.len(), 0);
    assert_eq!(unmapped(&mut ModelWorld::opening(again.drives, 3)), 0);
}

#[test]
fn one_thing_at_a_time() {
    let mut world = ModelWorld::opening(vec![ModelDrive::new(8)], 1);
    assert_eq!(world.pool.apply(PoolEvent::Request(create("a", 1))), PoolEffect::Finished(Err(PoolError::Busy)));
    world.finish().unwrap();
    assert_eq!(world.pool.apply(PoolEvent::Open), PoolEffect::Finished(Err(PoolError::Busy)));
    world.begin(&create("a", 1));
    assert_eq!(world.pool.apply(PoolEvent::Request(create("b", 1))), PoolEffect::Finished(Err(PoolError::Busy)));
    world.finish().unwrap();
    assert_eq!(world.pool.volumes().len(), 1);
}

#[test]
fn the_log_is_begun_anew_when_it_is_full() {
    let mut world = ModelWorld::open(vec![ModelDrive::new(8), ModelDrive::new(8)], 1).unwrap();
    world.request(&create("v", 10)).unwrap();
    for i in 0..600 {
        let (from, to) = if i % 2 == 0 { ("v", "w") } else { ("w", "v") };
        world.request(&rename(from, to)).unwrap();
    }
    world.scribble("v");
    let before = world.seen();
    assert_eq!(ModelWorld::open(world.drives, 2).unwrap().seen(), before);
}

/// As many volumes as fit, with the longest names.
#[test]
fn the_metadata_have_room_for_a_volume_a_chunk() {
    let mut world = ModelWorld::open(vec![ModelDrive::new(2050)], 1).unwrap();
    let name = |i: u32| format!("{i:064}");
    for i in 0..2048 {
        let tenant = "t".repeat(64);
        world.begin(&PoolRequest::Create {
            name: name(i),
            tenant,
            uuid: crate::Uuid([i as u8; 16]),
            chunks: 1,
            copies: 1,
        });
        while world.step().is_none() {}
    }
    world.pool.check();
    assert_eq!((world.pool.volumes().len(), world.pool.room(0).1), (2048, 0));
    let again = ModelWorld::open(world.drives, 2).unwrap();
    assert_eq!(again.pool.volumes().len(), 2048);
    assert!(again.pool.volume(&name(2047)).is_some());
}

#[derive(Clone, Debug)]
enum Op {
    Ask(PoolRequest),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let name = (0u8..6).prop_map(|n| format!("v{n}"));
    prop_oneof![
        4 => (name.clone(), 0u32..14).prop_map(|(n, c)| Op::Ask(create(&n, c))),
        3 => (name.clone(), 0u32..14).prop_map(|(n, c)| Op::Ask(resize(&n, c))),
        1 => (name.clone(), name.clone()).prop_map(|(n, m)| Op::Ask(rename(&n, &m))),
        3 => name.prop_map(|n| Op::Ask(delete(&n))),
        1 => Just(Op::Reopen),
    ]
}

/// What everybody sees, as a naive pool has it: words by volume, and how much there is in all.
fn naive(seen: &mut BTreeMap<String, Vec<u64>>, room: usize, request: &PoolRequest) -> bool {
    let free = room - seen.values().map(Vec::len).sum::<usize>();
    match request {
        PoolRequest::Create { name, chunks, .. } => {
            let may = !seen.contains_key(name) && *chunks > 0 && *chunks as usize <= free;
            if may {
                seen.insert(name.clone(), vec![0; *chunks as usize]);
            }
            may
        }
        PoolRequest::Resize { name, chunks } => match seen.get_mut(name) {
            Some(words) if *chunks > 0 && *chunks as usize <= words.len() + free => {
                words.resize(*chunks as usize, 0);
                true
            }
            _ => false,
        },
        PoolRequest::Rename { name, to } => {
            let may = seen.contains_key(name) && !seen.contains_key(to);
            if may {
                let words = seen.remove(name).unwrap();
                seen.insert(to.clone(), words);
            }
            may
        }
        PoolRequest::Delete { name } => seen.remove(name).is_some(),
        _ => unreachable!("none of the requests here"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(5)))]
    #[test]
    fn a_pool_is_as_a_naive_one(
        sizes in proptest::collection::vec(3u64..20, 1..4),
        ops in proptest::collection::vec(op(), 1..40),
    ) {
        let drives: Vec<ModelDrive> = sizes.iter().map(|mib| ModelDrive::new(*mib)).collect();
        let room = sizes.iter().map(|mib| *mib as usize - 2).sum();
        let mut world = ModelWorld::open(drives, 1).unwrap();
        let mut oracle: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (i, op) in ops.into_iter().enumerate() {
            match op {
                Op::Ask(request) => {
                    let done = world.request(&request);
                    prop_assert_eq!(done.is_ok(), naive(&mut oracle, room, &request), "{:?}: {:?}", request, done);
                    let names: Vec<String> = oracle.keys().cloned().collect();
                    for name in names {
                        // Before it writes: what it reads is its own, or zeroes.
                        prop_assert_eq!(&world.words(&name), &oracle[&name]);
                        world.scribble(&name);
                        oracle.insert(name.clone(), world.words(&name));
                    }
                }
                Op::Reopen => world = ModelWorld::open(world.drives, i as u64 + 2).unwrap(),
            }
            prop_assert_eq!(world.pool.volumes().len(), oracle.len());
        }
    }
}
