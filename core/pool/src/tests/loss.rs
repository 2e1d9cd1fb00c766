//! Drives that are lost, that come back, and that get others in their places: every crash point of each, and whoever is missing then.

use super::crash::{Seen, for_each_crash};
use crate::model::{
    ModelDrive, ModelWorld, UNREADABLE, create, delete, failure, join, online, rename, replace, resize, setup, uuid,
};
use crate::{BLOCK, CHUNK, Pool, PoolEffect, PoolError, PoolEvent, PoolOpenError, PoolRequest, Uuid};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

/// Three drives with a volume on each alone and one on all of them.
pub(super) fn three() -> ModelWorld {
    let mut world = ModelWorld::open([9, 8, 7].map(ModelDrive::new).to_vec(), 1).unwrap();
    for (name, chunks) in [("a", 3), ("b", 2), ("c", 2), ("wide", 10)] {
        world.request(&create(name, chunks)).unwrap();
        world.scribble(name);
    }
    let drives = |name: &str| world.segments(name).iter().map(|s| s.drive).collect::<BTreeSet<_>>();
    assert_eq!(["a", "b", "c"].map(drives), [0, 1, 2].map(|drive| BTreeSet::from([drive])));
    let wide = drives("wide");
    assert!((0..3).all(|drive| wide.contains(&drive)), "{wide:?}");
    world
}

/// What is seen of the pool when these of its drives are lost.
pub(super) fn seen_without(world: &ModelWorld, lost: &[usize]) -> Seen {
    let mut seen = world.seen();
    for (name, (_, words)) in &mut seen {
        let of = |s: &crate::VolumeSegment| vec![lost.contains(&s.drive); s.len as usize];
        let is_lost = world.segments(name).iter().flat_map(of).collect::<Vec<_>>();
        words.iter_mut().zip(is_lost).filter(|(_, lost)| *lost).for_each(|(word, _)| *word = UNREADABLE);
    }
    seen
}

pub(super) fn without(drives: &[ModelDrive], lost: usize) -> Vec<ModelDrive> {
    drives.iter().enumerate().filter(|(i, _)| *i != lost).map(|(_, d)| d.clone()).collect()
}

pub(super) fn open(drives: Vec<ModelDrive>, what: &str) -> ModelWorld {
    let world = ModelWorld::open(drives, 50).unwrap_or_else(|why| panic!("{what}: {why}"));
    world.pool.check();
    world
}

/// Everything that is free, in the hands of another one, reads as zeroes.
pub(super) fn nothing_leaks(mut world: ModelWorld, what: &str) {
    let free: u64 = (0..world.drives.len()).map(|d| world.pool.room(d).1).sum();
    if free > 0 {
        world.request(&create("stranger", free as u32)).unwrap();
        assert!(world.words("stranger").iter().all(|w| *w == 0), "{what}");
    }
}

#[test]
fn it_comes_up_without_each_of_its_drives_and_is_whole_when_that_is_back() {
    let world = three();
    for lost in 0..3 {
        let what = alloc::format!("without {lost}");
        let mut degraded = open(without(&world.drives, lost), &what);
        assert_eq!(degraded.seen(), seen_without(&world, &[lost]), "{what}");
        let gone = degraded.pool.lost();
        let bytes = world.drives[lost].bytes;
        assert_eq!(
            (gone.len(), gone[0].0, gone[0].2, gone[0].3.to_string()),
            (1, lost as u16, bytes, alloc::format!("d{lost}"))
        );
        // All that lies elsewhere goes on.
        let made = degraded.request(&create("new", 1));
        assert_eq!(made.is_ok(), lost != 2, "{what}: there is room on the others");
        if made.is_ok() {
            degraded.scribble("new");
        }
        degraded.request(&rename("wide", "wider")).unwrap();
        let refused = degraded.request(&resize("wider", 2));
        assert_eq!(refused, Err(PoolError::Degraded("wider".into())));
        nothing_leaks(degraded.clone(), &what);
        let seen = degraded.seen();
        let again = open(degraded.drives.clone(), &what);
        assert_eq!(again.seen(), seen, "{what}, again");
        let mut drives = again.drives.clone();
        drives.insert(lost, world.drives[lost].clone());
        let back = open(drives, &what);
        let mut whole = world.seen();
        let wide = whole.remove("wide").unwrap();
        whole.insert("wider".into(), wide);
        whole.extend(seen.get("new").map(|new| ("new".into(), new.clone())));
        assert_eq!((back.seen(), back.pool.lost()), (whole, vec![]), "{what}, and back");
        nothing_leaks(back, &what);
    }
}

/// What was deleted while a drive was lost does not come back with it, and nobody reads it.
#[test]
fn what_was_deleted_meanwhile_stays_so() {
    let world = three();
    for lost in 0..3 {
        let what = alloc::format!("without {lost}");
        let mut degraded = open(without(&world.drives, lost), &what);
        for name in ["a", "b", "wide"] {
            degraded.request(&delete(name)).unwrap();
        }
        let mut drives = degraded.drives.clone();
        drives.insert(lost, world.drives[lost].clone());
        let back = open(drives, &what);
        assert_eq!(back.seen().into_keys().collect::<Vec<_>>(), ["c"], "{what}");
        nothing_leaks(back, &what);
    }
}

