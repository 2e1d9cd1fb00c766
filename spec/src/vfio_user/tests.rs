use super::*;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[test]
fn a_header_as_it_travels() {
    let request = Header::command(0x1234, Command::REGION_READ, 16);
    assert_eq!(request.as_bytes(), [0x34, 0x12, 9, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let reply = Header::reply(&request, 20);
    assert_eq!(reply.as_bytes(), [0x34, 0x12, 9, 0, 36, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    let error = Header::error(&request, errno::EINVAL);
    assert_eq!(error.as_bytes(), [0x34, 0x12, 9, 0, 16, 0, 0, 0, 0x21, 0, 0, 0, 22, 0, 0, 0]);
    assert!(error.failed() && error.kind() == Header::REPLY && !request.no_reply());
}

#[test]
fn a_map_and_an_unmap_as_they_travel() {
    let map = DmaMap {
        argsz: U32::new(32),
        flags: U32::new(DmaMap::READ | DmaMap::WRITE),
        offset: U64::new(0x2000),
        address: U64::new(0x1_0000_0000),
        size: U64::new(0x3000),
    };
    let mut want = vec![32, 0, 0, 0, 3, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0];
    want.extend([0, 0, 0, 0, 1, 0, 0, 0, 0, 0x30, 0, 0, 0, 0, 0, 0]);
    assert_eq!(map.as_bytes(), want);
    let all = DmaUnmap { argsz: U32::new(24), flags: U32::new(DmaUnmap::ALL), ..DmaUnmap::default() };
    assert_eq!(all.as_bytes()[..8], [24, 0, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn a_region_with_an_area_as_it_travels() {
    let info = RegionInfo {
        argsz: U32::new(64),
        flags: U32::new(RegionInfo::READ | RegionInfo::WRITE | RegionInfo::MMAP | RegionInfo::CAPS),
        index: U32::new(region::BAR0),
        cap_offset: U32::new(32),
        size: U64::new(0x10000),
        offset: U64::new(0),
    };
    let sparse = SparseMmap { id: U16::new(1), version: U16::new(1), areas: U32::new(1), ..SparseMmap::default() };
    let area = SparseArea { offset: U64::new(0x1000), size: U64::new(0x3000) };
    let mut bytes = info.as_bytes().to_vec();
    bytes.extend_from_slice(sparse.as_bytes());
    bytes.extend_from_slice(area.as_bytes());
    let mut want = vec![64, 0, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0];
    want.extend([0; 8]);
    want.extend([1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    want.extend([0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x30, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes, want);
    assert_eq!(sparse_areas(&bytes), Some(&[area][..]));
    assert_eq!(sparse_areas(&bytes[..63]), None, "an area is cut");
    bytes[4] = 0;
    assert_eq!(sparse_areas(&bytes), Some(&[][..]), "no capabilities");
    bytes[4] = 8;
    bytes[32] = 9;
    bytes[36] = 32;
    assert_eq!(sparse_areas(&bytes), None, "a list that does not end");
}

#[test]
fn irqs_as_they_travel() {
    let set = IrqSet {
        argsz: U32::new(20),
        flags: U32::new(IrqSet::DATA_EVENTFD | IrqSet::ACTION_TRIGGER),
        index: U32::new(irq::MSIX),
        start: U32::new(1),
        count: U32::new(2),
    };
    assert_eq!(set.as_bytes(), [20, 0, 0, 0, 0x24, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn writes_are_as_many_as_their_message_says() {
    let write = SmallWrite { offset: U64::new(0x1000), region: U32::new(0), count: U32::new(4), data: [7; 8] };
    let mut bytes = WriteMulti { count: U64::new(2) }.as_bytes().to_vec();
    bytes.extend_from_slice(write.as_bytes());
    assert_eq!(small_writes(&bytes), None);
    bytes.extend_from_slice(write.as_bytes());
    assert_eq!(small_writes(&bytes), Some(&[write, write][..]));
    bytes[7] = 0x80;
    assert_eq!(small_writes(&bytes), None);
}

/// What QEMU 10.1 sends, and what Weir says.
#[test]
fn capabilities_of_others_and_our_own() {
    let qemu = b"{\"capabilities\": {\"max_msg_fds\": 16, \"max_data_xfer_size\": 67108864, \"pgsizes\": 4096, \
                 \"max_dma_maps\": 65535, \"write_multiple\": true}}\0";
    let got = Capabilities::parse(qemu).unwrap();
    assert_eq!((got.max_msg_fds, got.max_data_xfer_size, got.pgsizes), (16, 64 << 20, 4096));
    assert!(got.write_multiple && !got.twin_socket);
    assert_eq!(Capabilities::parse(b""), Ok(Capabilities::default()));
    assert_eq!(Capabilities::parse(b"{}\0"), Ok(Capabilities::default()));
    assert_eq!(
        Capabilities::default().text(),
        "{\"capabilities\":{\"max_msg_fds\":1,\"max_data_xfer_size\":1048576,\"max_dma_maps\":65535,\"pgsizes\":4096,\
         \"write_multiple\":false}}\0"
    );
    // Others' are walked over, whatever they are.
    let more = b"{\"x\":[1,{\"y\":null}],\"capabilities\":{\"migration\":{\"pgsize\":4096},\"twin_socket\":{\"supported\":true}}}\0";
    assert!(Capabilities::parse(more).unwrap().twin_socket);
}

#[test]
fn what_is_no_capability_is_refused() {
    let parse = |text: &str| Capabilities::parse(format!("{text}\0").as_bytes());
    for text in [
        "{",
        "[]",
        "{\"capabilities\":1}",
        "{\"capabilities\":{\"max_msg_fds\":-1}}",
        "{} x",
        "{\"a\":}",
        "{\"a\" 1}",
        "{\"a",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
    for text in [
        "{\"capabilities\":{\"max_msg_fds\":1.5}}",
        "{\"capabilities\":{\"pgsizes\":+1}}",
        "{\"capabilities\":{\"write_multiple\":1}}",
    ] {
        assert!(matches!(parse(text), Err(VersionError::Type(_))), "{text}");
    }
    assert_eq!(Capabilities::parse(b"{}"), Err(VersionError::Text));
    assert_eq!(Capabilities::parse(b"{\xff}\0"), Err(VersionError::Text));
    let deep: String = (0..1000).map(|_| "{\"a\":").collect();
    assert!(parse(&deep).is_err());
}

fn same<T: FromBytes + IntoBytes + Immutable>(bytes: &[u8]) -> bool {
    T::read_from_prefix(bytes).is_ok_and(|(v, _)| v.as_bytes() == &bytes[..size_of::<T>()])
}

proptest! {
    #[test]
    fn round_trip(b in proptest::array::uniform32(any::<u8>())) {
        prop_assert!(same::<Header>(&b) && same::<Version>(&b) && same::<DmaMap>(&b) && same::<DmaUnmap>(&b));
        prop_assert!(same::<DeviceInfo>(&b) && same::<RegionInfo>(&b) && same::<SparseMmap>(&b) && same::<SparseArea>(&b));
        prop_assert!(same::<IrqInfo>(&b) && same::<IrqSet>(&b) && same::<RegionAccess>(&b) && same::<DmaAccess>(&b));
        prop_assert!(same::<WriteMulti>(&b) && same::<SmallWrite>(&b) && same::<DeviceFeature>(&b) && same::<RegionIoFds>(&b));
    }

    #[test]
    fn decoders_take_anything(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = (sparse_areas(&bytes), small_writes(&bytes), Capabilities::parse(&bytes));
    }

    #[test]
    fn capabilities_come_back(fds in any::<u64>(), xfer in any::<u64>(), maps in any::<u64>(), pages in any::<u64>(), multi: bool, twin: bool) {
        let caps = Capabilities {
            max_msg_fds: fds,
            max_data_xfer_size: xfer,
            max_dma_maps: maps,
            pgsizes: pages,
            write_multiple: multi,
            twin_socket: twin,
        };
        prop_assert_eq!(Capabilities::parse(caps.text().as_bytes()), Ok(caps));
    }

    /// A text that is cut anywhere, or of which a byte is another one, is refused or taken, never more.
    #[test]
    fn damaged_text(at in 0usize..120, byte: u8) {
        let mut text: Vec<u8> = Capabilities::default().text().into_bytes();
        let at = at % text.len();
        text[at] = byte;
        let _ = Capabilities::parse(&text);
        let _ = Capabilities::parse(&text[..at]);
    }
}
