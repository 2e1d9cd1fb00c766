//! NVMe/TCP as a host: sockets under the machines of `weir_driver::nvme_tcp`.
//!
//! ```text
//!   RemoteController::connect ─► admin Link: BringUp … keep alive          (shared by the queue pairs, served in their polls)
//!            ├─ queue_pairs ─► NvmeTcpQueue: Link + Slots            one connection each; polls, never blocks
//!            └─ caller_queue ─► NvmeTcpCallerQueue: Link             the same, with buffers of the caller's
//!   discover ─► admin Link: BringUp, Discovery
//! ```
//! A poll sends all that was submitted with one call, from the slots' buffers, and receives once: long data straight into its
//! slot, short answers through one buffer.
// tidy: long because admin queue, I/O queues and discovery are the same few socket calls

mod association_probe;
mod caller_queue;
mod reconnect;

pub use association_probe::association;
pub use caller_queue::NvmeTcpCallerQueue;

use crate::crc::Crc32c;
use crate::reactor::{IoBuf, now};
use association_probe::AssociationUse;
use reconnect::Reconnect;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg};
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_driver::health::SmartReading;
use weir_driver::nvme_tcp::{
    Ask, BringUp, Buffers, ConnectOptions, ConnectedController, DataTransfer, Discovery, FinishedCommand,
    HostConnection, HostSettings, NamespaceWatch, SendSegment, command, connect_refusal,
};
use weir_driver::{Done, Io, IoKind, NamespaceNotice, QueuePair, TransportError};
use weir_spec::nvme::Cqe;
use weir_spec::nvme::fabrics::{ConnectData, DISCOVERY_NQN};
use weir_spec::nvme::identify::IDENTIFY_LEN;
use weir_spec::nvme::log::{DiscoveryEntry, Smart, subtype};
use weir_spec::nvme::nvm::DsmRange;
use weir_spec::nvme::tcp::ADMIN_IN_CAPSULE;
use weir_units::{Class, Nanos};
use zerocopy::{FromBytes, IntoBytes};

/// How long an address may take to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the first attempt may take of that; the next ones have twice as long each. A SYN that was lost the kernel sends again only after
/// 1 s.
const FIRST_ATTEMPT: Duration = Duration::from_millis(250);
/// What is received at once.
const RECEIVE: usize = 256 << 10;
/// What is received behind data that goes straight to its slot, and while long data is awaited: the next headers.
const BEHIND: usize = 4 << 10;
/// Pieces given to one send.
const PIECES: usize = 128;
/// Busy polls between looks at the keep-alive timer.
const LOOK: u32 = 1024;
/// Entries of the admin queue.
const ADMIN_DEPTH: u16 = 32;
/// Command identifiers of the keep-alive, of what follows the namespace, and of the SMART log; the bring-up uses 0.
const KEEP_ALIVE: u16 = 1;
const WATCH: u16 = 2;
const SMART: u16 = 3;

/// The buffers of a queue pair, one a slot, and the ranges of its trims.
#[derive(Debug)]
struct Slots {
    memory: IoBuf,
    each: usize,
    trims: Vec<Option<DsmRange>>,
}

impl Slots {
    fn new(depth: u32, each: u32) -> Self {
        let each = each as usize;
        Self { memory: IoBuf::new(depth as usize * each), each, trims: vec![None; depth as usize] }
    }
}

impl Buffers for Slots {
    #[inline]
    fn bytes(&self, cid: u16) -> &[u8] {
        match self.trims.get(usize::from(cid)) {
            Some(Some(range)) => range.as_bytes(),
            _ => &self.memory[usize::from(cid) * self.each..][..self.each],
        }
    }

    #[inline]
    fn buffer(&mut self, cid: u16) -> &mut [u8] {
        match self.trims.get_mut(usize::from(cid)) {
            Some(Some(range)) => range.as_mut_bytes(),
            _ => &mut self.memory[usize::from(cid) * self.each..][..self.each],
        }
    }
}

