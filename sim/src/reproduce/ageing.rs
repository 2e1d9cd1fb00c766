//! A die that ages: one block is programmed, read and erased until it is half as old again as it is rated for.
//!
//! The laws are those of [`weir_flash::Variability`]: raw bit errors that grow as a power of the cycles (Mielke et al., IRPS
//! 2008), a code that corrects 40 bits of a KiB, and an array read more for each step of shifted voltages.

use super::numbers::micros;
use super::{Chart, Curve, Figure, LiveMeasurements, Row, Scale, Subject};
use weir_flash::{Array, Errors, Geometry, PageAddress, PageMap, Preset, UNIT, Variability};
use weir_units::Nanos;
use weir_workload::Histogram;

/// Cycles at which the block is looked at: the rating is 3000.
const AGES: [u32; 7] = [0, 750, 1500, 2250, 3000, 3750, 4500];
const RATED: u32 = 3000;
/// By how many thousandths programs are slower at the rating.
const SLOWDOWN: u32 = 150;
/// Reads of each kind of page at each age.
const READS: u32 = 4_000;

const VARIABILITY: Variability = Variability {
    seed: 9,
    chip_spread: 0,
    bad_chips: 0,
    bad_chip_slowdown: 0,
    bad_chip_errors: 0.0,
    page_spread: 0,
    initial_cycles: 0,
    wear_slowdown: SLOWDOWN,
    ecc_steps: None,
    errors: None,
    housekeeping: None,
};

/// What one kind of page was like at an age.
struct Look {
    reads: Histogram,
    retries: u64,
    failed: u64,
    /// In microseconds.
    program: f64,
}

/// The die, and when it is idle.
struct Die {
    array: Array,
    now: Nanos,
}

impl Die {
    fn new() -> Die {
        let parts = Preset::FemuOc.parts(false);
        let geometry = Geometry { channels: 1, ways: 1, blocks: 1, page_map: PageMap::Femu, ..parts.geometry };
        let shape = geometry.shape().expect("one die of the preset is a shape");
        let errors = Errors { endurance: RATED, ..Errors::default() };
        let variability = Variability { errors: Some(errors), ..VARIABILITY };
        Die { array: Array::new(&shape, &parts.timing, &variability), now: Nanos(0) }
    }

    /// Erases the block until it is so old.
    fn age(&mut self, cycles: u32) {
        while self.array.cycles(0, 0) < cycles {
            self.now = self.array.erase(self.now, 0, 0);
        }
    }

    /// Programs and reads a page.
    fn look(&mut self, page: u32) -> Look {
        let at = PageAddress { plane: 0, block: 0, page };
        let programmed = self.array.program(self.now, at, UNIT);
        let program = micros(programmed.done.saturating_sub(programmed.loaded).0 as f64);
        let mut look = Look { reads: Histogram::new(), retries: 0, failed: 0, program };
        self.now = programmed.done;
        for _ in 0..READS {
            let outcome = self.array.read_outcome(self.now, at, UNIT);
            look.reads.record(outcome.done.saturating_sub(self.now).0);
            look.retries += u64::from(outcome.retries);
            look.failed += u64::from(outcome.failed);
            self.now = outcome.done;
        }
        look
    }
}

/// A lower and an upper page of the pairing.
const KINDS: [(&str, u32); 2] = [("lower pages", 0), ("upper pages", 6)];

/// By kind of page, at each of [`AGES`].
fn lives() -> [Vec<Look>; 2] {
    let mut die = Die::new();
    let mut lives = [Vec::new(), Vec::new()];
    for cycles in AGES {
        die.age(cycles);
        for (life, (_, page)) in lives.iter_mut().zip(KINDS) {
            life.push(die.look(page));
        }
    }
    lives
}

/// What is told of a look, its unit, and how it is worked out.
type Statistic = (&'static str, &'static str, fn(&Look) -> f64);

const STATISTICS: [Statistic; 4] = [
    ("mean read", "us", |look| micros(look.reads.mean())),
    ("p99 read", "us", |look| micros(look.reads.percentile(99.0) as f64)),
    ("sensed again a read", "", |look| look.retries as f64 / f64::from(READS)),
    ("program", "us", |look| look.program),
];

fn label(kind: &str, statistic: &str, cycles: u32) -> String {
    format!("{kind}, {statistic}, {cycles} cycles")
}

/// One number over the life: each no less than the one before, and at the end more than at the beginning.
fn rows_of(kind: &str, (name, unit, of): Statistic, life: &[Look]) -> Vec<Row> {
    let values: Vec<f64> = life.iter().map(of).collect();
    let grows = values.last() > values.first();
    let row = |(i, cycles): (usize, &u32)| {
        let label = label(kind, name, *cycles);
        match i.checked_sub(1) {
            None => Row::told(label, values[i], unit, "what the others are compared with"),
            // Which read is retried is drawn: means of what hardly ever happens differ a little.
            Some(before) => Row::relation(
                label,
                values[i],
                unit,
                grows && values[i] >= values[before] * 0.99,
                "no less than in younger days, and more at the end than at the beginning",
            ),
        }
    };
    AGES.iter().enumerate().map(row).collect()
}

pub(super) fn figure(live: &mut dyn LiveMeasurements) -> Figure {
    let lives = lives();
    let mut rows = Vec::new();
    for ((kind, _), life) in KINDS.iter().zip(&lives) {
        for statistic in STATISTICS {
            rows.extend(rows_of(kind, statistic, life));
        }
        let until = AGES.iter().zip(life).filter(|(cycles, _)| **cycles <= RATED);
        let lost: u64 = until.map(|(_, look)| look.failed).sum();
        rows.push(Row::relation(
            format!("{kind}, reads lost up to the rating"),
            lost as f64,
            "",
            lost == 0,
            "none: retries read what the code alone cannot",
        ));
    }
    live.progress(1.0);
    let curve = |name: &str, kind: &str, statistic: &str| {
        Curve::of_rows(name, &rows, AGES.map(|cycles| (f64::from(cycles), label(kind, statistic, cycles))))
    };
    let both =
        |statistic: &str, of: &str| KINDS.map(|(kind, _)| curve(&format!("{kind}, {of}"), kind, statistic)).to_vec();
    let chart = |title: &'static str, height: &'static str, curves: Vec<Curve>| Chart {
        title,
        axes: ("program and erase cycles", height),
        scales: (Scale::Linear, Scale::Linear),
        curves,
        marks: Vec::new(),
    };
    let reads = [both("mean read", "mean"), both("p99 read", "p99")].concat();
    let charts = vec![
        chart("4 KiB reads over the life of a block", "latency, us", reads),
        chart("How often a read is sensed again", "senses more a read", both("sensed again a read", "retries")),
        chart("Programs over the life of a block", "program, us", both("program", "program")),
    ];
    Figure {
        subject: Subject::FemuAgeing,
        about: vec![
            format!(
                "A block of the advanced model (preset femu-oc) that is erased to 4500 cycles, rated for {RATED}: {READS} reads of a \
                 lower and of an upper page at each age, with the errors of the default configuration (10^-5 raw bit errors when \
                 new, 4 * 10^-3 more at the rating, growing with the square of the cycles; 40 bits of a KiB corrected)."
            ),
            format!(
                "Programs are made {} % slower at the rating (wear_slowdown). \"Bad chips can induce more error rates that require \
                 longer, repeated reads with different voltages. FEMU can also be extended to emulate such delays\": the paper \
                 prints no number.",
                SLOWDOWN / 10
            ),
        ],
        rows,
        notes: Vec::new(),
        charts,
    }
}
