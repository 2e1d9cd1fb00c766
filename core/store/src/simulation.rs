//! The whole store in one test: a metadata service over a key-value store, drives, and clients, as the machines that ship, on a network that is
//! simulated. Everything comes from a seed.
//!
//! ```text
//!   Script ─► ClientMachine ◄──── Network: delay, partitions, lost connections ────► Service ◄──► FaultyKv
//!                  └─ commands ─► Drive: associations, late writes, restarts
//!   History ◄─ every write, flush, read, open, delete, rename: begun, ended, how
//! ```
//! **What is checked.** Each 256 bytes that are written carry the file, which write it was, and where. A read may give, of each of those, what was
//! published last before the file was opened, or something newer that was being published; never bytes of another file, never something
//! older, never what a writer that is well has not published, but for what it
//! writes over in published blocks ([`history`]). No operation of a file fails because client and service contradict each other, as where a block was moved
//! under its writer. Names are linearizable ([`names`]). In the end all faults cease, and a new client reads
//! every file: nothing is lost that was acknowledged.
//!
//! **What happens.** Connections end, the network is cut, clients and services are killed or stand still for longer than three leases, the metadata's
//! machine has no power for a moment, drives stand still or are started again, drain for a while or are away for so long that lost copies are made again, clocks run at different speeds, commits have unknown outcomes.
//! [`Totals`] counts each kind, and each pair of kinds that came together in a run.

mod client;
mod commands;
mod drive;
mod faults;
mod history;
mod names;
mod network;
mod power;
mod script;
mod services;
mod totals;
mod world;

use crate::mutant::Mutant;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use std::println;
use totals::Totals;
use world::{Options, World};

/// Faults of a run.
const FAULTS: usize = 6;

/// A number that the environment gives.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

/// Every third run demotes files.
fn is_tiered(seed: u64) -> bool {
    seed % 3 == 0
}

/// One run: what has happened, or what is wrong.
fn run(seed: u64, mutant: Option<Mutant>) -> Result<Totals, String> {
    let is_traced = std::env::var_os("WEIR_STORE_TRACE").is_some();
    World::new(Options { seed, mutant, faults: FAULTS, services: 1, is_tiered: is_tiered(seed), is_traced }).run()
}

/// One run with two services.
fn run_with_two(seed: u64, mutant: Option<Mutant>) -> Result<Totals, String> {
    let is_traced = std::env::var_os("WEIR_STORE_TRACE").is_some();
    World::new(Options { seed, mutant, faults: FAULTS, services: 2, is_tiered: is_tiered(seed), is_traced }).run()
}

/// A run by its seed.
type Run = fn(u64, Option<Mutant>) -> Result<Totals, String>;

