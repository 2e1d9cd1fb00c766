//! The device behind one connection: answers the client's messages, owns configuration space, interrupts and the table of DMA
//! regions.

use super::config_space::ConfigSpace;
use super::dma::{DmaAccess, DmaRegion, MAX_REGIONS, PAGE, Regions};
use super::inbox::{MAX_FDS, Message, ProtocolError};
use super::msix::Msix;
use super::requests::{Answered, Requests};
use super::{
    BAR0, DOORBELLS, DOORBELLS_END, DeviceShape, LEAST_TRANSFER, MAX_TRANSFER, MAX_VECTORS, Port, Shared, TABLE,
};
use alloc::vec::Vec;
use weir_spec::pci::CONFIG_SPACE;
use weir_spec::vfio_user::{
    Capabilities, Command, DeviceInfo, DmaMap, DmaUnmap, Header, IrqInfo, IrqSet, MAJOR, MINOR, RegionAccess,
    RegionInfo, SparseArea, SparseMmap, Version, WriteMulti, errno, irq, region, small_writes,
};
use weir_units::Nanos;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What the door has to do, in this order.
#[derive(Debug)]
pub enum Action<F> {
    /// Send this to the client.
    Reply {
        /// A whole message.
        bytes: Vec<u8>,
        /// The descriptor that goes with it.
        with: Option<Shared>,
    },
    /// A controller register or doorbell is written. Nothing of what came later may be read before this has had its effect.
    Register {
        /// Offset in BAR 0.
        offset: u32,
        /// The value, in the low `size` bytes.
        value: u64,
        /// 4 or 8.
        size: u8,
    },
    /// The vector is signalled through `fd` from now on; without one, not at all.
    Vector {
        /// Which.
        vector: u16,
        /// The eventfd.
        fd: Option<F>,
    },
    /// The client is asked through `fd` to give the device back.
    Request {
        /// The eventfd.
        fd: Option<F>,
    },
    /// Signal this vector now.
    Signal(u16),
    /// The controller is reset as by a function level reset; doorbells that the client has mapped read 0 from now on.
    Reset,
    /// The client has answered a request of [`VfioUserDevice::requests`].
    Answered(Answered),
    /// The client must be disconnected.
    Close(ProtocolError),
}

/// Why a command failed: its error number.
type Errno = u32;

/// One client's device.
#[derive(Debug)]
pub struct VfioUserDevice {
    pub(super) shape: DeviceShape,
    pub(super) config: ConfigSpace,
    pub(super) msix: Msix,
    pub(super) regions: Regions,
    /// Some of them are reached by messages only.
    pub(super) messaged: bool,
    pub(super) requests: Requests,
    /// What the client said of itself.
    pub(super) client: Option<Capabilities>,
}

pub(super) fn read<T: FromBytes + KnownLayout + Immutable>(payload: &[u8]) -> Result<(T, &[u8]), Errno> {
    T::read_from_prefix(payload).map_err(|_| errno::EINVAL)
}

impl VfioUserDevice {
    /// A device that nobody has talked to.
    pub fn new(shape: DeviceShape) -> Self {
        let shape = DeviceShape { vectors: shape.vectors.clamp(1, MAX_VECTORS), ..shape };
        Self {
            config: ConfigSpace::new(&shape),
            msix: Msix::new(shape.vectors),
            regions: Regions::default(),
            messaged: false,
            requests: Requests::default(),
            client: None,
            shape,
        }
    }

    /// What it shows.
    pub fn shape(&self) -> &DeviceShape {
        &self.shape
    }

    /// Its interrupts.
    pub fn msix(&self) -> &Msix {
        &self.msix
    }

    /// What the client said of itself, once it has.
    pub fn client(&self) -> Option<&Capabilities> {
        self.client.as_ref()
    }

    /// How many DMA regions there are.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Whether some DMA regions are reached by messages only.
    #[inline]
    pub fn has_messaged(&self) -> bool {
        self.messaged
    }

    /// How many of the `len` bytes at an address are in one of them, and may be read, or written.
    pub fn messaged(&self, address: u64, len: u32, write: bool) -> u32 {
        self.regions.messaged(address, len, if write { DmaAccess::writes } else { DmaAccess::reads })
    }

    /// Since when the client owes an answer to a request.
    pub fn owed(&self) -> Option<Nanos> {
        self.requests.oldest()
    }

    /// What it asks of its client.
    pub fn requests(&mut self) -> &mut Requests {
        &mut self.requests
    }

    /// Completions were posted for this vector; true if it is to be signalled now.
    #[inline]
    pub fn fire(&mut self, vector: u16) -> bool {
        self.msix.fire(vector)
    }

