//! A PCIe drive behind vfio-user, driven by hand over rust-vmm's client: queues of all four priorities and their shares, every
//! byte compared with a model, resets and deletions in the middle, wrong doorbells, interrupts, a client that dies.

use std::collections::HashSet;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::classes::{niced_bench, reaches, renice};
use super::{long, test};
use crate::bench::bench;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, with_node};
use crate::raw::Rng;
use crate::vfio::{Drive, EVENT, PAGE, Queue, ams, command, in_turn, io, qprio, reg};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "vfio_client";
    vec![
        test(S, "every_byte_mapped_doorbells", |env| every_byte(env, "auto", 3_000)),
        test(S, "every_byte_trapped_doorbells", |env| every_byte(env, "trap", 1_000)),
        test(S, "weighted_round_robin_by_priority", |env| weighted(env, 2)),
        test(S, "deficit_round_robin_by_priority", |env| deficit(env, 2)),
        test(S, "resets_in_the_middle", resets),
        test(S, "wrong_doorbells", wrong_doorbells),
        test(S, "controller_memory_buffer_mapped_doorbells", |env| memory_buffer(env, "auto")),
        test(S, "controller_memory_buffer_trapped_doorbells", |env| memory_buffer(env, "trap")),
        test(S, "first_command_after_a_pause", after_a_pause),
        test(S, "interrupts", interrupts),
        test(S, "a_client_that_dies", dies),
        test(S, "closes_and_connects_again_at_once", |env| at_once(env, "")),
        test(S, "closes_and_connects_again_at_once_at_a_keeper", |env| at_once(env, "keeper = true")),
        test(S, "spdk_finds_the_socket_in_a_folder", folder),
        test(S, "ionice_gives_a_client_its_class", ionice),
        test(S, "our_own_client", our_own_client),
        test(S, "ionice_before_weir_bench", ionice_before_weir_bench),
        long(S, "every_byte_long", |env| every_byte(env, "auto", 300_000)),
        long(S, "weighted_round_robin_long", |env| weighted(env, 20)),
        long(S, "deficit_round_robin_long", |env| deficit(env, 20)),
    ]
}

const SOCKET: &str = "ssd0.sock";

fn setup(keys: &str) -> Setup {
    Setup::default().tenants(&[("gold", "high")]).vfio(SOCKET, keys)
}

/// A client that goes and comes again without a pause is let in, whatever it has left unread; a second one is still turned away.
fn at_once(env: &Env, keys: &str) -> Outcome {
    const ROUNDS: usize = 300;
    let setup = Setup { node: keys.into(), ..setup("") };
    with_node(env, &setup, |node| {
        let socket = node.socket(SOCKET);
        for round in 0..ROUNDS {
            let drive = Drive::connect(&socket).map_err(|e| format!("round {round}: {e}"))?;
            drop(drive);
        }
        let first = Drive::connect(&socket)?;
        ensure(Drive::connect(&socket).is_err(), || "two clients at once".into())?;
        drop(first);
        // Not even what the one before has sent and nobody has read keeps the next one out.
        for round in 0..20 {
            let mut flood = UnixStream::connect(&socket).context(|| format!("round {round}"))?;
            let _ = flood.write_all(&[0; 4]);
            drop(flood);
            Drive::connect(&socket).map_err(|e| format!("behind half a message, round {round}: {e}"))?;
        }
        let mut drive = Drive::connect(&socket)?;
        drive.enable(ams::ROUND_ROBIN)
    })
}

/// SPDK's programs connect to `TRADDR/cntrl`: the folder is there beside any socket, and a socket of that name has its folder made.
fn folder(env: &Env) -> Outcome {
    for keeper in ["", "keeper = true"] {
        let setup = Setup { node: keeper.into(), ..setup("").vfio("vm/cntrl", "") };
        let mut left = Vec::new();
        with_node(env, &setup, |node| {
            for path in ["ssd0.sock.spdk/cntrl", SOCKET, "vm/cntrl"] {
                let path = node.socket(path);
                Drive::ready(&path, ams::ROUND_ROBIN).map_err(|e| format!("{}: {e}", path.display()))?;
            }
            left.push(node.socket("ssd0.sock.spdk"));
            Ok(())
        })?;
        ensure(left.iter().all(|path| !path.exists()), || format!("{left:?} is left"))?;
    }
    Ok(())
}

/// Bytes of a block of the drive.
const BLOCK: u64 = 512;
/// Blocks that the model covers, in units of [`UNIT`].
const UNITS: usize = 4096;
/// Bytes of a unit of the model.
const UNIT: u64 = 2048;
/// Requests in flight on a queue.
const DEPTH: usize = 16;
/// Units of a request at the most: 64 KiB, 17 pages where it begins in the middle of one.
const MOST: usize = 32;

/// A request on its way.
#[derive(Clone, Copy)]
struct Request {
    write: bool,
    unit: usize,
    count: usize,
    /// Where in memory its data is.
    at: u64,
}

