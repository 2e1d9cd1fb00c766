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
    let core = setup.client_core.to_string();
    let output = Command::new(setup.weir()?)
        .args(["--json", "bench", target, "--time", &time, "--cores", &core])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| failed("weir bench", e))?;
    if !output.status.success() {
        return Err(failed("weir bench", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let total = &json["total"];
    let number = |v: &serde_json::Value| v.as_f64().ok_or_else(|| failed("weir bench", "its JSON lacks a figure"));
    Ok(Run { iops: number(&total["iops"])?, p50_ns: number(&total["latency_ns"]["p50"])? })
}
