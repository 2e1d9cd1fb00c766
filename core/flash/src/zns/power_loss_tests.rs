//! Zones are found again from their words, after every store and every loss of power.

use super::tests::{config, step};
use super::*;
use crate::preset::Preset;
use crate::region::{RegionError, RegionImage, RegionWord};
use crate::zns::model::{ZoneOp, apply};
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_units::Nanos;
use weir_units::rng::SplitMix64;

type Raw = (u8, u32, u32, u32);

fn raws(n: usize) -> impl Strategy<Value = Vec<(Raw, u32)>> {
    proptest::collection::vec(((any::<u8>(), any::<u32>(), any::<u32>(), any::<u32>()), any::<u32>()), 0..n)
}

fn image(words: &[u64], wear: &[u32], extensions: &[u8]) -> RegionImage {
    RegionImage { words: words.to_vec().leak(), wear: wear.to_vec().leak(), extensions: extensions.to_vec().leak() }
}

/// Zones that are found from these words.
fn found(config: ZoneConfig, words: &[u64]) -> Zones {
    let mut zones = Zones::new(config).unwrap();
    let extensions = vec![0; config.extension_bytes() as usize];
    zones.adopt_image(image(words, &[], &extensions)).unwrap();
    zones.check();
    zones
}

/// What a zone may be after it lost power: by the standard's rule, from what it was and where its data ends.
fn judge(zones: &Zones, zone: u32, was: Zone, acked: u32, is: Zone) {
    let config = zones.config();
    let (state, wp) = (is.state, is.wp);
    assert!(!state.is_open(), "{was:?} {is:?}");
    match was.state {
        ZoneState::ReadOnly | ZoneState::Offline => assert_eq!(state, was.state),
        ZoneState::Empty => assert_eq!(is, Zone { state: ZoneState::Empty, wp: 0, zrwa: false, extended: false }),
        ZoneState::Full if state == ZoneState::Full => assert_eq!(wp, config.capacity),
        _ => {
            assert!((acked..=was.wp).contains(&wp), "zone {zone}: {was:?}, {acked} blocks were completed, now {is:?}");
            let empty = wp == 0 && !was.extended;
            assert_eq!(state, if empty { ZoneState::Empty } else { ZoneState::Closed }, "{was:?} {is:?}");
            assert_eq!(is.zrwa, was.zrwa && !empty, "{was:?} {is:?}");
        }
    }
    assert!(is.extended == (was.extended && state != ZoneState::Offline), "{was:?} {is:?}");
}

