//! What a simulation gave, as Python takes it: numbers as JSON, arrays as columns.

use crate::column::Column;
use crate::error::failed;
use pyo3::prelude::*;
use serde_json::{Value, json};
use weir_drive::FlashFigures;
use weir_flash::HandleWork;
use weir_sim::{PowerCutOutcome, Scenario, SimulationResult};
use weir_workload::{JobResult, SeriesPoint};

/// The result of one drive.
#[pyclass(frozen, module = "weir._native")]
pub struct RunResult {
    numbers: String,
    jobs: Vec<JobResult>,
    tenants: Vec<JobResult>,
    total: JobResult,
}

impl RunResult {
    /// Of a scenario that has run. Tenants are listed where jobs share them, as in the JSON of `weir sim`.
    pub fn new(scenario: &Scenario, from: SimulationResult) -> RunResult {
        let SimulationResult { jobs, tenants, total, drive, flash, power_cuts, time, requests, digest } = from;
        let tenants = if tenants.len() < jobs.len() { tenants } else { Vec::new() };
        let figures = |list: &[JobResult]| list.iter().map(figures).collect::<Vec<_>>();
        let mut device = flash.as_ref().map_or_else(|| json!({}), flash_figures);
        let work = drive.work;
        device["slots"] = drive.slots.into();
        for (key, count) in [
            ("reads", work.reads),
            ("writes", work.writes),
            ("read_bytes", work.read_bytes),
            ("write_bytes", work.write_bytes),
        ] {
            device[key] = count.into();
        }
        let mut run = json!({
            "seed": scenario.seed,
            "time_s": time.as_secs_f64(),
            "requests": requests,
            "digest": format!("{digest:016x}"),
        });
        if !power_cuts.is_empty() {
            run["power_cuts"] = power_cuts.iter().map(power_cut).collect();
        }
        let numbers = json!({
            "jobs": figures(&jobs),
            "tenants": figures(&tenants),
            "total": self::figures(&total),
            "device": device,
            "run": run,
        });
        RunResult { numbers: numbers.to_string(), jobs, tenants, total }
    }

    fn job(&self, list: &str, at: usize) -> PyResult<&JobResult> {
        let found = match list {
            "jobs" => self.jobs.get(at),
            "tenants" => self.tenants.get(at),
            _ => Some(&self.total),
        };
        found.ok_or_else(|| failed(format_args!("{list} has no number {at}")))
    }
}

fn figures(job: &JobResult) -> Value {
    let (summary, latency) = (&job.summary, &job.summary.latency);
    let mut found = json!({
        "name": job.name,
        "class": job.class.map(|class| class.name()),
        "iops": summary.iops,
        "bandwidth_bytes_per_s": summary.bandwidth_bytes_per_s,
        "latency_ns": {
            "mean": latency.mean,
            "p50": latency.p50,
            "p99": latency.p99,
            "p999": latency.p999,
            "max": latency.max,
        },
        "errors": summary.errors,
        "wrong_data": summary.wrong_data,
    });
    if !job.kinds.is_empty() {
        found["kinds"] = job.kinds.iter().map(kind).collect();
    }
    found
}

/// A job's reads, or its writes.
fn kind(of: &JobResult) -> Value {
    let point = |p: &SeriesPoint| json!({ "t_s": p.t_s, "iops": p.iops, "bandwidth_bytes_per_s": p.bandwidth_bytes_per_s, "p99_ns": p.p99_ns });
    let mut found = figures(of);
    found["series"] = of.series.iter().map(point).collect();
    found
}

/// What is inside a flash drive, under the names that the API and `weir sim --json` have.
pub fn flash_figures(flash: &FlashFigures) -> Value {
    let FlashFigures { capacity, over_provisioning, write_amplification, stats, wear, handles, dies, channels, .. } =
        flash;
    let mut figures = json!({
        "capacity_bytes": capacity,
        "over_provisioning": over_provisioning,
        "write_amplification": write_amplification,
        "gc": {
            "victims": stats.victims,
            "page_reads": stats.gc_reads,
            "page_programs": stats.gc_programs,
            "moved_units": stats.gc_moves,
            "folded_units": stats.folds,
            "wear_levelled_units": stats.wear_moves,
            "urgent": stats.urgent,
        },
        "erases": stats.erases,
        "wear": { "min": wear.min, "mean": wear.mean, "max": wear.max },
        "page_reads": stats.page_reads,
        "page_programs": stats.page_programs,
        "padding_units": stats.padding,
        "unmapped_reads": stats.unmapped_reads,
        "buffer_read_hits": stats.buffer_read_hits,
        "buffer_write_hits": stats.buffer_write_hits,
        "buffer_waits": stats.buffer_waits,
        "map_hits": stats.map_hits,
        "map_misses": stats.map_misses,
        "refused": stats.refused,
        "utilisation": { "dies": dies, "channels": channels },
    });
    if !handles.is_empty() {
        let one = |of: &HandleWork| json!({ "written_units": of.written, "moved_units": of.moved, "reclaim_units": of.reclaim_units });
        figures["handles"] = handles.iter().map(one).collect();
    }
    figures
}

fn power_cut(cut: &PowerCutOutcome) -> Value {
    json!({
        "at_s": cut.at.as_secs_f64(),
        "unanswered": cut.unanswered,
        "lost_units": cut.lost_units,
        "lost_writes": cut.lost_writes,
        "pages_read": cut.pages_read,
        "rebuild_s": cut.rebuild.as_secs_f64(),
    })
}

/// Names and numbers of a table's columns.
type Columns = Vec<(&'static str, Column)>;

#[pymethods]
impl RunResult {
    /// Everything but arrays, as JSON.
    #[getter]
    fn numbers(&self) -> &str {
        &self.numbers
    }

    /// The series of a job or tenant, by list and number: columns t_s, iops, bandwidth_bytes_per_s, p99_ns.
    fn series(&self, list: &str, at: usize) -> PyResult<Columns> {
        let points = &self.job(list, at)?.series;
        let reals = |of: fn(&weir_workload::SeriesPoint) -> f64| Column::reals(points.iter().map(of).collect());
        Ok(vec![
            ("t_s", reals(|point| point.t_s)),
            ("iops", reals(|point| point.iops)),
            ("bandwidth_bytes_per_s", reals(|point| point.bandwidth_bytes_per_s)),
            ("p99_ns", Column::counts(points.iter().map(|point| point.p99_ns).collect())),
        ])
    }

    /// The latencies of a job or tenant by percentile, from the shortest on: columns percent, latency_ns.
    fn percentiles(&self, list: &str, at: usize) -> PyResult<Columns> {
        let points = &self.job(list, at)?.distribution;
        Ok(vec![
            ("percent", Column::reals(points.iter().map(|(percent, _)| *percent).collect())),
            ("latency_ns", Column::counts(points.iter().map(|(_, latency)| *latency).collect())),
        ])
    }
}
