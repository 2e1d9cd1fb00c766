//! Chunks are found again from their words, after every command and every loss of power.

use super::tests::{chunk_config, raw, step};
use super::*;
use crate::oc::model::{ChunkOp, apply};
use crate::preset::Preset;
use crate::region::RegionImage;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_units::Nanos;

fn drive(max_open: u32) -> OpenChannelConfig {
    let mut config = OpenChannelConfig::of(&Preset::FemuOc.parts(false));
    config.geometry.channels = 2;
    config.geometry.ways = 1;
    config.geometry.blocks = 4;
    config.geometry.pages = 8;
    (config.max_open, config.factory_bad, config.multiple_reset) = (max_open, 200_000, true);
    config
}

proptest! {
    /// Completed writes are there; of the others a part from the front.
    #[test]
    fn completed_writes_survive(max_open in 0u32..4, steps in proptest::collection::vec((raw(), any::<u32>()), 0..150)) {
        let config = drive(max_open);
        let mut drive = OpenChannel::new(&config).unwrap();
        let mut under_way: Vec<(u32, u32)> = Vec::new();
        let mut now = Nanos(0);
        for (raw, what) in steps {
            now.0 += 10_000;
            let before: Vec<Chunk> = drive.chunks().iter().collect();
            match step(drive.chunks(), raw) {
                ChunkOp::Write(list) => {
                    let written = if drive.write(now, &list).is_ok() { list.len() } else { 0 };
                    let unit = drive.chunks().config().ws_min;
                    let units = list[..written].chunks(unit as usize);
                    under_way.extend(units.map(|b| (b[0].chunk, b[0].block + unit)));
                }
                // A reset waits for the writes of its chunks.
                ChunkOp::Reset(list) if !under_way.iter().any(|(c, _)| list.contains(c)) => drop(drive.reset(now, &list)),
                ChunkOp::Close(chunk) if !under_way.iter().any(|(c, _)| *c == chunk) => drive.close(chunk),
                ChunkOp::Retire(chunk) if what % 5 == 0 => drive.retire(chunk),
                _ => {}
            }
            drive.check();
            while !under_way.is_empty() && what % 3 > 0 {
                let (chunk, wp) = under_way.swap_remove(what as usize % under_way.len());
                drive.landed(chunk, wp);
            }
            let chunks: Vec<Chunk> = drive.chunks().iter().collect();
            let ends: Vec<u32> = (0..chunks.len() as u32).map(|c| drive.data_end(c)).collect();
            let judge = |found: &OpenChannel| {
                found.check();
                for ((was, is), end) in chunks.iter().zip(found.chunks().iter()).zip(&ends) {
                    assert_eq!((is.resets, is.state == ChunkState::Offline), (was.resets, was.state == ChunkState::Offline));
                    assert!(is.wp == *end || was.state == ChunkState::Offline, "{was:?} {is:?} {end}");
                    let state = match *end {
                        _ if was.state == ChunkState::Offline => ChunkState::Offline,
                        0 => ChunkState::Free,
                        // Closed where it was and may not be open.
                        _ if was.state == ChunkState::Closed => is.state,
                        _ => ChunkState::Open,
                    };
                    assert_eq!(is.state, state, "{was:?} {is:?}");
                    assert!(is.state != ChunkState::Closed || was.state == ChunkState::Closed);
                }
            };
            match what % 13 {
                0 => {
                    let words = drive.chunks.words.to_vec().leak();
                    let wear = drive.chunks.resets.to_vec().leak();
                    let mut again = OpenChannel::new(&config).unwrap();
                    again.adopt(RegionImage { words, wear, extensions: &mut [] }).unwrap();
                    judge(&again);
                    drive = again;
                    under_way.clear();
                }
                1 => {
                    let loss = drive.power_cut();
                    judge(&drive);
                    for (chunk, from) in loss.gone {
                        prop_assert!(from == drive.data_end(chunk) && before[chunk as usize].wp.max(chunks[chunk as usize].wp) > from);
                    }
                    under_way.clear();
                }
                _ => {}
            }
        }
    }

    /// A list that is refused leaves the words as they were.
    #[test]
    fn refusals_keep_nothing(config in chunk_config(), steps in proptest::collection::vec(raw(), 0..100)) {
        let mut chunks = Chunks::new(config);
        for raw in steps {
            let (words, resets) = (chunks.words.to_vec(), chunks.resets.to_vec());
            let step = step(&chunks, raw);
            let refused = apply(&mut chunks, &step).is_err();
            chunks.check();
            let same = |a: &[u64], b: &[u64]| a.iter().zip(b).all(|(a, b)| a == b || *a == 0);
            prop_assert!(!refused || same(&words, &chunks.words) && resets == *chunks.resets);
            for (i, chunk) in (0..).zip(chunks.iter().collect::<Vec<_>>()) {
                chunks.landed(i, chunk.wp);
            }
        }
    }
}

/// A new drive's factory-bad chunks stay what they are, and are kept.
#[test]
fn factory_bad_chunks_are_kept() {
    let config = drive(0);
    let mut drive = OpenChannel::new(&config).unwrap();
    let before: Vec<Chunk> = drive.chunks().iter().collect();
    assert!(before.iter().any(|c| c.state == ChunkState::Offline));
    let size = drive.image_size();
    let short = RegionImage { words: vec![0; 1].leak(), ..RegionImage::default() };
    assert!(drive.adopt(short).is_err());
    let (words, wear) = (vec![0; size.words as usize].leak(), vec![0; size.wear as usize].leak());
    drive.adopt(RegionImage { words, wear, extensions: &mut [] }).unwrap();
    assert!(drive.chunks().iter().eq(before.into_iter()));
    assert!(drive.chunks.words.iter().all(|w| *w != 0));
}
