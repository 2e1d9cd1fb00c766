//! What all threads of a client do in turn: requests, files, drives and the session's lease. See [`super::driver`] for who does it when.

mod answers;
mod drives;
mod work;

use super::connection::{Connection, boot_time, drive_time};
use super::error::{ClientError, ClientErrorKind};
use super::memory::{CallerMemory, OperationMemory};
use super::open_file::{FileWork, OpenFile, QueuedWork};
use super::options::ClientOptions;
use super::requests::{Purpose, Requests, Unanswered};
use crate::tier::{MemoryPlace, Tier, TierCommandId};
use rustix::event::epoll;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::Thread;
use weir_store::file::{DriveTicket, FileBuffer, FileEffect};
use weir_store::members::SessionHolder;
use weir_store::protocol::{Answer, NamespaceInfo, Request, WelcomeInfo};
use weir_store::space::Epoch;
use weir_store::{Extent, Location, NamespaceId};
use weir_sys::transport::fds;
use weir_units::Nanos;

/// How often operations under way are asked whether they are late.
const LOOK: Nanos = Nanos::from_millis(10);
/// How often an idle client looks after its lease and its drives.
const IDLE: Nanos = Nanos::from_millis(250);
/// Unpublished blocks of a session, in bytes, as the service counts them.
const AHEAD: u64 = 16 << 20;
/// How often a read is tried again that has met a block which is being written over.
const TRIES: u32 = 200;
/// Between those.
const UNSETTLED_PAUSE: Nanos = Nanos::from_millis(5);
/// The place of the bell and of the metadata service among what is waited for.
const BELL: u64 = u64::MAX;
const META: u64 = u64::MAX - 1;

/// What work has come to.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The service's answer.
    Answer(Result<Answer, ClientError>),
    /// Of a file's operation: its memory, and how many bytes.
    Io(Option<CallerMemory>, Result<u32, ClientError>),
}

/// An operation under way.
#[derive(Clone, Copy, Debug)]
struct Operation {
    what: FileWork,
    deadline: Nanos,
    tries: u32,
}

/// See [the module](self).
#[derive(Debug)]
pub(super) struct Engine {
    pub requests: Requests,
    pub welcome: WelcomeInfo,
    options: ClientOptions,
    holder: SessionHolder,
    files: BTreeMap<u64, OpenFile>,
    memory: OperationMemory,
    operations: HashMap<u64, Operation>,
    namespaces: BTreeMap<NamespaceId, NamespaceInfo>,
    tiers: BTreeMap<NamespaceId, Box<dyn Tier>>,
    commands: HashMap<TierCommandId, (u64, DriveTicket)>,
    tickets: BTreeMap<(u64, DriveTicket), (NamespaceId, TierCommandId)>,
    /// I/O at namespaces that this client does not know yet.
    unknown: Vec<(u64, FileEffect)>,
    asks_for_namespaces: bool,
    /// Reads that are tried again then.
    again: Vec<(Nanos, QueuedWork, u64)>,
    /// What is over and not taken yet.
    done: HashMap<u64, Outcome>,
    /// Work whose caller has gone.
    abandoned: HashSet<u64>,
    /// Flushes and writes of the engine's own.
    internal: HashSet<u64>,
    /// Writes that bring a file's bytes from its inode into a block, and the file.
    moving: HashMap<u64, u64>,
    pub waiters: BTreeMap<u64, Thread>,
    last: u64,
    /// A thread is driving, and has let go of the lock.
    pub is_driven: bool,
    pub is_closed: bool,
    look_at: Nanos,
    pub poll: Arc<OwnedFd>,
    pub bell: Arc<OwnedFd>,
    registered: HashMap<u64, (u64, bool)>,
    /// The epoch that may be acknowledged whatever drives do.
    acknowledged: Epoch,
}

impl Engine {
    pub fn new(
        options: ClientOptions,
        requests: Requests,
        welcome: WelcomeInfo,
        holder: SessionHolder,
        bell: Arc<OwnedFd>,
    ) -> Result<Self, ClientError> {
        let failed =
            |e: rustix::io::Errno| ClientError::new(ClientErrorKind::Unreachable(format!("epoll cannot be had: {e}")));
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        epoll::add(&poll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN).map_err(failed)?;
        let acknowledged = welcome.epoch;
        Ok(Self {
            requests,
            welcome,
            options,
            holder,
            files: BTreeMap::new(),
            memory: OperationMemory::default(),
            operations: HashMap::new(),
            namespaces: BTreeMap::new(),
            tiers: BTreeMap::new(),
            commands: HashMap::new(),
            tickets: BTreeMap::new(),
            unknown: Vec::new(),
            asks_for_namespaces: false,
            again: Vec::new(),
            done: HashMap::new(),
            abandoned: HashSet::new(),
            internal: HashSet::new(),
            moving: HashMap::new(),
            waiters: BTreeMap::new(),
            last: 0,
            is_driven: false,
            is_closed: false,
            look_at: Nanos(0),
            poll: Arc::new(poll),
            bell,
            registered: HashMap::new(),
            acknowledged,
        })
    }

    pub fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// What work has come to, once.
    pub fn take(&mut self, work: u64) -> Option<Outcome> {
        self.done.remove(&work)
    }

