//! `weir reproduce`: figures of papers made again.
//!
//! ```text
//!   ReproduceArgs ─► Subject ─ figure(Clock) ─► Figure ─► table or JSON on standard output, NAME.json and NAME.html in --out
//!                            └── bench: what needs a real clock
//! ```

use crate::bench;
use crate::failure::CommandFailure;
use crate::nodes::{Processes, StoreProcesses};
use crate::output::{self, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_config::DeviceConfig;
use weir_sim::reproduce::{
    AccessPattern, ClockKind, Design, Figure, LiveMeasurements, Load, Nodes, Overhead, Row, RowVerdict, Seen,
    SharedDrive, Span, Stores, Subject, Usage, number, plan_campaign,
};
use weir_units::{Bytes, Nanos, parse};
use weir_workload::{Answered, Planned};
use weir_workload::{Job, JobResult};

/// Where reports are written: a folder of their own.
const FOLDER: &str = "weir-reproduce";

/// What to reproduce.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  weir reproduce                          list what there is
  weir reproduce femu-fig4                print the table; write weir-reproduce/femu-fig4.json and .html
  weir reproduce femu-fig6a --out report  write them into another folder
  weir reproduce qos-fig8 --live          by the real clock what runs by either
  weir reproduce spool-table2 --full      minutes instead of seconds, and narrower intervals
  weir reproduce crail-terasort --live --size 256MiB --hadoop 'weir-hadoop.jar:/opt/hadoop/lib/*'
                                          Hadoop's own sort on a store, beside the simulated ones

Exit status 1 when a row is missed: it is not as the paper says. What runs by the real clock measures this machine: run it
while nothing else runs; a row that cannot be judged because something did is \"not judged: disturbed\". docs/guides/reproduce.md
says what is compared with what.")]
pub struct ReproduceArgs {
    /// Which figure; without it, a list
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Where NAME.json and NAME.html are written; made if it is not there
    #[arg(short, long, value_name = "DIR", default_value = FOLDER)]
    pub out: PathBuf,
    /// By the real clock on a drive in memory, instead of in virtual time; for those that run by either
    #[arg(long)]
    pub live: bool,
    /// As long as it takes to be sure, some minutes, instead of a look; for the figures of spool and crail, and store-scale
    #[arg(long)]
    pub full: bool,
    /// How many plans plan-campaign draws [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub plans: Option<u64>,
    /// Bytes that crail-terasort sorts [default: 1GiB; with --full 200 GB, with --live 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = sort_size)]
    pub size: Option<u64>,
    /// Java's class path for crail-terasort --live: Weir's jar, and Hadoop's with its examples
    #[arg(long, value_name = "CLASSPATH")]
    pub hadoop: Option<String>,
}

/// The least that a figure of it shows anything.
const LEAST_SIZE: Bytes = Bytes(64 << 20);

fn sort_size(text: &str) -> Result<u64, String> {
    match parse::bytes(text).map_err(|e| e.to_string())? {
        size if size < LEAST_SIZE => Err("at least 64MiB are sorted".into()),
        Bytes(bytes) => Ok(bytes),
    }
}

/// What is asked of a figure that does not have it.
fn misused(args: &ReproduceArgs, subject: Subject) -> Option<&'static str> {
    let is_sort = subject == Subject::CrailTerasort;
    if args.live && subject.clock() == ClockKind::Virtual {
        return Some("runs in virtual time only; leave --live out");
    }
    if args.full && !subject.has_lengths() {
        return Some("has one length; leave --full out");
    }
    if args.plans.is_some() && subject != Subject::PlanCampaign {
        return Some("draws no plans; leave --plans out");
    }
    if args.size.is_some() && !is_sort {
        return Some("sorts nothing; leave --size out");
    }
    match (is_sort, args.live, &args.hadoop) {
        (false, _, Some(_)) => Some("sorts nothing; leave --hadoop out"),
        (true, false, Some(_)) => Some("is simulated; add --live to sort by Hadoop as well"),
        (true, true, None) => Some("--live sorts by Hadoop; say where it is (--hadoop CLASSPATH)"),
        _ => None,
    }
}