#[test]
fn one_after_the_other() {
    let world = three();
    for (first, second) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let what = alloc::format!("{first}, then {second}");
        let both = without(&world.drives, first);
        let last = if first < second { second - 1 } else { second };
        // At once is too much: what one says of the other is not there.
        let refused = ModelWorld::opening(without(&both, last), 9).finish();
        assert!(matches!(refused, Err(PoolError::Fault(PoolOpenError::Missing(2, ..)))), "{what}: {refused:?}");
        let degraded = open(both, &what);
        let more = open(without(&degraded.drives, last), &what);
        assert_eq!(more.seen(), seen_without(&world, &[first, second]), "{what}");
        assert_eq!(more.pool.lost().len(), 2);
        // They come back in the other order.
        let mut drives = more.drives.clone();
        drives.push(degraded.drives[last].clone());
        let one = open(drives, &what);
        assert_eq!(one.seen(), seen_without(&world, &[first]), "{what}");
        let mut drives = one.drives.clone();
        drives.push(world.drives[first].clone());
        assert_eq!(open(drives, &what).seen(), world.seen(), "{what}");
    }
}

/// A drive that a pool was opened without takes part again.
fn comes_back(world: &ModelWorld, (place, drive): (usize, &ModelDrive), expected: &[Seen], what: &str) {
    let mut drives = world.drives.clone();
    drives.insert(place, drive.clone());
    let back = open(drives, &alloc::format!("{what}, and back"));
    assert!(expected.contains(&back.seen()), "{what}, and back: {:?} is none of {expected:?}", back.seen());
}

/// Whatever a crash leaves, and whichever drive is missing then: no volume vanishes, and what is readable is what was written.
pub(super) fn holds(drives: &[ModelDrive], expected: &dyn Fn(Option<usize>) -> Vec<Seen>, what: &str) -> u32 {
    let mut refused = 0;
    for missing in (0..drives.len()).map(Some).chain([None]) {
        let left = missing.map_or_else(|| drives.to_vec(), |i| without(drives, i));
        let what = alloc::format!("{what}, missing {missing:?}");
        let mut world = ModelWorld::opening(left, 60);
        match world.finish() {
            Ok(_) => {
                world.pool.check();
                let seen = world.seen();
                assert!(expected(missing).contains(&seen), "{what}: {seen:?} is none of {:?}", expected(missing));
                if let Some(missing) = missing {
                    comes_back(&world, (missing, &drives[missing]), &expected(None), &what);
                }
                nothing_leaks(world, &what);
            }
            Err(PoolError::Fault(PoolOpenError::Missing(2, ..))) => refused += 1,
            Err(why) => panic!("{what}: {why}"),
        }
    }
    refused
}

/// Each step of what a world does next, and every crash there.
pub(super) fn every_crash(mut world: ModelWorld, f: &mut dyn FnMut(&[ModelDrive], &str)) -> ModelWorld {
    for step in 0.. {
        let what = alloc::format!("step {step}, {:?}", world.next.as_ref().map(super::crash::kind));
        for_each_crash(&world.drives.clone(), |drives| f(&drives, &what));
        if let Some(result) = world.step() {
            result.unwrap();
            world.pool.check();
            return world;
        }
    }
    unreachable!()
}

#[test]
fn every_crash_of_an_opening_without_a_drive() {
    let world = three();
    for lost in 0..3 {
        let mut refused = 0;
        let opening = ModelWorld::opening(without(&world.drives, lost), 2);
        let place = |missing: usize| if missing < lost { missing } else { missing + 1 };
        let opened = every_crash(opening, &mut |drives, what| {
            let expected = |missing: Option<usize>| match missing {
                None => vec![seen_without(&world, &[lost])],
                Some(missing) => vec![seen_without(&world, &[lost, place(missing)])],
            };
            refused += holds(drives, &expected, what);
            // With the drive that was lost, nothing is.
            let mut all = drives.to_vec();
            all.insert(lost, world.drives[lost].clone());
            assert_eq!(open(all.clone(), what).seen(), world.seen(), "{what}");
            let others = |missing: Option<usize>| {
                vec![missing.map_or_else(|| world.seen(), |missing| seen_without(&world, &[missing]))]
            };
            refused += holds(&all, &others, what);
        });
        assert!(refused > 0, "two at once are refused before all have heard of the first");
        let after = |missing: Option<usize>| {
            vec![missing.map_or_else(|| opened.seen(), |m| seen_without(&world, &[lost, place(m)]))]
        };
        assert_eq!(holds(&opened.drives, &after, "opened"), 0);
    }
}

#[test]
fn every_crash_of_a_return() {
    let world = three();
    for (lost, openings) in (0..3).flat_map(|lost| [(lost, 1), (lost, 3)]) {
        let mut degraded = open(without(&world.drives, lost), "lost");
        for _ in 1..openings {
            degraded = open(degraded.drives, "lost for longer");
        }
        let mut drives = degraded.drives.clone();
        drives.insert(lost, world.drives[lost].clone());
        let back = every_crash(ModelWorld::opening(drives, 3), &mut |drives, what| {
            let expected = |missing: Option<usize>| match missing {
                None => vec![world.seen()],
                Some(missing) => vec![seen_without(&world, &[missing]), seen_without(&world, &[missing, lost])],
            };
            holds(drives, &expected, what);
        });
        assert_eq!(back.seen(), world.seen());
    }
}

