//! An I/O whose medium answers later: cut into chunks, each of which is started, finishes, and leads to the next.
//!
//! ```text
//!   begin ──► fill (write: host → buffer) ──► started at the backend ──► finished
//!     ▲                                                                     │ read: buffer → host; compare
//!     └──────────────── bytes left ◄────────────────────────────────────────┴─► Done{slot, status}
//! ```

use weir_controller::{Data, Host, Io, Op};
use weir_driver::IoKind;
use weir_spec::nvme::Status;
use weir_units::Nanos;

/// An [`Io`] on its way.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// What the machine asked for.
    pub io: Io,
    /// Bytes that are done.
    pub at: u32,
    /// Bytes of the chunk that is with the backend.
    pub chunk: u32,
    /// A flush has to follow, because the backend cannot write through what `io` does.
    pub flush_after: bool,
    flushing: bool,
    /// Where it stands among all that were begun, for a backend that begins them again.
    pub order: u64,
    /// Since when an outage of the backend has kept it; an answer ends that.
    pub held_since: Option<Nanos>,
    /// Of a copy: the chunk is in the buffer, and is to be written.
    filled: bool,
}

impl Transfer {
    /// Nothing done yet. `writes_through`: the backend honours FUA of a write by itself.
    pub fn new(io: Io, writes_through: bool) -> Self {
        let through = match io.op {
            Op::Write | Op::Copy => writes_through,
            Op::WriteZeroes { .. } => false,
            _ => true,
        };
        Self {
            io,
            at: 0,
            chunk: 0,
            flush_after: io.fua && !through,
            flushing: false,
            order: 0,
            held_since: None,
            filled: false,
        }
    }

    /// What the backend has to do for this chunk.
    pub fn kind(&self) -> IoKind {
        match self.io.op {
            _ if self.flushing => IoKind::Flush,
            Op::Read | Op::Compare | Op::Verify => IoKind::Read,
            Op::Copy if !self.filled => IoKind::Read,
            Op::Write | Op::Copy => IoKind::Write,
            Op::WriteZeroes { .. } => IoKind::WriteZeroes,
            Op::Deallocate => IoKind::Trim,
            Op::Flush => IoKind::Flush,
        }
    }

    /// Where the chunk begins in the drive's media.
    pub fn offset(&self) -> u64 {
        let start = match (self.kind(), self.io.data.get()) {
            (IoKind::Flush, _) => return 0,
            (IoKind::Read, Data::Media(from)) => from,
            _ => self.io.offset,
        };
        start + u64::from(self.at)
    }

    /// Takes the next chunk, at most `limit` bytes, and for a write fetches the host's bytes into `buffer`. The chunk that a copy
    /// has read is in there already.
    ///
    /// # Errors
    /// The host's bytes cannot be had: the command fails with this status.
    pub fn begin<H: Host>(&mut self, limit: u32, buffer: &mut [u8], live: bool, host: &mut H) -> Result<(), Status> {
        self.chunk = (self.io.len - self.at).min(limit);
        if self.kind() != IoKind::Write || self.io.op == Op::Copy {
            return Ok(());
        }
        if !live {
            return Err(Status::ABORT_REQUESTED);
        }
        self.io.read_data(host, self.at, &mut buffer[..self.chunk as usize])
    }

    /// The chunk came back. `None`: there is another one to begin.
    pub fn finish<H: Host>(&mut self, status: Status, buffer: &[u8], live: bool, host: &mut H) -> Option<Status> {
        if !status.is_success() {
            return Some(status);
        }
        if let Err(status) = self.deliver(&buffer[..self.moved()], live, host) {
            return Some(status);
        }
        if self.io.op == Op::Copy && !self.flushing {
            self.filled = !self.filled;
            if self.filled {
                return None;
            }
        }
        self.at += self.chunk;
        if self.at < self.io.len {
            return None;
        }
        if self.flush_after {
            (self.flush_after, self.flushing) = (false, true);
            return None;
        }
        Some(Status::SUCCESS)
    }

