//! The state that `Precondition::Steady` places is the one that long random writing leads to.

use crate::model::{configs, geometry, small};
use crate::*;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use proptest::prelude::*;
use proptest::sample::select;
use weir_units::rng::SplitMix64;
use weir_units::{Bytes, Nanos};

/// What 16 clients saw who each wrote one unit after the other: write amplification, and their latencies in order.
struct Seen {
    amplification: f64,
    latencies: Vec<u64>,
}

impl Seen {
    fn mean(&self) -> f64 {
        self.latencies.iter().sum::<u64>() as f64 / self.latencies.len() as f64
    }

    fn percentile(&self, percent: usize) -> f64 {
        self.latencies[self.latencies.len() * percent / 100] as f64
    }
}

/// `before` and then ten times the drive's capacity is written at random; the latter is looked at.
fn written(config: &FlashDriveConfig, state: Precondition, before: u64) -> Seen {
    let mut flash = Flash::new(config, Nanos(0)).unwrap();
    flash.precondition(state);
    flash.check();
    let units = u64::from(flash.units());
    let mut rng = SplitMix64::new(5);
    let mut waiting: BinaryHeap<_> = (0..16).map(|_| Reverse(0)).collect();
    let mut latencies = Vec::new();
    for i in 0..(before + 10) * units {
        if i == before * units {
            flash.reset_stats();
        }
        let Some(Reverse(now)) = waiting.pop() else { unreachable!("16 clients wait") };
        let done = flash.submit(Nanos(now), FlashOp::Write { fua: false }, rng.below(units as u32), 1).0;
        waiting.push(Reverse(done));
        if i >= before * units {
            latencies.push(done - now);
        }
        flash.ftl.map.trace.clear();
    }
    flash.check();
    latencies.sort_unstable();
    Seen { amplification: flash.write_amplification(), latencies }
}

fn drive(mode: GcMode, start: u32, buffer: u64) -> FlashDriveConfig {
    let mut config = small(geometry(4, 2, 64, 32, 1), 0.28);
    config.ftl.gc = GcConfig { mode, start, ..config.ftl.gc };
    config.buffer = BufferConfig { size: Bytes(buffer), ..BufferConfig::NONE };
    config
}

#[test]
fn placed_is_as_written_for_long() {
    for (mode, start) in [
        (GcMode::Controller, 1),
        (GcMode::Channel, 1),
        (GcMode::Plane, 2),
        (GcMode::Preemptive, 2),
        (GcMode::Preemptive, 4),
    ] {
        for buffer in [0, 64 << 12] {
            let config = drive(mode, start, buffer);
            let (placed, ran) = (written(&config, Precondition::Steady, 0), written(&config, Precondition::Fresh, 30));
            let alike = |what: &str, a: f64, b: f64, by: f64| {
                assert!(
                    (a / b - 1.0).abs() < by,
                    "{mode}, start {start}, buffer {buffer}: {what} {a} placed, {b} after long"
                );
            };
            alike("amplification", placed.amplification, ran.amplification, 0.02);
            alike("mean latency", placed.mean(), ran.mean(), 0.06);
            // Where nothing buffers what planes that collect page by page do, they drift apart a while longer.
            let by = if mode == GcMode::Preemptive && buffer == 0 { 0.2 } else { 0.1 };
            for percent in [50, 99] {
                // Times come in steps of a program.
                let (a, b) = (placed.percentile(percent), ran.percentile(percent));
                let near = (a - b).abs() < by * b + 300_000.0;
                assert!(near, "{mode}, start {start}, buffer {buffer}: p{percent} {a} placed, {b} after long");
            }
        }
    }
}

#[test]
fn preemptive_collection_never_stops_for_a_block() {
    let longest =
        |mode, start| *written(&drive(mode, start, 64 << 12), Precondition::Steady, 0).latencies.last().unwrap();
    let (plane, preemptive) = (longest(GcMode::Plane, 3), longest(GcMode::Preemptive, 3));
    assert!(preemptive * 3 < plane, "{preemptive} ns, {plane} where the plane stands still");
}

#[test]
fn every_shape_of_drive_can_be_placed() {
    for planes in [1, 2] {
        for (mapping, streams, units) in [(Mapping::Page, 1, 1), (Mapping::Page, 4, 2), (Mapping::Cached, 2, 4)] {
            let mut config = small(geometry(2, planes, 48, 8, units), 0.6);
            config.ftl.mapping = mapping;
            config.ftl.streams = streams;
            config.ftl.multi_plane = planes > 1;
            config.ftl.map_cache = Bytes(64 << 10);
            config.ftl.gc = GcConfig { mode: GcMode::Preemptive, start: 3, ..config.ftl.gc };
            let mut flash = Flash::new(&config, Nanos(0)).unwrap_or_else(|e| panic!("{mapping}: {e}"));
            flash.precondition(Precondition::Steady);
            flash.check();
            assert!((0..flash.units()).all(|lpn| flash.is_mapped(lpn)), "{mapping}, {streams} streams");
        }
    }
}

/// Whether both answer alike, whatever is asked of them.
fn are_alike(a: &mut Flash, b: &mut Flash, requests: u32, seed: u64) -> Result<(), TestCaseError> {
    let mut rng = SplitMix64::new(seed);
    let mut now = Nanos(0);
    for _ in 0..requests {
        let lpn = rng.below(a.units());
        let op = [FlashOp::Read, FlashOp::Write { fua: false }, FlashOp::Write { fua: true }, FlashOp::Trim];
        let op = op[rng.below(4) as usize];
        now = now.saturating_add(Nanos(rng.below(2_000_000).into()));
        prop_assert_eq!(a.submit(now, op, lpn, 1), b.submit(now, op, lpn, 1));
    }
    prop_assert_eq!(a.stats(), b.stats());
    b.check();
    Ok(())
}

proptest! {
    #[test]
    fn a_twin_answers_like_its_original(config in configs(), state in select(Precondition::ALL), seed in any::<u64>()) {
        let mut flash = Flash::new(&config, Nanos(0)).unwrap();
        flash.precondition(state);
        if let Some(mut twin) = flash.twin() {
            let mut again = flash.twin().expect("it has twins");
            are_alike(&mut again, &mut twin, 400, seed)?;
            // What has worked becomes another twin in its own memory.
            prop_assert!(again.become_twin(&flash));
            are_alike(&mut flash, &mut again, 400, seed ^ 1)?;
            prop_assert!(!again.become_twin(&twin), "that one has worked");
        }
    }
}

#[test]
fn a_drive_that_was_preconditioned_has_twins_until_it_works() {
    for &state in Precondition::ALL {
        let mut flash = Flash::new(&drive(GcMode::Preemptive, 3, 64 << 12), Nanos(0)).unwrap();
        flash.precondition(state);
        let (mut first, mut second) = (flash.twin().unwrap(), flash.twin().unwrap());
        are_alike(&mut first, &mut second, 4000, 1).unwrap();
        assert!(first.twin().is_none(), "it holds other data by now");
    }
}
