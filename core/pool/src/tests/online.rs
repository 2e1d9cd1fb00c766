//! A lost drive takes part again while the pool is up: every crash and every failure of that, what it has missed, and who is refused.

use super::loss::{every_crash, holds, nothing_leaks, open, seen_without, three, without};
use super::{copies, copies::NEW, copies::OLD};
use crate::model::{
    ModelDrive, ModelWorld, clone_of, create, create_twice, delete, failure, join, online, rename, replace, resize,
    rollback, snapshot, uuid,
};
use crate::{ChunkRun, CopyHealth, PoolAnswer, PoolEffect, PoolError, PoolEvent, PoolOpenError, PoolRequest, REGION};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

fn take_out(world: &mut ModelWorld, lost: usize) {
    world.request(&PoolRequest::TakeOut { number: lost as u16 }).unwrap();
}

/// A world whose next is what a request wants done.
fn asked(mut world: ModelWorld, request: &PoolRequest) -> ModelWorld {
    world.begin(request);
    world
}

#[test]
fn every_crash_of_a_return_to_a_pool_that_is_up() {
    for (lost, fill) in (0..3).flat_map(|lost| [(lost, false), (lost, true)]) {
        let mut world = three();
        take_out(&mut world, lost);
        // Meanwhile volumes are made, renamed and deleted, also ones that lie there.
        world.request(&rename("wide", "wider")).unwrap();
        world.request(&delete(["a", "b", "c"][lost])).unwrap();
        world.request(&delete(["a", "b", "c"][(lost + 1) % 3])).unwrap();
        world.request(&create("new", 1)).unwrap();
        world.scribble("new");
        if fill {
            world.pool.pretend_used();
        }
        let mut whole = world.clone();
        whole.request(&online(&world, lost)).unwrap();
        assert_eq!(whole.pool.lost(), []);
        let request = online(&world, lost);
        let back = every_crash(asked(world, &request), &mut |drives, what| {
            let expected = |missing: Option<usize>| match missing {
                None => vec![whole.seen()],
                Some(missing) => vec![seen_without(&whole, &[missing]), seen_without(&whole, &[missing, lost])],
            };
            assert_eq!(holds(drives, &expected, what), 0, "{what}");
        });
        assert_eq!(back.seen().len(), 3);
        assert!(back.seen().values().all(|(_, words)| words.iter().all(|w| *w >> 63 == 1 && *w != u64::MAX)));
        nothing_leaks(back.clone(), "what was deleted meanwhile is emptied");
        // It can be lost again, and be back again, and the next one too.
        let mut again = back;
        for next in [lost, (lost + 1) % 3, lost] {
            let seen = again.seen();
            take_out(&mut again, next);
            again.request(&rename("wider", "widest")).unwrap();
            let request = online(&again, next);
            again.request(&request).unwrap();
            again.request(&rename("widest", "wider")).unwrap();
            assert_eq!(again.seen(), seen);
            assert_eq!(open(again.drives.clone(), "again").seen(), seen);
        }
    }
}

/// What becomes of a pool whose drive is back if a write, a flush or a read of that fails: the drive stays lost, or it is taken out again.
#[test]
fn every_failure_of_a_return() {
    for lost in 0..3usize {
        let mut world = three();
        take_out(&mut world, lost);
        let (degraded, mut whole) = (world.seen(), world.clone());
        let request = online(&world, lost);
        whole.request(&request).unwrap();
        let (mut refused, mut broken) = (0, 0);
        for fails in 0.. {
            let mut failing = asked(world.clone(), &request);
            if (0..fails).any(|_| failing.step().is_some()) {
                break;
            }
            let at = match failing.next {
                Some(PoolEffect::Write { drive, .. } | PoolEffect::Flush { drive }) => drive,
                Some(PoolEffect::Read { .. }) => continue,
                _ => break,
            };
            failing.next = Some(failing.pool.apply(failure()));
            match failing.finish() {
                Err(PoolError::StaysLost(name, _)) => {
                    refused += 1;
                    assert_eq!((name, failing.seen()), (alloc::format!("d{lost}"), degraded.clone()));
                    failing.request(&rename("wide", "z")).unwrap();
                    failing.request(&rename("z", "wide")).unwrap();
                }
                Err(PoolError::Broken(_)) => {
                    broken += 1;
                    // It recovers, or one of the two is taken out.
                    let mut recovered = failing.clone();
                    every_crash(asked(recovered.clone(), &PoolRequest::Recover), &mut |drives, what| {
                        assert_eq!(open(drives.to_vec(), what).seen(), whole.seen(), "{what}");
                        comes_back_from(drives, lost, &whole, what);
                    });
                    recovered.request(&PoolRequest::Recover).unwrap();
                    assert_eq!(recovered.seen(), whole.seen());
                    take_out(&mut failing, at);
                    assert_eq!(failing.seen(), seen_without(&whole, &[at]), "{lost} {fails}");
                    let request = online(&failing, at);
                    failing.request(&request).unwrap();
                    assert_eq!(failing.seen(), whole.seen(), "{lost} {fails}");
                    assert_eq!(open(failing.drives, "again").seen(), whole.seen());
                    continue;
                }
                other => panic!("{lost} {fails}: {other:?}"),
            }
            failing.request(&request).unwrap();
            assert_eq!(failing.seen(), whole.seen(), "{lost} {fails}");
            assert_eq!(open(failing.drives, "again").seen(), whole.seen());
        }
        assert!(refused > 0 && broken > 0);
    }
}

