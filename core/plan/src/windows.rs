//! A drive of fixed latency, command by command, with the arbiter itself.
//!
//! Three things depend on the order in which commands are handed out, and the fluid does not know that order. Where closed loops keep
//! the drive full, what has begun together ends together, for ever: a window later all slots are free at once, and how much fits then
//! depends on sizes (a command that does not fit into the bytes in flight waits, and nobody overtakes it). A loop of fewer commands than
//! the drive has slots comes back in time for its turn, or does not. And such a loop waits when chance has let open loops take the slots,
//! also where the drive is not full on average. So the arbiter is asked, for some hundred or thousand times the latency, with queues
//! that hold nothing but times.

use crate::tenant::{LEAST_COST, PlanTenant, Setting};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use weir_arbiter::{Arbiter, ArbiterSettings, QueueKey};
use weir_controller::Cost;
use weir_units::{Ceiling, Floor, Nanos};
use weir_workload::{Arrival, Histogram, Mix, Pacer, Rate, Xoshiro256};

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
    /// The part of the time in which there was no room for more.
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
    pub tenants: &'a [PlanTenant],
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

/// What was begun, to tell what chance in the arrivals has done.
#[derive(Default)]
struct Tally {
    /// Of each tenant: commands and bytes.
    begun: Vec<(u64, u64)>,
    /// Time without a free slot, and time in which a command waited for its bytes.
    slots: u64,
    bytes: u64,
}

