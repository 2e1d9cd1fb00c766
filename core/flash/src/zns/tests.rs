//! The machine against its model: random long sequences, and every sequence over the smallest namespaces. Times in exact numbers.

use super::model::{ZoneOp, ZonesModel, apply};
use super::zones::Zone;
use super::*;
use crate::preset::Preset;
use crate::{PageAddress, UNIT};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_units::{Bytes, Nanos};

const ACTIONS: [ZoneAction; 5] =
    [ZoneAction::Open, ZoneAction::Close, ZoneAction::Finish, ZoneAction::Reset, ZoneAction::Offline];

pub(super) fn config() -> impl Strategy<Value = ZoneConfig> {
    let zrwa = (1u32..4, 1u32..4, 1u32..4).prop_map(|(n, granularity, areas)| Zrwa {
        size: n * granularity,
        granularity,
        areas,
    });
    (1u32..9, 1u32..40, 0u32..9, (0u32..4, 0u32..4), proptest::option::of(zrwa), any::<bool>()).prop_map(
        |(zones, capacity, gap, (max_open, more), zrwa, read_across)| {
            let zrwa = zrwa.filter(|z| z.size <= capacity / 2);
            let max_active = if more == 0 { 0 } else { max_open + more };
            ZoneConfig {
                zones,
                size: capacity + gap,
                capacity,
                max_open,
                max_active,
                zrwa,
                read_across,
                extension: (gap % 2) as u8,
            }
        },
    )
}

/// Most steps hit something: writes go to the write pointer, or near it.
pub(super) fn step(zones: &Zones, (kind, zone, a, b): (u8, u32, u32, u32)) -> ZoneOp {
    let n = zones.config().zones;
    let zone = zone % (n + 1);
    let wp = zones.get(zone).map_or(0, |z| z.wp);
    let start = zones.start(zone);
    let which = if a % 5 == 0 { Selection::All } else { Selection::One(zone) };
    match kind % 17 {
        0..=4 => ZoneOp::Write(start + u64::from(wp), b % 12),
        5 => ZoneOp::Write(start + u64::from((wp + a % 6).saturating_sub(a % 3)), b % 12),
        6..=8 => ZoneOp::Append(start + u64::from(a % 16 / 15), b % 12),
        9 => ZoneOp::Read(start + u64::from(a % 50), b % 60),
        10..=12 => ZoneOp::Manage(ACTIONS[b as usize % 5], which),
        13 => ZoneOp::OpenZrwa(zone),
        14 => ZoneOp::FlushZrwa(start + u64::from(wp + a % 8)),
        15 => ZoneOp::Extend(zone),
        _ => ZoneOp::Degrade(zone, b % 2 == 0),
    }
}

fn same(zones: &Zones, model: &ZonesModel) {
    assert!(zones.iter().eq(model.zones.iter().map(|z| z.0)), "{zones:?}\n{model:?}");
}

