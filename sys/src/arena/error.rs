//! Why an arena cannot be had.

use std::fmt;
use std::io;

/// See the variants' messages.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArenaError {
    /// The bytes are something else.
    NotAnArena,
    /// The header is of another version of the program.
    Version {
        /// The header's.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The header's checksum is wrong.
    Damaged,
    /// The payload is something else.
    Schema {
        /// The name that the header gives its schema.
        found: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// The payload's layout is of another version.
    SchemaVersion {
        /// Its name.
        schema: &'static str,
        /// The arena's.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// It was cut or extended.
    Length {
        /// By its header.
        said: u64,
        /// Really.
        found: u64,
    },
    /// More than an address space holds.
    TooLarge(u64),
    /// Another process has it.
    Busy,
    /// There is no memory or space left.
    Full,
    /// The kernel says.
    Io(io::Error),
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnArena => f.write_str("not a Weir memory region (its first bytes are something else)"),
            Self::Version { found, known } => {
                write!(f, "memory region of version {found}, this program knows version {known}")
            }
            Self::Damaged => f.write_str("memory region with a damaged header (wrong checksum)"),
            Self::Schema { found, wanted } => write!(f, "memory region holds '{found}', not '{wanted}'"),
            Self::SchemaVersion { schema, found, known } => {
                write!(f, "memory region holds '{schema}' of version {found}, this program knows version {known}")
            }
            Self::Length { said, found } => {
                write!(f, "memory region of {found} bytes should have {said}: it was cut or extended")
            }
            Self::TooLarge(bytes) => write!(f, "a memory region of {bytes} bytes does not fit the address space"),
            Self::Busy => f.write_str("memory region is in use by another process"),
            Self::Full => f.write_str("no memory left for the region"),
            Self::Io(e) => write!(f, "memory region: {e}"),
        }
    }
}

impl std::error::Error for ArenaError {}

impl From<rustix::io::Errno> for ArenaError {
    fn from(e: rustix::io::Errno) -> Self {
        match e {
            rustix::io::Errno::NOSPC | rustix::io::Errno::NOMEM | rustix::io::Errno::FBIG => ArenaError::Full,
            e => ArenaError::Io(e.into()),
        }
    }
}
