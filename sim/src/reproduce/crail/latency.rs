//! Random read latency: a file against the drive alone, the map cached and not, and the same on memory, flash and Optane.

use super::{AROUND, MACHINE, RAW, StoreAccess, StoreDrive, StoreLoad, StoreSeen, bytes, in_turn, ours};
use crate::reproduce::numbers::{median, micros};
use crate::reproduce::{Chart, Curve, Figure, LiveMeasurements, PrintedBound, Row, Scale, Subject};

const FLASH: &str = "Random read latency is limited by flash technology and we currently see around 70microseconds when performing sector \
                     size accesses to the device with Crail.";
const DRAM: &str = "Remote DRAM latencies with Crail are around 7-8x faster than our NVMf tier";
const OVERHEAD: &str = "Considering that there is an overhead of around 10microseconds to access a drive with Crail";
const OPTANE: &str = "using such a device would put random read latencies somewhere around 20microseconds";
const COLD: &str = "takes only about 7 microseconds more time than fetching the same amount of data over a point-to-point SPDK connection. [...] \
                    due to Crail having to look up the specific NVMe storage node that holdes the data which requires one extra network \
                    roundtrip";

/// The drives' sectors, as in the paper.
const SECTOR: u32 = 512;

/// Of a lookup: what asking for a map may take more, in which more bytes come.
const ONE_LOOKUP: f64 = 1.2;

/// How thoroughly.
struct Effort {
    sizes: &'static [u32],
    rounds: usize,
    operations: u64,
}

impl Effort {
    fn of(live: &dyn LiveMeasurements) -> Effort {
        match live.is_full() {
            true => Effort { sizes: &[512, 1024, 4096, 16_384, 65_536, 262_144], rounds: 20, operations: 1000 },
            false => Effort { sizes: &[512, 4096, 65_536], rounds: 3, operations: 200 },
        }
    }
}

fn label(drive: StoreDrive, size: u32, what: &str) -> String {
    format!("{}, {}, {what}", drive.name(), bytes(size))
}

fn p50(rounds: &[StoreSeen]) -> f64 {
    median(rounds.iter().map(|seen| micros(seen.p50)).collect())
}

/// A read of a sector is held to what the paper prints of it.
fn store_row(drive: StoreDrive, size: u32, us: f64) -> Row {
    let label = label(drive, size, "store");
    match (drive, size) {
        (StoreDrive::Flash, SECTOR) => Row::printed(label, us, "us", 70.0, PrintedBound::Within(AROUND), FLASH),
        (StoreDrive::Optane, SECTOR) => Row::printed(label, us, "us", 20.0, PrintedBound::Within(AROUND), OPTANE),
        _ => Row::told(label, us, "us", "median; no read failed"),
    }
}

/// Rows of one drive.
fn drive_rows(live: &mut dyn LiveMeasurements, drive: StoreDrive, effort: &Effort) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for size in effort.sizes {
        let of = |access| StoreLoad::random_reads(access, *size, effort.operations);
        let found = in_turn(live, drive, &[of(StoreAccess::File), of(StoreAccess::Raw)], effort.rounds)?;
        let (store, raw) = (p50(&found[0]), p50(&found[1]));
        let more = median(found[0].iter().zip(&found[1]).map(|(file, raw)| micros(file.p50 - raw.p50)).collect());
        rows.push(store_row(drive, *size, store));
        rows.push(Row::told(label(drive, *size, "raw"), raw, "us", "median; no read failed"));
        rows.push(Row::told(label(drive, *size, "store less raw, by pairs"), more, "us", "the map is cached"));
    }
    Ok(rows)
}

