//! Old copies of drives: every single one is refused by its name, whenever it was made; whole sets of one time are taken. And every crash
//! point of an opening, as a table.

use super::crash::for_each_crash;
use crate::drive::{Scan, scan};
use crate::model::{ModelDrive, ModelWorld, crc32c, create, delete, failure, join, rename, resize};
use crate::record::Phase;
use crate::{PoolEffect, PoolError, PoolOpenError, PoolRequest, STRIPE};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The drives at some time, and what anybody saw of the pool then.
struct Moment {
    what: String,
    drives: Vec<ModelDrive>,
    seen: super::crash::Seen,
}

/// What is asked of a pool of this many drives, with everything that it can be asked in it.
fn history(sizes: &[u64]) -> Vec<Moment> {
    let mut world = ModelWorld::open(sizes.iter().map(|mib| ModelDrive::new(*mib)).collect(), 1).unwrap();
    let mut moments = Vec::new();
    let mut note = |world: &ModelWorld, what: &str| {
        let drives = world.drives.iter().map(|d| d.crash(|_| 1)).collect();
        moments.push(Moment { what: what.into(), drives, seen: world.seen() });
    };
    note(&world, "made");
    let last = sizes.len();
    let turns = [
        vec![create("a", 2), create("wide", 7), create("b", 1)],
        vec![delete("a"), create("c", 1), resize("wide", 8)],
        vec![resize("wide", 1), rename("b", "d"), create("e", 2)],
    ];
    for (turn, requests) in turns.into_iter().enumerate() {
        for request in requests {
            world.request(&request).unwrap();
            let names: Vec<String> = world.seen().into_keys().collect();
            names.iter().for_each(|name| world.scribble(name));
            note(&world, &alloc::format!("{request:?}"));
        }
        if turn == 1 {
            world.drives.push(ModelDrive::new(5));
            let joins = join(&world, last, 70);
            world.request(&joins).unwrap();
            note(&world, "joined");
            world.request(&create("f", 3)).unwrap();
            world.scribble("f");
            note(&world, "f");
            world.request(&delete("f")).unwrap();
            note(&world, "no f");
            world.request(&PoolRequest::Leave { number: last as u16 }).unwrap();
            note(&world, "left");
            world.drives.truncate(last);
            world = ModelWorld::open(world.drives, 60).unwrap();
            note(&world, "opened without it");
        }
        // Sometimes it is closed before, sometimes it is killed.
        if turn != 1 {
            world.request(&PoolRequest::Close).unwrap();
            note(&world, "closed");
        }
        world = ModelWorld::open(world.drives, turn as u64 + 2).unwrap();
        note(&world, "opened");
    }
    moments
}

/// Opens drives of two times: refused by the name of the older one, or nothing is lost.
fn mixed(drives: Vec<ModelDrive>, old: usize, seen: &super::crash::Seen, what: &str) -> bool {
    let before: Vec<_> = drives.iter().map(|d| d.now.clone()).collect();
    let mut world = ModelWorld::opening(drives, 99);
    match world.finish() {
        Ok(_) => {
            assert_eq!(&world.seen(), seen, "{what}: taken, and something is lost");
            false
        }
        Err(PoolError::Fault(fault)) => {
            let name = alloc::format!("d{old}");
            let named = match &fault {
                PoolOpenError::Stale(drive) => *drive == name,
                // It was not one of the pool's yet, or not any more: the one that is is not there.
                PoolOpenError::Missing(1, number, ..) => usize::from(*number) == old,
                _ => false,
            };
            assert!(named, "{what}: {fault}");
            assert!(world.drives.iter().map(|d| d.now.clone()).eq(before), "{what}: nothing was written");
            true
        }
        Err(other) => panic!("{what}: {other}"),
    }
}

/// What a drive says of volumes.
fn says(drive: &ModelDrive) -> (u64, Vec<u8>) {
    let reach = [0u8, 1].map(|copy| {
        let block = |i: u64| {
            let at = i / 16 * 32 + u64::from(copy) * 16 + i % 16;
            drive.now.blocks.get(&at).cloned().unwrap_or_else(|| vec![0; crate::BLOCK])
        };
        let bytes: Vec<u8> = (0..256).flat_map(block).collect();
        assert!(bytes.len() % STRIPE == 0);
        match scan(&bytes, copy, true, crc32c) {
            Scan::Whole(copy) => (copy.header.opens, alloc::format!("{:?}", copy.candidates).into_bytes()),
            _ => (0, Vec::new()),
        }
    });
    reach[0].clone().max(reach[1].clone())
}