/// What write number `n` puts into a unit.
fn fill(unit: usize, n: u32) -> Vec<u8> {
    let mut word = (unit as u64) << 32 | u64::from(n);
    let mut next = || {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        if n == 0 { 0 } else { word }
    };
    (0..UNIT / 8).flat_map(|_| next().to_le_bytes()).collect()
}

/// Random reads and writes of any length on four queues, at any offset in a page, every byte compared with a model.
fn every_byte(env: &Env, doorbells: &str, requests: usize) -> Outcome {
    let keys = format!("doorbells = \"{doorbells}\"");
    with_node(env, &setup(&keys), |node| {
        let mut drive = Drive::ready(&node.socket(SOCKET), ams::ROUND_ROBIN)?;
        ensure(drive.is_mapped() == (doorbells != "trap"), || format!("doorbells mapped: {}", drive.is_mapped()))?;
        drive.set_feature(0x07, [0x0003_0003, 0, 0])?;
        let mut queues = Vec::new();
        for qid in 1..=4 {
            // Not the same sizes, so that they wrap at other places.
            queues.push(drive.create_queue(qid, DEPTH as u32 + 1 + u32::from(qid), qprio::MEDIUM, None)?);
        }
        // A page more than the data, for the offset.
        let room = MOST as u64 * UNIT + PAGE;
        let buffers = drive.allocate(4 * DEPTH as u64 * room);
        let lists = drive.allocate(4 * DEPTH as u64 * PAGE);
        let mut rng = Rng::new(7);
        let mut content = vec![0u32; UNITS];
        let mut busy = vec![false; UNITS];
        let mut active: Vec<Option<Request>> = vec![None; 4 * DEPTH];
        let (mut begun, mut ended, mut numbers) = (0, 0, 0u32);
        let start = Instant::now();
        while ended < requests {
            for slot in 0..active.len() {
                if begun == requests || active[slot].is_some() {
                    continue;
                }
                let count = 1 + rng.below(MOST);
                let unit = rng.below(UNITS - count);
                if busy[unit..unit + count].contains(&true) {
                    continue;
                }
                busy[unit..unit + count].fill(true);
                let write = rng.below(2) == 0;
                // A PRP begins at any dword.
                let at = buffers + slot as u64 * room + 4 * rng.below(PAGE as usize / 4) as u64;
                if write {
                    numbers += 1;
                    for i in 0..count {
                        drive.write(at + i as u64 * UNIT, &fill(unit + i, numbers))?;
                    }
                    content[unit..unit + count].fill(numbers);
                }
                let bytes = count as u64 * UNIT;
                // A list may begin in the middle of its page, as long as it ends in it.
                let list = lists + slot as u64 * PAGE + 8 * rng.below(PAGE as usize / 8 - MOST) as u64;
                let prp = drive.prp(at, bytes, list)?;
                let lba = unit as u64 * UNIT / BLOCK;
                let opcode = if write { 0x01 } else { 0x02 };
                let sqe = io(opcode, lba, (bytes / BLOCK) as u32, prp);
                queues[slot / DEPTH].submit(&drive, (slot % DEPTH) as u16, sqe)?;
                active[slot] = Some(Request { write, unit, count, at });
                begun += 1;
            }
            for (q, queue) in queues.iter_mut().enumerate() {
                drive.ring(queue)?;
                while let Some(done) = queue.take(&drive)? {
                    let slot = q * DEPTH + usize::from(done.cid);
                    let request = active.get_mut(slot).and_then(Option::take);
                    let r = request.ok_or_else(|| format!("queue {}: command {} was not sent", q + 1, done.cid))?;
                    ensure(done.status == 0, || format!("queue {}: status {:#x}", q + 1, done.status))?;
                    busy[r.unit..r.unit + r.count].fill(false);
                    for unit in (r.unit..r.unit + r.count).filter(|_| !r.write) {
                        let mut bytes = vec![0; UNIT as usize];
                        drive.read(r.at + (unit - r.unit) as u64 * UNIT, &mut bytes)?;
                        ensure(bytes == fill(unit, content[unit]), || format!("unit {unit} has other bytes"))?;
                    }
                    ended += 1;
                }
            }
            ensure(start.elapsed() < Duration::from_secs(300), || format!("{ended} of {requests} requests end"))?;
        }
        println!("    {requests} requests, {numbers} writes, in {:.1} s", start.elapsed().as_secs_f64());
        Ok(())
    })
}

/// A drive that is the bottleneck wherever the machine is slow: 8 slots of 1.6 ms.
fn slow(keys: &str) -> Setup {
    setup(keys).device("latency = \"1600us\"\nslots = 8\nslot_bytes = \"4MiB\"")
}

/// A queue that is kept full of reads of one size.
struct Load {
    queue: Queue,
    name: &'static str,
    depth: u16,
    blocks: u32,
    prp: (u64, u64),
    sent: Vec<Option<Instant>>,
    done: u64,
    waited: Duration,
}

