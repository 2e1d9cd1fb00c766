//! The options of `weir bench`, and the run they describe.

use crate::failure::CommandFailure;
use std::cmp::Ordering;
use std::fmt::Display;
use std::path::PathBuf;
use weir_arbiter::{ArbiterSettings, Mechanism, Quanta, Weights};
use weir_config::Target;
use weir_config::{Calibration, DeviceConfig};
use weir_driver::host_arbiter::HostArbiterConfig;
use weir_plan::calibrate::LoadCurve;
use weir_units::{Class, Nanos, parse};
use weir_workload::{Job, JobRegion, Mix, Pattern, Rate};

/// What to measure.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  weir bench local:null --qd 128
  weir bench 'local:ram?latency=80us&slots=16&arbitration=drr' --time 5s \\
      --job name=gold,class=high,qd=128 --job name=bronze,class=low,bs=8KiB,qd=128,start=2s --series 1s
  weir bench 'nvme-tcp://127.0.0.1:4420/nqn.2026-11.io.weir:n1:ssd0?ns=1' --rw randrw:70 --qd 32
  weir bench vfio-user:/run/weir/ssd0.sock --qd 32 --job name=a,class=high --job name=b,class=low
  weir bench vhost-user:/run/weir/gold.sock --rw randwrite --verify crc32c --size 64MiB
  ionice -c3 weir bench 'nvme-tcp://127.0.0.1:4420/nqn.2026-11.io.weir:n1:ssd0?ns=1'
  weir bench 'local:ram?latency=80us&slots=16&arbitration=none' --arbitrate drr --slots 16 \\
      --job name=gold,class=high,qd=64 --job name=bronze,class=low,qd=64

Keys of --job: name, class, rw, bs, qd, rate (20k requests or 500MB/s), arrival (fixed, poisson, or poisson-drop:
what a late client missed is left out, not caught up), zipf (0.99) or hot (80/20: 80 % of the requests to the first 20 %),
start, time, jobs, region (SIZE or OFFSET+SIZE), host (NQN), target; what a job leaves out is as the options say. All jobs
run side by side.

A job without a class takes it from the I/O priority of this process (ionice -c1 high, -c2 medium, -c3 low), and follows it
while it changes: by QPRIO on a local drive and over vfio-user, by CATTR over NVMe/TCP; a vhost-user server looks by itself.

--arbitrate puts Weir's arbiter in front of the drive, in this process: all jobs' requests wait there and go by class,
as many as --slots at once, whatever the drive does with what it gets.

