//! Virtual time: messages, the key-value store, the processes' cores, the drives. What the processes decide is [`Service`]'s own.

use super::client::{Client, Wants};
use super::drives::Drives;
use super::scale::{
    ANSWER, BLOCK, COMMIT, COMMITS, DRIFT_PPM, FENCE_WAIT, GIVE_UP, INLINE_MAX, MESSAGE, READ, READS, REPAIR_AFTER,
    SERVICE_LEASE, SESSION_LEASE, StoreSize, TICK, TICK_EVERY, TICK_OF_NAMESPACE, WAY, WAY_MORE,
};
use super::seen::{Observed, Phase, add};
use std::collections::BTreeMap;
use weir_store::kv::{KvRequest, KvToken, MemoryKv};
use weir_store::members::LeaseTiming;
use weir_store::protocol::{Answer, Request, RequestNumber};
use weir_store::service::{ConnectionId, Service, ServiceEffect, ServiceEvent, ServiceSettings};
use weir_store::{ClassName, Extent, Location, NamespaceId, Revision, ServiceId, UnixNanos};
use weir_units::Nanos;
use weir_units::rng::Xoshiro256;

/// The number of the operator among the clients.
const OPERATOR: usize = usize::MAX;

/// What happens at a time.
#[derive(Debug)]
enum Event {
    /// Something has come to a process, and waits for its core.
    Arrives(usize, ServiceEvent),
    /// The core has done it.
    Applies(usize, ServiceEvent),
    Tick(usize),
    /// A request has come to the key-value store.
    Asked(usize, KvToken, KvRequest),
    ToClient(usize, ConnectionId, RequestNumber, Box<Answer>),
    Closed(usize, ConnectionId),
    Timer(usize, u64),
    Renew(usize),
    Transferred(usize, Vec<bool>),
}

/// A process of the metadata service.
#[derive(Debug)]
pub struct Process {
    pub service: Service,
    pub is_up: bool,
    /// Until then its core has something to do.
    free: Nanos,
}

/// See [the module](self).
pub struct World {
    pub scale: StoreSize,
    pub now: Nanos,
    pub kv: MemoryKv,
    /// When the key-value store can take the next commit and read.
    takes: (Nanos, Nanos),
    pub processes: Vec<Process>,
    pub clients: Vec<Client>,
    pub drives: Drives,
    /// Machines by the number of their namespace.
    pub nodes: BTreeMap<NamespaceId, usize>,
    /// Connections: the client, and the process.
    connections: BTreeMap<ConnectionId, (usize, usize)>,
    /// The connection of each client.
    of_client: BTreeMap<usize, ConnectionId>,
    last_connection: u64,
    events: BTreeMap<(Nanos, u64), Event>,
    last_event: u64,
    random: Xoshiro256,
    pub seen: Observed,
    pub phase: Phase,
    /// Answers to the operator.
    pub told: BTreeMap<RequestNumber, Answer>,
    operator: u64,
    /// The first block that was granted after this time.
    pub granted_at: Option<Nanos>,
    pub events_done: u64,
}

fn settings(process: u64) -> ServiceSettings {
    ServiceSettings {
        service: ServiceId(1),
        process,
        is_predecessor_dead: false,
        service_lease: SERVICE_LEASE,
        may_have_lost: false,
        timing: LeaseTiming::new(SESSION_LEASE, DRIFT_PPM, Nanos(SESSION_LEASE.get() / 20)).expect("a lease"),
        drift_ppm: DRIFT_PPM,
        repair_after: REPAIR_AFTER,
        tiering: weir_store::Tiering::default(),
        fence_wait: FENCE_WAIT,
        classes: ["dram", "flash"].iter().map(|name| ClassName::new(name).expect("a class")).collect(),
        block: BLOCK as u32,
        inline_max: INLINE_MAX,
        durability: "power".into(),
        metadata: "etcd".into(),
    }
}

