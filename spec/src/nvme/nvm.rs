//! Fields of the NVM command set's I/O commands (NVM 1.0, 3.2).

use super::status::Status;
use super::wire::{bits, wire};
use zerocopy::little_endian::{U16, U32, U64};

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

impl Status {
    /// Command Size Limit Exceeded, of Copy (NVM 1.0, 3.2.2): the code that fabrics have for something else.
    pub const COMMAND_SIZE_LIMIT: Status = Status::new(1, 0x83);
    /// Incompatible Namespace or Format, of Copy (NVM 1.1, 3.3.2.4).
    pub const INCOMPATIBLE_NAMESPACE_OR_FORMAT: Status = Status::new(1, 0x85);
    /// Overlapping I/O Range, of Copy (NVM 1.1, 3.3.2).
    pub const OVERLAPPING_IO_RANGE: Status = Status::new(1, 0x87);
}

bits! {
    /// CDW12 of Copy (NVM 1.0, Figure 31).
    CopyDw12: u32 {
        /// Number of ranges, 0-based.
        nr, with_nr: 7, 0;
        /// Descriptor format.
        desfmt, with_desfmt: 11, 8;
        /// Protection information of what is read.
        prinfor, with_prinfor: 15, 12;
        /// Directive type.
        dtype, with_dtype: 23, 20;
        /// STCW: the storage tag of what is written is checked (NVM 1.1, Figure 34).
        storage_write, with_storage_write: 24, 24;
        /// STCR: that of what is read.
        storage_read, with_storage_read: 25, 25;
        /// Protection information of what is written.
        prinfow, with_prinfow: 29, 26;
        /// Force unit access.
        fua, with_fua: 30, 30;
        /// Limited retry.
        lr, with_lr: 31, 31;
    }
}

wire! {
    /// A source range of Copy, descriptor formats 0h and 2h: 32 bytes (NVM 1.1, Figure 39).
    CopyRange: 32 {
        /// Source namespace, in format 2h.
        snsid: U32 = 0,
        /// Reserved.
        rsvd4: [u8; 4] = 4,
        /// First block.
        slba: U64 = 8,
        /// Number of blocks, 0-based.
        nlb: U16 = 16,
        /// Reserved.
        rsvd18: [u8; 6] = 18,
        /// Expected initial logical block reference tag.
        eilbrt: U32 = 24,
        /// Expected logical block application tag.
        elbat: U16 = 28,
        /// Its mask.
        elbatm: U16 = 30,
    }
}

wire! {
    /// The same in descriptor formats 1h and 3h, with room for larger tags: 40 bytes (NVM 1.1, Figure 40).
    CopyRangeWide: 40 {
        /// Source namespace, in format 3h.
        snsid: U32 = 0,
        /// Reserved.
        rsvd4: [u8; 4] = 4,
        /// First block.
        slba: U64 = 8,
        /// Number of blocks, 0-based.
        nlb: U16 = 16,
        /// Reserved.
        rsvd18: [u8; 8] = 18,
        /// Expected storage and initial reference tag, big endian.
        elbt: [u8; 10] = 26,
        /// Expected logical block application tag.
        elbat: U16 = 36,
        /// Its mask.
        elbatm: U16 = 38,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn copy_ranges_lie_where_the_standard_has_them() {
        let (slba, nlb) = (U64::new(0x1122), U16::new(7));
        let range =
            CopyRange { slba, nlb, eilbrt: U32::new(9), elbat: U16::new(3), elbatm: U16::new(4), ..Default::default() };
        let mut expected = [0; 32];
        (expected[8], expected[9], expected[16], expected[24], expected[28], expected[30]) = (0x22, 0x11, 7, 9, 3, 4);
        assert_eq!(range.as_bytes(), expected);
        let wide =
            CopyRangeWide { slba, nlb, elbt: [5; 10], elbat: U16::new(3), elbatm: U16::new(4), ..Default::default() };
        let mut expected = [0; 40];
        (expected[8], expected[9], expected[16], expected[36], expected[38]) = (0x22, 0x11, 7, 3, 4);
        expected[26..36].fill(5);
        assert_eq!(wide.as_bytes(), expected);
        let dw12 = CopyDw12(0).with_nr(3).with_desfmt(1).with_dtype(2).with_fua(1);
        assert_eq!(dw12.0, 0x4020_0103);
    }
}
