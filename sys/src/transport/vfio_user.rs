//! An NVMe drive behind a vfio-user socket as [`QueuePair`]s: connects, shares a memory file, brings the controller up, spins on
//! the rings.
//!
//! ```text
//!   VfioUserQueue ──┬─ own part of the memory file: rings, buffers          (its thread's alone)
//!                   ├─ Doorbells: a mapped page, or posted REGION_WRITEs
//!                   └─ Shared: socket, admin queue                          (behind a mutex: bring-up, another class, the end)
//! ```
//! The last queue pair that goes shuts the controller down.

mod connection;

use super::fds;
use super::queue_memory::{LOOK, PACE, PAGE, QUICK, add, named, put, take};
use crate::memory::{GuestMemory, HUGE, SharedWords, memory_file};
use crate::reactor::now;
use connection::ControlSocket;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_driver::nvme::{
    AdminQueue, BringUp, ControllerIdentity, ControllerPlan, EnabledController, IoQueue, Port, QueuePlan, Remake,
};
use weir_driver::vfio_user::{Area, Negotiated};
use weir_driver::{Done, Io, QueuePair, TransportError};
use weir_session::memory::Memory;
use weir_spec::nvme::Cqe;
use weir_spec::nvme::register::{self, Cap, Cc, Csts, DOORBELLS, Doorbell, ams, doorbell_offset};
use weir_units::{Class, Nanos};

/// DMA address of the shared memory: any will do.
const BASE: u64 = 1 << 32;
/// How long a client before us may take to be gone, and how often we look: a server has one client at a time.
const TURN: Nanos = Nanos::from_millis(500);
const AGAIN: Duration = Duration::from_millis(5);
/// How long a controller may take to shut down before the socket is closed all the same.
const FAREWELL: Nanos = Nanos::from_secs(1);

/// What is wanted of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VfioUserOptions {
    /// The namespace.
    pub nsid: u32,
    /// I/O queue pairs.
    pub queues: u16,
    /// Requests in flight of each; fewer where the drive's queues do not hold as many.
    pub depth: u32,
    /// Bytes of the longest request, and of each buffer.
    pub max_io: u32,
    /// QPRIO of the submission queues (base 2.0, 5.5).
    pub priority: Class,
    /// CC.AMS ([`ams`]); `None`: weighted round robin where the controller has it, without which QPRIO does not count.
    pub ams: Option<u32>,
    /// How long the server may take to accept, and for each answer.
    pub answer_timeout: Duration,
}

impl Default for VfioUserOptions {
    /// One queue pair of 128 requests of at most 128 KiB on namespace 1, of class medium.
    fn default() -> Self {
        let answer_timeout = connection::REPLY_TIMEOUT;
        let priority = Class::Medium;
        VfioUserOptions { nsid: 1, queues: 1, depth: 128, max_io: 128 << 10, priority, ams: None, answer_timeout }
    }
}

/// What the queue pairs of a controller have in common.
#[derive(Debug)]
struct Shared {
    connection: ControlSocket,
    /// All of the memory file.
    memory: GuestMemory,
    doorbells: Option<Arc<Mapped>>,
    /// The admin queue, once the controller is up.
    admin: Option<AdminQueue>,
}

/// The mapped doorbells.
#[derive(Debug)]
struct Mapped {
    words: SharedWords,
    /// Where in BAR 0 they begin.
    bar: u32,
}

impl Mapped {
    fn new(file: &OwnedFd, area: &Area) -> io::Result<Self> {
        // The page of the registers before them is none of our business, even where it is mappable.
        let before = u64::from(DOORBELLS).saturating_sub(area.bar);
        let words = SharedWords::map(file.as_fd(), area.file + before, area.len - before)?;
        Ok(Mapped { words, bar: (area.bar + before) as u32 })
    }

    #[inline]
    fn ring(&self, doorbell: Doorbell, value: u32) {
        // Release: what was written to the rings and buffers is visible to who sees the value.
        self.words.store((doorbell_offset(doorbell) - self.bar) as usize, value, Ordering::Release);
    }
}

/// The way of the bring-up and of the admin queue.
impl Port for Shared {
    fn register(&mut self, offset: u32, size: u8) -> u64 {
        let value = self.connection.read(offset, size);
        self.connection.or_gone(value, u64::MAX)
    }

    fn set_register(&mut self, offset: u32, value: u64, size: u8) {
        let written = self.connection.write(offset, value, size);
        self.connection.or_gone(written, ());
    }

    fn doorbell(&mut self, doorbell: Doorbell, value: u32) {
        match &self.doorbells {
            Some(mapped) => mapped.ring(doorbell, value),
            None => {
                let posted = self.connection.post(doorbell_offset(doorbell), value);
                self.connection.or_gone(posted, ());
            }
        }
    }