impl Load {
    fn new(drive: &mut Drive, name: &'static str, priority: u32, depth: u16, bytes: u64) -> Result<Self, String> {
        let queue = drive.create_queue(priority as u16 + 1, u32::from(depth) + 1, priority, None)?;
        // What is read is of no interest: all read to the same place.
        let (buffer, list) = (drive.allocate(bytes), drive.allocate(PAGE));
        let prp = drive.prp(buffer, bytes, list)?;
        let sent = vec![None; depth.into()];
        let blocks = (bytes / BLOCK) as u32;
        Ok(Self { queue, name, depth, blocks, prp, sent, done: 0, waited: Duration::ZERO })
    }

    fn turn(&mut self, drive: &mut Drive) -> Outcome {
        while let Some(done) = self.queue.take(drive)? {
            let sent = self.sent.get_mut(usize::from(done.cid)).and_then(Option::take);
            let sent = sent.ok_or_else(|| format!("{}: command {} was not sent", self.name, done.cid))?;
            ensure(done.status == 0, || format!("{}: status {:#x}", self.name, done.status))?;
            self.done += 1;
            self.waited += sent.elapsed();
        }
        for cid in 0..self.depth {
            if self.sent[usize::from(cid)].is_none() {
                let lba = self.done % 1000 * u64::from(self.blocks);
                self.queue.submit(drive, cid, io(0x02, lba, self.blocks, self.prp))?;
                self.sent[usize::from(cid)] = Some(Instant::now());
            }
        }
        drive.ring(&self.queue)
    }

    fn bytes(&self) -> f64 {
        self.done as f64 * f64::from(self.blocks) * BLOCK as f64
    }
}

/// How far a share may be off.
const TOLERANCE: f64 = 0.03;

/// Loads of all four priorities side by side: what each got of the three weighted ones' sum, against what it is to get. The
/// urgent one has a single command on its way and waits for nobody but the slots.
fn shares(env: &Env, mechanism: u32, sizes: [u64; 3], seconds: u64, set: impl Fn(&mut Drive) -> Outcome) -> Outcome {
    // 4 : 2 : 1 in commands or in bytes.
    let wanted = [4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0];
    with_node(env, &slow(""), |node| {
        // A machine that is busy with something else keeps the queues from being full.
        env.majority(|| {
            let mut drive = Drive::ready(&node.socket(SOCKET), mechanism)?;
            set(&mut drive)?;
            drive.set_feature(0x07, [0x0003_0003, 0, 0])?;
            let mut loads = vec![Load::new(&mut drive, "urgent", qprio::URGENT, 1, 4096)?];
            for (i, (name, priority)) in
                [("high", qprio::HIGH), ("medium", qprio::MEDIUM), ("low", qprio::LOW)].into_iter().enumerate()
            {
                // Deep: a client that has no core for a tenth of a second still has a backlog.
                loads.push(Load::new(&mut drive, name, priority, 800, sizes[i])?);
            }
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(seconds) {
                loads.iter_mut().try_for_each(|load| load.turn(&mut drive))?;
            }
            let weigh = |l: &Load| if mechanism == ams::WEIGHTED { l.done as f64 } else { l.bytes() };
            let all: f64 = loads[1..].iter().map(weigh).sum();
            let mut off: f64 = 0.0;
            for (load, wanted) in loads[1..].iter().zip(wanted) {
                let found = weigh(load) / all;
                off = off.max((found / wanted - 1.0).abs());
                println!("    {:<6} {:>7} commands, share {found:.4}, ideal {wanted:.4}", load.name, load.done);
            }
            let wait = |l: &Load| l.waited.as_secs_f64() / l.done.max(1) as f64;
            println!("    urgent waits {:.2} ms, low {:.2} ms", wait(&loads[0]) * 1e3, wait(&loads[3]) * 1e3);
            ensure(off <= TOLERANCE, || format!("a share is off by {:.1} %", off * 100.0))?;
            // Strictly first: behind what is in the slots, never behind a backlog.
            ensure(wait(&loads[0]) * 4.0 < wait(&loads[3]), || "urgent is not before the others".into())
        })
    })
}

/// CC.AMS 001b with weights 32 : 16 : 8 by Set Features 01h: shares of commands, whatever their sizes.
fn weighted(env: &Env, seconds: u64) -> Outcome {
    shares(env, ams::WEIGHTED, [4096, 8192, 4096], seconds, |drive| {
        // AB 111b (no limit), LPW, MPW, HPW, all 0-based.
        drive.set_feature(0x01, [31 << 24 | 15 << 16 | 7 << 8 | 7, 0, 0])
    })
}

/// CC.AMS 111b with quanta 64, 32 and 16 KiB by vendor feature C1h: shares of bytes, whatever the sizes.
fn deficit(env: &Env, seconds: u64) -> Outcome {
    shares(env, ams::VENDOR, [4096, 16384, 8192], seconds, |drive| {
        drive.set_feature(0xc1, [64 << 10, 32 << 10, 16 << 10])
    })
}

