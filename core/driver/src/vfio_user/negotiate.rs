//! The messages that find the drive behind a socket, in order.

use super::message::{Outgoing, ReplyError, check, read, write};
use alloc::vec::Vec;
use weir_spec::nvme::register::DOORBELLS;
use weir_spec::pci;
use weir_spec::vfio_user::{
    Capabilities, Command, DeviceInfo, DmaMap, Header, MAJOR, MINOR, RegionAccess, RegionInfo, Version, region,
    sparse_areas,
};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// Our memory, which the server may map as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaMemory {
    /// Its DMA address; a multiple of 4096.
    pub address: u64,
    /// Its length in bytes; a multiple of 4096. It begins where its file does.
    pub len: u64,
}

/// A part of BAR 0 in the file that came with DEVICE_GET_REGION_INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Where it begins in BAR 0.
    pub bar: u64,
    /// Where it begins in the file.
    pub file: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// What the server says of itself.
    pub server: Capabilities,
    /// Bytes of BAR 0.
    pub bar: u64,
    /// The part with all the doorbells that are needed, where it can be mapped; else they are written by messages.
    pub doorbells: Option<Area>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Version,
    Device,
    /// BAR 0; the answer may have at most so many bytes.
    Bar(u32),
    Header,
    Enable,
    Map,
    Done,
}

/// The conversation up to where the drive's registers can be used.
#[derive(Debug)]
pub struct Hello {
    memory: DmaMemory,
    /// Bytes of doorbells that are needed.
    doorbells: u64,
    step: Step,
    id: u16,
    so_far: Negotiated,
    command: pci::Command,
}

/// What DEVICE_GET_REGION_INFO may answer at first; it says when it would have more.
const SHORT: u32 = size_of::<RegionInfo>() as u32;

impl Hello {
    /// A conversation that has not begun; for `queues` I/O queue pairs.
    pub fn new(memory: DmaMemory, queues: u16) -> Self {
        let doorbells = (u64::from(queues) + 1) * 8;
        let so_far = Negotiated { server: Capabilities::default(), bar: 0, doorbells: None };
        Self { memory, doorbells, step: Step::Version, id: 0, so_far, command: pci::Command(0) }
    }

