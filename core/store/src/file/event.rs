//! What goes into a file's machine and what comes out of it.

use crate::error::StoreError;
use crate::records::{BlockRecord, MapChunk};
use crate::space::Epoch;
use crate::{Extent, Generation, NamespaceId};
use alloc::vec::Vec;
use core::fmt;
use weir_units::Nanos;

/// A read, write or flush, as the caller numbers them; no two under way have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileOpId(pub u64);

/// A command to a drive, as the machine numbers them; no number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DriveTicket(pub u64);

/// Where bytes are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileBuffer {
    /// The caller's memory of an operation, from that byte on.
    Caller(FileOpId, u64),
    /// Memory of the machine's own, by number, from that byte on: at most a block.
    Own(u64, u32),
}

/// Memory that answers at once.
pub trait FileMemory {
    /// Makes memory of the machine's own of so many bytes, all zero. A number is used once.
    fn reserve(&mut self, number: u64, bytes: u32);
    /// Gives it back.
    fn release(&mut self, number: u64);
    /// Copies bytes.
    fn copy(&mut self, from: FileBuffer, to: FileBuffer, len: u32);
    /// Makes bytes zero.
    fn zero(&mut self, at: FileBuffer, len: u32);
    /// Goes on with a CRC32C, as [`Crc32cUpdate`](super::Crc32cUpdate) does.
    fn checksum(&mut self, so_far: u32, at: FileBuffer, len: u32) -> u32;
}

/// A drive did not do what it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveFailure;

/// A block that was granted for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBlock {
    /// Where its copies are: a whole block each, or whole grains of 4 KiB of one length.
    pub copies: Vec<Extent>,
    /// Seeds its checksums: the first copy's.
    pub generation: Generation,
}

/// What happens to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileEvent {
    /// Bytes are to be read into the caller's memory: from where, how many, and until when that has to be done.
    Read(FileOpId, u64, u32, Nanos),
    /// Bytes are to be written from the caller's memory.
    Write(FileOpId, u64, u32, Nanos),
    /// The same, and nothing is written behind it before the file is closed, as far as is known: its last block is no longer than it has to be.
    WriteLast(FileOpId, u64, u32, Nanos),
    /// What was written is to be published; when the file is closed its last block is cut to what it holds.
    Flush(FileOpId, bool, Nanos),
    /// New blocks that were written to their end, from the first on and up to the first that a write is still to come to, are to be published while other
    /// writes go on.
    FlushBeginning(FileOpId, Nanos),
    /// A [`FileEffect::Fetch`] was answered.
    Chunk(u32, Result<(MapChunk, Epoch), FileError>),
    /// A [`FileEffect::Grant`] or [`FileEffect::GrantShort`] was answered.
    Granted(u64, Result<NewBlock, FileError>),
    /// The commit of a [`FileEffect::Unsettle`] was answered.
    Unsettled(u64, Result<(), FileError>),
    /// The commit of a [`FileEffect::MarkOut`] was answered.
    MarkedOut(u64, Result<(), FileError>),
    /// The commit of a [`FileEffect::Publish`] was answered.
    Published(Result<(), FileError>),
    /// It was refused: what of its blocks was granted to the session is so still.
    NotPublished(FileError),
    /// A command to a drive is over, and its completion has been taken.
    Done(DriveTicket, Result<(), DriveFailure>),
    /// The session's lease was renewed: until when it holds.
    Lease(Nanos),
    /// The session is over before its lease is: nothing is sent any more, and nothing counts that a drive does.
    LeaseOver,
    /// A drive that has a volatile write cache was connected to again: said before the end of any command that it has carried out since.
    Reconnected(NamespaceId),
    /// What is known of where that block is may be out of date: a read of it has failed.
    Refetch(u64),
    /// Maps that are older than this epoch are to be let go of ([`HolderEffect::Forget`](crate::members::HolderEffect::Forget)). When that is
    /// done [`FileIo::oldest`](super::FileIo::oldest) says.
    Forget(Epoch),
    /// Time has passed.
    Tick,
}

