//! What a client sees of a node whose worker is killed, whose program is replaced, or that is restarted: the longest time between two
//! completions, of a front end in this process that knows nothing of it.
//!
//! ```text
//!   this process: front end on the client's core ──rings, socket──► worker on the server's core ◄─ keeper
//!                 main thread ──SIGKILL──► worker  |  POST /v1/upgrade ──► keeper  |  SIGTERM ──► node, weir up again
//! ```
//! Raw, and without the time in which those had no core that are on the way one after the other: the keeper, the new worker's
//! first thread, which starts it, and the one that hears the keeper. What its shard and the front end waited may be in the same
//! time, so it is not taken off: the net figure is an upper bound. Of an upgrade the longest gap may lie anywhere, as the new program
//! prepares beside the one that serves: of what the keeper and the new program's first thread have waited within it, what shards have, and what the front end
//! itself has, the longest is taken off. It is an upper bound as well.

mod event;
mod front;
mod processes;

use crate::figure::{Report, Series, Target};
use crate::servers::{Node, Scratch};
use crate::{BenchError, Setup, failed};
use event::Seen;
use front::Front;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_workload::Xoshiro256;

/// By which door the client comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    VhostUser,
    VfioUser,
    NvmeTcp,
}

/// What happens to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Its worker is killed; whether another one waits.
    Crash { standby: bool },
    /// Its program is replaced by itself.
    Upgrade,
    /// It is told to end, and started again; without a keeper.
    Restart,
}

/// A drive, a load, and what happens to it.
#[derive(Clone, Copy, Debug)]
struct Case {
    what: What,
    door: Door,
    /// Kind and further keys of the drive.
    drive: (&'static str, &'static str),
    depth: u32,
    write: bool,
    /// p50 and p99 of the net gap, ms.
    targets: Option<(f64, f64)>,
}

const COLLECTS: (&str, &str) = ("flash", "profile = \"p3700\"\n[device.flash]\nprecondition = \"steady\"");
const RAM: (&str, &str) = ("ram", "");

/// So long a node serves before anything happens to it: what its drive was filled with is put into huge pages meanwhile.
const SETTLES: Duration = Duration::from_secs(4);

/// So long before each event nothing happens: what the machine and the load do by themselves in the time of an upgrade.
const QUIET: Duration = Duration::from_millis(100);
const BEFORE: &str = "gap, in 100 ms before";

impl Case {
    /// A RAM drive, one request at a time.
    const fn ram(what: What, door: Door) -> Self {
        Case { what, door, drive: RAM, depth: 1, write: false, targets: None }
    }

    /// A p3700 that collects, 32 writes at a time.
    const fn flash(what: What, door: Door) -> Self {
        Case { what, door, drive: COLLECTS, depth: 32, write: true, targets: None }
    }

    const fn with(self, p50: f64, p99: f64) -> Self {
        Case { targets: Some((p50, p99)), ..self }
    }

    /// Whether the client begins anew: what was in a drive in memory has gone with the node, and whoever had it is told so.
    fn begins_anew(&self) -> bool {
        self.what == What::Restart
    }

    fn name(&self, capacity: &str) -> String {
        let drive = match self.drive {
            RAM => format!("RAM of {capacity}, QD1"),
            _ => format!("p3700 of {capacity} collecting, QD32"),
        };
        let door = match self.door {
            Door::VhostUser => "vhost-user",
            Door::VfioUser => "vfio-user",
            Door::NvmeTcp => "NVMe/TCP",
        };
        let what = match self.what {
            What::Crash { standby: true } => ", standby",
            What::Crash { standby: false } => ", cold",
            _ => "",
        };
        format!("{drive}, {door}{what}")
    }
}

/// The worker is killed.
///
/// # Errors
/// Something could not be started, or nobody served any more after a kill.
pub fn crash(setup: &Setup) -> Result<Report, BenchError> {
    use Door::{NvmeTcp, VfioUser, VhostUser};
    let (cold, warm) = (What::Crash { standby: false }, What::Crash { standby: true });
    let cases = [
        Case::ram(warm, VhostUser).with(3.0, 20.0),
        Case::ram(cold, VhostUser),
        Case::flash(warm, VhostUser),
        Case::flash(cold, VhostUser),
        Case::ram(warm, VfioUser),
        Case::flash(warm, VfioUser),
        Case::ram(warm, NvmeTcp),
        Case::flash(warm, NvmeTcp),
    ];
    measure("crash", setup, &cases)
}

/// The program is replaced.
///
/// # Errors
/// As [`crash`].
pub fn upgrade(setup: &Setup) -> Result<Report, BenchError> {
    use Door::{NvmeTcp, VfioUser, VhostUser};
    let cases = [
        Case::ram(What::Upgrade, VhostUser).with(0.5, 5.0),
        Case::flash(What::Upgrade, VhostUser),
        Case::ram(What::Upgrade, VfioUser),
        Case::flash(What::Upgrade, VfioUser),
        Case::ram(What::Upgrade, NvmeTcp),
        Case::flash(What::Upgrade, NvmeTcp),
    ];
    measure("upgrade", setup, &cases)
}

