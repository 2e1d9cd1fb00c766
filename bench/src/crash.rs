//! What a client sees of a worker that is killed under its keeper: the longest time between two completions, of a front end in this
//! process that knows nothing of it and is never disconnected.
//!
//! ```text
//!   this process: front end on the client's core ──rings──► worker on the server's core ◄─ keeper
//!                 main thread ──SIGKILL──► worker; pidfd: its process is gone; the front end's gap: it is served again
//! ```
//! Raw, and without the time in which those had no core that are on the way one after the other: the keeper, the new worker's
//! first thread, which starts it, and the one that hears the keeper. What its shard and the front end waited may be in the same
//! time, so it is not taken off: the net figure is an upper bound.

use crate::figure::{Report, Series, Target};
use crate::servers::{Node, Scratch, Server};
use crate::{BenchError, Setup, failed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_driver::{Io, IoKind, QueuePair, vhost_user::Options};
use weir_sys::reactor::now;
use weir_sys::transport::vhost_user::{VhostUserQueue, connect};
use weir_workload::Rng;

/// Bytes of a request.
const SIZE: u32 = 4096;
/// A gap that somebody looks at.
const GAP: u64 = 300_000;
/// So long completions come again before a gap counts as over, ns.
const CALM: u64 = 20_000_000;
/// How long a worker may take to serve again.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the front end's thread tells.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    /// The keeper's process.
    keeper: AtomicU64,
    /// When something was completed last, ns.
    last: AtomicU64,
    /// The longest time without a completion since it was set to 0, when it ended, and what threads had waited until then.
    gap: AtomicU64,
    ended: AtomicU64,
    waited: AtomicU64,
}

/// A drive and a load.
struct Case {
    name: &'static str,
    kind: &'static str,
    keys: &'static str,
    depth: u32,
    write: bool,
    standby: bool,
}

const COLLECTS: &str = "profile = \"p3700\"\n[device.flash]\nprecondition = \"steady\"";

/// The gap with and without a standby.
///
/// # Errors
/// Something could not be started, or nobody served any more after a kill.
pub fn measure(setup: &Setup) -> Result<Report, BenchError> {
    let (s, c) = (setup.server_core, setup.client_core);
    let mut report = Report::new(
        "crash",
        vec![
            format!("{} kills each, of a worker that polls on core {s}; the front end spins on core {c}", setup.rounds),
            "gap: the longest time between completions around a kill".into(),
            "net: without what the keeper and the starting threads of the next worker waited for a core (an upper bound)".into(),
        ],
    );
    let ram = Case { name: "RAM drive, QD1", kind: "ram", keys: "", depth: 1, write: false, standby: true };
    let flash =
        Case { name: "p3700 collecting, QD32", kind: "flash", keys: COLLECTS, depth: 32, write: true, standby: true };
    let cold = |case: &Case| Case { standby: false, ..*case };
    for case in [cold(&ram), cold(&flash), ram, flash] {
        one(setup, &case, &mut report)?;
    }
    Ok(report)
}

fn one(setup: &Setup, case: &Case, report: &mut Report) -> Result<(), BenchError> {
    let scratch = Scratch::new()?;
    let node = format!("keeper = true\nstandby = {}", case.standby);
    // A p3700 of its real size would be filled for minutes.
    let capacity = if case.kind == "ram" { setup.capacity.as_str() } else { "1GiB" };
    let started = Node::start(setup, &scratch, &node, (case.kind, capacity, case.keys))?;
    let seen = Arc::new(Seen::default());
    seen.keeper.store(u64::from(started.server.id()), Relaxed);
    let front = front(setup, case, &started.socket, seen.clone())?;
    let name = |what: &str| format!("{}, {}: {what}", case.name, if case.standby { "standby" } else { "cold" });
    let mut lines: [Series; 4] = Default::default();
    let mut random = Rng::new(u64::from(std::process::id()));
    let result = (0..setup.rounds).try_for_each(|_| {
        std::thread::sleep(Duration::from_micros(20_000 + random.below(30_000)));
        let found = kill(&started.server, &seen)?;
        lines.iter_mut().zip(found).for_each(|(series, ns)| series.push(ns as f64 / 1e6));
        Ok(())
    });
    seen.stop.store(true, Relaxed);
    let ended = front.join().map_err(|_| failed("front end", "panicked"))?;
    result.and(ended)?;
    let [raw, net, death, after] = &lines;
    for (what, series) in [("gap", raw), ("gap, net", net)] {
        let at = |percent| Series::of(series.percentile(percent));
        if case.standby && what == "gap, net" {
            report.judged(name("gap, net, p50"), "ms", &at(50.0), Target::AtMost(3.0));
            report.judged(name("gap, net, p99"), "ms", &at(99.0), Target::AtMost(20.0));
        } else {
            report.figure(name(&format!("{what}, p50")), "ms", &at(50.0));
            report.figure(name(&format!("{what}, p99")), "ms", &at(99.0));
        }
    }
    report.figure(name("kill to the end of the process"), "ms", death);
    report.figure(name("from there to the first completion"), "ms", after);
    Ok(())
}

