//! Blocks with metadata in a file: each command's data in one piece, its metadata in the file beside.
//!
//! ```text
//!  start_whole ─▶ (others of the same blocks? held) ─▶ write: fetch, check, metadata ─▶ data ──────────────▶ Ended
//!                                                      read: data ─▶ metadata, check, hand over ───────────▶ Ended
//!                                                      copy: data ─▶ metadata, check, metadata ─▶ data ────▶ Ended
//! ```
//! Data and metadata of a block are two things here, so who reads or writes blocks that somebody writes waits for him: nobody sees
//! the one without the other.

use super::{KernelIo, Progress, put};
use crate::metadata_store::{Beside, Both};
use std::collections::VecDeque;
use weir_controller::{Host, Io, Op, Subsystem};
use weir_spec::nvme::Status;
use weir_sys::media::{FileOpKind, FileRequest, Finished};
use weir_sys::reactor::{IoBuf, Reactor};

/// Marks the requests of such commands.
pub(super) const WHOLE: u64 = 1 << 30;

/// A command under way.
pub(super) struct MetadataCommand {
    io: Io,
    both: Both,
    /// What its blocks' metadata was, of a write whose data is on its way.
    old: Option<Vec<u8>>,
    /// The data is there and is being made durable.
    flushing: bool,
    /// Of a copy: its data was read.
    filled: bool,
}

/// Commands with metadata, by slot, and those that wait for them.
#[derive(Default)]
pub(super) struct MetadataCommands {
    active: Vec<Option<MetadataCommand>>,
    held: VecDeque<(Io, Both)>,
}

/// Whether one of two commands changes blocks of the other.
fn meet(a: &Io, b: &Io) -> bool {
    let writes = |io: &Io| !matches!(io.op, Op::Read | Op::Compare | Op::Verify);
    let overlap = |a: u64, b: u64, (len_a, len_b): (u32, u32)| a < b + u64::from(len_b) && b < a + u64::from(len_a);
    let reads = |io: &Io| match io.data.get() {
        weir_controller::Data::Media(from) if io.op == Op::Copy => Some(from),
        _ => None,
    };
    let lens = (a.len, b.len);
    let same = (writes(a) || writes(b)) && overlap(a.offset, b.offset, lens);
    same || reads(a).is_some_and(|from| writes(b) && overlap(from, b.offset, lens))
        || reads(b).is_some_and(|from| writes(a) && overlap(a.offset, from, lens))
}

impl MetadataCommands {
    fn is_held_up(&self, io: &Io, before: usize) -> bool {
        let under_way = self.active.iter().flatten().any(|whole| meet(&whole.io, io));
        under_way || self.held.iter().take(before).any(|(other, _)| meet(other, io))
    }
}

impl KernelIo {
    /// Begins an I/O on blocks with metadata; answers at once where it cannot be begun.
    pub(crate) fn start_whole<H: Host>(
        &mut self,
        (io, both): (Io, Both),
        beside: &mut Beside,
        machine: &Subsystem,
        host: &mut H,
        reactor: &mut Reactor,
    ) -> Option<Status> {
        if self.wholes.is_held_up(&io, usize::MAX) {
            self.wholes.held.push_back((io, both));
            return None;
        }
        self.begin_whole((io, both), beside, machine.is_live(io.slot), host, reactor)
    }

    /// The next one that need not wait any more, and its answer if it cannot be begun; `None`: there is none.
    pub(crate) fn next_whole<H: Host>(
        &mut self,
        beside: &mut Beside,
        machine: &Subsystem,
        host: &mut H,
        reactor: &mut Reactor,
    ) -> Option<(Io, Option<Status>)> {
        let free = |at: &usize| !self.wholes.is_held_up(&self.wholes.held[*at].0, *at);
        let at = (0..self.wholes.held.len()).find(free)?;
        let (io, both) = self.wholes.held.remove(at)?;
        Some((io, self.begin_whole((io, both), beside, machine.is_live(io.slot), host, reactor)))
    }

    fn begin_whole<H: Host>(
        &mut self,
        (io, both): (Io, Both),
        beside: &mut Beside,
        live: bool,
        host: &mut H,
        reactor: &mut Reactor,
    ) -> Option<Status> {
        let (mut buf, mut old) = (None, None);
        let op = match io.op {
            Op::Write if !live => return Some(Status::ABORT_REQUESTED),
            Op::Write => {
                let mut bytes = self.media.buffer(io.len);
                let mut metadata = vec![0; both.metadata.size(io.len)];
                let from = (host, io.owner, &io.data);
                let taken = both.metadata.take(from, io.skip, &mut bytes[..io.len as usize], &mut metadata);
                match taken.and_then(|()| replace(beside, &io, &both, &metadata)) {
                    Ok(before) => (buf, old) = (Some(bytes), Some(before)),
                    Err(status) => {
                        self.recycle(Some(bytes));
                        return Some(status);
                    }
                }
                FileOpKind::Write { durable: io.fua }
            }
            Op::Read | Op::Compare | Op::Verify | Op::Copy => {
                buf = Some(self.media.buffer(io.len));
                FileOpKind::Read
            }
            Op::WriteZeroes { .. } | Op::Deallocate => {
                let changed = match io.op {
                    Op::Deallocate => beside.erase(io.offset, io.len),
                    _ => beside.zeroed(None, &io, &both.metadata),
                };
                if let Err(status) = changed {
                    return Some(status);
                }
                FileOpKind::Zero { deallocate: io.op != Op::WriteZeroes { deallocate: false } }
            }
            Op::Flush => return Some(Status::INTERNAL_ERROR),
        };
        let whole = MetadataCommand { io, both, old, flushing: false, filled: false };
        self.request(whole, (op, buf), beside, reactor).err()
    }

