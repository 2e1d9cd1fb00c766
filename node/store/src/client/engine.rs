//! What all threads of a client do in turn: the machine is given what sockets and drives have, and what it wants is carried out. See [`super::driver`] for
//! who does it when.

mod drives;

use super::connection::{boot_time, drive_time};
use super::error::ClientError;
use super::link::Link;
use super::memory::{CallerMemory, OperationMemory};
use super::options::ClientOptions;
use drives::OpenTier;
use rustix::event::epoll;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::Thread;
use weir_store::client::{ClientEffect, ClientEvent, ClientMachine, DriveId, FileWork, OpenFileId, Outcome, WorkId};
use weir_store::protocol::Request;
use weir_sys::transport::fds;
use weir_units::Nanos;

/// The place of the bell and of the metadata service among what is waited for.
const BELL: u64 = u64::MAX;
const META: u64 = u64::MAX - 1;
/// How often the metadata service's connection is looked at while nothing is expected from it, and nothing says that something has come.
const LOOK_AT_META: Nanos = Nanos::from_millis(1);

/// A work that is over: what it has come to, and its memory.
pub(super) type Finished = (Outcome, Option<CallerMemory>);

/// See [the module](self).
#[derive(Debug)]
pub(super) struct Engine {
    machine: ClientMachine,
    options: ClientOptions,
    memory: OperationMemory,
    link: Link,
    tiers: BTreeMap<DriveId, OpenTier>,
    effects: Vec<ClientEffect>,
    events: Vec<ClientEvent>,
    /// What is over and not taken yet.
    done: HashMap<WorkId, Finished>,
    /// Work whose caller has gone.
    abandoned: HashSet<WorkId>,
    pub waiters: BTreeMap<WorkId, Thread>,
    /// A thread is driving, and has let go of the lock.
    pub is_driven: bool,
    pub is_closed: bool,
    /// The keeper looks after what is under way, once a millisecond.
    pub is_attended: bool,
    /// How often anybody has driven.
    pub turns: u64,
    pub poll: Arc<OwnedFd>,
    pub bell: Arc<OwnedFd>,
    registered: HashMap<u64, (u64, bool)>,
    /// When the metadata service's connection is looked at although nothing is expected.
    look_at_meta: Nanos,
    /// Drives that something has come from.
    ready: HashSet<u64>,
}

