//! Blocks move while a client reads them, and what they were becomes another file's as soon as the client says that it knows no older map.

use super::{BLOCK, INODE, Memory, crc, setup};
use crate::file::{
    BlockSeed, DriveTicket, FileBuffer, FileEffect, FileError, FileEvent, FileIo, FileOpId, FileSetup, SectorSize,
};
use crate::mutant::Mutant;
use crate::records::{BlockRecord, MapChunk};
use crate::space::Epoch;
use crate::{Extent, Generation, NamespaceId};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::Nanos;
use weir_units::rng::SplitMix64;

const BLOCKS: u64 = 3;
const PLACES: u64 = 6;
const FAR: Nanos = Nanos(u64::MAX);

fn extent(place: u64) -> Extent {
    let whole = u64::from(BLOCK);
    Extent { namespace: NamespaceId(0), offset: (place * whole).into(), length: whole.into() }
}

fn byte_of(at: u64) -> u8 {
    (at / 512 * 7) as u8 | 1
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    reads: u64,
    moved: u64,
    reused: u64,
    /// Renewals that could not acknowledge the newest epoch because of what was in flight.
    held_back: u64,
}

struct World {
    random: SplitMix64,
    file: FileIo,
    memory: Memory,
    effects: Vec<FileEffect>,
    drive: Vec<u8>,
    map: BTreeMap<u64, BlockRecord>,
    free: Vec<u64>,
    /// Places that were given up, and the epoch that has to be acknowledged, once it was raised.
    quarantine: Vec<(u64, Option<Epoch>)>,
    epoch: Epoch,
    acknowledged: Epoch,
    generation: u64,
    ops: BTreeMap<FileOpId, (u64, u32)>,
    counter: u64,
    counts: Counts,
}

impl World {
    fn new(seed: u64, mutant: Option<Mutant>) -> World {
        let size = BLOCKS * u64::from(BLOCK);
        let sectors = BTreeMap::from([(NamespaceId(0), SectorSize::S512)]);
        let mut file = FileIo::new(FileSetup { sectors, ..setup(size, u64::MAX) });
        file.planted = mutant.into();
        let mut world = World {
            random: SplitMix64::new(seed),
            file,
            memory: Memory::default(),
            effects: Vec::new(),
            drive: alloc::vec![0; (PLACES * u64::from(BLOCK)) as usize],
            map: BTreeMap::new(),
            free: (0..PLACES).collect(),
            quarantine: Vec::new(),
            epoch: Epoch(1),
            acknowledged: Epoch(0),
            generation: 0,
            ops: BTreeMap::new(),
            counter: 0,
            counts: Counts::default(),
        };
        (0..BLOCKS).for_each(|block| world.place(block));
        world
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n as u32).into()
    }

    /// Puts a block where nothing is. Where it was is given up.
    fn place(&mut self, block: u64) {
        let Some(place) = self.free.pop() else { return };
        self.generation += 1;
        let generation = Generation(self.generation);
        let bytes: Vec<u8> = (0..u64::from(BLOCK)).map(|at| byte_of(block * u64::from(BLOCK) + at)).collect();
        self.drive[super::range(&extent(place))].copy_from_slice(&bytes);
        // Of a block that is unsettled the checksums say nothing: what is read is believed.
        let checksums = BlockSeed { inode: INODE, block, generation }.checksums(&bytes, crc);
        let (index, copies, is_unsettled) = (block as u32, alloc::vec![extent(place)], false);
        let old = self.map.insert(block, BlockRecord { index, generation, is_unsettled, copies, checksums });
        if let Some(old) = old {
            self.quarantine.push((old.copies[0].offset.get() / u64::from(BLOCK), None));
            self.counts.moved += 1;
        }
    }

    fn run(mut self) -> Result<Counts, String> {
        for _ in 0..400 {
            match self.below(20) {
                0..5 if self.ops.len() < 4 => self.read()?,
                5..7 => {
                    let block = self.below(BLOCKS);
                    self.place(block);
                }
                7..9 => {
                    self.epoch.0 += 1;
                    let epoch = self.epoch;
                    self.quarantine.iter_mut().for_each(|(_, wants)| _ = wants.get_or_insert(epoch));
                    self.apply(FileEvent::Forget(epoch))?;
                }
                9..12 => self.renew(),
                12 => self.apply(FileEvent::Tick)?,
                _ => self.carry_out()?,
            }
        }
        while !self.effects.is_empty() {
            self.carry_out()?;
        }
        if self.file.pending() > 0 { Err("a read is never answered".into()) } else { Ok(self.counts) }
    }

    fn read(&mut self) -> Result<(), String> {
        self.counter += 1;
        let (id, size) = (FileOpId(self.counter), BLOCKS * u64::from(BLOCK));
        let offset = self.below(size - 1);
        let len = (1 + self.below(40_000)).min(size - offset) as u32;
        self.memory.callers.insert(id, alloc::vec![0; len as usize]);
        self.ops.insert(id, (offset, len));
        self.apply(FileEvent::Read(id, offset, len, FAR))
    }

    /// As `SessionHolder` acknowledges; what all have acknowledged is given to another file.
    fn renew(&mut self) {
        let acknowledged = self.file.oldest().map_or(self.epoch, |oldest| oldest.min(self.epoch));
        self.counts.held_back += u64::from(acknowledged < self.epoch && self.file.map.oldest().is_none());
        self.acknowledged = self.acknowledged.max(acknowledged);
        let limit = self.acknowledged;
        let (over, waits) = self.quarantine.drain(..).partition(|(_, wants)| wants.is_some_and(|wants| wants <= limit));
        self.quarantine = waits;
        let over: Vec<(u64, Option<Epoch>)> = over;
        for (place, _) in over {
            self.drive[super::range(&extent(place))].fill(0xea);
            self.free.insert(0, place);
            self.counts.reused += 1;
        }
    }

    fn apply(&mut self, event: FileEvent) -> Result<(), String> {
        let mut effects = Vec::new();
        self.file.apply(Nanos(1), event, &mut self.memory, &mut effects);
        self.file.check();
        for effect in effects {
            let FileEffect::Answer(id, result) = effect else {
                self.effects.push(effect);
                continue;
            };
            let (offset, len) = self.ops.remove(&id).ok_or("it is answered twice")?;
            let bytes = self.memory.callers.remove(&id).unwrap_or_default();
            if result != Ok(len) {
                return Err(format!("a read of {len} bytes at {offset} ends with {result:?}"));
            }
            let wrong = bytes.iter().zip(offset..).find(|(byte, at)| **byte != byte_of(*at));
            if let Some((byte, at)) = wrong {
                return Err(format!("byte {at} is read as {byte:#x}"));
            }
            self.counts.reads += 1;
        }
        Ok(())
    }

    fn carry_out(&mut self) -> Result<(), String> {
        if self.effects.is_empty() {
            return Ok(());
        }
        let at = self.below(self.effects.len() as u64) as usize;
        match self.effects.swap_remove(at) {
            FileEffect::Fetch(chunk) => {
                // The owner may know the epoch a little later than others.
                let epoch = Epoch(self.epoch.0 - u64::from(self.below(4) == 0));
                let blocks = self.map.values().cloned().collect();
                self.apply(FileEvent::Chunk(chunk, Ok((MapChunk { blocks }, epoch))))
            }
            FileEffect::Read(ticket, extent, to) => self.done(ticket, &extent, to),
            other => Err(format!("a reader wants {other:?}")),
        }
    }

    fn done(&mut self, ticket: DriveTicket, extent: &Extent, to: FileBuffer) -> Result<(), String> {
        let bytes = self.drive[super::range(extent)].to_vec();
        self.memory.bytes(to, bytes.len() as u32).copy_from_slice(&bytes);
        self.apply(FileEvent::Done(ticket, Ok(())))
    }
}

