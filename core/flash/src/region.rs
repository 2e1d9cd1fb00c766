//! What of zones and chunks survives the loss of power: a word for each of them, and each block's wear.
//!
//! ```text
//!   RegionImage ── words        a zone's or chunk's state and how much of it is written
//!               ├─ wear         erases: by block of the flash, or by chunk
//!               └─ extensions   zone descriptor extensions, one behind the other
//! ```
//! The arrays are lent by who keeps them, all zero at first. A word is stored whole, so that after any store each of them is the
//! old or the new one. What is found may be damaged: any content gives a whole drive, unless it has more open zones than there
//! may be.

use alloc::vec::Vec;
use core::fmt;

/// How long the arrays of a [`RegionImage`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSize {
    /// Zones or chunks.
    pub words: u64,
    /// Blocks of the flash, or chunks; 0 where there is no flash.
    pub wear: u64,
    /// Bytes of all extensions.
    pub extensions: u64,
}

/// What the keys of [`RegionKeys`] are called, as configurations write them.
pub const REGION_KEYS: [&str; 16] = [
    "open_channel",
    "block_size",
    "capacity",
    "zone_size",
    "zone_capacity",
    "descriptor_extension",
    "dies",
    "channels",
    "ways",
    "planes",
    "blocks",
    "pages",
    "page_size",
    "factory_bad",
    "endurance",
    "seed",
];

/// The part of a configuration that decides what an image means, in the order of [`REGION_KEYS`]: 1 for chunks and 0 for zones,
/// sizes in bytes, 0 for what such a drive does not have. Whatever else changes, the image stays readable.
pub type RegionKeys = [u64; REGION_KEYS.len()];

/// See the [module](self). Lent for good: the drive is the only one that uses them.
#[derive(Debug, Default)]
pub struct RegionImage {
    /// By zone or chunk.
    pub words: &'static mut [u64],
    /// By block or chunk: erases.
    pub wear: &'static mut [u32],
    /// By zone: its descriptor extension.
    pub extensions: &'static mut [u8],
}

impl RegionImage {
    /// The lengths.
    pub fn size(&self) -> RegionSize {
        let (words, wear, extensions) = (self.words.len(), self.wear.len(), self.extensions.len());
        RegionSize { words: words as u64, wear: wear as u64, extensions: extensions as u64 }
    }
}

/// Why a drive cannot go on from an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// It is of another size.
    Size {
        /// The image's.
        found: RegionSize,
        /// The drive's.
        wanted: RegionSize,
    },
    /// More zones or chunks are partly written than may be.
    Active {
        /// How many.
        found: u32,
        /// How many may be.
        limit: u32,
    },
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { found, wanted } => write!(f, "the state has {found:?}, the drive needs {wanted:?}"),
            Self::Active { found, limit } => {
                write!(f, "{found} zones or chunks are partly written, and at most {limit} may be: raise that limit")
            }
        }
    }
}

impl core::error::Error for RegionError {}

/// A word, taken apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionWord {
    /// Bits 31:0: blocks from the beginning up to the last one that a completed write has written.
    pub end: u32,
    /// Bits 39:32: the state, by its number in a zone descriptor or in the chunk information; 0: nothing was ever written.
    pub state: u8,
    /// Bit 40: has a random write area.
    pub zrwa: bool,
    /// Bit 41: its descriptor extension is valid.
    pub extended: bool,
    /// Bit 42: was finished, or closed early: takes no more writes wherever its end is.
    pub finished: bool,
}

impl RegionWord {
    pub const fn word(self) -> u64 {
        self.end as u64
            | (self.state as u64) << 32
            | (self.zrwa as u64) << 40
            | (self.extended as u64) << 41
            | (self.finished as u64) << 42
    }

    pub const fn of(word: u64) -> RegionWord {
        RegionWord {
            end: word as u32,
            state: (word >> 32) as u8,
            zrwa: word >> 40 & 1 == 1,
            extended: word >> 41 & 1 == 1,
            finished: word >> 42 & 1 == 1,
        }
    }
}

/// What a loss of power did to zones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionLoss {
    /// Blocks that completed writes had written and that are gone.
    pub lost: u64,
    /// Zones of which bytes are gone: from which of their blocks on.
    pub gone: Vec<(u32, u32)>,
}
