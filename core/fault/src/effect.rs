//! What goes wrong.

use weir_spec::nvme::zns::ZonedOpcode;
use weir_spec::nvme::{IoOpcode, Status};
use weir_units::Nanos;
use weir_units::rng::SplitMix64;

/// How much longer a command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencySpread {
    /// Always so much.
    Fixed(Nanos),
    /// Evenly between the two.
    Even(Nanos, Nanos),
    /// Exponentially distributed, with that mean.
    Exponential(Nanos),
}

impl LatencySpread {
    /// One delay.
    pub fn draw(&self, random: &mut SplitMix64) -> Nanos {
        match *self {
            Self::Fixed(time) => time,
            Self::Even(least, most) => {
                let span = u128::from(most.0.saturating_sub(least.0)) + 1;
                Nanos(least.0 + ((u128::from(random.next_u64()) * span) >> 64) as u64)
            }
            Self::Exponential(mean) => Nanos((mean.0 as f64 * exponential(random.next_u64())) as u64),
        }
    }
}

/// -ln of a number in (0, 1] made of these bits: exponentially distributed with mean 1.
fn exponential(random: u64) -> f64 {
    const LN_2: f64 = core::f64::consts::LN_2;
    // u = m * 2^-k with m in [1/2, 1), and the series of the inverse hyperbolic tangent for m.
    let bits = random | 1;
    let k = bits.leading_zeros();
    let m = ((bits << k) >> 11) as f64 / (1u64 << 53) as f64;
    let t = (m - 1.0) / (m + 1.0);
    let square = t * t;
    let series = (0..8).rev().fold(0.0, |sum, n| sum * square + 1.0 / f64::from(2 * n + 1));
    f64::from(k) * LN_2 - 2.0 * t * series
}

/// What SMART says that is not so; what is `None` is as it is. Reached evenly over `over`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmartDrift {
    /// Available spare, percent; below the threshold of 10 % the critical warning follows.
    pub spare: Option<u8>,
    /// Percentage used; 255 is that or more.
    pub wear: Option<u8>,
    /// Composite temperature, K.
    pub temperature: Option<u16>,
    /// Media and data integrity errors, in addition.
    pub media_errors: Option<u64>,
    /// How long it takes to get there.
    pub over: Nanos,
}

/// What goes wrong. The statuses are those that a drive answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// The command fails with a status.
    Status(Status),
    /// A read ends with Unrecovered Read Error, a write with Write Fault; counted as a media error.
    MediaError,
    /// A read is sensed again so many times before it succeeds.
    CorrectableError {
        /// How many times.
        retries: u32,
    },
    /// So many bytes of a read are wrong as the host gets them, or of a write as they are stored; nothing says so.
    CorruptData {
        /// How many bytes of the first block that the rule is about.
        bytes: u32,
    },
    /// Only the first blocks of a write are stored; nothing says so.
    TornWrite {
        /// How many blocks.
        keep: u32,
    },
    /// A command goes to other blocks; nothing says so.
    Misdirected {
        /// How many blocks further; negative: before.
        by: i64,
    },
    /// Nothing of a write is stored; nothing says so.
    LostWrite,
    /// A write ends with Capacity Exceeded.
    DiskFull,
    /// The command takes longer.
    Latency(LatencySpread),
    /// The command is not completed while the rule holds, nor can it be aborted.
    Hang,
    /// No command of an I/O queue is fetched.
    StuckQueue,
    /// CSTS.CFS: the controllers serve no more until they are reset.
    ControllerFatal,
    /// CSTS.RDY does not follow CC.EN any more.
    ResetFails,
    /// An enabled controller is ready after this time.
    SlowReset(Nanos),
    /// The drive cannot be reached.
    LinkLoss,
    /// The drive is pulled out, and put back at the end; with another serial number and other namespace identifiers if `other`.
    Removal {
        /// It is another drive that comes back.
        other: bool,
    },
    /// The media takes no more writes.
    ReadOnly,
    /// A namespace has another size.
    NamespaceResized {
        /// Its size, in blocks.
        blocks: u64,
    },
    /// A namespace has other identifiers.
    NamespaceIdentity,
    /// A namespace is attached to no controller.
    NamespaceGone,
    /// SMART drifts.
    Smart(SmartDrift),
    /// Array operations of a die, or of the dies of a channel, take longer.
    SlowDie {
        /// Their times, in thousandths of what they are.
        thousandths: u32,
    },
}

