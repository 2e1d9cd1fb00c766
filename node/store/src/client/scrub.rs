//! Whether the copies of a file's blocks have the bytes of their checksums.
//!
//! ```text
//!   chunk of the map ─► each block ─► each copy is read ─ its checksums ─► next
//!                                          └ others ─► the chunk again ─ the same block ─► read again ─► a finding
//!                                                          └ another one: it is looked at anew
//! ```
//! Files may be written meanwhile. A block that is written over is unsettled before its first byte is, and one that is given up leaves the map: what has
//! other bytes while the map has the same block before and after the read is damaged. Each copy is read, not the nearest one only, by connections of
//! its own.

use super::error::ClientError;
use super::operators::Operator as _;
use super::options::OpenOptions;
use super::{Client, unexpected};
use crate::tier::BlockingNamespace;
use std::collections::BTreeMap;
use std::fmt;
use weir_store::file::BlockSeed;
use weir_store::protocol::{Answer, NamespaceInfo, NamespaceState, Request};
use weir_store::records::{BlockRecord, CHECKSUM_BYTES, MapChunk, blocks_per_chunk};
use weir_store::space::BLOCK_MAX;
use weir_store::{Content, Extent, Inode, InodeId, NamespaceId};
use weir_sys::crc::crc32c_append;

/// How often a block that changes is looked at before it counts as being written.
const LOOKS: u32 = 4;

/// What is wrong with a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyFault {
    /// Its bytes are not those of the checksums.
    Bytes,
    /// It cannot be read: why.
    Unreadable(String),
}

impl fmt::Display for CopyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyFault::Bytes => f.write_str("other bytes than were written"),
            CopyFault::Unreadable(why) => write!(f, "cannot be read: {why}"),
        }
    }
}

/// Bytes of a file of which a copy is bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFinding {
    /// The first one, counted from the beginning of the file.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// The namespace of the copy.
    pub namespace: NamespaceId,
    /// Where it is reached.
    pub target: String,
    /// What is wrong.
    pub fault: CopyFault,
}

/// What was found of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileScrub {
    /// Blocks that were looked at.
    pub blocks: u64,
    /// Bytes that were read, of all copies.
    pub bytes: u64,
    /// Blocks that were being written, or wait for their recovery: nothing can be said of them.
    pub unsettled: u64,
    /// Blocks with fewer copies than their file asks for.
    pub short: u64,
    /// Copies that are bad.
    pub findings: Vec<CopyFinding>,
    /// Copies that were bad, and were written anew from a good one.
    pub repaired: Vec<CopyFinding>,
}

/// Drives that copies are read of, as long as files are looked at.
#[derive(Debug, Default)]
pub struct ScrubDrives {
    open: BTreeMap<NamespaceId, BlockingNamespace>,
    /// Those that could not be opened, which are not waited for again.
    away: BTreeMap<NamespaceId, String>,
    known: BTreeMap<NamespaceId, NamespaceInfo>,
}

/// An open file that is looked at.
struct Scrubbed<'a> {
    client: &'a Client,
    handle: u64,
    id: InodeId,
    inode: Inode,
    watch: &'a mut dyn FnMut(u64),
    found: FileScrub,
}

impl Client {
    /// Reads each copy of each block of a file and compares it with its checksums. With `repairs` a bad copy is written anew from a good one, which opens
    /// the file to be written. `watch` is told how many bytes more were read. A file whose bytes lie in its inode has no blocks.
    ///
    /// # Errors
    /// Nothing has that path, it is no file, or the metadata service does not answer.
    pub fn scrub(
        &self,
        path: impl AsRef<[u8]>,
        repairs: bool,
        drives: &mut ScrubDrives,
        watch: &mut dyn FnMut(u64),
    ) -> Result<FileScrub, ClientError> {
        let path = path.as_ref();
        let found = self.scrub_once(path, drives, watch)?;
        if !repairs || found.findings.is_empty() || !self.write_anew(path, &found.findings)? {
            return Ok(found);
        }
        // What was repaired is what is not found any more.
        let again = self.scrub_once(path, drives, watch)?;
        let is_left = |one: &CopyFinding| again.findings.iter().any(|left| left.overlaps(one));
        let repaired = found.findings.into_iter().filter(|one| !is_left(one)).collect();
        Ok(FileScrub { bytes: found.bytes + again.bytes, repaired, ..again })
    }