A rate makes a job open-loop: latencies then count from when a request was due. At a depth above 1 a latency ends
with the batch in which its request was found done.")]
pub struct BenchArgs {
    /// local:null|ram|file:PATH[?key=value&...], nvme-tcp://HOST:PORT/NQN[?ns=1], vfio-user:/path[?ns=1&arbitration=wrr],
    /// vhost-user:/path or pci:0000:01:00.0[?ns=1]
    pub target: String,
    /// Requests: read, write, randread, randwrite, randrw[:READ_PERCENT], trim
    #[arg(long, default_value = "randread", value_parser = job_value::<Pattern>)]
    rw: Pattern,
    /// Their sizes: 4KiB, or a mix in percent: 4KiB:50/8KiB:50
    #[arg(long, default_value = "4KiB", value_parser = job_value::<Mix>)]
    bs: Mix,
    /// Requests in flight, of each copy of a job
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    qd: u32,
    /// Copies of each job
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: u32,
    /// Requests a second (20k) or bandwidth (500MB/s) of each copy, instead of as much as the drive gives
    #[arg(long, value_parser = job_value::<Rate>)]
    rate: Option<Rate>,
    /// Class of the tenant: urgent, high, medium, low (default: by this process' I/O priority)
    #[arg(long, value_parser = class)]
    class: Option<Class>,
    /// How long to measure
    #[arg(long, default_value = "10s", value_parser = some_time)]
    time: Nanos,
    /// How long to run before measuring
    #[arg(long, default_value = "0", value_parser = time)]
    ramp: Nanos,
    /// Use this part of the drive: SIZE or OFFSET+SIZE
    #[arg(long, visible_alias = "size", value_parser = job_value::<JobRegion>)]
    region: Option<JobRegion>,
    /// Write recognisable blocks and check every block that is read
    #[arg(long, value_name = "CHECKSUM", value_parser = ["crc32c"])]
    verify: Option<String>,
    /// A job of its own: name=gold,class=high,rw=randread,bs=4KiB,qd=128 (repeatable)
    #[arg(long = "job", value_name = "KEY=VALUE,...")]
    list: Vec<String>,
    /// Also report every interval of this length
    #[arg(long, value_name = "INTERVAL", value_parser = interval)]
    series: Option<Nanos>,
    /// Draw throughput and latency over time and by percentile: FILE.svg, or FILE.html with a table
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<std::path::PathBuf>,
    /// The same seed draws the same requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// NVMe/TCP digests: hdr, data
    #[arg(long, value_delimiter = ',', value_parser = ["hdr", "data"])]
    digests: Vec<String>,
    /// NVMe/TCP: connect as this host (default: the built-in tenant of the job's class)
    #[arg(long, value_name = "NQN")]
    hostnqn: Option<String>,
    /// Queues of one connection at most; further copies of a job connect again
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    queues: u16,
    /// Arbitrate in front of the drive: drr[:128KiB:64KiB:32KiB], wrr[:32:16:8] or rr (high, medium, low in a round)
    #[arg(long, value_name = "MECHANISM", value_parser = arbitration)]
    arbitrate: Option<ArbiterSettings>,
    /// Requests at the drive at once with --arbitrate: a number, or the drive's calibration, whose p it is then
    #[arg(long, value_name = "N|FILE", default_value = "64", requires = "arbitrate", value_parser = slots)]
    slots: Slots,
    /// vhost-user: the ring's layout
    #[arg(long, default_value = "split", value_parser = ["split", "packed"])]
    ring: String,
    /// vhost-user, nvme-tcp: connect again, for so long, when the server goes, and go on with what was in flight
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    reconnect: Option<Nanos>,
    /// Run on these cores, one thread each
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
}

/// How many requests are let through to the drive.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Slots {
    Number(u32),
    /// The p of the calibration's points that are nearest to the jobs.
    Calibration(PathBuf),
}

impl Slots {
    fn of(&self, jobs: &[Job]) -> Result<u32, CommandFailure> {
        let file = match self {
            Slots::Number(n) => return Ok(*n),
            Slots::Calibration(file) => file,
        };
        let calibration = Calibration::load(file).map_err(CommandFailure::usage)?;
        let p = |job: &Job| {
            let parts = job.sizes.parts().iter();
            let mean = parts.map(|(size, percent)| f64::from(*size) * f64::from(*percent) / 100.0).sum::<f64>();
            // How far a point is off: first by its mix, then by its size.
            let off = |point: &LoadCurve| {
                let mix = point.read_percent().abs_diff(job.pattern.read_percent);
                (mix, (f64::from(point.size()) / mean).ln().abs())
            };
            let order = |a: &&LoadCurve, b: &&LoadCurve| off(a).partial_cmp(&off(b)).unwrap_or(Ordering::Equal);
            calibration.points.iter().min_by(order).map_or(1.0, LoadCurve::p)
        };
        let most = jobs.iter().map(p).fold(1.0, f64::max);
        Ok((most.ceil() as u32).clamp(1, MAX_SLOTS))
    }
}

/// Requests that may be at a drive at once.
const MAX_SLOTS: u32 = 65_535;

/// A run, with nothing left to ask.
#[derive(Clone, Debug)]
pub struct BenchRun {
    /// Where each job goes, by its place.
    pub targets: Vec<Target>,
    /// What runs.
    pub jobs: Vec<Job>,
    /// How long.
    pub time: Nanos,
    /// How long before that.
    pub ramp: Nanos,
    /// Whether blocks are recognisable and checked.
    pub verify: bool,
    /// Length of an interval.
    pub series: Option<Nanos>,
    /// Whether latencies of reads and of writes are told apart.
    pub by_kind: bool,
    /// For everything random.
    pub seed: u64,
    /// NVMe/TCP header and data digests.
    pub digests: (bool, bool),
    /// NVMe/TCP: who connects, where the job does not say.
    pub hostnqn: Option<String>,
    /// Queues of one connection at most.
    pub queues: u16,
    /// Arbitration in front of the drive.
    pub arbitrate: Option<HostArbiterConfig>,
    /// vhost-user: packed rings.
    pub packed: bool,
    /// vhost-user and NVMe/TCP: for how long a server that goes is connected to again.
    pub reconnect: Option<Nanos>,
    /// Cores to run on; none: wherever the system likes.
    pub cores: Vec<usize>,
}

