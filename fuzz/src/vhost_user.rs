//! vhost-user-blk: the device machine against a front end that sends anything, and against rings full of anything.
//!
//! The ring targets lay the input over rings, tables and buffers, so that most of what the device reads is the fuzzer's.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use weir_journal::{JournalMemory, JournalShape, QueueKind};
use weir_session::memory::Memory;
use weir_session::memory::model::ModelMemory;
use weir_session::vhost_user::{Action, Disk, DriveCommand, Inbox, Message, Op, VhostUserDevice};
use weir_spec::vhost_user::{
    Header, Inflight, MemoryRegion, MemoryTableHeader, Request, SingleRegion, VringAddress, VringFd, VringState,
};
use weir_spec::virtio_blk::{RequestHeader, RequestStatus, RequestType};
use weir_spec::virtqueue::{feature, flag};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

const RAM: u64 = 0x1000;
const RAM_LEN: u64 = 0x8000;
const SIZE: u16 = 16;
/// Descriptor table, driver area, device area.
const PLACES: [u64; 3] = [RAM, RAM + 0x400, RAM + 0x800];
const DATA: u64 = RAM + 0x1000;
const SHAPE: JournalShape = JournalShape { kind: QueueKind::Virtio, queues: 1, size: SIZE };

type Fd = Rc<ModelMemory>;

fn disk() -> Disk {
    Disk { max_transfer: 1024, max_commands: 5, queues: 4, ..Disk::new(64 << 10, "fuzz") }
}

fn ram() -> Fd {
    Rc::new(ModelMemory::flat(RAM, RAM_LEN as usize))
}

/// Does what a door does, as far as the machine can see.
struct Door {
    device: VhostUserDevice<ModelMemory>,
    memory: ModelMemory,
    actions: Vec<Action<Fd>>,
    taken: Vec<DriveCommand>,
}

impl Door {
    fn new() -> Self {
        Door {
            device: VhostUserDevice::new(disk()),
            memory: ModelMemory::new(),
            actions: Vec::new(),
            taken: Vec::new(),
        }
    }

    fn send(&mut self, request: Request, payload: &[u8], fds: Vec<Fd>) {
        if self.device.is_draining() {
            self.finish(RequestStatus::OK);
        }
        let message = Message { request, needs_reply: true, again: false, payload: payload.to_vec(), fds };
        self.device.message(message, &mut self.memory, &mut self.actions);
        self.after();
    }

    /// Every action is one that the state allows.
    fn after(&mut self) {
        self.device.check();
        for action in self.actions.drain(..) {
            match action {
                Action::Reply(bytes) | Action::ReplyWith(bytes, _) => assert!(bytes.len() >= size_of::<Header>()),
                Action::Recovered(q, found) => {
                    assert!(q < self.device.queues() && found.heads.len() <= usize::from(SIZE));
                }
                Action::Started(q) => assert!(self.device.queue(q).is_some()),
                Action::Stopped(q) => {
                    assert!(self.device.queue(q).is_none());
                    self.taken.retain(|t| t.tag.queue() != q);
                }
                Action::Kick { queue, .. } | Action::Call { queue, .. } | Action::Err { queue, .. } => {
                    assert!(queue < self.device.queues());
                }
                Action::Poll(q) | Action::Signal(q) | Action::Broken(q, _) => assert!(q < self.device.queues()),
                Action::Channel(_) | Action::Tell(_) | Action::Close(_) | Action::Unusable(..) => {}
            }
        }
    }

    fn take(&mut self, queue: u16) {
        let taken = &mut self.taken;
        let before = taken.len();
        let _ = self.device.take(&self.memory, queue, 8, &mut |t| taken.push(t));
        for t in &self.taken[before..] {
            assert!(t.offset + u64::from(t.len) <= self.device.disk().sectors * 512);
            assert!(matches!(t.op, Op::Discard | Op::WriteZeroes { .. }) || t.len <= 1024);
        }
        self.device.check();
    }

    fn execute(&mut self, t: &DriveCommand, status: RequestStatus) {
        let mut bytes = vec![0; t.len.min(1024) as usize];
        if let Some(q) = self.device.queue(t.tag.queue()) {
            let _ = match t.op {
                Op::Read => q.write_data(&self.memory, t.tag, 0, &bytes),
                Op::Write => q.read_data(&self.memory, t.tag, 0, &mut bytes),
                _ => Ok(()),
            };
        }
        self.device.complete(&self.memory, t.tag, status);
        self.device.check();
    }

