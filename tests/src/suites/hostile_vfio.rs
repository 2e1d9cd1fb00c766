//! vfio-user clients that are wrong or hostile: damaged messages, regions that are not what they say, registers and rings full of
//! noise, memory that goes away. Another drive's client works with verification all the while, and the next client on the same
//! socket is served.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{long, test};
use crate::bench::Bench;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, with_node};
use crate::process;
use crate::raw::Rng;
use crate::raw::vfio_user::{
    ACQ, ASQ, Client, DATA, DMA, ENTRIES, MEMORY, access, cmd, dma_map, dma_unmap, message, set_irqs, version, words,
    write,
};
use crate::vfio::{BASE, Drive, PAGE, ams, in_turn, io, qprio};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "hostile_vfio";
    vec![
        test(S, "bad_messages", bad_messages),
        test(S, "messages_in_any_order", messages_in_any_order),
        test(S, "cut_at_every_byte", cut_at_every_byte),
        test(S, "fuzzed_messages", |env| fuzzed_messages(env, "4s")),
        test(S, "fuzzed_registers_and_rings", |env| fuzzed_rings(env, "4s")),
        test(S, "memory_without_a_descriptor", memory_without_a_descriptor),
        test(S, "memory_that_goes_away", memory_that_goes_away),
        test(S, "descriptors_that_would_block", descriptors_that_would_block),
        test(S, "registers_written_before_it_went", registers_written_before_it_went),
        long(S, "fuzzed_messages_long", |env| fuzzed_messages(env, "120s")),
        long(S, "fuzzed_registers_and_rings_long", |env| fuzzed_rings(env, "120s")),
    ]
}

const BAD: &str = "bad.sock";

fn setup() -> Setup {
    Setup::default().vfio("good.sock", "").vfio(BAD, "")
}