fn said(e: impl Display) -> String {
    e.to_string()
}

fn job_value<T: std::str::FromStr<Err = weir_workload::JobError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(said)
}

fn class(text: &str) -> Result<Class, String> {
    text.parse().map_err(|()| "a class is urgent, high, medium or low".to_string())
}

/// `drr`, `drr:A:B:C` in bytes, `wrr`, `wrr:A:B:C` in commands, `rr`.
fn arbitration(text: &str) -> Result<ArbiterSettings, String> {
    let (name, shares) = text.split_once(':').map_or((text, None), |(name, shares)| (name, Some(shares)));
    let three = |each: fn(&str) -> Option<u32>, what: &str| match shares {
        None => Ok(None),
        Some(shares) => {
            let numbers: Option<Vec<u32>> = shares.split(':').map(each).collect();
            let three = numbers.and_then(|n| <[u32; 3]>::try_from(n).ok());
            three.map(Some).ok_or_else(|| format!("\"{shares}\" is not {what} of high, medium and low"))
        }
    };
    let size =
        |s: &str| parse::bytes(s).ok().map(|b| b.get()).filter(|b| (4096..=1 << 30).contains(b)).map(|b| b as u32);
    let weight = |s: &str| s.parse().ok().filter(|w| (1..=256).contains(w));
    match name {
        "drr" => {
            let mut settings = ArbiterSettings::new(Mechanism::Drr);
            if let Some([high, medium, low]) = three(size, "three sizes from 4KiB to 1GiB,")? {
                settings.quanta = Quanta { high, medium, low };
            }
            Ok(settings)
        }
        "wrr" => {
            let mut settings = ArbiterSettings::new(Mechanism::Wrr);
            if let Some(weights) = three(weight, "three weights from 1 to 256,")? {
                let [high, medium, low] = weights.map(|w| w as u16);
                settings.weights = Weights { high, medium, low };
            }
            Ok(settings)
        }
        "rr" if shares.is_none() => Ok(ArbiterSettings::new(Mechanism::Rr)),
        _ => Err("arbitration is drr[:128KiB:64KiB:32KiB], wrr[:32:16:8] or rr".to_string()),
    }
}

/// A number, or else the name of a file.
fn slots(text: &str) -> Result<Slots, String> {
    match text.parse() {
        Ok(n) if (1..=MAX_SLOTS).contains(&n) => Ok(Slots::Number(n)),
        Ok(_) => Err(format!("1 to {MAX_SLOTS} is allowed")),
        Err(_) if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => Err("is no number".to_string()),
        Err(_) => Ok(Slots::Calibration(text.into())),
    }
}

fn time(text: &str) -> Result<Nanos, String> {
    parse::nanos(text).map_err(said)
}

fn some_time(text: &str) -> Result<Nanos, String> {
    time(text)?.get().checked_sub(1).map(|n| Nanos(n + 1)).ok_or_else(|| "0 would measure nothing".to_string())
}

fn interval(text: &str) -> Result<Nanos, String> {
    match time(text)? {
        short if short < Nanos::from_millis(1) => Err("an interval is 1ms or more".to_string()),
        interval => Ok(interval),
    }
}

