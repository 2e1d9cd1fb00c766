//! Blocks that are moved while their files are written, on drives that fail, lose and lie: whatever a map says has the bytes of its checksums,
//! also after a power cut, and nothing that is granted is lost.

use super::{MoveEffect, MoveEvent, MoveId, MoveMemory, MoveOrder, MoveResult, Movement};
use crate::file::tests::crc;
use crate::file::{BlockSeed, DriveFailure, DriveTicket, FileError, NewBlock};
use crate::mutant::Mutant;
use crate::records::BlockRecord;
use crate::{ClassId, Extent, Generation, InodeId, NamespaceId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use std::println;
use weir_units::rng::SplitMix64;
use weir_units::{Bytes, Nanos};

const BLOCK: u64 = 64 << 10;
const BLOCKS: u64 = 4;
const NAMESPACES: u64 = 3;
const PLACES: u64 = 400;
const INODE: InodeId = InodeId(9);

#[derive(Default)]
struct Memory(BTreeMap<MoveId, Vec<u8>>);

impl MoveMemory for Memory {
    fn reserve(&mut self, id: MoveId, bytes: u32) {
        assert!(self.0.insert(id, vec![0xee; bytes as usize]).is_none());
    }
    fn release(&mut self, id: MoveId) {
        assert!(self.0.remove(&id).is_some());
    }
    fn bytes(&self, id: MoveId) -> &[u8] {
        &self.0[&id]
    }
}

/// A byte for each 4 KiB of a place, standing for all of them: what is there now, and after a power cut.
#[derive(Clone, Default)]
struct Place {
    now: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    moved: u64,
    changed: u64,
    unreadable: u64,
    corrupt: u64,
    failed: u64,
    no_space: u64,
    late: u64,
    lease_over: u64,
}

struct World {
    random: SplitMix64,
    now: u64,
    lease: u64,
    renews: bool,
    fails: u32,
    machine: Movement,
    memory: Memory,
    places: BTreeMap<(NamespaceId, u64), Place>,
    effects: Vec<MoveEffect>,
    /// As the file's owner has it.
    map: BTreeMap<u64, BlockRecord>,
    next_place: u64,
    generations: u64,
    next_move: u64,
    running: BTreeSet<MoveId>,
    /// Granted to the mover, and not given back or mapped.
    granted: Vec<Extent>,
    totals: Totals,
}

fn extent(namespace: u64, place: u64, length: u64) -> Extent {
    Extent { namespace: NamespaceId(namespace), offset: Bytes(place * BLOCK), length: Bytes(length) }
}

fn place_of(extent: &Extent) -> (NamespaceId, u64) {
    (extent.namespace, extent.offset.get() / BLOCK)
}

fn spread(sectors: &[u8]) -> Vec<u8> {
    sectors.iter().flat_map(|byte| [*byte; 4096]).collect()
}

impl World {
    fn new(seed: u64, mutant: Option<Mutant>) -> World {
        let mut random = SplitMix64::new(seed);
        let (renews, fails) = (random.below(4) > 0, [0, 30_000, 150_000][random.below(3) as usize]);
        let mut machine = Movement::new(crc, Nanos(300));
        machine.planted = mutant.into();
        let mut world = World {
            random,
            now: 0,
            lease: 300,
            renews,
            fails,
            machine,
            memory: Memory::default(),
            places: BTreeMap::new(),
            effects: Vec::new(),
            map: BTreeMap::new(),
            next_place: 0,
            generations: 0,
            next_move: 0,
            running: BTreeSet::new(),
            granted: Vec::new(),
            totals: Totals::default(),
        };
        for block in 0..BLOCKS {
            let copies = 1 + u64::from(world.random.below(3));
            let length = BLOCK - u64::from(world.random.below(3)) * 4096;
            let granted = world.grant(copies, length, &[]);
            let sectors: Vec<u8> = (0..length / 4096).map(|sector| (block * 50 + sector) as u8).collect();
            for copy in &granted.copies {
                let place = Place { now: sectors.clone(), durable: sectors.clone() };
                world.places.insert(place_of(copy), place);
            }
            let seed = BlockSeed { inode: INODE, block, generation: granted.generation };
            let checksums = seed.checksums(&spread(&sectors), crc);
            let (index, generation) = (block as u32, granted.generation);
            let record = BlockRecord { index, generation, is_unsettled: false, copies: granted.copies, checksums };
            world.map.insert(block, record);
        }
        world
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n as u32).into()
    }

    fn grant(&mut self, copies: u64, length: u64, beside: &[Extent]) -> NewBlock {
        let mut namespaces: Vec<u64> =
            (0..NAMESPACES).filter(|n| !beside.iter().any(|other| other.namespace.0 == *n)).collect();
        self.generations += 1;
        let mut made = Vec::new();
        for _ in 0..copies.min(namespaces.len() as u64) {
            let at = self.below(namespaces.len() as u64) as usize;
            made.push(extent(namespaces.swap_remove(at), self.next_place, length));
            self.next_place += 1;
        }
        assert!(self.next_place < PLACES);
        NewBlock { copies: made, generation: Generation(self.generations) }
    }

    fn run(mut self) -> Result<Totals, String> {
        for _ in 0..300 {
            self.now += 1;
            if self.renews && self.now % 60 == 0 {
                self.lease = self.now + 300;
                self.apply(MoveEvent::Lease(Nanos(self.lease)))?;
            }
            match self.below(12) {
                0..2 if self.running.len() < 4 => self.order()?,
                2 => self.write_in_place(),
                3 => self.apply(MoveEvent::Tick)?,
                _ => self.carry_out()?,
            }
        }
        for _ in 0..10_000 {
            self.now += 1;
            match self.effects.is_empty() {
                true if self.machine.pending() == 0 => break,
                true => self.apply(MoveEvent::Tick)?,
                false => self.carry_out()?,
            }
        }
        if self.machine.pending() > 0 || !self.running.is_empty() {
            return Err(format!("{} moves do not end", self.machine.pending()));
        }
        if !self.memory.0.is_empty() {
            return Err("memory is not given back".into());
        }
        // After the lease the services take back what the session had.
        if self.totals.lease_over == 0 && !self.granted.is_empty() {
            return Err(format!("granted and forgotten: {:?}", self.granted));
        }
        self.verify()?;
        Ok(self.totals)
    }

    fn order(&mut self) -> Result<(), String> {
        let block = self.below(BLOCKS);
        let record = self.map[&block].clone();
        let mut keep = Vec::new();
        for copy in &record.copies {
            if self.below(3) == 0 {
                keep.push(*copy);
            }
        }
        keep.truncate(NAMESPACES as usize - 1);
        let room = NAMESPACES - keep.len() as u64;
        let make = (1 + self.below(2)).min(room) as u8;
        let sources = record.copies.clone();
        let late = self.below(10) == 0;
        let deadline = Nanos(self.now + if late { self.below(40) } else { 5_000 });
        self.next_move += 1;
        let id = MoveId(self.next_move);
        self.running.insert(id);
        let order = MoveOrder { inode: INODE, block, record, keep, sources, make, classes: vec![ClassId(0)], deadline };
        self.apply(MoveEvent::Start(id, order))
    }

    /// A writer writes a block over, and publishes it.
    fn write_in_place(&mut self) {
        if self.below(4) > 0 {
            return;
        }
        let block = self.below(BLOCKS);
        let Some(record) = self.map.get(&block).cloned() else { return };
        let fresh = self.below(250) as u8;
        let length = record.copies[0].length.get();
        let sectors: Vec<u8> = (0..length / 4096).map(|sector| fresh.wrapping_add(sector as u8)).collect();
        for copy in &record.copies {
            let place = self.places.entry(place_of(copy)).or_default();
            (place.now, place.durable) = (sectors.clone(), sectors.clone());
        }
        let seed = BlockSeed { inode: INODE, block, generation: record.generation };
        let checksums = seed.checksums(&spread(&sectors), crc);
        self.map.insert(block, BlockRecord { checksums, ..record });
    }

    fn apply(&mut self, event: MoveEvent) -> Result<(), String> {
        let mut effects = Vec::new();
        self.machine.apply(Nanos(self.now), event, &mut self.memory, &mut effects);
        if self.machine.planted == None.into() {
            self.machine.check();
        }
        for effect in effects {
            let is_sent = matches!(effect, MoveEffect::Read(..) | MoveEffect::Write(..) | MoveEffect::FlushDrive(..));
            if is_sent && self.now >= self.lease {
                return Err(format!("{effect:?} is sent after the lease"));
            }
            match effect {
                MoveEffect::Answer(id, result) => {
                    if !self.running.remove(&id) {
                        return Err(format!("{id:?} is answered twice"));
                    }
                    self.count(result)?;
                }
                MoveEffect::Return(extents) => {
                    for extent in extents {
                        let is_it =
                            |granted: &Extent| granted.namespace == extent.namespace && granted.overlaps(&extent);
                        if self.mapped(&extent) || !self.granted.iter().any(is_it) {
                            return Err(format!("{extent} is given back"));
                        }
                        self.granted.retain(|granted| !is_it(granted));
                    }
                }
                MoveEffect::Abort(ticket) => self.abort(ticket),
                effect => self.effects.push(effect),
            }
        }
        Ok(())
    }

    fn mapped(&self, extent: &Extent) -> bool {
        self.map.values().any(|record| record.copies.iter().any(|copy| copy.overlaps(extent)))
    }

    fn count(&mut self, result: MoveResult) -> Result<(), String> {
        let counter = match result {
            MoveResult::Moved => &mut self.totals.moved,
            MoveResult::Changed => &mut self.totals.changed,
            MoveResult::Unreadable => &mut self.totals.unreadable,
            MoveResult::Corrupt => &mut self.totals.corrupt,
            MoveResult::Failed => &mut self.totals.failed,
            MoveResult::NoSpace => &mut self.totals.no_space,
            MoveResult::Deadline => &mut self.totals.late,
            MoveResult::LeaseOver => &mut self.totals.lease_over,
            MoveResult::Malformed => return Err("a good order is refused".into()),
        };
        *counter += 1;
        Ok(())
    }

    /// Aborted or not: it is answered later.
    fn abort(&mut self, ticket: DriveTicket) {
        let is = |effect: &MoveEffect| match effect {
            MoveEffect::Read(t, ..) | MoveEffect::Write(t, ..) | MoveEffect::FlushDrive(t, _) => *t == ticket,
            _ => false,
        };
        if let Some(at) = self.effects.iter().position(is) {
            if self.below(2) == 0 {
                self.effects[at] = MoveEffect::Abort(ticket);
            }
        }
    }

    fn carry_out(&mut self) -> Result<(), String> {
        if self.effects.is_empty() {
            return Ok(());
        }
        let at = self.below(self.effects.len() as u64) as usize;
        let fails = self.random.per_million(self.fails);
        let event = match self.effects.swap_remove(at) {
            MoveEffect::Grant { id, length, copies, beside, .. } => {
                let granted = match fails {
                    true => Err(FileError::NoSpace),
                    false => {
                        // Blocks are whole; a short one gets a longer place.
                        let granted = self.grant(copies.into(), BLOCK.max(length), &beside);
                        self.granted.extend(&granted.copies);
                        Ok(granted)
                    }
                };
                MoveEvent::Granted(id, granted)
            }
            MoveEffect::Read(ticket, id, source) => {
                let mut bytes = spread(&self.places[&place_of(&source)].now);
                if self.random.per_million(self.fails) {
                    bytes[77] ^= 1;
                }
                if !fails {
                    if let Some(memory) = self.memory.0.get_mut(&id) {
                        let whole = memory.len();
                        memory.copy_from_slice(&bytes[..whole]);
                    }
                }
                MoveEvent::Done(ticket, if fails { Err(DriveFailure) } else { Ok(()) })
            }
            MoveEffect::Write(ticket, id, target) => {
                if self.mapped(&target) {
                    return Err(format!("{target} is written over"));
                }
                let sectors: Vec<u8> = self.memory.0[&id].chunks(4096).map(|sector| sector[0]).collect();
                let place = self.places.entry(place_of(&target)).or_default();
                place.now = if fails { vec![0xbb; sectors.len()] } else { sectors };
                MoveEvent::Done(ticket, if fails { Err(DriveFailure) } else { Ok(()) })
            }
            MoveEffect::FlushDrive(ticket, namespace) => {
                for (_, place) in self.places.iter_mut().filter(|((at, _), _)| *at == namespace) {
                    place.durable = place.now.clone();
                }
                MoveEvent::Done(ticket, if fails { Err(DriveFailure) } else { Ok(()) })
            }
            MoveEffect::Commit { id, block, old, new, .. } => {
                // A refusal that is none of a change: another service has the region, the session has ended.
                let is_made = self.map.get(&block) == Some(&old) && !fails;
                if is_made {
                    self.granted.retain(|granted| !new.copies.iter().any(|copy| granted.overlaps(copy)));
                    let rests = new.copies.iter().filter(|copy| !old.copies.contains(copy));
                    self.granted.extend(rests.filter(|copy| copy.length.get() < BLOCK).map(|copy| Extent {
                        offset: Bytes(copy.offset.get() + copy.length.get()),
                        length: Bytes(BLOCK - copy.length.get()),
                        ..*copy
                    }));
                    if new.generation == old.generation && !old.copies.contains(&new.copies[0]) {
                        return Err(format!("block {block} has left its place and keeps its generation"));
                    }
                    self.map.insert(block, new);
                    self.verify()?;
                }
                MoveEvent::Committed(id, if is_made { Ok(()) } else { Err(FileError::Metadata) })
            }
            // One that was aborted.
            MoveEffect::Abort(ticket) => MoveEvent::Done(ticket, Err(DriveFailure)),
            MoveEffect::Return(_) | MoveEffect::Answer(..) => return Ok(()),
        };
        self.apply(event)
    }

    /// Every copy of every block has the bytes of its checksums, also after a power cut; no two copies are on one namespace.
    fn verify(&self) -> Result<(), String> {
        for (block, record) in &self.map {
            let seed = BlockSeed { inode: INODE, block: *block, generation: record.generation };
            let namespaces: BTreeSet<NamespaceId> = record.copies.iter().map(|copy| copy.namespace).collect();
            if namespaces.len() != record.copies.len() || record.copies.is_empty() {
                return Err(format!("block {block}: {:?}", record.copies));
            }
            for copy in &record.copies {
                let place = self.places.get(&place_of(copy)).ok_or("a copy was never written")?;
                if seed.checksums(&spread(&place.durable), crc) != record.checksums {
                    return Err(format!("block {block} does not have its bytes at {copy}"));
                }
            }
        }
        Ok(())
    }
}

