//! A service, its key-value store and its drive; a victim, and what is held against it.

use super::Fault;
use super::request::{Known, Script, mangled, request};
use std::collections::BTreeMap;
use weir_store::file::NewBlock;
use weir_store::fsck::Image;
use weir_store::keys::{KeySpace, inode_key, map_chunk_key};
use weir_store::kv::{FaultyKv, KvFaults, KvKey, KvRequest};
use weir_store::members::LeaseTiming;
use weir_store::protocol::{
    Answer, Donation, FrameReader, PROTOCOL_MAGIC, PROTOCOL_VERSION, Request, RequestNumber, SessionWish,
};
use weir_store::records::{BlockRecord, from_value};
use weir_store::service::{
    ConnectionId, LabelFound, Service, ServiceEffect, ServiceEvent, ServiceSettings, TierAnswer, TierFailure,
    TierRequest,
};
use weir_store::space::{Epoch, ExtentRecord, ExtentUse};
use weir_store::{
    ClassName, Content, EntryName, EntryPath, Extent, Inode, InodeId, InodeKind, InodePath, Location, NewInode,
    Revision, ServiceId, SessionId, StoreError, UnixNanos,
};
use weir_units::Nanos;

/// Bytes of a block, and of its one checksum.
const BLOCK: u64 = 64 << 10;

/// How long sessions live: the victim renews its own before each pause, the longest of which is shorter.
const LEASE: Nanos = Nanos::from_secs(60);
const PAUSE_MAX: u64 = 25_000;

/// A pause that lets what has failed be tried again.
const RETRY: Nanos = Nanos::from_millis(20);

/// Attempts, each after such a pause.
const ATTEMPTS: usize = 2000;

/// Connections of hostile clients at a time.
const HOSTILE_MAX: usize = 4;

const TARGET: &str = "nvme-tcp://127.0.0.1:4420/nqn?ns=1";

/// The client that does nothing wrong.
struct Victim {
    connection: ConnectionId,
    session: SessionId,
    token: [u8; 16],
    at: InodePath,
    handle: u64,
    epoch: Epoch,
    /// Published, and granted and not published.
    mapped: Vec<NewBlock>,
    granted: Vec<NewBlock>,
    sequence: u64,
    /// Records of its blocks and its map, as they have to stay.
    kept: Vec<(KvKey, Vec<u8>)>,
}

/// A hostile client's connection.
struct Hostile {
    connection: ConnectionId,
    frames: FrameReader,
    /// Requests by their number; `None` where it was used again.
    asked: BTreeMap<RequestNumber, (u32, Option<Request>)>,
}

pub(super) struct World {
    kv: FaultyKv,
    service: Service,
    fault: Fault,
    life: u32,
    now: Nanos,
    drives: BTreeMap<String, LabelFound>,
    victim: Option<Victim>,
    answers: BTreeMap<RequestNumber, Answer>,
    hostile: Vec<Hostile>,
    known: Known,
    last: u64,
    checks: u64,
}

fn settings(life: u32) -> ServiceSettings {
    ServiceSettings {
        service: ServiceId(1),
        process: u64::from(life),
        is_predecessor_dead: true,
        service_lease: Nanos::from_secs(3),
        may_have_lost: false,
        timing: LeaseTiming::new(LEASE, 1000, Nanos::from_millis(100)).expect("a lease"),
        drift_ppm: 1000,
        repair_after: Nanos::from_secs(5),
        tiering: weir_store::Tiering::default(),
        fence_wait: Nanos::from_millis(500),
        classes: vec![ClassName::new("dram").expect("a class")],
        block: BLOCK as u32,
        inline_max: 256,
        durability: "process".into(),
        metadata: "memory".into(),
    }
}

pub(super) fn new_inode(kind: InodeKind) -> NewInode {
    let (target, classes, location) = (Vec::new(), Vec::new(), Location::default());
    NewInode { kind, mode: 0o644, uid: 0, gid: 0, target, classes, location, copies: 1, block: BLOCK as u32 }
}

pub(super) fn record(new: &NewBlock) -> BlockRecord {
    let (copies, checksums) = (new.copies.clone(), vec![7; (BLOCK >> 16) as usize]);
    BlockRecord { index: 0, generation: new.generation, is_unsettled: false, copies, checksums }
}

