//! Figure 2 of papers/002: what the emulator itself takes, in real time.

use super::numbers::{median, micros};
use super::{Chart, Curve, Figure, LiveMeasurements, PrintedBound, Row, Scale, Seen, Subject};
use weir_flash::{Array, PageAddress, Preset, Shape, Variability};
use weir_units::Nanos;
use weir_workload::Xoshiro256;

const SUBMITTERS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

const TO_32: &str = "In between 1-32 IO threads, FEMU can keep IO latency stable in less than 52\u{b5}s, and even below \
                     90\u{b5}s at 64 IO threads.";

const CLIENTS: &str = "The paper's submitters are threads of a guest on a machine of 48 hardware threads; ours are queue pairs \
                       of one depth, polled in one thread that runs the drive as well, without a guest between them.";

/// Lines of figure 2 that are other programs in a guest, with what the text prints of them.
const PEERS: &str = "Not repeated here are the paper's lines of other programs, each of which needs a guest of QEMU 2.9: IDE (VSSIM: 152 \
                     us at 1 thread, 583 us at 4), NVMe of QEMU (35 us at 1, 106 us at 8), virtio (185 us at 32), dataplane (126 us \
                     at 32), and FEMU without its change to the guest's driver (189 us at 32, 264 us at 64).";

/// What the text says the guest takes of a request.
const GUEST: f64 = 20.0;
/// The most at which the text calls a line stable.
const STABLE: f64 = 52.0;
/// By how much latencies of which the delay is most may differ over submitters, as a factor.
const SAME: f64 = 1.1;

/// So often everything is measured, in turn; medians are told.
const ROUNDS: usize = 5;
/// A thread that had no core for more than so many percent of its time was disturbed.
const DISTURBED: f64 = 1.0;
/// Deadlines of the control.
const APART: Nanos = Nanos::from_micros(50);

/// What one number of submitters saw: medians over the rounds, in microseconds.
struct Median {
    submitters: u32,
    mean: f64,
    p99: f64,
    raw_p99: f64,
    least: f64,
}

/// What was measured, and of the machine.
struct Measured {
    medians: Vec<Median>,
    notes: Vec<String>,
    /// The thread had no core too often for a verdict.
    is_disturbed: bool,
}

/// Rounds of all numbers of submitters with the control beside them.
fn measured(live: &mut dyn LiveMeasurements, service: Nanos) -> Result<Measured, String> {
    let mut rounds: Vec<Vec<Seen>> = Vec::new();
    let mut control = Vec::new();
    for at in 0..ROUNDS {
        control.push(live.bare(APART));
        let round: Result<Vec<Seen>, String> = SUBMITTERS.iter().map(|n| live.latency(*n, service)).collect();
        rounds.push(round?);
        live.progress((at + 1) as f64 / ROUNDS as f64);
    }
    let of = |i: usize, f: fn(&Seen) -> f64| median(rounds.iter().map(|round| micros(f(&round[i]))).collect());
    let medians = SUBMITTERS.iter().enumerate().map(|(i, n)| Median {
        submitters: *n,
        mean: of(i, |s| s.net.mean),
        p99: of(i, |s| s.net.p99 as f64),
        raw_p99: of(i, |s| s.raw.p99 as f64),
        least: of(i, |s| s.least.0 as f64),
    });
    let bare = |f: fn(&Seen) -> f64| median(control.iter().map(|s| micros(f(s))).collect());
    let mut notes = vec![format!(
        "Medians of {ROUNDS} rounds, without the time in which the thread was ready to run and had no core. The control, a bare \
         loop that spins for deadlines {APART} apart: p99 {:.2} us late, by the clock {:.2} us.",
        bare(|s| s.net.p99 as f64),
        bare(|s| s.raw.p99 as f64)
    )];
    let waited = median(rounds.iter().flatten().map(|s| s.waited_pct).collect());
    let is_disturbed = waited > DISTURBED;
    if is_disturbed {
        notes.push(format!(
            "The machine was disturbed: the thread had no core for {waited:.0} % of its time (median); repeat it while nothing \
             else runs."
        ));
    }
    Ok(Measured { medians: medians.collect(), notes, is_disturbed })
}

pub(super) fn a(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let Measured { medians, notes, is_disturbed } = measured(live, Nanos(0))?;
    let label = |submitters: u32| format!("{submitters} submitters, mean");
    let row = |m: &Median| {
        let bound = if m.submitters <= 32 { 52.0 } else { 90.0 };
        unless(is_disturbed, Row::printed(label(m.submitters), m.mean, "us", bound, PrintedBound::Below, TO_32))
    };
    let mut rows: Vec<Row> = medians.iter().map(row).collect();
    let (one, many) = up_to_32(&medians);
    let stable = Row::relation(
        "32 submitters, mean, above that of 1",
        many - one,
        "us",
        many - one <= STABLE - GUEST,
        "at most 32 us: \"FEMU can keep IO latency stable in less than 52\u{b5}s\", of which the guest takes \"roughly 20\u{b5}s\"",
    );
    rows.push(unless(is_disturbed, stable));
    let curve = Curve::of_rows("Weir", &rows, SUBMITTERS.map(|n| (f64::from(n), label(n))));
    Ok(Figure {
        subject: Subject::FemuFig2a,
        about: vec![
            "4 KiB random reads of a drive in memory without flash delay, in real time: each submitter has one in flight."
                .into(),
            CLIENTS.into(),
            PEERS.into(),
        ],
        rows,
        notes,
        charts: vec![chart("Mean latency, no flash delay", vec![curve])],
    })
}

