//! What can be wrong.

use crate::kv::KvWrite;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal,)*) => {
        /// What is wrong. Its name is that of the variant, in words with `-` between them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FindingKind { $($(#[doc = $doc])* $name,)* }

        impl FindingKind {
            /// All kinds.
            pub const ALL: &'static [FindingKind] = &[$(FindingKind::$name),*];

            /// Its name, as reports have it.
            pub const fn name(self) -> &'static str {
                match self { $(FindingKind::$name => $text,)* }
            }
        }
    };
}

kinds! {
    /// There is no record of the store, or none that can be read: this is no store, or one of another version.
    NoStore = "no-store",
    /// A key that begins with no letter that is known: perhaps of a newer version.
    UnknownKey = "unknown-key",
    /// A key of a known letter that has another length.
    BadKey = "bad-key",
    /// A value that is no record of its key's kind.
    BadValue = "bad-value",
    /// There is no root directory.
    NoRoot = "no-root",
    /// A name leads to an inode that is not there.
    DanglingName = "dangling-name",
    /// A name lies in something that is not there, or that has no names.
    NameInNoContainer = "name-in-no-container",
    /// A name says another kind than its inode.
    NameKind = "name-kind",
    /// An inode has several names.
    SeveralNames = "several-names",
    /// A container has an inode in it of a kind that it may not have.
    WrongKindInside = "wrong-kind-inside",
    /// No name leads to an inode, and it is not an orphan.
    Nameless = "nameless-inode",
    /// An inode says that it is in another container than its name is.
    Parent = "parent",
    /// A parent record of something that is no container, or is not there.
    ParentOfNone = "parent-of-none",
    /// A container is not reachable from the root: it lies within itself.
    Detached = "detached-container",
    /// An orphan record of an inode that is not there.
    OrphanOfNone = "orphan-of-none",
    /// An orphan has a name.
    NamedOrphan = "named-orphan",
    /// The next inode number is in use, or missing.
    NextInode = "next-inode",
    /// The size of an inode is not that of what lies in it.
    InlineSize = "inline-size",
    /// An inode holds what its kind cannot: a directory with bytes, a file with a path.
    ContentKind = "content-kind",
    /// An inode has a number of copies, or a block size, that there is not.
    Layout = "layout",
    /// A chunk of a map that no file with blocks has.
    ChunkOfNone = "chunk-of-none",
    /// Blocks of a chunk are out of order, twice, or behind its end.
    ChunkOrder = "chunk-order",
    /// A chunk has unsettled blocks and the index of these does not have it, or has one without: such blocks are not recovered.
    UnsettledIndex = "unsettled-index",
    /// A chunk has blocks with fewer copies than its file wants and the index of these does not have it, or has one without: such copies are not made again.
    ShortIndex = "short-index",
    /// A block lies behind the end of its file.
    BlockBehindEnd = "block-behind-end",
    /// A block has another number of copies or checksums than its length asks for, or copies of several lengths.
    BlockShape = "block-shape",
    /// A block lies where the index does not say that it is this file's.
    BlockNotIndexed = "block-not-indexed",
    /// Two blocks lie in the same place.
    BlockTwice = "block-twice",
    /// A block's generation is not that of its place.
    Generation = "generation",
    /// The index says that a place is a file's, and no map has it.
    MappedByNone = "mapped-by-none",
    /// Two records of the index have bytes in common.
    ExtentOverlap = "extent-overlap",
    /// A record of the index lies in no region, or reaches beyond one.
    ExtentOutside = "extent-outside",
    /// A place is granted to a session that has ended and is fenced.
    GrantOfNone = "grant-of-none",
    /// A generation was given out in a term that the region has not reached.
    RegionTerm = "region-term",
    /// A session has no hold record: its maps would not hold blocks back.
    SessionWithoutHold = "session-without-hold",
    /// A session has acknowledged an epoch that has not been raised.
    HoldBeyondEpoch = "hold-beyond-epoch",
    /// An answer to a session that has ended and is fenced.
    AnswerOfNone = "answer-of-none",
    /// An owner of a container that is not there.
    OwnerOfNone = "owner-of-none",
    /// A container is owned by a life of a service that has not been.
    OwnerUnknown = "owner-unknown",
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// These changes put it right.
    Writes(Vec<KvWrite>),
    /// It cannot be put right here; what to do instead.
    Refused(&'static str),
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// Where, in words: an inode, a name, a block.
    pub about: String,
    /// What is done about it.
    pub repair: Repair,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.about)?;
        match &self.repair {
            Repair::Writes(_) => Ok(()),
            Repair::Refused(what) => write!(f, " (not repaired: {what})"),
        }
    }
}
