//! What is written is read again, and nothing else is.

use crate::{
    Ago, Always, Code, Coder, Count, Counted, Damaged, Flags, IsThere, Left, Own, Padded, Reader, Row, SavedError,
    SavedFormat, Text, Unless, Writer, coded, fields, numbered, record, undocumented,
};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_spec::nvme::tcp::TableDigest;
use weir_units::Nanos;

const NOW: Nanos = Nanos(1_000);

#[derive(Clone, Debug, Default, PartialEq)]
struct Place {
    row: u16,
    column: u64,
    name: String,
}
coded! { Place { row, column, name } }

#[derive(Clone, Debug, Default, PartialEq)]
struct Wagon {
    inner: Inner,
    number: u32,
    not_carried: u32,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Inner {
    since: Nanos,
    until: Nanos,
    doors: Vec<u8>,
    at: Option<u16>,
    digit: Option<u32>,
}

fields! { Wagon: put_wagon, get_wagon, wagon_rows {
    number: "its number",
    inner.since as Ago: "when it came",
    inner.until as Left: "when it goes",
    inner.doors as Counted<u8>: "its doors",
    inner.at as Always: "where it stands",
    inner.digit as Text: "what is written on it",
} }

#[derive(Clone, Copy, Debug, PartialEq)]
enum Class {
    First,
    Second,
}
numbered! { Class: u8 { First = 1, Second = 2 } }

record! {
    /// A ticket.
    struct Ticket {
        /// It was shown, it was used.
        marks: [bool; 2] as Flags<u16>,
        /// Of which class.
        class: Option<Class> as Unless<u8, 0>,
        /// Its seat.
        seat: Option<u16> as Unless<u16, 0xffff>,
    }
}

/// Several fields as one value.
#[derive(Debug, Default, PartialEq)]
struct Train {
    engine: Inner,
    late: bool,
    full: bool,
    length: usize,
    name: [u8; 3],
    cargo: Option<Vec<u8>>,
}
fields! { Train: put_train, get_train, train_rows {
    [late, full] as Flags<u8>: "late, full",
    (length, engine.at) as (Count<u8>, Unless<u16, 0>): "how long it is, where its engine stands",
    name as Padded<4>: "its name",
    cargo as IsThere: "it has cargo",
} }

fn written<T: Code>(value: &T) -> Vec<u8> {
    let mut to = Writer::at(NOW);
    to.put(value);
    to.done()
}

fn again<T: Code>(value: &T) -> T {
    let bytes = written(value);
    let mut from = Reader::of(&bytes);
    let read = from.get().expect("it reads what it writes");
    assert!(from.is_empty());
    for short in 0..bytes.len() {
        assert_eq!(T::get(&mut Reader::of(&bytes[..short])).err(), Some(Damaged), "{short} of {}", bytes.len());
    }
    read
}

#[test]
fn bytes_are_as_documented() {
    assert_eq!(written(&Place { row: 0x102, column: 3, name: "ab".into() }), b"\x02\x01\x03\0\0\0\0\0\0\0\x02\0\0\0ab");
    assert_eq!(written(&Some(7u16)), [1, 7, 0]);
    assert_eq!(written(&None::<u16>), [0]);
    assert_eq!(written(&BTreeMap::from([(2u8, true), (1, false)])), [2, 0, 0, 0, 1, 0, 2, 1]);
    let inner = Inner { since: Nanos(400), until: Nanos::NEVER, doors: vec![9, 8], at: None, digit: Some(12) };
    let mut to = Writer::at(NOW);
    put_wagon(&Wagon { inner, number: 5, not_carried: 1 }, &mut to);
    let mut expected = vec![5, 0, 0, 0, 0x58, 2, 0, 0, 0, 0, 0, 0];
    expected.extend([0xff; 8]);
    expected.extend([2, 9, 8, 0, 0, 0, 2, 0, 0, 0, b'1', b'2']);
    assert_eq!(to.done(), expected);
}

#[test]
fn rows_name_the_fields_and_how_they_are_written() {
    let rows: Vec<(String, String)> = wagon_rows().into_iter().map(|row| (row.name, row.kind)).collect();
    let expected = [
        ("number", "u32"),
        ("inner.since", "u64: ns since then"),
        ("inner.until", "u64: ns until then, all ones for never"),
        ("inner.doors", "count u8, each u8"),
        ("inner.at", "whether it is there u8, u16"),
        ("inner.digit", "length u32, text; empty for none"),
    ];
    assert_eq!(rows, expected.map(|(name, kind)| (name.to_string(), kind.to_string())));
}

#[test]
fn a_record_is_written_as_its_comments_say() {
    let ticket = Ticket { marks: [false, true], class: Some(Class::Second), seat: None };
    let bytes = written(&ticket);
    assert_eq!(bytes, [2, 0, 2, 0xff, 0xff]);
    let read: Ticket = Reader::of(&bytes).get().unwrap();
    assert_eq!((read.marks, read.class, read.seat), (ticket.marks, ticket.class, ticket.seat));
    // A flag that there is not, a class that there is not.
    for wrong in [[4, 0, 2, 0, 0], [2, 0, 3, 0, 0]] {
        assert_eq!(Reader::of(&wrong).get::<Ticket>().err(), Some(Damaged));
    }
    assert_eq!(Reader::of(&[0]).get::<Class>(), Err(Damaged));
    let lines: String = Ticket::rows().iter().map(Row::to_string).collect();
    let expected = "| `marks` | u16, a bit each from bit 0 on | It was shown, it was used. |\n\
        | `class` | u8, 1 First, 2 Second; 0 for none | Of which class. |\n\
        | `seat` | u16; all ones for none | Its seat. |\n";
    assert_eq!(lines, expected);
    assert_eq!(undocumented(expected, [("ticket", Ticket::rows())]), "");
    assert_eq!(undocumented("", [("ticket", Ticket::rows())]), alloc::format!("ticket:\n{expected}"));
}

#[test]
fn several_fields_are_one_value() {
    let engine = Inner { at: Some(9), ..Inner::default() };
    let train = Train { engine, late: true, full: false, length: 300, name: *b"abc", cargo: Some(vec![]) };
    let mut to = Writer::default();
    put_train(&train, &mut to);
    let bytes = to.done();
    assert_eq!(bytes, *b"\x01\xff\x09\0abc\0\x01", "a length is cut off where its number ends");
    let mut read = Train::default();
    get_train(&mut read, &mut Reader::of(&bytes)).unwrap();
    assert_eq!(read, Train { length: 255, ..train });
    let names: Vec<String> = train_rows().into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["late, full", "length, engine.at", "name", "cargo"]);
    for short in 0..bytes.len() {
        assert_eq!(get_train(&mut Train::default(), &mut Reader::of(&bytes[..short])), Err(Damaged), "{short}");
    }
}

