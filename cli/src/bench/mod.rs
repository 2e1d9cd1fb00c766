//! `weir bench`: loads a drive and reports what it gave.
//!
//! ```text
//!   BenchArgs ─► BenchRun ─► lanes (thread ─ queue pairs ─ Workers) ─► Recorders ─► Report ─► table or JSON
//!                        └── WorkerProgress ──► a line on the terminal
//! ```
//! A local drive and all its jobs share one thread: that is what is measured. Queue pairs of other targets are spread over
//! as many threads as there are cores beside the first, or over `--cores`; each thread polls all of its queue pairs.

mod args;
mod emulate;
mod lanes;
mod overhead;
mod polled;
mod progress;
mod worker;

pub use args::{BenchArgs, BenchRun};
pub use emulate::{shared, speeds};
pub use lanes::BenchError;
pub use overhead::Overheads;
pub use polled::{answers, bare, lost_pct, polled};

use crate::failure::CommandFailure;
use crate::output;
use crate::plot;
use crate::report::{DeviceReport, Report};
use weir_config::{DeviceConfig, Target};
use weir_driver::TransportError;
use weir_units::Nanos;
use weir_workload::{Job, JobResult, Recorder, Summary};
use worker::Schedule;

/// Measures.
///
/// # Errors
/// Wrong usage, a target that cannot be had or goes away, requests that fail, data that is wrong.
pub fn run(args: BenchArgs, json: bool) -> Result<(), CommandFailure> {
    let (target, plot) = (args.target.clone(), args.plot.clone());
    plot.as_deref().map_or(Ok(()), plot::check)?;
    let run = args.into_run()?;
    let outcome = lanes::execute(&run)
        .map_err(|e| CommandFailure::new(format_args!("bench {target}: {e}{}", advice(&run, &e))))?;
    let report = summarize(&run, &outcome);
    if let Some(file) = plot {
        let waited =
            report.waited_pct.map_or_else(String::new, |pct| format!(", waited {pct:.1} % of the time for a core"));
        let origin = format!("weir {}, seed {}{waited}", crate::version::LINE, run.seed);
        let only = plot::PlottedRun { set: &[], drive: None, report: &report };
        plot::picture(format!("weir bench {target}"), origin, &[only]).write(&file)?;
    }
    if json {
        output::json(&report.json())?;
    } else {
        output::text(&report.text())?;
    }
    match outcome.trouble {
        None => Ok(()),
        Some((job, text)) => {
            let (n, name) = (report.total.summary.errors, &run.jobs[job].name);
            Err(CommandFailure::new(format_args!("bench {target}: {n} failed; the first: job {name}: {text}")))
        }
    }
}

/// What to do about an error of the way to a target; nothing where it says that itself.
fn advice(run: &BenchRun, error: &BenchError) -> &'static str {
    let BenchError::Transport(error) = error else { return "" };
    let is_socket = |target: &Target| matches!(target, Target::VhostUser { .. } | Target::VfioUser { .. });
    let connects_again = |target: &Target| matches!(target, Target::VhostUser { .. } | Target::NvmeTcp { .. });
    match error {
        TransportError::Unreachable(_) if run.targets.iter().any(is_socket) => {
            "; `weir export ls` lists the sockets of a node that runs"
        }
        TransportError::NoNamespace(_) => {
            "; leave ?ns= out for namespace 1, or ask on a host which there are (nvme list-ns)"
        }
        TransportError::Closed(_) if run.reconnect.is_none() && run.targets.iter().any(connects_again) => {
            "; with --reconnect 30s the run goes on when the server is back"
        }
        _ => "",
    }
}

/// Measures for whoever wants all jobs' figures together, and the percentage of its time for which the measuring thread had no core.
///
/// # Errors
/// As [`run`].
pub fn figures(run: &BenchRun) -> Result<(Summary, f64), BenchError> {
    let outcome = lanes::execute(run)?;
    match &outcome.trouble {
        None => Ok((summarize(run, &outcome).total.summary, outcome.waited_pct.unwrap_or(0.0))),
        Some((_, text)) => Err(BenchError::Machine(text.clone())),
    }
}