    fn read(&mut self, address: u64, into: &mut [u8]) {
        let _ = self.memory.read(address, into);
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        let _ = self.memory.write(address, bytes);
    }

    fn put(&mut self, address: u64, entry: &[u64; 8]) {
        put(&self.memory, address, entry);
    }

    fn take(&mut self, address: u64, phase: bool) -> Option<Cqe> {
        take(&self.memory, address, phase)
    }
}

impl Shared {
    /// Brings the controller up; waits for it.
    fn bring_up(&mut self, plan: ControllerPlan) -> Result<EnabledController, TransportError> {
        let mut machine = BringUp::new(plan);
        self.turn(|at, shared| machine.poll(at, shared))
    }

    /// Polls until there is something. An error of the socket counts for more than what follows from it.
    fn turn<T>(
        &mut self,
        mut poll: impl FnMut(Nanos, &mut Self) -> Result<Option<T>, TransportError>,
    ) -> Result<T, TransportError> {
        let mut polls = 0;
        loop {
            let step = poll(now(), self);
            polls += 1;
            if let Some(fault) = &self.connection.fault {
                return Err(fault.clone());
            }
            match step {
                Ok(Some(found)) => return Ok(found),
                Ok(None) if polls < QUICK => std::thread::yield_now(),
                Ok(None) => std::thread::sleep(PACE),
                Err(e) => return Err(named(&self.connection.path, e)),
            }
        }
    }

    fn remake(&mut self, queue: &mut IoQueue, priority: Class) -> Result<(), TransportError> {
        let Some(mut admin) = self.admin.take() else { return Err(self.connection.closed()) };
        let mut remake = Remake::new(priority);
        let made = self.turn(|at, shared| Ok(remake.poll(at, &mut admin, queue, shared)?.then_some(())));
        self.admin = Some(admin);
        made
    }

    /// A normal shutdown (base 2.0, 3.6.1): the drive writes down what it has to.
    fn shut_down(&mut self) -> Result<(), TransportError> {
        self.connection.patience(Duration::from_nanos(FAREWELL.0))?;
        let cc = Cc(self.connection.read(register::CC, 4)? as u32);
        self.connection.write(register::CC, u64::from(cc.with_shn(1).0), 4)?;
        let deadline = now().saturating_add(FAREWELL);
        while Csts(self.connection.read(register::CSTS, 4)? as u32).shst() != 2 && now() < deadline {
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.admin.is_some() && self.connection.fault.is_none() {
            // A server that is gone has nothing to be told.
            let _ = self.shut_down();
        }
    }
}

/// One queue pair of a drive.
#[derive(Debug)]
pub struct VfioUserQueue {
    /// Its part of the memory file.
    memory: GuestMemory,
    doorbells: Option<Arc<Mapped>>,
    queue: IoQueue,
    max_io: u32,
    identity: Arc<ControllerIdentity>,
    shared: Arc<Mutex<Shared>>,
    idle: u32,
}

/// Connects to a drive, brings its controller up and creates `options.queues` queue pairs.
///
/// # Errors
/// Nobody listens, another client has the drive, the server or the controller refuses or misbehaves, or has less than is wanted.
pub fn connect(path: &Path, options: &VfioUserOptions) -> Result<Vec<VfioUserQueue>, TransportError> {
    if options.depth == 0 || options.depth >= 1 << 16 || options.queues == 0 || options.max_io == 0 {
        let text = "a drive wants at least one queue of 1 to 65535 requests of at least one block";
        return Err(TransportError::Usage(format!("{}: {text}", path.display())));
    }
    let queue = QueuePlan { depth: options.depth, priority: options.priority };
    let mut plan = ControllerPlan {
        nsid: options.nsid,
        queues: vec![queue; usize::from(options.queues)],
        ..ControllerPlan::new(BASE, options.depth, options.max_io.next_multiple_of(PAGE))
    };
    let len = (plan.memory() as usize).next_multiple_of(HUGE);
    let system = |e: io::Error| TransportError::Usage(format!("cannot get {len} bytes of shared memory: {e}"));
    let file = memory_file("weir-driver", len).map_err(system)?;
    let mut memory = GuestMemory::new();
    add(&mut memory, &file, BASE, BASE..BASE + len as u64).map_err(system)?;
    let (connection, found, bar) = meet(path, &file, len as u64, options)?;
    let doorbells = match (&found.doorbells, &bar) {
        (Some(area), Some(file)) => Some(Mapped::new(file, area)),
        _ => None,
    };
    let doorbells = doorbells.transpose().map_err(|e| connection.broken(format_args!("its doorbells: {e}")))?;
    let mut shared = Shared { connection, memory, doorbells: doorbells.map(Arc::new), admin: None };
    let cap = Cap(shared.register(register::CAP, 8));
    plan.ams = match options.ams {
        Some(ams) => ams,
        None if cap.ams() & register::ams_supported::WRR != 0 => ams::WRR,
        None => ams::RR,
    };
    // A ring of n entries holds n - 1 requests, and CAP.MQES is n - 1.
    plan.queues.iter_mut().for_each(|q| q.depth = q.depth.min(cap.mqes().max(1) as u32));
    let ready = shared.bring_up(plan)?;
    shared.connection.patience(connection::REPLY_TIMEOUT)?;
    shared.admin = Some(ready.admin);
    let (doorbells, identity) = (shared.doorbells.clone(), Arc::new(ready.identity));
    let shared = Arc::new(Mutex::new(shared));
    ready
        .queues
        .into_iter()
        .map(|queue| {
            let mut memory = GuestMemory::new();
            add(&mut memory, &file, BASE, queue.memory()).map_err(system)?;
            memory.populate();
            Ok(VfioUserQueue {
                memory,
                doorbells: doorbells.clone(),
                max_io: queue.max_io(),
                queue,
                identity: identity.clone(),
                shared: shared.clone(),
                idle: 0,
            })
        })
        .collect()
}

/// Connects, in turn after a client that is on its way out, finds the drive and hands over the memory.
fn meet(
    path: &Path,
    memory: &OwnedFd,
    len: u64,
    options: &VfioUserOptions,
) -> Result<(ControlSocket, Negotiated, Option<OwnedFd>), TransportError> {
    let deadline = now().saturating_add(TURN);
    let mut turned_away = None;
    loop {
        let met = ControlSocket::open(path, options.answer_timeout).and_then(|connection| {
            let (found, bar) = connection.hello(memory, len, options.queues)?;
            Ok((connection, found, bar))
        });
        match met {
            Err(e @ TransportError::Closed(_)) if now() < deadline => {
                turned_away.get_or_insert(e);
                std::thread::sleep(AGAIN);
            }
            Err(e) => return Err(turned_away.unwrap_or(e)),
            Ok(met) => return Ok(met),
        }
    }
}

impl VfioUserQueue {
    /// Who the controller says it is.
    pub fn identity(&self) -> &ControllerIdentity {
        &self.identity
    }

