//! The whole drive: what its parts promise together.

use crate::model::{geometry, small, timing};
use crate::*;
use alloc::vec::Vec;
use weir_units::{Bytes, Nanos};

/// A drive of four planes with a write buffer of 16 units, whose programs may be suspended or not.
fn drive(suspend: Option<Nanos>) -> Flash {
    let mut config = small(geometry(2, 2, 32, 16, 1), 0.5);
    config.timing = FlashTiming { suspend: Suspend { program: suspend, erase: None, limit: 4 }, ..timing() };
    config.buffer = BufferConfig { size: Bytes(16 * 4096), ..BufferConfig::NONE };
    Flash::new(&config, Nanos(0)).unwrap()
}

const WRITE: FlashOp = FlashOp::Write { fua: false };

#[test]
fn reads_need_not_wait_for_programs_that_can_be_suspended() {
    let worst = |suspend| {
        let mut flash = drive(suspend);
        let mut worst = Nanos(0);
        for i in 0..200 {
            let now = Nanos::from_micros(400 * i);
            flash.submit(now, WRITE, i as u32 % 32, 1);
            let read = Nanos(now.0 + 50_000);
            let end = flash.submit(read, FlashOp::Read, (i as u32 + 16) % 32, 1);
            worst = worst.max(end.saturating_sub(read));
        }
        flash.check();
        worst
    };
    let (with, without) = (worst(Some(Nanos(5_000))), worst(None));
    assert!(with.0 * 2 < without.0, "{with} against {without}");
}

#[test]
fn a_flush_is_told_the_end_of_programs_that_reads_have_pushed() {
    let mut flash = drive(Some(Nanos(5_000)));
    for i in 0..16 {
        flash.submit(Nanos(0), WRITE, i, 1);
    }
    let unpushed = drive(None);
    let planes = flash.shape().planes();
    let free = |flash: &Flash| (0..planes).map(|p| flash.array().plane_free_at(p)).max().unwrap();
    let before = free(&flash);
    assert_eq!(free(&unpushed), Nanos(0));
    for i in 0..16 {
        flash.submit(Nanos(20_000), FlashOp::Read, i, 1);
    }
    assert!(free(&flash) > before, "reads push programs");
    let flushed = flash.submit(Nanos(30_000), FlashOp::Flush, 0, 0);
    assert!(flushed >= before && free(&flash) <= flushed, "{flushed}");
    // Told is told: reads wait now.
    let ends = (0..16).map(|i| flash.submit(Nanos(40_000), FlashOp::Read, i, 1)).max().unwrap();
    assert!(ends > flushed && free(&flash) > flushed);
    assert_eq!(flash.submit(Nanos(50_000), FlashOp::Flush, 0, 0), flushed);
}

#[test]
fn a_full_buffer_waits_for_programs_as_late_as_they_are() {
    // Writes come faster than they can be programmed, and reads push the programs all the while. Whenever a write is told,
    // no more units are on their way than the buffer holds.
    let mut flash = drive(Some(Nanos(5_000)));
    let mut on_their_way: Vec<OpenEnd> = Vec::new();
    let (mut now, mut pushed) = (Nanos(0), 0);
    for i in 0..1_000 {
        let before = flash.stats().page_programs;
        now = flash.submit(now, WRITE, i % 32, 1);
        if flash.stats().page_programs > before {
            let plane = flash.ftl.programmed;
            on_their_way.push(flash.array().open_end(plane, flash.array().plane_free_at(plane)));
        }
        for end in &mut on_their_way {
            let renewed = flash.array().renewed(end);
            pushed += u32::from(renewed.done > end.done);
            *end = renewed;
        }
        on_their_way.retain(|end| end.done > now);
        assert!(on_their_way.len() <= 16, "{} units in a buffer of 16 at {now}", on_their_way.len());
        flash.submit(now, FlashOp::Read, (i * 7 + 3) % 32, 1);
    }
    assert!(pushed > 100, "reads have pushed programs {pushed} times");
    assert_eq!(flash.stats().erases, 0);
    flash.check();
}