/// Runs with those seeds: all that has happened, or the first run that is wrong.
fn runs(run: Run, from: u64, count: u64) -> Totals {
    let mut sum = Totals::default();
    for seed in from..from + count {
        match run(seed, None) {
            Ok(totals) => sum.add(&totals),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    sum
}

/// What was found on the way, by seed.
#[test]
fn seeds_that_have_found_something() {
    for (seed, what) in SEEDS {
        if let Err(why) = run(*seed, None) {
            panic!("seed {seed}, which once found this: {what}: {why}");
        }
    }
}

/// Seeds, and what was wrong with the store when they were tried first.
const SEEDS: &[(u64, &str)] = &[
    (
        98,
        "a client went on that had given up a write behind the file's end; when the file grew, those bytes were the file's",
    ),
    (1033, "fsck found fault with a block whose first copy was marked out"),
];

#[test]
fn nothing_is_lost_and_nothing_is_another_files() {
    let totals = runs(run, 0, 40);
    println!("{}", totals.lines());
    assert!(totals.operations() > 200 * totals.runs, "a run has at least 200 operations");
    assert!(totals.moved > totals.runs, "blocks were moved");
    assert!(totals.demoted > 10, "and demoted");
    assert!(totals.beside > totals.runs, "writes of one block were at a drive at once");
}

#[test]
fn a_service_that_stands_by_takes_over() {
    let totals = runs(run_with_two, 0, 20);
    println!("{}", totals.lines());
    assert!(totals.operations() > 200 * totals.runs, "a run has at least 200 operations");
    assert!(
        totals.lives > totals.runs && totals.referred > 0,
        "others have taken over, and clients were referred to them"
    );
}

/// As [`many_runs`], with two services.
#[test]
#[ignore = "minutes to hours: WEIR_STORE_RUNS says how many runs, 1,000 if it does not"]
fn many_runs_with_two_services() {
    let totals = runs(run_with_two, number("WEIR_STORE_FROM", 10_000), number("WEIR_STORE_RUNS", 1_000));
    println!("{}", totals.lines());
    assert_eq!(totals.missing(), Vec::<String>::new(), "each kind of fault, and each pair of kinds, has happened");
}

/// `WEIR_STORE_RUNS` runs from seed `WEIR_STORE_FROM` on: no kind of fault is missing, and no pair of kinds.
#[test]
#[ignore = "minutes to hours: WEIR_STORE_RUNS says how many runs, 1,000 if it does not"]
fn many_runs() {
    let totals = runs(run, number("WEIR_STORE_FROM", 10_000), number("WEIR_STORE_RUNS", 1_000));
    println!("{}", totals.lines());
    assert_eq!(totals.missing(), Vec::<String>::new(), "each kind of fault, and each pair of kinds, has happened");
}

/// The first run that finds a planted fault.
fn finds(run: Run, mutant: Mutant, most: u64) -> Option<(u64, String)> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let from = number("WEIR_STORE_FROM", 0);
    let found = (from..from + most).find_map(|seed| match std::panic::catch_unwind(|| run(seed, Some(mutant))) {
        Ok(result) => result.err().map(|why| (seed, why)),
        Err(_) => Some((seed, "a check of a machine".into())),
    });
    std::panic::set_hook(hook);
    found
}

/// Planted faults that the whole store has to show; those of one machine are found in its own tests.
const MUTANTS: [Mutant; 26] = [
    Mutant::NoQuarantine,
    Mutant::TailWithoutQuarantine,
    Mutant::EpochNotAdvanced,
    Mutant::GrantBeforeCommit,
    Mutant::UnknownIsConflict,
    Mutant::AnyRaiseCounts,
    Mutant::LeaseFromAnswer,
    Mutant::AcknowledgeBeforeForget,
    Mutant::WatchWithoutMargin,
    Mutant::EndedBeforeFenced,
    Mutant::HorizonWithoutFencing,
    Mutant::AcknowledgeBeforeMark,
    Mutant::WriteBeforeUnsettle,
    Mutant::LeaseCheckedBeforeOnly,
    Mutant::WaitsBeyondLease,
    Mutant::GapsNotFilled,
    Mutant::InFlightNotCounted,
    Mutant::SizeBeforeBlocks,
    Mutant::OverlappingWrites,
    Mutant::TruncateUnflushed,
    Mutant::AnyChunkCounts,
    Mutant::StopAtTicks,
    Mutant::ClosedInDoubt,
    Mutant::UnsettleBeforeDurable,
    Mutant::ReuseUnderRecovery,
    Mutant::MoveUnderWriter,
];

/// Planted faults that two services have to show.
const MUTANTS_OF_TWO: [Mutant; 5] = [
    Mutant::CommitWithoutLife,
    Mutant::AnswersAfterLease,
    Mutant::BeginsBeforeLeaseOver,
    Mutant::RenewalFromAnswer,
    Mutant::StateOutlivesLife,
];

/// `WEIR_STORE_MUTANTS` names some of them, with commas; all if it does not.
#[test]
#[ignore = "minutes to hours"]
fn planted_faults_are_found() {
    let most = number("WEIR_STORE_RUNS", 2_000);
    let wanted = std::env::var("WEIR_STORE_MUTANTS").unwrap_or_default();
    let is_wanted = |mutant: &Mutant| wanted.is_empty() || wanted.split(',').any(|name| name == format!("{mutant:?}"));
    let mut alive = Vec::new();
    let alone = MUTANTS.into_iter().map(|mutant| (mutant, run as Run));
    let of_two = MUTANTS_OF_TWO.into_iter().map(|mutant| (mutant, run_with_two as Run));
    for (mutant, run) in alone.chain(of_two).filter(|(mutant, _)| is_wanted(mutant)) {
        match finds(run, mutant, most) {
            Some((seed, why)) => println!("{mutant:?}: seed {seed}: {why:.200}"),
            None => {
                println!("{mutant:?}: not in {most} runs");
                alive.push(mutant);
            }
        }
    }
    assert_eq!(alive, [], "not found in {most} runs");
}
