//! What a drive delivers.

use crate::calibrate::Point;
use crate::tenant::{Demand, LEAST_COST};
use alloc::vec::Vec;
use core::fmt;
use weir_units::Nanos;
use weir_workload::Latency;

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
pub(crate) enum Timing {
    /// Every command the same, in seconds; the slots are all that limits.
    Fixed(f64),
    /// As measured, ordered by mix and then by size.
    Measured(Vec<Point>),
}

/// What a drive delivers: plain data, from its configuration or from a calibration.
///
/// **Units**: seconds, bytes, commands a second. A measured drive is a server whose speed depends on how many commands are inside
/// (a flow-equivalent server: Chandy, Herzog and Woo, "Parametric Analysis of Queuing Networks", 1975): the time that a command
/// takes beside n others is what the load tests say. Between depths, sizes and mixes that time is interpolated linearly; below
/// the smallest size it is the smallest's, above the largest it grows with the size, and beyond the deepest test with the
/// depth. At most `slots` commands and `slot_bytes` bytes are in flight.
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
    /// No point, or one that stands twice.
    pub fn measured(mut points: Vec<Point>, slots: u32, slot_bytes: u64) -> Result<Drive, DriveError> {
        let key = |p: &Point| (p.read_percent(), p.size());
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

    /// Seconds of the drive that a command takes with all slots busy: 1/γ.
    pub fn seconds_per_command(&self, size: f64, read_percent: f64) -> f64 {
        let most = self.in_flight(size);
        self.cycle(size, read_percent, most) / most
    }

    /// Seconds from one command of a closed loop to its next with `depth` commands like it in flight (at least 1): depth over
    /// throughput.
    pub fn cycle(&self, size: f64, read_percent: f64, depth: f64) -> f64 {
        match &self.timing {
            Timing::Fixed(latency) => *latency,
            Timing::Measured(points) => {
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
            Timing::Fixed(latency) => {
                let ns = latency * 1e9;
                Latency { mean: ns, p50: ns as u64, p99: ns as u64, p999: ns as u64, max: ns as u64 }
            }
            Timing::Measured(points) => latency_of(points, size, read_percent, depth),
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

    /// Depths at which anything was measured, ascending; 1 alone for a fixed latency.
    pub(crate) fn depths(&self) -> Vec<u32> {
        let mut depths: Vec<u32> = match &self.timing {
            Timing::Fixed(_) => alloc::vec![1],
            Timing::Measured(points) => points.iter().flat_map(Point::tests).map(|t| t.depth).collect(),
        };
        depths.sort_unstable();
        depths.dedup();
        depths
    }

    /// Whether load tests of this size and this mix are among the points; a fixed latency is the same for all.
    pub fn has_measured(&self, size: u32, read_percent: u8) -> bool {
        match &self.timing {
            Timing::Fixed(_) => true,
            Timing::Measured(points) => points.iter().any(|p| (p.size(), p.read_percent()) == (size, read_percent)),
        }
    }

    pub(crate) const fn is_fixed(&self) -> bool {
        matches!(self.timing, Timing::Fixed(_))
    }

    /// What a command of a demand costs by device time, in bytes: those that the drive could read meanwhile.
    pub(crate) fn device_time(&self, demand: &Demand) -> f64 {
        let Timing::Measured(points) = &self.timing else {
            return demand.parts().map(|(size, part)| part * size.max(LEAST_COST)).sum();
        };
        let best = points.iter().map(Point::bandwidth).fold(0.0, f64::max);
        (self.cost(demand) * best).max(LEAST_COST)
    }
}

/// Percent of a demand's commands that read.
pub(crate) fn reads(demand: &Demand) -> f64 {
    f64::from(demand.pattern.read_percent)
}

/// Looks at the mixes on both sides of `read_percent` and interpolates.
fn between_mixes(points: &[Point], read_percent: f64, at: impl Fn(&[Point]) -> f64) -> f64 {
    let mut below: Option<&[Point]> = None;
    for mix in points.chunk_by(|a, b| a.read_percent() == b.read_percent()) {
        let here = f64::from(mix[0].read_percent());
        if here >= read_percent {
            let Some(low) = below else { return at(mix) };
            let from = f64::from(low[0].read_percent());
            let part = (read_percent - from) / (here - from);
            return if part >= 1.0 { at(mix) } else { at(low) * (1.0 - part) + at(mix) * part };
        }
        below = Some(mix);
    }
    below.map_or(0.0, at)
}

/// Interpolates between the sizes of one mix; outside of them the nearest.
fn between_sizes(points: &[Point], size: f64, of: impl Fn(&Point) -> f64) -> f64 {
    let after = points.iter().position(|p| f64::from(p.size()) >= size);
    match after {
        None => points.last().map_or(0.0, of),
        Some(0) => of(&points[0]),
        Some(i) => {
            let (low, high) = (&points[i - 1], &points[i]);
            let part = (size - f64::from(low.size())) / f64::from(high.size() - low.size());
            if part >= 1.0 { of(high) } else { of(low) * (1.0 - part) + of(high) * part }
        }
    }
}

/// Every figure of a latency between the mixes and sizes.
fn latency_of(points: &[Point], size: f64, read_percent: f64, depth: f64) -> Latency {
    let figure = |of: fn(&Latency) -> f64| {
        let at = |p: &Point| of(&p.latency(depth));
        between_mixes(points, read_percent, |points| between_sizes(points, size, at))
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

/// The same; above the largest size it grows with the size.
fn beyond_sizes(points: &[Point], size: f64, of: impl Fn(&Point) -> f64) -> f64 {
    let largest = points.last().map_or(1.0, |p| f64::from(p.size()));
    between_sizes(points, size, of) * (size / largest).max(1.0)
}
