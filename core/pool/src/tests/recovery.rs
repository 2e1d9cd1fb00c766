//! A pool whose metadata could not be written: nothing is changed, until it has recovered, which it can as soon as its drives work.

use super::crash::{Seen, for_each_crash, reopen, script};
use crate::model::{ModelDrive, ModelWorld, create, delete, failure, join, rename, resize};
use crate::{PoolAnswer, PoolEffect, PoolError, PoolRequest};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

/// Carries out a request whose write, flush or unmapping of that number fails; `None`: it has not so many.
fn failing(
    world: &ModelWorld,
    request: &PoolRequest,
    at: usize,
) -> Option<(ModelWorld, Result<PoolAnswer, PoolError>)> {
    let (mut world, mut left) = (world.clone(), at);
    world.begin(request);
    loop {
        match (&world.next, left) {
            (Some(PoolEffect::Finished(_)), _) => return None,
            (Some(PoolEffect::Read { .. }), _) => {}
            (_, 0) => break,
            _ => left -= 1,
        }
        assert_eq!(world.step(), None);
    }
    world.next = Some(world.pool.apply(failure()));
    let result = world.finish();
    Some((world, result))
}

/// A pool that is broken recovers: memory and drives say the same, which is the old state or the new one, and all goes on.
fn recovers(mut broken: ModelWorld, allowed: &[Seen], what: &str) -> ModelWorld {
    let why = broken.pool.fault().cloned().expect("it is broken");
    assert_eq!(broken.request(&create("no", 1)), Err(why), "{what}: nothing is changed");
    let answer = broken.request(&PoolRequest::Recover);
    assert_eq!((answer, broken.pool.fault()), (Ok(PoolAnswer::Recovered), None), "{what}");
    broken.pool.check();
    let seen = broken.seen();
    assert!(allowed.contains(&seen), "{what}: {seen:?}");
    let again = ModelWorld::open(broken.drives.iter().map(|d| d.crash(|_| 0)).collect(), 77).unwrap();
    assert_eq!(again.seen(), seen, "{what}: what memory says is what is on the drives");
    broken
}

fn everywhere(sizes: &[u64], script: &[PoolRequest], crash: bool) {
    let mut world = ModelWorld::open(sizes.iter().map(|mib| ModelDrive::new(*mib)).collect(), 1).unwrap();
    let (mut seed, mut broken) = (100, 0);
    for request in script {
        let mut after = world.clone();
        after.request(request).unwrap();
        let allowed = [world.seen(), after.seen()];
        for at in 0.. {
            let Some((failed, result)) = failing(&world, request, at) else { break };
            let what = alloc::format!("{request:?}, effect {at}");
            if failed.pool.fault().is_none() {
                assert!(result.is_ok(), "{what}: what is not deallocated keeps nobody from going on");
                continue;
            }
            broken += 1;
            // The drive may have torn what it did not take.
            for_each_crash(&failed.drives.clone(), |drives| {
                let torn = ModelWorld { drives, ..failed.clone() };
                let mut on = recovers(torn, &allowed, &what);
                on.request(&create("z", 1)).unwrap();
                assert_eq!(on.words("z"), [0], "{what}");
            });
            // It fails again, at each effect of the recovery, and recovers then.
            for again in 0.. {
                let Some((twice, _)) = failing(&failed, &PoolRequest::Recover, again) else { break };
                if twice.pool.fault().is_some() {
                    recovers(twice, &allowed, &alloc::format!("{what}, then {again}"));
                }
            }
            if crash {
                let mut stepped = failed.clone();
                stepped.begin(&PoolRequest::Recover);
                while stepped.step().is_none() {
                    for_each_crash(&stepped.drives.clone(), |drives| reopen(drives, false, &allowed, &mut seed, &what));
                }
            }
        }
        world = after;
        let names: Vec<String> = world.seen().into_keys().collect();
        names.iter().for_each(|name| world.scribble(name));
    }
    assert!(broken > script.len());
}

#[test]
fn from_every_write_that_fails() {
    everywhere(&[14], &script(), true);
    everywhere(&[7, 6, 5], &script(), false);
}

