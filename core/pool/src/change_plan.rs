//! What a change of the pool is made of: steps, one after the other, each of them one effect or a change of memory. Written in this
//! order a crash after any of them leaves the old or the new state; the crash test walks through every one.

use crate::block::{Address, BLOCK, Crc32c, MIRRORED, STRIPE_BLOCKS, blocks_of, encode, payload, place};
use crate::drive::PoolDrive;
use crate::event::PoolEffect;
use crate::extent::{CHUNK, ChunkRun};
use crate::pool::Books;
use crate::record::{
    COPIES, EntryHeader, Home, Known, LOST, LogEnd, Member, Mirror, Phase, Record, SHARED, SHARED_PAIRS, STATES,
    TAKES_PART,
};
use crate::volume::{Volume, VolumeId};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A step.
#[derive(Clone, Debug)]
pub(crate) enum ChangeStep {
    /// Of a drive's metadata.
    Write { drive: u16, offset: u64, bytes: Vec<u8> },
    /// What was written or unmapped is durable.
    Flush(u16),
    /// A drive's entries go so far for sure.
    Reached(u16, LogEnd),
    /// Chunks of nobody.
    Unmap(u16, ChunkRun),
    /// Chunks of a volume that is not readable: it is to be empty. Nothing of the change has been written yet.
    Erase(u16, ChunkRun),
    /// A chunk of a volume, to one that was taken for it; from another one if the first is not readable.
    Copy { from: ChunkOf, or_from: Option<ChunkOf>, to: ChunkOf },
    /// What was copied is durable: the change of that volume follows.
    Switch(VolumeId),
    /// To a drive that is none of the pool's: its place in the list, and where.
    Dismiss(usize, u64, Vec<u8>),
    /// What was written to it is durable.
    Settle(usize),
    /// They are free from now on.
    Free(u16, Vec<ChunkRun>),
    /// The drive's metadata are begun anew, without the chunks that are empty by now: the next opening does not empty them again.
    ForgetEmptied(u16),
    /// The change counts from now on: what memory says is what the metadata say.
    Commit(Change),
}

/// The number of a drive, and a chunk of it.
pub(crate) type ChunkOf = (u16, u32);

/// A step by which a volume gets chunks of its own, while that is carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Copying {
    /// A chunk, and where it may be had from if this fails.
    Chunk { or_from: Option<ChunkOf>, to: ChunkOf },
    /// What was copied to a drive.
    Flush(u16),
}

/// What becomes of a volume.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub id: VolumeId,
    /// What it is then; `None`: it is gone.
    pub volume: Option<Volume>,
    /// Chunks that are nobody's then.
    pub dirty: Vec<(u16, ChunkRun)>,
}

/// A volume before a change that does not count yet, and after it.
#[derive(Clone, Debug)]
pub(crate) struct Uncommitted {
    pub before: Option<Volume>,
    pub after: Option<Volume>,
    /// Something is written to the chunks that were taken: they are not as empty as free ones.
    pub is_filled: bool,
}

impl ChangeStep {
    /// The effect of a step that has one.
    pub fn effect(&self, drives: &[PoolDrive]) -> Option<PoolEffect> {
        let position = |drive: &u16| drives[usize::from(*drive)].position;
        match self {
            ChangeStep::Write { drive, offset, bytes } => {
                Some(PoolEffect::Write { drive: position(drive), offset: *offset, bytes: bytes.clone() })
            }
            ChangeStep::Flush(drive) => Some(PoolEffect::Flush { drive: position(drive) }),
            ChangeStep::Unmap(drive, run) | ChangeStep::Erase(drive, run) => Some(PoolEffect::Unmap {
                drive: position(drive),
                offset: u64::from(run.start) * CHUNK,
                len: u64::from(run.len) * CHUNK,
            }),
            ChangeStep::Dismiss(drive, offset, bytes) => {
                Some(PoolEffect::Write { drive: *drive, offset: *offset, bytes: bytes.clone() })
            }
            ChangeStep::Settle(drive) => Some(PoolEffect::Flush { drive: *drive }),
            ChangeStep::Copy { from, to, .. } => {
                let at = |chunk: u32| u64::from(chunk) * CHUNK;
                let (from_offset, to_offset, len) = (at(from.1), at(to.1), CHUNK);
                Some(PoolEffect::Copy { from: position(&from.0), from_offset, to: position(&to.0), to_offset, len })
            }
            ChangeStep::Reached(..)
            | ChangeStep::Free(..)
            | ChangeStep::ForgetEmptied(_)
            | ChangeStep::Switch(_)
            | ChangeStep::Commit(_) => None,
        }
    }
}

