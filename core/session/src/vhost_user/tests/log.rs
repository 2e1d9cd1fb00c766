//! The dirty log: every byte that the device changed lies in a page whose bit is set.

use super::chain;
use super::guest::{DATA, Guest, Piece, RAM, RAM_LEN, USER};
use super::packed::{Driver, START};
use crate::memory::Memory;
use crate::memory::model::ModelMemory;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_spec::vhost_user::{F_LOG_ALL, LOG_PAGE, LogBase, Request, VringAddress, protocol};
use weir_spec::virtio_blk::{RequestStatus, RequestType};
use weir_spec::virtqueue::feature;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// A bit for every page of the guest.
const LOG_BYTES: u64 = (RAM + RAM_LEN) / LOG_PAGE / 8;

fn base(len: u64, offset: u64) -> LogBase {
    LogBase { mmap_size: U64::new(len), mmap_offset: U64::new(offset) }
}

/// A bitmap, as the front end keeps it: its words lie at address 0.
fn bitmap() -> Rc<ModelMemory> {
    Rc::new(ModelMemory::flat(0, 2 * LOG_BYTES as usize))
}

/// Hands it over; the answer has no payload.
fn set_log(g: &mut Guest, map: &Rc<ModelMemory>) {
    g.send(Request::SET_LOG_BASE, base(LOG_BYTES, 0).as_bytes(), vec![map.clone()]);
    assert_eq!(g.reply(Request::SET_LOG_BASE), Some(vec![]));
}

fn log_all(g: &mut Guest, on: bool) {
    let features = g.device.features() & !F_LOG_ALL | if on { F_LOG_ALL } else { 0 };
    assert_eq!(g.ask(Request::SET_FEATURES, U64::new(features).as_bytes(), vec![]), 0);
}

/// SET_VRING_ADDR of queue 0 with the flag.
fn log_ring(g: &mut Guest, at: u64) -> u64 {
    let places = Guest::places(0);
    let [descriptor, available, used] = places.map(|a| U64::new(a - RAM + USER));
    let flags = U32::new(VringAddress::LOG);
    let a = VringAddress { index: U32::ZERO, flags, descriptor, used, available, log: U64::new(at) };
    g.ask(Request::SET_VRING_ADDR, a.as_bytes(), vec![])
}

/// The pages whose bits are set; they are taken away.
fn marked(map: &ModelMemory) -> Vec<u64> {
    let mut bytes = vec![0; LOG_BYTES as usize];
    map.read(0, &mut bytes).unwrap();
    map.write(0, &vec![0; LOG_BYTES as usize]).unwrap();
    let mut beyond = vec![0; LOG_BYTES as usize];
    map.read(LOG_BYTES, &mut beyond).unwrap();
    assert!(beyond.iter().all(|b| *b == 0), "nothing is stored behind the log");
    (0..8 * LOG_BYTES).filter(|page| bytes[(page / 8) as usize] >> (page % 8) & 1 != 0).collect()
}

/// The pages that differ from what they were.
fn changed(g: &Guest, before: &[u8]) -> Vec<u64> {
    let now = g.bytes(RAM, RAM_LEN as usize);
    let page = LOG_PAGE as usize;
    let differ = |i: &usize| now[i * page..][..page] != before[i * page..][..page];
    (0..now.len() / page).filter(differ).map(|i| RAM / LOG_PAGE + i as u64).collect()
}

fn pages(address: u64, len: u64) -> core::ops::RangeInclusive<u64> {
    address / LOG_PAGE..=(address + len - 1) / LOG_PAGE
}

