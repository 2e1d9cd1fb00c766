//! What can be wrong, in the store's own terms, as the user reads it.

use crate::id::{NodeId, ServiceId};
use alloc::string::String;
use core::fmt;

/// Why a request was refused or came to nothing. [`number`](Self::number) gives each a fixed number, for answers that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// Nothing has that name or inode number.
    NotFound,
    /// Something has that name.
    Exists,
    /// It has no names in it: it is a file or a symlink.
    NotDirectory,
    /// It is a directory, and something else is wanted.
    IsDirectory,
    /// It has names in it.
    NotEmpty,
    /// A directory would lie within itself.
    IntoItself,
    /// A name is empty, `.` or `..`, or has `/` or NUL in it.
    BadName,
    /// A name is longer than 255 bytes.
    NameTooLong,
    /// The kind of the inode has no such operation.
    WrongKind,
    /// There are no hard links.
    HardLink,
    /// The root directory cannot be renamed or deleted.
    Root,
    /// What is to lie in the inode is larger than the store allows: its limit in bytes.
    TooLarge(u32),
    /// The file's bytes do not lie in its inode.
    NotInline,
    /// The inode has no such extended attribute.
    NoAttribute,
    /// The extended attributes of an inode would take more than the store allows: its limit in bytes.
    AttributeSpace(u32),
    /// The name of a class has other characters than `a` to `z`, `0` to `9`, `-` and `_`, or none, or too many.
    ClassName,
    /// A location is too long, or has an empty part.
    Location,
    /// The session has ended.
    SessionGone,
    /// The request is older than the last one of its slot.
    OldSequence,
    /// Another service owns the directory: ask it.
    Redirect(ServiceId),
    /// The service cannot say: it has no lease, or the key-value store does not answer. Ask again with the same sequence.
    Unavailable,
    /// No class of the file has room now, and blocks that were given up are free when all sessions have acknowledged an epoch, this one
    /// or a later one; 1 at the least. Ask again.
    Freeing(u64),
    /// What the key-value store holds cannot be read; `weir store fsck` says more.
    Damaged,
    /// No class of the file has room.
    NoSpace,
    /// There is room for so many copies of a block, one at least, and none on a further node: each copy lies on another node.
    TooFewNodes(u8),
    /// Another session has the file open for writing.
    Busy,
    /// The session has no open file of that handle, or it is not open for writing.
    NotOpen,
    /// The session has as many unpublished blocks as it may have.
    Ahead,
    /// The request says something that cannot be.
    Malformed,
    /// The service speaks another version of the protocol: this one.
    Version(u16),
    /// Extents are not what the request says that they are: not granted to the session, or not of that file.
    NotGranted,
    /// A namespace cannot be reached.
    Unreachable,
    /// Something that is not this store's lies on a namespace.
    Foreign,
    /// The store has no class of that name or number.
    NoClass,
    /// The store has no namespace of that number.
    NoNamespace,
    /// Blocks of files are on the namespace, or it is in the store already.
    InUse,
    /// A namespace is smaller than a region.
    TooSmall,
    /// A path leads through more than 40 symlinks.
    TooManyLinks,
    /// The service has as many connections, open files or requests as it takes.
    Overloaded,
    /// The connection has no session.
    NoSession,
    /// Bytes of a block are no power of two from 64 KiB to 4 MiB.
    BlockSize,
    /// Copies of a block are not 1 to 4.
    Copies,
    /// An inode would have more than 8 classes.
    Classes,
    /// Blocks of the file that a lost client was writing are being recovered.
    Recovering,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreError::NotFound => "no such file or directory",
            StoreError::Exists => "it exists already",
            StoreError::NotDirectory => "it is not a directory",
            StoreError::IsDirectory => "it is a directory",
            StoreError::NotEmpty => "the directory is not empty; delete it recursively, or what is in it first",
            StoreError::IntoItself => "a directory cannot be moved into itself",
            StoreError::BadName => "a name is not empty, not \".\" or \"..\", and has no \"/\" and no NUL byte",
            StoreError::NameTooLong => "the name is longer than 255 bytes",
            StoreError::WrongKind => "an inode of this kind has no such operation",
            StoreError::HardLink => "the store has no hard links; make a symbolic link",
            StoreError::Root => "the root directory cannot be renamed or deleted",
            StoreError::TooLarge(limit) => return write!(f, "more than {limit} bytes do not fit into an inode"),
            StoreError::NotInline => "the file's bytes do not lie in its inode",
            StoreError::NoAttribute => "it has no such extended attribute",
            StoreError::AttributeSpace(limit) => {
                return write!(f, "the extended attributes of an inode take {limit} bytes at the most");
            }
            StoreError::ClassName => "the name of a class has 1 to 64 characters of a-z, 0-9, \"-\" and \"_\"",
            StoreError::Location => "a location has at most 128 bytes, and no empty part between two \"/\"",
            StoreError::SessionGone => "the client's session has ended; open the store again",
            StoreError::OldSequence => "the request is older than the last one of its slot",
            StoreError::Redirect(service) => return write!(f, "metadata service {service} owns the directory"),
            StoreError::Unavailable => "the metadata service cannot answer at present; ask again",
            StoreError::Freeing(_) => {
                "no class of the file has room at present; what was given up is free when all clients have let go of it; ask again"
            }
            StoreError::Damaged => "the store's metadata are damaged here; run weir store fsck",
            StoreError::NoSpace => "no class of the file has room: delete files, or donate a drive",
            StoreError::TooFewNodes(placed) => {
                return write!(
                    f,
                    "there is room for {placed} of a block's copies, and none on a further node: each copy lies on another node; \
                     donate a drive of a further node, or ask for fewer copies"
                );
            }
            StoreError::Busy => "another client has the file open for writing",
            StoreError::NotOpen => "the file is not open; open it again",
            StoreError::Ahead => "the client has 16 MiB of unpublished blocks; publish or return some first",
            StoreError::Malformed => {
                "the request asks for something that cannot be: a number or a length in it is wrong"
            }
            StoreError::Version(version) => {
                return write!(
                    f,
                    "the metadata service speaks version {version} of the protocol; use a program of its release"
                );
            }
            StoreError::NotGranted => "the blocks were not granted to this client, or are not the file's",
            StoreError::Unreachable => "the namespace cannot be reached",
            StoreError::Foreign => {
                "the namespace holds something that is not this store's; donate it with overwrite to lose that"
            }
            StoreError::NoClass => "the store has no such class",
            StoreError::NoNamespace => "the store has no such namespace",
            StoreError::InUse => "it is in use: a namespace leaves the store when no block is on it, and joins it once",
            StoreError::TooSmall => "the namespace is too small: a store takes 65 MiB or more",
            StoreError::TooManyLinks => "the path leads through too many symbolic links",
            StoreError::Overloaded => "the metadata service has as many clients or requests as it takes; try again",
            StoreError::NoSession => "the request needs a session, and the connection has none",
            StoreError::BlockSize => "the size of a block is a power of two from 64 KiB to 4 MiB",
            StoreError::Copies => "a file has 1 to 4 copies of each block",
            StoreError::Classes => "a file has 8 classes at the most",
            StoreError::Recovering => {
                "what a lost client has left half written of the file is being recovered; try again"
            }
        })
    }
}

