//! Figures 1 and 2: what an I/O costs the program that asks for it, by our driver and by Linux.

use super::access::{AccessPath, AccessPattern, Overhead, Storage, Usage};
use crate::reproduce::numbers::median;
use crate::reproduce::{Chart, Curve, Figure, LiveMeasurements, PrintedBound, Row, Scale, Subject};
use weir_units::Nanos;

const SIZES: [u32; 7] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10];
const ROUNDS: usize = 5;
/// The size of which the text prints the totals.
const PRINTED: u32 = 128 << 10;

const TOTALS: &str = "In terms of latency, SPDK clearly has much better performance (629.1 ns v/s 6465.9 ns overhead for 128k I/O; \
                      more than 10x improvement).";
const CONSTANT: &str =
    "Completion latency is constant for SPDK (around 260 ns), only involving polling the completion queue.";

/// Medians over the rounds, by way, place, size and kind.
struct Table(Vec<(AccessPattern, Overhead)>);

impl Table {
    fn of(&self, way: AccessPath, place: Storage, size: u32, write: bool) -> Overhead {
        let wanted = AccessPattern { way, place, size, write };
        self.0.iter().find(|(access, _)| *access == wanted).map(|(_, o)| *o).unwrap_or_default()
    }

    fn measure(live: &mut dyn LiveMeasurements) -> Result<Table, String> {
        let mut all = Vec::new();
        for (place, ways) in [
            (Storage::Disk, &[AccessPath::Driver, AccessPath::Uring][..]),
            (Storage::Memory, &[AccessPath::Driver, AccessPath::Uring, AccessPath::Calls][..]),
        ] {
            for size in SIZES {
                for write in [false, true] {
                    all.extend(ways.iter().map(|way| AccessPattern { way: *way, place, size, write }));
                }
            }
        }
        let mut rounds = vec![Vec::new(); all.len()];
        for round in 0..ROUNDS {
            for (at, access) in all.iter().enumerate() {
                rounds[at].push(live.overhead(*access)?);
                live.progress((round * all.len() + at + 1) as f64 / (ROUNDS * all.len()) as f64);
            }
        }
        let middle = |seen: &[Overhead], of: fn(&Overhead) -> f64| median(seen.iter().map(of).collect());
        let median = |seen: &Vec<Overhead>| Overhead {
            submit: middle(seen, |o| o.submit),
            complete: middle(seen, |o| o.complete),
            whole: middle(seen, |o| o.whole),
        };
        Ok(Table(all.iter().zip(&rounds).map(|(access, seen)| (*access, median(seen))).collect()))
    }
}

fn kind(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}

fn total(overhead: Overhead) -> f64 {
    overhead.submit + overhead.complete
}

pub(crate) fn fig1(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let table = Table::measure(live)?;
    Ok(Figure {
        subject: Subject::QosFig1,
        about: vec![
            "One request at a time, random, of a file of 64 MiB; medians of rounds of all ways in turn. Submission is the time in the \
             calls that submit; completion that in the call that finds the completion, as SPDK's overhead tool counts."
                .into(),
            "On a disk: our driver on a drive whose media is a file there, against io_uring straight on the same file, both direct. The \
             driver's part is its queue pair and doorbell; what the emulated drive then does is the drive's, as the P3700's work is in \
             the paper. The kernel's part ends where it has told the disk."
                .into(),
            "In memory: the whole way of a request, the drive's work and the copy included, against io_uring and pread and pwrite \
             on a tmpfs, which copy as often. On a tmpfs io_uring has a kernel worker read; the call reads itself."
                .into(),
            "The paper's numbers are of its machine (SPDK 17.10 and libaio, Sandy Bridge, a P3700); they stand beside ours, and rows \
             are held to relations."
                .into(),
        ],
        rows: rows(&table),
        notes: live.about_places(),
        charts: charts(&table),
    })
}