#[test]
fn every_single_older_drive_is_refused_by_name() {
    for sizes in [&[8, 6][..], &[7, 6, 5]] {
        let moments = history(sizes);
        let (mut refused, mut taken) = (0, 0);
        for (at, moment) in moments.iter().enumerate() {
            for (when, older) in moments[..at].iter().enumerate() {
                for old in 0..sizes.len() {
                    if moment.drives.len() != older.drives.len() || older.drives[old].now == moment.drives[old].now {
                        continue;
                    }
                    let mut drives = moment.drives.clone();
                    drives[old] = older.drives[old].clone();
                    let what = alloc::format!(
                        "{} drives, {at} {:?}, d{old} of {when} {:?}",
                        sizes.len(),
                        moment.what,
                        older.what
                    );
                    let was_refused = mixed(drives, old, &moment.seen, &what);
                    // In one opening, and nothing of it was another volume's: it has missed nothing.
                    let (then, now) = (says(&older.drives[old]), says(&moment.drives[old]));
                    let closed = moment.what == "closed";
                    assert!(
                        was_refused || then.0 == now.0 && !closed,
                        "{what}: an opening or a closing behind, and taken"
                    );
                    refused += u32::from(was_refused);
                    taken += u32::from(!was_refused);
                }
            }
        }
        assert!(refused > 10 * taken, "{refused} refused, {taken} taken");
    }
}

/// A drive that has joined is told from what it was before, in both of its lives, and so are those that were there before it.
#[test]
fn a_drive_that_has_joined_is_no_exception() {
    let mut world = ModelWorld::open(vec![ModelDrive::new(8), ModelDrive::new(6)], 1).unwrap();
    let before = world.drives.clone();
    world.drives.push(ModelDrive::new(5));
    for turn in 0..2 {
        let request = join(&world, 2, 40 + turn);
        world.request(&request).unwrap();
        let joined = world.drives.clone();
        world.request(&create("c", 3)).unwrap();
        world.scribble("c");
        world = ModelWorld::open(world.drives, 50 + turn).unwrap();
        let mut now = world.drives.clone();
        for old in 0..3 {
            let mut drives = now.clone();
            drives[old] = joined[old].clone();
            assert!(mixed(drives, old, &world.seen(), &alloc::format!("turn {turn}: d{old} as it joined")));
        }
        for old in 0..2 {
            let mut drives = now.clone();
            drives[old] = before[old].clone();
            assert!(mixed(drives, old, &world.seen(), &alloc::format!("turn {turn}: d{old} from before")));
        }
        now.truncate(2);
        world.request(&delete("c")).unwrap();
        world.request(&PoolRequest::Leave { number: 2 }).unwrap();
        let left = world.drives.clone();
        for old in 0..2 {
            let mut drives = left.clone();
            drives[old] = now[old].clone();
            assert!(mixed(
                drives,
                old,
                &world.seen(),
                &alloc::format!("turn {turn}: d{old} from before the drive left")
            ));
        }
    }
}

#[test]
fn a_whole_set_of_one_time_is_taken() {
    for sizes in [&[8, 6][..], &[7, 6, 5]] {
        for (at, moment) in history(sizes).into_iter().enumerate() {
            let again = ModelWorld::open(moment.drives, 90);
            assert_eq!(again.map(|w| w.seen()).unwrap(), moment.seen, "{at} {:?}", moment.what);
        }
    }
}

#[test]
fn a_clean_end_is_told_from_a_crash() {
    let clean = |drives: Vec<ModelDrive>| {
        let mut world = ModelWorld::opening(drives, 9);
        match world.finish() {
            Ok(crate::PoolAnswer::Open { clean, .. }) => clean,
            other => panic!("{other:?}"),
        }
    };
    let mut world = ModelWorld::open(vec![ModelDrive::new(8), ModelDrive::new(6)], 1).unwrap();
    world.request(&create("a", 2)).unwrap();
    assert!(!clean(world.drives.clone()));
    world.begin(&PoolRequest::Close);
    let mut crashes = 0;
    while world.step().is_none() {
        for_each_crash(&world.drives.clone(), |drives| crashes += u32::from(!clean(drives)));
    }
    assert!(crashes > 4 && clean(world.drives.clone()));
    assert_eq!(world.request(&create("b", 1)), Err(PoolError::Busy), "it is the last");
}

/// What a drive was told when an opening was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    /// What it knew before.
    Before,
    /// The opening, in one copy: of the two that one counts.
    Once,
    /// The opening, in both.
    Twice,
    /// That all drives have been told, in one copy or in both.
    All,
}

use Told::{All, Before, Once, Twice};