/// What the machine wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileEffect {
    /// Ask the file's owner for a chunk of the map.
    Fetch(u32),
    /// Have a block granted; its number in the file. Where there is no whole one it may have as little as [`FileIo::needs`](super::FileIo::needs) says.
    Grant(u64),
    /// Have a block granted that has as much as it needs, if that is less than a whole one.
    GrantShort(u64),
    /// Commit that published bytes of a block are about to be written over.
    Unsettle(u64),
    /// Commit that a block has these copies and no others: a write of the others has failed.
    MarkOut(u64, Vec<Extent>),
    /// Commit the size, and these blocks: settled, with their checksums. Blocks that were there before have given up their old extents. A flush
    /// may have several of these, each when the one before was answered: so many blocks as fit into a commit, in their order, and a size that
    /// grows only to what is published.
    Publish(u64, Vec<(u64, BlockRecord)>),
    /// Read whole sectors.
    Read(DriveTicket, Extent, FileBuffer),
    /// Write whole sectors.
    Write(DriveTicket, Extent, FileBuffer),
    /// Make durable what was written to a namespace.
    FlushDrive(DriveTicket, NamespaceId),
    /// End a command, if it can be ended: it is still to be answered, by a failure or as done.
    Abort(DriveTicket),
    /// An operation is over, and its memory is the caller's again: how many bytes were read or written.
    Answer(FileOpId, Result<u32, FileError>),
}

/// Why an operation came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileError {
    /// It would go beyond the largest file (2^32 chunks of its map, and 2^64 - 1 bytes).
    TooFar,
    /// It has not been done in time. A write may have been done in part; the file takes no more writes.
    Deadline,
    /// The session's lease has ended: what was read may be another file's, what was written is not published.
    LeaseOver,
    /// No copy of a block can be read.
    Unreadable(u64),
    /// No copy of a block has the bytes that its checksums are of.
    Corrupt(u64),
    /// No copy of a block could be written; the file takes no more writes.
    Unwritable(u64),
    /// The block was being written over when its writer was lost; it can be read when it has been recovered.
    Unsettled(u64),
    /// The map of the file cannot be.
    BadMap,
    /// A block that was changed here was replaced or given up by others in the meantime; the file takes no more writes.
    Replaced(u64),
    /// The file's blocks have a size that no block has.
    BlockSize(u32),
    /// No class of the file has room.
    NoSpace,
    /// There is room for so many copies of a block, one at least, and none on a further node.
    TooFewNodes(u8),
    /// The metadata service did not do what it was asked for.
    Metadata,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::TooFar => f.write_str("the file cannot be so large"),
            FileError::Deadline => f.write_str("it was not done before its deadline"),
            FileError::LeaseOver => f.write_str("the client's session has ended; open the file again"),
            FileError::Unreadable(block) => write!(f, "no copy of block {block} can be read"),
            FileError::Corrupt(block) => {
                write!(f, "no copy of block {block} has the bytes that were written to it; run weir fs scrub")
            }
            FileError::Unwritable(block) => write!(f, "no copy of block {block} can be written; open the file again"),
            FileError::Unsettled(block) => {
                write!(f, "block {block} is being recovered after its writer was lost; try again")
            }
            FileError::BadMap => f.write_str("the file's map contradicts itself; run weir store fsck"),
            FileError::Replaced(block) => {
                write!(f, "block {block} was replaced while it was being written; open the file again")
            }
            FileError::BlockSize(bytes) => {
                write!(f, "the file's blocks cannot have {bytes} bytes; run weir store fsck")
            }
            FileError::NoSpace => f.write_str("no class of the file has room"),
            FileError::TooFewNodes(placed) => StoreError::TooFewNodes(*placed).fmt(f),
            FileError::Metadata => f.write_str("the metadata service has refused the change, or does not answer"),
        }
    }
}

impl core::error::Error for FileError {}
