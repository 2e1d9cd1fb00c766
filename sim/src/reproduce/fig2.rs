//! Figure 2 of papers/002: what the emulator itself takes, in real time.

use super::{Bound, Chart, Curve, Figure, Live, Row, Scale, Subject, micros};
use weir_flash::{Array, Place, Preset, Shape, Variability};
use weir_units::Nanos;
use weir_workload::{Latency, Rng};

const SUBMITTERS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

const TO_32: &str = "In between 1-32 IO threads, FEMU can keep IO latency stable in less than 52\u{b5}s, and even below \
                     90\u{b5}s at 64 IO threads.";

const CLIENTS: &str = "The paper's submitters are threads of a guest on a machine of 48 hardware threads; ours are queue pairs \
                       of one depth, polled in one thread that runs the drive as well, without a guest between them.";

pub(super) fn a(live: &mut dyn Live) -> Result<Figure, String> {
    let (mut rows, mut points) = (Vec::new(), Vec::new());
    for n in SUBMITTERS {
        let ours = micros(live.latency(n, Nanos(0))?.mean);
        let bound = if n <= 32 { 52.0 } else { 90.0 };
        rows.push(Row::printed(format!("{n} submitters, mean"), ours, "us", bound, Bound::Below, TO_32));
        points.push((f64::from(n), ours));
    }
    Ok(Figure {
        subject: Subject::FemuFig2a,
        about: vec![
            "4 KiB random reads of a drive in memory without flash delay, in real time: each submitter has one in flight."
                .into(),
            CLIENTS.into(),
        ],
        rows,
        charts: vec![chart("Mean latency, no flash delay", vec![Curve { name: "Weir".into(), points }])],
    })
}

fn chart(title: &'static str, curves: Vec<Curve>) -> Chart {
    Chart { title, axes: ("submitters", "latency, us"), scales: (Scale::Log, Scale::Linear), curves }
}

/// The constant delay of the paper.
const DELAY: Nanos = Nanos::from_micros(50);

const AT_70: &str = "In the experiment above, 99% of all the IOs are stable at 70\u{b5}s.";

pub(super) fn b(live: &mut dyn Live) -> Result<Figure, String> {
    let mut all: Vec<(u32, Latency)> = Vec::new();
    for n in SUBMITTERS {
        all.push((n, live.latency(n, DELAY)?));
    }
    let mut rows = Vec::new();
    for (n, latency) in &all {
        let early = format!("at least {DELAY}: no answer comes before it is due");
        let mean = micros(latency.mean);
        rows.push(Row::relation(format!("{n} submitters, mean"), mean, "us", mean >= 50.0, early));
        let p99 = micros(latency.p99 as f64);
        rows.push(Row::printed(format!("{n} submitters, p99"), p99, "us", 70.0, Bound::Below, AT_70));
    }
    let costs = [("basic", cost(live, Preset::FemuBasic)), ("advanced", cost(live, Preset::FemuOc))];
    let most = f64::from(SUBMITTERS[SUBMITTERS.len() - 1]);
    for (model, ns) in costs {
        rows.push(Row::relation(
            format!("computing the {model} model, a request"),
            ns,
            "ns",
            ns * most <= DELAY.0 as f64,
            "64 of them take less than the delay itself: the paper's \"this compute overhead will backlog with higher thread \
             count\" does not happen",
        ));
    }
    let line = |name: &str, of: fn(&Latency) -> f64| Curve {
        name: name.into(),
        points: all.iter().map(|(n, l)| (f64::from(*n), micros(of(l)))).collect(),
    };
    Ok(Figure {
        subject: Subject::FemuFig2b,
        about: vec![
            format!("4 KiB random reads of a drive in memory that answers each after {DELAY}, in real time."),
            CLIENTS.into(),
            "The paper adds the same delay by its advanced model to show what computing it costs; here that cost is measured \
             bare: real time a request, 16 channels, 16 reads of random pages in flight."
                .into(),
        ],
        rows,
        charts: vec![chart(
            "Latency with a constant delay of 50 us",
            vec![line("mean", |l| l.mean), line("p99", |l| l.p99 as f64)],
        )],
    })
}

/// Steps that are timed.
const STEPS: u32 = 200_000;

/// Real time of one read's decision, in nanoseconds.
fn cost(live: &mut dyn Live, preset: Preset) -> f64 {
    let parts = preset.parts(false);
    let shape: Shape = parts.geometry.shape().expect("a preset is a shape");
    let mut array = Array::new(&shape, &parts.timing, &Variability::default());
    let mut rng = Rng::new(2);
    let mut ends = [Nanos(0); 16];
    live.cost(STEPS, &mut |step| {
        let random = rng.next_u64() as u32;
        let at = Place { plane: random % shape.planes(), block: 0, page: (random >> 16) % shape.pages_per_block() };
        let slot = &mut ends[step as usize % 16];
        *slot = array.read(*slot, at, 4096);
    })
}