    /// As at power-on, but for DMA regions and eventfds; the caller resets the controller.
    fn reset<F>(&mut self, out: &mut Vec<Action<F>>) {
        self.config.reset();
        self.msix.reset();
        out.push(Action::Reset);
    }

    /// Handles one message that is not a reply.
    pub fn message<F, P: Port<F>>(&mut self, message: Message<F>, port: &mut P, out: &mut Vec<Action<F>>) {
        let Message { header, payload, fds } = message;
        if header.kind() == Header::REPLY {
            match self.requests.answer(&header, &payload) {
                Ok(answered) => out.extend(answered.map(Action::Answered)),
                Err(e) => out.push(Action::Close(e)),
            }
            return;
        }
        let command = Command(header.command.get());
        if self.client.is_none() {
            return match command {
                Command::VERSION => match self.version(&header, &payload) {
                    Ok(bytes) => out.push(Action::Reply { bytes, with: None }),
                    Err(e) => out.push(Action::Close(e)),
                },
                _ => out.push(Action::Close(ProtocolError::NoVersion(command.0))),
            };
        }
        let at = out.len();
        let answer = self.command(command, &payload, fds, port, out);
        if header.no_reply() {
            return;
        }
        let (bytes, with) = match answer {
            Ok(Answer { payload, with }) => {
                let mut bytes = Header::reply(&header, payload.len()).as_bytes().to_vec();
                bytes.extend_from_slice(&payload);
                (bytes, with)
            }
            Err(errno) => {
                debug_assert!(out.len() == at || command != Command::DMA_MAP, "a failed command has no effect");
                (Header::error(&header, errno).as_bytes().to_vec(), None)
            }
        };
        out.push(Action::Reply { bytes, with });
    }

    fn version(&mut self, header: &Header, payload: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        let (version, text) = Version::read_from_prefix(payload).map_err(|_| ProtocolError::Size(header.size.get()))?;
        let (major, minor) = (version.major.get(), version.minor.get());
        if major != MAJOR {
            return Err(ProtocolError::Version(major, minor));
        }
        let client = Capabilities::parse(text).map_err(ProtocolError::Capabilities)?;
        if client.max_data_xfer_size < LEAST_TRANSFER.into() {
            return Err(ProtocolError::Transfer(client.max_data_xfer_size));
        }
        self.requests.limit(client.max_data_xfer_size);
        self.client = Some(client);
        let ours = Capabilities {
            max_msg_fds: MAX_FDS as u64,
            max_data_xfer_size: MAX_TRANSFER.into(),
            max_dma_maps: MAX_REGIONS.into(),
            pgsizes: PAGE,
            write_multiple: true,
            twin_socket: false,
        };
        let text = ours.text();
        let version = Version { major: U16::new(MAJOR), minor: U16::new(minor.min(MINOR)) };
        let mut bytes = Header::reply(header, size_of::<Version>() + text.len()).as_bytes().to_vec();
        bytes.extend_from_slice(version.as_bytes());
        bytes.extend_from_slice(text.as_bytes());
        Ok(bytes)
    }

    fn command<F, P: Port<F>>(
        &mut self,
        command: Command,
        payload: &[u8],
        fds: Vec<F>,
        port: &mut P,
        out: &mut Vec<Action<F>>,
    ) -> Result<Answer, Errno> {
        match command {
            Command::DMA_MAP => self.dma_map(payload, fds, port),
            Command::DMA_UNMAP => self.dma_unmap(payload, port),
            Command::DEVICE_GET_INFO => self.device_info(payload),
            Command::DEVICE_GET_REGION_INFO => self.region_info(payload),
            Command::DEVICE_GET_IRQ_INFO => self.irq_info(payload),
            Command::DEVICE_SET_IRQS => self.set_irqs(payload, fds, out),
            Command::REGION_READ => self.region_read(payload, port),
            Command::REGION_WRITE => self.region_write(payload, port, out),
            Command::REGION_WRITE_MULTI => self.write_multi(payload, port, out),
            Command::DEVICE_RESET => {
                self.reset(out);
                Ok(Answer::default())
            }
            // Its time is over.
            Command::VERSION => Err(errno::EINVAL),
            _ => Err(errno::ENOTSUP),
        }
    }

    fn dma_map<F, P: Port<F>>(&mut self, payload: &[u8], fds: Vec<F>, port: &mut P) -> Result<Answer, Errno> {
        let (map, _) = read::<DmaMap>(payload)?;
        if (map.argsz.get() as usize) < size_of::<DmaMap>() || fds.len() > 1 {
            return Err(errno::EINVAL);
        }
        let region = DmaRegion { mapped: !fds.is_empty(), ..DmaRegion::from_wire(&map)? };
        self.regions.admits(&region)?;
        port.map(&region, fds.into_iter().next()).map_err(|e| e.errno())?;
        self.regions.insert(region);
        self.messaged = self.regions.any_unmapped();
        Ok(Answer::default())
    }