/// The others come up without a drive that was coming back, and it takes part again after that.
fn comes_back_from(drives: &[ModelDrive], lost: usize, whole: &ModelWorld, what: &str) {
    let degraded = open(without(drives, lost), what);
    let mut all = degraded.drives;
    all.insert(lost, drives[lost].clone());
    assert_eq!(open(all, what).seen(), whole.seen(), "{what}");
}

/// Nothing that lies on a lost drive is changed, whatever is asked: it is as it was when the drive is back.
#[test]
fn what_one_copy_has_on_a_lost_drive_is_as_it_was() {
    for lost in 0..3usize {
        let mut world = three();
        world.request(&snapshot("wide", "s")).unwrap();
        world.request(&clone_of("wide@s", "clone")).unwrap();
        for chunk in 0..10 {
            // Some of the clone's chunks are its own, as far as there is room.
            let _ = world.write("clone", chunk, 70 + u64::from(chunk));
        }
        world.drives.iter_mut().for_each(ModelDrive::flush);
        let before = world.seen();
        take_out(&mut world, lost);
        for refused in [
            resize("wide", 2),
            resize("wide", 12),
            snapshot("wide", "t"),
            clone_of("wide@s", "other"),
            rollback("wide@s"),
            PoolRequest::Abandon { name: "wide".into() },
            PoolRequest::Empty { name: "wide".into(), uuid: uuid(9) },
            PoolRequest::Leave { number: lost as u16 },
        ] {
            assert!(world.request(&refused).is_err(), "{refused:?}");
        }
        let id = world.pool.volume("wide").unwrap().id;
        let _ = world.request(&PoolRequest::Unshare { id, runs: vec![ChunkRun { start: 0, len: 10 }] });
        let request = online(&world, lost);
        world.request(&request).unwrap();
        assert_eq!(world.seen(), before, "{lost}");
        world.request(&delete("clone")).unwrap();
        world.request(&delete("wide@s")).unwrap();
        nothing_leaks(world, "what they shared is free");
    }
}

#[test]
fn who_is_refused_is_told_why_and_nothing_is_written() {
    let mut world = three();
    let old = world.drives.clone();
    world.request(&rename("wide", "wider")).unwrap();
    world.request(&rename("wider", "wide")).unwrap();
    world.request(&delete("c")).unwrap();
    let before = world.clone();
    take_out(&mut world, 1);
    let stranger = ModelWorld::open(vec![ModelDrive::new(9)], 2).unwrap().drives.remove(0);
    let went_on = {
        // It came up with another drive, and without the first one.
        let both = open(without(&before.drives, 0), "elsewhere");
        both.drives[0].clone()
    };
    let mut cut = world.drives[1].clone();
    cut.bytes -= CHUNK_LESS;
    let told = |drive: ModelDrive| {
        let mut world = world.clone();
        world.drives[1] = drive;
        let written: Vec<_> = world.drives.iter().map(|d| d.now.clone()).collect();
        let request = online(&world, 1);
        let why = world.request(&request).expect_err("it is refused");
        assert!(world.drives.iter().map(|d| d.now.clone()).eq(written), "nothing was written");
        world.pool.check();
        world.request(&create("goes-on", 1)).unwrap();
        match why {
            PoolError::Fault(why) => why,
            other => panic!("{other}"),
        }
    };
    let name = || "d1".to_string();
    assert_eq!(told(old[1].clone()), PoolOpenError::Stale(name()));
    assert!(matches!(told(stranger), PoolOpenError::Stranger(of, ..) if of == "d1"));
    assert!(matches!(told(went_on), PoolOpenError::Split(of, ..) if of == "d1"));
    assert_eq!(told(ModelDrive::new(8)), PoolOpenError::NoLostDrive(name()));
    assert_eq!(told(world.drives[0].clone()), PoolOpenError::Duplicate("d0".into(), name()));
    assert!(matches!(told(cut), PoolOpenError::Truncated(of, ..) if of == "d1"));
    let mut foreign = ModelDrive::new(8);
    foreign.now.blocks.insert(3, vec![7; crate::BLOCK]);
    assert_eq!(told(foreign), PoolOpenError::Foreign(name()));
    // One that was replaced, and one that has left.
    let mut replaced = world.clone();
    replaced.drives.push(ModelDrive::new(9));
    let request = replace(&replaced, 1, 3, 40);
    replaced.request(&request).unwrap();
    take_out(&mut replaced, 2);
    let request = online(&replaced, 1);
    assert_eq!(replaced.request(&request), Err(PoolError::Fault(PoolOpenError::HasLeft(name()))));
    let mut left = before.clone();
    left.drives.push(ModelDrive::new(5));
    let request = join(&left, 3, 41);
    left.request(&request).unwrap();
    left.request(&PoolRequest::Leave { number: 3 }).unwrap();
    take_out(&mut left, 0);
    let request = online(&left, 3);
    assert_eq!(left.request(&request), Err(PoolError::Fault(PoolOpenError::HasLeft("d3".into()))));
    // None is lost.
    let request = online(&before, 1);
    assert_eq!(before.clone().request(&request), Err(PoolError::NotLost(name())));
}

