//! The thread of a service.

use super::connection::Connection;
use super::options::{ServiceError, ServiceOptions};
use super::store::{Asked, MetaStore};
use super::tiers::TierThreads;
use super::{CONNECTIONS_MAX, GREETING, READ_MAX, SERVICE, SERVICE_LEASE, STALL, UNSENT_PAUSE, ring};
use crate::tier::TierOptions;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use weir_config::{StoreAddress, StoreMeta};
use weir_store::kv::{Commit, KvAnswer, KvToken};
use weir_store::members::LeaseTiming;
use weir_store::protocol::{Answer, Request, RequestNumber};
use weir_store::service::{ConnectionId, Service, ServiceEffect, ServiceEvent, ServiceSettings};
use weir_store::{ClassName, StoreError, Term, UnixNanos};
use weir_units::Nanos;

/// Between two looks at leases and quarantine.
const TICK: Duration = Duration::from_millis(200);

/// How long a service that ends tries to give up its lease.
const GIVE_UP: Duration = Duration::from_secs(2);

/// Rounds of commits between two looks at the clients.
const ROUNDS: usize = 4;

/// TCP keep-alives of a client's connection: when it has been silent for so long, how often, and how many before it counts as gone. A client's session
/// is over long before; an operator's connection has none.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_PROBES: u32 = 6;

/// How wrong clocks may be, in millionths.
const DRIFT_PPM: u32 = 1000;

/// A keep-alive timeout of a client's association, and what a target takes to end it.
const FENCE_WAIT: Nanos = Nanos::from_secs(5);

/// Bytes of a file that may lie in its inode, where the metadata are on this machine, and where each byte goes to several.
const INLINE_MAX: u32 = 2 << 10;
const INLINE_MAX_SHARED: u32 = 256;

/// How long metadata may take to be read at the start; where another process may have them, its lease has to end first.
const BEGIN: Duration = Duration::from_secs(10);
const BEGIN_SHARED: Duration = Duration::from_secs(20);

/// A start that takes longer says what it waits for.
const SAID_AFTER: Duration = Duration::from_secs(1);

/// What the bell has as its number, and the first listener; connections follow.
const BELL: u64 = 0;
const LISTENERS: u64 = 1;
const CONNECTIONS: u64 = 1 << 16;

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, std::path::PathBuf),
}

/// See the [module](self).
pub(super) struct Driver {
    options: ServiceOptions,
    service: Service,
    store: MetaStore,
    tiers: TierThreads,
    bell: Arc<OwnedFd>,
    stops: Arc<AtomicBool>,
    poll: OwnedFd,
    listeners: Vec<Listener>,
    connections: BTreeMap<u64, Connection>,
    next: u64,
    commits: Vec<(KvToken, Commit)>,
    /// Connections with something to send.
    touched: Vec<u64>,
    /// Connections whose messages can be taken again.
    held: Vec<u64>,
    /// Listeners that have no room for a connection, until the next tick.
    paused: Vec<usize>,
    /// The life in which this process serves, as it was said last.
    said_life: Option<Term>,
    refused: Option<String>,
}

