//! The machine against its model: random long sequences, and every state of tiny drives. Times in exact numbers.

use super::model::{ChunkOp, ChunksModel, apply};
use super::*;
use crate::preset::Preset;
use crate::{CellType, Errors, Geometry, HostTiming, OperationUnit, PageMap, Registers, Variability, Wire, uniform};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_units::Nanos;

pub(super) fn chunk_config() -> impl Strategy<Value = ChunkConfig> {
    ((1u32..4, 1u32..3, 1u32..5), (1u32..5, 1u32..6), 0u32..9, (0u32..4, 0u32..3), (any::<bool>(), any::<bool>()))
        .prop_map(|((groups, units, chunks), (ws_min, rows), mw, (max_open, max_open_unit), (multiple, early))| {
            let blocks = ws_min * rows;
            ChunkConfig {
                groups,
                units,
                chunks,
                blocks,
                ws_min,
                mw_cunits: mw % blocks,
                max_open,
                max_open_unit,
                multiple_reset: multiple,
                early_reset: early,
            }
        })
}

/// Numbers that a step is made of.
pub(super) type Raw = (u8, u32, u32, u32);

pub(super) fn raw() -> impl Strategy<Value = Raw> {
    (any::<u8>(), any::<u32>(), any::<u32>(), any::<u32>())
}

/// Write units at write pointers, mostly.
fn units(chunks: &Chunks, (_, a, b, c): Raw) -> Vec<Ppa> {
    let config = chunks.config();
    let all = chunks.iter().len() as u32;
    let mut list = Vec::new();
    for i in 0..b % 4 {
        let chunk = (a + i * (c % 3)) % (all + u32::from(c % 31 == 0));
        let before = list.iter().filter(|p: &&Ppa| p.chunk == chunk).count() as u32;
        let wp = chunks.get(chunk).map_or(0, |c| c.wp) + before + u32::from(c % 17 == 0);
        list.extend((0..config.ws_min).map(|i| Ppa { chunk, block: wp + i }));
    }
    match c % 23 {
        0 => list.truncate(list.len().saturating_sub(1)),
        1 => list.reverse(),
        _ => {}
    }
    list
}

fn blocks(chunks: &Chunks, (_, a, b, c): Raw) -> Vec<Ppa> {
    let (all, config) = (chunks.iter().len() as u32, chunks.config());
    let of = |i: u32| Ppa {
        chunk: (a + i / 3) % (all + u32::from(c % 13 == 0)),
        block: (b / 8 + i) % (config.blocks + u32::from(c % 13 == 1)),
    };
    (0..b % 9).map(of).collect()
}

pub(super) fn step(chunks: &Chunks, raw: Raw) -> ChunkOp {
    let all = chunks.iter().len() as u32;
    match raw.0 % 16 {
        0..=7 => ChunkOp::Write(units(chunks, raw)),
        8..=10 => ChunkOp::Read(blocks(chunks, raw)),
        11..=13 => ChunkOp::Reset((0..raw.2 % 4).map(|i| (raw.1 + i * (raw.3 % 3)) % (all + raw.3 % 2)).collect()),
        14 => ChunkOp::Close(raw.1 % (all + 1)),
        _ if raw.3 % 4 == 0 => ChunkOp::Retire(raw.1 % (all + 1)),
        _ => ChunkOp::Write(units(chunks, raw)),
    }
}

fn same(chunks: &Chunks, model: &ChunksModel) {
    let of_model = model.chunks.iter().map(|b| Chunk { state: b.state(), wp: b.wp(), resets: b.resets() });
    assert!(chunks.iter().eq(of_model), "{chunks:?}\n{model:?}");
}

/// A drive of the same chunks, on small pages.
fn flash(config: &ChunkConfig, gate: OperationUnit, planes: u32) -> OpenChannelConfig {
    let parts = Preset::FemuOc.parts(false);
    let geometry = Geometry {
        channels: config.groups,
        ways: config.units,
        planes,
        blocks: config.chunks,
        pages: config.blocks / config.ws_min,
        page_bytes: config.ws_min / planes * 4096,
        ..parts.geometry
    };
    let mut drive = OpenChannelConfig::of(&parts);
    (drive.geometry, drive.timing.gate) = (geometry, gate);
    (drive.mw_cunits, drive.max_open, drive.max_open_unit) =
        (Some(config.mw_cunits), config.max_open, config.max_open_unit);
    (drive.multiple_reset, drive.early_reset) = (config.multiple_reset, config.early_reset);
    drive
}

