//! Figure 12: two volumes of a node, each on a drive of its own; the second drive is away for a time.
//!
//! In the paper it is hot-removed at 80 s and there again at 95 s. Here both drives are another node's, reached over NVMe/TCP, and the second
//! one fails there by rule: once it is removed (`removal`) and its requests fail at once, once it loses its link (`link-loss`) and they wait.

use super::timeline::mean;
use super::{LossKind, MACHINE, Outage, PaperDrive, Survived, millis};
use crate::reproduce::{Chart, Curve, Figure, LiveMeasurements, Mark, Row, Scale, Subject};
use weir_units::Nanos;

const OTHER: &str = "the I/O performance of VM1 that uses the NVMe device SSD1 is not affected when SSD2 is removed.";
const BACK: &str = "Once a new SSD device replaces the failed SSD2 or the controller of SSD2 is reset correctly at time 95 s, VM2 is able to \
                    directly use SSD2 without any user interference.";

/// What must be left of the other volume's throughput: a machine that is busy with something else halves it by itself.
const LEFT: f64 = 0.5;

/// The paper's run with its seconds, or a fortieth of them.
fn outage(kind: LossKind, full: bool) -> Outage {
    let at = |seconds: u64| if full { Nanos::from_secs(seconds) } else { Nanos::from_millis(seconds * 25) };
    Outage { kind, time: at(120), series: Nanos(at(120).0 / 120), lost_at: at(80), back_at: at(95) }
}

/// Bandwidth of a volume before, during and after the outage, bytes a second.
struct Bandwidth {
    before: f64,
    during: f64,
    after: f64,
}

impl Bandwidth {
    fn of(outage: &Outage, survived: &Survived) -> Self {
        let interval = outage.series.as_secs_f64();
        let (lost, back, end) = (outage.lost_at.as_secs_f64(), outage.back_at.as_secs_f64(), outage.time.as_secs_f64());
        let span = |from: f64, to: f64| mean(&survived.series, (from, to), interval);
        Self {
            before: span(lost / 2.0, lost - interval),
            // Commands take a moment to put rules into force.
            during: span(lost + 3.0 * interval, back - 2.0 * interval),
            after: span((back + end) / 2.0, end),
        }
    }
}

fn rows(outage: &Outage, [first, second]: &[Survived; 2]) -> Vec<Row> {
    let name = outage.kind.name();
    let label = |what: &str| format!("{name}: {what}");
    let (one, two) = (Bandwidth::of(outage, first), Bandwidth::of(outage, second));
    let count = |what: &str, n: u64, text: &str| Row::relation(label(what), n as f64, "", n == 0, text);
    let mut rows = vec![
        count("volume 1, errors", first.errors, "none: its drive is there"),
        Row::relation(
            label("volume 1, throughput during over before"),
            one.during / one.before,
            "",
            one.during / one.before > LEFT,
            format!("more than half: {OTHER}"),
        ),
        count("volume 2, wrong data", second.wrong_data, "none"),
    ];
    rows.push(match outage.kind {
        LossKind::Removal => Row::relation(
            label("volume 2, failed requests"),
            (second.errors - second.wrong_data) as f64,
            "",
            second.errors > second.wrong_data,
            "some: the VMs that are using the failed device should receive I/O errors instead of exiting abnormally.",
        ),
        LossKind::Link => count("volume 2, failed requests", second.errors - second.wrong_data, "none: they wait"),
    });
    rows.push(Row::relation(
        label("volume 2, throughput during over before"),
        two.during / two.before,
        "",
        two.during == 0.0,
        "nothing: its drive is away",
    ));
    rows.push(Row::relation(
        label("volume 2, throughput after over before"),
        two.after / two.before,
        "",
        two.after / two.before > LEFT,
        format!("more than half: {BACK}"),
    ));
    let gap = millis(second.summary.longest_gap.unwrap_or(Nanos(0)));
    rows.push(Row::told(label("volume 2, longest time between two answers"), gap, "ms", "failed requests are answers"));
    rows
}

fn curve(name: String, survived: &Survived) -> Curve {
    let points = survived.series.iter().map(|point| (point.t_s, point.bandwidth_bytes_per_s / 1e6)).collect();
    Curve { name, points }
}

