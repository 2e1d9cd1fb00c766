//! A drive in memory: a sparse arena with a bitmap of the pages that hold data.
//!
//! A page whose bit is 0 reads as zeroes, whatever its memory holds, and reading it takes no memory. A bit is set after the
//! page's bytes are there and cleared before its memory goes, so a crash at any point leaves old bytes, new bytes or zeroes.
//! Memory comes at the first write, in pieces of extents: a shortage is a status there and never a signal later.

use super::memory::{self, Budget};
use super::null::put_zeroes;
use super::{MediaError, bits};
use crate::arena::{Arena, ArenaError, HEADER, HUGE, Pages, Schema};
use std::ops::Range;
use weir_spec::nvme::Status;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The arena's schema.
pub const SCHEMA: Schema = Schema { name: "ram-media", version: 1 };
/// Bytes that one bit stands for.
const PAGE: usize = 4096;
/// Bytes whose memory is made present at once: the least extent. It takes 40 us.
const PIECE: usize = 64 << 10;
/// Bytes that are allocated before they are written at the most: a drive of terabytes may be meant to stay mostly empty.
const ALLOCATED_MAX: u64 = 16 << 20;
/// Cache lines that `prefetch` asks for; the processor's own prefetchers see the rest coming. Measured on copies of 4 KiB from
/// and to random pages: reads gain the same from 2 to 16 and lose beyond, writes gain up to 32.
const PREFETCH_LINES: usize = 16;

/// The start of the payload; see docs/reference/formats.md. Offsets count from the start of the payload.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct RamHeader {
    pub(super) capacity: U64,
    pub(super) page: U32,
    pub(super) extent: U32,
    pub(super) written_at: U64,
    pub(super) taken_at: U64,
    pub(super) data_at: U64,
}

impl RamHeader {
    fn new(capacity: u64, extent: u32) -> Self {
        let written_at = 64;
        let taken_at = written_at + bits::bytes_for(capacity.div_ceil(PAGE as u64));
        let end = taken_at + bits::bytes_for(capacity.div_ceil(u64::from(extent)));
        // On a huge page's boundary of the file, so that an extent can be one.
        let data_at = (end + HEADER as u64).next_multiple_of(HUGE as u64) - HEADER as u64;
        Self {
            capacity: capacity.into(),
            page: (PAGE as u32).into(),
            extent: extent.into(),
            written_at: written_at.into(),
            taken_at: taken_at.into(),
            data_at: data_at.into(),
        }
    }

    fn payload(&self) -> u64 {
        self.data_at.get() + self.capacity.get().next_multiple_of(self.extent.get().into())
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Ram {
    arena: Arena,
    capacity: u64,
    extent: usize,
    written: Range<usize>,
    taken: Range<usize>,
    data: usize,
    budget: Budget,
    /// Pieces whose memory is there and mapped, as far as this process knows.
    present: Vec<u8>,
    /// Extents whose memory may have become free; not part of the arena, a reopened drive looks at all of them.
    suspects: Vec<u8>,
    cursor: usize,
}

impl Ram {
    /// A new, empty drive. One that fits into half of the memory available takes it in huge pages; a larger one, which can
    /// only be meant to stay mostly empty, in pieces of 64 KiB.
    ///
    /// # Errors
    /// No memory for its bitmaps.
    pub fn create(name: &str, capacity: u64) -> Result<Self, MediaError> {
        Self::create_with(name, capacity, if memory::fits(capacity) { HUGE } else { PIECE } as u32)
    }

    pub(super) fn create_with(name: &str, capacity: u64, extent: u32) -> Result<Self, MediaError> {
        if capacity == 0 || capacity > 1 << 45 {
            return Err(ArenaError::TooLarge(capacity).into());
        }
        let layout = RamHeader::new(capacity, extent);
        let pages = if extent as usize == HUGE { Pages::Huge } else { Pages::Small };
        let mut arena = Arena::create(&format!("weir-ram-{name}"), SCHEMA, layout.payload(), pages)?;
        arena.reserve(0..(layout.taken_at.get() + bits::bytes_for(capacity.div_ceil(extent.into()))) as usize)?;
        arena.payload_mut()[..size_of::<RamHeader>()].copy_from_slice(layout.as_bytes());
        Self::open(arena)
    }

    /// A drive in an arena that exists.
    ///
    /// # Errors
    /// The arena holds a layout that this program does not make.
    pub fn open(arena: Arena) -> Result<Self, MediaError> {
        let (layout, _) = RamHeader::read_from_prefix(arena.payload()).map_err(|_| ArenaError::Damaged)?;
        let (capacity, extent) = (layout.capacity.get(), layout.extent.get());
        let known = capacity > 0 && capacity <= 1 << 45 && matches!(extent as usize, HUGE | PIECE);
        if !known || layout != RamHeader::new(capacity, extent) || (arena.payload().len() as u64) < layout.payload() {
            return Err(ArenaError::Damaged.into());
        }
        let extents = capacity.div_ceil(extent.into());
        let map = |at: U64, bits: u64| at.get() as usize..(at.get() + bits::bytes_for(bits)) as usize;
        let mut suspects = vec![0; bits::bytes_for(extents) as usize];
        bits::fill(&mut suspects, 0..extents as usize, true);
        let ram = Self {
            capacity,
            extent: extent as usize,
            written: map(layout.written_at, capacity.div_ceil(PAGE as u64)),
            taken: map(layout.taken_at, extents),
            data: layout.data_at.get() as usize,
            budget: Budget::default(),
            present: vec![0; bits::bytes_for(capacity.div_ceil(PIECE as u64)) as usize],
            suspects,
            cursor: 0,
            arena,
        };
        ram.want_what_is_there();
        Ok(ram)
    }

    /// Whoever had the drive may have ended before all of its memory was in huge pages, and small ones are what the end of a process takes long for.
    fn want_what_is_there(&self) {
        let (map, extents) = (&self.arena.payload()[self.taken.clone()], self.capacity.div_ceil(self.extent as u64));
        let mut from = 0;
        while let Some(start) = bits::first_set(map, from, extents as usize).filter(|_| self.extent == HUGE) {
            from = bits::run(map, start..extents as usize);
            self.arena.want_huge(self.data + start * HUGE..self.data + from * HUGE);
        }
    }

    /// The size of the medium in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The memory region, to be handed to a successor.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Bytes of memory that its extents take.
    pub fn resident(&self) -> u64 {
        let map = &self.arena.payload()[self.taken.clone()];
        map.iter().map(|b| u64::from(b.count_ones())).sum::<u64>() * self.extent as u64
    }

    #[inline]
    fn written(&self) -> &[u8] {
        &self.arena.payload()[self.written.clone()]
    }

    #[inline]
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.arena.payload()[self.data + range.start..self.data + range.end]
    }

    #[inline]
    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        let data = self.data;
        &mut self.arena.payload_mut()[data + range.start..data + range.end]
    }

