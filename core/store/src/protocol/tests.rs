//! Golden bytes, messages of every kind there and back, and bytes that are none.

use super::*;
use crate::class::{ClassId, ClassName};
use crate::error::StoreError;
use crate::extent::Extent;
use crate::file::NewBlock;
use crate::id::{Generation, InodeId, NamespaceId, NodeId, ServiceId, SessionId};
use crate::inode::{Content, Inode, InodeKind, UnixNanos};
use crate::location::Location;
use crate::members::ContentLabel;
use crate::name::EntryName;
use crate::records::{BlockRecord, Changed, MapChunk, NameRecord};
use crate::space::Epoch;
use crate::tree::{EntryPath, InodePath, ListEntry, NameChange, NewInode, SetAttributes};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;
use proptest::prelude::*;
use weir_units::{Bytes, Nanos};

fn name(text: &str) -> EntryName {
    EntryName::new(text.as_bytes()).expect("a name")
}

fn location() -> Location {
    Location::new("r1").expect("a location")
}

fn at() -> InodePath {
    InodePath { inode: InodeId(5), parent: InodeId(1) }
}

fn entry() -> EntryPath {
    EntryPath { container: InodeId(1), name: name("ab") }
}

fn extent() -> Extent {
    Extent { namespace: NamespaceId(7), offset: Bytes(1 << 20), length: Bytes(1 << 16) }
}

fn new_inode() -> NewInode {
    NewInode {
        kind: InodeKind::File,
        mode: 0o644,
        uid: 1,
        gid: 2,
        target: Vec::new(),
        classes: vec![ClassId(1)],
        location: location(),
        copies: 1,
        block: 1 << 20,
    }
}

fn block() -> BlockRecord {
    let (copies, checksums) = (vec![extent()], vec![0xabcd]);
    BlockRecord { index: 3, generation: Generation(9), is_unsettled: false, copies, checksums }
}

fn inode() -> Box<Inode> {
    Box::new(Inode { parent: InodeId(1), copies: 1, content: Content::Inline(b"abc".to_vec()), ..Inode::default() })
}

/// One message of each kind at the least.
fn requests() -> Vec<Request> {
    let changes = vec![
        NameChange::Create(entry(), new_inode()),
        NameChange::HardLink(at(), entry()),
        NameChange::Rename { from: entry(), to: entry(), replace: true },
        NameChange::Delete { entry: entry(), recursive: false },
        NameChange::SetAttributes(at(), SetAttributes { size: Some(3), mode: Some(0o600), ..SetAttributes::default() }),
        NameChange::SetExtended(at(), "user.a".into(), Some(vec![1, 2])),
        NameChange::WriteInline(at(), b"abc".to_vec()),
        NameChange::PutValue(entry(), b"v".to_vec()),
    ];
    let donation = Donation {
        target: "nvme-tcp://127.0.0.1:4420/nqn?ns=1".into(),
        class: ClassName::new("dram").expect("a class"),
        location: location(),
        overwrite: false,
    };
    let mut all = vec![
        Request::Hello {
            magic: PROTOCOL_MAGIC,
            version: PROTOCOL_VERSION,
            client: "c".into(),
            location: location(),
            session: SessionWish::Resume(SessionId(3), [5; 16]),
        },
        Request::Renew { epoch: Epoch(4) },
        Request::Bye {},
        Request::Resolve { from: InodeId::ROOT, names: vec![name("a"), name("b")], follow: true },
        Request::Stat { at: at() },
        Request::List { container: InodeId(1), after: Some(name("a")), most: 256 },
        Request::Open { at: at(), write: true },
        Request::OpenNew {
            slot: 1,
            sequence: 2,
            entry: entry(),
            new: new_inode(),
            content: b"abc".to_vec(),
            exclusive: true,
        },
        Request::Close { handle: 8 },
        Request::Map { handle: 8, chunk: 1 },
        Request::Grant { handle: 8, count: 16 },
        Request::GrantShort { handle: 8, bytes: 12_288 },
        Request::Unsettle { handle: 8, block: 5 },
        Request::MarkOut { handle: 8, block: 5, copies: vec![extent()] },
        Request::Publish { handle: 8, slot: 1, sequence: 3, size: 100, blocks: vec![(3, block())] },
        Request::Return { extents: vec![extent()] },
        Request::Namespaces {},
        Request::Status {},
        Request::Sessions {},
        Request::Donate { donation },
        Request::Drain { namespace: NamespaceId(7), drains: true },
        Request::Remove { namespace: NamespaceId(7) },
        Request::Services {},
        Request::Movement {},
        Request::Tiering {},
    ];
    all.extend(changes.into_iter().map(|change| Request::Change { slot: 1, sequence: 2, change }));
    all
}

