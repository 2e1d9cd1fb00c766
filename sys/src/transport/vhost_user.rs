//! A vhost-user-blk device on a UNIX socket as a [`QueuePair`]: connects, shares a memory file, spins on the rings.

use super::fds;
use crate::memory::{GuestMemory, HUGE, memory_file};
use rustix::net::{RecvFlags, recv};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_driver::vhost_user::{
    Attach, FrontEndOptions, FrontError, FrontQueue, Hello, Negotiated, Outgoing, QueueLayout, ReplyError,
    acknowledged, ask_inflight, inflight, setup,
};
use weir_driver::{Done, Io, QueuePair, TransportError};
use weir_session::vhost_user::{GuestRegion, Map};
use weir_spec::vhost_user::{Header, Inflight, MAX_PAYLOAD};
use zerocopy::{FromBytes, IntoBytes};

/// Guest address of the shared memory: any will do.
const BASE: u64 = 1 << 32;
/// How long a back end may take to answer a message.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Empty polls between looks at the socket.
const LOOK: u32 = 1 << 14;

/// Between attempts to connect again.
const RETRY: Duration = Duration::from_millis(1);

/// A conversation on a socket; closing it ends the device.
#[derive(Debug)]
struct Connection {
    socket: UnixStream,
    path: String,
}

/// What the queues of a device share: the present connection, and what the next one needs to take up where it ends.
#[derive(Debug)]
struct Shared {
    link: Mutex<Link>,
    path: String,
    /// For how long somebody tries to connect again.
    patience: Option<Duration>,
    device: Device,
}

#[derive(Debug)]
struct Link {
    connection: Connection,
    /// How many there were before.
    generation: u64,
}

/// What a back end is told, whichever.
#[derive(Debug)]
struct Device {
    options: FrontEndOptions,
    negotiated: Negotiated,
    layout: QueueLayout,
    file: OwnedFd,
    stride: u64,
    len: u64,
    inflight: Option<(Inflight, OwnedFd)>,
    kicks: Vec<OwnedFd>,
    calls: Vec<OwnedFd>,
}

impl Connection {
    fn closed(&self) -> TransportError {
        TransportError::Closed(format!("{}: the back end closed the connection", self.path))
    }