#[test]
fn every_crash_when_a_drive_is_taken_out() {
    let world = three();
    for (lost, fill) in (0..3usize).flat_map(|lost| [(lost, false), (lost, true)]) {
        let mut taken = world.clone();
        if fill {
            taken.pool.pretend_used();
        }
        taken.begin(&PoolRequest::TakeOut { number: lost as u16 });
        let taken = every_crash(taken, &mut |drives, what| {
            let expected = |missing: Option<usize>| match missing {
                None => vec![world.seen()],
                Some(missing) => vec![seen_without(&world, &[missing]), seen_without(&world, &[missing, lost])],
            };
            assert_eq!(holds(drives, &expected, what), 0, "{what}");
        });
        assert_eq!(taken.seen(), seen_without(&world, &[lost]));
        let again = taken.clone().request(&PoolRequest::TakeOut { number: lost as u16 });
        assert_eq!(again, Err(PoolError::Lost(alloc::format!("d{lost}"))));
    }
    let mut one = ModelWorld::open(vec![ModelDrive::new(8)], 1).unwrap();
    assert_eq!(one.request(&PoolRequest::TakeOut { number: 0 }), Err(PoolError::Last("d0".into())));
    assert!(matches!(one.request(&PoolRequest::TakeOut { number: 1 }), Err(PoolError::NoMember(_))));
}

/// Some drives hear of a change of the pool's drives, a crash; the others begin to go on without one of them, a crash; all are back.
fn then_without(mut world: ModelWorld, request: &PoolRequest, first: usize) {
    let (seen, mut last) = (world.seen(), None);
    world.begin(request);
    loop {
        let next = match &world.next {
            Some(PoolEffect::Write { drive, .. }) => Some(*drive),
            _ => last,
        };
        if next != last {
            last = next;
            let drives: Vec<ModelDrive> = world.drives.iter().map(|d| d.crash(|_| 1)).collect();
            every_crash(ModelWorld::opening(without(&drives, first), 70), &mut |others, what| {
                let what = alloc::format!("{request:?}, without {first}, {what}");
                let mut all = others.to_vec();
                all.insert(first, drives[first].clone());
                assert_eq!(open(all.clone(), &what).seen(), seen, "{what}");
                all.rotate_left(1);
                assert_eq!(open(all, &what).seen(), seen, "{what}, in another order");
            });
        }
        if world.step().is_some() {
            return;
        }
    }
}

#[test]
fn every_crash_of_an_opening_without_one_that_had_heard_of_another() {
    let world = three();
    for (first, lost) in [(0, 2), (0, 1), (1, 2), (1, 0), (2, 1), (2, 0)] {
        then_without(world.clone(), &PoolRequest::TakeOut { number: lost }, first);
    }
}

#[test]
fn every_crash_of_an_opening_without_one_that_had_heard_of_a_new_one() {
    let world = three();
    for first in [0, 2] {
        let mut more = world.clone();
        more.drives.push(ModelDrive::new(5));
        let joins = join(&more, 3, 40);
        then_without(more.clone(), &joins, first);
        more.request(&joins).unwrap();
        then_without(more, &PoolRequest::Leave { number: 3 }, first);
    }
    for (first, lost) in [(0, 0), (1, 1)] {
        let at = with_new(&world, lost, 9);
        let request = replace(&at, lost as u16, 2, 90);
        then_without(at, &request, first);
    }
}

/// A world without one of its drives, and with a new one behind those that are left.
fn with_new(world: &ModelWorld, lost: usize, mib: u64) -> ModelWorld {
    let mut degraded = open(without(&world.drives, lost), "lost");
    let mut new = ModelDrive::new(mib);
    // What was on it before.
    new.now.chunks.extend([(2, 7), (3, 8), (5, 9)]);
    new.durable = new.now.clone();
    degraded.drives.push(new);
    degraded
}

fn uuids(world: &ModelWorld) -> BTreeMap<String, Uuid> {
    world.pool.volumes().map(|v| (v.name.clone(), v.uuid)).collect()
}

