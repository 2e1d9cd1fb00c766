use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;
use weir_spec::pci::{header, msix, power};
use weir_spec::vfio_user::{
    Command, DeviceInfo, DmaMap, DmaUnmap, Header, IrqInfo, IrqSet, RegionAccess, RegionInfo, SmallWrite, Version,
    WriteMulti, errno, irq, region, sparse_areas,
};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// A descriptor is a number.
pub(super) type Fd = u32;

/// What is behind the device: registers that read as their offset, a buffer, and the mapped regions.
#[derive(Default)]
pub(super) struct Board {
    buffer: Vec<u8>,
    mapped: BTreeMap<u64, (DmaRegion, Option<Fd>)>,
    refuses: Option<MapError>,
}

impl Port<Fd> for Board {
    fn register(&mut self, offset: u32, size: u8) -> u64 {
        assert!(offset % u32::from(size) == 0 && matches!(size, 4 | 8) && u64::from(offset) < TABLE);
        let word = |at: u32| u64::from(at) | 0xa000_0000;
        if size == 8 { word(offset) | word(offset + 4) << 32 } else { word(offset) }
    }
    fn read_buffer(&mut self, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.buffer[offset as usize..][..into.len()]);
    }
    fn write_buffer(&mut self, offset: u64, from: &[u8]) {
        self.buffer[offset as usize..][..from.len()].copy_from_slice(from);
    }
    fn map(&mut self, region: &DmaRegion, fd: Option<Fd>) -> Result<(), MapError> {
        if let Some(e) = self.refuses {
            return Err(e);
        }
        assert!(self.mapped.insert(region.address, (*region, fd)).is_none(), "mapped twice");
        Ok(())
    }
    fn unmap(&mut self, region: &DmaRegion) {
        let (was, _) = self.mapped.remove(&region.address).expect("it was mapped");
        assert_eq!(was, *region);
    }
}

const SHAPE: DeviceShape = DeviceShape { vectors: 9, mapped_doorbells: true, buffer: 0, serial: 0x0102_0304_0506_0708 };

pub(super) struct Rig {
    pub(super) device: VfioUserDevice,
    pub(super) board: Board,
    pub(super) out: Vec<Action<Fd>>,
}

impl Rig {
    /// A device whose client has said its version.
    pub(super) fn new(shape: DeviceShape) -> Self {
        let board = Board { buffer: vec![0; shape.buffer as usize], ..Board::default() };
        let mut rig = Rig { device: VfioUserDevice::new(shape), board, out: Vec::new() };
        let reply = rig.say(Command::VERSION, &[0, 0, 1, 0], vec![]).expect("a version is answered");
        let (version, text) = Version::read_from_prefix(&reply).unwrap();
        assert_eq!((version.major.get(), version.minor.get()), (0, 1));
        assert!(text.ends_with(b"}\0"));
        rig
    }

    /// Sends a command; the payload of its reply, or its error number. What else there is to do stays in `out`.
    pub(super) fn say(&mut self, command: Command, payload: &[u8], fds: Vec<Fd>) -> Result<Vec<u8>, u32> {
        self.out.clear();
        let header = Header::command(7, command, payload.len());
        self.device.message(Message { header, payload: payload.to_vec(), fds }, &mut self.board, &mut self.out);
        let Some(Action::Reply { bytes, .. }) = self.out.pop() else { panic!("{:?}", self.out) };
        let (reply, payload) = Header::read_from_prefix(&bytes).unwrap();
        assert_eq!((reply.id.get(), reply.command.get(), reply.kind()), (7, command.0, Header::REPLY));
        assert_eq!(reply.size.get() as usize, bytes.len());
        if reply.failed() {
            assert!(payload.is_empty());
            return Err(reply.error.get());
        }
        Ok(payload.to_vec())
    }

    pub(super) fn read(&mut self, index: u32, offset: u64, count: u32) -> Result<Vec<u8>, u32> {
        let access = RegionAccess { offset: U64::new(offset), region: U32::new(index), count: U32::new(count) };
        self.say(Command::REGION_READ, access.as_bytes(), vec![]).map(|reply| reply[16..].to_vec())
    }

    pub(super) fn write(&mut self, index: u32, offset: u64, data: &[u8]) -> Result<(), u32> {
        let access =
            RegionAccess { offset: U64::new(offset), region: U32::new(index), count: U32::new(data.len() as u32) };
        self.say(Command::REGION_WRITE, &[access.as_bytes(), data].concat(), vec![]).map(|_| ())
    }

