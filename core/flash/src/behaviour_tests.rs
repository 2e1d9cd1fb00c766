//! What the policies are for: each does what it promises, seen from outside.

use crate::model::{geometry, small};
use crate::*;
use alloc::vec::Vec;
use weir_units::rng::SplitMix64;
use weir_units::{Bytes, Nanos};

const WRITE: FlashOp = FlashOp::Write { fua: false };

fn drive(config: &FlashDriveConfig, state: Precondition) -> Flash {
    let mut flash = Flash::new(config, Nanos(0)).unwrap();
    flash.precondition(state);
    flash
}

/// Writes single units, one every `gap` ns; `hot` hundredths of them to the first tenth.
fn churn(flash: &mut Flash, count: u64, gap: u64, hot: u32) {
    let mut rng = SplitMix64::new(11);
    let units = flash.units();
    let start = flash.array().plane_free_at(0).0;
    for i in 0..count {
        let lpn = if rng.below(100) < hot { rng.below(units / 10) } else { rng.below(units) };
        flash.submit(Nanos(start + i * gap), WRITE, lpn, 1);
    }
    flash.ftl.map.trace.clear();
}

#[test]
fn hot_and_cold_apart_saves_writes() {
    let mut config = small(geometry(2, 1, 128, 64, 1), 0.15);
    config.ftl.streams = 2;
    config.ftl.wear.policy = Wear::Dynamic;
    let mut amplification = |separation| {
        config.ftl.separation = separation;
        let mut flash = drive(&config, Precondition::Sequential);
        let units = u64::from(flash.units());
        churn(&mut flash, 3 * units, 100_000, 95);
        flash.reset_stats();
        churn(&mut flash, units, 100_000, 95);
        flash.write_amplification()
    };
    let (mixed, apart) = (amplification(Separate::None), amplification(Separate::Frequency));
    assert!(apart < 0.95 * mixed, "{apart} apart, {mixed} mixed");
}

#[test]
fn policies_order_as_the_literature_has_it() {
    let mut config = small(geometry(2, 1, 128, 64, 1), 0.2);
    config.ftl.wear.policy = Wear::None;
    config.ftl.gc.choices = 4;
    let mut amplification = |victim, hot| {
        config.ftl.gc.victim = victim;
        let mut flash = drive(&config, Precondition::Steady);
        let units = u64::from(flash.units());
        // The placed state is greedy collection's; others take a while to their own.
        (0..4).for_each(|_| churn(&mut flash, 2 * units, 100_000, hot));
        flash.reset_stats();
        churn(&mut flash, units, 100_000, hot);
        flash.write_amplification()
    };
    let (greedy, cost_benefit) = (amplification(Victim::Greedy, 90), amplification(Victim::CostBenefit, 90));
    assert!(cost_benefit < 0.8 * greedy, "skewed: {greedy} {cost_benefit}");
    let [greedy, d_choice, fifo, random] =
        [Victim::Greedy, Victim::DChoice, Victim::Fifo, Victim::Random].map(|v| amplification(v, 0));
    assert!(greedy < d_choice && d_choice < random, "uniform: {greedy} {d_choice} {random}");
    assert!(greedy < fifo && fifo < random, "uniform: {greedy} {fifo} {random}");
}

#[test]
fn static_wear_levelling_bounds_the_spread() {
    let mut config = small(geometry(1, 1, 64, 16, 1), 0.25);
    let mut spread = |policy| {
        config.ftl.wear = WearConfig { policy, gap: 8, endurance: 0, failures: 0 };
        let mut flash = drive(&config, Precondition::Sequential);
        // Only a tenth is ever written again.
        churn(&mut flash, 60_000, 300_000, 100);
        let wear = flash.wear();
        assert!(wear.mean > 50.0, "{wear:?}");
        wear.max - wear.min
    };
    let (dynamic, level) = (spread(Wear::Dynamic), spread(Wear::Static));
    assert!(level <= 8 + 3 && dynamic > 4 * level, "{dynamic} dynamic, {level} static");
}