proptest! {
    #[test]
    fn the_machine_is_its_model(config in config(), steps in proptest::collection::vec((any::<u8>(), any::<u32>(), any::<u32>(), any::<u32>()), 0..200)) {
        let (mut zones, mut model) = (Zones::new(config).unwrap(), ZonesModel::new(config));
        for raw in steps {
            let step = step(&zones, raw);
            prop_assert_eq!(apply(&mut zones, step), model.apply(step), "{:?}", step);
            zones.check();
            same(&zones, &model);
        }
    }

    #[test]
    fn a_drive_takes_what_its_zones_take(config in config(), per_zone: bool, early: bool, buffer in 0u64..200_000, dies in 0u32..3,
            steps in proptest::collection::vec((any::<u8>(), any::<u32>(), any::<u32>(), any::<u32>()), 0..100)) {
        let parts = Preset::FemuBbssd.parts(false);
        let mut drive = ZonedConfig::of(&parts, config, 12);
        drive.geometry = crate::Geometry { channels: 2, ways: 1, planes: 2, blocks: 64, pages: 4, page_bytes: 8192, ..drive.geometry };
        drive.buffer = if per_zone { ZonedBuffer::PerZone(Bytes(buffer)) } else { ZonedBuffer::Shared(Bytes(buffer)) };
        (drive.early, drive.dies) = (early, dies);
        let mut drive = ZonedFlash::new(&drive).unwrap();
        let mut zones = Zones::new(config).unwrap();
        let mut now = Nanos(0);
        for raw in steps {
            now.0 += u64::from(raw.1 % 300_000);
            let step = step(&zones, raw);
            let expected = apply(&mut zones, step);
            let (got, done) = match step {
                ZoneOp::Write(start, blocks) => split(drive.write(now, start, blocks).map(|p| (p.start, p.done))),
                ZoneOp::Append(start, blocks) => split(drive.append(now, start, blocks).map(|p| (p.start, p.done))),
                ZoneOp::Read(start, blocks) => split(drive.read(now, start, blocks).map(|t| (0, t))),
                ZoneOp::Manage(action, which) => split(drive.manage(now, action, which).map(|t| (0, t))),
                ZoneOp::OpenZrwa(zone) => split(drive.open_with_zrwa(now, zone).map(|t| (0, t))),
                ZoneOp::FlushZrwa(last) => split(drive.flush_zrwa(now, last).map(|t| (0, t))),
                ZoneOp::Extend(zone) => split(drive.set_extension(now, zone).map(|t| (0, t))),
                ZoneOp::Degrade(zone, offline) => split(drive.degrade(zone, offline).map(|()| (0, now))),
            };
            prop_assert_eq!(got, expected, "{:?}", step);
            prop_assert!(done.is_none_or(|done| done >= now), "{:?} is done before it begins", step);
            drive.check();
        }
    }

    #[test]
    fn zones_do_not_share_pages(dies in 0u32..5, zones in 1u32..9, units in 1u32..70, planes in 1u32..4, blocks in 20u32..40) {
        let geometry = crate::Geometry {
            channels: 2, ways: 2, planes, blocks, pages: 3, page_bytes: 2 * UNIT, ..Preset::FemuBbssd.parts(false).geometry
        };
        let shape = geometry.shape().unwrap();
        let fit = shape.zones_that_fit(units, dies);
        let stripe = match Stripe::new(&shape, zones, units, dies) {
            Ok(stripe) => stripe,
            Err(StripeError::Dies { .. }) => { prop_assert!(dies == 3 && fit == 0); return Ok(()); }
            Err(StripeError::TooSmall { fit: said, .. }) => { prop_assert!(said < zones && said == fit); return Ok(()); }
        };
        prop_assert!(fit >= zones);
        let mut seen = BTreeSet::new();
        let mut blocks = BTreeSet::new();
        for zone in 0..zones {
            let mut own = BTreeSet::new();
            for unit in 0..units {
                let (place, part) = stripe.place(zone, unit);
                let PageAddress { plane, block, page } = place;
                prop_assert!(plane < shape.planes() && block < shape.blocks_per_plane() && page < 3);
                prop_assert!(seen.insert(shape.unit(place, part).0), "no two units in one place");
                own.insert((plane, block));
            }
            let mut listed = BTreeSet::new();
            stripe.blocks_of(zone, units, |plane, block| assert!(listed.insert((plane, block)), "each block once"));
            prop_assert_eq!(&listed, &own);
            prop_assert!(own.iter().all(|b| blocks.insert(*b)), "no block belongs to two zones");
        }
    }
}

fn split(answer: Result<(u64, Nanos), ZoneError>) -> (Result<u64, ZoneError>, Option<Nanos>) {
    (answer.map(|a| a.0), answer.ok().map(|a| a.1))
}

/// Every reachable state of small namespaces, and every step from each: the machine does what its model does. How many
/// states there are.
fn explore(config: ZoneConfig) -> usize {
    let mut steps = vec![ZoneOp::FlushZrwa(config.blocks()), ZoneOp::Read(0, config.size + 1)];
    for zone in 0..config.zones {
        let start = u64::from(zone * config.size);
        for at in 0..config.size {
            steps.extend((1..=config.capacity).map(|n| ZoneOp::Write(start + u64::from(at), n)));
            steps.push(ZoneOp::FlushZrwa(start + u64::from(at)));
        }
        steps.extend((0..=config.capacity).map(|n| ZoneOp::Append(start, n)));
        steps.push(ZoneOp::Read(start, 1));
        steps.extend([ZoneOp::OpenZrwa(zone), ZoneOp::Extend(zone)]);
        steps.extend([ZoneOp::Degrade(zone, false), ZoneOp::Degrade(zone, true)]);
        steps.extend(ACTIONS.map(|action| ZoneOp::Manage(action, Selection::One(zone))));
    }
    steps.extend(ACTIONS.map(|action| ZoneOp::Manage(action, Selection::All)));
    let key = |zones: &Zones| {
        let all = zones.iter().map(|Zone { state, wp, zrwa, extended }| (state as u8, wp, zrwa, extended));
        let all: Vec<(u8, u32, bool, bool)> = all.collect();
        (all, zones.implicit.iter().copied().collect::<Vec<u32>>())
    };
    let first = (Zones::new(config).unwrap(), ZonesModel::new(config));
    let mut seen = BTreeSet::from([key(&first.0)]);
    let mut todo = vec![first];
    while let Some((zones, model)) = todo.pop() {
        for step in &steps {
            let (mut zones, mut model) = (zones.clone(), model.clone());
            let before = key(&zones);
            let answer = apply(&mut zones, *step);
            assert_eq!(answer, model.apply(*step), "{step:?} in {zones:?}");
            zones.check();
            same(&zones, &model);
            if answer.is_err() {
                assert_eq!(key(&zones), before, "{step:?} fails and changes nothing");
            } else if seen.insert(key(&zones)) {
                todo.push((zones, model));
            }
        }
    }
    seen.len()
}

