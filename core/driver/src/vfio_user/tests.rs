//! The conversation against a server that answers as the test says.

use super::*;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use weir_spec::nvme::register::DOORBELLS;
use weir_spec::pci;
use weir_spec::vfio_user::{
    Capabilities, Command, DeviceInfo, DmaMap, Header, RegionAccess, RegionInfo, SparseArea, SparseMmap, Version,
    region,
};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const MEMORY: DmaMemory = DmaMemory { address: 1 << 32, len: 4 << 20 };
const BAR: u64 = 0x10000;

/// A server with an NVMe drive.
struct Server {
    version: (u16, u16),
    capabilities: Vec<u8>,
    device: DeviceInfo,
    flags: u32,
    file_offset: u64,
    areas: Vec<(u64, u64)>,
    /// Sends the descriptor of BAR 0.
    file: bool,
    header: [u8; pci::header::LEN],
    /// This command is refused.
    refuses: Option<Command>,
    log: Vec<Command>,
    mapped: Option<DmaMap>,
}

impl Default for Server {
    fn default() -> Self {
        let mut header = [0; pci::header::LEN];
        header[pci::header::CLASS..][..3].copy_from_slice(&pci::CLASS_NVME.to_le_bytes()[..3]);
        header[pci::header::VENDOR] = 1;
        Server {
            version: (0, 1),
            capabilities: Capabilities::default().text().into_bytes(),
            device: DeviceInfo {
                flags: U32::new(DeviceInfo::PCI | DeviceInfo::RESET),
                regions: U32::new(region::COUNT),
                ..DeviceInfo::default()
            },
            flags: RegionInfo::READ | RegionInfo::WRITE | RegionInfo::MMAP | RegionInfo::CAPS,
            file_offset: 0x100_0000,
            areas: vec![(0x1000, 0x3000)],
            file: true,
            header,
            refuses: None,
            log: Vec::new(),
            mapped: None,
        }
    }
}

impl Server {
    fn region(&self, argsz: u32) -> Vec<u8> {
        let caps = self.flags & RegionInfo::CAPS != 0;
        let whole = 32 + if caps { 16 + 16 * self.areas.len() } else { 0 };
        let info = RegionInfo {
            argsz: U32::new(whole as u32),
            flags: U32::new(self.flags),
            cap_offset: U32::new(if caps && argsz as usize >= whole { 32 } else { 0 }),
            size: U64::new(BAR),
            offset: U64::new(self.file_offset),
            ..RegionInfo::default()
        };
        let mut payload = info.as_bytes().to_vec();
        if caps && argsz as usize >= whole {
            let areas = U32::new(self.areas.len() as u32);
            let cap = SparseMmap { id: U16::new(1), version: U16::new(1), areas, ..SparseMmap::default() };
            payload.extend(cap.as_bytes());
            for (offset, size) in &self.areas {
                payload.extend(SparseArea { offset: U64::new(*offset), size: U64::new(*size) }.as_bytes());
            }
        }
        payload
    }

    fn answer(&mut self, message: &Outgoing) -> (Header, Vec<u8>, bool) {
        let (header, payload) = Header::read_from_prefix(&message.bytes).unwrap();
        assert_eq!(header.size.get() as usize, message.bytes.len());
        assert_eq!((header.kind(), header.command.get()), (0, message.command.0));
        assert_eq!(message.memory, message.command == Command::DMA_MAP);
        self.log.push(message.command);
        if self.refuses == Some(message.command) {
            return (Header::error(&header, 22), Vec::new(), false);
        }
        let mut file = false;
        let answer = match message.command {
            Command::VERSION => {
                assert_eq!(Capabilities::parse(&payload[4..]).unwrap(), Capabilities::default());
                let version = Version { major: U16::new(self.version.0), minor: U16::new(self.version.1) };
                [version.as_bytes(), &self.capabilities].concat()
            }
            Command::DEVICE_GET_INFO => self.device.as_bytes().to_vec(),
            Command::DEVICE_GET_REGION_INFO => {
                file = self.file;
                let asked = RegionInfo::read_from_bytes(payload).unwrap();
                assert_eq!(asked.index.get(), region::BAR0);
                self.region(asked.argsz.get())
            }
            Command::REGION_READ => {
                let access = RegionAccess::read_from_bytes(payload).unwrap();
                assert_eq!((access.region.get(), access.offset.get()), (region::CONFIG, 0));
                [payload, &self.header[..access.count.get() as usize]].concat()
            }
            Command::REGION_WRITE => {
                let (access, bytes) = RegionAccess::read_from_prefix(payload).unwrap();
                assert_eq!(access.count.get() as usize, bytes.len());
                self.header[access.offset.get() as usize..][..bytes.len()].copy_from_slice(bytes);
                access.as_bytes().to_vec()
            }
            Command::DMA_MAP => {
                self.mapped = Some(DmaMap::read_from_bytes(payload).unwrap());
                Vec::new()
            }
            other => panic!("{other:?}"),
        };
        (Header::reply(&header, answer.len()), answer, file)
    }

