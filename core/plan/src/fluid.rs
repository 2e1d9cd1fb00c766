//! The fluid model: who gets how many commands a second.
//!
//! The unknown is the number of arbitration rounds a second, θ. At a given θ everybody's rate is known: a class spends at most
//! its credit a round, inside it the tenants share what it spends, and nobody gets more than he asks for. Rates grow with θ, and
//! so does what they hold of the drive; the answer is the θ at which the drive is full. Where it is not full at any θ, everybody
//! gets what he asks for.
//!
//! **The drive's side.** With `n` commands in flight one takes l(n): a fixed latency, or what load tests at that depth say (a
//! flow-equivalent server). By Little's law the commands in flight are Σ xᵢ·lᵢ(n) = n. The drive is full when n is what slots and
//! bytes in flight admit (where sizes differ, `windows.rs` counts it). Where tenants read and write in different proportions, all
//! of their times are longer or shorter by the same part: together they take as long as a load test of the mix that they make.
//! A command of a random open loop finds n others in the drive, one of a closed loop n − 1 (the arrival theorem).
//!
//! **A closed loop** of depth q has q/l(n) at the most, and where it has to wait for its turn q a round, or less: who comes back
//! after its turn has ended waits for the next. On a drive of fixed latency a loop of fewer commands than there are slots is handed out
//! command by command (`windows.rs`).

use crate::drive::{DriveModel, reads};
use crate::tenant::{Demand, PlanTenant, Setting, ceiling, floor};
use crate::windows::{self, Question, Windows};
use alloc::vec::Vec;
use weir_arbiter::{CHILD_QUANTUM, Mechanism};
use weir_controller::Cost;
use weir_units::Class;
use weir_workload::Arrival;
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
    /// The arbiter was asked, command by command, because a closed loop has fewer commands than the drive has slots.
    pub handed_out: bool,
}

impl Flow {
    /// Whether the drive has nothing to spare.
    pub fn is_full(&self) -> bool {
        self.rounds.is_finite()
    }
}

/// What everybody gets.
pub fn shares(drive: &DriveModel, setting: &Setting, tenants: &[PlanTenant]) -> Flow {
    Fluid::new(drive, setting, tenants).shares()
}

/// Commands that are counted where rates and latencies follow from them, and windows where only what fits at once does.
const COMMANDS: u64 = 1 << 18;
const WINDOWS: u64 = 512;
/// Load up to which open loops do not take the slots from others for long enough to matter.
const QUIET: f64 = 0.5;

/// Corrections for the mix that tenants make, and the last of them that matters, as a part.
const MIXINGS: u32 = 12;
const MIXED: f64 = 1e-3;

/// One tenant in the model's terms.
#[derive(Clone, Debug)]
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
    /// Seconds in the drive by the number of commands in flight, straight between these.
    curve: Vec<(f64, f64)>,
    /// Commands that one of its own finds in the drive beside those in flight on average.
    more: f64,
    /// Commands in flight at the most.
    most: f64,
    /// What others with another mix make of its time.
    longer: f64,
}

impl Asker {
    fn new(drive: &DriveModel, setting: &Setting, tenant: &PlanTenant) -> Asker {
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
        let offered = demand.offered().min(ceiling(&tenant.ceiling, size));
        Asker {
            class: tenant.class,
            unit,
            turn,
            depth: demand.outstanding(),
            offered,
            floor: floor(&tenant.floor, size),
            curve: curve(drive, demand, reads(demand)),
            more: if demand.rate.is_some() && demand.arrival != Arrival::Fixed { 1.0 } else { 0.0 },
            most: f64::from(drive.slots()),
            longer: 1.0,
        }
    }

    /// l(n): seconds in the drive with n commands in flight.
    pub fn time(&self, n: f64) -> f64 {
        on_curve(&self.curve, (n + self.more).min(self.most.max(n))) * self.longer
    }

    /// Whether its requests come in a closed loop.
    pub fn is_closed(&self) -> bool {
        self.offered.is_infinite()
    }

    /// Commands a second if it never waits for its turn.
    fn alone(&self, n: f64) -> f64 {
        self.offered.min(self.depth / self.time(n))
    }
}

