//! Figure 7: the model of section IV against what is measured, while the low class asks for more and more.

use super::{SLOT_BYTES, SharedDrive, Span, clock, job, near, shared};
use crate::reproduce::{Bound, Chart, Curve, Figure, Live, Row, Scale, Subject, micros};
use weir_arbiter::{Mechanism, Settings};
use weir_plan::equations::{Round, of_rate, of_share};
use weir_plan::{Demand, Drive, Setting, Tenant, shares};
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
/// p of the drive: γ·a with the paper's constants.
const SLOTS: u32 = 19;

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

/// One ρ_l.
struct Point {
    rho: f64,
    /// What all classes got together.
    gamma: f64,
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

fn drive(live: &dyn Live) -> SharedDrive {
    let latency = if live.is_preferred() { Nanos::from_millis(1) } else { Nanos::from_micros(81) };
    SharedDrive { latency, slots: SLOTS, settings: Settings::new(Mechanism::Drr) }
}

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

/// γ: what one class gets that is alone.
fn gamma(live: &mut dyn Live, drive: &SharedDrive, span: Span) -> Result<f64, String> {
    let alone = shared(live, drive, &[job("alone", Class::High, "32KiB", DEPTH)], span)?;
    Ok(alone[0].summary.iops)
}

/// `wanted` is the low class's ρ at the γ that was found before; what it is at this run's is told.
fn point(live: &mut dyn Live, drive: &SharedDrive, wanted: f64, before: f64, span: Span) -> Result<Point, String> {
    let jobs = jobs(wanted, before);
    let results = shared(live, drive, &jobs, span)?;
    let high = &results[0].summary;
    let gamma: f64 = results.iter().map(|r| r.summary.iops).sum();
    // All in bytes, as DRR has it; a/p is 1/γ.
    let bytes = gamma * SIZE;
    let offered = match jobs.get(2).and_then(|low| low.rate) {
        Some(Rate::Iops(rate)) => rate as f64 * SIZE,
        _ if wanted > 0.0 => f64::INFINITY,
        _ => 0.0,
    };
    let lambda = offered.min(bytes * WEIGHTS[2] / WEIGHTS.iter().sum::<f64>());
    let rho = of_share(lambda, bytes, WEIGHTS, Class::Low);
    let round = |low: f64| Round { weights: WEIGHTS, utilisation: [1.0, 1.0, low] };
    let second = round(rho);
    let throughput = |round: Round| round.throughput(Class::High, bytes, f64::INFINITY) / SIZE;
    let q = f64::from(DEPTH) * SIZE;
    let equations = High { iops: throughput(second), latency: second.latency(Class::High, q, 1.0, 1.0 / bytes) };
    let tenants: Vec<Tenant> =
        jobs.iter().map(|j| Tenant::new(&j.name, j.class.unwrap_or(Class::Medium), Demand::of(j))).collect();
    let effective = Nanos((f64::from(drive.slots) / gamma * 1e9).round() as u64);
    let flow =
        shares(&Drive::fixed(effective, drive.slots, SLOT_BYTES), &Setting::new(drive.settings.mechanism), &tenants);
    Ok(Point {
        rho,
        gamma,
        measured: High { iops: high.iops, latency: high.latency.mean * 1e-9 },
        equations,
        of_rate: throughput(round(of_rate(lambda, bytes))),
        // Little's law: as many as are outstanding over as many as are answered.
        fluid: High { iops: flow.rates[0], latency: f64::from(DEPTH) / flow.rates[0] },
    })
}

pub(in crate::reproduce) fn figure(live: &mut dyn Live) -> Result<Figure, String> {
    let drive = drive(live);
    let time = if live.is_preferred() { Nanos::from_millis(900) } else { Nanos::from_millis(400) };
    let span = Span { ramp: Nanos::from_millis(100), time, series: None };
    let gamma = gamma(live, &drive, span)?;
    let mut points = Vec::new();
    for step in 0..=STEPS {
        points.push(point(live, &drive, f64::from(step) / f64::from(STEPS), gamma, span)?);
        live.progress(f64::from(step + 1) / f64::from(STEPS + 1));
    }
    Ok(Figure {
        subject: Subject::QosFig7,
        about: about(live, &drive),
        rows: rows(&points),
        notes: vec![note(&points, gamma)],
        charts: charts(&points),
    })
}

fn rows(points: &[Point]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (step, p) in points.iter().enumerate() {
        let rho = format!("rho_l {:.1}", step as f64 / f64::from(STEPS));
        let (throughput, latency) = p.off(p.equations);
        let part = p.measured.iops / p.gamma * 100.0;
        let between = (100.0 * 4.0 / 7.0 * 0.98..=100.0 * 4.0 / 6.0 * 1.02).contains(&part);
        let text = "from 128/(128+64) without the low class down to 128/(128+64+32), within 2 %";
        rows.push(Row::relation(format!("{rho}: high's part of the drive"), part, "%", between, text));
        let label = format!("{rho}: equation 2 is off by");
        rows.push(Row::printed(label, throughput, "%", 5.0, Bound::Below, WITHIN));
        // Everybody who is answered was outstanding.
        let little = p.measured.latency * p.measured.iops / f64::from(DEPTH);
        let text = "what is outstanding over what is answered, by Little's law, within 5 %";
        let latency_us = micros(p.measured.latency * 1e9);
        let label = format!("{rho}: mean latency of high");
        rows.push(Row::relation(label, latency_us, "us", near(little, 1.0, 5.0), text));
        rows.push(Row::printed(format!("{rho}: equation 3 is off by"), latency, "%", 5.0, Bound::Below, WITHIN));
    }
    let worst = |of: fn((f64, f64)) -> f64| points.iter().map(|p| of(p.off(p.fluid))).fold(0.0, f64::max);
    for (what, off) in [("throughput", worst(|off| off.0)), ("latency", worst(|off| off.1))] {
        let text = "as far as the paper's equations may be: within 5 %";
        rows.push(Row::relation(format!("fluid model, {what}: off by at most"), off, "%", off <= 5.0, text));
    }
    rows
}

fn charts(points: &[Point]) -> Vec<Chart> {
    let curve = |name: &str, of: &dyn Fn(&Point) -> f64| Curve {
        name: name.into(),
        points: points.iter().map(|p| (p.rho, of(p))).collect(),
    };
    let chart = |title, y, curves| Chart { title, axes: ("rho_l", y), scales: (Scale::Linear, Scale::Linear), curves };
    vec![
        chart(
            "Throughput of the high class",
            "thousand requests a second",
            vec![
                curve("measured", &|p| p.measured.iops / 1e3),
                curve("equation 2", &|p| p.equations.iops / 1e3),
                curve("fluid model", &|p| p.fluid.iops / 1e3),
                curve("eq. 2, rho = l/g", &|p| p.of_rate / 1e3),
            ],
        ),
        chart(
            "Mean latency of the high class",
            "us",
            vec![
                curve("measured", &|p| p.measured.latency * 1e6),
                curve("equation 3", &|p| p.equations.latency * 1e6),
                curve("fluid model", &|p| p.fluid.latency * 1e6),
            ],
        ),
    ]
}

fn note(points: &[Point], gamma: f64) -> String {
    let first = points.iter().map(|p| (p.of_rate / p.measured.iops - 1.0).abs() * 100.0).fold(0.0, f64::max);
    format!(
        "Measured by one class alone: gamma = {:.1} k requests a second, so a/p = {:.2} us. With the other reading of rho, lambda/gamma, equation 2 is \
         up to {first:.1} % off.",
        gamma / 1e3,
        1e6 / gamma
    )
}

fn about(live: &dyn Live, drive: &SharedDrive) -> Vec<String> {
    vec![
        format!(
            "{} Three classes of 32 KiB random reads under DRR with quanta of 128, 64 and 32 KiB; high and medium always have \
             {DEPTH} outstanding (rho = 1), low asks for a part rho_l of its own share, at even distances. The drive takes {} for \
             every command and works on {SLOTS} at once.",
            clock(live),
            drive.latency
        ),
        "rho is read as the part of a class's own round share that it asks for, which is what \"the number of requests \
         available for processing is equal to the weight\" says at rho = 1. The text also computes it as lambda/gamma; that \
         reading is a curve of its own and no row."
            .into(),
        "The paper estimates gamma as about 240k and a/p as about 81 us. These do not belong together: gamma times a/p is 19.4 \
         where Little's law wants 1. Read as a = 81 us they make p about 19, which is the drive here; no row rests on them. gamma is \
         what all classes got together in the same run, and a/p is its inverse."
            .into(),
        "Equation 3 is called the largest latency. A queue that is always full makes every request wait for q requests, so the \
         mean is what it computes here. The fluid model's latency is q over its throughput, by Little's law."
            .into(),
    ]
}
