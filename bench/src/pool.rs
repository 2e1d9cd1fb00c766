//! What a volume costs over its drive: one volume and a raw drive of the same node in turn; and what it costs where some of a volume lies on
//! a drive of another core.

use crate::figure::{Report, Series};
use crate::servers::{Pooled, Scratch};
use crate::{BenchError, Setup, client, failed, probe};

const LOADS: [(&str, &str, &str); 4] = [
    ("QD1 read", "1", "randread"),
    ("QD1 write", "1", "randwrite"),
    ("QD32 read", "32", "randread"),
    ("QD32 write", "32", "randwrite"),
];

/// Of one contestant under one load: the median latency at depth 1, else the time that a request takes of the whole, ns.
#[derive(Default)]
struct Found {
    time: Series,
    /// What the server's threads spend on cores for a request, ns.
    cpu: Series,
}

/// Measures.
///
/// # Errors
/// `weir` is not there or fails.
pub fn measure(setup: &Setup) -> Result<Report, BenchError> {
    let (s, c) = (setup.server_core, setup.client_core);
    let far = setup.far_core.unwrap_or_else(|| if setup.cores() > 2 { 2 } else { c });
    let shared = if far == c { ", WHICH IS THE CLIENT'S: there is no third" } else { "" };
    let method = vec![
        format!(
            "a raw RAM drive of {} and a volume of as much on another one, vhost-user-blk, one node (weir up --poll on core {s}), 4 KiB,",
            setup.capacity
        ),
        format!(
            "written full, bytes copied; {} rounds of {} s in turn; weir bench on core {c}, spinning; medians [lowest - highest]",
            setup.rounds,
            setup.seconds()
        ),
        format!(
            "wide: a volume on two drives of half of that, without --poll; near: both on core {s}, far: the second half on"
        ),
        format!("core {far}{shared}; CPU: what the server's threads take of cores for a request"),
        "QD1: median latency; QD32: time by requests".to_string(),
    ];
    let mut report = Report::new("pool", method);
    beside_raw(setup, &mut report)?;
    far_and_near(setup, far, &mut report)?;
    Ok(report)
}

/// Median latency, or the time by requests.
fn time(run: &client::Run, depth: &str) -> Result<f64, BenchError> {
    if run.iops == 0.0 {
        return Err(failed("weir bench", "no request was answered; give more --time"));
    }
    Ok(if depth == "1" { run.p50_ns } else { 1e9 / run.iops })
}

fn beside_raw(setup: &Setup, report: &mut Report) -> Result<(), BenchError> {
    let scratch = Scratch::new()?;
    let node = Pooled::beside_raw(setup, &scratch)?;
    let targets = [&node.targets[0], &node.targets[1]];
    let mut found: [[Series; 2]; 4] = Default::default();
    let mut line = Series::default();
    node.server.pause()?;
    for round in 0..setup.rounds {
        line.push(probe::cache_line((setup.server_core, setup.client_core))?);
        node.server.resume()?;
        for ((_, depth, rw), found) in LOADS.iter().zip(&mut found) {
            // Every other round in the opposite order, pushed in one order.
            let mut times = [0.0; 2];
            for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                let run = client::run(setup, targets[at], &["--qd", depth, "--rw", rw])?;
                times[at] = time(&run, depth)?;
            }
            found.iter_mut().zip(times).for_each(|(series, time)| series.push(time));
        }
        node.server.pause()?;
    }
    report.figure("cache line, one way", "ns", &line);
    for ((load, ..), [raw, volume]) in LOADS.iter().zip(&found) {
        report.figure(format!("{load}, raw drive"), "ns", raw);
        report.figure(format!("{load}, volume"), "ns", volume);
        report.figure(format!("{load}, the volume layer"), "ns", &volume.minus(raw));
        report.figure(format!("{load}, volume / raw drive"), "x", &volume.over(raw));
    }
    Ok(())
}

fn far_and_near(setup: &Setup, far: usize, report: &mut Report) -> Result<(), BenchError> {
    let scratches = [Scratch::named("near")?, Scratch::named("far")?];
    let near = Pooled::wide(setup, &scratches[0], &[setup.server_core])?;
    near.server.pause()?;
    let far = Pooled::wide(setup, &scratches[1], &[setup.server_core, far])?;
    far.server.pause()?;
    let mut found: [[Found; 2]; 4] = Default::default();
    for round in 0..setup.rounds {
        for ((_, depth, rw), found) in LOADS.iter().zip(&mut found) {
            let mut times = [(0.0, 0.0); 2];
            for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                let node = [&near, &far][at];
                node.server.resume()?;
                let before = node.server.cpu_time()?;
                let run = client::run(setup, &node.targets[0], &["--qd", depth, "--rw", rw])?;
                let cpu = node.server.cpu_time()?.saturating_sub(before).as_nanos() as f64;
                node.server.pause()?;
                times[at] = (time(&run, depth)?, cpu / (run.iops * setup.seconds()));
            }
            for (found, (time, cpu)) in found.iter_mut().zip(times) {
                found.time.push(time);
                found.cpu.push(cpu);
            }
        }
    }
    for ((load, ..), [near, far]) in LOADS.iter().zip(&found) {
        report.figure(format!("{load}, wide, near"), "ns", &near.time);
        report.figure(format!("{load}, wide, far"), "ns", &far.time);
        report.figure(format!("{load}, wide, far / near"), "x", &far.time.over(&near.time));
        report.figure(format!("{load}, wide, near, CPU"), "ns", &near.cpu);
        report.figure(format!("{load}, wide, far, CPU"), "ns", &far.cpu);
    }
    Ok(())
}
