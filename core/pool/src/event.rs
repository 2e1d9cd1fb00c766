//! What goes into the machine and what comes out of it.

use crate::block::Crc32c;
use crate::error::{EffectFailure, PoolError};
use crate::extent::ChunkRun;
use crate::volume::{Uuid, VolumeId};
use alloc::string::String;
use alloc::vec::Vec;

/// A drive that a pool is set up with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupDrive {
    /// What messages call it.
    pub name: String,
    /// Its size in bytes; what is no whole chunk is not used.
    pub bytes: u64,
    /// It was named for this pool. One that was not is the pool's if it has joined it, and else left alone, whatever is on it.
    pub named: bool,
}

/// What a pool is set up with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The pool's name, which is on its drives.
    pub name: String,
    /// All its drives, in any order. A drive's place in this list is what effects and segments name.
    pub drives: Vec<SetupDrive>,
    /// Should the pool be made: its UUID and one for each drive, never used before.
    pub fresh: Vec<Uuid>,
    /// CRC32C.
    pub crc: Crc32c,
    /// A pool that an older release has written stays in its layout: that release may get it back.
    pub keeps_layout: bool,
    /// The pool does not come up without one of its drives.
    pub whole: bool,
}

/// What happens to a pool.
#[derive(Clone, Debug)]
pub enum PoolEvent {
    /// First of all: find or make the pool.
    Open,
    /// Change something.
    Request(PoolRequest),
    /// The effect before this was carried out: the bytes of a read, nothing else otherwise.
    Done(Result<Vec<u8>, EffectFailure>),
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolRequest {
    /// A new volume, which reads as zeroes.
    Create {
        /// Its name.
        name: String,
        /// Whose it is.
        tenant: String,
        /// Its own UUID.
        uuid: Uuid,
        /// Its size.
        chunks: u32,
        /// How many drives have each chunk: 1 or 2.
        copies: u8,
    },
    /// Another size; what is cut off is gone, what is added reads as zeroes.
    Resize {
        /// Which.
        name: String,
        /// The new size.
        chunks: u32,
    },
    /// Another name.
    Rename {
        /// Which.
        name: String,
        /// The new name.
        to: String,
    },
    /// It is gone.
    Delete {
        /// Which.
        name: String,
    },
    /// A drive joins the pool. Its place is [`Pool::place_for`] it, also if nothing comes of it.
    Join {
        /// The drive.
        drive: SetupDrive,
        /// Its UUID, never used before.
        uuid: Uuid,
    },
    /// A drive that no volume has chunks of leaves the pool; it is empty then.
    Leave {
        /// Its number in the pool. It may be lost.
        number: u16,
    },
    /// The pool serves without a drive from now on, as if it were lost: what lies on it fails. It is not written.
    TakeOut {
        /// Its number in the pool.
        number: u16,
    },
    /// A drive that was lost is there again, and takes part: which one it is, what is on it says. What it has missed of volumes with two copies is
    /// stale, and is so until [it is in use](crate::Pool::is_in_use) whatever is written meanwhile.
    Online {
        /// The drive. Its place is [`Pool::place_for`] it, also if nothing comes of it.
        drive: SetupDrive,
    },
    /// An empty drive takes the place of a lost one. Volumes get chunks of it for those that they have lost, which are not readable before the
    /// volume is [emptied](Self::Empty).
    Replace {
        /// Number of the lost drive.
        number: u16,
        /// The new one. Its place is [`Pool::place_for`] it, also if nothing comes of it.
        drive: SetupDrive,
        /// Its UUID, never used before.
        uuid: Uuid,
    },
    /// None of the chunks of a volume is readable from now on, of which some are not: it is to be emptied.
    Abandon {
        /// Which.
        name: String,
    },
    /// A volume that was [abandoned](Self::Abandon) reads as zeroes, and is another one for its hosts.
    Empty {
        /// Which.
        name: String,
        /// Its new UUID, never used before.
        uuid: Uuid,
    },
    /// A volume that never changes, `NAME@SNAPSHOT`, with what a volume of one copy has at the moment. Nothing writes the volume meanwhile, and after
    /// that nothing writes chunks that are [shared](crate::VolumeSegment::shared).
    Snapshot {
        /// Of which volume.
        name: String,
        /// The name behind the mark.
        snapshot: String,
        /// Its own UUID, never used before.
        uuid: Uuid,
    },
    /// A new volume with what a snapshot has.
    Clone {
        /// The snapshot, `NAME@SNAPSHOT`.
        snapshot: String,
        /// Its name.
        name: String,
        /// Whose it is.
        tenant: String,
        /// Its own UUID, never used before.
        uuid: Uuid,
    },
    /// The volume of a snapshot has again what it had then, its size too; what it has had since is gone. Nobody uses it meanwhile.
    Rollback {
        /// The snapshot, `NAME@SNAPSHOT`.
        snapshot: String,
    },
    /// Chunks of a volume are its own from then on, with what they have at the moment: those that other volumes have too are copied. Nothing writes
    /// these meanwhile.
    Unshare {
        /// Which.
        id: VolumeId,
        /// Chunks of the volume.
        runs: Vec<ChunkRun>,
    },
    /// Chunks of a volume with two copies are about to be written: after a crash its copies may differ in their [regions](crate::REGION).
    Written {
        /// Which.
        id: VolumeId,
        /// Chunks of the volume.
        runs: Vec<ChunkRun>,
    },
    /// In all regions of these chunks nothing is being written, and what was written is the same in both copies. It is flushed first. While a
    /// drive of the volume is lost nothing is changed.
    Settled {
        /// Which.
        id: VolumeId,
        /// Chunks of the volume.
        runs: Vec<ChunkRun>,
    },
    /// A copy does not have what was written last, and the other one does. Nothing is changed if the drive is lost.
    MarkStale {
        /// Which volume.
        id: VolumeId,
        /// Place of the drive.
        drive: usize,
        /// Chunks of the volume.
        runs: Vec<ChunkRun>,
    },
    /// A copy has been rebuilt. It is flushed first.
    MarkFresh {
        /// Which volume.
        id: VolumeId,
        /// Place of the drive.
        drive: usize,
        /// Chunks of the volume.
        runs: Vec<ChunkRun>,
    },
    /// Has the drives say what memory knows, after an effect that failed: a change that had not counted is undone, one that had goes on.
    Recover,
    /// The last: all drives are told that nothing is written any more.
    Close,
}

/// What a pool wants done before anything else happens to it; offsets and lengths in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolEffect {
    /// Read, and give the bytes back.
    Read {
        /// Place of the drive.
        drive: usize,
        /// From where.
        offset: u64,
        /// How much.
        len: u32,
    },
    /// Write.
    Write {
        /// Place of the drive.
        drive: usize,
        /// Where: a multiple of [`crate::BLOCK`].
        offset: u64,
        /// Whole blocks, [`crate::STRIPE`] at the most.
        bytes: Vec<u8>,
    },
    /// Make durable what was written and unmapped.
    Flush {
        /// Place of the drive.
        drive: usize,
    },
    /// Deallocate; it reads as zeroes afterwards.
    Unmap {
        /// Place of the drive.
        drive: usize,
        /// From where: whole chunks.
        offset: u64,
        /// How much.
        len: u64,
    },
    /// Copy a chunk; what it is copied to is not durable before a flush.
    Copy {
        /// Place of the drive that has it.
        from: usize,
        /// Where it begins there.
        from_offset: u64,
        /// Place of the drive that gets it.
        to: usize,
        /// Where it begins there.
        to_offset: u64,
        /// Bytes: a chunk.
        len: u64,
    },
    /// The last request is over.
    Finished(Result<PoolAnswer, PoolError>),
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolAnswer {
    /// The pool is up; whether it was made.
    Open {
        /// It is new.
        fresh: bool,
        /// It was [closed](PoolRequest::Close) and is as it was then.
        clean: bool,
    },
    /// The volume, as it is or, deleted, as it was.
    Volume(VolumeId),
    /// The drive that has joined or left: its place.
    Drive(usize),
    /// Every drive says what memory knows.
    Recovered,
    /// Every drive has been told.
    Closed,
}
