//! vfio-user: the device machine against a client that sends anything.

use std::collections::BTreeMap;
use weir_session::memory::MapError;
use weir_session::vfio_user::{Action, DeviceShape, DmaRegion, Inbox, Message, Port, TABLE, VfioUserDevice};
use weir_spec::vfio_user::{
    Capabilities, Command, DmaMap, DmaUnmap, Header, IrqSet, RegionAccess, SmallWrite, Version, WriteMulti, irq, region,
};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const SHAPE: DeviceShape = DeviceShape { vectors: 5, mapped_doorbells: true, buffer: 0x3000, serial: 7 };

/// What is behind the device.
struct Board {
    buffer: Vec<u8>,
    /// By address: where each ends.
    mapped: BTreeMap<u64, u64>,
    /// The next mapping fails.
    refuses: bool,
}

impl Port<()> for Board {
    fn register(&mut self, offset: u32, size: u8) -> u64 {
        assert!(matches!(size, 4 | 8) && offset % u32::from(size) == 0 && u64::from(offset) < TABLE);
        u64::MAX
    }

    fn read_buffer(&mut self, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.buffer[offset as usize..][..into.len()]);
    }

    fn write_buffer(&mut self, offset: u64, from: &[u8]) {
        self.buffer[offset as usize..][..from.len()].copy_from_slice(from);
    }

    fn map(&mut self, region: &DmaRegion, _: Option<()>) -> Result<(), MapError> {
        let end = region.address.checked_add(region.len).expect("a region ends");
        assert!(region.len > 0 && (region.address | region.len) % 4096 == 0);
        let before = self.mapped.range(..end).next_back();
        assert!(before.is_none_or(|(_, other)| *other <= region.address), "an overlap");
        if std::mem::take(&mut self.refuses) {
            return Err(MapError::System(12));
        }
        self.mapped.insert(region.address, end);
        Ok(())
    }

    fn unmap(&mut self, region: &DmaRegion) {
        assert_eq!(self.mapped.remove(&region.address), Some(region.address + region.len), "what was mapped");
    }
}

/// Hands a message over and looks at what comes of it; false when the connection is over.
fn handle(device: &mut VfioUserDevice, board: &mut Board, message: Message<()>) -> bool {
    let (header, mut replies, mut out) = (message.header, 0, Vec::new());
    device.message(message, board, &mut out);
    for action in out {
        match action {
            Action::Reply { bytes, with } => {
                let (reply, payload) = Header::read_from_prefix(&bytes).expect("a reply has a header");
                assert_eq!((reply.id, reply.command, reply.kind()), (header.id, header.command, Header::REPLY));
                assert_eq!(reply.size.get() as usize, bytes.len());
                assert!(!(reply.failed() && (with.is_some() || !payload.is_empty())), "an error is a header");
                replies += 1;
            }
            Action::Register { offset, size, .. } => {
                assert!(matches!(size, 4 | 8) && offset % u32::from(size) == 0 && u64::from(offset) < TABLE);
            }
            Action::Vector { vector, .. } | Action::Signal(vector) => assert!(vector < SHAPE.vectors),
            Action::Request { .. } | Action::Reset => {}
            Action::Answered(answered) => panic!("{answered:?}: nothing was asked"),
            Action::Close(_) => return false,
        }
    }
    // The first message is answered in any case.
    let is_version = Command(header.command.get()) == Command::VERSION;
    assert!(replies == u32::from(!header.no_reply()) || is_version && replies == 1);
    assert_eq!(board.mapped.len(), device.regions());
    true
}

/// Any messages, byte by byte, each with as many descriptors as the byte before it says; in between vectors fire.
pub fn vfio_user_messages(data: &[u8]) {
    let mut device = VfioUserDevice::new(SHAPE);
    let mut board = Board { buffer: vec![0; SHAPE.buffer as usize], mapped: BTreeMap::new(), refuses: false };
    let mut inbox = Inbox::<()>::default();
    let mut rest = data;
    'messages: while let Some((&control, bytes)) = rest.split_first() {
        rest = bytes;
        if control & 0x80 != 0 {
            let vector = u16::from(control & 7);
            let fired = device.fire(vector);
            assert!(!fired || !device.msix().is_pending(vector) && vector < SHAPE.vectors);
            continue;
        }
        board.refuses = control & 0x40 != 0;
        let mut fds = (0..control & 31).map(|_| ());
        loop {
            let space = inbox.space();
            let n = space.len().min(rest.len());
            if n == 0 {
                break 'messages;
            }
            space[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            match inbox.advance(n, fds.by_ref()) {
                Ok(None) => {}
                Ok(Some(message)) => match handle(&mut device, &mut board, message) {
                    true => break,
                    false => break 'messages,
                },
                Err(_) => break 'messages,
            }
        }
    }
    device.close(&mut board);
    assert!(board.mapped.is_empty() && device.regions() == 0);
}