#[test]
fn every_crash_of_a_replacement_and_of_what_follows() {
    let world = three();
    for (lost, fill) in (0..3).flat_map(|lost| [(lost, false), (lost, true)]) {
        let mut at = with_new(&world, lost, 9);
        if fill {
            at.pool.pretend_used();
        }
        let place = |missing: usize| if missing < lost { missing } else { missing + 1 };
        let request = replace(&at, lost as u16, 2, 90);
        at.begin(&request);
        let mut at = every_crash(at, &mut |drives, what| {
            let expected = |missing: Option<usize>| match missing {
                None | Some(2) => vec![seen_without(&world, &[lost])],
                Some(missing) => vec![seen_without(&world, &[lost, place(missing)])],
            };
            holds(drives, &expected, what);
        });
        assert_eq!((at.seen(), at.pool.lost()), (seen_without(&world, &[lost]), vec![]), "nothing of it is readable");
        let concerned: Vec<String> =
            at.seen().into_iter().filter(|(_, (_, words))| words.contains(&UNREADABLE)).map(|(n, _)| n).collect();
        assert!(concerned.contains(&"wide".to_string()));
        for (turn, name) in (100..).zip(concerned) {
            let (before, old) = (at.seen(), uuids(&at)[&name]);
            let given_up = PoolRequest::Abandon { name: name.clone() };
            let empty = PoolRequest::Empty { name: name.clone(), uuid: uuid(turn) };
            assert_eq!(at.clone().request(&empty).is_err(), name == "wide", "one of which something is readable");
            for request in [given_up, empty] {
                at.begin(&request);
                at = every_crash(at, &mut |drives, what| {
                    let again = open(drives.to_vec(), what);
                    let (seen, is) = (again.seen(), uuids(&again)[&name]);
                    let words = &seen[&name].1;
                    // Zeroes are another disk's.
                    let fresh = is == uuid(turn) && words.iter().all(|w| *w == 0);
                    let kept = is == old && (*words == before[&name].1 || words.iter().all(|w| *w == UNREADABLE));
                    assert!(fresh || kept, "{what}: {name} {is} {words:x?}");
                    let others = |seen: &Seen| {
                        seen.iter().filter(|(n, _)| **n != name).map(|(n, s)| (n.clone(), s.clone())).collect::<Seen>()
                    };
                    assert_eq!(others(&seen), others(&before), "{what}");
                    nothing_leaks(again, what);
                });
            }
            assert_eq!((uuids(&at)[&name], at.words(&name).iter().all(|w| *w == 0)), (uuid(turn), true));
            at.scribble(&name);
        }
        assert!(at.seen().values().all(|(_, words)| words.iter().all(|w| *w != 0 && *w != UNREADABLE)));
        // The drive that was replaced is none of the pool's, whatever is on it.
        let mut drives = at.drives.clone();
        drives.push(world.drives[lost].clone());
        let beside = open(drives, "the old one is there too");
        assert_eq!((beside.seen(), beside.pool.spares()), (at.seen(), vec![3]));
        at.request(&resize("wide", 11)).unwrap();
    }
}

#[test]
fn who_cannot_replace_is_told_why() {
    let world = three();
    let mut at = with_new(&world, 0, 4);
    let other = ModelWorld::open(vec![ModelDrive::new(9)], 2).unwrap().drives;
    let mut full = ModelDrive::new(9);
    full.now.blocks.insert(3, vec![7; crate::BLOCK]);
    at.drives.extend([other[0].clone(), full, ModelDrive::new(2)]);
    let before: Vec<_> = at.drives.iter().map(|d| d.now.clone()).collect();
    let mut told = |number: u16, place: usize| {
        let request = replace(&at, number, place, 70);
        let why = at.request(&request).expect_err(&alloc::format!("{number} {place}"));
        at.pool.check();
        why
    };
    let on_it = world.pool.volumes().map(|v| v.runs_on(0).iter().map(|r| u64::from(r.len)).sum::<u64>()).sum::<u64>();
    assert_eq!(told(0, 2), PoolError::TooSmall("d2".into(), 2 * CHUNK, on_it * CHUNK));
    assert_eq!(told(1, 2), PoolError::NotLost("d0".into()));
    assert!(matches!(told(7, 2), PoolError::NoMember(_)));
    assert!(matches!(told(0, 1), PoolError::Fault(PoolOpenError::Setup(_))), "a drive of this pool already");
    assert!(matches!(told(0, 3), PoolError::Fault(PoolOpenError::Stranger(..))));
    assert_eq!(told(0, 4), PoolError::Fault(PoolOpenError::Foreign("d4".into())));
    assert!(matches!(told(0, 5), PoolError::Fault(PoolOpenError::Small(..))));
    let wide = PoolRequest::Abandon { name: "wide".into() };
    assert_eq!(at.request(&wide), Err(PoolError::NotReplaced("wide".into(), "d0".into())));
    assert_eq!(at.request(&PoolRequest::Abandon { name: "b".into() }), Err(PoolError::Sound("b".into())));
    assert!(matches!(at.request(&PoolRequest::Leave { number: 0 }), Err(PoolError::InUse(_, 2, _))));
    assert!(at.drives.iter().map(|d| d.now.clone()).eq(before), "nothing was written");
    // Without what was on it, it can leave.
    for name in ["a", "wide"] {
        at.request(&delete(name)).unwrap();
    }
    at.request(&PoolRequest::Leave { number: 0 }).unwrap();
    assert_eq!((at.pool.lost(), open(at.drives[..2].to_vec(), "left").pool.lost()), (vec![], vec![]));
}

