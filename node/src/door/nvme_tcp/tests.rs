//! A node with this door, our own host at the other end: connections that move, starve, break the rules and go away.

use crate::node::Node;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use weir_config::Config;
use weir_driver::nvme_tcp::{ConnectOptions, command};
use weir_driver::{Done, Io, IoKind, QueuePair, TransportError};
use weir_spec::nvme::entry::SglDescriptor;
use weir_spec::nvme::fabrics::{ConnectData, DISCOVERY_NQN};
use weir_spec::nvme::log::subtype;
use weir_spec::nvme::tcp::{CapsuleCmd, CommonHeader, Framing, Header, IcReq};
use weir_spec::nvme::{Sqe, Status};
use weir_sys::transport::nvme_tcp::{NvmeTcpQueue, RemoteController, discover, open};
use weir_units::Nanos;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

const A: &str = "nqn.2026-11.io.weir:t1:a";
const B: &str = "nqn.2026-11.io.weir:t1:b";
const HOST: &str = "nqn.2026-11.io.weir:host:gold";

/// Two drives, on two shards where the machine has two cores, one tenant, a small budget.
fn node(more: &str) -> Node {
    let cores = if std::thread::available_parallelism().is_ok_and(|n| n.get() > 1) { "[0, 1]" } else { "[0]" };
    let text = format!(
        r#"
[node]
name = "t1"
cores = {cores}
api = "127.0.0.1:0"
[[device]]
name = "a"
kind = "ram"
capacity = "16MiB"
[[device]]
name = "b"
kind = "ram"
capacity = "16MiB"
[[tenant]]
name = "gold"
class = "high"
hosts = ["{HOST}"]
[[export]]
device = "a"
door = "nvme-tcp"
[[export]]
device = "b"
door = "nvme-tcp"
[door.nvme-tcp]
listen = "127.0.0.1:0"
tenant_buffer = "1MiB"
{more}
"#
    );
    let config = Config::parse(&text, "test.toml", Path::new("/")).unwrap_or_else(|e| panic!("{e}"));
    Node::start(config).unwrap_or_else(|e| panic!("{e}"))
}

fn connect(at: SocketAddr, options: &ConnectOptions) -> Result<Vec<NvmeTcpQueue>, TransportError> {
    open("127.0.0.1", at.port(), options, 128 << 10)
}

fn queue(at: SocketAddr, nqn: &str) -> NvmeTcpQueue {
    connect(at, &ConnectOptions::new(nqn, HOST)).unwrap_or_else(|e| panic!("{e}")).remove(0)
}

fn complete(q: &mut NvmeTcpQueue, ios: &[Io]) -> Vec<Done> {
    for io in ios {
        q.submit(*io).unwrap();
    }
    let (mut done, start) = (Vec::new(), Instant::now());
    while done.len() < ios.len() {
        q.poll(&mut done).unwrap();
        assert!(start.elapsed() < Duration::from_secs(20), "{} of {} done", done.len(), ios.len());
    }
    done
}

fn write_and_read(q: &mut NvmeTcpQueue, seed: u8) {
    let ios = |kind| -> Vec<Io> {
        (0..16).map(|slot| Io { kind, offset: u64::from(slot) << 17, len: 4096 << (slot % 6), slot }).collect()
    };
    for slot in 0..16 {
        q.buffer(slot).fill(seed ^ slot as u8);
    }
    assert!(complete(q, &ios(IoKind::Write)).iter().all(|d| d.status.is_success()));
    for slot in 0..16 {
        q.buffer(slot).fill(!seed);
    }
    assert!(complete(q, &ios(IoKind::Read)).iter().all(|d| d.status.is_success()));
    for io in ios(IoKind::Read) {
        assert!(q.buffer(io.slot)[..io.len as usize].iter().all(|b| *b == seed ^ io.slot as u8), "{io:?}");
    }
}

