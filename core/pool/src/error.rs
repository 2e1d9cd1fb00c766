//! What can be wrong, as the user reads it.

use crate::volume::Uuid;
use alloc::string::String;
use core::fmt;

/// What became of an effect that did not succeed, in the words of whoever carried it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectFailure(pub String);

/// Why a pool does not come up. Drives are called as in [`Setup`](crate::Setup).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolOpenError {
    /// No drives, too many, or the same name twice.
    Setup(&'static str),
    /// A drive is too small: what it has and what it takes, in bytes.
    Small(String, u64, u64),
    /// There is something on the drive, and it is no pool's.
    Foreign(String),
    /// Both copies of its metadata are damaged.
    Damaged(String),
    /// Its metadata cannot be read: why.
    Unreadable(String, String),
    /// It cannot be written: why.
    Unwritable(String, String),
    /// Written by another release: its version.
    Version(String, u32),
    /// The pool on it needs what this release has not: the bits of the layout.
    Needs(String, u32),
    /// A drive of another pool: that pool's name and UUID.
    Stranger(String, String, Uuid),
    /// None of the drives that were named is the pool's, and this one is, which was not: its name, and the pool's name and UUID.
    Elsewhere(String, String, Uuid),
    /// The same drive twice, or a copy of it.
    Duplicate(String, String),
    /// Drives that are not there: how many, the first one's number in the pool, its UUID, its size in bytes; and, if there is
    /// one, a drive that is empty instead.
    Missing(usize, u16, Uuid, u64, Option<String>),
    /// Its metadata say it is larger than it is: bytes then and now.
    Truncated(String, u64, u64),
    /// A pool that comes up without a drive if it may, and may not: that drive's name, number, UUID and size in bytes.
    Incomplete(String, u16, Uuid, u64),
    /// The metadata of a drive have no room for what it has to say: that drive, and the lost one because of which it has to say more.
    Full(String, Option<String>),
    /// A drive that is to join is one that the pool serves without: its name, and what it was called.
    IsLost(String, String),
    /// A drive that is to take part again is none that the pool has lost: it says nothing of this pool.
    NoLostDrive(String),
    /// A drive that is to take part again was replaced, or has left the pool.
    HasLeft(String),
    /// Each of these two drives went on without the other.
    Split(String, String),
    /// It has missed what the others have been through.
    Stale(String),
    /// The drives contradict each other: a drive, and in what.
    Inconsistent(String, &'static str),
}

impl fmt::Display for PoolOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // tidy: long because it is a list of messages.
        match self {
            PoolOpenError::Setup(why) => f.write_str(why),
            PoolOpenError::Small(drive, has, least) => {
                write!(f, "drive {drive} has {has} bytes; a drive of a pool has at least {least}")
            }
            PoolOpenError::Foreign(drive) => write!(
                f,
                "drive {drive} is not empty, and what it begins with is no pool's metadata, or both copies of it are damaged; nothing was \
                 written: restore it from a backup, take another drive, or clear its first 128 KiB if nobody needs what is on it"
            ),
            PoolOpenError::Damaged(drive) => write!(
                f,
                "both copies of the metadata on drive {drive} are damaged; nothing was written: restore the drive from a backup, \
                 or clear its first 128 KiB to give up what is on it"
            ),
            PoolOpenError::Unreadable(drive, why) => write!(f, "the metadata on drive {drive} cannot be read: {why}"),
            PoolOpenError::Unwritable(drive, why) => write!(f, "drive {drive} cannot be written: {why}"),
            PoolOpenError::Version(drive, version) => {
                write!(f, "the metadata on drive {drive} has layout {version}, and this release reads layouts 1 to 3")
            }
            PoolOpenError::Needs(drive, needs) => write!(
                f,
                "the pool on drive {drive} uses what this release has not (needs {needs:#x}); nothing was written: start the release that wrote it"
            ),
            PoolOpenError::Stranger(drive, pool, uuid) => {
                write!(f, "drive {drive} belongs to pool {pool} ({uuid}); take it out of this pool's drives")
            }
            PoolOpenError::Elsewhere(drive, pool, uuid) => write!(
                f,
                "none of the drives that are named is pool {pool}'s, and drive {drive} is, which is not named; nothing was written: name \
                 {drive} in the pool's drives; if another pool is to be made, give it another name (there is {pool} with {uuid})"
            ),
            PoolOpenError::Duplicate(one, other) => {
                write!(
                    f,
                    "drives {one} and {other} are the same drive of the pool, or one is a copy of the other; name one"
                )
            }
            PoolOpenError::Missing(count, index, uuid, bytes, empty) => {
                write!(f, "{count} of the pool's drives missing: drive {index} ({uuid}, {bytes} bytes)")?;
                match empty {
                    Some(empty) => {
                        write!(f, "; drive {empty} is empty and cannot take its place: name the drive that had it")
                    }
                    None => f.write_str("; name it in the pool's drives"),
                }
            }
            PoolOpenError::Incomplete(name, number, uuid, bytes) => write!(
                f,
                "drive {name} is missing (number {number}, {uuid}, {bytes} bytes), and the pool may not come up without it (degraded = false): \
                 bring it back, or take that key out of [[pool]]"
            ),
            PoolOpenError::Full(drive, Some(lost)) => write!(
                f,
                "the metadata of drive {drive} have no room to describe the pool's volumes without drive {lost}; nothing was written: bring \
                 drive {lost} back"
            ),
            PoolOpenError::Full(drive, None) => write!(
                f,
                "the metadata of drive {drive} have no room to describe the pool's volumes; nothing was written: start the release that wrote them"
            ),
            PoolOpenError::IsLost(drive, lost) => write!(
                f,
                "drive {drive} is this pool's lost drive {lost}; nothing was changed: weir pool online {drive} takes it in again"
            ),
            PoolOpenError::NoLostDrive(drive) => write!(
                f,
                "drive {drive} is none of this pool's lost drives: it is empty; nothing was changed: bring the lost drive back, or give its place \
                 to this one (weir pool replace LOST {drive})"
            ),
            PoolOpenError::HasLeft(drive) => write!(
                f,
                "drive {drive} was replaced in this pool, or has left it; nothing was changed: weir pool add {drive} makes it another drive of \
                 the pool, which erases it"
            ),
            PoolOpenError::Split(one, other) => write!(
                f,
                "drives {one} and {other} were each used without the other since they were together: what is on them cannot be made one \
                 again; nothing was written: take one of them out of the configuration, start, and give its place to another drive \
                 (weir pool replace)"
            ),
            PoolOpenError::Truncated(drive, then, now) => {
                write!(f, "drive {drive} has {now} bytes and had {then} when the pool was made: it was cut short")
            }
            PoolOpenError::Stale(drive) => write!(
                f,
                "drive {drive} has missed what the pool's other drives have been through: it is an old copy, or was away; nothing was written: \
                 name the drive that took part, or put back copies of all drives of one time"
            ),
            PoolOpenError::Inconsistent(drive, why) => {
                write!(f, "the metadata on drive {drive} contradicts the other drives: {why}")
            }
        }
    }
}

