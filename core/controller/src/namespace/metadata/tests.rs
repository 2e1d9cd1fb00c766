//! Every format, place and type against what the standard says, byte by byte.

use super::*;
use crate::event::Op;
use crate::host::Tag;
use alloc::vec;
use alloc::vec::Vec;
use weir_spec::nvme::Cqe;
use weir_spec::nvme::protection::guard64;

/// A host with the command's data and, at [`beside`], its separate metadata.
struct Buffers {
    data: Vec<u8>,
    metadata: Vec<u8>,
}

fn beside() -> DataPointer {
    DataPointer::media(1)
}

const DATA: DataPointer = DataPointer::tag(Tag(0));

impl Buffers {
    fn of(&mut self, pointer: &DataPointer) -> &mut Vec<u8> {
        if *pointer == beside() { &mut self.metadata } else { &mut self.data }
    }
}

impl Host for Buffers {
    fn fetch(&mut self, _: Owner, _: u64) -> Result<[u64; 8], Status> {
        Err(Status::INTERNAL_ERROR)
    }
    fn post(&mut self, _: Owner, _: u64, _: Option<u16>, _: &Cqe) -> Result<(), Status> {
        Ok(())
    }
    fn interrupt(&mut self, _: Owner, _: u16) {}
    fn respond(&mut self, _: Owner, _: Tag, _: &Cqe) {}
    fn read_data(&mut self, _: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        into.copy_from_slice(&self.of(data)[offset as usize..][..into.len()]);
        Ok(())
    }
    fn write_data(&mut self, _: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        self.of(data)[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }
}

const BLOCKS: u32 = 3;
const PRACT: u32 = 1 << 29;
const STORAGE: u32 = 1 << 24;
const GUARD: u32 = 1 << 28;
const APPLICATION: u32 = 1 << 27;
const REFERENCE: u32 = 1 << 26;

fn wish(dw12: u32, tag: u16, mask: u16, space: u64) -> Wish {
    let tags = ProtectionDw15(0).with_tag(tag.into()).with_mask(mask.into());
    Wish { dw12: ProtectionDw12(dw12), tags, space }
}

fn format(index: usize, kind: u8, first: bool, extended: bool) -> Format {
    Format::new(index, FORMATS[index], (kind, first), extended).unwrap()
}

fn formats() -> impl Iterator<Item = (Format, u32)> {
    let sized = FORMATS.into_iter().enumerate().filter(|(_, f)| f.metadata > 0);
    sized.flat_map(|(index, layout)| {
        let all = (0..4u8).flat_map(|kind| [false, true].map(|first| (kind, first)));
        let of = move |extended| {
            all.clone().map(move |(kind, first)| (format(index, kind, first, extended), u32::from(layout.shift)))
        };
        of(false).chain(of(true))
    })
}

/// What the standard has of each format, written down once more: bytes of protection information, of its guard, of storage tag and
/// reference tag.
fn parts(format: &Format) -> (usize, usize, usize, usize) {
    match format.index {
        0..=4 => (8, 2, 0, 4),
        6 => (16, 8, 2, 4),
        _ => (16, 8, 0, 6),
    }
}

/// Protection information byte by byte.
fn information(
    format: &Format,
    block: &[u8],
    before: &[u8],
    (application, storage, reference): (u16, u64, u64),
) -> Vec<u8> {
    let (_, guard, storage_len, reference_len) = parts(format);
    let guard = match guard {
        2 => protection::guard(protection::guard(0, block), before).to_be_bytes().to_vec(),
        _ => guard64(guard64(0, block), before).to_be_bytes().to_vec(),
    };
    let low = |value: u64, len: usize| value.to_be_bytes()[8 - len..].to_vec();
    [guard, application.to_be_bytes().to_vec(), low(storage, storage_len), low(reference, reference_len)].concat()
}

/// Storage tag and reference tag in one, as commands have them.
fn space(format: &Format, storage: u64, reference: u64) -> u64 {
    let (.., bytes) = parts(format);
    let bits = bytes * 8;
    reference & ((1 << bits) - 1) | storage << bits
}

fn pattern(len: usize, salt: u32) -> Vec<u8> {
    (0..len as u32).map(|i| ((i + salt).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// What a host sends or gets: data and metadata apart or woven.
fn woven(format: Format, shift: u32, data: &[u8], metadata: &[u8]) -> Buffers {
    if !format.extended {
        return Buffers { data: data.to_vec(), metadata: metadata.to_vec() };
    }
    let both = data.chunks(1 << shift).zip(metadata.chunks(format.metadata.into()));
    Buffers { data: both.flat_map(|(d, m)| d.iter().chain(m).copied()).collect(), metadata: Vec::new() }
}

/// A medium: the bytes of three blocks and their metadata, written and read in two parts.
struct Medium {
    data: Vec<u8>,
    metadata: Vec<u8>,
}

impl Medium {
    fn new(format: Format, shift: u32) -> Self {
        let of = |size: usize| vec![0; size * BLOCKS as usize];
        Self { data: of(1 << shift), metadata: of(format.metadata.into()) }
    }

    fn run(&mut self, m: &Metadata, op: Op, host: &mut Buffers) -> Result<(), Status> {
        let block = m.block();
        for part in [0..block, block..block * BLOCKS as usize] {
            let (at, len) = (m.size(part.start as u32), m.size(part.len() as u32));
            let (data, metadata) = (&mut self.data[part.clone()], &mut self.metadata[at..][..len]);
            let mut copy = metadata.to_vec();
            let to = (&mut *host, Owner(0), &DATA);
            match op {
                Op::Read => m.give(to, part.start as u32, data, &mut copy)?,
                Op::Compare => m.compare(to, part.start as u32, data, &mut copy)?,
                _ => m.take(to, part.start as u32, data, metadata)?,
            }
        }
        Ok(())
    }
}

fn metadata(format: Format, shift: u32, slba: u64, wish: Wish) -> Metadata {
    Metadata::new(format, shift, slba, wish, Some(beside())).unwrap()
}

#[test]
fn what_was_written_is_read_in_every_format() {
    for (format, shift) in formats() {
        let data = pattern((BLOCKS as usize) << shift, 1);
        let beside = pattern(usize::from(format.metadata) * BLOCKS as usize, 99);
        let plain = metadata(format, shift, 5, Wish::default());
        let mut medium = Medium::new(format, shift);
        medium.run(&plain, Op::Write, &mut woven(format, shift, &data, &beside)).unwrap();
        let mut got = woven(format, shift, &vec![0; data.len()], &vec![0; beside.len()]);
        medium.run(&plain, Op::Read, &mut got).unwrap();
        let sent = woven(format, shift, &data, &beside);
        assert_eq!((&got.data, &got.metadata), (&sent.data, &sent.metadata), "{format:?}");
        assert_eq!(medium.run(&plain, Op::Compare, &mut got), Ok(()), "{format:?}");
        got.data[0] ^= 1;
        assert_eq!(medium.run(&plain, Op::Compare, &mut got), Err(Status::COMPARE_FAILURE), "{format:?}");
        let moved = if format.extended { data.len() + beside.len() } else { data.len() };
        assert_eq!(plain.transfer(BLOCKS), moved as u64);
    }
}

#[test]
fn inserted_information_is_that_of_the_standard() {
    for (format, shift) in formats().filter(|(f, _)| f.kind != 0) {
        let (len, _, storage_len, reference_len) = parts(&format);
        // The last block but one before the reference tag wraps.
        let slba = (1u64 << (reference_len * 8)) - 1;
        let storage = if storage_len > 0 { 0xa5c3 } else { 0 };
        let data = pattern((BLOCKS as usize) << shift, 3);
        let size = usize::from(format.metadata);
        let beside = pattern(size * BLOCKS as usize, 7);
        let initial = space(&format, storage, slba);
        let insert = metadata(format, shift, slba, wish(PRACT, 0x1234, 0xffff, initial));
        let mut medium = Medium::new(format, shift);
        // Metadata that is nothing but protection information does not travel.
        let mut sent = if size == len {
            Buffers { data: data.clone(), metadata: vec![] }
        } else {
            woven(format, shift, &data, &beside)
        };
        medium.run(&insert, Op::Write, &mut sent).unwrap();
        let mut seen = woven(format, shift, &data, &beside);
        medium.run(&metadata(format, shift, slba, Wish::default()), Op::Read, &mut seen).unwrap();
        for i in 0..BLOCKS {
            let block = &data[(i as usize) << shift..][..1 << shift];
            let got = if format.extended {
                &seen.data[i as usize * ((1 << shift) + size) + (1 << shift)..][..size]
            } else {
                &seen.metadata[i as usize * size..][..size]
            };
            let at = if format.first { 0 } else { size - len };
            // The reference tag of types 1 and 2 counts and wraps, that of type 3 does not.
            let reference = if format.kind == 3 { slba } else { slba.wrapping_add(i.into()) };
            let expected = information(&format, block, &got[..at], (0x1234, storage, reference));
            assert_eq!(got[at..at + len], expected, "{format:?}");
            let rest = |m: &[u8]| m[..at].iter().chain(&m[at + len..]).copied().collect::<Vec<_>>();
            assert_eq!(rest(got), rest(&beside[i as usize * size..][..size]), "{format:?}");
        }
        // All of it checked, and what checks find: each tag by its own status, the guard first.
        let reference = if format.kind == 3 { 0 } else { REFERENCE };
        let all = GUARD | APPLICATION | STORAGE | reference;
        let mut read = |dw12, tag, mask, initial: u64| {
            let slba = if format.kind == 1 { initial } else { slba };
            let m = metadata(format, shift, slba, wish(dw12, tag, mask, initial));
            let mut into = woven(format, shift, &data, &beside);
            (medium.run(&m, Op::Read, &mut into), into.data.len())
        };
        assert_eq!(read(all, 0x1234, 0xffff, initial).0, Ok(()), "{format:?}");
        assert_eq!(read(all, 0xff34, 0x00ff, initial).0, Ok(()), "only bits of the mask count");
        assert_eq!(read(all, 0x1235, 0xffff, initial).0, Err(Status::APPLICATION_TAG_CHECK_ERROR));
        assert_eq!(read(all & !APPLICATION, 0x1235, 0xffff, initial).0, Ok(()));
        // Bits that the format has not are not looked at.
        let beyond = 1 << ((storage_len + reference_len) * 8);
        assert_eq!(read(all, 0x1234, 0xffff, initial | beyond).0, Ok(()), "{format:?}");
        if storage_len > 0 {
            let other = space(&format, storage ^ 1, slba);
            assert_eq!(read(all, 0x1234, 0xffff, other).0, Err(Status::STORAGE_TAG_CHECK_ERROR), "{format:?}");
            assert_eq!(read(all & !STORAGE, 0x1234, 0xffff, other).0, Ok(()));
        }
        if reference != 0 {
            assert_eq!(read(all, 0x1234, 0xffff, initial - 1).0, Err(Status::REFERENCE_TAG_CHECK_ERROR));
        }
        assert_eq!(read(PRACT | all, 0x1234, 0xffff, initial).0, Ok(()), "checked and stripped");
        medium.data[(1 << shift) + 17] ^= 4;
        let m = metadata(format, shift, slba, wish(all, 0x1234, 0xffff, initial));
        assert_eq!(medium.run(&m, Op::Read, &mut seen), Err(Status::GUARD_CHECK_ERROR));
        let unchecked = metadata(format, shift, slba, wish(0, 0, 0, 0));
        assert_eq!(medium.run(&unchecked, Op::Read, &mut seen), Ok(()));
    }
}

#[test]
fn a_write_with_wrong_information_changes_nothing() {
    for (format, shift) in formats().filter(|(f, _)| f.kind == 2) {
        let data = pattern((BLOCKS as usize) << shift, 3);
        let beside = vec![0x55; usize::from(format.metadata) * BLOCKS as usize];
        let mut sent = woven(format, shift, &data, &beside);
        let mut medium = Medium::new(format, shift);
        for (check, status) in [
            (GUARD, Status::GUARD_CHECK_ERROR),
            (APPLICATION, Status::APPLICATION_TAG_CHECK_ERROR),
            (STORAGE, Status::STORAGE_TAG_CHECK_ERROR),
            (REFERENCE, Status::REFERENCE_TAG_CHECK_ERROR),
        ] {
            if check == STORAGE && format.storage_bits == 0 {
                continue;
            }
            let m = metadata(format, shift, 0, wish(check, 1, 0xffff, 9));
            assert_eq!(medium.run(&m, Op::Write, &mut sent), Err(status), "{format:?}");
        }
    }
}

#[test]
fn deallocated_blocks_and_the_escapes_pass_every_check() {
    for (format, shift) in formats().filter(|(f, _)| f.kind != 0) {
        let mut medium = Medium::new(format, shift);
        let reference = if format.kind == 3 { 0 } else { REFERENCE };
        let m = metadata(format, shift, 7, wish(GUARD | APPLICATION | reference, 3, 0xffff, 7));
        let (zeroes, none) =
            (vec![0; (BLOCKS as usize) << shift], vec![9; usize::from(format.metadata) * BLOCKS as usize]);
        let mut got = woven(format, shift, &zeroes, &none);
        assert_eq!(medium.run(&m, Op::Read, &mut got), Ok(()), "{format:?}");
        let (len, guard_len, storage_len, reference_len) = parts(&format);
        let at = if format.first { 0 } else { usize::from(format.metadata) - len };
        let beside = if format.extended { &got.data[1 << shift..] } else { &got.metadata[..] };
        assert!(beside[at..at + len].iter().all(|b| *b == 0xff));
        assert!(beside[..at].iter().all(|b| *b == 0), "other metadata of deallocated blocks is zeroes");
        // Type 3 escapes by application and reference tag only; the storage tag has no say.
        let mut tuple = vec![1; len];
        tuple[guard_len..guard_len + 2].fill(0xff);
        let mut host = woven(format, shift, &zeroes, &none);
        let put = |tuple: &[u8], host: &mut Buffers| {
            let into = if format.extended { &mut host.data[1 << shift..] } else { &mut host.metadata[..] };
            into[at..at + len].copy_from_slice(tuple);
            let first = Metadata::new(format, shift, 7, wish(GUARD, 0, 0, 7), Some(beside_pointer())).unwrap();
            let (mut data, mut stored) = (vec![0; 1 << shift], vec![0; usize::from(format.metadata)]);
            first.take((host, Owner(0), &DATA), 0, &mut data, &mut stored)
        };
        let escaped = if format.kind == 3 { Err(Status::GUARD_CHECK_ERROR) } else { Ok(()) };
        assert_eq!(put(&tuple, &mut host), escaped, "{format:?}");
        assert_eq!(guard_len + 2 + storage_len + reference_len, len);
        tuple[len - reference_len..].fill(0xff);
        assert_eq!(put(&tuple, &mut host), Ok(()), "{format:?}");
    }
}

fn beside_pointer() -> DataPointer {
    beside()
}

#[test]
fn write_zeroes_inserts_where_it_is_asked_to() {
    let format = format(3, 1, false, true);
    let of = |dw12| Metadata::without_data(format, 12, 4, wish(dw12, 0xab, 0, 4)).unwrap();
    assert_eq!(of(0).zeroed(0, 8192), None);
    let stored = of(PRACT).zeroed(4096, 8192).unwrap();
    let tuples: Vec<Vec<u8>> = stored.chunks(8).map(|t| t.iter().map(|b| !b).collect()).collect();
    assert_eq!(tuples, [[0, 0, 0, 0xab, 0, 0, 0, 5], [0, 0, 0, 0xab, 0, 0, 0, 6]]);
    // Eight bytes of the 64 that a block of 4096 has room for.
    let mut medium = [1; 128];
    of(PRACT).spread(&stored, &mut medium);
    assert_eq!((&medium[..8], &medium[8..64], &medium[64..72]), (&stored[..8], &[1; 56][..], &stored[8..]));
    let mut back = [0; 16];
    of(PRACT).gather(&medium, &mut back);
    assert_eq!(back[..], stored[..]);
}

#[test]
fn wishes_that_make_no_sense_are_refused() {
    let format = |kind| format(2, kind, false, false);
    let new = |kind, dw12, space| Metadata::new(format(kind), 9, 6, wish(dw12, 0, 0, space), Some(beside())).err();
    assert_eq!(new(1, REFERENCE, 6), None);
    assert_eq!(new(1, REFERENCE, 7), Some(Status::INVALID_PROTECTION_INFORMATION.dnr()));
    assert_eq!(new(1, PRACT, 7), None);
    assert_eq!(new(2, REFERENCE, 7), None);
    assert_eq!(new(3, REFERENCE, 6), Some(Status::INVALID_PROTECTION_INFORMATION.dnr()));
    assert_eq!(new(0, REFERENCE, 9), None, "nothing is there to be checked");
    // Without a separate buffer there is only what needs none.
    let none = |dw12| Metadata::new(format(1), 9, 6, wish(dw12, 0, 0, 6), None);
    assert_eq!(none(0).err(), Some(Status::INVALID_FIELD.dnr()));
    assert_eq!(none(PRACT).unwrap().transfer(4), 2048);
}

#[test]
fn somebody_who_knows_of_data_only_is_protected_all_the_same() {
    for (format, shift) in formats() {
        let m = Metadata::hidden(format, shift, 11);
        let data = pattern((BLOCKS as usize) << shift, 5);
        let mut medium = Medium::new(format, shift);
        let mut host = Buffers { data: data.clone(), metadata: vec![] };
        medium.run(&m, Op::Write, &mut host).unwrap();
        assert_eq!(medium.run(&m, Op::Compare, &mut host), Ok(()));
        host.data.fill(0);
        medium.run(&m, Op::Read, &mut host).unwrap();
        assert_eq!(host.data, data);
        medium.data[1] ^= 1;
        let damaged = medium.run(&m, Op::Read, &mut host);
        assert_eq!(damaged, if format.kind == 0 { Ok(()) } else { Err(Status::GUARD_CHECK_ERROR) });
    }
}