/// Two halves of a pool that each went on without the other are not put together; the replaced drive is one of them.
#[test]
fn drives_that_went_apart_are_refused_by_name() {
    let mut world = ModelWorld::open([8, 7].map(ModelDrive::new).to_vec(), 1).unwrap();
    world.request(&create("a", 3)).unwrap();
    world.request(&create("b", 3)).unwrap();
    let halves = [0, 1].map(|i| open(vec![world.drives[i].clone()], "half").drives.remove(0));
    let refused = |drives: Vec<ModelDrive>, what: &str| {
        let before: Vec<_> = drives.iter().map(|d| d.now.clone()).collect();
        let mut world = ModelWorld::opening(drives, 9);
        let why = world.finish().expect_err(what);
        assert!(world.drives.iter().map(|d| d.now.clone()).eq(before), "{what}: nothing was written");
        why
    };
    let split = |why: PoolError| matches!(why, PoolError::Fault(PoolOpenError::Split(..)));
    for turns in 0..3 {
        let [mut one, mut other] = halves.clone();
        for _ in 0..turns {
            one = open(vec![one], "one").drives.remove(0);
        }
        assert!(split(refused(vec![one.clone(), other.clone()], "apart")), "{turns}");
        assert!(split(refused(vec![other.clone(), one.clone()], "apart")), "{turns}");
        // One that was replaced meanwhile.
        let mut at = open(vec![one.clone()], "one");
        at.drives.push(ModelDrive::new(8));
        let request = replace(&at, 1, 1, 80);
        at.request(&request).unwrap();
        for _ in 0..4 {
            assert!(
                split(refused(vec![at.drives[0].clone(), at.drives[1].clone(), other.clone()], "replaced")),
                "{turns}"
            );
            assert!(split(refused(vec![at.drives[0].clone(), other.clone()], "replaced")), "{turns}");
            other = open(vec![other], "other").drives.remove(0);
        }
        // As it was when it was lost, it has nothing to say.
        let drives = vec![at.drives[0].clone(), at.drives[1].clone(), world.drives[1].clone()];
        assert_eq!(open(drives, "replaced").pool.spares(), [2], "{turns}");
    }
    // A copy of before the drive's last entries is an old copy, lost or not.
    let older = world.drives[1].clone();
    world.request(&delete("b")).unwrap();
    world.request(&create("d", 2)).unwrap();
    world = open(world.drives, "newer");
    let alone = open(vec![world.drives[0].clone()], "alone");
    let why = refused(vec![alone.drives[0].clone(), older], "older");
    assert_eq!(why, PoolError::Fault(PoolOpenError::Stale("d1".into())));
    let whole = |whole: bool, drives: Vec<ModelDrive>| {
        let mut setup = setup(&drives, 5);
        setup.whole = whole;
        let mut pool = Pool::new(setup);
        let next = Some(pool.apply(PoolEvent::Open));
        ModelWorld { pool, drives, next }.finish()
    };
    for drives in [vec![world.drives[0].clone()], vec![alone.drives[0].clone()]] {
        let why = whole(true, drives.clone()).unwrap_err();
        assert!(matches!(&why, PoolError::Fault(PoolOpenError::Incomplete(name, 1, ..)) if name == "d1"), "{why}");
        whole(false, drives).unwrap();
    }
}

/// A drive that is read and cannot be written is lost; two of them are too many.
#[test]
fn a_drive_that_fails_while_the_pool_is_opened_is_lost() {
    let world = three();
    let fails = |bad: &[usize], from: u32| {
        let mut opening = ModelWorld::opening(world.drives.clone(), 9);
        let mut left = from;
        loop {
            match &opening.next {
                Some(PoolEffect::Write { drive, .. } | PoolEffect::Flush { drive }) if bad.contains(drive) => {
                    match left {
                        0 => {
                            opening.next = Some(opening.pool.apply(failure()));
                            continue;
                        }
                        _ => left -= 1,
                    }
                }
                _ => {}
            }
            if let Some(result) = opening.step() {
                return (opening, result);
            }
        }
    };
    for bad in 0..3 {
        for from in 0..4 {
            let (opened, result) = fails(&[bad], from);
            result.unwrap_or_else(|why| panic!("{bad} {from}: {why}"));
            opened.pool.check();
            assert_eq!(opened.seen(), seen_without(&world, &[bad]), "{bad} {from}");
            // It works again.
            assert_eq!(open(opened.drives.iter().map(|d| d.crash(|_| 1)).collect(), "again").seen(), world.seen());
        }
    }
    let (_, result) = fails(&[0, 2], 0);
    assert!(matches!(result, Err(PoolError::Fault(PoolOpenError::Unwritable(..)))), "{result:?}");
}

/// An opening of which those writes fail, by their number among the writes of a drive; `torn`: a part of the bytes is there, and not durable.
fn opening_with_failures(world: &ModelWorld, bad: usize, which: &dyn Fn(u32) -> bool, torn: bool) -> (ModelWorld, u32) {
    let (mut opening, mut writes) = (ModelWorld::opening(world.drives.clone(), 9), 0);
    loop {
        if let Some(PoolEffect::Write { drive, offset, bytes }) = &opening.next {
            if *drive == bad {
                writes += 1;
                if which(writes - 1) {
                    if torn {
                        let half = bytes[..bytes.len() / BLOCK / 2 * BLOCK].to_vec();
                        opening.drives[bad].write(*offset, &half);
                    }
                    opening.next = Some(opening.pool.apply(failure()));
                    continue;
                }
            }
        }
        if let Some(result) = opening.step() {
            result.unwrap_or_else(|why| panic!("drive {bad}, {writes} writes: {why}"));
            opening.pool.check();
            return (opening, writes);
        }
    }
}

/// A write that fails once or twice while the pool is opened costs nothing, whichever it is; with the third the drive is lost.
#[test]
fn a_write_of_an_opening_that_fails_is_tried_again() {
    let world = three();
    for bad in 0..3 {
        let all = opening_with_failures(&world, bad, &|_| false, false).1;
        assert!(all > 3);
        for (fails, torn) in (0..all).flat_map(|fails| [(fails, false), (fails, true)]) {
            for times in 1..=2 {
                let which = |n: u32| (fails..fails + times).contains(&n);
                let (opened, _) = opening_with_failures(&world, bad, &which, torn);
                assert_eq!((opened.pool.lost(), opened.seen()), (vec![], world.seen()), "{bad} {fails} {times}");
                // What it says is durable on every drive.
                let durable = opened.drives.iter().map(|d| d.crash(|_| 0)).collect();
                let again = open(durable, "again");
                assert_eq!((again.pool.lost(), again.seen()), (vec![], world.seen()), "{bad} {fails} {times}");
            }
        }
        let (opened, _) = opening_with_failures(&world, bad, &|n| n < 3, true);
        assert_eq!(opened.seen(), seen_without(&world, &[bad]), "{bad}");
    }
}

