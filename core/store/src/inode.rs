//! What a name leads to.

use crate::class::ClassId;
use crate::id::InodeId;
use crate::location::Location;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use weir_codec::{Code, Damaged, Reader, Writer};

/// A moment of the calendar, in nanoseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct UnixNanos(pub u64);

weir_codec::coded_as! { UnixNanos: u64, |at| at.0, |number| Some(UnixNanos(number)) }

/// What an inode is. It never becomes another kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum InodeKind {
    /// Bytes.
    #[default]
    File = 1,
    /// Names of anything.
    Directory = 2,
    /// A path.
    Symlink = 3,
    /// Names of files that are read as one, in the order of their names.
    Multifile = 4,
    /// Names of small values, which replace one another: a key-value table.
    Table = 5,
}

impl InodeKind {
    /// Whether it has names in it.
    pub const fn is_container(self) -> bool {
        matches!(self, InodeKind::Directory | InodeKind::Multifile | InodeKind::Table)
    }

    /// Whether a container of this kind may have names of that kind.
    pub const fn may_hold(self, inner: InodeKind) -> bool {
        match self {
            InodeKind::Directory => true,
            InodeKind::Multifile | InodeKind::Table => matches!(inner, InodeKind::File),
            InodeKind::File | InodeKind::Symlink => false,
        }
    }

    const ALL: [InodeKind; 5] =
        [InodeKind::File, InodeKind::Directory, InodeKind::Symlink, InodeKind::Multifile, InodeKind::Table];
}

weir_codec::coded_as! {
    InodeKind: u8, |kind| *kind as u8, |number| InodeKind::ALL.into_iter().find(|kind| *kind as u8 == number)
}

/// What an inode holds itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Nothing: it has names instead.
    #[default]
    Names,
    /// The bytes of a file; those behind them, up to the file's size, are zeroes.
    Inline(Vec<u8>),
    /// The bytes are in blocks, of which map chunks tell.
    Mapped,
    /// The path of a symlink.
    Target(Vec<u8>),
}

impl Code for Content {
    fn put(&self, to: &mut Writer) {
        match self {
            Content::Names => to.u8(0),
            Content::Inline(bytes) => {
                to.u8(1);
                to.bytes(bytes);
            }
            Content::Mapped => to.u8(2),
            Content::Target(path) => {
                to.u8(3);
                to.bytes(path);
            }
        }
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(match from.u8()? {
            0 => Content::Names,
            1 => Content::Inline(from.bytes()?.into()),
            2 => Content::Mapped,
            3 => Content::Target(from.bytes()?.into()),
            _ => return Err(Damaged),
        })
    }
    fn kind() -> String {
        "u8: 0 names, 1 bytes of the file (length u32, bytes), 2 blocks, 3 a symlink's path (length u32, bytes)".into()
    }
}

/// What is known of a file, directory, symlink, multifile or table. Its number is its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inode {
    /// What it is.
    pub kind: InodeKind,
    /// Permissions, as POSIX has them (12 bits).
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Bytes of a file; of a symlink the bytes of its path, else 0.
    pub size: u64,
    /// When it was made.
    pub created: UnixNanos,
    /// When its bytes or its names were changed last.
    pub modified: UnixNanos,
    /// When anything of it was changed last.
    pub changed: UnixNanos,
    /// It rises with every change of the inode, and of a container's names.
    pub version: u64,
    /// The directory that a file or symlink is in; of a container, whose parent is a record of its own, 0.
    pub parent: InodeId,
    /// The classes that its blocks may be of, best first; empty: the store's.
    pub classes: Vec<ClassId>,
    /// Where its blocks should be.
    pub location: Location,
    /// How many copies its blocks have: 1 to 4.
    pub copies: u8,
    /// Bytes of a block.
    pub block: u32,
    /// Extended attributes.
    pub attributes: BTreeMap<String, Vec<u8>>,
    /// What lies in the inode itself.
    pub content: Content,
}
