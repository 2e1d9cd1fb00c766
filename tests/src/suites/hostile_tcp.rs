//! Hosts on the network that are wrong or hostile cost only themselves: next to each a well-behaved host reads and writes
//! with verification, and the node answers the next one as ever.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size};

use super::{long, test};
use crate::bench::{Bench, Report};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{NQN, Node, Setup, host_nqn, with_node};
use crate::raw::Rng;
use crate::raw::nvme_tcp::{self as wire, CC_ENABLE, Data, Host, kind};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "hostile_tcp";
    vec![
        test(S, "by_hand_and_by_the_book", by_the_book),
        test(S, "errors_end_in_a_term_request", errors_end_in_a_term_request),
        test(S, "cut_at_every_byte", cut_at_every_byte),
        test(S, "fuzzed_pdus", |env| fuzzed_pdus(env, "6s")),
        test(S, "never_sends_its_data", never_sends_its_data),
        test(S, "never_reads", never_reads),
        test(S, "keep_alive_expires", keep_alive_expires),
        test(S, "unknown_names_are_refused", unknown_names_are_refused),
        long(S, "fuzzed_pdus_long", |env| fuzzed_pdus(env, "120s")),
        test(S, "hosts_without_a_name", hosts_without_a_name),
        test(S, "a_storm_of_bad_connections_is_a_few_lines", few_lines),
        long(S, "silent_connections_are_closed", silent_connections_are_closed),
    ]
}

/// The tenant that misbehaves.
fn villain() -> String {
    host_nqn("bronze")
}

/// Runs `attack` again and again while a host of another tenant works with verification; that host must not see an error.
fn beside(env: &Env, node: &Node, time: &str, mut attack: impl FnMut(u64) -> Outcome) -> Result<Report, String> {
    let args = ["--rw", "randrw", "--bs", "4KiB", "--qd", "16", "--time", time, "--verify", "crc32c"];
    let mut neighbour = Bench::start(env, &node.tcp_target(), &args)?;
    let mut round = 0;
    while round == 0 || neighbour.process().running() {
        attack(round)?;
        round += 1;
    }
    let report = neighbour.finish()?;
    report.clean().map_err(|e| format!("the neighbour: {e}"))?;
    println!("    {round} rounds; the neighbour did {:.0} IOPS without an error", report.total("iops")?);
    Ok(report)
}

/// The bytes of an admin connection up to an Identify; they depend on nothing that the server says.
fn admin_session() -> Vec<u8> {
    [
        wire::ic_req(),
        wire::connect(1, 0, 0xffff, 15_000, &villain(), NQN),
        wire::property_get(2, 0, true),
        wire::property_set(3, 0x14, CC_ENABLE),
        wire::property_get(4, 0x1c, false),
        wire::identify(5),
    ]
    .concat()
}

/// The bytes of an I/O connection: writes with data in the capsule and by R2T (tag guessed), a read, a flush.
fn io_session(cntlid: u16, qid: u16) -> Vec<u8> {
    let data = [0x5a; 4096];
    let inside = Data::InCapsule(&data);
    [
        wire::ic_req(),
        wire::connect(1, qid, cntlid, 0, &villain(), NQN),
        wire::io(0x01, 2, 0, 1, inside),
        wire::io(0x01, 3, 64, 8, Data::Transport(4096 * 8)),
        wire::h2c_data(3, 0, 0, &data, false),
        wire::io(0x02, 4, 0, 1, Data::Transport(4096)),
        wire::capsule(&wire::sqe(0x00, 5, 1, [0; 6], Data::None), Data::None),
    ]
    .concat()
}

/// A fresh host of the villain's tenant is served: what came before did no lasting harm.
fn serves(address: SocketAddr) -> Outcome {
    let (_admin, cntlid) = Host::admin(address, &villain(), 15_000)?;
    let mut queue = Host::io_queue(address, &villain(), cntlid, 1)?;
    queue.send(&wire::capsule(&wire::sqe(0x00, 9, 1, [0; 6], Data::None), Data::None))?;
    let response = queue.success()?;
    ensure(response.u16(20) == 9, || format!("the response of command 9: {response:02x?}"))
}