    /// What was found, once [`Hello::next_message`] has nothing more to send.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        (self.step == Step::Done).then_some(&self.so_far)
    }

    /// The next message; [`Hello::reply`] comes before the next call.
    pub fn next_message(&mut self) -> Option<Outgoing> {
        self.id = self.id.wrapping_add(1);
        let id = self.id;
        Some(match self.step {
            Step::Version => {
                let version = Version { major: U16::new(MAJOR), minor: U16::new(MINOR) };
                // Descriptors come with BAR 0 alone; the rest is as the protocol has it for who says nothing.
                let text = Capabilities::default().text();
                Outgoing::new(id, Command::VERSION, &[version.as_bytes(), text.as_bytes()])
            }
            Step::Device => {
                let info = DeviceInfo { argsz: U32::new(size_of::<DeviceInfo>() as u32), ..DeviceInfo::default() };
                Outgoing::new(id, Command::DEVICE_GET_INFO, &[info.as_bytes()])
            }
            Step::Bar(argsz) => {
                let info =
                    RegionInfo { argsz: U32::new(argsz), index: U32::new(region::BAR0), ..RegionInfo::default() };
                Outgoing::new(id, Command::DEVICE_GET_REGION_INFO, &[info.as_bytes()])
            }
            Step::Header => read(id, region::CONFIG, 0, pci::header::LEN),
            Step::Enable => {
                let command = self.command.with_memory(1).with_master(1).with_intx_disable(1);
                write(id, region::CONFIG, pci::header::COMMAND as u64, &command.0.to_le_bytes(), false)
            }
            Step::Map => Outgoing { memory: true, ..Outgoing::new(id, Command::DMA_MAP, &[self.map().as_bytes()]) },
            Step::Done => return None,
        })
    }

    fn map(&self) -> DmaMap {
        DmaMap {
            argsz: U32::new(size_of::<DmaMap>() as u32),
            flags: U32::new(DmaMap::READ | DmaMap::WRITE),
            offset: U64::new(0),
            address: U64::new(self.memory.address),
            size: U64::new(self.memory.len),
        }
    }

    /// Takes the answer to the message before; `file`: a descriptor came with it.
    ///
    /// # Errors
    /// It makes no sense, or the server lacks something that is needed.
    pub fn reply(&mut self, header: &Header, payload: &[u8], file: bool) -> Result<(), ReplyError> {
        let command = match self.step {
            Step::Version => Command::VERSION,
            Step::Device => Command::DEVICE_GET_INFO,
            Step::Bar(_) => Command::DEVICE_GET_REGION_INFO,
            Step::Header => Command::REGION_READ,
            Step::Enable => Command::REGION_WRITE,
            Step::Map => Command::DMA_MAP,
            Step::Done => return Err(ReplyError::Unexpected(Command(header.command.get()))),
        };
        check(header, self.id, command)?;
        self.step = match self.step {
            Step::Version => self.version(payload)?,
            Step::Device => device(payload)?,
            Step::Bar(argsz) => self.bar(payload, argsz, file)?,
            Step::Header => self.header(payload)?,
            Step::Enable => Step::Map,
            Step::Map | Step::Done => Step::Done,
        };
        Ok(())
    }

    fn version(&mut self, payload: &[u8]) -> Result<Step, ReplyError> {
        let (version, text) =
            Version::read_from_prefix(payload).map_err(|_| ReplyError::Malformed(Command::VERSION))?;
        let (major, minor) = (version.major.get(), version.minor.get());
        if major != MAJOR || minor > MINOR {
            return Err(ReplyError::Version(major, minor));
        }
        self.so_far.server = Capabilities::parse(text).map_err(ReplyError::Capabilities)?;
        Ok(Step::Device)
    }

    fn bar(&mut self, payload: &[u8], argsz: u32, file: bool) -> Result<Step, ReplyError> {
        let malformed = ReplyError::Malformed(Command::DEVICE_GET_REGION_INFO);
        let (info, _) = RegionInfo::read_from_prefix(payload).map_err(|_| malformed)?;
        let whole = info.argsz.get();
        // It would have said more.
        if whole > argsz && argsz == SHORT && whole as usize <= super::MAX_REPLY {
            return Ok(Step::Bar(whole));
        }
        let readable = RegionInfo::READ | RegionInfo::WRITE;
        if info.flags.get() & readable != readable || info.size.get() < DOORBELLS_AT + self.doorbells {
            return Err(ReplyError::Missing("a BAR 0 with an NVMe controller's registers and that many doorbells"));
        }
        self.so_far.bar = info.size.get();
        if file && info.flags.get() & RegionInfo::MMAP != 0 {
            let areas = sparse_areas(payload).ok_or(malformed)?;
            let areas = areas.iter().map(|a| (a.offset.get(), a.size.get()));
            // Without that capability all of it can be mapped.
            let whole = (info.flags.get() & RegionInfo::CAPS == 0).then_some((0, info.size.get()));
            self.so_far.doorbells = self.area(info.offset.get(), areas.chain(whole).collect())?;
        }
        Ok(Step::Header)
    }

    /// The area that has all doorbells.
    fn area(&self, file: u64, areas: Vec<(u64, u64)>) -> Result<Option<Area>, ReplyError> {
        let malformed = ReplyError::Malformed(Command::DEVICE_GET_REGION_INFO);
        for (bar, len) in areas {
            let end = bar.checked_add(len).filter(|end| *end <= self.so_far.bar).ok_or(malformed)?;
            let file = file.checked_add(bar).ok_or(malformed)?;
            if bar <= DOORBELLS_AT && end >= DOORBELLS_AT + self.doorbells {
                return Ok(Some(Area { bar, file, len }));
            }
        }
        Ok(None)
    }

    fn header(&mut self, payload: &[u8]) -> Result<Step, ReplyError> {
        let malformed = ReplyError::Malformed(Command::REGION_READ);
        let (_, bytes) = RegionAccess::read_from_prefix(payload).map_err(|_| malformed)?;
        let bytes: &[u8; pci::header::LEN] = bytes.try_into().map_err(|_| malformed)?;
        let at = |offset: usize| u16::from_le_bytes([bytes[offset], bytes[offset + 1]]);
        if at(pci::header::VENDOR) == u16::MAX {
            return Err(ReplyError::Missing("a configuration space that answers"));
        }
        let class = [0, 1, 2].map(|i| bytes[pci::header::CLASS + i]);
        let class = u32::from_le_bytes([class[0], class[1], class[2], 0]);
        if class != pci::CLASS_NVME {
            return Err(ReplyError::NotNvme(class));
        }
        self.command = pci::Command(at(pci::header::COMMAND));
        Ok(Step::Enable)
    }
}

fn device(payload: &[u8]) -> Result<Step, ReplyError> {
    let (info, _) =
        DeviceInfo::read_from_prefix(payload).map_err(|_| ReplyError::Malformed(Command::DEVICE_GET_INFO))?;
    if info.flags.get() & DeviceInfo::PCI == 0 || info.regions.get() <= region::CONFIG {
        return Err(ReplyError::Missing("a PCI device"));
    }
    Ok(Step::Bar(SHORT))
}

/// Where doorbells begin in BAR 0 (NVMe over PCIe 1.0, 3.1.2).
const DOORBELLS_AT: u64 = DOORBELLS as u64;
