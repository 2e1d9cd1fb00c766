//! Figures 5, 14 and 19: what a start consists of, what a client sees of a restart, and that on many nodes.

use super::{Blow, MACHINE, PaperDrive, Program, Start, millis};
use crate::reproduce::numbers::median;
use crate::reproduce::{Chart, Curve, Figure, LiveMeasurements, PrintedBound, Row, Scale, Subject};
use weir_units::Nanos;

const START: &str = "the service downtime caused by the live upgrade is up to 1,200 ms for Samsung PM963 SSD. For Intel P3600, the \
                     total service downtime will be longer and lasts up to 2,500 ms.";
const RESTART: &str =
    "Spool significantly reduces the total restart time from 1,218 ms to 115 ms on a Samsung PM963 SSD.";
const MANY: &str = "the total upgrade time for 95% of the machines is within 654 ms.";
const SAVED: &str = "it reduces restart time by 91% when compared with SPDK.";
/// How long the controllers of the paper's drives take for a reset, as far as its numbers say. Of the P3600: more than 90 % (section 5) of a
/// probe of more than 1,500 ms (figure 5).
const P3600_RESET: Nanos = Nanos::from_millis(1_350);
const EMULATED: &str = "The drives are emulated in the node's own process: there is no PCIe function to probe and no controller to reset, \
                        which is where SPDK's time goes on real ones, and no physical memory to lay out. So the times show what this software needs, \
                        and not what it would need with such a drive.";

/// The steps of the start whose total is the median, so that they add up to it: name and milliseconds.
///
/// # Errors
/// A start without a step that another one has, or with its steps in another order.
fn steps(starts: &[Start]) -> Result<Vec<(String, f64)>, String> {
    let names = |start: &Start| start.steps.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let Some(first) = starts.first().map(names) else { return Err("nothing was started".into()) };
    if let Some(other) = starts.iter().map(names).find(|other| *other != first) {
        return Err(format!("one start had the steps {}, another one {}", first.join(", "), other.join(", ")));
    }
    let mut ordered: Vec<&Start> = starts.iter().collect();
    ordered.sort_by_key(|start| start.total());
    Ok(ordered[ordered.len() / 2].steps.iter().map(|(name, time)| (name.clone(), millis(*time))).collect())
}

fn total(starts: &[Start]) -> f64 {
    median(starts.iter().map(|s| millis(s.total())).collect())
}

fn starts(
    live: &mut dyn LiveMeasurements,
    program: Program,
    drive: PaperDrive,
    count: usize,
) -> Result<Vec<Start>, String> {
    (0..count).map(|_| live.nodes().start(program, drive)).collect()
}

/// A row for every step, told only, and their curve.
fn step_rows(what: &str, starts: &[Start]) -> Result<(Vec<Row>, Curve), String> {
    let row = |(name, ms): (String, f64)| Row::told(format!("{what}, {name}"), ms, "ms", "a step of the start");
    let rows: Vec<Row> = steps(starts)?.into_iter().map(row).collect();
    let mut sum = 0.0;
    let mut points = vec![(0.0, 0.0)];
    for (at, row) in rows.iter().enumerate() {
        sum += row.ours;
        points.push(((at + 1) as f64, sum));
    }
    Ok((rows, Curve { name: what.into(), points }))
}

fn chart(title: &'static str, x: &'static str, curves: Vec<Curve>) -> Chart {
    Chart { title, axes: (x, "ms"), scales: (Scale::Linear, Scale::Linear), curves, marks: Vec::new() }
}

/// Figure 5: the steps of a start.
pub(crate) fn fig5(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let count = if live.is_full() { 20 } else { 3 };
    let (mut rows, mut curves) = (Vec::new(), Vec::new());
    for (at, (drive, bound)) in [(PaperDrive::Pm963, 1200.0), (PaperDrive::P3600, 2500.0)].into_iter().enumerate() {
        let starts = starts(live, Program::Fresh, drive, count)?;
        let (steps, curve) = step_rows(drive.name(), &starts)?;
        rows.extend(steps);
        curves.push(curve);
        let label = format!("{}, exec to first answer", drive.name());
        rows.push(Row::printed(label, total(&starts), "ms", bound, PrintedBound::Below, START));
        live.progress((at + 1) as f64 / 3.0);
    }
    let mut notes = Vec::new();
    if live.nodes().has_qemu() {
        let starts = starts(live, Program::Qemu, PaperDrive::Ram, count)?;
        notes.push(format!("qemu-storage-daemon, exec to first answer, beside it: {:.1} ms.", total(&starts)));
    }
    Ok(Figure {
        subject: Subject::SpoolFig5,
        about: vec![
            EMULATED.into(),
            format!(
                "The median of {count} starts of a node with one drive in memory, by its total, a pool and a volume on it, served by vhost-user."
            ),
        ],
        rows,
        notes,
        charts: vec![chart("The steps of a start, added up", "step", curves)],
    })
}

fn gaps(live: &mut dyn LiveMeasurements, drive: PaperDrive, blow: Blow, count: usize) -> Result<Vec<f64>, String> {
    (0..count).map(|_| live.nodes().gap(0, drive, blow).map(millis)).collect()
}