impl Engine {
    pub fn new(
        options: ClientOptions,
        machine: ClientMachine,
        link: Link,
        bell: Arc<OwnedFd>,
    ) -> Result<Self, rustix::io::Errno> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(Self {
            machine,
            options,
            memory: OperationMemory::default(),
            link,
            tiers: BTreeMap::new(),
            effects: Vec::new(),
            events: Vec::new(),
            done: HashMap::new(),
            abandoned: HashSet::new(),
            waiters: BTreeMap::new(),
            is_driven: false,
            is_closed: false,
            is_attended: false,
            turns: 0,
            poll: Arc::new(poll),
            bell,
            registered: HashMap::new(),
            look_at_meta: Nanos(0),
            ready: HashSet::new(),
        })
    }

    pub fn machine(&self) -> &ClientMachine {
        &self.machine
    }

    pub fn link(&self) -> &Link {
        &self.link
    }

    /// What work has come to, once.
    pub fn take(&mut self, work: WorkId) -> Option<Finished> {
        self.done.remove(&work)
    }

    pub fn is_done(&self, work: WorkId) -> bool {
        self.done.contains_key(&work)
    }

    /// Nobody will take what the work comes to.
    pub fn abandon(&mut self, work: WorkId) {
        if self.done.remove(&work).is_none() {
            self.abandoned.insert(work);
        }
    }

    /// The same; what has not begun is not begun.
    pub fn cancel(&mut self, work: WorkId) {
        self.abandon(work);
        self.give(ClientEvent::Cancel(work));
    }

    /// Sends a caller's request.
    pub fn ask(&mut self, request: Request, until: Nanos) -> WorkId {
        let work = self.machine.number();
        self.give(ClientEvent::Ask(work, request, until));
        self.link.flush();
        work
    }

    /// Opens a file.
    pub fn open(&mut self, request: Request, until: Nanos) -> WorkId {
        let work = self.machine.number();
        self.give(ClientEvent::Open(work, request, until));
        self.link.flush();
        work
    }

    /// Begins an operation of a file: what it asks of drives and of the metadata service leaves, or does so with the next turn where much is
    /// under way.
    pub fn begin(&mut self, file: OpenFileId, what: FileWork, memory: Option<CallerMemory>, until: Nanos) -> WorkId {
        let work = self.machine.number();
        if let Some(memory) = memory {
            self.memory.callers.insert(work.0, memory);
        }
        self.give(ClientEvent::Begin(work, file, what, until));
        if !self.is_done(work) {
            self.send_to_drives();
            self.link.flush();
            self.register();
        }
        work
    }

    /// No caller has the file any more.
    pub fn forget(&mut self, file: OpenFileId) {
        self.give(ClientEvent::Forget(file));
        self.link.flush();
    }

    /// Whether anything is under way.
    pub fn has_work(&self) -> bool {
        self.machine.has_work()
    }

    /// One round of everything. `true` if anything has happened.
    pub fn turn(&mut self) -> bool {
        self.turns += 1;
        let now = boot_time();
        let mut any = (self.link.is_expecting() || now >= self.look_at_meta) && self.turn_link();
        // The lease is looked at before drives have their turn.
        if boot_time() >= self.machine.due() {
            self.give(ClientEvent::Tick);
        }
        any |= self.turn_drives();
        self.link.flush();
        self.register();
        any
    }

    fn turn_link(&mut self) -> bool {
        self.look_at_meta = boot_time().saturating_add(LOOK_AT_META);
        let mut events = std::mem::take(&mut self.events);
        self.link.poll(&mut events);
        let any = !events.is_empty();
        events.drain(..).for_each(|event| self.give(event));
        self.events = events;
        any
    }

    /// The machine takes an event, and what it wants is carried out.
    fn give(&mut self, event: ClientEvent) {
        let mut next = vec![event];
        while let Some(event) = next.pop() {
            let mut effects = std::mem::take(&mut self.effects);
            self.machine.apply(boot_time(), event, &mut self.memory, &mut effects);
            for effect in effects.drain(..) {
                next.extend(self.carry_out(effect));
            }
            self.effects = effects;
        }
        // Who drives sleeps until something comes from a socket.
        if self.is_driven && self.tiers.values().any(|open| open.tier.has_finished()) {
            fds::signal(&*self.bell);
        }
    }

    /// What comes of an effect at once, if anything does.
    fn carry_out(&mut self, effect: ClientEffect) -> Option<ClientEvent> {
        match effect {
            ClientEffect::Connect(wish) => self.link.connect(wish),
            ClientEffect::Send(number, request) => {
                return (!self.link.put(number, &request)).then_some(ClientEvent::TooLong(number));
            }
            ClientEffect::OpenDrive(drive, info) => {
                return self.open_tier(drive, &info).err().map(|why| ClientEvent::NotOpened(drive, why));
            }
            ClientEffect::CloseDrive(drive) => self.close_tier(drive),
            ClientEffect::Submit(drive, command, memory, what) => self.submit(drive, command, memory, what),
            ClientEffect::Abort(drive, command) => self.abort(drive, command),
            ClientEffect::Finish(work, outcome) => self.finish(work, outcome),
        }
        None
    }

    fn finish(&mut self, work: WorkId, outcome: Outcome) {
        let memory = self.memory.callers.remove(&work.0);
        if self.abandoned.remove(&work) {
            return;
        }
        self.done.insert(work, (outcome, memory));
        if let Some(waiter) = self.waiters.get(&work) {
            waiter.unpark();
        }
    }

    /// When the next turn is due although nothing comes.
    pub fn due(&self) -> Nanos {
        let now = boot_time();
        let drives = match self.drives_due() {
            Nanos::NEVER => Nanos::NEVER,
            due => now.saturating_add(due.saturating_sub(drive_time())),
        };
        drives.min(self.machine.due())
    }

    /// Says to epoll what is waited for.
    fn register(&mut self) {
        let Self { link, tiers, registered, poll, .. } = self;
        let meta = link.socket().map(|(socket, number, sends)| (META, socket, number, sends));
        let drives = tiers.iter().filter_map(|(id, open)| {
            open.tier.socket().map(|(socket, sends)| (id.0, socket, open.tier.connection(), sends))
        });
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

    /// Something has come from these.
    pub fn woken(&mut self, keys: impl Iterator<Item = u64>) {
        for key in keys {
            match key {
                META | BELL => self.look_at_meta = Nanos(0),
                drive => drop(self.ready.insert(drive)),
            }
        }
    }

    /// The client ends: its session as well, if nothing is in flight.
    pub fn close(&mut self) {
        self.is_closed = true;
        fds::signal(&*self.bell);
        self.give(ClientEvent::Bye);
        self.link.flush();
    }
}

/// What the outcome of an operation is: its memory, and how many bytes.
pub(super) fn io_outcome((outcome, memory): Finished) -> (Option<CallerMemory>, Result<u32, ClientError>) {
    let result = match outcome {
        Outcome::Io(result) => result.map_err(ClientError::from),
        Outcome::Answer(_) | Outcome::Opened(_) => Err(super::unexpected()),
    };
    (memory, result)
}
