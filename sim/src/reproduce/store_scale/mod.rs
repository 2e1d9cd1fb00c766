//! The metadata service at thousands of nodes, in virtual time: what it does at once, how evenly it fills drives, and what a dead process, lost machines
//! and a lost rack cost.
//!
//! ```text
//!   Client ─Request─► Process: weir_store::service::Service ─► key-value store (a model with etcd's published times)
//!          ◄─Answer──                │ labels, moves of blocks
//!          bytes ─────────────► Drives: times only
//! ```
//! The service is the machine that ships, with its leases, sessions, epochs, grants and moves; nothing of it is replaced. The [client](client) is a
//! lean one. Times of network, drives, cores and key-value store are [assumed](scale).

mod client;
mod drives;
mod run;
mod scale;
mod seen;
#[cfg(test)]
mod tests;
mod world;

use self::run::{Balance, Loss, LostNode, REPAIR_BEGINS, StoreRun};
use self::scale::{COMMITS, FULL, MIDDLE, SERVICE_LEASE, StoreSize};
use self::seen::Phase;
use super::numbers::{median, micros};
use super::{Chart, Curve, Figure, LiveMeasurements, Mark, Row, Subject};
use weir_units::Nanos;

/// Bytes that a session may have ahead, all of them on one node: what two drives of a class may differ by.
const GRANT: f64 = (16 << 20) as f64;
/// The classes, by their numbers.
const CLASSES: [&str; 2] = ["memory", "flash"];
/// Bytes that a service moves in a second at the most (`core/store/src/service/moves.rs`).
const RATE: f64 = (128 << 20) as f64;
/// A drive's bytes for which the time of a repair is told: 1 TiB.
const FULL_DRIVE: f64 = (1_u64 << 40) as f64;

/// Makes it.
pub(super) fn figure(live: &mut dyn LiveMeasurements) -> Figure {
    let scale = if live.is_full() { FULL } else { MIDDLE };
    made(scale, &mut |part| live.progress(part))
}

fn made(scale: StoreSize, progress: &mut dyn FnMut(f64)) -> Figure {
    let outcome = run::run(scale, progress);
    let mut rows = load(&scale, &outcome);
    rows.extend(balance(&scale, &outcome));
    rows.extend(takeover(&outcome));
    rows.extend(names(&outcome));
    rows.extend(repair(&scale, &outcome));
    rows.extend(what_holds(&scale, &outcome));
    Figure {
        subject: Subject::StoreScale,
        about: about(&scale),
        rows,
        notes: notes(&outcome),
        charts: charts(&scale, &outcome),
    }
}

fn about(scale: &StoreSize) -> Vec<String> {
    vec![
        format!(
            "Virtual time: {} machines with one drive each (a fifth 64 GiB of memory, the others 1.92 TB of flash) in {} racks of {} in four halls, {} clients, \
             {} processes of the metadata service. The service is the machine that ships; clients are lean: they speak the protocol and keep its rules, and \
             bytes are times only. Nothing of this is a paper's: what is judged are our own claims.",
            scale.nodes,
            scale.nodes.div_ceil(scale.rack),
            scale.rack,
            scale.clients,
            scale.services,
        ),
        "Assumed: 100 to 140 us for a round trip, links of 25 Gbit/s, flash as fast as a 960 PRO's data sheet; a key-value store as etcd's operations guide measures \
         three machines (1.6 ms a commit and 44,341 in a second, 0.7 ms a linearizable read and 141,578 in a second); 8 us of a core for a message, 6 us for an \
         answer of the key-value store, 20 us and 40 ns a namespace for a tick, five times a second."
            .into(),
        format!(
            "One in ten files has one copy, the others two; half of them ask for flash. Machines are lost one each {} s: 1.2 % a year, made {:.0} times \
             faster. repair_after is 60 s, a tenth of its default.",
            StoreSize::BETWEEN.get() / 1_000_000_000,
            scale.compression(),
        ),
    ]
}

fn seconds(time: Nanos) -> f64 {
    time.get() as f64 / 1e9
}

/// What the processes do.
fn load(scale: &StoreSize, outcome: &StoreRun) -> Vec<Row> {
    let sums: Vec<u64> = outcome.seen.answers.iter().map(|of| of.iter().sum()).collect();
    let (all, most) = (sums.iter().sum::<u64>() as f64, sums.iter().copied().max().unwrap_or(0) as f64);
    let at_once = sums.iter().filter(|sum| **sum > 0).count() as f64;
    let busiest = Nanos(outcome.seen.busy.iter().flatten().max().copied().unwrap_or(0));
    let peak = (0..outcome.seen.slowest.len())
        .map(|second| outcome.seen.answers.iter().filter_map(|of| of.get(second)).sum::<u64>())
        .max()
        .unwrap_or(0);
    vec![
        Row::told("answers, all processes", all, "", "all messages of clients and the operator"),
        Row::told(
            "answers in a second, the most",
            peak as f64,
            "/s",
            "while clients fill the store as fast as they can",
        ),
        Row::told(
            "processes that have answered",
            at_once,
            "",
            format!("of {}: one serves, the others stand by; several that serve at once are not built", scale.services),
        ),
        Row::told(
            "load of the busiest process over the mean",
            most / (all / scale.services as f64),
            "x",
            "1 if the load were spread evenly: not built",
        ),
        Row::told(
            "core of the busiest process, its busiest second",
            100.0 * seconds(busiest),
            "%",
            "with the assumed times",
        ),
        Row::told(
            "commits of the key-value store",
            outcome.seen.commits as f64 / seconds(outcome.ended),
            "/s",
            format!("of {COMMITS} that it can make"),
        ),
    ]
}

