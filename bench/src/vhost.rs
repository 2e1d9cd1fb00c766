//! vhost-user-blk: Weir's RAM drive against qemu-storage-daemon, all driven by Weir's own front end, and against bare rings.

use crate::figure::{Report, Series, Target};
use crate::servers::{Medium, Qemu, Scratch, Weir};
use crate::{BenchError, Setup, client, probe, ring};

/// Measures QD1 and QD32, reads and writes.
///
/// # Errors
/// Something could not be started.
pub fn measure(setup: &Setup) -> Result<Report, BenchError> {
    // tidy: long because it is a list of what is measured, in the order of the report
    let (s, c) = (setup.server_core, setup.client_core);
    let method = vec![
        format!(
            "vhost-user-blk, 4 KiB random requests, split ring, {} rounds of {} s in turn; medians [lowest - highest]",
            setup.rounds,
            setup.seconds()
        ),
        format!("weir: weir up --poll on core {s}, RAM drive of {} written full, bytes copied", setup.capacity),
        format!(
            "qemu-storage-daemon on core {s}, an I/O thread with poll-max-ns=1000000: a tmpfs file of {} written full;",
            setup.capacity
        ),
        "null-co, which moves no bytes".to_string(),
        format!("client: weir bench on core {c}, spinning"),
        format!(
            "bare: rings, a doorbell and copies to and from random places of {}, core {s} and core {c}, spinning",
            setup.capacity
        ),
    ];
    let scratch = Scratch::new()?;
    let weir = Weir::start(setup, &scratch)?;
    weir.server.pause()?;
    let tmpfs = Qemu::start(setup, &scratch, Medium::Tmpfs)?;
    let null = Qemu::start(setup, &scratch, Medium::Null)?;
    let contestants = [
        ("weir", &weir.vhost, &weir.server),
        ("tmpfs", &tmpfs.target, &tmpfs.server),
        ("null", &null.target, &null.server),
    ];
    for (_, _, server) in contestants {
        server.pause()?;
    }
    let loads = [
        ("QD1 read", "1", "randread"),
        ("QD32 read", "32", "randread"),
        ("QD1 write", "1", "randwrite"),
        ("QD32 write", "32", "randwrite"),
    ];
    let mut array = vec![0u8; setup.bytes()? as usize];
    array.chunks_mut(4096).enumerate().for_each(|(i, page)| page.fill(i as u8 | 1));
    let mut bare: [(Series, Series); 4] = Default::default();
    let mut line = Series::default();
    // By contestant, then by load: IOPS and p50.
    let mut found: [[(Series, Series); 4]; 3] = Default::default();
    for _ in 0..setup.rounds {
        line.push(probe::cache_line((s, c))?);
        for ((_, target, server), found) in contestants.iter().zip(&mut found) {
            server.resume()?;
            for ((_, depth, rw), series) in loads.iter().zip(found) {
                let run = client::run(setup, target, &["--qd", depth, "--rw", rw])?;
                series.0.push(run.iops);
                series.1.push(run.p50_ns);
            }
            server.pause()?;
        }
        for ((_, depth, rw), series) in loads.iter().zip(&mut bare) {
            let depth = if *depth == "1" { 1 } else { 32 };
            let load = ring::Load { depth, bytes: 4096, write: *rw == "randwrite" };
            let run = ring::run(setup, &mut array, load)?;
            series.0.push(run.iops);
            series.1.push(run.p50_ns);
        }
    }
    let mut report = Report::new("vhost", method);
    report.figure("cache line, one way", "ns", &line);
    for (i, (load, depth, _)) in loads.iter().enumerate() {
        for ((name, ..), found) in contestants.iter().zip(&found) {
            report.figure(format!("{load}, {name}"), "IOPS", &found[i].0);
            if *depth == "1" {
                report.figure(format!("{load}, {name}, p50"), "ns", &found[i].1);
            }
        }
        report.figure(format!("{load}, bare"), "IOPS", &bare[i].0);
        if *depth == "1" {
            report.figure(format!("{load}, bare, p50"), "ns", &bare[i].1);
            report.figure(format!("{load}, weir / bare, p50"), "x", &found[0][i].1.over(&bare[i].1));
        } else {
            report.figure(format!("{load}, weir / bare"), "x", &found[0][i].0.over(&bare[i].0));
        }
        let [weir, tmpfs, null] = &found;
        let (over_tmpfs, over_null) = (weir[i].0.over(&tmpfs[i].0), weir[i].0.over(&null[i].0));
        if *depth == "32" {
            report.judged(format!("{load}, weir / tmpfs"), "x", &over_tmpfs, Target::AtLeast(8.0));
            report.judged(format!("{load}, weir / null"), "x", &over_null, Target::AtLeast(0.9));
        } else {
            report.figure(format!("{load}, weir / tmpfs"), "x", &over_tmpfs);
            report.figure(format!("{load}, weir / null"), "x", &over_null);
        }
    }
    Ok(report)
}