impl Driver {
    pub fn open(options: ServiceOptions, bell: Arc<OwnedFd>, stops: Arc<AtomicBool>) -> Result<Self, ServiceError> {
        let about = options.meta.to_string();
        let fail = |e: Errno| ServiceError::new("metadata service", e);
        let classes = options.classes.iter().map(|name| ClassName::new(name)).collect::<Result<Vec<_>, _>>();
        let classes = classes.map_err(|e: StoreError| ServiceError::new("classes", e))?;
        let lease = Nanos(u64::try_from(options.lease.as_nanos()).unwrap_or(u64::MAX));
        let timing = LeaseTiming::new(lease, DRIFT_PPM, Nanos(lease.get() / 20));
        let timing = timing.ok_or_else(|| ServiceError::new("lease", "it is too short, or too long"))?;
        let with = Arc::clone(&bell);
        let store = MetaStore::open(&options.meta, options.durability, move || ring(&with))?;
        let may_have_lost = store.may_have_lost();
        if may_have_lost {
            tracing::warn!(
                "{about}: it may lack what was told last, as after a power cut; blocks are given out when the clients of before have stopped"
            );
        }
        let settings = ServiceSettings {
            service: SERVICE,
            process: RandomState::new().hash_one(std::process::id()),
            // The lock on a file is this process's; what is in memory was nobody's before.
            is_predecessor_dead: !store.is_shared(),
            service_lease: SERVICE_LEASE,
            may_have_lost,
            timing,
            drift_ppm: DRIFT_PPM,
            repair_after: options.repair_after.unwrap_or(Nanos::NEVER),
            tiering: options.tiering.clone(),
            fence_wait: FENCE_WAIT,
            classes,
            block: options.block,
            inline_max: if store.is_shared() { INLINE_MAX_SHARED } else { INLINE_MAX },
            durability: options.durability.to_string(),
            metadata: about,
        };
        let tiers = TierOptions { allow_files: options.allow_files, ..TierOptions::default() };
        let tiers = TierThreads::start(&tiers, &bell);
        let tiers = tiers.map_err(|e| ServiceError::new("metadata service", e))?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(fail)?;
        let readable = epoll::EventFlags::IN;
        epoll::add(&poll, &*bell, epoll::EventData::new_u64(BELL), readable).map_err(fail)?;
        Ok(Self {
            service: Service::new(settings),
            options,
            store,
            tiers,
            bell,
            stops,
            poll,
            listeners: Vec::new(),
            connections: BTreeMap::new(),
            next: CONNECTIONS,
            commits: Vec::new(),
            touched: Vec::new(),
            held: Vec::new(),
            paused: Vec::new(),
            said_life: None,
            refused: None,
        })
    }

