//! What a chain asks for (Virtio 1.2, 5.2.6).

use super::chain::{Chain, GuestSegment, Violation};
use super::disk::Disk;
use crate::memory::Memory;
use core::ops::Range;
use weir_spec::virtio_blk::{RangeSegment, RequestHeader, RequestStatus, RequestType, SECTOR, feature};
use zerocopy::FromBytes;

/// What the drive is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Drive to guest.
    Read,
    /// Guest to drive.
    Write,
    /// Make durable.
    Flush,
    /// Deallocate.
    Discard,
    /// Zero.
    WriteZeroes {
        /// And deallocate where possible.
        unmap: bool,
    },
}

/// A command's place in a device's tables: queue, head and, where a request became several commands, which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestTag(pub u32);

impl RequestTag {
    const PART_BITS: u32 = 14;
    const HEAD_BITS: u32 = 12;
    /// Most commands that one request may become.
    pub const MAX_PARTS: u32 = 1 << Self::PART_BITS;

    pub(super) const fn new(queue: u16, part: u32, head: u16) -> Self {
        RequestTag((queue as u32) << (Self::PART_BITS + Self::HEAD_BITS) | part << Self::HEAD_BITS | head as u32)
    }
    /// Which queue.
    pub const fn queue(self) -> u16 {
        (self.0 >> (Self::PART_BITS + Self::HEAD_BITS)) as u16
    }
    pub(super) const fn part(self) -> u32 {
        self.0 >> Self::HEAD_BITS & (Self::MAX_PARTS - 1)
    }
    /// The head of its request's chain.
    pub const fn head(self) -> u16 {
        (self.0 & ((1 << Self::HEAD_BITS) - 1)) as u16
    }
}

/// What a chain turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// Work for the drive, at byte `offset`; its data are the chain's segments in `data`.
    Io { op: Op, offset: u64, len: u64, data: Range<usize> },
    /// Bytes of [`Disk::serial`] for the segments in `data`.
    Id { data: Range<usize> },
    /// Finished already.
    Answer(RequestStatus),
}

/// Where the status byte is and how many bytes count as written once it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) status_at: u64,
    pub(super) written: u32,
}

/// Takes header and status off a chain, however they are split over descriptors, and reads the header.
#[inline]
pub(super) fn parse<M: Memory>(
    memory: &M,
    chain: &mut Chain,
    disk: &Disk,
    features: u64,
) -> Result<(Footer, Parsed), Violation> {
    let footer = take_status(chain)?;
    let (header, first) = take_header(memory, chain)?;
    let Some(header) = header else {
        return Ok((footer, Parsed::Answer(RequestStatus::IOERR)));
    };
    let out = first..chain.readable;
    let into = chain.readable..chain.total;
    let parsed = match header.kind() {
        RequestType::IN => io(Op::Read, &header, chain, into, disk),
        RequestType::OUT if disk.read_only => Parsed::Answer(RequestStatus::IOERR),
        RequestType::OUT => io(Op::Write, &header, chain, out, disk),
        RequestType::FLUSH if header.sector.get() != 0 => Parsed::Answer(RequestStatus::UNSUPP),
        RequestType::FLUSH => Parsed::Io { op: Op::Flush, offset: 0, len: 0, data: 0..0 },
        RequestType::GET_ID => Parsed::Id { data: into },
        kind @ (RequestType::DISCARD | RequestType::WRITE_ZEROES) => range(memory, kind, chain, out, disk, features),
        _ => Parsed::Answer(RequestStatus::UNSUPP),
    };
    Ok((footer, parsed))
}

/// The status is the last byte that the device may write.
#[inline]
fn take_status(chain: &mut Chain) -> Result<Footer, Violation> {
    if chain.readable == chain.total {
        return Err(Violation::NoStatus);
    }
    let written = chain.segments[chain.readable..chain.total].iter().map(|s| u64::from(s.len)).sum::<u64>();
    let last = &mut chain.segments[chain.total - 1];
    last.len -= 1;
    let status_at = last.address + u64::from(last.len);
    if last.len == 0 {
        chain.total -= 1;
    }
    Ok(Footer { status_at, written: u32::try_from(written).unwrap_or(u32::MAX) })
}