/// What a command does to the media, as far as effects ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Other,
}

/// What an I/O command does to the media.
pub(crate) fn access(opcode: u8) -> Access {
    match IoOpcode(opcode) {
        IoOpcode::READ | IoOpcode::COMPARE | IoOpcode::VERIFY => Access::Read,
        IoOpcode::WRITE | IoOpcode::WRITE_ZEROES | IoOpcode::WRITE_UNCORRECTABLE | IoOpcode::COPY => Access::Write,
        IoOpcode::DATASET_MANAGEMENT => Access::Write,
        _ if matches!(ZonedOpcode(opcode), ZonedOpcode::ZONE_APPEND | ZonedOpcode::ZONE_MANAGEMENT_SEND) => {
            Access::Write
        }
        _ => Access::Other,
    }
}

impl FaultEffect {
    /// Whether it holds for a while rather than befalls a command.
    pub fn is_condition(&self) -> bool {
        use FaultEffect::*;
        matches!(
            self,
            StuckQueue
                | ControllerFatal
                | ResetFails
                | SlowReset(_)
                | LinkLoss
                | Removal { .. }
                | ReadOnly
                | NamespaceResized { .. }
                | NamespaceIdentity
                | NamespaceGone
                | Smart(_)
                | SlowDie { .. }
        )
    }

    /// Whether it decides what becomes of a command, so that no later rule does.
    pub(crate) fn is_final(&self) -> bool {
        !self.is_condition() && !matches!(self, Self::Latency(_) | Self::CorrectableError { .. })
    }

    /// Whether it can befall an I/O command.
    pub(crate) fn befalls(&self, opcode: u8) -> bool {
        let is = |opcodes: &[IoOpcode]| opcodes.contains(&IoOpcode(opcode));
        match self {
            Self::MediaError => access(opcode) != Access::Other,
            Self::DiskFull => access(opcode) == Access::Write && !is(&[IoOpcode::DATASET_MANAGEMENT]),
            Self::CorrectableError { .. } => access(opcode) == Access::Read,
            Self::CorruptData { .. } | Self::Misdirected { .. } => is(&[IoOpcode::READ, IoOpcode::WRITE]),
            Self::TornWrite { .. } | Self::LostWrite => is(&[IoOpcode::WRITE]),
            _ => true,
        }
    }

    /// Which of `nsid`, `tenant` and `queue` say what a condition is about.
    pub(crate) fn scope(&self) -> &'static [&'static str] {
        match self {
            Self::StuckQueue => &["tenant", "queue"],
            Self::ControllerFatal | Self::ResetFails | Self::SlowReset(_) => &["tenant"],
            Self::LinkLoss | Self::Removal { .. } => &["tenant"],
            Self::ReadOnly => &["nsid", "tenant"],
            Self::NamespaceResized { .. } | Self::NamespaceIdentity | Self::NamespaceGone => &["nsid"],
            _ => &[],
        }
    }

    /// Which of conditions that cannot hold beside each other this is one of.
    pub(crate) fn group(&self) -> Option<&'static str> {
        Some(match self {
            Self::LinkLoss | Self::Removal { .. } => "absent",
            Self::ResetFails | Self::SlowReset(_) => "reset",
            Self::ReadOnly => "read-only",
            Self::StuckQueue => "stuck-queue",
            Self::NamespaceResized { .. } => "namespace-resized",
            Self::NamespaceIdentity => "namespace-identity",
            Self::NamespaceGone => "namespace-gone",
            Self::Smart(_) => "smart",
            Self::SlowDie { .. } => "slow-die",
            _ => return None,
        })
    }
}