    fn scrub_once(
        &self,
        path: &[u8],
        drives: &mut ScrubDrives,
        watch: &mut dyn FnMut(u64),
    ) -> Result<FileScrub, ClientError> {
        let open = Request::Open { at: self.stat(path)?.at, write: false };
        let Answer::Opened { handle, at, inode } = self.ask(open).map_err(|error| error.at(path))? else {
            return Err(unexpected());
        };
        let mut file =
            Scrubbed { client: self, handle, id: at.inode, inode: *inode, watch, found: FileScrub::default() };
        let looked = file.look(drives);
        let found = file.found;
        let closed = self.ask(Request::Close { handle });
        looked.and(closed).map(|_| found).map_err(|error| error.at(path))
    }

    /// Writes the bytes anew that a copy is bad of, all copies of them; whether anything was written.
    fn write_anew(&self, path: &[u8], findings: &[CopyFinding]) -> Result<bool, ClientError> {
        let file = self.open(path, OpenOptions::read_write())?;
        let mut is_written = false;
        for finding in findings.iter().filter(|one| one.fault == CopyFault::Bytes) {
            let end = finding.offset.saturating_add(finding.length).min(file.size());
            let mut at = finding.offset;
            while at < end {
                let mut bytes = vec![0; (end - at).min(CHECKSUM_BYTES.into()) as usize];
                // Where no copy is good the reader is refused, and what there is stays as it is.
                if file.read_at(at, &mut bytes).is_ok_and(|count| count == bytes.len()) {
                    file.write_at(at, &bytes)?;
                    is_written = true;
                }
                at += bytes.len() as u64;
            }
        }
        file.close()?;
        Ok(is_written)
    }
}

impl CopyFinding {
    fn overlaps(&self, other: &CopyFinding) -> bool {
        let is_before = |a: &CopyFinding, b: &CopyFinding| a.offset.saturating_add(a.length) <= b.offset;
        self.namespace == other.namespace && !is_before(self, other) && !is_before(other, self)
    }
}

