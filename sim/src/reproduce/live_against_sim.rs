//! A live drive against the same drive in virtual time, for every profile.
//!
//! ```text
//!   plan (virtual: how much the drive can; then Poisson arrivals) ─▶ live, by the real clock ─▶ when each request came, was due, was seen
//!                                                                         │ when it came
//!                                                                         ▼
//!                                                          the simulator ─▶ when each is complete ─▶ the same dues? the same percentiles?
//! ```
//! The live drive finds requests when its thread looks, a little after their time, or much later where the core was away; what virtual
//! time is given are the times at which it found them. What is left is what the live drive itself does.

use super::numbers::micros;
use super::{Chart, Curve, Figure, LiveMeasurements, Row, Scale, Subject};
use crate::client::SimulatedClient;
use crate::scenario::{Scenario, capacity};
use crate::trace::Draw;
use crate::world::AnsweredRequest;
use std::sync::Arc;
use weir_config::{DeviceConfig, Profile};
use weir_controller::{Op, TenantConfig};
use weir_flash::Precondition;
use weir_units::{Class, Nanos};
use weir_workload::{Answered, Planned};
use weir_workload::{Job, Xoshiro256};

/// Requests of each profile.
const LOOK: usize = 20_000;
const FULL: usize = 1_000_000;

/// Commands that a drive works on at once: few, so that others wait for them at rates that leave a core time to spare.
const SLOTS: u32 = 8;
/// Bytes of a drive.
const CAPACITY: &str = "1GiB";
const SIZE: u32 = 4096;
/// Reads, in percent.
const READS: u64 = 70;
/// The rate, as a part of what the drive can, and no more than so many a second.
const LOAD: f64 = 0.8;
const MOST: f64 = 150e3;
/// The first request: the drive's clock has come up to it by then.
const START: Nanos = Nanos::from_millis(50);

/// The percentiles that are compared.
const PERCENTILES: [f64; 10] = [1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9];
/// How far live may be from virtual time: the larger of these.
const PERCENT: f64 = 2.0;
const LEAST: f64 = 1e3;

/// A drive of a profile.
///
/// # Errors
/// The profile cannot be had.
pub(super) fn drive(profile: &str) -> Result<DeviceConfig, String> {
    let query = format!("capacity={CAPACITY}&block_size=4096&slots={SLOTS}");
    let mut config = DeviceConfig::from_query(profile, &query).map_err(|e| e.to_string())?;
    if let Some(flash) = &mut config.flash {
        flash.precondition = Precondition::Sequential;
    }
    Ok(config)
}

/// So many requests, four kilobytes anywhere, at four fifths of what the drive can.
///
/// # Errors
/// The drive cannot be simulated.
pub(super) fn plan(config: &DeviceConfig, count: usize) -> Result<Vec<Planned>, String> {
    let text = format!("name=all,rw=randrw:{READS},bs=4KiB,qd={SLOTS}");
    let requests = Some(count.min(LOOK) as u64);
    let job = Job::parse(&text, &Job::default()).map_err(|e| e.to_string())?;
    let most = Scenario { requests, ..scenario(config, SimulatedClient::new(&job, 0)) };
    let rate = most.run(|_| ()).map_err(|e| e.to_string())?.total.summary.iops;
    let apart = 1e9 / (rate * LOAD).min(MOST);
    let (mut rng, mut at) = (Xoshiro256::new(1), START.get() as f64);
    let blocks = capacity(config) / u64::from(SIZE);
    let mut request = |_| {
        // In (0, 1]: the logarithm is finite.
        let uniform = ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        at -= apart * uniform.ln();
        let write = rng.below(100) >= READS;
        Planned { at: Nanos(at as u64), write, offset: rng.below(blocks) * u64::from(SIZE), len: SIZE }
    };
    Ok((0..count).map(&mut request).collect())
}

fn scenario(config: &DeviceConfig, client: SimulatedClient) -> Scenario {
    Scenario {
        device: config.clone(),
        tenants: vec![TenantConfig::new("all", Class::Medium)],
        clients: vec![client],
        seed: 1,
        time: None,
        requests: None,
        ramp: Nanos(0),
        series: None,
        power_cuts: Vec::new(),
        faults: Vec::new(),
    }
}

/// When the same requests, at the times at which the live drive got them, are complete in virtual time; in the order of their ends.
///
/// # Errors
/// The drive cannot be simulated.
pub(super) fn in_virtual_time(
    config: &DeviceConfig,
    requests: &[Planned],
    answers: &[Answered],
) -> Result<Vec<AnsweredRequest>, String> {
    let draw = |(request, answer): (&Planned, &Answered)| {
        let op = if request.write { Op::Write } else { Op::Read };
        Draw { due: answer.arrived, op, fua: false, offset: request.offset, len: request.len }
    };
    let draws: Arc<[Draw]> = requests.iter().zip(answers).map(draw).collect();
    let text = format!("name=all,qd={}", config.queue_depth);
    let job = Job::parse(&text, &Job::default()).map_err(|e| e.to_string())?;
    let client = SimulatedClient { draws: Some(draws), ..SimulatedClient::new(&job, 0) };
    let mut world = scenario(config, client).world().map_err(|e| e.to_string())?;
    world.keep_answers();
    world.run_until(Nanos(u64::MAX - 1));
    Ok(world.answers_kept().to_vec())
}

