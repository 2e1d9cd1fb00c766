//! The io_uring itself: set-up, submission, completions.

use super::error::ReactorError;
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;
use weir_units::Nanos;

/// Entries of the submission ring; more than that in one turn costs another system call, nothing else.
const ENTRIES: u32 = 256;
/// Entries of the completion ring. The kernel keeps what exceeds it (IORING_FEAT_NODROP).
const COMPLETIONS: u32 = 4096;

/// Flags of io_uring_enter(2).
const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_NO_IOWAIT: u32 = 1 << 7;

/// Whose completion it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompletionKind {
    /// Nobody's: the answer to a cancellation.
    None,
    Watch,
    File,
    Bell,
}

/// A completion's `user_data`: kind in bits 63:56, generation in 55:32, place in 31:0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UserData(u64);

impl UserData {
    pub(super) const NONE: UserData = UserData(0);

    pub(super) fn new(kind: CompletionKind, generation: u32, place: u32) -> Self {
        UserData((kind as u64) << 56 | u64::from(generation & 0xff_ffff) << 32 | u64::from(place))
    }

    pub(super) fn kind(self) -> CompletionKind {
        match self.0 >> 56 {
            1 => CompletionKind::Watch,
            2 => CompletionKind::File,
            3 => CompletionKind::Bell,
            _ => CompletionKind::None,
        }
    }

    pub(super) fn generation(self) -> u32 {
        (self.0 >> 32) as u32 & 0xff_ffff
    }

    pub(super) fn place(self) -> u32 {
        self.0 as u32
    }
}

pub(super) struct Uring {
    ring: IoUring,
    /// Made disabled, so that the thread that turns it becomes its only submitter whoever made it.
    enabled: bool,
}

impl Uring {
    pub(super) fn new(level: Level) -> Result<Self, ReactorError> {
        let ring = level.build()?;
        if !(ring.params().is_feature_nodrop() && ring.params().is_feature_ext_arg()) {
            return Err(ReactorError::Unsupported);
        }
        Ok(Self { ring, enabled: false })
    }

    #[inline]
    pub(super) fn wants_enter(&mut self) -> bool {
        let queue = self.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    #[inline]
    pub(super) fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<(UserData, i32, bool)> {
        let entry = self.ring.completion().next()?;
        Some((UserData(entry.user_data()), entry.result(), cqueue::more(entry.flags())))
    }

    /// Submits everything; with a timeout also waits for one completion.
    pub(super) fn enter(&mut self, wait: Option<Nanos>) {
        if !self.enabled {
            self.ring.submitter().register_enable_rings().expect("a ring that was made disabled can be enabled");
            self.enabled = true;
        }
        let result = match wait {
            None => self.ring.submit(),
            Some(t) => self.sleep(t),
        };
        match result.map_err(|e| e.raw_os_error()) {
            // ETIME: the timeout. EINTR: a signal. EBUSY: completions must be reaped first. EAGAIN: no memory now. All leave
            // the entries in the ring for the next time.
            Ok(_) | Err(Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {}
            Err(e) => panic!("io_uring_enter failed: {}", io::Error::from_raw_os_error(e.unwrap_or(0))),
        }
    }

    fn sleep(&mut self, timeout: Nanos) -> io::Result<usize> {
        let timespec = Timespec::from(Duration::from_nanos(timeout.get()));
        let args = match timeout {
            Nanos::NEVER => SubmitArgs::new(),
            _ => SubmitArgs::new().timespec(&timespec),
        };
        let queued = self.ring.submission().len() as u32;
        let mut flags = ENTER_GETEVENTS | ENTER_EXT_ARG;
        if self.ring.params().is_feature_no_iowait() {
            // A sleeping reactor waits for clients; without this (6.15) its core is shown as waiting for a disk.
            flags |= ENTER_NO_IOWAIT;
        }
        // SAFETY: with EXT_ARG the argument is this structure, which points to a timespec that outlives the call.
        unsafe { self.ring.submitter().enter(queued, 1, flags, Some(&args)) }
    }

    /// # Safety
    /// What the entry points to must stay valid until its completion.
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: the caller's promise.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.enter(None);
        }
    }

    pub(super) fn poll(&mut self, fd: RawFd, events: u32, multi: bool, tag: UserData) {
        let entry = opcode::PollAdd::new(Fd(fd), events).multi(multi).build().user_data(tag.0);
        // SAFETY: the entry points to no memory.
        unsafe { self.push(entry) }
    }

    /// By IORING_OP_ASYNC_CANCEL: IORING_OP_POLL_REMOVE gives up where an event is just being handled, and the poll goes on.
    pub(super) fn cancel_poll(&mut self, tag: UserData) {
        let entry = opcode::AsyncCancel::new(tag.0).build().user_data(UserData::NONE.0);
        // SAFETY: the entry points to no memory.
        unsafe { self.push(entry) }
    }

    /// Cancels what can be cancelled; every operation still completes.
    pub(super) fn cancel_files(&mut self) {
        self.enter(None);
        // Fails where nothing is cancellable any more, and then completions are on their way.
        let _ = self.ring.submitter().register_sync_cancel(Some(Timespec::new()), CancelBuilder::any());
    }
}

impl UserData {
    pub(super) fn raw(self) -> u64 {
        self.0
    }
}

/// What a kernel can do for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Completions wait until we ask for them, and a flag says that they do (Linux 6.1).
    Deferred,
    /// They do not interrupt us, and a flag says that they wait (5.19).
    Cooperative,
    /// They interrupt us.
    Plain,
}

impl Level {
    fn build(self) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS).setup_clamp().setup_r_disabled().dontfork();
        let next = match self {
            Level::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
                Some(Level::Cooperative)
            }
            Level::Cooperative => {
                builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
                Some(Level::Plain)
            }
            Level::Plain => None,
        };
        match (builder.build(ENTRIES), next) {
            (Err(e), Some(next)) if e.raw_os_error() == Some(libc::EINVAL) => next.build(),
            (result, _) => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_keep_their_parts() {
        for kind in [CompletionKind::None, CompletionKind::Watch, CompletionKind::File, CompletionKind::Bell] {
            let tag = UserData::new(kind, 0x1ab_cdef, 0xffff_fffe);
            assert_eq!((tag.kind(), tag.generation(), tag.place()), (kind, 0xab_cdef, 0xffff_fffe));
        }
        assert_eq!(UserData::NONE.kind(), CompletionKind::None);
    }
}