    pub fn is_done(&self, work: u64) -> bool {
        self.done.contains_key(&work)
    }

    /// Nobody will take what the work comes to.
    pub fn abandon(&mut self, work: u64) {
        if self.done.remove(&work).is_none() {
            self.abandoned.insert(work);
        }
    }

    /// Whether anything is under way.
    pub fn has_work(&self) -> bool {
        !self.operations.is_empty() || self.requests.pending() > 0 || self.tiers.values().any(|t| t.pending() > 0)
    }

    fn finish(&mut self, work: u64, outcome: Outcome) {
        if self.abandoned.remove(&work) || self.internal.remove(&work) {
            return;
        }
        self.done.insert(work, outcome);
        if let Some(waiter) = self.waiters.get(&work) {
            waiter.unpark();
        }
    }

    /// Why the session is over, if it is.
    fn over(&self) -> Option<ClientError> {
        self.requests.is_over.then(|| ClientError::new(ClientErrorKind::SessionOver))
    }

    /// Sends a caller's request; its number as work.
    pub fn ask(&mut self, request: Request, file: Option<u64>, deadline: Nanos) -> Result<u64, ClientError> {
        if let Some(over) = self.over() {
            return Err(over);
        }
        let work = self.next();
        self.send(Unanswered::new(request, Purpose::Caller(work), file, deadline))?;
        Ok(work)
    }

    /// Sends a request, with the file's handle as it is at present.
    fn send(&mut self, mut sent: Unanswered) -> Result<(), ClientError> {
        let handle = sent.file.and_then(|file| self.files.get(&file)).map(|file| file.handle);
        match (handle, sent.handle()) {
            (Some(Some(known)), Some(handle)) => *handle = known,
            // It is being opened again.
            (Some(None), Some(_)) => {
                self.requests.retry(boot_time(), sent);
                return Ok(());
            }
            _ => {}
        }
        self.requests.send(sent)
    }

    /// Where the client is.
    pub fn location(&self) -> &Location {
        self.requests.location()
    }

    pub fn set_namespaces(&mut self, namespaces: Vec<NamespaceInfo>) {
        self.namespaces = namespaces.into_iter().map(|info| (info.namespace, info)).collect();
    }

    /// One round of everything. `true` if anything has happened.
    pub fn turn(&mut self) -> bool {
        let mut any = self.turn_requests();
        any |= self.turn_drives();
        let now = boot_time();
        if now >= self.look_at || !self.again.is_empty() {
            self.look(now);
        }
        self.register();
        any
    }

    /// When the next turn is due although nothing comes.
    pub fn due(&self) -> Nanos {
        let now = boot_time();
        let drives = self.tiers.values().map(|tier| tier.due()).min().unwrap_or(Nanos::NEVER);
        let drives = match drives {
            Nanos::NEVER => Nanos::NEVER,
            due => now.saturating_add(due.saturating_sub(drive_time())),
        };
        let look = if self.has_work() { self.look_at } else { now.saturating_add(IDLE) };
        let again = self.again.iter().map(|(at, ..)| *at).min().unwrap_or(Nanos::NEVER);
        drives.min(look).min(again).min(self.requests.due())
    }

    /// Says to epoll what is waited for.
    fn register(&mut self) {
        let Self { requests, tiers, registered, poll, .. } = self;
        let meta: Option<(&Connection, u64)> = requests.connection().map(|c| (c, requests.connections));
        let meta = meta.map(|(c, number)| (META, c.socket(), number, c.has_output()));
        let drives = tiers
            .iter()
            .filter_map(|(id, tier)| tier.socket().map(|(socket, sends)| (id.get(), socket, tier.connection(), sends)));
        for (key, socket, connection, sends) in meta.into_iter().chain(drives) {
            let before = registered.insert(key, (connection, sends));
            if before == Some((connection, sends)) {
                continue;
            }
            let flags = if sends { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            let data = epoll::EventData::new_u64(key);
            let is_same = before.is_some_and(|(number, _)| number == connection);
            // What cannot be waited for is polled when the next turn is due.
            let _ = match is_same {
                true => epoll::modify(poll.as_fd(), socket, data, flags),
                false => epoll::add(poll.as_fd(), socket, data, flags),
            };
        }
    }

    /// The client ends: its session as well, if nothing is in flight.
    pub fn close(&mut self) {
        self.is_closed = true;
        fds::signal(&*self.bell);
        if self.tiers.values().all(|tier| tier.pending() == 0 && !tier.may_still_write(drive_time())) {
            self.requests.bye();
        }
    }
}

/// Bytes of an extent in a file's memory.
fn place(file: u64, extent: &Extent, buffer: FileBuffer) -> MemoryPlace {
    MemoryPlace { file, buffer, len: u32::try_from(extent.length.get()).unwrap_or(u32::MAX) }
}

fn ticket_of(effect: &FileEffect) -> Option<DriveTicket> {
    match effect {
        FileEffect::Read(ticket, ..) | FileEffect::Write(ticket, ..) | FileEffect::FlushDrive(ticket, _) => {
            Some(*ticket)
        }
        _ => None,
    }
}
