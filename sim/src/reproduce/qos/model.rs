//! Figure 7: the model of section IV against what is measured, while the low class asks for more and more.
//!
//! ```text
//!   8 clients ──▶ γ ─┐
//!   4 clients ──▶ a/p ┴─▶ equations 2 and 3 ──▶ what high gets at each ρ_l ──▶ compared with a run at that ρ_l
//! ```
//! Nothing of a run that is predicted goes into its prediction.

use super::either_clock::shared;
use super::shared_drive::{SLOT_BYTES, SharedDrive, Span, job};
use crate::reproduce::numbers::{micros, near};
use crate::reproduce::{Chart, Curve, Figure, LiveMeasurements, PrintedBound, Row, Scale, Subject};
use weir_arbiter::{ArbiterSettings, Mechanism};
use weir_plan::equations::{Round, of_rate};
use weir_plan::{Demand, DriveModel, PlanTenant, Setting, shares};
use weir_units::{Class, Nanos};
use weir_workload::{Job, Rate};

/// Bytes of every request.
const SIZE: f64 = 32_768.0;
/// h, m and l, in bytes.
const WEIGHTS: [f64; 3] = [131_072.0, 65_536.0, 32_768.0];
/// Requests that each class has outstanding: q.
const DEPTH: u32 = 64;
/// Requests of the low class that may be outstanding where it asks for less than its share: more than it ever has.
const OPEN_DEPTH: u32 = 512;
/// Steps of ρ_l from 0 to 1.
const STEPS: u32 = 10;
/// The paper's drive. Nothing of the model was fitted to it.
const PROFILE: &str = "p3700";
/// Commands that it is handed at once: p.
const SLOTS: u32 = 64;
/// Clients of the benchmarks that γ and a/p are taken from.
const CLIENTS: [u32; 2] = [8, 4];

const WITHIN: &str = "We observe near perfect correlation between the observed and predicted values with a maximum deviation of \
                      less than 5%.";

/// What the high class got, or should have got.
#[derive(Clone, Copy, Debug)]
struct High {
    /// Requests a second.
    iops: f64,
    /// Seconds.
    latency: f64,
}

/// What the drive gives, by runs of its own.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    /// Requests a second: γ.
    gamma: f64,
    /// Seconds: a/p.
    apart: f64,
}

/// One ρ_l.
struct Point {
    rho: f64,
    /// High's part of what all classes got, in percent.
    part: f64,
    measured: High,
    equations: High,
    /// Equation 2 with ρ = λ/γ.
    of_rate: f64,
    fluid: High,
}

impl Point {
    /// Throughput's and latency's distance from what was measured, in percent of that.
    fn off(&self, model: High) -> (f64, f64) {
        let percent = |model: f64, measured: f64| (model / measured - 1.0).abs() * 100.0;
        (percent(model.iops, self.measured.iops), percent(model.latency, self.measured.latency))
    }
}

const DRIVE: SharedDrive = SharedDrive {
    latency: Nanos(0),
    slots: SLOTS,
    settings: ArbiterSettings::new(Mechanism::Drr),
    profile: Some(PROFILE),
};

/// High and medium as fast as they can, low at a part of its share.
fn jobs(rho: f64, gamma: f64) -> Vec<Job> {
    let mut jobs = vec![job("high", Class::High, "32KiB", DEPTH), job("medium", Class::Medium, "32KiB", DEPTH)];
    let low = job("low", Class::Low, "32KiB", DEPTH);
    if rho >= 1.0 {
        jobs.push(low);
    } else if rho > 0.0 {
        let share = gamma * WEIGHTS[2] / WEIGHTS.iter().sum::<f64>();
        jobs.push(Job { rate: Some(Rate::Iops((rho * share).round() as u64)), depth: OPEN_DEPTH, ..low });
    }
    jobs
}

/// "Both of these parameters can be estimated by running a simple multi-client benchmark": γ by what all clients of one get
/// together, a/p by how long those of another one wait for each request that is outstanding.
fn estimate(live: &mut dyn LiveMeasurements, span: Span) -> Result<Estimate, String> {
    let mut benchmark = |clients: u32| {
        let jobs: Vec<Job> = (0..clients).map(|i| job(&format!("client {i}"), Class::High, "32KiB", DEPTH)).collect();
        shared(live, &DRIVE, &jobs, span)
    };
    let gamma = benchmark(CLIENTS[0])?.iter().map(|r| r.summary.iops).sum();
    let waits = benchmark(CLIENTS[1])?;
    let mean = waits.iter().map(|r| r.summary.latency.mean).sum::<f64>() / waits.len() as f64;
    Ok(Estimate { gamma, apart: mean * 1e-9 / f64::from(CLIENTS[1] * DEPTH) })
}

