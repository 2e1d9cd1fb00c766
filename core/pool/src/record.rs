//! What an entry says: records, one behind the other, little-endian. `docs/reference/formats.md` has the table.

use crate::block::{MIRRORED, OLDEST};
use crate::extent::{ChunkRun, Extent};
use crate::volume::{Part, Uuid, VolumeId};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use weir_codec::{Coder, Counted, Damaged, Own, Reader, Writer, coded, coded_as, fields, numbered};

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

/// What a drive knows of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// [`TAKES_PART`] or [`LOST`].
    pub state: u8,
    /// Its entries went at least so far: one that has fewer is an old copy.
    pub reach: LogEnd,
}

/// The drive of a [`Known`] is one of the pool's.
pub(crate) const TAKES_PART: u8 = 0;
/// It is, and the pool serves without it. [`STATES`] is set.
pub(crate) const LOST: u8 = 1;

/// What an entry 0 begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EntryHeader {
    /// How often the pool was opened, 0 while it is being made: at a place that [`crate::block::is_half_made`] knows.
    pub opens: u64,
    pub phase: Phase,
    /// A bit for each thing that whoever opens the pool must know: copies of volumes 1, chunks of several volumes 2, states of drives 4.
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
    /// What messages called each member when this was written; nothing in a layout before [`MIRRORED`].
    pub names: Vec<String>,
    /// Of each lost member how often the pool had been opened when it was lost; else 0.
    pub lost_at: Vec<u64>,
}

/// What the home of a volume says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Regions of a volume with two copies that may be written: after a crash its copies may differ there and nowhere else.
    Written {
        id: VolumeId,
        runs: Vec<ChunkRun>,
    },
    /// Chunks of this drive that several volumes have, and how many.
    References(Vec<(ChunkRun, u32)>),
    /// A volume whose home is another drive; or one of this home that has chunks on a drive that is lost.
    Mirror(Box<Mirror>),
}

/// All that there is to know of a volume but its stale chunks: what is left of it when its home, or another of its drives, is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mirror {
    pub id: VolumeId,
    /// Number of the drive that is its home.
    pub home: u16,
    /// The version there.
    pub version: u64,
    /// As home says it; the other drives are in `parts`.
    pub volume: Home,
    /// What each drive has of it.
    pub parts: Vec<(u16, Part)>,
}

/// What is counted up on a drive (openings, versions, generations) stays below: so one more never is less.
pub(crate) const COUNTED: u64 = 1 << 63;

const HEADER: u8 = 1;
const PART: u8 = 2;
const DROP: u8 = 3;
const DIRTY: u8 = 4;
const STATE: u8 = 5;
const STALE: u8 = 6;
const REFERENCES: u8 = 7;
const MIRROR: u8 = 8;
const WRITTEN: u8 = 9;

/// What this release knows of [`EntryHeader::needs`].
pub(crate) const NEEDS_KNOWN: u32 = STATES | SHARED | COPIES | SHARED_PAIRS;
/// A volume has more copies than one.
pub(crate) const COPIES: u32 = 1;
/// A chunk may be had by several volumes: how many follows from their extents.
pub(crate) const SHARED: u32 = 2;
/// A drive has another state than [`TAKES_PART`].
pub(crate) const STATES: u32 = 4;
/// Volumes with two copies may have chunks in common.
pub(crate) const SHARED_PAIRS: u32 = 8;

/// A number that is counted up, which never gets as far as [`COUNTED`].
struct Rising;

impl Coder<u64> for Rising {
    fn put(number: &u64, to: &mut Writer) {
        to.u64(*number);
    }
    fn get(from: &mut Reader<'_>) -> Result<u64, Damaged> {
        from.u64().and_then(|n| if n < COUNTED { Ok(n) } else { Err(Damaged) })
    }
    fn kind() -> String {
        "u64 below 2^63".into()
    }
}

numbered! { Phase: u8 { Opening = 0, Open = 1, Closed = 2 } }

coded_as! {
    Uuid: [u8; 16], |uuid| uuid.0, |bytes| Some(Uuid(bytes));
    VolumeId: u64, |id| id.0, |id| (id < COUNTED).then_some(VolumeId(id));
}

coded! {
    ChunkRun { start: "first chunk", len: "how many" }
    Extent { logical: "the volume's first chunk", run: "the drive's chunks" }
    LogEnd { generation as Rising: "the generation of its entries", entry: "the last one" }
    Member { uuid: "its UUID; zeroes: it has left, and the number waits for the next one", chunks: "its chunks" }
    Known { state: "0: it takes part; 1: it is lost", reach: "how far its entries go" }
}

fields! { pub(crate) EntryHeader: put_identity, get_identity, identity_rows {
    counter as Rising: "highest version so far",
    pool: "UUID of the pool",
    name as Counted<u8>: "its name",
    drive: "number of this drive",
    area: "chunks of metadata",
} }

fields! { pub(crate) Home: put_volume, get_volume, volume_rows {
    name as Counted<u8>: "its name",
    tenant as Counted<u8>: "its tenant",
    uuid: "its UUID",
    chunks: "its chunks",
} }

impl EntryHeader {
    fn put(&self, to: &mut Writer, layout: u32) {
        Rising::put(&self.opens, to);
        if layout > OLDEST {
            to.put(&(self.phase, self.needs));
        }
        put_identity(self, to);
        to.u16(self.members.len() as u16);
        for (at, member) in self.members.iter().enumerate() {
            to.put(member);
            if layout > OLDEST {
                to.put(&self.known.get(at).copied().unwrap_or_default());
            }
            if layout >= MIRRORED {
                <Counted<u8> as Coder<String>>::put(self.names.get(at).unwrap_or(&String::new()), to);
                Rising::put(&self.lost_at.get(at).copied().unwrap_or(0), to);
            }
        }
    }

