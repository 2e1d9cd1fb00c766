//! The layout of a keeper's state, byte by byte: `docs/reference/formats.md`.

use super::saved::*;
use super::*;
use alloc::collections::BTreeMap;
use alloc::{format, vec};
use proptest::prelude::*;
use std::string::String;
use weir_codec::{SavedError, undocumented};
use weir_session::vhost_user::{Inbox, Message};
use weir_spec::nvme::tcp::{Digest, TableDigest};
use weir_spec::vhost_user::{Header, Inflight, Request, VringState};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// A keeper whose first worker serves, with a standby that prepares.
fn keeper() -> Keeper {
    let (mut keeper, mut out) = (Keeper::new(true), vec![]);
    let first = WorkerId(1);
    for (now, event) in [
        (1, Event::Begin),
        (2, Event::Prepared(first, Fit::Both)),
        (3, Event::Ready(first)),
        (4, Event::Died(first, End::Crashed)),
        (5, Event::Died(WorkerId(2), End::Crashed)),
        (6, Event::Prepared(WorkerId(3), Fit::Both)),
        (7, Event::Ready(WorkerId(3))),
        (7 + BREATH.get(), Event::Tick),
    ] {
        keeper.apply(Nanos(now), event, &mut out);
    }
    // As the golden bytes have it: once a standby was started at that very moment.
    keeper.spare.iter_mut().for_each(|spare| spare.since = Nanos(7));
    keeper
}

/// A front end that has started a ring and waits for two answers, one of them half here.
fn front() -> SavedFront {
    let (mut replay, mut out) = (Replay::new(true), vec![]);
    let state = |num: u32| VringState { index: U32::new(0), num: U32::new(num) };
    let (kick, size, stop) = (U64::new(0), state(64), state(0));
    let (features, agreed) = (U64::new(0x1_4000_0200), U64::new(0x200));
    let region = |at: u64| [at, 0x1000 + at, 0x2000 + at, 0x3000 + at].map(U64::new);
    let table = [U32::new(2).as_bytes(), &[0; 4], region(0x1_0000).as_bytes(), region(0x9_0000).as_bytes()].concat();
    let addresses = [0x4000, 0x5000, 0x6000, 0x7000].map(U64::new);
    let address = [[U32::new(0), U32::new(1)].as_bytes(), addresses.as_bytes()].concat();
    let (base, enable) = (state(5), state(1));
    let said: [(Request, &[u8], &[u32]); 14] = [
        (Request::SET_OWNER, &[], &[]),
        (Request::SET_FEATURES, features.as_bytes(), &[]),
        (Request::SET_PROTOCOL_FEATURES, agreed.as_bytes(), &[]),
        (Request::SET_MEM_TABLE, &table, &[40, 41]),
        (Request::SET_VRING_ADDR, &address, &[]),
        (Request::SET_VRING_BASE, base.as_bytes(), &[]),
        (Request::SET_VRING_ENABLE, enable.as_bytes(), &[]),
        (Request::SET_VRING_ERR, kick.as_bytes(), &[42]),
        (Request::SET_BACKEND_REQ_FD, &[], &[20]),
        (Request::SET_VRING_NUM, size.as_bytes(), &[]),
        (Request::SET_VRING_CALL, kick.as_bytes(), &[21]),
        (Request::SET_VRING_KICK, kick.as_bytes(), &[22]),
        (Request::GET_VRING_BASE, stop.as_bytes(), &[]),
        (Request::GET_CONFIG, &[7; 5], &[]),
    ];
    for (request, payload, fds) in said {
        let (payload, fds) = (payload.to_vec(), fds.to_vec());
        replay.front(Message { request, needs_reply: false, again: false, payload, fds }, &mut out);
    }
    let region = Inflight::default();
    replay.back(Request::GET_INFLIGHT_FD, region.as_bytes(), vec![23], &mut out).unwrap();
    let heard = format!("{replay:?}");
    for absent in
        ["features: None", "protocol: None", "regions: []", "address: None", "base: None", "enable: None", "err: None"]
    {
        assert!(!heard.contains(absent), "{absent} in {heard}");
    }
    let header = Header { request: U32::new(31), flags: U32::new(Header::VERSION | Header::REPLY), size: U32::new(8) };
    let (mut inbox, mut answers) = (Inbox::default(), Inbox::of_answers());
    assert!(inbox.refill(&[1, 0, 0], vec![24]) && answers.refill(&[header.as_bytes(), &[1, 2]].concat(), vec![]));
    let envelope = Envelope { bytes: vec![1, 2, 3], fds: vec![20] };
    let out = SavedOut { queue: [envelope].into(), sent: 2 };
    let empty = SavedOut { queue: [].into(), sent: 0 };
    let line = SavedLine { stream: 25, inbox: answers, out: empty, over: false };
    let conn = SavedConn { number: 3, socket: 26, pid: Some(77), inbox, out, replay, line: Some(line) };
    SavedFront { path: "/run/a.sock".into(), inflight: true, listener: 27, conn: Some(conn) }
}

