//! DMA regions without a descriptor: the server reads and writes them by messages, and the client answers at once, late, in another
//! order, with an error, or never.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::crash_vfio::kill;
use super::{long, test};
use crate::bench::Bench;
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, with_node};
use crate::raw::Rng;
use crate::raw::vfio_user::{
    Client, DATA, DMA, Far, HEADER, MEMORY, Manner, cmd, dma_map, dma_unmap, message, version, words,
};
use crate::tracee::{Next, Tracee};
use crate::vfio::in_turn;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "vfio_messages";
    vec![
        test(S, "every_byte_mapped_doorbells", |env| every_byte(env, true)),
        test(S, "every_byte_trapped_doorbells", |env| every_byte(env, false)),
        test(S, "answers_in_another_order", answers_in_another_order),
        test(S, "errors_are_the_commands", errors_are_the_commands),
        test(S, "a_client_that_never_answers", a_client_that_never_answers),
        test(S, "a_client_that_dies_meanwhile", a_client_that_dies_meanwhile),
        test(S, "upgrades_in_the_middle_of_messages", upgrades),
        test(S, "upgrades_before_the_drive_fetches", upgrades_before_it_fetches),
        test(S, "kills_while_nothing_is_on_its_way", killed),
        test(S, "a_kill_in_the_middle_of_messages", killed_meanwhile),
        test(S, "a_kill_in_the_turn_of_the_first_read", |env| killed_in_the_turn(env, 16)),
        long(S, "kills_in_the_turn_of_the_first_read", |env| killed_in_the_turn(env, 200)),
    ]
}

const SOCKET: &str = "far.sock";
const GOOD: &str = "good.sock";
const PAGE: u64 = 4096;
/// DMA address of memory that only messages reach.
const FAR: u64 = DMA + (1 << 30);
/// Bytes of it.
const FAR_LEN: u64 = 4 << 20;
/// Where in the memory file an I/O queue pair lies.
const SQ: u64 = 0x1_0000;
const CQ: u64 = 0x1_1000;
const ENTRIES: u32 = 32;
/// PRP lists and data in the memory file.
const LISTS: u64 = 0x2_0000;
const NEAR: u64 = 0x8_0000;

fn setup() -> Setup {
    Setup::default().vfio(SOCKET, "").vfio(GOOD, "")
}

/// Connected with both kinds of memory, the controller enabled.
fn ready(node: &Node, capabilities: &str) -> Result<Client, String> {
    let text = version(&format!("{{\"capabilities\":{{\"max_msg_fds\":8{capabilities}}}}}"));
    let mut client = in_turn(|| Client::ready_as(&node.socket(SOCKET), &text))?;
    client.far = Some(Far::new(FAR, FAR_LEN));
    client.ok(cmd::DMA_MAP, &dma_map(0, FAR, FAR_LEN), &[])?;
    Ok(client)
}

/// An I/O queue pair of a client; where its doorbells are mapped they are written to their file.
struct Queue {
    tail: u32,
    head: u32,
    phase: u8,
    bells: Option<std::fs::File>,
}

impl Queue {
    /// Creates it, in memory that can be mapped.
    fn new(client: &mut Client, mapped: bool) -> Result<Self, String> {
        let bells = if mapped { Some(client.doorbells()?) } else { None };
        client.put(CQ, &[0; ENTRIES as usize * 16])?;
        let size = (ENTRIES - 1) << 16 | 1;
        for (opcode, at, flags) in [(0x05, CQ, 1), (0x01, SQ, 1 << 16 | 1)] {
            client.submit(opcode, [DMA + at, 0], [size, flags])?;
            let status = client.completion(Duration::from_secs(5))?;
            ensure(status == Some(0), || format!("command {opcode:#x}: {status:x?}"))?;
        }
        Ok(Self { tail: 0, head: 0, phase: 1, bells })
    }

