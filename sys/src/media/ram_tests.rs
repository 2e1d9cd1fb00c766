use super::bits;
use super::ram::{RamHeader, SCHEMA};
use super::*;
use crate::arena::Arena;
use crate::arena::tests::{again_in_namespace, documented, inside_namespace};
use proptest::prelude::*;
use std::mem::offset_of;

const SMALL: u32 = 64 << 10;
const HUGE: u32 = 2 << 20;

fn ram(capacity: u64, extent: u32) -> Ram {
    Ram::create_with("test", capacity, extent).unwrap()
}

fn read(ram: &Ram, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    ram.read(offset, len, |at, chunk| {
        assert_eq!(at as usize, bytes.len(), "chunks ascend without gaps");
        bytes.extend_from_slice(chunk);
        Ok(())
    })
    .unwrap();
    assert_eq!(bytes.len(), len as usize);
    bytes
}

fn write(ram: &mut Ram, offset: u64, len: u32, value: u8) {
    let mut calls = 0;
    ram.write(offset, len, |at, bytes| {
        calls += 1;
        assert_eq!((at, bytes.len()), (0, len as usize), "one call, straight into the store");
        bytes.fill(value);
        Ok(())
    })
    .unwrap();
    assert_eq!(calls, 1);
}

fn tidy(ram: &mut Ram) {
    while ram.background() {}
}

#[test]
fn holes_read_as_zeroes_and_take_no_memory() {
    let mut ram = ram(1 << 30, SMALL);
    assert!(read(&ram, 0, 1 << 20).iter().all(|b| *b == 0));
    assert_eq!(ram.resident(), 0);
    write(&mut ram, 512 << 20, 4096, 7);
    assert_eq!(ram.resident(), u64::from(SMALL));
    let bytes = read(&ram, (512 << 20) - 8192, 5 * 4096);
    assert!(bytes.iter().enumerate().all(|(i, b)| *b == if i / 4096 == 2 { 7 } else { 0 }));
    let before = rustix::fs::fstat(ram.arena().fd()).unwrap().st_blocks;
    read(&ram, 0, 64 << 20);
    assert_eq!(rustix::fs::fstat(ram.arena().fd()).unwrap().st_blocks, before, "reading took memory");
}

