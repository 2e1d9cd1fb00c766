//! Checksums of a block's bytes, which no other block's bytes have.

use crate::records::CHECKSUM_BYTES;
use crate::{Generation, InodeId};
use alloc::vec::Vec;

/// Goes on with a CRC32C (RFC 3720, appendix B.4): the checksum of all bytes so far, then the next ones; that of no bytes is 0.
pub type Crc32cUpdate = fn(u32, &[u8]) -> u32;

/// What the checksums of a block begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSeed {
    /// The file.
    pub inode: InodeId,
    /// The block's number in the file.
    pub block: u64,
    /// The lifetime of its bytes.
    pub generation: Generation,
}

impl BlockSeed {
    /// What the checksum of a unit of the block, counted from 0, begins with: it goes on with the unit's bytes.
    pub fn start(&self, unit: u32, crc: Crc32cUpdate) -> u32 {
        let words = [self.inode.0, self.block, self.generation.0, unit.into()];
        let mut seed = [0; 32];
        seed.chunks_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        crc(0, &seed)
    }

    /// The checksum of a unit of the block: at most [`CHECKSUM_BYTES`] bytes.
    pub fn checksum(&self, unit: u32, bytes: &[u8], crc: Crc32cUpdate) -> u32 {
        crc(self.start(unit, crc), bytes)
    }

    /// The checksums of all units of a block.
    pub fn checksums(&self, bytes: &[u8], crc: Crc32cUpdate) -> Vec<u32> {
        let units = bytes.chunks(CHECKSUM_BYTES as usize).zip(0u32..);
        units.map(|(unit, number)| self.checksum(number, unit, crc)).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// CRC32C, bit by bit.
    pub(crate) fn crc32c(so_far: u32, bytes: &[u8]) -> u32 {
        let step = |crc: u32, _| crc >> 1 ^ if crc & 1 != 0 { 0x82f6_3b78 } else { 0 };
        !bytes.iter().fold(!so_far, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
    }

    #[test]
    fn another_file_block_unit_or_lifetime_has_another_checksum() {
        assert_eq!((crc32c(0, b"123456789"), crc32c(crc32c(0, b"1234"), b"56789")), (0xe306_9283, 0xe306_9283));
        let seed = BlockSeed { inode: InodeId(1), block: 2, generation: Generation(3) };
        let sum = seed.checksum(0, b"bytes", crc32c);
        assert_eq!(sum, 0xf75319a2);
        for other in [
            BlockSeed { inode: InodeId(2), ..seed },
            BlockSeed { block: 3, ..seed },
            BlockSeed { generation: Generation(4), ..seed },
            BlockSeed { inode: InodeId(2), block: 1, ..seed },
        ] {
            assert_ne!(other.checksum(0, b"bytes", crc32c), sum, "{other:?}");
        }
        assert_ne!(seed.checksum(1, b"bytes", crc32c), sum);
        let long = alloc::vec![7; CHECKSUM_BYTES as usize + 9];
        let sums = seed.checksums(&long, crc32c);
        assert_eq!(sums, [seed.checksum(0, &long[9..], crc32c), seed.checksum(1, &[7; 9], crc32c)]);
    }
}
