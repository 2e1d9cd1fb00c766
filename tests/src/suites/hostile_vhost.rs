//! Front ends that are wrong or hostile: damaged messages, descriptors outside memory, chains that loop, indices that jump.
//! The other socket's front end works with verification all the while, and the next front end on the same socket is served.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{long, test};
use crate::bench::Bench;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, with_node};
use crate::raw::Rng;
use crate::raw::vhost_user::{
    AVAIL, DATA, DESC, Desc, Front, GUEST, HEADER, INDIRECT, IS_INDIRECT, MEMORY, NEXT, RING, STATUS, USED, USER,
    WRITE, desc, message, pair, request, words,
};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "hostile_vhost";
    vec![
        test(S, "bad_chains", bad_chains),
        test(S, "jumping_indices", jumping_indices),
        test(S, "bad_messages", bad_messages),
        test(S, "cut_at_every_byte", cut_at_every_byte),
        test(S, "fuzzed_messages", |env| fuzzed_messages(env, "5s")),
        test(S, "fuzzed_rings", |env| fuzzed_rings(env, "5s")),
        test(S, "memory_that_shrinks", memory_that_shrinks),
        test(S, "descriptors_that_would_block", descriptors_that_would_block),
        test(S, "stop_returns_the_index", stop_returns_the_index),
        test(S, "regions_without_end", regions_without_end),
        long(S, "fuzzed_messages_long", |env| fuzzed_messages(env, "120s")),
        long(S, "fuzzed_rings_long", |env| fuzzed_rings(env, "120s")),
    ]
}

fn setup() -> Setup {
    let sockets = [("good.sock", "gold"), ("bad.sock", "bronze")];
    let sockets = sockets.map(|(socket, tenant)| (socket.into(), tenant.into())).to_vec();
    Setup { sockets, ..Setup::default() }
}

/// Runs `attack` again and again while the other socket's front end works with verification.
fn beside(env: &Env, node: &Node, time: &str, mut attack: impl FnMut(u64) -> Outcome) -> Outcome {
    let args = ["--rw", "randrw", "--bs", "4KiB", "--qd", "16", "--time", time, "--verify", "crc32c"];
    let mut neighbour = Bench::start(env, &node.socket_target("good.sock"), &args)?;
    let mut round = 0;
    while round == 0 || neighbour.process().running() {
        attack(round)?;
        round += 1;
    }
    let report = neighbour.finish()?;
    report.clean().map_err(|e| format!("the neighbour: {e}"))?;
    println!("    {round} rounds; the neighbour did {:.0} IOPS without an error", report.total("iops")?);
    Ok(())
}

/// A good front end on the attacked socket.
fn serves(node: &Node) -> Outcome {
    let mut front = Front::ready(&node.socket("bad.sock"))?;
    let status = front.read_sector().map_err(|e| format!("the next front end is not served: {e}"))?;
    ensure(status == 0, || format!("the next front end's read ends with status {status}"))
}

/// The three descriptors of a good read.
const GOOD: [Desc; 3] =
    [desc(GUEST + HEADER, 16, NEXT, 1), desc(GUEST + DATA, 512, NEXT | WRITE, 2), desc(GUEST + STATUS, 1, WRITE, 0)];

/// More than is needed, but nothing that was used is wrong: success is right as well.
const HARMLESS: [&str; 1] = ["an indirect table of 4 GiB"];