impl Tally {
    /// What those that never run out would have, over what they had, if the open loops had sent exactly what they offer: as much less or
    /// more of the slots, or of the bytes where these bind, would be left to them.
    fn correction(&self, question: &Question<'_>, taken: f64) -> f64 {
        let (mut commands, mut bytes, mut own) = (0.0, 0.0, (0.0, 0.0));
        let length = question.window * question.windows as f64;
        for (at, (tenant, (n, moved))) in question.tenants.iter().zip(&self.begun).enumerate() {
            let (n, moved) = (*n as f64, *moved as f64);
            if question.greedy[at] {
                own = (own.0 + n, own.1 + moved);
            } else {
                let offered = question.offered[at] * length;
                (commands, bytes) = (commands + n - offered, bytes + moved - offered * tenant.demand.size());
            }
        }
        if own.0 == 0.0 || taken == 0.0 {
            return 1.0;
        }
        let part = |time: u64| time as f64 / (length * 1e9);
        (commands * part(self.slots) + bytes * part(self.bytes) / (own.1 / own.0)) / taken + 1.0
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

    fn draw(&mut self, rng: &mut Xoshiro256) -> u32 {
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

/// A command that has begun.
struct Begun {
    line: usize,
    size: u64,
    ends: u64,
}

/// Lets the arbiter hand out commands.
pub(crate) fn run(question: &Question<'_>) -> Windows {
    let mut run = Run::new(question);
    while run.now < run.end {
        run.step();
    }
    run.answer()
}

/// The drive at one moment.
struct Run<'a> {
    question: &'a Question<'a>,
    arbiter: Arbiter,
    lines: Vec<Line<'a>>,
    by_key: Vec<usize>,
    rng: Xoshiro256,
    /// In the order in which they end.
    in_flight: VecDeque<Begun>,
    bytes: u64,
    /// Fetched, and waiting for its bytes: line, size, when it was due.
    head: Option<(usize, u64, u64)>,
    now: u64,
    /// What a command takes.
    length: u64,
    /// From when on it counts, and to when.
    from: u64,
    end: u64,
    tally: Tally,
    latency: Vec<Histogram>,
}

impl<'a> Run<'a> {
    fn new(question: &'a Question<'a>) -> Self {
        let mut arbiter = Arbiter::new(question.setting.arbiter);
        let lines = lines(question, &mut arbiter);
        let mut by_key: Vec<usize> = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            by_key.resize(by_key.len().max(line.key.index() + 1), 0);
            by_key[line.key.index()] = at;
        }
        let length = ((question.window * 1e9) as u64).max(1);
        let tally = Tally { begun: alloc::vec![(0, 0); question.tenants.len()], ..Tally::default() };
        Run {
            question,
            arbiter,
            lines,
            by_key,
            rng: Xoshiro256::new(1),
            in_flight: VecDeque::with_capacity(question.slots as usize),
            bytes: 0,
            head: None,
            now: 0,
            length,
            from: RAMP * length,
            end: (RAMP + question.windows) * length,
            tally,
            latency: question.tenants.iter().map(|_| Histogram::new()).collect(),
        }
    }

    /// One moment: what ends, what arrives, what begins; and on to the next.
    fn step(&mut self) {
        let Run { arbiter, lines, in_flight, now, .. } = self;
        while let Some(Begun { line, size, .. }) = in_flight.front().filter(|begun| begun.ends <= *now) {
            self.bytes -= size;
            lines[*line].again(*now, arbiter);
            in_flight.pop_front();
        }
        for line in &mut *lines {
            line.arrive(*now, arbiter);
        }
        while self.begin() {}
        let next = self.next();
        if self.now >= self.from {
            let time = next - self.now;
            self.tally.slots += time * u64::from(self.has_no_slot());
            self.tally.bytes += time * u64::from(self.head.is_some());
        }
        self.now = next;
    }

    fn has_no_slot(&self) -> bool {
        self.in_flight.len() >= self.question.slots as usize
    }

    /// Begins the command whose turn it is; false where there is none, or no room for it.
    fn begin(&mut self) -> bool {
        if self.has_no_slot() {
            return false;
        }
        let (now, cost) = (self.now, self.question.setting.cost);
        let Some((line, size, since)) = self.head.take().or_else(|| {
            let line = self.by_key[self.arbiter.pick_at(Nanos(now))?.index()];
            Some(self.lines[line].take((line, now), cost, &mut self.arbiter, &mut self.rng))
        }) else {
            return false;
        };
        if self.bytes + size > self.question.bytes && !self.in_flight.is_empty() {
            self.head = Some((line, size, since));
            return false;
        }
        self.bytes += size;
        let ends = now + self.length;
        self.in_flight.push_back(Begun { line, size, ends });
        if now >= self.from {
            let tenant = self.lines[line].tenant;
            let (commands, bytes) = &mut self.tally.begun[tenant];
            (*commands, *bytes) = (*commands + 1, *bytes + size);
            self.latency[tenant].record(ends - since);
        }
        true
    }

    /// When something ends or arrives.
    fn next(&self) -> u64 {
        let ends = self.in_flight.front().map_or(self.end, |begun| begun.ends);
        let arrives = self.lines.iter().filter_map(|line| line.pacer.as_ref()).map(|pacer| pacer.due().0);
        arrives.fold(ends, u64::min).clamp(self.now + 1, self.end.max(self.now + 1))
    }

    fn answer(self) -> Windows {
        let question = self.question;
        let windows = question.windows as f64;
        let mut served: Vec<f64> = self.tally.begun.iter().map(|(n, _)| *n as f64 / windows).collect();
        // Who never waits has no part in what is left.
        let waits: Vec<bool> = (0..served.len())
            .map(|i| question.greedy[i] && served[i] < question.tenants[i].demand.outstanding() * 0.999)
            .collect();
        let taken: f64 = (0..served.len()).filter(|i| waits[*i]).map(|i| served[i]).sum();
        let factor = self.tally.correction(question, taken * windows).clamp(0.5, 2.0);
        for (at, served) in served.iter_mut().enumerate().filter(|(at, _)| waits[*at]) {
            let most = question.tenants[at].demand.outstanding().min(question.offered[at] * question.window);
            *served = (*served * factor).min(most);
        }
        let mut waiting = alloc::vec![0.0; question.tenants.len()];
        for line in &self.lines {
            waiting[line.tenant] += line.waiting.len() as f64;
        }
        let offered = |at: usize| question.offered[at] * question.window;
        let in_flight = (0..served.len()).map(|at| if question.greedy[at] { served[at] } else { offered(at) }).sum();
        let time = (self.end - self.from) as f64;
        let full = (self.tally.slots + self.tally.bytes) as f64 / time;
        Windows { served, in_flight, full, waiting, latency: self.latency }
    }
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
        let group = arbiter.add_group(key, ArbiterSettings::default());
        let queues = demand.queues.max(1);
        let rate = (!question.greedy[at]).then(|| (question.offered[at] / f64::from(queues)) as u64);
        // What a ceiling lets through comes evenly.
        let held = question.offered[at] < demand.offered();
        let arrival = if held { Arrival::Fixed } else { demand.arrival };
        for queue in 0..queues {
            let key = arbiter.add_queue(group, tenant.class, tenant.class);
            let pacer = rate.map(|rate| pacer(Rate::Iops(rate.max(1)), arrival, (at as u64) << 16 | u64::from(queue)));
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
    fn take(
        &mut self,
        (at, now): (usize, u64),
        cost: Cost,
        arbiter: &mut Arbiter,
        rng: &mut Xoshiro256,
    ) -> (usize, u64, u64) {
        let since = self.waiting.pop_front().unwrap_or_default();
        let size = self.sizes.draw(rng);
        let least = LEAST_COST as u32;
        let cost = if cost == Cost::Commands { least } else { size.max(least) };
        arbiter.charge_at(Nanos(now), self.key, cost, size, !self.waiting.is_empty());
        (at, u64::from(size), since)
    }
}