/// Bytes that a drive has less than it says.
const CHUNK_LESS: u64 = crate::CHUNK;

/// The pool came up from an old copy of its other drives: the lost one has what they have not.
#[test]
fn one_with_newer_data_is_refused() {
    let mut world = three();
    let old = world.drives.clone();
    for name in ["a", "b", "c"].repeat(4) {
        world.pool.pretend_used();
        world.request(&rename(name, "x")).unwrap();
        world.request(&rename("x", name)).unwrap();
    }
    let again = open(world.drives.clone(), "once more").drives;
    for (newer, drives) in (0..3).flat_map(|newer| [(newer, &world.drives), (newer, &again)]) {
        let mut degraded = open(without(&old, newer), "old copies of the others");
        degraded.drives.push(drives[newer].clone());
        let request = online(&degraded, 2);
        let why = degraded.request(&request);
        assert!(matches!(why, Err(PoolError::Fault(PoolOpenError::Split(..)))), "{newer}: {why:?}");
    }
}

/// What a drive has missed is stale at once, whatever a crash leaves, and good when it was copied.
#[test]
fn every_crash_of_the_return_of_a_copy() {
    for at in 0..2 {
        let mut world = copies::three();
        let lost = copies::copies_of(&world, "v", 1)[at].0;
        take_out(&mut world, lost);
        let request = copies::written(&world, 1);
        world.request(&request).unwrap();
        copies::put(&mut world, 1, NEW, 2);
        world.drives.iter_mut().for_each(ModelDrive::flush);
        let request = copies::settled(&world, 1);
        world.request(&request).unwrap();
        let request = online(&world, lost);
        let back =
            copies::every_crash(asked(world, &request), &mut |drives, what| copies::holds(drives, 1, &[NEW], what));
        assert_eq!((copies::word(&back, 0), copies::word(&back, 1)), (OLD, NEW));
        assert_eq!(back.pool.copy_health(copies::id(&back)), CopyHealth { lost: 0, stale: 3 });
        assert_eq!(back.pool.returning(), [lost]);
        copies::rebuilt(back, NEW, 1, "back");
    }
}

/// A drive that has missed nothing has nothing to be rebuilt.
#[test]
fn a_copy_that_has_missed_nothing_is_good() {
    let mut world = copies::three();
    let lost = copies::copies_of(&world, "v", 1)[0].0;
    take_out(&mut world, lost);
    let request = online(&world, lost);
    assert_eq!(world.request(&request), Ok(PoolAnswer::Drive(lost)));
    assert_eq!(world.pool.copy_health(copies::id(&world)), CopyHealth::default());
}

