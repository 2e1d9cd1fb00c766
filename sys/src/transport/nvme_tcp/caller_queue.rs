//! One I/O queue whose commands read and write memory of the caller's: nothing is copied here but what comes together with headers.

use super::{Admin, Dial, Link, RemoteController};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use weir_driver::nvme_tcp::{Buffers, ConnectedController, DataTransfer, FinishedCommand, command};
use weir_driver::{Done, Io, IoKind, TransportError};
use weir_units::Nanos;

/// See [the module](self). Never blocks.
#[derive(Debug)]
pub struct NvmeTcpCallerQueue {
    link: Link,
    admin: Arc<Mutex<Admin>>,
    dial: Arc<Dial>,
    depth: u32,
    max_io: u32,
    completions: Vec<FinishedCommand>,
}

impl RemoteController {
    /// Connects the next I/O queue, for commands with memory of the caller's. `max_io` is cut to what the controller takes.
    ///
    /// # Errors
    /// As [`RemoteController::queue_pair`].
    pub fn caller_queue(&mut self, max_io: u32) -> Result<NvmeTcpCallerQueue, TransportError> {
        let made = self.connect_next(self.dial.options.class, max_io)?;
        let (admin, dial) = (self.admin.clone(), self.dial.clone());
        let completions = Vec::with_capacity(made.depth as usize);
        Ok(NvmeTcpCallerQueue { link: made.link, admin, dial, depth: made.depth, max_io: made.max_io, completions })
    }
}

impl NvmeTcpCallerQueue {
    /// What was found out about controller and namespace.
    pub fn ready(&self) -> ConnectedController {
        self.dial.ready
    }

    /// Its association, for [`association`](super::association()): CNTLID, and which one of this process it is.
    pub fn association(&self) -> (u16, u64) {
        (self.dial.ready.cntlid, self.dial.live.number())
    }

    /// Commands that may be in flight: the range of slots.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Bytes of the longest command.
    pub fn max_io(&self) -> u32 {
        self.max_io
    }

    /// Queues a command; its memory is that of the command identifier which is its slot. It leaves with the next [`send`](Self::send).
    ///
    /// # Errors
    /// The connection is broken, or the command breaks the rules of [`Io`]; a trim is none that this queue has.
    pub fn submit(&mut self, io: Io, memory: &mut impl Buffers) -> Result<(), TransportError> {
        let ready = self.dial.ready;
        let mask = ready.block_size.wrapping_sub(1);
        let fits = match io.kind {
            IoKind::Flush => io.len == 0 && io.offset == 0,
            IoKind::Trim => false,
            _ => {
                io.len != 0
                    && io.len <= self.max_io
                    && io.len & mask == 0
                    && io.offset & u64::from(mask) == 0
                    && io.offset.checked_add(io.len.into()).is_some_and(|end| end <= ready.capacity)
            }
        };
        if !fits || io.slot >= self.depth {
            return Err(TransportError::Usage(format!(
                "{}: {:?} of {} bytes at {} does not fit the namespace",
                self.link.peer, io.kind, io.len, io.offset
            )));
        }
        let transfer = match io.kind {
            IoKind::Read => DataTransfer::ToHost(io.len),
            IoKind::Write => DataTransfer::ToController(io.len),
            IoKind::Trim | IoKind::WriteZeroes | IoKind::Flush => DataTransfer::None,
        };
        let (lba, blocks) = (io.offset / u64::from(ready.block_size), io.len / ready.block_size);
        let sqe = command::io(io.kind, ready.nsid, lba, blocks);
        self.link.connection.submit(io.slot as u16, sqe, transfer, memory)
    }

    /// Sends what the socket takes; `false` if something is left.
    ///
    /// # Errors
    /// The connection is broken for good.
    pub fn send(&mut self, memory: &impl Buffers) -> Result<bool, TransportError> {
        self.link.flush(memory)?;
        Ok(!self.link.connection.has_output())
    }

    /// Receives once, and appends what has finished; `false` when there was nothing.
    ///
    /// # Errors
    /// The connection is broken for good: what was in flight will not come back.
    pub fn receive(&mut self, memory: &mut impl Buffers, done: &mut Vec<Done>) -> Result<bool, TransportError> {
        let got = self.link.receive(memory, &mut self.completions)?;
        done.extend(self.completions.drain(..).map(|c| Done { slot: c.cid.into(), status: c.cqe.status() }));
        Ok(got)
    }

    /// Sends a keep alive where one is due, and takes answers of the admin queue.
    ///
    /// # Errors
    /// The association is broken for good.
    pub fn attend(&mut self, now: Nanos) -> Result<(), TransportError> {
        self.admin.lock().unwrap_or_else(PoisonError::into_inner).keep_alive(now)
    }

    /// The socket of the queue, to be waited for.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.link.stream.as_fd()
    }

    /// Ends the association: nothing more leaves, and the target ends it when it sees that.
    pub fn shut_down(&self) {
        let admin = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in [&admin.link.stream, &self.link.stream] {
            // It fails where the connection has ended.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