/// What is not cached, on flash.
fn cold_rows(live: &mut dyn LiveMeasurements, effort: &Effort) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for size in effort.sizes {
        let of = |access| StoreLoad::random_reads(access, *size, effort.operations);
        let loads = [of(StoreAccess::File), of(StoreAccess::ColdMap), of(StoreAccess::Lookup)];
        let found = in_turn(live, StoreDrive::Flash, &loads, effort.rounds)?;
        let more = median(found[1].iter().zip(&found[0]).map(|(cold, file)| micros(cold.p50 - file.p50)).collect());
        let lookup = p50(&found[2]);
        let flash = |what| label(StoreDrive::Flash, *size, what);
        rows.push(Row::told(flash("store, map not cached"), p50(&found[1]), "us", "median; no read failed"));
        rows.push(Row::told(flash("a lookup beside it"), lookup, "us", "the bare question and answer"));
        let text = "at most 1.2 times a lookup of the same run (the 7 us are RDMA's)";
        let label = flash("map not cached less cached, by pairs");
        rows.push(Row::beside(label, more, "us", 7.0, COLD, more <= ONE_LOOKUP * lookup, text));
    }
    Ok(rows)
}

/// What the sentences say of drives beside each other.
fn compared(rows: &[Row], local: f64) -> Vec<Row> {
    let store = |drive| ours(rows, &label(drive, SECTOR, "store")).unwrap_or(f64::NAN);
    let (flash, dram) = (store(StoreDrive::Flash), store(StoreDrive::Dram));
    let times = flash / dram;
    vec![
        Row::beside(
            "DRAM faster than 960 PRO, a sector",
            times,
            "x",
            7.5,
            DRAM,
            (7.0..=8.0).contains(&times),
            "7 to 8 times",
        ),
        Row::told("960 PRO, 512 B, in the client's process", local, "us", "what the drive takes by itself"),
        Row::printed(
            "960 PRO, 512 B, store less the drive by itself",
            flash - local,
            "us",
            10.0,
            PrintedBound::Within(AROUND),
            OVERHEAD,
        ),
    ]
}

/// Makes it.
pub(crate) fn figure(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let effort = Effort::of(live);
    let mut rows = Vec::new();
    let drives = [StoreDrive::Dram, StoreDrive::Flash, StoreDrive::Optane];
    for (at, drive) in drives.into_iter().enumerate() {
        rows.extend(drive_rows(live, drive, &effort)?);
        live.progress((at + 1) as f64 / 5.0);
    }
    rows.extend(cold_rows(live, &effort)?);
    live.progress(0.8);
    let load = StoreLoad::random_reads(StoreAccess::Local, SECTOR, effort.operations);
    let local = p50(&in_turn(live, StoreDrive::Flash, &[load], effort.rounds)?[0]);
    rows.extend(compared(&rows, local));
    live.stores().leave();
    live.progress(1.0);
    let curve = |drive: StoreDrive, what: &str| {
        let points = effort.sizes.iter().map(|size| (f64::from(*size), label(drive, *size, what)));
        Curve::of_rows(format!("{}, {what}", drive.name()), &rows, points)
    };
    let axes = ("bytes of a read", "us");
    let scales = (Scale::Log, Scale::Log);
    let against = ["store", "raw", "store, map not cached"].map(|what| curve(StoreDrive::Flash, what)).into();
    let by_drive = drives.map(|drive| curve(drive, "store")).into();
    let charts = vec![
        Chart {
            title: "A file on a 960 PRO against the drive alone",
            axes,
            scales,
            curves: against,
            marks: Vec::new(),
        },
        Chart { title: "Files by drive", axes, scales, curves: by_drive, marks: Vec::new() },
    ];
    Ok(Figure { subject: Subject::CrailLatency, about: about(&effort), rows, notes: Vec::new(), charts })
}

fn about(effort: &Effort) -> Vec<String> {
    vec![
        MACHINE.into(),
        RAW.into(),
        format!(
            "Medians of {} rounds in turn of {} reads each, one after the other, each round's median. \"Around\" is within {AROUND} %. Where \
             the map is not cached the file is opened anew before each read, and its one question for the map counts.",
            effort.rounds, effort.operations
        ),
    ]
}