/// The header is the first 16 bytes that the device may read; `None` where they are in no memory. Also returns the first
/// segment that is left.
#[inline]
fn take_header<M: Memory>(memory: &M, chain: &mut Chain) -> Result<(Option<RequestHeader>, usize), Violation> {
    const SIZE: usize = size_of::<RequestHeader>();
    if let Some(first) = chain.segments[..chain.readable].first_mut() {
        if first.len as usize >= SIZE {
            let bytes = memory.read_entry(first.address).ok();
            first.address += SIZE as u64;
            first.len -= SIZE as u32;
            let rest = usize::from(first.len == 0);
            return Ok((bytes.and_then(|b| RequestHeader::read_from_bytes(&b).ok()), rest));
        }
    }
    let mut bytes = [0; SIZE];
    let (mut have, mut known) = (0, true);
    for (i, s) in chain.segments[..chain.readable].iter_mut().enumerate() {
        let n = (s.len as usize).min(SIZE - have);
        known &= memory.read(s.address, &mut bytes[have..have + n]).is_ok();
        have += n;
        s.address += n as u64;
        s.len -= n as u32;
        if have == SIZE {
            let header = if known { RequestHeader::read_from_bytes(&bytes).ok() } else { None };
            return Ok((header, i + usize::from(s.len == 0)));
        }
    }
    Err(Violation::NoHeader)
}

#[inline]
fn io(op: Op, header: &RequestHeader, chain: &Chain, data: Range<usize>, disk: &Disk) -> Parsed {
    let len = total(&chain.segments[data.clone()]);
    let sector = header.sector.get();
    if len == 0 || !disk.holds(sector, len) || len > u64::from(disk.max_transfer) * u64::from(RequestTag::MAX_PARTS) {
        return Parsed::Answer(RequestStatus::IOERR);
    }
    Parsed::Io { op, offset: sector * SECTOR, len, data }
}

#[inline]
fn total(segments: &[GuestSegment]) -> u64 {
    segments.iter().map(|s| u64::from(s.len)).sum()
}

/// DISCARD and WRITE_ZEROES: exactly one segment.
fn range<M: Memory>(
    memory: &M,
    kind: RequestType,
    chain: &Chain,
    data: Range<usize>,
    disk: &Disk,
    features: u64,
) -> Parsed {
    let discard = kind == RequestType::DISCARD;
    let needed = if discard { feature::DISCARD } else { feature::WRITE_ZEROES };
    let segments = &chain.segments[data];
    if features & needed == 0 || total(segments) != size_of::<RangeSegment>() as u64 {
        return Parsed::Answer(if disk.read_only { RequestStatus::IOERR } else { RequestStatus::UNSUPP });
    }
    let mut bytes = [0; size_of::<RangeSegment>()];
    let mut have = 0;
    for s in segments {
        let n = s.len as usize;
        if memory.read(s.address, &mut bytes[have..have + n]).is_err() {
            return Parsed::Answer(RequestStatus::IOERR);
        }
        have += n;
    }
    let Ok(r) = RangeSegment::read_from_bytes(&bytes) else {
        return Parsed::Answer(RequestStatus::IOERR);
    };
    let unmap = r.flags.get() & RangeSegment::UNMAP != 0;
    // UNMAP has no meaning in DISCARD (5.2.6.2); no other flag exists.
    if r.flags.get() & !RangeSegment::UNMAP != 0 || discard && unmap {
        return Parsed::Answer(RequestStatus::UNSUPP);
    }
    let most = if discard { disk.max_discard_sectors } else { disk.max_write_zeroes_sectors };
    let (sector, len) = (r.sector.get(), u64::from(r.num_sectors.get()) * SECTOR);
    if r.num_sectors.get() > most || !disk.holds(sector, len) {
        return Parsed::Answer(RequestStatus::IOERR);
    }
    if len == 0 {
        return Parsed::Answer(RequestStatus::OK);
    }
    let op = if discard { Op::Discard } else { Op::WriteZeroes { unmap } };
    Parsed::Io { op, offset: sector * SECTOR, len, data: 0..0 }
}
