//! Units of checksums that are written in part, on media that have damaged them.

use super::*;

const FAR: Nanos = Nanos(u64::MAX);

/// Writes ten bytes of a file with two copies; how the write ends.
fn write_some(world: &mut World, id: u64, offset: u64) -> Result<u32, FileError> {
    let (id, mut answer) = (FileOpId(id), None);
    world.memory.callers.insert(id, alloc::vec![9; 10]);
    let mut effects = Vec::new();
    let now = Nanos(world.now);
    world.file.apply(now, FileEvent::Write(id, offset, 10, FAR), &mut world.memory, &mut effects);
    world.effects = effects;
    while answer.is_none() {
        let at = world.effects.iter().position(|effect| matches!(effect, FileEffect::Answer(..)));
        match at.map(|at| world.effects.remove(at)) {
            Some(FileEffect::Answer(_, result)) => answer = Some(result),
            _ => carry_out(world),
        }
    }
    world.model[offset as usize..][..10].copy_from_slice(if answer == Some(Ok(10)) { &[9; 10] } else { &[0; 10] });
    answer.expect("it is answered")
}

/// Carries out the first effect, and keeps answers.
fn carry_out(world: &mut World) {
    let event = match world.effects.remove(0) {
        FileEffect::Fetch(chunk) => {
            let blocks = world.map.iter().map(|(block, record)| BlockRecord { index: *block as u32, ..record.clone() });
            FileEvent::Chunk(chunk, Ok((MapChunk { blocks: blocks.collect() }, Epoch(1))))
        }
        FileEffect::Unsettle(block) => {
            world.map.get_mut(&block).expect("a block").is_unsettled = true;
            FileEvent::Unsettled(block, Ok(()))
        }
        FileEffect::Read(ticket, extent, to) => {
            world.totals.reads += extent.length.get();
            let bytes = world.drives[extent.namespace.0 as usize].now[range(&extent)].to_vec();
            world.memory.bytes(to, bytes.len() as u32).copy_from_slice(&bytes);
            FileEvent::Done(ticket, Ok(()))
        }
        FileEffect::Write(ticket, extent, from) => {
            world.verify_write(&extent).expect("it is marked");
            world.write(&extent, from);
            FileEvent::Done(ticket, Ok(()))
        }
        FileEffect::MarkOut(block, copies) => {
            world.map.get_mut(&block).expect("a block").copies = copies;
            FileEvent::MarkedOut(block, Ok(()))
        }
        other => panic!("{other:?}"),
    };
    let (now, mut effects) = (Nanos(world.now), Vec::new());
    world.file.apply(now, event, &mut world.memory, &mut effects);
    world.file.check();
    world.effects.extend(effects);
}

fn spoil(world: &mut World, copy: usize, at: u64) {
    let extent = world.map[&0].copies[copy];
    let place = range(&extent).start + at as usize;
    let drive = &mut world.drives[extent.namespace.0 as usize];
    drive.now[place] ^= 1;
    drive.durable[place] ^= 1;
}

fn flush(world: &mut World) {
    let flush = world.flush(false, u64::MAX);
    world.apply(flush).unwrap();
    world.drain().unwrap();
}

/// The copy that was damaged gets what the other one has, and the write is in both.
#[test]
fn a_damaged_copy_is_repaired_before_a_part_of_its_unit_is_written() {
    for copy in [0, 1] {
        let mut world = with_two_copies();
        spoil(&mut world, copy, 60_000);
        assert_eq!(write_some(&mut world, 90, 100), Ok(10));
        // It compares both copies with the checksums and with what was written.
        flush(&mut world);
        assert_eq!(world.map[&0].copies.len(), 2);
    }
}

/// Each unit has one copy that is right, and not the same one.
#[test]
fn copies_repair_each_other() {
    let mut world = with_two_copies();
    spoil(&mut world, 0, 100);
    spoil(&mut world, 1, 70_000);
    assert_eq!(write_some(&mut world, 90, u64::from(CHECKSUM_BYTES) - 5), Ok(10));
    flush(&mut world);
    assert_eq!(world.map[&0].copies.len(), 2);
}

/// A write that would have given a checksum to what no copy has right fails, and has changed nothing.
#[test]
fn a_unit_that_no_copy_has_right_is_not_written_in_part() {
    let mut world = with_two_copies();
    let (before, published) = (world.model.clone(), world.map[&0].clone());
    spoil(&mut world, 0, 60_000);
    spoil(&mut world, 1, 50_000);
    let media: Vec<Vec<u8>> = world.drives.iter().map(|drive| drive.now.clone()).collect();
    assert_eq!(write_some(&mut world, 90, 100), Err(FileError::Corrupt(0)));
    assert!(world.drives.iter().zip(&media).all(|(drive, before)| drive.now == *before), "nothing is written");
    world.model = before;
    world.damages = true;
    for (copy, at) in [(0, 60_000), (1, 50_000)] {
        let extent = published.copies[copy];
        world.damaged.insert((extent.namespace.0, range(&extent).start + at), at as u64);
    }
    flush(&mut world);
    assert_eq!(world.map[&0], published, "the mark is taken back, and the checksums are those of before");
    // Another unit of the block is as good as it was, and a whole one needs no look.
    assert_eq!(write_some(&mut world, 91, 70_000), Ok(10));
    let (id, unit) = (FileOpId(92), CHECKSUM_BYTES);
    world.memory.callers.insert(id, alloc::vec![3; unit as usize]);
    world.model[..unit as usize].fill(3);
    let expected = alloc::vec![3; unit as usize];
    world.issued.insert(id, Issued { is_write: true, offset: 0, expected, model: Vec::new(), doubt: Vec::new() });
    world.apply(FileEvent::Write(id, 0, unit, FAR)).unwrap();
    world.drain().unwrap();
    assert!(world.damaged.is_empty());
    flush(&mut world);
}

/// Each unit is read once as long as the file is open, and one that is written as a whole is not.
#[test]
fn a_unit_is_compared_once() {
    let mut world = with_two_copies();
    let read = |world: &mut World, id, offset| {
        world.totals.reads = 0;
        assert_eq!(write_some(world, id, offset), Ok(10));
        world.totals.reads
    };
    // Of each copy.
    let unit = u64::from(CHECKSUM_BYTES);
    assert_eq!(read(&mut world, 90, 100), 2 * unit);
    assert!(read(&mut world, 91, 20_000) <= 4096);
    flush(&mut world);
    assert!(read(&mut world, 92, 40_000) <= 4096);
    assert_eq!(read(&mut world, 93, unit - 5), 2 * unit + u64::from(world.file.sector(&world.map[&0].copies).bytes()));
    world.effects.clear();
    let id = FileOpId(94);
    world.memory.callers.insert(id, alloc::vec![3; unit as usize]);
    let now = Nanos(world.now);
    world.file.apply(now, FileEvent::Write(id, 0, unit as u32, FAR), &mut world.memory, &mut world.effects);
    assert!(world.effects.iter().all(|effect| matches!(effect, FileEffect::Write(..))), "{:?}", world.effects);
}