    fn pages(range: &Range<usize>) -> Range<usize> {
        range.start / PAGE..range.end.div_ceil(PAGE)
    }

    /// See [`Store::read`](super::Store::read).
    #[inline]
    pub fn read(
        &self,
        offset: u64,
        len: u32,
        mut put: impl FnMut(u32, &[u8]) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let range = super::range(self.capacity, offset, len)?;
        let mut at = range.start;
        while at < range.end {
            let pages = at / PAGE..range.end.div_ceil(PAGE);
            let map = self.written();
            let until = if pages.len() == 1 { range.end } else { range.end.min(bits::run(map, pages.clone()) * PAGE) };
            let from_start = (at - range.start) as u32;
            if bits::get(map, pages.start) {
                put(from_start, self.bytes(at..until))?;
            } else {
                put_zeroes(from_start, (until - at) as u32, &mut put)?;
            }
            at = until;
        }
        Ok(())
    }

    /// See [`Store::write`](super::Store::write). `get` is called once, for the whole range.
    #[inline]
    pub fn write(
        &mut self,
        offset: u64,
        len: u32,
        mut get: impl FnMut(u32, &mut [u8]) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let range = super::range(self.capacity, offset, len)?;
        if range.is_empty() {
            return Ok(());
        }
        let pages = Self::pages(&range);
        let map = self.written();
        let known = bits::get(map, pages.start) && (pages.len() == 1 || bits::run(map, pages.clone()) == pages.end);
        if known {
            return get(0, self.bytes_mut(range));
        }
        self.prepare(&range)?;
        get(0, self.bytes_mut(range))?;
        let written = self.written.clone();
        bits::fill(&mut self.arena.payload_mut()[written], pages, true);
        Ok(())
    }

    /// Before a first write: memory, and zeroes in what the write leaves of its first and last page.
    #[cold]
    fn prepare(&mut self, range: &Range<usize>) -> Result<(), Status> {
        for piece in range.start / PIECE..range.end.div_ceil(PIECE) {
            if !bits::get(&self.present, piece) {
                self.take(piece).map_err(|_| Status::CAPACITY_EXCEEDED)?;
            }
        }
        let pages = Self::pages(range);
        for (page, rest) in
            [(pages.start, pages.start * PAGE..range.start), (pages.end - 1, range.end..pages.end * PAGE)]
        {
            if !rest.is_empty() && !bits::get(self.written(), page) {
                self.bytes_mut(rest).fill(0);
            }
        }
        Ok(())
    }

