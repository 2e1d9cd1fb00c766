//! A vhost-user-blk device on a UNIX socket as a [`QueuePair`]: connects, shares a memory file, spins on the rings.

use super::fds;
use crate::memory::{GuestMemory, HUGE, memory_file};
use rustix::net::{RecvFlags, recv};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_driver::vhost_user::{
    Attach, FrontError, FrontQueue, Hello, Layout, Negotiated, Options, Outgoing, ReplyError, acknowledged, setup,
};
use weir_driver::{Done, Io, QueuePair, TransportError};
use weir_session::vhost_user::{Map, Region};
use weir_spec::vhost_user::{Header, MAX_PAYLOAD};
use zerocopy::IntoBytes;

/// Guest address of the shared memory: any will do.
const BASE: u64 = 1 << 32;
/// How long a back end may take to answer a message.
const PATIENCE: Duration = Duration::from_secs(10);
/// Empty polls between looks at the socket.
const LOOK: u32 = 1 << 14;

/// The control socket, shared by the queues of a device; closing it ends the device.
#[derive(Debug)]
struct Connection {
    socket: UnixStream,
    path: String,
}

impl Connection {
    fn closed(&self) -> TransportError {
        TransportError::Closed(format!("{}: the back end closed the connection", self.path))
    }

    fn failed(&self, e: &io::Error) -> TransportError {
        match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                TransportError::Timeout(format!("{}: no answer from the back end within {PATIENCE:?}", self.path))
            }
            _ => TransportError::Closed(format!("{}: {e}", self.path)),
        }
    }

    fn broken(&self, e: impl std::fmt::Display) -> TransportError {
        TransportError::Protocol(format!("{}: {e}", self.path))
    }

    fn send(&self, message: &Outgoing, attached: &[&OwnedFd]) -> Result<(), TransportError> {
        let with: Vec<_> = attached.iter().map(|fd| fd.as_fd()).collect();
        let sent = fds::send(&self.socket, &message.bytes, &with).map_err(|e| self.failed(&e))?;
        if sent == message.bytes.len() { Ok(()) } else { Err(self.closed()) }
    }

    fn receive(&self) -> Result<(Header, Vec<u8>), TransportError> {
        let mut header = Header::default();
        self.fill(header.as_mut_bytes())?;
        let size = header.size.get() as usize;
        if size > MAX_PAYLOAD {
            return Err(self.broken(format_args!("an answer of {size} bytes")));
        }
        let mut payload = vec![0; size];
        self.fill(&mut payload)?;
        Ok((header, payload))
    }

    fn fill(&self, into: &mut [u8]) -> Result<(), TransportError> {
        let mut have = 0;
        while have < into.len() {
            match recv(&self.socket, &mut into[have..], RecvFlags::empty()) {
                Ok((0, _)) => return Err(self.closed()),
                Ok((n, _)) => have += n,
                Err(e) if e == rustix::io::Errno::INTR => {}
                Err(e) => return Err(self.failed(&e.into())),
            }
        }
        Ok(())
    }

    fn refused(&self, e: ReplyError) -> TransportError {
        match e {
            ReplyError::Refused(_) | ReplyError::Missing(_) => TransportError::Refused(format!("{}: {e}", self.path)),
            _ => self.broken(e),
        }
    }

    fn hello(&self, options: Options) -> Result<Negotiated, TransportError> {
        let mut hello = Hello::new(options);
        while let Some(message) = hello.next_message() {
            self.send(&message, &[])?;
            if message.answered {
                let (header, payload) = self.receive()?;
                hello.reply(&header, &payload).map_err(|e| self.refused(e))?;
            }
        }
        hello.negotiated().copied().ok_or_else(|| self.broken("the conversation ended early"))
    }
}

/// One queue of a device.
#[derive(Debug)]
pub struct VhostUserQueue {
    memory: GuestMemory,
    front: FrontQueue<GuestMemory>,
    negotiated: Negotiated,
    layout: Layout,
    kick: OwnedFd,
    /// Nobody waits for it; the device wants one.
    _call: OwnedFd,
    connection: Arc<Connection>,
    idle: u32,
}

fn open(path: &Path) -> Result<Connection, TransportError> {
    let name = path.display().to_string();
    let socket = UnixStream::connect(path)
        .map_err(|e| TransportError::Unreachable(format!("cannot connect to the vhost-user socket {name}: {e}")))?;
    let connection = Connection { socket, path: name };
    let timeouts = connection
        .socket
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| connection.socket.set_write_timeout(Some(PATIENCE)));
    timeouts.map_err(|e| connection.failed(&e))?;
    Ok(connection)
}

