//! `weir calibrate`: measures γ, a and p of a drive by load tests and writes the file that plans and admission read.
//!
//! ```text
//!   CalibrateArgs ─► sizes × mixes ─► Ladder (core/plan) ─ depth ─► Tests: bench in real time, or sim in virtual time
//!                               ▲─────────── Test ──────────┘                └► Calibration ─► table, JSON, file
//! ```
//! In real time a test runs until three runs had a core and agree (core/plan, `steady`); the median by throughput counts, whole: its
//! latencies belong to it. The file is written when everything has been measured and can be believed, or not at all.

mod progress;
mod simulated;

use crate::bench::{self, BenchError, BenchRun};
use crate::failure::CommandFailure;
use crate::output::{self, Table};
use crate::report::{count, time as shown};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_config::Target;
use weir_config::{Calibration, DeviceConfig, MediaConfig};
use weir_driver::TransportError;
use weir_plan::calibrate::{Ladder, LoadCurve, Test};
use weir_plan::steady::{Runs, SteadyVerdict};
use weir_units::{Bytes, Nanos, parse};
use weir_workload::{Job, Latency, Mix, PARTS, Pattern, Quantiles, Summary};

/// What to calibrate.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  weir calibrate 'local:p3700?capacity=8GiB' -o p3700.toml
  weir calibrate 'nvme-tcp://127.0.0.1:4420/nqn.2026-11.io.weir:n1:ssd0?ns=1' --mixes 100 -o ssd0.toml
  weir calibrate vfio-user:/run/weir/ssd0.sock --mixes 100 -o ssd0.toml
  weir calibrate pci:0000:01:00.0 --mixes 100 -o nvme0.toml            a real drive, after weir device bind
  weir calibrate vhost-user:/run/weir/gold.sock --destructive --sizes 4KiB,128KiB
  weir calibrate 'sim:p3700?capacity=8GiB'              in virtual time: the same figures every time

For each size and mix: how long a request takes alone (a), then deeper and deeper until throughput stops growing (IOPS and
bandwidth at saturation), and how many requests the drive carries out at once (p = IOPS * a). Nobody else should use the drive
meanwhile. Write the file as calibration = \"FILE\" into a [[device]], or into a plan.")]
pub struct CalibrateArgs {
    /// A target of weir bench; or sim:PROFILE?key=value&..., the same drive as local: in virtual time
    pub target: String,
    /// Write the calibration to this file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How long each load test lasts
    #[arg(long, default_value = "1s", value_parser = some_time)]
    time: Nanos,
    /// How long each runs before it is counted [default: a tenth of the time]
    #[arg(long, value_parser = any_time)]
    ramp: Option<Nanos>,
    /// Sizes of requests
    #[arg(long, default_value = "4KiB,16KiB,128KiB", value_delimiter = ',', value_parser = size)]
    sizes: Vec<u32>,
    /// Mixes: percent of the requests that read
    #[arg(long, default_value = "100,70,30,0", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(0..=100))]
    mixes: Vec<u8>,
    /// The most requests in flight
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    depth: u32,
    /// A depth to test in any case: the slots of the drive that will use the file [default: those of a local drive]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    slots: Option<u32>,
    /// Queues to spread the requests over
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: u32,
    /// Write over what is on the target, where that is not a drive in memory of this process
    #[arg(long)]
    destructive: bool,
    /// Take figures also where the machine is disturbed, they do not agree, or contradict each other; warnings say which
    #[arg(long)]
    force: bool,
    /// The same seed draws the same requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// NVMe/TCP: connect as this host
    #[arg(long, value_name = "NQN")]
    hostnqn: Option<String>,
    /// Run on these cores
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
}

fn any_time(text: &str) -> Result<Nanos, String> {
    parse::nanos(text).map_err(|e| e.to_string())
}

fn some_time(text: &str) -> Result<Nanos, String> {
    match any_time(text)? {
        short if short < Nanos::from_millis(3) => Err("a load test lasts 3ms or more".to_string()),
        time => Ok(time),
    }
}

fn size(text: &str) -> Result<u32, String> {
    let mix: Mix = text.parse().map_err(|e: weir_workload::JobError| e.to_string())?;
    Ok(mix.max())
}

