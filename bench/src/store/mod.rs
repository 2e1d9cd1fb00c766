//! What a store adds to its drives and to a bare round trip, row by row of its targets. `weir fs bench` is the client of most rows, so that
//! what is measured is what users run; it and what it is compared with take turns.

pub mod answers;
mod bare;
mod etcd;
mod node;

use crate::figure::{Report, Series, Target};
use crate::{BenchError, Setup, failed, floors};
use node::{FsRun, StoreNode};
use std::time::Instant;
use weir_store_node::client::{Client, ClientOptions, CreateOptions};

/// Pairs at the least.
const PAIRS: u32 = 20;
/// Bytes of the file that is read, and of the drive alone.
const FILE: u64 = 256 << 20;
/// Files of the rows that need many.
const FILES: u64 = 20_000;
/// Names of the folder that is listed.
const NAMES: u64 = 1000;

/// Two contestants in turn, every other round in the opposite order.
fn pairs(
    setup: &Setup,
    mut first: impl FnMut() -> Result<f64, BenchError>,
    mut second: impl FnMut() -> Result<f64, BenchError>,
) -> Result<(Series, Series), BenchError> {
    let mut found = (Series::default(), Series::default());
    for round in 0..setup.rounds.max(PAIRS) {
        let (a, b) = if round % 2 == 0 {
            let a = first()?;
            (a, second()?)
        } else {
            let b = second()?;
            (first()?, b)
        };
        found.0.push(a);
        found.1.push(b);
    }
    Ok(found)
}

/// Measures.
///
/// # Errors
/// Something could not be started, or an operation failed.
pub fn measure(setup: &Setup) -> Result<Report, BenchError> {
    let (s, c) = (setup.server_core, setup.client_core);
    let mut method = vec![
        format!(
            "weir up on core {s}, not polling: RAM drives of 2 GiB in the store and one beside it, NVMe/TCP; metadata service (redb, \
             durability process) on the same core; bare contestants on core {c}, weir fs bench on whichever is free"
        ),
        format!("{} pairs in turn; medians [lowest - highest] and the 95 % interval of the median of the pairs", setup.rounds.max(PAIRS)),
        "raw: the drive beside the store, by the same driver, queue and waiting; bare: sockets, epoll at the server, as many bytes".into(),
        "what is written was written before, in files as on the drive alone: a RAM drive takes memory for what is new".into(),
    ];
    let etcd = etcd::program();
    method.push(match &etcd {
        Some(program) => format!(
            "etcd: {} with its files in memory; both sides by one gRPC connection and one thread",
            program.display()
        ),
        None => "etcd: there is none in PATH, and WEIR_ETCD names none; its rows are left out".into(),
    });
    let mut report = Report::new("store", method);
    if let Some(program) = etcd {
        etcd::commits(setup, &program, &mut report)?;
    }
    let node = StoreNode::start(setup)?;
    node.touch()?;
    node.run("writeAsync -s 1MiB -b 8 -w 0 -f /read", FILE >> 20)?;
    node.run_raw("writeAsync -s 1MiB -b 8 -w 0", FILE >> 20, FILE)?;
    let lookup = names(setup, &node, &mut report)?;
    reads(setup, &node, &lookup, &mut report)?;
    throughput(setup, &node, &mut report)?;
    buffered(setup, &node, &mut report)?;
    small(setup, &node, &mut report)?;
    many_connections(setup, &node, &mut report)?;
    restart(setup, node, &mut report)?;
    Ok(report)
}

fn p50(run: Result<FsRun, BenchError>) -> Result<f64, BenchError> {
    run.map(|run| run.p50_ns / 1e3)
}