/// A guest that is being copied, split or packed.
fn copied(packed: bool) -> (Guest, Driver, Rc<ModelMemory>) {
    let mut g = Guest::without(F_LOG_ALL | if packed { 0 } else { feature::RING_PACKED });
    g.start(0, 8, if packed { START } else { 0 });
    for (i, byte) in g.disk.iter_mut().enumerate() {
        *byte = (i / 512 + i) as u8 | 1;
    }
    let map = bitmap();
    set_log(&mut g, &map);
    log_all(&mut g, true);
    assert_eq!(log_ring(&mut g, Guest::places(0)[2]), 0);
    marked(&map);
    (g, Driver::new(8), map)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(5)))]
    /// Reads of any place and length, spread over buffers of any kind, both rings.
    #[test]
    fn what_changed_is_marked(
        packed in any::<bool>(),
        requests in proptest::collection::vec((0u64..4000, 1u32..40, 1usize..4, 0u64..0x5000), 1..12),
    ) {
        let (mut g, mut d, map) = copied(packed);
        for (sector, count, parts, shift) in requests {
            let len = 512 * count;
            let each = (len / parts as u32).max(1);
            let mut data: Vec<Piece> = Vec::new();
            let mut left = len;
            for part in 0..parts {
                let n = if part + 1 == parts { left } else { each.min(left) };
                data.push((DATA + 0x1000 + shift + part as u64 * 0x1_0000, n, true));
                left -= n;
            }
            let pieces = chain(&g, RequestType::IN, sector.min(4096 - 40), &data);
            if packed { d.offer(&g, 0, &pieces) } else { g.lay(0, &pieces); g.offer(0) }
            let before = g.bytes(RAM, RAM_LEN as usize);
            g.serve();
            let (changed, marked) = (changed(&g, &before), marked(&map));
            for page in &changed {
                prop_assert!(marked.contains(page), "page {page:#x} changed, marked are {marked:x?}");
            }
            // And nothing else, but for what the device may write.
            let status = pieces.last().unwrap();
            let mut may: Vec<u64> = data.iter().flat_map(|p| pages(p.0, p.1.into())).collect();
            may.extend(pages(status.0, 1));
            may.extend(Guest::places(0).iter().flat_map(|a| pages(*a, 256)));
            prop_assert!(marked.iter().all(|page| may.contains(page)), "{marked:x?} of {may:x?}");
            if packed { d.used(&g, if packed { parts as u16 + 2 } else { 1 }); }
        }
    }
}

#[test]
fn the_device_s_name_and_errors_are_marked_as_well() {
    let (mut g, _, map) = copied(false);
    let name = [(DATA + 0x3000, 20, true)];
    for (kind, status) in [(RequestType::GET_ID, RequestStatus::OK), (RequestType(99), RequestStatus::UNSUPP)] {
        let pieces = chain(&g, kind, 0, &name);
        let before = g.bytes(RAM, RAM_LEN as usize);
        assert_eq!(g.request(&pieces), status);
        let (changed, marked) = (changed(&g, &before), marked(&map));
        // The driver's own writes are in what changed; they are in the same pages as the device's.
        assert!(marked.contains(&((DATA + 16) / LOG_PAGE)), "the status byte");
        assert!(changed.contains(&((DATA + 0x3000) / LOG_PAGE)) == (status == RequestStatus::OK));
        assert!(marked.contains(&((DATA + 0x3000) / LOG_PAGE)) == (status == RequestStatus::OK));
        assert!(marked.contains(&(Guest::places(0)[2] / LOG_PAGE)), "the used ring");
    }
}

#[test]
fn it_begins_and_ends_while_requests_are_in_flight() {
    let (mut g, _, map) = copied(false);
    log_all(&mut g, false);
    let read = |g: &mut Guest, at: u64| {
        let pieces = chain(g, RequestType::IN, 1, &[(at, 512, true)]);
        g.lay(0, &pieces);
        g.offer(0);
        g.take().unwrap()
    };
    let taken = read(&mut g, DATA + 0x8000);
    log_all(&mut g, true);
    marked(&map);
    taken.iter().for_each(|t| g.execute(t));
    g.device.publish(&g.memory, 0);
    let data = (DATA + 0x8000) / LOG_PAGE;
    assert!(marked(&map).contains(&data), "it was taken before and moved after");
    // Without the ring's flag only data is marked, without VHOST_F_LOG_ALL only the ring.
    assert_eq!(g.set_address(0), 0);
    let taken = read(&mut g, DATA + 0x8000);
    taken.iter().for_each(|t| g.execute(t));
    g.device.publish(&g.memory, 0);
    assert_eq!(marked(&map), [DATA / LOG_PAGE, data]);
    log_all(&mut g, false);
    let taken = read(&mut g, DATA + 0x8000);
    taken.iter().for_each(|t| g.execute(t));
    g.device.publish(&g.memory, 0);
    assert_eq!(marked(&map), []);
}

