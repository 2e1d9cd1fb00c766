//! Workers die after every step of a conversation, and the next ones again: the client has each answer once, and the device, the
//! descriptors and the controller's registers are as if nobody had died.

use super::conversation::{Conversation, ConversationError, Delivery, FileName, Heard, Resumed, State};
use crate::memory::MapError;
use crate::vfio_user::{Action, Client, Device, DmaRegion, Inbox, Message, Port, ProtocolError, Shape, TABLE};
use alloc::collections::{BTreeMap, VecDeque};
use std::vec;
use std::vec::Vec;
use weir_spec::nvme::tcp::TableDigest;
use weir_spec::vfio_user::{Command, DmaMap, DmaUnmap, Header, IrqSet, RegionAccess, irq, region};
use weir_units::Nanos;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const SHAPE: Shape = Shape { vectors: 4, mapped_doorbells: true, buffer: 0, serial: 7 };

/// A descriptor is a number; a worker knows it by its name as well.
type Fd = u32;
type Named = (FileName, Fd);

/// What outlives workers beside the keeper: the controller's registers, in an arena, with the message that wrote them last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Arena {
    registers: BTreeMap<u32, u64>,
    writes: u32,
    applied: u64,
}

#[derive(Debug)]
struct Worker {
    device: Device,
    regions: BTreeMap<u64, Named>,
    vectors: BTreeMap<u16, Named>,
}

struct Board<'a>(&'a mut BTreeMap<u64, Named>);

impl Port<Named> for Board<'_> {
    fn register(&mut self, offset: u32, _: u8) -> u64 {
        offset.into()
    }
    fn read_buffer(&mut self, _: u64, _: &mut [u8]) {}
    fn write_buffer(&mut self, _: u64, _: &[u8]) {}
    fn map(&mut self, region: &DmaRegion, fd: Option<Named>) -> Result<(), MapError> {
        fd.into_iter().for_each(|fd| assert!(self.0.insert(region.address, fd).is_none(), "mapped twice"));
        Ok(())
    }
    fn unmap(&mut self, region: &DmaRegion) {
        assert!(self.0.remove(&region.address).is_some());
    }
}

impl Worker {
    fn begin(resumed: Resumed<Fd>) -> Self {
        let Resumed { state, fds, .. } = resumed;
        assert_eq!(state.files.len(), fds.len());
        if state.bytes.is_empty() {
            return Self { device: Device::new(SHAPE), regions: BTreeMap::new(), vectors: BTreeMap::new() };
        }
        let named: Vec<Named> = state.files.into_iter().zip(fds).collect();
        let (device, _, files) = Device::restore::<TableDigest, _>(Nanos(0), &state.bytes, SHAPE, named).unwrap();
        let mut files = files.into_iter();
        let regions: Vec<u64> = device.mapped().map(|r| r.address).collect();
        let vectors: Vec<u16> = device.msix().assigned().collect();
        Self {
            regions: regions.into_iter().zip(&mut files).collect(),
            vectors: vectors.into_iter().zip(&mut files).collect(),
            device,
        }
    }

    fn state(&self) -> State {
        let client = Client::<Named> {
            inbox: Inbox::default(),
            parked: None,
            request: false,
            unsent: vec![],
            bells: vec![],
            late: vec![],
        };
        let bytes = self.device.save::<TableDigest, _>(Nanos(0), &client);
        State { bytes, files: self.regions.values().chain(self.vectors.values()).map(|(name, _)| *name).collect() }
    }

    /// The effects of a message, but for its answer.
    fn apply(&mut self, delivery: Delivery<Fd>, arena: &mut Arena) -> Vec<u8> {
        let Delivery { number, header, payload, fds } = delivery;
        // An answer in any case.
        let header = Header { flags: (header.flags.get() & !Header::NO_REPLY).into(), ..header };
        let mut out = Vec::new();
        self.device.message(Message { header, payload, fds }, &mut Board(&mut self.regions), &mut out);
        let mut reply = Vec::new();
        for action in out {
            match action {
                Action::Reply { bytes, .. } => reply = bytes,
                Action::Vector { vector, fd } => {
                    self.vectors.remove(&vector);
                    self.vectors.extend(fd.map(|fd| (vector, fd)));
                }
                Action::Register { offset, value, .. } if number > arena.applied => {
                    arena.registers.insert(offset, value);
                    (arena.writes, arena.applied) = (arena.writes + 1, number);
                }
                _ => {}
            }
        }
        reply
    }
}

fn message(command: Command, payload: Vec<u8>, fds: Vec<Fd>, silent: bool) -> Message<Fd> {
    let mut header = Header::command(command.0, command, payload.len());
    if silent {
        header.flags = (header.flags.get() | Header::NO_REPLY).into();
    }
    Message { header, payload, fds }
}

