//! Fields of the NVM command set's I/O commands (NVM 1.0, 3.2).

use super::wire::wire;
use zerocopy::little_endian::{U32, U64};

/// CDW12 bit 30 of read, write and others: force unit access.
pub const FUA: u32 = 1 << 30;
/// CDW12 bit 31: limited retry.
pub const LR: u32 = 1 << 31;
/// CDW12 bits 29:26: protection information.
pub const PRINFO: u32 = 0xf << 26;
/// CDW12 bits 23:20 of a write: directive type; its directive specific field is in CDW13 bits 31:16.
pub const DTYPE: u32 = 0xf << 20;
/// DTYPE of data placement: the specific field is a placement identifier.
pub const DTYPE_DATA_PLACEMENT: u32 = 2 << 20;
/// CDW12 bit 25 of write zeroes: deallocate.
pub const DEAC: u32 = 1 << 25;
/// CDW10 bits 7:0 of dataset management: number of ranges, 0-based.
pub const DSM_NR: u32 = 0xff;
/// CDW11 bit 2 of dataset management: deallocate.
pub const DSM_AD: u32 = 1 << 2;
/// Most ranges of one dataset management command.
pub const DSM_RANGES_MAX: usize = 256;

wire! {
    /// A range of dataset management: 16 bytes (NVM 1.0, Figure 41).
    DsmRange: 16 {
        /// Context attributes.
        cattr: U32 = 0,
        /// Length in blocks, not 0-based.
        nlb: U32 = 4,
        /// First block.
        slba: U64 = 8,
    }
}

impl DsmRange {
    /// Blocks `slba` to `slba + nlb`.
    pub const fn new(slba: u64, nlb: u32) -> Self {
        Self { cattr: U32::ZERO, nlb: U32::new(nlb), slba: U64::new(slba) }
    }
}