#[test]
fn collection_that_blocks_the_controller_blocks_everything() {
    let mut config = small(geometry(2, 1, 32, 16, 1), 0.5);
    config.buffer = BufferConfig { size: Bytes(64 * 4096), ..BufferConfig::NONE };
    config.ftl.gc.mode = GcMode::Controller;
    let mut flash = Flash::new(&config, Nanos(0)).unwrap();
    let units = flash.units();
    let (mut now, mut blocked) = (Nanos(0), 0);
    for i in 0..20 * units {
        let locked = flash.array().locked_until();
        let end = flash.submit(now, WRITE, (i * 7919) % units, 1);
        assert!(end >= locked, "a write at {now} got through at {end}, before {locked}");
        blocked += u32::from(locked > now);
        now = Nanos(now.0.max(end.0.min(now.0 + 10_000)));
    }
    assert!(blocked > 0, "nothing was ever collected");
}

/// A preset with fewer blocks: nothing that a single command takes depends on their number.
fn preset(preset: Preset, blocks: u32) -> Flash {
    with(preset, blocks, |_| {})
}

fn with(preset: Preset, blocks: u32, change: impl Fn(&mut FlashDriveConfig)) -> Flash {
    let mut config = FlashDriveConfig::preset(preset, true);
    config.geometry.blocks = blocks;
    config.ftl.capacity = None;
    config.ftl.over_provisioning = 0.25;
    change(&mut config);
    Flash::new(&config, Nanos(0)).unwrap()
}

/// NVMeVirt stripes units over four partitions, so that 8 KiB are two reads of 4 KiB on two dies. Its link gives out time in slots of 4 us with
/// 110 pieces of 128 bytes each (channel_model.c), here it moves one message after the other.
#[test]
fn sequential_reads_of_nvmevirt_are_spread_over_its_partitions() {
    let mut f = preset(Preset::Nvmevirt970Pro, 64);
    for i in 0..32 {
        f.submit(Nanos::from_millis(100 * i), WRITE, 8 * i as u32, 8);
    }
    f.submit(Nanos::from_secs(4), FlashOp::Flush, 0, 0);
    let four = 21_500 + 29_760 + 32 * 152 + 32 * 36;
    let eight = 30_490 + 30_013 + 64 * 152 + 64 * 36;
    let mut now = Nanos::from_secs(5);
    // The fourth message of 4 KiB ends in the second slot, and of four of 8 KiB the last one in the third.
    for (units, theirs) in [(1, four), (2, four), (4, four + 4_000), (8, eight + 8_000)] {
        let took = (0..256 / units).map(|i| {
            now = now.saturating_add(Nanos::from_millis(1));
            f.submit(now, FlashOp::Read, i * units, units).0 - now.0
        });
        let ours = took.min().unwrap();
        let off = ours as f64 / theirs as f64 - 1.0;
        assert!(off.abs() < 0.021, "{units} units: {ours} ns, NVMeVirt {theirs}");
    }
}

/// With a static scheme the plane follows from the address, whatever was written before and however it came in.
#[test]
fn a_static_scheme_puts_each_page_on_its_plane() {
    for (scheme, buffer) in [("CWDP", 0), ("PDCW", 0), ("CWDP", 64), ("PWCD", 64)] {
        let mut config = small(Geometry { ways: 2, ..geometry(2, 2, 24, 8, 2) }, 0.5);
        config.ftl.plane_allocation = scheme.parse().unwrap();
        config.buffer = BufferConfig { size: Bytes(buffer * 4096), ..BufferConfig::NONE };
        let mut flash = Flash::new(&config, Nanos(0)).unwrap();
        let shape = *flash.shape();
        let mut rng = SplitMix64::new(3);
        for i in 0..8 * u64::from(flash.units()) {
            let lpn = rng.below(flash.units());
            flash.submit(Nanos(i * 20_000), WRITE, lpn, 1 + rng.below(5));
        }
        flash.check();
        assert!(flash.stats().gc_moves > 0, "nothing was collected");
        let planes: Vec<u32> = match scheme {
            // Channel, way, die, plane; here a chip has one die.
            "CWDP" => [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 1)].into(),
            "PDCW" => [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1), (0, 1, 0), (0, 1, 1), (1, 1, 0), (1, 1, 1)].into(),
            _ => Vec::from([(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)]),
        }
        .into_iter()
        .map(|(channel, way, plane): (u32, u32, u32)| shape.plane(channel, way, plane))
        .collect();
        for lpn in (0..flash.units()).filter(|lpn| flash.is_mapped(*lpn) && flash.ftl.map.slot(*lpn).is_none()) {
            let plane = shape.place(Unit(flash.ftl.map.unit(lpn))).plane;
            assert_eq!(plane, planes[lpn as usize / 2 % 8], "{scheme}, unit {lpn}");
        }
    }
}