    /// Whether its doorbells are stores to mapped memory; else they are messages.
    pub fn is_mapped(&self) -> bool {
        self.doorbells.is_some()
    }

    /// Makes its submission queue anew with another QPRIO. Nothing may be in flight; waits for the controller.
    ///
    /// # Errors
    /// Something is in flight, the controller refuses, or the server is gone.
    pub fn set_class(&mut self, class: Class) -> Result<(), TransportError> {
        lock(&self.shared).remake(&mut self.queue, class)
    }

    /// Nothing has come for a while: is the server still there?
    #[cold]
    fn look(&mut self) -> Result<(), TransportError> {
        self.idle = 0;
        let mut shared = lock(&self.shared);
        if shared.connection.fault.is_none() && !fds::is_open(&shared.connection.socket) {
            shared.connection.fault = Some(shared.connection.closed());
        }
        shared.connection.fault.clone().map_or(Ok(()), Err)
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a queue pair reaches its rings and doorbells.
struct QueuePort<'a> {
    memory: &'a GuestMemory,
    doorbells: Option<&'a Mapped>,
    shared: &'a Mutex<Shared>,
}

impl Port for QueuePort<'_> {
    fn register(&mut self, offset: u32, size: u8) -> u64 {
        lock(self.shared).register(offset, size)
    }

    fn set_register(&mut self, offset: u32, value: u64, size: u8) {
        lock(self.shared).set_register(offset, value, size);
    }

    #[inline]
    fn doorbell(&mut self, doorbell: Doorbell, value: u32) {
        match self.doorbells {
            Some(mapped) => mapped.ring(doorbell, value),
            None => lock(self.shared).doorbell(doorbell, value),
        }
    }

    fn read(&mut self, address: u64, into: &mut [u8]) {
        let _ = self.memory.read(address, into);
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        let _ = self.memory.write(address, bytes);
    }

    #[inline]
    fn put(&mut self, address: u64, entry: &[u64; 8]) {
        put(self.memory, address, entry);
    }

    #[inline]
    fn take(&mut self, address: u64, phase: bool) -> Option<Cqe> {
        take(self.memory, address, phase)
    }
}

/// The queue and its port; a macro because they borrow single fields.
macro_rules! parts {
    ($self:ident) => {{
        let VfioUserQueue { memory, doorbells, queue, shared, .. } = &mut *$self;
        (queue, QueuePort { memory, doorbells: doorbells.as_deref(), shared })
    }};
}

impl QueuePair for VfioUserQueue {
    fn depth(&self) -> u32 {
        self.queue.depth()
    }