/// Lookups against a bare round trip, creates against lookups, lists. The lookups, us.
fn names(setup: &Setup, node: &StoreNode, report: &mut Report) -> Result<Series, BenchError> {
    let shape = answers::shape_of_lookup(&node.address, "/read")?;
    let (lookup, bare) = pairs(
        setup,
        || p50(node.run("getFile -f /read", 2000)),
        || bare::round_trip(setup, &shape, 2000).map(|ns| ns / 1e3),
    )?;
    report.figure("lookup", "us", &lookup);
    report.figure(format!("bare round trip, {} + {} bytes", shape.request.len(), shape.answer), "us", &bare);
    report.judged_by_interval("lookup / bare", "x", &lookup.over(&bare), Target::AtMost(1.3));
    let mut round = 0;
    let (create, beside) = pairs(
        setup,
        || {
            round += 1;
            p50(node.run(&format!("createFile -f /made{round}"), 1000))
        },
        || p50(node.run("getFile -f /read", 1000)),
    )?;
    report.judged_by_interval("create, process", "us", &create, Target::AtMost(40.0));
    report.judged_by_interval("create / lookup", "x", &create.over(&beside), Target::AtMost(2.0));
    node.run("createFile -f /thousand -w 0", NAMES)?;
    let mut list = Series::default();
    for _ in 0..setup.rounds.max(PAIRS) {
        list.push(p50(node.run("enumerateDir -f /thousand", 10))? / 1e3);
    }
    report.judged_by_interval("list of 1,000 names", "ms", &list, Target::AtMost(0.3));
    Ok(lookup)
}

/// Random reads of 4 KiB, cached and not, against the drive alone.
fn reads(setup: &Setup, node: &StoreNode, lookup: &Series, report: &mut Report) -> Result<(), BenchError> {
    let (file, raw) = pairs(
        setup,
        || p50(node.run("readRandomDirect -s 4096 -f /read", 2000)),
        || p50(node.run_raw("readRandomDirect -s 4096", 2000, FILE)),
    )?;
    report.figure("random 4 KiB read, map cached", "us", &file);
    report.figure("random 4 KiB read, raw", "us", &raw);
    report.judged_by_interval("map cached less raw", "us", &file.minus(&raw), Target::AtMost(2.0));
    let (cold, cached) = pairs(
        setup,
        || p50(node.run("readRandomDirect -s 4096 --cold all -f /read", 500)),
        || p50(node.run("readRandomDirect -s 4096 -f /read", 500)),
    )?;
    report.figure("random 4 KiB read, nothing cached", "us", &cold);
    let more = cold.minus(&cached).over(lookup);
    report.judged_by_interval("nothing cached less cached / lookup", "x", &more, Target::AtMost(1.0));
    Ok(())
}

fn throughput(setup: &Setup, node: &StoreNode, report: &mut Report) -> Result<(), BenchError> {
    for (what, mode, path) in [("read", "readAsync", "/read"), ("write", "writeAsync", "/write")] {
        let rate = |run: Result<FsRun, BenchError>| run.map(|run| run.bytes_per_s / 1e6);
        let (file, raw) = pairs(
            setup,
            || rate(node.run(&format!("{mode} -s 65536 -b 128 -f {path}"), 4096)),
            || rate(node.run_raw(&format!("{mode} -s 65536 -b 128"), 4096, FILE)),
        )?;
        report.figure(format!("64 KiB, 128 in flight, {what}, file"), "MB/s", &file);
        report.figure(format!("64 KiB, 128 in flight, {what}, raw"), "MB/s", &raw);
        let what = format!("64 KiB, 128 in flight, {what}, file / raw");
        report.judged_by_interval(what, "x", &file.over(&raw), Target::AtLeast(0.95));
    }
    Ok(())
}

/// Buffered streams: the time that an operation takes of the whole.
fn buffered(setup: &Setup, node: &StoreNode, report: &mut Report) -> Result<(), BenchError> {
    for (what, line, target) in
        [("read", "readSequentialBuffered -s 4096 -f /read", 1.0), ("write", "writeBuffered -s 4096 -f /written", 2.0)]
    {
        let mut time = Series::default();
        for _ in 0..setup.rounds.max(PAIRS) {
            time.push(1e6 / node.run(line, 32_768)?.operations_per_s);
        }
        report.judged_by_interval(format!("buffered 4 KiB {what}"), "us", &time, Target::AtMost(target));
    }
    Ok(())
}

