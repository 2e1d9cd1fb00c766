//! The host against a small target on a real socket: our own connection machine and a drive that answers at once.

use super::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use weir_session::nvme_tcp::{
    Budget, Connection as Target, ConnectionSettings as TargetSettings, ConnectionState, ReadyCommand,
};
use weir_spec::nvme::fabrics::{CATTR_DISABLE_SQ_FLOW, Connect, Property};
use weir_spec::nvme::identify::{IdentifyController, IdentifyNamespace, LbaFormat};
use weir_spec::nvme::log::{DiscoveryHeader, adrfam, lid, subtype};
use weir_spec::nvme::register::{CAP, CC, CSTS, Cap};
use weir_spec::nvme::{AdminOpcode, FabricsType, IoOpcode, Status};
use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

const NQN: &str = "nqn.2026-11.io.weir:test";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:test";
const CAPACITY: usize = 8 << 20;
const RECORDS: u64 = 9;

/// What the target does besides.
#[derive(Clone, Copy, Default)]
struct Manners {
    /// Refuses Connect of the I/O queue.
    refuse: bool,
    /// Never becomes ready.
    never_ready: bool,
    /// Closes when it sees a read.
    hang_up: bool,
    /// The same, but only the first time.
    hang_up_once: bool,
    /// How often it says of a controller that has gone that it is there.
    lives: u32,
    /// How long it takes for a keep alive.
    keep_alive: Duration,
}

struct Drive {
    disk: Mutex<Vec<u8>>,
    enabled: AtomicU32,
    keep_alives: AtomicU32,
    logs: AtomicU32,
    controllers: AtomicU32,
    reads: AtomicU32,
    asked: AtomicU32,
    manners: Manners,
}

fn serve(manners: Manners) -> (SocketAddr, Arc<Drive>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let drive = Arc::new(Drive {
        disk: Mutex::new(vec![0; CAPACITY]),
        enabled: AtomicU32::new(0),
        keep_alives: AtomicU32::new(0),
        logs: AtomicU32::new(0),
        controllers: AtomicU32::new(0),
        reads: AtomicU32::new(0),
        asked: AtomicU32::new(0),
        manners,
    });
    let shared = drive.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let drive = shared.clone();
            thread::spawn(move || connection(&stream.unwrap(), &drive));
        }
    });
    (address, drive)
}

fn connection(mut stream: &TcpStream, drive: &Drive) {
    let mut target = Target::<Crc32c>::new(Nanos(0), TargetSettings { maxh2cdata: 16384, ..TargetSettings::default() });
    let mut budget = Budget::new(1 << 20);
    let mut bytes = vec![0; 100_000];
    let mut admin = true;
    while matches!(target.state(), ConnectionState::AwaitsIcReq | ConnectionState::Running) {
        match stream.read(&mut bytes) {
            Ok(n) if n > 0 => target.receive(Nanos(0), &bytes[..n], &mut budget),
            _ => return,
        }
        while let Some(c) = target.next_command() {
            let Some(mut cqe) = execute(&mut target, &c, drive, &mut admin) else { return };
            cqe.cid = c.sqe.cid;
            target.respond(c.tag, &cqe, &mut budget);
            target.grant(&mut budget);
        }
        while !target.ready().is_empty() {
            let Ok(n) = stream.write(target.ready()) else { return };
            target.sent(Nanos(0), n, &mut budget);
        }
    }
}

fn status(status: Status) -> Cqe {
    let mut cqe = Cqe::default();
    cqe.set_status(status);
    cqe
}

