//! Where a command's bytes are in host memory: physical region pages (base 2.0, 4.1.1) and scatter gather lists (4.1.2).
//!
//! ```text
//!  DataPointer, offset, len ──▶ Walk ──next(read)──▶ DataPiece, DataPiece, ... of exactly `len` bytes, or the status that the standard has
//! ```
//! A [`Walk`] reads each entry of a list once and uses what it has read, so a host that changes a list meanwhile sends its own
//! bytes astray and nobody else's: whoever copies checks every address that comes out. A walk ends: each list page of PRPs
//! leads on by an entry at least, and no more than [`DESCRIPTORS_MAX`] descriptors are read for one command.

use crate::host::{Data, DataPointer};
use weir_spec::nvme::Status;
use weir_spec::nvme::entry::SglDescriptor;

/// SGL descriptors that are read for one command at the most; more are Invalid Number of SGL Descriptors. Linux sends at most
/// 128 in a segment, SPDK 253.
pub const DESCRIPTORS_MAX: u32 = 4096;

/// Which way a command's bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Host → drive. Bit buckets have no bytes.
    FromHost,
    /// Drive → host. Bit buckets swallow theirs.
    ToHost,
}

/// A part of a command's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPiece {
    /// It is in host memory.
    Memory {
        /// Where; anything that the host may have written.
        address: u64,
        /// Its length in bytes, at least 1.
        len: u32,
    },
    /// The host does not want it.
    Bucket {
        /// How many bytes of the data go nowhere, at least 1.
        len: u32,
    },
}

/// Words that are read of a list at a time.
const BATCH: usize = 32;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing but what is in `ahead`.
    Nothing,
    /// The only page behind the first one.
    Page(u64),
    /// PRP entries from here on.
    List(u64),
    /// The descriptor in the command.
    Inline([u64; 2]),
    /// Descriptors from here on.
    Segment { at: u64, last: bool },
    /// The pointer is wrong, or of a kind that is not walked.
    Refused(Status),
}

/// A walk over some bytes of a command's data. See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    next: Next,
    /// Bytes that are still to be found.
    left: u32,
    /// Bytes to pass over first: inside the next page, or of the descriptors that follow.
    skip: u64,
    /// Entries or descriptors behind `next`, of the list or of the segment.
    entries: u64,
    /// PRP entries to pass over.
    pass: u64,
    /// A piece that was found and may grow.
    ahead: Option<DataPiece>,
    page_shift: u8,
    direction: Direction,
    /// Descriptors that were read.
    read: u32,
    /// What was read of the list and not used.
    batch: [u64; BATCH],
    at: u8,
    have: u8,
}

const MISPLACED: Status = Status::PRP_OFFSET_INVALID.dnr();
const BAD_SEGMENT: Status = Status::INVALID_SGL_SEGMENT.dnr();

impl Walk {
    /// Over bytes `offset..offset + len` of a command's data.
    #[inline]
    pub fn new(data: &DataPointer, direction: Direction, offset: u32, len: u32) -> Self {
        let page_shift = data.page_shift();
        let mut walk = Walk {
            next: Next::Nothing,
            left: len,
            skip: 0,
            entries: 0,
            pass: 0,
            ahead: None,
            page_shift,
            direction,
            read: 0,
            batch: [0; BATCH],
            at: 0,
            have: 0,
        };
        match data.get() {
            Data::Prp { prp1, prp2 } => walk.begin_prp(prp1, prp2, offset.into(), data.len()),
            Data::Sgl(sgl)
                if sgl.kind == SglDescriptor::DATA_BLOCK && sgl.length.get() >= offset.saturating_add(len) =>
            {
                walk.found(sgl.address.get().wrapping_add(offset.into()), len);
            }
            Data::Sgl(sgl) => {
                (walk.next, walk.skip) = (Next::Inline(sgl.words()), offset.into());
            }
            Data::Tag(_) | Data::Media(_) | Data::Pattern(_) => walk.next = Next::Refused(Status::INTERNAL_ERROR),
        }
        walk
    }

