//! What an entry says: records, one behind the other, little-endian. `docs/reference/formats.md` has the table.

use crate::block::OLDEST;
use crate::extent::{ChunkRun, Extent};
use crate::volume::{Uuid, VolumeId};
use alloc::string::String;
use alloc::vec::Vec;

/// A drive of the pool, as every drive knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub uuid: Uuid,
    pub chunks: u32,
}

impl Member {
    /// A number that a drive has had that left.
    pub const GONE: Member = Member { uuid: Uuid([0; 16]), chunks: 0 };
}

/// How far the entries of a drive go: the generation, and the last entry of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogEnd {
    pub generation: u64,
    pub entry: u32,
}

/// What a pool was at when a drive was last told so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is being opened: not all drives have been told.
    #[default]
    Opening,
    /// All drives have been told: it is changed and used.
    Open,
    /// No change follows.
    Closed,
}

impl Phase {
    fn from_byte(byte: u8) -> Result<Self, Garbled> {
        match byte {
            0 => Ok(Phase::Opening),
            1 => Ok(Phase::Open),
            2 => Ok(Phase::Closed),
            _ => Err(Garbled),
        }
    }
}

/// What a drive knows of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// 0: it takes part. Others belong to [`EntryHeader::needs`].
    pub state: u8,
    /// Its entries went at least so far: one that has fewer is an old copy.
    pub reach: LogEnd,
}

/// What an entry 0 begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryHeader {
    /// How often the pool was opened, 0 while it is being made: at a place that [`crate::block::is_half_made`] knows.
    pub opens: u64,
    pub phase: Phase,
    /// A bit for each thing that whoever opens the pool must know: copies of volumes 1, references 2, states of drives 4.
    pub needs: u32,
    /// Versions are above it, or in a record.
    pub counter: u64,
    pub pool: Uuid,
    pub name: String,
    /// Number of this drive.
    pub drive: u16,
    /// First chunk behind the metadata.
    pub area: u32,
    pub members: Vec<Member>,
    /// Of each member.
    pub known: Vec<Known>,
}

/// What the home of a volume says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub name: String,
    pub tenant: String,
    pub uuid: Uuid,
    pub chunks: u32,
    /// How many drives have each chunk.
    pub copies: u8,
    /// The other drives that have a part, and its version there.
    pub others: Vec<(u16, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Header(EntryHeader),
    /// What this drive has of a volume, in a version; at home what the volume is.
    Part {
        id: VolumeId,
        version: u64,
        extents: Vec<Extent>,
        home: Option<Home>,
    },
    /// This drive has nothing of the volume any more.
    Drop(VolumeId),
    /// Chunks that were somebody's and are not unmapped yet.
    Dirty(Vec<ChunkRun>),
    /// What the pool is at, and how far the entries of other drives go.
    State(Phase, Vec<(u16, LogEnd)>),
    /// Chunks of a volume whose copy on a drive is not what was written last.
    Stale {
        id: VolumeId,
        drive: u16,
        runs: Vec<ChunkRun>,
    },
    /// Chunks of this drive that several volumes have, and how many.
    References(Vec<(ChunkRun, u32)>),
}

/// Bytes that are no records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// What is counted up on a drive (openings, versions, generations) stays below: so one more never is less.
pub(crate) const COUNTED: u64 = 1 << 63;

const HEADER: u8 = 1;
const PART: u8 = 2;
const DROP: u8 = 3;
const DIRTY: u8 = 4;
const STATE: u8 = 5;
const STALE: u8 = 6;
const REFERENCES: u8 = 7;

/// What this release knows of [`EntryHeader::needs`].
pub(crate) const NEEDS_KNOWN: u32 = 0;

fn put_text(to: &mut Vec<u8>, text: &str) {
    to.push(text.len() as u8);
    to.extend_from_slice(text.as_bytes());
}

fn put32(to: &mut Vec<u8>, value: u32) {
    to.extend_from_slice(&value.to_le_bytes());
}

fn put64(to: &mut Vec<u8>, value: u64) {
    to.extend_from_slice(&value.to_le_bytes());
}

