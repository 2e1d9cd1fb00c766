#![no_std]
#![forbid(unsafe_code)]
//! Drives -> volumes: a pool divides its drives into chunks of 1 MiB, hands them out by a buddy system, and writes on each drive
//! which of that drive's chunks are whose. After Spool (USENIX ATC 2020), section 3, "Storage pool": a pool is found again from its
//! drives alone. Depends on `weir-codec` only.
//!
//! ```text
//!  PoolRequest ─► Pool::apply ─► PoolEffect::{Read, Write, Flush, Unmap} ─► the caller does it ─► PoolEvent::Done ─► … ─► PoolEffect::Finished
//!
//!  a drive   │ metadata: two copies in turns of 64 KiB │ chunk │ chunk │ chunk │ …
//!  a copy    │ entry 0: all there is │ entry 1: what changed │ entry 2 │ …          blocks of 4 KiB, each with a CRC32C
//! ```
//! `apply` gives one effect at a time and is given its outcome, so a crash is a place in a list. An entry counts when all its blocks are
//! whole; it is written to one copy and flushed, then to the other. When a copy is full, or the pool is opened, both are begun anew,
//! one after the other, with an entry 0 of a higher generation. Of two copies the one that reaches further counts.
//!
//! **A change of several drives** has one commit point: the entry of the volume's *home*, the drive of its first chunk. A volume's record
//! at home names the other drives that it has chunks of, and the version of its record there. The others are written before the home,
//! beside what they had; which of the two counts is what home says. So they go forward or back when the pool is assembled. A
//! volume is deleted by deleting its record at home.
//!
//! **Chunks that were somebody's** are unmapped, and the drive flushed, before anybody else gets them; then the drive's
//! metadata are begun anew without them. What the metadata says was given up, and does not say is in use, is unmapped when the pool is opened: what a
//! crash left, or a drive that did not unmap. All of a drive is when the pool is made.
//!
//! **Drives come and go.** Every change of who is a drive of the pool is told to all of them by a header with one more opening, and counts from the
//! first of those on that were there before and stay. A drive that joins has heard of it by then, as one of a pool that was never
//! opened, which by itself is nothing; a drive that has left is not among those that the newest header names, and is then told the same.
//!
//! **Old copies** of a drive are refused. A drive says of each other one how far its entries went when it was written itself; an opening ends with an
//! entry on every drive, and volumes are served after that; a change and a closing end with an entry on a drive that knows of the last one. Entries are told of when they are durable: what a crash leaves goes as far as
//! any drive says.
//!
//! **A write that fails** while the pool is opened is tried twice more, each time from the beginning, before the pool is opened without that drive.
//! Later it keeps the pool from further changes until it has recovered: all drives are written anew with what memory knows.
//!
//! **A drive that is lost**: every volume is described on two drives, its *home* and that one's *mirror*. So a pool comes up without any one of its
//! drives, and with that told to the others it can lose the next; two at once are refused, and so is an opening that some drive's metadata have no room for. Chunks there are in error. The drive takes
//! part again when it is back at an opening, or while the pool is up (see `online.rs`), and nothing of it was missed; one that went on by itself is
//! refused. An empty drive that takes its place
//! has *stale* chunks for what volumes had there, in error too, until the volume is emptied and gets another UUID.
//!
//! **Two copies**: of a volume that wants it each chunk is on two drives. Home and mirror say which regions may be written, where the copies may
//! differ after a crash, and which chunks of which copy are stale, to be rebuilt from the other one; see `copies.rs`.
//!
//! **Snapshots and clones** have chunks in common with their volume, which gets a chunk of its own before the first write of it; see `sharing.rs`.
//!
//! What it leaves out: volumes that move from one drive to another, more copies than two, snapshots of volumes with two copies.
//! Limits: 256 drives of 4 PiB, 64 characters of a name. The metadata takes 2 MiB or a 2048th of the drive, whichever is
//! more: room for as many volumes as it has chunks, if the names of a volume and its tenant have 60 characters together.

extern crate alloc;
#[cfg(test)]
extern crate std;

mod assemble;
mod block;
mod buddy;
mod change;
mod change_plan;
mod check;
mod choice;
mod copies;
mod drive;
mod effect_failure;
mod error;
mod event;
mod extent;
mod members;
mod online;
mod opening;
mod pairs;
mod pool;
mod record;
mod report;
mod sharing;
mod volume;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use block::{BLOCK, Crc32c, MAGIC, STRIPE};
pub use copies::{CopyHealth, REGION};
pub use drive::usable;
pub use error::{EffectFailure, PoolError, PoolOpenError};
pub use event::{PoolAnswer, PoolEffect, PoolEvent, PoolRequest, Setup, SetupDrive};
pub use extent::{CHUNK, ChunkRun, CopyState, SegmentCopy, VolumeSegment};
pub use pairs::Rebuilt;
pub use pool::Pool;
pub use volume::{NAME_MAX, SNAPSHOT_MARK, Uuid, Volume, VolumeId, check_name};
