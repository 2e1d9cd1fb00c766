//! Blocks of cold files that go to the next class when theirs is full, with files in use, further classes that are full, and services that die.

use super::moved::{THIRD, add_drive, drain, file, is_right};
use super::policies::policy;
use super::recovered::{SECOND, chunk, wait};
use super::*;
use crate::mutant::Mutant;
use crate::policy::{Tiering, Watermarks};
use crate::protocol::DemotionInfo;
use crate::service::passes::MoveReason;
use weir_units::rng::SplitMix64;

/// A region of 65 MiB: a hundredth of it has ten blocks.
const DRIVE: u64 = 66 << 20;

fn tiering(high: u8, low: u8) -> Tiering {
    let policies = vec![policy("/c*", &["dram", "flash"], 1, Some(5)), policy("/one*", &["dram"], 1, Some(5))];
    Tiering { policies, watermarks: Watermarks::of_percent(high, low) }
}

/// A store with a drive of each class, number 1 and 2.
fn world(seed: u64, mutant: Option<Mutant>) -> (World, ConnectionId) {
    let mut world = World::new(seed, KvFaults::default());
    world.drive_bytes = DRIVE;
    let (operator, _) = world.connect(SessionWish::None);
    add_drive(&mut world, operator, TARGET, "dram");
    add_drive(&mut world, operator, SECOND, "flash");
    world.set_tiering(tiering(2, 1), mutant);
    let client = world.client();
    (world, client)
}

fn told(world: &mut World, client: ConnectionId) -> Vec<DemotionInfo> {
    match world.ask_until(client, &Request::Tiering {}) {
        Answer::Tiering { tiering } => tiering.classes,
        other => panic!("{other:?}"),
    }
}

/// The namespaces that the blocks of a file are on.
fn places(world: &mut World, at: InodePath) -> Vec<u64> {
    chunk(world, at).blocks.iter().map(|block| block.copies[0].namespace.get()).collect()
}

fn count(places: &[u64], namespace: u64) -> usize {
    places.iter().filter(|place| **place == namespace).count()
}

/// How many blocks of a class are told to be left, by whatever reason.
fn reasons(info: &DemotionInfo) -> u64 {
    let DemotionInfo { hot, kept, no_next, has_writer, unsettled, no_copy, no_room, no_node, failed, .. } = info;
    hot + kept + no_next + has_writer + unsettled + no_copy + no_room + no_node + failed
}

#[test]
fn cold_files_go_the_coldest_first_and_no_more_than_have_to() {
    let (mut world, client) = world(1, None);
    let world = &mut world;
    let oldest = file(world, client, "c1", 8, 1);
    wait(world, client, 2);
    let older = file(world, client, "c2", 8, 1);
    let kept = file(world, client, "kept", 4, 1);
    wait(world, client, 20);
    assert_eq!(world.disks.moves, 0, "that is not more than two hundredths");
    let last = file(world, client, "c3", 8, 1);
    wait(world, client, 2);
    assert_eq!(places(world, last), [1; 8], "it is not cold yet");
    let early = places(world, older);
    assert!(count(&early, 1) == 0 || count(&places(world, oldest), 1) == 0, "the coldest first");
    wait(world, client, 10);
    assert_eq!(places(world, oldest), [2; 8], "the coldest has gone");
    assert_eq!(places(world, kept), [1; 4], "what no policy demotes stays");
    assert_eq!(places(world, last), [1; 8], "no more than has to");
    let info = told(world, client)[0].clone();
    assert!(!info.is_over && info.used <= DRIVE / 100 && info.used > DRIVE / 100 - 2 * BLOCK, "{info:?}");
    assert_eq!(
        (info.moved_blocks as usize, count(&places(world, older), 2)),
        (world.disks.moves, world.disks.moves - 8)
    );
    for at in [oldest, older, kept, last] {
        is_right(world, at, 1, NamespaceId(9));
    }
    let before = world.disks.moves;
    wait(world, client, 30);
    assert_eq!(world.disks.moves, before, "it rests");
    let granted: u64 = world.namespaces(client).iter().map(|info| info.granted).sum();
    assert_eq!(granted, 0);
}

