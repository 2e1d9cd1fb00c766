use super::chain;
use super::guest::{DATA, Guest, Piece, RAM, RAM_LEN, SECTORS};
use crate::memory::Memory;
use crate::vhost_user::{Action, Disk, DriveCommand, Op};
use alloc::vec;
use alloc::vec::Vec;
use weir_spec::vhost_user::VringState;
use weir_spec::virtio_blk::{RangeSegment, RequestHeader, RequestStatus, RequestType, feature as blk};
use weir_spec::virtqueue::feature;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

const OK: RequestStatus = RequestStatus::OK;
const IOERR: RequestStatus = RequestStatus::IOERR;
const UNSUPP: RequestStatus = RequestStatus::UNSUPP;
/// Where requests' data lie.
const BUFFER: u64 = DATA + 0x1000;

fn out(g: &mut Guest, sector: u64, bytes: &[u8]) -> RequestStatus {
    g.ram.write(BUFFER, bytes).unwrap();
    let pieces = chain(g, RequestType::OUT, sector, &[(BUFFER, bytes.len() as u32, false)]);
    g.request(&pieces)
}

fn range(g: &mut Guest, kind: RequestType, sector: u64, count: u32, flags: u32) -> RequestStatus {
    let segment = RangeSegment { sector: U64::new(sector), num_sectors: U32::new(count), flags: U32::new(flags) };
    g.ram.write(BUFFER, segment.as_bytes()).unwrap();
    let pieces = chain(g, kind, 0, &[(BUFFER, 16, false)]);
    g.request(&pieces)
}

#[test]
fn what_was_written_is_read() {
    let mut g = Guest::split(8, 0);
    let bytes: Vec<u8> = (0..1024).map(|i| i as u8).collect();
    assert_eq!(out(&mut g, 3, &bytes), OK);
    assert_eq!(&g.disk[1536..2560], &bytes);
    let pieces = chain(&g, RequestType::IN, 3, &[(BUFFER + 0x2000, 1024, true)]);
    let before = g.used_index();
    assert_eq!(g.request(&pieces), OK);
    assert_eq!(g.bytes(BUFFER + 0x2000, 1024), bytes);
    assert_eq!(g.used(before), (0, 1025), "data and status were written");
}

/// Any split of header, data and status over descriptors is the same request; SeaBIOS's headers are not aligned.
#[test]
fn framing_does_not_matter() {
    let data: Vec<u8> = (0..1024).map(|i| (i * 7) as u8).collect();
    let at = DATA + 0x333;
    for cut in [1u32, 3, 8, 15, 16, 17, 100, 512, 1039] {
        let mut g = Guest::split(64, 0);
        g.ram.write(at, RequestHeader::new(RequestType::OUT, 1).as_bytes()).unwrap();
        g.ram.write(at + 16, &data).unwrap();
        let mut pieces: Vec<Piece> = Vec::new();
        let mut from = 0;
        while from < 1040 && pieces.len() < 60 {
            let n = if pieces.len() == 59 { 1040 - from } else { cut.min(1040 - from) };
            pieces.push((at + u64::from(from), n, false));
            from += n;
        }
        pieces.push((DATA + 16, 1, true));
        g.ram.write(DATA + 16, &[0xee]).unwrap();
        assert_eq!(g.request(&pieces), OK, "pieces of {cut}");
        assert_eq!(&g.disk[512..1536], &data, "pieces of {cut}");
        // And the reverse: read into pieces, the status byte at the end of the last.
        let header = RequestHeader::new(RequestType::IN, 1);
        g.ram.write(at, header.as_bytes()).unwrap();
        let into = DATA + 0x4001;
        let mut pieces: Vec<Piece> = vec![(at, 7, false), (at + 7, 9, false)];
        let mut from = 0;
        while from < 1025 {
            let n = if pieces.len() == 60 { 1025 - from } else { cut.min(1025 - from) };
            pieces.push((into + u64::from(from), n, true));
            from += n;
        }
        assert_eq!(g.request(&pieces), OK, "pieces of {cut}");
        assert_eq!(g.bytes(into, 1024), data, "pieces of {cut}");
    }
}

