//! Figure 3: a device that does not arbitrate. (a) throughput over the size of requests, (b) what priorities do there.

use super::designs::{DEPTH, Design, Load, OURS, ROUNDS, SIZES, about_designs, fastest, middle};
use super::shared_drive::{SharedDrive, Span, job, name, simulated};
use super::timers::{Submitter, emulated};
use crate::reproduce::numbers::near;
use crate::reproduce::{Chart, Curve, Figure, LiveMeasurements, Row, Scale, Subject, datasheets, flash_loop};
use weir_arbiter::{ArbiterSettings, Mechanism};
use weir_flash::{Flash, FlashOp, Precondition};
use weir_units::{Class, Nanos};
use weir_workload::{SeriesPoint, Xoshiro256};

const LARGE: &str = "\"large I/O performance is better with QEMU than actual hardware\"";
const SAME: &str = "\"both jobs experience the same I/O throughput\"";
const IMPACT: &str = "\"the low priority job significantly impacts the performance of the high priority job\"";
const WEIGHED: &str = "32 to 8 by the weights, which is what the text misses there";

/// A drive of 40,000 commands a second.
const LATENCY: Nanos = Nanos::from_micros(400);
const SLOTS: u32 = 16;
/// When the low job begins, and when all ends.
const JOINS: Nanos = Nanos::from_secs(10);
const END: Nanos = Nanos::from_secs(20);
const INTERVAL: Nanos = Nanos::from_millis(500);

pub(crate) fn figure(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let (mut rows, sizes) = over_sizes(live)?;
    let (more, over_time) = priorities();
    rows.extend(more);
    let mut about = vec![
        format!(
            "(a) in real time: random reads, {DEPTH} outstanding, by one client of a drive in memory. Beside it the profile p3700 in \
             virtual time, in the place of the paper's drive."
        ),
        format!(
            "(b) in virtual time: a high and a low job of 4 KiB reads, {DEPTH} outstanding each, on a device of {} commands a second; \
             the low one begins after {JOINS}.",
            f64::from(SLOTS) / LATENCY.as_secs_f64()
        ),
        "That the emulation is much slower than the drive with small requests (text of II.B) is about QEMU, where every doorbell \
         leaves a guest; here nobody does, so this is not held to. Up to 16 GB/s at 1 MB is about their memory."
            .into(),
    ];
    about.extend(about_designs());
    Ok(Figure { subject: Subject::QosFig3, about, rows, notes: Vec::new(), charts: vec![sizes, over_time] })
}

/// (a)
fn over_sizes(live: &mut dyn LiveMeasurements) -> Result<(Vec<Row>, Chart), String> {
    let designs = [Design::Timers, Design::Drr];
    let mut curves: Vec<Curve> = designs.iter().map(|d| Curve { name: d.name().into(), points: Vec::new() }).collect();
    for (at, size) in SIZES.into_iter().enumerate() {
        let load = Load { clients: 1, size, write: false };
        let speeds = live.speeds(&designs, load, ROUNDS)?;
        for (curve, rounds) in curves.iter_mut().zip(&speeds) {
            curve.points.push((f64::from(size), middle(rounds) * f64::from(size) / 1e9));
        }
        live.progress((at + 1) as f64 / SIZES.len() as f64);
    }
    let drive = Curve { name: "p3700 (virtual)".into(), points: p3700() };
    let mut rows = Vec::new();
    let largest = |curve: &Curve| curve.points[curve.points.len() - 1].1;
    for curve in &curves {
        let label = format!("1 MiB reads, {}", curve.name);
        let (ours, drive) = (largest(curve), largest(&drive));
        let text = format!("above the drive's {drive:.2} GB/s: {LARGE}");
        rows.push(Row::relation(label, ours, "GB/s", ours > drive, text));
    }
    let count = curves[1].points.iter().zip(&curves[0].points).filter(|(new, old)| fastest(new.1, old.1)).count();
    let text = format!("at most sizes as fast as the old design, within 5 %; there are {}", SIZES.len());
    rows.push(Row::relation(format!("sizes at which {OURS} keep up"), count as f64, "", 2 * count > SIZES.len(), text));
    curves.push(drive);
    let chart = Chart {
        title: "Random reads over the size of requests",
        axes: ("bytes of a request", "GB/s"),
        scales: (Scale::Log, Scale::Log),
        curves,
        marks: Vec::new(),
    };
    Ok((rows, chart))
}