#[test]
fn blocks_are_moved_whole_or_not_at_all() {
    let mut sum = Totals::default();
    for seed in 0..100 {
        let totals = World::new(seed, None).run().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        sum.moved += totals.moved;
        sum.changed += totals.changed;
        sum.unreadable += totals.unreadable;
        sum.corrupt += totals.corrupt;
        sum.failed += totals.failed;
        sum.no_space += totals.no_space;
        sum.late += totals.late;
        sum.lease_over += totals.lease_over;
    }
    println!("{sum:?}");
    let Totals { moved, changed, unreadable, corrupt, failed, no_space, late, lease_over } = sum;
    assert!([moved, changed, unreadable, corrupt, failed, no_space, late, lease_over].iter().all(|count| *count > 0));
}

#[test]
fn each_mutant_is_found() {
    use Mutant as M;
    for mutant in
        [M::MoveUnverified, M::MoveCommitsEarly, M::MoveWithoutFlush, M::MoveBeyondLease, M::MoveKeepsGeneration]
    {
        let found = (0..2_000).find_map(|seed| Some((seed, World::new(seed, Some(mutant)).run().err()?)));
        println!("{mutant:?}: {found:?}");
        assert!(found.is_some(), "{mutant:?} is not found");
    }
}

#[test]
fn orders_that_cannot_be_carried_out() {
    let world = World::new(1, None);
    let record = world.map[&0].clone();
    let good = MoveOrder {
        inode: INODE,
        block: 0,
        keep: vec![],
        sources: record.copies.clone(),
        record,
        make: 1,
        classes: vec![],
        deadline: Nanos(9),
    };
    let other = extent(0, 399, BLOCK);
    let bad = [
        MoveOrder { make: 0, ..good.clone() },
        MoveOrder { make: 200, ..good.clone() },
        MoveOrder { sources: vec![], ..good.clone() },
        MoveOrder { sources: vec![other], ..good.clone() },
        MoveOrder { keep: vec![other], ..good.clone() },
        MoveOrder { record: BlockRecord { copies: vec![], ..good.record.clone() }, ..good.clone() },
        MoveOrder { record: BlockRecord { is_unsettled: true, ..good.record.clone() }, ..good.clone() },
    ];
    let (mut machine, mut memory) = (Movement::new(crc, Nanos(100)), Memory::default());
    for (number, order) in bad.into_iter().enumerate() {
        let (id, mut effects) = (MoveId(number as u64), Vec::new());
        machine.apply(Nanos(0), MoveEvent::Start(id, order), &mut memory, &mut effects);
        assert_eq!(effects, [MoveEffect::Answer(id, MoveResult::Malformed)]);
    }
    let mut effects = Vec::new();
    machine.apply(Nanos(100), MoveEvent::Start(MoveId(99), good.clone()), &mut memory, &mut effects);
    assert_eq!(effects, [MoveEffect::Answer(MoveId(99), MoveResult::LeaseOver)]);
    assert!(memory.0.is_empty());
    // A grant that is not what was asked for is given back.
    machine.apply(Nanos(0), MoveEvent::Start(MoveId(100), good), &mut memory, &mut Vec::new());
    let (short, mut effects) = (extent(1, 399, 4096), Vec::new());
    let granted = NewBlock { copies: vec![short], generation: Generation(1) };
    machine.apply(Nanos(1), MoveEvent::Granted(MoveId(100), Ok(granted)), &mut memory, &mut effects);
    let failed = MoveEffect::Answer(MoveId(100), MoveResult::Failed);
    assert_eq!(effects, [MoveEffect::Return(vec![short]), failed]);
}
