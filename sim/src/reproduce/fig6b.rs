//! Figure 6b of papers/002: wordcount over several drives while garbage collection blocks their controllers, channels or planes.

use super::cluster::{BLOCK, Block, Cluster, Machines, PIECE, Place, STREAMS, Space, Spent, Task, Work, part, pieces};
use super::{Chart, Curve, Figure, LiveMeasurements, Row, Scale, Subject, fig6};
use weir_flash::{GcMode, Precondition};
use weir_units::Nanos;

/// Four machines with a drive each.
const MACHINES: Machines = Machines { count: 4, drives: 1, link: 1_250_000_000, round_trip: Nanos(30_000) };
/// Tasks at a time of each.
const CORES: usize = 4;
/// Bytes that are counted.
const INPUT: u64 = 1 << 30;
/// What a map task computes for a byte, and a reduce task: nanoseconds. See the text about the figure.
const MAP: f64 = 12.0;
const REDUCE: f64 = 6.0;
/// Of the input: what map tasks write for the reduce tasks, and what those write.
const SPILLED: f64 = 0.3;
const COUNTED: f64 = 0.1;
/// What another job writes meanwhile, bytes a second and drive.
const INGEST: u64 = 24_000_000;

/// How long the job's phases took.
#[derive(Clone, Copy)]
struct Times {
    load: Spent,
    map: Spent,
    reduce: Spent,
}

impl Times {
    fn job(&self) -> f64 {
        (self.map.elapsed.0 + self.reduce.elapsed.0) as f64 / 1e9
    }
}

fn computing(bytes: u64, nanos: f64) -> Nanos {
    Nanos((bytes as f64 * nanos) as u64)
}

/// Tasks that read one list, compute for every piece, and write the other one, which is shorter, evenly among that.
fn tasks(read: &[Place], nanos: f64, written: &[Place], count: usize) -> Vec<Task> {
    let task = |number: usize| {
        let (read, written) = (part(read, number, count), part(written, number, count));
        let due = |at: usize| written.len() * at / read.len().max(1);
        let work = |at: usize| Work {
            read: Some(read[at]),
            compute: computing(PIECE, nanos),
            write: (due(at + 1) > due(at)).then(|| written[due(at)]),
        };
        Task::new((0..read.len()).map(work).collect())
    };
    (0..count).map(task).collect()
}

fn wordcount(mode: GcMode, is_shared: bool) -> Times {
    let mut cluster = Cluster::new(MACHINES, &fig6::config(mode), Precondition::Steady);
    let drives = MACHINES.count * MACHINES.drives;
    let mut space = Space::new(MACHINES.count, drives, 0, cluster.drive_bytes());
    let mut take = |bytes: u64| -> Vec<Block> { (0..bytes / BLOCK).map_while(|_| space.take()).collect() };
    let share = |part: f64| (INPUT as f64 * part) as u64;
    let input = pieces(&take(INPUT));
    let spilled = pieces(&take(share(SPILLED)));
    let counted = pieces(&take(share(COUNTED)));
    let ingested = pieces(&take(INPUT / 2));
    let count = MACHINES.count * CORES;
    // Another job: it writes on each drive, a piece after the other, over and over.
    let pause = Nanos(PIECE * 1_000_000_000 / INGEST);
    let beside = || -> Vec<Task> {
        let lists = (0..drives)
            .map(|at| ingested.iter().filter(move |place| matches!(place, Place::Drive { drive, .. } if *drive == at)));
        let turns = |list: Vec<Place>| {
            let work = |place: &Place| Work { read: None, compute: pause, write: Some(*place) };
            Task::new(list.iter().cycle().take(ROUNDS * list.len()).map(work).collect())
        };
        if is_shared { lists.map(|list| turns(list.copied().collect())).collect() } else { Vec::new() }
    };
    let load = |place: &Place| Work { read: None, compute: Nanos(0), write: Some(*place) };
    let loading = (0..count).map(|task| Task::new(part(&input, task, count).iter().map(load).collect())).collect();
    let load = cluster.run(loading, Vec::new());
    let map = cluster.run(tasks(&input, MAP, &spilled, count), beside());
    let reduce = cluster.run(tasks(&spilled, REDUCE, &counted, count), beside());
    Times { load, map, reduce }
}

