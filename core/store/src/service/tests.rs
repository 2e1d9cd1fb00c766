//! Whole conversations with a service, over a key-value store that is right and over one that is late, unsure, and answers twice.

mod demoted;
mod lacking;
mod mended;
mod moved;
mod numbers;
mod policies;
mod recovered;

use super::*;
use crate::class::ClassName;
use crate::extent::Extent;
use crate::file::NewBlock;
use crate::id::{InodeId, NamespaceId, ServiceId, SessionId};
use crate::inode::{Content, Inode, InodeKind, UnixNanos};
use crate::keys::KeySpace;
use crate::kv::{Commit, FaultyKv, KvFaults, KvKey, KvRequest, Revision};
use crate::location::Location;
use crate::members::LeaseTiming;
use crate::name::EntryName;
use crate::protocol::{
    Answer, Donation, NamespaceInfo, NamespaceState, PROTOCOL_MAGIC, PROTOCOL_VERSION, Request, RequestNumber,
    SessionWish,
};
use crate::records::{BlockRecord, Changed, MapChunk, SessionToken};
use crate::space::Epoch;
use crate::tree::{EntryPath, InodePath, NameChange, NewInode, SetAttributes};
use crate::{Generation, StoreError};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use weir_units::Nanos;

const LEASE: Nanos = Nanos::from_secs(2);
const BLOCK: u64 = 64 << 10;
const TARGET: &str = "nvme-tcp://127.0.0.1:4420/nqn?ns=1";

fn name(text: &str) -> EntryName {
    EntryName::new(text.as_bytes()).expect("a name")
}

fn class(text: &str) -> ClassName {
    ClassName::new(text).expect("a class")
}

/// A service, its store, its drives, and its clients' answers.
struct World {
    kv: FaultyKv,
    service: Service,
    life: u64,
    now: Nanos,
    /// Labels by target.
    drives: BTreeMap<String, LabelFound>,
    disks: recovered::Disks,
    /// Blocks are copied, and nobody is told yet.
    holds_moves: bool,
    held: Vec<(TierToken, Result<TierAnswer, TierFailure>)>,
    /// So many events more, and the process is dead.
    dies_in: Option<u64>,
    /// Of every drive.
    drive_bytes: u64,
    /// Of every process.
    tiering: crate::Tiering,
    answers: BTreeMap<(ConnectionId, RequestNumber), Answer>,
    closed: Vec<ConnectionId>,
    refused: Option<String>,
    /// What was sent to the key-value store.
    commits: Vec<Commit>,
    /// What each session is resumed with.
    tokens: BTreeMap<SessionId, SessionToken>,
    /// The calendar.
    wall: u64,
    /// The medium takes nothing for now.
    medium_stalls: bool,
    /// How often it was to take everything.
    syncs: u32,
    next: u64,
}

impl World {
    fn new(seed: u64, faults: KvFaults) -> Self {
        let drives = BTreeMap::from([(TARGET.into(), LabelFound::Blank)]);
        let mut world = Self {
            kv: FaultyKv::new(seed, faults),
            service: Service::new(settings(1)),
            life: 1,
            now: Nanos(1),
            drives,
            disks: recovered::Disks::default(),
            holds_moves: false,
            held: Vec::new(),
            dies_in: None,
            drive_bytes: 1 << 30,
            tiering: crate::Tiering::default(),
            answers: BTreeMap::new(),
            closed: Vec::new(),
            refused: None,
            commits: Vec::new(),
            tokens: BTreeMap::new(),
            wall: 1 << 60,
            medium_stalls: false,
            syncs: 0,
            next: 0,
        };
        world.begin();
        world
    }

    /// A store with one drive.
    fn with_drive(seed: u64, faults: KvFaults) -> Self {
        let mut world = Self::new(seed, KvFaults::default());
        let (operator, _) = world.connect(SessionWish::None);
        assert_eq!(world.donate(operator, TARGET, "dram", false), Answer::Donated { namespace: NamespaceId(1) });
        world.kv.set_faults(faults);
        world
    }

    fn begin(&mut self) {
        self.give(ServiceEvent::Start);
        for _ in 0..1000 {
            if self.service.is_ready() {
                return;
            }
            self.pass(Nanos::from_millis(20));
        }
        panic!("the service has not begun: {:?}", self.refused);
    }

    /// The policies are these from now on: the process is started again with them.
    fn set_tiering(&mut self, tiering: crate::Tiering, mutant: Option<crate::mutant::Mutant>) {
        self.tiering = tiering;
        self.restart_with(mutant);
    }

    /// The process dies, and another one begins over the same store. What was on its way is lost, or made.
    fn restart(&mut self) {
        self.restart_with(None);
    }

    /// The same, with a planted fault.
    fn restart_with(&mut self, mutant: Option<crate::mutant::Mutant>) {
        self.life += 1;
        let settings = ServiceSettings { tiering: self.tiering.clone(), ..settings(self.life) };
        self.service = Service::new(settings).with_mutant(mutant);
        self.begin();
    }

