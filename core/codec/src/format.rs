//! What stands around saved state.

use crate::{Damaged, Reader, Writer};
use alloc::vec::Vec;
use core::fmt;
use weir_spec::nvme::tcp::Digest;
use weir_units::Nanos;

/// Magic, version, length.
const HEAD: usize = 16;
/// The checksum.
const TAIL: usize = 4;

/// A kind of saved state: what stands before it and behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedFormat {
    /// How it begins.
    pub magic: [u8; 8],
    /// The version that is written.
    pub version: u32,
    /// The oldest one that is read; those between are as well.
    pub oldest: u32,
    /// What it is, for error texts: "the state of a connection".
    pub what: &'static str,
}

/// Why bytes are no saved state of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedError {
    /// They do not begin as such bytes do: what they should have been.
    Foreign(&'static str),
    /// They are of another release.
    Version {
        /// Their version.
        found: u32,
        /// The oldest one that this release reads.
        oldest: u32,
        /// The newest one.
        newest: u32,
    },
    /// Their length or their checksum is wrong, or they contradict themselves.
    Damaged,
    /// A section that this release does not know: its identifier and version.
    UnknownSection(u16, u16),
    /// A section whose bytes make no sense, or do not fit what they are read for: its identifier.
    Section(u16),
    /// They are of something else than what they are read for: what differs.
    Misfit(&'static str),
}

impl fmt::Display for SavedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign(what) => write!(f, "it is not {what}"),
            Self::Version { found, oldest, newest } if oldest == newest => {
                write!(f, "it has layout {found} and this release reads layout {newest}")
            }
            Self::Version { found, oldest, newest } => {
                write!(f, "it has layout {found} and this release reads layouts {oldest} to {newest}")
            }
            Self::Damaged => f.write_str("it is damaged: its length, its checksum or what it says is wrong"),
            Self::UnknownSection(id, version) => {
                write!(f, "it holds section {id} of version {version}, which this release does not know")
            }
            Self::Section(id) => write!(f, "its section {id} is damaged, or does not fit this drive"),
            Self::Misfit(what) => f.write_str(what),
        }
    }
}

impl core::error::Error for SavedError {}

impl From<Damaged> for SavedError {
    fn from(_: Damaged) -> Self {
        SavedError::Damaged
    }
}

impl SavedFormat {
    /// The only version that is read is the one that is written.
    pub const fn new(magic: &[u8; 8], version: u32, what: &'static str) -> Self {
        Self { magic: *magic, version, oldest: version, what }
    }

    /// The error for state of a version that is not read.
    pub const fn other_version(&self, found: u32) -> SavedError {
        SavedError::Version { found, oldest: self.oldest, newest: self.version }
    }

    /// What comes before the state, with its length left open.
    pub fn begin(&self, now: Nanos) -> Writer {
        let mut to = Writer::at(now);
        to.array(&self.magic);
        to.words([self.version, 0]);
        to
    }

    /// All of it, with its length and what comes behind the state.
    pub fn seal<D: Digest>(&self, to: Writer) -> Vec<u8> {
        let mut bytes = to.done();
        let length = (bytes.len() + TAIL) as u32;
        if let Some(open) = bytes.get_mut(HEAD - 4..HEAD) {
            open.copy_from_slice(&length.to_le_bytes());
        }
        let crc = D::append(0, &bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The state within such bytes, and the version it has.
    ///
    /// # Errors
    /// They are foreign, of another version, or damaged.
    pub fn open<'a, D: Digest>(&self, now: Nanos, bytes: &'a [u8]) -> Result<(u32, Reader<'a>), SavedError> {
        let Some((body, crc)) = bytes.split_last_chunk::<TAIL>().filter(|(body, _)| body.starts_with(&self.magic))
        else {
            return Err(SavedError::Foreign(self.what));
        };
        let mut from = Reader::at(now, body);
        from.take(self.magic.len())?;
        let version = from.u32()?;
        if !(self.oldest..=self.version).contains(&version) {
            return Err(self.other_version(version));
        }
        if from.u32()? as usize != bytes.len() || D::append(0, body).to_le_bytes() != *crc {
            return Err(SavedError::Damaged);
        }
        Ok((version, from))
    }
}