/// Runs of a test in real time, where nothing disturbs them; each lasts that part of the test's time.
const REPETITIONS: u32 = 3;
/// Times that a size and mix is measured in real time before figures that contradict each other are refused.
const TRIES: u32 = 2;

/// What carries a load test out.
trait Tests {
    /// A closed loop of that job for the time of one test.
    ///
    /// # Errors
    /// The drive cannot be had or fails, or does not take so many requests at once.
    fn test(&mut self, job: Job) -> Result<Summary, Trouble>;

    /// Whether anything but the drive shows in its figures.
    fn in_real_time(&self) -> bool;
}

/// Why a test gave nothing.
#[derive(Debug)]
enum Trouble {
    /// So many requests at once are more than the target takes.
    TooDeep(String),
    /// Nothing to build on, and what the test gave all the same.
    Unsteady(String, Box<Summary>),
    Failed(String),
}

/// Tests in real time.
struct Real {
    target: Target,
    run: BenchRun,
}

impl Tests for Real {
    fn test(&mut self, job: Job) -> Result<Summary, Trouble> {
        let deep = job.depth > 1 || job.copies > 1;
        let run = BenchRun { targets: vec![self.target.clone()], jobs: vec![job], ..self.run.clone() };
        let (mut runs, mut results) = (Runs::default(), Vec::new());
        loop {
            let (summary, waited_pct) = bench::figures(&run).map_err(|e| match e {
                BenchError::Transport(TransportError::Refused(why)) if deep => Trouble::TooDeep(why),
                other => Trouble::Failed(other.to_string()),
            })?;
            results.push(summary);
            match runs.add(summary.iops, waited_pct) {
                SteadyVerdict::Again => {}
                SteadyVerdict::Take(number) => return Ok(results[number]),
                SteadyVerdict::Refuse(why, median) => {
                    return Err(Trouble::Unsteady(why.to_string(), Box::new(results[median])));
                }
            }
        }
    }

    fn in_real_time(&self) -> bool {
        true
    }
}

/// Calibrates.
///
/// # Errors
/// Wrong usage, a target that cannot be had or must not be written to, a file that cannot be written.
pub fn run(args: &CalibrateArgs, json: bool) -> Result<(), CommandFailure> {
    let fail = |what: String| CommandFailure::new(format_args!("calibrate {}: {what}", args.target));
    let (mut tests, slots) = tests(args)?;
    if let Some(path) = &args.output {
        output::can_write(path).map_err(|e| fail(format!("{}: {e}", path.display())))?;
    }
    let mut live = progress::CalibrateProgress::new(args.sizes.len() * args.mixes.len());
    let mut points = Vec::new();
    for reads in distinct(&args.mixes) {
        for bytes in distinct(&args.sizes) {
            live.begin(bytes, reads);
            let new = believed(args, tests.as_mut(), (bytes, reads), slots, (&points, &mut live));
            points.push(new.map_err(fail)?);
        }
    }
    live.finish();
    let calibration = Calibration {
        weir: env!("CARGO_PKG_VERSION").to_string(),
        target: args.target.clone(),
        date: utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())),
        slots: slots.and_then(|slots| u16::try_from(slots).ok()).filter(|slots| *slots <= 4096),
        points,
    };
    if let Some(path) = &args.output {
        output::file(path, calibration.to_toml()).map_err(|e| fail(format!("{}: {e}", path.display())))?;
    }
    if json {
        return output::json(&CalibrationJson::from(&calibration));
    }
    output::text(&(table(&calibration) + &advice(&calibration).unwrap_or_default()))
}

/// The part of what a drive can do that it still gives with the slots that are advised where tenants share it.
const SHARED: f64 = 0.6;

/// Slots with which the drive still gives [`SHARED`] of its best at every size and mix.
fn shared_slots(calibration: &Calibration) -> u32 {
    calibration.points.iter().map(|point| point.depth_for(SHARED)).max().unwrap_or(1)
}

fn advice(calibration: &Calibration) -> Option<String> {
    let (slots, shared) = (calibration.slots?, shared_slots(calibration));
    let fewer = format!(
        "slots = {slots}: a tenant with no more than that in flight is never arbitrated. Where tenants share the drive, slots = \
         {shared} still give {:.0} % of this or more; calibrate again with those\n",
        SHARED * 100.0
    );
    (shared < slots.into()).then_some(fewer)
}

