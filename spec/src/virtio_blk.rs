//! The block device (Virtio 1.2, 5.2): features, configuration space, requests.

use crate::nvme::opcode::codes;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in a sector; capacity and positions count in them whatever the block size (5.2.4).
pub const SECTOR: u64 = 512;
/// log2 of [`SECTOR`].
pub const SECTOR_SHIFT: u32 = 9;
/// Length of the answer to GET_ID (5.2.6).
pub const ID_BYTES: usize = 20;

/// Feature bits (5.2.3).
pub mod feature {
    /// `size_max` is valid.
    pub const SIZE_MAX: u64 = 1 << 1;
    /// `seg_max` is valid.
    pub const SEG_MAX: u64 = 1 << 2;
    /// `geometry` is valid.
    pub const GEOMETRY: u64 = 1 << 4;
    /// The device is read-only.
    pub const RO: u64 = 1 << 5;
    /// `blk_size` is valid.
    pub const BLK_SIZE: u64 = 1 << 6;
    /// FLUSH is supported.
    pub const FLUSH: u64 = 1 << 9;
    /// The topology fields are valid.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// `writeback` can be read and written.
    pub const CONFIG_WCE: u64 = 1 << 11;
    /// `num_queues` is valid.
    pub const MQ: u64 = 1 << 12;
    /// DISCARD is supported.
    pub const DISCARD: u64 = 1 << 13;
    /// WRITE_ZEROES is supported.
    pub const WRITE_ZEROES: u64 = 1 << 14;
    /// SECURE_ERASE is supported.
    pub const SECURE_ERASE: u64 = 1 << 16;
}

/// The configuration space (5.2.4, `struct virtio_blk_config`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Config {
    /// In sectors.
    pub capacity: U64,
    /// Longest segment.
    pub size_max: U32,
    /// Most segments in a request.
    pub seg_max: U32,
    /// Geometry: cylinders.
    pub cylinders: U16,
    /// Geometry: heads.
    pub heads: u8,
    /// Geometry: sectors.
    pub sectors: u8,
    /// Block size.
    pub blk_size: U32,
    /// log2 of logical blocks per physical block.
    pub physical_block_exp: u8,
    /// Offset of the first aligned logical block.
    pub alignment_offset: u8,
    /// Suggested minimum I/O in blocks.
    pub min_io_size: U16,
    /// Suggested optimal (and maximal) I/O in blocks.
    pub opt_io_size: U32,
    /// 1 write-back, 0 write-through.
    pub writeback: u8,
    /// Unused.
    pub unused0: u8,
    /// Request queues.
    pub num_queues: U16,
    /// Most sectors in a DISCARD segment.
    pub max_discard_sectors: U32,
    /// Most segments in a DISCARD.
    pub max_discard_seg: U32,
    /// DISCARD's alignment in sectors.
    pub discard_sector_alignment: U32,
    /// Most sectors in a WRITE_ZEROES segment.
    pub max_write_zeroes_sectors: U32,
    /// Most segments in a WRITE_ZEROES.
    pub max_write_zeroes_seg: U32,
    /// Whether WRITE_ZEROES may deallocate.
    pub write_zeroes_may_unmap: u8,
    /// Unused.
    pub unused1: [u8; 3],
    /// Most sectors in a SECURE_ERASE segment.
    pub max_secure_erase_sectors: U32,
    /// Most segments in a SECURE_ERASE.
    pub max_secure_erase_seg: U32,
    /// SECURE_ERASE's alignment in sectors.
    pub secure_erase_sector_alignment: U32,
}

const _: () = {
    assert!(size_of::<Config>() == 72);
    assert!(core::mem::offset_of!(Config, blk_size) == 20);
    assert!(core::mem::offset_of!(Config, writeback) == 32);
    assert!(core::mem::offset_of!(Config, num_queues) == 34);
    assert!(core::mem::offset_of!(Config, max_discard_sectors) == 36);
    assert!(core::mem::offset_of!(Config, max_write_zeroes_sectors) == 48);
    assert!(core::mem::offset_of!(Config, write_zeroes_may_unmap) == 56);
};