impl BenchArgs {
    /// The run, checked as far as it can be without the drive.
    ///
    /// # Errors
    /// Wrong usage.
    pub fn into_run(self) -> Result<BenchRun, CommandFailure> {
        let defaults = Job {
            class: self.class,
            pattern: self.rw,
            sizes: self.bs.clone(),
            depth: self.qd,
            rate: self.rate,
            copies: self.jobs,
            region: self.region,
            ..Job::default()
        };
        let mut jobs = Vec::new();
        for (i, text) in self.list.iter().enumerate() {
            let unnamed = Job { name: format!("job{}", i + 1), ..defaults.clone() };
            jobs.push(
                Job::parse(text, &unnamed).map_err(|e| CommandFailure::usage(format_args!("--job \"{text}\": {e}")))?,
            );
        }
        if jobs.is_empty() {
            jobs.push(defaults);
        }
        let parse = |text: &str| -> Result<Target, CommandFailure> {
            let target = text.parse::<Target>().map_err(CommandFailure::usage)?;
            if let Target::Local { kind, query } = &target {
                DeviceConfig::from_query(kind, query)
                    .map_err(|e| CommandFailure::usage(format_args!("bench {text}: {e}")))?;
            }
            Ok(target)
        };
        let main = parse(&self.target)?;
        let targets = jobs.iter().map(|j| j.target.as_deref().map_or(Ok(main.clone()), parse));
        let slots = self.slots.of(&jobs)?;
        let arbitrate =
            self.arbitrate.map(|arbitration| HostArbiterConfig { slots, ..HostArbiterConfig::new(arbitration) });
        let run = BenchRun {
            targets: targets.collect::<Result<_, _>>()?,
            jobs,
            time: self.time,
            ramp: self.ramp,
            verify: self.verify.is_some(),
            // A run that is drawn has a hundred points where nobody has said how many.
            series: self.series.or(self.plot.map(|_| Nanos(self.time.get() / 100).max(Nanos::from_millis(1)))),
            by_kind: false,
            seed: self.seed,
            digests: (self.digests.iter().any(|d| d == "hdr"), self.digests.iter().any(|d| d == "data")),
            hostnqn: self.hostnqn,
            queues: self.queues,
            arbitrate,
            packed: self.ring == "packed",
            reconnect: self.reconnect,
            cores: self.cores,
        };
        run.check()?;
        Ok(run)
    }
}

impl BenchRun {
    /// One job, for a second, with the defaults of `weir bench`.
    pub fn of(target: Target, job: Job) -> BenchRun {
        BenchRun {
            targets: vec![target],
            jobs: vec![job],
            time: Nanos::from_secs(1),
            ramp: Nanos(0),
            verify: false,
            series: None,
            by_kind: false,
            seed: 1,
            digests: (false, false),
            hostnqn: None,
            queues: 64,
            packed: false,
            reconnect: None,
            cores: Vec::new(),
            arbitrate: None,
        }
    }

    fn check(&self) -> Result<(), CommandFailure> {
        let locals = self.targets.iter().filter(|t| matches!(t, Target::Local { .. })).count();
        if locals > 0 && (locals < self.targets.len() || self.targets.windows(2).any(|w| w[0] != w[1])) {
            return Err(CommandFailure::usage(
                "a local drive is one drive: its jobs cannot have other targets beside it",
            ));
        }
        if locals > 0 && self.cores.len() > 1 {
            return Err(CommandFailure::usage("a local drive and its jobs share one thread: give one core"));
        }
        for job in &self.jobs {
            if job.start >= self.time {
                let (start, time) = (job.start, self.time);
                return Err(CommandFailure::usage(format_args!(
                    "job {}: starts at {start}, but the run lasts {time}",
                    job.name
                )));
            }
            if self.verify && job.pattern.trim {
                return Err(CommandFailure::usage(format_args!(
                    "job {}: there is nothing to verify about trim",
                    job.name
                )));
            }
        }
        Ok(())
    }

    /// Copies of all jobs.
    pub fn copies(&self) -> usize {
        self.jobs.iter().map(|j| j.copies as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn run(line: &str) -> Result<BenchRun, String> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|e| e.to_string())?;
        cli.args.into_run().map_err(|f| f.text().to_string())
    }

    #[test]
    fn options_are_the_defaults_of_jobs() {
        let r = run("local:ram?slots=16 --rw randwrite --qd 8 --job name=a,class=high --job qd=2,rw=read --time 3s")
            .unwrap();
        assert_eq!((r.jobs[0].name.as_str(), r.jobs[0].class, r.jobs[0].depth), ("a", Some(Class::High), 8));
        assert_eq!((r.jobs[1].name.as_str(), r.jobs[1].depth), ("job2", 2));
        assert!(r.jobs[0].pattern.writes() && !r.jobs[1].pattern.writes());
        assert_eq!((r.time, r.targets.len(), r.copies()), (Nanos::from_secs(3), 2, 2));
    }

