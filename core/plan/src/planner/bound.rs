//! What a tenant was promised, one bound at a time, and how far what it gets is from it.

use crate::{Demand, Expected, Margin};
use alloc::vec::Vec;
use core::fmt;
use weir_units::{Bytes, Nanos, Sla};
use weir_workload::Latency;

/// What a tenant gets, predicted or simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Got {
    /// Commands a second.
    pub iops: f64,
    /// Bytes a second.
    pub bandwidth: f64,
    /// Latencies, in nanoseconds; `None`: they grow without bound, as an open loop's do that asks for more than it gets.
    pub latency: Option<Latency>,
    /// It is an open loop that gets all that it asks for: no share could give it more.
    pub sated: bool,
    /// What its figures may be off by, as parts of them: the model's own, or what simulations vary by.
    pub margin: Margin,
}

impl Got {
    /// What the model expects of a tenant's demand.
    pub fn expected(from: &Expected, demand: &Demand) -> Got {
        let sated = demand.rate.is_some() && !from.limited;
        Got { iops: from.iops, bandwidth: from.bandwidth, latency: from.latency, sated, margin: from.margin }
    }
}

/// One bound of an SLA.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SlaBound {
    /// So many commands a second at least.
    Iops(u64),
    /// So many bytes a second at least.
    Bandwidth(Bytes),
    /// Half of the commands take no longer.
    P50(Nanos),
    /// 99 % of the commands take no longer.
    P99(Nanos),
    /// 99.9 % of the commands take no longer.
    P999(Nanos),
}

/// How near a bound a ratio can be; farther away all is alike.
const LEAST: f64 = 1.0 / 16.0;
/// The room of a sated tenant's rate: more than any margin asks for.
const SATED: f64 = 1.25;

impl SlaBound {
    /// The bounds of an SLA: rates first, as they are written.
    pub fn of(sla: &Sla) -> impl Iterator<Item = SlaBound> + use<> {
        let rates = [sla.rates.iops.map(SlaBound::Iops), sla.rates.bandwidth.map(SlaBound::Bandwidth)];
        let times = [sla.p50.map(SlaBound::P50), sla.p99.map(SlaBound::P99), sla.p999.map(SlaBound::P999)];
        rates.into_iter().chain(times).flatten()
    }

    /// As files and JSON name it.
    pub const fn name(&self) -> &'static str {
        match self {
            SlaBound::Iops(_) => "iops",
            SlaBound::Bandwidth(_) => "bandwidth",
            SlaBound::P50(_) => "p50",
            SlaBound::P99(_) => "p99",
            SlaBound::P999(_) => "p999",
        }
    }

    /// Whether it bounds a time rather than a rate.
    pub const fn is_time(&self) -> bool {
        matches!(self, SlaBound::P50(_) | SlaBound::P99(_) | SlaBound::P999(_))
    }

    /// The bound: commands a second, bytes a second or nanoseconds.
    pub fn value(&self) -> f64 {
        match self {
            SlaBound::Iops(n) => *n as f64,
            SlaBound::Bandwidth(bytes) => bytes.get() as f64,
            SlaBound::P50(t) | SlaBound::P99(t) | SlaBound::P999(t) => t.get() as f64,
        }
    }

    /// What stands against it, in the same unit; `None` for a latency without bound.
    pub fn figure(&self, got: &Got) -> Option<f64> {
        let latency = got.latency.as_ref();
        match self {
            SlaBound::Iops(_) => Some(got.iops),
            SlaBound::Bandwidth(_) => Some(got.bandwidth),
            SlaBound::P50(_) => latency.map(|l| l.p50 as f64),
            SlaBound::P99(_) => latency.map(|l| l.p99 as f64),
            SlaBound::P999(_) => latency.map(|l| l.p999 as f64),
        }
    }

    /// Room: 1 where the bound is just met, 1.05 with 5 % to spare, below 1 where it is missed. What is promised of a rate to who
    /// asks for less is kept by giving all that is asked for.
    pub fn room(&self, got: &Got) -> f64 {
        let Some(figure) = self.figure(got) else { return LEAST };
        let room = if self.is_time() { self.value() / figure.max(1.0) } else { figure / self.value().max(1e-9) };
        let least = if got.sated && !self.is_time() { SATED } else { LEAST };
        room.max(least)
    }
}

impl fmt::Display for SlaBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlaBound::Iops(n) => write!(f, "{n} IOPS"),
            SlaBound::Bandwidth(bytes) => write!(f, "bandwidth of {bytes}/s"),
            SlaBound::P50(t) | SlaBound::P99(t) | SlaBound::P999(t) => write!(f, "{} of {t}", self.name()),
        }
    }
}

/// A bound that is missed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unmet {
    /// The tenant's place.
    pub tenant: usize,
    /// Which of its bounds.
    pub bound: SlaBound,
    /// What stands against it, in the bound's unit; `None`: a latency that grows without bound.
    pub got: Option<f64>,
}

impl Unmet {
    /// How far beyond the bound, as a part of it: 0.2 is 20 % too slow or too long. Infinite without figure.
    pub fn by(&self) -> f64 {
        let value = self.bound.value();
        self.got.map_or(f64::INFINITY, |got| if self.bound.is_time() { got / value - 1.0 } else { 1.0 - got / value })
    }
}

/// The tenant's least room over its bounds; `None` without any.
pub fn room(sla: &Sla, got: &Got) -> Option<f64> {
    SlaBound::of(sla).map(|bound| bound.room(got)).reduce(f64::min)
}

/// Every bound that has less room than `least`, in the tenants' order.
pub fn unmet<'a>(slas: impl Iterator<Item = &'a Sla>, got: &[Got], least: f64) -> Vec<Unmet> {
    let of = |(tenant, (sla, got)): (usize, (&Sla, &Got))| {
        let (got, missed) = (*got, move |bound: &SlaBound, got: &Got| bound.room(got) < least);
        let one = move |bound: SlaBound| Unmet { tenant, bound, got: bound.figure(&got) };
        SlaBound::of(sla).filter(|bound| missed(bound, &got)).map(one).collect::<Vec<_>>()
    };
    slas.zip(got).enumerate().flat_map(of).collect()
}
