//! Linux's own ways to a file, one request at a time: what a driver in user space is compared with.

use crate::reactor::IoBuf;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// IORING_ENTER_GETEVENTS of io_uring_enter(2).
const ENTER_GETEVENTS: u32 = 1;

/// A file, an io_uring of its own, and one buffer.
///
/// The ring is set up as a program that polls has it: one issuer, and the kernel's part of a completion done when that asks for
/// completions (IORING_SETUP_DEFER_TASKRUN, Linux 6.1), not in an interrupt of somebody's time; without that where the kernel
/// is older.
pub struct KernelFile {
    file: OwnedFd,
    ring: IoUring,
    buffer: IoBuf,
    in_flight: bool,
    direct: bool,
}

impl KernelFile {
    /// Opens a file for requests of at most `buffer` bytes, with direct I/O where its file system has that. The ring belongs to
    /// the calling thread.
    ///
    /// # Errors
    /// The file cannot be opened, or the kernel gives no ring.
    pub fn open(path: &Path, buffer: u32) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let (file, direct) = match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
            Ok(file) => (file, true),
            Err(Errno::INVAL) => (rustix::fs::open(path, flags, Mode::empty())?, false),
            Err(e) => return Err(e.into()),
        };
        let deferred = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(8);
        let ring = match deferred {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => IoUring::new(8)?,
            other => other?,
        };
        Ok(Self { file, ring, buffer: IoBuf::new(buffer as usize), in_flight: false, direct })
    }

    /// Whether the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    fn idle(&self, len: u32) -> io::Result<()> {
        if self.in_flight || len as usize > self.buffer.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "one request at a time, no longer than the buffer",
            ));
        }
        Ok(())
    }

    /// By io_uring: writes the entry and tells the kernel. Offset and length are in bytes, and whole blocks where I/O is direct.
    ///
    /// # Errors
    /// One is in flight, it is longer than the buffer, or the kernel does not take it.
    #[inline]
    pub fn submit(&mut self, write: bool, offset: u64, len: u32) -> io::Result<()> {
        self.idle(len)?;
        let fd = Fd(self.file.as_raw_fd());
        let entry = match write {
            true => opcode::Write::new(fd, self.buffer.as_ptr(), len).offset(offset).build(),
            false => opcode::Read::new(fd, self.buffer.as_mut_ptr(), len).offset(offset).build(),
        };
        // SAFETY: the buffer holds `len` bytes, moves with nobody, is touched by nobody while `in_flight`, and is freed only after
        // `drop` has waited for the completion.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| io::Error::other("the ring is full"))?;
        self.in_flight = true;
        self.ring.submit()?;
        Ok(())
    }

    /// Asks the kernel once for the completion, without waiting: the bytes moved, or `None` where there is no answer yet.
    ///
    /// # Errors
    /// The request's.
    #[inline]
    pub fn poll(&mut self) -> io::Result<Option<u32>> {
        self.enter(0)
    }

    /// Sleeps until the completion.
    ///
    /// # Errors
    /// The request's, or there is none.
    pub fn wait(&mut self) -> io::Result<u32> {
        while self.in_flight {
            if let Some(moved) = self.enter(1)? {
                return Ok(moved);
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "nothing is in flight"))
    }

    #[inline]
    fn enter(&mut self, wait: u32) -> io::Result<Option<u32>> {
        // SAFETY: without an argument the call refers to no memory of ours but the ring's.
        match unsafe { self.ring.submitter().enter::<()>(0, wait, ENTER_GETEVENTS, None) } {
            Err(e) if e.raw_os_error() != Some(libc::EINTR) => return Err(e),
            _ => {}
        }
        let Some(entry) = self.ring.completion().next() else { return Ok(None) };
        self.in_flight = false;
        match entry.result() {
            moved @ 0.. => Ok(Some(moved as u32)),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    /// By pread(2) or pwrite(2): the bytes moved.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    #[inline]
    pub fn call(&mut self, write: bool, offset: u64, len: u32) -> io::Result<u32> {
        self.idle(len)?;
        let bytes = &mut self.buffer[..len as usize];
        let moved = match write {
            true => rustix::io::pwrite(&self.file, bytes, offset),
            false => rustix::io::pread(&self.file, bytes, offset),
        };
        Ok(moved? as u32)
    }
}

impl Drop for KernelFile {
    fn drop(&mut self) {
        // The kernel may still write to the buffer; how the request ends is nobody's business any more.
        while self.in_flight {
            let _ = self.enter(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_move_the_same_bytes() {
        let path = std::env::temp_dir().join(format!("weir-kernel-file-{}", std::process::id()));
        let bytes: Vec<u8> = (0..3 * 4096u32).map(|i| (i / 4096 * 7 + i) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let mut file = KernelFile::open(&path, 4096).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.call(false, 4096, 4096).unwrap(), 4096);
        assert_eq!(file.buffer[..], bytes[4096..8192]);
        file.submit(true, 8192, 4096).unwrap();
        assert!(file.submit(false, 0, 512).is_err(), "one is in flight");
        assert_eq!(file.wait().unwrap(), 4096);
        file.submit(false, 8192, 4096).unwrap();
        let moved = loop {
            if let Some(moved) = file.poll().unwrap() {
                break moved;
            }
        };
        assert_eq!((moved, &file.buffer[..]), (4096, &bytes[4096..8192]), "what was written there is read again");
        assert!(file.wait().is_err() && file.call(false, 0, 8192).is_err());
        file.submit(false, 0, 4096).unwrap();
    }
}