/// In their order, each once.
fn distinct<T: PartialEq + Copy>(list: &[T]) -> impl Iterator<Item = T> + '_ {
    list.iter().enumerate().filter(|(i, value)| !list[..*i].contains(value)).map(|(_, value)| *value)
}

/// Who carries the tests out, and the drive's slots where they are known.
fn tests(args: &CalibrateArgs) -> Result<(Box<dyn Tests>, Option<u32>), CommandFailure> {
    let ramp = args.ramp.unwrap_or(Nanos(args.time.0 / 10));
    let fault = |e: &dyn std::fmt::Display| CommandFailure::usage(format_args!("calibrate {}: {e}", args.target));
    if let Some(drive) = args.target.strip_prefix("sim:") {
        let (kind, query) = drive.split_once('?').unwrap_or((drive, ""));
        let device = DeviceConfig::from_query(kind, query).map_err(|e| fault(&e))?;
        let simulated = simulated::Simulated::new(&args.target, kind, query, (ramp, args.time), args.seed);
        let slots = args.slots.or(Some(device.slots.into()));
        return simulated.map(|s| (Box::new(s) as Box<dyn Tests>, slots)).map_err(|e| fault(&e));
    }
    let target: Target = args.target.parse().map_err(CommandFailure::usage)?;
    let mut slots = args.slots;
    let mut in_memory = false;
    if let Target::Local { kind, query } = &target {
        let device = DeviceConfig::from_query(kind, query).map_err(|e| fault(&e))?;
        slots = slots.or(Some(device.slots.into()));
        in_memory = matches!(device.media, MediaConfig::Ram | MediaConfig::Null);
    }
    if !in_memory && !args.destructive && args.mixes.iter().any(|reads| *reads < 100) {
        let what =
            "measuring writes destroys what is on it; write --destructive to do that, or --mixes 100 to read only";
        return Err(fault(&what));
    }
    let run = BenchRun {
        time: Nanos(args.time.0 / u64::from(REPETITIONS)),
        ramp: Nanos(ramp.0 / u64::from(REPETITIONS)),
        seed: args.seed,
        by_kind: true,
        hostnqn: args.hostnqn.clone(),
        cores: args.cores.clone(),
        ..BenchRun::of(target.clone(), Job::default())
    };
    Ok((Box::new(Real { target, run }), slots))
}

/// A size and mix whose figures contradict neither each other nor those of the other sizes.
fn believed(
    args: &CalibrateArgs,
    tests: &mut dyn Tests,
    (bytes, reads): (u32, u8),
    slots: Option<u32>,
    (others, live): (&[LoadCurve], &mut progress::CalibrateProgress),
) -> Result<LoadCurve, String> {
    let mut tries = TRIES;
    loop {
        let new = point(args, tests, (bytes, reads), slots, live)?;
        let doubt = new.doubt(slots).or_else(|| others.iter().find_map(|other| new.doubt_beside(other)));
        let Some(doubt) = doubt.filter(|_| tests.in_real_time()) else { return Ok(new) };
        tries -= 1;
        if tries > 0 {
            continue;
        }
        let text = format!("{}, {reads} % reads: the figures contradict each other: {doubt}", Bytes(bytes.into()));
        return unless_forced(args, live, text).map(|()| new);
    }
}

/// What is wrong is a warning where the user takes it as it is.
fn unless_forced(args: &CalibrateArgs, live: &progress::CalibrateProgress, text: String) -> Result<(), String> {
    if !args.force {
        return Err(format!(
            "{text}; nothing was written: measure while nothing else runs, for longer (--time), or take it as it is (--force)"
        ));
    }
    live.note(&format!("warning: {text}"));
    Ok(())
}

