//! Channels that are arbitrated when they are free, against MQSim: within 2 % at every depth, reads, writes and mixes.

use super::*;
extern crate std;
use crate::array::Array;
use crate::geometry::{Geometry, PageAddress};
use crate::lun::Promise;
use crate::preset::Preset;
use crate::wire::Wire;
use weir_units::rng::SplitMix64;

/// What MQSim printed, see the file's first lines.
const MQSIM: &str = include_str!("../../../../bench/reference/mqsim.tsv");

/// A row of it.
struct Row {
    config: &'static str,
    geometry: Geometry,
    timing: FlashTiming,
    /// Lanes of the link, and their rate in GB/s.
    link: (u64, u64),
    reads: u32,
    bytes: u32,
    depth: u64,
    requests: u64,
    iops: f64,
    mean: f64,
}

impl Row {
    fn parse(line: &'static str) -> Row {
        let fields: Vec<&str> = line.split('\t').collect();
        let number = |i: usize| fields[i].parse::<u32>().unwrap();
        let times = |i: usize, more: u64| {
            let given: Vec<u64> = fields[i].split(',').map(|t| t.parse::<u64>().unwrap() + more).collect();
            core::array::from_fn(|level| Nanos(given[level.min(given.len() - 1)]))
        };
        let parts = Preset::MqsimDefault.parts(true);
        let geometry = Geometry {
            channels: number(1),
            ways: number(2) * number(3),
            planes: number(4),
            blocks: number(5),
            pages: number(6),
            page_bytes: number(7),
            cell: fields[8].parse().unwrap(),
            ..parts.geometry
        };
        let timing = FlashTiming {
            read: times(9, 20),
            program: times(10, 0),
            // Two transfers of a byte, each cut to whole nanoseconds.
            channel: Wire::units(2, 2 * u64::from(1000 / number(11))),
            chips: number(2),
            ..parts.timing
        };
        Row {
            config: fields[0],
            geometry,
            timing,
            link: (number(12).into(), number(13).into()),
            reads: number(14),
            bytes: number(15),
            depth: number(16).into(),
            requests: number(17).into(),
            iops: fields[19].parse().unwrap(),
            mean: fields[20].parse().unwrap(),
        }
    }

    /// How long a message of so many data bytes takes on the link: packets of 128 bytes, 28 more for each (host/PCIe_Link.h).
    fn message(&self, bytes: u64) -> u64 {
        let (full, rest) = (bytes / 128, bytes % 128);
        let carried = full * 156 + if rest > 0 { rest + 28 } else { 0 };
        carried.div_ceil(self.link.0) / self.link.1
    }
}

/// The rate of a closed loop and its mean response time in nanoseconds: each of `depth` requests on a plane drawn for it, whose pages
/// follow each other as they are written.
fn closed_loop(row: &Row, count: u64) -> (f64, f64) {
    let shape = row.geometry.shape().unwrap();
    let mut array = Array::new(&shape, &row.timing, &Preset::MqsimDefault.parts(true).variability);
    let mut rng = SplitMix64::new(row.depth ^ 0x5eed);
    let mut next = alloc::vec![0; shape.planes() as usize];
    // Doorbell, read request and entry; data; completion.
    let read_request = 32 / row.link.0 / row.link.1;
    let (command, data, end) =
        (2 * row.message(2) + read_request + row.message(44), row.message(row.bytes.into()), row.message(16));
    let (mut begun, mut to_host, mut to_drive) = (Vec::new(), 0u64, 0u64);
    let (mut sum, mut done, mut first) = (0, 0, 0);
    let mut submit = |array: &mut Array, now: u64, begun: &mut Vec<(u64, bool)>| {
        let plane = rng.below(shape.planes());
        let page = next[plane as usize] % shape.pages_per_block();
        next[plane as usize] += 1;
        let place = PageAddress { plane, block: 0, page };
        let is_read = rng.below(100) < row.reads;
        begun.push((now, is_read));
        let mut from = now + command;
        if !is_read {
            to_drive = to_drive.max(from + read_request) + data;
            from = to_drive;
        }
        let from = When::at(Nanos(from));
        let when = match is_read {
            true => array.read_at(from, place, row.bytes),
            false => array.program_at(from, place, row.bytes, Promise::Told),
        };
        array.signal(when, Signal::Admit { ticket: begun.len() as u32 - 1 });
    };
    (0..row.depth).for_each(|_| submit(&mut array, 0, &mut begun));
    let warm = count / 20;
    while done < count {
        let Some((at, signal)) = array.step(Nanos::NEVER) else { panic!("nothing is under way") };
        let ticket = match signal {
            Signal::Admit { ticket } if begun[ticket as usize].1 => {
                // Its data crosses the link, and then its completion asks for it.
                to_host = at.0.max(to_host) + data;
                array.signal(When::at(Nanos(to_host)), Signal::Told { tag: ticket.into() });
                continue;
            }
            Signal::Admit { ticket } => ticket as usize,
            Signal::Told { tag } => tag as usize,
            other => panic!("{other:?}"),
        };
        to_host = at.0.max(to_host) + end;
        let since = begun[ticket].0;
        done += 1;
        if done <= warm {
            first = to_host;
        } else {
            sum += to_host - since;
        }
        submit(&mut array, to_host, &mut begun);
        if done % 4096 == 0 {
            array.check();
        }
    }
    let counted = (count - warm) as f64;
    (counted * 1e9 / (to_host - first) as f64, sum as f64 / counted)
}

/// How far the rate and the mean response time of a row are off, in percent.
fn off(line: &'static str) -> (f64, f64) {
    let row = Row::parse(line);
    let (iops, mean) = closed_loop(&row, row.requests);
    ((iops / row.iops - 1.0) * 100.0, (mean / row.mean - 1.0) * 100.0)
}

/// The rows that MQSim printed.
fn rows() -> impl Iterator<Item = &'static str> {
    MQSIM.lines().filter(|line| !line.starts_with('#') && !line.starts_with("config\t"))
}

fn are_as_mqsim(rows: &[&'static str]) {
    for line in rows {
        let (iops, mean) = off(line);
        assert!(iops.abs() < 2.0 && mean.abs() < 2.0, "{iops:+.2} % of the rate, {mean:+.2} % of the mean: {line}");
    }
}

/// Its default configuration at a few depths, and of each of those that were drawn the deepest reads.
#[test]
fn as_mqsim() {
    let default = rows().filter(|line| line.starts_with("default")).map(|line| (Row::parse(line), line));
    let some = default.filter(|(row, _)| [1, 16, 64].contains(&row.depth)).map(|(_, line)| line);
    let drawn = rows().map(|line| (Row::parse(line), line));
    let deepest = drawn.filter(|(row, _)| row.config != "default" && (row.depth, row.reads) == (256, 100));
    let rows: Vec<&str> = some.chain(deepest.map(|(_, line)| line)).collect();
    assert!(rows.len() > 15, "{} rows", rows.len());
    are_as_mqsim(&rows);
}

#[test]
#[ignore = "a minute: ./test --full"]
fn as_mqsim_in_every_row() {
    let rows: Vec<&str> = rows().collect();
    assert!(rows.len() > 300, "{} rows", rows.len());
    are_as_mqsim(&rows);
}