fn put_runs(to: &mut Vec<u8>, runs: &[ChunkRun]) {
    put32(to, runs.len() as u32);
    runs.iter().flat_map(|run| [run.start, run.len]).for_each(|word| put32(to, word));
}

fn put_reach(to: &mut Vec<u8>, reach: LogEnd) {
    put64(to, reach.generation);
    put32(to, reach.entry);
}

impl EntryHeader {
    fn encode(&self, to: &mut Vec<u8>, layout: u32) {
        to.push(HEADER);
        put64(to, self.opens);
        if layout > OLDEST {
            to.push(self.phase as u8);
            put32(to, self.needs);
        }
        put64(to, self.counter);
        to.extend_from_slice(&self.pool.0);
        put_text(to, &self.name);
        to.extend_from_slice(&self.drive.to_le_bytes());
        put32(to, self.area);
        to.extend_from_slice(&(self.members.len() as u16).to_le_bytes());
        for (at, member) in self.members.iter().enumerate() {
            to.extend_from_slice(&member.uuid.0);
            put32(to, member.chunks);
            if layout > OLDEST {
                let known = self.known.get(at).copied().unwrap_or_default();
                to.push(known.state);
                put_reach(to, known.reach);
            }
        }
    }
}

impl Home {
    fn encode(&self, to: &mut Vec<u8>, layout: u32) {
        put_text(to, &self.name);
        put_text(to, &self.tenant);
        to.extend_from_slice(&self.uuid.0);
        put32(to, self.chunks);
        if layout > OLDEST {
            to.push(self.copies);
        }
        to.extend_from_slice(&(self.others.len() as u16).to_le_bytes());
        for (drive, version) in &self.others {
            to.extend_from_slice(&drive.to_le_bytes());
            put64(to, *version);
        }
    }
}

impl Record {
    /// The oldest layout has none of the later records.
    pub fn encode(&self, to: &mut Vec<u8>, layout: u32) {
        match self {
            Record::Header(header) => header.encode(to, layout),
            Record::Part { id, version, extents, home } => {
                to.push(PART);
                put64(to, id.0);
                put64(to, *version);
                put32(to, extents.len() as u32);
                for e in extents {
                    [e.logical, e.run.start, e.run.len].into_iter().for_each(|word| put32(to, word));
                }
                to.push(home.is_some().into());
                home.iter().for_each(|home| home.encode(to, layout));
            }
            Record::Drop(id) => {
                to.push(DROP);
                put64(to, id.0);
            }
            Record::Dirty(runs) => {
                to.push(DIRTY);
                put_runs(to, runs);
            }
            Record::State(..) | Record::Stale { .. } | Record::References(_) if layout == OLDEST => {}
            Record::State(phase, reaches) => {
                to.extend_from_slice(&[STATE, *phase as u8]);
                to.extend_from_slice(&(reaches.len() as u16).to_le_bytes());
                for (drive, reach) in reaches {
                    to.extend_from_slice(&drive.to_le_bytes());
                    put_reach(to, *reach);
                }
            }
            Record::Stale { id, drive, runs } => {
                to.push(STALE);
                put64(to, id.0);
                to.extend_from_slice(&drive.to_le_bytes());
                put_runs(to, runs);
            }
            Record::References(counts) => {
                to.push(REFERENCES);
                put32(to, counts.len() as u32);
                for (run, count) in counts {
                    [run.start, run.len, *count].into_iter().for_each(|word| put32(to, word));
                }
            }
        }
    }

    /// All records of an entry of that layout.
    pub fn decode_all(bytes: &[u8], layout: u32) -> Result<Vec<Record>, Garbled> {
        let (mut reader, mut records) = (Reader(bytes, layout), Vec::new());
        while !reader.0.is_empty() {
            records.push(reader.record()?);
        }
        Ok(records)
    }
}

