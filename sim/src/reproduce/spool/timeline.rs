//! Figure 13: a load that verifies what it reads, while its node is restarted, stopped and started, and killed; and while one with a
//! keeper is upgraded and loses its worker; and while the controller of its drive fails and is reset.

use super::{Blow, MACHINE, PaperDrive, Survived, Timeline, millis};
use crate::reproduce::{Chart, Curve, Figure, LiveMeasurements, Mark, Row, Scale, Subject};
use weir_units::Nanos;
use weir_workload::SeriesPoint;

const CORRECT: &str = "the I/O operations to the SSD complete correctly with Spool, even if Spool is directly killed and restarted for an \
                       upgrade.";

/// What must be left of the throughput: a machine that is busy with something else halves it by itself.
const LEFT: f64 = 1.0 / 3.0;

/// A second of the paper's run, or a tenth of it.
fn at(seconds: u64, full: bool) -> Nanos {
    if full { Nanos::from_secs(seconds) } else { Nanos::from_millis(seconds * 100) }
}

/// The paper's run of 45 s, or a tenth of it.
fn timeline(full: bool) -> Timeline {
    let at = |seconds| at(seconds, full);
    Timeline {
        time: at(45),
        series: Nanos(at(1).0 / 4),
        blows: vec![(at(10), Blow::Restart), (at(20), Blow::StopStart(at(1))), (at(35), Blow::Kill)],
    }
}

/// What the paper has no word for: the same under a keeper.
fn kept(full: bool) -> Timeline {
    let at = |seconds| at(seconds, full);
    let blows = vec![(at(10), Blow::Upgrade), (at(20), Blow::KillWorker)];
    Timeline { time: at(30), series: Nanos(at(1).0 / 4), blows }
}

/// The same while its drive's controller fails and is reset, each time by a second, or a tenth of it, that the reset takes.
fn resets(full: bool) -> Timeline {
    let at = |seconds| at(seconds, full);
    let blow = Blow::ResetDrive(at(1));
    Timeline { time: at(30), series: Nanos(at(1).0 / 4), blows: vec![(at(10), blow), (at(20), blow)] }
}

/// Mean bandwidth of the intervals that lie in a span, bytes a second.
pub(super) fn mean(series: &[SeriesPoint], (from, to): (f64, f64), interval: f64) -> f64 {
    let inside: Vec<f64> =
        series.iter().filter(|p| p.t_s - interval >= from && p.t_s <= to).map(|p| p.bandwidth_bytes_per_s).collect();
    inside.iter().sum::<f64>() / inside.len() as f64
}

fn recovery_rows(plan: &Timeline, survived: &Survived) -> Vec<Row> {
    let seconds = |n: Nanos| n.as_secs_f64();
    let interval = seconds(plan.series);
    let mut rows = Vec::new();
    for (i, (at, blow)) in plan.blows.iter().enumerate() {
        let before_from = i.checked_sub(1).map_or(0.0, |before| seconds(plan.blows[before].0));
        let end = plan.blows.get(i + 1).map_or(seconds(plan.time), |(next, _)| seconds(*next));
        let middle = (seconds(*at) + end) / 2.0;
        let before = mean(&survived.series, ((before_from + seconds(*at)) / 2.0, seconds(*at)), interval);
        let after = mean(&survived.series, (middle, end), interval);
        let ratio = after / before;
        let label = format!("{} at {:.1} s, throughput after over before", blow.name(), seconds(*at));
        rows.push(Row::relation(label, ratio, "", ratio > LEFT, "more than a third of what it was"));
    }
    rows
}

/// What one timeline came to.
struct Outcome {
    rows: Vec<Row>,
    chart: Chart,
    /// What went wrong first.
    trouble: Option<String>,
}