/// What the other tests damage is right when it is whole: data in the capsule, data by R2T, data back.
fn by_the_book(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let (mut admin, cntlid) = Host::admin(node.address(), &villain(), 15_000)?;
        admin.send(&wire::identify(10))?;
        let identity = data(&mut admin, 10, 4096)?;
        ensure(identity[77] != 0 && identity[512] == 0x66, || "Identify Controller: MDTS and SQES".into())?;
        let mut queue = Host::io_queue(node.address(), &villain(), cntlid, 1)?;
        let pattern: Vec<u8> = (0..65_536u32).map(|i| (i * 7 + i / 256) as u8).collect();
        queue.send(&wire::io(0x01, 2, 1000, 8, Data::InCapsule(&pattern[..4096])))?;
        queue.success()?;
        queue.send(&wire::io(0x01, 3, 2000, 128, Data::Transport(65_536)))?;
        let mut sent = 0;
        while sent < pattern.len() {
            let r2t = queue.expect(kind::R2T)?;
            let (offset, len) = (r2t.u32(12) as usize, r2t.u32(16) as usize);
            ensure(r2t.u16(8) == 3 && offset == sent, || format!("R2T for {offset}, after {sent} bytes: {r2t:02x?}"))?;
            for (i, piece) in pattern[offset..offset + len].chunks(4096).enumerate() {
                let last = (i + 1) * 4096 >= len;
                queue.send(&wire::h2c_data(3, r2t.u16(10), (offset + i * 4096) as u32, piece, last))?;
            }
            sent += len;
        }
        queue.success()?;
        for (cid, lba, blocks, wanted) in [(4, 1000, 8, &pattern[..4096]), (5, 2000, 128, &pattern[..])] {
            queue.send(&wire::io(0x02, cid, lba, blocks, Data::Transport(wanted.len() as u32)))?;
            let found = data(&mut queue, cid, wanted.len())?;
            ensure(found == wanted, || format!("command {cid} reads other data"))?;
        }
        Ok(())
    })
}

/// The data of a command: C2HData PDUs in order, then success by flag or by a response capsule.
pub(super) fn data(host: &mut Host, cid: u16, len: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; len];
    let mut seen = 0;
    while seen < len {
        let pdu = host.expect(kind::C2H_DATA)?;
        let (at, n, pdo) = (pdu.u32(12) as usize, pdu.u32(16) as usize, usize::from(pdu.bytes[3]));
        let fits = pdu.u16(8) == cid && at == seen && at + n <= len && pdo + n == pdu.bytes.len();
        ensure(fits, || format!("C2HData for {at}+{n} at {pdo}, after {seen} of {len} bytes"))?;
        bytes[at..at + n].copy_from_slice(&pdu.bytes[pdo..]);
        seen += n;
        let (last, success) = (pdu.bytes[1] & 4 != 0, pdu.bytes[1] & 8 != 0);
        ensure(last == (seen == len) && (last || !success), || {
            format!("flags {:#x} after {seen} bytes", pdu.bytes[1])
        })?;
        if success {
            return Ok(bytes);
        }
    }
    let response = host.success()?;
    ensure(response.u16(20) == cid, || format!("the response of command {cid}: {response:02x?}"))?;
    Ok(bytes)
}

fn cut_at_every_byte(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let address = node.address();
        let admin = admin_session();
        let (_held, cntlid) = Host::admin(address, &villain(), 0)?;
        let mut at = 0;
        let mut qid = 0;
        let mut covered = 0;
        beside(env, node, "6s", |_| {
            // A piece of the work each round; all of it is done when `at` has gone round once.
            for _ in 0..64 {
                qid = qid % 8 + 1;
                let io = io_session(cntlid, qid);
                // The long stretches of payload are alike: every byte of headers, every 97th of data.
                let total = admin.len() + io.len();
                let bytes = if at < admin.len() { &admin[..at] } else { &io[..at - admin.len()] };
                cut(address, bytes, at % 2 == 0)?;
                let inside_data = at > admin.len() + 2000;
                at += if inside_data && at % 97 != 0 && at + 200 < total { 97 - at % 97 } else { 1 };
                if at >= total {
                    at = 0;
                }
                covered = covered.max(at);
            }
            Ok(())
        })?;
        // On a busy machine the neighbour may be done first: the rest follows without it.
        for at in covered..admin.len() {
            cut(address, &admin[..at], at % 2 == 0)?;
        }
        serves(address)
    })
}

