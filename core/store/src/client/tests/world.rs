//! Clients beside the real service over a key-value store, with drives of the test's own: everything on its way is late, in any order, or lost.

use crate::class::ClassName;
use crate::client::{
    ClientEffect, ClientEvent, ClientFailure, ClientMachine, ClientMemory, ClientSetup, CommandId, DriveCommand,
    DriveId, FileWork, MemoryId, OpenFileId, OpenedFile, Outcome, WorkId,
};
use crate::file::tests::crc;
use crate::file::{DriveFailure, FileBuffer, FileMemory, FileOpId};
use crate::id::{InodeId, NamespaceId, ServiceId};
use crate::inode::{InodeKind, UnixNanos};
use crate::kv::{FaultyKv, KvFaults, Revision};
use crate::location::Location;
use crate::members::LeaseTiming;
use crate::mutant::Mutant;
use crate::name::EntryName;
use crate::protocol::{
    Answer, Donation, NamespaceInfo, PROTOCOL_MAGIC, PROTOCOL_VERSION, Request, RequestNumber, SessionWish,
};
use crate::service::{
    ConnectionId, LabelFound, Service, ServiceEffect, ServiceEvent, ServiceSettings, TierAnswer, TierFailure,
    TierRequest,
};
use crate::tree::{EntryPath, NewInode};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use weir_units::Nanos;
use weir_units::rng::SplitMix64;

pub const LEASE: Nanos = Nanos::from_secs(2);
pub const BLOCK: u32 = 64 << 10;
pub const FAR: Nanos = Nanos(u64::MAX / 2);
const DRIVE_BYTES: u64 = 256 << 20;
const PAGE: u64 = 4096;
/// What a drive has before: nobody may read it.
pub const FORMER: u8 = 0x5a;

/// The bytes of a drive, by pages.
#[derive(Default)]
pub struct Bytes(BTreeMap<u64, Vec<u8>>);

impl Bytes {
    fn page(&mut self, at: u64) -> (&mut [u8], usize) {
        let page = self.0.entry(at / PAGE).or_insert_with(|| vec![FORMER; PAGE as usize]);
        (page, (at % PAGE) as usize)
    }

    pub fn write(&mut self, mut at: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (page, from) = self.page(at);
            let n = bytes.len().min(page.len() - from);
            page[from..from + n].copy_from_slice(&bytes[..n]);
            (at, bytes) = (at + n as u64, &bytes[n..]);
        }
    }

    pub fn read(&mut self, at: u64, to: &mut [u8]) {
        for (byte, at) in to.iter_mut().zip(at..) {
            let (page, from) = self.page(at);
            *byte = page[from];
        }
    }
}

/// A command at a drive.
#[derive(Clone)]
pub struct AtDrive {
    pub id: CommandId,
    pub memory: MemoryId,
    pub command: DriveCommand,
    pub is_aborted: bool,
}

/// A drive as a client has it open.
pub struct SimDrive {
    pub namespace: NamespaceId,
    pub commands: Vec<AtDrive>,
    /// Writes that were given up and may still be carried out.
    pub late: Vec<(u64, Vec<u8>)>,
}

#[derive(Default)]
pub struct Memory {
    pub callers: BTreeMap<WorkId, Vec<u8>>,
    own: BTreeMap<(MemoryId, u64), Vec<u8>>,
}

impl Memory {
    pub fn is_empty(&self) -> bool {
        self.callers.is_empty() && self.own.is_empty()
    }

    pub fn bytes(&mut self, owner: MemoryId, at: FileBuffer, len: u32) -> &mut [u8] {
        let (bytes, at) = match at {
            FileBuffer::Caller(FileOpId(op), at) => {
                (self.callers.get_mut(&WorkId(op)).expect("a work's memory"), at as usize)
            }
            FileBuffer::Own(own, at) => (self.own.get_mut(&(owner, own)).expect("reserved memory"), at as usize),
        };
        &mut bytes[at..at + len as usize]
    }
}

pub struct View<'a>(&'a mut Memory, MemoryId);

