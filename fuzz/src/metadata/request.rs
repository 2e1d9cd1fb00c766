//! Requests out of bytes: of each kind, with numbers that are the victim's, a hostile client's own, or nobody's.

use super::world::{new_inode, record};

use weir_store::file::NewBlock;
use weir_store::protocol::{Answer, Donation, PROTOCOL_MAGIC, PROTOCOL_VERSION, Request, SessionWish};
use weir_store::space::Epoch;
use weir_store::{
    ClassId, ClassName, EntryName, EntryPath, Extent, Generation, InodeId, InodeKind, InodePath, Location, NameChange,
    NamespaceId, NewInode, SessionId, SetAttributes,
};

/// Kinds of requests that are made.
pub(super) const KINDS: u8 = 32;

/// Things of one kind that are remembered at the most.
const REMEMBERED: usize = 16;

/// What is left of the input.
pub(super) struct Script<'a>(pub &'a [u8]);

impl<'a> Script<'a> {
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(len.min(self.0.len()));
        self.0 = later;
        now
    }

    fn next(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.next()) % end.max(1)
    }

    /// A number: small, or near to where numbers end.
    fn number(&mut self) -> u64 {
        match self.next() {
            small @ 0..=0xdf => u64::from(small),
            power @ 0xe0..=0xef => 1 << ((power & 15) * 4),
            near => u64::MAX - u64::from(near & 15),
        }
    }
}

/// What a hostile client knows.
#[derive(Default)]
pub(super) struct Known {
    /// The victim's session, its file, and its handle.
    pub victim: Option<(SessionId, InodePath, u64)>,
    /// Blocks: the victim's, and then those that hostile clients were granted.
    pub blocks: Vec<NewBlock>,
    /// Handles of hostile clients.
    pub handles: Vec<u64>,
    places: Vec<InodePath>,
    sessions: Vec<(SessionId, [u8; 16])>,
    epoch: Epoch,
}

impl Known {
    /// What an answer tells.
    pub fn learn(&mut self, answer: Answer) {
        match answer {
            Answer::Welcome { welcome } => {
                self.epoch = welcome.epoch;
                self.sessions.extend(welcome.session.map(|session| (session, welcome.token)));
            }
            Answer::Renewed { epoch } => self.epoch = epoch,
            Answer::Opened { handle, at, .. } => {
                self.handles.push(handle);
                self.places.push(at);
            }
            Answer::Found { at, .. } => self.places.push(at),
            Answer::Granted { blocks } => self.blocks.extend(blocks),
            _ => {}
        }
        // The victim's are the first.
        let later = self.blocks.len().saturating_sub(4 + REMEMBERED);
        self.blocks.drain(self.blocks.len().min(4)..self.blocks.len().min(4) + later);
        self.handles.drain(..self.handles.len().saturating_sub(REMEMBERED));
        self.places.drain(..self.places.len().saturating_sub(REMEMBERED));
        self.sessions.drain(..self.sessions.len().saturating_sub(REMEMBERED));
    }

    /// Bytes from 0xf0 on name what a client may not know; those from 0xc0 on what is the victim's; the others what it was told.
    fn pick<T: Clone>(script: &mut Script<'_>, own: &[T], victims: Option<T>, other: impl FnOnce(u64) -> T) -> T {
        let which = script.next();
        match (which, victims) {
            (0xc0..=0xef, Some(victims)) => victims,
            (0..=0xbf, _) if !own.is_empty() => own[own.len() - 1 - usize::from(which) % own.len()].clone(),
            _ => other(script.number()),
        }
    }

    fn handle(&self, script: &mut Script<'_>) -> u64 {
        Self::pick(script, &self.handles, self.victim.map(|victim| victim.2), |number| number)
    }

    fn at(&self, script: &mut Script<'_>) -> InodePath {
        let at = |number| InodePath { inode: InodeId(number), parent: InodeId::ROOT };
        Self::pick(script, &self.places, self.victim.map(|victim| victim.1), at)
    }

