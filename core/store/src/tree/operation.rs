//! What clients ask about names and inodes, and what they are told.

use crate::class::ClassId;
use crate::error::StoreError;
use crate::extent::Extent;
use crate::id::{InodeId, SessionId};
use crate::inode::{Inode, InodeKind, UnixNanos};
use crate::location::Location;
use crate::name::EntryName;
use crate::records::{BlockRecord, Changed, NameRecord};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// Names that one answer lists at the most.
pub const LIST_MAX: usize = 256;

/// Bytes of the names and values of an inode's extended attributes at the most.
pub const ATTRIBUTE_BYTES_MAX: u32 = 4 << 10;

/// Classes of an inode at the most.
pub const CLASSES_MAX: usize = 8;

/// Bytes of a symlink's path at the most.
pub const TARGET_BYTES_MAX: u32 = 4095;

/// A place for a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryPath {
    /// The container: a directory, multifile or table.
    pub container: InodeId,
    /// The name in it.
    pub name: EntryName,
}

/// An inode, and where it was seen last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InodePath {
    /// The inode.
    pub inode: InodeId,
    /// The container that it was seen in, which may have changed. Of a container: itself.
    pub parent: InodeId,
}

/// What marks a changing request, and is the same when it is sent again: it is carried out once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeKey {
    /// The client's session.
    pub session: SessionId,
    /// One of the session's slots. A client has one request at a time in each; the store keeps the last answer of each.
    pub slot: u16,
    /// It rises with each request of the slot, from 1.
    pub sequence: u64,
}

/// A question that changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameQuery {
    /// What a name leads to. Answer: [`NameReply::Found`].
    Lookup(EntryPath),
    /// An inode. Answer: [`NameReply::Inode`].
    Stat(InodePath),
    /// The same of a file that is open or being opened: one without a name is found as well.
    File(InodePath),
    /// A container's names in order. Answer: [`NameReply::Page`].
    List {
        /// The container.
        container: InodeId,
        /// Only names behind this one.
        after: Option<EntryName>,
        /// So many at the most, and at the most [`LIST_MAX`].
        most: usize,
    },
}

/// What an inode is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewInode {
    /// Its kind.
    pub kind: InodeKind,
    /// Permissions (12 bits).
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The path of a symlink, else nothing.
    pub target: Vec<u8>,
    /// The classes of its blocks, best first, [`CLASSES_MAX`] at the most; empty: the store's.
    pub classes: Vec<ClassId>,
    /// Where its blocks should be.
    pub location: Location,
    /// Copies of each block: 1 to 4; of a symlink not looked at.
    pub copies: u8,
    /// Bytes of a block: a power of two from 64 KiB to 4 MiB; of a symlink not looked at.
    pub block: u32,
}

/// Changes of an inode; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions (12 bits).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes of a file: what is cut off is gone, what is added reads as zeroes.
    pub size: Option<u64>,
    /// When its bytes or names were changed last.
    pub modified: Option<UnixNanos>,
    /// Classes of blocks that are still to come.
    pub classes: Option<Vec<ClassId>>,
    /// Location of blocks that are still to come.
    pub location: Option<Location>,
}

/// A change. Its answer is [`NameReply::Changed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameChange {
    /// A new inode with a new name.
    Create(EntryPath, NewInode),
    /// A second name for an inode: always refused.
    HardLink(InodePath, EntryPath),
    /// Another name, in one commit, perhaps in another container. Told: the inode, and the version of the container that it is in then.
    Rename {
        /// The name that goes.
        from: EntryPath,
        /// The name that comes.
        to: EntryPath,
        /// Whether it may take the place of another file, or of an empty container.
        replace: bool,
    },
    /// The name goes. Told: the inode that it led to, and the version of the container.
    Delete {
        /// The name.
        entry: EntryPath,
        /// Whether a container may have names in it: they go with it, in the background.
        recursive: bool,
    },
    /// Other attributes.
    SetAttributes(InodePath, SetAttributes),
    /// An extended attribute gets a value, or goes.
    SetExtended(InodePath, String, Option<Vec<u8>>),
    /// All bytes of a small file.
    WriteInline(InodePath, Vec<u8>),
    /// A value of a table: made or replaced.
    PutValue(EntryPath, Vec<u8>),
    /// What happens to a file's bytes, for a session that has it open.
    File(FileChange),
}

