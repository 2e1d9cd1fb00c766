//! What happens to the node, and what its client has seen of it when that is over.

use super::What;
use super::front::{self, Front, NODE_RETURN_TIMEOUT};
use super::processes::{Way, ask, workers};
use crate::servers::Node;
use crate::{BenchError, Setup, failed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weir_sys::reactor::now;

/// So long completions come again before a gap counts as over, ns.
const CALM: u64 = 20_000_000;
/// Between one and the next at least: a worker that is killed again within 5 ms is replaced after a pause, and the standby needs
/// some time until it has mapped the drive beside those who work.
pub(super) const SPACE: Duration = Duration::from_millis(500);

/// What a start consists of for its client.
pub(super) const COLD_START: &str = "exec to the first completion";

/// What was seen, ns.
pub(super) struct Seen {
    pub(super) gap: u64,
    /// Without what was waited for a core.
    pub(super) net: u64,
    /// What it consisted of.
    pub(super) phases: Vec<(String, u64)>,
}

/// Has it happen, and waits until the client is served again.
pub(super) fn happen(what: What, setup: &Setup, node: &mut Node, front: &Front) -> Result<Seen, BenchError> {
    match what {
        What::Crash { .. } => crash(node, front),
        What::Upgrade => upgrade(node, front),
        What::Restart => restart(setup, node, front),
    }
}

/// Waits for the end of a gap that began after `since`: when it ended and how long it was.
fn gap(front: &Front, since: u64) -> Result<(u64, u64), BenchError> {
    let begun = Instant::now();
    let seen = &front.seen;
    loop {
        std::thread::sleep(Duration::from_millis(1));
        let (gap, ended, last) = (seen.gap.load(Relaxed), seen.ended.load(Relaxed), seen.last.load(Relaxed));
        let now = now().0;
        if gap >= front::GAP && ended > since && now > ended + CALM && now < last + CALM {
            return Ok((ended, gap));
        }
        // An event that nobody notices is none to wait for.
        if begun.elapsed() > NODE_RETURN_TIMEOUT || front.has_ended() {
            return Err(failed("weir up", "nothing was completed any more"));
        }
    }
}

/// What the new worker says that its start consisted of.
fn steps(node: &Node) -> Result<Vec<(String, u64)>, BenchError> {
    let status = ask(&node.api, "GET", "/v1/status", "")?;
    let steps = status["start"].as_array().map(Vec::as_slice).unwrap_or_default();
    let each = |step: &serde_json::Value| Some((step["name"].as_str()?.to_owned(), step["ns"].as_u64()?));
    Ok(steps.iter().filter_map(each).map(|(name, ns)| (format!("of which: {name}"), ns)).collect())
}

/// Kills the worker.
fn crash(node: &Node, front: &Front) -> Result<Seen, BenchError> {
    let (keeper, seen) = (node.server.id(), &front.seen);
    let worker = *workers(keeper).first().ok_or_else(|| failed("weir up", "it has no worker"))?;
    let pid = Pid::from_raw(worker).ok_or_else(|| failed("weir up", "its worker has no process"))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    seen.is_of(keeper, vec![worker]);
    // What the keeper had waited before, and the standby.
    let before = seen.waited_now();
    seen.gap.store(0, Relaxed);
    let killed = now().0;
    kill_process(pid, Signal::KILL)?;
    let limit = Timespec { tv_sec: NODE_RETURN_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit))?;
    let gone = now().0;
    let (ended, gap) = gap(front, killed)?;
    let waited = seen.waited.load(Relaxed).saturating_sub(before);
    let mut phases = vec![
        ("kill to the first completion".to_owned(), ended - killed),
        ("kill to the end of the process".to_owned(), gone - killed),
    ];
    phases.extend(steps(node)?);
    Ok(Seen { gap, net: gap.saturating_sub(waited), phases })
}

/// Replaces the program by itself.
fn upgrade(node: &Node, front: &Front) -> Result<Seen, BenchError> {
    let (keeper, seen) = (node.server.id(), &front.seen);
    let others = workers(keeper);
    seen.is_of(keeper, others.clone());
    let shards = |name: &str| name.starts_with("shard-");
    let old = others.first().map_or_else(Way::default, |old| Way::of(old.unsigned_abs(), shards));
    let ways = [Way::of(keeper, str::is_empty), old];
    *seen.ways.lock().unwrap_or_else(PoisonError::into_inner) = ways;
    seen.gap.store(0, Relaxed);
    let asked = now().0;
    ask(&node.api, "POST", "/v1/upgrade", "{\"probation_ns\":0}")?;
    let begun = Instant::now();
    // Asking would be in its way: a new worker there is a sign.
    let next = || workers(keeper).into_iter().find(|pid| !others.contains(pid));
    let mut known = 0;
    while known < 2 && begun.elapsed() < NODE_RETURN_TIMEOUT {
        std::thread::sleep(Duration::from_millis(1));
        let Some(next) = next().map(i32::unsigned_abs) else { continue };
        let more = if known == 0 { Way::of(next, str::is_empty) } else { Way::of(next, shards) };
        let ways = &mut *seen.ways.lock().unwrap_or_else(PoisonError::into_inner);
        known += ways[known].add(more).min(1);
    }
    let status = loop {
        std::thread::sleep(Duration::from_millis(100));
        match ask(&node.api, "GET", "/v1/upgrade", "") {
            Ok(status) if status["state"] == "upgraded" => break status,
            Ok(status) if status["reason"].is_string() => return Err(failed("the upgrade", &status["reason"])),
            _ if begun.elapsed() < NODE_RETURN_TIMEOUT => {}
            Ok(status) => return Err(failed("the upgrade", format!("it does not end: {status}"))),
            Err(e) => return Err(e),
        }
    };
    let (_, gap) = gap(front, asked)?;
    let mut phases = Vec::new();
    for (name, key) in [("prepare", "prepare_ns"), ("hand over", "hand_over_ns"), ("take over", "take_over_ns")] {
        phases.push((name.to_owned(), status[key].as_u64().unwrap_or(0)));
    }
    phases.extend(steps(node)?);
    Ok(Seen { gap, net: gap.saturating_sub(seen.within.load(Relaxed)), phases })
}

/// Tells the node to end, and starts it again.
fn restart(setup: &Setup, node: &mut Node, front: &Front) -> Result<Seen, BenchError> {
    let seen = &front.seen;
    seen.gap.store(0, Relaxed);
    let told = now().0;
    node.server.end()?;
    let gone = now().0;
    node.again(setup)?;
    seen.is_of(node.server.id(), Vec::new());
    // What was completed while the node drained is no sign of the next one.
    let (ended, gap) = gap(front, gone)?;
    let waited = seen.waited.load(Relaxed);
    let mut phases = vec![
        ("SIGTERM to the end of the process".to_owned(), gone - told),
        (COLD_START.to_owned(), ended.saturating_sub(gone)),
    ];
    phases.extend(steps(node)?);
    Ok(Seen { gap, net: gap.saturating_sub(waited), phases })
}
