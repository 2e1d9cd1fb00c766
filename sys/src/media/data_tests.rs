use super::{Null, Ram, Store, next_data};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;

#[test]
fn a_file_tells_what_was_written_and_room_that_was_not() {
    let path = std::env::temp_dir().join(format!("weir-data-{}", std::process::id()));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.set_len(8 * MIB).unwrap();
    file.write_all_at(&[1; 4096], MIB).unwrap();
    file.write_all_at(&[1; 4096], 3 * MIB - 4096).unwrap();
    let allocated = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 4 * MIB, MIB);
    let fd = OwnedFd::from(file);
    assert_eq!(next_data(&fd, 0..8 * MIB), Some(MIB..MIB + 4096));
    assert_eq!(next_data(&fd, MIB + 512..8 * MIB), Some(MIB + 512..MIB + 4096), "from within");
    assert_eq!(next_data(&fd, MIB..MIB + 512), Some(MIB..MIB + 512), "no further than was asked");
    assert_eq!(next_data(&fd, MIB + 4096..8 * MIB), Some(3 * MIB - 4096..3 * MIB));
    assert_eq!(next_data(&fd, 2 * MIB..3 * MIB - 4096), None);
    assert_eq!(next_data(&fd, 5 * MIB..8 * MIB), None, "nothing up to the end");
    assert_eq!(next_data(&fd, 9 * MIB..10 * MIB), None, "behind the end");
    assert_eq!(next_data(&fd, MIB..MIB), None, "an empty range");
    // Some file systems give room at once, which is data then; it is never told of where it is not.
    if allocated.is_ok() {
        assert!(next_data(&fd, 4 * MIB..8 * MIB).is_none_or(|data| data == (4 * MIB..5 * MIB)));
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn what_has_no_holes_is_all_data() {
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    assert_eq!(next_data(&pipe, 5..9), Some(5..9));
    let null = Store::Null(Null::new(MIB));
    assert!(null.may_have_data(0, 4096));
}

#[test]
fn memory_tells_which_pages_were_written_and_not_deallocated() {
    let mut ram = Store::Ram(Ram::create("data", 8 * MIB).unwrap());
    let at = 3 * MIB - 4096;
    ram.write(at, 512, |_, bytes| {
        bytes.fill(7);
        Ok(())
    })
    .unwrap();
    assert!(ram.may_have_data(2 * MIB, 1 << 20) && ram.may_have_data(at + 4095, 1));
    assert!(!ram.may_have_data(3 * MIB, 5 << 20) && !ram.may_have_data(0, (2 << 20) + 4096));
    assert!(!ram.may_have_data(at, 0), "nothing has nothing");
    assert!(ram.may_have_data(8 * MIB, 1), "outside of it nothing is certain");
    ram.deallocate(2 * MIB, 1 << 20).unwrap();
    assert!(!ram.may_have_data(0, 8 << 20));
}
