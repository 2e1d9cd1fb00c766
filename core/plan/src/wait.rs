//! How long commands wait for a slot where the drive's commands do not begin and end together.

use crate::fluid::{Asker, Flow, Fluid};
use alloc::vec::Vec;
use weir_arbiter::Mechanism;
use weir_units::Class;
use weir_workload::Arrival;
use weir_workload::math::ln;

/// How long commands wait before the drive takes them, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Wait {
    /// Of all commands, whatever the reason.
    pub mean: f64,
    /// Longest time until the tenant has its turn, of which a command waits any part.
    pub turn: f64,
    /// The part of the commands that wait behind others, and how long these do on average; exponentially distributed.
    pub behind: (f64, f64),
}

impl Wait {
    /// That only `1 − part` of the commands exceed.
    pub fn percentile(&self, part: f64) -> f64 {
        let (often, mean) = self.behind;
        let behind = if often > 1.0 - part { mean * ln(often / (1.0 - part)) } else { 0.0 };
        let rest = self.mean - self.turn / 2.0 - often * mean;
        (rest + self.turn * part + behind).max(0.0)
    }
}

impl Fluid<'_> {
    /// How long each tenant's commands wait for a slot.
    pub fn waits(&self, flow: &Flow) -> Vec<Wait> {
        if flow.is_full() { self.turn_waits(flow) } else { self.slot_waits(flow) }
    }

    /// Commands of each tenant that the drive holds.
    fn each_held(&self, flow: &Flow) -> Vec<f64> {
        self.askers.iter().zip(&flow.rates).map(|(a, rate)| rate * a.time(flow.in_flight)).collect()
    }

    /// On a drive that is not full: closed loops hold their slots, and what open loops send finds one of the others free or
    /// waits, as in a queue of several servers (Erlang's C). Regular arrivals and service times wait less, by half the sum of
    /// the squared coefficients of variation (Allen and Cunneen). While there is a backlog it is worked off by rounds: who has a
    /// light class, or asks for much of what is guaranteed to him, waits longer; nobody is taken to wait less than the mean.
    fn slot_waits(&self, flow: &Flow) -> Vec<Wait> {
        let held = self.each_held(flow);
        let sum = |of: &dyn Fn(usize) -> bool| -> f64 { (0..held.len()).filter(|i| of(*i)).map(|i| held[i]).sum() };
        let closed = sum(&|i| self.askers[i].is_closed());
        let open = sum(&|i| !self.askers[i].is_closed());
        let random = sum(&|i| !self.askers[i].is_closed() && self.tenants[i].demand.arrival != Arrival::Fixed);
        let slots = ((self.places - closed).max(1.0), open);
        let (servers, load) = match self.byte_servers(flow) {
            Some(bytes) if bytes.1 / bytes.0 > slots.1 / slots.0 => bytes,
            _ => slots,
        };
        if open <= 0.0 || load >= servers {
            return alloc::vec![Wait::default(); held.len()];
        }
        let often = erlang_c(servers as u32, load);
        // Times inside a measured drive vary about as much as their mean.
        let varies = if self.drive.is_fixed() { 0.0 } else { 1.0 };
        let behind = self.window(flow) / (servers - load) * 0.5 * (random / open + varies) * 1e9;
        let asked: Vec<f64> = self.askers.iter().zip(&flow.rates).map(|(a, rate)| self.asked(a, *rate)).collect();
        let mean = asked.iter().zip(&flow.rates).map(|(asked, rate)| asked * rate).sum::<f64>()
            / flow.rates.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let credits: f64 = self.credits.iter().sum();
        let wait = |(asked, a): (&f64, &Asker)| {
            let class = (a.class as usize).checked_sub(1).map_or(1.0, |c| 2.0 - self.credits[c] / credits);
            let behind = behind * (asked / mean.max(f64::MIN_POSITIVE)).clamp(1.0, 4.0) * class;
            Wait { mean: often * behind, turn: 0.0, behind: (often, behind) }
        };
        asked.iter().zip(&self.askers).map(wait).collect()
    }

    /// Where bytes in flight may bind: the drive as servers that each hold a command of the size that matters (the mean square
    /// over the mean), and how many of them are busy. A command has to fit as a whole.
    fn byte_servers(&self, flow: &Flow) -> Option<(f64, f64)> {
        let (mut first, mut second, mut largest) = (0.0, 0.0, 0.0f64);
        for (tenant, held) in self.tenants.iter().zip(self.each_held(flow)) {
            for (size, part) in tenant.demand.parts() {
                (first, second) = (first + held * part * size, second + held * part * size * size);
                largest = largest.max(size);
            }
        }
        let bytes = self.drive.slot_bytes() as f64;
        if largest * f64::from(self.drive.slots()) <= bytes || first <= 0.0 {
            return None;
        }
        let size = second / first;
        Some((((bytes - (largest - size).max(0.0)) / size).max(1.0), first / size))
    }

    /// The units a second that a tenant asks for, over what its class's credit gives it: a measure, not a part of 1.
    fn asked(&self, asker: &Asker, rate: f64) -> f64 {
        if matches!(self.setting.arbiter.mechanism, Mechanism::Rr | Mechanism::None) {
            return 1.0;
        }
        let Some(class) = (asker.class as usize).checked_sub(1) else { return 0.0 };
        rate * asker.unit / self.credit_of(asker, class)
    }

    /// The part of its class's credit that a tenant may spend a round beside its siblings.
    fn credit_of(&self, asker: &Asker, class: usize) -> f64 {
        let turn = |a: &Asker| a.turn * a.unit;
        let siblings: f64 = self.askers.iter().filter(|a| a.class == asker.class).map(turn).sum();
        self.credits[class] * turn(asker) / siblings
    }

    /// On a full drive who asks for less than his share waits for his turn, any part of the round in which the others are served,
    /// and behind what his own queue holds: arrivals of a round over what he may be served in one.
    fn turn_waits(&self, flow: &Flow) -> Vec<Wait> {
        let slot = self.window(flow) / self.places;
        let held = self.each_held(flow);
        let all: f64 = held.iter().sum();
        let wait = |(asker, rate): (&Asker, &f64)| {
            let urgent = asker.class == Class::Urgent;
            let Some(class) = (asker.class as usize).checked_sub(1).filter(|_| !urgent) else {
                return Wait { mean: slot * 0.5e9, turn: slot * 1e9, behind: (0.0, 0.0) };
            };
            let class_of = self.askers.iter().zip(&held).filter(|(a, _)| a.class == asker.class);
            let own: f64 = class_of.map(|(_, held)| held).sum();
            let turn = (1.0 - own / all).max(0.0) / flow.rounds + slot;
            let spends = self.credit_of(asker, class) / asker.unit;
            let part = (rate / (spends * flow.rounds)).min(0.99);
            let behind = part * part / (2.0 * (1.0 - part)) / (spends * flow.rounds);
            Wait { mean: (turn / 2.0 + behind) * 1e9, turn: turn * 1e9, behind: (part, behind / part.max(1e-9) * 1e9) }
        };
        self.askers.iter().zip(&flow.rates).map(wait).collect()
    }
}