/// All tests of one size and mix.
fn point(
    args: &CalibrateArgs,
    tests: &mut dyn Tests,
    (bytes, reads): (u32, u8),
    slots: Option<u32>,
    live: &mut progress::CalibrateProgress,
) -> Result<LoadCurve, String> {
    let mut ladder = Ladder::new(args.depth, slots);
    while let Some(depth) = ladder.next_depth() {
        live.at(depth);
        let copies = copies(depth, args.jobs);
        let pattern = Pattern { read_percent: reads, random: true, trim: false };
        let job = Job { pattern, sizes: Mix::one(bytes), depth: depth / copies, copies, ..Job::default() };
        let tested = match tests.test(job) {
            Err(Trouble::Unsteady(why, summary)) => {
                let text = format!("{}, {reads} % reads, qd {depth}: {why}", Bytes(bytes.into()));
                unless_forced(args, live, text).map(|()| Ok(*summary))?
            }
            other => other,
        };
        match tested {
            Ok(s) if s.iops > 0.0 => ladder.record(Test::new(depth, &s)),
            Ok(_) => {
                let of = Bytes(bytes.into());
                return Err(format!("no request of {of} was answered at qd = {depth} in time; give it more --time"));
            }
            Err(Trouble::TooDeep(why)) => {
                live.note(&format!("{}: no deeper than this: {why}", Bytes(bytes.into())));
                ladder.refuse(depth);
            }
            Err(Trouble::Failed(why) | Trouble::Unsteady(why, _)) => return Err(why),
        }
    }
    LoadCurve::new(bytes, reads, ladder.into_tests()).map_err(|e| e.to_string())
}

/// Queues for a depth: as many of them as share it evenly.
fn copies(depth: u32, most: u32) -> u32 {
    (1..=most.min(depth)).rev().find(|n| depth % n == 0).unwrap_or(1)
}

fn table(calibration: &Calibration) -> String {
    let mut table =
        Table::new(&[">SIZE", ">READS", ">IOPS", ">MB/s", ">QD", ">MEAN", ">P99", ">a", ">a P99", ">p", ">a/p"]);
    for point in &calibration.points {
        let (knee, idle) = (point.knee(), point.idle());
        table.row([
            Bytes(point.size().into()).to_string(),
            format!("{} %", point.read_percent()),
            count(point.gamma()),
            format!("{:.1}", point.bandwidth() / 1e6),
            knee.depth.to_string(),
            shown(knee.latency.mean),
            shown(knee.latency.p99 as f64),
            shown(point.a()),
            shown(idle.latency.p99 as f64),
            format!("{:.1}", point.p()),
            shown(point.a_per_p()),
        ]);
    }
    table.render()
}

/// `2026-11-22T05:00:00Z` of seconds since 1970.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = crate::calendar::date(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[derive(Serialize)]
struct CalibrationJson<'a> {
    version: u64,
    weir: &'a str,
    target: &'a str,
    date: &'a str,
    /// Those that it was measured with, where they are known; the file is for no other number.
    slots: Option<u16>,
    /// With which the drive still gives six tenths of its best: for tenants that share it.
    shared_slots: u32,
    points: Vec<PointJson>,
}

#[derive(Serialize)]
struct PointJson {
    bs_bytes: u32,
    reads_pct: u8,
    iops: f64,
    bandwidth_bytes_per_s: f64,
    qd: u32,
    a_ns: f64,
    p: f64,
    a_per_p_ns: f64,
    tests: Vec<TestJson>,
}

#[derive(Serialize)]
struct TestJson {
    qd: u32,
    iops: f64,
    latency_ns: LatencyJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    read_ns: Option<QuantilesJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_ns: Option<QuantilesJson>,
}

/// Latencies of one kind: the mean, and the quantiles that the file has.
#[derive(Serialize)]
struct QuantilesJson {
    mean: f64,
    at: [u64; PARTS.len()],
}

