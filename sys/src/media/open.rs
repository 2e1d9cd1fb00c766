//! Opening files and block devices: everything that can be wrong with one is said here, not at the first I/O.

use super::file::FileMedia;
use super::kind::{MediaError, name};
use crate::lock::{ProcessState, Retry};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// ioctl of <linux/fs.h>: size of a block device in bytes. (`libc` has no name for it.)
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;

impl FileMedia {
    /// Opens a regular file, locks it, and makes it where it is missing or empty and a capacity is given. Without direct I/O
    /// on its file system, or with blocks too small for it, the page cache is used.
    ///
    /// # Errors
    /// See [`MediaError`].
    pub fn open_file(path: &Path, capacity: Option<u64>, block_size: u32) -> Result<Self, MediaError> {
        let medium = name("file", path);
        let missing = !path.exists();
        let create = if capacity.is_some() { OFlags::CREATE } else { OFlags::empty() };
        let (fd, direct) = open_regular(path, create).map_err(|e| MediaError::io(&medium, "open", e))?;
        let stat = rustix::fs::fstat(&fd).map_err(|e| MediaError::io(&medium, "inspect", e))?;
        check_type(&stat, &medium, FileType::RegularFile, "is not a regular file; a device is written block:PATH")?;
        if !crate::lock::exclusive(&fd).map_err(|e| MediaError::io(&medium, "lock", e))? {
            return Err(MediaError::Busy(medium));
        }
        let size = size_file(&fd, &medium, capacity, block_size).inspect_err(|_| {
            if missing {
                // Made a moment ago, locked, and useless.
                let _ = rustix::fs::unlink(path);
            }
        })?;
        let (fd, direct) = match direct.then(|| smallest_unit(&fd)).flatten() {
            Some(unit) if unit <= block_size => (fd, true),
            unit => {
                if direct {
                    // The lock belongs to the open file, which stays the same.
                    let flags = rustix::fs::fcntl_getfl(&fd).map_err(|e| MediaError::io(&medium, "inspect", e))?;
                    rustix::fs::fcntl_setfl(&fd, flags - OFlags::DIRECT)
                        .map_err(|e| MediaError::io(&medium, "set up", e))?;
                }
                tracing::info!(medium, ?unit, block_size, "no direct I/O here, using the page cache");
                (fd, false)
            }
        };
        Ok(FileMedia::new(medium, fd, size, block_size, direct))
    }

    /// Opens a block device for this process alone. A capacity below its size uses its beginning.
    ///
    /// # Errors
    /// See [`MediaError`].
    pub fn open_block(path: &Path, capacity: Option<u64>, block_size: u32) -> Result<Self, MediaError> {
        let medium = name("block", path);
        // Before opening: what is not a block device fails with the flags below for reasons that say nothing.
        let stat = rustix::fs::stat(path).map_err(|e| MediaError::io(&medium, "open", e))?;
        check_type(&stat, &medium, FileType::BlockDevice, "is not a block device; a file is written file:PATH")?;
        let flags = OFlags::RDWR | OFlags::EXCL | OFlags::DIRECT | OFlags::CLOEXEC;
        let fd = open_alone(path, flags, &medium)?;
        let found = device_size(&fd).map_err(|e| MediaError::io(&medium, "ask for the size", e))?;
        let size = capacity.unwrap_or(found);
        if size > found {
            return Err(MediaError::WrongSize { medium, found, wanted: size });
        }
        let needs = logical_block(&fd).map_err(|e| MediaError::io(&medium, "ask for the block size", e))?;
        if needs > block_size {
            return Err(MediaError::BlockSize { medium, needs, has: block_size });
        }
        whole_blocks(&medium, size, block_size)?;
        Ok(FileMedia::new(medium, fd, size, block_size, true))
    }
}

