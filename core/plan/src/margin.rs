//! What an answer of the model may be off by.
//!
//! ```text
//!   what was measured, what is asked for ─▶ Kind of answer ─▶ Margin of rates and times
//!   distribution of the latencies ─ how far is it to the next percentiles? ─▶ more for a percentile beside a gap
//! ```
//! `docs/reference/plan-model.md` has the errors that were measured, and how many of the answers lie within these margins.

use crate::drive::{DriveModel, reads};
use crate::fluid::Flow;
use crate::tenant::PlanTenant;
use weir_workload::Latency;

/// By how much a figure may be off: 0.03 where what comes out lies between the figure over 1.03 and 1.03 times the figure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Margin {
    /// Of rates.
    pub rate: f64,
    /// Of the median.
    pub p50: f64,
    /// Of the 99th percentile.
    pub p99: f64,
    /// Of the 99.9th percentile.
    pub p999: f64,
}

/// What an answer rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rests {
    /// Load tests of that size and mix, or a fixed latency.
    Measured,
    /// Load tests of that size and mix at other depths.
    BetweenDepths,
    /// Load tests of other mixes of the size, which told reads and writes apart.
    BetweenMixes,
    /// The same, where tenants of different mixes meet.
    KindsMeet,
    /// Load tests of other sizes.
    BetweenSizes,
    /// Load tests of other mixes, which did not, or of which none with reads had as few as are asked for.
    Unknown,
}

impl Rests {
    /// Margins of rates and of times; and how wrong the part of the commands may be that a time is not exceeded by, of those that a
    /// percentile leaves (half of them, 1 %, 0.1 %).
    const fn margins(self) -> (f64, f64, f64) {
        match self {
            Rests::Measured => (0.03, 0.15, 0.02),
            Rests::BetweenDepths => (0.05, 0.2, 0.05),
            Rests::BetweenMixes => (0.09, 0.2, 0.1),
            Rests::KindsMeet => (0.15, 0.2, 0.1),
            Rests::BetweenSizes => (0.15, 0.5, 0.15),
            Rests::Unknown => (0.35, 1.0, 0.0),
        }
    }
}

impl Margin {
    /// Of what is said of a tenant whose commands take that long inside, beside the others.
    pub(crate) fn of(
        drive: &DriveModel,
        tenants: &[PlanTenant],
        own: &PlanTenant,
        (flow, mix): (&Flow, f64),
        inside: &Latency,
    ) -> Self {
        let (rate, time, part) = rests(drive, tenants, (flow.in_flight, mix)).margins();
        let at = |beyond: f64, ns: u64| {
            let far = |percentile: f64| {
                let each = own.demand.parts().filter_map(|(size, _)| {
                    drive.quantile_beside(size, (reads(&own.demand), mix), flow.in_flight, percentile)
                });
                each.map(|q| apart(q, ns as f64)).fold(0.0, f64::max)
            };
            let alone = own.demand.sizes.parts().len() == 1;
            let gap = far(1.0 - beyond * (1.0 + part)).max(far(1.0 - beyond * (1.0 - part)));
            if alone && part > 0.0 { time.max(gap) } else { time }
        };
        let Latency { p50, p99, p999, .. } = *inside;
        Margin { rate, p50: at(0.5, p50), p99: at(0.01, p99), p999: at(0.001, p999) }
    }

    /// The larger of both, each.
    pub fn most(&self, other: &Margin) -> Margin {
        Margin {
            rate: self.rate.max(other.rate),
            p50: self.p50.max(other.p50),
            p99: self.p99.max(other.p99),
            p999: self.p999.max(other.p999),
        }
    }

    /// The largest of those of times.
    pub fn time(&self) -> f64 {
        self.p50.max(self.p99).max(self.p999)
    }
}

/// By which part of the smaller the larger is more.
fn apart(a: f64, b: f64) -> f64 {
    a.max(b) / a.min(b).max(1.0) - 1.0
}

fn rests(drive: &DriveModel, tenants: &[PlanTenant], (depth, mix_made): (f64, f64)) -> Rests {
    let demands = || tenants.iter().map(|t| &t.demand);
    let kinds = || demands().flat_map(|d| d.sizes.parts().iter().map(|(size, _)| (*size, d.pattern.read_percent)));
    let (sizes, mixes) = (|| kinds().map(|k| k.0), || kinds().map(|k| k.1));
    if drive.is_fixed() {
        return Rests::Measured;
    }
    let is_known = kinds().all(|(size, reads)| drive.has_measured(size, reads));
    let is_one_mix = mixes().min() == mixes().max();
    let mix = if is_one_mix && is_known {
        let is_tested = kinds().all(|(size, reads)| drive.has_tested(size.into(), reads.into(), depth));
        if is_tested { Rests::Measured } else { Rests::BetweenDepths }
    } else if drive.tells_kinds_apart() && mix_made >= drive.least_mixed() {
        if is_one_mix { Rests::BetweenMixes } else { Rests::KindsMeet }
    } else {
        Rests::Unknown
    };
    let is_one_size = sizes().min() == sizes().max() && sizes().all(|size| drive.has_size(size));
    if is_one_size { mix } else { mix.max(Rests::BetweenSizes) }
}