/// Leaves `count` reads in flight on a drive that takes its time.
fn leave_in_flight(drive: &mut Drive, queue: &mut Queue, count: u16) -> Outcome {
    let buffer = drive.allocate(PAGE);
    for cid in 0..count {
        queue.submit(drive, cid, io(0x02, u64::from(cid) * 8, 8, (buffer, 0)))?;
    }
    drive.ring(queue)
}

/// A block is written and read back over a new queue.
fn works(drive: &mut Drive, qid: u16) -> Outcome {
    let mut queue = drive.create_queue(qid, 8, qprio::MEDIUM, None)?;
    let (out, back) = (drive.allocate(PAGE), drive.allocate(PAGE));
    let mark: Vec<u8> = (0..PAGE).map(|i| (i * 7 + u64::from(qid)) as u8).collect();
    drive.write(out, &mark)?;
    for (opcode, at) in [(0x01, out), (0x02, back)] {
        let status = drive.io(&mut queue, io(opcode, 80_000, 8, (at, 0)))?;
        ensure(status == 0, || format!("command {opcode:#x}: status {status:#x}"))?;
    }
    let mut found = vec![0; PAGE as usize];
    drive.read(back, &mut found)?;
    ensure(found == mark, || "other bytes come back".into())?;
    drive.delete_queue(&queue)
}

fn resets(env: &Env) -> Outcome {
    with_node(env, &slow(""), |node| {
        let mut drive = Drive::ready(&node.socket(SOCKET), ams::WEIGHTED)?;
        // Deleted with commands in flight: they end, aborted or done, before the deletion does.
        let mut queue = drive.create_queue(1, 128, qprio::LOW, None)?;
        leave_in_flight(&mut drive, &mut queue, 100)?;
        drive.admin_ok(command(0x00, (0, 0), &[(1, 0), (10, 1)]))?;
        let mut ended = HashSet::new();
        while let Some(done) = queue.take(&drive)? {
            ensure(ended.insert(done.cid), || format!("command {} completes twice", done.cid))?;
        }
        println!("    {} of 100 commands completed before their queue was deleted", ended.len());
        drive.admin_ok(command(0x04, (0, 0), &[(1, 0), (10, 1)]))?;
        works(&mut drive, 1)?;
        // A controller reset with commands in flight: none of them completes afterwards.
        for what in ["CC.EN", "DEVICE_RESET", "FLR", "NSSR"] {
            let mut queue = drive.create_queue(2, 128, qprio::LOW, None)?;
            leave_in_flight(&mut drive, &mut queue, 100)?;
            match what {
                "CC.EN" => drive.disable()?,
                "DEVICE_RESET" => drive.client.reset().context(|| what.into())?,
                "FLR" => {
                    // Initiate Function Level Reset in device control.
                    let at = capability(&mut drive, 0x10)? + 8;
                    drive.client.region_write(7, at, &0x8000u16.to_le_bytes()).context(|| what.into())?;
                }
                // "NVMe", written.
                _ => drive.set_register(reg::NSSR, &0x4e56_4d65u32.to_le_bytes())?,
            }
            let cc = drive.register(reg::CC)?;
            ensure(cc & 1 == 0 && drive.register(reg::CSTS)? & 1 == 0, || format!("{what}: CC {cc:#x} afterwards"))?;
            while queue.take(&drive)?.is_some() {}
            std::thread::sleep(Duration::from_millis(50));
            ensure(queue.take(&drive)?.is_none(), || format!("{what}: a command completes after the reset"))?;
            if what == "NSSR" {
                // It says that it happened, until it is told that this was seen.
                ensure(drive.register(reg::CSTS)? & 0x10 != 0, || "CSTS.NSSRO is not set".into())?;
                drive.set_register(reg::CSTS, &0x10u32.to_le_bytes())?;
                ensure(drive.register(reg::CSTS)? & 0x10 == 0, || "CSTS.NSSRO stays".into())?;
            } else if what != "CC.EN" {
                // Memory space and bus master are off as after power-on.
                drive.client.region_write(7, 4, &0x0406u16.to_le_bytes()).context(|| "command register".into())?;
            }
            drive.enable(ams::VENDOR)?;
            works(&mut drive, 2).map_err(|e| format!("after {what}: {e}"))?;
        }
        // Shutdown: CC.SHN 01b, CSTS.SHST 10b.
        let cc = drive.register(reg::CC)?;
        drive.set_register(reg::CC, &(cc | 1 << 14).to_le_bytes())?;
        let begin = Instant::now();
        while drive.register(reg::CSTS)? >> 2 & 3 != 2 {
            ensure(begin.elapsed() < Duration::from_secs(10), || "the shutdown does not end".into())?;
        }
        drive.enable(ams::ROUND_ROBIN)?;
        works(&mut drive, 3)
    })
}

