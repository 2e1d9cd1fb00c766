//! Figure 13: a load that verifies what it reads, while its node is restarted, stopped and started, and killed.

use super::{Blow, Drive, MACHINE, Survived, Timeline, millis};
use crate::reproduce::{Chart, Curve, Figure, Live, Row, Scale, Subject};
use weir_units::Nanos;
use weir_workload::Point;

const CORRECT: &str = "the I/O operations to the SSD complete correctly with Spool, even if Spool is directly killed and restarted for an \
                       upgrade.";

/// What must be left of the throughput: a machine that is busy with something else halves it by itself.
const LEFT: f64 = 1.0 / 3.0;

/// The paper's run of 45 s, or a tenth of it.
fn timeline(full: bool) -> Timeline {
    let at = |seconds: u64| if full { Nanos::from_secs(seconds) } else { Nanos::from_millis(seconds * 100) };
    Timeline {
        time: at(45),
        series: Nanos(at(1).0 / 4),
        blows: vec![(at(10), Blow::Restart), (at(20), Blow::StopStart(at(1))), (at(35), Blow::Kill)],
    }
}

/// Mean bandwidth of the intervals that lie in a span, bytes a second.
fn mean(series: &[Point], (from, to): (f64, f64), interval: f64) -> f64 {
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

pub(in crate::reproduce) fn figure(live: &mut dyn Live) -> Result<Figure, String> {
    let plan = timeline(live.is_full());
    let survived = live.nodes().survive(Drive::Pm963, &plan)?;
    live.nodes().leave();
    let errors = survived.errors as f64;
    let text = format!("none: {CORRECT}");
    let mut rows = vec![Row::relation("failed requests and wrong blocks", errors, "", survived.errors == 0, text)];
    rows.extend(recovery_rows(&plan, &survived));
    let longest = millis(survived.summary.longest_gap.unwrap_or(Nanos(0)));
    let whole = plan.time.as_secs_f64() * 1e3;
    let within = longest < whole / 4.0;
    rows.push(Row::relation("longest time between two answers", longest, "ms", within, "a pause, not an end"));
    let mut points: Vec<(f64, f64)> = survived.series.iter().map(|p| (p.t_s, p.bandwidth_bytes_per_s / 1e6)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let notes = survived.trouble.iter().map(|text| format!("The first that went wrong: {text}")).collect();
    Ok(Figure {
        subject: Subject::SpoolFig13,
        about: vec![
            MACHINE.into(),
            format!(
                "Random reads and writes of 4 KiB, half and half, 8 in flight, for {}; every block that is read is checked, and all that were \
                 written are read once more at the end. At {} the node is sent SIGTERM and started again, at {} SIGTERM and started \
                 {} later, at {} killed and started again. The drive is in a file, so that its data outlives the process; the front \
                 end keeps the journal and connects again.",
                plan.time,
                plan.blows[0].0,
                plan.blows[1].0,
                Nanos(plan.time.0 / 45),
                plan.blows[2].0
            ),
        ],
        rows,
        notes,
        charts: vec![Chart {
            title: "Reads and writes over time",
            axes: ("s", "MB/s"),
            scales: (Scale::Linear, Scale::Linear),
            curves: vec![Curve { name: "volume".into(), points }],
        }],
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
                Point { t_s: t, iops: 1.0, bandwidth_bytes_per_s: rate(t, dead), p99_ns: 1 }
            };
            Survived { series: (1..=180).map(point).collect(), ..Survived::default() }
        };
        let oks = |dead: f64| recovery_rows(&plan, &series(dead)).iter().map(Row::ok).collect::<Vec<_>>();
        assert_eq!(oks(9.0), [true, true, true]);
        assert_eq!(oks(3.6), [true, true, false]);
    }
}