fn execute(target: &mut Target<Crc32c>, c: &ReadyCommand, drive: &Drive, admin: &mut bool) -> Option<Cqe> {
    let ok = Cqe::default();
    if c.sqe.opcode == AdminOpcode::FABRICS.0 {
        return Some(fabrics(target, c, drive, admin));
    }
    if !*admin {
        return io(target, c, drive);
    }
    Some(match AdminOpcode(c.sqe.opcode) {
        AdminOpcode::IDENTIFY => {
            let data = match c.sqe.cdw10.get() {
                1 => {
                    IdentifyController { mdts: 5, ioccsz: U32::new((64 + 8192) / 16), ..IdentifyController::default() }
                        .as_bytes()
                        .to_vec()
                }
                2 => [1u32, 0].iter().flat_map(|n| n.to_le_bytes()).chain([0; 4088]).collect(),
                _ if c.sqe.nsid.get() == 1 => {
                    let mut id = IdentifyNamespace { nsze: U64::new(CAPACITY as u64 / 4096), ..Default::default() };
                    id.lbaf[0] = LbaFormat { lbads: 12, ..LbaFormat::default() };
                    id.as_bytes().to_vec()
                }
                _ => vec![0; 4096],
            };
            target.write_data(c.tag, 0, &data).map_or_else(status, |()| ok)
        }
        AdminOpcode::SET_FEATURES => Cqe { dw0: U32::new(3 << 16 | 3), ..ok },
        AdminOpcode::KEEP_ALIVE => {
            drive.keep_alives.fetch_add(1, Ordering::Relaxed);
            thread::sleep(drive.manners.keep_alive);
            ok
        }
        AdminOpcode::GET_LOG_PAGE => discovery_log(target, c, drive),
        _ => status(Status::INVALID_OPCODE),
    })
}

fn discovery_log(target: &mut Target<Crc32c>, c: &ReadyCommand, drive: &Drive) -> Cqe {
    assert_eq!(c.sqe.cdw10.get() as u8, lid::DISCOVERY);
    // The log changes once while it is read.
    let generation = 1 + u64::from(drive.logs.fetch_add(1, Ordering::Relaxed) >= 2);
    let header =
        DiscoveryHeader { genctr: U64::new(generation), numrec: U64::new(RECORDS), ..DiscoveryHeader::default() };
    let mut log = header.as_bytes().to_vec();
    for i in 0..RECORDS {
        log.extend(DiscoveryEntry::tcp(subtype::NVM, NQN, adrfam::IPV4, "127.0.0.1", 4420 + i as u16).as_bytes());
    }
    let (at, len) = (c.sqe.cdw12.get() as usize, ((c.sqe.cdw10.get() >> 16) as usize + 1) * 4);
    target.write_data(c.tag, 0, &log[at..at + len]).map_or_else(status, |()| Cqe::default())
}

fn fabrics(target: &mut Target<Crc32c>, c: &ReadyCommand, drive: &Drive, admin: &mut bool) -> Cqe {
    let ok = Cqe::default();
    match FabricsType(c.sqe.nsid.get() as u8) {
        FabricsType::CONNECT => {
            let connect = Connect::from(c.sqe);
            let (data, _) = ConnectData::read_from_prefix(target.data(c.tag).unwrap()).unwrap();
            assert_eq!(data.hostnqn(), Some(HOST));
            if connect.qid.get() == 0xffff {
                // A queue that no controller has: it is asked about an association.
                let lives = drive.asked.fetch_add(1, Ordering::Relaxed) < drive.manners.lives;
                let gone = Cqe { dw0: U32::new(1 << 16 | 16), ..status(Status::CONNECT_INVALID_PARAMETERS) };
                return if lives { status(Status::INVALID_QUEUE_ID) } else { gone };
            }
            *admin = connect.qid.get() == 0;
            if !*admin && drive.manners.refuse {
                return status(Status::CONNECT_CONTROLLER_BUSY);
            }
            let newest = 6 + drive.controllers.fetch_add(u32::from(*admin), Ordering::Relaxed) + u32::from(*admin);
            assert!(u32::from(data.cntlid.get()) == if *admin { 0xffff } else { newest });
            target.connected(u32::from(connect.sqsize.get()) + 1, connect.cattr & CATTR_DISABLE_SQ_FLOW == 0);
            Cqe { dw0: U32::new(newest), ..ok }
        }
        FabricsType::PROPERTY_SET => {
            let p = Property::from(c.sqe);
            assert_eq!((p.ofst.get(), p.value.get() & 1), (CC, 1));
            drive.enabled.store(1, Ordering::Relaxed);
            ok
        }
        FabricsType::PROPERTY_GET => match Property::from(c.sqe).ofst.get() {
            CAP => {
                let cap = Cap(0).with_mqes(63).with_to(1).0;
                Cqe { dw0: U32::new(cap as u32), dw1: U32::new((cap >> 32) as u32), ..ok }
            }
            CSTS if drive.manners.never_ready => ok,
            CSTS => Cqe { dw0: U32::new(drive.enabled.load(Ordering::Relaxed)), ..ok },
            _ => status(Status::INVALID_FIELD),
        },
        _ => status(Status::INVALID_FIELD),
    }
}