#[test]
fn every_state_of_small_namespaces() {
    let config = ZoneConfig {
        zones: 2,
        size: 3,
        capacity: 2,
        max_open: 1,
        max_active: 2,
        zrwa: None,
        read_across: false,
        extension: 0,
    };
    // Of each zone: empty, 2 wp x (implicit, explicit, closed), full, read only and offline with 3 write pointers each.
    assert!(explore(config) > 100);
    assert!(explore(ZoneConfig { zones: 3, max_active: 1, ..config }) > 100);
    assert!(explore(ZoneConfig { extension: 1, ..config }) > 300);
    assert!(explore(ZoneConfig { zones: 3, size: 2, max_open: 2, max_active: 0, read_across: true, ..config }) > 1000);
    let zrwa = Some(Zrwa { size: 2, granularity: 1, areas: 1 });
    assert!(explore(ZoneConfig { size: 4, capacity: 4, zrwa, ..config }) > 300);
    let zrwa = Some(Zrwa { size: 2, granularity: 2, areas: 2 });
    assert!(explore(ZoneConfig { size: 5, capacity: 5, max_open: 2, zrwa, ..config }) > 300);
}

/// The ZN540 with its 2 GiB zones of 2046 MiB.
fn zn540() -> ZonedFlash {
    let zones = ZoneConfig {
        zones: 8,
        size: 1 << 19,
        capacity: 2046 << 8,
        max_open: 14,
        max_active: 14,
        zrwa: None,
        read_across: false,
        extension: 0,
    };
    let mut config = ZonedConfig::of(&Preset::NvmevirtZn540.parts(false), zones, 12);
    config.buffer = ZonedBuffer::PerZone(Bytes(10 * 96 * 1024));
    config.early = true;
    ZonedFlash::new(&config).unwrap()
}

#[test]
fn the_zn540_of_nvmevirt() {
    let mut drive = zn540();
    let late = Nanos::from_secs(1);
    // 4 KiB into the buffer: 5.6 us, 0.6 us a unit, 32 x 40 ns of link.
    let unit = |drive: &mut ZonedFlash, now| drive.append(now, 0, 1).unwrap().done.0 - now.0;
    assert_eq!(unit(&mut drive, Nanos(0)), 5_600 + 600 + 32 * 40);
    // Out of the buffer: firmware and link.
    assert_eq!(drive.read(late, 0, 1).unwrap().0 - late.0, 20_000 + 32 * 40);
    // The one-shot page of 96 KiB fills: it is programmed, and read from flash from then on.
    (1..24).for_each(|_| {
        unit(&mut drive, late);
    });
    assert_eq!(drive.work(), (1, 0));
    let later = Nanos::from_secs(2);
    assert_eq!(drive.read(later, 0, 1).unwrap().0 - later.0, 20_000 + 50_000 + 32 * 271 + 32 * 40);
    // A reset erases the one block that was written.
    let reset = drive.manage(Nanos::from_secs(3), ZoneAction::Reset, Selection::One(0)).unwrap();
    assert_eq!((reset, drive.work()), (Nanos(3_003_000_000), (1, 1)));
    drive.check();
}