/// A connection and its socket.
#[derive(Debug)]
struct Link {
    stream: TcpStream,
    connection: HostConnection<Crc32c>,
    buffer: Vec<u8>,
    peer: String,
    /// How long an answer may take that is waited for.
    answer_timeout: Nanos,
}

impl Link {
    /// Connects and initializes.
    fn open(host: &str, port: u16, settings: HostSettings, answer_timeout: Nanos) -> Result<Self, TransportError> {
        let peer = format!("{host}:{port}");
        let stream = dial((host, port), &peer, Duration::from_nanos(answer_timeout.get()).min(CONNECT_TIMEOUT))?;
        let failed = |e: std::io::Error| TransportError::Unreachable(format!("{peer}: {e}"));
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(failed)?;
        let connection = HostConnection::new(settings);
        let mut link = Self { stream, connection, buffer: vec![0; RECEIVE], peer, answer_timeout };
        let mut none = Slots::new(1, 1);
        let deadline = now().saturating_add(answer_timeout);
        let mut completions = Vec::new();
        while !link.connection.is_running() {
            link.flush(&none)?;
            if !link.receive(&mut none, &mut completions)? {
                link.wait(deadline)?;
            }
        }
        Ok(link)
    }

    fn closed(&self) -> TransportError {
        TransportError::Closed(format!("{}: the controller closed the connection", self.peer))
    }

    #[cold]
    fn failed(&self, e: Errno) -> TransportError {
        match e {
            Errno::CONNRESET | Errno::PIPE => self.closed(),
            e => TransportError::Closed(format!("{}: {}", self.peer, std::io::Error::from(e))),
        }
    }

    #[cold]
    fn failure(&mut self, slots: &impl Buffers) -> TransportError {
        // The termination request is on its way if the socket takes it; more is not owed.
        let _ = self.send(slots);
        match self.connection.failure() {
            Some(failure) => match TransportError::from(failure) {
                TransportError::Protocol(text) => TransportError::Protocol(format!("{}: {text}", self.peer)),
                other => other,
            },
            None => self.closed(),
        }
    }

    /// Sends what the socket takes.
    #[inline]
    fn flush(&mut self, slots: &impl Buffers) -> Result<(), TransportError> {
        while self.connection.has_output() {
            if !self.send(slots)? {
                break;
            }
        }
        Ok(())
    }

