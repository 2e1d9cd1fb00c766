//! What `weir fs bench replay` prints.

use super::super::report::LatencyJson;
use super::load::Recording;
use super::run::{Figures, Replayed};
use crate::output::Table;
use crate::report::{count, megabytes, time};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;
use weir_store_node::record::RecordedCall;

/// As documented in docs/reference/cli.md.
#[derive(Debug, Serialize)]
pub struct ReplayReport {
    pub(super) records: usize,
    pub(super) cut_off_records: usize,
    pub(super) threads: usize,
    pub(super) prepared_bytes: u64,
    pub(super) recorded: TotalJson,
    pub(super) replayed: TotalJson,
    pub(super) otherwise: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_otherwise: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verified_bytes: Option<u64>,
    pub(super) calls: Vec<CallJson>,
}

#[derive(Debug, Serialize)]
pub(super) struct TotalJson {
    pub(super) operations: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) in_calls_s: f64,
    /// Not of what was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) processor_s: Option<f64>,
    pub(super) operations_per_s: f64,
    pub(super) bandwidth_bytes_per_s: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct CallJson {
    pub(super) call: &'static str,
    pub(super) operations: u64,
    pub(super) bytes: u64,
    pub(super) operations_per_s: f64,
    pub(super) bandwidth_bytes_per_s: f64,
    pub(super) latency_ns: LatencyJson,
    pub(super) recorded: RecordedJson,
}

#[derive(Debug, Serialize)]
pub(super) struct RecordedJson {
    pub(super) operations: u64,
    pub(super) bytes: u64,
    pub(super) latency_ns: LatencyJson,
}

impl From<&Figures> for LatencyJson {
    fn from(figures: &Figures) -> Self {
        Self::of(&figures.latency)
    }
}

fn total(figures: &BTreeMap<RecordedCall, Figures>, elapsed: Duration, called: Duration) -> TotalJson {
    let operations = figures.values().map(|figures| figures.operations).sum::<u64>();
    let bytes = figures.values().map(|figures| figures.bytes).sum::<u64>();
    let seconds = elapsed.as_secs_f64().max(1e-9);
    TotalJson {
        operations,
        bytes,
        seconds,
        in_calls_s: called.as_secs_f64(),
        processor_s: None,
        operations_per_s: operations as f64 / seconds,
        bandwidth_bytes_per_s: bytes as f64 / seconds,
    }
}

/// What the record says, as the replay counts it.
fn recorded(recording: &Recording) -> (BTreeMap<RecordedCall, Figures>, Duration) {
    let (mut all, mut called) = (BTreeMap::<RecordedCall, Figures>::new(), 0);
    for step in &recording.steps {
        let figures = all.entry(step.line.call).or_default();
        figures.operations += 1;
        if moves_bytes(step.line.call) {
            figures.bytes += step.line.done;
        }
        figures.latency.record(step.line.took);
        called += step.line.called;
    }
    (all, Duration::from_nanos(called))
}

/// Whether what a call has done are bytes.
pub const fn moves_bytes(call: RecordedCall) -> bool {
    matches!(
        call,
        RecordedCall::Read | RecordedCall::Write | RecordedCall::Append | RecordedCall::Put | RecordedCall::Get
    )
}

impl ReplayReport {
    pub fn new(recording: &Recording, replayed: Replayed) -> Self {
        let (before, called) = recorded(recording);
        let seconds = replayed.elapsed.as_secs_f64().max(1e-9);
        let call = |(call, figures): (&RecordedCall, &Figures)| {
            let was = before.get(call).cloned().unwrap_or_default();
            CallJson {
                call: call.name(),
                operations: figures.operations,
                bytes: figures.bytes,
                operations_per_s: figures.operations as f64 / seconds,
                bandwidth_bytes_per_s: figures.bytes as f64 / seconds,
                latency_ns: figures.into(),
                recorded: RecordedJson { operations: was.operations, bytes: was.bytes, latency_ns: (&was).into() },
            }
        };
        Self {
            records: recording.records.len(),
            cut_off_records: recording.cut_off,
            threads: recording.threads.len(),
            prepared_bytes: recording.contents.iter().map(|content| content.prepared).sum(),
            recorded: total(&before, Duration::from_nanos(recording.span), called),
            replayed: TotalJson {
                processor_s: Some(replayed.processor.as_secs_f64()),
                ..total(&replayed.figures, replayed.elapsed, replayed.called)
            },
            otherwise: replayed.otherwise,
            first_otherwise: replayed.first_otherwise,
            verified_bytes: replayed.compared,
            calls: replayed.figures.iter().map(call).collect(),
        }
    }

