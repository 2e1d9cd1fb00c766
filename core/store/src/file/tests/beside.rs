//! Writes of one block that are at drives at once.

use super::{BLOCK, Memory, setup};
use crate::file::{DriveFailure, DriveTicket, FileEffect, FileError, FileEvent, FileIo, FileOpId, NewBlock};
use crate::records::{BlockRecord, CHECKSUM_BYTES, MapChunk};
use crate::space::Epoch;
use crate::{Extent, Generation, NamespaceId};
use alloc::vec::Vec;
use weir_units::Nanos;

const FAR: Nanos = Nanos(u64::MAX);

/// A file, and what it has sent.
struct Opened {
    file: FileIo,
    memory: Memory,
    answers: Vec<(FileOpId, Result<u32, FileError>)>,
    /// Writes at drives: ticket, and where.
    writes: Vec<(DriveTicket, Extent)>,
    other: Vec<FileEffect>,
}

fn copies(count: u64) -> Vec<Extent> {
    let copy = |n| Extent { namespace: NamespaceId(n), offset: 0.into(), length: u64::from(BLOCK).into() };
    (0..count).map(copy).collect()
}

impl Opened {
    fn apply(&mut self, event: FileEvent) {
        let mut effects = Vec::new();
        self.file.apply(Nanos(1), event, &mut self.memory, &mut effects);
        self.file.check();
        for effect in effects {
            match effect {
                FileEffect::Answer(id, result) => self.answers.push((id, result)),
                FileEffect::Write(ticket, extent, _) => self.writes.push((ticket, extent)),
                other => self.other.push(other),
            }
        }
    }

    fn write(&mut self, id: u64, start: u32, end: u32) {
        self.memory.callers.insert(FileOpId(id), alloc::vec![id as u8; (end - start) as usize]);
        self.apply(FileEvent::Write(FileOpId(id), start.into(), end - start, FAR));
    }

    /// A new block with so many copies, written to by one piece of the first 4 KiB.
    fn new(count: u64) -> Self {
        let (file, memory) = (FileIo::new(setup(0, u64::MAX)), Memory::default());
        let mut opened = Self { file, memory, answers: Vec::new(), writes: Vec::new(), other: Vec::new() };
        opened.write(1, 0, 4096);
        opened.apply(FileEvent::Chunk(0, Ok((MapChunk::default(), Epoch(1)))));
        opened.apply(FileEvent::Granted(0, Ok(NewBlock { copies: copies(count), generation: Generation(1) })));
        opened
    }

    /// A published block with so many copies, whose mark is made.
    fn published(count: u64) -> Self {
        let (file, memory) = (FileIo::new(setup(BLOCK.into(), u64::MAX)), Memory::default());
        let mut opened = Self { file, memory, answers: Vec::new(), writes: Vec::new(), other: Vec::new() };
        opened.write(1, 0, CHECKSUM_BYTES);
        let record = BlockRecord { copies: copies(count), checksums: alloc::vec![0, 0], ..BlockRecord::default() };
        opened.apply(FileEvent::Chunk(0, Ok((MapChunk { blocks: alloc::vec![record] }, Epoch(1)))));
        opened.apply(FileEvent::Unsettled(0, Ok(())));
        opened
    }

    /// The drives of the writes that are under way, and where those begin.
    fn at_drives(&self) -> Vec<(u64, u64)> {
        self.writes.iter().map(|(_, extent)| (extent.namespace.0, extent.offset.get())).collect()
    }

    fn done(&mut self, drive: u64, start: u64, result: Result<(), DriveFailure>) {
        let is = |(_, extent): &(DriveTicket, Extent)| (extent.namespace.0, extent.offset.get()) == (drive, start);
        let at = self.writes.iter().position(is).expect("it is under way");
        let (ticket, _) = self.writes.swap_remove(at);
        self.apply(FileEvent::Done(ticket, result));
    }
}