    /// The memory of a piece: of its extent no more at once, which would take a millisecond; the rest of it comes as a huge page, in a
    /// while and beside this thread.
    fn take(&mut self, piece: usize) -> Result<(), ArenaError> {
        let (extent, at) = (piece * PIECE / self.extent, self.data + piece * PIECE);
        let taken = self.taken.clone();
        let new = !bits::get(&self.arena.payload()[taken.clone()], extent);
        if new && !self.budget.take(self.extent as u64) {
            return Err(ArenaError::Full);
        }
        self.arena.reserve(at..at + PIECE)?;
        if new {
            bits::set(&mut self.arena.payload_mut()[taken], extent, true);
        }
        bits::set(&mut self.present, piece, true);
        if self.extent == HUGE {
            let at = self.data + extent * self.extent;
            self.arena.want_huge(at..at + self.extent);
        }
        Ok(())
    }

    /// See [`Store::allocate`](super::Store::allocate).
    pub fn allocate(&mut self, bytes: u64) -> Result<(), Status> {
        let pages = bytes.min(self.capacity).min(ALLOCATED_MAX).div_ceil(PAGE as u64) as usize;
        for page in 0..pages {
            if !bits::get(self.written(), page) {
                let at = (page * PAGE) as u64;
                self.write(at, (self.capacity - at).min(PAGE as u64) as u32, |_, bytes| {
                    bytes.fill(0);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// See [`Store::zero`](super::Store::zero).
    pub fn zero(&mut self, offset: u64, len: u32) -> Result<(), Status> {
        let range = super::range(self.capacity, offset, len)?;
        let whole = range.start.div_ceil(PAGE)..if range.end as u64 == self.capacity {
            range.end.div_ceil(PAGE)
        } else {
            range.end / PAGE
        };
        let edges = if whole.start < whole.end {
            [range.start..whole.start * PAGE, (whole.end * PAGE).min(range.end)..range.end]
        } else {
            let middle = (range.start.next_multiple_of(PAGE)).min(range.end);
            [range.start..middle, middle..range.end]
        };
        for edge in edges {
            if !edge.is_empty() && bits::get(self.written(), edge.start / PAGE) {
                self.bytes_mut(edge).fill(0);
            }
        }
        if whole.start < whole.end {
            let written = self.written.clone();
            bits::fill(&mut self.arena.payload_mut()[written], whole.clone(), false);
            let per = self.extent / PAGE;
            bits::fill(&mut self.suspects, whole.start / per..whole.end.div_ceil(per), true);
            self.cursor = self.cursor.min(whole.start / per);
        }
        Ok(())
    }

    /// See [`Store::background`](super::Store::background).
    pub fn background(&mut self) -> bool {
        let per = self.extent / PAGE;
        let (pages, extents) =
            (self.capacity.div_ceil(PAGE as u64) as usize, self.capacity.div_ceil(self.extent as u64) as usize);
        // Most suspects are found to be innocent in a few loads; one that is not takes a system call.
        for _ in 0..64 {
            let Some(extent) = bits::first_set(&self.suspects, self.cursor, extents) else {
                self.cursor = extents;
                return false;
            };
            bits::set(&mut self.suspects, extent, false);
            self.cursor = extent + 1;
            let empty = bits::none(self.written(), extent * per..((extent + 1) * per).min(pages));
            if empty && bits::get(&self.arena.payload()[self.taken.clone()], extent) {
                self.give_back(extent);
                break;
            }
        }
        true
    }

    fn give_back(&mut self, extent: usize) {
        let taken = self.taken.clone();
        bits::set(&mut self.arena.payload_mut()[taken.clone()], extent, false);
        let (per, pieces) = (self.extent / PIECE, self.capacity.div_ceil(PIECE as u64) as usize);
        bits::fill(&mut self.present, extent * per..((extent + 1) * per).min(pieces), false);
        let at = self.data + extent * self.extent;
        if let Err(e) = self.arena.release(at..at + self.extent) {
            // It stays ours: no harm but the memory.
            bits::set(&mut self.arena.payload_mut()[taken], extent, true);
            tracing::warn!("cannot give memory back: {e}");
        }
    }

    /// See [`Store::may_have_data`](super::Store::may_have_data).
    pub fn may_have_data(&self, offset: u64, len: u32) -> bool {
        match super::range(self.capacity, offset, len) {
            Ok(range) => !range.is_empty() && !bits::none(self.written(), Self::pages(&range)),
            Err(_) => true,
        }
    }

    /// See [`Store::prefetch`](super::Store::prefetch).
    #[inline]
    pub fn prefetch(&self, offset: u64, len: u32) {
        #[cfg(target_arch = "x86_64")]
        if let Ok(range) = super::range(self.capacity, offset, len) {
            if len > 0 && bits::get(self.written(), range.start / PAGE) {
                for line in self.bytes(range).chunks(64).take(PREFETCH_LINES) {
                    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                    // SAFETY: a prefetch changes nothing and cannot fault.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (offset, len);
    }
}