/// The node ends and is started again.
///
/// # Errors
/// As [`crash`].
pub fn restart(setup: &Setup) -> Result<Report, BenchError> {
    let cases = [Door::VhostUser, Door::NvmeTcp].map(|door| Case::ram(What::Restart, door));
    measure("restart", setup, &cases)
}

fn measure(name: &'static str, setup: &Setup, cases: &[Case]) -> Result<Report, BenchError> {
    let (s, c) = (setup.server_core, setup.client_core);
    let mut report = Report::new(
        name,
        vec![
            format!("{} times each; the node polls on core {s}, the front end spins on core {c}", setup.rounds),
            "gap: the longest time between completions around it; before it: in 100 ms in which nothing happens (0: none over 50 us)"
                .into(),
            "net: without what the keeper and the starting threads of the next worker waited for a core (an upper bound); of upgrades: \
             within the gap, or what shards or the front end waited, if that is more"
                .into(),
            "a p3700 is placed in the steady state, its page map and spare areas full; no more than 1 GiB of it is written to, in pieces of \
             2 MiB over all of it"
                .into(),
        ],
    );
    let capacities = |case: &Case| {
        let of_flash = || setup.flash_capacity.split(',').map(|text| text.trim().to_owned()).collect();
        if case.drive == RAM { vec![setup.capacity.clone()] } else { of_flash() }
    };
    let all = cases.iter().flat_map(|case| capacities(case).into_iter().map(move |capacity| (case, capacity)));
    let all: Vec<(&Case, String)> = all.collect();
    let mut wanted = all.iter().filter(|(case, capacity)| case.name(capacity).contains(&setup.only)).peekable();
    if wanted.peek().is_none() {
        let all: Vec<_> = all.iter().map(|(case, capacity)| case.name(capacity)).collect();
        return Err(failed(
            "--only",
            format!("no case's name contains {:?}; there are: {}", setup.only, all.join("; ")),
        ));
    }
    wanted.try_for_each(|(case, capacity)| one(setup, case, capacity, &mut report))?;
    Ok(report)
}

fn one(setup: &Setup, case: &Case, capacity: &str, report: &mut Report) -> Result<(), BenchError> {
    let scratch = Scratch::new()?;
    let keys = match case.what {
        What::Crash { standby } => format!("keeper = true\nstandby = {standby}"),
        What::Upgrade => "keeper = true\nstandby = true".to_owned(),
        What::Restart => "keeper = false".to_owned(),
    };
    let pcie = scratch.path("vfio.sock");
    let export = match case.door {
        Door::VfioUser => {
            format!("[[export]]\ndevice = \"ssd0\"\ntenant = \"all\"\ndoor = \"vfio-user:{}\"", pcie.display())
        }
        Door::VhostUser | Door::NvmeTcp => String::new(),
    };
    let drive = format!("{}\n{export}", case.drive.1);
    let mut node = Node::start(setup, &scratch, &keys, (case.drive.0, capacity, &drive))?;
    let front = Front::start(setup, case, &node, pcie)?;
    std::thread::sleep(SETTLES);
    let mut lines: BTreeMap<usize, (String, Series)> = BTreeMap::new();
    let mut random = Xoshiro256::new(u64::from(std::process::id()));
    // Every restart begins with a drive in small pages: a process that ends with 1 GiB of them takes 50 ms more.
    let space = if case.begins_anew() { SETTLES } else { event::SPACE };
    let result = (0..setup.rounds).try_for_each(|_| {
        std::thread::sleep(space - QUIET + Duration::from_micros(random.below(30_000)));
        front.seen.gap.store(0, Ordering::Relaxed);
        std::thread::sleep(QUIET);
        let quiet = front.seen.gap.load(Ordering::Relaxed);
        let Seen { gap, net, phases } = event::happen(case.what, setup, &mut node, &front)?;
        let before = (BEFORE.to_owned(), quiet);
        let all = [("gap".to_owned(), gap), ("gap, net".to_owned(), net), before].into_iter().chain(phases);
        for (at, (what, ns)) in all.enumerate() {
            lines.entry(at).or_insert_with(|| (what, Series::default())).1.push(ns as f64 / 1e6);
        }
        Ok(())
    });
    // Why the front end has ended says more than that it has.
    front.stop().and(result)?;
    for (at, (what, series)) in &lines {
        let name = |what: &str| format!("{}: {what}", case.name(capacity));
        // The median is told with the whole range.
        let percentile = |percent| Series::of(series.percentile(percent));
        match (*at, case.targets) {
            (1, Some((p50, p99))) => {
                report.judged(name(&format!("{what}, p50")), "ms", series, Target::AtMost(p50));
                report.judged(name(&format!("{what}, p99")), "ms", &percentile(99.0), Target::AtMost(p99));
            }
            (0..=2, _) => {
                report.figure(name(&format!("{what}, p50")), "ms", series);
                report.figure(name(&format!("{what}, p99")), "ms", &percentile(99.0));
            }
            _ if what == event::COLD_START => report.judged(name(what), "ms", series, Target::AtMost(10.0)),
            _ => report.figure(name(what), "ms", series),
        }
    }
    Ok(())
}
