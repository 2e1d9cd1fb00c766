//! A drive of the pool: what a copy of its metadata says, and where the next entry goes.

use crate::block::{self, Address, BLOCK, BlockContents, Crc32c};
use crate::buddy::Buddy;
use crate::extent::{CHUNK, ChunkRun, Extent};
use crate::record::{COUNTED, EntryHeader, Home, Known, LOST, LogEnd, Member, Mirror, Phase, Record};
use crate::volume::{Uuid, VolumeId};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// A drive of a pool that is up.
#[derive(Clone, Debug)]
pub(crate) struct PoolDrive {
    pub member: Member,
    /// Its place in the caller's list; of one that is lost, none of it.
    pub position: usize,
    /// What messages call it, or called it when it was there.
    pub name: String,
    /// The pool serves without it.
    pub lost: bool,
    /// Then, and until the others have heard that it is back: how often the pool had been opened when it was lost.
    pub lost_at: u64,
    /// It is back, and whoever writes volumes may not have heard of it: what is written is stale here.
    pub returning: bool,
    /// First chunk behind the metadata.
    pub area: u32,
    /// Blocks of a copy.
    pub copy_blocks: u32,
    /// The last entry that was begun, of both copies.
    pub generation: u64,
    pub entry: u32,
    /// How far its entries go when what is planned has been carried out: other drives are told.
    pub reach: LogEnd,
    /// How far they go for sure.
    pub durable: LogEnd,
    /// Blocks that are written.
    pub used: u32,
    pub buddy: Buddy,
    /// Were somebody's and are not unmapped yet.
    pub dirty: Vec<ChunkRun>,
}

/// Chunks of metadata of a drive of so many.
pub(crate) fn area_of(chunks: u32) -> u32 {
    chunks.div_ceil(2048).max(2)
}

/// Bytes that volumes may have of a drive of so many bytes.
#[must_use]
pub fn usable(bytes: u64) -> u64 {
    let chunks = (bytes / CHUNK).min(u32::MAX.into()) as u32;
    u64::from(chunks.saturating_sub(area_of(chunks))) * CHUNK
}

/// Blocks of a copy in so many chunks of metadata: whole stripes.
pub(crate) fn copy_blocks(area: u32) -> u32 {
    area.saturating_mul((CHUNK / 2 / BLOCK as u64) as u32)
}

/// What a drive says of a volume, in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub extents: Vec<Extent>,
    pub home: Option<Home>,
}

/// What a copy says, its entries one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub drive: Uuid,
    pub layout: u32,
    pub generation: u64,
    pub entry: u32,
    pub header: EntryHeader,
    /// What the pool was at, and how far other drives' entries went, when this drive was told last.
    pub phase: Phase,
    pub known: Vec<Known>,
    /// What may count, by volume and version.
    pub candidates: BTreeMap<(VolumeId, u64), Candidate>,
    /// What it says of volumes for the case that a drive is lost.
    pub mirrors: BTreeMap<VolumeId, Box<Mirror>>,
    /// What it says of their stale chunks, by drive.
    pub stale: BTreeMap<VolumeId, BTreeMap<u16, Vec<ChunkRun>>>,
    /// What it says of regions of them that may be written.
    pub written: BTreeMap<VolumeId, Vec<ChunkRun>>,
    /// Everything that was anybody's since entry 0, or was not unmapped then.
    pub touched: Vec<ChunkRun>,
    pub counter: u64,
}

/// How far the entries of a copy could be read.
#[derive(Clone, Debug)]
pub(crate) enum Scan {
    /// They go on behind the bytes.
    More,
    Whole(Box<Copy>),
    Version(u32),
    Broken,
}