#[test]
fn a_connection_goes_to_the_shard_of_its_drive() {
    let node = node("");
    let at = node.listening()[0];
    let (mut a, mut b) = (queue(at, A), queue(at, B));
    write_and_read(&mut a, 0x11);
    write_and_read(&mut b, 0x2f);
    write_and_read(&mut a, 0x33);
    drop((a, b));
    node.stop();
}

#[test]
fn digests_and_flow_control_are_the_hosts_choice() {
    let node = node("");
    let at = node.listening()[0];
    for bits in 0..8 {
        let options = ConnectOptions {
            header_digest: bits & 1 != 0,
            data_digest: bits & 2 != 0,
            sq_flow_control: bits & 4 != 0,
            queues: 2,
            ..ConnectOptions::new(B, HOST)
        };
        for mut q in connect(at, &options).unwrap_or_else(|e| panic!("{e}")) {
            write_and_read(&mut q, bits);
        }
    }
    node.stop();
}

#[test]
fn discovery_names_every_exported_drive_once() {
    let node = node("");
    let at = node.listening()[0];
    let log = discover("127.0.0.1", at.port(), HOST).unwrap();
    let drives: Vec<_> = log.iter().filter(|e| e.subtype == subtype::NVM).filter_map(|e| e.subnqn()).collect();
    assert_eq!(drives, [A, B]);
    assert!(log.iter().any(|e| e.subnqn() == Some(DISCOVERY_NQN)));
    assert!(log.iter().all(|e| e.trsvcid() == Some(&at.port().to_string()) && e.traddr() == Some("127.0.0.1")));
    node.stop();
}

/// `0.0.0.0` is no address to connect to: the log names the one that was asked.
#[test]
fn a_wildcard_is_advertised_by_the_address_that_was_asked() {
    let text = "[[device]]\nkind = \"null\"\nnqn = \"nqn.2026-11.io.weir:w\"\n[[tenant]]\nname = \"gold\"\nhosts = [\"*\"]\n\
                [[export]]\ndoor = \"nvme-tcp\"\n[door.nvme-tcp]\nlisten = [\"0.0.0.0:0\", \"127.0.0.1:0\"]\n[node]\napi = \"127.0.0.1:0\"\n";
    let config = Config::parse(text, "test.toml", Path::new("/")).unwrap_or_else(|e| panic!("{e}"));
    let wild = Node::start(config).unwrap_or_else(|e| panic!("{e}"));
    let ports: Vec<String> = wild.listening().iter().map(|a| a.port().to_string()).collect();
    for (asked, from) in [("127.0.0.1", 0), ("127.0.0.2", 0), ("127.0.0.1", 1)] {
        let log = discover(asked, wild.listening()[from].port(), HOST).unwrap();
        let got: Vec<_> = log.iter().filter_map(|e| Some((e.traddr()?, e.trsvcid()?, e.portid.get()))).collect();
        let (first, second) = ((asked, &ports[0][..], 1), ("127.0.0.1", &ports[1][..], 2));
        assert_eq!(got, [first, first, second, second], "asked by {asked} at port {from}");
    }
    wild.stop();
}

#[test]
fn a_refusal_says_why() {
    let node = node("");
    let at = node.listening()[0];
    for (nqn, host, why) in [
        (
            "nqn.2026-11.io.weir:t1:none",
            HOST,
            "has no subsystem nqn.2026-11.io.weir:t1:none; there is nqn.2026-11.io.weir:t1:a, nqn.2026-11.io.weir:t1:b",
        ),
        (A, "nqn.2026-11.io.weir:host:nobody", "refused Connect: Connect Invalid Host"),
        (A, "not-an-nqn", "refused Connect: Connect Invalid Parameters, HOSTNQN"),
        (A, "", "refused Connect: Connect Invalid Parameters, HOSTNQN"),
    ] {
        let e = connect(at, &ConnectOptions::new(nqn, host)).unwrap_err();
        assert!(matches!(&e, TransportError::Refused(t) if t.contains(why)), "{nqn} {host}: {e}");
    }
    node.stop();
}

/// A host that speaks by hand.
struct Raw {
    stream: TcpStream,
}

