//! vfio-user: a PCIe drive of `weir up` driven by `weir bench` from the other core, against the same drive in one process and against
//! bare rings in shared memory; what exported drives cost that nobody uses; the mechanisms of arbitration side by side.

use crate::figure::{Report, Series, Target};
use crate::servers::{Pcie, Scratch};
use crate::{BenchError, Setup, client, failed, probe, ring};
use std::time::{Duration, Instant};
use weir_sys::transport::vfio_user::{VfioUserOptions, VfioUserQueue, connect};

/// Drives that nobody uses.
const IDLE: usize = 64;
const MECHANISMS: [&str; 3] = ["rr", "wrr", "drr"];

/// A load: its name, weir bench's arguments, and the same for the bare ring.
struct Load {
    name: &'static str,
    qd: &'static str,
    rw: &'static str,
    bs: &'static str,
    bare: ring::Load,
}

const fn load(
    name: &'static str,
    qd: &'static str,
    rw: &'static str,
    bs: &'static str,
    bare: (u64, u64, bool),
) -> Load {
    Load { name, qd, rw, bs, bare: ring::Load { depth: bare.0, bytes: bare.1, write: bare.2 } }
}

const LOADS: [Load; 8] = [
    load("4 KiB QD1 read", "1", "randread", "4KiB", (1, 4096, false)),
    load("4 KiB QD1 write", "1", "randwrite", "4KiB", (1, 4096, true)),
    load("4 KiB QD32 read", "32", "randread", "4KiB", (32, 4096, false)),
    load("4 KiB QD32 write", "32", "randwrite", "4KiB", (32, 4096, true)),
    load("4 KiB QD128 read", "128", "randread", "4KiB", (128, 4096, false)),
    load("4 KiB QD128 write", "128", "randwrite", "4KiB", (128, 4096, true)),
    load("128 KiB QD32 read", "32", "randread", "128KiB", (32, 128 << 10, false)),
    load("128 KiB QD32 write", "32", "randwrite", "128KiB", (32, 128 << 10, true)),
];

/// IOPS and p50 of one contestant under one load, round by round.
#[derive(Default)]
struct Pair {
    iops: Series,
    p50: Series,
}

impl Pair {
    fn push(&mut self, iops: f64, p50_ns: f64) {
        self.iops.push(iops);
        self.p50.push(p50_ns);
    }
}

#[derive(Default)]
struct Found {
    ram: Pair,
    null: Pair,
    local_ram: Pair,
    local_null: Pair,
    bare: Pair,
}

/// Measures all loads on RAM and null media, idle drives, and the mechanisms.
///
/// # Errors
/// Something could not be started.
pub fn measure(setup: &Setup) -> Result<Report, BenchError> {
    let scratch = Scratch::new()?;
    let pcie = Pcie::start(setup, &scratch, true, 0)?;
    pcie.server.pause()?;
    let mut array = vec![0u8; setup.bytes()? as usize];
    array.chunks_mut(4096).enumerate().for_each(|(i, page)| page.fill(i as u8 | 1));
    let mut line = Series::default();
    let mut found: Vec<Found> = LOADS.iter().map(|_| Found::default()).collect();
    let mut mechanisms: [Series; 3] = Default::default();
    for _ in 0..setup.rounds {
        line.push(probe::cache_line((setup.server_core, setup.client_core))?);
        for (load, found) in LOADS.iter().zip(&mut found) {
            round(setup, &pcie, &mut array, load, found)?;
        }
        pcie.server.resume()?;
        for (mechanism, series) in MECHANISMS.iter().zip(&mut mechanisms) {
            let target = format!("{}?arbitration={mechanism}", pcie.null);
            series.push(client::run(setup, &target, &["--qd", "32", "--jobs", "4"])?.iops);
        }
        pcie.server.pause()?;
    }
    // The next ones want the folder and the core.
    drop((pcie, array, scratch));
    let mut report = Report::new("vfio", method(setup));
    report.figure("cache line, one way", "ns", &line);
    for (load, found) in LOADS.iter().zip(&found) {
        loads(&mut report, load, found);
    }
    for (mechanism, series) in MECHANISMS.iter().zip(&mechanisms) {
        report.figure(format!("null, 4 queues of 32, {mechanism}"), "IOPS", series);
    }
    for (mechanism, series) in MECHANISMS.iter().zip(&mechanisms).skip(1) {
        report.judged(format!("null, {mechanism} / rr"), "x", &series.over(&mechanisms[0]), Target::AtLeast(0.95));
    }
    idle(setup, &mut report)?;
    Ok(report)
}

/// Measures idle drives alone.
///
/// # Errors
/// Something could not be started.
pub fn idle_alone(setup: &Setup) -> Result<Report, BenchError> {
    let (s, c) = (setup.server_core, setup.client_core);
    let mut report = Report::new(
        "vfio-idle",
        vec![
            format!(
                "{IDLE} null drives with a client each that sends nothing, weir up without --poll on core {s}, beside one that"
            ),
            format!(
                "weir bench vfio-user: on core {c} keeps busy; {} rounds of {} s, medians [lowest - highest]",
                setup.rounds,
                setup.seconds()
            ),
        ],
    );
    idle(setup, &mut report)?;
    Ok(report)
}