    fn meet(&mut self, queues: u16) -> Result<Negotiated, ReplyError> {
        let mut hello = Hello::new(MEMORY, queues);
        while let Some(message) = hello.next_message() {
            assert_eq!(hello.negotiated(), None);
            let (header, payload, file) = self.answer(&message);
            hello.reply(&header, &payload, file)?;
        }
        Ok(*hello.negotiated().unwrap())
    }
}

#[test]
fn a_drive_is_found_and_given_the_memory() {
    let mut server = Server::default();
    let found = server.meet(4).unwrap();
    assert_eq!(found.bar, BAR);
    assert_eq!(found.doorbells, Some(Area { bar: 0x1000, file: 0x100_1000, len: 0x3000 }));
    let map = server.mapped.unwrap();
    assert_eq!((map.address.get(), map.size.get(), map.offset.get()), (MEMORY.address, MEMORY.len, 0));
    assert_eq!(map.flags.get(), DmaMap::READ | DmaMap::WRITE);
    // Memory space and bus master, without which a drive answers nothing.
    assert_eq!(server.header[pci::header::COMMAND..][..2], [0x06, 0x04]);
    let asked = server.log.iter().filter(|c| **c == Command::DEVICE_GET_REGION_INFO).count();
    assert_eq!(asked, 2, "once to hear how long the answer is");
}

#[test]
fn doorbells_are_mapped_where_they_can_be() {
    let at = |change: fn(&mut Server), queues| {
        let mut server = Server::default();
        change(&mut server);
        server.meet(queues).map(|found| found.doorbells)
    };
    let whole = |s: &mut Server| s.flags &= !RegionInfo::CAPS;
    assert_eq!(at(whole, 1), Ok(Some(Area { bar: 0, file: 0x100_0000, len: BAR })));
    assert_eq!(at(|s| s.file = false, 1), Ok(None), "no descriptor");
    assert_eq!(at(|s| s.flags &= !RegionInfo::MMAP, 1), Ok(None));
    assert_eq!(at(|s| s.areas.clear(), 1), Ok(None));
    assert_eq!(at(|s| s.areas = vec![(0, 0x1000)], 1), Ok(None), "registers only");
    let second = |s: &mut Server| s.areas = vec![(0, 0x1000), (0x1000, 0x1000)];
    assert_eq!(at(second, 511), Ok(Some(Area { bar: 0x1000, file: 0x100_1000, len: 0x1000 })));
    assert_eq!(at(second, 512), Ok(None), "not all of them");
    let malformed = Err(ReplyError::Malformed(Command::DEVICE_GET_REGION_INFO));
    assert_eq!(at(|s| s.areas = vec![(0x1000, BAR)], 1), malformed, "beyond the BAR");
    assert_eq!(at(|s| s.areas = vec![(u64::MAX - 8, 16)], 1), malformed);
    assert_eq!(at(|s| s.file_offset = u64::MAX, 1), malformed);
    assert!(matches!(at(|_| (), u16::MAX), Err(ReplyError::Missing(_))), "more doorbells than the BAR has");
}

