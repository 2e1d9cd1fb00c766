//! What can be wrong, in the store's own terms, as the user reads it.

use crate::id::{NodeId, ServiceId};
use alloc::string::String;
use core::fmt;

/// Why a request was refused or came to nothing. Answers that are recorded with a request have fixed numbers: see `keys`.
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