proptest! {
    #[test]
    fn the_machine_is_its_model(config in chunk_config(), steps in proptest::collection::vec(raw(), 0..200)) {
        let (mut chunks, mut model) = (Chunks::new(config), ChunksModel::new(config));
        for raw in steps {
            let step = step(&chunks, raw);
            if let ChunkOp::Write(list) = &step {
                let before: Vec<Chunk> = chunks.iter().collect();
                let takes = chunks.takes(list);
                prop_assert_eq!(takes, model.clone().apply(&step));
                prop_assert!(chunks.iter().eq(before), "asking changes nothing");
            }
            prop_assert_eq!(apply(&mut chunks, &step), model.apply(&step), "{:?}", step);
            chunks.check();
            same(&chunks, &model);
        }
    }

    #[test]
    fn addresses_go_there_and_back(config in chunk_config(), address: u64, chunk: u32, block: u32) {
        let format = config.format();
        let at = Ppa { chunk: chunk % format.chunks(), block: block % format.blocks() };
        let encoded = format.encode(at);
        prop_assert_eq!(format.decode(encoded), Some(at));
        prop_assert!(encoded < format.space());
        prop_assert!(format.linear(at) < u64::from(format.chunks()) * u64::from(format.blocks()));
        // Whatever has a block is that block's address, and nothing beyond the space has one.
        for address in [address, address % format.space(), encoded ^ (1 << (address % 64))] {
            if let Some(at) = format.decode(address) {
                prop_assert_eq!(format.encode(at), address);
            }
        }
        prop_assert_eq!(format.decode(format.space() + encoded), None);
    }

    #[test]
    fn a_drive_takes_what_its_chunks_take(config in chunk_config(), die: bool, two: bool, lossy: bool,
            steps in proptest::collection::vec(raw(), 0..100)) {
        let planes = if two && config.ws_min % 2 == 0 { 2 } else { 1 };
        let mut drive = flash(&config, if die { OperationUnit::Die } else { OperationUnit::Plane }, planes);
        if lossy {
            drive.variability.errors = Some(Errors { rber: 1e-3, retries: 0, correctable: 8, ..Errors::default() });
        }
        let mut drive = OpenChannel::new(&drive).unwrap();
        let mut chunks = Chunks::new(config);
        let mut now = Nanos(0);
        for raw in steps {
            now.0 += u64::from(raw.1 % 300_000);
            let from = blocks(&chunks, (raw.0, raw.2, raw.1, raw.3));
            let step = step(&chunks, raw);
            let (got, expected) = match &step {
                ChunkOp::Read(list) => (drive.read(now, list), chunks.read(list)),
                ChunkOp::Write(to) if raw.3 % 2 == 0 => {
                    let from: Vec<Ppa> = from.iter().cycle().take(if from.is_empty() { 0 } else { to.len() }).copied().collect();
                    let mut expected = if from.len() == to.len() { chunks.read(&from).and_then(|()| chunks.takes(to)) } else {
                        Err(VectorError { error: ChunkError::List, failed: VectorError::bits(0, to.len()) })
                    };
                    let moves = raw.3 % 4 == 0;
                    let got = if moves { drive.move_pages(now, &from, to) } else { drive.copy(now, &from, to) };
                    if got.as_ref().is_ok_and(|outcome| outcome.failed == 0) {
                        expected = chunks.write(to);
                    }
                    prop_assert!(lossy || !got.as_ref().is_ok_and(|outcome| outcome.failed != 0));
                    (got, expected)
                }
                ChunkOp::Write(list) => (drive.write(now, list), chunks.write(list)),
                ChunkOp::Reset(list) => (drive.reset(now, list), chunks.reset(list)),
                ChunkOp::Retire(chunk) => { drive.retire(*chunk); chunks.retire(*chunk); continue; }
                ChunkOp::Close(chunk) => { drive.close(*chunk); chunks.close(*chunk); continue; }
            };
            prop_assert!(got.as_ref().is_ok_and(|o| o.done >= now) || got.is_err());
            prop_assert_eq!(got.map(|_| ()), expected, "{:?}", step);
            prop_assert!(drive.chunks().iter().eq(chunks.iter()));
            drive.check();
        }
    }
}

