//! A metadata service in memory, as simple as can be: what a client is tested against. It can be killed: connections and handles go, what
//! was committed stays, as it does with a service on a key-value store.

use super::TestService;
use crate::tier::{BlockingNamespace, TierOptions};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use weir_store::file::NewBlock;
use weir_store::members::ContentLabel;
use weir_store::protocol::{Answer, FrameReader, NamespaceInfo, NamespaceState, Request, SessionWish, WelcomeInfo};
use weir_store::records::{BlockRecord, Changed, MapChunk, NameRecord, SessionToken, blocks_per_chunk};
use weir_store::space::Epoch;
use weir_store::{
    ClassId, ClassName, Content, EntryName, EntryPath, Extent, Generation, Inode, InodeId, InodeKind, InodePath,
    ListEntry, Location, NameChange, NamespaceId, NewInode, NodeId, ServiceId, SessionId, StoreError,
};
use weir_units::{Bytes, Nanos};

pub const INLINE_MAX: u32 = 2048;
pub const DRIVE: u64 = 512 << 20;
/// The store's number.
pub const STORE: u64 = 7;
/// What a drive has before: nobody may read it.
const FORMER: u8 = 0x5a;
/// What every session is resumed with.
const TOKEN: SessionToken = [7; 16];

type Told = Result<Answer, StoreError>;

#[derive(Default)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<(u64, EntryName), u64>,
    blocks: BTreeMap<(u64, u64), BlockRecord>,
    writers: BTreeMap<u64, u64>,
    handles: BTreeMap<u64, (u64, u64, bool)>,
    told: BTreeMap<(u64, u16), (u64, Told)>,
    sessions: BTreeMap<u64, String>,
    last: u64,
    place: u64,
    epoch: u64,
    streams: Vec<TcpStream>,
}

pub struct ModelService {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    drives: Vec<PathBuf>,
    /// Requests so far.
    pub requests: Arc<AtomicU64>,
    /// Connections end after so many answers; 0: never.
    pub hang_up_every: Arc<AtomicU64>,
    /// Renewals are not answered.
    pub is_deaf: Arc<AtomicBool>,
}

impl Drop for ModelService {
    fn drop(&mut self) {
        self.kill();
        self.drives.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ModelService {
    pub fn new(name: &str, lease: Duration) -> Self {
        let drive = |number: u64| {
            let path = std::env::temp_dir().join(format!("weir-client-{}-{name}-{number}", std::process::id()));
            let file = std::fs::File::create(&path).unwrap();
            file.set_len(DRIVE).unwrap();
            // What nobody has written must not be read: the first megabytes are not zero.
            let mut first = &file;
            first.write_all(&vec![FORMER; 48 << 20]).unwrap();
            path
        };
        let drives: Vec<PathBuf> = (1..=2).map(drive).collect();
        let sector = |number: usize| if number == 0 { 512 } else { 4096 };
        let url = |(number, path): (usize, &PathBuf)| format!("file:{}?sector={}", path.display(), sector(number));
        let urls = drives.iter().enumerate().map(url).collect();
        Self::over(urls, drives, lease)
    }

    /// Over two drives, of which the first has sectors of 512 bytes and the second of 4096.
    pub fn over(urls: Vec<String>, drives: Vec<PathBuf>, lease: Duration) -> Self {
        // Drives are labelled before anything else is written to them.
        for (url, number) in urls.iter().zip(1..) {
            let options = TierOptions { allow_files: true, ..TierOptions::default() };
            let mut drive = BlockingNamespace::open(url, options).unwrap();
            let label = crate::label::encode(STORE, NamespaceId(number), ContentLabel(number.into()));
            drive.write(0, &label).unwrap();
        }
        let root = Inode { kind: InodeKind::Directory, mode: 0o755, ..Inode::default() };
        let state = State { inodes: BTreeMap::from([(1, root)]), last: 100, epoch: 1, ..State::default() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::new(Mutex::new(state)),
            drives,
            requests: Arc::default(),
            hang_up_every: Arc::default(),
            is_deaf: Arc::default(),
        };
        let (state, requests) = (service.state.clone(), service.requests.clone());
        let (hang_up_every, is_deaf) = (service.hang_up_every.clone(), service.is_deaf.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                stream.set_nodelay(true).unwrap();
                lock(&state).streams.push(stream.try_clone().unwrap());
                let connection = Connection {
                    state: state.clone(),
                    requests: requests.clone(),
                    hang_up_every: hang_up_every.clone(),
                    is_deaf: is_deaf.clone(),
                    urls: urls.clone(),
                    lease,
                    session: 0,
                };
                thread::spawn(move || connection.serve(stream));
            }
        });
        service
    }

