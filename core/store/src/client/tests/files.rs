//! Open files: moved from the inode to blocks, cut, closed, opened again; what they were granted and do not need.

use super::world::{BLOCK, FAR, World, open_new};
use crate::StoreError;
use crate::client::{ClientEvent, ClientFault, FileWork, Outcome};
use crate::file::{FileError, NewBlock};
use crate::mutant::Mutant;
use crate::protocol::{Answer, Request};
use crate::{Extent, Generation, NamespaceId};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use weir_units::Nanos;

fn refused(error: StoreError) -> Answer {
    Answer::Failed { error, detail: String::new() }
}

fn kind_of_grant() -> u16 {
    Request::Grant { handle: 0, count: 1 }.kind()
}

/// The bytes of a small file are there whatever becomes of the write that it is too small for.
fn outgrow(mutant: Option<Mutant>) -> Result<(), String> {
    for fails_at_drive in [false, true] {
        let mut world = World::new(1);
        let who = world.client(mutant);
        let file = world.create(who, "small", 1);
        world.write(who, file, 0, &[7; 1000]).expect("a small write");
        match fails_at_drive {
            true => world.drive_failures = 1_000_000,
            false => {
                let short = Request::GrantShort { handle: 0, bytes: 0 }.kind();
                let kinds = [kind_of_grant(), short];
                world.clients[who].instead = kinds.map(|kind| (kind, refused(StoreError::NoSpace))).to_vec();
            }
        }
        let large = vec![8; 100_000];
        let first = world.start(who, file, FileWork::Write(500, 100_000), &large, FAR);
        // What comes behind it is small.
        let second = world.start(who, file, FileWork::Write(10, 20), &[9; 20], FAR);
        let failed = world.io(who, first).0;
        let is_right = |fault: &ClientFault| match fails_at_drive {
            true => matches!(fault, ClientFault::File(FileError::Unwritable(0))),
            false => matches!(fault, ClientFault::File(FileError::NoSpace)),
        };
        if !failed.as_ref().is_err_and(|failure| is_right(&failure.fault)) {
            return Err(format!("the write ends with {failed:?}"));
        }
        world.drive_failures = 0;
        if world.io(who, second).0 != Ok(20) {
            return Err("what is small goes on".into());
        }
        let mut expected = vec![7; 1000];
        expected[10..30].fill(9);
        let read = world.read(who, file, 0, 5_000);
        if read != Ok(expected.clone()) {
            return Err(format!("read: {:.100}", format!("{read:?}")));
        }
        world.run(who, file, FileWork::Flush, b"").expect("a flush");
        if world.published("small") != expected {
            return Err("others read something else".into());
        }
        if world.held(who).0 != 0 {
            return Err("what was granted is kept".into());
        }
        // It grows as well, now that nothing fails.
        world.write(who, file, 500, &large).expect("a large write");
        world.run(who, file, FileWork::Close, b"").expect("closed");
        expected.resize(500, 0);
        expected.extend(&large);
        if world.published("small") != expected {
            return Err("the grown file is another one".into());
        }
    }
    Ok(())
}

#[test]
fn a_small_file_that_cannot_move_keeps_its_bytes() {
    assert_eq!(outgrow(None), Ok(()));
    assert!(std::panic::catch_unwind(|| outgrow(Some(Mutant::MovedBytesLost))).is_ok_and(|result| result.is_err()));
}

#[test]
fn what_was_acknowledged_is_in_a_file_that_is_cut() {
    let mut world = World::new(2);
    let who = world.client(None);
    let file = world.create(who, "cut", 1);
    world.write(who, file, 0, &vec![1; 300_000]).expect("a write");
    // Acknowledged, not published; others are still on their way.
    let more = world.start(who, file, FileWork::Write(200_000, 50_000), &vec![2; 50_000], FAR);
    let cut = world.start(who, file, FileWork::Truncate(250_001), b"", FAR);
    let behind = world.start(who, file, FileWork::Write(260_000, 10), &[3; 10], FAR);
    for work in [more, cut, behind] {
        world.io(who, work).0.expect("all of it is done");
    }
    let mut expected = vec![1; 200_000];
    expected.extend(vec![2; 50_000]);
    expected.push(1);
    expected.resize(260_000, 0);
    expected.extend([3; 10]);
    assert_eq!(world.read(who, file, 0, 400_000), Ok(expected.clone()));
    world.run(who, file, FileWork::Close, b"").expect("closed");
    assert_eq!(world.published("cut"), expected);
}