#[derive(Serialize)]
struct LatencyJson {
    mean: f64,
    p50: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

impl<'a> From<&'a Calibration> for CalibrationJson<'a> {
    fn from(from: &'a Calibration) -> Self {
        let test = |t: &Test| {
            let Latency { mean, p50, p99, p999, max } = t.latency;
            let kind = |of: Option<Quantiles>| of.map(|Quantiles { mean, at }| QuantilesJson { mean, at });
            TestJson {
                qd: t.depth,
                iops: t.iops,
                latency_ns: LatencyJson { mean, p50, p99, p999, max },
                read_ns: kind(t.kinds.reads),
                write_ns: kind(t.kinds.writes),
            }
        };
        let point = |p: &LoadCurve| PointJson {
            bs_bytes: p.size(),
            reads_pct: p.read_percent(),
            iops: p.gamma(),
            bandwidth_bytes_per_s: p.bandwidth(),
            qd: p.knee().depth,
            a_ns: p.a(),
            p: p.p(),
            a_per_p_ns: p.a_per_p(),
            tests: p.tests().iter().map(test).collect(),
        };
        CalibrationJson {
            version: weir_config::calibration::VERSION,
            weir: &from.weir,
            target: &from.target,
            date: &from.date,
            slots: from.slots,
            shared_slots: shared_slots(from),
            points: from.points.iter().map(point).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: CalibrateArgs,
    }

    fn args(line: &str) -> CalibrateArgs {
        Cli::try_parse_from(std::iter::once("calibrate").chain(line.split_whitespace()))
            .unwrap_or_else(|e| panic!("{e}"))
            .args
    }

    fn calibrated(line: &str) -> Vec<LoadCurve> {
        let args = args(line);
        let (mut tests, slots) = super::tests(&args).unwrap_or_else(|e| panic!("{}", e.text()));
        let mut live = progress::CalibrateProgress::new(1);
        let pairs = args.mixes.iter().flat_map(|reads| args.sizes.iter().map(|bytes| (*bytes, *reads)));
        pairs.map(|pair| point(&args, tests.as_mut(), pair, slots, &mut live).unwrap()).collect()
    }

    #[test]
    fn a_drive_of_fixed_latency_in_virtual_time_is_exact() {
        for (latency, slots) in [(80u64, 16u32), (100, 7), (13, 64)] {
            let line =
                format!("sim:ram?latency={latency}us&slots={slots} --time 100ms --mixes 100,0 --sizes 4KiB,16KiB");
            for point in calibrated(&line) {
                let gamma = f64::from(slots) / (latency as f64 * 1e-6);
                assert_eq!((point.a(), point.knee().depth), (latency as f64 * 1000.0, slots), "{line}");
                assert!((point.gamma() / gamma - 1.0).abs() < 2e-3, "{line}: {} of {gamma}", point.gamma());
                assert!((point.p() / f64::from(slots) - 1.0).abs() < 2e-3, "{line}: p = {}", point.p());
            }
        }
    }

    #[test]
    fn the_same_drive_in_virtual_time_is_the_same() {
        let line = "sim:p3700?capacity=1GiB --time 20ms --mixes 70 --sizes 4KiB --depth 32";
        let (first, second) = (calibrated(line), calibrated(line));
        assert_eq!(first, second);
        assert!(first[0].p() > 1.0 && first[0].a() > 1000.0, "{first:?}");
    }

    #[test]
    fn bytes_in_flight_bound_large_requests() {
        let line = "sim:ram?latency=80us&slots=64&slot_bytes=1MiB --time 100ms --mixes 100 --sizes 256KiB";
        let point = &calibrated(line)[0];
        assert!((point.p() / 4.0 - 1.0).abs() < 1e-3 && point.knee().depth == 4, "{point:?}");
    }

    #[test]
    fn what_must_not_be_written_to_is_not() {
        for target in ["vhost-user:/nowhere", "nvme-tcp://127.0.0.1:1/nqn.x", "local:file:/nowhere/at/all"] {
            let refused = super::tests(&args(target)).err().expect(target);
            assert!(refused.text().contains("--destructive"), "{target}: {}", refused.text());
            assert!(super::tests(&args(&format!("{target} --mixes 100"))).is_ok(), "{target}");
            assert!(super::tests(&args(&format!("{target} --destructive"))).is_ok(), "{target}");
        }
        assert!(super::tests(&args("local:ram")).is_ok());
    }

    #[test]
    fn depths_are_shared_evenly() {
        for (depth, most, wanted) in [(1, 8, 1), (16, 8, 8), (12, 8, 6), (15, 8, 5), (7, 4, 1), (64, 1, 1)] {
            assert_eq!(copies(depth, most), wanted, "{depth} over {most}");
        }
    }

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_795_325_696), "2026-11-22T05:34:56Z");
    }
}
