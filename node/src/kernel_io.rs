//! A drive's media in a file or on a block device: buffers go to the kernel and come back through the reactor.

mod with_metadata;

use crate::deadlines::Deadlines;
use crate::metadata_store::Beside;
use crate::tokens::{Kind, token};
use crate::transfer::Transfer;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use weir_controller::{Host, Io, Op, SlotId, Subsystem};
use weir_driver::IoKind;
use weir_flash::UNIT;
use weir_spec::nvme::Status;
use weir_sys::media::{FileMedia, FileOpKind, FileRequest, Finished, MediumFault};
use weir_sys::reactor::{FileDone, IoBuf, Reactor};
use weir_units::Nanos;
use with_metadata::{MetadataCommands, WHOLE};

/// Bytes of the longest single request to the kernel, and so of the largest buffer.
const CHUNK: u32 = 1 << 20;

/// Where the drive's number begins in a token: the medium's own bits are below.
const DRIVE_SHIFT: u32 = 24;

/// Marks the request that reads what a command will overwrite.
const SAVE: u64 = 1 << 31;

/// What the end of a file operation leads to.
pub enum Progress {
    /// More of the same command.
    Goes,
    /// The command has ended.
    Ended(Io, Status),
    /// What the command will overwrite, in whole units; it is to be started now.
    Saved(Io, IoBuf),
}

/// See the [module](self).
pub struct KernelIo {
    media: FileMedia,
    active: Vec<Option<Transfer>>,
    /// By slot: commands whose old bytes are being read.
    saving: Vec<Option<Io>>,
    /// By slot: reads that are done before their time, with the bytes that their hosts get when it has come.
    kept: Vec<Option<(Transfer, IoBuf)>>,
    wholes: MetadataCommands,
}

impl KernelIo {
    /// Over an open medium.
    pub fn new(media: FileMedia) -> Self {
        Self { media, active: Vec::new(), saving: Vec::new(), kept: Vec::new(), wholes: MetadataCommands::default() }
    }

    /// Tells the medium which drive of the shard it is, so that its completions find the way back.
    pub fn label(&mut self, drive: u32) {
        self.media.set_token_base(token(Kind::Shard, u64::from(drive) << DRIVE_SHIFT));
    }

    /// The drive that a completion belongs to.
    pub fn drive_of(token: u64) -> u32 {
        (token >> DRIVE_SHIFT) as u32
    }

    /// See [`FileMedia::file`].
    pub fn file(&self) -> &Arc<OwnedFd> {
        self.media.file()
    }

    /// See [`FileMedia::sync_beside`].
    pub fn sync_beside(&mut self, file: Arc<OwnedFd>) {
        self.media.sync_beside(file);
    }

