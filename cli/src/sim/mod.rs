//! `weir sim`: a drive and its tenants in virtual time.
//!
//! ```text
//!   SimArgs ─► Document (file, --trace, --seed, --series) ─ --set ─► a Scenario for each drive of each combination ─► SimulationResult ─► Report
//!                                                        all are read before the first one runs
//! ```
//! Nothing is printed before everything has succeeded; the same file and seed print the same JSON and CSV, byte for byte.

mod args;
mod csv;
mod progress;
mod sweep;

pub use args::SimArgs;

use crate::failure::CommandFailure;
use crate::output::{self, Table};
use crate::plot;
use crate::report::{DeviceReport, Report, RunReport};
use progress::SimProgress;
use serde::Serialize;
use std::time::Instant;
use sweep::Combination;
use weir_api::FlashStatus;
use weir_config::FlashConfig;
use weir_sim::{Scenario, SimulationResult};
use weir_units::Nanos;

/// One combination's result.
struct Done {
    /// What `--set` chose for it.
    set: Vec<(String, String)>,
    /// Of each drive, with its name.
    drives: Vec<(String, Report)>,
}

impl Done {
    /// The report, where there is one drive.
    fn only(&self) -> Option<&Report> {
        match self.drives.as_slice() {
            [(_, report)] => Some(report),
            _ => None,
        }
    }
}

/// Simulates.
///
/// # Errors
/// Wrong usage, a file or a trace that is wrong, a job that the drive cannot serve.
pub fn run(args: &SimArgs, json: bool) -> Result<(), CommandFailure> {
    if json && args.csv {
        return Err(CommandFailure::usage("sim: --json and --csv cannot both be printed; choose one"));
    }
    if args.print_config {
        return output::text(&sweep::imported(args)?.0.toml);
    }
    args.plot.as_deref().map_or(Ok(()), plot::check)?;
    let combinations = sweep::combinations(args)?;
    let (begun, several) = (Instant::now(), combinations.len() > 1);
    let mut live = SimProgress::new(combinations.iter().map(|c| c.scenarios.len()).sum());
    let mut results = Vec::with_capacity(combinations.len());
    let mut at = 0;
    for Combination { set, scenarios } in combinations {
        let mut drives = Vec::with_capacity(scenarios.len());
        for scenario in &scenarios {
            live.begin(at);
            at += 1;
            let outcome = run_with_points(scenario, args.plot.is_some() && !several, &mut live).map_err(|e| {
                let run = several.then(|| sweep::shown(&set));
                let drive = (scenarios.len() > 1).then(|| scenario.device.name.clone());
                let of = [drive, run].into_iter().flatten().map(|of| format!(" ({of})")).collect::<String>();
                CommandFailure::new(format_args!("sim{of}: {e}"))
            })?;
            drives.push((scenario.device.name.clone(), report(scenario, outcome)));
        }
        results.push(Done { set, drives });
    }
    live.finish();
    if let Some(file) = &args.plot {
        drawn(args, &results).write(file)?;
    }
    match (json, args.csv) {
        (_, true) => output::text(&csv::render(&results)),
        (true, _) => print_json(&results),
        _ => {
            let requests: u64 = reports(&results).filter_map(|r| r.run.as_ref()).map(|r| r.requests).sum();
            let seconds = begun.elapsed().as_secs_f64();
            let speed = format!(
                "{requests} requests simulated in {seconds:.2} s ({} a second)\n",
                crate::report::count(requests as f64 / seconds.max(1e-9))
            );
            output::text(&(text(&results) + &speed))
        }
    }
}

/// A run that is drawn has a hundred points where nobody has said how many. Where it is not known how long it takes, as of a trace, it is made
/// once to know.
fn run_with_points(
    scenario: &Scenario,
    is_drawn: bool,
    live: &mut SimProgress,
) -> Result<SimulationResult, weir_sim::RunError> {
    let mut run = |scenario: &Scenario| scenario.run(|progress| live.show(&progress));
    if !is_drawn || scenario.series.is_some() {
        return run(scenario);
    }
    let points = |time: Nanos| Some(Nanos(time.get() / 100)).filter(|series| series.get() >= 1000);
    if let Some(time) = scenario.time {
        return run(&Scenario { series: points(time), ..scenario.clone() });
    }
    let first = run(scenario)?;
    match points(first.time.saturating_sub(scenario.ramp)) {
        None => Ok(first),
        series => run(&Scenario { series, ..scenario.clone() }),
    }
}