#[test]
fn collection_blocks_what_it_says() {
    // Eight channels; only plane 0 collects, reads elsewhere feel it or do not.
    let reads = |mode| {
        let mut config = small(geometry(8, 1, 32, 16, 1), 0.4);
        config.ftl.gc.mode = mode;
        let mut flash = drive(&config, Precondition::Steady);
        let mut rng = SplitMix64::new(3);
        let mut latencies: Vec<u64> = Vec::new();
        for i in 0..20_000u64 {
            let now = Nanos(i * 150_000);
            let lpn = rng.below(flash.units());
            match i % 4 {
                0 => _ = flash.submit(now, WRITE, lpn, 1),
                _ => latencies.push(flash.submit(now, FlashOp::Read, lpn, 1).0 - now.0),
            }
        }
        flash.ftl.map.trace.clear();
        assert!(flash.stats().victims > 100);
        latencies.sort_unstable();
        latencies[latencies.len() * 95 / 100]
    };
    let [controller, plane, preemptive] = [GcMode::Controller, GcMode::Plane, GcMode::Preemptive].map(reads);
    assert!(preemptive < plane && plane < controller, "p95: {preemptive} {plane} {controller}");
}

#[test]
fn a_buffer_absorbs_what_is_written_again() {
    let mut config = small(geometry(2, 1, 32, 16, 2), 0.5);
    config.buffer = BufferConfig { size: Bytes(64 << 12), flush: Flush::Watermark, ..BufferConfig::NONE };
    config.buffer.latency = Nanos(2_000);
    let mut flash = drive(&config, Precondition::Sequential);
    let mut now = Nanos(0);
    for i in 0..1_000u32 {
        now = Nanos(u64::from(i) * 1_000_000);
        assert_eq!(flash.submit(now, WRITE, i % 16, 1).0 - now.0, 2_000, "complete when it is in the buffer");
        assert_eq!(flash.submit(now, FlashOp::Read, i % 16, 1).0 - now.0, 2_000, "and read from there");
    }
    let stats = *flash.stats();
    assert_eq!((stats.buffer_write_hits, stats.buffer_read_hits, stats.page_programs), (984, 1_000, 0));
    let done = flash.submit(now, FlashOp::Flush, 0, 0);
    assert!(done.0 - now.0 >= 200_000, "a flush waits for the programs");
    assert_eq!((flash.stats().page_programs, flash.stats().padding), (8, 0));
    // FUA: the unit's page is programmed at once, half empty.
    let fua = flash.submit(done, FlashOp::Write { fua: true }, 0, 1);
    assert!(fua.0 - done.0 >= 200_000);
    assert_eq!((flash.stats().page_programs, flash.stats().padding), (9, 1));
}

/// The timeout is each unit's own: neither those that were trimmed before it, nor a longer queue of another stream, keep it.
#[test]
fn what_has_waited_too_long_leaves_whatever_else_waits() {
    let mut config = small(geometry(2, 1, 64, 8, 4), 0.15);
    config.ftl.streams = 2;
    config.ftl.separation = Separate::Hint;
    config.buffer = BufferConfig { size: Bytes(64 << 12), flush: Flush::Watermark, ..BufferConfig::NONE };
    config.buffer.timeout = Nanos(500_000);
    for trimmed in [true, false] {
        let mut flash = drive(&config, Precondition::Fresh);
        if trimmed {
            flash.submit_hinted(Nanos(0), WRITE, 10, 2, 0);
            flash.submit(Nanos(1), FlashOp::Trim, 10, 2);
        }
        flash.submit_hinted(Nanos(2), WRITE, 20, 1, 1);
        if !trimmed {
            flash.submit_hinted(Nanos(3), WRITE, 10, 3, 0);
        }
        flash.submit(Nanos(500_001), FlashOp::Read, 20, 1);
        assert_eq!(flash.stats().page_programs, 0, "too soon");
        flash.submit(Nanos(500_002), FlashOp::Read, 20, 1);
        assert_eq!(flash.stats().page_programs, 1, "those that were {}", if trimmed { "trimmed" } else { "written" });
        assert!(flash.ftl.map.slot(20).is_none(), "it is in the flash");
    }
}