/// Mean seconds that commands of a demand take, by the number in flight, if `mix` of 100 commands in the drive read.
fn curve(drive: &DriveModel, demand: &Demand, mix: f64) -> Vec<(f64, f64)> {
    let at = |depth: u32| {
        let (n, mixed) = (f64::from(depth), (reads(demand), mix));
        (n, demand.parts().map(|(size, part)| part * drive.cycle_beside(size, mixed, n)).sum())
    };
    drive.depths().into_iter().map(at).collect()
}

/// Straight between the points; before the first its own, beyond the last (but for a single one) as a queue grows.
fn on_curve(curve: &[(f64, f64)], n: f64) -> f64 {
    let after = curve.partition_point(|(at, _)| *at < n);
    match (after, curve) {
        (0, _) | (_, [_]) => curve[0].1,
        (i, _) if i == curve.len() => curve[i - 1].1 * n / curve[i - 1].0,
        (i, _) => {
            let ((from, low), (to, high)) = (curve[i - 1], curve[i]);
            low + (high - low) * (n - from) / (to - from)
        }
    }
}

/// Mean cost in bytes where commands that do not move data (of 100 `moving` do) cost the least.
fn data_cost(tenant: &PlanTenant, moving: f64) -> f64 {
    let least = crate::tenant::LEAST_COST;
    let moved: f64 = tenant.demand.parts().map(|(size, part)| part * size.max(least)).sum();
    (moved * moving + least * (100.0 - moving)) / 100.0
}

pub(crate) struct Fluid<'a> {
    pub drive: &'a DriveModel,
    pub setting: &'a Setting,
    pub tenants: &'a [PlanTenant],
    pub askers: Vec<Asker>,
    pub credits: [f64; 3],
    /// Commands in flight at the most.
    pub places: f64,
}

