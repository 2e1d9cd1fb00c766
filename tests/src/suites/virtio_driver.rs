//! An independent Rust front end, the crate `virtio-driver`: random reads, writes, discards and flushes on several queues,
//! every byte compared with a model, completions awaited on their eventfds.

use std::os::fd::AsRawFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use virtio_driver::{
    EventFd, VhostUser, VirtioBlkFeatureFlags as Block, VirtioBlkQueue, VirtioBlkTransport,
    VirtioFeatureFlags as Feature,
};
use weir_sys::arena::{Arena, Pages, Schema};

use super::{long, test};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Setup, text, with_node};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "virtio_driver";
    vec![
        test(S, "split_one_queue", |env| random(env, Feature::VERSION_1, 1, 4_000)),
        test(S, "split_four_queues_indirect", |env| {
            random(env, Feature::VERSION_1 | Feature::RING_INDIRECT_DESC, 4, 8_000)
        }),
        test(S, "split_event_idx", |env| random(env, Feature::VERSION_1 | Feature::RING_EVENT_IDX, 2, 8_000)),
        test(S, "packed_two_queues", |env| random(env, Feature::VERSION_1 | Feature::RING_PACKED, 2, 8_000)),
        test(S, "packed_event_idx", |env| {
            random(env, Feature::VERSION_1 | Feature::RING_PACKED | Feature::RING_EVENT_IDX, 2, 8_000)
        }),
        test(S, "reconnect_keeps_the_data", reconnect),
        long(S, "split_four_queues_long", |env| random(env, Feature::VERSION_1, 4, 400_000)),
        long(S, "packed_four_queues_long", |env| {
            random(env, Feature::VERSION_1 | Feature::RING_PACKED | Feature::RING_EVENT_IDX, 4, 400_000)
        }),
    ]
}

/// Bytes of a block of the model.
const BLOCK: usize = 4096;
/// Blocks of a request at the most.
const MOST: usize = 8;
/// Requests in flight on a queue.
const DEPTH: usize = 16;
/// Blocks of the drive that the model covers.
const BLOCKS: usize = 2048;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Request {
    verb: Verb,
    block: usize,
    count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verb {
    Read,
    Write,
    Discard,
    Zero,
    Flush,
}

/// What each block holds: the number of the write that wrote it, 0 for zeroes, `None` for anything (discarded).
struct Model {
    content: Vec<Option<u32>>,
    busy: Vec<bool>,
    writes: u32,
    random: u64,
}

/// What write number `n` puts into `block`.
fn fill(buffer: &mut [u8], block: usize, n: u32) {
    let mut word = (block as u64) << 32 | u64::from(n);
    for bytes in buffer.chunks_exact_mut(8) {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        bytes.copy_from_slice(&if n == 0 { [0; 8] } else { word.to_le_bytes() });
    }
}

impl Model {
    fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % n as u64) as usize
    }

    /// A request that touches no block of another one.
    fn draw(&mut self) -> Option<Request> {
        let count = 1 + self.below(MOST);
        let block = self.below(BLOCKS - count);
        let verb = match self.below(20) {
            0 => Verb::Discard,
            1 => Verb::Zero,
            2 => Verb::Flush,
            n if n % 2 == 0 => Verb::Read,
            _ => Verb::Write,
        };
        if verb == Verb::Flush {
            return Some(Request { verb, block: 0, count: 0 });
        }
        let range = block..block + count;
        if self.busy[range.clone()].contains(&true) {
            return None;
        }
        self.busy[range].fill(true);
        Some(Request { verb, block, count })
    }

    /// Takes note of a finished request; a read's buffer has to hold what was written.
    fn finish(&mut self, request: Request, number: u32, buffer: &[u8]) -> Outcome {
        for (i, block) in (request.block..request.block + request.count).enumerate() {
            self.busy[block] = false;
            match request.verb {
                Verb::Write => self.content[block] = Some(number),
                Verb::Zero => self.content[block] = Some(0),
                Verb::Discard => self.content[block] = None,
                Verb::Read | Verb::Flush => {
                    let Some(n) = self.content[block] else { continue };
                    let mut wanted = [0; BLOCK];
                    fill(&mut wanted, block, n);
                    let found = &buffer[i * BLOCK..(i + 1) * BLOCK];
                    ensure(found == wanted, || {
                        format!("block {block} does not hold write {n}: {:02x?}…", &found[..16])
                    })?;
                }
            }
        }
        Ok(())
    }
}

