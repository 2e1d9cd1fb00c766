//! The fluid model: who gets how many commands a second.
//!
//! The unknown is the number of arbitration rounds a second, θ. At a given θ everybody's rate is known: a class spends at most
//! its credit a round, inside it the tenants share what it spends, and nobody gets more than he asks for. Rates grow with θ, and
//! so does what they hold of the drive; the answer is the θ at which the drive is full. Where it is not full at any θ, everybody
//! gets what he asks for.
//!
//! **The drive's side.** A command that is carried out beside `n` others takes l(n) = a·(1 + (n−1)/p), the mean of a drive of p
//! parts that commands hit at random (for a fixed latency p is infinite and l = a). By Little's law the commands in flight are
//! Σ xᵢ·lᵢ(n) = n. The drive is full when n is what slots and bytes in flight admit ([`pack`](crate::pack)).
//!
//! **A closed loop** of depth q has q/l(n) at the most, and where it has to wait for its turn q a round, or less: who comes back
//! after its turn has ended waits for the next.

use crate::drive::Drive;
use crate::pack::{self, Stream};
use crate::tenant::{Setting, Tenant};
use alloc::vec::Vec;
use weir_arbiter::{CHILD_QUANTUM, Mechanism};
use weir_controller::Cost;
use weir_units::Class;
use weir_workload::math::exp;

/// Who gets how much.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Commands a second of each tenant, in their order.
    pub rates: Vec<f64>,
    /// Arbitration rounds a second; infinite where the drive is not full.
    pub rounds: f64,
    /// Commands in flight, mean.
    pub in_flight: f64,
    /// What the tenants hold of the drive at these rates, 0 to 1.
    pub load: f64,
    /// Seconds that each tenant's commands take inside the drive at this load, mean.
    pub service: Vec<f64>,
    /// Commands that the drive carries out at once at the most, for this blend.
    pub places: f64,
    /// All commands begin and end together: a fixed latency, and closed loops that alone keep every slot busy.
    pub in_step: bool,
}

impl Flow {
    /// Whether the drive has nothing to spare.
    pub fn is_full(&self) -> bool {
        self.rounds.is_finite()
    }
}

/// What everybody gets.
pub fn shares(drive: &Drive, setting: &Setting, tenants: &[Tenant]) -> Flow {
    let mut model = Fluid::new(drive, setting, tenants);
    model.places = f64::from(drive.slots());
    // What fits at once depends on who gets how much, and that on what fits.
    let mut flow = model.solve();
    for _ in 0..4 {
        let places = model.pack(&flow);
        let settled = (places / model.places - 1.0).abs() < 1e-4;
        model.places = places;
        if settled {
            break;
        }
        flow = model.solve();
    }
    flow
}

/// One tenant in the model's terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub class: Class,
    /// What a command of it costs in the arbiter's unit.
    pub unit: f64,
    /// Commands that it is served in a turn among its siblings.
    pub turn: f64,
    /// Commands outstanding at the most.
    pub depth: f64,
    /// Commands a second that it offers, its ceiling included.
    pub offered: f64,
    /// Commands a second that it has in any case.
    pub floor: f64,
    /// a, in seconds.
    pub service: f64,
    /// p; infinite for a fixed latency.
    pub parts: f64,
}

impl Asker {
    fn new(drive: &Drive, setting: &Setting, tenant: &Tenant) -> Asker {
        let demand = &tenant.demand;
        let mechanism = setting.arbiter.mechanism;
        let weighted = tenant.class != Class::Urgent;
        let unit = match (mechanism, setting.cost) {
            (Mechanism::Drr, Cost::Bytes) if demand.pattern.trim => {
                data_cost(tenant, f64::from(demand.pattern.read_percent))
            }
            (Mechanism::Drr, Cost::Bytes) => data_cost(tenant, 100.0),
            (Mechanism::Drr, Cost::Commands) => crate::tenant::LEAST_COST,
            (Mechanism::Drr, Cost::DeviceTime) => drive.device_time(demand),
            _ => 1.0,
        };
        let turn = match mechanism {
            Mechanism::Drr if weighted => f64::from(CHILD_QUANTUM) * f64::from(tenant.weight.max(1)) / unit,
            Mechanism::Wrr if weighted => {
                let credit = setting.credits()[tenant.class as usize - 1];
                setting.visit(credit).min(credit)
            }
            Mechanism::Rr | Mechanism::Wrr => setting.visit(1.0),
            Mechanism::Drr | Mechanism::None => 1.0,
        };
        let size = demand.size();
        let offered = demand.offered().min(tenant.ceiling.ceiling(size));
        Asker {
            class: tenant.class,
            unit,
            turn,
            depth: demand.outstanding(),
            offered,
            floor: tenant.floor.floor(size),
            service: drive.service(demand),
            parts: drive.parts(demand),
        }
    }