    fn config16(&mut self, at: usize) -> u16 {
        let bytes = self.read(region::CONFIG, at as u64, 2).unwrap();
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    pub(super) fn map(&mut self, address: u64, size: u64, fds: Vec<Fd>) -> Result<Vec<u8>, u32> {
        self.map_as(DmaMap::READ | DmaMap::WRITE, address, size, fds)
    }

    fn map_as(&mut self, flags: u32, address: u64, size: u64, fds: Vec<Fd>) -> Result<Vec<u8>, u32> {
        let map = DmaMap {
            argsz: U32::new(32),
            flags: U32::new(flags),
            offset: U64::new(0),
            address: U64::new(address),
            size: U64::new(size),
        };
        self.say(Command::DMA_MAP, map.as_bytes(), fds)
    }

    fn unmap(&mut self, flags: u32, address: u64, size: u64) -> Result<Vec<u8>, u32> {
        let unmap =
            DmaUnmap { argsz: U32::new(24), flags: U32::new(flags), address: U64::new(address), size: U64::new(size) };
        self.say(Command::DMA_UNMAP, unmap.as_bytes(), vec![])
    }

    pub(super) fn irqs(
        &mut self,
        flags: u32,
        index: u32,
        start: u32,
        count: u32,
        data: &[u8],
        fds: Vec<Fd>,
    ) -> Result<(), u32> {
        let set = IrqSet {
            argsz: U32::new(20 + data.len() as u32),
            flags: U32::new(flags),
            index: U32::new(index),
            start: U32::new(start),
            count: U32::new(count),
        };
        self.say(Command::DEVICE_SET_IRQS, &[set.as_bytes(), data].concat(), fds).map(|_| ())
    }

    pub(super) fn signals(&self) -> Vec<u16> {
        self.out.iter().filter_map(|a| if let Action::Signal(v) = a { Some(*v) } else { None }).collect()
    }
}

/// Else its requests could outnumber message identifiers.
#[test]
fn a_client_that_takes_next_to_nothing_in_a_message_is_refused() {
    for (most, refused) in [(0u64, true), (511, true), (512, false), (1 << 40, false)] {
        let text = std::format!("{{\"capabilities\":{{\"max_data_xfer_size\":{most}}}}}\0");
        let payload = [&[0, 0, 1, 0], text.as_bytes()].concat();
        let (mut device, mut out) = (VfioUserDevice::new(SHAPE), Vec::new());
        let header = Header::command(7, Command::VERSION, payload.len());
        device.message::<Fd, _>(Message { header, payload, fds: vec![] }, &mut Board::default(), &mut out);
        match &out[..] {
            [Action::Close(e)] => assert!(refused && *e == ProtocolError::Transfer(most)),
            [Action::Reply { .. }] => assert!(!refused && device.requests().most() >= 512),
            _ => panic!("{out:?}"),
        }
    }
}

#[test]
fn nothing_comes_before_the_version() {
    let fresh = || (VfioUserDevice::new(SHAPE), Board::default(), Vec::<Action<Fd>>::new());
    for (command, payload) in [
        (Command::DEVICE_GET_INFO, &[16u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..]),
        (Command::VERSION, &[1, 0, 0, 0]),
        (Command::VERSION, &[0, 0, 1]),
        (Command::VERSION, b"\0\0\x01\0{\"capabilities\":3}\0"),
    ] {
        let (mut device, mut board, mut out) = fresh();
        let header = Header::command(1, command, payload.len());
        device.message(Message { header, payload: payload.to_vec(), fds: vec![] }, &mut board, &mut out);
        assert!(matches!(out[..], [Action::Close(_)]), "{command:?}: {out:?}");
    }
    let mut rig = Rig::new(SHAPE);
    assert_eq!(rig.say(Command::VERSION, &[0, 0, 1, 0], vec![]), Err(errno::EINVAL), "once is enough");
    assert_eq!(rig.say(Command(999), &[], vec![]), Err(errno::ENOTSUP));
    for left_out in [Command::DEVICE_FEATURE, Command::MIG_DATA_READ, Command::DEVICE_GET_REGION_IO_FDS] {
        assert_eq!(rig.say(left_out, &[0; 64], vec![]), Err(errno::ENOTSUP));
    }
}

#[test]
fn who_wants_no_reply_gets_none_even_of_a_failure() {
    let mut rig = Rig::new(SHAPE);
    for command in [Command::REGION_WRITE, Command::DMA_MAP, Command(77)] {
        rig.out.clear();
        let mut header = Header::command(1, command, 3);
        header.flags = U32::new(Header::NO_REPLY);
        rig.device.message(Message { header, payload: vec![1, 2, 3], fds: vec![] }, &mut rig.board, &mut rig.out);
        assert!(rig.out.is_empty(), "{:?}", rig.out);
    }
}

#[test]
fn info_of_device_regions_and_interrupts() {
    let mut rig = Rig::new(SHAPE);
    let mut ask = DeviceInfo { argsz: U32::new(16), ..DeviceInfo::default() };
    let reply = rig.say(Command::DEVICE_GET_INFO, ask.as_bytes(), vec![]).unwrap();
    let info = DeviceInfo::read_from_bytes(&reply).unwrap();
    assert_eq!((info.flags.get(), info.regions.get(), info.irqs.get()), (3, 9, 5));
    ask.argsz = U32::new(15);
    assert_eq!(rig.say(Command::DEVICE_GET_INFO, ask.as_bytes(), vec![]), Err(errno::EINVAL));

    let region = |rig: &mut Rig, index: u32, argsz: u32| {
        let ask = RegionInfo { argsz: U32::new(argsz), index: U32::new(index), ..RegionInfo::default() };
        rig.say(Command::DEVICE_GET_REGION_INFO, ask.as_bytes(), vec![])
    };
    // Too little room for the capability: how much it takes, and nothing of it.
    let short = region(&mut rig, 0, 32).unwrap();
    let info = RegionInfo::read_from_bytes(&short).unwrap();
    assert_eq!((info.argsz.get(), info.flags.get(), info.size.get()), (64, 3, BAR0));
    let whole = region(&mut rig, 0, 64).unwrap();
    let areas = sparse_areas(&whole).unwrap();
    assert_eq!((areas[0].offset.get(), areas[0].size.get()), (0x1000, 0x3000));
    assert_eq!(region(&mut rig, 9, 32), Err(errno::EINVAL));
    assert_eq!(region(&mut rig, 0, 31), Err(errno::EINVAL));
    for index in [1, 2, 3, 4, 5, region::ROM, region::VGA] {
        let info = RegionInfo::read_from_bytes(&region(&mut rig, index, 32).unwrap()).unwrap();
        assert_eq!((info.size.get(), info.flags.get()), (0, 0), "region {index}");
    }
    let config = RegionInfo::read_from_bytes(&region(&mut rig, region::CONFIG, 32).unwrap()).unwrap();
    assert_eq!(config.size.get(), 4096);

    let irqs = |rig: &mut Rig, index: u32| {
        let ask = IrqInfo { argsz: U32::new(16), index: U32::new(index), ..IrqInfo::default() };
        rig.say(Command::DEVICE_GET_IRQ_INFO, ask.as_bytes(), vec![])
            .map(|r| IrqInfo::read_from_bytes(&r).unwrap().count.get())
    };
    let counts: Vec<_> = (0..5).map(|i| irqs(&mut rig, i).unwrap()).collect();
    assert_eq!(counts, [0, 0, 9, 0, 1]);
    assert_eq!(irqs(&mut rig, 5), Err(errno::EINVAL));
}

#[test]
fn a_client_that_gets_no_doorbells_is_told_of_no_mapping() {
    let mut rig = Rig::new(DeviceShape { mapped_doorbells: false, ..SHAPE });
    let ask = RegionInfo { argsz: U32::new(4096), ..RegionInfo::default() };
    let reply = rig.say(Command::DEVICE_GET_REGION_INFO, ask.as_bytes(), vec![]).unwrap();
    let info = RegionInfo::read_from_bytes(&reply).unwrap();
    assert_eq!((info.argsz.get(), info.flags.get()), (32, RegionInfo::READ | RegionInfo::WRITE));
}

#[test]
fn configuration_space_is_an_nvme_drive() {
    let mut rig = Rig::new(SHAPE);
    let bytes = rig.read(region::CONFIG, 0, 4096).unwrap();
    assert_eq!(bytes[9..12], [0x02, 0x08, 0x01]);
    assert_eq!(bytes[header::INTERRUPT_PIN], 0);
    // The list of capabilities ends, and is as documented.
    let (mut at, mut ids) = (bytes[header::CAPABILITIES] as usize, Vec::new());
    while at != 0 {
        ids.push(bytes[at]);
        at = bytes[at + 1] as usize;
    }
    assert_eq!(ids, [0x01, 0x10, 0x11]);
    assert_eq!(bytes[256..268], [3, 0, 1, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
    // Sizing: all ones are answered with the size.
    rig.write(region::CONFIG, 0x10, &[0xff; 8]).unwrap();
    assert_eq!(rig.read(region::CONFIG, 0x10, 8).unwrap(), [4, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    // What is read-only stays.
    rig.write(region::CONFIG, 0, &[0xee; 4]).unwrap();
    assert_eq!(rig.config16(header::VENDOR), VENDOR_ID);
    rig.write(region::CONFIG, 4, &0xffffu16.to_le_bytes()).unwrap();
    assert_eq!(rig.config16(header::COMMAND), 0x0546);
    assert_eq!(rig.read(region::CONFIG, 4095, 2), Err(errno::EINVAL));
    assert_eq!(rig.read(region::CONFIG, u64::MAX, 2), Err(errno::EINVAL));
}

#[test]
fn asleep_it_answers_with_ones_and_takes_nothing() {
    let mut rig = Rig::new(SHAPE);
    assert_eq!(rig.read(0, 0, 4).unwrap(), 0xa000_0000u32.to_le_bytes());
    rig.write(region::CONFIG, 0x40 + power::PMCSR as u64, &[3, 0]).unwrap();
    assert_eq!(rig.read(0, 0, 8).unwrap(), [0xff; 8]);
    rig.write(0, 0x14, &[1, 0, 0, 0]).unwrap();
    assert!(rig.out.is_empty());
    rig.write(region::CONFIG, 0x40 + power::PMCSR as u64, &[0, 0]).unwrap();
    assert_eq!(rig.read(0, 4, 4).unwrap(), 0xa000_0004u32.to_le_bytes());
}

#[test]
fn registers_are_read_in_any_piece_and_written_in_words() {
    let mut rig = Rig::new(SHAPE);
    let all = rig.read(0, 0, 64).unwrap();
    for (offset, count) in [(0, 1), (1, 2), (3, 6), (7, 9), (0, 12), (5, 1)] {
        assert_eq!(rig.read(0, offset, count).unwrap(), all[offset as usize..][..count as usize], "{offset}, {count}");
    }
    assert_eq!(rig.read(0, BAR0 - 4, 5), Err(errno::EINVAL));
    let registers = |rig: &mut Rig, at: u64, data: &[u8]| {
        rig.write(0, at, data).unwrap();
        let wrote = |a: &Action<Fd>| match a {
            Action::Register { offset, value, size } => (*offset, *value, *size),
            other => panic!("{other:?}"),
        };
        rig.out.iter().map(wrote).collect::<Vec<_>>()
    };
    assert_eq!(registers(&mut rig, 0x28, &[1, 2, 3, 4, 5, 6, 7, 8]), [(0x28, 0x0807_0605_0403_0201, 8)]);
    assert_eq!(registers(&mut rig, 0x24, &[1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]), [(0x24, 1, 4), (0x28, 9, 8)]);
    assert_eq!(registers(&mut rig, 0x1008, &[3, 0, 0, 0, 4, 0, 0, 0]), [(0x1008, 3, 4), (0x100c, 4, 4)]);
    assert_eq!(registers(&mut rig, 0x15, &[1, 0, 0, 0]), [], "no aligned word");
    assert_eq!(registers(&mut rig, 0x14, &[1, 0]), [], "no whole word");
}

#[test]
fn many_writes_in_one_message() {
    let mut rig = Rig::new(SHAPE);
    let write = |offset: u64, count: u32| SmallWrite {
        offset: U64::new(offset),
        region: U32::new(0),
        count: U32::new(count),
        data: [5, 0, 0, 0, 0, 0, 0, 0],
    };
    let message = |writes: &[SmallWrite]| {
        [WriteMulti { count: U64::new(writes.len() as u64) }.as_bytes(), writes.as_bytes()].concat()
    };
    let all = message(&[write(0x1000, 4), write(0x1008, 4), write(BAR0, 4), write(0x1010, 4)]);
    let reply = rig.say(Command::REGION_WRITE_MULTI, &all, vec![]).unwrap();
    assert_eq!(reply, 2u64.to_le_bytes(), "those before the first that could not be done");
    assert_eq!(rig.out.len(), 2);
    assert_eq!(rig.say(Command::REGION_WRITE_MULTI, &message(&[write(0, 9)]), vec![]), Err(errno::EINVAL));
    assert_eq!(rig.say(Command::REGION_WRITE_MULTI, &[1, 0, 0, 0, 0, 0, 0, 0], vec![]), Err(errno::EINVAL));
}

#[test]
fn memory_is_mapped_once_and_unmapped_as_it_was_mapped() {
    let mut rig = Rig::new(SHAPE);
    rig.map(0x10000, 0x3000, vec![5]).unwrap();
    assert_eq!(rig.board.mapped[&0x10000].1, Some(5));
    // Neighbours, by 4 KiB; not 2 MiB.
    rig.map(0x13000, 0x1000, vec![6]).unwrap();
    rig.map(0xf000, 0x1000, vec![]).unwrap();
    for (address, size) in [(0x10000, 0x1000), (0x12000, 0x1000), (0xf000, 0x10000), (0, 0x10000), (0x11000, 0x8000)] {
        assert_eq!(rig.map(address, size, vec![7]), Err(errno::EEXIST), "{address:#x}");
    }
    for (flags, address, size) in [
        (3, 0x20000, 0),
        (3, 0x20000, 0x800),
        (3, 0x20800, 0x1000),
        (3, 1 << 63, 1 << 63),
        (0, 0x20000, 0x1000),
        (8, 0x20000, 0x1000),
    ] {
        assert_eq!(rig.map_as(flags, address, size, vec![]), Err(errno::EINVAL), "{flags} {address:#x} {size:#x}");
    }
    assert_eq!(rig.map(0x40000, 0x1000, vec![1, 2]), Err(errno::EINVAL), "one descriptor");
    rig.board.refuses = Some(MapError::System(12));
    assert_eq!(rig.map(0x40000, 0x1000, vec![1]), Err(errno::ENOMEM));
    rig.board.refuses = Some(MapError::TooShort { need: 2, have: 1 });
    assert_eq!(rig.map(0x40000, 0x1000, vec![1]), Err(errno::EINVAL));
    rig.board.refuses = None;
    rig.map_as(DmaMap::READ, 0x40000, 0x1000, vec![1]).unwrap();
    assert_eq!(rig.board.mapped[&0x40000].0.access, DmaAccess::Read);

    assert_eq!(rig.unmap(0, 0x10000, 0x1000), Err(errno::EINVAL), "a part");
    assert_eq!(rig.unmap(0, 0x11000, 0x1000), Err(errno::ENOENT));
    assert_eq!(rig.unmap(DmaUnmap::DIRTY_BITMAP, 0x10000, 0x3000), Err(errno::ENOTSUP));
    assert_eq!(rig.unmap(DmaUnmap::ALL, 0x10000, 0x3000), Err(errno::EINVAL));
    assert_eq!(rig.unmap(0, 0x10000, 0x3000).map(|r| r.len()), Ok(24));
    assert_eq!((rig.board.mapped.len(), rig.device.regions()), (3, 3));
    rig.unmap(DmaUnmap::ALL, 0, 0).unwrap();
    assert!(rig.board.mapped.is_empty() && rig.device.regions() == 0);
    for i in 0..u64::from(MAX_REGIONS) {
        rig.map(i << 12, 0x1000, vec![1]).unwrap();
    }
    assert_eq!(rig.map(1 << 40, 0x1000, vec![1]), Err(errno::ENOSPC));
    rig.device.close(&mut rig.board);
    assert!(rig.board.mapped.is_empty());
}

const EVENTFD: u32 = IrqSet::DATA_EVENTFD | IrqSet::ACTION_TRIGGER;
const UNMASK: u32 = IrqSet::DATA_NONE | IrqSet::ACTION_UNMASK;
const MASK: u32 = IrqSet::DATA_NONE | IrqSet::ACTION_MASK;

#[test]
fn vectors_fire_when_they_have_an_eventfd_and_nobody_masks_them() {
    let mut rig = Rig::new(SHAPE);
    assert!(!rig.device.fire(1) && rig.device.msix().is_pending(1), "no eventfd yet");
    rig.irqs(EVENTFD, irq::MSIX, 1, 2, &[], vec![11, 12]).unwrap();
    assert_eq!(rig.signals(), [1], "what was pending");
    assert!(rig.device.fire(1) && rig.device.fire(2) && !rig.device.fire(3));
    assert!(!rig.device.fire(9) && !rig.device.fire(u16::MAX), "no such vector");
    rig.irqs(MASK, irq::MSIX, 2, 1, &[], vec![]).unwrap();
    assert!(!rig.device.fire(2) && !rig.device.fire(2) && rig.device.fire(1));
    // The pending bit is where the standard has it.
    assert_eq!(rig.read(0, PENDING, 4).unwrap(), [0b1100, 0, 0, 0]);
    rig.irqs(UNMASK, irq::MSIX, 2, 1, &[], vec![]).unwrap();
    assert_eq!(rig.signals(), [2], "once");
    // By the client's hand.
    rig.irqs(IrqSet::DATA_BOOL | IrqSet::ACTION_TRIGGER, irq::MSIX, 0, 3, &[1, 0, 1], vec![]).unwrap();
    assert_eq!(rig.signals(), [2]);
    // Without descriptors they are taken away; with DATA_NONE and nothing named, all of them.
    rig.irqs(EVENTFD, irq::MSIX, 1, 1, &[], vec![]).unwrap();
    assert!(!rig.device.fire(1) && rig.device.fire(2));
    rig.irqs(IrqSet::DATA_NONE | IrqSet::ACTION_TRIGGER, irq::MSIX, 0, 0, &[], vec![]).unwrap();
    assert!(!rig.device.fire(2));
    rig.irqs(EVENTFD, irq::REQ, 0, 1, &[], vec![9]).unwrap();
    assert!(matches!(rig.out[..], [Action::Request { fd: Some(9) }]));
}

#[test]
fn the_table_masks_once_it_is_written_and_the_function_masks_all() {
    let mut rig = Rig::new(SHAPE);
    rig.irqs(EVENTFD, irq::MSIX, 0, 9, &[], (0..9).collect()).unwrap();
    let control = |vector: u64| TABLE + vector * msix::ENTRY as u64 + msix::VECTOR_CONTROL as u64;
    assert_eq!(rig.read(0, control(3), 4).unwrap(), [1, 0, 0, 0], "masked after a reset");
    assert!(rig.device.fire(3), "of which a monitor that emulates the table knows nothing");
    rig.write(0, control(3), &[1, 0, 0, 0]).unwrap();
    assert!(!rig.device.fire(3));
    rig.write(0, control(3), &[0, 0, 0, 0]).unwrap();
    assert_eq!(rig.signals(), [3]);
    rig.write(0, control(3) - 12, &[0, 0, 0xe0, 0xfe]).unwrap();
    assert_eq!(rig.read(0, control(3) - 12, 4).unwrap(), [0, 0, 0xe0, 0xfe]);
    let set = |rig: &mut Rig, control: u16| rig.write(region::CONFIG, 0x92, &control.to_le_bytes()).unwrap();
    set(&mut rig, 0xc000);
    assert!(!rig.device.fire(5) && !rig.device.fire(6));
    set(&mut rig, 0x8000);
    assert_eq!(rig.signals(), [5, 6]);
    assert_eq!(rig.config16(0x92), 0x8008, "enabled, nine vectors");
    // Pending bits are read-only.
    rig.write(0, PENDING, &[0xff; 4]).unwrap();
    assert_eq!(rig.read(0, PENDING, 4).unwrap(), [0; 4]);
}

#[test]
fn a_reset_undoes_everything_but_memory_and_eventfds() {
    for by_flr in [false, true] {
        let mut rig = Rig::new(SHAPE);
        rig.map(0x1000, 0x1000, vec![1]).unwrap();
        rig.irqs(EVENTFD, irq::MSIX, 0, 2, &[], vec![1, 2]).unwrap();
        rig.irqs(MASK, irq::MSIX, 1, 1, &[], vec![]).unwrap();
        rig.write(region::CONFIG, 4, &[6, 0]).unwrap();
        rig.write(region::CONFIG, 0x10, &[0, 0, 0, 0xfe]).unwrap();
        assert!(!rig.device.fire(1));
        if by_flr {
            // Device control, bit 15; it reads as 0.
            rig.write(region::CONFIG, 0x58, &0xa810u16.to_le_bytes()).unwrap();
            assert_eq!(rig.out.iter().filter(|a| matches!(a, Action::Reset)).count(), 1);
            assert_eq!(rig.config16(0x58) & 0x8000, 0);
        } else {
            rig.say(Command::DEVICE_RESET, &[], vec![]).unwrap();
            assert!(matches!(rig.out[..], [Action::Reset]));
        }
        assert_eq!((rig.config16(4), rig.config16(0x12)), (0, 0));
        assert!(!rig.device.msix().is_pending(1) && rig.device.fire(1), "the mask is gone, the eventfd is not");
        assert_eq!(rig.device.regions(), 1);
    }
}

#[test]
fn what_makes_no_sense_of_interrupts_is_refused() {
    let mut rig = Rig::new(SHAPE);
    type Set<'a> = (u32, u32, u32, u32, &'a [u8], usize);
    let refused: &[Set<'_>] = &[
        (IrqSet::DATA_NONE, irq::MSIX, 0, 1, &[], 0),
        (IrqSet::ACTION_MASK, irq::MSIX, 0, 1, &[], 0),
        (EVENTFD | IrqSet::ACTION_MASK, irq::MSIX, 0, 1, &[], 1),
        (EVENTFD, irq::MSIX, 0, 10, &[], 10),
        (EVENTFD, irq::MSIX, 9, 1, &[], 1),
        (EVENTFD, irq::MSIX, u32::MAX, 2, &[], 2),
        (EVENTFD, irq::MSIX, 0, 2, &[], 1),
        (EVENTFD, irq::INTX, 0, 1, &[], 1),
        (IrqSet::DATA_EVENTFD | IrqSet::ACTION_MASK, irq::MSIX, 0, 1, &[], 1),
        (IrqSet::DATA_BOOL | IrqSet::ACTION_MASK, irq::MSIX, 0, 2, &[1], 0),
        (UNMASK, irq::REQ, 0, 1, &[], 0),
        (UNMASK, 5, 0, 0, &[], 0),
        (1 << 8 | MASK, irq::MSIX, 0, 1, &[], 0),
    ];
    for (flags, index, start, count, data, fds) in refused {
        let fds = (0..*fds as u32).collect();
        assert_eq!(rig.irqs(*flags, *index, *start, *count, data, fds), Err(errno::EINVAL), "{flags:#x} {index}");
        assert!(rig.out.is_empty());
    }
}

#[test]
fn the_buffer_is_bar_2() {
    let mut rig = Rig::new(DeviceShape { buffer: 1 << 20, ..SHAPE });
    let ask = RegionInfo { argsz: U32::new(32), index: U32::new(region::BAR2), ..RegionInfo::default() };
    let reply = rig.say(Command::DEVICE_GET_REGION_INFO, ask.as_bytes(), vec![]).unwrap();
    let info = RegionInfo::read_from_bytes(&reply).unwrap();
    let mappable = RegionInfo::READ | RegionInfo::WRITE | RegionInfo::MMAP;
    assert_eq!((info.size.get(), info.flags.get(), info.offset.get()), (1 << 20, mappable, 0));
    rig.write(region::BAR2, 12345, b"hello").unwrap();
    assert_eq!(rig.read(region::BAR2, 12345, 5).unwrap(), b"hello");
    assert_eq!(rig.read(region::BAR2, (1 << 20) - 4, 5), Err(errno::EINVAL));
    assert_eq!(rig.write(region::BAR2, 1 << 20, b"x"), Err(errno::EINVAL));
    rig.write(region::CONFIG, 0x18, &[0xff; 8]).unwrap();
    assert_eq!(rig.read(region::CONFIG, 0x18, 8).unwrap(), [4, 0, 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff]);
}

/// Feeds a stream to an inbox in pieces of these sizes; the messages, or what ended it.
fn feed(stream: &[u8], pieces: &[usize]) -> Result<Vec<(Header, Vec<u8>)>, ProtocolError> {
    let (mut inbox, mut at, mut got) = (Inbox::<Fd>::default(), 0, Vec::new());
    let mut sizes = pieces.iter().copied().cycle();
    while at < stream.len() {
        let space = inbox.space();
        let n = sizes.next().unwrap_or(1).clamp(1, space.len()).min(stream.len() - at);
        space[..n].copy_from_slice(&stream[at..at + n]);
        at += n;
        if let Some(m) = inbox.advance(n, [])? {
            got.push((m.header, m.payload));
        }
    }
    Ok(got)
}

#[test]
fn impossible_messages_end_the_connection() {
    let header = |size: u32, flags: u32| Header {
        id: U16::new(1),
        command: U16::new(4),
        size: U32::new(size),
        flags: U32::new(flags),
        error: U32::new(0),
    };
    for (size, flags, want) in [
        (15, 0, ProtocolError::Size(15)),
        (0, 0, ProtocolError::Size(0)),
        (u32::MAX, 0, ProtocolError::Size(u32::MAX)),
        (16, 2, ProtocolError::Kind(2)),
    ] {
        assert_eq!(feed(header(size, flags).as_bytes(), &[16]), Err(want));
    }
    let mut inbox = Inbox::<Fd>::default();
    assert!(matches!(inbox.advance(1, 0..17), Err(ProtocolError::TooManyDescriptors)));
    let mut rig = Rig::new(SHAPE);
    rig.out.clear();
    let reply = Message { header: header(16, Header::REPLY), payload: vec![], fds: vec![] };
    rig.device.message(reply, &mut rig.board, &mut rig.out);
    assert!(matches!(rig.out[..], [Action::Close(ProtocolError::UnexpectedReply(1))]));
}

proptest! {
    #[test]
    fn a_stream_is_cut_into_the_same_messages_however_it_comes(
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..6),
        pieces in proptest::collection::vec(1usize..200, 1..8),
    ) {
        let mut stream = Vec::new();
        for (i, payload) in payloads.iter().enumerate() {
            stream.extend_from_slice(Header::command(i as u16, Command::REGION_WRITE, payload.len()).as_bytes());
            stream.extend_from_slice(payload);
        }
        let got = feed(&stream, &pieces).unwrap();
        prop_assert_eq!(got.len(), payloads.len());
        for (i, ((header, payload), sent)) in got.iter().zip(&payloads).enumerate() {
            prop_assert_eq!((usize::from(header.id.get()), payload), (i, sent));
        }
    }

    /// Whatever comes, there is one reply, an error has no payload, and the board and the device agree on what is mapped.
    #[test]
    fn any_message_is_answered_once(
        messages in proptest::collection::vec(
            (1u16..20, proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0x10), any::<u8>()], 0..80), 0usize..4), 1..40),
    ) {
        let mut rig = Rig::new(DeviceShape { buffer: 8192, ..SHAPE });
        for (command, payload, fds) in messages {
            let _ = rig.say(Command(command), &payload, (0..fds as u32).collect());
            prop_assert_eq!(rig.board.mapped.len(), rig.device.regions());
            for action in &rig.out {
                if let Action::Register { offset, size, .. } = action {
                    prop_assert!(u64::from(*offset) < TABLE && offset % u32::from(*size) == 0);
                }
            }
        }
    }
}

