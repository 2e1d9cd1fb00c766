//! A service over real sockets and a real file: who misbehaves disturbs nobody, and what was told outlives the process's end.

use super::*;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_config::{StoreDurability, StoreMeta};
use weir_store::file::NewBlock;
use weir_store::protocol::{
    Answer, Donation, FrameReader, PROTOCOL_MAGIC, PROTOCOL_VERSION, Request, RequestNumber, SessionWish,
};
use weir_store::records::{BlockRecord, SessionToken};
use weir_store::{
    ClassName, EntryName, EntryPath, Extent, InodeId, InodeKind, Location, NamespaceId, NewInode, SessionId, StoreError,
};

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let mut number = [0; 8];
        getrandom(&mut number, GetRandomFlags::empty()).expect("random bytes");
        let path = std::env::temp_dir().join(format!("weir-service-{:x}", u64::from_ne_bytes(number)));
        std::fs::create_dir(&path).expect("a folder");
        Self(path)
    }

    fn options(&self, classes: &[&str]) -> ServiceOptions {
        ServiceOptions {
            meta: StoreMeta::Redb(self.0.join("meta.redb")),
            durability: StoreDurability::Process,
            listen: vec![StoreAddress::Unix(self.0.join("s")), StoreAddress::Tcp(([127, 0, 0, 1], 0).into())],
            classes: classes.iter().map(ToString::to_string).collect(),
            block: 64 << 10,
            lease: Duration::from_secs(10),
            repair_after: None,
            tiering: weir_store::Tiering::default(),
            allow_files: true,
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("the folder goes");
    }
}

struct Peer {
    socket: UnixStream,
    frames: FrameReader,
    last: u64,
    /// What its session is resumed with.
    token: SessionToken,
}

impl Peer {
    fn new(folder: &Folder) -> Self {
        let socket = UnixStream::connect(folder.0.join("s")).expect("a service");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        Self { socket, frames: FrameReader::default(), last: 0, token: [0; 16] }
    }

    fn greeted(folder: &Folder, session: SessionWish) -> (Self, Option<SessionId>) {
        let mut peer = Self::new(folder);
        match peer.ask(&hello(session)) {
            Answer::Welcome { welcome } => {
                peer.token = welcome.token;
                (peer, welcome.session)
            }
            other => panic!("{other:?}"),
        }
    }

    fn ask(&mut self, request: &Request) -> Answer {
        self.last += 1;
        let frame = request.encode(RequestNumber(self.last)).expect("a frame");
        self.socket.write_all(&frame).expect("it is sent");
        let (number, answer) = self.next().expect("an answer");
        assert_eq!(number, RequestNumber(self.last));
        answer
    }

    fn next(&mut self) -> Option<(RequestNumber, Answer)> {
        loop {
            if let Some(frame) = self.frames.next().expect("frames") {
                return Some(Answer::decode(frame).expect("an answer"));
            }
            let mut bytes = [0; 4096];
            match self.socket.read(&mut bytes).expect("no silence") {
                0 => return None,
                count => self.frames.push(&bytes[..count]),
            }
        }
    }
}

fn hello(session: SessionWish) -> Request {
    let location = Location::default();
    Request::Hello { magic: PROTOCOL_MAGIC, version: PROTOCOL_VERSION, client: "test".into(), location, session }
}

fn drive(path: &Path, bytes: u64) -> String {
    std::fs::File::create(path).and_then(|file| file.set_len(bytes)).expect("a drive");
    format!("file:{}", path.display())
}

fn donate(peer: &mut Peer, target: &str) -> Answer {
    let (class, location) = (ClassName::new("dram").expect("a class"), Location::default());
    peer.ask(&Request::Donate { donation: Donation { target: target.into(), class, location, overwrite: false } })
}

fn open_new(peer: &mut Peer, name: &str, sequence: u64) -> Answer {
    let entry = EntryPath { container: InodeId::ROOT, name: EntryName::new(name.as_bytes()).expect("a name") };
    let (target, classes, location) = (Vec::new(), Vec::new(), Location::default());
    let kind = InodeKind::File;
    let new = NewInode { kind, mode: 0o644, uid: 0, gid: 0, target, classes, location, copies: 1, block: 0 };
    let content = b"small".to_vec();
    peer.ask(&Request::OpenNew { slot: 0, sequence, entry, new, content, exclusive: false })
}

fn failed(answer: &Answer) -> Option<StoreError> {
    match answer {
        Answer::Failed { error, .. } => Some(*error),
        _ => None,
    }
}