impl core::error::Error for PoolOpenError {}

/// Why a request was refused or came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// The pool did not come up.
    Fault(PoolOpenError),
    /// An effect failed, now or before; nothing is changed before the pool has [recovered](crate::Request::Recover).
    Broken(String),
    /// A drive that was to join and could not be written, and why.
    NotWritten(String, String),
    /// A drive that was to take part again and could not be written, and why.
    StaysLost(String, String),
    /// Its name, and why it cannot be one.
    Name(String, &'static str),
    /// There is one of that name.
    Exists(String),
    /// There is none of that name.
    Unknown(String),
    /// Chunks wanted and free.
    Space(u64, u64),
    /// Chunks wanted on two drives each, and how many there is room for.
    SpaceApart(u64, u64),
    /// So many copies of a volume are not to be had.
    Copies(String),
    /// No other copy of what is to be stale of that volume is readable.
    LastCopy(String),
    /// The second copies of that volume are not what they should be.
    OneCopy(String),
    /// The metadata of that drive have no room for more.
    Full(String),
    /// A size of nothing.
    Empty,
    /// That drive is none of the pool's.
    NoMember(String),
    /// Volumes have chunks of that drive: how many, and one of them.
    InUse(String, usize, String),
    /// A volume has chunks that are lost.
    Degraded(String),
    /// A volume has chunks on a lost drive: the volume, and what the drive was called.
    NotReplaced(String, String),
    /// A volume has lost nothing.
    Sound(String),
    /// A volume's chunks could not be emptied: the drive, and why.
    NotEmptied(String, String),
    /// That drive is lost already.
    Lost(String),
    /// That drive is not lost.
    NotLost(String),
    /// A drive has too little room for what is to lie on it: bytes it has for volumes, and bytes that are to.
    TooSmall(String, u64, u64),
    /// The pool is in a layout that knows no lost drives.
    Layout(String),
    /// That drive is the pool's only one.
    Last(String),
    /// A volume has snapshots: the volume, how many, and one of them.
    HasSnapshots(String, usize, String),
    /// It is a snapshot, which does not change.
    IsSnapshot(String),
    /// It is no snapshot.
    NoSnapshot(String),
    /// Other volumes have chunks of that volume.
    Shares(String),
    /// A chunk could not be copied: the drive, and why.
    NotCopied(String, String),
    /// It has something to do, or is not open.
    Busy,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // tidy: long because it is a list of messages.
        match self {
            PoolError::Fault(fault) => fault.fmt(f),
            PoolError::Broken(why) => write!(
                f,
                "the pool's metadata could not be written ({why}); volumes go on, and the next change of the pool tries it again first"
            ),
            PoolError::NotWritten(drive, why) => {
                write!(f, "drive {drive} cannot be written ({why}); it has not joined the pool")
            }
            PoolError::StaysLost(drive, why) => {
                write!(
                    f,
                    "drive {drive} cannot be written ({why}); it stays lost: see to it, and try again (weir pool online {drive})"
                )
            }
            PoolError::Name(name, why) => write!(f, "\"{name}\": {why}"),
            PoolError::Exists(name) => write!(f, "there is a volume \"{name}\" already; choose another name"),
            PoolError::Unknown(name) => write!(f, "there is no volume \"{name}\""),
            PoolError::Space(wanted, free) => {
                write!(f, "{wanted} MiB are wanted and {free} MiB are free; nothing was changed")
            }
            PoolError::SpaceApart(wanted, free) => write!(
                f,
                "{wanted} MiB are wanted on each of two drives, and there is room for {free} MiB; nothing was changed: add a drive (weir pool add)"
            ),
            PoolError::Copies(copies) => {
                write!(f, "copies: a volume has 1 or 2 copies, not {copies}; nothing was changed")
            }
            PoolError::LastCopy(name) => write!(f, "volume \"{name}\" has no other copy of that; nothing was changed"),
            PoolError::OneCopy(name) => write!(
                f,
                "volume \"{name}\" has one copy of some of its chunks; nothing was changed: wait until the other one is rebuilt, or bring \
                 the lost drive back or replace it (weir pool status says what there is to do)"
            ),
            PoolError::Full(drive) => {
                write!(f, "the metadata of drive {drive} have no room for more; nothing was changed")
            }
            PoolError::Empty => f.write_str("a volume has a size of at least 1 MiB"),
            PoolError::NoMember(drive) => write!(f, "{drive} is no drive of this pool"),
            PoolError::InUse(drive, count, one) => {
                let volumes = if *count == 1 { "volume has" } else { "volumes have" };
                write!(
                    f,
                    "{count} {volumes} chunks on drive {drive} (\"{one}\"); nothing was changed: delete or shrink what lies there first"
                )
            }
            PoolError::Degraded(name) => write!(
                f,
                "volume \"{name}\" has lost chunks with a drive; nothing was changed: give the drive's place to another one (weir pool \
                 replace), and then empty the volume (weir pool replace --empty {name}) or delete it"
            ),
            PoolError::NotReplaced(name, drive) => write!(
                f,
                "volume \"{name}\" has chunks on drive {drive}, which is lost; nothing was changed: bring the drive back, or give its place \
                 to another one first (weir pool replace {drive} NEW)"
            ),
            PoolError::Sound(name) => write!(f, "volume \"{name}\" has lost nothing; nothing was changed"),
            PoolError::NotEmptied(drive, why) => {
                write!(
                    f,
                    "drive {drive} cannot be emptied ({why}); the volume stays as it is: see to the drive, and try again"
                )
            }
            PoolError::Lost(drive) => write!(f, "drive {drive} is lost already; nothing was changed"),
            PoolError::NotLost(drive) => write!(
                f,
                "drive {drive} is not lost; nothing was changed: one that works leaves by weir pool remove, one that fails is taken out \
                 first (weir pool offline {drive})"
            ),
            PoolError::TooSmall(drive, has, least) => {
                let mib = |bytes: &u64| bytes >> 20;
                write!(
                    f,
                    "drive {drive} has {} MiB for volumes, and {} MiB of volumes were on the lost one; nothing was changed: take a larger drive, or \
                     delete volumes that were on it",
                    mib(has),
                    mib(least)
                )
            }
            PoolError::Layout(pool) => write!(
                f,
                "pool {pool} is as an older release has written it, which knows no lost drives; nothing was changed: restart the node once"
            ),
            PoolError::Last(drive) => write!(f, "{drive} is the pool's only drive; nothing was changed"),
            PoolError::HasSnapshots(name, count, one) => {
                let snapshots = if *count == 1 { "a snapshot".into() } else { alloc::format!("{count} snapshots") };
                write!(
                    f,
                    "volume \"{name}\" has {snapshots} ({one}); nothing was changed: delete them first (weir volume delete {one})"
                )
            }
            PoolError::IsSnapshot(name) => {
                write!(
                    f,
                    "\"{name}\" is a snapshot, which does not change; nothing was changed: clone it (weir volume clone {name} NEW)"
                )
            }
            PoolError::NoSnapshot(name) => {
                write!(
                    f,
                    "\"{name}\" is no snapshot; nothing was changed: make one first (weir volume snapshot {name}@NAME)"
                )
            }
            PoolError::Shares(name) => write!(
                f,
                "volume \"{name}\" has chunks in common with its snapshots or clones; nothing was changed: delete these first (weir volume ls)"
            ),
            PoolError::NotCopied(drive, why) => {
                write!(f, "a chunk could not be copied to drive {drive} ({why}); nothing was changed")
            }
            PoolError::Busy => f.write_str("the pool is being opened or changed; try again"),
        }
    }
}

impl core::error::Error for PoolError {}