#[test]
fn many_segments_are_kept_and_given_back() {
    let mut g = Guest::split(256, 0);
    for round in 0..50 {
        let data: Vec<Piece> = (0..120u64).map(|i| (BUFFER + i * 1024, 512, true)).collect();
        let pieces = chain(&g, RequestType::IN, round, &data);
        g.disk[(round as usize + 119) * 512] = 77;
        assert_eq!(g.request(&pieces), OK);
        assert_eq!(g.bytes(BUFFER + 119 * 1024, 1), [77]);
    }
}

#[test]
fn a_descriptor_may_cross_huge_pages() {
    let mut g = Guest::split(8, 0);
    let at = (RAM + 0x40_0000).next_multiple_of(2 << 20) - 512;
    let pieces = chain(&g, RequestType::IN, 0, &[(at, 1 << 20, true)]);
    g.disk[..1 << 20].fill(0x5a);
    assert_eq!(g.request(&pieces), OK);
    assert!(g.bytes(at, 1 << 20).iter().all(|b| *b == 0x5a));
}

#[test]
fn lengths_are_whole_sectors_and_blocks() {
    let mut g = Guest::split(8, 0);
    for len in [1, 511, 513, 1000] {
        let pieces = chain(&g, RequestType::IN, 0, &[(BUFFER, len, true)]);
        assert_eq!(g.request(&pieces), IOERR, "{len}");
    }
    let nothing = chain(&g, RequestType::IN, 0, &[]);
    assert_eq!(g.request(&nothing), IOERR);
    let nothing = chain(&g, RequestType::OUT, 0, &[]);
    assert_eq!(g.request(&nothing), IOERR);
    let large = Disk { block_shift: 12, ..Disk::new(SECTORS * 512, "") };
    let mut g = Guest::with_disk(large, feature::RING_PACKED);
    g.start(0, 8, 0);
    for (sector, len, status) in [(0, 4096, OK), (8, 8192, OK), (1, 4096, IOERR), (0, 512, IOERR), (0, 4608, IOERR)] {
        let pieces = chain(&g, RequestType::IN, sector, &[(BUFFER, len, true)]);
        assert_eq!(g.request(&pieces), status, "{len} at {sector}");
    }
}

#[test]
fn the_end_of_the_disk_is_the_end() {
    let mut g = Guest::split(8, 0);
    for (sector, len, status) in [
        (SECTORS - 1, 512, OK),
        (SECTORS - 1, 1024, IOERR),
        (SECTORS, 512, IOERR),
        (u64::MAX, 512, IOERR),
        (u64::MAX / 512 + 1, 512, IOERR),
    ] {
        let pieces = chain(&g, RequestType::IN, sector, &[(BUFFER, len, true)]);
        assert_eq!(g.request(&pieces), status, "{len} at {sector}");
    }
}

#[test]
fn flush_is_for_the_whole_disk() {
    let mut g = Guest::split(8, 0);
    let pieces = chain(&g, RequestType::FLUSH, 0, &[]);
    assert_eq!(g.request(&pieces), OK);
    let pieces = chain(&g, RequestType::FLUSH, 1, &[]);
    assert_eq!(g.request(&pieces), UNSUPP);
}

#[test]
fn unknown_types_are_unsupported() {
    let mut g = Guest::split(8, 0);
    for kind in [RequestType::SCSI_CMD, RequestType::SECURE_ERASE, RequestType::GET_LIFETIME, RequestType(0x8000_0001)]
    {
        let pieces = chain(&g, kind, 0, &[(BUFFER, 512, true)]);
        assert_eq!(g.request(&pieces), UNSUPP, "{kind:?}");
    }
}