/// A client of vfio-user with a message that no worker has taken for certain, one that is half here, and an answer on its way.
fn relay() -> SavedRelay {
    use weir_session::vfio_user::{Message, gathered};
    use weir_spec::vfio_user::{Command, Header};
    let message = |command: Command, payload: &[u8], fds: &[u32]| Message {
        header: Header::command(5, command, payload.len()),
        payload: payload.to_vec(),
        fds: fds.to_vec(),
    };
    let mut relay = Relay::new();
    relay.told(3);
    relay.front(message(Command::REGION_READ, &[1; 4], &[]));
    relay.front(message(Command::DMA_MAP, &[2; 4], &[30, 31]));
    for word in [relay::applied(1), relay::answer(1)] {
        relay.back(gathered(&word, vec![]).unwrap().1.unwrap()).unwrap();
    }
    let half = |command: Command, fds: Vec<u32>| {
        let bytes = message(command, &[3; 4], &[]).bytes();
        gathered(&bytes[..18], fds).unwrap().0
    };
    let out = |bytes: &[u8], fds: &[u32], sent| SavedOut {
        queue: [Envelope { bytes: bytes.to_vec(), fds: fds.to_vec() }].into(),
        sent,
    };
    let wire =
        SavedWire { stream: 32, inbox: half(Command::DMA_READ, vec![]), out: out(&[4; 3], &[31], 1), over: true };
    let inbox = half(Command::DMA_UNMAP, vec![33]);
    let client =
        SavedClient { number: 4, socket: 34, pid: None, inbox, out: out(&[5; 3], &[], 2), relay, line: Some(wire) };
    SavedRelay { path: "/run/v.sock".into(), listener: 35, conn: Some(client) }
}

fn worker(id: u64, first: u32) -> SavedWorker {
    let layouts = Layouts::parse("arena=1 journal=1-2").unwrap();
    SavedWorker { id: WorkerId(id), pid: 1000 + first, pidfd: first, channel: first + 1, layouts }
}

fn saved() -> Saved {
    let machine = keeper();
    assert!(machine.is_at_rest() && machine.spare.is_some());
    Saved {
        pid: 999,
        machine,
        usual: b"/bin/weir".to_vec(),
        program: SavedProgram { path: b"/bin/weir-2".to_vec(), file: 10 },
        arguments: vec![b"worker".to_vec(), b"-c".to_vec(), b"\xff".to_vec()],
        generation: 2,
        connections: 3,
        upgrade: "{}".into(),
        since: Nanos(8),
        workers: vec![worker(3, 11), worker(4, 13)],
        ready: Some(WorkerId(3)),
        held: BTreeMap::from([("owner".into(), vec![15]), ("ram:ssd0".into(), vec![16, 17])]),
        fronts: vec![front(), SavedFront { path: "b".into(), inflight: false, listener: 28, conn: None }],
        relays: vec![relay(), SavedRelay { path: "c".into(), listener: 36, conn: None }],
    }
}

/// Sixteen bytes a line.
fn dump(bytes: &[u8]) -> Vec<String> {
    let hex = |chunk: &[u8]| chunk.iter().map(|b| format!("{b:02x}")).collect();
    bytes.chunks(16).map(hex).collect()
}