/// Makes a figure, or lists them.
///
/// # Errors
/// No such figure, a folder that cannot be written, a row that is missed.
pub fn run(args: &ReproduceArgs, json: bool) -> Result<(), CommandFailure> {
    let Some(name) = &args.name else { return list(json) };
    let subject: Subject = name.parse().map_err(|e| CommandFailure::usage(format_args!("reproduce: {e}")))?;
    if let Some(why) = misused(args, subject) {
        return Err(CommandFailure::usage(format_args!("reproduce {subject}: {why}")));
    }
    let mut clock = Clock::new(subject, args);
    let figure = match args.plans {
        Some(plans) if subject == Subject::PlanCampaign => plan_campaign(plans, &mut |part| clock.progress(part)),
        _ => subject.figure(&mut clock),
    };
    let figure = figure.map_err(|e| CommandFailure::new(format_args!("reproduce {subject}: {e}")))?;
    drop(clock);
    let report = FigureJson::from(&figure);
    let mut text = serde_json::to_string_pretty(&report).map_err(CommandFailure::new)?;
    text.push('\n');
    let files = [("json", text), ("html", figure.html())];
    let mut written = Vec::new();
    for (kind, contents) in &files {
        let path = args.out.join(format!("{subject}.{kind}"));
        write(&args.out, &path, contents)
            .map_err(|e| CommandFailure::new(format_args!("reproduce {subject}: {}: {e}", path.display())))?;
        written.push(path.display().to_string());
    }
    if json {
        output::json(&report)?;
        figure.notes.iter().for_each(|note| eprintln!("{note}"));
    } else {
        let notes: String = figure.notes.iter().map(|note| format!("\n{note}\n")).collect();
        output::text(&format!("{}{notes}\n{}", table(&figure), written.join("\n") + "\n"))?;
    }
    verdict(&figure)
}

fn verdict(figure: &Figure) -> Result<(), CommandFailure> {
    let bad: Vec<&Row> = figure.rows.iter().filter(|row| !row.ok()).collect();
    let Some(first) = bad.first() else { return Ok(()) };
    Err(CommandFailure::new(format_args!(
        "reproduce {}: {} of {} rows are missed; the first: {}: {} {}, held to {}",
        figure.subject,
        bad.len(),
        figure.rows.len(),
        first.label,
        number(first.ours),
        first.unit,
        first.basis()
    )))
}

/// Whole or not at all, in a folder that is made where there is none.
fn write(folder: &Path, path: &Path, contents: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    output::file(path, contents)
}

fn list(json: bool) -> Result<(), CommandFailure> {
    #[derive(Serialize)]
    struct Entry {
        name: &'static str,
        title: &'static str,
        clock: &'static str,
    }
    let clock = |s: Subject| match s.clock() {
        ClockKind::Virtual => "virtual",
        ClockKind::Real => "real",
        ClockKind::Either => "either",
    };
    let entry = |s: Subject| Entry { name: s.name(), title: s.title(), clock: clock(s) };
    let entries = Subject::ALL.map(entry);
    if json {
        return output::json(&entries.as_slice());
    }
    let mut table = Table::new(&["NAME", "CLOCK", "SHOWS"]);
    for Entry { name, title, clock } in entries {
        table.row([name, clock, title].map(String::from));
    }
    output::text(&table.render())
}

#[derive(Serialize)]
struct FigureJson<'a> {
    name: &'static str,
    rows: Vec<RowJson<'a>>,
    ok: bool,
}

#[derive(Serialize)]
struct RowJson<'a> {
    label: &'a str,
    paper: Option<f64>,
    ours: f64,
    unit: &'static str,
    deviation_pct: Option<f64>,
    tolerance_pct: Option<f64>,
    verdict: &'static str,
    ok: bool,
}

impl<'a> From<&'a Figure> for FigureJson<'a> {
    fn from(figure: &'a Figure) -> Self {
        let row = |row: &'a Row| RowJson {
            label: &row.label,
            paper: row.paper(),
            ours: row.ours,
            unit: row.unit,
            deviation_pct: row.deviation_pct(),
            tolerance_pct: row.tolerance_pct(),
            verdict: row.verdict().name(),
            ok: row.ok(),
        };
        FigureJson { name: figure.subject.name(), rows: figure.rows.iter().map(row).collect(), ok: figure.ok() }
    }
}

