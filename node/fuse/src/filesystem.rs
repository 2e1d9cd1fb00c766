//! The kernel's requests: taken apart, answered, and what went wrong said in the log.

use crate::attributes::{attributes, file_type};
use crate::directories::DOTS;
use crate::errors::Failed;
use crate::log::FailureLog;
use crate::requests::{AttributeChange, Maker, Requests};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};
use weir_store::{Inode, InodeId, InodeKind, InodePath, ListEntry, NAME_BYTES_MAX};

/// Bytes of one read or write at the most.
const TRANSFER: u32 = 1 << 20;
/// Requests that the kernel has under way on its own account: reads ahead, and direct I/O of `aio` and `io_uring`.
const BACKGROUND: u16 = 64;
/// The unit of [`Filesystem::statfs`].
const BLOCK: u32 = 4096;
/// An opening that writes, and one that does not: what the kernel calls them by.
const WRITES: FileHandle = FileHandle(1);
const READS: FileHandle = FileHandle(0);
/// `open` flags of Linux that the kernel leaves to the file system.
const O_APPEND: i32 = 0o2000;
const O_DSYNC: i32 = 0o10000;
const O_EXCL: i32 = 0o200;
/// Bits of a mode that are not permissions: which kind of node it is.
const KIND_BITS: u32 = 0o170_000;
const KIND_FILE: u32 = 0o100_000;
/// `setxattr` flags of Linux.
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

