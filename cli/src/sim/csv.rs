//! One line for each drive of a run, for spreadsheets and plots.

use super::Done;
use crate::report::Report;
use weir_workload::{JobResult, SeriesPoint};

/// A header and a line for each run, or each drive of each, and with a series a line for each of its intervals after that: `t_s` is
/// where an interval ends, and empty for the run. Values that a line does not have are empty.
pub fn render(results: &[Done]) -> String {
    let lines: Vec<Vec<(String, String)>> = results.iter().flat_map(lines).collect();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in lines.iter().flatten() {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let mut out = names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(",");
    out.push('\n');
    for line in &lines {
        let value = |name: &&str| line.iter().find(|(n, _)| n == name).map_or_else(String::new, |(_, v)| quoted(v));
        out.push_str(&names.iter().map(value).collect::<Vec<_>>().join(","));
        out.push('\n');
    }
    out
}

fn lines(done: &Done) -> Vec<Vec<(String, String)>> {
    let several = done.only().is_none();
    let one = |(name, report): &(String, Report)| {
        let mut start = done.set.clone();
        start.extend(several.then(|| ("drive".to_string(), name.clone())));
        let intervals = intervals(&start, report);
        std::iter::once(line(start, report)).chain(intervals).collect::<Vec<_>>()
    };
    done.drives.iter().flat_map(one).collect()
}

/// A line for each interval of the series: of all, and of each job where there are several.
fn intervals(start: &[(String, String)], report: &Report) -> Vec<Vec<(String, String)>> {
    let figures = |point: &SeriesPoint, prefix: &str| {
        let column = |name: &str, value: String| (format!("{prefix}{name}"), value);
        vec![
            column("iops", point.iops.to_string()),
            column("bandwidth_bytes_per_s", point.bandwidth_bytes_per_s.to_string()),
            column("p99_ns", point.p99_ns.to_string()),
        ]
    };
    let jobs = if report.jobs.len() > 1 { report.jobs.as_slice() } else { &[] };
    let one = |(at, point): (usize, &SeriesPoint)| {
        let own = jobs.iter().filter_map(|job| Some((job, job.series.get(at)?)));
        let mut line = start.to_vec();
        line.push(("t_s".to_string(), point.t_s.to_string()));
        line.extend(figures(point, ""));
        line.extend(own.flat_map(|(job, point)| figures(point, &format!("{}.", job.name))));
        line
    };
    report.total.series.iter().enumerate().map(one).collect()
}

fn line(mut line: Vec<(String, String)>, report: &Report) -> Vec<(String, String)> {
    if !report.total.series.is_empty() {
        line.push(("t_s".to_string(), String::new()));
    }
    line.extend(figures(&report.total, ""));
    let device = report.device.as_ref().map(serde_json::to_value);
    if let Some(Ok(device)) = device {
        flatten("device", &device, &mut line);
    }
    if report.jobs.len() > 1 {
        for job in &report.jobs {
            line.extend(figures(job, &format!("{}.", job.name)));
        }
    }
    line
}

fn figures(job: &JobResult, prefix: &str) -> Vec<(String, String)> {
    let (s, l) = (&job.summary, &job.summary.latency);
    let column = |name: &str, value: String| (format!("{prefix}{name}"), value);
    vec![
        column("iops", s.iops.to_string()),
        column("bandwidth_bytes_per_s", s.bandwidth_bytes_per_s.to_string()),
        column("mean_ns", l.mean.to_string()),
        column("p50_ns", l.p50.to_string()),
        column("p99_ns", l.p99.to_string()),
        column("p999_ns", l.p999.to_string()),
        column("max_ns", l.max.to_string()),
        column("errors", s.errors.to_string()),
    ]
}

/// The device's figures under the names that JSON has; lists have one column for each element.
fn flatten(name: &str, value: &serde_json::Value, line: &mut Vec<(String, String)>) {
    use serde_json::Value;
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| flatten(&format!("{name}.{key}"), inner, line)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, inner)| flatten(&format!("{name}.{i}"), inner, line))
        }
        Value::Null => {}
        Value::String(text) => line.push((name.to_string(), text.clone())),
        other => line.push((name.to_string(), other.to_string())),
    }
}

/// RFC 4180.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
}
