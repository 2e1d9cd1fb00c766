//! What an entry says: records, one behind the other, little-endian. `docs/formats.md` has the table.

use crate::extent::{Extent, Run};
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

/// What an entry 0 begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// How often the pool was opened, 0 while it is being made: at a place that [`crate::block::is_half_made`] knows.
    pub opens: u64,
    /// Versions are above it, or in a record.
    pub counter: u64,
    pub pool: Uuid,
    pub name: String,
    /// Number of this drive.
    pub drive: u16,
    /// First chunk behind the metadata.
    pub area: u32,
    pub members: Vec<Member>,
}

/// What the home of a volume says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub name: String,
    pub tenant: String,
    pub uuid: Uuid,
    pub chunks: u32,
    /// The other drives that have a part, and its version there.
    pub others: Vec<(u16, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Header(Header),
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
    Dirty(Vec<Run>),
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

impl Record {
    pub fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Record::Header(h) => {
                to.push(HEADER);
                put64(to, h.opens);
                put64(to, h.counter);
                to.extend_from_slice(&h.pool.0);
                put_text(to, &h.name);
                to.extend_from_slice(&h.drive.to_le_bytes());
                put32(to, h.area);
                to.extend_from_slice(&(h.members.len() as u16).to_le_bytes());
                for member in &h.members {
                    to.extend_from_slice(&member.uuid.0);
                    put32(to, member.chunks);
                }
            }
            Record::Part { id, version, extents, home } => {
                to.push(PART);
                put64(to, id.0);
                put64(to, *version);
                put32(to, extents.len() as u32);
                for e in extents {
                    [e.logical, e.run.start, e.run.len].into_iter().for_each(|word| put32(to, word));
                }
                to.push(home.is_some().into());
                if let Some(home) = home {
                    put_text(to, &home.name);
                    put_text(to, &home.tenant);
                    to.extend_from_slice(&home.uuid.0);
                    put32(to, home.chunks);
                    to.extend_from_slice(&(home.others.len() as u16).to_le_bytes());
                    for (drive, version) in &home.others {
                        to.extend_from_slice(&drive.to_le_bytes());
                        put64(to, *version);
                    }
                }
            }
            Record::Drop(id) => {
                to.push(DROP);
                put64(to, id.0);
            }
            Record::Dirty(runs) => {
                to.push(DIRTY);
                put32(to, runs.len() as u32);
                for run in runs {
                    put32(to, run.start);
                    put32(to, run.len);
                }
            }
        }
    }

    /// All records of an entry.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Record>, Garbled> {
        let (mut reader, mut records) = (Reader(bytes), Vec::new());
        while !reader.0.is_empty() {
            records.push(reader.record()?);
        }
        Ok(records)
    }
}

struct Reader<'a>(&'a [u8]);

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

    fn record(&mut self) -> Result<Record, Garbled> {
        let run = |r: &mut Self| Ok(Run { start: r.u32()?, len: r.u32()? });
        Ok(match self.u8()? {
            HEADER => {
                let (opens, counter, pool, name) = (self.counted()?, self.counted()?, self.uuid()?, self.text()?);
                let (drive, area, count) = (self.u16()?, self.u32()?, self.u16()?);
                let members = self.many(count.into(), 20, |r| Ok(Member { uuid: r.uuid()?, chunks: r.u32()? }))?;
                Record::Header(Header { opens, counter, pool, name, drive, area, members })
            }
            PART => {
                let (id, version, count) = (VolumeId(self.counted()?), self.counted()?, self.u32()?);
                let extents = self.many(count as usize, 12, |r| {
                    Ok(Extent { logical: r.u32()?, run: Run { start: r.u32()?, len: r.u32()? } })
                })?;
                let home = if self.u8()? == 0 { None } else { Some(self.home()?) };
                Record::Part { id, version, extents, home }
            }
            DROP => Record::Drop(VolumeId(self.counted()?)),
            DIRTY => {
                let count = self.u32()?;
                Record::Dirty(self.many(count as usize, 8, run)?)
            }
            _ => return Err(Garbled),
        })
    }

    fn home(&mut self) -> Result<Home, Garbled> {
        let (name, tenant, uuid, chunks) = (self.text()?, self.text()?, self.uuid()?, self.u32()?);
        let count = self.u16()?;
        let others = self.many(count.into(), 10, |r| Ok((r.u16()?, r.counted()?)))?;
        Ok(Home { name, tenant, uuid, chunks, others })
    }
}