impl World {
    /// A service that serves, and the victim with its file: two blocks published, two granted.
    pub fn new(seed: u64, fault: Fault) -> Self {
        let mut world = Self {
            kv: FaultyKv::new(seed, KvFaults::default()),
            service: Service::new(settings(1)),
            fault,
            life: 1,
            now: Nanos(1),
            drives: BTreeMap::from([("nvme-tcp://127.0.0.1:4420/nqn".into(), LabelFound::Blank)]),
            victim: None,
            answers: BTreeMap::new(),
            hostile: Vec::new(),
            known: Known::default(),
            last: 0,
            checks: 0,
        };
        world.begin();
        let (operator, _, _) = world.greet(SessionWish::None);
        let class = ClassName::new("dram").expect("a class");
        let donation = Donation { target: TARGET.into(), class, location: Location::default(), overwrite: false };
        let donated = world.ask(operator, &Request::Donate { donation });
        assert!(matches!(donated, Answer::Donated { .. }), "{donated:?}");
        world.give(ServiceEvent::Disconnected(operator));
        world.pause(RETRY);
        let (connection, session, token) = world.greet(SessionWish::New);
        let session = session.expect("it was wished for");
        let name = EntryName::new(b"v").expect("a name");
        let entry = EntryPath { container: InodeId::ROOT, name };
        let open = Request::OpenNew {
            slot: 0,
            sequence: 1,
            entry,
            new: new_inode(InodeKind::File),
            content: Vec::new(),
            exclusive: true,
        };
        let Answer::Opened { handle, at, .. } = world.ask(connection, &open) else { panic!("it opens") };
        let Answer::Granted { blocks } = world.ask(connection, &Request::Grant { handle, count: 4 }) else {
            panic!("there is room")
        };
        assert_eq!(blocks.len(), 4);
        let (mapped, granted) = (blocks[..2].to_vec(), blocks[2..].to_vec());
        let published = (0..).zip(&mapped).map(|(number, new)| (number, record(new))).collect();
        let publish = Request::Publish { handle, slot: 0, sequence: 2, size: 2 * BLOCK, blocks: published };
        assert!(matches!(world.ask(connection, &publish), Answer::Changed { .. }));
        let (epoch, sequence) = (Epoch(0), 2);
        let mut victim =
            Victim { connection, session, token, at, handle, epoch, mapped, granted, sequence, kept: Vec::new() };
        victim.kept = world.records_of(&victim);
        assert!(victim.kept.len() >= 4, "a map, two blocks, and what is granted: {:?}", victim.kept);
        world.known.victim = Some((session, at, handle));
        world.known.blocks = victim.mapped.iter().chain(&victim.granted).cloned().collect();
        world.victim = Some(victim);
        world
    }

    /// From here on the key-value store fails so often, in a million.
    pub fn trouble(&mut self, rate: u32) {
        self.kv.set_faults(KvFaults::all(rate));
    }

    pub fn checks(&self) -> u64 {
        self.checks
    }

    /// The records of a victim's blocks, and of its map.
    fn records_of(&self, victim: &Victim) -> Vec<(KvKey, Vec<u8>)> {
        let is_its = |key: &KvKey, value: &[u8]| match KeySpace::of(key.0[0]) {
            Some(KeySpace::MapChunk) => *key == map_chunk_key(victim.at.inode, 0),
            Some(KeySpace::Extent) => ExtentRecord::decode(value).is_ok_and(|record| match record.used {
                ExtentUse::Granted(session) => session == victim.session,
                ExtentUse::Mapped(file, _) => file == victim.at.inode,
                ExtentUse::Quarantined => false,
            }),
            _ => false,
        };
        let all = self.kv.store().iter();
        all.filter(|(key, found)| is_its(key, &found.value))
            .map(|(key, found)| (key.clone(), found.value.clone()))
            .collect()
    }

    fn begin(&mut self) {
        self.give(ServiceEvent::Start);
        for _ in 0..ATTEMPTS {
            if self.service.is_ready() {
                return;
            }
            self.pass(RETRY);
        }
        panic!("the service does not begin");
    }

    /// The process dies, and the next one begins. The victim comes back.
    fn restart(&mut self) {
        self.life += 1;
        self.service = Service::new(settings(self.life));
        self.hostile.clear();
        self.known.handles.clear();
        self.begin();
        let Some(mut victim) = self.victim.take() else { return };
        let (connection, session, _) = self.greet(SessionWish::Resume(victim.session, victim.token));
        assert_eq!(session, Some(victim.session), "its session goes on");
        let Answer::Opened { handle, .. } = self.ask(connection, &Request::Open { at: victim.at, write: true }) else {
            panic!("its file is its own to write")
        };
        (victim.connection, victim.handle) = (connection, handle);
        self.known.victim = Some((victim.session, victim.at, handle));
        self.victim = Some(victim);
    }

