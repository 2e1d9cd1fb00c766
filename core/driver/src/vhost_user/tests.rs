//! The front end against the device machine of `weir-session`, over model memory that both see.

use super::*;
use crate::{Done, Io, IoKind};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_session::memory::Memory;
use weir_session::memory::model::ModelMemory;
use weir_session::vhost_user::{Action, Disk, DriveCommand, Inbox, Op, VhostUserDevice};
use weir_spec::nvme::Status;
use weir_spec::vhost_user::{Header, Request};
use weir_spec::virtio_blk::RequestStatus;
use zerocopy::{FromBytes, IntoBytes};

const BASE: u64 = 1 << 32;
const BLOCK: u32 = 512;
const SECTORS: u64 = 2048;

/// Both ends of one device.
struct Both {
    shared: Rc<ModelMemory>,
    device: VhostUserDevice<ModelMemory>,
    memory: ModelMemory,
    inbox: Inbox<Rc<ModelMemory>>,
    actions: Vec<Action<Rc<ModelMemory>>>,
    disk: Vec<u8>,
    taken: Vec<DriveCommand>,
    /// The device does not look at the ring until it is kicked.
    asleep: bool,
}

impl Both {
    fn new(disk: Disk) -> Self {
        Self {
            shared: Rc::default(),
            disk: vec![0; disk.sectors as usize * 512],
            device: VhostUserDevice::new(disk),
            memory: ModelMemory::new(),
            inbox: Inbox::default(),
            actions: Vec::new(),
            taken: Vec::new(),
            asleep: false,
        }
    }

    /// Delivers a message byte by byte and returns the answer.
    fn deliver(&mut self, message: &Outgoing) -> Option<(Header, Vec<u8>)> {
        let mut fds = match message.attach {
            Attach::None => vec![],
            _ => vec![self.shared.clone()],
        };
        for byte in &message.bytes {
            self.inbox.space()[0] = *byte;
            if let Some(m) = self.inbox.advance(1, fds.drain(..)).unwrap() {
                assert_eq!(m.request, message.request);
                self.device.message(m, &mut self.memory, &mut self.actions);
            }
        }
        let at = self.actions.iter().position(|a| matches!(a, Action::Reply(_)))?;
        let Action::Reply(bytes) = self.actions.remove(at) else { unreachable!() };
        let (header, payload) = Header::read_from_prefix(&bytes).unwrap();
        Some((header, payload.to_vec()))
    }

    fn connect(
        disk: Disk,
        options: FrontEndOptions,
        depth: u32,
        max_io: u32,
    ) -> (Self, Negotiated, FrontQueue<ModelMemory>) {
        let mut both = Self::new(disk);
        let mut hello = Hello::new(options);
        while let Some(message) = hello.next_message() {
            let answer = both.deliver(&message);
            assert_eq!(answer.is_some(), message.answered, "{:?}", message.request);
            if let Some((header, payload)) = answer {
                hello.reply(&header, &payload).unwrap();
            }
        }
        let negotiated = *hello.negotiated().unwrap();
        let layout = QueueLayout::new(depth, max_io, &negotiated);
        let len = layout.bytes().next_multiple_of(4096);
        both.shared = Rc::new(ModelMemory::flat(BASE, len as usize));
        let queue = FrontQueue::new(&*both.shared, layout, BASE).unwrap();
        for message in setup(&negotiated, &layout, 1, (BASE, len, len), None) {
            let (header, payload) = both.deliver(&message).expect("every message is acknowledged");
            acknowledged(&header, &payload, message.request).unwrap();
        }
        assert!(both.device.is_served(0));
        (both, negotiated, queue)
    }

    fn take(&mut self) {
        let (device, taken) = (&mut self.device, &mut self.taken);
        while device.take(&self.memory, 0, 4, &mut |t| taken.push(t)).unwrap() {}
        device.check();
    }

    fn execute(&mut self, which: usize) {
        let t = self.taken.swap_remove(which % self.taken.len());
        let range = t.offset as usize..t.offset as usize + t.len as usize;
        let q = self.device.queue(0).unwrap();
        match t.op {
            Op::Read => q.write_data(&self.memory, t.tag, 0, &self.disk[range]).unwrap(),
            Op::Write => q.read_data(&self.memory, t.tag, 0, &mut self.disk[range]).unwrap(),
            Op::Discard | Op::WriteZeroes { .. } => self.disk[range].fill(0),
            Op::Flush => {}
        }
        self.device.complete(&self.memory, t.tag, RequestStatus::OK);
    }