impl StoreError {
    /// Its number in records, from 1 on, and what goes with it. [`TooFewNodes`](Self::TooFewNodes) is a [`NoSpace`](Self::NoSpace) that
    /// says more, and [`Freeing`](Self::Freeing) such an [`Unavailable`](Self::Unavailable): programs that do not know it read it as that.
    pub const fn number(self) -> (u8, u64) {
        match self {
            StoreError::NotFound => (1, 0),
            StoreError::Exists => (2, 0),
            StoreError::NotDirectory => (3, 0),
            StoreError::IsDirectory => (4, 0),
            StoreError::NotEmpty => (5, 0),
            StoreError::IntoItself => (6, 0),
            StoreError::BadName => (7, 0),
            StoreError::NameTooLong => (8, 0),
            StoreError::WrongKind => (9, 0),
            StoreError::HardLink => (10, 0),
            StoreError::Root => (11, 0),
            StoreError::TooLarge(limit) => (12, limit as u64),
            StoreError::NotInline => (13, 0),
            StoreError::NoAttribute => (14, 0),
            StoreError::AttributeSpace(limit) => (15, limit as u64),
            StoreError::ClassName => (16, 0),
            StoreError::Location => (17, 0),
            StoreError::SessionGone => (18, 0),
            StoreError::OldSequence => (19, 0),
            StoreError::Redirect(service) => (20, service.get()),
            StoreError::Unavailable => (21, 0),
            StoreError::Freeing(0) => (21, 1),
            StoreError::Freeing(epoch) => (21, epoch),
            StoreError::Damaged => (22, 0),
            StoreError::NoSpace => (23, 0),
            StoreError::TooFewNodes(placed) => (23, placed as u64),
            StoreError::Busy => (24, 0),
            StoreError::NotOpen => (25, 0),
            StoreError::Ahead => (26, 0),
            StoreError::Malformed => (27, 0),
            StoreError::Version(version) => (28, version as u64),
            StoreError::NotGranted => (29, 0),
            StoreError::Unreachable => (30, 0),
            StoreError::Foreign => (31, 0),
            StoreError::NoClass => (32, 0),
            StoreError::NoNamespace => (33, 0),
            StoreError::InUse => (34, 0),
            StoreError::TooSmall => (35, 0),
            StoreError::TooManyLinks => (36, 0),
            StoreError::Overloaded => (37, 0),
            StoreError::NoSession => (38, 0),
            StoreError::BlockSize => (39, 0),
            StoreError::Copies => (40, 0),
            StoreError::Classes => (41, 0),
            StoreError::Recovering => (42, 0),
        }
    }