/// Runs `attack` again and again while the other socket's client works with verification.
fn beside(env: &Env, node: &Node, time: &str, mut attack: impl FnMut(u64) -> Outcome) -> Outcome {
    let args =
        ["--rw", "randrw", "--bs", "4KiB", "--qd", "16", "--size", "64MiB", "--time", time, "--verify", "crc32c"];
    let mut neighbour = Bench::start(env, &node.vfio_target("good.sock"), &args)?;
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

fn ready(node: &Node) -> Result<Client, String> {
    in_turn(|| Client::ready(&node.socket(BAD)))
}

/// Connected, and past VERSION.
fn greeted(node: &Node) -> Result<Client, String> {
    in_turn(|| {
        let mut client = Client::open(&node.socket(BAD))?;
        client.ok(cmd::VERSION, &version("{}"), &[])?;
        Ok(client)
    })
}

fn serves(node: &Node) -> Outcome {
    ready(node)?.identify()
}

/// What must be refused, or end the connection; the memory goes along with some.
fn messages() -> Vec<(&'static str, u16, Vec<u8>, bool)> {
    let big = u64::MAX;
    vec![
        ("an unknown command", 99, vec![0; 8], false),
        ("command 0", 0, vec![], false),
        ("a command of the server's", cmd::DMA_READ, vec![0; 16], false),
        ("migration", cmd::MIG_DATA_WRITE, vec![0; 64], false),
        ("region descriptors", cmd::DEVICE_GET_REGION_IO_FDS, words(&[16, 0, 0, 0]), false),
        ("a mapping cut short", cmd::DMA_MAP, dma_map(0, DMA, MEMORY)[..31].to_vec(), true),
        ("a mapping of nothing", cmd::DMA_MAP, dma_map(0, DMA, 0), true),
        ("a mapping that wraps", cmd::DMA_MAP, dma_map(0, big - 4095, 8192), true),
        ("a mapping at no page", cmd::DMA_MAP, dma_map(0, DMA + 1, MEMORY), true),
        ("a mapping of half a page", cmd::DMA_MAP, dma_map(0, DMA, 2048), true),
        ("a file's end that wraps", cmd::DMA_MAP, dma_map(big - 4095, DMA, MEMORY), true),
        ("a mapping beyond its file", cmd::DMA_MAP, dma_map(0, DMA, MEMORY * 64), true),
        ("a mapping that begins beyond its file", cmd::DMA_MAP, dma_map(MEMORY, DMA, 4096), true),
        ("a mapping of everything", cmd::DMA_MAP, dma_map(0, 0, big & !4095), true),
        ("an unmapping of what is not there", cmd::DMA_UNMAP, dma_unmap(0, 0x1000, 0x1000), false),
        ("an unmapping with a dirty bitmap", cmd::DMA_UNMAP, dma_unmap(1, DMA, MEMORY), false),
        ("an unmapping cut short", cmd::DMA_UNMAP, vec![0; 8], false),
        ("information cut short", cmd::DEVICE_GET_INFO, vec![0; 3], false),
        ("region 4 billion", cmd::DEVICE_GET_REGION_INFO, words(&[32, 0, u32::MAX, 0, 0, 0, 0, 0]), false),
        ("region information cut short", cmd::DEVICE_GET_REGION_INFO, words(&[32, 0]), false),
        ("interrupts of kind 77", cmd::DEVICE_GET_IRQ_INFO, words(&[16, 0, 77, 0]), false),
        ("interrupts of kind 77, set", cmd::DEVICE_SET_IRQS, set_irqs(0x24, 77, 0, 1), true),
        ("vector 4 billion", cmd::DEVICE_SET_IRQS, set_irqs(0x24, 2, u32::MAX, 1), true),
        ("4 billion vectors", cmd::DEVICE_SET_IRQS, set_irqs(0x24, 2, 1, u32::MAX), true),
        ("an interrupt with two actions", cmd::DEVICE_SET_IRQS, set_irqs(0x3c, 2, 0, 1), true),
        ("an interrupt with no action", cmd::DEVICE_SET_IRQS, set_irqs(0x04, 2, 0, 1), true),
        ("booleans that are not there", cmd::DEVICE_SET_IRQS, set_irqs(0x22, 2, 0, 64), false),
        ("what is no eventfd", cmd::DEVICE_SET_IRQS, set_irqs(0x24, 2, 0, 1), true),
        ("a read of 4 GiB", cmd::REGION_READ, access(0, 0, u32::MAX), false),
        ("a read beyond BAR 0", cmd::REGION_READ, access(0, 0xfffe, 4), false),
        ("a read far beyond BAR 0", cmd::REGION_READ, access(0, big - 3, 4), false),
        ("a read of BAR 5", cmd::REGION_READ, access(5, 0, 4), false),
        ("a read of region 4 billion", cmd::REGION_READ, access(u32::MAX, 0, 4), false),
        ("a read beyond the configuration space", cmd::REGION_READ, access(7, 4095, 4), false),
        ("a write that is shorter than it says", cmd::REGION_WRITE, access(0, 0x14, 4), false),
        ("a write that is longer than it says", cmd::REGION_WRITE, [access(0, 0x14, 4), vec![0; 9]].concat(), false),
        ("a write beyond BAR 0", cmd::REGION_WRITE, write(0, 0xfffe, &[0; 4]), false),
        ("4 billion writes at once", cmd::REGION_WRITE_MULTI, [&[0xff; 8][..], &[0; 24]].concat(), false),
        ("a second version", cmd::VERSION, version("{}"), false),
    ]
}

/// Each is refused, and the connection either goes on as if nothing had been or is closed; the next client is served.
fn bad_messages(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let cases = messages();
        let mut accepted = Vec::new();
        for (what, command, payload, with_memory) in &cases {
            let fail = |e: String| format!("{what}: {e}");
            let mut client = ready(node).map_err(fail)?;
            let memory = client.memory.try_clone().context(|| "memory".into())?;
            let fds = if *with_memory { vec![memory.as_fd()] } else { Vec::new() };
            match client.call(*command, payload, &fds) {
                Ok((0, _)) => accepted.push(*what),
                Ok(_) => client.identify().map_err(fail)?,
                Err(_) => serves(node).map_err(fail)?,
            }
        }
        ensure(accepted.is_empty(), || format!("accepted: {}", accepted.join("; ")))?;
        beside(env, node, "2s", |round| {
            let (_, command, payload, with_memory) = &cases[round as usize % cases.len()];
            let client = greeted(node)?;
            let fds = if *with_memory { vec![client.memory.as_fd()] } else { Vec::new() };
            let _ = client.send(&message(7, *command, payload), &fds);
            client.closed(Duration::from_millis(2));
            Ok(())
        })?;
        serves(node)
    })
}