/// The drive that the paper has, in virtual time: GB/s of random reads of what was written in order.
fn p3700() -> Vec<(f64, f64)> {
    let mut flash = Flash::new(&datasheets::config("p3700"), Nanos(0)).expect("a profile fits together");
    flash.precondition(Precondition::Sequential);
    let mut start = Nanos(0);
    let one = |size: u32| {
        let (units, mut rng) = (size / 4096, Xoshiro256::new(1));
        let places = u64::from(flash.units() / units);
        let count = (40_000 / u64::from(units)).max(1_000);
        let done = flash_loop(&mut flash, start, (DEPTH, Nanos(0)), (count / 10, count), || {
            (FlashOp::Read, rng.below(places) as u32 * units, units)
        });
        // The next size finds the drive idle.
        start = done.end.saturating_add(Nanos::from_secs(1));
        (f64::from(size), done.iops() * f64::from(size) / 1e9)
    };
    SIZES.into_iter().map(one).collect()
}

/// One way to run the two jobs.
struct Run {
    name: &'static str,
    /// High's, and low's.
    series: [Vec<SeriesPoint>; 2],
}

impl Run {
    /// Requests a second of a job between two moments, in seconds.
    fn mean(&self, job: usize, from: f64, to: f64) -> f64 {
        let points: Vec<f64> =
            self.series[job].iter().filter(|p| p.t_s > from && p.t_s <= to).map(|p| p.iops).collect();
        points.iter().sum::<f64>() / points.len() as f64
    }

    /// High over low, when both run.
    fn ratio(&self) -> f64 {
        self.mean(0, 11.0, 20.0) / self.mean(1, 11.0, 20.0)
    }
}

fn timers() -> Run {
    let jobs = [Nanos(0), JOINS].map(|start| Submitter { start, depth: DEPTH });
    let mut series = emulated(&jobs, (LATENCY, SLOTS as usize), (END, INTERVAL));
    let low = series.pop().unwrap_or_default();
    Run { name: Design::Timers.name(), series: [series.pop().unwrap_or_default(), low] }
}

fn ours(mechanism: Mechanism) -> Run {
    let drive =
        SharedDrive { latency: LATENCY, slots: SLOTS, settings: ArbiterSettings::new(mechanism), profile: None };
    let mut jobs = [job("high", Class::High, "4KiB", DEPTH), job("low", Class::Low, "4KiB", DEPTH)];
    jobs[1].start = JOINS;
    let span = Span { ramp: Nanos(0), time: END, series: Some(INTERVAL) };
    let results = simulated(&drive, &jobs, span);
    Run { name: name(mechanism), series: [0, 1].map(|i| results[i].series.clone()) }
}

/// (b)
fn priorities() -> (Vec<Row>, Chart) {
    let (mut rows, mut curves) = (Vec::new(), Vec::new());
    for run in [timers(), ours(Mechanism::None), ours(Mechanism::Wrr)] {
        let (weighs, kept) =
            (run.name == name(Mechanism::Wrr), run.mean(0, 11.0, 20.0) / run.mean(0, 1.0, 10.0) * 100.0);
        let (wanted, quote) = if weighs { (4.0, WEIGHED) } else { (1.0, SAME) };
        let label = format!("{}: high over low", run.name);
        rows.push(Row::relation(label, run.ratio(), "", near(run.ratio(), wanted, 5.0), format!("{wanted}: {quote}")));
        let label = format!("{}: what high keeps when low joins", run.name);
        let (wanted, quote) = if weighs { (80.0, WEIGHED) } else { (50.0, IMPACT) };
        rows.push(Row::relation(label, kept, "%", near(kept, wanted, 5.0), format!("{wanted} %: {quote}")));
        for (job, series) in ["high", "low"].into_iter().zip(&run.series) {
            let points = series.iter().map(|p| (p.t_s, p.iops / 1e3)).collect();
            curves.push(Curve { name: format!("{}, {job}", run.name), points });
        }
    }
    let chart = Chart {
        title: "A high job, and a low one from the 10th second on",
        axes: ("time, s", "thousand requests a second"),
        scales: (Scale::Linear, Scale::Linear),
        curves,
        marks: Vec::new(),
    };
    (rows, chart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_weights_tell_the_jobs_apart() {
        let (rows, chart) = priorities();
        assert_eq!(rows.len(), 6);
        for row in &rows {
            assert!(row.ok(), "{}: {}", row.label, row.ours);
        }
        let ours: Vec<f64> = rows.iter().map(|r| (r.ours * 100.0).round() / 100.0).collect();
        assert_eq!((ours[0], ours[2], ours[4]), (1.0, 1.0, 4.0), "{ours:?}");
        assert_eq!(chart.curves.len(), 6);
        assert!(chart.curves.iter().all(|c| c.points.len() == 40), "a point for each half second");
    }

    #[test]
    fn the_drive_reads_larger_requests_faster() {
        let points = p3700();
        assert!(points.windows(2).all(|w| w[1].1 >= w[0].1 * 0.97), "{points:?}");
        assert!((2.5..3.1).contains(&points[points.len() - 1].1), "2800 MB/s by its sheet: {points:?}");
    }
}
