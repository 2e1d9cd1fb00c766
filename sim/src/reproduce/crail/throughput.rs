//! Sequential throughput with many operations in flight: files against the drives alone, in pairs.

use super::{MACHINE, RAW, StoreAccess, StoreDrive, StoreLoad, StoreSeen, in_turn};
use crate::reproduce::numbers::median;
use crate::reproduce::pairs::Interval;
use crate::reproduce::{Chart, Curve, Figure, LiveMeasurements, Row, Scale, Subject};

const SAME: &str =
    "This allows our NVMf storage tier to reach the same throughput as the native SPDK benchmark (device limit).";

/// What "the same" is held to: of the drive alone.
const LEAST: f64 = 0.95;

const SIZE: u32 = 64 << 10;
const DEPTH: u32 = 128;

/// How thoroughly: pairs, and operations of a run. With fewer than six pairs there is no interval.
fn effort(live: &dyn LiveMeasurements) -> (usize, u64) {
    if live.is_full() { (20, 8192) } else { (6, 768) }
}

fn way(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}

fn label(drive: StoreDrive, write: bool, what: &str) -> String {
    format!("{}, {}, {what}", drive.name(), way(write))
}

/// What a file gets of what its drive gives alone, pair by pair.
fn ratio(file: &[StoreSeen], raw: &[StoreSeen]) -> Interval {
    let logs: Vec<f64> = file.iter().zip(raw).map(|(file, raw)| (file.bandwidth / raw.bandwidth).ln()).collect();
    let Interval { middle, low, high } = Interval::of(&logs);
    Interval { middle: middle.exp(), low: low.exp(), high: high.exp() }
}

/// Held by the whole interval; one that has the bound inside says nothing.
fn ratio_row(label: String, ratio: Interval) -> Row {
    let holds = ratio.low >= LEAST;
    let text = format!("all of the 95 % interval is at least {LEAST}: \"{SAME}\"");
    Row::relation(label, ratio.middle, "x", holds, text).disturbed_if(!holds && ratio.high >= LEAST)
}

fn rows(live: &mut dyn LiveMeasurements, drive: StoreDrive, write: bool) -> Result<(Vec<Row>, String), String> {
    let (rounds, operations) = effort(live);
    let of = |access| StoreLoad { access, write, random: false, size: SIZE, depth: DEPTH, operations };
    let found = in_turn(live, drive, &[of(StoreAccess::File), of(StoreAccess::Raw)], rounds)?;
    let ratio = ratio(&found[0], &found[1]);
    let megabytes = |rounds: &[StoreSeen]| median(rounds.iter().map(|seen| seen.bandwidth / 1e6).collect());
    let told = |what, rounds| Row::told(label(drive, write, what), megabytes(rounds), "MB/s", "no operation failed");
    let note = format!("{} {:.3} [{:.3}, {:.3}]", label(drive, write, "ratio"), ratio.middle, ratio.low, ratio.high);
    let over = ratio_row(label(drive, write, "store over raw"), ratio);
    Ok((vec![told("store", &found[0]), told("raw", &found[1]), over], note))
}

/// Makes it.
pub(crate) fn figure(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let cases =
        [(StoreDrive::Dram, false), (StoreDrive::Dram, true), (StoreDrive::Flash, false), (StoreDrive::Flash, true)];
    let (mut all, mut notes) = (Vec::new(), Vec::new());
    for (at, (drive, write)) in cases.into_iter().enumerate() {
        let (rows, note) = rows(live, drive, write)?;
        all.extend(rows);
        notes.push(note);
        live.progress((at + 1) as f64 / cases.len() as f64);
    }
    live.stores().leave();
    let (rounds, operations) = effort(live);
    let curve = |what: &'static str| {
        let points =
            cases.iter().enumerate().map(|(at, (drive, write))| ((at + 1) as f64, label(*drive, *write, what)));
        Curve::of_rows(what, &all, points)
    };
    let axes = ("DRAM read, DRAM write, 960 PRO read, 960 PRO write", "MB/s");
    let curves = vec![curve("store"), curve("raw")];
    let charts = vec![Chart {
        title: "64 KiB, 128 in flight",
        axes,
        scales: (Scale::Linear, Scale::Linear),
        curves,
        marks: Vec::new(),
    }];
    let about = vec![
        MACHINE.into(),
        RAW.into(),
        format!(
            "{rounds} pairs of {operations} operations of 64 KiB in order, 128 in flight. Writes of a file are over when they are published; \
             the drive alone has nothing to publish."
        ),
    ];
    notes = vec![format!(
        "Store over raw, pair by pair (Hodges and Lehmann's estimate), with its 95 % interval by signed ranks: {}.",
        notes.join("; ")
    )];
    Ok(Figure { subject: Subject::CrailThroughput, about, rows: all, notes, charts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::RowVerdict;

    #[test]
    fn the_interval_decides() {
        let judged = |low, high| ratio_row("x".into(), Interval { middle: 0.96, low, high }).verdict();
        assert_eq!(judged(0.951, 0.97), RowVerdict::Held);
        assert_eq!(judged(0.94, 0.97), RowVerdict::Disturbed, "0.95 lies in the interval");
        assert_eq!(judged(0.5, 0.94), RowVerdict::Missed);
        let seen = |bandwidth| StoreSeen { bandwidth, ..StoreSeen::default() };
        let ratio = ratio(&[seen(90.0); 8], &[seen(100.0); 8]);
        assert!((ratio.middle - 0.9).abs() < 1e-9 && (ratio.high - ratio.low).abs() < 1e-9, "{ratio:?}");
    }
}
