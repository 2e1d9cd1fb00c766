//! An inode of the store, as the kernel has it.

use fuser::{FileAttr, FileType, INodeNo};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_store::{Inode, InodeId, InodeKind, UnixNanos};

/// Bytes of `st_blocks`' unit.
const SECTOR: u64 = 512;

/// What the kernel is told as the best size of an operation: a page.
const BLOCK: u32 = 4096;

/// The type that the kernel knows for a kind. Multifiles and tables are directories.
pub fn file_type(kind: InodeKind) -> FileType {
    match kind {
        InodeKind::File => FileType::RegularFile,
        InodeKind::Symlink => FileType::Symlink,
        InodeKind::Directory | InodeKind::Multifile | InodeKind::Table => FileType::Directory,
    }
}

/// A moment of the store's.
pub fn time(at: UnixNanos) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(at.0)
}

/// A moment of the kernel's; before 1970 it is 1970, behind 2554 it is 2554.
pub fn nanos(at: SystemTime) -> UnixNanos {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixNanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// The attributes of an inode. There is no time of access: it is that of the last change of bytes. Nor are blocks counted: it is as if none were missing.
pub fn attributes(number: InodeId, inode: &Inode) -> FileAttr {
    let modified = time(inode.modified);
    FileAttr {
        ino: INodeNo(number.0),
        size: inode.size,
        blocks: inode.size.div_ceil(SECTOR),
        atime: modified,
        mtime: modified,
        ctime: time(inode.changed),
        crtime: time(inode.created),
        kind: file_type(inode.kind),
        perm: (inode.mode & 0o7777) as u16,
        // One, for directories as well: who counts names below one does not rely on it then. None: it has no name any more.
        nlink: u32::from(inode.kind.is_container() || inode.parent != InodeId(0)),
        uid: inode.uid,
        gid: inode.gid,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_are_told_as_they_are() {
        let inode = Inode {
            kind: InodeKind::File,
            mode: 0o4755,
            uid: 7,
            gid: 8,
            size: 513,
            modified: UnixNanos(1_500_000_000),
            changed: UnixNanos(2_000_000_001),
            parent: InodeId(1),
            ..Inode::default()
        };
        let told = attributes(InodeId(42), &inode);
        assert_eq!((told.ino, told.size, told.blocks, told.nlink), (INodeNo(42), 513, 2, 1));
        assert_eq!((told.perm, told.uid, told.gid, told.kind), (0o4755, 7, 8, FileType::RegularFile));
        assert_eq!((nanos(told.mtime), nanos(told.ctime)), (inode.modified, inode.changed));
        let deleted = Inode { parent: InodeId(0), ..inode };
        assert_eq!(attributes(InodeId(42), &deleted).nlink, 0);
        assert_eq!(file_type(InodeKind::Multifile), FileType::Directory);
    }

    #[test]
    fn times_are_within_what_the_store_has() {
        assert_eq!(nanos(UNIX_EPOCH - Duration::from_secs(5)), UnixNanos(0));
        assert_eq!(nanos(UNIX_EPOCH + Duration::from_secs(u64::MAX / 1_000_000_000 + 1)), UnixNanos(u64::MAX));
        assert_eq!(time(UnixNanos(1)), UNIX_EPOCH + Duration::from_nanos(1));
    }
}