/// Kills the worker: the gap, the net gap, how long the process took to end, and what was left of the gap then, ns.
fn kill(keeper: &Server, seen: &Seen) -> Result<[u64; 4], BenchError> {
    let begun = Instant::now();
    let workers = workers(keeper.id());
    let worker = *workers.first().ok_or_else(|| failed("weir up", "it has no worker"))?;
    let pid = Pid::from_raw(worker).ok_or_else(|| failed("weir up", "its worker has no process"))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    // What the keeper had waited before, and the standby.
    let before = waited(keeper.id()) + workers.get(1).map_or(0, |pid| waited_by_worker(*pid));
    seen.gap.store(0, Relaxed);
    let killed = now().0;
    kill_process(pid, Signal::KILL)?;
    let limit = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit))?;
    let gone = now().0;
    loop {
        std::thread::sleep(Duration::from_millis(1));
        let (gap, ended, last) = (seen.gap.load(Relaxed), seen.ended.load(Relaxed), seen.last.load(Relaxed));
        if gap >= GAP && ended > killed && now().0 > ended + CALM && now().0 < last + CALM {
            let waited = seen.waited.load(Relaxed).saturating_sub(before);
            return Ok([gap, gap.saturating_sub(waited), gone - killed, ended.saturating_sub(gone)]);
        }
        if begun.elapsed() > PATIENCE {
            return Err(failed("weir up", "nothing was completed any more after a kill"));
        }
    }
}

/// The front end: keeps `depth` requests in flight until it is told to stop.
fn front(
    setup: &Setup,
    case: &Case,
    socket: &Path,
    seen: Arc<Seen>,
) -> Result<JoinHandle<Result<(), BenchError>>, BenchError> {
    let (depth, write, core) = (case.depth, case.write, setup.client_core);
    let socket = socket.to_owned();
    let (ready, started) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("front".into()).spawn(move || {
        weir_sys::sched::pin(core)?;
        let mut pairs = connect(&socket, Options::default(), depth, SIZE)?;
        let mut pair = pairs.pop().ok_or_else(|| failed(socket.display(), "no queue"))?;
        let _ = ready.send(());
        run(&mut pair, depth, write, &seen)
    })?;
    // Where it could not begin, joining it says why.
    let _ = started.recv();
    Ok(thread)
}

fn run(pair: &mut VhostUserQueue, depth: u32, write: bool, seen: &Seen) -> Result<(), BenchError> {
    let (mut free, mut done): (Vec<u32>, Vec<_>) = ((0..depth).collect(), Vec::new());
    let mut random = Rng::new(7);
    let blocks = pair.capacity() / u64::from(SIZE);
    let mut last = now().0;
    while !(seen.stop.load(Relaxed) && free.len() == depth as usize) {
        while !seen.stop.load(Relaxed) {
            let Some(slot) = free.pop() else { break };
            let kind = if write || random.below(2) == 0 { IoKind::Write } else { IoKind::Read };
            pair.submit(Io { kind, offset: random.below(blocks) * u64::from(SIZE), len: SIZE, slot })?;
        }
        pair.poll(&mut done)?;
        if done.is_empty() {
            continue;
        }
        let at = now().0;
        let gap = at - last;
        if gap > GAP && gap > seen.gap.load(Relaxed) {
            let keeper = seen.keeper.load(Relaxed) as u32;
            let worker = workers(keeper).first().map_or(0, |pid| waited_by_worker(*pid));
            seen.waited.store(waited(keeper) + worker, Relaxed);
            seen.ended.store(at, Relaxed);
            seen.gap.store(gap, Relaxed);
        }
        // What was looked at takes a while, which is nobody's gap.
        last = now().0;
        seen.last.store(last, Relaxed);
        for one in done.drain(..) {
            if !one.status.is_success() {
                return Err(failed("a request", one.status));
            }
            free.push(one.slot);
        }
    }
    Ok(())
}

/// The keeper's children: the worker that serves comes first.
fn workers(keeper: u32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// What the threads of a process have waited for a core, ns: its first one's name and all others'.
fn threads(pid: u32) -> Vec<(String, u64)> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let one = |task: std::fs::DirEntry| {
        let of = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let waited = of("schedstat").split(' ').nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0);
        let name =
            if task.file_name().to_str() == Some(&pid.to_string()) { "".into() } else { of("comm").trim().into() };
        (name, waited)
    };
    tasks.flatten().map(one).collect()
}

/// A process's threads.
fn waited(pid: u32) -> u64 {
    threads(pid).iter().map(|(_, ns)| ns).sum()
}

/// Those of a worker that act one after the other: the one that starts it, and the one that hears the keeper.
fn waited_by_worker(pid: i32) -> u64 {
    let on_the_way = |name: &str| name.is_empty() || name == "weir-keeper";
    threads(pid.unsigned_abs()).iter().filter(|(name, _)| on_the_way(name)).map(|(_, ns)| ns).sum()
}