/// Everything before VERSION, versions that are none, headers that lie, replies to nothing: the connection ends, nothing else.
fn messages_in_any_order(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let head = |size: u32, flags: u32| words(&[1 | u32::from(cmd::DEVICE_GET_INFO) << 16, size, flags, 0]);
        let first: Vec<(&str, Vec<u8>)> = vec![
            ("information before the version", message(1, cmd::DEVICE_GET_INFO, &words(&[16, 0, 0, 0]))),
            ("a mapping before the version", message(1, cmd::DMA_MAP, &dma_map(0, DMA, MEMORY))),
            ("version 1.0", message(1, cmd::VERSION, &[words(&[1]), b"{}\0".to_vec()].concat())),
            (
                "a version without capabilities' end",
                message(1, cmd::VERSION, &[words(&[1 << 16]), b"{}".to_vec()].concat()),
            ),
            ("capabilities that are no JSON", message(1, cmd::VERSION, &version("{\"capabilities\":{"))),
            (
                "capabilities of the wrong type",
                message(1, cmd::VERSION, &version("{\"capabilities\":{\"max_msg_fds\":\"x\"}}")),
            ),
            ("capabilities without end", message(1, cmd::VERSION, &version(&"[".repeat(4000)))),
            ("a version of two bytes", message(1, cmd::VERSION, &[0, 0])),
        ];
        for (what, bytes) in first {
            let client = in_turn(|| Client::open(&node.socket(BAD)))?;
            client.send(&bytes, &[])?;
            ensure(client.closed(Duration::from_secs(5)), || format!("{what}: the connection goes on"))?;
        }
        for (what, bytes) in [
            ("a message of 15 bytes", head(15, 0)),
            ("a message of no bytes", head(0, 0)),
            ("a message of 4 GiB", head(u32::MAX, 0)),
            ("a message of type 7", [head(32, 7), vec![0; 16]].concat()),
            ("a reply to nothing", [head(32, 1), vec![0; 16]].concat()),
        ] {
            let client = greeted(node)?;
            client.send(&bytes, &[])?;
            ensure(client.closed(Duration::from_secs(5)), || format!("{what}: the connection goes on"))?;
        }
        // More descriptors than any message has: they are closed, whatever becomes of the connection.
        for _ in 0..50 {
            let client = greeted(node)?;
            let _ =
                client.send(&message(1, cmd::DEVICE_GET_INFO, &words(&[16, 0, 0, 0])), &[client.memory.as_fd(); 60]);
            client.closed(Duration::from_millis(2));
        }
        serves(node)
    })
}