fn balance(scale: &StoreSize, outcome: &StoreRun) -> Vec<Row> {
    let mut rows = vec![
        Row::told(
            "regions of a drive, mean",
            outcome.regions as f64 / scale.nodes as f64,
            "",
            "fewer of each drive, the more drives there are",
        ),
        Row::told("all drives donated after", seconds(outcome.donated), "s", "64 orders at a time"),
    ];
    for (class, name) in outcome.balance.iter().zip(CLASSES) {
        let Balance { drives, mean, least, most, deviation } = *class;
        rows.push(Row::told(format!("{name}, drives"), drives as f64, "", ""));
        rows.push(Row::told(format!("{name}, used bytes, mean"), mean / 1e6, "MB", "before anything fails"));
        rows.push(Row::told(format!("{name}, deviation over mean"), deviation, "", "of the drives' used bytes"));
        rows.push(Row::told(format!("{name}, most over mean"), most / mean, "x", ""));
        rows.push(Row::relation(
            format!("{name}, most used less least used"),
            (most - least) / 1e6,
            "MB",
            most - least <= GRANT,
            "at most the 16 MiB that one session may have ahead: the node with most free bytes gives the next blocks",
        ));
    }
    rows
}

fn takeover(outcome: &StoreRun) -> Vec<Row> {
    let most = seconds(SERVICE_LEASE) * 2.0;
    vec![
        Row::relation(
            "another process serves after",
            seconds(outcome.served),
            "s",
            seconds(outcome.served) <= most,
            "at most two of its leases of 3 s after the one that served was killed",
        ),
        Row::told(
            "it gives out a block after",
            seconds(outcome.granted),
            "s",
            "all regions have to be taken: a read, a commit and a read each, 256 at a time",
        ),
        Row::told("all clients have it after", seconds(outcome.all_back), "s", "they ask one process after the other"),
        Row::relation(
            "sessions lost by it",
            outcome.seen.sessions_lost as f64,
            "",
            outcome.seen.sessions_lost == 0,
            "none: sessions of 10 s are resumed",
        ),
    ]
}

fn names(outcome: &StoreRun) -> Vec<Row> {
    let phases = [
        (Phase::Before, "before"),
        (Phase::Takeover, "during the takeover"),
        (Phase::After, "after it"),
        (Phase::Losses, "while machines are lost"),
    ];
    let mut rows = Vec::new();
    for (phase, name) in phases {
        let count = outcome.seen.count(phase);
        for (part, text) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")] {
            let label = format!("names, {name}, {text}");
            let of = format!("of {count} looks, lists, creations and deletions");
            rows.push(Row::told(label, micros(outcome.seen.percentile(phase, part)), "us", of));
        }
    }
    rows
}

fn repair(scale: &StoreSize, outcome: &StoreRun) -> Vec<Row> {
    let begun: Vec<&LostNode> =
        outcome.lost.iter().filter(|lost| lost.loss != Loss::BackInTime && lost.copies[0] > 0).collect();
    let open = begun.iter().filter(|lost| lost.repaired.is_none()).count();
    let alone = begun.iter().filter(|lost| lost.loss != Loss::Rack);
    let times: Vec<f64> = alone.filter_map(|lost| Some(seconds(lost.repaired?.saturating_sub(lost.at)))).collect();
    let rack: Vec<&&LostNode> = begun.iter().filter(|lost| lost.loss == Loss::Rack).collect();
    let rack_time = rack
        .iter()
        .filter_map(|lost| lost.repaired)
        .max()
        .map_or(f64::NAN, |at| seconds(at.saturating_sub(outcome.rack)));
    let rack_bytes = rack.iter().map(|lost| lost.copies[0] << 20).sum::<u64>() as f64;
    let moving = rack_time - seconds(REPAIR_BEGINS);
    let losses = scale.nodes as f64 * scale::LOST_A_YEAR as f64 / 1000.0;
    vec![
        Row::relation(
            "machines whose blocks were not made again",
            open as f64,
            "",
            open == 0,
            format!("none of {} that stayed away or came back empty", begun.len()),
        ),
        Row::told(
            "a machine's loss to full copies, median",
            median(times),
            "s",
            "60 s of repair_after and the looks at labels in it",
        ),
        Row::told("a rack's loss to full copies", rack_time, "s", format!("{} machines, as well", rack.len())),
        Row::told(
            "a rack's bytes with another copy, when it is lost",
            rack_bytes / 1e6,
            "MB",
            "some are deleted before they are made again",
        ),
        Row::told(
            "those over the time of its repair, at the most",
            rack_bytes / moving / 1e6,
            "MB/s",
            "134 MB/s and four blocks at a time are the most of a service, however many drives there are",
        ),
        Row::told("bytes moved in all", outcome.moved as f64 / 1e6, "MB", ""),
        Row::told(
            "a drive with 1 TiB, at that rate",
            FULL_DRIVE / RATE / 3600.0,
            "h",
            "a store of any size: the time in which its files have one copy",
        ),
        Row::told(
            "a rack of such drives, at that rate",
            FULL_DRIVE / RATE * scale.rack as f64 / 86_400.0,
            "days",
            "several services would share it: not built",
        ),
        Row::told(
            "repairs of such drives at 1.2 % a year",
            100.0 * losses * FULL_DRIVE / RATE / (365.25 * 86_400.0),
            "%",
            "of a service's time; above 100 % it never ends",
        ),
    ]
}

