//! The flash model in virtual time: how many requests a second of real time, side by side with an event queue.

use crate::figure::{Report, Series, Target};
use crate::naive::Naive;
use crate::{BenchError, Setup, failed};
use std::time::Instant;
use weir_arbiter::{Arbiter, ArbiterSettings, Mechanism, QueueKey};
use weir_flash::{
    Arbitration, BufferConfig, CellType, Firmware, Flash, FlashDriveConfig, FlashOp, FlashTiming, FtlConfig, Geometry,
    HostTiming, OperationUnit, Order, Overheads, PageMap, Precondition, Registers, Separate, SplitMix64, Suspend, UNIT,
    Variability, Wire, uniform,
};
use weir_units::{Bytes, Class, Nanos};

/// Requests in flight.
pub const DEPTH: usize = 64;

/// (capacity in GiB, over-provisioning in hundredths, requests a second that it should reach).
const DRIVES: [(u64, u64, f64); 4] = [(8, 7, 8e6), (8, 28, 8e6), (256, 7, 4e6), (256, 28, 4e6)];

/// Requests between two looks at the clock.
const STRIDE: u64 = 100_000;

/// 32 dies on 8 channels, blocks of 256 pages of 4 KiB; 40 µs, 200 µs, 2 ms, 800 MiB/s; a link of 4 GB/s.
pub fn config(gib: u64, spare: u64) -> FlashDriveConfig {
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
    let timing = FlashTiming {
        gate: OperationUnit::Die,
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
        arbitration: Arbitration::Booked,
        order: Order::InOrder,
        chips: 0,
        join_planes: false,
        age: Nanos(0),
    };
    let firmware = Firmware { core: Nanos(20), ..HostTiming::INSTANT.firmware };
    let host = HostTiming { firmware, ..HostTiming::link(Wire::bytes_per_second(4_000_000_000)) };
    let ftl = FtlConfig { capacity: Some(Bytes(gib << 30)), ..FtlConfig::DEFAULT };
    let (variability, buffer) = (Variability::default(), BufferConfig::NONE);
    FlashDriveConfig { geometry, timing, variability, host, ftl, buffer, seed: 1 }
}

/// Queues, one for each weighted class and tenant, and how many commands wait in each.
const QUEUES: usize = 3;
const WAITING: usize = 32;

/// Random 4 KiB, half of them reads, always as many in flight and as many waiting; the arbiter says whose is next.
pub struct Loop {
    slots: Slots,
    rng: SplitMix64,
    arbiter: Arbiter,
    keys: Vec<QueueKey>,
    /// By queue: its commands, and which is the head.
    rings: [[Command; WAITING]; QUEUES],
    heads: [usize; QUEUES],
    /// Nothing is read.
    pub writes: bool,
}

/// What a random word asks for.
#[derive(Clone, Copy)]
struct Command(u64);

impl Command {
    fn op(self) -> FlashOp {
        if self.0 & 1 == 0 { FlashOp::Read } else { FlashOp::Write { fua: false } }
    }

    fn unit(self, units: u32) -> u32 {
        (((self.0 >> 32) * u64::from(units)) >> 32) as u32
    }
}

/// When each slot is free again: a tournament, whose winner is the earliest.
struct Slots([u64; 2 * DEPTH]);

impl Slots {
    fn new() -> Self {
        let mut slots = Slots([0; 2 * DEPTH]);
        (0..DEPTH).for_each(|slot| slots.set(slot, Nanos(0)));
        slots
    }

    /// The earliest, and when.
    fn first(&self) -> (usize, Nanos) {
        let at = self.0[1];
        (at as usize % DEPTH, Nanos(at / DEPTH as u64))
    }

    fn set(&mut self, slot: usize, at: Nanos) {
        let mut n = DEPTH + slot % DEPTH;
        let mut least = at.0 * DEPTH as u64 + slot as u64;
        self.0[n] = least;
        while n > 1 {
            least = least.min(self.0[n ^ 1]);
            n /= 2;
            self.0[n] = least;
        }
    }
}