fn cut_at_every_byte(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let total: usize =
            in_turn(|| Client::open(&node.socket(BAD)))?.setup_messages().iter().map(|(b, _)| b.len()).sum();
        for at in 0..=total {
            let client = in_turn(|| Client::open(&node.socket(BAD)))?;
            let mut left = at;
            for (bytes, fd) in client.setup_messages() {
                let part = &bytes[..left.min(bytes.len())];
                if part.is_empty() || client.send(part, fd.as_slice()).is_err() {
                    break;
                }
                left -= part.len();
            }
        }
        // Byte by byte it is the same conversation. A second client meanwhile is turned away at once, or not answered.
        let bytewise = || {
            let mut client = Client::open(&node.socket(BAD))?;
            let mut second = UnixStream::connect(node.socket(BAD)).context(|| "connect".into())?;
            let bytes = client.setup_messages()[0].0.clone();
            let _ = second.write_all(&bytes);
            bytes.chunks(1).try_for_each(|byte| client.send(byte, &[]))?;
            let (head, _) = client.receive()?;
            ensure(head[2] == 1, || format!("{head:x?} answers a version byte by byte"))
        };
        in_turn(bytewise)?;
        serves(node)
    })
}

/// A client enables its controller although its admin queue has no place, and goes; the next one comes before the node has heard of either.
/// What the first has written has no effect on the controller that the next one finds.
fn registers_written_before_it_went(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let pid = i32::try_from(node.serving()?).ok().and_then(Pid::from_raw).ok_or("no process")?;
        for round in 0..8 {
            let first = greeted(node)?;
            process::stop(pid)?;
            let enable = message(7, cmd::REGION_WRITE, &write(0, 0x14, &words(&[6 << 16 | 4 << 20 | 1])));
            let sent = first.send(&enable, &[]);
            drop(first);
            let next = std::thread::scope(|scope| {
                let next = scope.spawn(|| ready(node)?.identify());
                std::thread::sleep(Duration::from_millis(30));
                kill_process(pid, Signal::CONT).context(|| "SIGCONT".into())?;
                next.join().map_err(|_| "it panics")?
            });
            sent.and(next).map_err(|e| format!("round {round}: {e}"))?;
        }
        Ok(())
    })
}

fn fuzzed_messages(env: &Env, time: &str) -> Outcome {
    with_node(env, &setup(), |node| {
        beside(env, node, time, |round| {
            let mut rng = Rng::new(round);
            let Ok(client) = Client::open(&node.socket(BAD)) else { return Ok(()) };
            let mut session: Vec<Vec<u8>> = client.setup_messages().into_iter().map(|(bytes, _)| bytes).collect();
            let victim = rng.below(session.len());
            rng.damage(&mut session[victim]);
            for _ in 0..rng.below(4) {
                let random: Vec<u8> = (0..rng.below(80)).map(|_| rng.next_u64() as u8).collect();
                session.insert(
                    1 + rng.below(session.len()),
                    message(rng.next_u64() as u16, rng.below(20) as u16, &random),
                );
            }
            for bytes in &session {
                let mapping = bytes.len() > 2 && bytes[2] == cmd::DMA_MAP as u8;
                let count = if rng.below(8) == 0 { rng.below(20) } else { usize::from(mapping) };
                if client.send(bytes, &vec![client.memory.as_fd(); count]).is_err() {
                    break;
                }
            }
            client.closed(Duration::from_millis(1));
            Ok(())
        })?;
        serves(node)
    })
}

