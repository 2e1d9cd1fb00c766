//! Movement: a block goes to another place. Demotion to another class, repair after the loss of a node, and the drain of one are the same steps;
//! they differ in which copies stay and which classes the new ones may be of.
//!
//! ```text
//!   Start ─► Granting ─► Reading ─► Writing ─► Flushing ─► Committing ─► MoveResult::Moved
//!              │            │ copy after copy: a failure, or bytes that are not those of the checksums
//!              └────────────┴── Return what was granted ─► MoveResult::{NoSpace, Unreadable, Corrupt, Failed, Changed}
//! ```
//! The mover is a client: it has a session, grants of its own, and stops when its lease ends. It takes no writer's lease. The commit
//! expects the block as it was when the move began, and that the file has no writer ([`MoveEffect::Commit`]); a file that was
//! written meanwhile keeps its blocks, and what was granted goes back. Readers with an older map read the old copies, which are
//! quarantined by that commit.
//!
//! **What is moved is right**: all bytes are read and compared with the block's checksums before anything is written, also from a
//! copy that stays. New copies are whole and flushed before the commit. A block without a copy that stays gets the generation of its new first copy, and
//! its checksums anew: under an older map its old place reads as an error once it is given out again.
//!
//! What is not here: which blocks are moved (the services look through the index of a region), and how fast (whoever starts moves).

mod event;
mod machine;

#[cfg(test)]
mod tests;

pub use event::{MoveEffect, MoveEvent, MoveId, MoveMemory, MoveOrder, MoveResult};
pub use machine::Movement;
