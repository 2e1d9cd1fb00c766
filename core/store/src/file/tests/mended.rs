//! Marks of blocks that are not written, publishes that are refused, and drives that are connected to again.

use super::*;

const FAR: Nanos = Nanos(u64::MAX);

/// An event, and what it wants done.
fn give(world: &mut World, now: u64, event: FileEvent) -> Vec<FileEffect> {
    let mut effects = Vec::new();
    world.file.apply(Nanos(now), event, &mut world.memory, &mut effects);
    world.file.check();
    effects
}

/// A write that was late left its block marked: the next flush takes the mark back, and changes nothing else.
#[test]
fn a_mark_whose_block_was_not_written_is_taken_back() {
    let mut world = with_two_copies();
    let before = world.map[&0].clone();
    world.memory.callers.insert(FileOpId(90), alloc::vec![1; 10]);
    let now = world.now;
    let effects = give(&mut world, now, FileEvent::Write(FileOpId(90), 0, 10, Nanos(now + 5)));
    assert_eq!(effects, [FileEffect::Unsettle(0)]);
    let late = give(&mut world, now + 5, FileEvent::Tick);
    assert_eq!(late, [FileEffect::Answer(FileOpId(90), Err(FileError::Deadline))]);
    world.map.get_mut(&0).unwrap().is_unsettled = true;
    assert_eq!(give(&mut world, now + 6, FileEvent::Unsettled(0, Ok(()))), []);
    world.now = now + 6;
    let flush = world.flush(true, u64::MAX);
    world.apply(flush).unwrap();
    world.drain().unwrap();
    assert_eq!(world.map[&0], before);
    // The next one has nothing to do.
    let flush = world.flush(true, u64::MAX);
    world.apply(flush).unwrap();
    assert!(world.effects.is_empty());
}

/// The machine that a truncation puts in a file's place knows its marks: also one of which the answer was not heard.
#[test]
fn marks_outlive_a_truncation() {
    for is_heard in [false, true] {
        let mut world = with_two_copies();
        world.memory.callers.insert(FileOpId(90), alloc::vec![1; 10]);
        let now = world.now;
        let asked = give(&mut world, now, FileEvent::Write(FileOpId(90), 0, 10, Nanos(now + 5)));
        assert_eq!(asked, [FileEffect::Unsettle(0)]);
        give(&mut world, now + 5, FileEvent::Tick);
        if is_heard {
            give(&mut world, now + 6, FileEvent::Unsettled(0, Ok(())));
        }
        world.map.get_mut(&0).unwrap().is_unsettled = true;
        world.file = FileIo::new(setup(world.size, u64::MAX)).with_own_marks(world.file.own_marks());
        world.now = now + 7;
        let (id, expected) = (FileOpId(91), world.model[..5000].to_vec());
        world.memory.callers.insert(id, alloc::vec![0; 5000]);
        let doubt = alloc::vec![false; 5000];
        world.issued.insert(id, Issued { is_write: false, offset: 0, expected, model: Vec::new(), doubt });
        world.apply(FileEvent::Read(id, 0, 5000, FAR)).unwrap();
        world.drain().expect("it is read");
        let flush = world.flush(true, u64::MAX);
        world.apply(flush).unwrap();
        world.drain().unwrap();
        assert!(!world.map[&0].is_unsettled, "it is settled, heard: {is_heard}");
    }
}

/// What a publish names that was refused is the session's still, and goes back: also where the refusal comes late.
#[test]
fn blocks_of_a_publish_that_was_refused_go_back() {
    for is_late in [false, true] {
        let mut world = World::new(1, None);
        world.copies = 1;
        world.memory.callers.insert(FileOpId(1), alloc::vec![1; 10]);
        give(&mut world, 1, FileEvent::Lease(FAR));
        give(&mut world, 1, FileEvent::Write(FileOpId(1), 0, 10, FAR));
        give(&mut world, 1, FileEvent::Chunk(0, Ok((MapChunk::default(), Epoch(1)))));
        let block = world.grant(0).unwrap();
        let mut effects = give(&mut world, 2, FileEvent::Granted(0, Ok(block.clone())));
        effects.extend(give(&mut world, 2, FileEvent::Flush(FileOpId(2), false, Nanos(50))));
        let publishes = loop {
            match effects.remove(0) {
                FileEffect::Write(ticket, ..) | FileEffect::Read(ticket, ..) | FileEffect::FlushDrive(ticket, _) => {
                    effects.extend(give(&mut world, 3, FileEvent::Done(ticket, Ok(()))));
                }
                FileEffect::Publish(..) => break true,
                FileEffect::Answer(FileOpId(1), Ok(10)) => {}
                other => panic!("{other:?}"),
            }
        };
        assert!(publishes);
        if is_late {
            give(&mut world, 50, FileEvent::Tick);
            assert_eq!(world.file.give_up(), [], "it may be the file's");
        }
        give(&mut world, 51, FileEvent::NotPublished(FileError::Metadata));
        assert_eq!(world.file.give_up(), block.copies, "late: {is_late}");
    }
}

/// A write was acknowledged over one connection, and the flush goes over the next one: it says nothing of that copy.
#[test]
fn a_flush_says_nothing_of_what_was_written_over_another_connection() {
    for (copies, lost, left) in [(1, 1, None), (2, 1, Some(1)), (2, 2, None), (3, 1, Some(2))] {
        let mut world = World::new(1, None);
        (world.copies, world.fails, world.lease) = (copies, 0, u64::MAX);
        world.apply(FileEvent::Lease(FAR)).unwrap();
        let (id, expected) = (FileOpId(1), alloc::vec![3; 5000]);
        world.counter = 1;
        world.model[..5000].copy_from_slice(&expected);
        world.memory.callers.insert(id, expected.clone());
        world.issued.insert(id, Issued { is_write: true, offset: 0, expected, model: Vec::new(), doubt: Vec::new() });
        world.apply(FileEvent::Write(id, 0, 5000, FAR)).unwrap();
        world.drain().unwrap();
        let drives: Vec<NamespaceId> = world.file.local[&0].record.copies.iter().map(|copy| copy.namespace).collect();
        for drive in &drives[..lost] {
            world.apply(FileEvent::Reconnected(*drive)).unwrap();
        }
        let flush = world.flush(true, u64::MAX);
        world.apply(flush).unwrap();
        world.drain().unwrap();
        let published =
            world.map.get(&0).map(|block| block.copies.iter().map(|copy| copy.namespace).collect::<Vec<_>>());
        assert_eq!(published, left.map(|_| drives[lost..].to_vec()), "{copies} copies, {lost} lost");
        // What was flushed before is not touched.
        if left.is_some() {
            drives.iter().for_each(|drive| world.apply(FileEvent::Reconnected(*drive)).unwrap());
            world.read_as_another().unwrap();
            assert_eq!(world.totals.unwritable, 0);
        }
    }
}
