//! Each part of the whole against something plain, in turn in the same run: ratios that say little about how fast a machine is, and
//! enough about what a change has cost to fail a test when it is half of the speed (the suite `floors` of the tests).
//!
//! What is measured in one thread counts the time that the thread had, and latencies are medians: a machine that does other things
//! as well takes from both sides of a ratio, or from neither.

use crate::figure::{Report, Series};
use crate::journal::cpu_time;
use crate::naive::Naive;
use crate::rig::Rig;
use crate::servers::{Pcie, Scratch, Weir};
use crate::{BenchError, Setup, bare, client, failed, flash, ring};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::sync::Arc;
use weir_arbiter::Mechanism;
use weir_flash::{Flash, Precondition, SplitMix64};
use weir_units::Nanos;

/// Times of ours over those of something plain.
#[derive(Clone, Debug)]
pub struct Ratio {
    /// Of what.
    pub name: &'static str,
    /// Round by round.
    pub rounds: Series,
    /// The least of ours over the least of the plain one's: what disturbs a machine only adds to either.
    pub best: f64,
}

impl Ratio {
    fn of(name: &'static str, ours: &Series, plain: &Series) -> Self {
        Self { name, rounds: ours.over(plain), best: ours.spread().min / plain.spread().min }
    }
}

/// Those of a part.
pub type Ratios = Vec<Ratio>;

/// Times of ours and of the plain one, in turn.
#[derive(Default)]
struct Turns {
    ours: Series,
    plain: Series,
}

impl Turns {
    fn push(&mut self, ours: f64, plain: f64) {
        self.ours.push(ours);
        self.plain.push(plain);
    }

    fn ratio(&self, name: &'static str) -> Ratio {
        Ratio::of(name, &self.ours, &self.plain)
    }
}

/// Measures one part.
pub type Part = fn(&Setup) -> Result<Ratios, BenchError>;

/// All parts by their names.
pub const PARTS: [(&str, Part); 6] = [
    ("decision", decision),
    ("flash", flash_model),
    ("simulator", simulator),
    ("nvme_tcp", nvme_tcp),
    ("vhost_user", vhost_user),
    ("vfio_user", vfio_user),
];

/// Measures all parts.
///
/// # Errors
/// Something could not be started.
pub fn measure(setup: &Setup) -> Result<Report, BenchError> {
    let short = Setup { weir: Some(setup.weir()?), ..Setup::short("weir".into()) };
    let method = vec![format!(
        "weir / something plain of the same process, sockets or rings; {} rounds of {} s in turn, medians [lowest - highest]",
        short.rounds,
        short.seconds()
    )];
    let mut report = Report::new("floors", method);
    for (_, part) in PARTS {
        part(&short)?.iter().for_each(|ratio| report.figure(ratio.name, "x", &ratio.rounds));
    }
    Ok(report)
}

/// In a thread of its own, which alone is bound to the client's core.
pub fn on_the_core<T: Send>(
    setup: &Setup,
    run: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    let pinned = || weir_sys::sched::pin(setup.client_core).map_err(BenchError::from).and_then(|()| run());
    std::thread::scope(|scope| scope.spawn(pinned).join()).map_err(|e| failed("a thread", format!("{e:?}")))?
}

/// Requests of a round of the reference.
const REFERENCE: u64 = 400_000;

/// What stands for the machine where nothing plain does the same: a queue of requests as a program would have it that does not care,
/// an ordered map of boxes. Nanoseconds of this thread's own time a request.
fn reference() -> f64 {
    let mut rng = SplitMix64::new(3);
    let mut map: BTreeMap<u64, Box<[u64; 8]>> = (0..128).map(|_| (rng.next_u64(), Box::new([0; 8]))).collect();
    let begun = cpu_time();
    for i in 0..REFERENCE {
        if let Some((key, mut entry)) = map.pop_first() {
            entry[(key % 8) as usize] = i;
            map.insert(rng.next_u64(), black_box(entry));
        }
    }
    (cpu_time() - begun) / REFERENCE as f64
}

