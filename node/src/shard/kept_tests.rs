//! Shards that follow each other under clients whose sockets a keeper has, and which of them dies when: production code from the door down,
//! with a keeper and a client made of a few lines.

use super::*;
use crate::device::Device;
use crate::door::{vfio_user, vhost_user};
use crate::held_names::{FRONTS, PLAIN_FRONTS, RELAYS, SOCKETS};
use crate::listen::BindError;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_config::{DeviceConfig, Doorbells};
use weir_controller::{ClassFrom, SubsystemConfig as MachineConfig};
use weir_keeper::Relay;
use weir_session::vfio_user::{Inbox, Message};
use weir_spec::vfio_user::{Command, Header};
use weir_sys::keeper_channel::{Channel, Introduction, ToKeeper, ToWorker};

/// Where the client's memory lies for the drive, and what lies where in it.
const DMA: u64 = 0x1_0000_0000;
const ASQ: u64 = 0;
const ACQ: u64 = 0x1000;
const SQ: u64 = 0x2000;
const CQ: u64 = 0x3000;
const ENTRIES: u32 = 8;

/// What is held by name, whoever serves.
#[derive(Default)]
struct Keeper {
    held: BTreeMap<String, Vec<OwnedFd>>,
    channel: Option<Channel>,
    workers: u64,
}

impl Keeper {
    /// A shard with one drive, told what is held.
    fn next(&mut self) -> Shard {
        let (channel, theirs) = Channel::pair().unwrap();
        for (name, fds) in &self.held {
            channel.tell(&ToWorker::Held(name.clone()), &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>()).unwrap();
        }
        channel.tell(&ToWorker::Go(self.workers), &[]).unwrap();
        self.workers += 1;
        let keep = Keep::join(theirs, "", |_| None).unwrap();
        self.channel = Some(channel);
        let (_, mailbox) = mpsc::channel();
        let doors = Doors {
            nvme_tcp: nvme_tcp::Door::new(&Default::default(), &[], nvme_tcp::Admission::new(&Default::default(), 0)),
            vhost_user: vhost_user::Door::new(),
            vfio_user: vfio_user::Door::new(),
            spoiled: Default::default(),
        };
        let directory = Arc::new(Directory::new(Vec::new()));
        let reactor = Reactor::new().unwrap();
        let mut shard = Shard::new(0, reactor, mailbox, Idle::never(), Drives::default(), doors, directory);
        let config = DeviceConfig::from_query("null", "capacity=16MiB").unwrap();
        let machine =
            MachineConfig { max_io_queues: 2, max_queue_entries: 16, ..MachineConfig::new("nqn.2026-01.test.weir:a") };
        shard.drives.push(Device::open(&config, machine, shard.reactor.now()).unwrap());
        shard.keep = keep;
        shard
    }

    /// Takes what the worker has said.
    fn hear(&mut self) {
        while let Some((word, fds)) = self.channel.as_ref().and_then(|channel| channel.hear().unwrap()) {
            match word {
                ToKeeper::Hold(name) => drop(self.held.insert(name, fds)),
                ToKeeper::Release(name) => drop(self.held.remove(&name)),
                _ => {}
            }
        }
    }

    fn names(&self) -> Vec<&str> {
        self.held.keys().map(String::as_str).collect()
    }
}

/// A folder of its own, gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("weir-kept-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn export(shard: &mut Shard, path: &Path, doorbells: Doorbells, journal: bool) -> Result<(), BindError> {
    let config = vfio_user::ExportConfig {
        path: path.to_owned(),
        drive: 0,
        tenant: 0,
        tenant_name: "gold".into(),
        class_from: ClassFrom::Tenant,
        doorbells,
        serial: 1,
        journal,
    };
    shard.with_doors(|doors, cx| doors.vfio_user.export(config, cx))
}

/// A client, and the keeper's end of its conversation.
struct Client {
    path: PathBuf,
    relay: Relay<Rc<OwnedFd>>,
    line: Option<(UnixStream, Inbox<OwnedFd>)>,
    replies: Vec<Message<Rc<OwnedFd>>>,
    memory: std::fs::File,
    id: u16,
    tails: [u32; 2],
    heads: [u32; 2],
}

