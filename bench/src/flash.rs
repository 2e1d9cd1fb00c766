//! The flash model in virtual time: how many requests a second of real time, side by side with an event queue.

use crate::figure::{Report, Series, Target};
use crate::naive::Naive;
use crate::{BenchError, Setup, failed};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;
use weir_flash::{
    BufferConfig, CellType, Config, Firmware, Flash, FlashOp, FtlConfig, Gate, Geometry, HostTiming, Overheads,
    PageMap, Precondition, Registers, Rng, Suspend, Timing, Variability, Wire, uniform,
};
use weir_units::{Bytes, Nanos};

/// Requests in flight.
pub const DEPTH: usize = 64;

/// (capacity in GiB, over-provisioning in hundredths, requests a second that it should reach).
const DRIVES: [(u64, u64, f64); 4] = [(8, 7, 8e6), (8, 28, 8e6), (256, 7, 4e6), (256, 28, 4e6)];

/// Requests between two looks at the clock.
const STRIDE: u64 = 100_000;

/// 32 dies on 8 channels, blocks of 256 pages of 4 KiB; 40 µs, 200 µs, 2 ms, 800 MiB/s; a link of 4 GB/s.
pub fn config(gib: u64, spare: u64) -> Config {
    let (channels, ways, pages) = (8, 4, 256);
    let plane_mib = gib * 1024 * (100 + spare) / 100 / u64::from(channels * ways);
    let geometry = Geometry {
        channels,
        ways,
        planes: 1,
        blocks: plane_mib as u32,
        pages,
        page_bytes: 4096,
        spare_bytes: 128,
        cell: CellType::Slc,
        page_map: PageMap::Modulo,
    };
    let timing = Timing {
        gate: Gate::Die,
        registers: Registers::Single,
        read: uniform(40_000),
        read_small: None,
        sense_bytes: 0,
        program: uniform(200_000),
        erase: Nanos(2_000_000),
        channel: Wire::bytes_per_second(800 << 20),
        burst_bytes: 0,
        overheads: Overheads { read: Nanos(290), program: Nanos(361), erase: Nanos(220), ..Overheads::default() },
        cache_read: false,
        cache_busy: Nanos(0),
        suspend: Suspend::default(),
    };
    let firmware = Firmware { core: Nanos(20), ..HostTiming::INSTANT.firmware };
    let host = HostTiming { firmware, ..HostTiming::link(Wire::bytes_per_second(4_000_000_000)) };
    let ftl = FtlConfig { capacity: Some(Bytes(gib << 30)), ..FtlConfig::DEFAULT };
    let (variability, buffer) = (Variability::default(), BufferConfig::NONE);
    Config { geometry, timing, variability, host, ftl, buffer, seed: 1 }
}

/// Random 4 KiB, half of them reads, always as many in flight; says when each is complete.
pub struct Loop {
    heap: BinaryHeap<Reverse<Nanos>>,
    rng: Rng,
    next: u64,
}

impl Loop {
    /// From time 0 on.
    pub fn new() -> Self {
        Loop { heap: (0..DEPTH).map(|_| Reverse(Nanos(0))).collect(), rng: Rng::new(7), next: 0 }
    }

    /// So many requests; `submit` says when one that arrives is complete, and is told the unit of the next one, as a
    /// controller sees it in its submission queue.
    pub fn run(&mut self, requests: u64, units: u32, mut submit: impl FnMut(Nanos, bool, u32, u32) -> Nanos) {
        let unit = |word: u64| (((word >> 32) * u64::from(units)) >> 32) as u32;
        for _ in 0..requests {
            let Some(mut top) = self.heap.peek_mut() else { return };
            let word = core::mem::replace(&mut self.next, self.rng.next_u64());
            let done = submit(top.0, word & 1 == 0, unit(word), unit(self.next));
            *top = Reverse(done);
        }
    }
}

/// Requests a second of real time, and the write amplification meanwhile.
fn weir(flash: &mut Flash, workload: &mut Loop, seconds: f64) -> (f64, f64) {
    flash.reset_stats();
    let units = flash.units();
    let begin = Instant::now();
    let mut requests = 0;
    while begin.elapsed().as_secs_f64() < seconds {
        workload.run(STRIDE, units, |now, read, lpn, next| {
            flash.prefetch(next);
            let op = if read { FlashOp::Read } else { FlashOp::Write { fua: false } };
            flash.submit(now, op, lpn, 1)
        });
        requests += STRIDE;
    }
    (requests as f64 / begin.elapsed().as_secs_f64(), flash.write_amplification())
}

fn naive(drive: &mut Naive, seconds: f64) -> (f64, f64) {
    let begin = Instant::now();
    let mut requests = 0;
    drive.reset();
    while begin.elapsed().as_secs_f64() < seconds {
        requests += drive.run(STRIDE / 10);
    }
    (requests as f64 / begin.elapsed().as_secs_f64(), drive.write_amplification())
}

/// Measures every drive in turn, round after round.
///
/// # Errors
/// A configuration is refused.
pub fn measure(setup: &Setup) -> Result<Report, BenchError> {
    let method = vec![
        format!(
            "in this process on core {}: random 4 KiB, half reads, {DEPTH} in flight from a heap,",
            setup.client_core
        ),
        "32 dies on 8 channels, blocks of 1 MiB, firmware, link, channel and die booked, greedy collection at work;"
            .into(),
        "both from the analytically placed steady state; `event queue` is a textbook simulator of the same drive:"
            .into(),
        "hash maps, a heap of boxed events for each step of each page, collection page by page".into(),
        format!("{} rounds in turn; medians [lowest - highest]", setup.rounds),
    ];
    weir_sys::sched::pin(setup.client_core)?;
    let mut report = Report::new("flash", method);
    for (gib, spare, target) in DRIVES {
        let config = config(gib, spare);
        let name = format!("{gib} GiB, {spare} %");
        let begin = Instant::now();
        let mut flash = Flash::new(&config, Nanos(0)).map_err(|e| failed(&name, e))?;
        flash.precondition(Precondition::Steady);
        let placed = begin.elapsed().as_secs_f64();
        // An event queue of 256 GiB takes more memory than there is.
        let mut other = (gib <= 8).then(|| Naive::new(&config, flash.units()));
        let (mut workload, mut rate, mut amplification) = (Loop::new(), Series::default(), Series::default());
        let (mut peer, mut peer_amplification) = (Series::default(), Series::default());
        for _ in 0..setup.rounds {
            let (r, wa) = weir(&mut flash, &mut workload, setup.seconds());
            rate.push(r);
            amplification.push(wa);
            if let Some(other) = &mut other {
                let (r, wa) = naive(other, setup.seconds());
                peer.push(r);
                peer_amplification.push(wa);
            }
        }
        report.judged(format!("{name}: requests"), "/s", &rate, Target::AtLeast(target));
        report.figure(format!("{name}: write amplification"), "x", &amplification);
        let mut once = Series::default();
        once.push(placed);
        report.figure(format!("{name}: until preconditioned"), "s", &once);
        if other.is_some() {
            report.figure(format!("{name}: event queue"), "/s", &peer);
            report.figure(format!("{name}: event queue, write amplification"), "x", &peer_amplification);
            report.figure(format!("{name}: requests / event queue"), "x", &rate.over(&peer));
        }
    }
    Ok(report)
}
