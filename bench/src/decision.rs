//! What one decision of the flash model takes in real time: when a command will be complete, map, collection and timing included.
//! Commands come by the real clock, and for each 4 KiB are copied from a random place to a random place, as a drive does, so that
//! the model's tables are as cold as they are there. As in a node the flash hears of a command when it arrives
//! (`TimingModel::prefetch`), and decides when its turn has come: after another command's bytes were moved, or, on a drive with nothing else
//! to do, at once.

use crate::figure::{Report, Series, Target};
use crate::{BenchError, Setup, failed, flash};
use weir_flash::{Flash, FlashOp, Precondition, SplitMix64};
use weir_sys::{reactor, sched};
use weir_units::Nanos;
use weir_workload::Histogram;

/// GiB, and over-provisioning in hundredths.
const DRIVE: (u64, u64) = (8, 7);
/// Bytes that are copied from and to.
const MEMORY: usize = 256 << 20;
const BLOCK: usize = 4096;
/// From one command to the next, in nanoseconds: 200,000 a second.
const GAP: u64 = 5_000;

/// How it is measured, in words.
pub fn method(setup: &Setup) -> String {
    let (gib, spare) = DRIVE;
    format!(
        "flash decision: in this process on core {}, {gib} GiB at {spare} % from the steady state, random 4 KiB, half reads, 200 k/s; \
         between a command's arrival and the decision 4 KiB are copied for another one, or nothing happens (alone)",
        setup.server_core
    )
}

/// Measures nothing else.
///
/// # Errors
/// As [`measure`].
pub fn alone(setup: &Setup) -> Result<Report, BenchError> {
    let mut report = Report::new("decision", vec![method(setup)]);
    measure(setup, &mut report)?;
    Ok(report)
}

/// Adds its figures to a report.
///
/// # Errors
/// The flash is refused, or there is no such core.
pub fn measure(setup: &Setup, report: &mut Report) -> Result<(), BenchError> {
    // In a thread of its own, which alone is bound to the core.
    std::thread::scope(|scope| {
        let joined = scope.spawn(|| on_the_core(setup, report)).join();
        joined.map_err(|e| failed("flash decision", format!("{e:?}")))?
    })
}

fn on_the_core(setup: &Setup, report: &mut Report) -> Result<(), BenchError> {
    sched::pin(setup.server_core)?;
    let mut model = Flash::new(&flash::config(DRIVE.0, DRIVE.1), Nanos(0)).map_err(|e| failed("flash", e))?;
    // As a node does.
    model.set_prefetch(weir_sys::prefetch::prefetch);
    weir_sys::prefetch::on_huge_pages(model.page_map());
    model.precondition(Precondition::Steady);
    let mut memory = vec![1u8; MEMORY];
    let mut rng = SplitMix64::new(11);
    let mut found = [const { [const { Series::EMPTY }; 3] }; 2];
    let mut amplification = Series::EMPTY;
    for _ in 0..setup.rounds {
        model.reset_stats();
        for (between, found) in [true, false].into_iter().zip(&mut found) {
            let clock = clock_cost();
            let times = round(&mut model, &mut memory, &mut rng, (setup.time, between));
            let net = |ns: f64| (ns - clock).max(0.0);
            let told = [times.percentile(50.0) as f64, times.mean(), times.percentile(99.0) as f64];
            found.iter_mut().zip(told).for_each(|(series, ns)| series.push(net(ns)));
        }
        amplification.push(model.write_amplification());
    }
    let [[p50, mean, p99], [alone, ..]] = &found;
    report.judged("flash decision, p50", "ns", p50, Target::AtMost(150.0));
    report.figure("flash decision, mean", "ns", mean);
    report.figure("flash decision, p99", "ns", p99);
    report.figure("flash decision, alone, p50", "ns", alone);
    report.figure("flash decision, write amplification", "x", &amplification);
    Ok(())
}

/// Nanoseconds of each decision, two readings of the clock included; `between`: another command's bytes are moved after a
/// command has arrived, and not before.
fn round(model: &mut Flash, memory: &mut [u8], rng: &mut SplitMix64, (time, between): (Nanos, bool)) -> Histogram {
    let mut found = Histogram::new();
    let units = u64::from(model.units());
    let start = reactor::now();
    let end = start.saturating_add(time);
    let mut due = start;
    while due < end {
        let (word, place) = (rng.next_u64(), rng.next_u64());
        if !between {
            copy(memory, place);
        }
        let lpn = (((word >> 32) * units) >> 32) as u32;
        let op = if word & 1 == 0 { FlashOp::Read } else { FlashOp::Write { fua: false } };
        while reactor::now() < due {}
        model.prefetch(lpn);
        if between {
            copy(memory, place);
        }
        let now = reactor::now();
        std::hint::black_box(model.submit(now, op, lpn, 1));
        found.record(reactor::now().saturating_sub(now).get());
        due = due.saturating_add(Nanos(GAP));
    }
    found
}

fn copy(memory: &mut [u8], word: u64) {
    let blocks = (memory.len() / BLOCK) as u64;
    let place = |half: u64| ((half * blocks) >> 32) as usize * BLOCK;
    let (from, to) = (place(word >> 32), place(word & 0xffff_ffff));
    memory.copy_within(from..from + BLOCK, to);
}

/// What two readings of the clock take, in nanoseconds: the median.
fn clock_cost() -> f64 {
    let mut found = Histogram::new();
    for _ in 0..20_000 {
        let now = reactor::now();
        found.record(reactor::now().saturating_sub(now).get());
    }
    found.percentile(50.0) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_a_round_is_counted() {
        let mut config = flash::config(1, 28);
        config.seed = 3;
        let mut model = Flash::new(&config, Nanos(0)).unwrap();
        let mut memory = vec![1u8; 4 * BLOCK];
        for (between, n) in [(true, 100), (false, 200)] {
            let found = round(&mut model, &mut memory, &mut SplitMix64::new(1), (Nanos(100 * GAP), between));
            let stats = model.stats();
            assert_eq!((found.count(), stats.host_reads + stats.host_writes), (100, n));
        }
        model.check();
    }
}
