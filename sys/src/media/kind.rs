//! Which medium, as configuration writes it, and why it cannot be had.

use crate::arena::ArenaError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use weir_units::Bytes;

/// A kind of medium: `null`, `ram`, `file:PATH`, `block:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// Forgets writes.
    Null {
        /// A read gives zeroes wherever it goes to.
        read_zeroes: bool,
    },
    /// In memory, sparse.
    Ram,
    /// A regular file.
    File(PathBuf),
    /// A block device.
    Block(PathBuf),
}

impl FromStr for MediaKind {
    type Err = MediaError;

    fn from_str(s: &str) -> Result<Self, MediaError> {
        match s.split_once(':') {
            None if s == "null" => Ok(MediaKind::Null { read_zeroes: false }),
            None if s == "ram" => Ok(MediaKind::Ram),
            Some(("file", path)) if !path.is_empty() => Ok(MediaKind::File(path.into())),
            Some(("block", path)) if !path.is_empty() => Ok(MediaKind::Block(path.into())),
            _ => Err(MediaError::UnknownKind(s.to_owned())),
        }
    }
}

impl fmt::Display for MediaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MediaKind::Null { .. } => f.write_str("null"),
            MediaKind::Ram => f.write_str("ram"),
            MediaKind::File(path) => write!(f, "file:{}", path.display()),
            MediaKind::Block(path) => write!(f, "block:{}", path.display()),
        }
    }
}

/// A medium to be opened.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The drive's name, for memory maps.
    pub name: String,
    /// Where the bytes live.
    pub kind: MediaKind,
    /// Bytes; may be left out where the medium exists and has a size.
    pub capacity: Option<u64>,
    /// Bytes of the drive's logical block.
    pub block_size: u32,
}

