//! Page-level latency variability (papers/002, sections 3.2.3 and 4): no two pages, and no two chips, are alike.

use super::numbers::micros;
use super::{Chart, Curve, Figure, LiveMeasurements, PrintedBound, Row, Scale, Subject};
use weir_flash::{Array, Errors, Geometry, PageAddress, Preset, Shape, UNIT, Variability};
use weir_units::Nanos;

/// Blocks of a chip that are looked at, and reads of each page for the retries.
const BLOCKS: u32 = 8;
/// Pages that the chart shows.
const SHOWN: u32 = 64;
/// How far the mean of a page kind may be from the paper's, in percent: chips differ by 5 % each.
const TOLERANCE: f64 = 2.0;

/// The OpenChannel drive whose chips differ by 5 %, pages by 8 %; an eighth of the chips is bad: 10 % slower, and 1.8 times as
/// many wrong bits. All blocks are at four fifths of their life.
const DIFFERENT: Variability = Variability {
    seed: 21,
    chip_spread: 50,
    bad_chips: 125,
    bad_chip_slowdown: 100,
    bad_chip_errors: 1.8,
    page_spread: 80,
    initial_cycles: 2400,
    wear_slowdown: 0,
    ecc_steps: None,
    errors: None,
    housekeeping: None,
};

const READS: &str = "48/64\u{b5}s for lower/upper-page read";
const WRITES: &str = "900/2400\u{b5}s for lower/upper-page write";

/// What was seen of one kind of page, in microseconds.
#[derive(Default)]
struct Kind {
    reads: Vec<f64>,
    programs: Vec<f64>,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// An idle array, and the time at which it is idle again whatever was asked of it.
struct Bench {
    array: Array,
    shape: Shape,
    now: Nanos,
}

impl Bench {
    fn new(variability: &Variability) -> Bench {
        let parts = Preset::FemuOc.parts(false);
        let shape =
            Geometry { blocks: BLOCKS, ..parts.geometry }.shape().expect("fewer blocks of the preset are a shape");
        Bench { array: Array::new(&shape, &parts.timing, variability), shape, now: Nanos(0) }
    }

    /// Array time of a 4 KiB read in microseconds, and how often it was sensed again.
    fn read(&mut self, at: PageAddress) -> (f64, u32) {
        self.now = self.now.saturating_add(Nanos::from_millis(10));
        let outcome = self.array.read_outcome(self.now, at, UNIT);
        let time = outcome.done.saturating_sub(self.now).saturating_sub(self.array.transfer_time(UNIT));
        (micros(time.0 as f64), outcome.retries)
    }