/// Openings count, and so does the beginning of the process, which has seen none of before.
fn is_left_in_use(mutant: Option<Mutant>) -> bool {
    let (mut world, client) = world(1, mutant);
    let world = &mut world;
    let (open, read) = (file(world, client, "c-open", 12, 1), file(world, client, "c-read", 12, 1));
    let Answer::Opened { .. } = world.ask_until(client, &Request::Open { at: open, write: false }) else { panic!() };
    for _ in 0..5 {
        let Answer::Opened { handle, .. } = world.ask_until(client, &Request::Open { at: read, write: false }) else {
            panic!()
        };
        wait(world, client, 3);
        assert_eq!(world.ask_until(client, &Request::Close { handle }), Answer::Done {});
        wait(world, client, 1);
    }
    let info = told(world, client)[0].clone();
    let is_left = world.disks.moves == 0;
    if mutant.is_none() {
        assert!(is_left && info.is_over, "{info:?}");
        assert_eq!((info.hot, reasons(&info)), (24, 24), "{info:?}");
        world.restart();
        let client = world.client();
        wait(world, client, 4);
        assert_eq!(world.disks.moves, 0, "the process has seen nothing of before");
        wait(world, client, 10);
        assert!(world.disks.moves > 0, "nobody has opened the files again");
        let info = told(world, client)[0].clone();
        assert!(info.used <= DRIVE / 100, "{info:?}");
    }
    is_left
}

#[test]
fn files_that_are_in_use_stay() {
    assert!(is_left_in_use(None));
    assert!(!is_left_in_use(Some(Mutant::DemoteHot)), "the mistake is seen");
}

/// A block never goes to a class before its own, whatever the room there.
#[test]
fn nothing_goes_back() {
    let goes_back = |mutant| {
        let (mut world, client) = world(1, mutant);
        let world = &mut world;
        drain(world, client, 1, true);
        let flash = file(world, client, "c1", 30, 1);
        assert_eq!(places(world, flash), [2; 30]);
        drain(world, client, 1, false);
        wait(world, client, 30);
        let info = told(world, client)[1].clone();
        let is_back = count(&places(world, flash), 1) > 0;
        assert!(is_back || (info.is_over && info.no_next == 30), "{info:?}");
        is_back
    };
    assert!(!goes_back(None));
    assert!(goes_back(Some(Mutant::DemoteBack)), "the mistake is seen");
}

/// The next class takes blocks up to its own high watermark; where it has no drive, that is told.
#[test]
fn a_class_that_is_full_takes_nothing() {
    let takes = |mutant| {
        let (mut world, client) = world(1, mutant);
        let world = &mut world;
        drain(world, client, 1, true);
        file(world, client, "kept", 18, 1);
        drain(world, client, 1, false);
        let cold = file(world, client, "c1", 30, 1);
        wait(world, client, 30);
        let (told, gone) = (told(world, client), count(&places(world, cold), 2));
        assert_eq!(told[0].moved_blocks as usize, gone);
        let is_kept = told[1].used <= DRIVE / 50 && told[0].is_over && told[0].no_room > 0;
        assert!(gone > 0 && (!is_kept || reasons(&told[0]) as usize == 30 - gone), "{told:?}");
        !is_kept
    };
    assert!(!takes(None));
    assert!(takes(Some(Mutant::DemoteAboveMark)), "the mistake is seen");
    let (mut world, client) = world(1, None);
    drain(&mut world, client, 2, true);
    let (cold, one) = (file(&mut world, client, "c1", 15, 1), file(&mut world, client, "one", 15, 1));
    wait(&mut world, client, 20);
    let info = told(&mut world, client)[0].clone();
    assert_eq!((info.no_node, info.no_next, info.moved_blocks), (15, 15, 0), "{info:?}");
    drain(&mut world, client, 2, false);
    wait(&mut world, client, 70);
    assert_eq!(places(&mut world, one), [1; 15]);
    assert!(count(&places(&mut world, cold), 2) > 0, "there is a drive of the next class again");
}

