//! Clients that each wait for their answer before they ask again, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_flash::{Flash, FlashOp, When};
use weir_units::Nanos;
use weir_workload::Histogram;

/// What came out.
#[derive(Clone, Debug)]
pub struct Measured {
    /// When counting began.
    pub begun: Nanos,
    /// When the last request was answered.
    pub end: Nanos,
    /// Latencies of all requests that were counted, in nanoseconds.
    pub latency: Histogram,
}

impl Measured {
    /// Requests a second.
    pub fn iops(&self) -> f64 {
        self.latency.count() as f64 / self.end.saturating_sub(self.begun).as_secs_f64().max(1e-9)
    }
}

/// Lets `clients` clients, from `start` on, make `ramp` requests that are not counted and `count` that are, whoever they are
/// from. `submit` is handed the time and the client, and says when that request is complete.
pub fn closed_loop(
    start: Nanos,
    clients: u32,
    (ramp, count): (u64, u64),
    mut submit: impl FnMut(Nanos, u32) -> Nanos,
) -> Measured {
    let mut waiting = BinaryHeap::with_capacity(clients as usize);
    for client in 0..clients {
        waiting.push(Reverse((submit(start, client), start, client)));
    }
    let mut measured = Measured { begun: start, end: start, latency: Histogram::new() };
    let mut answered = 0;
    while let Some(Reverse((now, since, client))) = waiting.pop() {
        answered += 1;
        if answered == ramp {
            measured.begun = now;
        }
        if answered > ramp {
            measured.latency.record(now.saturating_sub(since).0);
            measured.end = now;
        }
        if answered >= ramp + count {
            break;
        }
        waiting.push(Reverse((submit(now, client), now, client)));
    }
    measured
}

/// [`closed_loop`] of a drive of any kind, also one that does not know in advance when a command ends; each client sees its answer `host`
/// later. `next` says what is asked for next: the command, the first unit, and how many.
pub fn flash_loop(
    flash: &mut Flash,
    start: Nanos,
    (clients, host): (u32, Nanos),
    (ramp, count): (u64, u64),
    mut next: impl FnMut() -> (FlashOp, u32, u32),
) -> Measured {
    let mut since = vec![start; clients as usize];
    let mut waiting = BinaryHeap::with_capacity(clients as usize);
    let mut ask = |flash: &mut Flash, now: Nanos, client: u32| {
        let (op, lpn, units) = next();
        let end = flash.begin(now, When::at(now), op, lpn, units, 0);
        flash.tell(end, client.into());
    };
    (0..clients).for_each(|client| ask(flash, start, client));
    let mut measured = Measured { begun: start, end: start, latency: Histogram::new() };
    let mut answered = 0;
    while answered < ramp + count {
        while let Some((client, at)) = flash.told() {
            waiting.push(Reverse((at.saturating_add(host), client as u32)));
        }
        let event = flash.next_event().filter(|event| waiting.peek().is_none_or(|Reverse((at, _))| event < at));
        if let Some(event) = event {
            flash.advance(event);
            continue;
        }
        let Some(Reverse((now, client))) = waiting.pop() else { break };
        answered += 1;
        if answered == ramp {
            measured.begun = now;
        }
        if answered > ramp {
            measured.latency.record(now.saturating_sub(since[client as usize]).0);
            measured.end = now;
        }
        since[client as usize] = now;
        ask(flash, now, client);
    }
    measured
}