/// Every crash point of an opening of three drives that were open before, by what its drives have been told: in this order, each of them is
/// taken. Whoever is further than a row allows is told by the others that it, or they, are old.
const CRASH_POINTS: [[Told; 3]; 10] = [
    [Before, Before, Before],
    [Once, Before, Before],
    [Twice, Before, Before],
    [Twice, Once, Before],
    [Twice, Twice, Before],
    [Twice, Twice, Once],
    [Twice, Twice, Twice],
    [All, Twice, Twice],
    [All, All, Twice],
    [All, All, All],
];

/// What the drives have been told, read from their metadata.
fn told(drives: &[ModelDrive], opens: u64) -> [Told; 3] {
    core::array::from_fn(|i| {
        let copies = [0u8, 1].map(|copy| {
            let from = u64::from(copy) * 16;
            let block = |at: u64| drives[i].now.blocks.get(&at).cloned().unwrap_or_else(|| vec![0; crate::BLOCK]);
            match scan(&(from..from + 16).flat_map(block).collect::<Vec<_>>(), copy, true, crc32c) {
                Scan::Whole(copy) if copy.header.opens == opens => Some(copy.phase),
                _ => None,
            }
        });
        match copies {
            [None, None] => Before,
            [Some(Phase::Open), _] | [_, Some(Phase::Open)] => All,
            [Some(_), Some(_)] => Twice,
            _ => Once,
        }
    })
}

#[test]
fn every_crash_point_of_an_opening_is_in_the_table_and_taken() {
    let mut world = ModelWorld::open(vec![ModelDrive::new(7), ModelDrive::new(6), ModelDrive::new(5)], 1).unwrap();
    let ancient = world.drives.clone();
    for (name, chunks) in [("a", 2), ("wide", 7), ("b", 1)] {
        world.request(&create(name, chunks)).unwrap();
        world.scribble(name);
    }
    let (before, seen) = (world.drives.clone(), world.seen());
    let opens = says(&before[0]).0 + 1;
    let mut opening = ModelWorld::opening(before.clone(), 2);
    let (mut found, mut refused) = (vec![CRASH_POINTS[0]], 0);
    loop {
        let over = opening.step().is_some();
        let row = told(&opening.drives, opens);
        assert!(CRASH_POINTS.contains(&row), "{row:?} is not in the table");
        if found.last() != Some(&row) {
            found.push(row);
        }
        let mut crashes = Vec::new();
        for_each_crash(&opening.drives.clone(), |drives| crashes.push(drives));
        for drives in crashes {
            let again = ModelWorld::open(drives.clone(), 3).unwrap_or_else(|why| panic!("{row:?}: {why}"));
            assert_eq!(again.seen(), seen, "{row:?}");
            // And at each of them an older drive is refused.
            for old in 0..3 {
                let mut mix = drives.clone();
                mix[old] = ancient[old].clone();
                refused += u32::from(mixed(mix, old, &seen, &alloc::format!("{row:?}, d{old} is older")));
            }
        }
        if over {
            break;
        }
    }
    assert_eq!(found, CRASH_POINTS, "all of the table, in its order");
    assert!(refused > 0);
    // Drives of the time before the opening, beside those of the time after it: no row, and refused.
    for which in 1..7 {
        let mut drives = opening.drives.clone();
        for old in (0..3).filter(|old| which >> old & 1 != 0) {
            drives[old] = before[old].clone();
        }
        match ModelWorld::open(drives, 4) {
            Err(PoolError::Fault(PoolOpenError::Stale(drive))) => {
                assert!(
                    (0..3).any(|old| which >> old & 1 != 0 && drive == alloc::format!("d{old}")),
                    "{which:b}: {drive}"
                );
            }
            other => panic!("{which:b}: {:?}", other.map(|w| w.seen())),
        }
    }
}

/// A drive that fails while the pool is opened does not make the others look old.
#[test]
fn an_opening_that_fails_can_be_tried_again() {
    let world = ModelWorld::open(vec![ModelDrive::new(8), ModelDrive::new(6)], 1).unwrap();
    for at in 0.. {
        let mut opening = ModelWorld::opening(world.drives.clone(), 2);
        let mut left = at;
        let failed = loop {
            match (&opening.next, left) {
                (Some(PoolEffect::Finished(_)), _) => break false,
                (Some(PoolEffect::Read { .. }), _) => {}
                (_, 0) => break true,
                _ => left -= 1,
            }
            if opening.step().is_some() {
                break false;
            }
        };
        if !failed {
            assert!(at > 8);
            return;
        }
        let _ = opening.pool.apply(failure());
        for_each_crash(&opening.drives.clone(), |drives| {
            ModelWorld::open(drives, 3).unwrap_or_else(|why| panic!("{at}: {why}"));
        });
    }
}