/// What the equations say of the high class where low asks for a part of its share.
fn predicted(rho: f64, estimate: Estimate) -> High {
    // All in bytes, as DRR has it.
    let round = Round { weights: WEIGHTS, utilisation: [1.0, 1.0, rho] };
    let iops = round.throughput(Class::High, estimate.gamma * SIZE, f64::INFINITY) / SIZE;
    let latency = round.latency(Class::High, f64::from(DEPTH) * SIZE, 1.0, estimate.apart / SIZE);
    High { iops, latency }
}

/// The fluid model, of a drive that is as fast as γ.
fn fluid(jobs: &[Job], estimate: Estimate) -> High {
    let tenants: Vec<PlanTenant> =
        jobs.iter().map(|j| PlanTenant::new(&j.name, j.class.unwrap_or(Class::Medium), Demand::of(j))).collect();
    let service = Nanos((f64::from(SLOTS) / estimate.gamma * 1e9).round() as u64);
    let drive = DriveModel::fixed(service, SLOTS, SLOT_BYTES);
    let iops = shares(&drive, &Setting::new(DRIVE.settings.mechanism), &tenants).rates[0];
    // Little's law: as many as are outstanding over as many as are answered.
    High { iops, latency: f64::from(DEPTH) / iops }
}

fn point(live: &mut dyn LiveMeasurements, rho: f64, estimate: Estimate, span: Span) -> Result<Point, String> {
    let jobs = jobs(rho, estimate.gamma);
    let results = shared(live, &DRIVE, &jobs, span)?;
    let high = &results[0].summary;
    let bytes = estimate.gamma * SIZE;
    let lambda = rho * bytes * WEIGHTS[2] / WEIGHTS.iter().sum::<f64>();
    let by_rate = Round { weights: WEIGHTS, utilisation: [1.0, 1.0, of_rate(lambda, bytes)] };
    Ok(Point {
        rho,
        part: high.iops / results.iter().map(|r| r.summary.iops).sum::<f64>() * 100.0,
        measured: High { iops: high.iops, latency: high.latency.mean * 1e-9 },
        equations: predicted(rho, estimate),
        of_rate: by_rate.throughput(Class::High, bytes, f64::INFINITY) / SIZE,
        fluid: fluid(&jobs, estimate),
    })
}

pub(crate) fn figure(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let time = if live.is_preferred() { Nanos::from_millis(900) } else { Nanos::from_millis(400) };
    let span = Span { ramp: Nanos::from_millis(100), time, series: None };
    let estimate = estimate(live, span)?;
    let mut points = Vec::new();
    for step in 0..=STEPS {
        points.push(point(live, f64::from(step) / f64::from(STEPS), estimate, span)?);
        live.progress(f64::from(step + 1) / f64::from(STEPS + 1));
    }
    let rows = rows(&points);
    Ok(Figure {
        subject: Subject::QosFig7,
        about: about(live),
        notes: vec![note(&points, estimate)],
        charts: charts(&points, &rows),
        rows,
    })
}

/// Labels of the rows that are drawn.
fn throughput_label(rho: f64) -> String {
    format!("rho_l {rho:.1}: throughput of high")
}

fn latency_label(rho: f64) -> String {
    format!("rho_l {rho:.1}: mean latency of high")
}

