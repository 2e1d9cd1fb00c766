//! What goes into the machine and what comes out of it.

use crate::file::{DriveFailure, DriveTicket, FileError, NewBlock};
use crate::records::BlockRecord;
use crate::{ClassId, Extent, InodeId, NamespaceId};
use alloc::vec::Vec;
use weir_units::Nanos;

/// A move, as the caller numbers them; no two under way have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MoveId(pub u64);

/// A block that is to be somewhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveOrder {
    /// The file.
    pub inode: InodeId,
    /// The block's number in the file.
    pub block: u64,
    /// The block as it is published.
    pub record: BlockRecord,
    /// Which of its copies stay, in order.
    pub keep: Vec<Extent>,
    /// Which can be read: of those that stay and those that do not.
    pub sources: Vec<Extent>,
    /// Copies that are to be made: at least one.
    pub make: u8,
    /// The classes that new copies may be of, best first.
    pub classes: Vec<ClassId>,
    /// Until when it has to be done.
    pub deadline: Nanos,
}

/// Memory of a block for each move: reserved when it begins.
pub trait MoveMemory {
    /// Makes memory of so many bytes.
    fn reserve(&mut self, id: MoveId, bytes: u32);
    /// Gives it back: no drive has it any more.
    fn release(&mut self, id: MoveId);
    /// Its bytes.
    fn bytes(&self, id: MoveId) -> &[u8];
}

/// What happens to the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveEvent {
    /// A block is to be moved.
    Start(MoveId, MoveOrder),
    /// A [`MoveEffect::Grant`] was answered: so many copies as were asked for, each of the block's length or longer.
    Granted(MoveId, Result<NewBlock, FileError>),
    /// A command to a drive is over, and its completion has been taken.
    Done(DriveTicket, Result<(), DriveFailure>),
    /// A [`MoveEffect::Commit`] was answered: made, or not made and never will be.
    Committed(MoveId, Result<(), FileError>),
    /// The session's lease was renewed: until when it holds.
    Lease(Nanos),
    /// Time has passed.
    Tick,
}

/// What the machine wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveEffect {
    /// Have copies granted: of that length, of these classes, on none of the nodes that have these copies.
    Grant {
        /// The move.
        id: MoveId,
        /// Bytes of each.
        length: u64,
        /// Copies.
        copies: u8,
        /// Classes, best first.
        classes: Vec<ClassId>,
        /// Copies that stay: theirs are other nodes.
        beside: Vec<Extent>,
    },
    /// Read a copy into the move's memory.
    Read(DriveTicket, MoveId, Extent),
    /// Write a copy from the move's memory.
    Write(DriveTicket, MoveId, Extent),
    /// Make durable what was written to a namespace.
    FlushDrive(DriveTicket, NamespaceId),
    /// End a command, if it can be ended: it is still to be answered.
    Abort(DriveTicket),
    /// Commit that the block is this from now on, if it still is as the order says and the file has no writer. It is tried until it is known
    /// whether it was made.
    Commit {
        /// The move.
        id: MoveId,
        /// The file.
        inode: InodeId,
        /// The block's number in the file.
        block: u64,
        /// What it has to be.
        old: BlockRecord,
        /// What it becomes.
        new: BlockRecord,
    },
    /// Give back what was granted and is not used.
    Return(Vec<Extent>),
    /// A move is over.
    Answer(MoveId, MoveResult),
}

/// What became of a move. But for [`MoveResult::Moved`] the block is where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveResult {
    /// It is where it is to be.
    Moved,
    /// The order cannot be carried out: no source, no copies to make, or an impossible block.
    Malformed,
    /// No class of the order has room.
    NoSpace,
    /// No source could be read.
    Unreadable,
    /// Sources could be read, and none has the bytes of the block's checksums.
    Corrupt,
    /// A new copy could not be written or flushed, or the services did not do what they were asked for.
    Failed,
    /// The file was written meanwhile, or has a writer: order it again.
    Changed,
    /// It was not done in time.
    Deadline,
    /// The session's lease has ended.
    LeaseOver,
}