    /// One request, alone.
    fn request(&mut self, queue: &mut FrontQueue<ModelMemory>, kind: IoKind, offset: u64, len: u32) -> Status {
        queue.submit(&*self.shared, &Io { kind, offset, len, slot: 0 }).unwrap();
        queue.publish(&*self.shared).unwrap();
        self.take();
        while !self.taken.is_empty() {
            self.execute(0);
        }
        self.device.publish(&self.memory, 0);
        let mut done = Vec::new();
        queue.reap(&*self.shared, &mut done).unwrap();
        assert_eq!(done.len(), 1);
        done[0].status
    }
}

fn options(packed: bool, event_idx: bool, indirect: bool) -> FrontEndOptions {
    FrontEndOptions { queues: 1, packed, event_idx, indirect, inflight: false }
}

/// A step of the play.
#[derive(Clone, Copy, Debug)]
enum Step {
    Submit(IoKind, u8, u8),
    Publish,
    Take,
    Execute(u8),
    DevicePublish,
    Sleep,
    Reap,
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        4 => Just(IoKind::Read),
        4 => Just(IoKind::Write),
        1 => Just(IoKind::WriteZeroes),
        1 => Just(IoKind::Trim),
        1 => Just(IoKind::Flush),
    ];
    prop_oneof![
        6 => (kind, any::<u8>(), 1u8..=8).prop_map(|(k, at, len)| Step::Submit(k, at, len)),
        4 => Just(Step::Publish),
        4 => Just(Step::Take),
        6 => any::<u8>().prop_map(Step::Execute),
        3 => Just(Step::DevicePublish),
        2 => Just(Step::Sleep),
        3 => Just(Step::Reap),
    ]
}

/// What the front end expects of a slot in flight.
struct Player {
    expected: Vec<u8>,
    flying: Vec<Option<(Io, Vec<u8>)>>,
    completed: usize,
}

impl Player {
    /// Every slot has blocks of its own, so that what a request finds does not depend on the order of others.
    fn submit(&mut self, both: &Both, queue: &mut FrontQueue<ModelMemory>, kind: IoKind, at: u8, len: u8) {
        let Some(slot) = self.flying.iter().position(Option::is_none) else { return };
        let part = SECTORS / self.flying.len() as u64;
        let sector = slot as u64 * part + u64::from(at) % (part - 8);
        let (offset, len) = match kind {
            IoKind::Flush => (0, 0),
            _ => (sector * 512, u32::from(len) * BLOCK),
        };
        let range = offset as usize..offset as usize + len as usize;
        let fill = (self.completed + slot) as u8 | 1;
        match kind {
            IoKind::Write => {
                self.expected[range.clone()].fill(fill);
                both.shared.write(queue.buffer(slot as u32), &vec![fill; len as usize]).unwrap();
            }
            IoKind::WriteZeroes | IoKind::Trim => self.expected[range.clone()].fill(0),
            IoKind::Read | IoKind::Flush => {}
        }
        let io = Io { kind, offset, len, slot: slot as u32 };
        queue.submit(&*both.shared, &io).unwrap();
        self.flying[slot] = Some((io, self.expected[range].to_vec()));
    }

