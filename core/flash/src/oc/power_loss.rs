//! What of chunks survives the loss of power, and what they are after it.
//!
//! A chunk's write pointer moves when a write begins; its word follows when the write has [landed](OpenChannel::landed). After a
//! loss of power the write pointer is where the last completed write has left it: programs that were under way are gone. A chunk
//! is free where that is nothing, closed where it is all (or the chunk was closed early), and open otherwise.

use super::address::Ppa;
use super::chunks::{Chunk, ChunkState, Chunks};
use super::config::ChunkConfig;
use super::drive::OpenChannel;
use crate::array::Array;
use crate::cells::Cells;
use crate::host::Host;
use crate::region::{RegionError, RegionImage, RegionLoss, RegionSize, RegionWord};
use alloc::vec;
use alloc::vec::Vec;

impl Chunks {
    fn kept(&self, chunk: u32) -> RegionWord {
        RegionWord::of(self.words[chunk as usize])
    }

    /// Keeps what a chunk becomes. Its wear comes first: a reset that is kept has been counted.
    pub(super) fn keep(&mut self, number: u32, chunk: &Chunk) {
        let was = self.kept(number);
        self.resets[number as usize] = chunk.resets;
        let end = if chunk.state == ChunkState::Free { 0 } else { was.end.min(chunk.wp) };
        let early = chunk.state == ChunkState::Closed && chunk.wp < self.config().blocks;
        let kept = RegionWord { end, state: chunk.state as u8, finished: early, ..RegionWord::default() };
        self.words[number as usize] = kept.word();
    }

    pub(super) fn landed(&mut self, chunk: u32, wp: u32) {
        let Some(held) = self.get(chunk).filter(|c| c.state != ChunkState::Free) else { return };
        let (kept, wp) = (self.kept(chunk), wp.min(held.wp));
        if wp > kept.end {
            self.words[chunk as usize] = RegionWord { end: wp, ..kept }.word();
        }
    }

    /// The chunks from their words. One without keeps what it is.
    fn rebuild(&mut self) -> Result<(), RegionError> {
        let ChunkConfig { blocks, ws_min, max_open, .. } = *self.config();
        let resets = |chunks: &Chunks, i: u32| chunks.resets[i as usize];
        let all = self.iter().len() as u32;
        // Closed chunks whose last write was lost are open again, as far as there may be so many.
        for pass in [true, false] {
            for i in 0..all {
                let kept = self.kept(i);
                let full = kept.state == ChunkState::Closed as u8;
                if kept.state == 0 || (!full || kept.finished) != pass {
                    continue;
                }
                let end = kept.end.min(blocks) / ws_min * ws_min;
                let state = match kept.state {
                    8 => ChunkState::Offline,
                    _ if end == 0 => ChunkState::Free,
                    _ if end == blocks || kept.finished => ChunkState::Closed,
                    2 if !self.may_open(i) => ChunkState::Closed,
                    _ => ChunkState::Open,
                };
                self.words[i as usize] = RegionWord { end, ..kept }.word();
                self.set(i, Chunk { state, wp: end, resets: resets(self, i) });
            }
        }
        for i in 0..all {
            if let Some(chunk) = self.get(i).filter(|_| self.words[i as usize] == 0) {
                self.set(i, chunk);
            }
        }
        let found = self.iter().filter(|c| c.state == ChunkState::Open).count() as u32;
        match max_open != 0 && found > max_open {
            true => Err(RegionError::Active { found, limit: max_open }),
            false => Ok(()),
        }
    }

    pub(super) fn check_kept(&self, number: usize, chunk: &Chunk) {
        let kept = self.kept(number as u32);
        if self.words[number] != 0 {
            assert_eq!((kept.state, self.resets[number]), (chunk.state as u8, chunk.resets), "chunk {number}");
        }
        assert!(kept.end <= chunk.wp, "chunk {number}: {kept:?} of {chunk:?}");
    }
}

impl OpenChannel {
    /// What of it survives: see [`RegionImage`].
    pub fn image_size(&self) -> RegionSize {
        let chunks = self.chunks.iter().len() as u64;
        RegionSize { words: chunks, wear: chunks, extensions: 0 }
    }

    /// Goes on from what another drive of the same chunks has left at `image`, or from nothing: all zeroes.
    ///
    /// # Errors
    /// The image is of another size, or has more open chunks than there may be.
    pub fn adopt(&mut self, image: RegionImage) -> Result<(), RegionError> {
        let (found, wanted) = (image.size(), self.image_size());
        if found != wanted {
            return Err(RegionError::Size { found, wanted });
        }
        (self.chunks.words, self.chunks.resets) = (Cells::Lent(image.words), Cells::Lent(image.wear));
        self.chunks.rebuild()?;
        self.restart();
        Ok(())
    }

    /// A write that has moved a chunk's write pointer to `wp` is over: its data is there.
    pub fn landed(&mut self, chunk: u32, wp: u32) {
        self.chunks.landed(chunk, wp);
    }

    /// Where the data of a chunk ends: nothing was completed from this block on.
    pub fn data_end(&self, chunk: u32) -> u32 {
        self.chunks.kept(chunk).end
    }

    /// The power goes and comes back: what has not landed is gone. No completed write is.
    pub fn power_cut(&mut self) -> RegionLoss {
        let before: Vec<Chunk> = self.chunks.iter().collect();
        // As many chunks as before are open at most: limits hold.
        let _ = self.chunks.rebuild();
        self.restart();
        let ends = (0u32..).zip(&before).map(|(i, before)| (i, self.data_end(i), before.wp));
        RegionLoss { lost: 0, gone: ends.filter(|(_, end, wp)| end < wp).map(|(i, end, _)| (i, end)).collect() }
    }

    /// Idle, with what the chunks hold.
    fn restart(&mut self) {
        self.array = Array::new(&self.shape, &self.config.timing.booked(), &self.config.variability);
        let planes = self.shape.planes_per_die();
        let mut wear = vec![0; self.shape.blocks() as usize];
        for (i, chunk) in (0..).zip(self.chunks.iter()) {
            let row = self.row(Ppa { chunk: i, block: 0 });
            (0..planes).for_each(|p| wear[self.shape.block_index(row.plane + p, row.block) as usize] = chunk.resets);
        }
        self.array.set_wear(&wear);
        self.host = Host::new(&self.config.host);
    }
}