    fn give(&mut self, event: ServiceEvent) {
        if let Some(left) = &mut self.dies_in {
            let Some(fewer) = left.checked_sub(1) else { return };
            *left = fewer;
        }
        let mut effects = Vec::new();
        let wall = UnixNanos(self.wall + self.now.get());
        self.service.apply(self.now, wall, event, &mut effects);
        assert_eq!(self.service.check(), Ok(()));
        for effect in effects {
            match effect {
                ServiceEffect::Kv(token, KvRequest::Commit(commit)) => {
                    self.commits.push(commit.clone());
                    self.kv.send(self.life as u32, token, KvRequest::Commit(commit));
                }
                ServiceEffect::Kv(token, request) => self.kv.send(self.life as u32, token, request),
                ServiceEffect::Send(connection, number, answer) => {
                    if let Answer::Failed { error, detail } = &answer {
                        assert!(
                            !detail.is_empty() && !detail.starts_with(':'),
                            "{error} says what it is about: {detail:?}"
                        );
                    }
                    let before = self.answers.insert((connection, number), answer);
                    assert_eq!(before, None, "a request gets one answer");
                }
                ServiceEffect::Sync => {
                    self.syncs += 1;
                    if !self.medium_stalls {
                        self.give(ServiceEvent::Durable(self.kv.store().revision()));
                    }
                }
                ServiceEffect::Close(connection) => self.closed.push(connection),
                ServiceEffect::Tier(token, request) => {
                    let is_move = matches!(request, TierRequest::Move(_));
                    let answer = self.drive(request);
                    if is_move && self.holds_moves {
                        self.held.push((token, answer));
                        continue;
                    }
                    self.give(ServiceEvent::Tier(token, answer));
                }
                ServiceEffect::Refuse(why) => self.refused = Some(why),
            }
        }
    }

    fn drive(&mut self, request: TierRequest) -> Result<TierAnswer, TierFailure> {
        let gone = || TierFailure("connection refused".into());
        match request {
            TierRequest::ReadLabel { target } => {
                let found = *self.drives.get(&target).ok_or_else(gone)?;
                Ok(TierAnswer::Label { bytes: self.drive_bytes, sector: 4096, found })
            }
            TierRequest::WriteLabel { target, store, namespace, content } => {
                let found = self.drives.get_mut(&target).ok_or_else(gone)?;
                *found = LabelFound::Label { store, namespace, content };
                Ok(TierAnswer::Written)
            }
            TierRequest::Recover(block) => self.disks.recover(&block).map_err(TierFailure),
            TierRequest::Move(block) => self.disks.copy(&block).map_err(TierFailure),
        }
    }

    /// Lets everything come in that is on its way.
    fn settle(&mut self) {
        for _ in 0..100_000 {
            if self.kv.pending() == 0 {
                return;
            }
            if let Some((life, token, answer)) = self.kv.advance() {
                if u64::from(life) == self.life {
                    self.give(ServiceEvent::Kv(token, answer));
                }
            }
        }
        panic!("the service does not come to rest");
    }

    fn pass(&mut self, time: Nanos) {
        self.now = self.now.saturating_add(time);
        if !self.medium_stalls {
            self.give(ServiceEvent::Durable(self.kv.store().revision()));
        }
        self.give(ServiceEvent::Tick);
        self.settle();
    }

    fn ask(&mut self, connection: ConnectionId, request: Request) -> Answer {
        self.next += 1;
        let number = RequestNumber(self.next);
        self.give(ServiceEvent::Message(connection, number, request));
        self.settle();
        // What has failed once is tried again by and by.
        for _ in 0..1000 {
            if let Some(answer) = self.answers.remove(&(connection, number)) {
                return answer;
            }
            self.pass(Nanos::from_millis(10));
        }
        panic!("no answer");
    }

    /// Asks until the service can say.
    fn ask_until(&mut self, connection: ConnectionId, request: &Request) -> Answer {
        for _ in 0..200 {
            match self.ask(connection, request.clone()) {
                Answer::Failed { error: StoreError::Unavailable, .. } => self.pass(Nanos::from_millis(10)),
                answer => return answer,
            }
        }
        panic!("{request:?} is not answered");
    }

    fn connect(&mut self, session: SessionWish) -> (ConnectionId, Option<SessionId>) {
        self.next += 1;
        let connection = ConnectionId(self.next);
        let mut token = [9; 16];
        token[..8].copy_from_slice(&self.next.to_le_bytes());
        self.give(ServiceEvent::Connected(connection, token));
        let location = Location::default();
        let hello =
            Request::Hello { magic: PROTOCOL_MAGIC, version: PROTOCOL_VERSION, client: "c".into(), location, session };
        match self.ask_until(connection, &hello) {
            Answer::Welcome { welcome } => {
                welcome.session.map(|session| self.tokens.insert(session, welcome.token));
                (connection, welcome.session)
            }
            other => panic!("{other:?}"),
        }
    }