impl FileMemory for View<'_> {
    fn reserve(&mut self, number: u64, bytes: u32) {
        assert!(self.0.own.insert((self.1, number), vec![0; bytes as usize]).is_none());
    }
    fn release(&mut self, number: u64) {
        assert!(self.0.own.remove(&(self.1, number)).is_some());
    }
    fn copy(&mut self, from: FileBuffer, to: FileBuffer, len: u32) {
        let bytes = self.0.bytes(self.1, from, len).to_vec();
        self.0.bytes(self.1, to, len).copy_from_slice(&bytes);
    }
    fn zero(&mut self, at: FileBuffer, len: u32) {
        self.0.bytes(self.1, at, len).fill(0);
    }
    fn checksum(&mut self, so_far: u32, at: FileBuffer, len: u32) -> u32 {
        crc(so_far, self.0.bytes(self.1, at, len))
    }
}

impl ClientMemory for Memory {
    type OfFile<'a> = View<'a>;

    fn of_file(&mut self, owner: MemoryId) -> View<'_> {
        View(self, owner)
    }
    fn fill(&mut self, work: WorkId, from: &[u8]) {
        self.callers.get_mut(&work).expect("a work's memory")[..from.len()].copy_from_slice(from);
    }
    fn take(&mut self, work: WorkId, to: &mut [u8]) {
        let len = to.len();
        to.copy_from_slice(&self.callers[&work][..len]);
    }
    fn keep(&mut self, work: WorkId, bytes: Vec<u8>) {
        assert!(self.callers.insert(work, bytes).is_none());
    }
    fn release(&mut self, work: WorkId) {
        self.callers.remove(&work);
    }
    fn forget(&mut self, owner: MemoryId) {
        assert!(self.own.keys().all(|(of, _)| *of != owner), "memory of an open file is given back by its machine");
    }
}

/// A client, and what is on its way to and from it.
pub struct SimClient {
    pub machine: ClientMachine,
    pub memory: Memory,
    pub connection: Option<ConnectionId>,
    pub out: VecDeque<(RequestNumber, Request)>,
    pub answers: Vec<(RequestNumber, Answer)>,
    pub wish: Option<SessionWish>,
    pub drives: BTreeMap<DriveId, SimDrive>,
    pub opened: u64,
    pub finished: BTreeMap<WorkId, Outcome>,
    /// All requests that were sent.
    pub log: Vec<Request>,
    /// What is not answered as it is asked: the kind of a request, how often, and what is said instead.
    pub instead: Vec<(u16, Answer)>,
}

pub struct World {
    pub kv: FaultyKv,
    pub service: Service,
    pub life: u64,
    pub now: Nanos,
    pub random: SplitMix64,
    labels: BTreeMap<String, LabelFound>,
    pub media: BTreeMap<NamespaceId, Bytes>,
    drive_bytes: u64,
    /// These do nothing.
    pub stalled: Vec<NamespaceId>,
    /// Of a million writes and reads so many fail.
    pub drive_failures: u32,
    pub clients: Vec<SimClient>,
    /// Clients that come from now on publish what they write as soon as they can.
    pub publishes_behind: bool,
    answers: BTreeMap<(ConnectionId, RequestNumber), Answer>,
    next: u64,
}

pub fn target(number: u64) -> String {
    alloc::format!("nvme-tcp://127.0.0.1:{}/nqn?ns=1", 4419 + number)
}

fn settings(life: u64) -> ServiceSettings {
    ServiceSettings {
        service: ServiceId(1),
        process: life,
        is_predecessor_dead: true,
        service_lease: Nanos::from_secs(3),
        may_have_lost: false,
        timing: LeaseTiming::new(LEASE, 1000, Nanos::from_millis(100)).expect("a lease"),
        drift_ppm: 1000,
        repair_after: Nanos::NEVER,
        tiering: crate::Tiering::default(),
        fence_wait: Nanos::from_millis(500),
        classes: vec![ClassName::new("dram").expect("a class")],
        block: BLOCK,
        inline_max: 2048,
        durability: "process".into(),
        metadata: "memory".into(),
    }
}

pub fn name(text: &str) -> EntryName {
    EntryName::new(text.as_bytes()).expect("a name")
}

