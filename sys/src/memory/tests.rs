use super::*;
use std::sync::atomic::Ordering::Relaxed;

fn file(len: u64) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    fd
}

fn region(guest: u64, len: u64, offset: u64) -> GuestRegion {
    GuestRegion { guest, len, user: guest, offset }
}

#[test]
fn both_sides_see_the_same_bytes() {
    let fd = memory_file("test", 5 << 20).unwrap();
    let there = region(0x7000_0000, 6 << 20, 0);
    let (mut ours, mut theirs) = (GuestMemory::new(), GuestMemory::new());
    ours.add(there, fd.try_clone().unwrap()).unwrap();
    ours.populate();
    theirs.add(GuestRegion { guest: 0x10000, ..there }, fd).unwrap();
    ours.write(there.guest + 123, b"hello").unwrap();
    let mut b = [0; 5];
    theirs.read(0x10000 + 123, &mut b).unwrap();
    assert_eq!(&b, b"hello");
    let w = theirs.window(0x10000, 64).unwrap();
    theirs.store64(&w, 8, 0x0102_0304_0506_0708, Ordering::Release).unwrap();
    let v = ours.window(there.guest, 64).unwrap();
    assert_eq!(ours.load64(&v, 8, Ordering::Acquire), Ok(0x0102_0304_0506_0708));
    assert_eq!(ours.load16(&v, 8, Relaxed), Ok(0x0708));
    assert_eq!(ours.load32(&v, 12, Relaxed), Ok(0x0102_0304));
    theirs.store_pair32(&w, 20, 7, 9).unwrap();
    assert_eq!((ours.load32(&v, 20, Relaxed), ours.load32(&v, 24, Relaxed)), (Ok(7), Ok(9)));
}

#[test]
fn a_window_is_checked_and_dies_with_its_region() {
    let mut m = GuestMemory::new();
    m.add(region(0x1000, 0x1000, 0), file(0x1000)).unwrap();
    m.add(region(0x2000, 0x1000, 0), file(0x1000)).unwrap();
    let w = m.window(0x2000, 16).unwrap();
    assert_eq!(m.load16(&w, 15, Relaxed), Err(MemoryFault::OutOfWindow));
    assert_eq!(m.load16(&w, usize::MAX, Relaxed), Err(MemoryFault::OutOfWindow));
    assert_eq!(m.load32(&w, 2, Relaxed), Err(MemoryFault::Misaligned));
    assert!(m.window(0x1ff8, 16).is_err(), "a window is in one region");
    m.write(0x1ffc, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(m.load32(&w, 0, Relaxed), Ok(0x0807_0605), "a copy may span two");
    let mut b = [0; 4];
    m.read(0x1ffe, &mut b).unwrap();
    assert_eq!(b, [3, 4, 5, 6]);
    m.remove(&region(0x2000, 0x1000, 0));
    assert_eq!(m.load16(&w, 0, Relaxed), Err(MemoryFault::Stale));
    assert_eq!(m.read(0x1ffe, &mut b), Err(MemoryFault::Unmapped));
    assert_eq!(m.read(u64::MAX - 1, &mut b), Err(MemoryFault::Unmapped));
    assert!(m.window(0x2000, 1).is_err());
}

#[test]
fn a_window_of_another_table_is_not_followed() {
    let mut a = GuestMemory::new();
    let mut b = GuestMemory::new();
    a.add(region(0, 0x1000, 0), file(0x1000)).unwrap();
    b.add(region(0, 0x1000, 0), file(0x1000)).unwrap();
    let w = a.window(0, 16).unwrap();
    assert_eq!(b.load16(&w, 0, Relaxed), Err(MemoryFault::Stale));
}

#[test]
fn a_file_must_be_as_long_as_its_region() {
    let mut m = GuestMemory::new();
    let short = m.add(region(0, 0x3000, 0x1000), file(0x3000)).unwrap_err();
    assert_eq!(short, MapError::TooShort { need: 0x4000, have: 0x3000 });
    assert!(matches!(m.add(region(0, u64::MAX, 2), file(0x3000)), Err(MapError::System(_))));
    // libblkio sends lengths that are no multiple of a page.
    m.add(region(0, 0x2345, 0), file(0x2345)).unwrap();
    m.write(0x2340, &[1; 5]).unwrap();
    assert!(m.write(0x2341, &[1; 5]).is_err());
    assert_eq!(m.regions(), 1);
}

#[test]
fn a_failed_table_leaves_the_old_one() {
    let mut m = GuestMemory::new();
    m.add(region(0, 0x1000, 0), file(0x1000)).unwrap();
    let w = m.window(0, 16).unwrap();
    let bad = vec![(region(0x1000, 0x1000, 0), file(0x1000)), (region(0x2000, 0x1000, 0), file(0))];
    assert!(m.replace(bad).is_err());
    assert_eq!(m.load16(&w, 0, Relaxed), Ok(0));
    m.replace(vec![(region(0x1000, 0x1000, 0), file(0x1000))]).unwrap();
    assert_eq!(m.load16(&w, 0, Relaxed), Err(MemoryFault::Stale));
}

#[test]
fn an_offset_within_a_page_is_served() {
    let fd = file(0x3000);
    rustix::io::pwrite(&fd, b"abc", 0x1234).unwrap();
    let mut m = GuestMemory::new();
    m.add(region(0x8000, 0x100, 0x1230), fd).unwrap();
    let mut b = [0; 3];
    m.read(0x8004, &mut b).unwrap();
    assert_eq!(&b, b"abc");
}

#[test]
fn a_file_truncated_under_its_mapping_reads_as_zeroes() {
    let fd = file(0x4000);
    let other = fd.try_clone().unwrap();
    let mut m = GuestMemory::new();
    m.add(region(0, 0x4000, 0), fd).unwrap();
    m.write(0x2000, &[7; 16]).unwrap();
    rustix::fs::ftruncate(&other, 0x1000).unwrap();
    let mut b = [1; 16];
    m.read(0x2000, &mut b).unwrap();
    assert_eq!(b, [0; 16]);
    m.write(0x3ff0, &[7; 16]).unwrap();
}