/// Says `bytes` and goes away, orderly or by a reset.
fn cut(address: SocketAddr, bytes: &[u8], reset: bool) -> Outcome {
    let mut host = Host::open(address)?;
    if reset {
        set_socket_linger(host.stream(), Some(Duration::ZERO)).context(|| "SO_LINGER".into())?;
    }
    // The server may have closed already: that is its right.
    let _ = host.send(bytes);
    Ok(())
}

fn fuzzed_pdus(env: &Env, time: &str) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let address = node.address();
        let (_held, cntlid) = Host::admin(address, &villain(), 0)?;
        beside(env, node, time, |round| {
            let mut rng = Rng::new(round);
            for _ in 0..16 {
                let mut bytes =
                    if rng.below(2) == 0 { admin_session() } else { io_session(cntlid, 1 + rng.below(8) as u16) };
                // The greeting stays whole in most sessions, so that what follows is looked at.
                let from = [0, 128, 128, 128 + 1096][rng.below(4)].min(bytes.len() - 1);
                rng.damage(&mut bytes[from..]);
                let mut host = Host::open(address)?;
                let _ = host.send(&bytes);
                host.stream().set_read_timeout(Some(Duration::from_millis(2))).context(|| "timeout".into())?;
                while let Ok(Some(_)) = host.receive() {}
            }
            Ok(())
        })?;
        serves(address)
    })
}

/// What is said after the greeting, whether as an I/O queue, and what is wrong with it.
type Case = (&'static str, bool, Vec<u8>);

/// Bytes of a PDU with one field changed.
fn with(mut bytes: Vec<u8>, at: usize, value: &[u8]) -> Vec<u8> {
    bytes[at..at + value.len()].copy_from_slice(value);
    bytes
}

fn cases() -> Vec<Case> {
    let flush = || wire::capsule(&wire::sqe(0x00, 9, 1, [0; 6], Data::None), Data::None);
    let data = [0; 512];
    vec![
        ("a second ICReq", false, wire::ic_req()),
        ("an ICResp from the host", false, wire::pdu(kind::IC_RESP, 0, &[0; 120], &[])),
        ("an unknown PDU type", true, with(flush(), 0, &[0x7f])),
        ("a response capsule from the host", true, wire::pdu(kind::RESPONSE, 0, &[0; 16], &[])),
        ("a header length that is too small", true, with(flush(), 2, &[8])),
        ("a header length that is too large", true, with(flush(), 2, &[255])),
        ("a PDU shorter than its header", true, with(flush(), 4, &4u32.to_le_bytes())),
        ("a PDU of 4 GiB", true, with(flush(), 4, &u32::MAX.to_le_bytes())),
        ("data for a command that does not exist", true, wire::h2c_data(99, 0, 0, &data, true)),
        ("data with tag ffffh", true, wire::h2c_data(99, 0xffff, 0, &data, true)),
        ("data at an offset that wraps", true, wire::h2c_data(99, 0, u32::MAX - 3, &data, true)),
    ]
}

fn errors_end_in_a_term_request(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let address = node.address();
        let (_held, cntlid) = Host::admin(address, &villain(), 0)?;
        for (i, (what, io, bytes)) in cases().into_iter().enumerate() {
            let mut host = if io {
                Host::io_queue(address, &villain(), cntlid, i as u16 + 1)?
            } else {
                Host::admin(address, &villain(), 0)?.0
            };
            host.send(&bytes)?;
            let seen = host.until_terminated().map_err(|e| format!("{what}: {e}"))?;
            let term = seen.last().filter(|p| p.kind == kind::C2H_TERM);
            ensure(term.is_some(), || format!("{what}: no C2HTermReq before the end: {seen:02x?}"))?;
        }
        // Before the greeting.
        for (what, bytes) in [
            ("a capsule before ICReq", wire::connect(1, 0, 0xffff, 0, &villain(), NQN)),
            ("an unknown PFV", with(wire::ic_req(), 8, &[1])),
            ("an ICReq of the wrong length", with(wire::ic_req(), 4, &127u32.to_le_bytes())),
            ("HTTP", b"GET / HTTP/1.1\r\nHost: example\r\n\r\n".to_vec()),
        ] {
            let mut host = Host::open(address)?;
            host.send(&bytes)?;
            host.until_terminated().map_err(|e| format!("{what}: {e}"))?;
        }
        // Wrong data after an R2T.
        for (what, change) in [("another tag", 0usize), ("an offset out of order", 1), ("too much data", 2)] {
            let mut host = Host::io_queue(address, &villain(), cntlid, 40 + change as u16)?;
            host.send(&wire::io(0x01, 7, 0, 16, Data::Transport(65_536)))?;
            let r2t = host.expect(kind::R2T).map_err(|e| format!("{what}: {e}"))?;
            let (ttag, len) = (r2t.u16(10), r2t.u32(16) as usize);
            let bytes = match change {
                0 => wire::h2c_data(7, ttag ^ 0x55, 0, &vec![0; len], true),
                1 => wire::h2c_data(7, ttag, 4096, &vec![0; len - 4096], true),
                _ => wire::h2c_data(7, ttag, 0, &vec![0; len + 4096], true),
            };
            let _ = host.send(&bytes);
            let seen = host.until_terminated().map_err(|e| format!("{what}: {e}"))?;
            ensure(seen.iter().all(|p| p.kind != kind::RESPONSE), || {
                format!("{what}: the write completed: {seen:02x?}")
            })?;
        }
        serves(address)
    })
}