    /// One send; false when the socket is full.
    fn send(&mut self, slots: &impl Buffers) -> Result<bool, TransportError> {
        let headers = self.connection.headers();
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let mut count = 0;
        for (piece, segment) in pieces.iter_mut().zip(self.connection.segments()) {
            *piece = IoSlice::new(match *segment {
                SendSegment::Header { start, len } => &headers[start..start + len],
                SendSegment::Data { cid, offset, len } => &slots.bytes(cid)[offset as usize..][..len as usize],
            });
            count += 1;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(&self.stream, &pieces[..count], &mut SendAncillaryBuffer::default(), flags) {
            Ok(n) => {
                self.connection.sent(n);
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(Errno::INTR) => Ok(true),
            Err(e) => Err(self.failed(e)),
        }
    }

    /// Receives what is there, up to [`RECEIVE`]; false when there was nothing.
    fn receive(&mut self, slots: &mut impl Buffers, out: &mut Vec<FinishedCommand>) -> Result<bool, TransportError> {
        let mut received = 0;
        loop {
            let (got, asked) = self.receive_once(slots, out)?;
            received += got;
            // Less than was asked for: there is no more.
            if got < asked || received >= RECEIVE {
                return Ok(received > 0);
            }
        }
    }

    /// One receive: how many bytes came, and how many were asked for.
    #[inline]
    fn receive_once(
        &mut self,
        slots: &mut impl Buffers,
        out: &mut Vec<FinishedCommand>,
    ) -> Result<(usize, usize), TransportError> {
        let flags = RecvFlags::DONTWAIT;
        let asked = if self.connection.expects_long_data() { BEHIND } else { RECEIVE };
        let (got, straight) = match self.connection.direct() {
            Some((cid, range)) => {
                let straight = range.len();
                let mut pieces =
                    [IoSliceMut::new(&mut slots.buffer(cid)[range]), IoSliceMut::new(&mut self.buffer[..BEHIND])];
                (
                    recvmsg(&self.stream, &mut pieces, &mut RecvAncillaryBuffer::default(), flags).map(|m| m.bytes),
                    straight,
                )
            }
            None => (rustix::net::recv(&self.stream, &mut self.buffer[..asked], flags).map(|(n, _)| n), 0),
        };
        let asked = if straight > 0 { straight + BEHIND } else { asked };
        let got = match got {
            Ok(0) => return Err(self.closed()),
            Ok(n) => {
                if straight > 0 {
                    self.connection.filled(n.min(straight), slots, out);
                }
                self.connection.receive(&self.buffer[..n.saturating_sub(straight)], slots, out);
                crate::copies::count(self.connection.take_copied());
                n
            }
            Err(Errno::AGAIN | Errno::INTR) => return Ok((0, asked)),
            Err(e) => return Err(self.failed(e)),
        };
        if self.connection.failure().is_some() {
            return Err(self.failure(slots));
        }
        Ok((got, asked))
    }

    /// Sleeps until the socket has something, at most until `deadline`.
    fn wait(&self, deadline: Nanos) -> Result<(), TransportError> {
        let left = deadline.saturating_sub(now());
        if left.get() == 0 {
            let seconds = self.answer_timeout.as_secs_f64();
            return Err(TransportError::Timeout(format!("{}: no answer within {seconds} s", self.peer)));
        }
        let interest = if self.connection.has_output() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let timeout = Timespec { tv_sec: 0, tv_nsec: left.get().min(100_000_000) as _ };
        match poll(&mut [PollFd::new(&self.stream, interest)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(self.failed(e)),
        }
    }

    /// One command, waited for: its completion; its data to the host is in the buffer of CID 0.
    fn run(
        &mut self,
        slots: &mut Slots,
        sqe: weir_spec::nvme::Sqe,
        transfer: DataTransfer,
    ) -> Result<Cqe, TransportError> {
        self.connection.submit(0, sqe, transfer, slots)?;
        let deadline = now().saturating_add(self.answer_timeout);
        let mut completions = Vec::new();
        loop {
            self.flush(slots)?;
            if !self.receive(slots, &mut completions)? {
                self.wait(deadline)?;
            }
            if let Some(done) = completions.iter().find(|c| c.cid == 0) {
                return Ok(done.cqe);
            }
        }
    }
}

/// The first address of the host that accepts; each may take so long.
fn dial((host, port): (&str, u16), peer: &str, timeout: Duration) -> Result<TcpStream, TransportError> {
    let unreachable = |e: String| TransportError::Unreachable(format!("{peer}: {e}"));
    let addresses = (host, port).to_socket_addrs().map_err(|e| unreachable(format!("no such host: {e}")))?;
    let mut last = unreachable("no such host".into());
    for address in addresses {
        match connect(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = unreachable(format!("{e}; is an NVMe/TCP target listening there?")),
        }
    }
    Err(last)
}

/// Connects, with another socket where one hears nothing.
fn connect(address: &SocketAddr, timeout: Duration) -> std::io::Result<TcpStream> {
    let (begun, mut attempt) = (Instant::now(), FIRST_ATTEMPT);
    loop {
        // A timeout of zero is an error of the call.
        let left = timeout.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(address, attempt.min(left)) {
            Err(e) if e.kind() == ErrorKind::TimedOut && left > attempt => attempt *= 2,
            result => return result,
        }
    }
}

/// How bringing a controller up fails.
enum Unknown {
    /// There is no such subsystem there.
    Subsystem,
    Other(TransportError),
}

impl From<TransportError> for Unknown {
    fn from(e: TransportError) -> Self {
        Unknown::Other(e)
    }
}

impl Unknown {
    /// In words, with the subsystems that there are.
    fn explain(self, host: &str, port: u16, options: &ConnectOptions) -> TransportError {
        let Unknown::Other(e) = self else {
            let there = match discover(host, port, &options.hostnqn) {
                Ok(entries) => subsystems(&entries),
                Err(e) => format!("which there are is not told: {e}"),
            };
            return TransportError::Refused(format!("{host}:{port} has no subsystem {}; {there}", options.subnqn));
        };
        e
    }
}

/// The subsystems of a discovery log, each once.
fn subsystems(entries: &[DiscoveryEntry]) -> String {
    let drives = entries.iter().filter(|e| e.subtype == subtype::NVM).filter_map(|e| e.subnqn());
    let names: std::collections::BTreeSet<&str> = drives.collect();
    match names.len() {
        0 => "it has none for this host".into(),
        _ => format!("there is {}", names.into_iter().collect::<Vec<_>>().join(", ")),
    }
}

/// The admin queue's connection.
#[derive(Debug)]
struct Admin {
    link: Link,
    slots: Slots,
    completions: Vec<FinishedCommand>,
    /// Half of the keep alive timeout; NEVER where there is none.
    interval: Nanos,
    due: Nanos,
    pending: bool,
    /// An interval has passed without the answer: it has half of another one, because it may be this process that stood still.
    is_late: bool,
    /// When the controller has answered last.
    heard: Nanos,
    /// What it says of the namespace, where somebody wants to hear.
    watch: Option<NamespaceWatch>,
    smart: SmartQuestion,
    broken: Option<TransportError>,
    /// I/O queues that were granted and that nobody uses, the one that has rested longest first.
    spares: VecDeque<u16>,
}

/// Where a question for the SMART log is.
#[derive(Debug)]
enum SmartQuestion {
    None,
    Wanted,
    Sent,
    Answered(SmartReading),
}

impl Admin {
    fn open(host: &str, port: u16, options: &ConnectOptions) -> Result<Self, TransportError> {
        let settings = HostSettings {
            header_digest: options.header_digest,
            data_digest: options.data_digest,
            hpda: 0,
            depth: ADMIN_DEPTH,
            in_capsule: ADMIN_IN_CAPSULE,
        };
        let interval = if options.kato == Nanos(0) { Nanos::NEVER } else { Nanos(options.kato.get() / 2) };
        Ok(Self {
            link: Link::open(host, port, settings, options.answer_timeout)?,
            slots: Slots::new(ADMIN_DEPTH.into(), IDENTIFY_LEN as u32),
            completions: Vec::new(),
            interval,
            due: now().saturating_add(interval),
            pending: false,
            is_late: false,
            heard: now(),
            watch: None,
            smart: SmartQuestion::None,
            broken: None,
            spares: VecDeque::new(),
        })
    }

    /// Does what a machine asks for, until it asks for nothing.
    fn follow(
        &mut self,
        mut ask: impl FnMut() -> Ask,
        mut answer: impl FnMut(&Cqe, &[u8]) -> Result<(), TransportError>,
    ) -> Result<(), TransportError> {
        loop {
            match ask() {
                Ask::Nothing => return Ok(()),
                Ask::Wait(pause) => std::thread::sleep(Duration::from_nanos(pause.get())),
                Ask::Command { sqe, transfer, data } => {
                    self.slots.buffer(0)[..data.len()].copy_from_slice(&data);
                    let cqe = self.link.run(&mut self.slots, sqe, transfer)?;
                    let len = match transfer {
                        DataTransfer::ToHost(len) => len as usize,
                        _ => 0,
                    };
                    answer(&cqe, &self.slots.bytes(0)[..len])?;
                }
            }
        }
    }

    fn bring_up(&mut self, options: &ConnectOptions) -> Result<ConnectedController, Unknown> {
        let machine = std::cell::RefCell::new(BringUp::new(options.clone()));
        let followed = self.follow(|| machine.borrow_mut().ask(), |cqe, data| machine.borrow_mut().answer(cqe, data));
        let machine = machine.into_inner();
        match followed {
            Ok(()) => Ok(machine.ready()),
            Err(_) if machine.is_unknown() => Err(Unknown::Subsystem),
            Err(e) => Err(e.into()),
        }
    }

    /// Sends a keep alive where one is due and takes answers, without waiting.
    fn keep_alive(&mut self, time: Nanos) -> Result<(), TransportError> {
        if let Some(e) = &self.broken {
            return Err(e.clone());
        }
        let result = self.try_keep_alive(time);
        if let Err(e) = &result {
            self.broken = Some(e.clone());
        }
        result
    }

    fn try_keep_alive(&mut self, time: Nanos) -> Result<(), TransportError> {
        while self.link.receive(&mut self.slots, &mut self.completions)? {}
        for c in self.completions.drain(..) {
            self.heard = time;
            self.pending &= c.cid != KEEP_ALIVE;
            self.is_late &= self.pending;
            if let (WATCH, Some(watch)) = (c.cid, &mut self.watch) {
                watch.answered(&c.cqe, self.slots.bytes(WATCH));
            }
            if c.cid == SMART {
                let page =
                    Smart::read_from_prefix(self.slots.bytes(SMART)).ok().filter(|_| c.cqe.status().is_success());
                // A controller that refuses the log says nothing about its media.
                let reading = page.map_or(SmartReading::default(), |(page, _)| SmartReading::of(&page));
                self.smart = SmartQuestion::Answered(reading);
            }
        }
        if matches!(self.smart, SmartQuestion::Wanted) {
            let len = size_of::<Smart>() as u32;
            let sqe = command::smart_log(len);
            self.link.connection.submit(SMART, sqe, DataTransfer::ToHost(len), &mut self.slots)?;
            self.smart = SmartQuestion::Sent;
        }
        if let Some((sqe, transfer)) = self.watch.as_mut().and_then(NamespaceWatch::next_command) {
            self.link.connection.submit(WATCH, sqe, transfer, &mut self.slots)?;
        }
        if time >= self.due && self.pending {
            if std::mem::replace(&mut self.is_late, true) {
                let text = format!("{}: the controller does not answer keep alives", self.link.peer);
                return Err(TransportError::Timeout(text));
            }
            self.due = time.saturating_add(Nanos(self.interval.get() / 2));
        } else if time >= self.due {
            self.link.connection.submit(KEEP_ALIVE, command::keep_alive(), DataTransfer::None, &mut self.slots)?;
            self.pending = true;
            self.due = time.saturating_add(self.interval);
        }
        self.link.flush(&self.slots)
    }
}

/// What it takes to connect an I/O queue.
#[derive(Debug)]
struct Dial {
    host: String,
    port: u16,
    options: ConnectOptions,
    ready: ConnectedController,
    live: AssociationUse,
}

impl Dial {
    /// Entries of an I/O queue: a queue of n holds n - 1 commands (base 2.0, 3.3.1.5).
    fn entries(&self) -> u16 {
        (u32::from(self.options.depth.max(1)) + 1).min(self.ready.max_depth).min(u32::from(u16::MAX)) as u16
    }

    fn connect(&self, qid: u16, class: Option<Class>) -> Result<Link, TransportError> {
        let (o, entries) = (&self.options, self.entries());
        let settings = HostSettings {
            header_digest: o.header_digest,
            data_digest: o.data_digest,
            hpda: 0,
            depth: entries - 1,
            in_capsule: ADMIN_IN_CAPSULE,
        };
        let mut link = Link::open(&self.host, self.port, settings, o.answer_timeout)?;
        let data = o.connect_data(self.ready.cntlid);
        let mut connect = Slots::new(1, size_of::<ConnectData>() as u32);
        connect.buffer(0).copy_from_slice(data.as_bytes());
        let sqe = command::connect(qid, entries, command::cattr(class, o.sq_flow_control), 0);
        let cqe = link.run(&mut connect, sqe, DataTransfer::ToController(size_of::<ConnectData>() as u32))?;
        if !cqe.status().is_success() {
            return Err(connect_refusal(&o.subnqn, &format!("I/O queue {qid}"), &cqe));
        }
        link.connection.set_in_capsule(self.ready.in_capsule);
        Ok(link)
    }
}

/// How far an attempt to connect has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// There is a connection.
    Connected,
    /// There is a controller that is enabled.
    Enabled,
}

/// A controller that was connected to and enabled. Its association lives as long as it or one of its queue pairs.
#[derive(Debug)]
pub struct RemoteController {
    admin: Arc<Mutex<Admin>>,
    dial: Arc<Dial>,
    next_qid: u16,
}

impl RemoteController {
    /// Connects to the subsystem that the options name, enables a controller and identifies the namespace.
    ///
    /// # Errors
    /// Nobody answers there, or the subsystem refuses; the text says which and what it said.
    pub fn connect(host: &str, port: u16, options: ConnectOptions) -> Result<Self, TransportError> {
        Self::connect_by_stages(host, port, options, &mut |_| {})
    }

    /// The same; `reached` hears how far it has come.
    ///
    /// # Errors
    /// As [`RemoteController::connect`].
    pub fn connect_by_stages(
        host: &str,
        port: u16,
        options: ConnectOptions,
        reached: &mut dyn FnMut(Stage),
    ) -> Result<Self, TransportError> {
        let mut admin = Admin::open(host, port, &options)?;
        reached(Stage::Connected);
        let ready = admin.bring_up(&options).map_err(|e| e.explain(host, port, &options))?;
        if options.spare {
            admin.spares = (options.queues.max(1) + 1..=ready.queues).collect();
        }
        reached(Stage::Enabled);
        admin.watch = options.follows_namespace.then(|| NamespaceWatch::new(ready.nsid));
        let admin = Arc::new(Mutex::new(admin));
        let live = AssociationUse::new(host, port, &options, ready.cntlid);
        Ok(Self { admin, dial: Arc::new(Dial { host: host.into(), port, options, ready, live }), next_qid: 1 })
    }

    /// What was found out about controller and namespace.
    pub fn ready(&self) -> ConnectedController {
        self.dial.ready
    }

    /// Connects the next I/O queue, in the options' class. `max_io` is cut to what the controller takes, the depth to its
    /// queues'.
    ///
    /// # Errors
    /// No more queues were granted, or Connect was refused.
    pub fn queue_pair(&mut self, max_io: u32) -> Result<NvmeTcpQueue, TransportError> {
        self.queue_pair_in(self.dial.options.class, max_io)
    }

    /// The same, asking for a class (CATTR).
    ///
    /// # Errors
    /// As [`RemoteController::queue_pair`].
    pub fn queue_pair_in(&mut self, class: Option<Class>, max_io: u32) -> Result<NvmeTcpQueue, TransportError> {
        let NextQueue { link, qid, depth, max_io } = self.connect_next(class, max_io)?;
        Ok(NvmeTcpQueue {
            link,
            slots: Slots::new(depth, max_io),
            admin: self.admin.clone(),
            dial: self.dial.clone(),
            qid,
            depth,
            max_io,
            completions: Vec::with_capacity(depth as usize),
            polls: 0,
            has_notice: false,
            class,
            again: None,
        })
    }

    fn connect_next(&mut self, class: Option<Class>, max_io: u32) -> Result<NextQueue, TransportError> {
        let Dial { options: o, ready, .. } = &*self.dial;
        let most = ready.queues.min(o.queues.max(1));
        if self.next_qid > most {
            let text = format!("{}: the controller grants {most} I/O queues", o.subnqn);
            return Err(TransportError::Refused(text));
        }
        let limit = ready.max_transfer.min(ready.block_size.saturating_mul(1 << 16));
        let max_io = max_io.min(limit).max(ready.block_size) / ready.block_size * ready.block_size;
        let link = self.dial.connect(self.next_qid, class)?;
        let (qid, depth) = (self.next_qid, u32::from(self.dial.entries() - 1));
        self.next_qid += 1;
        Ok(NextQueue { link, qid, depth, max_io })
    }
}

/// An I/O queue that was connected.
struct NextQueue {
    link: Link,
    qid: u16,
    depth: u32,
    max_io: u32,
}

/// Connects and opens all queue pairs that the options ask for.
///
/// # Errors
/// As [`RemoteController::connect`] and [`RemoteController::queue_pair`].
pub fn open(host: &str, port: u16, options: &ConnectOptions, max_io: u32) -> Result<Vec<NvmeTcpQueue>, TransportError> {
    let mut controller = RemoteController::connect(host, port, options.clone())?;
    (0..options.queues.max(1)).map(|_| controller.queue_pair(max_io)).collect()
}

/// Reads the discovery log of the discovery controller at that address.
///
/// # Errors
/// As [`RemoteController::connect`].
pub fn discover(host: &str, port: u16, hostnqn: &str) -> Result<Vec<DiscoveryEntry>, TransportError> {
    let options = ConnectOptions { kato: Nanos(0), ..ConnectOptions::new(DISCOVERY_NQN, hostnqn) };
    let mut admin = Admin::open(host, port, &options)?;
    admin.bring_up(&options).map_err(|e| match e {
        Unknown::Subsystem => TransportError::Refused(format!("{host}:{port} has no discovery service")),
        Unknown::Other(e) => e,
    })?;
    let machine = std::cell::RefCell::new(Discovery::new());
    admin.follow(|| machine.borrow().ask(), |cqe, data| machine.borrow_mut().answer(cqe, data))?;
    Ok(machine.into_inner().entries().to_vec())
}

/// One I/O queue of a controller, which is one connection.
#[derive(Debug)]
pub struct NvmeTcpQueue {
    link: Link,
    slots: Slots,
    admin: Arc<Mutex<Admin>>,
    dial: Arc<Dial>,
    qid: u16,
    depth: u32,
    max_io: u32,
    completions: Vec<FinishedCommand>,
    polls: u32,
    /// The controller has said something of the namespace.
    has_notice: bool,
    class: Option<Class>,
    again: Option<Box<Reconnect>>,
}

impl NvmeTcpQueue {
    /// What was found out about controller and namespace.
    pub fn ready(&self) -> ConnectedController {
        self.dial.ready
    }

    /// Its association, for [`association`](association()): CNTLID, and which one of this process it is.
    pub fn association(&self) -> (u16, u64) {
        (self.dial.ready.cntlid, self.dial.live.number())
    }

    /// Descriptors of the sockets of its association: the admin queue's and its own.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn connections(&self) -> std::io::Result<Vec<OwnedFd>> {
        let admin = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        [&admin.link, &self.link].into_iter().map(|link| link.stream.try_clone().map(OwnedFd::from)).collect()
    }

    /// Makes the queue anew, asking for another class: CATTR is fixed for a queue's life. Nothing may be in flight. The new
    /// queue is connected, which waits for the network, before the old one ends; with an error the old one stays.
    /// False where there is no spare queue ([`ConnectOptions::spare`]).
    ///
    /// # Errors
    /// The controller cannot be reached, or refuses.
    pub fn set_class(&mut self, class: Option<Class>) -> Result<bool, TransportError> {
        let spares = |admin: &Mutex<Admin>, put: Option<u16>| {
            let mut admin = admin.lock().unwrap_or_else(PoisonError::into_inner);
            match put {
                Some(qid) => {
                    admin.spares.push_back(qid);
                    None
                }
                None => admin.spares.pop_front(),
            }
        };
        let Some(qid) = spares(&self.admin, None) else { return Ok(false) };
        match self.dial.connect(qid, class) {
            Ok(link) => {
                self.link = link;
                self.class = class;
                spares(&self.admin, Some(std::mem::replace(&mut self.qid, qid)));
                Ok(true)
            }
            Err(e) => {
                spares(&self.admin, Some(qid));
                Err(e)
            }
        }
    }

    #[cold]
    fn keep_alive(&mut self) -> Result<(), TransportError> {
        self.polls = 0;
        let time = now();
        // Whoever holds it is doing just this.
        let mut admin = match self.admin.try_lock() {
            Ok(admin) => admin,
            Err(std::sync::TryLockError::Poisoned(e)) => PoisonError::into_inner(e),
            Err(std::sync::TryLockError::WouldBlock) => return Ok(()),
        };
        admin.keep_alive(time)?;
        self.has_notice = admin.watch.as_ref().is_some_and(NamespaceWatch::has_notice);
        Ok(())
    }
}

impl QueuePair for NvmeTcpQueue {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn block_size(&self) -> u32 {
        self.dial.ready.block_size
    }