/// The commit of a truncation is on its way when the caller's time is over. What follows waits for its outcome.
fn cut_late(mutant: Option<Mutant>) -> bool {
    let mut world = World::new(3);
    let who = world.client(mutant);
    let file = world.create(who, "late", 1);
    world.write(who, file, 0, &vec![1; 200_000]).expect("a write");
    world.run(who, file, FileWork::Flush, b"").expect("a flush");
    let cuts = |request: &Request| matches!(request, Request::Publish { size: 65_536, .. });
    let until = world.now.saturating_add(Nanos::from_millis(500));
    let cut = world.start(who, file, FileWork::Truncate(u64::from(BLOCK)), b"", until);
    world.until("the commit is sent", |world| world.clients[who].log.iter().any(cuts));
    // It waits on its way, and so does all that follows on the same connection; another connection is there before it.
    let at = world.clients[who].out.iter().position(|(_, request)| cuts(request)).expect("it is on its way");
    let held = world.clients[who].out.remove(at).expect("it");
    world.until("the caller is told", |world| world.clients[who].finished.contains_key(&cut));
    let failure = world.io(who, cut).0.expect_err("it is late");
    assert_eq!(failure.fault, ClientFault::Deadline);
    let write = world.start(who, file, FileWork::Write(0, 100_000), &vec![2; 100_000], FAR);
    let flush = world.start(who, file, FileWork::Flush, b"", FAR);
    world.run_for(Nanos::from_millis(300));
    let has_overtaken = world.clients[who].finished.contains_key(&flush);
    world.clients[who].out.push_back(held);
    world.io(who, write).0.expect("written");
    world.io(who, flush).0.expect("published");
    world.run_for(Nanos::from_millis(300));
    let mut expected = vec![2; 100_000];
    expected.truncate(100_000);
    !has_overtaken && world.published("late") == expected
}

#[test]
fn nothing_newer_is_published_before_a_truncation_is_known() {
    assert!(cut_late(None));
    let found = std::panic::catch_unwind(|| cut_late(Some(Mutant::TruncateForgotten)));
    assert!(!found.unwrap_or(false), "a truncation that is forgotten undoes what came later");
}

/// Nobody flushes: each write begins with the blocks before it being published, and goes on beside that.
#[test]
fn a_long_stream_is_published_while_it_is_written() {
    let mut world = World::new(6);
    world.publishes_behind = true;
    let who = world.client(None);
    let file = world.create(who, "stream", 2);
    let (block, count) = (BLOCK as usize, 12);
    let expected: vec::Vec<u8> = (0..count).flat_map(|i| vec![i as u8 + 1; block]).collect();
    let mut sizes = vec::Vec::new();
    for (i, bytes) in expected.chunks(block).enumerate() {
        // A write of half of the next block is under way all the time.
        let (first, second) = bytes.split_at(block / 2);
        let at = (i * block) as u64;
        let halves = [(at, first), (at + first.len() as u64, second)];
        let works = halves.map(|(at, half)| world.start(who, file, FileWork::Write(at, half.len() as u32), half, FAR));
        works.into_iter().for_each(|work| world.io(who, work).0.map(drop).expect("written"));
        sizes.push(world.published("stream").len());
    }
    let log = &world.clients[who].log;
    let publishes = log.iter().filter(|request| matches!(request, Request::Publish { .. })).count();
    assert!(publishes >= count / 2, "{publishes} publishes, sizes {sizes:?}");
    assert!(sizes.iter().enumerate().all(|(i, size)| *size % block == 0 && *size <= (i + 1) * block), "{sizes:?}");
    world.run(who, file, FileWork::Close, b"").expect("closed");
    assert_eq!(world.published("stream"), expected);
}