    fn dma_unmap<F, P: Port<F>>(&mut self, payload: &[u8], port: &mut P) -> Result<Answer, Errno> {
        let (unmap, _) = read::<DmaUnmap>(payload)?;
        let (address, len) = (unmap.address.get(), unmap.size.get());
        match unmap.flags.get() {
            0 => port.unmap(&self.regions.take(address, len)?),
            DmaUnmap::ALL if (address, len) == (0, 0) => self.regions.take_all().for_each(|r| port.unmap(&r)),
            DmaUnmap::DIRTY_BITMAP => return Err(errno::ENOTSUP),
            _ => return Err(errno::EINVAL),
        }
        self.messaged = self.regions.any_unmapped();
        Ok(Answer::of(unmap.as_bytes()))
    }

    fn device_info(&self, payload: &[u8]) -> Result<Answer, Errno> {
        let (asked, _) = read::<DeviceInfo>(payload)?;
        if (asked.argsz.get() as usize) < size_of::<DeviceInfo>() {
            return Err(errno::EINVAL);
        }
        let info = DeviceInfo {
            argsz: U32::new(size_of::<DeviceInfo>() as u32),
            flags: U32::new(DeviceInfo::RESET | DeviceInfo::PCI),
            regions: U32::new(region::COUNT),
            irqs: U32::new(irq::COUNT),
        };
        Ok(Answer::of(info.as_bytes()))
    }

    /// Length of a region; 0 where there is none.
    fn region_len(&self, index: u32) -> u64 {
        match index {
            region::BAR0 => BAR0,
            region::BAR2 => self.shape.buffer,
            region::CONFIG => CONFIG_SPACE as u64,
            _ => 0,
        }
    }

    fn region_info(&self, payload: &[u8]) -> Result<Answer, Errno> {
        let (asked, _) = read::<RegionInfo>(payload)?;
        let (index, room) = (asked.index.get(), asked.argsz.get() as usize);
        if index >= region::COUNT || room < size_of::<RegionInfo>() {
            return Err(errno::EINVAL);
        }
        let size = self.region_len(index);
        let mut info = RegionInfo {
            argsz: U32::new(size_of::<RegionInfo>() as u32),
            flags: U32::new(if size == 0 { 0 } else { RegionInfo::READ | RegionInfo::WRITE }),
            index: U32::new(index),
            size: U64::new(size),
            ..RegionInfo::default()
        };
        if index == region::BAR2 && size != 0 {
            // All of it can be mapped.
            info.flags = U32::new(info.flags.get() | RegionInfo::MMAP);
            return Ok(Answer { with: Some(Shared::Buffer), ..Answer::of(info.as_bytes()) });
        }
        if index != region::BAR0 || !self.shape.mapped_doorbells {
            return Ok(Answer::of(info.as_bytes()));
        }
        let whole = size_of::<RegionInfo>() + size_of::<SparseMmap>() + size_of::<SparseArea>();
        info.argsz = U32::new(whole as u32);
        if room < whole {
            return Ok(Answer::of(info.as_bytes()));
        }
        info.flags = U32::new(info.flags.get() | RegionInfo::MMAP | RegionInfo::CAPS);
        info.cap_offset = U32::new(size_of::<RegionInfo>() as u32);
        let sparse = SparseMmap {
            id: U16::new(SparseMmap::ID),
            version: U16::new(SparseMmap::VERSION),
            areas: U32::new(1),
            ..SparseMmap::default()
        };
        let area = SparseArea { offset: U64::new(DOORBELLS), size: U64::new(DOORBELLS_END - DOORBELLS) };
        let payload = [info.as_bytes(), sparse.as_bytes(), area.as_bytes()].concat();
        Ok(Answer { payload, with: Some(Shared::Doorbells) })
    }

    /// How many interrupts of a kind there are, and what can be done with them.
    fn irqs(&self, index: u32) -> (u32, u32) {
        match index {
            irq::MSIX => (self.msix.vectors().into(), IrqInfo::EVENTFD | IrqInfo::MASKABLE),
            irq::REQ => (1, IrqInfo::EVENTFD),
            _ => (0, 0),
        }
    }