#[test]
fn the_used_ring_is_marked_where_the_log_expects_it() {
    let (mut g, _, map) = copied(false);
    // It need not be an address of the guest's memory, only of the log.
    assert_eq!(log_ring(&mut g, 3 * LOG_PAGE - 2), 0);
    marked(&map);
    let pieces = chain(&g, RequestType::FLUSH, 0, &[]);
    assert_eq!(g.request(&pieces), RequestStatus::OK);
    assert_eq!(marked(&map), [2, 3, DATA / LOG_PAGE]);
}

#[test]
fn a_log_that_cannot_be_is_refused() {
    let (mut g, _, map) = copied(false);
    let huge = u64::MAX - 7;
    for (len, offset) in [(0, 0), (huge, 0), (8, huge), (u64::MAX, 0), (8, 3), (2 * LOG_BYTES + 8, 0)] {
        assert_eq!(g.ask(Request::SET_LOG_BASE, base(len, offset).as_bytes(), vec![map.clone()]), 1, "{len} {offset}");
    }
    assert_eq!(g.ask(Request::SET_LOG_BASE, base(LOG_BYTES, 0).as_bytes(), vec![]), 1, "no descriptor");
    let two = vec![map.clone(), map.clone()];
    assert_eq!(g.ask(Request::SET_LOG_BASE, base(LOG_BYTES, 0).as_bytes(), two), 1);
    assert_eq!(g.ask(Request::SET_LOG_BASE, &[0; 8], vec![map.clone()]), 1, "too short");
    assert_eq!(g.ask(Request::SET_LOG_BASE, base(8, 0).as_bytes(), vec![map.clone()]), 1, "the ring is not in it");
    // And a ring beyond the log that is there, or whose end is no number.
    assert_eq!(log_ring(&mut g, RAM + RAM_LEN), 1);
    assert_eq!(log_ring(&mut g, u64::MAX - 1), 1);
    let pieces = chain(&g, RequestType::IN, 0, &[(DATA + 0x9000, 512, true)]);
    assert_eq!(g.request(&pieces), RequestStatus::OK);
    assert!(marked(&map).contains(&((DATA + 0x9000) / LOG_PAGE)), "the old one still counts");
    assert_eq!(g.ask(Request::SET_LOG_FD, &[], vec![map]), 0);
}

#[test]
fn a_buffer_beyond_the_log_is_not_marked_and_harms_nothing() {
    let mut g = Guest::split(8, F_LOG_ALL);
    let map = bitmap();
    // An odd length: 8 pages for each of its bytes, of which the last ones do not fill a word.
    let len = DATA / LOG_PAGE / 8 + 1;
    g.send(Request::SET_LOG_BASE, base(len, 0).as_bytes(), vec![map.clone()]);
    assert_eq!(g.reply(Request::SET_LOG_BASE), Some(vec![]));
    log_all(&mut g, true);
    let at = len * 8 * LOG_PAGE - 512;
    let pieces = chain(&g, RequestType::IN, 0, &[(at, 1024, true)]);
    assert_eq!(g.request(&pieces), RequestStatus::OK);
    assert_eq!(marked(&map), [DATA / LOG_PAGE, len * 8 - 1]);
}

#[test]
fn it_needs_its_protocol_feature_and_ends_with_a_reset() {
    let mut g = Guest::split(8, F_LOG_ALL);
    let map = bitmap();
    let without = g.device.disk().protocol() & !protocol::LOG_SHMFD;
    g.send(Request::SET_PROTOCOL_FEATURES, U64::new(without).as_bytes(), vec![]);
    assert_eq!(g.ask(Request::SET_LOG_BASE, base(LOG_BYTES, 0).as_bytes(), vec![map.clone()]), 1);
    let (mut g, _, map) = copied(false);
    let features = g.device.features();
    assert_eq!(g.ask(Request::RESET_DEVICE, &[], vec![]), 0);
    g.send(Request::SET_FEATURES, U64::new(features).as_bytes(), vec![]);
    g.avail = 0;
    g.ram.write(Guest::places(0)[2], &[0; 64]).unwrap();
    g.ram.write(Guest::places(0)[1], &[0; 64]).unwrap();
    g.start(0, 8, 0);
    marked(&map);
    let pieces = chain(&g, RequestType::IN, 0, &[(DATA + 0x9000, 512, true)]);
    assert_eq!(g.request(&pieces), RequestStatus::OK);
    assert_eq!(marked(&map), []);
}