impl Scrubbed<'_> {
    fn look(&mut self, drives: &mut ScrubDrives) -> Result<(), ClientError> {
        if !matches!(self.inode.content, Content::Mapped) || self.inode.size == 0 {
            return Ok(());
        }
        drives.know(self.client)?;
        let chunk_bytes = u64::from(self.inode.block) * u64::from(blocks_per_chunk(self.inode.block));
        if chunk_bytes == 0 {
            return Err(unexpected());
        }
        for number in 0..self.inode.size.div_ceil(chunk_bytes) {
            let number = u32::try_from(number).map_err(|_| unexpected())?;
            for record in self.chunk(number)?.blocks {
                self.block(number, record, drives)?;
            }
        }
        Ok(())
    }

    fn chunk(&self, number: u32) -> Result<MapChunk, ClientError> {
        match self.client.ask(Request::Map { handle: self.handle, chunk: number })? {
            Answer::Chunk { chunk, .. } => Ok(chunk),
            _ => Err(unexpected()),
        }
    }

    /// One block, until it is the same before and after it was read.
    fn block(&mut self, chunk: u32, first: BlockRecord, drives: &mut ScrubDrives) -> Result<(), ClientError> {
        self.found.blocks += 1;
        let (index, mut record) = (first.index, first);
        for _ in 0..LOOKS {
            if record.is_unsettled {
                break;
            }
            let mut findings = Vec::new();
            for copy in &record.copies {
                self.copy(chunk, &record, copy, drives, &mut findings);
            }
            let again = match findings.is_empty() {
                true => None,
                false => self.chunk(chunk)?.blocks.into_iter().find(|one| one.index == index),
            };
            match again {
                Some(again) if again != record => record = again,
                // It has gone from the map, as far as anything was found.
                None if !findings.is_empty() => return Ok(()),
                _ => {
                    self.found.short += u64::from(record.copies.len() < usize::from(self.inode.copies));
                    findings.into_iter().for_each(|finding| self.tell(finding));
                    return Ok(());
                }
            }
        }
        self.found.unsettled += 1;
        Ok(())
    }

    /// One copy: what is wrong with it goes to `findings`.
    fn copy(
        &mut self,
        chunk: u32,
        record: &BlockRecord,
        copy: &Extent,
        drives: &mut ScrubDrives,
        findings: &mut Vec<CopyFinding>,
    ) {
        let block = u64::from(chunk) * u64::from(blocks_per_chunk(self.inode.block)) + u64::from(record.index);
        let begin = block * u64::from(self.inode.block);
        let target = drives.target(copy.namespace);
        let mut find = |offset, length, fault| {
            let (namespace, target) = (copy.namespace, target.clone());
            findings.push(CopyFinding { offset, length, namespace, target, fault });
        };
        let mut bytes = vec![0; copy.length.get().min(BLOCK_MAX) as usize];
        if let Err(why) = drives.read(self.client, copy, &mut bytes) {
            return find(begin, bytes.len() as u64, CopyFault::Unreadable(why));
        }
        self.found.bytes += bytes.len() as u64;
        (self.watch)(bytes.len() as u64);
        let seed = BlockSeed { inode: self.id, block, generation: record.generation };
        let units = bytes.chunks(CHECKSUM_BYTES as usize).zip(0u32..).zip(&record.checksums);
        for ((unit, number), sum) in units {
            if seed.checksum(number, unit, crc32c_append) != *sum {
                find(begin + u64::from(number * CHECKSUM_BYTES), unit.len() as u64, CopyFault::Bytes);
            }
        }
    }

    /// Neighbours are one finding.
    fn tell(&mut self, finding: CopyFinding) {
        let is_next = |one: &&mut CopyFinding| {
            one.offset + one.length == finding.offset
                && (one.namespace, &one.fault) == (finding.namespace, &finding.fault)
        };
        match self.found.findings.iter_mut().rev().take(8).find(is_next) {
            Some(before) => before.length += finding.length,
            None => self.found.findings.push(finding),
        }
    }
}

impl ScrubDrives {
    fn know(&mut self, client: &Client) -> Result<(), ClientError> {
        self.known = client.namespaces()?.into_iter().map(|info| (info.namespace, info)).collect();
        Ok(())
    }

    fn target(&self, namespace: NamespaceId) -> String {
        self.known.get(&namespace).map_or_else(|| format!("namespace {namespace}"), |info| info.target.clone())
    }

    /// Reads a copy; why that cannot be done.
    fn read(&mut self, client: &Client, copy: &Extent, into: &mut [u8]) -> Result<(), String> {
        let Some(info) = self.known.get(&copy.namespace) else { return Err("the store has no such namespace".into()) };
        if info.state == NamespaceState::Lost {
            return Err("the namespace is lost".into());
        }
        if let Some(why) = self.away.get(&copy.namespace) {
            return Err(why.clone());
        }
        let mut drive = match self.open.remove(&copy.namespace) {
            Some(drive) => drive,
            None => {
                let options = client.shared.lock().tier_options(info);
                BlockingNamespace::open(&info.target, options).map_err(|e| self.leave(copy.namespace, &e))?
            }
        };
        // One that fails a read is opened again for the next one.
        drive.read(copy.offset.get(), into).map_err(|e| e.to_string())?;
        self.open.insert(copy.namespace, drive);
        Ok(())
    }

    fn leave(&mut self, namespace: NamespaceId, error: &impl fmt::Display) -> String {
        let why = error.to_string();
        self.away.insert(namespace, why.clone());
        why
    }
}
