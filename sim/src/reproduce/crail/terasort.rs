//! The paper's last figure: a sort while memory shrinks in steps of 20 % to nothing and flash takes its place.
//!
//! ```text
//!   simulated   8 machines x 4 drives in virtual time: with what a sort computes, and with its requests alone
//!   measured    Hadoop's TeraSort on a node's store, where it is asked for (weir reproduce crail-terasort --live --hadoop CLASSPATH), and what its
//!               first step asked of the store, asked again of the store of each step without Java
//! ```

use super::StoreSort;
use crate::reproduce::cluster::{
    BLOCK, Block, Cluster, Machines, PIECE, Place, Space, Spent, Task, Work, part, pieces,
};
use crate::reproduce::{Chart, Curve, Figure, LiveMeasurements, PrintedBound, Row, Scale, Subject};
use weir_config::DeviceConfig;
use weir_flash::{FlashDriveConfig, Precondition};
use weir_units::Nanos;

const QUOTE: &str =
    "The plot shows that by putting all the data in flash we only reduce the sorting time by around 48%.";

/// The paper's eight machines with 100 Gbit/s; four drives each are ours.
const MACHINES: Machines = Machines { count: 8, drives: 4, link: 12_500_000_000, round_trip: Nanos(20_000) };
/// Tasks at a time of each machine.
const CORES: usize = 16;
/// What a sort computes for a byte: half while it reads its input and shuffles, a quarter each before and after it has sorted. Hadoop's
/// TeraSort took so much more processor time for 900 MB than for 134 MB, a byte (2 cores of an AMD EPYC, 2026-11-29).
const NANOS_A_BYTE: f64 = 55.0;
/// Bytes that are sorted if nothing is said.
const SIZE: u64 = 1 << 30;
/// The paper's.
const FULL_SIZE: u64 = 200_000_000_000;

/// Parts of the data that memory has room for, in percent.
const STEPS: [u32; 6] = [100, 80, 60, 40, 20, 0];
/// Curves, where all are measured.
const CURVES: usize = 4;
/// A curve that changes by less than this from its first point to its last is flat, percent.
const FLAT: f64 = 5.0;

/// What a sort's phases took.
#[derive(Clone, Copy, Debug)]
struct Times {
    map: Spent,
    reduce: Spent,
}

impl Times {
    fn seconds(&self) -> f64 {
        (self.map.elapsed.0 + self.reduce.elapsed.0) as f64 / 1e9
    }

    /// Of the tasks' time, seconds a core.
    fn each(&self, of: impl Fn(&Spent) -> Nanos) -> f64 {
        (of(&self.map).0 + of(&self.reduce).0) as f64 / 1e9 / (MACHINES.count * CORES) as f64
    }
}

/// The paper's drive, large enough for its part of all that is written, and as much again.
fn drive(size: u64) -> FlashDriveConfig {
    let drives = (MACHINES.count * MACHINES.drives) as u64;
    let gibibytes = (2 * 3 * size / drives).div_ceil(1 << 30).max(1);
    let device = DeviceConfig::from_query("960pro", &format!("capacity={gibibytes}GiB"));
    device.ok().and_then(|device| device.flash).expect("the profile makes drives of some gibibytes").config
}

/// Sorts so many bytes where memory has room for a part of all that is written: the input, what is shuffled, the output.
fn sort(size: u64, memory_pct: u32, nanos_a_byte: f64) -> Times {
    let mut cluster = Cluster::new(MACHINES, &drive(size), Precondition::Fresh);
    let blocks = size / BLOCK;
    let memory = 3 * blocks * u64::from(memory_pct) / 100 * BLOCK;
    let drives = MACHINES.count * MACHINES.drives;
    let mut space = Space::new(MACHINES.count, drives, memory, cluster.drive_bytes());
    let mut take = || -> Vec<Block> { (0..blocks).map_while(|_| space.take()).collect() };
    // In the order in which they are written.
    let (input, shuffled, output) = (pieces(&take()), pieces(&take()), pieces(&take()));
    let tasks = MACHINES.count * CORES;
    let compute = |part: f64| Nanos((PIECE as f64 * nanos_a_byte * part) as u64);
    let each = |work: &dyn Fn(usize) -> Vec<Work>| (0..tasks).map(|task| Task::new(work(task))).collect::<Vec<_>>();
    let write = |place: &Place, time: Nanos| Work { read: None, compute: time, write: Some(*place) };
    let read = |place: &Place, time: Nanos| Work { read: Some(*place), compute: time, write: None };
    // What is sorted was written before, and is on the medium.
    cluster
        .run(each(&|task| part(&input, task, tasks).iter().map(|place| write(place, Nanos(0))).collect()), Vec::new());
    let map = each(&|task| {
        let places = part(&input, task, tasks).iter().zip(part(&shuffled, task, tasks));
        places.map(|(from, to)| Work { write: Some(*to), ..read(from, compute(0.5)) }).collect()
    });
    let map = cluster.run(map, Vec::new());
    let reduce = each(&|task| {
        // A part of what every map task has written, and nothing is written before all of it is there.
        let mine = shuffled.iter().skip(task).step_by(tasks).map(|place| read(place, compute(0.25)));
        mine.chain(part(&output, task, tasks).iter().map(|place| write(place, compute(0.25)))).collect()
    });
    let reduce = cluster.run(reduce, Vec::new());
    Times { map, reduce }
}

