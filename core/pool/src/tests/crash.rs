//! A crash after every effect of every operation, with everything that may have become of what was not flushed: what is found is the
//! old state or the new one, and nobody sees what was somebody else's.

use crate::model::{ModelDrive, ModelWorld, create, delete, join, rename, resize};
use crate::{PoolEffect, PoolError, PoolRequest};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

pub(super) type Seen = BTreeMap<String, (String, Vec<u64>)>;

/// Calls `f` with the drives as a crash may leave them now: whatever is not durable is lost, kept, or torn in halves, in all
/// combinations where these are few; where they are many, all lost, all kept, each alone lost, kept or torn, and a cut at each place.
pub(super) fn for_each_crash(drives: &[ModelDrive], mut f: impl FnMut(Vec<ModelDrive>)) {
    let pending: usize = drives.iter().map(|d| d.pending.len()).sum();
    let mut with = |fate: &dyn Fn(usize) -> u8| {
        let mut before = 0;
        let crashed = drives.iter().map(|drive| {
            let first = before;
            before += drive.pending.len();
            drive.crash(|i| fate(first + i))
        });
        f(crashed.collect());
    };
    if pending <= 3 {
        for n in 0..4u32.pow(pending as u32) {
            with(&|i| (n >> (2 * i) & 3) as u8);
        }
        return;
    }
    with(&|_| 1);
    for at in 0..pending {
        for fate in 0..4 {
            with(&|i| if i == at { fate } else { 0 });
            with(&|i| if i == at { fate } else { 1 });
        }
        with(&|i| u8::from(i < at));
    }
}

/// Whether the crashes of an opening after a crash are tried: with `--full` (which sets `PROPTEST_CASES`) after every one, else after one of
/// twenty-four, beginning with another one at each run.
pub(super) fn is_looked_into(number: u64) -> bool {
    let first = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse::<u64>().ok()).unwrap_or(0);
    std::env::var_os("PROPTEST_CASES").is_some() || number.wrapping_add(first) % 24 == 0
}

/// Opens what a crash left, crashing that as well at every effect if `again`, and compares.
pub(super) fn reopen(drives: Vec<ModelDrive>, again: bool, allowed: &[Seen], seed: &mut u64, what: &str) {
    *seed += 1;
    let again = again && is_looked_into(*seed);
    let mut world = ModelWorld::opening(drives, *seed);
    loop {
        if again && !matches!(world.next, Some(PoolEffect::Read { .. })) {
            for_each_crash(&world.drives.clone(), |drives| reopen(drives, false, allowed, seed, what));
        }
        match world.step() {
            None => {}
            Some(Ok(_)) => break,
            Some(Err(why)) => panic!("{what}: {why}"),
        }
    }
    world.pool.check();
    world.alike();
    let seen = world.seen();
    assert!(allowed.contains(&seen), "{what}: {seen:?} is none of {allowed:?}");
    // Everything that is free, in the hands of somebody else.
    let free: u64 = (0..world.drives.len()).map(|d| world.pool.room(d).1).sum();
    let used = world.used();
    let room: u64 = (0..world.drives.len()).map(|d| world.pool.room(d).0).sum();
    assert_eq!(free + used, room, "{what}: no chunk is lost");
    if free > 0 {
        world.request(&create("stranger", free as u32)).unwrap();
        assert!(world.words("stranger").iter().all(|w| *w == 0), "{what}: a new volume reads as zeroes");
    }
}

/// The old state and the new one, with everything that a change in its course may leave: a volume's words are its own, or zero where they
/// are new or on their way out.
pub(super) fn crash_everywhere(world: &ModelWorld, request: &PoolRequest, again: bool, seed: &mut u64) -> ModelWorld {
    let before = world.seen();
    let mut after = world.clone();
    after.request(request).unwrap();
    let allowed = [before, after.seen()];
    let mut stepped = world.clone();
    stepped.begin(request);
    let (mut steps, mut found) = (0, 0);
    loop {
        steps += 1;
        let what = alloc::format!("{request:?}, step {steps}, before {:?}", stepped.next.as_ref().map(kind));
        for_each_crash(&stepped.drives.clone(), |drives| {
            found += 1;
            reopen(drives, again, &allowed, seed, &what);
        });
        if stepped.step().is_some() {
            break;
        }
    }
    assert!(steps > 3 && found >= steps);
    after
}

pub(super) fn kind(effect: &PoolEffect) -> String {
    match effect {
        PoolEffect::Write { drive, offset, bytes } => alloc::format!("write {drive} {offset} {}", bytes.len()),
        other => alloc::format!("{other:?}"),
    }
}

pub(super) fn script() -> Vec<PoolRequest> {
    vec![
        create("a", 2),
        create("b", 5),
        rename("a", "c"),
        resize("b", 7),
        resize("c", 1),
        create("d", 3),
        delete("b"),
        create("e", 6),
        resize("e", 2),
        delete("e"),
        delete("c"),
    ]
}

