//! A client that goes to another process: what it can find out stays as it was, and the layout, byte by byte, is that of `docs/reference/formats.md`.

use super::saved::{
    BellRecord, Head, LateRecord, UnansweredRecord, UnsentRecord, VERSION, get_head, head_rows, put_head, region_rows,
};
use super::tests::{Fd, Rig};
use super::*;
use proptest::prelude::*;
use std::format;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;
use weir_codec::{Reader, SavedError, Writer, undocumented};
use weir_spec::nvme::Cqe;
use weir_spec::nvme::tcp::{Digest, TableDigest};
use weir_spec::pci::{header, msix};
use weir_spec::vfio_user::{Command, DmaMap, Header, IrqSet, RegionAccess, irq, region};
use weir_units::Nanos;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

const SHAPE: DeviceShape =
    DeviceShape { vectors: 5, mapped_doorbells: true, buffer: 0x2000, serial: 0x0102_0304_0506_0708 };

fn map_message(address: u64) -> Vec<u8> {
    let map = DmaMap {
        argsz: U32::new(32),
        flags: U32::new(3),
        offset: U64::new(0),
        address: U64::new(address),
        size: U64::new(0x1000),
    };
    [Header::command(9, Command::DMA_MAP, 32).as_bytes(), map.as_bytes()].concat()
}

/// A device with something of everything, its client, and the descriptors beside them.
fn half_way() -> (Rig, SavedClient<Fd>, Vec<Fd>) {
    let mut rig = Rig::new(SHAPE);
    rig.write(region::CONFIG, header::COMMAND as u64, &6u16.to_le_bytes()).unwrap();
    rig.write(region::CONFIG, 0x92, &msix::Control(0).with_enable(1).0.to_le_bytes()).unwrap();
    rig.map(0x10000, 0x3000, vec![50]).unwrap();
    rig.map(0x40000, 0x1000, vec![]).unwrap();
    rig.map(0x8000, 0x1000, vec![51]).unwrap();
    rig.irqs(IrqSet::DATA_EVENTFD | IrqSet::ACTION_TRIGGER, irq::MSIX, 1, 3, &[], vec![61, 62, 63]).unwrap();
    rig.irqs(IrqSet::DATA_EVENTFD | IrqSet::ACTION_TRIGGER, irq::REQ, 0, 1, &[], vec![70]).unwrap();
    rig.irqs(IrqSet::DATA_NONE | IrqSet::ACTION_MASK, irq::MSIX, 2, 1, &[], vec![]).unwrap();
    rig.write(region::BAR0, TABLE + 16, &0xfee0_0000u32.to_le_bytes()).unwrap();
    rig.write(region::BAR0, TABLE + 16 + 12, &0u32.to_le_bytes()).unwrap();
    assert!(rig.device.fire(1) && !rig.device.fire(2));
    let requests = rig.device.requests();
    requests.read(Nanos(3), DmaTicket(4), 0x40000, 64).unwrap();
    requests.write(Nanos(4), DmaTicket(5), 0x40100, &[7; 8]).unwrap();
    requests.write(Nanos(5), DmaTicket(5), 0x40200, &[7; 8]).unwrap();
    let mut inbox = Inbox::default();
    let message = map_message(0x5000);
    inbox.space()[..9].copy_from_slice(&message[..9]);
    assert!(inbox.advance(9, [80]).unwrap().is_none());
    let mut whole = Inbox::default();
    let message = map_message(0x6000);
    whole.space().copy_from_slice(&message[..16]);
    assert!(whole.advance(16, [90]).unwrap().is_none());
    whole.space().copy_from_slice(&message[16..]);
    let parked = whole.advance(32, []).unwrap();
    assert!(parked.is_some());
    let mut cqe = Cqe::default();
    (cqe.cid, cqe.sqid) = (9.into(), 1.into());
    let late = Late { ticket: DmaTicket(5), address: 0x7010, vector: Some(3), cqe, writes: 2, failed: false };
    let unsent = vec![
        Unsent { bytes: vec![1; 20], sent: 3, with: None },
        Unsent { bytes: vec![2; 16], sent: 0, with: Some(Shared::Doorbells) },
        Unsent { bytes: vec![3; 16], sent: 0, with: Some(Shared::Buffer) },
    ];
    let bells = vec![
        Bell { seen: (3, 2), there: (true, true), rung: None, told: None },
        Bell { seen: (u32::MAX, 7), there: (true, true), rung: Some(5), told: Some(4) },
        Bell { seen: (0, 0), there: (false, true), rung: Some(0), told: None },
    ];
    let client = SavedClient { inbox, parked, request: true, unsent, bells, late: vec![late] };
    (rig, client, vec![51, 50, 61, 62, 63, 70, 80, 90])
}

