//! An I/O whose medium answers later: cut into chunks, each of which is started, finishes, and leads to the next.
//!
//! ```text
//!   begin ──► fill (write: host → buffer) ──► started at the backend ──► finished
//!     ▲                                                                     │ read: buffer → host; compare
//!     └──────────────── bytes left ◄────────────────────────────────────────┴─► Done{slot, status}
//! ```

use weir_controller::{Host, Io, Op};
use weir_driver::IoKind;
use weir_spec::nvme::Status;

/// An [`Io`] on its way.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// What the machine asked for.
    pub io: Io,
    /// Bytes that are done.
    pub at: u32,
    /// Bytes of the chunk that is with the backend.
    pub chunk: u32,
}

impl Transfer {
    /// Nothing done yet.
    pub fn new(io: Io) -> Self {
        Self { io, at: 0, chunk: 0 }
    }

    /// What the backend has to do for this chunk.
    pub fn kind(&self) -> IoKind {
        match self.io.op {
            Op::Read | Op::Compare => IoKind::Read,
            Op::Write => IoKind::Write,
            Op::WriteZeroes { .. } => IoKind::WriteZeroes,
            Op::Deallocate => IoKind::Trim,
            Op::Flush => IoKind::Flush,
        }
    }

    /// Where the chunk begins in the drive's media.
    pub fn offset(&self) -> u64 {
        if self.io.op == Op::Flush { 0 } else { self.io.offset + u64::from(self.at) }
    }

    /// Takes the next chunk, at most `limit` bytes, and for a write fetches the host's bytes into `buffer`.
    ///
    /// # Errors
    /// The host's bytes cannot be had: the command fails with this status.
    pub fn begin<H: Host>(&mut self, limit: u32, buffer: &mut [u8], live: bool, host: &mut H) -> Result<(), Status> {
        self.chunk = (self.io.len - self.at).min(limit);
        if self.io.op != Op::Write {
            return Ok(());
        }
        if !live {
            return Err(Status::ABORT_REQUESTED);
        }
        host.read_data(self.io.owner, &self.io.data, self.at, &mut buffer[..self.chunk as usize])
    }

    /// The chunk came back. `None`: there is another one to begin.
    pub fn finish<H: Host>(&mut self, status: Status, buffer: &[u8], live: bool, host: &mut H) -> Option<Status> {
        if !status.is_success() {
            return Some(status);
        }
        if let Err(status) = self.deliver(&buffer[..self.moved()], live, host) {
            return Some(status);
        }
        self.at += self.chunk;
        (self.at >= self.io.len).then_some(Status::SUCCESS)
    }

    fn moved(&self) -> usize {
        match self.io.op {
            Op::Read | Op::Compare => self.chunk as usize,
            _ => 0,
        }
    }

    fn deliver<H: Host>(&self, bytes: &[u8], live: bool, host: &mut H) -> Result<(), Status> {
        match self.io.op {
            Op::Read if live => host.write_data(self.io.owner, &self.io.data, self.at, bytes),
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
        host.read_data(io.owner, &io.data, at + (i * 4096) as u32, theirs)?;
        if theirs != bytes {
            return Err(Status::COMPARE_FAILURE);
        }
    }
    Ok(())
}
