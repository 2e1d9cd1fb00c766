use super::*;
use crate::report::Report;
use weir_units::Nanos;
use weir_workload::{JobResult, Recorder, RequestKind};

/// A job with so many requests a second of so many nanoseconds, over four intervals.
fn job(name: &str, latency: u64, requests: u64) -> JobResult {
    let mut recorder = Recorder::new(Nanos(0), Some(Nanos::from_millis(250)));
    for at in 0..requests {
        recorder.tick(Nanos(at * 1_000_000_000 / requests));
        recorder.record(latency + at % 7 * latency, 4096, RequestKind::Read);
    }
    recorder.tick(Nanos::from_secs(1));
    JobResult::of(name.into(), None, &recorder, Nanos::from_secs(1))
}

fn report(latency: u64) -> Report {
    let jobs = vec![job("gold", latency, 1000), job("<tin>", latency * 3, 500)];
    Report {
        jobs,
        tenants: Vec::new(),
        total: job("total", latency * 2, 1500),
        device: None,
        run: None,
        waited_pct: None,
    }
}

fn set(key: &str, value: &str) -> Vec<(String, String)> {
    vec![(key.to_owned(), value.to_owned())]
}

fn of(sets: &[Vec<(String, String)>], reports: &[Report]) -> Picture {
    let runs: Vec<PlottedRun<'_>> =
        sets.iter().zip(reports).map(|(set, report)| PlottedRun { set, drive: None, report }).collect();
    picture("a title".into(), "weir 0".into(), &runs)
}

#[test]
fn one_run_is_drawn_over_time_and_by_percentile() {
    let picture = of(&[Vec::new()], &[report(1000)]);
    let titles: Vec<&str> = picture.charts.iter().map(|chart| chart.title.as_str()).collect();
    assert_eq!(titles, ["Throughput", "Latency: 99 of 100 take no longer", "Latency by percentile"]);
    let Shape::Curves(curves) = &picture.charts[0].shape else { panic!("bars") };
    assert_eq!(curves.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["gold", "<tin>", "total"]);
    assert_eq!(curves[0].points.len(), 4);
    assert_eq!(curves[0].points[3], (1.0, 1000.0), "what the table says is what is drawn");
    let page = picture.html().unwrap();
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(page.contains("&lt;tin&gt;") && !page.contains("<tin>") && page.contains("99.9%"), "{page}");
    assert!(!page.contains("http://") || page.matches("http://").count() == page.matches("http://www.w3.org").count());
}

#[test]
fn reads_and_writes_of_a_trace_are_two_curves() {
    let mut trace = job("db", 1000, 1000);
    trace.kinds = vec![job("db reads", 1000, 600), job("db writes", 2000, 400)];
    let picture = of(&[Vec::new()], &[Report { jobs: vec![trace], ..report(1000) }]);
    for chart in &picture.charts {
        let Shape::Curves(curves) = &chart.shape else { panic!("bars") };
        assert_eq!(
            curves.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
            ["db reads", "db writes"],
            "{}",
            chart.title
        );
    }
    let names: Vec<&str> = picture.table.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, ["", "db", "db reads", "db writes", "total"]);
}

#[test]
fn numbers_are_curves_and_words_are_bars() {
    let reports = [report(1000), report(2000), report(4000)];
    let picture = of(&["1", "4", "64"].map(|qd| set("job.qd", qd)), &reports);
    let chart = &picture.charts[2];
    assert_eq!((chart.title.as_str(), chart.x.scale, chart.y.scale), ("p99", Scale::Log, Scale::Log));
    let Shape::Curves(curves) = &chart.shape else { panic!("bars") };
    assert_eq!(curves[0].points.iter().map(|p| p.0).collect::<Vec<_>>(), [1.0, 4.0, 64.0]);
    assert_eq!(curves[0].points[1].1, reports[1].total.summary.latency.p99 as f64);
    let picture = of(&["rr", "wrr", "drr"].map(|how| set("device.arbitration", how)), &reports);
    let Shape::Bars(bars) = &picture.charts[0].shape else { panic!("curves") };
    assert_eq!(bars[1].0, "device.arbitration=wrr");
    let svg = draw::svg(&picture.charts).unwrap();
    assert!(["rr", "wrr", "drr"].iter().all(|how| svg.contains(&format!("device.arbitration={how}"))), "{svg}");
    let times = of(&["10us", "1ms"].map(|latency| set("device.latency", latency)), &reports[..2]);
    assert!(draw::svg(&times.charts).unwrap().contains("1ms"));
}

#[test]
fn what_cannot_be_drawn_is_refused_before() {
    for (name, says) in [("x.png", "rsvg-convert"), ("x", ".svg or .html"), ("x.pdf", ".svg or .html")] {
        let failure = check(Path::new(name)).unwrap_err();
        assert!(failure.text().contains(says), "{}", failure.text());
    }
    assert!(check(Path::new("/nowhere/x.svg")).unwrap_err().text().starts_with("--plot /nowhere/x.svg: "));
}

#[test]
fn nothing_at_all_is_drawn_too() {
    let empty = JobResult { distribution: Vec::new(), series: Vec::new(), ..job("gold", 1, 1) };
    let report = Report { jobs: vec![empty.clone()], total: empty, ..report(1) };
    assert!(of(&[Vec::new()], &[report]).html().unwrap().contains("<svg"));
}