pub fn open_new(at: &str, copies: u8) -> Request {
    let entry = EntryPath { container: InodeId::ROOT, name: name(at) };
    let new = NewInode {
        kind: InodeKind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        target: Vec::new(),
        classes: Vec::new(),
        location: Location::default(),
        copies,
        block: BLOCK,
    };
    Request::OpenNew { slot: 0, sequence: 0, entry, new, content: Vec::new(), exclusive: false }
}

impl World {
    /// A store with two drives.
    pub fn new(seed: u64) -> Self {
        Self::with_drives(seed, 2, DRIVE_BYTES)
    }

    /// A store with so many drives of so many bytes.
    pub fn with_drives(seed: u64, drives: u64, bytes: u64) -> Self {
        let mut world = Self {
            kv: FaultyKv::new(seed, KvFaults::default()),
            service: Service::new(settings(1)),
            life: 1,
            now: Nanos(1),
            random: SplitMix64::new(seed),
            drive_bytes: bytes,
            labels: (1..=drives).map(|number| (target(number), LabelFound::Blank)).collect(),
            media: (1..=drives).map(|number| (NamespaceId(number), Bytes::default())).collect(),
            stalled: Vec::new(),
            drive_failures: 0,
            clients: Vec::new(),
            publishes_behind: false,
            answers: BTreeMap::new(),
            next: 0,
        };
        world.begin();
        let (operator, _) = world.hello(SessionWish::None).expect("an operator");
        for number in 1..=drives {
            let (class, location) = (ClassName::new("dram").expect("a class"), Location::default());
            let donation = Donation { target: target(number), class, location, overwrite: false };
            let answer = world.ask_service(operator, Request::Donate { donation });
            assert_eq!(answer, Answer::Donated { namespace: NamespaceId(number) });
        }
        (0..5).for_each(|_| world.pass(Nanos::from_millis(20)));
        world
    }

    fn begin(&mut self) {
        self.serve(ServiceEvent::Start);
        for _ in 0..1000 {
            if self.service.is_ready() {
                return;
            }
            self.pass(Nanos::from_millis(5));
        }
        panic!("the service does not begin");
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.random.below(n as u32).into()
    }

    /// The service takes an event.
    fn serve(&mut self, event: ServiceEvent) {
        let mut effects = Vec::new();
        self.service.apply(self.now, UnixNanos(self.now.get()), event, &mut effects);
        assert_eq!(self.service.check(), Ok(()));
        for effect in effects {
            match effect {
                ServiceEffect::Kv(token, request) => self.kv.send(self.life as u32, token, request),
                ServiceEffect::Send(connection, number, answer) => self.sent(connection, number, answer),
                ServiceEffect::Sync => self.serve(ServiceEvent::Durable(Revision(u64::MAX))),
                // One that a session has left.
                ServiceEffect::Close(_) => {}
                ServiceEffect::Tier(token, request) => {
                    let answer = self.label(request);
                    self.serve(ServiceEvent::Tier(token, answer));
                }
                ServiceEffect::Refuse(why) => panic!("the service refuses its store: {why}"),
            }
        }
    }

    fn sent(&mut self, connection: ConnectionId, number: RequestNumber, answer: Answer) {
        match self.clients.iter_mut().find(|client| client.connection == Some(connection)) {
            Some(client) => client.answers.push((number, answer)),
            None => drop(self.answers.insert((connection, number), answer)),
        }
    }

    fn label(&mut self, request: TierRequest) -> Result<TierAnswer, TierFailure> {
        Ok(match request {
            TierRequest::ReadLabel { target } => {
                TierAnswer::Label { bytes: self.drive_bytes, sector: 4096, found: self.labels[&target] }
            }
            TierRequest::WriteLabel { target, store, namespace, content } => {
                self.labels.insert(target, LabelFound::Label { store, namespace, content });
                TierAnswer::Written
            }
            TierRequest::Recover(block) => {
                let mut bytes = vec![0; block.length as usize];
                let first = &block.copies[0];
                self.media.entry(first.namespace).or_default().read(first.offset, &mut bytes);
                bytes[block.used as usize..].fill(0);
                for copy in &block.copies {
                    self.media.entry(copy.namespace).or_default().write(copy.offset, &bytes);
                }
                let good = block.copies.iter().map(|copy| copy.index).collect();
                TierAnswer::Recovered { checksums: block.seed.checksums(&bytes, crc), good }
            }
            TierRequest::Move(_) => return Err(TierFailure("no block is moved here".into())),
        })
    }

