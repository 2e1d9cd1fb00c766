//! Figure 8: five scenarios of two jobs (section V.D).

use super::either_clock::{clock, shared};
use super::shared_drive::{SharedDrive, Span, job, name};
use crate::reproduce::numbers::near;
use crate::reproduce::{Chart, Curve, Figure, LiveMeasurements, Row, Scale, Subject};
use weir_arbiter::{ArbiterSettings, Mechanism};
use weir_units::{Class, Nanos};
use weir_workload::{Job, JobResult};

/// Commands that a job has outstanding.
const DEPTH: u32 = 128;

/// Two jobs.
struct Scenario {
    jobs: [(Class, &'static str); 2],
    /// First job's bandwidth over the second's, as the weights say.
    expected: f64,
    /// The same where each request counts alike, as WRR has it.
    by_requests: f64,
}

const SCENARIOS: [Scenario; 5] = [
    Scenario { jobs: [(Class::High, "4KiB"), (Class::Medium, "8KiB")], expected: 2.0, by_requests: 1.0 },
    Scenario { jobs: [(Class::High, "4KiB"), (Class::High, "4KiB")], expected: 1.0, by_requests: 1.0 },
    Scenario { jobs: [(Class::High, "4KiB"), (Class::Low, "8KiB")], expected: 4.0, by_requests: 2.0 },
    Scenario { jobs: [(Class::Low, "4KiB"), (Class::High, "8KiB")], expected: 0.25, by_requests: 0.125 },
    Scenario {
        jobs: [(Class::High, "4KiB:50/8KiB:50"), (Class::High, "8KiB:50/16KiB:50")],
        expected: 1.0,
        by_requests: 0.5,
    },
];

const MECHANISMS: [Mechanism; 3] = [Mechanism::Wrr, Mechanism::Drr, Mechanism::None];

/// How far a ratio may be off, in percent.
const TOLERANCE: f64 = 5.0;

const SAME: &str = "\"With the WRR, both jobs receive the same bandwidth despite having different priorities\"";
const PERFECT: &str = "\"DRR is able to achieve near perfect bandwidth distribution as per priority weights\"";
const CLOSE: &str = "\"DRR is able to achieve close to the expected ratio\"";
const SKEWED: &str =
    "\"the difference in request sizes leads WRR to incorrectly favor the job with larger request size\"";
const DESIRED: &str = "\"The only case where WRR provides the desired ratio is Scenario 2\"";
const EQUAL: &str = "\"Default QEMU just provides equal throughput distribution\", that is, as many requests a second";
const STABLE: &str = "\"the bandwidth over time is relatively stable\"";

impl Scenario {
    fn jobs(&self) -> Vec<Job> {
        let one = |(place, (class, sizes)): (usize, &(Class, &str))| {
            job(&format!("job {} ({class}, {sizes})", place + 1), *class, sizes, DEPTH)
        };
        self.jobs.iter().enumerate().map(one).collect()
    }

    /// Which relation a ratio of bandwidths is held to, and whether it has it.
    fn row(&self, place: usize, mechanism: Mechanism, results: &[JobResult]) -> Row {
        let [first, second] = [0, 1].map(|i| &results[i].summary);
        let ratio = first.bandwidth_bytes_per_s / second.bandwidth_bytes_per_s;
        let label = format!("scenario {place}, {}: job 1 over job 2", name(mechanism));
        let (holds, text) = match mechanism {
            Mechanism::Drr => {
                let quote = if place == 1 { PERFECT } else { CLOSE };
                (near(ratio, self.expected, TOLERANCE), format!("{} by the weights: {quote}", self.expected))
            }
            Mechanism::Wrr => {
                let quote = match place {
                    1 => SAME,
                    2 => DESIRED,
                    _ => SKEWED,
                };
                let wrong = place == 2 || self.by_requests < 0.8 * self.expected;
                let text =
                    format!("{} where requests count, of {} by the weights: {quote}", self.by_requests, self.expected);
                (wrong && near(ratio, self.by_requests, TOLERANCE), text)
            }
            Mechanism::None | Mechanism::Rr => {
                let text = format!("{EQUAL}; by bytes the ratio of the sizes");
                (near(first.iops / second.iops, 1.0, TOLERANCE), text)
            }
        };
        Row::relation(label, ratio, "", holds, text)
    }
}

fn drive(live: &dyn LiveMeasurements, mechanism: Mechanism) -> SharedDrive {
    // 80,000 commands a second, in real time half of that: what is shared is small against what the emulation can do.
    let latency = if live.is_preferred() { Nanos::from_micros(800) } else { Nanos::from_micros(400) };
    SharedDrive { latency, slots: 32, settings: ArbiterSettings::new(mechanism), profile: None }
}

/// The largest distance of an interval's ratio of bandwidths from what it should be, in percent.
fn swing(results: &[JobResult], expected: f64) -> f64 {
    let ratios = results[0].series.iter().zip(&results[1].series);
    let off = ratios.map(|(a, b)| a.bandwidth_bytes_per_s / b.bandwidth_bytes_per_s / expected - 1.0);
    off.map(|off| off.abs() * 100.0).fold(0.0, f64::max)
}

pub(crate) fn figure(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let ramp = Nanos::from_millis(100);
    let over_time = Span { ramp, time: Nanos::from_millis(1500), series: Some(Nanos::from_millis(100)) };
    let mean = Span { ramp, time: Nanos::from_millis(500), series: None };
    let (mut rows, mut curves) = (Vec::new(), Vec::new());
    let mut ratios: [Vec<(f64, String)>; MECHANISMS.len()] = Default::default();
    let mut expected = Curve { name: "expected".into(), points: Vec::new() };
    for (at, scenario) in SCENARIOS.iter().enumerate() {
        let place = at + 1;
        for (way, mechanism) in MECHANISMS.into_iter().enumerate() {
            let span = if place == 1 { over_time } else { mean };
            let drive = drive(live, mechanism);
            let results = shared(live, &drive, &scenario.jobs(), span)?;
            let row = scenario.row(place, mechanism, &results);
            ratios[way].push((place as f64, row.label.clone()));
            rows.push(row);
            if place == 1 {
                curves.extend(results.iter().map(|r| series(mechanism, r)));
                if mechanism == Mechanism::Drr {
                    let swing = swing(&results, scenario.expected);
                    let text = format!("in every interval of 100 ms within 10 % of the weights' ratio: {STABLE}");
                    let label = "scenario 1, DRR: largest swing of the ratio";
                    rows.push(Row::relation(label, swing, "%", swing <= 10.0, text));
                }
            }
            live.progress((at * MECHANISMS.len() + way + 1) as f64 / (SCENARIOS.len() * MECHANISMS.len()) as f64);
        }
        expected.points.push((place as f64, scenario.expected));
    }
    let ratio = |(mechanism, labels)| Curve::of_rows(name(mechanism), &rows, labels);
    let mut ratios: Vec<Curve> = MECHANISMS.into_iter().zip(ratios).map(ratio).collect();
    ratios.push(expected);
    Ok(Figure {
        subject: Subject::QosFig8,
        about: about(live),
        rows,
        notes: Vec::new(),
        charts: vec![
            Chart {
                title: "Bandwidth over time, scenario 1",
                axes: ("time, s", "bandwidth, MB/s"),
                scales: (Scale::Linear, Scale::Linear),
                curves,
                marks: Vec::new(),
            },
            Chart {
                title: "Bandwidth of job 1 over that of job 2",
                axes: ("scenario", "ratio"),
                scales: (Scale::Linear, Scale::Log),
                curves: ratios,
                marks: Vec::new(),
            },
        ],
    })
}

fn series(mechanism: Mechanism, result: &JobResult) -> Curve {
    let points = result.series.iter().map(|p| (p.t_s, p.bandwidth_bytes_per_s / 1e6)).collect();
    let class = result.class.map_or(String::new(), |c| format!(", {c}"));
    Curve { name: format!("{}{class}", name(mechanism)), points }
}

fn about(live: &dyn LiveMeasurements) -> Vec<String> {
    vec![
        format!(
            "{} Two jobs of random reads, {DEPTH} outstanding each; weights 32:16:8 (WRR), quanta 128, 64 and 32 KiB (DRR), as in \
             the paper. Every command takes the drive the same time, and it works on 32 at once.",
            clock(live)
        ),
        "Scenario 1: high 4 KiB, medium 8 KiB. 2: two high, 4 KiB. 3: high 4 KiB, low 8 KiB. 4: the same with the priorities \
         exchanged. 5: two high, one with 4 and 8 KiB, the other with 8 and 16 KiB. The expected ratio is that of the weights; \
         no measured ratio is printed in the text."
            .into(),
        "\"none\" is the drive's arbitration = \"none\": the queue that has waited longest is emptied, as the paper's default \
         QEMU does."
            .into(),
    ]
}
