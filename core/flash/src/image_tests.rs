//! The drive is found again from what survives, after every store of it.

use crate::ftl::{Cut, MapEvent};
use crate::model::{FlashModel, configs, geometry, ops, small};
use crate::*;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_units::Nanos;
use weir_units::rng::SplitMix64;

/// A drive that finds itself on what survived.
fn recovered(config: &FlashDriveConfig, cut: &Cut) -> Flash {
    let mut flash = Flash::new(config, Nanos(0)).unwrap();
    flash.ftl.map.adopt(cut);
    flash.ftl.recover();
    flash
}

/// What each programmed unit holds, and what each logical unit should read as: the number of its last program, 0 for nothing.
struct Serials {
    content: BTreeMap<u32, (u32, u64)>,
    last: Vec<u64>,
    next: u64,
}

impl Serials {
    fn of(flash: &Flash) -> Serials {
        let map = &flash.ftl.map;
        let mut serials = Serials { content: BTreeMap::new(), last: vec![0; map.logical() as usize], next: 1 };
        for lpn in (0..map.logical()).filter(|l| map.unit(*l) != crate::ftl::NONE) {
            serials.program(lpn, map.unit(lpn));
        }
        serials
    }

    fn program(&mut self, lpn: u32, unit: u32) {
        self.content.insert(unit, (lpn, self.next));
        self.last[lpn as usize] = self.next;
        self.next += 1;
    }

    fn play(&mut self, shape: &Shape, event: MapEvent) {
        match event {
            MapEvent::Program { lpn, unit } => self.program(lpn, unit),
            MapEvent::Copy { from, to } => {
                let content = self.content[&from];
                self.content.insert(to, content);
            }
            MapEvent::Erase { block } => {
                let first = block * shape.units_per_block();
                self.content.retain(|unit, _| !(first..first + shape.units_per_block()).contains(unit));
            }
        }
    }

    fn found(&self, flash: &Flash, lpn: u32) -> u64 {
        let unit = flash.ftl.map.unit(lpn);
        if unit == crate::ftl::NONE {
            return 0;
        }
        let (of, serial) = self.content.get(&unit).copied().unwrap_or_else(|| panic!("{lpn}: unit {unit} is empty"));
        assert_eq!(of, lpn, "unit {unit}");
        serial
    }
}

/// A drive that goes on from what a process has left that died there.
fn resumed(config: &FlashDriveConfig, cut: &Cut) -> Flash {
    let mut flash = Flash::new(config, Nanos(0)).unwrap();
    flash.ftl.map.adopt_all(cut);
    assert_eq!(flash.ftl.resume(), None, "the map is gone on from");
    flash
}

/// What the spare areas say, page by page, is what the map says that was gone on from.
fn agrees_with_the_spare_areas(config: &FlashDriveConfig, flash: &Flash) {
    let (map, found) = (&flash.ftl.map, recovered(config, &flash.ftl.map.cut()));
    assert_eq!(map.l2p[..], found.ftl.map.l2p[..], "the page map");
    for block in 0..flash.shape().blocks() {
        assert_eq!(map.valid_of(block), found.ftl.map.valid_of(block), "valid units of block {block}");
    }
    assert_eq!(flash.ftl.bad, found.ftl.bad);
    assert_eq!(flash.wear(), found.wear());
}

/// Every moment of a command at which its process can die.
fn die_everywhere(config: &FlashDriveConfig, cuts: &[Cut], mut found: impl FnMut(usize, &Flash)) {
    for (i, cut) in cuts.iter().enumerate() {
        let mut again = resumed(config, cut);
        again.check();
        agrees_with_the_spare_areas(config, &again);
        found(i, &again);
        if i % 5 == 0 {
            // The next one dies while it goes on.
            let mut next = Flash::new(config, Nanos(0)).unwrap();
            next.ftl.map.adopt_all(cut);
            next.ftl.map.cuts = Some(Vec::new());
            next.ftl.resume();
            for cut in next.ftl.map.cuts.take().unwrap_or_default() {
                let last = resumed(config, &cut);
                last.check();
                assert_eq!(last.ftl.map.l2p[..], again.ftl.map.l2p[..], "by two that died");
            }
        }
        again.submit(Nanos(0), FlashOp::Write { fua: true }, 0, 8);
        again.check();
    }
}