/// A crash anywhere in an opening that begins anew leaves all there was.
#[test]
fn every_crash_of_an_opening_that_is_tried_again() {
    let world = three();
    for (bad, fails) in (0..3).flat_map(|bad| (0..3).map(move |fails| (bad, fails))) {
        let (mut opening, mut writes) = (ModelWorld::opening(world.drives.clone(), 9), 0);
        loop {
            if let Some(PoolEffect::Write { drive, offset, bytes }) = &opening.next {
                writes += u32::from(*drive == bad);
                if *drive == bad && writes == fails + 1 {
                    opening.drives[bad].write(*offset, &bytes.clone());
                    opening.next = Some(opening.pool.apply(failure()));
                }
            }
            for fate in 0..3 {
                let crashed = opening.drives.iter().map(|d| d.crash(|i| if fate == 2 { (i % 2) as u8 } else { fate }));
                let again = open(crashed.collect(), "crash");
                assert_eq!((again.pool.lost(), again.seen()), (vec![], world.seen()), "{bad} {fails} {fate}");
            }
            if opening.step().is_some() {
                break;
            }
        }
    }
}

/// After a write that has failed the drive is taken out, and the pool takes changes again.
#[test]
fn a_drive_that_fails_is_taken_out() {
    let world = three();
    for bad in 0..3usize {
        // Renaming a volume of that drive writes to it first, or as its mirror.
        for (name, at) in [("a", 0), ("b", 1), ("c", 2), ("wide", 3)] {
            let mut failing = world.clone();
            failing.begin(&rename(name, "z"));
            let result = loop {
                if matches!(&failing.next, Some(PoolEffect::Write { drive, .. }) if *drive == bad) {
                    failing.next = Some(failing.pool.apply(failure()));
                }
                if let Some(result) = failing.step() {
                    break result;
                }
            };
            let Err(PoolError::Broken(_)) = result else { continue };
            failing
                .request(&PoolRequest::TakeOut { number: bad as u16 })
                .unwrap_or_else(|why| panic!("{bad} {at}: {why}"));
            assert_eq!(failing.pool.fault(), None);
            failing.pool.check();
            let seen = failing.seen();
            let [before, mut after] = [seen_without(&world, &[bad]), seen_without(&world, &[bad])];
            let moved = after.remove(name).unwrap();
            after.insert("z".into(), moved);
            assert!(seen == before || seen == after, "{bad} {name}: {seen:?}");
            let gone = failing.seen().into_keys().next_back().unwrap();
            failing.request(&delete(&gone)).unwrap();
            let again = open(without(&failing.drives.iter().map(|d| d.crash(|_| 1)).collect::<Vec<_>>(), bad), "again");
            assert_eq!(again.seen(), failing.seen(), "{bad} {name}");
        }
    }
}

/// A drive that does not empty itself leaves the volume in error.
#[test]
fn what_cannot_be_emptied_stays_in_error() {
    let world = three();
    let mut at = with_new(&world, 1, 9);
    let request = replace(&at, 1, 2, 90);
    at.request(&request).unwrap();
    at.request(&PoolRequest::Abandon { name: "wide".into() }).unwrap();
    let (seen, before) = (at.seen(), uuids(&at));
    let empty = PoolRequest::Empty { name: "wide".into(), uuid: uuid(5) };
    for fails in 0.. {
        let mut failing = at.clone();
        failing.begin(&empty);
        let mut left = fails;
        while !matches!(failing.next, Some(PoolEffect::Write { .. })) && left > 0 {
            left -= 1;
            assert_eq!(failing.step(), None);
        }
        if matches!(failing.next, Some(PoolEffect::Write { .. })) {
            assert!(fails > 3);
            break;
        }
        failing.next = Some(failing.pool.apply(failure()));
        assert!(matches!(failing.finish(), Err(PoolError::NotEmptied(..))), "{fails}");
        assert_eq!((failing.pool.fault(), failing.seen(), uuids(&failing)), (None, seen.clone(), before.clone()));
        failing.request(&empty).unwrap();
        assert_eq!(failing.words("wide"), [0; 10]);
        // And the drives say so.
        failing.request(&rename("wide", "wider")).unwrap();
        let again = open(failing.drives.iter().map(|d| d.crash(|_| 0)).collect(), "again");
        assert_eq!((again.seen(), uuids(&again)), (failing.seen(), uuids(&failing)), "{fails}");
    }
}

/// A drive that was home of volumes without chunks there can leave.
#[test]
fn a_home_without_chunks_moves() {
    let world = three();
    let mut at = with_new(&world, 0, 9);
    let request = replace(&at, 0, 2, 90);
    at.request(&request).unwrap();
    for name in ["b", "c", "wide"] {
        at.request(&delete(name)).unwrap();
    }
    // What was home on the lost drive is at home on others that it does not lie on.
    for (number, fill) in [(1, false), (2, true)] {
        let seen = at.seen();
        if fill {
            at.pool.pretend_used();
        }
        at.begin(&PoolRequest::Leave { number });
        at = every_crash(at, &mut |drives, what| {
            assert_eq!(open(drives.to_vec(), what).seen(), seen, "{what}");
        });
    }
    assert_eq!(at.seen().into_keys().collect::<Vec<_>>(), ["a"]);
}