/// More turns of the other job than fit into any run.
const ROUNDS: usize = 100;

pub(super) fn figure(live: &mut dyn LiveMeasurements) -> Figure {
    let modes = [GcMode::Controller, GcMode::Channel, GcMode::Plane];
    let mut all = Vec::new();
    for is_shared in [false, true] {
        for mode in modes {
            all.push((mode, is_shared, wordcount(mode, is_shared)));
            live.progress(all.len() as f64 / 6.0);
        }
    }
    let mut rows = Vec::new();
    for (at, (mode, is_shared, times)) in all.iter().enumerate() {
        let label = |what: &str| format!("{mode}{}: {what}", if *is_shared { ", another job writes" } else { "" });
        let job = times.job();
        rows.push(match at % modes.len() {
            0 => Row::told(label("wordcount"), job, "s", "the one that the others are compared with"),
            _ => {
                let (before, _, slower) = &all[at - 1];
                let reason = if *mode == GcMode::Plane { fig6::PLANE } else { fig6::CHANNEL };
                let holds = job <= slower.job() * (1.0 + LEVEL);
                Row::relation(label("wordcount"), job, "s", holds, format!("no longer than {before}: {reason}"))
            }
        });
        for (name, spent) in [("map", times.map), ("reduce", times.reduce)] {
            let text = "part of the job";
            rows.push(Row::told(label(name), spent.elapsed.0 as f64 / 1e9, "s", text));
            let whole = (spent.computing.0 + spent.waiting.0).max(1) as f64;
            let part = 100.0 * spent.waiting.0 as f64 / whole;
            rows.push(Row::told(label(&format!("{name}, its tasks waited")), part, "%", "of the time of its tasks"));
        }
        if !is_shared {
            rows.push(Row::told(label("the input written"), times.load.elapsed.0 as f64 / 1e9, "s", "before the job"));
        }
    }
    let curve = |is_shared: bool| Curve {
        name: if is_shared { "another job writes meanwhile".into() } else { "alone".into() },
        points: (0..modes.len())
            .map(|at| (at as f64 + 1.0, all[at + if is_shared { modes.len() } else { 0 }].2.job()))
            .collect(),
    };
    Figure {
        subject: Subject::FemuFig6b,
        about: vec![
            format!(
                "Simulated: Hadoop itself does not run. {} machines with {CORES} cores and one drive each; wordcount of {} MiB that the store \
                 has spread over the drives in blocks of 1 MiB, read in requests of 128 KiB, {} ahead; map tasks write {:.0} % of what \
                 they read, reduce tasks read that and write {:.0} %. A core takes {MAP} ns for a byte of the input and {REDUCE} ns for one of \
                 the map tasks'; none of these numbers is the paper's. The drives are those of femu-fig6a, full and in their steady state.",
                MACHINES.count,
                INPUT >> 20,
                STREAMS,
                SPILLED * 100.0,
                COUNTED * 100.0,
            ),
            format!(
                "The other job writes {} MB/s on each drive for as long as wordcount runs. The bars of figure 6b survive as a caption only; \
                 the text describes the modes and their order.",
                INGEST / 1_000_000
            ),
        ],
        rows,
        notes: Vec::new(),
        charts: vec![Chart {
            title: "Wordcount: 1 controller, 2 channel, 3 plane",
            axes: ("what collection blocks", "seconds"),
            scales: (Scale::Linear, Scale::Linear),
            curves: vec![curve(false), curve(true)],
            marks: Vec::new(),
        }],
    }
}

/// Two runs of which none is the shorter, as a part.
const LEVEL: f64 = 0.002;
