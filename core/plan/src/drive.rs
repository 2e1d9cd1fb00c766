//! What a drive delivers.

use crate::calibrate::LoadCurve;
use crate::interpolate::Towards;
use crate::tenant::{Demand, LEAST_COST};
use crate::{interpolate, mixed};
use alloc::vec::Vec;
use core::fmt;
use weir_units::Nanos;
use weir_workload::{ByKind, Latency, quantile};

/// Points that make no drive; the message is what the user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveError {
    /// No points.
    Empty,
    /// Two points of the same size and mix: the second's place.
    Twice(usize),
}

impl fmt::Display for DriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriveError::Empty => f.write_str("a drive needs at least one measured point"),
            DriveError::Twice(at) => write!(f, "point {}: its size and mix stand twice", at + 1),
        }
    }
}

impl core::error::Error for DriveError {}

/// How long commands take inside.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ServiceTime {
    /// Every command the same, in seconds; the slots are all that limits.
    Fixed(f64),
    /// As measured, ordered by mix and then by size.
    Measured(Vec<LoadCurve>),
}

/// What a drive delivers: plain data, from its configuration or from a calibration.
///
/// **Units**: seconds, bytes, commands a second. A measured drive is a server whose speed depends on how many commands are inside
/// (a flow-equivalent server: Chandy, Herzog and Woo, "Parametric Analysis of Queuing Networks", 1975): the time that a command
/// takes beside n others is what the load tests say. Between depths and between sizes that time lies on monotone cubics (`interpolate.rs`), between mixes by the writes a second (`mixed.rs`) where the tests told reads and writes apart; below
/// the smallest size it is the smallest's, above the largest it grows with the size, and beyond the deepest test with the
/// depth. At most `slots` commands and `slot_bytes` bytes are in flight.
#[derive(Clone, Debug, PartialEq)]
pub struct DriveModel {
    pub(crate) timing: ServiceTime,
    pub(crate) slots: u32,
    pub(crate) slot_bytes: u64,
}

impl DriveModel {
    /// A drive on which every command takes `latency` (at least 1 ns) and `slots` are carried out at once: `kind = "null"` or
    /// `"ram"` with a latency.
    pub fn fixed(latency: Nanos, slots: u32, slot_bytes: u64) -> DriveModel {
        let seconds = latency.0.max(1) as f64 * 1e-9;
        DriveModel { timing: ServiceTime::Fixed(seconds), slots: slots.max(1), slot_bytes: slot_bytes.max(1) }
    }

    /// A drive of measured points. `slots` and `slot_bytes` are the arbiter's in front of it.
    ///
    /// # Errors
    /// No point, or one that stands twice.
    pub fn measured(points: Vec<LoadCurve>, slots: u32, slot_bytes: u64) -> Result<DriveModel, DriveError> {
        let key = |p: &LoadCurve| (p.read_percent(), p.size());
        if let Some(at) = (1..points.len()).find(|at| points[..*at].iter().any(|p| key(p) == key(&points[*at]))) {
            return Err(DriveError::Twice(at));
        }
        if points.is_empty() {
            return Err(DriveError::Empty);
        }
        let mut points = mixed::filled(points);
        points.sort_by_key(key);
        Ok(DriveModel { timing: ServiceTime::Measured(points), slots: slots.max(1), slot_bytes: slot_bytes.max(1) })
    }

    /// Commands in flight at once.
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// Bytes in flight at once.
    pub const fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// Seconds of the drive that a command takes with all slots busy: 1/γ.
    pub fn seconds_per_command(&self, size: f64, read_percent: f64) -> f64 {
        let most = self.in_flight(size);
        self.cycle(size, read_percent, most) / most
    }

    /// Seconds from one command of a closed loop to its next with `depth` commands like it in flight (at least 1): depth over
    /// throughput.
    pub fn cycle(&self, size: f64, read_percent: f64, depth: f64) -> f64 {
        match &self.timing {
            ServiceTime::Fixed(latency) => *latency,
            ServiceTime::Measured(points) => {
                between_mixes(points, read_percent, |points| beyond_sizes(points, size, |p| p.cycle(depth)))
            }
        }
    }

    /// Commands of one size in flight at the most: slots, and as many as `slot_bytes` hold; one that is larger runs alone.
    pub fn in_flight(&self, size: f64) -> f64 {
        let fit = ((self.slot_bytes as f64 / size) as u64).max(1);
        fit.min(u64::from(self.slots)) as f64
    }

    /// γ for a demand alone on the drive, in commands a second.
    pub fn capacity(&self, demand: &Demand) -> f64 {
        1.0 / self.cost(demand)
    }

