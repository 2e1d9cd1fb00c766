//! The hybrid mapping, held to the costs that its papers derive.

use crate::model::{geometry, small};
use crate::*;
use alloc::vec::Vec;
use weir_units::rng::SplitMix64;
use weir_units::{Bytes, Nanos};

const WRITE: FlashOp = FlashOp::Write { fua: false };
const PAGES: u32 = 16;

/// Data blocks and log blocks of the hybrid mappings below.
const DATA: u32 = 200;
const LOGS: u32 = 8;

/// Write amplification, and full merges and erases for each page written.
fn hybrid(association: Association, lpn: &mut dyn FnMut(u32) -> u32) -> (f64, f64, f64) {
    let mut config = small(geometry(1, 1, DATA + LOGS + 4, PAGES, 1), 0.0);
    config.ftl.spare = false;
    config.ftl.mapping = Mapping::Hybrid;
    config.ftl.hybrid = HybridConfig { log_blocks: LOGS, association };
    config.ftl.capacity = Some(Bytes(u64::from(DATA * PAGES) * 4096));
    let mut flash = Flash::new(&config, Nanos(0)).unwrap();
    flash.precondition(Precondition::Sequential);
    let (before, all) = (DATA * PAGES, 3 * DATA * PAGES);
    for i in 0..all {
        if i == before {
            flash.reset_stats();
        }
        flash.submit(Nanos(u64::from(i) * 100_000_000), WRITE, lpn(i), 1);
        flash.ftl.map.trace.clear();
    }
    flash.check();
    let (stats, pages) = (*flash.stats(), f64::from(all - before));
    (flash.write_amplification(), stats.full_merges as f64 / pages, stats.erases as f64 / pages)
}

/// A block-associative log has room for a write to one of the blocks that have a log, L of B; any other write merges one: all
/// pages of a block are copied and two blocks erased (Kim et al., "A Space-Efficient Flash Translation Layer for CompactFlash
/// Systems", 2002, section III). That is the thrashing which Lee et al. (2007) set out from.
#[test]
fn block_associative_logs_thrash_as_published() {
    let mut rng = SplitMix64::new(5);
    let (amplification, merges, erases) = hybrid(Association::Block, &mut |_| rng.below(DATA * PAGES));
    let misses = 1.0 - f64::from(LOGS) / f64::from(DATA);
    let wanted = [1.0 + misses * f64::from(PAGES), misses, 2.0 * misses];
    for (ours, wanted) in [amplification, merges, erases].into_iter().zip(wanted) {
        assert!((ours / wanted - 1.0).abs() < 0.03, "{ours:.3} for {wanted:.3}");
    }
}

/// A fully associative log block (Lee et al., "A Log Buffer-Based Flash Translation Layer Using Fully-Associative Sector
/// Translation", 2007, section 3) is emptied when it is the oldest: each logical block that still has something in it is merged. Of
/// the P pages of a log block, those that were not written again since, a part q = (1 - 1/(B P))^(P (L - 1/2)), lie in
/// D = B (1 - (1 - q/B)^P) blocks; a block has not been merged with one of the L - 1 log blocks before with the chance
/// (1 - m/B)^(L - 1). So m blocks are merged with each log block, where m = D (1 - m/B)^(L - 1).
#[test]
fn full_associative_logs_merge_as_their_rules_say() {
    let mut rng = SplitMix64::new(5);
    let (amplification, merges, erases) = hybrid(Association::Full, &mut |_| rng.below(DATA * PAGES));
    let blocks = f64::from(DATA);
    let newest = (1.0 - 1.0 / f64::from(DATA * PAGES)).powf(f64::from(PAGES) * (f64::from(LOGS) - 0.5));
    let distinct = blocks * (1.0 - (1.0 - newest / blocks).powi(PAGES as i32));
    let merged = (0..200).fold(distinct, |m, _| (m + distinct * (1.0 - m / blocks).powi(LOGS as i32 - 1)) / 2.0);
    let pages = f64::from(PAGES);
    let wanted = [1.0 + merged, merged / pages, (merged + 1.0) / pages];
    for (ours, wanted) in [amplification, merges, erases].into_iter().zip(wanted) {
        assert!((ours / wanted - 1.0).abs() < 0.05, "{ours:.3} for {wanted:.3}");
    }
}

/// Sequential writes are switch merges alone, whatever a log block serves: nothing is copied, one block erased.
#[test]
fn sequential_writes_copy_nothing() {
    let seen: Vec<_> =
        [Association::Block, Association::Full].map(|a| hybrid(a, &mut |i| i % (DATA * PAGES))).into_iter().collect();
    for (amplification, merges, erases) in seen {
        assert!(amplification == 1.0 && merges == 0.0, "{amplification} {merges}");
        assert!((erases * f64::from(PAGES) - 1.0).abs() < 0.01, "{erases}");
    }
}