    fn get(from: &mut Reader<'_>, layout: u32) -> Result<Self, Damaged> {
        let mut header = EntryHeader { opens: Rising::get(from)?, ..EntryHeader::default() };
        if layout > OLDEST {
            (header.phase, header.needs) = from.get()?;
        }
        get_identity(&mut header, from)?;
        for _ in 0..from.u16()? {
            header.members.push(from.get()?);
            header.known.push(if layout > OLDEST { from.get()? } else { Known::default() });
            if layout >= MIRRORED {
                header.names.push(<Counted<u8> as Coder<String>>::get(from)?);
                header.lost_at.push(Rising::get(from)?);
            }
        }
        Ok(header)
    }
}

/// Drives, and the version of each.
type Versions = Counted<u16, (Own, Rising)>;

impl Home {
    fn put(&self, to: &mut Writer, layout: u32) {
        put_volume(self, to);
        if layout > OLDEST {
            to.u8(self.copies);
        }
        Versions::put(&self.others, to);
    }

    fn get(from: &mut Reader<'_>, layout: u32) -> Result<Self, Damaged> {
        let mut home = Home::default();
        get_volume(&mut home, from)?;
        home.copies = if layout > OLDEST { from.u8()? } else { 1 };
        home.others = Versions::get(from)?;
        Ok(home)
    }
}

impl Mirror {
    fn put(&self, to: &mut Writer, layout: u32) {
        to.put(&(self.id, self.home));
        Rising::put(&self.version, to);
        self.volume.put(to, layout);
        to.u16(self.parts.len() as u16);
        for (drive, part) in &self.parts {
            to.u16(*drive);
            Rising::put(&part.version, to);
            to.put(&part.extents);
        }
    }

    fn get(from: &mut Reader<'_>, layout: u32) -> Result<Self, Damaged> {
        let (id, home, version) = (from.get()?, from.u16()?, Rising::get(from)?);
        let mut mirror = Mirror { id, home, version, volume: Home::get(from, layout)?, parts: Vec::new() };
        for _ in 0..from.u16()? {
            let (drive, version, extents) = (from.u16()?, Rising::get(from)?, from.get()?);
            mirror.parts.push((drive, Part { version, extents }));
        }
        Ok(mirror)
    }
}

impl Record {
    /// An older layout has none of the later records.
    pub fn put(&self, to: &mut Writer, layout: u32) {
        match self {
            Record::Header(header) => {
                to.u8(HEADER);
                header.put(to, layout);
            }
            Record::Part { id, version, extents, home } => {
                to.put(&(PART, (*id, *version)));
                to.put(extents);
                to.put(&home.is_some());
                home.iter().for_each(|home| home.put(to, layout));
            }
            Record::Drop(id) => to.put(&(DROP, *id)),
            Record::Dirty(runs) => {
                to.u8(DIRTY);
                to.put(runs);
            }
            Record::State(..) | Record::Stale { .. } | Record::References(_) if layout == OLDEST => {}
            Record::Mirror(_) | Record::Written { .. } if layout < MIRRORED => {}
            Record::State(phase, reaches) => {
                to.put(&(STATE, *phase));
                Counted::<u16>::put(reaches, to);
            }
            Record::Stale { id, drive, runs } => {
                to.put(&(STALE, (*id, *drive)));
                to.put(runs);
            }
            Record::Written { id, runs } => {
                to.put(&(WRITTEN, *id));
                to.put(runs);
            }
            Record::References(counts) => {
                to.u8(REFERENCES);
                to.put(counts);
            }
            Record::Mirror(mirror) => {
                to.u8(MIRROR);
                mirror.put(to, layout);
            }
        }
    }

    fn get(from: &mut Reader<'_>, layout: u32) -> Result<Record, Damaged> {
        Ok(match from.u8()? {
            HEADER => Record::Header(EntryHeader::get(from, layout)?),
            PART => {
                let (id, version, extents) = (from.get()?, Rising::get(from)?, from.get()?);
                let home = if from.get()? { Some(Home::get(from, layout)?) } else { None };
                Record::Part { id, version, extents, home }
            }
            DROP => Record::Drop(from.get()?),
            DIRTY => Record::Dirty(from.get()?),
            STATE..=REFERENCES if layout == OLDEST => return Err(Damaged),
            STATE => Record::State(from.get()?, Counted::<u16>::get(from)?),
            STALE => Record::Stale { id: from.get()?, drive: from.get()?, runs: from.get()? },
            REFERENCES => Record::References(from.get()?),
            WRITTEN if layout >= MIRRORED => Record::Written { id: from.get()?, runs: from.get()? },
            MIRROR if layout >= MIRRORED => Record::Mirror(Box::new(Mirror::get(from, layout)?)),
            _ => return Err(Damaged),
        })
    }

    /// All records of an entry of that layout.
    pub fn get_all(bytes: &[u8], layout: u32) -> Result<Vec<Record>, Damaged> {
        let (mut from, mut records) = (Reader::of(bytes), Vec::new());
        while !from.is_empty() {
            records.push(Record::get(&mut from, layout)?);
        }
        Ok(records)
    }
}
