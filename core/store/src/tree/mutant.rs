//! Mistakes that tests put into the machine, to show that they are found. Without tests there are none.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(crate) enum Mutant {
    /// A commit whose outcome is unknown is taken as one that was not made, and the request carried out anew.
    UnknownIsConflict,
    /// The answer is recorded by a second commit.
    AnswerApart,
    /// A request that was refused has no record.
    RefusalNotRecorded,
    /// The record of a request that is sent again is not looked at.
    RecordNotRead,
    /// A directory moves without a look at what lies above its target.
    NoWalk,
    /// A directory moves without a precondition on the rename key.
    NoRenameKey,
    /// Commits go without the terms of their directories.
    NoTerm,
    /// Answers go out after the lease has ended.
    AnswerAfterLease,
    /// The lease is counted from the answer to its renewal.
    LeaseFromAnswer,
    /// The directories of a service are taken over at once.
    TakeoverAtOnce,
    /// A life of the same service begins although the lease of the last one is not over.
    BeginsAtOnce,
    /// The directories of a service that does not renew are taken over, and its lease is left alone.
    NoFence,
    /// A directory that was given up is still answered for.
    ReleaseKeepsHold,
    /// A directory is deleted without owning it.
    VictimNotOwned,
    /// Inode numbers are used whose reservation is unknown.
    NumbersFromUnknown,
    /// A container that was given up by a commit of unknown outcome is owned again in the same term.
    OwnAgainInSameTerm,
    /// A file whose writer's session goes on is another session's to write.
    WriterTakenOver,
    /// A publish does not expect that the file is the session's to write.
    PublishWithoutWriter,
    /// Blocks that a publish replaces stay the file's.
    OldBlocksKept,
    /// A block is moved although a session may write its file.
    MovedUnderWriter,
    /// A file with blocks that a lost writer has left unsettled is another session's to write.
    UnsettledTaken,
}

impl Mutant {
    /// Those of files that sessions write: the tests of the service find them.
    #[cfg(test)]
    pub const OF_FILES: [Mutant; 3] = [Mutant::WriterTakenOver, Mutant::PublishWithoutWriter, Mutant::OldBlocksKept];

    /// Those that random histories of names find. A test of its own finds `OwnAgainInSameTerm`.
    #[cfg(test)]
    pub const ALL: [Mutant; 14] = [
        Mutant::UnknownIsConflict,
        Mutant::AnswerApart,
        Mutant::RefusalNotRecorded,
        Mutant::RecordNotRead,
        Mutant::NoWalk,
        Mutant::NoRenameKey,
        Mutant::NoTerm,
        Mutant::AnswerAfterLease,
        Mutant::LeaseFromAnswer,
        Mutant::TakeoverAtOnce,
        Mutant::NoFence,
        Mutant::ReleaseKeepsHold,
        Mutant::VictimNotOwned,
        Mutant::NumbersFromUnknown,
    ];
}

/// The mistake of a machine, if it has one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mutation {
    #[cfg(test)]
    pub mutant: Option<Mutant>,
}

impl Mutation {
    /// Whether it has this one.
    #[cfg(test)]
    pub fn is(self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Whether it has this one.
    #[cfg(not(test))]
    pub const fn is(self, _: Mutant) -> bool {
        false
    }
}
