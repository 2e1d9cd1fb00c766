//! The drives that have a profile, against their data sheets.
//!
//! Each is measured as a user has it: its profile with a capacity that fits into memory. Dies, channels and times stay, and so
//! does what write amplification follows from (`profile::resized`).

use super::{Bound, Chart, Curve, Figure, Live, Row, Scale, Subject, closed_loop};
use weir_flash::{Config, Flash, FlashOp, Precondition};
use weir_node::config::DeviceConfig;
use weir_units::Nanos;
use weir_workload::Rng;

/// How far ours may be from the sheet, in percent.
const TOLERANCE: f64 = 10.0;

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
}

/// A drive and what its sheet has.
struct Drive {
    profile: &'static str,
    sheets: &'static [Sheet],
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
const OPTANE_READ: &str = "Intel Optane SSD DC P4800X 375GB, 4kB Random Read at a Queue Depth of 1, mean 8.9 us (measured; \
                           AnandTech 11209)";

const fn sheet(load: Load, value: f64, quote: &'static str) -> Sheet {
    Sheet { load, value, quote }
}

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
    },
    Drive {
        profile: "pm963",
        sheets: &[
            sheet(READ, 2000.0, PM963),
            sheet(WRITE, 1200.0, PM963),
            sheet(ANYWHERE, 430.0, PM963),
            sheet(REST, 40.0, PM963),
        ],
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
    },
    Drive {
        profile: "optane-p4800x",
        sheets: &[
            sheet(Load::Sequential { write: false, units: 16, depth: 16 }, 2400.0, OPTANE),
            sheet(Load::Sequential { write: true, units: 16, depth: 16 }, 2000.0, OPTANE),
            sheet(Load::Random { write: false, depth: 16, state: Precondition::Sequential }, 550.0, OPTANE),
            sheet(Load::Random { write: true, depth: 16, state: Precondition::Steady }, 500.0, OPTANE),
            sheet(ALONE, 8.9, OPTANE_READ),
        ],
    },
];

/// The profile on a drive that fits into memory.
pub(super) fn config(profile: &str) -> Config {
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

    fn run(self, config: &Config) -> f64 {
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

fn of(write: bool) -> &'static str {
    if write { "writes" } else { "reads" }
}

/// MB/s of requests of so many units, one after the other; the first quarter of the drive is not counted, half of it is.
fn sequential(flash: &mut Flash, load: Load, units: u32, depth: u32) -> f64 {
    let requests = u64::from(flash.units() / units);
    let mut next = 0;
    let done = closed_loop(Nanos(0), depth, (requests / 4, requests / 2), |now, _| {
        let lpn = next;
        next = if next + 2 * units > flash.units() { 0 } else { next + units };
        flash.submit(now, load.op(), lpn, units)
    });
    done.iops() * f64::from(units) * 4096.0 / 1e6
}

/// Requests a second of 4 KiB.
fn random(flash: &mut Flash, load: Load, depth: u32, counts: (u64, u64)) -> f64 {
    let (units, mut rng) = (u64::from(flash.units()), Rng::new(1));
    closed_loop(Nanos(0), depth, counts, |now, _| flash.submit(now, load.op(), rng.below(units) as u32, 1)).iops()
}

pub(super) fn figure(live: &mut dyn Live) -> Figure {
    let (mut rows, mut curves) = (Vec::new(), Vec::new());
    for (at, drive) in DRIVES.iter().enumerate() {
        let config = config(drive.profile);
        let mut points = Vec::new();
        for (i, Sheet { load, value, quote }) in drive.sheets.iter().enumerate() {
            let label = format!("{}, {}", drive.profile, load.name());
            let row = Row::printed(label, load.run(&config), load.unit(), *value, Bound::Within(TOLERANCE), quote);
            points.extend(row.deviation_pct().map(|deviation| (i as f64 + 1.0, deviation)));
            rows.push(row);
        }
        curves.push(Curve { name: drive.profile.into(), points });
        live.progress((at + 1) as f64 / DRIVES.len() as f64);
    }
    Figure {
        subject: Subject::Datasheets,
        about: vec![
            "Each drive that has a profile, with a capacity of 32 GiB, in virtual time, against its data sheet; measurements \
             of others where the sheet is silent. The profile's file says which of its numbers are cited and which are \
             estimated, and from what."
                .into(),
            "Sequential reads one at a time, for which Intel's sheets have 20 us, come out of a read-ahead buffer on the drive, \
             which is not modelled: the latency of random reads stands in their place."
                .into(),
        ],
        rows,
        notes: Vec::new(),
        charts: vec![Chart {
            title: "Deviation from the data sheet, figure by figure",
            axes: ("figure of the sheet", "deviation, %"),
            scales: (Scale::Linear, Scale::Linear),
            curves,
        }],
    }
}