impl World {
    pub fn new(scale: StoreSize) -> Self {
        let process =
            |number| Process { service: Service::new(settings(number as u64 + 1)), is_up: true, free: Nanos(0) };
        let client = |number| Client::new(number, scale.services, scale.files, Location::default());
        let mut world = Self {
            now: Nanos(0),
            kv: MemoryKv::default(),
            takes: (Nanos(0), Nanos(0)),
            processes: (0..scale.services).map(process).collect(),
            clients: (0..scale.clients).map(client).collect(),
            drives: Drives::new(&scale),
            nodes: BTreeMap::new(),
            connections: BTreeMap::new(),
            of_client: BTreeMap::new(),
            last_connection: 0,
            events: BTreeMap::new(),
            last_event: 0,
            random: Xoshiro256::new(1),
            seen: Observed::new(scale.services),
            phase: Phase::Fill,
            told: BTreeMap::new(),
            operator: 0,
            granted_at: None,
            events_done: 0,
            scale,
        };
        for process in 0..scale.services {
            // One after the other, as an operator starts them.
            let at = Nanos::from_millis(10 * process as u64);
            world.at(at, Event::Arrives(process, ServiceEvent::Listens(vec![process.to_string()])));
            world.at(at, Event::Arrives(process, ServiceEvent::Start));
            world.at(at, Event::Tick(process));
        }
        world
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.last_event += 1;
        self.events.insert((at, self.last_event), event);
    }

    fn after(&mut self, time: Nanos, event: Event) {
        self.at(self.now.saturating_add(time), event);
    }

    /// One way through the network.
    fn way(&mut self) -> Nanos {
        WAY.saturating_add(Nanos(self.random.below(WAY_MORE.get())))
    }

    /// Goes on until that time, or until `is_over` says so after an event; whether it has.
    pub fn run(&mut self, until: Nanos, mut is_over: impl FnMut(&World) -> bool) -> bool {
        while let Some(next) = self.events.first_entry().filter(|next| next.key().0 <= until) {
            let ((at, _), event) = next.remove_entry();
            self.now = self.now.max(at);
            self.events_done += 1;
            self.happen(event);
            if is_over(self) {
                return true;
            }
        }
        self.now = self.now.max(until);
        false
    }

