//! How well a drive keeps its modelled times, as the API says it.

use super::flash::FlashStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_node::lateness::{Lateness, Standing, Summary};
use weir_units::Nanos;
use weir_workload::Histogram;

/// Whether a drive keeps its modelled times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TimingState {
    /// It does.
    OnTime,
    /// A tenth of the completions or more are over 5 us late, net of run-queue wait, although its core has time left: commands
    /// are due together, or its thread is asleep when they are.
    Late,
    /// As many are late, and its core is busy all the time: it has more to do than it can.
    Overloaded,
    /// It would if other threads did not take its core: as many are late, but because the drive's thread had to wait.
    Starved,
}

/// How well a drive keeps its modelled times. *Net* is without the time in which its thread was ready to run and had no
/// core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// Now.
    pub state: TimingState,
    /// For how many seconds that has been so.
    pub state_s: f64,
    /// Percent of the last quarter of a second's completions that were over 5 us late.
    pub late_pct: f64,
    /// The same, net.
    pub net_late_pct: f64,
    /// Completions that were measured.
    pub completions: u64,
    /// Of these, over 5 us late.
    pub over_5us: u64,
    /// Over 20 us late.
    pub over_20us: u64,
    /// Over 5 us late, net.
    pub net_over_5us: u64,
    /// Over 20 us late, net.
    pub net_over_20us: u64,
    /// How many times it was overloaded.
    pub overloads: u64,
    /// For how many seconds it was overloaded in all.
    pub overloaded_s: f64,
}

impl From<Summary> for Timing {
    fn from(s: Summary) -> Self {
        Timing {
            state: match s.standing {
                Standing::OnTime => TimingState::OnTime,
                Standing::Late => TimingState::Late,
                Standing::Overloaded => TimingState::Overloaded,
                Standing::Starved => TimingState::Starved,
            },
            state_s: s.lasting.as_secs_f64(),
            late_pct: s.recent.0,
            net_late_pct: s.recent.1,
            completions: s.total.completions,
            over_5us: s.total.late,
            over_20us: s.total.very_late,
            net_over_5us: s.total.net_late,
            net_over_20us: s.total.net_very_late,
            overloads: s.overloads,
            overloaded_s: s.overloaded.as_secs_f64(),
        }
    }
}

/// `GET /v1/devices/NAME/stats`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceStats {
    /// The drive.
    pub device: String,
    /// The CPU of its reactor.
    pub core: usize,
    /// That reactor never sleeps.
    pub poll: bool,
    /// Percent of the last second in which that reactor had something to do, for all its drives.
    pub core_busy_pct: f64,
    /// For how many seconds its thread has been ready to run without a core since it started; absent where the kernel does
    /// not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_wait_s: Option<f64>,
    /// Absent before the drive has completed a command with a modelled time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// Absent as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_error: Option<CompletionError>,
    /// What its flash did; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<FlashStatus>,
}

/// Actual minus modelled completion time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompletionError {
    /// For how many seconds has been measured: since the first completion or the last reset.
    pub measured_s: f64,
    /// As it was.
    pub raw_ns: Quantiles,
    /// Net of run-queue wait.
    pub net_ns: Quantiles,
    /// The histogram; ranges in which nothing was counted are left out.
    pub buckets: Vec<Bucket>,
}

/// Of a distribution in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantiles {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 99 of 100 are no larger.
    pub p99: u64,
    /// 999 of 1000 are no larger.
    pub p999: u64,
    /// Largest.
    pub max: u64,
}

impl From<&Histogram> for Quantiles {
    fn from(h: &Histogram) -> Self {
        let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|p| h.percentile(p));
        Quantiles { mean: h.mean(), p50, p99, p999, max: h.max() }
    }
}

/// How many completions were late by `from_ns` or more and less than `to_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bucket {
    /// From here.
    pub from_ns: u64,
    /// To here; absent in the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ns: Option<u64>,
    /// As it was.
    pub raw: u64,
    /// Net of run-queue wait.
    pub net: u64,
}

/// Where the buckets begin.
const EDGES: [u64; 14] =
    [0, 250, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 10_000_000];

impl CompletionError {
    /// What was measured until `now`.
    pub(crate) fn new(lateness: &Lateness, now: Nanos) -> Self {
        let (raw, net) = (counts(lateness.raw()), counts(lateness.net()));
        let bucket =
            |i: usize| Bucket { from_ns: EDGES[i], to_ns: EDGES.get(i + 1).copied(), raw: raw[i], net: net[i] };
        CompletionError {
            measured_s: lateness.span(now).as_secs_f64(),
            raw_ns: lateness.raw().into(),
            net_ns: lateness.net().into(),
            buckets: (0..EDGES.len()).map(bucket).filter(|b| b.raw + b.net > 0).collect(),
        }
    }
}

/// A fine bucket belongs where its lowest value does; its width is below one percent.
fn counts(histogram: &Histogram) -> [u64; EDGES.len()] {
    let mut counts = [0; EDGES.len()];
    for (low, _, n) in histogram.buckets() {
        counts[EDGES.partition_point(|edge| *edge <= low) - 1] += n;
    }
    counts
}
