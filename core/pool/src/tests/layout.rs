//! Pools that the release before has written, in the oldest layout: read and brought to the layout of today, or left in theirs.

use super::crash::for_each_crash;
use crate::block::{LAYOUT, OLDEST};
use crate::model::{ModelDrive, ModelWorld, create, delete, setup};
use crate::{Pool, PoolEvent, PoolOpenError};
use alloc::vec;
use alloc::vec::Vec;

/// Two drives of 6 and 5 MiB as that release left them, block by block.
const DRIVES: [&str; 2] = [include_str!("fixtures/layout_1_a.txt"), include_str!("fixtures/layout_1_b.txt")];

fn drives() -> Vec<ModelDrive> {
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    let drive = |(mib, text): (u64, &str)| {
        let mut drive = ModelDrive::new(mib);
        for line in text.lines() {
            let (at, hex) = line.split_once(' ').unwrap();
            let mut block: Vec<u8> = hex.as_bytes().chunks(2).map(|h| digit(h[0]) << 4 | digit(h[1])).collect();
            let crc = block.split_off(block.len() - 4);
            block.resize(crate::BLOCK - 4, 0);
            block.extend(crc);
            drive.now.blocks.insert(at.parse().unwrap(), block);
        }
        drive.durable = drive.now.clone();
        drive
    };
    [6, 5].into_iter().zip(DRIVES).map(drive).collect()
}

fn open(drives: Vec<ModelDrive>, keeps_layout: bool) -> ModelWorld {
    let mut setup = setup(&drives, 5);
    setup.keeps_layout = keeps_layout;
    let mut pool = Pool::new(setup);
    let next = Some(pool.apply(PoolEvent::Open));
    let mut world = ModelWorld { pool, drives, next };
    world.finish().unwrap();
    world
}

/// Layouts of the blocks that count: of the first block of each copy of each drive.
fn layouts(world: &ModelWorld) -> Vec<u32> {
    let word = |drive: &ModelDrive, at: u64| u32::from_le_bytes(drive.now.blocks[&at][8..12].try_into().unwrap());
    world.drives.iter().flat_map(|d| [word(d, 0), word(d, 16)]).collect()
}

fn volumes(world: &ModelWorld) -> Vec<(alloc::string::String, u32)> {
    world.pool.volumes().map(|v| (v.name.clone(), v.chunks)).collect()
}

#[test]
fn the_oldest_layout_is_read_and_upgraded() {
    let mut world = open(drives(), false);
    let there = vec![("wide".into(), 5), ("small".into(), 1)];
    assert_eq!((volumes(&world), layouts(&world)), (there, vec![LAYOUT; 4]));
    world.request(&delete("small")).unwrap();
    world.request(&create("new", 1)).unwrap();
    assert_eq!(ModelWorld::open(world.drives.clone(), 6).unwrap().seen(), world.seen());
    // Each of the old drives beside the other as it is today.
    for old in 0..2 {
        let mut mix = world.drives.clone();
        mix[old] = drives().remove(old);
        let mut mixed = ModelWorld::opening(mix, 7);
        let stale = crate::PoolError::Fault(PoolOpenError::Stale(alloc::format!("d{old}")));
        assert_eq!(mixed.finish(), Err(stale));
    }
}

#[test]
fn a_crash_at_any_point_of_the_upgrade_is_taken() {
    let seen = open(drives(), false).seen();
    let mut upgrade = ModelWorld::opening(drives(), 5);
    while upgrade.step().is_none() {
        for_each_crash(&upgrade.drives.clone(), |drives| {
            for keeps_layout in [false, true] {
                assert_eq!(open(drives.clone(), keeps_layout).seen(), seen);
            }
        });
    }
}

#[test]
fn it_stays_as_it_is_where_the_release_before_may_get_it_back() {
    let mut world = open(drives(), true);
    assert_eq!(layouts(&world), vec![OLDEST; 4]);
    world.request(&delete("small")).unwrap();
    world.request(&create("new", 1)).unwrap();
    world.drives.push(ModelDrive::new(4));
    let joins = crate::model::join(&world, 2, 9);
    world.request(&joins).unwrap();
    world.request(&crate::PoolRequest::Close).unwrap();
    let again = open(world.drives.clone(), true);
    assert_eq!((layouts(&again), again.seen()), (vec![OLDEST; 6], world.seen()));
    let upgraded = open(again.drives, false);
    assert_eq!((layouts(&upgraded), upgraded.seen()), (vec![LAYOUT; 6], world.seen()));
    // There is no way back from there.
    assert_eq!(layouts(&open(upgraded.drives, true)), vec![LAYOUT; 6]);
}