/// Every reachable state of a tiny drive, and every step from each: the machine does what its model does. How many states
/// there are; resets are not counted as a part of one.
fn explore(config: ChunkConfig) -> usize {
    let all = config.groups * config.units * config.chunks;
    let places: Vec<Ppa> =
        (0..=all).flat_map(|chunk| (0..=config.blocks).map(move |block| Ppa { chunk, block })).collect();
    let unit = |first: &Ppa| (0..config.ws_min).map(|i| Ppa { block: first.block + i, ..*first }).collect::<Vec<_>>();
    let mut steps: Vec<ChunkOp> = places.iter().map(|at| ChunkOp::Read(vec![*at])).collect();
    steps.push(ChunkOp::Write(Vec::new()));
    steps.push(ChunkOp::Read(places.clone()));
    for first in &places {
        steps.push(ChunkOp::Write(unit(first)));
        steps.push(ChunkOp::Write(vec![*first]));
        steps.extend(places.iter().map(|second| ChunkOp::Write([unit(first), unit(second)].concat())));
    }
    for chunk in 0..=all {
        steps.extend([ChunkOp::Reset(vec![chunk]), ChunkOp::Retire(chunk), ChunkOp::Close(chunk)]);
        steps.extend((0..=all).map(|other| ChunkOp::Reset(vec![chunk, other])));
    }
    let key = |chunks: &Chunks| chunks.iter().map(|c| (c.state, c.wp)).collect::<Vec<_>>();
    let first = (Chunks::new(config), ChunksModel::new(config));
    let mut seen = BTreeSet::from([key(&first.0)]);
    let mut todo = vec![first];
    while let Some((chunks, model)) = todo.pop() {
        for step in &steps {
            let (mut chunks, mut model) = (chunks.clone(), model.clone());
            let before: Vec<Chunk> = chunks.iter().collect();
            let answer = apply(&mut chunks, step);
            assert_eq!(answer, model.apply(step), "{step:?} in {chunks:?}");
            chunks.check();
            same(&chunks, &model);
            if answer.is_err() {
                assert!(chunks.iter().eq(before), "{step:?} fails and changes nothing");
            } else if seen.insert(key(&chunks)) {
                todo.push((chunks, model));
            }
        }
    }
    seen.len()
}

#[test]
fn every_state_of_tiny_drives() {
    let config = ChunkConfig {
        groups: 1,
        units: 2,
        chunks: 1,
        blocks: 4,
        ws_min: 2,
        mw_cunits: 1,
        max_open: 0,
        max_open_unit: 0,
        multiple_reset: false,
        early_reset: false,
    };
    // Of each chunk: free, open, closed at 2 and 4, offline with 0, 2 and 4 written.
    assert_eq!(explore(config), 7 * 7);
    assert_eq!(explore(ChunkConfig { early_reset: true, multiple_reset: true, ..config }), 7 * 7);
    // One open at most: both open is out of reach.
    assert_eq!(explore(ChunkConfig { max_open: 1, ..config }), 7 * 7 - 1);
    assert_eq!(explore(ChunkConfig { units: 1, chunks: 2, max_open_unit: 1, ..config }), 7 * 7 - 1);
    assert_eq!(explore(ChunkConfig { ws_min: 1, blocks: 2, max_open: 2, mw_cunits: 0, ..config }), 7 * 7);
}

/// Read 50, program 200, erase 2000 us; a page of 8 KiB takes the channel 20 us.
fn plain(planes: u32, gate: OperationUnit) -> OpenChannelConfig {
    let parts = Preset::FemuBbssd.parts(false);
    let mut config = OpenChannelConfig::of(&parts);
    config.geometry = Geometry {
        channels: 2,
        ways: 2,
        planes,
        blocks: 4,
        pages: 4,
        page_bytes: 8192,
        spare_bytes: 64,
        cell: CellType::Slc,
        page_map: PageMap::Modulo,
    };
    config.timing.gate = gate;
    config.timing.registers = Registers::Single;
    config.timing.read = uniform(50_000);
    config.timing.program = uniform(200_000);
    config.timing.erase = Nanos(2_000_000);
    config.timing.channel = Wire::proportional(8192, 20_000);
    config.host = HostTiming::link(Wire::proportional(4096, 1_000));
    config
}

