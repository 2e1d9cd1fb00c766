//! A full drive whose commands begin and end together, window by window, with the arbiter itself.
//!
//! Where every command takes equally long and closed loops keep the drive full, what has begun together ends together, for ever:
//! a window later all slots are free at once. How much fits then (a command that does not fit into the bytes in flight waits, and
//! nobody overtakes it), how often a loop comes back in time for its turn when it has fewer commands than the drive has slots, and
//! how long who waits, depend on the order in which the arbiter hands commands out. The fluid does not know that order; here the
//! arbiter is asked, for some hundred windows, with queues that hold nothing but times.

use crate::tenant::{LEAST_COST, Setting, Tenant};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use weir_arbiter::{Arbiter, QueueKey, Settings};
use weir_controller::Cost;
use weir_units::{Ceiling, Floor, Nanos};
use weir_workload::{Arrival, Histogram, Mix, Pacer, Rate, Rng};

/// Windows that are not counted: queues fill.
const RAMP: u64 = 64;
/// No blend needs more memory than this, in commands that wait in one queue.
const MOST_WAITING: usize = 1 << 16;

/// What came out.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    /// Commands a window of each tenant.
    pub served: Vec<f64>,
    /// All of them: the mean number in flight.
    pub in_flight: f64,
    /// The part of the windows that had no room for more.
    pub full: f64,
    /// Commands of each tenant that wait at the end.
    pub waiting: Vec<f64>,
    /// Latencies of each tenant, in nanoseconds.
    pub latency: Vec<Histogram>,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub setting: &'a Setting,
    pub tenants: &'a [Tenant],
    /// Commands a second that each offers; infinite in a closed loop.
    pub offered: &'a [f64],
    /// Which of them never run out: closed loops, and open ones that ask for more than they get.
    pub greedy: &'a [bool],
    pub slots: u32,
    pub bytes: u64,
    /// Seconds.
    pub window: f64,
    /// How many are counted.
    pub windows: u64,
}

/// Bytes that were begun, to tell what chance in the arrivals has done.
#[derive(Default)]
struct Tally {
    /// Of open loops: commands and bytes.
    light: (u64, u64),
    /// Of those that never run out.
    greedy: (u64, u64),
    /// Windows that were full of bytes.
    bound: u64,
}

impl Tally {
    fn add(&mut self, light: bool, size: u64) {
        let (commands, bytes) = if light { &mut self.light } else { &mut self.greedy };
        (*commands, *bytes) = (*commands + 1, *bytes + size);
    }

    /// Commands a window that there would be more, had the open loops sent exactly what they offer: as many bytes fewer or more are
    /// left to the others where bytes are what binds.
    fn correction(&self, question: &Question<'_>) -> f64 {
        if self.greedy.0 == 0 {
            return 0.0;
        }
        let (mut commands, mut bytes) = (0.0, 0.0);
        for (at, tenant) in question.tenants.iter().enumerate().filter(|(at, _)| !question.greedy[*at]) {
            let offered = question.offered[at] * question.window;
            (commands, bytes) = (commands + offered, bytes + offered * tenant.demand.size());
        }
        let windows = question.windows as f64;
        let missing = (commands - self.light.0 as f64 / windows, bytes - self.light.1 as f64 / windows);
        let mean = self.greedy.1 as f64 / self.greedy.0 as f64;
        (missing.0 - missing.1 / mean) * self.bound as f64 / windows
    }
}

/// A queue.
struct Line<'a> {
    tenant: usize,
    key: QueueKey,
    sizes: Sizes<'a>,
    /// When those that wait were due.
    waiting: VecDeque<u64>,
    /// An open loop.
    pacer: Option<Pacer>,
}

/// Draws sizes as a mix has them: at random, but in as many draws as there are tickets each has its share exactly, so that a few
/// hundred windows have the mix's mean.
struct Sizes<'a> {
    mix: &'a Mix,
    tickets: Vec<u64>,
    left: u64,
}

/// Tickets of each percent.
const TICKETS: u64 = 10;

