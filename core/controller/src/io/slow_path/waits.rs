//! Commands with a slot that wait for others: a fused pair until nobody writes its blocks, writes of others until it is done, and
//! a preempt-and-abort for the commands that it could not abort any more.
//!
//! ```text
//!  start ─▶ wait: slot, Held ─▶ (at each turn: nobody before it, none of those it waits for) ─▶ start again
//! ```
//! Who waits, waits only for commands that are under way or that wait before it, so there is always one that goes on.

use crate::io::slots::{Slot, SlotState};
use crate::io::starting::Starting;
use crate::io::work::Partner;
use crate::queues::command::{Command, flag};
use alloc::vec::Vec;
use weir_spec::nvme::IoOpcode;

/// Blocks of a namespace, from `first` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRange {
    pub nsid: u32,
    pub first: u64,
    pub end: u64,
}

impl BlockRange {
    /// The blocks that a command changes: of a list of ranges, all.
    pub fn of(command: &Command) -> BlockRange {
        let listed = command.opcode == IoOpcode::DATASET_MANAGEMENT.0 && !command.is(flag::RANGE)
            || command.opcode == IoOpcode::COPY.0;
        let (first, end) = match listed {
            true => (0, u64::MAX),
            false => (command.slba, command.slba.saturating_add(command.unplaced().blocks.into())),
        };
        BlockRange { nsid: command.nsid, first, end }
    }

    /// Whether they have blocks in common.
    pub fn meets(&self, other: &BlockRange) -> bool {
        self.nsid == other.nsid && self.first < other.end && other.first < self.end
    }
}

/// A pair, or a copy that is atomic, under way: nobody else writes its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock {
    pub slot: u32,
    pub nsid: u32,
    pub extent: BlockRange,
    /// Nobody else reads them either.
    pub alone: bool,
}

/// What somebody waits for.
#[derive(Clone, Debug)]
pub(crate) enum For {
    /// A pair: that nobody writes its blocks.
    Writes(BlockRange),
    /// A copy that is atomic: that nobody reads or writes its blocks.
    All(BlockRange),
    /// Somebody who writes: the pairs that hold its blocks.
    Pairs(BlockRange),
    /// Somebody who reads: the copies that hold its blocks.
    Copies(BlockRange),
    /// Preempt-and-abort: the commands in these slots.
    Slots(Vec<u32>),
}

/// Who waits.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub slot: u32,
    pub starting: Starting,
    /// Of a pair.
    pub partner: Option<Partner>,
    pub what: For,
}

impl Wait {
    /// Whether commands of a namespace have to look at it.
    pub fn holds_up(&self, nsid: u32) -> bool {
        self.extent().is_some_and(|e| e.nsid == nsid)
    }

    pub fn extent(&self) -> Option<&BlockRange> {
        match &self.what {
            For::Writes(extent) | For::All(extent) | For::Pairs(extent) => Some(extent),
            For::Copies(_) | For::Slots(_) => None,
        }
    }
}

/// Whether the command in a slot is under way, in the namespace of these blocks.
fn is_under_way(slot: &Slot, extent: &BlockRange) -> bool {
    let under_way = matches!(slot.state, SlotState::Timed | SlotState::Ready | SlotState::Issued);
    under_way && slot.nsid == extent.nsid
}

/// Whether the command in a slot is under way and reads some of these blocks, for its host.
pub(crate) fn reads(slot: &Slot, extent: &BlockRange, shift: u32) -> bool {
    let reads = matches!(IoOpcode(slot.opcode), IoOpcode::READ | IoOpcode::COMPARE);
    let end = slot.slba.saturating_add(u64::from(slot.bytes >> shift));
    reads && is_under_way(slot, extent) && extent.meets(&BlockRange { nsid: slot.nsid, first: slot.slba, end })
}

/// Whether the command in a slot is under way and changes some of these blocks.
pub(crate) fn changes(slot: &Slot, extent: &BlockRange, shift: u32) -> bool {
    if !is_under_way(slot, extent) {
        return false;
    }
    match IoOpcode(slot.opcode) {
        IoOpcode::READ | IoOpcode::COMPARE | IoOpcode::VERIFY | IoOpcode::FLUSH => false,
        IoOpcode::WRITE => {
            let end = slot.slba.saturating_add(u64::from(slot.bytes >> shift));
            extent.meets(&BlockRange { nsid: slot.nsid, first: slot.slba, end })
        }
        // How far it reaches is not kept.
        _ => true,
    }
}
