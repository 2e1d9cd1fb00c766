//! What `weir fs bench` prints.

use super::args::{BenchMode, BenchPlan, Cold};
use super::meter::Measured;
use crate::output::Table;
use crate::report::{DISTURBED_PCT, count, megabytes, time};
use serde::Serialize;
use weir_workload::Histogram;

/// All runs of a mode.
pub struct BenchReport<'a> {
    plan: &'a BenchPlan,
    about: String,
    runs: &'a [Measured],
}

/// As documented in docs/reference/cli.md.
#[derive(Serialize)]
struct ReportJson<'a> {
    mode: &'static str,
    about: &'a str,
    buffered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<usize>,
    batch: usize,
    runs: Vec<RunJson>,
}

#[derive(Serialize)]
struct RunJson {
    operations: u64,
    bytes: u64,
    seconds: f64,
    operations_per_s: f64,
    bandwidth_bytes_per_s: f64,
    latency_ns: LatencyJson,
    /// How often each byte was copied within the process.
    copies_per_byte: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_for_core_pct: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct LatencyJson {
    pub(super) mean: f64,
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) p999: u64,
    pub(super) max: u64,
}

impl LatencyJson {
    pub(super) fn of(latency: &Histogram) -> Self {
        let at = |percent| latency.percentile(percent);
        let (mean, max) = (latency.mean(), latency.max());
        Self { mean, p50: at(50.0), p90: at(90.0), p99: at(99.0), p999: at(99.9), max }
    }
}

impl Measured {
    fn seconds(&self) -> f64 {
        self.elapsed.as_secs_f64().max(1e-9)
    }

    fn json(&self) -> RunJson {
        RunJson {
            operations: self.operations,
            bytes: self.bytes,
            seconds: self.seconds(),
            operations_per_s: self.operations as f64 / self.seconds(),
            bandwidth_bytes_per_s: self.bytes as f64 / self.seconds(),
            latency_ns: LatencyJson::of(&self.latency),
            copies_per_byte: self.copied as f64 / self.bytes.max(1) as f64,
            waited_for_core_pct: self.waited_pct,
        }
    }
}

impl<'a> BenchReport<'a> {
    pub fn new(plan: &'a BenchPlan, about: String, runs: &'a [Measured]) -> Self {
        BenchReport { plan, about, runs }
    }

    pub fn json(&self) -> impl Serialize {
        let size = self.plan.mode.has_size().then_some(self.plan.size);
        let runs = self.runs.iter().map(Measured::json).collect();
        let BenchPlan { mode, buffered, batch, .. } = *self.plan;
        ReportJson { mode: mode.name(), about: &self.about, buffered, size, batch, runs }
    }

    /// One line of what was done, and one a run.
    pub fn text(&self) -> String {
        let mut table =
            Table::new(&[">OPERATIONS", ">OPS/S", ">MB/S", ">MEAN", ">P50", ">P90", ">P99", ">P99.9", ">MAX"]);
        for run in self.runs {
            let RunJson { operations, operations_per_s, bandwidth_bytes_per_s, latency_ns: l, .. } = run.json();
            let moved = if run.bytes > 0 { megabytes(bandwidth_bytes_per_s) } else { "-".into() };
            let times = [l.mean, l.p50 as f64, l.p90 as f64, l.p99 as f64, l.p999 as f64, l.max as f64].map(time);
            table.row([operations.to_string(), count(operations_per_s), moved].into_iter().chain(times));
        }
        let mut text = format!("{}\n{}", self.head(), table.render());
        let waited = self.runs.iter().filter_map(|run| run.waited_pct).fold(0.0, f64::max);
        if waited > DISTURBED_PCT {
            text += &format!(
                "waited {waited:.0} % of the time for a core: the figures show what else runs on this machine\n"
            );
        }
        text
    }

    fn head(&self) -> String {
        let BenchPlan { mode, buffered, size, batch, cold, .. } = *self.plan;
        let mut text = format!("{} {}", mode.name(), self.about);
        if mode.has_size() {
            text += &format!(", {size} bytes each");
        }
        match mode {
            _ if mode.has_batch() => text += &format!(", {batch} in flight"),
            BenchMode::Write | BenchMode::ReadSequential | BenchMode::ReadRandom => {
                text += if buffered { ", buffered" } else { ", direct" };
            }
            _ => {}
        }
        match cold {
            Some(Cold::Map) => text += ", its map asked for by each",
            Some(Cold::All) => text += ", opened by each",
            None => {}
        }
        text
    }
}