    fn container(&self, script: &mut Script<'_>) -> InodeId {
        match script.next() {
            0..=0x7f => InodeId::ROOT,
            0x80..=0xdf => self.at(script).inode,
            _ => InodeId(script.number()),
        }
    }

    fn entry(&self, script: &mut Script<'_>) -> EntryPath {
        let container = self.container(script);
        EntryPath { container, name: name(script) }
    }

    fn block(&self, script: &mut Script<'_>) -> NewBlock {
        let (victims, own) = self.blocks.split_at(self.blocks.len().min(4));
        let victims = if victims.is_empty() { None } else { Some(victims[script.below(victims.len())].clone()) };
        let other = |number| NewBlock { copies: Vec::new(), generation: Generation(number) };
        let mut block = Self::pick(script, own, victims, other);
        if block.copies.is_empty() {
            block.copies = vec![extent(script)];
        }
        match script.next() {
            0xf0 => block.generation = Generation(script.number()),
            0xf1 => block.copies.push(extent(script)),
            0xf2 => block.copies[0].offset = (block.copies[0].offset.get() ^ (4096 * script.number())).into(),
            0xf3 => block.copies[0].length = script.number().into(),
            0xf4 => block.copies.clear(),
            _ => {}
        }
        block
    }

    fn extents(&self, script: &mut Script<'_>) -> Vec<Extent> {
        (0..script.below(4)).flat_map(|_| self.block(script).copies).collect()
    }
}

fn extent(script: &mut Script<'_>) -> Extent {
    let namespace = NamespaceId(script.number());
    let (offset, length) = (script.number().wrapping_mul(4096), script.number().wrapping_mul(4096));
    Extent { namespace, offset: offset.into(), length: length.into() }
}

fn name(script: &mut Script<'_>) -> EntryName {
    let names: [&[u8]; 8] = [b"v", b"a", b"b", b"c", b"lost+found", b"\xff", &[b'n'; 255], b"a b"];
    EntryName::new(names[script.below(names.len())]).expect("a name")
}

fn class(script: &mut Script<'_>) -> ClassName {
    ClassName::new(["dram", "flash", "other"][script.below(3)]).expect("a class")
}

fn new(script: &mut Script<'_>) -> NewInode {
    let kinds = [
        InodeKind::File,
        InodeKind::File,
        InodeKind::Directory,
        InodeKind::Symlink,
        InodeKind::Multifile,
        InodeKind::Table,
    ];
    let mut new = new_inode(kinds[script.below(kinds.len())]);
    match script.next() {
        0xf0 => new.copies = script.next(),
        0xf1 => new.block = script.number() as u32,
        0xf2 => new.classes = vec![ClassId(script.next().into()); script.below(20)],
        0xf3 => new.target = script.take(40).to_vec(),
        0xf4 => new.location = Location::new("a/b").expect("a location"),
        _ => {}
    }
    if new.kind == InodeKind::Symlink && new.target.is_empty() {
        new.target = b"v".to_vec();
    }
    new
}

fn change(kind: u8, script: &mut Script<'_>, known: &Known) -> NameChange {
    match kind {
        0 => NameChange::Create(known.entry(script), new(script)),
        1 => NameChange::HardLink(known.at(script), known.entry(script)),
        2 => NameChange::Rename { from: known.entry(script), to: known.entry(script), replace: script.next() & 1 == 0 },
        3 => NameChange::Delete { entry: known.entry(script), recursive: script.next() & 1 == 0 },
        4 => {
            let mut set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
            match script.next() & 3 {
                0 => set.size = Some(script.number()),
                1 => set.classes = Some(vec![ClassId(script.next().into())]),
                2 => set.uid = Some(script.number() as u32),
                _ => {}
            }
            NameChange::SetAttributes(known.at(script), set)
        }
        5 => NameChange::SetExtended(known.at(script), "user.a".into(), Some(vec![1; usize::from(script.next()) * 17])),
        6 => NameChange::WriteInline(known.at(script), vec![2; usize::from(script.next())]),
        _ => NameChange::PutValue(known.entry(script), vec![3; usize::from(script.next())]),
    }
}

