//! Services, clients, a network and a key-value store in virtual time, from a seed: requests are lost, late and doubled, services stand still or are killed, clocks
//! drift. Every request is repeated until it is answered.

use super::checker::Call;
use super::state;
use crate::kv::{FaultyKv, Kv, KvFaultCounts, KvFaults};
use crate::records::SessionRecord;
use crate::tree::machine::Waiter;
use crate::tree::mutant::Mutant;
use crate::tree::setup::begin_session;
use crate::tree::task::{CommitKind, Job};
use crate::{
    ChangeKey, EntryName, EntryPath, InodeId, InodeKind, InodePath, Location, NameAnswer, NameChange, NameQuery,
    NameReply, NameRequest, NewInode, PeerMessage, RequestToken, ServiceId, SessionId, SetAttributes, StoreError, Tree,
    TreeEffect, TreeEvent, TreeSettings, UnixNanos, make_store,
};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use weir_units::Nanos;
use weir_units::rng::Xoshiro256;

pub(super) const SERVICES: usize = 2;
pub(super) const CLIENTS: usize = 5;
const LEASE: Nanos = Nanos::from_millis(100);
/// A client asks again after that.
const TIMEOUT: Nanos = Nanos::from_millis(40);

/// How it begins what is wrong if requests are not answered in the end.
pub(super) const UNFINISHED: &str = "it does not come to an end";

/// What a world is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorldOptions {
    pub seed: u64,
    pub calls: usize,
    /// In a million, of each fault of the key-value store and of the network.
    pub faults: u32,
    pub mutant: Option<Mutant>,
}

/// How often each fault has happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub kv: KvFaultCounts,
    pub lost: u64,
    pub doubled: u64,
    pub kills: u64,
    pub pauses: u64,
    pub fences: u64,
    pub releases: u64,
    pub reaped: u64,
    pub answered_again: u64,
    pub calls: u64,
}

impl Totals {
    /// Both together.
    pub fn and(&self, other: &Totals) -> Totals {
        let (a, b) = (self.kv, other.kv);
        Totals {
            kv: KvFaultCounts {
                unknown_made: a.unknown_made + b.unknown_made,
                unknown_dropped: a.unknown_dropped + b.unknown_dropped,
                unknown_late: a.unknown_late + b.unknown_late,
                twice: a.twice + b.twice,
                unavailable: a.unavailable + b.unavailable,
                repeated: a.repeated + b.repeated,
            },
            lost: self.lost + other.lost,
            doubled: self.doubled + other.doubled,
            kills: self.kills + other.kills,
            pauses: self.pauses + other.pauses,
            fences: self.fences + other.fences,
            releases: self.releases + other.releases,
            reaped: self.reaped + other.reaped,
            answered_again: self.answered_again + other.answered_again,
            calls: self.calls + other.calls,
        }
    }
}

#[derive(Clone, Debug)]
enum Packet {
    Request(usize, RequestToken, NameRequest),
    Answer(RequestToken, NameAnswer),
    Peer(usize, ServiceId, PeerMessage),
}

struct Service {
    tree: Tree,
    /// Tells the process from the ones before: late answers to those are dropped.
    process: u32,
    is_paused: bool,
    /// Its clock: an offset, and how fast it goes, in thousandths.
    offset: u64,
    rate: u64,
}

struct Client {
    sequence: u64,
    current: Option<Current>,
}

struct Current {
    begin: u64,
    request: NameRequest,
    sent: Nanos,
    attempts: Vec<RequestToken>,
    /// Where it was sent last, and to be sent next.
    service: usize,
}

pub(super) struct World {
    options: WorldOptions,
    random: Xoshiro256,
    pub kv: FaultyKv,
    services: Vec<Service>,
    clients: Vec<Client>,
    network: Vec<Packet>,
    now: Nanos,
    moment: u64,
    next_token: u64,
    next_process: u32,
    started: usize,
    is_calm: bool,
    pub history: Vec<Call>,
    /// Containers and other inodes that clients know of, with where they were seen.
    known: Vec<(InodePath, InodeKind)>,
    /// The names of each version of each container.
    pages: BTreeMap<(InodeId, u64), Vec<(EntryName, InodeId)>>,
    pub totals: Totals,
}

