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
//!
//! ```text
//!   FileEvent ─► FileIo::apply ─► FileEffect::{Fetch, Grant, Unsettle, MarkOut, Publish} ─► the file's owner
//!                              ─► FileEffect::{Read, Write, FlushDrive, Abort} ─► drives ─► FileEvent::Done
//!                              ─► FileEffect::Answer: the memory is the caller's again
//! ```
//! [`FileIo`] is an open file of one client. Pieces in one block go on in the order in which they came, reads beside each other, and writes of whole
//! sectors beside others ([order]); those in different blocks in any order. The machine names memory ([`FileBuffer`]) and the caller moves the bytes; what answers at once is a
//! port ([`FileMemory`]).
//!
//! **Writes** go to all copies and are acknowledged when all that are left have it. A copy that has failed is marked out by a commit that
//! is answered before; if all fail, the write fails and none is marked. Before the first write over published bytes of a block it is marked
//! as unsettled, so that nobody trusts its checksums. Before the first write over a part of a unit of checksums the unit is compared with its own, so
//! that no damage gets a checksum of its own with the flush. A write behind the end of a block that was cut takes a new block, and copies.
//!
//! **A flush** publishes: zeroes in the gaps of new blocks, checksums, a flush of every namespace, then size and blocks in one commit. Others
//! see a size only then. A write or flush that has failed in a way that leaves copies or the commit unknown ends all further writes
//! of this open file, with the first cause: recovery settles the blocks. A long stream of writes is published from its beginning on while it goes on
//! ([`FileEvent::FlushBeginning`]).
//!
//! **Epochs.** A block is another file's when all clients have said that they know no older map and have no I/O under one. [`FileIo::oldest`] is
//! what this file has to say about that; [`FileEvent::Forget`] has it let go.
//!
//! **Leases and deadlines**: nothing begins after the lease has ended, and nothing that a drive has done counts after it. What is late is
//! aborted, and answered when no drive has its memory any more.
//!
//! What is not here: truncate (a change of the map alone but for the rest of its last block), inline files (tree), prefetch of maps,
//! buffered streams, and repair of a copy.

mod asked;
mod beginning;
mod blocks;
mod checksum;
mod compare;
mod epochs;
mod event;
mod flush;
mod grow;
mod io;
mod local;
mod marks;
mod order;
mod piece;
mod reconnect;
mod split;
mod unit;
mod written;

#[cfg(test)]
pub(crate) mod tests;

pub use asked::ShortBlock;
pub use blocks::{ChunkMap, MapLookup};
pub use checksum::{BlockSeed, Crc32cUpdate};
pub use event::{
    DriveFailure, DriveTicket, FileBuffer, FileEffect, FileError, FileEvent, FileMemory, FileOpId, NewBlock,
};
pub use io::{FileIo, FileSetup};
pub use marks::OwnMarks;
pub use split::{BlockPiece, PartAction, SectorPart, SectorSize, pieces, read_parts, write_parts};
pub use written::WrittenRanges;
