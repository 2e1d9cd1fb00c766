//! The layout on the drives: golden bytes of versions 1 to 3 (`docs/reference/formats.md`).

use crate::block::{Address, LAYOUT, OLDEST, decode, encode, payload, place};
use crate::extent::{ChunkRun, Extent};
use crate::model::{crc32c, uuid};
use crate::record::{EntryHeader, Home, Known, LogEnd, Member, Mirror, Phase, Record, identity_rows, volume_rows};
use crate::volume::{Part, VolumeId};
use crate::{BLOCK, STRIPE, Uuid};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

/// What the oldest layout can say.
fn oldest() -> Vec<Record> {
    let extents = vec![Extent { logical: 3, run: ChunkRun { start: 0x0102_0304, len: 5 } }];
    vec![
        Record::Header(EntryHeader {
            opens: 1,
            phase: Phase::Opening,
            needs: 0,
            counter: 0x0203,
            pool: Uuid([0x11; 16]),
            name: "p0".into(),
            drive: 1,
            area: 2,
            members: vec![Member { uuid: Uuid([0x22; 16]), chunks: 8 }, Member { uuid: Uuid([0x33; 16]), chunks: 9 }],
            known: vec![Known::default(); 2],
            ..EntryHeader::default()
        }),
        Record::Part {
            id: VolumeId(4),
            version: 6,
            extents: extents.clone(),
            home: Some(Home {
                name: "v".into(),
                tenant: "t".into(),
                uuid: Uuid([0x44; 16]),
                chunks: 8,
                copies: 1,
                others: vec![(0, 7)],
            }),
        },
        Record::Part { id: VolumeId(5), version: 5, extents, home: None },
        Record::Drop(VolumeId(2)),
        Record::Dirty(vec![ChunkRun { start: 10, len: 1 }]),
    ]
}

/// What layout 2 can say, with values that no other field has.
fn second() -> Vec<Record> {
    let mut records = oldest();
    if let Record::Header(header) = &mut records[0] {
        (header.phase, header.needs) = (Phase::Closed, 0x0504_0302);
        header.known[0] = Known { state: 6, reach: LogEnd { generation: 0x0908, entry: 0x0b0a } };
    }
    if let Record::Part { home: Some(home), .. } = &mut records[1] {
        home.copies = 2;
    }
    records.extend([
        Record::State(Phase::Open, vec![(0x0d0c, LogEnd { generation: 0x0f0e, entry: 0x11 })]),
        Record::Stale { id: VolumeId(0x12), drive: 0x13, runs: vec![ChunkRun { start: 0x14, len: 0x15 }] },
        Record::References(vec![(ChunkRun { start: 0x16, len: 0x17 }, 0x18)]),
    ]);
    records
}

/// Each record, with values that no other field has.
fn records() -> Vec<Record> {
    let mut records = second();
    if let Record::Header(header) = &mut records[0] {
        header.names = vec!["n0".into(), "n1".into()];
        header.lost_at = vec![0x1a19, 0];
    }
    let extents = vec![Extent { logical: 0x1b, run: ChunkRun { start: 0x1c, len: 0x1d } }];
    let (name, tenant, others) = ("v".into(), "t".into(), Vec::new());
    let volume = Home { name, tenant, uuid: Uuid([0x55; 16]), chunks: 0x1e, copies: 1, others };
    let parts = vec![(0x1f, Part { version: 0x20, extents })];
    records.push(Record::Mirror(Box::new(Mirror { id: VolumeId(0x21), home: 0x1f, version: 0x22, volume, parts })));
    records
}

fn hex(bytes: &[u8]) -> alloc::string::String {
    bytes.iter().map(|b| alloc::format!("{b:02x}")).collect()
}

#[test]
fn fields_are_lines_of_the_formats_page() {
    let page = include_str!("../../../../docs/reference/formats.md");
    let states = [
        ("EntryHeader", identity_rows()),
        ("Member", Member::rows()),
        ("Known", Known::rows()),
        ("LogEnd", LogEnd::rows()),
        ("ChunkRun", ChunkRun::rows()),
        ("Extent", Extent::rows()),
        ("Home", volume_rows()),
    ];
    let missing = weir_codec::undocumented(page, states);
    assert!(missing.is_empty(), "formats.md has other lines than these:\n{missing}");
}

