//! The rules hold in seeded runs with faults of every kind, and each planted fault is found.

use super::world::{Totals, World};
use crate::kv::KvFaults;
use crate::mutant::Mutant;
use alloc::string::{String, ToString};

extern crate std;

const FAULTS: KvFaults = KvFaults::all(30_000);

/// Runs a planted fault may take at the most.
const RUNS: u64 = 2_000;

fn run(seed: u64, mutant: Option<Mutant>) -> Result<Totals, String> {
    let run = std::panic::catch_unwind(|| World::new(seed, FAULTS, mutant).run());
    run.unwrap_or_else(|_| Err("an invariant of the machine is broken".to_string()))
}

#[test]
fn no_byte_is_anybody_elses() {
    let mut all = [0; 14];
    for seed in 0..2_000 {
        let t = World::new(seed, FAULTS, None).run().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let counts = [
            t.grants,
            t.published,
            t.appended,
            t.deleted,
            t.returned,
            t.reads,
            t.reused,
            t.takeovers,
            t.fenced,
            t.restarts,
            t.power_cuts,
            t.unknown,
            t.conflicts,
            t.full,
        ];
        all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    std::println!(
        "grants, published, appended, deleted, returned, reads, reused, takeovers, fenced, restarts, cuts, unknown, conflicts, full: {all:?}"
    );
    assert!(all.iter().all(|count| *count > 200), "everything happens: {all:?}");
}

#[test]
fn every_planted_fault_is_found() {
    for mutant in [
        Mutant::NoQuarantine,
        Mutant::ReuseBeforeDurable,
        Mutant::TailWithoutQuarantine,
        Mutant::EpochNotAdvanced,
        Mutant::GrantBeforeCommit,
        Mutant::TakeoverKeepsTerm,
        Mutant::TakeoverFreesGrants,
        Mutant::UnknownIsConflict,
        Mutant::ProbeBeforeRaise,
        Mutant::TakeoverFreesQuarantine,
    ] {
        std::println!("{mutant:?} …");
        let found = (0..RUNS).find_map(|seed| run(seed, Some(mutant)).err().map(|why| (seed, why)));
        let (seed, why) = found.unwrap_or_else(|| panic!("{mutant:?} is not found in {RUNS} runs"));
        std::println!("{mutant:?}: seed {seed}: {why}");
    }
}