fn rows(points: &[Point]) -> Vec<Row> {
    let mut rows = Vec::new();
    for p in points {
        let rho = format!("rho_l {:.1}", p.rho);
        let (throughput, latency) = p.off(p.equations);
        let between = (100.0 * 4.0 / 7.0 * 0.98..=100.0 * 4.0 / 6.0 * 1.02).contains(&p.part);
        let text = "from 128/(128+64) without the low class down to 128/(128+64+32), within 2 %";
        rows.push(Row::relation(format!("{rho}: high's part of the drive"), p.part, "%", between, text));
        rows.push(Row::told(throughput_label(p.rho), p.measured.iops / 1e3, "k/s", "measured"));
        let label = format!("{rho}: equation 2 is off by");
        rows.push(Row::printed(label, throughput, "%", 5.0, PrintedBound::Below, WITHIN));
        // Everybody who is answered was outstanding.
        let little = p.measured.latency * p.measured.iops / f64::from(DEPTH);
        let text = "what is outstanding over what is answered, by Little's law, within 5 %";
        let latency_us = micros(p.measured.latency * 1e9);
        rows.push(Row::relation(latency_label(p.rho), latency_us, "us", near(little, 1.0, 5.0), text));
        rows.push(Row::printed(format!("{rho}: equation 3 is off by"), latency, "%", 5.0, PrintedBound::Below, WITHIN));
    }
    let worst = |of: fn((f64, f64)) -> f64| points.iter().map(|p| of(p.off(p.fluid))).fold(0.0, f64::max);
    for (what, off) in [("throughput", worst(|off| off.0)), ("latency", worst(|off| off.1))] {
        let text = "as far as the paper's equations may be: within 5 %";
        rows.push(Row::relation(format!("fluid model, {what}: off by at most"), off, "%", off <= 5.0, text));
    }
    rows
}

fn charts(points: &[Point], rows: &[Row]) -> Vec<Chart> {
    let curve = |name: &str, of: &dyn Fn(&Point) -> f64| Curve {
        name: name.into(),
        points: points.iter().map(|p| (p.rho, of(p))).collect(),
    };
    let measured =
        |label: fn(f64) -> String| Curve::of_rows("measured", rows, points.iter().map(|p| (p.rho, label(p.rho))));
    let chart = |title, y, curves| Chart {
        title,
        axes: ("rho_l", y),
        scales: (Scale::Linear, Scale::Linear),
        curves,
        marks: Vec::new(),
    };
    vec![
        chart(
            "Throughput of the high class",
            "thousand requests a second",
            vec![
                measured(throughput_label),
                curve("equation 2", &|p| p.equations.iops / 1e3),
                curve("fluid model", &|p| p.fluid.iops / 1e3),
                curve("eq. 2, rho = l/g", &|p| p.of_rate / 1e3),
            ],
        ),
        chart(
            "Mean latency of the high class",
            "us",
            vec![
                measured(latency_label),
                curve("equation 3", &|p| p.equations.latency * 1e6),
                curve("fluid model", &|p| p.fluid.latency * 1e6),
            ],
        ),
    ]
}

fn note(points: &[Point], Estimate { gamma, apart }: Estimate) -> String {
    let first = points.iter().map(|p| (p.of_rate / p.measured.iops - 1.0).abs() * 100.0).fold(0.0, f64::max);
    format!(
        "Estimated by runs of their own: gamma = {:.1} k requests a second, a/p = {:.2} us, and their product {:.3}. With the other \
         reading of rho, lambda/gamma, equation 2 is up to {first:.1} % off.",
        gamma / 1e3,
        1e6 * apart,
        gamma * apart
    )
}

fn about(live: &dyn LiveMeasurements) -> Vec<String> {
    let clock = match live.is_preferred() {
        true => "In real time: drive and clients in one thread.",
        false => "In virtual time.",
    };
    vec![
        format!(
            "{clock} The profile {PROFILE}, the paper's drive, whose dies and channels the model knows nothing of, written in \
             order. Three classes of 32 KiB random reads under DRR with quanta of 128, 64 and 32 KiB; high and medium always have \
             {DEPTH} outstanding (rho = 1), low asks for a part rho_l of its own share, at even distances. The drive is handed \
             {SLOTS} commands at once."
        ),
        format!(
            "As in the paper, gamma and a/p are estimated before, by benchmarks of several clients of one class with {DEPTH} outstanding \
             each: gamma is what {} clients get together; a/p is the mean latency of {} clients over what they have \
             outstanding. What is measured at a rho_l goes into no prediction.",
            CLIENTS[0], CLIENTS[1]
        ),
        "rho is read as the part of a class's own round share that it asks for, which is what \"the number of requests \
         available for processing is equal to the weight\" says at rho = 1. The text also computes it as lambda/gamma; that \
         reading is a curve of its own and no row."
            .into(),
        "The paper estimates gamma as about 240k and a/p as about 81 us. These do not belong together: gamma times a/p is 19.4 \
         where Little's law wants 1. No row rests on them."
            .into(),
        "Equation 3 is called the largest latency. A queue that is always full makes every request wait for q requests, so the \
         mean is what it computes here. The fluid model's latency is q over its throughput, by Little's law."
            .into(),
    ]
}