fn table(figure: &Figure) -> String {
    let mut table = Table::new(&["ROW", ">PAPER", ">OURS", "UNIT", ">DEVIATION", "VERDICT"]);
    for row in &figure.rows {
        let some = |n: Option<f64>, unit: &str| n.map_or("-".to_string(), |n| format!("{}{unit}", number(n)));
        table.row([
            row.label.clone(),
            some(row.paper(), ""),
            number(row.ours),
            row.unit.to_string(),
            some(row.deviation_pct(), " %"),
            match row.verdict() {
                RowVerdict::Missed => "MISSED".to_string(),
                other => other.name().to_string(),
            },
        ]);
    }
    table.render()
}

/// The real clock of this machine, its control, and a line that moves where somebody watches.
#[derive(Default)]
struct Clock {
    /// Preferred where there is a choice.
    live: bool,
    /// As long as it takes.
    full: bool,
    /// Of what is sorted, where that was said.
    size: Option<u64>,
    overheads: bench::Overheads,
    nodes: Processes,
    stores: StoreProcesses,
    bar: Option<ProgressBar>,
    /// Whether the control is looked at: what runs in virtual time needs none.
    is_real: bool,
    /// What each look at the control lost, in percent.
    lost: Vec<f64>,
}

impl Clock {
    fn new(subject: Subject, args: &ReproduceArgs) -> Clock {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1000);
            // The template is a constant and was tried.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {bar:30} {percent} % {elapsed} {msg}") {
                bar.set_style(style);
            }
            bar.set_message(subject.name());
            // Between two steps of a long figure the time goes on.
            bar.enable_steady_tick(TICK);
            bar
        });
        let is_real = args.live || subject.clock() == ClockKind::Real;
        // A sort by Hadoop takes its time six times.
        let size = args.size.or((args.live && !args.full).then_some(LIVE_SIZE));
        let stores = StoreProcesses::with_hadoop(args.hadoop.clone());
        let (overheads, nodes, lost) = Default::default();
        Clock { live: args.live, full: args.full, size, overheads, nodes, stores, bar, is_real, lost }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// What Hadoop sorts if nothing is said.
const LIVE_SIZE: u64 = 256 << 20;

/// One measurement.
const TIME: Nanos = Nanos::from_millis(100);
/// Before it.
const RAMP: Nanos = Nanos::from_millis(20);
/// The fastest of so many: what else the machine does is not the model's.
const ROUNDS: u32 = 5;
/// How often the line on a terminal is drawn while nothing is heard of the progress: seldom, since a thread does it.
const TICK: Duration = Duration::from_millis(500);
/// Looks at the control in a whole figure, evenly over its progress.
const LOOKS: f64 = 10.0;

impl LiveMeasurements for Clock {
    fn latency(&mut self, submitters: u32, service: Nanos) -> Result<Seen, String> {
        bench::polled(submitters, service, (RAMP, TIME))
    }

    fn bare(&mut self, apart: Nanos) -> Seen {
        bench::bare(apart, TIME)
    }

    fn answers(&mut self, drive: &DeviceConfig, requests: &[Planned]) -> Result<Vec<Answered>, String> {
        bench::answers(drive, requests)
    }

    fn cost(&mut self, count: u32, work: &mut dyn FnMut(u32)) -> f64 {
        let round = |_| {
            let begun = Instant::now();
            (0..count).for_each(&mut *work);
            begun.elapsed().as_nanos() as f64 / f64::from(count.max(1))
        };
        (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
    }

    fn overhead(&mut self, access: AccessPattern) -> Result<Overhead, String> {
        self.overheads.overhead(access)
    }

    fn usage(&mut self, access: AccessPattern, time: Nanos) -> Result<Usage, String> {
        self.overheads.usage(access, time)
    }

    fn about_places(&self) -> Vec<String> {
        self.overheads.about()
    }

    fn speeds(&mut self, designs: &[Design], load: Load, rounds: usize) -> Result<Vec<Vec<f64>>, String> {
        bench::speeds(designs, load, rounds)
    }

    fn is_preferred(&self) -> bool {
        self.live
    }

    fn shared(&mut self, drive: &SharedDrive, jobs: &[Job], span: Span) -> Result<Vec<JobResult>, String> {
        bench::shared(drive, jobs, span)
    }

    fn is_full(&self) -> bool {
        self.full
    }

    fn size(&self) -> Option<u64> {
        self.size
    }

    fn nodes(&mut self) -> &mut dyn Nodes {
        &mut self.nodes
    }

    fn stores(&mut self) -> &mut dyn Stores {
        &mut self.stores
    }

    fn progress(&mut self, part: f64) {
        if let Some(bar) = &self.bar {
            bar.set_position((part * 1000.0) as u64);
        }
        if self.is_real && part * LOOKS >= self.lost.len() as f64 {
            self.lost.push(bench::lost_pct());
        }
    }

    fn lost_pct(&mut self) -> f64 {
        if self.lost.is_empty() {
            self.lost.push(bench::lost_pct());
        }
        self.lost.iter().sum::<f64>() / self.lost.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("weir-reproduce-{name}-{}", std::process::id()))
    }

