//! `weir bench` as a client: a process of its own, so that what is measured is what users run.

use crate::{BenchError, Setup, failed};
use std::process::{Command, Stdio};

/// What a run gave.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Requests a second.
    pub iops: f64,
    /// Median latency, ns.
    pub p50_ns: f64,
}

/// Runs `weir bench TARGET` on the client's core with these arguments besides.
///
/// # Errors
/// It failed, or some of its requests did.
pub fn run(setup: &Setup, target: &str, arguments: &[&str]) -> Result<Run, BenchError> {
    let time = format!("{}ns", setup.time.get());
    let arguments: Vec<&str> = ["--time", &time].into_iter().chain(arguments.iter().copied()).collect();
    let json = bench(setup, target, &arguments)?;
    figures(&json["total"])
}

/// The same for a drive of the client's own process, which is written full before what counts begins: queue depth, requests and
/// their size.
///
/// # Errors
/// As [`run`], and if the drive could not be written full in a minute.
pub fn run_written(setup: &Setup, target: &str, (qd, rw, bs): (&str, &str, &str)) -> Result<Run, BenchError> {
    let bytes = setup.bytes()? as f64;
    // Two bytes a nanosecond are a fraction of what such a drive takes once its memory has been touched. How long the first touch
    // takes is the machine's affair: a virtual one may have to get the page from its host.
    let mut fill = (setup.bytes()? / 2).max(100_000_000);
    while fill < 60_000_000_000 {
        let all = format!("{}ns", fill.saturating_add(setup.time.get()));
        let write = format!("name=fill,rw=write,bs=128KiB,qd=16,time={fill}ns");
        let job = format!("name=counted,rw={rw},bs={bs},qd={qd},start={fill}ns");
        let json = bench(setup, target, &["--time", &all, "--job", &write, "--job", &job])?;
        let job = |name: &str| json["jobs"].as_array().and_then(|jobs| jobs.iter().find(|j| j["name"] == name));
        let (Some(filled), Some(counted)) = (job("fill"), job("counted")) else {
            return Err(failed("weir bench", "its JSON lacks a job"));
        };
        let rate = filled["bandwidth_bytes_per_s"].as_f64().unwrap_or_default();
        if rate * fill as f64 / 1e9 >= bytes {
            return figures(counted);
        }
        fill *= 3;
    }
    Err(failed("weir bench", format!("{target} was not written full in a minute")))
}

fn bench(setup: &Setup, target: &str, arguments: &[&str]) -> Result<serde_json::Value, BenchError> {
    let core = setup.client_core.to_string();
    let output = Command::new(setup.weir()?)
        .args(["--json", "bench", target, "--cores", &core])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| failed("weir bench", e))?;
    if !output.status.success() {
        return Err(failed("weir bench", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn figures(job: &serde_json::Value) -> Result<Run, BenchError> {
    let number = |v: &serde_json::Value| v.as_f64().ok_or_else(|| failed("weir bench", "its JSON lacks a figure"));
    Ok(Run { iops: number(&job["iops"])?, p50_ns: number(&job["latency_ns"]["p50"])? })
}