    fn bell(&self, client: &mut Client, head: bool, value: u32) -> Outcome {
        let at = 0x1008 + if head { 4 } else { 0 };
        match &self.bells {
            Some(file) => {
                std::os::unix::fs::FileExt::write_all_at(file, &value.to_le_bytes(), at).map_err(|e| e.to_string())
            }
            None => client.ring(at, value),
        }
    }

    /// Submits a read or a write of whole pages and rings.
    fn submit(
        &mut self,
        client: &mut Client,
        cid: u16,
        (opcode, block): (u8, u64),
        bytes: u64,
        prp: [u64; 2],
    ) -> Outcome {
        let mut entry = words(&[u32::from(opcode) | u32::from(cid) << 16, 1, 0, 0, 0, 0]);
        entry.extend(prp.iter().flat_map(|p| p.to_le_bytes()));
        entry.extend(words(&[block as u32, 0, (bytes / 512) as u32 - 1, 0, 0, 0]));
        client.put(SQ + u64::from(self.tail) * 64, &entry)?;
        self.tail = (self.tail + 1) % ENTRIES;
        self.bell(client, false, self.tail)
    }

    /// The next completion: its command and status.
    fn take(&mut self, client: &mut Client, limit: Duration) -> Result<Option<(u16, u16)>, String> {
        let begin = Instant::now();
        loop {
            client.serve()?;
            let entry: [u8; 16] = client.get(CQ + u64::from(self.head) * 16)?;
            if entry[14] & 1 == self.phase {
                self.head = (self.head + 1) % ENTRIES;
                self.phase ^= u8::from(self.head == 0);
                self.bell(client, true, self.head)?;
                let word = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
                return Ok(Some((word(12), word(14) >> 1 & 0x7ff)));
            }
            if begin.elapsed() > limit {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn io(&mut self, client: &mut Client, what: (u8, u64), bytes: u64, prp: [u64; 2]) -> Result<u16, String> {
        self.submit(client, 7, what, bytes, prp)?;
        let done = self.take(client, Duration::from_secs(10))?;
        let (cid, status) = done.ok_or_else(|| format!("command {:#x} does not complete", what.0))?;
        ensure(cid == 7, || format!("completion of command {cid}"))?;
        Ok(status)
    }
}

/// Writes a page wherever it is.
fn put(client: &mut Client, address: u64, bytes: &[u8]) -> Outcome {
    match address.checked_sub(FAR) {
        Some(at) => client.far_bytes(at, bytes.len()).map(|to| to.copy_from_slice(bytes)),
        None => client.put(address - DMA, bytes),
    }
}

fn page(client: &mut Client, address: u64) -> Result<Vec<u8>, String> {
    match address.checked_sub(FAR) {
        Some(at) => Ok(client.far_bytes(at, PAGE as usize)?.to_vec()),
        None => client.get::<4096>(address - DMA).map(|page| page.to_vec()),
    }
}

/// PRPs of some pages, with the list at that address.
fn prps(client: &mut Client, pages: &[u64], list: u64) -> Result<[u64; 2], String> {
    match pages {
        [one] => Ok([*one, 0]),
        [one, two] => Ok([*one, *two]),
        [one, rest @ ..] => {
            put(client, list, &rest.iter().flat_map(|p| p.to_le_bytes()).collect::<Vec<u8>>())?;
            Ok([*one, list])
        }
        [] => Err("no pages".into()),
    }
}

/// Commands of all lengths up to 128 KiB whose pages and lists lie here and there, each written and read back.
fn every_byte(env: &Env, mapped: bool) -> Outcome {
    with_node(env, &setup(), |node| {
        // A client that takes no more than 20 KiB in a message, which is not even whole numbers of pages' halves of 64 KiB.
        let mut client = ready(node, ",\"max_data_xfer_size\":20480")?;
        // Identify is written by messages as well.
        client.submit(0x06, [FAR, 0], [1, 0])?;
        let status = client.completion(Duration::from_secs(5))?;
        ensure(status == Some(0) && page(&mut client, FAR)?[24..28] != [0; 4], || format!("Identify: {status:x?}"))?;
        let mut queue = Queue::new(&mut client, mapped)?;
        let mut rng = Rng::new(11);
        for round in 0..60u64 {
            let count = [1, 2, 3, 8, 31, 32][rng.below(6)] as u64;
            let mut place = |n: u64| match rng.below(3) {
                0 => DMA + NEAR + n * PAGE,
                _ => FAR + 0x10_0000 + n * PAGE,
            };
            let (from, into): (Vec<u64>, Vec<u64>) = (0..count).map(|n| (place(n), place(64 + n))).unzip();
            let list = if rng.below(2) == 0 { DMA + LISTS } else { FAR + 0x8000 };
            for (opcode, pages) in [(0x01, &from), (0x02, &into)] {
                for (n, at) in pages.iter().enumerate() {
                    let byte = if opcode == 0x01 { (round * 37 + n as u64) as u8 } else { 0xee };
                    put(&mut client, *at, &[byte; PAGE as usize])?;
                }
                let prp = prps(&mut client, pages, list)?;
                let status = queue.io(&mut client, (opcode, round * 256), count * PAGE, prp)?;
                ensure(status == 0, || format!("round {round}, command {opcode:#x}: status {status:#x}"))?;
            }
            for (n, at) in into.iter().enumerate() {
                let right = page(&mut client, *at)?.iter().all(|b| *b == (round * 37 + n as u64) as u8);
                ensure(right, || format!("round {round}: page {n} of {count}, at {at:#x}, has other bytes"))?;
            }
        }
        let far = client.far.as_ref().ok_or("no far memory")?;
        println!("    {} messages of {} bytes at the most", far.asked, far.longest);
        ensure(far.asked > 100 && far.longest <= 20480, || format!("messages of {} bytes", far.longest))?;
        // Nothing is reached any more once it is unmapped.
        client.ok(cmd::DMA_UNMAP, &dma_unmap(0, FAR, FAR_LEN), &[])?;
        let status = queue.io(&mut client, (0x02, 0), PAGE, [FAR, 0])?;
        ensure(status == 4, || format!("unmapped memory: status {status:#x}"))
    })
}

/// Several commands at once, whose requests are answered last first.
fn answers_in_another_order(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let mut client = ready(node, "")?;
        let mut queue = Queue::new(&mut client, false)?;
        for (opcode, base) in [(0x01, 0x10_0000), (0x02, 0x20_0000)] {
            client.far.as_mut().ok_or("no far memory")?.manner = Manner::Later;
            let mut open = BTreeSet::new();
            for cid in 0..8u16 {
                let at = FAR + base + u64::from(cid) * 0x4000;
                let pages: Vec<u64> = (0..4).map(|n| at + n * PAGE).collect();
                for page in &pages {
                    put(&mut client, *page, &[if opcode == 1 { cid as u8 + 1 } else { 0 }; PAGE as usize])?;
                }
                let prp = prps(&mut client, &pages, DMA + LISTS + u64::from(cid) * 64)?;
                queue.submit(&mut client, cid, (opcode, u64::from(cid) * 64), 4 * PAGE, prp)?;
                open.insert(cid);
            }
            ensure(queue.take(&mut client, Duration::from_millis(100))?.is_none(), || "it did not wait".into())?;
            let held = client.answer_held()?;
            ensure(held > 1 || opcode == 1, || format!("{held} requests at once"))?;
            client.far.as_mut().ok_or("no far memory")?.manner = Manner::AtOnce;
            while !open.is_empty() {
                let done = queue.take(&mut client, Duration::from_secs(5))?;
                let (cid, status) = done.ok_or_else(|| format!("commands {open:?} do not complete"))?;
                ensure(status == 0 && open.remove(&cid), || format!("command {cid}: status {status:#x}"))?;
            }
        }
        for cid in 0..8u64 {
            let right = client.far_bytes(0x20_0000 + cid * 0x4000, 0x4000)?.iter().all(|b| *b == cid as u8 + 1);
            ensure(right, || format!("command {cid} read other bytes"))?;
        }
        Ok(())
    })
}

/// What the client refuses to give or take ends the commands that wanted it, and nothing else.
fn errors_are_the_commands(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let mut client = ready(node, "")?;
        let mut queue = Queue::new(&mut client, false)?;
        for opcode in [0x01, 0x02] {
            client.far.as_mut().ok_or("no far memory")?.manner = Manner::Refuse(14);
            let status = queue.io(&mut client, (opcode, 0), PAGE, [FAR, 0])?;
            ensure(status == 4, || format!("command {opcode:#x}, refused: status {status:#x}"))?;
            // Lists as well.
            let list = [DMA + NEAR, FAR + 0x8000];
            let status = queue.io(&mut client, (opcode, 0), 4 * PAGE, list)?;
            ensure(status == 4, || format!("command {opcode:#x} with a list: status {status:#x}"))?;
            client.far.as_mut().ok_or("no far memory")?.manner = Manner::AtOnce;
            let status = queue.io(&mut client, (opcode, 0), PAGE, [FAR, 0])?;
            ensure(status == 0, || format!("command {opcode:#x}: status {status:#x}"))?;
        }
        // A queue there cannot be waited for: an entry that is not to be had is fatal for the controller, and for nobody else.
        let size = (ENTRIES - 1) << 16 | 2;
        for (opcode, at, flags) in [(0x05, DMA + CQ + 0x1000, 1), (0x01, FAR, 2 << 16 | 1)] {
            client.submit(opcode, [at, 0], [size, flags])?;
            let status = client.completion(Duration::from_secs(5))?;
            ensure(status == Some(0), || format!("command {opcode:#x}: {status:x?}"))?;
        }
        client.ring(0x1010, 1)?;
        let begin = Instant::now();
        while client.register(0x1c)? & 2 == 0 {
            ensure(begin.elapsed() < Duration::from_secs(5), || "a queue in memory that cannot be mapped".into())?;
        }
        drop(client);
        let mut client = ready(node, "")?;
        client.identify()
    })
}