/// A start, memory that comes and goes, vectors, registers, a reset; some without a reply.
fn script() -> Vec<Message<Fd>> {
    let map = |address: u64, fds: Vec<Fd>| {
        let map = DmaMap {
            argsz: U32::new(32),
            flags: U32::new(3),
            offset: U64::new(0),
            address: U64::new(address),
            size: U64::new(0x1000),
        };
        message(Command::DMA_MAP, map.as_bytes().to_vec(), fds, false)
    };
    let unmap = |address: u64| {
        let (flags, size) = (U32::new(0), U64::new(0x1000));
        let unmap = DmaUnmap { argsz: U32::new(24), flags, address: U64::new(address), size };
        message(Command::DMA_UNMAP, unmap.as_bytes().to_vec(), vec![], false)
    };
    let write = |index: u32, offset: u64, data: &[u8], silent: bool| {
        let access =
            RegionAccess { offset: U64::new(offset), region: U32::new(index), count: U32::new(data.len() as u32) };
        message(Command::REGION_WRITE, [access.as_bytes(), data].concat(), vec![], silent)
    };
    let irqs = |flags: u32, start: u32, fds: Vec<Fd>| {
        let set = [20, flags, irq::MSIX, start, fds.len().max(1) as u32].map(U32::new);
        message(Command::DEVICE_SET_IRQS, set.as_bytes().to_vec(), fds, false)
    };
    let eventfds = IrqSet::DATA_EVENTFD | IrqSet::ACTION_TRIGGER;
    vec![
        message(Command::VERSION, vec![0, 0, 1, 0], vec![], false),
        write(region::CONFIG, 4, &[6, 4], false),
        map(0x1000, vec![10]),
        irqs(eventfds, 0, vec![20, 21, 22]),
        write(region::BAR0, 0x24, &0x000f_000fu32.to_le_bytes(), true),
        write(region::BAR0, TABLE + 12, &0u32.to_le_bytes(), true),
        // It overlaps, and is refused; its descriptor is nobody's.
        map(0x1000, vec![11]),
        map(0x2000, vec![12]),
        write(region::BAR0, 0x14, &0x0046_0001u32.to_le_bytes(), false),
        irqs(eventfds, 1, vec![23]),
        unmap(0x1000),
        map(0x1000, vec![13]),
        message(Command::DEVICE_RESET, vec![], vec![], false),
        irqs(IrqSet::DATA_NONE | IrqSet::ACTION_MASK, 2, vec![]),
        write(region::BAR0, 0x1000, &5u32.to_le_bytes(), true),
    ]
}

/// What can be found out at the end.
#[derive(Debug, PartialEq)]
struct End {
    replies: Vec<Vec<u8>>,
    state: State,
    fds: Vec<Fd>,
    arena: Arena,
}

/// The whole conversation; workers die when so many steps have been taken since the last one died. A step is a message that arrives at the
/// keeper, one whose effects the worker has had, one whose answer has arrived at the keeper. Nothing where the last one does not die.
fn run(kills: &[usize], eager: bool) -> Option<End> {
    let (mut keeper, mut arena) = (Conversation::<Fd>::new(), Arena::default());
    let (mut script, mut replies) = (VecDeque::from(script()), Vec::new());
    let mut worker = Worker::begin(keeper.again().0);
    // Delivered, not read; applied, with its answer on the way.
    let (mut inbox, mut answers) = (VecDeque::<Delivery<Fd>>::new(), VecDeque::<(u64, Vec<u8>, State)>::new());
    let (mut kills, mut steps, mut waits) = (kills.iter().copied(), 0, false);
    let mut kill = kills.next();
    loop {
        if kill == Some(steps) {
            // What is on its way dies with the worker.
            answers.clear();
            let (resumed, again) = keeper.again();
            assert_eq!(resumed.number + again.len() as u64, 15 - script.len() as u64);
            worker = Worker::begin(resumed);
            inbox = again.into();
            (kill, steps) = (kills.next(), 0);
            continue;
        }
        steps += 1;
        // A client that waits for its replies, unless it wants none; and one as fast as can be.
        let may_say = !script.is_empty() && !waits && !keeper.is_full();
        if may_say && (eager || inbox.is_empty() && answers.is_empty()) {
            let message = script.pop_front().unwrap();
            waits = !message.header.no_reply();
            match keeper.client(message).unwrap() {
                Heard::Deliver(delivery) => inbox.push_back(delivery),
                other => panic!("{other:?}"),
            }
        } else if let Some(delivery) = inbox.pop_front() {
            let number = delivery.number;
            let reply = worker.apply(delivery, &mut arena);
            answers.push_back((number, reply, worker.state()));
        } else if let Some((number, reply, state)) = answers.pop_front() {
            if let Some(reply) = keeper.answer(number, reply, Some(state)).unwrap() {
                waits = false;
                replies.push(reply);
            }
        } else {
            break;
        }
    }
    let (resumed, again) = keeper.again();
    assert!(again.is_empty() && resumed.number == 15);
    kill.is_none().then_some(End { replies, state: resumed.state, fds: resumed.fds, arena })
}