    /// The wish to go on with a session that was begun here.
    fn resume(&self, session: Option<SessionId>) -> SessionWish {
        let session = session.expect("a session");
        SessionWish::Resume(session, self.tokens[&session])
    }

    fn client(&mut self) -> ConnectionId {
        self.connect(SessionWish::New).0
    }

    fn donate(&mut self, connection: ConnectionId, target: &str, of: &str, overwrite: bool) -> Answer {
        let location = Location::default();
        let donation = Donation { target: target.into(), class: class(of), location, overwrite };
        let answer = self.ask_until(connection, &Request::Donate { donation });
        self.pass(Nanos::from_millis(10));
        answer
    }

    fn namespaces(&mut self, connection: ConnectionId) -> Vec<NamespaceInfo> {
        match self.ask_until(connection, &Request::Namespaces {}) {
            Answer::Namespaces { namespaces } => namespaces,
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, connection: ConnectionId, at: &str, sequence: u64, content: &[u8]) -> Answer {
        let entry = EntryPath { container: InodeId::ROOT, name: name(at) };
        let (slot, new, content) = (0, new_inode(), content.to_vec());
        self.ask_until(connection, &Request::OpenNew { slot, sequence, entry, new, content, exclusive: false })
    }

    fn file(&mut self, connection: ConnectionId, at: &str, sequence: u64) -> (u64, InodePath) {
        match self.create(connection, at, sequence, b"") {
            Answer::Opened { handle, at, .. } => (handle, at),
            other => panic!("{other:?}"),
        }
    }

    fn granted(&mut self, connection: ConnectionId, handle: u64, count: u32) -> Vec<NewBlock> {
        match self.ask_until(connection, &Request::Grant { handle, count }) {
            Answer::Granted { blocks } => blocks,
            other => panic!("{other:?}"),
        }
    }

    fn publish(
        &mut self,
        connection: ConnectionId,
        handle: u64,
        sequence: u64,
        size: u64,
        blocks: &[(u64, BlockRecord)],
    ) -> Answer {
        let blocks = blocks.to_vec();
        self.ask_until(connection, &Request::Publish { handle, slot: 0, sequence, size, blocks })
    }

    fn map(&mut self, connection: ConnectionId, handle: u64, chunk: u32) -> MapChunk {
        match self.ask_until(connection, &Request::Map { handle, chunk }) {
            Answer::Chunk { chunk, .. } => chunk,
            other => panic!("{other:?}"),
        }
    }

    fn stat(&mut self, connection: ConnectionId, path: &str) -> Result<(InodePath, Box<Inode>), StoreError> {
        let names = path.split('/').filter(|part| !part.is_empty()).map(name).collect();
        match self.ask_until(connection, &Request::Resolve { from: InodeId::ROOT, names, follow: true }) {
            Answer::Found { at, inode } => Ok((at, inode)),
            Answer::Failed { error, .. } => Err(error),
            other => panic!("{other:?}"),
        }
    }

    fn count(&self, space: KeySpace) -> usize {
        let begins = |key: &&KvKey| key.0.first() == Some(&(space as u8));
        self.kv.store().iter().map(|(key, _)| key).filter(begins).count()
    }
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
        repair_after: Nanos::from_secs(5),
        tiering: crate::Tiering::default(),
        fence_wait: Nanos::from_millis(500),
        classes: vec![class("dram"), class("flash")],
        block: BLOCK as u32,
        inline_max: 2048,
        durability: "process".into(),
        metadata: "memory".into(),
    }
}

fn new_inode() -> NewInode {
    NewInode {
        kind: InodeKind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        target: Vec::new(),
        classes: Vec::new(),
        location: Location::default(),
        copies: 1,
        block: 0,
    }
}

fn record(new: &NewBlock, length: u64) -> BlockRecord {
    let copies: Vec<Extent> = new.copies.iter().map(|copy| Extent { length: length.into(), ..*copy }).collect();
    let checksums = vec![7; length.div_ceil(BLOCK) as usize];
    BlockRecord { index: 0, generation: new.generation, is_unsettled: false, copies, checksums }
}

fn failed(answer: &Answer) -> Option<StoreError> {
    match answer {
        Answer::Failed { error, .. } => Some(*error),
        _ => None,
    }
}

/// The same conversation, as it was and with faults of the key-value store.
fn each(conversation: impl Fn(&mut World)) {
    conversation(&mut World::with_drive(1, KvFaults::default()));
    for seed in 0..20 {
        conversation(&mut World::with_drive(seed, KvFaults::all(30_000)));
    }
}

