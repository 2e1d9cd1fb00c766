//! Admin commands that have changed what the drive remembers, and that no [checkpoint](Subsystem::checkpoint) of their controller knows of yet.
//!
//! ```text
//!   taken from the ring ─► executed ─► noted here ─► the drive's state is written, with both ─► checkpoint ─► checkpointed: forgotten
//!                                                       └─ killed: the successor takes the command from the ring again, and answers as noted
//! ```
//! What a drive remembers is written when it has changed, and a controller's checkpoint after that. A process that is killed in between leaves a
//! controller whose command is still to come, and a drive that has its effect: it would create a second namespace. So the effect and the fact are one
//! write. A command is known by its controller's life, its number among the admin commands of that life, and all of its entry.
//!
//! Only commands that must not be carried out twice are noted. Those that set something are carried out again: what they set is their controller's as well,
//! whose checkpoint is older.

use weir_spec::nvme::{Sqe, Status};

/// More than are executed between two checkpoints of all controllers. The oldest go first: those of clients that have never come back.
pub(crate) const MOST: usize = 1024;

/// An admin command that was taken from a ring: which one of its controller's life, from 1 on; 0: it is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub number: u64,
    pub sqe: Sqe,
}

/// One that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Executed {
    pub life: u64,
    pub number: u64,
    pub words: [u64; 8],
    pub status: Status,
    pub result: u64,
}
