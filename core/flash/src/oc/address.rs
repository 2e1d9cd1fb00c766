//! Hierarchical addresses: group, parallel unit, chunk and logical block, each in bits of its own.

use super::chunks::{ChunkError, VectorError};
use alloc::vec::Vec;

/// A physical address: where a logical block of 4 KiB lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ppa {
    /// The chunk, drive-wide: `(group * units a group + unit) * chunks a unit + chunk`.
    pub chunk: u32,
    /// The block of the chunk.
    pub block: u32,
}

/// How a logical block address is composed (OCSSD 2.0, "LBA format"): from the highest bits to the lowest group, parallel
/// unit, chunk, logical block. Each part has as many bits as its count needs, so that addresses have gaps where a count is
/// no power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressFormat {
    groups: u32,
    units: u32,
    chunks: u32,
    blocks: u32,
}

/// Bits that numbers below `count` need.
const fn bits(count: u32) -> u8 {
    (u32::BITS - count.saturating_sub(1).leading_zeros()) as u8
}

/// The lowest `count` bits of an address, which are taken off it.
fn part(address: &mut u64, count: u32) -> Option<u32> {
    let width = bits(count);
    let value = (*address & ((1u64 << width) - 1)) as u32;
    *address >>= width;
    (value < count).then_some(value)
}

impl AddressFormat {
    /// Of so many groups, parallel units a group, chunks a unit and blocks a chunk; each at least 1, their product below 2^32.
    pub(crate) const fn new(groups: u32, units: u32, chunks: u32, blocks: u32) -> Self {
        Self { groups, units, chunks, blocks }
    }

    /// Bits of group, parallel unit, chunk and logical block.
    pub const fn widths(&self) -> [u8; 4] {
        [bits(self.groups), bits(self.units), bits(self.chunks), bits(self.blocks)]
    }

    /// One more than the highest address, a power of two: the size of the address space in logical blocks.
    pub fn space(&self) -> u64 {
        1 << self.widths().iter().sum::<u8>()
    }

    /// Chunks of the drive.
    pub const fn chunks(&self) -> u32 {
        self.groups * self.units * self.chunks
    }

    /// Blocks of a chunk.
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The parallel unit of a chunk, drive-wide: `group * units a group + unit`.
    pub const fn unit_of(&self, chunk: u32) -> u32 {
        chunk / self.chunks
    }

    /// The address of a block.
    pub fn encode(&self, at: Ppa) -> u64 {
        let [_, units, chunks, blocks] = self.widths();
        let (unit, chunk) = (at.chunk / self.chunks, at.chunk % self.chunks);
        let (group, unit) = (unit / self.units, unit % self.units);
        let address = u64::from(group) << units | u64::from(unit);
        (address << chunks | u64::from(chunk)) << blocks | u64::from(at.block)
    }

    /// The block of an address; `None`: there is none.
    pub fn decode(&self, address: u64) -> Option<Ppa> {
        let mut rest = address;
        let block = part(&mut rest, self.blocks)?;
        let chunk = part(&mut rest, self.chunks)?;
        let unit = part(&mut rest, self.units)?;
        let group = part(&mut rest, self.groups)?;
        (rest == 0).then(|| Ppa { chunk: (group * self.units + unit) * self.chunks + chunk, block })
    }

    /// The blocks of a list of addresses, appended to `to`.
    ///
    /// # Errors
    /// [`ChunkError::OutOfRange`] with every address that has no block.
    pub fn decode_all(&self, addresses: impl Iterator<Item = u64>, to: &mut Vec<Ppa>) -> Result<(), VectorError> {
        let mut failed = 0;
        for (i, address) in addresses.enumerate() {
            match self.decode(address) {
                Some(at) => to.push(at),
                None => failed |= VectorError::bit(i),
            }
        }
        if failed == 0 { Ok(()) } else { Err(VectorError { error: ChunkError::OutOfRange, failed }) }
    }

    /// Where a block lies among all blocks, without the gaps.
    pub const fn linear(&self, at: Ppa) -> u64 {
        at.chunk as u64 * self.blocks as u64 + at.block as u64
    }
}