    #[test]
    fn the_documented_keys_and_both_files() {
        let out = folder("fig3");
        let args = ReproduceArgs { out: out.clone(), ..asked("femu-fig3") };
        run(&args, true).unwrap();
        let text = std::fs::read_to_string(out.join("femu-fig3.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let keys = |v: &serde_json::Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(keys(&json), "name ok rows");
        assert_eq!(keys(&json["rows"][0]), "deviation_pct label ok ours paper tolerance_pct unit verdict");
        assert_eq!((&json["name"], &json["ok"]), (&"femu-fig3".into(), &true.into()));
        let page = std::fs::read_to_string(out.join("femu-fig3.html")).unwrap();
        assert!(page.contains("<svg"));
        assert_eq!(std::fs::read_dir(&out).unwrap().count(), 2, "nothing half-made is left");
        std::fs::remove_dir_all(&out).unwrap();
    }

    fn asked(name: &str) -> ReproduceArgs {
        let (live, full, plans, size, hadoop) = Default::default();
        ReproduceArgs { name: Some(name.into()), out: folder("x"), live, full, plans, size, hadoop }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let unknown = run(&asked("fig3"), false).unwrap_err();
        assert!(unknown.text().starts_with("reproduce: there is no reproduction \"fig3\"; there is"), "{unknown:?}");
        let nowhere = run(&ReproduceArgs { out: "/dev/null/x".into(), ..asked("femu-fig3") }, false).unwrap_err();
        assert!(nowhere.text().starts_with("reproduce femu-fig3: /dev/null/x/femu-fig3.json: "), "{nowhere:?}");
    }

    #[test]
    fn what_a_figure_does_not_have_is_refused() {
        let fig3 = || asked("femu-fig3");
        let sort = || asked("crail-terasort");
        let hadoop = || Some("x.jar".to_owned());
        for (args, why) in [
            (ReproduceArgs { live: true, ..fig3() }, "femu-fig3: runs in virtual time only; leave --live out"),
            (ReproduceArgs { full: true, ..fig3() }, "femu-fig3: has one length; leave --full out"),
            (ReproduceArgs { plans: Some(3), ..fig3() }, "femu-fig3: draws no plans; leave --plans out"),
            (ReproduceArgs { size: Some(1 << 30), ..fig3() }, "femu-fig3: sorts nothing; leave --size out"),
            (ReproduceArgs { hadoop: hadoop(), ..fig3() }, "femu-fig3: sorts nothing; leave --hadoop out"),
            (
                ReproduceArgs { hadoop: hadoop(), ..sort() },
                "crail-terasort: is simulated; add --live to sort by Hadoop as well",
            ),
            (
                ReproduceArgs { live: true, ..sort() },
                "crail-terasort: --live sorts by Hadoop; say where it is (--hadoop CLASSPATH)",
            ),
        ] {
            assert_eq!(run(&args, false).unwrap_err().text(), format!("reproduce {why}"));
        }
        assert_eq!(sort_size("1MiB").unwrap_err(), "at least 64MiB are sorted");
    }

    #[test]
    fn a_row_that_fails_is_named() {
        let mut figure = Subject::FemuFig3.figure(&mut Clock::default()).unwrap();
        figure.rows.push(Row::relation("the last", 3.0, "us", false, "more than 4"));
        let failure = verdict(&figure).unwrap_err();
        let told = "1 of 9 rows are missed; the first: the last: 3.000 us, held to more than 4";
        assert_eq!(failure.text(), format!("reproduce femu-fig3: {told}"));
    }

    #[test]
    fn the_machine_s_clock_measures() {
        let mut clock = Clock::default();
        let seen = clock.latency(4, Nanos::from_micros(50)).unwrap();
        assert!(seen.least >= Nanos::from_micros(50), "no answer comes before it is due: {seen:?}");
        let mut steps = 0;
        assert!(clock.cost(1000, &mut |_| steps += 1) >= 0.0);
        assert_eq!(steps, 5000);
    }
}