#[test]
fn what_is_no_value_is_damaged() {
    assert_eq!(Reader::of(&[2]).get::<bool>(), Err(Damaged));
    assert_eq!(Reader::of(&[2, 0, 0, 0, 0xff, 0xfe]).get::<String>(), Err(Damaged));
    // Twice the same key, and keys out of order.
    assert_eq!(Reader::of(&[2, 0, 0, 0, 1, 0, 1, 0]).get::<BTreeMap<u8, bool>>(), Err(Damaged));
    assert_eq!(Reader::of(&[2, 0, 0, 0, 2, 0, 1, 0]).get::<BTreeMap<u8, bool>>(), Err(Damaged));
    // More is promised than there is: nothing is reserved for it.
    assert_eq!(Reader::of(&[0xff; 4]).get::<Vec<u64>>(), Err(Damaged));
    assert_eq!(<Text as Coder<Option<u32>>>::get(&mut Reader::of(&[1, 0, 0, 0, b'x'])), Err(Damaged));
    assert_eq!(Reader::of(&[1]).end(), Err(Damaged));
}

#[test]
fn a_list_is_cut_off_where_its_count_ends() {
    let list: Vec<u8> = (0..300).map(|n| n as u8).collect();
    let mut to = Writer::default();
    <Counted<u8> as Coder<Vec<u8>>>::put(&list, &mut to);
    let bytes = to.done();
    assert_eq!(bytes.len(), 256);
    let read = <Counted<u8> as Coder<Vec<u8>>>::get(&mut Reader::of(&bytes)).unwrap();
    assert_eq!(read, list[..255]);
}