impl Client {
    fn new(path: &Path) -> Self {
        let memory = weir_sys::memory::sealed_file("test", 1 << 16).unwrap().into();
        let (path, relay) = (path.to_owned(), Relay::new());
        Self { path, relay, line: None, replies: Vec::new(), memory, id: 0, tails: [0; 2], heads: [0; 2] }
    }

    /// The worker is told of it, with what has had no effect yet.
    fn meet(&mut self, shard: &mut Shard, number: u64) {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        self.relay.told(number);
        for envelope in self.relay.again() {
            let fds: Vec<BorrowedFd> = envelope.fds.iter().map(|fd| fd.as_fd()).collect();
            weir_sys::transport::fds::send_some(&ours, &envelope.bytes, &fds).unwrap();
        }
        ours.flush().unwrap();
        ours.set_nonblocking(true).unwrap();
        self.line = Some((ours, Inbox::default()));
        let met = Introduction { number, pid: None, path: self.path.display().to_string() };
        shard.with_doors(|doors, cx| doors.vfio_user.adopt(met, theirs, cx));
    }

    fn send(&mut self, command: Command, payload: &[u8], fds: Vec<OwnedFd>) {
        self.id += 1;
        let header = Header::command(self.id, command, payload.len());
        let fds = fds.into_iter().map(Rc::new).collect();
        let envelope = self.relay.front(Message { header, payload: payload.to_vec(), fds });
        let fds: Vec<BorrowedFd> = envelope.fds.iter().map(|fd| fd.as_fd()).collect();
        let (line, _) = self.line.as_ref().unwrap();
        let sent = weir_sys::transport::fds::send_some(line, &envelope.bytes, &fds).unwrap();
        assert_eq!(sent, envelope.bytes.len());
    }

    fn hear(&mut self) {
        let Some((line, inbox)) = &mut self.line else { return };
        loop {
            let count = match line.read(inbox.space()) {
                Ok(0) => panic!("the worker has hung up"),
                Ok(count) => count,
                Err(_) => return,
            };
            let Some(message) = inbox.advance(count, Vec::new()).unwrap() else { continue };
            let Message { header, payload, .. } = message;
            let passed = self.relay.back(Message { header, payload, fds: Vec::new() }).unwrap();
            if let Some(envelope) = passed {
                let (head, payload) = envelope.bytes.split_at(Header::LEN);
                let header = zerocopy::FromBytes::read_from_bytes(head).unwrap();
                self.replies.push(Message { header, payload: payload.to_vec(), fds: Vec::new() });
            }
        }
    }

    /// Turns until something is so.
    fn until(&mut self, shard: &mut Shard, mut is: impl FnMut(&mut Self) -> bool) {
        for _ in 0..10_000 {
            turn(shard);
            self.hear();
            if is(self) {
                return;
            }
        }
        panic!("it does not come");
    }

    fn call(&mut self, shard: &mut Shard, command: Command, payload: &[u8], fds: Vec<OwnedFd>) -> Vec<u8> {
        self.send(command, payload, fds);
        let id = self.id;
        self.until(shard, |client| client.replies.iter().any(|reply| reply.header.id.get() == id));
        let at = self.replies.iter().position(|reply| reply.header.id.get() == id).unwrap();
        let reply = self.replies.remove(at);
        assert_eq!(reply.header.flags.get() & 0x2f, 1, "{reply:?}");
        reply.payload
    }

    fn write(&mut self, shard: &mut Shard, offset: u64, bytes: &[u8]) {
        self.call(shard, Command::REGION_WRITE, &access(offset, bytes), Vec::new());
    }