fn bytes_of(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

fn golden() -> Vec<u8> {
    bytes_of(include_str!("saved_2.txt"))
}

#[test]
fn golden_bytes_of_version_2() {
    let lines: Vec<&str> = include_str!("saved_2.txt").lines().collect();
    assert_eq!(VERSION, 2);
    assert_eq!(dump(&saved().to_bytes::<TableDigest>()), lines, "a change of the layout is another version");
    let read = Saved::parse::<TableDigest>(&golden()).unwrap();
    assert_eq!(format!("{read:?}"), format!("{:?}", saved()));
}

#[test]
fn version_1_had_no_clients_of_vfio_user() {
    let read = Saved::parse::<TableDigest>(&bytes_of(include_str!("saved_1.txt"))).unwrap();
    let then = Saved { relays: vec![], ..saved() };
    assert_eq!(format!("{read:?}"), format!("{then:?}"));
}

/// Whoever changed it has made the checksum right.
fn forged(bytes: &[u8]) -> Vec<u8> {
    let body = &bytes[..bytes.len() - 4];
    [body, &TableDigest::append(0, body).to_le_bytes()].concat()
}

#[test]
fn what_is_another_release_or_none_is_told() {
    let parse = |bytes: &[u8]| Saved::parse::<TableDigest>(bytes).map(|_| ());
    let bytes = golden();
    let version = SavedError::Version { found: 0, oldest: 1, newest: 2 };
    for (at, error) in [(0, SavedError::Foreign("the state of a keeper")), (8, version), (12, SavedError::Damaged)] {
        let mut other = bytes.clone();
        other[at] ^= 2;
        assert_eq!(parse(&forged(&other)), Err(error));
    }
    for len in 0..bytes.len() {
        assert!(parse(&bytes[..len]).is_err() && (len < 20 || parse(&forged(&bytes[..len])).is_err()), "{len}");
    }
    assert!(parse(&[&bytes[..], &[0]].concat()).is_err());
}

#[test]
fn what_contradicts_itself_is_damaged() {
    let with = |change: fn(&mut Saved)| {
        let mut saved = saved();
        change(&mut saved);
        Saved::parse::<TableDigest>(&saved.to_bytes::<TableDigest>()).map(|_| ())
    };
    assert_eq!(with(|_| {}), Ok(()));
    let changes: [fn(&mut Saved); 9] = [
        |s| s.workers.truncate(1),
        |s| s.ready = Some(WorkerId(4)),
        |s| s.machine.last = 3,
        |s| s.machine.active = None,
        |s| s.machine.spare = s.machine.active,
        |s| s.fronts[0].conn.iter_mut().for_each(|c| c.out.sent = 3),
        |s| s.fronts[0].conn.iter_mut().for_each(|c| c.inbox = Inbox::of_answers()),
        |s| s.relays[0].conn.iter_mut().for_each(|c| c.out.sent = 3),
        |s| s.relays[0].conn.iter_mut().for_each(|c| c.line.iter_mut().for_each(|l| l.out.sent = 3)),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        assert_eq!(with(change), Err(SavedError::Damaged), "{i}");
    }
}

#[test]
fn fields_are_lines_of_the_formats_page() {
    let page = include_str!("../../../docs/reference/formats.md");
    let states = [
        ("Saved", Saved::rows()),
        ("Keeper", decisions_rows()),
        ("Worker", Worker::rows()),
        ("SavedProgram", SavedProgram::rows()),
        ("SavedWorker", SavedWorker::rows()),
        ("SavedFront", SavedFront::rows()),
        ("SavedConn", SavedConn::rows()),
        ("SavedLine", SavedLine::rows()),
        ("SavedRelay", SavedRelay::rows()),
        ("SavedClient", SavedClient::rows()),
        ("SavedWire", SavedWire::rows()),
        ("SavedOut", SavedOut::rows()),
        ("Envelope", Envelope::rows()),
        ("Relay", Relay::rows()),
        ("Replay", Replay::rows()),
        ("Said", replay::Said::rows()),
        ("Vring", replay::Vring::rows()),
        ("Pending", replay::Pending::rows()),
    ];
    let missing = undocumented(page, states);
    assert!(missing.is_empty(), "formats.md has other lines than these:\n{missing}");
}

proptest! {
    /// Wherever it is changed, it is read as something that is written in just that way, or not at all.
    #[test]
    fn no_bytes_are_read_as_what_they_are_not(changes in prop::collection::vec((16..10_000usize, any::<u8>()), 1..4)) {
        let mut bytes = golden();
        for (at, to) in changes {
            let len = bytes.len() - 20;
            bytes[16 + at % len] = to;
        }
        let bytes = forged(&bytes);
        if let Ok(read) = Saved::parse::<TableDigest>(&bytes) {
            prop_assert_eq!(read.to_bytes::<TableDigest>(), bytes);
        }
    }
}