    /// See [`FileMedia::allocate`].
    ///
    /// # Errors
    /// As there.
    pub fn allocate(&mut self, bytes: u64) -> std::io::Result<()> {
        self.media.allocate(bytes)
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
    pub fn fault(&self) -> Option<&MediumFault> {
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
        let op = match transfer.kind() {
            IoKind::Read => FileOpKind::Read,
            IoKind::Write => FileOpKind::Write { durable: io.fua },
            IoKind::WriteZeroes => FileOpKind::Zero { deallocate: io.op == Op::WriteZeroes { deallocate: true } },
            IoKind::Trim => FileOpKind::Zero { deallocate: true },
            IoKind::Flush => FileOpKind::Flush,
        };
        let token = io.slot.index() as u64;
        let request = FileRequest { op, offset: transfer.offset(), len: transfer.chunk, buf, token };
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
        put(&mut self.active, transfer.io.slot, transfer);
    }

    /// The time of a command has come that was done before it: its host gets what was read. `None` where nothing was kept.
    pub fn deliver<H: Host>(&mut self, slot: SlotId, machine: &Subsystem, host: &mut H) -> Option<Status> {
        let (mut transfer, buf) = self.kept.get_mut(slot.index())?.take()?;
        let status = transfer.finish(Status::SUCCESS, &buf, machine.is_live(slot), host);
        self.recycle(Some(buf));
        status
    }

    /// Takes a buffer back.
    pub fn recycle(&mut self, buf: Option<IoBuf>) {
        if let Some(buf) = buf {
            self.media.recycle(buf);
        }
    }

    /// Operations that have not ended.
    pub fn in_flight(&self) -> usize {
        self.media.in_flight()
    }

    /// Reads the whole units that a command will change; false where that cannot be begun, and nothing is kept.
    pub fn save(&mut self, io: Io, reactor: &mut Reactor) -> bool {
        let unit = u64::from(UNIT);
        let (first, end) = (io.offset / unit * unit, (io.offset + u64::from(io.len)).next_multiple_of(unit));
        let len = (end.min(self.media.capacity()) - first) as u32;
        let token = io.slot.index() as u64 | SAVE;
        let buf = Some(self.media.buffer(len));
        let request = FileRequest { op: FileOpKind::Read, offset: first, len, buf, token };
        match self.media.start(reactor, request) {
            Ok(()) => {
                put(&mut self.saving, io.slot, io);
                true
            }
            Err(finished) => {
                self.recycle(finished.buf);
                false
            }
        }
    }

    /// Writes a unit, zeroes if there are no bytes; waits for it.
    ///
    /// # Errors
    /// As of any write.
    pub fn write_now(&mut self, offset: u64, bytes: Option<&[u8]>) -> Result<(), Status> {
        let mut buf = self.media.buffer(UNIT);
        match bytes {
            Some(bytes) => buf[..bytes.len()].copy_from_slice(bytes),
            None => buf[..UNIT as usize].fill(0),
        }
        let written = self.media.write_now(offset, &buf[..UNIT as usize]);
        self.recycle(Some(buf));
        written
    }

    /// Has bytes read as zeroes; waits for it.
    ///
    /// # Errors
    /// As of any write.
    pub fn zero_now(&mut self, offset: u64, len: u64) -> Result<(), Status> {
        self.media.zero_now(offset, len)
    }

    /// A file operation ended. What is read before `now` has come to its command's time is kept until
    /// [`deliver`](Self::deliver), unless it is so much that moving it takes time as well.
    pub fn finished<H: Host>(
        &mut self,
        (done, now): (FileDone, Nanos),
        beside: &mut Beside,
        machine: &Subsystem,
        host: &mut H,
        reactor: &mut Reactor,
    ) -> Progress {
        let Some(Finished { token, status, buf }) = self.media.ready(reactor, done) else { return Progress::Goes };
        if token & SAVE != 0 {
            return self.read_to_save((token & !SAVE) as usize, status, buf);
        }
        if token & WHOLE != 0 {
            return self.whole_done(((token & !WHOLE) as usize, status, buf), beside, machine, host, reactor);
        }
        let Some(mut transfer) = self.active.get_mut(token as usize).and_then(Option::take) else {
            return Progress::Goes;
        };
        let (io, slot) = (transfer.io, transfer.io.slot);
        let live = machine.is_live(slot);
        let early = live && machine.due(slot).is_some_and(|due| now < due) && !Deadlines::is_large(io.len);
        let buf = match buf {
            Some(buf) if early && transfer.ends_a_read(status) => {
                put(&mut self.kept, slot, (transfer, buf));
                return Progress::Ended(io, status);
            }
            buf => buf,
        };
        if let Some(status) = transfer.finish(status, buf.as_deref().unwrap_or_default(), live, host) {
            self.recycle(buf);
            return Progress::Ended(io, status);
        }
        match self.begin(transfer, buf, machine, host, reactor) {
            Some(status) => Progress::Ended(io, status),
            None => Progress::Goes,
        }
    }

    /// A command whose old bytes cannot be read does not overwrite them.
    fn read_to_save(&mut self, place: usize, status: Status, buf: Option<IoBuf>) -> Progress {
        match (self.saving.get_mut(place).and_then(Option::take), buf) {
            (Some(io), Some(buf)) if status.is_success() => Progress::Saved(io, buf),
            (Some(io), buf) => {
                self.recycle(buf);
                Progress::Ended(io, status)
            }
            (None, _) => Progress::Goes,
        }
    }
}

fn put<T>(list: &mut Vec<Option<T>>, slot: SlotId, what: T) {
    if list.len() <= slot.index() {
        list.resize_with(slot.index() + 1, || None);
    }
    list[slot.index()] = Some(what);
}