#[test]
fn get_id_fills_what_there_is() {
    let mut g = Guest::split(8, 0);
    let pieces = chain(&g, RequestType::GET_ID, 0, &[(BUFFER, 20, true)]);
    g.ram.write(BUFFER, &[0xff; 24]).unwrap();
    assert_eq!(g.request(&pieces), OK);
    assert_eq!(g.bytes(BUFFER, 21), b"serial\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xff");
    let pieces = chain(&g, RequestType::GET_ID, 0, &[(BUFFER + 64, 2, true), (BUFFER + 96, 40, true)]);
    assert_eq!(g.request(&pieces), OK);
    assert_eq!((g.bytes(BUFFER + 64, 2), g.bytes(BUFFER + 96, 4)), (b"se".to_vec(), b"rial".to_vec()));
    let pieces = chain(&g, RequestType::GET_ID, 0, &[]);
    assert_eq!(g.request(&pieces), IOERR);
    g.device.renew("another", 7, &mut g.out);
    let pieces = chain(&g, RequestType::GET_ID, 0, &[(BUFFER, 20, true)]);
    assert_eq!(g.request(&pieces), OK);
    assert_eq!(g.bytes(BUFFER, 8), b"another\0");
}

#[test]
fn nothing_of_another_disk_is_seen_before_its_driver_has_looked() {
    let mut g = Guest::split(8, 0);
    let ask = |g: &mut Guest, kind, len: u32| {
        let data = [(BUFFER, len, kind != RequestType::OUT)];
        let pieces = chain(g, kind, 0, if len == 0 { &[] } else { &data });
        g.request(&pieces)
    };
    assert_eq!(ask(&mut g, RequestType::IN, 512), OK);
    g.disk.fill(9);
    for renewed in 0..2 {
        g.device.renew("another", 7, &mut g.out);
        g.ram.write(BUFFER, &[7; 512]).unwrap();
        let (read, write) = ((RequestType::IN, 512), (RequestType::OUT, 512));
        for (kind, len) in [read, write, (RequestType::FLUSH, 0), (RequestType::GET_ID, 0), read] {
            assert_eq!(ask(&mut g, kind, len), IOERR, "{renewed} {kind:?}");
        }
        assert_eq!((g.bytes(BUFFER, 512), g.disk[0]), (vec![7; 512], 9), "nothing has moved");
        assert_eq!(ask(&mut g, RequestType::GET_ID, 20), OK);
        assert_eq!(ask(&mut g, RequestType::FLUSH, 0), OK);
    }
    assert_eq!((ask(&mut g, RequestType::IN, 512), g.bytes(BUFFER, 512)), (OK, vec![9; 512]));
}

#[test]
fn discard_and_write_zeroes_take_one_segment() {
    for kind in [RequestType::DISCARD, RequestType::WRITE_ZEROES] {
        let mut g = Guest::split(8, 0);
        g.disk.fill(9);
        assert_eq!(range(&mut g, kind, 2, 3, 0), OK);
        assert!(g.disk[1024..2560].iter().all(|b| *b == 0) && g.disk[1023] == 9 && g.disk[2560] == 9);
        assert_eq!(range(&mut g, kind, 0, 0, 0), OK, "nothing to do");
        assert_eq!(range(&mut g, kind, SECTORS - 1, 2, 0), IOERR);
        assert_eq!(range(&mut g, kind, u64::MAX, 2, 0), IOERR);
        assert_eq!(range(&mut g, kind, 0, u32::MAX, 0), IOERR, "more than the limit");
        for len in [8, 15, 17, 32, 48] {
            let pieces = chain(&g, kind, 0, &[(BUFFER, len, false)]);
            assert_eq!(g.request(&pieces), UNSUPP, "{len} bytes of segments");
        }
        let none = chain(&g, kind, 0, &[]);
        assert_eq!(g.request(&none), UNSUPP);
        // One segment in two descriptors is still one.
        g.ram.write(BUFFER, RangeSegment { num_sectors: U32::new(1), ..Default::default() }.as_bytes()).unwrap();
        let split = chain(&g, kind, 0, &[(BUFFER, 5, false), (BUFFER + 5, 11, false)]);
        assert_eq!(g.request(&split), OK);
        let nowhere = chain(&g, kind, 0, &[(RAM + RAM_LEN, 16, false)]);
        assert_eq!(g.request(&nowhere), IOERR);
    }
}