/// What is wrong, the ring's descriptors, those of an indirect table.
fn chains() -> Vec<(&'static str, Vec<Desc>, Vec<Desc>)> {
    let [header, data, status] = GOOD;
    let plain = |what, descs: &[Desc]| (what, descs.to_vec(), Vec::new());
    let table = |len: u32| vec![desc(GUEST + INDIRECT, len, IS_INDIRECT, 0)];
    vec![
        plain("data outside memory", &[header, desc(0x10, 512, NEXT | WRITE, 2), status]),
        plain("data across the end of memory", &[header, desc(GUEST + MEMORY - 256, 512, NEXT | WRITE, 2), status]),
        plain("an address that wraps", &[header, desc(u64::MAX - 255, 512, NEXT | WRITE, 2), status]),
        plain("a length of 4 GiB", &[header, desc(GUEST + DATA, u32::MAX, NEXT | WRITE, 2), status]),
        plain("a header outside memory", &[desc(0, 16, NEXT, 1), data, status]),
        plain("a status outside memory", &[header, data, desc(u64::MAX, 1, WRITE, 0)]),
        plain("a chain that loops", &[header, desc(GUEST + DATA, 512, NEXT | WRITE, 1)]),
        plain("a chain that loops to its head", &[header, desc(GUEST + DATA, 512, NEXT | WRITE, 0)]),
        plain("a next beyond the ring", &[header, desc(GUEST + DATA, 512, NEXT | WRITE, RING), status]),
        plain("a next far beyond the ring", &[header, desc(GUEST + DATA, 512, NEXT | WRITE, 0xffff), status]),
        plain("a header alone", &[desc(GUEST + HEADER, 16, 0, 0)]),
        plain("a status alone", &[desc(GUEST + STATUS, 1, WRITE, 0)]),
        plain("a short header", &[desc(GUEST + HEADER, 8, NEXT, 1), data, status]),
        plain("an empty header", &[desc(GUEST + HEADER, 0, NEXT, 1), data, status]),
        plain("data of no length", &[header, desc(GUEST + DATA, 0, NEXT | WRITE, 2), status]),
        plain("a status of no length", &[header, data, desc(GUEST + STATUS, 0, WRITE, 0)]),
        plain("a status that may not be written", &[header, data, desc(GUEST + STATUS, 1, 0, 0)]),
        plain("a header after what may be written", &[data, desc(GUEST + HEADER, 16, NEXT, 2), status]),
        plain("data that is no whole sector", &[header, desc(GUEST + DATA, 511, NEXT | WRITE, 2), status]),
        plain("data of another direction", &[header, desc(GUEST + DATA, 512, NEXT, 2), status]),
        ("an indirect table outside memory", vec![desc(64, 48, IS_INDIRECT, 0)], vec![]),
        ("an indirect table of half a descriptor", table(40), GOOD.to_vec()),
        ("an empty indirect table", table(0), GOOD.to_vec()),
        ("an indirect table of 4 GiB", table(0xffff_fff0), GOOD.to_vec()),
        (
            "an indirect table within an indirect table",
            table(48),
            vec![header, desc(GUEST + INDIRECT, 48, IS_INDIRECT, 0)],
        ),
        ("an indirect table that loops", table(48), vec![header, desc(GUEST + DATA, 512, NEXT | WRITE, 0), status]),
        ("a next beyond the indirect table", table(48), vec![header, desc(GUEST + DATA, 512, NEXT | WRITE, 7), status]),
        ("indirect and next at once", vec![desc(GUEST + INDIRECT, 48, IS_INDIRECT | NEXT, 0)], GOOD.to_vec()),
    ]
}

fn bad_chains(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let cases = chains();
        beside(env, node, "5s", |round| {
            let (what, ring, indirect) = &cases[round as usize % cases.len()];
            let fail = |e: String| format!("{what}: {e}");
            let mut front = Front::ready(&node.socket("bad.sock")).map_err(fail)?;
            front.header(0, 0)?;
            front.table(DESC, ring)?;
            front.table(INDIRECT, indirect)?;
            front.offer(0)?;
            // An error status, a silent end of the ring or of the connection are all right; success is not.
            if front.completion(Duration::from_millis(20))?.is_some() {
                let succeeds = front.get::<1>(STATUS)?[0] == 0;
                ensure(!succeeds || HARMLESS.contains(what), || format!("{what}: the request succeeds"))?;
            }
            drop(front);
            if round as usize % cases.len() == cases.len() - 1 { serves(node).map_err(fail) } else { Ok(()) }
        })?;
        serves(node)
    })
}