/// A drive leaves whose volumes' descriptions move, and the logs of those that get them are full.
#[test]
fn every_crash_when_a_drive_leaves_and_the_copies_are_full() {
    for number in 0..4u16 {
        let mut world = three();
        world.drives.push(ModelDrive::new(4));
        let joins = join(&world, 3, 40);
        world.request(&joins).unwrap();
        if number != 3 {
            // Its volumes go.
            let on_it: Vec<String> =
                world.pool.volumes().filter(|v| !v.runs_on(number).is_empty()).map(|v| v.name.clone()).collect();
            on_it.iter().for_each(|name| _ = world.request(&delete(name)).unwrap());
        }
        let seen = world.seen();
        world.pool.pretend_used();
        world.begin(&PoolRequest::Leave { number });
        every_crash(world, &mut |drives, what| {
            assert_eq!(open(drives.to_vec(), what).seen(), seen, "{what}");
        });
    }
}

/// An old copy of a drive that goes on alone is not what the others took part with.
#[test]
fn an_older_copy_that_went_on_without_the_others_is_refused_by_them() {
    for old in 0..2usize {
        let mut world = ModelWorld::open([8, 7].map(ModelDrive::new).to_vec(), 1).unwrap();
        world.request(&create("a", 3)).unwrap();
        world.request(&create("b", 3)).unwrap();
        let copy = world.drives[old].clone();
        // Guests write in this opening, and it is killed.
        let now = open(world.drives.clone(), "whole");
        let alone = open(vec![copy], "the old copy alone");
        let mut drives = vec![now.drives[1 - old].clone()];
        drives.insert(old, alone.drives[0].clone());
        let why = ModelWorld::opening(drives, 9).finish().expect_err("what was written is missing");
        assert!(matches!(why, PoolError::Fault(PoolOpenError::Split(..))), "{old}: {why}");
    }
}

/// A drive that was replaced and is still named does not keep the pool from going on without another one.
#[test]
fn what_was_replaced_and_is_still_named_is_in_nobodys_way() {
    let world = three();
    let mut at = with_new(&world, 0, 9);
    let request = replace(&at, 0, 2, 90);
    at.request(&request).unwrap();
    // Places 0 and 1 are numbers 1 and 2.
    for missing in 0..2 {
        let mut drives = without(&at.drives, missing);
        drives.push(world.drives[0].clone());
        let degraded = open(drives, "the replaced one is named");
        assert_eq!(degraded.pool.lost().iter().map(|l| l.0).collect::<Vec<_>>(), [missing as u16 + 1]);
        assert_eq!(degraded.pool.spares(), [2]);
    }
}

/// The pool's lost drive cannot be added as another one, nor take its own place: it is told what to do.
#[test]
fn the_lost_drive_itself_does_not_join() {
    let world = three();
    let mut at = open(without(&world.drives, 1), "lost");
    at.drives.push(world.drives[1].clone());
    let why = PoolError::Fault(PoolOpenError::IsLost("d2".into(), "d1".into()));
    for request in [join(&at, 2, 70), replace(&at, 1, 2, 70)] {
        assert_eq!(at.request(&request), Err(why.clone()));
    }
    assert!(why.to_string().contains("weir pool online d2 takes it in again"), "{why}");
}

/// Drives of which the last one is too small for what the first one says of its volumes.
fn with_a_small_one() -> ModelWorld {
    let mut world = ModelWorld::open([14000, 5000, 3].map(ModelDrive::new).to_vec(), 1).unwrap();
    for n in 0..6000u64 {
        let (name, tenant) = (alloc::format!("{n:064}"), "t".repeat(64));
        let request = PoolRequest::Create { name, tenant, uuid: uuid(n), chunks: 1, copies: 1 };
        let books = &mut world.pool.books;
        let (_, volume, dirty) = books.prepare(&request).unwrap();
        books.counter += 1;
        let id = volume.as_ref().unwrap().id;
        books.commit(crate::change_plan::Change { id, volume, dirty });
    }
    world.request(&PoolRequest::Recover).unwrap();
    world
}

