//! What of a drive's commands is not decided yet.

use crate::scheduler::WaitId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use weir_units::Nanos;

/// A unit on its way into the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingUnit {
    pub(crate) lpn: u32,
    /// It is its command's first.
    pub(crate) begins: bool,
    pub(crate) hint: u8,
    /// The entry of the map is in memory.
    pub(crate) ready: bool,
    /// It is programmed at once, and its command waits for that.
    pub(crate) through: bool,
    pub(crate) wait: WaitId,
}

/// A flush: the programs that it waits for are those before `number`, `left` of which are under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingFlush {
    pub(crate) number: u64,
    pub(crate) left: u64,
    pub(crate) wait: WaitId,
}

/// What is not decided yet.
#[derive(Debug, Default)]
pub(crate) struct PendingCommands {
    /// In the order in which their commands came.
    pub(crate) units: VecDeque<WaitingUnit>,
    /// The ticket of the first of them.
    pub(crate) first: u32,
    /// Programs of the host's data under way.
    pub(crate) programs: u64,
    pub(crate) flushes: Vec<PendingFlush>,
    pub(crate) told: VecDeque<(u64, Nanos)>,
}