/// A curve: how it is called, and its points in the order of [`STEPS`], seconds.
struct Sorted {
    name: &'static str,
    seconds: Vec<f64>,
    /// The paper's sentence is about a sort, not about its requests without it.
    is_sort: bool,
}

impl Sorted {
    fn label(&self, memory_pct: u32) -> String {
        format!("{}, {memory_pct} % in memory", self.name)
    }

    /// A point that was measured.
    fn seen(&mut self, seen: &StoreSort, (memory_pct, about): (u32, &'static str), rows: &mut Vec<Row>) {
        let StoreSort { elapsed, processor, in_calls, in_memory_pct } = *seen;
        let label = self.label(memory_pct);
        let seconds = |time: Nanos| time.0 as f64 / 1e9;
        rows.push(Row::told(&label, seconds(elapsed), "s", about));
        rows.push(Row::told(format!("{label}, processor time"), seconds(processor), "s", "of the process"));
        let calls = "in calls of the store's client, as recorded, all threads together";
        rows.push(Row::told(format!("{label}, I/O time"), seconds(in_calls), "s", calls));
        let found = "of the bytes of input and output, afterwards";
        rows.push(Row::told(format!("{label}, found there"), in_memory_pct, "%", found));
        self.seconds.push(seconds(elapsed));
    }

    /// The last over the first.
    fn growth(&self) -> f64 {
        self.seconds.last().unwrap_or(&f64::NAN) / self.seconds.first().unwrap_or(&f64::NAN)
    }

    fn curve(&self) -> Curve {
        let points = STEPS.iter().zip(&self.seconds).map(|(pct, seconds)| (f64::from(100 - pct), *seconds));
        Curve { name: self.name.into(), points: points.collect() }
    }

    /// The paper's sentence in both readings, and the note of a curve that is flat.
    fn judged(&self, rows: &mut Vec<Row>, notes: &mut Vec<String>) {
        let growth = 100.0 * (self.growth() - 1.0);
        let readings: &[_] = match self.is_sort {
            true => &[("as 48 % more time", 48.0), ("as 48 % less speed", 92.3)],
            false => {
                let label = format!("{}, all in flash takes longer by", self.name);
                rows.push(Row::told(label, growth, "%", "the paper says nothing of the requests without the sort"));
                &[]
            }
        };
        for (reading, most) in readings {
            let label = format!("{}, all in flash takes longer by ({reading})", self.name);
            rows.push(Row::printed(label, growth, "%", *most, PrintedBound::Below, QUOTE));
        }
        if growth <= -FLAT {
            notes.push(format!(
                "{}: all in flash takes {:.1} % less than all in memory: something else than the drives decides.",
                self.name, -growth
            ));
        } else if growth < FLAT {
            notes.push(format!(
                "{}: the curve is flat ({growth:.1} % from all memory to all flash): {}.",
                self.name,
                match self.is_sort {
                    true => "reads go ahead and writes come behind what is computed",
                    false => "the store takes as long for these requests wherever the bytes are",
                }
            ));
        }
    }
}

/// Makes it.
pub(crate) fn figure(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let size = live.size().unwrap_or(if live.is_full() { FULL_SIZE } else { SIZE });
    let (mut rows, mut notes, mut done) = (Vec::new(), Vec::new(), 0.0);
    let mut all = Vec::new();
    for (name, nanos) in [("simulated", NANOS_A_BYTE), ("simulated, requests alone", 0.0)] {
        let mut sorted = Sorted { name, seconds: Vec::new(), is_sort: true };
        for pct in STEPS {
            let times = sort(size, pct, nanos);
            let label = sorted.label(pct);
            let seconds = times.seconds();
            rows.push(Row::told(&label, seconds, "s", "both phases"));
            if nanos > 0.0 {
                rows.push(Row::told(format!("{label}, computing"), times.each(|spent| spent.computing), "s", "a core"));
                rows.push(Row::told(format!("{label}, waiting"), times.each(|spent| spent.waiting), "s", "a core"));
            }
            sorted.seconds.push(seconds);
            done += 1.0;
            live.progress(done / (CURVES * STEPS.len()) as f64);
        }
        all.push(sorted);
    }
    match live.is_preferred() {
        true => {
            all.push(measured(live, size, &mut rows)?);
            all.push(replayed(live, size, &mut rows)?);
        }
        false => notes.push(
            "Simulated only: --live --hadoop CLASSPATH measures Hadoop's own sort on a node's store as well, and replays its requests without Java."
                .into(),
        ),
    }
    all.iter().for_each(|sorted| sorted.judged(&mut rows, &mut notes));
    let about = vec![
        format!(
            "Simulated: {} machines with {CORES} cores, {} modelled 960 PRO and a link of 100 Gbit/s each sort {:.1} GB: tasks read in requests \
             of 128 KiB, eight ahead, and write as many behind. Blocks of 1 MiB go to memory while there is room for them, in the order \
             in which input, shuffle and output are written, then to the drives in turn. A core computes {NANOS_A_BYTE} ns for a byte, what \
             Hadoop's TeraSort took of one on 2026-11-29; \"requests alone\" computes nothing.",
            MACHINES.count,
            MACHINES.drives,
            size as f64 / 1e9,
        ),
        "The paper sorts 200 GB with Spark on machines whose cores and drives its text does not count. Its plot is lost: the sentence is held \
         in both readings, as bounds, and a flat curve says that here the sort does not wait for its drives."
            .into(),
    ];
    let chart = Chart {
        title: "Sorting time",
        axes: ("data in flash, %", "seconds"),
        scales: (Scale::Linear, Scale::Log),
        curves: all.iter().map(Sorted::curve).collect(),
        marks: Vec::new(),
    };
    Ok(Figure { subject: Subject::CrailTerasort, about, rows, notes, charts: vec![chart] })
}

/// Hadoop's sort.
fn measured(live: &mut dyn LiveMeasurements, size: u64, rows: &mut Vec<Row>) -> Result<Sorted, String> {
    let about = "TeraSort, from its start to its end, proved by TeraValidate";
    let mut sorted = Sorted { name: "measured, Hadoop", seconds: Vec::new(), is_sort: true };
    for (at, pct) in STEPS.into_iter().enumerate() {
        let seen = live.stores().sort(size, pct)?;
        sorted.seen(&seen, (pct, about), rows);
        live.progress((2 * STEPS.len() + at + 1) as f64 / (CURVES * STEPS.len()) as f64);
    }
    Ok(sorted)
}

/// What Hadoop's sort of the first step asked of its store, asked of each step's.
fn replayed(live: &mut dyn LiveMeasurements, size: u64, rows: &mut Vec<Row>) -> Result<Sorted, String> {
    let about = "what TeraSort asked of the store of the first step, as fast as this one answers";
    let mut sorted = Sorted { name: "measured, replayed without Java", seconds: Vec::new(), is_sort: false };
    for (at, pct) in STEPS.into_iter().enumerate() {
        let seen = live.stores().replay_sort(size, pct)?;
        sorted.seen(&seen, (pct, about), rows);
        live.progress((3 * STEPS.len() + at + 1) as f64 / (CURVES * STEPS.len()) as f64);
    }
    Ok(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small enough for a test.
    const SMALL: u64 = 1 << 30;

    #[test]
    fn requests_alone_are_fastest_in_memory() {
        let seconds: Vec<f64> = STEPS.iter().map(|pct| sort(SMALL, *pct, 0.0).seconds()).collect();
        assert!(seconds[1..].iter().all(|later| *later > seconds[0] * 1.1), "{seconds:?}");
    }

    #[test]
    fn a_sort_takes_at_least_what_it_computes() {
        let times = sort(SMALL, 100, NANOS_A_BYTE);
        let least = SMALL as f64 * NANOS_A_BYTE / 1e9 / 128.0;
        assert!((least..least * 1.2).contains(&times.seconds()), "{times:?}, {least} s");
        let computed = times.each(|spent| spent.computing);
        assert!((computed / least - 1.0).abs() < 0.01, "{computed} of {least}");
    }
}