/// Milliseconds that ended processes of this one have run (proc(5), cutime and cstime of `/proc/self/stat`).
fn children_time() -> Result<f64, BenchError> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may have spaces in it, the state is field 3.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<f64>().ok());
    let ticks = ticks(16).zip(ticks(17)).ok_or_else(|| failed("/proc/self/stat", "no times of children"))?;
    Ok((ticks.0 + ticks.1) * 1e3 / rustix::param::clock_ticks_per_second() as f64)
}

/// One decision of arbiter and controller: one queue, and twelve queues of three tenants.
fn decision(setup: &Setup) -> Result<Ratios, BenchError> {
    const COMMANDS: u64 = 400_000;
    on_the_core(setup, || {
        let cases = [
            ("decision, fifo, 1 queue / reference", Mechanism::None, 1, 1),
            ("decision, drr, 1 queue / reference", Mechanism::Drr, 1, 1),
            ("decision, drr, 12 queues / reference", Mechanism::Drr, 3, 4),
            ("decision, wrr, 12 queues / reference", Mechanism::Wrr, 3, 4),
            ("decision, rr, 12 queues / reference", Mechanism::Rr, 3, 4),
        ];
        let mut found: [Turns; 5] = Default::default();
        for _ in 0..setup.rounds {
            for ((_, mechanism, tenants, queues), turns) in cases.iter().zip(&mut found) {
                let ns = Rig::new(*mechanism, *tenants, *queues)?.measure(COMMANDS);
                turns.push(ns, reference());
            }
        }
        Ok(cases.iter().zip(found).map(|(case, turns)| turns.ratio(case.0)).collect())
    })
}

/// The flash model in a closed loop, against a textbook simulator of the same drive.
fn flash_model(setup: &Setup) -> Result<Ratios, BenchError> {
    const REQUESTS: u64 = 300_000;
    on_the_core(setup, || {
        let config = flash::config(2, 28);
        let mut model = Flash::new(&config, Nanos(0)).map_err(|e| failed("flash", e))?;
        model.set_prefetch(weir_sys::prefetch::prefetch);
        model.precondition(Precondition::Steady);
        let mut plain = Naive::new(&config, model.units());
        let mut workload = flash::Loop::new(Mechanism::Drr);
        let mut turns = Turns::default();
        for _ in 0..setup.rounds {
            let begun = cpu_time();
            workload.run(REQUESTS, &mut model);
            let ours = (cpu_time() - begun) / REQUESTS as f64;
            let begun = cpu_time();
            plain.reset();
            let done = plain.run(REQUESTS / 20);
            turns.push(ours, (cpu_time() - begun) / done as f64);
        }
        Ok(vec![turns.ratio("flash model, a request / event queue")])
    })
}

/// A simulation of two tenants: the whole program's own time.
fn simulator(setup: &Setup) -> Result<Ratios, BenchError> {
    // Four million requests: the kernel tells children's time in hundredths of a second.
    const SCENARIO: &str = "seed = 1\nprecondition = \"steady\"\ntime = \"30s\"\n\
        [[device]]\nprofile = \"femu-bbssd\"\ncapacity = \"1GiB\"\n\
        [[tenant]]\nname = \"a\"\nclass = \"high\"\n[[tenant]]\nname = \"b\"\nclass = \"low\"\n\
        [[job]]\ntenant = \"a\"\nrw = \"randread\"\nqd = 16\n[[job]]\ntenant = \"b\"\nrw = \"randwrite\"\nqd = 16\n";
    let scratch = Scratch::named("sim")?;
    let file = scratch.path("sim.toml");
    std::fs::write(&file, SCENARIO).map_err(|e| failed(file.display(), e))?;
    let mut turns = Turns::default();
    for _ in 0..setup.rounds {
        let before = children_time()?;
        let output = Command::new(setup.weir()?).arg("sim").arg(&file).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            return Err(failed("weir sim", String::from_utf8_lossy(&output.stderr).trim()));
        }
        let ms = children_time()? - before;
        turns.push(ms, on_the_core(setup, || Ok(reference()))?);
    }
    Ok(vec![turns.ratio("weir sim, ms / reference, ns")])
}