fn io(target: &mut Target<Crc32c>, c: &ReadyCommand, drive: &Drive) -> Option<Cqe> {
    let mut disk = drive.disk.lock().unwrap();
    let (at, len) = (c.sqe.slba() as usize * 4096, c.sqe.blocks() as usize * 4096);
    let result = match IoOpcode(c.sqe.opcode) {
        IoOpcode::READ if drive.manners.hang_up => return None,
        IoOpcode::READ if drive.manners.hang_up_once && drive.reads.fetch_add(1, Ordering::Relaxed) == 0 => {
            return None;
        }
        IoOpcode::READ => target.write_data(c.tag, 0, &disk[at..at + len]),
        IoOpcode::WRITE => target.read_data(c.tag, 0, &mut disk[at..at + len]),
        IoOpcode::WRITE_ZEROES => {
            disk[at..at + len].fill(0);
            Ok(())
        }
        IoOpcode::DATASET_MANAGEMENT => {
            let mut range = DsmRange::default();
            let result = target.read_data(c.tag, 0, range.as_mut_bytes());
            let at = range.slba.get() as usize * 4096;
            disk[at..at + range.nlb.get() as usize * 4096].fill(0);
            result
        }
        IoOpcode::FLUSH => Ok(()),
        _ => Err(Status::INVALID_OPCODE),
    };
    Some(status(result.err().unwrap_or(Status::SUCCESS)))
}

fn options() -> ConnectOptions {
    ConnectOptions { depth: 32, ..ConnectOptions::new(NQN, HOST) }
}

fn connect(address: SocketAddr, options: &ConnectOptions) -> Result<Vec<NvmeTcpQueue>, TransportError> {
    open(&address.ip().to_string(), address.port(), options, 128 << 10)
}

/// Submits and waits for all.
fn complete(q: &mut NvmeTcpQueue, ios: &[Io]) -> Vec<Status> {
    for io in ios {
        q.submit(*io).unwrap();
    }
    let mut done = Vec::new();
    while done.len() < ios.len() {
        q.poll(&mut done).unwrap();
    }
    done.sort_by_key(|d| ios.iter().position(|io| io.slot == d.slot));
    done.iter().map(|d| d.status).collect()
}

#[test]
fn what_is_written_is_read_with_every_combination_of_digests() {
    let (address, _) = serve(Manners::default());
    for (header_digest, data_digest) in [(false, false), (true, false), (false, true), (true, true)] {
        for sq_flow_control in [false, true] {
            let o = ConnectOptions { header_digest, data_digest, sq_flow_control, ..options() };
            let mut q = connect(address, &o).unwrap().remove(0);
            assert_eq!((q.block_size(), q.capacity(), q.depth(), q.max_io()), (4096, CAPACITY as u64, 32, 128 << 10));
            let io = |kind, slot: u32, len| Io { kind, offset: u64::from(slot) * (128 << 10), len, slot };
            let lens: Vec<u32> = (0..32).map(|s| 4096 * (1 + s * 7 % 32)).collect();
            for slot in 0..32 {
                q.buffer(slot).fill(slot as u8 + 1);
            }
            let writes: Vec<Io> = (0..32).map(|s| io(IoKind::Write, s, lens[s as usize])).collect();
            assert!(complete(&mut q, &writes).iter().all(|s| s.is_success()));
            for slot in 0..32 {
                q.buffer(slot).fill(0);
            }
            let reads: Vec<Io> = (0..32).map(|s| io(IoKind::Read, s, lens[s as usize])).collect();
            assert!(complete(&mut q, &reads).iter().all(|s| s.is_success()));
            for slot in 0..32u32 {
                let len = lens[slot as usize] as usize;
                assert!(q.buffer(slot)[..len].iter().all(|b| *b == slot as u8 + 1));
                assert!(q.buffer(slot)[len..].iter().all(|b| *b == 0));
            }
        }
    }
}

#[test]
fn what_was_in_flight_is_repeated_once_the_target_has_no_association_of_before() {
    for lives in [0, 3] {
        let (address, drive) = serve(Manners { hang_up_once: true, lives, ..Manners::default() });
        let mut q = connect(address, &options()).unwrap().remove(0);
        q.reconnect_for(Duration::from_secs(30));
        let first = q.association();
        let io = Io { kind: IoKind::Read, offset: 0, len: 4096, slot: 0 };
        assert_eq!(complete(&mut q, &[io]), [Status::SUCCESS]);
        assert_eq!((q.reconnects(), drive.asked.load(Ordering::Relaxed)), (1, lives + 1));
        assert_ne!(q.association(), first);
    }
}

