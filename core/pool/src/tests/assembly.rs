//! Drives that come in any order, and drives that must not.

use crate::block::{Address, LAYOUT, encode, payload, place};
use crate::model::{ModelDrive, ModelWorld, crc32c, create, delete, failure, join, setup, uuid};
use crate::record::{EntryHeader, Known, Member, Phase, Record};
use crate::volume::VolumeId;
use crate::{Pool, PoolEffect, PoolError, PoolEvent, PoolOpenError, PoolRequest, STRIPE};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

fn pool_of(sizes: &[u64], seed: u64) -> ModelWorld {
    let mut world = ModelWorld::open(sizes.iter().map(|mib| ModelDrive::new(*mib)).collect(), seed).unwrap();
    world.request(&create("a", 3)).unwrap();
    world.request(&create("b", sizes.iter().map(|s| *s as u32 - 2).sum::<u32>() - 4)).unwrap();
    world.scribble("a");
    world.scribble("b");
    world
}

fn refused(drives: Vec<ModelDrive>) -> PoolOpenError {
    let before: Vec<_> = drives.iter().map(|d| d.now.clone()).collect();
    let mut world = ModelWorld::opening(drives, 99);
    let fault = match world.finish() {
        Err(PoolError::Fault(fault)) => fault,
        other => panic!("{other:?}"),
    };
    assert!(world.drives.iter().map(|d| d.now.clone()).eq(before), "nothing was written: {fault}");
    fault
}

#[test]
fn any_order_will_do() {
    let world = pool_of(&[8, 6, 7], 1);
    let seen = world.seen();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let drives = order.iter().map(|i| world.drives[*i].clone()).collect();
        let mut again = ModelWorld::open(drives, 2).unwrap();
        assert_eq!(again.seen(), seen, "{order:?}");
        again.request(&delete("b")).unwrap();
        again.request(&create("c", 11)).unwrap();
        assert_eq!(again.words("c"), [0; 11]);
    }
}

#[test]
fn who_does_not_belong_is_named() {
    let world = pool_of(&[8, 6], 1);
    let [one, two] = [0, 1].map(|i| world.drives[i].clone());
    let other = pool_of(&[8, 6], 2).drives;
    let fault = refused(vec![one.clone(), other[1].clone()]);
    assert!(matches!(&fault, PoolOpenError::Stranger(drive, pool, _) if drive == "d1" && pool == "p"), "{fault}");
    let mut foreign = setup(&other, 3);
    foreign.name = "q".into();
    let PoolEffect::Read { .. } = Pool::new(foreign).apply(PoolEvent::Open) else { panic!("it reads") };
    assert_eq!(
        refused(vec![one.clone(), two.clone(), one.clone()]),
        PoolOpenError::Duplicate("d0".into(), "d2".into())
    );
    let three = pool_of(&[8, 6, 7], 1).drives;
    assert!(
        matches!(refused(vec![three[1].clone()]), PoolOpenError::Missing(2, 0, _, bytes, None) if bytes == 8 << 20)
    );
    let fault = refused(vec![ModelDrive::new(6), three[0].clone()]);
    assert!(fault.to_string().contains("drive 1 (") && fault.to_string().contains("drive d0 is empty"), "{fault}");
    let spare = ModelWorld::open(vec![one.clone(), two.clone(), ModelDrive::new(9)], 9).unwrap();
    assert_eq!((spare.pool.spares(), spare.seen()), (vec![2], world.seen()), "an empty one too many is left alone");
    assert_eq!(spare.drives[2].now, ModelDrive::new(9).now);
    let short = ModelDrive { bytes: 7 << 20, ..one.clone() };
    assert_eq!(refused(vec![two.clone(), short]), PoolOpenError::Truncated("d1".into(), 8 << 20, 7 << 20));
    let mut full = ModelDrive::new(8);
    full.now.blocks.insert(3, vec![7; crate::BLOCK]);
    assert_eq!(refused(vec![full.clone()]), PoolOpenError::Foreign("d0".into()));
    assert_eq!(refused(vec![one, two, full]), PoolOpenError::Foreign("d2".into()));
    assert!(matches!(refused(vec![ModelDrive::new(2)]), PoolOpenError::Small(..)));
    assert!(matches!(refused(vec![]), PoolOpenError::Setup(_)));
}

#[test]
fn a_larger_drive_is_the_same() {
    let world = pool_of(&[8, 6], 1);
    let (mut drives, seen) = (world.drives.clone(), world.seen());
    drives[0].bytes += 5 << 20;
    assert_eq!(ModelWorld::open(drives, 2).unwrap().seen(), seen);
}

