//! The client's side of a file's data: what a read or a write of any bytes does to blocks, sectors, copies and checksums.
//!
//! ```text
//!   bytes of a file ─ pieces ─► one piece a block ─ parts ─► whole sectors: from or to the caller's memory, or by a sector of its own
//!   blocks of a file ─ ChunkMap ─► BlockRecord: copies, generation, checksums of 64 KiB ─ BlockSeed ─► what each checksum must be
//! ```
//! A drive reads and writes whole sectors ([`SectorSize`]). A read of other bytes reads the sectors around them and hands on a part. A write
//! of a part of a sector reads the sector first, unless nothing of it was ever written (then the rest of it is zeroes), and writes it as a
//! whole. What is aligned goes from and to the caller's memory without a copy.
//!
//! **Holes.** Bytes that were never written read as zeroes: blocks that no map names, and in a new block what [`WrittenRanges`] has not.
//! Before a new block is published its gaps are filled with zeroes, so that nobody reads what the block had before.
//!
//! **Checksums** are CRC32C of each 64 KiB of a block, seeded with the inode, the block's number and its generation: under a map that
//! is out of date bytes are an error, never those of another file. A read that covers such a unit verifies it.

mod blocks;
mod checksum;
mod split;
mod written;

pub use blocks::{ChunkMap, MapLookup};
pub use checksum::{BlockSeed, Crc32cUpdate};
pub use split::{BlockPiece, PartAction, SectorPart, SectorSize, pieces, read_parts, write_parts};
pub use written::WrittenRanges;