    fn irq_info(&self, payload: &[u8]) -> Result<Answer, Errno> {
        let (asked, _) = read::<IrqInfo>(payload)?;
        let index = asked.index.get();
        if index >= irq::COUNT || (asked.argsz.get() as usize) < size_of::<IrqInfo>() {
            return Err(errno::EINVAL);
        }
        let (count, flags) = self.irqs(index);
        let info = IrqInfo {
            argsz: U32::new(size_of::<IrqInfo>() as u32),
            flags: U32::new(flags),
            index: asked.index,
            count: U32::new(count),
        };
        Ok(Answer::of(info.as_bytes()))
    }

    fn set_irqs<F>(&mut self, payload: &[u8], fds: Vec<F>, out: &mut Vec<Action<F>>) -> Result<Answer, Errno> {
        let (set, data) = read::<IrqSet>(payload)?;
        let (flags, index) = (set.flags.get(), set.index.get());
        let (start, count) = (set.start.get(), set.count.get());
        let (data_kind, action) = (flags & IrqSet::DATA, flags & IrqSet::ACTION);
        let (there, _) = self.irqs(index);
        let one = |bits: u32| bits.is_power_of_two();
        if flags != data_kind | action || !one(data_kind) || !one(action) || index >= irq::COUNT {
            return Err(errno::EINVAL);
        }
        if start.checked_add(count).is_none_or(|end| end > there) {
            return Err(errno::EINVAL);
        }
        // What is 2048 at most fits.
        let all = start as u16..(start + count) as u16;
        match (data_kind, action) {
            (IrqSet::DATA_NONE, IrqSet::ACTION_TRIGGER) if (start, count) == (0, 0) => {
                self.take_eventfds(index, 0..there as u16, Vec::new(), out)?;
            }
            (IrqSet::DATA_EVENTFD, IrqSet::ACTION_TRIGGER) => self.take_eventfds(index, all, fds, out)?,
            (IrqSet::DATA_NONE, _) if index == irq::MSIX => {
                all.for_each(|v| self.act_on_vector(v, action, out));
            }
            (IrqSet::DATA_BOOL, _) if index == irq::MSIX && data.len() == count as usize => {
                let named = all.zip(data).filter(|(_, wanted)| **wanted != 0);
                named.for_each(|(v, _)| self.act_on_vector(v, action, out));
            }
            _ => return Err(errno::EINVAL),
        }
        Ok(Answer::default())
    }

    /// Gives the interrupts of a kind their eventfds, or takes them away where there are none.
    fn take_eventfds<F>(
        &mut self,
        index: u32,
        range: core::ops::Range<u16>,
        fds: Vec<F>,
        out: &mut Vec<Action<F>>,
    ) -> Result<(), Errno> {
        if !fds.is_empty() && fds.len() != range.len() {
            return Err(errno::EINVAL);
        }
        let mut fds = fds.into_iter();
        for at in range {
            let fd = fds.next();
            let assigned = fd.is_some();
            if index == irq::REQ {
                out.push(Action::Request { fd });
            } else if index == irq::MSIX {
                out.push(Action::Vector { vector: at, fd });
                self.msix.assign(at, assigned, &mut |v| out.push(Action::Signal(v)));
            }
        }
        Ok(())
    }

    fn act_on_vector<F>(&mut self, vector: u16, action: u32, out: &mut Vec<Action<F>>) {
        let mut signal = |v| out.push(Action::Signal(v));
        match action {
            IrqSet::ACTION_MASK => self.msix.mask(vector, true, &mut signal),
            IrqSet::ACTION_UNMASK => self.msix.mask(vector, false, &mut signal),
            _ if self.msix.fire(vector) => signal(vector),
            _ => {}
        }
    }

    /// What REGION_READ and REGION_WRITE ask for, if that is inside its region.
    fn access(&self, access: &RegionAccess) -> Result<(u64, usize), Errno> {
        let (offset, count) = (access.offset.get(), access.count.get());
        let len = self.region_len(access.region.get());
        if count > MAX_TRANSFER || offset.checked_add(count.into()).is_none_or(|end| end > len) {
            return Err(errno::EINVAL);
        }
        Ok((offset, count as usize))
    }

    fn region_read<F, P: Port<F>>(&mut self, payload: &[u8], port: &mut P) -> Result<Answer, Errno> {
        let (access, _) = read::<RegionAccess>(payload)?;
        let (offset, count) = self.access(&access)?;
        let mut answer = access.as_bytes().to_vec();
        let head = answer.len();
        answer.resize(head + count, 0xff);
        let into = &mut answer[head..];
        match access.region.get() {
            region::CONFIG => self.config.read(offset as usize, into),
            _ if self.config.is_asleep() => {}
            region::BAR2 => port.read_buffer(offset, into),
            _ => self.read_bar0(offset, into, port),
        }
        Ok(Answer { payload: answer, with: None })
    }

