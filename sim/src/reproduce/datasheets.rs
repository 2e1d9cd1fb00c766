//! The drives that have a profile, against their data sheets.
//!
//! Each is measured as a user has it: its profile with a capacity that fits into memory. Dies, channels and times stay, and so
//! does what write amplification follows from (`profile::resized`).

use super::numbers::micros;
use super::{Chart, Curve, Figure, LiveMeasurements, Measured, PrintedBound, Row, Scale, Subject, flash_loop};
use weir_config::DeviceConfig;
use weir_flash::{Flash, FlashDriveConfig, FlashOp, Precondition};
use weir_units::Nanos;
use weir_workload::Xoshiro256;

/// How far ours may be from the sheet, in percent.
const TOLERANCE: f64 = 10.0;
/// The same for percentiles from 99 on: the last ones rest on a few dozen requests of whoever measured them, and of ours.
const TAIL: f64 = 25.0;

/// Requests of a distribution of which percentiles are published, and of one of which none is.
const COUNTED: u64 = 2_000_000;
const LOOKED_AT: u64 = 200_000;

/// What is asked of a drive.
#[derive(Clone, Copy)]
enum Load {
    /// Requests of so many units in order at that depth: MB/s. Reads of what was written in order, writes of a fresh drive.
    Sequential { write: bool, units: u32, depth: u32 },
    /// 4 KiB anywhere at that depth: thousands a second. Reads of what was written in order.
    Random { write: bool, depth: u32, state: Precondition },
    /// 4 KiB anywhere, one after the other: their mean in microseconds.
    Latency { write: bool },
}

/// A figure of a sheet.
struct Sheet {
    load: Load,
    /// In the load's unit.
    value: f64,
    /// What the sheet says, and which sheet it is.
    quote: &'static str,
    /// Whether a number of the profile was chosen so that this comes out.
    is_fitted: bool,
}

/// 4 KiB anywhere at that depth, and what is published of the latencies.
struct Spread {
    write: bool,
    depth: u32,
    /// What the host takes between an answer and the next request: by Little's law the depth over the published requests a
    /// second, less the published mean.
    host: Nanos,
    points: &'static [Point],
}

/// One number of a distribution.
struct Point {
    statistic: Statistic,
    published: Published,
}

#[derive(Clone, Copy, PartialEq)]
enum Statistic {
    /// Thousands a second.
    Rate,
    /// In microseconds, as all below.
    Mean,
    Percentile(f64),
}