/// Such a message changes nothing that a checkpoint has: only doorbells of I/O queues do.
#[test]
fn what_only_rings_is_told_from_what_does_more() {
    let access = |region, offset, count| RegionAccess {
        offset: U64::new(offset),
        region: U32::new(region),
        count: U32::new(count),
    };
    let rings = |command, payload: &[u8]| {
        let header = Header::command(7, command, payload.len());
        VfioUserDevice::only_rings(&Message::<Fd> { header, payload: payload.to_vec(), fds: vec![] })
    };
    let write = |region, offset, count: u32| {
        rings(Command::REGION_WRITE, &[access(region, offset, count).as_bytes(), &vec![0; count as usize]].concat())
    };
    let (queue, last) = (DOORBELLS + 8, DOORBELLS_END - 4);
    assert!(write(region::BAR0, queue, 4) && write(region::BAR0, queue, 8) && write(region::BAR0, last, 4));
    // The admin queues', a register, behind the doorbells, the vectors' table, the configuration.
    for (region, offset, count) in [
        (region::BAR0, DOORBELLS, 4),
        (region::BAR0, DOORBELLS + 4, 8),
        (region::BAR0, 0x14, 4),
        (region::BAR0, last, 8),
        (region::BAR0, TABLE, 4),
        (region::BAR0, u64::MAX, 4),
        (region::CONFIG, queue, 4),
        (region::BAR2, queue, 4),
    ] {
        assert!(!write(region, offset, count), "{region} {offset:x} {count}");
    }
    assert!(!rings(Command::REGION_READ, access(region::BAR0, queue, 4).as_bytes()));
    let multi = |offsets: &[u64]| {
        let mut payload = (offsets.len() as u64).to_le_bytes().to_vec();
        for offset in offsets {
            let (offset, region, count) = (U64::new(*offset), U32::new(region::BAR0), U32::new(4));
            payload.extend_from_slice(SmallWrite { offset, region, count, data: [0; 8] }.as_bytes());
        }
        rings(Command::REGION_WRITE_MULTI, &payload)
    };
    assert!(multi(&[queue, queue + 4, last]) && !multi(&[queue, TABLE]) && !multi(&[DOORBELLS, queue]));
}
