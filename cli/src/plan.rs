//! `weir plan`: whether a drive can keep what its tenants were promised, and by which weights.
//!
//! ```text
//!   FILE, --add FILE ─► PlanFile ─ plan ─► Planned ─► table or JSON; exit status 0: feasible, 1: not
//! ```

use crate::failure::CommandFailure;
use crate::output::{self, Table};
use crate::report::{LatencyJson, count, megabytes, time};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;
use weir_config::{Document, Mechanism};
use weir_plan::Margin;
use weir_plan::planner::{Got, Unmet};
use weir_sim::plan::{AnswerSource, Effort, Figures, PlanFile, PlanProgress, Planned, SlotsAdvice};
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

Exit status 1 when the promises cannot be kept. docs/guides/plan.md has every key.")]
pub struct PlanArgs {
    /// The plan: TOML with [[device]] or calibration, and [[tenant]] with demand and sla
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Another file's [[tenant]] beside those of the plan (repeatable)
    #[arg(long, value_name = "FILE")]
    pub add: Vec<PathBuf>,
    /// Simulate for as long as it takes, and try every ratio of shares before the plan is called infeasible
    #[arg(long)]
    pub full: bool,
}

/// Plans.
///
/// # Errors
/// A file that is wrong, a drive that cannot be simulated, promises that cannot be kept.
pub fn run(args: &PlanArgs, json: bool) -> Result<(), CommandFailure> {
    let document = Document::load(&args.file)?;
    let added = args.add.iter().map(|file| Document::load(file)).collect::<Result<Vec<_>, _>>()?;
    let file = PlanFile::read(&document, &added)?;
    let live = Live::new();
    let effort = if args.full { Effort::Full } else { Effort::Brief };
    let planned =
        file.plan(effort, &mut |step| live.show(step)).map_err(|e| CommandFailure::new(format_args!("plan: {e}")))?;
    live.finish();
    if json {
        output::json(&PlanJson { advised_slots: file.slots_advice().map(|of| of.advised), ..(&planned).into() })?;
    } else {
        output::text(&(text(&planned) + &file.slots_advice().map_or(String::new(), |of| advice(&of))))?;
    }
    match planned.reason() {
        None => Ok(()),
        Some(why) => Err(CommandFailure::new(format_args!("plan {}: not feasible: {why}", args.file.display()))),
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

    fn show(&self, step: PlanProgress) {
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

fn told(step: PlanProgress) -> String {
    match step {
        PlanProgress::Measuring { done, of } => format!("measuring the drive: load test {} of {of}", done + 1),
        PlanProgress::Simulating { runs } => format!("simulation {}", runs + 1),
    }
}

#[derive(Serialize)]
struct PlanJson {
    feasible: bool,
    /// What the answer rests on: simulation, or model.
    source: &'static str,
    /// Whether the search ended before every ratio of shares was tried.
    cut_short: bool,
    model: ModelJson,
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
    /// What `slots` should be, where shares decide nothing with those that there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    advised_slots: Option<u16>,
}

/// What the model says alone, and admission with it, and its margin for its own error.
#[derive(Serialize)]
struct ModelJson {
    verdict: &'static str,
    rate_margin_pct: f64,
    latency_margin_pct: f64,
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
    margin_pct: MarginJson,
}

/// By how much a figure may be off: the model's own error, or what simulations with other seeds vary by.
#[derive(Serialize)]
struct MarginJson {
    rate: f64,
    p50: f64,
    p99: f64,
    p999: f64,
}

impl From<Margin> for MarginJson {
    fn from(of: Margin) -> Self {
        let [rate, p50, p99, p999] = [of.rate, of.p50, of.p99, of.p999].map(|part| part * 100.0);
        MarginJson { rate, p50, p99, p999 }
    }
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
    /// Capacity of the smaller drive that was simulated in its stead.
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated_as_bytes: Option<u64>,
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
            margin_pct: got.margin.into(),
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
        let margin = planned.verdict.margin();
        PlanJson {
            feasible: planned.is_feasible(),
            source: match planned.source {
                AnswerSource::Simulation => "simulation",
                AnswerSource::Model => "model",
            },
            cut_short: planned.is_cut_short,
            model: ModelJson {
                verdict: verdict(planned),
                rate_margin_pct: margin.rate * 100.0,
                latency_margin_pct: margin.time() * 100.0,
            },
            reason: planned.reason(),
            quanta: classes(Mechanism::Drr),
            weights: classes(Mechanism::Wrr),
            tenants: (0..planned.members.len()).map(tenant).collect(),
            unmet: answer.unmet.iter().map(missed).collect(),
            fitting: (!planned.is_feasible()).then(|| (0..planned.fitting.unwrap_or(0)).map(name).collect()),
            drive: DriveJson {
                figures: figures(&planned.figures),
                promised_pct: planned.promised * 100.0,
                simulated_as_bytes: planned.simulated_as.map(|bytes| bytes.0),
            },
            simulation: SimulationJson { runs: planned.runs, time_s: planned.time.as_secs_f64() },
            advised_slots: None,
        }
    }
}

/// What the model says of the promises under the plan's shares.
fn verdict(planned: &Planned) -> &'static str {
    match &planned.verdict {
        verdict if verdict.is_kept() => "kept",
        verdict if verdict.is_missed() => "missed",
        _ => "close",
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

fn advice(of: &SlotsAdvice) -> String {
    let SlotsAdvice { slots, in_flight, advised } = of;
    format!(
        "the {in_flight} commands of all tenants fit into the drive's {slots} slots, so shares decide nothing: with slots = \
         {advised} they would\n"
    )
}

/// The drive that was simulated in its stead.
fn instead(planned: &Planned) -> String {
    planned.simulated_as.map_or(String::new(), |bytes| format!(", as a drive of {bytes} with the same dies and spare"))
}

/// What the answer rests on, and what the model says where it does not rest on it.
fn source(planned: &Planned) -> String {
    let margin = planned.verdict.margin();
    let [rate, latency] = [margin.rate, margin.time()].map(|part| format!("{:.0} %", part * 100.0));
    let margin = format!("with a margin of {rate} of rates and {latency} of latencies");
    match planned.source {
        AnswerSource::Model => format!("this is the model's answer, as admission gives it, {margin}\n"),
        AnswerSource::Simulation => {
            let runs = planned.runs;
            let time = Nanos(planned.time.0 / 1000 * 1000);
            let alone = match verdict(planned) {
                "kept" => "sees every promise kept as well: a node with a calibration of this drive admits them",
                "close" => "cannot tell: a node with a calibration of this drive refuses, and takes them with --force",
                _ => "sees a promise missed: a node with a calibration of this drive refuses",
            };
            format!("this is what simulation shows: {runs} of {time} each\nthe model alone, {margin}, {alone}\n")
        }
    }
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
        |of: &[weir_sim::plan::PlannedTenant]| of.iter().map(|m| m.tenant.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(count) = planned.fitting {
        let (fit, rest) = planned.members.split_at(count);
        text += &format!("without {} it is: {}\n", names(rest), names(fit));
    }
    text += &format!("the drive's figures: {}{}\n", figures(&planned.figures), instead(planned));
    text + &source(planned)
}