/// A small file made, written and closed; a key's value.
fn small(setup: &Setup, node: &StoreNode, report: &mut Report) -> Result<(), BenchError> {
    let client = Client::connect(&node.address, ClientOptions::default()).map_err(|e| failed("the store", e))?;
    let mut made = 0;
    let (put, lookup) = pairs(
        setup,
        || {
            floors::on_the_core(setup, || {
                let mut times = Series::default();
                for _ in 0..500 {
                    made += 1;
                    let begun = Instant::now();
                    let put = client.put_small(format!("/small{made}"), &[1; 1024], &CreateOptions::default());
                    put.map_err(|e| failed("a small file", e))?;
                    times.push(begun.elapsed().as_nanos() as f64 / 1e3);
                }
                Ok(times.spread().median)
            })
        },
        || p50(node.run("getFile -f /read", 500)),
    )?;
    report.figure("create, write and close of 1 KiB", "us", &put);
    report.judged_by_interval("the same / lookup", "x", &put.over(&lookup), Target::AtMost(2.0));
    let (get, lookup) =
        pairs(setup, || p50(node.run("getKey -s 1024 -f /key", 2000)), || p50(node.run("getFile -f /read", 2000)))?;
    report.figure("get of a key", "us", &get);
    report.judged_by_interval("get of a key / lookup", "x", &get.over(&lookup), Target::AtMost(1.0));
    Ok(())
}

/// One service core with many connections, and with very many of which few are used.
fn many_connections(setup: &Setup, node: &StoreNode, report: &mut Report) -> Result<(), BenchError> {
    node.run("createFile -f /many -w 0", FILES)?;
    let shape = answers::shape_of_lookup(&node.address, "/many/1000")?;
    let requests = answers::lookups((1000..10_000).map(|at| format!("/many/{at}")))?;
    for (depth, target) in [(16, 0.6), (1, 0.8)] {
        let connections = answers::connect(&node.address, 64)?;
        let load = answers::Load { depth, time: setup.time, core: setup.client_core };
        let (ours, bare) = pairs(
            setup,
            || answers::rate(&connections, &requests, load).map(|run| run.per_s),
            || bare::rate(setup, &shape, (64, load)).map(|run| run.per_s),
        )?;
        report.figure(format!("lookups, 64 connections x {depth}"), "1/s", &ours);
        report.figure(format!("bare server, 64 connections x {depth}"), "1/s", &bare);
        let what = format!("lookups / bare, 64 connections x {depth}");
        report.judged_by_interval(what, "x", &ours.over(&bare), Target::AtLeast(target));
    }
    let active = answers::connect(&node.address, 64)?;
    let load = answers::Load { depth: 1, time: setup.time, core: setup.client_core };
    let memory = node.memory()?;
    let wanted = answers::idle_connections();
    let mut idle = Vec::new();
    let mut with = Series::default();
    let mut without = Series::default();
    for _ in 0..setup.rounds.max(PAIRS) {
        without.push(answers::rate(&active, &requests, load)?.p99_ns / 1e3);
    }
    idle.extend(answers::connect(&node.address, wanted)?);
    let more = (node.memory()? - memory) / wanted as f64;
    for _ in 0..setup.rounds.max(PAIRS) {
        with.push(answers::rate(&active, &requests, load)?.p99_ns / 1e3);
    }
    report.figure("p99 of 64 connections alone", "us", &without);
    report.figure(format!("p99 of 64 beside {wanted} idle ones"), "us", &with);
    report.judged_by_interval("p99 with / without idle ones", "x", &with.over(&without), Target::AtMost(1.2));
    report.judged("memory of an idle connection", "KiB", &Series::of(more / 1024.0), Target::AtMost(16.0));
    drop(idle);
    Ok(())
}

/// kill -9 and a new start with many files.
fn restart(setup: &Setup, mut node: StoreNode, report: &mut Report) -> Result<(), BenchError> {
    let mut times = Series::default();
    for _ in 0..setup.rounds.max(PAIRS) {
        times.push(node.kill_and_start(setup, "/many/1000")?);
    }
    report.judged_by_interval("kill -9, exec to the first right lookup", "s", &times, Target::AtMost(1.0));
    let files = node.files()?;
    let disk = Series::of(node.metadata_bytes()? / files);
    report.judged(format!("metadata on disk, a file, of {files} files"), "B", &disk, Target::AtMost(600.0));
    Ok(())
}