/// Collects the steps of a change.
pub(crate) struct ChangePlan<'a> {
    pub books: &'a mut Books,
    pub crc: Crc32c,
    pub steps: Vec<ChangeStep>,
    /// A drive whose metadata have no room for it: nothing of this may be carried out.
    pub full: Option<u16>,
}

impl<'a> ChangePlan<'a> {
    pub fn new(books: &'a mut Books, crc: Crc32c) -> Self {
        ChangePlan { books, crc, steps: Vec::new(), full: None }
    }

    /// An entry on a drive: first in one copy, flushed, then `between`, then in the other.
    pub fn entry(&mut self, drive: u16, records: &[Record], between: Option<ChangeStep>) {
        let layout = self.books.layout;
        let bytes = payload(records, layout);
        if bytes.is_empty() {
            // The oldest layout has none of these.
            return;
        }
        let state = &mut self.books.drives[usize::from(drive)];
        match state.append(blocks_of(bytes.len()), layout) {
            Some(at) => self.both(drive, [0, 1], &at, &bytes, between),
            None => self.anew(drive, self.books.opens, 1, records, between),
        }
    }

    /// Both copies anew: everything that memory knows, and then `records`.
    pub fn anew(&mut self, drive: u16, opens: u64, first: u8, records: &[Record], between: Option<ChangeStep>) {
        let layout = self.books.layout;
        let mut all = self.books.records(drive, opens);
        all.extend_from_slice(records);
        let bytes = payload(&all, layout);
        let state = &mut self.books.drives[usize::from(drive)];
        let at = state.begin_anew(blocks_of(bytes.len()), layout);
        if state.used > state.copy_blocks {
            self.full = Some(drive);
        }
        self.both(drive, [first, 1 - first], &at, &bytes, between);
    }

    /// A drive's metadata anew, of a pool that all its drives know to be open: so an entry 0 without what was emptied. Nothing, where they have no
    /// room for it: then it is emptied once more.
    pub fn forget_emptied(&mut self, drive: u16) {
        let (place, phase) = (self.books.drives[usize::from(drive)].clone(), self.books.phase);
        self.books.phase = Phase::Open;
        self.anew(drive, self.books.opens, 1, &[], None);
        self.books.phase = phase;
        if self.full.take().is_some() {
            self.books.drives[usize::from(drive)] = place;
            self.steps.clear();
        }
    }

    /// What the pool is at, and how far the entries of drives go that this plan has written to so far, for another one.
    pub fn state(&self, phase: Phase, drives: impl Iterator<Item = u16>) -> Record {
        let reach = |drive: u16| (drive, self.books.drives[usize::from(drive)].reach);
        Record::State(phase, drives.map(reach).collect())
    }

    /// Every drive is told that all have been told, and how far the others go: whichever is lost next, the others know.
    pub fn tell_all(&mut self, phase: Phase) {
        self.books.here().into_iter().for_each(|drive| self.tell(drive, phase));
    }

    /// The first drive is told how far the others go: then none can be replaced by an older copy without one that tells.
    pub fn tell_first(&mut self, phase: Phase) {
        let Some(first) = self.books.drives.iter().position(PoolDrive::is_here) else { return };
        self.tell(first as u16, phase);
    }

    fn tell(&mut self, drive: u16, phase: Phase) {
        let layout = self.books.layout;
        let state = self.state(phase, self.books.others(drive).into_iter());
        let bytes = payload(&[state], layout);
        if bytes.is_empty() {
            return;
        }
        if let Some(at) = self.books.drives[usize::from(drive)].append(blocks_of(bytes.len()), layout) {
            return self.both(drive, [0, 1], &at, &bytes, None);
        }
        // A new header says it in no more room than the old one.
        let was = core::mem::replace(&mut self.books.phase, phase);
        self.anew(drive, self.books.opens, 1, &[], None);
        self.books.phase = was;
    }

