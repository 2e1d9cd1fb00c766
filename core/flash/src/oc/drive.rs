//! A drive of physical addresses: [`Chunks`] decides what is accepted, [`Array`] and [`Host`] when it is done.
//!
//! Nothing is buffered in the drive: a write is complete when its last page is programmed. A list's parts run side by side as
//! far as dies and channels let them.

use super::address::{AddressFormat, Ppa};
use super::chunks::{Chunks, VectorError};
use super::config::{OpenChannelConfig, OpenChannelError};
use crate::array::Array;
use crate::ftl::{Lifetimes, factory_bad};
use crate::geometry::{PageAddress, Shape, UNIT};
use crate::host::{Host, HostOp};
use crate::timing::OperationUnit;
use weir_units::Nanos;
use weir_units::rng::{SplitMix64, mix};

/// A list that was accepted, and how that went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorOutcome {
    /// When it is complete.
    pub done: Nanos,
    /// Entries that the medium failed, as [`VectorError::failed`] has them. Reads: their data is lost. Resets: the chunk is
    /// offline. Copies: a source is lost, and nothing was written.
    pub failed: u64,
}

/// What the flash has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenChannelWork {
    /// Pages read, over a channel.
    pub reads: u64,
    /// Write units programmed, over a channel.
    pub programs: u64,
    /// Pages copied back within their plane.
    pub copy_backs: u64,
    /// Chunks reset.
    pub resets: u64,
}

/// A drive of physical addresses.
#[derive(Clone, Debug)]
pub struct OpenChannel {
    pub(super) config: OpenChannelConfig,
    pub(super) chunks: Chunks,
    format: AddressFormat,
    pub(super) array: Array,
    pub(super) host: Host,
    pub(super) shape: Shape,
    /// Planes of a die work only together.
    pub(super) together: bool,
    /// Reads may fail: each page is asked how it went.
    varied: bool,
    life: Lifetimes,
    rng: SplitMix64,
    pub(super) work: OpenChannelWork,
}

/// Blocks of one list that lie behind one another on one page of each plane.
pub(super) struct RowBlocks {
    /// The page on the first plane of the die.
    pub row: PageAddress,
    /// The first block's place among those of the row.
    pub from: u32,
    /// How many.
    pub blocks: u32,
    /// Its first entry in the list.
    pub entry: usize,
}

impl OpenChannel {
    /// Everything free and idle, but for chunks that are bad from the factory.
    ///
    /// # Errors
    /// Says which numbers do not go together.
    pub fn new(config: &OpenChannelConfig) -> Result<OpenChannel, OpenChannelError> {
        let (chunk_config, shape) = config.chunks()?;
        let mut chunks = Chunks::new(chunk_config);
        let bad = factory_bad(chunks.iter().len() as u32, config.seed, config.factory_bad);
        bad.iter().zip(0..).filter(|(bad, _)| **bad).for_each(|(_, chunk)| chunks.retire(chunk));
        Ok(OpenChannel {
            config: *config,
            format: chunk_config.format(),
            chunks,
            array: Array::new(&shape, &config.timing.booked(), &config.variability),
            host: Host::new(&config.host),
            shape,
            together: config.timing.gate == OperationUnit::Die,
            varied: config.variability.errors.is_some(),
            life: Lifetimes::new(config.seed, config.endurance, 0),
            rng: SplitMix64::new(mix(config.seed ^ 0xc4)),
            work: OpenChannelWork::default(),
        })
    }

    /// The chunks.
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// How addresses are composed.
    pub fn format(&self) -> &AddressFormat {
        &self.format
    }

    /// The flash, to look at.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// Firmware and link, to look at.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// What the flash has done so far.
    pub fn work(&self) -> OpenChannelWork {
        self.work
    }

    /// How worn a chunk is, 0 to 255 (WLI): of the resets that it endures, or resets as such where it endures any number.
    pub fn wear_index(&self, chunk: u32) -> u8 {
        let resets = u64::from(self.chunks.get(chunk).map_or(0, |c| c.resets));
        let index = if self.life.endurance == 0 { resets } else { resets * 255 / u64::from(self.life.endurance) };
        index.min(255) as u8
    }

    /// Reads; complete when the host has the data.
    ///
    /// # Errors
    /// Those of [`Chunks::read`].
    pub fn read(&mut self, now: Nanos, list: &[Ppa]) -> Result<VectorOutcome, VectorError> {
        self.chunks.read(list)?;
        let begun = self.host.fetch(now, HostOp::Read, bytes(list.len()));
        let mut outcome = VectorOutcome { done: begun, failed: 0 };
        let mut rest = 0;
        while let Some(run) = self.run(list, rest) {
            let sensed = self.sense(begun, &run);
            outcome.failed |= sensed.failed;
            outcome.done = outcome.done.max(self.host.deliver(sensed.done, bytes(run.blocks as usize)));
            rest += run.blocks as usize;
        }
        Ok(outcome)
    }

