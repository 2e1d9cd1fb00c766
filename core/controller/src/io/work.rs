//! What is left of a command that is not one I/O: ranges, pieces, and what follows from its end.

use crate::event::Op;
use crate::host::DataPointer;
use crate::namespace::metadata::Metadata;
use crate::queues::command::{Command, CommandWords};
use crate::vendor::VendorWork;
use crate::zns::ZonedOp;
use alloc::vec::Vec;
use weir_flash::When;

/// The ranges of one dataset management command or zone reset, as bytes of the media.
#[derive(Clone, Debug)]
pub(crate) struct Ranges {
    pub list: Vec<(u64, u64)>,
    pub next: usize,
    /// What a command on a zoned namespace owes.
    pub zoned: Option<ZonedOp>,
    /// What is left of a vendor's command.
    pub vendor: Option<VendorWork>,
    /// Metadata of its blocks.
    pub metadata: Option<Metadata>,
    /// Of a copy: that of the blocks which it reads now.
    pub source: Option<Metadata>,
    /// What is left of a command of several steps, and what follows from its end.
    pub steps: Option<RemainingWork>,
}

impl Ranges {
    pub fn push(&mut self, offset: u64, len: u64) {
        self.list.push((offset, len));
    }

    /// Whether its command has changed something already, so that it cannot be aborted.
    pub fn is_begun(&self) -> bool {
        self.zoned.is_some() || self.vendor.is_some() || self.steps.is_some()
    }

    /// All ranges, as bytes of the media; what was taken already is missing.
    pub fn all(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.list.iter().copied()
    }

    /// Appends a range, to the last one if it follows it.
    pub fn extend(&mut self, offset: u64, len: u64) {
        match self.list.last_mut() {
            Some((start, length)) if *start + *length == offset => *length += len,
            _ => self.push(offset, len),
        }
    }

    /// The next piece, no longer than an I/O can be.
    pub fn next(&mut self) -> Option<(u64, u32)> {
        let (offset, len) = self.list.get_mut(self.next)?;
        let piece = (*len).min(PIECE);
        let answer = (*offset, piece as u32);
        (*offset, *len) = (*offset + piece, *len - piece);
        if *len == 0 {
            self.next += 1;
        }
        Some(answer)
    }
}

/// The most that one deallocation touches.
pub(crate) const PIECE: u64 = 1 << 30;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WorkStep {
    /// Until then, for what has been begun already.
    Until(When),
    /// Move these bytes.
    Move(WorkPiece),
}

/// Bytes to be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkPiece {
    pub op: Op,
    pub offset: u64,
    pub len: u32,
    pub data: DataPointer,
    /// Where its bytes begin in `data`.
    pub skip: u32,
    pub fua: bool,
    /// The drive's inside takes time for it when it begins; not for what has been booked before.
    pub timed: bool,
    /// Metadata of its blocks, and of those that a copy reads.
    pub metadata: Option<Metadata>,
    pub source: Option<Metadata>,
}

/// What is left of a command.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemainingWork {
    /// The next one last.
    pub todo: Vec<WorkStep>,
    /// The second command of a pair, which ends when the first does.
    pub second: Option<Partner>,
    /// Blocks, by start and end, that are readable again when it has succeeded.
    pub heals: Vec<(u64, u64)>,
    /// Nobody else reads or writes its blocks.
    pub alone: bool,
    /// Namespaces that a copy reads, beside the one that it writes.
    pub reads: Vec<u32>,
}

/// The second command of a pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partner {
    pub queue: u32,
    pub command: Command,
    pub data: DataPointer,
    /// What is kept of its entry where a namespace has metadata.
    pub words: CommandWords,
}
