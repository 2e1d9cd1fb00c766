//! What a drive delivers.

use crate::tenant::{Demand, LEAST_COST};
use alloc::vec::Vec;
use core::fmt;
use weir_units::Nanos;
use weir_workload::Latency;

/// A drive measured at one request size and one mix of reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Bytes of a request.
    pub size: u32,
    /// Requests that read, of 100.
    pub read_percent: u8,
    /// Commands a second at saturation: γ.
    pub iops: f64,
    /// Latency of a command alone on the drive, in nanoseconds; its mean is a.
    pub idle: Latency,
    /// Latency at saturation with `depth` commands in flight; zero where it was not measured.
    pub busy: Latency,
    /// Commands in flight when γ was reached.
    pub depth: f64,
}

impl Measured {
    /// p such that γ = p/a · n/(n + p − 1) at the depth n of the measurement; very large where γ is n/a, which is a drive on which
    /// commands do not disturb one another; γ·a where n is not known.
    fn parts(&self) -> f64 {
        let busy = self.iops * self.idle.mean * 1e-9;
        if self.depth <= 0.0 {
            return busy.max(1.0);
        }
        (busy * (self.depth - 1.0) / (self.depth - busy).max(self.depth * 1e-6)).max(1.0)
    }

    /// Commands in flight beyond which there is no more throughput; without bound where it was not measured.
    fn knee(&self) -> f64 {
        if self.depth > 0.0 { self.depth.max(1.0) } else { f64::INFINITY }
    }
}

/// Points that make no drive; the message is what the user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveError {
    /// No points.
    Empty,
    /// A point whose figures cannot be: place in the list.
    Bad(usize),
    /// Two points of the same size and mix: the second's place.
    Twice(usize),
}

impl fmt::Display for DriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriveError::Empty => f.write_str("a drive needs at least one measured point"),
            DriveError::Bad(at) => write!(
                f,
                "point {}: size, iops and the idle mean must be positive numbers and read_percent at most 100",
                at + 1
            ),
            DriveError::Twice(at) => write!(f, "point {}: its size and mix stand twice", at + 1),
        }
    }
}

impl core::error::Error for DriveError {}

/// How long commands take inside.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Timing {
    /// Every command the same, in seconds; the slots are all that limits.
    Fixed(f64),
    /// As measured, ordered by mix and then by size.
    Measured(Vec<Measured>),
}

/// What a drive delivers: plain data, from its configuration or from a calibration.
///
/// **Units**: seconds, bytes, commands a second. Between measured sizes the seconds that a command takes of the drive (1/γ) are
/// interpolated linearly, below the smallest they are the smallest's, above the largest they grow with the size; between mixes
/// they are interpolated linearly in the part of reads. Several tenants' commands add their seconds up: the drive is full when
/// these are 1 a second. On top of that at most `slots` commands and `slot_bytes` bytes are in flight.
#[derive(Clone, Debug, PartialEq)]
pub struct Drive {
    pub(crate) timing: Timing,
    pub(crate) slots: u32,
    pub(crate) slot_bytes: u64,
}

impl Drive {
    /// A drive on which every command takes `latency` (at least 1 ns) and `slots` are carried out at once: `kind = "null"` or
    /// `"ram"` with a latency.
    pub fn fixed(latency: Nanos, slots: u32, slot_bytes: u64) -> Drive {
        let seconds = latency.0.max(1) as f64 * 1e-9;
        Drive { timing: Timing::Fixed(seconds), slots: slots.max(1), slot_bytes: slot_bytes.max(1) }
    }

    /// A drive of measured points. `slots` and `slot_bytes` are the arbiter's in front of it.
    ///
    /// # Errors
    /// No point, one that cannot be, or one that stands twice.
    pub fn measured(mut points: Vec<Measured>, slots: u32, slot_bytes: u64) -> Result<Drive, DriveError> {
        let good = |p: &Measured| {
            let positive = |x: f64| x.is_finite() && x > 0.0;
            p.size > 0 && p.read_percent <= 100 && positive(p.iops) && positive(p.idle.mean)
        };
        if let Some(at) = points.iter().position(|p| !good(p)) {
            return Err(DriveError::Bad(at));
        }
        let key = |p: &Measured| (p.read_percent, p.size);
        if let Some(at) = (1..points.len()).find(|at| points[..*at].iter().any(|p| key(p) == key(&points[*at]))) {
            return Err(DriveError::Twice(at));
        }
        points.sort_by_key(key);
        if points.is_empty() {
            return Err(DriveError::Empty);
        }
        Ok(Drive { timing: Timing::Measured(points), slots: slots.max(1), slot_bytes: slot_bytes.max(1) })
    }