#[test]
fn whole_sectors_of_a_new_block_are_written_at_once() {
    let mut opened = Opened::new(1);
    opened.write(2, 4096, 12288);
    opened.write(3, CHECKSUM_BYTES, BLOCK);
    assert_eq!(opened.at_drives(), [(0, 0), (0, 4096), (0, CHECKSUM_BYTES.into())]);
    // Those of bytes that are being written, of a part of a sector, and behind one that waits, wait.
    opened.write(4, 8192, 16384);
    opened.write(5, 20480, 24576);
    assert_eq!(opened.writes.len(), 3);
    opened.done(0, 4096, Ok(()));
    assert_eq!(opened.at_drives()[2..], [(0, 8192), (0, 20480)]);
    opened.write(6, 30_000, 31_000);
    assert_eq!(opened.writes.len(), 4);
    for start in [0, 8192, 20480, CHECKSUM_BYTES.into()] {
        opened.done(0, start, Ok(()));
    }
    assert_eq!(opened.at_drives(), [(0, 29_696), (0, 30_208), (0, 30_720)]);
    // Whole sectors that are not those.
    opened.write(7, 32768, 36864);
    opened.write(8, 28672, 32768);
    assert_eq!(opened.writes.len(), 4, "a sector that is written already has a part of the last one");
    let answered: Vec<u64> = opened.answers.iter().map(|(id, _)| id.0).collect();
    assert_eq!(answered, [2, 1, 4, 5, 3]);
}

#[test]
fn a_read_waits_for_all_of_them_and_a_write_for_a_read() {
    let mut opened = Opened::new(1);
    opened.write(2, CHECKSUM_BYTES, BLOCK);
    opened.done(0, 0, Ok(()));
    opened.memory.callers.insert(FileOpId(3), alloc::vec![0; 4096]);
    opened.apply(FileEvent::Read(FileOpId(3), 0, 4096, FAR));
    opened.write(4, 8192, 12288);
    let reads = |opened: &Opened| opened.other.iter().filter(|effect| matches!(effect, FileEffect::Read(..))).count();
    assert_eq!((reads(&opened), opened.writes.len()), (0, 1));
    opened.done(0, CHECKSUM_BYTES.into(), Ok(()));
    assert_eq!((reads(&opened), opened.writes.len()), (1, 0));
}

/// Units that are written as a whole, or were written before, are compared with nothing.
#[test]
fn a_published_block_is_written_at_once_where_nothing_is_compared() {
    let mut opened = Opened::published(1);
    opened.write(2, CHECKSUM_BYTES, CHECKSUM_BYTES + 4096);
    assert_eq!(opened.at_drives(), [(0, 0)], "its unit is to be compared first");
    let mut opened = Opened::published(1);
    opened.write(2, CHECKSUM_BYTES, BLOCK);
    assert_eq!(opened.at_drives(), [(0, 0), (0, CHECKSUM_BYTES.into())]);
    // A copy that fails is marked out before the write is answered: the next one is to know of that.
    let mut opened = Opened::published(2);
    opened.write(2, CHECKSUM_BYTES, BLOCK);
    assert_eq!(opened.at_drives(), [(0, 0), (1, 0)]);
}

/// Each of them fails at another copy: none has all bytes.
#[test]
fn copies_that_fail_at_different_writes_leave_none() {
    let begin = || {
        let mut opened = Opened::new(2);
        opened.write(2, CHECKSUM_BYTES, BLOCK);
        assert_eq!(opened.writes.len(), 4);
        opened.done(0, 0, Err(DriveFailure));
        opened.done(1, 0, Ok(()));
        assert_eq!(opened.answers, [(FileOpId(1), Ok(4096))]);
        opened
    };
    let behind = u64::from(CHECKSUM_BYTES);
    for (first, second) in [(Ok(()), Ok(())), (Err(DriveFailure), Ok(())), (Ok(()), Err(DriveFailure))] {
        let mut opened = begin();
        opened.done(0, behind, first);
        opened.done(1, behind, second);
        let is_lost = second.is_err();
        let expected = if is_lost { Err(FileError::Unwritable(0)) } else { Ok(BLOCK - CHECKSUM_BYTES) };
        assert_eq!(opened.answers[1], (FileOpId(2), expected), "{first:?} {second:?}");
        assert_eq!(opened.file.poison(), is_lost.then_some(FileError::Unwritable(0)));
        if !is_lost {
            assert_eq!(opened.file.copies_of(0), copies(2)[1..], "{first:?}");
            assert_eq!(opened.file.take_unused(), copies(2)[..1], "it is given back once");
        }
    }
}
