//! The last hour of every drive, tenant and store, and of the clients of every export: a point each 10 s, in bounded memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Seconds of a point.
pub(crate) const STEP_S: u64 = 10;
/// Points of an hour.
pub(crate) const POINTS: usize = 360;
/// Points that one of an overview stands for: a minute.
const MINUTE: usize = 6;
/// Values of a point.
pub(crate) const VALUES: usize = 8;
/// Series at the most: 12 KiB each, 24 MiB together.
pub(crate) const MOST_SERIES: usize = 2048;

/// What a series is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Device,
    Tenant,
    Export,
    Store,
    StoreNamespace,
}

impl Kind {
    /// As a path of the API has it.
    pub(crate) fn of(word: &str) -> Option<Kind> {
        match word {
            "devices" => Some(Kind::Device),
            "tenants" => Some(Kind::Tenant),
            "exports" => Some(Kind::Export),
            "stores" => Some(Kind::Store),
            "store-namespaces" => Some(Kind::StoreNamespace),
            _ => None,
        }
    }

    /// The names of its values, and whether a step has their largest rather than their mean.
    const fn fields(self) -> &'static [Field] {
        const fn mean(name: &'static str) -> Field {
            Field { name, is_largest: false }
        }
        const fn largest(name: &'static str) -> Field {
            Field { name, is_largest: true }
        }
        const IOPS: Field = mean("iops");
        const READ: Field = mean("read_bytes_per_s");
        const WRITTEN: Field = mean("written_bytes_per_s");
        const ERRORS: Field = mean("errors_per_s");
        const DEVICE: [Field; 7] =
            [IOPS, READ, WRITTEN, ERRORS, mean("slots_busy_pct"), mean("write_amplification"), mean("gc_bytes_per_s")];
        const TENANT: [Field; 8] =
            [IOPS, READ, WRITTEN, ERRORS, largest("p50_ns"), largest("p99_ns"), largest("p999_ns"), largest("max_ns")];
        const EXPORT: [Field; 1] = [mean("clients")];
        const STORE: [Field; 3] = [mean("requests_per_s"), mean("sessions"), mean("handles")];
        const NAMESPACE: [Field; 4] =
            [mean("file_bytes"), mean("free_bytes"), mean("quarantined_bytes"), mean("bytes_left")];
        match self {
            Kind::Device => &DEVICE,
            Kind::Tenant => &TENANT,
            Kind::Export => &EXPORT,
            Kind::Store => &STORE,
            Kind::StoreNamespace => &NAMESPACE,
        }
    }

    /// Where the values are whose sum an overview shows: bytes read and written, clients, requests, or bytes of files.
    const fn shown(self) -> &'static [usize] {
        match self {
            Kind::Device | Kind::Tenant => &[1, 2],
            Kind::Export | Kind::Store | Kind::StoreNamespace => &[0],
        }
    }
}

#[derive(Clone, Copy)]
struct Field {
    name: &'static str,
    is_largest: bool,
}

/// What is summed up during a step.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    sums: [f64; VALUES],
    largest: [f64; VALUES],
    seconds: f64,
}

/// One series. The newest point is that of the last step that has ended.
#[derive(Debug, Default)]
struct Series {
    now: Step,
    points: VecDeque<[f32; VALUES]>,
}

impl Series {
    fn push(&mut self, point: [f32; VALUES]) {
        if self.points.len() == POINTS {
            self.points.pop_front();
        }
        self.points.push_back(point);
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct History {
    series: BTreeMap<(Kind, String), Series>,
    /// The step that is under way.
    step: u64,
}

/// `GET /v1/history`: the last hour, a point a minute, the oldest first; null where nothing is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryOverview {
    /// Seconds of a point.
    pub step_s: u64,
    /// Bytes a second of drives.
    pub devices: Vec<HistorySeries>,
    /// Bytes a second of tenants.
    pub tenants: Vec<HistorySeries>,
    /// Clients of exports, which are named `OF@nvme-tcp` or `OF@SOCKET`.
    pub exports: Vec<HistorySeries>,
    /// Requests a second that the metadata service of the store answers.
    #[serde(default)]
    pub stores: Vec<HistorySeries>,
    /// Bytes of files on the store's namespaces, which are named by their numbers.
    #[serde(default)]
    pub store_namespaces: Vec<HistorySeries>,
}

/// Of one drive, tenant, export, store or namespace of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistorySeries {
    /// Its name.
    pub name: String,
    /// The points.
    pub values: Vec<Option<f32>>,
}