#[test]
fn reads_end_when_the_file_is_closed_or_cut_meanwhile() {
    let mut world = World::new(4);
    let (who, other) = (world.client(None), world.client(None));
    let opened = world.open(who, open_new("both", 1));
    world.write(who, opened.file, 0, &vec![1; 200_000]).expect("a write");
    world.run(who, opened.file, FileWork::Flush, b"").expect("a flush");
    // A reader whose block is being written over tries again, and closes meanwhile.
    let reader = world.open(other, Request::Open { at: opened.at, write: false }).file;
    world.write(who, opened.file, 0, &[2; 5_000]).expect("a write");
    let read = world.start(other, reader, FileWork::Read(0, 100), b"", FAR);
    world.run_for(Nanos::from_millis(50));
    let close = world.start(other, reader, FileWork::Close, b"", FAR);
    world.run_for(Nanos::from_millis(50));
    assert!(!world.clients[other].finished.contains_key(&read), "it is tried again");
    world.run(who, opened.file, FileWork::Flush, b"").expect("a flush");
    assert_eq!(world.io(other, read).0, Ok(100));
    assert_eq!(world.io(other, close).0, Ok(0));
    // A writer that closes with reads under way at a drive that stalls.
    world.stalled = vec![NamespaceId(1), NamespaceId(2)];
    let reads: vec::Vec<_> =
        (0..3).map(|i| world.start(who, opened.file, FileWork::Read(i * 60_000, 50_000), b"", FAR)).collect();
    let cut = world.start(who, opened.file, FileWork::Truncate(1_000), b"", FAR);
    let close = world.start(who, opened.file, FileWork::Close, b"", FAR);
    world.run_for(Nanos::from_millis(200));
    world.stalled.clear();
    for read in reads {
        assert_eq!(world.io(who, read).0, Ok(50_000));
    }
    assert_eq!((world.io(who, cut).0, world.io(who, close).0), (Ok(0), Ok(0)));
    assert_eq!((world.held(who), world.held(other)), ((0, 0), (0, 0)));
}

#[test]
fn a_file_that_is_opened_too_late_is_closed_again() {
    let opened_late = |mutant| {
        let mut world = World::new(5);
        let who = world.client(mutant);
        let until = world.now.saturating_add(Nanos::from_millis(100));
        let work = world.start_open(who, open_new("gone", 1), until);
        world.until("it is sent", |world| !world.clients[who].out.is_empty());
        let held = world.clients[who].out.pop_front().expect("a request");
        let Outcome::Opened(Err(failure)) = world.finish(who, work) else { panic!("it is opened") };
        assert_eq!(failure.fault, ClientFault::Deadline);
        world.clients[who].out.push_back(held);
        world.held(who)
    };
    assert_eq!(opened_late(None), (0, 0));
    assert_eq!(opened_late(Some(Mutant::OpenedKept)), (0, 1));
}

#[test]
fn blocks_that_are_not_needed_are_given_back() {
    let granted_late = |mutant| {
        let mut world = World::new(6);
        let who = world.client(mutant);
        let file = world.create(who, "late", 1);
        let until = world.now.saturating_add(Nanos::from_millis(200));
        let work = world.start(who, file, FileWork::Write(0, 100_000), &vec![1; 100_000], until);
        world.until("blocks are granted", |world| {
            world.clients[who].answers.iter().any(|(_, answer)| matches!(answer, Answer::Granted { .. }))
        });
        let held = core::mem::take(&mut world.clients[who].answers);
        world.io(who, work).0.expect_err("it is late");
        world.give(who, ClientEvent::Forget(file));
        world.clients[who].answers.extend(held);
        world.held(who)
    };
    assert_eq!(granted_late(None), (0, 0));
    assert!(granted_late(Some(Mutant::GrantsKept)).0 > 0);
}