#[test]
fn what_was_told_is_there_after_the_next_start() {
    let folder = Folder::new();
    let target = drive(&folder.0.join("drive"), 256 << 20);
    let service = start(folder.options(&["dram"])).expect("a service");
    let (mut operator, _) = Peer::greeted(&folder, SessionWish::None);
    assert_eq!(donate(&mut operator, &target), Answer::Donated { namespace: NamespaceId(1) });
    assert_eq!(failed(&donate(&mut operator, "file:/nowhere/at-all")), Some(StoreError::Unreachable));
    let small = drive(&folder.0.join("small"), 1 << 20);
    assert_eq!(failed(&donate(&mut operator, &small)), Some(StoreError::TooSmall));
    let (mut client, session) = Peer::greeted(&folder, SessionWish::New);
    let Answer::Opened { handle, at, .. } = open_new(&mut client, "a", 1) else { panic!("it is not opened") };
    let granted = client.ask(&Request::Grant { handle, count: 2 });
    let Answer::Granted { blocks } = granted else { panic!("{granted:?}") };
    let [first, _] = &blocks[..] else { panic!("two blocks are granted: {blocks:?}") };
    let publish = Request::Publish { handle, slot: 0, sequence: 2, size: 100, blocks: vec![(0, block(first))] };
    let told = client.ask(&publish);
    assert!(matches!(told, Answer::Changed { .. }), "{told:?}");
    service.stop();
    assert_eq!(client.next(), None, "its connection has ended");
    let service = start(folder.options(&["dram"])).expect("a service again");
    assert!(service.is_running() && service.addresses().len() == 2);
    let (mut client, again) = Peer::greeted(&folder, SessionWish::Resume(session.expect("a session"), client.token));
    assert_eq!(again, session);
    let opened = client.ask(&Request::Open { at, write: true });
    let Answer::Opened { handle, inode, .. } = opened else { panic!("{opened:?}") };
    assert_eq!(inode.size, 100);
    let Answer::Chunk { chunk, .. } = client.ask(&Request::Map { handle, chunk: 0 }) else { panic!("no map") };
    assert_eq!(chunk.blocks.len(), 1);
    let publish = Request::Publish { handle, slot: 0, sequence: 2, size: 100, blocks: vec![(0, block(first))] };
    assert_eq!(client.ask(&publish), told, "what was sent before gets its answer");
}

fn block(new: &NewBlock) -> BlockRecord {
    let copies: Vec<Extent> = new.copies.clone();
    BlockRecord { index: 0, generation: new.generation, is_unsettled: false, copies, checksums: vec![7] }
}

#[test]
fn who_sends_rubbish_or_takes_nothing_disturbs_nobody() {
    let folder = Folder::new();
    let _service = start(folder.options(&["dram"])).expect("a service");
    let (mut good, _) = Peer::greeted(&folder, SessionWish::New);
    for rubbish in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &u32::MAX.to_le_bytes(), &[10, 0, 0, 0, 1, 2, 3]] {
        let mut bad = Peer::new(&folder);
        bad.socket.write_all(rubbish).expect("it is sent");
        if rubbish.len() > 8 || rubbish[3] != 0 {
            assert_eq!(bad.next(), None, "it is shown out");
        }
    }
    // One that asks for much and takes nothing: the service stops to read, and goes on for others.
    let (mut deaf, _) = Peer::greeted(&folder, SessionWish::None);
    deaf.socket.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let ask = Request::Status {}.encode(RequestNumber(1)).expect("a frame").repeat(1000);
    let mut sent = 0;
    while sent < 400 && deaf.socket.write_all(&ask).is_ok() {
        sent += 1;
    }
    assert!(sent < 400, "it is not read any more");
    assert!(matches!(open_new(&mut good, "a", 1), Answer::Opened { .. }));
    // When it takes its answers in the end it gets one for each whole request.
    let mut late = Peer::greeted(&folder, SessionWish::None).0;
    let mut socket = late.socket.try_clone().expect("its socket");
    let asked = ask.clone();
    let sender = std::thread::spawn(move || (0..60).for_each(|_| socket.write_all(&asked).expect("it is sent")));
    std::thread::sleep(Duration::from_millis(300));
    (0..60_000).for_each(|_| assert!(matches!(late.next(), Some((_, Answer::Status { .. })))));
    sender.join().expect("it is sent");
    assert!(matches!(good.ask(&Request::Status {}), Answer::Status { .. }));
}

#[test]
fn what_cannot_be_started_says_why() {
    let folder = Folder::new();
    let options = folder.options(&["dram", "flash"]);
    let service = start(options.clone()).expect("a service");
    let taken = start(options).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(taken.contains("meta.redb") && taken.contains("has the store open"), "{taken}");
    service.stop();
    let other = start(folder.options(&["flash", "dram"])).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(other.contains("meta.redb") && other.contains("dram, flash"), "{other}");
    let wrong = start(folder.options(&["D RAM"])).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(wrong.starts_with("classes: "), "{wrong}");
    let mut far = folder.options(&["dram", "flash"]);
    far.listen = vec![StoreAddress::Unix(folder.0.join("no/such/folder/s"))];
    let nowhere = start(far).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(nowhere.starts_with("cannot listen on unix:"), "{nowhere}");
}