    fn both(&mut self, drive: u16, copies: [u8; 2], at: &Address, bytes: &[u8], between: Option<ChangeStep>) {
        let mut between = between;
        for copy in copies {
            let blocks = encode(&Address { copy, ..*at }, bytes, self.crc);
            self.write(drive, copy, at.block, &blocks);
            self.steps.push(ChangeStep::Flush(drive));
            self.steps.extend(between.take());
        }
        self.steps.push(ChangeStep::Reached(drive, LogEnd { generation: at.generation, entry: at.entry }));
    }

    /// Blocks of a copy: a write a stripe.
    fn write(&mut self, drive: u16, copy: u8, block: u32, blocks: &[u8]) {
        let (mut block, mut left) = (block, blocks);
        while !left.is_empty() {
            let here = (STRIPE_BLOCKS - block % STRIPE_BLOCKS) as usize * BLOCK;
            let (piece, rest) = left.split_at(here.min(left.len()));
            self.steps.push(ChangeStep::Write { drive, offset: place(copy, block), bytes: piece.to_vec() });
            (block, left) = (block + (piece.len() / BLOCK) as u32, rest);
        }
    }

    /// What a drive that has left says of itself from then on: that it is the only one of a pool that was never opened, which is
    /// as good as nothing. Its place in the list, what it was, and the generation of its last entry.
    pub fn dismiss(&mut self, position: usize, was: Member, generation: u64) {
        let header = EntryHeader {
            opens: 0,
            phase: Phase::Opening,
            needs: 0,
            counter: 0,
            pool: self.books.uuid,
            name: self.books.name.clone(),
            drive: 0,
            area: crate::drive::area_of(was.chunks),
            members: alloc::vec![was],
            known: alloc::vec![Known::default()],
            names: Vec::new(),
            lost_at: Vec::new(),
        };
        let layout = self.books.layout;
        let bytes = payload(&[Record::Header(header)], layout);
        for copy in [1, 0] {
            let at = Address { drive: was.uuid, layout, generation: generation + 1, entry: 0, block: 0, copy };
            self.steps.push(ChangeStep::Dismiss(position, place(copy, 0), encode(&at, &bytes, self.crc)));
            self.steps.push(ChangeStep::Settle(position));
        }
    }

    /// Chunks of nobody are emptied, and then free, and no metadata say any more that they were somebody's. These are the last steps of a change:
    /// what the metadata say then is what memory knows when they are carried out.
    pub fn unmap(&mut self, dirty: &[(u16, ChunkRun)]) {
        let mut drives: Vec<u16> = dirty.iter().map(|(drive, _)| *drive).collect();
        drives.sort_unstable();
        drives.dedup();
        for drive in drives {
            let runs: Vec<ChunkRun> = dirty.iter().filter(|(d, _)| *d == drive).map(|(_, run)| *run).collect();
            self.steps.extend(runs.iter().map(|run| ChangeStep::Unmap(drive, *run)));
            self.steps.push(ChangeStep::Flush(drive));
            self.steps.push(ChangeStep::Free(drive, runs));
            self.steps.push(ChangeStep::ForgetEmptied(drive));
        }
    }
}

impl Books {
    /// All drives that are there.
    pub fn here(&self) -> Vec<u16> {
        let all = self.drives.iter().zip(0u16..).filter(|(d, _)| d.is_here());
        all.map(|(_, i)| i).collect()
    }

    /// All drives that are there, but one.
    pub fn others(&self, drive: u16) -> Vec<u16> {
        let mut others = self.here();
        others.retain(|other| *other != drive);
        others
    }