thread_local! {
    /// What a thread has read last: taken again, not made anew for each read.
    static READ_MEMORY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The file system, as the kernel asks it.
#[derive(Debug)]
pub struct StoreFilesystem {
    requests: Arc<Requests>,
    log: FailureLog,
    ended: Sender<()>,
}

impl StoreFilesystem {
    /// `ended` hears of the end of the mount.
    pub fn new(requests: Arc<Requests>, ended: Sender<()>) -> Self {
        Self { requests, log: FailureLog::default(), ended }
    }

    fn ttl(&self) -> Duration {
        self.requests.options().cache
    }

    /// The number for the program; the reason goes to the log.
    fn failed(&self, what: &str, number: INodeNo, failed: Failed) -> Errno {
        if let Some(reason) = failed.reason {
            let path = self.requests.nodes().path(InodeId(number.0));
            self.log.say(what, &path, &reason);
        }
        failed.errno
    }

    fn failed_in(&self, what: &str, parent: INodeNo, name: &OsStr, failed: Failed) -> Errno {
        if let Some(reason) = failed.reason {
            let path = self.requests.nodes().path_in(InodeId(parent.0), name.as_bytes());
            self.log.say(what, &path, &reason);
        }
        failed.errno
    }

    fn open_flags(&self, keeps_pages: bool) -> FopenFlags {
        match (self.requests.options().direct_io, keeps_pages) {
            (true, _) => FopenFlags::FOPEN_DIRECT_IO,
            (false, true) => FopenFlags::FOPEN_KEEP_CACHE,
            (false, false) => FopenFlags::empty(),
        }
    }

    fn answer_entry(&self, what: &str, at: (INodeNo, &OsStr), found: Result<FileAttr, Failed>, reply: ReplyEntry) {
        match found {
            Ok(found) => reply.entry(&self.ttl(), &found, Generation(0)),
            Err(failed) => reply.error(self.failed_in(what, at.0, at.1, failed)),
        }
    }

    fn answer_empty(&self, what: &str, number: INodeNo, done: Result<(), Failed>, reply: ReplyEmpty) {
        match done {
            Ok(()) => reply.ok(),
            Err(failed) => reply.error(self.failed(what, number, failed)),
        }
    }

    fn answer_value(&self, number: INodeNo, value: Result<Vec<u8>, Failed>, size: u32, reply: ReplyXattr) {
        match value {
            Ok(value) if size == 0 => reply.size(value.len() as u32),
            Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
            Ok(value) => reply.data(&value),
            Err(failed) => reply.error(self.failed("extended attribute of", number, failed)),
        }
    }
}

/// A name of an extended attribute; the store's are UTF-8.
fn attribute_name(name: &OsStr) -> Result<&str, Failed> {
    name.to_str().ok_or_else(|| Failed::because(Errno::EINVAL, "the name of an extended attribute is not UTF-8"))
}

fn maker(request: &Request, mode: u32) -> Maker {
    Maker { uid: request.uid(), gid: request.gid(), mode: mode & !KIND_BITS }
}

impl Filesystem for StoreFilesystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What an older kernel does not have is not used.
        for wanted in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_CACHE_SYMLINKS,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        if self.requests.options().write_back {
            config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE).map_err(|_| {
                io::Error::new(
                    io::ErrorKind::Unsupported,
                    "the kernel has no write-back for FUSE: leave --write-back out",
                )
            })?;
        }
        let _ = config.set_max_write(TRANSFER);
        let _ = config.set_max_readahead(TRANSFER).or_else(|most| config.set_max_readahead(most));
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn destroy(&mut self) {
        self.requests.files.flush_all();
        let _ = self.ended.send(());
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.requests.lookup(InodeId(parent.0), name.as_bytes());
        self.answer_entry("look up", (parent, name), found, reply);
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.requests.forget(InodeId(number.0), lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.requests.attributes(InodeId(number.0)) {
            Ok(found) => reply.attr(&self.ttl(), &found),
            Err(failed) => reply.error(self.failed("stat", number, failed)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let modified = modified.map(|time| match time {
            TimeOrNow::SpecificTime(time) => time,
            TimeOrNow::Now => SystemTime::now(),
        });
        let change = AttributeChange { mode: mode.map(|mode| mode & !KIND_BITS), uid, gid, size, modified };
        match self.requests.change(InodeId(number.0), change) {
            Ok(found) => reply.attr(&self.ttl(), &found),
            Err(failed) => reply.error(self.failed("change", number, failed)),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.requests.read_link(InodeId(number.0)) {
            Ok(target) => reply.data(&target),
            Err(failed) => reply.error(self.failed("read link", number, failed)),
        }
    }

    fn mknod(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, _: u32, reply: ReplyEntry) {
        let made = match mode & KIND_BITS {
            0 | KIND_FILE => {
                let maker = maker(request, mode);
                self.requests.make(InodeId(parent.0), name.as_bytes(), InodeKind::File, maker)
            }
            _ => Err(Failed::because(Errno::EPERM, "the store has no devices, sockets and pipes")),
        };
        self.answer_entry("make", (parent, name), made, reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let maker = maker(request, mode);
        let made = self.requests.make(InodeId(parent.0), name.as_bytes(), InodeKind::Directory, maker);
        self.answer_entry("make", (parent, name), made, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.requests.remove(InodeId(parent.0), name.as_bytes()) {
            Ok(()) => reply.ok(),
            Err(failed) => reply.error(self.failed_in("remove", parent, name, failed)),
        }
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.unlink(request, parent, name, reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let made = self.requests.symlink(InodeId(parent.0), name.as_bytes(), target, maker(request, 0o777));
        self.answer_entry("make", (parent, name), made, reply);
    }

    fn link(&self, _: &Request, _: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let refused = Failed::because(Errno::EPERM, weir_store::StoreError::HardLink);
        self.answer_entry("link", (parent, name), Err(refused), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let is_plain = flags.is_empty() || flags == RenameFlags::RENAME_NOREPLACE;
        let named = |parent: INodeNo, name: &OsStr| Requests::named(InodeId(parent.0), name.as_bytes());
        let renamed = match (is_plain, named(parent, name), named(to, to_name)) {
            (true, Ok(from), Ok(to)) => self.requests.rename(from, to, flags.is_empty()),
            (true, Err(failed), _) | (true, _, Err(failed)) => Err(failed),
            (false, ..) => Err(Failed::because(Errno::EINVAL, "the store exchanges no names")),
        };
        match renamed {
            Ok(()) => reply.ok(),
            Err(failed) => reply.error(self.failed_in("rename", parent, name, failed)),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        match self.requests.open(InodeId(number.0), writes) {
            Ok(keeps) => reply.opened(if writes { WRITES } else { READS }, self.open_flags(keeps)),
            Err(failed) => reply.error(self.failed("open", number, failed)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (maker, exclusive) = (maker(request, mode), flags & O_EXCL != 0);
        match self.requests.create(InodeId(parent.0), name.as_bytes(), maker, exclusive) {
            Ok(made) => reply.created(&self.ttl(), &made, Generation(0), WRITES, self.open_flags(false)),
            Err(failed) => reply.error(self.failed_in("make", parent, name, failed)),
        }
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = self.requests.open_file(InodeId(number.0));
        READ_MEMORY.with_borrow_mut(|memory| {
            let size = size as usize;
            memory.resize(memory.len().max(size), 0);
            let read = file.and_then(|file| file.read(&self.requests.link, offset, &mut memory[..size]));
            match read {
                Ok(n) => reply.data(&memory[..n]),
                Err(failed) => reply.error(self.failed("read", number, failed)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let is_cached = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let (appends, is_durable) = (flags.0 & O_APPEND != 0 && !is_cached, flags.0 & O_DSYNC != 0 && !is_cached);
        let link = &self.requests.link;
        let written = self.requests.open_file(InodeId(number.0)).and_then(|file| {
            file.write(link, offset, bytes, appends)?;
            if is_durable { file.flush(link) } else { Ok(()) }
        });
        match written {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(failed) => reply.error(self.failed("write", number, failed)),
        }
    }

    fn flush(&self, _: &Request, number: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let file = (handle == WRITES).then(|| self.requests.open_file(InodeId(number.0)));
        let flushed = file.map_or(Ok(()), |file| file.and_then(|file| file.flush(&self.requests.link)));
        self.answer_empty("close", number, flushed, reply);
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let closed = self.requests.files.close(InodeId(number.0), handle == WRITES);
        self.answer_empty("close", number, closed, reply);
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let file = self.requests.open_file(InodeId(number.0));
        let flushed = file.and_then(|file| file.flush(&self.requests.link));
        self.answer_empty("fsync", number, flushed, reply);
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let handle = self.requests.directories.open(InodeId(number.0));
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(&self, _: &Request, number: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let Some(directory) = self.requests.directories.get(handle.0) else { return reply.error(Errno::EBADF) };
        for (at, name, number) in self.dots(number).into_iter().filter(|(at, ..)| *at > offset) {
            if reply.add(number, at, FileType::Directory, name) {
                return reply.ok();
            }
        }
        let take = |next: u64, entry: &ListEntry| {
            let name = OsStr::from_bytes(entry.name.as_bytes());
            reply.add(INodeNo(entry.record.inode.0), next, file_type(entry.record.kind), name)
        };
        match directory.read(&self.requests.link, offset.saturating_sub(DOTS), take) {
            Ok(()) => reply.ok(),
            Err(failed) => reply.error(self.failed("list", number, failed)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let Some(directory) = self.requests.directories.get(handle.0) else { return reply.error(Errno::EBADF) };
        let (ttl, parent) = (self.ttl(), InodeId(number.0));
        for (at, name, number) in self.dots(number).into_iter().filter(|(at, ..)| *at > offset) {
            // The kernel takes the numbers of these only.
            let number_only = FileAttr { ino: number, ..attributes(InodeId(number.0), &Inode::default()) };
            let number_only = FileAttr { kind: FileType::Directory, ..number_only };
            if reply.add(number, at, name, &ttl, &number_only, Generation(0)) {
                return reply.ok();
            }
        }
        let take = |next: u64, entry: &ListEntry| {
            let (name, number) = (OsStr::from_bytes(entry.name.as_bytes()), entry.record.inode);
            let found = match &entry.inode {
                Some(inode) => {
                    let at = InodePath { inode: number, parent };
                    self.requests.told(parent, &entry.name, at, inode.as_ref().clone())
                }
                // Of a directory. One that has gone meanwhile, or whose inode cannot be had, is left out.
                None => match self.requests.lookup(parent, entry.name.as_bytes()) {
                    Ok(found) => found,
                    Err(_) => return false,
                },
            };
            let is_full = reply.add(INodeNo(number.0), next, name, &ttl, &found, Generation(0));
            if is_full {
                self.requests.forget(number, 1);
            }
            is_full
        };
        match directory.read(&self.requests.link, offset.saturating_sub(DOTS), take) {
            Ok(()) => reply.ok(),
            Err(failed) => reply.error(self.failed("list", INodeNo(parent.0), failed)),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.requests.directories.close(handle.0);
        reply.ok();
    }

    /// Names are as durable as the store promises when their change is answered.
    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        match self.requests.room() {
            Ok(room) => {
                let blocks = |bytes: u64| bytes / u64::from(BLOCK);
                let free = blocks(room.free);
                reply.statfs(blocks(room.total), free, free, 0, 0, BLOCK, NAME_BYTES_MAX as u32, BLOCK);
            }
            Err(failed) => reply.error(self.failed("df", number, failed)),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let inode = InodeId(number.0);
        let set = attribute_name(name).and_then(|name| {
            let is_there = || self.requests.extended(inode, name).is_ok();
            match flags {
                XATTR_CREATE if is_there() => return Err(Failed::quiet(Errno::EEXIST)),
                XATTR_REPLACE if !is_there() => return Err(Failed::quiet(Errno::NO_XATTR)),
                _ => {}
            }
            self.requests.set_extended(inode, name, Some(value))
        });
        self.answer_empty("set an extended attribute of", number, set, reply);
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = attribute_name(name).and_then(|name| self.requests.extended(InodeId(number.0), name));
        self.answer_value(number, value, size, reply);
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        self.answer_value(number, self.requests.extended_names(InodeId(number.0)), size, reply);
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = attribute_name(name).and_then(|name| self.requests.set_extended(InodeId(number.0), name, None));
        self.answer_empty("remove an extended attribute of", number, removed, reply);
    }

    fn fallocate(&self, _: &Request, _: INodeNo, _: FileHandle, _: u64, _: u64, _: i32, reply: ReplyEmpty) {
        // Room cannot be reserved. posix_fallocate writes zeroes then.
        reply.error(Errno::EOPNOTSUPP);
    }
}

impl StoreFilesystem {
    /// What every directory has: the offset behind it, its name and its number.
    fn dots(&self, number: INodeNo) -> [(u64, &'static str, INodeNo); 2] {
        let parent = self.requests.nodes().parent(InodeId(number.0));
        [(1, ".", number), (2, "..", INodeNo(parent.0))]
    }
}