#[test]
fn what_is_no_drive_is_refused() {
    let text = |change: &dyn Fn(&mut Server)| {
        let mut server = Server::default();
        change(&mut server);
        let e = server.meet(1).unwrap_err();
        assert_eq!(server.mapped, None, "{e}");
        e.to_string()
    };
    assert!(text(&|s| s.version = (1, 0)).contains("version 1.0"));
    assert!(text(&|s| s.version = (0, 2)).contains("version 0.2"));
    assert!(text(&|s| s.capabilities = b"[]\0".to_vec()).contains("version: a capability"));
    assert!(text(&|s| s.capabilities = b"{}".to_vec()).contains("ends with NUL"));
    assert!(text(&|s| s.device.flags = U32::new(0)).contains("PCI device"));
    assert!(text(&|s| s.device.regions = U32::new(7)).contains("PCI device"));
    assert!(text(&|s| s.flags = RegionInfo::READ).contains("BAR 0"));
    assert!(text(&|s| s.header = [0xff; 64]).contains("configuration space"));
    assert!(text(&|s| s.header[pci::header::CLASS] = 3).contains("class 010803"));
    for command in [
        Command::VERSION,
        Command::DEVICE_GET_INFO,
        Command::DEVICE_GET_REGION_INFO,
        Command::REGION_READ,
        Command::REGION_WRITE,
        Command::DMA_MAP,
    ] {
        assert_eq!(
            text(&|s| s.refuses = Some(command)),
            alloc::format!("the server refused {command:?} (error number 22)")
        );
    }
}

/// Every answer cut short, and every byte of every answer changed: an error or another drive, never a panic, and what is mapped is
/// inside of the BAR.
#[test]
fn answers_are_not_believed() {
    for step in 0..7 {
        let len = up_to_hello(step).1.len();
        for cut in 0..len {
            let (mut hello, payload, header) = up_to_hello(step);
            let _ = hello.reply(&header, &payload[..cut], true);
        }
        for at in 0..len {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let (mut hello, mut payload, header) = up_to_hello(step);
                payload[at] = value;
                if hello.reply(&header, &payload, true).is_err() {
                    continue;
                }
                let mut server = Server::default();
                while let Some(message) = hello.next_message() {
                    let (header, payload, file) = server.answer(&message);
                    if hello.reply(&header, &payload, file).is_err() {
                        break;
                    }
                }
                if let Some(area) = hello.negotiated().and_then(|found| found.doorbells) {
                    assert!(area.bar + area.len <= hello.negotiated().unwrap().bar, "{area:?}");
                    assert!(area.bar <= u64::from(DOORBELLS), "{area:?}");
                }
            }
        }
    }
}

/// A conversation that waits for its answer number `step`, and that answer.
fn up_to_hello(step: usize) -> (Hello, Vec<u8>, Header) {
    let (mut hello, mut server) = (Hello::new(MEMORY, 1), Server::default());
    for _ in 0..step {
        let message = hello.next_message().unwrap();
        let (header, payload, file) = server.answer(&message);
        hello.reply(&header, &payload, file).unwrap();
    }
    let message = hello.next_message().unwrap();
    let (header, payload, _) = server.answer(&message);
    (hello, payload, header)
}

#[test]
fn only_the_answer_is_an_answer() {
    let good = up_to_hello(0).2;
    let unexpected = Err(ReplyError::Unexpected(Command::VERSION));
    for header in [
        Header { id: U16::new(good.id.get() + 1), ..good },
        Header { command: U16::new(Command::DMA_MAP.0), ..good },
        Header { flags: U32::new(0), ..good },
    ] {
        let (mut hello, payload, _) = up_to_hello(0);
        assert_eq!(hello.reply(&header, &payload, false), unexpected);
    }
    let mut server = Server::default();
    let mut hello = Hello::new(MEMORY, 1);
    while let Some(message) = hello.next_message() {
        let (header, payload, file) = server.answer(&message);
        hello.reply(&header, &payload, file).unwrap();
    }
    assert!(hello.reply(&good, &[], false).is_err(), "nothing was asked");
}

#[test]
fn registers_and_posted_doorbells_on_the_wire() {
    let message = read(0x8001, region::BAR0, 0x1c, 4);
    assert_eq!(
        message.bytes,
        [[0x01, 0x80, 9, 0, 32, 0, 0, 0].as_slice(), &[0; 8], &[0x1c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0]]
            .concat()
    );
    let message = write(7, region::BAR0, 0x1008, &5u32.to_le_bytes(), true);
    assert_eq!(message.bytes[..16], [7, 0, 10, 0, 36, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(message.bytes[16..], [8, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0]);
    let (header, _) = Header::read_from_prefix(&write(7, 0, 0, &[0; 8], false).bytes).unwrap();
    assert!(!header.no_reply());
    assert_eq!(header.size.get(), 40);
}