    /// Everything that a drive's metadata say.
    fn records(&self, drive: u16, opens: u64) -> Vec<Record> {
        let state = &self.drives[usize::from(drive)];
        let known = |(other, d): (u16, &PoolDrive)| match other == drive || d.is_gone() {
            // Of itself it says so while it is about to take part again.
            true => Known { state: if d.lost_at > 0 { LOST } else { TAKES_PART }, ..Known::default() },
            false => Known { state: if d.lost { LOST } else { TAKES_PART }, reach: d.reach },
        };
        let states = if self.drives.iter().any(|d| d.lost || d.lost_at > 0) { STATES } else { 0 };
        let shared = if self.has_shared { SHARED } else { 0 };
        let pairs = if self.has_shared_pairs { SHARED_PAIRS } else { 0 };
        let needs = states | shared | pairs | if self.has_copies { COPIES } else { 0 };
        let header = EntryHeader {
            opens,
            phase: self.phase,
            needs,
            counter: self.counter,
            pool: self.uuid,
            name: self.name.clone(),
            drive,
            area: state.area,
            members: self.drives.iter().map(|d| d.member).collect(),
            known: (0u16..).zip(&self.drives).map(known).collect(),
            names: self.drives.iter().map(|d| d.name.clone()).collect(),
            lost_at: self.drives.iter().map(|d| d.lost_at).collect(),
        };
        let mut records = alloc::vec![Record::Header(header)];
        for volume in self.volumes.values() {
            records.extend(part_of(volume, drive));
            records.extend(self.descriptions(volume, drive));
        }
        if !state.dirty.is_empty() {
            records.push(Record::Dirty(state.dirty.clone()));
        }
        records
    }
}

impl Books {
    /// The drive that describes the volumes of a home for the case that it is lost: the next one.
    pub fn mirror_of(&self, home: u16) -> Option<u16> {
        let others = self.others(home);
        others.iter().find(|d| **d > home).or(others.first()).copied().filter(|_| self.layout >= MIRRORED)
    }

    /// Whether a volume has a part on a drive that is lost.
    pub fn is_degraded(&self, volume: &Volume) -> bool {
        volume.parts.keys().any(|d| self.drives[usize::from(*d)].lost)
    }

    /// What a drive says of a whole volume: of one that it is the mirror of, and of one of its own that has parts on other drives; and of both
    /// what is stale of it.
    pub fn descriptions(&self, volume: &Volume, drive: u16) -> Vec<Record> {
        if self.layout < MIRRORED {
            return Vec::new();
        }
        let (is_home, is_mirror) = (drive == volume.home, self.mirror_of(volume.home) == Some(drive));
        let mut records = Vec::new();
        if is_mirror || is_home && volume.parts.len() > 1 {
            records.push(Record::Mirror(Box::new(mirror(volume))));
        }
        if is_home || is_mirror {
            let stale = |(drive, runs): (&u16, &Vec<ChunkRun>)| Record::Stale {
                id: volume.id,
                drive: *drive,
                runs: runs.clone(),
            };
            records.extend(volume.stale.iter().map(stale));
            if !volume.written.is_empty() {
                records.push(Record::Written { id: volume.id, runs: volume.written.clone() });
            }
        }
        records
    }
}

fn mirror(volume: &Volume) -> Mirror {
    let version = volume.parts.get(&volume.home).map_or(0, |part| part.version);
    let parts = volume.parts.iter().map(|(drive, part)| (*drive, part.clone())).collect();
    let home = Home { others: Vec::new(), ..home_of(volume) };
    Mirror { id: volume.id, home: volume.home, version, volume: home, parts }
}

fn home_of(volume: &Volume) -> Home {
    let others = volume.parts.iter().filter(|(d, _)| **d != volume.home).map(|(d, p)| (*d, p.version));
    Home {
        name: volume.name.clone(),
        tenant: volume.tenant.clone(),
        uuid: volume.uuid,
        chunks: volume.chunks,
        copies: volume.copies,
        others: others.collect(),
    }
}

/// What a drive's metadata say of a volume, if it has some of it.
pub(crate) fn part_of(volume: &Volume, drive: u16) -> Option<Record> {
    let part = volume.parts.get(&drive)?;
    let home = (drive == volume.home).then(|| home_of(volume));
    Some(Record::Part { id: volume.id, version: part.version, extents: part.extents.clone(), home })
}