/// A file that takes no more writes does not keep others from writing: 16 MiB are all that a session may have ahead.
#[test]
fn a_file_that_takes_no_more_writes_keeps_nothing() {
    let mut world = World::new(7);
    let who = world.client(None);
    let (bad, good) = (world.create(who, "bad", 1), world.create(who, "good", 1));
    let large = vec![1; 3 << 20];
    for i in 0..4 {
        world.write(who, bad, i << 22, &large).expect("a write");
    }
    world.drive_failures = 1_000_000;
    world.write(who, bad, 0, &[2; 4096]).expect_err("the drive fails");
    world.drive_failures = 0;
    let failure = world.write(who, bad, 0, &[2; 4096]).expect_err("no more writes");
    assert!(matches!(failure.fault, ClientFault::File(FileError::Unwritable(0))), "{failure:?}");
    let failure = world.read(who, bad, 1 << 22, 100).expect_err("its bytes are lost");
    assert!(matches!(failure.fault, ClientFault::File(FileError::Unwritable(0))), "{failure:?}");
    for i in 0..4 {
        world.write(who, good, i << 22, &large).expect("others write");
    }
    world.run(who, good, FileWork::Close, b"").expect("closed");
    world.give(who, ClientEvent::Forget(bad));
    assert_eq!(world.held(who), (0, 0));
}

#[test]
fn files_share_what_a_session_may_have_ahead() {
    let mut world = World::new(8);
    let who = world.client(None);
    let files: vec::Vec<_> = (0..3).map(|i| world.create(who, &format!("f{i}"), 2)).collect();
    let large = vec![5; 1 << 20];
    let works: vec::Vec<_> = (0..8u64)
        .flat_map(|i| files.iter().map(move |file| (i, *file)))
        .map(|(i, file)| world.start(who, file, FileWork::Write(i << 20, 1 << 20), &large, FAR))
        .collect();
    for work in works {
        assert_eq!(world.io(who, work).0, Ok(1 << 20));
    }
    for file in files {
        world.run(who, file, FileWork::Close, b"").expect("closed");
    }
    assert_eq!(world.held(who), (0, 0));
}

/// A file that the service does not open again fails by that cause, and at once.
#[test]
fn a_file_that_cannot_be_opened_again_fails_with_the_cause() {
    let mut world = World::new(9);
    let who = world.client(None);
    let file = world.create(who, "lost", 1);
    world.write(who, file, 0, &vec![1; 100_000]).expect("a write");
    let open =
        Request::Open { at: crate::InodePath { inode: crate::InodeId(0), parent: crate::InodeId(0) }, write: true };
    world.clients[who].instead = vec![(open.kind(), refused(StoreError::Damaged))];
    world.restart();
    for _ in 0..2 {
        for what in [FileWork::Flush, FileWork::Truncate(5)] {
            let before = world.now;
            let failure = world.run(who, file, what, b"").expect_err("it is lost");
            assert!(matches!(failure.fault, ClientFault::Store(StoreError::Damaged, _)), "{failure:?}");
            assert!(world.now < before.saturating_add(Nanos::from_secs(5)), "at once");
        }
    }
    world.give(who, ClientEvent::Forget(file));
    world.run_for(Nanos::from_millis(200));
    assert!(!world.clients[who].machine.has_work() || world.clients[who].machine.size(file).is_none());
}

#[test]
fn a_file_that_ends_late_is_closed_at_the_service() {
    let mut world = World::new(10);
    let who = world.client(None);
    let file = world.create(who, "slow", 1);
    world.write(who, file, 0, &vec![1; 100_000]).expect("a write");
    world.stalled = vec![NamespaceId(1), NamespaceId(2)];
    let until = world.now.saturating_add(Nanos::from_millis(100));
    let read = world.start(who, file, FileWork::Read(0, 100_000), b"", until);
    world.until("it is at a drive", |world| world.clients[who].drives.values().any(|drive| !drive.commands.is_empty()));
    world.give(who, ClientEvent::Forget(file));
    world.run_for(Nanos::from_millis(300));
    world.stalled.clear();
    world.io(who, read).0.expect_err("it is late");
    assert_eq!(world.held(who), (0, 0));
}