    fn block_size(&self) -> u32 {
        self.queue.block_size()
    }

    fn capacity(&self) -> u64 {
        self.queue.capacity()
    }

    fn max_io(&self) -> u32 {
        self.max_io
    }

    fn max_zeroes(&self) -> u32 {
        self.queue.max_zeroes()
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        assert!(slot < self.queue.depth(), "slot {slot} of {}", self.queue.depth());
        let at = self.queue.buffer(slot);
        // SAFETY: the range is this slot's own; `self` is borrowed as long as the slice, so no other slice and no request of
        // ours concerns it meanwhile, and the mapping of the whole file is used for the admin queue only. The controller
        // writes it only while the slot is in flight, when the caller must not look (`QueuePair::buffer`).
        let bytes = unsafe { self.memory.slice_mut(at, self.max_io as usize) };
        bytes.expect("the queue's memory is mapped as long as the queue exists")
    }

    #[inline]
    fn submit(&mut self, io: Io) -> Result<(), TransportError> {
        io.check(self)?;
        let (queue, mut port) = parts!(self);
        queue.submit(&mut port, io)
    }

    #[inline]
    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), TransportError> {
        let before = done.len();
        let (queue, mut port) = parts!(self);
        queue.flush(&mut port);
        queue.reap(&mut port, done)?;
        if done.len() != before {
            self.idle = 0;
            return Ok(());
        }
        self.idle += 1;
        if self.idle == LOOK { self.look() } else { Ok(()) }
    }

    fn attend(&mut self) -> Result<(), TransportError> {
        self.look()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixListener;
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use weir_spec::vfio_user::{Command, Header, errno};
    use zerocopy::IntoBytes;

    /// A socket that nobody else has.
    fn socket(name: &str) -> (PathBuf, UnixListener) {
        let path = std::env::temp_dir().join(format!("weir-vfio-{name}-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        (path, listener)
    }

    /// What `connect` says to a server that does that with its connection.
    fn refused(name: &str, serve: impl FnOnce(UnixStream) + Send + 'static) -> TransportError {
        let (path, listener) = socket(name);
        let server = std::thread::spawn(move || serve(listener.accept().unwrap().0));
        let e = connect(&path, &VfioUserOptions::default()).unwrap_err();
        server.join().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(e.to_string().contains(&path.display().to_string()), "{e}");
        e
    }

    #[test]
    fn errors_say_where_and_why() {
        let e = connect(Path::new("/nowhere/at/all.sock"), &VfioUserOptions::default()).unwrap_err();
        assert!(matches!(&e, TransportError::Unreachable(text) if text.contains("/nowhere/at/all.sock")), "{e}");
        let (path, _listener) = socket("usage");
        for options in [
            VfioUserOptions { depth: 0, ..VfioUserOptions::default() },
            VfioUserOptions { queues: 0, ..VfioUserOptions::default() },
            VfioUserOptions { max_io: 0, ..VfioUserOptions::default() },
        ] {
            assert!(matches!(connect(&path, &options), Err(TransportError::Usage(_))));
        }
        std::fs::remove_file(&path).unwrap();
        let e = refused("closes", drop);
        assert!(matches!(&e, TransportError::Closed(text) if text.contains("another client has the drive")), "{e}");
        // The command comes back instead of its reply, and is refused in turn: there is no end to that but the server's.
        let e = refused("echoes", |mut s| {
            let (mut header, mut no) = (Header::default(), Header::default());
            s.read_exact(header.as_mut_bytes()).unwrap();
            let mut rest = vec![0; header.size.get() as usize - Header::LEN];
            s.read_exact(&mut rest).unwrap();
            fds::send(&s, header.as_bytes(), &[]).unwrap();
            fds::send(&s, &rest, &[]).unwrap();
            s.read_exact(no.as_mut_bytes()).unwrap();
            assert_eq!((no.id, no.error.get(), no.failed()), (header.id, errno::ENOTSUP, true));
        });
        assert!(matches!(e, TransportError::Closed(_)), "{e}");
        let e = refused("huge", |mut s| {
            s.read_exact(&mut [0; 16]).unwrap();
            fds::send(&s, Header::command(1, Command::VERSION, 1 << 20).as_bytes(), &[]).unwrap();
            let _ = s.read_to_end(&mut Vec::new());
        });
        assert!(matches!(&e, TransportError::Protocol(text) if text.contains("a message of 1048592 bytes")), "{e}");
    }
}
