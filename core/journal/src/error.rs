//! Why a region, or what a queue left in it, is not to be used.

use crate::layout::VERSION;
use core::fmt;

/// Why a region is not to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// Somebody else's.
    NotAJournal,
    /// Of another version.
    Version {
        /// What it says.
        found: u32,
    },
    /// Shorter than it must be, or says so.
    Length {
        /// Bytes it has, or says it has.
        found: u64,
        /// Bytes of its shape.
        needed: u64,
    },
    /// Made for other queues.
    Shape {
        /// Queues and size it says.
        found: (u16, u16),
        /// Queues and size wanted.
        wanted: (u16, u16),
    },
    /// Made for queues of another kind, or there are no queues.
    Kind,
    /// Made for a medium that is not this one.
    Medium,
    /// The queue is not one of the region, or larger than it was made for.
    Queue {
        /// Which.
        index: u16,
        /// Its size.
        size: u16,
    },
    /// What the queue left is not what any crash leaves.
    Damaged(Damage),
}

/// What is wrong in what a queue left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The queue was of another kind or size.
    Start,
    /// The merge word.
    Merge,
    /// The used word.
    Used,
    /// An entry.
    Entry(u16),
    /// The indices say so many requests (slots, in a packed ring) are in flight, the entries say another number.
    Count {
        /// By the indices.
        indices: u32,
        /// By the entries.
        entries: u32,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Start => f.write_str("the queue was of another kind or size"),
            Damage::Merge => f.write_str("its newest request is none of the queue's"),
            Damage::Used => f.write_str("its used index is none of the queue's"),
            Damage::Entry(head) => write!(f, "entry {head} is malformed"),
            Damage::Count { indices, entries } => {
                write!(f, "the ring's indices have {indices} requests in flight, the entries {entries}")
            }
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::NotAJournal => f.write_str("the in-flight region is not one of Weir's"),
            OpenError::Version { found } => {
                write!(f, "the in-flight region has layout version {found}, this Weir knows version {VERSION}")
            }
            OpenError::Length { found, needed } => {
                write!(f, "the in-flight region has {found} bytes, its queues need {needed}")
            }
            OpenError::Shape { found, wanted } => write!(
                f,
                "the in-flight region is for {} queues of {}, not for {} of {}",
                found.0, found.1, wanted.0, wanted.1
            ),
            OpenError::Kind => f.write_str("the in-flight region is for queues of another kind"),
            OpenError::Medium => f.write_str(
                "the in-flight region is for a drive in memory or a volume that is no more, and what was written to it is lost; start the front end anew, \
                 which then finds the drive empty",
            ),
            OpenError::Queue { index, size } => {
                write!(f, "the in-flight region has no room for queue {index} of {size} entries")
            }
            OpenError::Damaged(damage) => write!(f, "the in-flight region is damaged: {damage}"),
        }
    }
}

impl core::error::Error for OpenError {}

impl From<Damage> for OpenError {
    fn from(damage: Damage) -> Self {
        OpenError::Damaged(damage)
    }
}