/// What the service says that cannot be is an error which says what.
#[test]
fn a_hostile_service_is_told_what_is_wrong() {
    let mut world = World::new(11);
    let who = world.client(None);
    let opened = world.open(who, open_new("bad", 1));
    let extent =
        |offset: u64, length: u64| Extent { namespace: NamespaceId(1), offset: offset.into(), length: length.into() };
    let whole = u64::from(BLOCK);
    let outside = NewBlock { copies: vec![extent(1 << 40, whole)], generation: Generation(1) };
    world.clients[who].instead = vec![(kind_of_grant(), Answer::Granted { blocks: vec![outside] })];
    let failure = world.write(who, opened.file, 0, &[1; 5_000]).expect_err("it is found when its namespace is known");
    assert!(failure.drive.as_ref().is_some_and(|text| text.contains("namespace 1")), "{failure:?}");
    world.give(who, ClientEvent::Forget(opened.file));
    let opened = world.open(who, open_new("worse", 1));
    let block = |copies| NewBlock { copies, generation: Generation(1) };
    for (blocks, what) in [
        (vec![], "0 blocks"),
        (vec![block(vec![extent(0, whole)]); 3], "3 blocks"),
        (vec![block(vec![extent(0, 4096)])], "a new block of 4KiB"),
        (vec![block(vec![extent(1 << 40, whole)])], "namespace 1"),
        (vec![block(vec![extent(512, whole)])], "no whole sectors"),
        (vec![block(vec![extent(0, whole); 5])], "5 copies"),
    ] {
        world.clients[who].instead = vec![(kind_of_grant(), Answer::Granted { blocks })];
        let written = world.write(who, opened.file, 0, &[1; 5_000]);
        assert!(written.is_err(), "{what}: {:?}", world.clients[who].log);
        let failure = written.expect_err("it cannot be");
        let ClientFault::Protocol(text) = &failure.fault else { panic!("{failure:?}") };
        assert!(text.contains(what), "{text}");
    }
    world.write(who, opened.file, 0, &[1; 5_000]).expect("the file is as it was");
    world.run(who, opened.file, FileWork::Flush, b"").expect("published");
    for (change, what) in
        [(0u32, "blocks of 0 bytes"), (65_537, "blocks of 65537 bytes"), (8 << 20, "blocks of 8388608 bytes")]
    {
        let mut inode = opened.inode.clone();
        inode.block = change;
        let answer = Answer::Opened { handle: 99, at: opened.at, inode };
        let open = Request::Open { at: opened.at, write: false };
        world.clients[who].instead = vec![(open.kind(), answer)];
        let work = world.start_open(who, open, FAR);
        let Outcome::Opened(Err(failure)) = world.finish(who, work) else { panic!("it is opened") };
        assert!(format!("{}", failure.fault).contains(what), "{failure:?}");
    }
    let mut inode = opened.inode.clone();
    inode.copies = 7;
    let open = Request::Open { at: opened.at, write: false };
    world.clients[who].instead = vec![(open.kind(), Answer::Opened { handle: 99, at: opened.at, inode })];
    let work = world.start_open(who, open.clone(), FAR);
    let Outcome::Opened(Err(failure)) = world.finish(who, work) else { panic!("it is opened") };
    assert!(format!("{}", failure.fault).contains("7 copies"), "{failure:?}");
    // A map that leads out of a namespace.
    let reader = world.open(who, open).file;
    let record = crate::records::BlockRecord { copies: vec![extent(1 << 40, whole)], ..Default::default() };
    let chunk = crate::records::MapChunk { blocks: vec![record] };
    let map = Request::Map { handle: 0, chunk: 0 };
    world.clients[who].instead = vec![(map.kind(), Answer::Chunk { chunk, epoch: crate::space::Epoch(1 << 40) })];
    let failure = world.read(who, reader, 0, 100).expect_err("it cannot be");
    assert!(matches!(&failure.fault, ClientFault::Protocol(text) if text.contains("namespace 1")), "{failure:?}");
}