type Transport = Box<VirtioBlkTransport>;

fn connect(socket: &str, features: Feature) -> Result<Transport, String> {
    let block = Block::MQ | Block::FLUSH | Block::DISCARD | Block::WRITE_ZEROES | Block::SEG_MAX | Block::BLK_SIZE;
    let wanted = features.bits() | block.bits();
    let transport = VhostUser::new(socket, wanted).context(|| format!("virtio-driver connects to {socket}"))?;
    let transport: Transport = Box::new(transport);
    let missing = wanted & !transport.get_features();
    ensure(missing == 0, || format!("the server does not offer features {missing:#x}"))?;
    Ok(transport)
}

/// The memory of all requests of all queues, known to the server.
fn memory(transport: &mut Transport, queues: usize) -> Result<Arena, String> {
    let schema = Schema { name: "e2e-buffers", version: 1 };
    let size = queues * DEPTH * MOST * BLOCK;
    let mut arena = Arena::create("e2e-buffers", schema, size as u64, Pages::Small).context(|| "an arena".into())?;
    arena.reserve(0..size).context(|| "memory".into())?;
    let at = arena.payload_mut().as_mut_ptr() as usize;
    let fd = arena.fd().as_raw_fd();
    transport.map_mem_region(at, size, fd, weir_sys::arena::HEADER as i64).context(|| "ADD_MEM_REG".into())?;
    Ok(arena)
}

fn random(env: &Env, features: Feature, queues: usize, requests: u32) -> Outcome {
    with_node(env, &Setup::default().socket("gold.sock"), |node| {
        let mut model =
            Model { content: vec![Some(0); BLOCKS], busy: vec![false; BLOCKS], writes: 0, random: 0x9e37_79b9 };
        run(&text(&node.socket("gold.sock")), features, queues, requests, &mut model)
    })
}

fn reconnect(env: &Env) -> Outcome {
    with_node(env, &Setup::default().socket("gold.sock"), |node| {
        let mut model = Model { content: vec![Some(0); BLOCKS], busy: vec![false; BLOCKS], writes: 0, random: 77 };
        for round in 0..20 {
            let packed = if round % 2 == 0 { Feature::empty() } else { Feature::RING_PACKED };
            let socket = text(&node.socket("gold.sock"));
            run(&socket, Feature::VERSION_1 | packed, 1 + round % 3, 300, &mut model)
                .map_err(|e| format!("connection {round}: {e}"))?;
        }
        Ok(())
    })
}

/// What a read of the drive's beginning leaves in a buffer of `before`.
pub(super) fn read_over(socket: &str, features: Feature, before: u8, len: usize) -> Result<Vec<u8>, String> {
    let mut transport = connect(socket, features)?;
    let mut arena = memory(&mut transport, 1)?;
    let mut vqs = VirtioBlkQueue::setup_queues(&mut *transport, 1, 128).context(|| "setup_queues".into())?;
    let buffer = &mut arena.payload_mut()[..len];
    buffer.fill(before);
    vqs[0].read(0, buffer, 0).context(|| "read".into())?;
    if vqs[0].avail_notif_needed() {
        transport.get_submission_notifier(0).notify().context(|| "kick".into())?;
    }
    loop {
        if let Some(done) = vqs[0].completions().next() {
            ensure(done.ret == 0, || format!("a read ends with {}", done.ret))?;
            return Ok(arena.payload()[..len].to_vec());
        }
        wait(&mut vqs, &transport)?;
    }
}