fn jumping_indices(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let jumps: [(&str, u16, u16); 6] = [
            ("an index that jumps by the ring's size and one", RING + 1, 0),
            ("an index that jumps by half its range", 0x8000, 0),
            ("an index that goes back", 0xffff, 0),
            ("a head beyond the ring", 1, RING),
            ("a head far beyond the ring", 1, 0xffff),
            ("the same head many times", RING, 0),
        ];
        beside(env, node, "3s", |round| {
            let (what, index, head) = jumps[round as usize % jumps.len()];
            let front = Front::ready(&node.socket("bad.sock")).map_err(|e| format!("{what}: {e}"))?;
            front.header(0, 0)?;
            front.table(DESC, &GOOD)?;
            let heads: Vec<u8> = (0..RING).flat_map(|_| head.to_le_bytes()).collect();
            front.put(AVAIL + 4, &heads)?;
            front.put(AVAIL + 2, &index.to_le_bytes())?;
            front.kick()?;
            std::thread::sleep(Duration::from_millis(5));
            // The used index stays within what was offered.
            let used = u16::from_le_bytes(front.get(USED + 2)?);
            ensure(used <= RING, || format!("{what}: used index {used}"))
        })?;
        serves(node)
    })
}

/// Set-ups that cannot work: the message, what goes with it.
fn messages() -> Vec<(&'static str, Vec<u8>, bool)> {
    use request as r;
    let region = |guest: u64, size: u64, user: u64, offset: u64| words(&[guest, size, user, offset]);
    let table = |n: u32, regions: &[Vec<u8>]| [pair(n, 0), regions.concat()].concat();
    let good = || region(GUEST, MEMORY, USER, 0);
    let rings = |d: u64, u: u64, a: u64| message(r::SET_VRING_ADDR, 0, &[pair(0, 0), words(&[d, u, a, 0])].concat());
    vec![
        ("a message of 4 GiB", [1u32, 1, u32::MAX].map(u32::to_le_bytes).concat(), false),
        ("an unknown request", message(0xdead, 0, &[0; 8]), false),
        ("another version", [1u32, 3, 0].map(u32::to_le_bytes).concat(), false),
        ("a reply instead of a request", message(r::GET_FEATURES, 4, &[]), false),
        ("a feature word of four bytes", message(r::SET_FEATURES, 0, &[0; 4]), false),
        ("features that were not offered", message(r::SET_FEATURES, 0, &words(&[u64::MAX])), false),
        ("a memory table without descriptors", message(r::SET_MEM_TABLE, 0, &table(1, &[good()])), false),
        ("a table of 4 billion regions", message(r::SET_MEM_TABLE, 0, &table(u32::MAX, &[good()])), true),
        ("a table that promises more than it holds", message(r::SET_MEM_TABLE, 0, &table(8, &[good()])), true),
        (
            "a region larger than its file",
            message(r::SET_MEM_TABLE, 0, &table(1, &[region(GUEST, MEMORY * 64, USER, 0)])),
            true,
        ),
        (
            "a region beyond its file",
            message(r::SET_MEM_TABLE, 0, &table(1, &[region(GUEST, MEMORY, USER, MEMORY)])),
            true,
        ),
        (
            "a region that wraps",
            message(r::SET_MEM_TABLE, 0, &table(1, &[region(u64::MAX - 10, MEMORY, USER, 0)])),
            true,
        ),
        (
            "an offset that wraps",
            message(r::SET_MEM_TABLE, 0, &table(1, &[region(GUEST, MEMORY, USER, u64::MAX - 4095)])),
            true,
        ),
        ("a region of no size", message(r::SET_MEM_TABLE, 0, &table(1, &[region(GUEST, 0, USER, 0)])), true),
        ("a region of all sizes", message(r::ADD_MEM_REG, 0, &[words(&[0]), region(0, u64::MAX, 0, 0)].concat()), true),
        ("a ring of no entries", message(r::SET_VRING_NUM, 0, &pair(0, 0)), false),
        ("a ring of 65537 entries", message(r::SET_VRING_NUM, 0, &pair(0, 65_537)), false),
        ("a ring of 63 entries", message(r::SET_VRING_NUM, 0, &pair(0, 63)), false),
        ("ring number 4 billion", message(r::SET_VRING_NUM, 0, &pair(u32::MAX, 64)), false),
        ("the base of ring 1000", message(r::GET_VRING_BASE, 0, &pair(1000, 0)), false),
        ("a kick for ring 255", message(r::SET_VRING_KICK, 0, &words(&[255])), true),
        ("a kick without a descriptor", message(r::SET_VRING_KICK, 0, &words(&[0])), false),
        ("a ring outside memory", rings(0x1000, 0x2000, 0x3000), false),
        ("a ring across the end of memory", rings(USER + MEMORY - 64, USER + USED, USER + AVAIL), false),
        ("a used ring across the end", rings(USER, USER + MEMORY - 8, USER + AVAIL), false),
        ("rings at odd addresses", rings(USER + 1, USER + USED + 1, USER + AVAIL + 1), false),
        ("rings at the top of the address space", rings(u64::MAX - 15, u64::MAX - 7, u64::MAX - 3), false),
        (
            "configuration beyond its end",
            message(
                r::GET_CONFIG,
                0,
                &[[0xffff_ff00u32, 256, 0].map(u32::to_le_bytes).concat(), vec![0; 256]].concat(),
            ),
            false,
        ),
        (
            "configuration of 4 GiB",
            message(r::GET_CONFIG, 0, &[0u32, u32::MAX, 0].map(u32::to_le_bytes).concat()),
            false,
        ),
        ("enable of ring 4 billion", message(r::SET_VRING_ENABLE, 0, &pair(u32::MAX, 1)), false),
    ]
}