/// NVMe/TCP against bare sockets that move as many bytes.
fn nvme_tcp(setup: &Setup) -> Result<Ratios, BenchError> {
    let scratch = Scratch::named("tcp")?;
    let store = Arc::new(bare::Store::new(setup.bytes()?));
    let weir = Weir::start(setup, &scratch)?;
    let [mut one, mut deep, mut sequential]: [Turns; 3] = Default::default();
    for _ in 0..setup.rounds {
        weir.server.pause()?;
        let bare = |depth, bytes| bare::run(setup, &store, bare::Load { depth, bytes });
        let plain = [bare(1, 4096)?, bare(32, 4096)?, bare(8, 128 << 10)?];
        weir.server.resume()?;
        let ours = |args: &[&str]| client::run(setup, &weir.tcp, args);
        one.push(ours(&["--qd", "1"])?.p50_ns, plain[0].p50_ns);
        deep.push(1.0 / ours(&["--qd", "32"])?.iops, 1.0 / plain[1].iops);
        sequential.push(1.0 / ours(&["--qd", "8", "--rw", "read", "--bs", "128KiB"])?.iops, 1.0 / plain[2].iops);
    }
    Ok(vec![
        one.ratio("NVMe/TCP, 4 KiB at depth 1, median latency / bare sockets"),
        deep.ratio("NVMe/TCP, 4 KiB at depth 32, time a request / bare sockets"),
        sequential.ratio("NVMe/TCP, sequential 128 KiB, time a request / bare sockets"),
    ])
}

/// vhost-user-blk on a RAM drive against bare rings.
fn vhost_user(setup: &Setup) -> Result<Ratios, BenchError> {
    let scratch = Scratch::named("vhost")?;
    let weir = Weir::start(setup, &scratch)?;
    let names = [
        "vhost-user, 4 KiB read at depth 1, median latency / bare rings",
        "vhost-user, 4 KiB read at depth 32, time a request / bare rings",
    ];
    against_rings(setup, &weir.server, &weir.vhost, names)
}

/// A PCIe drive of RAM over vfio-user against bare rings.
fn vfio_user(setup: &Setup) -> Result<Ratios, BenchError> {
    let scratch = Scratch::named("vfio")?;
    let pcie = Pcie::start(setup, &scratch, true, 0)?;
    let names = [
        "vfio-user, 4 KiB read at depth 1, median latency / bare rings",
        "vfio-user, 4 KiB read at depth 32, time a request / bare rings",
    ];
    against_rings(setup, &pcie.server, &pcie.ram, names)
}

fn against_rings(
    setup: &Setup,
    server: &crate::servers::Server,
    target: &str,
    names: [&'static str; 2],
) -> Result<Ratios, BenchError> {
    let mut array = vec![1u8; setup.bytes()? as usize];
    let [mut one, mut deep]: [Turns; 2] = Default::default();
    for _ in 0..setup.rounds {
        server.pause()?;
        let mut bare = |depth| ring::run(setup, &mut array, ring::Load { depth, bytes: 4096, write: false });
        let plain = [bare(1)?, bare(32)?];
        server.resume()?;
        one.push(client::run(setup, target, &["--qd", "1"])?.p50_ns, plain[0].p50_ns);
        deep.push(1.0 / client::run(setup, target, &["--qd", "32"])?.iops, 1.0 / plain[1].iops);
    }
    Ok(names.into_iter().zip([one, deep]).map(|(name, turns)| turns.ratio(name)).collect())
}
