//! What a drive of physical addresses is made with.

use super::address::AddressFormat;
use crate::cell::{CellType, PageMap};
use crate::geometry::{Geometry, GeometryError, Shape};
use crate::host::HostTiming;
use crate::preset::PresetParts;
use crate::timing::{FlashTiming, TimingError};
use crate::variability::{Variability, VariabilityError};
use core::fmt;

/// The chunks, in logical blocks of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkConfig {
    /// Groups: channels.
    pub groups: u32,
    /// Parallel units of a group: dies.
    pub units: u32,
    /// Chunks of a parallel unit.
    pub chunks: u32,
    /// Blocks of a chunk (CLBA); a multiple of `ws_min`.
    pub blocks: u32,
    /// Blocks of a write unit (WS_MIN): at most [`Self::LIST`], what a vector command carries.
    pub ws_min: u32,
    /// Blocks that must be written behind a block of an open chunk before it can be read (MW_CUNITS).
    pub mw_cunits: u32,
    /// Chunks that may be open at once (MAXOC); 0: any number.
    pub max_open: u32,
    /// Chunks of a parallel unit that may be open at once (MAXOCPU); 0: any number.
    pub max_open_unit: u32,
    /// A free chunk can be reset, too (MCCAP bit 1).
    pub multiple_reset: bool,
    /// An open chunk can be reset, too. The specification does not have it; without it a host that gives a chunk up has to
    /// fill it first.
    pub early_reset: bool,
}

impl ChunkConfig {
    /// Addresses that a vector command carries at most.
    pub const LIST: u32 = 64;

    /// Parallel units of the drive.
    pub const fn units(&self) -> u32 {
        self.groups * self.units
    }

    /// The drive-wide parallel unit of a drive-wide chunk.
    pub const fn unit_of(&self, chunk: u32) -> u32 {
        chunk / self.chunks
    }

    /// How addresses are composed.
    pub const fn format(&self) -> AddressFormat {
        AddressFormat::new(self.groups, self.units, self.chunks, self.blocks)
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// Says which do not go together.
    pub fn validate(&self) -> Result<(), OpenChannelError> {
        let ChunkConfig { groups, units, chunks, blocks, ws_min, mw_cunits, .. } = *self;
        let all = [units, chunks, blocks].iter().try_fold(groups, |product, n| product.checked_mul(*n));
        if all.is_none_or(|n| n == 0) || groups > u32::from(u16::MAX) || units > u32::from(u16::MAX) {
            return Err(OpenChannelError::Counts);
        }
        if ws_min == 0 || ws_min > Self::LIST || blocks % ws_min != 0 {
            return Err(OpenChannelError::WriteUnit { ws_min, blocks });
        }
        if mw_cunits >= blocks {
            return Err(OpenChannelError::Cache { mw_cunits, blocks });
        }
        Ok(())
    }
}

/// What a drive of physical addresses is made with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpenChannelConfig {
    /// How the flash is laid out.
    pub geometry: Geometry,
    /// What its steps take.
    pub timing: FlashTiming,
    /// Firmware and link.
    pub host: HostTiming,
    /// How chips differ.
    pub variability: Variability,
    /// See [`ChunkConfig::mw_cunits`]; `None`: so many that the cells of a block that can be read are complete
    /// ([`Self::pairing`]).
    pub mw_cunits: Option<u32>,
    /// See [`ChunkConfig::max_open`].
    pub max_open: u32,
    /// See [`ChunkConfig::max_open_unit`].
    pub max_open_unit: u32,
    /// See [`ChunkConfig::multiple_reset`].
    pub multiple_reset: bool,
    /// See [`ChunkConfig::early_reset`].
    pub early_reset: bool,
    /// Resets that a chunk endures, within a fifth; 0: for ever.
    pub endurance: u32,
    /// Chunks that are offline from the factory, in a million.
    pub factory_bad: u32,
    /// What is drawn at random is drawn from this.
    pub seed: u64,
}

impl OpenChannelConfig {
    /// On a preset's flash, without limits.
    pub fn of(parts: &PresetParts) -> Self {
        Self {
            geometry: parts.geometry,
            timing: parts.timing,
            host: parts.host,
            variability: parts.variability,
            mw_cunits: None,
            max_open: 0,
            max_open_unit: 0,
            multiple_reset: false,
            early_reset: true,
            endurance: 0,
            factory_bad: 0,
            seed: 1,
        }
    }

    /// How many pages of a block must be written behind one until its cells are complete: the longest way from a lowest page
    /// to the highest one of the same cells. 0 for cells of one bit.
    pub fn pairing(cell: CellType, map: PageMap, pages: u32) -> u32 {
        let levels = map.table(cell, pages);
        let top = cell.levels() as u8 - 1;
        let of = |level: u8| levels.iter().zip(0u32..).filter(move |(l, _)| **l == level).map(|(_, page)| page);
        of(0).zip(of(top)).map(|(low, high)| high.saturating_sub(low)).max().unwrap_or_default()
    }

    /// The chunks that follow from the flash, and the flash's shape.
    ///
    /// # Errors
    /// Says which numbers do not go together.
    pub fn chunks(&self) -> Result<(ChunkConfig, Shape), OpenChannelError> {
        let shape = self.geometry.shape().map_err(OpenChannelError::Geometry)?;
        self.timing.validate().map_err(OpenChannelError::Timing)?;
        self.variability.validate().map_err(OpenChannelError::Variability)?;
        let g = &self.geometry;
        let ws_min = shape.units_per_page() * g.planes;
        let pairing = Self::pairing(g.cell, g.page_map, g.pages).min(g.pages - 1) * ws_min;
        let config = ChunkConfig {
            groups: g.channels,
            units: g.ways,
            chunks: g.blocks,
            blocks: ws_min * g.pages,
            ws_min,
            mw_cunits: self.mw_cunits.unwrap_or(pairing),
            max_open: self.max_open,
            max_open_unit: self.max_open_unit,
            multiple_reset: self.multiple_reset,
            early_reset: self.early_reset,
        };
        config.validate()?;
        Ok((config, shape))
    }
}

/// Why a drive of physical addresses is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OpenChannelError {
    /// Its flash.
    Geometry(GeometryError),
    /// Its times.
    Timing(TimingError),
    /// Its chips.
    Variability(VariabilityError),
    /// A count is 0 or more than its field holds.
    Counts,
    /// A write unit that a vector command cannot carry, or that does not divide a chunk.
    WriteUnit {
        /// Blocks of a write unit.
        ws_min: u32,
        /// Blocks of a chunk.
        blocks: u32,
    },
    /// More blocks must be written behind a block than a chunk has.
    Cache {
        /// How many.
        mw_cunits: u32,
        /// Blocks of a chunk.
        blocks: u32,
    },
}

impl fmt::Display for OpenChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Geometry(e) => e.fmt(f),
            Self::Timing(e) => e.fmt(f),
            Self::Variability(e) => e.fmt(f),
            Self::Counts => f.write_str("an Open-Channel drive has 1 to 65535 channels and ways a channel"),
            Self::WriteUnit { ws_min, blocks } => write!(
                f,
                "a page of every plane of a die is {ws_min} blocks of 4 KiB: a vector command writes 1 to {} of them, and a \
                 chunk of {blocks} must be a multiple; lower geometry.planes or geometry.page_bytes",
                ChunkConfig::LIST
            ),
            Self::Cache { mw_cunits, blocks } => {
                write!(f, "mw_cunits of {mw_cunits} blocks must be less than a chunk of {blocks}")
            }
        }
    }
}

impl core::error::Error for OpenChannelError {}