fn bad_messages(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let cases = messages();
        beside(env, node, "5s", |round| {
            let (what, bytes, with_memory) = &cases[round as usize % cases.len()];
            let fail = |e: String| format!("{what}: {e}");
            let mut front = Front::open(&node.socket("bad.sock")).map_err(fail)?;
            front.negotiate().map_err(fail)?;
            // In the first round of cases it comes before the ring is set up, in the second after it.
            if round as usize / cases.len() % 2 == 1 {
                for (bytes, fd) in front.setup_messages() {
                    front.send(&bytes, fd.as_slice())?;
                }
            }
            let memory = [front.memory.as_fd()];
            let fds: &[BorrowedFd<'_>] = if *with_memory { &memory } else { &[] };
            let _ = front.send(bytes, fds);
            // What comes after it must not do harm either.
            for (bytes, fd) in front.setup_messages() {
                let _ = front.send(&bytes, fd.as_slice());
            }
            front.header(0, 0)?;
            front.table(DESC, &GOOD)?;
            front.offer(0)?;
            front.closed(Duration::from_millis(10));
            Ok(())
        })?;
        serves(node)
    })
}

fn cut_at_every_byte(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let total: usize = Front::open(&node.socket("bad.sock"))?.setup_messages().iter().map(|(b, _)| b.len()).sum();
        let mut at = 0;
        let attack = |at: usize| -> Outcome {
            let mut front = Front::open(&node.socket("bad.sock"))?;
            front.negotiate()?;
            let mut left = at;
            for (bytes, fd) in front.setup_messages() {
                let part = &bytes[..left.min(bytes.len())];
                if part.is_empty() {
                    break;
                }
                front.send(part, fd.as_slice())?;
                left -= part.len();
            }
            Ok(())
        };
        beside(env, node, "4s", |_| {
            attack(at % (total + 1))?;
            at += 1;
            Ok(())
        })?;
        for at in at..=total {
            attack(at)?;
        }
        // And the very first message, from its first byte on.
        for at in 0..12 {
            let mut socket = UnixStream::connect(node.socket("bad.sock")).context(|| "connect".into())?;
            socket.write_all(&message(request::GET_FEATURES, 0, &[])[..at]).context(|| "send".into())?;
        }
        serves(node)
    })
}

fn fuzzed_messages(env: &Env, time: &str) -> Outcome {
    with_node(env, &setup(), |node| {
        beside(env, node, time, |round| {
            let mut rng = Rng::new(round);
            let mut front = Front::open(&node.socket("bad.sock"))?;
            if rng.below(4) != 0 {
                front.negotiate()?;
            }
            let mut session: Vec<Vec<u8>> = front.setup_messages().into_iter().map(|(bytes, _)| bytes).collect();
            let victim = rng.below(session.len());
            rng.damage(&mut session[victim]);
            if rng.below(3) == 0 {
                let random: Vec<u8> = (0..rng.below(64)).map(|_| rng.next_u64() as u8).collect();
                session.insert(victim, message(rng.below(48) as u32, 0, &random));
            }
            let memory = front.memory.as_fd();
            for (i, bytes) in session.iter().enumerate() {
                let fds =
                    vec![memory; if rng.below(8) == 0 { rng.below(20) } else { usize::from(matches!(i, 0 | 4..)) }];
                if front.send(bytes, &fds).is_err() {
                    break;
                }
            }
            front.header(0, 0)?;
            front.table(DESC, &GOOD)?;
            front.offer(0)?;
            front.closed(Duration::from_millis(1));
            Ok(())
        })?;
        serves(node)
    })
}