/// The picture of all runs.
fn drawn(args: &SimArgs, results: &[Done]) -> plot::Picture {
    let mut runs = Vec::new();
    for done in results {
        let several = done.drives.len() > 1;
        runs.extend(done.drives.iter().map(|(name, report)| plot::PlottedRun {
            set: &done.set,
            drive: several.then_some(name.as_str()),
            report,
        }));
    }
    let file = args.file.as_ref().map_or_else(|| args.from.join(" "), |file| file.display().to_string());
    let seed = reports(results).find_map(|report| report.run.as_ref()).map_or(0, |run| run.seed);
    let origin = format!("weir {}, seed {seed}, virtual time", crate::version::LINE);
    plot::picture(format!("weir sim {file}"), origin, &runs)
}

fn reports(results: &[Done]) -> impl Iterator<Item = &Report> {
    results.iter().flat_map(|done| &done.drives).map(|(_, report)| report)
}

fn is_steady(scenario: &Scenario) -> bool {
    scenario.device.flash.as_ref().is_some_and(FlashConfig::begins_at_rest)
}

fn report(scenario: &weir_sim::Scenario, outcome: SimulationResult) -> Report {
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
            is_steady: is_steady(scenario),
        }),
        run: Some(RunReport {
            seed: scenario.seed,
            time_s: outcome.time.as_secs_f64(),
            requests: outcome.requests,
            digest: format!("{:016x}", outcome.digest),
            power_cuts: outcome.power_cuts.into_iter().map(Into::into).collect(),
        }),
        waited_pct: None,
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

/// What one run prints: its report, or `devices` with the report of each.
#[derive(Serialize)]
#[serde(untagged)]
enum Printed<R> {
    One(R),
    Several { devices: Vec<Named<R>> },
}

/// A drive's report with its name.
#[derive(Serialize)]
struct Named<R> {
    name: String,
    #[serde(flatten)]
    report: R,
}

fn print_json(results: &[Done]) -> Result<(), CommandFailure> {
    let one = |done: &Done| {
        let set = done.set.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
        let report = match done.only() {
            Some(report) => Printed::One(report.json()),
            None => {
                let named = |(name, report): &(String, Report)| Named { name: name.clone(), report: report.json() };
                Printed::Several { devices: done.drives.iter().map(named).collect() }
            }
        };
        Varied { set, report }
    };
    match results {
        [single] => output::json(&one(single)),
        several => output::json(&several.iter().map(one).collect::<Vec<_>>()),
    }
}

/// One run in full, or one line for each drive of each run.
fn text(results: &[Done]) -> String {
    if let [single] = results {
        return match single.only() {
            Some(report) => report.text(),
            None => single.drives.iter().map(|(name, report)| format!("{name}\n{}\n", report.text())).collect(),
        };
    }
    let named = results.iter().any(|done| done.only().is_none());
    let has_flash = reports(results).any(|report| flash(report).is_some());
    let keys = results.iter().take(1).flat_map(|done| done.set.iter().map(|(key, _)| format!(">{key}")));
    let keys = keys.chain(named.then(|| "DEVICE".to_string()));
    let numbers = [">IOPS", ">MB/s", ">MEAN", ">P50", ">P99", ">P99.9", ">MAX", ">ERRORS"].map(String::from);
    let headings: Vec<String> = keys.chain(numbers).chain(has_flash.then(|| ">WA".to_string())).collect();
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    let mut few = 0;
    for done in results {
        for (name, report) in &done.drives {
            let values = done.set.iter().map(|(_, value)| value.clone()).chain(named.then(|| name.clone()));
            let is_few = report.device.as_ref().is_some_and(|device| device.few_collections().is_some());
            few += usize::from(is_few);
            let star = if is_few { "*" } else { "" };
            let amplification = |flash: &FlashStatus| format!("{:.2}{star}", flash.write_amplification);
            let amplification = has_flash.then(|| flash(report).map_or("-".to_string(), amplification));
            table.row(values.chain(crate::report::row(&report.total).into_iter().skip(2)).chain(amplification));
        }
    }
    let note = format!(
        "WA*: too few collections in {few} runs: their write amplification is not that of a steady state; run for longer, or from \
         precondition = \"steady\"\n"
    );
    table.render() + if few > 0 { &note } else { "" }
}

fn flash(report: &Report) -> Option<&FlashStatus> {
    report.device.as_ref()?.flash.as_ref()
}
