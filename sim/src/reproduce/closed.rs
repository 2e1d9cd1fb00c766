//! Clients that each wait for their answer before they ask again, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
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