    fn capacity(&self) -> u64 {
        self.dial.ready.capacity
    }

    fn max_io(&self) -> u32 {
        self.max_io
    }

    fn max_zeroes(&self) -> u32 {
        self.dial.ready.max_zeroes / self.dial.ready.block_size * self.dial.ready.block_size
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        &mut self.slots.memory[slot as usize * self.slots.each..][..self.slots.each]
    }

    #[inline]
    fn submit(&mut self, io: Io) -> Result<(), TransportError> {
        io.check(self)?;
        if let Some(again) = &mut self.again {
            again.flying[io.slot as usize] = Some(io);
        }
        self.send(io).or_else(|e| self.renew(e))
    }

    #[inline]
    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), TransportError> {
        self.look(done).or_else(|e| self.renew(e))
    }

    fn attend(&mut self) -> Result<(), TransportError> {
        self.keep_alive().or_else(|e| self.renew(e))
    }

    fn heard(&self) -> Nanos {
        self.admin.lock().unwrap_or_else(PoisonError::into_inner).heard
    }

    fn ask_smart(&mut self) -> bool {
        let mut admin = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(admin.smart, SmartQuestion::None | SmartQuestion::Answered(_)) {
            admin.smart = SmartQuestion::Wanted;
        }
        true
    }

    fn take_smart(&mut self) -> Option<SmartReading> {
        let mut admin = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        let SmartQuestion::Answered(reading) = admin.smart else { return None };
        admin.smart = SmartQuestion::None;
        Some(reading)
    }