fn wish(script: &mut Script<'_>, known: &Known) -> SessionWish {
    match script.next() {
        0..=0x7f => SessionWish::New,
        0x80..=0x8f => SessionWish::None,
        _ => {
            let victims = known.victim.map(|victim| (victim.0, [9; 16]));
            let (session, mut token) =
                Known::pick(script, &known.sessions, victims, |number| (SessionId(number), [0; 16]));
            token[script.below(16)] ^= script.next() & 1;
            SessionWish::Resume(session, token)
        }
    }
}

/// A request of that kind; `kind` is taken modulo [`KINDS`].
pub(super) fn request(kind: u8, script: &mut Script<'_>, known: &Known) -> Request {
    match kind % KINDS {
        0 | 1 => {
            let magic = PROTOCOL_MAGIC ^ u64::from(script.next() == 0xff);
            let version = if script.next() == 0xff { script.number() as u16 } else { PROTOCOL_VERSION };
            let client = "h".repeat(if script.next() == 0xff { 256 } else { 1 });
            Request::Hello { magic, version, client, location: Location::default(), session: wish(script, known) }
        }
        2 => Request::Renew { epoch: if script.next() & 3 == 0 { Epoch(script.number()) } else { known.epoch } },
        3 => Request::Bye {},
        4 => {
            let names = (0..if script.next() == 0xff { 257 } else { script.below(4) }).map(|_| name(script)).collect();
            Request::Resolve { from: known.container(script), names, follow: script.next() & 1 == 0 }
        }
        5 => Request::Stat { at: known.at(script) },
        6 => {
            let after = (script.next() & 1 == 1).then(|| name(script));
            Request::List { container: known.container(script), after, most: script.number() as u32 }
        }
        kind @ 7..=14 => {
            let (slot, sequence) = (key_slot(script), key_sequence(script));
            Request::Change { slot, sequence, change: change(kind - 7, script, known) }
        }
        15 => Request::Open { at: known.at(script), write: script.next() & 1 == 0 },
        16 | 17 => Request::OpenNew {
            slot: key_slot(script),
            sequence: key_sequence(script),
            entry: known.entry(script),
            new: new(script),
            content: vec![4; if script.next() & 7 == 7 { 300 } else { 0 }],
            exclusive: script.next() & 1 == 1,
        },
        18 => Request::Close { handle: known.handle(script) },
        19 => Request::Map { handle: known.handle(script), chunk: script.number() as u32 },
        20 => Request::Grant { handle: known.handle(script), count: (script.number() as u32).wrapping_add(1) },
        21 => Request::GrantShort { handle: known.handle(script), bytes: (script.number() as u32).wrapping_mul(4096) },
        22 => Request::Unsettle { handle: known.handle(script), block: script.number() },
        23 => {
            let handle = known.handle(script);
            Request::MarkOut { handle, block: script.number(), copies: known.extents(script) }
        }
        24..=26 => {
            let handle = known.handle(script);
            let (slot, sequence, mut number) = (key_slot(script), key_sequence(script), 0);
            let blocks: Vec<_> = (0..script.below(4))
                .map(|_| {
                    let at = number;
                    number = if script.next() == 0xff { script.number() } else { number + 1 };
                    (at, record(&known.block(script)))
                })
                .collect();
            let size = match script.next() {
                0..=0xbf => blocks.len() as u64 * 65536,
                _ => script.number().wrapping_mul(4096),
            };
            Request::Publish { handle, slot, sequence, size, blocks }
        }
        27 => Request::Return { extents: known.extents(script) },
        28 => [Request::Namespaces {}, Request::Status {}, Request::Sessions {}, Request::Services {}][script.below(4)]
            .clone(),
        29 => {
            let targets = ["nvme-tcp://127.0.0.1:4420/nqn", "nvme-tcp://127.0.0.1:4420/nqn?ns=1", "x", ""];
            let target = targets[script.below(4)].to_owned();
            let (class, location, overwrite) = (class(script), Location::default(), script.next() & 1 == 0);
            Request::Donate { donation: Donation { target, class, location, overwrite } }
        }
        30 => Request::Drain { namespace: NamespaceId(script.number()), drains: script.next() & 1 == 0 },
        _ => Request::Remove { namespace: NamespaceId(script.number()) },
    }
}