    /// The error of that number, if there is one.
    pub fn from_number(number: u8, argument: u64) -> Option<Self> {
        Some(match number {
            1 => StoreError::NotFound,
            2 => StoreError::Exists,
            3 => StoreError::NotDirectory,
            4 => StoreError::IsDirectory,
            5 => StoreError::NotEmpty,
            6 => StoreError::IntoItself,
            7 => StoreError::BadName,
            8 => StoreError::NameTooLong,
            9 => StoreError::WrongKind,
            10 => StoreError::HardLink,
            11 => StoreError::Root,
            12 => StoreError::TooLarge(u32::try_from(argument).ok()?),
            13 => StoreError::NotInline,
            14 => StoreError::NoAttribute,
            15 => StoreError::AttributeSpace(u32::try_from(argument).ok()?),
            16 => StoreError::ClassName,
            17 => StoreError::Location,
            18 => StoreError::SessionGone,
            19 => StoreError::OldSequence,
            20 => StoreError::Redirect(ServiceId(argument)),
            21 if argument == 0 => StoreError::Unavailable,
            21 => StoreError::Freeing(argument),
            22 => StoreError::Damaged,
            23 if argument == 0 => StoreError::NoSpace,
            23 => StoreError::TooFewNodes(u8::try_from(argument).ok()?),
            24 => StoreError::Busy,
            25 => StoreError::NotOpen,
            26 => StoreError::Ahead,
            27 => StoreError::Malformed,
            28 => StoreError::Version(u16::try_from(argument).ok()?),
            29 => StoreError::NotGranted,
            30 => StoreError::Unreachable,
            31 => StoreError::Foreign,
            32 => StoreError::NoClass,
            33 => StoreError::NoNamespace,
            34 => StoreError::InUse,
            35 => StoreError::TooSmall,
            36 => StoreError::TooManyLinks,
            37 => StoreError::Overloaded,
            38 => StoreError::NoSession,
            39 => StoreError::BlockSize,
            40 => StoreError::Copies,
            41 => StoreError::Classes,
            42 => StoreError::Recovering,
            _ => return None,
        })
    }
}

impl core::error::Error for StoreError {}

/// An error with the path that it is about and, where one is involved, the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError {
    /// As the client gave it.
    pub path: String,
    /// The storage node, if the error is about one.
    pub node: Option<NodeId>,
    /// What is wrong.
    pub error: StoreError,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.error)?;
        match self.node {
            Some(node) => write!(f, " (node {node})"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for PathError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn numbers_lead_back() {
        let mut texts = alloc::collections::BTreeSet::new();
        for number in 1..=u8::MAX {
            let Some(error) = StoreError::from_number(number, 7) else { break };
            assert_eq!(StoreError::from_number(error.number().0, error.number().1), Some(error));
            assert!(texts.insert(error.to_string()), "{error}: two errors read the same");
        }
        assert_eq!(texts.len(), 42);
        assert_eq!([0, 43].map(|number| StoreError::from_number(number, 0)), [None; 2]);
        assert_eq!(StoreError::from_number(23, 0), Some(StoreError::NoSpace));
        assert_eq!(StoreError::NoSpace.number(), (23, 0));
    }

    #[test]
    fn path_and_node_are_named() {
        let error = PathError { path: "/a/b".into(), node: Some(NodeId(3)), error: StoreError::NotFound };
        assert_eq!(error.to_string(), "/a/b: no such file or directory (node 3)");
        assert_eq!(PathError { node: None, ..error }.to_string(), "/a/b: no such file or directory");
    }
}