/// Where the others have no room to describe the volumes of a lost drive's neighbour, nothing is written over what volumes have there.
#[test]
fn a_drive_without_room_for_what_it_has_to_describe_is_said() {
    let mut world = with_a_small_one();
    let left = without(&world.drives, 1);
    let before: Vec<_> = left.iter().map(|d| d.now.clone()).collect();
    let mut opening = ModelWorld::opening(left, 9);
    let why = opening.finish().expect_err("there is no room");
    assert_eq!(why, PoolError::Fault(PoolOpenError::Full("d1".into(), Some("d1".into()))));
    assert!(opening.drives.iter().map(|d| d.now.clone()).eq(before), "nothing was written");
    assert_eq!(open(world.drives.clone(), "whole").seen().len(), 6000);
    // Nor can the neighbour be taken out, also after it has failed.
    let take_out = PoolRequest::TakeOut { number: 1 };
    assert_eq!(world.request(&take_out), Err(PoolError::Full("d2".into())));
    world.begin(&rename(&alloc::format!("{:064}", 7), "z"));
    world.next = Some(world.pool.apply(failure()));
    assert!(matches!(world.finish(), Err(PoolError::Broken(_))));
    let fault = world.pool.fault().cloned();
    assert_eq!(world.request(&take_out), Err(PoolError::Full("d2".into())));
    assert_eq!(world.pool.fault().cloned(), fault, "what memory knows is not on the drives");
    world.request(&PoolRequest::Recover).unwrap();
    world.request(&rename(&alloc::format!("{:064}", 7), "z")).unwrap();
    assert_eq!(open(world.drives.clone(), "again").pool.volumes().len(), 6000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(4)))]
    /// Volumes come and go, drives are lost, come back or get others in their places, and it is killed: no name vanishes, what is read is
    /// what was written, zeroes are only where they were promised.
    #[test]
    fn whatever_happens(
        ops in proptest::collection::vec((0u8..12, 0u32..7, 0usize..4, any::<u64>()), 1..40),
    ) {
        let mut world = ModelWorld::open([9, 8, 7, 6].map(ModelDrive::new).to_vec(), 1).unwrap();
        // The lost ones by their number, as they were.
        let mut away: BTreeMap<u16, ModelDrive> = BTreeMap::new();
        let mut names: BTreeMap<String, (Uuid, u32)> = BTreeMap::new();
        let mut seed = 100;
        for (op, n, which, fate) in ops {
            seed += 1;
            let name = ["a", "b", "c"][(n % 3) as usize];
            let lost = world.pool.lost().len();
            let request = match op {
                0..=2 => create(name, n),
                3 => resize(name, n),
                4 => delete(name),
                // It is killed, and starts without one of its drives if it has enough of them.
                5 | 6 => {
                    let mut drives: Vec<ModelDrive> = world.drives.iter().map(|d| d.crash(|i| (fate >> (2 * (i % 32)) & 3) as u8)).collect();
                    let member = world.pool.drive(which);
                    if let (5, 0..=1, Some((number, ..))) = (op, lost, member) {
                        away.insert(number, drives.remove(which));
                    }
                    world = ModelWorld::open(drives, seed).unwrap();
                    continue;
                }
                // All come back.
                7 => {
                    world.drives.extend(core::mem::take(&mut away).into_values());
                    world = ModelWorld::open(world.drives, seed).unwrap();
                    prop_assert_eq!(world.pool.lost(), vec![]);
                    for (name, words) in world.seen().into_iter().map(|(name, (_, words))| (name, words)) {
                        let stale = world.pool.lost_chunks(world.pool.volume(&name).unwrap()).1;
                        prop_assert_eq!(words.iter().filter(|w| **w == UNREADABLE).count(), stale as usize);
                    }
                    continue;
                }
                8 => match world.pool.lost().iter().map(|l| l.0).find(|number| away.contains_key(number)) {
                    Some(number) => {
                        world.drives.push(ModelDrive::new(10));
                        let place = world.drives.len() - 1;
                        let done = world.request(&replace(&world, number, place, seed));
                        match done {
                            Ok(_) => _ = away.remove(&number),
                            Err(_) => _ = world.drives.pop(),
                        }
                        world.pool.check();
                        continue;
                    }
                    None => join(&world, 0, seed),
                },
                // It goes on without one of its drives, which is still there.
                10 => {
                    if let (0..=1, Some((number, ..))) = (lost, world.pool.drive(which)) {
                        world.request(&PoolRequest::TakeOut { number }).unwrap();
                    }
                    continue;
                }
                // Those that are there take part again.
                11 => {
                    for place in (0..world.drives.len()).filter(|place| world.pool.drive(*place).is_none()).collect::<Vec<_>>() {
                        let request = online(&world, place);
                        let _ = world.request(&request);
                        world.pool.check();
                    }
                    prop_assert_eq!(world.pool.lost().len(), away.len());
                    continue;
                }
                _ => {
                    let given_up = PoolRequest::Abandon { name: name.into() };
                    if world.request(&given_up).is_ok() {
                        world.request(&PoolRequest::Empty { name: name.into(), uuid: uuid(seed) }).unwrap();
                        names.get_mut(name).unwrap().0 = uuid(seed);
                        prop_assert!(world.words(name).iter().all(|w| *w == 0));
                        world.scribble(name);
                    }
                    continue;
                }
            };
            let done = world.request(&request);
            world.pool.check();
            match (&request, done.is_ok()) {
                (PoolRequest::Create { name, uuid, chunks, .. }, true) => {
                    prop_assert!(world.words(name).iter().all(|w| *w == 0));
                    names.insert(name.clone(), (*uuid, *chunks));
                    world.scribble(name);
                }
                (PoolRequest::Resize { name, chunks }, true) => {
                    names.get_mut(name).unwrap().1 = *chunks;
                    world.scribble(name);
                }
                (PoolRequest::Delete { name }, true) => _ = names.remove(name),
                _ => {}
            }
            let found: BTreeMap<String, (Uuid, u32)> = world.pool.volumes().map(|v| (v.name.clone(), (v.uuid, v.chunks))).collect();
            prop_assert_eq!(&found, &names);
            for v in world.pool.volumes() {
                let own = |(i, word): (usize, u64)| word == UNREADABLE || word == (v.id.0 << 32 | i as u64 | 1 << 63);
                prop_assert!(world.words(&v.name).into_iter().enumerate().all(own), "{}", v.name);
            }
        }
    }
}