#[test]
fn the_peers_idle_vectors_hold_for_the_whole_drive() {
    let later = |n: u64| Nanos::from_millis(100 * n);
    let took = |flash: &mut Flash, at: Nanos, op, lpn, units| flash.submit(at, op, lpn, units).0 - at.0;

    let mut f = preset(Preset::FemuBbssd, 32);
    assert_eq!(took(&mut f, later(0), WRITE, 0, 1), 200_000, "4K write");
    assert_eq!(took(&mut f, later(1), FlashOp::Read, 0, 1), 40_000, "4K read");
    assert_eq!(took(&mut f, later(2), WRITE, 0, 16), 200_000, "64K over 16 LUNs");
    assert_eq!(took(&mut f, later(3), FlashOp::Read, 0, 16), 40_000);
    assert_eq!(took(&mut f, later(4), FlashOp::Read, 3, 1), 40_000);
    assert_eq!(took(&mut f, later(4), FlashOp::Read, 3, 1), 80_000, "two reads on one LUN");
    assert_eq!(took(&mut f, later(5), FlashOp::Read, 100, 1), 0, "never written, as the code has it");

    let mut f = preset(Preset::Nvmevirt970Pro, 64);
    assert_eq!(took(&mut f, later(0), WRITE, 0, 1), 5_612, "4K buffered write");
    // A page of eight units for each of the sixteen dies: the first page of a block is LSB, the second MSB.
    for (i, lpn) in (0..256).step_by(8).enumerate() {
        f.submit(later(1 + i as u64), WRITE, lpn, 8);
    }
    f.submit(later(50), FlashOp::Flush, 0, 0);
    let reads: Vec<u64> =
        (0..256).step_by(8).zip(60..).map(|(lpn, i)| took(&mut f, later(i), FlashOp::Read, lpn, 1)).collect();
    assert!(reads.iter().all(|t| [57_276, 69_276].contains(t)), "{reads:?}");
    assert!(reads.contains(&57_276) && reads.contains(&69_276));
    // A whole flash page, where it was written in one go: in two pieces over channel and link.
    let mut f = with(Preset::Nvmevirt970Pro, 64, |config| config.ftl.partitions = 1);
    f.submit(later(0), WRITE, 0, 8);
    f.submit(later(1), FlashOp::Flush, 0, 0);
    let page = 30_490 + 30_013 + 256 * 152 + 128 * 36;
    // Where the second piece begins in a slot of 4 us of which the first has taken the most, it ends 4 us later: see `peers`.
    assert_eq!(took(&mut f, later(2), FlashOp::Read, 0, 8), page + 4_000);
    assert_eq!(took(&mut f, later(3).saturating_add(Nanos(1_000)), FlashOp::Read, 0, 8), page);

    let mut f = preset(Preset::NvmevirtZn540, 64);
    assert_eq!(took(&mut f, later(0), WRITE, 0, 1), 5_600 + 600 + 32 * 40);
    f.submit(later(1), WRITE, 1, 100);
    f.submit(later(2), FlashOp::Flush, 0, 0);
    assert_eq!(took(&mut f, later(3), FlashOp::Read, 5, 1), 79_952);
}