proptest! {
    /// The power goes after every single store of a command: what the flash had before the command is there, or what the
    /// command has put in its place.
    #[test]
    fn every_store_can_be_the_last(
        config in configs(),
        steady in any::<bool>(),
        ops in proptest::collection::vec((ops(), 0..8u32), 1..60),
    ) {
        let mut flash = Flash::new(&config, Nanos(0)).unwrap();
        flash.precondition(if steady { Precondition::Steady } else { Precondition::Fresh });
        flash.ftl.map.trace.clear();
        let mut serials = Serials::of(&flash);
        let mut now = Nanos(0);
        for ((op, at, units, gap), cut) in ops {
            let lpn = (u64::from(at) * u64::from(flash.units()) / 1_000_000) as u32;
            now = now.saturating_add(Nanos(u64::from(gap)));
            let before = serials.last.clone();
            flash.ftl.map.cuts = (cut == 0).then(Vec::new);
            flash.submit(now, op, lpn, units);
            let events = core::mem::take(&mut flash.ftl.map.trace);
            let mut played = 0;
            for cut in flash.ftl.map.cuts.take().unwrap_or_default() {
                while played < cut.events {
                    serials.play(flash.shape(), events[played]);
                    played += 1;
                }
                let mut again = recovered(&config, &cut);
                again.check();
                let trims = matches!(op, FlashOp::Trim | FlashOp::WriteZeroes);
                for i in 0..flash.units() {
                    let (was, is) = (before[i as usize], serials.last[i as usize]);
                    let found = serials.found(&again, i);
                    let gone = found == 0 && trims && (lpn..lpn + units).contains(&i);
                    prop_assert!(gone || (was..=is).contains(&found), "{} has {}, not {} to {}", i, found, was, is);
                }
                // What a recovery stores can be recovered from as well.
                let map = again.ftl.map.l2p.to_vec();
                let twice = recovered(&config, &again.ftl.map.cut());
                prop_assert_eq!(&twice.ftl.map.l2p[..], &map[..]);
                again.submit(now, FlashOp::Write { fua: true }, 0, 8);
                again.check();
            }
            for event in &events[played..] {
                serials.play(flash.shape(), *event);
            }
            for i in lpn..(lpn + units).min(flash.units()) {
                if flash.ftl.map.unit(i) == crate::ftl::NONE {
                    serials.last[i as usize] = 0;
                }
            }
        }
    }

    /// A process dies after every single store of a command: the next one goes on from its map, which says what the spare areas say, and
    /// has of each unit what was there before or what the command has put in its place.
    #[test]
    fn a_map_is_gone_on_from_after_every_store(
        config in configs(),
        steady in any::<bool>(),
        ops in proptest::collection::vec((ops(), 0..8u32), 1..60),
    ) {
        let mut flash = Flash::new(&config, Nanos(0)).unwrap();
        flash.precondition(if steady { Precondition::Steady } else { Precondition::Fresh });
        flash.ftl.map.trace.clear();
        flash.ftl.map.keep_undo();
        let mut serials = Serials::of(&flash);
        let mut now = Nanos(0);
        for ((op, at, units, gap), cut) in ops {
            let lpn = (u64::from(at) * u64::from(flash.units()) / 1_000_000) as u32;
            now = now.saturating_add(Nanos(u64::from(gap)));
            let before = serials.last.clone();
            flash.ftl.map.cuts = (cut == 0).then(Vec::new);
            flash.submit(now, op, lpn, units);
            let events = core::mem::take(&mut flash.ftl.map.trace);
            let cuts = flash.ftl.map.cuts.take().unwrap_or_default();
            let mut played = 0;
            let host = flash.units();
            die_everywhere(&config, &cuts, |i, again| {
                while played < cuts[i].events {
                    serials.play(flash.shape(), events[played]);
                    played += 1;
                }
                let trims = matches!(op, FlashOp::Trim | FlashOp::WriteZeroes);
                for i in 0..host {
                    let (was, is) = (before[i as usize], serials.last[i as usize]);
                    let found = serials.found(again, i);
                    let gone = found == 0 && trims && (lpn..lpn + units).contains(&i);
                    assert!(gone || (was..=is).contains(&found), "{i} has {found}, not {was} to {is}");
                }
            });
            for event in &events[played..] {
                serials.play(flash.shape(), *event);
            }
            for i in lpn..(lpn + units).min(flash.units()) {
                if flash.ftl.map.unit(i) == crate::ftl::NONE {
                    serials.last[i as usize] = 0;
                }
            }
        }
    }

    /// Whatever is found, the drive is whole and works.
    #[test]
    fn damage_leaves_a_drive(
        config in configs(),
        writes in 0..2_000u32,
        damage in proptest::collection::vec((0..5u8, any::<u32>(), 1..200u32, prop_oneof![
            Just(0u64), Just(u64::MAX), 0..100u64, any::<u64>(),
        ]), 1..12),
    ) {
        let mut flash = Flash::new(&config, Nanos(0)).unwrap();
        let mut rng = SplitMix64::new(u64::from(writes));
        for i in 0..writes {
            flash.submit(Nanos(u64::from(i)), FlashOp::Write { fua: false }, rng.below(flash.units()), 1);
        }
        let mut cut = flash.ftl.map.cut();
        for (array, at, len, value) in damage {
            fn smear<T: Copy>(array: &mut [T], at: u32, len: u32, value: T) {
                let at = at as usize % array.len();
                let end = (at + len as usize).min(array.len());
                array[at..end].fill(value);
            }
            match array {
                0 => smear(&mut cut.p2l, at, len, value as u32),
                1 => smear(&mut cut.sequence, at, len, value),
                2 => smear(&mut cut.trimmed, at, len, value),
                3 => smear(&mut cut.erased_at, at, len, value),
                _ => smear(&mut cut.state, at, len % 7, value as u32),
            }
        }
        let mut found = recovered(&config, &cut);
        if found.ftl.usable.contains(&0) {
            // All blocks of a plane are marked as bad.
            return Ok(());
        }
        found.check();
        found.ftl.map.trace.clear();
        for i in 0..500u64 {
            found.submit(Nanos(i), FlashOp::Write { fua: false }, rng.below(flash.units()), 1);
            found.ftl.map.trace.clear();
        }
        found.check();
    }
}

