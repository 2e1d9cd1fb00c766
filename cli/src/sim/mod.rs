//! `weir sim`: a drive and its tenants in virtual time.
//!
//! ```text
//!   Args ─► Document (file, --trace, --seed, --series) ─ --set ─► a Scenario for each combination ─► Outcome ─► Report
//!                                                        all are read before the first one runs
//! ```
//! Nothing is printed before everything has succeeded; the same file and seed print the same JSON and CSV, byte for byte.

mod args;
mod csv;
mod live;
mod sweep;

pub use args::Args;

use crate::failure::Failure;
use crate::output::{self, Table};
use crate::report::{DeviceReport, Report, RunReport};
use live::Live;
use serde::Serialize;
use std::time::Instant;
use sweep::Combination;
use weir_sim::Outcome;

/// One combination's result.
struct Done {
    /// What `--set` chose for it.
    set: Vec<(String, String)>,
    report: Report,
}

/// Simulates.
///
/// # Errors
/// Wrong usage, a file or a trace that is wrong, a job that the drive cannot serve.
pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    if json && args.csv {
        return Err(Failure::usage("sim: --json and --csv cannot both be printed; choose one"));
    }
    let combinations = sweep::combinations(args)?;
    let (begun, runs) = (Instant::now(), combinations.len());
    let mut live = Live::new(runs);
    let mut results = Vec::with_capacity(runs);
    for (at, Combination { set, scenario }) in combinations.into_iter().enumerate() {
        live.begin(at);
        let outcome = scenario.run(|progress| live.show(&progress)).map_err(|e| {
            let of = if runs > 1 { format!(" ({})", sweep::shown(&set)) } else { String::new() };
            Failure::new(format_args!("sim{of}: {e}"))
        })?;
        results.push(Done { set, report: report(&scenario, outcome) });
    }
    live.finish();
    match (json, args.csv) {
        (_, true) => output::text(&csv::render(&results)),
        (true, _) => print_json(&results),
        _ => {
            let requests: u64 = results.iter().filter_map(|r| r.report.run.as_ref()).map(|r| r.requests).sum();
            let seconds = begun.elapsed().as_secs_f64();
            let speed = format!(
                "{requests} requests simulated in {seconds:.2} s ({} a second)\n",
                crate::report::count(requests as f64 / seconds.max(1e-9))
            );
            output::text(&(text(&results) + &speed))
        }
    }
}

fn report(scenario: &weir_sim::Scenario, outcome: Outcome) -> Report {
    let work = outcome.drive.work;
    let shared = outcome.tenants.len() < outcome.jobs.len();
    Report {
        jobs: outcome.jobs,
        tenants: if shared { outcome.tenants } else { Vec::new() },
        total: outcome.total,
        device: Some(DeviceReport {
            slots: outcome.drive.slots,
            reads: work.reads,
            writes: work.writes,
            read_bytes: work.read_bytes,
            write_bytes: work.write_bytes,
            flash: outcome.flash.map(Into::into),
        }),
        run: Some(RunReport {
            seed: scenario.seed,
            time_s: outcome.time.as_secs_f64(),
            requests: outcome.requests,
            digest: format!("{:016x}", outcome.digest),
            power_cuts: outcome.power_cuts.into_iter().map(Into::into).collect(),
        }),
    }
}

/// A run of a sweep says first what is different about it.
#[derive(Serialize)]
struct Varied<R> {
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    set: serde_json::Map<String, serde_json::Value>,
    #[serde(flatten)]
    report: R,
}

fn print_json(results: &[Done]) -> Result<(), Failure> {
    let one = |done: &Done| {
        let set = done.set.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
        Varied { set, report: done.report.json() }
    };
    match results {
        [single] => output::json(&one(single)),
        several => output::json(&several.iter().map(one).collect::<Vec<_>>()),
    }
}

/// One run in full, or one line a run.
fn text(results: &[Done]) -> String {
    if let [single] = results {
        return single.report.text();
    }
    let keys = results.iter().take(1).flat_map(|done| done.set.iter().map(|(key, _)| format!(">{key}")));
    let numbers = [">IOPS", ">MB/s", ">MEAN", ">P50", ">P99", ">P99.9", ">MAX", ">ERRORS"].map(String::from);
    let headings: Vec<String> = keys.chain(numbers).collect();
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for done in results {
        let values = done.set.iter().map(|(_, value)| value.clone());
        table.row(values.chain(crate::report::row(&done.report.total).into_iter().skip(2)));
    }
    table.render()
}