/// One connection: `requests` requests, at most [`DEPTH`] on a queue at a time.
fn run(socket: &str, features: Feature, queues: usize, requests: u32, model: &mut Model) -> Outcome {
    let mut transport = connect(socket, features)?;
    let mut arena = memory(&mut transport, queues)?;
    let mut vqs = VirtioBlkQueue::setup_queues(&mut *transport, queues, 128).context(|| "setup_queues".into())?;
    let mut slots: Vec<Option<(Request, u32)>> = vec![None; queues * DEPTH];
    let (mut sent, mut done) = (0, 0);
    while done < requests {
        for slot in 0..slots.len() {
            if slots[slot].is_some() || sent == requests {
                continue;
            }
            let Some(request) = model.draw() else { continue };
            model.writes += 1;
            let number = model.writes;
            let buffer = &mut arena.payload_mut()[slot * MOST * BLOCK..][..request.count * BLOCK];
            submit(&mut vqs[slot / DEPTH], request, number, buffer, slot).context(|| format!("{request:?}"))?;
            slots[slot] = Some((request, number));
            sent += 1;
        }
        for (i, vq) in vqs.iter_mut().enumerate() {
            if vq.avail_notif_needed() {
                transport.get_submission_notifier(i).notify().context(|| "kick".into())?;
            }
        }
        let before = done;
        for vq in &mut vqs {
            for completion in vq.completions() {
                let slot = completion.context;
                let (request, number) = slots[slot].take().ok_or("a request completes twice")?;
                ensure(completion.ret == 0, || format!("{request:?} ends with {}", completion.ret))?;
                let buffer = &arena.payload()[slot * MOST * BLOCK..][..request.count * BLOCK];
                model.finish(request, number, buffer)?;
                done += 1;
            }
        }
        if done == before {
            wait(&mut vqs, &transport).map_err(|e| format!("{e}; {done} of {sent} requests are done"))?;
        }
    }
    Ok(())
}

fn submit(
    vq: &mut VirtioBlkQueue<'_, usize>,
    request: Request,
    number: u32,
    buffer: &mut [u8],
    slot: usize,
) -> std::io::Result<()> {
    let (at, len) = ((request.block * BLOCK) as u64, (request.count * BLOCK) as u64);
    match request.verb {
        Verb::Read => {
            buffer.fill(0xa5);
            vq.read(at, buffer, slot)
        }
        Verb::Write => {
            for (i, block) in buffer.chunks_exact_mut(BLOCK).enumerate() {
                fill(block, request.block + i, number);
            }
            vq.write(at, buffer, slot)
        }
        Verb::Discard => vq.discard(at, len, slot),
        Verb::Zero => vq.write_zeroes(at, len, true, slot),
        Verb::Flush => vq.flush(slot),
    }
}

/// Sleeps until a completion is signalled: a signal that does not come within seconds is lost.
fn wait(vqs: &mut [VirtioBlkQueue<'_, usize>], transport: &Transport) -> Outcome {
    for vq in vqs.iter_mut() {
        vq.set_used_notif_enabled(true);
    }
    // What completed before notifications were enabled is not signalled.
    if vqs.iter_mut().any(|vq| vq.completions().has_next()) {
        return Ok(());
    }
    let fds: Vec<std::sync::Arc<EventFd>> = (0..vqs.len()).map(|i| transport.get_completion_fd(i)).collect();
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: 5, tv_nsec: 0 };
    let ready = poll(&mut polled, Some(&limit)).context(|| "poll".into())?;
    ensure(ready > 0, || "no completion was signalled for 5 s".into())?;
    let signalled: Vec<bool> = polled.iter().map(|p| p.revents().contains(PollFlags::IN)).collect();
    for (fd, _) in fds.iter().zip(signalled).filter(|(_, s)| *s) {
        fd.read().context(|| "eventfd".into())?;
    }
    Ok(())
}