/// Bytes that are to be read, and their layout.
struct Reader<'a>(&'a [u8], u32);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbled> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or(Garbled)?;
        self.0 = rest;
        Ok(*array)
    }

    fn u8(&mut self) -> Result<u8, Garbled> {
        Ok(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, Garbled> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Garbled> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Garbled> {
        self.array().map(u64::from_le_bytes)
    }

    /// One that is counted up, which never gets far.
    fn counted(&mut self) -> Result<u64, Garbled> {
        self.u64().and_then(|n| if n < COUNTED { Ok(n) } else { Err(Garbled) })
    }

    fn uuid(&mut self) -> Result<Uuid, Garbled> {
        self.array().map(Uuid)
    }

    fn text(&mut self) -> Result<String, Garbled> {
        let length = usize::from(self.u8()?);
        let (text, rest) = self.0.split_at_checked(length).ok_or(Garbled)?;
        self.0 = rest;
        core::str::from_utf8(text).map(String::from).map_err(|_| Garbled)
    }

    /// So many of something, each of so many bytes: fewer cannot be there.
    fn many<T>(
        &mut self,
        count: usize,
        bytes: usize,
        one: fn(&mut Self) -> Result<T, Garbled>,
    ) -> Result<Vec<T>, Garbled> {
        if count > self.0.len() / bytes {
            return Err(Garbled);
        }
        (0..count).map(|_| one(self)).collect()
    }

    fn run(&mut self) -> Result<ChunkRun, Garbled> {
        Ok(ChunkRun { start: self.u32()?, len: self.u32()? })
    }

    fn runs(&mut self) -> Result<Vec<ChunkRun>, Garbled> {
        let count = self.u32()?;
        self.many(count as usize, 8, Self::run)
    }

    fn reach(&mut self) -> Result<LogEnd, Garbled> {
        Ok(LogEnd { generation: self.counted()?, entry: self.u32()? })
    }

    fn is_oldest(&self) -> bool {
        self.1 == OLDEST
    }

    fn record(&mut self) -> Result<Record, Garbled> {
        Ok(match self.u8()? {
            HEADER => Record::Header(self.header()?),
            PART => {
                let (id, version, count) = (VolumeId(self.counted()?), self.counted()?, self.u32()?);
                let extents = self.many(count as usize, 12, |r| Ok(Extent { logical: r.u32()?, run: r.run()? }))?;
                let home = if self.u8()? == 0 { None } else { Some(self.home()?) };
                Record::Part { id, version, extents, home }
            }
            DROP => Record::Drop(VolumeId(self.counted()?)),
            DIRTY => Record::Dirty(self.runs()?),
            STATE..=REFERENCES if self.is_oldest() => return Err(Garbled),
            STATE => {
                let (phase, count) = (Phase::from_byte(self.u8()?)?, self.u16()?);
                Record::State(phase, self.many(count.into(), 14, |r| Ok((r.u16()?, r.reach()?)))?)
            }
            STALE => Record::Stale { id: VolumeId(self.counted()?), drive: self.u16()?, runs: self.runs()? },
            REFERENCES => {
                let count = self.u32()?;
                Record::References(self.many(count as usize, 12, |r| Ok((r.run()?, r.u32()?)))?)
            }
            _ => return Err(Garbled),
        })
    }

    fn header(&mut self) -> Result<EntryHeader, Garbled> {
        let opens = self.counted()?;
        let (phase, needs) = match self.is_oldest() {
            true => (Phase::default(), 0),
            false => (Phase::from_byte(self.u8()?)?, self.u32()?),
        };
        let (counter, pool, name) = (self.counted()?, self.uuid()?, self.text()?);
        let (drive, area, count) = (self.u16()?, self.u32()?, self.u16()?);
        let bytes = if self.is_oldest() { 20 } else { 33 };
        let all = self.many(count.into(), bytes, |r| {
            let member = Member { uuid: r.uuid()?, chunks: r.u32()? };
            let known = if r.is_oldest() { Known::default() } else { Known { state: r.u8()?, reach: r.reach()? } };
            Ok((member, known))
        })?;
        let (members, known) = all.into_iter().unzip();
        Ok(EntryHeader { opens, phase, needs, counter, pool, name, drive, area, members, known })
    }

    fn home(&mut self) -> Result<Home, Garbled> {
        let (name, tenant, uuid, chunks) = (self.text()?, self.text()?, self.uuid()?, self.u32()?);
        let copies = if self.is_oldest() { 1 } else { self.u8()? };
        let count = self.u16()?;
        let others = self.many(count.into(), 10, |r| Ok((r.u16()?, r.counted()?)))?;
        Ok(Home { name, tenant, uuid, chunks, copies, others })
    }
}