/// What a drive has left is found by one that separates in another way, as long as it has as many streams.
#[test]
fn separations_read_what_others_have_left() {
    let mut config = small(geometry(2, 1, 24, 8, 2), 0.6);
    config.ftl.streams = 2;
    let write = |flash: &mut Flash, seed| {
        let mut rng = SplitMix64::new(seed);
        for i in 0..4_000u64 {
            let part = if rng.below(4) > 0 { flash.units() / 8 } else { flash.units() };
            flash.submit(Nanos(i * 1_000_000), FlashOp::Write { fua: false }, rng.below(part), 1);
            flash.ftl.map.trace.clear();
        }
        flash.check();
        assert_eq!(flash.stats().refused, 0);
    };
    let keys = config.image_keys().unwrap();
    for before in Separate::ALL {
        for after in Separate::ALL {
            config.ftl.separation = *before;
            let mut flash = Flash::new(&config, Nanos(0)).unwrap();
            write(&mut flash, 1);
            config.ftl.separation = *after;
            assert_eq!(config.image_keys().unwrap(), keys);
            let mut found = recovered(&config, &flash.ftl.map.cut());
            found.check();
            assert_eq!(found.ftl.map.l2p[..], flash.ftl.map.l2p[..], "{before} found by {after}");
            write(&mut found, 2);
        }
    }
}

/// On arrays that are lent, through the public way: map, wear and bad blocks are as they were.
#[test]
fn a_drive_comes_back_on_its_image() {
    let mut config = small(geometry(2, 2, 24, 8, 2), 1.0);
    config.ftl.spare = false;
    config.ftl.factory_bad = 30_000;
    config.ftl.wear.endurance = 100;
    let size = ImageSize::of(&config).unwrap();
    let lend = || Image {
        p2l: vec![0; size.units as usize].leak(),
        sequence: vec![0; size.pages as usize].leak(),
        trimmed: vec![0; size.mapped as usize].leak(),
        erases: vec![0; size.blocks as usize].leak(),
        erased_at: vec![0; size.blocks as usize].leak(),
        state: vec![0; size.blocks as usize].leak(),
        ..Image::default()
    };
    let mut flash = Flash::create(&config, Nanos(0), lend()).unwrap();
    let mut model = FlashModel::adopt(&mut flash);
    let mut rng = SplitMix64::new(3);
    for i in 0..5_000 {
        let op = if i % 7 == 0 { FlashOp::Trim } else { FlashOp::Write { fua: false } };
        let lpn = rng.below(flash.units());
        model.submit(&mut flash, Nanos(i * 1000), op, lpn, 1);
    }
    let (wear, mapped) = (flash.wear(), flash.ftl.map.l2p.to_vec());
    assert!(wear.max > 3, "{wear:?}");
    let cut = flash.ftl.map.cut();
    drop(flash);
    let mut image = lend();
    image.p2l.copy_from_slice(&cut.p2l);
    image.sequence.copy_from_slice(&cut.sequence);
    image.trimmed.copy_from_slice(&cut.trimmed);
    image.erases.copy_from_slice(&cut.erases);
    image.erased_at.copy_from_slice(&cut.erased_at);
    image.state.copy_from_slice(&cut.state);
    let short = Image { erases: Box::leak(Box::new([0; 3])), ..Image::default() };
    assert!(Flash::recover(&config, Nanos(0), short).is_err());
    let (mut again, pages) = Flash::recover(&config, Nanos(0), core::mem::take(&mut image)).unwrap();
    assert!(pages > 0);
    assert_eq!((again.wear(), &again.ftl.map.l2p[..]), (wear, &mapped[..]));
    for i in 0..1_000 {
        let lpn = rng.below(again.units());
        model.submit(&mut again, Nanos(i * 1000), FlashOp::Write { fua: false }, lpn, 1);
    }
    model.check(&again);
}

