//! Data that moves inside the drive: the standard's vector copy, and the page move of papers/002 section 4.

use super::address::Ppa;
use super::chunks::{ChunkError, VectorError};
use super::drive::{OpenChannel, VectorOutcome};
use crate::geometry::{PageAddress, Shape};
use crate::host::HostOp;
use crate::lun::Promise;
use weir_units::Nanos;

impl OpenChannel {
    /// Copies blocks to whole write units at the write pointers of their chunks: over the channel to the controller, which
    /// corrects them, and back. The host link carries the command only.
    ///
    /// # Errors
    /// Those of [`Chunks::read`](super::Chunks::read) for the sources and of [`Chunks::write`](super::Chunks::write) for the
    /// destinations. Sources must be readable before the copy.
    pub fn copy(&mut self, now: Nanos, from: &[Ppa], to: &[Ppa]) -> Result<VectorOutcome, VectorError> {
        self.relocate(now, from, to, false)
    }

    /// The same, but a page whose blocks come in order from one page of the same plane is copied back: it does not leave its
    /// chip, and the channel carries two commands. Nobody corrects it, so data that is to be refreshed wants a copy.
    ///
    /// # Errors
    /// Those of [`copy`](Self::copy).
    pub fn move_pages(&mut self, now: Nanos, from: &[Ppa], to: &[Ppa]) -> Result<VectorOutcome, VectorError> {
        self.relocate(now, from, to, true)
    }

    fn relocate(&mut self, now: Nanos, from: &[Ppa], to: &[Ppa], within: bool) -> Result<VectorOutcome, VectorError> {
        if from.len() != to.len() {
            let longer = from.len().max(to.len());
            let failed = VectorError::bits(from.len().min(to.len()), longer - from.len().min(to.len()));
            return Err(VectorError { error: ChunkError::List, failed });
        }
        self.chunks.read(from)?;
        self.chunks.takes(to)?;
        let begun = self.host.fetch(now, HostOp::Other, 0);
        let unit = self.chunks.config().ws_min as usize;
        let mut outcome = VectorOutcome { done: begun, failed: 0 };
        // Everything is read before anything is programmed: a source that is lost leaves the destinations as they were.
        let mut loaded = alloc::vec::Vec::with_capacity(to.len() / unit);
        for (i, from) in from.chunks_exact(unit).enumerate() {
            let planes = if within { self.planes_within(from, to[i * unit]) } else { 0 };
            let read = self.collect(begun, from, i * unit, planes);
            outcome.failed |= read.failed;
            outcome.done = outcome.done.max(read.done);
            loaded.push((planes, read.done));
        }
        if outcome.failed != 0 {
            return Ok(outcome);
        }
        self.chunks.write(to)?;
        for (i, (planes, ready)) in loaded.into_iter().enumerate() {
            let (from, to) = (&from[i * unit..(i + 1) * unit], to[i * unit]);
            outcome.done = outcome.done.max(self.put(begun, ready, from, to, planes));
        }
        Ok(outcome)
    }

    /// The planes of a write unit that can be copied back, one bit each.
    fn planes_within(&self, from: &[Ppa], to: Ppa) -> u64 {
        let each = self.shape.units_per_page();
        let row = self.row(to);
        let unit = self.chunks.config().ws_min;
        let fits = |plane: &u32| {
            let blocks = &from[(plane * each) as usize..((plane + 1) * each) as usize];
            let source = blocks[0];
            let in_order = |(at, i): (&Ppa, u32)| *at == Ppa { block: source.block + i, ..source };
            self.row(source).plane == row.plane
                && source.block % unit == plane * each
                && blocks.iter().zip(0..).all(in_order)
        };
        let planes = self.shape.planes_per_die();
        let bits = (0..planes).filter(fits).fold(0, |bits, plane| bits | 1u64 << plane);
        // One operation of the whole die has one source page.
        let one_row = || from.iter().all(|at| at.chunk == from[0].chunk && at.block / unit == from[0].block / unit);
        if self.together && (bits != every(&self.shape) || !one_row()) { 0 } else { bits }
    }

    /// Reads what is not copied back over the channel. `entry`: where the unit begins in the command's list.
    fn collect(&mut self, begun: Nanos, from: &[Ppa], entry: usize, within: u64) -> VectorOutcome {
        let each = self.shape.units_per_page();
        let mut outcome = VectorOutcome { done: begun, failed: 0 };
        let mut i = 0;
        while let Some(mut run) = self.run(from, i) {
            let plane = i as u32 / each;
            if within & 1 << plane != 0 {
                i = ((plane + 1) * each) as usize;
                continue;
            }
            // Not into a plane that is copied back.
            let next = (plane + 1..self.shape.planes_per_die()).find(|p| within & 1 << p != 0);
            run.blocks = run.blocks.min(next.map_or(u32::MAX, |p| p * each - i as u32));
            run.entry += entry;
            let read = self.sense(begun, &run);
            outcome.done = outcome.done.max(read.done);
            outcome.failed |= read.failed;
            i += run.blocks as usize;
        }
        outcome
    }

    /// Puts a write unit in its place: copied back, or programmed when it is in the controller.
    fn put(&mut self, begun: Nanos, ready: Nanos, from: &[Ppa], to: Ppa, within: u64) -> Nanos {
        if within == 0 {
            return self.program(ready, to);
        }
        let (row, planes, each) = (self.row(to), self.shape.planes_per_die(), self.shape.units_per_page());
        self.work.copy_backs += u64::from(within.count_ones());
        if self.together {
            // Every plane at once: the die is busy as for one.
            let source = self.row(from[0]);
            return self.array.copy_back(begun, source, row, Promise::Told);
        }
        self.work.programs += u64::from(within != every(&self.shape));
        let of_plane = |plane: u32| {
            let at = PageAddress { plane: row.plane + plane, ..row };
            if within & 1 << plane == 0 {
                return self.array.program(ready, at, self.shape.page_bytes()).done;
            }
            let source = self.row(from[(plane * each) as usize]);
            self.array.copy_back(begun, PageAddress { plane: at.plane, ..source }, at, Promise::Told)
        };
        (0..planes).map(of_plane).max().unwrap_or(begun)
    }
}

/// A bit for every plane of a die; write units are of at most 64 blocks.
fn every(shape: &Shape) -> u64 {
    u64::MAX >> (64 - shape.planes_per_die())
}