/// A client as QEMU is one.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut wire = Vec::new();
    let mut say = |command: Command, fds: u8, parts: &[&[u8]]| {
        let payload = parts.concat();
        wire.push(fds);
        wire.extend_from_slice(Header::command(1, command, payload.len()).as_bytes());
        wire.extend_from_slice(&payload);
    };
    let version = Version { major: U16::new(0), minor: U16::new(1) };
    say(Command::VERSION, 0, &[version.as_bytes(), Capabilities::default().text().as_bytes()]);
    let map = |address: u64, size: u64| DmaMap {
        argsz: U32::new(32),
        flags: U32::new(3),
        address: U64::new(address),
        size: U64::new(size),
        ..DmaMap::default()
    };
    say(Command::DMA_MAP, 1, &[map(0, 0xa0000).as_bytes()]);
    say(Command::DMA_MAP, 0, &[map(0xc0000, 0x1000).as_bytes()]);
    say(Command::DEVICE_GET_INFO, 0, &[&[16, 0, 0, 0], &[0; 12]]);
    say(Command::DEVICE_GET_REGION_INFO, 0, &[&[64, 0, 0, 0], &[0; 28]]);
    say(Command::DEVICE_GET_IRQ_INFO, 0, &[&[16, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]]);
    let access = |region: u32, offset: u64, count: u32| RegionAccess {
        offset: U64::new(offset),
        region: U32::new(region),
        count: U32::new(count),
    };
    say(Command::REGION_READ, 0, &[access(region::CONFIG, 0, 64).as_bytes()]);
    say(Command::REGION_WRITE, 0, &[access(region::CONFIG, 4, 2).as_bytes(), &[6, 0]]);
    say(Command::REGION_WRITE, 0, &[access(region::CONFIG, 0x92, 2).as_bytes(), &[0, 0xc0]]);
    let irqs = |flags: u32, start: u32, count: u32| IrqSet {
        argsz: U32::new(20),
        flags: U32::new(flags),
        index: U32::new(irq::MSIX),
        start: U32::new(start),
        count: U32::new(count),
    };
    say(Command::DEVICE_SET_IRQS, 2, &[irqs(IrqSet::DATA_EVENTFD | IrqSet::ACTION_TRIGGER, 0, 2).as_bytes()]);
    say(Command::DEVICE_SET_IRQS, 0, &[irqs(IrqSet::DATA_NONE | IrqSet::ACTION_MASK, 1, 1).as_bytes()]);
    say(Command::REGION_WRITE, 0, &[access(0, 0x14, 4).as_bytes(), &[1, 0, 0x46, 0]]);
    say(Command::REGION_READ, 0, &[access(0, 0x1c, 4).as_bytes()]);
    let write = SmallWrite { offset: U64::new(0x1000), region: U32::new(0), count: U32::new(4), data: [1; 8] };
    say(Command::REGION_WRITE_MULTI, 0, &[WriteMulti { count: U64::new(1) }.as_bytes(), write.as_bytes()]);
    say(Command::REGION_WRITE, 0, &[access(region::CONFIG, 0x58, 2).as_bytes(), &[0, 0x80]]);
    say(Command::DEVICE_RESET, 0, &[]);
    let unmap = DmaUnmap { argsz: U32::new(24), size: U64::new(0xa0000), ..DmaUnmap::default() };
    say(Command::DMA_UNMAP, 0, &[unmap.as_bytes()]);
    let all = DmaUnmap { argsz: U32::new(24), flags: U32::new(DmaUnmap::ALL), ..DmaUnmap::default() };
    say(Command::DMA_UNMAP, 0, &[all.as_bytes()]);
    vec![wire]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seed is understood to its end: every command of it succeeds.
    #[test]
    fn seeds_are_served() {
        vfio_user_messages(&seeds()[0]);
        let (mut device, mut inbox) = (VfioUserDevice::new(SHAPE), Inbox::<()>::default());
        let mut board = Board { buffer: vec![0; SHAPE.buffer as usize], mapped: BTreeMap::new(), refuses: false };
        let (seed, mut at, mut served) = (seeds().remove(0), 0, 0);
        while at < seed.len() {
            let mut fds = (0..seed[at]).map(|_| ());
            at += 1;
            let message = loop {
                let space = inbox.space();
                let n = space.len();
                space.copy_from_slice(&seed[at..at + n]);
                at += n;
                if let Some(message) = inbox.advance(n, fds.by_ref()).unwrap() {
                    break message;
                }
            };
            let (command, mut out) = (message.header.command.get(), Vec::new());
            device.message(message, &mut board, &mut out);
            let Some(Action::Reply { bytes, .. }) = out.last() else { panic!("{out:?}") };
            assert!(!Header::read_from_prefix(bytes).unwrap().0.failed(), "command {command}");
            served += 1;
        }
        assert_eq!(served, 18);
    }
}