fn row(drive: &OpenChannel, chunk: u32, row: u32) -> Vec<Ppa> {
    let unit = drive.chunks().config().ws_min;
    (0..unit).map(|i| Ppa { chunk, block: row * unit + i }).collect()
}

#[test]
fn times_of_an_idle_drive() {
    let mut drive = OpenChannel::new(&plain(1, OperationUnit::Plane)).unwrap();
    let chunks = drive.chunks().config().chunks;
    let units = [0, 1, 2, 3].map(|unit| row(&drive, unit * chunks, 0));
    // Two blocks over the link, the page over the channel, the program.
    assert_eq!(drive.write(Nanos(0), &units[0]).unwrap().done, Nanos(2_000 + 20_000 + 200_000));
    // Units 0 and 1 are dies of one channel, 2 and 3 of the other: all four in one list, channels side by side.
    let t = Nanos(1_000_000);
    let list = [row(&drive, 0, 1), units[1].clone(), units[2].clone(), units[3].clone()].concat();
    assert_eq!(drive.write(t, &list).unwrap().done, Nanos(t.0 + 8_000 + 40_000 + 200_000));
    // A block: the array, its half of a page over the channel, the link.
    let t = Nanos(2_000_000);
    assert_eq!(drive.read(t, &units[0][..1]).unwrap().done, Nanos(t.0 + 50_000 + 10_000 + 1_000));
    // A reset does not cross the link.
    let t = Nanos(3_000_000);
    assert_eq!(drive.reset(t, &[0, chunks]).unwrap(), VectorOutcome { done: Nanos(t.0 + 2_000_000), failed: 0 });
    assert_eq!(drive.work(), OpenChannelWork { reads: 1, programs: 5, copy_backs: 0, resets: 2 });
    drive.check();
}

#[test]
fn a_page_moves_without_the_channel_and_never_over_the_link() {
    for (planes, gate) in [(1, OperationUnit::Plane), (2, OperationUnit::Plane), (2, OperationUnit::Die)] {
        let mut drive = OpenChannel::new(&plain(planes, gate)).unwrap();
        let from = row(&drive, 0, 0);
        let chunks = drive.chunks().config().chunks;
        drive.write(Nanos(0), &from).unwrap();
        drive.write(Nanos(0), &row(&drive, chunks, 0)).unwrap();
        let link = drive.host().busy_until(Nanos::from_secs(9));
        let channel = |drive: &OpenChannel| drive.array().utilisation(Nanos::from_secs(9)).channels[0].0;
        let pages = u64::from(planes);
        // Copied back: array to register to array.
        let (t, before) = (Nanos(1_000_000), channel(&drive));
        let to = row(&drive, 1, 0);
        assert_eq!(drive.move_pages(t, &from, &to).unwrap().done, Nanos(t.0 + 250_000), "{planes} {gate}");
        assert_eq!(channel(&drive), before, "no page crosses the channel");
        // The standard's copy: over the channel and back.
        let t = Nanos(2_000_000);
        let done = drive.copy(t, &from, &row(&drive, 1, 1)).unwrap().done;
        assert!(done.0 >= t.0 + 50_000 + pages * 40_000 + 200_000, "{planes} {gate}: {done}");
        assert_eq!(channel(&drive), before + pages * 40_000);
        // A move to another die has to cross the channel, too, and so has one whose blocks are in another order.
        let t = Nanos(3_000_000);
        drive.move_pages(t, &from, &row(&drive, chunks, 1)).unwrap();
        let mut swapped = from.clone();
        swapped.swap(0, 1);
        drive.move_pages(Nanos(4_000_000), &swapped, &row(&drive, 1, 2)).unwrap();
        let crossed = if gate == OperationUnit::Die { pages } else { 1 };
        assert_eq!(channel(&drive), before + pages * (40_000 + 40_000) + crossed * 40_000);
        assert_eq!(drive.host().busy_until(Nanos::from_secs(9)), link, "nothing crosses the link");
        assert_eq!(drive.work().copy_backs, pages + (pages - crossed));
        drive.check();
    }
}