    /// Calls `what` while the service answers nobody.
    pub fn while_silent<T>(&self, what: impl FnOnce() -> T) -> T {
        let _state = lock(&self.state);
        what()
    }

    /// All are asked to let go of older maps.
    pub fn next_epoch(&self) {
        lock(&self.state).epoch += 1;
    }
}

impl TestService for ModelService {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn kill(&self) {
        let mut state = lock(&self.state);
        state.handles.clear();
        state.streams.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

struct Connection {
    state: Arc<Mutex<State>>,
    requests: Arc<AtomicU64>,
    hang_up_every: Arc<AtomicU64>,
    is_deaf: Arc<AtomicBool>,
    urls: Vec<String>,
    lease: Duration,
    session: u64,
}

impl Connection {
    fn serve(mut self, mut stream: TcpStream) {
        let (mut frames, mut buffer) = (FrameReader::default(), vec![0; 1 << 16]);
        let mut answers = 0;
        loop {
            let Ok(n) = stream.read(&mut buffer) else { return };
            if n == 0 {
                return;
            }
            frames.push(&buffer[..n]);
            while let Some(frame) = frames.next().unwrap() {
                let (number, request) = Request::decode(frame).unwrap();
                self.requests.fetch_add(1, Ordering::Relaxed);
                if matches!(request, Request::Renew { .. }) && self.is_deaf.load(Ordering::Relaxed) {
                    continue;
                }
                let answer = self.once(request).unwrap_or_else(|error| Answer::Failed { error, detail: String::new() });
                answers += 1;
                let most = self.hang_up_every.load(Ordering::Relaxed);
                if most > 0 && answers > most {
                    // It was carried out, and the client is not told.
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
                if stream.write_all(&answer.encode(number).unwrap()).is_err() {
                    return;
                }
            }
        }
    }

    fn once(&mut self, request: Request) -> Told {
        let key = match &request {
            Request::Change { slot, sequence, .. }
            | Request::OpenNew { slot, sequence, .. }
            | Request::Publish { slot, sequence, .. } => Some((*slot, *sequence)),
            _ => None,
        };
        let state = self.state.clone();
        let mut state = lock(&state);
        if let Some((slot, sequence)) = key {
            if let Some((last, told)) = state.told.get(&(self.session, slot)) {
                assert!(sequence >= *last, "a slot's sequence rises");
                // A handle is the one thing of an answer that a kill takes.
                let is_open = !matches!(told, Ok(Answer::Opened { handle, .. }) if !state.handles.contains_key(handle));
                if sequence == *last && is_open {
                    return told.clone();
                }
            }
        }
        let told = self.carry_out(&mut state, request);
        // What is not carried out is not remembered: the client opens the file again.
        if let Some((slot, sequence)) = key.filter(|_| !matches!(told, Err(StoreError::NotOpen))) {
            state.told.insert((self.session, slot), (sequence, told.clone()));
        }
        told
    }

    fn carry_out(&mut self, state: &mut State, request: Request) -> Told {
        Ok(match request {
            Request::Hello { version, client, session, .. } => {
                self.session = match session {
                    SessionWish::Resume(session, TOKEN) if state.sessions.contains_key(&session.0) => session.0,
                    SessionWish::Resume(..) => return Err(StoreError::SessionGone),
                    _ => {
                        state.last += 1;
                        state.last
                    }
                };
                state.sessions.insert(self.session, client);
                Answer::Welcome {
                    welcome: WelcomeInfo {
                        version,
                        service: ServiceId(1),
                        store: STORE,
                        session: Some(SessionId(self.session)),
                        token: TOKEN,
                        lease: Nanos(self.lease.as_nanos() as u64),
                        drift_ppm: 100,
                        epoch: Epoch(state.epoch),
                        inline_max: INLINE_MAX,
                        block: 64 << 10,
                        classes: vec![ClassName::new("dram").unwrap(), ClassName::new("flash").unwrap()],
                    },
                }
            }
            Request::Renew { .. } => Answer::Renewed { epoch: Epoch(state.epoch) },
            Request::Bye {} => Answer::Done {},
            Request::Resolve { names, .. } => {
                let (mut at, mut parent) = (1, 1);
                for name in names {
                    parent = at;
                    at = *state.names.get(&(at, name)).ok_or(StoreError::NotFound)?;
                }
                Answer::Found { at: path(at, parent), inode: Box::new(state.inodes[&at].clone()) }
            }
            Request::Stat { at } => {
                let inode = state.inodes.get(&at.inode.0).ok_or(StoreError::NotFound)?;
                Answer::Found { at, inode: Box::new(inode.clone()) }
            }
            Request::List { container, after, most } => {
                let names = state.names.iter().filter(|((parent, name), _)| {
                    *parent == container.0 && after.as_ref().is_none_or(|after| name > after)
                });
                let mut entries: Vec<ListEntry> = names
                    .map(|((_, name), id)| {
                        let kind = state.inodes[id].kind;
                        ListEntry { name: name.clone(), record: NameRecord { inode: InodeId(*id), kind }, inode: None }
                    })
                    .collect();
                let is_last = entries.len() <= most as usize;
                entries.truncate(most as usize);
                Answer::Page { version: 1, entries, is_last }
            }
            Request::Change { change, .. } => return change_name(state, change),
            Request::Open { at, write } => return self.open(state, at, write),
            Request::OpenNew { entry, new, content, exclusive, .. } => {
                let id = match state.names.get(&(entry.container.0, entry.name.clone())) {
                    Some(_) if exclusive => return Err(StoreError::Exists),
                    Some(id) => *id,
                    None => make(state, &entry, &new, Content::Inline(content)),
                };
                return self.open(state, path(id, entry.container.0), true);
            }
            Request::Close { handle } => {
                let (session, inode, write) = state.handles.remove(&handle).ok_or(StoreError::NotOpen)?;
                if write && state.writers.get(&inode) == Some(&session) {
                    state.writers.remove(&inode);
                }
                Answer::Done {}
            }
            Request::Map { handle, chunk } => {
                let (_, inode, _) = *state.handles.get(&handle).ok_or(StoreError::NotOpen)?;
                let per_chunk = u64::from(blocks_per_chunk(state.inodes[&inode].block));
                let range = (inode, u64::from(chunk) * per_chunk)..(inode, (u64::from(chunk) + 1) * per_chunk);
                let index = |block: u64| (block % per_chunk) as u32;
                let blocks = state.blocks.range(range);
                let blocks = blocks.map(|((_, block), record)| BlockRecord { index: index(*block), ..record.clone() });
                Answer::Chunk { chunk: MapChunk { blocks: blocks.collect() }, epoch: Epoch(state.epoch) }
            }
            Request::Grant { handle, .. } | Request::GrantShort { handle, .. } => {
                let (count, bytes) = match request {
                    Request::Grant { count, .. } => (count, None),
                    Request::GrantShort { bytes, .. } => (1, Some(u64::from(bytes))),
                    _ => (0, None),
                };
                let inode = self.written(state, handle)?;
                let (block, copies) = (state.inodes[&inode].block.into(), state.inodes[&inode].copies);
                let mut blocks = Vec::new();
                // Not more than three at a time, so that clients have to ask again.
                for _ in 0..count.min(3) {
                    let offset = (1 << 20) + state.place * block;
                    if offset + block > DRIVE {
                        return Err(StoreError::NoSpace);
                    }
                    state.place += 1;
                    let extent = |copy: u64| Extent {
                        namespace: NamespaceId(1 + (copy + state.place) % 2),
                        offset: Bytes(offset),
                        length: Bytes(bytes.unwrap_or(block)),
                    };
                    let copies = (0..copies.into()).map(extent).collect();
                    blocks.push(NewBlock { copies, generation: Generation(state.place) });
                }
                Answer::Granted { blocks }
            }
            Request::Unsettle { handle, block } => {
                let inode = self.written(state, handle)?;
                state.blocks.get_mut(&(inode, block)).ok_or(StoreError::Malformed)?.is_unsettled = true;
                Answer::Done {}
            }
            Request::MarkOut { handle, block, copies } => {
                let inode = self.written(state, handle)?;
                state.blocks.get_mut(&(inode, block)).ok_or(StoreError::Malformed)?.copies = copies;
                Answer::Done {}
            }
            Request::Publish { handle, size, blocks, .. } => {
                let id = self.written(state, handle)?;
                for (block, record) in blocks {
                    state.blocks.insert((id, block), record);
                }
                let inode = state.inodes.get_mut(&id).ok_or(StoreError::NotFound)?;
                (inode.size, inode.content, inode.version) = (size, Content::Mapped, inode.version + 1);
                let (kept, version) = (size.div_ceil(inode.block.into()), inode.version);
                state.blocks.retain(|(inode, block), _| *inode != id || *block < kept);
                Answer::Changed { changed: Changed { inode: InodeId(id), version } }
            }
            Request::Return { .. } => Answer::Done {},
            Request::Namespaces {} => Answer::Namespaces { namespaces: self.namespaces() },
            _ => return Err(StoreError::Malformed),
        })
    }

    fn namespaces(&self) -> Vec<NamespaceInfo> {
        let info = |(url, number): (&String, u64)| NamespaceInfo {
            namespace: NamespaceId(number),
            node: NodeId(number),
            target: url.clone(),
            class: ClassId(0),
            location: Location::default(),
            sector: if number == 1 { 512 } else { 4096 },
            bytes: DRIVE,
            label: ContentLabel(number.into()),
            state: NamespaceState::Up,
            free: 0,
            granted: 0,
            mapped: 0,
            quarantined: 0,
        };
        self.urls.iter().zip(1..).map(info).collect()
    }

    fn open(&mut self, state: &mut State, at: InodePath, write: bool) -> Told {
        let inode = state.inodes.get(&at.inode.0).ok_or(StoreError::NotFound)?.clone();
        if write {
            if state.writers.get(&at.inode.0).is_some_and(|writer| *writer != self.session) {
                return Err(StoreError::Busy);
            }
            state.writers.insert(at.inode.0, self.session);
        }
        state.last += 1;
        state.handles.insert(state.last, (self.session, at.inode.0, write));
        Ok(Answer::Opened { handle: state.last, at, inode: Box::new(inode) })
    }

    fn written(&self, state: &State, handle: u64) -> Result<u64, StoreError> {
        match state.handles.get(&handle) {
            Some((session, inode, true)) if *session == self.session => Ok(*inode),
            _ => Err(StoreError::NotOpen),
        }
    }
}

fn path(inode: u64, parent: u64) -> InodePath {
    InodePath { inode: InodeId(inode), parent: InodeId(parent) }
}

fn make(state: &mut State, entry: &EntryPath, new: &NewInode, content: Content) -> u64 {
    state.last += 1;
    let size = match &content {
        Content::Inline(bytes) => bytes.len() as u64,
        _ => 0,
    };
    let NewInode { kind, mode, copies, block, .. } = *new;
    // 0: whoever makes it does not say.
    let copies = copies.max(1);
    let inode = Inode { kind, mode, copies, block, size, content, parent: entry.container, ..Inode::default() };
    state.inodes.insert(state.last, inode);
    state.names.insert((entry.container.0, entry.name.clone()), state.last);
    state.last
}

fn change_name(state: &mut State, change: NameChange) -> Told {
    let at = |entry: &EntryPath| (entry.container.0, entry.name.clone());
    let id = match change {
        NameChange::Create(entry, _) if state.names.contains_key(&at(&entry)) => return Err(StoreError::Exists),
        NameChange::Create(entry, new) => {
            let content = match new.kind {
                InodeKind::Symlink => Content::Target(new.target.clone()),
                InodeKind::File => Content::Inline(Vec::new()),
                _ => Content::Names,
            };
            make(state, &entry, &new, content)
        }
        NameChange::Rename { from, to, replace } => {
            let id = *state.names.get(&at(&from)).ok_or(StoreError::NotFound)?;
            if state.names.contains_key(&at(&to)) && !replace {
                return Err(StoreError::Exists);
            }
            state.names.remove(&at(&from));
            state.names.insert(at(&to), id);
            id
        }
        NameChange::Delete { entry, recursive } => {
            let id = *state.names.get(&at(&entry)).ok_or(StoreError::NotFound)?;
            if !recursive && state.names.keys().any(|(parent, _)| *parent == id) {
                return Err(StoreError::NotEmpty);
            }
            state.names.remove(&at(&entry));
            id
        }
        NameChange::WriteInline(at, bytes) => {
            let inode = state.inodes.get_mut(&at.inode.0).ok_or(StoreError::NotFound)?;
            (inode.size, inode.content) = (bytes.len() as u64, Content::Inline(bytes));
            at.inode.0
        }
        NameChange::SetExtended(at, name, value) => {
            let inode = state.inodes.get_mut(&at.inode.0).ok_or(StoreError::NotFound)?;
            match value {
                Some(value) => drop(inode.attributes.insert(name, value)),
                None => drop(inode.attributes.remove(&name).ok_or(StoreError::NoAttribute)?),
            }
            at.inode.0
        }
        _ => return Err(StoreError::WrongKind),
    };
    Ok(Answer::Changed { changed: Changed { inode: InodeId(id), version: 1 } })
}