    /// Time passes for the service, and what it asks of its store is answered.
    fn pass(&mut self, time: Nanos) {
        self.now = self.now.saturating_add(time);
        self.serve(ServiceEvent::Durable(Revision(u64::MAX)));
        self.serve(ServiceEvent::Tick);
        for _ in 0..100_000 {
            if self.kv.pending() == 0 {
                return;
            }
            self.advance_kv();
        }
        panic!("the service does not come to rest");
    }

    fn advance_kv(&mut self) {
        if let Some((life, token, answer)) = self.kv.advance() {
            if u64::from(life) == self.life {
                self.serve(ServiceEvent::Kv(token, answer));
            }
        }
    }

    /// Asks over a connection of the test's own.
    pub fn ask_service(&mut self, connection: ConnectionId, request: Request) -> Answer {
        for _ in 0..1000 {
            self.next += 1;
            let number = RequestNumber(self.next);
            self.serve(ServiceEvent::Message(connection, number, request.clone()));
            while !self.answers.contains_key(&(connection, number)) {
                self.pass(Nanos::from_millis(1));
            }
            match self.answers.remove(&(connection, number)) {
                Some(Answer::Failed { error: crate::StoreError::Unavailable, .. }) => self.pass(Nanos::from_millis(5)),
                Some(answer) => return answer,
                None => {}
            }
        }
        panic!("{request:?} is not answered");
    }

    pub fn hello(&mut self, session: SessionWish) -> Option<(ConnectionId, crate::protocol::WelcomeInfo)> {
        self.next += 1;
        let connection = ConnectionId(self.next);
        let mut token = [9; 16];
        token[..8].copy_from_slice(&self.next.to_le_bytes());
        self.serve(ServiceEvent::Connected(connection, token));
        let (magic, version, location) = (PROTOCOL_MAGIC, PROTOCOL_VERSION, Location::default());
        let hello = Request::Hello { magic, version, client: "c".into(), location, session };
        match self.ask_service(connection, hello) {
            Answer::Welcome { welcome } => Some((connection, welcome)),
            Answer::Failed { error: crate::StoreError::SessionGone, .. } => None,
            other => panic!("{other:?}"),
        }
    }

    /// Another client; its number.
    pub fn client(&mut self, mutant: Option<Mutant>) -> usize {
        let sent = self.now;
        let (connection, welcome) = self.hello(SessionWish::New).expect("a session");
        let setup = ClientSetup { crc, room_timeout: Nanos::from_secs(20) };
        let machine = ClientMachine::new(setup, welcome, sent).expect("a client").with_mutant(mutant);
        let machine = if self.publishes_behind { machine.with_publish_behind(0) } else { machine };
        self.clients.push(SimClient {
            machine,
            memory: Memory::default(),
            connection: Some(connection),
            out: VecDeque::new(),
            answers: Vec::new(),
            wish: None,
            drives: BTreeMap::new(),
            opened: 0,
            finished: BTreeMap::new(),
            log: Vec::new(),
            instead: Vec::new(),
        });
        self.clients.len() - 1
    }

    /// A client takes an event.
    pub fn give(&mut self, who: usize, event: ClientEvent) {
        let client = &mut self.clients[who];
        let mut effects = Vec::new();
        client.machine.apply(self.now, event, &mut client.memory, &mut effects);
        client.machine.check();
        for effect in effects {
            self.carry_out(who, effect);
        }
    }