/// Reads a copy's entries; `bytes` are its blocks from the first on, `all` says that there are no more.
pub(crate) fn scan(bytes: &[u8], copy: u8, all: bool, crc: Crc32c) -> Scan {
    let mut found: Option<Box<Copy>> = None;
    let mut at = 0u32;
    loop {
        let limit = found.as_ref().map_or(u32::MAX, |c| copy_blocks(c.header.area));
        let entry = match read_entry(bytes, copy, at, found.as_deref(), crc) {
            Entry::Whole(entry) if at + entry.blocks <= limit => entry,
            Entry::Missing if !all && at < limit => return Scan::More,
            Entry::Version(version) if found.is_none() => return Scan::Version(version),
            _ => return found.map_or(Scan::Broken, Scan::Whole),
        };
        let Ok(records) = Record::get_all(&entry.payload, entry.layout) else {
            return found.map_or(Scan::Broken, Scan::Whole);
        };
        match &mut found {
            None => match begin(&entry, records) {
                Some(copy) => found = Some(Box::new(copy)),
                None => return Scan::Broken,
            },
            Some(copy) => {
                copy.entry = entry.number;
                records.into_iter().for_each(|record| copy.take(record));
            }
        }
        at += entry.blocks;
    }
}

struct Read {
    layout: u32,
    drive: Uuid,
    generation: u64,
    number: u32,
    blocks: u32,
    sum: u32,
    payload: Vec<u8>,
}

enum Entry {
    Whole(Read),
    /// It is not in the bytes, or not all of it.
    Missing,
    Version(u32),
    Broken,
}

/// The entry that begins at a block, if it follows what was found before.
fn read_entry(bytes: &[u8], copy: u8, at: u32, before: Option<&Copy>, crc: Crc32c) -> Entry {
    let mut read: Option<Read> = None;
    let mut part = 0;
    loop {
        let from = (at + part) as usize * BLOCK;
        let Some(bytes) = bytes.get(from..from + BLOCK) else { return Entry::Missing };
        let block = match block::decode(bytes, copy, at + part, crc) {
            BlockContents::Whole(block) => block,
            BlockContents::Version(version) => return Entry::Version(version),
            BlockContents::Nothing => return Entry::Broken,
        };
        let fits = match (&read, before) {
            (Some(r), _) => {
                let entry = (block.layout, block.drive, block.generation, block.entry, block.parts, block.sum);
                entry == (r.layout, r.drive, r.generation, r.number, r.blocks, r.sum)
            }
            (None, Some(c)) => {
                (block.layout, block.drive, block.generation, u64::from(block.entry))
                    == (c.layout, c.drive, c.generation, u64::from(c.entry) + 1)
            }
            (None, None) => block.entry == 0,
        };
        if !fits || block.part != part {
            return Entry::Broken;
        }
        let entry = read.get_or_insert(Read {
            layout: block.layout,
            drive: block.drive,
            generation: block.generation,
            number: block.entry,
            blocks: block.parts,
            sum: block.sum,
            payload: Vec::new(),
        });
        entry.payload.extend_from_slice(block.payload);
        part += 1;
        if part == block.parts {
            return read.filter(|r| crc(&r.payload) == r.sum).map_or(Entry::Broken, Entry::Whole);
        }
    }
}

fn begin(entry: &Read, records: Vec<Record>) -> Option<Copy> {
    let mut records = records.into_iter();
    let Some(Record::Header(header)) = records.next().filter(|_| entry.generation < COUNTED) else { return None };
    let mut copy = Copy {
        drive: entry.drive,
        layout: entry.layout,
        generation: entry.generation,
        entry: entry.number,
        counter: header.counter,
        phase: header.phase,
        known: header.known.clone(),
        header,
        candidates: BTreeMap::new(),
        mirrors: BTreeMap::new(),
        stale: BTreeMap::new(),
        written: BTreeMap::new(),
        touched: Vec::new(),
    };
    records.for_each(|record| copy.take(record));
    Some(copy)
}