impl Raw {
    fn new(at: SocketAddr) -> Self {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut raw = Self { stream };
        let req = IcReq { ch: IcReq::CH, pfv: U16::new(0), hpda: 0, dgst: 0, maxr2t: U32::new(0), reserved: [0; 112] };
        raw.stream.write_all(req.as_bytes()).unwrap();
        assert!(matches!(raw.next(), Some(Header::IcResp(_))));
        raw
    }

    fn send(&mut self, cid: u16, mut sqe: Sqe, kind: u8, len: u32, data: &[u8]) {
        sqe.cid = U16::new(cid);
        sqe.set_sgl(SglDescriptor::new(kind, 0, len));
        let mut pdu = CapsuleCmd { ch: CapsuleCmd::CH, sqe };
        Framing::PLAIN.fill(&mut pdu.ch, data.len() as u32);
        let mut bytes = pdu.as_bytes().to_vec();
        bytes.extend(data);
        self.stream.write_all(&bytes).unwrap();
    }

    fn connect(&mut self, subnqn: &str, qid: u16, cntlid: u16, depth: u16) -> Status {
        let data = ConnectData::new(subnqn, HOST, ConnectOptions::new(subnqn, HOST).hostid, cntlid);
        let sqe = command::connect(qid, depth, 0, 0);
        self.send(0, sqe, SglDescriptor::DATA_BLOCK_OFFSET, 1024, data.as_bytes());
        self.status()
    }

    fn status(&mut self) -> Status {
        match self.next() {
            Some(Header::CapsuleResp(r)) => r.cqe.status(),
            other => panic!("a response: {other:?}"),
        }
    }

    /// The next header, its data thrown away; `None` at the end.
    fn next(&mut self) -> Option<Header> {
        let mut ch = CommonHeader::default();
        self.stream.read_exact(ch.as_mut_bytes()).ok()?;
        let mut pdu = ch.as_bytes().to_vec();
        pdu.resize(ch.plen.get() as usize, 0);
        self.stream.read_exact(&mut pdu[8..]).unwrap();
        Some(Header::decode(&pdu).unwrap())
    }
}

/// An I/O queue by hand, on a controller that somebody else keeps.
fn raw_queue(at: SocketAddr, controller: &RemoteController) -> Raw {
    let mut raw = Raw::new(at);
    assert_eq!(raw.connect(A, 2, controller.ready().cntlid, 128), Status::SUCCESS);
    raw
}