#[test]
fn a_full_buffer_writes_at_the_speed_of_the_dies() {
    let mut drive = zn540();
    let (mut now, blocks) = (Nanos(0), 24);
    let pages = 32 * 20;
    for i in 0..pages {
        now = drive.write(now, i * u64::from(blocks), blocks).unwrap().done;
    }
    // A page takes its die 96 KiB of channel and 561 us; a closed loop over 10 pages of buffer keeps 10 dies busy.
    let page = 561_000 + 768 * 271;
    let expected = pages * page / 10;
    assert!((now.0 as f64 / expected as f64 - 1.0).abs() < 0.1, "{now} for about {}", Nanos(expected));
    assert_eq!(drive.work(), (pages, 0));
}

#[test]
fn femu_writes_a_zone_over_all_planes_and_finish_pads() {
    // F zns.h:30-46: SLC 4 us, 75 us, 2 ms; two channels of four LUNs of two planes.
    let mut parts = Preset::FemuBasic.parts(false);
    parts.geometry = crate::Geometry {
        channels: 2,
        ways: 4,
        planes: 2,
        blocks: 32,
        pages: 128,
        page_bytes: 16384,
        cell: crate::CellType::Slc,
        ..parts.geometry
    };
    parts.timing.read = crate::uniform(4_000);
    parts.timing.program = crate::uniform(75_000);
    parts.timing.erase = Nanos(2_000_000);
    parts.timing.channel = crate::Wire::INSTANT;
    let zones = ZoneConfig {
        zones: 32,
        size: 8192,
        capacity: 8192,
        max_open: 0,
        max_active: 0,
        zrwa: None,
        read_across: true,
        extension: 0,
    };
    let mut drive = ZonedFlash::new(&ZonedConfig::of(&parts, zones, 12)).unwrap();
    // 16 pages of 16 KiB: all planes program at once.
    assert_eq!(drive.write(Nanos(0), 0, 64).unwrap().done, Nanos(75_000));
    assert_eq!(drive.work().0, 8, "two planes in one program");
    let at = Nanos(1_000_000);
    assert_eq!(drive.read(at, 0, 64).unwrap(), Nanos(1_004_000));
    // Two blocks of the next page stay in the buffer until the zone is finished.
    assert_eq!(drive.write(at, 64, 2).unwrap().done, at);
    assert_eq!(drive.manage(at, ZoneAction::Finish, Selection::One(0)).unwrap(), Nanos(1_079_000));
    let at = Nanos(2_000_000);
    assert_eq!(drive.manage(at, ZoneAction::Reset, Selection::All).unwrap(), Nanos(4_000_000));
    assert_eq!(drive.work(), (9, 16), "a block of each plane");
    assert_eq!(drive.write(at, 0, 4).unwrap().done, at);
    drive.check();
}

#[test]
fn numbers_that_do_not_go_together() {
    let good = ZoneConfig {
        zones: 4,
        size: 8,
        capacity: 8,
        max_open: 2,
        max_active: 3,
        zrwa: None,
        read_across: false,
        extension: 0,
    };
    assert!(Zones::new(good).is_ok());
    let bad = |config: ZoneConfig, says: &str| {
        let error = Zones::new(config).unwrap_err();
        assert!(alloc::format!("{error}").contains(says), "{error}");
    };
    bad(ZoneConfig { zones: 0, ..good }, "no zone");
    bad(ZoneConfig { capacity: 9, ..good }, "more than its size of 8");
    bad(ZoneConfig { max_open: 4, ..good }, "only 3 active");
    let zrwa = |size, granularity, areas| ZoneConfig { zrwa: Some(Zrwa { size, granularity, areas }), ..good };
    bad(zrwa(4, 0, 1), "granularity of a block");
    bad(zrwa(4, 3, 1), "multiple of its granularity");
    bad(zrwa(8, 4, 1), "half");
    let mut config = ZonedConfig::of(
        &Preset::FemuBbssd.parts(false),
        ZoneConfig { zones: 300, size: 1 << 14, capacity: 1 << 14, ..good },
        12,
    );
    assert_eq!(
        ZonedFlash::new(&config).unwrap_err(),
        ZonedError::Stripe(StripeError::TooSmall { zones: 300, fit: 256 })
    );
    config.dies = 5;
    assert_eq!(ZonedFlash::new(&config).unwrap_err(), ZonedError::Stripe(StripeError::Dies { wanted: 5, dies: 64 }));
    config.zones = ZoneConfig { size: u32::MAX, capacity: u32::MAX, ..good };
    assert_eq!(ZonedFlash::new(&config).unwrap_err(), ZonedError::ZoneTooLarge);
}
