//! What the operator, or a host through CC.AMS and Set Features, may choose.

use crate::ring::{Price, Turn};
use weir_units::Class;

/// Bytes a tenant, a controller or a queue may spend a round under [`Mechanism::Drr`], times its weight.
pub const CHILD_QUANTUM: u32 = 16 << 10;

/// Bytes that a command counts for at the least where bytes are shared; one without data counts for so much.
pub const LEAST_COST: u32 = 4 << 10;

/// How the next queue is found (CC.AMS; NVMe base 2.0, section 3.4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// No arbitration: the queue that has waited longest is drained until it is empty, as QEMU and FEMU do.
    /// For comparison only; at the root it also leaves tenants and controllers out.
    None,
    /// Round robin (000b).
    Rr,
    /// Weighted round robin with urgent priority class (001b): shares of commands.
    Wrr,
    /// Deficit round robin (111b, vendor specific), urgent first: shares of bytes.
    Drr,
}

/// Commands that a class may spend a round under [`Mechanism::Wrr`], 1 to 256. On the wire (feature 01h) they are
/// 0-based; these are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// HPW.
    pub high: u16,
    /// MPW.
    pub medium: u16,
    /// LPW.
    pub low: u16,
}

/// Bytes that a class may spend a round under [`Mechanism::Drr`], at least 512.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quanta {
    /// Of class high.
    pub high: u32,
    /// Of class medium.
    pub medium: u32,
    /// Of class low.
    pub low: u32,
}

/// The arbitration burst (AB, feature 01h bits 2:0): commands a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Burst {
    /// Two to this power, 0 to 6.
    Log2(u8),
    /// 111b. A visit then lasts a class's whole credit under `Wrr`. Under `Rr`, which knows no credit, it is one
    /// command: a queue that never empties would hold the drive.
    NoLimit,
}

impl Burst {
    /// From the field's three bits; higher bits are ignored.
    pub const fn from_bits(bits: u8) -> Burst {
        match bits & 7 {
            7 => Burst::NoLimit,
            log2 => Burst::Log2(log2),
        }
    }

    /// The field's three bits.
    pub const fn bits(self) -> u8 {
        match self {
            Burst::Log2(log2) if log2 < 7 => log2,
            Burst::Log2(_) => 6,
            Burst::NoLimit => 7,
        }
    }

    fn commands(self, no_limit: u32) -> u32 {
        match self {
            Burst::NoLimit => no_limit,
            Burst::Log2(_) => 1 << self.bits(),
        }
    }
}

/// How one scheduler chooses: the drive's, or a controller's among its own queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArbiterSettings {
    /// The rule.
    pub mechanism: Mechanism,
    /// Used by `Wrr`.
    pub weights: Weights,
    /// Used by `Rr` and `Wrr`.
    pub burst: Burst,
    /// Used by `Drr`.
    pub quanta: Quanta,
}

impl ArbiterSettings {
    /// The mechanism with the defaults: weights 32:16:8, no burst limit, quanta 128, 64 and 32 KiB.
    pub const fn new(mechanism: Mechanism) -> ArbiterSettings {
        ArbiterSettings {
            mechanism,
            weights: Weights { high: 32, medium: 16, low: 8 },
            burst: Burst::NoLimit,
            quanta: Quanta { high: 128 << 10, medium: 64 << 10, low: 32 << 10 },
        }
    }

    /// The ring a queue of `class` belongs to: only the weighted mechanisms tell classes apart.
    pub(crate) fn slot(&self, class: Class) -> usize {
        match self.mechanism {
            Mechanism::None | Mechanism::Rr => 0,
            Mechanism::Wrr | Mechanism::Drr => class as usize,
        }
    }

    /// Whether a drive with these settings gives every queue of a group a turn of its own beside the queues of the
    /// tenant's other groups: both are in round robin, and the group's host has set no burst.
    pub(crate) fn gives_queues_turns(&self, group: &ArbiterSettings) -> bool {
        let plain = group.mechanism == Mechanism::Rr && group.burst.commands(1) == 1;
        self.mechanism == Mechanism::Rr && plain
    }

    /// What classes pay per command.
    pub(crate) fn class_price(&self) -> Price {
        match self.mechanism {
            Mechanism::None | Mechanism::Rr => Price::Nothing,
            Mechanism::Wrr => Price::Command,
            Mechanism::Drr => Price::Bytes,
        }
    }

    /// What high, medium and low may spend a round.
    pub(crate) fn class_credit(&self) -> [u32; 3] {
        let Weights { high, medium, low } = self.weights;
        let q = self.quanta;
        match self.mechanism {
            Mechanism::Drr => [q.high.max(512), q.medium.max(512), q.low.max(512)],
            _ => [high, medium, low].map(|w| u32::from(w.clamp(1, 256))),
        }
    }

    /// A turn of a child in the ring `slot`.
    pub(crate) fn turn(&self, slot: usize) -> Turn {
        let commands = |credit| Turn { price: Price::Command, credit };
        match self.mechanism {
            Mechanism::None => Turn { price: Price::Nothing, credit: 1 },
            Mechanism::Drr if slot > 0 => Turn { price: Price::Bytes, credit: CHILD_QUANTUM },
            Mechanism::Drr => commands(1),
            Mechanism::Wrr if slot > 0 => {
                let weight = self.class_credit()[slot - 1];
                commands(self.burst.commands(weight).min(weight))
            }
            Mechanism::Rr | Mechanism::Wrr => commands(self.burst.commands(1)),
        }
    }
}

/// What a controller does after reset: round robin (CC.AMS 000b).
impl Default for ArbiterSettings {
    fn default() -> ArbiterSettings {
        ArbiterSettings::new(Mechanism::Rr)
    }
}