    fn carry_out(&mut self, who: usize, effect: ClientEffect) {
        let client = &mut self.clients[who];
        match effect {
            ClientEffect::Connect(wish) => client.wish = Some(wish),
            ClientEffect::Send(number, request) => {
                assert!(request.encode(number).is_some(), "a request is no longer than a message may be");
                client.log.push(request.clone());
                client.out.push_back((number, request));
            }
            ClientEffect::OpenDrive(id, info) => {
                client.opened += 1;
                let drive = SimDrive { namespace: info.namespace, commands: Vec::new(), late: Vec::new() };
                assert!(client.drives.insert(id, drive).is_none());
            }
            ClientEffect::CloseDrive(id) => {
                let drive = client.drives.remove(&id).expect("a drive that is open");
                assert!(drive.commands.is_empty() && drive.late.is_empty(), "a drive is closed that has something");
            }
            ClientEffect::Submit(drive, id, memory, command) => {
                assert!(client.machine.holds(self.now), "a command is sent while the lease holds");
                let at = AtDrive { id, memory, command, is_aborted: false };
                client.drives.get_mut(&drive).expect("a drive that is open").commands.push(at);
            }
            ClientEffect::Abort(drive, id) => {
                let drive = client.drives.get_mut(&drive).expect("a drive that is open");
                drive.commands.iter_mut().filter(|at| at.id == id).for_each(|at| at.is_aborted = true);
            }
            ClientEffect::Finish(work, outcome) => {
                assert!(client.finished.insert(work, outcome).is_none(), "a work ends once");
            }
        }
    }

    /// The connection of a client ends: what is on its way is lost, in both directions.
    pub fn disconnect(&mut self, who: usize) {
        let client = &mut self.clients[who];
        (client.out, client.answers) = (VecDeque::new(), Vec::new());
        if let Some(connection) = client.connection.take() {
            self.serve(ServiceEvent::Disconnected(connection));
            self.give(who, ClientEvent::Disconnected("the test has ended it".to_string()));
        }
    }

    /// The service's process dies, and another one begins over the same store.
    pub fn restart(&mut self) {
        (0..self.clients.len()).for_each(|who| self.disconnect(who));
        self.life += 1;
        self.service = Service::new(settings(self.life));
        self.begin();
    }

    pub fn reconnect(&mut self, who: usize) {
        let Some(wish) = self.clients[who].wish.take() else { return };
        match self.hello(wish) {
            Some((connection, welcome)) => {
                self.clients[who].connection = Some(connection);
                self.give(who, ClientEvent::Connected(Box::new(welcome)));
            }
            None => self.give(who, ClientEvent::Refused),
        }
    }

    /// A request of a client reaches the service.
    pub fn deliver_request(&mut self, who: usize) {
        let client = &mut self.clients[who];
        let Some(connection) = client.connection else { return };
        let Some((number, request)) = client.out.pop_front() else { return };
        if let Some(at) = client.instead.iter().position(|(kind, _)| *kind == request.kind()) {
            let (_, answer) = client.instead.remove(at);
            client.answers.push((number, answer));
            return;
        }
        self.serve(ServiceEvent::Message(connection, number, request));
    }

    /// An answer reaches a client: any of those on their way.
    pub fn deliver_answer(&mut self, who: usize) {
        if self.clients[who].answers.is_empty() {
            return;
        }
        let at = self.random.below(self.clients[who].answers.len() as u32) as usize;
        let (number, answer) = self.clients[who].answers.swap_remove(at);
        self.give(who, ClientEvent::Answer(number, answer));
    }

    /// A drive of a client does something: any of what it has.
    pub fn drive_goes_on(&mut self, who: usize) {
        let ready: Vec<DriveId> = self.clients[who]
            .drives
            .iter()
            .filter(|(_, drive)| !drive.commands.is_empty() || !drive.late.is_empty())
            .filter(|(_, drive)| {
                !self.stalled.contains(&drive.namespace) || drive.commands.iter().any(|at| at.is_aborted)
            })
            .map(|(id, _)| *id)
            .collect();
        if ready.is_empty() {
            return;
        }
        let id = ready[self.random.below(ready.len() as u32) as usize];
        let drive = self.clients[who].drives.get_mut(&id).expect("a drive");
        let namespace = drive.namespace;
        let is_stalled = self.stalled.contains(&namespace);
        let may = |at: &AtDrive| !is_stalled || at.is_aborted;
        let ready: Vec<usize> = (0..drive.commands.len()).filter(|at| may(&drive.commands[*at])).collect();
        if ready.is_empty() {
            if !is_stalled {
                self.settle_doubt(who, id);
            }
            return;
        }
        let at = ready[self.random.below(ready.len() as u32) as usize];
        let at = drive.commands.swap_remove(at);
        self.complete(who, id, &at);
    }