#[test]
fn an_old_copy_of_a_drive_is_noticed() {
    let mut world = pool_of(&[8, 6], 1);
    let old = world.drives.clone();
    // After openings that it was not at.
    let later = ModelWorld::open(ModelWorld::open(world.drives.clone(), 2).unwrap().drives, 3).unwrap().drives;
    assert_eq!(refused(vec![old[0].clone(), later[1].clone()]), PoolOpenError::Stale("d0".into()));
    assert_eq!(refused(vec![later[0].clone(), old[1].clone()]), PoolOpenError::Stale("d1".into()));
    // After a change of both, by what home says of the other.
    world.request(&delete("b")).unwrap();
    world.request(&create("c", 7)).unwrap();
    let home = world.segments("c")[0].drive;
    let mut drives = world.drives.clone();
    drives[1 - home] = old[1 - home].clone();
    assert!(matches!(refused(drives), PoolOpenError::Stale(_)));
}

#[test]
fn one_copy_will_do_and_none_will_not() {
    let world = pool_of(&[8, 6], 1);
    let seen = world.seen();
    let copy = |at: &u64, copy: u64| *at / (STRIPE / crate::BLOCK) as u64 % 2 == copy;
    let damage = |drive: &mut ModelDrive, which: u64, how: u8| {
        for (at, block) in drive.now.blocks.iter_mut().filter(|(at, _)| copy(at, which)) {
            match how {
                0 => block.fill(0),
                1 => block[100 + *at as usize] ^= 4,
                _ => block.rotate_left(512),
            }
        }
        drive.durable = drive.now.clone();
    };
    for how in 0..3 {
        for bad in 0..4u64 {
            let mut drives = world.drives.clone();
            damage(&mut drives[(bad / 2) as usize], bad % 2, how);
            damage(&mut drives[(1 - bad / 2) as usize], 1 - bad % 2, how);
            let again = ModelWorld::open(drives, 2).unwrap();
            assert_eq!(again.seen(), seen, "{how} {bad}");
            // And the bad ones are good again.
            let mut drives = again.drives;
            damage(&mut drives[0], 1 - bad % 2, how);
            assert_eq!(ModelWorld::open(drives, 3).unwrap().seen(), seen);
        }
        let mut drives = world.drives.clone();
        damage(&mut drives[1], 0, how);
        damage(&mut drives[1], 1, 1);
        // It is lost then; the only one is no pool.
        let again = ModelWorld::open(drives.clone(), 4).unwrap();
        assert_eq!(again.pool.lost().len(), 1, "{how}");
        assert_eq!(again.drives[1].now, drives[1].now, "nothing is written to it");
        assert_eq!(refused(drives.split_off(1)), PoolOpenError::Damaged("d0".into()));
    }
}