    /// Writes whole write units at the write pointers of their chunks.
    ///
    /// # Errors
    /// Those of [`Chunks::write`].
    pub fn write(&mut self, now: Nanos, list: &[Ppa]) -> Result<VectorOutcome, VectorError> {
        self.chunks.write(list)?;
        let arrived = self.host.fetch(now, HostOp::Write, bytes(list.len()));
        let unit = self.chunks.config().ws_min as usize;
        let units = list.chunks_exact(unit).map(|blocks| blocks[0]);
        let done = units.fold(arrived, |done, first| done.max(self.program(arrived, first)));
        Ok(VectorOutcome { done, failed: 0 })
    }

    /// Resets chunks: their blocks are erased. One that has reached its end goes offline.
    ///
    /// # Errors
    /// Those of [`Chunks::reset`].
    pub fn reset(&mut self, now: Nanos, list: &[u32]) -> Result<VectorOutcome, VectorError> {
        self.chunks.reset(list)?;
        let begun = self.host.fetch(now, HostOp::Other, 0);
        let mut outcome = VectorOutcome { done: begun, failed: 0 };
        for (i, chunk) in list.iter().enumerate() {
            outcome.done = outcome.done.max(self.erase(begun, *chunk));
            let resets = self.chunks.get(*chunk).map_or(0, |c| c.resets);
            if self.life.fails(*chunk, resets, &mut self.rng) {
                self.chunks.retire(*chunk);
                outcome.failed |= VectorError::bit(i);
            }
        }
        self.work.resets += list.len() as u64;
        Ok(outcome)
    }

    /// A command that only firmware works on.
    pub fn other(&mut self, now: Nanos) -> Nanos {
        self.host.fetch(now, HostOp::Other, 0)
    }

    /// Takes a chunk out of service.
    pub fn retire(&mut self, chunk: u32) {
        self.chunks.retire(chunk);
    }

    /// The medium failed a write of this chunk: see [`Chunks::close`].
    pub fn close(&mut self, chunk: u32) {
        self.chunks.close(chunk);
    }

    /// The next run of a list.
    pub(super) fn run(&self, list: &[Ppa], entry: usize) -> Option<RowBlocks> {
        let first = *list.get(entry)?;
        let unit = self.chunks.config().ws_min;
        let from = first.block % unit;
        let follows = |(at, i): &(&Ppa, u32)| **at == Ppa { block: first.block + i, ..first };
        let blocks = list[entry..].iter().zip(0..unit - from).take_while(follows).count() as u32;
        Some(RowBlocks { row: self.row(first), from, blocks, entry })
    }

    /// The page of a block, on the first plane of its die.
    pub(super) fn row(&self, at: Ppa) -> PageAddress {
        let config = self.chunks.config();
        let unit = config.unit_of(at.chunk);
        let plane = self.shape.plane(unit / config.units, unit % config.units, 0);
        PageAddress { plane, block: at.chunk % config.chunks, page: at.block / config.ws_min }
    }

    /// Reads a run over the channel; complete when its last block is in the controller.
    pub(super) fn sense(&mut self, begun: Nanos, run: &RowBlocks) -> VectorOutcome {
        let each = self.shape.units_per_page();
        let (first, last) = (run.from / each, (run.from + run.blocks - 1) / each);
        let planes = last - first + 1;
        self.work.reads += u64::from(planes);
        if self.together && !self.varied && run.blocks == planes * each {
            let at = PageAddress { plane: run.row.plane + first, ..run.row };
            let done = self.array.read_planes(begun, at, planes, self.shape.page_bytes());
            return VectorOutcome { done, failed: 0 };
        }
        let mut outcome = VectorOutcome { done: begun, failed: 0 };
        for plane in first..=last {
            let (from, to) = ((plane * each).max(run.from), ((plane + 1) * each).min(run.from + run.blocks));
            let at = PageAddress { plane: run.row.plane + plane, ..run.row };
            let read = self.array.read_outcome(begun, at, (to - from) * UNIT);
            outcome.done = outcome.done.max(read.done);
            if read.failed {
                let entry = run.entry + (from - run.from) as usize;
                outcome.failed |= VectorError::bits(entry, (to - from) as usize);
            }
        }
        outcome
    }

    /// Programs the write unit that begins at `first`; its end.
    pub(super) fn program(&mut self, now: Nanos, first: Ppa) -> Nanos {
        self.work.programs += 1;
        self.array.program_planes(now, self.row(first), self.shape.planes_per_die(), self.shape.page_bytes()).done
    }

    /// Erases a chunk's block on every plane; its end. Planes of a die that work only together take one erase.
    fn erase(&mut self, begun: Nanos, chunk: u32) -> Nanos {
        let row = self.row(Ppa { chunk, block: 0 });
        let planes = if self.together { 1 } else { self.shape.planes_per_die() };
        (0..planes).map(|p| self.array.erase(begun, row.plane + p, row.block)).max().unwrap_or(begun)
    }

    /// States the invariants.
    pub fn check(&self) {
        self.chunks.check();
        self.array.check();
    }
}

/// Of a list: bounded by a command's 16-bit length.
fn bytes(blocks: usize) -> u32 {
    (blocks as u64 * u64::from(UNIT)).min(u64::from(u32::MAX)) as u32
}
