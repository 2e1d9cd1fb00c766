//! `weir bench`, run as a process.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Context, Env};
use crate::process::{Finished, Process};

/// A running `weir bench … --json`.
pub struct Bench {
    process: Process,
    limit: Duration,
}

/// What it measured.
pub struct Report(pub Value);

impl Bench {
    /// Starts it.
    pub fn start(env: &Env, target: &str, args: &[&str]) -> Result<Self, String> {
        let dir: PathBuf = env.folder()?;
        let mut all = vec!["bench", target, "--json"];
        all.extend_from_slice(args);
        Ok(Self { process: Process::start(&dir, "weir-bench", &env.weir, &all)?, limit: Duration::from_secs(120) })
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Waits for its end, whatever it says.
    pub fn ended(self, limit: Duration) -> Result<Finished, String> {
        self.process.wait(limit)
    }

    /// Waits for its report.
    pub fn finish(self) -> Result<Report, String> {
        let finished = self.process.wait(self.limit)?;
        let text = finished.success("weir bench")?;
        serde_json::from_str(&text).map(Report).context(|| format!("weir bench --json printed {text:?}"))
    }
}

/// Runs it to the end.
pub fn bench(env: &Env, target: &str, args: &[&str]) -> Result<Report, String> {
    Bench::start(env, target, args)?.finish()
}

impl Report {
    /// A number of the total.
    pub fn total(&self, key: &str) -> Result<f64, String> {
        number(&self.0["total"], key)
    }

    /// The job of that name.
    pub fn job(&self, name: &str) -> Result<&Value, String> {
        let jobs = self.0["jobs"].as_array().ok_or("no jobs in the report")?;
        jobs.iter().find(|j| j["name"] == name).ok_or_else(|| format!("no job {name} in the report: {}", self.0))
    }

    /// Bytes per second of a job.
    pub fn bandwidth(&self, name: &str) -> Result<f64, String> {
        number(self.job(name)?, "bandwidth_bytes_per_s")
    }

    /// Fails unless there were commands and none went wrong.
    pub fn clean(&self) -> Result<(), String> {
        let (iops, errors) = (self.total("iops")?, self.total("errors")?);
        if iops > 0.0 && errors == 0.0 { Ok(()) } else { Err(format!("{iops} IOPS, {errors} errors: {}", self.0)) }
    }
}

/// A number in an object.
pub fn number(value: &Value, key: &str) -> Result<f64, String> {
    value[key].as_f64().ok_or_else(|| format!("no number '{key}' in {value}"))
}
