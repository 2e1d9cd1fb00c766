//! Who shares the drive, and what they ask for.

use alloc::string::String;
use weir_arbiter::{ArbiterSettings, Burst, Mechanism};
use weir_controller::Cost;
use weir_units::{Class, Rates};
use weir_workload::{Arrival, Job, Mix, Pattern, Rate};

/// What a command without data, and a small one, costs in bytes; as the controller has it.
pub(crate) const LEAST_COST: f64 = 4096.0;

/// How a drive arbitrates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Mechanism, weights or quanta.
    pub arbiter: ArbiterSettings,
    /// What a command costs under DRR.
    pub cost: Cost,
}

impl Setting {
    /// The mechanism with its defaults, charged by bytes.
    pub const fn new(mechanism: Mechanism) -> Setting {
        Setting { arbiter: ArbiterSettings::new(mechanism), cost: Cost::Bytes }
    }

    /// What high, medium and low may spend a round: bytes under DRR, commands under WRR; all the same where classes do not count.
    pub fn credits(&self) -> [f64; 3] {
        let (w, q) = (self.arbiter.weights, self.arbiter.quanta);
        match self.arbiter.mechanism {
            Mechanism::Drr => [q.high, q.medium, q.low].map(|q| f64::from(q.max(512))),
            Mechanism::Wrr => [w.high, w.medium, w.low].map(|w| f64::from(w.clamp(1, 256))),
            Mechanism::Rr | Mechanism::None => [1.0; 3],
        }
    }

    /// Commands a visit, where commands are counted.
    pub(crate) fn visit(&self, no_limit: f64) -> f64 {
        match self.arbiter.burst {
            Burst::NoLimit => no_limit,
            burst => f64::from(1u32 << burst.bits()),
        }
    }
}

/// Commands a second at which a ceiling binds, for commands of so many bytes; infinite without one.
pub(crate) fn ceiling(rates: &Rates, size: f64) -> f64 {
    let bandwidth = rates.bandwidth.map_or(f64::INFINITY, |b| b.get() as f64 / size);
    rates.iops.map_or(f64::INFINITY, |n| n as f64).min(bandwidth)
}

/// Commands a second that a floor promises, for commands of so many bytes; 0 without one.
pub(crate) fn floor(rates: &Rates, size: f64) -> f64 {
    let bandwidth = rates.bandwidth.map_or(0.0, |b| b.get() as f64 / size);
    rates.iops.map_or(0.0, |n| n as f64).max(bandwidth)
}

/// What a tenant asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Reads and writes.
    pub pattern: Pattern,
    /// Sizes.
    pub sizes: Mix,
    /// Queues, each of `depth`, and of `rate` in an open loop.
    pub queues: u32,
    /// Commands outstanding, of each queue; in an open loop the most.
    pub depth: u32,
    /// Open loop, of each queue; closed loop if absent.
    pub rate: Option<Rate>,
    /// How an open loop's requests are spaced.
    pub arrival: Arrival,
}

impl Demand {
    /// What a job asks for while it runs.
    pub fn of(job: &Job) -> Demand {
        Demand {
            pattern: job.pattern,
            sizes: job.sizes.clone(),
            queues: job.copies,
            depth: job.depth,
            rate: job.rate,
            arrival: job.arrival,
        }
    }

    /// Sizes in bytes with their parts, which sum to 1.
    pub fn parts(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.sizes.parts().iter().map(|(size, share)| (f64::from(*size), f64::from(*share) / 100.0))
    }

    /// Mean size of a command, in bytes.
    pub fn size(&self) -> f64 {
        self.parts().map(|(size, part)| size * part).sum()
    }

    /// Commands a second that it offers; infinite in a closed loop.
    pub fn offered(&self) -> f64 {
        let queues = f64::from(self.queues.max(1));
        match self.rate {
            None => f64::INFINITY,
            Some(Rate::Iops(n)) => n as f64 * queues,
            Some(Rate::Bandwidth(n)) => n as f64 * queues / self.size(),
        }
    }

    /// Commands outstanding at the most.
    pub fn outstanding(&self) -> f64 {
        f64::from(self.queues.max(1)) * f64::from(self.depth.max(1))
    }
}

/// Somebody who shares the drive.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanTenant {
    /// For people.
    pub name: String,
    /// Of all its queues.
    pub class: Class,
    /// Beside tenants of its class, where bytes are counted; at least 1.
    pub weight: u16,
    /// What it asks for.
    pub demand: Demand,
    /// What it has whatever its class gets.
    pub floor: Rates,
    /// What it never exceeds.
    pub ceiling: Rates,
}

impl PlanTenant {
    /// Of weight 1, without floor and ceiling.
    pub fn new(name: &str, class: Class, demand: Demand) -> PlanTenant {
        PlanTenant {
            name: String::from(name),
            class,
            weight: 1,
            demand,
            floor: Rates::default(),
            ceiling: Rates::default(),
        }
    }
}