impl<'a> Fluid<'a> {
    pub fn new(drive: &'a DriveModel, setting: &'a Setting, tenants: &'a [PlanTenant]) -> Fluid<'a> {
        let askers = tenants.iter().map(|t| Asker::new(drive, setting, t)).collect();
        let places = f64::from(drive.slots());
        Fluid { drive, setting, tenants, askers, credits: setting.credits(), places }
    }

    /// Commands a second that a tenant offers, its ceiling included.
    pub fn offered(&self, tenant: usize) -> f64 {
        self.askers[tenant].offered
    }

    pub fn shares(&mut self) -> Flow {
        let sizes = || self.tenants.iter().flat_map(|t| t.demand.sizes.parts()).map(|(size, _)| *size);
        let (least, most) = (sizes().min().unwrap_or(1), sizes().max().unwrap_or(1));
        let bytes_bind = u64::from(most) * u64::from(self.drive.slots()) > self.drive.slot_bytes();
        if bytes_bind && least == most {
            self.places = self.drive.in_flight(f64::from(most));
        }
        let flow = self.solve();
        let mixed = bytes_bind && least < most;
        if self.setting.arbiter.mechanism == Mechanism::None {
            return flow;
        }
        let loops = || self.askers.iter().filter(|a| a.is_closed() && a.depth <= self.places);
        let busy = flow.is_full() || flow.load > QUIET || bytes_bind;
        let shallow = self.drive.is_fixed() && busy && loops().next().is_some();
        if shallow {
            return self.hand_out_shallow(flow);
        }
        if mixed {
            let (_, windows) = self.hand_out(&flow, WINDOWS);
            if windows.full >= 0.5 {
                self.places = windows.in_flight;
                return self.solve();
            }
        }
        flow
    }

    /// Those that never run out get what the arbiter hands out to them.
    fn hand_out_shallow(&mut self, flow: Flow) -> Flow {
        let (greedy, windows) = self.hand_out(&flow, self.enough(&flow));
        let window = self.window(&flow);
        // Bytes in flight may be full where the slots are not: then open loops have a backlog.
        let behind = (0..greedy.len()).any(|i| greedy[i] && !self.askers[i].is_closed());
        let full = (flow.is_full() || behind) && windows.full >= 0.5;
        let mut flow = if full {
            self.places = windows.in_flight;
            self.solve()
        } else {
            flow
        };
        for (i, rate) in flow.rates.iter_mut().enumerate() {
            *rate = if greedy[i] { windows.served[i] / window } else { self.askers[i].offered };
        }
        flow.load = (self.held(&flow.rates, flow.in_flight) / self.places).min(1.0);
        Flow { handed_out: true, ..flow }
    }

    /// Windows that hold enough commands.
    pub fn enough(&self, flow: &Flow) -> u64 {
        (COMMANDS as f64 / flow.in_flight.max(8.0)) as u64
    }

    /// Mean seconds that a command takes in the drive.
    pub fn window(&self, flow: &Flow) -> f64 {
        self.held(&flow.rates, flow.in_flight) / flow.rates.iter().sum::<f64>()
    }

    /// Lets the arbiter hand out commands; also says who of the tenants never runs out of them.
    pub fn hand_out(&self, flow: &Flow, windows: u64) -> (Vec<bool>, Windows) {
        let offered: Vec<f64> = self.askers.iter().map(|a| a.offered).collect();
        // Who asks for next to nothing more shows as late below, if it is.
        let less = |(rate, offered): (&f64, &f64)| *rate < offered * (1.0 - 1e-3);
        let mut greedy: Vec<bool> = flow.rates.iter().zip(&offered).map(less).collect();
        let window = self.window(flow);
        loop {
            let question = Question {
                setting: self.setting,
                tenants: self.tenants,
                offered: &offered,
                greedy: &greedy,
                slots: self.drive.slots(),
                bytes: self.drive.slot_bytes(),
                window,
                windows,
            };
            let answer = windows::run(&question);
            // Who asks for more than fits has a backlog as well.
            let late =
                |i: &usize| !greedy[*i] && answer.waiting[*i] > 32.0 + 0.02 * offered[*i] * window * windows as f64;
            let late: Vec<usize> = (0..offered.len()).filter(late).collect();
            if late.is_empty() {
                return (greedy, answer);
            }
            late.into_iter().for_each(|i| greedy[i] = true);
        }
    }

    /// The commands in flight at these rates, if each took as long as beside `n`.
    pub fn held(&self, rates: &[f64], n: f64) -> f64 {
        self.askers.iter().zip(rates).map(|(a, rate)| rate * a.time(n)).sum()
    }

    /// Closed loops alone keep a drive of fixed latency full: what begins together ends together, for ever.
    fn in_step(&self) -> bool {
        let closed = self.askers.iter().filter(|a| a.offered.is_infinite());
        self.drive.is_fixed() && closed.map(|a| a.depth).sum::<f64>() >= self.places
    }

    /// By the equations alone: what slots and bytes that differ in size do to it is left out.
    pub fn solve(&mut self) -> Flow {
        let mut flow = self.solve_once();
        let mixes = || self.tenants.iter().map(|t| t.demand.pattern.read_percent);
        if mixes().min() == mixes().max() {
            return flow;
        }
        for _ in 0..MIXINGS {
            let mix = self.mix(&flow.rates);
            if self.drive.tells_kinds_apart() {
                let own = self.askers.iter_mut().zip(self.tenants);
                own.for_each(|(asker, tenant)| asker.curve = curve(self.drive, &tenant.demand, mix));
            }
            let (before, longer) = (self.askers[0].longer, self.together(&flow, mix));
            self.askers.iter_mut().for_each(|a| a.longer = longer);
            flow = self.solve_once();
            if (longer / before - 1.0).abs() < MIXED && (self.mix(&flow.rates) - mix).abs() < MIXED * 100.0 {
                break;
            }
        }
        flow
    }

    /// How much longer commands of all tenants take than the means of each say, by load tests of the mix that they make.
    fn together(&self, flow: &Flow, mix: f64) -> f64 {
        let (mut own, mut mixed) = (0.0, 0.0);
        for ((tenant, asker), rate) in self.tenants.iter().zip(&self.askers).zip(&flow.rates) {
            own += rate * asker.time(flow.in_flight) / asker.longer;
            let n = (flow.in_flight + asker.more).min(asker.most);
            let at = |(size, part)| part * self.drive.cycle(size, mix, n);
            mixed += rate * tenant.demand.parts().map(at).sum::<f64>();
        }
        if own > 0.0 { mixed / own } else { 1.0 }
    }

    /// Of 100 commands at these rates so many read.
    pub fn mix(&self, rates: &[f64]) -> f64 {
        let all = rates.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        self.tenants.iter().zip(rates).map(|(t, rate)| reads(&t.demand) * rate).sum::<f64>() / all
    }

    fn solve_once(&self) -> Flow {
        let full = self.places;
        let free = |n: f64| -> Vec<f64> { self.askers.iter().map(|a| a.alone(n)).collect() };
        if self.held(&free(full), full) <= full {
            let n = bisect((0.0, full), 64, |n| self.held(&free(n), n) - n);
            return self.flow(free(n), f64::INFINITY, n);
        }
        let wanted = |log: f64| self.held(&self.rates(exp(log)), full) - full;
        // From a round in a thousand years to one in a tenth of a nanosecond.
        let rounds = exp(-bisect((-24.0, 24.0), 64, |log| wanted(-log)));
        self.flow(self.rates(rounds), rounds, full)
    }

    fn flow(&self, rates: Vec<f64>, rounds: f64, n: f64) -> Flow {
        let service = self.askers.iter().map(|a| a.time(n)).collect();
        let load = (self.held(&rates, n) / self.places).min(1.0);
        Flow {
            rates,
            rounds,
            in_flight: n,
            load,
            service,
            places: self.places,
            in_step: self.in_step(),
            handed_out: false,
        }
    }

    /// Everybody's commands a second at θ rounds a second on a full drive.
    fn rates(&self, rounds: f64) -> Vec<f64> {
        let mut rates = alloc::vec![0.0; self.askers.len()];
        match self.setting.arbiter.mechanism {
            Mechanism::None => {
                // First come, first served: everybody waits equally long.
                for (rate, a) in rates.iter_mut().zip(&self.askers) {
                    *rate = a.alone(self.places).min(a.depth * rounds);
                }
            }
            Mechanism::Rr => self.fill(&mut rates, |a| !self.is_promised(a), (f64::INFINITY, rounds)),
            Mechanism::Wrr | Mechanism::Drr => {
                self.urgent(&mut rates);
                for (class, credit) in Class::WEIGHTED.into_iter().zip(self.credits) {
                    self.fill(&mut rates, |a| a.class == class && !self.is_promised(a), (credit, rounds));
                }
            }
        }
        for (rate, a) in
            rates.iter_mut().zip(&self.askers).filter(|_| self.setting.arbiter.mechanism != Mechanism::None)
        {
            *rate = rate.max(a.floor.min(a.alone(self.places)));
        }
        rates
    }

    /// Whether a floor gives it all that it asks for. What comes by a floor is not charged to the class.
    fn is_promised(&self, asker: &Asker) -> bool {
        asker.floor >= asker.alone(self.places)
    }

    /// Urgent tenants take what they want, and share equally where that is more than there is.
    fn urgent(&self, rates: &mut [f64]) {
        let urgent = |a: &Asker| a.class == Class::Urgent;
        let held = |rates: &[f64]| self.held(rates, self.places) - self.places;
        let at = |level: f64, rates: &mut [f64]| self.fill(rates, urgent, (f64::INFINITY, level));
        at(f64::INFINITY, rates);
        if held(rates) > 0.0 {
            let mut some = alloc::vec![0.0; rates.len()];
            let log = bisect((-24.0, 24.0), 64, |log| {
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

    /// Commands of a round that a tenant is there to be served with: its depth, and what is back before the turn has ended.
    fn turns(&self, asker: &Asker, credit: f64) -> f64 {
        let (depth, places) = (asker.depth, self.places);
        if depth > places || asker.offered.is_finite() {
            return f64::INFINITY;
        }
        // Its class's turn lasts so many windows; what was served in one is there again in the next.
        let own: f64 = self.askers.iter().filter(|a| a.class == asker.class).map(|a| a.depth).sum();
        let spends = (credit / asker.unit).min(own);
        depth * (1.0 + spends / places)
    }
}

/// The zero of a function that falls from `low` to `high`.
pub(crate) fn bisect((mut low, mut high): (f64, f64), steps: u32, mut falling: impl FnMut(f64) -> f64) -> f64 {
    for _ in 0..steps {
        let middle = 0.5 * (low + high);
        if falling(middle) > 0.0 { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}