    /// l(n): seconds in the drive beside n commands in flight.
    fn time(&self, n: f64) -> f64 {
        self.service * (1.0 + (n - 1.0).max(0.0) / self.parts)
    }

    /// Commands a second if it never waits for its turn.
    fn alone(&self, n: f64) -> f64 {
        self.offered.min(self.depth / self.time(n))
    }
}

/// Mean cost in bytes where commands that do not move data (of 100 `moving` do) cost the least.
fn data_cost(tenant: &Tenant, moving: f64) -> f64 {
    let least = crate::tenant::LEAST_COST;
    let moved: f64 = tenant.demand.parts().map(|(size, part)| part * size.max(least)).sum();
    (moved * moving + least * (100.0 - moving)) / 100.0
}

struct Fluid<'a> {
    drive: &'a Drive,
    tenants: &'a [Tenant],
    askers: Vec<Asker>,
    mechanism: Mechanism,
    credits: [f64; 3],
    places: f64,
}

impl<'a> Fluid<'a> {
    fn new(drive: &'a Drive, setting: &Setting, tenants: &'a [Tenant]) -> Fluid<'a> {
        let askers = tenants.iter().map(|t| Asker::new(drive, setting, t)).collect();
        let mechanism = setting.arbiter.mechanism;
        Fluid { drive, tenants, askers, mechanism, credits: setting.credits(), places: 1.0 }
    }

    /// Commands in flight at once, for what these rates hand out a round.
    fn pack(&self, flow: &Flow) -> f64 {
        let rounds = if flow.is_full() { flow.rounds } else { f64::INFINITY };
        let stream =
            |(tenant, rate): (&'a Tenant, &f64)| Stream { demand: &tenant.demand, rate: *rate, run: *rate / rounds };
        let mut streams: Vec<(Class, Stream<'_>)> =
            self.tenants.iter().zip(&flow.rates).map(|pair| (pair.0.class, stream(pair))).collect();
        streams.sort_by_key(|(class, _)| *class);
        let streams: Vec<Stream<'_>> = streams.into_iter().map(|(_, stream)| stream).collect();
        pack::in_flight(self.drive.slots(), self.drive.slot_bytes(), &streams)
    }

    /// The commands in flight at these rates, if each took as long as beside `n`.
    fn held(&self, rates: &[f64], n: f64) -> f64 {
        self.askers.iter().zip(rates).map(|(a, rate)| rate * a.time(n)).sum()
    }

    /// Closed loops alone keep a drive of fixed latency full: what begins together ends together, for ever.
    fn in_step(&self) -> bool {
        let closed = self.askers.iter().filter(|a| a.offered.is_infinite());
        self.drive.is_fixed() && closed.map(|a| a.depth).sum::<f64>() >= self.places
    }

    fn solve(&self) -> Flow {
        let full = self.places;
        let free = |n: f64| -> Vec<f64> { self.askers.iter().map(|a| a.alone(n)).collect() };
        if self.held(&free(full), full) <= full {
            let n = bisect(0.0, full, |n| self.held(&free(n), n) - n);
            return self.flow(free(n), f64::INFINITY, n);
        }
        let wanted = |log: f64| self.held(&self.rates(exp(log)), full) - full;
        // From a round in a thousand years to one in a tenth of a nanosecond.
        let rounds = exp(-bisect(-24.0, 24.0, |log| wanted(-log)));
        self.flow(self.rates(rounds), rounds, full)
    }

    fn flow(&self, rates: Vec<f64>, rounds: f64, n: f64) -> Flow {
        let service = self.askers.iter().map(|a| a.time(n)).collect();
        let load = (self.held(&rates, n) / self.places).min(1.0);
        Flow { rates, rounds, in_flight: n, load, service, places: self.places, in_step: self.in_step() }
    }

    /// Everybody's commands a second at θ rounds a second on a full drive.
    fn rates(&self, rounds: f64) -> Vec<f64> {
        let mut rates = alloc::vec![0.0; self.askers.len()];
        match self.mechanism {
            Mechanism::None => {
                // First come, first served: everybody waits equally long.
                for (rate, a) in rates.iter_mut().zip(&self.askers) {
                    *rate = a.alone(self.places).min(a.depth * rounds);
                }
            }
            Mechanism::Rr => self.fill(&mut rates, |_| true, (f64::INFINITY, rounds)),
            Mechanism::Wrr | Mechanism::Drr => {
                self.urgent(&mut rates);
                for (class, credit) in Class::WEIGHTED.into_iter().zip(self.credits) {
                    self.fill(&mut rates, |a| a.class == class, (credit, rounds));
                }
            }
        }
        for (rate, a) in rates.iter_mut().zip(&self.askers) {
            *rate = rate.max(a.floor.min(a.alone(self.places)));
        }
        rates
    }

    /// Urgent tenants take what they want, and share equally where that is more than there is.
    fn urgent(&self, rates: &mut [f64]) {
        let urgent = |a: &Asker| a.class == Class::Urgent;
        let held = |rates: &[f64]| self.held(rates, self.places) - self.places;
        let at = |level: f64, rates: &mut [f64]| self.fill(rates, urgent, (f64::INFINITY, level));
        at(f64::INFINITY, rates);
        if held(rates) > 0.0 {
            let mut some = alloc::vec![0.0; rates.len()];
            let log = bisect(-24.0, 24.0, |log| {
                at(exp(-log), &mut some);
                held(&some)
            });
            at(exp(-log), rates);
        }
    }

    /// What the tenants of a ring get that may spend `credit` units a round together, at so many rounds a second.
    fn fill(&self, rates: &mut [f64], within: impl Fn(&Asker) -> bool, (credit, rounds): (f64, f64)) {
        let members: Vec<usize> = (0..self.askers.len()).filter(|i| within(&self.askers[*i])).collect();
        // The most each gets, and how fast it gets more with every turn.
        let terms = |i: &usize| {
            let a = &self.askers[*i];
            let most = a.alone(self.places).min(self.turns(a, credit) * rounds);
            (*i, most, a.turn.min(a.depth))
        };
        let mut members: Vec<(usize, f64, f64)> = members.iter().map(terms).collect();
        members.sort_by(|x, y| (x.1 / x.2).total_cmp(&(y.1 / y.2)));
        if credit.is_infinite() {
            for (i, most, turn) in members {
                rates[i] = most.min(turn * rounds);
            }
            return;
        }
        let mut left = credit * rounds;
        let mut slope: f64 = members.iter().map(|(i, _, turn)| turn * self.askers[*i].unit).sum();
        for (i, most, turn) in members {
            let unit = self.askers[i].unit;
            let rate = most.min(left / slope * turn);
            rates[i] = rate;
            left = (left - rate * unit).max(0.0);
            slope = (slope - turn * unit).max(f64::MIN_POSITIVE);
        }
    }

    /// Commands of a round that a tenant is there to be served with.
    fn turns(&self, asker: &Asker, credit: f64) -> f64 {
        let spends = credit / asker.unit;
        let (depth, places) = (asker.depth, self.places);
        if !self.in_step() || depth >= places || depth >= spends || asker.offered.is_finite() {
            return depth;
        }
        // Its turn may begin in the middle of a window: what was served then is there again in the next.
        let again = |more: f64| spends.min(depth + more);
        let mean = if 2.0 * depth <= spends {
            1.5 * depth
        } else {
            let room = spends - depth;
            (again(room / 2.0) * room + spends * (depth - room)) / depth
        };
        let part = depth / places;
        depth * (1.0 - part) + mean * part
    }
}

/// The zero of a function that falls from `low` to `high`, to the last bits.
pub(crate) fn bisect(mut low: f64, mut high: f64, mut falling: impl FnMut(f64) -> f64) -> f64 {
    for _ in 0..64 {
        let middle = 0.5 * (low + high);
        if falling(middle) > 0.0 { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}