#[test]
fn nothing_is_reused_that_a_read_in_flight_goes_to() {
    let mut all = [0; 4];
    for seed in 0..300 {
        let c = World::new(seed, None).run().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        all.iter_mut().zip([c.reads, c.moved, c.reused, c.held_back]).for_each(|(sum, count)| *sum += count);
    }
    std::println!("reads, moved, reused, held back: {all:?}");
    assert!(all.iter().all(|count| *count > 100), "everything happens: {all:?}");
    let mutant = Some(Mutant::InFlightNotCounted);
    let found = (0..2_000).find_map(|seed| World::new(seed, mutant).run().err().map(|why| (seed, why)));
    std::println!("{mutant:?}: {found:?}");
    assert!(found.is_some(), "{mutant:?} is not found in 2,000 runs");
}

/// A block that is being written over hangs on the map until it is published: it is looked up again, and is what it was or is written no more.
#[test]
fn a_changed_block_is_looked_up_again() {
    for is_replaced in [false, true] {
        let mut world = World::new(1, None);
        let id = FileOpId(7);
        world.memory.callers.insert(id, alloc::vec![9; BLOCK as usize]);
        let apply = |world: &mut World, event| {
            let mut effects = Vec::new();
            world.file.apply(Nanos(1), event, &mut world.memory, &mut effects);
            world.file.check();
            effects
        };
        let chunk = |world: &World, epoch| {
            let blocks = world.map.values().cloned().collect();
            FileEvent::Chunk(0, Ok((MapChunk { blocks }, Epoch(epoch))))
        };
        apply(&mut world, FileEvent::Write(id, 0, BLOCK, FAR));
        let fetched = chunk(&world, 1);
        assert_eq!(apply(&mut world, fetched), [FileEffect::Unsettle(0)]);
        let sent = apply(&mut world, FileEvent::Unsettled(0, Ok(())));
        let [FileEffect::Write(ticket, ..)] = sent[..] else { panic!("{sent:?}") };
        assert_eq!(apply(&mut world, FileEvent::Forget(Epoch(2))), [FileEffect::Fetch(0)]);
        assert_eq!((world.file.map().oldest(), world.file.oldest()), (None, Some(Epoch(1))));
        if is_replaced {
            world.place(0);
        }
        // An answer of before does not count, and is asked for again.
        let late = chunk(&world, 1);
        assert_eq!((apply(&mut world, late), world.file.oldest()), (Vec::new(), Some(Epoch(1))));
        assert_eq!(apply(&mut world, FileEvent::Tick), [FileEffect::Fetch(0)]);
        let fetched = chunk(&world, 2);
        apply(&mut world, fetched);
        assert_eq!(world.file.oldest(), Some(Epoch(1)), "the write is in flight");
        let answered = apply(&mut world, FileEvent::Done(ticket, Ok(())));
        assert_eq!((answered, world.file.oldest()), (alloc::vec![FileEffect::Answer(id, Ok(BLOCK))], Some(Epoch(2))));
        world.memory.callers.insert(id, alloc::vec![9; 512]);
        let next = apply(&mut world, FileEvent::Write(id, 512, 512, FAR));
        let refused = [FileEffect::Answer(id, Err(FileError::Replaced(0)))];
        assert_eq!(next == refused, is_replaced, "{next:?}");
    }
}