    /// Reads the metadata, or makes them; one that stands by does that when it takes over.
    pub fn begin(&mut self) -> Result<(), ServiceError> {
        self.give(ServiceEvent::Start);
        self.settle();
        let begun = Instant::now();
        let mut is_said = !self.store.is_shared();
        while !self.service.is_ready() && !self.service.awaits_another() && self.refused.is_none() {
            let may_have_another = self.store.is_shared() && self.store.trouble().is_none();
            if begun.elapsed() >= if may_have_another { BEGIN_SHARED } else { BEGIN } {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            if !is_said && begun.elapsed() > SAID_AFTER {
                is_said = true;
                tracing::info!(
                    "{}: waits for the lease of the metadata service before, or for etcd",
                    self.options.meta
                );
            }
            self.take_answers();
            self.give(ServiceEvent::Tick);
            self.settle();
        }
        let about = match &self.options.meta {
            StoreMeta::Redb(path) => path.display().to_string(),
            StoreMeta::Memory | StoreMeta::Etcd(_) => self.options.meta.to_string(),
        };
        let begun = match self.refused.take() {
            Some(why) => Err(ServiceError::new(about, why)),
            None if self.service.is_ready() || self.service.awaits_another() => Ok(()),
            None => {
                let trouble = self.store.trouble();
                Err(ServiceError::new(about, trouble.unwrap_or_else(|| "its metadata do not answer".into())))
            }
        };
        if begun.is_ok() && self.service.stands_by() {
            match self.service.served_at() {
                [] => {
                    tracing::info!("metadata service: it stands by; a process without an address has the store's lease")
                }
                others => {
                    tracing::info!("metadata service: it stands by; the store is served at {}", others.join(", "))
                }
            }
        }
        if begun.is_err() {
            // Another process need not wait for the end of the lease.
            self.give_up();
        }
        begun
    }

    /// Listens; the addresses as they are.
    pub fn listen(&mut self) -> Result<Vec<StoreAddress>, ServiceError> {
        let mut addresses = Vec::new();
        for address in self.options.listen.clone() {
            let fail = |e: std::io::Error| ServiceError::new(format!("cannot listen on {address}"), e);
            let (listener, bound) = match &address {
                StoreAddress::Tcp(at) => {
                    let listener = TcpListener::bind(at).map_err(fail)?;
                    listener.set_nonblocking(true).map_err(fail)?;
                    let bound = StoreAddress::Tcp(listener.local_addr().map_err(fail)?);
                    (Listener::Tcp(listener), bound)
                }
                StoreAddress::Unix(path) => {
                    remove_stale(path);
                    let listener = UnixListener::bind(path).map_err(fail)?;
                    listener.set_nonblocking(true).map_err(fail)?;
                    (Listener::Unix(listener, path.clone()), address.clone())
                }
            };
            let data = epoll::EventData::new_u64(LISTENERS + self.listeners.len() as u64);
            let fd = match &listener {
                Listener::Tcp(listener) => listener.as_fd(),
                Listener::Unix(listener, _) => listener.as_fd(),
            };
            epoll::add(&self.poll, fd, data, epoll::EventFlags::IN).map_err(|e| fail(e.into()))?;
            self.listeners.push(listener);
            addresses.push(bound);
        }
        self.give(ServiceEvent::Listens(addresses.iter().map(ToString::to_string).collect()));
        Ok(addresses)
    }

    /// Until it is told to stop.
    pub fn run(mut self) {
        let mut events = Vec::with_capacity(256);
        let mut ticked = Instant::now();
        while !self.stops.load(Ordering::Acquire) {
            let has_work = !self.commits.is_empty() || !self.held.is_empty();
            let left = if has_work { Duration::ZERO } else { TICK.saturating_sub(ticked.elapsed()) };
            let timeout = Timespec { tv_sec: 0, tv_nsec: left.as_nanos() as i64 };
            events.clear();
            match epoll::wait(&self.poll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return tracing::error!("metadata service: it cannot wait for its clients: {e}"),
            }
            for event in &events {
                let (number, flags) = (event.data.u64(), event.flags);
                match number {
                    BELL => self.rung(),
                    CONNECTIONS.. => self.ready(number, flags),
                    _ => self.accept((number - LISTENERS) as usize),
                }
            }
            for id in std::mem::take(&mut self.held) {
                if !self.take_messages(id) {
                    self.close(id);
                }
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.tick();
            }
            self.settle();
            self.send();
        }
        self.give_up();
        for listener in &self.listeners {
            if let Listener::Unix(_, path) = listener {
                // Somebody may have removed it.
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Gives up the lease by which this process serves, if another one may, so that it need not wait.
    fn give_up(&mut self) {
        self.give(ServiceEvent::Stop);
        let begun = Instant::now();
        loop {
            self.settle();
            if self.service.is_stopped() || begun.elapsed() >= GIVE_UP {
                return self.send();
            }
            std::thread::sleep(Duration::from_millis(5));
            self.take_answers();
            self.give(ServiceEvent::Tick);
        }
    }

    /// Whether another process serves the store.
    pub fn stands_by(&self) -> bool {
        self.service.stands_by()
    }

    /// Says when this process begins to serve, or stops, where several can.
    fn say_role(&mut self) {
        let life = self.service.life().filter(|_| self.service.is_ready());
        if !self.store.is_shared() || life == self.said_life {
            return;
        }
        match (life, self.said_life) {
            (Some(term), _) => tracing::info!("metadata service: it serves {}, term {term}", self.options.meta),
            (None, Some(term)) => {
                tracing::warn!(
                    "metadata service: its lease of term {term} is over; it stands by, and clients are referred"
                );
            }
            (None, None) => {}
        }
        self.said_life = life;
    }

    /// A process that cannot serve the store lets another one do so.
    fn turn_back(&mut self) {
        let Some(why) = self.refused.take() else { return };
        tracing::error!("{}: the metadata service cannot take over: {why}", self.options.meta);
        self.give(ServiceEvent::Stop);
    }

    fn give(&mut self, event: ServiceEvent) {
        let mut effects = Vec::new();
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            self.service.apply(boot_time(), calendar(), event, &mut effects);
            self.tiers.set_lease(self.service.works_until());
            for effect in effects.drain(..) {
                match effect {
                    ServiceEffect::Kv(token, request) => match self.store.ask(token, request) {
                        Asked::Answered(answer) => events.push(ServiceEvent::Kv(token, answer)),
                        Asked::Waits(commit) => self.commits.push((token, commit)),
                        Asked::Sent => {}
                    },
                    ServiceEffect::Sync => {
                        let bell = Arc::clone(&self.bell);
                        self.store.sync(move || ring(&bell));
                        events.push(ServiceEvent::Durable(self.store.durable()));
                    }
                    ServiceEffect::Send(ConnectionId(to), number, answer) => self.answer(to, number, &answer),
                    ServiceEffect::Close(ConnectionId(id)) => {
                        if let Some(connection) = self.connections.get_mut(&id) {
                            connection.closes = true;
                            self.touched.push(id);
                        }
                    }
                    ServiceEffect::Tier(token, request) => self.tiers.ask(token, request),
                    ServiceEffect::Refuse(why) => self.refused = Some(why),
                }
            }
        }
    }

    /// Makes the commits that wait, and some of those that come of them: then clients are looked at again, so that long work stops nobody.
    fn settle(&mut self) {
        for _ in 0..ROUNDS {
            if self.commits.is_empty() {
                return;
            }
            let (tokens, commits): (Vec<KvToken>, Vec<Commit>) = self.commits.drain(..).unzip();
            let outcomes = self.store.commit_all(&commits);
            for (token, outcome) in tokens.into_iter().zip(outcomes) {
                self.give(ServiceEvent::Kv(token, KvAnswer::Outcome(outcome)));
            }
        }
    }

    fn answer(&mut self, to: u64, number: RequestNumber, answer: &Answer) {
        let Some(connection) = self.connections.get_mut(&to) else { return };
        let frame = answer.encode(number).or_else(|| {
            // It would be longer than a message may be.
            let detail = "the answer is too long for a message".into();
            Answer::Failed { error: StoreError::Malformed, detail }.encode(number)
        });
        frame.iter().for_each(|frame| connection.push(frame));
        self.touched.push(to);
    }

    fn rung(&mut self) {
        let mut count = [0; 8];
        // It was rung once or several times; what for is looked at in any case.
        let _ = rustix::io::read(&*self.bell, &mut count);
        self.give(ServiceEvent::Durable(self.store.durable()));
        self.take_answers();
        for (token, answer) in self.tiers.answered() {
            self.give(ServiceEvent::Tier(token, answer));
        }
    }

    /// What has become of requests to a key-value store that does not answer at once.
    fn take_answers(&mut self) {
        for (token, answer) in self.store.answered() {
            self.give(ServiceEvent::Kv(token, answer));
        }
    }

    fn tick(&mut self) {
        for listener in std::mem::take(&mut self.paused) {
            self.listen_for(listener, epoll::EventFlags::IN);
        }
        if self.store.may_have_lost() && self.service.is_ready() && self.service.gives_out() {
            self.store.loss_is_over();
        }
        self.give(ServiceEvent::Durable(self.store.durable()));
        self.give(ServiceEvent::Trouble(self.store.trouble()));
        self.give(ServiceEvent::Tick);
        self.turn_back();
        self.say_role();
        let is_lost = |connection: &Connection| {
            connection.stalled() > STALL || !connection.has_spoken && connection.since.elapsed() > GREETING
        };
        let lost: Vec<u64> =
            self.connections.iter().filter(|(_, connection)| is_lost(connection)).map(|(id, _)| *id).collect();
        lost.into_iter().for_each(|id| self.close(id));
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..64 {
            let accepted = match self.listeners.get(listener) {
                None => return,
                Some(Listener::Tcp(listener)) => listener.accept().map(|(stream, _)| {
                    // A small message goes at once; where that cannot be set it goes a little later.
                    let _ = stream.set_nodelay(true);
                    keep_alive(&stream);
                    OwnedFd::from(stream)
                }),
                Some(Listener::Unix(listener, _)) => listener.accept().map(|(stream, _)| OwnedFd::from(stream)),
            };
            let socket = match accepted {
                Ok(socket) => socket,
                Err(e) => return self.not_accepted(listener, &e),
            };
            if self.connections.len() >= CONNECTIONS_MAX {
                continue;
            }
            let mut token = [0; 16];
            if rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty()) != Ok(token.len()) {
                // Without random bytes nobody is let in: what can be guessed protects no session.
                continue;
            }
            let (id, data) = (self.next, epoll::EventData::new_u64(self.next));
            self.next += 1;
            if epoll::add(&self.poll, &socket, data, epoll::EventFlags::IN).is_ok() {
                self.connections.insert(id, Connection::new(socket));
                self.give(ServiceEvent::Connected(ConnectionId(id), token));
            }
        }
    }

    /// Nobody waits; or there is no descriptor or memory for who does: then it is tried again with the next tick, and not without end.
    fn not_accepted(&mut self, listener: usize, why: &std::io::Error) {
        let passes = [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::ConnectionAborted];
        if !passes.contains(&why.kind()) && !self.paused.contains(&listener) {
            tracing::warn!("metadata service: a client cannot be let in: {why}");
            self.paused.push(listener);
            self.listen_for(listener, epoll::EventFlags::empty());
        }
    }

    fn listen_for(&mut self, listener: usize, flags: epoll::EventFlags) {
        let fd = match self.listeners.get(listener) {
            None => return,
            Some(Listener::Tcp(listener)) => listener.as_fd(),
            Some(Listener::Unix(listener, _)) => listener.as_fd(),
        };
        let data = epoll::EventData::new_u64(LISTENERS + listener as u64);
        if let Err(e) = epoll::modify(&self.poll, fd, data, flags) {
            tracing::warn!("metadata service: a listener cannot be changed: {e}");
        }
    }

    fn ready(&mut self, id: u64, flags: epoll::EventFlags) {
        let readable = epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.contains(epoll::EventFlags::OUT) {
            self.touched.push(id);
        }
        if flags.intersects(readable) && !self.receive(id) {
            self.close(id);
        }
    }

    /// Takes what a client has sent; `false` if the connection is over.
    fn receive(&mut self, id: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return true };
        if connection.closes {
            return true;
        }
        let mut bytes = [0; READ_MAX];
        match recv(&connection.socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return false,
            Ok((_, count)) => connection.frames.push(&bytes[..count]),
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Err(_) => return false,
        }
        self.take_messages(id)
    }

    /// Hands on what has come in whole, one by one, as long as the client takes its answers; `false` if the connection is over.
    fn take_messages(&mut self, id: u64) -> bool {
        loop {
            let Some(connection) = self.connections.get_mut(&id) else { return true };
            if connection.closes {
                return true;
            }
            if connection.unsent() >= UNSENT_PAUSE {
                connection.is_held = true;
                return true;
            }
            match connection.frames.next().and_then(|frame| frame.map(Request::decode).transpose()) {
                Ok(Some((number, request))) => {
                    connection.has_spoken = true;
                    self.give(ServiceEvent::Message(ConnectionId(id), number, request));
                }
                Ok(None) => return true,
                Err(why) => {
                    tracing::debug!("a client of the metadata service is shown out: {why}");
                    return false;
                }
            }
        }
    }

    /// Sends what is there to be sent.
    fn send(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for id in touched.drain(..) {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            let is_over = connection.flush().is_err() || connection.closes && connection.unsent() == 0;
            if is_over {
                self.close(id);
                continue;
            }
            if connection.is_held && connection.unsent() < UNSENT_PAUSE {
                connection.is_held = false;
                self.held.push(id);
            }
            let (room, bytes) = (connection.unsent() > 0, connection.unsent() < UNSENT_PAUSE);
            if (room, bytes) != (connection.awaits_room, connection.awaits_bytes) {
                (connection.awaits_room, connection.awaits_bytes) = (room, bytes);
                let mut flags = epoll::EventFlags::empty();
                flags.set(epoll::EventFlags::OUT, room);
                flags.set(epoll::EventFlags::IN, bytes);
                let data = epoll::EventData::new_u64(id);
                if epoll::modify(&self.poll, &connection.socket, data, flags).is_err() {
                    self.close(id);
                }
            }
        }
        self.touched = touched;
    }

    fn close(&mut self, id: u64) {
        if self.connections.remove(&id).is_some() {
            self.give(ServiceEvent::Disconnected(ConnectionId(id)));
        }
    }
}

/// A machine that is gone without a word is noticed, and its connection closed. Where that cannot be set its connection stays until something is sent.
fn keep_alive(stream: &TcpStream) {
    let set = || {
        sockopt::set_tcp_keepidle(stream, KEEP_ALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(stream, KEEP_ALIVE_PROBES)?;
        sockopt::set_socket_keepalive(stream, true)
    };
    if let Err(e) = set() {
        tracing::debug!("a client's connection gets no TCP keep-alives: {e}");
    }
}

/// A socket that nobody listens on any more is in the way of a new one.
fn remove_stale(path: &Path) {
    let refused = UnixStream::connect(path).err().map(|e| e.kind());
    if refused == Some(std::io::ErrorKind::ConnectionRefused) {
        // Where it cannot be removed, listening says so.
        let _ = std::fs::remove_file(path);
    }
}

/// CLOCK_BOOTTIME: it goes on while the machine sleeps.
fn boot_time() -> Nanos {
    let time = clock_gettime(ClockId::Boottime);
    Nanos((time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
}

fn calendar() -> UnixNanos {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    UnixNanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