    pub fn json(&self) -> &Self {
        self
    }

    /// A table of the calls, and what was recorded and replayed in all.
    pub fn text(&self) -> String {
        let headings = [
            "CALL",
            ">CALLS",
            ">CALLS/S",
            ">MB/S",
            ">MEAN",
            ">P50",
            ">P90",
            ">P99",
            ">P99.9",
            ">MAX",
            ">RECORDED MEAN",
        ];
        let mut table = Table::new(&headings);
        for call in &self.calls {
            let l = &call.latency_ns;
            let moved = if call.bytes > 0 { megabytes(call.bandwidth_bytes_per_s) } else { "-".into() };
            let times = [l.mean, l.p50 as f64, l.p90 as f64, l.p99 as f64, l.p999 as f64, l.max as f64].map(time);
            let first = [call.call.into(), call.operations.to_string(), count(call.operations_per_s), moved];
            table.row(first.into_iter().chain(times).chain([time(call.recorded.latency_ns.mean)]));
        }
        let mut text = format!("{}{}", self.head(), table.render());
        for (name, total) in [("recorded", &self.recorded), ("replayed", &self.replayed)] {
            let TotalJson { operations, bytes, seconds, in_calls_s, bandwidth_bytes_per_s: rate, .. } = total;
            let (bytes, rate) = (megabytes(*bytes as f64), megabytes(*rate));
            // A string takes everything.
            let _ = writeln!(
                text,
                "{name}: {operations} calls, {bytes} MB in {seconds:.3} s, {rate} MB/s; {in_calls_s:.3} s in calls, all threads together"
            );
        }
        text + &self.notes()
    }

    fn head(&self) -> String {
        let few = |n: usize, one: &str| if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") };
        format!("{}, {}\n", few(self.records, "record"), few(self.threads, "thread"))
    }

    fn notes(&self) -> String {
        let mut text = String::new();
        if let Some(bytes) = self.verified_bytes {
            let _ = writeln!(text, "verified: {bytes} bytes that were read are as they were written");
        }
        if let Some(first) = &self.first_otherwise {
            let _ = writeln!(text, "{} calls came out otherwise than recorded; the first: {first}", self.otherwise);
        }
        if self.cut_off_records > 0 {
            let n = self.cut_off_records;
            let _ = writeln!(
                text,
                "{n} of the records are cut off: their processes were killed, or had no room; what they have was replayed"
            );
        }
        text
    }

    /// The table, with plain numbers.
    pub fn csv(&self) -> String {
        let mut text = String::from(
            "call,operations,bytes,operations_per_s,bandwidth_bytes_per_s,mean_ns,p50_ns,p90_ns,p99_ns,p999_ns,max_ns,recorded_mean_ns\n",
        );
        for call in &self.calls {
            let l = &call.latency_ns;
            let CallJson { call: name, operations, bytes, operations_per_s, bandwidth_bytes_per_s, recorded, .. } =
                call;
            let _ = writeln!(
                text,
                "{name},{operations},{bytes},{operations_per_s:.3},{bandwidth_bytes_per_s:.3},{:.0},{},{},{},{},{},{:.0}",
                l.mean, l.p50, l.p90, l.p99, l.p999, l.max, recorded.latency_ns.mean
            );
        }
        text
    }
}