#[test]
fn and_from_every_crash_in_between() {
    everywhere(&[6, 6], &[create("a", 6), resize("a", 2), delete("a")], true);
}

/// Drives that join and leave: whatever has failed, they belong to the pool afterwards or they do not.
#[test]
fn with_drives_that_come_and_go() {
    let mut world = ModelWorld::open(vec![ModelDrive::new(6), ModelDrive::new(5)], 1).unwrap();
    world.request(&create("a", 3)).unwrap();
    world.scribble("a");
    world.drives.push(ModelDrive::new(5));
    let seen = world.seen();
    for _ in 0..2 {
        for request in [join(&world, 2, 30), PoolRequest::Leave { number: 2 }] {
            let mut broken = 0;
            for at in 0.. {
                let Some((failed, _)) = failing(&world, &request, at) else { break };
                if failed.pool.fault().is_none() {
                    continue;
                }
                broken += 1;
                let what = alloc::format!("{request:?}, effect {at}");
                let mut on = recovers(failed, core::slice::from_ref(&seen), &what);
                assert_eq!(on.pool.drive(2).is_some(), matches!(request, PoolRequest::Join { .. }), "{what}");
                on.request(&create("b", 1)).unwrap();
                assert_eq!(ModelWorld::open(on.drives.clone(), 8).unwrap().seen(), on.seen(), "{what}");
            }
            assert!(broken > 4);
            world.request(&request).unwrap();
        }
    }
}

/// A drive that stays broken: each try says so, and what there is goes on.
#[test]
fn not_before_the_drive_works() {
    let mut world = ModelWorld::open(vec![ModelDrive::new(8), ModelDrive::new(8)], 1).unwrap();
    world.request(&create("a", 2)).unwrap();
    let (mut failed, _) = failing(&world, &delete("a"), 0).unwrap();
    for _ in 0..3 {
        let (again, result) = failing(&failed, &PoolRequest::Recover, 1).unwrap();
        assert!(matches!(result, Err(PoolError::Broken(_))), "{result:?}");
        assert_eq!(again.seen(), world.seen());
        failed = again;
    }
    let mut on = recovers(failed, &[world.seen()], "at last");
    on.request(&delete("a")).unwrap();
    assert!(on.seen().is_empty());
    // Of a pool that is well it asks nothing but to write what is there already.
    assert_eq!(on.request(&PoolRequest::Recover), Ok(PoolAnswer::Recovered));
    on.request(&create("b", 1)).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(8)))]
    /// Whatever fails, and wherever it is killed: memory and drives say the same after each recovery, and no chunk is lost.
    #[test]
    fn whatever_fails(
        sizes in proptest::collection::vec(4u64..12, 1..4),
        ops in proptest::collection::vec((0u8..5, 0u32..9, 0usize..14, 0u8..4), 1..24),
    ) {
        let mut world = ModelWorld::open(sizes.iter().map(|mib| ModelDrive::new(*mib)).collect(), 1).unwrap();
        for (i, (op, chunks, fails, fate)) in ops.into_iter().enumerate() {
            let name = ["a", "b", "c"][(chunks % 3) as usize];
            let request = match op {
                0 => create(name, chunks),
                1 => resize(name, chunks),
                2 => rename(name, "d"),
                3 => delete(name),
                _ => delete("d"),
            };
            let before = world.seen();
            let mut after = world.clone();
            let _ = after.request(&request);
            world = match failing(&world, &request, fails) {
                Some((failed, _)) if failed.pool.fault().is_some() => {
                    let drives = failed.drives.iter().map(|d| d.crash(|n| (n as u8 + fate) % 4)).collect();
                    let torn = ModelWorld { drives, ..failed };
                    recovers(torn, &[before, after.seen()], "any")
                }
                Some((failed, _)) => failed,
                None => after,
            };
            world.pool.check();
            let names: Vec<String> = world.seen().into_keys().collect();
            names.iter().for_each(|name| world.scribble(name));
            if fate == 3 {
                world = ModelWorld::open(world.drives, i as u64 + 2).unwrap();
            }
        }
    }
}