impl<'a> Sizes<'a> {
    fn new(mix: &'a Mix) -> Sizes<'a> {
        Sizes { mix, tickets: Vec::new(), left: 0 }
    }

    fn draw(&mut self, rng: &mut Rng) -> u32 {
        if let [(size, _)] = self.mix.parts() {
            return *size;
        }
        if self.left == 0 {
            self.tickets = self.mix.parts().iter().map(|(_, share)| u64::from(*share) * TICKETS).collect();
            self.left = self.tickets.iter().sum();
        }
        let mut draw = rng.below(self.left);
        self.left -= 1;
        for ((size, _), tickets) in self.mix.parts().iter().zip(&mut self.tickets) {
            if draw < *tickets {
                *tickets -= 1;
                return *size;
            }
            draw -= *tickets;
        }
        self.mix.max()
    }
}

/// Lets the arbiter hand out windows.
pub(crate) fn run(question: &Question<'_>) -> Windows {
    let mut arbiter = Arbiter::new(question.setting.arbiter);
    let mut lines = lines(question, &mut arbiter);
    let mut by_key: Vec<usize> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        by_key.resize(by_key.len().max(line.key.index() + 1), 0);
        by_key[line.key.index()] = at;
    }
    let mut rng = Rng::new(1);
    let mut latency: Vec<Histogram> = question.tenants.iter().map(|_| Histogram::new()).collect();
    let mut served = alloc::vec![0u64; question.tenants.len()];
    let mut full = 0;
    // Fetched, and waiting for its bytes.
    let mut head: Option<(usize, u64, u64)> = None;
    let length = question.window * 1e9;
    // What was begun in the last window, in that order.
    let mut begun: Vec<usize> = Vec::new();
    let mut tally = Tally::default();
    for at in 0..RAMP + question.windows {
        let (now, end) = ((at as f64 * length) as u64, ((at + 1) as f64 * length) as u64);
        for line in &mut lines {
            line.arrive(now, &mut arbiter);
        }
        for line in begun.drain(..) {
            lines[line].again(now, &mut arbiter);
        }
        let (mut used, mut held) = (0, 0);
        while used < question.slots {
            let next = head.take().or_else(|| {
                let line = by_key[arbiter.pick_at(Nanos(now))?.index()];
                Some(lines[line].take((line, now), question.setting.cost, &mut arbiter, &mut rng))
            });
            let Some((line, size, since)) = next else { break };
            if held + size > question.bytes && used > 0 {
                head = Some((line, size, since));
                break;
            }
            (used, held) = (used + 1, held + size);
            begun.push(line);
            if at >= RAMP {
                let line = &lines[line];
                served[line.tenant] += 1;
                latency[line.tenant].record(end - since);
                tally.add(line.pacer.is_some(), size);
            }
        }
        full += u64::from(at >= RAMP && (used == question.slots || head.is_some()));
        tally.bound += u64::from(at >= RAMP && head.is_some());
    }
    let per_window = |n: &u64| *n as f64 / question.windows as f64;
    let served: Vec<f64> = served.iter().map(per_window).collect();
    let mut waiting = alloc::vec![0.0; question.tenants.len()];
    for line in &lines {
        waiting[line.tenant] += line.waiting.len() as f64;
    }
    let in_flight = served.iter().sum::<f64>() + tally.correction(question);
    Windows { in_flight, served, full: per_window(&full), waiting, latency }
}

fn lines<'a>(question: &Question<'a>, arbiter: &mut Arbiter) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for (at, tenant) in question.tenants.iter().enumerate() {
        let demand = &tenant.demand;
        let key = arbiter.add_tenant(tenant.weight);
        if !tenant.floor.is_none() {
            // A ceiling is in what it offers.
            arbiter.set_limits(key, &Floor::new(tenant.floor), &Ceiling::default());
        }
        let group = arbiter.add_group(key, Settings::default());
        let queues = demand.queues.max(1);
        let rate = (!question.greedy[at]).then(|| (question.offered[at] / f64::from(queues)) as u64);
        for queue in 0..queues {
            let key = arbiter.add_queue(group, tenant.class, tenant.class);
            let pacer =
                rate.map(|rate| pacer(Rate::Iops(rate.max(1)), demand.arrival, (at as u64) << 16 | u64::from(queue)));
            let waiting = if pacer.is_some() { 0 } else { demand.depth.max(1) };
            let waiting = (0..waiting).map(|_| 0).collect();
            lines.push(Line { tenant: at, key, sizes: Sizes::new(&demand.sizes), waiting, pacer });
        }
    }
    for line in &lines {
        if !line.waiting.is_empty() {
            arbiter.backlog(line.key);
        }
    }
    lines
}

fn pacer(rate: Rate, arrival: Arrival, seed: u64) -> Pacer {
    match arrival {
        Arrival::Fixed => Pacer::new(rate, Nanos(0)),
        Arrival::Poisson | Arrival::PoissonDrop => Pacer::poisson(rate, Nanos(0), seed),
    }
}

impl Line<'_> {
    /// What an open loop has sent since the last window.
    fn arrive(&mut self, now: u64, arbiter: &mut Arbiter) {
        let Some(pacer) = &mut self.pacer else { return };
        let had = !self.waiting.is_empty();
        while pacer.due().0 <= now {
            if self.waiting.len() < MOST_WAITING {
                self.waiting.push_back(pacer.due().0);
            }
            pacer.advance(1);
        }
        if !had && !self.waiting.is_empty() {
            arbiter.backlog(self.key);
        }
    }

    /// One of its commands is complete: a closed loop sends another.
    fn again(&mut self, now: u64, arbiter: &mut Arbiter) {
        if self.pacer.is_none() {
            self.waiting.push_back(now);
            arbiter.backlog(self.key);
        }
    }

    /// Its head: place, size, when it was due.
    fn take(&mut self, (at, now): (usize, u64), cost: Cost, arbiter: &mut Arbiter, rng: &mut Rng) -> (usize, u64, u64) {
        let since = self.waiting.pop_front().unwrap_or_default();
        let size = self.sizes.draw(rng);
        let least = LEAST_COST as u32;
        let cost = if cost == Cost::Commands { least } else { size.max(least) };
        arbiter.charge_at(Nanos(now), self.key, cost, size, !self.waiting.is_empty());
        (at, u64::from(size), since)
    }
}