    /// The next piece; `None` after the last one. `read` copies host memory, or says why it cannot.
    ///
    /// # Errors
    /// The data pointer or one of its lists is wrong, in the standard's status, or what `read` said. What came before is valid.
    #[inline]
    pub fn next(
        &mut self,
        read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), Status>,
    ) -> Result<Option<DataPiece>, Status> {
        if self.left == 0 && !matches!(self.next, Next::Refused(_)) {
            return Ok(self.ahead.take());
        }
        self.search(read)
    }

    /// A piece was found, after which so many bytes fewer are to be found.
    #[inline]
    fn found(&mut self, address: u64, len: u32) {
        self.left -= len;
        self.ahead = Some(DataPiece::Memory { address, len });
    }

    fn page(&self) -> u64 {
        1 << self.page_shift
    }

    #[inline]
    fn begin_prp(&mut self, prp1: u64, prp2: u64, offset: u64, total: u32) {
        if prp1 & 3 != 0 {
            self.next = Next::Refused(MISPLACED);
            return;
        }
        let (page, total) = (self.page(), u64::from(total).max(offset + u64::from(self.left)));
        let first = page - (prp1 & (page - 1));
        if offset < first && self.left > 0 {
            self.found(prp1.wrapping_add(offset), u64::from(self.left).min(first - offset) as u32);
        }
        if self.left == 0 {
            return;
        }
        let behind = offset.max(first) - first;
        let pages = (total - first).div_ceil(page);
        self.skip = behind & (page - 1);
        if pages == 1 {
            self.next = if prp2 & (page - 1) == 0 { Next::Page(prp2) } else { Next::Refused(MISPLACED) };
        } else {
            (self.entries, self.pass) = (pages, behind >> self.page_shift);
            self.next = if prp2 & 7 == 0 { Next::List(prp2) } else { Next::Refused(MISPLACED) };
        }
    }

    /// The next piece of a walk that is longer than one.
    fn search(
        &mut self,
        read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), Status>,
    ) -> Result<Option<DataPiece>, Status> {
        while self.left > 0 {
            let piece = match self.next {
                Next::Refused(status) => return Err(status),
                Next::Page(page) => Some(self.cut(page)),
                Next::List(_) => Some(self.list_entry(read)?),
                Next::Inline(words) => {
                    self.next = Next::Nothing;
                    self.descriptor(SglDescriptor::from_words(words), false)?
                }
                Next::Segment { at, last } => self.segment_entry(at, last, read)?,
                Next::Nothing => return Err(Status::DATA_SGL_LENGTH_INVALID.dnr()),
            };
            let Some(piece) = piece else { continue };
            self.left -= piece.len();
            match self.ahead.map(|ahead| (ahead, ahead.joined(piece))) {
                None => self.ahead = Some(piece),
                Some((_, Some(both))) => self.ahead = Some(both),
                Some((ahead, None)) => {
                    self.ahead = Some(piece);
                    return Ok(Some(ahead));
                }
            }
        }
        Ok(self.ahead.take())
    }

    /// What is wanted of a page.
    fn cut(&mut self, page: u64) -> DataPiece {
        let skip = core::mem::take(&mut self.skip);
        let len = u64::from(self.left).min(self.page() - skip) as u32;
        DataPiece::Memory { address: page + skip, len }
    }

    /// The next entry of a PRP list. Its last slot in a page leads on, but only if more than one entry is still to come.
    fn list_entry(&mut self, read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), Status>) -> Result<DataPiece, Status> {
        let page = self.page();
        while self.at == self.have {
            let Next::List(at) = self.next else { return Err(Status::INTERNAL_ERROR) };
            let slots = (page - (at & (page - 1))) / 8;
            let usable = if self.entries > slots { slots - 1 } else { self.entries };
            if self.pass >= usable && self.entries > usable {
                let mut word = [0; 8];
                read(at.wrapping_add(usable * 8), &mut word)?;
                let list = u64::from_le_bytes(word);
                if list & (page - 1) != 0 {
                    return Err(MISPLACED);
                }
                (self.entries, self.pass, self.next) = (self.entries - usable, self.pass - usable, Next::List(list));
                continue;
            }
            let at = at.wrapping_add(self.pass * 8);
            let wanted = (self.skip + u64::from(self.left)).div_ceil(page);
            let n = wanted.min(usable - self.pass).min(BATCH as u64);
            self.fetch(at, n as usize, read)?;
            self.entries -= self.pass + n;
            (self.pass, self.next) = (0, Next::List(at.wrapping_add(n * 8)));
        }
        let entry = self.batch[usize::from(self.at)];
        self.at += 1;
        if entry & (page - 1) != 0 {
            return Err(MISPLACED);
        }
        Ok(self.cut(entry))
    }

    /// Reads the next words of a list.
    fn fetch(
        &mut self,
        at: u64,
        words: usize,
        read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let mut bytes = [0; BATCH * 8];
        read(at, &mut bytes[..words * 8])?;
        for (word, bytes) in self.batch.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        (self.at, self.have) = (0, words as u8);
        Ok(())
    }

    /// The next descriptor of a segment.
    fn segment_entry(
        &mut self,
        at: u64,
        last: bool,
        read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), Status>,
    ) -> Result<Option<DataPiece>, Status> {
        if self.at == self.have {
            if self.entries == 0 {
                // The segment before the last one ends without leading on.
                return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
            }
            let n = self.entries.min(BATCH as u64 / 2);
            self.fetch(at, n as usize * 2, read)?;
            self.entries -= n;
            self.next = Next::Segment { at: at.checked_add(n * 16).ok_or(BAD_SEGMENT)?, last };
        }
        self.read += 1;
        if self.read > DESCRIPTORS_MAX {
            return Err(Status::INVALID_SGL_COUNT.dnr());
        }
        let i = usize::from(self.at);
        self.at += 2;
        let descriptor = SglDescriptor::from_words([self.batch[i], self.batch[i + 1]]);
        let ends = self.at == self.have && self.entries == 0;
        if descriptor.leads_on() && !ends {
            return Err(Status::INVALID_SGL_COUNT.dnr());
        }
        self.descriptor(descriptor, last)
    }

    /// What a descriptor says: a piece, or where the next ones are. `last`: it lies in the last segment.
    fn descriptor(&mut self, descriptor: SglDescriptor, last: bool) -> Result<Option<DataPiece>, Status> {
        check_descriptor(&descriptor)?;
        let (address, len) = (descriptor.address.get(), descriptor.length.get());
        if descriptor.leads_on() {
            if last {
                return Err(BAD_SEGMENT);
            }
            let last = descriptor.kind == SglDescriptor::LAST_SEGMENT;
            (self.at, self.have, self.entries) = (0, 0, u64::from(len / 16));
            self.next = Next::Segment { at: address, last };
            return Ok(None);
        }
        let bucket = descriptor.kind == SglDescriptor::BIT_BUCKET;
        if bucket && self.direction == Direction::FromHost {
            return Ok(None);
        }
        let skip = self.skip.min(len.into());
        self.skip -= skip;
        let len = (len - skip as u32).min(self.left);
        Ok(match bucket {
            _ if len == 0 => None,
            true => Some(DataPiece::Bucket { len }),
            false => Some(DataPiece::Memory { address: address.wrapping_add(skip), len }),
        })
    }
}