    fn give(&mut self, event: ServiceEvent) {
        let mut effects = Vec::new();
        let wall = UnixNanos((1 << 60) + self.now.get());
        self.service.apply(self.now, wall, event, &mut effects);
        assert_eq!(self.service.check(), Ok(()));
        self.checks += 1;
        for effect in effects {
            match effect {
                ServiceEffect::Kv(token, KvRequest::Commit(mut commit)) => {
                    if self.fault == Fault::NoExpectations {
                        commit.expect.clear();
                    }
                    self.kv.send(self.life, token, KvRequest::Commit(commit));
                }
                ServiceEffect::Kv(token, request) => self.kv.send(self.life, token, request),
                ServiceEffect::Send(connection, number, answer) => self.answered(connection, number, answer),
                ServiceEffect::Sync => self.give(ServiceEvent::Durable(Revision(u64::MAX))),
                ServiceEffect::Close(connection) => self.closed(connection),
                ServiceEffect::Tier(token, request) => {
                    let answer = self.drive(request);
                    self.give(ServiceEvent::Tier(token, answer));
                }
                ServiceEffect::Refuse(why) => panic!("the service refuses its own store: {why}"),
            }
        }
    }

    fn closed(&mut self, connection: ConnectionId) {
        let is_victims = self.victim.as_ref().is_some_and(|victim| victim.connection == connection);
        assert!(!is_victims, "the victim's connection is closed");
        self.hostile.retain(|hostile| hostile.connection != connection);
        self.give(ServiceEvent::Disconnected(connection));
    }

    fn answered(&mut self, connection: ConnectionId, number: RequestNumber, answer: Answer) {
        let frame = answer.encode(number).expect("an answer fits a frame");
        assert_eq!(Answer::decode(&frame[4..]), Ok((number, answer.clone())), "it is read as it was written");
        let Some(at) = self.hostile.iter().position(|hostile| hostile.connection == connection) else {
            assert!(self.answers.insert(number, answer).is_none(), "a request gets one answer");
            return;
        };
        let asked = self.hostile[at].asked.get_mut(&number);
        let (left, request) = asked.expect("what was not asked is not answered");
        *left = left.checked_sub(1).expect("a request gets one answer");
        let request = request.take();
        self.hear(&answer, request.as_ref());
        self.known.learn(answer);
    }

    /// What a hostile client is told gives it nothing of the victim's.
    fn hear(&self, answer: &Answer, request: Option<&Request>) {
        let Some(victim) = &self.victim else { return };
        match answer {
            Answer::Welcome { welcome } => {
                assert_ne!(welcome.session, Some(victim.session), "another client has the victim's session");
            }
            Answer::Granted { blocks } => {
                let its: Vec<&Extent> = victim.mapped.iter().chain(&victim.granted).flat_map(|b| &b.copies).collect();
                let mut all = blocks.iter().flat_map(|block| &block.copies);
                let is_free = all.all(|extent| its.iter().all(|its| !its.overlaps(extent)));
                assert!(is_free, "the victim's bytes are granted to another session: {blocks:?}");
            }
            Answer::Opened { at, .. } => {
                let writes = matches!(request, Some(Request::Open { write: true, .. } | Request::OpenNew { .. }));
                assert!(!writes || at.inode != victim.at.inode, "another session may write the victim's file");
            }
            _ => {}
        }
    }

    fn drive(&mut self, request: TierRequest) -> Result<TierAnswer, TierFailure> {
        // Two spellings are one drive.
        let name = |target: &str| target.trim_end_matches("?ns=1").to_owned();
        let gone = || TierFailure("connection refused".into());
        match request {
            TierRequest::ReadLabel { target } => {
                let found = *self.drives.get(&name(&target)).ok_or_else(gone)?;
                Ok(TierAnswer::Label { bytes: 1 << 30, sector: 4096, found })
            }
            TierRequest::WriteLabel { target, store, namespace, content } => {
                let found = self.drives.get_mut(&name(&target)).ok_or_else(gone)?;
                let label = LabelFound::Label { store, namespace, content };
                let is_kept = self.victim.is_none() || matches!(*found, LabelFound::Blank) || *found == label;
                assert!(is_kept, "the label of the victim's drive is written over: {found:?}, {label:?}");
                *found = label;
                Ok(TierAnswer::Written)
            }
            TierRequest::Recover(block) => {
                let checksums = vec![7; block.length.div_ceil(1 << 16) as usize];
                Ok(TierAnswer::Recovered { checksums, good: (0..block.copies.len()).collect() })
            }
            TierRequest::Move(block) => Ok(TierAnswer::Moved { checksums: block.checksums }),
        }
    }