#[derive(Clone, Copy)]
enum Published {
    /// A number of the profile was chosen so that this comes out.
    Fitted(f64, &'static str),
    /// None was.
    Judged(f64, &'static str),
    /// A sheet's "at most".
    Target(f64, &'static str),
    /// Measured, and a sheet's "at most", which ours is held to.
    Beside { value: f64, quote: &'static str, most: f64, text: &'static str },
    /// Of another capacity of the drive: there to be read.
    Other(f64, &'static str),
}

/// A drive and what its sheet has.
struct Drive {
    profile: &'static str,
    sheets: &'static [Sheet],
    spreads: &'static [Spread],
}

const READ: Load = Load::Sequential { write: false, units: 32, depth: 32 };
const WRITE: Load = Load::Sequential { write: true, units: 32, depth: 32 };
const ANYWHERE: Load = Load::Random { write: false, depth: 128, state: Precondition::Sequential };
const REST: Load = Load::Random { write: true, depth: 128, state: Precondition::Steady };
const ALONE: Load = Load::Latency { write: false };
const WRITTEN: Load = Load::Latency { write: true };

const P3700: &str =
    "Seq R/W: Up to 2800/2000MB/s; IOPS Rnd 4KB R/W: Up to 460/175K; Seq Latency (typ) R/W: 20/20us (330566-005US)";
const P3700_800: &str = "800 GB: 2800/1900 MB/s, 460/90 K; Seq Latency (typ) R/W: 20/20us (330566)";
const P3600: &str =
    "Seq R/W: Up to 2600/1700MB/s; IOPS Rnd 4KB R/W: Up to 450/56K; Seq Latency (typ) R/W: 20/20us (330569-009US)";
const P3700_READ: &str =
    "Intel SSD DC P3700 800GB, 4kB Random Read at a Queue Depth of 1, mean 77.9 us (measured; AnandTech 11209)";
const PM963: &str = "2000/1200 MB/s, 430/40 K (the vendor's page, not checked)";
const PRO: &str = "Sequential 3500/2100 MB/s; 4kB Random (QD32) 330k/330k IOPS, (QD1) 14k/50k IOPS (AnandTech 10754)";
const OPTANE: &str = "Sequential (64kB) 2400/2000 MB/s; Random (4 kB) IOPS (QD16) 550,000/500,000; Typical Latency (R/W) <10us \
                      (AnandTech 11930)";
const OPTANE_READ: &str = "Intel Optane SSD DC P4800X 375GB, 4kB Random Read at a Queue Depth of 1: 108.3k IOPS, mean 8.9, median 9, 99th \
                           10, 99.999th 37 us (measured; AnandTech 11209)";
const OPTANE_16: &str = "Intel Optane SSD DC P4800X 375GB, 4kB Random Read at a Queue Depth of 16: 584.8k IOPS, mean 25.5, median 25, \
                         99th 41, 99.999th 81 us (measured; AnandTech 11209)";
const OPTANE_TAIL: &str = "Random Write 99.999% Latency (QD1) 100us, (QD16) 200us (AnandTech 11930)";
const P3700_1: &str = "Intel SSD DC P3700 800GB, 4kB Random Read at a Queue Depth of 1: 12.8k IOPS, mean 77.9, median 76, 99th 96, \
                       99.999th 2768 us (measured; AnandTech 11209)";
const P3700_16: &str = "Intel SSD DC P3700 800GB, 4kB Random Read at a Queue Depth of 16: 167.2k IOPS, mean 93.9, median 91, 99th 163, \
                        99.999th 2320 us (measured; AnandTech 11209)";

const fn sheet(load: Load, value: f64, quote: &'static str) -> Sheet {
    Sheet { load, value, quote, is_fitted: true }
}

const fn judged(load: Load, value: f64, quote: &'static str) -> Sheet {
    Sheet { load, value, quote, is_fitted: false }
}

const P50: Statistic = Statistic::Percentile(50.0);
const P99: Statistic = Statistic::Percentile(99.0);
const P99_999: Statistic = Statistic::Percentile(99.999);
/// Every distribution has these, whatever is published.
const PERCENTILES: [Statistic; 4] = [P50, P99, Statistic::Percentile(99.9), P99_999];

const fn fitted(statistic: Statistic, value: f64, quote: &'static str) -> Point {
    Point { statistic, published: Published::Fitted(value, quote) }
}

const fn unfitted(statistic: Statistic, value: f64, quote: &'static str) -> Point {
    Point { statistic, published: Published::Judged(value, quote) }
}

const fn target(statistic: Statistic, value: f64, quote: &'static str) -> Point {
    Point { statistic, published: Published::Target(value, quote) }
}

const fn other(statistic: Statistic, value: f64, quote: &'static str) -> Point {
    Point { statistic, published: Published::Other(value, quote) }
}

const fn reads(depth: u32, host: u64, points: &'static [Point]) -> Spread {
    Spread { write: false, depth, host: Nanos(host), points }
}

const fn writes(depth: u32, points: &'static [Point]) -> Spread {
    Spread { write: true, depth, host: Nanos(0), points }
}

/// Reads at depth 1 of which nothing is published but what [`Drive::sheets`] has.
const OPEN: [Spread; 1] = [reads(1, 0, &[])];

/// [`Preset`](weir_flash::Preset)s have no sheet, and `oc-westlake` none with a throughput: the paper's times of that one are a
/// test.
const DRIVES: [Drive; 6] = [
    Drive {
        profile: "p3700",
        sheets: &[
            sheet(READ, 2800.0, P3700),
            sheet(WRITE, 2000.0, P3700),
            sheet(ANYWHERE, 460.0, P3700),
            sheet(REST, 175.0, P3700),
            sheet(ALONE, 77.9, P3700_READ),
            sheet(WRITTEN, 20.0, P3700),
        ],
        spreads: &[
            reads(1, 200, &[other(P50, 76.0, P3700_1), other(P99, 96.0, P3700_1), other(P99_999, 2768.0, P3700_1)]),
            reads(
                16,
                1_800,
                &[
                    other(Statistic::Rate, 167.2, P3700_16),
                    other(Statistic::Mean, 93.9, P3700_16),
                    other(P50, 91.0, P3700_16),
                    other(P99, 163.0, P3700_16),
                    other(P99_999, 2320.0, P3700_16),
                ],
            ),
        ],
    },
    Drive {
        profile: "p3700-800g",
        sheets: &[
            sheet(READ, 2800.0, P3700_800),
            sheet(WRITE, 1900.0, P3700_800),
            sheet(ANYWHERE, 460.0, P3700_800),
            sheet(REST, 90.0, P3700_800),
            sheet(ALONE, 77.9, P3700_READ),
            sheet(WRITTEN, 20.0, P3700_800),
        ],
        spreads: &[
            reads(1, 200, &[fitted(P50, 76.0, P3700_1), fitted(P99, 96.0, P3700_1), fitted(P99_999, 2768.0, P3700_1)]),
            reads(
                16,
                1_800,
                &[
                    fitted(Statistic::Rate, 167.2, P3700_16),
                    fitted(Statistic::Mean, 93.9, P3700_16),
                    unfitted(P50, 91.0, P3700_16),
                    unfitted(P99, 163.0, P3700_16),
                    fitted(P99_999, 2320.0, P3700_16),
                ],
            ),
        ],
    },
    Drive {
        profile: "p3600",
        sheets: &[
            sheet(READ, 2600.0, P3600),
            sheet(WRITE, 1700.0, P3600),
            sheet(ANYWHERE, 450.0, P3600),
            sheet(REST, 56.0, P3600),
            sheet(WRITTEN, 20.0, P3600),
        ],
        spreads: &OPEN,
    },
    Drive {
        profile: "pm963",
        sheets: &[
            sheet(READ, 2000.0, PM963),
            sheet(WRITE, 1200.0, PM963),
            sheet(ANYWHERE, 430.0, PM963),
            sheet(REST, 40.0, PM963),
        ],
        spreads: &OPEN,
    },
    Drive {
        profile: "960pro",
        sheets: &[
            sheet(READ, 3500.0, PRO),
            sheet(WRITE, 2100.0, PRO),
            sheet(ANYWHERE, 330.0, PRO),
            // Of a drive for desktops: fresh.
            sheet(Load::Random { write: true, depth: 128, state: Precondition::Fresh }, 330.0, PRO),
            sheet(ALONE, 1e3 / 14.0, PRO),
            sheet(WRITTEN, 1e3 / 50.0, PRO),
        ],
        spreads: &OPEN,
    },
    Drive {
        profile: "optane-p4800x",
        sheets: &[
            sheet(Load::Sequential { write: false, units: 16, depth: 16 }, 2400.0, OPTANE),
            sheet(Load::Sequential { write: true, units: 16, depth: 16 }, 2000.0, OPTANE),
            judged(Load::Random { write: false, depth: 16, state: Precondition::Sequential }, 550.0, OPTANE),
            judged(Load::Random { write: true, depth: 16, state: Precondition::Steady }, 500.0, OPTANE),
            sheet(ALONE, 8.9, OPTANE_READ),
        ],
        spreads: &[
            reads(
                1,
                330,
                &[fitted(P50, 9.0, OPTANE_READ), fitted(P99, 10.0, OPTANE_READ), fitted(P99_999, 37.0, OPTANE_READ)],
            ),
            reads(
                16,
                1_860,
                &[
                    fitted(Statistic::Rate, 584.8, OPTANE_16),
                    unfitted(Statistic::Mean, 25.5, OPTANE_16),
                    unfitted(P50, 25.0, OPTANE_16),
                    unfitted(P99, 41.0, OPTANE_16),
                    Point {
                        statistic: P99_999,
                        published: Published::Beside {
                            value: 81.0,
                            quote: OPTANE_16,
                            most: 150.0,
                            text: "at most 150 us, the sheet's \"Random Read 99.999% Latency (QD16)\"",
                        },
                    },
                ],
            ),
            writes(1, &[target(P99_999, 100.0, OPTANE_TAIL)]),
            writes(16, &[target(P99_999, 200.0, OPTANE_TAIL)]),
        ],
    },
];

/// The profile on a drive that fits into memory.
pub(super) fn config(profile: &str) -> FlashDriveConfig {
    let device = DeviceConfig::from_query(profile, "capacity=32GiB");
    let flash = device.ok().and_then(|device| device.flash);
    flash.expect("every profile makes a drive of 32 GiB").config
}

impl Load {
    fn name(self) -> String {
        match self {
            Load::Sequential { write, units, depth } => {
                format!("{} KiB sequential {}, depth {depth}", units * 4, of(write))
            }
            Load::Random { write: false, depth, .. } => format!("4 KiB random reads, depth {depth}"),
            Load::Random { depth, state, .. } => format!("4 KiB random writes, depth {depth}, {state}"),
            Load::Latency { write } => format!("4 KiB random {}, depth 1, mean", of(write)),
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Load::Sequential { .. } => "MB/s",
            Load::Random { .. } => "k/s",
            Load::Latency { .. } => "us",
        }
    }

    fn run(self, config: &FlashDriveConfig) -> f64 {
        let drive = |state| {
            let mut flash = Flash::new(config, Nanos(0)).expect("a profile fits together");
            flash.precondition(state);
            flash
        };
        match self {
            Load::Sequential { write, units, depth } => sequential(
                &mut drive(if write { Precondition::Fresh } else { Precondition::Sequential }),
                self,
                units,
                depth,
            ),
            Load::Random { write: false, depth, state } => {
                random(&mut drive(state), self, depth, (10_000, 100_000)) / 1e3
            }
            Load::Random { depth, state, .. } => {
                let mut flash = drive(state);
                let some = u64::from(flash.units()) / 8;
                random(&mut flash, self, depth, (some, some)) / 1e3
            }
            Load::Latency { write } => {
                let state = if write { Precondition::Fresh } else { Precondition::Sequential };
                1e6 / random(&mut drive(state), self, 1, (100, 4_000))
            }
        }
    }

    fn op(self) -> FlashOp {
        match self {
            Load::Sequential { write, .. } | Load::Random { write, .. } | Load::Latency { write } if write => {
                FlashOp::Write { fua: false }
            }
            _ => FlashOp::Read,
        }
    }
}

impl Statistic {
    fn name(self) -> String {
        match self {
            Statistic::Rate => "thousands a second".into(),
            Statistic::Mean => "mean latency".into(),
            Statistic::Percentile(percent) => format!("p{percent}"),
        }
    }

    fn unit(self) -> &'static str {
        if self == Statistic::Rate { "k/s" } else { "us" }
    }

    /// How far ours may be from what was measured, in percent.
    fn tolerance(self) -> f64 {
        if matches!(self, Statistic::Percentile(percent) if percent >= 99.0) { TAIL } else { TOLERANCE }
    }
}

impl Spread {
    /// Ours: answers and requests as the host has them, latencies with the host's time still in them.
    fn run(&self, config: &FlashDriveConfig) -> Measured {
        let mut flash = Flash::new(config, Nanos(0)).expect("a profile fits together");
        flash.precondition(if self.write { Precondition::Fresh } else { Precondition::Sequential });
        let op = if self.write { FlashOp::Write { fua: false } } else { FlashOp::Read };
        let (units, mut rng) = (u64::from(flash.units()), Xoshiro256::new(2));
        let any = |published: &Published| !matches!(published, Published::Other(..));
        let count = if self.points.iter().any(|p| any(&p.published)) { COUNTED } else { LOOKED_AT };
        flash_loop(&mut flash, Nanos(0), (self.depth, self.host), (1_000, count), || (op, rng.below(units) as u32, 1))
    }

    fn value(&self, measured: &Measured, statistic: Statistic) -> f64 {
        let host = self.host.0 as f64;
        match statistic {
            Statistic::Rate => measured.iops() / 1e3,
            Statistic::Mean => micros(measured.latency.mean() - host),
            Statistic::Percentile(percent) => micros(measured.latency.percentile(percent) as f64 - host),
        }
    }

    fn label(&self, profile: &str) -> String {
        format!("{profile}, 4 KiB random {}, depth {}", of(self.write), self.depth)
    }

    /// What is published, then the percentiles of which nothing is.
    fn rows(&self, profile: &str, measured: &Measured) -> Vec<Row> {
        let label = |s: Statistic, mark: &str| format!("{}, {}{mark}", self.label(profile), s.name());
        let published = self.points.iter().map(|point| {
            let (s, ours) = (point.statistic, self.value(measured, point.statistic));
            let within = PrintedBound::Within(s.tolerance());
            match point.published {
                Published::Fitted(value, quote) => Row::printed(label(s, FITTED), ours, s.unit(), value, within, quote),
                Published::Judged(value, quote) => Row::printed(label(s, ""), ours, s.unit(), value, within, quote),
                Published::Target(value, quote) => {
                    Row::printed(label(s, ""), ours, s.unit(), value, PrintedBound::Below, quote)
                }
                Published::Beside { value, quote, most, text } => {
                    Row::beside(label(s, ""), ours, s.unit(), value, quote, ours <= most, text)
                }
                Published::Other(value, quote) => {
                    Row::told(label(s, ""), ours, s.unit(), format!("another capacity has {value}: \"{quote}\""))
                }
            }
        });
        let is_open = |s: &Statistic| self.points.iter().all(|p| p.statistic != *s);
        let open = PERCENTILES.into_iter().filter(is_open);
        let open = open.map(|s| Row::told(label(s, ""), self.value(measured, s), s.unit(), "nothing is published"));
        published.chain(open).collect()
    }

    /// The part of the requests that are answered within a time.
    fn curve(&self, profile: &str, measured: &Measured) -> Curve {
        let (mut sum, count) = (0, measured.latency.count().max(1) as f64);
        let points = measured.latency.buckets().map(|(low, width, n)| {
            sum += n;
            (micros((low + width) as f64 - self.host.0 as f64), sum as f64 / count)
        });
        Curve { name: self.label(profile), points: points.collect() }
    }
}

/// The mark of a row of which a number of the profile was chosen so that it comes out.
const FITTED: &str = ", fitted";

fn of(write: bool) -> &'static str {
    if write { "writes" } else { "reads" }
}

/// MB/s of requests of so many units, one after the other; the first quarter of the drive is not counted, half of it is.
fn sequential(flash: &mut Flash, load: Load, units: u32, depth: u32) -> f64 {
    let requests = u64::from(flash.units() / units);
    let mut next = 0;
    let all = flash.units();
    let done = flash_loop(flash, Nanos(0), (depth, Nanos(0)), (requests / 4, requests / 2), || {
        let lpn = next;
        next = if next + 2 * units > all { 0 } else { next + units };
        (load.op(), lpn, units)
    });
    done.iops() * f64::from(units) * 4096.0 / 1e6
}

/// Requests a second of 4 KiB.
fn random(flash: &mut Flash, load: Load, depth: u32, counts: (u64, u64)) -> f64 {
    let (units, mut rng) = (u64::from(flash.units()), Xoshiro256::new(1));
    flash_loop(flash, Nanos(0), (depth, Nanos(0)), counts, || (load.op(), rng.below(units) as u32, 1)).iops()
}

pub(super) fn figure(live: &mut dyn LiveMeasurements) -> Figure {
    let (mut rows, mut curves, mut shapes) = (Vec::new(), Vec::new(), Vec::new());
    for (at, drive) in DRIVES.iter().enumerate() {
        let config = config(drive.profile);
        let mut of_drive = Vec::new();
        for Sheet { load, value, quote, is_fitted } in drive.sheets {
            let label = format!("{}, {}{}", drive.profile, load.name(), if *is_fitted { FITTED } else { "" });
            of_drive.push(Row::printed(
                label,
                load.run(&config),
                load.unit(),
                *value,
                PrintedBound::Within(TOLERANCE),
                quote,
            ));
        }
        for spread in drive.spreads {
            let measured = spread.run(&config);
            of_drive.extend(spread.rows(drive.profile, &measured));
            shapes.push(spread.curve(drive.profile, &measured));
        }
        let deviations = of_drive.iter().filter_map(Row::deviation_pct).enumerate();
        let points = deviations.map(|(i, deviation)| (i as f64 + 1.0, deviation)).collect();
        curves.push(Curve { name: drive.profile.into(), points });
        rows.extend(of_drive);
        live.progress((at + 1) as f64 / DRIVES.len() as f64);
    }
    Figure {
        subject: Subject::Datasheets,
        about: vec![
            "Each drive that has a profile, with a capacity of 32 GiB, in virtual time, against its data sheet; measurements \
             of others where the sheet is silent. The profile's file says which of its numbers are cited and which are \
             estimated, and from what."
                .into(),
            "A row that is marked \"fitted\" says only that its number could be had: something in the profile was chosen so that it \
             comes out. The other rows judge the profile. Percentiles of which nothing is published are told."
                .into(),
            "Distributions are of a host that takes some time between an answer and its next request, as whoever measured \
             did: what the published requests a second leave beside the published mean latency."
                .into(),
            "Sequential reads one at a time, for which Intel's sheets have 20 us, come out of a read-ahead buffer on the drive, \
             which is not modelled: the latency of random reads stands in their place."
                .into(),
        ],
        rows,
        notes: Vec::new(),
        charts: vec![
            Chart {
                title: "Deviation from the data sheet, figure by figure",
                axes: ("figure of the sheet", "deviation, %"),
                scales: (Scale::Linear, Scale::Linear),
                curves, marks: Vec::new() },
            Chart {
                title: "Requests answered within a time",
                axes: ("latency, us", "part of the requests"),
                scales: (Scale::Log, Scale::Linear),
                curves: shapes, marks: Vec::new() },
        ],
    }
}