    fn reap(&mut self, both: &Both, queue: &mut FrontQueue<ModelMemory>) {
        let mut done: Vec<Done> = Vec::new();
        queue.reap(&*both.shared, &mut done).unwrap();
        for d in done {
            let (io, want) = self.flying[d.slot as usize].take().expect("it was in flight");
            assert!(d.status.is_success(), "{io:?}: {}", d.status);
            if io.kind == IoKind::Read {
                let mut got = vec![0; io.len as usize];
                both.shared.read(queue.buffer(d.slot), &mut got).unwrap();
                assert_eq!(got, want, "{io:?}");
            }
            self.completed += 1;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 3 / 4))]

    /// Whatever the interleaving: every request completes once, with the right bytes, although the device sleeps until
    /// it is kicked whenever it may.
    #[test]
    fn both_ends_agree(
        packed: bool, event_idx: bool, indirect: bool, depth in 1u32..12,
        steps in proptest::collection::vec(step(), 1..250),
    ) {
        let disk = Disk { max_transfer: 1024, max_commands: 7, ..Disk::new(SECTORS * 512, "") };
        let (mut both, _, mut queue) = Both::connect(disk, options(packed, event_idx, indirect), depth, 4096);
        let flying = (0..depth).map(|_| None).collect();
        let mut player = Player { expected: vec![0; both.disk.len()], flying, completed: 0 };
        let mut submitted = 0;
        let publish = |both: &mut Both, queue: &mut FrontQueue<ModelMemory>| {
            if queue.publish(&*both.shared).unwrap() && both.asleep {
                both.asleep = false;
                both.device.quiet(&both.memory, 0);
            }
        };
        for s in steps {
            match s {
                Step::Submit(kind, at, len) => {
                    let before = player.flying.iter().flatten().count();
                    player.submit(&both, &mut queue, kind, at, len);
                    submitted += player.flying.iter().flatten().count() - before;
                }
                Step::Publish => publish(&mut both, &mut queue),
                Step::Take if !both.asleep => both.take(),
                Step::Execute(which) if !both.taken.is_empty() => both.execute(which.into()),
                Step::DevicePublish => {
                    both.device.publish(&both.memory, 0);
                }
                Step::Sleep if !both.asleep => both.asleep = !both.device.listen(&both.memory, 0),
                Step::Reap => player.reap(&both, &mut queue),
                _ => {}
            }
        }
        // The rest: the device polls only while it is awake.
        for _ in 0..100 {
            publish(&mut both, &mut queue);
            if !both.asleep {
                both.take();
            }
            while !both.taken.is_empty() {
                both.execute(0);
            }
            both.device.publish(&both.memory, 0);
            player.reap(&both, &mut queue);
        }
        prop_assert_eq!(player.completed, submitted);
        prop_assert_eq!(&both.disk, &player.expected);
    }
}

#[test]
fn it_never_asks_for_an_interrupt() {
    for (packed, event_idx) in [(false, false), (false, true), (true, false), (true, true)] {
        let disk = Disk::new(SECTORS * 512, "");
        let (mut both, _, mut queue) = Both::connect(disk, options(packed, event_idx, false), 4, 4096);
        let (mut signals, mut done) = (0, Vec::new());
        // Far enough for all 16-bit counters to go around.
        for _ in 0..70_000u32 {
            queue.submit(&*both.shared, &Io { kind: IoKind::Flush, offset: 0, len: 0, slot: 0 }).unwrap();
            queue.publish(&*both.shared).unwrap();
            both.take();
            both.execute(0);
            both.device.publish(&both.memory, 0);
            signals += u32::from(both.device.wants_signal(&both.memory, 0));
            done.clear();
            queue.reap(&*both.shared, &mut done).unwrap();
            assert_eq!(done.len(), 1);
        }
        assert!(signals <= 1, "packed {packed}, event_idx {event_idx}: {signals} signals");
    }
}

#[test]
fn it_kicks_only_a_device_that_listens() {
    for (packed, event_idx) in [(false, false), (false, true), (true, false), (true, true)] {
        let disk = Disk::new(SECTORS * 512, "");
        let (mut both, _, mut queue) = Both::connect(disk, options(packed, event_idx, false), 4, 4096);
        let mut kick = |both: &Both, slot| {
            queue.submit(&*both.shared, &Io { kind: IoKind::Flush, offset: 0, len: 0, slot }).unwrap();
            queue.publish(&*both.shared).unwrap()
        };
        both.device.quiet(&both.memory, 0);
        assert!(!kick(&both, 0));
        both.take();
        assert!(!both.device.listen(&both.memory, 0));
        assert!(kick(&both, 1));
        assert!(both.device.listen(&both.memory, 0), "not taken yet");
    }
}

#[test]
fn statuses_are_translated() {
    let disk = Disk { read_only: true, ..Disk::new(SECTORS * 512, "") };
    let (mut both, negotiated, mut queue) = Both::connect(disk, options(false, true, false), 2, 4096);
    assert_eq!((negotiated.capacity(), negotiated.block_size(), negotiated.queues), (SECTORS * 512, 512, 16));
    assert_eq!(both.request(&mut queue, IoKind::Read, 0, 512), Status::SUCCESS);
    assert_eq!(both.request(&mut queue, IoKind::Write, 0, 512), Status::INTERNAL_ERROR);
    assert_eq!(both.request(&mut queue, IoKind::Flush, 0, 0), Status::SUCCESS);
    assert_eq!(both.request(&mut queue, IoKind::Read, SECTORS * 512, 512), Status::INTERNAL_ERROR);
}