fn wrong_doorbells(env: &Env) -> Outcome {
    with_node(env, &setup(""), |node| {
        let mut drive = Drive::ready(&node.socket(SOCKET), ams::ROUND_ROBIN)?;
        drive.set_feature(0x07, [0x0003_0003, 0, 0])?;
        let mut queue = drive.create_queue(1, 16, qprio::MEDIUM, None)?;
        // Asynchronous Event Request, then a tail beyond the queue: error event, Invalid Doorbell Write Value.
        let aer = command(0x0c, (0, 0), &[(1, 0)]);
        drive.submit_admin(EVENT, aer)?;
        drive.doorbell(1, false, 16)?;
        let event = drive.admin_completion(Duration::from_secs(10))?.ok_or("no event for a tail beyond the queue")?;
        ensure((event.cid, event.result & 0xff07) == (EVENT, 0x0100), || format!("{event:x?}, not an error, 01h"))?;
        // The queue works on with a right one, and the error log has said what it was.
        let log = drive.allocate(PAGE);
        drive.admin_ok(command(0x02, (log, 0), &[(1, u32::MAX), (10, 15 << 16 | 1)]))?;
        let status = drive.io(&mut queue, io(0x02, 0, 8, (log, 0)))?;
        ensure(status == 0, || format!("after a wrong tail a read ends with {status:#x}"))?;
        // A doorbell of a queue that is not there: Write to Invalid Doorbell Register, or nothing where it is mapped memory.
        drive.submit_admin(EVENT + 1, aer)?;
        drive.doorbell(3, false, 1)?;
        if let Some(event) = drive.admin_completion(Duration::from_millis(300))? {
            ensure((event.cid, event.result & 0xff07) == (EVENT + 1, 0), || format!("{event:x?}, not an error, 00h"))?;
        }
        // Jumps of all sizes never make it lose or invent a completion of what was sent rightly.
        let mut rng = Rng::new(3);
        for _ in 0..200 {
            let value = rng.next_u64() as u32 | 16;
            drive.doorbell(1, rng.below(2) == 0, value)?;
        }
        drive.delete_queue(&queue)?;
        works(&mut drive, 1)
    })
}

fn interrupts(env: &Env) -> Outcome {
    with_node(env, &setup(""), |node| {
        let mut drive = Drive::ready(&node.socket(SOCKET), ams::ROUND_ROBIN)?;
        let vectors = drive.client.get_irq_info(2).context(|| "MSI-X".into())?.count;
        ensure(vectors >= 3, || format!("{vectors} MSI-X vectors"))?;
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context(|| "eventfd".into());
        let fds: Vec<OwnedFd> = (0..3).map(|_| event()).collect::<Result<_, _>>()?;
        let raw: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        // DATA_EVENTFD | ACTION_TRIGGER.
        drive.client.set_irqs(2, 0x24, 0, 3, &raw).context(|| "DEVICE_SET_IRQS".into())?;
        // MSI-X enable in its capability, and every vector unmasked in the table.
        enable_msix(&mut drive, 3)?;
        let mut queue = drive.create_queue(1, 16, qprio::MEDIUM, Some(2))?;
        let buffer = drive.allocate(PAGE);
        for round in 0..20 {
            queue.submit(&drive, round, io(0x02, 0, 8, (buffer, 0)))?;
            drive.ring(&queue)?;
            ensure(signalled(&fds[2], 10_000)?, || format!("round {round}: no interrupt"))?;
            let done = drive.await_completion(&mut queue, Duration::from_secs(10))?;
            ensure(done.is_some_and(|d| d.cid == round), || format!("round {round}: {done:?}"))?;
        }
        ensure(!signalled(&fds[1], 0)?, || "a vector that no queue has was signalled".into())?;
        // Masked: pending, and signalled when it is unmasked.
        mask(&mut drive, 2, true)?;
        queue.submit(&drive, 99, io(0x02, 0, 8, (buffer, 0)))?;
        drive.ring(&queue)?;
        drive.await_completion(&mut queue, Duration::from_secs(10))?.ok_or("a masked read does not complete")?;
        ensure(!signalled(&fds[2], 50)?, || "a masked vector was signalled".into())?;
        mask(&mut drive, 2, false)?;
        ensure(signalled(&fds[2], 10_000)?, || "an unmasked vector was not signalled".into())
    })
}

/// Whether an eventfd is signalled within some milliseconds; sets it back.
fn signalled(fd: &OwnedFd, ms: i64) -> Result<bool, String> {
    let time = Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
    let found = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&time)).context(|| "poll".into())?;
    if found > 0 {
        rustix::io::read(fd, &mut [0; 8]).context(|| "eventfd".into())?;
    }
    Ok(found > 0)
}

/// Where a capability is in configuration space.
fn capability(drive: &mut Drive, id: u8) -> Result<u64, String> {
    let mut space = [0; 256];
    drive.client.region_read(7, 0, &mut space).context(|| "configuration space".into())?;
    let mut at = usize::from(space[0x34]);
    while at != 0 && space[at] != id {
        at = usize::from(space[at + 1]);
    }
    ensure(at != 0, || format!("no capability {id:#x}"))?;
    Ok(at as u64)
}

