//! Golden bytes of version 1, values full of anything, and the tables of `docs/reference/formats.md`.

use super::*;
use crate::class::ClassId;
use crate::id::NamespaceId;
use crate::inode::Content;
use crate::location::Location;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use core::fmt::Debug;
use proptest::prelude::*;
use weir_codec::Row;
use weir_units::Bytes;

fn golden<T: Code + Debug + PartialEq>(record: &T, hex: &str) {
    let written: String = to_value(record).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(written, hex.replace(' ', ""), "{record:?}");
    assert_eq!(from_value::<T>(&to_value(record)).as_ref(), Ok(record));
}

fn file() -> Inode {
    Inode {
        kind: InodeKind::File,
        mode: 0o644,
        uid: 1000,
        gid: 100,
        size: 3,
        created: UnixNanos(1),
        modified: UnixNanos(2),
        changed: UnixNanos(3),
        version: 4,
        parent: InodeId::ROOT,
        classes: vec![ClassId(2), ClassId(1)],
        location: Location::new("r1").expect("a location"),
        copies: 1,
        block: 1 << 20,
        attributes: BTreeMap::from([("user.a".into(), vec![9])]),
        content: Content::Inline(b"abc".to_vec()),
    }
}

fn extent(offset: u64) -> Extent {
    Extent { namespace: NamespaceId(7), offset: Bytes(offset), length: Bytes(1 << 20) }
}

#[test]
fn golden_values() {
    golden(
        &file(),
        "01 01 a4010000 e8030000 64000000 0300000000000000 0100000000000000 0200000000000000 0300000000000000 0400000000000000 \
         0100000000000000 02000000 0200 0100 02000000 7231 01 00001000 01000000 06000000 757365722e61 01000000 09 01 03000000 616263",
    );
    golden(&NameRecord { inode: InodeId(5), kind: InodeKind::Table }, "01 0500000000000000 05");
    golden(&ParentRecord { parent: InodeId::ROOT }, "01 0100000000000000");
    golden(
        &OwnerRecord { service: ServiceId(2), incarnation: Term(3), term: Term(4) },
        "01 0200000000000000 0300000000000000 0400000000000000",
    );
    golden(
        &ServiceRecord { incarnation: Term(3), process: 0xabcd, beat: 9, is_fenced: true },
        "01 0300000000000000 cdab000000000000 0900000000000000 01",
    );
    golden(&LifeRecord { incarnation: Term(3), process: 0xabcd }, "01 0300000000000000 cdab000000000000");
    golden(
        &ProcessRecord { addresses: vec!["a:1".into()], since: UnixNanos(8), beat: 2 },
        "01 01000000 03000000 613a31 0800000000000000 0200000000000000",
    );
    golden(
        &SessionRecord { client: "c".into(), lease: Nanos(10), beat: 2, token: [0xab; 16] },
        "01 01000000 63 0a00000000000000 0200000000000000 abababababababababababababababab",
    );
    golden(
        &AnswerRecord { sequence: 6, answer: Ok(Changed { inode: InodeId(5), version: 1 }) },
        "01 0600000000000000 00 0500000000000000 0100000000000000",
    );
    golden(
        &AnswerRecord { sequence: 6, answer: Err(StoreError::TooLarge(2048)) },
        "01 0600000000000000 0c 0008000000000000",
    );
    golden(&OrphanRecord { kind: InodeKind::Directory, since: UnixNanos(8) }, "01 02 0800000000000000");
    golden(&CounterRecord { next: 258 }, "01 0201000000000000");
    golden(&WriterRecord { session: SessionId(4) }, "01 0400000000000000");
    golden(&ShortRecord { copies: 2 }, "01 02");
    golden(
        &NamespaceRecord {
            node: NodeId(1),
            target: "t".into(),
            class: ClassId(1),
            location: Location::new("r1").expect("a location"),
            sector: 4096,
            bytes: 1 << 30,
            region: 1 << 26,
            label: ContentLabel(7),
            is_draining: true,
            is_lost: false,
        },
        "01 0100000000000000 01000000 74 0100 02000000 7231 00100000 0000004000000000 0000000400000000 \
         07000000000000000000000000000000 01 00",
    );
    golden(&RemovedRecord { label: ContentLabel(7) }, "01 07000000000000000000000000000000");
    golden(&ClassesRecord { names: vec![ClassName::new("dram").expect("a class")] }, "01 01000000 04000000 6472616d");
    golden(&StoreRecord { id: 1, created: UnixNanos(2) }, "01 0100000000000000 0200000000000000");
    let block = BlockRecord {
        index: 3,
        generation: Generation(4),
        is_unsettled: true,
        copies: vec![extent(0x1000)],
        checksums: vec![0x11223344],
    };
    golden(
        &MapChunk { blocks: vec![block] },
        "01 01000000 03000000 0400000000000000 01 01000000 0700000000000000 0010000000000000 0000100000000000 01000000 44332211",
    );
}