fn save(rig: &Rig, client: &SavedClient<Fd>) -> Vec<u8> {
    rig.device.save::<TableDigest, _>(Nanos(10), client)
}

fn restore(bytes: &[u8], fds: &[Fd]) -> Result<(VfioUserDevice, SavedClient<Fd>, Vec<Fd>), SavedError> {
    VfioUserDevice::restore::<TableDigest, _>(Nanos(10), bytes, SHAPE, fds.to_vec())
}

#[test]
fn everything_is_as_it_was() {
    let (mut rig, client, fds) = half_way();
    assert_eq!(rig.device.mapped().map(|r| r.address).collect::<Vec<_>>(), [0x8000, 0x10000]);
    let bytes = save(&rig, &client);
    let (device, mut after, left) = restore(&bytes, &fds).unwrap();
    assert_eq!(left, [51, 50, 61, 62, 63, 70], "what is not of a message");
    assert_eq!(device.msix().assigned().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((device.client(), device.owed(), device.regions()), (rig.device.client(), Some(Nanos(3)), 3));
    assert_eq!(
        (&after.unsent, &after.bells, &after.late, after.request),
        (&client.unsent, &client.bells, &client.late, true)
    );
    // The rest of what was being received, and the one that waits.
    let message = map_message(0x5000);
    after.inbox.space().copy_from_slice(&message[9..16]);
    assert!(after.inbox.advance(7, []).unwrap().is_none());
    after.inbox.space().copy_from_slice(&message[16..]);
    let whole = after.inbox.advance(32, []).unwrap().unwrap();
    assert_eq!((whole.fds, &whole.payload[..]), (vec![80], &message[16..]));
    let parked = after.parked.take().unwrap();
    assert_eq!((parked.fds, &parked.payload[..]), (vec![90], &map_message(0x6000)[16..]));
    // The answers to what nobody waits for any more, and to what somebody does.
    let before = core::mem::replace(&mut rig.device, device);
    let answer = |id: u16, command: Command, address: u64, data: &[u8], count: u64| {
        let access = [address.to_le_bytes(), count.to_le_bytes()].concat();
        let header = Header::reply(&Header::command(id, command, 0), 16 + data.len());
        Message { header, payload: [&access, data].concat(), fds: vec![] }
    };
    rig.out.clear();
    rig.device.message(answer(0, Command::DMA_READ, 0x40000, &[1; 64], 64), &mut rig.board, &mut rig.out);
    assert!(rig.out.is_empty());
    rig.device.message(answer(1, Command::DMA_WRITE, 0x40100, &[], 8), &mut rig.board, &mut rig.out);
    assert!(matches!(&rig.out[..], [Action::Answered(a)] if a.ticket == DmaTicket(5)), "{:?}", rig.out);
    // A masked vector that had fired.
    rig.irqs(IrqSet::DATA_NONE | IrqSet::ACTION_UNMASK, irq::MSIX, 2, 1, &[], vec![]).unwrap();
    assert_eq!(rig.signals(), [2]);
    drop(before);
}

#[test]
fn a_device_that_shows_something_else_is_refused() {
    let (rig, client, fds) = half_way();
    let bytes = save(&rig, &client);
    let shapes = [
        DeviceShape { vectors: 6, ..SHAPE },
        DeviceShape { mapped_doorbells: false, ..SHAPE },
        DeviceShape { buffer: 0x1000, ..SHAPE },
        DeviceShape { serial: 1, ..SHAPE },
    ];
    for shape in shapes {
        let restored = VfioUserDevice::restore::<TableDigest, Fd>(Nanos(10), &bytes, shape, fds.clone());
        assert!(matches!(restored.err(), Some(SavedError::Misfit(_))));
    }
    let foreign = SavedError::Foreign("the state of a vfio-user client");
    let version = SavedError::Version { found: 3, oldest: 1, newest: 1 };
    for (at, error) in [(0, foreign), (8, version), (12, SavedError::Damaged)] {
        let mut other = bytes.clone();
        other[at] ^= 2;
        assert_eq!(restore(&other, &fds).err(), Some(error));
    }
    for len in 0..bytes.len() {
        assert!(restore(&bytes[..len], &fds).is_err());
    }
    for fds in [&fds[1..], &[&fds[..], &[1]].concat()] {
        assert_eq!(restore(&bytes, fds).err(), Some(SavedError::Damaged), "too few descriptors, or too many");
    }
}

/// Sixteen bytes a line; lines of zeroes are left out.
fn dump(bytes: &[u8]) -> Vec<String> {
    let lines = bytes.chunks(16).enumerate().filter(|(_, chunk)| chunk.iter().any(|b| *b != 0));
    let text = |chunk: &[u8]| chunk.iter().map(|b| format!("{b:02x}")).collect::<String>();
    lines.map(|(i, chunk)| format!("{:04x} {}", i * 16, text(chunk))).collect()
}

#[test]
fn golden_bytes_of_version_1() {
    let (rig, client, _) = half_way();
    let bytes = save(&rig, &client);
    let golden: Vec<String> = include_str!("saved_1.txt").lines().map(str::to_string).collect();
    assert_eq!((VERSION, dump(&bytes)), (1, golden), "a change of the layout is another version");
}

#[test]
fn the_golden_bytes_are_read() {
    let mut bytes: Vec<u8> = Vec::new();
    for line in include_str!("saved_1.txt").lines() {
        let (at, hex) = line.split_once(' ').unwrap();
        bytes.resize(usize::from_str_radix(at, 16).unwrap(), 0);
        bytes.extend((0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()));
    }
    let (_, client, fds) = half_way();
    let (device, after, _) = restore(&bytes, &fds).unwrap();
    assert_eq!((device.regions(), after.unsent, after.late), (3, client.unsent, client.late));
}

/// Bytes before configuration space, and of a record.
const HEAD: usize = 104;
const REGION: usize = 32;
const UNANSWERED: usize = 32;
const BELL: usize = 20;
const LATE: usize = 40;

/// Changed where a checksum does not help: whoever wrote it made it right.
fn mend(bytes: &mut [u8]) {
    let last = bytes.len() - 4;
    let crc = TableDigest::append(0, &bytes[..last]);
    bytes[last..].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn what_contradicts_itself_is_refused() {
    let (rig, client, fds) = half_way();
    let bytes = save(&rig, &client);
    let heads: [fn(&mut Head); 9] = [
        |h| h.regions = 1025,
        |h| h.requests = u32::MAX,
        |h| h.bells = 0x7fff_ffff,
        |h| h.late = 4,
        |h| h.unsent = u32::MAX,
        |h| h.inbox = 8,
        |h| h.parked = 0,
        |h| h.parked_fds = 17,
        // Too few bytes in a message.
        |h| h.says.max_data_xfer_size = 511,
    ];
    for (i, change) in heads.into_iter().enumerate() {
        let (mut head, mut to) = (Head::default(), Writer::default());
        get_head(&mut head, &mut Reader::of(&bytes[16..])).unwrap();
        change(&mut head);
        put_head(&head, &mut to);
        let mut other = [&bytes[..16], &to.done(), &bytes[HEAD..]].concat();
        mend(&mut other);
        assert_eq!(restore(&other, &fds).err(), Some(SavedError::Damaged), "{i}");
    }
    let regions = HEAD + 4096 + 5 + 5 * 16;
    let requests = regions + 3 * REGION;
    let late = requests + 3 * UNANSWERED + 3 * BELL;
    let unsent = late + LATE;
    let wrong: &[(usize, &[u8])] = &[
        // Unknown flags.
        (16, &0xffu32.to_le_bytes()),
        // A vector's flags, its vector control.
        (HEAD + 4096, &[16]),
        (HEAD + 4096 + 5 + 12, &[2]),
        // A region that is no pages, grants nothing, overlaps the next one.
        (regions, &0x8001u64.to_le_bytes()),
        (regions + 24, &4u64.to_le_bytes()),
        (regions + 8, &0x9000u64.to_le_bytes()),
        (regions + 8, &0u64.to_le_bytes()),
        (requests + 30, &4u16.to_le_bytes()),
        (requests + 28, &1u16.to_le_bytes()),
        (requests + 24, &u32::MAX.to_le_bytes()),
        (late, &6u64.to_le_bytes()),
        (late, &u64::MAX.to_le_bytes()),
        (late + 36, &1u32.to_le_bytes()),
        (late + 34, &5u16.to_le_bytes()),
        (unsent + 4, &20u32.to_le_bytes()),
        (unsent + 8, &3u32.to_le_bytes()),
        (unsent, &u32::MAX.to_le_bytes()),
    ];
    for (at, with) in wrong {
        let mut other = bytes.clone();
        other[*at..*at + with.len()].copy_from_slice(with);
        mend(&mut other);
        assert_eq!(restore(&other, &fds).err(), Some(SavedError::Damaged), "{at}: {with:x?}");
    }
}

#[test]
fn fields_are_lines_of_the_formats_page() {
    let page = include_str!("../../../../docs/reference/formats.md");
    let states = [
        ("the fixed part", head_rows()),
        ("a DMA region", region_rows()),
        ("a message without an answer", UnansweredRecord::rows()),
        ("doorbells", BellRecord::rows()),
        ("a completion", LateRecord::rows()),
        ("an unsent message", UnsentRecord::rows()),
    ];
    let missing = undocumented(page, states);
    assert!(missing.is_empty(), "formats.md has other lines than these:\n{missing}");
}

/// A client's next message.
fn message(kind: u8, a: u16, b: u32) -> (Command, Vec<u8>, Vec<Fd>) {
    let access = |region: u32, offset: u64, data: &[u8], count: u32| {
        let access = RegionAccess { offset: U64::new(offset), region: U32::new(region), count: U32::new(count) };
        [access.as_bytes(), data].concat()
    };
    let irqs = |flags: u32, index: u32, start: u32, fds: Vec<Fd>| {
        let set = [20, flags, index, start, 1].map(U32::new);
        (Command::DEVICE_SET_IRQS, set.as_bytes().to_vec(), fds)
    };
    let at = u64::from(a);
    match kind {
        0 => (Command::REGION_READ, access(region::CONFIG, at % 4000, &[], 64), vec![]),
        1 => (Command::REGION_WRITE, access(region::CONFIG, at % 0x100, &b.to_le_bytes(), 4), vec![]),
        2 => (Command::REGION_WRITE, access(region::BAR0, TABLE + at % 20 * 4, &b.to_le_bytes(), 4), vec![]),
        3 => (Command::REGION_READ, access(region::BAR0, PENDING, &[], 8), vec![]),
        4 => irqs(
            IrqSet::DATA_EVENTFD | IrqSet::ACTION_TRIGGER,
            irq::MSIX,
            b % 6,
            if a % 3 > 0 { vec![b] } else { vec![] },
        ),
        5 => irqs(
            IrqSet::DATA_NONE | [IrqSet::ACTION_MASK, IrqSet::ACTION_UNMASK][usize::from(a % 2)],
            irq::MSIX,
            b % 6,
            vec![],
        ),
        6 => {
            let message = map_message(u64::from(b % 8) * 0x1000);
            (Command::DMA_MAP, message[16..].to_vec(), if a % 3 > 0 { vec![b] } else { vec![] })
        }
        7 => {
            let address = u64::from(b % 8) * 0x1000;
            let payload =
                [&24u32.to_le_bytes()[..], &[0; 4], &address.to_le_bytes(), &0x1000u64.to_le_bytes()].concat();
            (Command::DMA_UNMAP, payload, vec![])
        }
        8 => irqs(IrqSet::DATA_NONE | IrqSet::ACTION_TRIGGER, irq::MSIX, b % 6, vec![]),
        _ => (Command::DEVICE_RESET, vec![], vec![]),
    }
}

proptest! {
    /// One device is moved before every message, the other never: nobody can tell them apart.
    #[test]
    fn who_moves_says_the_same(messages in prop::collection::vec((0u8..10, any::<u16>(), any::<u32>()), 1..60)) {
        let (mut stays, mut moves) = (Rig::new(SHAPE), Rig::new(SHAPE));
        for (kind, a, b) in messages {
            let none = SavedClient { inbox: Inbox::default(), parked: None, request: false, unsent: vec![], bells: vec![], late: vec![] };
            let bytes = save(&moves, &none);
            let fds = vec![0; moves.device.mapped().count() + moves.device.msix().assigned().count()];
            let (device, client, _) = restore(&bytes, &fds).unwrap();
            moves.device = device;
            prop_assert_eq!(save(&moves, &client), bytes);
            let (command, payload, fds) = message(kind, a, b);
            let said = [&mut stays, &mut moves].map(|rig| {
                let answer = rig.say(command, &payload, fds.clone());
                let fired = rig.device.fire(a % 5);
                format!("{answer:?} {:?} {fired}", rig.out)
            });
            prop_assert_eq!(&said[0], &said[1]);
        }
    }

    #[test]
    fn whatever_the_bytes_say_nothing_breaks(at in any::<usize>(), flip in 1u8.., also in any::<usize>(), other in any::<u8>()) {
        let (mut rig, client, fds) = half_way();
        let mut bytes = save(&rig, &client);
        let last = bytes.len() - 4;
        bytes[at % (last - 16) + 16] ^= flip;
        bytes[also % (last - 16) + 16] ^= other;
        mend(&mut bytes);
        if let Ok((device, client, _)) = restore(&bytes, &fds) {
            rig.device = device;
            let again = save(&rig, &client);
            prop_assert!(restore(&again, &fds).is_ok());
            for vector in 0..5 {
                rig.device.fire(vector);
            }
            let _ = (rig.read(region::BAR0, TABLE, 256), rig.read(region::CONFIG, 0, 256));
        }
    }
}
