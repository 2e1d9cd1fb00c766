//! Stores that are full: filled to the last grain, full for good, and full until what was given up is free.

use super::world::{FAR, World, name, open_new};
use crate::client::{ClientEvent, ClientFailure, ClientFault, FileWork, OpenFileId, WorkId};
use crate::file::FileError;
use crate::id::InodeId;
use crate::protocol::Request;
use crate::service::NAMESPACE_MIN;
use crate::space::{GRAIN, REGION_MIN};
use crate::tree::{EntryPath, NameChange};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use weir_units::Nanos;

/// Bytes of a file's block.
const LARGE: u32 = 4 << 20;
/// Bytes of a small file.
const SMALL: u32 = 1_300_000;
/// As many as the drive has room for.
const MOST: u64 = REGION_MIN / (SMALL as u64).next_multiple_of(GRAIN);

fn world(seed: u64) -> World {
    World::with_drives(seed, 1, NAMESPACE_MIN)
}

fn is_full(failure: &ClientFailure) -> bool {
    matches!(failure.fault, ClientFault::File(FileError::NoSpace))
}

fn create(world: &mut World, who: usize, at: &str) -> OpenFileId {
    let request = match open_new(at, 1) {
        Request::OpenNew { slot, sequence, entry, mut new, content, exclusive } => {
            new.block = LARGE;
            Request::OpenNew { slot, sequence, entry, new, content, exclusive }
        }
        other => other,
    };
    world.open(who, request).file
}

fn write(world: &mut World, who: usize, file: OpenFileId, until: Nanos) -> WorkId {
    world.start(who, file, FileWork::Write(0, SMALL), &vec![1; SMALL as usize], until)
}

/// Small files, `lanes` of them at a time, until one does not fit any more: how many there are.
fn fill(world: &mut World, who: usize, lanes: usize, work: FileWork) -> u64 {
    let (mut files, mut number, bytes) = (0, 0, vec![1; SMALL as usize]);
    loop {
        let opened: Vec<OpenFileId> = (0..lanes)
            .map(|_| {
                number += 1;
                create(world, who, &format!("small{number}"))
            })
            .collect();
        let works: Vec<WorkId> = opened.iter().map(|file| world.start(who, *file, work, &bytes, FAR)).collect();
        let mut full = false;
        for work in works {
            match world.io(who, work).0 {
                Ok(_) => files += 1,
                Err(failure) => {
                    assert!(is_full(&failure), "{failure:?}");
                    full = true;
                }
            }
        }
        for file in opened {
            let closed = world.run(who, file, FileWork::Close, b"");
            assert!(full || closed.is_ok(), "{closed:?}");
            world.give(who, ClientEvent::Forget(file));
        }
        if full {
            return files;
        }
    }
}

fn delete(world: &mut World, who: usize, which: &str) {
    let entry = EntryPath { container: InodeId::ROOT, name: name(which) };
    let change = NameChange::Delete { entry, recursive: false };
    world.ask(who, Request::Change { slot: 0, sequence: 0, change }).expect("it is deleted");
}

/// Whose end is known takes no more than it needs; else most of a block is given back when its file is closed, and lies between the blocks of others.
#[test]
fn small_files_fill_a_store() {
    for (work, least) in [(FileWork::WriteLast(0, SMALL), MOST), (FileWork::Write(0, SMALL), MOST - 4)] {
        for lanes in [1, 3] {
            let mut world = world(20 + lanes as u64);
            let who = world.client(None);
            let files = fill(&mut world, who, lanes, work);
            assert!((least..=MOST).contains(&files), "{files} files of {MOST}, {lanes} at a time by {work:?}");
        }
    }
}

/// A block that was granted for a short write holds what is written behind that.
#[test]
fn a_short_block_grows() {
    for first in [FileWork::WriteLast(0, 500_000), FileWork::Write(0, 500_000)] {
        let mut world = world(22);
        let who = world.client(None);
        if matches!(first, FileWork::Write(..)) {
            fill(&mut world, who, 3, FileWork::WriteLast(0, SMALL));
            (1..=4).for_each(|number| delete(&mut world, who, &format!("small{number}")));
        }
        let file = create(&mut world, who, "grows");
        let mut expected = vec![7; 500_000];
        world.run(who, file, first, &expected.clone()).expect("there is room");
        for (number, len) in (1u8..).zip([3, 300_000, 4_096]) {
            let (bytes, at) = (vec![number; len], expected.len() as u64);
            world.write(who, file, at, &bytes).expect("there is room");
            expected.extend(bytes);
            assert_eq!(world.read(who, file, 0, LARGE).expect("it is read"), expected);
        }
        world.run(who, file, FileWork::Close, b"").expect("closed");
        assert_eq!(world.published("grows"), expected);
        assert!(world.clients[who].log.iter().any(|request| matches!(request, Request::GrantShort { .. })));
    }
}

/// What was deleted is free when every session has let go of it: a write waits for that, up to its deadline.
#[test]
fn a_write_waits_for_what_was_given_up() {
    let mut world = world(23);
    let (who, other) = (world.client(None), world.client(None));
    fill(&mut world, who, 3, FileWork::WriteLast(0, SMALL));
    let file = create(&mut world, who, "late");
    let (begun, until) = (world.now, world.now.saturating_add(Nanos::from_secs(2)));
    let work = write(&mut world, who, file, until);
    assert!(is_full(&world.io(who, work).0.expect_err("it is full")));
    assert!(world.now < begun.saturating_add(Nanos::from_millis(500)), "nothing is waited for that does not come");
    delete(&mut world, who, "small7");
    let work = write(&mut world, who, file, FAR);
    world.io(who, work).0.expect("there is room by and by");
    // The other session cannot say that it has let go.
    delete(&mut world, who, "small8");
    world.disconnect(other);
    world.clients[other].wish = None;
    let second = create(&mut world, who, "later");
    let until = world.now.saturating_add(Nanos::from_millis(300));
    let work = write(&mut world, who, second, until);
    let failure = world.io(who, work).0.expect_err("it is late");
    assert!(is_full(&failure), "what it lacked: {failure:?}");
    let work = write(&mut world, who, second, FAR);
    world.io(who, work).0.expect("that session has ended");
}

#[test]
fn nothing_is_kept_of_a_full_store() {
    let mut world = world(24);
    let who = world.client(None);
    fill(&mut world, who, 3, FileWork::Write(0, SMALL));
    let file = create(&mut world, who, "x");
    let len = 3 * LARGE;
    let work = world.start(who, file, FileWork::Write(0, len), &vec![1; len as usize], FAR);
    assert!(is_full(&world.io(who, work).0.expect_err("it is full")));
    world.give(who, ClientEvent::Forget(file));
    assert_eq!(world.held(who), (0, 0));
}
