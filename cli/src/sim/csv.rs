//! One line for each drive of a run, for spreadsheets and plots.

use super::Done;
use crate::report::Report;
use weir_workload::JobResult;

/// A header and a line for each run, or each drive of each. Values that a run does not have are empty.
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
        line(start, report)
    };
    done.drives.iter().map(one).collect()
}

fn line(mut line: Vec<(String, String)>, report: &Report) -> Vec<(String, String)> {
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