fn method(setup: &Setup) -> Vec<String> {
    let (s, c, capacity) = (setup.server_core, setup.client_core, &setup.capacity);
    vec![
        format!(
            "vfio-user, random requests, {} rounds of {} s in turn; medians [lowest - highest]",
            setup.rounds,
            setup.seconds()
        ),
        format!(
            "ram, null: weir up --poll on core {s}, RAM drive of {capacity} written full, null drive that moves nothing;"
        ),
        format!("weir bench vfio-user: on core {c}, spinning, doorbells mapped, PRPs or SGLs as the drive takes them"),
        format!(
            "local: the same drives and the same client in one thread on core {c} (weir bench local:), written full"
        ),
        format!(
            "bare: rings, a doorbell and copies to and from random places of {capacity}, core {s} and core {c}, spinning"
        ),
        format!("idle: weir up without --poll, {IDLE} more null drives with a client each that sends nothing"),
    ]
}

fn round(setup: &Setup, pcie: &Pcie, array: &mut [u8], load: &Load, found: &mut Found) -> Result<(), BenchError> {
    let args = ["--qd", load.qd, "--rw", load.rw, "--bs", load.bs];
    pcie.server.resume()?;
    for (target, pair) in [(&pcie.ram, &mut found.ram), (&pcie.null, &mut found.null)] {
        let run = client::run(setup, target, &args)?;
        pair.push(run.iops, run.p50_ns);
    }
    pcie.server.pause()?;
    for (kind, pair) in [("ram", &mut found.local_ram), ("null", &mut found.local_null)] {
        let target = format!("local:{kind}?capacity={}&block_size=4096&slots=128", setup.capacity);
        let run = client::run_written(setup, &target, (load.qd, load.rw, load.bs))?;
        pair.push(run.iops, run.p50_ns);
    }
    let run = ring::run(setup, array, load.bare)?;
    found.bare.push(run.iops, run.p50_ns);
    Ok(())
}

fn loads(report: &mut Report, load: &Load, found: &Found) {
    let name = load.name;
    for (who, pair) in [
        ("ram", &found.ram),
        ("null", &found.null),
        ("local ram", &found.local_ram),
        ("local null", &found.local_null),
        ("bare", &found.bare),
    ] {
        report.figure(format!("{name}, {who}"), "IOPS", &pair.iops);
        if load.qd == "1" {
            report.figure(format!("{name}, {who}, p50"), "ns", &pair.p50);
        }
    }
    if load.qd == "1" {
        for (who, pair, local) in [("ram", &found.ram, &found.local_ram), ("null", &found.null, &found.local_null)] {
            let over = pair.p50.minus(&local.p50);
            report.judged(format!("{name}, {who}, p50 over local"), "ns", &over, Target::AtMost(800.0));
        }
    } else {
        let over = found.ram.iops.over(&found.bare.iops);
        match load.qd {
            "32" => report.judged(format!("{name}, ram / bare"), "x", &over, Target::AtLeast(0.6)),
            _ => report.figure(format!("{name}, ram / bare"), "x", &over),
        }
    }
}

/// What the idle drives cost: of a core with nothing to do, and of a busy drive beside them.
fn idle(setup: &Setup, report: &mut Report) -> Result<(), BenchError> {
    let [mut alone, mut beside, mut share]: [Series; 3] = Default::default();
    for _ in 0..setup.rounds {
        for (idle, iops) in [(0, &mut alone), (IDLE, &mut beside)] {
            let scratch = Scratch::new()?;
            let pcie = Pcie::start(setup, &scratch, false, idle)?;
            let clients = (0..idle)
                .map(|i| connect(&pcie.idle(&scratch, i), &VfioUserOptions { depth: 8, ..VfioUserOptions::default() }))
                .collect::<Result<Vec<Vec<VfioUserQueue>>, _>>()?;
            if idle > 0 {
                share.push(idle_share(&pcie)? * 100.0);
            }
            iops.push(client::run(setup, &pcie.null, &["--qd", "32"])?.iops);
            drop(clients);
        }
    }
    report.judged(format!("{IDLE} idle drives with clients"), "% core", &share, Target::AtMost(1.0));
    report.figure("busy null drive, QD32, alone", "IOPS", &alone);
    report.figure(format!("busy null drive, QD32, beside {IDLE} idle ones"), "IOPS", &beside);
    report.judged("beside idle ones / alone", "x", &beside.over(&alone), Target::AtLeast(0.99));
    Ok(())
}

/// How much of a core the server takes while nobody asks it for anything.
fn idle_share(pcie: &Pcie) -> Result<f64, BenchError> {
    // What connecting them was is over.
    std::thread::sleep(Duration::from_millis(500));
    let (begun, before) = (Instant::now(), pcie.server.cpu_time()?);
    std::thread::sleep(Duration::from_secs(2));
    let used = pcie.server.cpu_time()?.checked_sub(before).ok_or_else(|| failed("the server", "its time went back"))?;
    Ok(used.as_secs_f64() / begun.elapsed().as_secs_f64())
}
