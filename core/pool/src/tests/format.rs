//! The layout on the drives: golden bytes of version 1 (`docs/formats.md`).

use crate::block::{Address, decode, encode, payload, place};
use crate::extent::{Extent, Run};
use crate::model::{crc32c, uuid};
use crate::record::{Header, Home, Member, Record};
use crate::volume::VolumeId;
use crate::{BLOCK, STRIPE, Uuid};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn records() -> Vec<Record> {
    let extents = vec![Extent { logical: 3, run: Run { start: 0x0102_0304, len: 5 } }];
    vec![
        Record::Header(Header {
            opens: 1,
            counter: 0x0203,
            pool: Uuid([0x11; 16]),
            name: "p0".into(),
            drive: 1,
            area: 2,
            members: vec![Member { uuid: Uuid([0x22; 16]), chunks: 8 }, Member { uuid: Uuid([0x33; 16]), chunks: 9 }],
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
                others: vec![(0, 7)],
            }),
        },
        Record::Part { id: VolumeId(5), version: 5, extents, home: None },
        Record::Drop(VolumeId(2)),
        Record::Dirty(vec![Run { start: 10, len: 1 }]),
    ]
}

fn hex(bytes: &[u8]) -> alloc::string::String {
    bytes.iter().map(|b| alloc::format!("{b:02x}")).collect()
}

#[test]
fn golden_bytes() {
    let bytes = payload(&records());
    assert_eq!(hex(&bytes), GOLDEN);
    assert_eq!(Record::decode_all(&bytes), Ok(records()));
    let at = Address { drive: Uuid([0x33; 16]), generation: 9, entry: 0, block: 16, copy: 1 };
    let block = encode(&at, &bytes, crc32c);
    assert_eq!(block.len(), BLOCK);
    assert_eq!(hex(&block[..64]), HEAD);
    assert_eq!(block[64..64 + bytes.len()], bytes);
    assert_eq!(block[BLOCK - 4..], crc32c(&block[..BLOCK - 4]).to_le_bytes());
    assert!(matches!(decode(&block, 1, 16, crc32c), crate::block::Found::Whole(b) if b.generation == 9));
    for (copy, number) in [(0, 16), (1, 17)] {
        assert!(matches!(decode(&block, copy, number, crc32c), crate::block::Found::Nothing));
    }
}

/// The head of the block: see the table.
const HEAD: &str = concat!(
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

const GOLDEN: &str = concat!(
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
    let at = Address { drive: uuid(1), generation: 1, entry: 3, block: 30, copy: 0 };
    let bytes: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
    let blocks = encode(&at, &bytes, crc32c);
    assert_eq!(blocks.len(), 3 * BLOCK);
    let mut read = Vec::new();
    for (i, block) in blocks.chunks(BLOCK).enumerate() {
        let crate::block::Found::Whole(b) = decode(block, 0, 30 + i as u32, crc32c) else { panic!("block {i}") };
        assert_eq!((b.part, b.parts, b.entry, b.sum), (i as u32, 3, 3, crc32c(&bytes)));
        read.extend_from_slice(b.payload);
    }
    assert_eq!(read, bytes);
}

proptest! {
    /// Whatever is found is taken apart or refused.
    #[test]
    fn any_bytes_are_taken_apart(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(records) = Record::decode_all(&bytes) {
            prop_assert_eq!(Record::decode_all(&payload(&records)), Ok(records));
        }
    }

    #[test]
    fn a_byte_more_or_less_is_noticed(at in 0usize..210, to in any::<u8>()) {
        let mut bytes = payload(&records());
        bytes[at] = to;
        if let Ok(found) = Record::decode_all(&bytes) {
            prop_assert!(payload(&found).len() <= bytes.len());
        }
        prop_assert!(Record::decode_all(&payload(&records())[..at]).map_or(true, |r| r.len() < 5));
    }
}