fn fuzzed_rings(env: &Env, time: &str) -> Outcome {
    with_node(env, &setup(), |node| {
        beside(env, node, time, |round| {
            let mut rng = Rng::new(round ^ 0x5eed);
            let mut front = Front::ready(&node.socket("bad.sock"))?;
            for _ in 0..20 {
                // Descriptors near the well-formed: addresses inside, next to and outside memory, flags and links at random.
                let descs: Vec<Desc> = (0..RING)
                    .map(|_| {
                        let addr = match rng.below(8) {
                            0 => rng.next_u64(),
                            1 => GUEST + MEMORY - rng.below(600) as u64,
                            _ => GUEST + HEADER + 0x100 * rng.below(64) as u64,
                        };
                        let len = [0, 1, 8, 16, 16, 512, 512, 4096, 1 << 20, u32::MAX][rng.below(10)];
                        desc(
                            addr,
                            len,
                            [1, 1, 3, 3, 2, 0, 4, 5, 0xffff][rng.below(9)],
                            rng.below(RING as usize + 2) as u16,
                        )
                    })
                    .collect();
                front.table(DESC, &descs)?;
                front.table(INDIRECT, &descs[..32])?;
                front.header([0, 1, 4, 8, 11, 13, 99][rng.below(7)], rng.below(1 << 20) as u64)?;
                let step = if rng.below(10) == 0 { rng.next_u64() as u16 } else { rng.below(8) as u16 };
                let index = u16::from_le_bytes(front.get(AVAIL + 2)?).wrapping_add(step);
                let heads: Vec<u8> =
                    (0..RING).flat_map(|_| (rng.below(RING as usize + 1) as u16).to_le_bytes()).collect();
                front.put(AVAIL + 4, &heads)?;
                front.put(AVAIL + 2, &index.to_le_bytes())?;
                front.kick()?;
                front.completion(Duration::from_micros(500))?;
            }
            Ok(())
        })?;
        serves(node)
    })
}

/// A file that gets shorter under the server's mapping: touching what is gone is SIGBUS, which must not end the node.
fn memory_that_shrinks(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        beside(env, node, "3s", |round| {
            let mut front = Front::ready(&node.socket("bad.sock"))?;
            ensure(front.read_sector()? == 0, || "a good read fails".into())?;
            front.header(0, 0)?;
            front.table(DESC, &GOOD)?;
            // In turn: only the data is gone, or the ring as well.
            let _ = front.offer(0);
            front.memory.set_len(if round % 2 == 0 { DATA } else { 0 }).context(|| "ftruncate".into())?;
            let _ = front.kick();
            std::thread::sleep(Duration::from_millis(10));
            Ok(())
        })?;
        serves(node)
    })
}

/// A call eventfd whose counter is full and whose writes wait, and descriptors that are no eventfds at all.
fn descriptors_that_would_block(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        beside(env, node, "3s", |round| {
            let mut front = Front::open(&node.socket("bad.sock"))?;
            front.negotiate()?;
            if round % 2 == 0 {
                rustix::io::write(&front.call, &(u64::MAX - 1).to_ne_bytes()).context(|| "fill".into())?;
                rustix::fs::fcntl_setfl(&front.call, rustix::fs::OFlags::empty()).context(|| "fcntl".into())?;
                for (bytes, fd) in front.setup_messages() {
                    front.send(&bytes, fd.as_slice())?;
                }
                return (0..8).try_for_each(|_| ensure(front.read_sector()? == 0, || "a good read fails".into()));
            }
            let (kick, call) = (request::SET_VRING_KICK, request::SET_VRING_CALL);
            let request = if round % 4 == 1 { kick } else { call };
            let (pipe, _end) = rustix::pipe::pipe().context(|| "pipe".into())?;
            let fd = if round % 8 < 4 { pipe.as_fd() } else { front.memory.as_fd() };
            front.tell(request, &words(&[0]), &[fd])?;
            ensure(front.closed(Duration::from_secs(5)), || format!("request {request} takes what is no eventfd"))
        })?;
        serves(node)
    })
}