#[test]
fn a_small_map_cache_misses() {
    let mut config = small(geometry(2, 1, 64, 64, 1), 0.3);
    config.ftl.mapping = Mapping::Cached;
    let mut rate = |pages: u64| {
        config.ftl.map_cache = Bytes(pages * 4096);
        let mut flash = drive(&config, Precondition::Steady);
        churn(&mut flash, 4_000, 500_000, 0);
        let s = flash.stats();
        assert_eq!(s.map_hits + s.map_misses, 4_000);
        flash.check();
        (s.map_misses, s.map_reads, s.map_programs)
    };
    // 6301 units take seven map pages.
    let (few, all) = (rate(1), rate(7));
    assert!(few.0 > 3_000 && few.1 >= few.0 && few.2 > 2_000, "{few:?}");
    assert_eq!(all.0, 7, "each page once");
}

#[test]
fn pseudo_slc_is_fast_until_it_is_full() {
    let mut config = small(geometry(1, 1, 64, 48, 1), 0.3);
    config.ftl.slc = SlcConfig { blocks: 4, fold: Fold::Idle };
    let mut flash = drive(&config, Precondition::Fresh);
    let mut now = Nanos(0);
    let mut times: Vec<u64> = Vec::new();
    for lpn in 0..128 {
        let done = flash.submit(now, WRITE, lpn, 1);
        times.push(done.0 - now.0);
        now = done;
    }
    // A third of 48 pages in each of four blocks, at the lowest level's 200 us and the transfer.
    assert!(times[..64].iter().all(|t| *t == 205_000), "{times:?}");
    assert!(times[64..].contains(&405_000), "{times:?}");
    // An idle second later it has been folded.
    let later = Nanos(now.0 + 1_000_000_000);
    assert_eq!(flash.submit(later, WRITE, 200, 1).0 - later.0, 205_000);
    assert_eq!(flash.stats().folds, 64);
    flash.check();
}

#[test]
fn blocks_wear_out_and_writes_are_refused_at_last() {
    let mut config = small(geometry(2, 1, 32, 16, 1), 0.6);
    config.ftl.wear = WearConfig { policy: Wear::Dynamic, gap: 0, endurance: 100, failures: 0 };
    let mut flash = drive(&config, Precondition::Sequential);
    assert_eq!(flash.available_spare(), 100);
    let mut seen = Vec::from([100]);
    while !flash.is_read_only() {
        churn(&mut flash, 1000, 1_000_000, 0);
        let spare = flash.available_spare();
        assert!(seen.last().is_none_or(|last| spare <= *last), "{spare} after {seen:?}");
        seen.push(spare);
    }
    seen.dedup();
    assert!(seen.len() > 3 && seen.last() == Some(&0), "it is used up step by step: {seen:?}");
    churn(&mut flash, 1000, 1_000_000, 0);
    assert!(flash.is_read_only() && flash.stats().grown_bad > 4 && flash.stats().refused > 0, "{:?}", flash.stats());
    assert!((0..flash.units()).all(|lpn| flash.is_mapped(lpn)), "nothing is lost");
    flash.check();
}

#[test]
fn factory_bad_blocks_are_of_the_seed_and_never_used() {
    let mut config = small(geometry(4, 1, 64, 16, 1), 0.3);
    config.ftl.factory_bad = 50_000;
    let mut flash = drive(&config, Precondition::Steady);
    let bad: Vec<bool> = flash.ftl.bad.clone();
    assert!((4..=30).contains(&bad.iter().filter(|b| **b).count()), "5 % of 256");
    assert_eq!(drive(&config, Precondition::Fresh).ftl.bad, bad);
    churn(&mut flash, 10_000, 300_000, 0);
    for (block, bad) in bad.iter().enumerate() {
        assert!(!bad || (flash.ftl.map.written[block], flash.ftl.map.erases[block]) == (0, 0));
    }
    flash.check();
}

