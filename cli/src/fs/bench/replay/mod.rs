//! `weir fs bench replay`: what programs asked of a store ([`weir_store_node::record`]), asked again without them.
//!
//! ```text
//!   records ─ load ─► RecordedStep, in the order of their beginnings ─ names ─► paths, and what has to be there before
//!                                                           └ order ─► which steps of other threads come first
//!   Recording ─ prepare ─► files of seeded bytes ─ run ─► a thread for each of the record's ─► Figures ─ report
//! ```
//! **Order.** A thread makes its calls in the order of the record: a call begins when those calls of its thread that had ended before it began have ended, so as many are in flight as were.
//! It also waits for calls of other threads that had ended before: those of the same open file, and those that changed its path, a path above it, or (to
//! be listed, renamed or removed) below it. A thread begins after the threads that had ended before it began.

pub mod args;
mod calls;
mod content;
mod load;
mod names;
mod order;
mod prepare;
mod report;
mod run;
#[cfg(test)]
mod tests;

pub use args::ReplayArgs;

use crate::failure::CommandFailure;
use crate::output;
use load::Recording;
use report::ReplayReport;
use weir_store_node::client::{Client, CreateOptions};

/// Replays; `connect` opens the store.
///
/// # Errors
/// A record is none; the store does not take a call that it took before; a wrong byte.
pub fn run(
    args: &ReplayArgs,
    json: bool,
    connect: impl Fn() -> Result<Client, CommandFailure>,
) -> Result<(), CommandFailure> {
    if json && args.csv {
        return Err(CommandFailure::usage("fs bench replay: --json and --csv cannot both be printed; choose one"));
    }
    let report = replay(args, connect)?;
    match (json, args.csv) {
        (true, _) => output::json(&report.json()),
        (_, true) => output::text(&report.csv()),
        _ => output::text(&report.text()),
    }
}

fn replay(
    args: &ReplayArgs,
    connect: impl Fn() -> Result<Client, CommandFailure>,
) -> Result<ReplayReport, CommandFailure> {
    let failed = |why: String| CommandFailure::new(format_args!("fs bench replay: {why}"));
    let recording = Recording::load(&args.records).map_err(failed)?;
    let options = CreateOptions { classes: args.class.clone(), ..super::super::names::own() };
    let clients = (0..recording.clients).map(|_| connect()).collect::<Result<Vec<_>, _>>()?;
    let first = clients.first().ok_or_else(|| failed("the records have no calls".into()))?;
    prepare::make(first, &recording, &options, args).map_err(failed)?;
    let replayed = run::run(&recording, &clients, &options, args).map_err(failed)?;
    Ok(ReplayReport::new(&recording, replayed))
}