impl Copy {
    fn take(&mut self, record: Record) {
        match record {
            Record::Header(_) => {}
            Record::Part { id, version, extents, home } => {
                self.counter = self.counter.max(version).max(id.0);
                self.touched.extend(extents.iter().map(|e| e.run));
                self.candidates.insert((id, version), Candidate { extents, home });
            }
            Record::Drop(id) => {
                self.candidates.retain(|(of, _), _| *of != id);
                self.mirrors.remove(&id);
                self.stale.remove(&id);
                self.written.remove(&id);
            }
            Record::Dirty(runs) => self.touched.extend(runs),
            Record::State(phase, reaches) => {
                self.phase = phase;
                for (drive, reach) in reaches {
                    if let Some(known) = self.known.get_mut(usize::from(drive)) {
                        known.reach = known.reach.max(reach);
                    }
                }
            }
            Record::Stale { id, drive, runs } => {
                self.stale.entry(id).or_default().insert(drive, runs);
            }
            Record::Written { id, runs } => {
                self.written.insert(id, runs);
            }
            Record::Mirror(mirror) => {
                let versions = mirror.parts.iter().map(|(_, part)| part.version);
                self.counter = versions.chain([mirror.version, mirror.id.0]).fold(self.counter, u64::max);
                self.mirrors.insert(mirror.id, mirror);
            }
            // How many volumes have a chunk follows from their parts.
            Record::References(_) => {}
        }
    }

    /// Generation and number of the copy's last whole entry.
    pub fn reach(&self) -> LogEnd {
        LogEnd { generation: self.generation, entry: self.entry }
    }

    /// It says that the drive of that number and UUID is lost.
    pub fn says_lost(&self, number: usize, uuid: Uuid) -> bool {
        let is = self.header.members.get(number).is_some_and(|m| m.uuid == uuid);
        is && self.header.known.get(number).is_some_and(|k| k.state == LOST)
    }
}

impl PoolDrive {
    /// One that joins: nothing of it is free before it was emptied.
    pub fn new(position: usize, name: &str, uuid: Uuid, bytes: u64) -> Self {
        let chunks = (bytes / CHUNK).min(u32::MAX.into()) as u32;
        let area = area_of(chunks);
        Self {
            member: Member { uuid, chunks },
            position,
            name: name.into(),
            area,
            copy_blocks: copy_blocks(area),
            buddy: Buddy::new(chunks),
            dirty: alloc::vec![ChunkRun { start: area, len: chunks - area }],
            ..Self::gone()
        }
    }

    /// One that the pool serves without, and how far its entries went when it was there.
    pub fn lost(member: Member, name: &str, reach: LogEnd, lost_at: u64) -> Self {
        Self { member, name: name.into(), lost: true, lost_at, reach, durable: reach, ..Self::gone() }
    }

    /// The number of one that has left, until another one gets it.
    pub fn gone() -> Self {
        Self {
            member: Member::GONE,
            position: usize::MAX,
            name: String::new(),
            lost: false,
            lost_at: 0,
            returning: false,
            area: 0,
            copy_blocks: 0,
            generation: 0,
            entry: 0,
            reach: LogEnd::default(),
            durable: LogEnd::default(),
            used: 0,
            buddy: Buddy::new(0),
            dirty: Vec::new(),
        }
    }

    /// It is the pool's, and there.
    pub fn is_here(&self) -> bool {
        !self.is_gone() && !self.lost
    }

    pub fn is_gone(&self) -> bool {
        self.member == Member::GONE
    }

    /// Where an entry of so many blocks goes, in both copies, behind the ones that are there; `None` if it does not fit.
    pub fn append(&mut self, blocks: u32, layout: u32) -> Option<Address> {
        if self.used + blocks > self.copy_blocks {
            return None;
        }
        let at = self.used;
        (self.used, self.entry) = (self.used + blocks, self.entry + 1);
        self.reach = LogEnd { generation: self.generation, entry: self.entry };
        let (drive, generation, entry) = (self.member.uuid, self.generation, self.entry);
        Some(Address { drive, layout, generation, entry, block: at, copy: 0 })
    }

    /// Where a new entry 0 goes.
    pub fn begin_anew(&mut self, blocks: u32, layout: u32) -> Address {
        (self.generation, self.entry, self.used) = (self.generation + 1, 0, blocks);
        self.reach = LogEnd { generation: self.generation, entry: 0 };
        Address { drive: self.member.uuid, layout, generation: self.generation, entry: 0, block: 0, copy: 0 }
    }
}