/// Where the MSI-X table is in BAR 0, from its capability, whose offset comes too.
fn msix(drive: &mut Drive) -> Result<(u64, u64), String> {
    let at = capability(drive, 0x11)?;
    let mut table = [0; 4];
    drive.client.region_read(7, at + 4, &mut table).context(|| "MSI-X".into())?;
    let table = u32::from_le_bytes(table);
    ensure(table & 7 == 0, || format!("the MSI-X table is in BAR {}", table & 7))?;
    Ok((at, u64::from(table & !7)))
}

/// Where a host sees the memory buffer: its memory is elsewhere.
const BUFFER: u64 = 0x9_0000_0000;

/// Queues, lists and data in the controller memory buffer, in mixtures with memory; what is partly in it; resets.
fn memory_buffer(env: &Env, doorbells: &str) -> Outcome {
    let setup = setup(&format!("doorbells = \"{doorbells}\"")).device("cmb = \"1MiB\"");
    with_node(env, &setup, |node| {
        let mut drive = Drive::ready(&node.socket(SOCKET), ams::ROUND_ROBIN)?;
        let sizes = [drive.register(reg::CMBLOC)?, drive.register(reg::CMBSZ)?];
        ensure(drive.register(4)? >> 25 & 1 == 1, || "CAP.CMBS is not set".into())?;
        ensure(sizes == [0, 0], || format!("CMBLOC and CMBSZ {sizes:x?} before CMBMSC.CRE"))?;
        let len = drive.map_buffer(BUFFER)?;
        enable_buffer(&mut drive)?;
        let (location, size) = (drive.register(reg::CMBLOC)?, drive.register(reg::CMBSZ)?);
        // BAR 2 from its beginning; queues, lists, data in both directions; 256 pages of 4 KiB.
        ensure(location & 7 == 2 && location >> 12 == 0, || format!("CMBLOC {location:#x}"))?;
        ensure(size == 256 << 12 | 0x1f && len == 1 << 20, || format!("CMBSZ {size:#x} of {len} bytes"))?;
        // What is mapped and what is read by messages are the same bytes.
        drive.write(BUFFER + 0x8_0000, b"mapped")?;
        let mut bytes = [0; 6];
        drive.client.region_read(2, 0x8_0000, &mut bytes).context(|| "BAR 2".into())?;
        ensure(&bytes == b"mapped", || format!("{bytes:x?} by REGION_READ"))?;
        drive.client.region_write(2, 0x8_0000, b"by msg").context(|| "BAR 2".into())?;
        drive.read(BUFFER + 0x8_0000, &mut bytes)?;
        ensure(&bytes == b"by msg", || format!("{bytes:x?} after REGION_WRITE"))?;
        let places = [
            ("in the buffer", (BUFFER, BUFFER + 0x2000)),
            ("in memory", (drive.allocate(PAGE), drive.allocate(PAGE))),
            ("in both", (BUFFER, drive.allocate(PAGE))),
        ];
        for (n, (what, at)) in places.into_iter().enumerate() {
            let mut queue = drive.create_queue_at(at, 1, 16, qprio::MEDIUM, None)?;
            mixed_data(&mut drive, &mut queue, n as u64).map_err(|e| format!("queues {what}: {e}"))?;
            drive.delete_queue(&queue)?;
        }
        let mut queue = drive.create_queue_at((BUFFER, BUFFER + 0x2000), 1, 16, qprio::MEDIUM, None)?;
        // An SGL data block over the end of the buffer, and one over its beginning.
        for (at, want) in [(BUFFER + len - 2048, 0x12), (BUFFER - 2048, 0x12), (BUFFER + len - 4096, 0)] {
            let status = drive.io(&mut queue, sgl(io(0x02, 0, 8, (0, 0)), at, 4096))? & 0xff;
            ensure(status == want, || format!("data at {at:#x}: status {status:#x}, not {want:#x}"))?;
        }
        // Disabled and enabled, the buffer stays where it was, with what is in it.
        drive.write(BUFFER + 0x8_0000, b"stays.")?;
        drive.enable(ams::ROUND_ROBIN)?;
        let mut queue = drive.create_queue_at((BUFFER, BUFFER + 0x2000), 1, 16, qprio::MEDIUM, None)?;
        mixed_data(&mut drive, &mut queue, 9)?;
        // A buffer that would wrap is not enabled, and nothing is there.
        drive.enable(ams::ROUND_ROBIN)?;
        drive.set_register(reg::CMBMSC, &(0xffff_ffff_ffff_f000u64 | 3).to_le_bytes())?;
        ensure(drive.register(reg::CMBSTS)? & 1 == 1, || "CMBSTS.CBAI is not set".into())?;
        let mut queue = drive.create_queue(1, 16, qprio::MEDIUM, None)?;
        let status = drive.io(&mut queue, io(0x02, 0, 8, (BUFFER, 0)))? & 0xff;
        ensure(status == 4, || format!("data where no buffer is any more: status {status:#x}"))?;
        // A reset of the function forgets it.
        enable_buffer(&mut drive)?;
        drive.client.reset().context(|| "DEVICE_RESET".into())?;
        drive.client.region_write(7, 4, &0x0406u16.to_le_bytes()).context(|| "command register".into())?;
        ensure(drive.register(reg::CMBSZ)? == 0, || "CMBSZ outlives a reset of the function".into())?;
        drive.enable(ams::ROUND_ROBIN)?;
        works(&mut drive, 1)
    })
}