fn answers() -> Vec<Answer> {
    let welcome = WelcomeInfo {
        version: PROTOCOL_VERSION,
        service: ServiceId(1),
        store: 2,
        session: Some(SessionId(3)),
        token: [5; 16],
        lease: Nanos(10),
        drift_ppm: 1000,
        epoch: Epoch(4),
        inline_max: 2048,
        block: 1 << 20,
        classes: vec![ClassName::new("dram").expect("a class")],
    };
    let namespace = NamespaceInfo {
        namespace: NamespaceId(7),
        node: NodeId(1),
        target: "t".into(),
        class: ClassId(0),
        location: location(),
        sector: 4096,
        bytes: 1 << 30,
        label: ContentLabel(5),
        state: NamespaceState::Draining,
        free: 1,
        granted: 2,
        mapped: 3,
        quarantined: 4,
    };
    let movement = MovementInfo {
        namespace: NamespaceId(7),
        is_repair: true,
        blocks: 5,
        no_copy: 4,
        failed: 1,
        why: "t: it is gone".into(),
        ..MovementInfo::default()
    };
    let policy = PolicyInfo {
        path: "/tmp/**".into(),
        classes: vec![ClassName::new("dram").expect("a class")],
        copies: 2,
        demote_after: Some(Nanos(7)),
    };
    let demotion =
        DemotionInfo { class: ClassId(1), is_over: true, hot: 3, why: "w".into(), ..DemotionInfo::default() };
    let tiering = TieringInfo { high: 900_000, low: 800_000, policies: vec![policy], classes: vec![demotion] };
    let service = ServiceInfo {
        process: 7,
        addresses: vec!["a:1".into(), "unix:/b".into()],
        role: ServiceRole::Standby,
        since: UnixNanos(9),
        term: 3,
    };
    let status = StatusInfo {
        service: ServiceId(1),
        store: 2,
        created: UnixNanos(3),
        running: Nanos(4),
        durability: "process".into(),
        metadata: "m".into(),
        sessions: 5,
        connections: 6,
        handles: 7,
        requests: 8,
        classes: vec![ClassStatus { name: ClassName::new("dram").expect("a class"), bytes: 9, free: 10 }],
        trouble: Some("full".into()),
    };
    let session = SessionInfo { session: SessionId(3), client: "c".into(), is_connected: true, handles: 1, granted: 2 };
    let listed = ListEntry {
        name: name("a"),
        record: NameRecord { inode: InodeId(5), kind: InodeKind::File },
        inode: Some(inode()),
    };
    vec![
        Answer::Failed { error: StoreError::TooLarge(2048), detail: "/a".into() },
        Answer::Welcome { welcome },
        Answer::Renewed { epoch: Epoch(4) },
        Answer::Done {},
        Answer::Found { at: at(), inode: inode() },
        Answer::Page { version: 1, entries: vec![listed], is_last: true },
        Answer::Changed { changed: Changed { inode: InodeId(5), version: 2 } },
        Answer::Opened { handle: 8, at: at(), inode: inode() },
        Answer::Chunk { chunk: MapChunk { blocks: vec![block()] }, epoch: Epoch(4) },
        Answer::Granted { blocks: vec![NewBlock { copies: vec![extent()], generation: Generation(9) }] },
        Answer::Namespaces { namespaces: vec![namespace] },
        Answer::Status { status: Box::new(status) },
        Answer::Sessions { sessions: vec![session] },
        Answer::Donated { namespace: NamespaceId(7) },
        Answer::Standby { addresses: vec!["a:1".into()] },
        Answer::Services { services: vec![service] },
        Answer::Movement { namespaces: vec![movement] },
        Answer::Tiering { tiering: Box::new(tiering) },
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn golden(frame: Option<Vec<u8>>, expected: &str) {
    assert_eq!(frame.as_deref().map(hex), Some(expected.replace(' ', "")));
}

#[test]
fn golden_frames() {
    let number = RequestNumber(0x0102);
    let hello = Request::Hello {
        magic: PROTOCOL_MAGIC,
        version: PROTOCOL_VERSION,
        client: "c".into(),
        location: location(),
        session: SessionWish::New,
    };
    golden(hello.encode(number), "20000000 0201000000000000 0100 574549524d455441 0400 01000000 63 02000000 7231 01");
    let map = Request::Map { handle: 8, chunk: 1 };
    golden(map.encode(number), "16000000 0201000000000000 1e00 0800000000000000 01000000");
    let short = Request::GrantShort { handle: 8, bytes: 12_288 };
    golden(short.encode(number), "16000000 0201000000000000 2400 0800000000000000 00300000");
    let publish = Request::Publish { handle: 8, slot: 1, sequence: 3, size: 100, blocks: vec![(3, block())] };
    golden(
        publish.encode(number),
        "61000000 0201000000000000 2200 0800000000000000 0100 0300000000000000 6400000000000000 01000000 0300000000000000 \
         03000000 0900000000000000 00 01000000 0700000000000000 0000100000000000 0000010000000000 01000000 cdab0000",
    );
    let failed = Answer::Failed { error: StoreError::NotFound, detail: "/a".into() };
    golden(failed.encode(number), "19000000 0201000000000000 0080 01 0000000000000000 02000000 2f61");
    let standby = Answer::Standby { addresses: vec!["a:1".into()] };
    golden(standby.encode(number), "15000000 0201000000000000 0480 01000000 03000000 613a31");
    golden(Answer::Done {}.encode(number), "0a000000 0201000000000000 0380");
}

fn there_and_back<M: Debug + PartialEq>(
    messages: &[M],
    encode: impl Fn(&M) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<(RequestNumber, M), FrameError>,
) {
    for message in messages {
        let frame = encode(message);
        let mut reader = FrameReader::default();
        // Byte by byte, and the whole twice.
        for (at, byte) in frame.iter().enumerate() {
            assert_eq!(reader.next(), Ok(None), "{at}");
            reader.push(&[*byte]);
        }
        reader.push(&frame);
        for _ in 0..2 {
            let found = reader.next().expect("frames").expect("a frame");
            assert_eq!(decode(found), Ok((RequestNumber(9), decode(&frame[4..]).expect("a message").1)));
            assert_eq!(decode(found).expect("a message").1, *message);
        }
        assert_eq!(reader.next(), Ok(None));
        assert_eq!(reader.waiting(), 0);
        // Cut short it is none, and neither with more behind it.
        for cut in 4..frame.len() {
            assert!(decode(&frame[4..cut]).is_err(), "{message:?} cut at {cut}");
        }
        let mut longer = frame.clone();
        longer.push(0);
        assert!(decode(&longer[4..]).is_err(), "{message:?} with a byte more");
    }
}

#[test]
fn messages_of_every_kind_there_and_back() {
    there_and_back(&requests(), |m| m.encode(RequestNumber(9)).expect("a frame"), Request::decode);
    there_and_back(&answers(), |m| m.encode(RequestNumber(9)).expect("a frame"), Answer::decode);
    let kinds = |kinds: Vec<u16>| kinds.into_iter().collect::<alloc::collections::BTreeSet<u16>>().len();
    assert_eq!(kinds(requests().iter().map(Request::kind).collect()), Request::rows().len(), "one of each kind");
    assert_eq!(kinds(answers().iter().map(Answer::kind).collect()), Answer::rows().len(), "one of each kind");
}

#[test]
fn lengths_that_no_frame_has() {
    for length in [0u32, 9, FRAME_MAX as u32 + 1, u32::MAX] {
        let mut reader = FrameReader::default();
        reader.push(&length.to_le_bytes());
        assert_eq!(reader.next(), Err(FrameError::Length(length)));
    }
    let mut reader = FrameReader::default();
    reader.push(&(FRAME_MAX as u32).to_le_bytes());
    assert_eq!(reader.next(), Ok(None));
    assert_eq!(reader.waiting(), 4, "nothing is reserved for what is promised");
    let large = NameChange::WriteInline(at(), vec![0; FRAME_MAX]);
    assert_eq!(Request::Change { slot: 0, sequence: 1, change: large }.encode(RequestNumber(1)), None);
}

#[test]
fn counts_that_are_only_promised_are_refused() {
    // A publish of four thousand million blocks, of which none is there.
    let mut frame = Request::Publish { handle: 8, slot: 1, sequence: 3, size: 100, blocks: Vec::new() }
        .encode(RequestNumber(1))
        .expect("a frame");
    let end = frame.len();
    frame[end - 4..].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Request::decode(&frame[4..]), Err(FrameError::Body(34)));
    assert_eq!(Request::decode(&[0; 10]), Err(FrameError::Body(0)));
    assert_eq!(Request::decode(&[0; 3]), Err(FrameError::Length(3)));
}

proptest! {
    /// Damage is an error or another message, and never a panic; what is read is written as it was.
    #[test]
    fn damaged_messages(which in 0usize..64, at in 0usize..200, value: u8, cut in 0usize..200) {
        let frames: Vec<Vec<u8>> = requests().iter().filter_map(|m| m.encode(RequestNumber(1)))
            .chain(answers().iter().filter_map(|m| m.encode(RequestNumber(1)))).collect();
        let mut frame = frames[which % frames.len()].clone();
        let len = frame.len();
        frame[4 + at % (len - 4)] = value;
        frame.truncate(len - cut % (len - 3).min(8));
        if let Ok((number, message)) = Request::decode(&frame[4..]) {
            prop_assert_eq!(&message.encode(number).expect("a frame")[4..], &frame[4..]);
        }
        if let Ok((number, message)) = Answer::decode(&frame[4..]) {
            prop_assert_eq!(&message.encode(number).expect("a frame")[4..], &frame[4..]);
        }
    }

    #[test]
    fn anything_at_all(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = (Request::decode(&bytes), Answer::decode(&bytes));
        let mut reader = FrameReader::default();
        reader.push(&bytes);
        while let Ok(Some(_)) = reader.next() {}
        prop_assert!(reader.waiting() <= bytes.len());
    }
}

/// The tables of the reference are those of the source.
#[test]
fn the_tables_are_documented() {
    let page = include_str!("../../../../docs/reference/metadata-protocol.md");
    let missing: Vec<String> =
        Request::rows().into_iter().chain(Answer::rows()).filter(|row| !page.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "docs/reference/metadata-protocol.md lacks:\n{}", missing.join("\n"));
    let row = |error: StoreError| format!("| {} | `{}` | {error} |", error.number().0, variant(&error));
    let numbered = (1..=u8::MAX).map_while(|number| StoreError::from_number(number, 7));
    let errors = numbered.chain([StoreError::NoSpace, StoreError::Unavailable]).map(row);
    let missing: Vec<String> = errors.filter(|row| !page.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "docs/reference/metadata-protocol.md lacks:\n{}", missing.join("\n"));
}

fn variant(error: &StoreError) -> String {
    format!("{error:?}").split('(').next().unwrap_or_default().into()
}