/// Registers, doorbells and the admin ring at random, on a controller that is enabled now and then.
fn fuzzed_rings(env: &Env, time: &str) -> Outcome {
    with_node(env, &setup(), |node| {
        let mut completed = 0u64;
        beside(env, node, time, |round| {
            let mut rng = Rng::new(round ^ 0xc0de);
            let mut client = ready(node)?;
            for _ in 0..40 {
                // Entries near the well-formed, of all admin opcodes.
                let mut ring = Vec::new();
                for _ in 0..ENTRIES {
                    let opcode =
                        [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x7c, 0xff][rng.below(12)];
                    let address = match rng.below(6) {
                        0 => rng.next_u64(),
                        1 => DMA + MEMORY - rng.below(4096) as u64,
                        2 => DMA + DATA + rng.below(4096) as u64,
                        _ => DMA + DATA + 0x1000 * rng.below(32) as u64,
                    };
                    let flags = [0, 0, 0, 1, 0x40, 0x80, 0xc0][rng.below(7)];
                    ring.extend(words(&[opcode | flags << 8 | (rng.next_u64() as u32) << 16, rng.below(3) as u32]));
                    ring.extend([0; 16]);
                    ring.extend(address.to_le_bytes());
                    ring.extend([0, DMA + DATA + 0x3000, rng.next_u64()][rng.below(3)].to_le_bytes());
                    let small =
                        |rng: &mut Rng| [rng.below(20) as u32, rng.next_u64() as u32][usize::from(rng.below(4) == 0)];
                    ring.extend(words(&[
                        small(&mut rng) | (rng.below(32) as u32) << 16,
                        small(&mut rng) | 1,
                        0,
                        0,
                        0,
                        0,
                    ]));
                }
                client.put(ASQ, &ring)?;
                client.put(DATA + 0x3000, &(0..512).flat_map(|_| rng.next_u64().to_le_bytes()).collect::<Vec<_>>())?;
                for _ in 0..rng.below(6) {
                    let offset = match rng.below(4) {
                        0 => 4 * rng.below(0x40) as u64,
                        1 => 4 * rng.below(0x4000) as u64,
                        _ => 0x1000 + 4 * rng.below(12) as u64,
                    };
                    let value = [rng.below(20) as u32, rng.next_u64() as u32][usize::from(rng.below(4) == 0)];
                    let (errno, _) = client.call(cmd::REGION_WRITE, &write(0, offset, &value.to_le_bytes()), &[])?;
                    ensure(errno == 0 || offset + 4 > 0x1_0000, || format!("a write to {offset:#x}: error {errno}"))?;
                }
                let rung = write(0, 0x1000, &(rng.below(ENTRIES as usize) as u32).to_le_bytes());
                client.ok(cmd::REGION_WRITE, &rung, &[])?;
                completed += u64::from(client.get::<16>(ACQ)? != [0; 16]);
                if rng.below(8) == 0 {
                    client.ok(cmd::DEVICE_RESET, &[], &[])?;
                    break;
                }
            }
            Ok(())
        })?;
        ensure(completed > 0, || "nothing of it was ever a command".into())?;
        serves(node)
    })
}

/// A region without a descriptor cannot be reached but by messages: commands that name it fail, others go on.
fn memory_without_a_descriptor(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let mut client = ready(node)?;
        let far = DMA + (1 << 30);
        let (errno, _) = client.call(cmd::DMA_MAP, &dma_map(0, far, MEMORY), &[])?;
        println!("    DMA_MAP without a descriptor: error {errno}");
        client.submit(0x06, [far, 0], [1, 0])?;
        // The server writes there by messages, and this client says no to all of them.
        if let Some(status) = client.completion(Duration::from_secs(5))? {
            ensure(status & 0x7ff == 4, || format!("status {status:#x}, not Data Transfer Error"))?;
            client.identify()?;
        }
        if errno == 0 {
            client.ok(cmd::DMA_UNMAP, &dma_unmap(0, far, MEMORY), &[])?;
        }
        // Twice the same, and overlapping ones.
        let memory = client.memory.try_clone().context(|| "memory".into())?;
        for (address, size) in [(DMA, MEMORY), (DMA + 4096, 4096), (DMA - 4096, 8192), (DMA + MEMORY - 4096, 8192)] {
            let (errno, _) = client.call(cmd::DMA_MAP, &dma_map(0, address, size), &[memory.as_fd()])?;
            ensure(errno != 0, || format!("{size} bytes at {address:#x} are mapped twice"))?;
        }
        client.identify()?;
        // The rings go away with their region: what follows fails, and the connection goes on.
        client.ok(cmd::DMA_UNMAP, &dma_unmap(0, DMA, MEMORY), &[])?;
        client.submit(0x06, [DMA + DATA, 0], [1, 0])?;
        ensure(client.completion(Duration::from_millis(100))?.is_none(), || {
            "a command ends in unmapped memory".into()
        })?;
        client.register(0x1c)?;
        drop(client);
        // Thousands of regions: an error, not a node without descriptors.
        let mut client = greeted(node)?;
        let memory = client.memory.try_clone().context(|| "memory".into())?;
        let mut mapped = 0;
        for i in 0..5000u64 {
            let (errno, _) = client.call(cmd::DMA_MAP, &dma_map(0, DMA + i * 8192, 4096), &[memory.as_fd()])?;
            if errno != 0 {
                break;
            }
            mapped += 1;
        }
        println!("    {mapped} regions can be mapped");
        ensure((64..5000).contains(&mapped), || format!("{mapped} regions"))?;
        drop(client);
        serves(node)
    })
}