#[test]
fn golden_bytes() {
    let golden = |records: Vec<Record>, layout: u32, golden: &str, head: &str| {
        let bytes = payload(&records, layout);
        assert_eq!(hex(&bytes), golden);
        assert_eq!(Record::get_all(&bytes, layout), Ok(records));
        let at = Address { drive: Uuid([0x33; 16]), layout, generation: 9, entry: 0, block: 16, copy: 1 };
        let block = encode(&at, &bytes, crc32c);
        assert_eq!(block.len(), BLOCK);
        assert_eq!(hex(&block[..64]), head);
        assert_eq!(block[64..64 + bytes.len()], bytes);
        assert_eq!(block[BLOCK - 4..], crc32c(&block[..BLOCK - 4]).to_le_bytes());
        let found = decode(&block, 1, 16, crc32c);
        assert!(matches!(found, crate::block::BlockContents::Whole(b) if (b.generation, b.layout) == (9, layout)));
        for (copy, number) in [(0, 16), (1, 17)] {
            assert!(matches!(decode(&block, copy, number, crc32c), crate::block::BlockContents::Nothing));
        }
    };
    golden(oldest(), OLDEST, GOLDEN_1, HEAD_1);
    golden(second(), 2, GOLDEN_2, HEAD_2);
    golden(records(), LAYOUT, GOLDEN_3, HEAD_3);
}

/// A record of a pool with copies, which an older release of the same layout refuses by the bits of its header.
#[test]
fn golden_bytes_of_what_may_be_written() {
    let runs = vec![ChunkRun { start: 0x24, len: 0x25 }, ChunkRun { start: 0x2627, len: 0x28 }];
    let records = [Record::Written { id: VolumeId(0x23), runs }];
    let bytes = payload(&records, LAYOUT);
    assert_eq!(hex(&bytes), "0923000000000000000200000024000000250000002726000028000000");
    assert_eq!(Record::get_all(&bytes, LAYOUT).as_deref(), Ok(&records[..]));
    for layout in [OLDEST, 2] {
        assert_eq!(hex(&payload(&records, layout)), "");
        assert!(Record::get_all(&bytes, layout).is_err());
    }
}

/// What only a later layout has is not written in an older one, and not read in it.
#[test]
fn an_older_layout_has_none_of_the_later_records() {
    for (layout, from) in [(OLDEST, 5), (2, 8)] {
        assert_eq!(hex(&payload(&records()[from..], layout)), "");
        for record in &records()[from..] {
            let bytes = payload(core::slice::from_ref(record), LAYOUT);
            assert!(Record::get_all(&bytes, layout).is_err(), "{record:?}");
        }
    }
}

/// The head of the block: see the table.
const HEAD_1: &str = concat!(
    "57454952504f4f4c",
    "01000000",
    "d2000000",
    "33333333333333333333333333333333",
    "0900000000000000",
    "00000000",
    "00000000",
    "01000000",
    "10000000",
    "01000000",
    "ad8bd824",
);

const GOLDEN_1: &str = concat!(
    "01",
    "0100000000000000",
    "0302000000000000",
    "11111111111111111111111111111111",
    "027030",
    "0100",
    "02000000",
    "0200",
    "2222222222222222222222222222222208000000",
    "3333333333333333333333333333333309000000",
    "02",
    "0400000000000000",
    "0600000000000000",
    "01000000",
    "030000000403020105000000",
    "01",
    "0176",
    "0174",
    "44444444444444444444444444444444",
    "08000000",
    "0100",
    "00000700000000000000",
    "02",
    "0500000000000000",
    "0500000000000000",
    "01000000",
    "030000000403020105000000",
    "00",
    "03",
    "0200000000000000",
    "04",
    "01000000",
    "0a00000001000000",
);

const HEAD_2: &str = concat!(
    "57454952504f4f4c",
    "02000000",
    "2c010000",
    "33333333333333333333333333333333",
    "0900000000000000",
    "00000000",
    "00000000",
    "01000000",
    "10000000",
    "01000000",
    "24686b9e",
);

