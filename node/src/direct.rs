//! A drive's media in a file or on a block device: buffers go to the kernel and come back through the reactor.

use crate::door::{Kind, token};
use crate::transfer::Transfer;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use weir_controller::{Host, Io, Op, SlotId, Subsystem};
use weir_driver::IoKind;
use weir_spec::nvme::Status;
use weir_sys::media::{Fault, FileMedia, FileOpKind, Finished, Request};
use weir_sys::reactor::{FileDone, IoBuf, Reactor};

/// Bytes of the longest single request to the kernel, and so of the largest buffer.
const CHUNK: u32 = 1 << 20;

/// Where the drive's number begins in a token: the medium's own bits are below.
const DRIVE_SHIFT: u32 = 24;

/// See the [module](self).
pub struct Direct {
    media: FileMedia,
    active: Vec<Option<Transfer>>,
}

impl Direct {
    /// Over an open medium.
    pub fn new(media: FileMedia) -> Self {
        Self { media, active: Vec::new() }
    }

    /// Tells the medium which drive of the shard it is, so that its completions find the way back.
    pub fn label(&mut self, drive: u32) {
        self.media.set_token_base(token(Kind::Shard, u64::from(drive) << DRIVE_SHIFT));
    }

    /// The drive that a completion belongs to.
    pub fn drive_of(token: u64) -> u32 {
        (token >> DRIVE_SHIFT) as u32
    }

    /// See [`FileMedia::sync_beside`].
    pub fn sync_beside(&mut self, file: Arc<OwnedFd>) {
        self.media.sync_beside(file);
    }

    /// See [`FileMedia::sync`].
    ///
    /// # Errors
    /// As there.
    pub fn sync(&mut self) -> std::io::Result<()> {
        self.media.sync()
    }

    /// What poisoned the medium, if anything did.
    #[inline]
    pub fn fault(&self) -> Option<&Fault> {
        self.media.fault()
    }

    /// Begins an I/O; answers at once where it cannot be begun.
    pub fn start<H: Host>(
        &mut self,
        io: Io,
        machine: &Subsystem,
        host: &mut H,
        reactor: &mut Reactor,
    ) -> Option<Status> {
        self.begin(Transfer::new(io, true), None, machine, host, reactor)
    }

    fn begin<H: Host>(
        &mut self,
        mut transfer: Transfer,
        spare: Option<IoBuf>,
        machine: &Subsystem,
        host: &mut H,
        reactor: &mut Reactor,
    ) -> Option<Status> {
        let moves = matches!(transfer.kind(), IoKind::Read | IoKind::Write);
        let limit = if moves { CHUNK } else { u32::MAX };
        let mut buf = spare;
        if moves && buf.is_none() {
            buf = Some(self.media.buffer((transfer.io.len - transfer.at).min(CHUNK)));
        }
        let live = machine.is_live(transfer.io.slot);
        let bytes = buf.as_deref_mut().unwrap_or_default();
        if let Err(status) = transfer.begin(limit, bytes, live, host) {
            self.recycle(buf);
            return Some(status);
        }
        let io = &transfer.io;
        let op = match io.op {
            _ if transfer.kind() == IoKind::Flush => FileOpKind::Flush,
            Op::Read | Op::Compare => FileOpKind::Read,
            Op::Write => FileOpKind::Write { durable: io.fua },
            Op::WriteZeroes { deallocate } => FileOpKind::Zero { deallocate },
            Op::Deallocate => FileOpKind::Zero { deallocate: true },
            Op::Flush => FileOpKind::Flush,
        };
        let token = io.slot.index() as u64;
        let request = Request { op, offset: transfer.offset(), len: transfer.chunk, buf, token };
        match self.media.start(reactor, request) {
            Ok(()) => {
                self.remember(transfer);
                None
            }
            Err(finished) => {
                self.recycle(finished.buf);
                Some(finished.status)
            }
        }
    }

    fn remember(&mut self, transfer: Transfer) {
        let place = transfer.io.slot.index();
        if self.active.len() <= place {
            self.active.resize(place + 1, None);
        }
        self.active[place] = Some(transfer);
    }

    fn recycle(&mut self, buf: Option<IoBuf>) {
        if let Some(buf) = buf {
            self.media.recycle(buf);
        }
    }

    /// A file operation ended; the I/O that ended with it, if one did.
    pub fn finished<H: Host>(
        &mut self,
        done: FileDone,
        machine: &Subsystem,
        host: &mut H,
        reactor: &mut Reactor,
    ) -> Option<(SlotId, Status)> {
        let Finished { token, status, buf } = self.media.ready(reactor, done)?;
        let mut transfer = self.active.get_mut(token as usize)?.take()?;
        let slot = transfer.io.slot;
        let live = machine.is_live(slot);
        if let Some(status) = transfer.finish(status, buf.as_deref().unwrap_or_default(), live, host) {
            self.recycle(buf);
            return Some((slot, status));
        }
        self.begin(transfer, buf, machine, host, reactor).map(|status| (slot, status))
    }
}