fn never_sends_its_data(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let address = node.address();
        let (_held, cntlid) = Host::admin(address, &villain(), 0)?;
        // Eight queues full of writes whose data never comes: more than any buffer budget.
        let mut silent = Vec::new();
        for qid in 1..=8 {
            let mut host = Host::io_queue(address, &villain(), cntlid, qid)?;
            let writes: Vec<u8> =
                (0..100).flat_map(|cid| wire::io(0x01, cid, 0, 16, Data::Transport(65_536))).collect();
            host.send(&writes)?;
            silent.push(host);
        }
        beside(env, node, "3s", |_| {
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        })?;
        // The villain's own tenant is not dead either: reads need no buffer of the budget.
        let mut reader = Host::io_queue(address, &villain(), cntlid, 9)?;
        reader.send(&wire::capsule(&wire::sqe(0x00, 9, 1, [0; 6], Data::None), Data::None))?;
        reader.success()?;
        drop(silent);
        serves(address)
    })
}

fn never_reads(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let address = node.address();
        let (_held, cntlid) = Host::admin(address, &villain(), 0)?;
        let before = resident(node)?;
        let mut deaf = Vec::new();
        for qid in 1..=8 {
            let mut host = Host::io_queue(address, &villain(), cntlid, qid)?;
            set_socket_recv_buffer_size(host.stream(), 4096).context(|| "SO_RCVBUF".into())?;
            let reads: Vec<u8> = (0..120).flat_map(|cid| wire::io(0x02, cid, 0, 16, Data::Transport(65_536))).collect();
            host.send(&reads)?;
            deaf.push(host);
        }
        beside(env, node, "3s", |_| {
            for host in &mut deaf {
                // More of the same, as long as the server takes it.
                host.stream().set_nonblocking(true).context(|| "O_NONBLOCK".into())?;
                let _ = host.send(&wire::io(0x02, 200, 0, 16, Data::Transport(65_536)));
            }
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        })?;
        let grown = resident(node)?.saturating_sub(before);
        ensure(grown < 512 << 20, || format!("hosts that do not read made the node grow by {} MiB", grown >> 20))?;
        drop(deaf);
        serves(address)
    })
}

/// Resident memory that is the process's own, in bytes (the drive's memory is shared).
fn resident(node: &mut Node) -> Result<u64, String> {
    let path = format!("/proc/{}/status", node.serving()?);
    let status = std::fs::read_to_string(&path).context(|| path)?;
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).ok_or("no RssAnon")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().context(|| line.to_owned())?;
    Ok(kib << 10)
}

fn keep_alive_expires(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let address = node.address();
        let (mut admin, cntlid) = Host::admin(address, &villain(), 1000)?;
        let mut queue = Host::io_queue(address, &villain(), cntlid, 1)?;
        let begin = Instant::now();
        admin.until_closed().map_err(|e| format!("admin, silent for longer than its keep alive of 1 s: {e}"))?;
        let took = begin.elapsed();
        ensure(took > Duration::from_millis(900), || format!("the keep alive of 1 s expired after {took:?}"))?;
        queue.until_closed().map_err(|e| format!("the I/O queue of a dead controller: {e}"))?;
        serves(address)
    })
}