    /// What was given up is carried out, or never is.
    pub fn settle_doubt(&mut self, who: usize, id: DriveId) {
        let drive = self.clients[who].drives.get_mut(&id).expect("a drive");
        let (namespace, late) = (drive.namespace, core::mem::take(&mut drive.late));
        if late.is_empty() {
            return;
        }
        for (at, bytes) in late {
            if self.random.below(3) > 0 {
                self.media.get_mut(&namespace).expect("a medium").write(at, &bytes);
            }
        }
        self.give(who, ClientEvent::Doubt(id, false));
    }

    fn complete(&mut self, who: usize, id: DriveId, at: &AtDrive) {
        let client = &mut self.clients[who];
        let drive = client.drives.get_mut(&id).expect("a drive");
        let media = self.media.get_mut(&drive.namespace).expect("a medium");
        let fails = self.random.per_million(self.drive_failures);
        match at.command {
            DriveCommand::Write(offset, len, from) => {
                assert!(offset % PAGE == 0 && u64::from(len) % PAGE == 0, "whole sectors");
                let bytes = client.memory.bytes(at.memory, from, len).to_vec();
                match at.is_aborted {
                    // Nobody knows.
                    true if self.random.below(2) == 0 => {
                        drive.late.push((offset, bytes));
                        self.give(who, ClientEvent::Doubt(id, true));
                        return self.give(who, ClientEvent::Done(at.id, Err(DriveFailure)));
                    }
                    true => {}
                    false if fails => media.write(offset, &bytes[..bytes.len() / 2]),
                    false => media.write(offset, &bytes),
                }
            }
            DriveCommand::Read(offset, len, to) => media.read(offset, client.memory.bytes(at.memory, to, len)),
            DriveCommand::Flush => {}
        }
        let result = if at.is_aborted || fails { Err(DriveFailure) } else { Ok(()) };
        self.give(who, ClientEvent::Done(at.id, result));
    }

    /// One thing happens, whatever it is.
    pub fn go_on(&mut self) {
        let who = self.random.below(self.clients.len() as u32) as usize;
        match self.below(16) {
            0..4 => self.deliver_request(who),
            4..7 => self.deliver_answer(who),
            7..11 => self.drive_goes_on(who),
            11..14 if self.kv.pending() > 0 => self.advance_kv(),
            14 => self.reconnect(who),
            _ => self.tick(),
        }
    }

    /// A little time passes.
    pub fn tick(&mut self) {
        self.now = self.now.saturating_add(Nanos(1_000_000 + self.below(1_000_000)));
        self.serve(ServiceEvent::Durable(Revision(u64::MAX)));
        if self.below(8) == 0 {
            self.serve(ServiceEvent::Tick);
        }
        for who in 0..self.clients.len() {
            if self.clients[who].machine.due() <= self.now {
                self.give(who, ClientEvent::Tick);
                let due = self.clients[who].machine.due();
                assert!(due > self.now, "what was due is done: {}", self.clients[who].machine.describe());
            }
        }
    }

    /// Goes on until something is so.
    pub fn until(&mut self, what: &str, is_so: impl Fn(&World) -> bool) {
        for _ in 0..200_000 {
            if is_so(self) {
                return;
            }
            self.go_on();
        }
        let clients: Vec<String> = self.clients.iter().map(|client| client.machine.describe()).collect();
        panic!("{what}: it never is: {clients:?}");
    }

    /// Goes on for so long.
    pub fn run_for(&mut self, time: Nanos) {
        let end = self.now.saturating_add(time);
        while self.now < end {
            self.go_on();
        }
    }

    pub fn number(&mut self, who: usize) -> WorkId {
        self.clients[who].machine.number()
    }

    pub fn start_open(&mut self, who: usize, request: Request, until: Nanos) -> WorkId {
        let work = self.number(who);
        self.give(who, ClientEvent::Open(work, request, until));
        work
    }