#[test]
fn nothing_is_lost_and_nothing_done_twice_wherever_workers_die() {
    let whole = run(&[], false).unwrap();
    assert_eq!((whole.replies.len(), whole.fds.clone(), whole.arena.writes), (12, vec![13, 12, 20, 23, 22], 3));
    let (mut once, mut twice) = (0, 0);
    for eager in [false, true] {
        assert_eq!(run(&[], eager).unwrap(), whole);
        for first in 0.. {
            let Some(end) = run(&[first], eager) else { break };
            assert_eq!(end, whole, "killed after {first}");
            once += 1;
            for second in 0.. {
                let Some(end) = run(&[first, second], eager) else { break };
                assert_eq!(end, whole, "killed after {first}, and {second} after that");
                twice += 1;
            }
        }
    }
    assert!(once >= 90 && twice > 2000, "{once} {twice}");
}

#[test]
fn answers_to_a_worker_that_has_gone_are_nobodys() {
    let mut keeper = Conversation::<Fd>::new();
    let ask = |id: u16| Header::command(id, Command::DMA_READ, 0).as_bytes().to_vec();
    let id_of = |bytes: &[u8]| Header::read_from_prefix(bytes).unwrap().0.id.get();
    let sent: Vec<u16> = [7, 8].map(|id| id_of(&keeper.ask(ask(id)).unwrap())).into();
    assert_ne!(sent[0], sent[1]);
    let reply = |id: u16| {
        let header = Header::reply(&Header::command(id, Command::DMA_READ, 0), 1);
        Message::<Fd> { header, payload: vec![id as u8], fds: vec![] }
    };
    match keeper.client(reply(sent[1])).unwrap() {
        Heard::Answered { header, payload } => assert_eq!((header.id.get(), payload), (8, vec![sent[1] as u8])),
        other => panic!("{other:?}"),
    }
    keeper.again();
    // The next one gives the same identifier again, and has another one on the socket.
    let next = id_of(&keeper.ask(ask(7)).unwrap());
    assert!(!sent.contains(&next));
    assert!(matches!(keeper.client(reply(sent[0])), Ok(Heard::Nothing)));
    assert!(matches!(keeper.client(reply(next)), Ok(Heard::Answered { header, .. }) if header.id.get() == 7));
    let twice = keeper.client(reply(next)).err();
    assert_eq!(twice, Some(ConversationError::Client(ProtocolError::UnexpectedReply(next))));
}

#[test]
fn a_worker_that_makes_no_sense_changes_nothing() {
    let mut keeper = Conversation::<Fd>::new();
    keeper.client(message(Command::DMA_MAP, vec![], vec![5], false)).unwrap();
    keeper.client(message(Command::DMA_MAP, vec![], vec![6], false)).unwrap();
    let of = |message: u64| State { bytes: vec![1], files: vec![FileName { message, place: 0 }] };
    assert_eq!(keeper.answer(2, vec![], None), Err(ConversationError::Unexpected(2)));
    // Not of a message that is still to be answered, nor of one that never was.
    for other in [2, 3] {
        let name = FileName { message: other, place: 0 };
        assert_eq!(keeper.answer(1, vec![], Some(of(other))), Err(ConversationError::NoFile(name)));
    }
    assert_eq!(keeper.again().1.len(), 2);
    assert_eq!(keeper.answer(1, vec![9], Some(of(1))), Ok(Some(vec![9])));
    // Given up once, it is gone.
    assert_eq!(keeper.answer(2, vec![], Some(of(2))), Ok(Some(vec![])));
    keeper.client(message(Command::DMA_MAP, vec![], vec![], false)).unwrap();
    assert!(matches!(keeper.answer(3, vec![], Some(of(1))), Err(ConversationError::NoFile(_))));
    assert_eq!(keeper.again().0.fds, [6]);
    for bytes in [vec![], vec![0; 15], vec![0; 16], Header::command(1, Command::DMA_READ, 5).as_bytes().to_vec()] {
        assert_eq!(keeper.ask(bytes), Err(ConversationError::Garbled));
    }
}