fn unknown_names_are_refused(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        for (what, qid, cntlid, host, subsystem) in [
            ("another subsystem", 0, 0xffff, villain(), "nqn.2026-01.test.weir:other"),
            ("an empty subsystem", 0, 0xffff, villain(), ""),
            ("a controller that does not exist", 1, 0x1234, villain(), NQN),
            ("a static controller", 0, 0x0777, villain(), NQN),
        ] {
            let mut raw = Host::open(node.address())?;
            raw.send(&wire::ic_req())?;
            raw.expect(kind::IC_RESP)?;
            raw.send(&wire::connect(1, qid, cntlid, 0, &host, subsystem))?;
            let response = raw.expect(kind::RESPONSE).map_err(|e| format!("{what}: {e}"))?;
            // Connect Invalid Parameters is 182h of command specific status.
            ensure(response.status() & 0x7ff != 0, || format!("{what}: Connect succeeds"))?;
        }
        serves(node.address())
    })
}

/// The log of a node that is scanned has a few lines, and how many it has not.
fn few_lines(env: &Env) -> Outcome {
    const SCANS: usize = 300;
    with_node(env, &Setup::default(), |node| {
        for _ in 0..SCANS {
            let mut scan = Host::open(node.address())?;
            scan.send(&[0x42; 64])?;
            scan.until_terminated()?;
        }
        serves(node.address())?;
        let log = node.log();
        let lines = log.lines().filter(|l| l.contains("the host broke the protocol; its connection ends")).count();
        // Two periods may have begun meanwhile, and the log that is shown may end before.
        ensure((1..=20).contains(&lines), || format!("{SCANS} bad connections are {lines} lines"))
    })
}

/// Hosts without a name are let in where every host is, and told apart by their identifiers; a name that is none is not let in.
fn hosts_without_a_name(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let address = node.address();
        let nameless = |id: u8| wire::connect_as(&[id; 16], &[0; 256], NQN);
        let mut hosts = Vec::new();
        for id in [1, 2] {
            let mut host = Host::open(address)?;
            host.send(&wire::ic_req())?;
            host.expect(kind::IC_RESP)?;
            host.send(&nameless(id))?;
            host.success().map_err(|e| format!("a host without a name: {e}"))?;
            host.send(&wire::property_set(2, 0x14, CC_ENABLE))?;
            host.success()?;
            hosts.push(host);
        }
        let mut unended = [b'n'; 256];
        unended[..4].copy_from_slice(b"nqn.");
        let mut behind = [0; 256];
        behind[1] = b'x';
        for (what, name) in [("a name without an end", unended), ("something behind an empty name", behind)] {
            let mut host = Host::open(address)?;
            host.send(&wire::ic_req())?;
            host.expect(kind::IC_RESP)?;
            host.send(&wire::connect_as(&[3; 16], &name, NQN))?;
            let response = host.expect(kind::RESPONSE)?;
            let (status, dw0) = (response.status() & 0x7ff, response.u32(8));
            ensure(status == 0x182 && dw0 == 1 << 16 | 512, || format!("{what}: status {status:#x}, DW0 {dw0:#x}"))?;
        }
        serves(address)
    })?;
    let named =
        Setup { whole: Setup::default().toml(0).replace(", \"*\"", "").replace(":0\"", ":PORT\""), ..Setup::default() };
    with_node(env, &named, |node| {
        let mut host = Host::open(node.address())?;
        host.send(&wire::ic_req())?;
        host.expect(kind::IC_RESP)?;
        host.send(&wire::connect_as(&[1; 16], &[0; 256], NQN))?;
        let status = host.expect(kind::RESPONSE)?.status();
        ensure(status & 0x7ff == 0x182, || format!("a host without a name where hosts have names: status {status:#x}"))
    })
}

fn silent_connections_are_closed(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let mut silent = Vec::new();
        for _ in 0..50 {
            let host = Host::open(node.address())?;
            host.stream().set_read_timeout(Some(Duration::from_secs(90))).context(|| "timeout".into())?;
            silent.push(host);
        }
        for host in &mut silent {
            host.until_closed().map_err(|e| format!("no ICReq for 90 s: {e}"))?;
        }
        serves(node.address())
    })
}