    pub fn finish(&mut self, who: usize, work: WorkId) -> Outcome {
        self.until("a work ends", |world| world.clients[who].finished.contains_key(&work));
        self.clients[who].finished.remove(&work).expect("an outcome")
    }

    pub fn open(&mut self, who: usize, request: Request) -> OpenedFile {
        let work = self.start_open(who, request, FAR);
        match self.finish(who, work) {
            Outcome::Opened(Ok(opened)) => opened,
            other => panic!("{other:?}"),
        }
    }

    pub fn create(&mut self, who: usize, at: &str, copies: u8) -> OpenFileId {
        self.open(who, open_new(at, copies)).file
    }

    pub fn ask(&mut self, who: usize, request: Request) -> Result<Answer, ClientFailure> {
        let work = self.number(who);
        self.give(who, ClientEvent::Ask(work, request, FAR));
        match self.finish(who, work) {
            Outcome::Answer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// Begins work on a file, with memory of the bytes, or of so many that are to be read.
    pub fn start(&mut self, who: usize, file: OpenFileId, what: FileWork, bytes: &[u8], until: Nanos) -> WorkId {
        let work = self.number(who);
        let memory = match what {
            FileWork::Read(_, len) => vec![0xee; len as usize],
            _ => bytes.to_vec(),
        };
        self.clients[who].memory.callers.insert(work, memory);
        self.give(who, ClientEvent::Begin(work, file, what, until));
        work
    }

    /// What it comes to, with the memory.
    pub fn io(&mut self, who: usize, work: WorkId) -> (Result<u32, ClientFailure>, Vec<u8>) {
        match self.finish(who, work) {
            Outcome::Io(result) => (result, self.clients[who].memory.callers.remove(&work).expect("its memory")),
            other => panic!("{other:?}"),
        }
    }

    pub fn run(&mut self, who: usize, file: OpenFileId, what: FileWork, bytes: &[u8]) -> Result<u32, ClientFailure> {
        let work = self.start(who, file, what, bytes, FAR);
        self.io(who, work).0
    }

    pub fn write(&mut self, who: usize, file: OpenFileId, at: u64, bytes: &[u8]) -> Result<u32, ClientFailure> {
        self.run(who, file, FileWork::Write(at, bytes.len() as u32), bytes)
    }

    pub fn read(&mut self, who: usize, file: OpenFileId, at: u64, len: u32) -> Result<Vec<u8>, ClientFailure> {
        let work = self.start(who, file, FileWork::Read(at, len), b"", FAR);
        let (result, bytes) = self.io(who, work);
        result.map(|n| bytes[..n as usize].to_vec())
    }

    /// All bytes of a file, as a client that opens it now reads them.
    pub fn published(&mut self, at: &str) -> Vec<u8> {
        let who = self.client(None);
        let names = vec![name(at)];
        let found = self.ask(who, Request::Resolve { from: InodeId::ROOT, names, follow: true });
        let Ok(Answer::Found { at, .. }) = found else { panic!("{found:?}") };
        let file = self.open(who, Request::Open { at, write: false });
        let read = self.read(who, file.file, 0, 4 << 20).expect("a file that can be read");
        self.give(who, ClientEvent::Forget(file.file));
        read
    }

    /// What the session of a client was granted and has not published, and how many files it has open, as the service counts them.
    pub fn held(&mut self, who: usize) -> (u64, u64) {
        self.run_for(Nanos::from_millis(100));
        let session = self.clients[who].machine.welcome().session;
        let (operator, _) = self.hello(SessionWish::None).expect("an operator");
        match self.ask_service(operator, Request::Sessions {}) {
            Answer::Sessions { sessions } => {
                let info = sessions.into_iter().find(|info| Some(info.session) == session);
                info.map_or((0, 0), |info| (info.granted, info.handles))
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn namespaces(&mut self) -> Vec<NamespaceInfo> {
        let (operator, _) = self.hello(SessionWish::None).expect("an operator");
        match self.ask_service(operator, Request::Namespaces {}) {
            Answer::Namespaces { namespaces } => namespaces,
            other => panic!("{other:?}"),
        }
    }
}