#[test]
fn unmap_means_something_for_write_zeroes_only() {
    let mut g = Guest::split(8, 0);
    assert_eq!(range(&mut g, RequestType::DISCARD, 0, 1, RangeSegment::UNMAP), UNSUPP);
    // Linux sets it whether or not the device said that it may deallocate.
    assert_eq!(range(&mut g, RequestType::WRITE_ZEROES, 0, 1, RangeSegment::UNMAP), OK);
    for kind in [RequestType::DISCARD, RequestType::WRITE_ZEROES] {
        for flags in [2, 3, 1 << 31] {
            assert_eq!(range(&mut g, kind, 0, 1, flags), UNSUPP, "{kind:?} {flags:x}");
        }
    }
    let segment = RangeSegment { num_sectors: U32::new(1), flags: U32::new(1), ..Default::default() };
    g.ram.write(BUFFER, segment.as_bytes()).unwrap();
    let pieces = chain(&g, RequestType::WRITE_ZEROES, 0, &[(BUFFER, 16, false)]);
    g.lay(0, &pieces);
    g.offer(0);
    assert_eq!(g.take().unwrap()[0].op, Op::WriteZeroes { unmap: true });
}

#[test]
fn what_was_not_negotiated_is_unsupported() {
    let mut g = Guest::split(8, blk::DISCARD | blk::WRITE_ZEROES);
    assert_eq!(range(&mut g, RequestType::DISCARD, 0, 1, 0), UNSUPP);
    assert_eq!(range(&mut g, RequestType::WRITE_ZEROES, 0, 1, 0), UNSUPP);
}

#[test]
fn a_read_only_disk_is_not_written() {
    let disk = Disk { read_only: true, ..Disk::new(SECTORS * 512, "") };
    assert_ne!(disk.features() & blk::RO, 0);
    let mut g = Guest::with_disk(disk, feature::RING_PACKED);
    g.start(0, 8, 0);
    assert_eq!(out(&mut g, 0, &[1; 512]), IOERR);
    assert_eq!(range(&mut g, RequestType::DISCARD, 0, 1, 0), IOERR);
    assert_eq!(range(&mut g, RequestType::WRITE_ZEROES, 0, 1, 0), IOERR);
    let pieces = chain(&g, RequestType::IN, 0, &[(BUFFER, 512, true)]);
    assert_eq!(g.request(&pieces), OK);
    assert!(g.disk.iter().all(|b| *b == 0));
}

#[test]
fn data_outside_memory_fails_the_request_alone() {
    let mut g = Guest::split(8, 0);
    for address in [0, RAM + RAM_LEN, RAM - 512, u64::MAX - 512, RAM + RAM_LEN - 256] {
        let pieces = chain(&g, RequestType::IN, 0, &[(address, 512, true)]);
        assert_eq!(g.request(&pieces), IOERR, "{address:x}");
        let pieces = chain(&g, RequestType::OUT, 0, &[(address, 512, false)]);
        assert_eq!(g.request(&pieces), IOERR, "{address:x}");
    }
    let mut pieces = chain(&g, RequestType::OUT, 0, &[(BUFFER, 512, false)]);
    pieces[0].0 = RAM - 8;
    assert_eq!(g.request(&pieces), IOERR, "a header outside memory");
    assert!(g.device.is_served(0));
}

