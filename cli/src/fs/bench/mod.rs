//! `weir fs bench`: how fast a store is, in the modes of Crail's `iobench`.
//!
//! ```text
//!   FsBenchArgs ─► BenchPlan ─► warm_up ─► streams | in_flight | names ─► weir_store_node::client
//!                                          raw ──────────────────────────► weir_store_node::tier      the drive without the store
//!                                              └─ Meter ─► Measured ─► table or JSON
//! ```
//! `replay` has modules of its own.
//!
//! One thread asks. What moved is counted, not what was asked for: a read at the end of a file counts the bytes that were there.

pub(super) mod args;
mod in_flight;
mod meter;
mod names;
mod raw;
mod replay;
mod report;
mod streams;
mod target;
#[cfg(test)]
mod tests;

pub use args::FsBenchArgs;

use super::path::{StorePath, shown};
use crate::failure::CommandFailure;
use crate::output;
use args::{BenchCommand, BenchMode, BenchPlan};
use meter::Measured;
use report::BenchReport;
use std::fmt::Display;
use target::{Bench, BenchError};
use weir_store_node::client::{Client, CreateOptions};

/// Measures; `connect` opens the store at an address, or the one that is meant without.
///
/// # Errors
/// Wrong usage; an operation that failed.
pub fn run(
    args: &FsBenchArgs,
    json: bool,
    connect: impl Fn(Option<&str>) -> Result<Client, CommandFailure>,
) -> Result<(), CommandFailure> {
    if let Some(BenchCommand::Replay(args)) = &args.command {
        return replay::run(args, json, || connect(None));
    }
    let plan = args.plan()?;
    let (about, measured) = match &args.raw {
        Some(target) => (target.clone(), raw::measure(target, &plan, args.region, args.experiments)?),
        None => {
            let at = StorePath::parse(&args.file)?;
            let about = shown(&at.path);
            let mut runs = Vec::new();
            for _ in 0..args.experiments {
                // Nothing is left in a client's caches from one run to the next.
                let client = connect(at.store.as_deref())?;
                let options = CreateOptions {
                    classes: args.class.clone(),
                    location: args.location.clone(),
                    ..super::names::own()
                };
                let bench = Bench { client: &client, plan, path: at.path.clone(), options };
                runs.push(once(&bench).map_err(|e| failed(&plan, e))?);
            }
            (about, runs)
        }
    };
    let report = BenchReport::new(&plan, about, &measured);
    if json { output::json(&report.json()) } else { output::text(&report.text()) }
}

fn failed(plan: &BenchPlan, e: impl Display) -> CommandFailure {
    CommandFailure::new(format_args!("fs bench {}: {e}", plan.mode.name()))
}

/// One run.
fn once(bench: &Bench<'_>) -> Result<Measured, BenchError> {
    bench.warm_up()?;
    match bench.plan.mode {
        BenchMode::Write => streams::write(bench),
        BenchMode::ReadSequential => streams::read_sequential(bench),
        BenchMode::ReadRandom => streams::read_random(bench),
        BenchMode::WriteAsync => in_flight::write(bench),
        BenchMode::ReadSequentialAsync => in_flight::read(bench),
        BenchMode::ReadMultiStream => in_flight::read_multi(bench),
        BenchMode::CreateFile => names::create_files(bench),
        BenchMode::GetFile => names::get_file(bench),
        BenchMode::GetKey => names::get_key(bench),
        BenchMode::EnumerateDir => names::enumerate(bench),
    }
}