    /// Hands a command's next request to the medium.
    fn request(
        &mut self,
        whole: MetadataCommand,
        (op, buf): (FileOpKind, Option<IoBuf>),
        beside: &mut Beside,
        reactor: &mut Reactor,
    ) -> Result<(), Status> {
        let (slot, len) = (whole.io.slot, whole.io.len);
        let offset = match whole.both.from(&whole.io) {
            Ok(from) if whole.io.op == Op::Copy && !whole.filled => from,
            _ => whole.io.offset,
        };
        let request = FileRequest { op, offset, len, buf, token: slot.index() as u64 | WHOLE };
        match self.media.start(reactor, request) {
            Ok(()) => {
                put(&mut self.wholes.active, slot, whole);
                Ok(())
            }
            Err(Finished { status, buf, .. }) => {
                self.recycle(buf);
                whole.undo(beside);
                if status.is_success() { Err(Status::INTERNAL_ERROR) } else { Err(status) }
            }
        }
    }

    /// A request of such a command has ended.
    pub(super) fn whole_done<H: Host>(
        &mut self,
        (place, status, mut buf): (usize, Status, Option<IoBuf>),
        beside: &mut Beside,
        machine: &Subsystem,
        host: &mut H,
        reactor: &mut Reactor,
    ) -> Progress {
        let Some(mut whole) = self.wholes.active.get_mut(place).and_then(Option::take) else { return Progress::Goes };
        let io = whole.io;
        let next = match whole.advance(status, &mut buf, beside, machine.is_live(io.slot), host) {
            Ok(next) => next,
            Err(status) => {
                whole.undo(beside);
                self.recycle(buf);
                return Progress::Ended(io, status);
            }
        };
        let ended = match next {
            None => {
                self.recycle(buf);
                Err(Status::SUCCESS)
            }
            Some(op @ FileOpKind::Flush) => {
                self.recycle(buf);
                self.request(whole, (op, None), beside, reactor)
            }
            Some(op) => self.request(whole, (op, buf), beside, reactor),
        };
        match ended {
            Ok(()) => Progress::Goes,
            Err(status) => Progress::Ended(io, status),
        }
    }

    /// Whether such a command waits for others.
    pub(crate) fn holds_wholes(&self) -> bool {
        !self.wholes.held.is_empty()
    }
}

impl MetadataCommand {
    /// What comes after a request that has ended; `None`: the command has succeeded.
    fn advance<H: Host>(
        &mut self,
        status: Status,
        buf: &mut Option<IoBuf>,
        beside: &mut Beside,
        live: bool,
        host: &mut H,
    ) -> Result<Option<FileOpKind>, Status> {
        if !status.is_success() {
            return Err(status);
        }
        let MetadataCommand { io, both, .. } = self;
        let data = buf.as_deref().map_or(&[][..], |bytes| &bytes[..io.len as usize]);
        match io.op {
            Op::Read | Op::Compare | Op::Verify if live => {
                let mut metadata = beside.read(&both.metadata, io.offset, io.len)?;
                both.hand_over(io, data, &mut metadata, (host, io.owner, &io.data))?;
                Ok(None)
            }
            Op::Copy if !self.filled => {
                if let Some(metadata) = both.carry_over(beside, io, data)? {
                    self.old = Some(replace(beside, io, both, &metadata)?);
                }
                self.filled = true;
                Ok(Some(FileOpKind::Write { durable: io.fua }))
            }
            Op::WriteZeroes { .. } if io.fua && !self.flushing => {
                self.flushing = true;
                Ok(Some(FileOpKind::Flush))
            }
            _ => Ok(None),
        }
    }

    /// Its data was not written: the metadata is what it was.
    fn undo(&self, beside: &mut Beside) {
        if let Some(old) = &self.old {
            if let Err(status) = beside.write(None, &self.both.metadata, self.io.offset, old) {
                tracing::error!("metadata of blocks that were not written could not be put back: {status}");
            }
        }
    }
}

/// Stores the metadata of what is to be written; what was there.
fn replace(beside: &mut Beside, io: &Io, both: &Both, metadata: &[u8]) -> Result<Vec<u8>, Status> {
    let old = beside.read(&both.metadata, io.offset, io.len)?;
    beside.write(None, &both.metadata, io.offset, metadata)?;
    Ok(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_controller::{DataPointer, Owner, SlotId, Tag};

    #[test]
    fn who_shares_blocks_with_a_writer_waits() {
        let io = |op, offset, len| {
            let (slot, owner, data) = (SlotId(0), Owner(0), DataPointer::tag(Tag(0)));
            Io { slot, owner, data, op, nsid: 1, offset, len, fua: false, skip: 0 }
        };
        let copy = |from, to, len| Io { data: DataPointer::media(from), ..io(Op::Copy, to, len) };
        let (read, write) = (|at, len| io(Op::Read, at, len), |at, len| io(Op::Write, at, len));
        for (a, b, together) in [
            (read(0, 8), read(0, 8), true),
            (read(0, 8), write(7, 8), false),
            (read(0, 8), write(8, 8), true),
            (write(0, 8), write(4, 1), false),
            (copy(0, 100, 8), read(0, 8), true),
            (copy(0, 100, 8), write(7, 1), false),
            (copy(0, 100, 8), read(107, 1), false),
            (copy(0, 100, 8), copy(50, 0, 1), false),
            (copy(0, 100, 8), copy(0, 200, 8), true),
            (io(Op::Deallocate, 0, 8), io(Op::Verify, 0, 1), false),
        ] {
            assert_eq!((meet(&a, &b), meet(&b, &a)), (!together, !together), "{a:?} {b:?}");
        }
    }
}
