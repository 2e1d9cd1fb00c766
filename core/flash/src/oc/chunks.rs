//! The states of chunks (OCSSD 2.0, "Chunk state machine"): what may be read and written where, and what that does. Pure: no
//! data, no time.
//!
//! ```text
//!         write                 write pointer = blocks, or the medium fails
//!   Free ───────▶ Open ─────────────────────────────────────────────────────▶ Closed
//!    ▲ ▲           │ reset, if `early_reset`                                     │ reset
//!    │ └───────────┘                                                             │        any ──retire, a reset
//!    └───────────────────────────────────────────────────────────────────────────┘        that fails──▶ Offline
//! ```
//! A list of addresses is accepted as a whole or refused as a whole. One that is refused says which of its entries are at
//! fault, and nothing has changed.

use super::address::Ppa;
use super::config::ChunkConfig;
use crate::cells::Cells;
use alloc::vec;
use alloc::vec::Vec;

/// The state of a chunk, by its bit in the chunk information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ChunkState {
    /// Nothing is written.
    Free = 1,
    /// Written to its end, or closed early.
    Closed = 2,
    /// Partly written.
    Open = 4,
    /// Gone.
    Offline = 8,
}

/// One chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// Its state.
    pub state: ChunkState,
    /// Blocks from its beginning to its write pointer.
    pub wp: u32,
    /// How often it was reset.
    pub resets: u32,
}

/// Why a list of addresses is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkError {
    /// An address that no block has.
    OutOfRange,
    /// No whole number of write units, a copy whose two lists differ in length, or a reset that names a chunk twice.
    List,
    /// At or behind the write pointer, or so near that the cells are not complete (`mw_cunits`).
    Unwritten,
    /// Not at the write pointer, or in a chunk that is closed.
    OutOfOrder,
    /// In a chunk that is offline.
    Offline,
    /// A reset of a chunk that is free or open.
    InvalidReset,
    /// Another open chunk is more than there may be.
    TooManyOpen,
}

impl core::fmt::Display for ChunkError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::OutOfRange => "no block has this address",
            Self::List => "no whole number of write units, lists of two lengths, or a chunk named twice",
            Self::Unwritten => "not written, or its cells not complete",
            Self::OutOfOrder => "not at the chunk's write pointer",
            Self::Offline => "the chunk is offline",
            Self::InvalidReset => "a chunk in this state cannot be reset",
            Self::TooManyOpen => "as many chunks are open as may be",
        })
    }
}

/// A list that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorError {
    /// Why, by the first entry at fault.
    pub error: ChunkError,
    /// A bit for each entry at fault that could be told, from bit 0 on; bit 63 stands for all further ones.
    pub failed: u64,
}

impl VectorError {
    /// The bit of an entry.
    pub const fn bit(entry: usize) -> u64 {
        1 << if entry < 63 { entry } else { 63 }
    }

    /// The bits of `count` entries from `first` on.
    pub(crate) fn bits(first: usize, count: usize) -> u64 {
        (first..first + count).fold(0, |bits, i| bits | Self::bit(i))
    }

    fn all(error: ChunkError, entries: usize) -> VectorError {
        VectorError { error, failed: Self::bits(0, entries.min(64)) }
    }
}

impl core::fmt::Display for VectorError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} (entries {:#x})", self.error, self.failed)
    }
}

impl core::error::Error for VectorError {}

/// The chunks of a drive.
#[derive(Clone, Debug)]
pub struct Chunks {
    config: ChunkConfig,
    chunks: Vec<Chunk>,
    /// Open chunks: of the drive, and of each parallel unit.
    open: u32,
    open_of: Vec<u32>,
    /// Chunks that a list has changed so far, as they were: to take it back.
    undo: Vec<(u32, Chunk, u64)>,
    /// By chunk: what survives the loss of power ([`crate::RegionImage`]).
    pub(super) words: Cells<u64>,
    pub(super) resets: Cells<u32>,
}

