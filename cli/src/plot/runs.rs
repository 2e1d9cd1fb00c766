//! Which charts there are of runs: of one, over time and by percentile; of several, over what was varied.

use super::{Axis, Chart, Curve, Picture, Scale, Shape, Unit};
use crate::report::{self, Report};
use weir_workload::JobResult;

/// A run, and what was varied for it.
#[derive(Debug)]
pub struct PlottedRun<'a> {
    /// Keys and values.
    pub set: &'a [(String, String)],
    /// The drive, where there are several.
    pub drive: Option<&'a str>,
    /// What it came to.
    pub report: &'a Report,
}

impl PlottedRun<'_> {
    /// What tells it from these others, but for one key.
    fn name(&self, runs: &[PlottedRun<'_>], left_out: Option<&str>) -> String {
        let varied =
            |key: &str, value: &str| runs.iter().any(|other| other.set.iter().any(|(k, v)| k == key && v != value));
        let keys = self.set.iter().filter(|(key, value)| Some(key.as_str()) != left_out && varied(key, value));
        let all: Vec<String> =
            keys.map(|(key, value)| format!("{key}={value}")).chain(self.drive.map(str::to_owned)).collect();
        if all.is_empty() { "all".to_owned() } else { all.join(", ") }
    }

    fn value(&self, key: &str) -> Option<f64> {
        self.set.iter().find(|(k, _)| k == key).and_then(|(_, value)| number(value))
    }
}

/// The number in a value, whatever its unit: the values of one key have one.
fn number(text: &str) -> Option<f64> {
    let plain = text.trim_matches('"');
    let by_unit = || {
        let time = weir_units::parse::nanos(plain).ok().map(|t| t.get() as f64);
        time.or_else(|| weir_units::parse::bytes(plain).ok().map(|b| b.get() as f64))
    };
    plain.parse::<f64>().ok().or_else(by_unit).filter(|n| n.is_finite())
}