#[test]
fn hybrid_merges_as_their_names_say() {
    let mut config = small(geometry(1, 1, 32, 16, 1), 0.0);
    config.ftl.mapping = Mapping::Hybrid;
    config.ftl.hybrid = HybridConfig { log_blocks: 4, association: Association::Block };
    config.ftl.capacity = Some(Bytes(20 * 16 * 4096));
    let mut flash = drive(&config, Precondition::Sequential);
    let mut at = 0;
    let mut write = |flash: &mut Flash, lpn: u32, units: u32| {
        at += 10_000_000;
        flash.submit(Nanos(at), WRITE, lpn, units);
    };
    // Whole blocks in order, more of them than there are logs.
    (0..8).for_each(|block| write(&mut flash, block * 16, 16));
    assert_eq!((flash.stats().switch_merges, flash.stats().gc_moves), (4, 0));
    // Three quarters of a block in order: the rest is copied.
    (8..16).for_each(|block| write(&mut flash, block * 16, 12));
    let s = *flash.stats();
    assert_eq!((s.switch_merges, s.partial_merges, s.gc_moves), (8, 4, 16));
    // Backwards: everything is copied.
    (0..16).rev().for_each(|i| write(&mut flash, i, 1));
    write(&mut flash, 0, 1);
    assert_eq!(flash.stats().full_merges, 1);
    flash.check();
}

#[test]
fn costs_follow_the_amplification() {
    let config = small(geometry(2, 1, 128, 64, 1), 0.07);
    let mut flash = drive(&config, Precondition::Steady);
    let (read, write) = (flash.cost(FlashOp::Read, 1, 0), flash.cost(WRITE, 1, 0));
    let transfer = flash.array().transfer_time(UNIT);
    assert_eq!(read.0 - transfer.0, 49_843, "the mean of 64 pages on three levels");
    churn(&mut flash, 20_000, 300_000, 0);
    let moved = flash.stats().gc_moves * 1000 / 20_000;
    let more = flash.cost(WRITE, 1, moved);
    let expected = write.0 as f64 + moved as f64 / 1000.0 * (write.0 + read.0 - 2 * transfer.0) as f64;
    assert!(moved > 100 && (more.0 as f64 / expected - 1.0).abs() < 0.01, "{more} for {expected}");
    assert_eq!(flash.cost(FlashOp::Trim, 100, moved), Nanos(0));
    assert_eq!(flash.cost(FlashOp::Write { fua: true }, 8, moved).0, more.0 * 8);
    // Collection that goes through the controller crosses the channel twice.
    let mut through = config;
    through.ftl.gc.mode = GcMode::Channel;
    let crossed = drive(&through, Precondition::Fresh).cost(WRITE, 1, moved).0 - more.0;
    assert!(crossed.abs_diff(2 * transfer.0 * moved / 1000) <= 1, "{crossed}");
}

#[test]
fn configurations_are_refused_by_key() {
    let fits = small(geometry(2, 1, 32, 16, 1), 0.5);
    let message = |change: &dyn Fn(&mut FlashDriveConfig)| {
        let mut config = fits;
        change(&mut config);
        alloc::format!("{}", Flash::new(&config, Nanos(0)).unwrap_err())
    };
    type Case<'a> = (&'a dyn Fn(&mut FlashDriveConfig), &'a str);
    let cases: [Case<'_>; 12] = [
        (&|c| c.ftl.over_provisioning = 0.01, "ftl.over_provisioning leaves 0.3 blocks of each plane"),
        (&|c| c.ftl.over_provisioning = f64::NAN, "ftl.over_provisioning is NaN"),
        (&|c| c.ftl.capacity = Some(Bytes(4097)), "ftl.capacity is 4097B; a multiple of 4KiB"),
        (&|c| c.ftl.capacity = Some(Bytes(1 << 40)), "ftl.capacity is 1TiB; the flash has 4MiB"),
        (&|c| c.ftl.gc.start = 0, "ftl.gc.start is 0"),
        (&|c| c.ftl.gc.hard = 3, "ftl.gc.hard is 3; from 1 to ftl.gc.start (2)"),
        (&|c| c.ftl.streams = 17, "ftl.streams is 17; 1 to 16"),
        (&|c| c.ftl.separation = Separate::Frequency, "ftl.streams is 1;"),
        (&|c| c.ftl.slc.blocks = 32, "ftl.slc.blocks is 32; a plane has 32 blocks"),
        (&|c| c.buffer.size = Bytes(100), "buffer.size is 100B"),
        (&|c| c.buffer.low = 90, "buffer.high and buffer.low are 80 and 90"),
        (&|c| c.geometry.blocks = 0, "geometry.blocks is 0"),
    ];
    for (change, expected) in cases {
        let said = message(change);
        assert!(said.starts_with(expected), "{said}; expected {expected}");
    }
}