type Verdict = Result<(), String>;

impl World {
    pub fn new(options: WorldOptions) -> Self {
        let mut kv = FaultyKv::new(options.seed, KvFaults::all(options.faults));
        kv.store_mut().commit(&make_store(1, UnixNanos(1)));
        for client in 0..CLIENTS {
            let record =
                SessionRecord { client: format!("c{client}"), lease: Nanos::NEVER, ..SessionRecord::default() };
            kv.store_mut().commit(&begin_session(SessionId(client as u64), &record));
        }
        let root = InodePath { inode: InodeId::ROOT, parent: InodeId::ROOT };
        let mut world = Self {
            options,
            random: Xoshiro256::new(options.seed ^ 0xabcd),
            kv,
            services: Vec::new(),
            clients: (0..CLIENTS).map(|_| Client { sequence: 0, current: None }).collect(),
            network: Vec::new(),
            now: Nanos(0),
            moment: 0,
            next_token: 0,
            next_process: 0,
            started: 0,
            is_calm: false,
            history: Vec::new(),
            known: vec![(root, InodeKind::Directory)],
            pages: BTreeMap::new(),
            totals: Totals::default(),
        };
        for service in 0..SERVICES {
            let started = world.start(service);
            world.services.push(started);
        }
        world
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    fn is(&mut self, parts: u32) -> bool {
        !self.is_calm && self.random.below(1_000_000) < u64::from(parts)
    }

    fn start(&mut self, service: usize) -> Service {
        let process = self.next_process;
        self.next_process += 1;
        let mut settings = TreeSettings::new(ServiceId(service as u64 + 1), u64::from(process) + 1000);
        settings.lease = LEASE;
        settings.margin = Nanos::from_millis(20);
        settings.retry = Nanos::from_millis(2);
        settings.patience = Nanos::from_millis(60);
        if self.options.seed % 5 == 2 {
            // Containers are forgotten all the time.
            settings.containers_max = 1;
        }
        let mut tree = Tree::new(settings);
        tree.mutation.mutant = self.options.mutant;
        // Two clocks differ by a tenth at the most, and so by half the margin in a lease.
        Service { tree, process, is_paused: false, offset: self.below(1 << 40), rate: 950 + self.below(101) }
    }

    /// Runs until all is answered, with the faults and then, for what is left, without.
    pub fn run(&mut self) -> Verdict {
        let mut steps = 0u64;
        while self.started < self.options.calls || self.clients.iter().any(|client| client.current.is_some()) {
            self.step()?;
            steps += 1;
            self.is_calm = self.started >= self.options.calls;
            if self.is_calm {
                self.calm();
            }
            if steps > 400 * self.options.calls as u64 + 100_000 {
                return Err(format!("{UNFINISHED}: {}", self.stuck()));
            }
        }
        self.settle()?;
        self.totals.kv = self.kv.counts();
        self.totals.calls = self.history.len() as u64;
        state::verify(self.kv.store())
    }

    /// What is under way.
    fn stuck(&self) -> String {
        let asked =
            self.clients.iter().filter_map(|client| client.current.as_ref()).map(|c| format!("{:?}", c.request));
        let tasks =
            self.services.iter().flat_map(|service| {
                let is_serving = service.tree.lease.incarnation();
                service.tree.tasks.values().map(move |t| {
                    format!("{is_serving:?} {:?} {:?} {:?} {:?}", t.job, t.containers, t.stage, t.in_flight)
                })
            });
        asked.chain(tasks).collect::<Vec<_>>().join("\n")
    }

    fn calm(&mut self) {
        self.is_calm = true;
        self.kv.set_faults(KvFaults::default());
        self.services.iter_mut().for_each(|service| service.is_paused = false);
    }

    /// Lets everything come to rest.
    fn settle(&mut self) -> Verdict {
        self.calm();
        for _ in 0..20_000 {
            self.step()?;
            let is_idle = self.services.iter().all(|service| service.tree.tasks.is_empty());
            if is_idle && self.network.is_empty() && self.kv.pending() == 0 {
                return Ok(());
            }
        }
        Err("it does not come to rest".into())
    }

    fn step(&mut self) -> Verdict {
        // Moments are told apart also where the clock stands still.
        self.moment += 1;
        self.now = self.now.saturating_add(Nanos(self.random.below(600_000)));
        match self.below(16) {
            0..7 => {
                if let Some((process, token, answer)) = self.kv.advance() {
                    if let Some(at) = self.services.iter().position(|service| service.process == process) {
                        match self.services[at].is_paused {
                            false => self.deliver(at, TreeEvent::Kv(token, answer))?,
                            true => self.kv.deliver_again(process, token, answer),
                        }
                    }
                }
            }
            7..12 => self.deliver_packet()?,
            12..14 => self.client()?,
            14 => {
                let at = self.below(SERVICES as u64) as usize;
                if !self.services[at].is_paused {
                    self.deliver(at, TreeEvent::Tick)?;
                }
            }
            _ => self.trouble(),
        }
        Ok(())
    }

    /// A service stands still, goes on, or is killed.
    fn trouble(&mut self) {
        let at = self.below(SERVICES as u64) as usize;
        let is_renewing = self.services[at].tree.pending.values().any(|waiter| *waiter == Waiter::Lease);
        match self.below(24) {
            // Some stand still just when they renew, and for long.
            5..14 if self.sleeps() && is_renewing && !self.is_calm && !self.services.iter().any(|s| s.is_paused) => {
                self.totals.pauses += 1;
                self.services[at].is_paused = true;
            }
            2..4 if self.sleeps() => {}
            0 if !self.is_calm => {
                self.totals.pauses += u64::from(!self.services[at].is_paused);
                self.services[at].is_paused = true;
            }
            1..4 => self.services[at].is_paused = false,
            4 if !self.is_calm && self.below(4) == 0 => {
                self.totals.kills += 1;
                self.services[at] = self.start(at);
            }
            _ => {}
        }
    }

    fn deliver(&mut self, at: usize, event: TreeEvent) -> Verdict {
        let service = &mut self.services[at];
        let now = Nanos(service.offset + self.now.get() / 1000 * service.rate);
        let mut effects = Vec::new();
        service.tree.apply(now, event, &mut effects);
        service.tree.check().map_err(|what| format!("check: {what}"))?;
        let process = service.process;
        let is_fence = |kind: &CommitKind| matches!(kind, CommitKind::Fence);
        let kinds = service.tree.tasks.values().filter_map(|task| task.in_flight.as_ref()).map(|f| &f.kind);
        let fences = kinds.filter(|kind| is_fence(kind)).count() as u64;
        self.totals.fences += fences;
        self.totals.reaped +=
            service.tree.tasks.values().filter(|task| matches!(task.job, Job::Reap(_))).count() as u64;
        for effect in effects {
            match effect {
                TreeEffect::Kv(token, request) => self.kv.send(process, token, request),
                TreeEffect::Answer(token, answer) => self.post(Packet::Answer(token, answer)),
                TreeEffect::Orphaned(_) => {}
                TreeEffect::Space(..) => panic!("no file has blocks here"),
                TreeEffect::Peer(to, message) => {
                    self.totals.releases += u64::from(matches!(message, PeerMessage::Released(_)));
                    self.post(Packet::Peer(to.get() as usize - 1, ServiceId(at as u64 + 1), message));
                }
            }
        }
        Ok(())
    }

    fn post(&mut self, packet: Packet) {
        if self.is(self.options.faults) {
            self.totals.lost += 1;
            return;
        }
        if self.is(self.options.faults) {
            self.totals.doubled += 1;
            self.network.push(packet.clone());
        }
        self.network.push(packet);
    }

    fn deliver_packet(&mut self) -> Verdict {
        if self.network.is_empty() {
            return Ok(());
        }
        let at = self.below(self.network.len() as u64) as usize;
        match self.network.swap_remove(at) {
            Packet::Request(to, token, request) if self.services[to].is_paused => {
                self.network.push(Packet::Request(to, token, request));
            }
            Packet::Peer(to, from, message) if self.services[to].is_paused => {
                self.network.push(Packet::Peer(to, from, message));
            }
            Packet::Request(to, token, request) => {
                let wall = UnixNanos(self.now.get());
                self.deliver(to, TreeEvent::Request(token, request, wall))?;
            }
            Packet::Peer(to, from, message) => self.deliver(to, TreeEvent::Peer(from, message))?,
            Packet::Answer(token, answer) => self.answered(token, answer)?,
        }
        Ok(())
    }

    /// A client asks something, or asks again.
    fn client(&mut self) -> Verdict {
        let at = self.below(CLIENTS as u64) as usize;
        if let Some(current) = &self.clients[at].current {
            if self.now >= current.sent.saturating_add(TIMEOUT) {
                let other = self.below(SERVICES as u64) as usize;
                self.send(at, other);
            }
        } else if self.started < self.options.calls {
            self.started += 1;
            let request = self.invent(at);
            self.begin(at, request);
        }
        Ok(())
    }

    fn begin(&mut self, client: usize, request: NameRequest) {
        let service = self.below(SERVICES as u64) as usize;
        self.moment += 1;
        let begin = self.moment;
        self.clients[client].current = Some(Current { begin, request, sent: self.now, attempts: Vec::new(), service });
        self.send(client, service);
    }

    fn send(&mut self, client: usize, service: usize) {
        let token = RequestToken(self.next_token);
        self.next_token += 1;
        let now = self.now;
        let Some(current) = &mut self.clients[client].current else { return };
        self.totals.answered_again += u64::from(!current.attempts.is_empty());
        current.attempts.push(token);
        (current.service, current.sent) = (service, now);
        let request = current.request.clone();
        self.post(Packet::Request(service, token, request));
    }

    fn answered(&mut self, token: RequestToken, answer: NameAnswer) -> Verdict {
        let is_of = |client: &Client| client.current.as_ref().is_some_and(|current| current.attempts.contains(&token));
        let Some(at) = self.clients.iter().position(is_of) else { return Ok(()) };
        match answer {
            Err(StoreError::Redirect(to)) => self.send(at, to.get() as usize - 1),
            // Asked again after a while, of any service.
            Err(StoreError::Unavailable) => {}
            Err(StoreError::Damaged) => return Err("a service says that the store is damaged".into()),
            answer => {
                let Some(current) = self.clients[at].current.take() else { return Ok(()) };
                self.learn(&current.request, &answer)?;
                self.moment += 1;
                let (begin, end) = (current.begin, self.moment);
                self.history.push(Call { client: at, begin, end, request: current.request, answer });
            }
        }
        Ok(())
    }

    /// What clients know from an answer on.
    fn learn(&mut self, request: &NameRequest, answer: &NameAnswer) -> Verdict {
        let seen = match (request, answer) {
            (NameRequest::Query(NameQuery::Lookup(entry)), Ok(NameReply::Found(record, _))) => {
                Some((record.inode, record.kind, entry.container))
            }
            (NameRequest::Change(_, NameChange::Create(entry, new)), Ok(NameReply::Changed(changed))) => {
                Some((changed.inode, new.kind, entry.container))
            }
            (NameRequest::Query(NameQuery::List { container, .. }), Ok(NameReply::Page { version, entries, .. })) => {
                let names: Vec<_> = entries.iter().map(|entry| (entry.name.clone(), entry.record.inode)).collect();
                let before = self.pages.entry((*container, *version)).or_insert_with(|| names.clone());
                if *before != names {
                    return Err(format!("two lists of {container} of version {version}: {before:?}, {names:?}"));
                }
                None
            }
            _ => None,
        };
        if let Some((inode, kind, container)) = seen {
            let parent = if kind.is_container() { inode } else { container };
            self.known.retain(|(known, _)| known.inode != inode);
            self.known.push((InodePath { inode, parent }, kind));
            if self.known.len() > 12 {
                self.known.remove(1);
            }
        }
        Ok(())
    }

    fn some_container(&mut self) -> InodeId {
        let containers: Vec<InodeId> =
            self.known.iter().filter(|(_, kind)| kind.is_container()).map(|(at, _)| at.inode).collect();
        if (self.below(3) == 0 && !self.moves()) || self.sleeps() {
            InodeId::ROOT
        } else {
            containers[self.below(containers.len() as u64) as usize]
        }
    }

    fn some_entry(&mut self) -> EntryPath {
        let container = self.some_container();
        let names = if self.moves() { 2 } else { 4 };
        let name = [b"a", b"b", b"c", b"d"][self.below(names) as usize];
        EntryPath { container, name: EntryName::new(name).expect("a name") }
    }

    fn some_inode(&mut self) -> InodePath {
        let at = self.below(self.known.len() as u64) as usize;
        self.known[at].0
    }

    fn invent(&mut self, client: usize) -> NameRequest {
        let change = if self.moves() { Some(self.invent_move()) } else { self.invent_change() };
        let Some(change) = change else { return NameRequest::Query(self.invent_query()) };
        self.clients[client].sequence += 1;
        let sequence = self.clients[client].sequence;
        NameRequest::Change(ChangeKey { session: SessionId(client as u64), slot: 0, sequence }, change)
    }

    /// In every fourth world directories move all the time, and little else happens.
    fn moves(&self) -> bool {
        self.options.seed % 4 == 3
    }

    /// In every fourth world services stand still at bad moments, and all that happens is seen in the root.
    fn sleeps(&self) -> bool {
        self.options.seed % 4 == 1
    }

    fn invent_move(&mut self) -> NameChange {
        match self.below(10) {
            0..4 => NameChange::Create(self.some_entry(), new_inode(InodeKind::Directory)),
            4..9 => {
                let (from, to) = (self.some_entry(), self.some_entry());
                NameChange::Rename { from, to, replace: false }
            }
            _ => NameChange::Delete { entry: self.some_entry(), recursive: false },
        }
    }

    fn invent_query(&mut self) -> NameQuery {
        match self.below(9) {
            0..5 => NameQuery::Lookup(self.some_entry()),
            5..7 => NameQuery::Stat(self.some_inode()),
            _ => NameQuery::List { container: self.some_container(), after: None, most: 100 },
        }
    }

    fn invent_change(&mut self) -> Option<NameChange> {
        if self.below(24) < 9 {
            return None;
        }
        Some(match self.below(18) {
            0..6 => NameChange::Create(self.some_entry(), new_inode(self.some_kind())),
            6..11 => {
                let (from, to) = (self.some_entry(), self.some_entry());
                NameChange::Rename { from, to, replace: self.below(3) > 0 }
            }
            11..14 => {
                let entry = self.some_entry();
                NameChange::Delete { entry, recursive: self.below(4) == 0 }
            }
            14 => {
                let mode = Some(self.below(0o1000) as u32);
                NameChange::SetAttributes(self.some_inode(), SetAttributes { mode, ..SetAttributes::default() })
            }
            15 => NameChange::PutValue(self.some_entry(), vec![self.below(200) as u8]),
            _ => NameChange::WriteInline(self.some_inode(), vec![self.below(200) as u8; 3]),
        })
    }

    fn some_kind(&mut self) -> InodeKind {
        match self.below(10) {
            0..4 => InodeKind::File,
            4..8 => InodeKind::Directory,
            8 => InodeKind::Table,
            _ => InodeKind::Symlink,
        }
    }
}

pub(super) fn new_inode(kind: InodeKind) -> NewInode {
    NewInode {
        kind,
        mode: 0o640,
        uid: 1,
        gid: 2,
        target: if kind == InodeKind::Symlink { b"../x".to_vec() } else { Vec::new() },
        classes: Vec::new(),
        location: Location::default(),
        copies: 1,
        block: 1 << 20,
    }
}