    /// Commands in flight at once.
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// Bytes in flight at once.
    pub const fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// Seconds of the drive that a command takes at saturation: 1/γ.
    pub fn seconds_per_command(&self, size: f64, read_percent: f64) -> f64 {
        match &self.timing {
            Timing::Fixed(latency) => latency / self.in_flight(size),
            Timing::Measured(points) => {
                let inside = between_mixes(points, read_percent, |points| seconds_at(points, size));
                inside.max(self.idle(size, read_percent).mean * 1e-9 / self.in_flight(size))
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
        match &self.timing {
            Timing::Fixed(latency) => {
                let ns = latency * 1e9;
                Latency { mean: ns, p50: ns as u64, p99: ns as u64, p999: ns as u64, max: ns as u64 }
            }
            Timing::Measured(points) => {
                let figure = |of: fn(&Latency) -> f64| {
                    between_mixes(points, read_percent, |points| between_sizes(points, size, |p| of(&p.idle)))
                };
                let whole = |of: fn(&Latency) -> f64| figure(of) as u64;
                Latency {
                    mean: figure(|l| l.mean),
                    p50: whole(|l| l.p50 as f64),
                    p99: whole(|l| l.p99 as f64),
                    p999: whole(|l| l.p999 as f64),
                    max: whole(|l| l.max as f64),
                }
            }
        }
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

    /// p of a demand's commands: parts of the drive that they hit at random; infinite for a fixed latency. Found from γ at the
    /// depth at which it was measured: γ = p/a · n/(n + p − 1), which is a drive of p parts, each with a queue.
    pub(crate) fn parts(&self, demand: &Demand) -> f64 {
        let Timing::Measured(points) = &self.timing else { return f64::INFINITY };
        let seconds = |points: &[Measured], size: f64| {
            let largest = points.last().map_or(0.0, |p| f64::from(p.size));
            between_sizes(points, size, |p| p.idle.mean * 1e-9 / p.parts()) * (size / largest).max(1.0)
        };
        let mix = |size: f64| between_mixes(points, reads(demand), |points| seconds(points, size));
        let busy: f64 = demand.parts().map(|(size, part)| part * mix(size)).sum();
        (self.service(demand) / busy).max(1.0)
    }

    /// Commands in flight beyond which the drive has no more throughput for a demand: where γ was measured, the smallest depth of
    /// the sizes around the demand's.
    pub(crate) fn knee(&self, demand: &Demand) -> f64 {
        let Timing::Measured(points) = &self.timing else { return f64::INFINITY };
        let at = |size: f64| between_mixes(points, reads(demand), |points| between_sizes(points, size, Measured::knee));
        demand.parts().map(|(size, _)| at(size)).fold(f64::INFINITY, f64::min)
    }

    pub(crate) const fn is_fixed(&self) -> bool {
        matches!(self.timing, Timing::Fixed(_))
    }

    /// What a command of a demand costs by device time, in bytes: those that the drive could read meanwhile.
    pub(crate) fn device_time(&self, demand: &Demand) -> f64 {
        let Timing::Measured(points) = &self.timing else {
            return demand.parts().map(|(size, part)| part * size.max(LEAST_COST)).sum();
        };
        let best = points.iter().map(|p| p.iops * f64::from(p.size)).fold(0.0, f64::max);
        (self.cost(demand) * best).max(LEAST_COST)
    }
}

/// Percent of a demand's commands that read.
pub(crate) fn reads(demand: &Demand) -> f64 {
    f64::from(demand.pattern.read_percent)
}

/// Looks at the mixes on both sides of `read_percent` and interpolates.
fn between_mixes(points: &[Measured], read_percent: f64, at: impl Fn(&[Measured]) -> f64) -> f64 {
    let mut below: Option<&[Measured]> = None;
    for mix in points.chunk_by(|a, b| a.read_percent == b.read_percent) {
        let here = f64::from(mix[0].read_percent);
        if here >= read_percent {
            let Some(low) = below else { return at(mix) };
            let from = f64::from(low[0].read_percent);
            let part = (read_percent - from) / (here - from);
            return if part >= 1.0 { at(mix) } else { at(low) * (1.0 - part) + at(mix) * part };
        }
        below = Some(mix);
    }
    below.map_or(0.0, at)
}

/// Interpolates between the sizes of one mix; outside of them the nearest.
fn between_sizes(points: &[Measured], size: f64, of: impl Fn(&Measured) -> f64) -> f64 {
    let after = points.iter().position(|p| f64::from(p.size) >= size);
    match after {
        None => points.last().map_or(0.0, of),
        Some(0) => of(&points[0]),
        Some(i) => {
            let (low, high) = (&points[i - 1], &points[i]);
            let part = (size - f64::from(low.size)) / f64::from(high.size - low.size);
            if part >= 1.0 { of(high) } else { of(low) * (1.0 - part) + of(high) * part }
        }
    }
}

/// 1/γ of one mix; above the largest size it grows with the size.
fn seconds_at(points: &[Measured], size: f64) -> f64 {
    let largest = points.last().map_or(0.0, |p| f64::from(p.size));
    between_sizes(points, size, |p| 1.0 / p.iops) * (size / largest).max(1.0)
}