/// Figure 12.
pub(crate) fn fig12(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let full = live.is_full();
    let (mut all, mut notes, mut charts) = (Vec::new(), vec![MACHINE.into()], Vec::new());
    for (kind, title, done) in [
        (LossKind::Removal, "One of two drives is removed", 0.5),
        (LossKind::Link, "One of two drives loses its link", 1.0),
    ] {
        let outage = outage(kind, full);
        let survived = live.nodes().lose_drive(PaperDrive::Pm963, &outage)?;
        all.extend(rows(&outage, &survived));
        let unexpected = survived.iter().enumerate().filter(|(volume, s)| {
            let may_fail = *volume == 1 && kind == LossKind::Removal;
            s.wrong_data > 0 || (s.errors > 0 && !may_fail)
        });
        notes.extend(unexpected.filter_map(|(volume, s)| {
            let trouble = s.trouble.as_ref()?;
            Some(format!("{}: the first that went wrong on volume {}: {trouble}", kind.name(), volume + 1))
        }));
        let mark = |at: Nanos, name: &str| Mark { x: at.as_secs_f64(), name: name.into() };
        let back = if kind == LossKind::Removal { "drive 2 there again" } else { "link there again" };
        charts.push(Chart {
            title,
            axes: ("s", "MB/s"),
            scales: (Scale::Linear, Scale::Linear),
            curves: survived.iter().zip(1..).map(|(s, n)| curve(format!("volume {n}"), s)).collect(),
            marks: vec![mark(outage.lost_at, kind.name()), mark(outage.back_at, back)],
        });
        live.progress(done);
    }
    let Outage { time, lost_at, back_at, .. } = outage(LossKind::Link, full);
    Ok(Figure {
        subject: Subject::SpoolFig12,
        about: vec![format!(
            "Two volumes of one node, each on a drive of its own that another node serves over NVMe/TCP, each under random reads and writes of \
             4 KiB, half and half, 4 in flight, for {time}, that are verified. The second drive goes at {lost_at} and is back at {back_at}. In \
             the first run it is removed by the rule `removal`, and the node has `fast_io_fail_tmo = \"0s\"` for it, so that requests fail at \
             once; in the second its link is lost by the rule `link-loss`, and requests wait, as they do by default. The paper removes a PCIe \
             function of the machine; its second device comes back by a rescan or is another one."
        )],
        rows: all,
        notes,
        charts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_workload::SeriesPoint;

    fn series(outage: &Outage, rate: impl Fn(f64) -> f64) -> Survived {
        let step = outage.series.as_secs_f64();
        let point = |i: u64| {
            let t_s = i as f64 * step;
            SeriesPoint { t_s, iops: 1.0, bandwidth_bytes_per_s: rate(t_s), p99_ns: 1 }
        };
        Survived { series: (1..=120).map(point).collect(), ..Survived::default() }
    }

    fn verdicts(kind: LossKind, change: impl Fn(&mut [Survived; 2])) -> Vec<bool> {
        let outage = outage(kind, false);
        let (lost, back) = (outage.lost_at.as_secs_f64(), outage.back_at.as_secs_f64());
        let away = move |t: f64| if t > lost && t <= back { 0.0 } else { 1e6 };
        let mut survived = [series(&outage, |_| 1e6), series(&outage, away)];
        change(&mut survived);
        rows(&outage, &survived).iter().map(Row::ok).collect()
    }

    #[test]
    fn an_outage_as_it_should_be_holds() {
        assert!(verdicts(LossKind::Link, |_| {}).iter().all(|ok| *ok));
        assert!(verdicts(LossKind::Removal, |all| all[1].errors = 7).iter().all(|ok| *ok));
    }

    #[test]
    fn each_thing_that_goes_wrong_is_missed() {
        let missed = |kind, change: &dyn Fn(&mut [Survived; 2])| {
            let ok = verdicts(kind, change);
            ok.iter().enumerate().filter(|(_, ok)| !**ok).map(|(row, _)| row).collect::<Vec<_>>()
        };
        let link = |change: &dyn Fn(&mut [Survived; 2])| missed(LossKind::Link, change);
        assert_eq!(link(&|all| all[0].errors = 1), [0]);
        assert_eq!(link(&|all| all[0].series = all[1].series.clone()), [1]);
        assert_eq!(link(&|all| (all[1].errors, all[1].wrong_data) = (1, 1)), [2]);
        assert_eq!(link(&|all| all[1].errors = 1), [3]);
        assert_eq!(link(&|all| all[1].series = all[0].series.clone()), [4]);
        let never_back = |all: &mut [Survived; 2]| {
            for point in all[1].series.iter_mut().filter(|point| point.t_s > 2.0) {
                point.bandwidth_bytes_per_s = 0.0;
            }
        };
        assert_eq!(link(&never_back), [5]);
        assert_eq!(missed(LossKind::Removal, &|_| {}), [3], "nobody heard of it");
    }
}