/// It is disconnected, and nobody else notices.
fn a_client_that_never_answers(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let args = ["--rw", "randrw", "--qd", "8", "--time", "7s", "--size", "64MiB", "--verify", "crc32c"];
        let neighbour = Bench::start(env, &node.vfio_target(GOOD), &args)?;
        let mut client = ready(node, "")?;
        let mut queue = Queue::new(&mut client, false)?;
        client.far.as_mut().ok_or("no far memory")?.manner = Manner::Never;
        // As many as fit, of both kinds.
        for cid in 0..ENTRIES as u16 - 1 {
            let opcode = 1 + (cid % 2) as u8;
            queue.submit(&mut client, cid, (opcode, u64::from(cid) * 8), PAGE, [FAR + u64::from(cid) * PAGE, 0])?;
        }
        ensure(client.closed(Duration::from_secs(15)), || "a client that owes answers stays connected".into())?;
        drop(client);
        ready(node, "")?.identify()?;
        neighbour.finish()?.clean().map_err(|e| format!("the neighbour: {e}"))
    })
}

fn a_client_that_dies_meanwhile(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        for round in 0..10u16 {
            let mut client = ready(node, "")?;
            let mut queue = Queue::new(&mut client, false)?;
            client.far.as_mut().ok_or("no far memory")?.manner =
                if round % 2 == 0 { Manner::Never } else { Manner::AtOnce };
            for cid in 0..8 {
                let opcode = 1 + ((cid + round) % 2) as u8;
                queue.submit(&mut client, cid, (opcode, 0), 2 * PAGE, [FAR, FAR + PAGE])?;
            }
            if round % 3 == 0 {
                // A reset forgets them; their answers are nobody's.
                client.ok(cmd::DEVICE_RESET, &[], &[])?;
                client.answer_held()?;
                client.register(0x1c)?;
            }
        }
        let mut client = ready(node, "")?;
        client.identify()?;
        let mut queue = Queue::new(&mut client, false)?;
        put(&mut client, DMA + DATA, &[9; 64])?;
        ensure(MEMORY > NEAR, || "no room".into())?;
        let status = queue.io(&mut client, (0x01, 0), PAGE, [FAR, 0])?;
        ensure(status == 0, || format!("status {status:#x}"))
    })
}