/// CMBMSC: capabilities registers and memory space on, at [`BUFFER`].
fn enable_buffer(drive: &mut Drive) -> Outcome {
    drive.set_register(reg::CMBMSC, &(BUFFER | 3).to_le_bytes())
}

/// A command whose data is one SGL data block.
fn sgl(mut command: crate::vfio::Command, at: u64, len: u32) -> crate::vfio::Command {
    command[0] |= 1 << 14;
    (command[6], command[7], command[8], command[9]) = (at as u32, (at >> 32) as u32, len, 0);
    command
}

/// 64 KiB written and read back from pages that lie here and there, by a list that lies in the buffer.
fn mixed_data(drive: &mut Drive, queue: &mut Queue, seed: u64) -> Outcome {
    const PAGES: u64 = 16;
    let memory = drive.allocate(2 * PAGES * PAGE);
    let (list, mut rng) = (BUFFER + 0x4000, Rng::new(seed));
    // Two places for each page, one to write from and one to read into.
    let mut place = |n: u64| match rng.below(2) {
        0 => memory + n * PAGE,
        _ => BUFFER + 0x1_0000 + n * PAGE,
    };
    let (from, into): (Vec<u64>, Vec<u64>) = (0..PAGES).map(|n| (place(n), place(PAGES + n))).unzip();
    for (opcode, pages) in [(0x01, &from), (0x02, &into)] {
        for (n, page) in pages.iter().enumerate() {
            let byte = if opcode == 0x01 { seed as u8 ^ n as u8 ^ 0x5a } else { 0 };
            drive.write(*page, &vec![byte; PAGE as usize])?;
        }
        drive.write(list, &pages[1..].iter().flat_map(|p| p.to_le_bytes()).collect::<Vec<u8>>())?;
        let status = drive.io(queue, io(opcode, 4096, (PAGES * PAGE / BLOCK) as u32, (pages[0], list)))?;
        ensure(status == 0, || format!("command {opcode:#x}: status {status:#x}"))?;
    }
    for (n, page) in into.iter().enumerate() {
        let mut bytes = vec![0; PAGE as usize];
        drive.read(*page, &mut bytes)?;
        ensure(bytes.iter().all(|b| *b == seed as u8 ^ n as u8 ^ 0x5a), || format!("page {n} has other bytes"))?;
    }
    Ok(())
}

/// Doorbells that nobody looks at all the time are seen after every pause, in whichever queue; other drives' clients sleep meanwhile.
fn after_a_pause(env: &Env) -> Outcome {
    let setup = setup("").vfio("beside.sock", "");
    with_node(env, &setup, |node| {
        let (mut one, mut two) = (
            Drive::ready(&node.socket(SOCKET), ams::ROUND_ROBIN)?,
            Drive::ready(&node.socket("beside.sock"), ams::ROUND_ROBIN)?,
        );
        let mut waits = Vec::new();
        let mut queues = Vec::new();
        for drive in [&mut one, &mut two] {
            drive.set_feature(0x07, [0x0001_0001, 0, 0])?;
            let buffer = drive.allocate(PAGE);
            queues.push((drive.create_queue(1, 16, qprio::MEDIUM, None)?, buffer));
            queues.push((drive.create_queue(2, 4, qprio::MEDIUM, None)?, buffer));
        }
        for round in 0..24 {
            // Longer than they are hot.
            std::thread::sleep(Duration::from_millis(15));
            let at = round % 4;
            let drive = if at < 2 { &mut one } else { &mut two };
            let (queue, buffer) = &mut queues[at];
            let begin = Instant::now();
            let status = drive.io(queue, io(0x02, 0, 8, (*buffer, 0)))?;
            ensure(status == 0, || format!("round {round}: status {status:#x}"))?;
            waits.push(begin.elapsed());
        }
        waits.sort();
        println!("    the first command after a pause took {:?}, {:?} at the most", waits[12], waits[23]);
        for (drive, at) in [(&mut one, 0), (&mut two, 2)] {
            queues[at..at + 2].iter().try_for_each(|(queue, _)| drive.delete_queue(queue))?;
            works(drive, 1)?;
        }
        Ok(())
    })
}

fn enable_msix(drive: &mut Drive, vectors: u64) -> Outcome {
    let (capability, _) = msix(drive)?;
    for vector in 0..vectors {
        mask(drive, vector, false)?;
    }
    drive.client.region_write(7, capability + 2, &0x8000u16.to_le_bytes()).context(|| "MSI-X control".into())
}

