//! NVMe/TCP: `weir up` and `weir bench` against bare sockets.

use crate::figure::{Report, Series, Target};
use crate::servers::{Scratch, Weir};
use crate::{BenchError, Setup, bare, client, probe};
use std::sync::Arc;

/// Measures QD1 and QD32.
///
/// # Errors
/// Something could not be started.
pub fn measure(setup: &Setup) -> Result<Report, BenchError> {
    let (s, c) = (setup.server_core, setup.client_core);
    let method = vec![
        format!(
            "NVMe/TCP over 127.0.0.1, 4 KiB random reads, {} rounds of {} s in turn; medians [lowest - highest]",
            setup.rounds,
            setup.seconds()
        ),
        format!(
            "weir: weir up --poll on core {s}, RAM drive of {} written full; weir bench on core {c}, spinning",
            setup.capacity
        ),
        format!(
            "bare: 72 B asked, 24 + 4096 B answered, server on core {s}, client on core {c}, both spinning; the server"
        ),
        format!(
            "answers all requests there are with one sendmsg, straight from random places of a {} buffer",
            setup.capacity
        ),
    ];
    let scratch = Scratch::new()?;
    let store = Arc::new(bare::Store::new(setup.bytes()?));
    let weir = Weir::start(setup, &scratch)?;
    let mut line = Series::default();
    let [mut ours1, mut bare1, mut ours32, mut bare32]: [(Series, Series); 4] = Default::default();
    for _ in 0..setup.rounds {
        weir.server.pause()?;
        line.push(probe::cache_line((s, c))?);
        for (depth, series) in [(1, &mut bare1), (32, &mut bare32)] {
            let run = bare::run(setup, &store, bare::Load { depth, bytes: 4096 })?;
            series.0.push(run.iops);
            series.1.push(run.p50_ns / 1e3);
        }
        weir.server.resume()?;
        for (depth, series) in [("1", &mut ours1), ("32", &mut ours32)] {
            let run = client::run(setup, &weir.tcp, &["--qd", depth])?;
            series.0.push(run.iops);
            series.1.push(run.p50_ns / 1e3);
        }
    }
    let mut report = Report::new("tcp", method);
    report.figure("cache line, one way", "ns", &line);
    report.figure("QD1 bare, p50", "us", &bare1.1);
    report.figure("QD1 weir, p50", "us", &ours1.1);
    report.judged("QD1 p50, weir / bare", "x", &ours1.1.over(&bare1.1), Target::AtMost(1.15));
    report.figure("QD32 bare", "IOPS", &bare32.0);
    report.figure("QD32 weir", "IOPS", &ours32.0);
    report.judged("QD32 IOPS, weir / bare", "x", &ours32.0.over(&bare32.0), Target::AtLeast(0.8));
    Ok(report)
}