    /// Enables the controller and makes a pair of queues.
    fn start(&mut self, shard: &mut Shard) {
        self.call(shard, Command::VERSION, &[&[0, 0, 1, 0][..], b"{\"capabilities\":{}}\0"].concat(), Vec::new());
        let map = [words(&[32, 3]), [0, DMA, 1 << 16].into_iter().flat_map(u64::to_le_bytes).collect()].concat();
        let memory = self.memory.try_clone().unwrap().into();
        self.call(shard, Command::DMA_MAP, &map, vec![memory]);
        // Memory space and bus master.
        let config = [4u64.to_le_bytes().to_vec(), words(&[7, 2]), vec![6, 4]].concat();
        self.call(shard, Command::REGION_WRITE, &config, Vec::new());
        self.write(shard, 0x24, &words(&[(ENTRIES - 1) << 16 | (ENTRIES - 1)]));
        self.write(shard, 0x28, &(DMA + ASQ).to_le_bytes());
        self.write(shard, 0x30, &(DMA + ACQ).to_le_bytes());
        self.write(shard, 0x14, &words(&[6 << 16 | 4 << 20 | 1]));
        let read = [0x1cu64.to_le_bytes().to_vec(), words(&[0, 4])].concat();
        while self.call(shard, Command::REGION_READ, &read, Vec::new())[16] & 1 == 0 {}
        // What is known of queues by number is not what a drive would count that finds only the last ones.
        self.make_queues(shard);
        for opcode in [0, 4] {
            self.submit(shard, 0, opcode, 0, [1, 0]);
            self.complete(shard, 0);
        }
        (self.tails[1], self.heads[1]) = (0, 0);
        self.memory.write_all_at(&[0; 16 * ENTRIES as usize], CQ).unwrap();
        self.make_queues(shard);
        for _ in 0..2 * ENTRIES {
            self.submit(shard, 1, 0, 0, [0; 2]);
            self.complete(shard, 1);
        }
    }

    fn make_queues(&mut self, shard: &mut Shard) {
        for (opcode, at, cdw11) in [(5, CQ, 1), (1, SQ, 1 << 16 | 1)] {
            self.submit(shard, 0, opcode, at, [(ENTRIES - 1) << 16 | 1, cdw11]);
            self.complete(shard, 0);
        }
    }

    /// Puts a command on a ring and rings, by a message that nobody has to have answered.
    fn put(&mut self, q: usize, opcode: u32, at: u64, cdw: [u32; 2]) {
        let tail = self.tails[q];
        let mut entry = words(&[opcode | tail << 16, u32::from(q != 0), 0, 0, 0, 0]);
        entry.extend((DMA + at).to_le_bytes());
        entry.extend(0u64.to_le_bytes());
        entry.extend(words(&[cdw[0], cdw[1], 0, 0, 0, 0]));
        self.memory.write_all_at(&entry, [ASQ, SQ][q] + u64::from(tail) * 64).unwrap();
        self.tails[q] = (tail + 1) % ENTRIES;
        let bell = access(0x1000 + 8 * q as u64, &self.tails[q].to_le_bytes());
        self.send(Command::REGION_WRITE, &bell, Vec::new());
    }

    fn submit(&mut self, shard: &mut Shard, q: usize, opcode: u32, at: u64, cdw: [u32; 2]) {
        self.put(q, opcode, at, cdw);
        turn(shard);
    }

    /// How many completions a queue has had, by the place and phase of the next.
    fn is_complete(&self, q: usize) -> bool {
        let (place, round) = (self.heads[q] % ENTRIES, self.heads[q] / ENTRIES);
        let mut entry = [0; 16];
        self.memory.read_exact_at(&mut entry, [ACQ, CQ][q] + u64::from(place) * 16).unwrap();
        let is = u32::from(entry[14] & 1) != round % 2;
        assert!(!is || u16::from_le_bytes([entry[14], entry[15]]) >> 1 == 0, "{entry:x?}");
        is
    }