/// Connects to a device and starts `options.queues` queues with `depth` requests of up to `max_io` bytes each.
///
/// # Errors
/// Nobody listens, the back end refuses or misbehaves, or it has fewer queues.
pub fn connect(path: &Path, options: Options, depth: u32, max_io: u32) -> Result<Vec<VhostUserQueue>, TransportError> {
    let connection = open(path)?;
    let negotiated = connection.hello(options)?;
    let queues = options.queues.max(1);
    if queues > negotiated.queues {
        let has = negotiated.queues;
        return Err(TransportError::Usage(format!("{}: the device has {has} queues, not {queues}", connection.path)));
    }
    if depth == 0 || depth > Layout::MAX_DEPTH || max_io < negotiated.block_size() {
        let most = Layout::MAX_DEPTH;
        return Err(TransportError::Usage(format!(
            "a queue depth of {depth} is not 1 to {most}, or no block fits {max_io} bytes"
        )));
    }
    let layout = Layout::new(depth, max_io, &negotiated);
    let system = |e: io::Error| TransportError::Usage(format!("cannot get shared memory for {depth} buffers: {e}"));
    let stride = (layout.bytes() as usize).next_multiple_of(HUGE);
    let len = stride * usize::from(queues);
    let file = memory_file("weir-front", len).map_err(system)?;
    let connection = Arc::new(connection);
    let mut pairs = Vec::new();
    for i in 0..queues {
        let at = i as usize * stride;
        pairs.push(queue(&connection, negotiated, layout, &file, at as u64, stride as u64).map_err(system)?);
    }
    for message in setup(&negotiated, &layout, queues, BASE, stride as u64, len as u64) {
        let attached = match message.attach {
            Attach::None => None,
            Attach::Memory => Some(&file),
            Attach::Kick(i) => Some(&pairs[usize::from(i)].kick),
            Attach::Call(i) => Some(&pairs[usize::from(i)]._call),
        };
        connection.send(&message, attached.as_slice())?;
        if message.answered {
            let (header, payload) = connection.receive()?;
            acknowledged(&header, &payload, message.request).map_err(|e| connection.refused(e))?;
        }
    }
    Ok(pairs)
}

/// A queue with its own view of its part of the memory file, so that each can go to a thread of its own.
fn queue(
    connection: &Arc<Connection>,
    negotiated: Negotiated,
    layout: Layout,
    file: &OwnedFd,
    offset: u64,
    len: u64,
) -> io::Result<VhostUserQueue> {
    let mut memory = GuestMemory::new();
    let region = Region { guest: BASE + offset, len, user: BASE + offset, offset };
    memory.add(region, file.try_clone()?).map_err(io::Error::other)?;
    memory.populate();
    let front = FrontQueue::new(&memory, layout, BASE + offset).map_err(io::Error::other)?;
    Ok(VhostUserQueue {
        memory,
        front,
        negotiated,
        layout,
        kick: fds::eventfd()?,
        _call: fds::eventfd()?,
        connection: connection.clone(),
        idle: 0,
    })
}

impl VhostUserQueue {
    /// What device and front end agreed on.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    #[cold]
    fn broken(&self, e: FrontError) -> TransportError {
        self.connection.broken(e)
    }

    /// Nothing has come for a while: is the other side still there?
    #[cold]
    fn look(&mut self) -> Result<(), TransportError> {
        self.idle = 0;
        if fds::is_open(&self.connection.socket) { Ok(()) } else { Err(self.connection.closed()) }
    }
}

impl QueuePair for VhostUserQueue {
    fn depth(&self) -> u32 {
        self.layout.depth
    }

    fn block_size(&self) -> u32 {
        self.negotiated.block_size()
    }

    fn capacity(&self) -> u64 {
        self.negotiated.capacity()
    }

    fn max_io(&self) -> u32 {
        self.layout.max_io
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        assert!(slot < self.layout.depth, "slot {slot} of {}", self.layout.depth);
        let at = self.front.buffer(slot);
        // SAFETY: the range is this slot's own; `self` is borrowed as long as the slice, so no other slice and no request
        // of ours concerns it meanwhile. The device writes it only while the slot is in flight, when the caller must not
        // look (`QueuePair::buffer`).
        let bytes = unsafe { self.memory.slice_mut(at, self.layout.max_io as usize) };
        bytes.expect("the queue's memory is mapped as long as the queue exists")
    }

    #[inline]
    fn submit(&mut self, io: Io) -> Result<(), TransportError> {
        io.check(self)?;
        self.front.submit(&self.memory, &io).map_err(|e| self.broken(e))
    }

    #[inline]
    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), TransportError> {
        if self.front.publish(&self.memory).map_err(|e| self.broken(e))? {
            fds::signal(&self.kick);
        }
        let before = done.len();
        self.front.reap(&self.memory, done).map_err(|e| self.broken(e))?;
        if done.len() != before {
            self.idle = 0;
            return Ok(());
        }
        self.idle += 1;
        if self.idle == LOOK { self.look() } else { Ok(()) }
    }
}