/// A change of a file by the session that writes it. Clients ask for it with a handle, not in these words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// The file is the session's to write: nobody else's, until it is closed or the session has ended and is fenced.
    OpenWriter(InodePath),
    /// A file is made with these first bytes, or opened if it is there and that is not excluded, for writing.
    OpenNew {
        /// The name.
        entry: EntryPath,
        /// What is made.
        new: NewInode,
        /// Its first bytes.
        bytes: Vec<u8>,
        /// It must not be there.
        exclusive: bool,
    },
    /// The file is nobody's to write.
    CloseWriter(InodePath),
    /// Size and blocks, by their number in the file and in order. What had been in those blocks is given up, and so is what is behind the size.
    Publish(InodePath, u64, Vec<(u64, BlockRecord)>),
    /// A change of an inode, of a file that is open: also one without a name.
    OfOpen(InodePath, Box<NameChange>),
    /// An inode is made, with these extended attributes: what the policy of its path says beside its classes and copies.
    UnderPolicy(Box<NameChange>, BTreeMap<String, Vec<u8>>),
    /// Published bytes of a block are about to be written over.
    Unsettle(InodePath, u64),
    /// A block has these copies and no others.
    MarkOut(InodePath, u64, Vec<Extent>),
}

/// A block that a writer has left unsettled and what was recovered of it, or a block that was moved: the service asks for it itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettleOrder {
    /// The file.
    pub file: InodeId,
    /// The chunk of its map.
    pub chunk: u32,
    /// The block's number in the file.
    pub block: u64,
    /// The block as it was found: nothing is done if it is not so any more, or if a session that may write has the file.
    pub old: BlockRecord,
    /// What it becomes: copies that are left of those, and new ones.
    pub new: BlockRecord,
    /// Who the new copies were granted to; 0 where there are none.
    pub session: SessionId,
    /// Copies of each block that the file wants.
    pub copies: u8,
}

/// A name of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// The name.
    pub name: EntryName,
    /// What it leads to.
    pub record: NameRecord,
    /// The inode; of a container, whose owner may be another service, nothing.
    pub inode: Option<Box<Inode>>,
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameReply {
    /// What the name leads to, and the inode if it is no container.
    Found(NameRecord, Option<Box<Inode>>),
    /// The inode.
    Inode(InodeId, Box<Inode>),
    /// A part of a list, as it was at one moment.
    Page {
        /// The version of the container: pages of one version are of one moment. A name that stays is listed once in any case.
        version: u64,
        /// Names in order.
        entries: Vec<ListEntry>,
        /// Whether there are none behind them.
        is_last: bool,
    },
    /// What the change has come to.
    Changed(Changed),
}

/// An answer.
pub type NameAnswer = Result<NameReply, StoreError>;

impl NameQuery {
    /// The container whose owner answers, as far as it is known.
    pub fn container(&self) -> InodeId {
        match self {
            NameQuery::Lookup(entry) => entry.container,
            NameQuery::Stat(at) | NameQuery::File(at) => at.parent,
            NameQuery::List { container, .. } => *container,
        }
    }
}

impl NameChange {
    /// The container whose owner makes the change, as far as it is known.
    pub fn container(&self) -> InodeId {
        match self {
            NameChange::Create(entry, _) | NameChange::PutValue(entry, _) => entry.container,
            NameChange::Rename { from, .. } => from.container,
            NameChange::File(FileChange::OpenNew { entry, .. }) => entry.container,
            NameChange::File(FileChange::UnderPolicy(change, _)) => change.container(),
            NameChange::Delete { entry, .. } => entry.container,
            NameChange::HardLink(at, _)
            | NameChange::SetAttributes(at, _)
            | NameChange::SetExtended(at, ..)
            | NameChange::WriteInline(at, _)
            | NameChange::File(
                FileChange::OpenWriter(at)
                | FileChange::CloseWriter(at)
                | FileChange::Publish(at, ..)
                | FileChange::Unsettle(at, _)
                | FileChange::OfOpen(at, _)
                | FileChange::MarkOut(at, ..),
            ) => at.parent,
        }
    }
}
