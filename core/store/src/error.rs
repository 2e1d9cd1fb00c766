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
    /// What the key-value store holds cannot be read; `weir store fsck` says more.
    Damaged,
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
            StoreError::Damaged => "the store's metadata are damaged here; run weir store fsck",
        })
    }
}

impl StoreError {
    /// Its number in records, from 1 on, and what goes with it.
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
            StoreError::Damaged => (22, 0),
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
            21 => StoreError::Unavailable,
            22 => StoreError::Damaged,
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
        assert_eq!(texts.len(), 22);
        assert_eq!([0, 23].map(|number| StoreError::from_number(number, 0)), [None; 2]);
    }

    #[test]
    fn path_and_node_are_named() {
        let error = PathError { path: "/a/b".into(), node: Some(NodeId(3)), error: StoreError::NotFound };
        assert_eq!(error.to_string(), "/a/b: no such file or directory (node 3)");
        assert_eq!(PathError { node: None, ..error }.to_string(), "/a/b: no such file or directory");
    }
}