/// Who lends arrays of 50 MB hears of it while they are gone through, and at the end.
#[test]
fn a_lender_can_take_memory_back() {
    use core::sync::atomic::{AtomicU32, Ordering};
    let mut config = small(geometry(4, 4, 512, 256, 1), 0.07);
    config.ftl.spare = false;
    let size = ImageSize::of(&config).unwrap();
    let heard: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
    let lender = Lender::new(|| {
        heard.fetch_add(1, Ordering::Relaxed);
    });
    let image = Image {
        p2l: vec![0; size.units as usize].leak(),
        sequence: vec![0; size.pages as usize].leak(),
        trimmed: vec![0; size.mapped as usize].leak(),
        erases: vec![0; size.blocks as usize].leak(),
        erased_at: vec![0; size.blocks as usize].leak(),
        state: vec![0; size.blocks as usize].leak(),
        lender,
        mapped: None,
    };
    let times = || heard.swap(0, Ordering::Relaxed);
    let mut flash = Flash::create(&config, Nanos(0), image).unwrap();
    assert_eq!(times(), 0, "nothing was looked at");
    flash.precondition(crate::Precondition::Sequential);
    assert!(times() >= 2);
    flash.power_cut(Nanos(0), 1).unwrap();
    assert!(times() >= 2);
    flash.submit(Nanos(0), FlashOp::Write { fua: false }, 0, 1);
    assert_eq!(times(), 0, "commands are none of its business");
}

/// What is noted of the step under way names no unit or block of the drive: the map is not gone on from, but found again.
#[test]
fn notes_that_cannot_be_are_not_believed() {
    let config = small(geometry(2, 2, 24, 8, 2), 1.0);
    let mut flash = Flash::new(&config, Nanos(0)).unwrap();
    flash.precondition(Precondition::Steady);
    flash.ftl.map.keep_undo();
    let cut = flash.ftl.map.cut();
    let (units, blocks) = (u64::from(flash.ftl.map.logical()), u64::from(flash.shape().blocks()));
    let of_unit = |lpn: u64, word: u64| 1 << 63 | lpn << 32 | word;
    let of_block = |block: u64, valid: u64, written: u64| block << 32 | valid << 16 | written;
    // Words from the count of entries on.
    let notes: [&[u64]; 10] = [
        &[1000],
        &[u64::MAX],
        &[0, blocks + 1],
        &[0, 0, units + 1],
        &[1, 0, 0, of_unit(units, 0)],
        &[1, 0, 0, of_unit(0, u64::from(flash.shape().units()))],
        &[1, 0, 0, of_unit(0, 0x8000_ffff)],
        &[1, 0, 0, of_block(blocks, 0, 0)],
        &[1, 0, 0, of_block(0, 17, 0)],
        &[1, 0, 0, of_block(0, 0, 17)],
    ];
    for (words, state) in notes.into_iter().flat_map(|words| [(words, 1), (&[0][..], 0), (&[0], 5), (&[0], u64::MAX)]) {
        let mut cut = cut.clone();
        cut.memory.undo[0] = state;
        cut.memory.undo[1..=words.len()].copy_from_slice(words);
        let mut next = Flash::new(&config, Nanos(0)).unwrap();
        next.ftl.map.adopt_all(&cut);
        assert!(next.ftl.resume().is_some(), "{state}, {words:?}");
        next.check();
        assert_eq!(next.ftl.map.l2p[..], flash.ftl.map.l2p[..]);
        // And from there on it is gone on from.
        let mut last = Flash::new(&config, Nanos(0)).unwrap();
        last.ftl.map.adopt_all(&next.ftl.map.cut());
        assert_eq!(last.ftl.resume(), None);
    }
}