    /// Takes the next completion, and says so.
    fn complete(&mut self, shard: &mut Shard, q: usize) {
        self.until(shard, |client| client.is_complete(q));
        self.heads[q] += 1;
        let head = self.heads[q] % ENTRIES;
        self.write(shard, 0x1004 + 8 * q as u64, &head.to_le_bytes());
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn access(offset: u64, bytes: &[u8]) -> Vec<u8> {
    [offset.to_le_bytes().to_vec(), words(&[0, bytes.len() as u32]), bytes.to_vec()].concat()
}

fn turn(shard: &mut Shard) {
    let now = shard.reactor.now();
    shard.turn(now, false);
}

/// The new worker has taken over and everybody may know that; then it is killed, before it has done anything.
#[test]
fn a_client_outlives_who_took_it_over_and_did_nothing() {
    for doorbells in [Doorbells::Trap, Doorbells::Auto] {
        let (folder, mut keeper) = (Folder::new(), Keeper::default());
        let path = folder.socket("a.sock");
        let mut shard = keeper.next();
        export(&mut shard, &path, doorbells, true).unwrap();
        let mut client = Client::new(&path);
        client.meet(&mut shard, 1);
        client.start(&mut shard);
        shard.with_doors(|doors, cx| doors.vfio_user.leave(cx));
        for number in 2..5 {
            keeper.hear();
            shard = keeper.next();
            export(&mut shard, &path, doorbells, true).unwrap();
            shard.keep.begin().unwrap();
            client.meet(&mut shard, number);
        }
        client.submit(&mut shard, 1, 0, 0, [0; 2]);
        client.complete(&mut shard, 1);
        client.submit(&mut shard, 0, 0x0c, 0, [0; 2]);
        client.submit(&mut shard, 1, 0, 0, [0; 2]);
        client.complete(&mut shard, 1);
    }
}

/// Who serves next has another opinion of whether clients go on.
#[test]
fn a_socket_changes_hands_with_its_journal() {
    let (folder, mut keeper) = (Folder::new(), Keeper::default());
    let path = folder.socket("a.sock");
    let mut shard = keeper.next();
    export(&mut shard, &path, Doorbells::Trap, true).unwrap();
    let mut client = Client::new(&path);
    client.meet(&mut shard, 1);
    client.start(&mut shard);
    for journal in [false, true, false] {
        keeper.hear();
        shard = keeper.next();
        export(&mut shard, &path, Doorbells::Trap, journal).unwrap();
        shard.keep.begin().unwrap();
        keeper.hear();
        let kind = if journal { RELAYS } else { SOCKETS };
        assert_eq!(keeper.names(), [format!("{kind}{}", path.display())], "and nothing of the client");
    }
    UnixStream::connect(&path).unwrap();

    let path = folder.socket("b.sock");
    for journal in [true, false, true] {
        keeper.held.retain(|name, _| name.contains("b.sock"));
        shard = keeper.next();
        let config = vhost_user::ExportConfig {
            path: path.clone(),
            drive: 0,
            tenant: 0,
            tenant_name: "gold".into(),
            peer_class: false,
            queues: 1,
            journal,
            queue_depth: 8,
            read_only: false,
            serial: "1".into(),
        };
        shard.with_doors(|doors, cx| doors.vhost_user.export(config, cx)).unwrap();
        keeper.hear();
        let kind = if journal { FRONTS } else { PLAIN_FRONTS };
        assert_eq!(keeper.names(), [format!("{kind}{}", path.display())]);
    }
}

/// What is held of a client whose path begins like another's is its own.
#[test]
fn a_path_that_begins_like_another_is_another() {
    let (folder, mut keeper) = (Folder::new(), Keeper::default());
    let (path, longer) = (folder.socket("a"), folder.socket("a:b"));
    let mut shard = keeper.next();
    export(&mut shard, &path, Doorbells::Trap, true).unwrap();
    export(&mut shard, &longer, Doorbells::Trap, true).unwrap();
    let mut client = Client::new(&longer);
    client.meet(&mut shard, 1);
    client.start(&mut shard);
    keeper.hear();
    shard = keeper.next();
    export(&mut shard, &path, Doorbells::Trap, true).unwrap();
    export(&mut shard, &longer, Doorbells::Trap, true).unwrap();
    client.meet(&mut shard, 2);
    client.submit(&mut shard, 1, 0, 0, [0; 2]);
    client.complete(&mut shard, 1);
}