fn chart(name: &str, title: &'static str, plan: &Timeline, survived: &Survived) -> Chart {
    let mut points: Vec<(f64, f64)> = survived.series.iter().map(|p| (p.t_s, p.bandwidth_bytes_per_s / 1e6)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mark = |(at, blow): &(Nanos, Blow)| Mark { x: at.as_secs_f64(), name: blow.name().into() };
    Chart {
        title,
        axes: ("s", "MB/s"),
        scales: (Scale::Linear, Scale::Linear),
        curves: vec![Curve { name: name.into(), points }],
        marks: plan.blows.iter().map(mark).collect(),
    }
}

fn survived(
    live: &mut dyn LiveMeasurements,
    name: &str,
    title: &'static str,
    plan: &Timeline,
) -> Result<Outcome, String> {
    let survived = live.nodes().survive(PaperDrive::Pm963, plan)?;
    live.nodes().leave();
    let errors = survived.errors as f64;
    let label = |what: &str| format!("{name}, {what}");
    let text = format!("none: {CORRECT}");
    let mut rows =
        vec![Row::relation(label("failed requests and wrong blocks"), errors, "", survived.errors == 0, text)];
    rows.extend(recovery_rows(plan, &survived));
    let longest = millis(survived.summary.longest_gap.unwrap_or(Nanos(0)));
    let within = longest < plan.time.as_secs_f64() * 1e3 / 4.0;
    rows.push(Row::relation(label("longest time between two answers"), longest, "ms", within, "a pause, not an end"));
    let resets =
        plan.blows.iter().find_map(|(_, blow)| if let Blow::ResetDrive(time) = blow { Some(*time) } else { None });
    if let Some(time) = resets {
        rows.push(Row::told(
            label("of that, beyond the drive's own reset"),
            longest - millis(time),
            "ms",
            "diagnosis, connecting, replay",
        ));
    }
    let chart = chart(name, title, plan, &survived);
    Ok(Outcome { rows, chart, trouble: survived.trouble })
}

pub(crate) fn figure(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let full = live.is_full();
    let (plan, kept, resets) = (timeline(full), kept(full), resets(full));
    let runs = [
        ("volume", "A node that is restarted, stopped and killed", &plan),
        ("volume under a keeper", "A node with a keeper that is upgraded and loses its worker", &kept),
        ("volume on a failing controller", "A node whose drive's controller fails and is reset", &resets),
    ];
    let (mut rows, mut notes, mut charts) = (Vec::new(), Vec::new(), Vec::new());
    for (done, (name, title, plan)) in (1..).zip(runs) {
        let outcome = survived(live, name, title, plan)?;
        rows.extend(outcome.rows);
        charts.push(outcome.chart);
        notes.extend(outcome.trouble.map(|text| format!("The first that went wrong on the {name}: {text}")));
        live.progress(f64::from(done) / 3.0);
    }
    let at = |plan: &Timeline, blow: usize| plan.blows[blow].0;
    Ok(Figure {
        subject: Subject::SpoolFig13,
        about: vec![
            MACHINE.into(),
            format!(
                "Random reads and writes of 4 KiB, half and half, 8 in flight, for {}; every block that is read is checked, and all that were \
                 written are read once more at the end. At {} the node is sent SIGTERM and started again, at {} SIGTERM and started \
                 {} later, at {} killed and started again. The drive is in a file, so that its data outlives the process; the front \
                 end keeps the journal and connects again. Then the same load for {} on a node with a keeper and a standby: at {} `weir \
                 upgrade` puts the program in its own place, at {} its worker is killed; the front end's connection stays.",
                plan.time,
                at(&plan, 0),
                at(&plan, 1),
                Nanos(plan.time.0 / 45),
                at(&plan, 2),
                kept.time,
                at(&kept, 0),
                at(&kept, 1)
            ),
            format!(
                "Then for {} on a node whose drive another node serves over NVMe/TCP: at {} and at {} the drive's controller fails by the rule \
                 `controller-fatal`, and its reset takes {} by the rule `slow-reset`. The node finds out, resets the controller by another \
                 association, and sends again what was in flight.",
                resets.time,
                at(&resets, 0),
                at(&resets, 1),
                Nanos(resets.time.0 / 30)
            ),
        ],
        rows,
        notes,
        charts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_come_back_is_seen() {
        let plan = timeline(false);
        let rate = |t: f64, dead: f64| if t > dead { 0.0 } else { 1e6 };
        let series = |dead: f64| {
            let point = |i: u32| {
                let t = f64::from(i) * 0.025;
                SeriesPoint { t_s: t, iops: 1.0, bandwidth_bytes_per_s: rate(t, dead), p99_ns: 1 }
            };
            Survived { series: (1..=180).map(point).collect(), ..Survived::default() }
        };
        let oks = |dead: f64| recovery_rows(&plan, &series(dead)).iter().map(Row::ok).collect::<Vec<_>>();
        assert_eq!(oks(9.0), [true, true, true]);
        assert_eq!(oks(3.6), [true, true, false]);
    }
}
