//! Requests at given times at a local drive, and when each of them came, was due and was seen to be complete.

use crate::local::{Local, LocalTenant};
use weir_config::DeviceConfig;
use weir_driver::{Done, Io, IoKind, QueuePair};
use weir_units::{Class, Nanos};
use weir_workload::{Answered, Planned};

/// What the thread knows of the time.
pub trait Clock {
    /// The time; it never goes back.
    fn now(&mut self) -> Nanos;
    /// How much of the time since then the thread was ready to run and had no core.
    fn waited_since(&mut self, from: Nanos) -> Nanos;
}

/// Requests that can be in flight at the most.
const DEPTH: u32 = 1023;

/// Makes the requests, which are in the order of their times, each when that has come, and runs the drive meanwhile in the same thread. What
/// became of each.
///
/// # Errors
/// The drive cannot be had, or a request failed.
pub fn replay(config: &DeviceConfig, requests: &[Planned], clock: &mut impl Clock) -> Result<Vec<Answered>, String> {
    let tenant = LocalTenant { name: "replay".into(), class: Class::Medium };
    let mut local = Local::open(config, &[tenant], Nanos(0)).map_err(|e| e.to_string())?;
    let depth = DEPTH.min(u32::from(config.queue_depth) - 1);
    let buffer = requests.iter().map(|r| r.len).max().unwrap_or(0);
    let client = local.connect(0, "replay", depth, buffer, Nanos(0)).map_err(|e| e.to_string())?;
    local.keep_dues();
    let mut free: Vec<u32> = (0..depth).rev().collect();
    let mut by_slot = vec![0; depth as usize];
    let mut answers = vec![Answered::default(); requests.len()];
    let (mut next, mut left) = (0, requests.len());
    let (mut done, mut dues): (Vec<Done>, Vec<Nanos>) = (Vec::new(), Vec::new());
    while left > 0 {
        let now = clock.now();
        let mut pair = local.queue(client, now);
        while let Some(request) = requests.get(next).filter(|r| r.at <= now) {
            let Some(slot) = free.pop() else { break };
            let kind = if request.write { IoKind::Write } else { IoKind::Read };
            let io = Io { kind, offset: request.offset, len: request.len, slot };
            pair.submit(io).map_err(|e| e.to_string())?;
            (answers[next].arrived, by_slot[slot as usize]) = (now, next);
            next += 1;
        }
        pair.flush();
        local.run(now);
        let seen = clock.now();
        local.queue(client, seen).reap(&mut done).map_err(|e| e.to_string())?;
        local.take_dues(&mut dues);
        if done.len() != dues.len() {
            return Err("the drive has no modelled times".into());
        }
        for (done, due) in done.drain(..).zip(dues.drain(..)) {
            if !done.status.is_success() {
                return Err(format!("a request failed: {}", done.status));
            }
            let answer = &mut answers[by_slot[done.slot as usize]];
            (answer.due, answer.seen, answer.waited) = (due, seen, clock.waited_since(due));
            free.push(done.slot);
            left -= 1;
        }
    }
    Ok(answers)
}