#[test]
fn what_is_no_value_is_damaged() {
    let value = to_value(&file());
    let mut other_version = value.clone();
    other_version[0] = 2;
    let mut longer = value.clone();
    longer.push(0);
    for bytes in [&other_version[..], &longer, &value[..value.len() - 1], &[]] {
        assert_eq!(from_value::<Inode>(bytes), Err(StoreError::Damaged));
    }
    assert_eq!(from_value::<NameRecord>(&[1, 5, 0, 0, 0, 0, 0, 0, 0, 9]), Err(StoreError::Damaged), "no such kind");
    assert_eq!(
        from_value::<AnswerRecord>(&[1, 5, 0, 0, 0, 0, 0, 0, 0, 200, 0, 0, 0, 0, 0, 0, 0, 0]),
        Err(StoreError::Damaged)
    );
}

#[test]
fn the_largest_chunk_of_a_map_fits() {
    for block in [4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20] {
        let checksums = vec![u32::MAX; (block as u64).div_ceil(CHECKSUM_BYTES.into()) as usize];
        let one = |index| BlockRecord {
            index,
            generation: Generation(u64::MAX),
            is_unsettled: true,
            copies: vec![extent(0); COPIES_MAX],
            checksums: checksums.clone(),
        };
        let chunk = MapChunk { blocks: (0..blocks_per_chunk(block)).map(one).collect() };
        assert!(to_value(&chunk).len() <= MAP_CHUNK_BYTES_MAX, "{block}");
    }
}

proptest! {
    /// Whatever the bytes are: no panic, and what is read is written as it was.
    #[test]
    fn any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..120), is_versioned: bool) {
        if let (Some(first), true) = (bytes.first_mut(), is_versioned) {
            *first = STORE_VERSION;
        }
        fn round<T: Code>(bytes: &[u8]) -> bool {
            from_value::<T>(bytes).map_or(true, |record| to_value(&record) == bytes)
        }
        prop_assert!(round::<Inode>(&bytes) && round::<NameRecord>(&bytes) && round::<OwnerRecord>(&bytes));
        prop_assert!(round::<LifeRecord>(&bytes) && round::<ProcessRecord>(&bytes));
        prop_assert!(round::<ServiceRecord>(&bytes) && round::<SessionRecord>(&bytes) && round::<MapChunk>(&bytes));
        prop_assert!(round::<OrphanRecord>(&bytes));
    }
}

/// A record, and what its table says.
type Table = (&'static str, fn() -> Vec<Row>);

/// Every field stands in the documentation, with how it is written and what it says.
#[test]
fn the_documentation_has_every_field() {
    let text = include_str!("../../../docs/reference/formats.md");
    let section = text.split("\n## The store's keys and values").nth(1).expect("the section");
    let tables: [Table; 20] = [
        ("Inode", inode_rows),
        ("NameRecord", name_rows),
        ("ParentRecord", parent_rows),
        ("OwnerRecord", owner_rows),
        ("ServiceRecord", service_rows),
        ("LifeRecord", life_rows),
        ("ProcessRecord", process_rows),
        ("SessionRecord", session_rows),
        ("AnswerRecord", answer_rows),
        ("Changed", changed_rows),
        ("OrphanRecord", orphan_rows),
        ("CounterRecord", counter_rows),
        ("WriterRecord", writer_rows),
        ("ShortRecord", short_rows),
        ("NamespaceRecord", namespace_rows),
        ("RemovedRecord", removed_rows),
        ("ClassesRecord", classes_rows),
        ("StoreRecord", store_rows),
        ("BlockRecord", block_rows),
        ("MapChunk", chunk_rows),
    ];
    let mut lacking = String::new();
    for (record, rows) in tables {
        let mut expected = format!("| `{record}` | | |\n");
        for row in rows() {
            expected += &format!("| `{}` | {} | {} |\n", row.name, row.kind, row.meaning);
        }
        if !section.contains(&expected) {
            lacking += &expected;
        }
    }
    assert!(lacking.is_empty(), "formats.md lacks:\n{lacking}");
}