    /// Mean seconds of the drive that a command of a demand takes.
    pub fn cost(&self, demand: &Demand) -> f64 {
        let reads = reads(demand);
        demand.parts().map(|(size, part)| part * self.seconds_per_command(size, reads)).sum()
    }

    /// Latency of a command alone on the drive, in nanoseconds; its mean is a.
    pub fn idle(&self, size: f64, read_percent: f64) -> Latency {
        self.latency(size, read_percent, 1.0)
    }

    /// Latency of a command with `depth` commands like it in flight (at least 1), itself included, in nanoseconds.
    pub fn latency(&self, size: f64, read_percent: f64, depth: f64) -> Latency {
        match &self.timing {
            ServiceTime::Fixed(latency) => {
                let ns = latency * 1e9;
                Latency { mean: ns, p50: ns as u64, p99: ns as u64, p999: ns as u64, max: ns as u64 }
            }
            ServiceTime::Measured(points) => latency_of(points, size, read_percent, depth),
        }
    }

    /// Latency of a command with `depth` commands in flight of which `mix` of 100 read, if of such commands `reads` of 100 read
    /// themselves: where load tests told reads and writes apart, of those kinds in that mix; else of a stream of its own mix.
    pub fn latency_beside(&self, size: f64, (reads, mix): (f64, f64), depth: f64) -> Latency {
        let ServiceTime::Measured(points) = &self.timing else { return self.latency(size, reads, depth) };
        if reads == mix && self.has_tested(size, mix, depth) {
            return self.latency(size, reads, depth);
        }
        let Some(shares) = kinds(points, size, mix, depth).shares(reads) else {
            return self.latency(size, reads, depth);
        };
        let at = |part: f64| quantile(&shares, part);
        let mean = shares.iter().map(|(share, q)| share * q.mean).sum();
        Latency { mean, p50: at(0.5) as u64, p99: at(0.99) as u64, p999: at(0.999) as u64, max: at(1.0) as u64 }
    }

    /// That many nanoseconds such a command takes at the most in that part of all cases; `None` where kinds were not told apart.
    pub(crate) fn quantile_beside(&self, size: f64, (reads, mix): (f64, f64), depth: f64, part: f64) -> Option<f64> {
        let ServiceTime::Measured(points) = &self.timing else { return None };
        Some(quantile(&kinds(points, size, mix, depth).shares(reads)?, part))
    }

    /// As [`cycle`](Self::cycle), of such a command in such a mix.
    pub fn cycle_beside(&self, size: f64, (reads, mix): (f64, f64), depth: f64) -> f64 {
        let ServiceTime::Measured(points) = &self.timing else { return self.cycle(size, reads, depth) };
        let [r, w] = between_mixes(points, mix, |points| between_sizes(points, size, |p| p.means(depth)));
        let mean = |reads: f64| match reads {
            100.0 => r,
            0.0 => w,
            reads => r.zip(w).map(|(r, w)| (r * reads + w * (100.0 - reads)) / 100.0),
        };
        match mean(reads).zip(mean(mix)) {
            Some((own, all)) if reads != mix => self.cycle(size, mix, depth) * own / all,
            _ => self.cycle(size, reads, depth),
        }
    }

    /// Whether load tests told reads and writes apart, some of them with both.
    pub(crate) fn tells_kinds_apart(&self) -> bool {
        let ServiceTime::Measured(points) = &self.timing else { return false };
        let is_mixed = points.iter().any(|p| (1..100).contains(&p.read_percent()));
        is_mixed && points.iter().flat_map(LoadCurve::tests).all(|t| t.kinds != ByKind::default())
    }

    /// Of the measured mixes the one with the fewest reads that has any.
    pub(crate) fn least_mixed(&self) -> f64 {
        let ServiceTime::Measured(points) = &self.timing else { return 0.0 };
        let mixes = points.iter().filter(|p| !p.is_derived() && p.read_percent() > 0);
        mixes.map(|p| f64::from(p.read_percent())).fold(100.0, f64::min)
    }

    /// Whether a load test of just that is among the points.
    pub(crate) fn has_tested(&self, size: f64, mix: f64, depth: f64) -> bool {
        let ServiceTime::Measured(points) = &self.timing else { return true };
        let same = |p: &&LoadCurve| (f64::from(p.size()), f64::from(p.read_percent())) == (size, mix);
        points.iter().find(same).is_some_and(|p| !p.is_derived() && p.has_tested(depth))
    }

    /// Mean latency of a demand's commands alone on the drive, in seconds: a.
    pub fn service(&self, demand: &Demand) -> f64 {
        let reads = reads(demand);
        demand.parts().map(|(size, part)| part * self.idle(size, reads).mean * 1e-9).sum()
    }