/// Every single block of the metadata, changed: the other copy has it.
#[test]
fn no_single_block_matters() {
    let mut world = pool_of(&[8, 6], 1);
    world.request(&delete("a")).unwrap();
    let seen = world.seen();
    for drive in 0..2 {
        for at in world.drives[drive].now.blocks.keys() {
            let mut drives = world.drives.clone();
            drives[drive].now.blocks.get_mut(at).unwrap()[77] ^= 1;
            assert_eq!(ModelWorld::open(drives, 2).unwrap().seen(), seen, "drive {drive} block {at}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_damaged() {
    let world = pool_of(&[8], 1);
    let read = |fails: fn(u64) -> bool| {
        let mut again = ModelWorld::opening(world.drives.clone(), 2);
        loop {
            match again.next.clone() {
                Some(PoolEffect::Read { offset, .. }) if fails(offset) => {
                    again.next = Some(again.pool.apply(crate::model::failure()));
                }
                _ => {
                    if let Some(result) = again.step() {
                        return result.map(|_| again.seen());
                    }
                }
            }
        }
    };
    assert_eq!(read(|offset| offset == 0), Ok(world.seen()));
    assert_eq!(read(|offset| offset == STRIPE as u64), Ok(world.seen()));
    let all = read(|_| true).unwrap_err();
    assert_eq!(all, PoolError::Fault(PoolOpenError::Unreadable("d0".into(), "Write Fault".into())));
}

/// Who may not join, and what is then: as before.
#[test]
fn who_may_not_join_is_told_why() {
    let mut world = pool_of(&[8, 6], 1);
    let seen = world.seen();
    let mut full = ModelDrive::new(8);
    full.now.blocks.insert(3, vec![7; crate::BLOCK]);
    let other = pool_of(&[8], 2).drives;
    let mut twin = world.drives[0].clone();
    twin.bytes += 1 << 20;
    world.drives.extend([full, other[0].clone(), twin, ModelDrive::new(2)]);
    let before: Vec<_> = world.drives.iter().map(|d| d.now.clone()).collect();
    let mut told = |place: usize| {
        let request = join(&world, place, 50 + place as u64);
        match world.request(&request) {
            Err(PoolError::Fault(fault)) => fault,
            other => panic!("{place}: {other:?}"),
        }
    };
    assert_eq!(told(2), PoolOpenError::Foreign("d2".into()));
    assert!(matches!(told(3), PoolOpenError::Stranger(drive, _, _) if drive == "d3"));
    assert_eq!(told(4), PoolOpenError::Duplicate("d0".into(), "d4".into()));
    assert!(matches!(told(5), PoolOpenError::Small(..)));
    assert!(matches!(told(1), PoolOpenError::Setup(_)));
    assert!(world.drives.iter().map(|d| d.now.clone()).eq(before), "nothing was written");
    world.request(&delete("a")).unwrap();
    assert_eq!(world.seen().len() + 1, seen.len(), "and the pool goes on");
}

/// Drives that nobody named: the pool's are found, whatever else is there is left alone.
#[test]
fn drives_that_have_joined_need_not_be_named() {
    let mut world = pool_of(&[8, 6], 1);
    world.drives.push(ModelDrive::new(7));
    let request = join(&world, 2, 60);
    world.request(&request).unwrap();
    world.request(&create("c", 5)).unwrap();
    world.scribble("c");
    let mut full = ModelDrive::new(8);
    full.now.blocks.insert(3, vec![7; crate::BLOCK]);
    let mut drives = world.drives.clone();
    drives.extend([full, pool_of(&[8], 2).drives[0].clone(), ModelDrive::new(1), ModelDrive::new(9)]);
    let mut setup = setup(&drives, 4);
    setup.drives.iter_mut().skip(2).for_each(|d| d.named = false);
    let mut pool = Pool::new(setup);
    let next = Some(pool.apply(PoolEvent::Open));
    let before: Vec<_> = drives[3..].iter().map(|d| d.now.clone()).collect();
    let mut again = ModelWorld { pool, drives, next };
    again.finish().unwrap();
    assert_eq!((again.seen(), again.pool.spares()), (world.seen(), vec![]));
    assert!(again.drives[3..].iter().map(|d| d.now.clone()).eq(before), "nothing was written to them");
}

/// The only drive that is named has left: the pool is where it was, and none is made on that drive.
#[test]
fn no_second_pool_is_made_beside_the_first() {
    let mut world = ModelWorld::open(vec![ModelDrive::new(8)], 1).unwrap();
    world.drives.push(ModelDrive::new(6));
    let joins = join(&world, 1, 60);
    world.request(&joins).unwrap();
    world.request(&PoolRequest::Leave { number: 0 }).unwrap();
    world.request(&create("a", 2)).unwrap();
    world.scribble("a");
    let before: Vec<_> = world.drives.iter().map(|d| d.now.clone()).collect();
    let open = |drives: &[ModelDrive], name: &str, named: [bool; 2]| {
        let mut setup = setup(drives, 5);
        setup.name = name.into();
        setup.drives.iter_mut().zip(named).for_each(|(d, named)| d.named = named);
        let mut pool = Pool::new(setup);
        let next = Some(pool.apply(PoolEvent::Open));
        let mut world = ModelWorld { pool, drives: drives.to_vec(), next };
        world.finish().map(|_| world)
    };
    // A drive that has left, and one that is empty.
    for first in [world.drives[0].clone(), ModelDrive::new(8)] {
        let drives = [first, world.drives[1].clone()];
        match open(&drives, "p", [true, false]) {
            Err(PoolError::Fault(why @ PoolOpenError::Elsewhere(..))) => {
                assert!(why.to_string().contains("name d1 in the pool's drives"), "{why}");
            }
            other => panic!("{:?}", other.map(|w| w.seen())),
        }
    }
    assert!(world.drives.iter().map(|d| d.now.clone()).eq(before), "nothing was written");
    let again = open(&world.drives, "p", [true, true]).unwrap();
    assert_eq!((again.seen(), again.pool.spares()), (world.seen(), vec![0]));
    // A pool of another name is another pool.
    let other = open(&[ModelDrive::new(8), world.drives[1].clone()], "q", [true, false]).unwrap();
    assert_eq!((other.seen().len(), other.pool.name()), (0, "q"));
}

/// Carries out a request whose write, flush or unmapping of that number fails; `None`: it has not so many.
fn failing(
    world: &ModelWorld,
    request: &PoolRequest,
    at: usize,
) -> Option<(ModelWorld, Result<crate::PoolAnswer, PoolError>)> {
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
    let result = world.step().expect("it is over");
    Some((world, result))
}

/// A drive on which somebody has written what looks like a pool's metadata: so many entries, of an area of so many chunks.
fn forged(entries: u32, area: u32, opens: u64) -> ModelDrive {
    let mut drive = ModelDrive::new(4096);
    let member = Member { uuid: uuid(5), chunks: 4096 };
    for entry in 0..entries {
        let record = match entry {
            0 => {
                let (pool, name, members) = (uuid(6), "p".into(), vec![member]);
                let (phase, needs, known) = (Phase::Open, 0, vec![Known::default()]);
                Record::Header(EntryHeader {
                    opens,
                    phase,
                    needs,
                    counter: 1,
                    pool,
                    name,
                    drive: 0,
                    area,
                    members,
                    known,
                    ..EntryHeader::default()
                })
            }
            _ => Record::Drop(VolumeId(1)),
        };
        for copy in [0, 1] {
            let at = Address { drive: uuid(5), layout: LAYOUT, generation: 1, entry, block: entry, copy };
            let block = encode(&at, &payload(core::slice::from_ref(&record), LAYOUT), crc32c);
            drive.now.blocks.insert(place(copy, entry) / crate::BLOCK as u64, block);
        }
    }
    drive
}

#[test]
fn what_is_read_of_a_drive_is_bounded_whatever_it_says() {
    // The metadata of 4 GiB have 2 MiB; looked at are 16.
    let drive = forged(6000, 4095, 1);
    let (mut world, mut read) = (ModelWorld::opening(vec![drive], 1), 0);
    let outcome = loop {
        read += u64::from(matches!(world.next, Some(PoolEffect::Read { .. }))) * STRIPE as u64;
        if let Some(outcome) = world.step() {
            break outcome;
        }
    };
    assert!(read <= 16 << 20, "{read} bytes were read: {outcome:?}");
    for drive in [forged(1, u32::MAX, 1), forged(1, 0, 1), forged(1, 2, u64::MAX), forged(1, 2, 1 << 63)] {
        refused(vec![drive]);
    }
    assert!(ModelWorld::open(vec![forged(1, 2, 1)], 1).is_ok(), "what is sound is taken");
}

/// A drive that cannot be written does not take the pool along: one that joins stays outside, one that leaves has left.
#[test]
fn a_drive_that_fails_as_it_comes_or_goes() {
    let mut world = pool_of(&[8, 6], 1);
    world.drives.push(ModelDrive::new(7));
    let joins = join(&world, 2, 60);
    let mut joined = world.clone();
    joined.request(&joins).unwrap();
    let leaves = PoolRequest::Leave { number: 2 };
    // Back again: what is left on it says that it was the pool's.
    let mut back = joined.clone();
    back.request(&leaves).unwrap();
    for (world, request) in [(&world, &joins), (&back, &joins), (&joined, &leaves)] {
        let (mut outside, mut left, mut broken, mut late) = (0, 0, 0, 0);
        for at in 0.. {
            let Some((mut after, result)) = failing(world, request, at) else { break };
            match (result, after.pool.fault()) {
                (Ok(_), None) if request == &joins => {
                    // It has joined, and none of it is free before it could be emptied.
                    assert!(matches!(after.pool.room(2), (room, 0, emptying) if room == emptying && room > 0), "{at}");
                    let again = ModelWorld::open(after.drives.clone(), 7).unwrap();
                    assert!(matches!(again.pool.room(2), (room, free, 0) if room == free && room > 0), "{at}");
                    late += 1;
                    continue;
                }
                (Ok(_), None) => left += 1,
                (Err(PoolError::NotWritten(drive, _)), None) if drive == "d2" => outside += 1,
                (Err(PoolError::Broken(_)), Some(_)) => broken += 1,
                other => panic!("{at}: {other:?}"),
            }
            if after.pool.fault().is_none() {
                assert!(after.pool.drive(2).is_none(), "{at}");
                after.pool.check();
                after.request(&create("c", 1)).unwrap();
                after.request(&join(&after, 2, 70)).unwrap();
                assert!(after.pool.drive(2).is_some(), "{at}");
            }
            let again = ModelWorld::open(after.drives.clone(), 7).unwrap();
            let seen = if after.pool.fault().is_none() { after.seen() } else { world.seen() };
            assert_eq!(again.seen(), seen, "{at}");
        }
        assert!(broken > 0 && (left > 0) == (request == &leaves));
        assert!((outside > 0) == (request == &joins) && (late > 0) == (request == &joins));
    }
}