impl DataPiece {
    /// Its length in bytes.
    #[inline]
    pub const fn len(self) -> u32 {
        match self {
            DataPiece::Memory { len, .. } | DataPiece::Bucket { len } => len,
        }
    }

    /// Whether there is nothing in it; a walk has no such pieces.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Both as one, if the other one follows in memory.
    fn joined(self, other: DataPiece) -> Option<DataPiece> {
        match (self, other) {
            (DataPiece::Memory { address, len }, DataPiece::Memory { address: next, len: more })
                if address.wrapping_add(len.into()) == next =>
            {
                Some(DataPiece::Memory { address, len: len.checked_add(more)? })
            }
            _ => None,
        }
    }
}

/// Whether a descriptor is of a type that is taken over PCIe, and well-formed (base 2.0, 4.1.2.1): data block, bit bucket,
/// segment and last segment, all by address. The offset subtype is reserved there, keyed and transport blocks belong to fabrics.
pub(crate) fn check_descriptor(descriptor: &SglDescriptor) -> Result<(), Status> {
    match descriptor.kind {
        SglDescriptor::DATA_BLOCK | SglDescriptor::BIT_BUCKET => Ok(()),
        SglDescriptor::SEGMENT | SglDescriptor::LAST_SEGMENT => {
            let (address, len) = (descriptor.address.get(), descriptor.length.get());
            if len == 0 || len % 16 != 0 || address % 8 != 0 { Err(BAD_SEGMENT) } else { Ok(()) }
        }
        _ => Err(Status::SGL_TYPE_INVALID.dnr()),
    }
}

/// Whether a data pointer can carry `len` bytes, as far as the command itself says it (base 2.0, 4.1.1 and 4.1.2); lists are
/// checked when they are walked.
#[inline]
pub(crate) fn check_pointer(data: &DataPointer, len: u64) -> Result<(), Status> {
    match data.get() {
        Data::Tag(_) | Data::Media(_) | Data::Pattern(_) => Ok(()),
        Data::Prp { prp1, .. } if prp1 & 3 != 0 => Err(MISPLACED),
        Data::Prp { .. } => Ok(()),
        Data::Sgl(sgl) if sgl.kind == SglDescriptor::DATA_BLOCK && u64::from(sgl.length.get()) >= len => Ok(()),
        Data::Sgl(sgl) if sgl.kind == SglDescriptor::DATA_BLOCK => Err(Status::DATA_SGL_LENGTH_INVALID.dnr()),
        Data::Sgl(sgl) => check_descriptor(&sgl),
    }
}

#[cfg(test)]
#[path = "pointer_tests.rs"]
mod tests;
