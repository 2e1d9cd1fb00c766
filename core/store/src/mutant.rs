//! Planted faults: each breaks one rule that the store rests on, and a test shows that the checks of its machine find it.

/// A rule that is not kept. Shipped code has none: see [`Planted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mutant {
    /// Space: freed bytes are free at once.
    NoQuarantine,
    /// Space: freed bytes are free when all sessions have acknowledged it, durable or not.
    ReuseBeforeDurable,
    /// Space: a block that is cut, or replaced by another one, is free at once.
    TailWithoutQuarantine,
    /// Space: the epoch that sessions have to acknowledge is the one that was current when the bytes were freed.
    EpochNotAdvanced,
    /// Space: a grant is answered before its commit is.
    GrantBeforeCommit,
    /// Space: a region is taken over without its term being raised.
    TakeoverKeepsTerm,
    /// Space: a takeover frees what is granted to sessions.
    TakeoverFreesGrants,
    /// Space: a commit of unknown outcome counts as one that was not made.
    UnknownIsConflict,
    /// Space: a commit of unknown outcome is looked for before the term is raised.
    ProbeBeforeRaise,
    /// Space: a takeover frees what is in quarantine.
    TakeoverFreesQuarantine,
    /// Space: a raise of the epoch counts for what was freed after it was sent.
    AnyRaiseCounts,
    /// Space: an answer to what was asked for a region counts when the region was lost and taken again.
    AnswerOfAnotherLife,
    /// Placement: the next class is taken before other services were asked.
    ClassWithoutForward,
    /// Placement: the next class is taken before free regions were leased.
    ClassWithoutFreeRegions,
    /// Placement: the next class is taken before the directory of regions was read again.
    ClassWithoutLastLook,
    /// Placement: two copies may be on one node.
    CopiesTogether,
    /// Members: the holder counts its lease from the answer to its renewal.
    LeaseFromAnswer,
    /// Members: the holder acknowledges an epoch while it has older maps.
    AcknowledgeBeforeForget,
    /// Members: a lease is over for others as soon as it is for its holder.
    WatchWithoutMargin,
    /// Members: a session has no hold record before its first renewal.
    OpenedWithoutHold,
    /// Members: a session counts as fenced as soon as it cannot renew any more.
    EndedBeforeFenced,
    /// Members: sessions that are being fenced do not hold the horizon back.
    HorizonWithoutFencing,
    /// Members: what is granted to a session that this service has not seen is not watched.
    GrantsNotWatched,
    /// Members: a session with grants is looked for in what was read before it began.
    GrantsWatchedAtOnce,
    /// File: a write is acknowledged before the copies that have failed are marked out.
    AcknowledgeBeforeMark,
    /// File: published bytes are written over before their block is marked as unsettled.
    WriteBeforeUnsettle,
    /// File: the lease is looked at before a command is sent, and not when it is done.
    LeaseCheckedBeforeOnly,
    /// File: what waits for a block, a chunk or its turn is sent although the lease has ended meanwhile.
    WaitsBeyondLease,
    /// File: size and map are published before the drives are flushed.
    NoFlushBeforePublish,
    /// File: what was never written in a new block is what the block had before.
    GapsNotFilled,
    /// File: what is in flight under a map that was let go of does not count.
    InFlightNotCounted,
    /// File: a chunk of the map counts that is of before a commit of this file's, or that was not asked for.
    AnyChunkCounts,
    /// Client: a truncation commits its size before what was written is published.
    TruncateUnflushed,
    /// Client: what follows a truncation does not wait for an outcome that is late.
    TruncateForgotten,
    /// Client: bytes that could not be moved from the inode to a block are not in the inode either.
    MovedBytesLost,
    /// Client: blocks that come when nobody waits for them are kept.
    GrantsKept,
    /// Client: a file that is opened when nobody waits for it stays open.
    OpenedKept,
    /// Client: that the session is gone is told to the request alone that has heard it.
    GoneOnlyForOne,
    /// Client: files hear of the session's end when the lease is over.
    StopAtTicks,
    /// Client: the same file is open for writing twice.
    TwoWriters,
    /// Client: a file whose closing a service that was started again does not understand stays the session's to write.
    WriterKept,
    /// Client: a file is closed while a drive may still carry out a write of it that was given up.
    ClosedInDoubt,
    /// Service: blocks are given out again while a drive may still carry out a write of a recovery that was given up.
    ReuseUnderRecovery,
    /// Service: a block is moved although a session may write its file.
    #[cfg_attr(not(test), allow(dead_code))]
    MoveUnderWriter,
    /// Service: blocks of files that are in use are demoted.
    DemoteHot,
    /// Service: blocks are demoted to any other class of their file.
    DemoteBack,
    /// Service: a class that is over its high watermark takes demoted blocks.
    DemoteAboveMark,
    /// Service: commits do not expect the life of the service in which they are sent.
    CommitWithoutLife,
    /// Service: it goes on answering when its lease is over.
    AnswersAfterLease,
    /// Service: a process that stands by takes over before the lease is over.
    #[cfg_attr(not(test), allow(dead_code))]
    BeginsBeforeLeaseOver,
    /// Service: its lease counts from the answer to its renewal.
    #[cfg_attr(not(test), allow(dead_code))]
    RenewalFromAnswer,
    /// Service: what a process knew when its lease ended counts when it serves again.
    StateOutlivesLife,
    /// Service: a block counts as marked as unsettled although a power cut may take the mark.
    UnsettleBeforeDurable,
    /// File: a flush of a drive that was connected to again counts for what was written before.
    FlushVouchesForAll,
    /// File: a part of a published unit of checksums is written over, and the unit is not compared with its own.
    UnitNotCompared,
    /// File: a flush of the beginning takes blocks that a write is under way in.
    BeginningUnderWriter,
    /// File: writes of the same bytes are at drives at once.
    OverlappingWrites,
    /// File: the first of several commits of a flush has the size of all of them.
    SizeBeforeBlocks,
}

/// At most one planted fault; outside of this crate's tests always none, and its size is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Planted {
    #[cfg(test)]
    mutant: Option<Mutant>,
}

impl Planted {
    /// Whether it is this fault.
    #[inline]
    pub const fn is(self, mutant: Mutant) -> bool {
        #[cfg(test)]
        return matches!(self.mutant, Some(planted) if planted as u8 == mutant as u8);
        #[cfg(not(test))]
        {
            let _ = mutant;
            false
        }
    }
}

#[cfg(test)]
impl From<Option<Mutant>> for Planted {
    fn from(mutant: Option<Mutant>) -> Self {
        Self { mutant }
    }
}