/// Who writes a volume may not have heard that the drive is back: what is told of until then is stale there, whatever a crash leaves.
#[test]
fn what_is_written_before_the_drive_is_in_use_is_stale() {
    let mib = u64::from(REGION) * 3;
    let mut world = ModelWorld::open([mib + 8, mib + 8].map(ModelDrive::new).to_vec(), 1).unwrap();
    world.request(&create_twice("v", mib as u32)).unwrap();
    let chunks = [0, REGION, 2 * REGION];
    chunks.iter().for_each(|chunk| copies::put(&mut world, *chunk, OLD, 2));
    world.drives.iter_mut().for_each(ModelDrive::flush);
    for lost in 0..2 {
        let mut world = world.clone();
        take_out(&mut world, lost);
        let other = 1 - lost;
        let place = copies::copies_of(&world, "v", 0)[0];
        assert_eq!(place.0, other);
        let request = copies::written(&world, 0);
        world.request(&request).unwrap();
        world.drives[other].put(place.1, NEW);
        world.drives[other].flush();
        let request = online(&world, lost);
        world.request(&request).unwrap();
        // Written on the other one alone, after the pool knows that this one is back.
        let request = copies::written(&world, REGION);
        let told = copies::every_crash(asked(world, &request), &mut |drives, what| {
            assert_eq!(copies::word(&open(drives, what), REGION), OLD, "{what}");
        });
        let mut world = told;
        world.drives[other].put(place.1 + REGION, NEW);
        world.drives[other].flush();
        copies_are(&world, [NEW, NEW, OLD]);
        let id = copies::id(&world);
        assert_eq!(world.pool.copy_health(id).stale, 2 * REGION);
        // Settling says nothing of what is stale.
        world.request(&PoolRequest::Settled { id, runs: vec![ChunkRun { start: 0, len: mib as u32 }] }).unwrap();
        copies_are(&world, [NEW, NEW, OLD]);
        world.pool.is_in_use(lost);
        let request = copies::written(&world, 2 * REGION);
        world.request(&request).unwrap();
        assert_eq!(world.pool.copy_health(id).stale, 2 * REGION, "from then on writes go there too");
        copies::put(&mut world, 2 * REGION, NEW, 2);
        world.drives.iter_mut().for_each(ModelDrive::flush);
        copies_are(&world, [NEW; 3]);
    }
}

/// The first chunk of each region, as the pool reads it, and as it does after a crash.
fn copies_are(world: &ModelWorld, expected: [u64; 3]) {
    let again = open(world.drives.clone(), "after a crash");
    for (at, expected) in (0..).zip(expected) {
        assert_eq!([copies::word(world, at * REGION), copies::word(&again, at * REGION)], [expected; 2], "{at}");
    }
}

/// Of two that were lost one after the other the one that went last has what was written last, also where the first one is back alone.
#[test]
fn of_two_that_were_lost_the_later_one_counts() {
    for at in 0..2 {
        let mut world = copies::three();
        let copies = copies::copies_of(&world, "v", 1);
        let (early, late) = (copies[at].0, copies[1 - at].0);
        take_out(&mut world, early);
        let request = copies::written(&world, 1);
        world.request(&request).unwrap();
        copies::put(&mut world, 1, NEW, 2);
        world.drives.iter_mut().for_each(ModelDrive::flush);
        take_out(&mut world, late);
        let orders: [[usize; 2]; 2] = [[early, late], [late, early]];
        for order in orders {
            let mut back = world.clone();
            for (turn, place) in order.into_iter().enumerate() {
                let request = online(&back, place);
                back.request(&request).unwrap();
                let seen = copies::word(&back, 1);
                let expected = if (turn, place) == (0, early) { u64::MAX } else { NEW };
                assert_eq!(seen, expected, "{order:?} {turn}");
            }
            copies::rebuilt(back, NEW, 1, "both are back");
        }
    }
}

/// A drive is taken out again before what it has missed is rebuilt, and something is written between: nothing old is read.
#[test]
fn lost_again_before_it_is_rebuilt() {
    let mut world = copies::three();
    let (one, other) = (copies::copies_of(&world, "v", 1)[0].0, copies::copies_of(&world, "v", 1)[1].0);
    take_out(&mut world, one);
    let request = copies::written(&world, 1);
    world.request(&request).unwrap();
    copies::put(&mut world, 1, NEW, 2);
    let request = online(&world, one);
    world.request(&request).unwrap();
    assert!(!world.pool.can_do_without(other));
    take_out(&mut world, one);
    let request = online(&world, one);
    world.request(&request).unwrap();
    assert_eq!(world.pool.copy_health(copies::id(&world)).stale, 3);
    // The good copy goes: what is stale is not read instead.
    take_out(&mut world, other);
    assert_eq!(copies::word(&world, 1), u64::MAX);
    let request = online(&world, other);
    world.request(&request).unwrap();
    copies::rebuilt(world, NEW, 1, "lost again");
}

#[test]
fn a_second_request_waits_for_the_first() {
    let mut world = three();
    take_out(&mut world, 0);
    let request = online(&world, 0);
    world.begin(&request);
    let busy = world.pool.apply(PoolEvent::Request(rename("wide", "z")));
    assert_eq!(busy, PoolEffect::Finished(Err(PoolError::Busy)));
    world.finish().unwrap();
}
