//! Power states and temperature (base 2.0, 8.15): what a drive of 25 W says of itself.
//!
//! States and their latencies are told and switched, and no command takes longer for them. The temperature follows the work done:
//! it nears a value that grows with the bytes moved, halving the difference every [`HALVING`].

use crate::power::lifetime::Counters;
use weir_spec::nvme::identify::PowerStateDescriptor;
use weir_units::Nanos;
use zerocopy::little_endian::{U16, U32};

pub(crate) mod failing_media;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod lifetime;
mod temperature;

/// A power state.
pub(crate) struct PowerState {
    /// Maximum power, in 0.01 W.
    pub power: u16,
    /// I/O is served in it.
    pub operational: bool,
    /// Microseconds to enter it and to leave it.
    pub entry: u32,
    pub exit: u32,
    /// Relative throughput and latency, 0 best.
    pub rank: u8,
}

const fn state(power: u16, operational: bool, entry: u32, exit: u32, rank: u8) -> PowerState {
    PowerState { power, operational, entry, exit, rank }
}

/// The power states of every drive.
pub(crate) const POWER_STATES: [PowerState; 5] = [
    state(2500, true, 0, 0, 0),
    state(1800, true, 100, 100, 1),
    state(1200, true, 100, 100, 2),
    state(150, false, 1_000, 2_000, 3),
    state(10, false, 10_000, 50_000, 4),
];

/// What Identify Controller says of them.
pub(crate) fn descriptors() -> [PowerStateDescriptor; POWER_STATES.len()] {
    POWER_STATES.each_ref().map(|s| PowerStateDescriptor {
        mp: U16::new(s.power),
        flags: u8::from(!s.operational) << 1,
        enlat: U32::new(s.entry),
        exlat: U32::new(s.exit),
        rrt: s.rank,
        rrl: s.rank,
        rwt: s.rank,
        rwl: s.rank,
        ..PowerStateDescriptor::default()
    })
}

/// Temperature thresholds that a controller has: of the composite temperature and of two sensors.
pub(crate) const SENSORS: usize = 3;

/// Temperatures, in K.
pub(crate) mod thermal {
    /// WCTEMP; also the default of the over-temperature threshold.
    pub const WARNING: u16 = 343;
    /// CCTEMP.
    pub const CRITICAL: u16 = 353;
    /// MNTMT and MXTMT: what host controlled thermal management takes.
    pub const LEAST: u16 = 313;
    pub const MOST: u16 = 343;
    /// Of a drive that does nothing.
    pub const IDLE: u16 = 313;
    /// What full work adds.
    pub const RISE: u64 = 25;
    /// Bytes a second that add 1 K.
    pub const BYTES: u64 = 100_000_000;
}

/// In this time the difference from what the temperature nears is halved.
const HALVING: Nanos = Nanos::from_secs(20);
/// The temperature of a drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thermal {
    /// When it was looked at, what it was then in mK, and the bytes moved until then.
    at: Nanos,
    millikelvin: i64,
    bytes: u64,
    /// What it has at rest, K.
    pub ambient: u16,
    /// Time above WCTEMP and above CCTEMP.
    pub warm: Nanos,
    pub hot: Nanos,
}

impl Thermal {
    pub fn new(now: Nanos) -> Self {
        let idle = i64::from(thermal::IDLE) * 1000;
        let none = Nanos(0);
        Self { at: now, millikelvin: idle, bytes: 0, ambient: thermal::IDLE, warm: none, hot: none }
    }

    /// mK at `now`, when so many bytes have been moved.
    fn millikelvin(&self, now: Nanos, bytes: u64) -> i64 {
        let span = now.saturating_sub(self.at).0;
        if span == 0 {
            return self.millikelvin;
        }
        let rate = u128::from(bytes.saturating_sub(self.bytes)) * 1_000_000_000 / u128::from(span);
        let rise = (rate * 1000 / u128::from(thermal::BYTES)).min(u128::from(thermal::RISE) * 1000) as i64;
        let aim = i64::from(self.ambient) * 1000 + rise;
        let (halvings, rest) = (span / HALVING.0, span % HALVING.0);
        let off = (self.millikelvin - aim) >> halvings.min(62);
        // Between two halvings a straight line does.
        aim + off - (i128::from(off) * i128::from(rest) / i128::from(2 * HALVING.0)) as i64
    }

    /// K at `now`.
    pub fn kelvin(&self, now: Nanos, bytes: u64) -> u16 {
        (self.millikelvin(now, bytes) / 1000) as u16
    }

    fn look(&mut self, now: Nanos, bytes: u64) {
        let millikelvin = self.millikelvin(now, bytes);
        let span = now.saturating_sub(self.at);
        if millikelvin >= i64::from(thermal::CRITICAL) * 1000 {
            self.hot = self.hot.saturating_add(span);
        } else if millikelvin >= i64::from(thermal::WARNING) * 1000 {
            self.warm = self.warm.saturating_add(span);
        }
        (self.at, self.millikelvin, self.bytes) = (now, millikelvin, bytes);
    }
}

/// Since when the drive has power, what it has done with it, and how warm it is.
#[derive(Clone, Debug)]
pub(crate) struct Power {
    pub on_since: Nanos,
    /// How often the drive was powered on, and how often it went down without being shut down.
    pub cycles: u64,
    pub unsafe_shutdowns: u64,
    /// What was counted before the drive was powered on.
    pub before: Counters,
    /// Up to when `save` counts.
    pub counted: Nanos,
    /// It was stopped.
    pub stopped: bool,
    /// Since when something is in flight, and for how long something was before.
    pub busy_since: Option<Nanos>,
    pub busy: u64,
    /// When nothing was in flight any more.
    pub idle_since: Nanos,
    pub thermal: Thermal,
    /// When the temperature is looked at again.
    pub next_look: Nanos,
}

impl Power {
    pub fn new(now: Nanos) -> Self {
        Self {
            on_since: now,
            cycles: 1,
            unsafe_shutdowns: 0,
            before: Counters::default(),
            counted: now,
            stopped: false,
            busy_since: None,
            busy: 0,
            idle_since: now,
            thermal: Thermal::new(now),
            next_look: Nanos::NEVER,
        }
    }
}