fn mask(drive: &mut Drive, vector: u64, masked: bool) -> Outcome {
    let (_, table) = msix(drive)?;
    drive.set_register(table + 16 * vector + 12, &u32::from(masked).to_le_bytes())
}

fn dies(env: &Env) -> Outcome {
    with_node(env, &slow(""), |node| {
        let socket = node.socket(SOCKET);
        for round in 1..=5 {
            let mut drive = Drive::ready(&socket, ams::WEIGHTED)?;
            works(&mut drive, 1).map_err(|e| format!("client {round}: {e}"))?;
            let mut queue = drive.create_queue(2, 128, qprio::HIGH, None)?;
            leave_in_flight(&mut drive, &mut queue, 100)?;
            // One client at a time: a second one is turned away, and the first does not notice.
            if round == 1 {
                ensure(Drive::connect(&socket).is_err(), || "a second client is served".into())?;
                drive
                    .await_completion(&mut queue, Duration::from_secs(10))?
                    .ok_or("the first client is served no more")?;
            }
            // Gone with what is in flight; its memory with it.
        }
        let mut drive = in_turn(|| Drive::connect(&socket))?;
        let (cc, aqa) = (drive.register(reg::CC)?, drive.register(reg::AQA)?);
        ensure(cc & 1 == 0 && aqa == 0, || format!("a new client finds CC {cc:#x} and AQA {aqa:#x}"))?;
        drive.enable(ams::ROUND_ROBIN)?;
        works(&mut drive, 1)
    })
}

fn ionice(env: &Env) -> Outcome {
    with_node(env, &setup("class_from = \"peer\""), |node| {
        let mut drive = Drive::ready(&node.socket(SOCKET), ams::ROUND_ROBIN)?;
        let _queue = drive.create_queue(1, 16, qprio::URGENT, None)?;
        reaches(node, SOCKET, "high")?;
        // The peer at the socket is this very process.
        let me = std::process::id();
        let follows = || -> Outcome {
            for (priority, class) in [("3", "low"), ("2", "medium"), ("0", "high")] {
                renice(me, priority)?;
                reaches(node, SOCKET, class).map_err(|e| format!("ionice -c {priority}: {e}"))?;
            }
            Ok(())
        };
        let followed = follows();
        renice(me, "0")?;
        followed
    })
}

/// `ionice weir bench vfio-user:`: it asks for the class by QPRIO, and makes its queue anew as the priority changes.
fn ionice_before_weir_bench(env: &Env) -> Outcome {
    with_node(env, &setup("class_from = \"qprio\""), |node| {
        let target = node.vfio_target(SOCKET);
        let mut client = niced_bench(env, "3", &[&target, "--qd", "16", "--time", "60s"])?;
        reaches(node, SOCKET, "low")?;
        for (priority, class) in [("2", "medium"), ("3", "low"), ("0", "medium")] {
            renice(client.pid(), priority)?;
            reaches(node, SOCKET, class).map_err(|e| format!("ionice -c {priority}: {e}"))?;
        }
        let running = client.running();
        ensure(running, || format!("the client ended: {}", client.stderr()))
    })
}

/// `weir bench vfio-user:`: verified, with several queues and classes, and what it says where it cannot.
fn our_own_client(env: &Env) -> Outcome {
    with_node(env, &setup("class_from = \"qprio\""), |node: &mut Node| {
        let target = node.vfio_target(SOCKET);
        for args in [
            [
                "--rw",
                "randrw",
                "--bs",
                "4KiB:50/64KiB:50",
                "--qd",
                "16",
                "--jobs",
                "3",
                "--time",
                "1s",
                "--verify",
                "crc32c",
            ],
            ["--rw", "randrw", "--bs", "512", "--qd", "128", "--jobs", "1", "--time", "1s", "--verify", "crc32c"],
        ] {
            let report = bench(env, &target, &args)?;
            report.clean()?;
            println!("    {:.0} IOPS verified", report.total("iops")?);
        }
        for arbitration in ["rr", "wrr", "drr"] {
            let target = format!("{target}?ns=1&arbitration={arbitration}");
            bench(env, &target, &["--qd", "32", "--time", "200ms"])?.clean()?;
        }
        let fails = |args: &[&str], why: &str| match bench(env, args[0], &args[1..]) {
            Ok(report) => Err(format!("{args:?} gave {}", report.0)),
            Err(e) => ensure(e.contains(why), || format!("{args:?} says {e}, not {why}")),
        };
        fails(&[&format!("{target}?ns=7"), "--time", "100ms"], "amespace")?;
        fails(&[&format!("{target}.not"), "--time", "100ms"], "cannot connect to the vfio-user socket")?;
        let held = in_turn(|| Drive::connect(&node.socket(SOCKET)))?;
        fails(&[&target, "--time", "100ms"], "another client")?;
        drop(held);
        bench(env, &target, &["--time", "100ms"])?.clean()
    })
}
