//! Figure 6a of papers/002: reads while garbage collection blocks the controller, a channel or a plane.

use super::numbers::micros;
use super::{Chart, Curve, Figure, LiveMeasurements, Row, Scale, Subject};
use weir_flash::{
    BufferConfig, CellType, Flash, FlashDriveConfig, FlashOp, FlashTiming, FtlConfig, GcConfig, GcMode, Geometry,
    HostTiming, OperationUnit, PageMap, Precondition, Preset, Registers, Variability, Wire, uniform,
};
use weir_units::Nanos;
use weir_workload::{Histogram, Pacer, Rate, Xoshiro256};

/// Requests that are counted, and a quarter of that before.
const REQUESTS: u64 = 100_000;
/// Requests a second: few enough for the mode that blocks everything.
const RATE: u64 = 2_000;
/// Of 100 requests.
const READS: u64 = 70;

/// FEMU's default drive (40, 200 and 2000 us; 64 dies on 8 channels) with a channel of 400 MB/s, a quarter of its blocks'
/// pages and 28 % over-provisioning.
pub(super) fn config(mode: GcMode) -> FlashDriveConfig {
    let parts = Preset::FemuBbssd.parts(false);
    FlashDriveConfig {
        geometry: Geometry {
            channels: 8,
            ways: 8,
            planes: 1,
            blocks: 64,
            pages: 64,
            page_bytes: 4096,
            spare_bytes: 128,
            cell: CellType::Slc,
            page_map: PageMap::Modulo,
        },
        timing: FlashTiming {
            gate: OperationUnit::Die,
            registers: Registers::Single,
            read: uniform(40_000),
            program: uniform(200_000),
            erase: Nanos(2_000_000),
            channel: Wire::bytes_per_second(400_000_000),
            ..parts.timing
        },
        variability: Variability::default(),
        host: HostTiming::INSTANT,
        ftl: FtlConfig {
            over_provisioning: 0.28,
            gc: GcConfig { mode, ..FtlConfig::DEFAULT.gc },
            ..FtlConfig::DEFAULT
        },
        buffer: BufferConfig::NONE,
        seed: 6,
    }
}

/// Latencies of the reads.
fn reads(mode: GcMode) -> Histogram {
    let mut flash = Flash::new(&config(mode), Nanos(0)).expect("the drive above fits together");
    flash.precondition(Precondition::Steady);
    let (mut latencies, mut rng) = (Histogram::new(), Xoshiro256::new(66));
    let mut pacer = Pacer::poisson(Rate::Iops(RATE), Nanos(0), 666);
    for i in 0..REQUESTS / 4 + REQUESTS {
        let now = pacer.due();
        pacer.advance(4096);
        let is_read = rng.below(100) < READS;
        let op = if is_read { FlashOp::Read } else { FlashOp::Write { fua: false } };
        let lpn = rng.below(u64::from(flash.units())) as u32;
        let done = flash.submit(now, op, lpn, 1);
        if is_read && i >= REQUESTS / 4 {
            latencies.record(done.saturating_sub(now).0);
        }
    }
    latencies
}

pub(super) const PLANE: &str = "\"In plane-blocking GC, the most efficient one, page movement only flows within a plane without using \
                     any channel\"";
pub(super) const CHANNEL: &str = "\"In controller-blocking GC, a GC operation 'locks down' the controller\"; \"In \
                       channel-blocking GC, only channels involved in GC page movement are blocked\"";

pub(super) fn figure(live: &mut dyn LiveMeasurements) -> Figure {
    let modes = [GcMode::Controller, GcMode::Channel, GcMode::Plane, GcMode::Preemptive];
    let mut all: Vec<(GcMode, Histogram)> = Vec::new();
    for (at, mode) in modes.into_iter().enumerate() {
        all.push((mode, reads(mode)));
        live.progress((at + 1) as f64 / modes.len() as f64);
    }
    let mut rows = Vec::new();
    type Statistic = (&'static str, fn(&Histogram) -> f64);
    let statistics: [Statistic; 4] = [
        ("mean", |h| h.mean()),
        ("p90", |h| h.percentile(90.0) as f64),
        ("p99", |h| h.percentile(99.0) as f64),
        ("p99.9", |h| h.percentile(99.9) as f64),
    ];
    for (name, statistic) in statistics {
        for (i, (mode, latencies)) in all.iter().enumerate() {
            let (label, ours) = (format!("{mode}: {name} of reads"), micros(statistic(latencies)));
            let Some(before) = i.checked_sub(1).map(|before| &all[before]) else {
                rows.push(Row::told(label, ours, "us", "the one that the others are compared with"));
                continue;
            };
            let reason = match mode {
                GcMode::Channel => CHANNEL,
                GcMode::Plane => PLANE,
                _ => "a page at a time, between requests (not in the paper)",
            };
            let holds = ours <= micros(statistic(&before.1));
            rows.push(Row::relation(label, ours, "us", holds, format!("no more than {}: {reason}", before.0)));
        }
    }
    let curve = |(mode, latencies): &(GcMode, Histogram)| {
        let mut sum = 0;
        let count = latencies.count().max(1) as f64;
        // Of a bucket: its lowest value, its width and its count. Up to its upper end all of it is answered.
        let points = latencies.buckets().map(|(low, width, n)| {
            sum += n;
            (micros((low + width) as f64), sum as f64 / count)
        });
        Curve {
            name: format!("{mode} blocking").replace("preemptive blocking", "preemptive"),
            points: points.collect(),
        }
    };
    Figure {
        subject: Subject::FemuFig6a,
        about: vec![
            format!(
                "{REQUESTS} random 4 KiB requests, {READS} % reads, at {RATE} a second (Poisson), on a drive in its steady \
                 state: 64 dies on 8 channels, 40/200/2000 us, 4 KiB pages, 64 pages a block, 28 % over-provisioning."
            ),
            "The text describes the three modes and their order; the curves of figure 6a survive as a caption only."
                .into(),
        ],
        rows,
        notes: Vec::new(),
        charts: vec![Chart {
            title: "Reads answered within a time",
            axes: ("latency, us", "part of the reads"),
            scales: (Scale::Log, Scale::Linear),
            curves: all.iter().map(curve).collect(),
            marks: Vec::new(),
        }],
    }
}