/// Commands whose bytes are there wait for their tenant's ceiling when another worker takes over, which does not have these bytes.
fn upgrades_before_it_fetches(env: &Env) -> Outcome {
    let mut slow = setup();
    slow.tenants[0].2 = "ceiling = { iops = 20, burst = 1 }".into();
    with_node(env, &Setup { node: "keeper = true".into(), ..slow }, |node| {
        let mut client = ready(node, "")?;
        for (round, mapped) in (1..).zip([true, false]) {
            let mut queue = Queue::new(&mut client, mapped)?;
            // What is written comes back from where it was written, by messages both ways.
            for (opcode, base) in [(0x01, 0x10_0000), (0x02, 0x20_0000)] {
                for cid in 0..6u16 {
                    let at = FAR + base + u64::from(cid) * PAGE;
                    put(&mut client, at, &[if opcode == 1 { cid as u8 + round } else { 0 }; PAGE as usize])?;
                    queue.submit(&mut client, cid, (opcode, u64::from(cid) * 8), PAGE, [at, 0])?;
                }
                let mut open: BTreeSet<u16> = (0..6).collect();
                let mut waiting = open.len();
                while !open.is_empty() {
                    let done = queue.take(&mut client, Duration::from_secs(5))?;
                    let (cid, status) = done.ok_or_else(|| format!("commands {open:?} do not complete"))?;
                    ensure(status == 0 && open.remove(&cid), || format!("command {cid}: status {status:#x}"))?;
                    if std::mem::replace(&mut waiting, open.len()) == 6 {
                        node.cli_ok(&["upgrade", "--probation", "0s"])?;
                    }
                }
            }
            for cid in 0..6u64 {
                let bytes = client.far_bytes(0x20_0000 + cid * PAGE, PAGE as usize)?;
                ensure(bytes.iter().all(|b| *b == cid as u8 + round), || format!("command {cid} read other bytes"))?;
            }
            for opcode in [0x00, 0x04] {
                client.submit(opcode, [0, 0], [1, 0])?;
                let status = client.completion(Duration::from_secs(5))?;
                ensure(status == Some(0), || format!("command {opcode:#x}: {status:x?}"))?;
            }
        }
        Ok(())
    })
}

