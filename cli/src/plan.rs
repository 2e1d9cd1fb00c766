//! `weir plan`: whether a drive can keep what its tenants were promised, and by which weights.
//!
//! ```text
//!   FILE, --add FILE ─► PlanFile ─ plan ─► Planned ─► table or JSON; exit status 0: feasible, 1: not
//! ```

use crate::failure::Failure;
use crate::output::{self, Table};
use crate::report::{LatencyJson, count, megabytes, time};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;
use weir_node::config::{Document, Mechanism};
use weir_plan::planner::{Got, Unmet};
use weir_sim::plan::{Figures, PlanFile, Planned, Step};
use weir_units::{Bytes, Nanos};

/// What to plan.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  weir plan three-tenants.plan.toml
  weir plan three-tenants.plan.toml --add newcomer.toml    do they still fit with one more?
  weir plan three-tenants.plan.toml --json | jq .quanta

  where three-tenants.plan.toml has
    [[device]]
    latency = \"80us\"                     or profile = \"p3700\", or calibration = \"FILE\"
    [[tenant]]
    name = \"gold\"
    class = \"high\"
    demand = { rw = \"randread\", bs = \"4KiB\", qd = 64 }
    sla = { iops = 300000, p99 = \"500us\" }

Exit status 1 when the promises cannot be kept. docs/plan.md has every key.")]
pub struct Args {
    /// The plan: TOML with [[device]] or calibration, and [[tenant]] with demand and sla
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Another file's [[tenant]] beside those of the plan (repeatable)
    #[arg(long, value_name = "FILE")]
    pub add: Vec<PathBuf>,
}

/// Plans.
///
/// # Errors
/// A file that is wrong, a drive that cannot be simulated, promises that cannot be kept.
pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    let document = Document::load(&args.file)?;
    let added = args.add.iter().map(|file| Document::load(file)).collect::<Result<Vec<_>, _>>()?;
    let file = PlanFile::read(&document, &added)?;
    let live = Live::new();
    let planned = file.plan(&mut |step| live.show(step)).map_err(|e| Failure::new(format_args!("plan: {e}")))?;
    live.finish();
    if json {
        output::json(&PlanJson::from(&planned))?;
    } else {
        output::text(&text(&planned))?;
    }
    match planned.reason() {
        None => Ok(()),
        Some(why) => Err(Failure::new(format_args!("plan {}: not feasible: {why}", args.file.display()))),
    }
}

/// A line that says how far the plan has come, where somebody watches.
struct Live {
    bar: Option<ProgressBar>,
}

/// How often the line moves while a simulation says nothing.
const TICK: Duration = Duration::from_millis(200);

impl Live {
    fn new() -> Live {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            // The template is a constant and was tried.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TICK);
            bar
        });
        Live { bar }
    }

    fn show(&self, step: Step) {
        if let Some(bar) = &self.bar {
            bar.set_message(told(step));
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn told(step: Step) -> String {
    match step {
        Step::Measuring { done, of } => format!("measuring the drive: load test {} of {of}", done + 1),
        Step::Simulating { runs, part } => format!("simulation {}: {:.0} %", runs + 1, part * 100.0),
    }
}

#[derive(Serialize)]
struct PlanJson {
    feasible: bool,
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quanta: Option<ClassesJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<ClassesJson>,
    tenants: Vec<TenantJson>,
    unmet: Vec<UnmetJson>,
    /// Those that fit, counted from the first; absent where all do.
    #[serde(skip_serializing_if = "Option::is_none")]
    fitting: Option<Vec<String>>,
    drive: DriveJson,
    simulation: SimulationJson,
}

#[derive(Serialize)]
struct ClassesJson {
    high: u32,
    medium: u32,
    low: u32,
}

#[derive(Serialize)]
struct TenantJson {
    name: String,
    class: &'static str,
    weight: u16,
    predicted: FiguresJson,
    simulated: FiguresJson,
    error_pct: ErrorJson,
    sla_met: bool,
}

#[derive(Serialize)]
struct FiguresJson {
    iops: f64,
    bandwidth_bytes_per_s: f64,
    latency_ns: Option<LatencyJson>,
}

#[derive(Serialize)]
struct ErrorJson {
    bandwidth: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
}

#[derive(Serialize)]
struct UnmetJson {
    tenant: String,
    bound: &'static str,
    wanted: f64,
    got: Option<f64>,
    by_pct: Option<f64>,
    even_alone: bool,
}

#[derive(Serialize)]
struct DriveJson {
    figures: String,
    promised_pct: f64,
}

#[derive(Serialize)]
struct SimulationJson {
    runs: u32,
    time_s: f64,
}

impl From<&Got> for FiguresJson {
    fn from(got: &Got) -> Self {
        FiguresJson {
            iops: got.iops,
            bandwidth_bytes_per_s: got.bandwidth,
            latency_ns: got.latency.map(LatencyJson::from),
        }
    }
}

impl From<&Planned> for PlanJson {
    fn from(planned: &Planned) -> Self {
        let answer = &planned.answer;
        let [high, medium, low] = answer.shares.classes;
        let classes = |of: Mechanism| (planned.mechanism == of).then_some(ClassesJson { high, medium, low });
        let name = |i: usize| planned.members[i].tenant.name.clone();
        let tenant = |i: usize| TenantJson {
            name: name(i),
            class: planned.members[i].tenant.class.name(),
            weight: answer.shares.tenants[i],
            predicted: (&answer.predicted[i]).into(),
            simulated: (&planned.simulated[i]).into(),
            error_pct: errors(&answer.predicted[i], &planned.simulated[i]),
            sla_met: answer.unmet.iter().all(|unmet| unmet.tenant != i),
        };
        let missed = |unmet: &Unmet| UnmetJson {
            tenant: name(unmet.tenant),
            bound: unmet.bound.name(),
            wanted: unmet.bound.value(),
            got: unmet.got,
            by_pct: unmet.got.map(|_| unmet.by() * 100.0),
            even_alone: planned.alone.contains(&unmet.tenant),
        };
        PlanJson {
            feasible: planned.is_feasible(),
            reason: planned.reason(),
            quanta: classes(Mechanism::Drr),
            weights: classes(Mechanism::Wrr),
            tenants: (0..planned.members.len()).map(tenant).collect(),
            unmet: answer.unmet.iter().map(missed).collect(),
            fitting: (!planned.is_feasible()).then(|| (0..planned.fitting.unwrap_or(0)).map(name).collect()),
            drive: DriveJson { figures: figures(&planned.figures), promised_pct: planned.promised * 100.0 },
            simulation: SimulationJson { runs: planned.runs, time_s: planned.time.as_secs_f64() },
        }
    }
}

/// The prediction's error against the simulation, in percent of it.
fn errors(predicted: &Got, simulated: &Got) -> ErrorJson {
    let error = |ours: f64, theirs: f64| (theirs > 0.0).then(|| (ours / theirs - 1.0) * 100.0);
    let both = predicted.latency.zip(simulated.latency);
    ErrorJson {
        bandwidth: error(predicted.bandwidth, simulated.bandwidth),
        p50: both.and_then(|(ours, theirs)| error(ours.p50 as f64, theirs.p50 as f64)),
        p99: both.and_then(|(ours, theirs)| error(ours.p99 as f64, theirs.p99 as f64)),
    }
}

fn figures(of: &Figures) -> String {
    match of {
        Figures::Fixed => "its latency and slots".to_string(),
        Figures::Simulated(state) => format!("measured in simulation, {state}"),
        Figures::Calibrated(file) => format!("calibration {file}"),
    }
}

fn text(planned: &Planned) -> String {
    let answer = &planned.answer;
    let headings = ["TENANT", "CLASS", ">WEIGHT", "", ">IOPS", ">MB/s", ">P50", ">P99", ">P99.9", "SLA"];
    let mut table = Table::new(&headings);
    for (i, member) in planned.members.iter().enumerate() {
        let tenant =
            [member.tenant.name.clone(), member.tenant.class.to_string(), answer.shares.tenants[i].to_string()];
        let met = if answer.unmet.iter().any(|u| u.tenant == i) { "MISSED" } else { "met" };
        table.row(tenant.into_iter().chain(row("predicted", &answer.predicted[i])));
        let simulated = row("simulated", &planned.simulated[i]).into_iter().chain([met.to_string()]);
        table.row([(); 3].map(|()| String::new()).into_iter().chain(simulated));
    }
    format!("{}\n{}", table.render(), summary(planned))
}

fn row(what: &str, got: &Got) -> Vec<String> {
    let percentile = |of: fn(&weir_workload::Latency) -> u64| {
        got.latency.as_ref().map_or("-".to_string(), |latency| time(of(latency) as f64))
    };
    let figures = [what.to_string(), count(got.iops), megabytes(got.bandwidth)];
    figures.into_iter().chain([percentile(|l| l.p50), percentile(|l| l.p99), percentile(|l| l.p999)]).collect()
}

fn summary(planned: &Planned) -> String {
    let [high, medium, low] = planned.shares().classes;
    let shares = match planned.mechanism {
        Mechanism::Drr => {
            let [high, medium, low] = [high, medium, low].map(|bytes| Bytes(bytes.into()));
            format!("quanta = {{ high = \"{high}\", medium = \"{medium}\", low = \"{low}\" }}")
        }
        Mechanism::Wrr => format!("weights = {{ high = {high}, medium = {medium}, low = {low} }}"),
        Mechanism::Rr | Mechanism::None => format!("{} leaves nothing to choose", planned.mechanism),
    };
    let mut text = match planned.reason() {
        None => format!("feasible: {shares}\n"),
        Some(why) => format!("not feasible: {why}\nthe best there is: {shares}\n"),
    };
    let names =
        |of: &[weir_sim::plan::Member]| of.iter().map(|m| m.tenant.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(count) = planned.fitting {
        let (fit, rest) = planned.members.split_at(count);
        text += &format!("without {} it is: {}\n", names(rest), names(fit));
    }
    text += &format!(
        "the drive's figures: {}; {} simulations of {} each\n",
        figures(&planned.figures),
        planned.runs,
        Nanos(planned.time.0 / 1000 * 1000)
    );
    text
}