/// Of sorted values, the one that `part` of them do not exceed.
fn percentile(sorted: &[f64], part: f64) -> f64 {
    let at = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Figure 14: how long a restart takes.
pub(crate) fn fig14(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let count = if live.is_full() { 50 } else { 4 };
    let again = starts(live, Program::Again, PaperDrive::Pm963, count)?;
    let (mut rows, curve) = step_rows("restart", &again)?;
    rows.push(Row::printed("restart, exec to first answer", total(&again), "ms", 115.0, PrintedBound::Below, RESTART));
    live.progress(0.2);
    let resetting = starts(live, Program::ResetsDrive(P3600_RESET), PaperDrive::P3600, count.div_ceil(4))?;
    let (more, with_reset) = step_rows("restart that resets its drive", &resetting)?;
    rows.extend(more);
    let baseline = total(&resetting);
    rows.push(Row::told(
        "restart that resets its drive, exec to first answer",
        baseline,
        "ms",
        "the slow baseline, modelled",
    ));
    let saved = 100.0 * (1.0 - total(&again) / baseline);
    rows.push(Row::printed("restart, less than with a reset", saved, "%", 91.0, PrintedBound::Above, SAVED));
    live.progress(0.4);
    let blows = [
        (Blow::Restart, PaperDrive::Pm963),
        (Blow::Kill, PaperDrive::Pm963),
        (Blow::KillWorker, PaperDrive::Ram),
        (Blow::Upgrade, PaperDrive::Ram),
    ];
    let mut curves = Vec::new();
    for (at, (blow, drive)) in blows.into_iter().enumerate() {
        let mut gaps = gaps(live, drive, blow, count)?;
        gaps.sort_by(f64::total_cmp);
        let label = |what: &str| format!("{}, longest wait of a client, {what}", blow.name());
        rows.push(Row::printed(label("median"), median(gaps.clone()), "ms", 115.0, PrintedBound::Below, RESTART));
        let worst = gaps.last().copied().unwrap_or(f64::NAN);
        rows.push(Row::told(label("longest"), worst, "ms", "no request failed"));
        let points = gaps.iter().enumerate().map(|(i, ms)| ((i + 1) as f64 / gaps.len() as f64, *ms)).collect();
        curves.push(Curve { name: blow.name().into(), points });
        live.progress(0.4 + 0.6 * (at + 1) as f64 / 4.0);
    }
    live.nodes().leave();
    Ok(Figure {
        subject: Subject::SpoolFig14,
        about: vec![
            EMULATED.into(),
            format!(
                "{count} of each. The steps are those of a start of a node whose drive, in a file, holds its pool already. What a client \
                 sees is the longest time without an answer that a front end of a volume with one request in flight has when its node is \
                 restarted or killed, or when it has a keeper with a standby and its worker is killed, or `weir upgrade` puts this program \
                 in its own place (there with a drive in memory, whose data stays)."
            ),
            format!(
                "The baseline is the same program with a modelled drive that is reset at each start, as SPDK does: a P3600 behind NVMe/TCP whose \
                 controller takes {P3600_RESET} from CC.EN to CSTS.RDY by the rule `slow-reset`, what the paper's figure 5 and section 5 give \
                 at least for that drive; the drive itself is served, without a pool. The paper's 91 % are of a PM963 and of SPDK, whose set-up of memory is not in this baseline."
            ),
        ],
        rows,
        notes: Vec::new(),
        charts: vec![
            chart("The steps of a restart, added up", "step", vec![curve, with_reset]),
            chart("What a client sees", "part of the restarts", curves),
        ],
    })
}

/// Figure 19: restarts of many nodes.
pub(crate) fn fig19(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let count: u32 = if live.is_full() { 64 } else { 6 };
    let mut points = Vec::new();
    for node in 0..count {
        let gap: Nanos = live.nodes().gap(node, PaperDrive::Pm963, Blow::Restart)?;
        points.push((f64::from(node + 1), millis(gap)));
        live.progress(f64::from(node + 1) / f64::from(count));
    }
    live.nodes().leave();
    let mut sorted: Vec<f64> = points.iter().map(|(_, ms)| *ms).collect();
    sorted.sort_by(f64::total_cmp);
    let at = |part: f64| percentile(&sorted, part);
    let told = |label: &str, ms: f64| Row::told(label, ms, "ms", "no request failed");
    Ok(Figure {
        subject: Subject::SpoolFig19,
        about: vec![
            EMULATED.into(),
            format!(
                "{count} nodes on this machine, each a process with its own drive and volume, restarted one after the other while a client \
                 uses it; the time is the longest that this client waits. The paper's are machines in production, upgraded with SPDK's older \
                 memory set-up: their number of machines and their drives are not here."
            ),
        ],
        rows: vec![
            Row::printed("95 % of the nodes", at(0.95), "ms", 654.0, PrintedBound::Below, MANY),
            told("median", at(0.5)),
            told("longest", at(1.0)),
        ],
        notes: vec![MACHINE.into()],
        charts: vec![chart("Restart time by node", "node", vec![Curve { name: "Weir".into(), points }])],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_of_the_median_start_and_add_up() {
        let ms = Nanos::from_millis;
        let start = |a: u64, b: u64| Start { steps: vec![("exec".into(), ms(a)), ("first".into(), ms(b))] };
        let mut all = vec![start(1, 10), start(3, 30), start(2, 20)];
        assert_eq!(steps(&all), Ok(vec![("exec".into(), 2.0), ("first".into(), 20.0)]));
        assert_eq!(total(&all), 22.0);
        let (rows, curve) = step_rows("x", &all).unwrap();
        assert_eq!((rows.len(), curve.points), (2, vec![(0.0, 0.0), (1.0, 2.0), (2.0, 22.0)]));
        all.push(Start { steps: vec![("exec".into(), ms(1))] });
        let error = step_rows("x", &all).unwrap_err();
        assert_eq!(error, "one start had the steps exec, first, another one exec");
        assert!(steps(&[]).is_err(), "no start has no steps");
    }

    #[test]
    fn percentiles_are_of_what_was_seen() {
        let sorted: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!((percentile(&sorted, 0.95), percentile(&sorted, 0.5), percentile(&sorted, 1.0)), (19.0, 10.0, 20.0));
        assert!(percentile(&[], 0.5).is_nan());
    }
}