    /// The chunk that was begun did not come back, and its buffer is gone: it is begun anew.
    pub fn restart_chunk(&mut self) {
        self.filled = false;
    }

    /// Whether this end of a chunk is the end of a read that went well.
    pub fn ends_a_read(&self, status: Status) -> bool {
        self.io.op == Op::Read && !self.flush_after && status.is_success() && self.at + self.chunk == self.io.len
    }

    fn moved(&self) -> usize {
        if self.kind() == IoKind::Read { self.chunk as usize } else { 0 }
    }

    fn deliver<H: Host>(&self, bytes: &[u8], live: bool, host: &mut H) -> Result<(), Status> {
        match self.io.op {
            Op::Read if live => host.write_data(self.io.owner, &self.io.data, self.io.skip + self.at, bytes),
            Op::Compare if live => compare(&self.io, self.at, bytes, host),
            _ => Ok(()),
        }
    }
}

/// Compares the medium's bytes with the host's, a page at a time.
///
/// # Errors
/// [`Status::COMPARE_FAILURE`] where they differ, or why the host's bytes cannot be had.
pub fn compare<H: Host>(io: &Io, at: u32, medium: &[u8], host: &mut H) -> Result<(), Status> {
    let mut page = [0u8; 4096];
    for (i, bytes) in medium.chunks(page.len()).enumerate() {
        let theirs = &mut page[..bytes.len()];
        host.read_data(io.owner, &io.data, io.skip + at + (i * 4096) as u32, theirs)?;
        if theirs != bytes {
            return Err(Status::COMPARE_FAILURE);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_controller::{DataPointer, Owner, SlotId, Tag};
    use weir_spec::nvme::Cqe;

    /// One command's buffer at the host.
    struct Buffer(Vec<u8>);

    impl Host for Buffer {
        fn fetch(&mut self, _: Owner, _: u64) -> Result<[u64; 8], Status> {
            Err(Status::INTERNAL_ERROR)
        }
        fn post(&mut self, _: Owner, _: u64, _: Option<u16>, _: &Cqe) -> Result<(), Status> {
            Ok(())
        }
        fn interrupt(&mut self, _: Owner, _: u16) {}
        fn respond(&mut self, _: Owner, _: Tag, _: &Cqe) {}
        fn read_data(&mut self, _: Owner, _: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
            into.copy_from_slice(&self.0[offset as usize..][..into.len()]);
            Ok(())
        }
        fn write_data(&mut self, _: Owner, _: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
            self.0[offset as usize..][..from.len()].copy_from_slice(from);
            Ok(())
        }
    }

    fn io(op: Op, len: u32, fua: bool) -> Io {
        let (slot, owner, data) = (SlotId(0), Owner(0), DataPointer::tag(Tag(0)));
        Io { slot, owner, data, op, nsid: 1, offset: 8192, len, fua, skip: 0 }
    }

    /// Runs a transfer against a medium in memory; the kinds and offsets of what the backend saw, and how it ended.
    fn run(mut t: Transfer, limit: u32, medium: &mut [u8], host: &mut Buffer) -> (Vec<(IoKind, u64, u32)>, Status) {
        let mut seen = Vec::new();
        let mut buffer = vec![0xee; limit as usize];
        loop {
            if let Err(status) = t.begin(limit, &mut buffer, true, host) {
                return (seen, status);
            }
            seen.push((t.kind(), t.offset(), t.chunk));
            let at = t.offset() as usize;
            match t.kind() {
                IoKind::Read => buffer[..t.chunk as usize].copy_from_slice(&medium[at..][..t.chunk as usize]),
                IoKind::Write => medium[at..][..t.chunk as usize].copy_from_slice(&buffer[..t.chunk as usize]),
                _ => {}
            }
            if let Some(status) = t.finish(Status::SUCCESS, &buffer, true, host) {
                return (seen, status);
            }
        }
    }

    #[test]
    fn chunks_cover_everything_once() {
        let mut medium: Vec<u8> = (0..32768u32).map(|i| (i / 7) as u8).collect();
        let mut host = Buffer(vec![0; 10240]);
        let (seen, status) = run(Transfer::new(io(Op::Read, 10240, false), true), 4096, &mut medium, &mut host);
        let read = IoKind::Read;
        assert_eq!(seen, [(read, 8192, 4096), (read, 12288, 4096), (read, 16384, 2048)]);
        assert!(status.is_success());
        assert_eq!(host.0, medium[8192..][..10240]);
        let (_, status) = run(Transfer::new(io(Op::Compare, 10240, false), true), 4096, &mut medium, &mut host);
        assert!(status.is_success());
        host.0[9000] ^= 1;
        let (_, status) = run(Transfer::new(io(Op::Compare, 10240, false), true), 4096, &mut medium, &mut host);
        assert!(status.same_code(Status::COMPARE_FAILURE));
        let (_, status) = run(Transfer::new(io(Op::Write, 10240, false), true), 4096, &mut medium, &mut host);
        assert!(status.is_success());
        assert_eq!(host.0, medium[8192..][..10240]);
    }

    #[test]
    fn a_copy_reads_each_chunk_and_writes_it_from_the_same_buffer() {
        let mut medium: Vec<u8> = (0..32768u32).map(|i| (i / 7) as u8).collect();
        let before = medium.clone();
        let (read, write) = (IoKind::Read, IoKind::Write);
        for (fua, through) in [(false, true), (true, true), (true, false)] {
            let copy = Io { offset: 16384, data: DataPointer::media(1024), ..io(Op::Copy, 6144, fua) };
            let mut host = Buffer(Vec::new());
            let (seen, status) = run(Transfer::new(copy, through), 4096, &mut medium, &mut host);
            assert!(status.is_success());
            let mut expected = vec![(read, 1024, 4096), (write, 16384, 4096), (read, 5120, 2048), (write, 20480, 2048)];
            expected.extend((fua && !through).then_some((IoKind::Flush, 0, 0)));
            assert_eq!(seen, expected);
            assert_eq!(medium[16384..][..6144], before[1024..][..6144]);
            assert_eq!((&medium[..16384], &medium[22528..]), (&before[..16384], &before[22528..]));
        }
    }

    #[test]
    fn a_verification_moves_nothing_to_its_host() {
        let mut medium = vec![3; 32768];
        let (seen, status) =
            run(Transfer::new(io(Op::Verify, 6144, false), true), 4096, &mut medium, &mut Buffer(Vec::new()));
        assert!(status.is_success());
        assert_eq!(seen, [(IoKind::Read, 8192, 4096), (IoKind::Read, 12288, 2048)]);
    }

    #[test]
    fn force_unit_access_ends_with_a_flush_where_the_backend_cannot_write_through() {
        let mut medium = vec![0; 32768];
        let mut host = Buffer(vec![1; 4096]);
        let zeroes = Op::WriteZeroes { deallocate: false };
        for (op, through, flush) in [(Op::Write, true, false), (Op::Write, false, true), (zeroes, true, true)] {
            let (seen, status) = run(Transfer::new(io(op, 4096, true), through), 4096, &mut medium, &mut host);
            assert!(status.is_success());
            assert_eq!(seen.last().map(|s| s.0 == IoKind::Flush), Some(flush), "{op:?}");
            assert_eq!(seen.len(), 1 + usize::from(flush));
        }
    }

    #[test]
    fn a_dead_queue_is_never_touched() {
        let mut host = Buffer(Vec::new());
        let mut write = Transfer::new(io(Op::Write, 4096, false), true);
        assert!(write.begin(4096, &mut [0; 4096], false, &mut host).is_err());
        let mut read = Transfer::new(io(Op::Read, 4096, false), true);
        assert!(read.begin(4096, &mut [0; 4096], false, &mut host).is_ok());
        assert_eq!(read.finish(Status::SUCCESS, &[0; 4096], false, &mut host), Some(Status::SUCCESS));
    }
}