    /// Goes on for so long.
    pub fn pass(&mut self, time: Nanos) {
        self.run(self.now.saturating_add(time), |_| false);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrives(process, event) => self.arrives(process, event),
            Event::Applies(process, event) => self.apply(process, event),
            Event::Tick(process) => {
                if self.processes[process].is_up {
                    self.arrives(process, ServiceEvent::Durable(Revision(u64::MAX)));
                    self.arrives(process, ServiceEvent::Tick);
                    self.after(TICK_EVERY, Event::Tick(process));
                }
            }
            Event::Asked(process, token, request) => {
                let answer = request.perform(&mut self.kv);
                let left = match request {
                    KvRequest::Commit(_) => COMMIT,
                    _ => READ,
                };
                self.after(left, Event::Arrives(process, ServiceEvent::Kv(token, answer)));
            }
            Event::ToClient(client, connection, number, answer) => {
                self.answer_came(client, connection, number, *answer)
            }
            Event::Closed(client, connection) => {
                self.connections.remove(&connection);
                if self.of_client.get(&client) == Some(&connection) {
                    self.of_client.remove(&client);
                    self.with(client, |client, _, wants| client.closed(wants));
                }
            }
            Event::Timer(client, timer) => self.with(client, |client, now, wants| client.timer(timer, now, wants)),
            Event::Renew(client) => {
                self.with(client, |client, _, wants| client.renew(wants));
                self.after(Client::RENEW_EVERY, Event::Renew(client));
            }
            Event::Transferred(client, done) => {
                self.with(client, |client, now, wants| client.transferred(&done, now, wants));
            }
        }
    }

    fn arrives(&mut self, process: usize, event: ServiceEvent) {
        let namespaces = self.nodes.len() as u64;
        let (found, now) = (&mut self.processes[process], self.now);
        if !found.is_up {
            return;
        }
        let takes = match &event {
            ServiceEvent::Message(..) => MESSAGE,
            ServiceEvent::Tick if found.service.life().is_some() => {
                TICK.saturating_add(Nanos(TICK_OF_NAMESPACE.get() * namespaces))
            }
            ServiceEvent::Tick => TICK,
            ServiceEvent::Kv(..) | ServiceEvent::Tier(..) => ANSWER,
            _ => Nanos(0),
        };
        found.free = found.free.max(now).saturating_add(takes);
        let at = found.free;
        add(&mut self.seen.busy[process], now, takes.get());
        match at == now {
            true => self.apply(process, event),
            false => self.at(at, Event::Applies(process, event)),
        }
    }

    fn apply(&mut self, process: usize, event: ServiceEvent) {
        let (found, now) = (&mut self.processes[process], self.now);
        if !found.is_up {
            return;
        }
        let mut effects = Vec::new();
        found.service.apply(now, UnixNanos((1 << 60) + now.get()), event, &mut effects);
        effects.into_iter().for_each(|effect| self.carry_out(process, effect));
    }

    fn carry_out(&mut self, process: usize, effect: ServiceEffect) {
        match effect {
            ServiceEffect::Kv(token, request) => self.ask_kv(process, token, request),
            ServiceEffect::Sync => {
                self.after(COMMIT, Event::Arrives(process, ServiceEvent::Durable(Revision(u64::MAX))));
            }
            ServiceEffect::Send(connection, number, answer) => {
                let Some((client, _)) = self.connections.get(&connection).copied() else { return };
                add(&mut self.seen.answers[process], self.now, 1);
                let way = self.way();
                self.after(way, Event::ToClient(client, connection, number, Box::new(answer)));
            }
            ServiceEffect::Close(connection) => {
                if let Some((client, _)) = self.connections.get(&connection).copied() {
                    // Behind what was sent.
                    self.after(WAY.saturating_add(WAY_MORE), Event::Closed(client, connection));
                }
            }
            ServiceEffect::Tier(token, request) => {
                let (at, answer) = self.drives.ask(self.now, &request);
                self.at(at, Event::Arrives(process, ServiceEvent::Tier(token, answer)));
            }
            ServiceEffect::Refuse(why) => self.seen.unexpected.push(why),
        }
    }

    /// A commit or a read waits for its turn; then it is carried out.
    fn ask_kv(&mut self, process: usize, token: KvToken, request: KvRequest) {
        let (turn, a_second, count) = match request {
            KvRequest::Commit(_) => (&mut self.takes.0, COMMITS, &mut self.seen.commits),
            _ => (&mut self.takes.1, READS, &mut self.seen.reads),
        };
        *count += 1;
        *turn = (*turn).max(self.now).saturating_add(Nanos(1_000_000_000 / a_second));
        let at = *turn;
        self.at(at, Event::Asked(process, token, request));
    }

    fn answer_came(&mut self, client: usize, connection: ConnectionId, number: RequestNumber, answer: Answer) {
        if self.of_client.get(&client) != Some(&connection) {
            return;
        }
        if client == OPERATOR {
            self.told.insert(number, answer);
            return;
        }
        if matches!(answer, Answer::Granted { .. }) {
            self.granted_at.get_or_insert(self.now);
        }
        self.with(client, |client, now, wants| client.answer(number, answer, now, wants));
    }

    /// A client does something, and what it wants is done.
    fn with(&mut self, number: usize, what: impl FnOnce(&mut Client, Nanos, &mut Vec<Wants>)) {
        let mut wants = Vec::new();
        let Some(client) = self.clients.get_mut(number) else { return };
        what(client, self.now, &mut wants);
        wants.into_iter().for_each(|want| self.wanted(number, want));
    }

    fn wanted(&mut self, client: usize, want: Wants) {
        match want {
            Wants::Connect(process) => self.connect(client, process),
            Wants::Send(number, request) => self.send(client, number, request),
            Wants::Timer(after, timer) => self.after(after, Event::Timer(client, timer)),
            Wants::Write(places) => self.write(client, &places),
            Wants::Read(blocks) => self.read(client, &blocks),
            Wants::Answered(since) => self.seen.answered(self.phase, since, self.now),
            Wants::SessionLost => self.seen.sessions_lost += 1,
            Wants::Unexpected(what) => self.seen.unexpected.push(what),
        }
    }

    fn connect(&mut self, client: usize, process: usize) {
        self.last_connection += 1;
        let connection = ConnectionId(self.last_connection);
        if let Some(before) = self.of_client.insert(client, connection) {
            if let Some((_, of)) = self.connections.remove(&before) {
                let way = self.way();
                self.after(way, Event::Arrives(of, ServiceEvent::Disconnected(before)));
            }
        }
        self.connections.insert(connection, (client, process));
        let mut token = [0; 16];
        token[..8].copy_from_slice(&self.random.next_u64().to_le_bytes());
        if self.processes[process].is_up {
            self.after(WAY, Event::Arrives(process, ServiceEvent::Connected(connection, token)));
        } else {
            // Its machine says so.
            self.after(Nanos(2 * WAY.get()), Event::Closed(client, connection));
        }
    }

    fn send(&mut self, client: usize, number: RequestNumber, request: Request) {
        let Some(connection) = self.of_client.get(&client).copied() else { return };
        let Some((_, process)) = self.connections.get(&connection).copied() else { return };
        // Behind the connection itself.
        let way = WAY.saturating_add(self.way());
        self.after(way, Event::Arrives(process, ServiceEvent::Message(connection, number, request)));
    }

    fn node_of(&self, place: &Extent) -> Option<usize> {
        self.nodes.get(&place.namespace).copied()
    }

    fn write(&mut self, client: usize, places: &[Extent]) {
        let mut last = self.now;
        let mut done = Vec::new();
        for place in places {
            let node = self.node_of(place);
            let at = node.and_then(|node| self.drives.write(node, self.now, place.length.get()));
            self.seen.failed_writes += u64::from(at.is_none());
            done.push(at.is_some());
            last = last.max(at.unwrap_or(self.now.saturating_add(GIVE_UP)));
        }
        self.at(last, Event::Transferred(client, done));
    }

    fn read(&mut self, client: usize, blocks: &[Vec<Extent>]) {
        let mut last = self.now;
        for copies in blocks {
            let from =
                copies.iter().find_map(|copy| self.drives.read(self.node_of(copy)?, self.now, copy.length.get()));
            last = last.max(from.unwrap_or(self.now.saturating_add(GIVE_UP)));
        }
        self.at(last, Event::Transferred(client, Vec::new()));
    }

    /// All clients begin, spread over a second.
    pub fn begin_clients(&mut self) {
        for client in 0..self.clients.len() {
            let at = Nanos(self.random.below(1_000_000_000));
            self.after(at, Event::Timer(client, 0));
            self.after(Client::RENEW_EVERY.saturating_add(at), Event::Renew(client));
        }
    }

    /// From now on all clients together begin so many operations in a second, or none.
    pub fn load(&mut self, operations: Option<u64>) {
        let think = operations.map(|all| Nanos(self.clients.len() as u64 * 1_000_000_000 / all.max(1)));
        for number in 0..self.clients.len() {
            let rested = self.clients[number].rests() && self.clients[number].think.is_none();
            self.clients[number].think = think;
            if rested && think.is_some() {
                self.with(number, |client, now, wants| client.go_on(now, wants));
            }
        }
    }

    /// The process that serves.
    pub fn serving(&self) -> Option<usize> {
        self.processes.iter().position(|process| process.is_up && process.service.is_ready())
    }

    /// A process is killed: its machine says so to all who are connected.
    pub fn kill(&mut self, process: usize) {
        self.processes[process].is_up = false;
        let gone: Vec<(ConnectionId, usize)> =
            self.connections.iter().filter(|(_, of)| of.1 == process).map(|(id, of)| (*id, of.0)).collect();
        for (connection, client) in gone {
            let way = self.way();
            self.after(way, Event::Closed(client, connection));
        }
    }

    /// The operator connects to the process that serves.
    pub fn operate(&mut self) {
        let Some(process) = self.serving() else { return };
        self.connect(OPERATOR, process);
        let (magic, version) = (weir_store::protocol::PROTOCOL_MAGIC, weir_store::protocol::PROTOCOL_VERSION);
        let (location, session) = (Location::default(), weir_store::protocol::SessionWish::None);
        let number = self.order(Request::Hello { magic, version, client: "operator".into(), location, session });
        self.await_told(number);
    }

    /// The operator asks for something.
    pub fn order(&mut self, request: Request) -> RequestNumber {
        self.operator += 1;
        let number = RequestNumber(self.operator);
        self.send(OPERATOR, number, request);
        number
    }

    /// What the operator is answered; nothing within a minute.
    pub fn await_told(&mut self, number: RequestNumber) -> Option<Answer> {
        let until = self.now.saturating_add(Nanos::from_secs(60));
        self.run(until, |world| world.told.contains_key(&number));
        self.told.remove(&number)
    }

    /// Asks and waits.
    pub fn ask(&mut self, request: Request) -> Option<Answer> {
        let number = self.order(request);
        self.await_told(number)
    }
}