    fn take_notice(&mut self) -> Option<NamespaceNotice> {
        // This is asked after every answer.
        if !self.has_notice {
            return None;
        }
        let notice = self.admin.lock().unwrap_or_else(PoisonError::into_inner).watch.as_mut()?.take();
        self.has_notice = notice.is_some();
        notice
    }
}

impl NvmeTcpQueue {
    #[inline]
    fn send(&mut self, io: Io) -> Result<(), TransportError> {
        let block = self.dial.ready.block_size;
        let (lba, blocks) = (io.offset / u64::from(block), io.len / block);
        let cid = io.slot as u16;
        let transfer = match io.kind {
            IoKind::Read => DataTransfer::ToHost(io.len),
            IoKind::Write => DataTransfer::ToController(io.len),
            IoKind::Trim => {
                self.slots.trims[io.slot as usize] = Some(command::trim_range(lba, blocks));
                DataTransfer::ToController(size_of::<DsmRange>() as u32)
            }
            IoKind::WriteZeroes | IoKind::Flush => DataTransfer::None,
        };
        let sqe = command::io(io.kind, self.dial.ready.nsid, lba, blocks);
        self.link.connection.submit(cid, sqe, transfer, &mut self.slots)
    }

    #[inline]
    fn look(&mut self, done: &mut Vec<Done>) -> Result<(), TransportError> {
        self.link.flush(&self.slots)?;
        let got = self.link.receive(&mut self.slots, &mut self.completions)?;
        for c in self.completions.drain(..) {
            self.slots.trims[usize::from(c.cid)] = None;
            if let Some(again) = &mut self.again {
                again.flying[usize::from(c.cid)] = None;
            }
            done.push(Done { slot: c.cid.into(), status: c.cqe.status() });
        }
        self.polls += 1;
        // A poll without news has time for a look at the clock.
        if got && self.polls < LOOK || self.polls % 64 != 0 { Ok(()) } else { self.keep_alive() }
    }
}

#[cfg(test)]
#[path = "nvme_tcp_tests.rs"]
mod tests;