const GOLDEN_2: &str = concat!(
    "01",
    "0100000000000000",
    "02",
    "02030405",
    "0302000000000000",
    "11111111111111111111111111111111",
    "027030",
    "0100",
    "02000000",
    "0200",
    "2222222222222222222222222222222208000000",
    "0608090000000000000a0b0000",
    "3333333333333333333333333333333309000000",
    "00000000000000000000000000",
    "02",
    "0400000000000000",
    "0600000000000000",
    "01000000",
    "030000000403020105000000",
    "01",
    "0176",
    "0174",
    "44444444444444444444444444444444",
    "08000000",
    "02",
    "0100",
    "00000700000000000000",
    "02",
    "0500000000000000",
    "0500000000000000",
    "01000000",
    "030000000403020105000000",
    "00",
    "03",
    "0200000000000000",
    "04",
    "01000000",
    "0a00000001000000",
    "05",
    "01",
    "0100",
    "0c0d0e0f00000000000011000000",
    "06",
    "1200000000000000",
    "1300",
    "01000000",
    "1400000015000000",
    "07",
    "01000000",
    "160000001700000018000000",
);

const HEAD_3: &str = concat!(
    "57454952504f4f4c",
    "03000000",
    "8c010000",
    "33333333333333333333333333333333",
    "0900000000000000",
    "00000000",
    "00000000",
    "01000000",
    "10000000",
    "01000000",
    "d64d2ec9",
);

const GOLDEN_3: &str = concat!(
    "0101000000000000000202030405030200000000000011111111111111111111111111111111027030010002000000020022",
    "222222222222222222222222222222080000000608090000000000000a0b0000026e30191a00000000000033333333333333",
    "3333333333333333330900000000000000000000000000000000026e31000000000000000002040000000000000006000000",
    "0000000001000000030000000403020105000000010176017444444444444444444444444444444444080000000201000000",
    "0700000000000000020500000000000000050000000000000001000000030000000403020105000000000302000000000000",
    "0004010000000a00000001000000050101000c0d0e0f00000000000011000000061200000000000000130001000000140000",
    "001500000007010000001600000017000000180000000821000000000000001f002200000000000000017601745555555555",
    "55555555555555555555551e00000001000001001f002000000000000000010000001b0000001c0000001d000000",
);

#[test]
fn the_copies_take_turns() {
    assert_eq!(place(0, 0), 0);
    assert_eq!(place(1, 0), STRIPE as u64);
    assert_eq!(place(0, 15), 15 * 4096);
    assert_eq!(place(0, 16), 2 * STRIPE as u64);
    assert_eq!(place(1, 31), 3 * STRIPE as u64 + 15 * 4096);
}

#[test]
fn entries_of_several_blocks() {
    let at = Address { drive: uuid(1), layout: LAYOUT, generation: 1, entry: 3, block: 30, copy: 0 };
    let bytes: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
    let blocks = encode(&at, &bytes, crc32c);
    assert_eq!(blocks.len(), 3 * BLOCK);
    let mut read = Vec::new();
    for (i, block) in blocks.chunks(BLOCK).enumerate() {
        let crate::block::BlockContents::Whole(b) = decode(block, 0, 30 + i as u32, crc32c) else {
            panic!("block {i}")
        };
        assert_eq!((b.part, b.parts, b.entry, b.sum), (i as u32, 3, 3, crc32c(&bytes)));
        read.extend_from_slice(b.payload);
    }
    assert_eq!(read, bytes);
}

proptest! {
    /// Whatever is found is taken apart or refused.
    #[test]
    fn any_bytes_are_taken_apart(bytes in proptest::collection::vec(any::<u8>(), 0..300), layout in OLDEST..=LAYOUT) {
        if let Ok(records) = Record::get_all(&bytes, layout) {
            prop_assert_eq!(Record::get_all(&payload(&records, layout), layout), Ok(records));
        }
    }

    #[test]
    fn a_byte_more_or_less_is_noticed(at in 0usize..210, to in any::<u8>(), layout in OLDEST..=LAYOUT) {
        let all = [oldest, second, records][layout as usize - 1]();
        let mut bytes = payload(&all, layout);
        bytes[at] = to;
        if let Ok(found) = Record::get_all(&bytes, layout) {
            prop_assert!(payload(&found, layout).len() <= bytes.len());
        }
        let cut = Record::get_all(&payload(&all, layout)[..at], layout);
        prop_assert!(cut.map_or(true, |r| r.len() < all.len()));
    }
}