fn rows(table: &Table) -> Vec<Row> {
    let mut rows = Vec::new();
    for write in [false, true] {
        for size in SIZES {
            let [ours, linux] =
                [AccessPath::Driver, AccessPath::Uring].map(|way| total(table.of(way, Storage::Disk, size, write)));
            let label = |name| format!("{} KiB {}, disk, {name}: submit and complete", size / 1024, kind(write));
            let (less, more) = ("less than io_uring's", "more than the driver's");
            // The text says of its totals neither read nor write; the workload is random reads.
            if size == PRINTED && !write {
                rows.push(Row::beside(label("driver"), ours, "ns", 629.1, TOTALS, ours < linux, less));
                rows.push(Row::beside(label("io_uring"), linux, "ns", 6465.9, TOTALS, ours < linux, more));
                let label = "128 KiB read, disk: io_uring over driver";
                rows.push(Row::printed(label, linux / ours, "x", 10.0, PrintedBound::Above, TOTALS));
            } else {
                rows.push(Row::relation(label("driver"), ours, "ns", ours < linux, less));
                rows.push(Row::relation(label("io_uring"), linux, "ns", ours < linux, more));
            }
        }
        let (small, large) = (SIZES[0], SIZES[SIZES.len() - 1]);
        for size in [small, large] {
            let [ours, linux] =
                [AccessPath::Driver, AccessPath::Uring].map(|way| table.of(way, Storage::Disk, size, write).complete);
            let label = format!("{} KiB {}, disk, driver: complete", size / 1024, kind(write));
            rows.push(Row::beside(label, ours, "ns", 260.0, CONSTANT, ours < linux, "less than io_uring's"));
        }
        let complete = |size| table.of(AccessPath::Driver, Storage::Disk, size, write).complete;
        let (grown, text) = (complete(large) / complete(small), format!("1 within 10 %: \"{CONSTANT}\""));
        let label = format!("256 KiB {}, disk, driver: complete, over that of 4 KiB", kind(write));
        rows.push(Row::relation(label, grown, "", (grown - 1.0).abs() <= 0.1, text));
        let [ours, uring, calls] = [AccessPath::Driver, AccessPath::Uring, AccessPath::Calls]
            .map(|way| table.of(way, Storage::Memory, small, write).whole);
        let label = format!("4 KiB {}, memory: the whole way over io_uring's", kind(write));
        rows.push(Row::relation(label, ours / uring, "", ours < uring, "less than 1: no system call"));
        let label = format!("4 KiB {}, memory: the whole way over one call's", kind(write));
        rows.push(Row::relation(label, ours / calls, "", ours < calls, "less than 1: no system call"));
    }
    rows
}

fn charts(table: &Table) -> Vec<Chart> {
    let curve = |name: &str, (way, place, write): (AccessPath, Storage, bool), of: fn(Overhead) -> f64| Curve {
        name: format!("{name}, {}", kind(write)),
        points: SIZES.iter().map(|s| (f64::from(*s), of(table.of(way, place, *s, write)))).collect(),
    };
    let both = |name: &str, way, place, of: fn(Overhead) -> f64| {
        [false, true].map(|write| curve(name, (way, place, write), of))
    };
    let chart = |title, curves: Vec<[Curve; 2]>| Chart {
        title,
        axes: ("bytes of a request", "ns"),
        scales: (Scale::Log, Scale::Log),
        curves: curves.into_iter().flatten().collect(),
        marks: Vec::new(),
    };
    vec![
        chart(
            "Submission, on a disk",
            vec![
                both("driver", AccessPath::Driver, Storage::Disk, |o| o.submit),
                both("io_uring", AccessPath::Uring, Storage::Disk, |o| o.submit),
            ],
        ),
        chart(
            "Completion, on a disk",
            vec![
                both("driver", AccessPath::Driver, Storage::Disk, |o| o.complete),
                both("io_uring", AccessPath::Uring, Storage::Disk, |o| o.complete),
            ],
        ),
        chart(
            "The whole way, in memory",
            vec![
                both("driver and drive", AccessPath::Driver, Storage::Memory, |o| o.whole),
                both("io_uring", AccessPath::Uring, Storage::Memory, |o| o.whole),
                both("pread, pwrite", AccessPath::Calls, Storage::Memory, |o| o.whole),
            ],
        ),
    ]
}