#[test]
fn a_device_that_completes_what_is_not_in_flight_is_noticed() {
    for packed in [false, true] {
        let (both, _, mut queue) = Both::connect(Disk::new(SECTORS * 512, ""), options(packed, false, false), 4, 4096);
        let io = Io { kind: IoKind::Flush, offset: 0, len: 0, slot: 1 };
        queue.submit(&*both.shared, &io).unwrap();
        assert_eq!(queue.submit(&*both.shared, &io), Err(FrontError::NotInFlight), "twice");
        queue.publish(&*both.shared).unwrap();
        let layout = QueueLayout::new(4, 4096, &both_negotiated(packed));
        let at = layout.addresses(BASE);
        if packed {
            // A used descriptor with an identifier beyond all slots.
            let flags = 1u64 << 55 | 1 << 63;
            both.shared.write(at.descriptors + 8, &(99u64 << 32 | flags).to_le_bytes()).unwrap();
        } else {
            both.shared.write(at.device + 4, &0u32.to_le_bytes()).unwrap();
            both.shared.write(at.device + 2, &1u16.to_le_bytes()).unwrap();
        }
        assert_eq!(queue.reap(&*both.shared, &mut Vec::new()), Err(FrontError::NotInFlight));
    }
}

fn both_negotiated(packed: bool) -> Negotiated {
    let features = if packed { weir_spec::virtqueue::feature::RING_PACKED } else { 0 };
    Negotiated { features, ..Negotiated::default() }
}

#[test]
fn answers_that_make_no_sense_are_refused() {
    let mut hello = Hello::new(FrontEndOptions::default());
    assert_eq!(hello.next_message().unwrap().request, Request::SET_OWNER);
    assert_eq!(hello.next_message().unwrap().request, Request::GET_FEATURES);
    let answer = |hello: &mut Hello, header: Header, payload: &[u8]| hello.reply(&header, payload).unwrap_err();
    let good = Header::reply(Request::GET_FEATURES, 8);
    assert_eq!(answer(&mut hello, good, &[0; 7]), ReplyError::Malformed(Request::GET_FEATURES));
    assert_eq!(answer(&mut hello, good, &[0; 8]), ReplyError::Missing("protocol features"));
    let request = Header::request(Request::GET_FEATURES, 8);
    assert_eq!(answer(&mut hello, request, &[0; 8]), ReplyError::Unexpected(Request::GET_FEATURES));
    let other = Header::reply(Request::GET_CONFIG, 8);
    assert_eq!(answer(&mut hello, other, &[0; 8]), ReplyError::Unexpected(Request::GET_FEATURES));
    let ack = Header::reply(Request::SET_VRING_NUM, 8);
    assert_eq!(
        acknowledged(&ack, 1u64.as_bytes(), Request::SET_VRING_NUM),
        Err(ReplyError::Refused(Request::SET_VRING_NUM))
    );
    assert_eq!(acknowledged(&ack, 0u64.as_bytes(), Request::SET_VRING_NUM), Ok(()));
}

proptest! {
    /// Nothing of a queue's memory overlaps, and every part has its alignment.
    #[test]
    fn a_layout_has_room_for_everything(depth in 1u32..=QueueLayout::MAX_DEPTH, blocks in 1u32..64, packed: bool, indirect: bool) {
        let mut features = if packed { weir_spec::virtqueue::feature::RING_PACKED } else { 0 };
        features |= if indirect { weir_spec::virtqueue::feature::INDIRECT_DESC } else { 0 };
        let layout = QueueLayout::new(depth, blocks * 512, &Negotiated { features, ..Negotiated::default() });
        let at = layout.addresses(BASE);
        prop_assert!(at.descriptors % 16 == 0 && at.driver % 4 == 0 && at.device % 4 == 0);
        prop_assert!(layout.size.is_power_of_two() && layout.size <= weir_session::vhost_user::MAX_QUEUE_SIZE);
        let per = if indirect { 1 } else { 3 };
        prop_assert!(u32::from(layout.size) >= per * depth);
        prop_assert!(at.driver >= BASE + 16 * u64::from(layout.size));
        prop_assert!(layout.buffer(0) % 4096 == 0);
        prop_assert!(layout.buffer(depth - 1) + u64::from(blocks) * 512 <= layout.bytes());
    }
}