fn run(sizes: &[u64], script: &[PoolRequest], again: bool, fill: bool) {
    let mut seed = 10;
    let mut world = ModelWorld::open(sizes.iter().map(|mib| ModelDrive::new(*mib)).collect(), 1).unwrap();
    for request in script {
        if fill {
            // The next entry finds the copy full.
            while world.pool.fill_left() > 0 {
                world.pool.pretend_used();
            }
        }
        world = crash_everywhere(&world, request, again, &mut seed);
        let names: Vec<String> = world.seen().into_keys().collect();
        names.iter().for_each(|name| world.scribble(name));
    }
}

#[test]
fn of_one_drive() {
    run(&[14], &script(), false, false);
}

#[test]
fn of_several_drives() {
    run(&[7, 6, 5], &script(), false, false);
}

#[test]
fn and_of_the_opening_after_it() {
    let script = [create("a", 7), delete("a")];
    run(&[6, 6], &script, true, false);
}

#[test]
fn when_the_copies_are_full() {
    run(&[8, 8], &script(), false, true);
}

/// The making of a pool: it is made, or it can be.
fn making(sizes: &[u64], again: bool) {
    let (mut seed, nothing) = (10, [Seen::new()]);
    let mut old: Vec<ModelDrive> = sizes.iter().map(|mib| ModelDrive::new(*mib)).collect();
    // What was on the drives behind the metadata before.
    for drive in &mut old {
        drive.now.chunks.extend([(2, 7), (3, 8)]);
        drive.durable = drive.now.clone();
    }
    let mut world = ModelWorld::opening(old, 1);
    loop {
        for_each_crash(&world.drives.clone(), |drives| reopen(drives, again, &nothing, &mut seed, "making"));
        if world.step().is_some() {
            break;
        }
    }
}

#[test]
fn of_the_making() {
    making(&[4, 5, 6], false);
}

#[test]
fn and_of_the_making_after_it() {
    making(&[4, 4], true);
}

/// Drives join and leave; a crash in between leaves the pool with the drive or without it, and it can be opened with it named in both cases.
fn coming_and_going(again: bool, fill: bool) {
    let mut seed = 10;
    // Crashes within crashes are many: then there are few drives.
    let sizes: &[u64] = if again { &[5] } else { &[6, 5] };
    let new = sizes.len();
    let mut world = ModelWorld::open(sizes.iter().map(|mib| ModelDrive::new(*mib)).collect(), 1).unwrap();
    for (name, chunks) in [("a", 3), ("b", 4)] {
        world.request(&create(name, if again { 1 } else { chunks })).unwrap();
        world.scribble(name);
    }
    let mut third = ModelDrive::new(5);
    // What was on it before, behind where the metadata will be.
    third.now.chunks.extend([(2, 7), (4, 8)]);
    third.durable = third.now.clone();
    world.drives.push(third);
    for turn in 0..2 {
        if fill {
            world.pool.pretend_used();
        }
        let request = join(&world, new, 100 + turn);
        world = crash_everywhere(&world, &request, again, &mut seed);
        assert_eq!(world.pool.room(new), (3, 3, 0), "all of it is there to be had");
        world = crash_everywhere(&world, &create("c", 3), false, &mut seed);
        world.scribble("c");
        let used = world.segments("c").iter().map(|s| s.drive).next().unwrap();
        let refused = world.clone().request(&PoolRequest::Leave { number: used as u16 });
        // "a" or "b" may lie there as well.
        let named = alloc::format!("d{used}");
        assert!(matches!(&refused, Err(PoolError::InUse(drive, 1.., _)) if *drive == named), "{refused:?}");
        world = crash_everywhere(&world, &delete("c"), false, &mut seed);
        // Opened in another order, and the drive has the number that it had.
        let turned = world.drives.iter().rev().cloned().collect();
        assert_eq!(ModelWorld::open(turned, 7 + turn).unwrap().seen(), world.seen());
        world = crash_everywhere(&world, &PoolRequest::Leave { number: new as u16 }, again, &mut seed);
        assert_eq!((world.pool.room(new), world.pool.drive(new)), ((0, 0, 0), None));
        assert_eq!(world.pool.spares(), [new]);
        // It is not needed any more.
        let without = ModelWorld::open(world.drives[..new].to_vec(), 8 + turn).unwrap();
        assert_eq!(without.seen(), world.seen());
    }
    assert!(matches!(world.request(&PoolRequest::Leave { number: new as u16 }), Err(PoolError::NoMember(_))));
    if again {
        return;
    }
    for name in ["a", "b"] {
        world.request(&delete(name)).unwrap();
    }
    world.request(&PoolRequest::Leave { number: 0 }).unwrap();
    assert!(matches!(world.request(&PoolRequest::Leave { number: 1 }), Err(PoolError::Last(_))));
    world.request(&create("d", 3)).unwrap();
    assert_eq!(ModelWorld::open(world.drives.clone(), 9).unwrap().seen(), world.seen());
}

#[test]
fn of_drives_that_come_and_go() {
    coming_and_going(false, false);
}

#[test]
fn and_of_the_opening_after_they_have() {
    coming_and_going(true, false);
}

#[test]
fn of_drives_that_come_and_go_when_the_copies_are_full() {
    coming_and_going(false, true);
}
