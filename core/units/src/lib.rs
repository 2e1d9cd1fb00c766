#![no_std]
#![forbid(unsafe_code)]
//! Numbers that must not be mixed, each a type of its own, with checked arithmetic; and how people write them.
//!
//! Depends on nothing. `parse` reads `4KiB`, `10GB`, `80us`, `500MB/s` as the configuration, the command line and
//! bench targets write them; `Display` prints them the same way. `rng` has the seeded generators of all crates.

extern crate alloc;

mod class;
pub mod parse;
mod promise;
pub mod rng;

pub use class::{Class, PerClass};
pub use promise::{Ceiling, Floor, PerSecond, Rates, Sla};

use core::fmt;

macro_rules! newtype {
    ($(#[$m:meta])* $name:ident($inner:ty)) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number itself.
            pub const fn get(self) -> $inner {
                self.0
            }
            /// Sum, or `None` where it does not fit.
            pub const fn checked_add(self, other: Self) -> Option<Self> {
                match self.0.checked_add(other.0) {
                    Some(v) => Some(Self(v)),
                    None => None,
                }
            }
            /// Difference, or `None` below zero.
            pub const fn checked_sub(self, other: Self) -> Option<Self> {
                match self.0.checked_sub(other.0) {
                    Some(v) => Some(Self(v)),
                    None => None,
                }
            }
            /// Difference, zero at the least.
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
            /// Sum, the type's largest value at the most.
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl From<$inner> for $name {
            fn from(v: $inner) -> Self {
                Self(v)
            }
        }
    };
}

newtype!(
    /// A logical block address, in blocks of the namespace's format.
    Lba(u64)
);
newtype!(
    /// A length or an offset in bytes.
    Bytes(u64)
);
newtype!(
    /// A point in time or a span, in nanoseconds. Points count from an origin that the driver of the machine chooses
    /// (the node: CLOCK_MONOTONIC; the simulator: 0).
    Nanos(u64)
);
newtype!(
    /// An NVMe queue identifier (QID); 0 is the admin queue.
    QueueId(u16)
);
newtype!(
    /// An NVMe command identifier (CID).
    CommandId(u16)
);
newtype!(
    /// An NVMe namespace identifier (NSID).
    NamespaceId(u32)
);
newtype!(
    /// An NVMe controller identifier (CNTLID).
    ControllerId(u16)
);
newtype!(
    /// A tenant, by its place in the configuration.
    TenantId(u16)
);

impl Bytes {
    /// One KiB.
    pub const KIB: u64 = 1 << 10;
    /// One MiB.
    pub const MIB: u64 = 1 << 20;
    /// One GiB.
    pub const GIB: u64 = 1 << 30;
}

impl Nanos {
    /// The end of time: a deadline that never comes.
    pub const NEVER: Nanos = Nanos(u64::MAX);
    /// So many microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Nanos(us.saturating_mul(1_000))
    }
    /// So many milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Nanos(ms.saturating_mul(1_000_000))
    }
    /// So many seconds.
    pub const fn from_secs(s: u64) -> Self {
        Nanos(s.saturating_mul(1_000_000_000))
    }
    /// In seconds, for printing.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// `4KiB`, `1GiB`, `1234B`: the largest power-of-two unit that divides it.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 != 0 && self.0 % (1 << shift) == 0 {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}B", self.0)
    }
}

/// `80us`, `2ms`, `10s`, `1234ns`: the largest unit that divides it.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (per, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
            if self.0 != 0 && self.0 % per == 0 {
                return write!(f, "{}{unit}", self.0 / per);
            }
        }
        write!(f, "{}ns", self.0)
    }
}