#[test]
fn zeroes_trims_and_flushes() {
    let (address, drive) = serve(Manners::default());
    let mut q = connect(address, &options()).unwrap().remove(0);
    drive.disk.lock().unwrap().fill(9);
    q.buffer(1).fill(5);
    let ios = [
        Io { kind: IoKind::WriteZeroes, offset: 0, len: 8192, slot: 0 },
        Io { kind: IoKind::Trim, offset: 16384, len: 4096, slot: 1 },
        Io { kind: IoKind::Flush, offset: 0, len: 0, slot: 2 },
    ];
    assert!(complete(&mut q, &ios).iter().all(|s| s.is_success()));
    let disk = drive.disk.lock().unwrap();
    assert!(disk[..8192].iter().chain(&disk[16384..20480]).all(|b| *b == 0));
    assert!(disk[8192..16384].iter().chain(&disk[20480..]).all(|b| *b == 9));
    assert!(q.buffer(1).iter().all(|b| *b == 5), "a trim has no buffer");
}

#[test]
fn several_queues_of_one_controller() {
    let (address, _) = serve(Manners::default());
    let queues = connect(address, &ConnectOptions { queues: 3, nsid: 0, ..options() }).unwrap();
    assert_eq!(queues.len(), 3);
    thread::scope(|s| {
        for (i, mut q) in queues.into_iter().enumerate() {
            s.spawn(move || {
                assert_eq!(q.ready().nsid, 1);
                let io = Io { kind: IoKind::Write, offset: i as u64 * 65536, len: 65536, slot: 3 };
                for _ in 0..50 {
                    assert_eq!(complete(&mut q, &[io]), [Status::SUCCESS]);
                }
            });
        }
    });
    let mut c = RemoteController::connect("127.0.0.1", address.port(), options()).unwrap();
    c.queue_pair(4096).unwrap();
    let refused = c.queue_pair(4096).unwrap_err();
    assert!(matches!(&refused, TransportError::Refused(t) if t.contains("grants 1 I/O queues")), "{refused}");
}

#[test]
fn the_discovery_log_is_read_until_it_stands_still() {
    let (address, _) = serve(Manners::default());
    let log = discover("127.0.0.1", address.port(), HOST).unwrap();
    assert_eq!(log.len(), RECORDS as usize);
    assert_eq!((log[8].subnqn(), log[8].trsvcid()), (Some(NQN), Some("4428")));
}

#[test]
fn keep_alives_are_sent_by_polling() {
    let (address, drive) = serve(Manners::default());
    let o = ConnectOptions { kato: Nanos::from_millis(60), ..options() };
    let mut q = connect(address, &o).unwrap().remove(0);
    let until = now().saturating_add(Nanos::from_millis(200));
    let mut done = Vec::new();
    while now() < until {
        q.poll(&mut done).unwrap();
    }
    let sent = drive.keep_alives.load(Ordering::Relaxed);
    assert!((2..=7).contains(&sent), "{sent} in 200 ms at an interval of 30 ms");
}

/// With an interval of 1 s an answer has 1.5 s: after an interval in which this process stood still it is looked for once more.
#[test]
fn an_answer_to_a_keep_alive_may_be_late_and_may_not_stay_away() {
    let polled = |keep_alive: Duration| {
        let (address, drive) = serve(Manners { keep_alive, ..Manners::default() });
        let o = ConnectOptions { kato: Nanos::from_secs(2), ..options() };
        let mut q = connect(address, &o).unwrap().remove(0);
        let (until, mut done) = (now().saturating_add(Nanos::from_millis(3500)), Vec::new());
        while now() < until {
            q.poll(&mut done)?;
            thread::sleep(Duration::from_millis(1));
        }
        Ok(drive.keep_alives.load(Ordering::Relaxed))
    };
    assert_eq!(polled(Duration::from_millis(1200)), Ok(2));
    let lost = polled(Duration::from_secs(60));
    assert!(matches!(&lost, Err(TransportError::Timeout(t)) if t.contains("does not answer keep alives")), "{lost:?}");
}