/// A file that gets shorter under the server's mapping: touching what is gone is SIGBUS, which must not end the node; regions
/// that are unmapped while commands are in flight.
fn memory_that_goes_away(env: &Env) -> Outcome {
    let setup = setup().device("latency = \"200us\"");
    with_node(env, &setup, |node| {
        beside(env, node, "3s", |round| {
            let mut drive = Drive::ready(&node.socket(BAD), ams::ROUND_ROBIN)?;
            let mut queue = drive.create_queue(1, 64, qprio::MEDIUM, None)?;
            let buffer = drive.allocate(32 * PAGE);
            for cid in 0..32 {
                let prp = (buffer + u64::from(cid) * PAGE, 0);
                queue.submit(&drive, cid, io(1 + (cid % 2) as u8, u64::from(cid) * 8 + 400_000, 8, prp))?;
            }
            drive.ring(&queue)?;
            match round % 3 {
                // Nothing of the file is touched here any more: it would be this process that gets the signal.
                0 => drive.file().set_len(buffer - BASE).context(|| "ftruncate".into())?,
                1 => drive.file().set_len(0).context(|| "ftruncate".into())?,
                _ => drive.client.dma_unmap(BASE, 64 << 20).context(|| "DMA_UNMAP".into())?,
            }
            std::thread::sleep(Duration::from_millis(5));
            drive.client.shutdown().context(|| "shutdown".into())
        })?;
        serves(node)
    })
}

/// An eventfd whose counter is full and whose writes wait, and a socket that nobody reads.
fn descriptors_that_would_block(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        beside(env, node, "2s", |round| {
            if round % 2 == 0 {
                // Answers that nobody reads, until the server has enough of it.
                let client = greeted(node)?;
                let read = message(1, cmd::REGION_READ, &access(7, 0, 4096));
                let _ = client.send(&read.repeat(64), &[]);
                return Ok(());
            }
            let flags = rustix::event::EventfdFlags::CLOEXEC;
            let full = rustix::event::eventfd(0, flags).context(|| "eventfd".into())?;
            rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).context(|| "fill".into())?;
            let mut drive = Drive::ready(&node.socket(BAD), ams::ROUND_ROBIN)?;
            drive.client.set_irqs(2, 0x24, 1, 1, &[full.as_raw_fd()]).context(|| "DEVICE_SET_IRQS".into())?;
            // Whether MSI-X is enabled or not: a trigger by hand signals at once.
            drive.client.set_irqs(2, 0x21, 1, 1, &[]).context(|| "trigger".into())?;
            let mut queue = drive.create_queue(1, 16, qprio::MEDIUM, Some(1))?;
            let buffer = drive.allocate(PAGE);
            for _ in 0..8 {
                let status = drive.io(&mut queue, io(0x02, 0, 8, (buffer, 0)))?;
                ensure(status == 0, || format!("a good read ends with {status:#x}"))?;
            }
            Ok(())
        })?;
        serves(node)
    })
}