/// Commands of which the drive said another time than the simulator.
pub(super) fn due_otherwise(answers: &[Answered], simulated: &[AnsweredRequest]) -> usize {
    let mut live: Vec<AnsweredRequest> =
        answers.iter().map(|a| AnsweredRequest { since: a.arrived, at: a.due }).collect();
    let mut simulated = simulated.to_vec();
    live.sort_unstable();
    simulated.sort_unstable();
    let same = live.iter().zip(&simulated).filter(|(a, b)| a == b).count();
    live.len().max(simulated.len()) - same
}

/// A percentile of latency, in nanoseconds.
#[derive(Clone, Copy)]
struct Point {
    percent: f64,
    live: f64,
    simulated: f64,
}

impl Point {
    fn apart(&self) -> f64 {
        self.live - self.simulated
    }

    /// How far the two are apart, measured by what is allowed.
    fn part(&self) -> f64 {
        self.apart().abs() / (self.simulated * PERCENT / 100.0).max(LEAST)
    }
}

fn points(answers: &[Answered], simulated: &[AnsweredRequest]) -> [Point; PERCENTILES.len()] {
    let net = |a: &Answered| a.seen.saturating_sub(a.arrived).saturating_sub(a.waited).get();
    let mut live: Vec<u64> = answers.iter().map(net).collect();
    let mut simulated: Vec<u64> = simulated.iter().map(|a| a.at.saturating_sub(a.since).get()).collect();
    live.sort_unstable();
    simulated.sort_unstable();
    let of = |list: &[u64], percent: f64| {
        let rank = (percent / 100.0 * list.len() as f64).ceil() as usize;
        list.get(rank.saturating_sub(1)).map_or(0.0, |ns| *ns as f64)
    };
    PERCENTILES.map(|percent| Point { percent, live: of(&live, percent), simulated: of(&simulated, percent) })
}

/// What is held of a profile.
fn rows(name: &str, answers: &[Answered], simulated: &[AnsweredRequest], points: &[Point]) -> Vec<Row> {
    let otherwise = due_otherwise(answers, simulated);
    let dues = format!("none of {}: with the arrivals as the live drive found them", answers.len());
    let due =
        Row::relation(format!("{name}, commands due at another time"), otherwise as f64, "", otherwise == 0, dues);
    let furthest = points.iter().max_by(|a, b| a.part().total_cmp(&b.part()));
    let latency = |point: &Point| {
        let (live, simulated) = (micros(point.live), micros(point.simulated));
        let text = format!(
            "{live:.2} us live, net of run-queue wait, {simulated:.2} us in virtual time: of p1 to p99.9 the furthest apart, at most by the \
             larger of {PERCENT} % and 1 us"
        );
        let label = format!("{name}, p{}, live less virtual", point.percent);
        Row::relation(label, micros(point.apart()), "us", point.part() <= 1.0, text)
    };
    [due].into_iter().chain(furthest.map(latency)).collect()
}

pub(super) fn figure(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let count = if live.is_full() { FULL } else { LOOK };
    let profiles: Vec<String> = Profile::all().map(|profile| profile.to_string()).collect();
    let (mut all, mut curves, mut waited) = (Vec::new(), Vec::new(), 0.0f64);
    for (at, name) in profiles.iter().enumerate() {
        let fail = |e: String| format!("{name}: {e}");
        let config = drive(name).map_err(fail)?;
        let requests = plan(&config, count).map_err(fail)?;
        let answers = live.answers(&config, &requests).map_err(fail)?;
        let simulated = in_virtual_time(&config, &requests, &answers).map_err(fail)?;
        let points = points(&answers, &simulated);
        all.extend(rows(name, &answers, &simulated, &points));
        let heights = points.iter().map(|point| (point.percent, micros(point.apart()))).collect();
        curves.push(Curve { name: name.clone(), points: heights });
        let lost: u64 = answers.iter().map(|a| u64::from(a.waited > Nanos(0))).sum();
        waited = waited.max(lost as f64 / answers.len() as f64 * 100.0);
        live.progress((at + 1) as f64 / profiles.len() as f64);
    }
    Ok(Figure {
        subject: Subject::LiveAgainstSim,
        about: vec![
            format!(
                "{count} requests of 4 KiB, {READS} % reads, anywhere on {CAPACITY} of each profile with {SLOTS} slots, written in order \
                 before; Poisson arrivals at {LOAD} of what the drive can, at most {:.0} a second.",
                MOST
            ),
            "Live: drive and client in one thread that polls, in memory, by the real clock; a request counts from when the drive got it to \
             when its client saw the completion."
                .into(),
            "Virtual: the simulator (weir sim), given the requests at the times at which the live drive got them.".into(),
        ],
        rows: all,
        notes: vec![format!("In the run that lost most, {waited:.2} % of the requests were due while the thread had no core.")],
        charts: vec![Chart {
            title: "Latency live, net of run-queue wait, less that in virtual time",
            axes: ("percentile", "us"),
            scales: (Scale::Linear, Scale::Linear),
            curves, marks: Vec::new() }],
    })
}