#[test]
fn a_file_is_written_read_and_deleted() {
    each(|world| {
        let (writer, reader) = (world.client(), world.client());
        let (handle, at) = world.file(writer, "a", 1);
        let blocks = world.granted(writer, handle, 4);
        assert_eq!(blocks.len(), 4);
        let published: Vec<_> = (0..).zip(&blocks[..3]).map(|(n, new)| (n, record(new, BLOCK))).collect();
        let told = world.publish(writer, handle, 2, 3 * BLOCK - 5, &published);
        assert!(matches!(told, Answer::Changed { changed: Changed { inode, .. } } if inode == at.inode), "{told:?}");
        // Sent again it gets the same answer.
        assert_eq!(world.publish(writer, handle, 2, 3 * BLOCK - 5, &published), told);
        assert_eq!(failed(&world.publish(writer, handle, 1, 0, &[])), Some(StoreError::OldSequence));
        let (found, inode) = world.stat(reader, "/a").expect("a file");
        assert_eq!((inode.size, &inode.content, found), (3 * BLOCK - 5, &Content::Mapped, at));
        let opened = world.ask_until(reader, &Request::Open { at, write: false });
        let Answer::Opened { handle: other, .. } = opened else { panic!("{opened:?}") };
        let chunk = world.map(reader, other, 0);
        assert_eq!(chunk.blocks.iter().map(|block| block.index).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(chunk.blocks[1].copies, published[1].1.copies);
        // Deleted it stays until nobody has it open.
        let delete =
            NameChange::Delete { entry: EntryPath { container: InodeId::ROOT, name: name("a") }, recursive: false };
        let deleted = world.ask_until(writer, &Request::Change { slot: 0, sequence: 3, change: delete });
        assert!(matches!(deleted, Answer::Changed { .. }), "{deleted:?}");
        for _ in 0..10 {
            world.pass(Nanos::from_millis(300));
            [writer, reader].into_iter().for_each(|client| drop(world.ask(client, Request::Renew { epoch: Epoch(0) })));
        }
        assert_eq!(world.map(reader, other, 0), chunk);
        assert_eq!(world.ask_until(writer, &Request::Close { handle }), Answer::Done {});
        assert_eq!(world.ask_until(reader, &Request::Close { handle: other }), Answer::Done {});
        (0..5).for_each(|_| world.pass(Nanos::from_millis(20)));
        // A task that gave up is begun again with the next sweep.
        for _ in 0..8 {
            if world.count(KeySpace::Orphan) > 0 {
                world.pass(Nanos::from_secs(60));
            }
        }
        let left = [KeySpace::MapChunk, KeySpace::Orphan, KeySpace::Writer].map(|space| world.count(space));
        assert_eq!(left, [0; 3], "map, orphan and writer are gone");
    });
}

#[test]
fn freed_blocks_are_free_when_all_sessions_have_let_go() {
    let mut world = World::with_drive(1, KvFaults::default());
    let client = world.client();
    let (handle, _) = world.file(client, "a", 1);
    let free = world.namespaces(client)[0].free;
    let blocks = world.granted(client, handle, 2);
    let published: Vec<_> = (0..).zip(&blocks).map(|(n, new)| (n, record(new, BLOCK))).collect();
    world.publish(client, handle, 2, 2 * BLOCK, &published);
    let info = world.namespaces(client).remove(0);
    assert_eq!((info.mapped, info.granted, info.free), (2 * BLOCK, 0, free - 2 * BLOCK));
    // Cut to nothing.
    let told = world.publish(client, handle, 3, 0, &[]);
    assert!(matches!(told, Answer::Changed { .. }), "{told:?}");
    assert_eq!(world.map(client, handle, 0), MapChunk::default());
    let mut epoch = Epoch(0);
    assert_eq!(world.namespaces(client)[0].quarantined, 2 * BLOCK);
    for _ in 0..10 {
        world.pass(Nanos::from_millis(50));
        assert_eq!(world.namespaces(client)[0].quarantined, 2 * BLOCK, "the session has not acknowledged");
    }
    for _ in 0..10 {
        match world.ask_until(client, &Request::Renew { epoch }) {
            Answer::Renewed { epoch: newest } => epoch = newest,
            other => panic!("{other:?}"),
        }
        world.pass(Nanos::from_millis(50));
    }
    assert_eq!(world.namespaces(client)[0].free, free);
}

#[test]
fn one_session_writes_at_a_time() {
    each(|world| {
        let (one, other) = (world.client(), world.client());
        let (handle, at) = world.file(one, "a", 1);
        let open = Request::Open { at, write: true };
        assert_eq!(failed(&world.ask_until(other, &open)), Some(StoreError::Busy));
        assert_eq!(failed(&world.create(other, "a", 1, b"")), Some(StoreError::Busy));
        let small = NameChange::WriteInline(at, b"x".to_vec());
        let answer = world.ask_until(other, &Request::Change { slot: 0, sequence: 2, change: small });
        assert_eq!(failed(&answer), Some(StoreError::Busy));
        assert_eq!(world.ask_until(one, &Request::Close { handle }), Answer::Done {});
        let opened = world.ask_until(other, &open);
        let Answer::Opened { handle: second, .. } = opened else { panic!("{opened:?}") };
        // The first handle is closed, and the other session's is none of the first's.
        for handle in [handle, second, 0, u64::MAX] {
            for request in [
                Request::Publish { handle, slot: 0, sequence: 9, size: 1, blocks: Vec::new() },
                Request::Grant { handle, count: 1 },
                Request::Map { handle, chunk: 0 },
                Request::Unsettle { handle, block: 0 },
                Request::MarkOut { handle, block: 0, copies: Vec::new() },
                Request::Close { handle },
            ] {
                assert_eq!(failed(&world.ask_until(one, &request)), Some(StoreError::NotOpen), "{request:?}");
            }
        }
        assert!(matches!(world.publish(other, second, 3, 5, &[]), Answer::Changed { .. }));
    });
}

#[test]
fn other_peoples_grants_and_blocks_that_cannot_be_are_refused() {
    let mut world = World::with_drive(1, KvFaults::default());
    let (one, other) = (world.client(), world.client());
    let (mine, _) = world.file(one, "a", 1);
    let (theirs, _) = world.file(other, "b", 1);
    let granted = world.granted(one, mine, 1);
    let good = record(&granted[0], BLOCK);
    assert_eq!(failed(&world.publish(other, theirs, 2, BLOCK, &[(0, good.clone())])), Some(StoreError::NotGranted));
    let back = Request::Return { extents: good.copies.clone() };
    assert_eq!(failed(&world.ask_until(other, &back)), Some(StoreError::NotGranted));
    let beyond = Extent { offset: (1 << 40).into(), ..good.copies[0] };
    for (bad, error) in [
        (BlockRecord { copies: Vec::new(), ..good.clone() }, StoreError::Malformed),
        (BlockRecord { checksums: vec![1, 2], ..good.clone() }, StoreError::Malformed),
        (BlockRecord { copies: vec![good.copies[0]; 5], ..good.clone() }, StoreError::Malformed),
        (BlockRecord { copies: vec![good.copies[0]; 2], ..good.clone() }, StoreError::Malformed),
        (record(&granted[0], 0), StoreError::Malformed),
        (record(&granted[0], 100), StoreError::NotGranted),
        (BlockRecord { copies: vec![beyond], ..good.clone() }, StoreError::NotGranted),
    ] {
        assert_eq!(failed(&world.publish(one, mine, 2, BLOCK, &[(0, bad.clone())])), Some(error), "{bad:?}");
    }
    for (size, blocks) in [
        (BLOCK, vec![(1, good.clone())]),
        (u64::MAX, vec![(u64::MAX, good.clone())]),
        (4 * BLOCK, vec![(1, good.clone()), (0, good.clone())]),
    ] {
        assert_eq!(failed(&world.publish(one, mine, 2, size, &blocks)), Some(StoreError::Malformed));
    }
    let chunk = Request::MarkOut { handle: mine, block: 0, copies: good.copies.clone() };
    assert_eq!(failed(&world.ask_until(one, &chunk)), Some(StoreError::Malformed));
    // After all that the good one is published.
    assert!(matches!(world.publish(one, mine, 3, BLOCK, &[(0, good)]), Answer::Changed { .. }));
}

#[test]
fn large_files_are_published_and_cut_in_steps() {
    each(|world| {
        let client = world.client();
        let (handle, at) = world.file(client, "a", 1);
        let mut blocks = Vec::new();
        for _ in 0..8 {
            blocks.extend(world.granted(client, handle, 100));
            if blocks.len() >= 200 {
                break;
            }
        }
        blocks.truncate(200);
        let published: Vec<_> = (0..).zip(&blocks).map(|(n, new)| (n * 3, record(new, BLOCK))).collect();
        let size = 600 * BLOCK;
        assert!(matches!(world.publish(client, handle, 2, size, &published), Answer::Changed { .. }));
        let count =
            |world: &mut World| (0..3).map(|chunk| world.map(client, handle, chunk).blocks.len()).sum::<usize>();
        assert_eq!((count(world), world.stat(client, "a").expect("a file").1.size), (200, size));
        // Some of them again, over the old ones, and the file cut in the middle.
        let again = world.granted(client, handle, 30);
        let over: Vec<_> = (0..).zip(&again).map(|(n, new)| (n * 3, record(new, BLOCK))).collect();
        assert!(matches!(world.publish(client, handle, 3, 100 * BLOCK, &over), Answer::Changed { .. }));
        assert_eq!((count(world), world.stat(client, "a").expect("a file").1.size), (34, 100 * BLOCK));
        assert!(matches!(world.publish(client, handle, 4, 1, &[]), Answer::Changed { .. }));
        assert_eq!(count(world), 1);
        let info = world.namespaces(client).remove(0);
        assert_eq!(info.mapped, BLOCK, "of {at:?}");
        assert_eq!(info.granted, 0);
    });
}

#[test]
fn blocks_are_marked_and_cut_tails_given_up() {
    let mut world = World::with_drive(1, KvFaults::default());
    let client = world.client();
    let (handle, _) = world.file(client, "a", 1);
    let granted = world.granted(client, handle, 2);
    let tail = record(&granted[0], 8192);
    assert!(matches!(world.publish(client, handle, 2, 5000, &[(0, tail.clone())]), Answer::Changed { .. }));
    assert_eq!(world.namespaces(client)[0].mapped, 8192);
    for _ in 0..2 {
        assert_eq!(world.ask_until(client, &Request::Unsettle { handle, block: 0 }), Answer::Done {});
        assert!(world.map(client, handle, 0).blocks[0].is_unsettled);
    }
    // Settled, and shorter.
    assert!(matches!(world.publish(client, handle, 3, 100, &[(0, record(&granted[0], 4096))]), Answer::Changed { .. }));
    let block = world.map(client, handle, 0).blocks.remove(0);
    assert!(!block.is_unsettled && block.copies[0].length.get() == 4096);
    let info = world.namespaces(client).remove(0);
    assert_eq!((info.mapped, info.quarantined), (4096, 4096));
    // The tail is replaced by a whole block.
    let whole = record(&granted[1], BLOCK);
    assert!(matches!(world.publish(client, handle, 4, 9000, &[(0, whole.clone())]), Answer::Changed { .. }));
    let info = world.namespaces(client).remove(0);
    assert_eq!((info.mapped, info.quarantined), (BLOCK, 8192));
    let keep = Request::MarkOut { handle, block: 0, copies: whole.copies };
    assert_eq!(world.ask_until(client, &keep), Answer::Done {});
    let none = Request::MarkOut { handle, block: 0, copies: Vec::new() };
    assert_eq!(failed(&world.ask_until(client, &none)), Some(StoreError::Malformed));
}

#[test]
fn a_lost_session_leaves_nothing_behind() {
    each(|world| {
        let (lost, other) = (world.client(), world.connect(SessionWish::New));
        let (handle, at) = world.file(lost, "a", 1);
        world.granted(lost, handle, 4);
        world.give(ServiceEvent::Disconnected(lost));
        let open = Request::Open { at, write: true };
        assert_eq!(failed(&world.ask_until(other.0, &open)), Some(StoreError::Busy), "its lease goes on");
        // The other one renews, and the lost one does not.
        let mut opened = None;
        for _ in 0..400 {
            world.pass(Nanos::from_millis(100));
            world.ask(other.0, Request::Renew { epoch: Epoch(0) });
            match world.ask_until(other.0, &open) {
                Answer::Opened { .. } => {
                    opened = Some(world.now);
                    break;
                }
                busy => assert_eq!(failed(&busy), Some(StoreError::Busy)),
            }
        }
        assert!(opened.is_some_and(|at| at >= LEASE), "the file is the other session's to write: {opened:?}");
        (0..40).for_each(|_| {
            world.pass(Nanos::from_millis(100));
            world.ask(other.0, Request::Renew { epoch: Epoch(0) });
        });
        assert_eq!(world.namespaces(other.0)[0].granted, 0, "its grants are in quarantine");
        let mine = |key: &KvKey| key.0[0] == KeySpace::Answer as u8;
        let answers = world.kv.store().iter().filter(|(key, _)| mine(key)).count();
        assert!(answers <= 4, "the answers that were kept for it are gone: {answers}");
    });
}

#[test]
fn a_service_that_begins_again_knows_everything_that_it_has_told() {
    each(|world| {
        let (client, session) = world.connect(SessionWish::New);
        let (handle, at) = world.file(client, "a", 1);
        let blocks = world.granted(client, handle, 3);
        let published: Vec<_> = (0..).zip(&blocks[..2]).map(|(n, new)| (n, record(new, BLOCK))).collect();
        let told = world.publish(client, handle, 2, 2 * BLOCK, &published);
        let before = world.namespaces(client);
        world.restart();
        let (client, resumed) = world.connect(world.resume(session));
        assert_eq!(resumed, session);
        for _ in 0..200 {
            if world.namespaces(client) == before {
                break;
            }
            world.pass(Nanos::from_millis(20));
        }
        assert_eq!(world.namespaces(client), before, "blocks are whose they were");
        assert_eq!(failed(&world.ask_until(client, &Request::Map { handle, chunk: 0 })), Some(StoreError::NotOpen));
        let opened = world.ask_until(client, &Request::Open { at, write: true });
        let Answer::Opened { handle, inode, .. } = opened else { panic!("{opened:?}") };
        assert_eq!(inode.size, 2 * BLOCK);
        // What was sent before gets its answer; a block that was granted before can be published.
        assert_eq!(world.publish(client, handle, 2, 2 * BLOCK, &published), told);
        let third = record(&blocks[2], BLOCK);
        assert!(matches!(world.publish(client, handle, 3, 3 * BLOCK, &[(2, third)]), Answer::Changed { .. }));
        assert_eq!(world.map(client, handle, 0).blocks.len(), 3);
    });
}

#[test]
fn small_files_lie_in_their_inode_until_they_grow() {
    let mut world = World::with_drive(1, KvFaults::default());
    let client = world.client();
    let opened = world.create(client, "a", 1, b"hello");
    let Answer::Opened { handle, inode, at } = opened else { panic!("{opened:?}") };
    assert_eq!((inode.size, inode.content), (5, Content::Inline(b"hello".to_vec())));
    assert_eq!(failed(&world.create(client, "b", 2, &[0; 2049])), Some(StoreError::TooLarge(2048)));
    assert!(matches!(world.publish(client, handle, 3, 3, &[]), Answer::Changed { .. }));
    let inode = world.stat(client, "a").expect("a file").1;
    assert_eq!((inode.size, &inode.content), (3, &Content::Inline(b"hel".to_vec())));
    let blocks = world.granted(client, handle, 1);
    let grown = world.publish(client, handle, 4, BLOCK, &[(0, record(&blocks[0], BLOCK))]);
    assert!(matches!(grown, Answer::Changed { .. }), "{grown:?}");
    assert_eq!(world.stat(client, "a").expect("a file").1.content, Content::Mapped);
    let set = NameChange::SetAttributes(at, SetAttributes { size: Some(1), ..SetAttributes::default() });
    let answer = world.ask_until(client, &Request::Change { slot: 0, sequence: 5, change: set });
    assert_eq!(failed(&answer), Some(StoreError::NotInline));
}

#[test]
fn paths_lead_through_symlinks() {
    let mut world = World::with_drive(1, KvFaults::default());
    let client = world.client();
    let mut sequence = 0;
    let mut make = |world: &mut World, container, at: &str, kind, target: &str| {
        sequence += 1;
        let new = NewInode { kind, target: target.as_bytes().to_vec(), ..new_inode() };
        let change = NameChange::Create(EntryPath { container, name: name(at) }, new);
        match world.ask_until(client, &Request::Change { slot: 0, sequence, change }) {
            Answer::Changed { changed } => changed.inode,
            other => panic!("{other:?}"),
        }
    };
    let d = make(&mut world, InodeId::ROOT, "d", InodeKind::Directory, "");
    let e = make(&mut world, d, "e", InodeKind::Directory, "");
    let f = make(&mut world, e, "f", InodeKind::File, "");
    make(&mut world, e, "up", InodeKind::Symlink, "../e/./f");
    make(&mut world, InodeId::ROOT, "abs", InodeKind::Symlink, "/d/e");
    make(&mut world, InodeId::ROOT, "loop", InodeKind::Symlink, "loop/x");
    make(&mut world, InodeId::ROOT, "out", InodeKind::Symlink, "../../d");
    let inode = |world: &mut World, path: &str| world.stat(client, path).map(|(at, _)| at.inode);
    for (path, expected) in [
        ("/", Ok(InodeId::ROOT)),
        ("/d/e/f", Ok(f)),
        ("/d/e/up", Ok(f)),
        ("/abs/up", Ok(f)),
        ("/abs", Ok(e)),
        ("/out", Ok(d)),
        ("/loop", Err(StoreError::TooManyLinks)),
        ("/d/e/f/g", Err(StoreError::NotDirectory)),
        ("/d/x/f", Err(StoreError::NotFound)),
    ] {
        assert_eq!(inode(&mut world, path), expected, "{path}");
    }
    let list = world.ask_until(client, &Request::List { container: e, after: None, most: 10 });
    let Answer::Page { entries, is_last: true, .. } = list else { panic!("{list:?}") };
    assert_eq!(entries.iter().map(|entry| entry.name.to_string()).collect::<Vec<_>>(), ["f", "up"]);
}

#[test]
fn drives_with_something_else_are_refused() {
    let mut world = World::with_drive(1, KvFaults::default());
    let (operator, _) = world.connect(SessionWish::None);
    let second = "nvme-tcp://127.0.0.1:4420/nqn?ns=2";
    assert_eq!(failed(&world.donate(operator, second, "dram", false)), Some(StoreError::Unreachable));
    world.drives.insert(second.into(), LabelFound::Foreign);
    assert_eq!(failed(&world.donate(operator, second, "dram", false)), Some(StoreError::Foreign));
    assert_eq!(failed(&world.donate(operator, second, "tape", false)), Some(StoreError::NoClass));
    assert_eq!(world.donate(operator, second, "flash", true), Answer::Donated { namespace: NamespaceId(2) });
    // Again: it is the same. Its label elsewhere: it is in use.
    assert_eq!(world.donate(operator, second, "flash", false), Answer::Donated { namespace: NamespaceId(2) });
    world.drives.insert("copy".into(), world.drives[second]);
    assert_eq!(failed(&world.donate(operator, "copy", "flash", false)), Some(StoreError::InUse));
    // Its content is gone: it begins anew under another number, and the old one is lost.
    world.drives.insert(second.into(), LabelFound::Blank);
    assert_eq!(world.donate(operator, second, "flash", false), Answer::Donated { namespace: NamespaceId(3) });
    let states = |world: &mut World| world.namespaces(operator).into_iter().map(|info| info.state).collect::<Vec<_>>();
    assert_eq!(states(&mut world), [NamespaceState::Up, NamespaceState::Lost, NamespaceState::Up]);
    // After a restart a swapped drive is not taken for the one that it was.
    world.drives.insert(TARGET.into(), LabelFound::Blank);
    world.restart();
    let (operator, _) = world.connect(SessionWish::None);
    let states = |world: &mut World| world.namespaces(operator).into_iter().map(|info| info.state).collect::<Vec<_>>();
    assert_eq!(states(&mut world), [NamespaceState::Lost, NamespaceState::Lost, NamespaceState::Up]);
    // A drive that nothing is on can leave.
    let drain = Request::Drain { namespace: NamespaceId(3), drains: true };
    let remove = Request::Remove { namespace: NamespaceId(3) };
    assert_eq!(failed(&world.ask_until(operator, &remove)), Some(StoreError::InUse));
    assert_eq!(world.ask_until(operator, &drain), Answer::Done {});
    assert_eq!(world.ask_until(operator, &remove), Answer::Done {});
    assert_eq!(failed(&world.ask_until(operator, &remove)), Some(StoreError::NoNamespace));
    let client = world.client();
    let (handle, _) = world.file(client, "a", 1);
    assert_eq!(failed(&world.ask_until(client, &Request::Grant { handle, count: 1 })), Some(StoreError::NoSpace));
}

#[test]
fn who_does_not_greet_is_shown_out() {
    let mut world = World::with_drive(1, KvFaults::default());
    let hello = |magic, version, session| Request::Hello {
        magic,
        version,
        client: "c".into(),
        location: Location::default(),
        session,
    };
    for (first, refused) in [
        (Request::Status {}, false),
        (hello(1, PROTOCOL_VERSION, SessionWish::New), false),
        (hello(PROTOCOL_MAGIC, 99, SessionWish::New), true),
    ] {
        world.next += 1;
        let connection = ConnectionId(world.next);
        world.give(ServiceEvent::Connected(connection, [0; 16]));
        world.give(ServiceEvent::Message(connection, RequestNumber(1), first));
        assert_eq!(world.closed.pop(), Some(connection));
        let answer = world.answers.remove(&(connection, RequestNumber(1)));
        assert_eq!(answer.and_then(|answer| failed(&answer)), refused.then_some(StoreError::Version(PROTOCOL_VERSION)));
    }
    world.next += 1;
    let connection = ConnectionId(world.next);
    world.give(ServiceEvent::Connected(connection, [0; 16]));
    let gone = hello(PROTOCOL_MAGIC, PROTOCOL_VERSION, SessionWish::Resume(SessionId(99), [0; 16]));
    assert_eq!(failed(&world.ask(connection, gone)), Some(StoreError::SessionGone));
    let (operator, _) = world.connect(SessionWish::None);
    for request in [Request::Grant { handle: 1, count: 1 }, Request::Bye {}, Request::Renew { epoch: Epoch(0) }] {
        assert_eq!(failed(&world.ask(operator, request)), Some(StoreError::NoSession));
    }
    let client = world.client();
    let own =
        NameChange::File(crate::tree::FileChange::CloseWriter(InodePath { inode: InodeId(2), parent: InodeId::ROOT }));
    for (slot, sequence) in [(1, 1), (1 << 15, 1), (1, 0)] {
        let request = Request::Change { slot, sequence, change: own.clone() };
        assert_eq!(failed(&world.ask(client, request)), Some(StoreError::Malformed));
    }
    assert_eq!(world.ask(client, Request::Bye {}), Answer::Done {});
    assert_eq!(failed(&world.ask(client, Request::Renew { epoch: Epoch(0) })), Some(StoreError::NoSession));
}

#[test]
fn classes_keep_their_numbers() {
    let mut world = World::new(1, KvFaults::default());
    world.life += 1;
    let classes = vec![class("flash"), class("dram")];
    world.service = Service::new(ServiceSettings { classes, ..settings(2) });
    world.give(ServiceEvent::Start);
    world.settle();
    assert!(world.refused.as_ref().is_some_and(|why| why.contains("dram, flash")), "{:?}", world.refused);
    world.life += 1;
    let classes = vec![class("dram"), class("flash"), class("tape")];
    world.service = Service::new(ServiceSettings { classes: classes.clone(), ..settings(3) });
    world.begin();
    assert_eq!(world.service.classes.names, classes);
    assert_eq!(Generation::default(), Generation(0));
}

#[test]
fn more_copies_than_nodes_are_refused_as_that() {
    let mut world = World::with_drive(1, KvFaults::default());
    let client = world.client();
    let entry = EntryPath { container: InodeId::ROOT, name: name("a") };
    let new = NewInode { copies: 2, ..new_inode() };
    let open = Request::OpenNew { slot: 0, sequence: 1, entry, new, content: Vec::new(), exclusive: false };
    let Answer::Opened { handle, .. } = world.ask_until(client, &open) else { panic!("it is opened") };
    let grant = Request::Grant { handle, count: 1 };
    for _ in 0..2 {
        assert_eq!(failed(&world.ask_until(client, &grant)), Some(StoreError::TooFewNodes(1)));
    }
}
