//! How exactly a drive keeps its modelled times, at rising rates up to where its core is full; beside it a bare loop that only
//! spins on the clock for deadlines of the same distribution, on the same core.

use crate::figure::{Report, Series, Target};
use crate::servers::{Scratch, Weir};
use crate::{BenchError, Setup, client, decision, failed};
use std::process::{Command, Stdio};
use std::thread;
use weir_sys::reactor;
use weir_sys::sched;
use weir_units::Nanos;
use weir_workload::{Histogram, Pacer, Rate};

/// Requests a second.
const RATES: [u64; 7] = [10_000, 50_000, 100_000, 200_000, 400_000, 800_000, 1_600_000];
/// Modelled service time.
const LATENCY: Nanos = Nanos::from_micros(100);
/// A core that is busy for more than so many percent of its time is full.
const FULL: f64 = 95.0;

/// What is told of a distribution, for each of the contestants.
const TOLD: [&str; 4] = ["p50 net", "p99 net", "p50 raw", "p99 raw"];

/// One rate over the rounds.
#[derive(Default)]
struct Found {
    achieved: Series,
    busy: Series,
    late: Series,
    weir: [Series; 4],
    bare: [Series; 4],
    bare_late: Series,
    raw_late: Series,
    bare_raw_late: Series,
}

/// Measures.
///
/// # Errors
/// Something could not be started.
pub fn measure(setup: &Setup) -> Result<Report, BenchError> {
    let (s, c) = (setup.server_core, setup.client_core);
    let method = vec![
        format!(
            "actual minus modelled completion time, {} rounds of {} s in turn; medians [lowest - highest]; net: without the",
            setup.rounds,
            setup.seconds()
        ),
        "time in which the thread was ready to run and had no core (schedstat)".to_string(),
        format!(
            "weir: weir up --poll on core {s}, RAM drive of {} written full, latency {LATENCY}, 512 slots, vhost-user-blk;",
            setup.capacity
        ),
        format!(
            "4 KiB random reads of weir bench on core {c} as a Poisson process of the rate, at most twice the mean in flight; a client \
             without a core does not catch up"
        ),
        format!("bare: a loop on core {s} that does nothing but spin on the clock for deadlines of the same process"),
        decision::method(setup),
    ];
    let mut found: [Found; RATES.len()] = Default::default();
    for round in 0..setup.rounds {
        // Nobody is stopped here: the node is started for its part of a round and ends with it.
        for (rate, found) in RATES.iter().zip(&mut found) {
            let (raw, net) = bare(setup, *rate, u64::from(round))?;
            push(&mut found.bare, &raw, &net);
            found.bare_late.push(late(&net));
            found.bare_raw_late.push(late(&raw));
        }
        let scratch = Scratch::new()?;
        let weir = Weir::start_with(setup, &scratch, &format!("latency = \"{LATENCY}\"\nslots = 512"))?;
        for (rate, found) in RATES.iter().zip(&mut found) {
            weir_at(setup, &weir, *rate, found)?;
        }
    }
    let mut report = report(method, &found);
    decision::measure(setup, &mut report)?;
    Ok(report)
}

fn report(method: Vec<String>, found: &[Found]) -> Report {
    let mut report = Report::new("realtime", method);
    for (rate, found) in RATES.iter().zip(found) {
        let rate_name = format!("{}k IOPS", rate / 1000);
        let full = found.busy.spread().median >= FULL;
        let note = if full { ", core full" } else { "" };
        report.figure(format!("{rate_name}, achieved"), "IOPS", &found.achieved);
        report.figure(format!("{rate_name}, core busy"), "%", &found.busy);
        for (i, what) in TOLD.iter().enumerate() {
            let name = format!("{rate_name}, weir, {what}{note}");
            match (i, full) {
                (0, false) => report.judged(name, "us", &found.weir[i], Target::AtMost(1.0)),
                (1, false) => report.judged(name, "us", &found.weir[i], Target::AtMost(5.0)),
                _ => report.figure(name, "us", &found.weir[i]),
            }
            report.figure(format!("{rate_name}, bare, {what}"), "us", &found.bare[i]);
        }
        let name = format!("{rate_name}, weir, later than 5 us, net{note}");
        match full {
            false => report.judged(name, "%", &found.late, Target::AtMost(1.0)),
            true => report.figure(name, "%", &found.late),
        }
        report.figure(format!("{rate_name}, bare, later than 5 us, net"), "%", &found.bare_late);
        report.figure(format!("{rate_name}, weir, later than 5 us, raw"), "%", &found.raw_late);
        report.figure(format!("{rate_name}, bare, later than 5 us, raw"), "%", &found.bare_raw_late);
    }
    report
}