    /// Reads any bytes of BAR 0 by the aligned words that they are in.
    fn read_bar0<F, P: Port<F>>(&mut self, offset: u64, into: &mut [u8], port: &mut P) {
        let mut done = 0;
        while done < into.len() {
            let (at, left) = (offset + done as u64, into.len() - done);
            let size = if at < DOORBELLS && at % 8 == 0 && left >= 8 { 8 } else { 4 };
            let word_at = at & !(size - 1);
            let word = match word_at {
                w if w >= TABLE => self.msix.read(w).into(),
                w => port.register(w as u32, size as u8),
            };
            let bytes = &word.to_le_bytes()[(at - word_at) as usize..size as usize];
            let n = bytes.len().min(left);
            into[done..done + n].copy_from_slice(&bytes[..n]);
            done += n;
        }
    }

    fn region_write<F, P: Port<F>>(
        &mut self,
        payload: &[u8],
        port: &mut P,
        out: &mut Vec<Action<F>>,
    ) -> Result<Answer, Errno> {
        let (access, data) = read::<RegionAccess>(payload)?;
        if data.len() != access.count.get() as usize {
            return Err(errno::EINVAL);
        }
        self.write(&access, data, port, out)?;
        Ok(Answer::of(access.as_bytes()))
    }

    fn write_multi<F, P: Port<F>>(
        &mut self,
        payload: &[u8],
        port: &mut P,
        out: &mut Vec<Action<F>>,
    ) -> Result<Answer, Errno> {
        let writes = small_writes(payload).ok_or(errno::EINVAL)?;
        let mut written = 0u64;
        for write in writes {
            let access = RegionAccess { offset: write.offset, region: write.region, count: write.count };
            let data = write.data.get(..write.count.get() as usize).ok_or(errno::EINVAL);
            // The reply says how many were done, which are those before the first that could not be.
            if data.and_then(|data| self.write(&access, data, port, out)).is_err() {
                break;
            }
            written += 1;
        }
        if written == 0 && !writes.is_empty() {
            return Err(errno::EINVAL);
        }
        Ok(Answer::of(WriteMulti { count: U64::new(written) }.as_bytes()))
    }

    fn write<F, P: Port<F>>(
        &mut self,
        access: &RegionAccess,
        data: &[u8],
        port: &mut P,
        out: &mut Vec<Action<F>>,
    ) -> Result<(), Errno> {
        let (offset, _) = self.access(access)?;
        match access.region.get() {
            region::CONFIG => self.write_config(offset as usize, data, out),
            _ if self.config.is_asleep() => {}
            region::BAR2 => port.write_buffer(offset, data),
            _ => self.write_bar0(offset, data, out),
        }
        Ok(())
    }

    fn write_config<F>(&mut self, offset: usize, data: &[u8], out: &mut Vec<Action<F>>) {
        let written = self.config.write(offset, data);
        if written.reset {
            self.reset(out);
        }
        if written.msix {
            self.msix.control(self.config.msix_control(), &mut |v| out.push(Action::Signal(v)));
        }
    }

    /// Writes the aligned words of BAR 0 that the bytes are; registers are accessed by aligned words only (NVMe over PCIe 1.0,
    /// 2.1.10), and what is not one changes nothing.
    fn write_bar0<F>(&mut self, offset: u64, data: &[u8], out: &mut Vec<Action<F>>) {
        let mut done = 0;
        while done < data.len() {
            let (at, left) = (offset + done as u64, &data[done..]);
            if at % 4 != 0 || left.len() < 4 {
                return;
            }
            let size = if at < DOORBELLS && at % 8 == 0 && left.len() >= 8 { 8 } else { 4 };
            let mut word = [0; 8];
            word[..size].copy_from_slice(&left[..size]);
            let value = u64::from_le_bytes(word);
            if at >= TABLE {
                self.msix.write(at, value as u32, &mut |v| out.push(Action::Signal(v)));
            } else {
                out.push(Action::Register { offset: at as u32, value, size: size as u8 });
            }
            done += size;
        }
    }

    /// The client has gone: what it had mapped is forgotten.
    pub fn close<F, P: Port<F>>(&mut self, port: &mut P) {
        self.regions.take_all().for_each(|r| port.unmap(&r));
    }
}

/// What a reply carries.
#[derive(Default)]
struct Answer {
    payload: Vec<u8>,
    with: Option<Shared>,
}

impl Answer {
    fn of(bytes: &[u8]) -> Self {
        Self { payload: bytes.to_vec(), with: None }
    }
}