    fn failed(&self, e: &io::Error) -> TransportError {
        match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                TransportError::Timeout(format!("{}: no answer from the back end within {REPLY_TIMEOUT:?}", self.path))
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

    /// The answer to GET_INFLIGHT_FD and its descriptor.
    fn receive_inflight(&self) -> Result<(Inflight, OwnedFd), TransportError> {
        let mut bytes = [0; size_of::<Header>() + size_of::<Inflight>()];
        let (mut have, mut fds) = (0, Vec::new());
        while have < bytes.len() {
            match fds::receive(&self.socket, &mut bytes[have..], &mut fds) {
                Ok(0) => return Err(self.closed()),
                Ok(n) => have += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed(&e)),
            }
        }
        let (header, payload) = Header::read_from_prefix(&bytes).map_err(|_| self.broken("a short answer"))?;
        let region = inflight(&header, payload).map_err(|e| self.refused(e))?;
        let fd = fds.into_iter().next().ok_or_else(|| self.broken("an in-flight region without a descriptor"))?;
        Ok((region, fd))
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

    fn hello(&self, options: FrontEndOptions) -> Result<Negotiated, TransportError> {
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

    /// Hands memory and queues over.
    fn set_up(&self, device: &Device) -> Result<(), TransportError> {
        let Device { negotiated, layout, stride, len, .. } = device;
        let region = device.inflight.as_ref().map(|(region, _)| region);
        for message in setup(negotiated, layout, device.kicks.len() as u16, (BASE, *stride, *len), region) {
            let attached = match message.attach {
                Attach::None => None,
                Attach::Memory => Some(&device.file),
                Attach::Inflight => device.inflight.as_ref().map(|(_, fd)| fd),
                Attach::Kick(i) => Some(&device.kicks[usize::from(i)]),
                Attach::Call(i) => Some(&device.calls[usize::from(i)]),
            };
            self.send(&message, attached.as_slice())?;
            if message.answered {
                let (header, payload) = self.receive()?;
                acknowledged(&header, &payload, message.request).map_err(|e| self.refused(e))?;
            }
        }
        Ok(())
    }
}

impl Shared {
    fn link(&self) -> MutexGuard<'_, Link> {
        // A panic elsewhere leaves a connection that works or does not.
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody has waited for long: is the back end still there, or another one? The generation of the connection.
    fn look(&self, generation: u64) -> Result<u64, TransportError> {
        let mut link = self.link();
        if link.generation != generation || fds::is_open(&link.connection.socket) {
            return Ok(link.generation);
        }
        let Some(patience) = self.patience else { return Err(link.connection.closed()) };
        link.connection = self.again(patience)?;
        link.generation += 1;
        Ok(link.generation)
    }

    /// Connects again, as often as it takes: the rings stay as they are.
    fn again(&self, patience: Duration) -> Result<Connection, TransportError> {
        let start = Instant::now();
        loop {
            let attempt = open(Path::new(&self.path)).and_then(|connection| {
                let negotiated = connection.hello(self.device.options)?;
                if negotiated.features != self.device.negotiated.features {
                    return Err(connection.broken("the back end that came back is another one: its features differ"));
                }
                connection.set_up(&self.device)?;
                Ok(connection)
            });
            match attempt {
                Err(TransportError::Unreachable(_) | TransportError::Closed(_)) if start.elapsed() < patience => {
                    std::thread::sleep(RETRY);
                }
                other => return other,
            }
        }
    }
}

/// One queue of a device.
#[derive(Debug)]
pub struct VhostUserQueue {
    memory: GuestMemory,
    front: FrontQueue<GuestMemory>,
    negotiated: Negotiated,
    layout: QueueLayout,
    kick: OwnedFd,
    shared: Arc<Shared>,
    generation: u64,
    idle: u32,
}

fn open(path: &Path) -> Result<Connection, TransportError> {
    let name = path.display().to_string();
    let socket = UnixStream::connect(path)
        .map_err(|e| TransportError::Unreachable(format!("cannot connect to the vhost-user socket {name}: {e}")))?;
    let connection = Connection { socket, path: name };
    let timeouts = connection
        .socket
        .set_read_timeout(Some(REPLY_TIMEOUT))
        .and_then(|()| connection.socket.set_write_timeout(Some(REPLY_TIMEOUT)));
    timeouts.map_err(|e| connection.failed(&e))?;
    Ok(connection)
}

/// Connects to a device and starts `options.queues` queues with `depth` requests of up to `max_io` bytes each.
///
/// # Errors
/// Nobody listens, the back end refuses or misbehaves, or it has fewer queues.
pub fn connect(
    path: &Path,
    options: FrontEndOptions,
    depth: u32,
    max_io: u32,
) -> Result<Vec<VhostUserQueue>, TransportError> {
    connect_for(path, options, depth, max_io, None)
}

/// As [`connect`]; where there is `patience`, a back end that goes is waited for that long, connected to again, and
/// finds in an in-flight region what it had not completed.
///
/// # Errors
/// As [`connect`], and that the back end keeps no such region.
pub fn connect_for(
    path: &Path,
    options: FrontEndOptions,
    depth: u32,
    max_io: u32,
    patience: Option<Duration>,
) -> Result<Vec<VhostUserQueue>, TransportError> {
    let options = FrontEndOptions { inflight: patience.is_some() || options.inflight, ..options };
    let connection = open(path)?;
    let negotiated = connection.hello(options)?;
    let queues = options.queues.max(1);
    if queues > negotiated.queues {
        let has = negotiated.queues;
        return Err(TransportError::Usage(format!("{}: the device has {has} queues, not {queues}", connection.path)));
    }
    if depth == 0 || depth > QueueLayout::MAX_DEPTH || max_io < negotiated.block_size() {
        let most = QueueLayout::MAX_DEPTH;
        return Err(TransportError::Usage(format!(
            "a queue depth of {depth} is not 1 to {most}, or no block fits {max_io} bytes"
        )));
    }
    let layout = QueueLayout::new(depth, max_io, &negotiated);
    let system = |e: io::Error| TransportError::Usage(format!("cannot get shared memory for {depth} buffers: {e}"));
    let stride = (layout.bytes() as usize).next_multiple_of(HUGE);
    let len = stride * usize::from(queues);
    let file = memory_file("weir-front", len).map_err(system)?;
    let (stride, len) = (stride as u64, len as u64);
    let inflight = if options.inflight {
        connection.send(&ask_inflight(&layout, queues), &[])?;
        Some(connection.receive_inflight()?)
    } else {
        None
    };
    let events = || (0..queues).map(|_| fds::eventfd()).collect::<io::Result<Vec<_>>>().map_err(system);
    let (kicks, calls) = (events()?, events()?);
    let device = Device { options, negotiated, layout, file, stride, len, inflight, kicks, calls };
    // The rings are made before anybody is told of them.
    let memories = (0..queues).map(|i| view(&device, u64::from(i) * stride));
    let views = memories.collect::<io::Result<Vec<_>>>().map_err(system)?;
    connection.set_up(&device)?;
    let path = connection.path.clone();
    let link = Mutex::new(Link { connection, generation: 0 });
    let shared = Arc::new(Shared { link, path, patience, device });
    let queue = |(i, (memory, front)): (usize, _)| {
        let kick = shared.device.kicks[i].try_clone().map_err(system)?;
        Ok(VhostUserQueue { memory, front, negotiated, layout, kick, shared: shared.clone(), generation: 0, idle: 0 })
    };
    views.into_iter().enumerate().map(queue).collect()
}

/// A queue's own view of its part of the memory file, so that each can go to a thread of its own, and its rings.
fn view(device: &Device, offset: u64) -> io::Result<(GuestMemory, FrontQueue<GuestMemory>)> {
    let mut memory = GuestMemory::new();
    let region = GuestRegion { guest: BASE + offset, len: device.stride, user: BASE + offset, offset };
    memory.add(region, device.file.try_clone()?).map_err(io::Error::other)?;
    memory.populate();
    let front = FrontQueue::new(&memory, device.layout, BASE + offset).map_err(io::Error::other)?;
    Ok((memory, front))
}

impl VhostUserQueue {
    /// What device and front end agreed on.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    #[cold]
    fn broken(&self, e: FrontError) -> TransportError {
        TransportError::Protocol(format!("{}: {e}", self.shared.path))
    }

    /// Nothing has come for a while: is the other side still there?
    #[cold]
    fn look(&mut self) -> Result<(), TransportError> {
        self.idle = 0;
        let generation = self.shared.look(self.generation)?;
        if generation != self.generation {
            self.generation = generation;
            // What was added while nobody listened.
            fds::signal(&self.kick);
        }
        Ok(())
    }

    /// How often the back end was connected to again.
    pub fn reconnects(&self) -> u64 {
        self.generation
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