#[test]
fn errors_say_what_is_wrong() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let e = connect(free, &options()).unwrap_err();
    assert!(matches!(&e, TransportError::Unreachable(t) if t.contains(&free.port().to_string())), "{e}");
    let (address, _) = serve(Manners { refuse: true, ..Manners::default() });
    let e = connect(address, &options()).unwrap_err();
    assert!(matches!(&e, TransportError::Refused(t) if t.contains("Connect Controller Busy")), "{e}");
    let (address, _) = serve(Manners { never_ready: true, ..Manners::default() });
    let e = connect(address, &options()).unwrap_err();
    assert!(matches!(&e, TransportError::Timeout(t) if t.contains("ready")), "{e}");
    let (address, _) = serve(Manners::default());
    let e = connect(address, &ConnectOptions { nsid: 5, ..options() }).unwrap_err();
    assert!(matches!(&e, TransportError::NoNamespace(t) if t.contains("namespace 5")), "{e}");
    let e = open("no-such-host.invalid", 4420, &options(), 4096).unwrap_err();
    assert!(matches!(&e, TransportError::Unreachable(t) if t.contains("no-such-host")), "{e}");
}

/// Local ports of sockets that wait for an answer to their SYN there.
fn unanswered(to: SocketAddr) -> Vec<u16> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = |field: &str| u16::from_str_radix(field.split(':').nth(1)?, 16).ok();
    let one = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // 02: SYN_SENT.
        (fields.get(3) == Some(&"02") && port(fields[2]) == Some(to.port())).then(|| port(fields[1]))?
    };
    table.lines().skip(1).filter_map(one).collect()
}

#[test]
fn a_syn_that_is_lost_is_followed_by_another_sockets() {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&listener, 0).unwrap();
    let address: SocketAddr = getsockname(&listener).unwrap().try_into().unwrap();
    let listener = TcpListener::from(listener);
    // Its queue is full.
    let _first = TcpStream::connect(address).unwrap();
    let dialing = thread::spawn(move || super::connect(&address, super::CONNECT_TIMEOUT));
    let mut ports = Vec::new();
    while ports.len() < 2 {
        assert!(!dialing.is_finished(), "no other socket was tried");
        ports.extend(unanswered(address));
        ports.dedup();
        thread::sleep(Duration::from_millis(1));
    }
    listener.accept().unwrap();
    let made = dialing.join().unwrap().unwrap();
    assert_ne!(made.local_addr().unwrap().port(), ports[0]);
}

#[test]
fn a_controller_that_hangs_up_is_noticed() {
    let (address, _) = serve(Manners { hang_up: true, ..Manners::default() });
    let mut q = connect(address, &options()).unwrap().remove(0);
    q.submit(Io { kind: IoKind::Read, offset: 0, len: 4096, slot: 0 }).unwrap();
    let mut done = Vec::new();
    let e = loop {
        if let Err(e) = q.poll(&mut done) {
            break e;
        }
    };
    assert!(matches!(&e, TransportError::Closed(_)), "{e}");
    assert!(done.is_empty());
}

#[test]
fn garbage_instead_of_a_target_is_a_protocol_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    });
    let e = connect(address, &options()).unwrap_err();
    assert!(
        matches!(&e, TransportError::Protocol(t) if t.contains("PDU Sequence") || t.contains("Header Field")),
        "{e}"
    );
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let (address, _) = serve(Manners::default());
    let mut q = connect(address, &options()).unwrap().remove(0);
    for io in [
        Io { kind: IoKind::Read, offset: 0, len: 512, slot: 0 },
        Io { kind: IoKind::Read, offset: 0, len: 256 << 10, slot: 0 },
        Io { kind: IoKind::Read, offset: CAPACITY as u64, len: 4096, slot: 0 },
        Io { kind: IoKind::Read, offset: 0, len: 4096, slot: 32 },
    ] {
        assert!(matches!(q.submit(io), Err(TransportError::Usage(_))), "{io:?}");
    }
    q.submit(Io { kind: IoKind::Read, offset: 0, len: 4096, slot: 0 }).unwrap();
    let twice = q.submit(Io { kind: IoKind::Read, offset: 0, len: 4096, slot: 0 });
    assert!(matches!(twice, Err(TransportError::Usage(_))));
}