#[test]
fn chunks_go_offline() {
    let mut config = plain(1, OperationUnit::Plane);
    (config.endurance, config.factory_bad) = (10, 200_000);
    let mut drive = OpenChannel::new(&config).unwrap();
    let offline = |drive: &OpenChannel| drive.chunks().iter().filter(|c| c.state == ChunkState::Offline).count();
    let bad = offline(&drive);
    assert!(bad > 0 && bad < 16, "{bad}");
    let chunk = drive.chunks().iter().position(|c| c.state == ChunkState::Free).unwrap() as u32;
    let list: Vec<Vec<Ppa>> = (0..4).map(|r| row(&drive, chunk, r)).collect();
    let mut resets = 0;
    let failed = loop {
        for unit in &list {
            drive.write(Nanos(0), unit).unwrap();
        }
        resets += 1;
        let outcome = drive.reset(Nanos(0), &[chunk]).unwrap();
        assert!(drive.wear_index(chunk) as u32 >= (resets * 25).min(250));
        if outcome.failed != 0 {
            break outcome.failed;
        }
    };
    assert!(failed == 1 && (8..=12).contains(&resets), "{resets}");
    assert_eq!(offline(&drive), bad + 1);
    let refused = |error| Err(VectorError { error, failed: 3 });
    assert_eq!(drive.write(Nanos(0), &list[0]), refused(ChunkError::Offline));
    assert_eq!(drive.read(Nanos(0), &list[0]), refused(ChunkError::Offline));
}

#[test]
fn what_is_lost_is_named_and_not_copied() {
    let mut config = plain(2, OperationUnit::Plane);
    config.variability = Variability {
        errors: Some(Errors { rber: 0.4, correctable: 1, retries: 0, ..Errors::default() }),
        ..Variability::default()
    };
    let mut drive = OpenChannel::new(&config).unwrap();
    let list = row(&drive, 0, 0);
    drive.write(Nanos(0), &list).unwrap();
    assert_eq!(drive.read(Nanos(0), &list).unwrap().failed, 0b1111);
    assert_eq!(drive.read(Nanos(0), &list[1..2]).unwrap().failed, 0b1);
    let to = row(&drive, 1, 0);
    assert_eq!(drive.copy(Nanos(0), &list, &to).unwrap().failed, 0b1111);
    assert_eq!(drive.chunks().get(1).unwrap().state, ChunkState::Free, "nothing was written");
    // Copied back nobody looks at it.
    assert_eq!(drive.move_pages(Nanos(0), &list, &to).unwrap().failed, 0);
    assert_eq!(drive.chunks().get(1).unwrap().state, ChunkState::Open);
}

#[test]
fn cells_are_complete_so_many_pages_later() {
    let reach = |cell, map, pages| OpenChannelConfig::pairing(cell, map, pages);
    assert_eq!(reach(CellType::Slc, PageMap::Modulo, 64), 0);
    assert_eq!(reach(CellType::Mlc, PageMap::Modulo, 64), 1);
    // LLLLLLuLLuLLuu...: the lower pages 10 and 11 belong to the upper pages 24 and 25, and so on to 494 and 508; the tail
    // uLLu makes 511 the upper page of 495.
    assert_eq!(reach(CellType::Mlc, PageMap::Femu, 512), 16);
    let config = OpenChannelConfig::of(&Preset::FemuOc.parts(false));
    let (chunks, _) = config.chunks().unwrap();
    assert_eq!((chunks.groups, chunks.units, chunks.chunks, chunks.blocks, chunks.ws_min), (16, 1, 256, 2048, 4));
    assert_eq!(chunks.mw_cunits, 16 * 4);
}

#[test]
fn numbers_that_do_not_go_together() {
    let good = OpenChannelConfig::of(&Preset::FemuOc.parts(false));
    assert!(OpenChannel::new(&good).is_ok());
    let bad = |config: OpenChannelConfig, says: &str| {
        let error = OpenChannel::new(&config).unwrap_err();
        assert!(format!("{error}").contains(says), "{error}");
    };
    let geometry = good.geometry;
    bad(OpenChannelConfig { geometry: Geometry { planes: 17, ..geometry }, ..good }, "68 blocks of 4 KiB");
    bad(OpenChannelConfig { geometry: Geometry { channels: 0, ..geometry }, ..good }, "geometry.channels is 0");
    bad(OpenChannelConfig { mw_cunits: Some(2048), ..good }, "less than a chunk of 2048");
    let wide = Geometry { channels: 70_000, blocks: 1, pages: 1, ..geometry };
    bad(OpenChannelConfig { geometry: wide, mw_cunits: Some(0), ..good }, "1 to 65535 channels");
}