fn controller(at: SocketAddr) -> RemoteController {
    let options = ConnectOptions { queues: 4, kato: Nanos(0), ..ConnectOptions::new(A, HOST) };
    RemoteController::connect("127.0.0.1", at.port(), options).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_host_that_never_sends_its_data_costs_itself_only() {
    let node = node("");
    let at = node.listening()[0];
    let mut c = controller(at);
    let mut good = c.queue_pair(128 << 10).unwrap();
    let mut silent = raw_queue(at, &c);
    for cid in 1..100 {
        let sqe = command::io(IoKind::Write, 1, 0, 256);
        silent.send(cid, sqe, SglDescriptor::TRANSPORT_DATA_BLOCK, 128 << 10, &[]);
    }
    assert!(matches!(silent.next(), Some(Header::R2t(_))));
    write_and_read(&mut good, 0x51);
    drop(silent);
    write_and_read(&mut good, 0x77);
    node.stop();
}

#[test]
fn a_host_that_never_reads_costs_itself_only_and_gets_all_when_it_does() {
    let node = node("");
    let at = node.listening()[0];
    let mut c = controller(at);
    let mut good = c.queue_pair(128 << 10).unwrap();
    let mut lazy = raw_queue(at, &c);
    for cid in 1..101 {
        let sqe = command::io(IoKind::Read, 1, 0, 256);
        lazy.send(cid, sqe, SglDescriptor::TRANSPORT_DATA_BLOCK, 128 << 10, &[]);
    }
    for round in 0..5 {
        write_and_read(&mut good, 0x60 + round);
    }
    let (mut bytes, mut responses) = (0, 0);
    while responses < 100 {
        match lazy.next() {
            Some(Header::C2hData(d)) => bytes += d.datal.get(),
            Some(Header::CapsuleResp(r)) => {
                assert!(r.cqe.status().is_success());
                responses += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bytes, 100 * (128 << 10));
    node.stop();
}

#[test]
fn a_command_before_connect_is_a_sequence_error_and_the_connection_stands() {
    let node = node("");
    let at = node.listening()[0];
    let mut raw = Raw::new(at);
    raw.send(9, command::io(IoKind::Flush, 1, 0, 0), SglDescriptor::TRANSPORT_DATA_BLOCK, 0, &[]);
    assert!(raw.status().same_code(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(raw.connect(A, 0, 0xffff, 32), Status::SUCCESS);
    node.stop();
}

#[test]
fn what_breaks_the_protocol_is_told_and_closed_and_nobody_else_notices() {
    let node = node("");
    let at = node.listening()[0];
    let mut good = queue(at, A);
    let mut bad = Raw::new(at);
    bad.stream.write_all(&[0x42; 64]).unwrap();
    assert!(matches!(bad.next(), Some(Header::C2hTermReq(t)) if t.fatal().fei == 0));
    write_and_read(&mut good, 9);
    drop(bad);
    write_and_read(&mut good, 10);
    node.stop();
}

/// Beyond the limit Connect says that there is no room, and that it may be tried again; sockets before Connect do not count.
#[test]
fn queues_beyond_the_limit_are_refused_and_the_rest_stay() {
    let node = node("connections = 3\nhost_connections = 3");
    let at = node.listening()[0];
    let mut q = queue(at, A);
    let silent: Vec<Raw> = (0..8).map(|_| Raw::new(at)).collect();
    let mut third = Raw::new(at);
    assert_eq!(third.connect(B, 0, 0xffff, 32), Status::SUCCESS);
    let mut fourth = Raw::new(at);
    assert_eq!(fourth.connect(B, 0, 0xffff, 32), Status::CONNECT_CONTROLLER_BUSY);
    write_and_read(&mut q, 3);
    drop(third);
    let again = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        fourth.connect(B, 0, 0xffff, 32) == Status::SUCCESS
    });
    assert!(again, "a place that is free again is given out");
    drop(silent);
    node.stop();
}

/// A host that says nothing is pushed out by those that come after it; none of these waits for its time to be over.
#[test]
fn silent_sockets_make_way_for_new_ones() {
    let node = node("unconnected = 8\naddress_unconnected = 4");
    let at = node.listening()[0];
    let mut silent: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(at).unwrap()).collect();
    let mut q = queue(at, A);
    write_and_read(&mut q, 5);
    silent[0].set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(silent[0].read(&mut [0; 8]).unwrap_or(0), 0, "the oldest was closed");
    let mut refused = Raw::new(at);
    assert!(
        refused.connect("nqn.2026-11.io.weir:t1:none", 0, 0xffff, 32).same_code(Status::CONNECT_INVALID_PARAMETERS)
    );
    for _ in 0..20 {
        silent.push(TcpStream::connect(at).unwrap());
    }
    write_and_read(&mut q, 6);
    write_and_read(&mut queue(at, B), 7);
    node.stop();
}

/// `always`: also from this machine, and neither Connect nor Set Features does without a timer. Discovery does.
#[test]
fn a_keep_alive_timer_is_required_where_it_is_said() {
    let node = node("keep_alive = \"always\"");
    let at = node.listening()[0];
    let none = ConnectOptions { kato: Nanos(0), ..ConnectOptions::new(A, HOST) };
    let e = connect(at, &none).unwrap_err();
    assert!(matches!(&e, TransportError::Refused(t) if t.contains("Keep Alive Timeout Invalid")), "{e}");
    write_and_read(&mut queue(at, A), 8);
    assert_eq!(discover("127.0.0.1", at.port(), HOST).unwrap().len(), 3);
    node.stop();
}