/// `GET /v1/history/KIND/NAME`: the last hour in full, the oldest point first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryStatus {
    /// Seconds of a point.
    pub step_s: u64,
    /// One for each quantity, as a board names it.
    pub series: Vec<HistoryValues>,
}

/// One quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryValues {
    /// Its name: `iops`, `read_bytes_per_s`, `p99_ns`, …
    pub quantity: String,
    /// The points; null where nothing is known.
    pub values: Vec<Option<f32>>,
}

fn known(value: f32) -> Option<f32> {
    (!value.is_nan()).then_some(value)
}

impl History {
    /// Steps that have ended by `now_s` are points from now on; before what is recorded then.
    pub(crate) fn advance(&mut self, now_s: f64) {
        let step = now_s as u64 / STEP_S;
        // After a pause longer than an hour nothing of before is left.
        for _ in 0..step.saturating_sub(self.step).min(POINTS as u64 + 1) {
            for ((kind, _), series) in &mut self.series {
                let done = std::mem::take(&mut series.now);
                let value = |i: usize| match kind.fields().get(i) {
                    Some(_) if done.seconds <= 0.0 => f32::NAN,
                    Some(field) if field.is_largest => done.largest[i] as f32,
                    Some(_) => (done.sums[i] / done.seconds) as f32,
                    None => f32::NAN,
                };
                series.push(std::array::from_fn(value));
            }
        }
        self.step = self.step.max(step);
        // What has gone is forgotten with its last point.
        self.series
            .retain(|_, s| s.now.seconds > 0.0 || s.points.is_empty() || s.points.iter().any(|p| !p[0].is_nan()));
    }

    /// What one was like for so many seconds until now. Whether there was room for it.
    pub(crate) fn record(&mut self, kind: Kind, name: &str, seconds: f64, values: &[f64]) -> bool {
        let is_full = self.series.len() >= MOST_SERIES;
        let key = (kind, name.to_owned());
        if is_full && !self.series.contains_key(&key) {
            return false;
        }
        let step = &mut self.series.entry(key).or_default().now;
        step.seconds += seconds;
        for (i, value) in values.iter().enumerate().take(VALUES) {
            step.sums[i] += value * seconds;
            step.largest[i] = step.largest[i].max(*value);
        }
        true
    }

    /// All of them.
    pub(crate) fn overview(&self) -> HistoryOverview {
        let all = |wanted: Kind| {
            let of = self.series.iter().filter(|((kind, _), _)| *kind == wanted);
            of.map(|((_, name), series)| HistorySeries { name: name.clone(), values: minutes(series, wanted.shown()) })
                .collect()
        };
        let (devices, tenants, exports) = (all(Kind::Device), all(Kind::Tenant), all(Kind::Export));
        let (stores, store_namespaces) = (all(Kind::Store), all(Kind::StoreNamespace));
        HistoryOverview { step_s: STEP_S * MINUTE as u64, devices, tenants, exports, stores, store_namespaces }
    }

    /// One series in full; `None` where there is none.
    pub(crate) fn of(&self, kind: Kind, name: &str) -> Option<HistoryStatus> {
        let found = self.series.get(&(kind, name.to_owned()))?;
        let one = |(i, field): (usize, &Field)| HistoryValues {
            quantity: field.name.into(),
            values: found.points.iter().map(|point| known(point[i])).collect(),
        };
        Some(HistoryStatus { step_s: STEP_S, series: kind.fields().iter().enumerate().map(one).collect() })
    }
}

/// The sum of such values, minute by minute; the newest minute is a whole one.
fn minutes(series: &Series, shown: &[usize]) -> Vec<Option<f32>> {
    let points: Vec<f32> = series.points.iter().map(|p| shown.iter().map(|i| p[*i]).sum()).collect();
    let mean = |points: &[f32]| {
        let there: Vec<f32> = points.iter().copied().filter(|p| !p.is_nan()).collect();
        (!there.is_empty()).then(|| there.iter().sum::<f32>() / there.len() as f32)
    };
    let mut all: Vec<Option<f32>> = points.rchunks(MINUTE).map(mean).collect();
    all.reverse();
    all
}