/// The next worker reads the rest of a message whose beginning, with its descriptor, the one before it has read; and it gets the answers
/// to what that one has asked, or asks again.
fn upgrades(env: &Env) -> Outcome {
    with_node(env, &Setup { node: "keeper = true".into(), ..setup() }, |node| {
        let upgrade = || node.cli_ok(&["upgrade", "--probation", "0s"]).map(|_| ());
        let mut client = ready(node, "")?;
        let more = client.memory.try_clone().map_err(|e| e.to_string())?;
        for (cut, id) in [(1, 31), (HEADER, 32), (40, 33)] {
            let (at, map) = (DMA + (2 << 30), 2);
            let whole = message(id, map, &dma_map(0, at, MEMORY));
            client.send(&whole[..cut], &[more.as_fd()])?;
            std::thread::sleep(Duration::from_millis(50));
            upgrade()?;
            client.send(&whole[cut..], &[])?;
            let (head, _) = client.receive()?;
            ensure(head[0] == u32::from(id) | 2 << 16 && head[2] & 0x2f == 1, || format!("cut at {cut}: {head:x?}"))?;
            client.ok(cmd::DMA_UNMAP, &dma_unmap(0, at, MEMORY), &[])?;
        }
        for mapped in [true, false] {
            let mut queue = Queue::new(&mut client, mapped)?;
            for (opcode, base) in [(0x01, 0x10_0000), (0x02, 0x20_0000)] {
                client.far.as_mut().ok_or("no far memory")?.manner = Manner::Later;
                for cid in 0..4u16 {
                    let at = FAR + base + u64::from(cid) * PAGE;
                    put(&mut client, at, &[if opcode == 1 { cid as u8 + 1 } else { 0 }; PAGE as usize])?;
                    queue.submit(&mut client, cid, (opcode, u64::from(cid) * 8), PAGE, [at, 0])?;
                }
                ensure(queue.take(&mut client, Duration::from_millis(100))?.is_none(), || "it did not wait".into())?;
                upgrade()?;
                client.answer_held()?;
                client.far.as_mut().ok_or("no far memory")?.manner = Manner::AtOnce;
                let mut open: BTreeSet<u16> = (0..4).collect();
                while !open.is_empty() {
                    let done = queue.take(&mut client, Duration::from_secs(5))?;
                    let (cid, status) = done.ok_or_else(|| format!("commands {open:?} do not complete"))?;
                    ensure(status == 0 && open.remove(&cid), || format!("command {cid}: status {status:#x}"))?;
                }
                client.answer_held()?;
            }
            for cid in 0..4u64 {
                let right =
                    client.far_bytes(0x20_0000 + cid * PAGE, PAGE as usize)?.iter().all(|b| *b == cid as u8 + 1);
                ensure(right, || format!("command {cid} read other bytes"))?;
            }
            // The queues go; an upgrade finds them gone.
            for opcode in [0x00, 0x04] {
                client.submit(opcode, [0, 0], [1, 0])?;
                let status = client.completion(Duration::from_secs(5))?;
                ensure(status == Some(0), || format!("command {opcode:#x}: {status:x?}"))?;
            }
            upgrade()?;
            client.identify()?;
        }
        Ok(())
    })
}