/// Slots from 32768 on are the service's own.
fn key_slot(script: &mut Script<'_>) -> u16 {
    match script.next() {
        slot @ 0..=0xef => u16::from(slot & 3),
        other => 0x8000 | u16::from(other & 1),
    }
}

fn key_sequence(script: &mut Script<'_>) -> u64 {
    script.number()
}

/// A frame as it is, or with a bit or its length changed, cut off, or with more behind it.
pub(super) fn mangled(mut frame: Vec<u8>, script: &mut Script<'_>) -> Vec<u8> {
    match script.next() {
        0xf0 => {
            let at = script.below(frame.len());
            frame[at] ^= 1 << (script.next() & 7);
        }
        0xf1 => frame.truncate(script.below(frame.len())),
        0xf2 => frame[..4].copy_from_slice(&(script.number() as u32).to_le_bytes()),
        0xf3 => frame.extend_from_slice(script.take(20)),
        0xf4 => frame.extend(frame.clone()),
        _ => {}
    }
    frame
}

/// A step that sends a request, its kind and what it is made of; at the end nothing is mangled.
fn asks(kind: u8, fields: &[u8]) -> Vec<u8> {
    [&[6, kind], fields, &[0, 0]].concat()
}

/// Conversations: see [`World::step`](super::world::World::step) and [`request`].
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let hello = asks(0, &[0, 0, 0, 0]);
    let open = |name: u8, sequence: u8| asks(16, &[0, sequence, 0, name, 0, 0, 0, 0]);
    let grant = asks(20, &[0, 2]);
    let own = asks(24, &[0, 0, 9, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let steal = asks(24, &[0, 0, 9, 2, 0, 0, 0xc0, 0, 0, 1, 0xc0, 0, 0]);
    let as_victim = asks(24, &[0xc0, 0, 9, 0, 0]);
    let returns = asks(27, &[2, 2, 0xc0, 0, 3, 0xc0, 0]);
    let close = asks(18, &[0xc0]);
    let resume = asks(0, &[0, 0, 0, 0x90, 0xc0, 0, 0]);
    let delete = asks(10, &[0, 8, 0, 0, 1]);
    let truncate = asks(11, &[0, 8, 0, 0, 0xc0]);
    let write = asks(15, &[0xc0, 0]);
    let remove = asks(31, &[1]);
    let donate = asks(29, &[0, 0, 0]);
    let pause = vec![2, 255];
    let restart = vec![4, 0];
    let begun = [&[0, 0], &hello[..], &open(1, 1), &grant].concat();
    let with = |more: &[&[u8]]| [&begun[..], &more.concat()].concat();
    vec![
        with(&[&own, &pause, &open(2, 10), &restart]),
        with(&[&steal, &returns]),
        with(&[&as_victim, &close]),
        [&[0, 0], &resume[..], &hello].concat(),
        with(&[&delete, &truncate, &write, &pause]),
        with(&[&remove, &donate]),
        (0..KINDS).flat_map(|kind| asks(kind, &[0xc0; 8])).collect(),
        (0..KINDS).fold(begun.clone(), |seed, kind| [&seed[..], &asks(kind, &[0; 8])].concat()),
    ]
}