proptest! {
    /// Kill after every store: each zone is found as it was before or after the command, and completed writes are there.
    #[test]
    fn every_store_can_be_the_last(config in config(), steps in raws(120)) {
        let mut zones = Zones::new(config).unwrap();
        // By zone: what is under way, and the end of what was completed.
        let mut under_way: Vec<(u32, u32)> = Vec::new();
        let mut acked: BTreeMap<u32, u32> = BTreeMap::new();
        for (raw, land) in steps {
            let before = zones.clone();
            let step = step(&zones, raw);
            let selected = |zones: &Zones| (0..config.zones).filter(|z| zones.get(*z) != before.get(*z)).collect::<Vec<_>>();
            let busy = |zone: u32| under_way.iter().any(|(z, _)| *z == zone);
            // A reset waits for the writes of its zones.
            if matches!(step, ZoneOp::Manage(ZoneAction::Reset, _)) && (0..config.zones).any(busy) {
                continue;
            }
            let answer = apply(&mut zones, step);
            zones.check();
            let changed = selected(&zones);
            if answer.is_ok() && matches!(step, ZoneOp::Write(..) | ZoneOp::Append(..)) {
                under_way.extend(changed.iter().map(|z| (*z, zones.get(*z).unwrap().wp)));
            }
            if let (Ok(_), ZoneOp::FlushZrwa(_)) = (answer, step) {
                changed.iter().for_each(|z| {
                    acked.insert(*z, zones.get(*z).unwrap().wp);
                });
            }
            if !under_way.is_empty() && land % 3 > 0 {
                let (zone, wp) = under_way.swap_remove(land as usize / 3 % under_way.len());
                zones.landed(zone, wp, false);
                let acked = acked.entry(zone).or_default();
                *acked = (*acked).max(wp);
            }
            for zone in 0..config.zones {
                if zones.get(zone).unwrap().state == ZoneState::Empty {
                    acked.remove(&zone);
                }
            }
            let completed = |zone: u32| acked.get(&zone).copied().unwrap_or_default();
            // Every mixture of old and new words, in the order of the zones.
            let mut words = before.words.to_vec();
            for zone in 0..=config.zones as usize {
                let once = found(config, &words);
                for i in 0..config.zones {
                    let old_one = (i as usize) >= zone;
                    let was = if old_one { &before } else { &zones }.get(i).unwrap();
                    let end = if old_one { 0 } else { completed(i) };
                    judge(&zones, i, was, end, once.get(i).unwrap());
                }
                let twice = found(config, &once.words);
                prop_assert!(once.iter().eq(twice.iter()), "{:?} {:?}", once, twice);
                if let Some(word) = words.get_mut(zone) {
                    *word = zones.words[zone];
                }
            }
        }
    }

    /// Of a volatile buffer a part is lost: never what a flush has covered, always from the end of the zone's data.
    #[test]
    fn a_prefix_survives(config in config(), steps in raws(150), seed: u64) {
        let mut zones = Zones::new(config).unwrap();
        zones.set_volatile();
        let mut rng = SplitMix64::new(seed);
        for (raw, what) in steps {
            let step = step(&zones, raw);
            let _ = apply(&mut zones, step);
            for zone in 0..config.zones {
                zones.landed(zone, u32::MAX, what % 7 == 1);
            }
            zones.check();
            if what % 11 == 2 {
                zones.flush();
            }
            if what % 13 == 3 {
                let before = zones.clone();
                let programmed = |zone: u32| if zone % 2 == 0 { 0 } else { 3 };
                let loss = zones.power_on(Some(&mut rng), programmed);
                zones.check();
                let mut lost = 0;
                for zone in 0..config.zones {
                    let (was, kept) = (before.get(zone).unwrap(), before.kept(zone));
                    let is = zones.get(zone).unwrap();
                    let safe = if was.zrwa { kept.end } else { before.flushed[zone as usize].max(programmed(zone)) };
                    judge(&zones, zone, was, safe.min(kept.end), is);
                    let end = zones.kept(zone).end;
                    prop_assert!(end <= kept.end && end >= safe.min(kept.end));
                    lost += u64::from(kept.end - end);
                    let gone = loss.gone.iter().find(|(z, _)| *z == zone).map(|(_, from)| *from);
                    prop_assert!(gone.is_none_or(|from| from >= end), "what is below is kept");
                    prop_assert!(end == was.wp || was.wp == config.capacity || gone.is_some() || is.zrwa, "{:?} {:?}", was, is);
                }
                prop_assert_eq!(loss.lost, lost);
            }
        }
    }

    /// Whatever is found, the zones are whole, or the drive says that they are too many.
    #[test]
    fn damage_leaves_zones(config in config(), words in proptest::collection::vec(any::<u64>(), 8), masked: bool) {
        let mut zones = Zones::new(config).unwrap();
        let mask = if masked { 0x0000_070f_0000_003f } else { u64::MAX };
        let words: Vec<u64> = (0..config.zones as usize).map(|i| words[i % 8] & mask).collect();
        let extensions = vec![0; config.extension_bytes() as usize];
        match zones.adopt_image(image(&words, &[], &extensions)) {
            Ok(()) => zones.check(),
            Err(RegionError::Active { found, limit }) => prop_assert!(found > limit && limit == config.max_active),
            Err(e) => panic!("{e}"),
        }
    }

    /// The drive behind them goes on: its buffer holds what no page holds, its wear is what it was.
    #[test]
    fn a_drive_goes_on(config in config(), per_zone: bool, volatile: bool, steps in raws(150), seed: u64) {
        let mut flash = ZonedConfig::of(&Preset::FemuBbssd.parts(false), config, 12);
        flash.geometry = crate::Geometry { channels: 2, ways: 1, planes: 2, blocks: 64, pages: 4, page_bytes: 8192, ..flash.geometry };
        let buffer = weir_units::Bytes(100_000);
        flash.buffer = if per_zone { ZonedBuffer::PerZone(buffer) } else { ZonedBuffer::Shared(buffer) };
        let mut drive = ZonedFlash::new(&flash).unwrap();
        if volatile {
            drive.zones_mut().set_volatile();
        }
        let (mut now, mut rng) = (Nanos(0), SplitMix64::new(seed));
        for (raw, what) in steps {
            now.0 += u64::from(raw.1 % 300_000);
            let landed = |drive: &mut ZonedFlash, p: Placed| drive.zones_mut().landed(p.zone, p.wp, false);
            match step(drive.zones(), raw) {
                ZoneOp::Write(start, blocks) => drive.write(now, start, blocks).into_iter().for_each(|p| landed(&mut drive, p)),
                ZoneOp::Append(start, blocks) => drive.append(now, start, blocks).into_iter().for_each(|p| landed(&mut drive, p)),
                ZoneOp::Manage(action, which) => drop(drive.manage(now, action, which)),
                ZoneOp::OpenZrwa(zone) => drop(drive.open_with_zrwa(now, zone)),
                ZoneOp::FlushZrwa(last) => drop(drive.flush_zrwa(now, last)),
                ZoneOp::Extend(zone) => drop(drive.set_extension(now, zone)),
                ZoneOp::Degrade(zone, offline) => drop(drive.degrade(zone, offline)),
                ZoneOp::Read(..) => {}
            }
            drive.check();
            match what % 17 {
                0 => {
                    let loss = drive.power_cut(now, &mut rng);
                    prop_assert!(volatile || loss.lost == 0);
                }
                1 => {
                    // Another process.
                    let words = drive.zones().words.to_vec();
                    let extensions = vec![0; config.extension_bytes() as usize];
                    let mut again = ZonedFlash::new(&flash).unwrap();
                    again.adopt(image(&words, drive.wear(), &extensions)).unwrap();
                    prop_assert_eq!(again.wear(), drive.wear());
                    if volatile {
                        again.zones_mut().set_volatile();
                    }
                    drive = again;
                }
                _ => {}
            }
            drive.check();
        }
    }
}