/// The device with these flags, which include O_EXCL. Who has it is not to be seen, as a mount or as a process that was killed.
fn open_alone(path: &Path, flags: OFlags, medium: &str) -> Result<OwnedFd, MediaError> {
    let retry = Retry::begin();
    loop {
        match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::BUSY) if retry.again(ProcessState::Unseen) => {}
            Err(Errno::BUSY) => return Err(MediaError::Busy(medium.to_owned())),
            other => return other.map_err(|e| MediaError::io(medium, "open", e)),
        }
    }
}

/// With direct I/O where the file system has it.
fn open_regular(path: &Path, create: OFlags) -> Result<(OwnedFd, bool), Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | create;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(path, flags | OFlags::DIRECT, mode) {
        Ok(fd) => Ok((fd, true)),
        Err(Errno::INVAL) => Ok((rustix::fs::open(path, flags, mode)?, false)),
        Err(e) => Err(e),
    }
}

fn check_type(stat: &rustix::fs::Stat, medium: &str, wanted: FileType, advice: &'static str) -> Result<(), MediaError> {
    if FileType::from_raw_mode(stat.st_mode) == wanted {
        return Ok(());
    }
    Err(MediaError::WrongType { medium: medium.to_owned(), advice })
}

fn whole_blocks(medium: &str, capacity: u64, block_size: u32) -> Result<(), MediaError> {
    if block_size > 0 && capacity > 0 && capacity % u64::from(block_size) == 0 {
        return Ok(());
    }
    Err(MediaError::Ragged { medium: medium.to_owned(), capacity, block_size })
}

/// The drive's size: the file's, which is given one where it is empty.
fn size_file(fd: &OwnedFd, medium: &str, capacity: Option<u64>, block_size: u32) -> Result<u64, MediaError> {
    let found = rustix::fs::fstat(fd).map_err(|e| MediaError::io(medium, "inspect", e))?.st_size as u64;
    let size = match capacity {
        None if found == 0 => return Err(MediaError::NeedsCapacity(medium.to_owned())),
        None => found,
        Some(wanted) => wanted,
    };
    whole_blocks(medium, size, block_size)?;
    if found == 0 {
        rustix::fs::ftruncate(fd, size).map_err(|e| MediaError::io(medium, "give it its size", e))?;
    } else if found != size {
        return Err(MediaError::WrongSize { medium: medium.to_owned(), found, wanted: size });
    }
    Ok(size)
}

/// The smallest unit of direct I/O on a regular file; `None` where there is no direct I/O.
fn smallest_unit(fd: &OwnedFd) -> Option<u32> {
    let mut x = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an empty path with AT_EMPTY_PATH asks about the descriptor; the structure is writable and of the right type.
    let r =
        unsafe { libc::statx(fd.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, x.as_mut_ptr()) };
    // SAFETY: all fields are integers, zeroed above.
    let x = unsafe { x.assume_init() };
    if r == 0 && x.stx_mask & libc::STATX_DIOALIGN != 0 {
        let usable = x.stx_dio_offset_align > 0 && x.stx_dio_mem_align as usize <= crate::reactor::ALIGN;
        return usable.then_some(x.stx_dio_offset_align);
    }
    // Before Linux 6.1 the file system does not say: try.
    let mut buf = crate::reactor::IoBuf::new(4096);
    [512u32, 4096].into_iter().find(|unit| rustix::io::pread(fd, &mut buf[..*unit as usize], 0).is_ok())
}

fn device_size(fd: &OwnedFd) -> Result<u64, std::io::Error> {
    let mut size = 0u64;
    // SAFETY: BLKGETSIZE64 writes one u64.
    match unsafe { libc::ioctl(fd.as_raw_fd(), BLKGETSIZE64 as _, &raw mut size) } {
        0 => Ok(size),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn logical_block(fd: &OwnedFd) -> Result<u32, std::io::Error> {
    let mut size = 0 as libc::c_int;
    // SAFETY: BLKSSZGET writes one int.
    match unsafe { libc::ioctl(fd.as_raw_fd(), libc::BLKSSZGET as _, &raw mut size) } {
        0 => Ok(size as u32),
        _ => Err(std::io::Error::last_os_error()),
    }
}