    /// p: commands that the drive carries out at once at saturation, γ·a (Little's law).
    pub fn parallelism(&self, size: f64, read_percent: f64) -> f64 {
        self.idle(size, read_percent).mean * 1e-9 / self.seconds_per_command(size, read_percent)
    }

    /// Depths at which anything was measured, ascending; 1 alone for a fixed latency.
    pub(crate) fn depths(&self) -> Vec<u32> {
        let mut depths: Vec<u32> = match &self.timing {
            ServiceTime::Fixed(_) => alloc::vec![1],
            ServiceTime::Measured(points) => points.iter().flat_map(LoadCurve::tests).map(|t| t.depth).collect(),
        };
        depths.sort_unstable();
        depths.dedup();
        depths
    }

    /// Whether load tests of this size and this mix are among the points; a fixed latency is the same for all.
    pub fn has_measured(&self, size: u32, read_percent: u8) -> bool {
        match &self.timing {
            ServiceTime::Fixed(_) => true,
            ServiceTime::Measured(points) => {
                points.iter().any(|p| !p.is_derived() && (p.size(), p.read_percent()) == (size, read_percent))
            }
        }
    }

    /// Whether such commands lie between what was measured, in size and in mix; beyond that the drive's times are a guess.
    pub fn covers(&self, size: f64, read_percent: f64) -> bool {
        let ServiceTime::Measured(points) = &self.timing else { return true };
        let lies_within = |value: f64, of: fn(&LoadCurve) -> f64| {
            let all = || points.iter().filter(|point| !point.is_derived()).map(of);
            all().any(|measured| measured <= value) && all().any(|measured| measured >= value)
        };
        lies_within(size, |point| point.size().into()) && lies_within(read_percent, |point| point.read_percent().into())
    }

    /// Whether any load test had that size.
    pub(crate) fn has_size(&self, size: u32) -> bool {
        match &self.timing {
            ServiceTime::Fixed(_) => true,
            ServiceTime::Measured(points) => points.iter().any(|p| p.size() == size),
        }
    }

    pub(crate) const fn is_fixed(&self) -> bool {
        matches!(self.timing, ServiceTime::Fixed(_))
    }

    /// What a command of a demand costs by device time, in bytes: those that the drive could read meanwhile.
    pub(crate) fn device_time(&self, demand: &Demand) -> f64 {
        let ServiceTime::Measured(points) = &self.timing else {
            return demand.parts().map(|(size, part)| part * size.max(LEAST_COST)).sum();
        };
        let best = points.iter().map(LoadCurve::bandwidth).fold(0.0, f64::max);
        (self.cost(demand) * best).max(LEAST_COST)
    }
}

/// Percent of a demand's commands that read.
pub(crate) fn reads(demand: &Demand) -> f64 {
    f64::from(demand.pattern.read_percent)
}

/// Looks at the mixes on both sides of `read_percent` and interpolates.
fn between_mixes<T: Towards>(points: &[LoadCurve], read_percent: f64, at: impl Fn(&[LoadCurve]) -> T) -> T {
    let mut below: &[LoadCurve] = &[];
    for mix in points.chunk_by(|a, b| a.read_percent() == b.read_percent()) {
        let here = f64::from(mix[0].read_percent());
        if here >= read_percent {
            let Some(low) = below.first() else { return at(mix) };
            let from = f64::from(low.read_percent());
            let part = (read_percent - from) / (here - from);
            return if part >= 1.0 { at(mix) } else { at(below).towards(&at(mix), part) };
        }
        below = mix;
    }
    at(below)
}

/// Between the sizes of one mix; outside of them the nearest. A measured drive has a point at least.
fn between_sizes<T: Towards>(points: &[LoadCurve], size: f64, of: impl Fn(&LoadCurve) -> T) -> T {
    interpolate::on_curve(points, |point| f64::from(point.size()), size, of)
}

/// Latencies of reads and of writes between the mixes and sizes.
fn kinds(points: &[LoadCurve], size: f64, mix: f64, depth: f64) -> ByKind {
    between_mixes(points, mix, |points| between_sizes(points, size, |p| p.kinds(depth)))
}

/// Every figure of a latency between the mixes and sizes.
fn latency_of(points: &[LoadCurve], size: f64, read_percent: f64, depth: f64) -> Latency {
    between_mixes(points, read_percent, |points| between_sizes(points, size, |p| p.latency(depth)))
}

/// The same; above the largest size it grows with the size.
fn beyond_sizes(points: &[LoadCurve], size: f64, of: impl Fn(&LoadCurve) -> f64) -> f64 {
    let largest = points.last().map_or(1.0, |p| f64::from(p.size()));
    between_sizes(points, size, of) * (size / largest).max(1.0)
}