const FORMAT: SavedFormat = SavedFormat { oldest: 2, ..SavedFormat::new(b"WEIRTEST", 3, "a test's state") };

fn sealed(version: u32) -> Vec<u8> {
    let mut to = SavedFormat { version, ..FORMAT }.begin(NOW);
    to.put(&Place::default());
    FORMAT.seal::<TableDigest>(to)
}

#[test]
fn a_format_reads_its_versions_and_nothing_else() {
    let bytes = sealed(3);
    assert_eq!(bytes[..16], *b"WEIRTEST\x03\0\0\0\x22\0\0\0");
    for version in [2, 3] {
        let bytes = sealed(version);
        let (read, mut from) = FORMAT.open::<TableDigest>(NOW, &bytes).unwrap();
        assert_eq!((read, from.get(), from.end()), (version, Ok(Place::default()), Ok(())));
    }
    for version in [1, 4] {
        let error = FORMAT.open::<TableDigest>(NOW, &sealed(version)).unwrap_err();
        assert_eq!(error, SavedError::Version { found: version, oldest: 2, newest: 3 });
        assert_eq!(error.to_string(), alloc::format!("it has layout {version} and this release reads layouts 2 to 3"));
    }
    let error = FORMAT.open::<TableDigest>(NOW, b"WEIROTHER and so on").unwrap_err();
    assert_eq!(error.to_string(), "it is not a test's state");
    for len in 0..bytes.len() {
        assert!(FORMAT.open::<TableDigest>(NOW, &bytes[..len]).is_err(), "{len} bytes");
    }
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let opened = FORMAT.open::<TableDigest>(NOW, &bytes).map(|(version, _)| version);
        // Its version is judged before its checksum: what another release has written is not called damaged.
        assert!(opened.is_err(), "bit {bit}");
    }
}

proptest! {
    #[test]
    fn values_come_back(
        places in prop::collection::vec((any::<u16>(), any::<u64>(), ".{0,9}"), 0..5),
        numbers in prop::collection::vec(any::<u32>(), 0..5),
        at in any::<Option<u16>>(),
    ) {
        let places: Vec<Place> = places.into_iter().map(|(row, column, name)| Place { row, column, name }).collect();
        prop_assert_eq!(&again(&places), &places);
        let queue = VecDeque::from(numbers.clone());
        prop_assert_eq!(&again(&queue), &queue);
        let map: BTreeMap<u32, Option<u16>> = numbers.iter().map(|n| (*n, at)).collect();
        prop_assert_eq!(&again(&map), &map);
        prop_assert_eq!(again(&(at, [1u64, 2])), (at, [1, 2]));
    }

    #[test]
    fn times_are_kept_against_another_clock(since in 0u64..1_000, until in 1_000u64.., other in 1_000u64..1 << 40) {
        let inner = Inner { since: Nanos(since), until: Nanos(until), ..Inner::default() };
        let mut to = Writer::at(NOW);
        put_wagon(&Wagon { inner, ..Wagon::default() }, &mut to);
        let (bytes, mut wagon) = (to.done(), Wagon::default());
        get_wagon(&mut wagon, &mut Reader::at(Nanos(other), &bytes)).unwrap();
        prop_assert_eq!(wagon.inner.since, Nanos(other.saturating_sub(1_000 - since)));
        let expected = if until == u64::MAX { Nanos::NEVER } else { Nanos(other).saturating_add(Nanos(until - 1_000)) };
        prop_assert_eq!(wagon.inner.until, expected);
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = Reader::of(&bytes).get::<Vec<Place>>();
        let _ = <Counted<u16, Own> as Coder<Vec<Place>>>::get(&mut Reader::of(&bytes));
        let _ = FORMAT.open::<TableDigest>(NOW, &bytes);
    }
}