/// Erlang's C: the part of the arrivals that wait where `load` of so many servers are busy on average.
fn erlang_c(servers: u32, load: f64) -> f64 {
    let blocked = (1..=servers).fold(1.0, |b, k| load * b / (f64::from(k) + load * b));
    let busy = load / f64::from(servers.max(1));
    if busy >= 1.0 { 1.0 } else { blocked / (1.0 - busy * (1.0 - blocked)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erlang_s_table() {
        // Two servers of which one is busy: 1/3. One server: its load.
        assert!((erlang_c(2, 1.0) - 1.0 / 3.0).abs() < 1e-12);
        assert!((erlang_c(1, 0.7) - 0.7).abs() < 1e-12);
        assert_eq!(erlang_c(4, 4.0), 1.0);
        assert!(erlang_c(64, 32.0) < 1e-6);
    }

    #[test]
    fn a_wait_s_percentiles_rise_to_its_tail() {
        let wait = Wait { mean: 60.0, turn: 100.0, behind: (0.1, 100.0) };
        let at = [0.5, 0.9, 0.99, 0.999].map(|part| wait.percentile(part));
        assert!(at.is_sorted() && at[0] == 50.0, "{at:?}");
        assert!((at[2] - (99.0 + 100.0 * ln(10.0))).abs() < 1e-9, "{at:?}");
    }
}