impl Config {
    /// Blanks what `features` do not make valid (5.2.5: such a field must not be read; then it need not say anything).
    pub fn keep(&mut self, features: u64) {
        let has = |bit| features & bit != 0;
        if !has(feature::SIZE_MAX) {
            self.size_max = U32::ZERO;
        }
        if !has(feature::SEG_MAX) {
            self.seg_max = U32::ZERO;
        }
        if !has(feature::GEOMETRY) {
            (self.cylinders, self.heads, self.sectors) = (U16::ZERO, 0, 0);
        }
        if !has(feature::BLK_SIZE) {
            self.blk_size = U32::ZERO;
        }
        if !has(feature::TOPOLOGY) {
            (self.physical_block_exp, self.alignment_offset) = (0, 0);
            (self.min_io_size, self.opt_io_size) = (U16::ZERO, U32::ZERO);
        }
        if !has(feature::CONFIG_WCE) {
            self.writeback = 0;
        }
        if !has(feature::MQ) {
            self.num_queues = U16::ZERO;
        }
        if !has(feature::DISCARD) {
            self.max_discard_sectors = U32::ZERO;
            self.max_discard_seg = U32::ZERO;
            self.discard_sector_alignment = U32::ZERO;
        }
        if !has(feature::WRITE_ZEROES) {
            self.max_write_zeroes_sectors = U32::ZERO;
            self.max_write_zeroes_seg = U32::ZERO;
            self.write_zeroes_may_unmap = 0;
        }
        if !has(feature::SECURE_ERASE) {
            self.max_secure_erase_sectors = U32::ZERO;
            self.max_secure_erase_seg = U32::ZERO;
            self.secure_erase_sector_alignment = U32::ZERO;
        }
    }
}

codes! {
    /// A request's type (5.2.6).
    RequestType: u32 {
        IN = 0,
        OUT = 1,
        SCSI_CMD = 2,
        FLUSH = 4,
        GET_ID = 8,
        GET_LIFETIME = 10,
        DISCARD = 11,
        WRITE_ZEROES = 13,
        SECURE_ERASE = 14,
    }
}

codes! {
    /// The status byte at a request's end (5.2.6).
    RequestStatus: u8 {
        OK = 0,
        IOERR = 1,
        UNSUPP = 2,
    }
}

/// The first 16 bytes of a request (5.2.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RequestHeader {
    /// See [`RequestType`].
    pub kind: U32,
    /// Reserved; an I/O priority before Virtio 1.0.
    pub reserved: U32,
    /// In 512-byte sectors whatever the block size.
    pub sector: U64,
}

const _: () = assert!(size_of::<RequestHeader>() == 16);

impl RequestHeader {
    /// A header of that type.
    pub const fn new(kind: RequestType, sector: u64) -> Self {
        Self { kind: U32::new(kind.0), reserved: U32::ZERO, sector: U64::new(sector) }
    }
    /// Its type.
    pub const fn kind(&self) -> RequestType {
        RequestType(self.kind.get())
    }
}

/// A segment of DISCARD, WRITE_ZEROES and SECURE_ERASE (5.2.6, `struct virtio_blk_discard_write_zeroes`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RangeSegment {
    /// First sector.
    pub sector: U64,
    /// How many.
    pub num_sectors: U32,
    /// Bit 0 [`RangeSegment::UNMAP`]; the others reserved.
    pub flags: U32,
}

const _: () = assert!(size_of::<RangeSegment>() == 16);

impl RangeSegment {
    /// The sectors may be deallocated (WRITE_ZEROES only).
    pub const UNMAP: u32 = 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(bytes in proptest::array::uniform32(any::<u8>()), more in proptest::collection::vec(any::<u8>(), 72)) {
            prop_assert!(RequestHeader::read_from_bytes(&bytes[..16]).unwrap().as_bytes() == &bytes[..16]);
            prop_assert!(RangeSegment::read_from_bytes(&bytes[16..]).unwrap().as_bytes() == &bytes[16..]);
            prop_assert!(Config::read_from_bytes(&more).unwrap().as_bytes() == &more[..]);
        }

        #[test]
        fn only_fields_of_negotiated_features_remain(bytes in proptest::collection::vec(1u8.., 72)) {
            let full = Config::read_from_bytes(&bytes).unwrap();
            let mut none = full;
            none.keep(0);
            prop_assert_eq!(none, Config { capacity: full.capacity, unused0: full.unused0, unused1: full.unused1, ..Config::default() });
            let mut all = full;
            all.keep(u64::MAX);
            prop_assert_eq!(all, full);
        }
    }
}
