//! The log of commits that a store's database does not have yet. docs/reference/formats.md has the bytes.

use super::Durability;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use weir_spec::crc32c::{append, crc32c};
use weir_store::kv::{COMMIT_BYTES_MAX, COMMIT_KEYS_MAX, KvKey, KvWrite};

const MAGIC: [u8; 8] = *b"WEIRKVLG";
const VERSION: u32 = 1;
const HEADER: usize = 40;
/// The mode of all files of a store: what they say is for their owner alone.
pub(super) const PRIVATE: u32 = 0o600;
const RECORD_HEADER: usize = 16;
/// Commits were answered when the medium had them.
const POWER: u32 = 1;
const PUT: u8 = 1;
const DELETE: u8 = 2;
/// Bytes of a record's contents at the most.
const CONTENTS_MAX: usize = 4 + COMMIT_BYTES_MAX + COMMIT_KEYS_MAX * 9;

/// A log that is written.
pub(super) struct Log {
    file: File,
    path: PathBuf,
    len: u64,
}

/// Why records were not appended.
#[derive(Debug)]
pub(super) enum LogFailure {
    /// Nothing of them is there.
    NotWritten(io::Error),
    /// Nobody knows what is there.
    Uncertain(io::Error),
}

/// What a log begins with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Header {
    /// The store's.
    pub id: u64,
    /// The revision before its first record.
    pub after: u64,
    pub durability: Durability,
}

/// A commit that was made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub revision: u64,
    pub writes: Vec<KvWrite>,
}

/// The records of a log up to its end, or to the first that is not whole.
#[derive(Debug, PartialEq)]
pub(super) struct Contents {
    pub header: Header,
    pub records: Vec<Record>,
    /// Bytes behind them that are no record.
    pub torn: usize,
}

/// Why the bytes are no log.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NoLog {
    /// They end before its header does, or that was never written.
    Torn,
    /// They are something else, or damaged.
    Foreign,
    /// It is of a version that this program does not know.
    Version(u32),
}

impl Log {
    /// A new one. With [`Durability::Power`] the medium has it when this returns.
    pub fn create(path: &Path, header: Header) -> io::Result<Self> {
        let mut file = OpenOptions::new().create_new(true).append(true).mode(PRIVATE).open(path)?;
        let mut begin = || {
            file.write_all(&header.to_bytes())?;
            if header.durability == Durability::Power {
                file.sync_all()?;
                sync_folder(path)?;
            }
            Ok(())
        };
        match begin() {
            Ok(()) => Ok(Self { file, path: path.into(), len: HEADER as u64 }),
            Err(e) => {
                // Nothing was written behind its beginning: the next attempt makes it anew.
                let _ = std::fs::remove_file(path);
                Err(e)
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Records behind those that are there.
    pub fn append(&mut self, records: &[u8], durability: Durability) -> Result<(), LogFailure> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", self.path.display()));
        if let Err(e) = self.file.write_all(records) {
            // What is there of them must not be found by the next start.
            let gone = self.file.set_len(self.len);
            return Err(if gone.is_ok() { LogFailure::NotWritten(named(e)) } else { LogFailure::Uncertain(named(e)) });
        }
        if durability == Durability::Power {
            self.file.sync_data().map_err(|e| LogFailure::Uncertain(named(e)))?;
        }
        self.len += records.len() as u64;
        Ok(())
    }
}

/// Makes a file's name durable.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

impl Header {
    pub fn to_bytes(self) -> [u8; HEADER] {
        let flags = if self.durability == Durability::Power { POWER } else { 0 };
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&flags.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.after.to_le_bytes());
        let crc = crc32c(&bytes[..32]);
        bytes[32..36].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, NoLog> {
        let mut fields = Fields(bytes.get(..HEADER).ok_or(NoLog::Torn)?);
        let (magic, version, flags) = (fields.take(8), fields.u32(), fields.u32());
        let (id, after, crc) = (fields.u64(), fields.u64(), fields.u32());
        let is_whole = magic == Some(&MAGIC) && crc == Some(crc32c(&bytes[..32]));
        match (is_whole, version, flags.zip(id).zip(after)) {
            (true, Some(VERSION), Some(((flags, id), after))) => {
                let durability = if flags & POWER != 0 { Durability::Power } else { Durability::Process };
                Ok(Self { id, after, durability })
            }
            (true, Some(version), _) => Err(NoLog::Version(version)),
            _ if bytes[..HEADER].iter().all(|byte| *byte == 0) => Err(NoLog::Torn),
            _ => Err(NoLog::Foreign),
        }
    }
}

/// Appends the record of a commit to `to`.
pub(super) fn encode(id: u64, revision: u64, writes: &[KvWrite], to: &mut Vec<u8>) {
    let at = to.len();
    to.extend([0; RECORD_HEADER]);
    to.extend((writes.len() as u32).to_le_bytes());
    for write in writes {
        let (kind, value) = match write {
            KvWrite::Put(_, value) => (PUT, Some(value)),
            KvWrite::Delete(_) => (DELETE, None),
        };
        to.push(kind);
        for bytes in [Some(&write.key().0), value].into_iter().flatten() {
            to.extend((bytes.len() as u32).to_le_bytes());
            to.extend(bytes);
        }
    }
    let contents = &to[at + RECORD_HEADER..];
    let (len, crc) = (contents.len() as u32, checksum(id, revision, contents));
    to[at..at + 4].copy_from_slice(&len.to_le_bytes());
    to[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
    to[at + 8..at + 16].copy_from_slice(&revision.to_le_bytes());
}

/// A record of another store, or at another place, is none.
fn checksum(id: u64, revision: u64, contents: &[u8]) -> u32 {
    append(append(crc32c(&id.to_le_bytes()), &revision.to_le_bytes()), contents)
}

/// Reads a log.
pub(super) fn read(bytes: &[u8]) -> Result<Contents, NoLog> {
    let header = Header::from_bytes(bytes)?;
    let mut rest = Fields(&bytes[HEADER..]);
    let (mut records, mut torn): (Vec<Record>, _) = (Vec::new(), rest.0.len());
    while let Some(record) = record(&mut rest, header.id) {
        let last = records.last().map_or(header.after, |r| r.revision);
        if Some(record.revision) != last.checked_add(1) {
            break;
        }
        records.push(record);
        torn = rest.0.len();
    }
    Ok(Contents { header, records, torn })
}

fn record(from: &mut Fields<'_>, id: u64) -> Option<Record> {
    let (len, crc, revision) = (from.u32()? as usize, from.u32()?, from.u64()?);
    if len > CONTENTS_MAX {
        return None;
    }
    let contents = from.take(len)?;
    if checksum(id, revision, contents) != crc {
        return None;
    }
    let mut fields = Fields(contents);
    let count = fields.u32()? as usize;
    let writes = (0..count.min(COMMIT_KEYS_MAX)).map(|_| fields.write()).collect::<Option<Vec<_>>>()?;
    (writes.len() == count && fields.0.is_empty()).then_some(Record { revision, writes })
}

/// Bytes that are read from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = self.u32()? as usize;
        self.take(len).map(<[u8]>::to_vec)
    }

    fn write(&mut self) -> Option<KvWrite> {
        match *self.take(1)? {
            [PUT] => Some(KvWrite::Put(KvKey(self.bytes()?), self.bytes()?)),
            [DELETE] => Some(KvWrite::Delete(KvKey(self.bytes()?))),
            _ => None,
        }
    }
}