fn what_holds(scale: &StoreSize, outcome: &StoreRun) -> Vec<Row> {
    let [two, one] = outcome.lost_files;
    let unexpected = outcome.seen.unexpected.len() as f64;
    vec![
        Row::told("files in the end", outcome.files as f64, "", format!("{} records", outcome.records)),
        Row::relation(
            "names that are not as they were acknowledged",
            outcome.wrong_names.len() as f64,
            "",
            outcome.wrong_names.is_empty(),
            "none: each file is there, and each that was deleted is not",
        ),
        Row::relation(
            "files with two copies that are lost",
            two as f64,
            "",
            two == 0,
            format!("none, with {} machines and a rack lost", scale.losses),
        ),
        Row::told(
            "files with one copy that are lost",
            one as f64,
            "",
            "their only copy was on a machine that is gone; the service names them",
        ),
        Row::relation(
            "blocks with both copies in one rack",
            outcome.together as f64,
            "",
            outcome.together == 0,
            "none, while other racks have room in the class",
        ),
        Row::told(
            "writes that met a machine that was gone",
            outcome.seen.failed_writes as f64,
            "",
            "until its label is looked at",
        ),
        Row::relation("answers that no rule expects", unexpected, "", unexpected == 0.0, "none"),
        Row::relation(
            "the service contradicts itself",
            f64::from(u8::from(outcome.check.is_err())),
            "",
            outcome.check.is_ok(),
            "no: check() of the machine",
        ),
        Row::relation("findings of fsck", outcome.findings.len() as f64, "", outcome.findings.is_empty(), "none"),
    ]
}

fn notes(outcome: &StoreRun) -> Vec<String> {
    let mut notes = vec![format!("{:.0} s of virtual time, {} events.", seconds(outcome.ended), outcome.events)];
    let first = |what: &[String]| what.first().cloned();
    notes.extend(outcome.check.err().map(|why| format!("The service contradicts itself: {why}.")));
    notes.extend(first(&outcome.seen.unexpected).map(|what| format!("The first answer that no rule expects: {what}.")));
    notes.extend(first(&outcome.wrong_names).map(|name| format!("The first wrong name: {name}.")));
    notes.extend(first(&outcome.findings).map(|finding| format!("The first finding: {finding}.")));
    notes
}

fn charts(scale: &StoreSize, outcome: &StoreRun) -> Vec<Chart> {
    use super::Scale as Axis;
    let linear = (Axis::Linear, Axis::Linear);
    let mut marks = vec![Mark { x: seconds(outcome.killed), name: "the process that serves is killed".into() }];
    let alone = outcome.lost.iter().filter(|lost| lost.loss != Loss::Rack);
    marks.extend(
        alone.map(|lost| Mark { x: seconds(lost.at), name: format!("node{} {}", lost.node, lost.loss.words()) }),
    );
    marks.push(Mark { x: seconds(outcome.rack), name: format!("a rack of {} is lost", scale.rack) });
    let by_second = |of: &[u64]| of.iter().enumerate().map(|(second, count)| (second as f64, *count as f64)).collect();
    let serving = outcome.seen.answers.iter().enumerate().filter(|(_, of)| of.iter().sum::<u64>() > 0);
    let answers =
        serving.map(|(process, of)| Curve { name: format!("process {}", process + 1), points: by_second(of) });
    let slowest = outcome.seen.slowest.iter().enumerate().filter(|(_, took)| took.get() > 0);
    let slowest = slowest.map(|(second, took)| (second as f64, took.get() as f64 / 1e6)).collect();
    vec![
        Chart {
            title: "Answers of each process",
            axes: ("seconds", "answers a second"),
            scales: linear,
            curves: answers.collect(),
            marks: marks.clone(),
        },
        Chart {
            title: "The slowest request about names",
            axes: ("seconds", "ms"),
            scales: (Axis::Linear, Axis::Log),
            curves: vec![Curve { name: "of each second".into(), points: slowest }],
            marks: marks.clone(),
        },
        Chart {
            title: "Copies on lost machines that are not made again yet, or have no other copy",
            axes: ("seconds", "copies"),
            scales: linear,
            curves: vec![Curve { name: "left".into(), points: outcome.left.clone() }],
            marks,
        },
    ]
}