    /// Time in the cells in microseconds.
    fn program(&mut self, at: PageAddress) -> f64 {
        self.now = self.now.saturating_add(Nanos::from_millis(10));
        let done = self.array.program(self.now, at, UNIT);
        micros(done.done.saturating_sub(done.loaded).0 as f64)
    }
}

/// Whether the page is an upper one.
fn is_upper(shape: &Shape, page: u32) -> bool {
    let g = shape.geometry();
    g.page_map.table(g.cell, g.pages)[page as usize] > 0
}

/// All pages of all chips, lower and upper.
fn kinds() -> [Kind; 2] {
    let mut bench = Bench::new(&Variability { bad_chips: 0, ..DIFFERENT });
    let mut kinds = [Kind::default(), Kind::default()];
    for plane in 0..bench.shape.planes() {
        for page in 0..bench.shape.pages_per_block() {
            let at = PageAddress { plane, block: page % BLOCKS, page };
            let kind = &mut kinds[usize::from(is_upper(&bench.shape, page))];
            kind.reads.push(bench.read(at).0);
            kind.programs.push(bench.program(at));
        }
    }
    kinds
}

/// The part of the reads of a chip that are sensed again, in percent; the chip's program time of a lower page tells whether it
/// is a bad one.
fn retried(bench: &mut Bench, plane: u32) -> f64 {
    let pages = bench.shape.pages_per_block();
    let mut again = 0;
    for page in 0..pages {
        again += u32::from(bench.read(PageAddress { plane, block: page % BLOCKS, page }).1 > 0);
    }
    f64::from(again) * 100.0 / f64::from(pages)
}

fn label(chip: u32, is_bad: bool) -> String {
    format!("chip {chip:02}, {}, reads sensed again", if is_bad { "bad" } else { "good" })
}

/// Reads sensed again on every chip, the bad ones held to more than any good one.
fn chips() -> Vec<(String, Row)> {
    let errors = Errors { rber_worn: 5e-3, ..Errors::default() };
    let mut bench = Bench::new(&Variability { errors: Some(errors), ..DIFFERENT });
    // By the data sheet's time: chips lie within 5 %, bad ones are 10 % slower.
    let sheet = Nanos(1_000_000);
    let plane_of = |chip: u32| bench.shape.plane(chip, 0, 0);
    let planes: Vec<u32> = (0..bench.shape.dies()).map(plane_of).collect();
    let fresh = Bench::new(&Variability { bad_chips: 0, ..DIFFERENT });
    let bad: Vec<bool> =
        planes.iter().map(|p| bench.array.on_chip(*p, sheet) > fresh.array.on_chip(*p, sheet)).collect();
    let shares: Vec<f64> = planes.iter().map(|p| retried(&mut bench, *p)).collect();
    let good = shares.iter().zip(&bad).filter(|(_, bad)| !**bad).map(|(s, _)| *s).fold(0.0, f64::max);
    let row = |(chip, (share, bad)): (usize, (&f64, &bool))| {
        let label = label(chip as u32, *bad);
        let row = if *bad {
            Row::relation(
                label.clone(),
                *share,
                "%",
                *share > good,
                "more than on any good chip: \"Bad chips can induce more error rates that require longer, repeated reads\"",
            )
        } else {
            Row::told(label.clone(), *share, "%", "what the bad chips are compared with")
        };
        (label, row)
    };
    shares.iter().zip(&bad).enumerate().map(row).collect()
}

/// Reads of the first pages of a block, page by page.
fn pages_of(name: &str, variability: &Variability) -> Curve {
    let mut bench = Bench::new(variability);
    let point = |page| (f64::from(page), bench.read(PageAddress { plane: 0, block: 0, page }).0);
    Curve { name: name.into(), points: (0..SHOWN).map(point).collect() }
}

pub(super) fn figure(live: &mut dyn LiveMeasurements) -> Figure {
    let [lower, upper] = kinds();
    live.progress(0.5);
    let printed = |label: &str, values: &[f64], value, quote| {
        Row::printed(label, mean(values), "us", value, PrintedBound::Within(TOLERANCE), quote)
    };
    let mut rows = vec![
        printed("lower pages, mean read", &lower.reads, 48.0, READS),
        printed("upper pages, mean read", &upper.reads, 64.0, READS),
        printed("lower pages, mean program", &lower.programs, 900.0, WRITES),
        printed("upper pages, mean program", &upper.programs, 2400.0, WRITES),
    ];
    let (labels, chips): (Vec<String>, Vec<Row>) = chips().into_iter().unzip();
    rows.extend(chips);
    let points = labels.into_iter().enumerate().map(|(chip, label)| (chip as f64, label));
    let shares = Curve::of_rows("reads sensed again", &rows, points);
    live.progress(1.0);
    Figure {
        subject: Subject::FemuPages,
        about: vec![
            "All 512 pages of 16 chips of the advanced model (preset femu-oc), each alone: array reads and programs, without \
             the channel. Chips lie within 5 % of the paper's times, the pages of a chip within 8 % of the chip's."
                .into(),
            "For the reads that are sensed again an eighth of the chips is bad, 10 % slower and with 1.8 times as many wrong bits, \
             at four fifths of its life (2400 of 3000 cycles, a code of 40 bits for each KiB). \"High quality chips are mixed with \
             lesser quality chips\"; the paper prints neither spreads nor error rates, so these are chosen."
                .into(),
        ],
        rows,
        notes: Vec::new(),
        charts: vec![
            Chart {
                title: "Array read by page of a block",
                axes: ("page", "array read, us"),
                scales: (Scale::Linear, Scale::Linear),
                curves: vec![
                    pages_of("pages differ", &DIFFERENT),
                    pages_of("every page as the paper has it", &Variability::default()),
                ], marks: Vec::new() },
            Chart {
                title: "Reads that are sensed again, by chip",
                axes: ("chip", "reads sensed again, %"),
                scales: (Scale::Linear, Scale::Linear),
                curves: vec![shares], marks: Vec::new() },
        ],
    }
}