/// When a job does what, for a run whose first request is at `origin`.
fn schedule(run: &BenchRun, job: &Job, origin: Nanos) -> Schedule {
    let base = origin.saturating_add(run.ramp);
    let end = base.saturating_add(run.time);
    // A job without a start of its own joins in at once; one with counts from the end of the ramp.
    let start = if job.start == Nanos(0) { origin } else { base.saturating_add(job.start) };
    let count = start.max(base);
    let stop = job.time.map_or(end, |t| count.saturating_add(t).min(end));
    Schedule { base, start, count, stop }
}

/// Whether a drive in this process began in the state in which collection has come to rest.
fn is_steady(run: &BenchRun) -> bool {
    let Target::Local { kind, query } = &run.targets[0] else { return false };
    let flash = DeviceConfig::from_query(kind, query).ok().and_then(|device| device.flash);
    flash.is_some_and(|flash| flash.begins_at_rest())
}

fn summarize(run: &BenchRun, outcome: &lanes::BenchResult) -> Report {
    let mut all = Recorder::new(Nanos(0), run.series);
    let mut jobs = Vec::new();
    for (job, recorder) in run.jobs.iter().zip(&outcome.recorders) {
        let times = schedule(run, job, Nanos(0));
        let active = times.stop.saturating_sub(times.count);
        all.merge(recorder);
        // What is told apart here is for the calibration, which reads the summary.
        jobs.push(JobResult { kinds: Vec::new(), ..JobResult::of(job.name.clone(), job.class, recorder, active) });
    }
    let total = JobResult { kinds: Vec::new(), ..JobResult::of("total".to_string(), None, &all, run.time) };
    let device = outcome.device.as_ref().map(|(stats, flash)| DeviceReport {
        slots: stats.slots,
        reads: stats.work.reads,
        writes: stats.work.writes,
        read_bytes: stats.work.read_bytes,
        write_bytes: stats.work.write_bytes,
        flash: flash.clone().map(Into::into),
        is_steady: is_steady(run),
    });
    Report { jobs, tenants: Vec::new(), total, device, run: None, waited_pct: outcome.waited_pct }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_way_to_a_target_say_what_to_do() {
        let at = |target: &str| BenchRun { targets: vec![target.parse().unwrap()], ..run_of(Job::default()) };
        let tcp = "nvme-tcp://127.0.0.1:4420/nqn.x?ns=2";
        let said = |run: &BenchRun, error: fn(String) -> TransportError| advice(run, &error("x".into()).into());
        assert!(said(&at("vhost-user:/x.sock"), TransportError::Unreachable).contains("weir export ls"));
        assert_eq!(said(&at(tcp), TransportError::Unreachable), "", "its own text says where it was looked for");
        assert!(said(&at(tcp), TransportError::NoNamespace).contains("?ns="));
        assert!(said(&at(tcp), TransportError::Closed).contains("--reconnect"));
        let again = BenchRun { reconnect: Some(Nanos(1)), ..at(tcp) };
        assert_eq!(said(&again, TransportError::Closed), "", "it has connected again for as long as was said");
    }

    fn run_of(job: Job) -> BenchRun {
        BenchRun {
            targets: vec![Target::Local { kind: "null".into(), query: String::new() }],
            jobs: vec![job],
            time: Nanos(100),
            ramp: Nanos(10),
            verify: false,
            series: None,
            by_kind: false,
            seed: 1,
            digests: (false, false),
            hostnqn: None,
            queues: 1,
            arbitrate: None,
            packed: false,
            reconnect: None,
            cores: Vec::new(),
        }
    }

    #[test]
    fn schedules() {
        let times = |start, time| {
            let job = Job { start: Nanos(start), time, ..Job::default() };
            let s = schedule(&run_of(job.clone()), &job, Nanos(1000));
            (s.base.get(), s.start.get(), s.count.get(), s.stop.get())
        };
        assert_eq!(times(0, None), (1010, 1000, 1010, 1110), "warms up during the ramp");
        assert_eq!(times(30, None), (1010, 1040, 1040, 1110), "joins later");
        assert_eq!(times(30, Some(Nanos(20))), (1010, 1040, 1040, 1060), "and leaves");
        assert_eq!(times(90, Some(Nanos(20))), (1010, 1100, 1100, 1110), "at the end of the run at the latest");
    }
}