fn chart(title: &'static str, curves: Vec<Curve>) -> Chart {
    Chart { title, axes: ("submitters", "latency, us"), scales: (Scale::Log, Scale::Linear), curves, marks: Vec::new() }
}

/// The mean at 1 submitter, and the highest of those at up to 32.
fn up_to_32(medians: &[Median]) -> (f64, f64) {
    let few = medians.iter().filter(|m| m.submitters <= 32).map(|m| m.mean);
    (medians.first().map_or(f64::NAN, |m| m.mean), few.fold(0.0, f64::max))
}

/// A row that is missed on a disturbed machine is not judged.
fn unless(is_disturbed: bool, row: Row) -> Row {
    let missed = !row.ok();
    row.disturbed_if(is_disturbed && missed)
}

/// The constant delay of the paper.
const DELAY: Nanos = Nanos::from_micros(50);

const AT_70: &str = "In the experiment above, 99% of all the IOs are stable at 70\u{b5}s.";

/// What a drive may take that has no delay, where 64 submit.
const AT_64: f64 = 90.0;

pub(super) fn b(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let Measured { medians: all, notes, is_disturbed } = measured(live, DELAY)?;
    let mut rows = Vec::new();
    let label = |submitters: u32| format!("{submitters} submitters, p99");
    for m in &all {
        let n = m.submitters;
        let early = format!("at least {DELAY}: no answer comes before it is due");
        rows.push(Row::relation(format!("{n} submitters, shortest"), m.least, "us", m.least >= 50.0, early));
        let label = label(n);
        let row = match n {
            ..=32 => Row::printed(label, m.p99, "us", 70.0, PrintedBound::Below, AT_70),
            _ => Row::relation(
                label,
                m.p99,
                "us",
                m.p99 <= AT_64 + 50.0,
                "at most 140 us: without any delay the paper has up to 90 us at 64 threads, so its 70 us are of fewer",
            ),
        };
        rows.push(unless(is_disturbed, row));
    }
    let (one, many) = up_to_32(&all);
    let stable = Row::relation(
        "1 to 32 submitters, highest mean over that of 1",
        many / one,
        "",
        many <= one * SAME,
        "at most 1.1: the \"+50us (Raw)\" line is \"a simple (and stable) result\"",
    );
    rows.push(unless(is_disturbed, stable));
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
    let line = |name: &str, of: fn(&Median) -> f64| Curve {
        name: name.into(),
        points: all.iter().map(|m| (f64::from(m.submitters), of(m))).collect(),
    };
    let p99 = Curve::of_rows("p99", &rows, SUBMITTERS.map(|n| (f64::from(n), label(n))));
    Ok(Figure {
        subject: Subject::FemuFig2b,
        about: vec![
            format!("4 KiB random reads of a drive in memory that answers each after {DELAY}, in real time."),
            CLIENTS.into(),
            PEERS.into(),
            "The tail of the paper (99.99 % within 105 us, \"which already exists in stock QEMU\"; VSSIM's p99 over 150 us) is the \
             guest's and is not compared."
                .into(),
            "The paper adds the same delay by its advanced model to show what computing it costs; here that cost is measured \
             bare: real time a request, 16 channels, 16 reads of random pages in flight."
                .into(),
        ],
        rows,
        notes,
        charts: vec![chart(
            "Latency with a constant delay of 50 us",
            vec![line("mean", |m| m.mean), p99, line("p99 by the clock", |m| m.raw_p99)],
        )],
    })
}

/// Steps that are timed.
const STEPS: u32 = 200_000;

/// Real time of one read's decision, in nanoseconds.
fn cost(live: &mut dyn LiveMeasurements, preset: Preset) -> f64 {
    let parts = preset.parts(false);
    let shape: Shape = parts.geometry.shape().expect("a preset is a shape");
    let mut array = Array::new(&shape, &parts.timing, &Variability::default());
    let mut rng = Xoshiro256::new(2);
    let mut ends = [Nanos(0); 16];
    live.cost(STEPS, &mut |step| {
        let random = rng.next_u64() as u32;
        let at =
            PageAddress { plane: random % shape.planes(), block: 0, page: (random >> 16) % shape.pages_per_block() };
        let slot = &mut ends[step as usize % 16];
        *slot = array.read(*slot, at, 4096);
    })
}