/// The picture of all runs.
pub fn picture(title: String, origin: String, runs: &[PlottedRun<'_>]) -> Picture {
    let charts = match runs {
        [only] => of_one(only.report),
        several => of_several(several),
    };
    Picture { title, origin, charts, table: table(runs) }
}

fn axis(label: &str, scale: Scale, unit: Unit) -> Axis {
    Axis { label: label.into(), scale, unit }
}

/// A job, or where they are told apart its reads and its writes.
fn apart(job: &JobResult) -> impl Iterator<Item = &JobResult> {
    let whole = job.kinds.is_empty().then_some(job);
    whole.into_iter().chain(&job.kinds)
}

fn of_one(report: &Report) -> Vec<Chart> {
    let mut jobs: Vec<&JobResult> = report.jobs.iter().flat_map(apart).collect();
    if report.jobs.len() > 1 {
        jobs.push(&report.total);
    }
    let marks: Vec<(f64, String)> =
        report.run.iter().flat_map(|run| &run.power_cuts).map(|cut| (cut.at_s, "power cut".to_owned())).collect();
    let over_time = |title: &str, y: Axis, of: fn(&weir_workload::SeriesPoint) -> f64| {
        let curve = |job: &&JobResult| {
            let points = job.series.iter().map(|point| (point.t_s, of(point))).collect();
            Curve { name: job.name.clone(), points }
        };
        let curves: Vec<Curve> = jobs.iter().map(curve).filter(|curve| curve.points.len() > 1).collect();
        let x = axis("time", Scale::Linear, Unit::Seconds);
        let chart = Chart { title: title.into(), x, y, shape: Shape::Curves(curves.clone()), marks: marks.clone() };
        (!curves.is_empty()).then_some(chart)
    };
    let throughput = over_time("Throughput", axis("requests a second", Scale::Linear, Unit::Number), |p| p.iops);
    let latency =
        over_time("Latency: 99 of 100 take no longer", axis("p99", Scale::Log, Unit::Nanos), |p| p.p99_ns as f64);
    let distribution = |job: &&JobResult| {
        let points = job.distribution.iter().map(|(percent, ns)| (*percent, *ns as f64)).collect();
        Curve { name: job.name.clone(), points }
    };
    let by_percentile = Chart {
        title: "Latency by percentile".into(),
        x: axis("of the requests", Scale::Nines, Unit::Percent),
        y: axis("take no longer", Scale::Log, Unit::Nanos),
        shape: Shape::Curves(jobs.iter().map(distribution).collect()),
        marks: Vec::new(),
    };
    [throughput, latency, Some(by_percentile)].into_iter().flatten().collect()
}

/// A figure of a run; not every run has it.
type OfRun = fn(&Report) -> Option<f64>;

/// What is looked at of each run.
const FIGURES: [(&str, Unit, OfRun); 5] = [
    ("requests a second", Unit::Number, |r| Some(r.total.summary.iops)),
    ("p50", Unit::Nanos, |r| Some(r.total.summary.latency.p50 as f64)),
    ("p99", Unit::Nanos, |r| Some(r.total.summary.latency.p99 as f64)),
    ("p99.9", Unit::Nanos, |r| Some(r.total.summary.latency.p999 as f64)),
    ("write amplification", Unit::Number, |r| Some(r.device.as_ref()?.flash.as_ref()?.write_amplification)),
];

fn of_several(runs: &[PlottedRun<'_>]) -> Vec<Chart> {
    let key = numeric_key(runs);
    let chart = |(name, unit, of): &(&str, Unit, OfRun)| {
        if runs.iter().all(|run| of(run.report).is_none()) {
            return None;
        }
        let y = axis(name, if *unit == Unit::Nanos { Scale::Log } else { Scale::Linear }, *unit);
        let Some(key) = &key else {
            let bars = runs.iter().filter_map(|run| Some((run.name(runs, None), of(run.report)?))).collect();
            let x = axis(name, Scale::Linear, *unit);
            return Some(Chart { title: (*name).into(), x, y, shape: Shape::Bars(bars), marks: Vec::new() });
        };
        let curves = curves(runs, key, *of);
        Some(Chart { title: (*name).into(), x: x_of(runs, key), y, shape: Shape::Curves(curves), marks: Vec::new() })
    };
    FIGURES.iter().filter_map(chart).collect()
}

/// A key with several values, all of them numbers; of several the one with the most.
fn numeric_key(runs: &[PlottedRun<'_>]) -> Option<String> {
    let keys = runs.first()?.set.iter().map(|(key, _)| key.clone());
    let counted = keys.map(|key| {
        let values: Option<Vec<f64>> = runs.iter().map(|run| run.value(&key)).collect();
        let mut values = values.unwrap_or_default();
        values.sort_by(f64::total_cmp);
        values.dedup();
        (values.len(), key)
    });
    counted.filter(|(count, _)| *count > 1).max_by_key(|(count, _)| *count).map(|(_, key)| key)
}

/// By powers where the values are spread over more than ten to one.
fn x_of(runs: &[PlottedRun<'_>], key: &str) -> Axis {
    let values: Vec<f64> = runs.iter().filter_map(|run| run.value(key)).collect();
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    let text = runs
        .iter()
        .find_map(|run| run.set.iter().find(|(k, _)| k == key))
        .map_or("", |(_, value)| value.trim_matches('"'));
    let is_time = text.parse::<f64>().is_err() && weir_units::parse::nanos(text).is_ok();
    let scale = if low > 0.0 && high / low > 10.0 { Scale::Log } else { Scale::Linear };
    axis(key, scale, if is_time { Unit::Nanos } else { Unit::Number })
}

/// A curve for each combination of what else was varied.
fn curves(runs: &[PlottedRun<'_>], key: &str, of: OfRun) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for run in runs {
        let (Some(x), Some(y)) = (run.value(key), of(run.report)) else { continue };
        let name = run.name(runs, Some(key));
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push((x, y)),
            None => curves.push(Curve { name, points: vec![(x, y)] }),
        }
    }
    for curve in &mut curves {
        curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    curves
}

/// The figures of all runs, for those who read rather than look.
fn table(runs: &[PlottedRun<'_>]) -> Vec<Vec<String>> {
    let headings = ["", "class", "IOPS", "MB/s", "mean", "p50", "p99", "p99.9", "max", "errors"];
    let mut rows = vec![headings.map(str::to_owned).to_vec()];
    for run in runs {
        let several = runs.len() > 1;
        let jobs = if several { &[] } else { run.report.jobs.as_slice() };
        let jobs = jobs.iter().flat_map(|job| std::iter::once(job).chain(&job.kinds));
        for job in jobs.chain(std::iter::once(&run.report.total)) {
            let mut row = report::row(job);
            if several {
                row[0] = run.name(runs, None);
            }
            rows.push(row);
        }
    }
    rows
}