/// The worker is killed under a client which has such memory, as QEMU's has (its firmware's), with commands in flight that do not use it: all of
/// them complete, and so do those that use it afterwards.
fn killed(env: &Env) -> Outcome {
    let slow = setup().device("latency = \"50ms\"");
    with_node(env, &Setup { node: "keeper = true".into(), ..slow }, |node| {
        let mut client = ready(node, "")?;
        for mapped in [true, false] {
            let mut queue = Queue::new(&mut client, mapped)?;
            let mut all = |client: &mut Client, kills: bool, opcode: u8, at: u64| {
                for cid in 0..6u16 {
                    queue.submit(client, cid, (opcode, u64::from(cid) * 8), PAGE, [at + u64::from(cid) * PAGE, 0])?;
                }
                if kills {
                    settle();
                    kill(node)?;
                }
                let mut open: BTreeSet<u16> = (0..6).collect();
                while !open.is_empty() {
                    let done = queue.take(client, Duration::from_secs(5))?;
                    let (cid, status) = done.ok_or_else(|| format!("commands {open:?} do not complete"))?;
                    ensure(status == 0 && open.remove(&cid), || format!("command {cid}: status {status:#x}"))?;
                }
                Ok::<_, String>(())
            };
            // More commands than the queue has entries.
            for round in 1..5u8 {
                for cid in 0..6u64 {
                    put(&mut client, DMA + NEAR + cid * PAGE, &[round * 16 + cid as u8; PAGE as usize])?;
                    put(&mut client, FAR + 0x20_0000 + cid * PAGE, &[0; PAGE as usize])?;
                }
                all(&mut client, true, 0x01, DMA + NEAR)?;
                all(&mut client, false, 0x02, FAR + 0x20_0000)?;
                for cid in 0..6u64 {
                    let bytes = page(&mut client, FAR + 0x20_0000 + cid * PAGE)?;
                    ensure(bytes.iter().all(|b| *b == round * 16 + cid as u8), || format!("round {round}, {cid}"))?;
                }
                all(&mut client, false, 0x01, FAR + 0x20_0000)?;
                settle();
                kill(node)?;
            }
            for opcode in [0x00, 0x04] {
                client.submit(opcode, [0, 0], [1, 0])?;
                let status = client.completion(Duration::from_secs(5))?;
                ensure(status == Some(0), || format!("command {opcode:#x}: {status:x?}"))?;
            }
        }
        client.identify()
    })
}

