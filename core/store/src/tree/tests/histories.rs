//! Histories under all faults at once: names are linearizable, and the store is whole in the end.

use super::checker::{brief, linearize};
use super::world::{Totals, World, WorldOptions};
use crate::linearizable::Unexplained;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use std::println;

/// Runs a world and checks its history.
pub(super) fn run(options: WorldOptions) -> Result<Totals, String> {
    let mut world = World::new(options);
    world.run()?;
    match linearize(&world.history) {
        Ok(()) => Ok(world.totals),
        // A mistake is found only if the history is wrong for sure.
        Err(Unexplained::TooMany) if options.mutant.is_some() => Ok(world.totals),
        Err(Unexplained::TooMany) => Err("there are too many orders to look at".into()),
        Err(Unexplained::Wrong(left)) => {
            let lines: Vec<String> = left.iter().map(brief).collect();
            Err(format!("no order explains:\n{}", lines.join("\n")))
        }
    }
}

fn runs(from: u64, count: u64, faults: u32) -> Totals {
    let mut sum = Totals::default();
    for seed in from..from + count {
        match run(WorldOptions { seed, calls: 200, faults, mutant: None }) {
            Ok(totals) => sum = sum.and(&totals),
            Err(why) => panic!("seed {seed}, faults {faults}: {why}"),
        }
    }
    sum
}

#[test]
fn without_faults_of_the_store() {
    runs(0, 20, 0);
}

#[test]
fn under_all_faults() {
    let sum = runs(1000, 100, 30_000).and(&runs(5000, 50, 100_000));
    println!("{sum:#?}");
    let kv = sum.kv;
    for (what, count) in [
        ("unknown, made", kv.unknown_made),
        ("unknown, not made", kv.unknown_dropped),
        ("unknown, made late", kv.unknown_late),
        ("tried twice", kv.twice),
        ("reads without an answer", kv.unavailable),
        ("answers that come twice", kv.repeated),
        ("packets lost", sum.lost),
        ("packets doubled", sum.doubled),
        ("services killed", sum.kills),
        ("services that stood still", sum.pauses),
        ("lives ended by another service", sum.fences),
        ("containers released", sum.releases),
        ("orphans worked at", sum.reaped),
        ("requests sent again", sum.answered_again),
    ] {
        assert!(count > 0, "{what}: never");
    }
}