impl Loop {
    /// From time 0 on, under this mechanism.
    pub fn new(mechanism: Mechanism) -> Self {
        let settings = ArbiterSettings::new(mechanism);
        let mut arbiter = Arbiter::new(settings);
        let mut rng = SplitMix64::new(7);
        let keys = Class::WEIGHTED.into_iter().map(|class| {
            let tenant = arbiter.add_tenant(1);
            let group = arbiter.add_group(tenant, settings);
            let queue = arbiter.add_queue(group, class, class);
            arbiter.backlog(queue);
            queue
        });
        let keys: Vec<QueueKey> = keys.collect();
        let rings = std::array::from_fn(|_| std::array::from_fn(|_| Command(rng.next_u64())));
        Loop { slots: Slots::new(), rng, arbiter, keys, rings, heads: [0; QUEUES], writes: false }
    }

    /// The queue whose head is next.
    fn next(&mut self) -> Option<(QueueKey, usize)> {
        let key = self.arbiter.pick()?;
        self.keys.iter().position(|k| *k == key).map(|queue| (key, queue))
    }

    /// So many requests.
    pub fn run(&mut self, requests: u64, flash: &mut Flash) {
        let units = flash.units();
        for _ in 0..requests {
            let (slot, now) = self.slots.first();
            let Some((key, queue)) = self.next() else { return };
            let head = self.heads[queue] % WAITING;
            self.heads[queue] += 1;
            let command = std::mem::replace(&mut self.rings[queue][head], Command(self.rng.next_u64()));
            self.arbiter.charge(key, UNIT, true);
            // As a controller sees it: what comes next waits in its submission queue.
            if let Some((_, queue)) = self.next() {
                flash.prefetch(self.rings[queue][self.heads[queue] % WAITING].unit(units));
            }
            let op = if self.writes { FlashOp::Write { fua: false } } else { command.op() };
            let done = flash.submit(now, op, command.unit(units), 1);
            self.slots.set(slot, done);
        }
    }
}

/// Requests a second of real time, and the write amplification meanwhile.
pub fn weir(flash: &mut Flash, workload: &mut Loop, seconds: f64) -> (f64, f64) {
    flash.reset_stats();
    let begin = Instant::now();
    let mut requests = 0;
    while begin.elapsed().as_secs_f64() < seconds {
        workload.run(STRIDE, flash);
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
            "in this process on core {}: random 4 KiB, half reads, {DEPTH} in flight, {QUEUES} queues of {WAITING} waiting",
            setup.client_core
        ),
        "in classes of their own under deficit round robin;".into(),
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
        flash.set_prefetch(weir_sys::prefetch::prefetch);
        weir_sys::prefetch::on_huge_pages(flash.page_map());
        flash.precondition(Precondition::Steady);
        let placed = begin.elapsed().as_secs_f64();
        // An event queue of 256 GiB takes more memory than there is.
        let mut other = (gib <= 8).then(|| Naive::new(&config, flash.units()));
        let (mut workload, mut rate, mut amplification) =
            (Loop::new(Mechanism::Drr), Series::default(), Series::default());
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
    report.figure("hot and cold, 8 GiB: detector", "ns a write", &detector(setup));
    Ok(report)
}

/// What it takes to tell hot from cold units of 8 GiB, four of five writes to a fifth of them, beside drawing them.
fn detector(setup: &Setup) -> Series {
    let units = 2 << 20;
    let mut series = Series::default();
    let Some(mut policy) = Separate::Frequency.build(units) else { return series };
    let mut time = |tell: bool| {
        let mut rng = SplitMix64::new(3);
        let (begin, mut writes, mut hot) = (Instant::now(), 0u64, 0u64);
        while begin.elapsed().as_secs_f64() < setup.seconds() / 2.0 {
            for _ in 0..STRIDE {
                let part = if rng.below(5) > 0 { units / 5 } else { units };
                let lpn = rng.below(part);
                hot += u64::from(if tell { policy.stream(lpn, 0, 2) } else { lpn as u8 });
            }
            writes += STRIDE;
        }
        std::hint::black_box(hot);
        begin.elapsed().as_secs_f64() * 1e9 / writes as f64
    };
    for _ in 0..setup.rounds {
        let drawn = time(false);
        series.push(time(true) - drawn);
    }
    series
}