#[test]
fn a_long_request_becomes_several_commands() {
    let disk = Disk { max_transfer: 4096, max_commands: 5, ..Disk::new(SECTORS * 512, "") };
    let mut g = Guest::with_disk(disk, feature::RING_PACKED);
    g.start(0, 8, 0);
    let bytes: Vec<u8> = (0..100 * 512u32).map(|i| (i / 7) as u8).collect();
    g.ram.write(BUFFER, &bytes).unwrap();
    // In three uneven segments, so that parts begin and end inside of them.
    let data = [(BUFFER, 5000, false), (BUFFER + 5000, 30000, false), (BUFFER + 35000, 16200, false)];
    let pieces = chain(&g, RequestType::OUT, 10, &data);
    g.lay(0, &pieces);
    g.offer(0);
    let mut seen = 0;
    loop {
        let taken = g.take().unwrap();
        if taken.is_empty() {
            break;
        }
        assert!(taken.len() <= 5);
        seen += taken.len();
        // In any order.
        for t in taken.iter().rev() {
            assert!(t.len <= 4096);
            g.execute(t);
        }
    }
    assert_eq!(seen, 13);
    g.device.publish(&g.memory, 0);
    assert_eq!((g.used_index(), &g.disk[5120..5120 + bytes.len()]), (1, &bytes[..]));
}

#[test]
fn one_failed_part_fails_the_request() {
    let disk = Disk { max_transfer: 512, ..Disk::new(SECTORS * 512, "") };
    let mut g = Guest::with_disk(disk, feature::RING_PACKED);
    g.start(0, 8, 0);
    let pieces = chain(&g, RequestType::IN, 0, &[(BUFFER, 2048, true)]);
    g.lay(0, &pieces);
    g.offer(0);
    for (i, t) in g.take().unwrap().into_iter().enumerate() {
        let status = [OK, UNSUPP, IOERR, OK][i];
        g.device.publish(&g.memory, 0);
        assert!(!g.device.wants_signal(&g.memory, 0));
        g.device.complete(&g.memory, t.tag, status);
    }
    g.device.publish(&g.memory, 0);
    assert_eq!(g.bytes(DATA + 16, 1), [IOERR.0]);
}

/// A guest with a request in five commands, of which the first two have been given out.
fn partly_given_out() -> (Guest, Vec<DriveCommand>) {
    let disk = Disk { max_transfer: 512, max_commands: 2, ..Disk::new(SECTORS * 512, "") };
    let mut g = Guest::with_disk(disk, feature::RING_PACKED);
    g.start(0, 8, 0);
    let pieces = chain(&g, RequestType::IN, 0, &[(BUFFER, 2560, true)]);
    g.lay(0, &pieces);
    g.offer(0);
    let first = g.take().unwrap();
    assert_eq!(first.len(), 2);
    (g, first)
}

/// Stops its ring, and carries out what is given out, until the answer can go.
fn stop_and_drain(g: &mut Guest, mut todo: Vec<DriveCommand>) {
    g.out.clear();
    g.send(weir_spec::vhost_user::Request::GET_VRING_BASE, &[0; 8], vec![]);
    assert!(g.out.iter().any(|a| matches!(a, Action::Poll(0))), "somebody looks at it: {:?}", g.out);
    todo.extend(g.take().unwrap());
    while let Some(t) = todo.pop() {
        g.execute(&t);
        todo.extend(g.take().unwrap());
    }
    g.device.settle(&g.memory, &mut g.out);
    assert!(!g.device.is_draining());
    assert_eq!(g.used_index(), 1);
}

/// QEMU disables all rings before it stops one after the other.
#[test]
fn a_disabled_ring_is_polled_once_it_is_stopped() {
    let (mut g, first) = partly_given_out();
    let disabled = VringState { index: U32::ZERO, num: U32::ZERO };
    g.send(weir_spec::vhost_user::Request::SET_VRING_ENABLE, disabled.as_bytes(), vec![]);
    first.iter().for_each(|t| g.execute(t));
    assert_eq!(g.take(), Ok(vec![]), "it is disabled, and nobody looks at it any more");
    stop_and_drain(&mut g, Vec::new());
}

#[test]
fn a_drain_finishes_a_request_that_is_partly_given_out() {
    let (mut g, first) = partly_given_out();
    stop_and_drain(&mut g, first);
}