/// GET_VRING_BASE stops the ring and says where it stopped; the ring goes on from there.
fn stop_returns_the_index(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let mut front = Front::ready(&node.socket("bad.sock"))?;
        for n in 1..=5u32 {
            ensure(front.read_sector()? == 0, || "a good read fails".into())?;
            let base = front.ask(request::GET_VRING_BASE, &pair(0, 0))?;
            ensure(base == pair(0, n), || format!("after {n} requests the ring stops at {base:02x?}"))?;
            // A stopped ring takes nothing.
            front.kick()?;
            for (bytes, fd) in front.setup_messages().into_iter().skip(1) {
                let bytes = if bytes[0] == request::SET_VRING_BASE as u8 {
                    message(request::SET_VRING_BASE, 0, &pair(0, n))
                } else {
                    bytes
                };
                front.send(&bytes, fd.as_slice())?;
            }
        }
        ensure(front.ask_u64(request::GET_QUEUE_NUM)? >= 1, || "no queues".into())
    })
}

/// VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD, and the configuration space.
const INFLIGHT: u64 = 1 << 12 | 1 << 9;

/// An in-flight region is described: its size, its offset, queues, entries of each; QEMU sends its structure with what pads it.
fn region(queues: u16, entries: u16) -> Vec<u8> {
    [words(&[0, 0]), queues.to_le_bytes().to_vec(), entries.to_le_bytes().to_vec(), vec![0; 4]].concat()
}

/// Asks for one region after the other and keeps all of them: the bytes of the largest.
fn hoard_regions(node: &Node, kept: &mut Vec<File>) -> Result<u64, String> {
    let mut largest = 0;
    for round in 0..20u16 {
        let mut front = Front::open(&node.socket("bad.sock"))?;
        front.negotiate()?;
        front.tell(request::SET_PROTOCOL_FEATURES, &words(&[INFLIGHT]), &[])?;
        for one in 0..10 {
            // Of several sizes: what fits could be used again.
            let (answer, fd) = front.ask_for_descriptor(request::GET_INFLIGHT_FD, &region(1, 1024 - one % 3 * 64))?;
            let bytes = answer.get(..8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
            largest = largest.max(bytes.next_multiple_of(4096));
            if one == round % 10 {
                // It is in use from here on.
                front.tell(request::SET_INFLIGHT_FD, &answer, &[fd.as_fd()])?;
            }
            kept.push(fd.into());
        }
    }
    Ok(largest)
}

/// A front end that asks for in-flight regions all the time and never lets go of one has two of them from each worker; who asks for more
/// than the disk has queues for gets none.
fn regions_without_end(env: &Env) -> Outcome {
    with_node(env, &Setup { node: "keeper = true".into(), ..setup() }, |node| {
        let mut kept = Vec::new();
        for (lives, end) in ["nothing", "a kill", "an upgrade"].into_iter().enumerate() {
            match end {
                "a kill" => node.kill_worker()?,
                "an upgrade" => node.cli_ok(&["upgrade", "--probation", "0s"]).map(drop)?,
                _ => {}
            }
            let largest = hoard_regions(node, &mut kept)?;
            let has = |file: &File| file.metadata().map_or(0, |m| m.blocks() * 512);
            let all: u64 = kept.iter().map(has).sum();
            let (number, most) = (kept.len(), 2 * (lives as u64 + 1) * largest);
            ensure(all <= most, || format!("after {end}: {number} regions take {all} bytes, not at most {most}"))?;
        }
        for (queues, entries) in [(u16::MAX, 1024), (1, u16::MAX), (17, 64), (0, 64), (1, 0)] {
            let mut front = Front::open(&node.socket("bad.sock"))?;
            front.negotiate()?;
            front.tell(request::SET_PROTOCOL_FEATURES, &words(&[INFLIGHT]), &[])?;
            let answer = front.ask_for_descriptor(request::GET_INFLIGHT_FD, &region(queues, entries));
            ensure(answer.is_err(), || format!("it has a region of {queues} queues with {entries} entries"))?;
        }
        let told = format!("an in-flight region of {} queues with 1024 entries each: it has", u16::MAX);
        ensure(node.log().contains(&told), || format!("the log does not say {told:?}:\n{}", node.log()))?;
        serves(node)
    })
}