fn push(into: &mut [Series; 4], raw: &Histogram, net: &Histogram) {
    let values = [net.percentile(50.0), net.percentile(99.0), raw.percentile(50.0), raw.percentile(99.0)];
    into.iter_mut().zip(values).for_each(|(series, ns)| series.push(ns as f64 / 1e3));
}

/// Percent later than 5 us.
fn late(histogram: &Histogram) -> f64 {
    let late: u64 = histogram.buckets().filter(|(low, ..)| *low > 5000).map(|(.., n)| n).sum();
    100.0 * late as f64 / histogram.count().max(1) as f64
}

/// The bare loop: raw and net.
fn bare(setup: &Setup, rate: u64, seed: u64) -> Result<(Histogram, Histogram), BenchError> {
    let (core, time) = (setup.server_core, setup.time);
    let run = move || -> std::io::Result<(Histogram, Histogram)> {
        sched::pin(core)?;
        let (mut raw, mut net) = (Histogram::new(), Histogram::new());
        let start = reactor::now().saturating_add(LATENCY);
        let end = start.saturating_add(time);
        let mut pacer = Pacer::poisson(Rate::Iops(rate), start, seed);
        let dues = std::iter::from_fn(|| {
            let due = pacer.due();
            pacer.advance(1);
            (due < end).then_some(due)
        });
        sched::spin(dues, |late, waited| {
            raw.record(late.get());
            net.record(late.saturating_sub(waited).get());
        });
        Ok((raw, net))
    };
    let joined = thread::spawn(run).join().map_err(|e| failed("the bare loop", format!("{e:?}")))?;
    joined.map_err(|e| failed("the bare loop", e))
}

/// Requests in flight at most: twice what the rate makes of the service time on the average, and two. A client whose core was
/// taken for milliseconds would otherwise make up for all of that at once, which no deadline of the bare loop knows.
fn in_flight(rate: u64) -> u64 {
    2 * rate * LATENCY.get() / 1_000_000_000 + 2
}

/// The drive at a rate.
fn weir_at(setup: &Setup, weir: &Weir, rate: u64, found: &mut Found) -> Result<(), BenchError> {
    stats(setup, weir, true)?;
    let job = format!("name=a,rate={rate},arrival=poisson-drop,qd={}", in_flight(rate));
    found.achieved.push(client::run(setup, &weir.vhost, &["--job", &job])?.iops);
    let json = stats(setup, weir, false)?;
    let number = |value: &serde_json::Value| {
        value.as_f64().ok_or_else(|| failed("weir device stats", format!("a figure is missing in {json}")))
    };
    let (timing, error) = (&json["timing"], &json["completion_error"]);
    found.busy.push(number(&json["core_busy_pct"])?);
    let all = number(&timing["completions"])?.max(1.0);
    found.late.push(100.0 * number(&timing["net_over_5us"])? / all);
    found.raw_late.push(100.0 * number(&timing["over_5us"])? / all);
    let keys = [("net_ns", "p50"), ("net_ns", "p99"), ("raw_ns", "p50"), ("raw_ns", "p99")];
    for (series, (which, key)) in found.weir.iter_mut().zip(keys) {
        series.push(number(&error[which][key])? / 1e3);
    }
    Ok(())
}

fn stats(setup: &Setup, weir: &Weir, reset: bool) -> Result<serde_json::Value, BenchError> {
    let mut command = Command::new(setup.weir()?);
    command.args(["--json", "--api", &weir.api, "device", "stats", "ssd0"]);
    if reset {
        command.arg("--reset");
    }
    let output = command.stdin(Stdio::null()).output().map_err(|e| failed("weir device stats", e))?;
    if !output.status.success() {
        return Err(failed("weir device stats", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_is_later_than_5_us() {
        let mut histogram = Histogram::new();
        for ns in [0, 100, 4_000, 5_100, 2_000_000] {
            histogram.record(ns);
        }
        assert_eq!((late(&histogram), late(&Histogram::new())), (40.0, 0.0));
    }

    #[test]
    fn a_full_core_is_not_judged() {
        let mut found: [Found; RATES.len()] = Default::default();
        for (i, found) in found.iter_mut().enumerate() {
            found.busy.push(if i < 5 { 50.0 } else { 99.0 });
            for series in found.weir.iter_mut().chain(&mut found.bare).chain([&mut found.late, &mut found.achieved]) {
                series.push(if i < 4 { 0.5 } else { 9.0 });
            }
        }
        let report = report(Vec::new(), &found);
        let judged: Vec<bool> = report.lines.iter().filter_map(|l| l.met).collect();
        // Three figures a rate: two that are in time and one that is not, and two that nobody expects to be.
        assert_eq!(judged, [[true; 12].as_slice(), &[false; 3]].concat());
        assert!(report.text().contains("1600k IOPS, weir, p99 net, core full"), "{}", report.text());
    }
}
