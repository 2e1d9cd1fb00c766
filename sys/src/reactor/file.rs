//! File operations: the table that owns files and buffers while the kernel works on them.

use super::buffer::IoBuf;
use super::ring::{CompletionKind, Uring, UserData};
use io_uring::opcode;
use io_uring::types::{Fd, FsyncFlags};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// An operation on a file. It owns what the kernel needs.
#[derive(Debug)]
pub enum FileOp {
    /// From `offset` of the file into `range` of the buffer.
    Read {
        /// The file.
        file: Arc<OwnedFd>,
        /// Where in the file.
        offset: u64,
        /// Comes back in [`FileDone`].
        buf: IoBuf,
        /// Which part of the buffer.
        range: Range<u32>,
    },
    /// From `range` of the buffer to `offset` of the file.
    Write {
        /// The file.
        file: Arc<OwnedFd>,
        /// Where in the file.
        offset: u64,
        /// Comes back in [`FileDone`].
        buf: IoBuf,
        /// Which part of the buffer.
        range: Range<u32>,
        /// Durable when it completes (RWF_DSYNC).
        durable: bool,
    },
    /// fdatasync(2).
    Sync {
        /// The file.
        file: Arc<OwnedFd>,
    },
    /// fallocate(2); also on block devices, where it discards or writes zeroes.
    Allocate {
        /// The file.
        file: Arc<OwnedFd>,
        /// FALLOC_FL_*.
        mode: i32,
        /// Where in the file.
        offset: u64,
        /// The range's length in bytes.
        len: u64,
    },
}

/// Bytes moved (0 for operations that move none), or the kernel's error.
pub type FileResult = Result<u32, Errno>;

/// A finished operation.
#[derive(Debug)]
pub struct FileDone {
    /// What the operation was called by who started it.
    pub token: u64,
    /// How it ended; fewer bytes than asked for are possible.
    pub result: FileResult,
    /// The buffer of a read or write.
    pub buf: Option<IoBuf>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    token: u64,
    /// Some while in flight.
    file: Option<Arc<OwnedFd>>,
    buf: Option<IoBuf>,
}

#[derive(Default)]
pub(super) struct Files {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Files {
    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn start(&mut self, ring: &mut Uring, op: FileOp, token: u64) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[place as usize];
        slot.token = token;
        let tag = UserData::new(CompletionKind::File, slot.generation, place).raw();
        let (file, buf, entry) = match op {
            FileOp::Read { file, offset, mut buf, range } => {
                let (at, len) = part(&mut buf, &range);
                let entry = opcode::Read::new(Fd(file.as_raw_fd()), at, len).offset(offset).build();
                (file, Some(buf), entry)
            }
            FileOp::Write { file, offset, mut buf, range, durable } => {
                let (at, len) = part(&mut buf, &range);
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                let entry = opcode::Write::new(Fd(file.as_raw_fd()), at, len).offset(offset).rw_flags(flags).build();
                (file, Some(buf), entry)
            }
            FileOp::Sync { file } => {
                let entry = opcode::Fsync::new(Fd(file.as_raw_fd())).flags(FsyncFlags::DATASYNC).build();
                (file, None, entry)
            }
            FileOp::Allocate { file, mode, offset, len } => {
                let entry = opcode::Fallocate::new(Fd(file.as_raw_fd()), len).offset(offset).mode(mode).build();
                (file, None, entry)
            }
        };
        slot.file = Some(file);
        slot.buf = buf;
        // SAFETY: the slot owns the buffer and the file until the completion arrives; the buffer's bytes do not move with it,
        // and `Reactor::drop` waits for the completion or leaks them.
        unsafe { ring.push(entry.user_data(tag)) }
    }

    pub(super) fn completed(&mut self, tag: UserData, result: i32) -> FileDone {
        let slot = &mut self.slots[tag.place() as usize];
        assert_eq!(slot.generation, tag.generation(), "a file operation completed twice");
        slot.generation = slot.generation.wrapping_add(1) & 0xff_ffff;
        slot.file = None;
        self.free.push(tag.place());
        let result = u32::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
        FileDone { token: slot.token, result, buf: slot.buf.take() }
    }

    /// Gives up the buffers and files in flight without freeing them.
    pub(super) fn leak(&mut self) {
        for slot in &mut self.slots {
            std::mem::forget(slot.buf.take());
            std::mem::forget(slot.file.take());
        }
    }
}

/// Address and length of a part of a buffer.
fn part(buf: &mut IoBuf, range: &Range<u32>) -> (*mut u8, u32) {
    let slice = &mut buf[range.start as usize..range.end as usize];
    (slice.as_mut_ptr(), range.end - range.start)
}