#[test]
fn a_written_read_is_one_chunk() {
    let mut ram = ram(4 << 20, HUGE);
    write(&mut ram, 4096, 256 << 10, 1);
    for (offset, len) in [(4096, 4096), (4096, 256 << 10), (4096 + 512, 512), (8192 - 512, 1024)] {
        let mut chunks = 0;
        ram.read(offset, len, |_, _| {
            chunks += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(chunks, 1, "{len} bytes at {offset}");
    }
}

#[test]
fn memory_that_was_used_before_does_not_shine_through() {
    let mut ram = ram(4 << 20, SMALL);
    write(&mut ram, 0, 8192, 0xaa);
    ram.zero(0, 8192).unwrap();
    // Not given back yet: the old bytes are still there, behind the bitmap.
    write(&mut ram, 1024, 512, 0xbb);
    let bytes = read(&ram, 0, 8192);
    assert!(bytes.iter().enumerate().all(|(i, b)| *b == if i / 512 == 2 { 0xbb } else { 0 }));
    ram.zero(0, 4096).unwrap();
    let failed = ram.write(0, 512, |_, bytes| {
        bytes.fill(0xcc);
        Err(Status::DATA_TRANSFER_ERROR)
    });
    assert_eq!(failed, Err(Status::DATA_TRANSFER_ERROR));
    assert!(read(&ram, 0, 4096).iter().all(|b| *b == 0), "a first write that failed leaves zeroes");
}

#[test]
fn freed_memory_goes_back_in_the_background() {
    for extent in [SMALL, HUGE] {
        let mut ram = ram(16 << 20, extent);
        write(&mut ram, 0, 16 << 20, 1);
        assert_eq!(ram.resident(), 16 << 20);
        tidy(&mut ram);
        assert_eq!(ram.resident(), 16 << 20, "nothing was freed");
        ram.zero(0, 8 << 20).unwrap();
        ram.zero((12 << 20) + 4096, 4 << 20 >> 1).unwrap();
        tidy(&mut ram);
        let partial = if extent == HUGE { 0 } else { 31 * u64::from(SMALL) };
        assert_eq!(ram.resident(), (8 << 20) - partial);
        let blocks = rustix::fs::fstat(ram.arena().fd()).unwrap().st_blocks as u64 * 512;
        assert!(blocks < ram.resident() + (4 << 20), "{blocks} bytes are still held");
        assert!(!ram.background());
        assert!(read(&ram, 0, 8 << 20).iter().all(|b| *b == 0));
        assert!(read(&ram, 8 << 20, 4 << 20).iter().all(|b| *b == 1));
        write(&mut ram, 4096, 4096, 2);
        assert_eq!(read(&ram, 4096, 4096), [2; 4096]);
    }
}

#[test]
fn a_successor_finds_everything() {
    let mut first = ram(8 << 20, SMALL);
    write(&mut first, 12288, 8192, 5);
    write(&mut first, 4 << 20, 4096, 6);
    first.zero(4 << 20, 4096).unwrap();
    let fd = first.arena().fd().try_clone_to_owned().unwrap();
    drop(first);
    let mut second = Ram::open(Arena::open(fd, SCHEMA).unwrap()).unwrap();
    assert_eq!((second.capacity(), second.resident()), (8 << 20, 128 << 10));
    assert!(read(&second, 12288, 8192).iter().all(|b| *b == 5));
    tidy(&mut second);
    assert_eq!(second.resident(), 64 << 10, "what its predecessor had no time for");
}

#[test]
fn a_layout_that_is_not_ours_is_refused() {
    use zerocopy::IntoBytes;
    let good = ram(8 << 20, SMALL);
    let (layout, _) = <RamHeader as zerocopy::FromBytes>::read_from_prefix(good.arena().payload()).unwrap();
    let spoils: [fn(&mut RamHeader); 6] = [
        |l| l.capacity.set(0),
        |l| l.capacity.set(1 << 62),
        |l| l.capacity.set(9 << 20),
        |l| l.extent.set(4096),
        |l| l.written_at.set(128),
        |l| l.data_at.set(0),
    ];
    for spoil in spoils {
        let mut bad = layout;
        spoil(&mut bad);
        let mut arena =
            Arena::create("bad", SCHEMA, good.arena().payload().len() as u64, crate::arena::Pages::Small).unwrap();
        arena.reserve(0..4096).unwrap();
        arena.payload_mut()[..size_of::<RamHeader>()].copy_from_slice(bad.as_bytes());
        assert!(Ram::open(arena).is_err(), "{bad:?}");
    }
    for capacity in [0, u64::MAX] {
        assert!(Ram::create("none", capacity).is_err());
    }
}

#[test]
fn outside_is_a_status() {
    let mut ram = ram((1 << 20) + 512, SMALL);
    write(&mut ram, 1 << 20, 512, 3);
    assert_eq!(read(&ram, 1 << 20, 512), [3; 512]);
    ram.zero(0, (1 << 20) + 512).unwrap();
    assert_eq!(read(&ram, 1 << 20, 512), [0; 512]);
    for (offset, len) in [(1 << 20, 1024), ((1 << 20) + 512, 1), (u64::MAX - 100, 512), (u64::MAX, 1)] {
        assert_eq!(ram.read(offset, len, |_, _| Ok(())), Err(Status::LBA_OUT_OF_RANGE));
        assert_eq!(ram.write(offset, len, |_, _| Ok(())), Err(Status::LBA_OUT_OF_RANGE));
        assert_eq!(ram.zero(offset, len), Err(Status::LBA_OUT_OF_RANGE));
        ram.prefetch(offset, len);
    }
    assert_eq!(ram.read((1 << 20) + 512, 0, |_, _| panic!("no bytes")), Ok(()));
    assert_eq!(ram.write(0, 0, |_, _| panic!("no bytes")), Ok(()));
    assert_eq!(ram.zero(0, 0), Ok(()));
}

/// A drive in a file on a file system that is too small for it.
#[test]
fn a_full_medium_is_capacity_exceeded() {
    let Some(dir) = inside_namespace("2m") else {
        return again_in_namespace("media::ram_tests::a_full_medium_is_capacity_exceeded");
    };
    let model = ram(16 << 20, SMALL);
    let head = model.arena().payload()[..4096].to_vec();
    let mut arena = Arena::create_file(&dir.join("drive"), SCHEMA, model.arena().payload().len() as u64).unwrap();
    arena.reserve(0..4096).unwrap();
    arena.payload_mut()[..4096].copy_from_slice(&head);
    let mut ram = Ram::open(arena).unwrap();
    let mut written = 0;
    let full = (0..256u64).find_map(|n| {
        match ram.write(n * 65536, 4096, |_, b| {
            b.fill(n as u8 + 1);
            Ok(())
        }) {
            Ok(()) => {
                written += 1;
                None
            }
            Err(status) => Some(status),
        }
    });
    assert_eq!(full, Some(Status::CAPACITY_EXCEEDED));
    assert!((16..33).contains(&written), "{written} extents in 2 MiB");
    for n in 0..written {
        assert!(read(&ram, n * 65536, 4096).iter().all(|b| *b == n as u8 + 1), "what was written is still there");
    }
    assert!(read(&ram, written * 65536, 4096).iter().all(|b| *b == 0), "what was refused is not");
    ram.zero(0, 65536).unwrap();
    tidy(&mut ram);
    write(&mut ram, written * 65536, 4096, 9);
    assert_eq!(read(&ram, written * 65536, 4096), [9; 4096], "freed memory is memory again");
}

#[derive(Clone, Debug)]
enum Step {
    Write(u32, u32, u8),
    Zero(u32, u32),
    Read(u32, u32),
    Background,
    Reopen,
}

fn steps(capacity: u32) -> impl Strategy<Value = Vec<Step>> {
    // Mostly short, sometimes long; ends beyond the capacity are cut.
    let span = move || {
        let len = prop_oneof![4 => 1u32..32, 1 => 1u32..capacity / 512];
        (0..capacity / 512, len).prop_map(move |(at, len)| (at * 512, (len * 512).min(capacity - at * 512)))
    };
    let step = prop_oneof![
        4 => (span(), 1u8..).prop_map(|((at, len), v)| Step::Write(at, len, v)),
        2 => span().prop_map(|(at, len)| Step::Zero(at, len)),
        3 => span().prop_map(|(at, len)| Step::Read(at, len)),
        1 => Just(Step::Background),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 3 / 8))]
    /// Against a vector of bytes.
    #[test]
    fn like_the_model(capacity in prop_oneof![Just(300 * 512u32), Just(1 << 20), Just((3 << 20) + 512)], huge: bool,
                      seed in any::<prop::sample::Index>(), script in steps(300 * 512)) {
        let mut drive = ram(capacity.into(), if huge { HUGE } else { SMALL });
        // The script's offsets start anywhere that leaves room for them.
        let shift = seed.index(((capacity - 300 * 512) / 512 + 1) as usize) as u32 * 512;
        let mut model = vec![0u8; capacity as usize];
        for step in script {
            match step {
                Step::Write(at, len, v) => {
                    write(&mut drive, (at + shift).into(), len, v);
                    model[(at + shift) as usize..][..len as usize].fill(v);
                }
                Step::Zero(at, len) => {
                    drive.zero((at + shift).into(), len).unwrap();
                    model[(at + shift) as usize..][..len as usize].fill(0);
                }
                Step::Read(at, len) => {
                    drive.prefetch((at + shift).into(), len);
                    prop_assert_eq!(&read(&drive, (at + shift).into(), len), &model[(at + shift) as usize..][..len as usize]);
                }
                Step::Background => { drive.background(); }
                Step::Reopen => {
                    let fd = drive.arena().fd().try_clone_to_owned().unwrap();
                    drive = Ram::open(Arena::open(fd, SCHEMA).unwrap()).unwrap();
                }
            }
        }
        tidy(&mut drive);
        prop_assert!(read(&drive, 0, capacity) == model);
        let taken = model.chunks(if huge { HUGE } else { SMALL } as usize).filter(|c| c.iter().any(|b| *b != 0)).count() as u64;
        let extent = u64::from(if huge { HUGE } else { SMALL });
        prop_assert!(drive.resident() >= taken * extent);
    }
}

#[test]
fn docs_draw_the_layout() {
    macro_rules! fields {
        ($($name:ident),*) => { [$((offset_of!(RamHeader, $name), stringify!($name).to_owned())),*] };
    }
    let ours = fields!(capacity, page, extent, written_at, taken_at, data_at);
    let ends = ours.iter().skip(1).map(|f| f.0).chain([size_of::<RamHeader>()]);
    let ours: Vec<_> = ours.iter().zip(ends).map(|((at, name), end)| (*at, end - at, name.clone())).collect();
    assert_eq!(documented("RAM media"), ours);
}

/// The payload's head of version 1, byte by byte.
#[test]
fn golden_layout() {
    let ram = ram(8 << 20, SMALL);
    let golden: [u64; 5] = [8 << 20, (SMALL as u64) << 32 | 4096, 64, 64 + 256, (2 << 20) - 4096];
    let golden: Vec<u8> = golden.iter().flat_map(|w| w.to_le_bytes()).collect();
    assert_eq!(ram.arena().payload()[..40], golden);
    assert_eq!(bits::bytes_for(2048), 256);
}
