//! Every mistake is found, within 2,000 runs.

use super::histories::run;
use super::world::{UNFINISHED, WorldOptions};
use crate::tree::mutant::Mutant;
use alloc::string::String;
use alloc::vec::Vec;
use std::println;

/// Runs at the most until a mistake is found.
const RUNS_MAX: u64 = 2_000;

/// The first run that finds it, and how. A run counts only if without the mistake nothing is found in it.
fn found(mutant: Mutant) -> Option<(u64, String)> {
    (0..RUNS_MAX).find_map(|seed| {
        // Few faults and many take turns.
        let faults = [10_000, 30_000, 100_000][seed as usize % 3];
        let with = |mutant| run(WorldOptions { seed, calls: 200, faults, mutant }).err();
        let why = with(Some(mutant)).filter(|why| !why.starts_with(UNFINISHED))?;
        with(None).is_none().then_some((seed, why))
    })
}

#[test]
fn each_is_found() {
    let mut alive = Vec::new();
    for mutant in Mutant::ALL {
        let started = std::time::Instant::now();
        match found(mutant) {
            Some((seed, why)) => {
                println!("{:?} {mutant:?}: run {seed}: {}", started.elapsed(), why.lines().next().unwrap_or_default())
            }
            None => alive.push(mutant),
        }
    }
    assert!(alive.is_empty(), "not found in {RUNS_MAX} runs: {alive:?}");
}