    /// Lets one thing of the key-value store happen.
    fn advance(&mut self) {
        if self.kv.pending() == 0 {
            return;
        }
        if let Some((life, token, answer)) = self.kv.advance() {
            if life == self.life {
                self.give(ServiceEvent::Kv(token, answer));
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..200_000 {
            if self.kv.pending() == 0 {
                return;
            }
            self.advance();
        }
        panic!("the service does not come to rest");
    }

    fn pass(&mut self, time: Nanos) {
        self.now = self.now.saturating_add(time);
        self.give(ServiceEvent::Durable(Revision(u64::MAX)));
        self.give(ServiceEvent::Tick);
        self.settle();
    }

    /// The victim renews its session, and time passes.
    fn pause(&mut self, time: Nanos) {
        if let Some((connection, epoch)) = self.victim.as_ref().map(|victim| (victim.connection, victim.epoch)) {
            let answer = self.ask(connection, &Request::Renew { epoch });
            let Answer::Renewed { epoch } = answer else { panic!("the victim's session is over: {answer:?}") };
            self.victim.iter_mut().for_each(|victim| victim.epoch = epoch);
        }
        self.pass(time);
    }

    /// Asks as a client that does nothing wrong, until the service can say.
    fn ask(&mut self, connection: ConnectionId, request: &Request) -> Answer {
        for _ in 0..ATTEMPTS {
            self.last += 1;
            let number = RequestNumber(self.last);
            self.give(ServiceEvent::Message(connection, number, request.clone()));
            self.settle();
            for _ in 0..ATTEMPTS {
                if self.answers.contains_key(&number) {
                    break;
                }
                self.pass(RETRY);
            }
            match self.answers.remove(&number).expect("an answer by and by") {
                Answer::Failed { error: StoreError::Unavailable, .. } => self.pass(RETRY),
                answer => return answer,
            }
        }
        panic!("no answer to {request:?}");
    }

    fn greet(&mut self, session: SessionWish) -> (ConnectionId, Option<SessionId>, [u8; 16]) {
        let connection = self.connect();
        let (magic, version, location) = (PROTOCOL_MAGIC, PROTOCOL_VERSION, Location::default());
        let hello = Request::Hello { magic, version, client: "victim".into(), location, session };
        let answer = self.ask(connection, &hello);
        let Answer::Welcome { welcome } = answer else { panic!("{answer:?}") };
        (connection, welcome.session, welcome.token)
    }

    fn connect(&mut self) -> ConnectionId {
        self.last += 1;
        let mut token = [9; 16];
        token[..8].copy_from_slice(&self.last.to_le_bytes());
        let connection = ConnectionId(self.last);
        self.give(ServiceEvent::Connected(connection, token));
        connection
    }

    fn connect_hostile(&mut self) -> usize {
        if self.hostile.len() == HOSTILE_MAX {
            let oldest = self.hostile.remove(0).connection;
            self.give(ServiceEvent::Disconnected(oldest));
        }
        let connection = self.connect();
        self.hostile.push(Hostile { connection, frames: FrameReader::default(), asked: BTreeMap::new() });
        self.hostile.len() - 1
    }

    /// One step of the script; those with the highest bit go on before the key-value store has answered.
    pub fn step(&mut self, step: u8, script: &mut Script<'_>) {
        match step & 15 {
            0 => drop(self.connect_hostile()),
            1 if !self.hostile.is_empty() => {
                let at = script.below(self.hostile.len());
                let connection = self.hostile.remove(at).connection;
                self.give(ServiceEvent::Disconnected(connection));
            }
            2 => self.pause(Nanos::from_millis(PAUSE_MAX * u64::from(script.byte().unwrap_or(0)) / 255)),
            3 => (0..script.byte().unwrap_or(0) & 31).for_each(|_| self.advance()),
            4 if script.byte().unwrap_or(0) < 64 => self.restart(),
            5 => {
                let len = usize::from(script.byte().unwrap_or(0));
                let bytes = script.take(len).to_vec();
                self.send(script, &bytes);
            }
            _ => {
                let request = request(script.byte().unwrap_or(0), script, &self.known);
                self.last += u64::from(step & 0x40 == 0);
                let Some(frame) = request.encode(RequestNumber(self.last)) else { return };
                let frame = mangled(frame, script);
                self.send(script, &frame);
            }
        }
        if step & 0x80 == 0 {
            self.settle();
        }
        self.check();
    }

    /// Sends bytes over one of the hostile connections. As a service does it, a connection with a frame that is none is closed.
    fn send(&mut self, script: &mut Script<'_>, bytes: &[u8]) {
        let at = match self.hostile.len() {
            0 => self.connect_hostile(),
            some => script.below(some),
        };
        let connection = self.hostile[at].connection;
        self.hostile[at].frames.push(bytes);
        loop {
            let Some(hostile) = self.hostile.iter_mut().find(|hostile| hostile.connection == connection) else {
                return;
            };
            let found = hostile.frames.next().map(|frame| frame.map(Request::decode));
            let (number, request) = match found {
                Ok(None) => return,
                Ok(Some(Ok(message))) => message,
                Ok(Some(Err(_))) | Err(_) => return self.closed(connection),
            };
            let asked = hostile.asked.entry(number).or_default();
            *asked = (asked.0 + 1, (asked.0 == 0).then(|| request.clone()));
            let (connection, request) = self.with_fault(connection, request);
            self.give(ServiceEvent::Message(connection, number, request));
        }
    }

    /// A service that leaves out a check takes this message as that one.
    fn with_fault(&mut self, connection: ConnectionId, request: Request) -> (ConnectionId, Request) {
        let Some(victim) = &self.victim else { return (connection, request) };
        match (self.fault, request) {
            (Fault::AnyToken, Request::Hello { magic, version, client, location, session }) => {
                let session = match session {
                    SessionWish::Resume(wished, _) if wished == victim.session => {
                        SessionWish::Resume(wished, victim.token)
                    }
                    other => other,
                };
                (connection, Request::Hello { magic, version, client, location, session })
            }
            (Fault::AnyHandle, request @ (Request::Publish { handle, .. } | Request::Close { handle }))
                if handle == victim.handle =>
            {
                (victim.connection, request)
            }
            (Fault::AnyGrant, request @ Request::Return { .. }) => (victim.connection, request),
            (_, request) => (connection, request),
        }
    }

    /// The victim's file and its grants are as they were.
    fn check(&self) {
        let Some(victim) = &self.victim else { return };
        let found = self.records_of(victim);
        assert_eq!(found, victim.kept, "the victim's blocks, grants or map");
        let inode = self.kv.store().iter().find(|(key, _)| **key == inode_key(victim.at.inode));
        let inode: Inode = from_value(&inode.expect("the victim has it open").1.value).expect("an inode");
        assert_eq!((inode.size, inode.content), (2 * BLOCK, Content::Mapped), "the victim's file");
    }

    /// All comes to rest; the victim publishes what it was granted, closes its file, and all records are sound.
    pub fn end(mut self) {
        self.trouble(0);
        (0..3).for_each(|_| self.pause(Nanos::from_millis(200)));
        self.check();
        let victim = self.victim.take().expect("it is there");
        let Victim { connection, handle, sequence, .. } = victim;
        let blocks = (2..).zip(&victim.granted).map(|(number, new)| (number, record(new))).collect();
        let publish = Request::Publish { handle, slot: 0, sequence: sequence + 1, size: 4 * BLOCK, blocks };
        let told = self.ask(connection, &publish);
        assert!(matches!(told, Answer::Changed { .. }), "the victim publishes what it was granted: {told:?}");
        let Answer::Chunk { chunk, .. } = self.ask(connection, &Request::Map { handle, chunk: 0 }) else {
            panic!("it has the file open")
        };
        let copies: Vec<_> = chunk.blocks.into_iter().map(|block| block.copies).collect();
        let wanted: Vec<_> = victim.mapped.into_iter().chain(victim.granted).map(|block| block.copies).collect();
        assert_eq!(copies, wanted, "the victim's map");
        assert_eq!(self.ask(connection, &Request::Close { handle }), Answer::Done {});
        (0..20).for_each(|_| self.pass(Nanos::from_millis(200)));
        let image = Image::read(self.kv.store_mut()).expect("it answers");
        let findings = image.findings(&image.places());
        assert!(findings.is_empty(), "{findings:?}");
    }
}