/// The words are a format: docs/reference/formats.md, "State of zones and chunks".
#[test]
fn a_word_is_what_the_table_says() {
    let kept = RegionWord { end: 0x1234_5678, state: 0xe, zrwa: false, extended: true, finished: true };
    assert_eq!(kept.word(), 0x0000_060e_1234_5678);
    assert_eq!(RegionWord::of(kept.word()), kept);
    assert_eq!(RegionWord { zrwa: true, state: 4, end: 8, ..RegionWord::default() }.word(), 0x0000_0104_0000_0008);
}

/// A loss of power between the last write's beginning and its end: the zone is not full, unless there is no room for it.
#[test]
fn a_zone_whose_last_write_is_lost_is_not_full() {
    let config = ZoneConfig {
        zones: 3,
        size: 8,
        capacity: 8,
        max_open: 1,
        max_active: 1,
        zrwa: None,
        read_across: false,
        extension: 0,
    };
    let mut zones = Zones::new(config).unwrap();
    zones.write(0, 5).unwrap();
    zones.landed(0, 5, false);
    zones.write(5, 3).unwrap();
    assert_eq!(zones.get(0).unwrap().state, ZoneState::Full);
    let mut cut = zones.clone();
    let loss = cut.power_on(None, |_| 0);
    assert_eq!((cut.get(0).unwrap().state, cut.get(0).unwrap().wp), (ZoneState::Closed, 5));
    assert_eq!((loss.lost, loss.gone), (0, vec![(0, 5)]));
    // Another zone is active by now.
    zones.write(8, 2).unwrap();
    zones.landed(1, 2, false);
    zones.power_on(None, |_| 0);
    assert_eq!([0, 1].map(|z| zones.get(z).unwrap().state), [ZoneState::Full, ZoneState::Closed]);
    assert_eq!(zones.data_end(0), 5);
    // With a limit that was lowered since, the drive says what to do.
    zones.manage(ZoneAction::Reset, Selection::One(0), |_, _| {}).unwrap();
    let mut words = zones.words.to_vec();
    words[2] = words[1];
    let error = Zones::new(config).unwrap().adopt_image(image(&words, &[], &[])).unwrap_err();
    assert_eq!(error, RegionError::Active { found: 2, limit: 1 });
    assert!(error.to_string().contains("at most 1 may be"), "{error}");
}

/// Finish says that a zone is full, also of one that was full by its writes: a volatile buffer loses nothing of it any more.
#[test]
fn a_full_zone_that_was_finished_stays_full() {
    let config = ZoneConfig {
        zones: 1,
        size: 8,
        capacity: 8,
        max_open: 1,
        max_active: 1,
        zrwa: None,
        read_across: false,
        extension: 0,
    };
    let mut fates = [Vec::new(), Vec::new()];
    for seed in 0..32 {
        for (finish, fates) in [false, true].into_iter().zip(&mut fates) {
            let mut zones = Zones::new(config).unwrap();
            zones.set_volatile();
            zones.write(0, 8).unwrap();
            zones.landed(0, 8, false);
            if finish {
                zones.manage(ZoneAction::Finish, Selection::One(0), |_, _| panic!("it was full before")).unwrap();
            }
            let loss = zones.power_on(Some(&mut SplitMix64::new(seed)), |_| 0);
            zones.check();
            assert_eq!(zones.get(0).unwrap().wp, 8 - loss.lost as u32);
            fates.push(loss.lost);
        }
    }
    assert!(fates[0].iter().any(|lost| *lost > 0), "without it the buffer is lost: {fates:?}");
    assert_eq!(fates[1], [0; 32]);
}