    #[test]
    fn without_jobs_there_is_one() {
        let r = run("local:null --size 1GiB --verify crc32c --digests hdr,data --cores 1").unwrap();
        assert_eq!((r.jobs.len(), r.jobs[0].depth, r.verify, r.digests), (1, 32, true, (true, true)));
        assert_eq!(r.jobs[0].region, Some(JobRegion { offset: 0, len: 1 << 30 }));
    }

    #[test]
    fn arbitration_in_front() {
        let front = |line: &str| run(line).unwrap().arbitrate.unwrap();
        let f = front("local:null --arbitrate drr:256KiB:64KiB:4KiB --slots 16");
        assert_eq!((f.slots, f.arbitration.quanta), (16, Quanta { high: 262_144, medium: 65_536, low: 4096 }));
        let f = front("local:null --arbitrate wrr:9:3:1");
        assert_eq!((f.slots, f.arbitration.weights), (64, Weights { high: 9, medium: 3, low: 1 }));
        assert_eq!(front("local:null --arbitrate rr").arbitration.mechanism, Mechanism::Rr);
        assert_eq!(run("local:null").unwrap().arbitrate, None);
    }

    #[test]
    fn slots_are_the_p_of_the_nearest_point() {
        let latency = |us: u64| weir_workload::Latency {
            mean: us as f64 * 1e3,
            p50: us * 1000,
            p99: us * 1000,
            p999: us * 1000,
            max: us * 1000,
        };
        let tests = |iops: f64| {
            let test =
                |depth, iops| weir_plan::calibrate::Test { depth, iops, latency: latency(100), ..Default::default() };
            vec![test(1, 10_000.0), test(64, iops)]
        };
        let points = [(4096, 100, 153_000.0), (65_536, 100, 40_000.0), (4096, 0, 20_000.0)]
            .map(|(size, read, iops)| LoadCurve::new(size, read, tests(iops)).unwrap());
        let (weir, target, date) = ("0".to_string(), "local:ram".to_string(), "2026-01-01T00:00:00Z".to_string());
        let text = Calibration { weir, target, date, slots: None, points: points.into() }.to_toml();
        let file = std::env::temp_dir().join(format!("weir-slots-{}.toml", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let slots = |jobs: &str| {
            let line = format!("local:null --arbitrate drr --slots {} {jobs}", file.display());
            run(&line).unwrap().arbitrate.unwrap().slots
        };
        assert_eq!((slots("--bs 4KiB"), slots("--bs 128KiB"), slots("--rw randwrite")), (16, 4, 2));
        assert_eq!(slots("--job rw=randwrite --job bs=8KiB"), 16, "as many as the one that needs most");
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn wrong_usage_says_what() {
        for (line, says) in [
            ("nowhere:x", "unknown transport"),
            ("local:", "no kind"),
            ("local:null --rw reed", "none of read, write"),
            ("local:null --bs 4KiB:50/8KiB:40", "sum to 90 %"),
            ("local:null --qd 0", "0 is not in 1..=65535"),
            ("local:null --time 0", "0 would measure nothing"),
            ("local:null --time 5", "is not a time"),
            ("local:null --series 10us", "1ms or more"),
            ("local:null --verify md5", "invalid value 'md5'"),
            ("local:null --digests crc", "invalid value 'crc'"),
            ("local:null --arbitrate none", "arbitration is drr"),
            ("local:null --arbitrate drr:1:2", "three sizes"),
            ("local:null --arbitrate wrr:1:2:300", "three weights"),
            ("local:null --slots 4", "--arbitrate"),
            ("local:null --arbitrate drr --slots 0", "1 to 65535"),
            ("local:null --arbitrate drr --slots 4x", "is no number"),
            ("local:null --arbitrate drr --slots nowhere.toml", "nowhere.toml"),
            ("local:null --class gold", "urgent, high, medium or low"),
            ("local:null --job qd", "--job \"qd\": \"qd\" is not key=value"),
            ("local:null --time 1s --job start=2s", "starts at 2s, but the run lasts 1s"),
            ("local:null --rw trim --verify crc32c", "nothing to verify"),
            ("local:null --cores 0,1", "share one thread"),
            ("local:null --job name=a --job target=vhost-user:/x", "one drive"),
            ("local:null --job target=local:ram --job name=b", "one drive"),
        ] {
            let e = run(line).expect_err(line);
            assert!(e.contains(says), "{line}: {e}");
        }
    }
}