/// Sizes of figure 2.
const FEW: [u32; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// One measurement of figure 2: long, because a kernel that divides by ticks knows no better.
const LONG: Nanos = Nanos::from_millis(250);
const FEW_ROUNDS: usize = 3;

const HIGHER: &str = "\"SPDK has higher user CPU overhead, while POSIX has higher system CPU overhead\"";
const ALIKE: &str = "\"POSIX and SPDK achieve nearly the same total CPU usage\"";

/// The ways of figure 2, and what they are called.
const WAYS: [(AccessPath, &str); 3] =
    [(AccessPath::Driver, "driver"), (AccessPath::Uring, "io_uring"), (AccessPath::Calls, "pread")];

/// By way and size.
type Used = [[Usage; FEW.len()]; WAYS.len()];

pub(crate) fn fig2(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let mut used: Used = Default::default();
    let steps = FEW_ROUNDS * FEW.len();
    for step in 0..steps {
        let at = step % FEW.len();
        for ((way, _), used) in WAYS.into_iter().zip(&mut used) {
            let access = AccessPattern { way, place: Storage::Memory, size: FEW[at], write: false };
            used[at] = used[at].add(live.usage(access, LONG)?);
        }
        live.progress((step + 1) as f64 / steps as f64);
    }
    Ok(Figure {
        subject: Subject::QosFig2,
        about: vec![
            "4 KiB to 256 KiB random reads in memory, one at a time, as fast as they go: our driver and drive in one thread, and \
             io_uring and pread on a tmpfs. User and system time of the process (getrusage), the kernel's workers included."
                .into(),
            "The driver polls, so its core is always busy, and so is pread's, which copies inside the call; io_uring has a kernel \
             worker read from a tmpfs, and sleeps. The drive is emulated in the driver's thread, and its work is in that one's user \
             time; the copy is in that of whoever does it."
                .into(),
            "Most kernels tell user from system time by what they see at their ticks, and only the sum is exact.".into(),
        ],
        rows: usage_rows(&used),
        notes: live.about_places(),
        charts: vec![
            usage_chart("User and system time", "% of a core", usage_curves(&used, Usage::share)),
            usage_chart("User and system time of a request", "ns", usage_curves(&used, Usage::each)),
        ],
    })
}

fn usage_rows(used: &Used) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, size) in FEW.into_iter().enumerate() {
        let kib = size / 1024;
        let system = |way: usize| used[way][at].system.0 as f64 / used[way][at].both().0.max(1) as f64 * 100.0;
        let least = system(1).min(system(2));
        let text = format!("less than Linux's: {HIGHER}");
        let label = format!("{kib} KiB reads, driver: system time of its time");
        rows.push(Row::relation(label, system(0), "%", system(0) < least, text));
        for (way, (_, name)) in WAYS.iter().enumerate().skip(1) {
            let text = format!("more than the driver's, and so less user time: {HIGHER}");
            let label = format!("{kib} KiB reads, {name}: system time of its time");
            rows.push(Row::relation(label, system(way), "%", system(way) > system(0), text));
            let each = |way: usize| used[way][at].each(used[way][at].both());
            let label = format!("{kib} KiB reads, processor time of a request over {name}'s");
            let text = "less than 1: \"SPDK is able to deliver much better performance\"";
            rows.push(Row::relation(label, each(0) / each(way), "", each(0) < each(way), text));
        }
        let share = |way: usize| used[way][at].share(used[way][at].both());
        let apart = (share(0) - share(2)).abs();
        let text = format!("at most 15 points of a core: {ALIKE}");
        let label = format!("{kib} KiB reads, driver and pread, in all apart by");
        rows.push(Row::relation(label, apart, "% of a core", apart <= 15.0, text));
    }
    rows
}

fn usage_curves(used: &Used, of: fn(&Usage, Nanos) -> f64) -> Vec<Curve> {
    let mut curves = Vec::new();
    for ((_, name), used) in WAYS.into_iter().zip(used) {
        for (part, time) in [("user", (|u| u.user) as fn(&Usage) -> Nanos), ("system", |u| u.system)] {
            let points = FEW.iter().zip(used).map(|(size, u)| (f64::from(*size), of(u, time(u)))).collect();
            curves.push(Curve { name: format!("{name}, {part}"), points });
        }
    }
    curves
}

fn usage_chart(title: &'static str, y: &'static str, curves: Vec<Curve>) -> Chart {
    Chart { title, axes: ("bytes of a request", y), scales: (Scale::Log, Scale::Linear), curves, marks: Vec::new() }
}