    /// Completes everything, which must end a drain.
    fn finish(&mut self, status: RequestStatus) {
        for _ in 0..10_000 {
            for queue in 0..self.device.queues() {
                self.take(queue);
            }
            let Some(t) = self.taken.pop() else { break };
            self.execute(&t, status);
        }
        for queue in 0..self.device.queues() {
            self.device.publish(&self.memory, queue);
        }
        self.device.settle(&self.memory, &mut self.actions);
        assert!(!self.device.is_draining(), "all is complete and the drain goes on");
        self.after();
    }
}

/// Any messages, byte by byte, each with as many descriptors as its first byte says.
pub fn vhost_user_messages(data: &[u8]) {
    let mut door = Door::new();
    let ram = ram();
    let mut inbox = Inbox::<Fd>::default();
    let mut rest = data;
    let mut messages = 0;
    while let Some((&control, bytes)) = rest.split_first() {
        rest = bytes;
        if door.device.is_draining() {
            door.finish(RequestStatus::IOERR);
        }
        // What was sent so far works on the rings, too.
        if control & 0x80 != 0 {
            door.take(u16::from(control) & 3);
            if let Some(t) = door.taken.pop() {
                door.execute(&t, RequestStatus(control & 1));
            }
            door.device.publish(&door.memory, u16::from(control) & 3);
            door.device.listen(&door.memory, u16::from(control) & 3);
            continue;
        }
        let mut fds: Vec<Fd> = (0..control & 15).map(|_| ram.clone()).collect();
        // Until the message is whole, or the input is at its end.
        loop {
            let space = inbox.space();
            let n = space.len().min(rest.len());
            if n == 0 {
                return;
            }
            space[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            match inbox.advance(n, fds.drain(..)) {
                Ok(None) => {}
                Ok(Some(message)) => {
                    door.device.message(message, &mut door.memory, &mut door.actions);
                    break;
                }
                Err(_) => return,
            }
        }
        if door.actions.iter().any(|a| matches!(a, Action::Close(_))) {
            return;
        }
        door.after();
        messages += 1;
        assert!(messages <= data.len());
    }
    door.finish(RequestStatus::OK);
}

/// A conversation that starts a queue.
pub fn message_seeds() -> Vec<Vec<u8>> {
    let mut wire = Vec::new();
    let mut say = |request: Request, fds: u8, payload: &[u8]| {
        let mut header = Header::request(request, payload.len() as u32);
        header.flags = U32::new(header.flags.get() | Header::NEED_REPLY);
        wire.push(fds);
        wire.extend_from_slice(header.as_bytes());
        wire.extend_from_slice(payload);
    };
    say(Request::SET_OWNER, 0, &[]);
    say(Request::GET_FEATURES, 0, &[]);
    say(Request::SET_FEATURES, 0, U64::new(disk().features() & !feature::RING_PACKED).as_bytes());
    say(Request::SET_PROTOCOL_FEATURES, 0, U64::new(disk().protocol()).as_bytes());
    say(Request::GET_INFLIGHT_FD, 0, inflight().as_bytes());
    say(Request::GET_CONFIG, 0, &[0; 12]);
    say(Request::ADD_MEM_REG, 1, single().as_bytes());
    let mut table = MemoryTableHeader { regions: U32::new(1), ..Default::default() }.as_bytes().to_vec();
    table.extend_from_slice(single().region.as_bytes());
    say(Request::SET_MEM_TABLE, 1, &table);
    say(Request::SET_VRING_NUM, 0, state(u32::from(SIZE)).as_bytes());
    say(Request::SET_VRING_BASE, 0, state(0).as_bytes());
    say(Request::SET_VRING_ADDR, 0, address().as_bytes());
    say(Request::SET_VRING_CALL, 1, VringFd(U64::ZERO).as_bytes());
    say(Request::SET_VRING_KICK, 1, VringFd(U64::ZERO).as_bytes());
    say(Request::SET_VRING_ENABLE, 0, state(1).as_bytes());
    say(Request::GET_VRING_BASE, 0, state(0).as_bytes());
    say(Request::REM_MEM_REG, 1, single().as_bytes());
    say(Request::RESET_DEVICE, 0, &[]);
    vec![wire]
}

fn state(num: u32) -> VringState {
    VringState { index: U32::ZERO, num: U32::new(num) }
}

/// A region for one queue.
fn inflight() -> Inflight {
    let mmap_size = U64::new(SHAPE.bytes());
    let (num_queues, queue_size) = (U16::new(SHAPE.queues), U16::new(SHAPE.size));
    Inflight { mmap_size, num_queues, queue_size, ..Inflight::default() }
}

fn single() -> SingleRegion {
    let (guest_address, size) = (U64::new(RAM), U64::new(RAM_LEN));
    let region = MemoryRegion { guest_address, size, user_address: guest_address, mmap_offset: U64::ZERO };
    SingleRegion { padding: U64::ZERO, region }
}

fn address() -> VringAddress {
    let [descriptor, available, used] = PLACES.map(U64::new);
    VringAddress { descriptor, available, used, ..VringAddress::default() }
}

/// A device with one started queue over memory that begins with `data`.
fn started(data: &[u8], packed: bool) -> (Door, Fd) {
    let (door, ram) = starting(data, packed, None);
    assert!(door.device.queue(0).is_some(), "the rings are in memory, so the queue starts");
    (door, ram)
}

/// The same, with an in-flight region, which may keep the queue from starting.
fn starting(data: &[u8], packed: bool, region: Option<Fd>) -> (Door, Fd) {
    let mut door = Door::new();
    let ram = ram();
    ram.write(RAM, &data[..data.len().min(RAM_LEN as usize)]).expect("it fits");
    let features = disk().features() & !if packed { 0 } else { feature::RING_PACKED };
    door.send(Request::SET_FEATURES, U64::new(features).as_bytes(), vec![]);
    door.send(Request::SET_PROTOCOL_FEATURES, U64::new(disk().protocol()).as_bytes(), vec![]);
    door.send(Request::ADD_MEM_REG, single().as_bytes(), vec![ram.clone()]);
    door.send(Request::SET_VRING_NUM, state(u32::from(SIZE)).as_bytes(), vec![]);
    door.send(Request::SET_VRING_BASE, state(if packed { 0x8000_8000 } else { 0 }).as_bytes(), vec![]);
    door.send(Request::SET_VRING_ADDR, address().as_bytes(), vec![]);
    if let Some(region) = region {
        door.send(Request::SET_INFLIGHT_FD, inflight().as_bytes(), vec![region]);
    }
    door.send(Request::SET_VRING_KICK, VringFd(U64::ZERO).as_bytes(), vec![ram.clone()]);
    door.send(Request::SET_VRING_ENABLE, state(1).as_bytes(), vec![]);
    (door, ram)
}

/// The first bytes are a script of what the door does, the rest is the guest's memory.
fn ring(data: &[u8], packed: bool) {
    let (script, memory) = data.split_at(data.len().min(24));
    let (door, ram) = started(memory, packed);
    serve(door, &ram, script);
}

/// The first bytes are the script, the next lie over the in-flight region's queue, the rest is the guest's memory. The guest
/// may have written whatever it likes into its region: it gets no head that is none, and none twice.
fn left(data: &[u8], packed: bool) {
    let (script, rest) = data.split_at(data.len().min(24));
    let (part, memory) = rest.split_at(rest.len().min((SHAPE.bytes() - 64) as usize));
    let region = region(part, packed);
    let (mut door, ram) = starting(memory, packed, Some(region));
    if door.device.queue(0).is_none() {
        return;
    }
    door.take(0);
    let mut seen: Vec<_> = door.taken.iter().map(|t| t.tag).collect();
    seen.sort_unstable_by_key(|t| t.0);
    assert!(seen.windows(2).all(|w| w[0] != w[1]), "{seen:?}");
    serve(door, &ram, script);
}

/// A region with a sound header whose queue has begun.
fn region(part: &[u8], packed: bool) -> Fd {
    let model = ModelMemory::new();
    let (words, carrier) = model.make_words(SHAPE.bytes());
    weir_journal::JournalRegion::open(words.clone(), SHAPE).expect("it is new");
    for (i, word) in part.chunks_exact(8).enumerate() {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        words.store(8 + i, u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
    let kind = if packed { 2 } else { 1 };
    words.store(8 + 2, kind | u64::from(SIZE) << 16, Ordering::Relaxed);
    carrier
}

fn serve(mut door: Door, ram: &Fd, script: &[u8]) {
    for (i, &byte) in script.iter().enumerate() {
        match byte & 7 {
            0..=2 => door.take(0),
            3 | 4 => {
                if !door.taken.is_empty() {
                    let t = door.taken.swap_remove(usize::from(byte >> 3) % door.taken.len());
                    door.execute(&t, RequestStatus(byte >> 6));
                }
            }
            5 => {
                door.device.publish(&door.memory, 0);
                door.device.wants_signal(&door.memory, 0);
            }
            6 => drop(door.device.listen(&door.memory, 0)),
            // The guest changes its mind: an index, a head, a descriptor's flags.
            _ => {
                let place = RAM + u64::from(byte >> 3) * 37 % 0x1400;
                ram.write(place, &[i as u8, byte]).expect("it is in memory");
            }
        }
    }
    door.send(Request::GET_VRING_BASE, state(0).as_bytes(), vec![]);
    door.finish(RequestStatus::OK);
    assert!(door.device.queue(0).is_none(), "whatever happened, it can be stopped");
}

/// Any split ring.
pub fn virtqueue_split(data: &[u8]) {
    ring(data, false);
}

/// A split ring with any in-flight region.
pub fn inflight_split(data: &[u8]) {
    left(data, false);
}

/// A packed ring with any in-flight region.
pub fn inflight_packed(data: &[u8]) {
    left(data, true);
}

/// Any packed ring.
pub fn virtqueue_packed(data: &[u8]) {
    ring(data, true);
}

const SCRIPT: [u8; 24] = [0, 3, 5, 6, 0, 3, 3, 5, 0, 0, 11, 4, 5, 6, 0, 3, 3, 3, 3, 5, 6, 0, 3, 5];

fn descriptor(memory: &mut [u8], at: usize, fields: (u64, u32, u16, u16)) {
    let (address, len, third, fourth) = fields;
    let d = &mut memory[16 * at..16 * at + 16];
    d[..8].copy_from_slice(&address.to_le_bytes());
    d[8..12].copy_from_slice(&len.to_le_bytes());
    d[12..14].copy_from_slice(&third.to_le_bytes());
    d[14..].copy_from_slice(&fourth.to_le_bytes());
}

/// Headers of all types at [`DATA`], 64 bytes apart.
fn headers(memory: &mut [u8]) {
    use RequestType as T;
    for (i, kind) in [T::IN, T::OUT, T::FLUSH, T::GET_ID, T::DISCARD, T::WRITE_ZEROES].into_iter().enumerate() {
        let at = (DATA - RAM) as usize + 64 * i;
        let sector = if matches!(kind, T::IN | T::OUT) { i as u64 } else { 0 };
        memory[at..at + 16].copy_from_slice(RequestHeader::new(kind, sector).as_bytes());
        // A range of one sector, where the type wants one.
        memory[at + 16 + 8] = 1;
    }
}

/// A well-formed split ring with a request of every type.
pub fn split_seeds() -> Vec<Vec<u8>> {
    let mut memory = vec![0; 0x1400];
    headers(&mut memory);
    for i in 0..5u16 {
        let (header, at) = (DATA + 64 * u64::from(i), usize::from(3 * i));
        let (address, len, write) = match i {
            0 => (DATA + 0x200, 2048, flag::WRITE),
            1 => (DATA + 0x200, 1536, 0),
            3 => (DATA + 0x200, 20, flag::WRITE),
            _ => (header + 16, 16, 0),
        };
        let next = at as u16 + 1;
        descriptor(&mut memory, at, (header, 16, flag::NEXT, next));
        descriptor(&mut memory, at + 1, (address, len, write | flag::NEXT, next + 1));
        descriptor(&mut memory, at + 2, (header + 40, 1, flag::WRITE, 0));
        memory[0x404 + 2 * usize::from(i)] = at as u8;
    }
    memory[0x402] = 5;
    vec![[&SCRIPT[..], &memory].concat()]
}

/// The same packed.
pub fn packed_seeds() -> Vec<Vec<u8>> {
    let mut memory = vec![0; 0x1400];
    headers(&mut memory);
    for i in 0..5u16 {
        let (header, at) = (DATA + 64 * u64::from(i), usize::from(3 * i));
        let (address, len, write) = match i {
            0 => (DATA + 0x200, 2048, flag::WRITE),
            1 => (DATA + 0x200, 1536, 0),
            3 => (DATA + 0x200, 20, flag::WRITE),
            _ => (header + 16, 16, 0),
        };
        descriptor(&mut memory, at, (header, 16, i, flag::NEXT | flag::AVAIL));
        descriptor(&mut memory, at + 1, (address, len, i, write | flag::NEXT | flag::AVAIL));
        descriptor(&mut memory, at + 2, (header + 40, 1, i, flag::WRITE | flag::AVAIL));
    }
    vec![[&SCRIPT[..], &memory].concat()]
}

/// Well-formed rings, and of each request what a crash left: in flight, the newest not marked yet, the first one done.
fn inflight_seeds(ring: &[u8], packed: bool) -> Vec<Vec<u8>> {
    let mut part = vec![0u8; (SHAPE.bytes() - 64) as usize];
    let mut put = |at: usize, word: u64| part[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
    // Three taken; the one that is done is not published.
    let (head, last, used, began) = if packed { (2u64, 0x8009u64, 0x8003u64, 0x8000u64) } else { (6, 3, 1, 0) };
    put(0, 1 | head << 16 | last << 32);
    put(1, used | began << 16);
    for (i, state) in [2u64, 1, 0].into_iter().enumerate() {
        let sequence = (i as u64) << 2;
        if !packed {
            put(8 + 3 * i, sequence | state);
            continue;
        }
        let words: Vec<u64> = ring[24 + 48 * i..24 + 48 * (i + 1)]
            .chunks_exact(8)
            .map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")))
            .collect();
        let high = |w: u64, next: u64| w & 0xffff_ffff | (w >> 48) << 32 | next << 48;
        let at = 3 * i as u64;
        put(8 + 4 * i, sequence | state);
        // Three slots; of the second request the descriptors are kept, from place 3 on.
        let kept = if i == 1 { 1 << 63 } else { 0 };
        put(8 + 4 * i + 1, words[1] & 0xffff_ffff | at << 32 | 2 << 46 | kept);
        put(8 + 4 * i + 2, words[0]);
        for (n, d) in words.chunks_exact(2).enumerate().filter(|_| kept != 0) {
            let place = 3 + n;
            let more = 8 + 4 * usize::from(SIZE) + 2 * place;
            put(more, d[0]);
            put(more + 1, high(d[1], if n < 2 { place as u64 + 1 } else { 0xffff }));
        }
    }
    vec![[&SCRIPT[..], &part, &ring[24..]].concat()]
}

/// See [`inflight_split`].
pub fn inflight_split_seeds() -> Vec<Vec<u8>> {
    inflight_seeds(&split_seeds()[0], false)
}

/// See [`inflight_packed`].
pub fn inflight_packed_seeds() -> Vec<Vec<u8>> {
    inflight_seeds(&packed_seeds()[0], true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the seeds left is submitted again.
    #[test]
    fn inflight_seeds_are_recovered() {
        for (seed, packed) in [(&inflight_split_seeds()[0], false), (&inflight_packed_seeds()[0], true)] {
            let (part, memory) = seed[24..].split_at((SHAPE.bytes() - 64) as usize);
            let (mut door, _) = starting(memory, packed, Some(region(part, packed)));
            assert_eq!(door.device.queue(0).map(|q| q.in_flight()), Some(3), "packed: {packed}");
            door.take(0);
            assert!(door.taken.len() >= 5, "{:?}", door.taken);
            left(seed, packed);
        }
    }

    /// The seeds reach what they are for: requests are taken and completed.
    #[test]
    fn seeds_are_served() {
        for (seed, packed) in [(&split_seeds()[0], false), (&packed_seeds()[0], true)] {
            let (mut door, _) = started(&seed[24..], packed);
            door.take(0);
            // Read and write in two parts each, the flush and the two ranges; GET_ID is answered at once.
            assert!(door.taken.len() >= 5, "{:?}", door.taken);
            door.finish(RequestStatus::OK);
            assert!(matches!(door.device.queue(0).map(|q| q.in_flight()), Some(0)));
            ring(seed, packed);
        }
        vhost_user_messages(&message_seeds()[0]);
    }
}