/// Why a medium cannot be had.
#[derive(Debug)]
#[non_exhaustive]
pub enum MediaError {
    /// Not one of the kinds.
    UnknownKind(String),
    /// It has no size of its own.
    NeedsCapacity(String),
    /// The capacity is not a number of whole blocks, or zero.
    Ragged {
        /// The medium.
        medium: String,
        /// Its bytes.
        capacity: u64,
        /// The drive's blocks.
        block_size: u32,
    },
    /// It has another size.
    WrongSize {
        /// The medium.
        medium: String,
        /// Its bytes.
        found: u64,
        /// The drive's capacity.
        wanted: u64,
    },
    /// Somebody else uses it.
    Busy(String),
    /// Its blocks are larger than the drive's.
    BlockSize {
        /// The medium.
        medium: String,
        /// Its smallest unit.
        needs: u32,
        /// The drive's blocks.
        has: u32,
    },
    /// A file where a device is needed, or the other way round.
    WrongType {
        /// The medium.
        medium: String,
        /// What to do.
        advice: &'static str,
    },
    /// The file with a flash drive's state was made for another drive.
    ForeignState {
        /// The file.
        path: PathBuf,
        /// The key that differs first, what the file says, and what the configuration says.
        differs: (&'static str, u64, u64),
    },
    /// There is a flash drive's state, but the medium that it belongs to is gone.
    LoneState {
        /// The state's file.
        path: PathBuf,
        /// The medium.
        medium: String,
    },
    /// There is a medium with data, but the state that says which of it was written is gone.
    MissingState {
        /// The state's file.
        path: PathBuf,
        /// The medium.
        medium: String,
    },
    /// There are namespaces with metadata, but the file that holds it is gone.
    MissingMetadata {
        /// The file.
        path: PathBuf,
        /// The medium.
        medium: String,
    },
    /// The file with a flash drive's state cannot be used.
    State {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ArenaError,
    },
    /// Its memory region cannot be had.
    Arena(ArenaError),
    /// The kernel says.
    Io {
        /// The medium.
        medium: String,
        /// What failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl MediaError {
    /// The state of the flash drive in `media` cannot be used, for a reason in words.
    pub fn flash_state(media: &Path, why: &str) -> Self {
        let path = super::FlashState::path_of(media);
        MediaError::State { path, source: ArenaError::Io(io::Error::other(why.to_owned())) }
    }

    /// What the keeper holds, or is to hold, for a drive is not to be had.
    pub fn kept(name: &str, source: io::Error) -> Self {
        MediaError::Io { medium: name.to_owned(), what: "be kept beyond this process", source }
    }

    pub(super) fn io(medium: impl fmt::Display, what: &'static str, e: impl Into<io::Error>) -> Self {
        MediaError::Io { medium: medium.to_string(), what, source: e.into() }
    }
}

/// Refuses what lies beside a medium that is new: it belongs to one that has gone.
pub(super) fn check_pair(path: PathBuf, media: &Path, is_new: bool) -> Result<(), MediaError> {
    if is_new && std::fs::metadata(&path).is_ok_and(|m| m.len() > 0) {
        return Err(MediaError::LoneState { path, medium: name("file", media) });
    }
    Ok(())
}

/// How messages name a path.
pub(super) fn name(kind: &str, path: &Path) -> String {
    format!("{kind}:{}", path.display())
}

impl fmt::Display for MediaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKind(s) => write!(f, "unknown medium '{s}': use null, ram, file:PATH or block:PATH"),
            Self::NeedsCapacity(m) => write!(f, "{m}: has no size of its own, give the drive a capacity"),
            Self::Ragged { medium, capacity, block_size } => {
                write!(f, "{medium}: {capacity} bytes are not a whole number of {block_size}-byte blocks, or none")
            }
            Self::WrongSize { medium, found, wanted } => {
                let (found, wanted) = (Bytes(*found), Bytes(*wanted));
                write!(
                    f,
                    "{medium}: is {found}, but the drive's capacity is {wanted}: change the capacity or the medium"
                )
            }
            Self::Busy(m) => write!(f, "{m}: is in use (mounted, or opened by another process)"),
            Self::BlockSize { medium, needs, has } => {
                write!(
                    f,
                    "{medium}: cannot be written in units of less than {needs} bytes, but the drive's blocks have {has}: "
                )?;
                write!(f, "give the drive a block size of {needs}")
            }
            Self::WrongType { medium, advice } => write!(f, "{medium}: {advice}"),
            Self::ForeignState { path, differs: (key, found, wanted) } => write!(
                f,
                "{}: is the state of a drive with {key} = {found}, the configuration says {wanted}: change {key}, or remove \
                 the file and its drive and begin anew",
                path.display()
            ),
            Self::LoneState { path, medium } => write!(
                f,
                "{}: is the state of a drive whose {medium} is missing or empty: put that back, or remove the state to \
                 begin anew",
                path.display()
            ),
            Self::MissingState { path, medium } => write!(
                f,
                "{medium}: holds data, but {}, which says what was written to which zone or chunk, is missing: put it back, \
                 or name a new file",
                path.display()
            ),
            Self::MissingMetadata { path, medium } => write!(
                f,
                "{medium}: has namespaces with metadata, but {}, which holds it, is missing: put it back, or name a new file",
                path.display()
            ),
            Self::State { path, source } => write!(
                f,
                "{}: {source}; the state of a flash drive is kept here: remove the file to begin with an empty map (the \
                 drive's data is not in it)",
                path.display()
            ),
            Self::Arena(e) => write!(f, "ram: {e}"),
            Self::Io { medium, what, source } => write!(f, "{medium}: cannot {what}: {source}"),
        }
    }
}

impl std::error::Error for MediaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Arena(e) | Self::State { source: e, .. } => Some(e),
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<ArenaError> for MediaError {
    fn from(e: ArenaError) -> Self {
        MediaError::Arena(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_printed_as_they_are_read() {
        for s in ["null", "ram", "file:/a/b:c", "block:/dev/nvme0n1"] {
            assert_eq!(s.parse::<MediaKind>().unwrap().to_string(), s);
        }
        for s in ["", "ramdisk", "file:", "block", "null:1", "nvme:x"] {
            let e = s.parse::<MediaKind>().unwrap_err().to_string();
            assert!(e.contains("use null, ram"), "{e}");
        }
    }
}