impl Chunks {
    /// All free. The numbers are [valid](ChunkConfig::validate).
    pub(crate) fn new(config: ChunkConfig) -> Chunks {
        let free = Chunk { state: ChunkState::Free, wp: 0, resets: 0 };
        let all = (config.units() * config.chunks) as usize;
        Chunks {
            chunks: vec![free; all],
            words: Cells::Own(vec![0; all]),
            resets: Cells::Own(vec![0; all]),
            open: 0,
            open_of: vec![0; config.units() as usize],
            undo: Vec::new(),
            config,
        }
    }

    /// What they were made with.
    pub fn config(&self) -> &ChunkConfig {
        &self.config
    }

    /// A chunk by its drive-wide number.
    pub fn get(&self, chunk: u32) -> Option<Chunk> {
        self.chunks.get(chunk as usize).copied()
    }

    /// All of them, in the order of their addresses.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Chunk> + '_ {
        self.chunks.iter().copied()
    }

    /// Whether a block can be read.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn readable(&self, at: Ppa) -> Result<(), ChunkError> {
        let chunk = self.get(at.chunk).filter(|_| at.block < self.config.blocks).ok_or(ChunkError::OutOfRange)?;
        let complete = match chunk.state {
            ChunkState::Offline => return Err(ChunkError::Offline),
            ChunkState::Open => chunk.wp.saturating_sub(self.config.mw_cunits),
            ChunkState::Free | ChunkState::Closed => chunk.wp,
        };
        if at.block < complete { Ok(()) } else { Err(ChunkError::Unwritten) }
    }

    /// Whether all of them can be read.
    ///
    /// # Errors
    /// Names every one that cannot.
    pub fn read(&self, list: &[Ppa]) -> Result<(), VectorError> {
        let mut refusal: Option<VectorError> = None;
        for (i, at) in list.iter().enumerate() {
            if let Err(error) = self.readable(*at) {
                refusal.get_or_insert(VectorError { error, failed: 0 }).failed |= VectorError::bit(i);
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    /// Writes whole write units, each at the write pointer of its chunk.
    ///
    /// # Errors
    /// Names the first unit that cannot be written where it is to go.
    pub fn write(&mut self, list: &[Ppa]) -> Result<(), VectorError> {
        let unit = self.config.ws_min as usize;
        if list.is_empty() || list.len() % unit != 0 {
            return Err(VectorError::all(ChunkError::List, list.len()));
        }
        self.undo.clear();
        for (i, blocks) in list.chunks_exact(unit).enumerate() {
            if let Err(error) = self.write_unit(blocks) {
                self.take_back();
                return Err(VectorError { error, failed: VectorError::bits(i * unit, unit) });
            }
        }
        Ok(())
    }

    /// The same; `true`, and everything as it was, or the same refusal.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn takes(&mut self, list: &[Ppa]) -> Result<(), VectorError> {
        self.write(list)?;
        self.take_back();
        Ok(())
    }

    fn write_unit(&mut self, blocks: &[Ppa]) -> Result<(), ChunkError> {
        let first = blocks[0];
        let chunk = self.get(first.chunk).filter(|_| first.block < self.config.blocks).ok_or(ChunkError::OutOfRange)?;
        let in_order = |(i, at): (usize, &Ppa)| *at == Ppa { block: first.block.saturating_add(i as u32), ..first };
        match chunk.state {
            ChunkState::Offline => return Err(ChunkError::Offline),
            ChunkState::Closed => return Err(ChunkError::OutOfOrder),
            ChunkState::Free | ChunkState::Open => {}
        }
        if first.block != chunk.wp || !blocks.iter().enumerate().all(in_order) {
            return Err(ChunkError::OutOfOrder);
        }
        if chunk.state == ChunkState::Free && !self.may_open(first.chunk) {
            return Err(ChunkError::TooManyOpen);
        }
        // Write units divide a chunk.
        let wp = chunk.wp + blocks.len() as u32;
        let state = if wp == self.config.blocks { ChunkState::Closed } else { ChunkState::Open };
        self.undo.push((first.chunk, chunk, self.words[first.chunk as usize]));
        self.set(first.chunk, Chunk { state, wp, ..chunk });
        Ok(())
    }

    /// A write unit that ends its chunk at once opens it, too.
    pub(super) fn may_open(&self, chunk: u32) -> bool {
        let ChunkConfig { max_open, max_open_unit, .. } = self.config;
        let of_unit = self.open_of[self.config.unit_of(chunk) as usize];
        (max_open == 0 || self.open < max_open) && (max_open_unit == 0 || of_unit < max_open_unit)
    }

    /// Resets chunks, each named once.
    ///
    /// # Errors
    /// Names the first one that cannot be reset.
    pub fn reset(&mut self, list: &[u32]) -> Result<(), VectorError> {
        self.undo.clear();
        for (i, chunk) in list.iter().enumerate() {
            let answer = if list[..i].contains(chunk) { Err(ChunkError::List) } else { self.reset_one(*chunk) };
            if let Err(error) = answer {
                self.take_back();
                return Err(VectorError { error, failed: VectorError::bit(i) });
            }
        }
        Ok(())
    }

    fn reset_one(&mut self, number: u32) -> Result<(), ChunkError> {
        let chunk = self.get(number).ok_or(ChunkError::OutOfRange)?;
        let ChunkConfig { multiple_reset, early_reset, .. } = self.config;
        match chunk.state {
            ChunkState::Offline => return Err(ChunkError::Offline),
            ChunkState::Free if !multiple_reset => return Err(ChunkError::InvalidReset),
            ChunkState::Open if !early_reset => return Err(ChunkError::InvalidReset),
            ChunkState::Free | ChunkState::Open | ChunkState::Closed => {}
        }
        self.undo.push((number, chunk, self.words[number as usize]));
        self.set(number, Chunk { state: ChunkState::Free, wp: 0, resets: chunk.resets.saturating_add(1) });
        Ok(())
    }

    /// The drive takes a chunk out of service. One that does not exist stays as it is.
    pub fn retire(&mut self, chunk: u32) {
        if let Some(held) = self.get(chunk) {
            self.set(chunk, Chunk { state: ChunkState::Offline, ..held });
        }
    }

    /// The medium failed a write: an open chunk is closed where it is, and can be read up to its write pointer.
    pub fn close(&mut self, chunk: u32) {
        if let Some(held) = self.get(chunk).filter(|c| c.state == ChunkState::Open) {
            self.set(chunk, Chunk { state: ChunkState::Closed, ..held });
        }
    }

    fn take_back(&mut self) {
        while let Some((chunk, before, word)) = self.undo.pop() {
            self.set(chunk, before);
            self.words[chunk as usize] = word;
        }
    }

    pub(super) fn set(&mut self, number: u32, chunk: Chunk) {
        self.keep(number, &chunk);
        let held = &mut self.chunks[number as usize];
        let (was, is) = (held.state == ChunkState::Open, chunk.state == ChunkState::Open);
        *held = chunk;
        let of_unit = &mut self.open_of[self.config.unit_of(number) as usize];
        *of_unit = *of_unit + u32::from(is) - u32::from(was);
        self.open = self.open + u32::from(is) - u32::from(was);
    }

    /// States the invariants.
    pub fn check(&self) {
        let ChunkConfig { blocks, ws_min, max_open, max_open_unit, .. } = self.config;
        let mut open_of = vec![0; self.open_of.len()];
        for (i, chunk) in self.chunks.iter().enumerate() {
            assert!(chunk.wp <= blocks && chunk.wp % ws_min == 0, "chunk {i}: {chunk:?} of {blocks} blocks");
            match chunk.state {
                ChunkState::Free => assert_eq!(chunk.wp, 0, "chunk {i} is free"),
                ChunkState::Open => assert!(chunk.wp > 0 && chunk.wp < blocks, "chunk {i} is open: {chunk:?}"),
                ChunkState::Closed => assert!(chunk.wp > 0, "chunk {i} is closed and empty"),
                ChunkState::Offline => {}
            }
            self.check_kept(i, chunk);
            open_of[self.config.unit_of(i as u32) as usize] += u32::from(chunk.state == ChunkState::Open);
        }
        assert_eq!(open_of, self.open_of, "open chunks are counted");
        assert_eq!(open_of.iter().sum::<u32>(), self.open, "open chunks are counted");
        assert!(max_open == 0 || self.open <= max_open, "{} of {max_open} are open", self.open);
        assert!(max_open_unit == 0 || open_of.iter().all(|n| *n <= max_open_unit), "{open_of:?} of {max_open_unit}");
    }
}