/// What drains goes first, although other blocks are cold as well.
#[test]
fn a_drain_goes_first() {
    let (mut world, client) = world(1, None);
    let world = &mut world;
    add_drive(world, client, THIRD, "dram");
    let cold = file(world, client, "c1", 30, 1);
    let places_before = places(world, cold);
    let drains = *places_before.first().expect("a block");
    drain(world, client, drains, true);
    world.holds_moves = true;
    wait(world, client, 8);
    for _ in 0..2 {
        let mut tasks = world.service.moves.tasks.values();
        assert!(tasks.all(|task| task.reason == MoveReason::Leaving), "the drain goes first, although others are cold");
        assert!(!world.held.is_empty(), "blocks leave it");
        for (token, answer) in core::mem::take(&mut world.held) {
            world.give(ServiceEvent::Tier(token, answer));
        }
        world.settle();
    }
    world.holds_moves = false;
    for (token, answer) in core::mem::take(&mut world.held) {
        world.give(ServiceEvent::Tier(token, answer));
    }
    wait(world, client, 1);
    assert_eq!(count(&places(world, cold), drains), 0);
    wait(world, client, 20);
    let info = told(world, client)[0].clone();
    assert!(info.moved_blocks > 0 && info.used <= info.bytes / 100, "{info:?}");
    is_right(world, cold, 1, NamespaceId(drains));
}

/// The service is killed after every event of a demotion, with what the event had asked for made or not.
#[test]
fn a_service_that_is_killed_at_any_step_demotes_in_the_end() {
    let (mut steps, mut moved) = (0, 0);
    for kill in 0.. {
        let (mut world, client) = world(kill, None);
        let world = &mut world;
        let (cold, kept) = (file(world, client, "c1", 3, 1), file(world, client, "kept", 24, 1));
        world.pass(Nanos::from_secs(6));
        world.dies_in = Some(kill);
        for _ in 0..12 {
            world.pass(Nanos::from_millis(200));
        }
        let is_over = world.dies_in.take().is_some_and(|left| left > 0);
        moved += usize::from(world.disks.moves > 0);
        world.restart();
        for _ in 0..60 {
            world.pass(Nanos::from_millis(200));
        }
        assert_eq!((places(world, cold), places(world, kept)), (vec![2; 3], vec![1; 24]));
        is_right(world, cold, 1, NamespaceId(1));
        let client = world.client();
        let granted: u64 = world.namespaces(client).iter().map(|info| info.granted).sum();
        assert_eq!(granted, 0, "what the dead one was granted is nobody's");
        steps = kill;
        if is_over {
            break;
        }
    }
    assert!(steps > 30 && moved > 10, "{steps} steps, {moved} of them after a block was copied");
}

/// Files of any size under any policy: in the end a class is at its low watermark, or each block of it is left for a reason.
#[test]
fn a_class_is_at_its_low_watermark_or_every_block_has_a_reason() {
    let (mut rests, mut demoted) = (0, 0);
    for seed in 0..60 {
        let mut random = SplitMix64::new(seed);
        let (mut world, client) = world(seed, None);
        let world = &mut world;
        if random.below(2) == 0 {
            add_drive(world, client, THIRD, ["dram", "flash"][random.below(2) as usize]);
        }
        let mut files = Vec::new();
        for number in 0..random.below(8) + 2 {
            let of = ["c", "kept", "one"][random.below(3) as usize];
            let copies = 1 + u8::from(of == "c" && random.below(4) == 0);
            let at = file(world, client, &alloc::format!("{of}{number}"), random.below(14) + 1, copies);
            if random.below(5) == 0 {
                let write = random.below(2) == 0;
                assert!(matches!(world.ask_until(client, &Request::Open { at, write }), Answer::Opened { .. }));
            }
            files.push((at, copies));
            wait(world, client, 1);
        }
        world.kv.set_faults(KvFaults::all(10_000));
        wait(world, client, 100);
        world.kv.set_faults(KvFaults::default());
        wait(world, client, 130);
        for info in told(world, client) {
            let numbers: Vec<u64> =
                world.namespaces(client).iter().filter(|n| n.class == info.class).map(|n| n.namespace.get()).collect();
            let of_class = |block: &BlockRecord| {
                block.copies.iter().filter(|copy| numbers.contains(&copy.namespace.get())).count() as u64
            };
            let blocks: u64 =
                files.iter().flat_map(|(at, _)| chunk(world, *at).blocks).map(|block| of_class(&block)).sum();
            let is_right = if info.is_over { reasons(&info) == blocks } else { info.used <= info.bytes / 50 };
            assert!(is_right, "seed {seed}: {blocks} blocks: {info:?}");
            rests += u64::from(info.is_over);
            demoted += info.moved_blocks;
        }
        for (at, copies) in files {
            is_right(world, at, copies.into(), NamespaceId(9));
        }
    }
    assert!(rests > 20 && demoted > 200, "{rests} classes stay over their mark, {demoted} blocks were demoted");
}