/// That the last bytes have arrived is written down in the turn in which their command completes, not before it does.
fn settle() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Who has bytes on their way is disconnected by a kill, and nobody else: what has come of them is not known to who follows.
fn killed_meanwhile(env: &Env) -> Outcome {
    with_node(env, &Setup { node: "keeper = true".into(), ..setup() }, |node| {
        let mut good = Client::ready(&node.socket(GOOD))?;
        for opcode in [0x01, 0x02] {
            let mut client = ready(node, "")?;
            let mut queue = Queue::new(&mut client, true)?;
            client.far.as_mut().ok_or("no far memory")?.manner = Manner::Later;
            queue.submit(&mut client, 1, (opcode, 0), PAGE, [FAR, 0])?;
            ensure(queue.take(&mut client, Duration::from_millis(100))?.is_none(), || "it did not wait".into())?;
            kill(node)?;
            ensure(client.identify().is_err(), || format!("opcode {opcode}: it goes on"))?;
            good.identify()?;
        }
        Ok(())
    })
}

/// The worker is killed at a system call of the turn in which the first read by messages completes for the drive: the client has its bytes and its
/// completion from the next one, or is disconnected. That it goes on without either is what must not be.
fn killed_in_the_turn(env: &Env, kills: u32) -> Outcome {
    let standby = Setup { node: "keeper = true\nstandby = true".into(), ..setup() };
    with_node(env, &standby, |node| {
        let (mut went_on, mut disconnected) = (0, 0);
        for kill in 0..kills {
            let mut client = ready(node, "")?;
            let mut queue = Queue::new(&mut client, true)?;
            put(&mut client, DMA + NEAR, &[7; PAGE as usize])?;
            let status = queue.io(&mut client, (0x01, 0), PAGE, [DMA + NEAR, 0])?;
            ensure(status == 0, || format!("kill {kill}: status {status:#x}"))?;
            settle();
            let (tracee, mut next) = Tracee::stop(node.worker()?)?;
            queue.submit(&mut client, 1, (0x02, 0), PAGE, [FAR, 0])?;
            for _ in 0..kill % 16 {
                ensure(next != Next::Ended, || format!("kill {kill}: the worker ended by itself"))?;
                if next == Next::Asleep {
                    break;
                }
                next = tracee.call()?;
            }
            tracee.kill()?;
            let begin = Instant::now();
            let done = loop {
                match queue.take(&mut client, Duration::ZERO) {
                    Ok(None) if !client.is_over() && begin.elapsed() < Duration::from_secs(10) => {}
                    // It had asked for something, and did not wait for the answer.
                    Err(_) if client.closed(Duration::from_secs(5)) => break None,
                    done => break done?,
                }
            };
            match done {
                Some(done) => {
                    ensure(done == (1, 0), || format!("kill {kill}: command {}, status {:#x}", done.0, done.1))?;
                    let right = page(&mut client, FAR)?.iter().all(|b| *b == 7);
                    ensure(right, || format!("kill {kill}: other bytes"))?;
                    went_on += 1;
                }
                None => {
                    let is_over = client.closed(Duration::from_secs(5));
                    ensure(is_over, || format!("kill {kill}: connected, and its read does not complete"))?;
                    disconnected += 1;
                }
            }
        }
        println!("    {went_on} reads completed, {disconnected} clients were disconnected");
        Ok(())
    })
}
